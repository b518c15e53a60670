//! Packets of flows that were withheld before they arrived here.
//!
//! Their counts may arrive before packets that were captured earlier: the kernel counts withheld packets when they
//! arrive, while previous ones wait in a ring. If each was the next of its connection, their counts wait until the
//! flow's sequence numbers reach their start. If that never happens, because a packet was lost, they wait until no
//! packets can be in transit any more.

use std::collections::{HashMap, VecDeque};

use flowgauge_wire::{Decoded, Direction, FoldedState, Nanos, TcpFlags};

use crate::flow::{Flow, UDP};
use crate::holes::delta;
use crate::packet_flow::FlowId;
use crate::tcp;
use crate::tracker::FlowTracker;
use crate::wheel::TICK_SHIFT;

/// Packets of one direction of a flow that the kernel or the network card withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Frames.
    pub packets: u64,
    /// Frame bytes on the wire.
    pub bytes: u64,
    /// Frames with payload.
    pub data_packets: u64,
    /// Their bytes on the wire.
    pub data_bytes: u64,
    /// IP bytes according to the IP headers.
    pub ip_bytes: u64,
    /// Transport payload bytes according to the headers.
    pub payload_bytes: u64,
    /// All TCP flags.
    pub tcp_flags: TcpFlags,
    /// Sequence number of the first.
    pub first_seq: Option<u32>,
    /// One past the highest sequence number.
    pub next_seq: Option<u32>,
    /// The last acknowledgement number, and its window.
    pub ack: Option<(u32, u16)>,
    /// Capture time of the first packet. (Packets counted together arrived before those that pass with the next batch.)
    pub first: Nanos,
    /// Capture time of the last packet.
    pub last: Nanos,
    /// Whether each was the next of its connection, after packets that may still be in transit.
    pub in_turn: bool,
}

/// The state of one side of a connection that determines its next packet in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// One past the highest sequence number that it sent.
    pub next: u32,
    /// The highest acknowledgement.
    pub acked: u32,
    /// Whether it has sent data.
    pub data: bool,
    /// Whether it has sent acknowledgements without data.
    pub acknowledgements: bool,
}

/// What was counted of a flow at once, by direction.
pub(crate) type Counts = [Withheld; 2];

/// How much later than a packet's time it is processed at most: a ring's blocks are handed over within this time.
const LATE: Nanos = Nanos(200_000_000);

/// Counts that wait for packets before them, by flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(HashMap<u32, VecDeque<Counts>, FoldedState>);

impl Waiting {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FlowTracker {
    /// Number of packets that a side of a flow in the table has sent.
    #[inline]
    pub fn sent(&self, id: FlowId, direction: Direction) -> u32 {
        let flow = self.flows.get(id.0);
        flow.map_or(0, |flow| flow.sides[direction.index()].packets)
    }

    /// The turns of a flow in the table, if it is an established connection without missing bytes, or not a connection.
    pub fn turns(&self, id: FlowId) -> Option<[Turn; 2]> {
        let flow = self.flows.get(id.0)?;
        match flow.hot.key.protocol {
            tcp::PROTOCOL if !flow.is_in_order() => None,
            _ => Some([0, 1].map(|side| Turn {
                next: flow.hot.next_seq[side],
                acked: flow.sides[side].acked,
                data: flow.hot.seen[side] & tcp::seen::DATA != 0,
                acknowledgements: flow.hot.seen[side] & tcp::seen::ACK != 0,
            })),
        }
    }

    /// Counts withheld packets of a flow in the table, by direction: now, or when the packets before them have arrived.
    pub fn count_withheld(&mut self, id: FlowId, counts: &[Withheld; 2]) {
        let Some(flow) = self.flows.get(id.0) else {
            return;
        };
        let waits = counts.iter().any(|it| it.in_turn);
        match self.withheld.0.get_mut(&id.0) {
            Some(before) if waits => before.push_back(*counts),
            _ if !waits || follows(flow, counts) => self.apply(id.0, counts),
            _ => {
                self.withheld.0.insert(id.0, VecDeque::from([*counts]));
            }
        }
    }

    /// Counts waiting packets for which all previous ones have arrived by `now`.
    pub fn count_late(&mut self, now: Nanos) {
        let ids: Vec<u32> = self.withheld.0.keys().copied().collect();
        for id in ids {
            self.catch_up(id, |counts| {
                let last = counts.iter().map(|it| it.last).max();
                last.is_some_and(|last| now - last > LATE)
            });
        }
    }

    /// Counts what was kept away of a flow, as far as the flow has got there or it waits for nothing more. Returns whether there was any.
    pub(crate) fn catch_up(&mut self, id: u32, is_late: impl Fn(&Counts) -> bool) -> bool {
        let mut is_any = false;
        while let Some(waiting) = self.withheld.0.get_mut(&id)
            && let Some(counts) = waiting.front().copied()
            && let Some(flow) = self.flows.get(id)
        {
            if !follows(flow, &counts) && !is_late(&counts) {
                break;
            }
            waiting.pop_front();
            if waiting.is_empty() {
                self.withheld.0.remove(&id);
            }
            self.apply(id, &counts);
            is_any = true;
        }
        is_any
    }

    fn apply(&mut self, id: u32, counts: &Counts) {
        let flow = self.flows.at(id);
        for (side, withheld) in counts.iter().enumerate() {
            if withheld.packets == 0 {
                continue;
            }
            let counters = &mut flow.sides[side];
            if counters.packets == 0 {
                counters.first = withheld.first;
            }
            let packets = u64::from(counters.packets) + withheld.packets;
            counters.packets = packets as u32;
            counters.bytes += withheld.bytes;
            counters.ip_bytes += withheld.ip_bytes;
            counters.payload_bytes += withheld.payload_bytes;
            counters.last = counters.last.max(withheld.last);
            flow.hot.tcp_flags[side].0 |= withheld.tcp_flags.0;
            if flow.hot.key.protocol == UDP {
                flow.datagram(side);
            }
            let tick = (withheld.last.0 >> TICK_SHIFT) as u32;
            flow.hot.last_tick = flow.hot.last_tick.max(tick);
            let high = (packets >> 32) as u32;
            if high != 0 {
                self.extras.of(flow).packets_high[side] += high;
            }
        }
        if flow.hot.key.protocol == tcp::PROTOCOL {
            tcp::withheld(flow, self.extras.existing(flow), counts);
        }
    }
}

/// Whether a packet came behind the beginning of what was kept away, which it or what it acknowledges is beyond. (Of those before, the
/// last one ends there.)
pub(crate) fn is_behind(packet: &Decoded, counts: &Counts) -> bool {
    /// Numbers further away are forged.
    const MOST: i32 = 1 << 30;
    let side = packet.direction.index();
    let is_beyond = |number: u32, side: usize| {
        let first = counts[side].first_seq;
        first.is_some_and(|first| (1..MOST).contains(&delta(number, first)))
    };
    let is_acknowledgement = packet.tcp_flags.contains(TcpFlags::ACK);
    is_beyond(packet.seq.wrapping_add(packet.payload_len), side)
        || is_acknowledgement && is_beyond(packet.ack, 1 - side)
}

/// Whether a flow is where what was kept away of it begins.
fn follows(flow: &Flow, counts: &Counts) -> bool {
    let mut numbers = counts.iter().zip(flow.hot.next_seq);
    numbers.all(|(withheld, next)| withheld.first_seq.is_none_or(|first| first == next))
}
