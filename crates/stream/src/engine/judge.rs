//! The slow path of a packet: it has to be inspected before its payload is reassembled.

use flowgauge_flow::PacketFlowFlags;
use flowgauge_reassembly::tcp::HalfFlags;
use flowgauge_wire::{Place, TcpFlags};

use super::assemble::Run;
use super::budget::Sentence;
use super::buffers::Buffers;
use super::chunk::{ChunkFlags, ChunkInfo, Source};
use super::config::{MAX_APPLICATIONS, Mode};
use super::core::Core;
use super::events::Events;
use super::fast::{Origin, Placed, Segment};
use super::noted::Note;
use super::packets::{Log, NewPacket};
use super::pass::{CONTROL, FAST_OPEN, Hook, TCP, UDP};
use super::record::{RecordFlags, ViewAt};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamErrors};
use crate::handler::{Admit, Handler, Stream, StreamPacket, StreamStatus};

/// How a segment is given to those in mode FAST.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    /// The views for which the stream was over when the segment came: for them it was counted as
    /// discarded, whatever they have asked for since.
    pub(super) over: u32,
    /// Where nothing of it is new it is refused.
    pub(super) is_refusable: bool,
    /// What is not new of it is counted.
    pub(super) is_counted: bool,
    /// It is so many packets, where nothing of it is new.
    pub(super) packets: u64,
    /// Bytes of it that are before the stream or behind its end.
    pub(super) beside: u64,
}

impl Offer {
    /// What is to be discarded of it for one to whom so much of the run was new.
    fn unwanted(&self, run: &Run<'_>, placed: Placed) -> Counts {
        let len = run.bytes.len() as u64 + self.beside;
        let bytes = match self.is_counted {
            true => len - (placed.new - placed.replaced).min(len),
            false => placed.unwanted,
        };
        Counts {
            packets: if placed.new == 0 && bytes != 0 {
                self.packets
            } else {
                0
            },
            bytes,
        }
    }
}

impl<E: Events + ?Sized, G: Handler> Hook<'_, E, G> {
    /// A packet that has to be looked at.
    #[inline(never)]
    pub(super) fn judge(
        &mut self,
        stream: &Stream<'_>,
        packet: &StreamPacket<'_>,
        is_old: bool,
    ) -> Admit {
        let core = &mut *self.core;
        core.placed = 0;
        let Some(record) = core.records.get(stream.id) else {
            return Admit::Take;
        };
        let decoded = packet.decoded;
        let flags = record.flags;
        // What the guest still reads is put in order, and counts as discarded there.
        let has_bytes = matches!(decoded.key.protocol, TCP | UDP);
        let is_read = G::STREAMS && has_bytes && !packet.halves[0].is_abandoned();
        if core.is_beside && !flags.has(RecordFlags::LIVE) {
            return Admit::Take;
        }
        let mut counts = Counts {
            packets: u64::from(decoded.frames),
            bytes: u64::from(decoded.payload_len),
        };
        if packet.is_damaged() {
            // (The ledger has it.)
            core.discard(stream.id, counts);
            return Admit::Reject(None);
        }
        if flags.has(RecordFlags::UNWANTED) {
            core.statistics.discard(counts);
            return Admit::Refuse(Place::Filter);
        }
        if packet.claimed() != 0 {
            counts.bytes -= core.discard_claimed(stream.id, packet.claimed());
        }
        if decoded.key.protocol != TCP && decoded.key.protocol != UDP {
            return self.lone_packet(stream, packet, counts);
        }
        let is_tcp = decoded.key.protocol == TCP;
        let is_control = is_tcp && decoded.tcp_flags.intersects(CONTROL);
        let is_false_reset = is_tcp
            && decoded.tcp_flags.contains(TcpFlags::RST)
            && !packet.flow.flags.contains(PacketFlowFlags::RST_VALID);
        let is_stray = packet.flow.flags.contains(PacketFlowFlags::HELD_SYN);
        if is_false_reset || is_stray || !packet.expected {
            core.note_error(stream.id, StreamErrors::INVALID_SEQUENCE);
        }
        if is_tcp && decoded.tcp_flags.contains(TcpFlags::SYN) && !is_stray {
            core.note_syn(stream.id, packet);
        }
        let has_payload = decoded.payload_len != 0;
        if flags.has(RecordFlags::STRICT) && !G::STREAMS && packet.is_unacceptable() {
            let counts_as_packet = has_payload && !is_control;
            return core.reject(stream.id, counts, counts_as_packet);
        }
        let is_reset = is_tcp && decoded.tcp_flags.contains(TcpFlags::RST);
        let is_done = flags.has(RecordFlags::DONE);
        let is_unwanted = is_reset || is_stray || is_control && is_done && !is_read;
        if has_payload && is_unwanted {
            // They count, but what they carry is no part of the stream (RFC 9293, section 3.5.3), or not wanted.
            core.discard(
                stream.id,
                Counts {
                    packets: 0,
                    ..counts
                },
            );
        }
        if is_read && is_done && !is_unwanted {
            core.discard_late_of_fast(stream.id, packet, counts);
            if is_control && is_old {
                let packets = 0;
                core.discard(stream.id, Counts { packets, ..counts });
                core.is_counted = true;
            }
            let is_new = !is_old && core.placed == 0 && !packet.is_waiting_copy();
            if decoded.frames > 1 && counts.bytes != 0 && is_new && !is_control {
                // In order it is one.
                let packets = u64::from(decoded.frames) - 1;
                core.discard_late(stream.id, Counts { packets, bytes: 0 }, flags.done_place());
            }
            return Admit::Take;
        }
        if has_payload
            && !is_control
            && let Some(place) = core.refuse_payload(stream.id, packet, counts, flags, is_read)
        {
            return Admit::Refuse(place);
        }
        if core.need_packets && !flags.has(RecordFlags::DONE) {
            self.take_packet(stream, packet);
        }
        let flags = self
            .core
            .records
            .get(stream.id)
            .map_or(flags, |record| record.flags);
        if has_payload && is_unwanted {
            return match is_reset || is_stray {
                true => Admit::Take,
                false => Admit::Consumed,
            };
        }
        if has_payload && flags.has(RecordFlags::FAST) {
            return self.fast_segment(stream, packet, counts);
        }
        if is_old {
            self.core.compare(stream.id, packet);
        }
        let is_copy = is_old || has_payload && packet.is_waiting_copy();
        if is_copy && !is_control {
            self.core.discard(stream.id, counts);
            return Admit::Refuse(copy_place(packet));
        }
        if has_payload {
            self.core.discard_late_of_fast(stream.id, packet, counts);
        }
        Admit::Take
    }

    /// A packet is shown at once, if it is the last one, or goes with the chunk under way.
    #[inline(always)]
    fn take_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) {
        let new = NewPacket::of(packet);
        let is_last = packet.decoded.payload_len == 0
            && stream.status == StreamStatus::Fin
            && packet.halves[1].flags().contains(HalfFlags::CLOSED);
        if !is_last || !self.show_packet(stream, &new) {
            self.note_packet(stream, &new, packet.is_deliverable(), false);
        }
    }

    /// Sends a packet without payload at once, which is likely the last of its stream, where only one
    /// application wants that and no chunk is under way. Returns whether it did.
    fn show_packet(&mut self, stream: &Stream<'_>, packet: &NewPacket<'_>) -> bool {
        let is_alone = (self.core.records.get(stream.id)).is_some_and(|record| {
            record.flags.has(RecordFlags::SIMPLE)
                && record.view.chunk == NONE
                && self.core.notes_packets(&record.view)
        });
        if is_alone {
            let info = ChunkInfo {
                offset: stream.bytes + stream.missing_bytes,
                flags: ChunkFlags::LAST,
                time: packet.time,
                ..ChunkInfo::default()
            };
            let first = ViewAt::first(stream.id);
            (self.core).send_packet(self.events, Context::of(stream), first, packet, info);
        }
        is_alone
    }

    /// Enters a packet beside the chunks under way. `follows` says that its payload is put in order
    /// before anything else happens.
    #[inline(never)]
    pub(super) fn note_packet(
        &mut self,
        stream: &Stream<'_>,
        packet: &NewPacket<'_>,
        is_deliverable: bool,
        follows: bool,
    ) {
        let id = stream.id;
        let delivered = stream.bytes + stream.missing_bytes;
        let is_next = is_deliverable && packet.offset == delivered as i64;
        if (self.core).note_alone(id, packet, delivered, is_next, follows) {
            return;
        }
        let Some(record) = self.core.records.get(id) else {
            return;
        };
        // (Of a stream that was in another mode before, what was delivered is known, too.)
        let (is_fast, seen) = (
            record.flags.has(RecordFlags::FAST),
            record.position.max(delivered),
        );
        let mut done = 0;
        while let Some(at) = self.core.first_without(id, done) {
            let chunker = self.core.chunker_of(at);
            let is_noted = |view| self.core.notes_packets(view);
            if !self.core.view(chunker).is_some_and(is_noted) {
                done |= self.core.members(chunker);
                continue;
            }
            let mode = self.core.mode_of(at);
            let position = match mode {
                Mode::Fast if is_fast => seen,
                _ => delivered,
            };
            let is_next = is_deliverable
                && packet.offset == position as i64
                && (mode != Mode::Strict || self.core.strictly_goes_on(stream, position, 0));
            let note = Note {
                context: Context::of(stream),
                chunker,
                packet,
                position,
                is_next,
            };
            self.core.note_packet(self.events, &note);
            // (Not those who have left it meanwhile.)
            done |= self.core.members(chunker);
        }
    }

    /// A packet of a protocol without streams: an event of its own.
    fn lone_packet(
        &mut self,
        stream: &Stream<'_>,
        packet: &StreamPacket<'_>,
        counts: Counts,
    ) -> Admit {
        let id = stream.id;
        let Some(record) = self.core.records.get_mut(id) else {
            return Admit::Take;
        };
        let info = ChunkInfo {
            offset: record.position,
            gap_before: 0,
            repeated: 0,
            flags: ChunkFlags::PACKET,
            time: packet.decoded.time,
        };
        record.position += u64::from(packet.decoded.payload_len);
        if record.flags.has(RecordFlags::DONE) {
            self.core.discard(id, counts);
            return Admit::Refuse(Place::Cutoff);
        }
        let new = NewPacket::of(packet);
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            let chunker = self.core.chunker_of(this);
            let Some(view) = self.core.view(chunker) else {
                continue;
            };
            if !self.core.is_over(this) {
                let is_noted = self.core.need_packets && self.core.notes_packets(view);
                let log = match is_noted {
                    true => Log::One(&new),
                    false => Log::default(),
                };
                let source = Source::InPlace(packet.payload, None, log);
                let mut shown = self.core.shown(source, info);
                let context = Context::of(stream);
                (self.core).send_to(self.events, context, this, &mut shown, 1);
                self.core.lent = Some(shown.budget);
                self.core.follow(this);
            }
        }
        Admit::Consumed
    }

    /// A segment of a stream in mode FAST.
    #[inline(always)]
    fn fast_segment(
        &mut self,
        stream: &Stream<'_>,
        packet: &StreamPacket<'_>,
        counts: Counts,
    ) -> Admit {
        let id = stream.id;
        let decoded = packet.decoded;
        // Where the stream begins is not known, or the segment is so far ahead that it takes a second
        // one to be believed: reassembly finds out, and delivers.
        let over = self.core.views_that_are_over(id);
        let is_control = decoded.tcp_flags.intersects(CONTROL);
        let Some(offset) = packet.offset.filter(|_| packet.expected) else {
            return Admit::Take;
        };
        // (Of a stream that was in another mode before, what was delivered is known, too.)
        let delivered = stream.bytes + stream.missing_bytes;
        let (flags, seen) = match self.core.records.get(id) {
            Some(record) => (record.flags, record.position.max(delivered)),
            None => return Admit::Take,
        };
        let ordered = flags.has(RecordFlags::ORDERED) || G::STREAMS;
        if offset > seen as i64 && !ordered && packet.is_beyond_window() {
            self.core.note_error(id, StreamErrors::INVALID_SEQUENCE);
            return Admit::Doubt;
        }
        let ends_after = match decoded.key.protocol {
            TCP => packet.stream_ends_after(),
            _ => None,
        };
        let mut payload = packet.payload;
        if let Some(len) = ends_after {
            // Nothing is behind the FIN.
            payload = &payload[..payload.len().min(len.max(0) as usize)];
        }
        let old = offset.min(0).unsigned_abs() as usize;
        let run = Run {
            bytes: payload.get(old..).unwrap_or(&[]),
            offset: offset.max(0) as u64,
            gap_before: 0,
            time: decoded.time,
            last: false,
        };
        let origin = Origin {
            start: offset,
            end: offset + i64::from(decoded.payload_len),
            policy: packet.overlap_policy(),
        };
        if offset == 0 && !flags.has(FAST_OPEN) && !stream.is_handshake_complete() {
            self.core.note_error(id, StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        if run.offset < seen {
            self.core.compare(id, packet);
        }
        let is_refusable = !ordered && !is_control && !packet.payload.is_empty();
        let beside = packet.payload.len() - run.bytes.len();
        if ordered {
            self.core.placed = self.core.views_in_fast_mode(id, over);
            if let Some(record) = self.core.records.get_mut(id) {
                record.flags.set(RecordFlags::MIXED);
            }
        }
        let packets = if is_control { 0 } else { counts.packets };
        let offer = Offer {
            over,
            is_refusable,
            is_counted: true,
            packets,
            beside: beside as u64,
        };
        self.core.beginnings.count = packets as u32;
        let new = self.place(stream, run, seen, origin, offer);
        self.core.beginnings.count = 1;
        if let Some(len) = ends_after {
            self.send_complete(stream, (offset + len).max(0) as u64);
        }
        if !ordered && new == 0 && is_refusable {
            self.core.discard(id, counts);
            let flags = self
                .core
                .records
                .get(id)
                .map_or(flags, |record| record.flags);
            return Admit::Refuse(match flags.has(RecordFlags::DONE) {
                true => flags.done_place(),
                false if ends_after.is_some_and(|len| len <= 0) => Place::Outside,
                false => copy_place(packet),
            });
        }
        if packet.payload.len() as u64 != counts.bytes {
            (self.core).discard_cut(id, packet, counts.bytes, ends_after, over);
        }
        if ordered {
            // Those for whom it is over count it when it is in order.
            self.core.discard_late_of_fast(id, packet, counts);
            return Admit::Take;
        }
        (self.core).discard_for_each(id, over, Counts { packets, ..counts });
        Admit::Consumed
    }

    /// Gives a segment to all in mode FAST, of whom none has seen a byte at or behind `seen`. Returns
    /// how many bytes were new. What was not, or is not wanted, counts as discarded, unless nothing was
    /// new of a segment that [is refusable](Offer::is_refusable).
    pub(super) fn place(
        &mut self,
        stream: &Stream<'_>,
        run: Run<'_>,
        seen: u64,
        origin: Origin,
        offer: Offer,
    ) -> u64 {
        let id = stream.id;
        let mut new = 0;
        // Before anybody leaves the mode in the midst of it.
        let end = run.offset + run.bytes.len() as u64;
        if let Some(record) = self.core.records.get_mut(id) {
            record.position = record.position.max(end);
        }
        let context = Context::of(stream);
        let segment = Segment {
            run,
            seen,
            origin,
            placed: Placed::default(),
        };
        let first = ViewAt::first(id);
        if self.core.is_alone(first) {
            if self.core.mode_of(first) == Mode::Fast && !self.core.is_over(first) {
                let core = &mut *self.core;
                let mut all = [None];
                core.place(self.events, context, first, segment, &mut all);
                let placed = all[0].unwrap_or_default();
                new = placed.new;
                let unwanted = offer.unwanted(&run, placed);
                if unwanted.bytes != 0 && (new != 0 || !offer.is_refusable) {
                    core.discard_offered(first, unwanted);
                }
            }
        } else {
            new = self.place_for_each(context, id, segment, offer);
        }
        if self.core.is_done(id) {
            self.finish_direction(stream.id);
        }
        new
    }

    /// The same where several applications have the stream.
    #[cold]
    fn place_for_each(
        &mut self,
        context: Context<'_>,
        id: u32,
        segment: Segment<'_>,
        offer: Offer,
    ) -> u64 {
        let mut all = [None; MAX_APPLICATIONS];
        let mut done = offer.over;
        while let Some(at) = self.core.first_without(id, done) {
            let chunker = self.core.chunker_of(at);
            done |= self.core.members(chunker);
            if self.core.mode_of(at) == Mode::Fast {
                (self.core).place(self.events, context, chunker, segment, &mut all);
            }
        }
        let placed = all.iter().flatten();
        let new = placed.map(|placed| placed.new).max().unwrap_or(0);
        if new != 0 || !offer.is_refusable {
            for (at, placed) in self.core.all_views(id).zip(all) {
                let unwanted = placed.map(|placed| offer.unwanted(&segment.run, placed));
                if let Some(counts) = unwanted.filter(|counts| counts.bytes != 0) {
                    self.core.discard_offered(at, counts);
                }
            }
        }
        new
    }
}

/// Where a packet ends of which nothing is new.
fn copy_place(packet: &StreamPacket<'_>) -> Place {
    let end = |offset| offset + i64::from(packet.decoded.payload_len);
    match packet.offset.is_some_and(|offset| end(offset) <= 0) {
        // Nobody ever saw those bytes.
        true => Place::Outside,
        false => Place::Duplicate,
    }
}

impl Core {
    /// The views in mode FAST of a direction, without those of `over`, a bit each in their order.
    #[cold]
    fn views_in_fast_mode(&self, id: u32, over: u32) -> u32 {
        self.views_of(id)
            .filter(|&at| over & at.bit() == 0 && self.mode_of(at) == Mode::Fast)
            .fold(0, |views, at| views | at.bit())
    }

    /// Mode STRICT takes nothing of a packet.
    #[cold]
    #[inline(never)]
    fn reject(&mut self, id: u32, counts: Counts, counts_as_packet: bool) -> Admit {
        self.note_error(id, StreamErrors::INVALID_SEQUENCE);
        let packets = u64::from(counts_as_packet) * counts.packets;
        self.discard(id, Counts { packets, ..counts });
        Admit::Reject(counts_as_packet.then_some(Place::Outside))
    }

    /// Where the payload of a packet goes that is not taken.
    #[inline(always)]
    fn refuse_payload(
        &mut self,
        id: u32,
        packet: &StreamPacket<'_>,
        counts: Counts,
        flags: RecordFlags,
        is_read: bool,
    ) -> Option<Place> {
        if flags.has(RecordFlags::DONE) {
            self.discard(id, counts);
            return Some(flags.done_place());
        }
        if counts.bytes == 0 {
            self.discard(id, counts);
            return Some(Place::Malformed);
        }
        if self.pressed && !is_read && !self.is_admitted(id, packet) {
            self.drop(id, counts);
            return Some(Place::Priority);
        }
        None
    }

    /// Whether a packet is kept while memory is short.
    fn is_admitted(&self, id: u32, packet: &StreamPacket<'_>) -> bool {
        let offset = packet.offset.unwrap_or(0).max(0) as u64;
        let priority = self.priority_of(id);
        let mut used = self.budget.used();
        if self.watermarks.ceiling(priority) < self.watermarks.limit() {
            // With the packet, wherever it will be: what is not taken here may be lost later on.
            used += Buffers::cost_of(packet.payload.len());
        }
        self.watermarks.judge(used, priority, offset) == Sentence::Keep
    }

    /// Compares a copy with what is still there of the first one, in a chunk under way.
    #[cold]
    fn compare(&mut self, id: u32, packet: &StreamPacket<'_>) {
        let Some(offset) = packet.offset else {
            return;
        };
        let differs = self.views_of(id).any(|at| {
            let chunk = self.chunk_of(at);
            let Some(pending) = self.pending.get(chunk).filter(|_| chunk != NONE) else {
                return false;
            };
            pending
                .content
                .differs(offset - pending.start as i64, packet.payload)
        });
        if differs {
            self.note_error(id, StreamErrors::OVERLAP_CONFLICT);
        }
    }

    /// Notes data on a SYN, and the SYN-ACK that takes them (RFC 7413).
    #[cold]
    fn note_syn(&mut self, id: u32, packet: &StreamPacket<'_>) {
        let is_taken = packet.decoded.tcp_flags.contains(TcpFlags::ACK)
            && (self.records.get(id ^ 1))
                .is_some_and(|record| record.flags.has(RecordFlags::SYN_DATA))
            && (packet.halves[1].distance_to(packet.decoded.ack)).is_some_and(|ahead| ahead >= 0);
        let has_data = packet.decoded.payload_len != 0;
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if is_taken {
            record.flags.set(RecordFlags::SYN_DATA_TAKEN);
        } else if has_data && !packet.decoded.tcp_flags.contains(TcpFlags::ACK) {
            record.flags.set(RecordFlags::SYN_DATA);
        }
    }
}
