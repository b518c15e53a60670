//! The program on live interfaces, as a user runs it: virtual cables in network namespaces, replayed
//! traces, signals, full disks, privileges. Needs root; otherwise each test says that it is skipped.
//!
//! Nothing here waits for a time to pass. A test waits until the program says that it listens, until
//! its statistics say that so many packets arrived, or until it ends.

#![allow(clippy::unwrap_used)]

mod support;

/// Namespaces and frames are those of the capture crate's own live tests.
#[path = "../crates/capture/tests/support/mod.rs"]
mod frames;
#[path = "live_support/mod.rs"]
mod live_support;

mod mirror_live;
mod overload_live;
mod reassembly_cases_live;
mod replay_live;
mod rmon_live;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use frames::lab::Lab;
use frames::udp_frames;
use live_support::{Program, Signal, Trace, copy_of_program, ledger, open_folder};
use serde_json::Value;
use support::flowgauge::{self, Outcome};

/// So long that the trace's own silences, which the replay skips, end no flow.
const PATIENT: [&str; 2] = ["--idle-timeout", "1000000"];

/// Fields of flow records that are about when packets were captured.
const OF_TIME: [&str; 5] = ["start", "end", "duration", "handshake_rtt", "flow_id"];

// --- the same as from the file -------------------------------------------------------------------

#[test]
fn flows_are_those_of_the_file() {
    the_same_as_from_the_file("flows", &[], &OF_TIME);
}

#[test]
fn streams_are_those_of_the_file() {
    the_same_as_from_the_file("streams", &["--list", "--hash"], &["flow_id"]);
}

/// Chunks of an interface are handled on another thread than those of a file.
#[test]
fn streams_in_chunks_are_those_of_the_file() {
    let options = ["--list", "--hash", "--chunk", "4096"];
    the_same_as_from_the_file("streams", &options, &["flow_id"]);
}

#[test]
fn matches_before_a_cutoff_are_those_of_the_file() {
    let options = ["-e", "e", "--first", "--cutoff", "20k"];
    the_same_as_from_the_file("match", &options, &["time", "flow_id"]);
}

/// What nothing of the command wants does not come, and counts all the same.
#[test]
fn records_are_those_of_the_file_where_the_kernel_keeps_packets_away() {
    let socket = ["--offload", "socket"];
    let all = |options: &[&'static str]| [options, &socket].concat();
    let first = all(&["-e", "e", "--first", "--cutoff", "2k"]);
    the_same_as_from_the_file("match", &first, &["time", "flow_id"]);
    let cut = all(&["--list", "--hash", "--cutoff", "1000"]);
    the_same_as_from_the_file("streams", &cut, &["flow_id"]);
    the_same_as_from_the_file("flows", &all(&[]), &OF_TIME);
}

/// Compares the records of `command`, with one and with two workers, but for the fields `ignored`.
fn the_same_as_from_the_file(command: &str, options: &[&str], ignored: &[&str]) {
    let is_offloaded = options.contains(&"--offload");
    // Where long flows are counted in the kernel.
    let long = (command == "flows" && is_offloaded).then_some(("elephants", "0.01"));
    for preset in [("mix", "0.002"), ("zoo", "1")].into_iter().chain(long) {
        let Some(lab) = Lab::new(65_000) else { return };
        // Tests of one command run beside each other.
        let name = format!("{command}-{}-{}", options.len(), preset.0);
        let trace = Trace::generate(&name, preset.0, preset.1);
        let mut arguments = vec![command, "--json"];
        arguments.extend(options);
        arguments.extend(PATIENT);
        // Of files there is nothing to keep away.
        let of_files = arguments
            .iter()
            .filter(|it| !["--offload", "socket", "xdp", "--mirror"].contains(it));
        let mut from_file: Vec<&str> = of_files.copied().collect();
        let path = trace.path.display().to_string();
        from_file.extend(["-r", &path]);
        let expected = flowgauge::run(&from_file);
        assert_eq!(expected.code, Some(0), "{}", expected.stderr);
        let expected = records(&expected, ignored);
        assert!(
            expected.len() > if Some(preset) == long { 5 } else { 50 },
            "{preset:?}: {} records",
            expected.len()
        );
        for workers in ["1", "2"] {
            let mut live = arguments.clone();
            live.extend(["-i", "fg1", "--workers", workers, "-B", "131072"]);
            let program = Program::start(&lab, &live);
            // What was read by then says what is wanted of the rest.
            let portion = if is_offloaded { 400 } else { usize::MAX };
            let mut sent = 0;
            for frames in trace.frames.chunks(portion) {
                Trace::of(frames.to_vec()).replay(&lab, "fg0");
                sent += frames.len() as u64;
                program.wait_for_packets(sent);
            }
            let outcome = program.stop(Signal::SIGINT);
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            let ledger = ledger(&outcome.stderr);
            assert_eq!(ledger.received, trace.frames.len() as u64);
            assert_eq!(ledger.delivered + ledger.discarded, ledger.received);
            assert_eq!(ledger.dropped, 0);
            if is_offloaded && preset.0 != "zoo" && workers == "1" {
                let note = outcome
                    .stderr
                    .lines()
                    .find(|line| line.contains(" dropped in the kernel"));
                let note = note.unwrap_or_else(|| panic!("{}", outcome.stderr));
                assert!(
                    !note.starts_with("0 packets dropped in the kernel, 0 "),
                    "{note}"
                );
                let kept = note.split(' ').next().and_then(|it| it.parse().ok());
                let least = if Some(preset) == long {
                    ledger.received / 20
                } else {
                    0
                };
                assert!(kept >= Some(least), "{note}");
            }
            let got = records(&outcome, ignored);
            assert_eq!(got.len(), expected.len(), "{preset:?}, {workers} workers");
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!(got, expected, "{preset:?}, {workers} workers");
            }
        }
    }
}

/// Records without some fields, in an order that does not depend on when they were written.
fn records(outcome: &Outcome, ignored: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = outcome
        .json_lines()
        .into_iter()
        .map(|mut record| {
            if let Value::Object(fields) = &mut record {
                for name in ignored {
                    assert!(fields.remove(*name).is_some(), "no field {name}");
                }
            }
            record.to_string()
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_written_capture_holds_the_frames_as_they_were_sent() {
    let Some(lab) = Lab::new(65_000) else { return };
    let folder = support::scratch("live-capture");
    let mut trace = Trace::generate("capture", "zoo", "1");
    trace.frames.extend(tagged(udp_frames(400, 900)));
    for name in ["all.pcap", "all.pcapng"] {
        let path = folder.join(name);
        let program = Program::start(
            &lab,
            &["capture", "-i", "fg1", "-w", &path.display().to_string()],
        );
        trace.replay(&lab, "fg0");
        program.wait_for_packets(trace.frames.len() as u64);
        let outcome = program.stop(Signal::SIGTERM);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let written = Trace::read(&path);
        assert_eq!(written.frames.len(), trace.frames.len());
        for (got, sent) in written.frames.iter().zip(&trace.frames) {
            // Tags in their places; `Trace::read` checks that nothing is longer on the wire.
            assert_eq!(got, sent);
        }
    }
}

#[test]
fn packets_and_report_are_those_of_the_file() {
    let Some(lab) = Lab::new(65_000) else { return };
    let mut trace = Trace::generate("packets", "zoo", "1");
    trace.frames.extend(tagged(udp_frames(400, 900)));
    trace.save();
    let path = trace.path.display().to_string();
    let count = trace.frames.len() as u64;

    let expected = flowgauge::run(["packets", "--json", "-r", &path]);
    let program = Program::start(&lab, &["packets", "--json", "-i", "fg1"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(count);
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // The kernel takes the outer tag out of the bytes: `captured` is less, `length` is not.
    let ignored = ["time", "interface", "captured", "number"];
    assert_eq!(records(&outcome, &ignored), records(&expected, &ignored));

    let expected = flowgauge::run(["report", "--json", "-r", &path]);
    let program = Program::start(&lab, &["report", "--json", "-i", "fg1", "--workers", "2"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(count);
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (live, file) = (outcome.json_lines(), expected.json_lines());
    for field in ["ledger", "protocols"] {
        assert_eq!(live[0][field], file[0][field], "{field}");
        assert!(!live[0][field].is_null(), "{field}");
    }
}

#[test]
fn vlan_tags_count_and_are_no_cut() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames: Vec<Vec<u8>> = [false, true]
        .map(|back| frames::ip_frame(7, back, false, true).bytes)
        .into();
    let trace = Trace::of(frames);
    let program = Program::start(&lab, &["flows", "--json", "-i", "fg1"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(2);
    let outcome = program.stop(Signal::SIGINT);
    let flows = outcome.json_lines();
    assert_eq!(flows.len(), 1, "{}", outcome.stderr);
    assert_eq!(flows[0]["vlan"], serde_json::json!([4, 3]));
    // Ethernet 14, two tags 8, IPv4 20, UDP 8, payload 7.
    assert_eq!(flows[0]["src_bytes"], 57);
    assert_eq!(flows[0]["dst_bytes"], 57);
    assert_eq!(flows[0]["src_ip_bytes"], 35);
    assert_eq!(ledger(&outcome.stderr).delivered_bytes, 114);

    let program = Program::start(&lab, &["packets", "--json", "-i", "fg1"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(2);
    for packet in program.stop(Signal::SIGINT).json_lines() {
        assert_eq!(packet["length"], 57);
        // The frames carry no IP checksum; nothing is said to be cut.
        assert_eq!(packet["note"], "bad IP checksum");
    }
}

#[test]
fn the_filter_is_in_force_in_the_kernel() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(
        udp_frames(1_000, 200)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    let program = Program::start(&lab, &["flows", "--json", "-i", "fg1", "udp port 2003"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(100);
    let outcome = program.stop(Signal::SIGINT);
    let flows = outcome.json_lines();
    assert_eq!(flows.len(), 1);
    assert_eq!(flows[0]["src_packets"], 100);
    // What the kernel refuses never reaches us.
    let ledger = ledger(&outcome.stderr);
    assert_eq!((ledger.received, ledger.delivered), (100, 100));

    let bad = live_support::run(&lab, &["flows", "-i", "fg1", "udp prot 3"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.stderr.contains("prot"), "{}", bad.stderr);
    let missing = live_support::run(&lab, &["flows", "-i", "fg7"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("fg0"), "{}", missing.stderr);
}

#[test]
fn sighup_replaces_stacks_and_loses_no_packet() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = support::scratch("live-reload");
    let file = folder.join("run.stack");
    let write = |name: &str| format!("output {{ file = {}/{name}.json }}", folder.display());
    let stays = format!("[stack stays]\nudpscan count packets {}\n", write("stays"));
    let of = |name: &str| format!("[stack {name}]\nflows {}\n", write(name));
    let frames = udp_frames(700, 200).into_iter().map(|one| one.bytes);
    let trace = Trace::of(frames.collect());
    for workers in ["1", "2"] {
        std::fs::write(&file, format!("{stays}{}", of("first"))).unwrap();
        let path = file.display().to_string();
        let arguments = [
            "stack",
            "run",
            "--json",
            "-f",
            &path,
            "-i",
            "fg1",
            "--workers",
            workers,
        ];
        let program = Program::start(&lab, &arguments);
        trace.replay(&lab, "fg0");
        program.wait_for_packets(700);
        std::fs::write(&file, format!("{stays}[stack no]\nnothing\n")).unwrap();
        program.signal_and_wait(Signal::SIGHUP, "stacks not reloaded");
        std::fs::write(&file, format!("{stays}{}", of("second"))).unwrap();
        // Packets come while it changes.
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| (0..20).for_each(|_| trace.replay(&lab, "fg0")));
            program.signal_and_wait(
                Signal::SIGHUP,
                "Z: started second; ended first; unchanged stays",
            );
            sending.join().unwrap();
        });
        program.wait_for_packets(21 * 700);
        let outcome = program.stop(Signal::SIGINT);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let ledger = ledger(&outcome.stderr);
        assert_eq!((ledger.received, ledger.delivered), (21 * 700, 21 * 700));
        let counts: Vec<Value> = outcome.json_lines();
        let count = |stack: &str, component: &str| {
            let of_it = |row: &&Value| row["stack"] == stack && row["component"] == component;
            counts.iter().find(of_it).unwrap()["value"].as_u64()
        };
        assert_eq!(count("stays", "count"), Some(21 * 700));
        // The second takes over the engine of the first: its flows have all packets.
        let packets_of = |name: &str| -> u64 {
            let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
            let flows = text
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            flows
                .map(|flow| flow["src_packets"].as_u64().unwrap())
                .sum()
        };
        assert!((700..=21 * 700).contains(&packets_of("first")));
        assert_eq!(packets_of("second"), 21 * 700, "{workers} workers");
    }
}

/// A flow of a user's, as that runs it.
fn flow(lab: &Lab, program: &Path, socket: &Path, user: &str, arguments: &[&str]) -> Outcome {
    let mut command = lab.inside("setpriv");
    command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    command
        .arg(program)
        .args(["sensor", arguments[0], "--socket"]);
    command.arg(socket).args(&arguments[1..]);
    flowgauge::run_command(command)
}

#[test]
fn a_sensor_serves_users_by_their_rights() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = open_folder("sensor");
    let program = copy_of_program(&folder);
    let (file, socket) = (folder.join("sensor.toml"), folder.join("sock"));
    let tables = "[users.60001]\n[users.60002]\npackets = \"payload\"\nfilter = \"udp port 1\"\nadmin = true\n";
    let config = format!(
        "socket = \"{}\"\n[devices.fg1]\n[stacks.all]\nstack = \"count bytes\"\n{tables}",
        socket.display()
    );
    std::fs::write(&file, config).unwrap();
    let sensor = Program::start(
        &lab,
        &["sensor", "run", "--config", &file.display().to_string()],
    );
    let ids = sensor.status("Uid:");
    assert!(!ids.split_whitespace().any(|id| id == "0"), "{ids}");
    let ask = |user: &str, arguments: &[&str]| flow(&lab, &program, &socket, user, arguments);
    let ask_flow = |user: &str, stack: &str| {
        let arguments = [
            "flow", "-d", "fg1", "-c", "1", "--every", "1ms", "--json", stack,
        ];
        ask(user, &arguments)
    };
    // Who may what.
    let count = ask_flow("60001", "filter { udp } count");
    assert_eq!(count.code, Some(0), "{}", count.stderr);
    for (user, stack) in [
        ("60001", "search { pattern = x } count"),
        ("60001", "filter { udp[8] = 1 } count"),
        ("60001", "output { file = /never }"),
        ("60002", "output { file = /never }"),
        ("60003", "count"),
        // Root becomes this one.
        ("65534", "count"),
    ] {
        let refused = ask_flow(user, stack);
        assert_eq!(refused.code, Some(2), "{user} {stack}: {}", refused.stderr);
        assert!(refused.stderr.contains("hint: "), "{}", refused.stderr);
    }
    assert_eq!(ask("60001", &["stop"]).code, Some(2));
    assert_eq!(
        ask_flow("60002", "search { pattern = x } count").code,
        Some(0)
    );
    // What came is counted, by the stack that always runs and by a flow.
    let mut killed = lab.inside(&program.display().to_string());
    killed.args([
        "sensor", "flow", "-d", "fg1", "--every", "1ms", "count", "--socket",
    ]);
    killed.arg(&socket).stdout(std::process::Stdio::null());
    let mut killed = killed.spawn().unwrap();
    let status = || {
        let outcome = ask("0", &["status", "--json"]);
        outcome.json_lines().remove(0)["devices"][0].clone()
    };
    let flows = || status()["stacks"].as_array().map_or(0, Vec::len);
    live_support::wait_until("the flow is there", || flows() == 2);
    let frames = udp_frames(700, 200).into_iter().map(|one| one.bytes);
    Trace::of(frames.collect()).replay(&lab, "fg0");
    live_support::wait_until("all packets came", || status()["packets"] == 700);
    killed.kill().unwrap();
    killed.wait().unwrap();
    live_support::wait_until("its flow has ended", || flows() == 1);
    assert_eq!(status()["delivered"], 700);
    assert_eq!(status()["refused"], serde_json::json!({}));
    let outcome = sensor.stop(Signal::SIGTERM);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("sensor has ended"),
        "{}",
        outcome.stderr
    );
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_sensor_takes_an_interface_again() {
    takes_again("root");
}

/// One that may not is told what it lacks.
#[test]
fn a_sensor_without_rights_says_what_it_lacks() {
    takes_again("nobody");
}

fn takes_again(user: &str) {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = open_folder(&format!("sensor-away-{user}"));
    let (file, socket) = (folder.join("sensor.toml"), folder.join("sock"));
    let config = format!(
        "socket = \"{}\"\nuser = \"{user}\"\n[devices.fg1]\n[stacks.all]\nstack = \"count\"\n",
        socket.display()
    );
    std::fs::write(&file, config).unwrap();
    let sensor = Program::start(
        &lab,
        &["sensor", "run", "--config", &file.display().to_string()],
    );
    let socket = socket.display().to_string();
    let status = || {
        let outcome = live_support::run(&lab, &["sensor", "status", "--json", "--socket", &socket]);
        outcome.json_lines().remove(0)["devices"][0].clone()
    };
    let frames = udp_frames(100, 200).into_iter().map(|one| one.bytes);
    let trace = Trace::of(frames.collect());
    trace.replay(&lab, "fg0");
    live_support::wait_until("packets came", || status()["packets"] == 100);
    lab.ip("link set fg1 down");
    live_support::wait_until("it is away", || status()["state"] == "away");
    assert_ne!(status()["errors"], serde_json::json!([]));
    lab.ip("link set fg1 up");
    let mut told = vec!["device fg1: the interface disappeared"];
    if user == "root" {
        live_support::wait_until("it is back", || status()["state"] == "reading");
        assert_eq!(status()["errors"], serde_json::json!([]));
        trace.replay(&lab, "fg0");
        live_support::wait_until("more packets came", || status()["delivered"] == 200);
        told.push("device fg1: the interface is back");
    } else {
        let lacks = || status()["errors"].to_string().contains("CAP_NET_RAW");
        live_support::wait_until("it is told", lacks);
        told.push("hint: let it keep CAP_NET_RAW");
    }
    let outcome = sensor.stop(Signal::SIGTERM);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for told in told {
        assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn any_captures_on_all_interfaces() {
    let Some(lab) = Lab::new(1500) else { return };
    let path = support::scratch("live-any").join("any.pcapng");
    let program = Program::start(
        &lab,
        &["capture", "-i", "any", "-w", &path.display().to_string()],
    );
    let trace = Trace::of(tagged(udp_frames(100, 200)));
    trace.replay(&lab, "fg0");
    // Each is sent by one end and received by the other.
    program.wait_for_packets(200);
    assert_eq!(program.stop(Signal::SIGINT).code, Some(0));
    let packets = flowgauge::run(["packets", "--json", "-r", &path.display().to_string()]);
    for name in ["fg0", "fg1"] {
        let of_it = packets.json_lines();
        let of_it = of_it.iter().filter(|packet| packet["interface"] == name);
        assert_eq!(of_it.count(), 100, "{name}");
    }
}

// --- how a run ends ------------------------------------------------------------------------------

#[test]
fn a_count_stops_exactly() {
    let Some(lab) = Lab::new(1500) else { return };
    let path = support::scratch("live-count").join("hundred.pcap");
    let trace = Trace::of(tagged(udp_frames(1_000, 200)));
    let program = Program::start(
        &lab,
        &[
            "capture",
            "-i",
            "fg1",
            "-c",
            "100",
            "-w",
            &path.display().to_string(),
        ],
    );
    trace.replay(&lab, "fg0");
    let outcome = program.end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(Trace::read(&path).frames, trace.frames[..100]);
    let ledger = ledger(&outcome.stderr);
    assert_eq!((ledger.received, ledger.delivered), (100, 100));

    let program = Program::start(&lab, &["packets", "--json", "-i", "fg1", "-c", "300"]);
    trace.replay(&lab, "fg0");
    assert_eq!(program.end().json_lines().len(), 300);
}

#[test]
fn dropped_packets_are_counted_and_can_be_an_error() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(
        udp_frames(5_000, 1_000)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    for (options, code) in [(&["--fail-on-drop"][..], 3), (&[][..], 0)] {
        let mut arguments = vec!["flows", "--json", "-i", "fg1", "-B", "256"];
        arguments.extend(options);
        let program = Program::start(&lab, &arguments);
        program.signal(Signal::SIGSTOP);
        trace.replay(&lab, "fg0");
        program.signal(Signal::SIGCONT);
        let outcome = program.stop(Signal::SIGINT);
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        let ledger = ledger(&outcome.stderr);
        assert_eq!(ledger.received, 5_000, "{}", outcome.stderr);
        assert_eq!(ledger.delivered + ledger.dropped, 5_000);
        assert!(ledger.dropped > 4_000);
        assert!(
            outcome
                .stderr
                .contains(&format!("kernel_ring {}", ledger.dropped))
        );
        let flows = outcome.json_lines();
        let packets: u64 = flows
            .iter()
            .filter_map(|flow| flow["src_packets"].as_u64())
            .sum();
        assert_eq!(packets, ledger.delivered);
    }
}

/// More records than may wait, and more packets than the ring holds, while nobody reads.
#[test]
fn a_slow_reader_of_the_output_stalls_no_capture() {
    const PACKETS: u64 = 120_000;
    let Some(lab) = Lab::new(1500) else { return };
    let frames = udp_frames(10_000, 200).into_iter();
    let trace = Trace::of(frames.map(|one| one.bytes).collect());
    // A record for every packet: flows that are cut at once.
    for (what, command) in [
        ("packet", &["packets", "--json", "--hex"][..]),
        ("item", &["flows", "--json", "--max-flows", "1"][..]),
        (
            "item",
            &["flows", "--csv", "--max-flows", "1", "--workers", "2"][..],
        ),
        (
            "line",
            &["stack", "run", "-e", "flows { max_flows = 1 } - logs"][..],
        ),
    ] {
        let live = [command, &["-i", "fg1", "-B", "8192"]].concat();
        let program = Program::start_unread(&lab, &live);
        for sent in 1..=PACKETS / 10_000 {
            trace.replay(&lab, "fg0");
            program.wait_for_packets(sent * 10_000);
        }
        program.wait_until_writing();
        let outcome = program.stop(Signal::SIGINT);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let ledger = ledger(&outcome.stderr);
        assert_eq!(
            (ledger.received, ledger.dropped),
            (PACKETS, 0),
            "{command:?}"
        );
        let lost =
            format!(" {what}s were lost: the reader of standard output is slower than the capture");
        let mut lines = outcome.stderr.lines();
        let lost = lines.find_map(|line| line.strip_suffix(&lost)?.strip_prefix("note: "));
        let lost: u64 = lost.expect(&outcome.stderr).parse().unwrap();
        let written = String::from_utf8(outcome.stdout).unwrap();
        let header = u64::from(command.contains(&"--csv"));
        assert_eq!(
            written.lines().count() as u64 + lost,
            PACKETS + header,
            "{command:?}"
        );
        assert!(written.ends_with('\n') && lost > 0, "{command:?}");
        let whole = |line: &str| line.is_empty() || !line.starts_with('{') || line.ends_with('}');
        assert!(written.lines().all(whole), "{command:?}");
    }
}

#[test]
fn a_slow_reader_gets_all_that_may_wait() {
    let Some(lab) = Lab::new(1500) else { return };
    let frames = udp_frames(10_000, 500).into_iter();
    let trace = Trace::of(frames.map(|one| one.bytes).collect());
    let program = Program::start_unread(&lab, &["packets", "--json", "-i", "fg1"]);
    trace.replay(&lab, "fg0");
    program.wait_for_packets(10_000);
    program.wait_until_writing();
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let ledger = ledger(&outcome.stderr);
    assert_eq!((ledger.received, ledger.dropped), (10_000, 0));
    assert_eq!(outcome.json_lines().len(), 10_000);
    assert!(!outcome.stderr.contains("lost"), "{}", outcome.stderr);
}

/// The thread that writes opens, closes and writes over files in order.
#[test]
fn files_of_a_live_capture_are_whole() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = support::scratch("live-rotated");
    // More files than are open at once, each in turn.
    let frames = (0..10_000).map(|number| frames::ip_frame(number % 400, false, false, false));
    let trace = Trace::of(frames.map(|one| one.bytes).collect());
    let path = folder.join("x.csv").display().to_string();
    let named = folder.join("flow-%{number}.json").display().to_string();
    let stacks = [
        format!(
            "flows {{ max_flows = 1 }} - output {{ {path}, rotate_size = 100k, rotate_files = 3 }}"
        ),
        format!("ipcnxdemux < packets - output {{ {named} }} >"),
    ];
    for stack in stacks {
        let program = Program::start(&lab, &["stack", "run", "-e", &stack, "-i", "fg1"]);
        trace.replay(&lab, "fg0");
        program.wait_for_packets(10_000);
        let outcome = program.stop(Signal::SIGINT);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains("lost"), "{}", outcome.stderr);
        assert_eq!(ledger(&outcome.stderr).delivered, 10_000);
    }
    let (mut rotated, mut files, mut records) = (0, 0, 0);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        if path.to_string_lossy().contains("x.csv") {
            rotated += 1;
            assert!(
                text.len() < 103_000 && text.starts_with("src_ip,"),
                "{}",
                path.display()
            );
            let columns = |line: &str| line.split(',').count();
            let header = columns(lines.next().unwrap());
            assert!(lines.all(|line| columns(line) == header));
        } else {
            files += 1;
            let whole = |line| serde_json::from_str::<Value>(line).is_ok();
            records += lines.filter(|line| whole(line)).count();
        }
    }
    assert_eq!((rotated, files, records), (3, 400, 10_000));
}

#[test]
fn a_second_interrupt_quits() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(
        udp_frames(10_000, 100)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    let program = Program::start_unread(&lab, &["packets", "--json", "-i", "fg1"]);
    trace.replay(&lab, "fg0");
    // It waits for a reader that never comes: the first interrupt cannot end it.
    program.wait_until_writing();
    let outcome = program.insist(Signal::SIGINT);
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(
        udp_frames(200, 100)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    for command in [
        &["packets", "--json", "-i", "fg1"][..],
        &["capture", "-i", "fg1", "-w", "-"][..],
        // A record for every packet: flows that are cut at once.
        &["flows", "--json", "-i", "fg1", "--max-flows", "1"][..],
    ] {
        let mut program = Program::start_unread(&lab, command);
        program.close_output();
        let outcome = program.end_while(|| trace.replay(&lab, "fg0"));
        assert_eq!(outcome.code, Some(0), "{command:?}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("error"), "{}", outcome.stderr);
    }
}

#[test]
fn an_interface_that_goes_away_ends_it_with_what_was_seen() {
    let path = support::scratch("live-gone").join("gone.pcap");
    let path = path.display().to_string();
    for command in [
        &["flows", "--json", "-i", "fg1"][..],
        &["flows", "--json", "-i", "fg1", "--workers", "2"][..],
        &["flows", "--json", "-i", "fg1", "--mirror"][..],
        &["flows", "--json", "-i", "fg1", "--mirror", "--workers", "2"][..],
        &["capture", "-i", "fg1", "-w", &path][..],
    ] {
        let Some(lab) = Lab::new(1500) else { return };
        let trace = Trace::of(
            udp_frames(7, 100)
                .into_iter()
                .map(|one| one.bytes)
                .collect(),
        );
        let program = Program::start(&lab, command);
        trace.replay(&lab, "fg0");
        program.wait_for_packets(7);
        lab.ip("link del fg0");
        let outcome = program.end();
        assert_eq!(outcome.code, Some(1), "{command:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("fg1"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("removed"), "{}", outcome.stderr);
        assert_eq!(ledger(&outcome.stderr).delivered, 7);
        if command[0] == "flows" {
            assert_eq!(outcome.json_lines().len(), 7);
        } else {
            assert_eq!(Trace::read(Path::new(&path)).frames, trace.frames);
        }
    }
}

// --- disks and users -----------------------------------------------------------------------------

#[test]
fn a_full_device_is_an_error() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(
        udp_frames(100, 100)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    for command in [
        &["capture", "-i", "fg1", "-w", "/dev/full"][..],
        &["packets", "--json", "-i", "fg1", "-w", "/dev/full"][..],
        &[
            "flows",
            "--json",
            "-i",
            "fg1",
            "--max-flows",
            "1",
            "-w",
            "/dev/full",
        ][..],
        &[
            "flows",
            "--json",
            "-i",
            "fg1",
            "--max-flows",
            "1",
            "-w",
            "/dev/full",
            "--workers",
            "2",
        ][..],
    ] {
        let program = Program::start(&lab, command);
        let outcome = program.end_while(|| trace.replay(&lab, "fg0"));
        assert_eq!(outcome.code, Some(1), "{command:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("No space left"),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn a_full_disk_keeps_what_was_captured() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = support::scratch("live-full");
    let trace = Trace::of(tagged(udp_frames(5_000, 1_000)));
    // The small disk is in a mount namespace of its own, which ends with the shell.
    let script = format!(
        "mkdir {0}/disk && mount -t tmpfs -o size=300k none {0}/disk && \
         {1} capture -i fg1 -w {0}/disk/full.pcap; code=$?; \
         cp {0}/disk/full.pcap {0}/kept.pcap; exit $code",
        folder.display(),
        env!("CARGO_BIN_EXE_flowgauge"),
    );
    let mut command = lab.inside("unshare");
    command.args(["-m", "sh", "-c", &script]);
    let outcome = Program::spawn(command).end_while(|| trace.replay(&lab, "fg0"));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("No space left"),
        "{}",
        outcome.stderr
    );
    let kept = Trace::read(&folder.join("kept.pcap")).frames;
    assert!(kept.len() > 100, "{}", kept.len());
    assert_eq!(kept, trace.frames[..kept.len()]);
    let ledger = ledger(&outcome.stderr);
    assert_eq!(ledger.delivered, kept.len() as u64, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("sink "), "{}", outcome.stderr);
}

#[test]
fn privileges_are_given_up() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = open_folder("privileges");
    let path = folder.join("nobody.pcap");
    let trace = Trace::of(
        udp_frames(50, 100)
            .into_iter()
            .map(|one| one.bytes)
            .collect(),
    );
    let program = Program::start(
        &lab,
        &[
            "capture",
            "-i",
            "fg1",
            "-Z",
            "nobody",
            "-w",
            &path.display().to_string(),
        ],
    );
    for set in ["CapEff:", "CapPrm:", "CapInh:", "CapBnd:", "CapAmb:"] {
        assert_eq!(program.status(set), "0000000000000000", "{set}");
    }
    assert_eq!(program.status("NoNewPrivs:"), "1");
    let nobody = program.status("Uid:");
    assert!(!nobody.split_whitespace().any(|id| id == "0"), "{nobody}");
    trace.replay(&lab, "fg0");
    program.wait_for_packets(50);
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let owner = std::fs::metadata(&path).unwrap();
    assert_eq!(
        nobody.split_whitespace().next(),
        Some(owner.uid().to_string().as_str())
    );
    assert_eq!(owner.permissions().mode() & 0o777, 0o644);
    assert_eq!(Trace::read(&path).frames, trace.frames);

    let unknown = live_support::run(&lab, &["flows", "-i", "fg1", "-Z", "nobody-at-all"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("nobody-at-all"),
        "{}",
        unknown.stderr
    );
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn root_becomes_the_system_user_of_the_program() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = support::scratch("live-user");
    let users = folder.join("passwd");
    let mut text = std::fs::read_to_string("/etc/passwd").unwrap();
    text.push_str("\nflowgauge:x:64123:64123::/nonexistent:/usr/sbin/nologin\n");
    std::fs::write(&users, text).unwrap();
    for (options, expected) in [("", "64123"), ("-Z root", "0")] {
        // The changed list of users is seen in a mount namespace of its own only.
        let script = format!(
            "mount --bind {} /etc/passwd && exec {} flows -i fg1 {options}",
            users.display(),
            env!("CARGO_BIN_EXE_flowgauge"),
        );
        let mut command = lab.inside("unshare");
        command.args(["-m", "sh", "-c", &script]);
        let program = Program::spawn(command);
        let ids = program.status("Uid:");
        assert!(ids.split_whitespace().all(|id| id == expected), "{ids}");
        assert_eq!(program.stop(Signal::SIGINT).code, Some(0));
    }
}

#[test]
fn without_permission_it_says_what_to_grant() {
    let Some(lab) = Lab::new(1500) else { return };
    let folder = open_folder("unprivileged");
    let mut command = lab.inside("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(copy_of_program(&folder));
    command.args(["flows", "-i", "fg1"]);
    let outcome = flowgauge::run_command(command);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    for part in ["not permitted", "hint:", "setcap cap_net_raw", "flowgauge"] {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Every fourth frame with one tag, every fourth with two.
fn tagged(mut frames: Vec<frames::Frame>) -> Vec<Vec<u8>> {
    for (index, frame) in frames.iter_mut().enumerate() {
        match index % 4 {
            1 => frame.tag(0x8100, 0x6000 + (index % 50) as u16),
            3 => {
                frame.tag(0x8100, 12);
                frame.tag(0x88a8, 13);
            }
            _ => {}
        }
    }
    frames.into_iter().map(|frame| frame.bytes).collect()
}

// --- packet loss --------------------------------------------------------------------------------

/// A link that drops packets at random counts them by flow: what the command says of files of both its ends, and of two sensors there, is
/// the same flow by flow.
#[test]
fn the_loss_of_each_flow_is_what_the_link_dropped() {
    let script = support::root().join("bench/figures/loss.py");
    let mut command = std::process::Command::new("python3");
    command.arg(script).arg(env!("CARGO_BIN_EXE_flowgauge"));
    let output = command.args(["1500", "0.02"]).output();
    let test = "the_loss_of_each_flow_is_what_the_link_dropped";
    let Ok(output) = output else {
        return support::skip(test, "no python3");
    };
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    match output.status.code() {
        Some(0) => {}
        Some(77) => support::skip(test, said.lines().last().unwrap_or_default()),
        _ if said.contains("unshare failed") => support::skip(test, "no namespace can be made"),
        _ => panic!("{said}"),
    }
}
