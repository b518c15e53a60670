//! Flow records against the `conn.log` baselines of Zeek's tests.
//!
//! This is the flow table's own look at them, on classic pcap files without fragments; the whole
//! program is held against all of them elsewhere. What differs is printed: run with `--nocapture`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::corpora::corpora;
use crate::support::{OwnedFlow, flows_of};
use flowgauge_flow::FlowConfig;
use serde_json::Value;

type Row = BTreeMap<String, String>;

/// Tests whose settings or scripts change what `conn.log` says.
const NOT_COMPARABLE: &[(&str, &str)] = &[
    (
        "core/pcap/dynamic-filter.zeek",
        "the test's script filters packets",
    ),
    (
        "core/vntag-in-vlan.zeek",
        "the record there has no packets at all",
    ),
    (
        "scripts/base/protocols/ssh/half-duplex-client.zeek",
        "Zeek ends a SYN unanswered for 5 s, though its sender goes on with data",
    ),
];

/// Logs of tests that run Zeek several times: log, capture, whether checksums are verified.
const FURTHER: &[(&str, &str, bool)] = &[
    (
        "core.tcp.rxmit-history/conn-1.log",
        "tcp/retransmit-fast009.pcap",
        false,
    ),
    ("core.tcp.rxmit-history/conn-2.log", "wikipedia.pcap", false),
    (
        "core.checksums_ignore_nets/conn-failed.log",
        "chksums/localhost-bad-chksum.pcap",
        true,
    ),
    (
        "scripts.policy.protocols.conn.mac-logging/conn1.log",
        "wikipedia.pcap",
        false,
    ),
    (
        "scripts.policy.protocols.conn.mac-logging/conn2.log",
        "radiotap.pcap",
        false,
    ),
    (
        "scripts.policy.protocols.conn.mac-logging/conn3.log",
        "llc.pcap",
        false,
    ),
    (
        "scripts.base.protocols.modbus.events/conn-second.log",
        "modbus/modbus-eit.pcap",
        true,
    ),
    (
        "scripts.policy.protocols.conn.speculative-service/conn-post-large.log",
        "http/http-post-large.pcap",
        false,
    ),
];

#[test]
fn conn_logs() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("zeek");
    let index = fs::read_to_string(root.join("index.shared.jsonl")).unwrap();
    let mut score = Score::default();
    for line in index.lines() {
        let test: Value = serde_json::from_str(line).unwrap();
        compare(&root, &test, &mut score);
    }
    for &(log, trace, verify) in FURTHER {
        let rows = read_log(&root.join("Baseline").join(log));
        compare_log(log, trace, rows, verify, &root, &mut score);
    }
    score.print();
    // What differs: two tunnels that are not taken off here as there; Zeek in bare mode has no list
    // of server ports, so it takes the sender of a lone SYN-ACK for the initiator (5 times the same
    // record of wikipedia.pcap); a first SYN with a bad checksum is a record of its own there; `X`
    // for a flow that Zeek stopped analysing.
    for (field, least) in [
        ("counters", 0.99),
        ("initiator", 0.99),
        ("state", 0.995),
        ("history", 0.99),
        ("payload", 0.99),
        ("duration", 0.97),
    ] {
        assert!(score.share(field) >= least, "{field} differs too often");
    }
}

#[derive(Default)]
struct Score {
    fields: BTreeMap<&'static str, (u64, u64)>,
    skipped: BTreeMap<String, u64>,
}

impl Score {
    fn add(&mut self, field: &'static str, equal: bool) {
        let entry = self.fields.entry(field).or_default();
        entry.0 += u64::from(equal);
        entry.1 += 1;
    }

    fn skip(&mut self, why: &str, rows: usize) {
        *self.skipped.entry(why.to_owned()).or_default() += rows as u64;
    }

    fn share(&self, field: &str) -> f64 {
        self.fields
            .get(field)
            .map_or(0.0, |&(equal, all)| equal as f64 / all as f64)
    }

    fn print(&self) {
        for (field, (equal, all)) in &self.fields {
            println!("{field:10} {equal:5} of {all:5} equal");
        }
        for (why, rows) in &self.skipped {
            println!("not compared: {rows:5} records: {why}");
        }
    }
}

fn strings(test: &Value, name: &str) -> Vec<String> {
    let list = test.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect()
}

fn read_log(path: &Path) -> Vec<Row> {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let mut fields = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(names) = line.strip_prefix("#fields\t") {
            fields = names.split('\t').map(str::to_owned).collect();
        } else if !line.starts_with('#') && !fields.is_empty() {
            let values = line.split('\t').map(str::to_owned);
            rows.push(fields.iter().cloned().zip(values).collect());
        }
    }
    rows
}

fn compare(root: &Path, test: &Value, score: &mut Score) {
    let name = test.get("test").and_then(Value::as_str).unwrap_or("");
    let Some(log) = strings(test, "baseline")
        .into_iter()
        .find(|path| path.ends_with("/conn.log"))
    else {
        return;
    };
    let rows = read_log(&root.join(log));
    let commands: Vec<String> = strings(test, "exec")
        .into_iter()
        .filter(|command| command.contains("-r "))
        .collect();
    let traces = strings(test, "traces");
    let [command] = commands.as_slice() else {
        return score.skip("several commands", rows.len());
    };
    let [trace] = traces.as_slice() else {
        return score.skip("several traces", rows.len());
    };
    if command.contains(" -f ") {
        return score.skip("filtered", rows.len());
    }
    if let Some((_, why)) = NOT_COMPARABLE.iter().find(|(test, _)| name == *test) {
        return score.skip(why, rows.len());
    }
    if rows
        .first()
        .is_none_or(|row| !row.contains_key("orig_pkts"))
    {
        return score.skip("without counters", rows.len());
    }
    let verify = !command.contains(" -C ");
    compare_log(name, trace, rows, verify, root, score);
}

fn compare_log(
    name: &str,
    trace: &str,
    rows: Vec<Row>,
    verify: bool,
    root: &Path,
    score: &mut Score,
) {
    if !rows.iter().all(|row| row.contains_key("id.orig_h")) {
        return score.skip("fields renamed by the test", rows.len());
    }
    let path = root.join("Traces").join(trace);
    let Some(flows) = flows_of(&path, verify, FlowConfig::default()) else {
        return score.skip("no classic pcap", rows.len());
    };
    if flows.iter().any(|flow| flow.fragments > 0) {
        return score.skip("fragments", rows.len());
    }
    let outer: Vec<String> = flows
        .iter()
        .filter_map(|flow| flow.outer)
        .flatten()
        .map(|address| address.to_string())
        .collect();
    let (rows, outside): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .partition(|row| !outer.contains(&row["id.orig_h"]) || !outer.contains(&row["id.resp_h"]));
    score.skip("outer flows of tunnels", outside.len());
    // Zeek knows no SCTP ports: its records are by address only.
    let (flows, sctp): (Vec<OwnedFlow>, Vec<OwnedFlow>) =
        flows.into_iter().partition(|flow| flow.protocol != 132);
    let (sctp, rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| {
        row["proto"] == "unknown_transport"
            && sctp.iter().any(|flow| {
                flow.ends
                    .iter()
                    .any(|(end, _)| end.to_string() == row["id.orig_h"])
            })
    });
    score.skip("SCTP", sctp.len());
    compare_flows(name, trace, rows, flows, score);
}

fn compare_flows(
    name: &str,
    trace: &str,
    rows: Vec<Row>,
    flows: Vec<OwnedFlow>,
    score: &mut Score,
) {
    let mut groups: BTreeMap<String, (Vec<Row>, Vec<OwnedFlow>)> = BTreeMap::new();
    for row in rows {
        let end = |side: &str| {
            let field = |what: &str| row.get(&format!("id.{side}_{what}")).cloned();
            format!(
                "{}#{}",
                field("h").unwrap_or_default(),
                field("p").unwrap_or_default()
            )
        };
        let mut ends = [end("orig"), end("resp")];
        ends.sort();
        let key = format!(
            "{} {}",
            row.get("proto").cloned().unwrap_or_default(),
            ends.join(" ")
        );
        groups.entry(key).or_default().0.push(row);
    }
    for flow in flows {
        let protocol = match flow.protocol {
            6 => "tcp",
            17 => "udp",
            1 | 58 => "icmp",
            _ => "unknown_transport",
        };
        let mut ends = flow.ends.map(|(address, port)| format!("{address}#{port}"));
        ends.sort();
        groups
            .entry(format!("{protocol} {}", ends.join(" ")))
            .or_default()
            .1
            .push(flow);
    }
    for (key, (mut rows, mut flows)) in groups {
        if rows.is_empty() {
            println!(
                "{name} {trace} {key}: only here: {:?}",
                flows
                    .iter()
                    .map(|f| (&f.history, f.packets, f.fragments))
                    .collect::<Vec<_>>()
            );
            score.skip("only here", flows.len());
            continue;
        }
        if flows.is_empty() {
            println!("{name} {trace} {key}: only there: {}", rows.len());
            for _ in &rows {
                score.add("counters", false);
            }
            continue;
        }
        if flows.iter().any(|flow| flow.fragments > 0) {
            score.skip("fragments", rows.len());
            continue;
        }
        if rows.len() != flows.len() {
            println!(
                "{name} {trace} {key}: {} records there {:?}, {} here {:?}",
                rows.len(),
                rows.iter()
                    .map(|r| (
                        r["history"].clone(),
                        r["orig_pkts"].clone(),
                        r["resp_pkts"].clone()
                    ))
                    .collect::<Vec<_>>(),
                flows.len(),
                flows
                    .iter()
                    .map(|f| (&f.history, f.packets))
                    .collect::<Vec<_>>(),
            );
        }
        // Equal ones first, the others as they come.
        rows.retain(|row| {
            let Some(at) = flows.iter().position(|flow| {
                counters(row) == counters_of(flow) && row["history"] == history(flow)
            }) else {
                return true;
            };
            let flow = flows.remove(at);
            score_pair(name, trace, &key, row, &flow, score);
            false
        });
        for row in rows {
            if flows.is_empty() {
                score.add("counters", false);
            } else {
                let flow = flows.remove(0);
                score_pair(name, trace, &key, &row, &flow, score);
            }
        }
    }
}

fn counters(row: &Row) -> [String; 4] {
    ["orig_pkts", "resp_pkts", "orig_ip_bytes", "resp_ip_bytes"]
        .map(|field| row.get(field).cloned().unwrap_or_default())
}

fn counters_of(flow: &OwnedFlow) -> [String; 4] {
    [
        flow.packets[0],
        flow.packets[1],
        flow.ip_bytes[0],
        flow.ip_bytes[1],
    ]
    .map(|count| count.to_string())
}

fn history(flow: &OwnedFlow) -> String {
    if flow.history.is_empty() {
        "-".to_owned()
    } else {
        flow.history.clone()
    }
}

fn score_pair(name: &str, trace: &str, key: &str, row: &Row, flow: &OwnedFlow, score: &mut Score) {
    let initiator = row["id.orig_h"] == flow.ends[0].0.to_string()
        && row["id.orig_p"] == flow.ends[0].1.to_string();
    let equal_counters = counters(row) == counters_of(flow);
    score.add("counters", equal_counters);
    score.add("initiator", initiator);
    let state = row
        .get("conn_state")
        .is_none_or(|state| state == flow.state);
    score.add("state", state);
    let same_history = row["history"] == history(flow);
    score.add("history", same_history);
    let duration = row["duration"].parse::<f64>().unwrap_or(0.0);
    score.add("duration", (duration - flow.duration).abs() < 0.000_002);
    let payload = |field: &str, at: usize| {
        row.get(field)
            .is_none_or(|bytes| bytes == "-" || *bytes == flow.payload[at].to_string())
    };
    score.add(
        "payload",
        payload("orig_bytes", 0) && payload("resp_bytes", 1),
    );
    if !(equal_counters && initiator && state && same_history) {
        println!(
            "{name} {trace} {key}: {:?} {} {} there, {:?} {} {} here{}",
            counters(row),
            row["conn_state"],
            row["history"],
            counters_of(flow),
            flow.state,
            history(flow),
            if initiator { "" } else { " (roles differ)" },
        );
    }
}
