//! `flowgauge stack run`: what fails on the way.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio};

fn flowgauge(folder: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder =
        std::env::temp_dir().join(format!("flowgauge-stack-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let made = flowgauge(&folder)
        .args([
            "generate",
            "small",
            "-q",
            "--flows",
            "2000",
            "-w",
            "small.pcap",
        ])
        .status()
        .expect("it runs");
    assert!(made.success());
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_stack_fails_and_is_named_though_the_input_is_damaged_too() {
    let folder = folder("failure");
    fs::write(
        folder.join("two.stack"),
        "[stack full]\noutput { /dev/full }\n[stack good]\ncount output { copy.pcap }\n",
    )
    .expect("a file");
    let whole = fs::read(folder.join("small.pcap")).expect("it was made");
    fs::write(folder.join("cut.pcap"), &whole[..whole.len() - 7]).expect("a file");
    let output = flowgauge(&folder)
        .args(["stack", "run", "-f", "two.stack", "-r", "cut.pcap"])
        .output()
        .expect("it runs");
    let messages = text(&output);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(
        messages.contains("error: stack full: the component output failed: "),
        "{messages}"
    );
    assert!(
        messages.contains("cut.pcap is damaged at byte"),
        "{messages}"
    );
    let results = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = results
        .lines()
        .find(|line| line.contains("\"stack\":\"good\",\"component\":\"count\""));
    assert!(line.is_some(), "{results}");
    let copy = fs::metadata(folder.join("copy.pcap")).expect("it was written");
    assert_eq!(copy.len(), whole.len() as u64 - 16 - last_record(&whole));
    fs::remove_dir_all(&folder).expect("it can go");
}

/// Length of the last packet of a pcap file in this machine's byte order.
fn last_record(file: &[u8]) -> u64 {
    let mut at = 24;
    let mut length = 0;
    while at + 16 <= file.len() {
        let bytes = [file[at + 8], file[at + 9], file[at + 10], file[at + 11]];
        length = u32::from_le_bytes(bytes);
        at += 16 + length as usize;
    }
    u64::from(length)
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder("reader");
    let mut run = flowgauge(&folder)
        .args(["stack", "run", "-e", "output count", "-r", "small.pcap"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdout = run.stdout.take().expect("it is a pipe");
    let mut magic = [0; 4];
    stdout.read_exact(&mut magic).expect("a capture comes");
    assert_eq!(u32::from_le_bytes(magic), 0xa1b2_3c4d);
    drop(stdout);
    let output = run.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(!text(&output).contains("error"), "{}", text(&output));
    fs::remove_dir_all(&folder).expect("it can go");
}

#[test]
fn flow_records_of_a_stack_are_those_of_the_command() {
    let folder = folder("flows");
    let run = |arguments: &[&str]| {
        let output = flowgauge(&folder)
            .args(arguments)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).expect("records are text")
    };
    let file = ["-r", "small.pcap"];
    for (stack, command) in [
        ("flows - output", &["flows", "--json"][..]),
        (
            "flows { tcp_timeout = 1ms, max_flows = 100 } - output { format = csv }",
            &[
                "flows",
                "--csv",
                "--idle-timeout",
                "tcp=0.001",
                "--max-flows",
                "100",
            ],
        ),
        (
            "filter { \"dst port 7000 or src port 7000\" } - flows - output",
            &["flows", "--json", "port", "7000"],
        ),
    ] {
        let of_stack = run(&["stack", "run", "-e", stack, file[0], file[1]]);
        let split = command.len() - usize::from(command.contains(&"port")) * 2;
        let (options, filter) = command.split_at(split);
        let of_command = run(&[options, &file, filter].concat());
        assert!(of_command.lines().count() > 100, "{stack}");
        assert_eq!(of_stack, of_command, "{stack}");
    }
    let some = run(&[
        "stack",
        "run",
        "-e",
        "flows - output { format = csv, fields = \"dst_port, src_ip\" }",
        "-r",
        "small.pcap",
    ]);
    assert!(some.starts_with("src_ip,dst_port\n10."), "{some}");
    assert!(some.lines().all(|line| line.matches(',').count() == 1));
    // Nothing came: the file is there, and is no capture.
    run(&[
        "stack",
        "run",
        "-e",
        "filter { \"port 1\" } - flows - output { none.json }",
        "-r",
        "small.pcap",
    ]);
    assert_eq!(
        fs::read(folder.join("none.json")).expect("it was made"),
        b""
    );
    let output = flowgauge(&folder)
        .args(["stack", "check", "-e", "ipcnxdemux < flows > output"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output);
    assert!(
        said.contains("flows cannot stand within ipcnxdemux: it has one table of all flows"),
        "{said}"
    );
    fs::remove_dir_all(&folder).expect("it can go");
}

#[test]
fn what_goes_through_is_said_while_it_runs() {
    let folder = folder("watch");
    let trace = fs::read(folder.join("small.pcap")).expect("it was made");
    let mut child = flowgauge(&folder)
        .args(["stack", "run", "--watch=1", "--json", "-q", "-r", "-", "-e"])
        .arg("tcpscan count")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let mut said = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
    let (enough, is_enough) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        // The same packets again and again, until that was said.
        stdin.write_all(&trace[..24]).expect("it reads");
        while is_enough.try_recv().is_err() {
            stdin.write_all(&trace[24..]).expect("it reads");
        }
    });
    let mut next = || -> serde_json::Value {
        let line = said.next().expect("it says something").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    // However long it takes until something went through.
    let mut counts = [next(), next()];
    for _ in 0..60 {
        if counts[1]["items"] != 0 {
            break;
        }
        counts = [next(), next()];
    }
    enough.send(()).expect("the writer goes on");
    writer.join().expect("it ends");
    assert!(said.by_ref().all(|line| line.is_ok()));
    assert!(child.wait().expect("it ends").success());
    assert_eq!(counts[0]["component"], "tcpscan");
    assert_eq!(counts[1]["component"], "count");
    assert_eq!(counts[1]["items"], counts[1]["result"]);
    let items = |count: &serde_json::Value| count["items"].as_u64().expect("a number");
    assert!(items(&counts[0]) >= items(&counts[1]) && items(&counts[1]) > 0);
    fs::remove_dir_all(&folder).expect("it can go");
}

#[test]
fn a_bench_has_a_line_for_each_component_and_the_sum() {
    let folder = folder("bench");
    let output = flowgauge(&folder)
        .args(["stack", "bench", "--repeat", "3", "-r", "small.pcap", "-e"])
        .arg("tcpscan tcpcnxdemux < identity > count")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = table.lines().map(serde_json::from_str);
    let rows: Vec<serde_json::Value> = lines.collect::<Result<_, _>>().expect("records");
    let names: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["component"].as_str())
        .collect();
    assert_eq!(names, ["tcpscan", "tcpcnxdemux", "identity", "count"]);
    let all = &rows[4];
    assert!(all["component"].is_null(), "{table}");
    let number = |row: &serde_json::Value, field: &str| row[field].as_f64().expect("a number");
    for row in &rows {
        assert!(
            number(row, "nanoseconds") <= number(row, "median"),
            "{table}"
        );
    }
    let items: Vec<f64> = rows[..4].iter().map(|row| number(row, "items")).collect();
    assert!(items[0] > items[1] && items[1] == items[2], "{table}");
    let per_item = number(&rows[3], "item_nanoseconds") * items[3];
    let sum = number(&rows[3], "nanoseconds") * number(&rows[3], "packets");
    assert!((per_item - sum).abs() < 1.0 + sum / 100.0, "{table}");
    fs::remove_dir_all(&folder).expect("it can go");
}
