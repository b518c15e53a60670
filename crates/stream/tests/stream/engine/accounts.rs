//! What became of every byte and packet of a stream: all of them are captured, discarded or dropped.

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Command, Counts, Cutoff, DataChunk, Engine, EngineConfig,
    Events, Mode, StreamRef, StreamSnapshot,
};
use flowgauge_wire::{Batch, Nanos, Place};
use proptest::prelude::*;

use super::{ACK, FIN, START, Segment, Wire, segments, shard, truth};

const RST: u8 = 4;
const MODES: [Mode; 3] = [Mode::Wait, Mode::Fast, Mode::Strict];

/// What an application got of the client's stream.
#[derive(Default)]
struct Got {
    uid: u64,
    positions: Vec<u64>,
    missing: u64,
    end: Option<StreamSnapshot>,
}

#[derive(Default)]
struct Seen(Vec<Got>);

impl Seen {
    fn of(&mut self, application: ApplicationId) -> &mut Got {
        let at = usize::from(application.0);
        self.0.resize_with(self.0.len().max(at + 1), Got::default);
        &mut self.0[at]
    }
}

impl Events for Seen {
    fn created(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.of(of).uid = stream.uid();
        }
    }

    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        if !stream.from_initiator() {
            return;
        }
        let got = self.of(of);
        let info = chunk.info();
        if info.repeated == 0 {
            got.missing += info.gap_before;
        }
        for at in info.repeated..chunk.bytes().len() as u32 {
            match chunk.holes().iter().any(|hole| hole.contains(&at)) {
                true => got.missing += 1,
                false => got.positions.push(info.offset + u64::from(at)),
            }
        }
    }

    fn terminated(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            let got = self.of(of);
            got.missing += stream.missing_at_end();
            got.end = Some(stream.snapshot());
        }
    }
}

impl Got {
    fn discarded(&self) -> (u64, u64) {
        pair(self.end.unwrap().statistics.discarded)
    }

    fn captured(&self) -> (u64, u64) {
        pair(self.end.unwrap().statistics.captured())
    }

    /// What it is to have captured of these pieces, a packet each, behind a handshake: those any byte of which it got.
    fn taken_of(&self, pieces: &[(u32, u32)]) -> (u64, u64) {
        let has = |&&(from, to): &&(u32, u32)| {
            let piece = u64::from(from)..u64::from(to);
            self.positions.iter().any(|at| piece.contains(at))
        };
        let taken = pieces.iter().filter(has).count();
        (2 + taken as u64, self.positions.len() as u64)
    }
}

/// Packets and bytes.
fn pair(counts: Counts) -> (u64, u64) {
    (counts.packets, counts.bytes)
}

impl Wire {
    /// A packet of the client with what is at these positions of its stream.
    fn bytes(&mut self, from: i64, to: i64, flags: u8) {
        let payload: Vec<u8> = (from..to).map(|at| truth(at as u64)).collect();
        let time = Nanos::from_millis(1_000_000 + self.packets.len() as u64);
        let segment = Segment {
            port: 1000,
            to_server: true,
            seq: START.wrapping_add(from as u32),
            ack: 1000,
            flags: flags | ACK,
            payload: &payload,
        };
        self.push(time, &segment);
    }

    /// The same of which only `captured` bytes were captured.
    fn cut(&mut self, from: i64, to: i64, captured: u32) {
        self.bytes(from, to, 0);
        let packet = self.packets.last_mut().unwrap();
        packet.captured_len -= (to - from) as u32 - captured;
    }

    /// The server has got everything before this position.
    fn acknowledge(&mut self, upto: u32) {
        let time = Nanos::from_millis(1_000_000 + self.packets.len() as u64);
        let segment = Segment {
            port: 1000,
            to_server: false,
            seq: 1000,
            ack: START.wrapping_add(upto),
            flags: ACK,
            payload: &[],
        };
        self.push(time, &segment);
    }
}

fn greeted(send: impl Fn(&mut Wire)) -> Wire {
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    send(&mut wire);
    wire
}

fn with(mode: Mode, cutoff: u64) -> ApplicationConfig {
    let mut application = ApplicationConfig {
        mode,
        ..ApplicationConfig::default()
    };
    application.cutoff.default = Cutoff(cutoff);
    application
}

fn process(applications: &[ApplicationConfig], wire: &Wire, batch: usize) -> (Engine, Vec<Got>) {
    process_until(applications, wire, batch, None)
}

/// The same; behind so many batches the first application discards the stream.
fn process_until(
    applications: &[ApplicationConfig],
    wire: &Wire,
    batch: usize,
    discards: Option<usize>,
) -> (Engine, Vec<Got>) {
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        ..EngineConfig::default()
    });
    for application in applications {
        engine.add(application.clone()).unwrap();
    }
    let mut seen = Seen::default();
    for (number, packets) in wire.packets.chunks(batch).enumerate() {
        engine.process(
            &Batch::new(&wire.memory, packets),
            &mut seen as &mut dyn Events,
        );
        if Some(number) == discards {
            let first = ApplicationId(0);
            let uid = seen.of(first).uid;
            engine.command(uid, first, Command::Discard);
        }
    }
    engine.finish(&mut seen as &mut dyn Events);
    let (ledger, statistics) = (engine.ledger(), engine.statistics());
    assert!(ledger.is_balanced());
    assert_eq!(statistics.discarded.packets, ledger.discarded());
    assert_eq!(statistics.dropped.packets, ledger.dropped());
    if let [only] = &seen.0[..] {
        let end = only.end.unwrap();
        assert_eq!(end.statistics.discarded, statistics.discarded);
        let others = end.opposite_statistics.all;
        assert_eq!(statistics.all, end.statistics.all + others);
    }
    (engine, seen.0)
}

fn run(application: ApplicationConfig, wire: &Wire) -> Got {
    process(&[application], wire, 256).1.remove(0)
}

#[test]
fn what_the_snap_length_cut_off_before_a_cutoff_is_missing() {
    for mode in [Mode::Wait, Mode::Fast] {
        for chunk_bytes in [0, 16, 16_384] {
            let application = |cutoff| ApplicationConfig {
                chunk_bytes,
                ..with(mode, cutoff)
            };
            // The next bytes are behind the cutoff, which is in what was cut off.
            let wire = greeted(|wire| {
                wire.cut(0, 100, 60);
                wire.bytes(100, 200, 0);
                wire.bytes(200, 300, 0);
            });
            let got = run(application(80), &wire);
            let what = format!("{mode:?} {chunk_bytes}");
            assert_eq!((got.positions.len(), got.missing), (60, 20), "{what}");
            assert!(got.end.unwrap().is_cut);
            assert_eq!(got.captured(), (3, 80), "{what}");
            assert_eq!(got.discarded(), (2, 220), "{what}");
            // ... right behind it.
            let got = run(application(100), &wire);
            assert_eq!((got.positions.len(), got.missing), (60, 40), "{what}");
            assert_eq!((got.captured(), got.discarded()), ((3, 100), (2, 200)));
            // ... in what is next.
            let got = run(application(150), &wire);
            assert_eq!((got.positions.len(), got.missing), (110, 40), "{what}");
            assert_eq!((got.captured(), got.discarded()), ((4, 150), (1, 150)));
            // Nothing follows: what is behind the cutoff is not missed.
            let wire = greeted(|wire| wire.cut(0, 100, 60));
            let got = run(application(80), &wire);
            assert_eq!((got.positions.len(), got.missing), (60, 20), "{what}");
            assert_eq!((got.captured(), got.discarded()), ((3, 80), (0, 20)));
        }
    }
}

#[test]
fn what_was_not_captured_before_a_cutoff_is_missing() {
    for mode in [Mode::Wait, Mode::Fast] {
        let wire = greeted(|wire| {
            wire.bytes(0, 60, 0);
            wire.bytes(100, 200, 0);
            wire.acknowledge(200);
            wire.bytes(200, 300, 0);
        });
        for (cutoff, delivered, missing, packets) in
            [(80, 60, 20, 2), (100, 60, 40, 2), (110, 70, 40, 1)]
        {
            let got = run(with(mode, cutoff), &wire);
            let what = format!("{mode:?} {cutoff}");
            assert_eq!((got.positions.len(), got.missing), (delivered, missing));
            assert_eq!(got.discarded(), (packets, 260 - delivered as u64), "{what}");
        }
    }
    // Where mode STRICT stops before it.
    let wire = greeted(|wire| {
        wire.bytes(0, 60, 0);
        wire.bytes(100, 200, 0);
    });
    let got = run(with(Mode::Strict, 80), &wire);
    assert_eq!((got.positions.len(), got.missing), (60, 20));
    assert!(got.end.unwrap().is_halted);
    assert_eq!(got.discarded(), (1, 100));
}

#[test]
fn packets_that_waited_where_strict_stops_are_discarded() {
    for (acknowledged, fin) in [(false, false), (true, false), (false, true), (true, true)] {
        let wire = greeted(|wire| {
            wire.bytes(0, 10, 0);
            // Small ones share a block, a large one has several.
            for at in 0..5 {
                wire.bytes(20 + 10 * at, 30 + 10 * at, 0);
            }
            wire.bytes(70, 5070, 0);
            // Behind another hole.
            wire.bytes(6000, 6100, 0);
            if fin {
                wire.bytes(6100, 6100, FIN);
            }
            if acknowledged {
                wire.acknowledge(6100);
                wire.bytes(6100, 6200, 0);
            }
        });
        let (engine, got) = process(&[with(Mode::Strict, u64::MAX)], &wire, 256);
        assert_eq!((got[0].positions.len(), got[0].missing), (10, 10));
        let more = u64::from(acknowledged);
        let discarded = (7 + more, 5150 + 100 * more);
        assert_eq!(got[0].discarded(), discarded, "{acknowledged} {fin}");
        assert_eq!(
            engine.ledger().at(Place::Strict) + engine.ledger().at(Place::Outside),
            7 + more
        );
    }
}

#[test]
fn packets_that_waited_behind_a_cutoff_are_discarded() {
    let wire = greeted(|wire| {
        wire.bytes(10, 20, 0);
        wire.bytes(20, 30, 0);
        wire.bytes(30, 40, 0);
        wire.bytes(60, 70, 0);
        wire.bytes(0, 10, 0);
        wire.bytes(40, 50, 0);
    });
    for (cutoff, packets) in [(40, 2), (35, 2), (30, 3), (29, 3), (15, 4), (10, 5), (1, 5)] {
        let (engine, got) = process(&[with(Mode::Wait, cutoff)], &wire, 256);
        assert_eq!(got[0].discarded(), (packets, 60 - cutoff), "{cutoff}");
        assert_eq!(engine.ledger().at(Place::Cutoff), packets);
    }
    // Each application for itself.
    let applications = [40, 29, 0].map(|cutoff| with(Mode::Wait, cutoff));
    let (_, got) = process(&applications, &wire, 256);
    let discarded: Vec<_> = got.iter().map(Got::discarded).collect();
    assert_eq!(discarded, [(2, 20), (3, 31), (6, 60)]);
}

#[test]
fn of_a_segment_that_has_new_bytes_and_old_ones_the_old_are_discarded() {
    for mode in MODES {
        let wire = greeted(|wire| {
            wire.bytes(0, 10, 0);
            wire.bytes(5, 15, 0);
            // Over what waits.
            wire.bytes(20, 30, 0);
            wire.bytes(25, 35, 0);
            wire.bytes(10, 40, 0);
            wire.bytes(40, 45, 0);
            wire.bytes(30, 50, FIN);
        });
        for chunk_bytes in [0, 7, 16_384] {
            let application = ApplicationConfig {
                chunk_bytes,
                ..with(mode, u64::MAX)
            };
            let got = run(application, &wire);
            // With small chunks mode FAST has given up what comes late.
            let delivered = got.positions.len() as u64;
            assert!(delivered == 50 || mode == Mode::Fast && chunk_bytes != 16_384);
            let what = format!("{mode:?} {chunk_bytes}");
            assert_eq!(got.captured(), (9, delivered), "{what}");
            assert_eq!(got.discarded(), (0, 95 - delivered), "{what}");
        }
        // And what is behind a cutoff.
        let got = run(with(mode, 12), &wire);
        assert_eq!(got.captured().1, 12, "{mode:?}");
        // Each application for itself.
        let applications = [mode, Mode::Wait].map(|mode| with(mode, u64::MAX));
        let (_, got) = process(&applications, &wire, 256);
        for got in got {
            assert_eq!((got.captured(), got.discarded()), ((9, 50), (0, 45)));
        }
    }
}

#[test]
fn what_comes_from_before_the_first_bytes_taken_is_no_duplicate() {
    for mode in MODES {
        // No handshake: the stream begins where it is when it is seen first.
        let mut wire = Wire::default();
        wire.bytes(100, 100, 0);
        wire.bytes(100, 110, 0);
        wire.bytes(80, 90, 0);
        wire.bytes(95, 120, 0);
        wire.bytes(100, 110, 0);
        let (engine, got) = process(&[with(mode, u64::MAX)], &wire, 1);
        if mode == Mode::Strict {
            // Nothing of it is wanted.
            assert_eq!(got[0].discarded(), (4, 55));
            continue;
        }
        assert_eq!(got[0].discarded(), (2, 35), "{mode:?}");
        assert_eq!(engine.ledger().at(Place::Outside), 1, "{mode:?}");
        assert_eq!(engine.ledger().at(Place::Duplicate), 1, "{mode:?}");
    }
}

#[test]
fn what_has_no_place_in_its_stream_is_discarded() {
    for mode in MODES {
        let wire = greeted(|wire| {
            wire.bytes(0, 10, 0);
            // Where the receiver allowed nothing, and behind the end.
            wire.bytes(900_000_000, 900_000_010, 0);
            wire.bytes(10, 20, FIN);
            wire.bytes(20, 30, 0);
            wire.bytes(15, 40, 0);
            wire.bytes(20, 27, RST);
        });
        let (engine, got) = process(&[with(mode, u64::MAX)], &wire, 256);
        assert_eq!(got[0].captured(), (5, 20), "{mode:?}");
        assert_eq!(got[0].discarded(), (3, 52), "{mode:?}");
        assert_eq!(engine.ledger().discarded(), 3, "{mode:?}");
    }
}

/// Pieces of a stream: none has a byte of another.
fn pieces() -> impl Strategy<Value = Vec<(u32, u32)>> {
    prop::collection::vec((1_u32..300, 0_u8..9, 0_usize..8), 1..30).prop_map(|cuts| {
        let mut all = Vec::new();
        let mut start = 0;
        for (len, fate, _) in &cuts {
            if *fate != 0 {
                all.push((start, start + len));
            }
            start += len;
        }
        for (at, (_, _, moved)) in cuts.iter().enumerate() {
            let other = at + moved;
            if *moved > 3 && other < all.len() {
                all.swap(at, other);
            }
        }
        all
    })
}

fn applications() -> impl Strategy<Value = Vec<ApplicationConfig>> {
    let application = (
        prop::sample::select(&MODES[..]),
        prop::sample::select(&[0_u32, 64, 1000, 16_384][..]),
        prop_oneof![Just(u64::MAX), 0_u64..4000],
    );
    let application = application.prop_map(|(mode, chunk_bytes, cutoff)| ApplicationConfig {
        chunk_bytes,
        ..with(mode, cutoff)
    });
    // (Beside others that wait it is not exact for one in mode FAST what these wait for in vain.)
    prop::collection::vec(application, 1..4).prop_map(|mut applications| {
        let is_fast = applications[0].mode == Mode::Fast;
        applications.retain(|application| (application.mode == Mode::Fast) == is_fast);
        applications
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A packet is captured where an application got any byte of it.
    #[test]
    fn of_pieces_every_byte_and_packet_is_accounted_for(
        applications in applications(),
        pieces in pieces(),
        batch in prop::sample::select(&[1_usize, 5, 256][..]),
        acknowledged in any::<bool>(),
    ) {
        let wire = greeted(|wire| {
            for &(from, to) in &pieces {
                wire.bytes(i64::from(from), i64::from(to), 0);
                if acknowledged {
                    wire.acknowledge(to);
                }
            }
        });
        let (_, got) = process(&applications, &wire, batch);
        for (at, got) in got.iter().enumerate() {
            prop_assert_eq!(got.captured(), got.taken_of(&pieces), "application {}", at);
        }
    }

    /// A stream that is discarded: what is in the chunk under way is discarded with it, packet by packet.
    #[test]
    fn of_a_discarded_stream_every_byte_and_packet_is_accounted_for(
        applications in applications(),
        pieces in pieces(),
        discards in 0_usize..60,
        acknowledged in any::<bool>(),
    ) {
        let wire = greeted(|wire| {
            for &(from, to) in &pieces {
                wire.bytes(i64::from(from), i64::from(to), 0);
                if acknowledged {
                    wire.acknowledge(to);
                }
            }
        });
        let (_, got) = process_until(&applications, &wire, 1, Some(discards));
        for (at, got) in got.iter().enumerate() {
            prop_assert_eq!(got.captured(), got.taken_of(&pieces), "application {}", at);
        }
    }

    /// Of segments that repeat each other every byte is captured once at most.
    #[test]
    fn of_segments_every_byte_is_accounted_for(
        applications in applications(),
        segments in segments(),
        batch in prop::sample::select(&[1_usize, 5, 256][..]),
    ) {
        let wire = greeted(|wire| {
            for &(from, to) in &segments {
                wire.bytes(i64::from(from), i64::from(to), 0);
            }
        });
        let (_, got) = process(&applications, &wire, batch);
        for (at, got) in got.iter().enumerate() {
            let delivered = got.positions.len() as u64;
            prop_assert_eq!(got.captured().1, delivered, "application {}", at);
        }
    }
}
