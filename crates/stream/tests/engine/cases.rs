//! Single cases, most of them found by the fuzzer of operation sequences (`tests/hostile`).

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Counts, Cutoff, DataChunk, Engine, EngineConfig, Events,
    StreamRef, StreamStatistics,
};
use flowgauge_wire::{Batch, Nanos};

use super::{ACK, FIN, START, Segment, Wire, shard, truth};

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
}

impl Events for Seen {
    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        if stream.from_initiator() {
            self.pieces.push(Piece {
                application: of.0,
                offset: chunk.offset(),
                repeated: chunk.info().repeated,
                bytes: chunk.bytes().to_vec(),
                packets: chunk
                    .packets()
                    .map(|packet| packet.payload.to_vec())
                    .collect(),
            });
        }
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        if stream.from_initiator() {
            self.ended.push(stream.statistics());
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
    let mut engine = Engine::new(EngineConfig {
        shard: shard(),
        need_packets,
        ..EngineConfig::default()
    });
    for application in applications {
        engine.add(application.clone()).unwrap();
    }
    let mut wire = Wire::default();
    wire.handshake(Nanos::from_secs(1000), 1000);
    send(&mut wire);
    let mut seen = Seen::default();
    engine.process(&Batch::new(&wire.memory, &wire.packets), &mut seen);
    engine.finish(&mut seen);
    assert_eq!(engine.budget().used(), 0);
    assert!(engine.ledger().is_balanced());
    seen
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
        packets: 1,
        bytes: 20,
    };
    assert_eq!(some.discarded, behind);
}
