//! Encoding of events: the body of a ring's entry, and the data in the pool that accompanies a
//! chunk.
//!
//! ```text
//!  area of the pool:  chunk | holes | packets | headers and payloads that the chunk does not have
//!                     ^0      ^extra, of the body
//! ```

use core::ops::Range;

use flowgauge_stream::StreamIdentity;
use flowgauge_stream::StreamStatus;
use flowgauge_stream::engine::{
    ApplicationId, ChunkFlags, ChunkInfo, ChunkPacket, Counts, Cutoff, DataChunk, Mode,
    StreamErrors, StreamSnapshot, StreamStatistics,
};
use flowgauge_sys::shared::BODY_BYTES;
use flowgauge_wire::{Address, Nanos};

use super::codec::{Wire, wire};

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

wire!(Kind as u8 { Created, Data, Terminated });
wire!(Body {
    kind,
    stream,
    chunk,
});
// What is not among these stays with the client.
wire!(StreamSnapshot {
    status,
    errors,
    priority,
    mode,
    from_initiator,
    is_cut,
    is_halted,
    is_discarded,
    uid,
    opposite_uid,
    identity,
    statistics,
    opposite_statistics,
    cutoff,
    chunks,
    missing_at_end,
    chunk_bytes,
    overlap_bytes,
} with application = ApplicationId(0), processing_time = 0, user_state = 0);
wire!(StreamIdentity {
    flow_id,
    start,
    source,
    destination,
    version,
    protocol,
    vlan,
});
wire!(StreamStatistics {
    start,
    end,
    wire_bytes,
    all,
    dropped,
    discarded,
});
wire!(Counts { packets, bytes });
wire!(ChunkBody {
    info,
    len,
    extra,
    holes,
    packets,
});
wire!(ChunkInfo {
    offset,
    gap_before,
    time,
    repeated,
    flags,
});
wire!(StreamStatus as u8 {
    Active,
    Fin,
    Rst,
    Timeout,
    EndOfInput,
    Evicted,
});
wire!(Mode as u8 { Wait, Fast, Strict });
wire!(Cutoff(..));
wire!(Nanos(..));
wire!(Address(..));
wire!(StreamErrors(..));
wire!(ChunkFlags(..));

impl Body {
    pub(super) fn encode(&self, scratch: &mut Vec<u8>) -> [u8; BODY_BYTES] {
        scratch.clear();
        self.put(scratch);
        let mut body = [0; BODY_BYTES];
        // A test holds them to the same length.
        for (to, from) in body.iter_mut().zip(scratch) {
            *to = *from;
        }
        body
    }

    /// `None` when it is no event.
    pub(super) fn decode(body: &[u8; BODY_BYTES], application: ApplicationId) -> Option<Body> {
        let mut body = Body::take(&mut &body[..])?;
        body.stream.application = application;
        Some(body)
    }
}

/// Bytes of a hole, and of a packet without its headers.
const HOLE_BYTES: usize = 8;
const PACKET_BYTES: usize = 36;
/// Where a payload is that the chunk does not have.
const ASIDE: u32 = u32::MAX;
/// A packet's offset that is not known.
const UNKNOWN: i64 = i64::MIN;

/// A packet of a chunk without its headers.
struct PacketRecord {
    time: Nanos,
    offset: i64,
    wire_len: u32,
    payload_len: u32,
    captured: u32,
    header_len: u32,
    /// In the chunk, or [`ASIDE`].
    place: u32,
}

wire!(PacketRecord {
    time,
    offset,
    wire_len,
    payload_len,
    captured,
    header_len,
    place,
});

/// Writes the holes and packets of a chunk, and returns their numbers.
pub(super) fn encode_extra(chunk: &DataChunk<'_>, out: &mut Vec<u8>) -> (u32, u32) {
    out.clear();
    let bytes = chunk.bytes();
    for hole in chunk.holes() {
        (hole.start, hole.end).put(out);
    }
    let holes = chunk.holes().len() as u32;
    let packets = chunk.packets();
    let count = packets.len() as u32;
    if count == 0 {
        return (holes, 0);
    }
    for packet in packets.clone() {
        let record = PacketRecord {
            time: packet.time,
            offset: packet.offset.unwrap_or(UNKNOWN),
            wire_len: packet.wire_len,
            payload_len: packet.payload_len,
            captured: packet.payload.len() as u32,
            header_len: packet.header.len() as u32,
            place: place_in(bytes, packet.payload).unwrap_or(ASIDE),
        };
        record.put(out);
    }
    for packet in packets {
        out.extend_from_slice(packet.header);
        if place_in(bytes, packet.payload).is_none() {
            out.extend_from_slice(packet.payload);
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
        let mut rest = area.get(body.extra as usize..)?;
        let holes = rest.split_off(..(body.holes as usize).checked_mul(HOLE_BYTES)?)?;
        let records = rest.split_off(..(body.packets as usize).checked_mul(PACKET_BYTES)?)?;
        Some(Content {
            bytes,
            holes,
            packets: SharedPackets {
                records,
                aside: rest,
                chunk: bytes,
            },
        })
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = Range<u32>> + use<'a> {
        let mut rest = self.holes;
        core::iter::from_fn(move || <(u32, u32)>::take(&mut rest).map(|(start, end)| start..end))
    }

    pub(super) fn packets(&self) -> SharedPackets<'a> {
        self.packets
    }
}

/// The packets of a chunk of a shared capture, in the order of capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedPackets<'a> {
    records: &'a [u8],
    aside: &'a [u8],
    chunk: &'a [u8],
}

impl<'a> Iterator for SharedPackets<'a> {
    type Item = ChunkPacket<'a>;

    fn next(&mut self) -> Option<ChunkPacket<'a>> {
        let record = PacketRecord::take(&mut self.records)?;
        let captured = record.captured as usize;
        let header = self.aside.split_off(..record.header_len as usize)?;
        let payload = if record.place == ASIDE {
            self.aside.split_off(..captured)?
        } else {
            let start = record.place as usize;
            self.chunk.get(start..start.checked_add(captured)?)?
        };
        Some(ChunkPacket {
            time: record.time,
            wire_len: record.wire_len,
            header,
            payload,
            payload_len: record.payload_len,
            offset: (record.offset != UNKNOWN).then_some(record.offset),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.records.len() / PACKET_BYTES;
        (count, Some(count))
    }
}

impl ExactSizeIterator for SharedPackets<'_> {}

#[cfg(test)]
pub(super) mod tests {
    use flowgauge_stream::engine::{Cutoff, Mode};

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
            let mut scratch = Vec::new();
            let bytes = body.encode(&mut scratch);
            assert!(scratch.len() <= BODY_BYTES, "{}", scratch.len());
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
