//! The transactions of all protocols, found in packets.

mod support;

use std::collections::BTreeMap;
use std::fs;

use flowgauge_capture::generate::{Config, Preset, generate};
use serde_json::Value;
use support::{Run, program};

/// What a stack in front of an `output` gives for a trace.
fn run(text: &str, trace: &[u8]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.json");
    let stack = format!("[stack] {text} output {{ {} }}", path.display());
    Run::new(&stack).trace(trace);
    let text = fs::read_to_string(&path).expect("it was written");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

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
        assert_eq!(flow["app_proto"] == "http", has_some, "{flow}");
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
    assert!(
        message.contains("\"gopher\" is no protocol that is known"),
        "{message}"
    );
    assert!(message.contains("there are: "), "{message}");
}
