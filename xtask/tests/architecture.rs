//! What ARCHITECTURE.md says of the crates holds: floors, unsafe code, no I/O, clocks and threads below the runtime.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that do no I/O, read no clock and start no thread.
const PURE: [&str; 5] = ["wire", "flow", "reassembly", "stream", "stack"];
/// Crates with `unsafe`.
const UNSAFE: [&str; 4] = ["sys", "capi", "libmapi", "pcap-shim"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The crates' floors, as the table says: a number, then the folder in backticks.
fn floors() -> BTreeMap<String, u32> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let floor = cells.next()?.parse().ok()?;
        let room = cells.next()?.strip_prefix("`crates/")?.strip_suffix('`')?;
        Some((room.to_owned(), floor))
    };
    text.lines().filter_map(row).collect()
}

fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).unwrap();
    let names = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// The crates of the workspace that a crate links, those of its tests aside.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let section = manifest
        .split("\n[")
        .find(|it| it.starts_with("dependencies]"));
    let lines = section.unwrap_or_default().lines();
    let names = lines.filter_map(|line| line.strip_prefix("flowgauge-"));
    let end = |name: &str| name.find(['.', ' ', '=']).unwrap_or(name.len());
    names.map(|name| name[..end(name)].to_owned()).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.contains("test") {
            found.push(path);
        }
    }
}

#[test]
fn crates_use_lower_floors_only() {
    let floors = floors();
    let mut checked = 0;
    for name in crates() {
        let floor = floors.get(&name);
        let floor = floor.unwrap_or_else(|| panic!("crates/{name} is not in the table"));
        for dependency in dependencies(&name) {
            assert!(floors[&dependency] < *floor, "{name} uses {dependency}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} dependencies found");
    assert_eq!(
        floors.len(),
        crates().len(),
        "the table names a crate that is gone"
    );
}

#[test]
fn unsafe_code_is_forbidden_but_in_its_crates() {
    for name in crates()
        .iter()
        .filter(|name| !UNSAFE.contains(&name.as_str()))
    {
        let source = root().join("crates").join(name).join("src");
        let of_crate = ["lib.rs", "main.rs"].map(|file| source.join(file));
        for file in of_crate.iter().filter(|file| file.exists()) {
            assert!(
                read(file).contains("#![forbid(unsafe_code)]"),
                "{}",
                file.display()
            );
        }
    }
}

#[test]
fn the_engine_has_no_input_or_output_no_clock_and_no_thread() {
    let outside = ["fs", "io", "net", "process", "thread", "time"];
    for name in PURE {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut files);
        assert!(files.len() > 10);
        for file in files {
            let text = read(&file);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in lines {
                let used = outside
                    .iter()
                    .find(|module| line.contains(&format!("std::{module}")));
                assert_eq!(used, None, "{}: {line}", file.display());
            }
        }
    }
}
