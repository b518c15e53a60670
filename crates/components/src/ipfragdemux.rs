//! `ipfragdemux`: an instance per fragmented datagram.

use flowgauge_kit::keyed::{DEMULTIPLEXER, by};
use flowgauge_stack::ComponentInfo;
use flowgauge_wire::{Address, Decoded, FlowKey, HashSeed};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipfragdemux",
    summary: "an instance per pair of hosts with fragmented datagrams",
    help: "Inside it, ipreass distinguishes the datagrams of a pair by their identification. Packets that are not \
           fragments go on to the components that follow.",
    make: |settings| Ok(by(settings, sender)),
    ..DEMULTIPLEXER
};

#[inline]
fn sender(packet: &Decoded) -> Option<((Address, Address), u64)> {
    use flowgauge_wire::DecodeFlags;
    if !packet.flags.contains(DecodeFlags::FRAGMENT) {
        return None;
    }
    let (source, destination) = (packet.source().0, packet.destination().0);
    let hash = HashSeed::of_process().hash(&FlowKey {
        low: source,
        high: destination,
        version: 6,
        ..FlowKey::default()
    });
    Some(((source, destination), hash))
}
