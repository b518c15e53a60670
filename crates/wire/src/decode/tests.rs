//! Byte fixtures through both paths.

use super::*;
use crate::decoded::Problem;
use crate::key::Direction;
use crate::{Address, TcpFlags};

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
