//! Stream bytes, exactly: against the texts of PcapPlusPlus, the MD5 sums of tcpflow and the
//! SHA-256 sums of our own generator; and the same packets in several file formats.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support;
use crate::support::flows::Flow;
use md5::{Digest, Md5};
use serde_json::Value;

/// Presets and the scale at which they take a second or less.
const PRESETS: [(&str, &str); 8] = [
    ("mix", "0.004"),
    ("late", "0.004"),
    ("loss", "0.01"),
    ("web", "0.01"),
    ("small", "0.002"),
    ("syn", "0.002"),
    ("elephants", "0.01"),
    ("hostile", "0.02"),
];

// --- our generator ------------------------------------------------------------------------------

#[test]
fn every_preset_arrives_as_it_was_sent() {
    let folder = support::scratch("presets");
    let mut failures = Vec::new();
    for (preset, scale) in PRESETS {
        let capture = folder.join(format!("{preset}.pcap"));
        let path = capture.display().to_string();
        let made = support::flowgauge::run([
            "generate", "--preset", preset, "--scale", scale, "-q", "-w", &path,
        ]);
        assert_eq!(made.code, Some(0), "generate {preset}: {}", made.stderr);
        let truth = truth(&capture);
        failures.extend(compare_with_truth(preset, &capture, &truth));
    }
    assert!(
        failures.is_empty(),
        "{} streams differ:\n{}",
        failures.len(),
        failures[..failures.len().min(40)].join("\n")
    );
}

/// What the generator says it wrote.
fn truth(capture: &Path) -> Value {
    let name = capture.display();
    let text = [format!("{name}.truth.json"), format!("{name}.json")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_else(|| panic!("no truth beside {name}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("truth of {name}: {error}"))
}

/// One direction as both sides state it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Delivered {
    bytes: u64,
    missing_bytes: u64,
    sha256: String,
}

type Direction = (String, u64, String, u64);

fn compare_with_truth(preset: &str, capture: &Path, truth: &Value) -> Vec<String> {
    let outcome = support::flowgauge::run([
        "streams".as_ref(),
        "--list".as_ref(),
        "--hash".as_ref(),
        "--json".as_ref(),
        "-r".as_ref(),
        capture.as_os_str(),
    ]);
    assert_eq!(
        outcome.code,
        Some(0),
        "streams of {preset}: {}",
        outcome.stderr
    );
    let mut found: BTreeMap<Direction, Vec<Delivered>> = BTreeMap::new();
    for record in outcome.json_lines() {
        if record["proto"] == "tcp" {
            let delivered = Delivered {
                bytes: number(&record, "bytes"),
                missing_bytes: number(&record, "missing_bytes"),
                sha256: text(&record, "sha256"),
            };
            found.entry(direction(&record)).or_default().push(delivered);
        }
    }
    let mut expected: BTreeMap<Direction, Vec<Delivered>> = BTreeMap::new();
    let streams = truth["streams"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for record in streams.iter().filter(|record| record["proto"] == "tcp") {
        let missing_bytes = number(record, "missing_bytes");
        let delivered = Delivered {
            bytes: number(record, "bytes") - missing_bytes,
            missing_bytes,
            sha256: text(record, "captured_sha256"),
        };
        expected
            .entry(direction(record))
            .or_default()
            .push(delivered);
    }
    assert!(
        !expected.is_empty(),
        "{preset}: the truth names no TCP stream"
    );
    let mut failures = Vec::new();
    for (direction, mut want) in expected {
        let mut have = found.remove(&direction).unwrap_or_default();
        // A direction without a byte need not have a record.
        let says_something = |delivered: &Delivered| delivered.bytes + delivered.missing_bytes > 0;
        want.retain(says_something);
        have.retain(says_something);
        want.sort();
        have.sort();
        if want != have {
            failures.push(format!(
                "{preset} {direction:?}: expected {want:?}, delivered {have:?}"
            ));
        }
    }
    // Hostile traffic is not among the streams the truth lists.
    for (direction, have) in found {
        if preset != "hostile" && have.iter().any(|delivered| delivered.bytes > 0) {
            failures.push(format!(
                "{preset} {direction:?}: never sent, delivered {have:?}"
            ));
        }
    }
    failures
}

fn direction(record: &Value) -> Direction {
    (
        text(record, "src_ip"),
        number(record, "src_port"),
        text(record, "dst_ip"),
        number(record, "dst_port"),
    )
}

fn text(record: &Value, name: &str) -> String {
    record[name].as_str().unwrap_or("").to_owned()
}

fn number(record: &Value, name: &str) -> u64 {
    record[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name} in {record}"))
}

// --- tcpflow ------------------------------------------------------------------------------------

#[test]
fn files_have_tcpflows_names_and_md5_sums() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let folder = corpora.join("tcpflow");
    let mut checked = 0;
    for list in support::files_below(&folder, &|path| file_name(path).starts_with("expected_md5")) {
        let text =
            std::fs::read_to_string(&list).unwrap_or_else(|error| panic!("{list:?}: {error}"));
        let list: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{list:?}: {error}"));
        for (capture, flows) in list["expected"].as_object().into_iter().flatten() {
            let files = written(&folder.join(capture), &format!("tcpflow-{checked}"));
            for flow in flows.as_array().into_iter().flatten() {
                let name = text_of(flow, "flow");
                let bytes = files.get(&name).unwrap_or_else(|| {
                    panic!(
                        "{capture}: no file {name} among {:?}",
                        files.keys().collect::<Vec<_>>()
                    )
                });
                assert_eq!(
                    hex(&Md5::digest(bytes)),
                    text_of(flow, "md5"),
                    "{capture} {name}"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 0, "nothing was compared");
}

fn text_of(value: &Value, name: &str) -> String {
    text(value, name)
}

/// The files `streams --out` writes for a capture.
fn written(capture: &Path, scratch: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = support::scratch(scratch);
    let outcome = support::flowgauge::run([
        "streams".as_ref(),
        "--checksums".as_ref(),
        "ignore".as_ref(),
        "--json".as_ref(),
        "--out".as_ref(),
        folder.as_os_str(),
        "-r".as_ref(),
        capture.as_os_str(),
    ]);
    assert_eq!(
        outcome.code,
        Some(0),
        "{}: {}",
        capture.display(),
        outcome.stderr
    );
    support::files_below(&folder, &|_| true)
        .into_iter()
        .map(|path| (file_name(&path), std::fs::read(&path).unwrap_or_default()))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// --- PcapPlusPlus -------------------------------------------------------------------------------

#[test]
fn streams_equal_pcapplusplus_texts() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let cases = pcapplusplus_cases(&corpora.join("pcapplusplus"));
    assert!(!cases.is_empty(), "no case found");
    let mut failures = Vec::new();
    for (number, (capture, texts)) in cases.iter().enumerate() {
        let files = written(capture, &format!("pcapplusplus-{number}"));
        let mut connections = connections(&files);
        for path in texts {
            let expected = std::fs::read(path).unwrap_or_default();
            let (expected, missing) = without_gap_marks(&expected);
            // Which connection a text is about is not said: one of them must fit, once.
            let fits = connections.iter().position(|[a, b]| {
                is_interleaving(
                    &expected,
                    &without_holes(a, missing),
                    &without_holes(b, missing),
                )
            });
            match fits {
                Some(index) => {
                    connections.remove(index);
                }
                None => failures.push(format!(
                    "{} is not what {} holds",
                    file_name(path),
                    file_name(capture)
                )),
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Captures with the texts of their connections.
fn pcapplusplus_cases(folder: &Path) -> Vec<(PathBuf, Vec<PathBuf>)> {
    let examples = folder.join("Tests/Pcap++Test/PcapExamples");
    let texts = support::files_below(&examples, &|path| file_name(path).ends_with("_output.txt"));
    let mut cases: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for text in &texts {
        let name = file_name(text);
        let stem = name.trim_end_matches("_output.txt");
        let stem = stem.split("_conn_").next().unwrap_or(stem);
        let capture = examples.join(format!("{stem}.pcap"));
        if capture.is_file() {
            cases.entry(capture).or_default().push(text.clone());
        }
    }
    // The same packets with sequence numbers that wrap.
    let plain = examples.join("one_tcp_stream_output.txt");
    let wrapped = examples.join("one_tcp_stream_max_seq.pcap");
    if plain.is_file() && wrapped.is_file() {
        cases.entry(wrapped).or_default().push(plain);
    }
    for index in support::files_below(&folder.join("derived"), &|path| {
        file_name(path).starts_with("index")
    }) {
        let text = std::fs::read_to_string(&index).unwrap_or_default();
        let index: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{index:?}: {error}"));
        for case in index["cases"].as_array().into_iter().flatten() {
            let expected = examples.join(text_of(case, "expected"));
            let capture = folder.join("derived").join(text_of(case, "pcap"));
            if expected.is_file() && capture.is_file() {
                cases.entry(capture).or_default().push(expected);
            }
        }
    }
    cases.into_iter().collect()
}

/// Pairs the files of both directions, a missing one as empty.
fn connections(files: &BTreeMap<String, Vec<u8>>) -> Vec<[Vec<u8>; 2]> {
    let mut found = Vec::new();
    let mut done: Vec<String> = Vec::new();
    for (name, bytes) in files {
        if done.contains(name) {
            continue;
        }
        // A further connection between the same ports has a suffix, the same in both directions.
        let (pair, suffix) = name.split_at(name.find("--").unwrap_or(name.len()));
        let (pair, counter) = pair.split_at(pair.find('c').unwrap_or(pair.len()));
        let Some((a, b)) = pair.split_once('-') else {
            continue;
        };
        let opposite = format!("{b}-{a}{counter}{suffix}");
        done.push(opposite.clone());
        found.push([
            bytes.clone(),
            files.get(&opposite).cloned().unwrap_or_default(),
        ]);
    }
    found
}

/// Takes out the marks `[N bytes missing]`; says how many bytes they stand for.
fn without_gap_marks(text: &[u8]) -> (Vec<u8>, usize) {
    let mut kept = Vec::new();
    let mut missing = 0;
    let mut rest = text;
    while let Some(&first) = rest.first() {
        if let Some((count, length)) = gap_mark(rest) {
            missing += count;
            rest = &rest[length..];
        } else {
            kept.push(first);
            rest = &rest[1..];
        }
    }
    (kept, missing)
}

/// The count and the length of a mark at the beginning of `text`.
fn gap_mark(text: &[u8]) -> Option<(usize, usize)> {
    let inner = text.strip_prefix(b"[")?;
    let digits = inner
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let rest = inner[digits..].strip_prefix(b" bytes missing]")?;
    let count = std::str::from_utf8(&inner[..digits]).ok()?.parse().ok()?;
    Some((count, text.len() - rest.len()))
}

/// A file keeps holes as zeros, as tcpflow does: takes out runs of zeros when bytes are missing.
fn without_holes(bytes: &[u8], missing: usize) -> Vec<u8> {
    if missing == 0 {
        return bytes.to_vec();
    }
    bytes.iter().copied().filter(|byte| *byte != 0).collect()
}

/// Whether `whole` consists of `a` and `b`, each in its own order.
fn is_interleaving(whole: &[u8], a: &[u8], b: &[u8]) -> bool {
    if whole.len() != a.len() + b.len() {
        return false;
    }
    // How many bytes of `a` may have been used up to here.
    let mut used = vec![0_usize];
    for (index, byte) in whole.iter().enumerate() {
        let mut next = Vec::with_capacity(used.len() + 1);
        for &from_a in &used {
            if b.get(index - from_a) == Some(byte) && next.last() != Some(&from_a) {
                next.push(from_a);
            }
            if a.get(from_a) == Some(byte) {
                next.push(from_a + 1);
            }
        }
        next.dedup();
        used = next;
    }
    used.contains(&a.len())
}

#[test]
fn sides_equal_pcapplusplus_files() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let folder = corpora.join("pcapplusplus/Tests/ExamplesTest");
    let capture = folder.join("pcap_examples/tcp-reassembly.pcap");
    let files = written(&capture, "sides");
    let mut checked = 0;
    for path in support::files_below(&folder.join("expected_output/tcpreassembly_sides"), &|_| {
        true
    }) {
        let expected = std::fs::read(&path).unwrap_or_default();
        let name = file_name(&path);
        let Some((source, _)) = name.split_once('-') else {
            continue;
        };
        let Some(name) = tcpflow_name(source) else {
            continue;
        };
        let found = files
            .iter()
            .filter(|(file, _)| file.starts_with(&name))
            .map(|(_, bytes)| bytes);
        assert!(
            found.clone().any(|bytes| *bytes == expected),
            "{name}: {} files",
            found.count()
        );
        checked += 1;
    }
    assert!(checked > 0, "nothing was compared");
}

/// `172.16.133.54.64370` as tcpflow writes it.
fn tcpflow_name(endpoint: &str) -> Option<String> {
    let parts: Option<Vec<u32>> = endpoint.split('.').map(|part| part.parse().ok()).collect();
    match parts?.as_slice() {
        [a, b, c, d, port] => Some(format!("{a:03}.{b:03}.{c:03}.{d:03}.{port:05}")),
        _ => None,
    }
}

/// A request in fragments, in several orders, is the request.
#[test]
fn a_fragmented_request_arrives_whole() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let folder = corpora.join("pcapplusplus");
    let examples = folder.join("Tests/Pcap++Test/PcapExamples");
    let Ok(text) = std::fs::read_to_string(examples.join("frag_http_req_reassembled.txt")) else {
        support::skip(
            "streams_exact fragments",
            "no frag_http_req_reassembled.txt",
        );
        return;
    };
    let frame = from_hex(&text);
    let payload = tcp_payload(&frame).unwrap_or_else(|| panic!("no TCP in {} bytes", frame.len()));
    let mut captures = vec![examples.join("frag_http_req.pcap")];
    captures.extend(support::files_below(&folder.join("derived"), &|path| {
        file_name(path).starts_with("frag_http_req")
    }));
    for (number, capture) in captures.iter().enumerate() {
        let files = written(capture, &format!("fragments-{number}"));
        let found = files.values().any(|bytes| bytes.as_slice() == payload);
        assert!(
            found,
            "{}: {:?}",
            file_name(capture),
            files.keys().collect::<Vec<_>>()
        );
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks_exact(2)
        .filter_map(|pair| std::str::from_utf8(pair).ok())
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

/// The payload of an Ethernet, IPv4, TCP frame.
fn tcp_payload(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(14..)?;
    let length = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let tcp = ip.get(usize::from(ip.first()? & 15) * 4..length)?;
    tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)
}

// --- one capture in several formats ---------------------------------------------------------------

#[test]
fn the_same_packets_in_other_formats_are_the_same_flows() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let folder = corpora.join("libtrace/test/traces");
    let captures = support::files_below(&folder, &|path| {
        let name = file_name(path);
        name.starts_with("100_packets")
            && [".pcap", ".pcapng", ".erf", ".gz"]
                .iter()
                .any(|end| name.ends_with(end))
    });
    assert!(captures.len() >= 2, "{captures:?}");
    let reference = counters(&captures[0]);
    assert!(!reference.is_empty());
    for capture in &captures[1..] {
        assert_eq!(counters(capture), reference, "{}", file_name(capture));
    }
}

/// Everything about the flows but their times, and but their ports: in one of these files a line
/// feed was put for a carriage return within a port number.
fn counters(capture: &Path) -> Vec<String> {
    let outcome = support::flowgauge::flows(capture, &["--checksums", "ignore"], None);
    assert_eq!(
        outcome.code,
        Some(0),
        "{}: {}",
        capture.display(),
        outcome.stderr
    );
    let flows = outcome
        .json_lines()
        .iter()
        .map(Flow::from_json)
        .collect::<Vec<_>>();
    let mut lines: Vec<String> = flows
        .iter()
        .map(|flow| {
            format!(
                "{:?} {:?} {} {}",
                (flow.source, flow.destination, &flow.protocol),
                flow.sides,
                flow.state,
                flow.history
            )
        })
        .collect();
    lines.sort();
    lines
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[test]
fn knows_an_interleaving() {
    assert!(is_interleaving(b"aXbYc", b"abc", b"XY"));
    assert!(is_interleaving(b"aaab", b"ab", b"aa"));
    assert!(!is_interleaving(b"aXcYb", b"abc", b"XY"));
    assert!(!is_interleaving(b"aXb", b"ab", b"XY"));
}

#[test]
fn takes_out_gap_marks() {
    assert_eq!(
        without_gap_marks(b"ab[12 bytes missing]c[x]"),
        (b"abc[x]".to_vec(), 12)
    );
}
