//! Layers between a link layer and IP: MPLS (RFC 3032) with pseudowires (RFC 4448), provider
//! backbone bridging (802.1ah), network service headers (RFC 8300), HSR, VN-Tag, FabricPath,
//! MACsec without encryption.

use super::walk::{Next, Walk};
use crate::decoded::Problem;

/// EtherType of MPLS unicast.
pub(super) const MPLS: u16 = 0x8847;
/// EtherType of the network service header.
pub(super) const NSH: u16 = 0x894f;

pub(super) fn mpls(walk: &mut Walk<'_, '_>) -> Option<Next> {
    const IPV4_EXPLICIT_NULL: u32 = 0;
    const IPV6_EXPLICIT_NULL: u32 = 2;
    let label = loop {
        let entry = u32::from_be_bytes(*walk.take::<4>()?);
        if entry & 0x100 != 0 {
            break entry >> 12;
        }
    };
    match label {
        IPV4_EXPLICIT_NULL => return Some(Next::Ipv4),
        IPV6_EXPLICIT_NULL => return Some(Next::Ipv6),
        _ => {}
    }
    // The label stack does not say what follows: the first nibble does (RFC 4928).
    let Some(&[first]) = walk.peek::<1>() else {
        return walk.missing(1);
    };
    match first >> 4 {
        4 if first & 0x0f >= 5 => Some(Next::Ipv4),
        6 => Some(Next::Ipv6),
        // An associated channel (RFC 5586).
        1 => walk.stop(Problem::NotIp),
        0 => pseudowire(walk),
        _ => Some(Next::Ethernet),
    }
}

/// An Ethernet pseudowire whose first nibble is 0: a control word, or an address of that prefix.
/// The type field of the frame decides.
fn pseudowire(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let with_word = walk.peek::<18>().map(|bytes| [bytes[16], bytes[17]]);
    let without = walk.peek::<14>().map(|bytes| [bytes[12], bytes[13]]);
    let known = |field: Option<[u8; 2]>| field.map(u16::from_be_bytes).is_some_and(is_known_type);
    if known(with_word) || !known(without) {
        walk.skip(4)?;
    }
    Some(Next::Ethernet)
}

fn is_known_type(value: u16) -> bool {
    matches!(
        value,
        0x0800
            | 0x0806
            | 0x86dd
            | 0x8100
            | 0x88a8
            | 0x9100
            | 0x9200
            | 0x8847
            | 0x8848
            | 0x8863
            | 0x8864
            | 0x88cc
            | 0x88e7
            | 0x8902
            | 0x9000
    ) || (3..=1500).contains(&value)
}

/// The I-tag of 802.1ah: flags and service instance, then the customer's whole frame.
pub(super) fn backbone(walk: &mut Walk<'_, '_>) -> Option<Next> {
    walk.skip(4)?;
    Some(Next::Ethernet)
}

pub(super) fn service_header(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let Some(header) = walk.peek::<8>() else {
        return walk.missing(8);
    };
    let length = usize::from(header[1] & 0x3f) * 4;
    if length < 8 {
        return walk.stop(Problem::ShortHeader);
    }
    walk.skip(length)?;
    match header[3] {
        1 => Some(Next::Ipv4),
        2 => Some(Next::Ipv6),
        3 => Some(Next::Ethernet),
        5 => Some(Next::EtherType(MPLS)),
        _ => walk.stop(Problem::NotIp),
    }
}

/// A tag of four bytes followed by a type: HSR (IEC 62439-3), VN-Tag.
pub(super) fn tag(walk: &mut Walk<'_, '_>) -> Option<Next> {
    walk.skip(4)?;
    let ethertype = u16::from_be_bytes(*walk.take::<2>()?);
    super::ethernet::type_or_length(walk, ethertype)
}

/// MACsec (802.1AE) that only authenticates: its tag, then the frame's own type. Encrypted frames
/// are opaque.
pub(super) fn macsec(walk: &mut Walk<'_, '_>) -> Option<Next> {
    const CHANNEL_ID: u8 = 0x20;
    const ENCRYPTED_OR_CHANGED: u8 = 0x0c;
    let tag = walk.take::<6>()?;
    if tag[0] & ENCRYPTED_OR_CHANGED != 0 {
        return walk.stop(Problem::NotIp);
    }
    if tag[0] & CHANNEL_ID != 0 {
        walk.skip(8)?;
    }
    let ethertype = u16::from_be_bytes(*walk.take::<2>()?);
    super::ethernet::type_or_length(walk, ethertype)
}

/// FabricPath: two bytes of tag, then the whole inner frame.
pub(super) fn fabric_path(walk: &mut Walk<'_, '_>) -> Option<Next> {
    walk.skip(2)?;
    Some(Next::Ethernet)
}
