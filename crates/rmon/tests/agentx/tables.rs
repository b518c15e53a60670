//! The tables under `snmpd`.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_capture::PacketSource as _;
use flowgauge_generate::{Config, Preset, generate};
use flowgauge_rmon::agentx::{Address, Binding, Bound, Message, Pdu, Range};
use flowgauge_rmon::{Oid, Probe, Tree, Value};
use flowgauge_wire::{Batch, DecodedBatch, Decoder, Nanos, PacketDescriptor};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::harness::fuzz_tree;
use crate::modules::modules;
use crate::net_snmp::{READER, Snmpd, V3, WRITER, is_there};
use crate::others::Ending;
use crate::session::{Agent, now, root};

/// A probe that has counted a trace, just now.
fn probe() -> Probe {
    let mut probe = Probe::new();
    probe.add_interface(1, 0);
    let mut file = Vec::new();
    generate(&Config::new(Preset::Zoo).with_packets(2_000), &mut file).unwrap();
    count(
        &file,
        || true,
        |batch, decoded| probe.observe(batch, decoded),
    );
    probe
}

/// Counts the packets of a trace as if they came now, batch by batch, as long as that is `wanted`.
fn count(
    file: &[u8],
    wanted: impl Fn() -> bool,
    mut observe: impl FnMut(&Batch<'_>, &DecodedBatch),
) {
    let mut source = flowgauge_capture::open_reader(Cursor::new(file.to_vec()), "").unwrap();
    let (mut decoder, mut decoded) = (Decoder::default(), DecodedBatch::new());
    while let Some(batch) = source.next_batch().unwrap().filter(|_| wanted()) {
        // The tables' clock is the subagent's.
        let time = Nanos(now() * 10_000_000);
        let packets = batch
            .packets
            .iter()
            .map(|packet| PacketDescriptor { time, ..*packet });
        let packets: Vec<_> = packets.collect();
        let batch = Batch::new(batch.memory, &packets);
        decoder.decode_batch(&batch, &mut decoded);
        observe(&batch, &decoded);
    }
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

/// Rows that come, and go for want of room, under walks: names go on in order, and rows that are there all the time are shown.
#[test]
fn walks_go_on_while_rows_come_and_go() {
    if !is_there() {
        return;
    }
    let snmpd = Snmpd::start();
    let mut tables = Probe::new();
    tables.add_interface(1, 0);
    let entry = |table: u32, column: u32| root().child(&[table, 1, 1, column, 1]);
    for table in [14, 15] {
        // More than a batch needs.
        for (column, value) in [(12, 2), (6, 120), (10, 400), (12, 1)] {
            let set = [(entry(table, column), Value::Integer(value))];
            let mut change = tables.test(&set).unwrap();
            tables.commit(&mut change).unwrap();
        }
    }
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, tables);
    agent.wait_until_registered();
    let deletes = || match agent.tree.lock().get(&entry(14, 5)) {
        Ok(Value::Counter32(deletes)) => deletes,
        other => panic!("{other:?}"),
    };
    let (mut trace, mut steady) = (Vec::new(), Vec::new());
    generate(&Config::new(Preset::Small).with_packets(20_000), &mut trace).unwrap();
    generate(&Config::new(Preset::Small).with_packets(1), &mut steady).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let is_wanted = || !is_over.load(Ordering::Relaxed);
            while is_wanted() {
                count(&trace, is_wanted, |batch, decoded| {
                    agent.tree.lock().observe(batch, decoded);
                    // It is used again before it can go.
                    count(
                        &steady,
                        || true,
                        |batch, decoded| {
                            agent.tree.lock().observe(batch, decoded);
                        },
                    );
                    thread::sleep(Duration::from_millis(1));
                });
            }
        });
        let _ending = Ending(&is_over);
        let mut probe = Probe::new();
        probe.add_interface(1, 0);
        count(
            &steady,
            || true,
            |batch, decoded| probe.observe(batch, decoded),
        );
        for access in [READER, V3] {
            for tool in [&["snmpwalk"][..], &["snmpbulkwalk", "-Cr20"]] {
                for table in [[14, 2, 1, 4], [16, 1, 1, 3], [15, 2, 1, 4], [17, 2, 1, 2]] {
                    let table = root().child(&table);
                    let below = format!(".{table}");
                    let arguments = [&["-Oq"][..], &tool[1..], &[below.as_str()]].concat();
                    let before = deletes();
                    let lines = snmpd.lines(tool[0], access, &arguments);
                    let walked: Vec<Oid> = lines
                        .iter()
                        .map(|line| line.split(' ').next().unwrap()[1..].parse().unwrap())
                        .collect();
                    assert!(walked.is_sorted_by(|one, other| one < other), "{lines:?}");
                    for name in names(&mut probe, &table) {
                        let name: Oid = name[1..].parse().unwrap();
                        assert!(walked.contains(&name), "{name} is not in {lines:?}");
                    }
                    wait_until_more(&deletes, before);
                }
            }
        }
    });
}

/// Rows went meanwhile.
fn wait_until_more(deletes: &impl Fn() -> u32, before: u32) {
    let end = Instant::now() + Duration::from_secs(60);
    while deletes() == before {
        assert!(Instant::now() < end, "no row goes");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Net-SNMP's tables, by the modules: a line for each row, with the numbers of ours.
#[test]
fn tables_are_those_of_snmptable() {
    let (true, Some(folder)) = (is_there(), modules()) else {
        return;
    };
    let snmpd = Snmpd::start();
    let agent = Agent::start(Address::Unix(snmpd.socket()), 127, None, probe());
    agent.wait_until_registered();
    let folder = folder.display().to_string();
    let modules = ["-M", &folder, "-m", "RMON-MIB:RMON2-MIB", "-Cf", "|"];
    let declared: BTreeMap<Oid, Vec<u32>> = flowgauge_rmon::declared().into_iter().collect();
    for table in [
        [1, 1],
        [4, 2],
        [12, 1],
        [12, 2],
        [14, 1],
        [14, 2],
        [15, 3],
        [16, 1],
        [17, 1],
    ] {
        let columns = &declared[&Oid::new(&table).child(&[1])];
        let below = root().child(&table);
        // Numbers by index and place of the column.
        let mut expected: BTreeMap<(String, usize), String> = BTreeMap::new();
        for (place, column) in (1..).zip(columns) {
            let column = below.child(&[1, *column]);
            let mut tree = agent.tree.lock();
            for name in names(&mut tree, &column) {
                let name: Oid = name[1..].parse().unwrap();
                let number = match tree.get(&name).unwrap() {
                    Value::Integer(number) => i64::from(number),
                    Value::Counter32(number) | Value::Gauge32(number) => number.into(),
                    _ => continue,
                };
                let index = Oid::new(&name.numbers()[column.numbers().len()..]);
                expected.insert((index.to_string(), place), number.to_string());
            }
        }
        assert!(!expected.is_empty(), "{table:?}");
        for access in [READER, V3] {
            let below = format!(".{below}");
            let options = ["-OSbeU", "-Ci", &below];
            let lines = snmpd.lines("snmptable", &[access, &modules].concat(), &options);
            let rows = lines.iter().skip_while(|line| !line.starts_with("index|"));
            let mut found = BTreeMap::new();
            for row in rows.skip(1) {
                let cells: Vec<&str> = row.split('|').collect();
                assert_eq!(cells.len(), columns.len() + 1, "{row}");
                for (place, cell) in cells.iter().enumerate().skip(1) {
                    found.insert((cells[0].to_owned(), place), (*cell).to_owned());
                }
            }
            found.retain(|at, _| expected.contains_key(at));
            assert_eq!(found, expected, "{table:?}");
        }
    }
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

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-1..7).prop_map(Value::Integer),
        any::<i32>().prop_map(Value::Integer),
        vec(any::<u8>(), 0..130).prop_map(Value::Octets),
        vec(0..5_u32, 0..4)
            .prop_map(|end| Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1]).child(&end))),
        vec(0..3_u32, 0..6).prop_map(|end| Value::Oid(root().child(&[1, 1, 1, 5]).child(&end))),
        any::<u32>().prop_map(Value::Gauge32),
        Just(Value::Null),
    ]
}

/// Objects of every table, with indexes that may be of rows.
fn objects() -> impl Strategy<Value = Oid> {
    let all: Vec<Oid> = flowgauge_rmon::declared()
        .into_iter()
        .flat_map(|(table, columns)| columns.into_iter().map(move |it| table.child(&[it])))
        .collect();
    let index = prop_oneof![
        (0..4_u32).prop_map(|row| vec![row]),
        vec(0..4_u32, 0..4),
        vec(any::<u32>(), 0..12),
        Just(vec![8, 0, 0, 0, 1, 0, 0, 8, 0, 2, 0, 0]),
        Just(vec![
            16, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 17, 0, 0, 39, 15, 4, 0, 0, 0, 0
        ]),
    ];
    (select(all), index).prop_map(|(column, index)| root().child(column.numbers()).child(&index))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A manager that sets and asks for anything: what is answered can be read, and sets that are undone leave nothing behind.
    #[test]
    fn garbage_of_managers_harms_nobody(requests in vec((vec((objects(), values()), 1..4), 0..5_u8), 1..40)) {
        let mut probe = Probe::new();
        probe.add_interface(1, 0);
        let mut octets = Vec::new();
        for (transaction, (variables, kind)) in (1..).zip(requests) {
            let ranges = || variables.iter().map(|(start, _)| Range {
                start: start.clone(),
                include: false,
                end: Oid::default(),
            });
            let bindings = variables.iter().map(|(name, value)| Binding {
                name: name.clone(),
                bound: Bound::Value(value.clone()),
            });
            let pdus = match kind {
                0 => vec![Pdu::Get(ranges().collect())],
                1 => vec![Pdu::GetNext(ranges().collect())],
                2 => vec![Pdu::GetBulk { non_repeaters: 1, max_repetitions: 9, ranges: ranges().collect() }],
                3 => vec![Pdu::TestSet(bindings.collect()), Pdu::CommitSet, Pdu::UndoSet, Pdu::CleanupSet],
                _ => vec![Pdu::TestSet(bindings.collect()), Pdu::CommitSet, Pdu::CleanupSet],
            };
            let undone = kind == 3;
            let before = undone.then(|| probe.save());
            for (packet, pdu) in (1..).zip(pdus) {
                let message = Message { session: 7, transaction, packet, flags: 0, context: None, pdu };
                message.write(&mut octets);
            }
            if let Some(before) = before {
                fuzz_tree(&core::mem::take(&mut octets), &mut probe);
                prop_assert_eq!(probe.save(), before);
            }
        }
        fuzz_tree(&octets, &mut probe);
        let saved = probe.save();
        let mut again = Probe::new();
        again.add_interface(1, 0);
        prop_assert!(again.load(&saved).is_ok(), "{}", saved);
    }
}
