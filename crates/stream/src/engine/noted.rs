//! Packets entered beside the bytes of a chunk under way.

use flowgauge_sys::blocks::Block;

use super::buffers::Buffers;
use super::chunk::ChunkFlags;
use super::core::Core;
use super::events::Events;
use super::packets::{NewPacket, PacketLog};
use super::record::{Pending, RecordFlags, ViewAt};
use super::slab::NONE;
use super::stream_ref::Context;

/// Packets of one chunk at most.
const PACKETS: u32 = 1024;
/// ... of one without payload. They are an event of their own, while what was noted of them is still
/// in the cache.
const PACKETS_ALONE: u32 = 64;
/// What the packets of a whole chunk of segments with payload take.
const PACKET_BYTES: usize = 1024;

/// A packet to be entered in the chunk under way of those who share the parameters of `leader`.
#[derive(Clone, Copy)]
pub(super) struct Note<'a> {
    pub(super) context: Context<'a>,
    pub(super) leader: ViewAt,
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
        while self.note_packet_once(events, note).is_none() && !self.is_over(note.leader) {}
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
            leader,
            packet,
            position,
            is_next,
        } = *note;
        let view = self.view(leader)?;
        let (mut chunk, limit, chunks) = (view.chunk, view.limit, view.chunks);
        if chunk == NONE
            || self
                .pending
                .get(chunk)
                .is_some_and(Pending::is_full_of_packets)
        {
            chunk = self.begin_packets(events, note);
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
            let has_room = self.grow_packets(events, note, chunk, room, chunks != 0);
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

    /// [`Core::note_packet`] of a stream that only one application wants, as long as there is memory
    /// that nobody has to be sent for. Returns whether it did; where it did not, nothing of the packet
    /// is noted.
    #[inline(never)]
    pub(super) fn note_alone(
        &mut self,
        id: u32,
        packet: &NewPacket<'_>,
        position: u64,
        is_next: bool,
    ) -> bool {
        let Some(record) = self.records.get(id) else {
            return false;
        };
        let view = &record.view;
        let (limit, goes_on) = (view.limit, view.chunks != 0);
        let (place, priority) = (view.parameters, view.priority);
        if !record.flags.has(RecordFlags::SIMPLE) {
            return false;
        }
        let mut chunk = view.chunk;
        if chunk == NONE {
            let target = self.parameters(place).chunk_bytes;
            self.open_chunk(
                ViewAt::first(id),
                Pending::of_packet(packet, position, target),
            );
            chunk = match self.records.get(id) {
                Some(record) => record.view.chunk,
                None => return false,
            };
        }
        let ceiling = self.watermarks.ceiling(priority);
        let Some(pending) = self.pending.get_mut(chunk) else {
            return false;
        };
        if pending.is_full_of_packets() {
            return false;
        }
        let len = packet.payload.len();
        let target = pending.target as usize;
        let bytes = &mut pending.content.bytes;
        let (at, end) = (bytes.len(), pending.start + (bytes.len() + len) as u64);
        let is_inside =
            is_next && pending.start + at as u64 == position && at + len <= target && end <= limit;
        if is_inside && len > bytes.capacity() - at {
            if at >= target {
                return false;
            }
            let size = Buffers::size(at + len, target);
            let Some(mut buffer) = self.at_hand(size, ceiling) else {
                return false;
            };
            let Some(pending) = self.pending.get_mut(chunk) else {
                return false;
            };
            buffer.extend(pending.content.bytes.as_slice());
            self.partial += buffer.capacity() as u64;
            let old = core::mem::replace(&mut pending.content.bytes, buffer);
            self.give_back(old);
        }
        let Some(pending) = self.pending.get_mut(chunk) else {
            return false;
        };
        let room = PacketLog::room_for(packet, is_inside);
        if !pending.packets.has_room(room) {
            let size = PacketLog::size(pending.packets.block.len(), room, goes_on);
            let Some(block) = self.at_hand(size, ceiling) else {
                return false;
            };
            let Some(pending) = self.pending.get_mut(chunk) else {
                return false;
            };
            self.partial += block.capacity() as u64;
            let old = pending.packets.move_to(block);
            self.give_back(old);
        }
        let Some(pending) = self.pending.get_mut(chunk) else {
            return false;
        };
        pending.packets.push(packet, is_inside.then_some(at as u32));
        true
    }

    /// A buffer, where there is one without anybody being sent.
    #[inline]
    fn at_hand(&mut self, size: usize, ceiling: u64) -> Option<Block> {
        if self.budget.used() + size as u64 > self.watermarks.base() {
            return None;
        }
        self.buffers.get(size, ceiling)
    }

    /// Takes back what was part of a chunk under way.
    #[inline]
    fn give_back(&mut self, block: Block) {
        self.partial -= block.capacity() as u64;
        self.buffers.put(block);
    }

    /// Begins a chunk with a packet; one that is under way is sent before.
    #[inline(never)]
    fn begin_packets<E: Events + ?Sized>(&mut self, events: &mut E, note: &Note<'_>) -> u32 {
        let leader = note.leader;
        self.send_pending(events, note.context, leader, ChunkFlags(0));
        let Some(view) = self.view(leader) else {
            return NONE;
        };
        let (chunk, place) = (view.chunk, view.parameters);
        if chunk != NONE {
            return chunk;
        }
        let target = self.parameters(place).chunk_bytes;
        let pending = Pending::of_packet(note.packet, note.position, target);
        self.open_chunk(leader, pending);
        self.view(leader).map_or(NONE, |view| view.chunk)
    }

    /// Gives the packets of a chunk room for `more` bytes; false when there is no memory.
    #[inline(never)]
    fn grow_packets<E: Events + ?Sized>(
        &mut self,
        events: &mut E,
        note: &Note<'_>,
        chunk: u32,
        more: usize,
        goes_on: bool,
    ) -> bool {
        let Note {
            context, leader, ..
        } = *note;
        let len = match self.pending.get(chunk) {
            Some(pending) => pending.packets.block.len(),
            None => return false,
        };
        let size = PacketLog::size(len, more, goes_on);
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
}

impl PacketLog {
    /// The size of the memory for `more` bytes behind `len`, of a stream that has filled a chunk or not.
    fn size(len: usize, more: usize, goes_on: bool) -> usize {
        // As with bytes: a stream that has filled a chunk will likely fill the next. Short ones have
        // two or three packets, or more than that.
        let least = match goes_on || len != 0 {
            true => PACKET_BYTES,
            false => 0,
        };
        (len + more).max(least)
    }
}

impl Pending {
    /// One that begins with a packet.
    fn of_packet(packet: &NewPacket<'_>, position: u64, target: u32) -> Pending {
        Pending {
            start: position,
            since: packet.time,
            time: packet.time,
            target,
            ..Pending::default()
        }
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
}
