//! Records of packets beside the bytes of a chunk in progress.

use flowgauge_sys::blocks::Block;

use super::assemble::Need;
use super::chunk::ChunkFlags;
use super::core::Core;
use super::events::Events;
use super::packets::{NewPacket, enter, room_for};
use super::pressure::Refusal;
use super::record::{Pending, RecordFlags, ViewAt, ViewFlags};
use super::slab::NONE;
use super::stream_ref::Context;
use crate::handler::Next;

/// Packets of one chunk at most.
const PACKETS: u32 = 1024;
/// ... of one without payload. They are an event of their own, while what was noted of them is still
/// in the cache.
const PACKETS_ALONE: u32 = 64;

/// A packet to be entered in the chunk under way of those who use a chunker.
#[derive(Clone, Copy)]
pub(super) struct Note<'a> {
    pub(super) context: Context<'a>,
    pub(super) chunker: ViewAt,
    pub(super) packet: &'a NewPacket<'a>,
    /// Where the stream goes on.
    pub(super) position: u64,
    /// It is the next of the stream: its payload will be in the chunk.
    pub(super) is_next: bool,
}

impl Core {
    /// Enters a packet.
    #[inline]
    pub(super) fn note_packet<E: Events + ?Sized>(&mut self, events: &mut E, note: &Note<'_>) {
        while self.note_packet_once(events, note).is_none() && self.members(note.chunker) != 0 {}
    }

    /// One attempt of [`Core::note_packet`]; `None` where the chunk went away meanwhile: memory is
    /// found by sending chunks of others, who may do anything.
    #[inline]
    fn note_packet_once<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        note: &Note<'_>,
    ) -> Option<()> {
        let Note {
            context,
            chunker,
            packet,
            position,
            is_next,
        } = *note;
        let (mut chunk, limit) = (self.chunk_of(chunker), self.limit_of(chunker));
        if chunk == NONE
            || self
                .pending
                .get(chunk)
                .is_some_and(Pending::is_full_of_packets)
        {
            chunk = self.begin_packets(events, note);
            if self.members(chunker) == 0 {
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
        let goes_on = self.has_chunks(chunker);
        let need = |is_inside| Need {
            bytes: if is_inside { len } else { 0 },
            packet: room_for(packet, is_inside),
            goes_on,
        };
        for _ in 0..2 {
            let room = self.make_room(events, context, chunker, chunk, need(is_inside));
            if room == Err(Refusal::Changed) {
                return None;
            }
            if room.is_ok() {
                let pending = self.pending.get_mut(chunk)?;
                let payload_at = is_inside.then_some(pending.content.bytes.len() as u32);
                let start = pending.start;
                enter(pending.log_mut(), packet, start, payload_at);
                return Some(());
            }
            is_inside = false;
        }
        self.statistics.packets_lost += 1;
        Some(())
    }

    /// Enters the next packet of a stream that only one application wants, whose first payload byte is
    /// at `position`, in a chunk that has room for it and goes on with its payload, and takes that, too,
    /// unless it is the chunk's first or last.
    #[inline(always)]
    pub(super) fn note_simply(&mut self, id: u32, packet: &NewPacket<'_>, position: u64) -> Next {
        let Some(record) = self.records.get(id) else {
            return Next::Unseen;
        };
        let (flags, limit) = (record.flags, record.view.limit);
        let Some(pending) = self.pending.get_mut(record.view.chunk) else {
            return Next::Unseen;
        };
        let len = packet.payload.len();
        let start = pending.start;
        let bytes = &pending.content.bytes;
        let (at, bytes_room) = (bytes.len(), bytes.room());
        // (Only where packets do not stand behind the bytes the chunk's other line is touched.)
        let (count, room) = match bytes.pieces() {
            0 => (pending.log.pieces(), pending.log.room()),
            count => (count, bytes_room.saturating_sub(len)),
        };
        let most = if at == 0 { PACKETS_ALONE } else { PACKETS };
        let fits = flags.has(RecordFlags::SIMPLE)
            && count.wrapping_sub(1) < most - 1
            && room_for(packet, true) <= room
            && (len == 0
                || start + at as u64 == position
                    && len <= bytes_room
                    && at + len < pending.target as usize
                    && position + (len as u64) < limit);
        if !fits {
            return Next::Unseen;
        }
        enter(pending.log_of_some(), packet, start, Some(at as u32));
        if len == 0 || at <= pending.repeated as usize {
            return Next::Seen;
        }
        pending.content.bytes.extend(packet.payload);
        pending.segments += 1;
        pending.time = packet.time;
        Next::Taken
    }

    /// [`Core::note_packet`] of a stream that only one application wants, as long as there is memory
    /// that nobody has to be sent for. `follows` says that its payload is put in order before anything
    /// else happens. Returns whether it did; where it did not, nothing of the packet is noted.
    #[inline(never)]
    pub(super) fn note_alone(
        &mut self,
        id: u32,
        packet: &NewPacket<'_>,
        position: u64,
        is_next: bool,
        follows: bool,
    ) -> bool {
        let Some(record) = self.records.get(id) else {
            return false;
        };
        let view = &record.view;
        let (limit, goes_on) = (view.limit, view.chunks != 0);
        let (place, priority) = (view.chunk_parameters, view.priority);
        let is_usual = !view.flags.has(ViewFlags::AHEAD);
        if !record.flags.has(RecordFlags::SIMPLE) {
            return false;
        }
        if !self.notes_packets(view) {
            return true;
        }
        let mut chunk = view.chunk;
        if chunk == NONE {
            let target = self.parameters(place).chunk_bytes;
            let begin = |pending: &mut Pending| pending.begin(position, packet.time, target);
            self.open_chunk(ViewAt::first(id), begin);
            chunk = match self.records.get(id) {
                Some(record) => record.view.chunk,
                None => return false,
            };
        }
        let ceiling = self.watermarks.ceiling(priority);
        let Some(pending) = self.pending.get(chunk) else {
            return false;
        };
        if pending.is_full_of_packets() {
            return false;
        }
        let len = packet.payload.len();
        let (at, target) = (pending.content.bytes.len(), pending.target as usize);
        let is_whole = is_next && pending.end() == position && position + len as u64 <= limit;
        // The chunk is sent with its first bytes, when the packet is still there.
        let splits = is_whole && follows && is_usual && at != 0 && at < target && at + len > target;
        let is_inside = splits || is_whole && at + len <= target;
        let need = Need {
            bytes: if is_inside { len.min(target - at) } else { 0 },
            packet: room_for(packet, is_inside),
            goes_on,
        };
        while let Some(step) = self.pending.get(chunk).and_then(|at| at.missing(need)) {
            let Some(block) = self.at_hand(step.size(), ceiling) else {
                return false;
            };
            self.take_step(chunk, step, block);
        }
        let Some(pending) = self.pending.get_mut(chunk) else {
            return false;
        };
        if splits {
            pending.flags = pending.flags.with(ChunkFlags::SPLIT);
        }
        let start = pending.start;
        enter(
            pending.log_mut(),
            packet,
            start,
            is_inside.then_some(at as u32),
        );
        true
    }

    /// A buffer, where there is one without anybody being sent.
    #[inline]
    pub(super) fn at_hand(&mut self, size: usize, ceiling: u64) -> Option<Block> {
        if self.budget.used() + size as u64 > self.watermarks.base() {
            return None;
        }
        self.buffers.get(size, ceiling)
    }

    /// Begins a chunk with a packet; one that is under way is sent before.
    #[inline(never)]
    fn begin_packets<E: Events + ?Sized>(&mut self, events: &mut E, note: &Note<'_>) -> u32 {
        let chunker = note.chunker;
        self.send_pending(events, note.context, chunker, ChunkFlags(0));
        let chunk = self.chunk_of(chunker);
        if chunk != NONE {
            return chunk;
        }
        let target = self.parameters_of(chunker).chunk_bytes;
        self.open_chunk(chunker, |pending| {
            pending.begin(note.position, note.packet.time, target);
        });
        self.chunk_of(chunker)
    }
}

impl Pending {
    /// Whether another packet begins a new chunk.
    #[inline(always)]
    fn is_full_of_packets(&self) -> bool {
        let most = if self.content.bytes.is_empty() {
            PACKETS_ALONE
        } else {
            PACKETS
        };
        self.packets() >= most
    }
}
