//! The record of a flow in the table: four cache lines; a packet of an established flow touches two.
//!
//! ```text
//!  line 0   key, last tick, highest sequence numbers, TCP state       every packet
//!  line 1   counters of side 0                                        every packet of side 0
//!  line 2   counters of side 1                                        every packet of side 1
//!  line 3   start, history, RTT, rare counters                        when something happens
//! ```
//!
//! State that few flows have (holes in the sequence space, a tunnel, fragments) is in an [`Extra`].

use flowgauge_sys::prefetch::{prefetch, prefetch_address};
use flowgauge_wire::{
    Address, DecodeFlags, Decoded, FlowKey, HashSeed, Nanos, TcpFlags, scattered,
};

use crate::extra::{Extra, NO_EXTRA};
use crate::history::{CAPACITY, History, Letter};
use crate::index::tag_of;
use crate::packet_flow::PacketFlowFlags;
use crate::record::{EndReason, FlowIdentity, FlowRecord, FlowSide, FlowState};
use crate::tcp;
use crate::tcp_state::{Endpoint, TcpState};

/// A flow.
///
/// (Lines are fetched from memory in pairs: the first packet of a flow brings two with each.)
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub(crate) struct Flow {
    pub(crate) hot: Hot,
    pub(crate) sides: [Side; 2],
    pub(crate) cold: Cold,
}

/// What every packet of the flow reads.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    pub(crate) key: FlowKey,
    /// Tick of the capture clock when it was last seen.
    pub(crate) last_tick: u32,
    /// One past the highest sequence number each side sent (SYN and FIN count as one).
    pub(crate) next_seq: [u32; 2],
    /// Letters each side has in the history already ([`tcp::seen`]).
    pub(crate) seen: [u8; 2],
    /// TCP flags each side sent.
    pub(crate) tcp_flags: [TcpFlags; 2],
    /// The state machine.
    pub(crate) tcp: TcpState,
    pub(crate) flags: FlowFlags,
}

/// Counters of one side.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Side {
    pub(crate) ip_bytes: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) last: Nanos,
    pub(crate) first: Nanos,
    /// Low half; the rest is in `Extra`, for the few flows of more than four thousand million
    /// packets.
    pub(crate) packets: u32,
    /// Highest acknowledgement number this side sent.
    pub(crate) acked: u32,
    pub(crate) retransmitted: u32,
    pub(crate) out_of_order: u32,
    /// Initial sequence number, or what it would be had the first segment seen followed a SYN.
    pub(crate) start_seq: u32,
    /// Side 0: the index's tag. Side 1: two VLAN ids and their count. (They fill the line.)
    pub(crate) spare: u32,
}

/// What is touched when a flow begins, ends or changes its state.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    /// First packet of the flow (of its first record, when cut).
    pub(crate) start: Nanos,
    pub(crate) history: History,
    /// Time of the SYN until the handshake is complete, then the RTT.
    pub(crate) handshake: Nanos,
    pub(crate) extra: u32,
    /// Sequence number of its very first packet: what tells connections apart that use the same
    /// ports at the same time.
    pub(crate) first_seq: u32,
    /// Sequence number of each side's last FIN (its end) or RST, to tell repeated ones.
    pub(crate) control_seq: [u32; 2],
    /// Bad checksums, zero windows and gaps per side, saturating.
    pub(crate) rare: [[u16; 2]; 3],
}

/// Rows of [`Cold::rare`].
pub(crate) const CHECKSUMS: usize = 0;
pub(crate) const ZERO_WINDOWS: usize = 1;
pub(crate) const GAPS: usize = 2;

/// Bits of [`Hot::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowFlags(pub(crate) u16);

impl FlowFlags {
    /// Side 1 (the high endpoint) is the initiator.
    pub(crate) const INITIATOR_HIGH: u16 = 1;
    /// A SYN of side 0 was seen; of side 1 the next bit.
    pub(crate) const SYN: [u16; 2] = [2, 4];
    /// A FIN was seen.
    pub(crate) const FIN: [u16; 2] = [8, 16];
    /// There are holes in this side's sequence space.
    pub(crate) const HOLES: [u16; 2] = [32, 64];
    /// Data that was not fully captured has not been acknowledged yet.
    pub(crate) const CUT: [u16; 2] = [128, 256];
    /// `Cold::handshake` is the time of the SYN.
    pub(crate) const SYN_TIME: u16 = 512;
    /// `Cold::handshake` is the RTT.
    pub(crate) const RTT: u16 = 1024;
    /// Closed on both sides or reset: in the linger class.
    pub(crate) const CLOSED: u16 = 2048;
    /// ... by a RST.
    pub(crate) const RESET: u16 = 4096;
    /// Seen from its middle: sequence numbers began without a SYN.
    pub(crate) const PARTIAL: u16 = 8192;
    /// In the index. (Not: free, or ended and not drained yet.)
    pub(crate) const LIVE: u16 = 16384;
    /// Its VLAN ids are known.
    pub(crate) const VLANS: u16 = 32768;

    #[inline(always)]
    pub(crate) const fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, bits: u16) {
        self.0 |= bits;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, bits: u16) {
        self.0 &= !bits;
    }
}

impl Hot {
    /// Whether this is the key. (Whether the flow is in the table is another question.)
    #[inline(always)]
    pub(crate) fn has(&self, key: &FlowKey) -> bool {
        // One branch rather than one per field: they are almost always equal.
        let bits = |address: Address| u128::from_ne_bytes(address.0);
        let rest = |key: &FlowKey| {
            u64::from(key.low_port)
                | u64::from(key.high_port) << 16
                | u64::from(key.protocol) << 32
                | u64::from(key.version) << 40
                | u64::from(key.reserved) << 48
        };
        let mine = &self.key;
        let addresses = (bits(mine.low) ^ bits(key.low)) | (bits(mine.high) ^ bits(key.high));
        let rest = (rest(mine) ^ rest(key)) | u64::from(mine.context ^ key.context);
        addresses | u128::from(rest) == 0
    }
}

impl Side {
    const EMPTY: Side = Side {
        bytes: 0,
        ip_bytes: 0,
        payload_bytes: 0,
        last: Nanos::ZERO,
        first: Nanos::ZERO,
        packets: 0,
        acked: 0,
        retransmitted: 0,
        out_of_order: 0,
        start_seq: 0,
        spare: 0,
    };
}

impl Flow {
    /// What stands where no flow was yet.
    pub(crate) const EMPTY: Flow = Flow {
        hot: Hot {
            key: FlowKey {
                low: Address([0; 16]),
                high: Address([0; 16]),
                low_port: 0,
                high_port: 0,
                protocol: 0,
                version: 0,
                reserved: 0,
                context: 0,
            },
            last_tick: 0,
            next_seq: [0; 2],
            seen: [0; 2],
            tcp_flags: [TcpFlags(0); 2],
            tcp: TcpState::NONE,
            flags: FlowFlags(0),
        },
        sides: [Side::EMPTY; 2],
        cold: Cold {
            start: Nanos::ZERO,
            history: History::EMPTY,
            handshake: Nanos::ZERO,
            extra: NO_EXTRA,
            first_seq: 0,
            control_seq: [0; 2],
            rare: [[0; 2]; 3],
        },
    };

    /// Becomes a flow without packets, initiated by side `initiator`; `flipped` where that is not
    /// the sender of its first packet.
    #[inline(always)]
    pub(crate) fn begin(&mut self, packet: &Decoded, tick: u32, initiator: usize, flipped: bool) {
        let mut history = History::EMPTY;
        if flipped {
            history.push_flipped();
        }
        // Part by part, each in its place: a whole flow would be built elsewhere and copied.
        self.hot = Hot {
            key: packet.key,
            last_tick: tick,
            flags: FlowFlags(FlowFlags::LIVE | initiator as u16),
            ..Flow::EMPTY.hot
        };
        self.sides[0] = Side {
            spare: tag_of(packet.hash),
            ..Side::EMPTY
        };
        self.sides[1] = Side::EMPTY;
        self.cold = Cold {
            start: packet.time,
            history,
            first_seq: packet.seq,
            ..Flow::EMPTY.cold
        };
    }

    /// Brings what this packet reads of its flow, if there is one at this address, closer.
    #[inline(always)]
    pub(crate) fn prefetch_for(flow: *const Flow, packet: &Decoded) {
        let line = |line: usize| prefetch_address(flow.cast::<u8>().wrapping_add(line * 64));
        line(0);
        line(1 + packet.direction.index());
        // It adds to the history if it is one of the first or the last. Of the first ones only those
        // with a flag find the flow out of the cache: the others follow them closely. (Asked for without
        // a branch: which packets these are is anybody's guess.)
        line(3 * usize::from(packet.begins_or_ends()));
    }

    /// Brings closer what this packet reads besides, if it is the first with data, or without, of its
    /// side.
    #[inline(always)]
    pub(crate) fn prefetch_rest_for(&self, packet: &Decoded) {
        let bit = match packet.payload_len {
            0 => tcp::seen::ACK,
            _ => tcp::seen::DATA,
        };
        if self.hot.seen[packet.direction.index()] & bit == 0 {
            prefetch(&self.cold);
        }
    }

    /// Brings all of it closer.
    #[inline(always)]
    pub(crate) fn prefetch_whole(&self) {
        Flow::prefetch_place(self);
    }

    /// Brings all of what is, or will be, at this address closer.
    #[inline(always)]
    pub(crate) fn prefetch_place(flow: *const Flow) {
        for line in 0..4 {
            prefetch_address(flow.cast::<u8>().wrapping_add(line * 64));
        }
    }

    /// Whether this flow is in the table and has this key.
    #[inline(always)]
    pub(crate) fn is(&self, key: &FlowKey) -> bool {
        self.hot.has(key) && self.hot.flags.has(FlowFlags::LIVE)
    }

    /// What a UDP datagram means.
    #[inline(always)]
    pub(crate) fn datagram(&mut self, side: usize) {
        if self.hot.seen[side] & tcp::seen::DATA == 0 {
            self.first_letter(side, tcp::seen::DATA, Letter::Data);
        }
    }

    /// Adds a letter that this side adds once.
    #[inline(always)]
    pub(crate) fn first_letter(&mut self, side: usize, bit: u8, letter: Letter) {
        self.hot.seen[side] |= bit;
        let from_initiator = side == self.initiator();
        self.cold.history.push(letter, from_initiator);
    }

    /// Notes a right checksum. Returns [`PacketFlowFlags::FIRST_RIGHT`] for the first one of a side, and
    /// [`PacketFlowFlags::FIRST_UNVERIFIED`] for what may be it.
    #[inline(always)]
    pub(crate) fn note_right(&mut self, packet: &Decoded) -> PacketFlowFlags {
        const SHIFT: u32 = DecodeFlags::RIGHT_CHECKSUM.0.trailing_zeros();
        const { assert!(DecodeFlags::UNVERIFIED.0 == DecodeFlags::RIGHT_CHECKSUM.0 << 1) };
        let first =
            (self.hot.tcp).note_right(packet.direction.index(), packet.flags.0 >> SHIFT & 3);
        const { assert!(PacketFlowFlags::FIRST_UNVERIFIED.0 == PacketFlowFlags::FIRST_RIGHT.0 << 1) };
        PacketFlowFlags(first << PacketFlowFlags::FIRST_RIGHT.0.trailing_zeros())
    }

    /// Adds a packet to the counters. Returns whether the low half of the packet counter
    /// overflowed.
    #[inline(always)]
    pub(crate) fn count(&mut self, packet: &Decoded, side: usize) -> bool {
        let counters = &mut self.sides[side];
        if counters.packets == 0 {
            counters.first = packet.time;
        }
        let (packets, overflow) = counters.packets.overflowing_add(u32::from(packet.frames));
        counters.packets = packets;
        counters.bytes += u64::from(packet.wire_len);
        counters.ip_bytes += u64::from(packet.ip_len);
        counters.payload_bytes += u64::from(packet.payload_len);
        counters.last = counters.last.max(packet.time);
        overflow
    }

    /// Takes a packet out of the counters again, the last one of its side, before which the last was at `last`.
    pub(crate) fn uncount(&mut self, packet: &Decoded, side: usize, last: Nanos) {
        let counters = &mut self.sides[side];
        counters.packets = counters.packets.saturating_sub(u32::from(packet.frames));
        let less = |counter: &mut u64, by: u32| *counter = counter.saturating_sub(u64::from(by));
        less(&mut counters.bytes, packet.wire_len);
        less(&mut counters.ip_bytes, packet.ip_len);
        less(&mut counters.payload_bytes, packet.payload_len);
        counters.last = last;
    }

    /// 1 if this side initiated, else 0.
    #[inline(always)]
    pub(crate) fn is_initiator(&self, side: usize) -> u16 {
        (self.hot.flags.0 ^ side as u16 ^ 1) & FlowFlags::INITIATOR_HIGH
    }

    /// 0 or 1: the side that initiated.
    #[inline(always)]
    pub(crate) fn initiator(&self) -> usize {
        usize::from(self.hot.flags.0 & FlowFlags::INITIATOR_HIGH)
    }

    /// Whether it is more than an attempt: more than one packet, and not all of them SYNs and RSTs.
    #[inline(always)]
    pub(crate) fn is_confirmed(&self) -> bool {
        self.hot.seen[0] & tcp::seen::CONFIRMED != 0
    }

    /// It is more than an attempt from now on. It hangs among attempts until it is looked at next.
    #[inline(always)]
    pub(crate) fn confirm(&mut self) {
        self.hot.seen[0] |= tcp::seen::CONFIRMED;
    }

    /// It is about to be hung, or hangs, where it belongs: among attempts only if it is one.
    pub(crate) fn settle(&mut self) {
        if self.is_confirmed() {
            self.hot.tcp.settle();
        }
    }

    /// Whether its idle timeout is not its protocol's.
    #[inline(always)]
    pub(crate) fn has_own_timeout(&self) -> bool {
        self.hot.seen[1] & tcp::seen::OWN_TIMEOUT != 0
    }

    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        self.sides[0].spare
    }

    /// Time of the last packet of either side.
    #[inline]
    pub(crate) fn last(&self) -> Nanos {
        self.sides[0].last.max(self.sides[1].last)
    }

    /// Time of the first packet that the current record counts.
    pub(crate) fn record_start(&self) -> Nanos {
        let [low, high] = &self.sides;
        match (low.packets != 0, high.packets != 0) {
            (true, true) => low.first.min(high.first),
            (true, false) => low.first,
            (false, true) => high.first,
            (false, false) => self.cold.start,
        }
    }

    /// Time of the last packet that the current record counts.
    pub(crate) fn record_end(&self) -> Nanos {
        let of_side = |side: &Side| match side.packets {
            0 => Nanos::ZERO,
            _ => side.last,
        };
        let [low, high] = &self.sides;
        of_side(low).max(of_side(high)).max(self.record_start())
    }

    /// Whether a packet of this `time` would make the record longer than the active timeout.
    #[inline(never)]
    pub(crate) fn is_cut_by(&self, time: Nanos, active: Nanos) -> bool {
        let empty = self.sides.iter().all(|side| side.packets == 0);
        !empty && time - self.record_start() > active
    }

    /// Begins a further record of the same connection.
    pub(crate) fn cut(&mut self) {
        for side in &mut self.sides {
            side.bytes = 0;
            side.ip_bytes = 0;
            side.payload_bytes = 0;
            side.first = Nanos::ZERO;
            side.packets = 0;
            side.retransmitted = 0;
            side.out_of_order = 0;
        }
        self.hot.tcp_flags = [TcpFlags(0); 2];
    }

    /// Keeps the VLAN ids of the first packet that has any.
    #[inline]
    pub(crate) fn set_vlans(&mut self, ids: [u16; 2], count: u8) {
        if !self.hot.flags.has(FlowFlags::VLANS) {
            self.hot.flags.set(FlowFlags::VLANS);
            let count = u32::from(count.min(2));
            self.sides[1].spare =
                count << 24 | u32::from(ids[1] & 0xfff) << 12 | u32::from(ids[0] & 0xfff);
        }
    }

    fn vlans(&self) -> ([u16; 2], usize) {
        let spare = self.sides[1].spare;
        let ids = [(spare & 0xfff) as u16, (spare >> 12 & 0xfff) as u16];
        (ids, (spare >> 24) as usize)
    }

    pub(crate) fn identity(&self) -> FlowIdentity {
        let (vlans, count) = self.vlans();
        FlowIdentity {
            key: self.hot.key,
            flow_id: self.flow_id(),
            start: self.cold.start,
            vlan: vlans.first().copied().filter(|_| count != 0),
        }
    }

    /// Gives the record to `take`.
    pub(crate) fn with_record<R>(
        &self,
        extra: Option<&Extra>,
        end_reason: EndReason,
        take: impl FnOnce(&FlowRecord<'_>) -> R,
    ) -> R {
        let initiator = self.initiator();
        let (vlan_ids, vlan_count) = self.vlans();
        let mut buffer = [0; CAPACITY];
        let mut history = self.cold.history;
        for side in [0, 1] {
            if tcp::lacks_end(self, side) && self.cold.rare[GAPS][side] == 0 {
                history.push(Letter::Gap, side == initiator);
            }
        }
        take(&FlowRecord {
            key: &self.hot.key,
            flow_id: self.flow_id(),
            version: self.hot.key.version,
            protocol: self.hot.key.protocol,
            source: self.side(initiator, extra),
            destination: self.side(1 - initiator, extra),
            flow_start: self.cold.start,
            start: self.record_start(),
            end: self.record_end(),
            handshake_rtt: (self.hot.flags.has(FlowFlags::RTT)).then_some(self.cold.handshake),
            fragments: extra.map_or(0, |extra| extra.fragments),
            state: self.state(),
            history: history.text(&mut buffer),
            vlans: vlan_ids.get(..vlan_count).unwrap_or(&[]),
            tunnel: extra.and_then(|extra| extra.tunnel.as_ref()),
            end_reason,
        })
    }

    #[inline]
    fn flow_id(&self) -> u64 {
        // The same in each run, so that its key is public, and keys of flows can be chosen to collide; not the
        // times at which they are captured. Without the context, a number that is of this run.
        let key = FlowKey {
            context: 0,
            ..self.hot.key
        };
        let first = HashSeed::PUBLIC
            .hash(&key)
            .wrapping_add(self.cold.first_seq.into());
        scattered(scattered(first) ^ scattered(self.cold.start.0))
    }

    #[inline]
    pub(crate) fn side(&self, side: usize, extra: Option<&Extra>) -> FlowSide {
        let counters = &self.sides[side];
        let key = &self.hot.key;
        let (address, port) = match side {
            0 => (key.low, key.low_port),
            _ => (key.high, key.high_port),
        };
        let high = extra.map_or(0, |extra| extra.packets_high[side]);
        let packets = u64::from(high) << 32 | u64::from(counters.packets);
        FlowSide {
            address,
            port,
            packets,
            bytes: counters.bytes,
            ip_bytes: counters.ip_bytes,
            payload_bytes: counters.payload_bytes,
            stream_bytes: self.stream_bytes(side),
            tcp_flags: self.hot.tcp_flags[side],
            retransmitted: u64::from(counters.retransmitted),
            out_of_order: u64::from(counters.out_of_order),
            first: counters.first,
            last: if packets == 0 {
                Nanos::ZERO
            } else {
                counters.last
            },
        }
    }

    fn stream_bytes(&self, side: usize) -> u64 {
        let counted = self.sides[side].payload_bytes;
        let is_first = self.record_start() == self.cold.start;
        if self.hot.key.protocol != tcp::PROTOCOL || !is_first {
            return counted;
        }
        if self.hot.tcp.of(side) == Endpoint::INACTIVE {
            return 0;
        }
        let first = self.sides[side].start_seq.wrapping_add(1);
        let fin = u32::from(self.hot.flags.has(FlowFlags::FIN[side]));
        let length = self.hot.next_seq[side].wrapping_sub(first);
        let length = length.saturating_sub(fin.min(length));
        // Sequence numbers wrap: of the lengths that end so, the one next to what was counted.
        let beyond = length.wrapping_sub(counted as u32) as i32;
        let near = counted.saturating_add_signed(i64::from(beyond));
        if near as u32 == length {
            near
        } else {
            u64::from(length)
        }
    }

    fn state(&self) -> FlowState {
        let initiator = self.initiator();
        match self.hot.key.protocol {
            tcp::PROTOCOL => tcp::conn_state(self),
            UDP => {
                // A side that sent nothing but damaged datagrams was not active.
                let active = |side: usize| self.hot.seen[side] & tcp::seen::DATA != 0;
                match (active(initiator), active(1 - initiator)) {
                    (true, true) => FlowState::SF,
                    (true, false) => FlowState::S0,
                    (false, true) => FlowState::Shr,
                    (false, false) => FlowState::Oth,
                }
            }
            _ => FlowState::Oth,
        }
    }
}

/// UDP's protocol number.
pub(crate) const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequence numbers tell how long a stream is, as far as they do.
    #[test]
    fn a_stream_is_as_long_as_its_sequence_numbers_say() {
        let length = |start: u32, next: u32, counted: u64, fin: bool| {
            let mut flow = Flow::EMPTY;
            flow.hot.key.protocol = tcp::PROTOCOL;
            flow.hot.tcp.set(0, Endpoint::ESTABLISHED);
            flow.hot.next_seq[0] = next;
            flow.sides[0].start_seq = start;
            flow.sides[0].payload_bytes = counted;
            if fin {
                flow.hot.flags.set(FlowFlags::FIN[0]);
            }
            flow.stream_bytes(0)
        };
        assert_eq!(length(9, 10, 0, false), 0);
        assert_eq!(length(9, 11, 0, true), 0);
        // Sent twice, not captured, across the wrap.
        assert_eq!(length(9, 110, 200, false), 100);
        assert_eq!(length(9, 111, 40, true), 100);
        assert_eq!(length(u32::MAX, 100, 60, false), 100);
        // More than sequence numbers can tell.
        let long = (5 << 32) + 700;
        assert_eq!(length(9, 10 + 650, long, false), (5 << 32) + 650);
        assert_eq!(Flow::EMPTY.stream_bytes(0), 0);
    }

    #[test]
    fn a_flow_is_four_cache_lines() {
        assert_eq!(size_of::<Flow>(), 256);
        assert_eq!(size_of::<Hot>(), 64);
        assert_eq!(size_of::<Side>(), 64);
        assert_eq!(size_of::<Cold>(), 64);
    }
}
