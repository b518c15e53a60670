//! Runs of the program.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// `flowgauge stack run` in a folder.
pub(crate) fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command
        .current_dir(folder)
        .args(["stack", "run"])
        .args(words);
    command.stdin(Stdio::null());
    command
}

/// One that ends by itself.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The results of one that went well.
pub(crate) fn good(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    results(&String::from_utf8_lossy(&output.stdout))
}

fn results(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The rows of `input`'s result: partition and columns.
pub(crate) fn rows(results: &[Value]) -> Vec<(String, Value)> {
    let rows = results.iter().filter(|it| it["component"] == "input");
    let rows = rows.map(|it| it["row"].clone());
    rows.map(|row| (row["sender"].as_str().unwrap().to_owned(), row))
        .collect()
}

pub(crate) fn number(row: &Value, column: &str) -> u64 {
    row[column].as_u64().unwrap()
}

/// One that goes on.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    stdout: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (words, lines) = (said.clone(), BufReader::new(child.stderr.take().unwrap()));
        let listener = thread::spawn(move || {
            for line in lines.lines() {
                *words.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        let mut out = child.stdout.take().unwrap();
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        Running {
            child,
            said,
            listener: Some(listener),
            stdout: Some(stdout),
        }
    }

    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// How many partitions it says that it has.
    pub(crate) fn partitions(&self) -> usize {
        let said = self.said();
        let last = said
            .lines()
            .rev()
            .find(|line| line.contains("partitions here"));
        let count = last.and_then(|line| line.split(": ").nth(2)?.split(' ').next()?.parse().ok());
        count.unwrap_or(0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// How it ended, and what it said.
    pub(crate) fn ended(mut self) -> (Output, String) {
        let status = self.child.wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let said = self.said();
        let output = Output {
            status,
            stdout: stdout.into_bytes(),
            stderr: said.clone().into_bytes(),
        };
        (output, said)
    }

    /// The results of one that is told to end.
    pub(crate) fn end(self) -> Vec<Value> {
        self.signal(Signal::SIGINT);
        good(&self.ended().0)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole lines of a file that may not be there yet.
pub(crate) fn lines(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    let whole = text.split_inclusive(|byte| *byte == b'\n');
    let whole = whole.filter_map(|line| line.strip_suffix(b"\n"));
    whole
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect()
}
