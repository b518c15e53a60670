//! `cook`: packets made of the bytes of streams, MAPI's COOKING.

use flowgauge_kit::engine;
use flowgauge_kit::headers::{self, ACK, Headers, PUSH};
use flowgauge_stack::engine::{Chosen, idle};
use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, Packets, ResultInfo, ResultValue, SettingError,
    Settings, options,
};
use flowgauge_stream::{Chunk, Handler, Needs, Shard, Stream};
use flowgauge_wire::{DecodeFlags, LinkType, Nanos, PacketDescriptor, checksum::Checksum};

use crate::buffers::Buffers;
use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "cook",
    aliases: &["cooking"],
    summary: "makes packets of the bytes of TCP streams, put in order",
    help: "Instead of its segments come packets that each hold the next `threshold` bytes of a direction, \
           behind an IP and a TCP header: the endpoints are those of the stream, the sequence number is the \
           position in it, from 1. A piece is shorter at the end, before a hole and after `timeout`. What \
           searches in packets then finds what lay across segments. What is not TCP comes through as it \
           is; fragments, segments without data, copies and damaged ones do not.",
    outside: Some("it has one table of all streams"),
    options: Options::ALL,
    result: Some(ResultInfo::number("packets made", "packets")),
    parallel: flowgauge_stack::Parallel::ByFlow,
    make,
    ..flowgauge_kit::OF_PACKETS
};

options! {
    struct Options;
    threshold: Size = "32k", "bytes of a packet, 65000 at most";
    timeout: Duration as u64 = "30s", "give a piece that is not full so long after its first byte";
    once: Flag = "no", "only the first piece of each direction";
    side: Choice("both", "client", "server", "1", "2", "3") = "both",
        "whose bytes; MAPI's numbers: 1 client, 2 server, 3 both";
    [engine::CHECKSUMS, engine::VLAN_AWARE, engine::MEMORY, engine::MAX_FLOWS, engine::TCP_IDLE];
}

/// So that with its headers a packet is an IP datagram.
const MAX_THRESHOLD: u64 = 65_000;

/// Bytes of pieces that are not full, of all streams, where nothing else is said.
const MEMORY: u64 = 256 << 20;

struct Cook {
    shard: Box<Shard>,
    chosen: Chosen,
    pieces: Pieces,
}

struct Pieces {
    threshold: usize,
    timeout: u64,
    once: bool,
    /// Of the server, of the client.
    wanted: [bool; 2],
    memory: u64,
    /// By number of the stream.
    streams: Vec<Piece>,
    /// Bytes of all pieces.
    held: u64,
    /// No piece is older.
    earliest: Option<Nanos>,
    made: Made,
    buffers: Buffers,
    count: u64,
}

/// The next packet of a stream, as far as it is there.
#[derive(Default)]
struct Piece {
    /// Headers, then the bytes.
    bytes: Vec<u8>,
    headers: usize,
    first: Nanos,
    last: Nanos,
    /// No more is wanted.
    is_done: bool,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let threshold = options.threshold;
    if !(1..=MAX_THRESHOLD).contains(&threshold) {
        let message = format!("is not between 1 and {MAX_THRESHOLD}: no IP datagram holds more");
        return Err(SettingError::of("threshold", message));
    }
    let config = engine::configuration(settings, Needs::default())?;
    Ok(Box::new(Cook {
        shard: Box::new(Shard::new(config)),
        chosen: Chosen::default(),
        pieces: Pieces {
            threshold: threshold as usize,
            timeout: options.timeout,
            once: options.once,
            wanted: match options.side {
                "client" | "1" => [false, true],
                "server" | "2" => [true, false],
                _ => [true, true],
            },
            memory: settings.size("memory").unwrap_or(MEMORY) / settings.copies() as u64,
            streams: Vec::new(),
            held: 0,
            earliest: None,
            made: Made::default(),
            buffers: Buffers::new(threshold as usize + headers::MOST),
            count: 0,
        },
    }))
}

impl Pieces {
    fn take(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) -> bool {
        let index = stream.id as usize;
        if index >= self.streams.len() {
            let length = (index + 1).next_power_of_two();
            self.streams.resize_with(length, Piece::default);
        }
        if !self.wanted[usize::from(stream.from_initiator)] {
            return false;
        }
        let is_late = self
            .streams
            .get(index)
            .is_some_and(|piece| chunk.time.0 >= piece.first.0.saturating_add(self.timeout));
        if chunk.gap_before > 0 || is_late {
            self.end(index);
        }
        let (mut rest, mut offset) = (chunk.bytes, chunk.offset);
        while !rest.is_empty() {
            let Some(piece) = self.streams.get_mut(index).filter(|piece| !piece.is_done) else {
                break;
            };
            if piece.bytes.is_empty() {
                piece.begin(stream, offset, chunk.time, &mut self.buffers);
                if self.earliest.is_none_or(|earliest| chunk.time < earliest) {
                    self.earliest = Some(chunk.time);
                }
            }
            let room = self.threshold - (piece.bytes.len() - piece.headers);
            let (bytes, others) = rest.split_at(room.min(rest.len()));
            self.buffers.extend(&mut piece.bytes, bytes);
            piece.last = chunk.time;
            self.held += bytes.len() as u64;
            offset += bytes.len() as u64;
            rest = others;
            if bytes.len() == room || self.held > self.memory {
                self.end(index);
            }
        }
        self.made.is_full()
    }

    /// The piece of a stream is complete, as far as it goes.
    fn end(&mut self, index: usize) {
        let Some(piece) = self
            .streams
            .get_mut(index)
            .filter(|it| !it.bytes.is_empty())
        else {
            return;
        };
        self.held -= (piece.bytes.len() - piece.headers) as u64;
        piece.finish();
        let descriptor = PacketDescriptor {
            time: piece.last,
            link: LinkType::RAW,
            ..PacketDescriptor::default()
        };
        self.made.push(descriptor, &[&piece.bytes], 0, 0);
        self.count += 1;
        self.buffers.give_back(&mut piece.bytes);
        piece.is_done = self.once;
    }

    /// Pieces that have waited for too long.
    fn expire(&mut self, now: Nanos) {
        let is_due = |first: Nanos| now.0 >= first.0.saturating_add(self.timeout);
        if !self.earliest.is_some_and(is_due) {
            return;
        }
        self.earliest = None;
        for index in 0..self.streams.len() {
            let Some(piece) = self.streams.get(index).filter(|it| !it.bytes.is_empty()) else {
                continue;
            };
            let first = piece.first;
            if now.0 >= first.0.saturating_add(self.timeout) {
                self.end(index);
            } else if self.earliest.is_none_or(|earliest| first < earliest) {
                self.earliest = Some(first);
            }
        }
    }
}

impl Piece {
    /// Writes the headers; lengths and checksums follow.
    fn begin(&mut self, stream: &Stream<'_>, offset: u64, time: Nanos, buffers: &mut Buffers) {
        let positions = ((offset as u32).wrapping_add(1), 1);
        let headers = Headers::new(&stream.identity(), positions, PUSH | ACK, 0);
        self.bytes.clear();
        buffers.extend(&mut self.bytes, headers.bytes());
        self.headers = headers.bytes().len();
        self.first = time;
    }

    fn finish(&mut self) {
        let length = self.bytes.len();
        let is_v4 = self.headers == 40;
        let start = if is_v4 { 20 } else { 40 };
        let put = |bytes: &mut [u8], at: usize, value: u16| {
            if let Some(place) = bytes.get_mut(at..at + 2) {
                place.copy_from_slice(&value.to_be_bytes());
            }
        };
        if is_v4 {
            put(&mut self.bytes, 2, length as u16);
            let header = sum(&[self.bytes.get(..20).unwrap_or(&[])]);
            put(&mut self.bytes, 10, header);
        } else {
            put(&mut self.bytes, 4, (length - 40) as u16);
        }
        let addresses = self.bytes.get(if is_v4 { 12 } else { 8 }..start);
        let segment = self.bytes.get(start..).unwrap_or(&[]);
        let pseudo = [0, 6, ((length - start) >> 8) as u8, (length - start) as u8];
        let transport = sum(&[addresses.unwrap_or(&[]), &pseudo, segment]);
        put(&mut self.bytes, start + 16, transport);
    }
}

/// The Internet checksum of these parts; all but the last have an even length.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut checksum = Checksum::default();
    parts.iter().for_each(|part| checksum.add(part));
    checksum.finish()
}

/// Takes what the engine puts in order.
struct Take<'a> {
    pieces: &'a mut Pieces,
    before: u64,
    out: &'a mut dyn Outlet,
}

impl Take<'_> {
    fn give(&mut self) {
        self.pieces.made.give(self.before, self.out, |_, _| {});
    }
}

impl Handler for Take<'_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if self.pieces.take(stream, chunk) {
            self.give();
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _: u64) {
        let index = stream.id as usize;
        self.pieces.end(index);
        if let Some(piece) = self.pieces.streams.get_mut(index) {
            *piece = Piece::default();
        }
        if self.pieces.made.is_full() {
            self.give();
        }
    }
}

impl Cook {
    fn with(
        &mut self,
        before: u64,
        out: &mut dyn Outlet,
        work: impl FnOnce(&mut Shard, &mut Chosen, &mut Take<'_>),
    ) {
        let mut take = Take {
            pieces: &mut self.pieces,
            before,
            out,
        };
        work(&mut self.shard, &mut self.chosen, &mut take);
        take.give();
    }
}

impl Component for Cook {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let is_tcp = |index: usize| {
            let packet = packets.decoded.packets.get(index);
            packet.is_some_and(|it| {
                // A datagram that was put together before is in no batch that the engine could read.
                it.has_ip() && it.key.protocol == 6 && !it.flags.contains(DecodeFlags::REASSEMBLED)
            })
        };
        let mut segments = packets.selected;
        segments.retain(is_tcp);
        packets.selected = packets.selected.without(segments);
        if segments.is_empty() {
            return;
        }
        let segments = Packets {
            selected: segments,
            ..*packets
        };
        self.with(packets.before, out, |shard, chosen, take| {
            shard.process(&chosen.of(&segments), take);
        });
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        let is_behind = self.shard.tracker().clock() < now;
        self.with(0, out, |shard, _, take| {
            if is_behind {
                shard.process(&idle(now), take);
            }
            take.pieces.expire(now);
        });
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        self.with(0, out, |shard, _, take| shard.finish(take));
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.pieces.count))
    }

    fn reset(&mut self) {
        self.pieces.count = 0;
    }
}
