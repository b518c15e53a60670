//! Mirror ports: packets that come past the system, by sockets of AF_XDP.

use std::path::Path;

use crate::frames::lab::Lab;
use crate::frames::udp_frames;
use crate::live_support::{Program, Signal, Trace, ledger, run, wait_until};
use crate::support::{self, flowgauge};
use crate::{OF_TIME, the_same_as_from_the_file};

#[test]
fn records_of_a_mirror_port_are_those_of_the_file() {
    let all = |options: &[&'static str]| [options, &["--offload", "xdp", "--mirror"]].concat();
    let first = all(&["-e", "e", "--first", "--cutoff", "2k"]);
    the_same_as_from_the_file("match", &first, &["time", "flow_id"]);
    let cut = all(&["--list", "--hash", "--cutoff", "1000"]);
    the_same_as_from_the_file("streams", &cut, &["flow_id"]);
    the_same_as_from_the_file("flows", &all(&[]), &OF_TIME);
}

fn datagrams(count: usize) -> Trace {
    let frames = udp_frames(count, 100);
    Trace::of(frames.into_iter().map(|one| one.bytes).collect())
}

/// What stands before the packets of the interface.
fn link(lab: &Lab) -> String {
    let listed = lab.inside("ip").args(["link", "show", "fg1"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(listed.contains("fg1"), "{listed}");
    listed
}

#[test]
fn a_capture_of_a_mirror_port_has_all_of_it() {
    let Some(lab) = Lab::new(1500) else { return };
    let path = support::scratch("live-mirror").join("all.pcap");
    let text = path.display().to_string();
    let filter = ["capture", "-i", "fg1", "--mirror", "-w", &text, "udp"];
    let program = Program::start(&lab, &filter);
    let mut trace = datagrams(300);
    trace.replay(&lab, "fg0");
    // The filter is in force.
    Trace::of(vec![vec![2; 60]]).replay(&lab, "fg0");
    program.wait_for_packets(301);
    let outcome = program.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let way = "listening on fg1 (AF_XDP, 1 receive queues, copy mode)";
    assert!(outcome.stderr.contains(way), "{}", outcome.stderr);
    let written = Trace::read(Path::new(&path));
    trace.frames.sort();
    let mut frames = written.frames;
    frames.sort();
    assert!(frames == trace.frames);
    let ledger = ledger(&outcome.stderr);
    assert_eq!(
        (ledger.delivered, ledger.discarded, ledger.dropped),
        (300, 1, 0)
    );
    assert!(!link(&lab).contains("xdp"));
}

/// Also where nothing can be tidied up, the interface is what it was, and is captured on again.
#[test]
fn nothing_is_left_before_a_mirror_port_of_a_capture_that_was_killed() {
    let Some(lab) = Lab::new(1500) else { return };
    let command = ["flows", "--json", "-i", "fg1", "--mirror", "--workers", "2"];
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let program = Program::start(&lab, &command);
        assert!(link(&lab).contains("xdp"));
        datagrams(20).replay(&lab, "fg0");
        program.wait_for_packets(20);
        let outcome = program.stop(signal);
        assert_eq!(outcome.code.is_none(), signal == Signal::SIGKILL);
        wait_until("the program is gone", || !link(&lab).contains("xdp"));
    }
}

#[test]
fn a_mirror_port_that_somebody_has_is_captured_on_as_others() {
    let Some(lab) = Lab::new(1500) else { return };
    let command = ["flows", "--json", "-i", "fg1", "--mirror"];
    let first = Program::start(&lab, &command);
    let second = Program::start(&lab, &command);
    let outcome = first.stop(Signal::SIGINT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // It sees packets as soon as the first takes them no more.
    datagrams(20).replay(&lab, "fg0");
    second.wait_for_packets(20);
    let outcome = second.stop(Signal::SIGINT);
    let said = "note: no AF_XDP (--mirror), packets come through a packet socket";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    assert_eq!(ledger(&outcome.stderr).delivered, 20);
    assert_eq!(outcome.json_lines().len(), 10);
}

#[test]
fn what_makes_no_sense_of_a_mirror_port_is_refused() {
    let Some(lab) = Lab::new(1500) else { return };
    for (options, said) in [
        (&["--offload", "xdp"][..], "--mirror says that nobody else"),
        (
            &["--mirror", "-i", "fg0"],
            "--mirror needs exactly one interface",
        ),
        (
            &["--mirror", "--offload", "xdp", "udp"],
            "a filter needs all packets",
        ),
        (
            &["--mirror", "--offload", "xdp", "-c", "5"],
            "-c needs all packets",
        ),
    ] {
        let outcome = run(&lab, &[&["flows", "-i", "fg1"], options].concat());
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    let outcome = flowgauge::run(["flows", "-i", "any", "--mirror"]);
    assert!(
        outcome.stderr.contains("--mirror needs exactly one"),
        "{}",
        outcome.stderr
    );
}
