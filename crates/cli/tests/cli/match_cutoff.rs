//! `flowgauge match` with cutoffs, modes and policies of hosts: what lies beyond a cutoff is not searched, and
//! nothing else changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::corpora;
use crate::corpora::skipped;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("match-cutoff-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        fs::write(folder.0.join("patterns.txt"), patterns()).unwrap();
        folder
    }

    fn generate(&self, preset: &str) {
        self.succeed(&format!(
            "generate -q -w trace.pcap --seed 7 --preset {preset}"
        ));
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_flowgauge"))
            .args(line.split(' '))
            .current_dir(&self.0)
            .output()
            .unwrap()
    }

    fn succeed(&self, line: &str) -> (String, String) {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    }

    /// All that is said of the matches in the capture at `path`, in an order of its own.
    fn matches(&self, path: &str, options: &str) -> Vec<Match> {
        let line = format!("match -q -f patterns.txt --json{options} -r {path}");
        let output = self.run(&line);
        // A damaged capture is read as far as it goes.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut matches: Vec<Match> = lines.lines().map(Match::new).collect();
        matches.sort();
        matches
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    line: String,
    end: u64,
    is_udp: bool,
    from_initiator: bool,
}

impl Match {
    fn new(line: &str) -> Match {
        let record: Value = serde_json::from_str(line).unwrap();
        Match {
            line: line.to_owned(),
            end: record["end"].as_u64().unwrap(),
            is_udp: record["proto"] == "udp",
            from_initiator: record["direction"] == "initiator",
        }
    }

    fn pattern(&self) -> String {
        let record: Value = serde_json::from_str(&self.line).unwrap();
        record["pattern"].as_str().unwrap().to_owned()
    }
}

/// Pairs of bytes, as random payload has them here and there, and words that protocols have.
fn patterns() -> String {
    let pairs = (0..60u32).map(|number| {
        let pair = number.wrapping_mul(40_503) & 0xffff;
        format!("content:\"|{:02x} {:02x}|\";\n", pair >> 8, pair & 0xff)
    });
    pairs.collect::<String>() + "HTTP/1.1\nContent-\n\"|0d 0a 0d 0a|\"\nhost\n"
}

fn within(matches: &[Match], cutoff: impl Fn(&Match) -> u64) -> Vec<Match> {
    let wanted = matches.iter().filter(|found| found.end <= cutoff(found));
    wanted.cloned().collect()
}

#[test]
fn matches_before_the_cutoff_are_those_of_the_whole_run() {
    for preset in [
        "mix --flows 60",
        "web --flows 40",
        "late --flows 60",
        "loss --flows 200 --missing 0.02",
        "elephants --flows 40",
    ] {
        let folder = Folder::new(&preset.replace([' ', '.'], ""));
        folder.generate(preset);
        let all = folder.matches("trace.pcap", "");
        assert!(all.len() > 1_000, "{preset}: {}", all.len());
        // In chunks the same is found as segment by segment, at the same times.
        assert_eq!(folder.matches("trace.pcap", " --cutoff 1G"), all);
        let strict = folder.matches("trace.pcap", " --mode strict");
        assert!(!strict.is_empty());
        assert!(strict.iter().all(|found| all.binary_search(found).is_ok()));
        for cutoff in [0, 1, 700, 1_448, 20_000] {
            let expected = within(&all, |_| cutoff);
            for workers in [1, 2] {
                let options = format!(" --cutoff {cutoff} --workers {workers}");
                let found = folder.matches("trace.pcap", &options);
                assert!(found == expected, "{preset}{options}");
                let options = format!("{options} --mode strict");
                let found = folder.matches("trace.pcap", &options);
                assert!(found == within(&strict, |_| cutoff), "{preset}{options}");
            }
        }
    }
}

#[test]
fn mode_fast_finds_what_is_in_order_and_a_late_segment_in_its_chunk() {
    let folder = Folder::new("fast");
    let positions = |matches: &[Match]| {
        // A chunk is searched when it is full: later than its segments came.
        let without_time = matches.iter().map(|found| {
            let mut record: Value = serde_json::from_str(&found.line).unwrap();
            record.as_object_mut().unwrap().remove("time");
            record.to_string()
        });
        let mut all: Vec<String> = without_time.collect();
        all.sort();
        all
    };
    folder.generate("web --flows 40 --reordered 0 --retransmitted 0 --missing 0");
    let all = folder.matches("trace.pcap", "");
    for cutoff in [700, 20_000, 1 << 30] {
        for workers in [1, 2] {
            let options = format!(" --mode fast --cutoff {cutoff} --workers {workers}");
            let found = folder.matches("trace.pcap", &options);
            let expected = within(&all, |_| cutoff);
            assert_eq!(positions(&found), positions(&expected), "{options}");
        }
    }
    folder.generate("elephants --flows 40 --reordered 0.1 --missing 0");
    let all = positions(&folder.matches("trace.pcap", ""));
    let fast = folder.matches("trace.pcap", " --mode fast");
    let cut = positions(&folder.matches("trace.pcap", " --mode fast --cutoff 5000"));
    let beginning = positions(&within(&fast, |_| 5_000));
    let fast = positions(&fast);
    // Most late segments are less than a chunk late, if the cutoff leaves a whole one.
    for (some, of) in [(&fast, &all), (&cut, &beginning)] {
        assert!(some.iter().all(|found| of.binary_search(found).is_ok()));
        assert!(some.len() < of.len() && some.len() > of.len() * 9 / 10);
    }
}

#[test]
fn what_was_not_searched_is_said() {
    let folder = Folder::new("elephants");
    folder.generate("elephants --flows 40");
    let all = folder.matches("trace.pcap", "");
    // Of the responders, who send most, only the beginning.
    let options = " --cutoff-direction server:5000";
    let expected = within(&all, |found| {
        if found.from_initiator {
            u64::MAX
        } else {
            5_000
        }
    });
    assert_eq!(folder.matches("trace.pcap", options), expected);
    assert!(expected.len() < all.len() / 4, "{}", expected.len());

    let (counts, said) =
        folder.succeed("match -f patterns.txt --count --json -r trace.pcap --cutoff 5000");
    let sum: u64 = counts
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["matches"]
                .as_u64()
                .unwrap()
        })
        .sum();
    let expected = within(&all, |_| 5_000);
    assert_eq!(sum as usize, expected.len());
    assert!(said.contains(&format!("{sum} matches of ")), "{said}");
    let (_, streams) = folder.succeed("streams --count --chunk 0 --cutoff 5000 -r trace.pcap");
    let line = |text: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains(" discarded, ")).unwrap();
        line.split(';').next().unwrap().to_owned()
    };
    assert_eq!(line(&said), line(&streams));
    let discarded = line(&said);
    let (before, _) = discarded.split_once(") discarded").unwrap();
    let bytes: u64 = before.rsplit('(').next().unwrap().parse().unwrap();
    assert!(bytes > 1_000_000, "{discarded}");
    // Without any of the options nothing is said of chunks.
    let (_, said) = folder.succeed("match -f patterns.txt --count --json -r trace.pcap");
    assert!(!said.contains("discarded, "), "{said}");
}

#[test]
fn the_first_class_that_matches_decides() {
    let folder = Folder::new("classes");
    folder.generate("mix --flows 100");
    let all = folder.matches("trace.pcap", "");
    fs::write(folder.0.join("classes.stack"), CLASSES).unwrap();
    let expected = within(&all, |found| if found.is_udp { 30 } else { 900 });
    assert!(expected.iter().any(|found| found.is_udp));
    assert!(expected.iter().any(|found| !found.is_udp));
    for workers in [1, 2] {
        let line =
            format!("stack run -q -f classes.stack -r trace.pcap --json --workers {workers}");
        let (lines, _) = folder.succeed(&line);
        let mut found: Vec<Match> = lines.lines().map(Match::new).collect();
        found.sort();
        assert_eq!(found, expected);
        // (Options are divided at blanks here: filters are one word.)
        let options =
            format!(" --cutoff 900 --cutoff-class 30:udp --cutoff-class 1:ip --workers {workers}");
        let found = folder.matches("trace.pcap", &options);
        assert_eq!(
            found,
            within(&all, |found| if found.is_udp { 30 } else { 1 })
        );
    }
}

const CLASSES: &str = "[stack classes]\nmatch - output\n\n[match]\nfile = patterns.txt\ncutoff = 50\n\
                       cutoff_class = \"30: udp\\n900: tcp\"\n";

#[test]
fn policies_of_hosts_decide_which_copy_is_searched() {
    let folder = Folder::new("policies");
    fs::write(folder.0.join("overlap.pcap"), overlapping()).unwrap();
    let hosts = "default first\n10.0.0.2 last\n";
    fs::write(folder.0.join("hosts.txt"), hosts).unwrap();
    fs::write(
        folder.0.join("others.txt"),
        "default last\n10.0.0.0/24 first\n",
    )
    .unwrap();
    for (policy, expected) in [
        ("", "abcNEWghi"),
        (" --host-policy first", "abcNEWghi"),
        (" --host-policy last", "abcOLDghi"),
        (" --host-policy hosts.txt", "abcOLDghi"),
        (" --host-policy others.txt", "abcNEWghi"),
    ] {
        let line = format!("match -q --json -e abcNEWghi -e abcOLDghi -r overlap.pcap{policy}");
        let (lines, _) = folder.succeed(&line);
        let records: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(records.len(), 1, "{policy}: {lines}");
        assert_eq!(records[0]["pattern"], expected, "{policy}");
    }
}

/// What the byte behind a match decides is known where that byte is searched, too, or the stream ends.
#[test]
fn what_the_next_byte_decides_is_not_known_at_a_cutoff() {
    let folder = Folder::new("next-byte");
    let probe = folder.run("match -e a --matcher vectorscan -r gone.pcap");
    if String::from_utf8_lossy(&probe.stderr).contains("cannot load") {
        return skipped("Vectorscan is not installed");
    }
    let expressions = "/foo\\b/\n/foo$/\n/foo\\B/\nfoo\n";
    fs::write(folder.0.join("patterns.txt"), expressions).unwrap();
    let bound = ["/foo\\b/", "foo"].as_slice();
    let all = ["/foo$/", "/foo\\b/", "foo"].as_slice();
    for (name, data, expected) in [
        // It goes on behind the cutoff, in the same segment or in the next.
        (
            "one.pcap",
            &[b"xx foo bar".as_slice()][..],
            [&[], &["foo"][..], bound, bound],
        ),
        (
            "two.pcap",
            &[b"xx foo", b" bar"],
            [&[], &["foo"], bound, bound],
        ),
        (
            "letter.pcap",
            &[b"xx foo", b"d"],
            [&[], &["foo"], &["/foo\\B/", "foo"], &["/foo\\B/", "foo"]],
        ),
        // Whether a stream ends at a cutoff is not looked at.
        ("end.pcap", &[b"xx foo"], [&[], &["foo"], all, all]),
        ("line.pcap", &[b"xx foo\n"], [&[], &["foo"], bound, all]),
    ] {
        fs::write(folder.0.join(name), connection(data)).unwrap();
        for (cutoff, expected) in (5..9).zip(expected) {
            let matches = folder.matches(name, &format!(" --cutoff {cutoff}"));
            let mut found: Vec<String> = matches.iter().map(Match::pattern).collect();
            found.sort();
            assert_eq!(found, expected, "{name}, {cutoff}");
            assert!(matches.iter().all(|found| found.end == 6));
        }
    }
}

/// In mode fast a chunk that is not full is searched a second after its first byte, not when its stream is over.
#[test]
fn mode_fast_does_not_wait_for_a_full_chunk() {
    let folder = Folder::new("not-full");
    let mut segments: Vec<Segment<'_>> = vec![
        (true, 100, 0, 0x02, b""),
        (false, 500, 101, 0x12, b""),
        (true, 101, 501, 0x18, b"a needle"),
    ];
    // Two seconds and a half of acknowledgements; then the other side says the same, and ends.
    segments.extend([(false, 501, 109, 0x10, b"".as_slice())].repeat(2500));
    segments.push((false, 501, 109, 0x18, b"a needle"));
    segments.push((false, 509, 109, 0x11, b""));
    segments.push((true, 109, 510, 0x10, b""));
    fs::write(folder.0.join("open.pcap"), capture(&segments)).unwrap();
    let (lines, _) = folder.succeed("match -q -e needle --mode fast --json -r open.pcap");
    let told: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sides: Vec<&str> = told
        .iter()
        .map(|found| found["direction"].as_str().unwrap())
        .collect();
    assert_eq!(sides, ["initiator", "responder"]);
}

/// A connection to 10.0.0.2 in which so much is sent, a segment each, and that ends.
fn connection(data: &[&[u8]]) -> Vec<u8> {
    let mut segments: Vec<Segment<'_>> = vec![
        (true, 100, 0, 0x02, b""),
        (false, 500, 101, 0x12, b""),
        (true, 101, 501, 0x10, b""),
    ];
    let mut seq = 101;
    for &bytes in data {
        segments.push((true, seq, 501, 0x18, bytes));
        seq += bytes.len() as u32;
    }
    segments.push((true, seq, 501, 0x11, b""));
    segments.push((false, 501, seq + 1, 0x11, b""));
    segments.push((true, seq + 1, 502, 0x10, b""));
    capture(&segments)
}

/// A connection to 10.0.0.2 in which two segments behind a hole have other bytes for the same places.
fn overlapping() -> Vec<u8> {
    capture(&[
        (true, 100, 0, 0x02, b""),
        (false, 500, 101, 0x12, b""),
        (true, 101, 501, 0x10, b""),
        (true, 104, 501, 0x10, b"NEW"),
        (true, 104, 501, 0x10, b"OLDghi"),
        (true, 101, 501, 0x10, b"abc"),
    ])
}

/// Whether the client sends it, sequence number, acknowledgement, flags, payload.
type Segment<'a> = (bool, u32, u32, u8, &'a [u8]);

fn capture(segments: &[Segment<'_>]) -> Vec<u8> {
    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    for (at, &(from_client, seq, ack, flags, payload)) in segments.iter().enumerate() {
        let mut frame = vec![2; 12];
        let length = 40 + payload.len() as u8;
        frame.extend([8, 0, 0x45, 0, 0, length, 0, 0, 0, 0, 64, 6, 0, 0]);
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let ends = if from_client {
            [client, server]
        } else {
            [server, client]
        };
        frame.extend(ends.concat());
        let ports: [u16; 2] = if from_client { [4000, 80] } else { [80, 4000] };
        for port in ports {
            frame.extend(port.to_be_bytes());
        }
        frame.extend(seq.to_be_bytes());
        frame.extend(ack.to_be_bytes());
        frame.extend([0x50, flags, 0x40, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        let len = (frame.len() as u32).to_le_bytes();
        capture.extend(1_700_000_000_u32.to_le_bytes());
        capture.extend((at as u32 * 1000).to_le_bytes());
        capture.extend([len, len].concat());
        capture.extend(frame);
    }
    capture
}

#[test]
fn what_is_wrong_is_said_as_streams_says_it() {
    let folder = Folder::new("wrong");
    folder.generate("small --flows 5");
    let wrong = [
        "--cutoff many",
        "--cutoff-class 10k",
        "--cutoff-class 10k:",
        "--cutoff-class x:udp",
        "--cutoff-class 10k:prt",
        "--cutoff-direction both:1",
        "--cutoff-direction client:1 --cutoff-direction client:2",
        "--mode slow",
        "--host-policy amiga",
        "--host-policy patterns.txt",
        "--host-policy first --overlap-policy last",
    ];
    for options in wrong {
        let said = |command: &str| {
            let output = folder.run(&format!("{command} -r trace.pcap {options}"));
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                output.status.code(),
                Some(2),
                "{command} {options}: {errors}"
            );
            // Which command it is, and how it is used.
            let usage = errors.find("Usage: ").unwrap_or(errors.len());
            errors[..usage].replace(command.split(' ').next().unwrap(), "COMMAND")
        };
        assert_eq!(said("match -e a"), said("streams"), "{options}");
    }
}

/// Captures of others, whatever is in them.
#[test]
fn cutoffs_of_captures_in_the_corpora_change_nothing_before_them() {
    let Some(corpora) = corpora::corpora() else {
        return;
    };
    let folder = Folder::new("corpora");
    let mut captures = Vec::new();
    collect(&corpora, &mut captures);
    captures.sort();
    let mut compared = 0;
    let mut found = 0;
    // Every so many, which is some of each collection.
    for path in captures.iter().step_by(captures.len() / 150 + 1) {
        let path = path.to_str().unwrap();
        if path.contains(' ')
            || !folder
                .run(&format!("flows -q -c 1 -r {path}"))
                .status
                .success()
        {
            continue;
        }
        let all = folder.matches(path, "");
        for options in [
            " --cutoff 300",
            " --cutoff 300 --workers 2",
            " --cutoff 5000",
        ] {
            let cutoff = if options.ends_with("5000") {
                5_000
            } else {
                300
            };
            let cut = folder.matches(path, options);
            assert!(cut == within(&all, |_| cutoff), "{path}{options}");
            found += cut.len();
        }
        compared += 1;
    }
    assert!(compared > 50 && found > 100, "{found} in {compared}");
}

fn collect(folder: &Path, captures: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        let is_capture = path
            .extension()
            .is_some_and(|ending| ending == "pcap" || ending == "pcapng");
        if kind.is_dir() {
            collect(&path, captures);
        } else if is_capture && kind.is_file() && entry.metadata().unwrap().len() < 4 << 20 {
            captures.push(path);
        }
    }
}
