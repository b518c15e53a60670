//! Packet delivery: the packets of a chunk as they were captured (section 5.7 of the paper).
//!
//! A packet is a record of its headers, stored after the chunk's bytes in the same memory, and a position in these
//! bytes: the payload is not stored twice. Payload that is not in the chunk (a copy of an earlier chunk's bytes, bytes
//! of the next chunk, bytes that lost against others) is stored separately.

use flowgauge_sys::blocks::Block;
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{Decoded, Nanos};

use crate::handler::StreamPacket;

/// A captured packet of a stream.
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
    /// Payload length according to the headers.
    pub payload_len: u32,
    /// Stream offset of its payload, if known.
    pub offset: Option<i64>,
}

/// A packet on its way into a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewPacket<'a> {
    pub(super) time: Nanos,
    pub(super) header: &'a [u8],
    pub(super) payload: &'a [u8],
    wire_len: u32,
    payload_len: u32,
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
            wire_len: decoded.wire_len,
            payload_len: decoded.payload_len,
            offset: offset.unwrap_or(UNKNOWN),
        }
    }

    pub(super) fn of(packet: &StreamPacket<'a>) -> NewPacket<'a> {
        NewPacket::new(packet.decoded, packet.frame, packet.payload, packet.offset)
    }

    /// As an application sees it.
    fn shown(&self) -> ChunkPacket<'a> {
        ChunkPacket {
            time: self.time,
            wire_len: self.wire_len,
            header: self.header,
            payload: self.payload,
            payload_len: self.payload_len,
            offset: (self.offset != UNKNOWN).then_some(self.offset),
        }
    }

    /// What stands behind the headers of one that has no short form.
    #[inline(never)]
    fn long_entry(&self, payload_at: Option<u32>) -> [u8; LONG_ENTRY + ENTRY] {
        let captured = self.payload.len() as u32;
        let mut entry = [0; LONG_ENTRY + ENTRY];
        let words = [
            self.offset as u64,
            pair(self.wire_len, self.payload_len),
            pair(captured, payload_at.unwrap_or(ASIDE)),
            self.time.0,
            LONG | (self.header.len() as u64) << 32,
        ];
        put_words(&mut entry, words);
        entry
    }

    /// The short form's second word for a chunk that begins at `start` in the stream, where it tells
    /// all there is to say.
    #[inline(always)]
    fn short_word(&self, start: u64, payload_at: Option<u32>) -> Option<u64> {
        let (header, len) = (self.header.len(), self.payload_len);
        let at = (self.offset as u64).wrapping_sub(start);
        let behind = self.wire_len.wrapping_sub(header as u32).wrapping_sub(len);
        let is_short = header < 1 << 10
            && behind < 1 << 5
            && len < 1 << 16
            && len as usize == self.payload.len()
            && at < 1 << 32
            && (len == 0 || payload_at == Some(at as u32));
        is_short.then_some(at << 32 | u64::from(len << 16 | behind << 10) | header as u64)
    }
}

/// What stands of a packet behind its headers.
const ENTRY: usize = 16;
/// What stands before that of a packet that has no short form.
const LONG_ENTRY: usize = 24;
/// In the place of the length behind the payload: it is such a one.
const LONG: u64 = 1 << 15;
/// Lines of a log that are fetched before it is read; those behind follow by themselves.
const FETCHED: usize = 16;
/// Instead of a place in the chunk: the payload stands before the headers.
const ASIDE: u32 = u32::MAX;
/// Instead of an offset: it is not known.
const UNKNOWN: i64 = i64::MIN;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Bytes it takes at most to enter a packet whose payload will be in the chunk, or is kept aside.
#[inline(always)]
pub(super) fn room_for(packet: &NewPacket<'_>, is_inside: bool) -> usize {
    let aside = if is_inside { 0 } else { packet.payload.len() };
    ENTRY + LONG_ENTRY + packet.header.len() + aside
}

/// Enters a packet at the end of a block, before those that are there, for a chunk that begins at
/// `start` in the stream. Its payload will be at `payload_at` in the chunk, or is kept aside. There has
/// to be room ([`room_for`]).
///
/// ```text
///  [payload aside] | headers | [offset:64 | wire_len:32, payload_len:32 | captured:32, payload_at:32]
///      | time:64 | header_len:10, behind_payload:5, 0:1, payload_len:16, payload_at:32
///  ... or behind the words in brackets
///      | time:64 | 0:15, 1:1, 0:16, header_len:32
/// ```
/// Most packets have the short form: they were captured whole, their payload is in the chunk, and that
/// says where it is in the stream.
#[inline(always)]
pub(super) fn enter(
    block: &mut Block,
    packet: &NewPacket<'_>,
    start: u64,
    payload_at: Option<u32>,
) {
    if let Some(word) = packet.short_word(start, payload_at) {
        let mut entry = [0; ENTRY];
        put_words(&mut entry, [packet.time.0, word]);
        block.stack(packet.header, &entry);
        block.set_pieces(block.pieces() + 1);
    } else {
        // (Given by value, it is never in memory otherwise.)
        enter_long(block, *packet, payload_at);
    }
}

#[inline(never)]
fn enter_long(block: &mut Block, packet: NewPacket<'_>, payload_at: Option<u32>) {
    block.stack(packet.header, &packet.long_entry(payload_at));
    if payload_at.is_none() {
        block.stack(packet.payload, &[]);
    }
    block.set_pieces(block.pieces() + 1);
}

/// The same in memory of its own, kept aside, as one is that has no chunk.
pub(super) fn entered(packet: &NewPacket<'_>) -> Vec<u8> {
    let entry = packet.long_entry(None);
    [packet.payload, packet.header, &entry].concat()
}

#[inline(always)]
fn put_words<const N: usize>(entry: &mut [u8], words: [u64; N]) {
    for (place, word) in entry.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_ne_bytes();
    }
}

/// Moves what was entered in a block to the end of another, where there is room for it.
pub(super) fn move_packets(from: &mut Block, to: &mut Block) {
    if from.pieces() != 0 {
        to.stack(from.stacked(), &[]);
        to.set_pieces(to.pieces() + from.pieces());
        from.unstack();
    }
}

/// The packets of a chunk, as they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Log<'a> {
    /// So many, [entered](enter) here.
    Entered(u32, &'a [u8]),
    /// One, where it was captured.
    One(&'a NewPacket<'a>),
}

impl<'a> Log<'a> {
    /// What was entered in a block.
    #[inline(always)]
    pub(super) fn of(block: &'a Block) -> Log<'a> {
        Log::Entered(block.pieces(), block.stacked())
    }

    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        match self {
            Log::Entered(count, _) => count,
            Log::One(_) => 1,
        }
    }

    /// Brings it closer: where a packet stands is only known from the one before.
    #[inline(never)]
    pub(super) fn fetch(self) {
        if let Log::Entered(_, log) = self {
            for line in log.rchunks(64).take(FETCHED) {
                prefetch_at(line, 0);
            }
        }
    }

    /// Packets of a chunk with these bytes, which begin at `start` in the stream. The payload of one that
    /// ends behind them is `rest`.
    #[inline]
    pub(super) fn packets(self, start: u64, chunk: &'a [u8], rest: &'a [u8]) -> Packets<'a> {
        let (left, log, one) = match self {
            Log::Entered(count, log) => (count as usize, log, None),
            Log::One(packet) => (1, &[][..], Some(packet)),
        };
        Packets {
            left,
            log,
            chunk,
            rest,
            start,
            one,
        }
    }
}

impl Default for Log<'_> {
    fn default() -> Self {
        Log::Entered(0, &[])
    }
}

/// The packets of a chunk in the order of capture.
#[derive(Clone, Debug, Default)]
pub struct Packets<'a> {
    left: usize,
    log: &'a [u8],
    chunk: &'a [u8],
    rest: &'a [u8],
    start: u64,
    one: Option<&'a NewPacket<'a>>,
}

impl<'a> Iterator for Packets<'a> {
    type Item = ChunkPacket<'a>;

    #[inline]
    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        let Some((before, entry)) = self.log.split_last_chunk::<ENTRY>() else {
            self.left = 0;
            return self.one.take().map(NewPacket::shown);
        };
        let [time, word] = words(entry);
        self.left = self.left.wrapping_sub(1);
        if word & LONG != 0 {
            let (rest, packet) = long_packet(before, (self.chunk, self.rest), Nanos(time), word)?;
            self.log = rest;
            return Some(packet);
        }
        let header_len = word as usize & 0x3ff;
        let (rest, header) = before.split_at_checked(before.len().wrapping_sub(header_len))?;
        self.log = rest;
        let (payload_len, at) = (word as u32 >> 16, (word >> 32) as usize);
        let payload = part(self.chunk, self.rest, at, payload_len as usize);
        Some(ChunkPacket {
            time: Nanos(time),
            wire_len: header_len as u32 + payload_len + (word as u32 >> 10 & 0x1f),
            header,
            payload,
            payload_len,
            offset: Some((self.start + at as u64) as i64),
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Packets<'_> {}

/// The payload at this place in the chunk, or the segment that it is where it ends behind that.
#[inline(always)]
fn part<'a>(chunk: &'a [u8], segment: &'a [u8], at: usize, len: usize) -> &'a [u8] {
    match chunk.get(at..at + len) {
        Some(payload) => payload,
        None => segment.get(..len).unwrap_or(&[]),
    }
}

/// One that has no short form, and what stands before it.
#[inline(never)]
fn long_packet<'a>(
    log: &'a [u8],
    (chunk, segment): (&'a [u8], &'a [u8]),
    time: Nanos,
    word: u64,
) -> Option<(&'a [u8], ChunkPacket<'a>)> {
    let (rest, entry) = log.split_last_chunk::<LONG_ENTRY>()?;
    let [offset, lengths, place] = words(entry);
    let (captured, payload_at) = (place as u32 as usize, (place >> 32) as u32);
    let header_len = (word >> 32) as usize;
    let (rest, header) = rest.split_at_checked(rest.len().wrapping_sub(header_len))?;
    let (rest, payload) = if payload_at == ASIDE {
        rest.split_at_checked(rest.len().wrapping_sub(captured))?
    } else {
        let at = payload_at as usize;
        (rest, part(chunk, segment, at, captured))
    };
    let packet = ChunkPacket {
        time,
        wire_len: lengths as u32,
        header,
        payload,
        payload_len: (lengths >> 32) as u32,
        offset: (offset as i64 != UNKNOWN).then_some(offset as i64),
    };
    Some((rest, packet))
}

#[inline(always)]
fn words<const BYTES: usize, const N: usize>(entry: &[u8; BYTES]) -> [u64; N] {
    let (words, _) = entry.as_chunks::<8>();
    core::array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use flowgauge_sys::blocks::Blocks;

    use super::*;

    /// A whole packet.
    fn packet<'a>(header: &'a [u8], payload: &'a [u8], offset: Option<i64>) -> NewPacket<'a> {
        NewPacket {
            time: Nanos(7),
            header,
            payload,
            wire_len: (header.len() + payload.len()) as u32,
            payload_len: payload.len() as u32,
            offset: offset.unwrap_or(UNKNOWN),
        }
    }

    /// Enters packets in a chunk that begins at 1000, and reads them.
    fn round(entered: &[(NewPacket<'_>, Option<u32>)], chunk: &[u8]) -> usize {
        let mut blocks = Blocks::new(1 << 21);
        let mut block = Block::EMPTY;
        for (packet, payload_at) in entered {
            let room = room_for(packet, payload_at.is_some());
            if block.room() < room {
                let size = block.stacked().len() + room;
                let mut larger = blocks.get(size).unwrap();
                move_packets(&mut block, &mut larger);
                block = larger;
            }
            enter(&mut block, packet, 1000, *payload_at);
        }
        let packets = Log::of(&block).packets(1000, chunk, b"k, and more");
        assert_eq!(packets.len(), entered.len());
        for (seen, (packet, payload_at)) in packets.zip(entered) {
            let payload = match payload_at {
                Some(at) => {
                    let end = *at as usize + packet.payload.len();
                    let segment = b"k, and more".get(..packet.payload.len());
                    let payload = chunk.get(*at as usize..end).or(segment);
                    payload.unwrap_or(&[])
                }
                None => packet.payload,
            };
            assert_eq!(
                seen,
                ChunkPacket {
                    payload,
                    ..packet.shown()
                }
            );
        }
        block.stacked().len()
    }

    #[test]
    fn packets_come_back_as_they_were_entered() {
        let snapped = NewPacket {
            wire_len: 1514,
            payload_len: 1448,
            ..packet(b"headers", b"unk", Some(1002))
        };
        let entered = [
            (packet(b"headers", b"", None), None),
            (packet(b"", b"payload", Some(-5)), None),
            (packet(b"0123456789", b"unk", Some(1 << 40)), Some(2)),
            (packet(b"h", b"beyond", Some(i64::MIN + 1)), Some(9)),
            (packet(&[7; 40_000], &[8; 70_000], Some(1000)), None),
            (snapped, Some(2)),
            (packet(b"h", b"ch", Some(1000)), None),
            (packet(b"header", b"hunk", Some(1001)), Some(1)),
            (packet(&[9; 1024], b"", Some(1005)), None),
            (packet(b"header", b"k, and", Some(1004)), Some(4)),
            (
                NewPacket {
                    wire_len: 90,
                    ..packet(b"header", b"k, and", Some(1004))
                },
                Some(4),
            ),
        ];
        round(&entered, b"chunk");
    }

    #[test]
    fn most_packets_take_sixteen_bytes_beside_their_headers() {
        let padded = NewPacket {
            wire_len: 64,
            ..packet(&[1; 54], b"", Some(1000 + u32::MAX as i64))
        };
        let ethernet = [
            (packet(&[1; 66], b"chunk", Some(1000)), Some(0)),
            (packet(&[1; 1023], b"", Some(1005)), None),
            (padded, Some(0)),
        ];
        assert_eq!(round(&ethernet, b"chunk"), 66 + 1023 + 54 + 3 * ENTRY);
        let other = [
            NewPacket {
                wire_len: 54 + 32,
                ..padded
            },
            NewPacket {
                wire_len: 53,
                ..padded
            },
            packet(&[1; 66], b"", Some(999)),
            packet(&[1; 66], b"", Some(1001 + u32::MAX as i64)),
        ];
        for packet in other {
            let len = packet.header.len() + ENTRY + LONG_ENTRY;
            assert_eq!(round(&[(packet, Some(0))], b""), len);
        }
        let one = packet(b"h", b"p", None);
        let copy = entered(&one);
        for log in [Log::One(&one), Log::Entered(1, &copy)] {
            let packets: Vec<_> = log.packets(0, b"", b"").collect();
            assert_eq!(packets, [one.shown()]);
        }
    }
}
