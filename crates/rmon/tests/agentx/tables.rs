//! The tables under `snmpd`.

use std::io::Cursor;

use flowgauge_capture::PacketSource as _;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_rmon::agentx::Address;
use flowgauge_rmon::{Oid, Probe, Tree, Value};
use flowgauge_wire::{Batch, DecodedBatch, Decoder, Nanos, PacketDescriptor};

use crate::net_snmp::{READER, Snmpd, WRITER, is_there};
use crate::session::{Agent, now, root};

/// A probe that has counted a trace, just now.
fn probe() -> Probe {
    let mut probe = Probe::new();
    probe.add_interface(1, 0);
    let mut file = Vec::new();
    generate(&Config::new(Preset::Zoo).with_packets(2_000), &mut file).unwrap();
    let mut source = flowgauge_capture::open_reader(Cursor::new(file), "").unwrap();
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    while let Some(batch) = source.next_batch().unwrap() {
        // The tables' clock is the subagent's.
        let time = Nanos(now() * 10_000_000);
        let packets = batch
            .packets
            .iter()
            .map(|packet| PacketDescriptor { time, ..*packet });
        let packets: Vec<_> = packets.collect();
        let batch = Batch::new(batch.memory, &packets);
        decoder.decode_batch(&batch, &mut decoded);
        probe.observe(&batch, &decoded);
    }
    probe
}

/// The names of all objects below one.
fn names(probe: &mut Probe, below: &Oid) -> Vec<String> {
    let (mut at, mut names) = (below.clone(), Vec::new());
    while let Some((name, _)) = probe
        .next(&at, false, None)
        .filter(|it| it.0.starts_with(below))
    {
        names.push(format!(".{name}"));
        at = name;
    }
    names
}

fn walked(snmpd: &Snmpd, below: &Oid) -> Vec<String> {
    let lines = snmpd.lines(
        "snmpbulkwalk",
        READER,
        &["-Oq", "-Cr50", &format!(".{below}")],
    );
    // Strings may have several lines.
    let names = lines
        .iter()
        .filter(|line| line.starts_with(".1.3.6.1.2.1.16.") && !line.contains("No Such"));
    names
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_walk_through_snmpd_shows_every_object() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, probe());
    agent.wait_until_registered();
    let expected = names(&mut agent.tree.lock(), &root());
    assert!(expected.len() > 10_000, "{}", expected.len());
    let walked = walked(&snmpd, &root());
    let differs = expected
        .iter()
        .zip(&walked)
        .find(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(walked.len(), expected.len());
}

#[test]
fn managers_make_and_destroy_control_rows_also_across_a_restart() {
    if !is_there() {
        return;
    }
    let mut snmpd = Snmpd::start();
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, probe());
    agent.wait_until_registered();
    let column = |number: u32| format!(".{}.14.1.1.{number}.9", root());
    let source = ".1.3.6.1.2.1.2.2.1.1.1";
    let [at, status, most, owner] = [2, 12, 6, 11].map(column);
    let make = [
        "-Oqv", &at, "o", source, &most, "i", "50", &owner, "s", "tester",
    ];
    let active = |text: &[String]| assert_eq!(text.last().unwrap(), "1");
    snmpd.lines(
        "snmpset",
        WRITER,
        &[&make[..], &[&status, "i", "4"]].concat(),
    );
    active(&snmpd.lines("snmpget", READER, &["-Oqv", &status]));
    // A restart of the master leaves it, and a bad set changes nothing of it.
    snmpd.restart();
    agent.wait_until_registered();
    let (done, text) = snmpd.tool("snmpset", WRITER, &[&owner, "s", "thief", &most, "i", "-7"]);
    assert!(!done && text.contains("Value"), "{text}");
    assert_eq!(
        snmpd.lines("snmpget", READER, &["-Oqv", &owner]),
        ["\"tester\""]
    );
    active(&snmpd.lines("snmpget", READER, &["-Oqv", &status]));
    // Time marks begin anew with the master: what was before has none, and is shown for 0 alone.
    agent.tree.lock().tick(Nanos(now() * 10_000_000));
    let hosts = root().child(&[14, 2, 1, 4, 1]);
    assert!(!walked(&snmpd, &hosts.child(&[0])).is_empty());
    assert_eq!(
        walked(&snmpd, &hosts.child(&[u32::MAX / 2])),
        Vec::<String>::new()
    );
    snmpd.lines("snmpset", WRITER, &[&status, "i", "6"]);
    let gone = snmpd.lines("snmpget", READER, &["-Oqv", &status]);
    assert!(gone[0].contains("No Such Instance"), "{gone:?}");
}

#[test]
fn the_documented_rows_are_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rmon.md");
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    let mut blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let rows = blocks.find(|block| block.contains("[[row]]")).unwrap();
    let mut probe = Probe::new();
    probe.add_interface(1, 0);
    probe.load(rows).unwrap();
    assert_eq!(probe.untaken().map(ToString::to_string).next(), None);
    let threshold = root().child(&[3, 1, 1, 7, 1]);
    assert_eq!(probe.get(&threshold), Ok(Value::Integer(1_000_000)));
}
