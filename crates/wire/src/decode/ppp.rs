//! PPP (RFC 1661, 1662), PPPoE sessions (RFC 2516), Cisco HDLC.

use super::walk::{Next, Walk};
use crate::decoded::Problem;

/// PPP, with or without HDLC address and control, with or without compressed protocol field.
pub(super) fn ppp(walk: &mut Walk<'_, '_>) -> Option<Next> {
    if walk.peek::<2>() == Some(&[0xff, 0x03]) {
        walk.at += 2;
    }
    let first = walk.take::<1>()?[0];
    let protocol = if first & 1 == 1 {
        u16::from(first)
    } else {
        u16::from_be_bytes([first, walk.take::<1>()?[0]])
    };
    match protocol {
        0x0021 => Some(Next::Ipv4),
        0x0057 => Some(Next::Ipv6),
        0x0281 | 0x0283 => Some(Next::EtherType(super::shim::MPLS)),
        _ => walk.stop(Problem::NotIp),
    }
}

/// PPP in HDLC-like framing, or Cisco HDLC on the same kind of line.
pub(super) fn ppp_hdlc(walk: &mut Walk<'_, '_>) -> Option<Next> {
    match walk.peek::<1>() {
        Some([0x0f | 0x8f]) => cisco_hdlc(walk),
        _ => ppp(walk),
    }
}

pub(super) fn cisco_hdlc(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<4>()?;
    match u16::from_be_bytes([header[2], header[3]]) {
        // OSI, with a padding byte before it.
        0xfefe => walk.stop(Problem::NotIp),
        ethertype => Some(Next::EtherType(ethertype)),
    }
}

/// A PPPoE session frame; its length excludes Ethernet padding.
pub(super) fn pppoe(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<6>()?;
    // Version and type 1, code 0: session data.
    if header[0] != 0x11 || header[1] != 0 {
        return walk.stop(Problem::NotIp);
    }
    walk.limit(usize::from(u16::from_be_bytes([header[4], header[5]])));
    ppp(walk)
}
