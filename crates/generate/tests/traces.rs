//! Generated traces hold exactly what their truth says: every preset is parsed again by the naive
//! reader below, which shares no code with the generator, and put together by sorting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowgauge_generate::{Config, Detail, Preset, Resolution, Truth, generate};
use sha2::{Digest, Sha256};

/// Small enough for a debug build, large enough for every feature to occur.
fn small(preset: Preset) -> Config {
    match preset {
        Preset::Zoo => Config::new(preset),
        Preset::Hostile => Config {
            detail: Detail::Full,
            ..Config::new(preset).scaled(0.1)
        },
        Preset::Small | Preset::Syn => Config::new(preset).scaled(0.004),
        Preset::Elephants => Config {
            maximum_size: 4 << 20,
            ..Config::new(preset).scaled(0.02)
        },
        _ => Config::new(preset).scaled(0.01),
    }
}

fn build(config: &Config) -> (Vec<u8>, Truth) {
    let mut bytes = Vec::new();
    let truth = generate(config, &mut bytes).expect("a vector takes every byte");
    (bytes, truth)
}

#[test]
fn truth_holds_for_every_preset() {
    for &preset in Preset::ALL {
        for seed in 1..=4 {
            let config = Config {
                seed,
                ..small(preset)
            };
            let (bytes, truth) = build(&config);
            check(&bytes, &truth);
        }
    }
}

#[test]
fn truth_holds_with_every_trouble_at_once() {
    for seed in 1..=6 {
        let config = Config {
            seed,
            reordered: 0.05,
            retransmitted: 0.03,
            overlapped: 0.03,
            lost_upstream: 0.03,
            missing: 0.02,
            duplicated: 0.02,
            fragments: 0.2,
            resolution: Resolution::Nanos,
            ..Config::new(Preset::Zoo)
        };
        let (bytes, truth) = build(&config);
        check(&bytes, &truth);
        let totals = truth.totals;
        for (name, count) in [
            ("holes", totals.tcp_holes),
            ("retransmitted", totals.retransmitted_segments),
            ("partial overlaps", totals.partial_overlaps),
            ("out of order", totals.out_of_order_segments),
            ("lost upstream", totals.lost_upstream),
            ("duplicates", totals.duplicate_frames),
            ("fragments", totals.fragments),
            ("mid-stream", totals.mid_stream),
            ("IPv6", totals.ipv6_frames),
            ("VLAN", totals.vlan_frames),
            ("tunnel", totals.tunnel_frames),
        ] {
            assert!(count > 20, "{name}: {count}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for &preset in Preset::ALL {
        let config = Config {
            duration: Duration::from_secs(10),
            ..small(preset).scaled(0.2)
        };
        let (first, truth) = build(&config);
        let (second, again) = build(&config);
        assert!(first == second, "{preset}");
        assert_eq!(truth, again, "{preset}");
        let (third, _) = build(&Config { seed: 9, ..config });
        assert!(first != third, "{preset}");
    }
}

#[test]
fn a_summary_has_the_same_bytes_and_totals() {
    let full = small(Preset::Loss);
    let (bytes, truth) = build(&full);
    let (summary_bytes, summary) = build(&Config {
        detail: Detail::Summary,
        ..full
    });
    assert!(bytes == summary_bytes);
    assert!(summary.streams.is_empty());
    assert_eq!(
        summary,
        Truth {
            streams: Vec::new(),
            ..truth
        }
    );
}

#[test]
fn truth_survives_json() {
    let (_, truth) = build(&small(Preset::Zoo));
    let text = serde_json::to_string(&truth).unwrap();
    assert_eq!(serde_json::from_str::<Truth>(&text).unwrap(), truth);
}

/// Sender and receiver of a direction.
type Direction = (u8, IpAddr, u16, IpAddr, u16);

/// What the naive reader found of one direction.
#[derive(Default)]
struct Found {
    packets: u64,
    wire_bytes: u64,
    syn: Option<u32>,
    fin: bool,
    rst: bool,
    /// Sequence numbers and payloads, in capture order.
    segments: Vec<(u32, Vec<u8>)>,
}

/// The pieces of a datagram: identified by addresses, protocol and identification.
#[derive(Default)]
struct Pieces {
    packets: u64,
    wire_bytes: u64,
    parts: BTreeMap<usize, Vec<u8>>,
    end: Option<usize>,
}

fn check(capture: &[u8], truth: &Truth) {
    let name = &truth.preset;
    let mut reader = Reader::default();
    reader.read(capture);
    assert_eq!(reader.packets, truth.packets, "{name}: packets");
    assert_eq!(reader.wire_bytes, truth.wire_bytes, "{name}: bytes");
    assert_eq!(capture.len() as u64, truth.file_bytes, "{name}: file");
    let mut keys = BTreeSet::new();
    let (mut bytes, mut missing) = (0, 0);
    for stream in &truth.streams {
        let protocol = if stream.proto == "tcp" { 6 } else { 17 };
        let key = (
            protocol,
            stream.src_ip,
            stream.src_port,
            stream.dst_ip,
            stream.dst_port,
        );
        assert!(keys.insert(key), "{name}: {key:?} twice");
        let found = reader.found.remove(&key).unwrap_or_default();
        let context = format!("{name} seed {}: {stream:?}", truth.seed);
        assert_eq!(found.syn.is_some(), stream.syn, "{context}");
        assert_eq!(found.fin, stream.fin, "{context}");
        assert_eq!(found.rst, stream.rst, "{context}");
        if truth.totals.fragments == 0 {
            // Pieces of incomplete datagrams belong to no flow for the naive reader.
            assert_eq!(found.packets, stream.packets, "{context}");
            assert_eq!(found.wire_bytes, stream.wire_bytes, "{context}");
        }
        let holes: u64 = stream.holes.iter().map(|hole| hole.size).sum();
        assert_eq!(holes, stream.missing_bytes, "{context}");
        let captured = if protocol == 6 {
            assemble(&found, stream, &context)
        } else {
            found
                .segments
                .iter()
                .flat_map(|(_, payload)| payload.iter().copied())
                .collect()
        };
        let length = captured.len() as u64;
        assert_eq!(length, stream.bytes - stream.missing_bytes, "{context}");
        let hash: [u8; 32] = Sha256::digest(&captured).into();
        assert_eq!(hash, stream.captured_sha256, "{context}");
        if stream.missing_bytes == 0 {
            assert_eq!(stream.sha256, stream.captured_sha256, "{context}");
        } else {
            assert_ne!(stream.sha256, stream.captured_sha256, "{context}");
        }
        bytes += stream.bytes;
        missing += stream.missing_bytes;
    }
    let totals = truth.totals;
    let total_bytes = totals.tcp_stream_bytes + totals.udp_payload_bytes;
    assert_eq!(bytes, total_bytes, "{name}");
    let total_missing = totals.tcp_missing_bytes + totals.udp_missing_bytes;
    assert_eq!(missing, total_missing, "{name}");
    if truth.attacks.is_empty() {
        let strangers: Vec<_> = reader.found.keys().collect();
        // Directions of UDP flows that carry nothing are not in the truth's list, nor in the trace.
        assert!(strangers.is_empty(), "{name}: {strangers:?}");
        assert_eq!(reader.fragments, totals.fragments, "{name}: fragments");
    }
}

/// The captured bytes of a TCP direction in order; checks that the holes are where the truth says.
fn assemble(found: &Found, stream: &flowgauge_generate::StreamTruth, context: &str) -> Vec<u8> {
    let Some((first, _)) = found.segments.first() else {
        return Vec::new();
    };
    // Without the SYN the lowest byte captured is as far in the stream as the first hole says.
    let base = found.syn.unwrap_or_else(|| {
        let lowest = found
            .segments
            .iter()
            .map(|(seq, _)| seq.wrapping_sub(*first) as i32)
            .min()
            .unwrap_or(0);
        let skipped = match stream.holes.first() {
            Some(hole) if hole.offset == 0 => hole.size,
            _ => 0,
        };
        first
            .wrapping_add(lowest as u32)
            .wrapping_sub(skipped as u32)
            .wrapping_sub(1)
    });
    let mut bytes = vec![None; stream.bytes as usize];
    for (seq, payload) in &found.segments {
        let offset = seq.wrapping_sub(base).wrapping_sub(1) as usize;
        for (place, byte) in bytes[offset..].iter_mut().zip(payload) {
            assert!(place.is_none_or(|old| old == *byte), "{context}");
            *place = Some(*byte);
        }
        assert!(offset + payload.len() <= bytes.len(), "{context}");
    }
    for hole in &stream.holes {
        let (from, to) = (hole.offset as usize, (hole.offset + hole.size) as usize);
        assert!(bytes[from..to].iter().all(Option::is_none), "{context}");
    }
    bytes.into_iter().flatten().collect()
}

/// A naive reader of whole captures.
#[derive(Default)]
struct Reader {
    packets: u64,
    wire_bytes: u64,
    fragments: u64,
    found: HashMap<Direction, Found>,
    pieces: HashMap<(IpAddr, IpAddr, u8, u32), Pieces>,
}

fn number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |value, &byte| value << 8 | usize::from(byte))
}

fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Reader {
    fn read(&mut self, capture: &[u8]) {
        let word = |at: usize| number(&[3, 2, 1, 0].map(|index| capture[at + index])) as u32;
        let per_second = match word(0) {
            0xa1b2_c3d4 => 1_000_000,
            0xa1b2_3c4d => 1_000_000_000,
            magic => panic!("magic {magic:#x}"),
        };
        let mut at = 24;
        let mut last = (0, 0);
        while at < capture.len() {
            let time = (word(at), word(at + 4));
            assert!(time.1 < per_second);
            assert!(time >= last, "time goes backwards");
            last = time;
            let length = word(at + 8) as usize;
            assert_eq!(word(at + 12) as usize, length);
            let frame = &capture[at + 16..at + 16 + length];
            self.packets += 1;
            self.wire_bytes += length as u64;
            self.ethernet(frame, length as u64);
            at += 16 + length;
        }
    }

    /// Follows the layers; `None` where the frame makes no sense.
    fn ethernet(&mut self, frame: &[u8], wire: u64) -> Option<()> {
        let mut at = 12;
        while matches!(number(frame.get(at..at + 2)?), 0x8100 | 0x88a8) {
            at += 4;
        }
        match number(frame.get(at..at + 2)?) {
            0x0800 => self.ipv4(frame.get(at + 2..)?, wire),
            0x86dd => self.ipv6(frame.get(at + 2..)?, wire),
            _ => None,
        }
    }

    fn ip(&mut self, packet: &[u8], wire: u64) -> Option<()> {
        match packet.first()? >> 4 {
            4 => self.ipv4(packet, wire),
            6 => self.ipv6(packet, wire),
            _ => None,
        }
    }

    fn ipv4(&mut self, packet: &[u8], wire: u64) -> Option<()> {
        let header = packet.get(..20)?;
        if header[0] != 0x45 || checksum(&[header]) != 0 {
            return None;
        }
        let body = packet.get(20..number(&header[2..4]))?;
        let source = Ipv4Addr::from(<[u8; 4]>::try_from(&header[12..16]).ok()?).into();
        let destination = Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..20]).ok()?).into();
        let fragment = number(&header[6..8]) & 0x3fff;
        let ends = (source, destination);
        if fragment == 0 {
            return self.transport(header[9], ends, body, (1, wire));
        }
        let id = number(&header[4..6]) as u32;
        let place = ((fragment & 0x1fff) * 8, fragment & 0x2000 != 0);
        self.fragment((source, destination, header[9], id), place, body, wire)
    }

    fn ipv6(&mut self, packet: &[u8], wire: u64) -> Option<()> {
        let header = packet.get(..40)?;
        let body = packet.get(40..40 + number(&header[4..6]))?;
        let source = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?).into();
        let destination = Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?).into();
        if header[6] != 44 {
            return self.transport(header[6], (source, destination), body, (1, wire));
        }
        let extension = body.get(..8)?;
        let id = number(&extension[4..8]) as u32;
        let place = (number(&extension[2..4]) & !7, extension[3] & 1 != 0);
        let key = (source, destination, extension[0], id);
        self.fragment(key, place, body.get(8..)?, wire)
    }

    fn fragment(
        &mut self,
        key: (IpAddr, IpAddr, u8, u32),
        (offset, more): (usize, bool),
        body: &[u8],
        wire: u64,
    ) -> Option<()> {
        self.fragments += 1;
        let pieces = self.pieces.entry(key).or_default();
        pieces.packets += 1;
        pieces.wire_bytes += wire;
        pieces.parts.insert(offset, body.to_vec());
        if !more {
            pieces.end = Some(offset + body.len());
        }
        let have: usize = pieces.parts.values().map(Vec::len).sum();
        if pieces.end != Some(have) {
            return None;
        }
        let pieces = self.pieces.remove(&key)?;
        let whole: Vec<u8> = pieces.parts.into_values().flatten().collect();
        let counts = (pieces.packets, pieces.wire_bytes);
        self.transport(key.2, (key.0, key.1), &whole, counts)
    }

    fn transport(
        &mut self,
        protocol: u8,
        ends: (IpAddr, IpAddr),
        body: &[u8],
        counts: (u64, u64),
    ) -> Option<()> {
        match protocol {
            4 | 41 => self.ip(body, counts.1),
            47 => {
                let at = if body.first()? & 0x20 != 0 { 8 } else { 4 };
                self.ip(body.get(at..)?, counts.1)
            }
            17 => match number(body.get(2..4)?) {
                4789 | 6081 => self.ethernet(body.get(16..)?, counts.1),
                2152 => self.ip(body.get(16..)?, counts.1),
                _ => {
                    let length = number(body.get(4..6)?);
                    assert_eq!(length, body.len());
                    let found = self.direction(17, ends, body, counts)?;
                    found.segments.push((0, body[8..].to_vec()));
                    Some(())
                }
            },
            6 => {
                let header = usize::from(body.get(12)? >> 4) * 4;
                let payload = body.get(header..)?;
                let (seq, flags) = (number(&body[4..8]) as u32, body[13]);
                let found = self.direction(6, ends, body, counts)?;
                if flags & 2 != 0 {
                    found.syn = Some(seq);
                }
                found.fin |= flags & 1 != 0;
                found.rst |= flags & 4 != 0;
                if !payload.is_empty() {
                    found.segments.push((seq, payload.to_vec()));
                }
                Some(())
            }
            _ => None,
        }
    }

    /// The direction of a segment whose checksum is right.
    fn direction(
        &mut self,
        protocol: u8,
        (source, destination): (IpAddr, IpAddr),
        body: &[u8],
        (packets, wire_bytes): (u64, u64),
    ) -> Option<&mut Found> {
        let octets = |address| match address {
            IpAddr::V4(address) => Ipv4Addr::octets(&address).to_vec(),
            IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
        };
        let rest = [0, protocol, (body.len() >> 8) as u8, body.len() as u8];
        let (from, to) = (octets(source), octets(destination));
        if checksum(&[&from, &to, &rest, body]) != 0 {
            return None;
        }
        let ports = (number(&body[..2]) as u16, number(&body[2..4]) as u16);
        let key = (protocol, source, ports.0, destination, ports.1);
        let found = self.found.entry(key).or_default();
        found.packets += packets;
        found.wire_bytes += wire_bytes;
        Some(found)
    }
}
