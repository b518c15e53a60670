//! What suricata-verify states of reassembly and defragmentation: stream bytes under overlap
//! policies, holes, reassembled packets, anomalies of fragments. Its tests are data in the corpora:
//! a capture, and records that must appear.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support;
use crate::support::flowgauge::{Outcome, run};
use serde_json::Value;

/// Tests whose statement is not about reassembly as a passive observer does it, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "eve-overlap-payload-03-ips",
        "inline mode: Suricata rewrites the packets, so that the host sees one copy only",
    ),
    (
        "eve-payload-03-tcp-exact-overlap-ips",
        "inline mode: Suricata rewrites the packets, so that the host sees one copy only",
    ),
    (
        "tcp-urgp-02-drop-ips",
        "inline mode with a policy that takes the urgent byte out of the stream; ours is in band",
    ),
    (
        "eve-overlap-payload-02-policy-oldlinux",
        "both copies are in order: Suricata waits for an acknowledgement, the first is delivered here",
    ),
    (
        "eve-payload-02-tcp-exact-overlap-policy-oldlinux",
        "both copies are in order: Suricata waits for an acknowledgement, the first is delivered here",
    ),
    (
        "tcp-rst-unacked-stream-07-http",
        "a hole behind which nothing was acknowledged: Suricata counts none, we tell of every one",
    ),
    (
        "tcp-rst-unacked-stream-08-http-ips",
        "a hole behind which nothing was acknowledged: Suricata counts none, we tell of every one",
    ),
    (
        "tcp-rst-unacked-stream-03-gap",
        "a hole behind which nothing was acknowledged: Suricata counts none, we tell of every one",
    ),
    (
        "tcp-rst-unacked-stream-04-gap-ips",
        "a hole behind which nothing was acknowledged: Suricata counts none, we tell of every one",
    ),
    (
        "ipv6-evasion/ipv6-malformed-fragments-10",
        "states a fragment header that is of no use, which no flow or stream shows",
    ),
    (
        "ipv6-evasion/ipv6-malformed-fragments-25",
        "states a fragment header that is of no use, which no flow or stream shows",
    ),
    (
        "ipv6-evasion/ipv6-malformed-fragments-27",
        "states a fragment header that is of no use, which no flow or stream shows",
    ),
];

/// A record that must appear, as `name: value`.
type Record = BTreeMap<String, String>;

struct Test {
    name: String,
    folder: PathBuf,
    capture: PathBuf,
    records: Vec<Record>,
}

/// The tests whose captures are there.
fn tests(corpora: &Path) -> Vec<Test> {
    let root = corpora.join("suricata-verify");
    let index = std::fs::read(root.join("index.shared.json")).unwrap();
    let index: Value = serde_json::from_slice(&index).unwrap();
    let tests = index.as_array().unwrap().iter().filter_map(|test| {
        let name = test["test"].as_str()?;
        let folder = root.join(name);
        let text = std::fs::read_to_string(folder.join("test.yaml")).ok()?;
        let capture = root.join(test["pcap"].as_str()?);
        capture.is_file().then(|| Test {
            name: name.trim_start_matches("tests/").to_owned(),
            records: records(&text),
            folder,
            capture,
        })
    });
    tests
        .filter(|test| EXCEPTIONS.iter().all(|(name, _)| test.name != *name))
        .collect()
}

/// The records of a `test.yaml`: a list item begins each, its fields are lines of their own.
fn records(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("- filter:") {
            records.push(Record::new());
        }
        if let (Some(record), Some((name, value))) = (records.last_mut(), line.split_once(':')) {
            let value = value.trim().trim_matches(['"', '\'']);
            record.insert(name.trim().to_owned(), value.to_owned());
        }
    }
    records
}

impl Test {
    /// The policy of the test's configuration for the receiver in its captures, or for all hosts;
    /// BSD is Suricata's own.
    fn policy(&self) -> String {
        let configuration = std::fs::read_to_string(self.folder.join("suricata.yaml"));
        let configuration = configuration.unwrap_or_default();
        let of = |hosts: &str| {
            let mut lines = configuration.lines().map(str::trim);
            let line = lines.find(|line| line.ends_with(hosts))?;
            Some(line.split_once(':')?.0.to_owned())
        };
        let policy = of("[2.2.2.2]").or_else(|| of("[0.0.0.0/0]"));
        policy.unwrap_or_else(|| "bsd".to_owned())
    }

    fn run(&self, command: &str, options: &[&str]) -> Outcome {
        let capture = self.capture.to_str().unwrap();
        let policy = self.policy();
        let always = ["--checksums", "ignore", "--overlap-policy", &policy];
        let arguments = [&[command], options, &always, &["-r", capture]].concat();
        let outcome = run(&arguments);
        assert_eq!(outcome.code, Some(0), "{}: {}", self.name, outcome.stderr);
        outcome
    }

    /// Every direction with bytes as text, holes as Suricata marks them.
    fn streams(&self) -> Vec<String> {
        let folder = support::scratch(&format!("suricata-{}", self.name.replace('/', "-")));
        let out = [
            "--json",
            "--list",
            "--gaps",
            "--out",
            folder.to_str().unwrap(),
        ];
        let lines = self.run("streams", &out).json_lines();
        let holes = lines.iter().filter(|line| !line["offset"].is_null());
        let holes: Vec<(String, usize, usize)> = holes
            .map(|line| {
                let number = |name: &str| line[name].as_u64().unwrap() as usize;
                (sender(line), number("offset"), number("size"))
            })
            .collect();
        let files = support::files_below(&folder, &|_| true);
        assert!(!files.is_empty(), "{}", self.name);
        let texts = files.iter().map(|file| {
            let bytes = std::fs::read(file).unwrap();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            let mut at = 0;
            let mut rest = bytes.as_slice();
            for (_, offset, size) in holes.iter().filter(|(from, ..)| name.starts_with(from)) {
                // What is missing at the end is not told by Suricata.
                let (before, after) = rest.split_at((offset - at).min(rest.len()));
                text.push_str(&printable(before));
                if !after.is_empty() {
                    text.push_str(&format!("[{size} bytes missing]"));
                }
                (at, rest) = (offset + size, after);
            }
            text + &printable(rest)
        });
        texts.collect()
    }
}

/// The sender as it begins the name of a file.
fn sender(line: &Value) -> String {
    let address = line["src_ip"].as_str().unwrap();
    let port = line["src_port"].as_u64().unwrap();
    if address.contains(':') {
        return format!("{address}.{port:05}-");
    }
    let parts: Vec<String> = address
        .split('.')
        .map(|part| format!("{part:0>3}"))
        .collect();
    format!("{}.{port:05}-", parts.join("."))
}

fn printable(bytes: &[u8]) -> String {
    let shown = bytes.iter().map(|&byte| match byte {
        b' '..=b'~' => char::from(byte),
        _ => '.',
    });
    shown.collect()
}

/// RFC 4648.
fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("no base64: {other}"),
    };
    let digits: Vec<u8> = text
        .bytes()
        .filter(|&byte| byte != b'=')
        .map(digit)
        .collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let bits = group
            .iter()
            .fold(0u32, |bits, &digit| bits << 6 | u32::from(digit));
        let bits = bits << (6 * (4 - group.len()) + 8);
        bytes.extend_from_slice(&bits.to_be_bytes()[..group.len() - 1]);
    }
    bytes
}

/// Whether a record tells what the stream engine had, rather than a packet of its own.
fn is_of_stream(record: &Record) -> bool {
    let is = |name: &str, value: &str| record.get(name).is_some_and(|found| found == value);
    is("pkt_src", "stream (flow timeout)") || (is("stream", "1") && !record.contains_key("pkt_src"))
}

#[test]
fn stream_bytes_are_those_of_suricata_verify() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut compared = 0;
    for test in tests(&corpora) {
        let stated: Vec<&String> = test
            .records
            .iter()
            .filter(|record| is_of_stream(record))
            .filter_map(|record| record.get("payload_printable"))
            // A text that goes on in the next line is not read.
            .filter(|text| !text.ends_with('\\'))
            .collect();
        if stated.is_empty() {
            continue;
        }
        let streams = test.streams();
        for stated in stated {
            // Suricata looks at a stream piece by piece: what it states is a part.
            let found = streams
                .iter()
                .any(|stream| stream.contains(stated.as_str()));
            assert!(
                found,
                "{} ({}): {stated}\n{streams:#?}",
                test.name,
                test.policy()
            );
            compared += 1;
        }
    }
    support::say(&format!(
        "\nsuricata-verify: {compared} stream payloads are found\n"
    ));
    assert!(compared >= 9, "{compared}");
}

#[test]
fn holes_are_counted_as_by_suricata_verify() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut compared = 0;
    for test in tests(&corpora) {
        let stated = test
            .records
            .iter()
            .find_map(|record| record.get("stats.tcp.reassembly_gap"));
        let Some(stated) = stated.and_then(|count| count.parse::<u64>().ok()) else {
            continue;
        };
        let lines = test.run("streams", &["--json", "--list"]).json_lines();
        let gaps: u64 = lines.iter().filter_map(|line| line["gaps"].as_u64()).sum();
        assert_eq!(gaps, stated, "{}", test.name);
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn reassembled_packets_carry_what_suricata_verify_says() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut compared = 0;
    for test in tests(&corpora) {
        if !test.name.starts_with("defrag/") {
            continue;
        }
        let flows = test.run("flows", &["--json"]).json_lines();
        for packet in test
            .records
            .iter()
            .filter_map(|record| record.get("packet"))
        {
            let packet = from_base64(packet);
            // TCP from port 12345 to 8080 in all of them.
            let ports = packet
                .windows(4)
                .position(|bytes| bytes == [0x30, 0x39, 0x1f, 0x90]);
            let tcp = &packet[ports.unwrap()..];
            let length = usize::from(tcp[12] >> 4) * 4;
            let payload = tcp.get(length..).unwrap_or(&[]);
            let flow = &flows[0];
            assert_eq!(flows.len(), 1, "{}", test.name);
            assert_eq!(
                (&flow["src_port"], &flow["dst_port"]),
                (&12345.into(), &8080.into())
            );
            assert_eq!(flow["fragments"], 3, "{}", test.name);
            assert_eq!(flow["src_payload_bytes"], payload.len(), "{}", test.name);
            let flags = if tcp[13] & 2 == 0 { "A" } else { "S" };
            assert_eq!(flow["src_tcp_flags"], flags, "{}", test.name);
            if !payload.is_empty() {
                assert_eq!(test.streams(), [printable(payload)], "{}", test.name);
            }
            compared += 1;
        }
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn anomalies_of_fragments_are_noticed() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut compared = 0;
    for test in tests(&corpora) {
        if !test
            .name
            .starts_with("ipv6-evasion/ipv6-malformed-fragments")
        {
            continue;
        }
        let outcome = test.run("flows", &["--json", "--stats"]);
        for record in &test.records {
            let Some(signature) = record.get("alert.signature_id") else {
                continue;
            };
            let noticed = match signature.as_str() {
                // Fragments that overlap.
                "2200072" => !outcome.stderr.contains(", 0 overlaps"),
                // Too large a packet, a length that cannot be: refused.
                "2200071" | "2200119" => outcome.stderr.contains("(malformed "),
                _ => continue,
            };
            assert!(noticed, "{} {signature}: {}", test.name, outcome.stderr);
            compared += 1;
        }
    }
    assert!(compared >= 14, "{compared}");
}
