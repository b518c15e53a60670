//! C programs that know nothing of each other on one interface: a virtual cable in a network namespace. Needs root;
//! otherwise it says that it is skipped.
//!
//! This program is also the service, which the library starts as it would start `flowgauge`.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

/// Namespaces are those of the capture crate's own live tests.
#[path = "../../capture/tests/support/mod.rs"]
mod frames;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flowgauge_capture::generate::{Config, Preset, generate};
use flowgauge_capture::live::StopHandle;
use flowgauge_capture::{PacketSource, open};
use flowgauge_runtime::shared::{self, ServiceConfig, SharedCapture, Status};
use flowgauge_sys::privileges;

use frames::lab::Lab;
use support::{compile, has, here, installed, limited, run, scratch, text};

const INTERFACE: &str = "fg1";
/// What is waited for takes milliseconds; this only ends a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// Its name, and what it does in a namespace of its own.
type Test = (&'static str, fn(&Lab, &Scene));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let ["share-service", "-i", interface] =
        arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        return service(interface);
    }
    if arguments.iter().any(|one| one == "--list") {
        return;
    }
    if !privileges::is_root() {
        println!("SKIPPED shared: needs root");
        return;
    }
    if !has("gcc", "shared") {
        return;
    }
    let folder = scratch("shared");
    let scene = Scene::new(&folder);
    let tests: [Test; 7] = [
        (
            "the_death_of_one_disturbs_nobody",
            the_death_of_one_disturbs_nobody,
        ),
        (
            "where_there_is_no_service_each_captures",
            where_there_is_no_service_each_captures,
        ),
        ("a_program_may_capture_alone", a_program_may_capture_alone),
        (
            "who_wants_packets_shares_with_who_does_not",
            who_wants_packets_shares_with_who_does_not,
        ),
        ("programs_with_threads_share", programs_with_threads_share),
        (
            "when_the_capturing_process_dies_streams_end",
            when_the_capturing_process_dies_streams_end,
        ),
        (
            "when_the_interface_goes_down_streams_end",
            when_the_interface_goes_down_streams_end,
        ),
    ];
    for (name, test) in tests {
        let Some(lab) = Lab::new(9000) else { return };
        println!("test {name} ...");
        lab.run(|| test(&lab, &scene));
        println!("test {name} ... ok");
    }
}

fn service(interface: &str) {
    let listener = shared::inherited_listener().unwrap();
    let config = ServiceConfig {
        grace: Duration::from_millis(100),
        // Of which the programs use little: enough that each gets all it asks for, on any machine.
        pool_bytes: 8 << 30,
        ..ServiceConfig::default()
    };
    let stop = StopHandle::default();
    let _ = shared::serve_interface(listener, interface, Some("nobody"), config, &stop);
}

/// A program, and what it should say.
struct Scene {
    program: PathBuf,
    frames: Vec<Vec<u8>>,
    expected: BTreeMap<String, String>,
    /// The same with packets.
    with_packets: BTreeMap<String, String>,
}

impl Scene {
    fn new(folder: &Path) -> Scene {
        let program = folder.join("tell");
        let options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];
        compile("gcc", &options, &here().join("tests/c/tell.c"), &program);
        // Every segment once and in order: time decides nothing, which is another in a live capture.
        let mut config = Config::new(Preset::Web).scaled(0.002);
        for disorder in [
            &mut config.reordered,
            &mut config.retransmitted,
            &mut config.overlapped,
            &mut config.lost_upstream,
            &mut config.missing,
            &mut config.duplicated,
            &mut config.fragments,
            &mut config.mid_stream,
        ] {
            *disorder = 0.0;
        }
        let trace = folder.join("trace.pcap");
        generate(&config, fs::File::create(&trace).unwrap()).unwrap();
        let alone = |options: &[&str]| {
            let told = run(limited(&program).arg(&trace).args(options));
            streams(&text(&told.stdout))
        };
        let (expected, with_packets) = (alone(&[]), alone(&["0", "packets"]));
        let mut source = open(trace.to_str().unwrap()).unwrap();
        let mut frames = Vec::new();
        while let Some(batch) = source.next_batch().unwrap() {
            frames.extend((0..batch.packets.len()).map(|at| batch.bytes(at).to_vec()));
        }
        assert!(expected.len() > 50, "{expected:?}");
        assert_eq!(with_packets.len(), expected.len());
        assert!(
            !with_packets
                .values()
                .any(|story| expected.values().any(|one| one == story))
        );
        Scene {
            program,
            frames,
            expected,
            with_packets,
        }
    }

    fn start(&self, environment: &[(&str, &str)]) -> Program {
        self.start_with(&[], environment)
    }

    fn start_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Program {
        let own = std::env::current_exe().unwrap();
        let child = Command::new(&self.program)
            .arg(INTERFACE)
            .args(arguments)
            .env("LD_LIBRARY_PATH", installed().join("lib"))
            .env("FLOWGAUGE_PROGRAM", own)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn();
        Program(Some(child.unwrap()))
    }
}

/// A running C program.
struct Program(Option<Child>);

impl Program {
    fn signal(&self, name: &str) {
        let process = self.0.as_ref().unwrap().id().to_string();
        let status = Command::new("kill")
            .args([&format!("-{name}"), &process])
            .status();
        assert!(status.unwrap().success());
    }

    /// Asks it to stop its capture, and returns what it says.
    fn stop(mut self) -> String {
        self.signal("TERM");
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }

    fn kill(mut self) {
        self.signal("KILL");
        self.0.take().unwrap().wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a program's lines say of its streams.
fn streams(said: &str) -> BTreeMap<String, String> {
    said.lines()
        .filter_map(|line| line.strip_prefix("stream ")?.split_once(" | "))
        .map(|(who, story)| (who.to_owned(), story.to_owned()))
        .collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

fn status() -> Option<Status> {
    let capture = SharedCapture {
        interface: INTERFACE.to_owned(),
        user: 0,
    };
    capture.status().ok()
}

fn wait_for_clients(count: usize) {
    wait_until("clients", || {
        status().is_some_and(|status| status.clients.len() == count)
    });
}

/// Whether each packet socket of this network namespace runs (the sixth column), and how many there are.
fn packet_sockets() -> (bool, usize) {
    let table = fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    let sockets = table.lines().skip(1);
    let running: Vec<bool> = sockets
        .map(|line| line.split_whitespace().nth(5) == Some("1"))
        .collect();
    (running.iter().all(|&runs| runs), running.len())
}

/// Sends frames until the service has counted them all.
fn send(lab: &Lab, frames: &[Vec<u8>], before: usize) {
    let sender = lab.sender("fg0");
    for (number, portion) in frames.chunks(256).enumerate() {
        let portion: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
        sender.send_all(&portion).unwrap();
        let through = (before + number * 256 + portion.len()) as u64;
        wait_until("packets arrive", || {
            status().is_some_and(|status| status.ledger.received() >= through)
        });
    }
}

fn assert_complete(said: &str, scene: &Scene) {
    assert_told(said, &scene.expected);
}

fn assert_told(said: &str, expected: &BTreeMap<String, String>) {
    let got = streams(said);
    for (who, story) in expected {
        assert_eq!(got.get(who), Some(story), "{who}");
    }
    assert_eq!(got.len(), expected.len());
    let directions = said
        .lines()
        .filter(|line| line.starts_with("stream "))
        .count();
    let counted = format!("created {directions} terminated {directions} lost 0");
    for line in ["returned 0", "error 0", "message ", &counted] {
        assert!(said.lines().any(|one| one == line), "{line}: {said}");
    }
}

fn the_death_of_one_disturbs_nobody(lab: &Lab, scene: &Scene) {
    let victim = scene.start(&[]);
    let survivor = scene.start(&[]);
    wait_for_clients(2);
    assert_eq!(packet_sockets(), (true, 1));
    let half = scene.frames.len() / 2;
    send(lab, &scene.frames[..half], 0);
    victim.kill();
    wait_for_clients(1);
    assert_eq!(packet_sockets(), (true, 1));
    send(lab, &scene.frames[half..], half);
    assert_complete(&survivor.stop(), scene);
    wait_until("the service ends", || packet_sockets().1 == 0);
}

/// One in one thread, one in three; and one that dies.
fn who_wants_packets_shares_with_who_does_not(lab: &Lab, scene: &Scene) {
    let [one, three, victim] =
        ["0", "3", "3"].map(|count| scene.start_with(&[count, "packets"], &[]));
    let without = scene.start(&[]);
    wait_for_clients(4);
    assert_eq!(packet_sockets(), (true, 1));
    let half = scene.frames.len() / 2;
    send(lab, &scene.frames[..half], 0);
    victim.kill();
    wait_for_clients(3);
    send(lab, &scene.frames[half..], half);
    assert_told(&one.stop(), &scene.with_packets);
    assert_told(&three.stop(), &scene.with_packets);
    assert_complete(&without.stop(), scene);
    wait_until("the service ends", || packet_sockets().1 == 0);
}

/// Each with four, and one of them dies.
fn programs_with_threads_share(lab: &Lab, scene: &Scene) {
    let [one, two, victim] = [0; 3].map(|_| scene.start_with(&["4"], &[]));
    wait_for_clients(3);
    assert_eq!(packet_sockets(), (true, 1));
    let half = scene.frames.len() / 2;
    send(lab, &scene.frames[..half], 0);
    victim.kill();
    wait_for_clients(2);
    send(lab, &scene.frames[half..], half);
    assert_complete(&one.stop(), scene);
    assert_complete(&two.stop(), scene);
    wait_until("the service ends", || packet_sockets().1 == 0);
}

fn when_the_capturing_process_dies_streams_end(lab: &Lab, scene: &Scene) {
    let message = "died; hint: start the capture again";
    streams_end_before_the_error(lab, scene, message, || {
        let service = status().unwrap().process.to_string();
        let killed = Command::new("kill").args(["-KILL", &service]).status();
        assert!(killed.unwrap().success());
    });
}

fn when_the_interface_goes_down_streams_end(lab: &Lab, scene: &Scene) {
    let message = "hint: look whether fg1 is up (ip link show fg1), then start the capture again";
    streams_end_before_the_error(lab, scene, message, || lab.ip("link set fg1 down"));
}

/// In one thread and in three: what was created ends, then comes the error.
fn streams_end_before_the_error(lab: &Lab, scene: &Scene, message: &str, end: impl FnOnce()) {
    let programs = ["0", "3"].map(|count| scene.start_with(&[count], &[]));
    wait_for_clients(2);
    let half = scene.frames.len() / 2;
    send(lab, &scene.frames[..half], 0);
    end();
    for mut program in programs {
        let output = program.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = text(&output.stdout);
        assert!(
            said.contains(message) && !said.contains("returned 0"),
            "{said}"
        );
        let ended = said.lines().filter(|line| line.starts_with("stream "));
        let ended = ended.count();
        assert!(ended > 50, "{said}");
        let counted = format!("created {ended} terminated {ended} lost 0");
        assert!(said.contains(&counted), "{counted}: {said}");
    }
}

fn where_there_is_no_service_each_captures(_: &Lab, scene: &Scene) {
    let missing = [("FLOWGAUGE_PROGRAM", "/no/such/flowgauge")];
    let (one, two) = (scene.start(&missing), scene.start(&missing));
    wait_until("both capture", || packet_sockets() == (true, 2));
    for said in [one.stop(), two.stop()] {
        assert!(said.contains("returned 0\nerror 0\n"), "{said}");
        let told = said.contains("is not shared") && said.contains("/no/such/flowgauge");
        assert!(told, "{said}");
    }
}

fn a_program_may_capture_alone(_: &Lab, scene: &Scene) {
    let sharing = scene.start(&[]);
    wait_for_clients(1);
    let alone = scene.start(&[("FLOWGAUGE_SHARE", "0")]);
    wait_until("both capture", || packet_sockets() == (true, 2));
    assert_eq!(status().map(|status| status.clients.len()), Some(1));
    assert!(alone.stop().contains("returned 0\nerror 0\nmessage \n"));
    sharing.stop();
    wait_until("the service ends", || packet_sockets().1 == 0);
}
