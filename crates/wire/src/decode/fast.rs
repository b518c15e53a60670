//! The hot path: regular IPv4 or IPv6 with TCP or UDP, after an Ethernet header with at most one VLAN tag, after a
//! Linux cooked header, or raw.
//!
//! Rejected (November 2026): hashing the key and verifying the transport checksum here, while their inputs are in
//! registers. It took fewer instructions in total, but so many live values spilled to the stack: decoding cost a fifth
//! more, and the passes it replaced had cost no more than that.

use flowgauge_sys::checksum::is_right;

use super::ethernet::{IPV4, IPV6};
use super::transport::{TCP, UDP};
use super::{Decoder, PortFilter};
use crate::decoded::{DecodeFlags, Decoded, Problem, TcpFlags};
use crate::key::{Address, Direction, FlowKey};
use crate::link::LinkType;
use crate::packet::{PacketDescriptor, PacketFlags};

const ETHERNET_LEN: usize = 14;

/// Where the transport header begins behind an IPv4 header without options.
const PLAIN_AT: usize = ETHERNET_LEN + 20;

/// With as many bytes as TCP's header has at least: frames are seldom shorter, whatever is in them.
const PLAIN_LEN: usize = PLAIN_AT + 20;

const VLAN_LEN: usize = 4;
const VLAN: u16 = 0x8100;

/// One packet. It goes by value, so that on the usual path its parts stay in registers.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) descriptor: &'a PacketDescriptor,
    pub(super) bytes: &'a [u8],
    pub(super) index: u16,
}

/// Decodes a frame into `slot` and says so, or leaves it alone when anything is unusual.
#[inline(always)]
pub(super) fn frame(decoder: &Decoder, frame: Frame<'_>, slot: &mut Decoded) -> bool {
    let ports = &decoder.ports;
    // Part by part: a frame that is handed on whole is written to memory, for every packet.
    let less_usual = |slot| less_usual(decoder, frame.descriptor, frame.bytes, frame.index, slot);
    if frame.descriptor.link != LinkType::ETHERNET
        || frame.descriptor.flags.contains(PacketFlags::VLAN)
    {
        return less_usual(slot);
    }
    if let Some(head) = frame.bytes.first_chunk()
        && plain(ports, head, frame, slot)
    {
        return true;
    }
    let Some(head) = frame.bytes.first_chunk::<ETHERNET_LEN>() else {
        return false;
    };
    match u16::from_be_bytes([head[12], head[13]]) {
        IPV4 => ipv4(ports, frame, ETHERNET_LEN, None, slot),
        IPV6 => ipv6(ports, frame, ETHERNET_LEN, None, slot),
        VLAN => less_usual(slot),
        _ => false,
    }
}

/// The most usual frames: TCP or UDP behind an IPv4 header without options. Says whether it is one.
#[inline(always)]
fn plain(ports: &PortFilter, head: &[u8; PLAIN_LEN], frame: Frame<'_>, slot: &mut Decoded) -> bool {
    // Ethernet type, version and header length; flags and fragment offset.
    let (first, second) = (word(head, 12), word(head, 20));
    if (first & 0x00ff_ffff ^ 0x0045_0008) | (second & 0xff3f) != 0 {
        return false;
    }
    let total = u32::from(((first >> 32) as u16).swap_bytes());
    if ETHERNET_LEN as u32 + total > frame.descriptor.wire_len {
        return false;
    }
    match (second >> 24) as u8 {
        TCP => {
            let header_len = u32::from(head[PLAIN_AT + 12] & 0xf0) >> 2;
            let is_usual = header_len >= 20 && total >= 20 + header_len;
            if is_usual {
                plain_transport::<TCP>(
                    head,
                    frame,
                    total,
                    header_len,
                    total - 20 - header_len,
                    slot,
                );
            }
            is_usual
        }
        UDP => {
            let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let length = u32::from(port(PLAIN_AT + 4));
            let is_usual = length >= 8
                && total >= 20 + length
                && !ports.may_contain(port(PLAIN_AT))
                && !ports.may_contain(port(PLAIN_AT + 2));
            if is_usual {
                plain_transport::<UDP>(head, frame, total, 8, length - 8, slot);
            }
            is_usual
        }
        _ => false,
    }
}

/// Eight bytes as they lie there, the first one lowest.
#[inline(always)]
fn word(head: &[u8; PLAIN_LEN], at: usize) -> u64 {
    let bytes = head.get(at..).and_then(<[u8]>::first_chunk::<8>);
    bytes.map_or(0, |&bytes| u64::from_le_bytes(bytes))
}

/// Writes what [`plain`] found out, field by field: each value is forgotten as soon as it is in its place, so that none
/// goes through the stack.
#[inline(always)]
fn plain_transport<const PROTOCOL: u8>(
    head: &[u8; PLAIN_LEN],
    frame: Frame<'_>,
    total: u32,
    header_len: u32,
    payload_len: u32,
    slot: &mut Decoded,
) {
    const AT: usize = PLAIN_AT;
    // All of them: none is what it was for the packet before.
    let Decoded {
        key: to_key,
        seq: to_seq,
        ack: to_ack,
        ip_len: to_ip_len,
        payload_len: to_payload_len,
        hash: to_hash,
        time: to_time,
        wire_len: to_wire_len,
        payload_offset: to_payload_offset,
        payload_captured: to_payload_captured,
        window: to_window,
        index: to_index,
        ip_offset: to_ip_offset,
        transport_offset: to_transport_offset,
        frames: to_frames,
        tunnel: to_tunnel,
        vlan: to_vlan,
        icmp_type: to_icmp_type,
        icmp_code: to_icmp_code,
        vlan_count: to_vlan_count,
        problem: to_problem,
        flags: to_flags,
        tcp_flags: to_tcp_flags,
        ttl: to_ttl,
        direction: to_direction,
    } = slot;
    let long = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (wire, end) = (frame.descriptor.wire_len, ETHERNET_LEN as u32 + total);
    let native = |at: usize| u64::from(long(at).to_be());
    let sum = native(14) + native(18) + native(22) + native(26) + native(30);
    let captured = frame.bytes.len() as u32;
    let payload_offset = AT as u32 + header_len;
    let bad = u16::from(!is_right(sum)) * DecodeFlags::BAD_IP_CHECKSUM.0;
    let cut = u16::from(captured < end) * DecodeFlags::CUT.0;
    let trailer = u16::from(wire > end) * DecodeFlags::TRAILER.0;
    *to_flags = DecodeFlags(DecodeFlags::TRANSPORT.0 | cut | trailer | bad);
    *to_ip_len = total;
    *to_payload_len = payload_len;
    *to_payload_offset = payload_offset;
    *to_payload_captured = captured.saturating_sub(payload_offset).min(payload_len);
    *to_time = frame.descriptor.time;
    *to_wire_len = wire;
    *to_hash = 0;
    let is_tcp = PROTOCOL == TCP;
    *to_seq = if is_tcp { long(AT + 4) } else { 0 };
    *to_ack = if is_tcp { long(AT + 8) } else { 0 };
    let (tcp_flags, window) = (head[AT + 13], [head[AT + 14], head[AT + 15]]);
    *to_tcp_flags = TcpFlags(if is_tcp { tcp_flags } else { 0 });
    *to_window = if is_tcp {
        u16::from_be_bytes(window)
    } else {
        0
    };
    *to_index = frame.index;
    *to_ip_offset = ETHERNET_LEN as u16;
    *to_transport_offset = AT as u16;
    *to_frames = 1;
    *to_tunnel = 0;
    *to_vlan = [0, 0];
    *to_icmp_type = 0;
    *to_icmp_code = 0;
    *to_vlan_count = 0;
    *to_problem = Problem::None;
    *to_ttl = head[22];
    let ports = long(AT);
    let from = u64::from(long(26)) << 16 | u64::from(ports >> 16);
    let to = u64::from(long(30)) << 16 | u64::from(ports & 0xffff);
    let (low, high) = (from.min(to), from.max(to));
    *to_direction = match from <= to {
        true => Direction::LowToHigh,
        false => Direction::HighToLow,
    };
    *to_key = FlowKey {
        low: Address::v4(((low >> 16) as u32).to_be_bytes()),
        high: Address::v4(((high >> 16) as u32).to_be_bytes()),
        low_port: low as u16,
        high_port: high as u16,
        protocol: PROTOCOL,
        version: 4,
        reserved: 0,
        context: 0,
    };
}

/// Where the IP header begins where that is not behind a plain Ethernet header: one VLAN tag, in the
/// frame or taken out by the kernel, Linux cooked headers, or nothing in front.
#[inline(never)]
fn less_usual(
    decoder: &Decoder,
    descriptor: &PacketDescriptor,
    bytes: &[u8],
    index: u16,
    slot: &mut Decoded,
) -> bool {
    let ports = &decoder.ports;
    let frame = Frame {
        descriptor,
        bytes,
        index,
    };
    let word = |at: usize| match bytes.get(at..at + 2) {
        Some(&[a, b]) => u16::from_be_bytes([a, b]),
        _ => 0,
    };
    let tagged = frame.descriptor.flags.contains(PacketFlags::VLAN);
    let (at, ethertype, vlan) = match frame.descriptor.link {
        LinkType::ETHERNET if tagged => (ETHERNET_LEN, word(12), Some(frame.descriptor.vlan_tci)),
        LinkType::ETHERNET => (ETHERNET_LEN + VLAN_LEN, word(16), Some(word(14))),
        _ if tagged => return false,
        LinkType::LINUX_SLL => (16, word(14), None),
        LinkType::LINUX_SLL2 => (20, word(0), None),
        LinkType::IPV4 => (0, IPV4, None),
        LinkType::IPV6 => (0, IPV6, None),
        LinkType::RAW => match bytes.first().map(|first| first >> 4) {
            Some(4) => (0, IPV4, None),
            Some(6) => (0, IPV6, None),
            _ => return false,
        },
        _ => return false,
    };
    if vlan.is_some() && decoder.options.separate_vlans {
        return false;
    }
    let vlan = vlan.map(|tci| tci & 0x0fff);
    match ethertype {
        IPV4 => ipv4(ports, frame, at, vlan, slot),
        IPV6 => ipv6(ports, frame, at, vlan, slot),
        _ => false,
    }
}

#[inline(always)]
fn ipv4(
    ports: &PortFilter,
    frame: Frame<'_>,
    at: usize,
    vlan: Option<u16>,
    slot: &mut Decoded,
) -> bool {
    let header = frame.bytes.get(at..).and_then(<[u8]>::split_first_chunk);
    let Some((head, rest)): Option<(&[u8; 20], &[u8])> = header else {
        return false;
    };
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    let fragment = u16::from_be_bytes([head[6], head[7]]);
    let protocol = head[9];
    let end = at + total;
    let wire = frame.descriptor.wire_len as usize;
    if head[0] != 0x45 || fragment & 0x3fff != 0 || total < 20 || end > wire {
        return false;
    }
    let room = total - 20;
    let datagram = Ipv4 {
        head,
        at,
        total,
        vlan,
    };
    // Each to the end on its own: where both ways meet, all that they read would go through the stack.
    match protocol {
        TCP => match Transport::tcp(rest, room) {
            Some(transport) => datagram.write(slot, frame, &transport),
            None => return false,
        },
        UDP => match Transport::udp(ports, rest, room) {
            Some(transport) => datagram.write(slot, frame, &transport),
            None => return false,
        },
        _ => return false,
    }
    true
}

/// An IPv4 header without options, and where it is.
struct Ipv4<'a> {
    head: &'a [u8; 20],
    at: usize,
    total: usize,
    vlan: Option<u16>,
}

impl Ipv4<'_> {
    #[inline(always)]
    fn write(&self, slot: &mut Decoded, frame: Frame<'_>, transport: &Transport) {
        let head = self.head;
        let word = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u64::from(u32::from_ne_bytes(bytes))
        };
        let checksum = word(0) + word(4) + word(8) + word(12) + word(16);
        let source = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        let destination = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
        let from = u64::from(source) << 16 | u64::from(transport.source_port);
        let to = u64::from(destination) << 16 | u64::from(transport.destination_port);
        let forward = from <= to;
        let (low, high) = if forward { (from, to) } else { (to, from) };
        let key = FlowKey {
            low: Address::v4(((low >> 16) as u32).to_be_bytes()),
            high: Address::v4(((high >> 16) as u32).to_be_bytes()),
            low_port: low as u16,
            high_port: high as u16,
            protocol: transport.protocol,
            version: 4,
            reserved: 0,
            context: 0,
        };
        let end = self.at + self.total;
        let wire = frame.descriptor.wire_len as usize;
        let mut flags = frame_flags(frame.bytes.len(), wire, end);
        if !is_right(checksum) {
            flags |= DecodeFlags::BAD_IP_CHECKSUM.0;
        }
        let place = Place {
            ip_offset: self.at,
            ip_len: self.total,
            transport_offset: self.at + 20,
            ttl: head[8],
            flags,
            forward,
            vlan: self.vlan,
        };
        write(slot, frame, key, transport, &place);
    }
}

#[inline(always)]
fn ipv6(
    ports: &PortFilter,
    frame: Frame<'_>,
    at: usize,
    vlan: Option<u16>,
    slot: &mut Decoded,
) -> bool {
    let header = frame.bytes.get(at..).and_then(<[u8]>::split_first_chunk);
    let Some((head, rest)): Option<(&[u8; 40], &[u8])> = header else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let protocol = head[6];
    let end = at + 40 + length;
    let wire = frame.descriptor.wire_len as usize;
    if head[0] >> 4 != 6 || length == 0 || end > wire {
        return false;
    }
    let Some(transport) = Transport::read(ports, protocol, rest, length) else {
        return false;
    };
    let (Some(&source), Some(&destination)) = (
        head[8..].first_chunk::<16>(),
        head[24..].first_chunk::<16>(),
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
        ip_offset: at,
        ip_len: 40 + length,
        transport_offset: at + 40,
        ttl: head[7],
        flags: frame_flags(frame.bytes.len(), wire, end),
        forward: direction == Direction::LowToHigh,
        vlan,
    };
    write(slot, frame, key, &transport, &place);
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
    protocol: u8,
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
        match protocol {
            TCP => Transport::tcp(bytes, room),
            UDP => Transport::udp(ports, bytes, room),
            _ => None,
        }
    }

    #[inline(always)]
    fn tcp(bytes: &[u8], room: usize) -> Option<Transport> {
        let header = bytes.first_chunk::<20>()?;
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < 20 || header_len > room {
            return None;
        }
        Some(Transport {
            protocol: TCP,
            source_port: u16::from_be_bytes([header[0], header[1]]),
            destination_port: u16::from_be_bytes([header[2], header[3]]),
            seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            window: u16::from_be_bytes([header[14], header[15]]),
            tcp_flags: header[13],
            header_len,
            payload_len: room - header_len,
        })
    }

    #[inline(always)]
    fn udp(ports: &PortFilter, bytes: &[u8], room: usize) -> Option<Transport> {
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
            protocol: UDP,
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
    ip_offset: usize,
    ip_len: usize,
    transport_offset: usize,
    ttl: u8,
    flags: u16,
    forward: bool,
    vlan: Option<u16>,
}

#[inline(always)]
fn write(slot: &mut Decoded, frame: Frame<'_>, key: FlowKey, transport: &Transport, place: &Place) {
    let payload_offset = place.transport_offset + transport.header_len;
    let captured = frame.bytes.len().saturating_sub(payload_offset);
    *slot = Decoded {
        key,
        seq: transport.seq,
        ack: transport.ack,
        ip_len: place.ip_len as u32,
        payload_len: transport.payload_len as u32,
        hash: 0,
        time: frame.descriptor.time,
        wire_len: frame.descriptor.wire_len,
        payload_offset: payload_offset as u32,
        payload_captured: captured.min(transport.payload_len) as u32,
        window: transport.window,
        ip_offset: place.ip_offset as u16,
        transport_offset: place.transport_offset as u16,
        index: frame.index,
        frames: 1,
        vlan: [place.vlan.unwrap_or(0), 0],
        tunnel: 0,
        flags: DecodeFlags(place.flags),
        tcp_flags: TcpFlags(transport.tcp_flags),
        icmp_type: 0,
        icmp_code: 0,
        ttl: place.ttl,
        vlan_count: u8::from(place.vlan.is_some()),
        direction: if place.forward {
            Direction::LowToHigh
        } else {
            Direction::HighToLow
        },
        problem: Problem::None,
    };
}
