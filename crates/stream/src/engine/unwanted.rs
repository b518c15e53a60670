//! Accounts for unwanted and lost packets.
//!
//! If one application has a direction, the counts are the direction's; if it is shared, each application has its own,
//! and the totals count what none of them got.
//!
//! Every payload byte is captured, discarded or dropped, independent of the rest of its packet. A packet is discarded
//! if none of its payload was accepted; those with SYN, FIN or RST never are. This is often known only when its turn in
//! the stream comes; the packet is then removed from the delivered ones ([`Core::refuse`]). Bytes that headers claim
//! but no frame had are discarded when their packet arrives.

use flowgauge_reassembly::{Forgotten, Unplaced};
use flowgauge_wire::{Decoded, Place};

use super::assemble::Run;
use super::config::Mode;
use super::core::Core;
use super::pass::{CONTROL, TCP};
use super::record::{RecordFlags, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamRef};
use crate::handler::{Cut, Handler, Stream, StreamPacket};
use crate::streams::claimed;

/// Where packets begin in the bytes in order that are dealt with.
#[derive(Debug)]
pub(super) struct Beginnings {
    /// Where one does whose bytes did not have to wait.
    pub(super) next: u64,
    /// Packets that begin in what follows, all of it.
    pub(super) count: u32,
    /// They are in the list instead.
    is_listed: bool,
    list: Vec<u64>,
}

impl Default for Beginnings {
    fn default() -> Beginnings {
        Beginnings {
            next: 0,
            count: 1,
            is_listed: false,
            list: Vec::new(),
        }
    }
}

impl Beginnings {
    /// In what follows packets begin so many bytes behind `base`; `None`: one begins with the first byte.
    pub(super) fn announce(&mut self, base: u64, begin: Option<&[u32]>) {
        self.is_listed = begin.is_some();
        self.list.clear();
        let listed = begin.unwrap_or(&[]).iter();
        self.list.extend(listed.map(|&at| base + u64::from(at)));
        self.count = begin.map_or(1, |begin| begin.len() as u32);
    }

    /// How many begin there.
    fn between(&self, from: u64, to: u64) -> u64 {
        match self.is_listed {
            true => self
                .list
                .iter()
                .filter(|at| (from..to).contains(at))
                .count() as u64,
            false => u64::from((from..to).contains(&self.next)),
        }
    }

    /// How many begin there, by what is known of these positions.
    fn within(&self, from: u64, to: u64, begin: Begin) -> u64 {
        match begin {
            Begin::Announced => self.between(from, to),
            Begin::Once(at, packets) => u64::from((from..to).contains(&at)) * packets,
        }
    }

    /// How many begin in the first bytes of a run. Where they are not listed it is of one packet (or
    /// [fragments](Self::count)), which begins with the first of its bytes that is new: that `is_first` says.
    pub(super) fn in_first(&self, run: &Run<'_>, len: usize, is_first: bool) -> u32 {
        match self.is_listed {
            true => self.between(run.offset, run.offset + len as u64) as u32,
            false => u32::from(is_first && len != 0) * self.count,
        }
    }

    /// The same of bytes in order.
    pub(super) fn in_order(&self, run: &Run<'_>, len: usize) -> u32 {
        self.in_first(run, len, run.offset == self.next)
    }

    /// How many begin in a run.
    pub(super) fn of(&self, run: &Run<'_>) -> u64 {
        self.between(run.offset, run.end())
    }
}

/// Where packets begin in a part of a stream.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// As was announced for the bytes in order that are dealt with.
    Announced,
    /// So many with the first byte of what was cut off, at this position.
    Once(u64, u64),
}

/// Counts what a stream that is given up between batches has left waiting.
pub(super) struct Forgets<'a>(pub(super) &'a mut Core);

impl Handler for Forgets<'_> {
    fn stream_forgotten(&mut self, stream: u32, forgotten: Forgotten) {
        self.0.discard_forgotten(stream, forgotten);
    }
}

impl Core {
    /// The cutoff of a view is reached.
    pub(super) fn cut(&mut self, at: ViewAt) {
        self.note_end(at);
        if let Some(view) = self.view_mut(at) {
            view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
        }
        if (self.has_loss(at.record) || at.extra != NONE)
            && self.own_loss(at).missing != 0
            && let Some(own) = self.own_loss_mut(at)
        {
            // That was before it was raised.
            own.missing = 0;
        }
        self.leave_chunk(at);
        self.note_views(at.record);
    }

    /// A view wants nothing from `offset` on, or less, and the `gap` bytes before that are missing.
    pub(super) fn note_missing(&mut self, at: ViewAt, offset: u64, gap: u64) {
        let limit = self.view(at).map_or(0, |view| view.limit);
        let missing = limit.min(offset).saturating_sub(offset - gap);
        if missing != 0
            && let Some(own) = self.own_loss_mut(at)
        {
            own.missing = missing;
        }
    }

    pub(super) fn is_over(&self, at: ViewAt) -> bool {
        self.view(at)
            .is_none_or(|view| view.flags.has(ViewFlags::OVER))
    }

    /// Whether nobody wants more of a direction.
    #[inline(always)]
    pub(super) fn is_done(&self, record: u32) -> bool {
        self.records
            .get(record)
            .is_some_and(|record| record.flags.has(RecordFlags::DONE))
    }

    /// Packets of a direction that were delivered end at `place` nevertheless, with what is left of their payload.
    #[cold]
    pub(super) fn refuse(&mut self, record: u32, place: Place, counts: Counts) {
        if let Some(loss) = self.loss_mut(record) {
            loss.late += counts.packets;
            if counts.packets == 0 {
                loss.late_bytes += counts.bytes;
                return;
            }
        }
        self.note_refused(place, counts);
    }

    /// Packets end at this place.
    pub(super) fn note_refused(&mut self, place: Place, counts: Counts) {
        match self.refused.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => *known += counts,
            None => self.refused.push((place, counts)),
        }
    }

    /// A direction is over: what else the packets had that were refused late. All of a direction are taken to have headers
    /// of the same length.
    #[cold]
    pub(super) fn refuse_headers(&mut self, record: u32, context: Context<'_>) {
        let loss = self.loss(record);
        if loss.late != 0 {
            let at = ViewAt::first(record);
            let seen = StreamRef {
                core: self,
                context,
                at,
            }
            .statistics();
            let payload = seen.all.bytes.saturating_sub(loss.claimed);
            let headers = u128::from(seen.wire_bytes.saturating_sub(payload));
            let share = headers * u128::from(loss.late) / u128::from(seen.all.packets.max(1));
            let is_all = seen.captured().bytes == 0;
            self.refused_bytes += share as u64 + u64::from(is_all) * loss.late_bytes;
        }
    }

    /// Bytes that headers claim and no frame had: nobody can get them. Returns how many.
    #[cold]
    pub(super) fn discard_claimed(&mut self, id: u32, claimed: u32) -> u64 {
        let bytes = u64::from(claimed);
        self.discard(id, Counts { packets: 0, bytes });
        if let Some(loss) = self.loss_mut(id) {
            loss.claimed += bytes;
        }
        bytes
    }

    /// A SYN that was taken for a stray one within a direction begins another connection: what it has counts there.
    #[cold]
    pub(super) fn take_back(&mut self, id: u32, syn: &Decoded) {
        if syn.payload_len == 0 {
            return;
        }
        let bytes = u64::from(syn.payload_len);
        let counts = Counts { packets: 0, bytes };
        self.statistics.discarded = self.statistics.discarded.without(counts);
        if let Some(loss) = self.loss_mut(id) {
            loss.discarded = loss.discarded.without(counts);
            loss.claimed -= u64::from(claimed(syn)).min(loss.claimed);
        }
    }

    /// Counts what nobody wants of packets that were delivered.
    pub(super) fn discard_late(&mut self, record: u32, counts: Counts, place: Place) {
        if counts != Counts::default() {
            self.discard(record, counts);
            self.refuse(record, place, counts);
        }
    }

    /// Where packets end that were taken for a direction, but of which nothing is wanted.
    pub(super) fn done_place(&self, record: u32) -> Place {
        let record = self.records.get(record);
        record.map_or(Place::Cutoff, |record| record.flags.done_place())
    }

    /// An application wants nothing of a run, or of what is left of it.
    #[cold]
    pub(super) fn discard_run(&mut self, at: ViewAt, run: &Run<'_>, place: Place) {
        let counts = Counts {
            packets: self.beginnings.of(run),
            bytes: run.bytes.len() as u64,
        };
        match self.is_alone(at) {
            true => self.discard_late(at.record, counts, place),
            false => self.discard_for(at, counts),
        }
    }

    /// The same of what was offered in mode FAST; `packets` of it found no place at all.
    pub(super) fn discard_offered(&mut self, at: ViewAt, counts: Counts) {
        if !self.is_alone(at) {
            return self.discard_for(at, counts);
        }
        let place = match self.is_done(at.record) {
            true => self.done_place(at.record),
            false => Place::Duplicate,
        };
        self.discard_late(at.record, counts, place);
    }

    /// Counts what the snap length cut off a packet that is given where it belongs, in mode FAST: of what is old,
    /// behind the FIN, behind a cutoff, or for an application that has just discarded the stream all is discarded. The
    /// frame had `len` bytes of payload.
    #[cold]
    pub(super) fn discard_cut(
        &mut self,
        id: u32,
        packet: &StreamPacket<'_>,
        len: u64,
        ends_after: Option<i64>,
        over: u32,
    ) {
        let Some(offset) = packet.offset else {
            return;
        };
        let decoded = packet.decoded;
        let end = offset + len as i64;
        let begin = offset + packet.payload.len() as i64;
        let stop = ends_after.map_or(end, |len| end.min(offset + len));
        let first = begin.max(packet.position().unwrap_or(begin)).max(0);
        let is_control = decoded.key.protocol == TCP && decoded.tcp_flags.intersects(CONTROL);
        for at in self.all_views(id) {
            if over & at.bit() != 0 || self.mode_of(at) != Mode::Fast {
                continue;
            }
            let limit = match self.view(at) {
                Some(view) if view.flags.has(ViewFlags::DISCARDED) => 0,
                // (A limit may be more than any position.)
                Some(view) => view.limit.min(i64::MAX as u64) as i64,
                None => continue,
            };
            let taken = (stop.min(limit) - first).max(0);
            let is_whole = taken == 0 && packet.payload.is_empty() && !is_control;
            let counts = Counts {
                packets: u64::from(is_whole) * u64::from(decoded.frames),
                bytes: (end - begin - taken) as u64,
            };
            let from = match limit < stop.max(first) {
                true => Place::Cutoff,
                false => Place::Duplicate,
            };
            match self.is_alone(at) {
                true => self.discard_late(id, counts, from),
                false => self.discard_for(at, counts),
            }
        }
    }

    /// The snap length cut off what is next in order. Of what was taken it counts as captured.
    #[cold]
    pub(super) fn take_cut(&mut self, stream: &Stream<'_>, cut: &Cut) {
        let id = stream.id;
        let Some(flags) = self.records.get(id).map(|record| record.flags) else {
            return;
        };
        let end = cut.offset + cut.bytes;
        let begin = Begin::Once(cut.offset, cut.packets);
        if flags.has(RecordFlags::DONE) {
            return self.discard_for_all(id, cut.offset, end, begin);
        }
        // Where the next bytes make STRICT stop, it has stopped.
        let is_behind_hole = stream.bytes + stream.missing_bytes < cut.offset;
        for at in self.all_views(id) {
            if self.is_over(at) {
                let from = cut.offset.max(self.ahead_of(at));
                self.discard_part(at, from, end, begin, Place::Cutoff);
                continue;
            }
            match self.mode_of(at) {
                // It was given where it belongs when it came.
                Mode::Fast if flags.has(RecordFlags::MIXED) => {}
                Mode::Strict if is_behind_hole => {
                    self.discard_part(at, cut.offset, end, begin, Place::Strict);
                }
                _ => {
                    let limit = self.view(at).map_or(0, |view| view.limit);
                    self.discard_part(at, cut.offset.max(limit), end, begin, Place::Cutoff);
                }
            }
        }
    }

    /// An application wants nothing of these positions.
    fn discard_part(&mut self, at: ViewAt, from: u64, to: u64, begin: Begin, place: Place) {
        if from >= to {
            return;
        }
        let counts = Counts {
            packets: self.beginnings.within(from, to, begin),
            bytes: to - from,
        };
        match self.is_alone(at) {
            true => self.discard_late(at.record, counts, place),
            false => self.discard_for(at, counts),
        }
    }

    /// A packet comes late for views that were in mode FAST and for which it is over: what is before the
    /// place where they left it is not counted when it is in order.
    #[inline]
    pub(super) fn discard_late_of_fast(
        &mut self,
        id: u32,
        packet: &StreamPacket<'_>,
        counts: Counts,
    ) {
        if self.is_alone(ViewAt::first(id)) && !self.is_beside {
            return;
        }
        let Some(offset) = packet.offset.filter(|_| packet.expected) else {
            return;
        };
        let decoded = packet.decoded;
        let is_control = decoded.key.protocol == TCP && decoded.tcp_flags.intersects(CONTROL);
        let end = offset + i64::from(decoded.payload_len);
        for at in self.all_views(id) {
            let ahead = self.ahead_of(at) as i64;
            if end <= ahead && self.is_over(at) && self.placed & at.bit() == 0 {
                self.placed |= at.bit();
                let packets = u64::from(!is_control) * counts.packets;
                self.discard_for(at, Counts { packets, ..counts });
            }
        }
    }

    /// Some bytes of a packet that was taken came a second time or have no place, or all.
    #[cold]
    pub(super) fn discard_unplaced(&mut self, id: u32, packet: &Decoded, unplaced: &Unplaced) {
        let bytes = u64::from(unplaced.bytes);
        let is_control = packet.tcp_flags.intersects(CONTROL);
        let is_whole = unplaced.whole && !is_control;
        let packets =
            u64::from(is_whole) * u64::from(packet.frames) + u64::from(unplaced.displaced);
        let counts = Counts { packets, bytes };
        if self.placed == 0 {
            let place = match unplaced.outside {
                true => Place::Outside,
                false => Place::Duplicate,
            };
            return self.discard_late(id, counts, place);
        }
        for at in self.all_views(id) {
            // The others know for themselves what is new of it.
            if self.placed & at.bit() == 0 {
                self.discard_for(at, counts);
            }
        }
    }

    /// What waited for its turn will not be delivered.
    #[cold]
    pub(super) fn discard_forgotten(&mut self, id: u32, forgotten: Forgotten) {
        let counts = Counts {
            packets: forgotten.packets,
            bytes: forgotten.bytes,
        };
        // Those in mode FAST had it when it came, if it waited for others.
        let is_mixed = self.is_mixed(id);
        let had_it = |core: &Core, at| {
            is_mixed && core.mode_of(at) == Mode::Fast && !core.is_over(at)
                || (core.view(at)).is_some_and(|view| view.flags.has(ViewFlags::AHEAD))
        };
        if !self.all_views(id).any(|at| had_it(self, at)) || self.is_alone(ViewAt::first(id)) {
            let place = match self.is_done(id) {
                true => self.done_place(id),
                false => Place::Outside,
            };
            return self.discard_late(id, counts, place);
        }
        for at in self.all_views(id) {
            if !had_it(self, at) {
                self.discard_for(at, counts);
            }
        }
    }

    /// Counts what is new in a chunk that an application had no memory for.
    #[cold]
    pub(super) fn drop_chunk(&mut self, at: ViewAt, lost: Counts) {
        self.statistics.lost_bytes += lost.bytes;
        if self.is_alone(at) {
            self.refuse(at.record, Place::Memory, lost);
            self.drop(at.record, lost);
        } else if let Some(own) = self.own_loss_mut(at) {
            own.dropped += lost;
        }
    }

    /// An application wants nothing of a chunk under way: so many packets, and bytes of one that began before.
    #[cold]
    pub(super) fn discard_all_of(&mut self, at: ViewAt, counts: Counts) {
        match self.is_alone(at) {
            true => self.discard_late(at.record, counts, Place::Cutoff),
            false => self.discard_for(at, counts),
        }
    }

    /// An application wants no more of what came for it.
    #[cold]
    pub(super) fn discard_rest(&mut self, at: ViewAt, bytes: u64) {
        let counts = Counts { packets: 0, bytes };
        if !self.is_alone(at) {
            self.discard_for(at, counts);
        } else if bytes != 0 {
            self.discard(at.record, counts);
        }
    }

    fn discard_for(&mut self, at: ViewAt, counts: Counts) {
        if let Some(own) = self.own_loss_mut(at) {
            own.discarded += counts;
        }
    }

    /// The views of a shared direction, in their order, for which it is over.
    #[inline]
    pub(super) fn views_that_are_over(&self, id: u32) -> u32 {
        match self.is_alone(ViewAt::first(id)) {
            true => 0,
            false => self
                .views_of(id)
                .filter(|&at| self.is_over(at))
                .fold(0, |over, at| over | at.bit()),
        }
    }

    /// A packet that others take is not wanted by those views.
    #[inline]
    pub(super) fn discard_for_each(&mut self, id: u32, over: u32, counts: Counts) {
        if over == 0 {
            return;
        }
        for at in self.all_views(id) {
            if over & at.bit() != 0 {
                self.discard_for(at, counts);
            }
        }
    }

    /// Bytes in order are not wanted by those for whom the direction is over, while others get them.
    #[cold]
    pub(super) fn discard_for_some(&mut self, id: u32, from: u64, to: u64, begin: Begin) {
        for at in self.all_views(id) {
            let from = from.max(self.ahead_of(at));
            if self.is_over(at) && from < to {
                let counts = Counts {
                    packets: self.beginnings.within(from, to, begin),
                    bytes: to - from,
                };
                self.discard_for(at, counts);
            }
        }
    }

    /// Bytes in order are wanted by nobody any more.
    #[cold]
    pub(super) fn discard_for_all(&mut self, id: u32, from: u64, to: u64, begin: Begin) {
        let ahead = (self.views_of(id).map(|at| self.ahead_of(at)).max()).unwrap_or(0);
        let common = ahead.clamp(from, to);
        self.discard_for_some(id, from, common, begin);
        let counts = Counts {
            packets: self.beginnings.within(common, to, begin),
            bytes: to - common,
        };
        self.discard_late(id, counts, self.done_place(id));
    }

    /// Bytes before this were dealt with for a view when they came: it is, or was, in mode FAST.
    fn ahead_of(&self, at: ViewAt) -> u64 {
        match self.view(at) {
            Some(view) if view.flags.has(ViewFlags::AHEAD) => self.own_loss(at).ahead,
            _ => 0,
        }
    }

    /// A view wants no more. (In mode FAST it was given what waits for others, if there are such.)
    pub(super) fn note_end(&mut self, at: ViewAt) {
        if self.is_mixed(at.record) {
            self.note_ahead(at);
        }
    }

    /// Whether views in mode FAST may have got what waits for others.
    fn is_mixed(&self, id: u32) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|record| record.flags.has(RecordFlags::MIXED))
    }

    /// A view leaves mode FAST.
    pub(super) fn note_ahead(&mut self, at: ViewAt) {
        let ahead = self
            .records
            .get(at.record)
            .map_or(0, |record| record.position);
        if ahead != 0 && self.mode_of(at) == Mode::Fast {
            if let Some(own) = self.own_loss_mut(at) {
                own.ahead = own.ahead.max(ahead);
            }
            if let Some(view) = self.view_mut(at) {
                view.flags.set(ViewFlags::AHEAD);
            }
        }
    }

    /// What is new of a run to a view that was in mode FAST before.
    #[cold]
    pub(super) fn skip_old<'r>(&mut self, at: ViewAt, run: Run<'r>) -> Run<'r> {
        let ahead = self.own_loss(at).ahead;
        if run.offset < ahead {
            return run.skip(ahead - run.offset);
        }
        if let Some(view) = self.view_mut(at) {
            view.flags.clear(ViewFlags::AHEAD);
        }
        run
    }
}
