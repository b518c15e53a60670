//! Transactions against what others say of the same captures: DNS and RPC against tshark, where it
//! is installed, ICP against Squid's access log.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use crate::support::compare::{Exceptions, Tally};
use serde_json::Value;

/// What of the corpora is looked at: captures with one of these words in their paths.
const DNS_CAPTURES: [&str; 6] = ["dns", "llmnr", "nbns", "netbios", "packetq", "compactor"];
const RPC_CAPTURES: [&str; 7] = [
    "nfs3",
    "nfs4",
    "nfs_",
    "nfs-",
    "traces/nfs",
    "portmap",
    "mount",
];

/// The records of one protocol in a capture.
fn of_flowgauge(capture: &Path, protocol: &str) -> Vec<Value> {
    let folder = support::scratch(&format!("transactions-{protocol}-{}", name_of(capture)));
    let stack = folder.join("a.stack");
    let text = format!(
        "[stack] transactions {{ protocols = \"{protocol}\", checksums = ignore }} output {{ - }}"
    );
    std::fs::write(&stack, text).expect("it can be written");
    let arguments = ["stack", "run", "-q", "-f"].map(Path::new);
    let outcome = support::flowgauge::run(arguments.into_iter().chain([
        stack.as_path(),
        Path::new("-r"),
        capture,
    ]));
    let _ = std::fs::remove_dir_all(folder);
    // Some captures are damaged: what was read before counts.
    outcome.json_lines()
}

fn name_of(path: &Path) -> String {
    let text = path.display().to_string();
    text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

fn captures(corpora: &Path, words: &[&str]) -> Vec<PathBuf> {
    support::files_below(corpora, &|path| {
        let is_capture = path
            .extension()
            .is_some_and(|it| it == "pcap" || it == "pcapng" || it == "cap");
        let relative = path.strip_prefix(corpora).unwrap_or(path);
        let text = relative.display().to_string().to_lowercase();
        is_capture && words.iter().any(|word| text.contains(word))
    })
}

/// Frames that tshark finds, each with the values of fields.
fn of_tshark(capture: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(capture).args(["-Y", filter]);
    command.args(["-T", "fields", "-E", "aggregator=;", "-E", "occurrence=a"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let outcome = support::flowgauge::run_command(command);
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let row = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(row).collect()
}

/// Nanoseconds of tshark's seconds.
fn nanoseconds(text: &str) -> u64 {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction = format!("{fraction:0<9}");
    seconds.parse::<u64>().unwrap_or(0) * 1_000_000_000
        + fraction
            .get(..9)
            .and_then(|it| it.parse().ok())
            .unwrap_or(0)
}

/// When a record's reply was seen: its time, and where there is a request, the latency more.
fn replied(record: &Value) -> u64 {
    let time = record["time"].as_str().unwrap_or_default();
    let (rest, fraction) = time
        .trim_end_matches('Z')
        .split_once('.')
        .unwrap_or((time, "0"));
    let time = seconds_of(rest) * 1_000_000_000 + fraction.parse::<u64>().unwrap_or(0);
    let latency = record["latency"].as_f64().unwrap_or(0.0);
    time + (latency * 1e9).round() as u64
}

/// Seconds since 1970 of `2024-02-29T12:00:00`.
fn seconds_of(text: &str) -> u64 {
    let numbers: Vec<i64> = text
        .split(['-', 'T', ':'])
        .filter_map(|part| part.parse().ok())
        .collect();
    let &[year, month, day, hour, minute, second] = numbers.as_slice() else {
        return 0;
    };
    // Days from the civil calendar, years from March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).unwrap_or(0)
}

/// Replies by number, and how many requests of each.
#[derive(Default)]
struct Found {
    requests: BTreeMap<u64, u64>,
    replies: BTreeMap<u64, Vec<Value>>,
}

impl Found {
    fn of(records: Vec<Value>, number: &str) -> Found {
        let mut found = Found::default();
        for record in records {
            let id = record[number].as_u64().unwrap_or(0);
            if record["state"] != "no_request" {
                let repeats = record["repeats"].as_u64().unwrap_or(0);
                *found.requests.entry(id).or_default() += 1 + repeats;
            }
            if record["state"] != "no_reply" {
                found.replies.entry(id).or_default().push(record);
            }
        }
        found
    }

    fn take_request(&mut self, id: u64) -> bool {
        let count = self.requests.entry(id).or_default();
        let is_there = *count > 0;
        *count = count.saturating_sub(1);
        is_there
    }

    /// The reply with a number that was seen at a time; latencies are in JSON with nine decimals, read
    /// as floating point numbers.
    fn take_reply(&mut self, id: u64, time: u64) -> Option<Value> {
        let replies = self.replies.get_mut(&id)?;
        let place = replies
            .iter()
            .position(|record| replied(record).abs_diff(time) < 2)?;
        Some(replies.swap_remove(place))
    }
}

/// What a record says of a field where the other one says `theirs`; an empty one says nothing.
fn differs(record: &Value, field: &str, theirs: &str) -> Option<String> {
    if theirs.is_empty() {
        return None;
    }
    let ours = match &record[field] {
        Value::String(text) => text.to_lowercase(),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    };
    (ours != theirs.to_lowercase()).then(|| format!("{field}: {ours}, tshark {theirs}"))
}

fn yes_or_no(text: &str) -> &str {
    match text {
        "1" | "True" => "yes",
        "0" | "False" => "no",
        other => other,
    }
}

const DNS_FIELDS: [&str; 21] = [
    "frame.time_epoch",
    "dns.id",
    "dns.flags.response",
    "dns.qry.name",
    "dns.qry.type",
    "dns.flags.rcode",
    "dns.flags.authoritative",
    "dns.flags.truncated",
    "dns.flags.recdesired",
    "dns.flags.recavail",
    "dns.flags.checkdisable",
    "dns.count.answers",
    "dns.count.auth_rr",
    "dns.count.add_rr",
    "dns.resp.ttl",
    "dns.a",
    "dns.aaaa",
    "dns.response_to",
    "tcp.srcport",
    "udp.srcport",
    "udp.dstport",
];

const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

#[test]
fn dns_equals_tsharks() {
    let Some((corpora, exceptions)) = prepare("dns_equals_tsharks") else {
        return;
    };
    compare(
        &corpora,
        "DNS messages of tshark",
        &DNS_CAPTURES,
        |capture| dns(&corpora, capture, &exceptions),
    );
}

/// Compares all of these captures, and says what came of it.
fn compare(corpora: &Path, what: &str, among: &[&str], one: impl Fn(&Path) -> Tally + Sync) {
    let captures = captures(corpora, among);
    let mut tally = Tally::default();
    for part in support::in_parallel(&captures, 2, |it| one(it)) {
        tally.merge(part);
    }
    support::say(&tally.table(what));
    tally.assert_good(what);
}

fn prepare(test: &str) -> Option<(PathBuf, Exceptions)> {
    let corpora = support::corpora()?;
    if Command::new("tshark").arg("--version").output().is_err() {
        support::skip(test, "no tshark");
        return None;
    }
    Some((corpora, Exceptions::load("transaction_exceptions.tsv")))
}

fn case_of(corpora: &Path, capture: &Path) -> String {
    let relative = capture.strip_prefix(corpora).unwrap_or(capture);
    relative.display().to_string()
}

fn dns(corpora: &Path, capture: &Path, exceptions: &Exceptions) -> Tally {
    let mut tally = Tally::default();
    let filter = "(dns || mdns || llmnr) && !icmp && !icmpv6 && !tls && !http2";
    let frames = of_tshark(capture, filter, &DNS_FIELDS);
    if frames.is_empty() {
        return tally;
    }
    let mut found = Found::of(of_flowgauge(capture, "dns"), "trans_id");
    let case = case_of(corpora, capture);
    for frame in frames {
        let value = |name: &str| -> &str {
            let place = DNS_FIELDS.iter().position(|field| *field == name);
            place
                .and_then(|place| frame.get(place))
                .map_or("", String::as_str)
        };
        let ids: Vec<&str> = value("dns.id").split(';').collect();
        let &[id] = ids.as_slice() else {
            tally.exclude("several messages in a frame of tshark's", ids.len() as u64);
            continue;
        };
        let Ok(id) = u64::from_str_radix(id.trim_start_matches("0x"), 16) else {
            tally.exclude("tshark reads no header", 1);
            continue;
        };
        let record = format!("{id:#06x}");
        let mut verdict = |difference| tally.judge(exceptions, &case, &record, difference);
        if yes_or_no(value("dns.flags.response")) == "no" {
            let is_there = found.take_request(id);
            verdict((!is_there).then(|| "no such query".to_owned()));
            continue;
        }
        let Some(ours) = found.take_reply(id, nanoseconds(value("frame.time_epoch"))) else {
            verdict(Some("no such reply".to_owned()));
            continue;
        };
        verdict(dns_reply(&ours, &value));
    }
    tally
}

/// The first field of a reply in which both differ.
fn dns_reply<'a>(ours: &Value, value: &dyn Fn(&str) -> &'a str) -> Option<String> {
    let name = value("dns.qry.name").split(';').next().unwrap_or_default();
    // What cannot be printed, and dots within labels, tshark prints all the same.
    let is_plain = name.is_ascii() && !name.contains(['\\', ',']);
    let name = match name {
        "<Root>" => ".",
        _ if is_plain => name,
        _ => "",
    };
    let code = value("dns.flags.rcode").parse::<usize>().ok();
    let code = code.and_then(|code| RCODES.get(code)).copied();
    let list = |name: &str| -> Vec<String> {
        let parts = value(name).split(';').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    };
    let of_type = |kind: &str| -> Vec<String> {
        let types = ours["answer_types"].as_array().cloned().unwrap_or_default();
        let answers = ours["answers"].as_array().cloned().unwrap_or_default();
        let both = answers.iter().zip(&types);
        let wanted = both.filter(|(_, other)| *other == kind);
        wanted
            .filter_map(|(it, _)| it.as_str().map(str::to_owned))
            .collect()
    };
    // Those of the answers come first.
    let same = |ours: &[String], theirs: &[String]| theirs.starts_with(ours);
    let ttls: Vec<String> = match ours["ttls"].as_array() {
        Some(list) => list.iter().map(Value::to_string).collect(),
        None => Vec::new(),
    };
    let lists = [
        ("ttls", ttls, list("dns.resp.ttl")),
        ("addresses", of_type("A"), list("dns.a")),
        ("addresses", of_type("AAAA"), list("dns.aaaa")),
    ];
    let is_llmnr = ours["service"] == "llmnr";
    differs(ours, "query", name)
        .or_else(|| differs(ours, "rcode", code.unwrap_or_default()))
        .or_else(|| {
            let flags = [
                ("aa", "dns.flags.authoritative"),
                ("tc", "dns.flags.truncated"),
                ("ra", "dns.flags.recavail"),
            ];
            // LLMNR gives these bits other meanings.
            let flags = flags.iter().filter(|_| !is_llmnr);
            flags
                .clone()
                .find_map(|(ours_name, theirs)| differs(ours, ours_name, yes_or_no(value(theirs))))
        })
        .or_else(|| differs(ours, "answer_count", value("dns.count.answers")))
        .or_else(|| differs(ours, "authority_count", value("dns.count.auth_rr")))
        .or_else(|| differs(ours, "additional_count", value("dns.count.add_rr")))
        .or_else(|| {
            let wrong = lists.iter().find(|(_, ours, theirs)| !same(ours, theirs));
            wrong.map(|(name, ours, theirs)| format!("{name}: {ours:?}, tshark {theirs:?}"))
        })
        .or_else(|| {
            let is_matched = ours["state"] == "matched";
            let is_theirs = !value("dns.response_to").is_empty();
            // A query to a group has its reply in another flow: tshark does not look there.
            let is_group = ours["service"] == "mdns" || ours["service"] == "llmnr";
            (is_matched != is_theirs && !is_group)
                .then(|| format!("matched: {is_matched}, tshark {is_theirs}"))
        })
}

const RPC_FIELDS: [&str; 8] = [
    "frame.time_epoch",
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.program",
    "rpc.programversion",
    "rpc.procedure",
    "rpc.repframe",
    "rpc.state_accept",
];

#[test]
fn rpc_equals_tsharks() {
    let Some((corpora, exceptions)) = prepare("rpc_equals_tsharks") else {
        return;
    };
    compare(
        &corpora,
        "RPC messages of tshark",
        &RPC_CAPTURES,
        |capture| rpc(&corpora, capture, &exceptions),
    );
}

fn rpc(corpora: &Path, capture: &Path, exceptions: &Exceptions) -> Tally {
    let mut tally = Tally::default();
    let frames = of_tshark(capture, "rpc.xid && !icmp && !_ws.malformed", &RPC_FIELDS);
    if frames.is_empty() {
        return tally;
    }
    let mut found = Found::of(of_flowgauge(capture, "rpc"), "xid");
    let case = case_of(corpora, capture);
    for frame in frames {
        // Of numbers that stand twice in a frame the first is the header's.
        let value = |place: usize| {
            let text = frame.get(place).map_or("", String::as_str);
            text.split(';').next().unwrap_or_default()
        };
        if frame.get(1).is_some_and(|numbers| numbers.contains(';')) {
            tally.exclude("several messages in a frame of tshark's", 1);
            continue;
        }
        let Ok(id) = u64::from_str_radix(value(1).trim_start_matches("0x"), 16) else {
            tally.exclude("tshark reads no header", 1);
            continue;
        };
        let record = format!("{id:#010x}");
        let mut verdict = |difference| tally.judge(exceptions, &case, &record, difference);
        if value(2) == "0" {
            let is_there = found.take_request(id);
            verdict((!is_there).then(|| "no such call".to_owned()));
            continue;
        }
        let Some(ours) = found.take_reply(id, nanoseconds(value(0))) else {
            verdict(Some("no such reply".to_owned()));
            continue;
        };
        // tshark tells program and procedure of a reply where it knows the call.
        let name = match value(3) {
            "100000" => "portmapper",
            "100003" => "nfs",
            "100005" => "mount",
            "100021" => "nlm",
            "100024" => "status",
            "100227" => "nfs_acl",
            "100232" => "sadmind",
            "1073741824" => "nfs_callback",
            other => other,
        };
        let outcome = match value(7) {
            "0" => "success",
            "1" => "prog_unavail",
            "2" => "prog_mismatch",
            "3" => "proc_unavail",
            "4" => "garbage_args",
            _ => "",
        };
        verdict(
            differs(&ours, "program", name)
                .or_else(|| differs(&ours, "version", value(4)))
                .or_else(|| differs(&ours, "outcome", outcome)),
        );
    }
    tally
}

/// Each query in the log of the cache that was asked is a transaction, with its result and the bytes
/// of its reply.
#[test]
fn icp_equals_squids_log() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let mut compared = 0;
    let logs = support::files_below(&corpora.join("icp-squid"), &|path| {
        path.ends_with("parent-a.access.log")
    });
    for log in logs {
        let Some(folder) = log.parent() else { continue };
        let text = std::fs::read_to_string(&log).expect("it can be read");
        let mut records = of_flowgauge(&folder.join("icp.pcap"), "icp");
        for line in text.lines().filter(|line| line.contains("ICP_QUERY")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let &[time, _, client, result, bytes, _, url, ..] = words.as_slice() else {
                panic!("a line of Squid's: {line}");
            };
            let result = result
                .trim_start_matches("UDP_")
                .split('/')
                .next()
                .unwrap_or_default();
            let place = records.iter().position(|record| {
                let is_near = replied(record).abs_diff(nanoseconds(time)) < 50_000_000;
                record["url"] == url && record["src_ip"] == client && is_near
            });
            let place = place.unwrap_or_else(|| panic!("no transaction for {line}\n{records:?}"));
            let record = records.swap_remove(place);
            assert_eq!(record["state"], "matched", "{line}");
            assert_eq!(record["result"], result.to_lowercase(), "{line}");
            assert_eq!(record["reply_bytes"].to_string(), bytes, "{line}");
            compared += 1;
        }
        assert!(
            records.iter().all(|record| record["state"] == "no_reply"),
            "queries that are not in the log: {records:?}"
        );
    }
    assert!(compared > 0, "nothing was compared");
    support::say(&format!("\nSquid's log: {compared} queries are equal\n"));
}
