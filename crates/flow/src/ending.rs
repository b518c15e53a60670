//! How flows leave the table (timeouts, eviction, the end of the input), and how their records are delivered.

use flowgauge_wire::{Direction, FlowKey, Nanos};

use crate::extra::{Extra, NO_EXTRA};
use crate::flow::{Flow, FlowFlags};
use crate::index::Index;
use crate::packet_flow::FlowId;
use crate::record::{EndReason, FlowIdentity, FlowRecord, FlowSide};
use crate::tracker::{CLASSES, Class, FlowTracker};
use crate::wheel::{NONE, TICK_SHIFT, Wheel};

/// Flows that have timed out are ended in portions, one per batch: as many as stay in the cache
/// until their records are given out, and more than a batch can create.
pub(crate) const END_PER_BATCH: usize = 1024;

/// Flows that are brought closer together.
const GROUP: usize = 16;
/// So many flows before one is given out its caller can fetch what it keeps of it, step by step.
const STEPS: [usize; 3] = [GROUP, GROUP / 2, GROUP / 4];

/// Classes in which the longest idle flow is evicted, from the first that has one.
const EVICTION: [&[Class]; 2] = [
    &[Class::TcpAttempt, Class::UdpAttempt, Class::OtherAttempt],
    &[
        Class::Tcp,
        Class::Udp,
        Class::Other,
        Class::Closed,
        Class::Own,
    ],
];

/// A flow that has ended, or whose record was cut ([`EndReason::Active`]).
#[derive(Clone, Copy, Debug)]
pub struct EndedFlow<'a> {
    id: FlowId,
    reason: EndReason,
    at: Nanos,
    flow: &'a Flow,
    extra: Option<&'a Extra>,
}

impl EndedFlow<'_> {
    /// Its number, which is free after the call, unless its record was only cut.
    #[inline(always)]
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// The reason.
    #[inline(always)]
    pub fn reason(&self) -> EndReason {
        self.reason
    }

    /// Its key.
    pub fn key(&self) -> &FlowKey {
        &self.flow.hot.key
    }

    /// IP protocol number.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.flow.hot.key.protocol
    }

    /// The capture clock when the flow ended, or its record was cut.
    #[inline]
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Time of its last packet.
    #[inline]
    pub fn end(&self) -> Nanos {
        self.flow.record_end()
    }

    /// Whether the whole three-way handshake of a TCP flow was seen.
    pub fn is_handshake_complete(&self) -> bool {
        self.flow.hot.flags.has(FlowFlags::RTT)
    }

    /// Its identity, without creating the record.
    pub fn identity(&self) -> FlowIdentity {
        self.flow.identity()
    }

    /// Counters of a direction, without creating the record.
    pub fn side(&self, direction: Direction) -> FlowSide {
        self.flow.side(direction.index(), self.extra)
    }

    /// Its record, which is created for the call.
    #[inline]
    pub fn with_record<R>(&self, read: impl FnOnce(&FlowRecord<'_>) -> R) -> R {
        self.flow.with_record(self.extra, self.reason, read)
    }
}

/// Receives flows that have ended.
pub trait Taker {
    /// Prefetches the state of this flow, which is delivered soon. Called with steps from 0 to 2, so that each step
    /// finds what the previous one prefetched.
    fn fetch(&mut self, id: FlowId, step: usize);

    /// Receives a flow.
    fn take(&mut self, flow: &EndedFlow<'_>);
}

/// Takes records, and has nothing to fetch.
struct Take<F>(F);

impl<F: FnMut(FlowId, &FlowRecord<'_>)> Taker for Take<F> {
    #[inline(always)]
    fn fetch(&mut self, _: FlowId, _: usize) {}

    #[inline(always)]
    fn take(&mut self, flow: &EndedFlow<'_>) {
        flow.with_record(|record| self.0(flow.id, record));
    }
}

impl FlowTracker {
    /// Ends the input: all flows end with the next [`FlowTracker::drain_ended`].
    pub fn finish(&mut self) {
        // What has timed out has ended by that, whatever batch it would have been ended in.
        self.end_due();
        self.count_late(Nanos(u64::MAX));
        self.finished = true;
    }

    /// Whether [`FlowTracker::drain_ended`] has records to deliver.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.cuts.is_empty() || (self.finished && !self.index.is_empty())
    }

    /// Delivers the records completed since the last call, first those that were only cut, then the others in the
    /// order in which they ended, and frees their ids. A record with [`EndReason::Active`] was cut: its flow and id
    /// continue.
    pub fn drain_ended(&mut self, take: impl FnMut(FlowId, &FlowRecord<'_>)) {
        self.drain_ended_to(&mut Take(take));
    }

    /// [`FlowTracker::drain_ended`] for callers that prefetch state for each flow, or do not need all records.
    pub fn drain_ended_to(&mut self, taker: &mut impl Taker) {
        let now = self.clock();
        for (id, flow) in self.cuts.drain(..) {
            taker.take(&EndedFlow {
                id,
                at: now,
                reason: EndReason::Active,
                flow: &flow,
                extra: self.extras.get(flow.cold.extra),
            });
        }
        let ended = core::mem::take(&mut self.ended);
        let id = |at: usize| ended.get(at).map(|&(id, ..)| id);
        self.fetch_first(id, taker);
        for (at, &(flow, reason, time)) in ended.iter().enumerate() {
            self.fetch_ahead(at, id, taker);
            self.give_out(flow.0, reason, time, taker);
        }
        self.ended = ended;
        self.ended.clear();
        if self.finished {
            self.drain_all(taker);
        }
    }

    /// Brings ended flows closer, before the first is given out.
    fn fetch_first(&self, id: impl Fn(usize) -> Option<FlowId>, taker: &mut impl Taker) {
        for (step, ahead) in STEPS.into_iter().enumerate() {
            for id in (0..ahead).map_while(&id) {
                self.fetch_ended(id, step, taker);
            }
        }
    }

    /// The same before the one at `at` is.
    #[inline(always)]
    fn fetch_ahead(&self, at: usize, id: impl Fn(usize) -> Option<FlowId>, taker: &mut impl Taker) {
        for (step, ahead) in STEPS.into_iter().enumerate() {
            if let Some(id) = id(at + ahead) {
                self.fetch_ended(id, step, taker);
            }
        }
    }

    #[inline(always)]
    fn fetch_ended(&self, id: FlowId, step: usize, taker: &mut impl Taker) {
        if step == 0 {
            Flow::prefetch_place(self.flows.address(id.0));
        }
        taker.fetch(id, step);
    }

    /// Ends everything, in the order of the flows' beginnings: ids tell how the input was cut into
    /// batches, records must not.
    fn drain_all(&mut self, taker: &mut impl Taker) {
        self.finished = false;
        self.overdue = false;
        self.held_syns.clear();
        self.statistics.most_probes = self.statistics().most_probes;
        self.index = Index::new();
        self.wheels = self.timeouts.map(|timeout| Wheel::new(timeout.0));
        let left = self.in_order();
        let ahead = |at: usize| left.get(at).copied();
        self.fetch_first(ahead, taker);
        for (at, &FlowId(id)) in left.iter().enumerate() {
            self.fetch_ahead(at, ahead, taker);
            let flow = self.flows.at(id);
            let reason = closed_reason(flow).unwrap_or(EndReason::EndOfInput);
            flow.hot.flags.clear(FlowFlags::LIVE);
            self.give_out(id, reason, self.clock(), taker);
        }
    }

    /// The flows in the table, in the order of their beginnings.
    fn in_order(&self) -> Vec<FlowId> {
        let live = |id: u32| {
            let flow = self.flows.get(id)?;
            let is_live = flow.hot.flags.has(FlowFlags::LIVE);
            // Beginning and number as one number: sorted without a branch that nobody can guess.
            is_live.then(|| u128::from(flow.cold.start.0) << 32 | u128::from(id))
        };
        let mut left = Vec::with_capacity(self.flows.len() as usize);
        left.extend((0..self.flows.len()).filter_map(live));
        left.sort_unstable();
        for same in left.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
            if same.len() > 1 {
                let key = |&flow: &u128| self.flows.get(flow as u32).map(|flow| flow.hot.key);
                same.sort_unstable_by_key(key);
            }
        }
        left.into_iter().map(|flow| FlowId(flow as u32)).collect()
    }

    /// Ends flows that have timed out, which is otherwise done in portions; results do not depend on when this is
    /// called.
    pub fn end_due(&mut self) {
        if self.overdue {
            self.end_overdue(usize::MAX);
        }
    }

    /// Shows the flows in the table as they would be delivered at the end of the input. They stay in the table.
    pub fn show_open(&self, taker: &mut impl Taker) {
        let left = self.in_order();
        let ahead = |at: usize| left.get(at).copied();
        self.fetch_first(ahead, taker);
        for (at, &id) in left.iter().enumerate() {
            self.fetch_ahead(at, ahead, taker);
            if let Some(flow) = self.flows.get(id.0) {
                taker.take(&EndedFlow {
                    id,
                    reason: closed_reason(flow).unwrap_or(EndReason::EndOfInput),
                    at: self.clock(),
                    flow,
                    extra: self.extras.get(flow.cold.extra),
                });
            }
        }
    }

    #[inline(always)]
    fn give_out(&mut self, id: u32, reason: EndReason, at: Nanos, taker: &mut impl Taker) {
        let flow = self.flows.at(id);
        let extra = core::mem::replace(&mut flow.cold.extra, NO_EXTRA);
        taker.take(&EndedFlow {
            id: FlowId(id),
            reason,
            at,
            flow,
            extra: self.extras.get(extra),
        });
        self.free.push(id);
        if extra != NO_EXTRA {
            self.extras.free(extra);
        }
    }

    /// Ends flows that the clock's tick makes time out, about `most` at once.
    #[cold]
    pub(crate) fn end_overdue(&mut self, most: usize) {
        let mut looked_at = 0;
        for class in 0..CLASSES {
            while looked_at < most {
                let mut due = [NONE; GROUP];
                let count = self.wheels[class].due(&mut self.links, self.tick, &mut due);
                if count == 0 {
                    break;
                }
                looked_at += count;
                let due = due.get(..count).unwrap_or(&[]);
                for flow in due.iter().filter_map(|&id| self.flows.get(id)) {
                    flow.prefetch_whole();
                }
                for flow in due.iter().filter_map(|&id| self.flows.get(id)) {
                    self.index.prefetch(flow.tag());
                }
                // The next group of the bucket is behind this one's last: finding it takes one
                // miss after the other, meanwhile.
                let mut ahead = due.last().map_or(NONE, |&last| self.next_of(last));
                for &id in due {
                    if ahead != NONE {
                        Flow::prefetch_place(self.flows.address(ahead));
                        ahead = self.next_of(ahead);
                    }
                    self.look_at_due(class, id);
                }
            }
        }
        self.overdue = looked_at >= most;
    }

    /// The flow behind this one in its bucket.
    #[inline(always)]
    fn next_of(&self, id: u32) -> u32 {
        self.links.get(id).map_or(NONE, |link| link.next)
    }

    /// Ends a flow of a bucket whose time has come, or hangs it where it belongs.
    #[inline(always)]
    fn look_at_due(&mut self, class: usize, id: u32) {
        let flow = self.flows.at(id);
        // Its packets' own times count, too, as they do when one more comes: the clock may have
        // been behind them, waiting for a far jump to be confirmed.
        let own = (flow.last().0 >> TICK_SHIFT).min(u64::from(self.tick)) as u32;
        let last_tick = flow.hot.last_tick.max(own);
        flow.hot.last_tick = last_tick;
        let look_at = self.look_at(class, id);
        if self.wheels[class].is_due(look_at, self.tick) {
            self.end(id, EndReason::Idle);
        } else {
            self.hang_again(class, id, look_at.min(self.tick));
        }
    }

    /// Hangs a flow of the wheel of `class` into the bucket of `tick`, and where it hangs among attempts
    /// without being one any more, into that of its protocol.
    fn hang_again(&mut self, class: usize, id: u32, tick: u32) {
        self.wheels[class].remove(&mut self.links, id);
        let flow = self.flows.at(id);
        flow.settle();
        match Class::of(flow) as usize {
            same if same == class => self.wheels[class].insert(&mut self.links, id, tick),
            other => self.wheels[other].insert_old(&mut self.links, id, tick),
        }
    }

    /// Makes room in a full table: ends what has timed out, or else the attempt that has been idle
    /// longest, or without attempts the flow.
    #[cold]
    pub(crate) fn make_room(&mut self) {
        if self.overdue {
            let before = self.index.len();
            self.end_overdue(usize::MAX);
            if self.index.len() < before {
                return;
            }
        }
        for classes in EVICTION {
            if let Some(id) = self.longest_idle(classes) {
                self.statistics.evicted += 1;
                self.end(id, EndReason::Evicted);
                return;
            }
        }
    }

    /// The flow of these classes that has been idle longest.
    fn longest_idle(&mut self, classes: &[Class]) -> Option<u32> {
        let mut longest: Option<(u32, u32)> = None;
        for &class in classes {
            let class = class as usize;
            // Flows seen since they were last looked at move to where they belong.
            while let Some((id, tick)) = self.wheels[class].oldest() {
                let flow = self.flows.at(id);
                let last_tick = flow.hot.last_tick;
                flow.settle();
                if last_tick <= tick && Class::of(flow) as usize == class {
                    if longest.is_none_or(|(_, longest)| last_tick < longest) {
                        longest = Some((id, last_tick));
                    }
                    break;
                }
                self.hang_again(class, id, last_tick);
            }
        }
        longest.map(|(id, _)| id)
    }

    /// Takes a flow out of the table and queues its record. What had closed before has ended by
    /// that, whatever takes it out now.
    pub(crate) fn end(&mut self, id: u32, reason: EndReason) {
        if !self.withheld.is_empty() {
            self.catch_up(id, |_| true);
        }
        let flow = self.flows.at(id);
        let class = Class::of(flow);
        let tag = flow.tag();
        let reason = closed_reason(flow).unwrap_or(reason);
        flow.hot.flags.clear(FlowFlags::LIVE);
        self.held_syns.forget(id);
        self.index.remove(tag, id);
        self.wheels[class as usize].remove(&mut self.links, id);
        self.ended.push((FlowId(id), reason, self.clock()));
    }
}

/// How a flow has ended by itself.
pub(crate) fn closed_reason(flow: &Flow) -> Option<EndReason> {
    let flags = flow.hot.flags;
    match (flags.has(FlowFlags::RESET), flags.has(FlowFlags::CLOSED)) {
        (true, _) => Some(EndReason::Rst),
        (false, true) => Some(EndReason::Fin),
        (false, false) => None,
    }
}
