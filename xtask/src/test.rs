//! Runs every test and says how many ran, failed and were skipped, and what was not checked for which reason.
//!
//! A test that cannot run on this machine writes a line `SKIPPED <test> <reason>` to the process's
//! standard error (not through `eprintln!`, which the harness captures) and returns. With `CI` set, as `.ci/run`
//! does, a skipped test is a failure.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Programs that measure what load would change, or make namespaces and processes of their own: they run one after the
/// other when nothing else does.
const ALONE: [&str; 6] = [
    "all_captures",
    "allocations",
    "live",
    "shared",
    "shared_live",
    "shim",
];

/// Builds all tests and runs them, with these arguments for each program: names of tests, options of the harness.
pub(crate) fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let mut programs = build()?;
    let mut doctests = cargo_test();
    doctests.args(["--doc", "--no-fail-fast", "--"]);
    programs.push(Program {
        name: "doctests".to_owned(),
        command: doctests,
    });
    for program in &mut programs {
        program.command.args(arguments);
    }
    let is_alone = |program: &Program| ALONE.contains(&program.name.as_str());
    let (alone, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_alone);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut tally = Tally::default();
    run_in_lanes(others, cores, &mut tally);
    run_in_lanes(alone, 1, &mut tally);
    tally.report()
}

/// Something that runs tests as one process.
struct Program {
    name: String,
    command: Command,
}

/// How one ended.
struct Ended {
    name: String,
    status: io::Result<ExitStatus>,
    /// What it printed.
    text: String,
    took: Duration,
}

fn cargo_test() -> Command {
    let mut command = Command::new(super::cargo());
    command.current_dir(super::root());
    command.args(["test", "--workspace", "--locked"]);
    command
}

/// The programs of all tests, the largest first: as a rule it takes longest.
fn build() -> Result<Vec<Program>, String> {
    let built = cargo_test()
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |pointer| message.pointer(pointer).and_then(Value::as_str);
        let (Some(path), Some(name), Some(manifest), Some(true)) = (
            text("/executable"),
            text("/target/name"),
            text("/manifest_path"),
            message.pointer("/profile/test").and_then(Value::as_bool),
        ) else {
            continue;
        };
        let mut command = Command::new(path);
        command.current_dir(Path::new(manifest).parent().unwrap_or(Path::new("/")));
        let program = Program {
            name: name.to_owned(),
            command,
        };
        let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
        programs.push((bytes, program));
    }
    programs.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    Ok(programs.into_iter().map(|(_, program)| program).collect())
}

fn run_in_lanes(programs: Vec<Program>, lanes: usize, tally: &mut Tally) {
    let queue = Mutex::new(programs.into_iter());
    let next = || queue.lock().ok()?.next();
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(program) = next() {
                    println!("running {}", program.name);
                    if sender.send(program.run()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for program in ended {
            tally.add(&program);
        }
    });
}

impl Program {
    fn run(self) -> Ended {
        let began = Instant::now();
        let mut text = Vec::new();
        let status = wait(self.command, &mut text);
        Ended {
            name: self.name,
            status,
            text: String::from_utf8_lossy(&text).into_owned(),
            took: began.elapsed(),
        }
    }
}

/// Runs a command to its end; what it prints, in the order in which it does.
fn wait(mut command: Command, text: &mut Vec<u8>) -> io::Result<ExitStatus> {
    let (mut output, end) = io::pipe()?;
    command.stdin(Stdio::null());
    command.stdout(end.try_clone()?).stderr(end);
    let mut child = command.spawn()?;
    // It holds the writing end.
    drop(command);
    output.read_to_end(text)?;
    child.wait()
}

/// Whether this runs as continuous integration, which has everything that the tests need.
fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: Vec<String>,
    /// Tests that failed, and programs that did otherwise.
    failures: Vec<String>,
}

impl Tally {
    /// Adds what a program printed, and prints it.
    fn add(&mut self, program: &Ended) {
        let (name, seconds) = (&program.name, program.took.as_secs_f64());
        println!("{name}, {seconds:.1} s:\n{}", program.text);
        let before = self.failures.len();
        for line in program.text.lines() {
            self.read(line);
            if let Some(test) = line.strip_suffix(" ... FAILED") {
                let test = test.trim_start_matches("test ");
                self.failures.push(format!("{name}: {test}"));
            }
        }
        let end = match &program.status {
            Ok(status) if status.success() => return,
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        if self.failures.len() == before {
            self.failures.push(format!("{name}: {end}"));
        }
    }

    /// Says what came of all.
    fn report(&self) -> Result<ExitCode, String> {
        for (reason, tests) in self.unchecked() {
            println!("not checked: {reason} ({})", tests.join(", "));
        }
        if self.ignored > 0 {
            println!("ignored by attribute: {}", self.ignored);
        }
        for failure in &self.failures {
            println!("failed: {failure}");
        }
        // A skipped test returned early and so was counted as passed by the harness.
        let skipped = self.skipped.len() as u64;
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed.saturating_sub(skipped),
            self.failed,
            skipped + self.ignored
        );
        if self.passed + self.failed == 0 {
            return Err("no test ran".to_owned());
        }
        let complete = skipped + self.ignored == 0;
        if !complete && in_ci() {
            println!("with CI set, every test has to run: install what is missing, or unset CI");
        }
        Ok(if self.failures.is_empty() && (complete || !in_ci()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

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
    use std::fs;
    use std::path::PathBuf;

    fn sources(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path, text);
            }
        }
    }

    /// Tests in a file that no program is made of would never run.
    #[test]
    fn every_file_with_tests_is_declared() {
        let root = super::super::root();
        let mut found = BTreeMap::new();
        sources(&root.join("tests"), &mut found);
        sources(&root.join("crates"), &mut found);
        let manifest = fs::read_to_string(root.join("crates/cli/Cargo.toml")).unwrap();
        let with_tests = found.iter().filter(|(_, text)| text.contains("#[test]"));
        for (path, _) in with_tests {
            let mut module = path.with_extension("");
            if module.ends_with("mod") {
                module.pop();
            }
            let name = module.file_name().unwrap().to_str().unwrap();
            let folder = module.parent().unwrap();
            let declaration = format!("mod {name};");
            let is_declared = found.iter().any(|(other, text)| {
                let beside = other.parent() == Some(folder) || other.with_extension("") == folder;
                let by_path = format!("#[path = \"support/{name}.rs\"]\n{declaration}");
                let above = other.parent() == folder.parent() && text.contains(&by_path);
                above || beside && text.contains(&declaration)
            });
            let is_program = if folder == root.join("tests") {
                manifest.contains(&format!("/tests/{name}.rs\""))
            } else {
                folder.ends_with("tests") || matches!(name, "lib" | "main")
            };
            assert!(is_declared || is_program, "{}", path.display());
        }
    }

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
