//! Every shared capture: nothing panics, every packet whole and cut, and an independent decoder
//! agrees.

use crate::common;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use flowgauge_wire::{
    DecodeFlags, DecodeOptions, DecodedBatch, Decoder, LinkType, verify_transport,
};
use std::net::IpAddr;

#[test]
fn every_capture_decodes_whole_and_cut() {
    let Some(corpora) = common::corpora() else {
        return;
    };
    let mut decoder = Decoder::default();
    let mut out = DecodedBatch::new();
    let mut packets = 0;
    for path in common::captures(&corpora) {
        for packet in common::read(&path).iter().take(300) {
            packets += 1;
            let whole = common::decode(
                &mut decoder,
                packet.link,
                &packet.bytes,
                packet.wire_len,
                &mut out,
            );
            verify_transport(&packet.bytes, &whole);
            let length = packet.bytes.len();
            let cuts = [length / 4, length / 2, length.saturating_sub(1)];
            for cut in cuts.into_iter().chain([34, 42, 54]) {
                let bytes = &packet.bytes[..cut.min(length)];
                let cut =
                    common::decode(&mut decoder, packet.link, bytes, packet.wire_len, &mut out);
                assert!(
                    cut.payload_captured as usize <= bytes.len(),
                    "{}",
                    path.display()
                );
                // The same flow seen through a shorter snap length has the same lengths.
                if cut.key == whole.key
                    && cut.tunnel == whole.tunnel
                    && cut.flags.contains(DecodeFlags::TRANSPORT)
                {
                    assert_eq!(cut.payload_len, whole.payload_len, "{}", path.display());
                    assert_eq!(cut.ip_len, whole.ip_len, "{}", path.display());
                }
            }
        }
    }
    assert!(packets > 10_000, "only {packets} packets found");
}

/// Addresses, ports and lengths as crate `etherparse` reads them, over every Ethernet packet that
/// it accepts. IPv6 behind extension headers is left out: it knows no final destination.
#[test]
fn etherparse_agrees() {
    let Some(corpora) = common::corpora() else {
        return;
    };
    let mut options = DecodeOptions::default();
    options.decapsulate = false;
    let mut decoder = Decoder::new(options);
    let mut out = DecodedBatch::new();
    let mut compared = [0u32; 4];
    for path in common::captures(&corpora) {
        for (number, packet) in common::read(&path).iter().take(2000).enumerate() {
            let bytes = &packet.bytes[..];
            if packet.link != LinkType::ETHERNET || packet.wire_len as usize != bytes.len() {
                continue;
            }
            let Ok(theirs) = SlicedPacket::from_ethernet(bytes) else {
                continue;
            };
            let ours = common::decode(&mut decoder, packet.link, bytes, packet.wire_len, &mut out);
            let (source, destination, payload): (IpAddr, IpAddr, usize) = match &theirs.net {
                Some(NetSlice::Ipv4(ip)) if ip.header().total_len() != 0 => (
                    ip.header().source_addr().into(),
                    ip.header().destination_addr().into(),
                    ip.payload().payload.len(),
                ),
                Some(NetSlice::Ipv6(ip)) if matches!(ip.header().next_header().0, 6 | 17 | 58) => (
                    ip.header().source_addr().into(),
                    ip.header().destination_addr().into(),
                    ip.payload().payload.len(),
                ),
                _ => continue,
            };
            let context = format!("{} packet {}: {ours:?}", path.display(), number + 1);
            let version = ours.key.version;
            assert_eq!(ours.source().0.to_ip(version), source, "{context}");
            assert_eq!(
                ours.destination().0.to_ip(version),
                destination,
                "{context}"
            );
            let ports = (ours.source().1, ours.destination().1);
            match &theirs.transport {
                _ if ours.flags.contains(DecodeFlags::FRAGMENT) => {
                    assert_eq!(ours.payload_len as usize, payload, "{context}");
                    compared[0] += 1;
                }
                Some(TransportSlice::Tcp(tcp)) => {
                    let expected = (tcp.source_port(), tcp.destination_port());
                    assert_eq!(ports, expected, "{context}");
                    assert_eq!(ours.seq, tcp.sequence_number(), "{context}");
                    assert_eq!(ours.window, tcp.window_size(), "{context}");
                    assert_eq!(ours.payload_len as usize, tcp.payload().len(), "{context}");
                    compared[1] += 1;
                }
                Some(TransportSlice::Udp(udp)) => {
                    let expected = (udp.source_port(), udp.destination_port());
                    assert_eq!(ports, expected, "{context}");
                    assert_eq!(ours.payload_len as usize, udp.payload().len(), "{context}");
                    compared[2] += 1;
                }
                Some(TransportSlice::Icmpv4(icmp)) => {
                    assert_eq!(ours.icmp_type, icmp.type_u8(), "{context}");
                    assert_eq!(ours.icmp_code, icmp.code_u8(), "{context}");
                    compared[3] += 1;
                }
                _ => {}
            }
        }
    }
    assert!(
        compared.iter().all(|&count| count >= 100),
        "too few compared: {compared:?}"
    );
}
