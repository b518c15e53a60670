//! Mode FAST on what a hostile or unlucky sender does: numbers far off, a FIN before its data, data
//! behind a FIN, copies that differ.

use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkFlags, DataChunk, Engine, EngineConfig, Events,
    HostPolicies, Mode, StreamRef,
};
use flowgauge_stream::{ChecksumPolicy, ShardConfig};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const START: u32 = 1000;

/// What the client's stream delivers: by chunk its position, bytes (`.` in holes) and flags.
#[derive(Default)]
struct Chunks(Vec<(u64, String, ChunkFlags)>);

impl Events for Chunks {
    fn data(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        assert!(stream.from_initiator());
        let mut bytes = chunk.bytes().to_vec();
        for hole in chunk.holes() {
            bytes[hole.start as usize..hole.end as usize].fill(b'.');
        }
        let text = String::from_utf8(bytes).unwrap();
        self.0.push((chunk.offset(), text, chunk.flags()));
    }
}

/// A handshake, then the client's packets: position in its stream, flags, payload.
fn deliver(policy: OverlapPolicy, packets: &[(u32, u8, &[u8])]) -> Chunks {
    let mut engine = Engine::new(EngineConfig {
        shard: ShardConfig {
            checksums: ChecksumPolicy::Ignore,
            ..ShardConfig::default()
        },
        policies: HostPolicies::new(policy),
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig {
        mode: Mode::Fast,
        chunk_bytes: 100,
        ..ApplicationConfig::default()
    });
    let mut chunks = Chunks::default();
    let mut send = |to_server: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        let hosts: [[u8; 6]; 2] = [[10, 0, 0, 1, 4, 0], [10, 0, 0, 2, 0, 80]];
        let (from, to) = (
            &hosts[usize::from(!to_server)],
            &hosts[usize::from(to_server)],
        );
        frame.extend([&from[..4], &to[..4], &from[4..], &to[4..]].concat());
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(payload);
        let packet = PacketDescriptor {
            time: Nanos::from_secs(1),
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        };
        engine.process(
            &Batch::new(&frame, &[packet]),
            &mut chunks as &mut dyn Events,
        );
    };
    send(true, START - 1, 0, SYN, b"");
    send(false, 499, START, SYN | ACK, b"");
    send(true, START, 500, ACK, b"");
    for &(at, flags, payload) in packets {
        send(true, START.wrapping_add(at), 500, ACK | flags, payload);
    }
    engine.finish(&mut chunks as &mut dyn Events);
    assert!(engine.ledger().is_balanced());
    chunks
}

#[test]
fn a_segment_far_outside_the_window_does_not_end_the_stream() {
    let packets: [(u32, u8, &[u8]); 3] =
        [(0, 0, b"abc"), (900_000_000, 0, b"forged"), (3, 0, b"def")];
    let seen = deliver(OverlapPolicy::First, &packets);
    assert_eq!(seen.0, [(0, "abcdef".to_owned(), ChunkFlags::LAST)]);
}

#[test]
fn a_second_segment_confirms_that_the_numbers_jumped() {
    let packets: [(u32, u8, &[u8]); 3] = [
        (0, 0, b"abc"),
        (900_000_000, 0, b"waits"),
        (900_000_005, 0, b" and on"),
    ];
    let seen = deliver(OverlapPolicy::First, &packets);
    let seen: Vec<_> = seen
        .0
        .iter()
        .map(|(at, text, _)| (*at, &text[..]))
        .collect();
    assert_eq!(seen, [(0, "abc"), (900_000_000, "waits and on")]);
}

#[test]
fn nothing_is_behind_a_fin() {
    let packets: [(u32, u8, &[u8]); 4] = [
        (6, FIN, b""),
        (3, 0, b"defXX"),
        (7, 0, b"YY"),
        (0, 0, b"abc"),
    ];
    let seen = deliver(OverlapPolicy::Last, &packets);
    assert_eq!(seen.0, [(0, "abcdef".to_owned(), ChunkFlags::LAST)]);
}

#[test]
fn a_fin_before_its_data_does_not_close_the_chunk() {
    let packets: [&[(u32, u8, &[u8])]; 3] = [
        &[(6, FIN, b""), (3, 0, b"def"), (0, 0, b"abc")],
        &[(3, FIN, b"def"), (0, 0, b"abc")],
        &[(0, 0, b"abc"), (6, FIN, b""), (3, 0, b"def")],
    ];
    for packets in packets {
        let seen = deliver(OverlapPolicy::First, packets);
        assert_eq!(seen.0, [(0, "abcdef".to_owned(), ChunkFlags::LAST)]);
    }
}

#[test]
fn behind_a_hole_the_policy_decides_which_copy_counts() {
    let packets: [(u32, u8, &[u8]); 5] = [
        (0, 0, b"abc"),
        (6, 0, b"ghijkl"),
        (5, 0, b"vwx"),
        (8, 0, b"stuvyz"),
        // Final already.
        (0, 0, b"XXX"),
    ];
    for (policy, expected) in [
        (OverlapPolicy::First, "abc..vghijklyz"),
        (OverlapPolicy::Last, "abc..vwxstuvyz"),
        (OverlapPolicy::Bsd, "abc..vwxijklyz"),
        (OverlapPolicy::Solaris, "abc..vghstuvyz"),
    ] {
        let seen = deliver(policy, &packets);
        assert_eq!(seen.0.len(), 1, "{policy:?}");
        assert_eq!(seen.0[0].1, expected, "{policy:?}");
    }
}
