//! `--where`, `--fields`, `--from` and `--to`, and the fields that they name.

use std::process::Command;

use serde_json::Value;

use crate::command_support::{Folder, fails, json_lines, objects, printed, run, stderr, text};
use crate::corpora::skipped;

const COMMANDS: [&str; 5] = ["flows", "streams", "log", "packets", "match"];

fn command<'a>(name: &'a str, trace: &'a str) -> Vec<&'a str> {
    let mut words = vec![name, "-q", "--json", "-r", trace];
    if name == "match" {
        words.extend(["-e", "/./"]);
    }
    words
}

/// What is selected is what a look at all records finds, in their order.
#[test]
fn records_are_those_that_match() {
    let folder = Folder::new("where");
    let (trace, _) = folder.trace();
    for name in COMMANDS {
        let words = command(name, text(&trace));
        let all = objects(&printed(&words));
        let expected: Vec<&Value> = all
            .iter()
            .filter(|it| {
                it["proto"] == "udp" && it["dst_port"].as_u64().is_some_and(|port| port < 1024)
            })
            .collect();
        let condition = ["--where", "proto = udp and dst_port < 1024"];
        let found = objects(&printed(&[&words[..], &condition].concat()));
        assert!(found.iter().eq(expected.iter().copied()), "{name}");
        assert!(name == "match" || !found.is_empty(), "{name}");
        assert!(found.len() < all.len(), "{name}");
    }
}

/// Fields come in the order asked for; what a record lacks is null.
#[test]
fn fields_are_picked_in_order() {
    let folder = Folder::new("fields");
    let (trace, _) = folder.trace();
    for name in COMMANDS {
        let words = command(name, text(&trace));
        let all = objects(&printed(&words));
        let fields = ["--fields", "dst_port,src_ip"];
        let found = printed(&[&words[..], &fields].concat());
        let mut expected = String::new();
        for record in &all {
            let field = |name: &str| record.get(name).unwrap_or(&Value::Null).to_string();
            let (port, address) = (field("dst_port"), field("src_ip"));
            expected += &format!("{{\"dst_port\":{port},\"src_ip\":{address}}}\n");
        }
        assert_eq!(found, expected, "{name}");
    }
    // Records of many kinds in one table of CSV.
    let words = ["log", "-q", "--csv", "-r", text(&trace)];
    let csv = printed(&[&words[..], &["--fields", "event_type,host,query"]].concat());
    assert!(
        csv.starts_with("event_type,host,query\n") && csv.contains("\ndns,,"),
        "{csv}"
    );
    let words = ["packets", "-q", "--table", "-c", "2", "-r", text(&trace)];
    let table = printed(&[&words[..], &["--fields", "seq,payload_bytes,tunnel"]].concat());
    assert_eq!(table.lines().count(), 3);
    assert!(table.trim_start().starts_with("SEQ  PAYLOAD  "), "{table}");
}

#[test]
fn what_no_record_has_is_refused_with_the_nearest_name() {
    let folder = Folder::new("unknown");
    let (trace, _) = folder.trace();
    for name in COMMANDS {
        let words = command(name, text(&trace));
        for (option, value) in [("--where", "src_prt = 80"), ("--fields", "src_ip,src_prt")] {
            let all = [&words[..], &[option, value]].concat();
            let output = fails(&all, 2, &["src_prt", "did you mean src_port?"]);
            let begin = format!("flowgauge: error: {option}: ");
            assert!(stderr(&output).starts_with(&begin), "{}", stderr(&output));
        }
    }
    let eve = [
        "log",
        "-r",
        text(&trace),
        "--format",
        "eve",
        "--fields",
        "time",
    ];
    fails(&eve, 2, &["--fields"]);
    fails(
        &["flows", "-r", text(&trace), "-w", "x.parquet"],
        2,
        &["unknown format .parquet"],
    );
    let (parquet, csv) = (folder.file("x.parquet"), folder.file("x.csv"));
    for (command, file) in [
        (&["report", "-r", text(&trace)][..], &parquet),
        (&["report", "-r", text(&trace)], &csv),
        (&["stack", "list"], &parquet),
        (&["stack", "list", "count"], &csv),
        (
            &["stack", "bench", "-e", "count", "-r", text(&trace)],
            &parquet,
        ),
    ] {
        fails(&[command, &["-w", text(file)]].concat(), 2, &["hint: "]);
        assert!(!file.exists(), "{command:?}");
    }
    let page = folder.file("page.json");
    printed(&["report", "-q", "-r", text(&trace), "-w", text(&page)]);
    assert!(
        std::fs::read_to_string(&page)
            .unwrap()
            .starts_with("{\"start\":")
    );
    let listed = printed(&["stack", "list", "--csv"]);
    assert!(
        listed.starts_with("component,aliases,usage,input,output,"),
        "{listed}"
    );
    assert!(
        listed.lines().any(|line| line.starts_with("count,")),
        "{listed}"
    );
    fails(
        &[
            "stack",
            "run",
            "-r",
            text(&trace),
            "-e",
            "flows output { x.parquet }",
        ],
        2,
        &["no format is called .parquet"],
    );
}

fn joined<'a>(span: &[&'a str], words: &[&'a str]) -> Vec<&'a str> {
    [words, span].concat()
}

/// Packets of a span of time, as tshark counts them; flows are those of these packets.
#[test]
fn packets_are_those_of_the_time() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return skipped("tshark is not installed");
    }
    let folder = Folder::new("times");
    let (trace, _) = folder.trace();
    let all = json_lines(&run(&command("packets", text(&trace))));
    let time = |at: usize| all[at]["time"].as_str().unwrap().to_owned();
    let (from, to) = (time(all.len() / 4), time(all.len() / 2));
    let span = ["--from", &from, "--to", &to];
    let found = objects(&printed(&joined(&span, &command("packets", text(&trace)))));
    let shown = [&from, &to].map(|time| time.trim_end_matches('Z').replace('T', " "));
    let filter = format!(
        "frame.time >= \"{}\" && frame.time < \"{}\"",
        shown[0], shown[1]
    );
    let output = Command::new("tshark")
        .env("TZ", "UTC")
        .args([
            "-r",
            text(&trace),
            "-Y",
            &filter,
            "-T",
            "fields",
            "-e",
            "frame.number",
        ])
        .output()
        .unwrap();
    let counted = String::from_utf8(output.stdout).unwrap().lines().count();
    assert!(counted > 10, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(found.len(), counted);
    let part = folder.file("part.pcap");
    let copy = ["capture", "-q", "-r", text(&trace), "-w", text(&part)];
    printed(&joined(&span, &copy));
    for name in ["flows", "log"] {
        let whole = printed(&joined(&span, &command(name, text(&trace))));
        assert_eq!(whole, printed(&command(name, text(&part))), "{name}");
    }
    let said = run(&joined(&span, &["flows", "-r", text(&trace)]));
    let left_out = all.len() - counted;
    let place = format!("filter {left_out}");
    assert!(stderr(&said).contains(&place), "{}", stderr(&said));
    fails(
        &["flows", "-r", text(&trace), "--from", &to, "--to", &from],
        2,
        &["--to is not after --from"],
    );
}

/// Each field of what a command writes is among those of its kind.
#[test]
fn fields_are_listed() {
    let folder = Folder::new("listed");
    let (trace, _) = folder.trace();
    let kinds = objects(&printed(&["fields", "--json"]));
    let names: Vec<&str> = kinds
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    for (name, kind) in [
        ("flows", "flow"),
        ("streams", "stream"),
        ("packets", "packet"),
    ] {
        assert!(names.contains(&kind));
        let listed = objects(&printed(&["fields", kind, "--json"]));
        let record = objects(&printed(&command(name, text(&trace)))).remove(0);
        for field in record.as_object().unwrap().keys() {
            assert!(
                listed.iter().any(|it| it["field"] == **field),
                "{kind} {field}"
            );
        }
    }
    for record in objects(&printed(&command("log", text(&trace)))) {
        let kind = record["event_type"].as_str().unwrap();
        let listed = objects(&printed(&["fields", kind, "--json"]));
        for field in record
            .as_object()
            .unwrap()
            .keys()
            .filter(|it| *it != "vlan")
        {
            assert!(
                listed.iter().any(|it| it["field"] == **field),
                "{kind} {field}"
            );
        }
    }
    let http = objects(&printed(&["fields", "http", "--json"]));
    let method = http.iter().find(|it| it["field"] == "method").unwrap();
    assert_eq!(
        [&method["zeek"], &method["eve"]],
        ["http.method", "http.http_method"]
    );
    fails(&["fields", "htpt"], 2, &["did you mean http?"]);
}

/// Completions and manual pages have each command and option.
#[test]
fn shells_and_man_know_all_commands() {
    for (shell, words) in [
        ("bash", &["flowgauge__subcmd__flows", "--where"][..]),
        ("zsh", &["#compdef flowgauge", "--where"]),
        ("fish", &["__fish_flowgauge", "where"]),
    ] {
        let completions = printed(&["completions", shell]);
        for word in words {
            assert!(completions.contains(word), "{shell} {word}");
        }
    }
    let page = printed(&["man", "stack", "run"]);
    assert!(
        page.contains(".TH flowgauge-stack-run 1") && page.contains("\\-\\-folder"),
        "{page}"
    );
    fails(&["man", "flwos"], 2, &["did you mean flows?"]);
    let folder = Folder::new("man");
    printed(&["man", "--all", text(&folder.0)]);
    for name in [
        "flowgauge.1",
        "flowgauge-flows.1",
        "flowgauge-stack-admin-start.1",
    ] {
        assert!(folder.file(name).exists(), "{name}");
    }
}
