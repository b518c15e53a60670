//! Sharing between processes on a live interface: a virtual cable in a network namespace, replayed
//! frames, processes that are stopped and killed. Needs root; otherwise it says that it is skipped.
//!
//! This program is all of them: it starts itself as a client, and as the service, which clients
//! start on demand. Nothing waits for a time to pass, but for what is asked of the service.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

/// Traces, and what programs make of them, are those of the runtime's tests.
#[path = "../../runtime/tests/shared_support/mod.rs"]
mod shared_support;

/// Namespaces are those of the capture crate's own live tests.
#[path = "../../capture/tests/support/mod.rs"]
mod frames;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flowgauge_credential::{Credential, IssuerKey, Limits, Visible};
use flowgauge_generate::Preset;
use flowgauge_runtime::shared::{
    self, Application, Client, Leaver, ServiceProgram, SharedCapture, Status,
};
use flowgauge_sensor::{Alone, Sensor};
use flowgauge_stream::engine::Cutoff;
use flowgauge_sys::privileges;

use frames::lab::Lab;
use shared_support::{LIMIT, Portion, Stories, Story, alone_from, smaller, trace};

const INTERFACE: &str = "fg1";

/// The group that may join, and a user and a group that may not.
const GROUP: u32 = 54_321;
const STRANGER: u32 = 54_322;

/// Its name, and what it does in a namespace of its own.
type Test = (&'static str, fn(&Lab));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.first().filter(|one| !one.starts_with('-'));
    let wanted = wanted.cloned();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["service", interface] => return service(interface),
        ["client", filter, cutoff, memory] => return client(filter, cutoff, memory),
        ["stranger"] => return stranger(&ServiceProgram::None),
        ["stayer"] => return stayer(),
        ["starter"] => return stranger(&program()),
        ["sensor", file] => return sensor(file),
        _ => {}
    }
    if arguments.iter().any(|one| one == "--list") {
        return;
    }
    if !privileges::is_root() {
        println!("SKIPPED shared_live: needs root");
        return;
    }
    let tests: [Test; 10] = [
        ("two_processes_get_their_own", two_processes_get_their_own),
        ("deaths_disturb_nobody", deaths_disturb_nobody),
        ("a_dead_service_is_noticed", a_dead_service_is_noticed),
        (
            "what_cannot_be_captured_is_told",
            what_cannot_be_captured_is_told,
        ),
        ("others_join_by_their_group", others_join_by_their_group),
        (
            "clients_that_are_killed_at_any_step_disturb_nobody",
            clients_that_are_killed_at_any_step_disturb_nobody,
        ),
        (
            "a_sensor_serves_programs_beside_its_stacks",
            a_sensor_serves_programs_beside_its_stacks,
        ),
        (
            "programs_and_stacks_have_one_engine",
            programs_and_stacks_have_one_engine,
        ),
        (
            "what_nothing_wants_is_kept_away",
            what_nothing_wants_is_kept_away,
        ),
        (
            "credentials_admit_programs_until_they_are_revoked",
            credentials_admit_programs_until_they_are_revoked,
        ),
    ];
    for (name, test) in tests {
        if wanted.as_ref().is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let Some(lab) = Lab::new(9000) else { return };
        println!("test {name} ...");
        lab.run(|| test(&lab));
        println!("test {name} ... ok");
    }
}

// --- the other roles -----------------------------------------------------------------------------

fn service(interface: &str) {
    let alone = Alone {
        source: None,
        listener: Arc::new(shared::inherited_listener().unwrap()),
        group: Some(GROUP),
        grace: Some(Duration::from_millis(100)),
        memory: 1 << 30,
    };
    let listener = Arc::clone(&alone.listener);
    match Sensor::share(interface, alone, Arc::default()) {
        Ok(sensor) => {
            Arc::new(sensor).run(|_| {});
        }
        Err(error) => shared::turn_away(&listener, &error.to_string(), LIMIT),
    }
}

/// With a configuration, until its input ends.
fn sensor(file: &str) {
    let stop = Arc::new(AtomicBool::new(false));
    let sensor = Arc::new(Sensor::start(file.as_ref(), Arc::clone(&stop)).unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    });
    let ledger = sensor.run(|_| {});
    assert!(ledger.is_balanced());
}

/// Prints what it is, and on the end of its input leaves and prints its streams.
fn client(filter: &str, cutoff: &str, memory: &str) {
    let application = Application {
        filter: filter.to_owned(),
        cutoff: cutoff.parse().map_or(Cutoff::UNLIMITED, Cutoff),
        memory_bytes: memory.parse().unwrap(),
        name: format!("filter {filter}"),
        ..Application::default()
    };
    let mut client = match Client::connect(INTERFACE, &application, &program()) {
        Ok(client) => client,
        Err(error) => return println!("error {error}"),
    };
    println!("joined {}", client.service());
    leave_at_end_of_input(client.leaver());
    let mut stories = Stories::default();
    stories.timeless = true;
    loop {
        match client.next_event(None) {
            Ok(shared::Next::Event(event)) => stories.told(&event),
            Ok(shared::Next::Idle) => {}
            Ok(shared::Next::End(reason)) => {
                println!("end {reason}");
                break;
            }
            Err(error) => return println!("error {error}"),
        }
    }
    for (who, story) in stories.finish() {
        println!("stream {who} | {} {}", story.bytes, hex(&story.hash));
    }
    let (own, ledger) = client.statistics();
    println!(
        "complete {} balanced {}",
        own.is_complete(),
        ledger.is_balanced()
    );
}

/// Joins what there is, or what it may start, and says what came of it.
fn stranger(program: &ServiceProgram) {
    println!("user {}", flowgauge_sys::process::user());
    let application = Application {
        memory_bytes: 1 << 20,
        ..Application::default()
    };
    match Client::connect(INTERFACE, &application, program) {
        Ok(_) => println!("joined"),
        Err(error) => println!("error {error}"),
    }
}

/// Joins what there is, stays until it is told to go, and says why.
fn stayer() {
    println!("user {}", flowgauge_sys::process::user());
    let application = Application {
        memory_bytes: 1 << 20,
        ..Application::default()
    };
    let joined = Client::connect(INTERFACE, &application, &ServiceProgram::None);
    let mut client = match joined {
        Ok(client) => client,
        Err(error) => return println!("error {error}"),
    };
    println!("joined");
    let (mut created, mut packets) = ([0, 0], 0);
    loop {
        match client.next_event(None) {
            Ok(shared::Next::End(reason)) => {
                println!("streams {created:?} packets {packets}");
                return println!("end {reason}");
            }
            Ok(shared::Next::Event(event)) => match event.kind {
                shared::EventKind::Created => created[0] += 1,
                shared::EventKind::Terminated => {
                    created[1] += 1;
                    packets += event.stream.snapshot().statistics.all.packets;
                }
                shared::EventKind::Data(_) => {}
            },
            Ok(shared::Next::Idle) => {}
            Err(error) => return println!("error {error}"),
        }
    }
}

fn leave_at_end_of_input(leaver: Leaver) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = leaver.leave();
    });
}

fn program() -> ServiceProgram {
    ServiceProgram::Command {
        program: std::env::current_exe().unwrap().into(),
        arguments: vec!["service".into()],
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// --- what the tests do with them -----------------------------------------------------------------

/// A client process.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    service: u32,
}

impl Process {
    fn start(filter: &str, cutoff: &str, memory: u64) -> Process {
        let mut process = Process::spawn(filter, cutoff, memory);
        let line = process.lines.next().unwrap().unwrap();
        let service = line.strip_prefix("joined ");
        process.service = service.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        process
    }

    fn spawn(filter: &str, cutoff: &str, memory: u64) -> Process {
        let own: PathBuf = std::env::current_exe().unwrap();
        let mut child = Command::new(own)
            .args(["client", filter, cutoff, &memory.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        Process {
            input: child.stdin.take(),
            child,
            lines: BufReader::new(output).lines(),
            service: 0,
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Lets it leave, and returns what it says.
    fn finish(mut self) -> Vec<String> {
        self.input = None;
        self.end()
    }

    /// Waits for its end, and returns what it says.
    fn end(mut self) -> Vec<String> {
        let lines = self.lines.by_ref().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// What a client's lines say of its streams.
fn streams(lines: &[String]) -> BTreeMap<String, String> {
    lines
        .iter()
        .filter_map(|line| line.strip_prefix("stream ")?.split_once(" | "))
        .map(|(who, story)| (who.to_owned(), story.to_owned()))
        .collect()
}

/// What the streams should be when the capture ends, and with it all of them.
fn expected(filter: &str, cutoff: &str, portions: &[Portion]) -> BTreeMap<String, String> {
    let application = Application {
        filter: filter.to_owned(),
        cutoff: cutoff.parse().map_or(Cutoff::UNLIMITED, Cutoff),
        ..Application::default()
    };
    let stories = alone_from(&application, portions, 0, true);
    stories
        .iter()
        .map(|(who, Story { bytes, hash, .. })| (who.clone(), format!("{bytes} {}", hex(hash))))
        .collect()
}

fn capture() -> SharedCapture {
    SharedCapture {
        interface: INTERFACE.to_owned(),
        user: 0,
    }
}

fn wait_for_status(what: &str, condition: impl Fn(&Status) -> bool) -> Status {
    let started = Instant::now();
    loop {
        let status = capture().status().unwrap();
        if condition(&status) {
            return status;
        }
        assert!(started.elapsed() < LIMIT, "{what}: {status:?}");
        std::thread::yield_now();
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// Sends the frames and waits until the service has counted them.
fn replay(lab: &Lab, portions: &[Portion], before: u64) -> u64 {
    let sender = lab.sender("fg0");
    let mut through = before;
    for portion in portions {
        let frames: Vec<&[u8]> = (0..portion.packets.len())
            .map(|at| portion.frame(at))
            .collect();
        sender.send_all(&frames).unwrap();
        through += frames.len() as u64;
        let status = wait_for_status("packets arrive", |one| one.ledger.received() >= through);
        assert_eq!(status.ledger.received(), through);
        assert_eq!(status.ledger.dropped(), 0);
        assert!(status.ledger.is_balanced());
    }
    through
}

/// Packet sockets of this network namespace.
fn packet_sockets() -> usize {
    let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    table.lines().count() - 1
}

fn is_gone() -> bool {
    shared::shared_captures().unwrap().is_empty() && packet_sockets() == 0
}

// --- the tests -----------------------------------------------------------------------------------

const PLENTY: u64 = 64 << 20;

fn two_processes_get_their_own(lab: &Lab) {
    let portions = trace(Preset::Web, 0.002);
    let wants = [("tcp", ""), ("src net 10.0.0.0/8", "500")];
    let first = Process::start(wants[0].0, wants[0].1, PLENTY);
    let second = Process::start(wants[1].0, wants[1].1, PLENTY);
    assert_eq!(first.service, second.service);
    // One packet socket, that of the service. Nobody else has one, and it is not root any more.
    assert_eq!(packet_sockets(), 1);
    let text = std::fs::read_to_string(format!("/proc/{}/status", first.service)).unwrap();
    let user = text
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap();
    assert!(!user.split_whitespace().any(|id| id == "0"), "{user}");
    replay(lab, &portions, 0);
    lab.ip("link set fg1 down");
    for (process, (filter, cutoff)) in [first, second].into_iter().zip(wants) {
        let lines = process.end();
        let (got, wanted) = (streams(&lines), expected(filter, cutoff, &portions));
        assert!(wanted.len() > 20);
        for (who, story) in &wanted {
            assert_eq!(got.get(who), Some(story), "{filter}: {who}");
        }
        assert_eq!(got.len(), wanted.len());
        assert!(lines.contains(&"complete true balanced true".to_owned()));
    }
    wait_until("the service ends", is_gone);
}

fn deaths_disturb_nobody(lab: &Lab) {
    let portions = trace(Preset::Web, 0.004);
    let thirds: Vec<&[Portion]> = portions.chunks(portions.len().div_ceil(3)).collect();
    let mut killed = Process::start("tcp", "", PLENTY);
    let paused = Process::start("tcp", "", 1 << 20);
    let witness = Process::start("tcp", "", PLENTY);
    let mut through = replay(lab, thirds[0], 0);
    killed.signal("KILL");
    killed.child.wait().unwrap();
    paused.signal("STOP");
    wait_for_status("the dead one is gone", |status| status.clients.len() == 2);
    through = replay(lab, thirds[1], through);
    // A third one comes while the second is stopped.
    let late = Process::start("tcp", "", PLENTY);
    through = replay(lab, thirds[2], through);
    let status = capture().status().unwrap();
    let slow = status
        .clients
        .iter()
        .find(|one| one.memory == 1 << 20)
        .unwrap();
    assert!(slow.held <= 1 << 20);
    assert!(!slow.statistics.is_complete(), "{slow:?}");
    assert_eq!(slow.process, paused.child.id());
    let others = status.clients.iter().filter(|one| one.memory != 1 << 20);
    for other in others {
        assert!(other.statistics.is_complete(), "{other:?}");
    }
    paused.signal("KILL");
    drop(paused);
    let status = wait_for_status("it is gone", |status| status.clients.len() == 2);
    assert_eq!((status.ledger.received(), packet_sockets()), (through, 1));
    let late = late.finish();
    assert!(late.contains(&"end as asked".to_owned()), "{late:?}");
    assert!(late.iter().any(|line| line.starts_with("stream ")));
    lab.ip("link set fg1 down");
    let lines = witness.end();
    assert!(lines.contains(&"complete true balanced true".to_owned()));
    let (got, wanted) = (streams(&lines), expected("tcp", "", &portions));
    assert!(wanted.len() > 100);
    for (who, story) in &wanted {
        assert_eq!(got.get(who), Some(story), "{who}");
    }
    assert_eq!(got.len(), wanted.len());
    wait_until("the service ends", is_gone);
}

fn a_dead_service_is_noticed(lab: &Lab) {
    let portions = trace(Preset::Web, 0.0005);
    let one = Process::start("tcp", "", PLENTY);
    let two = Process::start("", "0", PLENTY);
    replay(lab, &portions, 0);
    signal(one.service, "KILL");
    for process in [one, two] {
        let lines = process.finish();
        let told = lines
            .iter()
            .any(|line| line.starts_with("error") && line.contains("died"));
        assert!(told, "{lines:?}");
    }
    wait_until("nothing is left", is_gone);
    // Who comes then starts another.
    let next = Process::start("tcp", "", PLENTY);
    replay(lab, &portions, 0);
    let mut stories = streams(&next.finish());
    stories.retain(|_, story| !story.starts_with("0 "));
    assert!(!stories.is_empty());
    wait_until("the service ends", is_gone);
}

/// This program where every user may start it.
struct Other(tempfile::TempDir);

impl Other {
    fn new() -> Other {
        let other = Other(tempfile::tempdir().unwrap());
        std::fs::copy(std::env::current_exe().unwrap(), other.program()).unwrap();
        for path in [other.0.path().to_owned(), other.program()] {
            let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, readable).unwrap();
        }
        other
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("stranger")
    }

    /// Its user, and what it says besides.
    fn says(&self, role: &str, user: u32, group: u32) -> (String, String) {
        let mut command = Command::new(self.program());
        let said = command.arg(role).uid(user).gid(group).output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        let (is, rest) = said.split_once('\n').unwrap();
        (is.to_owned(), rest.to_owned())
    }
}

fn others_join_by_their_group(_lab: &Lab) {
    let first = Process::start("tcp", "", PLENTY);
    let other = Other::new();
    let says = |role: &str, user: u32, group: u32| other.says(role, user, group);
    let (_, refused) = says("stranger", STRANGER, STRANGER);
    assert!(
        refused.starts_with("error ") && refused.contains("you have no rights here"),
        "{refused}"
    );
    assert_eq!(says("stranger", STRANGER, GROUP).1, "joined\n");
    assert_eq!(capture().status().unwrap().clients[0].user, 0);
    first.finish();
    wait_until("the service ends", is_gone);
    // A program that runs with its file's rights starts nothing for whoever runs it.
    let privileged = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(other.program(), privileged).unwrap();
    let (user, refused) = says("starter", STRANGER, STRANGER);
    if user == "user 0" {
        assert!(refused.contains("rights of its file"), "{refused}");
    } else {
        println!("SKIPPED: files give no rights here");
    }
    assert!(is_gone());
}

/// Each a little later than the one before: while it connects, joins, reads, leaves.
fn clients_that_are_killed_at_any_step_disturb_nobody(lab: &Lab) {
    let portions = trace(Preset::Web, 0.003);
    let witness = Process::start("tcp", "", PLENTY);
    let mut through = 0;
    for (number, portion) in portions.iter().enumerate() {
        let mut short = [
            Process::spawn("tcp", "", PLENTY),
            Process::spawn("", "0", PLENTY),
        ];
        short[1].input = None;
        for _ in 0..number * 200 {
            std::thread::yield_now();
        }
        through = replay(lab, core::slice::from_ref(portion), through);
        drop(short);
    }
    wait_for_status("the dead are gone", |status| status.clients.len() == 1);
    lab.ip("link set fg1 down");
    let lines = witness.end();
    assert!(lines.contains(&"complete true balanced true".to_owned()));
    let (got, wanted) = (streams(&lines), expected("tcp", "", &portions));
    assert!(wanted.len() > 100);
    for (who, story) in &wanted {
        assert_eq!(got.get(who), Some(story), "{who}");
    }
    assert_eq!(got.len(), wanted.len());
    wait_until("the service ends", is_gone);
}

/// One ring for all of it; who may only count is refused.
fn a_sensor_serves_programs_beside_its_stacks(lab: &Lab) {
    for workers in [1, 2] {
        programs_beside_stacks(lab, workers);
    }
}

/// Each worker has a ring.
fn programs_beside_stacks(lab: &Lab, workers: usize) {
    let folder = tempfile::tempdir().unwrap();
    let others = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), others).unwrap();
    let file = folder.path().join("sensor.toml");
    let text = format!(
        "socket = \"{}/sock\"\nuser = \"root\"\n[devices.cable]\ninterface = \"{INTERFACE}\"\nworkers = {workers}\n\
         [stacks.all]\nstack = \"count bytes\"\n[users.{STRANGER}]\n[groups.{GROUP}]\npackets = \"payload\"\n",
        folder.path().display()
    );
    std::fs::write(&file, text).unwrap();
    let mut sensor = Command::new(std::env::current_exe().unwrap())
        .arg("sensor")
        .arg(&file)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the sensor runs", || capture().status().is_ok());
    let portions = trace(Preset::Web, 0.002);
    let witness = Process::start("tcp", "", PLENTY);
    assert_eq!(witness.service, sensor.id());
    let flows = flowgauge_sensor_client::Client::connect(&folder.path().join("sock")).unwrap();
    let flow = flows.open("cable", "count", &[]).unwrap();
    let through = replay(lab, &portions, 0);
    assert_eq!(packet_sockets(), workers);
    wait_until("the flow has them", || {
        let counted = &flow.results().unwrap().components[0].value;
        *counted == Some(through.into())
    });
    let readings = flow.readings();
    wait_until("that is told without being asked", || {
        readings.read(0).value == Some(through.into())
    });
    let other = Other::new();
    // Also where it could start one of its own, which may not capture.
    for role in ["stranger", "starter"] {
        let (_, refused) = other.says(role, STRANGER, STRANGER);
        assert!(
            refused.contains("you may not have its streams"),
            "{role}: {refused}"
        );
    }
    lab.ip("link set fg1 down");
    let lines = witness.end();
    assert!(
        lines.contains(&"complete true balanced true".to_owned()),
        "{lines:?}"
    );
    let (got, wanted) = (streams(&lines), expected("tcp", "", &portions));
    assert!(wanted.len() > 20);
    assert_eq!(got, wanted);
    // The interface comes back, and programs with it.
    lab.ip("link set fg1 up");
    wait_until("it is shared again", || {
        other.says("stranger", STRANGER + 1, GROUP).1 == "joined\n"
    });
    // Whoever may not be there any more is told so.
    let mut stayer = Command::new(other.program());
    stayer.arg("stayer").uid(STRANGER + 1).gid(GROUP);
    let mut stayer = stayer.stdout(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(stayer.stdout.take().unwrap()).lines();
    assert!(says.any(|line| line.unwrap() == "joined"));
    let text = std::fs::read_to_string(&file).unwrap();
    let (without, _) = text.split_once("[groups").unwrap();
    std::fs::write(&file, without).unwrap();
    let said = flows.reload().unwrap();
    assert_eq!(said[0], "rights have changed");
    assert!(said[1].contains("is not allowed any more"), "{said:?}");
    assert_eq!(says.next().unwrap().unwrap(), "streams [0, 0] packets 0");
    let last = says.next().unwrap().unwrap();
    assert_eq!(last, "end you have no rights here");
    assert!(stayer.wait().unwrap().success());
    drop(sensor.stdin.take());
    assert!(sensor.wait().unwrap().success());
}

/// What `log` gives on of these packets, in any order and without times, with a program beside it or not; what comes of that, and
/// whether they have one engine.
fn logged(
    lab: &Lab,
    portions: &[Portion],
    timeout: &str,
    programs: usize,
) -> (Vec<String>, Vec<Vec<String>>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = format!(
        "socket = \"{0}/sock\"\nuser = \"root\"\n[devices.cable]\ninterface = \"{INTERFACE}\"\n[stacks.log]\nstack = \"\"\"\n\
         transactions {{ flows = yes{timeout} }} output {{ file = {0}/log }}\n\"\"\"\n",
        folder.path().display()
    );
    std::fs::write(path("sensor.toml"), text).unwrap();
    let mut sensor = Command::new(std::env::current_exe().unwrap())
        .arg("sensor")
        .arg(path("sensor.toml"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the sensor runs", || capture().status().is_ok());
    let programs: Vec<Process> = (0..programs)
        .map(|_| Process::start("tcp", "", PLENTY))
        .collect();
    replay(lab, portions, 0);
    let admin = flowgauge_sensor_client::Client::connect(&path("sock")).unwrap();
    let status = admin.status_with(true).unwrap().devices.remove(0);
    let is_one = status.shared.iter().any(|shared| {
        shared.is_engine && shared.stacks == ["log"] && shared.flows.len() == programs.len()
    });
    let flows = status.stacks.iter().flat_map(|stack| &stack.flows);
    assert_eq!(flows.count(), programs.len());
    drop(admin);
    drop(sensor.stdin.take());
    assert!(sensor.wait().unwrap().success());
    let lines = programs.into_iter().map(Process::end).collect();
    let log = std::fs::read_to_string(path("log")).unwrap();
    let mut records: Vec<String> = log.lines().map(timeless).collect();
    records.sort();
    (records, lines, is_one)
}

/// A record without what depends on when its packets came.
fn timeless(line: &str) -> String {
    let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = record.as_object_mut().unwrap();
    fields.retain(|name, _| {
        let parts = [
            "time", "start", "end", "duration", "rtt", "flow_id", "latency", "syn",
        ];
        !parts.iter().any(|part| name.contains(part))
    });
    record.to_string()
}

/// Where they ask for the same: each gets what it would get alone.
fn programs_and_stacks_have_one_engine(lab: &Lab) {
    let portions = trace(Preset::Web, 0.003);
    let (alone, _, _) = logged(lab, &portions, "", 0);
    assert!(alone.len() > 100, "{}", alone.len());
    let wanted = expected("tcp", "", &portions);
    for (timeout, is_one) in [("", true), (", tcp_timeout = 100s", false)] {
        let (log, programs, shares) = logged(lab, &portions, timeout, 2);
        assert_eq!(shares, is_one, "{timeout}");
        assert_eq!(log, alone, "{timeout}");
        for lines in programs {
            assert!(
                lines.contains(&"complete true balanced true".to_owned()),
                "{lines:?}"
            );
            assert_eq!(streams(&lines), wanted, "{timeout}");
        }
    }
}

/// What stacks make of the packets, and who opens a flow that wants all in the middle, with packets kept away or not: records in
/// any order and without times, and how many packets were kept away.
fn with_offload(
    lab: &Lab,
    portions: &[Portion],
    offload: &str,
    workers: u16,
) -> (Vec<String>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = format!(
        "socket = \"{0}/sock\"\nuser = \"root\"\n[devices.cable]\ninterface = \"{INTERFACE}\"\noffload = \"{offload}\"\nworkers = {workers}\n\
         [stacks.cut]\nstack = \"streams {{ cutoff = 1000, hash = yes }} output {{ file = {0}/cut }}\"\n\
         [stacks.log]\nstack = \"transactions output {{ file = {0}/log }}\"\n",
        folder.path().display()
    );
    std::fs::write(path("sensor.toml"), text).unwrap();
    let mut sensor = Command::new(std::env::current_exe().unwrap())
        .arg("sensor")
        .arg(path("sensor.toml"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the sensor runs", || capture().status().is_ok());
    let admin = flowgauge_sensor_client::Client::connect(&path("sock")).unwrap();
    let kept_away = || {
        let device = admin.status().unwrap().devices.remove(0);
        assert_eq!(device.offload.is_some(), offload == "auto");
        let offload = device.offload.unwrap_or_default();
        assert_eq!(offload.lacks, None);
        offload.packets
    };
    let thirds: Vec<&[Portion]> = portions.chunks(portions.len().div_ceil(3)).collect();
    let mut through = replay(lab, thirds[0], 0);
    let before = kept_away();
    // The second has all packets on one thread.
    let flows = ["count", "start_stop count"];
    let flows = flows.map(|flow| admin.open("cable", flow, &[]).unwrap());
    let sent = replay(lab, thirds[1], through) - through;
    through += sent;
    assert_eq!(kept_away(), before, "all packets are needed");
    for flow in flows {
        let counted = flow.close().unwrap().components.pop().unwrap();
        assert_eq!(counted.value, Some(sent.into()));
    }
    replay(lab, thirds[2], through);
    let after = kept_away();
    // (How many of them depends on when what is wanted was known.)
    assert_eq!(after > 0, offload == "auto");
    drop(admin);
    drop(sensor.stdin.take());
    assert!(sensor.wait().unwrap().success());
    let files = ["cut", "log"].map(|name| std::fs::read_to_string(path(name)).unwrap());
    let mut records: Vec<String> = files
        .iter()
        .flat_map(|it| it.lines().map(timeless))
        .collect();
    records.sort();
    (records, after)
}

/// Stacks have the records of all packets, and a flow that wants all has all from when it is opened.
fn what_nothing_wants_is_kept_away(lab: &Lab) {
    let portions = smaller(&trace(Preset::Mix, 0.003), 100);
    let (wanted, _) = with_offload(lab, &portions, "none", 1);
    assert!(wanted.len() > 100, "{}", wanted.len());
    let all = shared_support::packets_of(&portions);
    for (offload, workers) in [("auto", 1), ("none", 2), ("auto", 2)] {
        let (records, kept_away) = with_offload(lab, &portions, offload, workers);
        println!("{offload}, {workers} workers: {kept_away} of {all} packets were kept away");
        assert_eq!(records, wanted, "{offload}, {workers} workers");
    }
}

/// As they do flows; a program is one among them.
fn credentials_admit_programs_until_they_are_revoked(lab: &Lab) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(folder.path(), mode(0o755)).unwrap();
    let ops = IssuerKey::generate();
    let text = format!(
        "socket = \"{0}/sock\"\nuser = \"root\"\nrevoked = \"{0}/revoked\"\n[devices.cable]\ninterface = \"{INTERFACE}\"\n\
         [issuers.ops]\nkey = \"{1}\"\npackets = \"payload\"\n",
        folder.path().display(),
        ops.public(),
    );
    std::fs::write(path("sensor.toml"), text).unwrap();
    std::fs::write(path("revoked"), "").unwrap();
    let soon = SystemTime::now() + Duration::from_secs(3600);
    let soon = soon.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let limits = Limits {
        packets: Some(Visible::Payload),
        expires: Some(soon.as_secs()),
        ..Limits::default()
    };
    let credential = Credential::issue(&ops, &limits).unwrap();
    let headers = Limits {
        packets: Some(Visible::Headers),
        ..Limits::default()
    };
    let other = Other::new();
    let with = |name: &str, credential: &Credential| {
        std::fs::write(path(name), credential.text()).unwrap();
        std::fs::set_permissions(path(name), mode(0o600)).unwrap();
        std::os::unix::fs::chown(path(name), Some(STRANGER), None).unwrap();
        let mut stayer = Command::new(other.program());
        stayer.arg("stayer").uid(STRANGER).gid(STRANGER);
        stayer.env("FLOWGAUGE_CREDENTIAL", path(name));
        let mut stayer = stayer.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(stayer.stdout.take().unwrap()).lines();
        says.next().unwrap().unwrap();
        let said = says.next().unwrap().unwrap();
        (stayer, says, said)
    };
    let mut sensor = Command::new(std::env::current_exe().unwrap())
        .arg("sensor")
        .arg(path("sensor.toml"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the sensor runs", || capture().status().is_ok());
    let (_, refused) = other.says("stranger", STRANGER, STRANGER);
    assert!(refused.contains("you have no rights here"), "{refused}");
    let narrowed = credential.attenuate(&headers).unwrap();
    let (mut few, _, refused) = with("narrowed", &narrowed);
    assert!(
        refused.contains("you may not have its streams"),
        "{refused}"
    );
    assert!(few.wait().unwrap().success());
    let (mut stayer, mut says, said) = with("credential", &credential);
    assert_eq!(said, "joined");
    let admin = flowgauge_sensor_client::Client::connect(&path("sock")).unwrap();
    let device = admin.status().unwrap().devices.remove(0);
    let [stack] = &device.stacks[..] else {
        panic!("{device:?}");
    };
    assert_eq!(stack.components, ["streams for stranger"]);
    assert_eq!(stack.flows[0].process, stayer.id());
    assert!(stack.flows[0].name.is_some());
    let explained = admin.explain("cable", "").unwrap();
    assert_eq!(explained.last().unwrap(), "allowed");
    let portions = trace(Preset::Web, 0.002);
    let through = replay(lab, &portions, 0);
    std::fs::write(path("revoked"), format!("{}\n", credential.ids()[0])).unwrap();
    // Its streams end as they stand.
    let (got, wanted) = (says.next().unwrap().unwrap(), expected("", "", &portions));
    let streams = wanted.len();
    let told = format!("streams [{streams}, {streams}] packets {through}");
    assert_eq!(got, told);
    let last = says.next().unwrap().unwrap();
    assert!(
        last.starts_with("end ") && last.contains("revoked"),
        "{last}"
    );
    assert!(stayer.wait().unwrap().success());
    wait_until("it is not a flow any more", || {
        admin.status().unwrap().devices[0].stacks.is_empty()
    });
    drop(sensor.stdin.take());
    assert!(sensor.wait().unwrap().success());
}

fn what_cannot_be_captured_is_told(lab: &Lab) {
    lab.ip("link set fg1 down");
    let mut process = Process::spawn("tcp", "", PLENTY);
    let line = process.lines.next().unwrap().unwrap();
    assert!(
        line.starts_with("error") && line.contains(INTERFACE),
        "{line}"
    );
    wait_until("nothing is left", is_gone);
    // And an interface that goes down on the way.
    lab.ip("link set fg1 up");
    let process = Process::start("tcp", "", PLENTY);
    lab.ip("link set fg1 down");
    let lines = process.end();
    let told = lines
        .iter()
        .any(|line| line.starts_with("end ") && line.contains("down"));
    assert!(told, "{lines:?}");
    let _ = std::io::stdout().flush();
}
