//! Frame relay: the encapsulation of RFC 2427 (RFC 1490 before), and Cisco's.

use super::walk::{Next, Walk};
use crate::decoded::Problem;

/// Longest address field (Q.922).
const MAX_ADDRESS: usize = 4;

/// Smallest number that is an EtherType.
const MIN_ETHERTYPE: u16 = 0x0600;

pub(super) fn frame_relay(walk: &mut Walk<'_, '_>) -> Option<Next> {
    address(walk)?;
    let Some(&[control]) = walk.peek::<1>() else {
        return walk.missing(1);
    };
    // Unnumbered information. Cisco's encapsulation has a type in its place.
    if control != 0x03 {
        let ethertype = u16::from_be_bytes(*walk.take::<2>()?);
        if ethertype < MIN_ETHERTYPE {
            return walk.stop(Problem::NotIp);
        }
        return Some(Next::EtherType(ethertype));
    }
    walk.skip(1)?;
    // The network layer protocol, perhaps behind a byte of padding.
    let protocol = match walk.take::<1>()? {
        [0] => walk.take::<1>()?[0],
        &[protocol] => protocol,
    };
    match protocol {
        0xcc => Some(Next::Ipv4),
        0x8e => Some(Next::Ipv6),
        // PPP in frame relay (RFC 1973).
        0xcf => Some(Next::Ppp),
        0x80 => {
            let &[a, b, c, high, low] = walk.take::<5>()?;
            match ([a, b, c], [high, low]) {
                ([0, 0, 0], ethertype) => Some(Next::EtherType(u16::from_be_bytes(ethertype))),
                // Bridged Ethernet, with and without its checksum behind it.
                ([0x00, 0x80, 0xc2], [0, 1 | 7]) => Some(Next::Ethernet),
                _ => walk.stop(Problem::NotIp),
            }
        }
        _ => walk.stop(Problem::NotIp),
    }
}

/// The address field: two to four bytes, of which the last one has its lowest bit set.
fn address(walk: &mut Walk<'_, '_>) -> Option<()> {
    for length in 1..=MAX_ADDRESS {
        if walk.take::<1>()?[0] & 1 == 1 {
            return if length > 1 {
                Some(())
            } else {
                walk.stop(Problem::NotIp)
            };
        }
    }
    walk.stop(Problem::NotIp)
}

#[cfg(test)]
mod tests {
    use super::super::tests::decode_as;
    use super::*;
    use crate::{Address, LinkType};

    const IPV4: [u8; 28] = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0, 53, 0, 8, 0,
        0,
    ];

    #[test]
    fn every_encapsulation_leads_to_the_datagram() {
        let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let bridged = [
            &[0x18, 0x41, 3, 0, 0x80, 0, 0x80, 0xc2, 0, 7][..],
            &ethernet,
        ]
        .concat();
        for header in [
            // Plain, padded, an address of four bytes, SNAP, PPP, Cisco's, bridged.
            &[0x18, 0x41, 0x03, 0xcc][..],
            &[0x18, 0x41, 0x03, 0x00, 0xcc],
            &[0x18, 0x40, 0x40, 0x41, 0x03, 0xcc],
            &[0x18, 0x41, 0x03, 0x00, 0x80, 0, 0, 0, 8, 0],
            &[0x18, 0x41, 0x03, 0xcf, 0x00, 0x21],
            &[0x18, 0x41, 0x08, 0x00],
            &bridged,
        ] {
            let frame = [header, &IPV4].concat();
            let (packet, _) = decode_as(LinkType::FRAME_RELAY, &frame, frame.len());
            assert_eq!(packet.problem, Problem::None, "{header:02x?}");
            assert_eq!(packet.source(), (Address::v4([10, 0, 0, 1]), 53));
            assert_eq!(usize::from(packet.ip_offset), header.len());
            for len in 0..frame.len() {
                let (cut, _) = decode_as(LinkType::FRAME_RELAY, &frame[..len], frame.len());
                assert!(cut.has_ip() || cut.problem == Problem::CutHeader);
            }
        }
    }

    #[test]
    fn what_is_not_ip_is_said_to_be() {
        for frame in [
            // An address of one byte, one that does not end, Q.933, an unknown organisation,
            // Cisco's LMI.
            &[0x19, 0x41, 3, 0xcc][..],
            &[0x18, 0x40, 0x40, 0x40, 3, 0xcc],
            &[0x00, 0x01, 3, 8, 0, 0x75],
            &[0x18, 0x41, 3, 0x80, 1, 2, 3, 8, 0, 0],
            &[0xfc, 0xf1, 0x00, 0x09, 0, 0],
        ] {
            let (packet, _) = decode_as(LinkType::FRAME_RELAY, frame, frame.len());
            assert_eq!(packet.problem, Problem::NotIp, "{frame:02x?}");
        }
    }
}
