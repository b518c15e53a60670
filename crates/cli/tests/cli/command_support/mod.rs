//! Runs commands for tests.

#![allow(missing_docs, unreachable_pub)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub(crate) use crate::wait::wait_until;
use serde_json::Value;

/// A folder that goes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("flowgauge-cli-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A small trace of everything, and its truth.
    pub fn trace(&self) -> (PathBuf, Value) {
        let path = self.file("zoo.pcap");
        let trace = path.to_str().unwrap();
        let made = run(&["generate", "-w", trace, "--preset", "zoo", "--flows", "60"]);
        assert_eq!(made.status.code(), Some(0));
        let truth = fs::read(self.file("zoo.pcap.truth.json")).unwrap();
        (path, serde_json::from_slice(&truth).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// A policy that comes with the program, in a folder, with a key under which no address of these tests stays as
/// it is (that happens: docs/anonymization.md).
pub fn policy(folder: &Path, name: &str) -> PathBuf {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let policy = folder.join(name);
    fs::copy(policies.join(name), &policy).unwrap();
    let key = folder.join("anonymize.key");
    fs::write(&key, "3b".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    policy
}

/// What a command that succeeds prints.
pub fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        stderr(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

pub fn json_lines(output: &Output) -> Vec<Value> {
    objects(stdout(output))
}

/// The object of each line.
pub fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

pub fn sorted(output: &Output) -> Vec<&str> {
    let mut lines: Vec<&str> = stdout(output).lines().collect();
    lines.sort_unstable();
    lines
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asserts the exit code and parts of what is said on standard error.
pub fn fails(arguments: &[&str], code: i32, parts: &[&str]) -> Output {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    for part in parts {
        assert!(
            stderr(&output).contains(part),
            "no {part:?} in {}",
            stderr(&output)
        );
    }
    output
}

/// Waits until a process handles the signal of this number.
pub fn handles(child: &Child, number: u32) {
    let status = format!("/proc/{}/status", child.id());
    let handled = || {
        let status = fs::read_to_string(&status).unwrap();
        let line = status.lines().find(|line| line.starts_with("SigCgt:"));
        let mask = line.unwrap().split_whitespace().nth(1).unwrap();
        u64::from_str_radix(mask, 16).unwrap() & 1 << (number - 1) != 0
    };
    wait_until("it handles the signal", handled);
}

pub fn signal(child: &Child, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([name, &child.id().to_string()]);
    assert!(kill.status().unwrap().success());
}
