//! The stacks of the folder `stacks`: each is checked, and does what it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn flowgauge(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .args(arguments)
        .output()
        .expect("it runs")
}

fn stacks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stacks")
}

fn stack(name: &str) -> String {
    stacks().join(name).display().to_string()
}

/// What a stack prints for a generated trace.
fn run(folder: &Path, name: &str, files: &[&str]) -> String {
    let file = stack(name);
    let arguments = [&["stack", "run", "-q", "-f", &file, "-r"], files].concat();
    let output = flowgauge(folder, &arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {messages}");
    String::from_utf8(output.stdout).expect("text")
}

fn rows(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

fn generate(folder: &Path, preset: &str, flows: &str) -> String {
    let file = format!("{preset}.pcap");
    let arguments = ["generate", preset, "-q", "--flows", flows, "-w", &file];
    assert!(flowgauge(folder, &arguments).status.success());
    file
}

#[test]
fn all_are_well_formed_and_say_what_they_are_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut seen = 0;
    for entry in fs::read_dir(stacks()).expect("it is there") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|ending| ending != "stack") {
            continue;
        }
        seen += 1;
        let name = path.display().to_string();
        for arguments in [
            ["stack", "check", &name].as_slice(),
            &["stack", "fmt", "--check", &name],
        ] {
            let output = flowgauge(folder.path(), arguments);
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {messages}");
            assert_eq!(messages, "", "{arguments:?}");
        }
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.starts_with("# "), "{name}");
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn hosts_pairs_and_vlans_are_ranked() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "late", "300");
    let by_stack = run(folder, "heavy-hitters.stack", &[&trace]);
    let by_command = flowgauge(
        folder,
        &[
            "flows",
            "-q",
            "-r",
            &trace,
            "--by",
            "src_ip",
            "--sum",
            "bytes,packets",
            "--top",
            "20",
            "--csv",
        ],
    );
    let by_command = String::from_utf8(by_command.stdout).expect("text");
    let (stack_lines, command_lines) = (by_stack.lines().count(), by_command.lines().count());
    assert_eq!(stack_lines, command_lines, "{by_stack}");
    for line in by_command.lines().skip(1) {
        let host = line.split(',').next().expect("a field");
        assert!(by_stack.contains(host), "{host}: {by_stack}");
    }
    let pairs = rows(&run(folder, "retransmissions.stack", &[&trace]));
    let counts: Vec<u64> = pairs
        .iter()
        .map(|row| row["retransmitted"].as_u64().expect("a number"))
        .collect();
    assert!(counts.len() == 20 && counts[0] > 0, "{counts:?}");
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    let vlans = run(folder, "vlans.stack", &[&trace]);
    assert!(vlans.lines().count() >= 2, "{vlans}");
}

#[test]
fn a_port_is_told_once_and_handshakes_have_their_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let trace = generate(folder, "small", "500");
    let ports = rows(&run(folder, "listening-ports.stack", &[&trace]));
    let mut endpoints: Vec<String> = ports
        .iter()
        .map(|row| format!("{} {}", row["src_ip"], row["src_port"]))
        .collect();
    let told = endpoints.len();
    endpoints.sort_unstable();
    endpoints.dedup();
    assert_eq!(endpoints.len(), told);
    assert!(ports.iter().all(|row| row["tcp_flags"] == "SA"));
    let command = flowgauge(
        folder,
        &[
            "flows",
            "-q",
            "-r",
            &trace,
            "--by",
            "dst_ip,dst_port",
            "tcp",
        ],
    );
    let servers = String::from_utf8(command.stdout).expect("text");
    assert_eq!(servers.lines().count(), told);
    let handshakes = rows(&run(folder, "handshakes.stack", &[&trace]));
    assert!(handshakes.len() >= 400, "{}", handshakes.len());
    for row in &handshakes {
        assert_eq!(row["state"], "matched", "{row}");
        assert!(row["latency"].as_f64().is_some_and(|latency| latency > 0.0));
    }
}

#[test]
fn what_only_one_of_two_places_saw_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let before = generate(folder, "small", "200");
    // The second place is five milliseconds away, and loses every hundredth packet.
    let whole = fs::read(folder.join(&before)).expect("it was made");
    let (mut behind, mut at, mut number, mut lost) = (whole[..24].to_vec(), 24, 0, 0);
    while at + 16 <= whole.len() {
        let field = |place: usize| {
            let bytes = whole.get(place..place + 4).expect("a header");
            u32::from_le_bytes(bytes.try_into().expect("four bytes"))
        };
        let end = at + 16 + field(at + 8) as usize;
        number += 1;
        if number % 100 == 0 {
            lost += 1;
        } else {
            let micros = field(at + 4) + 5_000;
            behind.extend((field(at) + micros / 1_000_000).to_le_bytes());
            behind.extend((micros % 1_000_000).to_le_bytes());
            behind.extend_from_slice(&whole[at + 8..end]);
        }
        at = end;
    }
    let magic = u32::from_le_bytes(whole[..4].try_into().expect("four bytes"));
    assert_eq!(magic, 0xa1b2_c3d4, "times in microseconds");
    fs::write(folder.join("behind.pcap"), behind).expect("a file");
    let found = rows(&run(folder, "loss.stack", &[&before, "behind.pcap"]));
    let alone = found
        .iter()
        .filter(|row| row["state"] == "no_reply")
        .count();
    let matched: Vec<&Value> = found
        .iter()
        .filter(|row| row["state"] == "matched")
        .collect();
    assert_eq!((alone, matched.len()), (lost, number - lost));
    for row in matched {
        assert_eq!(row["latency"].as_f64(), Some(0.005), "{row}");
    }
}
