//! TCP, UDP, SCTP, ICMP and ICMPv6 headers; all other protocols are opaque payload.

use super::ipv6::AUTHENTICATION;
use super::tunnel::{self, GRE, IPV4_IN_IP, IPV6_IN_IP};
use super::udp_tunnel;
use super::walk::{Next, Walk};
use crate::decoded::{DecodeFlags, Problem, TcpFlags};

/// ICMP.
pub(super) const ICMP: u8 = 1;
/// TCP.
pub(super) const TCP: u8 = 6;
/// UDP.
pub(super) const UDP: u8 = 17;
/// ESP.
const ESP: u8 = 50;
/// ICMPv6.
pub(super) const ICMPV6: u8 = 58;
/// SCTP.
pub(super) const SCTP: u8 = 132;

/// The transport of a whole datagram.
pub(super) fn transport(walk: &mut Walk<'_, '_>, protocol: u8) -> Option<Next> {
    match (protocol, walk.version) {
        (TCP, _) => tcp(walk),
        (UDP, _) => udp(walk),
        (ICMP, 4) | (ICMPV6, 6) => icmp(walk, protocol),
        (SCTP, _) => sctp(walk),
        (ESP, _) => esp(walk),
        (AUTHENTICATION, 4) => authentication(walk),
        (IPV4_IN_IP | IPV6_IN_IP, _) if walk.options.decapsulate => {
            tunnel::ip_in_ip(walk, protocol)
        }
        (GRE, _) if walk.options.decapsulate => tunnel::gre(walk),
        _ => other(walk, protocol),
    }
}

/// A fragment: the payload is all that follows the IP header; the first one keeps its ports.
pub(super) fn fragment(walk: &mut Walk<'_, '_>, protocol: u8, first: bool) {
    walk.packet.flags.insert(DecodeFlags::FRAGMENT);
    if !first {
        return;
    }
    match (protocol, walk.version) {
        (TCP | UDP | SCTP | ESP, _) => ports(walk, protocol),
        (ICMP, 4) | (ICMPV6, 6) => {
            icmp_key(walk, protocol);
        }
        _ => {}
    }
}

/// A protocol without ports.
pub(super) fn other(walk: &mut Walk<'_, '_>, protocol: u8) -> Option<Next> {
    walk.set_key(protocol, 0, 0);
    walk.set_payload(0, walk.end - walk.at);
    None
}

/// Encrypted (RFC 4303): the number of its security association stands where others have ports, and keeps flows
/// apart as these do.
fn esp(walk: &mut Walk<'_, '_>) -> Option<Next> {
    other(walk, ESP);
    ports(walk, ESP);
    None
}

/// The authentication header (RFC 4302) in IPv4; in IPv6 it is one of the extension headers.
fn authentication(walk: &mut Walk<'_, '_>) -> Option<Next> {
    other(walk, AUTHENTICATION);
    let Some(head) = walk.peek::<2>() else {
        return walk.missing(2);
    };
    let [next, length] = *head;
    walk.skip((usize::from(length) + 2) * 4)?;
    transport(walk, next)
}

/// The ports, if their four bytes are there.
fn ports(walk: &mut Walk<'_, '_>, protocol: u8) {
    if let Some(&[a, b, c, d]) = walk.peek::<4>() {
        walk.set_key(
            protocol,
            u16::from_be_bytes([a, b]),
            u16::from_be_bytes([c, d]),
        );
    }
}

fn tcp(walk: &mut Walk<'_, '_>) -> Option<Next> {
    ports(walk, TCP);
    let room = walk.end - walk.at;
    let Some(header) = walk.peek::<20>() else {
        return cut_tcp(walk, room);
    };
    let header_len = usize::from(header[12] >> 4) * 4;
    walk.packet.seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    walk.packet.ack = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    walk.packet.tcp_flags = TcpFlags(header[13]);
    walk.packet.window = u16::from_be_bytes([header[14], header[15]]);
    if header_len < 20 || header_len > room {
        walk.set_payload(20, 0);
        return walk.stop(Problem::BadTransport);
    }
    walk.set_payload(header_len, room - header_len);
    walk.packet.flags.insert(DecodeFlags::TRANSPORT);
    None
}

/// A TCP header of which fewer than twenty bytes are there: what can be read is.
fn cut_tcp(walk: &mut Walk<'_, '_>, room: usize) -> Option<Next> {
    if let Some(head) = walk.peek::<8>() {
        walk.packet.seq = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    }
    if let Some(head) = walk.peek::<12>() {
        walk.packet.ack = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    }
    if let Some(head) = walk.peek::<14>() {
        walk.packet.tcp_flags = TcpFlags(head[13]);
    }
    if let Some(head) = walk.peek::<16>() {
        walk.packet.window = u16::from_be_bytes([head[14], head[15]]);
    }
    let header_len = walk
        .peek::<13>()
        .map_or(20, |head| usize::from(head[12] >> 4) * 4)
        .clamp(20, 60);
    walk.set_payload(header_len, room.saturating_sub(header_len));
    walk.missing(20)
}

fn udp(walk: &mut Walk<'_, '_>) -> Option<Next> {
    ports(walk, UDP);
    let room = walk.end - walk.at;
    let Some(header) = walk.peek::<8>() else {
        walk.set_payload(8, room.saturating_sub(8));
        return walk.missing(8);
    };
    let length = match u16::from_be_bytes([header[4], header[5]]) {
        // A jumbogram's, or left to offload: all there is.
        0 => room,
        length => usize::from(length),
    };
    if length < 8 {
        walk.set_payload(8, 0);
        return walk.stop(Problem::BadTransport);
    }
    walk.set_payload(8, length.min(room) - 8);
    walk.packet.flags.insert(DecodeFlags::TRANSPORT);
    let source = u16::from_be_bytes([header[0], header[1]]);
    let destination = u16::from_be_bytes([header[2], header[3]]);
    if !walk.ports.may_contain(source) && !walk.ports.may_contain(destination) {
        return None;
    }
    walk.limit(length);
    walk.at += 8;
    udp_tunnel::content(walk, source, destination)
}

fn sctp(walk: &mut Walk<'_, '_>) -> Option<Next> {
    ports(walk, SCTP);
    let room = walk.end - walk.at;
    walk.set_payload(12, room.saturating_sub(12));
    if walk.peek::<12>().is_none() {
        return walk.missing(12);
    }
    walk.packet.flags.insert(DecodeFlags::TRANSPORT);
    None
}

/// ICMP and ICMPv6: eight bytes of header, as Zeek counts them.
fn icmp(walk: &mut Walk<'_, '_>, protocol: u8) -> Option<Next> {
    icmp_key(walk, protocol);
    let room = walk.end - walk.at;
    walk.set_payload(8, room.saturating_sub(8));
    if walk.peek::<8>().is_none() {
        return walk.missing(8);
    }
    walk.packet.flags.insert(DecodeFlags::TRANSPORT);
    None
}

fn icmp_key(walk: &mut Walk<'_, '_>, protocol: u8) {
    let Some(&[kind, code]) = walk.peek::<2>() else {
        return;
    };
    walk.packet.icmp_type = kind;
    walk.packet.icmp_code = code;
    match icmp_counterpart(protocol, kind) {
        Some(answer) => walk.set_key(protocol, u16::from(kind), u16::from(answer)),
        None => walk.set_one_way_key(protocol, u16::from(kind), u16::from(code)),
    }
}

/// The type that answers `kind`, or that it answers, in ICMP (`protocol` 1) and ICMPv6 (58), according to the
/// Community ID specification, version 1.
pub fn icmp_counterpart(protocol: u8, kind: u8) -> Option<u8> {
    let pairs: &[(u8, u8)] = if protocol == ICMP {
        // Echo, router discovery, time stamp, information, address mask.
        &[(8, 0), (10, 9), (13, 14), (15, 16), (17, 18)]
    } else {
        // Echo, multicast listener, router and neighbour discovery, node information, home agent.
        &[
            (128, 129),
            (130, 131),
            (133, 134),
            (135, 136),
            (139, 140),
            (144, 145),
        ]
    };
    pairs.iter().find_map(|&(a, b)| match kind {
        _ if kind == a => Some(b),
        _ if kind == b => Some(a),
        _ => None,
    })
}
