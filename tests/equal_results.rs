//! Where no bound is hit, what comes out depends neither on the number of threads, nor on the key of the hashes, nor on
//! which of several ways the work is done in: flows, streams, matches, logs and reports of generated and of real captures.

use crate::support;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Presets and how large a part of them.
const PRESETS: [(&str, &str); 6] = [
    ("hostile", "0.02"),
    ("zoo", "1"),
    ("mix", "0.002"),
    ("late", "0.002"),
    ("loss", "0.002"),
    ("small", "0.002"),
];

/// What is run; patterns come behind `--patterns`. The last two know some things on one core only: `stack_files` runs
/// them on two.
const COMMANDS: [&[&str]; 8] = [
    &["flows", "--json"],
    &["streams", "--list", "--hash", "--gaps", "--json"],
    &["streams", "--mode", "wait", "--hash", "--json"],
    &["streams", "--mode", "fast", "--hash", "--json"],
    &["streams", "--mode", "strict", "--hash", "--json"],
    &["match", "--json", "--patterns"],
    &["log", "--flows", "--anomalies"],
    &["report", "--json"],
];

/// How many of the commands run on several threads.
const ON_SEVERAL: usize = 6;

/// Bytes that occur in nearly everything.
const PATTERNS: &str = "HTTP\nab\n|00 00|\n|0d 0a|\nthe\n";

/// One of so many captures of the corpora.
const STRIDE: usize = 41;

/// A way to run a command.
#[derive(Clone, Copy, Debug)]
struct Run {
    workers: &'static str,
    /// What `FLOWGAUGE_TEST` says.
    ways: &'static str,
}

/// What all others are compared with.
const FIRST: Run = Run {
    workers: "1",
    ways: "hash=1,read-files",
};

const OTHERS: [Run; 4] = [
    Run {
        workers: "1",
        ways: "hash=2,general-flows,portable-sums,read-files",
    },
    Run {
        workers: "1",
        ways: "hash=3,mapped-files",
    },
    Run {
        workers: "2",
        ways: "hash=4,mapped-files",
    },
    Run {
        workers: "3",
        ways: "hash=5,read-files",
    },
];

#[test]
fn generated_traces_give_the_same_in_any_way() {
    let folder = support::scratch("equal-results");
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
    let lines = compare(&folder, &captures);
    for (capture, commands) in captures.iter().zip(lines) {
        for (command, lines) in COMMANDS.iter().zip(commands) {
            let least = if command[0] == "report" { 1 } else { 5 };
            assert!(
                lines >= least,
                "{command:?} of {}: {lines}",
                capture.display()
            );
        }
    }
}

#[test]
fn real_captures_give_the_same_in_any_way() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let captures = support::captures_below(&corpora, STRIDE);
    assert!(captures.len() > 50, "{}", captures.len());
    let lines = compare(&support::scratch("equal-results-real"), &captures);
    let lines: usize = lines.concat().into_iter().sum();
    assert!(lines > 1000, "{lines}");
}

/// Runs everything over the captures; how many lines there were, by capture and command.
fn compare(folder: &Path, captures: &[PathBuf]) -> Vec<Vec<usize>> {
    let patterns = folder.join("patterns");
    std::fs::write(&patterns, PATTERNS).expect("the patterns can be written");
    let patterns = patterns.display().to_string();
    let results = support::in_parallel(captures, 4, |capture| {
        let (mut differ, mut counts, mut runs) = (Vec::new(), Vec::new(), 0);
        for (number, command) in COMMANDS.iter().enumerate() {
            let first = Outcome::of(command, &patterns, capture, FIRST);
            for other in OTHERS {
                if other.workers != "1" && number >= ON_SEVERAL {
                    continue;
                }
                runs += 1;
                let result = Outcome::of(command, &patterns, capture, other);
                // Of a batch packets' headers are looked at first, and where batches end is another place.
                let in_order = other.workers == "1" && other.ways.contains("read-files");
                if let Some(difference) = first.difference(&result, in_order) {
                    differ.push(format!(
                        "{command:?} of {}, {FIRST:?} and {other:?}: {difference}",
                        capture.display()
                    ));
                }
            }
            counts.push(first.lines.len());
        }
        (differ, counts, runs)
    });
    let runs: usize = results.iter().map(|(.., runs)| runs).sum();
    let differ: Vec<&String> = results.iter().flat_map(|(differ, ..)| differ).collect();
    support::say(&format!(
        "\n{} captures, {runs} pairs of runs, {} differ\n",
        captures.len(),
        differ.len()
    ));
    assert!(differ.is_empty(), "{} differ:\n{differ:#?}", differ.len());
    results.into_iter().map(|(_, counts, _)| counts).collect()
}

/// What came of a run.
struct Outcome {
    code: Option<i32>,
    lines: Vec<String>,
    messages: String,
}

impl Outcome {
    fn of(command: &[&str], patterns: &str, capture: &Path, run: Run) -> Outcome {
        let mut program = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
        program.env("FLOWGAUGE_TEST", run.ways).args(command);
        if command[0] == "match" {
            program.arg(patterns);
        }
        program.args(["-q", "--workers", run.workers, "-r"]);
        program.arg(capture);
        let outcome = support::flowgauge::run_command(program);
        assert!(!outcome.hung, "{command:?} of {}", capture.display());
        let output = String::from_utf8_lossy(&outcome.stdout);
        Outcome {
            code: outcome.code,
            lines: output.lines().map(str::to_owned).collect(),
            messages: outcome.stderr,
        }
    }

    /// Where another differs, whose lines may come in another order.
    fn difference(&self, other: &Outcome, in_order: bool) -> Option<String> {
        if self.code != other.code {
            return Some(format!("codes {:?}, {:?}", self.code, other.code));
        }
        if self.messages != other.messages {
            return Some(format!("{:?} <> {:?}", self.messages, other.messages));
        }
        let (mut these, mut those) = (self.lines.clone(), other.lines.clone());
        if !in_order {
            these.sort_unstable();
            those.sort_unstable();
        }
        if these.len() != those.len() {
            return Some(format!("{} and {} lines", these.len(), those.len()));
        }
        let mut pairs = these.iter().zip(&those);
        let (one, other) = pairs.find(|(one, other)| one != other)?;
        Some(format!("{one:.600} <> {other:.600}"))
    }
}
