//! What functions return, step by step, is what libpcap's return.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use crate::support::{
    Counts, Settings, compiled, counts, folder, limited, run, shimmed, sorted, text, trace,
};

const SIMPLE: Settings<'static> = Settings(&[("BUFFER", "700")]);
const THREADED: Settings<'static> = Settings(&[("BUFFER", "700"), ("VARIANT", "threaded")]);

/// Savefile, and steps of `reads.c`.
struct Case {
    name: &'static str,
    file: PathBuf,
    steps: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    // Tests run at once, and read them.
    static DAMAGED: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let [cut, empty] = DAMAGED.get_or_init(|| {
        let whole = fs::read(trace()).unwrap();
        let written = |name: &str, bytes: &[u8]| {
            let path = folder().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        [
            written("cut.pcap", &whole[..whole.len() - 7]),
            written("empty.pcap", &whole[..24]),
        ]
    });
    let case = |name, file: &Path, steps| Case {
        name,
        file: file.to_owned(),
        steps,
    };
    let mut cases = vec![
        case("nothing", empty, &["d:-1", "l:0", "n", "x", "d:5", "s"]),
        case("end within a packet", cut, &["X", "x", "d:-1"]),
    ];
    let ways: [(&str, &[&str]); 10] = [
        ("dispatch all", &["D:-1", "d:-1"]),
        ("dispatch none is all", &["D:0"]),
        ("dispatch some", &["D:7", "d:7"]),
        ("dispatch as many as a buffer", &["D:700"]),
        ("loop", &["l:-1", "l:-1"]),
        ("loop, then the rest", &["l:10", "l:1000", "l:-1", "s"]),
        ("next", &["N", "n"]),
        ("next_ex", &["X", "x"]),
        ("all of them", &["n", "x", "d:3", "l:5", "x", "d:1", "D:-1"]),
        (
            "broken before",
            &["B", "d:-1", "B", "l:5", "B", "x", "B", "n", "D:-1"],
        ),
    ];
    for (name, steps) in ways {
        cases.push(case(name, trace(), steps));
        cases.push(case(name, cut, steps));
    }
    let breaks: [(&str, &[&str]); 6] = [
        ("break a dispatch", &["b:3", "d:-1", "d:-1", "D:-1"]),
        ("break a loop", &["b:5", "l:-1", "l:-1"]),
        ("break a counted dispatch", &["b:5", "d:5", "d:5", "D:-1"]),
        ("break a counted loop", &["b:5", "l:5", "l:5", "D:-1"]),
        ("break next_ex after it", &["x", "B", "x", "X"]),
        ("filters before", &["f:udp", "d:3", "D:-1"]),
    ];
    cases.extend(breaks.map(|(name, steps)| case(name, trace(), steps)));
    cases
}

/// What was returned, and the packets.
fn parts(output: &str) -> (Vec<&str>, Vec<&str>) {
    let lines = sorted(output);
    let is_packet = |line: &&str| line.starts_with("packet ");
    let packets = lines.into_iter().filter(is_packet).collect();
    let returned = output.lines().filter(|line| !is_packet(line)).collect();
    (returned, packets)
}

fn compare(settings: Settings<'_>, through_pipe: bool) {
    let program = compiled("reads");
    for case in cases() {
        let command = || {
            let mut command = limited(&program);
            if through_pipe {
                // Not a file, and not all there at once.
                let mut shell = limited("sh");
                shell.args(["-c", "f=$1; p=$2; shift 2; cat $f | $p -r - \"$@\"", "sh"]);
                shell.arg(&case.file).arg(&program);
                command = shell;
            } else {
                command.arg("-r").arg(&case.file);
            }
            command.args(case.steps).stdin(Stdio::null());
            command
        };
        let without = run(&mut command());
        let mut with = command();
        let told = shimmed(&mut with, settings);
        let with = run(&mut with);
        let name = case.name;
        assert_eq!(
            with.status,
            without.status,
            "{name}: {}",
            text(&with.stderr)
        );
        let (with, without) = (text(&with.stdout), text(&without.stdout));
        let (returned, packets) = parts(&with);
        let (expected, all) = parts(&without);
        assert_eq!(returned, expected, "{name} of {}", case.file.display());
        // Where a program stops early, which packets it has got by then is another matter.
        let is_whole = all.len() as u64 + 1 >= packets_in(&case.file);
        if is_whole {
            assert!(packets == all, "{name}: other packets");
            // `cat` reads no handle.
            let told = counts(&told);
            let read: Vec<&Counts> = told.iter().filter(|it| it.of("gathered") > 0).collect();
            let gathered: u64 = read.iter().map(|counts| counts.of("delivered")).sum();
            assert_eq!(gathered, packets.len() as u64, "{name}");
        } else {
            assert_eq!(packets.len(), all.len(), "{name}");
        }
        let mut once = packets.clone();
        once.dedup();
        assert_eq!(once.len(), packets.len(), "{name}: a packet came twice");
    }
}

fn packets_in(file: &Path) -> u64 {
    let bytes = fs::read(file).unwrap();
    let (mut at, mut packets) = (24, 0);
    while let Some(len) = bytes.get(at + 8..at + 12) {
        at += 16 + u32::from_le_bytes(len.try_into().unwrap()) as usize;
        packets += 1;
    }
    packets
}

#[test]
fn of_files() {
    compare(SIMPLE, false);
}

#[test]
fn of_files_by_a_thread() {
    compare(THREADED, false);
}

#[test]
fn of_pipes() {
    compare(SIMPLE, true);
}

#[test]
fn of_pipes_by_a_thread() {
    compare(THREADED, true);
}

/// A filter that is set between packets refuses those that were gathered before it, as libpcap's does those in its ring.
#[test]
fn a_later_filter_is_obeyed() {
    let program = compiled("reads");
    for settings in [SIMPLE, THREADED] {
        let mut command = limited(&program);
        command.arg("-r").arg(trace());
        command.args(["x", "f:udp", "D:-1", "x"]);
        let told = shimmed(&mut command, settings);
        let output = text(&run(&mut command).stdout);
        let mut only = limited(&program);
        let only = run(only.arg("-r").arg(trace()).args(["f:udp", "D:-1"]));
        let only = text(&only.stdout);
        let (_, expected) = parts(&only);
        let (_, got) = parts(&output);
        let mut got = got;
        let first = output
            .lines()
            .find(|line| line.starts_with("packet "))
            .unwrap();
        got.retain(|line| *line != first || expected.contains(&first));
        assert!(got == expected);
        assert!(counts(&told)[0].of("refused") > 100);
    }
}

/// A program that looks at the first packet, and then turns back in the file (as nfpcapd does), gets all of them.
#[test]
fn a_file_may_be_turned_back_in() {
    let program = compiled("reads");
    for settings in [SIMPLE, THREADED] {
        let read = |settings: Option<Settings<'_>>| {
            let mut command = limited(&program);
            command.arg("-r").arg(trace());
            command.args(["p", "x", "P", "X"]);
            let told = settings.map(|settings| shimmed(&mut command, settings));
            (text(&run(&mut command).stdout), told)
        };
        let (expected, _) = read(None);
        let (got, told) = read(Some(settings));
        assert_eq!(sorted(&got), sorted(&expected));
        assert_eq!(counts(&told.unwrap())[0].of("again"), 699);
    }
}

/// From inside the program: packets come in another order, class by class, each class in that of the file.
#[test]
fn delivery_is_grouped() {
    let program = compiled("ports");
    let read = |settings: Option<Settings<'_>>| {
        let mut command = limited(&program);
        command.arg(trace());
        let told = settings.map(|settings| shimmed(&mut command, settings));
        let output = text(&run(&mut command).stdout);
        let lines: Vec<(u32, u64)> = output
            .lines()
            .map(|line| {
                let (port, number) = line.split_once(' ').unwrap();
                (port.parse().unwrap(), number.parse().unwrap())
            })
            .collect();
        (lines, told.map(|told| counts(&told)))
    };
    let (plain, _) = read(None);
    let runs = |packets: &[(u32, u64)]| {
        packets
            .windows(2)
            .filter(|two| two[0].0 != two[1].0)
            .count()
            + 1
    };
    for variant in ["simple", "threaded"] {
        let settings = [("BUFFER", "1000"), ("VARIANT", variant)];
        let (grouped, told) = read(Some(Settings(&settings)));
        assert_eq!(grouped.len(), plain.len());
        let mut classes = 0;
        for (grouped, plain) in grouped.chunks(1000).zip(plain.chunks(1000)) {
            let mut expected = plain.to_vec();
            let first = |port| plain.iter().position(|packet| packet.0 == port);
            expected.sort_by_key(|packet| first(packet.0));
            assert_eq!(grouped, expected, "{variant}");
            classes += runs(grouped);
        }
        assert!(runs(&plain) > 3 * runs(&grouped));
        let told = &told.unwrap()[0];
        told.assert_grouped(variant);
        assert_eq!(told.of("classes"), classes as u64);
        assert_eq!(told.of("buffers"), plain.len().div_ceil(1000) as u64);
    }
}

#[test]
fn wrong_settings_end_the_program() {
    for (name, value) in [
        ("BUFFER", "0"),
        ("TIMEOUT", "soon"),
        ("CLASS", "colour"),
        ("VARIANT", "fast"),
        ("FILTERS", "/nowhere"),
    ] {
        let mut command = limited(compiled("reads"));
        command.arg("-r").arg(trace()).arg("l:-1");
        shimmed(&mut command, Settings(&[(name, value)]));
        let output = run(&mut command);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("FLOWGAUGE_LOCALITY_{name}")),
            "{said}"
        );
        assert!(said.contains(value) && said.contains("\nhint: "), "{said}");
    }
}

/// Handles of several threads, which are closed with packets left in them or not.
#[test]
fn several_handles_at_once() {
    let program = compiled("several");
    let read = |settings: Option<Settings<'_>>| {
        let mut command = limited(&program);
        command.arg(trace());
        let told = settings.map(|settings| shimmed(&mut command, settings));
        let output = run(&mut command);
        assert!(output.status.success(), "{}", output.status);
        (text(&output.stdout), told)
    };
    let (expected, _) = read(None);
    for settings in [SIMPLE, THREADED] {
        let (got, told) = read(Some(settings));
        assert_eq!(got, expected);
        let told = counts(&told.unwrap());
        assert_eq!(told.len(), 2 * 8 * 5);
        let whole = told.iter().filter(|told| told.of("left") == 0);
        assert_eq!(whole.count(), 8 * 5);
    }
}
