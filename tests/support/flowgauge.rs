//! Runs the program under test.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// A run takes milliseconds; this is only there to end a hang.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What a run of the program gave.
pub(crate) struct Outcome {
    /// The exit code, `None` when a signal or the time limit ended it.
    pub code: Option<i32>,
    /// Whether it had to be killed because it did not come to an end.
    pub hung: bool,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    /// Standard output as JSON lines.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        String::from_utf8_lossy(&self.stdout)
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("not JSON: {error}: {line}"))
            })
            .collect()
    }
}

/// Runs `flowgauge` with `arguments`.
pub(crate) fn run<I, S>(arguments: I) -> Outcome
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(arguments);
    run_command(command)
}

/// Runs `flowgauge` with `arguments` and a file as its standard input, through a pipe.
pub(crate) fn run_with_input<I, S>(arguments: I, input: &Path) -> Outcome
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(arguments);
    let bytes = std::fs::read(input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    run_piped(command, Some(bytes))
}

/// Runs any command to its end, or kills it after a time limit.
pub(crate) fn run_command(command: Command) -> Outcome {
    run_piped(command, None)
}

fn run_piped(mut command: Command, input: Option<Vec<u8>>) -> Outcome {
    let mut child = command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), input) {
        // It may end before it has read everything.
        std::thread::spawn(move || pipe.write_all(&bytes));
    }
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    // Both pipes close when the process ends: waiting for them is waiting for it.
    let (stdout, hung) = match stdout.recv_timeout(TIME_LIMIT) {
        Ok(bytes) => (bytes, false),
        Err(_) => {
            kill(&mut child);
            (stdout.recv().unwrap_or_default(), true)
        }
    };
    let stderr = stderr.recv().unwrap_or_default();
    let status = child
        .wait()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Outcome {
        code: if hung { None } else { status.code() },
        hung,
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

fn kill(child: &mut Child) {
    // It may have ended in between.
    let _ = child.kill();
}

fn drain(pipe: Option<impl std::io::Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

/// Flow records of one capture, with further options.
pub(crate) fn flows(capture: &Path, options: &[&str], filter: Option<&str>) -> Outcome {
    let mut arguments: Vec<&OsStr> = vec![
        "flows".as_ref(),
        "--json".as_ref(),
        "-r".as_ref(),
        capture.as_ref(),
    ];
    arguments.extend(options.iter().map(AsRef::<OsStr>::as_ref));
    if let Some(filter) = filter {
        // `-r` takes several files: the separator keeps the filter from being read as one.
        arguments.push("--".as_ref());
        arguments.push(filter.as_ref());
    }
    run(arguments)
}
