//! `scap.h` and the paper's listings compile everywhere, without a warning.

use std::process::Command;

use crate::support::{assert_success, compile, has, here, limited, run, scratch, text};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiler, language, standards.
const LANGUAGES: [(&str, &str, &[&str]); 4] = [
    ("gcc", "c", &["c99", "c11", "c17", "gnu99"]),
    ("g++", "c++", &["c++11", "c++17", "c++20"]),
    ("clang", "c", &["c99", "c11", "c17"]),
    ("clang++", "c++", &["c++11", "c++17"]),
];

#[test]
fn the_header_compiles_alone() {
    for (compiler, language, standards) in LANGUAGES {
        if !has(compiler, "the_header_compiles_alone") {
            continue;
        }
        for standard in standards {
            let mut command = Command::new(compiler);
            command
                .args(WARNINGS)
                .args(["-Wconversion", "-Wshadow", "-fsyntax-only"]);
            command
                .arg(format!("-std={standard}"))
                .args(["-x", language]);
            let checked = run(command.arg(here().join("include/scap.h")));
            // A header as the main file is unusual, and clang says so.
            assert_success(&checked);
        }
    }
}

/// As they stand in the paper, with only the callees written; without the interface they name, every call
/// answers an error.
#[test]
fn the_papers_listings_compile_as_they_stand() {
    let folder = scratch("listings");
    for (compiler, language, standards) in LANGUAGES {
        if !has(compiler, "the_papers_listings_compile_as_they_stand") {
            continue;
        }
        for standard in standards {
            for listing in ["flow_export", "pattern_search"] {
                let program = folder.join(format!("{listing}-{compiler}-{standard}"));
                let standard = format!("-std={standard}");
                let mut options = vec![standard.as_str(), "-x", language];
                // clang++ -pedantic minds that "export" is given another meaning.
                options.extend(
                    WARNINGS
                        .iter()
                        .filter(|&&option| !(compiler == "clang++" && option == "-pedantic")),
                );
                let source = here().join(format!("tests/listings/{listing}.c"));
                compile(compiler, &options, &source, &program);
            }
        }
    }
    // No interface can have this place without being called eth0, so this is what most machines say.
    if !std::path::Path::new("/sys/class/net/eth0").exists() && has("gcc", "listings") {
        let ran = run(&mut limited(folder.join("flow_export-gcc-c99")));
        assert_success(&ran);
        assert_eq!(text(&ran.stdout), "");
    }
}
