//! Packet delivery: the packets of a chunk as they were captured (section 5.7 of the paper).
//!
//! A packet is a record of its headers, kept aside, and a place in the chunk's bytes: the payload is
//! not kept twice. Only where the chunk does not have it (a copy of what an earlier chunk had, the
//! part that the next chunk has, bytes that lost against others) it is kept aside, too.

use flowgauge_sys::blocks::Block;
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{Decoded, Nanos};

use crate::handler::StreamPacket;

/// One captured packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPacket<'a> {
    /// Capture time.
    pub time: Nanos,
    /// Length on the wire.
    pub wire_len: u32,
    /// The captured frame up to its transport payload.
    pub header: &'a [u8],
    /// Captured payload.
    pub payload: &'a [u8],
    /// Payload length by the headers.
    pub payload_len: u32,
    /// Where its payload begins in the stream, where that is known.
    pub offset: Option<i64>,
}

/// A packet on its way into a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewPacket<'a> {
    pub(super) time: Nanos,
    pub(super) header: &'a [u8],
    pub(super) payload: &'a [u8],
    /// Length on the wire and of the payload, in one word: as they are kept.
    lengths: u64,
    /// Where its payload begins in the stream; `UNKNOWN` where that is not known.
    pub(super) offset: i64,
}

impl<'a> NewPacket<'a> {
    /// A packet whose payload is at `offset` in its stream.
    #[inline(always)]
    pub(super) fn new(
        decoded: &Decoded,
        frame: &'a [u8],
        payload: &'a [u8],
        offset: Option<i64>,
    ) -> NewPacket<'a> {
        let header_len = frame.len().min(decoded.payload_offset as usize);
        NewPacket {
            time: decoded.time,
            header: &frame[..header_len.min(usize::from(u16::MAX))],
            payload,
            lengths: pair(decoded.wire_len, decoded.payload_len),
            // Kept in 48 bits: no stream gets that far.
            offset: offset
                .filter(|offset| (-1 << 46..1 << 46).contains(offset))
                .unwrap_or(UNKNOWN),
        }
    }

    pub(super) fn of(packet: &StreamPacket<'a>) -> NewPacket<'a> {
        NewPacket::new(packet.decoded, packet.frame, packet.payload, packet.offset)
    }
}

/// What stands of a packet before its headers.
const ENTRY: usize = 32;
/// Lines of a log that are fetched before it is read; those behind follow by themselves.
const FETCHED: usize = 16;
/// Instead of a place in the chunk: the payload stands behind the headers.
const ASIDE: u32 = u32::MAX;
/// Instead of an offset: it is not known.
const UNKNOWN: i64 = i64::MIN >> 16;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The packets of a chunk, one behind the other in memory of the engine: what is written for a packet
/// is in one place, where what was written for the one before ends.
///
/// ```text
///  time:64 | header_len:16, offset:48 | wire_len:32, payload_len:32 | captured:32, payload_at:32
///  headers, payload where the chunk does not have it
/// ```
#[derive(Debug, Default)]
pub(super) struct PacketLog {
    pub(super) block: Block,
    pub(super) count: u32,
}

impl PacketLog {
    /// Bytes it takes to enter the packet.
    #[inline(always)]
    pub(super) fn room_for(packet: &NewPacket<'_>, is_inside: bool) -> usize {
        let aside = if is_inside { 0 } else { packet.payload.len() };
        ENTRY + packet.header.len() + aside
    }

    #[inline(always)]
    pub(super) fn has_room(&self, more: usize) -> bool {
        more <= self.block.capacity() - self.block.len()
    }

    /// Adds a packet. Its payload is at `payload_at` in the chunk, or is kept aside. There has to be
    /// room ([`PacketLog::room_for`]).
    #[inline]
    pub(super) fn push(&mut self, packet: &NewPacket<'_>, payload_at: Option<u32>) {
        let words = [
            packet.time.0,
            (packet.offset << 16) as u64 | packet.header.len() as u64 & 0xffff,
            packet.lengths,
            pair(packet.payload.len() as u32, payload_at.unwrap_or(ASIDE)),
        ];
        let mut entry = [0; ENTRY];
        for (place, word) in entry.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        self.block.push(&entry);
        self.block.extend(packet.header);
        if payload_at.is_none() {
            self.block.extend(packet.payload);
        }
        self.count += 1;
    }

    /// Brings what was written closer: where a packet stands is only known from the one before.
    #[inline]
    pub(super) fn fetch(&self) {
        for line in self.block.as_slice().chunks(64).take(FETCHED) {
            prefetch_at(line, 0);
        }
    }

    /// Goes on in larger memory. Returns what it was in.
    pub(super) fn move_to(&mut self, block: Block) -> Block {
        let old = core::mem::replace(&mut self.block, block);
        self.block.extend(old.as_slice());
        old
    }
}

/// The packets of a chunk in the order they were captured.
#[derive(Clone, Debug, Default)]
pub struct Packets<'a> {
    left: usize,
    log: &'a [u8],
    chunk: &'a [u8],
}

impl<'a> Packets<'a> {
    /// `count` packets in what a [`PacketLog`] has written.
    pub(super) fn new(count: u32, log: &'a [u8], chunk: &'a [u8]) -> Packets<'a> {
        Packets {
            left: count as usize,
            log,
            chunk,
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = ChunkPacket<'a>;

    #[inline]
    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (words, rest) = self.log.split_first_chunk::<ENTRY>()?;
        let (words, _) = words.as_chunks::<8>();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let (place, lengths, payload) = (word(1), word(2), word(3));
        let (captured, payload_at) = (payload as u32 as usize, (payload >> 32) as u32);
        let (header, behind) = rest.split_at_checked(place as usize & 0xffff)?;
        let (payload, aside) = if payload_at == ASIDE {
            (behind.get(..captured)?, captured)
        } else {
            let at = payload_at as usize;
            (self.chunk.get(at..at + captured).unwrap_or(&[]), 0)
        };
        self.log = behind.get(aside..)?;
        let offset = place as i64 >> 16;
        Some(ChunkPacket {
            time: Nanos(word(0)),
            wire_len: lengths as u32,
            header,
            payload,
            payload_len: (lengths >> 32) as u32,
            offset: (offset != UNKNOWN).then_some(offset),
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Packets<'_> {}

#[cfg(test)]
mod tests {
    use flowgauge_sys::blocks::Blocks;

    use super::*;

    #[test]
    fn packets_come_back_as_they_were_entered() {
        let mut blocks = Blocks::new(1 << 21);
        let mut log = PacketLog::default();
        let packet = |header, payload, offset: Option<i64>| NewPacket {
            time: Nanos(7),
            header,
            payload,
            lengths: pair(1514, 1448),
            offset: offset.unwrap_or(UNKNOWN),
        };
        let entered = [
            (packet(b"headers", b"", None), None),
            (packet(b"", b"payload", Some(-5)), None),
            (packet(b"0123456789", b"unk", Some(1 << 40)), Some(2)),
            (packet(b"h", b"beyond", Some(i64::MIN >> 17)), Some(9)),
        ];
        for (packet, payload_at) in &entered {
            let room = PacketLog::room_for(packet, payload_at.is_some());
            if !log.has_room(room) {
                let size = log.block.len() + room;
                log.move_to(blocks.get(size).unwrap());
            }
            log.push(packet, *payload_at);
        }
        let packets = Packets::new(log.count, log.block.as_slice(), b"chunk");
        assert_eq!(packets.len(), 4);
        let seen: Vec<_> = packets
            .map(|packet| {
                assert_eq!((packet.time, packet.payload_len), (Nanos(7), 1448));
                (packet.header, packet.payload, packet.offset)
            })
            .collect();
        let expected: [(&[u8], &[u8], Option<i64>); 4] = [
            (b"headers", b"", None),
            (b"", b"payload", Some(-5)),
            (b"0123456789", b"unk", Some(1 << 40)),
            (b"h", b"", Some(i64::MIN >> 17)),
        ];
        assert_eq!(seen, expected);
    }
}
