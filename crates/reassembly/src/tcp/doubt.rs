//! Segments far ahead of their stream: whether they are believed.

use core::ops::Range;

use super::account::{Account, Unplaced};
use super::distance;
use super::half::{Half, HalfFlags, LONGEST, Segment};
use super::part::{Part, Taken};
use super::piece::Bounds;
use super::queue::Queue;
use super::reassembler::Reassembler;
use super::receiver::{GapCause, Receiver};

/// After so many segments where the stream was before, one far ahead of it is not waited for any more.
const CONTRADICTIONS: u8 = 8;

impl Reassembler {
    /// What waits beyond the receiver's window is believed, and given out, holes before it reported, where a second
    /// packet with these sequence numbers agrees: it begins behind that (up to half the sequence space), and nothing
    /// came since where the stream was before; or it is as far ahead as that, and near. One that is made up
    /// stands alone.
    ///
    /// Any number can be made up, but not what the receiver says: where its acknowledgements keep up with the stream,
    /// segments that they do not allow wait until they do, or until there are as many bytes of them as wait without a
    /// receiver ([`ReassemblyConfig::one_sided_bytes`](super::ReassemblyConfig::one_sided_bytes)).
    pub fn believe(
        &mut self,
        half: &mut Half,
        peer: &Half,
        numbers: Range<u32>,
        out: &mut impl Receiver,
    ) {
        let Some((doubt, bytes)) =
            (self.queue_of(half)).and_then(|queue| Some((queue.doubt?, queue.bytes)))
        else {
            return;
        };
        let is_contradicted = bytes < self.config.one_sided_bytes
            && half.is_followed(peer, out.position())
            && !half.expects(peer, doubt.start);
        let room = peer.room();
        let (seq, end) = (numbers.start, numbers.end);
        // (What is where the stream was may be half the sequence space behind what is ahead of it.)
        let is_before = (half.distance_to(seq).zip(half.distance_to(doubt.start)))
            .is_some_and(|(at, doubted)| at.unsigned_abs() <= room && at < doubted);
        let is_another = distance(doubt.end, seq) >= 0
            || distance(end, doubt.start) >= 0 && !half.expects(peer, end);
        let agrees = is_another && doubt.is_joined_by(seq, end, room);
        if agrees && !is_before && !is_contradicted {
            self.forget_false_start(half, doubt.start);
            self.flush(half, peer, GapCause::NotAwaited, out);
            half.note_jump(peer.ack());
        }
    }

    /// Lets a segment wait that is beyond all that its receiver may have allowed, beside those that it agrees with and
    /// instead of others. `None` where it has no place at all.
    pub(super) fn doubt(
        &mut self,
        owner: u32,
        half: &mut Half,
        peer: &Half,
        segment: &Segment<'_>,
    ) -> Option<Unplaced> {
        let (start, end) = (segment.seq, segment.seq.wrapping_add(segment.len));
        let has_ended = half.flags.contains(HalfFlags::FIN);
        if has_ended || segment.len == 0 || segment.account == Account::Nothing {
            return None;
        }
        let earlier = self.queue_of(half).and_then(|queue| queue.doubt);
        if !earlier.is_some_and(|earlier| earlier.is_joined_by(start, end, peer.room())) {
            self.forget_doubted(half);
        }
        let mut part = Part {
            seq: start,
            end,
            bytes: segment.bytes,
            owner: Bounds { start, end },
            time: segment.time,
            account: segment.account,
            has_begun: false,
        };
        let mut taken = Taken::default();
        half.doubt();
        let held = self.hold(owner, half, peer.ack(), &mut part, &mut taken);
        half.settle_doubt();
        if let Err(stuck) = held {
            taken.repeated += distance(stuck, end).max(0) as u32;
        }
        Some(Unplaced {
            bytes: taken.repeated,
            whole: !part.has_begun,
            displaced: taken.displaced,
            outside: false,
        })
    }

    /// New bytes came where the stream was before: what waits far ahead of them is likely made up, and after some of
    /// them not worth its memory.
    pub(super) fn contradict(&mut self, half: &mut Half, peer: &Half, end: u32) {
        let is_new = half.is_ahead(end);
        let Some(queue) = self.queues.get_mut(half.queue as usize) else {
            return;
        };
        if let Some(doubt) = &mut queue.doubt
            && is_new
            && distance(end, doubt.start) >= 0
        {
            doubt.contradictions = doubt.contradictions.saturating_add(1);
            if doubt.contradictions >= CONTRADICTIONS && !half.expects(peer, doubt.end) {
                self.forget_doubted(half);
            }
        }
    }

    /// The stream goes on from `reached`, the farthest of it before, to [`Half::max_end`]: gives up holes at once of which
    /// that is more than a window, so that what waits is never further apart than sequence numbers tell.
    pub(super) fn keep_up(&mut self, half: &mut Half, reached: u32, out: &mut impl Receiver) {
        let advance = i64::from(distance(reached, half.max_end)).max(0);
        self.give_up_while(half, out, |this, half, head| {
            let is_longer = half.span(head, reached) + advance > LONGEST;
            (is_longer && !this.doubts(half, head)).then_some(GapCause::Acknowledged)
        });
    }

    /// Two packets agree on `seq`: where the stream begins is not known, and all that waits is further away than it can
    /// be, that was made up, or of another connection.
    pub(super) fn forget_false_start(&mut self, half: &mut Half, seq: u32) {
        let is_far = |head| i64::from(distance(head, seq)).abs() > LONGEST;
        while !half.flags.contains(HalfFlags::SYNCED) && self.head_seq(half).is_some_and(is_far) {
            self.forget_head(half);
            half.max_end = seq;
        }
    }

    /// Forgets what waits and is not believed.
    pub(super) fn forget_doubted(&mut self, half: &mut Half) {
        while let Some(queue) = self.queue_of(half)
            && let Some(piece) = self.pool.piece(queue.tail)
            && queue.doubts(piece.seq)
        {
            self.forget(half, queue.tail);
        }
        if let Some(queue) = self.queues.get_mut(half.queue as usize) {
            queue.doubt = None;
        }
        half.flags.remove(HalfFlags::DOUBTED);
    }

    pub(super) fn queue_of(&self, half: &Half) -> Option<&Queue> {
        self.queues.get(half.queue as usize)
    }

    pub(super) fn doubts(&self, half: &Half, seq: u32) -> bool {
        self.queue_of(half).is_some_and(|queue| queue.doubts(seq))
    }
}
