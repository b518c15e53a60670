//! Programs on devices of several sensors.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use flowgauge_credential::{Credential, IssuerKey, Limits};
use flowgauge_link::KeyFolder;
use flowgauge_sensor_agent::Agent;
use flowgauge_sensor_client::Client;

use crate::support::model::packets;
use crate::support::{Process, Running, compile};

/// How often a state is looked for, a hundredth of a second apart.
const LOOKS: u32 = 6000;

/// Sensors whose device `held` has these traces; the keys are in the first one's folder.
fn folders(traces: &[&str]) -> Vec<tempfile::TempDir> {
    folders_with(traces, "")
}

/// The same, with further tables in their configurations.
fn folders_with(traces: &[&str], tables: &str) -> Vec<tempfile::TempDir> {
    let folder = |trace: &&str| {
        let device = format!("[devices.held]\nfiles = [\"{{folder}}/{trace}\"]\nhold = true\n");
        let user = "[remotes.user]\npackets = \"payload\"\n";
        Running::folder(&format!("{device}{user}{tables}"))
    };
    let folders: Vec<tempfile::TempDir> = traces.iter().map(folder).collect();
    let keys = KeyFolder::new(folders[0].path().join("keys"));
    keys.create_authority().unwrap();
    keys.add("sensor", &["127.0.0.1".to_owned()], 1).unwrap();
    for name in ["user", "stranger"] {
        keys.add(name, &[], 1).unwrap();
    }
    folders
}

/// The agents of sensors, and their devices as a scope.
fn agents(folders: &[tempfile::TempDir]) -> (Vec<Agent>, String) {
    let keys = KeyFolder::new(folders[0].path().join("keys"));
    let identity = keys.identity(Some("sensor")).unwrap();
    let agents = folders.iter().map(|folder| {
        let socket = folder.path().join("sock");
        Agent::start(&identity, "127.0.0.1:0", Vec::new(), socket).unwrap()
    });
    let agents: Vec<Agent> = agents.collect();
    let members = (agents.iter()).map(|agent| format!("{}:held", agent.local_address()));
    let scope = members.collect::<Vec<_>>().join(", ");
    (agents, scope)
}

fn start(folder: &tempfile::TempDir) {
    let client = Client::connect(&folder.path().join("sock")).unwrap();
    client.start("held").unwrap();
}

#[test]
fn a_program_reads_of_each_member_what_it_reads_there() {
    let folders = folders(&["mix.pcap", "long.pcap", "slow.pcap"]);
    let _sensors: Vec<Process> = folders.iter().map(Process::sensor).collect();
    let (_agents, scope) = agents(&folders);
    let scopes = folders[0].path().join("scopes");
    fs::write(scopes, format!("all = {scope}\n")).unwrap();
    let program = compile("scope");
    let here = folders.iter().map(|folder| (folder, &["held"][..]));
    let there = [&["all/*"][..], &["all/*", "pushed"]].map(|words| (&folders[0], words));
    let programs = here.chain(there);
    let programs = programs.map(|(folder, words)| Process::program(&program, folder, words));
    let mut programs: Vec<Process> = programs.collect();
    for program in &mut programs {
        assert_eq!(program.line(), "connected");
    }
    folders.iter().for_each(start);
    programs.iter_mut().for_each(Process::go_on);
    // Packets of all members, and for each its numbers and its flows.
    let of_each = [0, 1, 2].map(|at| [(); 3].map(|()| programs[at].line()));
    let [all, pushed] = [3, 4].map(|at| [(); 7].map(|()| programs[at].line()));
    assert_eq!(pushed, all);
    let lines = |line: usize| of_each.iter().map(move |lines| &lines[line]);
    assert!(all[1..].iter().eq(lines(1).chain(lines(2))));
    let parsed = |line: &String| {
        let mut words = line.split(' ').skip(1);
        let count: u64 = words.next().unwrap().parse().unwrap();
        (
            count,
            u64::from_str_radix(words.next().unwrap(), 16).unwrap(),
        )
    };
    let each: Vec<(u64, u64)> = lines(0).map(parsed).collect();
    assert!(each.iter().all(|(count, _)| *count > 1000));
    assert!(each[0] != each[1] && each[1] != each[2] && each[0] != each[2]);
    let sum = each.iter().fold((0, 0_u64), |sum, one| {
        (sum.0 + one.0, sum.1.wrapping_add(one.1))
    });
    assert_eq!(parsed(&all[0]), sum);
    programs.iter_mut().for_each(Process::succeeds);
}

/// On one sensor and on three, with the credential for one flow and for all.
#[test]
fn who_has_nothing_but_a_credential_asks_with_it() {
    let issuer = IssuerKey::generate();
    let tables = format!("[issuers.ops]\nkey = \"{}\"\n", issuer.public());
    let traces = ["mix.pcap", "long.pcap", "slow.pcap"];
    let folders = folders_with(&traces, &tables);
    let _sensors: Vec<Process> = folders.iter().map(Process::sensor).collect();
    let (_agents, scope) = agents(&folders);
    let limits = Limits::default().function("count").unwrap();
    let credential = Credential::issue(&issuer, &limits).unwrap().text();
    let program = compile("bearer").display().to_string();
    let one = scope.split(", ").next().unwrap();
    let mut programs = Vec::new();
    for (devices, more) in [(one, ""), (&scope, ""), (&scope, "all")] {
        let words = [
            "FLOWGAUGE_IDENTITY=stranger",
            &program,
            devices,
            &credential,
            more,
        ];
        let started = Process::program(Path::new("env"), &folders[0], &words);
        programs.push((started, if devices == one { 1 } else { 3 }));
    }
    for (program, _) in &mut programs {
        assert_eq!(program.line(), "connected");
    }
    folders.iter().for_each(start);
    let counts = traces.map(|trace| packets(&folders[0].path().join(trace)).len());
    for (program, members) in &mut programs {
        program.go_on();
        for count in &counts[..*members] {
            assert_eq!(program.line(), count.to_string());
        }
        program.succeeds();
    }
}

/// Compiled once.
fn members() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("members"))
}

/// Has the program look until its members are so.
fn until(program: &mut Process, expected: &str) {
    let mut line = String::new();
    for _ in 0..LOOKS {
        program.go_on();
        line = program.line();
        if line == expected {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("\"{line}\", not \"{expected}\"");
}

#[test]
fn a_member_that_fails_does_not_fail_the_others_and_comes_back() {
    let folders = folders(&["mix.pcap", "long.pcap"]);
    let mut sensors: Vec<Process> = folders.iter().map(Process::sensor).collect();
    let (_agents, scope) = agents(&folders);
    // Nobody is at the second, and its sensor does not have the fourth.
    let (first, second) = scope.split_once(", ").unwrap();
    let scope = format!(
        "{first}, 127.0.0.1:1:held, {second}, {}",
        second.replace("held", "none")
    );
    let mut program = Process::program(members(), &folders[0], &[&scope, "held"]);
    until(&mut program, "ok 1 0, down 0 0, ok 1 0, refused 0 0, 1");
    start(&folders[0]);
    let count = packets(&folders[0].path().join("mix.pcap")).len();
    until(
        &mut program,
        &format!("ok 1 {count}, down 0 0, ok 1 0, refused 0 0, 1"),
    );
    sensors[1].kill();
    until(
        &mut program,
        &format!("ok 1 {count}, down 0 0, down 1 0, refused 0 0, 1"),
    );
    sensors[1] = Process::sensor(&folders[1]);
    until(
        &mut program,
        &format!("ok 1 {count}, down 0 0, ok 2 0, refused 0 0, 1"),
    );
    start(&folders[1]);
    let other = packets(&folders[1].path().join("long.pcap")).len();
    until(
        &mut program,
        &format!("ok 1 {count}, down 0 0, ok 2 {other}, refused 0 0, 1"),
    );
    program.say("q\n");
    program.succeeds();
}

/// Nothing comes to the second one: the first one's results are read all the same.
#[test]
fn a_function_that_waits_does_not_wait_for_all() {
    let folders = folders(&["mix.pcap", "long.pcap"]);
    let _sensors: Vec<Process> = folders.iter().map(Process::sensor).collect();
    let (_agents, scope) = agents(&folders);
    let mut program = Process::program(&compile("waiting"), &folders[0], &[&scope]);
    assert_eq!(program.line(), "connected");
    start(&folders[0]);
    for _ in 0..3 {
        program.go_on();
        assert_eq!(program.line(), "10");
    }
    start(&folders[1]);
    until(&mut program, "11");
    program.say("q\n");
    program.succeeds();
}

#[test]
fn a_member_that_does_not_answer_is_not_waited_for() {
    does_not_wait(&[]);
}

#[test]
fn a_member_whose_numbers_do_not_come_is_late() {
    does_not_wait(&["pushed"]);
}

fn does_not_wait(how: &[&str]) {
    let folders = folders(&["mix.pcap", "long.pcap"]);
    let keys = folders[0].path().join("keys");
    let sensors = [0, 1].map(|at| Process::sensor_and_agent(&folders[at], &keys));
    let scope = sensors
        .each_ref()
        .map(|(_, address)| format!("{address}:held"));
    let scope = scope.join(", ");
    let words = [&[scope.as_str(), "held"], how].concat();
    let mut program = Process::program(members(), &folders[0], &words);
    until(&mut program, "ok 1 0, ok 1 0, 0");
    folders.iter().for_each(start);
    let counts = [(0, "mix.pcap"), (1, "long.pcap")]
        .map(|(at, trace)| packets(&folders[at].path().join(trace)).len());
    let all = format!("ok 1 {}, ok 1 {}, 0", counts[0], counts[1]);
    until(&mut program, &all);
    sensors[1].0.signal("STOP");
    until(&mut program, &format!("ok 1 {}, late 1 0, 0", counts[0]));
    sensors[1].0.signal("CONT");
    until(&mut program, &all);
    program.say("q\n");
    program.succeeds();
}
