//! Where no bound is hit, what comes out does not depend on the number of threads: flows, streams, and
//! matches of generated and of real captures, with one, two and three workers.

mod support;

use std::path::{Path, PathBuf};

/// Presets and how large a part of them.
const PRESETS: [(&str, &str); 6] = [
    ("hostile", "0.02"),
    ("zoo", "1"),
    ("mix", "0.002"),
    ("late", "0.002"),
    ("loss", "0.002"),
    ("small", "0.002"),
];

/// What is run; patterns come behind `--patterns`.
const COMMANDS: [&[&str]; 6] = [
    &["flows"],
    &["streams", "--list", "--hash", "--gaps"],
    &["streams", "--mode", "wait", "--hash"],
    &["streams", "--mode", "fast", "--hash"],
    &["streams", "--mode", "strict", "--hash"],
    &["match", "--patterns"],
];

/// Bytes that occur in nearly everything.
const PATTERNS: &str = "HTTP\nab\n|00 00|\n|0d 0a|\nthe\n";

/// One of so many captures of the corpora.
const STRIDE: usize = 9;

#[test]
fn generated_traces_give_the_same_on_any_number_of_workers() {
    let folder = support::scratch("threads");
    let captures: Vec<PathBuf> = PRESETS
        .iter()
        .map(|(preset, scale)| {
            let path = folder.join(format!("{preset}.pcap"));
            let name = path.display().to_string();
            let arguments = ["generate", preset, "--scale", scale, "-q", "-w", &name];
            let made = support::flowgauge::run(arguments);
            assert_eq!(made.code, Some(0), "{}", made.stderr);
            path
        })
        .collect();
    let records = compare(&folder, &captures, &COMMANDS);
    for (capture, commands) in captures.iter().zip(records) {
        for (command, records) in COMMANDS.iter().zip(commands) {
            assert!(
                records >= 5,
                "{command:?} of {}: {records}",
                capture.display()
            );
        }
    }
}

#[test]
fn real_captures_give_the_same_on_any_number_of_workers() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let is_capture = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
    };
    let all = support::files_below(&corpora, &is_capture);
    let captures: Vec<PathBuf> = all.into_iter().step_by(STRIDE).collect();
    assert!(captures.len() > 50, "{}", captures.len());
    let records = compare(&support::scratch("threads-real"), &captures, &COMMANDS);
    let records: usize = records.concat().into_iter().sum();
    assert!(records > 1000, "{records}");
}

/// Runs everything over the captures; how many records there were, by capture and command.
fn compare(folder: &Path, captures: &[PathBuf], commands: &[&[&str]]) -> Vec<Vec<usize>> {
    let patterns = folder.join("patterns");
    std::fs::write(&patterns, PATTERNS).expect("the patterns can be written");
    let patterns = patterns.display().to_string();
    let results = support::in_parallel(captures, 4, |capture| {
        let mut differ = Vec::new();
        let mut counts = Vec::new();
        for command in commands {
            let (code, one) = records(command, &patterns, capture, "1");
            for workers in ["2", "3"] {
                let (other_code, other) = records(command, &patterns, capture, workers);
                let only = |these: &[String], those: &[String]| {
                    these
                        .iter()
                        .find(|line| those.binary_search(line).is_err())
                        .cloned()
                };
                if (code, &one) != (other_code, &other) {
                    differ.push(format!(
                        "{command:?} of {}, {workers} workers: {code:?} and {other_code:?}, {} and {} \
                         records; only with one: {:?}; only with {workers}: {:?}",
                        capture.display(),
                        one.len(),
                        other.len(),
                        only(&one, &other),
                        only(&other, &one)
                    ));
                }
            }
            counts.push(one.len());
        }
        (differ, counts)
    });
    let (differ, counts): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let differ = differ.concat();
    assert!(
        differ.is_empty(),
        "{} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
    counts
}

/// The exit code, and the records in an order of their own.
fn records(
    command: &[&str],
    patterns: &str,
    capture: &Path,
    workers: &str,
) -> (Option<i32>, Vec<String>) {
    let path = capture.display().to_string();
    let mut arguments = command.to_vec();
    if command.first() == Some(&"match") {
        arguments.push(patterns);
    }
    arguments.extend(["--json", "-q", "--workers", workers, "-r", &path]);
    let outcome = support::flowgauge::run(arguments);
    assert!(!outcome.hung, "{command:?} of {path}");
    let records = outcome.json_lines();
    let records = records.into_iter().map(|record| record.to_string());
    let mut lines: Vec<String> = records.collect();
    lines.sort_unstable();
    (outcome.code, lines)
}
