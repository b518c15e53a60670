//! Runs every test and says how many ran, failed and were skipped, and what was not checked for which reason.
//!
//! A test that cannot run on this machine writes a line `SKIPPED <test> <reason>` to the process's
//! standard error (not through `eprintln!`, which the harness captures) and returns. With `CI` set, as `.ci/run`
//! does, a skipped test is a failure.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
}

pub(crate) fn run(extra: &[&str]) -> Result<ExitCode, String> {
    let mut child = Command::new(super::cargo())
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(extra)
        .current_dir(super::root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let (sender, lines) = mpsc::channel();
    let mut readers = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        readers.push(forward(stdout, sender.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        readers.push(forward(stderr, sender.clone()));
    }
    drop(sender);
    let mut tally = Tally::default();
    for line in lines {
        println!("{line}");
        tally.read(&line);
    }
    for reader in readers {
        reader
            .join()
            .map_err(|_| "a reader thread panicked".to_owned())?;
    }
    let status = child
        .wait()
        .map_err(|error| format!("cargo test: {error}"))?;

    println!();
    for (reason, tests) in tally.unchecked() {
        println!("not checked: {reason} ({})", tests.join(", "));
    }
    if tally.ignored > 0 {
        println!("ignored by attribute: {}", tally.ignored);
    }
    // A skipped test returned early and so was counted as passed by the harness.
    let skipped = tally.skipped.len() as u64;
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed.saturating_sub(skipped),
        tally.failed,
        skipped + tally.ignored
    );
    if tally.passed + tally.failed == 0 {
        return Err("no test ran".to_owned());
    }
    let complete = skipped + tally.ignored == 0;
    if !complete && in_ci() {
        println!("with CI set, every test has to run: install what is missing, or unset CI");
    }
    Ok(
        if status.success() && tally.failed == 0 && (complete || !in_ci()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        },
    )
}

/// Whether this runs as continuous integration, which has everything that the tests need.
fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

fn forward(
    stream: impl Read + Send + 'static,
    sender: mpsc::Sender<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(length) if length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    })
}

impl Tally {
    /// The skipped tests, by what they lack.
    fn unchecked(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
        for line in &self.skipped {
            let (test, reason) = line.split_once(' ').unwrap_or((line, "no reason given"));
            reasons.entry(reason).or_default().push(test);
        }
        reasons
    }

    fn read(&mut self, line: &str) {
        // Harness output and a test's own line can share one line: look anywhere in it.
        if let Some(at) = line.find("SKIPPED ") {
            self.skipped.push(line[at + "SKIPPED ".len()..].to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        let numbers = result.split_once(". ").map_or(result, |(_, rest)| rest);
        for part in numbers.split("; ") {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_result_lines() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        tally.read("test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        tally.read("test zeek_logs ... SKIPPED zeek_logs no corpora");
        assert_eq!((tally.passed, tally.failed, tally.ignored), (5, 4, 1));
        assert_eq!(tally.skipped, ["zeek_logs no corpora"]);
        tally.read("SKIPPED tshark_flows no corpora");
        tally.read("SKIPPED dhcp no tshark");
        let unchecked: Vec<_> = tally.unchecked().into_iter().collect();
        assert_eq!(
            unchecked,
            [
                ("no corpora", vec!["zeek_logs", "tshark_flows"]),
                ("no tshark", vec!["dhcp"])
            ]
        );
    }
}
