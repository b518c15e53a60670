//! The engine as a handler of its shard: what a packet, and bytes in order, mean for streams.

use flowgauge_flow::{FlowTracker, PacketFlowFlags};
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, Direction, LinkType, Nanos, PacketDescriptor, Place,
    TcpFlags,
};

use super::assemble::Run;
use super::budget::Sentence;
use super::buffers::Buffers;
use super::chunk::{ChunkFlags, ChunkInfo, Source};
use super::config::{ApplicationId, FilterPacket, MAX_APPLICATIONS, Mode};
use super::core::Core;
use super::events::Events;
use super::fast::Origin;
use super::offload::{OffloadFlow, Verdict};
use super::packets::{NewPacket, PacketLog};
use super::record::{Extra, Parameters, Record, RecordFlags, View, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamErrors, StreamRef};
use crate::handler::{Admit, Chunk, Handler, Request, Stream, StreamPacket, StreamStatus};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Packets with these are never cut off nor dropped.
const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
/// Data may come before the handshake is complete.
const FAST_OPEN: u16 = RecordFlags::SYN_DATA | RecordFlags::SYN_DATA_TAKEN;

/// The engine during a batch.
pub(super) struct Hook<'a, E: ?Sized> {
    pub(super) core: &'a mut Core,
    pub(super) events: &'a mut E,
}

impl<E: Events + ?Sized> Handler for Hook<'_, E> {
    const STREAMS: bool = true;
    const PACKETS: bool = true;

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        let core = &mut *self.core;
        core.look_at_memory();
        (core.fetched, core.passed) = (0, 0);
        if core.filtered {
            core.descriptors.clear();
            core.descriptors.extend_from_slice(batch.packets);
        }
        for packet in &decoded.packets {
            // As the flow tracker does, and so each stream.
            if packet.has_ip() && !packet.flags.contains(DecodeFlags::EXCLUDED) {
                core.statistics.all.packets += u64::from(packet.frames);
                core.statistics.all.bytes += u64::from(packet.payload_len);
            }
        }
    }

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        if has_payload || self.core.need_packets {
            self.core.fetch(stream, has_payload);
        }
    }

    #[inline(always)]
    fn arrived(&mut self, has_payload: bool) {
        if has_payload || self.core.need_packets {
            self.core.fetch_ahead();
        }
    }

    #[inline(always)]
    fn attends(&self) -> bool {
        self.core.watchful || self.core.pressed
    }

    #[inline(always)]
    fn request(&mut self) -> Option<Request> {
        if self.core.requests.is_empty() {
            return None;
        }
        self.core.requests.pop_front()
    }

    fn tick(&mut self, tracker: &FlowTracker) {
        self.core.flush_old(self.events, tracker);
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let record = self.core.records.make(stream.id);
        *record = Record {
            generation: record.generation,
            flags: RecordFlags(RecordFlags::LIVE | RecordFlags::NEW),
            ..Record::default()
        };
        if stream.from_initiator {
            record.flags.set(RecordFlags::FROM_INITIATOR);
        }
    }

    fn overlap_policy(&mut self, stream: &Stream<'_>) -> Option<OverlapPolicy> {
        if self.core.policies.is_uniform() {
            return None;
        }
        let identity = stream.identity();
        let receiver = identity.destination.0;
        Some(self.core.policies.of(receiver, identity.version))
    }

    #[inline]
    fn stream_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
        if packet.begins {
            self.introduce(stream, packet);
        }
        if self.core.has_timers() {
            self.flush_due(stream, packet);
        }
        let len = packet.decoded.payload_len;
        let delivered = stream.bytes + stream.missing_bytes;
        let is_old = len != 0
            && packet
                .offset
                .is_some_and(|offset| offset + i64::from(len) <= delivered as i64);
        let is_lone = !matches!(packet.decoded.key.protocol, TCP | UDP);
        let flags = packet.decoded.tcp_flags;
        let is_odd = flags.contains(TcpFlags::RST)
            || len != 0 && (packet.waiting || flags.contains(TcpFlags::SYN));
        let is_usual = packet.expected && !is_odd;
        if !is_old && is_usual && !is_lone && !self.core.need_packets && !self.attends() {
            return Admit::Take;
        }
        self.judge(stream, packet, is_old)
    }

    fn stream_conflict(&mut self, stream: u32) {
        self.core.note_error(stream, StreamErrors::OVERLAP_CONFLICT);
    }

    fn waiting_ceiling(&self, stream: Option<u32>) -> u64 {
        match stream {
            Some(id) => self.core.ceiling_of(id),
            None => self.core.watermarks.lowest_ceiling(),
        }
    }

    #[inline(always)]
    fn follows(&self) -> bool {
        self.core.need_packets
    }

    #[inline(always)]
    fn next_packet(
        &mut self,
        stream: &Stream<'_>,
        packet: &Decoded,
        offset: u64,
        frame: &[u8],
        payload: &[u8],
    ) {
        let new = NewPacket::new(packet, frame, payload, Some(offset as i64));
        if self.core.has_timers() {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, packet.time);
        }
        if !self.core.note_simply(stream.id, &new, offset) {
            self.note_packet(stream, &new, true);
        }
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if self.core.has_timers() {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, chunk.time);
        }
        let core = &mut *self.core;
        let Some(record) = core.records.get(stream.id) else {
            return;
        };
        let is_simple = record.flags.has(RecordFlags::SIMPLE)
            && chunk.gap_before == 0
            && stream.status != StreamStatus::Fin;
        if is_simple && core.fill_simply(record.view.chunk, record.view.limit, chunk) {
            return;
        }
        self.remarkable_data(stream, chunk);
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        let flags = match stream.status {
            StreamStatus::Fin => ChunkFlags::LAST,
            _ => ChunkFlags(0),
        };
        if stream.status == StreamStatus::Fin && self.core.is_fast(stream.id) {
            // A FIN overtakes data in mode FAST: they still have their place in the chunk.
            let end = stream.bytes + stream.missing_bytes;
            return self.send_complete(stream, end);
        }
        self.send_all(stream, flags);
    }

    fn stream_ends(&mut self, stream: &Stream<'_>, at: Nanos) {
        if self.core.has_timers() {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, at);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let context = Context::of(stream);
        let id = stream.id;
        let Some(record) = self.core.records.get_mut(id) else {
            return;
        };
        if trailing_gap != 0 && !record.flags.has(RecordFlags::DONE) {
            record.errors.insert(StreamErrors::GAP);
        }
        if record.flags.has(FAST_OPEN) && !stream.is_handshake_complete() {
            record.errors.insert(StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        let is_wanted = !record.flags.has(RecordFlags::UNWANTED | RecordFlags::NEW);
        if record.flags.has(RecordFlags::TOLD) && id & 1 == 1 || !is_wanted {
            self.tell(stream, Verdict::Forget);
        }
        if is_wanted {
            self.send_all(stream, ChunkFlags::LAST);
            self.core.trailing_gap = (id, trailing_gap);
            let mut at = Some(ViewAt::first(id));
            while let Some(this) = at {
                at = self.core.next_view(this);
                let Some(view) = self.core.view(this) else {
                    continue;
                };
                let application = ApplicationId(view.application);
                if application.0 == u8::MAX {
                    continue;
                }
                let mut stream = StreamRef {
                    core: self.core,
                    context,
                    at: this,
                };
                self.events.terminated(application, &mut stream);
            }
            self.core.trailing_gap = (NONE, 0);
            self.core.statistics.terminated += 1;
        }
        self.core.forget(id);
    }
}

impl<E: Events + ?Sized> Hook<'_, E> {
    /// Bytes in order that are not simply some more in a chunk under way.
    #[inline(never)]
    fn remarkable_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let core = &mut *self.core;
        let Some(record) = core.records.get(stream.id) else {
            return;
        };
        let (more, flags, seen) = (record.more, record.flags, record.position);
        let end = chunk.offset + chunk.bytes.len() as u64;
        if flags.has(RecordFlags::DONE) {
            return core.discard_for_all(stream.id, chunk.offset, end);
        }
        if more != NONE {
            core.discard_for_some(stream.id, chunk.offset, end);
        }
        let run = Run {
            bytes: chunk.bytes,
            offset: chunk.offset,
            gap_before: chunk.gap_before,
            time: chunk.time,
            last: stream.status == StreamStatus::Fin,
        };
        let context = Context::of(stream);
        if chunk.gap_before != 0
            && let Some(record) = core.records.get_mut(stream.id)
        {
            record.errors.insert(StreamErrors::GAP);
        }
        if chunk.offset == 0
            && !flags.has(RecordFlags::DATAGRAMS | FAST_OPEN)
            && !stream.is_handshake_complete()
            && let Some(record) = core.records.get_mut(stream.id)
        {
            record.errors.insert(StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        if flags.has(RecordFlags::FAST) {
            // What began before anyone knew where, or waited for others: no copy was there before.
            // (Of a stream that was in another mode before, what was delivered is known, too.)
            let seen = seen.max(run.offset - run.gap_before);
            self.place(stream, run, seen, Origin::of(&run), false);
            if !flags.has(RecordFlags::ORDERED) {
                return;
            }
        }
        let first = ViewAt::first(stream.id);
        if more == NONE {
            self.take(stream, first, context, run);
        } else {
            for leader in self.core.leaders(stream.id) {
                self.take(stream, leader, context, run);
            }
        }
        if self.core.is_done(stream.id) {
            self.finish_direction(stream);
        }
    }

    /// Gives bytes in order to the applications that share the parameters of `leader`.
    #[inline]
    fn take(&mut self, stream: &Stream<'_>, leader: ViewAt, context: Context<'_>, run: Run<'_>) {
        let core = &mut *self.core;
        let Some(view) = core.view(leader) else {
            return;
        };
        let place = view.parameters;
        let is_ahead = view.flags.has(ViewFlags::AHEAD);
        let mode = core.parameters(place).mode;
        if mode == Mode::Fast && core.is_fast(leader.record) {
            return;
        }
        let run = match is_ahead {
            true => core.skip_old(leader, run),
            false => run,
        };
        if run.bytes.is_empty() {
            return;
        }
        if mode == Mode::Strict && !core.strictly_goes_on(stream, run.offset, run.gap_before) {
            // Whoever goes its own way in the event has come to the end, too.
            let members = core.members(leader.record, place);
            core.send_pending(self.events, context, leader, ChunkFlags(0));
            core.halt(leader.record, &members, &run);
            return;
        }
        core.append(self.events, context, leader, run);
    }

    /// Sends what has timed out of a stream before its next packet; of both directions before one that
    /// may end them.
    #[cold]
    fn flush_due(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) {
        let time = packet.decoded.time;
        let context = Context::of(stream);
        self.core.flush_due(self.events, context, stream.id, time);
        if packet.decoded.tcp_flags.intersects(CONTROL)
            && let Some(tracker) = context.tracker()
        {
            let opposite = Context::tracked(tracker, stream.opposite);
            (self.core).flush_due(self.events, opposite, stream.opposite, time);
        }
    }

    /// Sends the partial chunks of a direction.
    fn send_all(&mut self, stream: &Stream<'_>, flags: ChunkFlags) {
        let context = Context::of(stream);
        let mut at = Some(ViewAt::first(stream.id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            // (What others share with one before it has been sent; the next may have begun with what
            // is repeated.)
            if self.core.leads_chunk(this) {
                self.core.send_pending(self.events, context, this, flags);
            }
        }
    }

    /// Sends the partial chunks of a direction whose data end at `end`: those in mode FAST only
    /// when nothing can come any more that belongs into them.
    #[cold]
    fn send_complete(&mut self, stream: &Stream<'_>, end: u64) {
        let context = Context::of(stream);
        let mut at = Some(ViewAt::first(stream.id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            let ends = self.core.mode_of(this) != Mode::Fast || self.core.is_complete(this, end);
            if ends && self.core.leads_chunk(this) {
                self.core
                    .send_pending(self.events, context, this, ChunkFlags::LAST);
            }
        }
    }

    /// The first packet of a connection: which applications want its streams?
    #[cold]
    fn introduce(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) {
        let mut first = stream.id;
        let of = |core: &Core, id: u32| {
            core.records
                .get(id)
                .is_some_and(|record| record.flags.has(RecordFlags::FROM_INITIATOR))
        };
        if !of(self.core, first) {
            first ^= 1;
        }
        let mut exchanged = None;
        if self.core.filtered {
            exchanged = Some(exchange(packet));
        }
        for id in [first, first ^ 1] {
            let mut descriptor = self
                .core
                .descriptors
                .get(usize::from(packet.decoded.index))
                .copied()
                .unwrap_or_default();
            if packet.decoded.flags.contains(DecodeFlags::REASSEMBLED) {
                descriptor = PacketDescriptor {
                    link: LinkType::RAW,
                    captured_len: packet.frame.len() as u32,
                    wire_len: packet.decoded.ip_len,
                    time: packet.decoded.time,
                    ..PacketDescriptor::default()
                };
            }
            let (frame, decoded) = match &exchanged {
                Some((frame, decoded)) if id != stream.id => (&frame[..], decoded),
                _ => (packet.frame, packet.decoded),
            };
            let seen = FilterPacket {
                frame,
                descriptor: &descriptor,
                decoded,
            };
            self.core.settle(id, &seen);
            let Some(record) = self.core.records.get(id) else {
                continue;
            };
            if record.flags.has(RecordFlags::UNWANTED) {
                self.core.requests.push_back(Request::Abandon(id));
                continue;
            }
            self.core.statistics.created += 1;
            let context = Context::of(stream);
            let mut at = Some(ViewAt::first(id));
            while let Some(this) = at {
                at = self.core.next_view(this);
                let Some(view) = self.core.view(this) else {
                    continue;
                };
                let application = ApplicationId(view.application);
                let mut stream = StreamRef {
                    core: self.core,
                    context,
                    at: this,
                };
                self.events.created(application, &mut stream);
            }
            if self.core.is_done(id) {
                self.finish_direction(&Stream { id, ..*stream });
            }
        }
    }

    /// A packet that has to be looked at.
    #[inline(never)]
    fn judge(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>, is_old: bool) -> Admit {
        let core = &mut *self.core;
        let Some(record) = core.records.get(stream.id) else {
            return Admit::Take;
        };
        let decoded = packet.decoded;
        let flags = record.flags;
        let counts = Counts {
            packets: u64::from(decoded.frames),
            bytes: u64::from(decoded.payload_len),
        };
        if flags.has(RecordFlags::UNWANTED) {
            core.statistics.discarded += counts;
            return Admit::Refuse(Place::Filter);
        }
        if decoded.key.protocol != TCP && decoded.key.protocol != UDP {
            return self.lone_packet(stream, packet);
        }
        let is_tcp = decoded.key.protocol == TCP;
        let is_control = is_tcp && decoded.tcp_flags.intersects(CONTROL);
        let is_false_reset = is_tcp
            && decoded.tcp_flags.contains(TcpFlags::RST)
            && !packet.flow.flags.contains(PacketFlowFlags::RST_VALID);
        if is_false_reset || !packet.expected {
            core.note_error(stream.id, StreamErrors::INVALID_SEQUENCE);
        }
        if is_tcp && decoded.tcp_flags.contains(TcpFlags::SYN) {
            core.note_syn(stream.id, packet);
        }
        let has_payload = decoded.payload_len != 0;
        if has_payload && !is_control {
            if flags.has(RecordFlags::DONE) {
                core.discard(stream.id, counts);
                return Admit::Refuse(flags.done_place());
            }
            if core.pressed && !core.is_admitted(stream.id, packet) {
                core.drop(stream.id, counts);
                return Admit::Refuse(Place::Priority);
            }
        }
        if core.need_packets && !flags.has(RecordFlags::DONE) {
            let is_deliverable = packet.is_deliverable();
            self.note_packet(stream, &NewPacket::of(packet), is_deliverable);
        }
        let flags = self
            .core
            .records
            .get(stream.id)
            .map_or(flags, |record| record.flags);
        if has_payload && flags.has(RecordFlags::FAST) {
            return self.fast_segment(stream, packet, counts);
        }
        if is_old {
            self.core.compare(stream.id, packet);
        }
        let is_copy = is_old || has_payload && packet.is_waiting_copy();
        if is_copy && !is_control {
            self.core.discard(stream.id, counts);
            return Admit::Refuse(Place::Duplicate);
        }
        if has_payload && !is_control {
            let over = self.core.views_that_are_over(stream.id);
            let packets = Counts { bytes: 0, ..counts };
            self.core.discard_for_each(stream.id, over, packets);
        }
        Admit::Take
    }

    /// Enters a packet beside the chunks under way.
    #[inline(never)]
    fn note_packet(&mut self, stream: &Stream<'_>, packet: &NewPacket<'_>, is_deliverable: bool) {
        let id = stream.id;
        let delivered = stream.bytes + stream.missing_bytes;
        let Some(record) = self.core.records.get(id) else {
            return;
        };
        // (Of a stream that was in another mode before, what was delivered is known, too.)
        let (is_fast, seen) = (
            record.flags.has(RecordFlags::FAST),
            record.position.max(delivered),
        );
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            if !self.core.is_leader(this) {
                continue;
            }
            let mode = self.core.mode_of(this);
            let position = match mode {
                Mode::Fast if is_fast => seen,
                _ => delivered,
            };
            let is_next = is_deliverable
                && packet.offset == position as i64
                && (mode != Mode::Strict || self.core.strictly_goes_on(stream, position, 0));
            let context = Context::of(stream);
            self.core
                .note_packet(self.events, context, this, packet, position, is_next);
        }
    }

    /// A segment of a stream in mode FAST.
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
        let packets = Counts { bytes: 0, ..counts };
        let Some(offset) = packet.offset.filter(|_| packet.expected) else {
            if !is_control {
                self.core.discard_for_each(id, over, packets);
            }
            return Admit::Take;
        };
        // (Of a stream that was in another mode before, what was delivered is known, too.)
        let delivered = stream.bytes + stream.missing_bytes;
        let (flags, seen) = match self.core.records.get(id) {
            Some(record) => (record.flags, record.position.max(delivered)),
            None => return Admit::Take,
        };
        let ordered = flags.has(RecordFlags::ORDERED);
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
        let new = self.place(stream, run, seen, origin, is_refusable);
        if let Some(len) = ends_after {
            self.send_complete(stream, (offset + len).max(0) as u64);
        }
        if ordered {
            // Bytes count for those when they are in order.
            if !is_control {
                self.core.discard_for_each(id, over, packets);
            }
            return Admit::Take;
        }
        if new == 0 && is_refusable {
            self.core.discard(id, counts);
            let flags = self
                .core
                .records
                .get(id)
                .map_or(flags, |record| record.flags);
            return Admit::Refuse(match flags.has(RecordFlags::DONE) {
                true => flags.done_place(),
                false => Place::Duplicate,
            });
        }
        if !is_control {
            self.core.discard_for_each(id, over, counts);
        }
        Admit::Consumed
    }

    /// Gives a segment to all in mode FAST, of whom none has seen a byte at or behind `seen`. Returns
    /// how many bytes were new. What somebody did not want of it counts as discarded, unless nothing was
    /// new of a segment that `is_refusable`.
    fn place(
        &mut self,
        stream: &Stream<'_>,
        run: Run<'_>,
        seen: u64,
        origin: Origin,
        is_refusable: bool,
    ) -> u64 {
        let id = stream.id;
        let mut new = 0;
        // Before anybody leaves the mode in the midst of it.
        let end = run.offset + run.bytes.len() as u64;
        if let Some(record) = self.core.records.get_mut(id) {
            record.position = record.position.max(end);
        }
        let context = Context::of(stream);
        let first = ViewAt::first(id);
        if self.core.is_alone(first) {
            if self.core.mode_of(first) == Mode::Fast && self.core.is_leader(first) {
                let core = &mut *self.core;
                let (taken, rest) = core.place(self.events, context, first, run, seen, origin);
                new = taken;
                if rest != 0 && (new != 0 || !is_refusable) {
                    core.discard_bytes(id, rest);
                }
            }
        } else {
            new = self.place_for_each(context, id, run, seen, origin, is_refusable);
        }
        if self.core.is_done(id) {
            self.finish_direction(stream);
        }
        new
    }

    /// The same where several applications have the stream.
    #[cold]
    fn place_for_each(
        &mut self,
        context: Context<'_>,
        id: u32,
        run: Run<'_>,
        seen: u64,
        origin: Origin,
        is_refusable: bool,
    ) -> u64 {
        let mut new = 0;
        let mut unwanted = [0; MAX_APPLICATIONS];
        for (at, unwanted) in self.core.all_views(id).zip(&mut unwanted) {
            if self.core.mode_of(at) == Mode::Fast && self.core.is_leader(at) {
                let core = &mut *self.core;
                let (taken, rest) = core.place(self.events, context, at, run, seen, origin);
                new = new.max(taken);
                *unwanted = rest;
            }
        }
        if new != 0 || !is_refusable {
            for (at, bytes) in self.core.all_views(id).zip(unwanted) {
                if bytes != 0 {
                    self.core.discard_rest(at, bytes);
                }
            }
        }
        new
    }

    /// A packet of a protocol without streams: an event of its own.
    fn lone_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
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
        let counts = Counts {
            packets: u64::from(packet.decoded.frames),
            bytes: u64::from(packet.decoded.payload_len),
        };
        if record.flags.has(RecordFlags::DONE) {
            self.core.discard(id, counts);
            return Admit::Refuse(Place::Cutoff);
        }
        let mut log = PacketLog::default();
        if self.core.need_packets {
            let new = NewPacket::of(packet);
            let ceiling = self.core.ceiling_of(id);
            let room = PacketLog::room_for(&new, true);
            match self.core.buffers.get(room, ceiling) {
                Some(block) => {
                    log.block = block;
                    log.push(&new, Some(0));
                }
                None => self.core.statistics.packets_lost += 1,
            }
        }
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            let Some(view) = self.core.view(this) else {
                continue;
            };
            if !view.flags.has(ViewFlags::OVER) {
                let mut source = Source::InPlace(packet.payload, None, Some(&log));
                self.core
                    .send_to(self.events, Context::of(stream), this, &mut source, info);
            }
        }
        self.core.buffers.put(log.block);
        Admit::Consumed
    }

    /// Nobody wants more of a direction.
    #[cold]
    fn finish_direction(&mut self, stream: &Stream<'_>) {
        let id = stream.id;
        self.core.requests.push_back(Request::Abandon(id));
        let opposite_is_done = self.core.is_done(id ^ 1);
        let verdict = match (opposite_is_done, id & 1) {
            (true, _) => Verdict::Discard,
            (false, 0) => Verdict::DiscardDirection(Direction::LowToHigh),
            (false, _) => Verdict::DiscardDirection(Direction::HighToLow),
        };
        self.tell(stream, verdict);
    }

    fn tell(&mut self, stream: &Stream<'_>, verdict: Verdict) {
        for id in [stream.id, stream.id ^ 1] {
            if let Some(record) = self.core.records.get_mut(id) {
                record.flags.set(RecordFlags::TOLD);
            }
        }
        let flow = OffloadFlow {
            key: Context::of(stream).key(),
            uid: self.core.uid(stream.id & !1),
        };
        self.core.offload.verdict(&flow, verdict);
    }
}

impl Core {
    /// Gives a new direction the views of the applications that want it.
    fn settle(&mut self, id: u32, packet: &FilterPacket<'_>) {
        let is_initiator = self
            .records
            .get(id)
            .is_some_and(|record| record.flags.has(RecordFlags::FROM_INITIATOR));
        let mut last = None;
        for index in 0..self.applications.len() {
            let Some(application) = &self.applications[index] else {
                continue;
            };
            let parameters = application.parameters;
            let application = &application.config;
            let matches = |filter: &super::config::StreamFilter| filter.matches(packet);
            if application
                .filter
                .as_ref()
                .is_some_and(|filter| !matches(filter))
            {
                continue;
            }
            let cutoff = &application.cutoff;
            let class = cutoff.classes.iter().find(|(filter, _)| matches(filter));
            let direction = match is_initiator {
                true => cutoff.from_initiator,
                false => cutoff.from_responder,
            };
            let limit = class
                .map(|class| class.1)
                .or(direction)
                .unwrap_or(cutoff.default);
            let priority = &application.priority;
            let class = priority.classes.iter().find(|(filter, _)| matches(filter));
            let priority = class.map_or(priority.default, |class| class.1);
            let mut view = View {
                limit: limit.0,
                application: index as u8,
                priority,
                parameters,
                ..View::default()
            };
            if limit.0 == 0 {
                view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
            }
            self.use_priority(priority);
            let at = self.add_view(id, last, view);
            if last.is_some() {
                self.share_or_not(at);
            }
            last = Some(at);
        }
        if let Some(record) = self.records.get_mut(id) {
            record.flags.clear(RecordFlags::NEW);
            if packet.decoded.key.protocol != TCP {
                record.flags.set(RecordFlags::DATAGRAMS);
            }
            if last.is_none() {
                record.flags.set(RecordFlags::UNWANTED);
            }
        }
        self.note_views(id);
    }

    /// A new view shares chunks with an earlier one of equal parameters and cutoff, or with nobody.
    /// (In mode FAST with nobody: where a late segment fits in depends on what was delivered.)
    fn share_or_not(&mut self, at: ViewAt) {
        let Some(view) = self.view(at) else {
            return;
        };
        let limit = view.limit;
        let parameters = self.parameters(view.parameters);
        let same = self
            .views_of(at.record)
            .take_while(|&this| this != at)
            .filter_map(|this| self.view(this))
            .find(|view| {
                let theirs = Parameters {
                    private: None,
                    ..self.parameters(view.parameters)
                };
                parameters.mode != Mode::Fast && view.limit == limit && theirs == parameters
            })
            .map(|view| view.parameters);
        let place = same.or_else(|| self.own_place(at, parameters));
        if let (Some(place), Some(view)) = (place, self.view_mut(at)) {
            view.parameters = place;
        }
    }

    fn add_view(&mut self, id: u32, last: Option<ViewAt>, view: View) -> ViewAt {
        let Some(last) = last else {
            if let Some(record) = self.records.get_mut(id) {
                record.view = view;
            }
            return ViewAt::first(id);
        };
        let extra = self.views.insert(Extra {
            view,
            ..Extra::default()
        });
        if last.extra == NONE {
            if let Some(record) = self.records.get_mut(id) {
                record.more = extra;
            }
        } else if let Some(before) = self.views.get_mut(last.extra) {
            before.next = extra;
        }
        ViewAt { record: id, extra }
    }

    /// The stream is over: frees what is kept for it.
    fn forget(&mut self, id: u32) {
        self.forget_loss(id);
        // All leave their chunks while the chain of views still stands.
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.next_view(this);
            self.leave_chunk(this);
        }
        let mut at = Some(ViewAt::first(id));
        while let Some(this) = at {
            at = self.next_view(this);
            if this.extra != NONE {
                self.views.remove(this.extra);
            }
        }
        if let Some(record) = self.records.get_mut(id) {
            *record = Record {
                generation: record.generation.wrapping_add(1),
                ..Record::default()
            };
        }
    }

    fn mode_of(&self, at: ViewAt) -> Mode {
        let view = self.view(at);
        view.map_or(Mode::Wait, |view| self.parameters(view.parameters).mode)
    }

    fn is_fast(&self, id: u32) -> bool {
        self.records
            .get(id)
            .is_some_and(|record| record.flags.has(RecordFlags::FAST))
    }

    pub(super) fn note_error(&mut self, id: u32, error: StreamErrors) {
        if let Some(record) = self.records.get_mut(id) {
            record.errors.insert(error);
        }
    }

    /// The views of a shared direction, in their order, for which it is over.
    #[inline]
    fn views_that_are_over(&self, id: u32) -> u32 {
        match self.is_alone(ViewAt::first(id)) {
            true => 0,
            false => (self.views_of(id).enumerate())
                .filter(|(_, at)| self.is_over(*at))
                .fold(0, |over, (place, _)| over | 1 << place),
        }
    }

    /// A packet that others take is not wanted by those views.
    #[inline]
    fn discard_for_each(&mut self, id: u32, over: u32, counts: Counts) {
        if over == 0 {
            return;
        }
        for (place, at) in self.all_views(id).enumerate() {
            if over & 1 << place != 0 {
                self.discard_for(at, counts);
            }
        }
    }

    /// Bytes in order are not wanted by those for whom the direction is over, while others get them.
    #[cold]
    fn discard_for_some(&mut self, id: u32, from: u64, to: u64) {
        for at in self.all_views(id) {
            let from = from.max(self.ahead_of(at));
            if self.is_over(at) && from < to {
                let bytes = to - from;
                self.discard_for(at, Counts { packets: 0, bytes });
            }
        }
    }

    /// Bytes in order are wanted by nobody any more.
    #[cold]
    fn discard_for_all(&mut self, id: u32, from: u64, to: u64) {
        let ahead = (self.views_of(id).map(|at| self.ahead_of(at)).max()).unwrap_or(0);
        let common = ahead.clamp(from, to);
        self.discard_for_some(id, from, common);
        self.discard_bytes(id, to - common);
    }

    /// Bytes before this were dealt with for a view when they came: it is, or was, in mode FAST.
    fn ahead_of(&self, at: ViewAt) -> u64 {
        match self.view(at) {
            Some(view) if view.flags.has(ViewFlags::AHEAD) => self.own_loss(at).ahead,
            _ => 0,
        }
    }

    /// A view in mode FAST leaves it, or wants no more.
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

    /// An application wants no more of what came for it.
    #[cold]
    pub(super) fn discard_rest(&mut self, at: ViewAt, bytes: u64) {
        if self.is_alone(at) {
            self.discard_bytes(at.record, bytes);
        } else {
            self.discard_for(at, Counts { packets: 0, bytes });
        }
    }

    fn discard_for(&mut self, at: ViewAt, counts: Counts) {
        if let Some(own) = self.own_loss_mut(at) {
            own.discarded += counts;
        }
    }

    /// Compares a copy with what is still there of the first one, in a chunk under way.
    #[cold]
    fn compare(&mut self, id: u32, packet: &StreamPacket<'_>) {
        let Some(offset) = packet.offset else {
            return;
        };
        let differs = self.views_of(id).any(|at| {
            let chunk = self.view(at).map_or(NONE, |view| view.chunk);
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

    /// Whether a packet is kept while memory is short.
    fn is_admitted(&self, id: u32, packet: &StreamPacket<'_>) -> bool {
        let offset = packet.offset.unwrap_or(0).max(0) as u64;
        let priority = self.priority_of(id);
        let mut used = self.budget.used();
        if self.watermarks.ceiling(priority) < self.budget.limit() {
            // With the packet, wherever it will be: what is not taken here may be lost later on.
            used += Buffers::cost_of(packet.payload.len());
        }
        self.watermarks.judge(used, priority, offset) == Sentence::Keep
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

    /// Whether STRICT has bytes of this stream delivered.
    fn strictly_goes_on(&mut self, stream: &Stream<'_>, offset: u64, gap_before: u64) -> bool {
        if gap_before != 0 {
            return false;
        }
        let Some(record) = self.records.get_mut(stream.id) else {
            return false;
        };
        let known = RecordFlags::DATAGRAMS | RecordFlags::ESTABLISHED;
        if !record.flags.has(known) {
            if !stream.is_handshake_complete() {
                // A server that knows the client takes the data on its SYN, and may answer at once.
                return record.flags.has(RecordFlags::SYN_DATA_TAKEN)
                    || record.flags.has(RecordFlags::SYN_DATA) && offset == 0;
            }
            record.flags.set(RecordFlags::ESTABLISHED);
        }
        true
    }

    /// What is new of a run to a view that was in mode FAST before.
    #[cold]
    fn skip_old<'r>(&mut self, at: ViewAt, run: Run<'r>) -> Run<'r> {
        let ahead = self.own_loss(at).ahead;
        if run.offset < ahead {
            return run.skip(ahead - run.offset);
        }
        if let Some(view) = self.view_mut(at) {
            view.flags.clear(ViewFlags::AHEAD);
        }
        run
    }

    /// Mode STRICT stops before a run for those of these views that are still in it.
    fn halt(&mut self, record: u32, members: &[Option<ViewAt>], run: &Run<'_>) {
        let gap = run.gap_before;
        let mut halted = false;
        for &at in members.iter().flatten() {
            if self.mode_of(at) != Mode::Strict {
                continue;
            }
            self.leave_chunk(at);
            if let Some(view) = self.view_mut(at)
                && !view.flags.has(ViewFlags::OVER)
            {
                view.flags.set(ViewFlags::OVER | ViewFlags::HALTED);
                halted = true;
                self.discard_rest(at, run.bytes.len() as u64);
            }
        }
        if halted && gap == 0 {
            self.note_error(record, StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        if halted
            && gap != 0
            && let Some(loss) = self.loss_mut(record)
        {
            loss.halted_at = gap;
        }
        self.note_views(record);
    }
}

/// The packet as if it went the other way: addresses and ports exchanged, of the innermost datagram.
fn exchange(packet: &StreamPacket<'_>) -> (Vec<u8>, flowgauge_wire::Decoded) {
    let mut frame = packet.frame.to_vec();
    let decoded = packet.decoded;
    let ip = usize::from(decoded.ip_offset);
    let (at, len) = match decoded.key.version {
        4 => (ip + 12, 4),
        _ => (ip + 8, 16),
    };
    if let Some(addresses) = frame.get_mut(at..at + 2 * len) {
        let (source, destination) = addresses.split_at_mut(len);
        source.swap_with_slice(destination);
    }
    if matches!(decoded.key.protocol, TCP | UDP | 132) {
        let at = usize::from(decoded.transport_offset);
        if let Some(ports) = frame.get_mut(at..at + 4) {
            ports.rotate_left(2);
        }
    }
    let mut decoded = *decoded;
    decoded.direction = decoded.direction.reversed();
    (frame, decoded)
}
