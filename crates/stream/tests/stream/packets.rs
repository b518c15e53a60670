//! The packet hook: what a handler sees of each packet, and what its answers do to the stream and
//! the ledger.

use std::collections::BTreeMap;

use flowgauge_capture::PacketSource;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::{
    Admit, ChecksumPolicy, Chunk, Handler, Shard, ShardConfig, Stream, StreamPacket, StreamStatus,
    Want,
};
use flowgauge_wire::{Batch, Nanos, PacketDescriptor, Place};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What a stream's events added up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    packets: u64,
    payload: u64,
    bytes: Vec<u8>,
    delivered: u64,
    missing: u64,
    end: Option<StreamStatus>,
    offsets: Vec<Option<i64>>,
    handshake: bool,
}

/// Decides about a packet, given how many its stream had before.
type Answer<'a> = Box<dyn FnMut(u64, &StreamPacket<'_>) -> Admit + 'a>;

/// Follows streams.
struct Follower<'a, const PACKETS: bool> {
    answer: Answer<'a>,
    live: BTreeMap<u32, Seen>,
    ended: Vec<(String, Seen)>,
    /// Bytes put where [`StreamPacket::offset`] says, as a handler in FAST mode would.
    placed: BTreeMap<u32, Vec<u8>>,
    placed_ended: Vec<(String, Vec<u8>)>,
    policy: Option<OverlapPolicy>,
}

fn follower<'a, const PACKETS: bool>(
    answer: impl FnMut(u64, &StreamPacket<'_>) -> Admit + 'a,
) -> Follower<'a, PACKETS> {
    Follower {
        answer: Box::new(answer),
        live: BTreeMap::new(),
        ended: Vec::new(),
        placed: BTreeMap::new(),
        placed_ended: Vec::new(),
        policy: None,
    }
}

fn name(stream: &Stream<'_>) -> String {
    let id = stream.identity();
    format!(
        "{:?} {:?} {} {}",
        id.source, id.destination, id.protocol, id.start.0
    )
}

impl<const PACKETS: bool> Handler for Follower<'_, PACKETS> {
    const STREAMS: bool = true;
    const PACKETS: bool = PACKETS;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        let before = self.live.insert(stream.id, Seen::default());
        assert!(before.is_none(), "created twice");
    }

    fn overlap_policy(&mut self, _: &Stream<'_>) -> Option<OverlapPolicy> {
        self.policy
    }

    fn stream_packet(&mut self, stream: &Stream<'_>, packet: &StreamPacket<'_>) -> Admit {
        let seen = self.live.get_mut(&stream.id).unwrap();
        let admit = (self.answer)(seen.packets, packet);
        seen.packets += 1;
        seen.payload += packet.payload.len() as u64;
        seen.offsets.push(packet.offset);
        seen.handshake = stream.is_handshake_complete();
        if admit == Admit::Consumed && !packet.payload.is_empty() {
            let at = packet.offset.unwrap_or(0);
            let placed = self.placed.entry(stream.id).or_default();
            if let Ok(at) = usize::try_from(at) {
                let end = at + packet.payload.len();
                placed.resize(placed.len().max(end), 0);
                placed[at..end].copy_from_slice(packet.payload);
            }
        }
        admit
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let seen = self.live.get_mut(&stream.id).unwrap();
        seen.bytes.extend_from_slice(chunk.bytes);
        assert_eq!(
            chunk.offset + chunk.bytes.len() as u64,
            stream.bytes + stream.missing_bytes
        );
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        let mut seen = self.live.remove(&stream.id).unwrap();
        seen.delivered = stream.bytes;
        seen.missing = stream.missing_bytes + trailing_gap;
        seen.end = Some(stream.status);
        self.ended.push((name(stream), seen));
        if let Some(placed) = self.placed.remove(&stream.id) {
            self.placed_ended.push((name(stream), placed));
        }
    }
}

fn trace<H: Handler>(preset: Preset, handler: &mut H) -> Shard {
    let mut file = Vec::new();
    generate(&Config::new(preset).with_packets(30_000), &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(std::io::Cursor::new(file), "trace").unwrap();
    let mut shard = Shard::new(ShardConfig::default());
    while let Some(batch) = source.next_batch().unwrap() {
        shard.process(&batch, handler);
        assert!(shard.ledger().is_balanced());
    }
    shard.finish(handler);
    assert!(shard.ledger().is_balanced());
    assert_eq!(shard.waiting_bytes(), 0);
    shard
}

/// What streams with bytes had, without what only the packet hook tells.
fn contents(ended: &[(String, Seen)]) -> BTreeMap<String, Seen> {
    ended
        .iter()
        .filter(|(_, seen)| !seen.bytes.is_empty() || seen.missing != 0)
        .map(|(name, seen)| {
            let seen = Seen {
                packets: 0,
                payload: 0,
                offsets: Vec::new(),
                handshake: false,
                ..seen.clone()
            };
            (name.clone(), seen)
        })
        .collect()
}

#[test]
fn taking_everything_changes_nothing() {
    for preset in [Preset::Mix, Preset::Small, Preset::Late, Preset::Loss] {
        let mut plain = follower::<false>(|_, _| Admit::Take);
        let without = trace(preset, &mut plain);
        let offered = std::cell::Cell::new(0);
        let mut hooked = follower::<true>(|_, packet| {
            offered.set(offered.get() + u64::from(packet.decoded.frames));
            Admit::Take
        });
        let with = trace(preset, &mut hooked);
        assert_eq!(
            contents(&plain.ended),
            contents(&hooked.ended),
            "{preset:?}"
        );
        assert_eq!(without.ledger(), with.ledger());
        assert!(hooked.ended.len() >= plain.ended.len());
        assert!(plain.ended.iter().all(|(_, seen)| seen.packets == 0));
        assert_eq!(
            offered.get(),
            with.ledger().delivered(),
            "{preset:?}: every packet once"
        );
        assert!(hooked.live.is_empty());
    }
}

#[test]
fn consumed_streams_are_placed_by_offset() {
    for preset in [Preset::Mix, Preset::Late, Preset::Loss] {
        let mut plain = follower::<false>(|_, _| Admit::Take);
        trace(preset, &mut plain);
        let mut fast = follower::<true>(|_, packet| match packet.decoded.key.protocol {
            6 => Admit::Consumed,
            _ => Admit::Take,
        });
        let shard = trace(preset, &mut fast);
        assert_eq!(shard.statistics().reassembly.memory_high, 0);
        assert_eq!(shard.ledger().discarded() + shard.ledger().dropped(), 0);
        let placed: BTreeMap<_, _> = fast.placed_ended.into_iter().collect();
        let mut compared = 0;
        for (name, seen) in &plain.ended {
            // Holes are zero where the other has nothing.
            if let Some(placed) = placed.get(name)
                && seen.missing == 0
            {
                assert_eq!(placed, &seen.bytes, "{preset:?} {name}");
                compared += 1;
            }
        }
        assert!(compared > 100, "{preset:?}: {compared}");
        let ends = |ended: &[(String, Seen)]| -> BTreeMap<String, Option<StreamStatus>> {
            let of = |(name, seen): &(String, Seen)| (name.clone(), seen.end);
            ended
                .iter()
                .filter(|(_, seen)| seen.delivered > 0)
                .map(of)
                .collect()
        };
        let (plain_ends, fast_ends) = (ends(&plain.ended), ends(&fast.ended));
        for (name, end) in &plain_ends {
            assert_eq!(fast_ends.get(name), Some(end), "{preset:?} {name}");
        }
    }
}

#[test]
fn what_is_refused_is_in_the_ledger_and_missing_in_the_stream() {
    for (preset, place) in [
        (Preset::Mix, Place::Priority),
        (Preset::Late, Place::Memory),
    ] {
        let mut plain = follower::<false>(|_, _| Admit::Take);
        trace(preset, &mut plain);
        let refused = std::cell::Cell::new(0);
        let mut picky = follower::<true>(|before, packet| {
            if before % 5 == 4 && !packet.payload.is_empty() {
                refused.set(refused.get() + u64::from(packet.decoded.frames));
                return Admit::Refuse(place);
            }
            Admit::Take
        });
        let shard = trace(preset, &mut picky);
        assert!(refused.get() > 1000);
        assert_eq!(shard.ledger().at(place), refused.get());
        let all: BTreeMap<_, _> = plain.ended.into_iter().collect();
        let mut lossy = 0;
        for (name, seen) in &picky.ended {
            let Some(whole) = all.get(name) else { continue };
            assert_eq!(
                whole.delivered + whole.missing,
                seen.delivered + seen.missing,
                "{preset:?} {name}: every byte is delivered or missing"
            );
            lossy += usize::from(seen.missing > whole.missing);
        }
        assert!(lossy > 10);
    }
}

struct Frame<'a> {
    from_client: bool,
    flags: u8,
    seq: u32,
    ack: u32,
    data: &'a [u8],
}

/// A packet of the client (port 1000) or of the server (port 80).
fn frame(from_client: bool, flags: u8, seq: u32, ack: u32, data: &[u8]) -> Frame<'_> {
    Frame {
        from_client,
        flags,
        seq,
        ack,
        data,
    }
}

impl Frame<'_> {
    fn bytes(&self) -> Vec<u8> {
        let (from, to) = if self.from_client { (1, 2) } else { (2, 1) };
        let (source, destination): (u16, u16) = if self.from_client {
            (1000, 80)
        } else {
            (80, 1000)
        };
        let length = 40 + self.data.len() as u16;
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        bytes.extend(source.to_be_bytes());
        bytes.extend(destination.to_be_bytes());
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(self.data);
        bytes
    }
}

fn shard() -> Shard {
    Shard::new(ShardConfig {
        checksums: ChecksumPolicy::Ignore,
        ..ShardConfig::default()
    })
}

fn process<H: Handler>(shard: &mut Shard, handler: &mut H, bytes: &[u8], second: u64) {
    let packet = PacketDescriptor {
        time: Nanos::from_secs(second),
        captured_len: bytes.len() as u32,
        wire_len: bytes.len() as u32,
        ..PacketDescriptor::default()
    };
    shard.process(&Batch::new(bytes, &[packet]), handler);
    assert!(shard.ledger().is_balanced());
}

fn run<H: Handler>(handler: &mut H, frames: &[Frame<'_>]) -> Shard {
    let mut shard = shard();
    for (at, frame) in frames.iter().enumerate() {
        process(&mut shard, handler, &frame.bytes(), 1 + at as u64 / 10);
    }
    shard.finish(handler);
    shard
}

/// A connection with six bytes from the client, out of order.
fn conversation() -> Vec<Frame<'static>> {
    vec![
        frame(true, SYN, 99, 0, b""),
        frame(false, SYN | ACK, 499, 100, b""),
        frame(true, ACK, 100, 500, b""),
        frame(true, ACK, 100, 500, b"ab"),
        frame(true, ACK, 104, 500, b"ef"),
        frame(true, ACK, 102, 500, b"cd"),
        frame(false, ACK, 500, 106, b"xyz"),
        frame(true, FIN | ACK, 106, 503, b""),
        frame(false, FIN | ACK, 503, 107, b""),
        frame(true, ACK, 107, 504, b""),
    ]
}

#[test]
fn every_packet_is_offered_with_its_place() {
    let mut handler = follower::<true>(|_, packet| {
        assert_eq!(packet.frame.len(), 54 + packet.payload.len());
        Admit::Take
    });
    run(&mut handler, &conversation());
    let [(_, client), (_, server)] = handler.ended.as_slice() else {
        panic!("{} streams", handler.ended.len())
    };
    assert_eq!(client.bytes, b"abcdef");
    let places = [0, 0, 0, 4, 2, 6, 7].map(Some);
    assert_eq!(client.offsets, places);
    assert_eq!(server.offsets, [Some(0), Some(0), Some(3)]);
    assert!(client.handshake && server.handshake);
    assert_eq!(client.end, Some(StreamStatus::Fin));
    assert_eq!(server.end, Some(StreamStatus::Fin));
}

#[test]
fn a_syn_and_a_rst_make_streams_and_so_do_other_protocols() {
    let mut handler = follower::<true>(|_, _| Admit::Take);
    let mut shard = run(
        &mut handler,
        &[
            frame(true, SYN, 99, 0, b""),
            frame(false, RST | ACK, 0, 100, b""),
        ],
    );
    assert_eq!(handler.ended.len(), 2);
    assert_eq!(handler.ended[0].1.packets, 1);
    assert_eq!(handler.ended[1].1.end, Some(StreamStatus::Rst));
    // A ping.
    let mut bytes = frame(true, 0, 0, 0, b"").bytes();
    bytes[23] = 1;
    bytes[34..].fill(0);
    bytes[34] = 8;
    process(&mut shard, &mut handler, &bytes, 9);
    assert_eq!(handler.live.len(), 2);
    shard.finish(&mut handler);
    let (_, ping) = &handler.ended[2];
    assert_eq!((ping.packets, ping.bytes.len()), (1, 0));
    assert_eq!(shard.statistics().connections, 2);

    let mut plain = follower::<false>(|_, _| Admit::Take);
    process(&mut shard, &mut plain, &bytes, 9);
    shard.finish(&mut plain);
    assert_eq!(plain.ended.len(), 0);
}

#[test]
fn a_cutoff_forgets_what_waits_and_never_waits_again() {
    let mut handler = follower::<true>(|_, packet| match packet.decoded.seq {
        102 => Admit::Refuse(Place::Cutoff),
        _ => Admit::Take,
    });
    let mut frames = conversation();
    frames.insert(6, frame(true, ACK, 110, 500, b"late"));
    let shard = run(&mut handler, &frames);
    let (_, client) = &handler.ended[0];
    let (_, server) = &handler.ended[1];
    assert_eq!(client.bytes, b"ab");
    assert_eq!((client.delivered, client.missing), (2, 0));
    assert_eq!(client.end, Some(StreamStatus::Fin), "its FIN is followed");
    assert_eq!(server.bytes, b"xyz");
    assert_eq!(shard.ledger().at(Place::Cutoff), 1);
    assert_eq!(shard.waiting_bytes(), 0);
}

#[test]
fn control_from_outside() {
    let mut handler = follower::<true>(|_, _| Admit::Take);
    let mut shard = shard();
    let frames = conversation();
    for frame in &frames[..5] {
        process(&mut shard, &mut handler, &frame.bytes(), 1);
    }
    let client = *handler
        .live
        .iter()
        .max_by_key(|(_, seen)| seen.packets)
        .unwrap()
        .0;
    assert_eq!(shard.waiting_bytes_of(client), 2);
    assert_eq!(shard.waiting_bytes_of(client ^ 1), 0);
    assert!(shard.want(Want::Policy(client, OverlapPolicy::Last), &mut handler));
    assert!(!shard.want(Want::Policy(client + 2, OverlapPolicy::Last), &mut handler));
    // A second copy of what waits: the last one counts now.
    process(
        &mut shard,
        &mut handler,
        &frame(true, ACK, 104, 500, b"EF").bytes(),
        1,
    );
    shard.flush(client, &mut handler);
    assert_eq!(handler.live[&client].bytes, b"abEF");
    assert_eq!(shard.waiting_bytes_of(client), 0);
    process(
        &mut shard,
        &mut handler,
        &frame(true, ACK, 108, 500, b"ij").bytes(),
        1,
    );
    assert_eq!(shard.waiting_bytes_of(client), 2);
    assert!(shard.want(Want::Nothing(client), &mut handler));
    assert!(!shard.want(Want::Nothing(client + 2), &mut handler));
    assert_eq!(shard.waiting_bytes(), 0);
    process(
        &mut shard,
        &mut handler,
        &frame(true, ACK, 106, 500, b"gh").bytes(),
        1,
    );
    process(
        &mut shard,
        &mut handler,
        &frame(true, ACK, 112, 500, b"kl").bytes(),
        1,
    );
    assert_eq!(shard.waiting_bytes(), 0);
    shard.finish(&mut handler);
    let (_, ended) = handler
        .ended
        .iter()
        .find(|(_, seen)| seen.delivered > 0)
        .unwrap();
    assert_eq!(ended.bytes, b"abEF");
    assert_eq!((ended.delivered, ended.missing), (4, 2));
    assert_eq!(ended.offsets.last(), Some(&Some(12)));
}

#[test]
fn the_handler_chooses_the_overlap_policy() {
    for (policy, expected) in [
        (OverlapPolicy::First, b"abcdef"),
        (OverlapPolicy::Last, b"abcdEF"),
    ] {
        let mut handler = follower::<true>(|_, _| Admit::Take);
        handler.policy = Some(policy);
        let mut frames = conversation();
        frames.insert(5, frame(true, ACK, 104, 500, b"EF"));
        run(&mut handler, &frames);
        assert_eq!(handler.ended[0].1.bytes, expected, "{policy:?}");
    }
}
