//! `ipcnxdemux`: an instance per pair of hosts that talk over IP.

use flowgauge_kit::keyed::{DEMULTIPLEXER, by};
use flowgauge_stack::ComponentInfo;
use flowgauge_wire::{Address, Decoded, FlowKey, HashSeed};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipcnxdemux",
    summary: "an instance per pair of IP addresses, both directions",
    help: "Packets other than IP go on to the components that follow.",
    make: |settings| Ok(by(settings, pair)),
    ..DEMULTIPLEXER
};

#[inline]
fn pair(packet: &Decoded) -> Option<((Address, Address, u32), u64)> {
    if !packet.has_ip() {
        return None;
    }
    // The key is in the order of address and port: without ports, of the addresses alone.
    let key = &packet.key;
    let (low, high) = (key.low.min(key.high), key.low.max(key.high));
    let hash = HashSeed::of_process().hash(&FlowKey {
        low,
        high,
        version: 6,
        context: key.context,
        ..FlowKey::default()
    });
    Some(((low, high, key.context), hash))
}
