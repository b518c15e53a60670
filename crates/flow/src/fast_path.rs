//! The fast path: packets of a regular connection, each in straight-line code with exactly the same effects on the flow
//! as the slow path ([`tcp::segment`] and its callers). A few comparisons decide whether a packet qualifies, before
//! anything is changed.
//!
//! ```text
//!  SYN                 Flow::open, called by the tracker where there is no flow yet
//!  SYN-ACK             answers
//!  ACK, data           goes_on      also after one or both sides' FIN
//!  FIN                 finishes
//! ```

use flowgauge_sys::ways::{Way, is_forced};
use flowgauge_wire::{DecodeFlags, Decoded, Nanos, TcpFlags};

use crate::config::FlowConfig;
use crate::flow::{Flow, FlowFlags, UDP};
use crate::history::Letter;
use crate::holes::delta;
use crate::packet_flow::PacketFlowFlags;
use crate::tcp::{self, FAR, PLAIN, seen};
use crate::tcp_state::TcpState;
use crate::wheel::TICK_SHIFT;

/// What of a packet's decode flags sends it to the slow path.
const LOOKED_AT: u16 = DecodeFlags::FRAGMENT.0
    | DecodeFlags::REASSEMBLED.0
    | DecodeFlags::TRANSPORT.0
    | DecodeFlags::BAD_CHECKSUM.0
    | DecodeFlags::EXCLUDED.0
    | DecodeFlags::CUT.0;

/// Flow flags of connections that take the slow path.
const SLOW: u16 = FlowFlags::HOLES[0] | FlowFlags::HOLES[1] | FlowFlags::CUT[0] | FlowFlags::CUT[1];

const ACK: u8 = TcpFlags::ACK.0;
const FIN_ACK: u8 = TcpFlags::FIN.0 | TcpFlags::ACK.0;
const SYN_ACK: u8 = TcpFlags::SYN.0 | TcpFlags::ACK.0;

/// Decode flags and TCP flags are next to each other, and so compared at once.
#[inline(always)]
const fn flags(decoded: u16, tcp: u8) -> u32 {
    decoded as u32 | (tcp as u32) << 16
}

/// So are a flow's state and flags.
#[inline(always)]
const fn state(tcp: u16, flow: u16) -> u32 {
    tcp as u32 | (flow as u32) << 16
}

/// Ticks of silence that a flow's timeout is certainly longer than.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    /// Whatever the flow.
    any: u32,
    tcp: u32,
    closed: u32,
    other: u32,
}

impl Quiet {
    /// With `own` the shortest that a single flow has. None at all where every packet has to take the slow path.
    pub(crate) fn of(config: &FlowConfig, own: Nanos) -> Quiet {
        let most = if is_forced(Way::GeneralFlows) {
            0
        } else {
            u32::MAX
        };
        let ticks = |timeout: Nanos| (timeout.0 >> TICK_SHIFT).min(u64::from(most)) as u32;
        let (tcp, closed) = (ticks(config.tcp_idle.min(own)), ticks(config.linger));
        let other = ticks(config.udp_idle.min(config.other_idle).min(own));
        Quiet {
            any: tcp.min(closed).min(other),
            tcp,
            closed,
            other,
        }
    }

    /// Whether there is any flow that it covers.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        self.tcp != 0
    }

    /// Whether a flow that is seen in this tick has not been silent for longer.
    #[inline(always)]
    pub(crate) fn covers(&self, flow: &Flow, tick: u32) -> bool {
        let silent = tick.wrapping_sub(flow.hot.last_tick);
        silent < self.any || silent < self.ticks(flow)
    }

    fn ticks(&self, flow: &Flow) -> u32 {
        match flow.hot.key.protocol {
            tcp::PROTOCOL if flow.hot.flags.has(FlowFlags::CLOSED) => self.closed,
            tcp::PROTOCOL => self.tcp,
            _ => self.other,
        }
    }
}

/// Whether this is a whole SYN and nothing else, of a window that is not zero and without data.
#[inline(always)]
pub(crate) fn is_plain_syn(packet: &Decoded) -> bool {
    packet.key.protocol == tcp::PROTOCOL
        && flags(packet.flags.0, packet.tcp_flags.0) & flags(LOOKED_AT, PLAIN.0)
            == flags(DecodeFlags::TRANSPORT.0, TcpFlags::SYN.0)
        && packet.payload_len | u32::from(packet.tunnel) | u32::from(packet.vlan_count) == 0
        && packet.window != 0
}

impl Flow {
    /// Becomes the flow that [`is_plain_syn`] opens.
    #[inline(always)]
    pub(crate) fn open(&mut self, packet: &Decoded, tick: u32) {
        let side = packet.direction.index();
        self.begin(packet, tick, side, false);
        let hot = &mut self.hot;
        hot.next_seq[side] = packet.seq.wrapping_add(1);
        hot.seen[side] = seen::SYN;
        hot.tcp_flags[side] = packet.tcp_flags;
        hot.tcp = TcpState::syn_sent(side);
        hot.flags.set(FlowFlags::SYN[side] | FlowFlags::SYN_TIME);
        self.sides[side].start_seq = packet.seq;
        self.sides[1 - side].acked = packet.seq;
        self.cold.history.push(Letter::Syn, true);
        self.cold.handshake = packet.time;
        self.count(packet, side);
    }

    /// The next packet of a flow that goes as it should: returns what it means for the flow if it
    /// was one and has been dealt with. The flow has the packet's key.
    #[inline(always)]
    pub(crate) fn goes_on(
        &mut self,
        packet: &Decoded,
        tick: u32,
        quiet: &Quiet,
    ) -> Option<PacketFlowFlags> {
        let side = packet.direction.index();
        let is_fast = quiet.covers(self, tick)
            && (packet.vlan_count == 0 || self.hot.flags.has(FlowFlags::VLANS))
            && self.sides[side].packets < u32::MAX - 0x1_0000;
        if !is_fast {
            return None;
        }
        let (decoded, tcp_flags) = (packet.flags.0, packet.tcp_flags.0);
        if packet.key.protocol != tcp::PROTOCOL {
            return self.has_more(packet, side, tick);
        }
        if flags(decoded, tcp_flags) & flags(LOOKED_AT, PLAIN.0)
            == flags(DecodeFlags::TRANSPORT.0, ACK)
        {
            return self.in_order(packet, side, tick);
        }
        if decoded & LOOKED_AT != DecodeFlags::TRANSPORT.0 {
            return None;
        }
        match tcp_flags & PLAIN.0 {
            FIN_ACK => self.finishes(packet, side, tick),
            SYN_ACK => self.answers(packet, side, tick),
            _ => None,
        }
    }

    /// A further packet of a protocol without connections.
    #[inline(always)]
    fn has_more(&mut self, packet: &Decoded, side: usize, tick: u32) -> Option<PacketFlowFlags> {
        let is_fast = packet.flags.0 & LOOKED_AT == DecodeFlags::TRANSPORT.0
            && self.hot.flags.has(FlowFlags::LIVE);
        if !is_fast {
            return None;
        }
        self.confirm();
        self.hot.last_tick = tick;
        self.count(packet, side);
        if packet.key.protocol == UDP {
            self.datagram(side);
        }
        Some(PacketFlowFlags(self.is_initiator(side)))
    }

    /// Whether it is a connection that is established, or was until it closed with FINs, and lacks nothing.
    #[inline(always)]
    pub(crate) fn is_in_order(&self) -> bool {
        state(self.hot.tcp.0, self.hot.flags.0)
            & state(TcpState::ESTABLISHED_MASK, SLOW | FlowFlags::LIVE)
            == state(TcpState::BOTH_ESTABLISHED, FlowFlags::LIVE)
    }

    /// Whether the packet is the next one of such a connection: its sender's next sequence number, and an acknowledgement of what the
    /// other side sent.
    #[inline(always)]
    fn is_next(&self, packet: &Decoded, side: usize) -> bool {
        self.is_in_order()
            && packet.window != 0
            && packet.seq == self.hot.next_seq[side]
            && packet.ack.wrapping_sub(self.sides[side].acked) <= FAR as u32
            && delta(self.hot.next_seq[1 - side], packet.ack) >= 0
    }

    /// A segment with data, or an acknowledgement.
    #[inline(always)]
    fn in_order(&mut self, packet: &Decoded, side: usize, tick: u32) -> Option<PacketFlowFlags> {
        if !self.is_next(packet, side) {
            return None;
        }
        let hot = &mut self.hot;
        hot.last_tick = tick;
        hot.tcp_flags[side] = hot.tcp_flags[side].with(packet.tcp_flags);
        hot.next_seq[side] = packet.seq.wrapping_add(packet.payload_len);
        self.sides[side].acked = packet.ack;
        self.count(packet, side);
        let bit = match packet.payload_len {
            0 => seen::ACK,
            _ => seen::DATA,
        };
        let mut result = self.is_initiator(side);
        self.confirm();
        if self.hot.seen[side] & bit == 0 || self.hot.flags.has(FlowFlags::SYN_TIME) {
            self.first(packet, side);
        }
        if self.hot.tcp.is_closed() {
            result |= PacketFlowFlags::AFTER_CLOSE.0;
        }
        Some(PacketFlowFlags(result))
    }

    /// What the first segments do besides: a letter of the history, the handshake.
    #[inline(always)]
    fn first(&mut self, packet: &Decoded, side: usize) {
        let (bit, letter) = match packet.payload_len {
            0 => (seen::ACK, Letter::Ack),
            _ => (seen::DATA, Letter::Data),
        };
        if self.hot.seen[side] & bit == 0 {
            self.first_letter(side, bit, letter);
        }
        if self.hot.flags.has(FlowFlags::SYN_TIME) && side == self.initiator() {
            tcp::complete_handshake(self, packet, side);
        }
    }

    /// The first FIN of a side.
    #[inline(always)]
    fn finishes(&mut self, packet: &Decoded, side: usize, tick: u32) -> Option<PacketFlowFlags> {
        let is_fast = self.is_next(packet, side)
            && !self.hot.tcp.has_closed(side)
            && self.hot.seen[side] & seen::FIN == 0
            && !self.hot.flags.has(FlowFlags::SYN_TIME)
            && self.is_confirmed();
        if !is_fast {
            return None;
        }
        let end = packet.seq.wrapping_add(packet.payload_len).wrapping_add(1);
        let hot = &mut self.hot;
        hot.last_tick = tick;
        hot.tcp_flags[side] = hot.tcp_flags[side].with(packet.tcp_flags);
        hot.next_seq[side] = end;
        hot.seen[side] |= seen::FIN;
        hot.flags.set(FlowFlags::FIN[side]);
        hot.tcp.close(side);
        self.sides[side].acked = packet.ack;
        self.cold.control_seq[side] = end;
        self.count(packet, side);
        let from_initiator = self.is_initiator(side);
        self.cold.history.push(Letter::Fin, from_initiator != 0);
        let mut result = from_initiator;
        if self.hot.tcp.is_closed() && !self.hot.flags.has(FlowFlags::CLOSED) {
            self.hot.flags.set(FlowFlags::CLOSED);
            result |= PacketFlowFlags::CLOSES.0;
        }
        Some(PacketFlowFlags(result))
    }

    /// The answer to a SYN.
    #[inline(always)]
    fn answers(&mut self, packet: &Decoded, side: usize, tick: u32) -> Option<PacketFlowFlags> {
        let peer = 1 - side;
        let is_fast = state(self.hot.tcp.0, self.hot.flags.0)
            & state(TcpState::CURRENT, SLOW | FlowFlags::LIVE)
            == state(TcpState::syn_sent(peer).0, FlowFlags::LIVE)
            && peer == self.initiator()
            && packet.window != 0
            && packet.payload_len == 0
            && packet.ack == self.hot.next_seq[peer]
            && self.hot.seen[side] & seen::SYN == 0;
        if !is_fast {
            return None;
        }
        let hot = &mut self.hot;
        hot.last_tick = tick;
        hot.tcp_flags[side] = hot.tcp_flags[side].with(packet.tcp_flags);
        hot.next_seq[side] = packet.seq.wrapping_add(1);
        hot.seen[side] |= seen::SYN;
        hot.flags.set(FlowFlags::SYN[side]);
        hot.tcp.answer(peer);
        self.sides[side].start_seq = packet.seq;
        self.sides[side].acked = packet.ack;
        self.sides[peer].acked = packet.seq;
        self.cold.history.push(Letter::SynAck, false);
        self.count(packet, side);
        Some(PacketFlowFlags(0))
    }
}
