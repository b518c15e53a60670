//! What suricata-verify's tests state of events of the types that `log --format eve` writes, against its lines for
//! the same captures. A check is how many events match all that it lists: more are wrong as well as fewer.
//!
//! Not applicable is only what a check itself or its test's options show ([`not_applicable`]), never our output.
//! Checks that do not hold are listed one by one in `tests/data/suricata_exceptions.tsv`, with the reason; one that
//! is listed and holds fails the test too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support;
use crate::support::compare::Exceptions;

/// Types of events that are written, and how many of the applicable checks must hold, %.
const TYPES: &[(&str, f64)] = &[
    ("anomaly", 45.0),
    ("dhcp", 100.0),
    ("dns", 91.0),
    ("fileinfo", 91.0),
    ("flow", 87.0),
    ("ftp", 85.0),
    ("ftp_data", 100.0),
    ("http", 83.0),
    ("llmnr", 100.0),
    ("ntp", 100.0),
    ("quic", 88.0),
    ("smtp", 86.0),
    ("snmp", 100.0),
    ("ssh", 100.0),
    ("stats", 61.0),
    ("tls", 81.0),
];

/// A test with checks that apply.
struct Test {
    name: String,
    capture: PathBuf,
    ignores_checksums: bool,
    /// Keeps all files.
    stores_files: bool,
    /// Seed of Community IDs.
    seed: Option<String>,
    /// By number in the test.
    checks: Vec<(usize, Value)>,
}

/// Why a check of a test with these options says nothing about a monitor that runs no rules and blocks nothing.
fn not_applicable(test: &Value, check: &Value) -> Option<&'static str> {
    let names = check["match"].as_object()?;
    let kind = names.get("event_type").and_then(Value::as_str)?;
    let options = test["args"].to_string();
    let text = check["match"].to_string();
    let requires = [&test["requires"], &check["requires"]];
    let versions = ["lt-version", "version"];
    let other_file = check["filename"]
        .as_str()
        .is_some_and(|it| it != "eve.json");
    let rules = [
        "metadata.",
        "traffic.",
        "\"flow.action",
        "\"flow.alerted\":true",
        "stats.ips",
        "stats.firewall",
        "stats.detect",
    ];
    let policies = ["exception_policy", "\"bypassed\""];
    Some(match () {
        () if (versions.iter()).any(|it| requires.iter().any(|of| !of[*it].is_null())) => {
            "of older versions"
        }
        () if other_file => "another file than eve.json",
        () if !test["command"].is_null() => "a command of its own",
        () if options.contains("--simulate") => "simulates blocking or a lack of memory",
        () if options.contains("-policy") => "about policies for what is not analysed",
        () if rules.iter().any(|it| text.contains(it)) => "about rules",
        () if policies.iter().any(|it| text.contains(it)) => {
            "about policies for what is not analysed"
        }
        () if kind == "dns" && is_version_2(test, names) => "version 2 of events of DNS",
        () => return None,
    })
}

/// Events of DNS as Suricata 7 has them.
fn is_version_2(test: &Value, names: &serde_json::Map<String, Value>) -> bool {
    let is_old = |name: &str| names.get(name).is_some();
    let kind = names.get("dns.type").and_then(Value::as_str);
    test["env"]["SURICATA_EVE_DNS_VERSION"] == 2
        || matches!(kind, Some("query" | "answer"))
        || is_old("dns.rrname")
        || is_old("dns.rrtype")
}

/// The value that a name such as `dns.answers[0].rrname` leads to.
fn find<'a>(event: &'a Value, name: &str) -> Option<&'a Value> {
    let mut value = event;
    for part in name.split('.') {
        if part.starts_with("__") {
            break;
        }
        let (member, index) = match part.strip_suffix(']').and_then(|it| it.rsplit_once('[')) {
            Some((member, index)) => (member, Some(index.parse::<usize>().ok()?)),
            None => (part, None),
        };
        value = value.get(member)?;
        if let Some(index) = index {
            value = value.get(index)?;
        }
    }
    Some(value)
}

fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        value => value.as_str().into_iter().collect(),
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a member of an event is as a check wants it.
fn is_as_wanted(event: &Value, name: &str, wanted: &Value) -> bool {
    let is_there = |name: &&str| find(event, name).is_some_and(|it| !it.is_null());
    match name {
        "has-key" => return names(wanted).iter().all(is_there),
        "not-has-key" => return !names(wanted).iter().any(is_there),
        _ => {}
    }
    let found = find(event, name).unwrap_or(&Value::Null);
    match name.rsplit('.').next().unwrap_or_default() {
        "__len" => {
            let length = match found {
                Value::String(text) => Some(text.chars().count()),
                Value::Array(list) => Some(list.len()),
                Value::Object(members) => Some(members.len()),
                _ => None,
            };
            length.is_some_and(|it| *wanted == it)
        }
        "__contains" | "__find" => match found {
            Value::Array(list) => list.contains(wanted),
            found => found.as_str().is_some_and(|it| it.contains(&text(wanted))),
        },
        "__startswith" => found
            .as_str()
            .is_some_and(|it| it.starts_with(&text(wanted))),
        "__endswith" => found.as_str().is_some_and(|it| it.ends_with(&text(wanted))),
        // 1 is "1" there.
        _ => found == wanted || !found.is_null() && text(found) == text(wanted),
    }
}

/// The number of the packet during which Suricata wrote an event, mostly one that acknowledges. The member is not
/// written, and not compared: how many checks have it is told.
const PACKET_NUMBER: &str = "pcap_cnt";

fn matches(event: &Value, check: &Value) -> bool {
    let wanted = check["match"].as_object().expect("an object").iter();
    let mut wanted = wanted.filter(|(name, _)| *name != PACKET_NUMBER);
    wanted.all(|(name, wanted)| is_as_wanted(event, name, wanted))
}

fn read(path: &Path) -> String {
    // Some have bytes that are not UTF-8 in comments.
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All tests with checks that apply; counts the others by reason.
fn tests(root: &Path, not_counted: &mut BTreeMap<&'static str, usize>) -> Vec<Test> {
    let index: Value = serde_json::from_str(&read(&root.join("index.shared.json"))).expect("JSON");
    let mut tests = Vec::new();
    for entry in index.as_array().expect("a list") {
        let name = entry["test"].as_str().expect("a name").to_owned();
        let folder = root.join(&name);
        let test: Value = serde_yaml_ng::from_str(&read(&folder.join("test.yaml")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut checks = Vec::new();
        let filters = test["checks"].as_array().into_iter().flatten().enumerate();
        for (number, check) in filters.filter_map(|(number, it)| Some((number, it.get("filter")?)))
        {
            let kind = check["match"]["event_type"].as_str().unwrap_or_default();
            if !TYPES.iter().any(|it| it.0 == kind) {
                continue;
            }
            let reason = match entry["pcap_present"] == true {
                true => not_applicable(&test, check),
                // Larger than what the collection holds.
                false => Some("the capture is absent"),
            };
            match reason {
                Some(reason) => *not_counted.entry(reason).or_default() += 1,
                None => checks.push((number, check.clone())),
            }
        }
        if checks.is_empty() {
            continue;
        }
        let capture = root.join(entry["pcap"].as_str().expect("a capture"));
        assert!(capture.is_file(), "{name}: no {}", capture.display());
        let configuration = folder.join("suricata.yaml");
        let settings = match configuration.is_file() {
            true => read(&configuration),
            false => String::new(),
        };
        let seed = settings.split_once("community-id-seed:");
        let seed = seed.and_then(|it| it.1.lines().next()).map(str::trim);
        tests.push(Test {
            ignores_checksums: test["args"].to_string().contains("-k none"),
            stores_files: settings.contains("force-filestore: yes"),
            seed: seed.filter(|it| *it != "0").map(str::to_owned),
            name,
            capture,
            checks,
        });
    }
    tests
}

/// The events of a capture.
fn events(test: &Test) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args([
        "log",
        "-q",
        "--format",
        "eve",
        "--flows",
        "--files",
        "--anomalies",
    ]);
    command.args([
        "--decode",
        "--digests",
        "md5,sha1,sha256",
        "--stats-interval",
        "1000000",
    ]);
    if test.ignores_checksums {
        command.args(["--checksums", "ignore"]);
    }
    if test.stores_files {
        command.arg("--extract-files").arg(folder.path());
    }
    if let Some(seed) = &test.seed {
        command.args(["--community-id-seed", seed]);
    }
    let output = command
        .arg("-r")
        .arg(&test.capture)
        .output()
        .expect("a run");
    // Some captures are damaged.
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {}",
        test.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("text");
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// What does not hold: number, type, what was found.
fn failures(test: &Test) -> Vec<(usize, String, String)> {
    let events = events(test);
    let mut failures = Vec::new();
    for (number, check) in &test.checks {
        let found = events.iter().filter(|it| matches(it, check)).count();
        if check["count"] != found {
            let kind = text(&check["match"]["event_type"]);
            let difference = format!("{found}, not {} with {}", check["count"], check["match"]);
            failures.push((*number, kind, difference));
        }
    }
    failures
}

#[test]
fn events_are_as_suricata_verify_states() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut not_counted = BTreeMap::new();
    let tests = tests(&corpora.join("suricata-verify"), &mut not_counted);
    let exceptions = Exceptions::load("suricata_exceptions.tsv");
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (_, check) in tests.iter().flat_map(|it| &it.checks) {
        let kind = check["match"]["event_type"].as_str().expect("a type");
        counts.entry(kind).or_default().0 += 1;
    }
    let mut unknown = Vec::new();
    for (name, found) in support::in_parallel(&tests, 4, |it| (it.name.clone(), failures(it))) {
        for (number, kind, difference) in found {
            let kind = TYPES.iter().find(|it| it.0 == kind).expect("a type").0;
            counts.entry(kind).or_default().1 += 1;
            if exceptions.reason(&name, &number.to_string()).is_none() {
                unknown.push(format!("{name}\t{number}\t{difference}"));
            }
        }
    }
    let mut table = String::from("\nevent      checks  hold\n");
    for (kind, (checks, failed)) in &counts {
        let hold = checks - failed;
        let share = 100.0 * hold as f64 / *checks as f64;
        // Into a string nothing fails.
        let _ = writeln!(table, "{kind:<10} {checks:>6} {hold:>5} {share:>5.1} %");
    }
    let checks = tests.iter().flat_map(|it| &it.checks);
    let numbered = checks.filter(|(_, it)| !it["match"][PACKET_NUMBER].is_null());
    let _ = writeln!(
        table,
        "{} of them name a packet's number, too: not compared",
        numbered.count()
    );
    for (reason, checks) in &not_counted {
        let _ = writeln!(table, "not applicable {checks:>4}  {reason}");
    }
    support::say(&table);
    unknown.sort();
    assert!(
        unknown.is_empty(),
        "without a reason:\n{}",
        unknown.join("\n")
    );
    exceptions.assert_used();
    for (kind, least) in TYPES {
        let (checks, failed) = counts.get(kind).copied().unwrap_or_default();
        let share = 100.0 * (checks - failed) as f64 / checks as f64;
        assert!(share >= *least, "{kind}: {share:.1} %");
    }
}

#[test]
fn a_check_counts_what_matches_it_and_nothing_else() {
    let event = serde_json::json!({
        "event_type": "dns", "dns": {"id": 7, "answers": [{"rdata": "a", "ttl": 0}], "flags": "8180", "x": null},
    });
    for (name, wanted, is_it) in [
        ("dns.id", serde_json::json!(7), true),
        ("dns.id", serde_json::json!("7"), true),
        ("dns.id", serde_json::json!(8), false),
        ("dns.answers[0].rdata", serde_json::json!("a"), true),
        ("dns.answers[1].rdata", serde_json::json!("a"), false),
        ("dns.answers.__len", serde_json::json!(1), true),
        ("dns.answers.__len", serde_json::json!(2), false),
        ("dns.flags.__find", serde_json::json!("18"), true),
        ("dns.flags.__startswith", serde_json::json!("18"), false),
        ("dns.flags.__endswith", serde_json::json!("80"), true),
        ("dns.x", serde_json::json!("null"), false),
        ("has-key", serde_json::json!("dns.flags"), true),
        ("has-key", serde_json::json!(["dns.flags", "dns.y"]), false),
        ("not-has-key", serde_json::json!(["dns.y", "dns.x"]), true),
        ("not-has-key", serde_json::json!("dns.id"), false),
    ] {
        assert_eq!(
            is_as_wanted(&event, name, &wanted),
            is_it,
            "{name}: {wanted}"
        );
    }
}
