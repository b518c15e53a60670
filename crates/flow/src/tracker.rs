//! The flow tracker: batches of decoded packets in, one flow per packet and finished records out.
//!
//! A packet passes three stages, each some packets after the previous one, so that cache misses overlap with each other
//! and with other work: prefetch its place in the index; look it up and prefetch its record; update. In the third
//! stage, packets of a regular connection, from its SYN to its FINs, take the fast path (`fast_path`), all others the
//! slow path. Flows that end are unlinked immediately but stored until [`FlowTracker::drain_ended`], so that callers
//! can index their own state by [`FlowId`]: an id never refers to two flows within a batch. Callers can do their work
//! per packet in the third stage, while the packet's and the flow's cache lines are at hand
//! ([`FlowTracker::process_with`]).
//!
//! # Who initiated
//! The sender of the first packet, except:
//! - TCP whose first packet is a SYN-ACK: its receiver.
//! - TCP captured from the middle: if the sender's port is a well-known server port, the receiver;
//!   if both ports are, the sender of the higher one.
//! - UDP whose first packet is from a well-known server port to a port that is not one (and not to
//!   the broadcast address): the receiver.
//!
//! If this rule exchanged the roles, the history begins with `^`, as in Zeek.
//!
//! # When a flow ends
//! - idle: no packets for its protocol's timeout on the capture clock;
//! - closed: both sides sent FIN, or one a valid RST, and then there were no packets for the linger
//!   time; or a new SYN reused the five-tuple: within an ongoing connection, only one that is
//!   answered (`held_syns`);
//! - evicted: the table was full. Attempts are evicted first (flows of one packet, or of nothing but
//!   SYNs and RSTs), so that a flood of them displaces no conversation; among attempts, or if there
//!   are none among the others, the one that was idle longest, to one tick (1.07 s and more for long
//!   timeouts);
//! - at the end of the input.
//!
//! The active timeout only cuts the record. All records of a connection have the same `flow_id`.

use core::cell::Cell;

use flowgauge_wire::{DecodeFlags, Decoded, Direction, FlowKey, HashSeed, Nanos, TcpFlags, Tunnel};

use crate::arena::Arena;
use crate::clock::CaptureClock;
use crate::config::FlowConfig;
use crate::ending::{END_PER_BATCH, closed_reason};
use crate::extra::Extras;
use crate::fast_path::{Quiet, is_plain_syn};
use crate::flow::{CHECKSUMS, Flow, FlowFlags, UDP};
use crate::held_syns::{HeldSyn, HeldSyns};
use crate::history::Letter;
use crate::idle::timeouts_of;
use crate::index::{Index, tag_of};
use crate::packet_flow::{FlowId, PacketFlow, PacketFlowFlags, is_counted};
use crate::ports;
use crate::record::{EndReason, FlowIdentity, FlowRecord, FlowSide};
use crate::tcp::{self, Reuse};
use crate::wheel::{Link, Links, NONE, TICK_SHIFT, Wheel};
use crate::withheld::{self, Waiting};

/// Counters of a tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Flows created.
    pub created: u64,
    /// Flows evicted because the table was full.
    pub evicted: u64,
    /// Packets with a time before the capture clock.
    pub time_backwards: u64,
    /// Packets that belong to no flow (no IP, excluded).
    pub without_flow: u64,
    /// Maximum number of flows at the same time.
    pub most_flows: u64,
    /// Maximum number of index slots inspected to insert a flow. The hash is keyed, so that attackers cannot choose
    /// flows that need more than others: about sixty for a million flows, and more than 256 with a probability below
    /// 10^-14 (proof in `index.rs`).
    pub most_probes: u64,
    /// SYNs within connections that could not be held until they are answered; they do not start connections.
    pub syns_refused: u64,
}

/// Packets whose flows are looked up, and their lines asked for, in one go: few, so that the
/// processor can take note of all these requests while it works on.
const STEP: usize = 16;

/// Steps between a packet's three stages: far enough for memory to answer, and so near that the
/// lines (one of the index, four or five of a flow and its streams) are still in the first level
/// cache when the packet's turn comes.
const STEPS_AHEAD: usize = 1;

/// Flows of a table most of whose flows are not in the cache.
const LARGE: usize = 1 << 19;

/// Timeout classes, each with a wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Tcp = 0,
    Udp = 1,
    Other = 2,
    Closed = 3,
    /// Of the same timeouts as the first three, but not [confirmed](Flow::is_confirmed) when they were
    /// looked at last.
    TcpAttempt = 4,
    UdpAttempt = 5,
    OtherAttempt = 6,
    /// With a timeout of their own ([`FlowTracker::set_idle_of`]).
    Own = 7,
}

pub(crate) const CLASSES: usize = 8;

impl Class {
    /// All of them, in their order.
    pub(crate) const ALL: [Class; CLASSES] = [
        Class::Tcp,
        Class::Udp,
        Class::Other,
        Class::Closed,
        Class::TcpAttempt,
        Class::UdpAttempt,
        Class::OtherAttempt,
        Class::Own,
    ];

    /// In whose wheel the flow hangs.
    #[inline(always)]
    pub(crate) fn of(flow: &Flow) -> Class {
        let is_attempt = !flow.hot.tcp.is_settled();
        match flow.hot.key.protocol {
            tcp::PROTOCOL if flow.hot.flags.has(FlowFlags::CLOSED) => Class::Closed,
            _ if flow.has_own_timeout() => Class::Own,
            tcp::PROTOCOL if is_attempt => Class::TcpAttempt,
            tcp::PROTOCOL => Class::Tcp,
            UDP if is_attempt => Class::UdpAttempt,
            UDP => Class::Udp,
            _ if is_attempt => Class::OtherAttempt,
            _ => Class::Other,
        }
    }
}

/// A caller's work for each packet, once its flow is known, while both are in the cache.
pub trait Follower {
    /// Prefetches state for this packet: it most likely belongs to the flow `guess`, which may not exist yet. The guess
    /// may be wrong.
    fn fetch(&mut self, packet: &Decoded, guess: FlowId);

    /// Processes a packet with its flow; the tracker's state includes the packet.
    fn packet(&mut self, tracker: &FlowTracker, packet: &Decoded, flow: PacketFlow);
}

/// Nothing is done.
impl Follower for () {
    #[inline(always)]
    fn fetch(&mut self, _: &Decoded, _: FlowId) {}

    #[inline(always)]
    fn packet(&mut self, _: &FlowTracker, _: &Decoded, _: PacketFlow) {}
}

/// Follows flows through batches of decoded packets.
#[derive(Clone, Debug)]
pub struct FlowTracker {
    pub(crate) config: FlowConfig,
    pub(crate) index: Index,
    pub(crate) flows: Arena<Flow>,
    /// Each flow's place in its wheel's list: apart from the flows, so that following a list, or
    /// taking one out of the middle, touches no flow.
    pub(crate) links: Arena<Link>,
    pub(crate) extras: Extras,
    pub(crate) wheels: [Wheel; CLASSES],
    pub(crate) timeouts: [Nanos; CLASSES],
    clock: CaptureClock,
    pub(crate) quiet: Quiet,
    /// The clock's tick.
    pub(crate) tick: u32,
    /// Whether flows have timed out that are not ended yet.
    pub(crate) overdue: bool,
    pub(crate) held_syns: HeldSyns,
    /// Counts of packets that were kept away.
    pub(crate) withheld: Waiting,
    reopened: FlowId,
    /// Ended and not drained yet, and when.
    pub(crate) ended: Vec<(FlowId, EndReason, Nanos)>,
    /// Records cut by the active timeout.
    pub(crate) cuts: Vec<(FlowId, Flow)>,
    /// Places of flows that were given out, the one to be taken next last: a vector, so that it can
    /// be told ahead which places the next flows will have.
    pub(crate) free: Vec<u32>,
    pub(crate) finished: bool,
    pub(crate) statistics: FlowStatistics,
}

impl Links for Arena<Link> {
    #[inline(always)]
    fn link(&mut self, id: u32) -> &mut Link {
        self.at(id)
    }
}

impl FlowTracker {
    /// An empty tracker. It takes a few kilobytes and grows with the number of flows.
    pub fn new(config: FlowConfig) -> FlowTracker {
        let timeouts = timeouts_of(&config);
        let max_flows = config.max_flows.clamp(1, 1 << 30);
        FlowTracker {
            config: FlowConfig {
                max_flows,
                ..config
            },
            index: Index::new(),
            flows: Arena::new(max_flows as usize),
            links: Arena::new(max_flows as usize),
            extras: Extras::new(),
            wheels: timeouts.map(|timeout| Wheel::new(timeout.0)),
            timeouts,
            quiet: Quiet::of(&config, timeouts[Class::Own as usize]),
            clock: CaptureClock::new(config.led_clock),
            tick: 0,
            overdue: false,
            held_syns: HeldSyns::default(),
            withheld: Waiting::default(),
            reopened: FlowId::NONE,
            ended: Vec::new(),
            cuts: Vec::new(),
            free: Vec::new(),
            finished: false,
            statistics: FlowStatistics::default(),
        }
    }

    /// Looks up the flow of every packet, creates it if necessary, and updates it. `refs` is cleared and gets one entry
    /// per packet. `Decoded::hash` must be filled. Flows that end meanwhile are stored, and their ids not reused, until
    /// [`FlowTracker::drain_ended`].
    pub fn process(&mut self, packets: &[Decoded], tunnels: &[Tunnel], refs: &mut Vec<PacketFlow>) {
        self.process_with(packets, tunnels, refs, &mut ());
    }

    /// [`FlowTracker::process`] with a caller's work per packet, done right after the packet.
    #[inline]
    pub fn process_with(
        &mut self,
        packets: &[Decoded],
        tunnels: &[Tunnel],
        refs: &mut Vec<PacketFlow>,
        follower: &mut impl Follower,
    ) {
        // What is left from the last batch is overwritten before it is read.
        refs.resize(packets.len(), PacketFlow::NONE);
        if self.overdue {
            self.end_overdue(END_PER_BATCH);
        }
        self.index.go_on(packets.len());
        let slots = Cell::from_mut(refs.as_mut_slice()).as_slice_of_cells();
        let steps = || packets.chunks(STEP).zip(slots.chunks(STEP));
        let (mut far, mut near, mut next) = (packets.chunks(STEP), steps(), steps().skip(1));
        let is_large = self.index.len() > LARGE;
        // Flows that will likely be opened by packets that were looked up already.
        let mut coming = 0;
        for packets in far.by_ref().take(2 * STEPS_AHEAD) {
            self.fetch_index(packets);
        }
        for (packets, slots) in near.by_ref().take(STEPS_AHEAD) {
            coming = self.find_candidates(packets, slots, coming, follower);
        }
        for (step, slots) in steps() {
            if let Some(packets) = far.next() {
                self.fetch_index(packets);
            }
            if let Some((packets, slots)) = near.next() {
                coming = self.find_candidates(packets, slots, coming, follower);
            }
            if is_large && let Some((packets, slots)) = next.next() {
                self.fetch_rest(packets, slots);
            }
            for (packet, slot) in step.iter().zip(slots) {
                if !self.clock.goes_on(packet.time) {
                    self.set_clock(packet, packets);
                }
                let candidate = slot.get().id;
                coming -= u32::from(!candidate.is_some());
                let flow = self.packet(packet, candidate, tunnels);
                slot.set(flow);
                follower.packet(self, packet, flow);
            }
        }
    }

    /// Brings what the index has for packets closer.
    #[inline(always)]
    fn fetch_index(&self, packets: &[Decoded]) {
        for packet in packets {
            self.index.prefetch(tag_of(packet.hash));
        }
    }

    /// Notes each packet's most likely flow in `slots`, and brings it closer; for packets that seem
    /// to have none the place where their flow will be if those `coming` before them open one each.
    /// Returns how many are coming now.
    #[inline(always)]
    fn find_candidates(
        &self,
        packets: &[Decoded],
        slots: &[Cell<PacketFlow>],
        mut coming: u32,
        follower: &mut impl Follower,
    ) -> u32 {
        for (packet, slot) in packets.iter().zip(slots) {
            let candidate = FlowId(self.index.candidate(tag_of(packet.hash)));
            slot.set(PacketFlow {
                id: candidate,
                flags: PacketFlowFlags(0),
            });
            if candidate.is_some() {
                Flow::prefetch_for(self.flows.address(candidate.0), packet);
                follower.fetch(packet, candidate);
                continue;
            }
            let free = self.free.len() as u32;
            let place = match free.checked_sub(coming + 1) {
                Some(last) => self.free.get(last as usize).copied().unwrap_or(NONE),
                None => self.flows.len() + (coming - free),
            };
            coming += 1;
            Flow::prefetch_place(self.flows.address(place));
            follower.fetch(packet, FlowId(place));
        }
        coming
    }

    /// Brings closer what a packet needs that is the first of its kind in its flow, now that the flow's
    /// own line is there.
    #[inline(never)]
    fn fetch_rest(&self, packets: &[Decoded], slots: &[Cell<PacketFlow>]) {
        for (packet, slot) in packets.iter().zip(slots) {
            if let Some(flow) = self.flows.get(slot.get().id.0) {
                flow.prefetch_rest_for(packet);
            }
        }
    }

    /// Sets the clock by a packet of this batch. The place is found by its address, so that the loop
    /// over the batch need not count.
    #[cold]
    #[inline(never)]
    fn set_clock(&mut self, packet: &Decoded, batch: &[Decoded]) {
        let offset = core::ptr::from_ref(packet).addr() - batch.as_ptr().addr();
        let next = batch.get(offset / size_of::<Decoded>() + 1);
        self.clock.packet(packet.time, next.map(|next| next.time));
        if self.clock.tick() != self.tick {
            self.tick = self.clock.tick();
            self.overdue = true;
        }
    }

    /// Advances the capture clock of an idle live source, and ends flows that time out.
    pub fn advance(&mut self, now: Nanos) {
        self.clock.trusted(now);
        self.tick = self.clock.tick();
        self.end_overdue(usize::MAX);
    }

    /// Enters another tick of the capture clock, as given by a clock that sees all packets. Flows that time out end in
    /// portions, with the next packets.
    pub fn enter_tick(&mut self, now: Nanos) {
        if self.overdue {
            self.end_overdue(usize::MAX);
        }
        self.clock.trusted(now);
        if self.clock.tick() != self.tick {
            self.tick = self.clock.tick();
            self.overdue = true;
        }
    }

    /// The current record of a flow in the table, or of one that ended and was not drained yet.
    pub fn with_record<R>(&self, id: FlowId, read: impl FnOnce(&FlowRecord<'_>) -> R) -> Option<R> {
        let flow = self.flows.get(id.0)?;
        let reason = closed_reason(flow).unwrap_or(EndReason::Active);
        Some(flow.with_record(self.extras.get(flow.cold.extra), reason, read))
    }

    /// The identity of such a flow, without creating its record.
    pub fn identity(&self, id: FlowId) -> Option<FlowIdentity> {
        self.flows.get(id.0).map(Flow::identity)
    }

    /// The flow in the table with this key.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        let tag = tag_of(HashSeed::of_process().hash(key));
        let has_key = |id: u32| self.flows.get(id).is_some_and(|flow| flow.hot.key == *key);
        self.index.find(tag, has_key).map(FlowId)
    }

    /// The key of a flow in the table, or of one that ended and was not drained yet.
    pub fn key(&self, id: FlowId) -> Option<&FlowKey> {
        self.flows.get(id.0).map(|flow| &flow.hot.key)
    }

    /// Counters of a direction of such a flow.
    pub fn side(&self, id: FlowId, direction: Direction) -> Option<FlowSide> {
        let flow = self.flows.get(id.0)?;
        Some(flow.side(direction.index(), self.extras.get(flow.cold.extra)))
    }

    /// The current records of all flows in the table, and of ended ones whose entries were not reused yet.
    pub fn each_record(&self, mut read: impl FnMut(&FlowRecord<'_>)) {
        for id in 0..self.flows.len() {
            self.with_record(FlowId(id), &mut read);
        }
    }

    /// Whether the whole three-way handshake of a TCP flow was seen, for a flow in the table, or one that ended and was
    /// not drained yet.
    pub fn is_handshake_complete(&self, id: FlowId) -> bool {
        self.flows
            .get(id.0)
            .is_some_and(|flow| flow.hot.flags.has(FlowFlags::RTT))
    }

    /// The flow that the last packet with [`PacketFlowFlags::REOPENED`] ended. It is not drained before the end of the
    /// batch.
    pub fn reopened(&self) -> FlowId {
        self.reopened
    }

    /// Number of flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// The capture clock: the latest time seen.
    pub fn clock(&self) -> Nanos {
        self.clock.now()
    }

    /// Whether a time is in the clock's current tick, so that it causes no timeouts.
    pub fn is_in_tick(&self, time: Nanos) -> bool {
        (time.0 >> TICK_SHIFT) as u32 == self.clock.tick()
    }

    /// Counters.
    pub fn statistics(&self) -> FlowStatistics {
        FlowStatistics {
            time_backwards: self.clock.backwards,
            most_probes: self.statistics.most_probes.max(self.index.most_probes()),
            syns_refused: self.held_syns.refused,
            ..self.statistics
        }
    }

    /// The configuration.
    pub fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Changes the maximum number of flows. Those in the table stay.
    pub fn set_max_flows(&mut self, flows: u32) {
        self.config.max_flows = flows.clamp(1, 1 << 30);
    }

    /// Bytes of memory of flows and their index.
    pub fn memory_bytes(&self) -> usize {
        self.index.bytes() + self.flows.bytes() + self.extras.bytes()
    }

    /// Updates the packet's flow, which is most likely the `candidate`, and tells which it was.
    #[inline(always)]
    fn packet(&mut self, packet: &Decoded, candidate: FlowId, tunnels: &[Tunnel]) -> PacketFlow {
        match self.flows.get(candidate.0) {
            Some(flow) if flow.hot.has(&packet.key) => {}
            _ => return self.look_again(packet, tunnels),
        }
        match self.goes_on(packet, candidate) {
            Some(flow) => flow,
            None => self.slow_path(packet, candidate.0, tunnels),
        }
    }

    /// Deals with a packet of a flow that goes as it should, if it is one.
    #[inline(always)]
    fn goes_on(&mut self, packet: &Decoded, id: FlowId) -> Option<PacketFlow> {
        let flow = self.flows.get_mut(id.0)?;
        if (self.config.active).is_some_and(|active| flow.is_cut_by(packet.time, active)) {
            return None;
        }
        let mut flags = flow.goes_on(packet, self.tick, &self.quiet)?;
        flags.insert(flow.note_right(packet));
        if flags.contains(PacketFlowFlags::CLOSES) {
            self.linger(id.0);
        }
        Some(PacketFlow { id, flags })
    }

    /// A packet whose flow is not where it was looked for: it has none, or one that was created or
    /// ended earlier in this batch, or two flows have one tag.
    #[inline(never)]
    fn look_again(&mut self, packet: &Decoded, tunnels: &[Tunnel]) -> PacketFlow {
        let is_it = |id: u32| self.flows.get(id).is_some_and(|flow| flow.is(&packet.key));
        match self.index.find(tag_of(packet.hash), is_it) {
            Some(id) => match self.goes_on(packet, FlowId(id)) {
                Some(flow) => flow,
                None => self.slow_path(packet, id, tunnels),
            },
            None if is_plain_syn(packet) && self.quiet.is_any() => self.open(packet),
            None => self.slow_path(packet, NONE, tunnels),
        }
    }

    /// Records that a packet of a flow's direction has a right checksum. Returns whether it is the first one known.
    pub fn note_right(&mut self, id: FlowId, direction: Direction) -> bool {
        let is_there = self.flows.get(id.0).is_some();
        is_there && (self.flows.at(id.0).hot.tcp).note_right(direction.index(), 1) != 0
    }

    /// A flow that has just closed goes to the class of those.
    #[inline(never)]
    fn linger(&mut self, id: u32) {
        let flow = self.flows.at(id);
        flow.hot.flags.clear(FlowFlags::CLOSED);
        let class = Class::of(flow);
        flow.hot.flags.set(FlowFlags::CLOSED);
        self.wheels[class as usize].remove(&mut self.links, id);
        self.wheels[Class::Closed as usize].insert(&mut self.links, id, self.tick);
    }

    /// A SYN that opens a connection.
    #[inline(always)]
    fn open(&mut self, packet: &Decoded) -> PacketFlow {
        let id = self.place();
        let flow = self.flows.at(id);
        flow.open(packet, self.tick);
        let mut flags = flow.note_right(packet);
        flags.insert(PacketFlowFlags::NEW);
        flags.insert(PacketFlowFlags::FROM_INITIATOR);
        self.enter(packet, id, Class::TcpAttempt);
        PacketFlow {
            id: FlowId(id),
            flags,
        }
    }

    /// A packet that is not simply the next one of its flow `id`, or has none ([`NONE`]).
    #[inline(never)]
    fn slow_path(&mut self, packet: &Decoded, id: u32, tunnels: &[Tunnel]) -> PacketFlow {
        let mut id = id;
        if !self.withheld.is_empty()
            && self.catch_up(id, |counts| withheld::is_behind(packet, counts))
            && let Some(flow) = self.goes_on(packet, FlowId(id))
        {
            return flow;
        }
        let damaged = packet.flags.contains(DecodeFlags::BAD_CHECKSUM);
        if !packet.has_ip() || (packet.flags.contains(DecodeFlags::EXCLUDED) && !damaged) {
            self.statistics.without_flow += 1;
            return PacketFlow::NONE;
        }
        let side = packet.direction.index();
        let mut flags = PacketFlowFlags(0);
        if !self
            .flows
            .get(id)
            .is_some_and(|flow| flow.hot.flags.has(FlowFlags::LIVE))
        {
            // It ended earlier in this batch.
            let is_it = |id: u32| self.flows.get(id).is_some_and(|flow| flow.is(&packet.key));
            id = self.index.find(tag_of(packet.hash), is_it).unwrap_or(NONE);
        }
        let fate = match id {
            NONE => Fate::New,
            _ => self.fate(packet, id, side, damaged),
        };
        match fate {
            Fate::Same => {}
            Fate::New => {
                id = self.create(packet, side, tunnels);
                flags.insert(PacketFlowFlags::NEW);
            }
            Fate::Held => flags.insert(PacketFlowFlags::HELD_SYN),
            Fate::Reopened(held) => {
                id = self.reopen(id, &held, packet, tunnels);
                flags.insert(PacketFlowFlags::NEW);
                flags.insert(PacketFlowFlags::REOPENED);
            }
        }
        let flow = self.flows.at(id);
        flow.hot.last_tick = self.tick;
        flags.insert(flow.note_right(packet));
        let was_closed = flow.hot.flags.has(FlowFlags::CLOSED);
        let counted = flags.contains(PacketFlowFlags::HELD_SYN)
            || analyse(flow, &mut self.extras, packet, damaged, &mut flags);
        if side == flow.initiator() {
            flags.insert(PacketFlowFlags::FROM_INITIATOR);
        }
        if counted {
            if let Some(active) = self.config.active
                && flow.is_cut_by(packet.time, active)
            {
                self.cuts.push((FlowId(id), *flow));
                flow.cut();
            }
            if flow.count(packet, side) {
                self.extras.of(flow).packets_high[side] += 1;
            }
        }
        let closes = !was_closed && flow.hot.flags.has(FlowFlags::CLOSED);
        if closes {
            self.linger(id);
        }
        let is_attempt = packet.tcp_flags.intersects(TcpFlags(2 | 4));
        if !flags.contains(PacketFlowFlags::NEW) && !is_attempt && !damaged {
            self.flows.at(id).confirm();
        }
        PacketFlow {
            id: FlowId(id),
            flags,
        }
    }

    /// What a packet does to the flow `id` that has its key. Ends the flow where the packet cannot belong to it:
    /// it has been idle too long, or this is the SYN of another connection.
    fn fate(&mut self, packet: &Decoded, id: u32, side: usize, damaged: bool) -> Fate {
        let now = self.clock.now();
        let tick = self.tick;
        let flow = self.flows.at(id);
        if !self.quiet.covers(flow, tick) {
            let timeout = match Class::of(flow) {
                Class::Own => self.extras.of(flow).idle,
                class => self.timeouts[class as usize],
            };
            let seen = flow
                .last()
                .max(Nanos(u64::from(flow.hot.last_tick) << TICK_SHIFT));
            if now - seen > timeout {
                self.end(id, EndReason::Idle);
                return Fate::New;
            }
        }
        let is_segment = packet.key.protocol == tcp::PROTOCOL
            && packet.flags.contains(DecodeFlags::TRANSPORT)
            && !damaged;
        if !is_segment {
            return Fate::Same;
        }
        if let Some(held) = self.held_syns.confirmed(id, flow, packet) {
            return Fate::Reopened(held);
        }
        if !packet.tcp_flags.contains(TcpFlags::SYN) {
            return Fate::Same;
        }
        match tcp::reuse(flow, packet, side) {
            Reuse::No => Fate::Same,
            Reuse::Yes => {
                self.end(id, EndReason::Idle);
                Fate::New
            }
            Reuse::Perhaps => {
                let held = HeldSyn {
                    syn: *packet,
                    last: flow.sides[side].last,
                };
                self.held_syns.note(id, held);
                Fate::Held
            }
        }
    }

    /// A SYN within flow `id` has turned out to begin another connection: the flow ends, and the one that the SYN
    /// opens is returned, which `packet` goes on with.
    #[cold]
    fn reopen(&mut self, id: u32, held: &HeldSyn, packet: &Decoded, tunnels: &[Tunnel]) -> u32 {
        let syn = Decoded {
            // Of this batch.
            tunnel: packet.tunnel,
            ..held.syn
        };
        let side = syn.direction.index();
        self.flows.at(id).uncount(&syn, side, held.last);
        self.end(id, EndReason::Idle);
        self.reopened = FlowId(id);
        self.slow_path(&syn, NONE, tunnels).id.0
    }

    fn create(&mut self, packet: &Decoded, side: usize, tunnels: &[Tunnel]) -> u32 {
        let flipped = sender_is_server(packet);
        let initiator = side ^ usize::from(flipped);
        let tunnel = usize::from(packet.tunnel)
            .checked_sub(1)
            .and_then(|at| tunnels.get(at));
        let id = self.place();
        let flow = self.flows.at(id);
        flow.begin(packet, self.tick, initiator, flipped);
        if let Some(&tunnel) = tunnel {
            self.extras.of(flow).tunnel = Some(tunnel);
        }
        let class = Class::of(flow);
        self.enter(packet, id, class);
        id
    }

    /// Room for a flow.
    #[inline(always)]
    fn place(&mut self) -> u32 {
        if self.index.len() >= self.config.max_flows as usize {
            self.make_room();
        }
        self.free.pop().unwrap_or_else(|| {
            self.links.push(Link::NONE);
            self.flows.push(Flow::EMPTY)
        })
    }

    /// Enters a new flow in the table.
    #[inline(always)]
    fn enter(&mut self, packet: &Decoded, id: u32, class: Class) {
        self.index.insert(tag_of(packet.hash), id);
        self.wheels[class as usize].insert(&mut self.links, id, self.tick);
        self.statistics.created += 1;
        let flows = self.index.len() as u64;
        self.statistics.most_flows = self.statistics.most_flows.max(flows);
    }
}

/// What a packet does to the flow that has its key.
enum Fate {
    /// It belongs to it.
    Same,
    /// That is over: the packet begins another.
    New,
    /// It is a SYN that may begin another, if it is answered.
    Held,
    /// It answers such a one.
    Reopened(HeldSyn),
}

/// What the packet means for its flow. Returns whether it is counted.
#[inline(always)]
fn analyse(
    flow: &mut Flow,
    extras: &mut Extras,
    packet: &Decoded,
    damaged: bool,
    flags: &mut PacketFlowFlags,
) -> bool {
    let side = packet.direction.index();
    let is_tcp = packet.key.protocol == tcp::PROTOCOL;
    let whole = packet.flags.contains(DecodeFlags::TRANSPORT);
    let pieces = packet.flags.0 & (DecodeFlags::FRAGMENT.0 | DecodeFlags::REASSEMBLED.0) != 0;
    if pieces {
        extras.of(flow).fragments += u64::from(packet.frames);
    }
    if packet.vlan_count != 0 {
        flow.set_vlans(packet.vlan, packet.vlan_count);
    }
    if damaged {
        flags.insert(PacketFlowFlags::NOT_ANALYSED);
        if is_tcp || packet.key.protocol == UDP {
            tcp::count_rare(flow, CHECKSUMS, side, Letter::Checksum);
        }
        return is_counted(packet);
    }
    if is_tcp && whole {
        flow.hot.tcp_flags[side] = flow.hot.tcp_flags[side].with(packet.tcp_flags);
        if tcp::needs_extra(flow, packet, side) {
            extras.of(flow);
        }
        tcp::segment(flow, extras.existing(flow), packet, flags);
    } else if packet.key.protocol == UDP {
        flow.datagram(side);
    }
    true
}

/// Whether the first packet of a flow was sent by what is most likely the server.
fn sender_is_server(packet: &Decoded) -> bool {
    if !packet.flags.contains(DecodeFlags::TRANSPORT) {
        return false;
    }
    let ((_, source_port), (to, to_port)) = (packet.source(), packet.destination());
    match packet.key.protocol {
        tcp::PROTOCOL => {
            let syn = packet.tcp_flags.contains(TcpFlags::SYN);
            let ack = packet.tcp_flags.contains(TcpFlags::ACK);
            match (syn, ack) {
                (true, false) => false,
                (true, true) => true,
                (false, _) => ports::tcp_sender_is_server(source_port, to_port),
            }
        }
        UDP => {
            ports::udp_sender_is_server(source_port, to_port)
                && !to.0.ends_with(&[0xff, 0xff, 255, 255, 255, 255])
        }
        _ => false,
    }
}
