//! Random small connections, cut by a snap length, with overlaps, retransmissions, resets and sequence numbers that wrap,
//! against a model of the accounts: every byte and packet is captured, discarded or dropped, and what is captured
//! is what was delivered.
//!
//! `FLOWGAUGE_CONNECTIONS=80000 cargo test --release -p flowgauge-stream --test stream accounts::` runs so many;
//! `FLOWGAUGE_ACCOUNTS_SEED=17` runs one.

use std::collections::BTreeMap;

use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Command, Counts, Cutoff, DataChunk, Engine, EngineConfig,
    Events, Mode, StreamRef,
};
use flowgauge_stream::{ChecksumPolicy, ShardConfig};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u64) as usize]
    }
}

/// A packet before it is written.
struct Packet {
    to_server: bool,
    seq: u32,
    ack: u32,
    window: u16,
    flags: u8,
    payload: Vec<u8>,
    /// Its IP header claims so many bytes more than there are.
    claimed: u16,
}

/// What is sent, in one piece of memory.
#[derive(Default)]
struct Wire {
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    now: u64,
    is_six: bool,
    vlan: bool,
    /// By direction (0: to the server): bytes that the snap length cut off.
    cut: [u64; 2],
    /// Bytes and packets that were sent.
    sent: [Counts; 2],
    /// Packets with payload that do not begin or end anything: those that can be discarded.
    data: [u64; 2],
}

impl Wire {
    fn push(&mut self, packet: &Packet, random: &mut Random) {
        let mut tcp = Vec::new();
        let ports: [u16; 2] = match packet.to_server {
            true => [1000, 80],
            false => [80, 1000],
        };
        for port in ports {
            tcp.extend(port.to_be_bytes());
        }
        tcp.extend(packet.seq.to_be_bytes());
        tcp.extend(packet.ack.to_be_bytes());
        tcp.extend([0x50, packet.flags]);
        tcp.extend(packet.window.to_be_bytes());
        tcp.extend([0, 0, 0, 0]);
        tcp.extend(&packet.payload);
        let hosts = match packet.to_server {
            true => [1, 2],
            false => [2, 1],
        };
        let at = usize::from(!packet.to_server);
        let claimed = packet.claimed;
        self.sent[at].bytes += packet.payload.len() as u64 + u64::from(claimed);
        let has_payload = !packet.payload.is_empty() || claimed != 0;
        let is_data = has_payload && packet.flags & (SYN | FIN | RST) == 0;
        let is_split = !self.is_six && claimed == 0 && tcp.len() > 60 && random.once_in(25);
        if is_split {
            let id = self.packets.len() as u16;
            let middle = 8 * (3 + random.below(tcp.len() as u64 / 8 - 3) as usize);
            let (first, last) = tcp.split_at(middle);
            self.ip(&hosts, id, 0x2000, first, 0, None);
            self.ip(&hosts, id, (middle / 8) as u16, last, 0, None);
            self.sent[at].packets += 2;
            self.data[at] += 2 * u64::from(is_data);
            return;
        }
        let cut = random.once_in(5).then(|| match random.below(3) {
            0 => 0,
            1 => packet.payload.len().min(6),
            _ => random.below(packet.payload.len() as u64 + 1) as usize,
        });
        self.sent[at].packets += 1;
        self.data[at] += u64::from(is_data);
        if let Some(kept) = cut {
            self.cut[at] += (packet.payload.len() - kept.min(packet.payload.len())) as u64;
        }
        let kept = cut.map(|kept| packet.payload.len().saturating_sub(kept));
        if number("FLOWGAUGE_ACCOUNTS_SEED").is_some() {
            let Packet {
                seq, ack, flags, ..
            } = packet;
            let (time, len) = (self.now, packet.payload.len());
            eprintln!(
                "{time} {hosts:?} seq {seq} ack {ack} flags {flags} len {len} claimed {claimed} cut {kept:?}"
            );
        }
        self.ip(&hosts, 0, 0x4000, &tcp, claimed, kept);
    }

    fn ip(
        &mut self,
        hosts: &[u8; 2],
        id: u16,
        fragment: u16,
        body: &[u8],
        claimed: u16,
        cut: Option<usize>,
    ) {
        let len = body.len() as u16 + claimed;
        let mut frame = vec![2; 12];
        if self.vlan {
            frame.extend([0x81, 0, 0, 5]);
        }
        if self.is_six {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([6, 64]);
            for host in hosts {
                frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, *host]);
            }
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend(id.to_be_bytes());
            frame.extend(fragment.to_be_bytes());
            frame.extend([64, 6, 0, 0]);
            for host in hosts {
                frame.extend([10, 0, 0, *host]);
            }
        }
        frame.extend(body);
        self.packets.push(PacketDescriptor {
            time: Nanos::from_micros(1_600_000_000_000_000 + self.now),
            offset: self.memory.len() as u32,
            captured_len: (frame.len() - cut.unwrap_or(0)) as u32,
            wire_len: frame.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
        self.memory.extend(frame);
    }
}

/// A connection between two hosts that do whatever they like.
fn connection(random: &mut Random) -> Wire {
    let mut wire = Wire {
        is_six: random.once_in(4),
        vlan: random.once_in(4),
        ..Wire::default()
    };
    let starts = [
        random.of(&[1000_u32, 0xffff_fff0, 0x7fff_fff0]),
        random.of(&[5000_u32, 0xffff_ffe0, 0x7fff_ffe0]),
    ];
    let text: Vec<u8> = (0..400).map(|_| random.next() as u8).collect();
    let packet = |to_server, seq, ack, flags, payload: &[u8]| Packet {
        to_server,
        seq,
        ack,
        window: 65_535,
        flags,
        payload: payload.to_vec(),
        claimed: 0,
    };
    match random.below(10) {
        0..6 => {
            let [x, y] = starts;
            for packet in [
                packet(true, x.wrapping_sub(1), 0, SYN, &[]),
                packet(false, y.wrapping_sub(1), x, SYN | ACK, &[]),
                packet(true, x, y, ACK, &[]),
            ] {
                wire.push(&packet, random);
            }
        }
        6 => {
            let len = random.below(20) as usize;
            let syn = packet(true, starts[0].wrapping_sub(1), 0, SYN, &text[..len]);
            wire.push(&syn, random);
        }
        _ => {}
    }
    for _ in 0..1 + random.below(24) {
        let to_server = !random.once_in(3);
        let at = usize::from(!to_server);
        let mut offset = match random.below(4) {
            0 | 1 => 0,
            2 => random.below(60) as i64,
            _ => random.below(200) as i64,
        };
        if random.once_in(30) {
            offset = random.of(&[-30, -1, 70_000, 1_000_000, 600_000_000, 1 << 31]);
        }
        let len = match random.once_in(8) {
            true => 0,
            false => random.below(60) as usize,
        };
        let flags = match random.below(100) {
            0..5 => RST,
            5..7 => RST | ACK,
            7..12 => FIN | ACK,
            12..14 => SYN,
            14 => SYN | ACK,
            15 => PSH,
            _ => ACK,
        };
        let from = offset.clamp(0, 300) as usize;
        let mut payload = text[from..from + len].to_vec();
        if random.once_in(20) {
            payload.iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        let behind = random.of(&[0, 0, 0, 40, 100]);
        let packet = Packet {
            to_server,
            seq: starts[at].wrapping_add(offset as u32),
            ack: starts[1 - at].wrapping_add(behind),
            window: random.of(&[65_535, 65_535, 100, 0]),
            flags,
            payload,
            claimed: match random.once_in(40) {
                true => random.of(&[1, 50, 32_000]),
                false => 0,
            },
        };
        wire.now += match random.below(60) {
            0 => 400_000_000,
            1 => 5_000_000,
            2 => 1_000_000,
            _ => 100,
        };
        if random.once_in(50) {
            wire.now = wire.now.saturating_sub(1_000_000);
        }
        wire.push(&packet, random);
        if random.once_in(6) {
            wire.push(&packet, random);
        }
    }
    wire
}

/// What applications got, by application and direction.
#[derive(Default)]
struct Seen {
    delivered: BTreeMap<(u8, bool), u64>,
    statistics: BTreeMap<(u8, bool), [Counts; 3]>,
    uids: Vec<u64>,
    /// Streams of one direction one after the other.
    streams: u32,
    is_dropped: bool,
}

impl Events for Seen {
    fn created(&mut self, _: ApplicationId, stream: &mut StreamRef<'_>) {
        self.uids.push(stream.uid());
    }

    fn data(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        let (from, to) = (chunk.info().repeated, chunk.bytes().len() as u32);
        let missing: u32 = chunk
            .holes()
            .iter()
            .map(|hole| hole.end.min(to).saturating_sub(hole.start.max(from)))
            .sum();
        let identity = stream.identity();
        let at = (of.0, identity.destination.1 == 80);
        *self.delivered.entry(at).or_default() += u64::from(to - from - missing);
    }

    fn terminated(&mut self, of: ApplicationId, stream: &mut StreamRef<'_>) {
        let statistics = stream.statistics();
        let at = (of.0, stream.identity().destination.1 == 80);
        let sums = self.statistics.entry(at).or_default();
        sums[0] += statistics.all;
        sums[1] += statistics.dropped;
        sums[2] += statistics.discarded;
        self.is_dropped |= statistics.dropped != Counts::default();
        self.streams += 1;
        let lost = statistics.dropped + statistics.discarded;
        assert!(lost.bytes <= statistics.all.bytes, "{statistics:?}");
        assert!(lost.packets <= statistics.all.packets, "{statistics:?}");
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let random = &mut random;
    let wire = connection(random);
    let memory_bytes = random.of(&[1 << 20, 64 << 20, 64 << 20, 16 << 10]);
    let config = EngineConfig {
        shard: ShardConfig {
            checksums: ChecksumPolicy::Ignore,
            overlap_policy: random.of(OverlapPolicy::ALL),
            flow: FlowConfig {
                max_flows: random.of(&[1, 1000, 1000]),
                ..FlowConfig::default()
            },
            ..ShardConfig::default()
        },
        memory_bytes,
        overload_cutoff: random.of(&[None, Some(10)]),
        base_threshold: random.of(&[0.5, 0.5, 0.0]),
        need_packets: random.once_in(4),
        ..EngineConfig::default()
    };
    if number("FLOWGAUGE_ACCOUNTS_SEED").is_some() {
        eprintln!("{config:?}");
    }
    let mut engine = Engine::new(config);
    let count = random.of(&[1, 1, 1, 2, 3]);
    let mut modes = Vec::new();
    for _ in 0..count {
        let mode = random.of(&[Mode::Wait, Mode::Fast, Mode::Strict]);
        let mut application = ApplicationConfig {
            mode,
            chunk_bytes: random.of(&[0, 1, 7, 64, 16_384, 16_384]),
            overlap_bytes: random.of(&[0, 0, 5]),
            flush_timeout: random.of(&[None, None, Some(Nanos::from_millis(1))]),
            ..ApplicationConfig::default()
        };
        application.cutoff.default = random.of(&[
            Cutoff::UNLIMITED,
            Cutoff::UNLIMITED,
            Cutoff(0),
            Cutoff(10),
            Cutoff(20),
            Cutoff(100),
        ]);
        if random.once_in(5) {
            application.cutoff.from_initiator = Some(Cutoff(5));
        }
        modes.push(mode);
        if number("FLOWGAUGE_ACCOUNTS_SEED").is_some() {
            eprintln!("{application:?}");
        }
        engine.add(application).unwrap();
    }
    let mut seen = Seen::default();
    let batch = random.of(&[1, 3, 256]);
    // Where programs change their minds, or one is in mode FAST and another is not, what each has captured is not
    // always what it got: only what must hold whatever happens is looked at.
    let acts = random.once_in(3);
    for packets in wire.packets.chunks(batch) {
        if number("FLOWGAUGE_ACCOUNTS_SEED").is_some() {
            eprintln!("{} packets", packets.len());
        }
        engine.process(
            &Batch::new(&wire.memory, packets),
            &mut seen as &mut dyn Events,
        );
        if acts && random.once_in(4) && !seen.uids.is_empty() {
            let uid = random.of(&seen.uids);
            let command = random.of(&[
                Command::Discard,
                Command::SetCutoff(Cutoff(15)),
                Command::SetCutoff(Cutoff(150)),
            ]);
            if number("FLOWGAUGE_ACCOUNTS_SEED").is_some() {
                eprintln!("{command:?} of {uid}");
            }
            engine.command(uid, ApplicationId(random.below(count) as u8), command);
        }
    }
    engine.finish(&mut seen as &mut dyn Events);
    let (ledger, statistics) = (engine.ledger(), engine.statistics());
    assert!(ledger.is_balanced(), "{ledger:?}");
    assert!(ledger.delivered() <= ledger.received(), "{ledger:?}");
    let frames = wire.packets.iter().map(|packet| u64::from(packet.wire_len));
    assert!(ledger.delivered_bytes() <= frames.sum(), "{ledger:?}");
    // (Headers of packets that were refused late are reckoned by their mean. Those of fragments differ.)
    assert!(
        ledger.delivered() != 0 || ledger.delivered_bytes() < 8 * ledger.received(),
        "{ledger:?}"
    );
    let lost = statistics.dropped + statistics.discarded;
    assert!(lost.bytes <= statistics.all.bytes, "{statistics:?}");
    assert!(lost.packets <= statistics.all.packets, "{statistics:?}");
    // (What several applications did not want one after the other is captured in the totals.)
    let captured = statistics.captured().bytes;
    assert!(
        count != 1 || ledger.delivered_bytes() >= captured,
        "{ledger:?}, captured {captured}"
    );
    let discarded = statistics.discarded.packets;
    assert_eq!(ledger.discarded(), discarded, "discarded packets");
    assert_eq!(
        ledger.dropped(),
        statistics.dropped.packets,
        "dropped packets"
    );
    let mut sums = [Counts::default(); 3];
    for (&(of, to_server), &[all, dropped, discarded]) in &seen.statistics {
        let at = usize::from(!to_server);
        assert_eq!(all, wire.sent[at], "all of {of} to server {to_server}");
        for (sum, counts) in sums.iter_mut().zip([all, dropped, discarded]) {
            *sum += counts;
        }
        let captured = all.without(dropped).without(discarded);
        let delivered = (seen.delivered.get(&(of, to_server)).copied()).unwrap_or(0);
        let is_fast = modes.iter().filter(|mode| **mode == Mode::Fast).count();
        if acts || is_fast != 0 && is_fast != modes.len() {
            continue;
        }
        let control = all.packets - wire.data[at];
        assert!(
            captured.packets >= control,
            "{of} to server {to_server}: {captured:?}, {control} control packets"
        );
        let most = delivered + wire.cut[at];
        assert!(
            (delivered..=most).contains(&captured.bytes),
            "{of} {:?} to server {to_server}: captured {}, delivered {delivered}, cut off {}",
            modes[usize::from(of)],
            captured.bytes,
            wire.cut[at]
        );
    }
    if count == 1 {
        assert_eq!(sums[0], statistics.all);
        assert_eq!(sums[1], statistics.dropped, "dropped");
        assert_eq!(sums[2], statistics.discarded, "discarded");
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_byte_and_packet_has_one_place() {
    if let Some(seed) = number("FLOWGAUGE_ACCOUNTS_SEED") {
        return run(seed);
    }
    let connections = number("FLOWGAUGE_CONNECTIONS").unwrap_or(4000);
    let mut failed = Vec::new();
    // The last ones are those in which something was wrong once.
    for seed in (0..connections).chain([50_206, 75_806, 183_835]) {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            failed.push(seed);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {connections}: {failed:?}",
        failed.len()
    );
}
