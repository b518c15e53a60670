//! `flowgauge stack run`: what fails on the way.

use std::fs;
use std::io::Read as _;
use std::process::{Command, Output, Stdio};

fn flowgauge(folder: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder =
        std::env::temp_dir().join(format!("flowgauge-stack-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let made = flowgauge(&folder)
        .args([
            "generate",
            "small",
            "-q",
            "--flows",
            "2000",
            "-w",
            "small.pcap",
        ])
        .status()
        .expect("it runs");
    assert!(made.success());
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_stack_fails_and_is_named_though_the_input_is_damaged_too() {
    let folder = folder("failure");
    fs::write(
        folder.join("two.stack"),
        "[stack full]\noutput { /dev/full }\n[stack good]\ncount output { copy.pcap }\n",
    )
    .expect("a file");
    let whole = fs::read(folder.join("small.pcap")).expect("it was made");
    fs::write(folder.join("cut.pcap"), &whole[..whole.len() - 7]).expect("a file");
    let output = flowgauge(&folder)
        .args(["stack", "run", "-f", "two.stack", "-r", "cut.pcap"])
        .output()
        .expect("it runs");
    let messages = text(&output);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(
        messages.contains("error: stack full: the component output failed: "),
        "{messages}"
    );
    assert!(
        messages.contains("cut.pcap is damaged at byte"),
        "{messages}"
    );
    let results = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = results
        .lines()
        .find(|line| line.contains("\"stack\":\"good\",\"component\":\"count\""));
    assert!(line.is_some(), "{results}");
    let copy = fs::metadata(folder.join("copy.pcap")).expect("it was written");
    assert_eq!(copy.len(), whole.len() as u64 - 16 - last_record(&whole));
    fs::remove_dir_all(&folder).expect("it can go");
}

/// Length of the last packet of a pcap file in this machine's byte order.
fn last_record(file: &[u8]) -> u64 {
    let mut at = 24;
    let mut length = 0;
    while at + 16 <= file.len() {
        let bytes = [file[at + 8], file[at + 9], file[at + 10], file[at + 11]];
        length = u32::from_le_bytes(bytes);
        at += 16 + length as usize;
    }
    u64::from(length)
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder("reader");
    let mut run = flowgauge(&folder)
        .args(["stack", "run", "-e", "output count", "-r", "small.pcap"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdout = run.stdout.take().expect("it is a pipe");
    let mut magic = [0; 4];
    stdout.read_exact(&mut magic).expect("a capture comes");
    assert_eq!(u32::from_le_bytes(magic), 0xa1b2_3c4d);
    drop(stdout);
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(!text(&output).contains("error"), "{}", text(&output));
    fs::remove_dir_all(&folder).expect("it can go");
}
