//! `cook`: packets made of the bytes of streams, MAPI's COOKING.

use flowgauge_kit::engine;
use flowgauge_kit::headers::{ACK, Headers, PUSH};
use flowgauge_stack::engine::{Chosen, idle};
use flowgauge_stack::{
    Component, ComponentInfo, Items, Outlet, Packets, ResultInfo, ResultValue, SettingError,
    Settings, options,
};
use flowgauge_stream::{Chunk, Handler, Needs, Shard, Stream, StreamIdentity};
use flowgauge_wire::{DecodeFlags, LinkType, Nanos, PacketDescriptor};

use crate::buffers::Buffers;
use crate::cutter::Cutter;
use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "cook",
    aliases: &["cooking"],
    summary: "makes packets from reassembled TCP streams",
    help: "Replaces segments by packets that each hold the next `threshold` bytes of a direction after an IP and a \
       TCP header, with the stream's endpoints; the sequence number is the position in the stream, from 1. A packet \
       is shorter at the end, before a gap and after `timeout`. Packet searches then find text that spanned segments. \
       Packets other than TCP pass unchanged; fragments, \
           segments without data, copies and damaged segments do not pass.",
    outside: Some("it has one table of all streams"),
    options: Options::ALL,
    result: Some(ResultInfo::number("packets made", "packets")),
    parallel: flowgauge_stack::Parallel::ByFlow,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    threshold: Size = "32k", "bytes of a packet, 65000 at most";
    timeout: Duration as u64 = "30s", "deliver a partial packet this long after its first byte";
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
    /// By number of the stream.
    cutter: Cutter<Sender>,
    once: bool,
    /// Of the server, of the client.
    wanted: [bool; 2],
    made: Made,
    count: u64,
}

/// What is known of a stream.
#[derive(Default)]
struct Sender {
    identity: StreamIdentity,
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
    let memory = settings.size("memory").unwrap_or(MEMORY) / settings.copies() as u64;
    let buffers = Buffers::new(threshold as usize);
    Ok(Box::new(Cook {
        shard: Box::new(Shard::new(config)),
        chosen: Chosen::default(),
        pieces: Pieces {
            cutter: Cutter::new(
                threshold as usize,
                Some(options.timeout),
                memory,
                Some(buffers),
            ),
            once: options.once,
            wanted: match options.side {
                "client" | "1" => [false, true],
                "server" | "2" => [true, false],
                _ => [true, true],
            },
            made: Made::default(),
            count: 0,
        },
    }))
}

/// Takes what the engine puts in order.
struct Take<'a> {
    pieces: &'a mut Pieces,
    before: u64,
    out: &'a mut dyn Outlet,
}

impl Take<'_> {
    /// The pieces, and what makes a packet of each that is complete.
    fn cut(
        &mut self,
    ) -> (
        &mut Cutter<Sender>,
        impl FnMut(usize, &mut Sender, &Chunk<'_>),
    ) {
        let (before, out) = (self.before, &mut *self.out);
        let (once, pieces) = (self.pieces.once, &mut *self.pieces);
        let (made, count) = (&mut pieces.made, &mut pieces.count);
        let give = move |_, sender: &mut Sender, piece: &Chunk<'_>| {
            if sender.is_done {
                return;
            }
            let positions = ((piece.offset as u32).wrapping_add(1), 1);
            let length = piece.bytes.len();
            let headers = Headers::new(&sender.identity, positions, PUSH | ACK, length);
            let headers = headers.with_checksums(piece.bytes);
            let descriptor = PacketDescriptor {
                time: piece.time,
                link: LinkType::RAW,
                ..PacketDescriptor::default()
            };
            made.push(descriptor, &[headers.bytes(), piece.bytes], 0, 0);
            if made.is_full() {
                made.give(before, out, |_, _| {});
            }
            *count += 1;
            sender.is_done = once;
        };
        (&mut pieces.cutter, give)
    }
}

impl Handler for Take<'_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let index = stream.id as usize;
        let is_wanted = self.pieces.wanted[usize::from(stream.from_initiator)];
        if !is_wanted || self.pieces.cutter.of(index).is_done {
            return;
        }
        let note = |sender: &mut Sender, begins| {
            if begins {
                sender.identity = stream.identity();
            }
        };
        let (cutter, give) = self.cut();
        cutter.take(index, chunk, note, give);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _: u64) {
        let (cutter, give) = self.cut();
        cutter.close(stream.id as usize, give);
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
        take.pieces.made.give(before, take.out, |_, _| {});
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
            let (cutter, give) = take.cut();
            cutter.expire(now, give);
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
