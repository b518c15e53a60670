//! What each checksum policy makes of damaged packets and of hosts that compute no checksums.

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Counts, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::{
    BadPayload, ChecksumPolicy, Chunk, Handler, Shard, ShardConfig, Stream, Want,
};
use flowgauge_wire::{Batch, Checksum, Decoded, Nanos, PacketDescriptor, PacketFlags, Place};

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Handler for Bytes {
    const STREAMS: bool = true;

    fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
        self.0.extend_from_slice(chunk.bytes);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Sum {
    Right,
    Wrong,
    Partial,
}

/// An Ethernet frame with a UDP datagram of one byte.
fn frame(host: u8, byte: u8, sum: Sum, header_right: bool) -> Vec<u8> {
    let mut ip = vec![
        0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 0, 9,
    ];
    let mut checksum = Checksum::default();
    checksum.add(&ip);
    let value = checksum.finish() ^ if header_right { 0 } else { 0x0101 };
    ip[10..12].copy_from_slice(&value.to_be_bytes());
    let mut udp = vec![0x10, 0, 0x20, u8::from(host == 9), 0, 9, 0, 0, byte];
    let mut pseudo = Checksum::default();
    pseudo.add(&ip[12..20]);
    pseudo.add(&[0, 17, 0, 9]);
    let partial = !pseudo.finish();
    pseudo.add(&udp);
    let value = match sum {
        Sum::Right => pseudo.finish(),
        Sum::Wrong => pseudo.finish() ^ 0x0101,
        Sum::Partial => partial,
    };
    udp[6..8].copy_from_slice(&value.to_be_bytes());
    [&[2; 12][..], &[8, 0], &ip, &udp].concat()
}

/// The same packets in one batch, and in one each, come to the same.
fn run(policy: ChecksumPolicy, frames: &[(Vec<u8>, PacketFlags)]) -> (String, Shard) {
    let (bytes, shard) = run_in(1, policy, frames);
    let (together, whole) = run_in(frames.len(), policy, frames);
    assert_eq!(together, bytes);
    assert_eq!(whole.ledger(), shard.ledger());
    assert_eq!(whole.statistics().checksums, shard.statistics().checksums);
    (bytes, shard)
}

/// In batches of `size`.
fn run_in(
    size: usize,
    policy: ChecksumPolicy,
    frames: &[(Vec<u8>, PacketFlags)],
) -> (String, Shard) {
    let mut shard = Shard::new(ShardConfig {
        checksums: policy,
        ..ShardConfig::default()
    });
    let mut bytes = Bytes::default();
    for (number, frames) in frames.chunks(size).enumerate() {
        let (mut memory, mut packets) = (Vec::new(), Vec::new());
        for (at, (frame, flags)) in frames.iter().enumerate() {
            packets.push(PacketDescriptor {
                time: Nanos::from_millis((number * size + at) as u64),
                offset: memory.len() as u32,
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                flags: *flags,
                ..PacketDescriptor::default()
            });
            memory.extend_from_slice(frame);
        }
        shard.process(&Batch::new(&memory, &packets), &mut bytes);
    }
    shard.finish(&mut bytes);
    assert!(shard.ledger().is_balanced());
    (String::from_utf8(bytes.0).unwrap(), shard)
}

fn plain(frames: &[(u8, u8, Sum)]) -> Vec<(Vec<u8>, PacketFlags)> {
    frames
        .iter()
        .map(|&(host, byte, sum)| (frame(host, byte, sum, true), PacketFlags::default()))
        .collect()
}

#[test]
fn verify_leaves_out_ignore_takes() {
    let frames = plain(&[
        (1, b'a', Sum::Right),
        (1, b'b', Sum::Wrong),
        (1, b'c', Sum::Right),
    ]);
    let (bytes, shard) = run(ChecksumPolicy::Verify, &frames);
    assert_eq!(bytes, "ac");
    assert_eq!(shard.ledger().at(Place::Malformed), 1);
    assert_eq!(shard.statistics().checksums.bad_transport, 1);
    assert_eq!(run(ChecksumPolicy::Ignore, &frames).0, "abc");
}

#[test]
fn auto_takes_offloading_senders_and_names_them() {
    let frames = plain(&[
        (1, b'a', Sum::Wrong),
        (9, b'b', Sum::Right),
        (1, b'c', Sum::Wrong),
        (9, b'd', Sum::Wrong),
        (9, b'e', Sum::Partial),
    ]);
    let (bytes, shard) = run(ChecksumPolicy::Auto, &frames);
    assert_eq!(bytes, "abce");
    let senders = shard.findings().accepted;
    assert_eq!(senders[0].address.to_ip(4).to_string(), "10.0.0.1");
    assert_eq!((senders[0].packets, senders[0].protocol), (2, Some(17)));
    // Right ones of the other sender do not make it untrue that one of its packets was taken.
    assert_eq!(senders[1].address.to_ip(4).to_string(), "10.0.0.9");
    assert_eq!(senders[1].packets, 1);
    let damaged = shard.findings().most_left_out.unwrap();
    assert_eq!(damaged.address.to_ip(4).to_string(), "10.0.0.9");
    assert_eq!(damaged.packets, 1);
    assert_eq!(shard.statistics().checksums.left_out, 1);
    assert_eq!(shard.statistics().checksums.offloaded, 3);
    assert_eq!(shard.ledger().at(Place::Malformed), 1);
}

#[test]
fn what_the_kernel_says_counts() {
    let frames = [
        (frame(1, b'a', Sum::Right, true), PacketFlags::default()),
        (
            frame(1, b'b', Sum::Wrong, true),
            PacketFlags::CHECKSUM_NOT_READY,
        ),
        (frame(1, b'c', Sum::Wrong, true), PacketFlags::default()),
    ];
    for policy in [ChecksumPolicy::Auto, ChecksumPolicy::Verify] {
        assert_eq!(run(policy, &frames).0, "ab");
    }
}

#[test]
fn a_damaged_ip_header_rules_out() {
    let frames = [
        (frame(1, b'a', Sum::Right, true), PacketFlags::default()),
        (frame(1, b'b', Sum::Right, false), PacketFlags::default()),
    ];
    for policy in [ChecksumPolicy::Auto, ChecksumPolicy::Verify] {
        let (bytes, shard) = run(policy, &frames);
        assert_eq!(bytes, "a");
        assert_eq!(shard.ledger().at(Place::Malformed), 1);
    }
    assert_eq!(run(ChecksumPolicy::Ignore, &frames).0, "ab");
}

#[test]
fn a_fragment_with_a_damaged_header_changes_nothing_for_packets_before_it() {
    let mut fragment = frame(1, b'!', Sum::Right, true);
    // More fragments follow; the header's checksum knows nothing of it.
    fragment[14 + 6] = 0x20;
    let mut frames = plain(&[(1, b'a', Sum::Wrong), (1, b'b', Sum::Right)]);
    frames.push((fragment, PacketFlags::default()));
    frames.extend(plain(&[(1, b'c', Sum::Wrong), (2, b'd', Sum::Wrong)]));
    let (bytes, shard) = run(ChecksumPolicy::Auto, &frames);
    assert_eq!(bytes, "abd");
    assert_eq!(shard.ledger().at(Place::Malformed), 2);
    let statistics = shard.statistics().checksums;
    assert_eq!((statistics.bad_ip, statistics.bad_transport), (1, 1));
    assert_eq!((statistics.left_out, statistics.offloaded), (2, 2));
}

#[test]
fn auto_takes_headers_of_captures_with_rewritten_addresses() {
    // Every header is wrong from the first packet on; the transports may be right or not.
    let mut frames: Vec<_> = (b'a'..=b'e')
        .map(|byte| (frame(3, byte, Sum::Wrong, false), PacketFlags::default()))
        .collect();
    let (bytes, shard) = run(ChecksumPolicy::Auto, &frames);
    assert_eq!(bytes, "abcde");
    assert_eq!(shard.ledger().at(Place::Malformed), 0);
    let senders = shard.findings().accepted;
    assert_eq!(senders[0].packets, 5);
    let protocols: Vec<_> = senders.iter().map(|sender| sender.protocol).collect();
    assert!(protocols.contains(&None), "{protocols:?}");
    let (bytes, shard) = run(ChecksumPolicy::Verify, &frames);
    assert_eq!(
        (bytes.as_str(), shard.ledger().at(Place::Malformed)),
        ("", 5)
    );

    // A right one tells that the sender computes them: from then on wrong ones are damage.
    frames.insert(
        2,
        (frame(3, b'!', Sum::Right, true), PacketFlags::default()),
    );
    let (bytes, shard) = run(ChecksumPolicy::Auto, &frames);
    assert_eq!(bytes, "ab!");
    assert_eq!(shard.ledger().at(Place::Malformed), 3);
}

/// Counts flows, reads no payload.
#[derive(Default)]
struct Flows(u64);

impl Handler for Flows {
    fn flow(&mut self, record: &flowgauge_flow::FlowRecord<'_>) {
        self.0 += record.source.packets + record.destination.packets;
    }
}

#[test]
fn payload_that_nobody_reads_is_verified_only_on_request() {
    let frames = plain(&[
        (1, b'a', Sum::Right),
        (1, b'b', Sum::Wrong),
        (1, b'c', Sum::Right),
    ]);
    for (policy, malformed) in [(ChecksumPolicy::Auto, 0), (ChecksumPolicy::Verify, 1)] {
        let mut shard = Shard::new(ShardConfig {
            checksums: policy,
            ..ShardConfig::default()
        });
        let mut flows = Flows::default();
        for (frame, flags) in &frames {
            let packet = PacketDescriptor {
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                flags: *flags,
                ..PacketDescriptor::default()
            };
            shard.process(&Batch::new(frame, &[packet]), &mut flows);
        }
        shard.finish(&mut flows);
        assert_eq!(shard.ledger().at(Place::Malformed), malformed, "{policy:?}");
        // A damaged datagram was still a datagram, as Zeek counts it.
        assert_eq!(flows.0, 3);
    }
    assert_eq!(run(ChecksumPolicy::Auto, &frames).0, "ac");
}

/// After the first byte it wants nothing of its stream, and of the opposite one if `both`.
struct Leaves {
    both: bool,
    bytes: Vec<u8>,
    wants: Vec<Want>,
    /// Bad payload that was refused.
    bad: BadPayload,
    count: u64,
}

impl Handler for Leaves {
    const STREAMS: bool = true;

    fn want(&mut self) -> Option<Want> {
        self.wants.pop()
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes.extend_from_slice(chunk.bytes);
        self.wants.push(Want::Nothing(stream.id));
        let other = self.both.then_some(Want::Nothing(stream.opposite));
        self.wants.extend(other);
    }

    fn bad_payload(&mut self, stream: Option<u32>, packet: &Decoded, is_taken: bool) {
        assert!(!is_taken);
        assert!(stream.is_some());
        self.bad.note(packet, is_taken);
        self.count += 1;
    }
}

#[test]
fn payload_of_a_flow_that_nobody_wants_any_more_is_not_verified() {
    let frames = plain(&[
        (1, b'a', Sum::Right),
        (1, b'b', Sum::Wrong),
        (1, b'c', Sum::Right),
        (1, b'd', Sum::Wrong),
    ]);
    for (both, damaged) in [(true, 0), (false, 2)] {
        let mut shard = Shard::new(ShardConfig::default());
        let mut leaves = Leaves {
            both,
            bytes: Vec::new(),
            wants: Vec::new(),
            bad: BadPayload::default(),
            count: 0,
        };
        for (frame, flags) in &frames {
            let packet = PacketDescriptor {
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                flags: *flags,
                ..PacketDescriptor::default()
            };
            shard.process(&Batch::new(frame, &[packet]), &mut leaves);
        }
        shard.finish(&mut leaves);
        assert_eq!(leaves.bytes, b"a");
        assert_eq!(leaves.count, damaged);
        assert_eq!(shard.ledger().at(Place::Malformed), damaged);
        assert_eq!(shard.statistics().checksums.left_out, damaged);
        // To one that was to read none of it, or all of it, in company.
        for (bad, count) in [(BadPayload::default(), 0), (leaves.bad, damaged)] {
            let (ledger, statistics, findings) = shard.account(true, &bad);
            assert!(ledger.is_balanced());
            assert_eq!(ledger.at(Place::Malformed), count);
            assert_eq!(statistics.checksums.left_out, count);
            assert_eq!(findings.left_out, count);
        }
    }
}

/// What an application gets of all streams, and what their accounts say.
#[derive(Default)]
struct Counted {
    bytes: Vec<u8>,
    all: Counts,
    discarded: Counts,
}

impl Events for Counted {
    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.bytes.extend_from_slice(chunk.new_bytes());
    }

    fn terminated(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        let statistics = stream.statistics();
        self.all += statistics.all;
        self.discarded += statistics.discarded;
    }
}

#[test]
fn a_damaged_datagram_is_discarded_in_its_stream_and_in_the_totals() {
    let (right, wrong) = (Sum::Right, Sum::Wrong);
    for sums in [
        [right, wrong, right],
        [wrong, right, right],
        [right, right, wrong],
        [wrong, wrong, wrong],
    ] {
        let mut engine = Engine::new(EngineConfig {
            shard: ShardConfig {
                checksums: ChecksumPolicy::Verify,
                ..ShardConfig::default()
            },
            ..EngineConfig::default()
        });
        engine.add(ApplicationConfig::default()).unwrap();
        let (mut counted, mut expected) = (Counted::default(), Vec::new());
        for (byte, sum) in (b'a'..).zip(sums) {
            let frame = frame(1, byte, sum, true);
            let packet = PacketDescriptor {
                time: Nanos::from_millis(u64::from(byte)),
                captured_len: frame.len() as u32,
                wire_len: frame.len() as u32,
                ..PacketDescriptor::default()
            };
            engine.process(
                &Batch::new(&frame, &[packet]),
                &mut counted as &mut dyn Events,
            );
            expected.extend((sum == right).then_some(byte));
        }
        engine.finish(&mut counted as &mut dyn Events);
        let damaged = 3 - expected.len() as u64;
        assert_eq!(counted.bytes, expected);
        let of = |packets| Counts {
            packets,
            bytes: packets,
        };
        assert_eq!((counted.all, counted.discarded), (of(3), of(damaged)));
        let totals = engine.statistics();
        assert_eq!((totals.all, totals.discarded), (of(3), of(damaged)));
        assert!(engine.ledger().is_balanced());
        assert_eq!(engine.ledger().at(Place::Malformed), damaged);
        assert_eq!(engine.ledger().delivered(), 3 - damaged);
    }
}
