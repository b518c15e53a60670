//! The set of results does not depend on the number of shards.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::thread;

use crate::corpora::corpora;
use flowgauge_capture::{Error, Interface, PacketSource, open};
use flowgauge_flow::FlowRecord;
use flowgauge_record::{Encoder, FlowRow, Format};
use flowgauge_runtime::capture::Source;
use flowgauge_runtime::divide;
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, DecodeOptions, Ledger, Place};
use sha2::{Digest, Sha256};

/// Records as text, with how often each came.
type Records = BTreeMap<String, u32>;

/// Everything a shard finds.
#[derive(Default)]
struct Everything {
    records: Records,
    hashes: Vec<Option<Sha256>>,
    line: Vec<u8>,
}

impl Handler for Everything {
    const STREAMS: bool = true;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let at = stream.id as usize;
        if self.hashes.len() <= at {
            self.hashes.resize(at + 1, None);
        }
        self.hashes[at] = Some(Sha256::new());
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let hash = self.hashes[stream.id as usize].as_mut().unwrap();
        if chunk.gap_before != 0 {
            hash.update(format!("[{} missing]", chunk.gap_before));
        }
        hash.update(chunk.bytes);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let hash = self.hashes[stream.id as usize].take().unwrap();
        let line = format!(
            "{:?} {} bytes, {} missing, {} gaps, {trailing_gap} trailing, {} {:x?}",
            stream.identity(),
            stream.bytes,
            stream.missing_bytes,
            stream.gaps,
            stream.status.name(),
            hash.finalize()
        );
        *self.records.entry(line).or_default() += 1;
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.line.clear();
        Encoder::new(Format::Json).encode(&FlowRow::new(record, 0), &mut self.line);
        let line = String::from_utf8(self.line.clone()).unwrap();
        *self.records.entry(line).or_default() += 1;
    }
}

fn config(led: bool) -> ShardConfig {
    let mut config = ShardConfig::default();
    config.flow.led_clock = led;
    config
}

fn drive(source: &mut impl PacketSource, led: bool) -> (Records, Ledger) {
    let mut shard = Shard::new(config(led));
    let mut found = Everything::default();
    loop {
        match source.next_batch() {
            Ok(Some(batch)) => shard.process(&batch, &mut found),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    shard.finish(&mut found);
    let mut ledger = source.ledger();
    assert_eq!(ledger.received(), shard.ledger().received());
    for &place in Place::ALL {
        let packets = shard.ledger().at(place);
        ledger.refuse(place, packets, 0);
    }
    (found.records, ledger)
}

/// What one shard finds in a capture; `None` where it is none.
fn alone(path: &Path) -> Option<(Records, Ledger)> {
    let mut source = open(path).ok()?;
    Some(drive(&mut source, false))
}

/// A source whose next packets may be a while in coming, as those of a pipe are.
struct Awaited<S>(S);

impl<S: PacketSource> PacketSource for Awaited<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        self.0.next_batch()
    }

    fn interfaces(&self) -> &[Interface] {
        self.0.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        self.0.ledger()
    }
}

fn together(path: &Path, shards: usize, is_awaited: bool) -> (Records, Ledger) {
    let source = open(path).unwrap();
    let source: Source = match is_awaited {
        true => Box::new(Awaited(source)),
        false => Box::new(source),
    };
    let sources = divide(source, shards, DecodeOptions::default());
    assert_eq!(sources.len(), shards);
    thread::scope(|scope| {
        let threads: Vec<_> = sources
            .into_iter()
            .map(|mut source| scope.spawn(move || drive(&mut source, true)))
            .collect();
        let (mut records, mut ledger) = (Records::new(), Ledger::default());
        for thread in threads {
            let (more, part) = thread.join().unwrap();
            for (line, count) in more {
                *records.entry(line).or_default() += count;
            }
            ledger.merge(&part);
        }
        assert!(ledger.is_balanced(), "{ledger:?}");
        (records, ledger)
    })
}

/// The first difference, in words.
fn difference(one: &Records, other: &Records) -> Option<String> {
    if one == other {
        return None;
    }
    let only = |these: &Records, those: &Records| {
        let mut lines = these
            .iter()
            .filter(|(line, count)| those.get(*line) != Some(count));
        lines
            .next()
            .map_or_else(String::new, |(line, _)| line.clone())
    };
    Some(format!(
        "only alone: {}\nonly together: {}",
        only(one, other),
        only(other, one)
    ))
}

fn is_capture(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    let known = [
        0xa1b2_c3d4,
        0xd4c3_b2a1,
        0xa1b2_3c4d,
        0x4d3c_b2a1,
        0x0a0d_0d0a_u32,
    ];
    read.is_ok() && known.contains(&u32::from_be_bytes(first))
}

fn captures(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            captures(&path, found);
        } else if is_capture(&path) {
            found.push(path);
        }
    }
}

#[test]
fn real_captures_have_the_same_flows_and_streams_on_any_number_of_shards() {
    let Some(folder) = corpora() else { return };
    let mut paths = Vec::new();
    captures(&folder, &mut paths);
    paths.sort();
    let (mut compared, mut different) = (0, Vec::new());
    for path in &paths {
        let Some((records, ledger)) = alone(path) else {
            continue;
        };
        compared += 1;
        for (shards, prompt) in [(2, false), (3, true), (8, false)] {
            let (others, other_ledger) = together(path, shards, prompt);
            if let Some(difference) = difference(&records, &others) {
                different.push(format!("{} on {shards}: {difference}", path.display()));
            } else if ledger != other_ledger {
                different.push(format!(
                    "{} on {shards}: {ledger:?} {other_ledger:?}",
                    path.display()
                ));
            }
        }
    }
    println!("{compared} captures, {} differences", different.len());
    for line in &different {
        println!("{line}");
    }
    assert!(compared > 500, "only {compared} captures");
    assert!(different.is_empty(), "{} differences", different.len());
}

pub(crate) fn ipv4(
    source: [u8; 4],
    destination: [u8; 4],
    id: u16,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, 17, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    packet
}

pub(crate) fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = [port.to_be_bytes(), port.to_be_bytes()].concat();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// A capture of IP packets without frames, with their times in seconds.
pub(crate) fn capture(packets: &[(u32, Vec<u8>)]) -> Vec<u8> {
    const RAW: u32 = 101;
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, RAW] {
        file.extend(u32::to_le_bytes(word));
    }
    for (seconds, packet) in packets {
        let len = packet.len() as u32;
        for word in [1_700_000_000 + seconds, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// Fragments of tunnels' datagrams whose rest never comes, or whose number is used again: whose flow they are
/// does not depend on the shards.
#[test]
fn incomplete_datagrams_of_tunnels_are_of_one_flow_on_any_number_of_shards() {
    let far = 0x2000 | 20; // a later fragment, not the last one
    let mut packets: Vec<(u32, Vec<u8>)> = Vec::new();
    for n in 0..20 {
        let outer = |id, fragment, payload: &[u8]| {
            ipv4([10, 1, 1, n + 1], [10, 0, 0, 9], id, fragment, payload)
        };
        let hosts = ([10, 7, 7, n + 1], [10, 9, 9, n * 3]);
        let inside = |id, payload: &[u8]| ipv4(hosts.0, hosts.1, id, 0, &udp(4000, payload));
        // GTP-U: version 1, user data, a length, a tunnel endpoint.
        let inner = inside(1, &[b'x'; 100]);
        let mut gtp = vec![0x30, 0xff, 0, inner.len() as u8, 0, 0, 0, 5];
        gtp.extend(inner);
        let tunnel = udp(2152, &gtp);
        let (first, rest) = tunnel.split_at(88);
        let id = |number: u16| number * 100 + u16::from(n);
        packets.extend([
            // What came first is forgotten when the first fragment comes.
            (0, outer(id(1), far, &[b'z'; 64])),
            (40, outer(id(1), 0x2000, first)),
            (40, inside(7, b"a packet of the flow inside")),
            // A complete one, and its number again without a first fragment.
            (0, outer(id(2), 0x2000, first)),
            (0, outer(id(2), 11, rest)),
            (1, outer(id(2), far, &[b'z'; 64])),
            (1, outer(id(3), far, &[b'z'; 64])),
            // Without its end, and that much later.
            (2, outer(id(4), 0x2000, first)),
            (50, outer(id(4), 11, rest)),
        ]);
    }
    packets.sort_by_key(|packet| packet.0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tunnels.pcap");
    std::fs::write(&path, capture(&packets)).unwrap();
    let (records, ledger) = alone(&path).unwrap();
    assert!(records.len() > 40, "{records:?}");
    for shards in [2, 3, 4, 8] {
        let (others, other_ledger) = together(&path, shards, false);
        assert_eq!(difference(&records, &others), None, "{shards} shards");
        assert_eq!(ledger, other_ledger, "{shards} shards");
    }
}
