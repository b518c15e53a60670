//! Streams within stacks against the truth that the trace generator tells.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Mutex;

use crate::support;
use crate::support::Run;
use flowgauge_generate::{Config, Detail, Preset, generate};
use flowgauge_registry::registry;
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, Registry, StreamEnd,
};
use flowgauge_wire::{Address, Nanos};
use sha2::{Digest, Sha256};

static INFO: ComponentInfo = ComponentInfo {
    name: "collect",
    input: Input::Of(&[ItemType::Chunk]),
    is_end: true,
    parallel: Parallel::Never("the test reads it"),
    effects: |_| true,
    make: |_| Ok(Box::new(Collect)),
    ..ComponentInfo::OF_PACKETS
};

/// By endpoints: what came.
type Found = HashMap<(IpAddr, u16, IpAddr, u16), Stream>;

static FOUND: Mutex<Option<Found>> = Mutex::new(None);

#[derive(Default)]
struct Stream {
    hash: Sha256,
    bytes: u64,
    missing: u64,
    ends: Vec<StreamEnd>,
    from_initiator: bool,
    keys: Vec<u32>,
    sizes: Vec<usize>,
    retransmitted: u64,
    handshake: Option<Nanos>,
}

struct Collect;

impl Component for Collect {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Chunks(chunks) = items else {
            panic!("only chunks come");
        };
        let mut found = FOUND.lock().expect("one test at a time");
        let found = found.get_or_insert_default();
        for chunk in *chunks {
            let info = chunk.stream;
            let ip = |address: Address| address.to_ip(info.version);
            let stream = found
                .entry((
                    ip(info.source.0),
                    info.source.1,
                    ip(info.destination.0),
                    info.destination.1,
                ))
                .or_default();
            assert_eq!(
                chunk.offset,
                stream.bytes
                    + stream.missing
                    + if chunk.end.is_some() {
                        0
                    } else {
                        chunk.gap_before
                    }
            );
            stream.hash.update(chunk.bytes);
            stream.bytes += chunk.bytes.len() as u64;
            stream.missing += chunk.gap_before;
            stream.ends.extend(chunk.end);
            stream.sizes.push(chunk.bytes.len());
            stream.from_initiator = info.from_initiator;
            stream.retransmitted = info.retransmitted;
            stream.handshake = info.syn.zip(info.established).map(|(syn, done)| done - syn);
            if !stream.keys.contains(&chunk.key) {
                stream.keys.push(chunk.key);
            }
        }
    }
}

/// Only one test at a time collects.
static TURN: Mutex<()> = Mutex::new(());

fn run(text: &str, trace: &[u8]) -> Found {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let registry = Registry::new(registry().iter().chain([&INFO]));
    Run::with(text, &registry).trace(trace);
    FOUND
        .lock()
        .expect("one test at a time")
        .take()
        .unwrap_or_default()
}

#[test]
fn every_byte_of_every_direction_is_given_in_order() {
    for (preset, scale) in [
        (Preset::Mix, 0.01),
        (Preset::Late, 0.01),
        (Preset::Loss, 0.02),
        (Preset::Small, 0.002),
        (Preset::Web, 0.01),
    ] {
        let mut config = Config::new(preset).scaled(scale);
        config.detail = Detail::Full;
        let mut trace = Vec::new();
        let truth = generate(&config, &mut trace).expect("memory");
        let mut expected = BTreeMap::new();
        for stream in truth.streams.iter().filter(|stream| stream.proto == "tcp") {
            expected.insert(
                (
                    stream.src_ip,
                    stream.src_port,
                    stream.dst_ip,
                    stream.dst_port,
                ),
                stream,
            );
        }
        for text in [
            "[stack] tcpscan tcpcnxdemux { timeout = 1h } < tcpreseq collect >",
            "[stack] tcpscan tcpcnxdemux { timeout = 1h } < tcpdirdemux < tcpreseq collect > >",
        ] {
            let found = run(text, &trace);
            let mut compared = 0;
            for (key, truth) in &expected {
                let what = format!("{preset:?} {key:?}");
                let Some(stream) = found.get(key) else {
                    assert_eq!(truth.bytes - truth.missing_bytes, 0, "{what}");
                    continue;
                };
                compared += 1;
                assert_eq!(stream.bytes, truth.bytes - truth.missing_bytes, "{what}");
                let hash: [u8; 32] = stream.hash.clone().finalize().into();
                assert_eq!(hash, truth.captured_sha256, "{what}");
                assert_eq!(stream.ends.len(), 1, "{what}: {:?}", stream.ends);
                assert_eq!(stream.keys.len(), 1, "{what}: {:?}", stream.keys);
                if truth.syn {
                    assert_eq!(stream.from_initiator, truth.initiator, "{what}");
                }
                if preset == Preset::Mix && truth.fin && truth.missing_bytes == 0 {
                    assert_eq!(stream.ends, [StreamEnd::Fin], "{what}");
                }
            }
            assert!(compared > 50, "{preset:?}: {compared}");
            assert!(found.keys().all(|key| expected.contains_key(key)));
            let missing: u64 = found.values().map(|stream| stream.missing).sum();
            assert_eq!(missing, truth.totals.tcp_missing_bytes, "{preset:?}");
            if preset == Preset::Late {
                assert!(found.values().any(|stream| stream.retransmitted > 0));
            }
            assert!(
                found
                    .values()
                    .any(|stream| stream.handshake > Some(Nanos(0)))
            );
        }
    }
}

#[test]
fn chunks_have_their_size_and_the_bytes_are_the_same() {
    let mut config = Config::new(Preset::Loss).scaled(0.01);
    config.detail = Detail::Full;
    let mut trace = Vec::new();
    generate(&config, &mut trace).expect("memory");
    let before = "[stack] tcpscan tcpcnxdemux { timeout = 1h } < tcpreseq";
    let whole = run(&format!("{before} collect >"), &trace);
    for (chunks, most) in [
        ("chunks { 1k }", 1 << 10),
        ("chunks { 5 }", 5),
        ("chunks { 64k, flush = 10ms }", 64 << 10),
        ("chunks { 64k, memory = 100k }", 64 << 10),
    ] {
        for (open, close) in [("", ""), ("tcpdirdemux < ", " >")] {
            let text = format!(
                "[stack] tcpscan tcpcnxdemux {{ timeout = 1h }} < {open}tcpreseq {chunks} collect {close}>"
            );
            let found = run(&text, &trace);
            assert_eq!(found.len(), whole.len(), "{text}");
            for (key, stream) in &found {
                let expected = &whole[key];
                assert_eq!(stream.bytes, expected.bytes, "{text}");
                assert_eq!(stream.missing, expected.missing, "{text}");
                assert_eq!(stream.ends, expected.ends, "{text}");
                let hash = |it: &Stream| it.hash.clone().finalize();
                assert_eq!(hash(stream), hash(expected), "{text}");
                assert!(stream.sizes.iter().all(|size| *size <= most), "{text}");
                if chunks == "chunks { 1k }" && stream.missing == 0 {
                    let full = stream.sizes.iter().filter(|size| **size == most).count();
                    assert_eq!(full as u64, stream.bytes / 1024, "{text}");
                }
            }
        }
    }
    assert!(whole.values().any(|stream| stream.missing > 0));
}

#[test]
fn records_of_few_streams_do_not_wait_for_more() {
    let packet = |port| support::ipv4(17, 1, 0, false, &support::udp(port, 99, b"hello"));
    let mut run = Run::new("[stack] streams { checksums = ignore } count");
    run.packets(&[packet(40_000)], 1);
    assert_eq!(run.result("streams"), 0);
    // The flow is over after a minute, and the input goes on.
    run.packets(&vec![packet(40_001); 70], 1);
    assert!(run.result("streams") > 0);
    assert_eq!(run.result("count"), run.result("streams"));
}

/// A direction in which no packet came has no key: an end of it would be that of the key's next owner.
#[test]
fn a_direction_without_packets_has_no_end() {
    let chunks = |inside: &str, packets: &[Vec<u8>]| {
        let text = format!("[stack] tcpscan tcpcnxdemux < {inside} >");
        let mut run = Run::new(&text);
        run.packets(packets, 1);
        run.finish();
        run.result("count")
    };
    let forth = support::ipv4(6, 1, 0, false, &support::tcp(40_000, 80));
    let back = support::ipv4(6, 1, 0, false, &support::tcp(80, 40_000));
    let back = support::answer(back);
    for (packets, by_direction, by_connection) in
        [(&[forth.clone()][..], 1, 2), (&[forth, back], 2, 2)]
    {
        let inside = "tcpdirdemux < tcpreseq { checksums = ignore } count >";
        assert_eq!(chunks(inside, packets), by_direction);
        let inside = "tcpreseq { checksums = ignore } count";
        assert_eq!(chunks(inside, packets), by_connection);
    }
}
