//! Link types other than Ethernet that begin a frame.

use super::ethernet;
use super::walk::{Next, Walk};
use crate::decoded::Problem;
use crate::link::LinkType;

pub(super) fn link(walk: &mut Walk<'_, '_>, link: LinkType) -> Option<Next> {
    match link {
        LinkType::ETHERNET => Some(Next::Ethernet),
        LinkType::RAW => Some(Next::Ip),
        LinkType::IPV4 => Some(Next::Ipv4),
        LinkType::IPV6 => Some(Next::Ipv6),
        LinkType::NULL | LinkType::LOOP => loopback(walk),
        LinkType::LINUX_SLL => {
            let header = walk.take::<16>()?;
            cooked(walk, u16::from_be_bytes([header[14], header[15]]))
        }
        LinkType::LINUX_SLL2 => {
            let header = walk.take::<20>()?;
            cooked(walk, u16::from_be_bytes([header[0], header[1]]))
        }
        _ => walk.stop(Problem::UnknownLink),
    }
}

/// BSD loopback: the address family in either byte order; its values differ between systems.
fn loopback(walk: &mut Walk<'_, '_>) -> Option<Next> {
    let header = walk.take::<4>()?;
    let value = u32::from_le_bytes(*header);
    // A family is a small number: whichever order makes it small is the right one.
    let family = value.min(value.swap_bytes());
    match family {
        2 => Some(Next::Ipv4),
        // IPv6 on Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => Some(Next::Ipv6),
        _ => walk.stop(Problem::NotIp),
    }
}

/// The protocol field of a Linux cooked header: an EtherType, or a small number of its own.
fn cooked(walk: &mut Walk<'_, '_>, protocol: u16) -> Option<Next> {
    match protocol {
        // 802.3 frames without and with an 802.2 header.
        0x0001 => walk.stop(Problem::NotIp),
        0x0004 => ethernet::llc(walk),
        0..=0x05ff => walk.stop(Problem::NotIp),
        ethertype => Some(Next::EtherType(ethertype)),
    }
}
