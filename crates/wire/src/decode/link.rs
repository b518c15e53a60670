//! Link types other than Ethernet.

use super::walk::{Next, Walk};
use super::{ethernet, frame_relay, ppp, wireless};
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
        LinkType::PPP | LinkType::PPP_HDLC => ppp::ppp_hdlc(walk),
        LinkType::PPP_ETHER => ppp::pppoe(walk),
        LinkType::PPP_WITH_DIR => {
            walk.skip(1)?;
            ppp::ppp_hdlc(walk)
        }
        LinkType::C_HDLC => ppp::cisco_hdlc(walk),
        LinkType::FRAME_RELAY => frame_relay::frame_relay(walk),
        LinkType::IEEE802_11 => wireless::frame(walk, false),
        LinkType::IEEE802_11_RADIOTAP => wireless::radiotap(walk),
        LinkType::NFLOG => nflog(walk),
        LinkType(number) => other(walk, number),
    }
}

/// Link types rare enough to have no name here.
fn other(walk: &mut Walk<'_, '_>, number: u16) -> Option<Next> {
    match number {
        // Token ring, with source routing where the source address says so.
        6 => {
            let header = walk.take::<14>()?;
            if header[8] & 0x80 != 0 {
                let Some(route) = walk.peek::<1>() else {
                    return walk.missing(1);
                };
                walk.skip(usize::from(route[0] & 0x1f))?;
            }
            ethernet::llc(walk)
        }
        // FDDI.
        10 => {
            walk.skip(13)?;
            ethernet::llc(walk)
        }
        // LLC-encapsulated ATM (RFC 2684).
        100 => ethernet::llc(walk),
        // OpenBSD's encapsulating interface: family, SPI, flags.
        109 => {
            walk.skip(12)?;
            Some(Next::Ip)
        }
        // OpenBSD's packet filter log: its own length first, rounded up to four.
        117 => {
            let Some(length) = walk.peek::<1>() else {
                return walk.missing(1);
            };
            walk.skip(usize::from(length[0]).max(1).next_multiple_of(4))?;
            Some(Next::Ip)
        }
        // Prism monitor header, or an AVS header under its number; AVS proper. The length stands
        // in bytes 4 to 8: Prism in the order of the host, AVS in network order.
        119 | 163 => {
            let Some(header) = walk.peek::<8>() else {
                return walk.missing(8);
            };
            let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let length = length.min(length.swap_bytes());
            wireless::capture_header(walk, length as usize)
        }
        // IP over Fibre Channel (RFC 2625).
        122 => {
            walk.skip(16)?;
            ethernet::llc(walk)
        }
        // PPI: version, flags, length, link type of what follows.
        192 => {
            let Some(header) = walk.peek::<8>() else {
                return walk.missing(8);
            };
            let length = usize::from(u16::from_le_bytes([header[2], header[3]])).max(8);
            let link = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            walk.skip(length)?;
            Some(Next::Link(LinkType(
                u16::try_from(link).unwrap_or(u16::MAX),
            )))
        }
        219 => Some(Next::EtherType(super::shim::MPLS)),
        // Ethernet with its preamble (802.3br).
        274 => {
            walk.skip(8)?;
            Some(Next::Ethernet)
        }
        _ => walk.stop(Problem::UnknownLink),
    }
}

/// A netfilter log message: attributes in the byte order of the capturing host, one of them the
/// packet.
fn nflog(walk: &mut Walk<'_, '_>) -> Option<Next> {
    const PAYLOAD: u16 = 9;
    let family = walk.take::<4>()?[0];
    // A length is small and never 0: read it in the order that makes the first attribute fit.
    let room = walk.end - walk.at;
    let little = walk.peek::<2>().is_some_and(|length| {
        let length = usize::from(u16::from_le_bytes(*length));
        (4..=room).contains(&length)
    });
    let number = |bytes: [u8; 2]| {
        if little {
            u16::from_le_bytes(bytes)
        } else {
            u16::from_be_bytes(bytes)
        }
    };
    loop {
        let attribute = walk.take::<4>()?;
        let length = usize::from(number([attribute[0], attribute[1]]));
        if length < 4 {
            return walk.stop(Problem::ShortHeader);
        }
        if number([attribute[2], attribute[3]]) & 0x7fff == PAYLOAD {
            walk.limit(length - 4);
            return match family {
                2 => Some(Next::Ipv4),
                10 => Some(Next::Ipv6),
                _ => walk.stop(Problem::NotIp),
            };
        }
        walk.skip((length - 4).next_multiple_of(4))?;
    }
}

/// BSD loopback: the address family in either byte order; its values differ between systems.
fn loopback(walk: &mut Walk<'_, '_>) -> Option<Next> {
    // Some drivers of point-to-point lines use this link type for what they carry.
    match walk.peek::<2>() {
        Some([0x0f | 0x8f, 0x00]) => return ppp::cisco_hdlc(walk),
        Some([0xff, 0x03]) => return ppp::ppp(walk),
        _ => {}
    }
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
