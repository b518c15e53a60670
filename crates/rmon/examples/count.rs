//! What counting costs: the tables of a capture, or of many hosts that talk with each other.
//!
//! `count FILE` prints seconds, peak memory and what the first look at all orders of rows takes; `count --until STAGE
//! FILE` stops after `read` or `decode`. `count --hosts N CONVERSATIONS` makes the packets itself, two of each
//! conversation.

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
    probe.set_zero(0);
    let began = Instant::now();
    let packets = match arguments[..] {
        ["--hosts", hosts, conversations] => {
            let (hosts, conversations) = (hosts.parse().unwrap(), conversations.parse().unwrap());
            made(&mut probe, hosts, conversations)
        }
        ["--until", stage, file] => read(&mut probe, file, stage),
        [file] => read(&mut probe, file, "tables"),
        _ => panic!("count [--until read|decode] FILE, or count --hosts N CONVERSATIONS"),
    };
    let seconds = began.elapsed().as_secs_f64();
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

/// Counts a packet in each direction of so many conversations, each with a pair of hosts of its own.
fn made(probe: &mut Probe, hosts: u32, conversations: u32) -> u64 {
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    let (mut bytes, mut packets) = (Vec::new(), Vec::new());
    for number in 0..conversations {
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
                time: Nanos(1_700_000_000_000_000_000 + u64::from(number) * 100_000),
                offset: start as u32,
                captured_len: (bytes.len() - start) as u32,
                wire_len: 60,
                link: LinkType::ETHERNET,
                ..PacketDescriptor::default()
            });
        }
        if packets.len() as u32 >= BATCH || number + 1 == conversations {
            let batch = Batch::new(&bytes, &packets);
            decoder.decode_batch(&batch, &mut decoded);
            probe.observe(&batch, &decoded);
            bytes.clear();
            packets.clear();
        }
    }
    2 * u64::from(conversations)
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
