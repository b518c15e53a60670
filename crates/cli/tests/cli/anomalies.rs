//! `log --anomalies` and `--stats-interval`: what others find in captures of the corpora is found here, too, and
//! numbers of a generated trace add up.

use std::collections::BTreeMap;
use std::path::Path;

use crate::command_support::{objects, printed};
use crate::corpora::corpora;
use serde_json::Value;

/// Captures of Zeek's, whether checksums count, and names of its `weird.log` or weird events (its baselines core.reassembly,
/// core.checksums-cli, core.checksums_ignore_nets_runtime_update, scripts.base.protocols.http.http-09-content-length-confusion). What is not here is in docs/correctness.md.
const ZEEK: &[(&str, bool, &str)] = &[
    (
        "ipv4/fragmented-1.pcap",
        false,
        "fragment_size_inconsistency",
    ),
    ("ipv4/fragmented-4.pcap", false, "fragment_inconsistency"),
    ("tcp/reassembly.pcap", false, "rexmit_inconsistency"),
    ("chksums/ip4-bad-chksum.pcap", true, "bad_IP_checksum"),
    ("chksums/ip4-tcp-bad-chksum.pcap", true, "bad_TCP_checksum"),
    ("chksums/ip4-udp-bad-chksum.pcap", true, "bad_UDP_checksum"),
    (
        "http/http-09-content-length-confusion.pcap",
        false,
        "HTTP_response_before_request",
    ),
];

fn log(trace: &Path, options: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["log", "-q", "-r", trace.to_str().expect("text")];
    arguments.extend(options);
    objects(&printed(&arguments))
}

/// How many of each name.
fn names(lines: &[Value], kind: (&str, &str), name: &str) -> BTreeMap<String, u64> {
    let mut names = BTreeMap::new();
    for line in lines.iter().filter(|line| line[kind.0] == kind.1) {
        let name = line[name].as_str().expect("text").to_owned();
        *names.entry(name).or_default() += 1;
    }
    names
}

#[test]
fn what_zeek_finds_weird_is_told() {
    let Some(root) = corpora() else {
        return;
    };
    for (capture, verifies, wanted) in ZEEK {
        let checksums = if *verifies { "verify" } else { "ignore" };
        let options = [
            "--anomalies",
            "--checksums",
            checksums,
            "--format",
            "zeek-json",
        ];
        let lines = log(&root.join("zeek/Traces").join(capture), &options);
        let found = names(&lines, ("_path", "weird"), "name");
        assert!(
            found.contains_key(*wanted),
            "{capture}: {wanted} of {found:?}"
        );
    }
}

/// Tests of suricata-verify about smuggled requests and evasions, and what is told of them.
#[test]
fn evasions_of_suricata_verify_are_told() {
    let Some(root) = corpora() else {
        return;
    };
    for (test, wanted) in [
        ("http-evader/http-evader-242/input.pcap", "two_lengths"),
        (
            "http-evader/http-evader-036/input.pcap",
            "length_and_coding",
        ),
        ("http-evader/http-evader-008/input.pcap", "bad_chunk"),
        (
            "http-evader/http-evader-089/input.pcap",
            "blank_before_colon",
        ),
        ("dns-reversed-udp-1/input.pcap", "unmatched_reply"),
        (
            "bug-3286-02-linux-evasion/with_evasion_linux.pcap",
            "data_after_fin",
        ),
    ] {
        let capture = root.join("suricata-verify/tests").join(test);
        let lines = log(&capture, &["--anomalies", "--format", "json"]);
        let found = names(&lines, ("event_type", "anomaly"), "anomaly");
        assert!(found.contains_key(wanted), "{test}: {wanted} of {found:?}");
        let of_flows = lines.iter().filter(|line| line["event_type"] == "anomaly");
        for line in of_flows.filter(|line| line["layer"] != "packet") {
            assert!(line["flow_id"].is_string(), "{line}");
        }
    }
}

#[test]
fn counters_add_up_and_gaps_are_told_once_of_a_flow() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mix.pcap");
    let name = path.to_str().expect("text");
    printed(&[
        "generate",
        "mix",
        "--scale",
        "0.005",
        "--missing",
        "0.02",
        "-q",
        "-w",
        name,
    ]);
    let options = ["--anomalies", "--stats-interval", "5", "--format", "json"];
    for workers in ["1", "2"] {
        let lines = log(&path, &[&options[..], &["--workers", workers]].concat());
        let gaps: Vec<(&str, &str)> = lines
            .iter()
            .filter(|line| line["anomaly"] == "gap")
            .map(|line| (line["flow_id"].as_str().expect("an id"), ""))
            .collect();
        let mut flows = gaps.clone();
        flows.sort_unstable();
        flows.dedup();
        assert!(
            gaps.len() > 10 && flows.len() == gaps.len(),
            "{}",
            gaps.len()
        );
        let rows: Vec<&Value> = lines
            .iter()
            .filter(|line| line["event_type"] == "statistics")
            .collect();
        let number = |row: &Value, name: &str| row[name].as_u64().expect("a number");
        let sum =
            |rows: &[&Value], name: &str| -> u64 { rows.iter().map(|row| number(row, name)).sum() };
        let records = lines.len() as u64 - rows.len() as u64;
        let (mut packets, mut said, mut bytes) = (0, 0, 0);
        for worker in 1..=workers.parse().expect("a number") {
            let mine: Vec<&Value> = rows
                .iter()
                .copied()
                .filter(|row| row["worker"] == worker)
                .collect();
            assert!(mine.len() > 5, "{}", mine.len());
            let last = mine.last().expect("one");
            packets += number(last, "packets");
            said += number(last, "records");
            bytes += number(last, "bytes");
            for (all, new) in [("packets", "new_packets"), ("bytes", "new_bytes")] {
                assert_eq!(sum(&mine, new), number(last, all), "{new}");
            }
            // They end at whole multiples, so that the first is shorter, as the last is.
            let (_, full) = mine.split_last().expect("one");
            for (place, row) in full.iter().enumerate() {
                let seconds = row["interval"].as_f64().expect("a number");
                assert!(seconds > 4.9 || place == 0 && seconds > 0.0, "{row}");
            }
            assert!(number(last, "anomalies") > 0 && number(last, "gap_bytes") > 0);
        }
        let truth = std::fs::read_to_string(format!("{name}.truth.json")).expect("truth");
        let truth: Value = serde_json::from_str(&truth).expect("an object");
        assert_eq!(truth["packets"].as_u64(), Some(packets));
        assert_eq!(truth["wire_bytes"].as_u64(), Some(bytes));
        assert_eq!(said, records);
    }
}
