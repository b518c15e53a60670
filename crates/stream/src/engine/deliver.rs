//! Delivers chunks as data events.
//!
//! A chunk is delivered to all users of its chunker, in the order of their views. Any of them may make changes
//! meanwhile; its next chunk starts with the bytes that it keeps or repeats.

use flowgauge_sys::blocks::Block;

use super::assemble::Run;
use super::buffers::Buffers;
use super::chunk::{ChunkFlags, ChunkInfo, Content, DataChunk, Source, log_of};
use super::config::ApplicationId;
use super::core::Core;
use super::events::Events;
use super::packets::{Log, NewPacket};
use super::record::{Pending, View, ViewAt, ViewFlags};
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::{Context, StreamRef};

/// Lengths are kept in 32 bits; no chunk grows beyond this, whatever is kept.
const LARGEST: usize = 1 << 30;

impl Core {
    /// Sends the first bytes of a run, in which so many packets begin, from where they lie.
    #[allow(clippy::too_many_arguments, reason = "what a chunk is made of")]
    pub(super) fn send_in_place<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &Run<'_>,
        len: usize,
        packets: u32,
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
        let source = Source::InPlace(bytes, None, Log::default());
        self.send(events, context, chunker, source, info, packets);
    }

    /// Sends a packet without payload alone, to the one who wants the stream.
    pub(super) fn send_packet<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        at: ViewAt,
        packet: &NewPacket<'_>,
        info: ChunkInfo,
    ) {
        let source = Source::InPlace(&[], None, Log::One(packet));
        self.send(events, context, at, source, info, 0);
    }

    /// Sends the partial chunk of a chunker, if there is one, to all who use it.
    #[inline]
    pub(super) fn send_pending<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        flags: ChunkFlags,
    ) {
        if self.chunk_of(chunker) != NONE {
            self.send_filled(events, context, chunker, flags, &[]);
        }
    }

    /// The same of a chunk that is full with the first bytes of `segment`.
    pub(super) fn send_filled<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        flags: ChunkFlags,
        segment: &[u8],
    ) {
        let Some(pending) = self.take_pending(chunker) else {
            return;
        };
        if !pending.is_new() {
            let (content, log) = pending.take_memory();
            return self.recycle(content, log);
        }
        let (info, packets) = (pending.info(flags), pending.segments);
        let rest = match pending.flags.contains(ChunkFlags::SPLIT) {
            true => segment,
            false => &[],
        };
        debug_assert!(!rest.is_empty() || !pending.flags.contains(ChunkFlags::SPLIT));
        log_of(&pending.content, &pending.log).fetch();
        let (content, log) = pending.take_memory();
        let source = Source::Buffer(content, log, rest);
        self.statistics.flushed_early += u64::from(flags.contains(ChunkFlags::EARLY));
        self.send(events, context, chunker, source, info, packets);
    }

    /// Takes the chunk under way of a chunker out. Its memory is the caller's to take.
    #[inline]
    pub(super) fn take_pending(&mut self, chunker: ViewAt) -> Option<&mut Pending> {
        let view = self.view_mut(chunker)?;
        let chunk = core::mem::replace(&mut view.chunk, NONE);
        if chunk == NONE {
            return None;
        }
        let pending = self.pending.remove(chunk)?;
        pending.stream = NONE;
        self.partial -= pending.memory();
        Some(pending)
    }

    /// Sends what there is of a chunk to those who want nothing from `end` on; the others go on with it.
    pub(super) fn send_cut<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        end: u64,
        flags: ChunkFlags,
        segment: &[u8],
    ) {
        if self.limits_of(chunker).all(|limit| limit <= end) {
            return self.send_filled(events, context, chunker, flags, segment);
        }
        let members = self.members(chunker);
        let mut next = self.next_of(members, Some(ViewAt::first(chunker.record)));
        while let Some(at) = next {
            next = self.next_of(members, self.next_view(at));
            if self.view(at).is_some_and(|view| view.limit <= end) {
                self.send_share(events, context, at, flags);
            }
        }
    }

    /// Sends what there is of a chunk to one view. Others go on with it.
    pub(super) fn send_share<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        at: ViewAt,
        flags: ChunkFlags,
    ) {
        let chunker = self.chunker_of(at);
        let chunk = self.chunk_of(chunker);
        if chunk == NONE || self.is_over(at) {
            return;
        }
        if self.members(chunker) == at.bit() {
            return self.send_pending(events, context, chunker, flags);
        }
        self.part(at);
        let Some(pending) = self.pending.get_mut(chunk) else {
            return;
        };
        if !pending.is_new() {
            return;
        }
        let (info, segments) = (pending.info(flags), pending.segments);
        let (content, log) = pending.take_memory();
        let source = Source::InPlace(
            content.bytes.as_slice(),
            content.holes.as_deref(),
            log_of(&content, &log),
        );
        let mut shown = self.shown(source, info);
        self.send_to(events, context, at, &mut shown, segments);
        self.begin_next(at, &mut shown.source, info, false);
        self.lent = Some(shown.budget);
        if let Some(pending) = self.pending.get_mut(chunk) {
            pending.content = content;
            pending.log = log;
        }
    }

    /// A chunk for data events.
    #[inline(always)]
    pub(super) fn shown<'a>(&mut self, source: Source<'a>, info: ChunkInfo) -> DataChunk<'a> {
        DataChunk {
            source,
            len: 0,
            info,
            budget: self.lent.take().unwrap_or_else(|| self.budget.clone()),
            ceiling: 0,
            is_lost: false,
        }
    }

    /// Sends a chunk, in which so many packets begin, to all who use a chunker. What is kept of it or repeated begins
    /// the next, its memory goes back.
    #[inline(always)]
    fn send<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        source: Source<'_>,
        info: ChunkInfo,
        packets: u32,
    ) {
        let mut shown = self.shown(source, info);
        let members = self.members(chunker);
        let mut next = self.next_of(members, Some(ViewAt::first(chunker.record)));
        while let Some(at) = next {
            next = self.next_of(members, self.next_view(at));
            self.send_to(events, context, at, &mut shown, packets);
        }
        self.go_on(chunker, &mut shown.source, info);
        if let Source::Buffer(content, log, _) = shown.source {
            self.recycle(content, log);
        }
        self.lent = Some(shown.budget);
    }

    /// Sends a chunk to one application, as far as it wants it.
    pub(super) fn send_to<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        at: ViewAt,
        chunk: &mut DataChunk<'_>,
        packets: u32,
    ) {
        let (info, all) = (chunk.info, chunk.source.bytes().len() as u64);
        self.note_position(at.record, info.offset.saturating_add(all));
        let Some(view) = self.view_mut(at) else {
            return;
        };
        let cut = info.offset.saturating_add(all) >= view.limit;
        let len = all.min(view.limit.saturating_sub(info.offset)) as u32;
        // What is repeated was delivered before.
        let repeated = info.repeated.min(len);
        if len > repeated
            || chunk.source.log().count() != 0
            || info.flags.contains(ChunkFlags::PACKET)
        {
            view.chunks = view.chunks.wrapping_add(1);
            view.flags.set(ViewFlags::BUSY);
            let application = ApplicationId(view.application);
            let priority = view.priority;
            self.statistics.chunks += 1;
            self.statistics.chunk_bytes += u64::from(len);
            self.statistics.in_place += u64::from(chunk.is_in_place());
            let began = self.stopwatch.as_mut().map(|stopwatch| stopwatch.now());
            chunk.show(len, cut);
            chunk.ceiling = self.watermarks.ceiling(priority);
            let mut stream = StreamRef {
                core: self,
                context,
                at,
            };
            events.data(application, &mut stream, chunk);
            chunk.info = info;
            self.look_at_memory();
            if core::mem::take(&mut chunk.is_lost) {
                let lost = Counts {
                    packets: u64::from(packets),
                    bytes: chunk.source.received_from(repeated) - chunk.source.received_from(len),
                };
                self.drop_chunk(at, lost);
            }
            let ended = self.stopwatch.as_mut().map(|stopwatch| stopwatch.now());
            if let Some(view) = self.view_mut(at) {
                view.flags.clear(ViewFlags::BUSY);
                if let (Some(began), Some(ended)) = (began, ended) {
                    view.processing += ended.saturating_sub(began);
                }
            }
        }
        if cut || u64::from(len) < all {
            self.send_no_more(at, chunk, len, cut);
        }
    }

    /// After a chunk was sent to one that does not want all of it, or nothing behind it.
    #[cold]
    fn send_no_more(&mut self, at: ViewAt, chunk: &DataChunk<'_>, len: u32, cut: bool) {
        let (info, source) = (chunk.info, &chunk.source);
        let is_clipped = (len as usize) < source.bytes().len();
        if is_clipped {
            self.discard_rest(at, source.received_from(len.max(info.repeated)));
        }
        // The application may just have raised it.
        let end = info.offset + u64::from(len);
        if cut && self.view(at).is_some_and(|view| view.limit <= end) {
            self.cut(at);
        } else if is_clipped && let Some(view) = self.view_mut(at) {
            view.flags.set(ViewFlags::CLIPPED);
        }
    }

    /// After a chunk was sent: what is kept of it or repeated begins the next.
    #[inline]
    fn go_on(&mut self, chunker: ViewAt, source: &mut Source<'_>, info: ChunkInfo) {
        let Some(record) = self.records.get(chunker.record) else {
            return;
        };
        let view = &record.view;
        if record.more == NONE && view.stays(view.chunk_parameters) {
            if !view.flags.has(ViewFlags::OVER) && self.parameters_of(chunker).overlap_bytes != 0 {
                self.repeat(chunker, source, info);
            }
            return;
        }
        self.go_on_apart(chunker, source, info);
    }

    /// The same where there are several applications, or the one has changed something.
    #[cold]
    fn go_on_apart(&mut self, chunker: ViewAt, source: &mut Source<'_>, info: ChunkInfo) {
        let place = self.view(chunker).map_or(0, |view| view.chunk_parameters);
        let (mut members, mut stay) = (self.members(chunker), 0);
        while let Some(at) = self.next_of(members, Some(ViewAt::first(chunker.record))) {
            members &= !at.bit();
            if self.view(at).is_some_and(|view| view.stays(place)) {
                stay |= at.bit();
            } else {
                self.part(at);
                self.begin_next(at, source, info, members | stay == 0);
            }
        }
        if stay != 0 {
            self.repeat(chunker, source, info);
        }
    }

    /// After a chunk was sent to a view that uses a chunker alone from here on: what it keeps of it or has
    /// repeated begins its next. If nobody else has it (`moves`) it goes on where it is.
    fn begin_next(&mut self, at: ViewAt, source: &mut Source<'_>, info: ChunkInfo, moves: bool) {
        let Some(view) = self.view_mut(at) else {
            return;
        };
        let flags = view.flags;
        view.flags.clear(ViewFlags::KEEP | ViewFlags::CLIPPED);
        if flags.has(ViewFlags::OVER | ViewFlags::CLIPPED) {
            return;
        }
        let chunker = self.chunker_of(at);
        if flags.has(ViewFlags::KEEP) {
            self.keep_on(chunker, source, info, moves);
        }
        self.repeat(chunker, source, info);
    }

    /// Takes the memory of a chunk back.
    #[inline]
    pub(super) fn recycle(&mut self, content: Content, log: Block) {
        if let Some(holes) = content.holes {
            self.budget.release(holes.charged);
        }
        self.buffers.put(content.bytes);
        self.buffers.put(log);
    }

    /// The next chunk begins with all of this one.
    fn keep_on(&mut self, chunker: ViewAt, source: &mut Source<'_>, info: ChunkInfo, moves: bool) {
        let chunk_bytes = self.parameters_of(chunker).chunk_bytes.max(1);
        let len = source.bytes().len();
        let Some(target) = len
            .checked_add(chunk_bytes as usize)
            .filter(|&target| target <= LARGEST)
        else {
            return;
        };
        let content = match source {
            // Kept again and again it is not copied again and again.
            Source::Buffer(content, ..) if moves => {
                let mut content = core::mem::take(content);
                content.bytes.unstack();
                if let Some(holes) = &mut content.holes {
                    holes.pieces.clear();
                }
                content
            }
            _ => {
                let Some(mut bytes) = self.buffers.get(target, self.ceiling_of(chunker.record))
                else {
                    return;
                };
                bytes.extend(source.bytes());
                let mut content = Content {
                    bytes,
                    ..Content::default()
                };
                if !self.take_over_holes(&mut content, source.holes(), 0, chunker.record) {
                    return self.recycle(content, Block::EMPTY);
                }
                content
            }
        };
        self.open_chunk(chunker, |pending| {
            pending.content = content;
            pending.begin(info.offset, info.time, target as u32);
            pending.gap_before = info.gap_before;
            pending.flags = ChunkFlags::KEPT;
            pending.repeated = len as u32;
        });
    }

    /// The next chunk begins with the last bytes of this one.
    #[inline(never)]
    fn repeat(&mut self, chunker: ViewAt, source: &Source<'_>, info: ChunkInfo) {
        let parameters = self.parameters_of(chunker);
        if parameters.overlap_bytes == 0
            || info.flags.contains(ChunkFlags::LAST)
            || self.chunk_of(chunker) != NONE
        {
            return;
        }
        let all = source.bytes();
        let from = all.len().saturating_sub(parameters.overlap_bytes as usize);
        let repeated = &all[from..];
        let ceiling = self.ceiling_of(chunker.record);
        // Nothing more may ever come.
        let size = Buffers::size(repeated.len(), parameters.chunk_bytes as usize);
        let Some(mut bytes) = self.buffers.get(size, ceiling) else {
            return;
        };
        bytes.extend(repeated);
        let mut content = Content {
            bytes,
            ..Content::default()
        };
        if !self.take_over_holes(&mut content, source.holes(), from as u32, chunker.record) {
            return self.recycle(content, Block::EMPTY);
        }
        let (start, len) = (info.offset + from as u64, repeated.len() as u32);
        self.open_chunk(chunker, |pending| {
            pending.content = content;
            pending.begin(start, info.time, parameters.chunk_bytes);
            pending.repeated = len;
        });
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
}

impl View {
    /// After a chunk was sent: whether the view goes on with its chunker, which has these parameters.
    #[inline(always)]
    fn stays(&self, parameters: u16) -> bool {
        !self.flags.has(ViewFlags::KEEP | ViewFlags::CLIPPED) && self.parameters == parameters
    }
}

impl Pending {
    /// Its bytes, and its packets.
    #[inline(always)]
    pub(super) fn take_memory(&mut self) -> (Content, Block) {
        (
            core::mem::take(&mut self.content),
            core::mem::take(&mut self.log),
        )
    }

    /// What the chunk says of itself when it is sent as it is.
    fn info(&self, flags: ChunkFlags) -> ChunkInfo {
        ChunkInfo {
            offset: self.start,
            gap_before: self.gap_before,
            repeated: self.repeated,
            flags: (self.flags.with(flags).with(self.hole_flag())).without(ChunkFlags::SPLIT),
            time: self.time,
        }
    }
}
