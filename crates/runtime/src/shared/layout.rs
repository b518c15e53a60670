//! Events as bytes: the body of a ring's entry, and what stands in the pool beside a chunk.
//!
//! ```text
//!  area of the pool:  chunk | holes | packets | headers and payloads that the chunk does not have
//!                     ^0      ^extra, of the body
//! ```

use core::ops::Range;

use flowgauge_stream::StreamIdentity;
use flowgauge_stream::StreamStatus;
use flowgauge_stream::engine::{
    ApplicationId, ChunkFlags, ChunkInfo, ChunkPacket, Counts, Cutoff, DataChunk, StreamErrors,
    StreamSnapshot, StreamStatistics,
};
use flowgauge_sys::shared::BODY_BYTES;
use flowgauge_wire::{Address, Nanos};

use super::codec::{Decoder, Encoder};
use super::protocol::decode_mode;

/// What kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Created = 1,
    Data = 2,
    Terminated = 3,
}

/// The chunk of a data event, as its entry describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkBody {
    pub(super) info: ChunkInfo,
    /// Bytes of the chunk.
    pub(super) len: u32,
    /// Where holes and packets begin in the area.
    pub(super) extra: u32,
    pub(super) holes: u32,
    pub(super) packets: u32,
}

/// An event without the bytes it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) kind: Kind,
    pub(super) stream: StreamSnapshot,
    pub(super) chunk: ChunkBody,
}

impl Body {
    pub(super) fn encode(&self, scratch: &mut Encoder) -> [u8; BODY_BYTES] {
        let stream = &self.stream;
        let out = scratch;
        out.0.clear();
        out.u8(self.kind as u8).u8(stream.status as u8);
        out.u8(stream.errors.0).u8(stream.priority);
        out.u8(stream.mode as u8).u8(stream.from_initiator.into());
        let over = u8::from(stream.is_cut) | u8::from(stream.is_halted) << 1;
        out.u8(over).u8(stream.is_discarded.into());
        out.u64(stream.uid).u64(stream.opposite_uid);
        let identity = &stream.identity;
        out.u64(identity.flow_id).u64(identity.start.0);
        for (address, port) in [&identity.source, &identity.destination] {
            out.bytes(&address.0).u16(*port);
        }
        out.u8(identity.version).u8(identity.protocol);
        out.u32(identity.vlan.map_or(u32::MAX, u32::from));
        for statistics in [&stream.statistics, &stream.opposite_statistics] {
            out.u64(statistics.start.0).u64(statistics.end.0);
            out.u64(statistics.wire_bytes);
            for counts in [&statistics.all, &statistics.dropped, &statistics.discarded] {
                out.u64(counts.packets).u64(counts.bytes);
            }
        }
        out.u64(stream.cutoff.0).u64(stream.chunks);
        out.u64(stream.missing_at_end);
        out.u32(stream.chunk_bytes).u32(stream.overlap_bytes);
        let ChunkBody {
            info,
            len,
            extra,
            holes,
            packets,
        } = &self.chunk;
        out.u64(info.offset).u64(info.gap_before).u64(info.time.0);
        out.u32(info.repeated).u16(info.flags.0);
        out.u32(*len).u32(*extra).u32(*holes).u32(*packets);
        let mut body = [0; BODY_BYTES];
        // A test holds them to the same length.
        for (to, from) in body.iter_mut().zip(&out.0) {
            *to = *from;
        }
        body
    }

    /// `None` when it is no event.
    pub(super) fn decode(body: &[u8; BODY_BYTES], application: ApplicationId) -> Option<Body> {
        let mut rest = Decoder(body);
        let number = rest.u8()?;
        let kind = [Kind::Created, Kind::Data, Kind::Terminated]
            .into_iter()
            .find(|kind| *kind as u8 == number)?;
        let status = decode_status(rest.u8()?)?;
        let errors = StreamErrors(rest.u8()?);
        let priority = rest.u8()?;
        let mode = decode_mode(rest.u8()?)?;
        let from_initiator = rest.flag()?;
        let over = rest.u8()?;
        if over > 3 {
            return None;
        }
        let (is_cut, is_halted) = (over & 1 != 0, over & 2 != 0);
        let is_discarded = rest.flag()?;
        let (uid, opposite_uid) = (rest.u64()?, rest.u64()?);
        let (flow_id, start) = (rest.u64()?, Nanos(rest.u64()?));
        let source = (Address(rest.array()?), rest.u16()?);
        let destination = (Address(rest.array()?), rest.u16()?);
        let (version, protocol) = (rest.u8()?, rest.u8()?);
        let vlan = u16::try_from(rest.u32()?).ok();
        let statistics = decode_statistics(&mut rest)?;
        let opposite_statistics = decode_statistics(&mut rest)?;
        let (cutoff, chunks) = (Cutoff(rest.u64()?), rest.u64()?);
        let missing_at_end = rest.u64()?;
        let (chunk_bytes, overlap_bytes) = (rest.u32()?, rest.u32()?);
        let info = ChunkInfo {
            offset: rest.u64()?,
            gap_before: rest.u64()?,
            time: Nanos(rest.u64()?),
            repeated: rest.u32()?,
            flags: ChunkFlags(rest.u16()?),
        };
        let chunk = ChunkBody {
            info,
            len: rest.u32()?,
            extra: rest.u32()?,
            holes: rest.u32()?,
            packets: rest.u32()?,
        };
        let stream = StreamSnapshot {
            uid,
            opposite_uid,
            application,
            identity: StreamIdentity {
                flow_id,
                start,
                source,
                destination,
                version,
                protocol,
                vlan,
            },
            from_initiator,
            statistics,
            opposite_statistics,
            status,
            missing_at_end,
            is_cut,
            is_halted,
            is_discarded,
            errors,
            cutoff,
            priority,
            chunk_bytes,
            overlap_bytes,
            mode,
            chunks,
            // These stay with the client.
            processing_time: 0,
            user_state: 0,
        };
        Some(Body {
            kind,
            stream,
            chunk,
        })
    }
}

fn decode_statistics(rest: &mut Decoder<'_>) -> Option<StreamStatistics> {
    let (start, end) = (Nanos(rest.u64()?), Nanos(rest.u64()?));
    let wire_bytes = rest.u64()?;
    let mut counts = || {
        let packets = rest.u64()?;
        let bytes = rest.u64()?;
        Some(Counts { packets, bytes })
    };
    Some(StreamStatistics {
        start,
        end,
        wire_bytes,
        all: counts()?,
        dropped: counts()?,
        discarded: counts()?,
    })
}

fn decode_status(number: u8) -> Option<StreamStatus> {
    [
        StreamStatus::Active,
        StreamStatus::Fin,
        StreamStatus::Rst,
        StreamStatus::Timeout,
        StreamStatus::EndOfInput,
        StreamStatus::Evicted,
    ]
    .into_iter()
    .find(|status| *status as u8 == number)
}

/// Bytes of a hole, and of a packet without its headers.
const HOLE_BYTES: usize = 8;
const PACKET_BYTES: usize = 36;
/// Where a payload is that the chunk does not have.
const ASIDE: u32 = u32::MAX;
/// A packet's offset that is not known.
const UNKNOWN: i64 = i64::MIN;

/// Writes the holes and packets of a chunk, and returns their numbers.
pub(super) fn encode_extra(chunk: &DataChunk<'_>, out: &mut Encoder) -> (u32, u32) {
    out.0.clear();
    let bytes = chunk.bytes();
    for hole in chunk.holes() {
        out.u32(hole.start).u32(hole.end);
    }
    let holes = chunk.holes().len() as u32;
    let packets = chunk.packets();
    let count = packets.len() as u32;
    if count == 0 {
        return (holes, 0);
    }
    for packet in packets.clone() {
        out.u64(packet.time.0);
        out.u64(packet.offset.unwrap_or(UNKNOWN).cast_unsigned());
        out.u32(packet.wire_len).u32(packet.payload_len);
        out.u32(packet.payload.len() as u32);
        out.u32(packet.header.len() as u32);
        out.u32(place_in(bytes, packet.payload).unwrap_or(ASIDE));
    }
    for packet in packets {
        out.bytes(packet.header);
        if place_in(bytes, packet.payload).is_none() {
            out.bytes(packet.payload);
        }
    }
    (holes, count)
}

/// Where `part` lies in `whole`, if it is a part of it and not a copy.
fn place_in(whole: &[u8], part: &[u8]) -> Option<u32> {
    let at = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (at + part.len() <= whole.len()).then_some(at as u32)
}

/// The bytes of a data event in the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content<'a> {
    pub(super) bytes: &'a [u8],
    holes: &'a [u8],
    packets: SharedPackets<'a>,
}

impl<'a> Content<'a> {
    /// Finds the parts of an area; `None` when it does not have them.
    pub(super) fn of(body: &ChunkBody, area: &'a [u8]) -> Option<Content<'a>> {
        let bytes = area.get(..body.len as usize)?;
        let mut rest = Decoder(area.get(body.extra as usize..)?);
        let holes = rest.bytes((body.holes as usize).checked_mul(HOLE_BYTES)?)?;
        let records = rest.bytes((body.packets as usize).checked_mul(PACKET_BYTES)?)?;
        Some(Content {
            bytes,
            holes,
            packets: SharedPackets {
                records: Decoder(records),
                aside: rest,
                chunk: bytes,
            },
        })
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let mut rest = Decoder(self.holes);
        core::iter::from_fn(move || Some(rest.u32()?..rest.u32()?))
    }

    pub(super) fn packets(&self) -> SharedPackets<'a> {
        self.packets
    }
}

/// The packets of a chunk of a shared capture, in the order they were captured.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedPackets<'a> {
    records: Decoder<'a>,
    aside: Decoder<'a>,
    chunk: &'a [u8],
}

impl<'a> Iterator for SharedPackets<'a> {
    type Item = ChunkPacket<'a>;

    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        let time = Nanos(self.records.u64()?);
        let offset = self.records.u64()?.cast_signed();
        let (wire_len, payload_len) = (self.records.u32()?, self.records.u32()?);
        let captured = self.records.u32()? as usize;
        let header_len = self.records.u32()? as usize;
        let place = self.records.u32()?;
        let header = self.aside.bytes(header_len)?;
        let payload = if place == ASIDE {
            self.aside.bytes(captured)?
        } else {
            let start = place as usize;
            self.chunk.get(start..start.checked_add(captured)?)?
        };
        Some(ChunkPacket {
            time,
            wire_len,
            header,
            payload,
            payload_len,
            offset: (offset != UNKNOWN).then_some(offset),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.records.0.len() / PACKET_BYTES;
        (count, Some(count))
    }
}

impl ExactSizeIterator for SharedPackets<'_> {}

#[cfg(test)]
pub(super) mod tests {
    use flowgauge_stream::engine::Mode;

    use super::*;

    pub(in crate::shared) fn snapshot(uid: u64) -> StreamSnapshot {
        let mut number = uid;
        let mut next = || {
            number += 1;
            number
        };
        let mut statistics = || StreamStatistics {
            start: Nanos(next()),
            end: Nanos(next()),
            all: Counts {
                packets: next(),
                bytes: next(),
            },
            wire_bytes: next(),
            dropped: Counts {
                packets: next(),
                bytes: next(),
            },
            discarded: Counts {
                packets: next(),
                bytes: next(),
            },
        };
        StreamSnapshot {
            uid,
            opposite_uid: uid ^ 1,
            application: ApplicationId(3),
            identity: StreamIdentity {
                flow_id: 99,
                start: Nanos(5),
                source: (Address::v4([10, 0, 0, 1]), 1234),
                destination: (Address::v4([10, 0, 0, 2]), 80),
                version: 4,
                protocol: 6,
                vlan: Some(7),
            },
            from_initiator: true,
            statistics: statistics(),
            opposite_statistics: statistics(),
            status: StreamStatus::Evicted,
            missing_at_end: 77,
            is_cut: true,
            is_halted: true,
            is_discarded: false,
            errors: StreamErrors(5),
            cutoff: Cutoff(12_345),
            priority: 200,
            chunk_bytes: 16_384,
            overlap_bytes: 17,
            mode: Mode::Fast,
            chunks: 42,
            processing_time: 0,
            user_state: 0,
        }
    }

    #[test]
    fn bodies_come_back_and_fit() {
        for kind in [Kind::Created, Kind::Data, Kind::Terminated] {
            let body = Body {
                kind,
                stream: snapshot(u64::MAX - 100),
                chunk: ChunkBody {
                    info: ChunkInfo {
                        offset: 1 << 40,
                        gap_before: 3,
                        repeated: 4,
                        flags: ChunkFlags::HOLE.with(ChunkFlags::LAST),
                        time: Nanos(9),
                    },
                    len: 10,
                    extra: 12,
                    holes: 1,
                    packets: u32::MAX,
                },
            };
            let mut scratch = Encoder::default();
            let bytes = body.encode(&mut scratch);
            assert!(scratch.0.len() <= BODY_BYTES, "{}", scratch.0.len());
            assert_eq!(Body::decode(&bytes, ApplicationId(3)), Some(body));
        }
    }

    #[test]
    fn other_bytes_are_no_event() {
        assert_eq!(Body::decode(&[0; BODY_BYTES], ApplicationId(0)), None);
        assert_eq!(Body::decode(&[0xff; BODY_BYTES], ApplicationId(0)), None);
        // Whatever the numbers say, nothing outside of the area is touched.
        let body = ChunkBody {
            len: 4,
            extra: 4,
            holes: 1,
            packets: 1,
            ..ChunkBody::default()
        };
        let area = [0xff; 4 + HOLE_BYTES + PACKET_BYTES];
        let content = Content::of(&body, &area).unwrap();
        assert_eq!(content.holes().count(), 1);
        assert_eq!(content.packets().len(), 1);
        assert!(content.packets().next().is_none(), "4 GiB of headers");
        assert!(Content::of(&body, &area[1..]).is_none());
        for wrong in [
            ChunkBody { len: 99, ..body },
            ChunkBody { extra: 99, ..body },
            ChunkBody {
                holes: u32::MAX,
                ..body
            },
            ChunkBody {
                packets: u32::MAX,
                ..body
            },
        ] {
            assert!(Content::of(&wrong, &area).is_none(), "{wrong:?}");
        }
    }
}
