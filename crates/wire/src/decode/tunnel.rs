//! Tunnels with their own IP protocol: GRE (RFC 2784, 2890, 1701; version 1 of PPTP, RFC 2637)
//! with ERSPAN inside, and IP in IP.

use super::transport::other;
use super::walk::{Next, Walk};
use crate::decoded::{Problem, TunnelKind};
use crate::link::LinkType;

/// IPv4 in IP.
pub(super) const IPV4_IN_IP: u8 = 4;
/// IPv6 in IP.
pub(super) const IPV6_IN_IP: u8 = 41;
/// GRE.
pub(super) const GRE: u8 = 47;

/// IP directly in IP (RFC 2003, 2473, 4213).
pub(super) fn ip_in_ip(walk: &mut Walk<'_, '_>, protocol: u8) -> Option<Next> {
    other(walk, protocol);
    let kind = if (walk.version, protocol) == (4, IPV6_IN_IP) {
        TunnelKind::SixInFour
    } else {
        TunnelKind::IpInIp
    };
    walk.enter(kind, None)?;
    Some(if protocol == IPV4_IN_IP {
        Next::Ipv4
    } else {
        Next::Ipv6
    })
}

pub(super) fn gre(walk: &mut Walk<'_, '_>) -> Option<Next> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const ACKNOWLEDGEMENT: u16 = 0x0080;
    const MIKROTIK_ETHERNET: u16 = 0x6400;

    other(walk, GRE);
    let header = walk.take::<4>()?;
    let flags = u16::from_be_bytes([header[0], header[1]]);
    let protocol = u16::from_be_bytes([header[2], header[3]]);
    let version = flags & 7;
    if version > 1 {
        return None;
    }
    if version == 0 && flags & (CHECKSUM | ROUTING) != 0 {
        walk.skip(4)?;
    }
    let mut key = None;
    if flags & KEY != 0 {
        key = Some(u32::from_be_bytes(*walk.take::<4>()?));
    }
    if flags & SEQUENCE != 0 {
        walk.skip(4)?;
    }
    if version == 1 {
        if flags & ACKNOWLEDGEMENT != 0 {
            walk.skip(4)?;
        }
        // The key is the length of the payload and the call id; without payload it is an
        // acknowledgement.
        let key = key?;
        let length = (key >> 16) as usize;
        if protocol == MIKROTIK_ETHERNET && flags == KEY | 1 {
            // Ethernet over IP: the tunnel's number is in the sender's (little-endian) order.
            walk.enter(TunnelKind::Gre, Some(u32::from((key as u16).swap_bytes())))?;
            walk.limit(length);
            return Some(Next::Ethernet);
        }
        if length == 0 || flags & SEQUENCE == 0 {
            return None;
        }
        walk.enter(TunnelKind::Gre, Some(key & 0xffff))?;
        walk.limit(length);
        return Some(Next::Ppp);
    }
    if flags & ROUTING != 0 {
        source_routes(walk)?;
    }
    match protocol {
        0x88be if flags & SEQUENCE == 0 => {
            // ERSPAN type I has no header of its own.
            walk.enter(TunnelKind::Erspan, None)?;
            Some(Next::Ethernet)
        }
        0x88be => {
            let header = walk.take::<8>()?;
            walk.enter(TunnelKind::Erspan, Some(session(header[2], header[3])))?;
            Some(Next::Ethernet)
        }
        0x22eb => erspan3(walk),
        // WCCP redirection (version 2 puts four bytes in front of the datagram).
        0x883e => {
            walk.enter(TunnelKind::Gre, key)?;
            if walk.peek::<1>().is_some_and(|first| first[0] >> 4 != 4) {
                walk.skip(4)?;
            }
            Some(Next::Ipv4)
        }
        // Aruba's access points: 802.11 frames.
        0x8200..=0x8210 => {
            walk.enter(TunnelKind::Gre, key)?;
            Some(Next::Link(LinkType::IEEE802_11))
        }
        _ => {
            walk.enter(TunnelKind::Gre, key)?;
            Some(Next::EtherType(protocol))
        }
    }
}

/// Source route entries (RFC 1701), up to the empty one.
fn source_routes(walk: &mut Walk<'_, '_>) -> Option<()> {
    loop {
        let entry = walk.take::<4>()?;
        let length = usize::from(entry[3]);
        if length == 0 {
            return Some(());
        }
        walk.skip(length)?;
    }
}

/// ERSPAN type III: twelve bytes, eight more with the O bit.
fn erspan3(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<12>()?;
    if header[11] & 1 != 0 {
        walk.skip(8)?;
    }
    walk.enter(TunnelKind::Erspan, Some(session(header[2], header[3])))?;
    match header[10] >> 2 & 0x1f {
        0 => Some(Next::Ethernet),
        2 => Some(Next::Ip),
        _ => walk.stop(Problem::NotIp),
    }
}

fn session(high: u8, low: u8) -> u32 {
    u32::from(u16::from_be_bytes([high, low]) & 0x03ff)
}
