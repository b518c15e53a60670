//! Effects of a TCP segment on its flow: Zeek's endpoint states and history, retransmissions, gaps, the
//! handshake, the end.
//!
//! # Retransmitted or out of order
//! Per direction, the highest sequence number and the last [`HOLES`] holes below it are stored. A segment
//! with payload that lies wholly below the highest sequence number was *out of order* if it touches a hole
//! (or lies before the first segment of a connection captured from the middle), otherwise *retransmitted*. A
//! segment that ends beyond the highest sequence number is neither. If there are too many holes, the oldest
//! is forgotten: segments that fill it later count as retransmitted.
//!
//! # States
//! Each side is inactive, SYN sent, SYN-ACK sent, partial (captured from the middle), established, closed
//! (FIN sent) or reset; `conn_state` is a function of both, as in Zeek's `base/protocols/conn`. Deliberate
//! differences to Zeek: a SYN in the middle of a simultaneous open does not start a new flow, and a RST
//! outside the window changes the state but does not end the flow.

use flowgauge_wire::{DecodeFlags, Decoded, Nanos, TcpFlags};

use crate::extra::{Extra, HOLES};
use crate::flow::{Flow, FlowFlags, GAPS, ZERO_WINDOWS};
use crate::history::Letter;
use crate::holes::{delta, fill_holes, remember_hole};
use crate::packet_flow::PacketFlowFlags;
use crate::record::FlowState;
use crate::tcp_state::Endpoint;
use crate::withheld::Withheld;

/// TCP's protocol number.
pub(crate) const PROTOCOL: u8 = 6;

/// Jumps of SYN or RST sequence numbers beyond this are not believed (1 MB, as Zeek).
pub(crate) const FAR: i32 = 1 << 20;

/// Holes this far below the last acknowledgement are forgotten.
const FORGET: i32 = 1 << 16;

/// The flags that begin or end something.
pub(crate) const CONTROL: TcpFlags = TcpFlags(TcpFlags::FIN.0 | TcpFlags::SYN.0 | TcpFlags::RST.0);

/// The flags that decide whether a segment is a plain one.
pub(crate) const PLAIN: TcpFlags = TcpFlags(CONTROL.0 | TcpFlags::ACK.0);

/// Bits of `Hot::seen`: letters that a side adds to the history at most once, or looks at first.
pub(crate) mod seen {
    pub(crate) const SYN: u8 = 1;
    pub(crate) const FIN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const INCONSISTENT: u8 = 8;
    pub(crate) const DATA: u8 = 16;
    pub(crate) const ACK: u8 = 32;
    pub(crate) const MULTI_FLAG: u8 = 64;
    /// Side 0 only, and no letter: [`Flow::is_confirmed`](crate::flow::Flow::is_confirmed).
    pub(crate) const CONFIRMED: u8 = 128;
    /// Side 1 only, and no letter: [`Flow::has_own_timeout`](crate::flow::Flow::has_own_timeout).
    pub(crate) const OWN_TIMEOUT: u8 = 128;
}

/// Whether a SYN begins another connection with the five-tuple of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    No,
    Yes,
    /// If it is answered ([`held_syns`](crate::held_syns)).
    Perhaps,
}

/// What this SYN is to `flow`.
pub(crate) fn reuse(flow: &Flow, packet: &Decoded, side: usize) -> Reuse {
    let initiator = flow.initiator();
    let responder = 1 - initiator;
    let state = flow.hot.tcp;
    let yes_if = |is: bool| if is { Reuse::Yes } else { Reuse::No };
    // Closing is enough: who sends a SYN after a FIN or RST has forgotten the connection.
    let over = flow.hot.flags.has(FlowFlags::CLOSED) || state.of(side) == Endpoint::CLOSED;
    if packet.tcp_flags.contains(TcpFlags::ACK) {
        // Answers begin something only where nothing but answers was seen.
        let over = over || state.of(1 - side) == Endpoint::CLOSED;
        return yes_if(
            state.of(initiator) == Endpoint::INACTIVE
                && state.of(responder) != Endpoint::INACTIVE
                && side == responder
                && (over || packet.seq != flow.sides[responder].start_seq),
        );
    }
    if over {
        return Reuse::Yes;
    }
    if packet.seq == flow.sides[side].start_seq && state.of(side) != Endpoint::INACTIVE {
        return Reuse::No;
    }
    if side == responder && state.of(responder) == Endpoint::INACTIVE {
        // The other half of a simultaneous open, or the SYN that a SYN-ACK overtook.
        return yes_if(!matches!(
            state.of(initiator),
            Endpoint::SYN_SENT | Endpoint::SYN_ACK_SENT
        ));
    }
    if side == initiator && state.of(initiator) == Endpoint::INACTIVE {
        // The SYN of a connection whose SYN-ACK was captured first.
        return yes_if(packet.seq != flow.sides[initiator].start_seq);
    }
    match state.of(side) {
        Endpoint::ESTABLISHED | Endpoint::PARTIAL => Reuse::Perhaps,
        _ => Reuse::Yes,
    }
}

/// What a segment is, in short.
struct Segment {
    side: usize,
    from_initiator: bool,
    syn: bool,
    fin: bool,
    rst: bool,
    ack: bool,
    seq: u32,
    /// One past it, SYN and FIN counted.
    end: u32,
    len: u32,
}

/// Updates the flow's TCP state by a segment. The caller provides `extra` where [`needs_extra`]
/// asks for it, or where the flow has one.
///
/// The steps are written once and compiled for each usual combination of control flags, so that
/// what cannot happen to a segment costs it nothing.
pub(crate) fn segment(
    flow: &mut Flow,
    extra: Option<&mut Extra>,
    packet: &Decoded,
    result: &mut PacketFlowFlags,
) {
    const NONE: u8 = 0;
    const FIN: u8 = TcpFlags::FIN.0;
    const SYN: u8 = TcpFlags::SYN.0;
    match packet.tcp_flags.0 & CONTROL.0 {
        NONE => steps(flow, extra, packet, result, TcpFlags(NONE)),
        FIN => steps(flow, extra, packet, result, TcpFlags(FIN)),
        SYN => steps(flow, extra, packet, result, TcpFlags(SYN)),
        control => steps(flow, extra, packet, result, TcpFlags(control)),
    }
}

/// What a segment with these `control` flags does.
#[inline(always)]
fn steps(
    flow: &mut Flow,
    mut extra: Option<&mut Extra>,
    packet: &Decoded,
    result: &mut PacketFlowFlags,
    control: TcpFlags,
) {
    let side = packet.direction.index();
    let (syn, fin, rst) = (
        control.contains(TcpFlags::SYN),
        control.contains(TcpFlags::FIN),
        control.contains(TcpFlags::RST),
    );
    // The payload of a RST is a message to people, not part of the stream.
    let stream_len = if rst { 0 } else { packet.payload_len };
    let segment = Segment {
        side,
        from_initiator: side == flow.initiator(),
        syn,
        fin,
        rst,
        ack: packet.tcp_flags.contains(TcpFlags::ACK),
        seq: packet.seq,
        end: packet
            .seq
            .wrapping_add(stream_len)
            .wrapping_add(u32::from(syn) + u32::from(fin)),
        len: packet.payload_len,
    };
    let was_over = flow.hot.tcp.is_over();
    if was_over {
        result.insert(PacketFlowFlags::AFTER_CLOSE);
    }
    if rst && is_plausible_rst(flow, &segment, packet.ack) {
        result.insert(PacketFlowFlags::RST_VALID);
    }
    begin_side(flow, &segment);
    add_history(flow, &segment);
    zero_window(flow, &segment, packet.window);
    handshake(flow, &segment, packet);
    if fin {
        flow.hot.flags.set(FlowFlags::FIN[side]);
    }
    if segment.ack
        && !rst
        && let Some(extra) = extra.as_deref_mut()
    {
        acknowledged_holes(flow, extra, side, packet.ack);
    }
    let previous_ack = take_ack(flow, &segment, packet.ack);
    sequence(flow, extra, &segment, packet);
    step(flow, &segment);
    if let Some((old, new)) = previous_ack {
        gaps(flow, &segment, old, new);
    }
    if fin || rst {
        close(flow, &segment, was_over, result);
    }
}

/// Segments were kept away, none of them with SYN, FIN or RST: of each side one that has all their bytes.
pub(crate) fn withheld(flow: &mut Flow, mut extra: Option<&mut Extra>, counts: &[Withheld; 2]) {
    let segment = |flow: &Flow, side: usize| {
        let withheld = &counts[side];
        let (seq, end) = (withheld.first_seq?, withheld.next_seq?);
        Some(Segment {
            side,
            from_initiator: side == flow.initiator(),
            syn: false,
            fin: false,
            rst: false,
            ack: withheld.ack.is_some(),
            seq,
            end,
            len: u32::from(withheld.payload_bytes != 0),
        })
    };
    for side in [0, 1] {
        let Some(segment) = segment(flow, side) else {
            continue;
        };
        begin_side(flow, &segment);
        let advance = delta(segment.end, flow.hot.next_seq[side]);
        if flow.hot.tcp.of(side) == Endpoint::RESET {
        } else if advance > i32::from(segment.len == 0) {
            flow.hot.next_seq[side] = segment.end;
        } else if counts[side].in_turn && advance <= 0 && segment.len != 0 {
            // Each followed the one before: all came late or were sent again.
            let others = u32::try_from(counts[side].data_packets - 1).unwrap_or(u32::MAX);
            let late = flow.sides[side].out_of_order;
            repeated(flow, extra.as_deref_mut(), &segment);
            let counters = &mut flow.sides[side];
            let counter = match counters.out_of_order == late {
                true => &mut counters.retransmitted,
                false => &mut counters.out_of_order,
            };
            *counter = counter.saturating_add(others);
        }
    }
    // They acknowledge each other.
    for side in [0, 1] {
        if let Some(segment) = segment(flow, side) {
            if let Some((ack, _)) = counts[side].ack {
                if let Some(extra) = extra.as_deref_mut() {
                    acknowledged_holes(flow, extra, side, ack);
                }
                take_ack(flow, &segment, ack);
            }
            step(flow, &segment);
        }
    }
}

/// Whether this segment will have to remember a hole.
#[inline]
pub(crate) fn needs_extra(flow: &Flow, packet: &Decoded, side: usize) -> bool {
    let beyond = delta(packet.seq, flow.hot.next_seq[side]) > 0
        && !packet.tcp_flags.intersects(TcpFlags(2 | 4));
    let before = delta(packet.seq, flow.sides[side].start_seq) < 0
        && packet.payload_len != 0
        && !flow.hot.flags.has(FlowFlags::SYN[side]);
    flow.hot.tcp.of(side) != Endpoint::INACTIVE && (beyond || before)
}

/// Sets the sequence numbers of a side that sends for the first time, or again with a SYN.
#[inline(always)]
fn begin_side(flow: &mut Flow, segment: &Segment) {
    let side = segment.side;
    let state = flow.hot.tcp.of(side);
    let begin = match state {
        Endpoint::INACTIVE => true,
        Endpoint::SYN_SENT | Endpoint::SYN_ACK_SENT => {
            segment.syn && segment.seq != flow.sides[side].start_seq
        }
        Endpoint::ESTABLISHED | Endpoint::PARTIAL => segment.syn,
        Endpoint::RESET => segment.syn && flow.hot.tcp.before(side) == Endpoint::INACTIVE,
        _ => false,
    };
    if state == Endpoint::INACTIVE {
        let partial = if segment.from_initiator {
            !segment.syn || segment.ack
        } else {
            !segment.syn
        };
        if partial {
            flow.hot.flags.set(FlowFlags::PARTIAL);
        }
    }
    if !begin {
        return;
    }
    if segment.syn {
        flow.hot.flags.set(FlowFlags::SYN[side]);
        flow.sides[side].start_seq = segment.seq;
        flow.hot.next_seq[side] = segment.end;
        flow.sides[1 - side].acked = segment.seq;
    } else {
        let before = segment.seq.wrapping_sub(1);
        flow.sides[side].start_seq = before;
        flow.hot.next_seq[side] = segment.seq;
        flow.sides[1 - side].acked = before;
    }
}

#[inline(always)]
fn add_history(flow: &mut Flow, segment: &Segment) {
    let Segment {
        side,
        from_initiator: from,
        syn,
        fin,
        rst,
        ..
    } = *segment;
    let seen = flow.hot.seen[side];
    let mut once = |bit: u8, letter: Letter| {
        if seen & bit == 0 {
            flow.hot.seen[side] |= bit;
            flow.cold.history.push(letter, from);
            true
        } else {
            false
        }
    };
    match u8::from(syn) + u8::from(fin) + u8::from(rst) {
        0 if segment.len > 0 => {
            once(seen::DATA, Letter::Data);
        }
        0 if segment.ack => {
            once(seen::ACK, Letter::Ack);
        }
        0 => {}
        1 if syn => {
            let letter = if segment.ack {
                Letter::SynAck
            } else {
                Letter::Syn
            };
            // A SYN with another number begins its side anew, so its place in it is always the
            // same, and a repeated one adds nothing.
            once(seen::SYN, letter);
        }
        1 => {
            let (bit, letter, at) = if fin {
                (seen::FIN, Letter::Fin, segment.end)
            } else {
                (seen::RST, Letter::Rst, segment.seq)
            };
            if !once(bit, letter) && at != flow.cold.control_seq[side] {
                flow.cold.history.push(letter, from);
            }
            flow.cold.control_seq[side] = at;
        }
        _ if fin && rst => {
            once(seen::INCONSISTENT, Letter::Inconsistent);
        }
        _ => {
            once(seen::MULTI_FLAG, Letter::MultiFlag);
        }
    }
}

/// Whether a letter that is repeated on a logarithmic scale is due at this count.
pub(crate) fn is_power_of_ten(count: u32) -> bool {
    matches!(
        count,
        1 | 10
            | 100
            | 1000
            | 10_000
            | 100_000
            | 1_000_000
            | 10_000_000
            | 100_000_000
            | 1_000_000_000
    )
}

/// Counts something rare, and adds its letter at 1, 10, 100, ... of them.
#[inline(never)]
pub(crate) fn count_rare(flow: &mut Flow, row: usize, side: usize, letter: Letter) {
    let from_initiator = side == flow.initiator();
    let count = &mut flow.cold.rare[row][side];
    if *count == u16::MAX {
        return;
    }
    *count += 1;
    if is_power_of_ten(u32::from(*count)) {
        flow.cold.history.push(letter, from_initiator);
    }
}

#[inline(always)]
fn zero_window(flow: &mut Flow, segment: &Segment, window: u16) {
    let side = segment.side;
    if window == 0
        && !segment.rst
        && flow.hot.tcp.of(1 - side) != Endpoint::CLOSED
        && flow.hot.tcp.of(side) != Endpoint::RESET
    {
        count_rare(flow, ZERO_WINDOWS, side, Letter::ZeroWindow);
    }
}

#[inline(always)]
fn handshake(flow: &mut Flow, segment: &Segment, packet: &Decoded) {
    if !segment.from_initiator || flow.hot.flags.has(FlowFlags::RTT) {
        return;
    }
    let responder = 1 - segment.side;
    let is_answered = flow.hot.flags.has(FlowFlags::SYN[responder]);
    // (Two taps may have captured the answer before the first SYN.)
    let is_first = flow.cold.handshake == Nanos::ZERO;
    if segment.syn && !segment.ack && (!is_answered || is_first) {
        // The last SYN before the answer: the one that was answered, as far as can be known.
        flow.cold.handshake = packet.time;
        flow.hot.flags.set(FlowFlags::SYN_TIME);
    } else if segment.ack && !segment.syn && flow.hot.flags.has(FlowFlags::SYN_TIME) {
        complete_handshake(flow, packet, segment.side);
    }
}

/// The initiator's acknowledgement of the SYN-ACK, if there was one, while the time of the SYN is
/// kept.
#[inline(always)]
pub(crate) fn complete_handshake(flow: &mut Flow, packet: &Decoded, initiator: usize) {
    let responder = 1 - initiator;
    if flow.hot.flags.has(FlowFlags::RTT) || !flow.hot.flags.has(FlowFlags::SYN[responder]) {
        return;
    }
    flow.hot.flags.clear(FlowFlags::SYN_TIME);
    let acknowledges = delta(packet.ack, flow.sides[responder].start_seq) >= 1;
    if acknowledges && !packet.tcp_flags.intersects(TcpFlags::RST) {
        flow.hot.flags.set(FlowFlags::RTT);
        flow.cold.handshake = packet.time - flow.cold.handshake;
    }
}

/// Takes the acknowledgement number; returns the one before and the new one where it advanced.
#[inline(always)]
fn take_ack(flow: &mut Flow, segment: &Segment, ack: u32) -> Option<(u32, u32)> {
    let side = segment.side;
    let peer = 1 - side;
    if !segment.ack {
        return None;
    }
    if flow.hot.tcp.of(peer) == Endpoint::INACTIVE {
        // Numbers for the side that has not been seen, as if there had been a SYN.
        let before = ack.wrapping_sub(1);
        flow.sides[peer].start_seq = before;
        flow.hot.next_seq[peer] = before;
        flow.sides[side].acked = before;
        return None;
    }
    let old = flow.sides[side].acked;
    let advance = delta(ack, old);
    // Acknowledgements in RSTs are not to be trusted, and a zero far away is a broken stack's.
    if segment.rst || advance <= 0 || (ack == 0 && advance > FAR) {
        return None;
    }
    flow.sides[side].acked = ack;
    Some((old, ack))
}

/// Moves the highest sequence number on, or finds out why it does not move.
#[inline(always)]
fn sequence(flow: &mut Flow, extra: Option<&mut Extra>, segment: &Segment, packet: &Decoded) {
    let side = segment.side;
    let next = flow.hot.next_seq[side];
    let advance = delta(segment.end, next);
    if (segment.syn || segment.rst) && !(-FAR..=FAR).contains(&advance) {
        return;
    }
    let is_first_fin = segment.fin && next == flow.sides[side].start_seq.wrapping_add(1);
    if !is_first_fin {
        if flow.hot.tcp.of(side) == Endpoint::RESET {
            return;
        }
        if advance <= 0 {
            if segment.len > 0 {
                repeated(flow, extra, segment);
            } else if segment.fin
                && let Some(extra) = extra
            {
                // What was captured before it had a number behind it.
                fill_holes(&mut extra.holes[side], segment.seq, segment.end);
                forget_holes(flow, extra, side);
            }
            return;
        }
    }
    if advance == 1 && segment.len == 0 && !segment.fin && !segment.syn && !segment.rst {
        // One number before an acknowledgement: a FIN that may be captured later, or missing ([`lacks_end`]).
        return;
    }
    flow.hot.next_seq[side] = segment.end;
    if segment.rst || segment.syn {
        return;
    }
    if packet.flags.contains(DecodeFlags::CUT) {
        flow.hot.flags.set(FlowFlags::CUT[side]);
    }
    let Some(extra) = extra else { return };
    let holes = &mut extra.holes[side];
    if delta(segment.seq, next) > 0 {
        let is_acknowledged = delta(flow.sides[1 - side].acked, next) == 1;
        remember_hole(holes, next, segment.seq);
        if is_acknowledged && flow.hot.tcp.is_clean(0) && flow.hot.tcp.is_clean(1) {
            // It was no FIN that the acknowledgement was for.
            count_rare(flow, GAPS, side, Letter::Gap);
        }
        flow.hot.flags.set(FlowFlags::HOLES[side]);
    } else if flow.hot.flags.has(FlowFlags::HOLES[side]) {
        fill_holes(holes, segment.seq, segment.end);
        forget_holes(flow, extra, side);
    }
}

/// A segment with payload that ends at or below the highest sequence number.
#[inline(never)]
fn repeated(flow: &mut Flow, extra: Option<&mut Extra>, segment: &Segment) {
    let side = segment.side;
    let start = flow.sides[side].start_seq.wrapping_add(1);
    let mut late = false;
    if let Some(extra) = extra {
        let holes = &mut extra.holes[side];
        if flow.hot.flags.has(FlowFlags::HOLES[side]) {
            late = fill_holes(holes, segment.seq, segment.end);
        }
        if !flow.hot.flags.has(FlowFlags::SYN[side]) && delta(segment.end, start) <= 0 {
            // Before the first segment seen of a connection that was seen from its middle.
            late = true;
            flow.sides[side].start_seq = segment.seq.wrapping_sub(1);
            if segment.end != start {
                remember_hole(holes, segment.end, start);
                holes.sort_by_key(|&(from, _)| delta(from, segment.seq));
                flow.hot.flags.set(FlowFlags::HOLES[side]);
            }
        }
        if flow.hot.flags.has(FlowFlags::HOLES[side]) {
            forget_holes(flow, extra, side);
        }
    }
    let counters = &mut flow.sides[side];
    if late {
        counters.out_of_order = counters.out_of_order.saturating_add(1);
    } else {
        counters.retransmitted = counters.retransmitted.saturating_add(1);
    }
    let count = counters.out_of_order.saturating_add(counters.retransmitted);
    if is_power_of_ten(count) {
        flow.cold
            .history
            .push(Letter::Retransmission, segment.from_initiator);
    }
}

/// Drops holes that are long acknowledged, and the flag when none is left.
fn forget_holes(flow: &mut Flow, extra: &mut Extra, side: usize) {
    let acked = flow.sides[1 - side].acked;
    let mut any = false;
    for hole in &mut extra.holes[side] {
        if hole.0 != hole.1 && delta(acked, hole.1) > FORGET {
            *hole = (0, 0);
        }
        any |= hole.0 != hole.1;
    }
    if !any {
        flow.hot.flags.clear(FlowFlags::HOLES[side]);
    }
}

/// After the state machine has seen the segment: does its acknowledgement, which went from `old`
/// to `new`, cover bytes of the other side that were never captured?
#[inline(always)]
fn gaps(flow: &mut Flow, segment: &Segment, old: u32, new: u32) {
    let peer = 1 - segment.side;
    if !flow.hot.tcp.is_clean(0) || !flow.hot.tcp.is_clean(1) {
        return;
    }
    let next = flow.hot.next_seq[peer];
    let fin = flow.hot.flags.has(FlowFlags::FIN[peer]);
    // A single byte can be a FIN that is captured later, in the wrong order ([`lacks_end`]).
    let mut gap = delta(new, next) > 1 && !fin;
    if flow.hot.flags.has(FlowFlags::CUT[peer]) {
        flow.hot.flags.clear(FlowFlags::CUT[peer]);
        gap = true;
    }
    if gap && !(flow.hot.flags.has(FlowFlags::PARTIAL) && delta(new, old) <= 2) {
        count_rare(flow, GAPS, peer, Letter::Gap);
    }
}

/// Whether the other side acknowledged one byte more than this one was captured to send: its FIN, or a byte,
/// that never came.
pub(crate) fn lacks_end(flow: &Flow, side: usize) -> bool {
    flow.hot.key.protocol == PROTOCOL
        && flow.hot.tcp.is_clean(0)
        && flow.hot.tcp.is_clean(1)
        && !flow
            .hot
            .flags
            .has(FlowFlags::FIN[side] | FlowFlags::PARTIAL)
        && delta(flow.sides[1 - side].acked, flow.hot.next_seq[side]) == 1
}

/// Counts the holes of the other side that an acknowledgement from `old` to `new` covers.
#[inline(never)]
fn acknowledged_holes(flow: &mut Flow, extra: &mut Extra, side: usize, ack: u32) {
    let peer = 1 - side;
    let old = flow.sides[side].acked;
    if !flow.hot.flags.has(FlowFlags::HOLES[peer]) || delta(ack, old) <= 0 {
        return;
    }
    let clean = flow.hot.tcp.is_clean(0) && flow.hot.tcp.is_clean(1);
    for at in 0..HOLES {
        let (from, to) = extra.holes[peer][at];
        if from != to && clean && delta(ack, from) > 0 && delta(to, old) > 0 {
            count_rare(flow, GAPS, peer, Letter::Gap);
        }
    }
    forget_holes(flow, extra, peer);
}

/// The state machine.
#[inline(always)]
fn step(flow: &mut Flow, segment: &Segment) {
    match flow.hot.tcp.of(segment.side) {
        Endpoint::INACTIVE => from_inactive(flow, segment),
        Endpoint::SYN_SENT | Endpoint::SYN_ACK_SENT => {
            if segment.fin {
                flow.hot.tcp.set(segment.side, Endpoint::CLOSED);
            }
            if segment.rst {
                flow.hot.tcp.set(segment.side, Endpoint::RESET);
            }
        }
        Endpoint::ESTABLISHED | Endpoint::PARTIAL => from_established(flow, segment),
        Endpoint::CLOSED
            // A RST after both sides' FINs is how some stacks say goodbye.
            if segment.rst && flow.hot.tcp.of(1 - segment.side) != Endpoint::CLOSED =>
        {
            flow.hot.tcp.set(segment.side, Endpoint::RESET);
        }
        _ => {}
    }
}

#[inline(always)]
fn from_inactive(flow: &mut Flow, segment: &Segment) {
    let side = segment.side;
    let peer = 1 - side;
    let tcp = &mut flow.hot.tcp;
    if segment.syn {
        if segment.from_initiator {
            // Where the SYN-ACK was captured first, this completes the picture.
            let state = match (segment.ack, tcp.of(peer)) {
                (true, _) => Endpoint::SYN_ACK_SENT,
                (false, Endpoint::ESTABLISHED) => Endpoint::ESTABLISHED,
                (false, _) => Endpoint::SYN_SENT,
            };
            tcp.set(side, state);
        } else {
            match tcp.of(peer) {
                Endpoint::SYN_ACK_SENT
                    if !segment.ack && segment.seq == flow.sides[side].start_seq =>
                {
                    // SYN and SYN-ACK were captured in the wrong order.
                    flow.hot.flags.0 ^= FlowFlags::INITIATOR_HIGH;
                    flow.hot.flags.clear(FlowFlags::PARTIAL);
                    flow.cold.history.push_flipped();
                    tcp.set(peer, Endpoint::ESTABLISHED);
                }
                Endpoint::SYN_SENT => tcp.set(peer, Endpoint::ESTABLISHED),
                _ => {}
            }
            tcp.set(side, Endpoint::ESTABLISHED);
        }
    }
    if segment.fin {
        tcp.set(side, Endpoint::CLOSED);
    }
    if segment.rst {
        tcp.set(side, Endpoint::RESET);
    }
    if tcp.of(side) != Endpoint::INACTIVE {
        return;
    }
    if !segment.from_initiator && segment.len == 0 && tcp.of(peer) == Endpoint::SYN_SENT {
        // Some stacks acknowledge a SYN before they answer it with their own.
    } else if segment.ack && tcp.of(peer) == Endpoint::ESTABLISHED {
        // Everything but the initiator's SYN was captured.
        tcp.set(side, Endpoint::ESTABLISHED);
        flow.hot.flags.clear(FlowFlags::PARTIAL);
    } else {
        tcp.set(side, Endpoint::PARTIAL);
    }
}

#[inline(always)]
fn from_established(flow: &mut Flow, segment: &Segment) {
    let side = segment.side;
    let peer = 1 - side;
    let tcp = &mut flow.hot.tcp;
    if segment.syn
        && !segment.ack
        && tcp.of(side) == Endpoint::PARTIAL
        && tcp.of(peer) == Endpoint::INACTIVE
    {
        tcp.set(side, Endpoint::SYN_SENT);
    }
    if segment.fin && !segment.rst {
        tcp.set(side, Endpoint::CLOSED);
        if tcp.of(peer) == Endpoint::RESET && tcp.before(peer) == Endpoint::CLOSED {
            // FIN, then RST, then the other side's FIN: it closed normally after all.
            tcp.set(peer, Endpoint::CLOSED);
        }
    }
    if segment.rst {
        tcp.set(side, Endpoint::RESET);
    }
}

/// Whether a RST fits: at what the receiver expects or within a window's reach of it (RFC 5961,
/// section 3), or in answer to a SYN it acknowledges (RFC 9293, section 3.10.7.3).
fn is_plausible_rst(flow: &Flow, segment: &Segment, ack: u32) -> bool {
    let side = segment.side;
    let peer = 1 - side;
    match (flow.hot.tcp.of(side), flow.hot.tcp.of(peer)) {
        (Endpoint::INACTIVE, Endpoint::SYN_SENT) => {
            !segment.ack || delta(ack, flow.hot.next_seq[peer]) <= 0
        }
        (Endpoint::INACTIVE, _) => true,
        _ => {
            // What the receiver acknowledged last, or everything sent where it was not seen to.
            let expected = match flow.hot.tcp.of(peer) {
                Endpoint::INACTIVE => flow.hot.next_seq[side],
                _ => flow.sides[peer].acked,
            };
            (-1..=FAR).contains(&delta(segment.seq, expected))
        }
    }
}

/// Decides whether the connection is over with this segment.
#[inline(always)]
fn close(flow: &mut Flow, segment: &Segment, was_over: bool, result: &mut PacketFlowFlags) {
    if flow.hot.flags.has(FlowFlags::CLOSED) {
        return;
    }
    let tcp = flow.hot.tcp;
    let reset = segment.rst
        && result.contains(PacketFlowFlags::RST_VALID)
        && tcp.of(segment.side) == Endpoint::RESET;
    let both = tcp.of(0).is_over() && tcp.of(1).is_over();
    // A FIN where only one direction can be seen: nobody else will close it.
    let alone = segment.fin && tcp.of(1 - segment.side) == Endpoint::INACTIVE;
    if reset || both || alone {
        flow.hot.flags.set(FlowFlags::CLOSED);
        if reset {
            flow.hot.flags.set(FlowFlags::RESET);
        }
        if !was_over && !alone {
            result.insert(PacketFlowFlags::CLOSES);
        }
    }
}

/// Bytes of stream this side sent, by its sequence numbers.
fn stream_size(flow: &Flow, side: usize) -> u32 {
    let start = flow.sides[side].start_seq;
    let sent = delta(flow.hot.next_seq[side], start).max(delta(flow.sides[1 - side].acked, start));
    let fin = i32::from(flow.hot.flags.has(FlowFlags::FIN[side]));
    // (Half the sequence space is the most that there can be, and its sign is that of less than nothing.)
    sent.wrapping_sub(1 + fin).max(0) as u32
}

/// Zeek's `conn_state`.
pub(crate) fn conn_state(flow: &Flow) -> FlowState {
    let initiator = flow.initiator();
    let responder = 1 - initiator;
    let tcp = flow.hot.tcp;
    let (from, to) = (tcp.of(initiator), tcp.of(responder));
    let quiet = |state| matches!(state, Endpoint::INACTIVE | Endpoint::PARTIAL);
    match (from, to) {
        (Endpoint::SYN_SENT | Endpoint::SYN_ACK_SENT, Endpoint::RESET) => FlowState::Rej,
        (Endpoint::RESET, Endpoint::RESET)
            if stream_size(flow, initiator) == 0 && stream_size(flow, responder) == 0 =>
        {
            FlowState::Rej
        }
        (from, Endpoint::RESET) if quiet(from) => FlowState::Rstrh,
        (_, Endpoint::RESET) => FlowState::Rstr,
        (Endpoint::RESET, to) if quiet(to) => {
            if flow.cold.history.is_syn_then_rst() {
                FlowState::Rstos0
            } else {
                FlowState::Oth
            }
        }
        (Endpoint::RESET, _) => FlowState::Rsto,
        (Endpoint::CLOSED, Endpoint::CLOSED) => FlowState::SF,
        (Endpoint::CLOSED, to) if quiet(to) => FlowState::Sh,
        (Endpoint::CLOSED, _) => FlowState::S2,
        (from, Endpoint::CLOSED) if quiet(from) => FlowState::Shr,
        (_, Endpoint::CLOSED) => FlowState::S3,
        (Endpoint::SYN_SENT, Endpoint::INACTIVE) => FlowState::S0,
        (Endpoint::ESTABLISHED, Endpoint::ESTABLISHED) => FlowState::S1,
        _ => FlowState::Oth,
    }
}
