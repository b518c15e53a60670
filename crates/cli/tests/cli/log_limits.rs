//! Bounds of `flowgauge log`, under what is made to reach them.

use crate::command_support::{Folder, fails, printed, stderr, text};

#[test]
fn options_of_files_are_refused_without_files() {
    for (option, needed) in [
        ("--decode", "--files"),
        ("--file-limit=1M", "--extract-files"),
        ("--extract-limit=1M", "--extract-files"),
    ] {
        fails(&["log", option, "-r", "x.pcap"], 2, &[needed]);
    }
}

#[test]
fn tables_of_applications_are_bounded() {
    let zeros = [
        "log",
        "--flows",
        "--applications",
        "/dev/zero",
        "-r",
        "x.pcap",
    ];
    fails(&zeros, 2, &["/dev/zero", "more than 1 MiB"]);
    let folder = Folder::new("applications");
    let table = folder.file("table");
    std::fs::write(&table, "x".repeat(1 << 19)).unwrap();
    let long = [
        "log",
        "--flows",
        "--applications",
        text(&table),
        "-r",
        "x.pcap",
    ];
    let output = fails(&long, 2, &["table:1", "found \"xxx"]);
    assert!(stderr(&output).len() < 1000);
}

#[test]
fn sizes_and_names_are_taken_as_they_are_meant() {
    for command in ["log", "flows"] {
        let most = u64::MAX.to_string();
        fails(
            &[command, "--memory", &most, "-r", "x.pcap"],
            2,
            &["--memory", "is too large"],
        );
    }
    let folder = Folder::new("names");
    let (trace, _) = folder.trace();
    let of = |names| printed(&["log", "-q", "--protocols", names, "-r", text(&trace)]);
    let expected = of("http,dns");
    assert!(!expected.is_empty());
    assert_eq!(of("HTTP,Dns"), expected);
}
