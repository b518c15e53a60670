//! The waiting segments of one direction, sorted.

use core::ops::Range;
use std::collections::VecDeque;

use flowgauge_wire::Nanos;

use super::ReassemblyStatistics;
use super::account::Account;
use super::distance;
use super::half::NONE;
use super::piece::{Bounds, Piece};
use super::pool::{BLOCK, Pool};
use crate::policy::OverlapPolicy;

/// A sorted list of pieces and what is known of the hole before it.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// Piece touched last: the next one is likely near it.
    near: u32,
    /// The stream this belongs to; `NONE` when not in use.
    pub(super) owner: u32,
    /// Captured bytes waiting.
    pub(super) bytes: u64,
    /// The peer's acknowledgement at `mark_time`, and the one before: known for the reordering
    /// allowance at least.
    mark: Option<u32>,
    stable: Option<u32>,
    mark_time: Nanos,
    /// The farthest byte seen when the peer first acknowledged past the hole at the head.
    passed: Option<u32>,
    /// From where on what waits is not believed yet.
    pub(super) doubt: Option<Doubt>,
    /// Pieces at least [`SPAN`] apart, in order: where to begin in a long list. Pieces stay where
    /// they are until they become the head and are taken off.
    fingers: VecDeque<u32>,
}

/// What waits beyond all that its receiver may have allowed: one segment, or several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Segments with new bytes that came since, and are where the stream was before.
    pub(super) contradictions: u8,
}

impl Doubt {
    /// Whether a segment is as far ahead: behind it (as long as nothing contradicts it, at any distance), over it, or
    /// before it and no further from it than `room`.
    pub(super) fn is_joined_by(&self, start: u32, end: u32, room: u32) -> bool {
        let room = room as i32;
        let is_behind = self.contradictions == 0 || distance(self.end, start) <= room;
        is_behind && distance(end, self.start) <= room
    }
}

/// Pieces looked at around the one touched last, before the fingers are asked.
const NEAR: usize = 8;
/// Pieces walked over before another finger is set.
const SPAN: usize = 32;
/// Pieces looked at to find out whether a segment is a copy. It is taken for new where that is too
/// few.
const STEPS: usize = 128;
/// Room for so many fingers is kept when a queue is not in use any more.
const KEPT_FINGERS: usize = 64;

/// A newcomer's bytes: `None` when the snap length cut them off.
pub(super) struct Newcomer<'a> {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) owner: Bounds,
    pub(super) time: Nanos,
    pub(super) account: Account,
    /// An earlier byte of its segment had a place.
    pub(super) has_begun: bool,
    /// Bytes of it that came a second time.
    pub(super) repeated: u32,
    /// Packets that were cut off altogether and of which its bytes have the last place.
    pub(super) displaced: u32,
}

impl Newcomer<'_> {
    /// Bytes of it get a place. Returns whether they are the first of a packet.
    fn begin(&mut self) -> bool {
        let begins = !self.has_begun && self.account == Account::Packet;
        self.has_begun = true;
        begins
    }
}

impl Queue {
    pub(super) fn new(owner: u32, ack: Option<u32>, now: Nanos) -> Queue {
        Queue {
            head: NONE,
            tail: NONE,
            near: NONE,
            owner,
            bytes: 0,
            mark: ack,
            stable: None,
            mark_time: now,
            passed: None,
            doubt: None,
            fingers: VecDeque::new(),
        }
    }

    /// Takes over the memory of a queue that is not in use any more.
    pub(super) fn recycle(&mut self, old: Queue) {
        if old.fingers.capacity() <= KEPT_FINGERS {
            self.fingers = old.fingers;
            self.fingers.clear();
        }
    }

    /// Inserts a newcomer, overlaps resolved by `policy`. `Err` says up to where it was placed when
    /// the pool was used up.
    pub(super) fn insert(
        &mut self,
        pool: &mut Pool,
        new: &mut Newcomer<'_>,
        policy: OverlapPolicy,
        statistics: &mut ReassemblyStatistics,
    ) -> Result<(), u32> {
        let mut at = self.first_ending_after(pool, new.start, &mut statistics.search_steps);
        let mut next = new.start;
        let mut conflict = false;
        let anonymous = policy.ignores_bounds();
        while distance(next, new.end) > 0 {
            statistics.search_steps += 1;
            let Some(&piece) = pool
                .piece(at)
                .filter(|piece| distance(piece.seq, new.end) > 0)
            else {
                self.place(pool, at, next..new.end, new, anonymous)?;
                break;
            };
            if distance(next, piece.seq) > 0 {
                self.place(pool, at, next..piece.seq, new, anonymous)?;
                next = piece.seq;
                continue;
            }
            // `piece` holds the byte at `next`.
            let mut to = if distance(piece.end(), new.end) < 0 {
                new.end
            } else {
                piece.end()
            };
            let Some(bytes) = new.bytes else {
                // (Where what was refused is, too: it is not what is waited for.)
                new.repeated += distance(next, to) as u32;
                next = to;
                at = piece.next;
                continue;
            };
            if !piece.captured && distance(next, to) > BLOCK as i32 {
                to = next.wrapping_add(BLOCK as u32);
            }
            let offset = distance(new.start, next) as usize;
            let theirs = &bytes[offset..offset + distance(next, to) as usize];
            let wins = if piece.captured {
                let from = piece.offset_of(next);
                let ours = &pool.bytes(at)[from..from + theirs.len()];
                statistics.overlap_bytes += theirs.len() as u64;
                if ours != theirs {
                    conflict = true;
                    let differing = ours.iter().zip(theirs).filter(|(a, b)| a != b).count();
                    statistics.conflict_bytes += differing as u64;
                }
                policy.segment_wins(
                    0.cmp(&distance(new.owner.start, piece.owner.start)),
                    0.cmp(&distance(new.owner.end, piece.owner.end)),
                )
            } else {
                true
            };
            if wins && piece.captured && anonymous {
                // Whose bytes they are decides nothing.
                pool.write(at, piece.offset_of(next), theirs);
            } else if wins {
                at = self.isolate(pool, at, next, to).ok_or(next)?;
                let mut moved = false;
                if let Some(piece) = pool.piece_mut(at) {
                    if !piece.captured {
                        piece.captured = true;
                        moved = core::mem::replace(&mut piece.begins, new.begin());
                        piece.refused = false;
                        piece.start = 0;
                        self.bytes += u64::from(piece.len);
                    }
                    piece.owner = new.owner;
                }
                if moved {
                    // The packet that began here begins with what is left of it.
                    let rest = pool.piece(at).map_or(NONE, |piece| piece.next);
                    match pool.piece_mut(rest) {
                        Some(rest) if to != piece.end() => rest.begins = true,
                        _ => new.displaced += 1,
                    }
                }
                pool.write(at, 0, theirs);
            }
            // (What was refused does not count itself.)
            if !piece.refused {
                new.repeated += distance(next, to) as u32;
            }
            next = to;
            at = match pool.piece(at) {
                Some(piece) if distance(piece.end(), next) >= 0 => piece.next,
                _ => at,
            };
        }
        statistics.conflicts += u64::from(conflict);
        Ok(())
    }

    /// Whether these bytes are all there already, from `seq` on.
    pub(super) fn holds(&self, pool: &Pool, seq: u32, bytes: &[u8]) -> bool {
        let begins_before = |index: u32| {
            pool.piece(index)
                .is_some_and(|piece| distance(piece.seq, seq) >= 0)
        };
        let mut at = match self.fingers.partition_point(|&index| begins_before(index)) {
            0 => self.head,
            after => self.fingers[after - 1],
        };
        if begins_before(self.near) {
            let is_nearer = |piece: &Piece| distance(piece.seq, seq);
            let far = pool.piece(at).map_or(i32::MAX, is_nearer);
            if pool
                .piece(self.near)
                .is_some_and(|piece| is_nearer(piece) < far)
            {
                at = self.near;
            }
        }
        let (mut next, mut rest) = (seq, bytes);
        let mut steps = 0;
        while let Some(piece) = pool.piece(at) {
            steps += 1;
            if steps > STEPS {
                return false;
            }
            if distance(next, piece.end()) > 0 {
                if distance(piece.seq, next) < 0 || !piece.captured {
                    return false;
                }
                let have = pool.bytes(at);
                let have = have.get(piece.offset_of(next)..).unwrap_or(&[]);
                let len = have.len().min(rest.len());
                if have[..len] != rest[..len] {
                    return false;
                }
                rest = &rest[len..];
                if rest.is_empty() {
                    return true;
                }
                next = piece.end();
            }
            at = piece.next;
        }
        false
    }

    /// Takes the head off.
    pub(super) fn pop(&mut self, pool: &mut Pool) {
        let index = self.head;
        let Some(&piece) = pool.piece(index) else {
            return;
        };
        self.head = piece.next;
        match pool.piece_mut(piece.next) {
            Some(next) => next.prev = NONE,
            None => self.tail = NONE,
        }
        if self.near == index {
            self.near = piece.next;
        }
        if self.fingers.front() == Some(&index) {
            self.fingers.pop_front();
        }
        if piece.captured {
            self.bytes -= u64::from(piece.len);
        }
        // What is known of acknowledgements holds for the next hole, too, but for this:
        self.passed = None;
        pool.free(index);
    }

    /// Takes the last one off.
    pub(super) fn pop_last(&mut self, pool: &mut Pool) {
        let index = self.tail;
        let Some(&piece) = pool.piece(index) else {
            return;
        };
        self.tail = piece.prev;
        match pool.piece_mut(piece.prev) {
            Some(last) => last.next = NONE,
            None => self.head = NONE,
        }
        if self.near == index {
            self.near = piece.prev;
        }
        if self.fingers.back() == Some(&index) {
            self.fingers.pop_back();
        }
        if piece.captured {
            self.bytes -= u64::from(piece.len);
        }
        pool.free(index);
    }

    /// Whether what waits at `seq` is not believed yet.
    pub(super) fn doubts(&self, seq: u32) -> bool {
        self.doubt
            .is_some_and(|doubt| distance(doubt.start, seq) >= 0)
    }

    /// Notes the peer's acknowledgement at `now`.
    pub(super) fn observe(
        &mut self,
        pool: &Pool,
        ack: Option<u32>,
        max_end: u32,
        now: Nanos,
        allowance: Nanos,
    ) {
        if let (Some(mark), Some(ack)) = (self.mark, ack)
            && distance(mark, ack) < 0
        {
            // It was taken back.
            (self.mark, self.stable, self.passed) = (Some(ack), None, None);
            self.mark_time = now;
        }
        if now - self.mark_time >= allowance {
            self.stable = self.mark;
            self.mark = ack;
            self.mark_time = now;
        }
        if self.passed.is_none()
            && let (Some(ack), Some(head)) = (ack, pool.piece(self.head))
            && distance(head.seq, ack) >= 0
        {
            self.passed = Some(max_end);
        }
    }

    /// Whether the peer's acknowledgement of everything before the head has been known for the
    /// allowance.
    pub(super) fn is_acknowledged(&self, head: &Piece, max_end: u32, reorder_bytes: u32) -> bool {
        let stable = self.stable.is_some_and(|ack| distance(head.seq, ack) >= 0);
        let far = self
            .passed
            .is_some_and(|passed| distance(passed, max_end) >= reorder_bytes.min(1 << 30) as i32);
        stable || far
    }

    /// The first piece that ends after `seq`; `NONE` when there is none. `steps` counts the pieces
    /// looked at: some dozens, however many wait, and in whatever order they came.
    fn first_ending_after(&mut self, pool: &Pool, seq: u32, steps: &mut u64) -> u32 {
        let ends_after = |index: u32| {
            pool.piece(index)
                .is_some_and(|piece| distance(seq, piece.end()) > 0)
        };
        if !ends_after(self.tail) {
            return NONE;
        }
        if ends_after(self.head) {
            return self.head;
        }
        // Between the ends. Retransmissions after a loss follow each other, so begin near the last.
        let mut at = self.near;
        for _ in 0..NEAR {
            let Some(piece) = pool.piece(at) else {
                break;
            };
            *steps += 1;
            if !ends_after(at) {
                at = piece.next;
                if ends_after(at) {
                    return at;
                }
            } else if !ends_after(piece.prev) {
                return at;
            } else {
                at = piece.prev;
            }
        }
        self.walk_from_finger(pool, seq, steps)
    }

    /// The same, beginning at the last finger before `seq`. Sets fingers on the way.
    fn walk_from_finger(&mut self, pool: &Pool, seq: u32, steps: &mut u64) -> u32 {
        let begins_before = |&index: &u32| {
            pool.piece(index)
                .is_some_and(|piece| distance(piece.seq, seq) >= 0)
        };
        let mut finger = self.fingers.partition_point(begins_before);
        let mut at = match finger.checked_sub(1) {
            Some(before) => self.fingers[before],
            None => self.head,
        };
        let mut walked = 0;
        while let Some(piece) = pool.piece(at) {
            *steps += 1;
            if distance(seq, piece.end()) > 0 {
                return at;
            }
            at = piece.next;
            walked += 1;
            if walked == SPAN {
                walked = 0;
                if at != NONE && self.fingers.get(finger) != Some(&at) {
                    self.fingers.insert(finger, at);
                    finger += 1;
                }
            }
        }
        NONE
    }

    /// Places bytes of the newcomer in front of piece `before` (or at the end). Where nobody asks
    /// whose they are (`anonymous`) they join the piece before them, if its block has room for
    /// all of them: small segments that follow each other share blocks.
    fn place(
        &mut self,
        pool: &mut Pool,
        before: u32,
        range: Range<u32>,
        new: &mut Newcomer<'_>,
        anonymous: bool,
    ) -> Result<(), u32> {
        let (mut from, to) = (range.start, range.end);
        if anonymous && let Some(bytes) = new.bytes {
            let prev = pool.piece(before).map_or(self.tail, |piece| piece.prev);
            let place = distance(new.start, from) as usize;
            let part = &bytes[place..place + distance(from, to) as usize];
            let adjacent = pool.piece(prev).is_some_and(|piece| piece.end() == from);
            let begins = !new.has_begun && new.account == Account::Packet;
            if adjacent && pool.append(prev, part, begins) {
                new.has_begun = true;
                self.bytes += part.len() as u64;
                self.near = prev;
                return Ok(());
            }
        }
        while distance(from, to) > 0 {
            let mut len = distance(from, to) as usize;
            if new.bytes.is_some() {
                len = len.min(BLOCK);
            }
            let piece = Piece {
                seq: from,
                len: len as u32,
                owner: new.owner,
                time: new.time,
                captured: new.bytes.is_some(),
                refused: new.account == Account::Nothing,
                ..Piece::EMPTY
            };
            let index = pool.allocate(piece).ok_or(from)?;
            if let Some(piece) = pool.piece_mut(index) {
                piece.begins = new.begin();
            }
            if let Some(bytes) = new.bytes {
                let offset = distance(new.start, from) as usize;
                pool.write(index, 0, &bytes[offset..offset + len]);
                self.bytes += len as u64;
            }
            self.link_before(pool, index, before);
            self.near = index;
            from = from.wrapping_add(len as u32);
        }
        Ok(())
    }

    fn link_before(&mut self, pool: &mut Pool, index: u32, before: u32) {
        let prev = match pool.piece_mut(before) {
            Some(next) => core::mem::replace(&mut next.prev, index),
            None => core::mem::replace(&mut self.tail, index),
        };
        match pool.piece_mut(prev) {
            Some(piece) => piece.next = index,
            None => {
                self.head = index;
                self.passed = None;
            }
        }
        if let Some(piece) = pool.piece_mut(index) {
            piece.prev = prev;
            piece.next = before;
        }
    }

    /// Cuts a piece so that `from..to` is one of its own, and returns that.
    fn isolate(&mut self, pool: &mut Pool, index: u32, from: u32, to: u32) -> Option<u32> {
        let piece = *pool.piece(index)?;
        let mut index = index;
        if distance(piece.seq, from) > 0 {
            index = self.split(pool, index, from)?;
        }
        if distance(to, pool.piece(index)?.end()) > 0 {
            self.split(pool, index, to)?;
        }
        Some(index)
    }

    /// Cuts a piece in two at `seq` and returns the second.
    fn split(&mut self, pool: &mut Pool, index: u32, seq: u32) -> Option<u32> {
        let piece = *pool.piece(index)?;
        let kept = piece.offset_of(seq);
        let second = pool.allocate(Piece {
            seq,
            len: piece.len - kept as u32,
            start: 0,
            begins: false,
            has_joined: false,
            ..piece
        })?;
        if piece.captured {
            let mut copy = [0; BLOCK];
            let rest = pool.bytes(index).get(kept..).unwrap_or(&[]);
            let len = rest.len();
            copy[..len].copy_from_slice(rest);
            pool.write(second, 0, &copy[..len]);
        }
        // (What has joined behind that, before the policy changed, is not noted any more.)
        if let Some(first) = pool.piece_mut(index) {
            first.len = kept as u32;
        }
        self.link_before(pool, second, piece.next);
        Some(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts pieces of two bytes at the given places, every other byte, and checks their order.
    fn steps_per_piece(places: impl Iterator<Item = u32>) -> u64 {
        const BASE: u32 = 0xffff_0000;
        let mut pool = Pool::new(1 << 40);
        let mut queue = Queue::new(0, None, Nanos::ZERO);
        let mut statistics = ReassemblyStatistics::default();
        let mut count = 0;
        for place in places {
            let start = BASE.wrapping_add(place * 4);
            let end = start.wrapping_add(2);
            let mut new = Newcomer {
                start,
                end,
                // Cut off by the snap length: no bytes to compare.
                bytes: None,
                owner: Bounds { start, end },
                time: Nanos::ZERO,
                account: Account::Packet,
                has_begun: false,
                repeated: 0,
                displaced: 0,
            };
            let inserted = queue.insert(&mut pool, &mut new, OverlapPolicy::First, &mut statistics);
            assert_eq!(inserted, Ok(()));
            count += 1;
        }
        let mut last = None;
        for _ in 0..count {
            let seq = pool.piece(queue.head).unwrap().seq.wrapping_sub(BASE);
            assert!(last < Some(seq), "{last:?} {seq}");
            last = Some(seq);
            queue.pop(&mut pool);
        }
        assert_eq!((queue.head, queue.tail), (NONE, NONE));
        assert!(queue.fingers.is_empty());
        statistics.search_steps / count
    }

    #[test]
    fn a_flood_in_any_order_is_not_walked_through() {
        const COUNT: u32 = 100_000;
        // Multiples of a number that has no factor in common with the count: every place once.
        assert!(
            steps_per_piece((0..COUNT).map(|at| (u64::from(at) * 61_803 % 100_000) as u32)) < 60
        );
        let mut places: Vec<u32> = (0..COUNT).collect();
        let mut random = 0x1234_5678_9abc_def1_u64;
        for at in (1..places.len()).rev() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            places.swap(at, (random % (at as u64 + 1)) as usize);
        }
        assert!(steps_per_piece(places.into_iter()) < 60);
        // From both ends in turn, then the places between.
        let alternating = (0..COUNT / 2).flat_map(|at| [at, COUNT - 1 - at]);
        assert!(steps_per_piece(alternating) < 60);
        assert!(steps_per_piece(0..COUNT) < 2);
        assert!(steps_per_piece((0..COUNT).rev()) < 2);
    }
}
