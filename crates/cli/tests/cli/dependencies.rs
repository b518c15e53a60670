//! docs/dependencies.md has a row for each crate that a manifest names, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A row: the crates it is about, and the folders of those who use them.
struct Row {
    crates: BTreeSet<String>,
    users: BTreeSet<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|line| {
            let mut columns = line.trim_matches('|').split('|');
            // What is in brackets are features, or a library of the system.
            let names = columns.next().unwrap().split('(').next().unwrap();
            let crates = names.split('`').skip(1).step_by(2);
            let users = columns.next().unwrap();
            let users = users.split(|one: char| !one.is_alphanumeric() && one != '-');
            Row {
                crates: crates.map(str::to_owned).collect(),
                users: users.map(str::to_owned).collect(),
            }
        })
        .collect()
}

/// Every package of the repository: its folder's name, what it uses, and what its tests use.
fn packages() -> Vec<(String, BTreeSet<String>, BTreeSet<String>)> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path()).collect();
    folders.extend(["xtask", "fuzz"].map(|name| root().join(name)));
    folders
        .iter()
        .map(|folder| {
            let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let manifest: toml::Table = text.parse().unwrap();
            let foreign = |table: &str| {
                let names = manifest.get(table).and_then(|value| value.as_table());
                let names = names.into_iter().flat_map(|table| table.keys());
                names
                    .filter(|name| !name.starts_with("flowgauge"))
                    .cloned()
                    .collect()
            };
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            (name, foreign("dependencies"), foreign("dev-dependencies"))
        })
        .collect()
}

#[test]
fn every_dependency_has_its_row() {
    let rows = rows();
    let packages = packages();
    assert!(rows.len() > 20 && packages.len() > 10);
    let mut used = BTreeSet::new();
    for (package, dependencies, of_tests) in packages {
        for name in &dependencies {
            let is_told = rows
                .iter()
                .any(|row| row.crates.contains(name) && row.users.contains(&package));
            assert!(
                is_told,
                "{package} uses {name}: docs/dependencies.md has no such row"
            );
        }
        for name in &of_tests {
            let is_told = rows.iter().any(|row| row.crates.contains(name));
            assert!(
                is_told,
                "the tests of {package} use {name}: docs/dependencies.md has no row"
            );
        }
        used.extend(dependencies);
        used.extend(of_tests);
    }
    for name in rows.iter().flat_map(|row| &row.crates) {
        assert!(
            used.contains(name),
            "docs/dependencies.md has {name}, which nothing uses"
        );
    }
}
