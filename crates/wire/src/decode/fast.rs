//! The hot path: Ethernet, IPv4 or IPv6, TCP or UDP, nothing unusual.

use super::PortFilter;
use super::ethernet::{IPV4, IPV6};
use super::ipv4::sum_is_ones;
use super::transport::{TCP, UDP};
use crate::decoded::{DecodeFlags, Decoded, Problem, TcpFlags};
use crate::key::{Address, Direction, FlowKey};
use crate::packet::PacketDescriptor;

const ETHERNET_LEN: usize = 14;

/// Decodes `bytes` into `slot` and says so, or leaves it alone when anything is unusual.
#[inline(always)]
pub(super) fn ethernet(
    ports: &PortFilter,
    descriptor: &PacketDescriptor,
    bytes: &[u8],
    index: u16,
    slot: &mut Decoded,
) -> bool {
    let Some((head, rest)) = bytes.split_first_chunk::<34>() else {
        return false;
    };
    let ethertype = u16::from_be_bytes([head[12], head[13]]);
    if ethertype == IPV4 && head[14] == 0x45 {
        return ipv4(ports, descriptor, bytes.len(), head, rest, index, slot);
    }
    if ethertype == IPV6
        && let Some((head, rest)) = bytes.split_first_chunk::<54>()
    {
        return ipv6(ports, descriptor, bytes.len(), head, rest, index, slot);
    }
    false
}

#[inline(always)]
fn ipv4(
    ports: &PortFilter,
    descriptor: &PacketDescriptor,
    captured: usize,
    head: &[u8; 34],
    rest: &[u8],
    index: u16,
    slot: &mut Decoded,
) -> bool {
    let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let fragment = u16::from_be_bytes([head[20], head[21]]);
    let protocol = head[23];
    let end = ETHERNET_LEN + total;
    let wire = descriptor.wire_len as usize;
    if fragment & 0x3fff != 0 || total < 20 || end > wire {
        return false;
    }
    let Some(transport) = Transport::read(ports, protocol, rest, total - 20) else {
        return false;
    };
    let word = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        u64::from(u32::from_ne_bytes(bytes))
    };
    let checksum = word(14) + word(18) + word(22) + word(26) + word(30);
    let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
    let destination = u32::from_be_bytes([head[30], head[31], head[32], head[33]]);
    let from = u64::from(source) << 16 | u64::from(transport.source_port);
    let to = u64::from(destination) << 16 | u64::from(transport.destination_port);
    let forward = from <= to;
    let (low, high) = if forward { (from, to) } else { (to, from) };
    let key = FlowKey {
        low: Address::v4(((low >> 16) as u32).to_be_bytes()),
        high: Address::v4(((high >> 16) as u32).to_be_bytes()),
        low_port: low as u16,
        high_port: high as u16,
        protocol,
        version: 4,
        reserved: 0,
        context: 0,
    };
    let mut flags = frame_flags(captured, wire, end);
    if !sum_is_ones(checksum) {
        flags |= DecodeFlags::BAD_IP_CHECKSUM.0;
    }
    let place = Place {
        captured,
        ip_len: total,
        transport_offset: 34,
        ttl: head[22],
        flags,
        forward,
        index,
    };
    write(slot, descriptor, key, &transport, &place);
    true
}

#[inline(always)]
fn ipv6(
    ports: &PortFilter,
    descriptor: &PacketDescriptor,
    captured: usize,
    head: &[u8; 54],
    rest: &[u8],
    index: u16,
    slot: &mut Decoded,
) -> bool {
    let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
    let protocol = head[20];
    let end = ETHERNET_LEN + 40 + length;
    let wire = descriptor.wire_len as usize;
    if head[14] >> 4 != 6 || length == 0 || end > wire {
        return false;
    }
    let Some(transport) = Transport::read(ports, protocol, rest, length) else {
        return false;
    };
    let (Some(&source), Some(&destination)) = (
        head[22..].first_chunk::<16>(),
        head[38..].first_chunk::<16>(),
    ) else {
        return false;
    };
    let (key, direction) = FlowKey::new(
        6,
        protocol,
        (Address(source), transport.source_port),
        (Address(destination), transport.destination_port),
    );
    let place = Place {
        captured,
        ip_len: 40 + length,
        transport_offset: 54,
        ttl: head[21],
        flags: frame_flags(captured, wire, end),
        forward: direction == Direction::LowToHigh,
        index,
    };
    write(slot, descriptor, key, &transport, &place);
    true
}

#[inline(always)]
fn frame_flags(captured: usize, wire: usize, end: usize) -> u16 {
    DecodeFlags::TRANSPORT.0
        | if captured < end {
            DecodeFlags::CUT.0
        } else {
            0
        }
        | if wire > end {
            DecodeFlags::TRAILER.0
        } else {
            0
        }
}

/// What the transport header says.
struct Transport {
    source_port: u16,
    destination_port: u16,
    seq: u32,
    ack: u32,
    window: u16,
    tcp_flags: u8,
    header_len: usize,
    payload_len: usize,
}

impl Transport {
    /// Reads TCP or UDP in `room` bytes of datagram; `None` when anything is unusual.
    #[inline(always)]
    fn read(ports: &PortFilter, protocol: u8, bytes: &[u8], room: usize) -> Option<Transport> {
        if protocol == TCP {
            let header = bytes.first_chunk::<20>()?;
            let header_len = usize::from(header[12] >> 4) * 4;
            if header_len < 20 || header_len > room {
                return None;
            }
            return Some(Transport {
                source_port: u16::from_be_bytes([header[0], header[1]]),
                destination_port: u16::from_be_bytes([header[2], header[3]]),
                seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
                window: u16::from_be_bytes([header[14], header[15]]),
                tcp_flags: header[13],
                header_len,
                payload_len: room - header_len,
            });
        }
        if protocol != UDP {
            return None;
        }
        let header = bytes.first_chunk::<8>()?;
        let source_port = u16::from_be_bytes([header[0], header[1]]);
        let destination_port = u16::from_be_bytes([header[2], header[3]]);
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if length < 8
            || length > room
            || ports.may_contain(source_port)
            || ports.may_contain(destination_port)
        {
            return None;
        }
        Some(Transport {
            source_port,
            destination_port,
            seq: 0,
            ack: 0,
            window: 0,
            tcp_flags: 0,
            header_len: 8,
            payload_len: length - 8,
        })
    }
}

/// Where things are in the frame.
struct Place {
    captured: usize,
    ip_len: usize,
    transport_offset: usize,
    ttl: u8,
    flags: u16,
    forward: bool,
    index: u16,
}

#[inline(always)]
fn write(
    slot: &mut Decoded,
    descriptor: &PacketDescriptor,
    key: FlowKey,
    transport: &Transport,
    place: &Place,
) {
    let payload_offset = place.transport_offset + transport.header_len;
    let captured = place.captured.saturating_sub(payload_offset);
    *slot = Decoded {
        key,
        seq: transport.seq,
        ack: transport.ack,
        ip_len: place.ip_len as u32,
        payload_len: transport.payload_len as u32,
        hash: 0,
        time: descriptor.time,
        wire_len: descriptor.wire_len,
        payload_offset: payload_offset as u32,
        payload_captured: captured.min(transport.payload_len) as u32,
        window: transport.window,
        ip_offset: ETHERNET_LEN as u16,
        transport_offset: place.transport_offset as u16,
        index: place.index,
        frames: 1,
        vlan: [0; 2],
        tunnel: 0,
        flags: DecodeFlags(place.flags),
        tcp_flags: TcpFlags(transport.tcp_flags),
        icmp_type: 0,
        icmp_code: 0,
        ttl: place.ttl,
        vlan_count: 0,
        direction: if place.forward {
            Direction::LowToHigh
        } else {
            Direction::HighToLow
        },
        problem: Problem::None,
    };
}
