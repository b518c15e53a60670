//! The engine against naive models: random sequences of segments with loss, reordering, duplicates
//! and overlap, in every mode, chunk size and overlap, with cutoffs; priorities under overload.

mod accounts;
mod applications;
mod cases;
mod changes;
mod flushes;

use std::collections::BTreeMap;

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkFlags, Cutoff, DataChunk, Engine, EngineConfig, Events,
    FilterPacket, Mode, OwnedChunk, Parameter, Priorities, StreamFilter, StreamRef,
};
use flowgauge_stream::{ChecksumPolicy, ShardConfig};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor, Place};
use proptest::prelude::*;

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const START: u32 = 0xffff_f000;

/// Frames in one piece of memory.
#[derive(Default)]
struct Wire {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
}

/// A TCP packet between two hosts; the client's port tells connections apart.
struct Segment<'a> {
    port: u16,
    to_server: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &'a [u8],
}

impl Wire {
    fn push(&mut self, time: Nanos, segment: &Segment<'_>) {
        let offset = self.memory.len() as u32;
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + segment.payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        let hosts = [([10, 0, 0, 1], segment.port), ([10, 0, 0, 2], 80)];
        let (source, destination) = match segment.to_server {
            true => (hosts[0], hosts[1]),
            false => (hosts[1], hosts[0]),
        };
        frame.extend(source.0);
        frame.extend(destination.0);
        frame.extend(source.1.to_be_bytes());
        frame.extend(destination.1.to_be_bytes());
        frame.extend(segment.seq.to_be_bytes());
        frame.extend(segment.ack.to_be_bytes());
        frame.extend([0x50, segment.flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(segment.payload);
        self.packets.push(PacketDescriptor {
            time,
            offset,
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
        self.memory.extend(frame);
    }

    fn handshake(&mut self, time: Nanos, port: u16) {
        let mut push = |to_server, seq, ack, flags| {
            self.push(
                time,
                &Segment {
                    port,
                    to_server,
                    seq,
                    ack,
                    flags,
                    payload: &[],
                },
            );
        };
        push(true, START.wrapping_sub(1), 0, SYN);
        push(false, 999, START, SYN | ACK);
        push(true, START, 1000, ACK);
    }
}

fn shard() -> ShardConfig {
    ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        ..ShardConfig::default()
    }
}

/// The byte at a position of every stream.
fn truth(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8
}

/// The packets of a chunk: when each came, and where in the chunk its payload lies.
type ChunkPackets = Vec<(Nanos, Option<i64>)>;

/// Collects what the client's streams deliver, checks what must always hold.
#[derive(Default)]
struct Collect {
    /// By application: bytes by position.
    bytes: BTreeMap<u8, BTreeMap<u64, u8>>,
    /// By application: the end of what was delivered.
    end: BTreeMap<u8, u64>,
    /// Application, offset, gap, length, flags; the packets with their payloads' places.
    log: Vec<(u8, u64, u64, usize, u16, ChunkPackets)>,
    /// By application: where in memory its chunks were.
    places: BTreeMap<u8, Vec<usize>>,
    /// By application: what it does at which of its data events.
    acts: Vec<Option<(u64, Action)>>,
    packets: u64,
    longest: usize,
    created: u32,
    terminated: u32,
    after_last: bool,
}

impl Events for Collect {
    fn created(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.created += 1;
    }

    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let info = chunk.info();
        if !stream.from_initiator() {
            // Nothing but packets without payload.
            assert!(chunk.bytes().is_empty() && chunk.packets().len() > 0);
            return;
        }
        self.packets += chunk.packets().len() as u64;
        for packet in chunk.packets() {
            if let Some(offset) = packet.offset {
                for (at, &byte) in packet.payload.iter().enumerate() {
                    assert_eq!(byte, truth((offset + at as i64) as u64), "packet");
                }
            }
            assert_eq!(packet.payload.len(), packet.payload_len as usize);
            assert_eq!(packet.header.len(), 54);
        }
        assert!(stream.chunks() > 0);
        self.after_last |= info.flags.contains(ChunkFlags::LAST) && chunk.bytes().is_empty();
        self.longest = self.longest.max(chunk.bytes().len());
        let end = self.end.entry(of.0).or_default();
        if !chunk.bytes().is_empty() {
            // What is repeated was delivered before, what is new begins where that ended.
            let new = info.offset + u64::from(info.repeated);
            let gap = match info.repeated {
                0 => info.gap_before,
                _ => 0, // It is before what is repeated.
            };
            assert_eq!(new, *end + gap, "{info:?}");
            *end = info.offset + chunk.bytes().len() as u64;
        }
        let is_hole = |at: u32| chunk.holes().iter().any(|hole| hole.contains(&at));
        assert_eq!(
            info.flags.contains(ChunkFlags::HOLE),
            !chunk.holes().is_empty()
        );
        let bytes = self.bytes.entry(of.0).or_default();
        for (at, &byte) in chunk.bytes().iter().enumerate() {
            if is_hole(at as u32) {
                continue;
            }
            let position = info.offset + at as u64;
            assert_eq!(byte, truth(position), "at {position}");
            let before = bytes.insert(position, byte);
            assert_eq!(before.is_some(), at < info.repeated as usize);
        }
        self.log.push((
            of.0,
            info.offset,
            info.gap_before,
            chunk.bytes().len(),
            info.flags.0,
            (chunk.packets())
                .map(|packet| (packet.time, packet.offset))
                .collect(),
        ));
        let place = chunk.bytes().as_ptr() as usize;
        self.places.entry(of.0).or_default().push(place);
        if let Some(Some((when, action))) = self.acts.get(usize::from(of.0))
            && stream.chunks() == *when
        {
            applications::act(stream, *action);
        }
    }

    fn terminated(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.terminated += 1;
    }
}

/// Segments of one stream in the order they are captured.
fn segments() -> impl Strategy<Value = Vec<(u32, u32)>> {
    // Cut, then lose, repeat, stretch and shuffle a little.
    prop::collection::vec((1_u32..400, 0_u8..20, 0_u32..30, 0_usize..6), 1..40).prop_map(|cuts| {
        let mut all = Vec::new();
        let mut start = 0;
        for (len, fate, stretch, _) in &cuts {
            let (from, to) = (start, start + len);
            start = to;
            match fate {
                0 | 1 => {}
                2 | 3 => all.extend([(from, to), (from, to)]),
                4 => all.push((from.saturating_sub(*stretch), to)),
                5 => all.push((from, to + stretch)),
                _ => all.push((from, to)),
            }
        }
        for (at, (_, _, _, moved)) in cuts.iter().enumerate() {
            let other = at + moved;
            if *moved > 2 && other < all.len() {
                all.swap(at, other);
            }
        }
        all
    })
}

/// What an application does in the midst of a stream.
#[derive(Clone, Copy, Debug)]
enum Action {
    Keep,
    Discard,
    Cutoff(u64),
    Parameter(Parameter),
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: Mode,
    chunk: u32,
    overlap: u32,
    cutoff: Option<u64>,
    timeout: Option<u64>,
    need_packets: bool,
    fin: bool,
}

fn plans() -> impl Strategy<Value = Plan> {
    (
        prop_oneof![Just(Mode::Wait), Just(Mode::Fast), Just(Mode::Strict)],
        prop_oneof![
            Just(0_u32),
            Just(1),
            Just(64),
            Just(500),
            Just(1024),
            Just(16_384)
        ],
        prop_oneof![Just(0_u32), Just(1), Just(40)],
        prop::option::of(0_u64..4000),
        prop::option::of(1_u64..20),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(mode, chunk, overlap, cutoff, timeout, need_packets, fin)| Plan {
                mode,
                chunk,
                // FAST's chunks may begin behind a gap; overlap is for streams without.
                overlap: if mode == Mode::Fast { 0 } else { overlap },
                cutoff,
                timeout,
                need_packets,
                fin,
            },
        )
}

fn application(plan: &Plan) -> ApplicationConfig {
    let mut application = ApplicationConfig {
        mode: plan.mode,
        chunk_bytes: plan.chunk,
        overlap_bytes: plan.overlap,
        flush_timeout: plan.timeout.map(Nanos::from_millis),
        ..ApplicationConfig::default()
    };
    application.cutoff.default = plan.cutoff.map_or(Cutoff::UNLIMITED, Cutoff);
    application
}

/// Runs the segments through an engine with these applications, `batch` packets at a time. Before
/// each segment, `look` sees what was delivered.
fn run(
    plans: &[Plan],
    segments: &[(u32, u32)],
    batch: usize,
    look: impl FnMut(&Collect, (u32, u32)),
) -> Collect {
    run_acting(plans, &[], segments, batch, look)
}

/// The same with applications that do something.
fn run_acting(
    plans: &[Plan],
    acts: &[Option<(u64, Action)>],
    segments: &[(u32, u32)],
    batch: usize,
    mut look: impl FnMut(&Collect, (u32, u32)),
) -> Collect {
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_millis(1000), 5000);
    let mut farthest = 0;
    for (at, &(from, to)) in segments.iter().enumerate() {
        let payload: Vec<u8> = (from..to).map(|at| truth(u64::from(at))).collect();
        let segment = Segment {
            port: 5000,
            to_server: true,
            seq: START.wrapping_add(from),
            ack: 1000,
            flags: ACK,
            payload: &payload,
        };
        wire.push(Nanos::from_millis(1001 + at as u64), &segment);
        farthest = farthest.max(to);
    }
    if plans[0].fin {
        let segment = Segment {
            port: 5000,
            to_server: true,
            seq: START.wrapping_add(farthest),
            ack: 1000,
            flags: ACK | FIN,
            payload: &[],
        };
        wire.push(Nanos::from_millis(2000), &segment);
    }
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        memory_bytes: 4 << 20,
        ..EngineConfig::default()
    });
    for plan in plans {
        let needs_packets = plan.need_packets;
        engine
            .add_for_packets(application(plan), needs_packets)
            .unwrap();
    }
    let mut collect = Collect {
        acts: acts.to_vec(),
        ..Collect::default()
    };
    for (index, packets) in wire.packets.chunks(batch).enumerate() {
        if batch == 1 && index >= 3 && index - 3 < segments.len() {
            // What has timed out by then is sent before the packet counts.
            let mut idle = Batch::new(&[], &[]);
            idle.now = Some(packets[0].time);
            engine.process(&idle, &mut collect as &mut dyn Events);
            look(&collect, segments[index - 3]);
        }
        engine.process(
            &Batch::new(&wire.memory, packets),
            &mut collect as &mut dyn Events,
        );
        assert!(engine.budget().used() <= engine.budget().limit());
        assert!(engine.ledger().is_balanced());
    }
    engine.finish(&mut collect as &mut dyn Events);
    assert_eq!(engine.budget().used(), 0, "everything comes back");
    let statistics = engine.statistics();
    let ledger = engine.ledger();
    assert!(ledger.is_balanced());
    assert_eq!(statistics.all.packets, wire.packets.len() as u64);
    assert_eq!(statistics.discarded.packets, ledger.discarded());
    assert_eq!(
        (statistics.dropped.packets, statistics.packets_lost),
        (0, 0)
    );
    assert_eq!(collect.created, 2 * plans.len() as u32);
    assert_eq!(collect.terminated, 2 * plans.len() as u32);
    collect
}

/// What a naive reassembler delivers: positions.
fn expected(plan: &Plan, segments: &[(u32, u32)], in_time: &BTreeMap<u64, bool>) -> Vec<u64> {
    let mut received: Vec<u64> = segments
        .iter()
        .flat_map(|&(from, to)| u64::from(from)..u64::from(to))
        .collect();
    received.sort_unstable();
    received.dedup();
    let limit = plan.cutoff.unwrap_or(u64::MAX);
    received.retain(|&position| position < limit);
    match plan.mode {
        Mode::Wait => {}
        Mode::Fast => received.retain(|position| in_time.get(position) == Some(&true)),
        Mode::Strict => {
            let gap = received.iter().zip(0..).find(|(at, index)| **at != *index);
            let end = gap.map_or(u64::MAX, |(_, index)| index);
            received.retain(|&position| position < end);
        }
    }
    received
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_those_of_a_naive_reassembler(plan in plans(), segments in segments()) {
        // In mode FAST a byte counts if its place was not delivered when it came.
        let mut in_time = BTreeMap::new();
        let mut cut = false;
        let collect = run(&[plan], &segments, 1, |collect, (from, to)| {
            // A byte beyond the cutoff ends the stream.
            let is_over = plan.cutoff.is_some_and(|cutoff| u64::from(from) >= cutoff);
            let end = match cut {
                true => u64::MAX,
                false => collect.end.get(&0).copied().unwrap_or(0),
            };
            cut |= is_over;
            for position in u64::from(from)..u64::from(to) {
                *in_time.entry(position).or_insert(false) |= position >= end;
            }
        });
        let found: Vec<u64> = collect
            .bytes
            .get(&0)
            .map(|bytes| bytes.keys().copied().collect())
            .unwrap_or_default();
        let wanted = expected(&plan, &segments, &in_time);
        if plan.mode == Mode::Fast && plan.chunk < 16_384 {
            // What lies more than a chunk before a segment is given up with it.
            prop_assert!(found.iter().all(|at| wanted.binary_search(at).is_ok()));
        } else {
            prop_assert_eq!(found, wanted);
        }
        if plan.chunk != 0 {
            prop_assert!(collect.longest <= plan.chunk as usize);
        }
        // How packets come in batches changes nothing.
        let together = run(&[plan], &segments, 256, |_, _| {});
        prop_assert_eq!(collect.log, together.log);
    }
}

/// A consumer that needs time for each byte, on the capture clock.
struct Slow {
    now: Nanos,
    free_at: Nanos,
    nanos_per_byte: u64,
    held: std::collections::VecDeque<(Nanos, OwnedChunk)>,
    bytes: [u64; 2],
    lost: [u64; 2],
    dropped: [u64; 2],
}

impl Slow {
    fn pass(&mut self, now: Nanos) {
        self.now = now;
        while self.held.front().is_some_and(|(until, _)| *until <= now) {
            self.held.pop_front();
        }
    }
}

impl Events for Slow {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let which = usize::from(stream.priority() != 0);
        let len = chunk.bytes().len() as u64;
        match chunk.take() {
            Ok(chunk) => {
                self.bytes[which] += len;
                self.free_at = self.free_at.max(self.now) + Nanos(len * self.nanos_per_byte);
                self.held.push_back((self.free_at, chunk));
            }
            Err(_) => self.lost[which] += len,
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let which = usize::from(stream.priority() != 0);
        self.dropped[which] += stream.statistics().dropped.packets;
    }
}

#[test]
fn high_priority_survives_a_consumer_that_is_too_slow() {
    // One of five connections is important; together they bring four times what the consumer takes.
    const CONNECTIONS: u16 = 20;
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        memory_bytes: 2 << 20,
        ..EngineConfig::default()
    });
    let important = StreamFilter::new(|packet: &FilterPacket<'_>| {
        let (source, destination) = (packet.decoded.source().1, packet.decoded.destination().1);
        source.max(destination) % 5 == 0
    });
    engine
        .add(ApplicationConfig {
            chunk_bytes: 4096,
            priority: Priorities {
                default: 0,
                classes: vec![(important, 7)],
            },
            ..ApplicationConfig::default()
        })
        .unwrap();
    let mut slow = Slow {
        now: Nanos::ZERO,
        free_at: Nanos::ZERO,
        // A packet of 1000 bytes per microsecond comes in.
        nanos_per_byte: 4,
        held: std::collections::VecDeque::new(),
        bytes: [0; 2],
        lost: [0; 2],
        dropped: [0; 2],
    };
    let payload = [0x55; 1000];
    let mut sent = [0_u64; 2];
    for turn in 0..2000_u64 {
        let mut wire = Wire::default();
        let time = Nanos::from_micros(1_000_000 + turn * u64::from(CONNECTIONS));
        for connection in 0..CONNECTIONS {
            let port = 5000 + connection;
            if turn == 0 {
                wire.handshake(time, port);
            }
            let segment = Segment {
                port,
                to_server: true,
                seq: START.wrapping_add(1000 * turn as u32),
                ack: 1000,
                flags: ACK,
                payload: &payload,
            };
            sent[usize::from(port % 5 == 0)] += 1000;
            wire.push(time + Nanos::from_micros(u64::from(connection)), &segment);
        }
        slow.pass(time);
        engine.process(
            &Batch::new(&wire.memory, &wire.packets),
            &mut slow as &mut dyn Events,
        );
        assert!(engine.budget().used() <= engine.budget().limit());
    }
    engine.finish(&mut slow as &mut dyn Events);
    slow.pass(Nanos::MAX);
    assert_eq!(engine.budget().used(), 0);
    assert!(engine.ledger().is_balanced());
    // The important ones bring four fifths of what the consumer takes: nothing of them is lost.
    assert_eq!(
        (slow.bytes[1], slow.dropped[1], slow.lost[1]),
        (sent[1], 0, 0)
    );
    // Of the others nearly all has to go, each packet in its place of the ledger.
    assert!(
        slow.bytes[0] < sent[0] / 8,
        "{} of {}",
        slow.bytes[0],
        sent[0]
    );
    assert_eq!(engine.ledger().at(Place::Priority), slow.dropped[0]);
    assert_eq!(
        sent[0],
        slow.bytes[0] + 1000 * slow.dropped[0] + slow.lost[0]
    );
}

#[test]
fn memory_is_flushed_before_anything_is_dropped() {
    // More streams than there is memory for whole chunks.
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        memory_bytes: 1 << 20,
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig::default()).unwrap();
    #[derive(Default)]
    struct Sum(u64);
    impl Events for Sum {
        fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
            self.0 += chunk.new_bytes().len() as u64;
        }
    }
    let mut sum = Sum::default();
    let mut sent = 0;
    for turn in 0..30_u32 {
        for ports in (2000_u16..5000).collect::<Vec<_>>().chunks(60) {
            let mut wire = Wire::default();
            let time = Nanos::from_millis(1000 + u64::from(turn));
            for &port in ports {
                if turn == 0 {
                    wire.handshake(time, port);
                }
                let segment = Segment {
                    port,
                    to_server: true,
                    seq: START.wrapping_add(700 * turn),
                    ack: 1000,
                    flags: ACK,
                    payload: &[7; 700],
                };
                wire.push(time, &segment);
                sent += 700;
            }
            engine.process(
                &Batch::new(&wire.memory, &wire.packets),
                &mut sum as &mut dyn Events,
            );
            assert!(engine.budget().used() <= engine.budget().limit());
        }
    }
    engine.finish(&mut sum as &mut dyn Events);
    let statistics = engine.statistics();
    assert_eq!(sum.0, sent);
    assert_eq!(engine.ledger().dropped(), 0);
    assert!(statistics.flushed_early > 0);
    assert!(
        statistics.memory_high <= (1 << 19) + (1 << 17),
        "{}",
        statistics.memory_high
    );
}

#[test]
fn packets_of_other_protocols_are_events_in_every_mode() {
    #[derive(Default)]
    struct Lone(Vec<(Vec<u8>, usize)>);
    impl Events for Lone {
        fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
            assert!(chunk.flags().contains(ChunkFlags::PACKET));
            self.0.push((chunk.bytes().to_vec(), chunk.packets().len()));
        }
    }
    for (mode, need_packets) in [
        (Mode::Wait, false),
        (Mode::Wait, true),
        (Mode::Fast, false),
        (Mode::Strict, true),
    ] {
        let mut engine = Engine::new(EngineConfig {
            shard: shard(),
            need_packets,
            ..EngineConfig::default()
        });
        engine.add(ApplicationConfig {
            mode,
            ..ApplicationConfig::default()
        });
        // A protocol for experiments (RFC 3692).
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 24, 0, 0, 0, 0, 64, 253, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(b"lone");
        let packet = PacketDescriptor {
            time: Nanos::from_millis(1),
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        };
        let mut lone = Lone::default();
        engine.process(
            &Batch::new(&frame, &[packet, packet]),
            &mut lone as &mut dyn Events,
        );
        engine.finish(&mut lone as &mut dyn Events);
        let expected = (b"lone".to_vec(), usize::from(need_packets));
        assert_eq!(lone.0, [expected.clone(), expected], "{mode:?}");
        assert_eq!(engine.budget().used(), 0);
    }
}
