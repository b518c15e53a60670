//! The main job on a generated trace (and on a real capture where one is given), with the defaults.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use serde_json::Value;

use crate::live;

pub(crate) fn run() -> Result<ExitCode, String> {
    let binary = build()?;
    let out = super::root().join("demo");
    let streams = out.join("streams");
    // A second run starts afresh: stream files are appended to, never overwritten.
    if streams.exists() {
        fs::remove_dir_all(&streams).map_err(|error| format!("{}: {error}", streams.display()))?;
    }
    fs::create_dir_all(&out)
        .map_err(|error| format!("cannot create {}: {error}", out.display()))?;
    let trace = out.join("mix.pcap");

    heading("a synthetic trace: TCP and UDP, HTTP, DNS and TLS-like payloads, loss, reordering");
    flowgauge(
        &binary,
        [
            OsStr::new("generate"),
            OsStr::new("mix"),
            OsStr::new("--scale"),
            OsStr::new("0.02"),
            OsStr::new("-w"),
            trace.as_os_str(),
        ],
        None,
    )?;
    let mut inputs = vec![("mix".to_owned(), trace)];
    if let Some(real) = real_capture() {
        inputs.push(("real".to_owned(), real));
    }
    for (name, input) in &inputs {
        heading(&format!("report: what is in {}", input.display()));
        show(
            &binary,
            name,
            ["report".as_ref(), "-r".as_ref(), input.as_os_str()],
            None,
        )?;

        let flows = out.join(format!("{name}-flows.jsonl"));
        heading("flows: one JSON line per flow");
        show(
            &binary,
            name,
            ["flows".as_ref(), "-r".as_ref(), input.as_os_str()],
            Some(&flows),
        )?;
        show_first_lines(&flows, 2)?;

        heading("streams: each direction's bytes in a file");
        let folder = streams.join(name);
        show(
            &binary,
            name,
            [
                "streams".as_ref(),
                "-r".as_ref(),
                input.as_os_str(),
                "--out".as_ref(),
                folder.as_os_str(),
            ],
            None,
        )?;
    }
    heading("streams against what the generator says it sent");
    verify(&binary, &inputs[0].1)?;

    heading("live: the loopback interface, while this program fetches pages from itself");
    let live = out.join("live-flows.jsonl");
    let captured = live::run(&binary, &live)?;

    heading("results");
    for (name, input) in &inputs {
        println!("{name}: capture  {}", input.display());
        println!(
            "{name}: flows    {}",
            out.join(format!("{name}-flows.jsonl")).display()
        );
        println!("{name}: streams  {}", streams.join(name).display());
    }
    if captured {
        println!("live: flows    {}", live.display());
    }
    println!(
        "try:  {} flows -r {} --top 10 --by src_ip --sum src_bytes",
        binary.display(),
        inputs[0].1.display()
    );
    println!("try:  {} --help", binary.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the program; where it is.
fn build() -> Result<PathBuf, String> {
    let status = Command::new(super::cargo())
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "flowgauge-cli",
        ])
        .current_dir(super::root())
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err("the build failed; the compiler's messages are above".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| super::root().join("target"), PathBuf::from);
    Ok(target.join("release/flowgauge"))
}

/// A real capture to show: FLOWGAUGE_DEMO_CAPTURE, or a known one of the test corpora if they are
/// there.
fn real_capture() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FLOWGAUGE_DEMO_CAPTURE") {
        return Some(PathBuf::from(path));
    }
    let corpora = std::env::var_os("FLOWGAUGE_CORPORA")
        .map_or_else(|| super::root().join("../shared/corpora"), PathBuf::from);
    [
        "zeek/Traces/wikipedia.trace",
        "zeek/Traces/wikipedia.pcap",
        "tcpflow/tests/test1.pcap",
    ]
    .iter()
    .map(|name| corpora.join(name))
    .find(|path| path.is_file())
    .and_then(|path| path.canonicalize().ok())
}

/// Shows the beginning of a file of records.
fn show_first_lines(path: &Path, count: usize) -> Result<(), String> {
    let records = read(path)?;
    for line in records.lines().take(count) {
        println!("{line}");
    }
    println!(
        "... {} records in {}",
        records.lines().count(),
        path.display()
    );
    Ok(())
}

/// Compares the SHA-256 of every stream with the one in the trace's truth file.
fn verify(binary: &Path, trace: &Path) -> Result<(), String> {
    let listed = trace.with_extension("streams.jsonl");
    flowgauge(
        binary,
        [
            "streams".as_ref(),
            "-q".as_ref(),
            "-r".as_ref(),
            trace.as_os_str(),
            "--list".as_ref(),
            "--hash".as_ref(),
        ],
        Some(&listed),
    )?;
    let mut found = HashSet::new();
    for line in read(&listed)?.lines() {
        found.insert(stream_key(&parse(line)?, "sha256"));
    }
    let mut name = trace.as_os_str().to_owned();
    name.push(".truth.json");
    let truth = parse(&read(Path::new(&name))?)?;
    let streams = truth["streams"]
        .as_array()
        .ok_or("the truth lists no streams")?;
    let sent: Vec<&Value> = streams
        .iter()
        .filter(|stream| stream["bytes"] != 0)
        .collect();
    let right = sent
        .iter()
        .filter(|stream| found.contains(&stream_key(stream, "captured_sha256")))
        .count();
    println!(
        "{right} of {} streams have the SHA-256 that was sent",
        sent.len()
    );
    if right == sent.len() {
        Ok(())
    } else {
        Err("some streams differ".to_owned())
    }
}

fn stream_key(stream: &Value, hash: &str) -> String {
    ["src_ip", "src_port", "dst_ip", "dst_port", "proto", hash]
        .map(|name| stream[name].to_string())
        .join(" ")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn heading(text: &str) {
    println!("\n== {text}");
}

fn flowgauge<'a>(
    binary: &Path,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    output: Option<&Path>,
) -> Result<(), String> {
    let status = status_of(binary, arguments, output)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("flowgauge ended with {status}"))
    }
}

/// As [`flowgauge`], for one of the inputs: a real capture may be damaged, and what could be read of
/// it is shown.
fn show<'a>(
    binary: &Path,
    name: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    output: Option<&Path>,
) -> Result<(), String> {
    let status = status_of(binary, arguments, output)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(1) if name == "real" => {
            println!("flowgauge ended with {status}, its messages say why; the demo goes on");
            Ok(())
        }
        _ => Err(format!("flowgauge ended with {status}")),
    }
}

fn status_of<'a>(
    binary: &Path,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    output: Option<&Path>,
) -> Result<ExitStatus, String> {
    let mut command = Command::new(binary);
    command.args(arguments);
    let shown: Vec<String> = command
        .get_args()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    println!("$ flowgauge {}", shown.join(" "));
    if let Some(path) = output {
        let file = File::create(path)
            .map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        command.stdout(Stdio::from(file));
    }
    command
        .status()
        .map_err(|error| format!("cannot start {}: {error}", binary.display()))
}
