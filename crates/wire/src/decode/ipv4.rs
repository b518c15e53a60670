//! IPv4 (RFC 791).

use super::transport;
use super::walk::{Next, Walk};
use crate::decoded::{DecodeFlags, Problem};
use crate::key::Address;
use flowgauge_sys::checksum::is_right;

pub(super) fn ipv4(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let start = walk.at;
    let header = walk.take::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < 20 {
        return walk.stop(Problem::BadIpHeader);
    }
    let total = match u16::from_be_bytes([header[2], header[3]]) {
        // Left to the network card by segmentation offload: all of the frame.
        0 => walk.end - start,
        total => usize::from(total),
    };
    if total < header_len {
        return walk.stop(Problem::BadIpHeader);
    }
    walk.version = 4;
    walk.source = Address::v4([header[12], header[13], header[14], header[15]]);
    walk.destination = Address::v4([header[16], header[17], header[18], header[19]]);
    walk.packet.ttl = header[8];
    set_datagram(walk, start, total);
    let protocol = header[9];
    walk.set_key(protocol, 0, 0);
    walk.set_payload(header_len - 20, total - header_len);
    walk.skip(header_len - 20)?;
    if !checksum_is_right(walk.bytes.get(start..start + header_len).unwrap_or(&[])) {
        walk.packet.flags.insert(DecodeFlags::BAD_IP_CHECKSUM);
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if fragment & 0x3fff != 0 {
        transport::fragment(walk, protocol, fragment & 0x1fff == 0);
        return None;
    }
    transport::transport(walk, protocol)
}

/// Notes an IP datagram of `total` bytes at `start` and narrows the layer to it.
pub(super) fn set_datagram(walk: &mut Walk<'_, '_>, start: usize, total: usize) {
    walk.packet.ip_offset = start.min(usize::from(u16::MAX)) as u16;
    walk.packet.ip_len = total as u32;
    let end = start + total;
    if end > walk.outer_end {
        // More than the frame holds. Decoding goes on, as far as the bytes go.
        let _: Option<()> = walk.stop(Problem::BadIpHeader);
    }
    if end < walk.outer_end {
        walk.packet.flags.insert(DecodeFlags::TRAILER);
    }
    if end > walk.bytes.len() {
        walk.packet.flags.insert(DecodeFlags::CUT);
    }
    walk.end = end;
}

fn checksum_is_right(header: &[u8]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let sum: u64 = words
        .iter()
        .map(|&word| u64::from(u32::from_ne_bytes(word)))
        .sum();
    is_right(sum)
}
