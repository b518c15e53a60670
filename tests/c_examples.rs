//! The C examples, built as a user builds them, find what `flowgauge` finds in the same captures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use flowgauge_generate::{Config, Preset, generate};
use serde_json::Value;

use crate::c::{self, assert_success, limited, run, scratch, text};
use crate::support::flowgauge;

/// The folder with the built examples; `None` where there is no C compiler.
fn examples(test: &str) -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if !c::has("make", test) || !c::has("cc", test) || !c::has("pkg-config", test) {
        return None;
    }
    Some(BUILT.get_or_init(|| {
        let folder = scratch("c-examples");
        let mut make = Command::new("make");
        make.arg("-C").arg(c::examples());
        make.arg("CFLAGS=-O2 -Wall -Wextra -Werror -pedantic");
        make.arg(format!("BUILD={}", folder.display()));
        let found = c::installed().join("lib/pkgconfig");
        make.arg(format!("PKG_CONFIG_PATH={}", found.display()));
        assert_success(&run(&mut make));
        folder
    }))
}

/// A capture of `flows` flows.
fn capture(name: &str, preset: Preset, flows: u64) -> PathBuf {
    let path = scratch(name).join("capture.pcap");
    let file = fs::File::create(&path).expect("the scratch folder is writable");
    generate(&Config::new(preset).with_flows(flows), file).expect("a trace is written");
    path
}

/// The lines that an example prints.
fn lines(program: &Path, arguments: &[&str]) -> Vec<Vec<String>> {
    let ran = run(limited(program).args(arguments));
    assert_success(&ran);
    assert_eq!(text(&ran.stderr), "");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text(&ran.stdout).lines().map(words).collect()
}

fn records(arguments: &[&str]) -> Vec<Value> {
    let outcome = flowgauge::run(arguments);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome.json_lines()
}

/// Sender's address and port, receiver's, protocol number.
type Stream = (String, String, String, String, String);

fn stream_of_line(line: &[String]) -> Stream {
    let word = |index: usize| line[index].clone();
    (word(0), word(1), word(2), word(3), word(4))
}

fn stream_of_record(record: &Value, from: &str, to: &str) -> Stream {
    let address = |side: &str| {
        record[format!("{side}_ip")]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let port = |side: &str| record[format!("{side}_port")].to_string();
    let protocol = match record["proto"].as_str() {
        Some("tcp") => "6",
        Some("udp") => "17",
        other => panic!("protocol {other:?}"),
    };
    (
        address(from),
        port(from),
        address(to),
        port(to),
        protocol.to_owned(),
    )
}

#[test]
fn flow_export_agrees_with_flows() {
    let Some(folder) = examples("flow_export_agrees_with_flows") else {
        return;
    };
    for (preset, flows) in [(Preset::Small, 300), (Preset::Mix, 100), (Preset::Zoo, 100)] {
        let capture = capture("flow-export", preset, flows);
        let path = capture.to_str().expect("a path of text");
        let mut exported: Vec<(Stream, u64, u64)> = Vec::new();
        for line in lines(&folder.join("flow_export"), &[path]) {
            let number = |index: usize| line[index].parse().expect("a number");
            assert!(number(7) <= number(8), "{line:?}");
            exported.push((stream_of_line(&line), number(5), number(6)));
        }
        let mut expected = Vec::new();
        // What segments with payload only are worth is decided where streams are put together.
        for record in records(&["flows", "--checksums", "verify", "-r", path, "--json"]) {
            if !matches!(record["proto"].as_str(), Some("tcp" | "udp")) {
                continue;
            }
            for (from, to) in [("src", "dst"), ("dst", "src")] {
                let count = |what: &str| record[format!("{from}_{what}")].as_u64().unwrap_or(0);
                let (bytes, packets) = (count("payload_bytes"), count("packets"));
                if packets > 0 {
                    expected.push((stream_of_record(&record, from, to), bytes, packets));
                }
            }
        }
        exported.sort();
        expected.sort();
        assert!(exported.len() as u64 >= flows, "{}", exported.len());
        assert_eq!(exported, expected, "{preset:?}");
    }
}

#[test]
fn pattern_search_finds_what_is_in_the_streams() {
    let Some(folder) = examples("pattern_search_finds_what_is_in_the_streams") else {
        return;
    };
    let patterns = ["HTTP/1.1", "TTP", "Content-Length: ", "\r\n", "Content"];
    for preset in [Preset::Web, Preset::Mix] {
        let capture = capture("pattern-search", preset, 120);
        let path = capture.to_str().expect("a path of text");
        let mut arguments = vec![path];
        arguments.extend(patterns);
        let ran = run(limited(folder.join("pattern_search")).args(&arguments));
        assert_success(&ran);
        let mut found: Vec<(u64, String)> = Vec::new();
        // A pattern may end in a line break.
        for line in text(&ran.stdout)
            .replace("\r\n\n", "CRLF\n")
            .split_terminator('\n')
        {
            let mut words = line.splitn(7, ' ').skip(5);
            let offset = words.next().and_then(|word| word.parse().ok());
            let pattern = words.next().expect("a pattern").replace("CRLF", "\r\n");
            found.push((offset.expect("an offset"), pattern));
        }
        let streams = scratch("pattern-search-streams");
        let out = streams.to_str().expect("a path of text");
        let outcome = flowgauge::run(["streams", "-r", path, "--out", out, "--fill-gaps", "-q"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let mut expected = Vec::new();
        for file in fs::read_dir(&streams).expect("a folder of streams") {
            let bytes = fs::read(file.expect("a stream").path()).expect("a stream");
            for pattern in patterns {
                let windows = bytes.windows(pattern.len()).enumerate();
                let hits = windows.filter(|(_, window)| *window == pattern.as_bytes());
                expected.extend(hits.map(|(offset, _)| (offset as u64, pattern.to_owned())));
            }
        }
        found.sort();
        expected.sort();
        assert!(found.len() > 500, "{}", found.len());
        assert_eq!(found.len(), expected.len(), "{preset:?}");
        assert!(found == expected, "{preset:?}");
    }
}

#[test]
fn packets_have_the_bytes_of_their_streams() {
    let Some(folder) = examples("packets_have_the_bytes_of_their_streams") else {
        return;
    };
    for preset in [Preset::Mix, Preset::Late] {
        let capture = capture("packets", preset, 100);
        let path = capture.to_str().expect("a path of text");
        let mut found: BTreeMap<Stream, [u64; 4]> = BTreeMap::new();
        for line in lines(&folder.join("packets"), &[path]) {
            let numbers = [5, 6, 7, 8].map(|index: usize| line[index].parse().expect("a number"));
            assert_eq!(found.insert(stream_of_line(&line), numbers), None);
        }
        let mut late = 0;
        let streams = records(&["streams", "-r", path, "--list", "--json"]);
        for record in &streams {
            let bytes = record["bytes"].as_u64().unwrap_or(0);
            let stream = stream_of_record(record, "src", "dst");
            match found.get(&stream) {
                Some(&[_, payload, behind, in_chunks]) => {
                    assert_eq!(in_chunks, bytes, "{stream:?}");
                    assert!(payload >= bytes, "{stream:?}");
                    late += behind;
                }
                None => assert_eq!(bytes, 0, "{stream:?}"),
            }
        }
        assert!(
            found.len() > 100 && late > 0,
            "{} streams, {late} late",
            found.len()
        );
        // With every copy of every byte it is what the flow records count.
        let sent = |what: &str| -> u64 {
            let flows = records(&[
                "flows",
                "--checksums",
                "verify",
                "-r",
                path,
                "--json",
                "tcp or udp",
            ]);
            flows.iter().filter_map(|flow| flow[what].as_u64()).sum()
        };
        let payload: u64 = found.values().map(|numbers| numbers[1]).sum();
        assert_eq!(
            payload,
            sent("src_payload_bytes") + sent("dst_payload_bytes")
        );
    }
}

#[test]
fn slow_streams_are_found_and_lowered() {
    let Some(folder) = examples("slow_streams_are_found_and_lowered") else {
        return;
    };
    let capture = capture("slow-stream", Preset::Web, 300);
    let path = capture.to_str().expect("a path of text");
    let program = folder.join("slow_stream");
    // Nothing is slow here, but what the machine does meanwhile may look so: only the totals are certain.
    let mut streams = records(&["streams", "-r", path, "--list", "--json"]);
    let count = streams.len();
    let totals = |lines: &[Vec<String>]| {
        let totals = lines.last().expect("totals").join(" ");
        assert!(
            totals.starts_with(&format!("{count} streams, ")),
            "{totals}"
        );
        assert!(totals.ends_with(" chunks, 0 packets dropped"), "{totals}");
    };
    totals(&lines(&program, &[path]));

    // Now the largest stream is searched two thousand times over.
    streams.sort_by_key(|record| record["bytes"].as_u64());
    let largest = streams.last().expect("streams");
    let found = scratch("slow-stream-largest");
    let out = found.to_str().expect("a path of text");
    let port = |side: &str| largest[format!("{side}_port")].to_string();
    let address = |side: &str| {
        largest[format!("{side}_ip")]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let filter = format!(
        "src host {} and src port {} and dst host {} and dst port {}",
        address("src"),
        port("src"),
        address("dst"),
        port("dst")
    );
    let outcome = flowgauge::run(["streams", "-r", path, "--out", out, "-q", &filter]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut file = fs::read_dir(&found).expect("a folder of streams");
    let file = file.next().expect("the stream").expect("the stream").path();
    let head = text(&fs::read(file).expect("the stream")[..400]);
    let (_, tag) = head.split_once("ETag: \"").expect("a tag in the response");
    let (tag, _) = tag.split_once('"').expect("a tag in quotes");
    let slow = lines(&program, &[path, tag]);
    totals(&slow);
    let line = [
        "slow:",
        &address("src"),
        &port("src"),
        &address("dst"),
        &port("dst"),
    ]
    .join(" ");
    let said: Vec<String> = slow.iter().map(|words| words.join(" ")).collect();
    assert!(said.contains(&line), "{line} is not in {said:?}");
}
