//! `log --format eve` has Suricata's names: each member of each line is in the list of those that its published
//! schema has (`eve/fields.tsv`), with the same type, or in the list of additions below.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::command_support::{printed, run, stderr, stdout};
use crate::corpora::corpora;
use serde_json::Value;

/// What Suricata's schema of 7.0 has not, and why ours has it. A dot at the end: all below.
const ADDITIONS: &[(&str, &str, &str)] = &[
    (
        "dns.queries[].rrname",
        "string",
        "version 3 of DNS events, of Suricata 8, has a list of them",
    ),
    ("dns.queries[].rrtype", "string", "likewise"),
    ("dns.tc", "boolean", "Suricata 8 has it"),
    ("dns.opcode", "integer", "Suricata 8 has it"),
    (
        "dns.answers[].",
        "",
        "records of types that Suricata 8 takes apart: soa, sshfp",
    ),
    ("dns.authorities[].", "", "likewise, and srv"),
    ("dns.additionals[].", "", "Suricata 8 has them"),
    (
        "dns.grouped.",
        "",
        "types that Suricata 8 has beside those of 7",
    ),
    ("mdns.", "", "Suricata 8 has events of multicast DNS"),
    ("llmnr.", "", "Suricata 9 has events of LLMNR"),
    (
        "nbns.",
        "",
        "Suricata has no events of NetBIOS' names: members as those of DNS",
    ),
    (
        "tls.subjectaltname[]",
        "string",
        "Suricata has it among the fields that can be added",
    ),
    ("ip_v", "integer", "Suricata 8 has it"),
    (
        "email.message_id",
        "string",
        "Suricata has it among the fields that can be added",
    ),
    ("tls.ja4", "string", "Suricata 8 has it"),
    ("quic.ja4", "string", "Suricata 8 has it"),
    ("tls.client_alpns[]", "string", "Suricata 8 has it"),
    ("tls.server_alpns[]", "string", "Suricata 8 has it"),
    (
        "fileinfo.file_name_stored",
        "string",
        "the name of the file in the folder of --extract-files; there it is the digest",
    ),
    (
        "icp.",
        "",
        "Suricata has no events of ICP: the record's fields",
    ),
    ("ntp.", "", "Suricata 9 has events of NTP"),
    (
        "dhcp.requested_ip",
        "string",
        "Suricata has it in its extended events",
    ),
    (
        "dhcp.vendor_class_identifier",
        "string",
        "Suricata 8 has it",
    ),
    (
        "http.request_headers[].",
        "",
        "Suricata has them in events of HTTP/2",
    ),
    ("http.response_headers[].", "", "likewise"),
    (
        "dhcpv6.",
        "",
        "Suricata has no events of DHCP for IPv6, likewise",
    ),
];

fn fields() -> BTreeMap<String, String> {
    let text = include_str!("eve/fields.tsv");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once('\t').expect(line));
    pairs
        .map(|(path, kind)| (path.to_owned(), kind.to_owned()))
        .collect()
}

/// Paths of all that is no object or list in a value, and the type of each.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<(String, &'static str)>) {
    let kind = match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if at.is_empty() { "" } else { "." };
                paths(value, &format!("{at}{dot}{name}"), found);
            }
            return;
        }
        Value::Array(list) => {
            for value in list {
                paths(value, &format!("{at}[]"), found);
            }
            return;
        }
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
    };
    found.insert((at.to_owned(), kind));
}

/// Adds what the lines of a capture have.
fn add(capture: &Path, found: &mut BTreeSet<(String, &'static str)>) -> usize {
    let name = capture.to_str().expect("text");
    let options = [
        "log",
        "-q",
        "--format",
        "eve",
        "--flows",
        "--files",
        "--digests",
        "md5",
        "--anomalies",
        "--stats-interval",
        "10",
        "-r",
        name,
    ];
    let output = run(&options);
    // Some captures are damaged.
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{name}: {}",
        stderr(&output)
    );
    let text = stdout(&output);
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect(line);
        for name in ["timestamp", "event_type"] {
            assert!(line[name].is_string(), "{name}: {line}");
        }
        assert!(line["event_type"] != "", "{line}");
        paths(&line, "", found);
    }
    text.lines().count()
}

fn check(found: &BTreeSet<(String, &'static str)>) {
    let known = fields();
    let is_known = |(path, kind): &&(String, &str)| {
        (known.get(path)).is_some_and(|of| of == kind || of == "number" && *kind == "integer")
            || ADDITIONS
                .iter()
                .any(|(addition, of, _)| match addition.ends_with('.') {
                    true => path.starts_with(addition),
                    false => path == addition && kind == of,
                })
    };
    let unknown: Vec<_> = found.iter().filter(|it| !is_known(it)).collect();
    assert!(
        unknown.is_empty(),
        "neither Suricata's nor listed: {unknown:?}"
    );
}

#[test]
fn members_of_generated_traces_are_suricatas() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut found = BTreeSet::new();
    for (preset, scale) in [
        ("web", "0.002"),
        ("mix", "0.002"),
        ("small", "0.001"),
        ("loss", "0.002"),
    ] {
        let path = folder.path().join(preset);
        let name = path.to_str().expect("text");
        let options = [
            "generate",
            preset,
            "--scale",
            scale,
            "--missing",
            "0.02",
            "-q",
            "-w",
            name,
        ];
        printed(&options);
        assert!(add(&path, &mut found) > 0, "{preset}");
    }
    check(&found);
    for name in [
        "http.hostname",
        "flow.bytes_toserver",
        "stats.decoder.pkts",
        "anomaly.event",
        "fileinfo.md5",
    ] {
        assert!(found.iter().any(|(path, _)| path == name), "{name}");
    }
}

#[test]
fn events_are_joined_by_community_ids_and_exchanges_are_two_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mix");
    let name = path.to_str().expect("text");
    printed(&["generate", "mix", "--scale", "0.002", "-q", "-w", name]);
    let text = printed(&["log", "-q", "--format", "eve", "--flows", "-r", name]);
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let mut ids: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for event in &events {
        let flow = event["flow_id"].as_u64().expect("a number");
        let id = event["community_id"].as_str().expect("text");
        ids.entry(flow).or_default().insert(id);
    }
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    let of = |kind: &'static str| events.iter().filter(move |it| it["event_type"] == kind);
    for (kind, side) in [("request", "dest_port"), ("response", "src_port")] {
        let mut those = of("dns").filter(|it| it["dns"]["type"] == kind).peekable();
        assert!(those.peek().is_some(), "{kind}");
        assert!(those.all(|it| it[side] == 53), "{kind}");
    }
    let replies = of("dns").filter(|it| it["dns"]["grouped"]["A"].is_array());
    for reply in replies {
        let first = &reply["dns"]["answers"][0];
        assert_eq!(first["rrname"], reply["dns"]["queries"][0]["rrname"]);
        assert_eq!(reply["dns"]["flags"], "8180");
    }
    let flows = |proto: &'static str| of("flow").filter(move |it| it["proto"] == proto);
    assert!(flows("UDP").count() > 0 && flows("TCP").count() > 0);
    for flow in flows("UDP") {
        let is_answered = flow["flow"]["pkts_toclient"] != 0;
        let state = if is_answered { "established" } else { "new" };
        assert_eq!(flow["flow"]["state"], state, "{flow}");
        assert!(flow.get("tcp").is_none(), "{flow}");
    }
    for flow in flows("TCP") {
        let flags = ["tcp_flags", "tcp_flags_ts", "tcp_flags_tc"].map(|name| {
            let text = flow["tcp"][name].as_str().expect("text");
            u8::from_str_radix(text, 16).expect("digits")
        });
        assert_eq!(flags[0], flags[1] | flags[2], "{flow}");
        assert_eq!(flow["tcp"]["syn"] == true, flags[0] & 2 != 0, "{flow}");
        let is_reset = flags[0] & 4 != 0;
        assert!(!is_reset || flow["tcp"]["state"] == "closed", "{flow}");
    }
}

#[test]
fn members_of_the_corpora_are_suricatas() {
    let Some(root) = corpora() else {
        return;
    };
    let mut captures: Vec<PathBuf> = Vec::new();
    for folder in ["suricata-verify", "zeek/Traces", "packetbeat", "icp-squid"] {
        let most = if folder == "icp-squid" {
            4 << 20
        } else {
            200 << 10
        };
        collect(&root.join(folder), most, &mut captures);
    }
    captures.sort();
    let (mut found, mut lines) = (BTreeSet::new(), 0);
    for capture in &captures {
        lines += add(capture, &mut found);
    }
    println!(
        "{} captures, {lines} lines, {} members",
        captures.len(),
        found.len()
    );
    assert!(lines > 10_000, "{lines}");
    check(&found);
    // Each of the protocols that have events was there.
    let objects = [
        "http", "dns", "tls", "quic", "ssh", "smtp", "ftp", "ftp_data", "dhcp", "snmp", "rpc",
    ];
    for object in objects.into_iter().chain([
        "anomaly", "stats", "flow", "fileinfo", "icp", "ntp", "dhcpv6",
    ]) {
        assert!(
            found
                .iter()
                .any(|(path, _)| path.starts_with(&format!("{object}."))),
            "{object}"
        );
    }
}

/// Captures of up to so many bytes in a folder and those in it.
fn collect(folder: &Path, most: u64, captures: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let about = entry.metadata().expect("known");
        let ending = path.extension().and_then(|ending| ending.to_str());
        if about.is_dir() {
            collect(&path, most, captures);
        } else if matches!(ending, Some("pcap" | "pcapng" | "trace" | "cap")) && about.len() <= most
        {
            captures.push(path);
        }
    }
}
