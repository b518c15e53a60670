//! A part of one or several stacks, on one thread.

mod joined;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use flowgauge_record::SharedRecord;
use flowgauge_stack::engine::{Engine, Feed, Step, Wants};
use flowgauge_stack::{
    Account, ComponentFailure, Graph, Items, NodeId, Packets, Passed, Received, RecordItem,
    ResultValue, Selection, Settled, Table, Tail,
};
use flowgauge_stream::offload::{Interest, Verdicts};
use flowgauge_wire::Nanos;

use super::board::Counts;
use super::crossing::{Crossing, Ends};
use super::meter;
use super::plan::Row;
use super::snapshot::Shared;
use super::subscribers::Subscribers;
use crate::reader::{Cut, SharedBatch};

/// A stack that ended because a component failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFailure {
    /// Index of the stack in the program.
    pub stack: usize,
    /// The component, and why it failed.
    pub failure: ComponentFailure,
}

/// A stack that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// No other's.
    pub(super) number: usize,
    standing: Arc<Standing>,
}

/// How a stack stands.
#[derive(Debug, Default)]
struct Standing {
    /// [`IS_OVER`], [`HAS_ENOUGH`] and [`RESTS`]; zero is how most stand, which is asked for each batch.
    state: AtomicU8,
    has_failed: AtomicBool,
    /// Packets that it did not get meanwhile.
    missed: AtomicU64,
    /// Processor time that it took, in nanoseconds.
    cost: AtomicU64,
}

/// It does nothing any more.
const IS_OVER: u8 = 1;
/// It needs no further input.
const HAS_ENOUGH: u8 = 2;
/// It gets no packets for now.
const RESTS: u8 = 4;

impl Standing {
    #[inline]
    fn is(&self, any_of: u8) -> bool {
        self.state.load(Ordering::Relaxed) & any_of != 0
    }

    /// Notes something. Whether it was so before.
    fn set(&self, what: u8) -> bool {
        self.state.fetch_or(what, Ordering::Relaxed) & what != 0
    }
}

impl Member {
    pub(super) fn new(number: usize) -> Member {
        Member {
            number,
            standing: Arc::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.standing.is(IS_OVER)
    }

    /// Whether a component of it has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.standing.has_failed.load(Ordering::Relaxed)
    }

    /// Whether it does anything with further input.
    pub(super) fn wants_input(&self) -> bool {
        !self.standing.is(HAS_ENOUGH | IS_OVER)
    }

    /// It gets no packets from now on, or gets them again.
    pub(super) fn set_rests(&self, rests: bool) {
        match rests {
            true => drop(self.standing.set(RESTS)),
            false => drop(self.standing.state.fetch_and(!RESTS, Ordering::Relaxed)),
        }
    }

    /// Packets that it did not get because it was to rest.
    pub(super) fn missed(&self) -> u64 {
        self.standing.missed.load(Ordering::Relaxed)
    }

    /// Processor time that it took, in nanoseconds.
    pub(super) fn cost(&self) -> u64 {
        self.standing.cost.load(Ordering::Relaxed)
    }
}

/// What all threads of a run know.
#[derive(Debug, Default)]
pub(super) struct Common {
    failures: Mutex<Vec<StackFailure>>,
    changed: Condvar,
    has_failures: AtomicBool,
    /// Stacks with a source of their own that goes on.
    pub(super) sources: AtomicUsize,
    stop: AtomicBool,
}

impl Common {
    /// A stack needs no further input.
    pub(super) fn satisfy(&self, member: &Member) {
        if !member.standing.set(HAS_ENOUGH) {
            self.notify();
        }
    }

    /// A stack does nothing any more; `failure`: because of that.
    pub(super) fn end(&self, member: &Member, failure: Option<ComponentFailure>) {
        let was_over = member.standing.set(IS_OVER);
        if let (false, Some(failure)) = (was_over, failure) {
            member.standing.has_failed.store(true, Ordering::Relaxed);
            let stack = member.number;
            self.failures().push(StackFailure { stack, failure });
            self.has_failures.store(true, Ordering::Release);
        }
        self.notify();
    }

    /// Whoever waits for a change looks.
    pub(super) fn notify(&self) {
        let _failures = self.failures();
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn has_failures(&self) -> bool {
        self.has_failures.load(Ordering::Acquire)
    }

    /// Failures are told again.
    pub(super) fn put_back(&self, failures: Vec<StackFailure>) {
        if !failures.is_empty() {
            self.failures().extend(failures);
            self.has_failures.store(true, Ordering::Release);
        }
    }

    /// The failures since it was asked last.
    pub(super) fn take_failures(&self) -> Vec<StackFailure> {
        if !self.has_failures.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        core::mem::take(&mut *self.failures())
    }

    /// Waits until something changes, or for so long.
    pub(super) fn wait(&self, timeout: Duration, is_done: impl Fn() -> bool) {
        let failures = self.failures();
        if failures.is_empty() && !is_done() {
            let _woken = self.changed.wait_timeout(failures, timeout);
        }
    }

    fn failures(&self) -> MutexGuard<'_, Vec<StackFailure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Components of a stack, or such as several stacks begin with, and what follows them.
pub(super) struct Part {
    /// Whose they are.
    members: Vec<Member>,
    graph: Graph<Next>,
    /// Its components, if it has some.
    row: Option<Row>,
    /// By the numbers of stacks that came later: what had passed its components before.
    before: BTreeMap<usize, Vec<Passed>>,
    common: Arc<Common>,
    /// Where it takes packets beside an engine: that it wants all of them.
    interests: Vec<Interest>,
    /// Whether its packets are those that a worker gets with groups.
    is_by_group: bool,
    /// The input is over: what components before it keep comes.
    is_ending: bool,
    is_over: bool,
}

/// What follows a part.
pub(super) enum Next {
    Nothing,
    /// What each of several stacks goes on with; memory for records.
    Parts(Vec<Part>, Vec<u8>),
    /// The same, where that begins with subscribers to one engine.
    Subscribers(Box<Subscribers>),
    /// Another thread.
    Crossing(Box<Crossing>),
}

impl Tail for Next {
    fn take(&mut self, _: Nanos, maker: Option<NodeId>, items: Items<'_>) {
        match self {
            Next::Nothing => {}
            Next::Parts(parts, memory) => shared(items, memory, |items| {
                // Of stacks with the same beginning one may have enough before the others.
                let wanting = parts.iter_mut();
                let wanting = wanting.filter(|part| part.is_ending || part.wants_input());
                for part in wanting {
                    match &items {
                        Items::Packets(packets) if part.rests(packets.selected) => {}
                        _ => part.measured(|part| part.feed(items)),
                    }
                }
            }),
            Next::Subscribers(subscribers) => {
                if let Items::Packets(packets) = &items {
                    subscribers.step(&Step::Packets(packets));
                }
            }
            Next::Crossing(crossing) => crossing.take(maker, items),
        }
    }

    fn begin_tick(&mut self, now: Nanos) {
        self.crossings(&mut |crossing| crossing.begin_tick(now));
    }

    fn end_tick(&mut self, now: Nanos) {
        match self {
            Next::Nothing => {}
            Next::Parts(parts, _) => parts.iter_mut().for_each(|part| part.advance(now)),
            Next::Subscribers(subscribers) => subscribers.step(&Step::Tick(now)),
            Next::Crossing(crossing) => crossing.end_tick(),
        }
    }

    fn settle(&mut self) -> Settled {
        match self {
            Next::Crossing(_) => Settled::Unknown,
            next => {
                let parts = next.parts_mut().iter_mut();
                let settled = parts.map(|part| part.graph.settle_all());
                settled.max().unwrap_or(Settled::Yes)
            }
        }
    }

    fn results(&mut self, results: &[(NodeId, ResultValue)]) {
        if let Next::Crossing(crossing) = self {
            crossing.results(results);
        }
    }
}

impl Next {
    /// Takes out what is of stacks that leave: see [`Part::split`].
    fn split(&mut self, leaving: &mut Leaving<'_>) -> Next {
        match self {
            Next::Parts(parts, _) => Next::Parts(Part::split(parts, leaving), Vec::new()),
            Next::Subscribers(subscribers) => {
                subscribers.leave(leaving);
                Next::Nothing
            }
            Next::Nothing | Next::Crossing(_) => Next::Nothing,
        }
    }

    fn parts(&self) -> &[Part] {
        match self {
            Next::Parts(parts, _) => parts,
            Next::Subscribers(subscribers) => subscribers.parts(),
            Next::Nothing | Next::Crossing(_) => &[],
        }
    }

    fn parts_mut(&mut self) -> &mut [Part] {
        match self {
            Next::Parts(parts, _) => parts,
            Next::Subscribers(subscribers) => subscribers.parts_mut(),
            Next::Nothing | Next::Crossing(_) => &mut [],
        }
    }

    fn crossings(&mut self, act: &mut dyn FnMut(&mut Crossing)) {
        match self {
            Next::Crossing(crossing) => act(crossing),
            next => {
                let parts = next.parts_mut().iter_mut();
                parts.for_each(|part| part.crossings(act));
            }
        }
    }
}

/// Gives items to several; a record is encoded once for all of them.
fn shared(items: Items<'_>, memory: &mut Vec<u8>, mut give: impl FnMut(Items<'_>)) {
    let Items::Records(records) = items else {
        return give(items);
    };
    if let [item] = records {
        let record = SharedRecord::new(item.record, core::mem::take(memory));
        give(Items::Records(&[RecordItem {
            record: &record,
            ..*item
        }]));
        *memory = record.into_memory();
        return;
    }
    let shared = records.iter();
    let shared: Vec<_> = shared
        .map(|item| SharedRecord::new(item.record, Vec::new()))
        .collect();
    let items = records.iter().zip(&shared);
    let items: Vec<_> = items
        .map(|(item, record)| RecordItem { record, ..*item })
        .collect();
    give(Items::Records(&items));
}

/// Stacks that leave while others run on.
pub(super) struct Leaving<'a> {
    pub(super) who: &'a dyn Fn(&Member) -> bool,
    /// The capture clock.
    pub(super) now: Nanos,
    /// What is known of their components at their end.
    pub(super) counts: Vec<Count>,
}

/// What is known of a component while it runs.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// Whose it is.
    pub(super) stack: usize,
    pub(super) id: NodeId,
    pub(super) passed: Passed,
    pub(super) result: Option<ResultValue>,
    /// The same for each key, where that is wanted.
    pub(super) by_key: Option<Table>,
    pub(super) account: Option<Box<Account>>,
}

/// Counters of a component; its result only if it is a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Index of the stack.
    pub stack: usize,
    /// The component.
    pub id: NodeId,
    /// Number of its input items.
    pub items: u64,
    /// Its result, if it is a number.
    pub value: Option<ResultValue>,
    /// Number of rows of its result, if it is a table that can be read as it grows.
    pub rows: usize,
}

/// A result that its component has forgotten.
#[derive(Debug)]
pub(super) struct Taken {
    /// Whose it was.
    pub(super) stack: usize,
    pub(super) id: NodeId,
    pub(super) result: ResultValue,
}

impl Number {
    pub(super) fn of(count: &Count) -> Number {
        let (value, rows) = match &count.result {
            Some(ResultValue::Table(table)) => (None, table.rows.len()),
            number => (number.clone(), 0),
        };
        Number {
            stack: count.stack,
            id: count.id,
            items: count.passed.items,
            value,
            rows,
        }
    }
}

impl Part {
    pub(super) fn new(members: Vec<Member>, graph: Graph<Next>, common: &Arc<Common>) -> Part {
        Part {
            members,
            graph,
            row: None,
            before: BTreeMap::new(),
            common: Arc::clone(common),
            interests: Vec::new(),
            is_by_group: false,
            is_ending: false,
            is_over: false,
        }
    }

    /// Which packets are its own where there are several workers.
    pub(super) fn with_groups(self, is_by_group: bool) -> Part {
        Part {
            is_by_group,
            ..self
        }
    }

    /// Whether its packets are those that a worker gets with groups.
    pub(super) fn is_by_group(&self) -> bool {
        self.is_by_group
    }

    /// It has these components.
    pub(super) fn with_row(self, row: Row) -> Part {
        Part {
            row: Some(row),
            ..self
        }
    }

    /// What has passed a component since a stack of its began.
    fn passed(&self, member: &Member, id: NodeId, passed: Passed) -> Passed {
        let before = self.before.get(&member.number);
        let before = before.and_then(|before| before.get(id.index()));
        before.map_or(passed, |before| Passed {
            items: passed.items - before.items.min(passed.items),
            batches: passed.batches - before.batches.min(passed.batches),
        })
    }

    /// Whether it is an engine that all have left, for new ones to join.
    pub(super) fn has_nobody(&self) -> bool {
        self.members.is_empty()
    }

    /// Components that work in intervals look at the clock before their first packet.
    pub(super) fn begin_at(&mut self, now: Option<Nanos>) {
        if let Some(now) = now.filter(|now| *now > Nanos(0)) {
            self.advance(now);
        }
    }

    /// Does something with the engine that a stack subscribes to with its first component. Whether it is here.
    pub(super) fn with_engine(&mut self, number: usize, act: &mut dyn FnMut(&mut Engine)) -> bool {
        if !self.members.iter().any(|member| member.number == number) {
            return false;
        }
        let engine = match self.graph.engine().is_some() {
            true => self.graph.engine_mut(),
            false => match self.graph.tail_mut() {
                Next::Subscribers(subscribers) => Some(subscribers.engine_mut()),
                next => {
                    let mut parts = next.parts_mut().iter_mut();
                    return parts.any(|part| part.with_engine(number, act));
                }
            },
        };
        let found = engine.is_some();
        engine.into_iter().for_each(act);
        found
    }

    /// What it computes for which stacks, by their numbers.
    pub(super) fn shared(&self) -> Shared {
        let row = self.row.iter();
        let components = row.flat_map(|row| row.components.clone().filter_map(|at| row.at(at)));
        let within = |id| {
            self.row
                .iter()
                .flat_map(move |row| row.first.of.subtree(id))
        };
        let tail = self.graph.tail();
        Shared {
            stacks: self.members.iter().map(|member| member.number).collect(),
            components: components.flat_map(within).map(NodeId).collect(),
            is_engine: matches!(tail, Next::Subscribers(_)),
            next: tail.parts().iter().map(Part::shared).collect(),
        }
    }

    /// Opens what components need; a stack with one that cannot begin has failed.
    pub(super) fn start(&mut self) {
        let started = self.graph.start();
        self.note(started);
        self.parts().iter_mut().for_each(Part::start);
    }

    /// Whose it is.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Takes out what is of stacks that leave. Of components that they share with others they get copies, which go on from
    /// here; what comes of an engine that they share comes at once.
    pub(super) fn split(parts: &mut Vec<Part>, leaving: &mut Leaving<'_>) -> Vec<Part> {
        let mut left = Vec::new();
        for mut part in core::mem::take(parts) {
            if part.members.iter().all(leaving.who) {
                left.push(part);
                continue;
            }
            left.extend(part.copy(leaving));
            parts.push(part);
        }
        left
    }

    /// A copy for those of its stacks that leave, if any does.
    pub(super) fn copy(&mut self, leaving: &mut Leaving<'_>) -> Option<Part> {
        if !self.members.iter().any(leaving.who) {
            return None;
        }
        self.share_engine();
        let who = leaving.who;
        let members = core::mem::take(&mut self.members).into_iter();
        let (members, others): (Vec<Member>, Vec<Member>) = members.partition(who);
        self.members = others;
        let before = members.iter();
        let before = before.filter_map(|it| self.before.remove_entry(&it.number));
        let before = before.collect();
        let tail = self.graph.tail_mut().split(leaving);
        Some(Part {
            members,
            graph: self.graph.fork(tail),
            row: self.row.clone(),
            before,
            common: Arc::clone(&self.common),
            interests: self.interests.clone(),
            ..*self
        })
    }

    /// The input is over for what was taken out, with the capture clock at `now`. If its engine `goes_on`, that is left.
    pub(super) fn leave(mut self, leaving: &mut Leaving<'_>, goes_on: bool) -> Option<Part> {
        if goes_on {
            self.share_engine();
            self.graph.tail_mut().split(leaving);
            self.members.clear();
            return Some(self);
        }
        self.finish(leaving.now);
        self.counts(&mut |count| leaving.counts.push(count));
        None
    }

    /// Whether there is nothing to do any more.
    pub(super) fn is_over(&mut self) -> bool {
        if !self.is_over && self.members.iter().all(Member::is_over) {
            self.is_over = true;
            self.crossings(&mut Crossing::close);
        }
        self.is_over
    }

    /// Whether it does anything with further input.
    pub(super) fn wants_input(&self) -> bool {
        self.members.iter().any(Member::wants_input)
    }

    #[inline]
    fn note(&mut self, result: Result<(), ComponentFailure>) {
        if result.is_err() || self.graph.has_enough() || self.graph.is_over() {
            self.settle(result);
        }
    }

    /// A component failed, or needs no further input, or nobody wants what comes.
    #[cold]
    fn settle(&mut self, result: Result<(), ComponentFailure>) {
        if self.graph.has_enough() {
            for member in &self.members {
                self.common.satisfy(member);
            }
        }
        if result.is_err() || self.graph.is_over() {
            self.is_over = true;
            for member in &self.members {
                self.common.end(member, result.clone().err());
            }
            self.crossings(&mut Crossing::close);
        }
    }

    fn crossings(&mut self, act: &mut dyn FnMut(&mut Crossing)) {
        self.graph.tail_mut().crossings(act);
    }

    fn parts(&mut self) -> &mut [Part] {
        self.graph.tail_mut().parts_mut()
    }

    /// Tells what its engine wants of flows, and which of its parts want all packets: those of one thread are told by `own` if
    /// that is.
    pub(super) fn set_offload(&mut self, all: &[Verdicts], own: Option<usize>) {
        let own = own.and_then(|own| all.get(own));
        let all = own.map_or(all, core::slice::from_ref);
        let mut counts_packets = self.graph.counts_packets();
        if let Some(own) = own {
            if let Next::Subscribers(subscribers) = self.graph.tail_mut() {
                subscribers.engine_mut().set_offload(own);
                // Each may go, and the engine stay.
                let counting = subscribers.parts_mut().iter_mut();
                return counting
                    .filter(|part| part.graph.counts_packets())
                    .for_each(|part| part.want_all(all));
            }
            counts_packets |= !self.graph.set_offload(own);
        } else {
            counts_packets = true;
        }
        if counts_packets {
            self.want_all(all);
        }
    }

    fn want_all(&mut self, all: &[Verdicts]) {
        self.interests = all.iter().map(Verdicts::interest).collect();
    }

    /// Its first component, where that subscribes to an engine that it shares.
    pub(super) fn subscriber(&self) -> Option<NodeId> {
        self.graph.subscriber()
    }

    /// Which events of the engine that it shares it wants.
    pub(super) fn wants(&mut self) -> Wants {
        self.graph.wants()
    }

    /// A step of the engine that it shares begins. Returns which events it wants; `None`: it does nothing with further input.
    pub(super) fn begin_step(&mut self, step: &Step<'_, '_>, clock: Nanos) -> Option<Wants> {
        if self.is_over() {
            return None;
        }
        let wants = self.graph.begin_step(step, clock);
        self.wants_input().then_some(wants)
    }

    /// Takes an event of the engine that it shares.
    #[inline]
    pub(super) fn event(&mut self, feed: Feed<'_, '_>) {
        self.graph.event(feed);
    }

    /// The step is over.
    pub(super) fn end_step(&mut self, step: &Step<'_, '_>, engine: &Engine) {
        if !self.is_over() {
            self.measured(|part| {
                let result = part.graph.end_step(step, engine);
                if result.is_err() || !matches!(step, Step::Finish) {
                    part.note(result);
                }
            });
        }
        if let Step::Finish = step {
            self.parts().iter_mut().for_each(Part::finish_all);
        }
    }

    /// What comes belongs to this batch.
    pub(super) fn begin(&mut self, batch: &Arc<SharedBatch>) {
        self.crossings(&mut |crossing| crossing.begin(batch));
    }

    /// Does some of its work. What that costs, without what the parts behind it do, its stacks share evenly.
    #[inline]
    pub(super) fn measured(&mut self, work: impl FnOnce(&mut Part)) {
        if !meter::is_on() {
            return work(self);
        }
        let cost = meter::cost(|| work(self));
        let share = cost / self.members.len().max(1) as u64;
        for member in &self.members {
            member.standing.cost.fetch_add(share, Ordering::Relaxed);
        }
    }

    /// Whether all of its stacks are to rest, which do not get these packets then.
    fn rests(&self, packets: Selection) -> bool {
        let rests = |member: &Member| member.standing.is(RESTS);
        if self.is_ending || self.members.is_empty() || !self.members.iter().all(rests) {
            return false;
        }
        let missed = packets.len() as u64;
        for member in &self.members {
            member.standing.missed.fetch_add(missed, Ordering::Relaxed);
        }
        true
    }

    /// Whether it takes packets of a batch as they are, as most parts do.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        let mut members = self.members.iter();
        !self.is_over
            && !self.members.is_empty()
            && members.all(|member| !member.standing.is(u8::MAX))
    }

    /// Takes packets of a batch, and the clock wherever it comes to between them.
    pub(super) fn pieces(&mut self, mut packets: Packets<'_>, pieces: &[Cut]) {
        if self.rests(packets.selected) {
            packets.selected = Selection::NONE;
        }
        // Most batches are one piece.
        if let [Cut { clock: None, .. }] = pieces {
            if !packets.selected.is_empty() && self.wants_input() {
                self.packets(&packets);
            }
            return;
        }
        let mut left = packets.selected;
        for piece in pieces {
            if let Some(now) = piece.clock {
                self.advance(now);
            }
            // A component that looks at the clock may have enough.
            if !self.wants_input() {
                left = Selection::NONE;
            }
            let selected = left.and(Selection::first(usize::from(piece.end)));
            left = left.without(selected);
            if !selected.is_empty() {
                self.packets(&Packets {
                    selected,
                    ..packets
                });
            }
        }
    }

    #[inline]
    pub(super) fn packets(&mut self, packets: &Packets<'_>) {
        if !self.is_over {
            let result = self.graph.packets(packets);
            self.note(result);
        }
    }

    /// The result, as it is now, of a component on a thread before this one.
    pub(super) fn set_result(&mut self, id: NodeId, result: &ResultValue) {
        self.graph.set_result(id, result.clone());
    }

    /// Takes items.
    pub(super) fn feed(&mut self, items: Items<'_>) {
        if self.is_over() {
            return;
        }
        if let Items::Packets(packets) = &items {
            self.packets(packets);
        } else {
            let result = self.graph.feed(items);
            self.note(result);
        }
    }

    /// The capture clock goes on: components look at it.
    pub(super) fn advance(&mut self, now: Nanos) {
        if !self.is_over() {
            let result = self.graph.advance(now);
            self.note(result);
        }
    }

    /// Sends what the batch left to the next stage.
    pub(super) fn send(&mut self, ends: Ends) {
        self.crossings(&mut |crossing| crossing.send(ends));
    }

    /// Whether more is on its way to other threads than may be.
    pub(super) fn is_ahead(&mut self) -> bool {
        let mut is_over = false;
        self.crossings(&mut |crossing| is_over |= crossing.is_over());
        is_over
    }

    /// Sends on what is gathered for other threads.
    pub(super) fn flush(&mut self) {
        self.crossings(&mut Crossing::flush);
    }

    /// Waits until no more is on its way to other threads than may be.
    pub(super) fn wait(&mut self) {
        self.crossings(&mut Crossing::wait);
    }

    /// Whether any component looks at the clock, and the lengths of the intervals at whose ends some
    /// do.
    pub(super) fn times(&self, is_timed: &mut bool, intervals: &mut Vec<Nanos>) {
        *is_timed |= self.graph.is_timed();
        intervals.extend(self.graph.intervals());
        for part in self.graph.tail().parts() {
            part.times(is_timed, intervals);
        }
    }

    /// The source that the part begins with goes by the clocks of all parts of its stack.
    pub(super) fn set_looks(&mut self, is_timed: bool, intervals: &[Nanos]) {
        self.graph.set_looks(is_timed, intervals);
    }

    /// Lets the source that the part begins with take what there is.
    pub(super) fn receive(&mut self, wait: Duration) -> Received {
        if self.is_over() {
            return Received::End;
        }
        match self.graph.receive(wait) {
            Ok(received) => {
                self.note(Ok(()));
                received
            }
            Err(failure) => {
                self.note(Err(failure));
                Received::End
            }
        }
    }

    /// The capture clock.
    pub(super) fn now(&self) -> Nanos {
        self.graph.now()
    }

    /// The input is over, with the capture clock at `now`.
    pub(super) fn finish(&mut self, now: Nanos) {
        self.advance(now);
        self.begin_finish();
        self.finish_all();
        self.end_finish();
    }

    /// The input is over: what components before it keep comes.
    pub(super) fn begin_finish(&mut self) {
        self.crossings(&mut Crossing::begin_end);
        self.begin_end();
    }

    /// All that was kept has come.
    pub(super) fn end_finish(&mut self) {
        self.crossings(&mut |crossing| crossing.send(Ends::Input));
    }

    /// The same where what comes is of another thread's end.
    pub(super) fn begin_end(&mut self) {
        self.is_ending = true;
        self.graph.begin_finish();
        self.parts().iter_mut().for_each(Part::begin_end);
    }

    fn finish_all(&mut self) {
        if !self.is_over() {
            let result = self.graph.finish();
            if result.is_err() {
                self.note(result);
            }
        }
        match self.graph.tail_mut() {
            Next::Subscribers(subscribers) => subscribers.step(&Step::Finish),
            next => next.parts_mut().iter_mut().for_each(Part::finish_all),
        }
    }
}

impl Counts for Part {
    /// What is known of all components, for each stack that has them.
    fn counts(&self, give: &mut dyn FnMut(Count)) {
        self.graph.read(&mut |id, passed, result| {
            let by_key = self.graph.result_by_key(id);
            for member in &self.members {
                give(Count {
                    stack: member.number,
                    id,
                    passed: self.passed(member, id, passed),
                    result: result.clone(),
                    by_key: by_key.clone(),
                    account: self.graph.account(id),
                });
            }
        });
        match self.graph.tail() {
            Next::Subscribers(subscribers) => subscribers.counts(give),
            next => next.parts().iter().for_each(|part| part.counts(give)),
        }
    }

    fn numbers(&self, give: &mut dyn FnMut(Number)) {
        self.graph.numbers(&mut |id, items, value, rows| {
            for member in &self.members {
                let passed = Passed { items, batches: 0 };
                give(Number {
                    stack: member.number,
                    id,
                    items: self.passed(member, id, passed).items,
                    value: value.clone(),
                    rows,
                });
            }
        });
        let parts = self.graph.tail().parts().iter();
        parts.for_each(|part| part.numbers(give));
    }

    fn take(&mut self, stack: usize, id: NodeId, give: &mut dyn FnMut(Taken)) {
        if self.members.iter().any(|member| member.number == stack) {
            let taken = self.graph.take(id);
            taken
                .into_iter()
                .for_each(|result| give(Taken { stack, id, result }));
        }
        for part in self.parts() {
            part.take(stack, id, give);
        }
    }

    fn reset(&mut self) {
        self.graph.reset();
        self.before.clear();
        for part in self.parts() {
            part.reset();
        }
    }
}
