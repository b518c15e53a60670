//! The engine for flows and streams, and the events of its subscribers.
//!
//! Components that work on flows do not own an engine. Their description names the engine they require
//! ([`ComponentInfo::engine`](crate::ComponentInfo::engine)), and the graph passes packets through it: each packet is
//! decoded, verified, looked up and reassembled once for all subscribers. A single subscriber hands its [`Handler`]
//! to the engine and is compiled into the engine's passes; several subscribers get the same events one by one.

use std::collections::VecDeque;
use std::sync::Arc;

use flowgauge_flow::FlowRecord;
use flowgauge_reassembly::DefragmentStatistics;
use flowgauge_stream::engine as chunks;
use flowgauge_stream::offload::Verdicts;
use flowgauge_stream::{BadPayload, Chunk, Handler, Remark, Shard, ShardConfig, Stream, Want};
use flowgauge_wire::{Batch, Decoded, DecodedBatch, Nanos, PacketDescriptor, Selection};
use parking_lot::Mutex;

use crate::account::Account;
use crate::component::Packets;

/// Applications of [streams in chunks](chunks::Engine) that share an engine with its subscribers.
pub trait Applications: Send {
    /// The applications on the engine's shard, and the receiver of their events.
    fn parts(&mut self) -> (&mut chunks::Engine, &mut dyn chunks::Events);

    /// Whether there are any, given whether the engine is `shared` with subscribers.
    fn are_there(&mut self, shared: bool) -> bool;
}

/// A shared reference to applications.
#[derive(Clone)]
pub struct SharedApplications(pub Arc<Mutex<dyn Applications>>);

impl core::fmt::Debug for SharedApplications {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedApplications").finish_non_exhaustive()
    }
}

impl SharedApplications {
    /// Whether nobody else can have what is their engine's.
    fn are_apart(&self) -> bool {
        self.0.lock().parts().0.has_long_silence()
    }
}

/// The engine that a component requires.
#[derive(Clone, Debug)]
pub struct Required {
    /// Its configuration.
    pub config: ShardConfig,
    /// Whether it needs streams, in addition to flows.
    pub streams: bool,
    /// Applications that share the engine.
    pub applications: Option<SharedApplications>,
}

impl Required {
    /// Whether both can share an engine without any difference.
    pub fn is_shared_with(&self, other: &Required) -> bool {
        self.config == other.config
    }
}

/// An engine in a stack.
#[derive(Clone, Debug)]
pub struct Engine {
    shard: Box<Shard>,
    chosen: Chosen,
    /// Whether it has put streams in order from its beginning.
    streams: bool,
    applications: Option<SharedApplications>,
}

impl Engine {
    /// Creates an engine that follows the clock of the stack, which includes packets on other cores.
    pub fn new(required: Required) -> Engine {
        let mut config = required.config;
        config.flow.led_clock = true;
        Engine {
            shard: Box::new(Shard::new(config)),
            chosen: Chosen::default(),
            streams: required.streams,
            applications: required.applications,
        }
    }

    /// Whether it can serve the subscribers of another engine that has not started. Once it `runs`, it cannot start
    /// to reassemble streams.
    pub fn does_for(&self, other: &Engine, runs: bool) -> bool {
        let has_streams = self.streams || !other.streams || !runs;
        let mut applications = self.applications.iter().chain(&other.applications);
        if applications.any(SharedApplications::are_apart) {
            return false;
        }
        has_streams && self.shard.config() == other.shard.config()
    }

    /// Takes over the subscribers of another engine, which has not started.
    pub fn take_over(&mut self, other: &Engine) {
        self.streams |= other.streams;
        if other.applications.is_some() {
            self.applications.clone_from(&other.applications);
        }
    }

    /// The parts of streams that its only subscriber wants, if not everything.
    pub fn wanted(&self) -> impl Iterator<Item = Want> + '_ {
        self.shard.wanted()
    }

    /// Sets the wanted part of a stream from now on.
    pub fn want(&mut self, want: Want) {
        let nothing = |_: Event<'_>, _: &mut VecDeque<Want>| {};
        let mut nobody = Events::<_, true, false>::new(false, nothing);
        self.shard.want(want, &mut nobody);
    }

    /// Stops reassembly, and frees its memory, when there are no readers of streams left.
    pub fn forget_streams(&mut self) {
        if core::mem::take(&mut self.streams) && self.applications.is_none() {
            self.shard.forget_streams();
        }
    }

    /// Processes a step. A tick is skipped if packets have already advanced the clock to its time, or to within a
    /// tick of the flow table.
    pub fn take<H: Handler>(&mut self, step: &Step<'_, '_>, handler: &mut H) {
        match *step {
            Step::Packets(packets) => self.shard.process(&self.chosen.of(packets), handler),
            Step::Tick(now) => {
                let tracker = self.shard.tracker();
                if tracker.clock() < now && !tracker.is_in_tick(now) {
                    self.shard.process(&idle(now), handler);
                }
            }
            Step::Finish => self.shard.finish(handler),
        }
    }

    /// The same, including applications if there are any; with the subscribers' handler if the engine is `shared`.
    pub fn take_for_all<H: Handler>(&mut self, step: &Step<'_, '_>, shared: bool, handler: &mut H) {
        let Some(SharedApplications(applications)) = self.applications.clone() else {
            return self.take(step, handler);
        };
        let mut applications = applications.lock();
        if !applications.are_there(shared) {
            self.applications = None;
            return self.take(step, handler);
        }
        let (engine, events) = applications.parts();
        let chosen = &mut self.chosen;
        engine.on(&mut self.shard, !shared, |engine| match *step {
            Step::Packets(packets) => engine.process_for(&chosen.of(packets), events, handler),
            Step::Tick(now) => {
                let tracker = engine.shard().tracker();
                match tracker.clock() < now && !tracker.is_in_tick(now) {
                    true => engine.process_for(&idle(now), events, handler),
                    false => engine.flush(now, events),
                }
            }
            Step::Finish => engine.finish_for(events, handler),
        });
    }

    /// The same, for an engine that only applications use.
    pub fn take_for_applications(&mut self, step: &Step<'_, '_>) {
        self.take_for_all(step, false, &mut chunks::Nobody);
    }

    /// Calls a function with its applications, if there are any.
    pub fn for_applications(
        &mut self,
        act: impl FnOnce(&mut chunks::Engine, &mut dyn chunks::Events),
    ) {
        if let Some(SharedApplications(applications)) = &self.applications {
            let mut applications = applications.lock();
            let (engine, events) = applications.parts();
            engine.on(&mut self.shard, false, |engine| act(engine, events));
        }
    }

    /// Ends flows that timed out. Must be called before [`Engine::show_open`].
    pub fn end_due<H: Handler>(&mut self, handler: &mut H) {
        if self.applications.is_none() {
            return self.shard.end_due(handler);
        }
        self.for_applications(|engine, events| engine.end_due_for(events, handler));
    }

    /// Passes open flows and streams to a handler as at the end of the input, and then continues unchanged.
    pub fn show_open<H: Handler>(&mut self, handler: &mut H) {
        self.shard.show_open(handler);
    }

    /// Reports from now on which packets of flows are needed.
    pub fn set_offload(&mut self, verdicts: &Verdicts) {
        self.shard.set_offload(verdicts);
    }

    /// The underlying engine of a core.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Its account for one of several subscribers ([`Shard::account`]).
    pub fn account(&self, streams: bool, bad: &BadPayload) -> Account {
        let (ledger, statistics, findings) = self.shard.account(streams, bad);
        Account {
            ledger,
            findings,
            shards: vec![statistics],
            ..Account::default()
        }
    }
}

/// A step of an engine.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a, 'b> {
    /// Packets arrived.
    Packets(&'a Packets<'b>),
    /// The clock advanced.
    Tick(Nanos),
    /// The input ended.
    Finish,
}

impl Step<'_, '_> {
    /// The time after the step, for an engine whose clock is at `clock`.
    pub fn time(&self, clock: Nanos) -> Nanos {
        match self {
            Step::Packets(packets) => {
                let last = packets.batch.packets.last();
                let last = last.map(|last| last.time);
                last.or(packets.batch.now).unwrap_or_default()
            }
            Step::Tick(now) => *now,
            Step::Finish => clock,
        }
    }
}

/// The next input of a subscriber.
#[derive(Debug)]
pub enum Feed<'a, 'b> {
    /// A whole step of an engine that it does not share; `None` if it uses no engine of the graph.
    Step(Option<&'a mut Engine>, Step<'a, 'b>),
    /// An event of a shared engine, and the place to store what it wants next.
    Event(Event<'a>, &'a mut Vec<Want>),
    /// No event; the subscriber is asked which events it wants.
    Wants(&'a mut Wants),
}

impl Feed<'_, '_> {
    /// Passes it to a handler.
    #[inline]
    pub fn to<H: Handler>(self, handler: &mut H) {
        match self {
            Feed::Step(Some(engine), step) => engine.take(&step, handler),
            Feed::Step(None, _) => {}
            Feed::Event(event, wanted) => {
                event.to(handler);
                wanted.extend(core::iter::from_fn(|| handler.want()));
            }
            Feed::Wants(wants) => *wants = Wants::of(handler),
        }
    }
}

/// The kinds of events that a subscriber wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// [`Handler::STREAMS`].
    pub streams: bool,
    /// [`Handler::REMARKS`].
    pub remarks: bool,
    /// [`Handler::wants_flows`].
    pub flows: bool,
}

impl Wants {
    fn of<H: Handler>(handler: &H) -> Wants {
        Wants {
            streams: H::STREAMS,
            remarks: H::REMARKS,
            flows: handler.wants_flows(),
        }
    }

    /// The union of both.
    #[must_use]
    pub const fn or(self, other: Wants) -> Wants {
        Wants {
            streams: self.streams | other.streams,
            remarks: self.remarks | other.remarks,
            flows: self.flows | other.flows,
        }
    }
}

/// A call of the [`Handler`] method with this name.
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "each is named as the method whose parameters it has"
)]
pub enum Event<'a> {
    Batch(&'a Batch<'a>, &'a DecodedBatch),
    Created(&'a Stream<'a>),
    Data(&'a Stream<'a>, &'a Chunk<'a>),
    Remark(&'a Stream<'a>, &'a Remark),
    BadPayload(Option<u32>, &'a Decoded, bool),
    FragmentRemark(&'a Decoded, &'a DefragmentStatistics),
    Closed(&'a Stream<'a>),
    Terminated(&'a Stream<'a>, u64),
    Flow(&'a FlowRecord<'a>),
}

impl Event<'_> {
    #[inline]
    fn to<H: Handler>(self, handler: &mut H) {
        match self {
            Event::Batch(batch, decoded) => handler.batch(batch, decoded),
            Event::Created(stream) => handler.stream_created(stream),
            Event::Data(stream, chunk) => handler.stream_data(stream, chunk),
            Event::Remark(stream, remark) => handler.stream_remark(stream, remark),
            Event::BadPayload(stream, packet, taken) => handler.bad_payload(stream, packet, taken),
            Event::FragmentRemark(packet, odd) => handler.fragment_remark(packet, odd),
            Event::Closed(stream) => handler.stream_closed(stream),
            Event::Terminated(stream, gap) => handler.stream_terminated(stream, gap),
            Event::Flow(record) => handler.flow(record),
        }
    }

    /// Its stream.
    #[inline]
    pub fn stream(&self) -> Option<&Stream<'_>> {
        match self {
            Event::Created(stream)
            | Event::Data(stream, _)
            | Event::Remark(stream, _)
            | Event::Closed(stream)
            | Event::Terminated(stream, _) => Some(stream),
            _ => None,
        }
    }

    /// The number of its stream.
    #[inline]
    pub fn stream_id(&self) -> Option<u32> {
        match self {
            Event::BadPayload(stream, ..) => *stream,
            _ => self.stream().map(|stream| stream.id),
        }
    }

    /// Whether it is among the wanted events.
    #[inline]
    pub fn is_wanted(&self, wants: Wants) -> bool {
        match self {
            Event::Batch(..) => true,
            Event::Remark(..) | Event::FragmentRemark(..) => wants.remarks,
            Event::Flow(_) => wants.flows,
            _ => wants.streams,
        }
    }
}

/// Passes the events of an engine to a function, one by one, for all subscribers. The function returns what the
/// subscribers want together.
#[derive(Debug)]
pub struct Events<F, const STREAMS: bool, const REMARKS: bool> {
    to: F,
    flows: bool,
    wanted: VecDeque<Want>,
}

impl<F: FnMut(Event<'_>, &mut VecDeque<Want>), const STREAMS: bool, const REMARKS: bool>
    Events<F, STREAMS, REMARKS>
{
    /// Events for this function; flow records only if wanted.
    pub fn new(flows: bool, to: F) -> Self {
        Events {
            to,
            flows,
            wanted: VecDeque::new(),
        }
    }

    #[inline]
    fn give(&mut self, event: Event<'_>) {
        (self.to)(event, &mut self.wanted);
    }
}

impl<F: FnMut(Event<'_>, &mut VecDeque<Want>), const STREAMS: bool, const REMARKS: bool> Handler
    for Events<F, STREAMS, REMARKS>
{
    const STREAMS: bool = STREAMS;
    const REMARKS: bool = REMARKS;

    #[inline]
    fn wants_flows(&self) -> bool {
        self.flows
    }

    #[inline]
    fn want(&mut self) -> Option<Want> {
        self.wanted.pop_front()
    }

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        self.give(Event::Batch(batch, decoded));
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.give(Event::Created(stream));
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.give(Event::Data(stream, chunk));
    }

    fn stream_remark(&mut self, stream: &Stream<'_>, remark: &Remark) {
        self.give(Event::Remark(stream, remark));
    }

    fn bad_payload(&mut self, stream: Option<u32>, packet: &Decoded, is_taken: bool) {
        self.give(Event::BadPayload(stream, packet, is_taken));
    }

    fn fragment_remark(&mut self, packet: &Decoded, odd: &DefragmentStatistics) {
        self.give(Event::FragmentRemark(packet, odd));
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        self.give(Event::Closed(stream));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.give(Event::Terminated(stream, trailing_gap));
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.give(Event::Flow(record));
    }
}

/// An empty batch that advances the clock.
pub fn idle(now: Nanos) -> Batch<'static> {
    let mut idle = Batch::new(&[], &[]);
    idle.now = Some(now);
    idle
}

/// The account of an engine.
pub fn account(shard: &Shard) -> Account {
    Account {
        ledger: shard.ledger().clone(),
        findings: shard.findings(),
        shards: vec![shard.statistics()],
        ..Account::default()
    }
}

/// The selected packets as a batch of their own.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    packets: Vec<PacketDescriptor>,
}

impl Chosen {
    /// The selected packets: part of the batch if they are contiguous, else a list. Their decoded headers are not
    /// used, as the engine decodes packets itself.
    pub fn of<'a>(&'a mut self, packets: &Packets<'a>) -> Batch<'a> {
        self.selected(packets.batch, packets.selected)
    }

    /// The same for a batch that is not decoded.
    pub fn selected<'a>(&'a mut self, batch: &Batch<'a>, selected: Selection) -> Batch<'a> {
        let all = batch.packets;
        if let Some(run) = selected.run()
            && let Some(selected) = all.get(run)
        {
            return Batch::new(batch.memory, selected);
        }
        self.packets.clear();
        let selected = selected.iter().filter_map(|index| all.get(index));
        self.packets.extend(selected);
        Batch::new(batch.memory, &self.packets)
    }
}
