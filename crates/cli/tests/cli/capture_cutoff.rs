//! `flowgauge capture` with cutoffs: classes of streams, and a bound for what is followed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

fn flowgauge(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgauge"));
    command.args(arguments);
    command
}

/// Standard output and what was said; it succeeds.
fn run(arguments: &[&str]) -> (String, String) {
    let output = flowgauge(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    (String::from_utf8(output.stdout).unwrap(), said)
}

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capture_cutoff");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// A trace under this name.
fn trace(name: &str, options: &[&str]) -> String {
    let path = file(name).to_str().unwrap().to_owned();
    run(&[&["generate", "-q", "-w", &path, "--seed", "3"], options].concat());
    path
}

/// The longest stream of TCP, and of UDP.
fn longest(path: &str) -> [u64; 2] {
    let (lines, _) = run(&["streams", "-q", "--json", "-r", path]);
    let mut longest = [0; 2];
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let place = &mut longest[usize::from(record["proto"] == "udp")];
        *place = record["bytes"].as_u64().unwrap().max(*place);
    }
    longest
}

#[test]
fn the_first_class_that_matches_decides_how_much_is_written() {
    let mix = trace("mix.pcap", &["--preset", "mix", "--flows", "150"]);
    let all = longest(&mix);
    // A packet that begins before the cutoff is written whole.
    let packet = 1_500;
    for (options, most) in [
        (["--cutoff", "6000", "--cutoff-class", "0:udp"], [6_000, 0]),
        (
            ["--cutoff-class", "6000:tcp", "--cutoff-class", "9:ip"],
            [6_000, 9],
        ),
        (
            ["--cutoff-class", "9:udp", "--cutoff-direction", "client:0"],
            [u64::MAX, 9],
        ),
    ] {
        let cut = file("cut.pcap").to_str().unwrap().to_owned();
        let (_, said) = run(&[&["capture", "-r", &mix, "-w", &cut], &options[..]].concat());
        assert!(said.contains("discarded (cutoff "), "{said}");
        for ((found, all), most) in longest(&cut).into_iter().zip(all).zip(most) {
            let expected = all.min(most);
            assert!(
                found >= expected && found <= expected.saturating_add(packet),
                "{options:?}: {found} of {all}, {most} wanted"
            );
        }
    }
}

#[test]
fn a_flood_of_connections_stays_within_the_bound_which_is_told() {
    let flood = trace("syn.pcap", &["--preset", "syn", "--flows", "150000"]);
    let bytes = fs::read(&flood).unwrap();
    let written = file("beginnings.pcap").to_str().unwrap().to_owned();
    let peak = |options: &[&str]| {
        let common = ["capture", "-r", "-", "--cutoff", "100", "-w", &written];
        let mut child = flowgauge(&[&common, options].concat())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&bytes).unwrap();
        // It has taken all but what is in the pipe, and waits for more.
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches("kB").trim();
        (kilobytes.parse::<u64>().unwrap() >> 10, said)
    };
    let (most, said) = peak(&[]);
    assert!(most > 50 && !said.contains("given up"), "{most} MB: {said}");
    for options in [["--memory", "4M"], ["--max-flows", "5000"]] {
        let (bounded, said) = peak(&options);
        assert!(bounded < most / 2, "{options:?}: {bounded} and {most} MB");
        assert!(said.contains(" flows were evicted to make room"), "{said}");
    }
}

#[test]
fn bounds_without_a_cutoff_and_filters_that_are_none_are_refused() {
    let small = trace("small.pcap", &["--preset", "small", "--flows", "5"]);
    for (options, what) in [
        (&["--memory", "4M"][..], "without a cutoff none are tracked"),
        (&["--max-flows", "9"], "without a cutoff none are tracked"),
        (
            &["--cutoff-class", "10k:tcp prt 80"],
            "error: --cutoff-class: bad filter \"tcp prt 80\"",
        ),
    ] {
        let arguments = [&["capture", "-r", &small, "-w", "/dev/null"], options].concat();
        let refused = flowgauge(&arguments).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(what) && said.contains("\nhint: "), "{said}");
    }
}
