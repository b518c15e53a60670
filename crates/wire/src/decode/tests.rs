//! Byte fixtures, decoded by both paths.

use super::*;
use crate::checksum::{Checksum, ChecksumVerdict, verify_transport};
use crate::decoded::Problem;
use crate::key::Direction;
use crate::link::LinkType;
use crate::packet::PacketFlags;
use crate::{Address, TcpFlags};
use proptest::prelude::*;

/// Ethernet, IPv4, TCP with 3 bytes of payload, padded to 60 bytes.
fn tcp_frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend([
        0x45, 0, 0, 43, 0, 1, 0x40, 0, 64, 6, 0x26, 0xca, 10, 0, 0, 2, 10, 0, 0, 1,
    ]);
    frame.extend([
        0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 1, 0, 0, 0, 0, 0,
    ]);
    frame.extend(b"abc");
    frame.resize(60, 0);
    frame
}

pub(super) fn decode_as(link: LinkType, bytes: &[u8], wire_len: usize) -> (Decoded, DecodedBatch) {
    let descriptor = PacketDescriptor {
        captured_len: bytes.len() as u32,
        wire_len: wire_len as u32,
        link,
        ..PacketDescriptor::default()
    };
    let mut out = DecodedBatch::new();
    Decoder::default().decode_batch(&Batch::new(bytes, &[descriptor]), &mut out);
    (out.packets[0], out)
}

#[test]
fn tcp_over_ipv4_with_padding() {
    let frame = tcp_frame();
    let (packet, _) = decode_as(LinkType::ETHERNET, &frame, frame.len());
    assert_eq!(packet.problem, Problem::None);
    assert_eq!(packet.source(), (Address::v4([10, 0, 0, 2]), 12345));
    assert_eq!(packet.destination(), (Address::v4([10, 0, 0, 1]), 80));
    assert_eq!(packet.direction, Direction::HighToLow);
    assert_eq!((packet.seq, packet.ack, packet.window), (1, 2, 256));
    assert_eq!(packet.tcp_flags, TcpFlags::ACK.with(TcpFlags::PSH));
    assert_eq!((packet.ip_len, packet.payload_len), (43, 3));
    assert_eq!((packet.payload_offset, packet.payload_captured), (54, 3));
    let flags = DecodeFlags(DecodeFlags::TRANSPORT.0 | DecodeFlags::TRAILER.0);
    assert_eq!(packet.flags, flags);
}

#[test]
fn both_paths_agree_and_cut_packets_keep_their_lengths() {
    let frame = tcp_frame();
    let (whole, _) = decode_as(LinkType::ETHERNET, &frame, frame.len());
    let (raw, _) = decode_as(LinkType::RAW, &frame[14..57], 43);
    assert_eq!((raw.key, raw.payload_len), (whole.key, 3));
    for length in 0..57 {
        let (cut, _) = decode_as(LinkType::ETHERNET, &frame[..length], frame.len());
        if length >= 38 {
            assert_eq!(cut.key, whole.key, "at {length}");
            assert_eq!((cut.ip_len, cut.payload_len), (43, 3), "at {length}");
        }
        assert!(!cut.problem.is_malformed(), "at {length}");
        assert!(cut.flags.contains(DecodeFlags::CUT), "at {length}");
        assert_eq!(cut.flags.contains(DecodeFlags::TRANSPORT), length >= 54);
    }
}

/// IPv4 from 10.9.0.`host` to 10.9.0.200 around `payload`, checksum left 0.
fn ipv4(protocol: u8, host: u8, payload: &[u8]) -> Vec<u8> {
    let total = ((20 + payload.len()) as u16).to_be_bytes();
    let mut datagram = vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, protocol, 0, 0];
    datagram.extend([10, 9, 0, host, 10, 9, 0, 200]);
    datagram.extend(payload);
    datagram
}

fn udp(destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = ((8 + payload.len()) as u16).to_be_bytes();
    let [high, low] = destination.to_be_bytes();
    let mut bytes = vec![0x80, 1, high, low, length[0], length[1], 0, 0];
    bytes.extend(payload);
    bytes
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2; 12], &ethertype.to_be_bytes(), payload])
}

#[test]
fn tunnels_end_at_the_inner_flow() {
    use crate::TunnelKind::{Geneve, Gre, GtpU, IpInIp, Vxlan};
    let inner = ipv4(17, 1, &udp(53, b"hello"));
    let frame = ethernet(0x0800, &inner);
    let gtp_length = (inner.len() as u16).to_be_bytes();
    let cases = [
        (IpInIp, None, ipv4(4, 7, &inner)),
        (Gre, None, ipv4(47, 7, &join(&[&[0, 0, 8, 0], &inner]))),
        (
            Gre,
            Some(9),
            ipv4(
                47,
                7,
                &join(&[
                    &[0xb0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1],
                    &frame,
                ]),
            ),
        ),
        (
            Vxlan,
            Some(0x01_0203),
            ipv4(
                17,
                7,
                &udp(4789, &join(&[&[8, 0, 0, 0, 1, 2, 3, 0], &frame])),
            ),
        ),
        // Reserved bits are set.
        (
            Vxlan,
            Some(0x01_0203),
            ipv4(
                17,
                7,
                &udp(
                    4789,
                    &join(&[&[0xff, 1, 0xd1, 0xf2, 1, 2, 3, 0xff], &frame]),
                ),
            ),
        ),
        (
            Geneve,
            Some(5),
            ipv4(
                17,
                7,
                &udp(
                    6081,
                    &join(&[&[1, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 0], &frame]),
                ),
            ),
        ),
        (
            GtpU,
            Some(77),
            ipv4(
                17,
                7,
                &udp(
                    2152,
                    &join(&[&[0x30, 0xff], &gtp_length, &[0, 0, 0, 77], &inner]),
                ),
            ),
        ),
    ];
    for (kind, id, outer) in cases {
        let bytes = ethernet(0x0800, &outer);
        let (packet, out) = decode_as(LinkType::ETHERNET, &bytes, bytes.len());
        assert_eq!(
            packet.source(),
            (Address::v4([10, 9, 0, 1]), 0x8001),
            "{kind:?}"
        );
        assert_eq!(packet.destination().1, 53, "{kind:?}");
        assert_eq!((packet.payload_len, packet.problem), (5, Problem::None));
        let tunnel = out.tunnel(&packet).copied().unwrap_or_default();
        assert_eq!((tunnel.kind, tunnel.id, tunnel.depth), (kind, id, 1));
        assert_eq!(tunnel.source, Address::v4([10, 9, 0, 7]));
    }
}

#[test]
fn security_associations_keep_flows_apart() {
    let bytes = ethernet(0x0800, &ipv4(50, 7, &[0, 1, 0, 2, 0, 0, 0, 9, 8, 8]));
    let (packet, _) = decode_as(LinkType::ETHERNET, &bytes, bytes.len());
    assert_eq!((packet.source().1, packet.destination().1), (1, 2));
    assert_eq!((packet.key.protocol, packet.payload_len), (50, 10));
    let bytes = ethernet(0x0800, &ipv4(50, 7, &[0, 1, 0]));
    let (packet, _) = decode_as(LinkType::ETHERNET, &bytes, bytes.len());
    assert_eq!((packet.source().1, packet.payload_len), (0, 3));
}

#[test]
fn what_only_looks_like_a_tunnel_stays_the_outer_flow() {
    let bytes = ethernet(0x0800, &ipv4(17, 7, &udp(4789, &[8; 60])));
    let (packet, out) = decode_as(LinkType::ETHERNET, &bytes, bytes.len());
    assert_eq!(packet.destination().1, 4789);
    assert_eq!((packet.payload_len, packet.problem), (60, Problem::None));
    assert_eq!((packet.tunnel, out.tunnels.len()), (0, 0));
}

#[test]
fn tunnels_beyond_the_limit_are_too_deep() {
    let mut bytes = ipv4(17, 1, &udp(53, b"hello"));
    for level in 0..9 {
        bytes = ipv4(4, 10 + level, &bytes);
    }
    let (packet, out) = decode_as(LinkType::RAW, &bytes, bytes.len());
    assert_eq!(packet.problem, Problem::TooDeep);
    assert_eq!(packet.key.protocol, 4);
    assert_eq!(out.tunnel(&packet).map(|tunnel| tunnel.depth), Some(8));
}

#[test]
fn shims_lead_to_the_datagram() {
    let inner = ipv4(17, 1, &udp(53, b"hello"));
    let length = (inner.len() as u16 + 2).to_be_bytes();
    let cases: [(LinkType, Vec<u8>, &[u16]); 7] = [
        (
            LinkType::ETHERNET,
            ethernet(0x88a8, &join(&[&[0x20, 5, 0x81, 0, 0, 6, 8, 0], &inner])),
            &[5, 6],
        ),
        (
            LinkType::ETHERNET,
            ethernet(0x8847, &join(&[&[0, 1, 0, 64, 0, 1, 1, 64], &inner])),
            &[],
        ),
        (
            LinkType::ETHERNET,
            ethernet(
                0x8864,
                &join(&[&[0x11, 0, 0, 1], &length, &[0, 0x21], &inner]),
            ),
            &[],
        ),
        (
            LinkType::ETHERNET,
            ethernet(
                8 + inner.len() as u16,
                &join(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &inner]),
            ),
            &[],
        ),
        (LinkType::NULL, join(&[&[2, 0, 0, 0], &inner]), &[]),
        (LinkType::LINUX_SLL, join(&[&[0; 14], &[8, 0], &inner]), &[]),
        (
            LinkType::LINUX_SLL2,
            join(&[&[8, 0], &[0; 18], &inner]),
            &[],
        ),
    ];
    for (link, bytes, vlans) in cases {
        let (packet, _) = decode_as(link, &bytes, bytes.len());
        assert_eq!(packet.destination().1, 53, "{link:?} {bytes:x?}");
        assert_eq!(packet.payload_len, 5);
        assert_eq!(&packet.vlan[..usize::from(packet.vlan_count)], vlans);
    }
}

#[test]
fn fragments_are_described() {
    let mut first = ipv4(17, 1, &udp(53, b"hello123"));
    first[6] = 0x20;
    let (packet, _) = decode_as(LinkType::RAW, &first, first.len());
    assert!(packet.flags.contains(DecodeFlags::FRAGMENT));
    assert_eq!((packet.destination().1, packet.payload_len), (53, 16));
    let info = fragment_info(&first, 0);
    let facts = info.map(|info| {
        (
            info.offset,
            info.more,
            info.id,
            info.data_offset,
            info.data_len,
        )
    });
    assert_eq!(facts, Some((0, true, 1, 20, 16)));
    assert_eq!(fragment_info(&ipv4(17, 1, &[]), 0), None);
}

#[test]
fn a_jumbo_length_beyond_the_frame_counts_the_frame() {
    // IPv6 with a hop-by-hop header of one jumbo payload option (RFC 2675).
    let jumbogram = |length: u32| {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        bytes.extend([0xfd; 32]);
        bytes.extend([59, 0, 0xc2, 4]);
        bytes.extend(length.to_be_bytes());
        bytes
    };
    let good = jumbogram(8);
    let (packet, _) = decode_as(LinkType::IPV6, &good, good.len());
    assert_eq!((packet.ip_len, packet.problem), (48, Problem::None));
    for length in [9, 70_000, u32::MAX] {
        let bytes = jumbogram(length);
        let (packet, _) = decode_as(LinkType::IPV6, &bytes, bytes.len());
        assert_eq!((packet.ip_len, packet.problem), (49, Problem::BadIpHeader));
    }
}

/// A frame of nearly the usual kind, and how it is described.
#[derive(Clone, Debug)]
struct Usual {
    link: LinkType,
    kernel_tag: Option<u16>,
    bytes: Vec<u8>,
    cut: usize,
    padding: usize,
}

/// An IP datagram with right lengths and checksums.
fn datagram(six: bool, udp: bool, ends: [u8; 12], options: usize, payload: &[u8]) -> Vec<u8> {
    let mut transport = ends[..4].to_vec();
    let at = if udp {
        transport.extend((8 + payload.len() as u16).to_be_bytes());
        6
    } else {
        transport.extend([0, 0, 1, 2, 3, 4, 5, 6]);
        transport.extend([(5 + options as u8) << 4, ends[11], 1, 2]);
        16
    };
    transport.extend([0, 0]);
    if !udp {
        transport.extend([0, 0]);
        transport.resize(20 + 4 * options, 1);
    }
    transport.extend(payload);
    let protocol = if udp { 17 } else { 6 };
    let length = transport.len() as u16;
    let mut ip = if six {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend(length.to_be_bytes());
        ip.extend([protocol, 64]);
        for end in [&ends[4..8], &ends[7..11]] {
            ip.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
            ip.extend(end);
        }
        ip
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend((20 + length).to_be_bytes());
        ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        ip.extend(&ends[4..8]);
        ip.extend(&ends[7..11]);
        let mut checksum = Checksum::default();
        checksum.add(&ip);
        ip[10..12].copy_from_slice(&checksum.finish().to_be_bytes());
        ip
    };
    let mut checksum = Checksum::default();
    checksum.add(&ip[if six { 8 } else { 12 }..]);
    checksum.add(&[0, protocol]);
    checksum.add(&length.to_be_bytes());
    checksum.add(&transport);
    let value = match checksum.finish() {
        0 if udp => 0xffff,
        value => value,
    };
    transport[at..at + 2].copy_from_slice(&value.to_be_bytes());
    ip.extend(transport);
    ip
}

prop_compose! {
    fn usual()(
        six: bool,
        udp: bool,
        ends: [u8; 12],
        options in 0..4usize,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 0..8,
        tag: u16,
        cut in prop_oneof![4 => Just(0usize), 1 => 0..80usize],
        padding in prop_oneof![2 => Just(0usize), 1 => 0..40usize],
    ) -> Usual {
        let ethertype = if six { [0x86, 0xdd] } else { [8, 0] };
        let [high, low] = tag.to_be_bytes();
        let (link, mut bytes) = match kind {
            0 => (LinkType::RAW, vec![]),
            1 => (LinkType::LINUX_SLL, vec![0; 14]),
            2 => (LinkType::LINUX_SLL2, ethertype.to_vec()),
            3 => (LinkType::ETHERNET, [vec![2; 12], vec![0x81, 0, high, low]].concat()),
            4 => (LinkType::ETHERNET, [vec![2; 12], vec![0x88, 0xa8, 0, 5, 0x81, 0, high, low]].concat()),
            _ => (LinkType::ETHERNET, vec![2; 12]),
        };
        match link {
            LinkType::RAW => {}
            LinkType::LINUX_SLL2 => bytes.resize(20, 0),
            _ => bytes.extend(ethertype),
        }
        bytes.extend(datagram(six, udp, ends, options, &payload));
        Usual { link, kernel_tag: (kind > 6).then_some(tag), bytes, cut, padding }
    }
}

/// Decodes through both paths and checks that nobody can tell.
fn both_paths_agree(usual: &Usual, separate_vlans: bool) -> Decoded {
    let wire_len = usual.bytes.len() + usual.padding;
    let mut bytes = usual.bytes.clone();
    bytes.resize(wire_len, 0);
    bytes.truncate(wire_len - usual.cut.min(wire_len));
    let descriptor = PacketDescriptor {
        time: Nanos(77),
        captured_len: bytes.len() as u32,
        wire_len: wire_len as u32,
        link: usual.link,
        vlan_tci: usual.kernel_tag.unwrap_or(0),
        flags: usual
            .kernel_tag
            .map_or(PacketFlags::default(), |_| PacketFlags::VLAN),
        ..PacketDescriptor::default()
    };
    let options = DecodeOptions {
        separate_vlans,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(options);
    let mut out = DecodedBatch::new();
    // What is left there from the last batch.
    out.packets.push(Decoded {
        key: crate::key::FlowKey {
            low: crate::key::Address([7; 16]),
            reserved: 7,
            context: 7,
            ..crate::key::FlowKey::default()
        },
        hash: 7,
        seq: 7,
        ack: 7,
        window: 7,
        index: 7,
        tunnel: 7,
        vlan: [7; 2],
        icmp_type: 7,
        icmp_code: 7,
        vlan_count: 7,
        ..Decoded::default()
    });
    decoder.decode_batch(&Batch::new(&bytes, &[descriptor]), &mut out);
    let mut slow = Decoded::default();
    decoder.decode_slow(&descriptor, &bytes, 0, &mut slow, &mut Vec::new());
    let fast = out.packets[0];
    assert_eq!(fast, slow);
    assert_eq!(out.summary.flags, fast.flags);
    fast
}

proptest! {
    #[test]
    fn both_paths_agree_on_usual_frames(usual in usual(), separate_vlans: bool) {
        let packet = both_paths_agree(&usual, separate_vlans);
        let verdict = verify_transport(&usual.bytes, &packet);
        if packet.tunnel == 0 && usual.cut == 0 {
            prop_assert_eq!(verdict, ChecksumVerdict::Good);
        }
    }

    #[test]
    fn both_paths_agree_on_damaged_frames(
        mut usual in usual(),
        damage in proptest::collection::vec((0..80usize, any::<u8>()), 1..3),
    ) {
        for (at, value) in damage {
            if let Some(byte) = usual.bytes.get_mut(at) {
                *byte = value;
            }
        }
        both_paths_agree(&usual, false);
    }

    #[test]
    fn one_wrong_bit_is_found(mut usual in usual(), at in 0..400usize, bit in 0..8) {
        usual.cut = 0;
        let end = usual.bytes.len();
        let packet = both_paths_agree(&usual, false);
        // Behind the lengths and the checksum that the header has.
        let start = usize::from(packet.transport_offset) + 18;
        if start < end {
            usual.bytes[start + at % (end - start)] ^= 1u8 << bit;
            prop_assert_eq!(verify_transport(&usual.bytes, &packet), ChecksumVerdict::Bad);
        }
    }
}
