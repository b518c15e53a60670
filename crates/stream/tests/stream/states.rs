//! What a stream says of itself when something was wrong with it, and where its packets went.

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Command, Counts, Cutoff, DataChunk, Engine, EngineConfig,
    Events, Mode, Parameter, StreamErrors, StreamRef, StreamSnapshot,
};
use flowgauge_stream::{ChecksumPolicy, ShardConfig};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor, Place};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const START: u32 = 1000;

/// The client's stream at its end, and what was delivered of it.
#[derive(Default)]
struct Seen {
    bytes: Vec<u8>,
    end: Option<StreamSnapshot>,
    ends: Vec<u8>,
    /// Every data event sets another chunk size.
    fickle: bool,
    uid: u64,
}

impl Events for Seen {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.uid = stream.uid();
        }
    }

    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.bytes.extend(chunk.new_bytes());
        if self.fickle {
            let size = 20 + stream.chunks() as u32 + 100_000 * (self.bytes.len() as u32 / 100_000);
            stream.set_parameter(Parameter::ChunkBytes(size));
        }
    }

    fn terminated(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.end = Some(stream.snapshot());
            self.ends.push(of.0);
        }
    }
}

fn engine(mode: Mode) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        shard: ShardConfig {
            checksums: ChecksumPolicy::Ignore,
            ..ShardConfig::default()
        },
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig {
        mode,
        ..ApplicationConfig::default()
    });
    engine
}

/// One packet: of the client, or the server.
fn send(engine: &mut Engine, seen: &mut Seen, from: u8, seq: u32, flags: u8, payload: &[u8]) {
    send_to(engine, seen, from, seq, flags, payload);
}

fn send_to(
    engine: &mut Engine,
    seen: &mut dyn Events,
    from: u8,
    seq: u32,
    flags: u8,
    payload: &[u8],
) {
    let ack = if flags == SYN {
        0
    } else {
        [500, START][usize::from(from)]
    };
    let mut frame = vec![0x45, 0];
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, 1 - from]);
    frame.extend([4, from, 4, 1 - from]);
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    let packet = PacketDescriptor {
        time: Nanos::from_secs(1),
        captured_len: frame.len() as u32,
        wire_len: frame.len() as u32,
        link: LinkType::RAW,
        ..PacketDescriptor::default()
    };
    engine.process(&Batch::new(&frame, &[packet]), seen);
}

/// A handshake, or the beginning of one.
fn greet(engine: &mut Engine, seen: &mut Seen, packets: usize) {
    for (from, seq, flags) in [(0, START - 1, SYN), (1, 499, SYN | ACK), (0, START, ACK)]
        .into_iter()
        .take(packets)
    {
        send(engine, seen, from, seq, flags, b"");
    }
}

/// The client's data by position.
fn data(engine: &mut Engine, seen: &mut Seen, packets: &[(u32, &[u8])]) {
    for &(at, payload) in packets {
        send(engine, seen, 0, START.wrapping_add(at), ACK, payload);
    }
}

#[test]
fn strict_reports_the_hole_at_which_it_stops() {
    let (mut engine, mut seen) = (engine(Mode::Strict), Seen::default());
    greet(&mut engine, &mut seen, 3);
    data(&mut engine, &mut seen, &[(0, b"abc"), (8, b"ijk")]);
    // The other side has got it: the hole is given up. What follows is not wanted.
    send(&mut engine, &mut seen, 1, 500, ACK, b"");
    engine.finish(&mut seen as &mut dyn Events);
    let end = seen.end.unwrap();
    assert_eq!(seen.bytes, b"abc");
    assert!(end.is_halted && !end.is_cut && !end.is_discarded);
    assert_eq!(end.missing_at_end, 5);
    assert!(end.errors.contains(StreamErrors::GAP));
}

#[test]
fn what_comes_behind_has_a_place_of_its_own() {
    let (mut engine, mut seen) = (engine(Mode::Strict), Seen::default());
    // No handshake: nothing is delivered.
    greet(&mut engine, &mut seen, 1);
    data(
        &mut engine,
        &mut seen,
        &[(0, b"abc"), (3, b"def"), (6, b"ghi")],
    );
    engine.finish(&mut seen as &mut dyn Events);
    let end = seen.end.unwrap();
    assert!(seen.bytes.is_empty() && end.is_halted);
    assert!(end.errors.contains(StreamErrors::INCOMPLETE_HANDSHAKE));
    assert_eq!(end.missing_at_end, 0);
    assert_eq!(engine.ledger().at(Place::Strict), 3);
    assert_eq!(engine.ledger().at(Place::Cutoff), 0);
    assert!(engine.ledger().is_balanced());
    assert_eq!(
        end.statistics.discarded,
        Counts {
            packets: 3,
            bytes: 9
        }
    );
}

#[test]
fn errors_are_told() {
    let errors = |packets: &[(u32, &[u8])], reset: Option<u32>| {
        let (mut engine, mut seen) = (engine(Mode::Wait), Seen::default());
        greet(&mut engine, &mut seen, 3);
        data(&mut engine, &mut seen, packets);
        if let Some(at) = reset {
            send(&mut engine, &mut seen, 0, START + at, RST, b"");
        }
        engine.finish(&mut seen as &mut dyn Events);
        seen.end.unwrap().errors
    };
    let none = StreamErrors(0);
    assert_eq!(errors(&[(0, b"abc"), (3, b"def"), (0, b"abc")], None), none);
    assert_eq!(
        errors(&[(0, b"abc"), (900_000_000, b"x"), (3, b"def")], None),
        StreamErrors::INVALID_SEQUENCE
    );
    assert_eq!(
        errors(&[(0, b"abc")], Some(90_000_000)),
        StreamErrors::INVALID_SEQUENCE
    );
    assert_eq!(errors(&[(0, b"abc")], Some(3)), none);
    // Against what waits, and against what is in the chunk under way.
    let differing: [&[(u32, &[u8])]; 2] = [
        &[(3, b"def"), (3, b"dXf"), (0, b"abc")],
        &[(0, b"abc"), (0, b"aXc")],
    ];
    for packets in differing {
        assert_eq!(
            errors(packets, None),
            StreamErrors::OVERLAP_CONFLICT,
            "{packets:?}"
        );
    }
}

#[test]
fn a_copy_of_what_waits_is_a_duplicate() {
    let (mut engine, mut seen) = (engine(Mode::Wait), Seen::default());
    greet(&mut engine, &mut seen, 3);
    data(
        &mut engine,
        &mut seen,
        &[
            (3, b"def"),
            (6, b"ghi"),
            (3, b"def"),
            (4, b"efgh"),
            (5, b"fghiX"),
            (0, b"abc"),
        ],
    );
    engine.finish(&mut seen as &mut dyn Events);
    assert_eq!(seen.bytes, b"abcdefghiX");
    assert_eq!(engine.ledger().at(Place::Duplicate), 2);
    let discarded = seen.end.unwrap().statistics.discarded;
    assert_eq!(
        discarded,
        Counts {
            packets: 2,
            // And those that the last one repeats.
            bytes: 7 + 4
        }
    );
}

#[test]
fn a_stream_goes_on_when_its_cutoff_is_raised_after_it_was_reached() {
    for chunk_bytes in [0, 4, 1000] {
        let (mut engine, mut seen) = (engine(Mode::Wait), Seen::default());
        engine.remove(ApplicationId(0));
        let mut config = ApplicationConfig {
            chunk_bytes,
            ..ApplicationConfig::default()
        };
        config.cutoff.from_initiator = Some(Cutoff(3));
        engine.add(config);
        greet(&mut engine, &mut seen, 3);
        data(&mut engine, &mut seen, &[(0, b"abc"), (3, b"def")]);
        let raised = Command::SetCutoff(Cutoff(100));
        assert!(engine.command(seen.uid, ApplicationId(0), raised));
        // What comes a second time is before where it goes on.
        data(
            &mut engine,
            &mut seen,
            &[(3, b"def"), (6, b"ghi"), (9, b"jkl")],
        );
        send(&mut engine, &mut seen, 0, START + 12, FIN | ACK, b"");
        engine.finish(&mut seen as &mut dyn Events);
        assert_eq!(seen.bytes, b"abcghijkl");
        let statistics = seen.end.unwrap().statistics;
        assert_eq!(statistics.all.bytes, 15);
        assert_eq!(statistics.captured().bytes, 9);
        assert_eq!(statistics.discarded.bytes, 6);
        assert!(engine.ledger().is_balanced());
    }
}

#[test]
fn an_application_that_is_gone_leaves_nothing_to_its_successor() {
    let (mut engine, mut seen) = (engine(Mode::Wait), Seen::default());
    greet(&mut engine, &mut seen, 3);
    data(&mut engine, &mut seen, &[(0, b"abc")]);
    engine.remove(ApplicationId(0));
    assert_eq!(engine.budget().used(), 0);
    assert_eq!(
        engine.add(ApplicationConfig::default()),
        Some(ApplicationId(0))
    );
    data(&mut engine, &mut seen, &[(3, b"def")]);
    engine.finish(&mut seen as &mut dyn Events);
    assert!(seen.bytes.is_empty() && seen.ends.is_empty());
    assert_eq!(engine.ledger().at(Place::Cutoff), 1);
}

#[test]
fn parameter_sets_that_nobody_has_any_more_make_room() {
    let (mut engine, mut seen) = (engine(Mode::Wait), Seen::default());
    seen.fickle = true;
    greet(&mut engine, &mut seen, 3);
    // More sets one after the other than there is room for at once.
    let payload = [7; 1400];
    let mut at = 0_u32;
    while seen.end.is_none() && at < 1400 * 8000 {
        data(&mut engine, &mut seen, &[(at, &payload)]);
        at += 1400;
    }
    engine.finish(&mut seen as &mut dyn Events);
    assert_eq!(seen.bytes.len() as u32, at);
    assert_eq!(engine.statistics().parameters_refused, 0);
}

/// Applications that come and go while the streams they had last.
#[test]
fn parameter_sets_of_applications_that_are_gone_make_room() {
    /// Each stream gets a chunk size of its own.
    struct Different(u32);
    impl Events for Different {
        fn created(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
            if of == ApplicationId(1) {
                self.0 += 1;
                stream.set_parameter(Parameter::ChunkBytes(self.0));
            }
        }
    }
    let (mut engine, mut events) = (engine(Mode::Wait), Different(1 << 17));
    let mut stays = vec![0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1];
    stays.extend([10, 0, 0, 2, 0, 0, 0, 9, 0, 9, 0, 0, b'x']);
    let packet = PacketDescriptor {
        time: Nanos::from_secs(1),
        captured_len: stays.len() as u32,
        wire_len: stays.len() as u32,
        link: LinkType::RAW,
        ..PacketDescriptor::default()
    };
    for round in 0..40_u8 {
        assert!(engine.add(ApplicationConfig::default()).is_some());
        for port in 1000..2000_u16 {
            stays[14..16].copy_from_slice(&[1, round]);
            stays[20..22].copy_from_slice(&port.to_be_bytes());
            engine.process(
                &Batch::new(&stays, &[packet]),
                &mut events as &mut dyn Events,
            );
        }
        engine.remove(ApplicationId(1));
    }
    assert_eq!(events.0 - (1 << 17), 40 * 2000);
    assert_eq!(engine.statistics().parameters_refused, 0);
}

#[test]
fn a_chunk_kept_again_and_again_grows() {
    /// Keeps every chunk.
    #[derive(Default)]
    struct Keeper {
        chunks: usize,
        longest: Vec<u8>,
    }
    impl Events for Keeper {
        fn data(
            &mut self,
            _: ApplicationId,
            stream: &mut StreamRef<'_>,
            chunk: &mut DataChunk<'_>,
        ) {
            self.chunks += 1;
            self.longest = chunk.bytes().to_vec();
            stream.keep_chunk();
        }
    }
    let mut engine = Engine::new(EngineConfig {
        shard: ShardConfig {
            checksums: ChecksumPolicy::Ignore,
            ..ShardConfig::default()
        },
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig {
        chunk_bytes: 1000,
        ..ApplicationConfig::default()
    });
    let (mut seen, mut keeper) = (Seen::default(), Keeper::default());
    greet(&mut engine, &mut seen, 3);
    let all: Vec<u8> = (0..500_000_u32).map(|at| (at / 3) as u8).collect();
    for (at, payload) in all.chunks(700).enumerate() {
        send_to(
            &mut engine,
            &mut keeper,
            0,
            START + 700 * at as u32,
            ACK,
            payload,
        );
    }
    engine.finish(&mut keeper as &mut dyn Events);
    assert!(keeper.chunks >= 500);
    assert!(keeper.longest == all);
    assert_eq!(engine.budget().used(), 0);
}
