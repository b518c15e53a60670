//! `tcpreseq`: the bytes of each direction of a connection, in order.

use flowgauge_kit::engine;
use flowgauge_stack::{
    Component, ComponentInfo, Input, ItemType, Items, Outlet, Output, Packets, Parallel,
    ResultInfo, ResultValue, SettingError, Settings, StreamChunk, StreamEnd, StreamInfo, options,
};
use flowgauge_stream::{Chunk, Handler, Numbered, Sequencer, ShardConfig, Stream, StreamStatus};
use flowgauge_wire::{Decoded, Nanos, TcpFlags};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "tcpreseq",
    aliases: &["tcpreass"],
    summary: "reassembles TCP segments into the bytes of each direction",
    help: "Use it within tcpcnxdemux, or within tcpdirdemux in that. In-order segments are passed on at once, without \
       a copy; others wait for earlier ones, and unfilled gaps are reported with their size. Segments with wrong \
       checksums are ignored, unless their sender offloads checksums.",
    input: Input::Of(&[ItemType::Segment]),
    output: Output::Of(ItemType::Chunk),
    options: Options::ALL,
    result: Some(ResultInfo::number("bytes put in order", "bytes")),
    parallel: Parallel::ByFlow,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    [engine::CHECKSUMS];
    memory: Size = "256M", "memory for bytes waiting for earlier ones, over all connections";
    policy: Text,
        "which copy of overlapping bytes counts, by the receiver's system: first, last, linux, windows, bsd, \
         ...";
}

/// Of a connection: who began it is known ...
const KNOWN: u8 = 1;
/// ... the sender in direction 1 did.
const BY_ONE: u8 = 2;
/// The handshake's last packet is still to come.
const HANDSHAKE: u8 = 4;
/// ... a packet came in direction 0; the next bit: in direction 1.
const CAME: u8 = 8;

struct Resequence {
    sequencer: Sequencer,
    state: State,
}

#[derive(Default)]
struct State {
    /// Keys are those of directions, not of connections.
    by_direction: bool,
    /// By connection.
    stages: Vec<u8>,
    /// By direction.
    streams: Vec<StreamInfo>,
    now: Nanos,
    bytes: u64,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let by_direction = match settings.around() {
        ["tcpcnxdemux", ..] => false,
        ["tcpdirdemux", "tcpcnxdemux", ..] => true,
        _ => {
            return Err(
                SettingError::of_all("takes all that has one key for one connection")
                    .with_hint("write tcpcnxdemux < tcpreseq ... >"),
            );
        }
    };
    let mut config = ShardConfig {
        checksums: engine::checksums(settings)?,
        ..ShardConfig::default()
    }
    .with_memory(options.memory);
    if let Some(policy) = options.policy {
        let policy = policy
            .parse()
            .map_err(|error| SettingError::of("policy", format!("{error}")))?;
        config = config.with_policy(policy);
    }
    Ok(Box::new(Resequence {
        sequencer: Sequencer::new(&config, 1 << 20),
        state: State {
            by_direction,
            ..State::default()
        },
    }))
}

/// Gives what the sequencer hands on to what follows.
struct Give<'a> {
    state: &'a mut State,
    /// The packet that is dealt with.
    packet: Option<&'a Decoded>,
    out: &'a mut dyn Outlet,
}

impl Give<'_> {
    fn emit(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>, end: Option<StreamEnd>) {
        let key = match self.state.by_direction {
            true => stream.id,
            false => stream.id / 2,
        };
        let Some(info) = self.state.streams.get(stream.id as usize) else {
            return;
        };
        self.out.emit(Items::Chunks(&[StreamChunk {
            key,
            stream: info,
            bytes: chunk.bytes,
            offset: chunk.offset,
            gap_before: chunk.gap_before,
            time: chunk.time,
            captured: chunk.captured,
            end,
        }]));
    }
}

impl Handler for Give<'_> {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let Some(packet) = self.packet else {
            return;
        };
        let info = self.state.stream(stream.id);
        let is_its_own = stream.id as usize & 1 == packet.direction.index();
        let (source, destination) = match is_its_own {
            true => (packet.source(), packet.destination()),
            false => (packet.destination(), packet.source()),
        };
        info.source = source;
        info.destination = destination;
        info.version = packet.key.version;
        info.from_initiator = stream.from_initiator;
    }

    #[inline]
    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.state.bytes += chunk.bytes.len() as u64;
        self.emit(stream, chunk, None);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let end = match stream.status {
            StreamStatus::Fin => StreamEnd::Fin,
            StreamStatus::Rst => StreamEnd::Rst,
            _ => StreamEnd::Timeout,
        };
        let stage = self.state.stages.get(stream.id as usize / 2);
        let has_come = stage.is_some_and(|stage| stage & CAME << (stream.id & 1) != 0);
        if self.state.by_direction && !has_come {
            // There is no such key: its number can be another one's next.
            return;
        }
        let last = Chunk {
            bytes: &[],
            offset: stream.bytes + stream.missing_bytes,
            gap_before: trailing_gap,
            skipped: 0,
            // Not that of other connections' packets: those may be on another core.
            time: self
                .packet
                .map_or(self.state.now, |packet| packet.time.max(self.state.now)),
            captured: self.state.now,
        };
        self.emit(stream, &last, Some(end));
    }
}

impl State {
    fn stream(&mut self, id: u32) -> &mut StreamInfo {
        let id = id as usize;
        if id >= self.streams.len() {
            self.streams
                .resize((id + 1).next_power_of_two(), StreamInfo::default());
        }
        &mut self.streams[id]
    }

    /// What was noted of a connection so far, with what its next packet says of it. `None`: it is
    /// usual, and says nothing.
    #[inline]
    fn stage(&mut self, connection: u32, packet: &Decoded) -> u8 {
        let index = connection as usize;
        if index >= self.stages.len() {
            self.stages.resize((index + 1).next_power_of_two(), 0);
        }
        let stage = self.stages[index];
        let came = CAME << packet.direction.index();
        let is_usual = stage & (KNOWN | HANDSHAKE | came) == KNOWN | came;
        if is_usual && !packet.tcp_flags.contains(TcpFlags::SYN) {
            return stage;
        }
        let stage = self.begin(stage, connection, packet);
        self.stages[index] = stage;
        stage
    }

    /// The first packets of a connection.
    #[cold]
    fn begin(&mut self, mut stage: u8, connection: u32, packet: &Decoded) -> u8 {
        let direction = packet.direction.index() as u32;
        let id = connection * 2 + direction;
        let syn = packet.tcp_flags.contains(TcpFlags::SYN);
        let ack = packet.tcp_flags.contains(TcpFlags::ACK);
        stage |= CAME << direction;
        if stage & KNOWN == 0 {
            let (from, to) = (packet.source().1, packet.destination().1);
            let by_sender = match (syn, ack) {
                (true, ack) => !ack,
                // In its midst: who serves has the lower port, mostly.
                _ => from >= to,
            };
            let by_one = by_sender == (direction == 1);
            stage |= KNOWN | if by_one { BY_ONE } else { 0 };
            for id in [connection * 2, connection * 2 + 1] {
                self.stream(id).start = packet.time;
            }
        }
        let from_initiator = (stage & BY_ONE != 0) == (direction == 1);
        if syn {
            self.stream(id).syn.get_or_insert(packet.time);
            if ack && !from_initiator {
                stage |= HANDSHAKE;
            }
        } else if ack && from_initiator && stage & HANDSHAKE != 0 {
            stage &= !HANDSHAKE;
            self.stream(id).established = Some(packet.time);
        }
        stage
    }

    /// Nothing is known of a connection any more.
    fn forget(&mut self, connection: u32) {
        if let Some(stage) = self.stages.get_mut(connection as usize) {
            *stage = 0;
        }
        for id in [connection * 2, connection * 2 + 1] {
            if let Some(stream) = self.streams.get_mut(id as usize) {
                *stream = StreamInfo::default();
            }
        }
    }
}

impl Resequence {
    fn packets(&mut self, packets: &Packets<'_>, out: &mut dyn Outlet) {
        for (index, packet) in packets.iter() {
            let key = packets.key(index);
            let connection = key >> u32::from(self.state.by_direction);
            let flags = packet.tcp_flags;
            if flags.contains(TcpFlags::SYN)
                && !flags.contains(TcpFlags::ACK)
                && self.sequencer.is_closed(connection)
            {
                // The same addresses and ports again.
                self.end(connection, out);
            }
            let stage = self.state.stage(connection, packet);
            let by_one = stage & BY_ONE != 0;
            let numbered = Numbered {
                connection,
                from_initiator: by_one == (packet.direction.index() == 1),
            };
            let before = self.sequencer.old_bytes();
            let mut give = Give {
                state: &mut self.state,
                packet: Some(packet),
                out,
            };
            (self.sequencer).packet(packets.batch, packets.decoded, packet, numbered, &mut give);
            let old = self.sequencer.old_bytes() - before;
            if old != 0 {
                let id = connection * 2 + packet.direction.index() as u32;
                self.state.stream(id).retransmitted += old;
            }
        }
    }

    fn end(&mut self, connection: u32, out: &mut dyn Outlet) {
        let now = self.state.now;
        let mut give = Give {
            state: &mut self.state,
            packet: None,
            out,
        };
        self.sequencer
            .end(connection, StreamStatus::Timeout, now, &mut give);
        self.state.forget(connection);
    }
}

impl Component for Resequence {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            self.packets(packets, out);
        }
        items.clear();
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        self.end(key >> u32::from(self.state.by_direction), out);
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        self.state.now = self.state.now.max(now);
        let mut give = Give {
            state: &mut self.state,
            packet: None,
            out,
        };
        self.sequencer.maintain(now, &mut give);
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.state.bytes))
    }

    fn reset(&mut self) {
        self.state.bytes = 0;
    }
}
