//! An hour of trace time of hostile traffic (SYN flood, gap flood, tiny segments, overlap storms,
//! fragments that never complete, damaged headers): memory stays where it was after ten minutes, and every
//! packet is in the ledger.

use crate::support;
use std::io::Write;
use std::process::{Command, Stdio};

/// Limits that this traffic runs into all the time.
const LIMITS: [&str; 4] = ["--memory", "8M", "--max-flows", "4000"];

#[test]
fn an_hour_of_hostile_traffic_takes_no_more_memory_than_ten_minutes() {
    let folder = support::scratch("soak");
    let capture = folder.join("hostile.pcap").display().to_string();
    let made = support::flowgauge::run([
        "generate",
        "hostile",
        "--duration",
        "3600",
        "--packets",
        "600000",
        "--summary",
        "-q",
        "-w",
        &capture,
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let bytes = std::fs::read(&capture).expect("the capture was written");
    assert!(seconds(&bytes) >= 3600, "{} s", seconds(&bytes));
    for command in [
        &["streams", "--count", "--json"][..],
        &["streams", "--count", "--json", "--mode", "fast"],
        &["streams", "--count", "--json", "--chunk", "4096"],
        &["flows", "--json"],
    ] {
        let mut arguments = command.to_vec();
        arguments.extend(["-r", "-"]);
        arguments.extend(LIMITS);
        soak(&arguments, &bytes);
    }
}

/// Pipes the capture into the program and looks at its memory on the way.
fn soak(arguments: &[&str], capture: &[u8]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("its input is a pipe");
    let sixth = capture.len() / 6;
    input.write_all(&capture[..sixth]).expect("it reads");
    let after_ten_minutes = peak_kilobytes(child.id());
    input
        .write_all(&capture[sixth..])
        .expect("it reads to the end");
    let after_an_hour = peak_kilobytes(child.id());
    drop(input);
    let ended = child.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {messages}");
    // Some kilobytes are the allocator's own.
    assert!(
        after_an_hour <= after_ten_minutes + 1024,
        "{arguments:?}: {after_ten_minutes} kB after ten minutes, {after_an_hour} kB after an hour"
    );
    support::say(&format!(
        "{arguments:?}: {after_ten_minutes} kB after ten minutes, {after_an_hour} kB after an hour\n"
    ));
    let ledger = messages
        .lines()
        .find(|line| line.contains(" received, "))
        .unwrap_or_else(|| panic!("no ledger in {messages}"));
    // The table was full all the time.
    assert!(messages.contains("flows were evicted"), "{messages}");
    let numbers = numbers(ledger);
    let (received, delivered) = (numbers["received"], numbers["delivered"]);
    let elsewhere = numbers["dropped"] + numbers["discarded"];
    assert!(received > 500_000, "{ledger}");
    assert_eq!(received, delivered + elsewhere, "{ledger}");
}

/// From the first packet of a capture (pcap, little endian) to its last, in whole seconds.
fn seconds(capture: &[u8]) -> u64 {
    let word = |at: usize| {
        let bytes = capture.get(at..at + 4)?;
        Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
    };
    let (mut at, mut last) = (24, 0);
    while let (Some(time), Some(length)) = (word(at), word(at + 8)) {
        last = last.max(time);
        at += 16 + length as usize;
    }
    last - word(24).expect("there is a packet")
}

/// The most resident memory the process had so far.
fn peak_kilobytes(process: u32) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).expect("the process is there");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("Linux tells the peak");
    let number = line.trim().trim_end_matches("kB").trim();
    number.parse().expect("a number of kilobytes")
}

/// The ledger's line as numbers by what stands behind them.
fn numbers(line: &str) -> std::collections::BTreeMap<&str, u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut found = std::collections::BTreeMap::new();
    for (at, word) in words.iter().enumerate() {
        let Ok(number) = word.parse::<u64>() else {
            continue;
        };
        for name in &words[at + 1..] {
            let name = name.trim_end_matches([',', ':']);
            if ["received", "delivered", "dropped", "discarded"].contains(&name) {
                found.entry(name).or_insert(number);
                break;
            }
        }
    }
    found
}
