//! Conversations in captures of the corpora, and what other tools say of them.

#![allow(missing_docs, unreachable_pub)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::Run;

/// The records of some protocols in a capture.
pub fn records(path: &Path, protocols: &str) -> Vec<Value> {
    let options = format!("protocols = \"{protocols}\", checksums = ignore");
    records_of_stack(path, &format!("transactions {{ {options} }}"))
}

/// What a stack in front of an `output` gives for a capture; nothing where that cannot be read.
pub fn records_of_stack(path: &Path, text: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let stack = format!("[stack] {text} output {{ {} }}", out.display());
    let mut run = Run::new(&stack);
    let Ok(mut source) = flowgauge_capture::open(path) else {
        return Vec::new();
    };
    while let Ok(Some(batch)) = source.next_batch() {
        run.batch(&batch);
    }
    run.finish();
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Client and server of a record.
pub fn endpoints(record: &Value) -> String {
    let part = |name| text(record, name);
    format!(
        "{}:{}-{}:{}",
        part("src_ip"),
        part("src_port"),
        part("dst_ip"),
        part("dst_port")
    )
}

/// The same of a row of a log of Zeek's.
pub fn zeek_endpoints(row: &Row) -> String {
    let of = |name: &str| row.get(name).map_or("-", String::as_str);
    format!(
        "{}:{}-{}:{}",
        of("id.orig_h"),
        of("id.orig_p"),
        of("id.resp_h"),
        of("id.resp_p")
    )
}

/// Whether a row has addresses and ports: those of some logs have not.
pub fn has_endpoints(row: &Row) -> bool {
    let names = ["id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p"];
    names.iter().all(|name| row.contains_key(*name))
}

/// A row of a log of Zeek's.
pub type Row = BTreeMap<String, String>;

/// The rows of a log of Zeek's.
pub fn zeek_log(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut names: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(fields) = line.strip_prefix("#fields\t") {
            names = fields.split('\t').collect();
        } else if names.is_empty() && line.split('\t').any(|name| name == "uid") {
            // Columns taken out by a tool of Zeek's, their names first.
            names = line.split('\t').collect();
        } else if !line.starts_with('#') && !names.is_empty() {
            let values = line.split('\t').map(str::to_owned);
            rows.push(names.iter().map(|&it| it.to_owned()).zip(values).collect());
        }
    }
    rows
}

/// Tests of Zeek's with a log of this name, or one like it (`ssl-all.log`, `ssl.log.cut`): name,
/// captures, log. Those of several captures have a log of the last run only.
pub fn zeek_tests(corpora: &Path, log: &str) -> Vec<(String, Vec<PathBuf>, PathBuf)> {
    let root = corpora.join("zeek");
    let index = std::fs::read_to_string(root.join("index.shared.jsonl")).unwrap();
    let mut tests = Vec::new();
    for line in index.lines() {
        let test: Value = serde_json::from_str(line).unwrap();
        let name = test["id"].as_str().unwrap_or_default().to_owned();
        let traces = test["traces"].as_array().cloned().unwrap_or_default();
        let traces = traces.iter().filter_map(Value::as_str);
        let traces: Vec<PathBuf> = traces
            .map(|trace| root.join("Traces").join(trace))
            .filter(|path| path.is_file())
            .collect();
        let baselines = test["baseline"].as_array().cloned().unwrap_or_default();
        for baseline in baselines.iter().filter_map(Value::as_str) {
            let path = root.join(baseline);
            let file = baseline.rsplit('/').next().unwrap_or_default();
            let stem = log.trim_end_matches(".log");
            let is_like = |name: &str| {
                let rest = name.strip_prefix(stem).unwrap_or("x");
                rest.is_empty() || rest.starts_with(['-', '.', '1'])
            };
            // A setting of Zeek's that cuts histories.
            let is_log = is_like(file) && file.contains(".log") && !file.contains("length-3");
            if is_log && path.is_file() && !traces.is_empty() {
                tests.push((name.clone(), traces.clone(), path));
            }
        }
    }
    tests
}

/// Compares the rows of all logs of Zeek's of a name with the records that we make of the same captures.
/// `compare` takes the test's name, a row and the records; it returns what the row is called and how it
/// differs, and nothing where it is not to be compared.
pub fn against_zeek(
    corpora: &Path,
    log: &str,
    protocols: &str,
    exceptions: &[(&str, &str)],
    mut compare: impl FnMut(&str, &Row, &mut Vec<Value>) -> Option<(String, Vec<String>)>,
) {
    let mut compared = Compared::default();
    for (name, traces, path) in zeek_tests(corpora, log) {
        let traces = traces.iter();
        let mut ours: Vec<Value> = traces.flat_map(|it| records(it, protocols)).collect();
        for row in zeek_log(&path) {
            if let Some((what, differences)) = compare(&name, &row, &mut ours) {
                compared.note(&what, &differences, exceptions);
            }
        }
    }
    compared.show(&format!("Zeek {log}"));
    compared.assert_equal();
}

/// How values of a row of Zeek's, by its names and ours, differ from those of a record. `alike` may
/// bring the two into one form first.
pub fn differences(
    row: &Row,
    record: &Value,
    names: &[(&str, &str)],
    alike: impl Fn(&str, String, String) -> (String, String),
) -> Vec<String> {
    let values = names.iter().filter_map(|&(theirs, mine)| {
        let theirs = match row.get(theirs)?.as_str() {
            "-" | "(empty)" => "",
            other => other,
        };
        Some((mine, alike(mine, text(record, mine), theirs.to_owned())))
    });
    values
        .filter(|(_, (ours, theirs))| ours != theirs)
        .map(|(mine, (ours, theirs))| format!("{mine} {ours:?} not {theirs:?}"))
        .collect()
}

/// The same name in both.
pub fn same<const N: usize>(names: [&str; N]) -> [(&str, &str); N] {
    names.map(|name| (name, name))
}

/// Counts of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    pub records: usize,
    pub equal: usize,
    pub excepted: usize,
    pub differences: Vec<String>,
}

impl Compared {
    /// Notes a record of theirs: whether it is equal, or how it differs.
    pub fn note(&mut self, what: &str, differences: &[String], exceptions: &[(&str, &str)]) {
        self.records += 1;
        if differences.is_empty() {
            self.equal += 1;
        } else if exceptions.iter().any(|(name, _)| what.contains(name)) {
            eprintln!("  excepted: {what}");
            self.excepted += 1;
        } else {
            self.differences
                .push(format!("{what}: {}", differences.join("; ")));
        }
    }

    /// There was something to compare, and nothing differs but what is excepted.
    pub fn assert_equal(&self) {
        assert!(self.differences.is_empty() && self.records > 0);
    }

    pub fn show(&self, against: &str) {
        eprintln!(
            "{against}: {} records, {} equal, {} excepted, {} differ",
            self.records,
            self.equal,
            self.excepted,
            self.differences.len()
        );
        for line in &self.differences {
            eprintln!("  {line}");
        }
    }
}

/// A value of a record as text; empty where it is null.
pub fn text(record: &Value, name: &str) -> String {
    match &record[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
            list.iter().map(text).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}
