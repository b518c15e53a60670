//! `ipfragdemux`: an instance per fragmented datagram.

use flowgauge_kit::keyed::{DEMULTIPLEXER, by, mixed};
use flowgauge_stack::ComponentInfo;
use flowgauge_wire::{Address, Decoded};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipfragdemux",
    summary: "an instance per pair of hosts whose datagrams come in fragments",
    help: "ipreass inside tells the datagrams of a pair apart by their identification. What is no \
           fragment goes on to what follows.",
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
    let fold = |address: Address| {
        let bytes = u128::from_le_bytes(address.0);
        (bytes as u64) ^ (bytes >> 64) as u64
    };
    let hash = mixed(fold(source)) ^ mixed(fold(destination)).rotate_left(23);
    Some(((source, destination), hash))
}
