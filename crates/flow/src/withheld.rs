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
}

impl FlowTracker {
    /// Counts what was kept away of a flow in the table.
    pub fn count_withheld(&mut self, id: FlowId, direction: Direction, withheld: &Withheld) {
        if self.flows.get(id.0).is_none() {
            return;
        }
        let flow = self.flows.at(id.0);
        let side = direction.index();
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
        match flow.hot.key.protocol {
            tcp::PROTOCOL => tcp::withheld(flow, side, withheld),
            UDP => flow.datagram(side),
            _ => {}
        }
        let tick = (withheld.last.0 >> TICK_SHIFT) as u32;
        flow.hot.last_tick = flow.hot.last_tick.max(tick);
        let high = (packets >> 32) as u32;
        if high != 0 {
            self.extras.of(flow).packets_high[side] += high;
        }
    }
}
