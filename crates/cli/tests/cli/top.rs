//! `flowgauge top`, and tables that are drawn again and again, on terminals (of `script`) and elsewhere.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use crate::command_support::{Folder, fails, printed, run, stderr, stdout, text, wait_until};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// A shell on a terminal, which says at the end how the terminal is.
struct Terminal {
    child: Child,
    /// What is on it.
    log: std::path::PathBuf,
}

impl Terminal {
    fn begin(folder: &Folder, command: &str) -> Terminal {
        let log = folder.file("screen");
        let line = format!("trap : INT; stty rows 30 cols 100; {command}; echo exit=$?; stty -a");
        let child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &line])
            .arg(&log)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Terminal { child, log }
    }

    fn screen(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = fs::File::open(&self.log) {
            file.read_to_end(&mut bytes).unwrap();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn waits_for(&self, what: &str) {
        wait_until(what, || self.screen().contains(what));
    }

    fn press(&mut self, keys: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    fn end(self) -> String {
        self.end_with(&["exit=0"])
    }

    /// What was on it, when the terminal is as it was and the program has ended with one of these codes.
    fn end_with(mut self, codes: &[&str]) -> String {
        self.waits_for("exit=");
        assert!(self.child.wait().unwrap().success());
        let screen = self.screen();
        let mut ends = codes.iter().filter_map(|code| screen.split_once(code));
        let (page, behind) = ends.next().unwrap_or_else(|| panic!("{screen}"));
        for mode in ["icanon", "echo", "isig"] {
            assert!(behind.split_whitespace().any(|it| it == mode), "{behind}");
        }
        assert!(behind.contains("susp = ^Z"), "{behind}");
        page.to_owned()
    }
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_flowgauge")
}

#[test]
fn keys_change_the_page_and_end_it() {
    let folder = Folder::new("top-keys");
    let (trace, _) = folder.trace();
    let mut terminal = Terminal::begin(
        &folder,
        &format!("{} top -r {}", program(), trace.display()),
    );
    terminal.waits_for("[talkers]");
    terminal.press("f");
    terminal.waits_for("[flows]");
    terminal.waits_for("tcp 10.");
    terminal.press("o");
    terminal.waits_for("[protocols]");
    terminal.press("q");
    let page = terminal.end();
    assert_eq!(page.matches(ENTER).count(), 1);
    let (drawn, behind) = page.split_once(LEAVE).unwrap();
    assert!(drawn.contains("PACKETS"), "{drawn}");
    // The ledger comes when the terminal is as before.
    assert!(behind.contains("received"), "{behind}");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let folder = Folder::new("top-signal");
    let (trace, _) = folder.trace();
    let pipe = folder.file("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let mut terminal =
        Terminal::begin(&folder, &format!("{} top -r {}", program(), pipe.display()));
    // The input does not end.
    let mut input = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    input.write_all(&fs::read(trace).unwrap()).unwrap();
    terminal.waits_for("[talkers]");
    terminal.press("\x03");
    let page = terminal.end();
    drop(input);
    assert!(page.contains(LEAVE), "{page}");
}

#[test]
fn a_signal_ends_the_page_of_a_file_that_was_read() {
    let folder = Folder::new("top-signal-file");
    let (trace, _) = folder.trace();
    let command = format!("{} top -r {}", program(), trace.display());
    let mut terminal = Terminal::begin(&folder, &command);
    terminal.waits_for("average of");
    terminal.press("\x03");
    assert!(terminal.end().contains(LEAVE));
}

#[test]
fn a_second_signal_leaves_the_terminal_as_it_was() {
    let folder = Folder::new("top-signals");
    let (trace, _) = folder.trace();
    let command = format!("{} top -r {}", program(), trace.display());
    let mut terminal = Terminal::begin(&folder, &command);
    terminal.waits_for("average of");
    terminal.press("\x03\x03");
    // The first one may have ended it.
    let page = terminal.end_with(&["exit=130", "exit=0"]);
    assert_eq!(page.matches(LEAVE).count(), 1, "{page}");
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    let folder = Folder::new("top-panic");
    let (trace, _) = folder.trace();
    let command = format!(
        "FLOWGAUGE_TEST=page-panics {} top -r {}",
        program(),
        trace.display()
    );
    let page = Terminal::begin(&folder, &command).end_with(&["exit=101"]);
    let (_, behind) = page.split_once(LEAVE).unwrap();
    assert!(behind.contains("a test wants it"), "{behind}");
}

/// Packets, their bytes and the seconds from the first to the last of a pcap file.
fn averaged(file: &[u8]) -> (f64, f64, f64) {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let fraction = match number(0) {
        0xa1b2_3c4d => 1e-9,
        magic => {
            assert_eq!(magic, 0xa1b2_c3d4);
            1e-6
        }
    };
    let (mut at, mut packets, mut bytes) = (24, 0.0, 0.0);
    let (mut first, mut last) = (f64::MAX, f64::MIN);
    while at < file.len() {
        let time = f64::from(number(at)) + f64::from(number(at + 4)) * fraction;
        (first, last) = (first.min(time), last.max(time));
        packets += 1.0;
        bytes += f64::from(number(at + 12));
        at += 16 + number(at + 8) as usize;
    }
    (packets, bytes, last - first)
}

/// A number with `k`, `M` or `G`.
fn scaled(text: &str) -> f64 {
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => 1.0,
    };
    digits.parse::<f64>().unwrap() * unit
}

#[test]
fn without_a_terminal_it_is_printed_once() {
    let folder = Folder::new("top-pipe");
    let (trace, _) = folder.trace();
    let output = run(&["top", "-r", text(&trace)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("standard output is not a terminal"),
        "{}",
        stderr(&output)
    );
    let page = stdout(&output);
    assert!(!page.contains('\x1b'), "{page}");
    // Rates are of the packets' times.
    let (packets, bytes, seconds) = averaged(&fs::read(&trace).unwrap());
    let (first, _) = page.split_once('\n').unwrap();
    let (rates, time) = first.split_once(" (average of ").unwrap();
    assert_eq!(time, format!("{seconds:.1} s of capture time)"));
    let (of_packets, of_bits) = rates.split_once(" packets/s, ").unwrap();
    let of_bits = of_bits.strip_suffix("bit/s").unwrap();
    for (shown, expected) in [
        (of_packets, packets / seconds),
        (of_bits, 8.0 * bytes / seconds),
    ] {
        assert!((scaled(shown) / expected - 1.0).abs() < 0.01, "{first}");
    }
    let tcp_line = page
        .lines()
        .find(|line| line.starts_with("tcp   "))
        .unwrap();
    let numbers: Vec<f64> = tcp_line.split_whitespace().skip(1).map(scaled).collect();
    assert!(
        (numbers[0] / (8.0 * numbers[1] / seconds) - 1.0).abs() < 0.01,
        "{tcp_line}"
    );
    for heading in ["TALKERS", "FLOWS", "PROTOCOLS"] {
        assert_eq!(
            page.lines()
                .filter(|line| line.starts_with(heading))
                .count(),
            1,
            "{page}"
        );
    }
    // What it counts is what others count.
    let flows = printed(&[
        "flows",
        "-q",
        "--csv",
        "--by",
        "proto",
        "--sum",
        "packets,bytes",
        "-r",
        text(&trace),
    ]);
    let of_flows: Vec<Vec<&str>> = flows
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    let tcp = of_flows.iter().find(|row| row[0] == "tcp").unwrap();
    let stack = "top { by = proto }";
    let counted = printed(&[
        "stack",
        "run",
        "-q",
        "--csv",
        "-e",
        stack,
        "-r",
        text(&trace),
    ]);
    let packets = of_flows[0]
        .iter()
        .position(|name| *name == "packets")
        .unwrap();
    assert!(
        counted
            .lines()
            .any(|line| line.contains("tcp") && line.contains(tcp[packets])),
        "{counted} {flows}"
    );
    fails(
        &["top", "--every", "1ms", "-r", text(&trace)],
        2,
        &["--every", "hint: "],
    );
}

#[test]
fn groups_of_intervals_take_the_place_of_one_another_on_a_terminal() {
    let folder = Folder::new("top-intervals");
    let (trace, _) = folder.trace();
    let options = format!("flows --top 3 --interval 100ms -r {}", trace.display());
    let terminal = Terminal::begin(&folder, &format!("{} {options}", program()));
    let screen = terminal.end();
    let pages = screen.matches("\x1b[H\x1b[J").count();
    assert!(pages > 1, "{screen}");
    let arguments: Vec<&str> = options.split(' ').chain(["-q", "--csv"]).collect();
    let lines = printed(&arguments);
    let starts: std::collections::BTreeSet<&str> = lines
        .lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap())
        .collect();
    assert!(pages <= starts.len(), "{lines}");
    fails(
        &["flows", "--interval", "1s", "-r", text(&trace)],
        2,
        &["--interval", "hint: "],
    );
}

#[test]
fn there_are_colours_on_a_terminal_alone() {
    let folder = Folder::new("colours");
    let (trace, _) = folder.trace();
    let shown = |variable: &str, options: &str| {
        let command = format!(
            "{variable}{} {options} -q -r {}",
            program(),
            trace.display()
        );
        Terminal::begin(&folder, &command).end()
    };
    for command in ["packets -c 3", "flows", "log"] {
        let screen = shown("", command);
        assert!(screen.contains("\x1b[36m"), "{command}: {screen}");
        assert!(!shown("NO_COLOR=1 ", command).contains('\x1b'), "{command}");
        assert!(
            !shown("", &format!("{command} --color never")).contains('\x1b'),
            "{command}"
        );
        let words = |more: &'static [&'static str]| {
            let words = command
                .split(' ')
                .chain(["-q", "--table", "-r", text(&trace)]);
            printed(&words.chain(more.iter().copied()).collect::<Vec<_>>())
        };
        assert!(!words(&[]).contains('\x1b'), "{command}");
        assert!(
            words(&["--color", "always"]).contains("\x1b[36m"),
            "{command}"
        );
        let file = folder.file("table.txt");
        let mut to_file: Vec<&str> = command
            .split(' ')
            .chain(["-q", "--table", "--color", "always", "-r", text(&trace)])
            .collect();
        to_file.extend(["-w", text(&file)]);
        printed(&to_file);
        assert!(
            !fs::read_to_string(&file).unwrap().contains('\x1b'),
            "{command}"
        );
    }
}
