//! `flowgauge log` in all its formats, over a generated trace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A folder with a trace of HTTP, and how many transactions it has.
fn trace() -> (tempfile::TempDir, PathBuf, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("web.pcap");
    let name = path.to_str().expect("text");
    run(&["generate", "web", "--scale", "0.005", "-q", "-w", name]);
    let truth = fs::read_to_string(format!("{name}.truth.json")).expect("truth");
    let truth: Value = serde_json::from_str(&truth).expect("an object");
    let transactions = truth["http"]["transactions"].as_u64().expect("a number");
    assert!(transactions > 100, "{transactions}");
    (folder, path, transactions)
}

/// What a command prints.
fn run(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(arguments)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn log(trace: &Path, options: &[&str]) -> String {
    let mut arguments = vec!["log", "-q", "-r", trace.to_str().expect("text")];
    arguments.extend(options);
    run(&arguments)
}

fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// The columns and rows of a log of Zeek's.
fn rows(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let of = |name: &str| -> Vec<&str> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.expect(name).split('\t').skip(1).collect()
    };
    let (fields, types) = (of("#fields"), of("#types"));
    assert_eq!(fields.len(), types.len());
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    for row in &rows {
        assert_eq!(row.len(), fields.len(), "{row:?}");
    }
    (fields, rows)
}

#[test]
fn all_formats_say_the_same() {
    let (folder, trace, transactions) = trace();
    let json = objects(&log(&trace, &["--format", "json", "--flows"]));
    let is_http = |row: &&Value| row["event_type"] == "http";
    let http: Vec<&Value> = json.iter().filter(is_http).collect();
    assert_eq!(http.len() as u64, transactions);
    let flows = json.len() - http.len();
    assert!(flows > 0);

    let uris = |rows: &mut dyn Iterator<Item = String>| -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        rows.for_each(|uri| *counts.entry(uri).or_default() += 1);
        counts
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wanted = uris(&mut http.iter().map(|row| text(&row["uri"])));

    let eve = objects(&log(&trace, &["--format", "eve", "--flows"]));
    assert_eq!(eve.len(), json.len());
    let lines = eve.iter().filter(is_http);
    let mut found = lines.clone().map(|row| text(&row["http"]["url"]));
    assert_eq!(uris(&mut found), wanted);
    let ids: BTreeSet<u64> = eve
        .iter()
        .filter(|row| row["event_type"] == "flow")
        .map(id)
        .collect();
    assert_eq!(ids.len(), flows);
    for line in lines {
        assert!(ids.contains(&id(line)), "{line}");
        assert!(text(&line["timestamp"]).ends_with("+0000"), "{line}");
        assert_eq!(line["proto"], "TCP");
    }

    let logs = folder.path().join("logs");
    let name = logs.to_str().expect("text");
    assert_eq!(
        log(&trace, &["--format", "zeek", "--flows", "-w", name]),
        ""
    );
    let conn = fs::read_to_string(logs.join("conn.log")).expect("conn.log");
    let (_, conn) = rows(&conn);
    assert_eq!(conn.len(), flows);
    let text_of_http = fs::read_to_string(logs.join("http.log")).expect("http.log");
    let (fields, lines) = rows(&text_of_http);
    let at = |name: &str| {
        fields
            .iter()
            .position(|field| *field == name)
            .expect("a column")
    };
    let column = at("uri");
    assert_eq!(
        uris(&mut lines.iter().map(|row| row[column].to_owned())),
        wanted
    );
    let uid = at("uid");
    let known: BTreeSet<&str> = conn.iter().map(|row| row[uid]).collect();
    assert!(lines.iter().all(|row| known.contains(row[uid])));

    let zeek = objects(&log(&trace, &["--format", "zeek-json"]));
    assert!(zeek.iter().all(|row| row["_path"] == "http"));
    assert_eq!(uris(&mut zeek.iter().map(|row| text(&row["uri"]))), wanted);

    let table = log(&trace, &["--format", "table"]);
    assert!(table.starts_with("TIME "), "{table:.60}");
    assert_eq!(table.lines().count() as u64, transactions + 1);
}

fn id(line: &Value) -> u64 {
    line["flow_id"].as_u64().expect("a number")
}

#[test]
fn several_cores_find_the_same() {
    let (_folder, trace, _) = trace();
    let sorted = |workers: &str| {
        let text = log(
            &trace,
            &["--format", "json", "--flows", "--workers", workers],
        );
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let one = sorted("1");
    for workers in ["2", "3"] {
        let others = sorted(workers);
        assert_eq!(one.len(), others.len());
        for (line, other) in one.iter().zip(&others) {
            assert_eq!(line, other);
        }
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_said_before_anything_is_read() {
    let (folder, trace, _) = trace();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("room");
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(["log", "--format", "zeek", "-r"])
        .arg(&trace)
        .arg("-w")
        .arg(file.join("logs"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot create") && said.contains("hint: check the path"),
        "{said}"
    );
}
