//! Items that go from one thread to another.

use std::sync::Arc;

use flowgauge_record::OwnedRecord;
use flowgauge_stack::{
    Items, NodeId, Packets, RecordItem, Selection, StreamChunk, StreamEnd, StreamInfo,
};
use flowgauge_wire::{Batch, DecodeFlags, DecodedBatch, HashSeed, Nanos, PacketDescriptor};

use super::reader::SharedBatch;

/// When in the course of a batch items were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// As the batch went through.
    #[default]
    Batch,
    /// By the clock, behind it.
    Clock,
    /// At the end of the input.
    End,
}

/// What a component made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) phase: Phase,
    pub(super) maker: NodeId,
    pub(super) items: OwnedItems,
}

/// Items that belong to nobody else.
#[derive(Debug)]
pub(super) enum OwnedItems {
    /// Packets of a batch that all have.
    Shared(Arc<SharedBatch>, Selection),
    Packets(Box<OwnedPackets>),
    Chunks(OwnedChunks),
    Records(Vec<(Nanos, OwnedRecord)>),
}

/// Packets that were copied, the selected ones only.
#[derive(Debug)]
pub(super) struct OwnedPackets {
    memory: Vec<u8>,
    descriptors: Vec<PacketDescriptor>,
    decoded: DecodedBatch,
    origins: Vec<u16>,
    seed: HashSeed,
}

/// Chunks that were copied.
#[derive(Debug, Default)]
pub(super) struct OwnedChunks {
    memory: Vec<u8>,
    chunks: Vec<KeptChunk>,
}

/// What there is to know of a chunk beside its bytes.
#[derive(Clone, Copy, Debug)]
struct KeptChunk {
    stream: StreamInfo,
    length: usize,
    offset: u64,
    gap_before: u64,
    time: Nanos,
    end: Option<StreamEnd>,
}

impl OwnedItems {
    /// A copy; `None` for what cannot be copied.
    pub(super) fn copy(items: Items<'_>) -> Option<OwnedItems> {
        match items {
            Items::Packets(packets) => {
                Some(OwnedItems::Packets(Box::new(OwnedPackets::copy(&packets))))
            }
            Items::Chunks(chunks) => Some(OwnedItems::Chunks(OwnedChunks::copy(chunks))),
            Items::Records(records) => Some(OwnedItems::Records(
                records
                    .iter()
                    .map(|item| (item.time, OwnedRecord::of(item.record)))
                    .collect(),
            )),
            _ => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            OwnedItems::Shared(_, selected) => selected.len(),
            OwnedItems::Packets(packets) => packets.descriptors.len(),
            OwnedItems::Chunks(chunks) => chunks.chunks.len(),
            OwnedItems::Records(records) => records.len(),
        }
    }

    /// What puts the item at a place in order among those that other threads made in the same batch.
    pub(super) fn order(&self, place: usize) -> u64 {
        match self {
            OwnedItems::Shared(..) => place as u64,
            OwnedItems::Packets(packets) => match packets.origins.get(place) {
                Some(&origin) => u64::from(origin),
                None => packets
                    .descriptors
                    .get(place)
                    .map_or(0, |packet| packet.time.0),
            },
            OwnedItems::Chunks(chunks) => chunks.chunks.get(place).map_or(0, |chunk| chunk.time.0),
            OwnedItems::Records(records) => records.get(place).map_or(0, |(time, _)| time.0),
        }
    }

    /// The places of all items.
    pub(super) fn places(&self) -> Vec<usize> {
        match self {
            OwnedItems::Shared(_, selected) => selected.iter().collect(),
            _ => (0..self.len()).collect(),
        }
    }

    /// Gives the items at some places, in order; `None`: all.
    pub(super) fn give(&self, places: Option<&[usize]>, give: impl FnOnce(Items<'_>)) {
        match self {
            OwnedItems::Shared(shared, selected) => {
                let batch = shared.batch();
                let selected = places.map_or(*selected, selection);
                give(Items::Packets(Packets {
                    selected,
                    ..shared.packets(&batch)
                }));
            }
            OwnedItems::Packets(packets) => {
                let batch = Batch::new(&packets.memory, &packets.descriptors);
                let all = Packets {
                    origins: &packets.origins,
                    ..Packets::new(&batch, &packets.decoded, packets.seed)
                };
                let selected = places.map_or(all.selected, selection);
                give(Items::Packets(Packets { selected, ..all }));
            }
            OwnedItems::Chunks(chunks) => {
                let all = chunks.all();
                match places {
                    None => give(Items::Chunks(&all)),
                    Some(places) => {
                        let some = places.iter().filter_map(|&place| all.get(place).copied());
                        give(Items::Chunks(&some.collect::<Vec<_>>()));
                    }
                }
            }
            OwnedItems::Records(records) => {
                let all: Vec<RecordItem<'_>> = match places {
                    None => records.iter().map(as_item).collect(),
                    Some(places) => {
                        let some = places.iter().filter_map(|&place| records.get(place));
                        some.map(as_item).collect()
                    }
                };
                give(Items::Records(&all));
            }
        }
    }
}

fn as_item((time, record): &(Nanos, OwnedRecord)) -> RecordItem<'_> {
    RecordItem {
        key: 0,
        time: *time,
        record,
    }
}

fn selection(places: &[usize]) -> Selection {
    let mut selection = Selection::NONE;
    places.iter().for_each(|&place| selection.insert(place));
    selection
}

impl OwnedPackets {
    fn copy(packets: &Packets<'_>) -> OwnedPackets {
        let mut copy = OwnedPackets {
            memory: Vec::new(),
            descriptors: Vec::new(),
            decoded: DecodedBatch::default(),
            origins: Vec::new(),
            seed: packets.seed,
        };
        copy.decoded.tunnels.clone_from(&packets.decoded.tunnels);
        copy.decoded.summary = packets.decoded.summary;
        for place in packets.selected.iter() {
            let decoded = packets.decoded.packets.get(place);
            let index = decoded.map_or(place, |decoded| usize::from(decoded.index));
            let Some(descriptor) = packets.batch.packets.get(index) else {
                continue;
            };
            let bytes = packets.batch.bytes_of(descriptor);
            let new = copy.descriptors.len() as u16;
            copy.descriptors.push(PacketDescriptor {
                offset: copy.memory.len() as u32,
                captured_len: bytes.len() as u32,
                ..*descriptor
            });
            copy.memory.extend_from_slice(bytes);
            copy.origins.extend(packets.origins.get(place));
            let Some(&decoded) = decoded else {
                continue;
            };
            if decoded.flags.contains(DecodeFlags::REASSEMBLED) {
                let datagram = packets.decoded.bytes(packets.batch, &decoded);
                let start = copy.decoded.memory.len() as u32;
                copy.decoded
                    .datagrams
                    .push((new, start, datagram.len() as u32));
                copy.decoded.memory.extend_from_slice(datagram);
            }
            let mut decoded = decoded;
            decoded.index = new;
            copy.decoded.packets.push(decoded);
        }
        copy
    }
}

impl OwnedChunks {
    fn copy(chunks: &[StreamChunk<'_>]) -> OwnedChunks {
        let mut copy = OwnedChunks::default();
        for chunk in chunks {
            copy.memory.extend_from_slice(chunk.bytes);
            copy.chunks.push(KeptChunk {
                stream: *chunk.stream,
                length: chunk.bytes.len(),
                offset: chunk.offset,
                gap_before: chunk.gap_before,
                time: chunk.time,
                end: chunk.end,
            });
        }
        copy
    }

    fn all(&self) -> Vec<StreamChunk<'_>> {
        let mut rest = &self.memory[..];
        let chunks = self.chunks.iter().map(|kept| {
            let (bytes, behind) = rest.split_at_checked(kept.length).unwrap_or((rest, &[]));
            rest = behind;
            StreamChunk {
                key: 0,
                stream: &kept.stream,
                bytes,
                offset: kept.offset,
                gap_before: kept.gap_before,
                time: kept.time,
                end: kept.end,
            }
        });
        chunks.collect()
    }
}

/// What goes from one stage to the next for each batch.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// The capture clock behind the batch.
    pub(super) now: Nanos,
    /// What is left of the batch.
    pub(super) left: Option<(Arc<SharedBatch>, Selection)>,
    pub(super) made: Vec<Made>,
    /// No other follows: the input is over.
    pub(super) is_last: bool,
}

impl Message {
    /// How many items it carries.
    pub(super) fn len(&self) -> u64 {
        let left = self.left.as_ref().map_or(0, |(_, selected)| selected.len());
        let made: usize = self.made.iter().map(|made| made.items.len()).sum();
        (left + made) as u64
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{DecodeOptions, Decoder, LinkType};

    use super::*;

    #[test]
    fn a_copy_has_the_selected_packets_with_their_headers_and_bytes() {
        let mut memory = Vec::new();
        let mut packets = Vec::new();
        for port in [1u16, 2, 3] {
            let offset = memory.len() as u32;
            memory.extend([
                0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
            ]);
            memory.extend(port.to_be_bytes());
            memory.extend([0, 53, 0, 8, 0, 0]);
            packets.push(PacketDescriptor {
                time: Nanos(u64::from(port)),
                offset,
                captured_len: 28,
                wire_len: 28,
                link: LinkType::RAW,
                ..PacketDescriptor::default()
            });
        }
        let batch = Batch::new(&memory, &packets);
        let mut decoded = DecodedBatch::new();
        Decoder::new(DecodeOptions::default()).decode_batch(&batch, &mut decoded);
        let mut all = Packets::new(&batch, &decoded, HashSeed::FIXED);
        all.selected.remove(1);
        all.origins = &[7, 8, 9];
        let copy = OwnedItems::copy(Items::Packets(all)).unwrap();
        drop((memory, packets));
        assert_eq!((copy.len(), copy.order(0), copy.order(1)), (2, 7, 9));
        let mut seen = Vec::new();
        copy.give(Some(&[1]), |items| {
            let Items::Packets(packets) = items else {
                panic!("packets were copied");
            };
            for (_, packet) in packets.iter() {
                seen.push((
                    packet.source().1,
                    packet.time.0,
                    packets.bytes(packet).len(),
                ));
            }
        });
        assert_eq!(seen, [(3, 3, 28)]);
    }

    #[test]
    fn a_copy_of_chunks_has_their_bytes() {
        let stream = StreamInfo::default();
        let chunk = |bytes, time| StreamChunk {
            key: 3,
            stream: &stream,
            end: None,
            bytes,
            offset: 1,
            gap_before: 0,
            time: Nanos(time),
        };
        let copy = OwnedItems::copy(Items::Chunks(&[chunk(b"one", 5), chunk(b"to", 4)])).unwrap();
        assert_eq!((copy.order(0), copy.order(1)), (5, 4));
        copy.give(None, |items| {
            let Items::Chunks(chunks) = items else {
                panic!("chunks were copied");
            };
            let bytes: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.bytes).collect();
            assert_eq!(bytes, [&b"one"[..], b"to"]);
            assert!(chunks.iter().all(|chunk| chunk.key == 0));
        });
    }
}
