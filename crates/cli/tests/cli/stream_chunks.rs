//! `flowgauge streams` in chunks: modes, cutoffs, counters, workers; what is wrong is said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .output()
        .unwrap()
}

fn trace() -> &'static str {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    let path = TRACE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stream_chunks");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("mix.pcap");
        let made = run(&[
            "generate",
            "mix",
            "--flows",
            "120",
            "-q",
            "-w",
            path.to_str().unwrap(),
        ]);
        assert!(made.status.success(), "{made:?}");
        path
    });
    path.to_str().unwrap()
}

fn records(arguments: &[&str]) -> (Vec<Value>, String) {
    let mut all = vec!["streams", "-r", trace(), "--json"];
    all.extend(arguments);
    let output = run(&all);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let records = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (records.collect(), errors)
}

fn set(arguments: &[&str]) -> BTreeSet<String> {
    let (records, _) = records(arguments);
    records.iter().map(Value::to_string).collect()
}

fn sum(records: &[Value], field: &str) -> u64 {
    records
        .iter()
        .map(|record| record[field].as_u64().unwrap())
        .sum()
}

#[test]
fn chunks_have_the_bytes_of_segments_in_every_mode_on_any_number_of_workers() {
    let expected = set(&["--list", "--hash"]);
    assert!(expected.len() > 100);
    // Segments that come late fall into holes that were delivered: these differ from the others.
    let fast = set(&["--mode", "fast", "--hash"]);
    assert_eq!(fast.len(), expected.len());
    for (mode, expected) in [("wait", &expected), ("strict", &expected), ("fast", &fast)] {
        for workers in ["1", "2", "3", "8"] {
            let found = set(&["--mode", mode, "--hash", "--workers", workers]);
            assert_eq!(&found, expected, "{mode} on {workers} workers");
        }
    }
    for chunk in ["0", "1", "100", "1M"] {
        assert_eq!(
            set(&["--chunk", chunk, "--hash"]),
            expected,
            "chunks of {chunk}"
        );
    }
    assert_eq!(
        set(&["--chunk", "1000", "--overlap", "300", "--hash"]),
        expected
    );
    assert_eq!(set(&["--list", "--hash", "--workers", "3"]), expected);
}

#[test]
fn a_cutoff_leaves_the_beginnings_and_counts_the_rest() {
    let (all, _) = records(&["--counters"]);
    let (cut, summary) = records(&["--cutoff", "1000", "--counters"]);
    assert_eq!(all.len(), cut.len());
    // What came twice.
    assert!(sum(&all, "discarded_bytes") < sum(&all, "all_bytes") / 100);
    assert_eq!(sum(&all, "all_packets"), sum(&cut, "all_packets"));
    assert_eq!(sum(&all, "all_bytes"), sum(&cut, "all_bytes"));
    assert!(
        cut.iter()
            .all(|record| record["bytes"].as_u64().unwrap() <= 1000)
    );
    assert!(cut.iter().any(|record| record["state"] == "cutoff"));
    let discarded = sum(&cut, "discarded_bytes");
    assert!(discarded > sum(&all, "all_bytes") / 2);
    for record in &cut {
        let field = |name: &str| record[name].as_u64().unwrap();
        assert_eq!(
            field("all_packets"),
            field("dropped_packets") + field("discarded_packets") + field("captured_packets")
        );
    }
    let total = format!("({discarded}) discarded");
    assert!(summary.contains(&total), "{summary} does not say {total}");
}

#[test]
fn classes_come_before_directions_before_the_default() {
    let (records, _) = records(&[
        "--cutoff",
        "300",
        "--cutoff-direction",
        "server:200",
        "--cutoff-class",
        "100:udp",
    ]);
    for record in &records {
        let bytes = record["bytes"].as_u64().unwrap();
        let most = if record["proto"] == "udp" { 100 } else { 300 };
        assert!(bytes <= most, "{record}");
        // The generator's servers have the low ports.
        if record["proto"] == "tcp" && record["src_port"].as_u64().unwrap() < 32_768 {
            assert!(bytes <= 200, "{record}");
        }
    }
    assert!(records.iter().any(|record| record["bytes"] == 300));
}

#[test]
fn holes_at_the_ends_of_streams_are_the_same_in_chunks() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("holes_at_the_end.pcap");
    let path = path.to_str().unwrap();
    let missing = ["--missing", "0.01", "--flows", "800", "-q", "-w", path];
    assert!(
        run(&[&["generate", "web"][..], &missing].concat())
            .status
            .success()
    );
    let holes = |arguments: &[&str]| -> BTreeSet<String> {
        let gaps = ["streams", "-r", path, "--gaps", "--json", "-q"];
        let output = run(&[&gaps[..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(str::to_owned).collect()
    };
    let expected = holes(&[]);
    let listed = |arguments: &[&str]| -> (u64, u64) {
        let output = run(&[&["streams", "-r", path, "--json", "-q"][..], arguments].concat());
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let records: Vec<Value> = lines.collect();
        (sum(&records, "gaps"), sum(&records, "missing_bytes"))
    };
    assert!(expected.len() > 20);
    assert_eq!(listed(&[]).0, expected.len() as u64);
    for arguments in [
        &["--chunk", "16K"][..],
        &["--chunk", "0"],
        &["--chunk", "16K", "--workers", "2"],
    ] {
        assert_eq!(holes(arguments), expected, "{arguments:?}");
        assert_eq!(listed(arguments), listed(&[]), "{arguments:?}");
    }
}

#[test]
fn totals_are_those_of_the_records() {
    // Other protocols than TCP and UDP, fragments, tunnels.
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("totals.pcap");
    let path = path.to_str().unwrap();
    assert!(
        run(&["generate", "hostile", "--scale", "0.02", "-q", "-w", path])
            .status
            .success()
    );
    let output = run(&[
        "streams",
        "-r",
        path,
        "--counters",
        "--json",
        "--cutoff",
        "1k",
    ]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = lines.collect();
    assert!(
        records
            .iter()
            .any(|r| r["proto"] != "tcp" && r["proto"] != "udp")
    );
    let errors = String::from_utf8(output.stderr).unwrap();
    let of = |what: &str| {
        let (packets, bytes) = (format!("{what}_packets"), format!("{what}_bytes"));
        (sum(&records, &packets), sum(&records, &bytes))
    };
    let ((all, bytes), (discarded, unwanted)) = (of("all"), of("discarded"));
    let expected = [
        format!(
            "{} streams: {all} packets ({bytes} bytes) in all",
            records.len()
        ),
        format!("{discarded} ({unwanted}) discarded"),
    ];
    for expected in expected {
        assert!(errors.contains(&expected), "{expected}: {errors}");
    }
}

#[test]
fn a_flush_timeout_delivers_chunks_that_are_not_full() {
    let (whole, _) = records(&["--chunk", "16384", "--counters"]);
    let (timely, _) = records(&["--chunk", "16384", "--counters", "--flush-timeout", "0.001"]);
    assert!(sum(&timely, "chunks") > sum(&whole, "chunks"));
    assert_eq!(
        sum(&timely, "captured_bytes"),
        sum(&whole, "captured_bytes")
    );
}

/// What is lost of TCP and of UDP where memory is short, from a hundredth of one megabyte on.
fn lost(options: &[&str]) -> [u64; 2] {
    let short = ["--chunk", "16384", "--memory", "1M", "--max-flows", "10k"];
    let all = [&short[..], &["--counters"], options].concat();
    let (records, _) = records(&all);
    ["tcp", "udp"].map(|protocol| {
        let of_it = records.iter().filter(|record| record["proto"] == protocol);
        of_it
            .map(|record| record["dropped_bytes"].as_u64().unwrap())
            .sum()
    })
}

#[test]
fn thresholds_cutoffs_and_priorities_decide_what_is_lost_under_overload() {
    let early = ["--base-threshold", "0.01"];
    // Chunks are sent early instead of dropped.
    assert_eq!(lost(&early), [0, 0]);
    let cut = [&early[..], &["--overload-cutoff", "1k"]].concat();
    let [tcp, udp] = lost(&cut);
    assert!(tcp != 0 && udp != 0);
    assert_eq!(
        lost(&["--base-threshold", "0.9", "--overload-cutoff", "1k"]),
        [0, 0]
    );
    let [tcp, udp] = lost(&[&cut[..], &["--priority", "3:udp"]].concat());
    assert!(tcp != 0 && udp == 0);
    let [tcp, udp] = lost(&[&cut[..], &["--priority", "3:tcp"]].concat());
    assert!(tcp == 0 && udp != 0);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    for (arguments, reason) in [
        (&["--cutoff-class", "10k"][..], "BYTES:FILTER"),
        (&["--cutoff-class", "10k:tcp prt 80"], "syntax error"),
        (&["--priority", "300:udp"], "0 to 255"),
        (&["--host-policy", "amiga"], "neither an overlap policy"),
        (&["--mode", "slow"], "wait, fast, strict"),
        (&["--cutoff-direction", "up:5"], "neither client nor server"),
        (&["--chunk", "100", "--overlap", "100"], "is not less than"),
        (&["--base-threshold", "1.5"], "1.5 is more than 1"),
        (&["--counters", "--count"], "cannot be used with"),
    ] {
        let mut all = vec!["streams", "-r", trace()];
        all.extend(arguments);
        let output = run(&all);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(reason), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_time_machine_rotates_and_filters_and_keeps_the_beginnings() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("time_machine");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let target = folder.join("kept.pcap");
    let arguments = [
        "--cutoff",
        "1k",
        "-C",
        "100KiB",
        "-w",
        target.to_str().unwrap(),
        "tcp",
    ];
    let mut all = vec!["capture", "-r", trace()];
    all.extend(arguments);
    let output = run(&all);
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{summary}");
    assert!(
        summary.contains("cutoff ") && summary.contains("filter "),
        "{summary}"
    );
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert!(files > 1, "{summary}");

    let list = |arguments: &[&str]| -> BTreeSet<String> {
        let output = run(arguments);
        assert!(output.status.success());
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(str::to_owned).collect()
    };
    let glob = format!("{}/*", folder.display());
    let cut = ["--cutoff", "1k", "--hash", "--json", "-q"];
    let kept = list(&[&["streams", "-r", &glob][..], &cut].concat());
    let expected = list(&[&["streams", "-r", trace()][..], &cut, &["tcp"]].concat());
    assert!(!expected.is_empty());
    assert_eq!(kept, expected);
}

/// Figure 8 of the paper, in bytes: nearly all of them lie behind the first 10 KB of their stream.
#[test]
fn ten_kilobytes_of_each_stream_are_less_than_a_tenth_of_elephants() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("elephants");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let name = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (trace, kept) = (name("trace.pcap"), name("kept.pcap"));
    let generate = ["generate", "elephants", "--scale", "0.01", "-q", "-w"];
    assert!(run(&[&generate[..], &[&trace]].concat()).status.success());
    // By stream: how many bytes of it are delivered, and their hash.
    let streams = |path: &str, options: &[&str]| -> BTreeMap<String, (u64, String)> {
        let output = run(&[
            &["streams", "-r", path, "--hash", "--json", "-q"][..],
            options,
        ]
        .concat());
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let records = lines.lines().map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let ends = ["src_ip", "src_port", "dst_ip", "dst_port", "proto"];
            let stream = ends.map(|end| record[end].to_string()).join(" ");
            let hash = record["sha256"].to_string();
            (stream, (record["bytes"].as_u64().unwrap(), hash))
        });
        records.collect()
    };
    let all = streams(&trace, &["--list"]);
    let cut = streams(&trace, &["--cutoff", "10k"]);
    assert!(all.len() > 40);
    assert_eq!(all.len(), cut.len());
    for (stream, (bytes, hash)) in &all {
        assert_eq!(cut[stream].0, (*bytes).min(10 << 10), "{stream}");
        assert!(*bytes > 10 << 10 || cut[stream].1 == *hash, "{stream}");
    }
    let sum = |streams: &BTreeMap<String, (u64, String)>| -> u64 {
        streams.values().map(|(bytes, _)| bytes).sum()
    };
    assert!(10 * sum(&cut) < sum(&all), "{} of {}", sum(&cut), sum(&all));
    // A time machine has the same beginnings, in less than a tenth of the file.
    let capture = [
        "capture", "-r", &trace, "--cutoff", "10k", "-q", "-w", &kept,
    ];
    assert!(run(&capture).status.success());
    assert_eq!(streams(&kept, &["--cutoff", "10k"]), cut);
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    assert!(
        10 * size(&kept) < size(&trace),
        "{} of {}",
        size(&kept),
        size(&trace)
    );
}
