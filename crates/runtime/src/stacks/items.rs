//! Items that are passed from one thread to another.

use std::sync::Arc;

use flowgauge_record::RecordStore;
use flowgauge_stack::{
    Items, NodeId, Packets, RecordItem, ResultValue, Selection, StreamChunk, StreamEnd, StreamInfo,
};
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, Nanos, PacketDescriptor};

use crate::reader::SharedBatch;

/// How many items of a message are given on at once.
const AT_ONCE: usize = 16;

/// When in the course of a piece items were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// By the clock, before the piece.
    Clock,
    /// As the piece went through.
    #[default]
    Piece,
    /// At the end of the input.
    End,
}

/// What a component made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// In which piece of the message.
    pub(super) piece: usize,
    pub(super) phase: Phase,
    pub(super) maker: NodeId,
    kept: Kept,
}

/// Where a message has items.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// Packets of the batch that all have.
    Shared(Selection),
    /// One of the copies.
    Packets(usize),
    /// So many chunks, from one on; where their bytes begin.
    Chunks {
        first: usize,
        count: usize,
        bytes: usize,
    },
    /// So many records, from one on.
    Records { first: usize, count: usize },
}

/// Packets that were copied, the selected ones only.
#[derive(Debug)]
struct OwnedPackets {
    memory: Vec<u8>,
    descriptors: Vec<PacketDescriptor>,
    decoded: DecodedBatch,
    origins: Vec<u16>,
    before: u64,
}

/// What there is to know of a chunk beside its bytes.
#[derive(Clone, Copy, Debug)]
struct KeptChunk {
    stream: StreamInfo,
    length: usize,
    offset: u64,
    gap_before: u64,
    time: Nanos,
    captured: Nanos,
    end: Option<StreamEnd>,
}

/// A part of a batch between two looks at the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// Where the clock came to before it.
    pub(super) clock: Option<Nanos>,
    /// What is left of the batch's packets in it.
    pub(super) left: Selection,
}

/// What goes from one stage to the next for each batch. Its memory serves again.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// The batch that all have.
    pub(super) batch: Option<Arc<SharedBatch>>,
    pub(super) pieces: Vec<Piece>,
    pub(super) made: Vec<Made>,
    /// Results that the next stage uses, with the piece and the phase at whose end they were so.
    results: Vec<(usize, Phase, NodeId, ResultValue)>,
    /// No other follows: the input is over.
    pub(super) is_last: bool,
    /// Its [`Message::bytes`] when it was sent.
    pub(super) sent_bytes: usize,
    /// Of these the first so many are in use.
    packets: Vec<OwnedPackets>,
    packets_used: usize,
    chunks: Vec<KeptChunk>,
    bytes: Vec<u8>,
    times: Vec<Nanos>,
    records: RecordStore,
}

impl Message {
    /// An empty one.
    pub(super) fn begun() -> Message {
        let mut message = Message::default();
        message.clear();
        message
    }

    /// How many items it carries.
    pub(super) fn len(&self) -> u64 {
        let left: usize = self.pieces.iter().map(|piece| piece.left.len()).sum();
        let made: usize = self.made.iter().map(|made| self.count(made)).sum();
        (left + made) as u64
    }

    /// Bytes of memory of what it carries, the batch that all have left out.
    pub(super) fn bytes(&self) -> usize {
        let packets = self.packets.iter().take(self.packets_used);
        packets.map(OwnedPackets::bytes).sum::<usize>()
            + self.chunks.len() * size_of::<KeptChunk>()
            + self.bytes.len()
            + self.times.len() * size_of::<Nanos>()
            + self.records.bytes()
    }

    /// Forgets all but its memory.
    pub(super) fn clear(&mut self) {
        self.batch = None;
        self.pieces.clear();
        // What comes before the clock goes on.
        self.pieces.push(Piece::default());
        self.made.clear();
        self.results.clear();
        self.is_last = false;
        self.sent_bytes = 0;
        self.packets_used = 0;
        self.chunks.clear();
        self.bytes.clear();
        self.times.clear();
        self.records.clear();
    }

    /// The clock has come to `now`: another piece begins.
    pub(super) fn begin_piece(&mut self, now: Nanos) {
        self.pieces.push(Piece {
            clock: Some(now),
            left: Selection::NONE,
        });
    }

    /// Keeps results as they are now.
    pub(super) fn take_results(&mut self, phase: Phase, results: &[(NodeId, ResultValue)]) {
        let piece = self.pieces.len().saturating_sub(1);
        self.results
            .retain(|(at, when, ..)| (*at, *when) != (piece, phase));
        let results = results.iter();
        self.results
            .extend(results.map(|(id, result)| (piece, phase, *id, result.clone())));
    }

    /// The results at the end of a phase of a piece.
    pub(super) fn results(
        &self,
        piece: usize,
        phase: Phase,
    ) -> impl Iterator<Item = (NodeId, &ResultValue)> {
        let results = self.results.iter();
        results
            .filter(move |(at, when, ..)| (*at, *when) == (piece, phase))
            .map(|(.., id, result)| (*id, result))
    }

    /// Keeps what is left of a batch, or what `maker` made.
    pub(super) fn take(&mut self, phase: Phase, maker: Option<NodeId>, items: Items<'_>) {
        let batch = self.batch.as_ref();
        let kept = match items {
            Items::Packets(packets) if batch.is_some_and(|batch| batch.has(packets.decoded)) => {
                if maker.is_none()
                    && let Some(piece) = self.pieces.last_mut()
                {
                    piece.left = piece.left.or(packets.selected);
                    return;
                }
                Kept::Shared(packets.selected)
            }
            Items::Packets(packets) => {
                let at = self.packets_used;
                if self.packets.len() <= at {
                    self.packets.push(OwnedPackets::new());
                }
                self.packets[at].copy(&packets);
                self.packets_used += 1;
                Kept::Packets(at)
            }
            Items::Chunks(chunks) => {
                let (first, bytes) = (self.chunks.len(), self.bytes.len());
                for chunk in chunks {
                    self.bytes.extend_from_slice(chunk.bytes);
                    self.chunks.push(KeptChunk {
                        stream: *chunk.stream,
                        length: chunk.bytes.len(),
                        offset: chunk.offset,
                        gap_before: chunk.gap_before,
                        time: chunk.time,
                        captured: chunk.captured,
                        end: chunk.end,
                    });
                }
                Kept::Chunks {
                    first,
                    count: chunks.len(),
                    bytes,
                }
            }
            Items::Records(records) => {
                let first = self.records.len();
                for item in records {
                    self.records.push(item.record);
                    self.times.push(item.time);
                }
                Kept::Records {
                    first,
                    count: records.len(),
                }
            }
            // There is nothing else yet.
            _ => return,
        };
        self.made.push(Made {
            piece: self.pieces.len().saturating_sub(1),
            phase,
            maker: maker.unwrap_or(NodeId(u32::MAX)),
            kept,
        });
    }

    fn count(&self, made: &Made) -> usize {
        match made.kept {
            Kept::Shared(selected) => selected.len(),
            Kept::Packets(at) => self.packets.get(at).map_or(0, |it| it.descriptors.len()),
            Kept::Chunks { count, .. } | Kept::Records { count, .. } => count,
        }
    }

    /// The places of all items of one, and what puts each in order among those that other threads made
    /// in the same piece.
    pub(super) fn order(&self, made: &Made, mut give: impl FnMut(usize, u64)) {
        match made.kept {
            Kept::Shared(selected) => selected.iter().for_each(|place| give(place, place as u64)),
            Kept::Packets(at) => {
                let Some(packets) = self.packets.get(at) else {
                    return;
                };
                for (place, descriptor) in packets.descriptors.iter().enumerate() {
                    let origin = packets.origins.get(place).copied();
                    give(place, origin.map_or(descriptor.time.0, u64::from));
                }
            }
            Kept::Chunks { first, count, .. } => {
                let chunks = self.chunks.get(first..first + count).unwrap_or_default();
                let chunks = chunks.iter().enumerate();
                chunks.for_each(|(place, chunk)| give(place, chunk.time.0));
            }
            Kept::Records { first, count } => {
                let times = self.times.get(first..first + count).unwrap_or_default();
                let times = times.iter().enumerate();
                times.for_each(|(place, time)| give(place, time.0));
            }
        }
    }

    /// Gives the items of one at some places, in order; `None`: all.
    pub(super) fn give(
        &self,
        made: &Made,
        places: Option<&[usize]>,
        mut give: impl FnMut(Items<'_>),
    ) {
        match made.kept {
            Kept::Shared(selected) => {
                let Some(shared) = &self.batch else {
                    return;
                };
                let batch = shared.batch();
                let selected = places.map_or(selected, selection);
                give(Items::Packets(Packets {
                    selected,
                    ..shared.packets(&batch)
                }));
            }
            Kept::Packets(at) => {
                let Some(packets) = self.packets.get(at) else {
                    return;
                };
                let batch = Batch::new(&packets.memory, &packets.descriptors);
                let all = Packets {
                    origins: &packets.origins,
                    before: packets.before,
                    ..Packets::new(&batch, &packets.decoded)
                };
                let selected = places.map_or(all.selected, selection);
                give(Items::Packets(Packets { selected, ..all }));
            }
            Kept::Chunks {
                first,
                count,
                bytes,
            } => self.give_chunks(first, count, bytes, places, give),
            Kept::Records { first, count } => {
                let all = (0..count).filter(|place| is_wanted(places, *place));
                let mut all = all.filter_map(|place| {
                    let time = self.times.get(first + place)?;
                    Some((*time, self.records.get(first + place)?))
                });
                while let Some(first) = all.next() {
                    let mut some = [first; AT_ONCE];
                    let filled = 1 + fill(&mut some[1..], &mut all);
                    let items: [RecordItem<'_>; AT_ONCE] =
                        core::array::from_fn(|place| RecordItem {
                            key: 0,
                            time: some[place].0,
                            record: &some[place].1,
                        });
                    give(Items::Records(&items[..filled]));
                }
            }
        }
    }

    fn give_chunks(
        &self,
        first: usize,
        count: usize,
        bytes: usize,
        places: Option<&[usize]>,
        mut give: impl FnMut(Items<'_>),
    ) {
        let kept = self.chunks.get(first..first + count).unwrap_or_default();
        let mut rest = self.bytes.get(bytes..).unwrap_or_default();
        let all = kept.iter().enumerate().map(|(place, kept)| {
            let (bytes, behind) = rest.split_at_checked(kept.length).unwrap_or((rest, &[]));
            rest = behind;
            let chunk = StreamChunk {
                key: 0,
                stream: &kept.stream,
                bytes,
                offset: kept.offset,
                gap_before: kept.gap_before,
                time: kept.time,
                captured: kept.captured,
                end: kept.end,
            };
            (place, chunk)
        });
        let wanted = all.filter(|(place, _)| is_wanted(places, *place));
        let mut wanted = wanted.map(|(_, chunk)| chunk);
        while let Some(chunk) = wanted.next() {
            let mut some = [chunk; AT_ONCE];
            let filled = 1 + fill(&mut some[1..], &mut wanted);
            give(Items::Chunks(&some[..filled]));
        }
    }
}

/// Whether a place is among these, which are in order; `None`: all are.
fn is_wanted(places: Option<&[usize]>, place: usize) -> bool {
    places.is_none_or(|places| places.binary_search(&place).is_ok())
}

/// Puts as many as there are, and there is room for, into `some`.
fn fill<T>(some: &mut [T], all: &mut impl Iterator<Item = T>) -> usize {
    let mut filled = 0;
    for (room, one) in some.iter_mut().zip(all) {
        *room = one;
        filled += 1;
    }
    filled
}

fn selection(places: &[usize]) -> Selection {
    let mut selection = Selection::NONE;
    places.iter().for_each(|&place| selection.insert(place));
    selection
}

impl OwnedPackets {
    fn new() -> OwnedPackets {
        OwnedPackets {
            memory: Vec::new(),
            descriptors: Vec::new(),
            decoded: DecodedBatch::new(),
            origins: Vec::new(),
            before: 0,
        }
    }

    fn bytes(&self) -> usize {
        self.memory.len()
            + self.decoded.memory.len()
            + self.descriptors.len() * (size_of::<PacketDescriptor>() + size_of::<Decoded>())
    }

    fn copy(&mut self, packets: &Packets<'_>) {
        self.memory.clear();
        self.descriptors.clear();
        self.origins.clear();
        self.before = packets.before;
        self.decoded.clear();
        self.decoded.tunnels.clone_from(&packets.decoded.tunnels);
        self.decoded.summary = packets.decoded.summary;
        for place in packets.selected.iter() {
            let decoded = packets.decoded.packets.get(place);
            let index = decoded.map_or(place, |decoded| usize::from(decoded.index));
            let Some(descriptor) = packets.batch.packets.get(index) else {
                continue;
            };
            let bytes = packets.batch.bytes_of(descriptor);
            let new = self.descriptors.len() as u16;
            self.descriptors.push(PacketDescriptor {
                offset: self.memory.len() as u32,
                captured_len: bytes.len() as u32,
                ..*descriptor
            });
            self.memory.extend_from_slice(bytes);
            let origin = packets.origins.get(place).copied();
            self.origins.push(origin.unwrap_or(index as u16));
            let Some(&decoded) = decoded else {
                continue;
            };
            if decoded.flags.contains(DecodeFlags::REASSEMBLED) {
                let datagram = packets.decoded.bytes(packets.batch, &decoded);
                let start = self.decoded.memory.len() as u32;
                self.decoded
                    .datagrams
                    .push((new, start, datagram.len() as u32));
                self.decoded.memory.extend_from_slice(datagram);
            }
            let mut decoded = decoded;
            decoded.index = new;
            self.decoded.packets.push(decoded);
        }
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
        let mut all = Packets::new(&batch, &decoded);
        all.selected.remove(1);
        all.origins = &[7, 8, 9];
        all.before = 100;
        let mut copy = Message::begun();
        copy.take(Phase::Piece, Some(NodeId(4)), Items::Packets(all));
        drop((memory, packets));
        let made = copy.made[0];
        let mut order = Vec::new();
        copy.order(&made, |place, of| order.push((place, of)));
        assert_eq!((copy.len(), order), (2, vec![(0, 7), (1, 9)]));
        let mut seen = Vec::new();
        copy.give(&made, Some(&[1]), |items| {
            let Items::Packets(packets) = items else {
                panic!("packets were copied");
            };
            for (place, packet) in packets.iter() {
                seen.push((
                    packets.position(place),
                    packet.source().1,
                    packet.time.0,
                    packets.bytes(packet).len(),
                ));
            }
        });
        assert_eq!(seen, [(110, 3, 3, 28)]);
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
            captured: Nanos(time),
        };
        let mut copy = Message::begun();
        for _ in 0..2 {
            let chunks = [chunk(b"one", 5), chunk(b"to", 4)];
            copy.take(Phase::End, None, Items::Chunks(&chunks));
        }
        let made = copy.made[1];
        let mut order = Vec::new();
        copy.order(&made, |place, of| order.push((place, of)));
        assert_eq!(order, [(0, 5), (1, 4)]);
        let mut some = Vec::new();
        copy.give(&made, Some(&[1]), |items| some.push(items.len()));
        assert_eq!(some, [1]);
        copy.give(&made, None, |items| {
            let Items::Chunks(chunks) = items else {
                panic!("chunks were copied");
            };
            let bytes: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.bytes).collect();
            assert_eq!(bytes, [&b"one"[..], b"to"]);
            assert!(chunks.iter().all(|chunk| chunk.key == 0));
        });
    }
}
