//! Bounds of `flowgauge log`, under what is made to reach them.

mod command_support;

use command_support::fails;

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
