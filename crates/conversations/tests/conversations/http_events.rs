//! HTTP as other tools see it: what packetbeat's tests state of transactions, tshark of HTTP/2, Zeek of files.

use std::path::Path;
use std::process::Command;

use crate::conversations::{Compared, records, records_of_stack, text, zeek_log, zeek_tests};
use crate::corpora::{corpora, skipped};
use serde_json::Value;

/// Statements of packetbeat's that differ, and why.
const PACKETBEAT: &[(&str, &str)] = &[
    (
        "test_0023_http_params.test_http_post: url.query",
        "what a form sends counts as a query there",
    ),
    (
        "test_0063_http_body.test_wrong_content_type: url.query",
        "what a form sends counts as a query there",
    ),
];

/// A field of packetbeat's as our records have it; none: they do not have it.
fn packetbeat_field(record: &Value, name: &str) -> Option<String> {
    let of = |name: &str| Some(text(record, name));
    let uri = text(record, "uri");
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    match name {
        "type" | "network.protocol" => of("event_type"),
        "client.ip" => of("src_ip"),
        "client.port" => of("src_port"),
        "server.ip" => of("dst_ip"),
        "server.port" => of("dst_port"),
        "network.transport" => of("proto"),
        "http.response.status_code" => of("status"),
        "http.response.headers']['content-length" => of("response_body_bytes"),
        "http.response.headers']['content-type" => of("content_type"),
        "status" => {
            let is_good = record["status"].as_u64().is_some_and(|status| status < 400);
            Some(if is_good { "OK" } else { "Error" }.to_owned())
        }
        "url.path" => Some(path.to_owned()),
        "url.query" => Some(query.to_owned()),
        "query" => Some(format!("{} {path}", text(record, "method"))),
        _ => None,
    }
}

/// Which records a statement is about, the field, and its value.
fn statement(text: &str) -> Option<(Option<usize>, &str, String)> {
    let (place, rest) = match text.strip_prefix("all([") {
        Some(rest) => (None, rest.strip_suffix(" for o in objs])")?),
        None => (Some(0), text),
    };
    let (object, rest) = rest.split_once("['")?;
    let place = match object.strip_prefix("objs[") {
        Some(number) => Some(number.strip_suffix(']')?.parse().ok()?),
        None => place,
    };
    let (field, value) = rest.split_once("'] == ")?;
    // A text may be written in parts.
    let value = value.replace("' + '", "");
    Some((place, field, value.trim_matches('\'').to_owned()))
}

fn note(compared: &mut Compared, what: &str, is_same: bool, difference: String) {
    let differences: Vec<String> = (!is_same).then_some(difference).into_iter().collect();
    compared.note(what, &differences, PACKETBEAT);
}

#[test]
fn packetbeat_assertions() {
    let Some(corpora) = corpora() else { return };
    let root = corpora.join("packetbeat/packetbeat");
    let tests = std::fs::read(root.join("expected_assertions.shared.json")).expect("a file");
    let tests: Value = serde_json::from_slice(&tests).expect("JSON");
    let mut compared = Compared::default();
    for test in tests.as_array().expect("a list") {
        let name = test["test"].as_str().unwrap_or_default();
        let pcap = test["pcap"][0].as_str().unwrap_or_default();
        // Some take events away again.
        let is_dropped = test["config"].to_string().contains("drop_event");
        if !pcap.starts_with("http") || is_dropped {
            continue;
        }
        let mut ours = records(&root.join("pcaps").join(pcap), "http");
        // Only these ports are looked at there.
        let config = test["config"].to_string();
        let list = config
            .split("http_ports=[")
            .nth(1)
            .and_then(|it| it.split(']').next());
        let list = list.unwrap_or("80").replace(['\'', ' '], "");
        ours.retain(|it| list.split(',').any(|port| port == text(it, "dst_port")));
        // Answers without a request are none of its transactions.
        ours.retain(|it| it["state"] != "no_request");
        for expected in test["expect"].as_array().into_iter().flatten() {
            let expected = expected.as_str().unwrap_or_default();
            if let Some(count) = expected.strip_prefix("len(objs) == ") {
                let is_same = ours.len().to_string() == count;
                let difference = format!("{} records", ours.len());
                let what = format!("{name}: {expected}");
                note(&mut compared, &what, is_same, difference);
                continue;
            }
            let Some((place, field, value)) = statement(expected) else {
                continue;
            };
            let about = match place {
                Some(place) => ours.get(place..=place).unwrap_or_default(),
                None => &ours,
            };
            let found: Option<Vec<String>> =
                about.iter().map(|it| packetbeat_field(it, field)).collect();
            let Some(found) = found else { continue };
            let is_same = !found.is_empty() && found.iter().all(|it| *it == value);
            let difference = format!("{found:?} not {value}");
            let what = format!("{name}: {field}");
            note(&mut compared, &what, is_same, difference);
        }
    }
    compared.show("packetbeat http");
    assert!(compared.differences.is_empty() && compared.records > 50);
}

/// Captures with HTTP/2 in clear text where tshark sees other things than we do, and why.
const TSHARK: &[(&str, &str)] = &[(
    "http2-nghttp2.pcap: requests",
    "a block of fields over several segments, which tshark gives up",
)];

/// What tshark finds of HTTP/2: requests, statuses of final responses, bytes of DATA frames.
fn of_tshark(trace: &Path, port: Option<&str>) -> Option<(Vec<String>, Vec<String>, u64)> {
    const FIELDS: [&str; 5] = [
        "http2.headers.method",
        "http2.headers.path",
        "http2.headers.status",
        "http2.type",
        "http2.length",
    ];
    let mut command = Command::new("tshark");
    command
        .arg("-nr")
        .arg(trace)
        .args(["-Y", "http2", "-T", "fields"]);
    command.args(["-E", "aggregator=|", "-E", "occurrence=a"]);
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    if let Some(port) = port {
        command.arg("-d").arg(format!("tcp.port=={port},http2"));
    }
    let output = command.output().ok()?;
    let (mut requests, mut statuses, mut bytes) = (Vec::new(), Vec::new(), 0);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut columns = line.split('\t').map(|column| {
            column
                .split('|')
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let mut column = || columns.next().unwrap_or_default();
        let (methods, paths) = (column(), column());
        requests.extend(
            methods
                .iter()
                .zip(&paths)
                .map(|(method, path)| format!("{method} {path}")),
        );
        statuses.extend(
            column()
                .into_iter()
                .filter(|status| !status.starts_with('1')),
        );
        let (types, lengths) = (column(), column());
        let data = types.iter().zip(&lengths).filter(|(kind, _)| *kind == "0");
        bytes += data
            .filter_map(|(_, length)| length.parse::<u64>().ok())
            .sum::<u64>();
    }
    requests.sort();
    statuses.sort();
    Some((requests, statuses, bytes))
}

#[test]
fn http_2_as_tshark_reads_it() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    for trace in [
        "suricata-verify/tests/http2-bugfixes/input.pcap",
        "suricata-verify/tests/http2-userinfo-authority/http2_userinfo_in_authority_1.pcap",
        "suricata-verify/tests/http2-range/http2-range.pcap",
        "suricata-verify/tests/dns-over-http2/dns_over_https.pcap",
        "suricata-verify/tests/http2-authority-mismatch/authority_and_host_2.pcap",
        "suricata-verify/tests/http2-long-frame/input.pcap",
        "suricata-verify/tests/http2-deflate-case/input.pcap",
        "suricata-verify/tests/http2-keywords2/input.pcap",
        "suricata-verify/tests/http2-continuation/input.pcap",
        "suricata-verify/tests/drop-protocol-change/input.pcap",
        "suricata-verify/tests/transform-base64-7296/input.pcap",
        "scapy/test/pcaps/http2_h2c.pcap",
        "arkime/tests/pcap/http2-nghttp2.pcap",
        "wireshark/captures/packet-h2-14_headers.pcapng",
    ] {
        let path = corpora.join(trace);
        let ours = records(&path, "http");
        let Some(mut theirs) = of_tshark(&path, None) else {
            return skipped("no tshark");
        };
        // Which port it is on has to be said to tshark, mostly.
        if theirs.0.is_empty() && theirs.1.is_empty() {
            let port = ours.first().map(|it| text(it, "dst_port"));
            theirs = of_tshark(&path, port.as_deref()).unwrap_or_default();
        }
        let (requests, statuses, bytes) = theirs;
        let mut asked: Vec<String> = ours
            .iter()
            .filter(|it| it["version"] == "2" && it["state"] != "no_request")
            .map(|it| format!("{} {}", text(it, "method"), text(it, "uri")))
            .collect();
        let second: Vec<&Value> = ours
            .iter()
            .filter(|it| it["response_version"] == "2")
            .collect();
        let mut answered: Vec<String> = second.iter().map(|it| text(it, "status")).collect();
        let number = |it: &Value, name: &str| it[name].as_u64().unwrap_or(0);
        let in_requests = ours
            .iter()
            .filter(|it| it["version"] == "2" && it["state"] != "no_request");
        let sum: u64 = in_requests.map(|it| number(it, "request_body_bytes")).sum();
        let sum = sum
            + second
                .iter()
                .map(|it| number(it, "response_body_bytes"))
                .sum::<u64>();
        asked.sort();
        answered.sort();
        let mut note = |what: &str, is_same: bool, difference: String| {
            let differences: Vec<String> = (!is_same).then_some(difference).into_iter().collect();
            compared.note(&format!("{trace}: {what}"), &differences, TSHARK);
        };
        note(
            "requests",
            asked == requests,
            format!("{asked:?} not {requests:?}"),
        );
        note(
            "statuses",
            answered == statuses,
            format!("{answered:?} not {statuses:?}"),
        );
        note("bytes", sum == bytes, format!("{sum} not {bytes}"));
    }
    compared.show("tshark HTTP/2");
    assert!(compared.differences.is_empty() && compared.records > 20);
}

/// Tests of files that differ, and why.
const FILES: &[(&str, &str)] = &[];

fn files_of(trace: &Path) -> Vec<Value> {
    let options = "protocols = \"http,ftp,ftp_data,smtp\", checksums = ignore, decode = yes";
    let stack = format!("transactions {{ {options}, digests = \"md5,sha1,sha256\" }}");
    let mut files = records_of_stack(trace, &stack);
    files.retain(|it| it["event_type"] == "file");
    files
}

#[test]
fn files_as_zeek_has_them() {
    let Some(corpora) = corpora() else { return };
    let mut compared = Compared::default();
    for (name, traces, log) in zeek_tests(&corpora, "files.log") {
        let ours: Vec<Value> = traces.iter().flat_map(|it| files_of(it)).collect();
        for (number, row) in zeek_log(&log).iter().enumerate() {
            let is_here = row
                .get("source")
                .is_some_and(|it| it == "HTTP" || it == "SMTP");
            if !is_here || !row.contains_key("seen_bytes") {
                continue;
            }
            let names = [
                ("seen_bytes", "bytes"),
                ("total_bytes", "total_bytes"),
                ("missing_bytes", "missing_bytes"),
                ("mime_type", "mime_type"),
                ("md5", "md5"),
                ("sha1", "sha1"),
                ("sha256", "sha256"),
            ];
            // Digests that were not asked for there.
            let asked = names
                .iter()
                .filter(|(theirs, _)| row.get(*theirs).is_some_and(|it| it != "-"));
            let asked: Vec<_> = asked.collect();
            let is_equal = |it: &&Value| {
                asked
                    .iter()
                    .all(|(theirs, mine)| row[*theirs] == text(it, mine))
            };
            let is_found = ours.iter().any(|it| is_equal(&it));
            let differences: Vec<String> = (!is_found)
                .then(|| format!("{row:?} not in {ours:?}"))
                .into_iter()
                .collect();
            compared.note(&format!("{name} {number}"), &differences, FILES);
        }
    }
    compared.show("files");
    assert!(compared.differences.is_empty() && compared.records >= 8);
}
