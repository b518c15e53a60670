//! A sensor as systemd starts it, and its users on the command line.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_generate::{Config, Preset, generate};
use serde_json::Value;

use crate::mapi::Sensor;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowgauge");

/// Ends the sensor, however the test ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

#[test]
fn systemd_is_told_what_a_sensor_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let socket = UnixDatagram::bind(at("notify")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let config = format!("socket = \"{}\"\nuser = \"root\"\n", at("sock").display());
    fs::write(at("sensor.toml"), config).unwrap();
    let started = Command::new(PROGRAM)
        .args(["sensor", "run", "--config"])
        .arg(at("sensor.toml"))
        .env("NOTIFY_SOCKET", at("notify"))
        .stderr(Stdio::null())
        .spawn();
    let mut sensor = Ending(started.unwrap());
    let patience = Instant::now() + Duration::from_secs(60);
    // Watchdog messages come in between.
    let next = |skipped: &str| loop {
        let mut message = [0; 1024];
        let len = socket.recv(&mut message).unwrap();
        let message = String::from_utf8_lossy(&message[..len]).into_owned();
        assert!(Instant::now() < patience, "{message}");
        if message.trim() != skipped {
            return message;
        }
    };
    assert_eq!(next("").trim(), "READY=1");
    assert!(at("sock").exists(), "it can be asked by then");
    assert_eq!(next("").trim(), "WATCHDOG=1");
    assert_eq!(next("").trim(), "WATCHDOG=1");
    signal(&sensor.0, "-HUP");
    let reloading = next("WATCHDOG=1");
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(next("WATCHDOG=1").trim(), "READY=1");
    // One that is stopped is given up.
    signal(&sensor.0, "-STOP");
    let (said, code) = output(folder.path(), &["status"]);
    signal(&sensor.0, "-CONT");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the sensor does not answer: ") && said.contains("hint: "),
        "{said}"
    );
    signal(&sensor.0, "-TERM");
    assert_eq!(next("WATCHDOG=1").trim(), "STOPPING=1");
    assert!(sensor.0.wait().unwrap().success());
    assert!(!at("sock").exists());
}

/// A capture, in a folder.
fn trace(folder: &Path) {
    let mut config = Config::new(Preset::Mix).with_packets(3_000);
    config.duration = Duration::from_secs(2);
    generate(&config, File::create(folder.join("mix.pcap")).unwrap()).unwrap();
}

/// A sensor with a device of that capture, which holds.
fn holding(folder: &Path) -> Sensor {
    trace(folder);
    let file = folder.join("mix.pcap");
    Sensor::with(
        folder,
        &format!("[devices.mix]\nfiles = [{file:?}]\nhold = true\n"),
    )
}

fn asked(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", PROGRAM, "sensor"]).args(arguments);
    command.args(["--socket", "sock"]).current_dir(folder);
    command
}

fn output(folder: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let Output {
        stdout,
        stderr,
        status,
    } = asked(folder, arguments).output().unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    (said, status.code())
}

/// The value of a component in results as JSON.
fn value(results: &Value, component: &str) -> Option<u64> {
    let components = results["components"].as_array()?;
    let found = components.iter().find(|it| it["component"] == component)?;
    found["value"].as_u64()
}

#[test]
fn a_flow_writes_files_of_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trace(folder);
    let _sensor = Sensor::with(folder, "");
    let stack = "filter { udp port 53 } count";
    let written = [
        "flow",
        "-r",
        "mix.pcap",
        "--json",
        stack,
        "-w",
        "dns.pcap.gz",
    ];
    let (said, code) = output(folder, &written);
    assert_eq!(code, Some(0), "{said}");
    let results: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let count = value(&results, "count").unwrap();
    assert!(count > 10, "{said}");
    assert_eq!(
        fs::read(folder.join("dns.pcap.gz")).unwrap()[..2],
        [0x1f, 0x8b]
    );
    let again = ["flow", "-r", "dns.pcap.gz", "--json", "count"];
    let (said, _) = output(folder, &again);
    let results: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(value(&results, "count"), Some(count));
    let stack = "flows output { file = f.json }";
    let (said, code) = output(folder, &["flow", "-r", "mix.pcap", stack]);
    assert_eq!(code, Some(0), "{said}");
    let records = fs::read_to_string(folder.join("f.json")).unwrap();
    let first: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    assert!(first["src_ip"].is_string(), "{first}");
    let (said, code) = output(
        folder,
        &["flow", "-r", "mix.pcap", "count", "-w", "no/x.pcap"],
    );
    assert!(
        code == Some(2) && said.contains("cannot write no/x.pcap"),
        "{said}"
    );
    // Root writes through links of its own, also from here on.
    std::os::unix::fs::symlink("target.pcap", folder.join("link.pcap")).unwrap();
    let arguments = ["flow", "-r", "mix.pcap", "count", "-w", "link.pcap"];
    let (said, code) = output(folder, &arguments);
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::metadata(folder.join("target.pcap")).unwrap().len() > 10_000);
    // What is there stays where the flow cannot be, or reads it.
    fs::write(folder.join("kept"), "here").unwrap();
    let trace = fs::metadata(folder.join("mix.pcap")).unwrap().len();
    for arguments in [
        &["-d", "mix", "coount", "-w", "kept"][..],
        &["-d", "nix", "count", "-w", "kept"],
        &["-d", "127.0.0.1:mix", "count", "-w", "kept"],
        &["-r", "mix.pcap", "count", "-w", "mix.pcap"],
        &["-d", "mix", "count", "-w", "/dev/full"],
    ] {
        let (said, code) = output(folder, &[&["flow"], arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert_eq!(
            fs::read(folder.join("kept")).unwrap(),
            b"here",
            "{arguments:?}"
        );
    }
    assert_eq!(fs::metadata(folder.join("mix.pcap")).unwrap().len(), trace);
}

#[test]
fn times_of_results_are_dates_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    trace(folder);
    let _sensor = Sensor::with(folder, "");
    for stack in ["observe { rows = 100 }", "filter { udp port 53 } to_buffer"] {
        let (said, code) = output(folder, &["flow", "-r", "mix.pcap", stack]);
        assert_eq!(code, Some(0), "{said}");
        let cells = said.split_whitespace();
        let times: Vec<&str> = cells.filter(|it| it.starts_with("time=")).collect();
        let is_date = |cell: &&str| cell.len() == 35 && cell.ends_with('Z') && cell.contains('T');
        assert!(times.len() > 10 && times.iter().all(is_date), "{times:?}");
        let (said, _) = output(folder, &["flow", "-r", "mix.pcap", "--json", stack]);
        let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        let all = lines
            .iter()
            .flat_map(|it| it["components"].as_array().unwrap());
        let rows = all.filter_map(|it| Some((&it["times"], it["rows"].as_array()?)));
        let named = rows.filter(|(times, _)| times.to_string().contains("\"time\""));
        let nanos = named
            .flat_map(|(_, rows)| rows)
            .filter_map(|row| row["time"].as_u64());
        let nanos: Vec<u64> = nanos.collect();
        assert!(
            nanos.len() > 10 && nanos.iter().all(|it| *it > 1 << 60),
            "{said}"
        );
    }
}

#[test]
fn what_is_refused_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _sensor = holding(folder);
    let (said, code) = output(folder, &["explain", "-d", "mix", "count"]);
    assert!(code == Some(0) && said.ends_with("allowed\n"), "{said}");
    let stack = "packets - output { file = /tmp/x.json }";
    let (said, code) = output(folder, &["explain", "-d", "mix", stack]);
    assert!(
        code == Some(1) && said.contains("refused: output"),
        "{said}"
    );
    let (said, code) = output(folder, &["explain", "-d", "mixed", "count"]);
    let why = "refused: no device \"mixed\", or no right to it\n";
    assert!(code == Some(1) && said.contains(why), "{said}");
    let arguments = ["flow", "-d", "mix", "packets - output", "-w", "x.json"];
    let (said, code) = output(folder, &arguments);
    assert!(
        code == Some(2) && said.contains("hint: omit output"),
        "{said}"
    );
    assert!(!folder.join("x.json").exists());
}

#[test]
fn flows_are_listed_and_have_their_last_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut sensor = holding(folder);
    let flows = ["filter { tcp } count", "filter { tcp } bytes"].map(|stack| {
        let mut flow = asked(
            folder,
            &["flow", "-d", "mix", "--every", "50s", "--json", stack],
        );
        flow.stdout(Stdio::piped()).spawn().unwrap()
    });
    let patience = Instant::now() + Duration::from_secs(60);
    let listed = loop {
        let (said, code) = output(folder, &["flows", "--json"]);
        assert_eq!(code, Some(0), "{said}");
        let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        if lines.len() == 2 {
            break lines;
        }
        assert!(Instant::now() < patience, "{said}");
        thread::sleep(Duration::from_millis(20));
    };
    for flow in &listed {
        assert!(flow["device"] == "mix" && flow["seconds"].as_u64().is_some_and(|it| it < 60));
        assert!(flow["process"].as_u64().is_some_and(|it| it > 1), "{flow}");
    }
    let (said, _) = output(folder, &["flows", "--csv"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("device,flow,user,"), "{said}");
    assert!(
        lines[1].starts_with("mix,1,") && said.contains(",filter;count,"),
        "{said}"
    );
    let (said, _) = output(folder, &["flows", "--shared"]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["mix:", "  filter: flows 1, 2"], "{said}");
    assert_eq!(lines.len(), 4, "{said}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("    count: flow ")),
        "{said}"
    );
    // It ends, and with it they do, each with all that came.
    signal(&sensor.0, "-TERM");
    for flow in flows {
        let Output { stdout, status, .. } = flow.wait_with_output().unwrap();
        let said = String::from_utf8(stdout).unwrap();
        let results: Value = serde_json::from_str(said.trim()).unwrap();
        assert!(status.success() && results["is_last"] == true, "{said}");
    }
    assert!(sensor.0.wait().unwrap().success());
}

/// A flow on an interface whose sensor is stopped, or killed, has what came until then, and says why nothing more does.
#[test]
fn a_flow_whose_sensor_goes_says_so() {
    for (end, said, has_results) in [
        ("-TERM", "lo: the sensor has stopped", true),
        ("-KILL", "lo: ", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let sensor = Sensor::with(folder, "[devices.lo]\n");
        let arguments = [
            "flow", "-d", "lo", "--every", "2s", "-c", "99", "--json", "count",
        ];
        let mut flow = asked(folder, &arguments);
        let flow = flow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let flow = flow.unwrap();
        let patience = Instant::now() + Duration::from_secs(60);
        while output(folder, &["flows", "--json"]).0.lines().count() != 1 {
            assert!(Instant::now() < patience);
            thread::sleep(Duration::from_millis(20));
        }
        signal(&sensor.0, end);
        let Output {
            stdout,
            stderr,
            status,
        } = flow.wait_with_output().unwrap();
        let [results, errors] = [stdout, stderr].map(|it| String::from_utf8(it).unwrap());
        assert_eq!(status.code(), Some(1), "{end}: {errors}");
        assert!(errors.contains(said), "{end}: {errors}");
        if has_results {
            let last: Value = serde_json::from_str(results.lines().last().unwrap()).unwrap();
            assert!(last["is_last"] == true, "{results}");
        }
    }
}

#[test]
fn a_sensor_that_is_not_there_or_refuses_is_no_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for arguments in [&["status"][..], &["flows"], &["flow", "-d", "mix", "count"]] {
        let (said, code) = output(folder, arguments);
        assert!(
            code == Some(2) && said.contains("hint: "),
            "{code:?}: {said}"
        );
    }
    let _sensor = holding(folder);
    for arguments in [
        &["flow", "-d", "mix", "cuont"][..],
        &["flow", "-d", "nix", "count"],
        &["start", "nix"],
    ] {
        let (said, code) = output(folder, arguments);
        assert_eq!(code, Some(2), "{said}");
    }
}

#[test]
fn a_flow_that_gives_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _sensor = holding(folder);
    for stack in [
        "packets",
        "packets - output",
        "packets - output { file = \"-\" }",
    ] {
        let (said, code) = output(folder, &["flow", "-d", "mix", "-c", "2", stack]);
        assert_eq!(code, Some(2), "{said}");
        let (_, hint) = said.split_once("hint: ").unwrap();
        assert!(hint.contains("-w FILE"), "{said}");
    }
}

#[test]
fn the_environment_names_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said_by = |command: &[&str]| {
        let mut asking = Command::new(PROGRAM);
        asking.args(command).env("FLOWGAUGE_SENSOR", "sock");
        let Output {
            stdout,
            stderr,
            status,
        } = asking.current_dir(folder).output().unwrap();
        let said = String::from_utf8([stdout, stderr].concat()).unwrap();
        (said, status.code())
    };
    let (said, code) = said_by(&["sensor", "status"]);
    assert!(
        code == Some(2) && said.contains("FLOWGAUGE_SENSOR"),
        "{said}"
    );
    let _sensor = holding(folder);
    for command in [
        &["sensor", "status"][..],
        &["sensor", "explain", "-d", "mix", "count"],
        &["mapi", "-r", "mix.pcap", "PKT_COUNTER"],
    ] {
        let (said, code) = said_by(command);
        assert_eq!(code, Some(0), "{command:?}: {said}");
    }
}

/// What root is told who does not stay it.
#[test]
fn who_gives_up_root_is_named() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        let line = b"SKIPPED who_gives_up_root_is_named needs root\n";
        std::io::Write::write_all(&mut std::io::stderr().lock(), line).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    trace(folder);
    let at = |name: &str| folder.join(name);
    let run = |what: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["sensor", what, "--config"]);
        command.arg(at("sensor.toml"));
        command
    };
    let with = |socket: &str, tables: &str| {
        let socket = at(socket);
        let text = format!("socket = {socket:?}\nuser = \"nobody\"\n{tables}");
        fs::write(at("sensor.toml"), text).unwrap();
    };
    let refused = |what: &str, part: &str| {
        let Output { stderr, status, .. } = run(what).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{what}: {said}");
        assert!(
            said.contains(part) && said.contains("hint: "),
            "{what}: {said}"
        );
    };
    let device = format!(
        "[devices.mix]\nfiles = [{:?}]\nhold = true\n",
        at("mix.pcap")
    );
    let (counts, writes) = (
        format!("{device}[stacks.all]\ndevice = \"mix\"\nstack = \"count\"\n"),
        format!(
            "{device}[stacks.all]\nstack = 'packets - output {{ file = {:?} }}'\n",
            at("out.json")
        ),
    );
    for what in ["check", "run"] {
        with("no/where/sock", &counts);
        refused(what, "no/where/sock");
        with("run/sock", &writes);
        refused(what, "as user nobody");
        assert!(!at("run/sock").exists(), "{what}");
    }
    with("run/sock", &counts);
    assert!(run("check").status().unwrap().success());
    let mut sensor = Ending(
        run("run")
            .stderr(File::create(at("said")).unwrap())
            .spawn()
            .unwrap(),
    );
    let until = Instant::now() + Duration::from_secs(60);
    while !at("run/sock").exists()
        || !fs::read_to_string(at("said"))
            .unwrap()
            .contains("sensor at")
    {
        assert!(
            Instant::now() < until,
            "{}",
            fs::read_to_string(at("said")).unwrap()
        );
        thread::sleep(Duration::from_millis(10));
    }
    let ask = |what: &str| {
        let asked = Command::new(PROGRAM)
            .args(["sensor", what, "--socket", "run/sock"])
            .current_dir(folder)
            .output()
            .unwrap();
        String::from_utf8(asked.stderr).unwrap()
    };
    with(
        "run/sock",
        &format!("{counts}[devices.lo]\ninterface = \"lo\"\n"),
    );
    let said = ask("reload");
    assert!(
        said.contains("root has become nobody") && said.contains("restart it"),
        "{said}"
    );
    ask("stop");
    assert!(sensor.0.wait().unwrap().success());
    assert!(!at("run/sock").exists());
}
