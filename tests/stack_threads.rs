//! Stacks over generated and real captures: results, and packets that are written, do not depend on the
//! number of threads.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use flowgauge_components::registry;
use flowgauge_runtime::stacks::{Runner, RunnerOptions};
use flowgauge_stack::{Program, ResultValue, Sources, check, parse};

/// What is run; `FILE` is where it writes.
const STACKS: &str = "
[stack two]
ipfragswitch ( ipfragdemux < ipreass > )
ipprotoswitch ( tcpscan count | udpscan bytes | icmpscan count ) output { FILE.1.pcapng }
[stack directions]
tcpscan - tcpcnxdemux < tcpdirdemux < count > > tcpcnxdemux { timeout = 2, end = closed } < identity > bytes { payload }
[stack sequence]
tcpscan - tcpcnxdemux < tcpreseq > bytes
[stack records]
flows count
[stack hosts]
ipcnxdemux { timeout = 1 } < count identity > sample { 7 } output { FILE.2.pcapng } thread { queue = 2 } count
[stack same]
ipcnxdemux { timeout = 1 } < count identity > filter { ip } count
[stack ports]
tcpscan tcpportdemux < count > discard
";

/// Presets and how large a part of them.
const PRESETS: [(&str, &str); 4] = [
    ("hostile", "0.02"),
    ("zoo", "1"),
    ("mix", "0.002"),
    ("syn", "0.002"),
];

/// One of so many captures of the corpora.
const STRIDE: usize = 7;

/// Where results do depend on it: time stamps jump, and a packet of another pair of hosts in the same batch
/// makes `flows` believe that, or ends what waits in `ipreass`.
const EXCEPTIONS: [&str; 2] = ["babel_update_oobr.pcap", "olsr-oobr-1.pcap"];

#[test]
fn generated_traces() {
    let folder = support::scratch("stack-threads");
    let captures = PRESETS.iter().map(|(preset, scale)| {
        let path = folder.join(format!("{preset}.pcap"));
        let name = path.display().to_string();
        let made =
            support::flowgauge::run(["generate", preset, "--scale", scale, "-q", "-w", &name]);
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        path
    });
    let captures: Vec<PathBuf> = captures.collect();
    compare(&folder, &captures, &[2, 4]);
}

#[test]
fn real_captures() {
    let Some(corpora) = support::corpora() else {
        return;
    };
    let is_capture = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
    };
    let all = support::files_below(&corpora, &is_capture);
    let is_excepted = |path: &PathBuf| EXCEPTIONS.iter().any(|name| path.ends_with(name));
    let captures = all.into_iter().step_by(STRIDE);
    let captures: Vec<PathBuf> = captures.filter(|path| !is_excepted(path)).collect();
    assert!(captures.len() > 50, "{}", captures.len());
    compare(&support::scratch("stack-threads-real"), &captures, &[2]);
}

/// What came of a run: a line for each component.
fn run(capture: &Path, file: &Path, workers: usize) -> Vec<String> {
    let options = RunnerOptions {
        workers,
        ..RunnerOptions::default()
    };
    let mut runner = Runner::new(program(file), &options).expect("it can begin");
    let mut lines = Vec::new();
    match flowgauge_capture::open(capture) {
        Err(error) => lines.push(error.to_string()),
        Ok(mut source) => loop {
            match runner.step(&mut source) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => lines.push(error.to_string()),
            }
        },
    }
    runner.finish();
    let mut failed = Vec::new();
    for failure in runner.failures() {
        lines.push(format!("{}: {}", failure.stack, failure.failure));
        failed.push(failure.stack);
    }
    let snapshot = runner.snapshot();
    let stacks = runner.stacks().iter().zip(&snapshot.stacks).enumerate();
    for (index, (stack, state)) in stacks {
        if failed.contains(&index) {
            // How far the other threads had come is nobody's business.
            continue;
        }
        for ((_, node), state) in stack.iter().zip(&state.components) {
            let result = state.result.as_ref().and_then(ResultValue::number);
            let name = stack.name.as_deref().unwrap_or("");
            let items = state.passed.items;
            lines.push(format!("{name}.{}: {items} items, {result:?}", node.label));
        }
    }
    for number in 1..=2 {
        if !failed.is_empty() {
            continue;
        }
        let path = PathBuf::from(format!("{}.{number}.pcapng", file.display()));
        let bytes = fs::read(&path).unwrap_or_default();
        let sum = bytes.iter().fold(0u64, |sum, &byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        lines.push(format!("file {number}: {} bytes, {sum:x}", bytes.len()));
        let _ = fs::remove_file(&path);
    }
    lines
}

fn program(file: &Path) -> Program {
    let mut sources = Sources::default();
    let text = STACKS.replace("FILE", &file.display().to_string());
    let id = sources.add("test", text).expect("room");
    let document = parse(&sources, id).unwrap_or_else(|error| panic!("{}", error.show(&sources)));
    let checked = check(&document, &registry());
    let said = checked.diagnostics.iter();
    let said: Vec<String> = said.map(|found| found.show(&sources).to_string()).collect();
    checked
        .program
        .unwrap_or_else(|| panic!("{}", said.join("\n")))
}

fn compare(folder: &Path, captures: &[PathBuf], workers: &[usize]) {
    let numbered: Vec<(usize, &PathBuf)> = captures.iter().enumerate().collect();
    let differ = support::in_parallel(&numbered, 2, |&(number, capture)| {
        let file = folder.join(number.to_string());
        let one = run(capture, &file, 1);
        let mut differ = Vec::new();
        for &workers in workers {
            let other = run(capture, &file, workers);
            let lines = one.iter().zip(&other);
            let different: Vec<String> = lines
                .filter(|(one, other)| one != other)
                .map(|(one, other)| format!("{one} <> {other}"))
                .collect();
            if one.len() != other.len() || !different.is_empty() {
                let name = capture.display();
                differ.push(format!("{name}, {workers} workers: {different:?}"));
            }
        }
        differ
    });
    let differ = differ.concat();
    assert!(
        differ.is_empty(),
        "{} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
}
