//! Stacks on a file system that is full before they are done: what is there is whole, and it is said.
//!
//! The file system is a tmpfs in a mount namespace of its own, where this program runs again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::corpora::skipped;
use crate::stack_support::flowgauge;

/// Where the file system is, for the one that runs there.
const FOLDER: &str = "FULL_DISK";

#[test]
fn what_is_on_a_full_disk_is_whole() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_it(&PathBuf::from(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("small")).unwrap();
    let line = "mount -t tmpfs -o size=256k tmpfs \"$FULL_DISK/small\" || exit 77; \
                exec \"$0\" --exact full_disk::what_is_on_a_full_disk_is_whole";
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", line])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output();
    let output = match ran {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return skipped("no file system can be mounted here"),
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("unshare failed") {
        return skipped(said);
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{said}");
    assert!(printed.contains("1 passed"), "{printed}");
}

fn on_it(folder: &Path) {
    let made = flowgauge(
        folder,
        &["generate", "mix", "-q", "--flows", "300", "-w", "mix.pcap"],
    );
    assert!(made.status.success());
    let small = folder.join("small");
    for (stack, file) in [
        ("output { small/x.pcap }", "x.pcap"),
        ("output { small/x.pcapng }", "x.pcapng"),
        ("output { small/x.pcap.gz }", "x.pcap.gz"),
        ("output { small/x.pcap, rotate_size = 100k }", "x.pcap2"),
        ("packets output { small/x.json }", "x.json"),
        ("packets output { small/x.csv }", "x.csv"),
        (
            "packets output { small/x.json, rotate_size = 100k }",
            "x.json2",
        ),
        (
            "tcpscan tcpcnxdemux < packets output { small/%{number}.json } >",
            "",
        ),
        (
            "tcpscan tcpcnxdemux < tcpreseq > output { small/x.bytes }",
            "x.bytes",
        ),
        (
            "count { as = n } result_to_file { n, file = small/x.txt, interval = 100us, format = json }",
            "x.txt",
        ),
        ("streams { out = small/x }", ""),
    ] {
        let output = flowgauge(folder, &["stack", "run", "-e", stack, "-r", "mix.pcap"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stack}: {said}");
        assert!(said.contains("No space left on device"), "{stack}: {said}");
        assert!(said.contains("hint: free space"), "{stack}: {said}");
        let path = small.join(file);
        let mut names: Vec<PathBuf> = vec![path.clone()];
        if path == small.join("") {
            let entries = fs::read_dir(&small).unwrap();
            names = entries.map(|entry| entry.unwrap().path()).collect();
        }
        for path in names.iter().filter(|path| path.is_file()) {
            let name = path.display().to_string();
            if name.contains(".pcap") {
                let read = flowgauge(folder, &["packets", "-q", "--json", "-r", &name]);
                let said = String::from_utf8_lossy(&read.stderr);
                // Of a compressed file the end of the compression is missing, and no packet.
                assert!(
                    read.status.success() || name.ends_with("gz"),
                    "{stack}: {said}"
                );
                assert!(!read.stdout.is_empty(), "{stack}");
            } else if !name.ends_with("bytes") {
                let text = fs::read_to_string(path).unwrap();
                assert!(text.is_empty() || text.ends_with('\n'), "{stack}: {name}");
                let lines = text.lines().filter(|_| !name.ends_with("csv"));
                lines.for_each(|line| {
                    let _: serde_json::Value = serde_json::from_str(line).expect("an object");
                });
            }
        }
        for entry in fs::read_dir(&small).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
    }
    // Of keys that have no room nothing is left: the disk has pages for some files, and then for none.
    let keys = ["keys", "authority", "--keys", "small/keys"];
    for room in (0..=8).rev() {
        let filled = fs::write(small.join("fill"), vec![0; (64 - room) * 4096]);
        assert!(filled.is_ok() || room < 2, "{room}");
        let output = flowgauge(folder, &keys);
        let made = fs::read_dir(small.join("keys"));
        let made = made.map_or(0, |entries| entries.count());
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => assert_eq!(made, 2, "{said}"),
            code => {
                assert_eq!((code, made), (Some(1), 0), "{room}: {said}");
                assert!(said.contains("hint: the disk is full"), "{said}");
            }
        }
        if room == 0 {
            assert!(!output.status.success());
        }
        fs::remove_dir_all(small.join("keys")).ok();
        fs::remove_file(small.join("fill")).unwrap();
    }
}
