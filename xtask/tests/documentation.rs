//! Links between pages of the documentation lead somewhere, and its Rust programs name their dependencies.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages by their path below the root, without blocks of code.
fn pages() -> BTreeMap<PathBuf, String> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let paths = names.map(|name| Path::new(folder).join(name));
        let of_pages = paths.filter(|path| path.extension().is_some_and(|it| it == "md"));
        of_pages.collect::<Vec<PathBuf>>()
    };
    let paths = in_folder("").into_iter().chain(in_folder("docs"));
    let without_code = |text: String| {
        let parts = text.split("\n```").step_by(2);
        parts.collect::<Vec<&str>>().join("\n")
    };
    let read = |path: &PathBuf| without_code(fs::read_to_string(root().join(path)).unwrap());
    paths.map(|path| (path.clone(), read(&path))).collect()
}

/// The anchors that GitHub gives headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// `docs/../README.md` is `README.md`.
fn normalized(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(parts.pop(), "{}", path.display()),
            part => parts.push(part),
        }
    }
    parts
}

#[test]
fn links_lead_to_files_and_headings() {
    let pages = pages();
    let mut checked = 0;
    for (page, text) in &pages {
        let links = text.split("](").skip(1);
        let links = links.filter_map(|rest| rest.split([')', ' ']).next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => page.clone(),
                file => normalized(&page.parent().unwrap().join(file)),
            };
            let place = format!("{}: {link}", page.display());
            assert!(root().join(&path).exists(), "{place}: no such file");
            if let Some(target) = pages.get(&path).filter(|_| !anchor.is_empty()) {
                assert!(anchors(target).contains(anchor), "{place}: no such heading");
            }
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked} links found");
}

/// The runtime's tests compile and run the programs; here is what these tests have beside the page's dependencies.
#[test]
fn rust_programs_use_the_crates_that_their_page_names() {
    let page = fs::read_to_string(root().join("docs/rust.md")).unwrap();
    let blocks = |language: &str| -> Vec<&str> {
        let fence = format!("```{language}\n");
        let parts = page.split(fence.as_str()).skip(1);
        parts
            .map(|part| part.split_once("\n```").unwrap().0)
            .collect()
    };
    let dependencies = blocks("toml").concat();
    let named: BTreeSet<String> = dependencies
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.replace('-', "_"))
        .collect();
    let mut used = BTreeSet::new();
    for program in blocks("rust") {
        let words = program.split(|it: char| !(it.is_alphanumeric() || "_:".contains(it)));
        let paths = words.filter_map(|word| word.split_once("::"));
        let crates = paths.filter(|(first, _)| {
            first.starts_with(|it: char| it.is_lowercase()) && !["std", "core"].contains(first)
        });
        used.extend(crates.map(|(first, _)| first.to_owned()));
    }
    assert_eq!(used, named);
}
