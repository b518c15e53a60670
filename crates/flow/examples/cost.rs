//! What a packet costs in the flow table: `cost FLOWS PACKETS [new]`.
//!
//! Established TCP flows are visited in random order with data in sequence; with `new` every packet
//! opens a flow of its own instead. For instruction counts run it under
//! `valgrind --tool=callgrind --toggle-collect='*FlowTracker::process'`.
#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use flowgauge_flow::{FlowConfig, FlowTracker};
use flowgauge_wire::{
    Address, BATCH_SIZE, DecodeFlags, Decoded, Direction, FlowKey, HashSeed, Nanos, TcpFlags,
};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments
            .next()
            .and_then(|argument| argument.parse().ok())
            .unwrap_or(default)
    };
    let (flows, packets): (u32, u64) = (number(1000) as u32, number(10_000_000));
    let only_new = arguments.next().is_some();
    let mut world = World {
        tracker: FlowTracker::new(FlowConfig::default()),
        now: Nanos::from_secs(1_700_000_000),
        batch: Vec::with_capacity(BATCH_SIZE),
        refs: Vec::new(),
        spent: Duration::ZERO,
        records: 0,
    };
    let mut next_seq = vec![[1000u32, 5000]; flows as usize];
    if !only_new {
        for flow in 0..flows {
            for (side, flags, seq, ack) in [
                (0, TcpFlags::SYN, 999, 0),
                (1, TcpFlags::SYN.with(TcpFlags::ACK), 4999, 1000),
                (0, TcpFlags::ACK, 1000, 5000),
            ] {
                world.push(segment(flow, side, flags, seq, ack, 0));
            }
        }
        world.flush();
        // Both sides' first data and acknowledgements are letters of the history.
        for flow in 0..flows {
            for side in [0, 1, 0, 1] {
                let [mine, other] = ends(&next_seq[flow as usize], side);
                world.push(segment(flow, side, TcpFlags::ACK, mine, other, 10));
                next_seq[flow as usize][side] += 10;
                world.push(segment(flow, side, TcpFlags::ACK, mine + 10, other, 0));
            }
        }
        world.flush();
    }
    world.spent = Duration::ZERO;
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for at in 0..packets {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if only_new {
            world.push(segment(at as u32, 0, TcpFlags::SYN, 1, 0, 0));
            continue;
        }
        let flow = (((random >> 32) * u64::from(flows)) >> 32) as u32;
        let side = (random & 1) as usize;
        let [mine, other] = ends(&next_seq[flow as usize], side);
        world.push(segment(flow, side, TcpFlags::ACK, mine, other, 100));
        let seq = &mut next_seq[flow as usize][side];
        *seq = seq.wrapping_add(100);
    }
    world.flush();
    println!(
        "{} flows in the table, {:.1} MB ({:.0} bytes each): {:.1} ns per packet",
        world.tracker.len(),
        world.tracker.memory_bytes() as f64 / 1e6,
        world.tracker.memory_bytes() as f64 / world.tracker.len().max(1) as f64,
        world.spent.as_nanos() as f64 / packets as f64,
    );
    let start = Instant::now();
    world.tracker.finish();
    let records = &mut world.records;
    world
        .tracker
        .drain_ended(|_, record| *records += record.flow_id & 1 | 2);
    println!(
        "given out in {:.1} ns per record",
        start.elapsed().as_nanos() as f64 / f64::from(flows)
    );
}

struct World {
    tracker: FlowTracker,
    now: Nanos,
    batch: Vec<Decoded>,
    refs: Vec<flowgauge_flow::PacketFlow>,
    spent: Duration,
    records: u64,
}

impl World {
    fn push(&mut self, mut packet: Decoded) {
        self.now = self.now + Nanos(200);
        packet.time = self.now;
        self.batch.push(packet);
        if self.batch.len() == BATCH_SIZE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let start = Instant::now();
        self.tracker.process(&self.batch, &[], &mut self.refs);
        let records = &mut self.records;
        self.tracker.drain_ended(|_, _| *records += 1);
        self.spent += start.elapsed();
        self.batch.clear();
    }
}

fn ends(next: &[u32; 2], side: usize) -> [u32; 2] {
    [next[side], next[1 - side]]
}

fn segment(flow: u32, side: usize, tcp_flags: TcpFlags, seq: u32, ack: u32, len: u32) -> Decoded {
    let [a, b, c, d] = flow.to_be_bytes();
    let client = (Address::v4([10, b, c, d]), 1024 + u16::from(a));
    let server = (Address::v4([192, 168, 0, 1]), 80);
    let (source, destination) = if side == 0 {
        (client, server)
    } else {
        (server, client)
    };
    let (key, direction): (FlowKey, Direction) = FlowKey::new(4, 6, source, destination);
    Decoded {
        key,
        direction,
        hash: HashSeed::of_process().hash(&key),
        seq,
        ack,
        tcp_flags,
        window: 1000,
        payload_len: len,
        payload_captured: len,
        ip_len: 40 + len,
        wire_len: 54 + len,
        frames: 1,
        flags: DecodeFlags::TRANSPORT,
        ..Decoded::default()
    }
}
