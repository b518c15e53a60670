//! An hour of trace time of hostile traffic (floods of SYNs and of holes, tiny segments, overlap storms,
//! damaged headers) through the engine, for three applications with a little memory: it is never above
//! the budget and stays where it was after ten minutes, every packet is in the ledger, and all memory
//! comes back. The same for whole programs: `tests/soak.rs`.

use std::time::Duration;

use flowgauge_capture::PacketSource;
use flowgauge_flow::FlowConfig;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_stream::ShardConfig;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Counts, DataChunk, Engine, EngineConfig, Events, Mode,
    Priorities, StreamRef,
};
use flowgauge_wire::{Nanos, Place};

const HOUR: u64 = 3600;
const MEMORY: u64 = 1 << 20;
const FLOWS: u32 = 2000;

/// Reads everything and keeps nothing.
#[derive(Default)]
struct Read {
    created: u64,
    terminated: u64,
    packets: u64,
}

impl Events for Read {
    fn created(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.created += 1;
    }

    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.packets += chunk.packets().len() as u64;
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let statistics = stream.statistics();
        let lost = statistics.dropped + statistics.discarded;
        assert!(lost.bytes <= statistics.all.bytes && lost.packets <= statistics.all.packets);
        self.terminated += 1;
    }
}

/// A packet every six milliseconds, for an hour.
fn hour() -> Vec<u8> {
    let mut config = Config::new(Preset::Hostile).with_packets(400_000);
    config.duration = Duration::from_secs(HOUR);
    let mut capture = Vec::new();
    generate(&config, &mut capture).unwrap();
    capture
}

fn engine(need_packets: bool) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        shard: ShardConfig {
            flow: FlowConfig {
                max_flows: FLOWS,
                ..FlowConfig::default()
            },
            ..ShardConfig::default()
        },
        memory_bytes: MEMORY,
        base_threshold: 0.5,
        overload_cutoff: Some(100_000),
        need_packets,
        ..EngineConfig::default()
    });
    for (mode, priority) in [(Mode::Wait, 0), (Mode::Fast, 1), (Mode::Strict, 2)] {
        let application = ApplicationConfig {
            mode,
            priority: Priorities {
                default: priority,
                classes: Vec::new(),
            },
            ..ApplicationConfig::default()
        };
        engine.add(application).unwrap();
    }
    engine
}

fn soak(capture: &[u8], need_packets: bool) {
    let mut engine = engine(need_packets);
    let reader = std::io::Cursor::new(capture.to_vec());
    let mut source = flowgauge_capture::open_reader(reader, "hour").unwrap();
    let mut read = Read::default();
    let (mut first, mut last) = (None, Nanos::ZERO);
    let (mut received, mut after_ten_minutes) = (0, None);
    while let Some(batch) = source.next_batch().unwrap() {
        received += batch.packets.len() as u64;
        engine.process(&batch, &mut read as &mut dyn Events);
        let Some(packet) = batch.packets.last() else {
            continue;
        };
        let begin = *first.get_or_insert(packet.time);
        last = last.max(packet.time);
        let table = engine.shard().tracker().memory_bytes();
        if last - begin > Nanos::from_secs(HOUR / 6) {
            let before = *after_ten_minutes.get_or_insert(table);
            // (How many flows end and begin in one batch is chance: a few places more.)
            assert!(
                table <= before + before / 100,
                "{table} bytes for flows, {before} after ten minutes"
            );
        }
        assert!(engine.budget().used() <= MEMORY);
        assert!(engine.shard().tracker().len() <= FLOWS as usize);
    }
    assert!(last - first.unwrap() >= Nanos::from_secs(HOUR - 60));
    engine.finish(&mut read as &mut dyn Events);

    let (ledger, statistics) = (engine.ledger(), engine.statistics());
    assert!(ledger.is_balanced());
    assert_eq!(ledger.received(), received);
    assert!(received > 350_000);
    let at = |places: &[Place]| places.iter().map(|&place| ledger.at(place)).sum::<u64>();
    let dropped = at(&[Place::Priority, Place::Memory]);
    assert_eq!(statistics.dropped.packets, dropped);
    // (Of damaged packets only datagrams, and those that only claim to have data, are in an account.)
    let all = ledger.discarded();
    let discarded = all - at(&[Place::Malformed])..=all;
    assert!(discarded.contains(&statistics.discarded.packets));
    assert_ne!(statistics.all, Counts::default());
    assert_eq!(statistics.created, statistics.terminated);
    assert_eq!(read.created, read.terminated);
    assert_eq!(read.packets > 0, need_packets);
    // It was at its limits.
    assert!(
        statistics.memory_high > MEMORY / 2 && statistics.memory_high <= MEMORY,
        "{}",
        statistics.memory_high
    );
    assert!(statistics.shard.flow.evicted > 1000);
    assert_eq!(engine.budget().used(), 0, "all memory comes back");
}

#[test]
fn an_hour_of_hostile_traffic_stays_within_the_memory() {
    let capture = hour();
    soak(&capture, false);
    soak(&capture, true);
}
