//! Scap's engine: streams as the first-class object of a monitoring program.
//!
//! (A. Papadogiannakis, M. Polychronakis, E. P. Markatos: Scap: Stream-Oriented Network Traffic
//! Capture and Analysis for High-Speed Networks, IMC 2013.)
//!
//! An [`Engine`] processes batches of packets with a [`Shard`], and delivers events ([`Events`]) to its applications
//! ([`ApplicationConfig`]): a stream was created, a chunk of it is ready, it ended.
//!
//! ```
//! use flowgauge_stream::engine::{
//!     ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, StreamRef,
//! };
//!
//! #[derive(Default)]
//! struct Count(u64);
//!
//! impl Events for Count {
//!     fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
//!         self.0 += chunk.bytes().len() as u64;
//!         if chunk.bytes().starts_with(b"SSH-") {
//!             stream.discard();
//!         }
//!     }
//! }
//!
//! let mut engine = Engine::new(EngineConfig::default());
//! engine.add(ApplicationConfig::default());
//! let mut count = Count::default();
//! // for each batch of a source: engine.process(&batch, &mut count);
//! engine.finish(&mut count);
//! assert!(engine.ledger().is_balanced());
//! ```
//!
//! # Streams
//! There is one per direction, created in pairs by the first packet of a connection, and ended together. TCP is
//! reassembled ([`Mode`]), UDP payloads are concatenated, packets of other protocols are one event each. Applications
//! see a stream as a [`StreamRef`] during an event, and elsewhere as a [`StreamSnapshot`], to which they respond with a
//! [`Command`].
//!
//! # Several applications
//! Streams are reassembled once, and each application sees the same as if it were alone. Applications with equal chunk
//! parameters share the chunks of a stream, until one of them changes a parameter or keeps a chunk: it has its own from
//! the next chunk on. (A stream ends once, for all: if only some wait for a hole, the flags of the others' last chunk
//! may have their flush timeout instead of the end.)
//!
//! # Counters
//! For every packet and byte, *all* = *captured* + *dropped* + *discarded*, per stream and in total
//! ([`StreamStatistics`]). Dropped: refused by priority, or in a chunk for which an application found no memory.
//! Discarded: beyond a cutoff, in a discarded stream, copies, damaged datagrams, bytes that headers claim but no frame
//! had, and data that mode STRICT refuses: where it stops ([`StreamRef::is_halted`]), its hole is
//! [`StreamRef::missing_at_end`], and later packets count at the ledger's place `strict`. Each of several applications
//! has its own counters; the totals count packets that none of them got.
//!
//! # Deliberately absent
//! Threads, clocks, I/O: time comes with packets; callers may provide a [`Stopwatch`].

mod assemble;
mod budget;
mod buffers;
mod chunk;
mod chunkers;
mod command;
mod config;
mod connections;
mod core;
mod deliver;
mod events;
mod fast;
mod first_packet;
mod judge;
mod noted;
mod overload;
mod packets;
mod pass;
mod pressure;
mod record;
mod settle;
mod silence;
mod slab;
mod statistics;
mod stream_ref;
mod strict;
mod timers;
mod unwanted;

use flowgauge_flow::EndReason;
use flowgauge_wire::{Batch, Ledger, Nanos, Place};

pub use budget::{Sentence, Watermarks};
pub use chunk::{ChunkFlags, ChunkInfo, DataChunk, OutOfMemory, OwnedChunk};
pub use command::{ChunkParameters, Command, Parameter};
pub use config::{
    ApplicationConfig, ApplicationId, Cutoff, Cutoffs, EngineConfig, FilterPacket,
    MAX_APPLICATIONS, Mode, Priorities, StreamFilter,
};
pub use events::{Events, Stopwatch};
pub use first_packet::FirstPacket;
pub use flowgauge_reassembly::HostPolicies;
pub use flowgauge_wire::Budget;
pub use packets::{ChunkPacket, Packets};
pub use pass::Nobody;
pub use statistics::{Counts, EngineStatistics, StreamStatistics};
pub use stream_ref::{StreamErrors, StreamRef, StreamSnapshot};

use self::core::{Core, flow_of};
use self::pass::Hook;
use self::stream_ref::Context;
use self::unwanted::Forgets;
use crate::config::ShardConfig;
use crate::handler::{Handler, StreamStatus};
use crate::offload::Verdicts;
use crate::shard::Shard;

/// Streams of one core, for up to [`MAX_APPLICATIONS`] applications.
#[derive(Debug)]
pub struct Engine {
    shard: Box<Shard>,
    core: Core,
    /// Whether applications get packets where nothing else is said.
    need_packets: bool,
    /// [`EngineConfig::connection_bytes`].
    connection_bytes: Option<u64>,
    /// What connections are charged.
    charged: u64,
    /// Where packets went, of an engine on the shard of others, and how the shard's ledger stood before.
    ledger: Ledger,
    before: Option<Ledger>,
}

impl Engine {
    /// An engine without applications, with its own memory budget.
    pub fn new(config: EngineConfig) -> Engine {
        let budget = Budget::new(config.memory_bytes);
        Engine::with_budget(config, budget)
    }

    /// An engine whose memory is part of `budget`, which others may share. [`EngineConfig::memory_bytes`] is ignored.
    pub fn with_budget(config: EngineConfig, budget: Budget) -> Engine {
        let mut config = config;
        config.shard.flow.active = None;
        config.shard.reassembly.memory_bytes = budget.limit();
        if config.connection_bytes.is_some() {
            let most = budget.limit() / EngineConfig::CONNECTION_CHARGE;
            config.shard.flow.max_flows = u32::try_from(most).unwrap_or(u32::MAX);
        }
        if config.policies.is_uniform() && config.policies != HostPolicies::default() {
            config.shard.overlap_policy = config.policies.default_policy();
        }
        let mut shard = Box::new(Shard::new(config.shard.clone()));
        shard.set_budget(budget.clone());
        if config.policies != HostPolicies::default() {
            shard.set_fragment_policies(config.policies.clone());
        }
        Engine {
            core: Core::new(&config, budget),
            shard,
            need_packets: config.need_packets,
            connection_bytes: config.connection_bytes,
            charged: 0,
            ledger: Ledger::default(),
            before: None,
        }
    }

    /// An engine on a shard that belongs to others, with this configuration; all operations on the shard are done
    /// within [`Engine::on`]. The engine gets connections created from now on, and its memory is only for chunks.
    pub fn beside(shard: ShardConfig) -> Engine {
        let config = EngineConfig {
            shard,
            ..EngineConfig::default()
        };
        let budget = Budget::new(config.memory_bytes);
        let mut nowhere = config.shard.clone();
        (nowhere.flow.max_flows, nowhere.flow.led_clock) = (1, true);
        let mut core = Core::new(&config, budget);
        core.is_beside = true;
        Engine {
            core,
            shard: Box::new(Shard::new(nowhere)),
            need_packets: false,
            connection_bytes: None,
            charged: 0,
            ledger: Ledger::default(),
            before: None,
        }
    }

    /// Calls `act` with the engine on another owner's shard. If it is `alone` there, its applications' inactivity
    /// timeouts apply.
    pub fn on<R>(
        &mut self,
        shard: &mut Box<Shard>,
        alone: bool,
        act: impl FnOnce(&mut Engine) -> R,
    ) -> R {
        std::mem::swap(&mut self.shard, shard);
        let before = self.before.take();
        let before = before.unwrap_or_else(|| self.shard.ledger().clone());
        if alone {
            self.core.tell_silences(&mut self.shard);
        }
        let done = act(self);
        self.ledger = self.own_ledger().since(&before);
        self.before = Some(before);
        std::mem::swap(&mut self.shard, shard);
        done
    }

    /// Whether an application has a longer inactivity timeout than the shard, so that others cannot share the shard.
    pub fn has_long_silence(&self) -> bool {
        self.core.has_long_silence()
    }

    /// Delivers chunks whose flush timeout has passed by `now`, while the clock of the shard stands still.
    pub fn flush<E: Events + ?Sized>(&mut self, now: Nanos, events: &mut E) {
        self.core.flush_old(events, self.shard.tracker(), now);
    }

    /// Adds an application. It gets the streams created from now on. `None` if there are already [`MAX_APPLICATIONS`],
    /// or the maximum number of different [`ChunkParameters`] is in use.
    pub fn add(&mut self, application: ApplicationConfig) -> Option<ApplicationId> {
        self.add_for_packets(application, self.need_packets)
    }

    /// The same for an application that gets packets with chunks, or not, regardless of [`EngineConfig::need_packets`].
    /// It does not share chunks with applications that differ in this.
    pub fn add_for_packets(
        &mut self,
        application: ApplicationConfig,
        needs_packets: bool,
    ) -> Option<ApplicationId> {
        let added = self.core.add(application, needs_packets);
        self.catch_up();
        added
    }

    /// Changes the configuration of an application. A new inactivity timeout applies to all streams, other settings to
    /// streams created from now on; use [`Engine::command`] for single streams. False if there is no such application.
    ///
    /// ```
    /// # use flowgauge_stream::engine::{ApplicationConfig, Cutoff, Engine, EngineConfig};
    /// let mut engine = Engine::new(EngineConfig::default());
    /// let search = engine.add(ApplicationConfig::default()).unwrap();
    /// // A busy hour: no more than the beginnings.
    /// assert!(engine.change(search, |wanted| wanted.cutoff.default = Cutoff(10_000)));
    /// ```
    pub fn change(
        &mut self,
        application: ApplicationId,
        change: impl FnOnce(&mut ApplicationConfig),
    ) -> bool {
        let changed = self.core.change(application, change);
        self.catch_up();
        changed
    }

    /// Removes an application: it gets no new streams, and no further events of its existing ones.
    pub fn remove(&mut self, application: ApplicationId) {
        self.core.remove(application);
        self.catch_up();
    }

    /// Removes an application as if the input had ended for it alone: it gets the partial chunks of its streams, then
    /// their ends ([`StreamStatus::EndOfInput`] for those that have not closed), but no data waiting after holes. Other
    /// applications are not affected.
    pub fn retire<E: Events + ?Sized>(&mut self, application: ApplicationId, events: &mut E) {
        let tracker = self.shard.tracker();
        for id in 0..self.core.records.bound() {
            let Some(at) = self.core.live_view(id, application) else {
                continue;
            };
            let reason = tracker.with_record(flow_of(id), |record| record.end_reason);
            let status = match reason {
                Some(EndReason::Fin) => StreamStatus::Fin,
                Some(EndReason::Rst) => StreamStatus::Rst,
                _ => StreamStatus::EndOfInput,
            };
            let context = Context {
                status,
                ..Context::tracked(tracker, id)
            };
            self.core.send_share(events, context, at, ChunkFlags::LAST);
            let mut stream = StreamRef {
                core: &mut self.core,
                context,
                at,
            };
            events.terminated(application, &mut stream);
            stream.discard();
        }
        self.remove(application);
    }

    /// Measures the time of data events from now on.
    pub fn set_stopwatch(&mut self, stopwatch: impl Stopwatch + 'static) {
        self.core.stopwatch = Some(Box::new(stopwatch));
    }

    /// Passes verdicts on flows to a backend from now on.
    pub fn set_offload(&mut self, verdicts: &Verdicts) {
        self.shard.set_offload(verdicts);
        self.core.tells_standings = true;
        for id in 0..self.core.records.bound() {
            if self.core.lives(id) {
                self.core.tell_standing(id);
            }
        }
    }

    /// Processes a batch. An empty batch with [`Batch::now`] only advances the capture clock.
    pub fn process<E: Events + ?Sized>(&mut self, batch: &Batch<'_>, events: &mut E) {
        self.process_for(batch, events, &mut Nobody);
    }

    /// The same with an additional handler, without [packets](Handler::PACKETS), which gets the events that it would
    /// get from the shard alone.
    pub fn process_for<E: Events + ?Sized, G: Handler>(
        &mut self,
        batch: &Batch<'_>,
        events: &mut E,
        guest: &mut G,
    ) {
        self.charge_connections();
        let mut hook = Hook {
            core: &mut self.core,
            events,
            guest,
        };
        self.shard.process(batch, &mut hook);
        let now = self.shard.tracker().clock();
        self.core.flush_old(events, self.shard.tracker(), now);
        self.catch_up();
        if self.core.tells_standings && !self.core.is_beside {
            // A guest takes what it would get alone.
            let overload = if G::STREAMS {
                None
            } else {
                self.core.overload()
            };
            self.shard.tell_overload(overload.as_ref());
        }
    }

    /// Ends all streams at the end of the input.
    pub fn finish<E: Events + ?Sized>(&mut self, events: &mut E) {
        self.finish_for(events, &mut Nobody);
    }

    /// The same with an additional handler.
    pub fn finish_for<E: Events + ?Sized, G: Handler>(&mut self, events: &mut E, guest: &mut G) {
        let mut hook = Hook {
            core: &mut self.core,
            events,
            guest,
        };
        self.shard.finish(&mut hook);
        self.charge_connections();
        self.catch_up();
    }

    /// Ends streams that have timed out ([`Shard::end_due`]), with an additional handler.
    pub fn end_due_for<E: Events + ?Sized, G: Handler>(&mut self, events: &mut E, guest: &mut G) {
        let mut hook = Hook {
            core: &mut self.core,
            events,
            guest,
        };
        self.shard.end_due(&mut hook);
    }

    /// Executes a command for a stream of an application. False if the stream has ended.
    pub fn command(&mut self, uid: u64, application: ApplicationId, command: Command) -> bool {
        let found = self.core.command(uid, application, command);
        self.catch_up();
        found
    }

    /// The chunk parameters of an application for one of its streams; `None` if it has ended.
    pub fn chunk_parameters(
        &self,
        uid: u64,
        application: ApplicationId,
    ) -> Option<ChunkParameters> {
        self.core.chunk_parameters(uid, application)
    }

    /// Changes the base threshold ([`EngineConfig::base_threshold`]).
    pub fn set_base_threshold(&mut self, share: f64) {
        self.core.watermarks.set_base_threshold(share);
    }

    /// Changes the overload cutoff ([`EngineConfig::overload_cutoff`]).
    pub fn set_overload_cutoff(&mut self, cutoff: Option<u64>) {
        self.core.watermarks.set_overload_cutoff(cutoff);
        self.core.forget_positions();
    }

    /// Changes the overlap policies ([`EngineConfig::policies`]) for fragments, and for streams created from now on;
    /// use [`Engine::command`] for single streams.
    pub fn set_policies(&mut self, policies: HostPolicies) {
        self.shard.set_fragment_policies(policies.clone());
        self.core.set_policies(policies);
    }

    /// Bytes of memory below which nothing is dropped: the base threshold.
    pub fn base_bytes(&self) -> u64 {
        self.core.watermarks.base()
    }

    /// What became of the packets. Packets refused on a shard of others are not in the ledgers of the others.
    pub fn ledger(&self) -> &Ledger {
        match self.core.is_beside {
            true => &self.ledger,
            false => self.shard.ledger(),
        }
    }

    fn own_ledger(&self) -> Ledger {
        let mut ledger = self.shard.ledger().clone();
        for (place, counts) in &self.core.refused {
            ledger.refuse(*place, counts.packets, counts.bytes);
        }
        ledger.refuse(Place::Outside, 0, self.core.refused_bytes);
        ledger
    }

    /// Counters.
    pub fn statistics(&self) -> EngineStatistics {
        EngineStatistics {
            memory: self.core.budget.used(),
            memory_high: self.core.budget.high(),
            shard: self.shard.statistics(),
            ..self.core.statistics
        }
    }

    /// The memory budget.
    pub fn budget(&self) -> &Budget {
        &self.core.budget
    }

    /// The shard, with flow table and reassembly.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Does what had to wait until the shard was free.
    fn catch_up(&mut self) {
        self.core.tidy_parameters();
        if self.core.is_beside {
            // What is wanted is told with the next packets, and what was refused is its own.
            return;
        }
        self.core.tell_silences(&mut self.shard);
        while let Some(want) = self.core.requests.pop_front() {
            self.shard.want(want, &mut Forgets(&mut self.core));
        }
        for (place, counts) in self.core.refused.drain(..) {
            self.shard.refuse(place, counts.packets, counts.bytes);
        }
        let bytes = std::mem::take(&mut self.core.refused_bytes);
        self.shard.refuse(Place::Outside, 0, bytes);
    }
}
