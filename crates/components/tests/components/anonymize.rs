//! `anonymize` in stacks: the paper's figure 5, records of other kinds, packets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;

use crate::support::{Run, program};
use flowgauge_generate::{Config, Preset, generate};
use serde_json::Value;

/// What a stack in front of an `output` writes, as it is.
fn text_of(stack: &str, trace: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    Run::new(&format!("[stack] {stack} output {{ {} }}", path.display())).trace(trace);
    fs::read_to_string(&path).expect("it was written")
}

fn rows(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"));
    lines.collect()
}

fn trace(preset: Preset, scale: f64) -> Vec<u8> {
    let mut trace = Vec::new();
    generate(&Config::new(preset).scaled(scale), &mut trace).expect("memory");
    trace
}

/// The paper's figure 5, but for `output`, with and without what it is about.
const FIGURE: &str =
    "tcpscan - tcpcnxdemux < tcpdirdemux < tcpreseq - httpscan > anonymize - httpmatch >";
const PLAIN: &str = "tcpscan - tcpcnxdemux < tcpdirdemux < tcpreseq - httpscan > httpmatch >";

/// Texts of records that must not be found again.
fn secrets(rows: &[Value]) -> BTreeSet<String> {
    let names = ["src_ip", "dst_ip", "host", "uri", "user_agent", "referrer"];
    let values = rows
        .iter()
        .flat_map(|row| names.map(|name| row[name].as_str().unwrap_or_default().to_owned()));
    // What is shorter is in other words by accident.
    values.filter(|value| value.len() > 5).collect()
}

/// What a stack writes, and that none of these is in it. Names and targets are digests whatever the key; that
/// one of a key leaves a prefix as it is happens (one in 150 for 16 bits, docs/anonymization.md), so that addresses have
/// five keys in which to be different.
fn text_without(stack: &str, trace: &[u8], secrets: &BTreeSet<String>) -> String {
    let mut found = None;
    for _ in 0..5 {
        let text = text_of(stack, trace);
        found = secrets.iter().find(|it| text.contains(it.as_str()));
        match found {
            Some(secret) => assert!(secret.parse::<IpAddr>().is_ok(), "{secret}"),
            None => return text,
        }
    }
    panic!("{found:?} is there, whatever the key");
}

#[test]
fn figure_5_of_the_paper_runs_and_shows_nobody() {
    let trace = trace(Preset::Web, 0.005);
    let plain = rows(&text_of(PLAIN, &trace));
    assert!(plain.len() > 200);
    let secrets = secrets(&plain);
    assert!(secrets.len() > 100, "{}", secrets.len());
    let found = rows(&text_without(FIGURE, &trace, &secrets));
    assert_eq!(plain.len(), found.len());
    let mut hosts: BTreeMap<String, String> = BTreeMap::new();
    for (one, other) in plain.iter().zip(&found) {
        for name in [
            "time",
            "src_port",
            "dst_port",
            "proto",
            "depth",
            "method",
            "status",
            "request_body_bytes",
            "response_body_bytes",
            "content_type",
            "version",
            "latency",
            "handshake_rtt",
            "state",
            "whole",
            "close",
        ] {
            assert_eq!(one[name], other[name], "{name} of {one} and {other}");
        }
        let [one, other] =
            [one, other].map(|row| row["host"].as_str().unwrap_or_default().to_owned());
        assert_eq!(other.len(), 32, "{other}");
        assert_eq!(*hosts.entry(one).or_insert_with(|| other.clone()), other);
    }
    let different: BTreeSet<&String> = hosts.values().collect();
    assert_eq!(different.len(), hosts.len());
}

#[test]
fn records_of_any_kind_keep_what_counts_and_measures() {
    let trace = trace(Preset::Zoo, 0.02);
    let plain = rows(&text_of("flows", &trace));
    let found = rows(&text_without("flows anonymize", &trace, &secrets(&plain)));
    assert!(
        plain.len() > 10 && plain.len() == found.len(),
        "{}",
        plain.len()
    );
    for (one, other) in plain.iter().zip(&found) {
        for name in [
            "src_bytes",
            "dst_packets",
            "duration",
            "state",
            "history",
            "proto",
            "start",
            "end_reason",
        ] {
            assert_eq!(one[name], other[name], "{name}");
        }
        for name in ["community_id", "flow_id", "vlan"] {
            assert_eq!(other[name], Value::Null, "{name}");
        }
        assert_eq!(one["src_ip"].is_string(), other["src_ip"].is_string());
    }
}

#[test]
fn behind_it_packets_are_decoded_as_they_are_then() {
    let trace = trace(Preset::Zoo, 0.02);
    let of = |stack: &str| rows(&text_of(stack, &trace));
    let before: Vec<Value> = of("packets");
    let after = rows(&text_without(
        "anonymize packets",
        &trace,
        &secrets(&before),
    ));
    assert_eq!(before.len(), after.len());
    for (one, other) in before.iter().zip(&after) {
        assert_eq!(
            (&one["src_port"], &one["proto"]),
            (&other["src_port"], &other["proto"]),
            "{one} {other}"
        );
    }
    // MAPI's way: one field, and all else as it was.
    let after = of("anonymize { \"IP,TTL,PATTERN_FILL,INTEGER,77\" } packets");
    for (one, other) in before.iter().zip(&after) {
        assert_eq!(one["src_ip"], other["src_ip"]);
        if one["ttl"].is_u64() {
            assert_eq!(other["ttl"], 77, "{other}");
        }
    }
}

#[test]
fn mistakes_in_rules_are_placed_by_the_checker() {
    let wrong =
        |options: &str| program(&format!("[stack] anonymize {{ {options} }} count")).unwrap_err();
    assert!(wrong("\"IP,TTL,PREFIX_PRESERVING\"").contains("rule prefix-preserving"));
    assert!(wrong("\"IP,SRC_IP,BLUR\"").contains("no function"));
    assert!(wrong("\"HTTP,HOST,ZERO\"").contains("rule segments"));
    assert!(wrong("\"IP,TTL,ZERO\", policy = p.toml").contains("stand in the policy"));
    let chunks = program("[stack] tcpscan tcpcnxdemux < tcpreseq anonymize > count").unwrap_err();
    assert!(chunks.contains("chunk"), "{chunks}");
}
