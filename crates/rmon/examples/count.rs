//! What counting costs: the tables of a capture, or of many hosts that talk with each other.
//!
//! `count FILE` prints seconds of processor time, peak memory and what the first look at all orders of rows takes; `count --until STAGE
//! FILE` stops after `read` or `decode`. `count --hosts N CONVERSATIONS` makes the packets itself, two of each
//! conversation, and says what a walk costs that shows the rows of the 100 conversations that had a packet since.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for measuring"
)]

use std::time::Instant;

use flowgauge_capture::PacketSource as _;
use flowgauge_rmon::{Oid, Probe, Tree};
use flowgauge_wire::{Batch, DecodedBatch, Decoder, LinkType, Nanos, PacketDescriptor};

/// Packets of a batch of made ones.
const BATCH: u32 = 256;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut probe = Probe::new();
    probe.add_interface(1, 1_000_000_000);
    probe.set_zero(START / TICK - 1000);
    let packets = match arguments[..] {
        ["--hosts", hosts, conversations] => {
            let (hosts, conversations) = (hosts.parse().unwrap(), conversations.parse().unwrap());
            made(&mut probe, hosts, conversations)
        }
        ["--until", stage, file] => read(&mut probe, file, stage),
        [file] => read(&mut probe, file, "tables"),
        _ => panic!("count [--until read|decode] FILE, or count --hosts N CONVERSATIONS"),
    };
    let seconds = processor_time();
    let nanos = seconds * 1e9 / packets as f64;
    println!(
        "{packets} packets, {seconds:.3} s, {nanos:.1} ns each, {} MB",
        peak()
    );
    // The first row of each table: what is put off is done now.
    let began = Instant::now();
    let mut slowest = 0.0_f64;
    for table in [
        "4.2", "6.2", "6.3", "13.5", "14.2", "15.2", "15.3", "16.1", "17.1", "17.2",
    ] {
        let began = Instant::now();
        let root: Oid = format!("1.3.6.1.2.1.16.{table}").parse().unwrap();
        let _ = probe.next(&root, false, None);
        slowest = slowest.max(began.elapsed().as_secs_f64());
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "first look {seconds:.3} s, at most {slowest:.3} s each, {} MB",
        peak()
    );
    if let ["--hosts", hosts, conversations] = arguments[..] {
        let (hosts, conversations) = (hosts.parse().unwrap(), conversations.parse().unwrap());
        walk_what_changed(&mut probe, hosts, conversations);
    }
}

/// Conversations that have a packet later than all others.
const LATER: u32 = 100;

/// When packets are made, in nanoseconds; nanoseconds of a tick.
const START: u64 = 1_700_000_000_000_000_000;
const TICK: u64 = 10_000_000;

/// Ticks from then to the later packets.
const WAIT: u64 = 1_000_000;

/// A packet of each of the last conversations, long after: how many rows alMatrixSD has of them, and what it takes to walk them.
fn walk_what_changed(probe: &mut Probe, hosts: u32, conversations: u32) {
    let first = conversations.saturating_sub(LATER);
    let ((mut decoder, mut decoded), mut batch) = Default::default();
    for number in first..conversations {
        put(&mut batch, number, hosts, START + WAIT * TICK);
    }
    observe(probe, &mut batch, &mut decoder, &mut decoded);
    let mut best = f64::MAX;
    let mut rows = 0;
    for _ in 0..5 {
        let began = Instant::now();
        let root: Oid = format!("1.3.6.1.2.1.16.17.1.1.2.1.{WAIT}").parse().unwrap();
        let mut at = root.clone();
        rows = 0;
        while let Some((name, _)) = probe
            .next(&at, false, None)
            .filter(|it| it.0.starts_with(&root))
        {
            at = name;
            rows += 1;
        }
        best = best.min(began.elapsed().as_secs_f64());
    }
    println!("{rows} rows changed, walked in {:.3} ms", best * 1e3);
}

/// Counts a capture, or stops before that with each packet.
fn read(probe: &mut Probe, file: &str, stage: &str) -> u64 {
    let file = std::fs::File::open(file).unwrap();
    let mut source = flowgauge_capture::open_reader(file, "").unwrap();
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    let mut packets = 0;
    while let Some(batch) = source.next_batch().unwrap() {
        packets += batch.len() as u64;
        if stage != "read" {
            decoder.decode_batch(&batch, &mut decoded);
        }
        if stage == "tables" {
            probe.observe(&batch, &decoded);
        }
    }
    packets
}

/// Packets made for a batch.
type Made = (Vec<u8>, Vec<PacketDescriptor>);

/// Counts a packet in each direction of so many conversations, each with a pair of hosts of its own.
fn made(probe: &mut Probe, hosts: u32, conversations: u32) -> u64 {
    let ((mut decoder, mut decoded), mut batch) = Default::default();
    for number in 0..conversations {
        put(
            &mut batch,
            number,
            hosts,
            START + u64::from(number) * 100_000,
        );
        if batch.1.len() as u32 >= BATCH || number + 1 == conversations {
            observe(probe, &mut batch, &mut decoder, &mut decoded);
        }
    }
    2 * u64::from(conversations)
}

fn observe(probe: &mut Probe, made: &mut Made, decoder: &mut Decoder, decoded: &mut DecodedBatch) {
    let batch = Batch::new(&made.0, &made.1);
    decoder.decode_batch(&batch, decoded);
    probe.observe(&batch, decoded);
    made.0.clear();
    made.1.clear();
}

/// A packet in each direction of a conversation.
fn put((bytes, packets): &mut Made, number: u32, hosts: u32, time: u64) {
    let (one, step) = (number % hosts, 1 + number / hosts);
    let other = (one + step * 7) % hosts;
    for (from, to) in [(one, other), (other, one)] {
        let start = bytes.len();
        bytes.extend([
            2,
            0,
            0,
            0,
            0,
            (to % 4) as u8,
            2,
            0,
            0,
            0,
            0,
            (from % 4) as u8,
        ]);
        bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0]);
        bytes.extend((0x0a00_0000 + from).to_be_bytes());
        bytes.extend((0x0a00_0000 + to).to_be_bytes());
        let port = if from == one {
            [0xc0, 0, 0, 80]
        } else {
            [0, 80, 0xc0, 0]
        };
        bytes.extend(port);
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
        packets.push(PacketDescriptor {
            time: Nanos(time),
            offset: start as u32,
            captured_len: (bytes.len() - start) as u32,
            wire_len: 60,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        });
    }
}

/// Seconds that the process has run.
fn processor_time() -> f64 {
    let times = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanos: f64 = times.split(' ').next().unwrap().parse().unwrap();
    nanos / 1e9
}

/// The most memory that was resident, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kilobytes * 1024 / 1_000_000
}
