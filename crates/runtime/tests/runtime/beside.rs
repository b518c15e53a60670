//! An engine whose events are handled beside it: it never waits, and what finds no memory is lost by priority, and counted.

use std::fs::File;
use std::sync::mpsc::{Receiver, channel};

use flowgauge_capture::{PacketSource, open};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_runtime::queue::Sender;
use flowgauge_runtime::{Beside, Chunk, Handlers, Lost, StreamHandle, stream_filter};
use flowgauge_stream::engine::{ApplicationConfig, Engine, EngineConfig, Priorities};

/// Bytes that were handled, of streams with priority 0 and 1, and streams that began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Handled {
    bytes: [u64; 2],
    created: u64,
    terminated: u64,
}

/// Takes nothing until it is let.
struct Blocked {
    gate: Option<Receiver<()>>,
    handled: Handled,
    results: Sender<Handled>,
}

impl Blocked {
    fn wait(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.recv().unwrap();
        }
    }
}

impl Handlers for Blocked {
    fn created(&mut self, _: &mut StreamHandle<'_>) {
        self.wait();
        self.handled.created += 1;
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        let priority = usize::from(stream.priority());
        self.handled.bytes[priority] += chunk.new_bytes().len() as u64;
    }

    fn terminated(&mut self, _: &mut StreamHandle<'_>) {
        self.handled.terminated += 1;
    }

    fn finish(&mut self) {
        self.results.send(self.handled).unwrap();
    }
}

/// With a memory of so many bytes: what was handled, what was lost, and what the engine captured of each priority.
fn run(memory_bytes: u64, is_blocked: bool) -> (Handled, Lost, Engine) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pcap");
    let config = Config::new(Preset::Mix).with_flows(400);
    generate(&config, File::create(&path).unwrap()).unwrap();
    let mut engine = Engine::new(EngineConfig {
        memory_bytes,
        ..EngineConfig::default()
    });
    let important = stream_filter("port 443").unwrap();
    engine.add(ApplicationConfig {
        priority: Priorities {
            classes: vec![(important, 1)],
            ..Priorities::default()
        },
        ..ApplicationConfig::default()
    });
    let (open_gate, gate) = channel();
    let budget = engine.budget().clone();
    let beside = Beside::start("test", &budget, |results| Blocked {
        gate: is_blocked.then_some(gate),
        handled: Handled::default(),
        results,
    });
    let mut beside = beside.unwrap();
    let mut handled = None;
    let mut source = open(&path).unwrap();
    // While nothing is handled all packets are taken.
    while let Some(batch) = source.next_batch().unwrap() {
        beside.process(&mut engine, &batch, |result| handled = Some(result));
    }
    assert_eq!(handled, None);
    let _ = open_gate.send(());
    let lost = beside.finish(&mut engine, |result| handled = Some(result));
    (handled.unwrap(), lost.unwrap(), engine)
}

#[test]
fn an_engine_never_waits_and_all_that_is_lost_is_counted() {
    let (all, nothing, engine) = run(1 << 30, false);
    assert_eq!(nothing, Lost::default());
    assert_eq!(
        all.bytes.iter().sum::<u64>(),
        engine.statistics().captured().bytes
    );
    assert!(all.bytes.iter().all(|&bytes| bytes > 100_000), "{all:?}");
    for memory in [4 << 20, 1 << 20] {
        let (handled, lost, engine) = run(memory, true);
        assert!(engine.ledger().is_balanced());
        let statistics = engine.statistics();
        let (captured, dropped) = (statistics.captured().bytes, statistics.dropped.bytes);
        let taken: u64 = handled.bytes.iter().sum();
        // (A chunk that could not be taken is lost, and dropped in the engine's terms, too. Copies of what was dropped are.)
        assert!(
            taken <= captured && captured <= taken + lost.bytes,
            "{memory}: {lost:?}"
        );
        assert!(captured + dropped >= all.bytes.iter().sum(), "{memory}");
        assert!(lost.bytes + dropped > 0);
        // Who began is told to have ended, and the others are counted.
        assert_eq!(handled.created, handled.terminated);
        assert_eq!(handled.created + lost.streams, all.created);
        let share = |priority: usize| handled.bytes[priority] as f64 / all.bytes[priority] as f64;
        assert!(share(1) > share(0), "{memory}: {handled:?} of {all:?}");
    }
}
