//! Many connections open at the same time: `connections COUNT [PACKETS] [--chunks [MEMORY]]`.
//!
//! Packets are made in memory: a handshake for each of COUNT connections, then one data segment
//! after another, each of another connection (in an order that no cache can follow), until PACKETS
//! of them were sent (default 20 million), then everything ends. Printed: the engine's CPU time per
//! data packet with the cost of making the packets subtracted, resident memory per connection, and
//! whether every connection and byte was seen.
//!
//! Without `--chunks` the application gets segments in place. With it every connection has data
//! pending in a chunk of 16 KiB, within MEMORY bytes (default 512 MiB) for all of them.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, DataChunk, Engine, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
use flowgauge_wire::{Batch, LinkType, Nanos, PacketDescriptor};

const HEADERS: usize = 14 + 20 + 20;
const PAYLOAD: usize = 64;
const FRAME: usize = HEADERS + PAYLOAD;
const BATCH: usize = 256;

const USAGE: &str = "usage: connections COUNT [PACKETS] [--chunks [MEMORY]]";

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chunks = arguments.iter().position(|argument| argument == "--chunks");
    let number = |text: &String| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let memory = match chunks.and_then(|at| arguments.get(at + 1)) {
        Some(text) => number(text)?,
        None => 512 << 20,
    };
    let numbers = &arguments[..chunks.unwrap_or(arguments.len())];
    let count = number(numbers.first().ok_or(USAGE)?)?;
    let packets = numbers.get(1).map_or(Ok(20_000_000), number)?;
    let mut config = ShardConfig::default();
    config.flow.max_flows = u32::try_from(count)
        .map_err(|_| USAGE)?
        .saturating_add(1024);
    if chunks.is_none() {
        return measure(
            count,
            packets,
            InPlace {
                shard: Shard::new(config),
                seen: Seen::default(),
            },
        );
    }
    let mut engine = Engine::new(EngineConfig {
        shard: config,
        memory_bytes: memory,
        ..EngineConfig::default()
    });
    engine.add(ApplicationConfig::default());
    measure(
        count,
        packets,
        InChunks {
            engine,
            seen: Seen::default(),
        },
    )
}

/// What is measured.
trait Target {
    fn take(&mut self, batch: &Batch<'_>);
    fn finish(&mut self) -> (Seen, String);
}

fn measure(count: u64, packets: u64, mut target: impl Target) -> Result<(), String> {
    let rounds = packets.div_ceil(count).max(1);
    let mut source = Source::new(count);
    let before = cpu_time();
    for round in 0..rounds {
        source.data(round, |batch| {
            std::hint::black_box(batch);
        });
    }
    let making = cpu_time() - before;
    let mut source = Source::new(count);
    let empty = resident();
    source.handshakes(|batch| target.take(batch));
    let before = cpu_time();
    for round in 0..rounds {
        source.data(round, |batch| target.take(batch));
    }
    let engine = (cpu_time() - before).saturating_sub(making);
    let memory = resident().saturating_sub(empty);
    let (seen, remark) = target.finish();

    let sent = rounds * count;
    println!(
        "{count} connections, {sent} data packets: {:.1} ns per packet (making them: {:.1}), \
         {:.0} bytes resident per connection{remark}",
        engine as f64 / sent as f64,
        making as f64 / sent as f64,
        memory as f64 / count as f64
    );
    let expected = Seen {
        created: 2 * count,
        terminated: 2 * count,
        bytes: sent * PAYLOAD as u64,
        missing: 0,
    };
    if seen != expected {
        return Err(format!("expected {expected:?}, saw {seen:?}"));
    }
    println!("none lost: {seen:?}");
    Ok(())
}

/// The engine below the applications: segments where they lie.
struct InPlace {
    shard: Shard,
    seen: Seen,
}

impl Target for InPlace {
    fn take(&mut self, batch: &Batch<'_>) {
        self.shard.process(batch, &mut self.seen);
    }

    fn finish(&mut self) -> (Seen, String) {
        self.shard.finish(&mut self.seen);
        (core::mem::take(&mut self.seen), String::new())
    }
}

/// An application with chunks.
struct InChunks {
    engine: Engine,
    seen: Seen,
}

impl Target for InChunks {
    fn take(&mut self, batch: &Batch<'_>) {
        self.engine.process(batch, &mut self.seen);
    }

    fn finish(&mut self) -> (Seen, String) {
        let pending = self.engine.budget().used();
        self.engine.finish(&mut self.seen);
        let statistics = self.engine.statistics();
        let remark = format!(
            "; {} bytes of memory in use, at most {} of {}, {} chunks flushed early",
            pending,
            statistics.memory_high,
            self.engine.budget().limit(),
            statistics.flushed_early
        );
        (core::mem::take(&mut self.seen), remark)
    }
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    created: u64,
    terminated: u64,
    bytes: u64,
    missing: u64,
}

impl Handler for Seen {
    const STREAMS: bool = true;

    fn stream_created(&mut self, _stream: &Stream<'_>) {
        self.created += 1;
    }

    fn stream_data(&mut self, _stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.bytes += chunk.bytes.len() as u64;
        self.missing += chunk.gap_before;
    }

    fn stream_terminated(&mut self, _stream: &Stream<'_>, trailing_gap: u64) {
        self.terminated += 1;
        self.missing += trailing_gap;
    }
}

impl Events for Seen {
    fn created(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.created += 1;
    }

    fn data(&mut self, _: ApplicationId, _: &mut StreamRef<'_>, chunk: &mut DataChunk<'_>) {
        self.bytes += chunk.new_bytes().len() as u64;
        self.missing += chunk.gap_before();
    }

    fn terminated(&mut self, _: ApplicationId, _: &mut StreamRef<'_>) {
        self.terminated += 1;
    }
}

/// Makes packets, a microsecond apart.
struct Source {
    count: u64,
    /// Coprime to `count`: multiples of it visit every connection, neighbours far apart.
    stride: u64,
    memory: Vec<u8>,
    packets: Vec<PacketDescriptor>,
    now: Nanos,
}

impl Source {
    fn new(count: u64) -> Source {
        let coprime = |stride: &u64| gcd(*stride, count) == 1;
        let stride = (count * 5 / 8..).find(coprime).unwrap_or(1).max(1);
        Source {
            count,
            stride,
            memory: vec![0; BATCH * FRAME],
            packets: Vec::with_capacity(BATCH),
            now: Nanos::from_secs(1_700_000_000),
        }
    }

    fn handshakes(&mut self, mut take: impl FnMut(&Batch<'_>)) {
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        for connection in 0..self.count {
            self.packet(connection, true, 0, 0, SYN, &mut take);
            self.packet(connection, false, 0, 1, SYN | ACK, &mut take);
            self.packet(connection, true, 1, 1, ACK, &mut take);
        }
        self.flush(&mut take);
    }

    /// One data segment of every connection.
    fn data(&mut self, round: u64, mut take: impl FnMut(&Batch<'_>)) {
        const PUSH_ACK: u8 = 24;
        let seq = 1 + (round as u32).wrapping_mul(PAYLOAD as u32);
        let mut connection = 0;
        for _ in 0..self.count {
            self.packet(connection, true, seq, 1, PUSH_ACK, &mut take);
            connection = (connection + self.stride) % self.count;
        }
        self.flush(&mut take);
    }

    fn packet(
        &mut self,
        connection: u64,
        from_client: bool,
        seq: u32,
        ack: u32,
        flags: u8,
        take: &mut impl FnMut(&Batch<'_>),
    ) {
        const PUSH: u8 = 8;
        let payload = if flags & PUSH != 0 { PAYLOAD } else { 0 };
        let client = (0x0a00_0000 | (connection >> 8) as u32 & 0x00ff_ffff).to_be_bytes();
        let client_port = (1024 + (connection & 0xff) as u16).to_be_bytes();
        let server = [192, 168, 1, 1];
        let server_port = 80u16.to_be_bytes();
        let offset = self.packets.len() * FRAME;
        let frame = &mut self.memory[offset..offset + FRAME];
        frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        frame[22..26].copy_from_slice(&[64, 6, 0, 0]);
        let (from, to) = ((client, client_port), (server, server_port));
        let (from, to) = if from_client { (from, to) } else { (to, from) };
        frame[26..30].copy_from_slice(&from.0);
        frame[30..34].copy_from_slice(&to.0);
        frame[34..36].copy_from_slice(&from.1);
        frame[36..38].copy_from_slice(&to.1);
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        frame[42..46].copy_from_slice(&ack.to_be_bytes());
        frame[46..54].copy_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        let header = checksum(0, &frame[14..34]);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
        let pseudo = sum(6 + 20 + payload as u32, &frame[26..34]);
        let segment = checksum(pseudo, &frame[34..HEADERS + payload]);
        frame[50..52].copy_from_slice(&segment.to_be_bytes());
        self.now.0 += 1000;
        let len = (HEADERS + payload) as u32;
        self.packets.push(PacketDescriptor {
            time: self.now,
            offset: offset as u32,
            captured_len: len,
            wire_len: len,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
        if self.packets.len() == BATCH {
            self.flush(take);
        }
    }

    fn flush(&mut self, take: &mut impl FnMut(&Batch<'_>)) {
        take(&Batch::new(&self.memory, &self.packets));
        self.packets.clear();
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn sum(start: u32, bytes: &[u8]) -> u32 {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes(*pair))
    })
}

fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let sum = sum(start, bytes);
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Nanoseconds this thread was on a CPU.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Bytes of resident memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    pages * 4096
}
