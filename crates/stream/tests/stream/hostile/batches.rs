//! Results do not depend on how the input is cut into batches, where no bound is hit.

use std::collections::BTreeMap;

use flowgauge_capture::PacketSource;
use flowgauge_flow::{FlowConfig, FlowRecord};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkInfo, Cutoff, DataChunk, Engine, EngineConfig, Events,
    HostPolicies, Mode, StreamErrors, StreamRef, StreamStatistics,
};
use flowgauge_stream::{
    ChecksumPolicy, Chunk, Handler, Shard, ShardConfig, Stream, StreamIdentity, StreamStatus,
};
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor};

use super::Random;
use super::traffic::Traffic;

const SIZES: [usize; 4] = [1, 7, 64, 256];

/// A chunk: what it says of itself, its bytes, its packets.
type Piece = (ChunkInfo, String, Vec<(Nanos, usize)>);

/// What was seen of a stream of an application.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    pieces: Vec<Piece>,
    end: Option<(StreamStatus, StreamStatistics, StreamErrors, u64)>,
}

type Key = (u8, StreamIdentity, u32);

/// Collects by stream: those of one identity, which are one after the other, by their number.
#[derive(Default)]
struct Collect {
    streams: BTreeMap<String, Seen>,
    names: BTreeMap<(u8, u64), String>,
    numbers: BTreeMap<String, u32>,
}

fn name((application, identity, number): &Key) -> String {
    let StreamIdentity {
        start,
        source,
        destination,
        protocol,
        ..
    } = identity;
    format!("{application} {source:?} {destination:?} {protocol} {start:?} #{number}")
}

/// Length and a sum.
fn summary(bytes: &[u8]) -> String {
    let add = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add(u32::from(*byte));
    format!("{}:{:x}", bytes.len(), bytes.iter().fold(0, add))
}

impl Events for Collect {
    fn created(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        let key = (of.0, stream.identity(), 0);
        let number = self.numbers.entry(name(&key)).or_default();
        *number += 1;
        let name = name(&(key.0, key.1, *number));
        self.streams.insert(name.clone(), Seen::default());
        self.names.insert((of.0, stream.uid()), name);
    }

    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let seen = (self.streams)
            .get_mut(&self.names[&(of.0, stream.uid())])
            .unwrap();
        let packets = chunk.packets();
        let packets = packets.map(|packet| (packet.time, packet.payload.len()));
        seen.pieces
            .push((chunk.info(), summary(chunk.bytes()), packets.collect()));
    }

    fn terminated(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        let name = self.names.remove(&(of.0, stream.uid())).unwrap();
        let seen = self.streams.get_mut(&name).unwrap();
        seen.end = Some((
            stream.status(),
            stream.statistics(),
            stream.errors(),
            stream.missing_at_end(),
        ));
    }
}

/// Packets in one piece of memory.
struct Trace {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
}

impl Trace {
    fn generated(preset: Preset) -> Trace {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(3000), &mut file).unwrap();
        let file = std::io::Cursor::new(file);
        let mut source = flowgauge_capture::open_reader(file, "trace").unwrap();
        let mut trace = Trace {
            memory: Vec::new(),
            packets: Vec::new(),
        };
        while let Some(batch) = source.next_batch().unwrap() {
            for (at, packet) in batch.packets.iter().enumerate() {
                let offset = trace.memory.len() as u32;
                trace.memory.extend_from_slice(batch.bytes(at));
                trace.packets.push(PacketDescriptor { offset, ..*packet });
            }
        }
        trace
    }

    fn hostile(seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let mut traffic = Traffic::new(&mut random);
        for _ in 0..800 {
            traffic.step(&mut random);
        }
        Trace {
            memory: traffic.memory,
            packets: traffic.packets,
        }
    }

    fn in_batches(&self, size: usize, mut process: impl FnMut(&Batch<'_>)) {
        for packets in self.packets.chunks(size) {
            process(&Batch::new(&self.memory, packets));
        }
    }
}

fn shard(policy: OverlapPolicy) -> ShardConfig {
    ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        overlap_policy: policy,
        flow: FlowConfig {
            tcp_idle: Nanos::from_secs(10),
            linger: Nanos::from_secs(1),
            ..FlowConfig::default()
        },
        ..ShardConfig::default()
    }
}

/// Flow records, and what a handler of streams sees.
#[derive(Default)]
struct Records {
    lines: BTreeMap<String, u32>,
    texts: BTreeMap<u32, String>,
}

impl Handler for Records {
    const STREAMS: bool = true;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let text = self.texts.entry(stream.id).or_default();
        let Chunk {
            time,
            offset,
            gap_before,
            bytes,
            captured,
            skipped,
        } = chunk;
        assert_eq!(*skipped, 0);
        let bytes = summary(bytes);
        text.push_str(&format!(
            " [{} {} {offset} {gap_before} {bytes}]",
            time.0, captured.0
        ));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let text = self.texts.remove(&stream.id).unwrap_or_default();
        let (identity, status) = (stream.identity(), stream.status);
        let line = format!("{identity:?} {status:?} {trailing_gap}{text}");
        *self.lines.entry(line).or_default() += 1;
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        *self.lines.entry(format!("{record:?}")).or_default() += 1;
    }
}

fn records(trace: &Trace, size: usize) -> (BTreeMap<String, u32>, Ledger) {
    let mut shard = Shard::new(shard(OverlapPolicy::First));
    let mut records = Records::default();
    trace.in_batches(size, |batch| shard.process(batch, &mut records));
    shard.finish(&mut records);
    (records.lines, shard.ledger().clone())
}

/// Applications as `seed` has it.
fn applications(seed: u64) -> (EngineConfig, Vec<ApplicationConfig>) {
    let mut random = Random::new(seed ^ 0x5eed);
    let policy = random.of(OverlapPolicy::ALL);
    let config = EngineConfig {
        shard: shard(policy),
        base_threshold: 1.0,
        need_packets: random.once_in(3),
        policies: HostPolicies::new(policy),
        ..EngineConfig::default()
    };
    let count = random.of(&[1, 1, 2, 3]);
    let applications = (0..count).map(|_| {
        let mut application = ApplicationConfig {
            mode: random.of(&[Mode::Wait, Mode::Fast, Mode::Strict]),
            chunk_bytes: random.of(&[0, 64, 1024, 16_384]),
            overlap_bytes: random.of(&[0, 0, 40]),
            flush_timeout: random.of(&[None, Some(Nanos::from_millis(20))]),
            ..ApplicationConfig::default()
        };
        application.cutoff.default = Cutoff(random.of(&[u64::MAX, u64::MAX, 0, 700, 5000]));
        application
    });
    let applications = applications.collect();
    (config, applications)
}

fn streams(trace: &Trace, seed: u64, size: usize) -> (BTreeMap<String, Seen>, Ledger) {
    let (config, applications) = applications(seed);
    let mut engine = Engine::new(config);
    for application in applications {
        engine.add(application).unwrap();
    }
    let mut collect = Collect::default();
    trace.in_batches(size, |batch| {
        engine.process(batch, &mut collect as &mut dyn Events)
    });
    engine.finish(&mut collect as &mut dyn Events);
    (collect.streams, engine.ledger().clone())
}

/// Asserts that all sizes of batches give what the first does.
fn compare<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    what: &str,
    run: impl Fn(usize) -> (BTreeMap<K, V>, Ledger),
) {
    let (one, one_ledger) = run(SIZES[0]);
    assert!(!one.is_empty(), "{what}");
    for size in &SIZES[1..] {
        let (other, ledger) = run(*size);
        for (key, seen) in &one {
            assert_eq!(
                Some(seen),
                other.get(key),
                "{what}, batches of {size}: {key:?}"
            );
        }
        assert_eq!(one.len(), other.len(), "{what}, batches of {size}");
        assert_eq!(one_ledger, ledger, "{what}, batches of {size}");
    }
}

#[test]
fn hostile_traffic_gives_the_same_in_batches_of_any_size() {
    let seeds = super::number("FLOWGAUGE_BATCHES").unwrap_or(100);
    let from = super::number("FLOWGAUGE_BATCHES_FROM").unwrap_or(0);
    for seed in from..from + seeds {
        let trace = Trace::hostile(seed);
        compare(&format!("records, seed {seed}"), |size| {
            records(&trace, size)
        });
        compare(&format!("streams, seed {seed}"), |size| {
            streams(&trace, seed, size)
        });
    }
}

#[test]
fn generated_traces_give_the_same_in_batches_of_any_size() {
    for preset in [
        Preset::Hostile,
        Preset::Zoo,
        Preset::Mix,
        Preset::Late,
        Preset::Loss,
        Preset::Small,
    ] {
        let trace = Trace::generated(preset);
        assert!(trace.packets.len() > 100);
        compare(&format!("records of {preset:?}"), |size| {
            records(&trace, size)
        });
        for seed in 0..6 {
            compare(&format!("streams of {preset:?}, {seed}"), |size| {
                streams(&trace, seed, size)
            });
        }
    }
}
