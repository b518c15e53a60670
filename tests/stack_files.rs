//! The stacks of the folder `stacks` over real captures: what they print and write does not depend on the
//! number of threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use serde_json::Value;

/// Each stack takes one of so many captures of the corpora, each capture is another's.
const STRIDE: usize = 19;

#[test]
fn stacks_give_the_same_on_one_and_two_threads() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let stride = std::env::var("FLOWGAUGE_STRIDE").ok();
    let stride: usize = stride.map_or(STRIDE, |text| text.parse().expect("a number"));
    let is_capture = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
    };
    let captures = support::files_below(&corpora, &is_capture);
    let scratch = support::scratch("stack-files");
    let mut runs: Vec<(PathBuf, &PathBuf, usize)> = Vec::new();
    for (number, stack) in support::stacks::presets().iter().enumerate() {
        let copy = scratch.join(format!("{}.stack", stack.name));
        fs::write(&copy, &stack.text).expect("room");
        let mine = captures.iter().skip(number % stride).step_by(stride);
        let first = runs.len();
        runs.extend(
            mine.zip(first..)
                .map(|(capture, run)| (copy.clone(), capture, run)),
        );
    }
    // One makes the key that the others use.
    if let Some((stack, capture, _)) = runs
        .iter()
        .find(|(stack, ..)| stack.ends_with("web-anonymized.stack"))
    {
        run(stack, capture, "1", &scratch.join("run-0"));
    }
    let seen = support::in_parallel(&runs, 2, |(stack, capture, number)| {
        let of = |workers: &str| {
            let folder = scratch.join(format!("run-{number}"));
            run(stack, capture, workers, &folder)
        };
        let (one, two) = (of("1"), of("2"));
        let made = one.iter().filter(|(what, _)| *what != "code");
        let lines: usize = made.map(|(_, lines)| lines.len()).sum();
        let name = stack
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let differ = (one != two).then(|| difference(&one, &two));
        (
            name,
            lines,
            differ.map(|text| format!("{} {}: {text}", stack.display(), capture.display())),
        )
    });
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, count, _) in &seen {
        *lines.entry(name).or_default() += count;
    }
    let differ: Vec<&String> = seen
        .iter()
        .filter_map(|(.., differ)| differ.as_ref())
        .collect();
    support::say(&format!(
        "\nstacks on captures: {} runs, {} differ\n",
        runs.len(),
        differ.len()
    ));
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
    // One that never says anything is not compared.
    let silent: Vec<_> = lines.iter().filter(|(_, count)| **count == 0).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// What came of a run, by where it was written, in an order of its own.
fn run(
    stack: &Path,
    capture: &Path,
    workers: &str,
    folder: &Path,
) -> BTreeMap<String, Vec<String>> {
    fs::create_dir_all(folder).expect("room");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.current_dir(folder);
    command.args(["stack", "run", "-q", "--json", "--workers", workers, "-f"]);
    command.arg(stack).arg("-r").arg(capture);
    let outcome = support::flowgauge::run_command(command);
    let mut made = BTreeMap::new();
    made.insert("code".to_owned(), vec![format!("{:?}", outcome.code)]);
    let mut output = records(&outcome.stdout);
    if stack.ends_with("log.stack") {
        output.retain(|line| !is_to_a_group(line));
    }
    made.insert("output".to_owned(), output);
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("a file").path();
        let name = path.display().to_string();
        let lines = match name.ends_with(".pcap") {
            true => packets(&path),
            false => records(&fs::read(&path).expect("it is there")),
        };
        made.insert(name, lines);
    }
    fs::remove_dir_all(folder).expect("it is there");
    made
}

fn records(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<String> = text.lines().map(record).collect();
    lines.sort_unstable();
    lines
}

/// Whether a transaction began with a request to many: its reply, of one of them, can be on another core.
fn is_to_a_group(line: &str) -> bool {
    let Ok(record) = serde_json::from_str::<Value>(line) else {
        return false;
    };
    let names = [&record["event_type"], &record["service"]];
    let names = names.into_iter().filter_map(Value::as_str);
    names
        .into_iter()
        .any(|name| matches!(name, "dhcp" | "mdns" | "llmnr" | "netbios"))
}

/// A record without what says in which order things came on several cores.
fn record(line: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(line) else {
        return line.to_owned();
    };
    if let Some(fields) = value.as_object_mut() {
        // Names that were looked up, and requests to many, are known on one core only.
        for part in ["apps", "dns"] {
            fields.remove(part);
        }
    }
    value.to_string()
}

fn packets(path: &Path) -> Vec<String> {
    let mut packets = Vec::new();
    let Ok(mut source) = flowgauge_capture::open(path) else {
        return packets;
    };
    while let Ok(Some(batch)) = source.next_batch() {
        for packet in batch.packets {
            packets.push(format!("{} {:02x?}", packet.time.0, batch.bytes_of(packet)));
        }
    }
    packets.sort_unstable();
    packets
}

fn difference(one: &BTreeMap<String, Vec<String>>, two: &BTreeMap<String, Vec<String>>) -> String {
    for (name, lines) in one {
        let none = Vec::new();
        let others = two.get(name).unwrap_or(&none);
        if lines.len() != others.len() {
            return format!("{name}: {} and {} lines", lines.len(), others.len());
        }
        if let Some((line, other)) = lines.iter().zip(others).find(|(line, other)| line != other) {
            return format!("{name}: {line:.400} <> {other:.400}");
        }
    }
    "other files".to_owned()
}
