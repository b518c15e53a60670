//! One direction's place in sequence space.

use flowgauge_wire::Nanos;

use super::account::Account;
use super::distance;
use crate::policy::OverlapPolicy;

/// "No queue."
pub(super) const NONE: u32 = u32::MAX;

/// No window is larger (RFC 7323, section 2.3): what a sender has got further ahead of was received, or never will be.
pub(super) const LONGEST: i64 = 1 << 30;

/// One direction of a connection: 32 bytes, in the line a caller keeps its own counters in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Half {
    /// Sequence number of the next byte to hand on (valid with [`HalfFlags::SYNCED`]).
    pub(super) next_seq: u32,
    /// Highest acknowledgement this side has sent (valid with [`HalfFlags::ACKED`]).
    pub(super) ack_sent: u32,
    /// End of the farthest believed segment of this side (valid with [`HalfFlags::SYNCED`]).
    pub(super) max_end: u32,
    /// Sequence number of its FIN (valid with [`HalfFlags::FIN`]).
    pub(super) fin_seq: u32,
    /// Where its waiting segments are, or `NONE`.
    pub(super) queue: u32,
    /// Last implausible number (valid with [`HalfFlags::SUSPECT`] or [`HalfFlags::SUSPECT_ACK`]).
    pub(super) suspect: u32,
    /// State bits.
    pub(super) flags: HalfFlags,
    /// Whatever the caller wants to note beside it: compared by [`Half::goes_on`], too.
    pub note: u16,
    /// Window this side last offered, unscaled.
    pub(super) window: u16,
    /// Shift of its windows; 14 (the most there is) while its SYN was not seen.
    pub(super) window_scale: u8,
    /// What the receiver of this direction does with overlaps.
    pub(super) policy: OverlapPolicy,
}

/// State bits of a [`Half`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfFlags(pub u16);

impl HalfFlags {
    /// `next_seq` is known.
    pub const SYNCED: HalfFlags = HalfFlags(1);
    /// The start is known from a SYN or a handshake, not guessed.
    pub const START_KNOWN: HalfFlags = HalfFlags(2);
    /// The start is a guess from a packet without data; the byte after it may be the true one.
    pub const SOFT: HalfFlags = HalfFlags(4);
    /// This side has sent an acknowledgement.
    pub const ACKED: HalfFlags = HalfFlags(8);
    /// This side has sent a FIN.
    pub const FIN: HalfFlags = HalfFlags(16);
    /// The stream has got to the FIN (or was reset): nothing is handed on any more.
    pub const CLOSED: HalfFlags = HalfFlags(32);
    /// Something waits in a queue.
    pub const QUEUED: HalfFlags = HalfFlags(64);
    /// An implausible segment was seen last.
    pub const SUSPECT: HalfFlags = HalfFlags(128);
    /// ... or rather an implausible acknowledgement.
    pub const SUSPECT_ACK: HalfFlags = HalfFlags(4096);
    /// Its bytes are not wanted: they are followed, but neither queued nor handed on.
    pub const PASSED: HalfFlags = HalfFlags(256);
    /// ... for good: see [`Reassembler::abandon`](super::Reassembler::abandon).
    pub const ABANDONED: HalfFlags = HalfFlags(512);
    /// The farthest of what waits is beyond the receiver's window, and waits until it is believed: see
    /// [`Half::doubt`].
    pub const DOUBTED: HalfFlags = HalfFlags(1024);
    /// What comes next is beyond the receiver's window.
    pub(super) const DOUBTS_NEXT: HalfFlags = HalfFlags(2048);

    /// The peer's acknowledgements were left behind by more than sequence numbers can tell for long.
    pub(super) const LEFT_BEHIND: HalfFlags = HalfFlags(8192);

    /// With exactly these bits (others of no concern) a segment can be taken in order.
    const FAST_MASK: u16 = Self::SYNCED.0
        | Self::SOFT.0
        | Self::FIN.0
        | Self::CLOSED.0
        | Self::QUEUED.0
        | Self::PASSED.0;

    /// Whether all bits of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: HalfFlags) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, other: HalfFlags) {
        self.0 |= other.0;
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, other: HalfFlags) {
        self.0 &= !other.0;
    }
}

/// One TCP segment's data.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Sequence number of the first byte of data (of a SYN: the one after it).
    pub seq: u32,
    /// Bytes captured.
    pub bytes: &'a [u8],
    /// Length by the headers, at least that of `bytes`.
    pub len: u32,
    /// Whether it has a FIN behind its data.
    pub fin: bool,
    /// Capture time.
    pub time: Nanos,
    /// What it counts for.
    pub account: Account,
}

impl Half {
    /// A direction of which nothing is known.
    pub const fn new(policy: OverlapPolicy) -> Half {
        Half {
            next_seq: 0,
            ack_sent: 0,
            max_end: 0,
            fin_seq: 0,
            queue: NONE,
            suspect: 0,
            flags: HalfFlags(0),
            note: 0,
            window: 0,
            window_scale: 14,
            policy,
        }
    }

    /// State bits.
    #[inline(always)]
    pub const fn flags(&self) -> HalfFlags {
        self.flags
    }

    /// Whether segments wait behind a hole.
    #[inline(always)]
    pub const fn is_queued(&self) -> bool {
        self.flags.contains(HalfFlags::QUEUED)
    }

    /// Whether its bytes are not wanted ([`HalfFlags::PASSED`]).
    #[inline(always)]
    pub const fn is_passed(&self) -> bool {
        self.flags.contains(HalfFlags::PASSED)
    }

    /// Says that its bytes are not wanted, or are again (unless it was given up for good): see
    /// [`Reassembler::pass_over`](super::Reassembler::pass_over).
    pub fn set_passed(&mut self, passed: bool) {
        if passed || self.is_abandoned() {
            self.flags.insert(HalfFlags::PASSED);
        } else {
            self.flags.remove(HalfFlags::PASSED);
        }
    }

    /// Whether it was given up for good ([`HalfFlags::ABANDONED`]).
    #[inline(always)]
    pub const fn is_abandoned(&self) -> bool {
        self.flags.contains(HalfFlags::ABANDONED)
    }

    /// The bytes of one that was [abandoned](super::Reassembler::abandon) are wanted again.
    pub fn take_up(&mut self) {
        self.flags.remove(HalfFlags::ABANDONED);
        self.flags.remove(HalfFlags::PASSED);
    }

    /// Whether the start is known from a SYN or a handshake ([`HalfFlags::START_KNOWN`]).
    #[inline(always)]
    pub const fn is_start_known(&self) -> bool {
        self.flags.contains(HalfFlags::START_KNOWN)
    }

    /// Begins anew: what its sender sent so far was another connection's. What the caller decided
    /// about it stays.
    pub fn restart(&mut self) {
        let decided = self.flags.0 & (HalfFlags::PASSED.0 | HalfFlags::ABANDONED.0);
        *self = Half {
            flags: HalfFlags(decided),
            ..Half::new(self.policy)
        };
    }

    /// What comes before this sequence number is not handed on: it is not wanted, or was kept away.
    pub fn keep_up_to(&mut self, seq: u32) {
        if self.flags.contains(HalfFlags::SYNCED) && distance(self.next_seq, seq) > 0 {
            self.next_seq = seq;
            self.note_reached();
        }
    }

    /// What the receiver of this direction does with overlaps from now on.
    pub fn set_policy(&mut self, policy: OverlapPolicy) {
        self.policy = policy;
    }

    /// Whether a segment that ends before sequence number `end` is within what the receiver (`peer`)
    /// may have allowed, or behind it. One that is not belongs to another connection, or is made up,
    /// until a second one confirms it.
    #[inline]
    pub fn expects(&self, peer: &Half, end: u32) -> bool {
        if self.flags.0 & (HalfFlags::SYNCED.0 | HalfFlags::QUEUED.0) == 0 {
            return true;
        }
        let room = peer.room() as i32;
        let mut beyond = distance(self.max_end, end);
        // (An older acknowledgement says nothing, and may be further back than sequence numbers tell.)
        if let Some(ack) = peer.ack()
            && distance(self.max_end, ack) > 0
            && !(self.flags.contains(HalfFlags::LEFT_BEHIND) && distance(self.max_end, ack) > room)
        {
            beyond = beyond.min(distance(ack, end));
        }
        beyond <= room && (self.flags.contains(HalfFlags::SYNCED) || beyond >= -room)
    }

    /// Whether the acknowledgements of its receiver (`peer`) are captured and keep up with it: the last one is no
    /// further from what was sent than may be sent at once, and acknowledges some of the `position` bytes so far, or
    /// all there are.
    pub(super) fn is_followed(&self, peer: &Half, position: u64) -> bool {
        let Some(ack) = peer.ack() else {
            return false;
        };
        let outstanding = i64::from(distance(ack, self.next_seq));
        self.flags.contains(HalfFlags::SYNCED)
            && !self.flags.contains(HalfFlags::LEFT_BEHIND)
            && !peer.flags.contains(HalfFlags::SUSPECT_ACK)
            && distance(ack, self.max_end).unsigned_abs() <= peer.room()
            && (outstanding <= 0 || outstanding.unsigned_abs() < position)
    }

    /// How far `seq` lies behind the next byte to hand on, once that is known (negative: before it).
    #[inline]
    pub fn distance_to(&self, seq: u32) -> Option<i32> {
        if !self.flags.contains(HalfFlags::SYNCED) {
            return None;
        }
        let ahead = distance(self.next_seq, seq);
        // The packet without data that the start was guessed from may have been a keep-alive, or made up.
        if self.flags.contains(HalfFlags::SOFT) {
            let is_near = i64::from(ahead).abs() <= LONGEST;
            return is_near.then_some(if ahead == 1 { 0 } else { ahead });
        }
        Some(ahead)
    }

    /// How far `to` is ahead of what is to be handed on next, or of the first that waits, at `head`.
    pub(super) fn span(&self, head: u32, to: u32) -> i64 {
        let from = match self.flags.contains(HalfFlags::SYNCED) {
            true => self.next_seq,
            false => head,
        };
        i64::from(distance(from, to))
    }

    /// Whether `seq` is ahead of all that is believed by no more than three quarters of half the sequence space: near half
    /// of it nobody can tell what is ahead from what is behind.
    pub(super) fn is_surely_ahead(&self, seq: u32) -> bool {
        let ahead = distance(self.max_end, seq);
        !self.flags.contains(HalfFlags::SYNCED) || (0..=3 << 29).contains(&ahead)
    }

    /// The stream has jumped: notes whether the acknowledgement `ack` of before says nothing any more.
    pub(super) fn note_jump(&mut self, ack: Option<u32>) {
        if ack.is_some_and(|ack| distance(ack, self.next_seq).unsigned_abs() > 1 << 30) {
            self.flags.insert(HalfFlags::LEFT_BEHIND);
        }
    }

    /// What is handed on was sent.
    #[inline(always)]
    pub(super) fn note_reached(&mut self) {
        if distance(self.max_end, self.next_seq) > 0 {
            self.max_end = self.next_seq;
        }
    }

    /// Whether `seq` is behind all that was handed on, or, as long as nothing was, behind all that waits.
    #[inline]
    pub(super) fn is_ahead(&self, seq: u32) -> bool {
        match self.flags.contains(HalfFlags::SYNCED) {
            true => distance(self.next_seq, seq) > 0,
            false => self.is_queued() && distance(self.max_end, seq) > 0,
        }
    }

    /// The stream starts at `seq`: known from a handshake. Ignored once data were handed on.
    pub fn start_at(&mut self, seq: u32) {
        if self.flags.contains(HalfFlags::START_KNOWN)
            || self.is_queued() && self.flags.contains(HalfFlags::SYNCED)
        {
            return;
        }
        if self.flags.contains(HalfFlags::SYNCED) && !self.flags.contains(HalfFlags::SOFT) {
            return;
        }
        self.next_seq = seq;
        self.max_end = seq;
        self.flags.insert(HalfFlags::SYNCED);
        self.flags.insert(HalfFlags::START_KNOWN);
        self.flags.remove(HalfFlags::SOFT);
    }

    /// The stream probably goes on at `seq`: the number on a packet without data.
    pub fn start_near(&mut self, seq: u32) {
        if self.flags.0 & (HalfFlags::SYNCED.0 | HalfFlags::QUEUED.0) != 0 {
            return;
        }
        self.next_seq = seq;
        self.max_end = seq;
        self.flags.insert(HalfFlags::SYNCED);
        self.flags.insert(HalfFlags::SOFT);
    }

    /// The shift of this side's windows, from its SYN.
    pub fn set_window_scale(&mut self, shift: u8) {
        self.window_scale = shift.min(14);
    }

    /// Takes the next packet of a direction in full swing: whole, with `len` bytes of data beginning
    /// exactly where the last one ended (or none), an acknowledgement that goes on from the last
    /// one or is the first, and nothing else; while nothing waits and nothing is special, and the caller's `note`
    /// is this one. The caller hands its bytes on.
    #[inline(always)]
    #[must_use]
    pub fn goes_on(&mut self, seq: u32, len: u32, ack: u32, window: u16, note: u16) -> bool {
        // Flags and note are next to each other, and so compared at once.
        let both = |flags: u16, note: u16| u32::from(flags) | u32::from(note) << 16;
        let state = both(self.flags.0, self.note) & both(HalfFlags::FAST_MASK, u16::MAX);
        // The first acknowledgement may be any.
        let known = u32::from(self.flags.contains(HalfFlags::ACKED));
        let usual = state == both(HalfFlags::SYNCED.0, note)
            && seq == self.next_seq
            && ack.wrapping_sub(self.ack_sent).wrapping_mul(known) <= 1 << 26;
        if usual {
            self.flags.insert(HalfFlags::ACKED);
            self.flags.remove(HalfFlags::SUSPECT_ACK);
            self.ack_sent = ack;
            self.window = window;
            self.next_seq = seq.wrapping_add(len);
            self.note_reached();
        }
        usual
    }

    /// Takes a whole segment that begins exactly where the last one ended, if nothing waits and
    /// nothing is special. The caller hands its bytes on.
    #[inline(always)]
    #[must_use]
    pub fn take_in_order(&mut self, seq: u32, len: u32) -> bool {
        if self.flags.0 & HalfFlags::FAST_MASK == HalfFlags::SYNCED.0 && seq == self.next_seq {
            self.next_seq = seq.wrapping_add(len);
            self.note_reached();
            return true;
        }
        false
    }

    /// The same for a segment with a FIN, which is the last if `peer` has not acknowledged beyond
    /// it: the direction is closed then.
    #[inline]
    #[must_use]
    pub fn take_last(&mut self, seq: u32, len: u32, peer: &Half) -> bool {
        let end = seq.wrapping_add(len);
        let beyond = peer
            .ack()
            .is_some_and(|ack| distance(end.wrapping_add(1), ack) > 0);
        if beyond || !self.take_in_order(seq, len) {
            return false;
        }
        self.fin_seq = end;
        self.flags.insert(HalfFlags::FIN);
        self.flags.insert(HalfFlags::CLOSED);
        true
    }

    /// How far `seq` is before its FIN (negative: behind it), once that was seen. `peer` has not
    /// acknowledged more, or else it was none.
    pub fn distance_to_fin(&self, peer: &Half, seq: u32) -> Option<i32> {
        if !self.flags.contains(HalfFlags::FIN) {
            return None;
        }
        let end = self.fin_seq.wrapping_add(1);
        let is_false = peer.ack().is_some_and(|ack| distance(end, ack) > 0);
        (!is_false).then(|| distance(seq, self.fin_seq))
    }

    /// What the receiver of this direction does with overlaps.
    pub const fn policy(&self) -> OverlapPolicy {
        self.policy
    }

    /// Notes the acknowledgement and window of a packet this side sent at `seq`. True when the
    /// acknowledgement moved on.
    #[inline(always)]
    pub fn note_ack(&mut self, seq: u32, ack: u32, window: u16) -> bool {
        self.window = window;
        let moved = ack.wrapping_sub(self.ack_sent);
        if !self.flags.contains(HalfFlags::ACKED) {
            self.flags.insert(HalfFlags::ACKED);
        } else if moved.wrapping_sub(1) >= 1 << 26 {
            return moved != 0 && self.note_odd_ack(seq, ack);
        }
        self.flags.remove(HalfFlags::SUSPECT_ACK);
        self.ack_sent = ack;
        true
    }

    /// An acknowledgement that goes back, or jumps further than a window.
    #[cold]
    #[inline(never)]
    fn note_odd_ack(&mut self, seq: u32, ack: u32) -> bool {
        let ahead = distance(self.ack_sent, ack);
        if ahead > 0 {
            return self.note_far_ack(ack);
        }
        // What this side sent behind everything before acknowledges much less than an earlier packet: no host
        // takes an acknowledgement back, so that one was made up.
        let less = ahead.unsigned_abs();
        if less >= 1 << 26 {
            // Nobody can tell what is old there: it may be as far ahead.
            self.note_doubt(ack);
        } else if self.flags.contains(HalfFlags::SYNCED)
            && distance(self.max_end, seq) >= 0
            && less > self.window_bytes().max(65_535)
        {
            self.ack_sent = ack;
        }
        false
    }

    /// Whether this side cannot have got what it acknowledges: `peer`, both of whose ends are known, was not
    /// seen to send so much, and would have had to send twice the window beyond what was acknowledged before.
    /// A second packet that says so is believed ([`Half::note_doubt`]).
    pub fn doubts_ack(&self, peer: &Half, ack: u32) -> bool {
        let known = HalfFlags(HalfFlags::SYNCED.0 | HalfFlags::ACKED.0);
        let room = 2 * i64::from(self.window_bytes());
        let is_near = |from: u32| i64::from(distance(from, ack)) <= room;
        self.flags.contains(known)
            && self.is_window_known()
            && peer.flags.contains(HalfFlags::START_KNOWN)
            // (Its FIN takes a number.)
            && distance(peer.max_end, ack) > 1
            && !is_near(self.ack_sent)
            && !(self.flags.contains(HalfFlags::SUSPECT_ACK)
                && is_near(self.suspect)
                && distance(self.suspect, ack) >= 0)
    }

    /// Remembers an acknowledgement that was not believed.
    pub fn note_doubt(&mut self, ack: u32) {
        self.suspect = ack;
        self.flags.insert(HalfFlags::SUSPECT_ACK);
        self.flags.remove(HalfFlags::SUSPECT);
    }

    /// Whether a segment at `seq` begins beyond the window that the receiver (`peer`) offered last, as far as
    /// that is known, and would leave a hole.
    pub fn is_beyond_window(&self, peer: &Half, seq: u32) -> bool {
        let known = HalfFlags(HalfFlags::SYNCED.0 | HalfFlags::START_KNOWN.0);
        self.flags.contains(known)
            && peer.is_window_known()
            && distance(self.next_seq, seq) > 0
            && peer
                .ack()
                .is_some_and(|ack| i64::from(distance(ack, seq)) > i64::from(peer.window_bytes()))
    }

    /// What comes next is beyond the receiver's window: it waits until the stream gets there, until a packet
    /// that begins behind it is captured, or until the receiver acknowledges what is before it; however
    /// long that takes.
    pub fn doubt(&mut self) {
        self.flags.insert(HalfFlags::DOUBTS_NEXT);
    }

    /// What came is not beyond the receiver's window any more, or waits.
    pub fn settle_doubt(&mut self) {
        self.flags.remove(HalfFlags::DOUBTS_NEXT);
        if !self.is_queued() {
            self.flags.remove(HalfFlags::DOUBTED);
        }
    }

    /// Whether the farthest of what waits is beyond the receiver's window.
    #[inline(always)]
    pub const fn is_doubted(&self) -> bool {
        self.flags.contains(HalfFlags::DOUBTED)
    }

    /// How far its acknowledgement may be beyond what was captured before it has to be known for a while.
    pub(super) fn room_for_loss(&self) -> i32 {
        self.window_bytes().clamp(65_535, 1 << 30) as i32
    }

    /// The window this side offered last.
    fn window_bytes(&self) -> u32 {
        u32::from(self.window) << self.window_scale
    }

    /// Whether the shift of its windows is known. (One of 14 is taken for unknown.)
    const fn is_window_known(&self) -> bool {
        self.window_scale < 14
    }

    /// One that jumps further than a window is likely forged or broken; the next one is believed if it agrees: it
    /// is near it, or goes on from it as far.
    fn note_far_ack(&mut self, ack: u32) -> bool {
        let agrees = self.flags.contains(HalfFlags::SUSPECT_ACK)
            && distance(self.suspect, ack) >= -(1 << 26);
        if agrees {
            self.flags.remove(HalfFlags::SUSPECT_ACK);
            self.ack_sent = ack;
            return true;
        }
        self.note_doubt(ack);
        false
    }

    /// The highest acknowledgement sent, if any.
    #[inline]
    pub fn ack(&self) -> Option<u32> {
        self.flags
            .contains(HalfFlags::ACKED)
            .then_some(self.ack_sent)
    }

    /// How far beyond its acknowledgement this side may be sent data, generously: twice the
    /// offered window and a mebibyte, for acknowledgements that were not captured.
    pub fn room(&self) -> u32 {
        let window = (u32::from(self.window) << self.window_scale).max(65_535);
        (2 * window + (1 << 20)).min(1 << 30)
    }

    /// Whether `seq` is near the last implausible number; remembers it otherwise.
    pub(super) fn confirms(&mut self, seq: u32, room: u32) -> bool {
        let known = self.flags.contains(HalfFlags::SUSPECT);
        if known && distance(self.suspect, seq).unsigned_abs() <= room {
            self.flags.remove(HalfFlags::SUSPECT);
            return true;
        }
        self.suspect = seq;
        self.flags.insert(HalfFlags::SUSPECT);
        self.flags.remove(HalfFlags::SUSPECT_ACK);
        false
    }

    /// Notes the sequence number of a packet without data: the sender has sent everything before.
    #[inline]
    pub fn note_sent(&mut self, seq: u32) {
        if self.flags.contains(HalfFlags::SYNCED) {
            let ahead = distance(self.max_end, seq);
            if ahead > 0 && ahead < 1 << 26 {
                self.max_end = seq;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_is_half_a_cache_line() {
        assert_eq!(size_of::<Half>(), 32);
    }

    #[test]
    fn an_acknowledgement_is_taken_back_by_what_is_sent_later() {
        let mut half = Half::new(OverlapPolicy::First);
        half.start_at(1000);
        half.set_window_scale(0);
        assert!(half.note_ack(1000, 500, u16::MAX));
        assert!(half.note_ack(1000, 900_500, u16::MAX));
        // What was sent before it says nothing.
        half.max_end = 1100;
        assert!(!half.note_ack(1000, 510, u16::MAX));
        assert_eq!(half.ack(), Some(900_500));
        assert!(!half.note_ack(1100, 510, u16::MAX));
        assert_eq!(half.ack(), Some(510));
        // Packets in another order than they were sent in are no reason.
        assert!(half.note_ack(1000, 60_000, u16::MAX));
        assert!(!half.note_ack(1100, 510, u16::MAX));
        assert_eq!(half.ack(), Some(60_000));
    }

    #[test]
    fn an_acknowledgement_beyond_two_windows_takes_a_second_one() {
        let (mut half, mut peer) = (
            Half::new(OverlapPolicy::First),
            Half::new(OverlapPolicy::First),
        );
        half.start_at(1000);
        peer.start_at(500);
        assert!(half.note_ack(1000, 500, u16::MAX));
        assert!(
            !half.doubts_ack(&peer, 900_500),
            "its windows are not known"
        );
        half.set_window_scale(0);
        assert!(half.doubts_ack(&peer, 900_500));
        assert!(!half.doubts_ack(&peer, 100_500));
        half.note_doubt(900_500);
        assert!(!half.doubts_ack(&peer, 900_600));
        assert!(half.doubts_ack(&peer, 400_500));
        peer.max_end = 400_500;
        assert!(!half.doubts_ack(&peer, 400_501));
    }
}
