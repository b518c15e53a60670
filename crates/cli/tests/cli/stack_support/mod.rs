//! Runs stacks for tests.

#![allow(missing_docs, unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub fn flowgauge(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .args(arguments)
        .output()
        .expect("it runs")
}

pub fn stacks() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stacks")
}

pub fn stack(name: &str) -> String {
    stacks().join(name).display().to_string()
}

/// What a stack prints for a generated trace.
pub fn run(folder: &Path, name: &str, files: &[&str]) -> String {
    let file = stack(name);
    let arguments = [&["stack", "run", "-q", "-f", &file, "-r"], files].concat();
    let output = flowgauge(folder, &arguments);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {messages}");
    String::from_utf8(output.stdout).expect("text")
}

/// What the stack `text` prints for a file on so many threads, and its results if it writes elsewhere.
pub fn printed(folder: &Path, text: &str, file: &str, workers: &str) -> String {
    let arguments = ["stack", "run", "-q", "--json", "--workers", workers];
    let output = flowgauge(
        folder,
        &[&arguments[..], &["-e", text, "-r", file]].concat(),
    );
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {messages}");
    String::from_utf8(output.stdout).expect("text")
}

/// The results of such a run.
pub fn results(folder: &Path, text: &str, file: &str, workers: &str) -> Vec<Value> {
    rows(&printed(folder, text, file, workers))
}

/// The number that a component has for a result.
pub fn number(results: &[Value], component: &str) -> u64 {
    let found = results.iter().find(|row| row["component"] == component);
    let value = found.and_then(|row| row["value"].as_u64());
    value.unwrap_or_else(|| panic!("{component}: {results:?}"))
}

pub fn rows(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

pub fn generate(folder: &Path, preset: &str, flows: &str) -> String {
    let file = format!("{preset}.pcap");
    let arguments = ["generate", preset, "-q", "--flows", flows, "-w", &file];
    assert!(flowgauge(folder, &arguments).status.success());
    file
}

/// What a stack prints on so many threads, sorted.
pub fn sorted(folder: &Path, stack: &str, file: &str, workers: &str) -> Vec<String> {
    let text = printed(folder, stack, file, workers);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// What a command prints, and what the stack prints that it shows.
pub fn both(folder: &Path, command: &[&str], files: &[&str]) -> (String, String) {
    let shown = flowgauge(folder, &[command, &["--show-stack"]].concat());
    assert!(shown.status.success(), "{command:?}");
    fs::write(folder.join("shown.stack"), &shown.stdout).expect("it can be written");
    let check = flowgauge(folder, &["stack", "fmt", "--check", "shown.stack"]);
    assert!(
        check.status.success(),
        "{command:?} is not in the usual layout"
    );
    let text = |arguments: Vec<&str>| {
        let output = flowgauge(folder, &arguments);
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {messages}");
        String::from_utf8(output.stdout).expect("text")
    };
    let by_command = text([command, &["-q", "-r"], files].concat());
    let shown = ["stack", "run", "-q", "-f", "shown.stack", "-r"];
    (by_command, text([&shown, files].concat()))
}
