//! Packets entered beside the bytes of a chunk under way.

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

impl Core {
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
        self.packets.count >= most
    }
}
