//! Every folder of `tests/cases` is a command line (`cmd`) and what it prints and how it ends
//! (`expected`). The captures it names are generated anew.
//!
//! With `FLOWGAUGE_REWRITE_CASES=1` what is expected is written instead of compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn commands_print_what_is_expected() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let rewrite = std::env::var_os("FLOWGAUGE_REWRITE_CASES").is_some();
    let folder = captures();
    let mut names: Vec<PathBuf> = fs::read_dir(cases)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let mut different = Vec::new();
    for case in &names {
        let line = fs::read_to_string(case.join("cmd")).unwrap();
        let found = run(&folder, &line);
        let path = case.join("expected");
        if rewrite {
            fs::write(path, found).unwrap();
            continue;
        }
        let expected = fs::read_to_string(path).unwrap_or_default();
        if found != expected {
            different.push(format!(
                "{}\n{}",
                case.display(),
                difference(&expected, &found)
            ));
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(names.len() > 30);
    assert!(
        different.is_empty(),
        "{}\nFLOWGAUGE_REWRITE_CASES=1 accepts what is printed now",
        different.join("\n")
    );
}

/// A folder with the captures that cases name.
fn captures() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("flowgauge-cases-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for (name, preset, flows) in [("zoo", "zoo", "60"), ("small", "small", "20")] {
        let line = format!("generate -q -w {name}.pcap --preset {preset} --flows {flows} --seed 7");
        let made = run(&folder, &line);
        assert_eq!(made, "exit code 0\n", "{line}");
    }
    let header = fs::read(folder.join("small.pcap")).unwrap();
    fs::write(folder.join("empty.pcap"), &header[..24]).unwrap();
    for (name, lines) in [
        (
            "two-defaults.txt",
            "default linux\n10.0.0.0/8 windows\ndefault bsd\n",
        ),
        (
            "two-policies.txt",
            "10.0.0.0/8 windows\n\n10.1.2.3/8 bsd # once more\n",
        ),
    ] {
        fs::write(folder.join(name), lines).unwrap();
    }
    folder
}

/// Standard output, standard error and the exit code as one text.
/// The words of a line; what is in single quotes is one.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

fn run(folder: &Path, line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flowgauge"))
        .args(words(line))
        .current_dir(folder)
        .stdin(Stdio::null())
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    if !messages.is_empty() {
        text.push_str("--- standard error\n");
        text.push_str(&messages);
    }
    text.push_str(&format!("exit code {}\n", output.status.code().unwrap()));
    text
}

/// The first line that differs.
fn difference(expected: &str, found: &str) -> String {
    let (mut expected, mut found) = (expected.lines(), found.lines());
    for number in 1.. {
        match (expected.next(), found.next()) {
            (Some(one), Some(other)) if one == other => {}
            (None, None) => break,
            (one, other) => {
                return format!(
                    "  line {number}\n  expected: {}\n  found:    {}",
                    one.unwrap_or("(the end)"),
                    other.unwrap_or("(the end)")
                );
            }
        }
    }
    "  line ends differ".to_owned()
}
