//! Flow counters against Zeek's `conn.log`: every baseline of the corpora whose command line shows
//! which capture it came from.
//!
//! The four counters (`orig_pkts`, `orig_ip_bytes`, `resp_pkts`, `resp_ip_bytes`) and the protocol
//! decide whether a record is equal. Duration, state, history and Community ID are compared and
//! reported beside them. What cannot be compared is said by [`run_reason`] and [`record_reason`].

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;
use support::compare::{Exceptions, Tally, pair};
use support::conn_log::{Log, Row};
use support::flows::{Conversation, Flow, Side, conversation};
use support::shell::{Origin, Run, Script};

const COUNTERS: [&str; 4] = ["orig_pkts", "orig_ip_bytes", "resp_pkts", "resp_ip_bytes"];
/// Zeek's inactivity timeouts, in our terms.
const IDLE_TIMEOUT: &str = "tcp=300,udp=60,other=60";

/// One baseline to compare with.
struct Case {
    /// Test and baseline.
    name: String,
    log: Log,
    run: Run,
    /// Settings of the test's scripts.
    settings: Vec<String>,
}

#[test]
fn counters_equal_zeeks() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("zeek_exceptions.tsv");
    let (cases, untraced) = cases(&corpora);
    let mut tally = Tally::default();
    for (reason, records) in untraced {
        tally.exclude(&reason, records);
    }
    for part in support::in_parallel(&cases, 2, |case| {
        compare_case(&corpora, case, &exceptions, None)
    }) {
        tally.merge(part);
    }
    support::say(&tally.table("Zeek conn.log"));
    tally.assert_good("Zeek conn.log");
}

/// The comparison is worth something only if it notices one wrong packet.
#[test]
fn a_changed_counter_is_noticed() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let exceptions = Exceptions::load("zeek_exceptions.tsv");
    let (cases, _) = cases(&corpora);
    let plain = |case: &&Case| {
        let tally = compare_case(&corpora, case, &exceptions, None);
        tally.unknown.is_empty() && tally.equal > 0
    };
    let Some(case) = cases
        .iter()
        .filter(|case| has_counters(&case.log))
        .find(plain)
    else {
        panic!("no case is equal: nothing to change");
    };
    for index in 0..2 {
        let change: &dyn Fn(&mut Flow) = &|flow| flow.sides[index].packets += 1;
        let tally = compare_case(&corpora, case, &exceptions, Some(change));
        assert!(
            !tally.unknown.is_empty(),
            "{}: a further packet went unnoticed",
            case.name
        );
        let change: &dyn Fn(&mut Flow) = &|flow| flow.sides[index].ip_bytes ^= 1;
        let tally = compare_case(&corpora, case, &exceptions, Some(change));
        assert!(
            !tally.unknown.is_empty(),
            "{}: a changed byte count went unnoticed",
            case.name
        );
    }
}

/// All baselines, and how many records of others cannot be compared, by reason.
fn cases(corpora: &Path) -> (Vec<Case>, BTreeMap<String, u64>) {
    let folder = corpora.join("zeek");
    let mut cases = Vec::new();
    let mut untraced = BTreeMap::new();
    let indexes = support::files_below(&folder, &|path| {
        path.parent() == Some(folder.as_path())
            && path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
    });
    for index in indexes {
        let text =
            std::fs::read_to_string(&index).unwrap_or_else(|error| panic!("{index:?}: {error}"));
        for line in text.lines().filter(|line| !line.is_empty()) {
            let test: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let script = Script::parse(strings(&test["exec"]).iter().map(String::as_str));
            let baselines: BTreeSet<String> = strings(&test["baseline"]).into_iter().collect();
            for baseline in baselines {
                let Some(file) = baseline.rsplit('/').next().filter(|name| is_conn_log(name))
                else {
                    continue;
                };
                let name = format!("{}/{file}", test["id"].as_str().unwrap_or(""));
                let Ok(bytes) = std::fs::read(folder.join(&baseline)) else {
                    continue;
                };
                let text = String::from_utf8_lossy(&bytes);
                let records = text.lines().filter(|line| !line.starts_with('#')).count() as u64;
                match read_case(&script, file, &text) {
                    Ok(None) => {}
                    Ok(Some((origin, log))) => cases.push(Case {
                        name,
                        log,
                        run: origin.run,
                        settings: settings(&test),
                    }),
                    Err(reason) => *untraced.entry(reason).or_default() += records,
                }
            }
        }
    }
    (cases, untraced)
}

fn is_conn_log(name: &str) -> bool {
    // `conn.log`, `conn-2.log`, `save.conn.log.cut`; not `mqtt_connect.log`.
    name.split_once("conn").is_some_and(|(before, after)| {
        (before.is_empty() || before.ends_with('.')) && after.starts_with(['.', '-', '1', '2', '3'])
    })
}

/// The run and the log behind a baseline; `None` when it states no counters at all.
fn read_case(script: &Script, file: &str, text: &str) -> Result<Option<(Origin, Log)>, String> {
    let origin = script
        .origin(file)
        .ok_or("the command lines do not show which run made the log")?;
    let log = match Log::parse(text, origin.columns.as_deref()) {
        Ok(log) => log,
        Err(_) if !text.contains("pkts") => return Ok(None),
        Err(_) => return Err("the log is not in Zeek's tab-separated form".to_owned()),
    };
    Ok(has_something(&log).then_some((origin, log)))
}

fn has_something(log: &Log) -> bool {
    log.columns
        .iter()
        .any(|name| COUNTERS.contains(&name.as_str()) || name == "history" || name == "conn_state")
}

fn has_counters(log: &Log) -> bool {
    COUNTERS
        .iter()
        .all(|name| log.columns.iter().any(|column| column == name))
}

fn settings(test: &Value) -> Vec<String> {
    let mut all = strings(&test["redef"]);
    all.extend(strings(&test["load"]));
    all
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Why no record of a run is comparable.
fn run_reason(case: &Case, corpora: &Path) -> Option<&'static str> {
    let mentions = |words: &[&str]| {
        case.settings
            .iter()
            .chain(&case.run.settings)
            .chain(&case.run.scripts)
            .any(|setting| words.iter().any(|word| setting.contains(word)))
    };
    if mentions(&["conn_key/", "ConnKey::", "conn_id_ctx"]) {
        return Some("setting: connections are told apart by VLAN too");
    }
    if mentions(&["ignore_checksums_nets"]) {
        return Some("setting: checksums are ignored for some networks only");
    }
    if mentions(&[
        "_inactivity_timeout",
        "tcp_attempt_delay",
        "tcp_close_delay",
        "likely_server_ports",
        "Zeek::Spicy",
    ]) {
        return Some("setting: timeouts or roles are changed, or the test ends connections itself");
    }
    if mentions(&["Tunnel::max_depth", "Tunnel::delay", "encap_hdr_size"]) {
        return Some("setting: tunnels are opened to another depth");
    }
    if mentions(&["PacketFilter", "PcapFilterID"]) {
        return Some("setting: the capture filter changes while Zeek runs");
    }
    if case.run.trace.is_empty() || !trace(corpora, &case.run).is_file() {
        return Some("the capture is not in the corpora");
    }
    None
}

/// Why one record is not comparable.
fn record_reason(
    case: &Case,
    row: &Row,
    partner: Option<&Flow>,
    flows: &[Flow],
) -> Option<&'static str> {
    let number = |name: &str| row.get(name).and_then(|value| value.parse::<u64>().ok());
    if number("orig_pkts") == Some(0) && number("resp_pkts") == Some(0) {
        return Some("Zeek counts no packet of it: all have bad checksums");
    }
    let uid = row.get("uid").map_or("", String::as_str);
    let is_parent = case.log.rows.iter().any(|other| {
        other
            .get("tunnel_parents")
            .is_some_and(|parents| parents.split(',').any(|parent| parent == uid))
    });
    if is_parent || is_outer(row, flows) {
        return Some("the connection is a tunnel: ours records the flows within it");
    }
    if is_in_unknown_tunnel(case, row) {
        return Some("within a tunnel that Zeek finds by content, on ports ours does not look at");
    }
    if partner.is_some_and(|flow| flow.fragments > 0) {
        return Some("fragments: Zeek counts the reassembled datagram, ours the frames");
    }
    None
}

/// Whether a tunnel around the row runs over UDP ports that are not assigned to tunnels.
fn is_in_unknown_tunnel(case: &Case, row: &Row) -> bool {
    let Some(parents) = row.get("tunnel_parents") else {
        return false;
    };
    let assigned = |port: Option<&String>| {
        port.is_some_and(|port| {
            ["4789", "8472", "4790", "6081", "2152", "3544", "5072"].contains(&port.as_str())
        })
    };
    case.log.rows.iter().any(|outer| {
        let is_parent = outer
            .get("uid")
            .is_some_and(|uid| parents.split(',').any(|parent| parent == uid));
        is_parent
            && outer.get("proto").is_some_and(|protocol| protocol == "udp")
            && !assigned(outer.get("id.orig_p"))
            && !assigned(outer.get("id.resp_p"))
    })
}

/// Whether one of our flows came through a tunnel between the row's addresses.
fn is_outer(row: &Row, flows: &[Flow]) -> bool {
    let (Some(a), Some(b)) = (address(row, "id.orig_h"), address(row, "id.resp_h")) else {
        return false;
    };
    flows.iter().any(|flow| {
        let outer = |names: [&str; 2]| {
            names
                .iter()
                .find_map(|name| flow.tunnel[name].as_str())
                .and_then(|text| text.parse::<IpAddr>().ok())
        };
        let source = outer(["outer_src_ip", "src_ip"]);
        let destination = outer(["outer_dst_ip", "dst_ip"]);
        let inner = [flow.source, flow.destination];
        // A tunnel within the same addresses cannot be told from its contents.
        ((source, destination) == (Some(a), Some(b)) || (source, destination) == (Some(b), Some(a)))
            && !(inner.contains(&a) && inner.contains(&b))
    })
}

fn compare_case(
    corpora: &Path,
    case: &Case,
    exceptions: &Exceptions,
    change: Option<&dyn Fn(&mut Flow)>,
) -> Tally {
    let mut tally = Tally::default();
    if let Some(reason) = run_reason(case, corpora) {
        tally.exclude(reason, case.log.rows.len() as u64);
        return tally;
    }
    let mut flows = flows(corpora, &case.run);
    if let Some(change) = change {
        flows.iter_mut().for_each(change);
    }
    // Rows and flows of one conversation go together; without addresses all do.
    let mut groups: BTreeMap<Option<Conversation>, (Vec<&Row>, Vec<&Flow>)> = BTreeMap::new();
    let keyed = case.log.rows.iter().all(|row| key(row, &flows).is_some());
    for row in &case.log.rows {
        let key = if keyed { key(row, &flows) } else { None };
        groups.entry(key).or_default().0.push(row);
    }
    for flow in &flows {
        let key = keyed.then(|| without_ports(flow.conversation()));
        groups.entry(key).or_default().1.push(flow);
    }
    for (rows, found) in groups.values() {
        let partners = pair(rows, found, |row, flow| score(row, flow));
        let same_sum = found.len() < rows.len() && sum_of_rows(rows) == sum_of_flows(found);
        for (row, partner) in rows.iter().zip(partners) {
            let partner = partner.map(|index| found[index]);
            compare_row(case, row, partner, same_sum, &flows, exceptions, &mut tally);
        }
    }
    tally
}

fn compare_row(
    case: &Case,
    row: &Row,
    partner: Option<&Flow>,
    same_sum: bool,
    flows: &[Flow],
    exceptions: &Exceptions,
    tally: &mut Tally,
) {
    if !COUNTERS.iter().any(|name| row.contains_key(*name)) {
        // A log cut to other columns has nothing that decides.
        if let Some(flow) = partner {
            compare_beside(row, flow, tally);
        }
        return;
    }
    if let Some(reason) = record_reason(case, row, partner, flows) {
        tally.exclude(reason, 1);
        return;
    }
    let label = label(row);
    let differences = match partner {
        Some(flow) => {
            compare_beside(row, flow, tally);
            counter_differences(row, flow)
        }
        None => vec!["no such flow".to_owned()],
    };
    if differences.is_empty() {
        tally.equal += 1;
        return;
    }
    if same_sum && is_one_sided(row) {
        let reason = "one-sided: Zeek forgets an unanswered attempt after 5 s; the packets add up";
        *tally.explained.entry(reason.to_owned()).or_default() += 1;
        return;
    }
    if let Some(reason) = exceptions.reason(&case.name, &label) {
        *tally.explained.entry(reason.to_owned()).or_default() += 1;
        return;
    }
    tally.unknown.push(format!(
        "{}\t{label}\t{} ({})",
        case.name,
        differences.join(", "),
        case.run.trace
    ));
}

fn is_one_sided(row: &Row) -> bool {
    ["orig_pkts", "resp_pkts"]
        .iter()
        .any(|name| row.get(*name).is_some_and(|count| count == "0"))
}

/// Packets and IP bytes of all rows together.
fn sum_of_rows(rows: &[&Row]) -> [u64; 2] {
    let sum = |names: [&str; 2]| -> u64 {
        let values = rows.iter().flat_map(|row| names.map(|name| row.get(name)));
        values
            .flatten()
            .filter_map(|value| value.parse::<u64>().ok())
            .sum()
    };
    [
        sum(["orig_pkts", "resp_pkts"]),
        sum(["orig_ip_bytes", "resp_ip_bytes"]),
    ]
}

fn sum_of_flows(flows: &[&Flow]) -> [u64; 2] {
    let sides = || flows.iter().flat_map(|flow| flow.sides);
    [
        sides().map(|side| side.packets).sum(),
        sides().map(|side| side.ip_bytes).sum(),
    ]
}

/// The deciding differences.
fn counter_differences(row: &Row, flow: &Flow) -> Vec<String> {
    let sides = oriented(row, flow);
    let found = differences(row, sides);
    if row.contains_key("id.orig_h") || found.is_empty() {
        return found;
    }
    // A log without addresses does not say which side ours is: either may fit.
    let reversed = differences(row, [sides[1], sides[0]]);
    if reversed.is_empty() { reversed } else { found }
}

fn differences(row: &Row, [source, destination]: [Side; 2]) -> Vec<String> {
    let ours = [
        source.packets,
        source.ip_bytes,
        destination.packets,
        destination.ip_bytes,
    ];
    COUNTERS
        .iter()
        .zip(ours)
        .filter_map(|(name, ours)| {
            let theirs: u64 = row.get(*name)?.parse().ok()?;
            (ours != theirs).then(|| format!("{name} {theirs} is {ours}"))
        })
        .collect()
}

/// Fields that are reported and do not decide.
fn compare_beside(row: &Row, flow: &Flow, tally: &mut Tally) {
    if let Some(duration) = row
        .get("duration")
        .and_then(|value| value.parse::<f64>().ok())
    {
        tally.field("duration", (duration - flow.duration).abs() < 2e-6);
    }
    for (name, ours) in [("conn_state", &flow.state), ("history", &flow.history)] {
        if let Some(theirs) = row.get(name) {
            tally.field(name, theirs == ours);
            if theirs != ours && std::env::var_os("FLOWGAUGE_SHOW_FIELDS").is_some() {
                support::say(&format!("{name} {theirs} is {ours}: {}\n", label(row)));
            }
        }
    }
    if let Some(id) = row.get("community_id") {
        tally.field("community_id", *id == flow.community_id);
    }
    if let Some(address) = address(row, "id.orig_h") {
        let same_port = row
            .get("id.orig_p")
            .is_none_or(|port| *port == flow.source_port.to_string());
        tally.field(
            "originator",
            address == flow.source && (same_port || is_icmp(flow)),
        );
    }
}

/// Our counters as Zeek's originator and responder.
fn oriented(row: &Row, flow: &Flow) -> [Side; 2] {
    let [source, destination] = flow.sides;
    let Some(originator) = address(row, "id.orig_h") else {
        return flow.sides;
    };
    let port = row
        .get("id.orig_p")
        .and_then(|port| port.parse::<u64>().ok());
    let same = originator == flow.source
        && (flow.source != flow.destination || port.is_none_or(|port| port == flow.source_port));
    if same {
        [source, destination]
    } else {
        [destination, source]
    }
}

fn score(row: &Row, flow: &Flow) -> i64 {
    let same =
        |name: &str, value: &str| i64::from(row.get(name).is_some_and(|theirs| theirs == value));
    let mut score = -10 * counter_differences(row, flow).len() as i64;
    score += 4 * same("history", &flow.history) + 2 * same("conn_state", &flow.state);
    if let Some(duration) = row
        .get("duration")
        .and_then(|value| value.parse::<f64>().ok())
    {
        score += i64::from((duration - flow.duration).abs() < 2e-6) * 4;
    }
    score
}

fn key(row: &Row, flows: &[Flow]) -> Option<Conversation> {
    let protocol = protocol(row, flows)?;
    let port = |name: &str| row.get(name).and_then(|value| value.parse::<u64>().ok());
    let source = (address(row, "id.orig_h")?, port("id.orig_p")?);
    let destination = (address(row, "id.resp_h")?, port("id.resp_p")?);
    Some(conversation(source, destination, &protocol))
}

/// The protocol as ours names it. A cut log may leave it out: then it is that of the flow with the
/// same endpoints.
fn protocol(row: &Row, flows: &[Flow]) -> Option<String> {
    if let Some(name) = row.get("proto") {
        return match name.as_str() {
            "tcp" | "udp" => Some(name.clone()),
            "icmp" => {
                let v6 = address(row, "id.orig_h")?.is_ipv6();
                let number = row.get("ip_proto").map_or("", String::as_str);
                Some(icmp_name(v6 || number == "58", flows))
            }
            _ => row
                .get("ip_proto")
                .cloned()
                .or_else(|| Some("unknown".to_owned())),
        };
    }
    let (a, b) = (address(row, "id.orig_h")?, address(row, "id.resp_h")?);
    let found = flows.iter().find(|flow| {
        (flow.source, flow.destination) == (a, b) || (flow.source, flow.destination) == (b, a)
    });
    Some(found.map_or_else(|| "tcp".to_owned(), |flow| flow.protocol.clone()))
}

/// Zeek knows ports of TCP and UDP (and of ICMP, as types) only.
fn without_ports((low, high, protocol): Conversation) -> Conversation {
    if matches!(protocol.as_str(), "tcp" | "udp") || protocol.starts_with("icmp") {
        return (low, high, protocol);
    }
    conversation((low.0, 0), (high.0, 0), &protocol)
}

fn icmp_name(v6: bool, flows: &[Flow]) -> String {
    let names = if v6 {
        ["icmp6", "58", "icmpv6", "icmp"]
    } else {
        ["icmp", "1", "icmp", "icmp"]
    };
    let used = names
        .iter()
        .find(|name| flows.iter().any(|flow| flow.protocol == **name));
    (*used.unwrap_or(&names[0])).to_owned()
}

fn is_icmp(flow: &Flow) -> bool {
    flow.protocol.starts_with("icmp") || flow.protocol == "58"
}

fn address(row: &Row, name: &str) -> Option<IpAddr> {
    row.get(name)?.parse().ok()
}

/// What names a record in the list of exceptions.
fn label(row: &Row) -> String {
    let part = |name: &str| row.get(name).map_or("-", String::as_str);
    format!(
        "{} {}:{} > {}:{} {}",
        part("proto"),
        part("id.orig_h"),
        part("id.orig_p"),
        part("id.resp_h"),
        part("id.resp_p"),
        part("duration")
    )
}

fn trace(corpora: &Path, run: &Run) -> std::path::PathBuf {
    corpora.join("zeek/Traces").join(&run.trace)
}

fn flows(corpora: &Path, run: &Run) -> Vec<Flow> {
    let checksums = if run.ignore_checksums {
        "ignore"
    } else {
        "verify"
    };
    let options = ["--checksums", checksums, "--idle-timeout", IDLE_TIMEOUT];
    let outcome = support::flowgauge::flows(&trace(corpora, run), &options, run.filter.as_deref());
    outcome.json_lines().iter().map(Flow::from_json).collect()
}
