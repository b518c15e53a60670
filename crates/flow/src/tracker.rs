//! The flow tracker: batches of decoded packets in, one flow per packet and finished records out.
//!
//! A batch goes through three passes, so that the cache misses of 256 packets overlap: prefetch
//! where the index would have each packet; look each up and prefetch its record; update. A packet
//! that merely goes on takes a short way through the third (`Flow::goes_on`); the others, about
//! four in the life of a short connection, take the long one, which begins and ends flows. Flows
//! that end are unlinked at once but kept until [`FlowTracker::drain_ended`], so that callers can
//! keep state of their own by [`FlowId`]: an id never means two flows within a batch.
//!
//! # Who initiated
//! The sender of the first packet, except:
//! - TCP first seen by a SYN-ACK: its receiver.
//! - TCP first seen in its middle: if the sender's port is a well-known server port, the receiver;
//!   if both ports are, the sender of the higher one.
//! - UDP whose first packet comes from a well-known server port to one that is none (and not to
//!   the broadcast address): the receiver.
//!
//! Where the rule exchanged the roles the history begins with `^`, as in Zeek.
//!
//! # When a flow ends
//! - idle: nothing seen for its protocol's timeout on the capture clock;
//! - closed: both sides sent FIN, or one a RST that fits, and then nothing came for the linger
//!   time; or a new SYN took the five-tuple over;
//! - evicted: the table was full and it was idle longest, to one tick (1.07 s and more for long
//!   timeouts);
//! - at the end of the input.
//!
//! The active timeout only cuts the record. All records of a connection have the same `flow_id`.

use flowgauge_wire::{BATCH_SIZE, DecodeFlags, Decoded, Nanos, TcpFlags, Tunnel};

use crate::arena::Arena;
use crate::clock::CaptureClock;
use crate::config::FlowConfig;
use crate::extra::{Extras, NO_EXTRA};
use crate::flow::{CHECKSUMS, Flow, FlowFlags, UDP};
use crate::history::Letter;
use crate::index::{Index, tag_of};
use crate::packet_flow::{FlowId, PacketFlow, PacketFlowFlags};
use crate::ports;
use crate::record::{EndReason, FlowRecord};
use crate::tcp;
use crate::wheel::{Link, Links, NONE, TICK_SHIFT, Wheel};

/// What a tracker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Flows created.
    pub created: u64,
    /// Flows evicted because the table was full.
    pub evicted: u64,
    /// Packets whose time was before the capture clock.
    pub time_backwards: u64,
    /// Packets that belong to no flow (no IP, excluded).
    pub without_flow: u64,
    /// The most flows held at once.
    pub most_flows: u64,
}

/// Timeout classes, each with a wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Class {
    Tcp = 0,
    Udp = 1,
    Other = 2,
    Closed = 3,
}

const CLASSES: usize = 4;

impl Class {
    #[inline(always)]
    fn of(flow: &Flow) -> Class {
        match flow.hot.key.protocol {
            tcp::PROTOCOL if flow.hot.flags.has(FlowFlags::CLOSED) => Class::Closed,
            tcp::PROTOCOL => Class::Tcp,
            UDP => Class::Udp,
            _ => Class::Other,
        }
    }
}

/// Follows flows through batches of decoded packets.
#[derive(Debug)]
pub struct FlowTracker {
    config: FlowConfig,
    index: Index,
    flows: Arena<Flow>,
    extras: Extras,
    wheels: [Wheel; CLASSES],
    timeouts: [Nanos; CLASSES],
    clock: CaptureClock,
    /// A number of ticks of silence that no timeout is shorter than.
    shortest: u32,
    /// The clock's tick up to which timeouts have been dealt with.
    tick: u32,
    /// Ended and not drained yet: a list through the flows' links, whose `previous` is the reason.
    ended_first: u32,
    ended_last: u32,
    /// Records cut by the active timeout.
    cuts: Vec<(FlowId, Flow)>,
    free_flow: u32,
    finished: bool,
    statistics: FlowStatistics,
}

impl Links for Arena<Flow> {
    #[inline(always)]
    fn link(&mut self, id: u32) -> &mut Link {
        &mut self.at(id).cold.link
    }
}

impl FlowTracker {
    /// An empty tracker. It takes a few kilobytes and grows with the flows.
    pub fn new(config: FlowConfig) -> FlowTracker {
        let timeouts = [
            config.tcp_idle,
            config.udp_idle,
            config.other_idle,
            config.linger,
        ];
        let shortest = timeouts.iter().map(|timeout| timeout.0 >> TICK_SHIFT).min();
        let shortest = shortest.unwrap_or(0).min(u64::from(u32::MAX)) as u32;
        let max_flows = config.max_flows.clamp(1, 1 << 30);
        FlowTracker {
            config: FlowConfig {
                max_flows,
                ..config
            },
            index: Index::new(),
            flows: Arena::new(max_flows as usize),
            extras: Extras::new(),
            wheels: timeouts.map(|timeout| Wheel::new(timeout.0)),
            timeouts,
            shortest,
            clock: CaptureClock::default(),
            tick: 0,
            ended_first: NONE,
            ended_last: NONE,
            cuts: Vec::new(),
            free_flow: NONE,
            finished: false,
            statistics: FlowStatistics::default(),
        }
    }

    /// Looks every packet's flow up, creating it where needed, and updates it. `refs` is cleared
    /// and gets one entry per packet. `Decoded::hash` must be filled. Flows that end meanwhile are
    /// kept, and their ids not reused, until [`FlowTracker::drain_ended`].
    pub fn process(&mut self, packets: &[Decoded], tunnels: &[Tunnel], refs: &mut Vec<PacketFlow>) {
        refs.clear();
        refs.resize(packets.len(), PacketFlow::NONE);
        let mut rest = packets;
        for refs in refs.chunks_mut(BATCH_SIZE) {
            let (batch, later) = rest.split_at(refs.len());
            self.process_batch(batch, later.first(), tunnels, refs);
            rest = later;
        }
    }

    fn process_batch(
        &mut self,
        batch: &[Decoded],
        later: Option<&Decoded>,
        tunnels: &[Tunnel],
        refs: &mut [PacketFlow],
    ) {
        find_candidates(&self.index, &self.flows, batch, refs);
        for (packet, slot) in batch.iter().zip(refs) {
            if !self.clock.goes_on(packet.time) {
                self.set_clock(packet, batch, later);
            }
            self.packet(packet, slot, tunnels);
        }
    }

    /// Sets the clock by a packet of this batch. The place is found by its address, so that the loop
    /// over the batch need not count.
    #[cold]
    #[inline(never)]
    fn set_clock(&mut self, packet: &Decoded, batch: &[Decoded], later: Option<&Decoded>) {
        let offset = core::ptr::from_ref(packet).addr() - batch.as_ptr().addr();
        let next = batch.get(offset / size_of::<Decoded>() + 1).or(later);
        self.clock.packet(packet.time, next.map(|next| next.time));
        if self.clock.tick() != self.tick {
            self.turn();
        }
    }

    /// Moves the capture clock of an idle live source on, ending what times out.
    pub fn advance(&mut self, now: Nanos) {
        self.clock.trusted(now);
        self.turn();
    }

    /// The input is over: every flow ends with the next [`FlowTracker::drain_ended`].
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// The record of a flow so far: one in the table, or ended and not drained yet.
    pub fn with_record<R>(&self, id: FlowId, read: impl FnOnce(&FlowRecord<'_>) -> R) -> Option<R> {
        let flow = self.flows.get(id.0)?;
        let reason = closed_reason(flow).unwrap_or(EndReason::Active);
        Some(flow.with_record(self.extras.get(flow.cold.extra), reason, read))
    }

    /// Gives out the records complete since the last call, those that were only cut first and then
    /// in the order they ended, and frees their ids. A record with [`EndReason::Active`] was cut:
    /// its flow and id live on.
    pub fn drain_ended(&mut self, mut take: impl FnMut(FlowId, &FlowRecord<'_>)) {
        for (id, flow) in self.cuts.drain(..) {
            flow.with_record(
                self.extras.get(flow.cold.extra),
                EndReason::Active,
                |record| take(id, record),
            );
        }
        let mut id = core::mem::replace(&mut self.ended_first, NONE);
        self.ended_last = NONE;
        while id != NONE {
            let Link { next, previous } = *self.flows.link(id);
            if let Some(flow) = self.flows.get(next) {
                flow.prefetch_whole();
            }
            self.give_out(id, reason_from(previous), &mut take);
            id = next;
        }
        if self.finished {
            self.drain_all(take);
        }
    }

    /// Ends everything, in the order of the flows' beginnings: ids tell how the input was cut into
    /// batches, records must not.
    fn drain_all(&mut self, mut take: impl FnMut(FlowId, &FlowRecord<'_>)) {
        self.finished = false;
        self.index = Index::new();
        self.wheels = self.timeouts.map(|timeout| Wheel::new(timeout.0));
        let mut left = Vec::with_capacity(self.flows.len() as usize);
        for id in 0..self.flows.len() {
            let flow = self.flows.at(id);
            if flow.hot.flags.has(FlowFlags::LIVE) {
                left.push((flow.cold.start, id));
            }
        }
        let flows = &self.flows;
        let key = |id: u32| flows.get(id).map(|flow| flow.hot.key);
        left.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1))));
        for (at, &(_, id)) in left.iter().enumerate() {
            if let Some(next) = left.get(at + 4).and_then(|&(_, next)| self.flows.get(next)) {
                next.prefetch_whole();
            }
            let flow = self.flows.at(id);
            let reason = closed_reason(flow).unwrap_or(EndReason::EndOfInput);
            flow.hot.flags.clear(FlowFlags::LIVE);
            self.give_out(id, reason, &mut take);
        }
    }

    /// The flows that [`FlowTracker::drain_ended`] will give out as ended, in that order (at the
    /// end of the input only those that ended before it): to fetch what is kept for them.
    pub fn ended(&self) -> impl Iterator<Item = FlowId> {
        core::iter::successors(Some(self.ended_first), |&id| {
            self.flows.get(id).map(|flow| flow.cold.link.next)
        })
        .take_while(|&id| id != NONE)
        .map(FlowId)
    }

    fn give_out(
        &mut self,
        id: u32,
        reason: EndReason,
        take: &mut impl FnMut(FlowId, &FlowRecord<'_>),
    ) {
        let flow = self.flows.at(id);
        let extra = core::mem::replace(&mut flow.cold.extra, NO_EXTRA);
        flow.with_record(self.extras.get(extra), reason, |record| {
            take(FlowId(id), record)
        });
        flow.cold.link = Link {
            next: self.free_flow,
            previous: NONE,
        };
        self.free_flow = id;
        if extra != NO_EXTRA {
            self.extras.free(extra);
        }
    }

    /// Whether [`FlowTracker::drain_ended`] has something to give.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended_first != NONE
            || !self.cuts.is_empty()
            || (self.finished && self.index.len() != 0)
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.index.len() == 0
    }

    /// The capture clock: the largest time seen.
    pub fn clock(&self) -> Nanos {
        self.clock.now()
    }

    /// Counters.
    pub fn statistics(&self) -> FlowStatistics {
        FlowStatistics {
            time_backwards: self.clock.backwards,
            ..self.statistics
        }
    }

    /// The configuration.
    pub fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Bytes of memory taken by flows and their index.
    pub fn memory_bytes(&self) -> usize {
        self.index.bytes() + self.flows.bytes() + self.extras.bytes()
    }

    /// Updates the packet's flow, which is most likely the one in `slot`, and notes it there.
    #[inline(always)]
    fn packet(&mut self, packet: &Decoded, slot: &mut PacketFlow, tunnels: &[Tunnel]) {
        if let Some(flow) = self.flows.get_mut(slot.id.0)
            && flow.hot.has(&packet.key)
            && !(self.config.active).is_some_and(|active| flow.is_cut_by(packet.time, active))
            && flow.goes_on(packet, self.tick, self.shortest)
        {
            slot.flags = PacketFlowFlags(flow.is_initiator(packet.direction.index()));
        } else {
            *slot = self.remarkable_packet(packet, slot.id.0, tunnels);
        }
    }

    /// A packet that begins or ends something, or is not simply the next one. Its flow is most
    /// likely `candidate`.
    #[inline(never)]
    fn remarkable_packet(
        &mut self,
        packet: &Decoded,
        candidate: u32,
        tunnels: &[Tunnel],
    ) -> PacketFlow {
        let damaged = packet.flags.contains(DecodeFlags::BAD_CHECKSUM);
        if !packet.has_ip() || (packet.flags.contains(DecodeFlags::EXCLUDED) && !damaged) {
            self.statistics.without_flow += 1;
            return PacketFlow::NONE;
        }
        let side = packet.direction.index();
        let mut flags = PacketFlowFlags(0);
        let mut id = self.look_up(packet, candidate);
        if id == NONE || self.must_end(packet, id, side, damaged) {
            id = self.create(packet, side, tunnels);
            flags.insert(PacketFlowFlags::NEW);
        }
        let flow = self.flows.at(id);
        flow.hot.last_tick = self.tick;
        let was_closed = flow.hot.flags.has(FlowFlags::CLOSED);
        let counted = analyse(flow, &mut self.extras, packet, damaged, &mut flags);
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
        if !was_closed && flow.hot.flags.has(FlowFlags::CLOSED) {
            self.wheels[Class::Tcp as usize].remove(&mut self.flows, id);
            self.wheels[Class::Closed as usize].insert(&mut self.flows, id, self.tick);
        }
        PacketFlow {
            id: FlowId(id),
            flags,
        }
    }

    /// The flow of a packet, or [`NONE`]. It had no candidate or a wrong one if its flow was created
    /// or ended earlier in this batch, or if two flows have one tag.
    #[inline(always)]
    fn look_up(&self, packet: &Decoded, candidate: u32) -> u32 {
        let is_it = |id: u32| self.flows.get(id).is_some_and(|flow| flow.is(&packet.key));
        if is_it(candidate) {
            return candidate;
        }
        self.index.find(tag_of(packet.hash), is_it).unwrap_or(NONE)
    }

    /// Ends flow `id` where the packet cannot belong to it: it has been idle too long, or this is
    /// the SYN of another connection. Returns whether it did.
    fn must_end(&mut self, packet: &Decoded, id: u32, side: usize, damaged: bool) -> bool {
        let now = self.clock.now();
        let tick = self.tick;
        let flow = self.flows.at(id);
        let idle_ticks = tick.wrapping_sub(flow.hot.last_tick);
        if idle_ticks >= self.shortest {
            let timeout = self.timeouts[Class::of(flow) as usize];
            let seen = flow
                .last()
                .max(Nanos(u64::from(flow.hot.last_tick) << TICK_SHIFT));
            if now - seen > timeout {
                self.end(id, EndReason::Idle);
                return true;
            }
        }
        let reuse = packet.tcp_flags.contains(TcpFlags::SYN)
            && packet.key.protocol == tcp::PROTOCOL
            && packet.flags.contains(DecodeFlags::TRANSPORT)
            && !damaged
            && tcp::is_reuse(flow, packet, side);
        if reuse {
            self.end(id, EndReason::Idle);
        }
        reuse
    }

    fn create(&mut self, packet: &Decoded, side: usize, tunnels: &[Tunnel]) -> u32 {
        if self.index.len() >= self.config.max_flows as usize {
            self.evict();
        }
        let tag = tag_of(packet.hash);
        let flipped = sender_is_server(packet);
        let initiator = side ^ usize::from(flipped);
        let flow = || Flow::new(packet, self.tick, initiator, flipped);
        let tunnel = usize::from(packet.tunnel)
            .checked_sub(1)
            .and_then(|at| tunnels.get(at));
        let id = if self.free_flow == NONE {
            self.flows.push(flow())
        } else {
            let id = self.free_flow;
            let slot = self.flows.at(id);
            self.free_flow = slot.cold.link.next;
            *slot = flow();
            if let Some(next) = self.flows.get(self.free_flow) {
                next.prefetch_whole();
            }
            id
        };
        let flow = self.flows.at(id);
        let class = Class::of(flow);
        if let Some(&tunnel) = tunnel {
            self.extras.of(flow).tunnel = Some(tunnel);
        }
        self.index.insert(tag, id);
        self.wheels[class as usize].insert(&mut self.flows, id, self.tick);
        self.statistics.created += 1;
        let flows = self.index.len() as u64;
        self.statistics.most_flows = self.statistics.most_flows.max(flows);
        id
    }

    /// Ends what the clock's new tick makes time out.
    #[cold]
    fn turn(&mut self) {
        self.tick = self.clock.tick();
        for class in 0..CLASSES {
            while let Some(id) = self.wheels[class].due(self.tick) {
                let flow = self.flows.at(id);
                let last_tick = flow.hot.last_tick;
                let next = flow.cold.link.next;
                if let Some(next) = self.flows.get(next) {
                    next.prefetch_whole();
                }
                if self.wheels[class].is_due(last_tick, self.tick) {
                    self.end(id, EndReason::Idle);
                } else {
                    self.wheels[class].remove(&mut self.flows, id);
                    self.wheels[class].insert(&mut self.flows, id, last_tick);
                }
            }
        }
    }

    /// Ends the flow that has been idle longest.
    fn evict(&mut self) {
        let mut longest: Option<(u32, u32)> = None;
        for wheel in &mut self.wheels {
            // Flows seen since they were last looked at move to where they belong.
            while let Some((id, tick)) = wheel.oldest() {
                let last_tick = self.flows.at(id).hot.last_tick;
                if last_tick <= tick {
                    if longest.is_none_or(|(_, longest)| last_tick < longest) {
                        longest = Some((id, last_tick));
                    }
                    break;
                }
                wheel.remove(&mut self.flows, id);
                wheel.insert(&mut self.flows, id, last_tick);
            }
        }
        if let Some((id, _)) = longest {
            self.statistics.evicted += 1;
            self.end(id, EndReason::Evicted);
        }
    }

    /// Takes a flow out of the table and queues its record. What had closed before has ended by
    /// that, whatever takes it out now.
    fn end(&mut self, id: u32, reason: EndReason) {
        let flow = self.flows.at(id);
        let class = Class::of(flow);
        let tag = flow.tag();
        let reason = closed_reason(flow).unwrap_or(reason);
        flow.hot.flags.clear(FlowFlags::LIVE);
        self.index.prefetch(tag);
        self.wheels[class as usize].remove(&mut self.flows, id);
        *self.flows.link(id) = Link {
            next: NONE,
            previous: reason as u32,
        };
        if self.ended_last == NONE {
            self.ended_first = id;
        } else {
            self.flows.link(self.ended_last).next = id;
        }
        self.ended_last = id;
        self.index.remove(tag, id);
    }
}

/// The first two passes over a batch: notes each packet's most likely flow in `refs`.
#[inline(never)]
fn find_candidates(index: &Index, flows: &Arena<Flow>, batch: &[Decoded], refs: &mut [PacketFlow]) {
    for packet in batch {
        index.prefetch(tag_of(packet.hash));
    }
    for (packet, slot) in batch.iter().zip(refs) {
        let candidate = index.candidate(tag_of(packet.hash));
        Flow::prefetch_for(flows.address(candidate), packet);
        slot.id = FlowId(candidate);
    }
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
        // As Zeek: a damaged segment is none, a damaged datagram was still a datagram.
        return packet.key.protocol == UDP;
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

fn closed_reason(flow: &Flow) -> Option<EndReason> {
    let flags = flow.hot.flags;
    match (flags.has(FlowFlags::RESET), flags.has(FlowFlags::CLOSED)) {
        (true, _) => Some(EndReason::Rst),
        (false, true) => Some(EndReason::Fin),
        (false, false) => None,
    }
}

fn reason_from(number: u32) -> EndReason {
    const ALL: [EndReason; 6] = [
        EndReason::Fin,
        EndReason::Rst,
        EndReason::Idle,
        EndReason::Active,
        EndReason::EndOfInput,
        EndReason::Evicted,
    ];
    ALL.into_iter()
        .find(|&reason| reason as u32 == number)
        .unwrap_or(EndReason::Idle)
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
