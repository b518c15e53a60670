//! The tables of RMON on interfaces, also those that come later, and where the system merges packets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use flowgauge_sys::interfaces::index_of;
use serde_json::Value;

use crate::frames::lab::Lab;
use crate::frames::udp_frames;
use crate::live_support::{Program, Signal, Trace, ledger};
use crate::support::flowgauge::{self, Outcome};

/// The rows that a program shows when it is stopped, and what it says.
fn pairs(program: Program) -> (Vec<Value>, String) {
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    (outcome.json_lines(), outcome.stderr)
}

/// Rows without the interface's number, in an order of their own.
fn rows(outcome: &Outcome) -> Vec<String> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let mut rows = outcome.json_lines();
    for row in &mut rows {
        row["interface"] = Value::Null;
    }
    let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    rows.sort();
    rows
}

#[test]
fn tables_of_an_interface_are_those_of_the_file_that_it_got() {
    for (preset, scale) in [("mix", "0.002"), ("zoo", "1")] {
        let Some(lab) = Lab::new(65_000) else { return };
        let trace = Trace::generate(&format!("rmon-{preset}"), preset, scale);
        let path = trace.path.display().to_string();
        for table in ["protocols", "hosts", "matrix"] {
            let mut shown = vec!["rmon", "show", table, "--json"];
            if table != "protocols" {
                shown.push("--by-protocol");
            }
            let file = flowgauge::run([&shown[..], &["-r", &path]].concat());
            let live = [&shown[..], &["-i", "fg1", "-B", "131072"]].concat();
            let program = Program::start(&lab, &live);
            trace.replay(&lab, "fg0");
            let live = program.stop(Signal::SIGINT);
            assert_eq!(ledger(&live.stderr).dropped, 0);
            let (expected, got) = (rows(&file), rows(&live));
            assert!(expected.len() > 10, "{} rows", expected.len());
            assert_eq!(got, expected, "{preset}: {table}");
        }
    }
}

fn packets(rows: &[Value], interface: Option<i32>) -> u64 {
    let rows = rows
        .iter()
        .filter(|row| interface.is_none_or(|number| row["interface"] == number));
    rows.map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// `any` takes interfaces as packets come of them, also those that are made later.
#[test]
fn interfaces_that_come_later_are_counted() {
    let Some(lab) = Lab::new(1500) else { return };
    let program = Program::start(&lab, &["rmon", "show", "matrix", "--json", "-i", "any"]);
    let index = |name: &str| lab.run(|| index_of(name).unwrap());
    let frames = udp_frames(10, 100).into_iter().map(|one| one.bytes);
    let trace = Trace::of(frames.collect());
    trace.replay(&lab, "fg0");
    lab.ip("link add fg2 type veth peer name fg3");
    lab.ip("link set fg2 up");
    lab.ip("link set fg3 up");
    trace.replay(&lab, "fg2");
    let (rows, said) = pairs(program);
    for name in ["fg1", "fg3"] {
        let seen = packets(&rows, Some(index(name)));
        assert_eq!(seen, 10, "{name}: {rows:?} {said}");
    }
}

/// An interface that is removed and made again keeps its rows, under its new number.
#[test]
fn rows_follow_an_interface_that_is_made_again() {
    let Some(lab) = Lab::new(1500) else { return };
    let program = Program::start(&lab, &["rmon", "show", "matrix", "--json", "-i", "any"]);
    let frames = udp_frames(10, 100).into_iter().map(|one| one.bytes);
    let trace = Trace::of(frames.collect());
    trace.replay(&lab, "fg0");
    let index = |name: &str| lab.run(|| index_of(name).unwrap());
    let mut numbers = vec![index("fg1")];
    for round in 1..=3 {
        lab.ip("link add fg2 type veth peer name fg3");
        lab.ip("link set fg2 up");
        lab.ip("link set fg3 up");
        numbers.push(index("fg3"));
        trace.replay(&lab, "fg2");
        // Both ends of each cable: once it is gone, nobody knows the names of what is in the ring.
        program.wait_for_packets(20 + 20 * round);
        lab.ip("link del fg2");
    }
    let (rows, said) = pairs(program);
    let seen = numbers.iter().map(|index| packets(&rows, Some(*index)));
    let seen: Vec<u64> = seen.collect();
    assert_eq!(seen, [10, 0, 0, 30], "{numbers:?} {rows:?} {said}");
    assert_eq!(packets(&rows, None), 80, "{rows:?} {said}");
}

/// Segments that this network namespace has sent, as its TCP counts them: those sent again are in a counter of their own.
fn segments_sent() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let counters = names.split(' ').zip(values.split(' '));
    let sent = counters.filter(|(name, _)| ["OutSegs", "RetransSegs"].contains(name));
    sent.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

/// What TCP gives to an interface in packets of up to 64 KiB counts as the segments that TCP itself counts.
#[test]
fn merged_packets_count_as_tcp_counts_them() {
    const BYTES: usize = 8_000_000;
    let (Some(here), Some(there)) = (Lab::new(1500), Lab::new(1500)) else {
        return;
    };
    // A cable from one to the other.
    here.ip("link del fg0");
    there.ip("link del fg0");
    here.connect(&there, "fg0", "fg1");
    for (lab, end, address) in [(&here, "fg0", "10.9.0.1"), (&there, "fg1", "10.9.0.2")] {
        lab.ip(&format!("address add {address}/24 dev {end}"));
        lab.ip(&format!("link set {end} up"));
    }
    let arguments = [
        "rmon", "show", "matrix", "--json", "-i", "fg0", "-B", "131072",
    ];
    let program = Program::start(&here, &[&arguments[..], &["--", "tcp"]].concat());
    let listener = there.run(|| TcpListener::bind("10.9.0.2:5201").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), BYTES);
            stream.write_all(b"thanks").unwrap();
        });
        let mut stream = here.run(|| TcpStream::connect("10.9.0.2:5201").unwrap());
        stream.write_all(&vec![7; BYTES]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "thanks");
    });
    let (rows, said) = pairs(program);
    let of = |source: &str| {
        let row = rows.iter().find(|row| row["source"] == source);
        row.unwrap_or_else(|| panic!("{rows:?}"))["packets"].as_u64()
    };
    let ledger = ledger(&said);
    assert_eq!(ledger.dropped, 0);
    assert_eq!(of("10.9.0.1"), Some(here.run(segments_sent)), "{said}");
    assert_eq!(of("10.9.0.2"), Some(there.run(segments_sent)), "{said}");
    assert!(
        ledger.received < packets(&rows, None),
        "nothing was merged: {said}"
    );
}
