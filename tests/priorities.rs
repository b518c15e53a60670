//! Prioritized packet loss at a watermark, through the command line and through libscap: who is important loses nothing,
//! and others do for it; where priorities are not told, or not heeded, it does.

use std::path::{Path, PathBuf};

use crate::c;
use crate::support;
use crate::support::cases::{Frame, checksum, pcap};
use crate::support::flowgauge;

/// What streams have of `--memory 1M`, 393,216 bytes: from the half of it on priorities decide, beyond three quarters only important
/// ones may have more. In libscap a sixteenth is for connections alone, and they take the rest: 1,322 bytes for each of the three that
/// the first batch begins.
const MEMORY: u64 = 393_216 / 15 * 16 + 3 * 1_322;
/// Packets in a batch: what waits is looked through between two.
const BATCH: usize = 256;
/// Bytes of a segment that fills a block of those that wait. Such a block takes some 2,200 bytes, whatever is in it.
const SEGMENT: u32 = 2048;
/// Who is not important, who is, and a third.
const PORTS: [u16; 3] = [80, 443, 22];

/// A packet to this port, the SYN where its number is 0.
fn packet(from: u16, port: u16, seq: u32, data: u32) -> Frame {
    let hosts = [10, 0, 0, 1, 10, 0, 0, 2];
    let mut tcp = Vec::new();
    for part in [from, port] {
        tcp.extend(part.to_be_bytes());
    }
    tcp.extend(seq.to_be_bytes());
    let flags = if seq == 0 { 2 } else { 0x10 };
    tcp.extend([
        0,
        0,
        0,
        u8::from(seq != 0),
        0x50,
        flags,
        0xff,
        0xff,
        0,
        0,
        0,
        0,
    ]);
    tcp.resize(20 + data as usize, b'x');
    let len = tcp.len() as u16;
    let pseudo = [&hosts[..], &[0, 6], &len.to_be_bytes(), &tcp].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut header = vec![0x45, 0];
    header.extend((20 + len).to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    header.extend(hosts);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let bytes = [&[2; 12][..], &[8, 0], &header, &tcp].concat();
    Frame {
        nanos: 1_600_000_000_000_000_000,
        wire_len: bytes.len() as u32,
        bytes,
    }
}

/// A stream that is not important has bytes that wait, one by one, for those between them: in the first batch in more than
/// the half of the memory, in the second in what it may have of it, nearly. Then 70 others want to have a segment wait,
/// and the important one has twenty wait for its first, which comes. (Batches end with 256 KiB, too, which is more than all of this.)
fn trace(folder: &Path) -> PathBuf {
    let [low, high, other] = PORTS;
    let mut frames: Vec<Frame> = PORTS.map(|port| packet(1, port, 0, 0)).into();
    frames.extend((1..101).map(|number| packet(1, low, 1 + 2 * number, 1)));
    while frames.len() < BATCH {
        frames.push(packet(1, other, 1, 0));
    }
    frames.extend((101..134).map(|number| packet(1, low, 1 + 2 * number, 1)));
    for from in 1001..1071 {
        frames.push(packet(from, low, 0, 0));
        frames.push(packet(from, low, 2, SEGMENT));
    }
    let segment = |number| packet(1, high, 1 + number * SEGMENT, SEGMENT);
    frames.extend((1..21).chain([0]).map(segment));
    let path = folder.join("priorities.pcap");
    std::fs::write(&path, pcap(&frames)).expect("the scratch folder is writable");
    path
}

/// Packets to the first two ports: dropped, discarded and captured.
type Counts = [[u64; 3]; 2];

/// What both ways are to find, with priorities and without.
fn check(counts: impl Fn(bool) -> Counts) {
    let [[dropped, discarded, captured], important] = counts(true);
    assert_eq!(important, [0, 0, 22], "the important one loses nothing");
    assert!(dropped > 50, "{dropped} of others");
    assert_eq!(dropped + captured, 133 + 70 + 71);
    assert_eq!(discarded, 0);
    // Without, there is no memory for what waits: its hole is given up, and what fills it comes too late.
    assert_eq!(counts(false), [[0, 0, 133 + 70 + 71], [0, 1, 21]]);
}

#[test]
fn watermarks_through_the_command_line() {
    let trace = trace(&support::scratch("priorities"));
    check(|with| {
        let mut command = vec!["streams", "--json", "--counters", "-r"];
        command.push(trace.to_str().expect("a path in UTF-8"));
        command.extend(["--memory", "1M"]);
        if with {
            command.extend(["--priority", "5:port 443"]);
        }
        let ran = flowgauge::run(&command);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let records = ran.json_lines();
        let counts = [PORTS[0], PORTS[1]].map(|port| {
            ["dropped_packets", "discarded_packets", "captured_packets"].map(|field| {
                let of = records.iter().filter(|record| record["dst_port"] == port);
                of.map(|record| record[field].as_u64().expect(field)).sum()
            })
        });
        let told = format!("{} dropped", counts[0][0]);
        assert!(ran.stderr.contains(&told), "{told}: {}", ran.stderr);
        counts
    });
}

#[test]
fn watermarks_through_the_c_library() {
    let test = "watermarks_through_the_c_library";
    if !c::has("cc", test) || !c::has("pkg-config", test) {
        return;
    }
    let folder = support::scratch("priorities_c");
    let trace = trace(&folder);
    let program = folder.join("priorities");
    let source = support::root().join("tests/c/priorities.c");
    let options = [
        "-D_POSIX_C_SOURCE=200112L",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ];
    c::compile("cc", &options, &source, &program);
    check(|with| {
        let mut command = c::limited(&program);
        command.arg(&trace).arg(MEMORY.to_string());
        if with {
            command.args(["5", "port 443"]);
        }
        let ran = c::run(&mut command);
        c::assert_success(&ran);
        let said = c::text(&ran.stdout);
        let lines: Vec<Vec<u64>> = said
            .lines()
            .map(|line| {
                let words = line.split(' ');
                words.map(|word| word.parse().expect("a number")).collect()
            })
            .collect();
        [PORTS[0], PORTS[1]].map(|port| {
            [1, 2, 3].map(|field| {
                let of = lines.iter().filter(|line| line[0] == u64::from(port));
                of.map(|line| line[field]).sum()
            })
        })
    });
}
