//! Items as bytes, for links between machines. `docs/links.md` has the same as tables.
//!
//! A payload begins with a byte that says what is in it and the time from which the first item's
//! differs. Numbers are LEB128 unless said otherwise, differences of times zigzag-coded. What items
//! refer to (interfaces, fields, schemas) is announced before them, once, and has the number of its
//! announcement.

mod announced;
mod bytes;
mod decode;
mod encode;

pub(crate) use announced::Announced;
use bytes::Bytes;
pub(crate) use decode::{ChunkPlace, Decoder};
pub(crate) use encode::Encoder;

/// Chunks are cut into pieces of this length.
const MOST_CHUNK: usize = 1 << 20;
/// Objects within objects within records.
const MOST_DEPTH: usize = 8;
/// Fields of all records that other machines announced; their names are never forgotten.
const MOST_FIELDS: usize = 16_384;
/// Bytes of the texts that describe a field.
const MOST_TEXT: usize = 1024;

/// What a payload holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    #[default]
    Packets = 1,
    Chunks = 2,
    Records = 3,
}

impl Kind {
    /// In messages.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

/// Packets: which of these follow the length.
const HAS_ORIGIN: u8 = 1;
const HAS_WIRE_LEN: u8 = 2;
const HAS_FLAGS: u8 = 4;
const HAS_VLAN: u8 = 8;

/// Streams: which of these times are known; the lowest bit says that the initiator sends.
const HAS_SYN: u8 = 2;
const HAS_ESTABLISHED: u8 = 4;

/// Chunks: the bytes were there before the chunk's time, by so much.
const IS_EARLY: u8 = 0x80;

/// Announcements.
const ORIGIN: u8 = 1;
const FIELD: u8 = 2;
const SCHEMA: u8 = 3;

/// For the fuzzer: reads bytes as announcements and a payload. The first byte says how many of the
/// next pieces, each with its length in a byte before it, are announcements.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut input = Bytes { bytes, at: 0 };
    let mut announced = Announced::default();
    for _ in 0..input.byte().unwrap_or(0) {
        let length = usize::from(input.byte().unwrap_or(0));
        announced.add(input.take(length).unwrap_or_default());
    }
    let payload = bytes.get(input.at..).unwrap_or_default();
    if let Some(decoder) = Decoder::new(payload) {
        read_all(payload, &announced, decoder);
    }
    if let Some((announced, at)) = Announced::of_whole(bytes, false)
        && let Some(decoder) = Decoder::behind(bytes, at)
    {
        read_all(bytes, &announced, decoder);
    }
}

fn read_all(payload: &[u8], announced: &Announced, mut decoder: Decoder) {
    while !decoder.is_at_end(payload) {
        let before = decoder.at;
        let is_read = match decoder.kind() {
            Kind::Packets => decoder.packet(payload, announced).map(|packet| {
                let end = packet.offset as usize + packet.captured_len as usize;
                assert!(end <= payload.len() && packet.wire_len >= packet.captured_len);
            }),
            Kind::Chunks => decoder.chunk(payload).map(|place| {
                let chunk = place.chunk(payload, decoder.streams());
                assert_eq!(chunk.map(|chunk| chunk.bytes.len()), Some(place.len));
            }),
            Kind::Records => decoder.record(payload, announced, None).map(drop),
        };
        if is_read.is_none() {
            return;
        }
        assert!(decoder.at > before);
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::OwnedRecord;
    use flowgauge_record::any::Value;
    use flowgauge_record::smtp::SmtpRow;
    use flowgauge_record::stream::StreamRow;
    use flowgauge_stack::{StreamChunk, StreamEnd, StreamInfo};
    use flowgauge_stream::StreamIdentity;
    use flowgauge_wire::{Address, LinkType, Nanos, PacketDescriptor, PacketFlags};
    use proptest::prelude::*;

    use super::bytes::text;
    use super::decode::symbol;
    use super::*;

    fn record() -> StreamRow<'static> {
        StreamRow {
            identity: StreamIdentity {
                flow_id: 0xfeed,
                source: (Address([0x20; 16]), 50956),
                destination: (Address::v4([192, 0, 2, 7]), 80),
                version: 6,
                protocol: 6,
                ..StreamIdentity::default()
            },
            bytes: 517,
            state: "fin",
            with_gaps: true,
            ..StreamRow::default()
        }
    }

    /// Announcements, and a payload that refers to them.
    fn records() -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut said = Vec::new();
        let mut encoder = Encoder::default();
        for time in [7, 5] {
            encoder.record(Nanos(time), &record(), &mut |text| {
                said.push(text);
                said.len() as u32 - 1
            });
        }
        (said, encoder.take().0)
    }

    #[test]
    fn records_come_as_they_went() {
        let (said, payload) = records();
        let mut announced = Announced::default();
        assert!(said.iter().all(|text| announced.add(text)));
        let mut decoder = Decoder::new(&payload).unwrap();
        let expected = OwnedRecord::of(&record());
        for time in [7, 5] {
            let (at, found) = decoder.record(&payload, &announced, None).unwrap();
            assert_eq!(at, Nanos(time));
            // The fields are others, of the same names.
            let pairs = |record: &OwnedRecord| -> Vec<(&str, Value)> {
                record
                    .iter()
                    .map(|(field, value)| (field.name, value.clone()))
                    .collect()
            };
            assert_eq!(pairs(&found), pairs(&expected));
        }
        assert!(decoder.is_at_end(&payload));
    }

    #[test]
    fn a_payload_that_stands_alone_needs_none_before_it() {
        let mut encoder = Encoder::default();
        let mut whole = |times: &[u64]| {
            let mut said = Vec::new();
            for time in times {
                encoder.record(Nanos(*time), &record(), &mut |text| {
                    said.push(text);
                    said.len() as u32 - 1
                });
            }
            encoder.take_whole(&mut said)
        };
        let payloads = [whole(&[7, 5]), whole(&[9])];
        let expected = OwnedRecord::of(&record());
        for (payload, count) in payloads {
            for numbers in [None, Some((0xfeed, 4))] {
                let (announced, at) = Announced::of_whole(&payload, numbers.is_some()).unwrap();
                let mut decoder = Decoder::behind(&payload, at).unwrap();
                for _ in 0..count {
                    let (_, found) = decoder.record(&payload, &announced, numbers).unwrap();
                    assert_eq!(found.get("bytes"), expected.get("bytes"));
                    let added = ["session", "number"].map(|name| found.get(name).cloned());
                    let numbered = [Some(Value::Hex(0xfeed)), Some(Value::Unsigned(4))];
                    assert_eq!(added, numbers.map_or([None, None], |_| numbered));
                }
                assert!(decoder.is_at_end(&payload));
            }
            for cut in 0..payload.len() {
                fuzz(&payload[..cut]);
            }
        }
    }

    #[test]
    fn numbers_of_files_come_whole() {
        let mail = SmtpRow {
            files: vec![u64::MAX, 1 << 32, 7],
            ..SmtpRow::default()
        };
        let (mut said, mut announced) = (Vec::new(), Announced::default());
        let mut encoder = Encoder::default();
        encoder.record(Nanos(1), &mail, &mut |text| {
            said.push(text);
            said.len() as u32 - 1
        });
        assert!(said.iter().all(|text| announced.add(text)));
        let payload = encoder.take().0;
        let mut decoder = Decoder::new(&payload).unwrap();
        let (_, found) = decoder.record(&payload, &announced, None).unwrap();
        let files = found.iter().find(|(field, _)| field.name == "files");
        let expected = Value::List(mail.files.as_slice().into());
        assert_eq!(files.map(|(_, value)| value), Some(&expected));
    }

    #[test]
    fn names_and_symbols_cannot_leave_their_quotes() {
        let mut announced = Announced::default();
        let mut field = vec![FIELD, 0, 0, 1, 0];
        for part in [&b"a\",\"b"[..], b"", b""] {
            text(&mut field, part);
        }
        assert!(!announced.add(&field));
        assert_eq!(symbol("SF"), Value::Symbol("SF".into()));
        assert_eq!(symbol("a\"b"), Value::Text("a\"b".into()));
    }

    #[test]
    fn the_same_fields_are_kept_once() {
        let (said, _) = records();
        let schema = |said: &[Vec<u8>]| {
            let mut announced = Announced::default();
            said.iter().for_each(|text| assert!(announced.add(text)));
            announced
                .schema(said.len() as u64 - 1)
                .unwrap()
                .as_ptr()
                .addr()
        };
        assert_eq!(schema(&said), schema(&said));
    }

    fn packets() -> impl Strategy<Value = Vec<(PacketDescriptor, Vec<u8>)>> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..80);
        let packet = (
            any::<u64>(),
            0..3_u16,
            0..3_u16,
            0..5_u32,
            any::<[u16; 2]>(),
            0..16_u16,
            bytes,
        );
        let packet = packet.prop_map(|(time, interface, link, extra, vlan, flags, bytes)| {
            let flags = PacketFlags(flags);
            let has_vlan = flags.contains(PacketFlags::VLAN);
            let packet = PacketDescriptor {
                time: Nanos(time),
                offset: 0,
                captured_len: bytes.len() as u32,
                wire_len: bytes.len() as u32 + extra,
                interface,
                link: LinkType(link),
                vlan_tpid: if has_vlan { vlan[0] } else { 0 },
                vlan_tci: if has_vlan { vlan[1] } else { 0 },
                flags,
            };
            (packet, bytes)
        });
        proptest::collection::vec(packet, 1..40)
    }

    proptest! {
        #[test]
        fn packets_come_as_they_went(packets in packets()) {
            let mut announced = Announced::default();
            let mut encoder = Encoder::default();
            let mut said = 0;
            for (packet, bytes) in &packets {
                encoder.packet(packet, bytes, &mut |text| {
                    assert!(announced.add(&text));
                    said += 1;
                    said - 1
                });
            }
            let (payload, count) = encoder.take();
            prop_assert_eq!(count as usize, packets.len());
            let mut decoder = Decoder::new(&payload).unwrap();
            for (packet, bytes) in &packets {
                let found = decoder.packet(&payload, &announced).unwrap();
                let at = found.offset as usize;
                prop_assert_eq!(&payload[at..at + bytes.len()], bytes.as_slice());
                let found = PacketDescriptor { offset: 0, ..found };
                prop_assert_eq!(format!("{found:?}"), format!("{packet:?}"));
            }
            prop_assert!(decoder.is_at_end(&payload));
        }

        #[test]
        fn chunks_come_as_they_went(
            chunks in proptest::collection::vec(
                (any::<u64>(), 0..u64::MAX / 2, any::<u64>(), proptest::collection::vec(any::<u8>(), 1..50), 0..4_usize),
                1..20,
            ),
        ) {
            let ends = [None, Some(StreamEnd::Fin), Some(StreamEnd::Rst), Some(StreamEnd::Timeout)];
            let streams = [4, 6, 4].map(|version| StreamInfo {
                source: (Address::v4([10, 0, 0, version]), 1000),
                destination: (Address::v4([10, 0, 0, 9]), 80),
                version,
                from_initiator: version == 4,
                start: Nanos(5),
                syn: (version == 4).then_some(Nanos(6)),
                established: None,
                retransmitted: 300,
            });
            let mut encoder = Encoder::default();
            for (time, offset, gap_before, bytes, which) in &chunks {
                encoder.chunk(&StreamChunk {
                    key: 9,
                    stream: &streams[which % 3],
                    bytes: if *which == 3 { &[] } else { bytes },
                    offset: *offset,
                    gap_before: *gap_before,
                    time: Nanos(*time),
                    captured: Nanos(*time - (*time).min(*offset % 3)),
                    end: ends[*which],
                });
            }
            let (payload, _) = encoder.take();
            let mut decoder = Decoder::new(&payload).unwrap();
            for (time, offset, gap_before, bytes, which) in &chunks {
                let found = decoder.chunk(&payload).unwrap();
                let chunk = found.chunk(&payload, decoder.streams()).unwrap();
                let bytes = if *which == 3 { &[][..] } else { bytes };
                prop_assert_eq!((chunk.bytes, chunk.time), (bytes, Nanos(*time)));
                prop_assert_eq!(chunk.captured.0, *time - (*time).min(*offset % 3));
                prop_assert_eq!((chunk.offset, chunk.gap_before), (*offset, *gap_before));
                prop_assert_eq!((chunk.stream, chunk.end), (&streams[which % 3], ends[*which]));
            }
            prop_assert!(decoder.is_at_end(&payload));
        }

        #[test]
        fn any_bytes_can_come(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }

        #[test]
        fn any_damage_can_come(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let (said, payload) = records();
            let mut bytes = vec![said.len() as u8];
            for text in &said {
                bytes.push(text.len() as u8);
                bytes.extend_from_slice(text);
            }
            bytes.extend_from_slice(&payload);
            *at.get_mut(&mut bytes) = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            fuzz(&bytes);
        }
    }
}
