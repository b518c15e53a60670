//! What happens to segments that are not simply next.

use flowgauge_wire::{Budget, Nanos};

use super::account::{Account, Forgotten, Unplaced, forget};
use super::config::{ReassemblyConfig, ReassemblyStatistics};
use super::distance;
use super::half::{Half, HalfFlags, LONGEST, NONE, Segment};
use super::part::{Part, Taken};
use super::piece::Bounds;
use super::pool::Pool;
use super::queue::{Doubt, Newcomer, Queue};
use super::receiver::{GapCause, Receiver};

/// Holds what came too early, for all streams of a shard.
#[derive(Clone, Debug)]
pub struct Reassembler {
    pub(super) config: ReassemblyConfig,
    pub(super) pool: Pool,
    pub(super) queues: Vec<Queue>,
    free: Vec<u32>,
    hand: usize,
    statistics: ReassemblyStatistics,
    pub(super) forgotten: Forgotten,
    /// Where packets begin in what is handed on: memory to be used again.
    begin: Vec<u32>,
}

impl Reassembler {
    /// A reassembler that holds nothing yet.
    pub fn new(config: ReassemblyConfig) -> Reassembler {
        Reassembler {
            config,
            pool: Pool::new(config.memory_bytes),
            queues: Vec::new(),
            free: Vec::new(),
            hand: 0,
            statistics: ReassemblyStatistics::default(),
            forgotten: Forgotten::default(),
            begin: Vec::new(),
        }
    }

    /// Takes any segment of the direction `half` that `peer` answers to, and hands on what has
    /// become deliverable. `owner` is the caller's name for the direction, see
    /// [`Reassembler::visit`]. Returns what of it has no place in the stream, or not for the first time.
    pub fn segment(
        &mut self,
        owner: u32,
        half: &mut Half,
        peer: &Half,
        segment: &Segment<'_>,
        out: &mut impl Receiver,
    ) -> Unplaced {
        let nothing = Unplaced {
            bytes: segment.len,
            whole: true,
            outside: true,
            ..Unplaced::default()
        };
        if half.flags.contains(HalfFlags::CLOSED) {
            self.statistics.after_fin_bytes += u64::from(segment.len);
            return Unplaced {
                outside: half.distance_to(segment.seq).is_none_or(|at| at >= 0),
                ..nothing
            };
        }
        let ack = peer.ack();
        self.forget_false_fin(half, ack);
        let mut seq = segment.seq;
        let end = seq.wrapping_add(segment.len);
        if half.is_doubted() && segment.len != 0 {
            self.believe(half, peer, seq..end, out);
        }
        anchor(half, segment, ack);
        if half.is_ahead(seq) && !half.expects(peer, end) {
            self.statistics.implausible += 1;
            let unplaced = self.doubt(owner, half, peer, segment);
            self.settle(half, ack, segment.time, out);
            return unplaced.unwrap_or(nothing);
        }
        let reached = half.max_end;
        if !self.is_plausible(half, peer, end) {
            self.statistics.implausible += 1;
            return nothing;
        }
        self.keep_up(half, reached, out);
        if half.is_doubted() {
            self.contradict(half, peer, end);
        }
        if segment.fin {
            self.note_fin(half, end, ack);
        }
        let mut bytes = segment.bytes;
        let mut to = end;
        let mut outside = false;
        if half.flags.contains(HalfFlags::FIN) && distance(half.fin_seq, to) > 0 {
            let beyond = distance(half.fin_seq, to) as u32;
            self.statistics.after_fin_bytes += u64::from(beyond.min(segment.len));
            outside = beyond >= segment.len;
            to = half.fin_seq;
            let kept = distance(seq, to).max(0) as usize;
            bytes = &bytes[..bytes.len().min(kept)];
        }
        let owner_bounds = Bounds { start: seq, end };
        if half.flags.contains(HalfFlags::SYNCED) {
            // Half the sequence space away, the first number may look new where the last is old.
            let old = match distance(half.next_seq, end) {
                ..=0 => segment.len as i32,
                _ => distance(seq, half.next_seq),
            };
            if old > 0 {
                let old = (old as u32).min(segment.len);
                self.statistics.old_bytes += u64::from(old);
                bytes = bytes.get(old as usize..).unwrap_or(&[]);
                seq = seq.wrapping_add(old);
            }
        }
        // What is left has a place, or finds out that others have it.
        let left = distance(seq, to).max(0) as u32;
        let mut taken = Taken::default();
        if left != 0 {
            let part = Part {
                seq,
                end: to,
                bytes,
                owner: owner_bounds,
                time: segment.time,
                account: segment.account,
                has_begun: false,
            };
            taken = self.take(owner, half, ack, &part, out);
        }
        self.settle(half, ack, segment.time, out);
        Unplaced {
            bytes: segment.len - left + taken.repeated,
            whole: !taken.has_begun,
            displaced: taken.displaced,
            outside,
        }
    }

    /// Looks again whether the hole of a direction has to be given up: to be called when the peer
    /// has acknowledged something or time has passed, while [`Half::is_queued`].
    pub fn advance(&mut self, half: &mut Half, peer: &Half, now: Nanos, out: &mut impl Receiver) {
        self.settle(half, peer.ack(), now, out);
    }

    /// As [`Reassembler::advance`], where the peer has answered with data: who answers has read what it
    /// acknowledges, so that what is missing of that will not come. What waits behind it is handed on at
    /// once, before the answer.
    pub fn answered(&mut self, half: &mut Half, peer: &Half, now: Nanos, out: &mut impl Receiver) {
        self.give_up_while(half, out, |_, half, head| {
            let ack = peer.ack()?;
            let acknowledged = distance(head, ack);
            // Where it begins is not known: it has begun with what was read of it.
            let is_read =
                acknowledged > 0 || acknowledged == 0 && half.flags.contains(HalfFlags::SYNCED);
            // What nobody was seen to send, nor may have sent, has to be acknowledged for a while.
            let is_read = is_read && distance(half.max_end, ack) <= peer.room_for_loss();
            is_read.then_some(GapCause::Acknowledged)
        });
        self.settle(half, peer.ack(), now, out);
    }

    /// Gives up the first hole of a direction at once, for memory.
    pub fn relieve(&mut self, half: &mut Half, out: &mut impl Receiver) {
        if half.is_doubted()
            && self
                .head_seq(half)
                .is_some_and(|head| self.doubts(half, head))
        {
            return self.release_queue(half);
        }
        self.give_up(half, GapCause::Memory, out);
        self.drain(half, out);
        self.close(half, None);
    }

    /// Hands on everything that waits, holes reported as given up for `cause`.
    pub fn flush(
        &mut self,
        half: &mut Half,
        peer: &Half,
        cause: GapCause,
        out: &mut impl Receiver,
    ) {
        if half.is_queued() {
            self.forget_false_fin(half, peer.ack());
            self.give_up_while(half, out, |_, _, _| Some(cause));
            self.close(half, peer.ack());
            self.release_queue(half);
        }
    }

    /// Hands on everything that waits, holes reported, and forgets the direction. Returns how many
    /// bytes are known to be missing at its end: before its FIN, or sent or acknowledged but not
    /// captured.
    pub fn finish(&mut self, half: &mut Half, peer: &Half, out: &mut impl Receiver) -> u64 {
        if half.is_doubted()
            && let Some(doubt) = self.queue_of(half).and_then(|queue| queue.doubt)
            && !half.expects(peer, doubt.end)
            && (doubt.contradictions != 0 || !half.is_surely_ahead(doubt.start))
        {
            self.forget_doubted(half);
        }
        let is_jump = half.is_doubted();
        self.flush(half, peer, GapCause::End, out);
        if is_jump {
            half.note_jump(peer.ack());
        }
        let trailing = trailing_gap(half, peer);
        if trailing > 0 {
            self.count_gap(trailing, GapCause::End);
        }
        half.flags.insert(HalfFlags::CLOSED);
        trailing
    }

    /// Follows a segment of a direction whose bytes are not wanted, or which the caller deals with
    /// itself: sequence numbers and the FIN count as in [`Reassembler::segment`], but holes are
    /// passed at once, and nothing is queued or handed on. What waits should have been dealt with
    /// before.
    pub fn pass_over(&mut self, half: &mut Half, peer: &Half, segment: &Segment<'_>) -> Passed {
        let mut passed = Passed::default();
        if half.flags.contains(HalfFlags::CLOSED) {
            return passed;
        }
        let ack = peer.ack();
        self.forget_false_fin(half, ack);
        let end = segment.seq.wrapping_add(segment.len);
        if half.distance_to(segment.seq) == Some(0) && segment.len > 0 {
            half.next_seq = segment.seq;
        }
        half.start_near(segment.seq);
        if segment.len > 0 {
            half.flags.remove(HalfFlags::SOFT);
        }
        if !self.is_plausible(half, peer, end) {
            self.statistics.implausible += 1;
            return passed;
        }
        if segment.fin {
            self.note_fin(half, end, ack);
        }
        let mut to = end;
        if half.flags.contains(HalfFlags::FIN) && distance(half.fin_seq, to) > 0 {
            to = half.fin_seq;
        }
        // A FIN alone says where the data end, not that they have got there.
        if segment.len > 0 && distance(half.next_seq, to) > 0 {
            let skipped =
                distance(half.next_seq, segment.seq).clamp(0, distance(half.next_seq, to));
            let start = half.next_seq.wrapping_add(skipped as u32);
            passed = Passed {
                skipped: skipped as u32,
                taken: distance(start, to) as u32,
            };
            if half.is_doubted() {
                self.contradict(half, peer, to);
            }
            half.next_seq = to;
        }
        self.close(half, ack);
        passed
    }

    /// Forgets what waits for a direction, and does not let anything wait for it again
    /// ([`HalfFlags::ABANDONED`]).
    pub fn abandon(&mut self, half: &mut Half) {
        if half.is_queued() {
            self.release_queue(half);
        }
        half.flags.insert(HalfFlags::ABANDONED);
        half.flags.insert(HalfFlags::PASSED);
    }

    /// What waited and was not handed on, since this was asked last.
    #[inline]
    pub fn take_forgotten(&mut self) -> Forgotten {
        core::mem::take(&mut self.forgotten)
    }

    /// Bytes that wait for a direction.
    pub fn waiting_bytes(&self, half: &Half) -> u64 {
        if !half.is_queued() {
            return 0;
        }
        let queue = self.queues.get(half.queue as usize);
        queue.map_or(0, |queue| queue.bytes)
    }

    /// Whether all of these bytes of a direction, from `seq` on, wait already.
    pub fn holds(&self, half: &Half, seq: u32, bytes: &[u8]) -> bool {
        if !half.is_queued() || bytes.is_empty() {
            return false;
        }
        let queue = self.queues.get(half.queue as usize);
        queue.is_some_and(|queue| queue.holds(&self.pool, seq, bytes))
    }

    /// Bytes so far that had been handed on, or given up, before they came.
    #[inline]
    pub fn old_bytes(&self) -> u64 {
        self.statistics.old_bytes
    }

    /// Segments so far that conflicted with waiting ones.
    #[inline]
    pub fn conflicts(&self) -> u64 {
        self.statistics.conflicts
    }

    /// Queues of waiting segments have numbers below this.
    pub fn queues(&self) -> u32 {
        self.queues.len() as u32
    }

    /// Whose segments wait in a queue, if it is in use: a caller that calls [`Reassembler::advance`] for
    /// each from time to time gives up holes of streams that fell silent.
    pub fn owner_of(&self, queue: u32) -> Option<u32> {
        let owner = self.queues.get(queue as usize)?.owner;
        (owner != NONE).then_some(owner)
    }

    /// The next direction with waiting segments in turn, of those in use: to be relieved
    /// ([`Reassembler::relieve`]).
    pub fn visit(&mut self) -> Option<u32> {
        if self.queues.len() == self.free.len() {
            return None;
        }
        for _ in 0..self.queues.len().min(64) {
            self.hand += 1;
            if self.hand >= self.queues.len() {
                self.hand = 0;
            }
            let queue = self.queues.get(self.hand)?;
            if queue.owner != NONE {
                return Some(queue.owner);
            }
        }
        None
    }

    /// Whether so little memory is left, of what is there up to `ceiling`, that streams should be
    /// relieved.
    pub fn is_tight(&self, ceiling: u64) -> bool {
        self.pool.is_tight(ceiling)
    }

    /// Charges what waits to a budget that others share, too, besides the limit of its own. To be
    /// said before anything waits.
    pub fn set_budget(&mut self, budget: Budget) {
        self.pool.set_budget(budget);
    }

    /// From now on segments wait only while no more than so many bytes of the budget are used:
    /// the rest is for more important ones.
    #[inline]
    pub fn set_ceiling(&mut self, bytes: u64) {
        self.pool.set_ceiling(bytes);
    }

    /// Directions with waiting segments.
    pub fn waiting(&self) -> usize {
        self.queues.len() - self.free.len()
    }

    /// Bytes of pool memory in use.
    pub fn memory(&self) -> u64 {
        self.pool.used_bytes()
    }

    /// Counters.
    pub fn statistics(&self) -> ReassemblyStatistics {
        self.statistics
    }

    /// Takes a part that lies at or after `next_seq` and before a FIN.
    fn take(
        &mut self,
        owner: u32,
        half: &mut Half,
        ack: Option<u32>,
        part: &Part<'_>,
        out: &mut impl Receiver,
    ) -> Taken {
        let mut part = *part;
        let mut taken = Taken::default();
        // Each turn hands on or gives up something, so the loop ends.
        loop {
            if half.flags.contains(HalfFlags::SYNCED) && part.seq == half.next_seq {
                part = self.take_next(half, &part, out);
                taken.has_begun = part.has_begun;
                if part.is_empty() {
                    return taken;
                }
            } else {
                self.statistics.out_of_order += 1;
            }
            let held = self.hold(owner, half, ack, &mut part, &mut taken);
            taken.has_begun = part.has_begun;
            let Err(stuck) = held else {
                return taken;
            };
            if half.flags.contains(HalfFlags::DOUBTS_NEXT) {
                taken.repeated += distance(stuck, part.end).max(0) as u32;
                return taken;
            }
            // No memory: give up what is before it, then it is next itself.
            self.skip_to(half, stuck, GapCause::Memory, out);
            // What waited from there on was handed on, too.
            let passed = distance(stuck, half.next_seq);
            taken.repeated += passed.clamp(0, distance(stuck, part.end)) as u32;
            part = part.from(half.next_seq);
            if part.is_empty() {
                return taken;
            }
        }
    }

    /// Hands on a part that is next, up to where something waits already; returns the rest.
    fn take_next<'a>(
        &mut self,
        half: &mut Half,
        part: &Part<'a>,
        out: &mut impl Receiver,
    ) -> Part<'a> {
        let head = self.head_seq(half);
        let to = match head {
            Some(head) if distance(head, part.end) > 0 => head,
            _ => part.end,
        };
        let len = distance(part.seq, to).max(0) as usize;
        let direct = &part.bytes[..part.bytes.len().min(len)];
        // (Of what does not count as a packet none begins, whatever was handed on just before it.)
        match part.has_begun || part.account == Account::Bytes {
            _ if direct.is_empty() => {}
            true => out.waited(direct, part.time, &[]),
            false => out.data(direct),
        }
        let cut = (len - direct.len()) as u64;
        if cut != 0 {
            self.count_gap(cut, GapCause::Cut);
            let begins = !part.has_begun && direct.is_empty();
            match part.account {
                Account::Nothing => out.gap(cut, GapCause::Cut),
                Account::Bytes => out.cut(cut, 0),
                Account::Packet => out.cut(cut, u64::from(begins)),
            }
        }
        half.next_seq = to;
        let mut rest = part.from(to);
        rest.has_begun |= len != 0;
        if rest.is_empty() {
            self.drain(half, out);
        }
        rest
    }

    /// Queues a part. `Err` says from where on there was no memory.
    pub(super) fn hold(
        &mut self,
        owner: u32,
        half: &mut Half,
        ack: Option<u32>,
        part: &mut Part<'_>,
        taken: &mut Taken,
    ) -> Result<(), u32> {
        if !half.is_queued() {
            let mut queue = Queue::new(owner, ack, part.time);
            half.queue = match self.free.pop() {
                Some(index) => {
                    let place = &mut self.queues[index as usize];
                    core::mem::swap(place, &mut queue);
                    place.recycle(queue);
                    index
                }
                None => {
                    self.queues.push(queue);
                    self.queues.len() as u32 - 1
                }
            };
            half.flags.insert(HalfFlags::QUEUED);
        }
        let Some(queue) = self.queues.get_mut(half.queue as usize) else {
            return Ok(());
        };
        if half.flags.contains(HalfFlags::DOUBTS_NEXT) {
            half.flags.insert(HalfFlags::DOUBTED);
            let doubt = queue.doubt.get_or_insert(Doubt {
                start: part.seq,
                end: part.end,
                contradictions: 0,
            });
            if distance(part.seq, doubt.start) > 0 {
                doubt.start = part.seq;
            }
            if distance(doubt.end, part.end) > 0 {
                doubt.end = part.end;
            }
        }
        let seen = part.seq.wrapping_add(part.bytes.len() as u32);
        let mut result = Ok(());
        // What was captured, and what was not.
        let pieces = [(part.seq, seen, Some(part.bytes)), (seen, part.end, None)];
        for (start, end, bytes) in pieces {
            if start == end || result.is_err() {
                continue;
            }
            let mut new = Newcomer {
                start,
                end,
                bytes,
                owner: part.owner,
                time: part.time,
                account: part.account,
                has_begun: part.has_begun,
                repeated: 0,
                displaced: 0,
            };
            result = queue.insert(&mut self.pool, &mut new, half.policy, &mut self.statistics);
            part.has_begun = new.has_begun;
            taken.repeated += new.repeated;
            taken.displaced += new.displaced;
        }
        self.statistics.memory_high = self.statistics.memory_high.max(self.pool.used_bytes());
        if queue.head == NONE {
            self.release_queue(half);
        }
        result
    }

    /// Hands on what has become next, gives up holes that have to be, and closes at a FIN.
    fn settle(&mut self, half: &mut Half, ack: Option<u32>, now: Nanos, out: &mut impl Receiver) {
        if half.is_queued() {
            self.drain(half, out);
            self.give_up_while(half, out, |this, half, _| this.hopeless(half, ack, now));
        }
        self.close(half, ack);
    }

    /// Why the hole at the head has to be given up now, if it has.
    fn hopeless(&mut self, half: &Half, ack: Option<u32>, now: Nanos) -> Option<GapCause> {
        if !half.is_queued() {
            return None;
        }
        let config = &self.config;
        let queue = self.queues.get_mut(half.queue as usize)?;
        queue.observe(&self.pool, ack, half.max_end, now, config.reorder_time);
        let head = self.pool.piece(queue.head)?;
        let age = now - head.time;
        if queue.is_acknowledged(head, half.max_end, config.reorder_bytes) {
            return Some(GapCause::Acknowledged);
        }
        if queue.doubts(head.seq) {
            return None;
        }
        if ack.is_none() && (age >= config.one_sided_time || queue.bytes >= config.one_sided_bytes)
        {
            return Some(GapCause::OneSided);
        }
        // Before a mid-stream pick-up there is no hole, only the chance of reordered packets.
        if !half.flags.contains(HalfFlags::SYNCED)
            && (age >= config.reorder_time || queue.bytes >= u64::from(config.reorder_bytes))
        {
            return Some(GapCause::Time);
        }
        if half.span(head.seq, half.max_end) > LONGEST {
            return Some(GapCause::Acknowledged);
        }
        if age >= config.hole_time {
            return Some(GapCause::Time);
        }
        (queue.bytes >= config.hole_bytes).then_some(GapCause::Bytes)
    }

    /// Gives up the first hole, as long as `why` has a cause with what waits behind it at a number, and hands on what
    /// has become next.
    pub(super) fn give_up_while(
        &mut self,
        half: &mut Half,
        out: &mut impl Receiver,
        why: impl Fn(&mut Reassembler, &Half, u32) -> Option<GapCause>,
    ) {
        while let Some(head) = self.head_seq(half)
            && let Some(cause) = why(self, half, head)
        {
            self.move_to(half, head, cause, out);
            self.drain(half, out);
            if self.head_seq(half) == Some(head) {
                // What waits lies behind the FIN: `close` decides.
                break;
            }
        }
    }

    /// Moves on to the first waiting piece.
    fn give_up(&mut self, half: &mut Half, cause: GapCause, out: &mut impl Receiver) {
        if let Some(head) = self.head_seq(half) {
            self.move_to(half, head, cause, out);
        }
    }

    /// Moves on to `seq`, handing on what waits before it.
    fn skip_to(&mut self, half: &mut Half, seq: u32, cause: GapCause, out: &mut impl Receiver) {
        self.give_up_while(half, out, |_, _, head| {
            (distance(head, seq) > 0).then_some(cause)
        });
        self.move_to(half, seq, cause, out);
        self.drain(half, out);
    }

    fn move_to(&mut self, half: &mut Half, seq: u32, cause: GapCause, out: &mut impl Receiver) {
        if half.flags.contains(HalfFlags::SYNCED) {
            let missing = distance(half.next_seq, seq);
            if missing <= 0 {
                return;
            }
            self.report_gap(missing as u64, cause, out);
        } else {
            out.begun();
        }
        half.next_seq = seq;
        half.flags.insert(HalfFlags::SYNCED);
    }

    /// Hands on waiting pieces as long as they are next. What lies before that (where the stream
    /// begins became known after it had to wait) is old.
    pub(super) fn drain<R: Receiver>(&mut self, half: &mut Half, out: &mut R) {
        if !half.is_queued() || !half.flags.contains(HalfFlags::SYNCED) {
            return;
        }
        let Some(queue) = self.queues.get_mut(half.queue as usize) else {
            return;
        };
        while let Some(piece) = self.pool.piece(queue.head) {
            let old = distance(piece.seq, half.next_seq);
            if old < 0 {
                return;
            }
            if half.flags.contains(HalfFlags::FIN) && half.next_seq == half.fin_seq {
                return;
            }
            let (end, captured, time) = (piece.end(), piece.captured, piece.time);
            let old = (old as u32).min(piece.len);
            let len = piece.len - old;
            self.statistics.old_bytes += u64::from(old);
            let is_accounted = !piece.refused;
            let begin = &mut self.begin;
            if R::PACKETS {
                begin.clear();
                self.pool.beginnings(queue.head, |at| begin.push(at));
            }
            if old != 0 && is_accounted {
                let gone = forget(begin, old, len);
                self.forgotten += Forgotten {
                    packets: gone,
                    bytes: u64::from(old),
                };
            }
            // Before it is handed on: whoever keeps it needs the room.
            self.pool.uncharge();
            if len > 0 {
                half.next_seq = end;
                half.note_reached();
                if captured {
                    let bytes = self.pool.bytes(queue.head);
                    out.waited(bytes.get(old as usize..).unwrap_or(&[]), time, begin);
                } else {
                    let len = u64::from(len);
                    self.statistics.gaps[GapCause::Cut as usize] += 1;
                    self.statistics.gap_bytes += len;
                    match is_accounted {
                        true => out.cut(len, begin.len() as u64),
                        false => out.gap(len, GapCause::Cut),
                    }
                }
            }
            queue.pop(&mut self.pool);
            if queue.doubt.is_some() && queue.doubts(half.next_seq.wrapping_sub(1)) {
                // The stream has got there.
                queue.doubt = None;
                half.flags.remove(HalfFlags::DOUBTED);
            }
        }
        self.release_queue(half);
    }

    pub(super) fn release_queue(&mut self, half: &mut Half) {
        while half.is_queued() {
            self.forget_head(half);
        }
    }

    /// Forgets the first that waits.
    pub(super) fn forget_head(&mut self, half: &mut Half) {
        let head = self.queue_of(half).map_or(NONE, |queue| queue.head);
        self.forget(half, head);
    }

    /// Forgets what waits at `index`, the first or the last, and with the only one the queue.
    pub(super) fn forget(&mut self, half: &mut Half, index: u32) {
        if let Some(queue) = self.queues.get_mut(half.queue as usize) {
            if let Some(piece) = self.pool.piece(index) {
                if !piece.refused {
                    let mut packets = 0;
                    let bytes = u64::from(piece.len);
                    self.pool.beginnings(index, |_| packets += 1);
                    self.forgotten += Forgotten { packets, bytes };
                }
                self.pool.uncharge();
                match index == queue.head {
                    true => queue.pop(&mut self.pool),
                    false => queue.pop_last(&mut self.pool),
                }
            }
            if queue.head != NONE {
                return;
            }
            queue.owner = NONE;
            self.free.push(half.queue);
        }
        half.queue = NONE;
        half.flags.remove(HalfFlags::QUEUED);
        half.flags.remove(HalfFlags::DOUBTED);
    }

    fn note_fin(&mut self, half: &mut Half, seq: u32, ack: Option<u32>) {
        let passed = half.flags.contains(HalfFlags::SYNCED) && distance(half.next_seq, seq) < 0;
        if passed || ack.is_some_and(|ack| distance(seq.wrapping_add(1), ack) > 0) {
            // Data beyond it were handed on, or received: no FIN can have been there.
            self.statistics.false_fins += 1;
        } else if !half.flags.contains(HalfFlags::FIN) {
            half.flags.insert(HalfFlags::FIN);
            half.fin_seq = seq;
        }
    }

    /// A FIN that the peer has acknowledged more than was none.
    #[inline]
    fn forget_false_fin(&mut self, half: &mut Half, ack: Option<u32>) {
        if half.flags.contains(HalfFlags::FIN)
            && ack.is_some_and(|ack| distance(half.fin_seq.wrapping_add(1), ack) > 0)
        {
            self.statistics.false_fins += 1;
            half.flags.remove(HalfFlags::FIN);
        }
    }

    /// Closes the direction when it has got to its FIN.
    fn close(&mut self, half: &mut Half, ack: Option<u32>) {
        self.forget_false_fin(half, ack);
        if !half.flags.contains(HalfFlags::FIN) {
            return;
        }
        if half.flags.contains(HalfFlags::SYNCED) && half.next_seq == half.fin_seq {
            if half.is_queued() {
                if let Some(queue) = self.queues.get(half.queue as usize) {
                    self.statistics.after_fin_bytes += queue.bytes;
                }
                self.release_queue(half);
            }
            half.flags.insert(HalfFlags::CLOSED);
        }
    }

    /// Whether a segment that ends at `end` can belong to the stream.
    fn is_plausible(&mut self, half: &mut Half, peer: &Half, end: u32) -> bool {
        if half.flags.0 & (HalfFlags::SYNCED.0 | HalfFlags::QUEUED.0) == 0 {
            half.max_end = end;
            return true;
        }
        if !half.expects(peer, end) {
            if !half.confirms(end, peer.room()) {
                return false;
            }
            self.forget_false_start(half, end);
        }
        if distance(half.max_end, end) > 0 {
            half.max_end = end;
        }
        true
    }

    pub(super) fn head_seq(&self, half: &Half) -> Option<u32> {
        if !half.is_queued() {
            return None;
        }
        let queue = self.queues.get(half.queue as usize)?;
        self.pool.piece(queue.head).map(|piece| piece.seq)
    }

    fn report_gap(&mut self, bytes: u64, cause: GapCause, out: &mut impl Receiver) {
        self.count_gap(bytes, cause);
        out.gap(bytes, cause);
    }

    fn count_gap(&mut self, bytes: u64, cause: GapCause) {
        self.statistics.gaps[cause as usize] += 1;
        self.statistics.gap_bytes += bytes;
    }
}

/// How far [`Reassembler::pass_over`] got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes of the hole before the segment.
    pub skipped: u32,
    /// Bytes of the segment that are beyond everything before it.
    pub taken: u32,
}

/// Bytes known to be missing at the end of a direction that has nothing waiting.
fn trailing_gap(half: &Half, peer: &Half) -> u64 {
    if half.flags.contains(HalfFlags::CLOSED) || !half.flags.contains(HalfFlags::SYNCED) {
        return 0;
    }
    if half.flags.contains(HalfFlags::FIN) {
        return distance(half.next_seq, half.fin_seq).max(0) as u64;
    }
    let mut missing = distance(half.next_seq, half.max_end);
    if let Some(ack) = peer.ack() {
        let beyond = distance(half.next_seq, ack);
        if !half.flags.contains(HalfFlags::LEFT_BEHIND) || beyond <= peer.room() as i32 {
            missing = missing.max(beyond);
        }
    }
    // The FIN itself takes a number. It was not captured, but when the peer has closed, too, or
    // only one number is missing, it is what was acknowledged.
    if missing == 1 || missing > 0 && peer.flags.contains(HalfFlags::FIN) {
        missing -= 1;
    }
    match missing {
        1.. => missing as u64,
        _ => 0,
    }
}

/// Where the bytes of a direction begin, as far as a segment tells that.
#[inline]
fn anchor(half: &mut Half, segment: &Segment<'_>, ack: Option<u32>) {
    let seq = segment.seq;
    if half.flags.contains(HalfFlags::SYNCED) {
        if half.flags.contains(HalfFlags::SOFT) && segment.len > 0 {
            if half.distance_to(seq).is_none() {
                half.flags.remove(HalfFlags::SYNCED);
            } else if seq == half.next_seq.wrapping_add(1) {
                half.next_seq = seq;
            }
            half.flags.remove(HalfFlags::SOFT);
        }
    } else if !half.is_queued() && (ack == Some(seq) || segment.len == 0) {
        half.start_near(seq);
        half.flags.remove(HalfFlags::SOFT);
    }
}
