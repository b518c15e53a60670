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
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_capture::{PacketSource, open};
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_runtime::shared::{self, SharedCapture, Status};
use flowgauge_sensor::{Alone, Sensor};
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
    if let ["sensor", "run", "--inherited", "-i", interface] =
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
    let tests: [Test; 9] = [
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
            "what_is_behind_a_cutoff_is_kept_away",
            what_is_behind_a_cutoff_is_kept_away,
        ),
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
        (
            "who_is_important_loses_nothing_live",
            who_is_important_loses_nothing_live,
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
    let alone = Alone {
        source: None,
        listener: Arc::new(shared::inherited_listener().unwrap()),
        group: None,
        grace: Some(Duration::from_millis(100)),
        // Of which the programs use little: enough that each gets all it asks for, on any machine.
        memory: 8 << 30,
    };
    let listener = Arc::clone(&alone.listener);
    match Sensor::share(interface, alone, Arc::default()) {
        Ok(sensor) => {
            Arc::new(sensor).run(|_| {});
        }
        Err(error) => shared::turn_away(&listener, &error.to_string(), LIMIT),
    }
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

/// Contents and statistics are those of all packets.
fn what_is_behind_a_cutoff_is_kept_away(lab: &Lab, scene: &Scene) {
    /// Frames of which nothing is known when they are sent.
    const PORTION: usize = 40;

    let [(all, none), (cut, kept)] = ["0", "1"].map(|offload| {
        let environment = [
            ("FLOWGAUGE_SHARE", "0"),
            ("FLOWGAUGE_OFFLOAD", offload),
            ("TELL_CUTOFF", "200"),
        ];
        let mut program = scene.start(&environment);
        let child = program.0.as_mut().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = String::new();
        wait_until("it captures", || packet_sockets() == (true, 1));
        let sender = lab.sender("fg0");
        let mut sent = 0;
        for frames in scene.frames.chunks(PORTION) {
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            sender.send_all(&frames).unwrap();
            sent += frames.len();
            let seen = format!("seen {sent}");
            for line in lines.by_ref() {
                let line = line.unwrap();
                if line == seen {
                    break;
                }
                said = said + &line + "\n";
            }
        }
        drop(sender);
        program.signal("TERM");
        lines.for_each(|line| said = core::mem::take(&mut said) + &line.unwrap() + "\n");
        assert!(said.contains("returned 0\nerror 0\n"), "{said}");
        assert!(program.0.take().unwrap().wait().unwrap().success());
        wait_until("it ends", || packet_sockets().1 == 0);
        let kept = said.lines().find_map(|line| line.strip_prefix("kept "));
        (streams(&said), kept.unwrap().parse::<u64>().unwrap())
    });
    println!("{kept} of {} packets were kept away", scene.frames.len());
    assert!(none == 0 && kept > 50, "{none}, {kept}");
    assert_eq!(cut, all);
}

/// Connections at once, how many there are, each with as many segments, and every which of them is important.
const AT_ONCE: u32 = 48;
const CONNECTIONS: u32 = 1_536;
const SEGMENTS: u32 = 100;
const IMPORTANT: u32 = 12;
const PORT: u16 = 443;
/// Bytes of a segment.
const SEGMENT: usize = 1448;
/// What a callback takes for a byte, and how many times faster the bytes are sent.
const NANOSECONDS: u64 = 24;
const OVERLOAD: u64 = 3;

/// The paper's figure 9, live: one thread of callbacks, three times as much as they can take, and more of it than the kernel's ring
/// and the memory hold. A private capture, and a shared one.
fn who_is_important_loses_nothing_live(lab: &Lab, _: &Scene) {
    let folder = scratch("overload");
    let program = folder.join("overload");
    let options = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];
    let source = here().join("tests/c/overload.c");
    compile("gcc", &options, &source, &program);
    for share in ["0", "1"] {
        let child = Command::new(&program)
            .args([INTERFACE, &NANOSECONDS.to_string(), &PORT.to_string()])
            .env("LD_LIBRARY_PATH", installed().join("lib"))
            .env("FLOWGAUGE_PROGRAM", std::env::current_exe().unwrap())
            .env("FLOWGAUGE_SHARE", share)
            .stdout(Stdio::piped())
            .spawn();
        let program = Program(Some(child.unwrap()));
        wait_until("it captures", || packet_sockets() == (true, 1));
        if share == "1" {
            wait_for_clients(1);
        }
        send_paced(lab);
        if share == "1" {
            // Who leaves a shared capture gets nothing of what the kernel still holds.
            let sent = u64::from(CONNECTIONS * (SEGMENTS + 5));
            wait_until("packets arrive", || {
                status().is_some_and(|status| status.ledger.received() >= sent)
            });
        }
        let said = program.stop();
        wait_until("it ends", || packet_sockets().1 == 0);
        let numbers = |of: &str| -> Vec<u64> {
            let line = said.lines().find_map(|line| line.strip_prefix(of)).unwrap();
            let words = line.split_whitespace();
            words.map(|word| word.parse().unwrap()).collect()
        };
        let high = u64::from(CONNECTIONS / IMPORTANT);
        let (packets, bytes) = (
            high * u64::from(SEGMENTS + 5),
            high * u64::from(SEGMENTS) * SEGMENT as u64,
        );
        assert_eq!(
            numbers("high"),
            [2 * high, 2 * high, 0, packets, 0, bytes, 0],
            "{said}"
        );
        assert_eq!(numbers("lost")[..2], [0, 0], "{said}");
        let low = u64::from(CONNECTIONS) - high;
        let [streams, closed, incomplete, all, dropped, _, missing] = numbers("low")[..] else {
            panic!("{said}");
        };
        assert_eq!(
            [streams, closed, incomplete],
            [2 * low, 2 * low, 0],
            "{said}"
        );
        assert_eq!(all, low * u64::from(SEGMENTS + 5), "{said}");
        // Of what comes a third is handled, and the rest is more than memory and ring hold. (A shared capture loses chunks.)
        let lost = dropped * SEGMENT as u64 + missing;
        assert!(lost > all * SEGMENT as u64 / 8, "{said}");
    }
}

/// Sends all connections from one end of the cable, at the pace that is [too fast](OVERLOAD) for the program, or slower.
fn send_paced(lab: &Lab) {
    const PORTION: usize = 64;
    let sender = lab.sender("fg0");
    let pause = PORTION as u64 * SEGMENT as u64 * NANOSECONDS / OVERLOAD;
    let mut next = Instant::now();
    let mut frames = Vec::new();
    let mut send = |frame: Vec<u8>| {
        frames.push(frame);
        if frames.len() == PORTION {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let portion: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            sender.send_all(&portion).unwrap();
            frames.clear();
            wait_until("the cable is empty", cable_is_empty);
            next = next.max(Instant::now()) + Duration::from_nanos(pause);
        }
    };
    for first in (0..CONNECTIONS).step_by(AT_ONCE as usize) {
        let all = || first..first + AT_ONCE;
        let mut round = |from_client, seq, ack, flags, len| {
            for number in all() {
                send(segment(number, from_client, [seq, ack], flags, len));
            }
        };
        let end = 1 + SEGMENTS * SEGMENT as u32;
        round(true, 0, 0, 2, 0);
        round(false, 0, 1, 0x12, 0);
        round(true, 1, 1, 0x10, 0);
        for segment in 0..SEGMENTS {
            round(true, 1 + segment * SEGMENT as u32, 1, 0x18, SEGMENT);
        }
        round(true, end, 1, 0x11, 0);
        round(false, 1, end + 1, 0x11, 0);
    }
}

/// Whether no frame waits between its sender and its receiver, on any processor.
fn cable_is_empty() -> bool {
    // Hexadecimal columns; the twelfth is the length of the backlog (Linux 5.10).
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    text.lines().all(|line| {
        let backlog = line.split_whitespace().nth(11);
        backlog.is_none_or(|value| u32::from_str_radix(value, 16) == Ok(0))
    })
}

/// A segment of the connection with this number, one of [`IMPORTANT`] to the port of those that are.
fn segment(number: u32, from_client: bool, [seq, ack]: [u32; 2], flags: u8, len: usize) -> Vec<u8> {
    let port = if number.is_multiple_of(IMPORTANT) {
        PORT
    } else {
        80
    };
    let client = [10, 1, (number >> 8) as u8, number as u8];
    let mut ends = [(client, 40_000_u16), ([10, 2, 0, 1], port)];
    if !from_client {
        ends.reverse();
    }
    let mut tcp = Vec::with_capacity(20 + len);
    for (_, port) in ends {
        tcp.extend(port.to_be_bytes());
    }
    tcp.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.resize(20 + len, b'x');
    let addresses = [ends[0].0, ends[1].0].concat();
    let checksum = folded(sum(&addresses) + 6 + tcp.len() as u32 + sum(&tcp));
    tcp[16..18].copy_from_slice(&checksum);
    let mut ip = vec![0x45, 0];
    ip.extend((20 + tcp.len() as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    ip.extend(addresses);
    let header = folded(sum(&ip));
    ip[10..12].copy_from_slice(&header);
    [&[2; 12][..], &[8, 0], &ip, &tcp].concat()
}

fn sum(bytes: &[u8]) -> u32 {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs
        .iter()
        .map(|&pair| u32::from(u16::from_be_bytes(pair)))
        .sum()
}

fn folded(sum: u32) -> [u8; 2] {
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}
