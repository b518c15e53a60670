//! Streams in chunks, as several components have them: with cutoffs, priorities, modes and one memory budget.

pub(crate) use flowgauge_kit::chunks::*;
use flowgauge_stack::engine::{self, Chosen, Step};
use flowgauge_stack::{Account, SettingError, Settings};
use flowgauge_stream::engine::{Budget, DataChunk, Engine, EngineConfig, Events};
use flowgauge_stream::{Needs, ShardConfig, Shares};
use flowgauge_wire::Nanos;

/// The budget of all copies, for chunks, segments that wait and records of packets: what is there for
/// segments elsewhere.
pub(crate) fn budget(settings: &Settings, needs: Needs) -> Budget {
    Budget::new(match settings.size("memory") {
        Some(bytes) => Shares::new(bytes, 1, needs).segments,
        None => EngineConfig::default().memory_bytes,
    })
}

/// The engine of streams in chunks, with one application.
pub(crate) struct Chunked {
    engine: Engine,
    chosen: Chosen,
    /// Chunks time out.
    has_timeout: bool,
}

impl Chunked {
    /// What the options ask for, on top of `shard`. Memory comes out of `budget`.
    pub(crate) fn new(
        settings: &Settings,
        shard: ShardConfig,
        budget: &Budget,
        usual: Usual,
    ) -> Result<Chunked, SettingError> {
        let mut config = EngineConfig {
            shard,
            memory_bytes: budget.limit(),
            overload_cutoff: settings.size("overload_cutoff"),
            ..EngineConfig::default()
        };
        if let Some(share) = settings.number("base_threshold") {
            config.base_threshold = share;
        }
        if let Some(text) = settings.text("policy") {
            config.policies = policies(text)?;
            let policy = config.policies.default_policy();
            config.shard = config.shard.with_policy(policy);
        }
        // That of the stack, which sees all packets, also those that other cores have.
        config.shard.flow.led_clock = true;
        let application = application(settings, usual)?;
        let has_timeout = application.flush_timeout.is_some();
        let mut engine = Engine::with_budget(config, budget.clone());
        engine.add(application);
        Ok(Chunked {
            engine,
            chosen: Chosen::default(),
            has_timeout,
        })
    }

    pub(crate) fn clock(&self) -> Nanos {
        self.engine.shard().tracker().clock()
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            ledger: self.engine.ledger().clone(),
            streams: Some(self.engine.statistics()),
            ..engine::account(self.engine.shard())
        }
    }

    /// Takes a step. When the clock goes on within a tick of the flow table, only chunks time out.
    pub(crate) fn take<E: Events>(&mut self, step: &Step<'_, '_>, events: &mut E) {
        let engine = &mut self.engine;
        match *step {
            Step::Packets(packets) => engine.process(&self.chosen.of(packets), events),
            Step::Tick(now) => {
                let tracker = engine.shard().tracker();
                if tracker.clock() < now && (self.has_timeout || !tracker.is_in_tick(now)) {
                    engine.process(&engine::idle(now), events);
                }
            }
            Step::Finish => engine.finish(events),
        }
    }
}

/// The parts of a chunk without a hole, in order: each with its position in the stream and what is missing
/// right before it. What is missing at the end of the chunk comes before nothing.
pub(crate) fn for_each_run(chunk: &DataChunk<'_>, mut take: impl FnMut(u64, u64, &[u8])) {
    let info = chunk.info();
    let bytes = chunk.bytes();
    let (mut at, mut missing) = (info.repeated as usize, info.gap_before);
    for hole in chunk.holes() {
        let (start, end) = (hole.start as usize, hole.end as usize);
        if end <= at {
            continue;
        }
        if let Some(run) = bytes.get(at..start).filter(|run| !run.is_empty()) {
            take(info.offset + at as u64, missing, run);
            missing = 0;
        }
        missing += (end - start.max(at)) as u64;
        at = end;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    if !rest.is_empty() || missing > 0 {
        take(info.offset + at as u64, missing, rest);
    }
}
