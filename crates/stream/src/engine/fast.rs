//! Mode FAST: segments are placed where they belong as they arrive.
//!
//! ```text
//!  position           the chunk under way                      target
//!     |------|==========|~~~~~~~~~~~~~~~|=========|..............|
//!     start    bytes       room of a      bytes     still to come
//!                          hole
//! ```
//! A segment beyond the last byte leaves room for the missing ones, if the chunk extends that far; they may be
//! filled until the chunk is delivered. This happens when its last byte is placed, or when a segment arrives
//! that does not fit: nothing ever waits. A FIN does not end it before the data have their places, too.
//!
//! Bytes before the first hole are final, like delivered bytes in the other modes. After the hole, the overlap
//! policy chooses between two copies by where their segments start and end. `[ours]`

use core::ops::Range;

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

use super::assemble::Run;
use super::chunk::{ChunkFlags, Content, Holes, Piece};
use super::core::Core;
use super::events::Events;
use super::pressure::Refusal;
use super::record::{Pending, ViewAt};
use super::slab::NONE;
use super::stream_ref::{Context, StreamErrors};

/// Pieces of a chunk behind its first hole at most. With more it is sent: it is not worth the memory.
const PIECES: usize = 256;

/// Where a segment begins and ends in its stream, and whose bytes count where it meets others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) policy: OverlapPolicy,
}

impl Origin {
    /// Of bytes in order.
    pub(super) fn of(run: &Run<'_>) -> Origin {
        Origin {
            start: run.offset as i64,
            end: run.offset as i64 + run.bytes.len() as i64,
            policy: OverlapPolicy::First,
        }
    }

    fn wins_over(&self, piece: &Piece) -> bool {
        let (starts, ends) = (self.start.cmp(&piece.start), self.end.cmp(&piece.end));
        self.policy.segment_wins(starts, ends)
    }

    fn piece(&self, range: Range<u32>) -> Piece {
        Piece {
            from: range.start,
            to: range.end,
            start: self.start,
            end: self.end,
        }
    }
}

/// What became of a segment in mode FAST.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placed {
    /// Bytes that counted.
    pub(super) new: u64,
    /// Of these, bytes in whose place others were before: copies that lost against them.
    pub(super) replaced: u64,
    /// More bytes that would have been new, but that nobody wants.
    pub(super) unwanted: u64,
}

/// What is left of a segment in mode FAST.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) run: Run<'a>,
    /// Position behind the farthest byte so far.
    pub(super) seen: u64,
    pub(super) origin: Origin,
    pub(super) placed: Placed,
}

impl Core {
    /// Whether the chunk under way of a chunker has all bytes before `end`.
    pub(super) fn is_complete(&self, chunker: ViewAt, end: u64) -> bool {
        self.pending
            .get(self.chunk_of(chunker))
            .is_some_and(|pending| pending.hole_flag() == ChunkFlags(0) && pending.end() >= end)
    }

    /// Takes a segment wherever it belongs, for those who use a chunker. Any of them may leave in the
    /// midst of it: it gets the rest nevertheless. What became of it for each is noted in `all`, by the places
    /// of their views.
    pub(super) fn place<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        segment: Segment<'_>,
        all: &mut [Option<Placed>],
    ) {
        let mut segment = segment;
        let mut members = self.members(chunker);
        // Each turn takes or skips bytes, sends the chunk or begins one.
        while members != 0 && !segment.run.bytes.is_empty() {
            self.place_turn(events, context, chunker, &mut segment);
            let before = members;
            members = self.members(chunker);
            let mut left = self.next_of(before & !members, Some(ViewAt::first(chunker.record)));
            while let Some(at) = left {
                left = self.next_of(before & !members, self.next_view(at));
                if !self.is_over(at) {
                    self.place(events, context, self.chunker_of(at), segment, all);
                } else if let Some(placed) = all.get_mut(usize::from(at.place)) {
                    let unwanted = segment.run.new_from(segment.seen);
                    *placed = Some(Placed {
                        unwanted,
                        ..segment.placed
                    });
                }
            }
        }
        for (place, placed) in all.iter_mut().enumerate() {
            if members & 1 << place != 0 {
                *placed = Some(segment.placed);
            }
        }
        if segment.run.last {
            self.send_pending(events, context, chunker, ChunkFlags::LAST);
        }
    }

    /// One step of [`Core::place`].
    #[inline]
    fn place_turn<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        segment: &mut Segment<'_>,
    ) {
        let (run, seen) = (&mut segment.run, segment.seen);
        let chunk = self.chunk_of(chunker);
        if chunk == NONE && run.offset < seen {
            *run = run.skip(seen - run.offset);
            return;
        }
        let gap = run.offset.saturating_sub(seen);
        let Some(stop) = self.stop(events, context, chunker, run, gap) else {
            return;
        };
        if self.chunk_of(chunker) != chunk {
            return;
        }
        let Some(pending) = self.pending.get(chunk).filter(|_| chunk != NONE) else {
            return self.place_first(events, context, chunker, segment, stop);
        };
        let (start, end) = (pending.start, pending.end());
        let bound = start + u64::from(pending.target);
        let first_new = start + u64::from(pending.repeated);
        if run.offset < first_new {
            *run = run.skip(first_new - run.offset);
            return;
        }
        if run.offset >= bound || pending.content.pieces() >= PIECES {
            segment.seen = end;
            return self.send_pending(events, context, chunker, ChunkFlags(0));
        }
        let room = stop.min(bound) - run.offset;
        let wanted = run.bytes.len().min(room as usize);
        let upto = run.offset + wanted as u64;
        let missing = upto.saturating_sub(end) as usize;
        if missing != 0 && !self.has_room(chunk, missing) {
            match self.grow(events, context, chunker, missing) {
                Ok(()) => {}
                Err(Refusal::Changed) => return,
                Err(Refusal::NoMemory) => {
                    segment.seen = end;
                    return self.send_pending(events, context, chunker, ChunkFlags::EARLY);
                }
            }
        }
        if run.offset > end {
            self.note_gap(chunker.record);
        }
        self.write(chunk, segment, wanted);
        segment.run = segment.run.skip(wanted as u64);
        let can_wait = self.charge_holes(chunker.record, chunk);
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        let end = pending.end();
        if !can_wait {
            segment.seen = end;
            self.send_pending(events, context, chunker, ChunkFlags::EARLY);
        } else if pending.is_full() {
            segment.seen = end;
            self.send_pending(events, context, chunker, ChunkFlags(0));
        } else if end >= stop {
            segment.seen = end;
            self.send_cut(events, context, chunker, end, ChunkFlags(0), &[]);
        }
    }

    /// The same where no chunk is under way.
    #[inline]
    fn place_first<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        segment: &mut Segment<'_>,
        stop: u64,
    ) {
        let (run, seen) = (&mut segment.run, segment.seen);
        let target = u64::from(self.parameters_of(chunker).chunk_bytes);
        let gap = run.offset - seen;
        if gap != 0 {
            self.note_gap(chunker.record);
        }
        let wanted = run.bytes.len().min((stop - run.offset) as usize);
        if gap == 0 || gap >= target {
            // Nothing to leave room for, or too much.
            run.gap_before = gap;
            self.append_some(events, context, chunker, segment, wanted);
            segment.seen = segment.run.offset;
            if segment.seen == stop {
                // It has begun with its last byte.
                self.send_pending(events, context, chunker, ChunkFlags(0));
            }
            return;
        }
        let began = self.leave_room(events, context, chunker, run, seen);
        if began == Err(Refusal::NoMemory) {
            run.gap_before = gap;
            let packets = self
                .beginnings
                .in_first(run, wanted, segment.placed.new == 0);
            segment.placed.new += wanted as u64;
            let flags = ChunkFlags::EARLY;
            self.send_in_place(events, context, chunker, run, wanted, packets, flags);
            segment.seen = run.offset + wanted as u64;
            *run = run.skip(wanted as u64);
        }
    }

    /// Takes bytes that are next and for which no chunk is under way.
    fn append_some<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        segment: &mut Segment<'_>,
        wanted: usize,
    ) {
        let run = segment.run;
        let target = self.parameters_of(chunker).chunk_bytes as usize;
        let len = match target {
            0 => wanted,
            _ => wanted.min(target),
        };
        if target != 0 && wanted < target && wanted == run.bytes.len() {
            match self.begin_chunk(events, context, chunker, &run, wanted) {
                Ok(()) => {
                    self.write(self.chunk_of(chunker), segment, wanted);
                    segment.run = run.skip(wanted as u64);
                    return;
                }
                Err(Refusal::Changed) => return,
                Err(Refusal::NoMemory) => {}
            }
        }
        let packets = (self.beginnings).in_first(&run, len, segment.placed.new == 0);
        segment.placed.new += len as u64;
        self.send_in_place(events, context, chunker, &run, len, packets, ChunkFlags(0));
        segment.run = run.skip(len as u64);
    }

    /// Begins a chunk at `seen`, before the run.
    fn leave_room<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &Run<'_>,
        seen: u64,
    ) -> Result<(), Refusal> {
        let begin = Run {
            offset: seen,
            gap_before: 0,
            ..*run
        };
        let wanted = (run.offset - seen) as usize + run.bytes.len();
        let target = self.parameters_of(chunker).chunk_bytes as usize;
        self.begin_chunk(events, context, chunker, &begin, wanted.min(target))
    }

    fn has_room(&self, chunk: u32, more: usize) -> bool {
        self.pending
            .get(chunk)
            .is_some_and(|pending| more <= pending.content.bytes.room())
    }

    /// Writes the first `wanted` bytes of a segment to their place in a chunk that has room for them.
    fn write(&mut self, chunk: u32, segment: &mut Segment<'_>, wanted: usize) {
        let (run, placed) = (&segment.run, &mut segment.placed);
        let Some(pending) = self.pending.get_mut(chunk) else {
            return;
        };
        let at = (run.offset - pending.start) as u32;
        let Some(bytes) = run.bytes.get(..wanted) else {
            return;
        };
        let is_first = pending.content.bytes.len() == pending.repeated as usize;
        let (new, replaced) = pending.content.put(at, bytes, segment.origin);
        let begins = new != 0 && placed.new == 0;
        pending.segments += self.beginnings.in_first(run, wanted, begins);
        placed.new += new;
        placed.replaced += replaced;
        pending.time = pending.time.max(run.time);
        if is_first && new != 0 {
            self.note_first(chunk, run.time);
        }
    }

    /// Charges the account of a chunk's holes; false when there is no memory for it.
    #[inline]
    fn charge_holes(&mut self, record: u32, chunk: u32) -> bool {
        let ceiling = self.ceiling_of(record);
        let Some(pending) = self.pending.get_mut(chunk) else {
            return true;
        };
        if pending.content.holes.is_none() {
            return true;
        }
        let more = pending.content.charge_holes();
        if more == 0 || self.budget.charge(more, ceiling) {
            return true;
        }
        pending.content.uncharge_holes(more);
        false
    }

    fn note_gap(&mut self, record: u32) {
        if let Some(record) = self.records.get_mut(record) {
            record.errors.insert(StreamErrors::GAP);
        }
    }

    /// A chunk has got its first new byte.
    #[inline]
    pub(super) fn note_first(&mut self, chunk: u32, time: Nanos) {
        let Some(pending) = self.pending.get_mut(chunk) else {
            return;
        };
        pending.since = time;
        if !self.timers.is_empty() {
            let Pending {
                parameters,
                generation,
                ..
            } = *pending;
            self.start_timer(chunk, parameters, generation, time);
        }
    }
}

impl Content {
    /// How many pieces there are behind the first hole.
    #[inline]
    fn pieces(&self) -> usize {
        self.holes.as_ref().map_or(0, |holes| holes.pieces.len())
    }

    /// Puts `new` at `at`: behind the end, in holes, and over what loses against it. Returns how
    /// many bytes counted, and how many of them others had to give way for.
    fn put(&mut self, at: u32, new: &[u8], origin: Origin) -> (u64, u64) {
        let len = self.bytes.len() as u32;
        let end = at + new.len() as u32;
        if at > len {
            self.holes.get_or_insert_default().runs.push(len..at);
            self.bytes.zero_up_to(at as usize);
        }
        let (mut taken, mut replaced) = (0, 0);
        if end > len {
            let behind = &new[len.saturating_sub(at) as usize..];
            taken += self.bytes.extend(behind) as u64;
        }
        if let Some(holes) = self.holes.as_deref_mut()
            && !holes.runs.is_empty()
        {
            let bytes = self.bytes.as_mut_slice();
            replaced = holes.replace(bytes, at, new, origin);
            taken += replaced + holes.fill(bytes, at, new, origin);
            if end > len {
                holes.pieces.push(origin.piece(at.max(len)..end));
            }
            holes.settle();
        }
        (taken, replaced)
    }
}

impl Holes {
    /// Writes over the pieces that lose against `new`.
    fn replace(&mut self, bytes: &mut [u8], at: u32, new: &[u8], origin: Origin) -> u64 {
        let end = at + new.len() as u32;
        let mut taken = 0;
        let mut index = self.pieces.partition_point(|piece| piece.to <= at);
        while let Some(&piece) = self.pieces.get(index)
            && piece.from < end
        {
            if !origin.wins_over(&piece) {
                index += 1;
                continue;
            }
            let (from, to) = (piece.from.max(at), piece.to.min(end));
            copy(bytes, from..to, new, at);
            taken += u64::from(to - from);
            let (before, behind) = (Piece { to: from, ..piece }, Piece { from: to, ..piece });
            let parts = [before, origin.piece(from..to), behind];
            let parts = parts.into_iter().filter(|part| part.from < part.to);
            self.pieces.splice(index..=index, parts);
            index = self.pieces.partition_point(|piece| piece.from < to);
        }
        taken
    }

    /// Writes what falls into holes.
    fn fill(&mut self, bytes: &mut [u8], at: u32, new: &[u8], origin: Origin) -> u64 {
        let end = at + new.len() as u32;
        let mut taken = 0;
        let mut index = self.runs.partition_point(|hole| hole.end <= at);
        while let Some(hole) = self.runs.get(index).cloned()
            && hole.start < end
        {
            let (from, to) = (hole.start.max(at), hole.end.min(end));
            copy(bytes, from..to, new, at);
            taken += u64::from(to - from);
            let place = self.pieces.partition_point(|piece| piece.from < from);
            self.pieces.insert(place, origin.piece(from..to));
            let rest = [hole.start..from, to..hole.end];
            let rest = rest.into_iter().filter(|hole| !hole.is_empty());
            self.runs.splice(index..=index, rest);
            index = self.runs.partition_point(|hole| hole.end <= to);
        }
        taken
    }

    /// What is before the first hole is final.
    fn settle(&mut self) {
        let first = self.runs.first().map_or(u32::MAX, |hole| hole.start);
        let last = self.pieces.partition_point(|piece| piece.to <= first);
        self.pieces.drain(..last);
    }
}

/// Copies the bytes of `new`, which begins at `at`, that belong to `range`.
fn copy(bytes: &mut [u8], range: Range<u32>, new: &[u8], at: u32) {
    let from = (range.start - at) as usize..(range.end - at) as usize;
    bytes[range.start as usize..range.end as usize].copy_from_slice(&new[from]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        let mut blocks = flowgauge_sys::blocks::Blocks::new(0);
        Content {
            bytes: blocks.get(64).unwrap(),
            ..Content::default()
        }
    }

    fn put(content: &mut Content, policy: OverlapPolicy, at: u32, bytes: &[u8]) -> u64 {
        let origin = Origin {
            start: i64::from(at),
            end: i64::from(at) + bytes.len() as i64,
            policy,
        };
        content.put(at, bytes, origin).0
    }

    #[test]
    fn holes_are_filled_piece_by_piece() {
        let mut content = content();
        let mut put = |at, bytes: &[u8]| put(&mut content, OverlapPolicy::First, at, bytes);
        assert_eq!(put(0, b"abc"), 3);
        assert_eq!(put(8, b"ijk"), 3);
        // Over what is there, into the hole.
        assert_eq!(put(1, b"XXde"), 2);
        assert_eq!(put(4, b"X"), 0);
        assert_eq!(put(6, b"g"), 1);
        assert_eq!(put(5, b"fXhXXXlm"), 4);
        assert!(content.holes.as_ref().unwrap().runs.is_empty());
        assert!(content.holes.as_ref().unwrap().pieces.is_empty());
        assert_eq!(content.bytes.as_slice(), b"abcdefghijklm");
    }

    #[test]
    fn behind_a_hole_the_policy_decides() {
        use OverlapPolicy as P;
        // [6, 12), then [5, 8) over its beginning, [8, 14) over its end.
        for (policy, expected) in [
            (P::First, "abc..vghijklyz"),
            (P::Last, "abc..vwxstuvyz"),
            (P::Bsd, "abc..vwxijklyz"),
            (P::BsdRight, "abc..vghstuvyz"),
            (P::Linux, "abc..vwxijklyz"),
            (P::Solaris, "abc..vghstuvyz"),
        ] {
            let mut content = content();
            put(&mut content, policy, 0, b"abc");
            put(&mut content, policy, 6, b"ghijkl");
            put(&mut content, policy, 5, b"vwx");
            put(&mut content, policy, 8, b"stuvyz");
            let holes = content.holes.as_ref().unwrap();
            assert_eq!(holes.runs.as_slice(), core::slice::from_ref(&(3..5)));
            let seen = String::from_utf8_lossy(content.bytes.as_slice()).replace('\0', ".");
            assert_eq!(seen, expected, "{policy:?}");
        }
    }

    #[test]
    fn what_is_before_the_first_hole_is_final() {
        let mut content = content();
        let last = OverlapPolicy::Last;
        put(&mut content, last, 0, b"abc");
        put(&mut content, last, 8, b"ijk");
        assert_eq!(put(&mut content, last, 0, b"XXXdef"), 3);
        assert_eq!(put(&mut content, last, 3, b"XXXXXIJ"), 4);
        assert_eq!(content.bytes.as_slice(), b"abcdefXXIJk");
        assert_eq!(put(&mut content, last, 8, b"YYY"), 0);
    }
}
