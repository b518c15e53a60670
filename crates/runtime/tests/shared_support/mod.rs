//! What the tests of sharing have in common: what an application gets, told in a form that can be
//! compared, from a client and from an engine of its own.

// Each test binary compiles this module and uses part of it.
#![allow(dead_code)]

pub(crate) mod feed;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use flowgauge_capture::{Filter, PacketSource, open_reader};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_runtime::shared::{Application, Client, EventKind, Next, SharedEvent};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Cutoffs, DataChunk, Engine, EngineConfig, Events, Priorities,
    StreamFilter, StreamRef, StreamSnapshot,
};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};
use sha2::{Digest, Sha256};

/// What is waited for takes milliseconds; this only ends a hang.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Packets and where they are.
#[derive(Clone, Debug)]
pub(crate) struct Portion {
    pub(crate) memory: Vec<u8>,
    pub(crate) packets: Vec<PacketDescriptor>,
}

impl Portion {
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.memory, &self.packets)
    }

    pub(crate) fn frame(&self, index: usize) -> &[u8] {
        self.batch().bytes(index)
    }
}

/// The packets of a generated trace.
pub(crate) fn trace(preset: Preset, scale: f64) -> Vec<Portion> {
    trace_of(&Config::new(preset).scaled(scale))
}

pub(crate) fn trace_of(config: &Config) -> Vec<Portion> {
    let mut file = Vec::new();
    generate(config, &mut file).unwrap();
    let mut source = open_reader(std::io::Cursor::new(file), "generated").unwrap();
    let mut portions = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        let mut portion = Portion {
            memory: Vec::new(),
            packets: Vec::new(),
        };
        for (index, packet) in batch.packets.iter().enumerate() {
            let offset = portion.memory.len() as u32;
            portion.memory.extend_from_slice(batch.bytes(index));
            portion.packets.push(PacketDescriptor { offset, ..*packet });
        }
        portions.push(portion);
    }
    portions
}

/// So many datagrams of eight bytes, each of a stream of its own that nobody answers.
pub(crate) fn datagrams(count: u32) -> Portion {
    let mut portion = Portion {
        memory: Vec::new(),
        packets: Vec::new(),
    };
    for number in 0..count {
        let [_, high, middle, low] = number.to_be_bytes();
        let mut ip = [
            0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, high, middle, low, 10, 200, 0, 1,
        ];
        let words = ip.chunks_exact(2);
        let sum: u32 = words
            .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]))
            .sum();
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        let offset = portion.memory.len() as u32;
        portion.memory.extend_from_slice(&[2; 12]);
        portion.memory.extend_from_slice(&[8, 0]);
        portion.memory.extend_from_slice(&ip);
        portion
            .memory
            .extend_from_slice(&[0x04, 0, 0x27, 0x0f, 0, 16, 0, 0]);
        portion.memory.extend_from_slice(b"datagram");
        let len = portion.memory.len() as u32 - offset;
        portion.packets.push(PacketDescriptor {
            offset,
            captured_len: len,
            wire_len: len,
            time: Nanos::from_millis(1000 + u64::from(number) / 1000),
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
    }
    portion
}

/// The same packets in portions of at most `count`.
pub(crate) fn smaller(portions: &[Portion], count: usize) -> Vec<Portion> {
    let mut pieces = Vec::new();
    for portion in portions {
        for packets in portion.packets.chunks(count) {
            pieces.push(Portion {
                memory: portion.memory.clone(),
                packets: packets.to_vec(),
            });
        }
    }
    pieces
}

pub(crate) fn packets_of(portions: &[Portion]) -> u64 {
    portions.iter().map(|one| one.packets.len() as u64).sum()
}

/// A stream as its application knows it in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) created: u32,
    pub(crate) terminated: u32,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// Of position, length and bytes of all chunks; where times differ, of their bytes.
    pub(crate) hash: Sha256Value,
    /// Counters at its end.
    pub(crate) end: String,
}

pub(crate) type Sha256Value = [u8; 32];

/// Who talked with whom, when.
pub(crate) type Who = String;

/// All streams of an application.
#[derive(Clone, Default)]
pub(crate) struct Stories {
    hashes: BTreeMap<Who, Sha256>,
    stories: BTreeMap<Who, Story>,
    /// Whether capture times differ from run to run, and with them what waits for what.
    pub(crate) timeless: bool,
}

impl Stories {
    fn who(&self, stream: &StreamSnapshot) -> Who {
        let identity = &stream.identity;
        let ip = |address: flowgauge_wire::Address| address.to_ip(identity.version);
        let mut who = format!(
            "{}:{} > {}:{} {}",
            ip(identity.source.0),
            identity.source.1,
            ip(identity.destination.0),
            identity.destination.1,
            identity.protocol,
        );
        if !self.timeless {
            write!(who, " {}", identity.start.0).unwrap();
        }
        who
    }

    pub(crate) fn created(&mut self, stream: &StreamSnapshot) {
        let who = self.who(stream);
        self.stories.entry(who).or_default().created += 1;
    }

    pub(crate) fn data(&mut self, stream: &StreamSnapshot, offset: u64, bytes: &[u8]) {
        let who = self.who(stream);
        let hash = self.hashes.entry(who.clone()).or_default();
        if !self.timeless {
            hash.update(offset.to_le_bytes());
            hash.update(bytes.len().to_le_bytes());
        }
        hash.update(bytes);
        let story = self.stories.entry(who).or_default();
        story.chunks += 1;
        story.bytes += bytes.len() as u64;
    }

    pub(crate) fn terminated(&mut self, stream: &StreamSnapshot) {
        let who = self.who(stream);
        let story = self.stories.entry(who).or_default();
        story.terminated += 1;
        // What was discarded is counted once for all applications: not if another wanted it.
        let mut times = (stream.statistics.start, stream.statistics.end);
        if self.timeless {
            times = Default::default();
        }
        story.end = format!(
            "{:?} {:?} {times:?} {:?} {} {:?} {} {}",
            stream.status,
            stream.errors,
            stream.statistics.all,
            stream.statistics.wire_bytes,
            stream.cutoff,
            stream.is_cut,
            stream.chunks,
        );
    }

    pub(crate) fn told(&mut self, event: &SharedEvent<'_>) {
        let stream = event.stream.snapshot();
        match &event.kind {
            EventKind::Created => self.created(stream),
            EventKind::Data(chunk) => self.data(stream, chunk.info().offset, chunk.bytes()),
            EventKind::Terminated => self.terminated(stream),
        }
    }

    /// The finished stories.
    pub(crate) fn finish(mut self) -> BTreeMap<Who, Story> {
        for (who, hash) in self.hashes {
            if let Some(story) = self.stories.get_mut(&who) {
                story.hash = hash.finalize().into();
            }
        }
        self.stories
    }
}

/// Takes all events of a client until its end.
pub(crate) fn listen(client: &mut Client) -> BTreeMap<Who, Story> {
    let mut stories = Stories::default();
    listen_into(client, &mut stories);
    stories.finish()
}

pub(crate) fn listen_into(client: &mut Client, stories: &mut Stories) -> String {
    each_event(client, |event| stories.told(&event))
}

/// Gives `told` each event of a client until its end; why it is over.
pub(crate) fn each_event(client: &mut Client, mut told: impl FnMut(SharedEvent<'_>)) -> String {
    loop {
        match client.next_event(Some(LIMIT)).unwrap() {
            Next::Event(event) => told(event),
            Next::Idle => panic!("nothing happens"),
            Next::End(reason) => return reason,
        }
    }
}

/// Events of engines' applications as stories.
#[derive(Default)]
struct Tellers(Vec<Stories>);

impl Events for Tellers {
    fn created(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        self.0[usize::from(application.0)].created(&stream.snapshot());
    }

    fn data(
        &mut self,
        application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let (offset, bytes) = (chunk.offset(), chunk.bytes());
        self.0[usize::from(application.0)].data(&stream.snapshot(), offset, bytes);
    }

    fn terminated(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        self.0[usize::from(application.0)].terminated(&stream.snapshot());
    }
}

/// What the same application gets from an engine of its own.
pub(crate) fn alone(application: &Application, portions: &[Portion]) -> BTreeMap<Who, Story> {
    alone_from(application, portions, 0, false)
}

/// What it gets when it comes before portion `from`.
pub(crate) fn alone_from(
    application: &Application,
    portions: &[Portion],
    from: usize,
    timeless: bool,
) -> BTreeMap<Who, Story> {
    let mut engine = Engine::new(EngineConfig::default());
    let mut tellers = Tellers(vec![Stories {
        timeless,
        ..Stories::default()
    }]);
    for (number, portion) in portions.iter().enumerate() {
        if number == from {
            engine.add(configuration(application)).unwrap();
        }
        engine.process(&portion.batch(), &mut tellers);
    }
    engine.finish(&mut tellers);
    tellers.0.remove(0).finish()
}

pub(crate) fn configuration(application: &Application) -> ApplicationConfig {
    let filter = |expression: &str| {
        let program = Filter::compile(expression, LinkType::ETHERNET, 262_144).unwrap();
        StreamFilter::new(move |packet| {
            packet.descriptor.link == LinkType::ETHERNET
                && program.verdict_on(packet.frame, packet.descriptor) != 0
        })
    };
    let classes = &application.cutoff_classes;
    ApplicationConfig {
        filter: (!application.filter.is_empty()).then(|| filter(&application.filter)),
        mode: application.mode,
        cutoff: Cutoffs {
            default: application.cutoff,
            from_initiator: application.from_initiator,
            from_responder: application.from_responder,
            classes: classes
                .iter()
                .map(|(expression, cutoff)| (filter(expression), *cutoff))
                .collect(),
        },
        chunk_bytes: application.chunk_bytes,
        overlap_bytes: application.overlap_bytes,
        flush_timeout: application.flush_timeout,
        priority: Priorities {
            default: application.priority,
            classes: Vec::new(),
        },
        inactivity_timeout: application.inactivity_timeout,
    }
}

/// The first stream that differs, rather than all of them.
pub(crate) fn same(got: &BTreeMap<String, Story>, expected: &BTreeMap<String, Story>) {
    for (who, story) in expected {
        assert_eq!(got.get(who), Some(story), "{who}");
    }
    let others: Vec<_> = got
        .keys()
        .filter(|who| !expected.contains_key(*who))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}
