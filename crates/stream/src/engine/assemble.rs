//! From bytes in order to data events.
//!
//! Every parameter set of a direction has at most one chunk under way. Applications share one where
//! their sets and their cutoffs are equal ([`Core::settle`]), and the first of their views leads it:
//! bytes are copied once for all of them. Whoever changes anything goes its own way from there on.

use flowgauge_flow::FlowTracker;
use flowgauge_sys::blocks::Block;
use flowgauge_sys::prefetch::{prefetch, prefetch_address};
use flowgauge_wire::Nanos;

use super::buffers::Buffers;
use super::chunk::{ChunkFlags, ChunkInfo, Content, DataChunk, Source};
use super::config::{ApplicationId, MAX_APPLICATIONS};
use super::core::{Core, Timer};
use super::events::Events;
use super::packets::{NewPacket, PacketLog};
use super::record::{Parameters, Pending, RecordFlags, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamRef};
use crate::handler::Chunk;

/// Partial chunks looked at in one search for memory.
const STEPS: u32 = 4096;
/// How many chunks ahead of the search its next ones are fetched from memory.
const VICTIMS: u32 = 6;
/// Packets of one chunk at most.
const PACKETS: u32 = 1024;
/// ... of one without payload. They are an event of their own, while what was noted of them is still
/// in the cache.
const PACKETS_ALONE: u32 = 64;
/// What the packets of a whole chunk of segments with payload take.
const PACKET_BYTES: usize = 1024;
/// Lengths are kept in 32 bits; no chunk grows beyond this, whatever is kept.
const LARGEST: usize = 1 << 30;

/// Bytes of a stream, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) bytes: &'a [u8],
    /// Position of the first.
    pub(super) offset: u64,
    /// Bytes missing right before.
    pub(super) gap_before: u64,
    /// When the packet came that made them deliverable.
    pub(super) time: Nanos,
    /// The stream ends behind them.
    pub(super) last: bool,
}

impl Core {
    /// Takes bytes in order for the applications whose parameters the view at `leader` has.
    #[inline]
    pub(super) fn append<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: Run<'_>,
    ) {
        if !self.is_alone(leader) {
            return self.append_shared(events, context, leader, run);
        }
        let mut run = run;
        while !run.bytes.is_empty() {
            match self.append_turn(events, context, leader, run) {
                Some(rest) => run = rest,
                None => return self.discard_rest(leader, run.bytes.len() as u64),
            }
        }
        if run.last {
            self.send_pending(events, context, leader, ChunkFlags::LAST);
        }
    }

    /// The same where a chunk may be shared. Any of the applications may go its own way in the midst
    /// of the run: each gets the rest nevertheless.
    fn append_shared<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: Run<'_>,
    ) {
        let Some(place) = self.view(leader).map(|view| view.parameters) else {
            return;
        };
        let mut run = run;
        let mut members = self.members(leader.record, place);
        for member in &mut members {
            // It is known that they do not want it.
            if member.is_some_and(|at| self.is_over(at)) {
                *member = None;
            }
        }
        loop {
            // The first that still shares and wants more.
            let leads = |at: &ViewAt| {
                self.view(*at).is_some_and(|view| {
                    view.parameters == place && !view.flags.has(ViewFlags::OVER)
                })
            };
            let Some(leader) = members.iter().flatten().copied().find(leads) else {
                return;
            };
            let is_over = run.bytes.is_empty();
            if is_over {
                if run.last {
                    self.send_pending(events, context, leader, ChunkFlags::LAST);
                }
            } else if let Some(rest) = self.append_turn(events, context, leader, run) {
                run = rest;
            }
            for member in &mut members {
                if let Some(at) = *member
                    && self.view(at).is_none_or(|view| view.parameters != place)
                {
                    *member = None;
                    self.append(events, context, at, run);
                } else if let Some(at) = *member
                    && self.is_over(at)
                {
                    *member = None;
                    self.discard_rest(at, run.bytes.len() as u64);
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// One step of [`Core::append`]: takes bytes, or sends a chunk. Returns what is left of the run;
    /// `None` when those who share the chunk of `leader` want nothing of it.
    #[inline(always)]
    fn append_turn<'r, E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: Run<'r>,
    ) -> Option<Run<'r>> {
        let mut run = run;
        let view = self.view(leader)?;
        let (chunk, place) = (view.chunk, view.parameters);
        if view.limit <= run.offset && chunk != NONE {
            // The cutoff was lowered.
            self.send_pending(events, context, leader, ChunkFlags::CUTOFF);
            return Some(run);
        }
        let stop = self.stop(leader, run.offset)?;
        let wanted = run.bytes.len().min((stop - run.offset) as usize);
        let parameters = self.parameters(place);
        if chunk == NONE {
            let target = parameters.chunk_bytes as usize;
            if target == 0
                || wanted >= target
                || run.offset + wanted as u64 == stop
                || run.last && wanted == run.bytes.len()
            {
                let len = match target {
                    0 => wanted,
                    _ => wanted.min(target),
                };
                let flags = if run.last && len == run.bytes.len() {
                    ChunkFlags::LAST
                } else {
                    ChunkFlags(0)
                };
                self.send_in_place(events, context, leader, &run, len, flags);
                return Some(run.after(len));
            }
            let stance = self.stance(leader);
            if self.begin_chunk(events, context, leader, &run, wanted) {
                run.gap_before = 0;
            } else if self.stance(leader) == stance {
                // No memory: the bytes go out where they are.
                self.send_in_place(events, context, leader, &run, wanted, ChunkFlags::EARLY);
                run = run.after(wanted);
            }
            return Some(run);
        }
        if run.gap_before != 0 {
            self.send_pending(events, context, leader, ChunkFlags(0));
            return Some(run);
        }
        let end = self.pending.get(chunk)?.end();
        if end != run.offset {
            // It was in another mode when this was begun.
            if end > run.offset {
                return Some(run.skip(end - run.offset));
            }
            run.gap_before = run.offset - end;
            return Some(run);
        }
        let taken = self.fill(chunk, &run, wanted);
        run = run.after(taken);
        let (is_full, end) = match self.pending.get(chunk) {
            Some(pending) => (pending.is_full(), pending.end()),
            None => return None,
        };
        if is_full || end == stop {
            self.send_pending(events, context, leader, ChunkFlags(0));
        } else if taken == 0 {
            let stance = self.stance(leader);
            if !self.grow(events, context, leader, wanted) && self.stance(leader) == stance {
                self.send_pending(events, context, leader, ChunkFlags::EARLY);
            }
        }
        Some(run)
    }

    pub(super) fn is_over(&self, at: ViewAt) -> bool {
        self.view(at)
            .is_none_or(|view| view.flags.has(ViewFlags::OVER))
    }

    /// The views of a direction with these parameters.
    pub(super) fn members(&self, record: u32, place: u16) -> [Option<ViewAt>; MAX_APPLICATIONS] {
        let mut members = [None; MAX_APPLICATIONS];
        let found = self
            .views_of(record)
            .filter(|&at| self.view(at).is_some_and(|view| view.parameters == place));
        for (member, at) in members.iter_mut().zip(found) {
            *member = Some(at);
        }
        members
    }

    /// Enters a packet in the chunk under way of those who share the parameters of `leader`. If it
    /// is the next of the stream, its payload will be in the chunk.
    #[inline]
    pub(super) fn note_packet<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        packet: &NewPacket<'_>,
        position: u64,
        is_next: bool,
    ) {
        loop {
            let noted = self.note_packet_once(events, context, leader, packet, position, is_next);
            if noted.is_some() || self.is_over(leader) {
                return;
            }
        }
    }

    /// One attempt of [`Core::note_packet`]; `None` where the chunk went away meanwhile: memory is
    /// found by sending chunks of others, who may do anything.
    #[inline]
    fn note_packet_once<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        packet: &NewPacket<'_>,
        position: u64,
        is_next: bool,
    ) -> Option<()> {
        let view = self.view(leader)?;
        let (mut chunk, limit, chunks) = (view.chunk, view.limit, view.chunks);
        if chunk == NONE
            || self
                .pending
                .get(chunk)
                .is_some_and(Pending::is_full_of_packets)
        {
            chunk = self.begin_packets(events, context, leader, packet, position);
            if self.is_over(leader) {
                return None;
            }
        }
        let pending = self.pending.get(chunk)?;
        let len = packet.payload.len();
        let end = pending.end() + len as u64;
        let mut is_inside = is_next
            && pending.end() == position
            && end <= pending.start + u64::from(pending.target)
            && end <= limit;
        let bytes = &pending.content.bytes;
        if is_inside && len > bytes.capacity() - bytes.len() {
            let stance = self.stance(leader);
            is_inside = self.grow(events, context, leader, len);
            if self.stance(leader) != stance {
                return None;
            }
        }
        let room = PacketLog::room_for(packet, is_inside);
        if !self.pending.get(chunk)?.packets.has_room(room) {
            let stance = self.stance(leader);
            let has_room = self.grow_packets(events, context, leader, chunk, room, chunks != 0);
            if self.stance(leader) != stance {
                return None;
            }
            if !has_room {
                self.statistics.packets_lost += 1;
                return Some(());
            }
        }
        let pending = self.pending.get_mut(chunk)?;
        let payload_at = is_inside.then_some(pending.content.bytes.len() as u32);
        pending.packets.push(packet, payload_at);
        Some(())
    }

    /// Enters the next packet of a stream that only one application wants, whose first payload byte is
    /// at `position`, in a chunk that has room for it and goes on with its payload. Returns whether it
    /// is such a one.
    #[inline(always)]
    pub(super) fn note_simply(&mut self, id: u32, packet: &NewPacket<'_>, position: u64) -> bool {
        let Some(record) = self.records.get(id) else {
            return false;
        };
        let (flags, limit) = (record.flags, record.view.limit);
        let Some(pending) = self.pending.get_mut(record.view.chunk) else {
            return false;
        };
        let len = packet.payload.len();
        let is_simple = flags.has(RecordFlags::SIMPLE);
        if len == 0 && pending.packets.count < PACKETS_ALONE {
            // The chunk's other line is not touched.
            let fits = is_simple && pending.packets.has_room(PacketLog::room_for(packet, true));
            if fits {
                pending.packets.push(packet, Some(0));
            }
            return fits;
        }
        let bytes = &pending.content.bytes;
        let at = bytes.len();
        let fits = is_simple
            && !pending.is_full_of_packets()
            && pending.end() == position
            && at + len <= bytes.capacity().min(pending.target as usize)
            && position + (len as u64) <= limit
            && pending.packets.has_room(PacketLog::room_for(packet, true));
        if fits {
            pending.packets.push(packet, Some(at as u32));
        }
        fits
    }

    /// Begins a chunk with a packet; one that is under way is sent before.
    #[inline(never)]
    fn begin_packets<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        packet: &NewPacket<'_>,
        position: u64,
    ) -> u32 {
        self.send_pending(events, context, leader, ChunkFlags(0));
        let Some(view) = self.view(leader) else {
            return NONE;
        };
        let (chunk, place) = (view.chunk, view.parameters);
        if chunk != NONE {
            return chunk;
        }
        let pending = Pending {
            start: position,
            since: packet.time,
            time: packet.time,
            target: self.parameters(place).chunk_bytes,
            ..Pending::default()
        };
        self.open_chunk(leader, pending);
        self.view(leader).map_or(NONE, |view| view.chunk)
    }

    /// Gives the packets of a chunk room for `more` bytes; false when there is no memory.
    #[inline(never)]
    fn grow_packets<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        chunk: u32,
        more: usize,
        goes_on: bool,
    ) -> bool {
        let len = match self.pending.get(chunk) {
            Some(pending) => pending.packets.block.len(),
            None => return false,
        };
        // As with bytes: a stream that has filled a chunk will likely fill the next. Short ones have
        // two or three packets, or more than that.
        let least = match goes_on || len != 0 {
            true => PACKET_BYTES,
            false => 0,
        };
        let size = (len + more).max(least);
        let stance = self.stance(leader);
        let Some(block) = self.memory(events, context, size, leader.record) else {
            return false;
        };
        // (Another chunk may be there by now.)
        let is_same = self.stance(leader) == stance;
        let Some(pending) = self.pending.get_mut(chunk).filter(|_| is_same) else {
            self.buffers.put(block);
            return false;
        };
        self.partial += block.capacity() as u64;
        let old = pending.packets.move_to(block);
        self.partial -= old.capacity() as u64;
        self.buffers.put(old);
        true
    }

    /// The first position at or behind `offset` from which on an application that shares the chunk
    /// of `leader` wants nothing more. Those who want nothing from `offset` on leave. `None` when
    /// the leader does.
    #[inline(always)]
    pub(super) fn stop(&mut self, leader: ViewAt, offset: u64) -> Option<u64> {
        let view = self.view(leader)?;
        if view.flags.has(ViewFlags::OVER) {
            return None;
        }
        let limit = view.limit;
        if limit > offset && self.records.get(leader.record)?.more == NONE {
            return Some(limit);
        }
        self.stop_of_all(leader, offset)
    }

    #[cold]
    fn stop_of_all(&mut self, leader: ViewAt, offset: u64) -> Option<u64> {
        let place = self.view(leader)?.parameters;
        let mut stop = u64::MAX;
        let mut at = Some(ViewAt::first(leader.record));
        while let Some(this) = at {
            at = self.next_view(this);
            let Some(view) = self.view(this) else {
                continue;
            };
            if view.parameters != place || view.flags.has(ViewFlags::OVER) {
                continue;
            }
            if view.limit <= offset {
                self.cut(this);
            } else {
                stop = stop.min(view.limit);
            }
        }
        let view = self.view(leader)?;
        (!view.flags.has(ViewFlags::OVER)).then_some(stop)
    }

    /// The cutoff of a view is reached.
    fn cut(&mut self, at: ViewAt) {
        self.note_ahead(at);
        if let Some(view) = self.view_mut(at) {
            view.flags.set(ViewFlags::OVER | ViewFlags::CUT);
        }
        self.leave_chunk(at);
        self.note_views(at.record);
    }

    /// Sends bytes from where they lie.
    pub(super) fn send_in_place<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: &Run<'_>,
        len: usize,
        flags: ChunkFlags,
    ) {
        let Some(bytes) = run.bytes.get(..len) else {
            return;
        };
        let info = ChunkInfo {
            offset: run.offset,
            gap_before: run.gap_before,
            repeated: 0,
            flags,
            time: run.time,
        };
        let mut source = Source::InPlace(bytes, None, None);
        self.send(events, context, leader, &mut source, info);
        self.go_on(leader, source, info);
    }

    /// Begins a chunk with room for `wanted` bytes of `run`; false when there is no memory.
    pub(super) fn begin_chunk<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        run: &Run<'_>,
        wanted: usize,
    ) -> bool {
        let Some(view) = self.view(leader) else {
            return false;
        };
        let parameters = self.parameters(view.parameters);
        let target = parameters.chunk_bytes as usize;
        // A stream that has filled one will likely fill the next.
        let size = match view.chunks {
            0 => Buffers::size(wanted, target),
            _ => target,
        };
        let stance = self.stance(leader);
        let Some(bytes) = self.memory(events, context, size, leader.record) else {
            return false;
        };
        if self.stance(leader) != stance {
            self.buffers.put(bytes);
            return false;
        }
        self.open_chunk(
            leader,
            Pending {
                content: Content {
                    bytes,
                    ..Content::default()
                },
                start: run.offset,
                gap_before: run.gap_before,
                since: run.time,
                time: run.time,
                target: parameters.chunk_bytes,
                ..Pending::default()
            },
        );
        true
    }

    /// Makes `pending` the chunk of all who share it with `leader`.
    pub(super) fn open_chunk(&mut self, leader: ViewAt, pending: Pending) {
        let Some(place) = self.view(leader).map(|view| view.parameters) else {
            return;
        };
        let (since, is_new) = (pending.since, pending.is_new());
        self.partial += pending.memory();
        self.opened = self.opened.wrapping_add(1);
        let generation = self.opened;
        let chunk = self.pending.insert(Pending {
            stream: leader.record,
            parameters: place,
            generation,
            ..pending
        });
        if let Some(view) = self.view_mut(leader) {
            view.chunk = chunk;
        }
        let mut at = self.next_view(leader);
        while let Some(this) = at {
            at = self.next_view(this);
            if let Some(view) = self.view_mut(this)
                && view.parameters == place
                && !view.flags.has(ViewFlags::OVER)
            {
                view.chunk = chunk;
            }
        }
        if is_new {
            self.start_timer(chunk, place, generation, since);
        }
    }

    /// A chunk has its first byte.
    pub(super) fn start_timer(&mut self, chunk: u32, place: u16, generation: u32, since: Nanos) {
        if let Some(timer) = self
            .timers
            .iter_mut()
            .find(|timer| timer.parameters == place)
        {
            timer.chunks.push_back((chunk, generation, since));
            if timer.chunks.len() > timer.compact_at {
                // Most of what was entered was delivered long ago.
                let pending = &self.pending;
                timer.chunks.retain(|&(chunk, generation, _)| {
                    pending.get(chunk).is_some_and(|pending| {
                        pending.stream != NONE && pending.generation == generation
                    })
                });
                timer.compact_at = (2 * timer.chunks.len()).max(Timer::FEW);
            }
        }
    }

    /// Adds bytes, the next ones of a stream that only one application wants, to a chunk that has
    /// some already and that they neither fill nor bring to the cutoff at `limit`. Returns whether it
    /// is such a one.
    #[inline(always)]
    pub(super) fn fill_simply(&mut self, chunk: u32, limit: u64, new: &Chunk<'_>) -> bool {
        let Some(pending) = self.pending.get_mut(chunk) else {
            return false;
        };
        let buffer = &mut pending.content.bytes;
        let (len, more) = (buffer.len(), new.bytes.len());
        let fits = len > pending.repeated as usize
            && len + more < (pending.target as usize).min(buffer.capacity() + 1)
            && pending.start + len as u64 == new.offset
            && new.offset + (more as u64) < limit;
        if fits {
            buffer.extend(new.bytes);
            pending.time = new.time;
        }
        fits
    }

    /// Copies what fits into the chunk's buffer. Returns how much.
    #[inline]
    fn fill(&mut self, chunk: u32, run: &Run<'_>, wanted: usize) -> usize {
        let Some(pending) = self.pending.get_mut(chunk) else {
            return 0;
        };
        let buffer = &mut pending.content.bytes;
        let room = (pending.target as usize)
            .max(1)
            .min(buffer.capacity())
            .saturating_sub(buffer.len());
        let len = wanted.min(room);
        let is_first = buffer.len() == pending.repeated as usize;
        buffer.extend(&run.bytes[..len]);
        pending.time = run.time;
        if is_first && len != 0 {
            self.note_first(chunk, run.time);
        }
        len
    }

    /// Moves a chunk to a larger buffer, for `more` bytes; false when there is no memory.
    #[cold]
    pub(super) fn grow<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        more: usize,
    ) -> bool {
        let Some(chunk) = self.view(leader).map(|view| view.chunk) else {
            return false;
        };
        let Some(pending) = self.pending.get(chunk) else {
            return false;
        };
        let (len, target) = (pending.content.bytes.len(), pending.target as usize);
        if len >= target {
            return false;
        }
        let size = Buffers::size((len + more).min(target), target);
        let stance = self.stance(leader);
        let Some(mut buffer) = self.memory(events, context, size, leader.record) else {
            return false;
        };
        let is_same = self.stance(leader) == stance;
        let Some(pending) = self.pending.get_mut(chunk).filter(|_| is_same) else {
            self.buffers.put(buffer);
            return false;
        };
        buffer.extend(pending.content.bytes.as_slice());
        let grown = buffer.capacity() as u64;
        let old = core::mem::replace(&mut pending.content.bytes, buffer);
        self.partial += grown;
        self.partial -= old.capacity() as u64;
        self.buffers.put(old);
        true
    }

    /// What somebody may have changed about a view while others had events: memory is found by sending
    /// them their chunks.
    pub(super) fn stance(&self, at: ViewAt) -> Option<(u64, u32, u32, u16, u16)> {
        let view = self.view(at)?;
        let generation = match self.pending.get(view.chunk) {
            Some(pending) if view.chunk != NONE => pending.generation,
            _ => 0,
        };
        let flags = view.flags.0 & !ViewFlags::BUSY;
        Some((view.limit, view.chunk, generation, view.parameters, flags))
    }

    /// A buffer, as far as the stream's priority lets it have one; under pressure partial chunks of
    /// other streams are sent first.
    fn memory<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        size: usize,
        busy: u32,
    ) -> Option<Block> {
        if self.budget.used() + size as u64 > self.watermarks.base()
            && let Some(tracker) = context.tracker()
        {
            self.relieve(events, tracker, size as u64, busy);
        }
        self.buffers.get(size, self.ceiling_of(busy))
    }

    /// Sends partial chunks until `need` more bytes are below the base threshold, or so little is
    /// in partial chunks that sending them does not help.
    #[cold]
    fn relieve<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        tracker: &FlowTracker,
        need: u64,
        busy: u32,
    ) {
        self.pressed = true;
        let limit = self.ceiling_of(busy);
        for _ in 0..STEPS {
            let used = self.budget.used() + need;
            let fits =
                used <= self.watermarks.base() || used <= limit && self.partial <= limit / 32;
            if fits || self.partial == 0 {
                break;
            }
            self.hand += 1;
            if self.hand >= self.pending.bound() {
                self.hand = 0;
            }
            self.fetch_victim(self.hand + VICTIMS);
            let Some(pending) = self.pending.get(self.hand) else {
                continue;
            };
            let stream = pending.stream;
            if stream == NONE || stream == busy {
                continue;
            }
            if let Some(leader) = self.leader_of(stream, self.hand) {
                let context = Context::tracked(tracker, stream);
                self.send_pending(events, context, leader, ChunkFlags::EARLY);
            }
        }
    }

    /// Fetches what it takes to send this chunk.
    #[inline]
    fn fetch_victim(&self, chunk: u32) {
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        if let Some(record) = self.records.get(pending.stream) {
            prefetch(record);
            prefetch_address(pending.content.bytes.as_slice().as_ptr());
        }
    }

    /// The first view of a direction that has this chunk under way.
    pub(super) fn leader_of(&self, record: u32, chunk: u32) -> Option<ViewAt> {
        self.views_of(record)
            .find(|&at| self.view(at).is_some_and(|view| view.chunk == chunk))
    }

    /// Sends the partial chunk of a view to all who share it.
    pub(super) fn send_pending<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        flags: ChunkFlags,
    ) {
        let Some(pending) = self.take_pending(leader) else {
            return;
        };
        let info = ChunkInfo {
            offset: pending.start,
            gap_before: pending.gap_before,
            repeated: pending.repeated,
            flags: pending.flags.with(flags).with(pending.hole_flag()),
            time: pending.time,
        };
        if !pending.is_new() {
            return self.recycle(pending.content, pending.packets);
        }
        pending.packets.fetch();
        let mut source = Source::Buffer(pending.content, pending.packets);
        self.statistics.flushed_early += u64::from(flags.contains(ChunkFlags::EARLY));
        self.send(events, context, leader, &mut source, info);
        self.go_on(leader, source, info);
    }

    /// Takes the chunk under way from all who share it.
    fn take_pending(&mut self, leader: ViewAt) -> Option<Pending> {
        let chunk = self.view(leader)?.chunk;
        if chunk == NONE {
            return None;
        }
        let mut at = Some(ViewAt::first(leader.record));
        while let Some(this) = at {
            at = self.next_view(this);
            if let Some(view) = self.view_mut(this)
                && view.chunk == chunk
            {
                view.chunk = NONE;
            }
        }
        let pending = self.pending.remove(chunk);
        self.partial -= pending.memory();
        Some(pending)
    }

    /// Sends a chunk that has got to the cutoff, which is that of all who share it.
    pub(super) fn send_to_those_who_stop<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        _end: u64,
    ) {
        self.send_pending(events, context, leader, ChunkFlags(0));
    }

    /// Sends what there is of a chunk to one view, the last that it gets; others go on with it.
    pub(super) fn send_own_share<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        at: ViewAt,
    ) {
        let chunk = self.view(at).map_or(NONE, |view| view.chunk);
        if let Some(pending) = self.pending.get_mut(chunk)
            && pending.is_new()
        {
            let info = ChunkInfo {
                offset: pending.start,
                gap_before: pending.gap_before,
                repeated: pending.repeated,
                flags: pending
                    .flags
                    .with(ChunkFlags::LAST)
                    .with(pending.hole_flag()),
                time: pending.time,
            };
            let generation = pending.generation;
            let content = core::mem::take(&mut pending.content);
            let packets = core::mem::take(&mut pending.packets);
            let mut source = Source::InPlace(
                content.bytes.as_slice(),
                content.holes.as_deref(),
                Some(&packets),
            );
            self.send_to(events, context, at, &mut source, info);
            let is_mine = self.view(at).is_some_and(|view| view.chunk == chunk);
            match self.pending.get_mut(chunk) {
                // (Another chunk may be there by now.)
                Some(pending)
                    if pending.stream == at.record
                        && (is_mine || pending.generation == generation) =>
                {
                    pending.content = content;
                    pending.packets = packets;
                }
                _ => {
                    self.partial -= (content.bytes.capacity() + packets.block.capacity()) as u64;
                    self.recycle(content, packets);
                }
            }
        }
        self.leave_chunk(at);
    }

    /// Sends a chunk to all who share it with `leader`.
    fn send<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        leader: ViewAt,
        source: &mut Source<'_>,
        info: ChunkInfo,
    ) {
        let Some(place) = self.view(leader).map(|view| view.parameters) else {
            return;
        };
        let mut next = self.next_view(leader);
        self.send_to(events, context, leader, source, info);
        while let Some(this) = next {
            next = self.next_view(this);
            if let Some(view) = self.view_mut(this)
                && view.parameters == place
                && !view.flags.has(ViewFlags::OVER)
            {
                view.flags.set(ViewFlags::GOT);
                self.send_to(events, context, this, source, info);
            }
        }
    }

    /// Sends a chunk to one application, as far as it wants it.
    #[inline]
    pub(super) fn send_to<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        at: ViewAt,
        source: &mut Source<'_>,
        info: ChunkInfo,
    ) {
        let len = source.bytes().len() as u64;
        let Some(view) = self.view_mut(at) else {
            return;
        };
        let cut = info.offset.saturating_add(len) >= view.limit;
        let len = len.min(view.limit.saturating_sub(info.offset)) as u32;
        // What is repeated was delivered before.
        let old = info.repeated;
        let mut info = info;
        info.repeated = info.repeated.min(len);
        if info.flags.contains(ChunkFlags::HOLE)
            && source.holes().first().is_none_or(|hole| hole.start >= len)
        {
            info.flags = ChunkFlags(info.flags.0 & !ChunkFlags::HOLE.0);
        }
        if cut {
            info.flags = info.flags.with(ChunkFlags::CUTOFF);
        }
        if len > info.repeated
            || source.packets().len() != 0
            || info.flags.contains(ChunkFlags::PACKET)
        {
            view.chunks = view.chunks.wrapping_add(1);
            view.flags.set(ViewFlags::BUSY);
            let application = ApplicationId(view.application);
            let priority = view.priority;
            self.statistics.chunks += 1;
            self.statistics.chunk_bytes += u64::from(len);
            self.statistics.in_place += u64::from(matches!(source, Source::InPlace(..)));
            let began = self.stopwatch.as_mut().map(|stopwatch| stopwatch.now());
            let mut chunk = DataChunk {
                source: core::mem::replace(source, Source::InPlace(&[], None, None)),
                len,
                info,
                budget: self.lent.take().unwrap_or_else(|| self.budget.clone()),
                ceiling: self.watermarks.ceiling(priority),
                is_lost: false,
            };
            let mut stream = StreamRef {
                core: self,
                context,
                at,
            };
            events.data(application, &mut stream, &mut chunk);
            *source = chunk.source;
            self.lent = Some(chunk.budget);
            self.look_at_memory();
            if chunk.is_lost {
                let all = source.received_from(info.repeated);
                self.drop_bytes(at, all - source.received_from(len));
            }
            let ended = self.stopwatch.as_mut().map(|stopwatch| stopwatch.now());
            if let Some(view) = self.view_mut(at) {
                view.flags.clear(ViewFlags::BUSY);
                if let (Some(began), Some(ended)) = (began, ended) {
                    view.processing += ended.saturating_sub(began);
                }
            }
        }
        if (len as usize) < source.bytes().len() {
            self.discard_rest(at, source.received_from(len.max(old)));
        }
        // The application may just have raised it.
        let end = info.offset + u64::from(len);
        if cut && self.view(at).is_some_and(|view| view.limit <= end) {
            self.cut(at);
        } else if (len as usize) < source.bytes().len()
            && let Some(view) = self.view_mut(at)
        {
            view.flags.set(ViewFlags::CLIPPED);
        }
    }

    /// After a chunk was sent: what is kept of it or repeated begins the next, its memory goes back.
    fn go_on(&mut self, leader: ViewAt, source: Source<'_>, info: ChunkInfo) {
        let mut source = source;
        let got = |at| (self.view(at)).is_some_and(|view| view.flags.has(ViewFlags::GOT));
        let is_shared = self.views_of(leader.record).any(got);
        let mut at = Some(ViewAt::first(leader.record));
        while let Some(this) = at {
            at = self.next_view(this);
            let Some(view) = self.view_mut(this) else {
                continue;
            };
            if view.flags.has(ViewFlags::KEEP) {
                view.flags.clear(ViewFlags::KEEP);
                if !view.flags.has(ViewFlags::OVER | ViewFlags::CLIPPED) {
                    let moves = this == leader && !is_shared;
                    self.keep_on(this, &mut source, info, moves);
                }
            }
        }
        self.repeat(leader, &source, info);
        // Others that got it share what is repeated, unless they or the leader went their own way.
        let mut at = self.next_view(leader);
        while let Some(this) = at {
            at = self.next_view(this);
            if let Some(view) = self.view_mut(this)
                && view.flags.has(ViewFlags::GOT)
            {
                view.flags.clear(ViewFlags::GOT);
                self.repeat(this, &source, info);
            }
        }
        if let Source::Buffer(content, packets) = source {
            self.recycle(content, packets);
        }
    }

    /// Takes the memory of a chunk back.
    fn recycle(&mut self, content: Content, packets: PacketLog) {
        if let Some(holes) = content.holes {
            self.budget.release(holes.charged);
        }
        self.buffers.put(content.bytes);
        self.buffers.put(packets.block);
    }

    /// The next chunk of a view begins with all of this one; if nobody else has it (`moves`) it goes on
    /// where it is.
    fn keep_on(&mut self, at: ViewAt, source: &mut Source<'_>, info: ChunkInfo, moves: bool) {
        let Some(view) = self.view(at) else {
            return;
        };
        let chunk_bytes = self.parameters(view.parameters).chunk_bytes.max(1);
        let len = source.bytes().len();
        let Some(target) = len
            .checked_add(chunk_bytes as usize)
            .filter(|&target| target <= LARGEST)
        else {
            return;
        };
        let content = match source {
            // Kept again and again it is not copied again and again.
            Source::Buffer(content, _) if moves => {
                let mut content = core::mem::take(content);
                if let Some(holes) = &mut content.holes {
                    holes.pieces.clear();
                }
                content
            }
            _ => {
                let Some(mut bytes) = self.buffers.get(target, self.ceiling_of(at.record)) else {
                    return;
                };
                bytes.extend(source.bytes());
                let mut content = Content {
                    bytes,
                    ..Content::default()
                };
                if !self.take_over_holes(&mut content, source.holes(), 0, at.record) {
                    return self.recycle(content, PacketLog::default());
                }
                content
            }
        };
        let pending = Pending {
            content,
            start: info.offset,
            gap_before: info.gap_before,
            since: info.time,
            time: info.time,
            flags: ChunkFlags::KEPT,
            repeated: len as u32,
            target: target as u32,
            ..Pending::default()
        };
        self.open_chunk(at, pending);
    }

    /// The next chunk begins with the last bytes of this one.
    fn repeat(&mut self, leader: ViewAt, source: &Source<'_>, info: ChunkInfo) {
        let Some(view) = self.view(leader) else {
            return;
        };
        let parameters = self.parameters(view.parameters);
        let ends = info.flags.contains(ChunkFlags::LAST) || view.flags.has(ViewFlags::OVER);
        let is_clipped = view.flags.has(ViewFlags::CLIPPED);
        if is_clipped && let Some(view) = self.view_mut(leader) {
            view.flags.clear(ViewFlags::CLIPPED);
        }
        let has_chunk = self.view(leader).is_none_or(|view| view.chunk != NONE);
        if parameters.overlap_bytes == 0 || has_chunk || ends || is_clipped {
            return;
        }
        let all = source.bytes();
        let from = all.len().saturating_sub(parameters.overlap_bytes as usize);
        let repeated = &all[from..];
        let ceiling = self.ceiling_of(leader.record);
        let Some(mut bytes) = self.buffers.get(parameters.chunk_bytes as usize, ceiling) else {
            return;
        };
        bytes.extend(repeated);
        let mut content = Content {
            bytes,
            ..Content::default()
        };
        if !self.take_over_holes(&mut content, source.holes(), from as u32, leader.record) {
            return self.recycle(content, PacketLog::default());
        }
        self.open_chunk(
            leader,
            Pending {
                start: info.offset + from as u64,
                since: info.time,
                time: info.time,
                repeated: repeated.len() as u32,
                target: parameters.chunk_bytes,
                content,
                ..Pending::default()
            },
        );
    }

    /// What is repeated of a chunk, from `from` on, has the holes it had there. False when there is no
    /// memory for them.
    fn take_over_holes(
        &mut self,
        content: &mut Content,
        holes: &[core::ops::Range<u32>],
        from: u32,
        record: u32,
    ) -> bool {
        let runs: Vec<_> = holes
            .iter()
            .filter(|hole| hole.end > from)
            .map(|hole| hole.start.saturating_sub(from)..hole.end - from)
            .collect();
        if runs.is_empty() {
            return true;
        }
        content.holes.get_or_insert_default().runs = runs;
        let more = content.charge_holes();
        let is_charged = self.budget.charge(more, self.ceiling_of(record));
        if !is_charged {
            content.uncharge_holes(more);
        }
        is_charged
    }

    /// A view goes its own way, with parameters `place`: its share of a partial chunk becomes a
    /// chunk of its own.
    pub(super) fn split_chunk(&mut self, at: ViewAt, place: u16) {
        let Some(chunk) = self.view(at).map(|view| view.chunk) else {
            return;
        };
        if chunk == NONE {
            return;
        }
        let parameters = self.parameters(place);
        if !self.is_shared(at, chunk) {
            self.opened = self.opened.wrapping_add(1);
            let generation = self.opened;
            let Some(pending) = self.pending.get_mut(chunk) else {
                return;
            };
            pending.parameters = place;
            pending.target = parameters.chunk_bytes.max(1).max(pending.repeated + 1);
            // Its time is now that of its new parameters.
            pending.generation = generation;
            let (is_new, since) = (pending.is_new(), pending.since);
            if is_new {
                self.start_timer(chunk, place, generation, since);
            }
            return;
        }
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        let copy = Pending {
            start: pending.start,
            gap_before: pending.gap_before,
            since: pending.since,
            time: pending.time,
            flags: pending.flags,
            repeated: pending.repeated,
            target: parameters.chunk_bytes.max(1).max(pending.repeated + 1),
            ..Pending::default()
        };
        let len = pending.content.bytes.len();
        let new = pending.content.received_from(pending.repeated);
        let holes = pending.content.holes.clone();
        let ceiling = self.ceiling_of(at.record);
        let buffer = self.buffers.get(len.max(copy.target as usize), ceiling);
        if let Some(view) = self.view_mut(at) {
            view.chunk = NONE;
            view.parameters = place;
        }
        // Without memory for it, the beginning of this chunk is lost to the application.
        let (Some(mut bytes), Some(pending)) = (buffer, self.pending.get(chunk)) else {
            return self.drop_bytes(at, new);
        };
        bytes.extend(pending.content.bytes.as_slice());
        let mut content = Content { bytes, holes };
        let more = content.charge_holes();
        if !self.budget.charge(more, ceiling) {
            content.uncharge_holes(more);
            self.drop_bytes(at, new);
            return self.recycle(content, PacketLog::default());
        }
        self.open_chunk(at, Pending { content, ..copy });
    }

    /// A view wants no more of its chunk; the last one out frees it.
    pub(super) fn leave_chunk(&mut self, at: ViewAt) {
        let Some(view) = self.view_mut(at) else {
            return;
        };
        let chunk = core::mem::replace(&mut view.chunk, NONE);
        if chunk != NONE && !self.is_shared(at, chunk) {
            let pending = self.pending.remove(chunk);
            self.partial -= pending.memory();
            self.recycle(pending.content, pending.packets);
        }
    }

    /// Whether a chunk under way is led by `at`: an earlier view does not have it.
    pub(super) fn leads_chunk(&self, at: ViewAt) -> bool {
        let chunk = self.view(at).map_or(NONE, |view| view.chunk);
        chunk != NONE && self.leader_of(at.record, chunk) == Some(at)
    }

    /// Whether another view than `at` has this chunk under way.
    fn is_shared(&self, at: ViewAt, chunk: u32) -> bool {
        self.views_of(at.record)
            .any(|this| this != at && self.view(this).is_some_and(|view| view.chunk == chunk))
    }

    /// The first view after `at` with these parameters that wants more.
    pub(super) fn heir(&self, at: ViewAt, place: u16) -> Option<ViewAt> {
        self.views_of(at.record)
            .skip_while(|&this| this != at)
            .skip(1)
            .find(|&this| {
                self.view(this).is_some_and(|view| {
                    view.parameters == place && !view.flags.has(ViewFlags::OVER)
                })
            })
    }

    /// The views of a direction, as they are now.
    pub(super) fn all_views(&self, record: u32) -> impl Iterator<Item = ViewAt> + use<> {
        let mut views = [None; MAX_APPLICATIONS];
        for (place, at) in views.iter_mut().zip(self.views_of(record)) {
            *place = Some(at);
        }
        views.into_iter().flatten()
    }

    /// The leaders of a direction.
    pub(super) fn leaders(&self, record: u32) -> impl Iterator<Item = ViewAt> + use<> {
        let mut leaders = [None; MAX_APPLICATIONS];
        let found = self.views_of(record).filter(|&at| self.is_leader(at));
        for (place, at) in leaders.iter_mut().zip(found) {
            *place = Some(at);
        }
        leaders.into_iter().flatten()
    }

    /// Whether `at` is the first view of its direction with its parameters that wants anything.
    pub(super) fn is_leader(&self, at: ViewAt) -> bool {
        let Some(mine) = self.view(at) else {
            return false;
        };
        if mine.flags.has(ViewFlags::OVER) || mine.application == u8::MAX {
            return false;
        }
        if at.extra == NONE {
            return true;
        }
        self.views_of(at.record)
            .take_while(|&this| this != at)
            .filter_map(|this| self.view(this))
            .all(|view| view.parameters != mine.parameters || view.flags.has(ViewFlags::OVER))
    }

    /// Sends chunks whose flush timeout has passed.
    pub(super) fn flush_old<E: Events + ?Sized>(&mut self, events: &mut E, tracker: &FlowTracker) {
        let now = tracker.clock();
        for timer in 0..self.timers.len() {
            while let Some(timer) = self.timers.get_mut(timer)
                && let Some(&(chunk, generation, since)) = timer.chunks.front()
                && now - since >= timer.timeout
            {
                timer.chunks.pop_front();
                let Some(pending) = self.pending.get(chunk) else {
                    continue;
                };
                let stream = pending.stream;
                if stream == NONE || pending.generation != generation {
                    continue;
                }
                if let Some(leader) = self.leader_of(stream, chunk) {
                    let context = Context::tracked(tracker, stream);
                    self.send_pending(events, context, leader, ChunkFlags::TIMEOUT);
                }
            }
        }
    }

    /// Whether partial chunks time out at all.
    #[inline(always)]
    pub(super) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Sends the chunks of a direction whose flush timeout has passed at `time`, when something more of
    /// it comes: as [`Core::flush_old`] would have if it had been called before.
    #[cold]
    pub(super) fn flush_due<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        id: u32,
        time: Nanos,
    ) {
        for at in self.all_views(id) {
            let is_due = self.view(at).is_some_and(|view| {
                let timeout = self.parameters(view.parameters).flush_timeout;
                let pending = self.pending.get(view.chunk);
                timeout.is_some_and(|timeout| {
                    pending.is_some_and(|pending| pending.is_due(time, timeout))
                })
            });
            if is_due && self.leads_chunk(at) {
                self.send_pending(events, context, at, ChunkFlags::TIMEOUT);
            }
        }
    }

    /// Counts bytes of a run that nobody wants any more.
    pub(super) fn discard_bytes(&mut self, record: u32, bytes: u64) {
        if bytes != 0 {
            self.discard(record, Counts { packets: 0, bytes });
        }
    }

    /// Counts new bytes of a chunk that an application had no memory for.
    #[cold]
    fn drop_bytes(&mut self, at: ViewAt, bytes: u64) {
        self.statistics.lost_bytes += bytes;
        if self.is_alone(at) {
            self.drop(at.record, Counts { packets: 0, bytes });
        } else if let Some(own) = self.own_loss_mut(at) {
            own.dropped_bytes += bytes;
        }
    }

    /// Whether nobody wants more of a direction.
    #[inline(always)]
    pub(super) fn is_done(&self, record: u32) -> bool {
        self.records
            .get(record)
            .is_some_and(|record| record.flags.has(RecordFlags::DONE))
    }
}

impl<'a> Run<'a> {
    /// What is left behind the first `len` bytes, or nothing.
    pub(super) fn skip(self, len: u64) -> Run<'a> {
        self.after(self.bytes.len().min(len as usize))
    }

    /// How many bytes lie at or behind `position`.
    pub(super) fn new_from(&self, position: u64) -> u64 {
        let old = position.saturating_sub(self.offset);
        (self.bytes.len() as u64).saturating_sub(old)
    }

    /// What is left behind the first `len` bytes.
    #[inline(always)]
    fn after(self, len: usize) -> Run<'a> {
        Run {
            bytes: self.bytes.get(len..).unwrap_or(&[]),
            offset: self.offset + len as u64,
            gap_before: if len == 0 { self.gap_before } else { 0 },
            ..self
        }
    }
}

impl Pending {
    /// Whether it has bytes or packets that no chunk before had.
    fn is_new(&self) -> bool {
        self.content.bytes.len() > self.repeated as usize || self.packets.count != 0
    }

    /// Whether its flush timeout has passed since its first new byte.
    fn is_due(&self, time: Nanos, timeout: Nanos) -> bool {
        self.content.bytes.len() > self.repeated as usize && time - self.since >= timeout
    }

    /// Whether another packet begins a new chunk.
    #[inline(always)]
    fn is_full_of_packets(&self) -> bool {
        let most = if self.content.bytes.is_empty() {
            PACKETS_ALONE
        } else {
            PACKETS
        };
        self.packets.count >= most
    }

    /// Bytes charged to the budget.
    fn memory(&self) -> u64 {
        (self.content.bytes.capacity() + self.packets.block.capacity()) as u64
    }

    pub(super) fn hole_flag(&self) -> ChunkFlags {
        match &self.content.holes {
            Some(holes) if !holes.runs.is_empty() => ChunkFlags::HOLE,
            _ => ChunkFlags(0),
        }
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.content.bytes.len() >= self.target as usize
    }

    /// Position behind the last byte.
    #[inline(always)]
    pub(super) fn end(&self) -> u64 {
        self.start + self.content.bytes.len() as u64
    }
}

impl Parameters {
    /// As an application's configuration says.
    pub(super) fn of(config: &super::config::ApplicationConfig) -> Parameters {
        Parameters {
            chunk_bytes: config.chunk_bytes,
            overlap_bytes: config
                .overlap_bytes
                .min(config.chunk_bytes.saturating_sub(1)),
            flush_timeout: config.flush_timeout,
            mode: config.mode,
            private: None,
        }
    }
}
