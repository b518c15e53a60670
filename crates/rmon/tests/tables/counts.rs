//! Every row and every counter, for traces of all kinds.

use std::collections::BTreeMap;

use flowgauge_generate::{Config, Preset, generate};
use flowgauge_rmon::{Oid, Probe, Tree, Value};

use crate::frames::{SPEED, TICK, send_all, udp};
use crate::model::{Model, State};
use crate::traces::{Packet, count, observe, traces, walk};

/// ifIndex of the interface.
pub(crate) const INTERFACE: u32 = 7;

/// sysUpTime of the first packet.
const START: u64 = 100;

/// The tables that the model has, by group.
const TABLES: [&str; 8] = [
    "12.2", "13.5", "14.2", "15.2", "15.3", "16.1", "17.1", "17.2",
];

/// The tick of the first packet, if sysUpTime does not wrap until the last one.
fn first_tick(file: &[u8]) -> Option<u64> {
    let file = std::io::Cursor::new(file.to_vec());
    let mut source = flowgauge_capture::open_reader(file, "").unwrap();
    let mut ticks = Vec::new();
    while let Ok(Some(batch)) = source.next_batch() {
        let times = batch
            .packets
            .iter()
            .map(|packet| packet.time.0 / 10_000_000);
        ticks.extend(times);
    }
    let first = *ticks.first()?;
    (ticks.iter().max()? - first < u64::from(u32::MAX) / 2).then_some(first)
}

/// What a manager sees, with time filters of this mark where there are any.
fn seen(probe: &mut Probe, mark: u32) -> BTreeMap<Oid, Value> {
    let mut seen = BTreeMap::new();
    for table in TABLES {
        if mark == 0 {
            seen.extend(walk(probe, table));
            continue;
        }
        let columns: Vec<u32> = (1..=8).collect();
        for column in columns {
            let column = format!("{table}.1.{column}");
            let below: &[u32] = match table {
                "12.2" => &[],
                "13.5" => &[mark],
                _ => &[1, mark],
            };
            let numbers: Vec<String> = below.iter().map(u32::to_string).collect();
            let start = [vec![column], numbers].concat().join(".");
            seen.extend(walk(probe, &start));
        }
    }
    seen
}

/// Compares all tables at a time mark.
pub(crate) fn compare(name: &str, probe: &mut Probe, model: &mut Model, mark: u32) {
    let (seen, expected) = (seen(probe, mark), model.objects(mark));
    let differs = |(one, other): &(&(&Oid, &Value), &(&Oid, &Value))| one != other;
    let (one, other): (Vec<_>, Vec<_>) = (seen.iter().collect(), expected.iter().collect());
    if let Some((one, other)) = one.iter().zip(&other).find(differs) {
        panic!(
            "{name}, mark {mark}: {} = {:?}, expected {} = {:?}",
            one.0, one.1, other.0, other.1
        );
    }
    assert_eq!(seen.len(), expected.len(), "{name}, mark {mark}");
}

/// Counts a trace with both, and compares after some batches and at the end, at several marks.
fn agree(name: &str, file: &[u8], most: Option<[i32; 2]>) {
    let Some(first) = first_tick(file).filter(|first| *first > START) else {
        return;
    };
    let zero = first - START;
    let mut probe = Probe::new();
    probe.add_interface(INTERFACE, SPEED);
    probe.set_zero(zero);
    let bounds = most.map_or([usize::MAX; 2], |most| most.map(|most| most as usize));
    if let Some(most) = most {
        bound(&mut probe, most);
    }
    let Some(mut model) = Model::new(&mut probe, bounds, zero) else {
        return;
    };
    let (mut counted, mut batches) = (0, 0u32);
    let packets = count(&mut probe, file, |probe, packets: &[Packet]| {
        for packet in &packets[counted..] {
            model.count(packet);
        }
        counted = packets.len();
        batches += 1;
        if batches.is_power_of_two() {
            compare(name, probe, &mut model, 0);
            let now = model.state().tick;
            compare(name, probe, &mut model, now);
        }
    });
    if packets.is_empty() {
        return;
    }
    let State { tick: end, counts } = model.state();
    for mark in [
        0,
        1,
        START as u32,
        (START as u32 + end) / 2,
        end - 1,
        end,
        end + 1,
    ] {
        compare(name, &mut probe, &mut model, mark);
    }
    // Inserts and deletes: a pair is in two tables.
    for (group, counts, tables) in [(14, counts[0], 1), (15, counts[1], 2)] {
        for (column, count) in [4, 8, 5, 9].into_iter().zip(counts) {
            let name: Oid = format!("1.3.6.1.2.1.16.{group}.1.1.{column}.1")
                .parse()
                .unwrap();
            assert_eq!(
                probe.get(&name),
                Ok(Value::Counter32(tables * count as u32)),
                "{name}"
            );
        }
    }
}

/// Bounds the entries of hosts and pairs.
fn bound(probe: &mut Probe, most: [i32; 2]) {
    let name = |text: &str| -> Oid { format!("1.3.6.1.2.1.16.{text}.1").parse().unwrap() };
    for (group, tables) in [(14, 1), (15, 2)] {
        let set = [
            (format!("{group}.1.1.12"), 2),
            (format!("{group}.1.1.6"), most[0] * tables),
            (format!("{group}.1.1.10"), most[1] * tables),
        ];
        let set: Vec<_> = set
            .into_iter()
            .map(|(text, value)| (name(&text), Value::Integer(value)))
            .collect();
        let mut change = probe.test(&set).unwrap();
        probe.commit(&mut change).unwrap();
        drop(change);
        let active = [(name(&format!("{group}.1.1.12")), Value::Integer(1))];
        let mut change = probe.test(&active).unwrap();
        probe.commit(&mut change).unwrap();
    }
}

#[test]
fn tables_are_those_of_a_naive_program() {
    for (name, file) in traces() {
        agree(&name, &file, None);
    }
}

#[test]
fn bounded_tables_keep_what_was_used_last() {
    for (name, file) in traces().into_iter().step_by(3) {
        for most in [[1, 1], [3, 4], [20, 30]] {
            agree(&format!("{name}, at most {most:?}"), &file, Some(most));
        }
    }
}

/// A row is shown at the mark of a tick if it was changed in it, and no other one: so each has its time stamp after each tick.
#[test]
fn each_tick_shows_what_was_changed_in_it() {
    for preset in [Preset::Mix, Preset::Small, Preset::Zoo] {
        let mut file = Vec::new();
        generate(&Config::new(preset).with_packets(600), &mut file).unwrap();
        let packets = count(&mut Probe::new(), &file, |_, _| {});
        let zero = first_tick(&file).unwrap() - START;
        let mut probe = Probe::new();
        probe.add_interface(INTERFACE, SPEED);
        probe.set_zero(zero);
        let Some(mut model) = Model::new(&mut probe, [usize::MAX; 2], zero) else {
            return;
        };
        let tick = |packet: &Packet| packet.time.0 / TICK;
        let ticks = packets.chunk_by(|one, other| tick(one) == tick(other));
        let mut seen = 0;
        for packets in ticks {
            seen += 1;
            observe(&mut probe, packets);
            packets.iter().for_each(|packet| model.count(packet));
            let now = model.state().tick;
            compare(&format!("{preset:?}"), &mut probe, &mut model, now);
        }
        assert!(seen > 20, "{preset:?}: {seen} ticks");
    }
}

/// More conversations than are gathered at once: each is there with all its packets.
#[test]
fn conversations_that_are_forgotten_meanwhile_are_counted() {
    const PAIRS: u32 = 100_000;
    let mut probe = Probe::new();
    probe.add_interface(INTERFACE, SPEED);
    probe.set_zero(START);
    // Every tenth pair comes again and again, the others come twice.
    let hosts = (0..PAIRS).chain((0..PAIRS).step_by(10)).chain(0..PAIRS);
    let hosts: Vec<u32> = hosts.collect();
    let mut frame = udp(true, (1, 2), 53);
    for batch in hosts.chunks(250) {
        let frames = batch.iter().map(|host| {
            frame[26..30].copy_from_slice(&(0x0a00_0000 + host).to_be_bytes());
            frame.clone()
        });
        send_all(&mut probe, START + 1, &frames.collect::<Vec<_>>());
    }
    let rows = walk(&mut probe, "15.2.1.4");
    assert_eq!(rows.len(), PAIRS as usize);
    for (at, (name, value)) in rows.iter().enumerate() {
        let times = 2 + u32::from(at % 10 == 0);
        assert_eq!(*value, Value::Gauge32(times), "{name}");
    }
}
