//! `flowgauge match` against a search in each whole stream, as `streams --out` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::corpora::skipped;
use serde_json::Value;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("flowgauge-match-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args(line.split(' '))
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    fn succeed(&self, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The engines that can be had here.
fn engines(folder: &Folder) -> Vec<&'static str> {
    fs::write(folder.0.join("empty.txt"), "x").unwrap();
    let probe = folder.run("match -e a --matcher vectorscan -r gone.pcap");
    if String::from_utf8_lossy(&probe.stderr).contains("cannot load") {
        skipped("with Vectorscan: it is not installed");
        return vec!["aho-corasick"];
    }
    vec!["aho-corasick", "vectorscan"]
}

/// Where in which stream which pattern was found; how often, because names of connections between
/// the same endpoints are the same.
type Matches = BTreeMap<(String, u64, u64, u64), u32>;

/// A stream's name without the number of the connection.
fn stream_name(file: &str) -> &str {
    let digits = file.trim_end_matches(|c: char| c.is_ascii_digit());
    match digits.strip_suffix('c') {
        // An IPv6 address cannot end there: the port follows.
        Some(name) if digits.len() < file.len() => name,
        _ => file,
    }
}

/// Every occurrence in every file, found by looking at every place.
fn in_files(folder: &Path, patterns: &[(Vec<u8>, bool)]) -> Matches {
    let mut found = Matches::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        let folded = bytes.to_ascii_lowercase();
        for (id, (pattern, ignore_case)) in (1u64..).zip(patterns) {
            let bytes = if *ignore_case { &folded } else { &bytes };
            for (at, _) in bytes
                .windows(pattern.len())
                .enumerate()
                .filter(|(_, window)| window == pattern)
            {
                let (start, end) = (at as u64, (at + pattern.len()) as u64);
                *found
                    .entry((stream_name(&name).to_owned(), start, end, id))
                    .or_default() += 1;
            }
        }
    }
    found
}

/// What the command printed.
fn in_records(lines: &str) -> Matches {
    let mut found = Matches::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let text = |field: &str| record[field].as_str().unwrap().to_owned();
        let number = |field: &str| record[field].as_u64().unwrap();
        let end = |address: &str, port: &str| {
            let address = text(address);
            let octets: Vec<&str> = address.split('.').collect();
            let address = match octets[..] {
                [a, b, c, d] => format!("{a:0>3}.{b:0>3}.{c:0>3}.{d:0>3}"),
                _ => address,
            };
            format!("{address}.{:05}", number(port))
        };
        let name = format!(
            "{}-{}",
            end("src_ip", "src_port"),
            end("dst_ip", "dst_port")
        );
        let at = (name, number("offset"), number("end"), number("pattern_id"));
        *found.entry(at).or_default() += 1;
    }
    found
}

/// Patterns taken from the streams themselves, from where segments end and from anywhere, of many
/// lengths; and some that occur nowhere.
fn planted(folder: &Path) -> Vec<(Vec<u8>, bool)> {
    let mut names: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let mut patterns = Vec::new();
    let mut step = 1usize;
    for path in names {
        let bytes = fs::read(path).unwrap();
        for cut in [1448, 2 * 1448, 1460, 1400, bytes.len() / 2, bytes.len()] {
            step = step.wrapping_mul(75).wrapping_add(74) % 65_537;
            let len = 5 + step % 60;
            let start = cut.saturating_sub(len / 2);
            if let Some(pattern) = bytes.get(start..start + len)
                && patterns.len() < 240
                && step.is_multiple_of(3)
            {
                patterns.push((pattern.to_ascii_lowercase(), true));
            } else if let Some(pattern) = bytes.get(start..start + len)
                && patterns.len() < 240
            {
                patterns.push((pattern.to_vec(), false));
            }
        }
    }
    for number in 0..200 {
        patterns.push((
            format!("nowhere to be found {number}").into_bytes(),
            number % 2 == 0,
        ));
    }
    patterns
}

fn pattern_lines(patterns: &[(Vec<u8>, bool)]) -> String {
    let mut text = String::new();
    for (pattern, ignore_case) in patterns {
        let hex: Vec<String> = pattern.iter().map(|byte| format!("{byte:02x}")).collect();
        let nocase = if *ignore_case { " nocase;" } else { "" };
        text.push_str(&format!("content:\"|{}|\";{nocase}\n", hex.join(" ")));
    }
    text
}

#[test]
fn matches_are_those_of_whole_streams() {
    for preset in [
        "mix --flows 60",
        "web --flows 40",
        "late --flows 60",
        "small --flows 200",
        "zoo --flows 80",
    ] {
        let folder = Folder::new(&preset.replace(' ', ""));
        folder.succeed(&format!(
            "generate -q -w trace.pcap --seed 5 --vlan 0 --qinq 0 --missing 0 --preset {preset}"
        ));
        folder.succeed("streams -q -r trace.pcap --out files");
        let files = folder.0.join("files");
        let patterns = planted(&files);
        fs::write(folder.0.join("patterns.txt"), pattern_lines(&patterns)).unwrap();
        let expected = in_files(&files, &patterns);
        assert!(expected.len() > 100, "{preset}: {}", expected.len());
        for engine in engines(&folder) {
            let lines = folder.succeed(&format!(
                "match -q -r trace.pcap -f patterns.txt --json --matcher {engine}"
            ));
            assert_eq!(in_records(&lines), expected, "{preset} {engine}");
            // Whatever the number of workers.
            let lines_of_two = folder.succeed(&format!(
                "match -q -r trace.pcap -f patterns.txt --json --workers 2 --matcher {engine}"
            ));
            assert_eq!(in_records(&lines_of_two), expected, "{preset} {engine}");
            // Once per stream and pattern, and the counts, agree with it.
            let first = folder.succeed(&format!(
                "match -q -r trace.pcap -f patterns.txt --json --first --matcher {engine}"
            ));
            let counts = folder.succeed(&format!(
                "match -q -r trace.pcap -f patterns.txt --json --count --matcher {engine}"
            ));
            let (mut matches, mut streams) = (0, 0);
            for line in counts.lines() {
                let count: Value = serde_json::from_str(line).unwrap();
                matches += count["matches"].as_u64().unwrap();
                streams += count["streams"].as_u64().unwrap();
            }
            assert_eq!(matches as usize, lines.lines().count());
            assert_eq!(streams as usize, first.lines().count());
        }
    }
}

#[test]
fn a_stream_with_holes_has_no_match_across_them() {
    let folder = Folder::new("holes");
    folder.succeed(
        "generate -q -w trace.pcap --preset loss --flows 300 --vlan 0 --qinq 0 --missing 0.02",
    );
    // Holes are filled with zeros, and no pattern has a zero.
    folder.succeed("streams -q -r trace.pcap --out files --fill-gaps");
    let files = folder.0.join("files");
    let mut patterns = planted(&files);
    patterns.retain(|(pattern, _)| !pattern.contains(&0));
    let gaps = folder.succeed("streams -q -r trace.pcap --gaps --json");
    assert!(gaps.lines().count() > 20);
    fs::write(folder.0.join("patterns.txt"), pattern_lines(&patterns)).unwrap();
    let expected = in_files(&files, &patterns);
    assert!(expected.len() > 100);
    for engine in engines(&folder) {
        let lines = folder.succeed(&format!(
            "match -q -r trace.pcap -f patterns.txt --json --matcher {engine}"
        ));
        assert_eq!(in_records(&lines), expected, "{engine}");
    }
}

#[test]
fn patterns_are_told_with_their_file_and_line() {
    let folder = Folder::new("errors");
    folder.succeed("generate -q -w trace.pcap --preset small --flows 5");
    for (lines, parts) in [
        (
            "ok\n\ncontent:\"x\"; within:4\n",
            ["patterns.txt:3: ", "hint: "],
        ),
        ("# nothing\n", ["no patterns", "hint: "]),
        ("ok\n/cgi-bin/x/\n", ["patterns.txt:2: ", "--fixed-strings"]),
    ] {
        fs::write(folder.0.join("patterns.txt"), lines).unwrap();
        let output = folder.run("match -r trace.pcap -f patterns.txt");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        for part in parts {
            assert!(errors.contains(part), "{errors}");
        }
    }
    if !engines(&folder).contains(&"vectorscan") {
        return;
    }
    fs::write(folder.0.join("patterns.txt"), "ok\n# fine\n/(a/\n").unwrap();
    let output = folder.run("match -r trace.pcap -e first -f patterns.txt");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("patterns.txt:3: "), "{errors}");
}

#[test]
fn a_match_at_the_end_has_the_time_of_the_streams_last_packet() {
    let folder = Folder::new("end");
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    // Two datagrams of each of twenty hosts: the second one ends the stream.
    for at in 0..40_u8 {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, at % 20, 10, 9, 0, at % 20]);
        frame.extend([4, at % 20, 0, 53, 0, 10, 0, 0, b'y', b'x']);
        let len = (frame.len() as u32).to_le_bytes();
        capture.extend(1_700_000_000_u32.to_le_bytes());
        capture.extend((u32::from(at) * 10_000).to_le_bytes());
        capture.extend([len, len].concat());
        capture.extend(frame);
    }
    fs::write(folder.0.join("end.pcap"), capture).unwrap();
    for workers in [1, 2, 4] {
        let line = format!("match -q -r end.pcap -e /x$/ --json --workers {workers}");
        let mut found: Vec<(u64, String)> = folder
            .succeed(&line)
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                let time = record["time"].as_str().unwrap().to_owned();
                (record["src_port"].as_u64().unwrap(), time)
            })
            .collect();
        found.sort();
        let expected: Vec<(u64, String)> = (0..20)
            .map(|host| {
                let millis = 200 + 10 * host;
                (1024 + host, format!("2023-11-14T22:13:20.{millis}000000Z"))
            })
            .collect();
        assert_eq!(found, expected, "{workers} workers");
    }
}

#[test]
fn of_matches_that_begin_at_a_place_the_first_is_told() {
    let folder = Folder::new("places");
    if !engines(&folder).contains(&"vectorscan") {
        return;
    }
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    for (at, said) in [(0_u32, b"xabb"), (1, b"b.ab")] {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 9, 0, 1, 4, 1, 0, 53, 0, 12, 0, 0]);
        frame.extend(said);
        let len = (frame.len() as u32).to_le_bytes();
        capture.extend([1_700_000_000_u32.to_le_bytes(), at.to_le_bytes(), len, len].concat());
        capture.extend(frame);
    }
    fs::write(folder.0.join("places.pcap"), capture).unwrap();
    let found = |options: &str| {
        let line = format!("match -q -r places.pcap -e /ab*/ -e b --json{options}");
        let mut found: Vec<[u64; 3]> = folder
            .succeed(&line)
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                ["pattern_id", "offset", "end"].map(|field| record[field].as_u64().unwrap())
            })
            .collect();
        found.sort_unstable();
        found
    };
    let literals = [[2, 2, 3], [2, 3, 4], [2, 4, 5], [2, 7, 8]];
    let told = [[1, 1, 2], [1, 6, 7]];
    assert_eq!(found(""), [&told[..], &literals].concat());
    let all = [
        [1, 1, 2],
        [1, 1, 3],
        [1, 1, 4],
        [1, 1, 5],
        [1, 6, 7],
        [1, 6, 8],
    ];
    assert_eq!(found(" --all-matches"), [&all[..], &literals].concat());
    assert_eq!(found(" --first"), [[1, 1, 2], [2, 2, 3]]);
    for (options, matches) in [("", 2), (" --all-matches", 6)] {
        let counts = folder.succeed(&format!(
            "match -q -r places.pcap -e /ab*/ --count --json{options}"
        ));
        let count: Value = serde_json::from_str(&counts).unwrap();
        assert_eq!(
            (&count["matches"], &count["streams"]),
            (&matches.into(), &1.into())
        );
    }
    let output = folder.run("match --stats -r places.pcap -e /ab*/ --json");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("4 matches were left out that begin where one of the same pattern did"),
        "{said}"
    );
}

#[test]
fn what_is_remembered_of_streams_is_bounded_by_the_memory() {
    const HOSTS: u16 = 400;
    let folder = Folder::new("bound");
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    // Each host says the alphabet twice, the second time when all others have said it.
    for at in 0..2 * HOSTS {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 54, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0]);
        frame.extend((at % HOSTS).to_be_bytes());
        frame.extend([10, 9, 0, 1, 4, 1, 0, 99, 0, 34, 0, 0]);
        frame.extend(b'a'..=b'z');
        let len = (frame.len() as u32).to_le_bytes();
        let micros = u32::from(at).to_le_bytes();
        capture.extend([1_700_000_000_u32.to_le_bytes(), micros, len, len].concat());
        capture.extend(frame);
    }
    fs::write(folder.0.join("bound.pcap"), capture).unwrap();
    let letters: Vec<String> = ('a'..='z').map(|letter| letter.to_string()).collect();
    fs::write(folder.0.join("letters.txt"), letters.join("\n")).unwrap();
    let each = usize::from(HOSTS) * letters.len();
    for (memory, firsts) in [("16M", each), ("1M", 2 * each)] {
        let line = |how: &str| {
            format!(
                "match -r bound.pcap -f letters.txt --json --max-flows 1000 --workers 1 --memory {memory} {how}"
            )
        };
        let output = folder.run(&line("--first"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.stdout.split(|byte| *byte == b'\n').count() - 1,
            firsts,
            "{said}"
        );
        let is_full = said.contains("streams were forgotten, as memory was full");
        assert_eq!(is_full, firsts > each, "{said}");
        let counts = folder.succeed(&line("--count"));
        let streams = |line| serde_json::from_str::<Value>(line).unwrap()["streams"].as_u64();
        let streams: u64 = counts.lines().filter_map(streams).sum();
        assert_eq!(streams as usize, firsts);
    }
}
