//! A capture file's flows, with no more than these tests need: classic pcap, no defragmentation.

use std::fs;
use std::path::Path;

use flowgauge_flow::{FlowConfig, FlowRecord, FlowTracker};
use flowgauge_wire::decode::{Decoder, hash_batch};
use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, LinkType, Nanos, PacketDescriptor,
};

/// One finished flow, owned.
#[derive(Clone, Debug)]
pub(crate) struct OwnedFlow {
    pub(crate) protocol: u8,
    pub(crate) ends: [(std::net::IpAddr, u16); 2],
    pub(crate) packets: [u64; 2],
    pub(crate) ip_bytes: [u64; 2],
    pub(crate) payload: [u64; 2],
    pub(crate) state: &'static str,
    pub(crate) history: String,
    pub(crate) fragments: u64,
    pub(crate) duration: f64,
    /// Outer addresses, where the flow is tunnelled.
    pub(crate) outer: Option<[std::net::IpAddr; 2]>,
}

impl OwnedFlow {
    pub(crate) fn new(record: &FlowRecord<'_>) -> OwnedFlow {
        let (from, to) = (&record.source, &record.destination);
        OwnedFlow {
            protocol: record.protocol,
            ends: [from, to].map(|side| (side.address.to_ip(record.version), side.port)),
            packets: [from.packets, to.packets],
            ip_bytes: [from.ip_bytes, to.ip_bytes],
            payload: [from.payload_bytes, to.payload_bytes],
            state: record.state.name(),
            history: record.history.to_owned(),
            fragments: record.fragments,
            duration: (record.end - record.start).as_secs_f64(),
            outer: record.tunnel.map(|tunnel| {
                [tunnel.source, tunnel.destination].map(|outer| outer.to_ip(tunnel.version))
            }),
        }
    }
}

/// The packets of a classic pcap file; `None` when it is something else.
pub(crate) fn read_pcap(path: &Path) -> Option<(Vec<u8>, Vec<PacketDescriptor>)> {
    let bytes = fs::read(path).ok()?;
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let (big, nanos) = match magic {
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
        _ => return None,
    };
    let word = |at: usize| -> Option<u32> {
        let word: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if big {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        })
    };
    let link = LinkType::from_file(word(20)? as u16);
    let mut packets = Vec::new();
    let mut at = 24;
    while let (Some(seconds), Some(fraction), Some(captured), Some(wire)) =
        (word(at), word(at + 4), word(at + 8), word(at + 12))
    {
        at += 16;
        if at + captured as usize > bytes.len() {
            break;
        }
        let fraction = u64::from(fraction) * if nanos { 1 } else { 1000 };
        packets.push(PacketDescriptor {
            time: Nanos(u64::from(seconds) * 1_000_000_000 + fraction),
            offset: at as u32,
            captured_len: captured,
            wire_len: wire.max(captured),
            link,
            ..PacketDescriptor::default()
        });
        at += captured as usize;
    }
    Some((bytes, packets))
}

/// The flows of a classic pcap file, in the order they ended.
pub(crate) fn flows_of(path: &Path, verify: bool, config: FlowConfig) -> Option<Vec<OwnedFlow>> {
    let (memory, packets) = read_pcap(path)?;
    let mut decoder = Decoder::default();
    let mut decoded = DecodedBatch::new();
    let mut tracker = FlowTracker::new(config);
    let mut refs = Vec::new();
    let mut flows = Vec::new();
    for packets in packets.chunks(256) {
        let batch = Batch::new(&memory, packets);
        decoder.decode_batch(&batch, &mut decoded);
        hash_batch(&mut decoded.packets);
        if verify {
            for packet in &mut decoded.packets {
                check(batch.bytes(usize::from(packet.index)), packet);
            }
        }
        tracker.process(&decoded.packets, &decoded.tunnels, &mut refs);
        assert_eq!(refs.len(), decoded.packets.len());
        tracker.drain_ended(|_, record| flows.push(OwnedFlow::new(record)));
    }
    tracker.finish();
    tracker.drain_ended(|_, record| flows.push(OwnedFlow::new(record)));
    Some(flows)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from))
        .sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Flags wrong checksums of the innermost datagram, where all of it was captured.
fn check(frame: &[u8], packet: &mut Decoded) {
    if !packet.has_ip() || packet.flags.contains(DecodeFlags::CUT) {
        return;
    }
    let ip = usize::from(packet.ip_offset);
    let Some(datagram) = frame.get(ip..ip + packet.ip_len as usize) else {
        return;
    };
    if packet.key.version == 4 {
        let header = usize::from(datagram[0] & 15) * 4;
        if fold(sum(&datagram[..header])) != 0xffff {
            packet.flags.insert(DecodeFlags::EXCLUDED);
            return;
        }
    }
    let protocol = packet.key.protocol;
    let transport = usize::from(packet.transport_offset).saturating_sub(ip);
    if !packet.flags.contains(DecodeFlags::TRANSPORT)
        || packet.flags.contains(DecodeFlags::FRAGMENT)
        || !matches!(protocol, 1 | 6 | 17 | 58)
    {
        return;
    }
    let Some(segment) = datagram.get(transport..) else {
        return;
    };
    if protocol == 17 && segment[6..8] == [0, 0] && packet.key.version == 4 {
        return;
    }
    let addresses = match packet.key.version {
        4 => &datagram[12..20],
        _ => &datagram[8..40],
    };
    let pseudo = sum(addresses) + u64::from(protocol) + segment.len() as u64;
    let total = sum(segment) + if protocol == 1 { 0 } else { pseudo };
    if fold(total) != 0xffff {
        packet.flags.insert(DecodeFlags::BAD_CHECKSUM);
    }
}
