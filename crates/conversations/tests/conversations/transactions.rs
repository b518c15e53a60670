//! The transactions of all protocols, found in packets.

use std::collections::BTreeMap;

use crate::conversations;
use crate::corpora;
use crate::support::{Run, ipv4, program, records_of as run, udp};
use flowgauge_generate::{Config, Preset, generate};
use serde_json::Value;

/// Without what only one of two ways can know, in an order that does not matter.
fn comparable(rows: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let object = row.as_object().expect("an object").iter();
            let apart = ["event_type", "flow_id", "retransmitted_bytes"];
            let common = object.filter(|(name, _)| !apart.contains(&name.as_str()));
            let common: BTreeMap<&String, &Value> = common.collect();
            serde_json::to_string(&common).expect("text")
        })
        .collect();
    lines.sort_unstable();
    lines
}

#[test]
fn transactions_are_those_of_the_components_of_each_protocol() {
    for missing in [0.0, 0.01] {
        let mut trace = Vec::new();
        let mut config = Config::new(Preset::Web).scaled(0.01);
        config.missing = missing;
        generate(&config, &mut trace).expect("memory");
        let found = run("transactions { protocols = http }", &trace);
        assert!(found.len() > 500, "{}", found.len());
        for row in &found {
            assert_eq!(row["event_type"], "http");
            assert_eq!(row["flow_id"].as_str().map(str::len), Some(16));
        }
        if missing == 0.0 {
            let apart = "tcpscan tcpcnxdemux { timeout = 1h } < tcpreseq http >";
            let (found, apart) = (comparable(&found), comparable(&run(apart, &trace)));
            assert_eq!(found.len(), apart.len());
            for (one, other) in found.iter().zip(&apart) {
                assert_eq!(one, other);
            }
        }
    }
}

#[test]
fn protocols_are_found_on_any_port_and_flows_say_which() {
    let mut trace = Vec::new();
    let truth = generate(&Config::new(Preset::Web).scaled(0.005), &mut trace).expect("memory");
    let rows = run("transactions { flows = yes }", &trace);
    let (flows, others): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|row| row["event_type"] == "flow");
    assert_eq!(others.len() as u64, truth.http.transactions);
    assert!(!flows.is_empty());
    for flow in &flows {
        let id = &flow["flow_id"];
        let has_some = others.iter().any(|row| row["flow_id"] == *id);
        let is_found = flow["app_proto"] == "http" && flow["app_proto_by"] == "content";
        assert_eq!(is_found, has_some, "{flow}");
    }
    for row in &others {
        assert!(
            flows.iter().any(|flow| flow["flow_id"] == row["flow_id"]),
            "{row}"
        );
    }
}

#[test]
fn protocols_that_are_not_known_are_refused() {
    let text = "[stack] transactions { protocols = \"http, gopher\" } output";
    let message = program(text).expect_err("no such protocol");
    assert!(message.contains("unknown protocol \"gopher\""), "{message}");
    assert!(message.contains("hint: there are http, "), "{message}");
    let message = program(&text.replace("gopher", "dhpc")).expect_err("no such protocol");
    assert!(message.contains("hint: did you mean dhcp?"), "{message}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (options, expected) in [
        ("ndpi = yes", "ndpi: is for flows = yes only"),
        (
            "applications = nowhere",
            "applications: is for flows = yes only",
        ),
        ("stats_interval = 0", "stats_interval: is not a time"),
        ("decode = yes, memory = 255k", "memory: is less than 256K"),
    ] {
        let text = format!("[stack] transactions {{ {options} }} output");
        let message = program(&text).expect_err(options);
        assert!(message.contains(expected), "{message}");
    }
    // Decoders have a part of what is enough.
    program("[stack] transactions { decode = yes, memory = 256k } output").expect("enough");
}

/// Counters of what came in the time of the capture, whatever the batches were.
#[test]
fn records_of_counters_do_not_depend_on_batches() {
    const SECOND: u64 = 1_000_000_000;
    let packets: Vec<(u64, Vec<u8>)> = (0..40)
        .map(|number| {
            let packet = ipv4(17, 1, 0, false, &udp(1000 + number as u16, 9, b"x"));
            (103 * SECOND + number * SECOND / 2, packet)
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    for size in [1, 7, 40] {
        let path = folder.path().join(format!("{size}.json"));
        let stack = format!(
            "[stack] transactions {{ stats_interval = 5s }} output {{ {} }}",
            path.display()
        );
        let mut run = Run::new(&stack);
        packets.chunks(size).for_each(|batch| run.at(batch));
        run.finish();
        drop(run);
        let text = std::fs::read_to_string(&path).expect("it is written");
        let rows: Vec<[f64; 4]> = text
            .lines()
            .map(|line| {
                let row: Value = serde_json::from_str(line).expect("an object");
                ["uptime", "interval", "packets", "new_packets"]
                    .map(|name| row[name].as_f64().expect(line))
            })
            .collect();
        // From 103 s on: at 105, 110, 115 and 120, and at the last packet.
        let expected = [
            [2.0, 2.0, 4.0, 4.0],
            [7.0, 5.0, 14.0, 10.0],
            [12.0, 5.0, 24.0, 10.0],
            [17.0, 5.0, 34.0, 10.0],
            [19.5, 2.5, 40.0, 6.0],
        ];
        assert_eq!(rows, expected, "in batches of {size}: {text}");
    }
}

/// Each protocol as a component of its own, on captures of Zeek's tests.
#[test]
fn components_of_each_protocol_find_the_same() {
    let Some(corpora) = corpora::corpora() else {
        return;
    };
    let within = |name| format!("tcpscan tcpcnxdemux {{ timeout = 1h }} < tcpreseq {name} >");
    let cases = [
        (
            "ssh",
            "ssh.log",
            within("ssh"),
            ["client", "hassh", "hassh_server"],
        ),
        (
            "smtp",
            "smtp.log",
            within("smtp"),
            ["mailfrom", "msg_id", "subject"],
        ),
        (
            "ftp",
            "ftp.log",
            within("ftp"),
            ["command", "arg", "reply_code"],
        ),
        ("tls", "ssl.log", within("tls"), ["ja3", "ja3s", "sha1"]),
        (
            "tls",
            "ssl.log",
            "udpscan tls".to_owned(),
            ["ja3", "ja3s", "sha1"],
        ),
        (
            "quic",
            "quic.log",
            "udpscan quic".to_owned(),
            ["version", "server_name", "ja4"],
        ),
    ];
    for (protocol, log, apart, fields) in cases {
        let mut found = 0;
        let mut traces: Vec<_> = conversations::zeek_tests(&corpora, log)
            .into_iter()
            .flat_map(|(_, traces, _)| traces)
            .collect();
        traces.sort();
        traces.dedup();
        // In turn: another protocol comes first; segments are missing, and each way gives a hole up at
        // another moment; a connection is captured from within.
        let apart_from = [
            "connect-with-smtp.pcap",
            "cwd-navigation.pcap",
            "ftp-with-numbers-in-filename.pcap",
        ];
        traces.retain(|path| !apart_from.iter().any(|name| path.ends_with(name)));
        for trace in traces {
            let mut together = conversations::records(&trace, protocol);
            // TLS has datagrams, too.
            let carrier = if apart.starts_with("udp") {
                "udp"
            } else {
                "tcp"
            };
            together.retain(|record| {
                [carrier, "quic"].contains(&record["proto"].as_str().unwrap_or(""))
            });
            let apart = conversations::records_of_stack(&trace, &apart);
            found += apart.len();
            let key = |record: &Value| {
                let values = fields.map(|name| conversations::text(record, name));
                format!("{} {values:?}", conversations::endpoints(record))
            };
            let apart: Vec<String> = apart.iter().map(key).collect();
            for one in &together.iter().map(key).collect::<Vec<_>>() {
                assert!(
                    apart.contains(one),
                    "{}: {one}\n{apart:#?}",
                    trace.display()
                );
            }
        }
        assert!(found > 3, "{protocol}: {found}");
    }
}
