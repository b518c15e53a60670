//! What a handler of streams is told of segments that are not simply next, and of the times of what waited.

use flowgauge_flow::FlowRecord;
use flowgauge_reassembly::ReassemblyConfig;
use flowgauge_stream::{ChecksumPolicy, Chunk, Handler, Remark, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;
const START: u32 = 1000;
const SERVER: u32 = 500;

/// Chunks and remarks in the order in which they were told, seconds for times.
#[derive(Default)]
struct Told(Vec<String>);

impl Handler for Told {
    const STREAMS: bool = true;
    const REMARKS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        let text = String::from_utf8_lossy(chunk.bytes);
        let (time, captured) = (chunk.time.as_secs_f64(), chunk.captured.as_secs_f64());
        self.0.push(format!("{time} {captured} {text}"));
    }

    fn stream_remark(&mut self, _: &Stream<'_>, remark: &Remark) {
        let Remark {
            time,
            repeated,
            conflicting,
            after_fin,
            implausible,
        } = *remark;
        let time = time.as_secs_f64();
        self.0.push(format!(
            "{time}: {repeated} again, {conflicting} other, {after_fin} behind FIN{}",
            if implausible { ", implausible" } else { "" }
        ));
    }

    fn flow(&mut self, _: &FlowRecord<'_>) {}
}

/// A packet of the client (0) or the server.
struct Packet {
    second: u64,
    from: u8,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: &'static [u8],
    /// Bytes of the payload that were not captured.
    cut: u16,
}

/// What is said of packets, behind a handshake where there is one.
fn told(greets: bool, packets: &[Packet]) -> Vec<String> {
    let mut shard = Shard::new(ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        reassembly: ReassemblyConfig {
            hole_time: Nanos::from_secs(30),
            reorder_time: Nanos::from_secs(20),
            ..ReassemblyConfig::default()
        },
        ..ShardConfig::default()
    });
    let mut told = Told::default();
    let bare = |from, seq, ack, flags| Packet {
        second: 1,
        from,
        seq,
        ack,
        flags,
        payload: b"",
        cut: 0,
    };
    let greeting = [
        bare(0, START - 1, 0, SYN),
        bare(1, SERVER - 1, START, SYN | ACK),
        bare(0, START, SERVER, ACK),
    ];
    let greeting = if greets { &greeting[..] } else { &[] };
    for packet in greeting.iter().chain(packets) {
        let from = packet.from;
        let mut frame = vec![0x45, 0];
        frame.extend((40 + packet.payload.len() as u16 + packet.cut).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, 1 - from]);
        frame.extend([4, from, 4, 1 - from]);
        frame.extend(packet.seq.to_be_bytes());
        frame.extend(packet.ack.to_be_bytes());
        frame.extend([0x50, packet.flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame.extend(packet.payload);
        let descriptor = PacketDescriptor {
            time: Nanos::from_secs(packet.second),
            captured_len: frame.len() as u32,
            wire_len: frame.len() as u32 + u32::from(packet.cut),
            link: LinkType::RAW,
            ..PacketDescriptor::default()
        };
        shard.process(&Batch::new(&frame, &[descriptor]), &mut told);
    }
    shard.finish(&mut told);
    told.0
}

/// The client's segment at this place.
fn client(second: u64, at: i64, payload: &'static [u8]) -> Packet {
    Packet {
        second,
        from: 0,
        seq: (i64::from(START) + at) as u32,
        ack: SERVER,
        flags: ACK,
        payload,
        cut: 0,
    }
}

/// The server has this many of the client's bytes, and says so.
fn server(second: u64, acknowledged: u32, payload: &'static [u8]) -> Packet {
    Packet {
        second,
        from: 1,
        seq: SERVER,
        ack: START + acknowledged,
        flags: ACK,
        payload,
        cut: 0,
    }
}

#[test]
fn what_waited_has_the_time_of_what_completed_it() {
    let seen = told(
        true,
        &[
            client(2, 0, b"a"),
            client(3, 2, b"c"),
            client(5, 1, b"b"),
            server(6, 3, b"yes"),
        ],
    );
    assert_eq!(seen, ["2 2 a", "5 5 b", "5 5 c", "6 6 yes"]);
}

#[test]
fn what_is_behind_a_hole_that_is_given_up_has_its_own_time() {
    let seen = told(
        true,
        &[
            client(2, 0, b"a"),
            client(3, 2, b"c"),
            client(4, 5, b"f"),
            // (Where segments join while they wait the first says when.)
            client(5, 3, b"d"),
            server(6, 6, b"yes"),
        ],
    );
    assert_eq!(seen, ["2 2 a", "6 3 cd", "6 4 f", "6 6 yes"]);
}

#[test]
fn a_cut_packet_that_fills_a_hole_completes_what_is_behind_it() {
    let cut = Packet {
        cut: 2,
        ..client(5, 1, b"b")
    };
    let seen = told(true, &[client(2, 0, b"a"), client(3, 4, b"e"), cut]);
    assert_eq!(seen, ["2 2 a", "5 5 b", "5 5 e"]);
}

#[test]
fn what_was_read_of_a_stream_picked_up_in_the_middle_has_its_own_time() {
    let seen = told(false, &[client(2, 0, b"a"), server(4, 1, b"yes")]);
    assert_eq!(seen, ["4 2 a", "4 4 yes"]);
}

#[test]
fn what_is_behind_a_fin_is_told_however_much_of_the_segment_had_come() {
    let last = Packet {
        flags: ACK | FIN,
        ..client(4, 4, b"ef")
    };
    // The FIN is known, and not reached; then it is reached.
    let seen = told(
        true,
        &[
            client(2, 0, b"abc"),
            last,
            client(5, 2, b"cdefgh"),
            client(6, 4, b"efgh"),
        ],
    );
    let expected = [
        "2 2 abc",
        "5 5 d",
        "5 5 ef",
        "5: 3 again, 0 other, 2 behind FIN",
        "6: 2 again, 0 other, 2 behind FIN",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_cannot_be_of_the_stream_repeats_nothing_of_it() {
    let seen = told(
        true,
        &[
            client(2, 0, b"abc"),
            client(3, 1 << 30, b"far"),
            client(4, 0, b"abc"),
        ],
    );
    let expected = [
        "2 2 abc",
        "3: 0 again, 0 other, 0 behind FIN, implausible",
        "4: 3 again, 0 other, 0 behind FIN",
        // Nothing new has come since where the stream was: at its end it is believed.
        "4 3 far",
    ];
    assert_eq!(seen, expected);
}
