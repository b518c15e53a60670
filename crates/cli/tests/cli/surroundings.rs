//! What a process is started with: closed standard streams, few files, little memory, names that
//! are no text, and captures that hold what a terminal would obey.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that goes with the test, with a small trace of everything in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("flowgauge-around-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let folder = Folder(path);
        let made = folder.run(&["generate", "zoo", "--flows", "60", "-w", "zoo.pcap"]);
        assert_eq!(made.status.code(), Some(0));
        folder
    }

    /// Runs the program in the folder.
    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.run_after("exec \"$0\" \"$@\"", arguments)
    }

    /// Runs it by a line of shell, which has it as `"$0" "$@"`.
    fn run_after<S: AsRef<OsStr>>(&self, line: &str, arguments: &[S]) -> Output {
        Command::new("sh")
            .args(["-c", line, env!("CARGO_BIN_EXE_flowgauge")])
            .args(arguments)
            .current_dir(&self.0)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn contents(&self, name: &str) -> BTreeMap<OsString, Vec<u8>> {
        let entries = fs::read_dir(self.0.join(name)).unwrap();
        entries
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let folder = Folder::new("stdout");
    for line in [
        "flows -r zoo.pcap",
        "flows -r zoo.pcap --by src_ip",
        "streams -r zoo.pcap",
        "streams -r zoo.pcap --count",
        "match -r zoo.pcap -e GET",
        "report -r zoo.pcap",
        "packets -r zoo.pcap",
        "packets -r zoo.pcap -w -",
        "capture -r zoo.pcap -w -",
        "capture -d tcp",
        "capture -D",
        "generate -w -",
        "doctor",
        "--help",
        "flows --help",
        "--version",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = folder.run_after("exec \"$0\" \"$@\" >&-", &words);
        assert_eq!(output.status.code(), Some(1), "{line}");
        let message = stderr(&output);
        let expected = "flowgauge: error: cannot write standard output: it is closed\nhint: ";
        assert!(message.starts_with(expected), "{line}: {message}");
    }
}

/// Who asks for files needs no standard output.
#[test]
fn a_closed_standard_output_matters_only_where_it_is_written() {
    let folder = Folder::new("files-only");
    for line in [
        "flows -q -r zoo.pcap -w flows.json",
        "report -q -r zoo.pcap -w report.txt",
        "capture -q -r zoo.pcap -w copy.pcap",
        "streams -q -r zoo.pcap --out bytes",
        "generate -q -w new.pcap --flows 1",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = folder.run_after("exec \"$0\" \"$@\" >&-", &words);
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        let written = folder.0.join(words.last().unwrap());
        assert!(words.contains(&"generate") || written.exists(), "{line}");
    }
}

/// Results are the same, and the exit code tells what messages cannot.
#[test]
fn a_closed_standard_error_costs_only_the_messages() {
    let folder = Folder::new("stderr");
    for (line, code) in [
        ("flows -r zoo.pcap --stats", 0),
        ("streams -r zoo.pcap --hash", 0),
        ("streams -r zoo.pcap --cutoff 1k --counters", 0),
        ("match -r zoo.pcap -e GET", 0),
        ("report -r zoo.pcap --json", 0),
        ("packets -r zoo.pcap --stats", 0),
        ("flows -r gone.pcap", 2),
        ("flows --no-such-option", 2),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let usual = folder.run(&words);
        let output = folder.run_after("exec \"$0\" \"$@\" 2>&-", &words);
        assert_eq!(output.status.code(), Some(code), "{line}");
        assert!(output.stderr.is_empty(), "{line}");
        assert!(!usual.stderr.is_empty(), "{line}");
        assert!(output.stdout == usual.stdout, "{line}");
    }
    // Nor does what is said get into a file that took the descriptor's number.
    let line = "exec \"$0\" \"$@\" 2>&-";
    let copied = folder.run_after(line, &["capture", "-r", "zoo.pcap", "-w", "copy.pcap"]);
    assert_eq!(copied.status.code(), Some(0));
    let whole = folder.run(&["capture", "-r", "copy.pcap", "-w", "again.pcap"]);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
}

/// Fewer open files than streams: they are closed and opened again.
#[test]
fn streams_are_written_with_few_open_files() {
    let folder = Folder::new("few-files");
    let line = ["streams", "-q", "-r", "zoo.pcap", "--out"];
    let many = folder.run(&[&line[..], &["many"]].concat());
    assert_eq!((many.status.code(), &*stderr(&many)), (Some(0), ""));
    let few = folder.run_after(
        "ulimit -n 12; exec \"$0\" \"$@\"",
        &[&line[..], &["few"]].concat(),
    );
    assert_eq!((few.status.code(), &*stderr(&few)), (Some(0), ""));
    let contents = folder.contents("many");
    assert!(contents.len() > 50);
    assert!(contents == folder.contents("few"));
    // Not even one: said, and which file it was.
    let none = folder.run_after(
        "ulimit -n 4; exec \"$0\" \"$@\"",
        &[&line[..], &["none"]].concat(),
    );
    assert_ne!(none.status.code(), Some(0));
    assert!(
        stderr(&none).contains("Too many open files"),
        "{}",
        stderr(&none)
    );
}

#[test]
fn memory_that_is_refused_is_told_with_a_hint() {
    let folder = Folder::new("no-memory");
    let made = folder.run(&[
        "generate",
        "syn",
        "--flows",
        "100000",
        "--summary",
        "-w",
        "syn.pcap",
    ]);
    assert_eq!(made.status.code(), Some(0));
    let line = "ulimit -v 64000; exec \"$0\" \"$@\"";
    let output = folder.run_after(line, &["flows", "-r", "syn.pcap"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("flowgauge: error: out of memory"),
        "{message}"
    );
    assert!(message.contains("hint: --memory"), "{message}");
}

#[test]
fn too_little_memory_is_refused() {
    let folder = Folder::new("least-memory");
    for (line, part) in [
        ("flows -r zoo.pcap --memory 1", "the minimum is 1M"),
        ("report -r zoo.pcap --memory 1023K", "the minimum is 1M"),
        (
            "streams -r zoo.pcap --memory 2M --workers 3",
            "hint: use --memory 3M or more, or fewer --workers",
        ),
    ] {
        let output = folder.run(&line.split(' ').collect::<Vec<&str>>());
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let output = folder.run(&["flows", "-r", "zoo.pcap", "--memory", "1M"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn names_of_files_need_not_be_text() {
    let folder = Folder::new("names");
    let name = OsString::from_vec(b"\xff\xfe z.pcap".to_vec());
    fs::copy(folder.0.join("zoo.pcap"), folder.0.join(&name)).unwrap();
    let word = |text: &str| OsString::from(text);
    let usual = folder.run(&["flows", "-r", "zoo.pcap"]);
    let output = folder.run(&[word("flows"), word("-r"), name.clone()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(output.stdout, usual.stdout);
    // Also among the words that the shell expanded, and to be written.
    let both = folder.run(&[word("flows"), word("-r"), word("zoo.pcap"), name.clone()]);
    let twice = folder.run(&["flows", "-r", "zoo.pcap", "zoo.pcap"]);
    assert_eq!(both.stdout, twice.stdout);
    let mut copy = name.clone();
    copy.push(".copy");
    let copied = folder.run(&[word("capture"), word("-r"), name, word("-w"), copy.clone()]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    assert!(folder.0.join(copy).exists());
    // What is no file cannot be a filter either.
    let gone = OsString::from_vec(b"\xff".to_vec());
    let output = folder.run(&[word("flows"), word("-r"), word("zoo.pcap"), gone]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is neither a file nor part of a filter"));
}

/// Turns the screen's colours round, rings the bell, and an 8-bit CSI.
const ESCAPES: &str = "eth\x1b[7m\x07\u{9b}31m0";

/// A pcapng file with an interface of that name and a packet whose payload it is, too.
fn hostile_capture(path: &Path) {
    let block = |kind: u32, body: &[u8]| {
        let length = 12 + body.len() as u32;
        let ends = length.to_le_bytes();
        [&kind.to_le_bytes()[..], &ends, body, &ends].concat()
    };
    let padded = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let name = ESCAPES.as_bytes();
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = [
        &[101, 0, 0, 0, 0, 0, 0, 0, 2, 0, name.len() as u8, 0][..],
        &padded(name),
        &[0; 4],
    ]
    .concat();
    let length = 28 + name.len() as u16;
    let mut datagram = vec![0x45, 0, 0, length as u8, 0, 0, 0, 0, 64, 17, 0, 0];
    datagram.extend([
        192,
        0,
        2,
        1,
        192,
        0,
        2,
        2,
        0,
        53,
        0,
        53,
        0,
        8 + name.len() as u8,
        0,
        0,
    ]);
    datagram.extend(name);
    let mut packet = vec![0; 12];
    packet.extend(u32::from(length).to_le_bytes());
    packet.extend(u32::from(length).to_le_bytes());
    packet.extend(padded(&datagram));
    let file = [
        block(0x0a0d_0d0a, &section),
        block(1, &interface),
        block(6, &packet),
    ];
    fs::write(path, file.concat()).unwrap();
}

/// What captures, names of files and arguments say is shown without anything a terminal obeys.
#[test]
fn nothing_that_a_terminal_obeys_is_printed() {
    let folder = Folder::new("escapes");
    hostile_capture(&folder.0.join("hostile.pcapng"));
    let name = format!("{ESCAPES}.pcap");
    fs::copy(folder.0.join("hostile.pcapng"), folder.0.join(&name)).unwrap();
    let whole = fs::read(folder.0.join("zoo.pcap")).unwrap();
    let cut = format!("cut{ESCAPES}.pcap");
    fs::write(folder.0.join(&cut), &whole[..2000]).unwrap();
    let escaped = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        text.chars()
            .any(|one| one.is_control() && one != '\n' && one != '\t')
    };
    let lines: [&[&str]; 14] = [
        &["packets", "--table", "-r", &name],
        &["packets", "--table", "-e", "-X", "-r", &name],
        &["packets", "--json", "-r", &name],
        &["packets", "--csv", "-r", &name],
        &["flows", "--table", "-r", &name],
        &["report", "-r", &name],
        &["match", "--table", "-e", ESCAPES, "-r", &name],
        &["match", "--table", "--count", "-e", ESCAPES, "-r", &name],
        &["flows", "-r", &cut],
        &["flows", "-r", "zoo.pcap", "-w", ESCAPES, "tcp", ESCAPES],
        &["flows", "-r", &format!("{ESCAPES}gone.pcap")],
        &["flows", "-i", ESCAPES],
        &["flows", ESCAPES],
        &[&format!("--{ESCAPES}")],
    ];
    for line in lines {
        let output = folder.run(line);
        assert!(!escaped(&output.stderr), "{line:?}: {}", stderr(&output));
        // A value of CSV is what it is; JSON escapes it.
        if !line.contains(&"--csv") {
            assert!(!escaped(&output.stdout), "{line:?}");
        }
        let shown = [output.stdout, output.stderr].concat();
        assert!(!shown.is_empty(), "{line:?}");
    }
    let table = folder.run(&["packets", "--table", "-r", &name]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("eth\u{fffd}[7m") || table.contains("eth?[7m"),
        "{table}"
    );
    // The other way round: where nothing is hidden, the name is the name.
    let json = folder.run(&["packets", "--json", "-r", &name]);
    let row: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        row["interface"].as_str().unwrap().as_bytes(),
        OsStr::new(ESCAPES).as_bytes()
    );
}

#[test]
fn generate_refuses_what_is_out_of_bounds() {
    let folder = Folder::new("bounds");
    for (options, part) in [
        ("--flows 0", "must be more than zero"),
        ("--flows 100000001", "more than 100000000 flows"),
        (
            "--packets 18446744073709551615",
            "more than 100000000 flows",
        ),
        ("--flows 18446744073709551616", "is too large"),
        ("--scale 0", "--scale must be a number above zero"),
        ("--scale -1", "--scale must be a number above zero"),
        ("--scale NaN", "--scale must be a number above zero"),
        ("--scale inf", "--scale must be a number above zero"),
        ("--scale 1e300", "more than 100000000 flows"),
        ("--duration 0", "must be more than zero"),
        ("--duration -1", "invalid value '-1' for '--duration"),
        ("--duration NaN", "invalid value 'NaN' for '--duration"),
        ("--duration 31536001", "--duration is out of range"),
        ("--vlan 1.01", "a share is a number from 0 to 1"),
        ("--vlan -0.5", "a share is a number from 0 to 1"),
        ("--tunnel NaN", "a share is a number from 0 to 1"),
        ("--seed -1", "invalid value '-1' for '--seed <N>'"),
        ("--seed 18446744073709551616", "invalid value"),
    ] {
        let mut line = vec!["generate", "-w", "new.pcap"];
        line.extend(options.split(' '));
        let output = folder.run(&line);
        assert_eq!(output.status.code(), Some(2), "{options}");
        let message = stderr(&output);
        assert!(message.contains(part), "{options}: {message}");
        assert!(!folder.0.join("new.pcap").exists(), "{options}");
    }
    for options in [
        "--flows 1",
        "--packets 1",
        "--scale 1e-300",
        "--flows 2 --duration 0.001",
        "--flows 2 --duration 31536000",
        "--flows 3 --ipv6 1 --vlan 1 --qinq 1 --tunnel 1 --fragments 1 --mid-stream 1",
        "--flows 3 --reordered 1 --retransmitted 1 --lost 1 --missing 1 --duplicated 1",
        "--flows 3 --seed 18446744073709551615",
    ] {
        for preset in ["mix", "zoo", "syn", "hostile"] {
            let mut line = vec!["generate", preset, "-q", "-w", "new.pcap"];
            line.extend(options.split(' '));
            let output = folder.run(&line);
            let case = format!("{preset} {options}: {}", stderr(&output));
            assert_eq!(output.status.code(), Some(0), "{case}");
            let read = folder.run(&["flows", "-q", "-r", "new.pcap"]);
            assert_eq!(read.status.code(), Some(0), "{case}");
        }
    }
}
