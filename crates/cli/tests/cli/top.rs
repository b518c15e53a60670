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

    /// What was on it, when the terminal is as it was.
    fn end(mut self) -> String {
        self.waits_for("exit=");
        assert!(self.child.wait().unwrap().success());
        let screen = self.screen();
        let (page, behind) = screen.split_once("exit=0").unwrap();
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
fn without_a_terminal_it_is_printed_once() {
    let folder = Folder::new("top-pipe");
    let (trace, _) = folder.trace();
    let output = run(&["top", "-r", text(&trace)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("standard output is no terminal"),
        "{}",
        stderr(&output)
    );
    let page = stdout(&output);
    assert!(!page.contains('\x1b'), "{page}");
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
