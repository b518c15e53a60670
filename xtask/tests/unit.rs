//! The sensor's unit as systemd sees it, where that is at hand.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What `systemd-analyze` says of the unit, whose program need not be installed; `None`: there is no such command.
fn analyze(arguments: &[&str]) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let unit = fs::read_to_string(root.join("packaging/flowgauge-sensor.service")).unwrap();
    let program = "ExecStart=/usr/local/bin/flowgauge ";
    assert!(unit.contains(program), "{unit}");
    let unit = unit.replace(program, "ExecStart=/bin/true ");
    let name = format!("flowgauge-unit-{}-{}", std::process::id(), arguments[0]);
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("flowgauge-sensor.service");
    fs::write(&file, unit).unwrap();
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(&file)
        .output();
    fs::remove_dir_all(&folder).unwrap();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: systemd-analyze: {error}");
            None
        }
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    if let Some(output) = analyze(&["verify"]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

#[test]
fn the_unit_can_do_little() {
    if let Some(output) = analyze(&["security", "--offline=true", "--threshold=29"]) {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("Overall exposure level"), "{said}");
    }
}
