//! Packets of flows that were kept away before they came here.

use flowgauge_wire::{Direction, Nanos, TcpFlags};

use crate::flow::UDP;
use crate::packet_flow::FlowId;
use crate::tcp;
use crate::tracker::FlowTracker;
use crate::wheel::TICK_SHIFT;

/// Packets of one direction of a flow that the kernel or the network card kept away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// Frames.
    pub packets: u64,
    /// Frame bytes on the wire.
    pub bytes: u64,
    /// Of the frames those with payload.
    pub data_packets: u64,
    /// ... and their bytes on the wire.
    pub data_bytes: u64,
    /// IP bytes by the IP headers.
    pub ip_bytes: u64,
    /// Transport payload bytes by the headers.
    pub payload_bytes: u64,
    /// All TCP flags.
    pub tcp_flags: TcpFlags,
    /// Sequence number of the first.
    pub first_seq: Option<u32>,
    /// One past the highest sequence number.
    pub next_seq: Option<u32>,
    /// The last acknowledgement number, and the window with it.
    pub ack: Option<(u32, u16)>,
    /// Capture time of the first packet. (What is counted together came before the packets that pass with the next batch.)
    pub first: Nanos,
    /// Capture time of the last packet.
    pub last: Nanos,
    /// Each was the next of its connection.
    pub in_turn: bool,
}

/// Where one side of a connection is: what makes its next packet the next in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// One past the highest sequence number that it sent.
    pub next: u32,
    /// The highest acknowledgement.
    pub acked: u32,
    /// Whether it has sent data.
    pub data: bool,
    /// Whether it has sent acknowledgements without.
    pub acknowledgements: bool,
}

impl FlowTracker {
    /// How many packets a side of a flow of the table has sent.
    #[inline]
    pub fn sent(&self, id: FlowId, direction: Direction) -> u32 {
        let flow = self.flows.get(id.0);
        flow.map_or(0, |flow| flow.sides[direction.index()].packets)
    }

    /// Where a flow of the table is, if it is a connection that is established and lacks nothing, or has none.
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

    /// Counts what was kept away of a flow in the table, by direction.
    pub fn count_withheld(&mut self, id: FlowId, counts: &[Withheld; 2]) {
        if self.flows.get(id.0).is_none() {
            return;
        }
        let flow = self.flows.at(id.0);
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
