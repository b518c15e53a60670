//! A sensor and its users, over its socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod credentials;
mod functions;
mod fuzzed;
#[path = "../../../../fuzz/harness/sensor.rs"]
mod harness;
mod marker;
mod own_files;
mod shared;
mod taken;
mod told;
mod users;

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_capture::open;
use flowgauge_generate::{Config as Trace, Preset, generate};
use flowgauge_registry::registry;
use flowgauge_runtime::stacks::{Runner, RunnerOptions};
use flowgauge_sensor::Sensor;
use flowgauge_sensor_client::protocol::{Answer, Request, Results};
use flowgauge_sensor_client::{Client, ClientError, Flow};
use flowgauge_stack::syntax::Document;
use flowgauge_stack::{ResultValue, Sources, check, parse_stack};
use flowgauge_sys::local::Connection;
use flowgauge_wire::Ledger;

/// A sensor that runs on a thread of this process.
struct Running {
    folder: tempfile::TempDir,
    is_stopped: Arc<AtomicBool>,
    sensor: Arc<Sensor>,
    thread: Option<JoinHandle<Ledger>>,
}

impl Running {
    /// With a device `mix` that holds, with so many workers, and further tables.
    fn start(workers: u16, tables: &str) -> Running {
        Running::start_with(workers, "", tables)
    }

    /// ... and with further options before all tables.
    fn start_with(workers: u16, options: &str, tables: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("mix.pcap");
        let config = Trace::new(Preset::Mix).with_packets(20_000);
        generate(&config, File::create(&trace).unwrap()).unwrap();
        let text = options.to_owned() + &config_text(folder.path(), workers, tables);
        let file = folder.path().join("sensor.toml");
        fs::write(&file, text).unwrap();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let sensor = Sensor::start(&file, Arc::clone(&is_stopped));
        let sensor = Arc::new(sensor.unwrap_or_else(|error| panic!("{error}")));
        let serving = Arc::clone(&sensor);
        Running {
            folder,
            is_stopped,
            sensor,
            thread: Some(thread::spawn(move || serving.run(|_| {}))),
        }
    }

    fn trace(&self) -> PathBuf {
        self.folder.path().join("mix.pcap")
    }

    fn client(&self) -> Client {
        Client::connect(&self.folder.path().join("sock")).unwrap()
    }

    fn flows(&self) -> usize {
        let status = self.client().status().unwrap();
        let stacks = status.devices.iter().flat_map(|device| &device.stacks);
        stacks.map(|stack| stack.flows.len()).sum()
    }
}

fn config_text(folder: &Path, workers: u16, tables: &str) -> String {
    let folder = folder.display();
    format!(
        "socket = \"{folder}/sock\"\nuser = \"root\"\n\
         [devices.mix]\nfiles = [\"{folder}/mix.pcap\"]\nhold = true\nworkers = {workers}\n{tables}"
    )
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().unwrap().is_balanced());
        }
    }
}

/// Waits until the device has come to its end. Returns the last results of a flow.
fn last(flow: &Flow) -> Results {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let results = flow.results().unwrap();
        if results.is_last || Instant::now() > patience {
            assert!(results.is_last);
            return results;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The numbers and the rows that a stack has over a file, by component.
fn of_file(stack: &str, file: &Path) -> Vec<(String, Option<u64>, usize)> {
    let mut sources = Sources::default();
    let text = sources.add("test", stack.to_owned()).unwrap();
    let body = parse_stack(&sources, text).unwrap_or_else(|_| panic!("{stack}"));
    let program = check(&Document::of(body), registry()).program.unwrap();
    let mut runner = Runner::new(program, &RunnerOptions::default()).unwrap();
    let mut source = open(file).unwrap();
    while runner.step(&mut *source).unwrap().is_some() {}
    runner.finish();
    let snapshot = runner.snapshot();
    let components = runner.stacks()[0]
        .nodes
        .iter()
        .zip(&snapshot.stacks[0].components);
    let components = components.map(|(node, state)| match &state.result {
        Some(ResultValue::Table(table)) => (node.label.clone(), None, table.iter().count()),
        Some(value) => (node.label.clone(), value.number().map(|it| it as u64), 0),
        None => (node.label.clone(), None, 0),
    });
    components.collect()
}

/// What a flow has, as [`of_file`].
fn seen(results: &Results) -> Vec<(String, Option<u64>, usize)> {
    let components = results.components.iter().map(|it| {
        let value = it.value.as_ref().and_then(serde_json::Value::as_u64);
        let rows = it.rows.as_ref().map_or(0, Vec::len);
        (it.component.clone(), value, rows)
    });
    components.collect()
}

const STACKS: &[&str] = &[
    "count bytes",
    "filter { tcp port 80 } count bytes",
    "filter { udp } sample { value = 7 } count - bucket { of = count, interval = 100ms }",
    "search { pattern = \"GET\" } count",
    "flows count",
    "transactions count",
    "top { by = ip.src, count = 10 }",
    "expired_flows",
];

#[test]
fn flows_give_what_their_stacks_give_over_the_same_packets() {
    for workers in [1, 2] {
        let running = Running::start(workers, "[stacks.all]\nstack = \"flows discard\"\n");
        let clients: Vec<_> = (STACKS.iter())
            .map(|stack| {
                let client = running.client();
                let flow = client.open("mix", stack, &[]).unwrap();
                (stack, client, flow)
            })
            .collect();
        clients[0].1.start("mix").unwrap();
        for (stack, _, flow) in &clients {
            let results = last(flow);
            assert_eq!(results.failure, None);
            let expected = of_file(stack, &running.trace());
            let seen = seen(&results);
            assert_eq!(seen, expected, "{stack}, {workers} workers");
            assert!(
                seen.iter()
                    .any(|(_, value, rows)| value.unwrap_or(0) > 0 || *rows > 0)
            );
        }
    }
}

#[test]
fn flows_end_with_their_connection_and_belong_to_it() {
    let running = Running::start(1, "");
    let (one, other) = (running.client(), running.client());
    let flow = one.open("mix", "count", &[]).unwrap();
    let second = other.open("mix", "bytes", &[]).unwrap();
    assert_eq!(running.flows(), 2);
    for refused in [
        other.results(flow.number()),
        other.close(flow.number()),
        one.results(second.number()),
    ] {
        assert!(
            matches!(refused, Err(ClientError::Refused(_))),
            "{refused:?}"
        );
    }
    drop((one, flow));
    let patience = Instant::now() + Duration::from_secs(60);
    while running.flows() != 1 && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(running.flows(), 1);
    let number = second.number();
    second.close().unwrap();
    assert_eq!(running.flows(), 0);
    assert!(matches!(other.close(number), Err(ClientError::Refused(_))));
}

#[test]
fn equal_flows_are_counted_once_and_each_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.pcap");
    let mut config = Trace::new(Preset::Mix).with_packets(20_000);
    config.duration = Duration::from_secs(3);
    generate(&config, File::create(&path).unwrap()).unwrap();
    let tables = format!(
        "[devices.slow]\nfiles = [\"{}\"]\nspeed = \"real\"\nhold = true\n",
        path.display()
    );
    let running = Running::start(1, &tables);
    let open = |stack: &str| {
        let client = running.client();
        client.open("slow", stack, &[]).unwrap()
    };
    let number = |results: &Results, at: usize| {
        let value = results.components[at].value.as_ref();
        value.and_then(serde_json::Value::as_u64).unwrap()
    };
    let stack = "filter { tcp } count bytes";
    let first = open(stack);
    let sampled = open("sample { value = 3 } count");
    running.client().start("slow").unwrap();
    let mut later = Vec::new();
    let patience = Instant::now() + Duration::from_secs(60);
    while later.len() < 3 && Instant::now() < patience {
        let before = number(&first.results().unwrap(), 1);
        if before > 1000 * (later.len() as u64 + 1) {
            let one = open(stack);
            let after = number(&first.results().unwrap(), 1);
            later.push((before, one, after));
        }
    }
    let also_sampled = open("sample { value = 3 } count");
    let stacks = running.client().status().unwrap().devices[1].stacks.clone();
    let flows: Vec<usize> = stacks.iter().map(|stack| stack.flows.len()).collect();
    assert_eq!(
        flows,
        [4, 1, 1],
        "what a sample passes depends on what it saw"
    );
    let all = number(&last(&first), 1);
    for (before, flow, after) in later {
        let own = number(&last(&flow), 1);
        assert!(
            (all - after..=all - before).contains(&own),
            "{before} {after} {own} {all}"
        );
    }
    let expected = of_file(stack, &path);
    let results = last(&first);
    assert_eq!(
        (Some(all), Some(number(&results, 2))),
        (expected[1].1, expected[2].1)
    );
    drop((sampled, also_sampled));
}

#[test]
fn what_is_no_request_is_refused_and_nothing_else_happens() {
    let running = Running::start(1, "");
    let socket = running.folder.path().join("sock");
    let connection = Connection::connect(&socket.to_string_lossy()).unwrap();
    let status = serde_json::to_vec(&Request::Status { shared: false }).unwrap();
    let cut: Vec<&[u8]> = (1..status.len()).map(|len| &status[..len]).collect();
    let deep = "[".repeat(50_000);
    let garbage = [
        &b"\0\xff\xfe"[..],
        b"null",
        b"[]",
        deep.as_bytes(),
        b"{\"do\":\"open\",\"device\":1}",
    ];
    for message in garbage.into_iter().chain(cut) {
        connection.send(message).unwrap();
        let mut answer = vec![0; 64 << 10];
        assert!(connection.wait(Some(Duration::from_secs(60))).unwrap());
        let len = connection.receive(&mut answer).unwrap();
        let answer: Answer = serde_json::from_slice(&answer[1..len]).unwrap();
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    let client = running.client();
    let refused = client.open("mix", "", &[]);
    assert!(matches!(refused, Err(ClientError::Refused(_))));
    for (device, stack) in [
        ("mix", "cuont"),
        ("mix", "[stack a] count [stack b] count"),
        ("mix", "count { as = flow } } count"),
        ("nix", "count"),
        ("mix", "pcap { file = /etc/passwd } count"),
        ("mix", "output { file = /tmp/x }"),
    ] {
        let refused = client.open(device, stack, &[]);
        let Err(ClientError::Refused(refused)) = refused else {
            panic!("{stack}: {refused:?}");
        };
        let checked = client.check(device, stack);
        let Err(ClientError::Refused(checked)) = checked else {
            panic!("{stack}: {checked:?}");
        };
        assert_eq!(refused, checked);
    }
    client.check("mix", "filter { tcp } count").unwrap();
    // Without text it is asked whether the device is there.
    client.check("mix", "").unwrap();
    client.check("nix", "").unwrap_err();
    assert_eq!(running.flows(), 0);
}

#[test]
fn a_configuration_is_taken_anew_or_nothing_changes() {
    let tables = "[stacks.a]\nstack = \"count\"\n[stacks.b]\nstack = \"bytes\"\n";
    let running = Running::start(1, tables);
    let file = running.folder.path().join("sensor.toml");
    let write = |tables: &str| {
        fs::write(&file, config_text(running.folder.path(), 1, tables)).unwrap();
    };
    let client = running.client();
    let flow = client.open("mix", "count", &[]).unwrap();
    assert_eq!(client.reload().unwrap(), ["nothing has changed"]);
    let refused = || match client.reload() {
        Err(ClientError::Refused(refusal)) => refusal.error,
        other => panic!("it was taken: {other:?}"),
    };
    write("[stacks.a]\nstack = \"cuont\"\n");
    let error = refused();
    assert!(error.contains("stacks.a"), "{error}");
    fs::write(&file, " \n").unwrap();
    assert!(refused().ends_with("sensor.toml: is empty"));
    write(
        "[stacks.a]\nstack = \"count\"\n[stacks.b]\nstack = \"count bytes\"\n[stacks.c]\nstack = \"count\"\n",
    );
    assert_eq!(client.reload().unwrap(), ["device mix: changed b, c"]);
    client.start("mix").unwrap();
    assert!(last(&flow).components[0].value.is_some());
    let status = client.status().unwrap();
    let names: Vec<&str> = status.devices[0]
        .stacks
        .iter()
        .map(|it| it.stack.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c", "flow 1"]);
    let socket = running.folder.path().join("sock");
    assert_eq!(running.sensor.socket(), Some(socket.as_path()));
}

#[test]
fn a_replaced_device_counts_anew_and_what_fails_changes_nothing() {
    let running = Running::start(1, "");
    let file = running.folder.path().join("sensor.toml");
    let write = |option: &str, tables: &str| {
        let text = config_text(running.folder.path(), 1, tables);
        let text = text.replace("hold = true", &format!("hold = true\n{option}"));
        fs::write(&file, text).unwrap();
    };
    let open = || {
        let client = running.client();
        let flow = client.open("mix", "count", &[]).unwrap();
        (client, flow)
    };
    let flows = [open(), open()];
    write("snapshot_length = 200", "[devices.not-there]\n");
    let refused = flows[0].0.reload();
    assert!(
        matches!(refused, Err(ClientError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(running.flows(), 2);
    let victim = running.folder.path().join("victim");
    fs::write(&victim, "an ordinary file").unwrap();
    write("snapshot_length = 200", "");
    let said = flows[0].0.reload().unwrap();
    assert_eq!(said, ["device mix replaced"]);
    flows[0].0.start("mix").unwrap();
    let expected = of_file("count", &running.trace())[0].1;
    for (_, flow) in &flows {
        let results = last(flow);
        let value = results.components[0].value.as_ref();
        assert_eq!(value.and_then(serde_json::Value::as_u64), expected);
    }
    // Whatever the configuration says by then, its own socket is freed.
    let other = fs::read_to_string(&file)
        .unwrap()
        .replace("/sock", "/victim");
    fs::write(&file, other).unwrap();
    assert_eq!(flows[0].0.reload().unwrap().len(), 1);
    flows[0].0.stop().unwrap();
    drop(flows);
    let folder = running.folder.path().to_owned();
    assert!(victim.exists() && folder.join("sock").exists());
}

#[test]
fn a_stack_that_failed_begins_anew_with_a_reload_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gone/flows.json");
    let tables = format!(
        "[stacks.bad]\nstack = \"flows - output {{ file = {} }}\"\n[stacks.good]\nstack = \"count\"\n",
        file.display()
    );
    let running = Running::start(1, "");
    let toml = running.folder.path().join("sensor.toml");
    fs::write(&toml, config_text(running.folder.path(), 1, &tables)).unwrap();
    let client = running.client();
    let said = client.reload().unwrap();
    assert!(
        said.iter()
            .any(|line| line.starts_with("stack bad failed: ")),
        "{said:?}"
    );
    let failures = || {
        let status = client.status().unwrap();
        let stacks = status.devices[0].stacks.iter();
        let failed = stacks.filter(|stack| stack.failure.is_some());
        failed.map(|stack| stack.stack.clone()).collect::<Vec<_>>()
    };
    assert_eq!(failures(), ["bad"]);
    // It could begin now, and would write over what it wrote before.
    fs::create_dir(folder.path().join("gone")).unwrap();
    for _ in 0..3 {
        let flow = client.open("mix", "bytes", &[]).unwrap();
        assert_eq!(failures(), ["bad"]);
        flow.close().unwrap();
        assert_eq!(failures(), ["bad"]);
    }
    assert!(!file.exists());
    assert_eq!(client.reload().unwrap(), ["nothing has changed"]);
    assert_eq!(failures(), [""; 0]);
    client.start("mix").unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while client.status().unwrap().devices[0].state != "ended" && Instant::now() < patience {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(fs::metadata(&file).unwrap().len() > 0);
}

#[test]
fn many_users_come_and_go_while_packets_are_read() {
    let tables = "[devices.slow]\nfiles = [\"FOLDER/mix.pcap\"]\nspeed = \"real\"\n[stacks.all]\nstack = \"flows count\"\ndevice = \"slow\"\n";
    let folder = tempfile::tempdir().unwrap();
    let tables = tables.replace(
        "FOLDER/mix.pcap",
        &folder.path().join("slow.pcap").to_string_lossy(),
    );
    let config = Trace::new(Preset::Mix).with_packets(20_000);
    generate(
        &config,
        File::create(folder.path().join("slow.pcap")).unwrap(),
    )
    .unwrap();
    let running = Running::start(1, &tables);
    let users: Vec<_> = (0..8)
        .map(|user| {
            let client = running.client();
            thread::spawn(move || {
                for round in 0..10 {
                    let stack =
                        ["count", "filter { tcp } count bytes", "flows count"][(user + round) % 3];
                    let flow = client.open("slow", stack, &[]).unwrap();
                    let results = flow.results().unwrap();
                    assert_eq!(results.failure, None);
                    flow.close().unwrap();
                }
            })
        })
        .collect();
    for user in users {
        user.join().unwrap();
    }
    assert_eq!(running.flows(), 0);
    let status = running.client().status().unwrap();
    assert!(
        status.devices.iter().all(|device| device.errors.is_empty()),
        "{status:?}"
    );
}
