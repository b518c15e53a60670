//! Ethernet II, 802.3 with LLC and SNAP, and the protocols given by their type field.

use super::walk::{Next, Walk};
use super::{ppp, shim};
use crate::decoded::Problem;

/// IPv4.
pub(super) const IPV4: u16 = 0x0800;
/// IPv6.
pub(super) const IPV6: u16 = 0x86dd;
/// Type fields up to this are an 802.3 length.
const MAX_LENGTH: u16 = 1500;

pub(super) fn ethernet(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<14>()?;
    type_or_length(walk, u16::from_be_bytes([header[12], header[13]]))
}

/// A type field, or the length of an LLC frame.
pub(super) fn type_or_length(walk: &mut Walk<'_, '_>, value: u16) -> Option<Next> {
    if value <= MAX_LENGTH {
        walk.limit(usize::from(value));
        return llc(walk);
    }
    Some(Next::EtherType(value))
}

/// 802.2 LLC, with SNAP.
pub(super) fn llc(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<3>()?;
    match header {
        // SNAP: organisation (3 bytes, 0 or that of bridged Ethernet) and type.
        [0xaa, 0xaa, 0x03] => {
            let snap = walk.take::<5>()?;
            let ethertype = u16::from_be_bytes([snap[3], snap[4]]);
            match snap {
                [0, 0, 0, ..] | [0, 0, 0xf8, ..] => Some(Next::EtherType(ethertype)),
                _ => walk.stop(Problem::NotIp),
            }
        }
        // IP's own service access point (RFC 948).
        [0x06, 0x06, 0x03] => Some(Next::Ipv4),
        _ => walk.stop(Problem::NotIp),
    }
}

pub(super) fn ethertype(walk: &mut Walk<'_, '_>, ethertype: u16) -> Option<Next> {
    match ethertype {
        IPV4 => Some(Next::Ipv4),
        IPV6 => Some(Next::Ipv6),
        // 802.1Q, 802.1ad, and the types used before that was settled.
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
            let tag = walk.take::<4>()?;
            walk.vlan_tag(u16::from_be_bytes([tag[0], tag[1]]));
            type_or_length(walk, u16::from_be_bytes([tag[2], tag[3]]))
        }
        shim::MPLS | 0x8848 => shim::mpls(walk),
        0x8864 => ppp::pppoe(walk),
        0x880b => Some(Next::Ppp),
        // Transparent Ethernet bridging.
        0x6558 => Some(Next::Ethernet),
        0x88e7 => shim::backbone(walk),
        shim::NSH => shim::service_header(walk),
        0x892f | 0x8926 => shim::tag(walk),
        0x8903 => shim::fabric_path(walk),
        0x88e5 => shim::macsec(walk),
        _ => walk.stop(Problem::NotIp),
    }
}
