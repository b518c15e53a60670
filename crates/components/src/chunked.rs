//! Streams in chunks, as several components have them: with cutoffs, priorities, modes and one memory budget.
//!
//! Of files they are handled in the middle of the engine. A live source cannot wait: there a component's state goes to a thread of
//! its own ([`Beside`]), and what comes of it returns to the thread of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use flowgauge_kit::chunks::*;
use flowgauge_record::RecordStore;
use flowgauge_runtime::queue::Sender;
use flowgauge_runtime::{Beside, Chunk, Handlers, Lost, StreamHandle, ThreadFailure};
use flowgauge_stack::engine::{self, Chosen, Step};
use flowgauge_stack::{Account, Failure, Items, Outlet, RecordItem, SettingError, Settings};
use flowgauge_stream::engine::{
    ApplicationId, Budget, ChunkFlags, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::offload::Verdicts;
use flowgauge_stream::{Needs, ShardConfig, Shares};
use flowgauge_wire::{Batch, Nanos};
use parking_lot::Mutex;

/// The budget of all copies, for chunks, segments that wait and records of packets: what is there for
/// segments elsewhere.
pub(crate) fn budget(settings: &Settings, needs: Needs) -> Budget {
    Budget::new(match settings.size("memory") {
        Some(bytes) => Shares::new(bytes, 1, needs).segments,
        None => EngineConfig::default().memory_bytes,
    })
}

/// Bytes of memory that a connection takes while it lasts, beside those of its flow and of what the component keeps. Those of its
/// chunks are in the budget.
pub(crate) fn bytes_per_connection(settings: &Settings) -> u64 {
    let beside = Beside::<Gathered>::BYTES_PER_CONNECTION * u64::from(settings.is_live());
    EngineConfig::BYTES_PER_CONNECTION + beside
}

/// What a component does with streams in chunks, and with which state.
pub(crate) trait Handling: Send + 'static {
    fn created(&mut self, stream: &StreamHandle<'_>);
    /// `now` is to where the step at hand brings the clock.
    fn data(
        &mut self,
        stream: &StreamHandle<'_>,
        chunk: &Chunk<'_>,
        now: Nanos,
        out: &mut dyn Outlet,
    );
    fn terminated(&mut self, stream: &StreamHandle<'_>, now: Nanos, out: &mut dyn Outlet);
    /// Gives what waits to go on together with more.
    fn flush(&mut self, _out: &mut dyn Outlet) {}
}

/// The state of a component: its own, or shared with the thread that handles its chunks.
pub(crate) enum Held<T> {
    Own(T),
    Shared(Arc<Mutex<T>>),
}

impl<T> Held<T> {
    pub(crate) fn new(settings: &Settings, in_chunks: bool, state: T) -> Held<T> {
        match in_chunks && settings.is_live() {
            true => Held::Shared(Arc::new(Mutex::new(state))),
            false => Held::Own(state),
        }
    }

    #[inline]
    pub(crate) fn with<R>(&mut self, act: impl FnOnce(&mut T) -> R) -> R {
        match self {
            Held::Own(state) => act(state),
            Held::Shared(state) => act(&mut state.lock()),
        }
    }

    pub(crate) fn read<R>(&self, act: impl FnOnce(&T) -> R) -> R {
        match self {
            Held::Own(state) => act(state),
            Held::Shared(state) => act(&state.lock()),
        }
    }
}

/// The engine of streams in chunks, with one application.
pub(crate) struct Chunked {
    engine: Engine,
    chosen: Chosen,
    /// Chunks time out.
    has_timeout: bool,
    /// Where chunks are handled on another thread, once it runs.
    beside: Option<Beside<Gathered>>,
    /// What that thread goes by.
    clock: Arc<AtomicU64>,
    lost: Lost,
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
        if let Some(text) = settings.text("host_policy") {
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
            beside: None,
            clock: Arc::default(),
            lost: Lost::default(),
        })
    }

    /// As [`Component::set_offload`](flowgauge_stack::Component::set_offload).
    pub(crate) fn set_offload(&mut self, verdicts: &Verdicts) {
        self.engine.set_offload(verdicts);
    }

    pub(crate) fn clock(&self) -> Nanos {
        self.engine.shard().tracker().clock()
    }

    pub(crate) fn account(&self) -> Account {
        let mut account = Account {
            ledger: self.engine.ledger().clone(),
            streams: Some(self.engine.statistics()),
            ..engine::account(self.engine.shard())
        };
        let lost = self.beside.as_ref().map_or(self.lost, Beside::lost);
        let what = "lost: handling them is slower than the capture, and the memory was full";
        account.count(lost.chunks, "chunk", what);
        account.count(lost.streams, "stream", what);
        account
    }

    /// Takes a step, which brings the clock to `now`. When the clock goes on within a tick of the flow table, only chunks time
    /// out.
    pub(crate) fn take<T: Handling>(
        &mut self,
        step: &Step<'_, '_>,
        held: &mut Held<T>,
        now: Nanos,
        out: &mut dyn Outlet,
    ) {
        let tracker = self.engine.shard().tracker();
        let taken = match *step {
            Step::Packets(packets) => {
                let mut chosen = core::mem::take(&mut self.chosen);
                let taken = self.process(&chosen.of(packets), held, now, out);
                self.chosen = chosen;
                taken
            }
            Step::Tick(tick) => {
                let is_due = self.has_timeout || !tracker.is_in_tick(tick);
                match tracker.clock() < tick && is_due {
                    true => self.process(&engine::idle(tick), held, now, out),
                    false => Ok(()),
                }
            }
            Step::Finish => self.finish(held, now, out),
        };
        if let Err(failure) = taken {
            out.fail(Failure::new(failure.to_string()));
        }
    }

    fn process<T: Handling>(
        &mut self,
        batch: &Batch<'_>,
        held: &mut Held<T>,
        now: Nanos,
        out: &mut dyn Outlet,
    ) -> Result<(), ThreadFailure> {
        let state = match held {
            Held::Own(state) => {
                self.engine.process(
                    batch,
                    &mut Here {
                        state: &mut *state,
                        now,
                        out: &mut *out,
                    },
                );
                state.flush(out);
                return Ok(());
            }
            Held::Shared(state) => state,
        };
        self.clock.store(now.0, Ordering::Relaxed);
        let beside = match &mut self.beside {
            Some(beside) => beside,
            // The thread of the engine starts it, and it stays on the same core.
            none => none.insert(There::start(state, &self.clock, self.engine.budget())?),
        };
        beside.process(&mut self.engine, batch, |gathered| gathered.give(out));
        beside.failure().map_or(Ok(()), Err)
    }

    fn finish<T: Handling>(
        &mut self,
        held: &mut Held<T>,
        now: Nanos,
        out: &mut dyn Outlet,
    ) -> Result<(), ThreadFailure> {
        match held {
            Held::Own(state) => {
                self.engine.finish(&mut Here {
                    state: &mut *state,
                    now,
                    out: &mut *out,
                });
                state.flush(out);
            }
            Held::Shared(_) => {
                // Without it nothing has come.
                if let Some(beside) = self.beside.take() {
                    let give = |gathered: Gathered| gathered.give(out);
                    self.lost = beside.finish(&mut self.engine, give)?;
                }
            }
        }
        Ok(())
    }
}

/// Handles events where they arise.
struct Here<'a, T> {
    state: &'a mut T,
    now: Nanos,
    out: &'a mut dyn Outlet,
}

impl<T: Handling> Events for Here<'_, T> {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.state.created(&StreamHandle::here(stream, 0));
    }

    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let (stream, chunk) = (StreamHandle::here(stream, 0), Chunk::here(chunk));
        self.state.data(&stream, &chunk, self.now, self.out);
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let stream = StreamHandle::here(stream, 0);
        self.state.terminated(&stream, self.now, self.out);
    }
}

/// Handles events on a thread of their own.
struct There<T> {
    state: Arc<Mutex<T>>,
    clock: Arc<AtomicU64>,
    gathered: Gathered,
    results: Sender<Gathered>,
}

impl<T: Handling> There<T> {
    fn start(
        state: &Arc<Mutex<T>>,
        clock: &Arc<AtomicU64>,
        budget: &Budget,
    ) -> Result<Beside<Gathered>, ThreadFailure> {
        Beside::start("fg-chunks", budget, |results| There {
            state: Arc::clone(state),
            clock: Arc::clone(clock),
            gathered: Gathered::default(),
            results,
        })
    }

    fn act(&mut self, act: impl FnOnce(&mut T, Nanos, &mut Gathered)) {
        let now = Nanos(self.clock.load(Ordering::Relaxed));
        let mut state = self.state.lock();
        act(&mut state, now, &mut self.gathered);
        state.flush(&mut self.gathered);
        drop(state);
        if !self.gathered.is_empty() {
            let gathered = core::mem::take(&mut self.gathered);
            // Where there is no room it goes with the next.
            if let Err(gathered) = self.results.try_send(gathered) {
                self.gathered = gathered;
            }
        }
    }
}

impl<T: Handling> Handlers for There<T> {
    fn created(&mut self, stream: &mut StreamHandle<'_>) {
        self.state.lock().created(stream);
    }

    fn data(&mut self, stream: &mut StreamHandle<'_>, chunk: &mut Chunk<'_>) {
        self.act(|state, now, out| state.data(stream, chunk, now, out));
    }

    fn terminated(&mut self, stream: &mut StreamHandle<'_>) {
        self.act(|state, now, out| state.terminated(stream, now, out));
    }

    fn finish(&mut self) {
        // Who takes it does nothing else any more; or else nobody wants it.
        let _ = self.results.send(core::mem::take(&mut self.gathered));
    }
}

/// What came of events, on its way to the thread of the engine.
#[derive(Default)]
struct Gathered {
    records: RecordStore,
    times: Vec<Nanos>,
    failure: Option<Failure>,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.times.is_empty() && self.failure.is_none()
    }

    fn give(self, out: &mut dyn Outlet) {
        for (place, &time) in self.times.iter().enumerate() {
            if let Some(record) = self.records.get(place) {
                out.emit(Items::Records(&[RecordItem {
                    key: 0,
                    time,
                    record: &record,
                }]));
            }
        }
        if let Some(failure) = self.failure {
            out.fail(failure);
        }
    }
}

impl Outlet for Gathered {
    fn emit(&mut self, items: Items<'_>) {
        if let Items::Records(records) = items {
            for item in records {
                self.records.push(item.record);
                self.times.push(item.time);
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    fn end(&mut self) {}
}

/// The parts of a chunk without a hole, in order: each with its position in the stream and what is missing
/// right before it. What is missing at the end of the chunk comes before nothing.
pub(crate) fn for_each_run(chunk: &Chunk<'_>, mut take: impl FnMut(u64, u64, &[u8])) {
    let info = chunk.info();
    let bytes = chunk.bytes();
    let (mut at, mut missing) = (info.repeated as usize, info.gap_before);
    let holes = match info.flags.contains(ChunkFlags::HOLE) {
        true => chunk.holes(),
        false => Vec::new(),
    };
    for hole in holes {
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
