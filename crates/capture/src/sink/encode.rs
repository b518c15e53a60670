//! Encodes packets for capture files.

use flowgauge_wire::{Ledger, LinkType, PacketDescriptor, PacketFlags, Place};

use crate::file::MAX_PACKET_BYTES;
use crate::source::Interface;

/// A packet's bytes with the VLAN tag that the kernel took out back in its place: the bytes before
/// it, the tag, the bytes after it.
struct Frame<'a> {
    before: &'a [u8],
    tag: [u8; 4],
    tag_len: usize,
    after: &'a [u8],
}

impl<'a> Frame<'a> {
    fn new(packet: &PacketDescriptor, bytes: &'a [u8]) -> Frame<'a> {
        if packet.flags.contains(PacketFlags::VLAN) {
            let split = match packet.link {
                LinkType::ETHERNET => bytes.split_at_checked(12),
                LinkType::LINUX_SLL => bytes.split_at_checked(14),
                _ => None,
            };
            if let Some((before, after)) = split {
                let [a, b] = packet.vlan_tpid.to_be_bytes();
                let [c, d] = packet.vlan_tci.to_be_bytes();
                return Frame {
                    before,
                    tag: [a, b, c, d],
                    tag_len: 4,
                    after,
                };
            }
        }
        Frame {
            before: bytes,
            tag: [0; 4],
            tag_len: 0,
            after: &[],
        }
    }

    fn len(&self) -> usize {
        self.before.len() + self.tag_len + self.after.len()
    }

    /// Bytes on the wire. The tag is among the descriptor's already.
    fn wire_len(&self, packet: &PacketDescriptor) -> u32 {
        packet.wire_len.max(self.len() as u32)
    }

    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.before);
        out.extend_from_slice(self.tag.get(..self.tag_len).unwrap_or(&[]));
        out.extend_from_slice(self.after);
    }
}

/// Appends a pcap file header.
pub fn pcap_header(out: &mut Vec<u8>, link: LinkType, snap_len: u32, nanoseconds: bool) {
    let magic: u32 = if nanoseconds {
        0xa1b2_3c4d
    } else {
        0xa1b2_c3d4
    };
    out.extend_from_slice(&magic.to_le_bytes());
    out.extend_from_slice(&2u16.to_le_bytes());
    out.extend_from_slice(&4u16.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    let snap_len = if snap_len == 0 {
        MAX_PACKET_BYTES
    } else {
        snap_len
    };
    out.extend_from_slice(&snap_len.to_le_bytes());
    out.extend_from_slice(&u32::from(link.0).to_le_bytes());
}

/// Appends a pcap record.
#[inline]
pub fn pcap_record(out: &mut Vec<u8>, packet: &PacketDescriptor, bytes: &[u8], nanoseconds: bool) {
    let frame = Frame::new(packet, bytes);
    let seconds = packet.time.0 / 1_000_000_000;
    let fraction = (packet.time.0 % 1_000_000_000) / if nanoseconds { 1 } else { 1000 };
    let mut header = [0; 16];
    for (field, value) in header.chunks_exact_mut(4).zip([
        seconds as u32,
        fraction as u32,
        frame.len() as u32,
        frame.wire_len(packet),
    ]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(&header);
    frame.append(out);
}

/// Appends a section header block.
pub fn section_header(out: &mut Vec<u8>, comment: Option<&str>) {
    block(out, 0x0a0d_0d0a, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        if let Some(comment) = comment {
            option(out, 1, comment.as_bytes());
        }
        option(
            out,
            4,
            concat!("Flowgauge ", env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        option(out, 0, &[]);
    });
}

/// Appends an interface description block; timestamps are in nanoseconds.
pub fn interface_description(out: &mut Vec<u8>, interface: &Interface) {
    block(out, 1, |out| {
        out.extend_from_slice(&interface.link.0.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&interface.snap_len.to_le_bytes());
        if let Some(name) = &interface.name {
            option(out, 2, name.as_bytes());
        }
        if let Some(description) = &interface.description {
            option(out, 3, description.as_bytes());
        }
        option(out, 9, &[9]);
        if let Some(filter) = &interface.filter {
            let mut value = vec![0];
            value.extend_from_slice(filter.as_bytes());
            option(out, 11, &value);
        }
        option(out, 0, &[]);
    });
}

/// Appends an enhanced packet block.
#[inline]
pub fn enhanced_packet(out: &mut Vec<u8>, packet: &PacketDescriptor, bytes: &[u8], interface: u32) {
    let frame = Frame::new(packet, bytes);
    let captured = frame.len();
    let padding = captured.next_multiple_of(4) - captured;
    let outgoing = packet.flags.contains(PacketFlags::OUTGOING);
    let length = (32 + captured + padding + if outgoing { 12 } else { 0 }) as u32;
    let mut header = [0; 28];
    for (field, value) in header.chunks_exact_mut(4).zip([
        6,
        length,
        interface,
        (packet.time.0 >> 32) as u32,
        packet.time.0 as u32,
        captured as u32,
        frame.wire_len(packet),
    ]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    out.extend_from_slice(&header);
    frame.append(out);
    out.extend_from_slice([0; 3].get(..padding).unwrap_or(&[]));
    if outgoing {
        option(out, 2, &2u32.to_le_bytes());
        option(out, 0, &[]);
    }
    out.extend_from_slice(&length.to_le_bytes());
}

/// Appends an interface statistics block at the end of a file. The counts of packets received and
/// lost by the whole source can only be given for its only interface.
pub fn interface_statistics(
    out: &mut Vec<u8>,
    interface: u32,
    first: u64,
    last: u64,
    packets: u64,
    ledger: Option<&Ledger>,
) {
    let time = |time: u64| {
        let mut value = [0; 8];
        for (half, part) in value
            .chunks_exact_mut(4)
            .zip([(time >> 32) as u32, time as u32])
        {
            half.copy_from_slice(&part.to_le_bytes());
        }
        value
    };
    block(out, 5, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        out.extend_from_slice(&time(last));
        option(out, 2, &time(first));
        option(out, 3, &time(last));
        if let Some(ledger) = ledger {
            option(out, 4, &ledger.received().to_le_bytes());
            option(out, 5, &ledger.at(Place::Nic).to_le_bytes());
            option(out, 7, &ledger.at(Place::KernelRing).to_le_bytes());
        }
        option(out, 8, &packets.to_le_bytes());
        option(out, 0, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend_from_slice(&length);
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&length);
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    let padding = value.len().next_multiple_of(4) - value.len();
    out.extend_from_slice([0; 3].get(..padding).unwrap_or(&[]));
}
