//! Parts of a packet, by its headers.

use flowgauge_stack::Packets;
use flowgauge_wire::{DecodeFlags, Decoded};

/// The captured part of the innermost IP datagram, from its header; empty where there is none.
pub(crate) fn datagram<'a>(packets: &Packets<'a>, packet: &Decoded) -> &'a [u8] {
    if !packet.has_ip() {
        return &[];
    }
    let bytes = packets.bytes(packet);
    let bytes = bytes.get(usize::from(packet.ip_offset)..).unwrap_or(&[]);
    bytes.get(..packet.ip_len as usize).unwrap_or(bytes)
}

/// What follows the IP header: the transport header and its payload, or a fragment's data.
pub(crate) fn transport<'a>(packets: &Packets<'a>, packet: &Decoded) -> &'a [u8] {
    let start = if packet.flags.contains(DecodeFlags::FRAGMENT) {
        packet.payload_offset as usize
    } else {
        usize::from(packet.transport_offset)
    };
    let skipped = start.checked_sub(usize::from(packet.ip_offset));
    let datagram = datagram(packets, packet);
    skipped.and_then(|at| datagram.get(at..)).unwrap_or(&[])
}

/// The captured part of what the transport carries, or of a fragment's data.
pub(crate) fn payload<'a>(packets: &Packets<'a>, packet: &Decoded) -> &'a [u8] {
    packets.decoded.payload(packets.batch, packet)
}
