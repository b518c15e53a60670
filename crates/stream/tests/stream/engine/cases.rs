//! Single cases, most of them found by the fuzzer of operation sequences (`hostile`).

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Command, Counts, Cutoff, DataChunk, Engine, EngineConfig,
    Events, Mode, Packets, Parameter, StreamErrors, StreamRef, StreamStatistics,
};
use flowgauge_wire::{Batch, Nanos};

use super::{ACK, FIN, START, SYN, Segment, Wire, shard, truth};

const RST: u8 = 4;

/// A data event of the client's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    application: u8,
    offset: u64,
    repeated: u32,
    bytes: Vec<u8>,
    /// Payloads of its packets.
    packets: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Seen {
    pieces: Vec<Piece>,
    /// Of the client's stream, by application.
    ended: Vec<StreamStatistics>,
    errors: Vec<StreamErrors>,
    /// Where in memory chunks were.
    places: Vec<(u8, usize)>,
    /// Application 0 keeps all of its chunks.
    keeps: bool,
    /// Payloads of the packets of chunks that are taken.
    taken: Vec<Vec<Vec<u8>>>,
    takes: bool,
    /// The client's stream.
    uid: u64,
}

impl Events for Seen {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.uid = stream.uid();
        }
    }

    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        if stream.from_initiator() {
            if self.keeps && of.0 == 0 {
                stream.keep_chunk();
            }
            let payloads = |packets: Packets<'_>| -> Vec<Vec<u8>> {
                packets.map(|packet| packet.payload.to_vec()).collect()
            };
            self.places.push((of.0, chunk.bytes().as_ptr().addr()));
            self.pieces.push(Piece {
                application: of.0,
                offset: chunk.offset(),
                repeated: chunk.info().repeated,
                bytes: chunk.bytes().to_vec(),
                packets: payloads(chunk.packets()),
            });
            if self.takes {
                self.taken.push(payloads(chunk.take().unwrap().packets()));
            }
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.ended.push(stream.statistics());
            self.errors.push(stream.errors());
        }
    }
}

fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(truth).collect()
}

impl Wire {
    /// A packet of the client with what is at these positions of its stream.
    fn client(&mut self, from: u64, to: u64, flags: u8) {
        let payload = bytes(from, to);
        let time = Nanos::from_millis(1_000_000 + self.packets.len() as u64);
        self.push(
            time,
            &Segment {
                port: 1000,
                to_server: true,
                seq: START.wrapping_add(from as u32),
                ack: 1000,
                flags: flags | ACK,
                payload: &payload,
            },
        );
    }
}

fn run(need_packets: bool, applications: &[ApplicationConfig], send: impl Fn(&mut Wire)) -> Seen {
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    send(&mut wire);
    process(need_packets, applications, &wire, Seen::default())
}

fn process(
    need_packets: bool,
    applications: &[ApplicationConfig],
    wire: &Wire,
    mut seen: Seen,
) -> Seen {
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        need_packets,
        ..EngineConfig::default()
    });
    for application in applications {
        engine.add(application.clone()).unwrap();
    }
    engine.process(
        &Batch::new(&wire.memory, &wire.packets),
        &mut seen as &mut dyn Events,
    );
    engine.finish(&mut seen as &mut dyn Events);
    assert_eq!(engine.budget().used(), 0);
    assert!(engine.ledger().is_balanced());
    seen
}

#[test]
fn a_packet_across_two_chunks_is_one_of_the_first() {
    let application = ApplicationConfig {
        chunk_bytes: 1000,
        ..ApplicationConfig::default()
    };
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    for at in 0..10 {
        wire.client(300 * at, 300 * at + 300, 0);
    }
    let seen = Seen {
        takes: true,
        ..Seen::default()
    };
    let seen = process(true, &[application], &wire, seen);
    let chunks: Vec<Vec<u8>> = (seen.pieces.iter())
        .map(|piece| piece.bytes.clone())
        .collect();
    assert_eq!(
        chunks,
        [bytes(0, 1000), bytes(1000, 2000), bytes(2000, 3000)]
    );
    let packets = |range: core::ops::Range<u64>| -> Vec<Vec<u8>> {
        range.map(|at| bytes(300 * at, 300 * at + 300)).collect()
    };
    let expected = [packets(0..4), packets(4..7), packets(7..10)];
    for (piece, expected) in seen.pieces.iter().zip(&expected) {
        let with_payload = |payload: &&Vec<u8>| !payload.is_empty();
        let payloads: Vec<_> = piece.packets.iter().filter(with_payload).collect();
        assert_eq!(payloads, expected.iter().collect::<Vec<_>>());
    }
    let borrowed: Vec<_> = (seen.pieces.iter())
        .map(|piece| piece.packets.clone())
        .collect();
    assert_eq!(seen.taken, borrowed);
}

#[test]
fn packets_come_in_their_order_wherever_they_are_kept() {
    for chunk_bytes in [100, 1000, 2000, 16_384] {
        let application = ApplicationConfig {
            chunk_bytes,
            ..ApplicationConfig::default()
        };
        let mut wire = Wire::default();
        wire.handshake(Nanos::from_secs(1000), 1000);
        let mut sent = Vec::new();
        let mut at = 0;
        for round in 0..300 {
            // A few hundred without payload between those that have some.
            let len = if round % 100 < 70 { 0 } else { 7 * round % 90 };
            wire.client(at, at + len, 0);
            sent.push(bytes(at, at + len));
            at += len;
        }
        let seen = Seen {
            takes: true,
            ..Seen::default()
        };
        let seen = process(true, &[application], &wire, seen);
        let got: Vec<Vec<u8>> = (seen.pieces.iter())
            .flat_map(|piece| piece.packets.clone())
            .collect();
        // Behind SYN and ACK of the handshake.
        assert_eq!(got[2..], sent, "{chunk_bytes}");
        assert_eq!(seen.taken.concat(), got);
        let all: Vec<u8> = (seen.pieces.iter())
            .flat_map(|piece| piece.bytes.clone())
            .collect();
        assert_eq!(all, bytes(0, at));
    }
}

#[test]
fn a_packet_across_the_end_of_its_stream_has_all_of_its_payload() {
    let seen = run(true, &[ApplicationConfig::default()], |wire| {
        wire.client(20, 20, FIN);
        wire.client(0, 30, 0);
    });
    let all: Vec<u8> = (seen.pieces.iter().flat_map(|piece| piece.bytes.clone())).collect();
    assert_eq!(all, bytes(0, 20));
    let payloads: Vec<Vec<u8>> = (seen.pieces.iter())
        .flat_map(|piece| piece.packets.clone())
        .filter(|payload| !payload.is_empty())
        .collect();
    assert_eq!(payloads, [bytes(0, 30)]);
}

#[test]
fn applications_that_share_an_overlap_share_it_after_a_reset() {
    let application = ApplicationConfig {
        chunk_bytes: 100,
        overlap_bytes: 4,
        ..ApplicationConfig::default()
    };
    let seen = run(false, &[application.clone(), application], |wire| {
        wire.client(0, 10, 0);
        wire.client(10, 10, RST);
        wire.client(10, 20, 0);
    });
    for application in [0, 1] {
        let pieces = (seen.pieces.iter()).filter(|piece| piece.application == application);
        let pieces: Vec<_> = pieces
            .map(|piece| (piece.offset, piece.repeated, piece.bytes.clone()))
            .collect();
        assert_eq!(
            pieces,
            [(0, 0, bytes(0, 10)), (6, 4, bytes(6, 20))],
            "application {application}"
        );
    }
}

/// Of two that share a chunk one changes its size: what is under way is still that of both.
#[test]
fn a_changed_parameter_holds_from_the_next_chunk_on() {
    let application = ApplicationConfig {
        chunk_bytes: 100,
        ..ApplicationConfig::default()
    };
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    wire.client(0, 50, 0);
    wire.client(50, 150, 0);
    let (first, second) = wire.packets.split_at(4);
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        ..EngineConfig::default()
    });
    let applications = [0; 2].map(|_| engine.add(application.clone()).unwrap());
    let mut seen = Seen::default();
    engine.process(
        &Batch::new(&wire.memory, first),
        &mut seen as &mut dyn Events,
    );
    let smaller = Command::SetParameter(Parameter::ChunkBytes(30));
    assert!(engine.command(seen.uid, applications[1], smaller));
    engine.process(
        &Batch::new(&wire.memory, second),
        &mut seen as &mut dyn Events,
    );
    engine.finish(&mut seen as &mut dyn Events);
    let lengths = |application: ApplicationId| -> Vec<usize> {
        (seen.pieces.iter())
            .filter(|piece| piece.application == application.0)
            .map(|piece| piece.bytes.len())
            .collect()
    };
    assert_eq!(lengths(applications[0]), [100, 50]);
    assert_eq!(lengths(applications[1]), [100, 30, 20]);
    assert_eq!(seen.places[0].1, seen.places[1].1);
}

#[test]
fn what_waits_counts_once_for_an_application_that_does_not_want_it() {
    let with_cutoff = |limit| {
        let mut application = ApplicationConfig::default();
        application.cutoff.default = Cutoff(limit);
        application
    };
    let seen = run(false, &[with_cutoff(0), with_cutoff(10)], |wire| {
        wire.client(0, 5, 0);
        wire.client(10, 20, 0);
        // Fills the hole, and is the last that anybody wants.
        wire.client(5, 10, 0);
        wire.client(20, 30, 0);
    });
    let [none, some] = &seen.ended[..] else {
        panic!("{:?}", seen.ended);
    };
    assert_eq!((none.all.bytes, none.all.packets), (30, 6));
    let everything = Counts {
        packets: 4,
        bytes: 30,
    };
    assert_eq!(none.discarded, everything);
    let behind = Counts {
        packets: 2,
        bytes: 20,
    };
    assert_eq!(some.discarded, behind);
}

#[test]
fn a_handshake_whose_answer_was_captured_first_is_one_for_strict() {
    let strict = ApplicationConfig {
        mode: Mode::Strict,
        ..ApplicationConfig::default()
    };
    let mut wire = Wire::default();
    let begin = START.wrapping_sub(1);
    for (to_server, seq, ack, flags) in [
        (false, 999, START, SYN | ACK),
        (true, begin, 0, SYN),
        (true, START, 1000, ACK),
    ] {
        let segment = Segment {
            port: 1000,
            to_server,
            seq,
            ack,
            flags,
            payload: &[],
        };
        wire.push(Nanos::from_secs(1000), &segment);
    }
    wire.client(0, 10, 0);
    let seen = process(false, &[strict], &wire, Seen::default());
    assert_eq!(seen.pieces.len(), 1);
    assert_eq!(seen.pieces[0].bytes, bytes(0, 10));
    assert_eq!(seen.errors, [StreamErrors(0)]);
}

#[test]
fn in_mode_fast_copies_that_differ_are_noted() {
    let fast = ApplicationConfig {
        mode: Mode::Fast,
        ..ApplicationConfig::default()
    };
    let conflict = |differs: bool| {
        let mut wire = Wire::default();
        wire.handshake(Nanos::from_secs(1000), 1000);
        wire.client(0, 10, 0);
        // Behind a hole, then over both: a copy that is longer.
        wire.client(20, 30, 0);
        let mut payload = bytes(5, 40);
        payload[20] ^= u8::from(differs);
        let segment = Segment {
            port: 1000,
            to_server: true,
            seq: START.wrapping_add(5),
            ack: 1000,
            flags: ACK,
            payload: &payload,
        };
        wire.push(Nanos::from_secs(1001), &segment);
        let seen = process(false, core::slice::from_ref(&fast), &wire, Seen::default());
        seen.errors[0].contains(StreamErrors::OVERLAP_CONFLICT)
    };
    assert!(conflict(true));
    assert!(!conflict(false));
}

#[test]
fn a_chunk_that_is_kept_again_and_again_stays_where_it_is() {
    let application = ApplicationConfig {
        chunk_bytes: 16,
        ..ApplicationConfig::default()
    };
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    for at in 0..128 {
        wire.client(16 * at, 16 * at + 16, 0);
    }
    let seen = Seen {
        keeps: true,
        ..Seen::default()
    };
    let seen = process(false, &[application.clone(), application], &wire, seen);
    let kept: Vec<&Piece> = (seen.pieces.iter())
        .filter(|piece| piece.application == 0)
        .collect();
    assert_eq!(kept.len(), 128);
    assert_eq!(kept[127].bytes, bytes(0, 16 * 128));
    let mut places: Vec<usize> = (seen.places.iter())
        .filter(|(application, _)| *application == 0)
        .map(|(_, place)| *place)
        .collect();
    places.dedup();
    // It moves only when it needs a larger buffer.
    assert!(places.len() < 40, "{}", places.len());
}

#[test]
fn data_on_a_syn_within_an_open_connection_are_of_the_one_it_begins_and_once() {
    let again = START.wrapping_add(500_000);
    // Answered, refused, or gone on with where one direction was captured; by who takes the data, and who does not.
    for (to_server, flags, taken) in [
        (false, SYN | ACK, 6),
        (false, SYN | ACK, 0),
        (false, RST | ACK, 6),
        (true, ACK, 6),
    ] {
        for mode in [Mode::Wait, Mode::Fast] {
            let application = ApplicationConfig {
                mode,
                ..ApplicationConfig::default()
            };
            let mut wire = Wire::default();
            if to_server {
                wire.client(0, 10, 0);
            } else {
                wire.handshake(Nanos::from_secs(1000), 1000);
            }
            wire.client(10, 20, 0);
            let seq = match to_server {
                true => again.wrapping_add(taken),
                false => 5999,
            };
            for (to_server, seq, ack, flags, payload) in [
                (true, again.wrapping_sub(1), 0, SYN, &b"secret"[..]),
                (to_server, seq, again.wrapping_add(taken), flags, &[]),
            ] {
                let segment = Segment {
                    port: 1000,
                    to_server,
                    seq,
                    ack,
                    flags,
                    payload,
                };
                wire.push(Nanos::from_secs(1001), &segment);
            }
            let seen = process(false, &[application], &wire, Seen::default());
            let what = format!("{mode:?}, {flags}, {taken}");
            let found = (seen.pieces.iter()).filter(|piece| piece.bytes == b"secret");
            assert_eq!(found.count(), 1, "{what}");
            assert_eq!(seen.ended.len(), 2, "{what}");
            assert_eq!(seen.ended[1].all.bytes, 6, "{what}");
            for of in &seen.ended {
                assert_eq!(of.discarded.bytes, 0, "{what}");
            }
        }
    }
}
