//! `ipcnxdemux`: an instance per pair of hosts that talk over IP.

use flowgauge_kit::keyed::{DEMULTIPLEXER, by, mixed};
use flowgauge_stack::ComponentInfo;
use flowgauge_wire::{Address, Decoded};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipcnxdemux",
    summary: "an instance per pair of IP addresses, both directions",
    help: "What is not IP goes on to what follows.",
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
    let hash = halves(low) ^ halves(high).rotate_left(29) ^ u64::from(key.context);
    Some(((low, high, key.context), mixed(hash)))
}

fn halves(address: Address) -> u64 {
    let bytes = u128::from_le_bytes(address.0);
    mixed(bytes as u64) ^ mixed((bytes >> 64) as u64).rotate_left(17)
}
