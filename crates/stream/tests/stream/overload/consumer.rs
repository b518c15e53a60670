//! A consumer slower than its source, on the capture clock: it takes chunks as they come and gives
//! each back when it would have read it, so many bytes per second. What it holds stays charged to the
//! engine's memory: that is the overload. Nothing depends on the machine's speed.

use std::collections::{HashMap, VecDeque};

use flowgauge_capture::PacketSource;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Counts, Cutoff, Cutoffs, DataChunk, Engine, EngineConfig,
    Events, FilterPacket, OwnedChunk, Priorities, StreamFilter, StreamRef,
};
use flowgauge_wire::Nanos;

/// A stream, whatever engine shows it: its flow and whether the initiator sends.
pub(crate) type Name = (u64, bool);

/// What became of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) high: bool,
    pub(crate) all: Counts,
    pub(crate) dropped: Counts,
    pub(crate) discarded: Counts,
    /// Bytes that reached the consumer.
    pub(crate) delivered: u64,
    /// Those of its first [`HEAD`].
    pub(crate) head: u64,
    /// Those of chunks for which there was no memory.
    pub(crate) lost: u64,
}

/// Bytes at the beginning of a stream that an overload cutoff is to save.
pub(crate) const HEAD: u64 = 10 << 10;

/// How a run is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// What the consumer reads, in bytes per second of the capture; `None`: everything at once.
    pub(crate) bytes_per_second: Option<u64>,
    /// Memory of the engine.
    pub(crate) memory: u64,
    /// One of so many connections (by its flow's number) has priority 1.
    pub(crate) high_every: Option<u64>,
    pub(crate) overload_cutoff: Option<u64>,
    pub(crate) cutoff: Cutoff,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) fates: HashMap<Name, Fate>,
    /// First and last packet.
    pub(crate) span: (Nanos, Nanos),
    pub(crate) memory_high: u64,
    /// When how many bytes of high priority reached the consumer.
    pub(crate) high: Vec<(Nanos, u64)>,
}

impl Outcome {
    /// Sums over the streams of one priority.
    pub(crate) fn totals(&self, high: bool) -> (Counts, Counts) {
        let mut sums = (Counts::default(), Counts::default());
        for fate in self.fates.values().filter(|fate| fate.high == high) {
            sums.0.packets += fate.all.packets;
            sums.0.bytes += fate.all.bytes;
            sums.1.packets += fate.dropped.packets;
            sums.1.bytes += fate.dropped.bytes;
        }
        sums
    }
}

struct Consumer {
    setup: Setup,
    now: Nanos,
    /// When it has read all that it holds.
    free_at: f64,
    held: VecDeque<(f64, OwnedChunk)>,
    fates: HashMap<Name, Fate>,
    high: Vec<(Nanos, u64)>,
}

impl Consumer {
    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let now = self.now.0 as f64;
        while self.held.front().is_some_and(|(done, _)| *done <= now) {
            self.held.pop_front();
        }
    }
}

fn name(stream: &StreamRef<'_>) -> Name {
    (stream.identity().flow_id, stream.from_initiator())
}

impl Events for Consumer {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.fates.entry(name(stream)).or_default().high = stream.priority() != 0;
    }

    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let bytes = chunk.new_bytes().len() as u64;
        let offset = chunk.offset() + u64::from(chunk.info().repeated);
        if let Some(rate) = self.setup.bytes_per_second {
            let Ok(owned) = chunk.take() else {
                self.fates.entry(name(stream)).or_default().lost += bytes;
                return;
            };
            let begin = self.free_at.max(self.now.0 as f64);
            self.free_at = begin + bytes as f64 * 1e9 / rate as f64;
            self.held.push_back((self.free_at, owned));
        }
        let fate = self.fates.entry(name(stream)).or_default();
        if fate.high {
            self.high.push((chunk.info().time, bytes));
        }
        fate.delivered += bytes;
        fate.head += (offset + bytes).min(HEAD).saturating_sub(offset.min(HEAD));
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let statistics = stream.statistics();
        let fate = self.fates.entry(name(stream)).or_default();
        fate.all = statistics.all;
        fate.dropped = statistics.dropped;
        fate.discarded = statistics.discarded;
    }
}

/// High priority for one connection of so many, by when it began: both directions alike.
fn high_by_start(every: u64) -> Vec<(StreamFilter, u8)> {
    let is_high =
        move |packet: &FilterPacket<'_>| (packet.decoded.time.0 / 1000).is_multiple_of(every);
    vec![(StreamFilter::new(is_high), 1)]
}

/// Sends a capture through an engine to such a consumer.
pub(crate) fn run(source: &mut dyn PacketSource, setup: Setup) -> Outcome {
    let mut engine = Engine::new(EngineConfig {
        memory_bytes: setup.memory,
        overload_cutoff: setup.overload_cutoff,
        ..EngineConfig::default()
    });
    engine
        .add(ApplicationConfig {
            cutoff: Cutoffs {
                default: setup.cutoff,
                ..Cutoffs::default()
            },
            priority: Priorities {
                default: 0,
                classes: setup.high_every.map_or_else(Vec::new, high_by_start),
            },
            ..ApplicationConfig::default()
        })
        .expect("an engine has room for one application");
    let mut consumer = Consumer {
        setup,
        now: Nanos::ZERO,
        free_at: 0.0,
        held: VecDeque::new(),
        fates: HashMap::new(),
        high: Vec::new(),
    };
    let mut span = (Nanos::MAX, Nanos::ZERO);
    while let Some(batch) = source.next_batch().expect("the capture can be read") {
        if let Some(first) = batch.packets.first() {
            span = (span.0.min(first.time), span.1.max(first.time));
            consumer.advance(first.time);
        }
        engine.process(&batch, &mut consumer as &mut dyn Events);
        assert!(engine.budget().used() <= engine.budget().limit());
        assert!(engine.ledger().is_balanced());
    }
    engine.finish(&mut consumer as &mut dyn Events);
    assert!(engine.ledger().is_balanced());
    let memory_high = engine.budget().high();
    Outcome {
        fates: consumer.fates,
        span,
        memory_high,
        high: consumer.high,
    }
}

/// The share of streams with data whose first 10 KB stay whole when every packet of 1,448 bytes is
/// lost with the same probability.
pub(crate) fn random_loss(whole: &Outcome, loss: f64) -> f64 {
    let kept: Vec<f64> = whole
        .fates
        .values()
        .filter(|fate| fate.head > 0)
        .map(|fate| (1.0 - loss).powf((fate.head as f64 / 1448.0).ceil()))
        .collect();
    kept.iter().sum::<f64>() / kept.len() as f64
}
