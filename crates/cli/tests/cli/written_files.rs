//! Files that commands write: names, formats, rings, and disks that are full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command_support::{
    Folder, command, fails, handles, json_lines, run, signal, sorted, stderr, text,
};
use crate::corpora::skipped;

#[test]
fn files_hold_the_bytes_that_the_list_counts() {
    let folder = Folder::new("files");
    let (trace, _) = folder.trace();
    let out = folder.file("out");
    let output = run(&[
        "streams",
        "-r",
        text(&trace),
        "--out",
        text(&out),
        "--list",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let bytes: u64 = json_lines(&output)
        .iter()
        .map(|row| row["bytes"].as_u64().unwrap())
        .sum();
    let written: u64 = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(written, bytes);
}

#[test]
fn a_full_disk_fails_and_a_closed_pipe_does_not() {
    let folder = Folder::new("full");
    let (trace, _) = folder.trace();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = command(&["flows", "-r", text(&trace)])
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No space left on device"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&["flows", "-q", "-r", text(&trace)])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

/// The planned end of `-G` and `-W` is no loss, and the ledger speaks of what is in the files.
#[test]
fn packets_after_the_planned_end_are_not_received() {
    let folder = Folder::new("planned-end");
    let (trace, truth) = folder.trace();
    let name = folder.file("part-%s.pcap");
    let output = run(&[
        "capture",
        "--fail-on-drop",
        "-r",
        text(&trace),
        "-w",
        text(&name),
        "-G",
        "5",
        "-W",
        "2",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let pattern = folder.file("part-*.pcap");
    let written = json_lines(&run(&["packets", "-r", text(&pattern)]));
    assert!((written.len() as u64) < truth["packets"].as_u64().unwrap());
    let bytes: u64 = written
        .iter()
        .map(|packet| packet["length"].as_u64().unwrap())
        .sum();
    let count = written.len();
    let line = format!(
        "{count} packets received, {count} delivered ({bytes} bytes), 0 dropped, 0 discarded\n"
    );
    assert!(stderr(&output).contains(&line), "{}", stderr(&output));
}

#[test]
fn what_a_full_disk_refused_is_not_delivered() {
    if !Path::new("/dev/full").exists() {
        return skipped("no /dev/full");
    }
    let folder = Folder::new("refused");
    let (trace, truth) = folder.trace();
    let packets = truth["packets"].as_u64().unwrap();
    let line = format!(
        "{packets} packets received, 0 delivered (0 bytes), {packets} dropped, 0 discarded"
    );
    fails(
        &["capture", "-r", text(&trace), "-w", "/dev/full", "-U"],
        1,
        &["No space left"],
    );
    let small = folder.file("few.pcap");
    run(&[
        "capture",
        "-c",
        "50",
        "-r",
        text(&trace),
        "-w",
        text(&small),
    ]);
    let line = line.replace(&packets.to_string(), "50");
    fails(
        &["capture", "-r", text(&small), "-w", "/dev/full"],
        1,
        &[&line],
    );
}

#[test]
fn generate_honours_the_name() {
    let folder = Folder::new("generate-names");
    let (trace, _) = folder.trace();
    // Records come batch by batch, and buffers end elsewhere in another format.
    let expected = run(&["flows", "-r", text(&trace)]);
    for (name, magic) in [
        ("a.pcapng", &[0x0a, 0x0d, 0x0d, 0x0a][..]),
        ("a.pcapng.gz", &[0x1f, 0x8b]),
        ("a.pcap.zst", &[0x28, 0xb5, 0x2f, 0xfd]),
    ] {
        let file = folder.file(name);
        let arguments = ["generate", "zoo", "--flows", "60", "-w", text(&file)];
        let made = run(&arguments);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        assert!(fs::read(&file).unwrap().starts_with(magic), "{name}");
        let flows = run(&["flows", "-r", text(&file)]);
        assert!(sorted(&flows) == sorted(&expected), "{name}");
    }
    // The truth's times are those of the file.
    let truth = fs::read(folder.file("zoo.pcap.truth.json")).unwrap();
    let truth: Value = serde_json::from_slice(&truth).unwrap();
    assert_eq!(truth["first_ns"].as_u64().unwrap() % 1000, 0);
    assert_eq!(truth["last_ns"].as_u64().unwrap() % 1000, 0);
}

/// The ending of `-w` decides the format, unless an option does.
#[test]
fn the_name_of_a_file_says_its_format() {
    let folder = Folder::new("format");
    let (trace, _) = folder.trace();
    for (name, option) in [("o.csv", "--csv"), ("o.JSON", "--json"), ("o", "--json")] {
        let file = folder.file(name);
        let output = run(&["flows", "-r", text(&trace), "-w", text(&file)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let expected = run(&["flows", option, "-r", text(&trace)]).stdout;
        assert!(fs::read(&file).unwrap() == expected, "{name}");
    }
}

/// SIGUSR2 preserves a ring of files; no packet is lost by it.
#[test]
fn a_signal_preserves_the_ring() {
    let folder = Folder::new("ring");
    let (trace, truth) = folder.trace();
    let bytes = fs::read(&trace).unwrap();
    let ring = folder.file("ring.pcap");
    let mut child = command(&[
        "capture",
        "-r",
        "-",
        "-w",
        text(&ring),
        "--ring-size",
        "1G",
        "--ring-after",
        "1000",
    ])
    .stdin(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (front, back) = bytes.split_at(bytes.len() / 2);
    input.write_all(front).unwrap();
    handles(&child, 12);
    signal(&child, "-USR2");
    input.write_all(back).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("preserved: "),
        "{}",
        stderr(&output)
    );
    // All of them are named, those that joined after the trigger, too.
    for entry in fs::read_dir(&folder.0).unwrap() {
        let path = entry.unwrap().path();
        if text(&path).contains("ring-t1-") {
            assert!(stderr(&output).contains(text(&path)), "{}", stderr(&output));
        }
    }
    let files: Vec<PathBuf> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| text(path).contains("/ring-"))
        .collect();
    assert!(files.iter().any(|path| text(path).contains("ring-t1-")));
    let mut arguments = vec!["packets", "-r"];
    arguments.extend(files.iter().map(|path| text(path)));
    let packets = json_lines(&run(&arguments)).len() as u64;
    assert_eq!(packets, truth["packets"].as_u64().unwrap());
}

/// Where no more can be written, the ledger agrees with the file, compressed or not.
#[test]
fn a_file_that_cannot_grow_holds_what_is_delivered() {
    let folder = Folder::new("cannot-grow");
    let (trace, truth) = folder.trace();
    let packets = truth["packets"].as_u64().unwrap();
    for name in ["x.pcap", "x.pcap.gz", "x.pcap.zst"] {
        let file = folder.file(name);
        let whole = run(&["capture", "-r", text(&trace), "-w", text(&file)]);
        assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
        // Two thirds of what is needed, in blocks of 512 bytes.
        let blocks = fs::metadata(&file).unwrap().len() * 2 / 3 / 512;
        let output = Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"",
                "sh",
            ])
            .arg(blocks.to_string())
            .arg(env!("CARGO_BIN_EXE_flowgauge"))
            .args(["capture", "-r", text(&trace), "-w", text(&file)])
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        let number = |word: &str| -> u64 {
            let before = said.split(word).next().unwrap();
            let digits = before.trim_end().rsplit(' ').next().unwrap();
            digits.parse().unwrap_or_else(|_| panic!("{word}: {said}"))
        };
        let delivered = number(" delivered");
        assert!(delivered < packets, "{name}: {said}");
        let read = run(&["packets", "-r", text(&file)]);
        assert_eq!(json_lines(&read).len() as u64, delivered, "{name}: {said}");
    }
}

#[test]
fn files_of_an_earlier_run_are_not_mixed_with_new_ones() {
    let folder = Folder::new("earlier");
    let (trace, _) = folder.trace();
    let out = folder.file("streams");
    let arguments = ["streams", "--out", text(&out), "-q", "-r", text(&trace)];
    assert_eq!(run(&arguments).status.code(), Some(0));
    fails(&arguments, 2, &["of an earlier run", "hint: use an empty"]);
}

/// A limit on the size of files (`ulimit -f`) is a failure as a full disk is.
#[test]
fn a_limit_on_the_size_of_files_is_said() {
    let folder = Folder::new("limit");
    let (trace, _) = folder.trace();
    let written = folder.file("x.pcap");
    let ran = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 20; exec \"$0\" capture -r \"$1\" -w \"$2\"",
        ])
        .args([
            env!("CARGO_BIN_EXE_flowgauge"),
            text(&trace),
            text(&written),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    for part in ["File too large", "hint: ", "ulimit -f", "packets received"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let read = run(&["packets", "-q", "--json", "-r", text(&written)]);
    assert!(!json_lines(&read).is_empty());
}
