//! `flowgauge replay` onto one end of a virtual cable, captured at the other.

use crate::frames::lab::Lab;
use crate::live_support::{Program, Signal, Trace, ledger, run};
use crate::support::{flowgauge, scratch};

/// What comes of a replay with these options.
fn replayed(lab: &Lab, name: &str, options: &[&str]) -> (Trace, flowgauge::Outcome) {
    let folder = scratch(&format!("replay-{name}"));
    let path = folder.join("got.pcap");
    let text = path.display().to_string();
    let program = Program::start(lab, &["capture", "-i", "fg1", "-B", "131072", "-w", &text]);
    let sent = run(lab, &[&["replay", "-i", "fg0"], options].concat());
    let packets: u64 = sent
        .json_lines()
        .iter()
        .map(|it| it["packets"].as_u64().unwrap())
        .sum();
    program.wait_for_packets(packets);
    let outcome = program.stop(Signal::SIGTERM);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    (Trace::read(&path), sent)
}

#[test]
fn what_is_replayed_is_what_the_file_holds() {
    let Some(lab) = Lab::new(65_000) else { return };
    let trace = Trace::generate("replay", "zoo", "1");
    let path = trace.path.display().to_string();
    let (got, sent) = replayed(&lab, "all", &["-r", &path, "--rate", "500mbit", "--json"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(got.frames, trace.frames);
    let record = &sent.json_lines()[0];
    let bytes: usize = trace.frames.iter().map(Vec::len).sum();
    assert_eq!(record["packets"], trace.frames.len());
    assert_eq!(record["bytes"], bytes);
    for field in ["filled", "too_long", "not_ethernet"] {
        assert_eq!(record[field], 0, "{field}");
    }

    let options = [
        "-r", &path, "--pps", "20000", "-c", "200", "--json", "udp", "port", "53",
    ];
    let (got, sent) = replayed(&lab, "some", &options);
    assert_eq!(sent.json_lines()[0]["packets"], 200);
    let expected = flowgauge::run([
        "packets", "--json", "-r", &path, "-c", "200", "udp", "port", "53",
    ]);
    let lengths = |outcome: &flowgauge::Outcome| -> Vec<u64> {
        let lines = outcome.json_lines();
        lines
            .iter()
            .map(|it| it["length"].as_u64().unwrap())
            .collect()
    };
    let got: Vec<u64> = got.frames.iter().map(|it| it.len() as u64).collect();
    assert_eq!(got, lengths(&expected));
}

/// What an interface gets from within is what the file holds, in its order: more than the kernel is given at once, too.
#[test]
fn an_interface_receives_what_the_file_holds() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::generate("replay-inbound", "mix", "0.02");
    assert!(trace.frames.len() > 5000, "{}", trace.frames.len());
    let path = trace.path.display().to_string();
    for speed in [&["--topspeed"][..], &["--pps", "50000"]] {
        let folder = scratch("replay-inbound");
        let got = folder.join("got.pcap");
        let text = got.display().to_string();
        let capture = ["capture", "-i", "fg1", "-B", "131072", "-w", &text];
        let program = Program::start(&lab, &capture);
        let options = ["replay", "-r", &path, "-i", "fg1", "--inbound", "--json"];
        let sent = run(&lab, &[&options, speed].concat());
        assert_eq!(sent.code, Some(0), "{}", sent.stderr);
        assert_eq!(sent.json_lines()[0]["packets"], trace.frames.len());
        program.wait_for_packets(trace.frames.len() as u64);
        let outcome = program.stop(Signal::SIGTERM);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert_eq!(Trace::read(&got).frames, trace.frames);
    }

    let long = Trace::of(vec![vec![2; 60], vec![2; 4000]]);
    let path = scratch("replay-inbound").join("long.pcap");
    let long = Trace { path, ..long };
    long.save();
    lab.ip("link set fg1 mtu 9000");
    let path = long.path.display().to_string();
    let sent = run(
        &lab,
        &["replay", "-r", &path, "-i", "fg1", "--inbound", "--json"],
    );
    assert_eq!(sent.json_lines()[0]["packets"], 1, "{}", sent.stderr);
    assert_eq!(sent.json_lines()[0]["too_long"], 1);
    let said = "1 packet longer than the 3196 bytes that --inbound supports";
    assert!(sent.stderr.contains(said), "{}", sent.stderr);

    lab.ip("link set fg1 down");
    let refused = run(&lab, &["replay", "-r", &path, "-i", "fg1", "--inbound"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("fg1 is down"), "{}", refused.stderr);
}

/// Each round has hosts of its own, and checksums as they were.
#[test]
fn rounds_are_flows_of_other_hosts() {
    let Some(lab) = Lab::new(65_000) else { return };
    let trace = Trace::generate("replay-rounds", "mix", "0.002");
    let path = trace.path.display().to_string();
    let options = ["-r", &path, "--loop", "3", "--rate", "500mbit", "--json"];
    let (got, sent) = replayed(&lab, "rounds", &options);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(got.frames.len(), 3 * trace.frames.len());
    assert_eq!(got.frames[..trace.frames.len()], trace.frames);
    let count = |path: &str| {
        let flows = flowgauge::run([
            "flows",
            "--json",
            "--checksums",
            "verify",
            "--idle-timeout",
            "1000000",
            "-r",
            path,
        ]);
        assert_eq!(flows.code, Some(0), "{}", flows.stderr);
        (flows.json_lines().len(), ledger(&flows.stderr))
    };
    let (flows, once) = count(&path);
    let (thrice, all) = count(&got.path.display().to_string());
    assert_eq!(thrice, 3 * flows);
    assert_eq!(all.delivered, 3 * once.delivered);
    assert_eq!(all.discarded, 3 * once.discarded);
}

#[test]
fn what_cannot_be_sent_is_told() {
    let Some(lab) = Lab::new(1500) else { return };
    let trace = Trace::of(vec![vec![2; 60], vec![2; 1515], vec![2; 1514], vec![2; 5]]);
    let path = scratch("replay-source").join("trace.pcap");
    let trace = Trace { path, ..trace };
    trace.save();
    let path = trace.path.display().to_string();
    let (got, sent) = replayed(&lab, "long", &["-r", &path, "--topspeed", "--json"]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(sent.json_lines()[0]["too_long"], 1);
    assert_eq!(sent.json_lines()[0]["too_short"], 1);
    assert!(
        sent.stderr.contains("1 packet longer than the MTU"),
        "{}",
        sent.stderr
    );
    assert_eq!(
        got.frames,
        [trace.frames[0].clone(), trace.frames[2].clone()]
    );

    let refused = run(&lab, &["replay", "-r", &path, "-i", "nowhere"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("no such interface: nowhere"),
        "{}",
        refused.stderr
    );

    lab.ip("addr add 192.0.2.1/24 dev fg0");
    lab.ip("route add default via 192.0.2.2 dev fg0");
    let refused = run(&lab, &["replay", "-r", &path, "-i", "fg0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("fg0 has a default route"),
        "{}",
        refused.stderr
    );
    let (got, _) = replayed(&lab, "forced", &["-r", &path, "--force", "--json"]);
    assert_eq!(got.frames.len(), 2);
}
