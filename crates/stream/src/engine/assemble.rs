//! Assembles in-order bytes into chunks.
//!
//! Each [chunker](super::chunkers) of a direction has at most one chunk in progress, regardless of the number of
//! its users: bytes are copied once for all of them. Full chunks are delivered ([`deliver`](super::deliver)).

use flowgauge_sys::blocks::Block;
use flowgauge_wire::{Nanos, Place};

use super::buffers::Buffers;
use super::chunk::ChunkFlags;
use super::core::Core;
use super::events::Events;
use super::packets::move_packets;
use super::pressure::Refusal;
use super::record::{Parameters, Pending, ViewAt, ViewFlags};
use super::slab::NONE;
use super::stream_ref::Context;
use crate::handler::Chunk;

/// What the packets of a stream that goes on without payload take at first.
const PACKET_BYTES: usize = 1024;

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
    /// Takes bytes in order for those who use a chunker. Any of them may leave in the midst of the run:
    /// it gets the rest nevertheless, unless it wants no more.
    #[inline]
    pub(super) fn append<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: Run<'_>,
    ) {
        let mut run = run;
        let mut members = self.members(chunker);
        while members != 0 && !run.bytes.is_empty() {
            self.append_turn(events, context, chunker, &mut run);
            let before = members;
            members = self.members(chunker);
            let mut left = self.next_of(before & !members, Some(ViewAt::first(chunker.record)));
            while let Some(at) = left {
                left = self.next_of(before & !members, self.next_view(at));
                match self.is_over(at) {
                    true => self.discard_run(at, &run, Place::Cutoff),
                    false => self.append(events, context, self.chunker_of(at), run),
                }
            }
        }
        if run.last {
            self.send_pending(events, context, chunker, ChunkFlags::LAST);
        }
    }

    /// One step of [`Core::append`]: takes bytes, or sends a chunk.
    #[inline(always)]
    fn append_turn<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &mut Run<'_>,
    ) {
        let Some(stop) = self.stop(events, context, chunker, run, run.gap_before) else {
            return;
        };
        let wanted = run.bytes.len().min((stop - run.offset) as usize);
        if self.chunk_of(chunker) == NONE {
            let target = self.parameters_of(chunker).chunk_bytes as usize;
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
                let packets = self.beginnings.in_order(run, len);
                self.send_in_place(events, context, chunker, run, len, packets, flags);
                *run = run.after(len);
                return;
            }
            match self.begin_chunk(events, context, chunker, run, wanted) {
                Ok(()) => run.gap_before = 0,
                Err(Refusal::Changed) => return,
                Err(Refusal::NoMemory) => {
                    // The bytes go out where they are.
                    let (packets, flags) =
                        (self.beginnings.in_order(run, wanted), ChunkFlags::EARLY);
                    self.send_in_place(events, context, chunker, run, wanted, packets, flags);
                    *run = run.after(wanted);
                    return;
                }
            }
        }
        let chunk = self.chunk_of(chunker);
        if run.gap_before != 0 {
            return self.send_pending(events, context, chunker, ChunkFlags(0));
        }
        let Some(end) = self.pending.get(chunk).map(Pending::end) else {
            return;
        };
        if end != run.offset {
            // It begins with what was repeated or kept of one in another mode.
            if end > run.offset {
                *run = run.skip(end - run.offset);
            } else {
                run.gap_before = run.offset - end;
            }
            return;
        }
        let segment = run.bytes;
        let taken = self.fill(chunk, run, wanted);
        *run = run.after(taken);
        let Some(pending) = self.pending.get(chunk) else {
            return;
        };
        if pending.is_full() {
            self.send_filled(events, context, chunker, ChunkFlags(0), segment);
        } else if pending.end() == stop {
            self.send_cut(events, context, chunker, stop, ChunkFlags(0), segment);
        } else if taken == 0
            && self.grow(events, context, chunker, wanted) == Err(Refusal::NoMemory)
        {
            self.send_pending(events, context, chunker, ChunkFlags::EARLY);
        }
    }

    /// The first position behind `run.offset` from which on one of those who use a chunker wants nothing
    /// more. Those who want nothing from there on get what there is for them, and leave: of the `gap`
    /// bytes missing before it they miss those that they wanted. `None` when somebody has left.
    #[inline(always)]
    pub(super) fn stop<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &Run<'_>,
        gap: u64,
    ) -> Option<u64> {
        let limit = self.limit_of(chunker);
        // Where no chunk is under way those who use it together stop at the same place of the run, if at all.
        let end = match self.is_alone(chunker) || self.chunk_of(chunker) != NONE {
            true => run.offset,
            false => run.end(),
        };
        match limit > end {
            true => Some(limit),
            false => self.stop_for_some(events, context, chunker, run, gap),
        }
    }

    #[cold]
    fn stop_for_some<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &Run<'_>,
        gap: u64,
    ) -> Option<u64> {
        let members = self.members(chunker);
        if self.limit_of(chunker) <= run.offset {
            self.send_cut(
                events,
                context,
                chunker,
                run.offset,
                ChunkFlags::CUTOFF,
                &[],
            );
        }
        let end = match self.chunk_of(chunker) {
            NONE => run.end(),
            _ => run.offset,
        };
        let last = self.limits_of(chunker).max();
        let mut next = self.next_of(members, Some(ViewAt::first(chunker.record)));
        while let Some(at) = next {
            next = self.next_of(members, self.next_view(at));
            let limit = self.view(at)?.limit;
            if self.is_over(at) {
                continue;
            }
            if limit <= run.offset {
                self.cut(at);
                self.note_missing(at, run.offset, gap);
            } else if limit <= end && Some(limit) != last && self.chunker_of(at) == chunker {
                self.part(at);
            }
        }
        (self.members(chunker) == members).then(|| self.limit_of(chunker))
    }

    /// Begins a chunk with room for `wanted` bytes of `run`.
    pub(super) fn begin_chunk<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        run: &Run<'_>,
        wanted: usize,
    ) -> Result<(), Refusal> {
        let target = self.parameters_of(chunker).chunk_bytes;
        let size = first_size(self.has_chunks(chunker), wanted, target);
        let bytes = self.memory(events, context, chunker, size)?;
        self.open_chunk(chunker, |pending| {
            pending.content.bytes = bytes;
            pending.begin(run.offset, run.time, target);
            pending.gap_before = run.gap_before;
        });
        Ok(())
    }

    /// Gives a chunker a chunk under way, which is empty until `fill` has [begun](Pending::begin) it.
    #[inline(always)]
    pub(super) fn open_chunk(&mut self, chunker: ViewAt, fill: impl FnOnce(&mut Pending)) {
        let Some(place) = self.view(chunker).map(|view| view.chunk_parameters) else {
            return;
        };
        self.opened = self.opened.wrapping_add(1);
        let generation = self.opened;
        // (It has no memory: that was taken with the chunk before.)
        let (chunk, pending) = self.pending.add();
        (pending.stream, pending.parameters, pending.generation) =
            (chunker.record, place, generation);
        fill(pending);
        let (since, is_new) = (pending.since, pending.is_new());
        self.partial += pending.memory();
        if let Some(view) = self.view_mut(chunker) {
            view.chunk = chunk;
        }
        if is_new && self.has_timers() {
            self.start_timer(chunk, place, generation, since);
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
            && more <= buffer.room()
            && len + more < pending.target as usize
            && pending.start + len as u64 == new.offset
            && new.offset + (more as u64) < limit;
        if fits {
            buffer.extend(new.bytes);
            pending.segments += self.beginnings.count;
            pending.time = new.time;
        }
        fits
    }

    /// The same where no chunk is under way: begins one, as long as there is memory that nobody has to be sent for.
    #[inline]
    pub(super) fn begin_simply(&mut self, id: u32, new: &Chunk<'_>) -> bool {
        let Some(record) = self.records.get(id) else {
            return false;
        };
        let (view, len) = (&record.view, new.bytes.len());
        let target = self.parameters(view.chunk_parameters).chunk_bytes;
        let fits = view.chunk == NONE
            && !view.flags.has(ViewFlags::AHEAD)
            && len != 0
            && len < target as usize
            && new.offset + (len as u64) < view.limit;
        if !fits {
            return false;
        }
        let size = first_size(view.chunks != 0, len, target);
        let Some(mut bytes) = self.at_hand(size, self.watermarks.ceiling(view.priority)) else {
            return false;
        };
        bytes.extend(new.bytes);
        let packets = self.beginnings.count;
        self.open_chunk(ViewAt::first(id), |pending| {
            pending.content.bytes = bytes;
            pending.begin(new.offset, new.time, target);
            pending.segments = packets;
        });
        true
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
            .saturating_sub(buffer.len());
        let len = wanted.min(room).min(buffer.room());
        let is_first = buffer.len() == pending.repeated as usize;
        buffer.extend(&run.bytes[..len]);
        pending.segments += self.beginnings.in_order(run, len);
        pending.time = run.time;
        if is_first && len != 0 {
            self.note_first(chunk, run.time);
        }
        len
    }

    /// Makes room in a chunk for `more` bytes, as far as they belong into it.
    #[cold]
    pub(super) fn grow<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        more: usize,
    ) -> Result<(), Refusal> {
        let (chunk, goes_on) = (self.chunk_of(chunker), self.has_chunks(chunker));
        let Some(pending) = self.pending.get(chunk) else {
            return Err(Refusal::NoMemory);
        };
        let (len, target) = (pending.content.bytes.len(), pending.target as usize);
        if len >= target {
            return Err(Refusal::NoMemory);
        }
        let need = Need {
            bytes: more.min(target - len),
            packet: 0,
            goes_on,
        };
        self.make_room(events, context, chunker, chunk, need)
    }

    /// Gives a chunk what it needs.
    pub(super) fn make_room<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        context: Context<'_>,
        chunker: ViewAt,
        chunk: u32,
        need: Need,
    ) -> Result<(), Refusal> {
        while let Some(step) = self.pending.get(chunk).and_then(|at| at.missing(need)) {
            let block = self.memory(events, context, chunker, step.size())?;
            self.take_step(chunk, step, block);
        }
        Ok(())
    }

    /// Moves what a chunk has to the memory that it needs.
    pub(super) fn take_step(&mut self, chunk: u32, step: Step, block: Block) {
        let Some(pending) = self.pending.get_mut(chunk) else {
            return self.buffers.put(block);
        };
        self.partial += block.capacity() as u64;
        match step {
            Step::Bytes(_) => {
                let old = pending.move_bytes(block);
                self.give_back(old);
            }
            Step::Log(_) => {
                let (old, emptied) = pending.move_log(block);
                self.give_back(old);
                self.give_back(emptied);
            }
        }
    }

    /// Takes back what was part of a chunk under way.
    #[inline]
    fn give_back(&mut self, block: Block) {
        self.partial -= block.capacity() as u64;
        self.buffers.put(block);
    }
}

/// What there has to be room for in a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Bytes behind those it has, up to its target.
    pub(super) bytes: usize,
    /// What a packet takes.
    pub(super) packet: usize,
    /// The stream has filled a chunk: it will likely fill this one.
    pub(super) goes_on: bool,
}

/// Memory that a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So much for its bytes, and its packets where they are behind them.
    Bytes(usize),
    /// So much for its packets alone.
    Log(usize),
}

impl Step {
    pub(super) const fn size(self) -> usize {
        match self {
            Step::Bytes(size) | Step::Log(size) => size,
        }
    }
}

/// The size of a buffer for the first bytes of a chunk. A stream that has filled one will likely fill the next.
#[inline(always)]
fn first_size(goes_on: bool, len: usize, target: u32) -> usize {
    match goes_on {
        false => Buffers::size(len, target as usize),
        true => target as usize,
    }
}

impl Pending {
    /// The next thing that is missing.
    ///
    /// Packets stand behind the bytes as long as there is room in a block that the bytes may fill: it
    /// is in a block of their own that they do not cost anything. What the last bytes of a whole chunk
    /// need, or many packets without payload, moves them to one of their own.
    pub(super) fn missing(&self, need: Need) -> Option<Step> {
        let (bytes, target) = (&self.content.bytes, self.target as usize);
        let len = bytes.len() + need.bytes;
        let whole = |len: usize| match (need.goes_on, need.bytes) {
            (true, 0) => Buffers::size(len.max(PACKET_BYTES), target),
            (true, _) => target.max(len),
            (false, _) => Buffers::size(len, target),
        };
        if self.log.capacity() != 0 {
            if need.bytes > bytes.room() {
                return Some(Step::Bytes(whole(len)));
            }
            let size = self.log.stacked().len() + need.packet;
            return (need.packet > self.log.room()).then_some(Step::Log(size));
        }
        if need.bytes + need.packet <= bytes.room() {
            return None;
        }
        let stacked = bytes.stacked().len() + need.packet;
        let size = whole(len + stacked);
        let fits = size <= target && (len != 0 || size < target);
        Some(match fits || stacked == 0 {
            true => Step::Bytes(size),
            false => Step::Log(stacked),
        })
    }

    /// Where its packets are entered.
    #[inline(always)]
    pub(super) const fn log_mut(&mut self) -> &mut Block {
        match self.log.capacity() {
            0 => &mut self.content.bytes,
            _ => &mut self.log,
        }
    }

    /// The same of a chunk that has some.
    #[inline(always)]
    pub(super) const fn log_of_some(&mut self) -> &mut Block {
        match self.content.bytes.pieces() {
            0 => &mut self.log,
            _ => &mut self.content.bytes,
        }
    }

    /// Goes on in a larger block. Returns what it was in.
    fn move_bytes(&mut self, block: Block) -> Block {
        let mut old = core::mem::replace(&mut self.content.bytes, block);
        if !old.is_empty() {
            self.content.bytes.extend(old.as_slice());
        }
        move_packets(&mut old, &mut self.content.bytes);
        old
    }

    /// Goes on with the packets in a block of their own. Returns what they were in, and what had nothing
    /// else.
    fn move_log(&mut self, block: Block) -> (Block, Block) {
        let mut old = core::mem::replace(&mut self.log, block);
        move_packets(&mut old, &mut self.log);
        let bytes = &mut self.content.bytes;
        move_packets(bytes, &mut self.log);
        let emptied = match bytes.is_empty() {
            true => core::mem::take(bytes),
            false => Block::EMPTY,
        };
        (old, emptied)
    }
}

impl<'a> Run<'a> {
    /// What is left behind the first `len` bytes, or nothing.
    pub(super) fn skip(self, len: u64) -> Run<'a> {
        self.after(self.bytes.len().min(len as usize))
    }

    /// Position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
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
    /// It begins at this position, at this time, but for its memory.
    #[inline(always)]
    pub(super) fn begin(&mut self, start: u64, time: Nanos, target: u32) {
        (self.start, self.time, self.since, self.target) = (start, time, time, target);
        (self.repeated, self.gap_before, self.segments) = (0, 0, 0);
        self.flags = ChunkFlags(0);
    }

    /// Whether it has bytes or packets that no chunk before had.
    pub(super) fn is_new(&self) -> bool {
        self.content.bytes.len() > self.repeated as usize || self.packets() != 0
    }

    /// Bytes charged to the budget.
    pub(super) fn memory(&self) -> u64 {
        (self.content.bytes.capacity() + self.log.capacity()) as u64
    }

    /// Packets it has.
    #[inline(always)]
    pub(super) fn packets(&self) -> u32 {
        match self.content.bytes.pieces() {
            0 => self.log.pieces(),
            packets => packets,
        }
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
    pub(super) fn of(config: &super::config::ApplicationConfig, packets: bool) -> Parameters {
        Parameters {
            chunk_bytes: config.chunk_bytes,
            overlap_bytes: config
                .overlap_bytes
                .min(config.chunk_bytes.saturating_sub(1)),
            flush_timeout: config.flush_timeout,
            mode: config.mode,
            packets,
        }
    }
}
