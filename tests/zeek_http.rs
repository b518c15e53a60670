//! HTTP transactions against Zeek's `http.log`: every baseline of the corpora whose command line shows
//! which capture it came from.

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;
use support::compare::{Exceptions, Tally, pair};
use support::conn_log::{Log, Row};
use support::flowgauge::run;
use support::shell::Script;

/// Columns of Zeek's that decide, and our fields.
const FIELDS: [(&str, &str); 12] = [
    ("id.orig_h", "src_ip"),
    ("id.resp_h", "dst_ip"),
    ("id.resp_p", "dst_port"),
    ("trans_depth", "depth"),
    ("method", "method"),
    ("host", "host"),
    ("uri", "uri"),
    ("referrer", "referrer"),
    ("user_agent", "user_agent"),
    ("version", "response_version"),
    ("status_code", "status"),
    ("response_body_len", "response_body_bytes"),
];

#[test]
fn transactions_equal_zeeks() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("zeek_exceptions.tsv");
    let tally = compare(&corpora, &exceptions, &|_| {});
    support::say(&tally.table("Zeek http.log"));
    tally.assert_good("Zeek http.log");
}

/// The comparison is worth something only if it notices one wrong status.
#[test]
fn a_changed_status_is_noticed() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("zeek_exceptions.tsv");
    let change: &dyn Fn(&mut Value) = &|row| row["status"] = 299.into();
    let tally = compare(&corpora, &exceptions, change);
    assert!(!tally.unknown.is_empty());
}

fn compare(corpora: &Path, exceptions: &Exceptions, change: &dyn Fn(&mut Value)) -> Tally {
    let folder = corpora.join("zeek");
    let index = std::fs::read_to_string(folder.join("index.shared.jsonl")).expect("an index");
    let mut tally = Tally::default();
    for line in index.lines().filter(|line| !line.is_empty()) {
        let test: Value = serde_json::from_str(line).expect("an object");
        let script = Script::parse(strings(&test["exec"]).iter().map(String::as_str));
        let baselines: BTreeSet<String> = strings(&test["baseline"]).into_iter().collect();
        for baseline in baselines {
            let file = baseline.rsplit('/').next().unwrap_or_default();
            if !(file.starts_with("http.log") || file.starts_with("http-")) {
                continue;
            }
            let Ok(bytes) = std::fs::read(folder.join(&baseline)) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            let Some(origin) = script.origin(file) else {
                continue;
            };
            let Ok(log) = Log::parse(&text, origin.columns.as_deref()) else {
                continue;
            };
            let trace = folder.join("Traces").join(&origin.run.trace);
            if !trace.is_file() || !log.columns.iter().any(|name| name == "uri") {
                continue;
            }
            let mut arguments: Vec<&OsStr> = Vec::new();
            let options = ["log", "-q", "--format", "json", "--protocols", "http"];
            arguments.extend(options.iter().map(OsStr::new));
            if origin.run.ignore_checksums {
                arguments.extend(["--checksums", "ignore"].map(OsStr::new));
            }
            arguments.extend([OsStr::new("-r"), trace.as_os_str()]);
            let mut ours = run(arguments).json_lines();
            ours.iter_mut().for_each(change);
            let name = format!("{}/{file}", test["id"].as_str().unwrap_or(""));
            if let Some(reason) = not_comparable(&name) {
                tally.exclude(reason, log.rows.len() as u64);
                continue;
            }
            one(&name, &log, &ours, exceptions, &mut tally);
        }
    }
    tally
}

/// Why a test says nothing about HTTP over TCP, or of packets that are not decoded.
fn not_comparable(name: &str) -> Option<&'static str> {
    const REASONS: [(&str, &str); 3] = [
        (
            "core.tunnels.teredo_bubble_with_payload/",
            "tunnels on unassigned ports (a gap of ours)",
        ),
        (
            "spicy.protocol-analyzer-data-in-from-tcp-to-udp/",
            "the test's script hands bytes of a UDP flow to the analyzer",
        ),
        (
            "scripts.base.protocols.websocket.wstunnel-http/",
            "HTTP within WebSocket, which ours does not look into",
        ),
    ];
    let known = REASONS.iter().find(|(test, _)| name.starts_with(test));
    known.map(|(_, reason)| *reason)
}

/// Compares the records of one log.
fn one(name: &str, log: &Log, ours: &[Value], exceptions: &Exceptions, tally: &mut Tally) {
    let has = |column: &str| log.columns.iter().any(|name| name == column);
    // A test of Zeek's that writes other addresses.
    let is_anonymized = name.starts_with("language.init-in-anon-function");
    let is_compared = |column: &str| has(column) && !(is_anonymized && column.starts_with("id."));
    let fields: Vec<&(&str, &str)> = FIELDS
        .iter()
        .filter(|(column, _)| is_compared(column))
        .collect();
    let equal = |row: &Row, our: &Value| -> Vec<&str> {
        let differ = fields
            .iter()
            .filter(|(theirs, mine)| !is_equal(row, our, theirs, mine));
        differ.map(|(theirs, _)| *theirs).collect()
    };
    let partners = pair(&log.rows, ours, |row, our| -(equal(row, our).len() as i64));
    for (number, (row, partner)) in log.rows.iter().zip(partners).enumerate() {
        let record = number.to_string();
        let differ = match partner.and_then(|at| ours.get(at)) {
            Some(our) => equal(row, our),
            None => vec!["no record"],
        };
        if differ.is_empty() {
            tally.equal += 1;
        } else if let Some(reason) = exceptions.reason(name, &record) {
            *tally.explained.entry(reason.to_owned()).or_default() += 1;
        } else {
            let uri = row.get("uri").map_or("-", String::as_str);
            tally
                .unknown
                .push(format!("{name} {record} {uri:.60}: {}", differ.join(", ")));
        }
    }
}

fn is_equal(row: &Row, our: &Value, theirs: &str, mine: &str) -> bool {
    let given = row.get(theirs).map(String::as_str);
    let found = match &our[mine] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    match theirs {
        // Zeek counts what is behind a content coding, and we the bytes that were sent.
        "response_body_len" if !our["content_encoding"].is_null() => true,
        // Of a response without a head Zeek writes 0.
        "status_code" if found.is_none() && our["response_version"] == "0.9" => given == Some("0"),
        // Zeek takes the percent signs out.
        "uri" => given.map(unescaped) == found.as_deref().map(unescaped),
        _ => given == found.as_deref(),
    }
}

/// `%2c` as a comma.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind
            .get(..2)
            .and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &behind[2..];
            }
            _ => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = items.iter().filter_map(|item| item.as_str());
    texts.map(str::to_owned).collect()
}
