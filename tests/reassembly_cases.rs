//! The corpus of reassembly cases (`tests/cases/reassembly`), as a user runs it: every case over
//! IPv4 and IPv6 and with sequence numbers that wrap, in every mode, with every overlap policy, chunk size,
//! number of workers and kind of source.

mod support;

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};
use support::cases::{self, Case, Variant};

const POLICIES: [&str; 14] = [
    "first",
    "last",
    "bsd",
    "bsd-right",
    "linux",
    "old-linux",
    "windows",
    "windows2003",
    "vista",
    "solaris",
    "hpux10",
    "hpux11",
    "irix",
    "macos",
];

/// Cases are this far apart, more than any time that a hole may stay.
const APART: u64 = 120_000_000_000;

/// A direction's bytes as a record states them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Delivered {
    sha256: String,
    bytes: u64,
    holes: Vec<(u64, u64)>,
}

impl Delivered {
    fn of(expected: &str) -> Delivered {
        let (bytes, holes) = cases::parse_expected(expected);
        Delivered {
            sha256: hex(&Sha256::digest(&bytes)),
            bytes: bytes.len() as u64,
            holes,
        }
    }
}

/// Each case in each variant, with the number that is in its addresses.
struct Corpus {
    cases: Vec<Case>,
    instances: Vec<(usize, Variant)>,
    capture: Vec<u8>,
}

fn corpus() -> Corpus {
    let cases = cases::load(&support::root().join("tests/cases/reassembly"));
    assert!(cases.len() >= 40, "only {} cases found", cases.len());
    let mut instances = Vec::new();
    let mut frames = Vec::new();
    let mut start = 1_700_000_000_000_000_000;
    for (index, case) in cases.iter().enumerate() {
        for (ipv6, client_isn, server_isn) in [
            (false, 1000, 5000),
            (true, 1000, 5000),
            (false, u32::MAX - 3, u32::MAX - 1),
            (true, u32::MAX - 1, 0x7fff_fffe),
        ] {
            let number = instances.len() as u16;
            let variant = Variant {
                ipv6,
                client_isn,
                server_isn,
                number,
            };
            frames.extend(case.frames(variant, start));
            start = frames
                .last()
                .map_or(start, |frame: &cases::Frame| frame.nanos)
                + APART;
            instances.push((index, variant));
        }
    }
    Corpus {
        cases,
        instances,
        capture: cases::pcap(&frames),
    }
}

/// Runs `streams` with `options` over the corpus and says where it differs from the expectations.
fn differences(
    corpus: &Corpus,
    capture: &str,
    mode: &str,
    policy: &str,
    options: &[&str],
) -> Vec<String> {
    let mut arguments = vec![
        "streams", "-q", "-r", capture, "--list", "--hash", "--gaps", "--json",
    ];
    arguments.extend(["--overlap-policy", policy]);
    arguments.extend(options);
    let ran = support::flowgauge::run(&arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    let mut found: BTreeMap<(u16, bool), Delivered> = BTreeMap::new();
    for line in String::from_utf8_lossy(&ran.stdout).lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let (number, from_client) = whose(&record);
        let entry = found
            .entry((number, from_client))
            .or_insert_with(|| Delivered {
                sha256: String::new(),
                bytes: 0,
                holes: Vec::new(),
            });
        match (record["offset"].as_u64(), record["size"].as_u64()) {
            (Some(offset), Some(size)) => entry.holes.push((offset, size)),
            _ => {
                // Where a port is used again the expectation is about the last connection.
                entry.sha256 = record["sha256"].as_str().unwrap_or_default().to_owned();
                entry.bytes = record["bytes"].as_u64().unwrap_or(0);
            }
        }
    }
    let nothing = Delivered::of("");
    let mut differ = Vec::new();
    for &(index, variant) in &corpus.instances {
        let case = &corpus.cases[index];
        let (client, server) = case.expected(mode, policy);
        for (from_client, expected) in [(true, client), (false, server)] {
            let got = found
                .get(&(variant.number, from_client))
                .unwrap_or(&nothing);
            let wanted = Delivered::of(expected);
            if *got != wanted {
                let side = if from_client { "client" } else { "server" };
                differ.push(format!(
                    "{} ({mode}, {policy}, {options:?}, ipv6 {}, isn {}) {side}: expected {expected:?} = {wanted:?}, got {got:?}",
                    case.name, variant.ipv6, variant.client_isn
                ));
            }
        }
    }
    differ
}

/// The instance's number, and whether the client sent.
fn whose(record: &Value) -> (u16, bool) {
    let text = record["src_ip"].as_str().unwrap_or_default();
    let address: std::net::IpAddr = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
    let octets = match address {
        std::net::IpAddr::V4(address) => address.octets(),
        std::net::IpAddr::V6(address) => {
            let all = address.octets();
            [all[12], all[13], all[14], all[15]]
        }
    };
    (u16::from_be_bytes([octets[1], octets[2]]), octets[3] == 1)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn fail_if_any(differ: &[String]) {
    assert!(
        differ.is_empty(),
        "{} differences:\n{}",
        differ.len(),
        differ[..differ.len().min(30)].join("\n")
    );
}

#[test]
fn every_case_with_every_policy() {
    let corpus = corpus();
    let folder = support::scratch("reassembly_cases");
    let path = folder.join("cases.pcap");
    std::fs::write(&path, &corpus.capture).expect("the capture can be written");
    let capture = path.display().to_string();
    let differ: Vec<String> = POLICIES
        .iter()
        .flat_map(|policy| differences(&corpus, &capture, "wait", policy, &[]))
        .collect();
    fail_if_any(&differ);
    support::say(&format!(
        "{} cases, {} instances, {} policies\n",
        corpus.cases.len(),
        corpus.instances.len(),
        POLICIES.len()
    ));
}
