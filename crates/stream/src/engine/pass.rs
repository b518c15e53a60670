//! The engine as a handler of its shard: effects of packets and in-order bytes on streams.

use flowgauge_flow::{FlowRecord, FlowTracker, Withheld, is_counted};
use flowgauge_reassembly::{DefragmentStatistics, Forgotten, OverlapPolicy, Unplaced};
use flowgauge_wire::{Batch, Decoded, DecodedBatch, Nanos, Place, TcpFlags};

use super::assemble::Run;
use super::chunk::ChunkFlags;
use super::config::{ApplicationId, Mode};
use super::core::Core;
use super::events::Events;
use super::fast::Origin;
use super::judge::Offer;
use super::packets::NewPacket;
use super::record::{Record, RecordFlags, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamErrors, StreamRef};
use super::unwanted::Begin;
use crate::handler::{
    Admit, Chunk, Cut, Handler, Next, Remark, Stream, StreamPacket, StreamStatus,
};
use crate::wants::Want;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// Packets with these are never cut off nor dropped.
pub(super) const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
/// Data may come before the handshake is complete.
pub(super) const FAST_OPEN: u16 = RecordFlags::SYN_DATA | RecordFlags::SYN_DATA_TAKEN;

/// The engine during a batch.
pub(super) struct Hook<'a, E: ?Sized, G> {
    pub(super) core: &'a mut Core,
    pub(super) events: &'a mut E,
    /// Gets what it would get of the shard without the engine. Where it wants streams the engine leaves them whole.
    pub(super) guest: &'a mut G,
}

/// A handler without any events.
#[derive(Debug)]
pub struct Nobody;

impl Handler for Nobody {
    const FLOWS: bool = false;
}

impl<E: Events + ?Sized, G: Handler> Handler for Hook<'_, E, G> {
    const STREAMS: bool = true;
    const PACKETS: bool = true;
    const REMARKS: bool = G::REMARKS;
    const FLOWS: bool = G::FLOWS;

    fn wants_flows(&self) -> bool {
        self.guest.wants_flows()
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.guest.flow(record);
    }

    fn stream_opened(&mut self, stream: &Stream<'_>) {
        self.guest.stream_created(stream);
    }

    fn stream_passed(&mut self, stream: &Stream<'_>) {
        self.guest.stream_closed(stream);
    }

    fn stream_over(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.guest.stream_terminated(stream, trailing_gap);
    }

    fn stream_remark(&mut self, stream: &Stream<'_>, remark: &Remark) {
        self.guest.stream_remark(stream, remark);
    }

    fn fragment_remark(&mut self, packet: &Decoded, odd: &DefragmentStatistics) {
        self.guest.fragment_remark(packet, odd);
    }

    fn bad_payload(&mut self, stream: Option<u32>, packet: &Decoded, is_taken: bool) {
        self.guest.bad_payload(stream, packet, is_taken);
    }

    #[inline(always)]
    fn joins_midway(&self) -> bool {
        !self.core.is_beside
    }

    fn counts_refused(&mut self, place: Place, packets: u64, bytes: u64) -> bool {
        if self.core.is_beside {
            self.core.note_refused(place, Counts { packets, bytes });
        }
        self.core.is_beside
    }

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        self.guest.batch(batch, decoded);
        let core = &mut *self.core;
        core.look_at_memory();
        (core.fetched, core.passed) = (0, 0);
        for packet in &decoded.packets {
            if is_counted(packet) {
                core.statistics.all.packets += u64::from(packet.frames);
                core.statistics.all.bytes += u64::from(packet.payload_len);
            }
        }
    }

    #[inline(always)]
    fn prefetch(&mut self, stream: u32, has_payload: bool) {
        self.core.asked = stream;
        if has_payload || self.core.need_packets {
            self.core.fetch(stream, has_payload);
        }
    }

    #[inline(always)]
    fn prefetch_control(&mut self, is_control: bool) {
        self.core.mark_control(is_control);
    }

    #[inline(always)]
    fn prefetch_end(&mut self, stream: u32, step: usize) {
        self.core.fetch_end(stream, step);
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
    fn takes_empty(&self) -> bool {
        !self.attends() && !self.core.need_packets && !self.core.has_timers()
    }

    #[inline(always)]
    fn want(&mut self) -> Option<Want> {
        match G::STREAMS {
            false => match self.core.requests.is_empty() {
                true => None,
                false => self.core.requests.pop_front(),
            },
            true => self.want_together(),
        }
    }

    fn tick(&mut self, tracker: &FlowTracker) {
        self.guest.tick(tracker);
        self.core.flush_old(self.events, tracker, tracker.clock());
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        if G::STREAMS {
            self.core.set_unread(stream.id, false);
        }
        // (What was there before it has been forgotten.)
        let flags = &mut self.core.records.make(stream.id).flags;
        flags.set(RecordFlags::LIVE | RecordFlags::NEW);
        if stream.from_initiator {
            flags.set(RecordFlags::FROM_INITIATOR);
        }
    }

    fn overlap_policy(&mut self, stream: &Stream<'_>) -> Option<OverlapPolicy> {
        if !self.core.has_policies {
            return None;
        }
        let identity = stream.identity();
        let receiver = identity.destination.0;
        Some(self.core.policies.of(receiver, identity.version))
    }

    #[inline]
    fn stream_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
        self.core.is_counted = false;
        match self.admit(stream, packet) {
            Admit::Refuse(place) if G::STREAMS => {
                let decoded = packet.decoded;
                let (packets, bytes) = (u64::from(decoded.frames), u64::from(decoded.wire_len));
                self.counts_refused(place, packets, bytes);
                self.core.is_counted = true;
                Admit::Take
            }
            Admit::Consumed if G::STREAMS => Admit::Take,
            admit => admit,
        }
    }

    #[inline]
    fn stream_begins(&mut self, base: u64, begin: Option<&[u32]>) {
        self.core.beginnings.announce(base, begin);
    }

    fn stream_left(&mut self, stream: u32, syn: &Decoded) {
        self.core.take_back(stream, syn);
    }

    fn stream_cut(&mut self, stream: &Stream<'_>, cut: &Cut) {
        if !self.core.has(stream.id) {
            return;
        }
        self.core.take_cut(stream, cut);
    }

    fn stream_unplaced(&mut self, stream: u32, packet: &Decoded, unplaced: &Unplaced) {
        if self.core.is_counted || !self.core.has(stream) {
            return;
        }
        self.core.discard_unplaced(stream, packet, unplaced);
    }

    fn stream_forgotten(&mut self, stream: u32, forgotten: Forgotten) {
        if !self.core.has(stream) {
            return;
        }
        self.core.discard_forgotten(stream, forgotten);
    }

    fn stream_conflict(&mut self, stream: u32) {
        if self.core.is_counted {
            return;
        }
        self.core.note_error(stream, StreamErrors::OVERLAP_CONFLICT);
    }

    fn withheld(&mut self, stream: Option<u32>, packets: &Withheld) -> Option<Place> {
        Some(self.core.take_withheld(stream, packets))
    }

    fn lost(&mut self, stream: Option<u32>, packets: &Withheld) {
        self.core.take_lost(stream, packets);
    }

    fn waiting_ceiling(&self, stream: Option<u32>) -> u64 {
        match stream {
            _ if self.core.is_beside => u64::MAX,
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
        id: u32,
        packet: &Decoded,
        offset: u64,
        frame: &[u8],
        payload: &[u8],
    ) -> Next {
        let new = NewPacket::new(packet, frame, payload, Some(offset as i64));
        match self.core.has_timers() {
            true => Next::Unseen,
            false => match self.core.note_simply(id, &new, offset) {
                Next::Taken if G::STREAMS => {
                    self.core.is_taken = true;
                    Next::Seen
                }
                next => next,
            },
        }
    }

    #[inline(never)]
    fn next_packet_of(
        &mut self,
        stream: &Stream<'_>,
        packet: &Decoded,
        offset: u64,
        frame: &[u8],
        payload: &[u8],
    ) {
        let new = NewPacket::new(packet, frame, payload, Some(offset as i64));
        let has_timers = self.core.has_timers();
        if has_timers {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, packet.time);
        }
        // (A timeout can be due once more in between.)
        self.note_packet(stream, &new, true, !has_timers);
    }

    #[inline(always)]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if G::STREAMS {
            self.guest.stream_data(stream, chunk);
            if core::mem::take(&mut self.core.is_taken) {
                return;
            }
        }
        if self.core.has_timers() {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, chunk.time);
        }
        let core = &mut *self.core;
        let Some(record) = core.records.get(stream.id) else {
            return;
        };
        let is_simple = record.flags.has(RecordFlags::SIMPLE)
            && chunk.gap_before | chunk.skipped == 0
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

    #[inline(always)]
    fn stream_ends(&mut self, stream: &Stream<'_>, at: Nanos) {
        if self.core.has_timers() {
            let context = Context::of(stream);
            (self.core).flush_due(self.events, context, stream.id, at);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        if !self.core.lives(stream.id) {
            return;
        }
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
        if is_wanted {
            self.send_all(stream, ChunkFlags::LAST);
            self.core.trailing_gap = (id, trailing_gap, stream.bytes + stream.missing_bytes);
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
            self.core.trailing_gap = (NONE, 0, 0);
            if self.core.has_loss(id) {
                self.core.refuse_headers(id, context);
            }
            self.core.statistics.terminated += 1;
        }
        self.core.forget(id);
    }
}

impl<E: Events + ?Sized, G: Handler> Hook<'_, E, G> {
    /// What becomes of a packet for the engine.
    #[inline]
    fn admit(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
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
            || len != 0 && (packet.waiting || flags.contains(TcpFlags::SYN))
            || packet.is_damaged()
            || packet.claimed() != 0;
        let is_usual = packet.expected && !is_odd;
        if !is_old && is_usual && !is_lone && !self.core.need_packets && !self.attends() {
            return Admit::Take;
        }
        self.judge(stream, packet, is_old)
    }

    /// What engine and guest want together.
    #[cold]
    fn want_together(&mut self) -> Option<Want> {
        loop {
            let (want, is_guests) = match self.core.requests.pop_front() {
                Some(want) => (want, false),
                None => (self.guest.want()?, true),
            };
            let together = match want {
                Want::Nothing(id) if is_guests => {
                    self.core.set_unread(id, true);
                    !self.core.reads(id)
                }
                Want::Nothing(id) => self.core.is_unread(id),
                Want::From(id, from) if is_guests => {
                    self.core.set_unread(id, false);
                    match self.core.has(id) {
                        // The engine is to count what is skipped.
                        true => return Some(Want::From(id, 0)),
                        false => return Some(Want::From(id, from)),
                    }
                }
                Want::From(..) | Want::Policy(..) | Want::Standing(..) => true,
            };
            if together {
                return Some(want);
            }
        }
    }

    /// Bytes in order that are not simply some more in a chunk under way.
    #[inline(never)]
    fn remarkable_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let core = &mut *self.core;
        if !core.has(stream.id) {
            return;
        }
        let Some(record) = core.records.get(stream.id) else {
            return;
        };
        let (more, flags, seen) = (record.more, record.flags, record.position);
        let end = chunk.offset + chunk.bytes.len() as u64;
        core.beginnings.next = chunk.offset;
        if flags.has(RecordFlags::DONE) {
            return core.discard_for_all(stream.id, chunk.offset, end, Begin::Announced);
        }
        if chunk.offset == 0
            && !flags.has(RecordFlags::DATAGRAMS | FAST_OPEN)
            && !stream.is_handshake_complete()
        {
            core.note_error(stream.id, StreamErrors::INCOMPLETE_HANDSHAKE);
        }
        if flags.has(RecordFlags::SIMPLE)
            && chunk.gap_before == 0
            && stream.status != StreamStatus::Fin
            && core.begin_simply(stream.id, chunk)
        {
            return;
        }
        let over = core.views_that_are_over(stream.id);
        if more != NONE {
            core.discard_for_some(stream.id, chunk.offset, end, Begin::Announced);
        }
        let run = Run {
            bytes: chunk.bytes,
            offset: chunk.offset,
            gap_before: chunk.gap_before,
            time: chunk.time,
            last: stream.status == StreamStatus::Fin,
        };
        let context = Context::of(stream);
        if chunk.gap_before != 0 {
            core.note_error(stream.id, StreamErrors::GAP);
        }
        if flags.has(RecordFlags::FAST) {
            // What began before anyone knew where, or waited for others: no copy was there before.
            // (Of a stream that was in another mode before, what was delivered is known, too.)
            let seen = seen.max(run.offset - run.gap_before);
            let offer = Offer {
                over,
                is_refusable: false,
                // (What is not new was offered when it came, where others wait for their turn.)
                is_counted: !flags.has(RecordFlags::MIXED),
                packets: self.core.beginnings.of(&run),
                beside: 0,
            };
            self.place(stream, run, seen, Origin::of(&run), offer);
            if !flags.has(RecordFlags::ORDERED) {
                return;
            }
        }
        match more {
            NONE => self.take(stream, ViewAt::first(stream.id), context, run),
            _ => self.take_for_each(stream, over, context, run),
        }
        if self.core.is_done(stream.id) {
            self.finish_direction(stream.id);
        }
    }

    /// Gives bytes in order to the applications that are none of `over`.
    #[cold]
    fn take_for_each(
        &mut self,
        stream: &Stream<'_>,
        over: u32,
        context: Context<'_>,
        run: Run<'_>,
    ) {
        // (Whoever leaves its chunker on the way gets what is left of the run there.)
        let mut done = over;
        while let Some(at) = self.core.first_without(stream.id, done) {
            done |= self.core.members(self.core.chunker_of(at));
            self.take(stream, at, context, run);
        }
    }

    /// The same to those that use a chunker, `at` the first of them.
    #[inline]
    fn take(&mut self, stream: &Stream<'_>, at: ViewAt, context: Context<'_>, run: Run<'_>) {
        let core = &mut *self.core;
        let Some(view) = core.view(at) else {
            return;
        };
        let is_ahead = view.flags.has(ViewFlags::AHEAD);
        let chunker = core.chunker_of(at);
        let mode = core.parameters_of(chunker).mode;
        if mode == Mode::Fast && core.is_fast(at.record) {
            return;
        }
        // (Such a one uses its chunker alone.)
        let run = match is_ahead {
            true => core.skip_old(at, run),
            false => run,
        };
        if run.bytes.is_empty() {
            return;
        }
        if mode == Mode::Strict && !core.strictly_goes_on(stream, run.offset, run.gap_before) {
            // Whoever leaves in the event has come to the end, too.
            let members = core.members(chunker);
            core.send_pending(self.events, context, chunker, ChunkFlags(0));
            core.halt(chunker.record, members, &run);
            return;
        }
        core.append(self.events, context, chunker, run);
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
            self.core.send_pending(self.events, context, this, flags);
        }
    }

    /// Sends the partial chunks of a direction whose data end at `end`: those in mode FAST only
    /// when nothing can come any more that belongs into them.
    #[cold]
    pub(super) fn send_complete(&mut self, stream: &Stream<'_>, end: u64) {
        let context = Context::of(stream);
        let mut at = Some(ViewAt::first(stream.id));
        while let Some(this) = at {
            at = self.core.next_view(this);
            let mode = self.core.parameters_of(this).mode;
            if mode != Mode::Fast || self.core.is_complete(this, end) {
                self.core
                    .send_pending(self.events, context, this, ChunkFlags::LAST);
            }
        }
    }

    /// Nobody wants more of a direction.
    #[cold]
    pub(super) fn finish_direction(&mut self, id: u32) {
        self.core.requests.push_back(Want::Nothing(id));
    }
}

impl Core {
    /// Whether the engine has this stream: not one of a shard of others that is older, or that no application wants.
    #[inline]
    pub(super) fn has(&self, id: u32) -> bool {
        let record = self.records.get(id);
        let is_wanted = |record: &Record| {
            record.flags.has(RecordFlags::LIVE) && !record.flags.has(RecordFlags::UNWANTED)
        };
        !self.is_beside || record.is_some_and(is_wanted)
    }

    /// Whether it lives for the engine.
    pub(super) fn lives(&self, id: u32) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|record| record.flags.has(RecordFlags::LIVE))
    }

    /// Whether an application wants more of a stream.
    fn reads(&self, id: u32) -> bool {
        self.has(id) && !self.is_done(id)
    }

    /// Whether the guest wants nothing of a stream.
    fn is_unread(&self, id: u32) -> bool {
        let record = self.records.get(id);
        record.is_some_and(|record| record.flags.has(RecordFlags::UNREAD))
    }

    fn set_unread(&mut self, id: u32, is_unread: bool) {
        if let Some(record) = self.records.get_mut(id) {
            record.flags.clear(RecordFlags::UNREAD);
            if is_unread {
                record.flags.set(RecordFlags::UNREAD);
            }
        }
    }

    /// The mode in which a view gets bytes, or would if it were not over.
    pub(super) fn mode_of(&self, at: ViewAt) -> Mode {
        match self.view(at) {
            Some(view) if view.flags.has(ViewFlags::OVER) => self.parameters(view.parameters).mode,
            _ => self.parameters_of(self.chunker_of(at)).mode,
        }
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
}
