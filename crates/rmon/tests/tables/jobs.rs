//! Reports, histories, alarms: what happens at times of its own.

use flowgauge_rmon::feed::ControlFile;
use flowgauge_rmon::{LoadError, Oid, Probe, SetError, Tree, Value};
use parking_lot::Mutex;

use crate::frames::{SPEED, send, tick, udp};
use crate::sets::{name, set};
use crate::traces::walk;

/// sysUpTime is 0 at this tick.
const ZERO: u64 = 1_000_000;

/// createAndGo and createRequest, valid.
const CREATE_AND_GO: Value = Value::Integer(4);
const CREATE_REQUEST: Value = Value::Integer(2);
const VALID: Value = Value::Integer(1);

fn probe() -> Probe {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(ZERO);
    send(&mut probe, 0, ZERO + 100, 1, &udp(true, (1, 2), 53));
    probe
}

fn number(value: &Value) -> u32 {
    match value {
        Value::Integer(number) => *number as u32,
        Value::Gauge32(number) | Value::Counter32(number) | Value::TimeTicks(number) => *number,
        other => panic!("{other:?}"),
    }
}

/// The columns of a table with one index behind the control row, by row: their numbers, of octets the last one.
fn rows(probe: &mut Probe, table: &str) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = Vec::new();
    for (name, value) in walk(probe, table) {
        let row = *name.numbers().last().unwrap() as usize;
        let value = match &value {
            Value::Octets(octets) => octets.last().map_or(0, |last| u32::from(*last)),
            value => number(value),
        };
        rows.resize_with(rows.len().max(row), Vec::new);
        rows[row - 1].push(value);
    }
    rows
}

#[test]
fn reports_show_who_talked_most_in_each_interval() {
    let mut probe = probe();
    for (table, base) in [("15.4", 1), ("17.3", 1)] {
        let column = |number: u32| format!("{table}.1.{number}.1");
        let (matrix, by, seconds, size, status) =
            (column(2), column(3), column(4), column(7), column(11));
        set(
            &mut probe,
            &[
                (&matrix, Value::Integer(1)),
                (&by, Value::Integer(base)),
                (&seconds, Value::Integer(10)),
                (&size, Value::Integer(2)),
                (&status, CREATE_AND_GO),
            ],
        )
        .unwrap();
    }
    assert_eq!(walk(&mut probe, "15.5"), []);
    // Packets there and back; before the end and at it.
    send(&mut probe, 0, ZERO + 200, 5, &udp(true, (1, 2), 53));
    send(&mut probe, 0, ZERO + 300, 3, &udp(true, (2, 1), 53));
    send(&mut probe, 0, ZERO + 400, 4, &udp(true, (3, 4), 9999));
    assert_eq!(probe.get(&name("15.4.1.4.1")), Ok(Value::Integer(7)));
    send(&mut probe, 0, ZERO + 1100, 50, &udp(true, (5, 6), 9999));
    let octets = 64;
    let network = number(
        &probe
            .get(&name("11.2.1.3.8.0.0.0.1.0.0.8.0.2.0.0"))
            .unwrap(),
    );
    let dns = number(
        &probe
            .get(&name(
                "11.2.1.3.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.0.53.4.0.0.0.0",
            ))
            .unwrap(),
    );
    assert_eq!(
        rows(&mut probe, "15.5.1"),
        [
            [network, 1, 2, 5, 3, 5 * octets, 3 * octets],
            [network, 3, 4, 4, 0, 4 * octets, 0],
        ]
    );
    // Terminals: protocols without any below that is counted, which udp is not.
    assert_eq!(
        rows(&mut probe, "17.4.1"),
        [
            [network, 1, 2, dns, 5, 3, 5 * octets, 3 * octets],
            [network, 2, 1, dns, 3, 5, 3 * octets, 5 * octets],
        ]
    );
    assert_eq!(walk(&mut probe, "15.8"), [], "32 bits were asked for");
    assert_eq!(probe.get(&name("15.4.1.5.1")), Ok(Value::Counter32(1)));
    assert_eq!(probe.get(&name("15.4.1.4.1")), Ok(Value::Integer(10)));
    // The next one is complete by itself.
    tick(&mut probe, ZERO + 2100);
    assert_eq!(rows(&mut probe, "15.5.1")[0][..4], [network, 5, 6, 50]);
    // Setting the time begins anew, and what was reported goes; undone it is there again.
    let before = walk(&mut probe, "15.5");
    let mut change = probe
        .test(&[(name("15.4.1.4.1"), Value::Integer(10))])
        .unwrap();
    probe.commit(&mut change).unwrap();
    assert_eq!(walk(&mut probe, "15.5"), []);
    probe.undo(change).unwrap();
    assert_eq!(walk(&mut probe, "15.5"), before);
}

#[test]
fn histories_are_exact_to_the_tick_and_leave_nothing_out() {
    let mut probe = probe();
    set(
        &mut probe,
        &[
            ("2.1.1.7.4", CREATE_REQUEST),
            (
                "2.1.1.2.4",
                Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 1])),
            ),
            ("2.1.1.3.4", Value::Integer(3)),
            ("2.1.1.5.4", Value::Integer(1)),
        ],
    )
    .unwrap();
    set(&mut probe, &[("2.1.1.7.4", VALID)]).unwrap();
    // The packet at the end of an interval belongs to the next one.
    for time in [150, 199, 200, 250, 300, 450] {
        send(&mut probe, 0, ZERO + time, 1, &udp(true, (1, 2), 53));
    }
    let column = |probe: &mut Probe, column: u32| -> Vec<u32> {
        let found = walk(probe, &format!("2.2.1.{column}"));
        found.iter().map(|(_, value)| number(value)).collect()
    };
    assert_eq!(column(&mut probe, 2), [1, 2, 3]);
    assert_eq!(column(&mut probe, 3), [100, 200, 300]);
    assert_eq!(column(&mut probe, 6), [2, 2, 1]);
    assert_eq!(column(&mut probe, 5), [128, 128, 64]);
    // Long after: three empty intervals are left, numbered as if all had been kept.
    tick(&mut probe, ZERO + 100_000_100);
    assert_eq!(column(&mut probe, 6), [0, 0, 0]);
    assert_eq!(column(&mut probe, 2), [999_998, 999_999, 1_000_000]);
}

#[test]
fn user_histories_sample_any_number_of_ours() {
    let mut probe = probe();
    set(
        &mut probe,
        &[
            ("18.1.1.7.2", Value::Integer(5)),
            ("18.1.1.2.2", Value::Integer(2)),
            ("18.1.1.5.2", Value::Integer(1)),
        ],
    )
    .unwrap();
    assert_eq!(walk(&mut probe, "18.2.1.2").len(), 2);
    let packets = name("1.1.1.5.1");
    // A text, an object that is no one's, and that of somebody else are refused.
    for variable in ["1.1.1.20.1", "1.1.1.99.1"] {
        let refused = set(&mut probe, &[("18.2.1.2.2.1", Value::Oid(name(variable)))]);
        assert_eq!(
            refused,
            Err((0, flowgauge_rmon::SetError::InconsistentValue))
        );
    }
    set(
        &mut probe,
        &[
            ("18.2.1.2.2.1", Value::Oid(packets.clone())),
            ("18.2.1.2.2.2", Value::Oid(packets)),
            ("18.2.1.3.2.2", Value::Integer(2)),
            ("18.1.1.7.2", VALID),
        ],
    )
    .unwrap();
    let active = set(&mut probe, &[("18.2.1.3.2.2", Value::Integer(1))]);
    assert_eq!(
        active,
        Err((0, flowgauge_rmon::SetError::InconsistentValue))
    );
    send(&mut probe, 0, ZERO + 150, 4, &udp(true, (1, 2), 53));
    send(&mut probe, 0, ZERO + 250, 2, &udp(true, (1, 2), 53));
    tick(&mut probe, ZERO + 300);
    let values: Vec<_> = walk(&mut probe, "18.3.1.4")
        .iter()
        .map(|(_, value)| number(value))
        .collect();
    assert_eq!(values, [5, 4, 7, 2]);
    let ends: Vec<_> = walk(&mut probe, "18.3.1.3")
        .iter()
        .map(|(_, value)| number(value))
        .collect();
    assert_eq!(ends, [200, 200, 300, 300]);
    // With the history its objects go.
    set(&mut probe, &[("18.1.1.7.2", Value::Integer(6))]).unwrap();
    assert_eq!(walk(&mut probe, "18"), []);
}

#[test]
fn alarms_fire_events() {
    let mut probe = probe();
    set(
        &mut probe,
        &[
            ("9.1.1.7.3", CREATE_REQUEST),
            ("9.1.1.2.3", Value::Octets(b"busy".to_vec())),
            ("9.1.1.3.3", Value::Integer(4)),
        ],
    )
    .unwrap();
    set(&mut probe, &[("9.1.1.7.3", VALID)]).unwrap();
    let variable = name("1.1.1.5.1");
    set(
        &mut probe,
        &[
            ("3.1.1.12.8", CREATE_REQUEST),
            ("3.1.1.2.8", Value::Integer(1)),
            ("3.1.1.3.8", Value::Oid(variable.clone())),
            ("3.1.1.4.8", Value::Integer(2)),
            ("3.1.1.6.8", Value::Integer(1)),
            ("3.1.1.7.8", Value::Integer(10)),
            ("3.1.1.8.8", Value::Integer(2)),
            ("3.1.1.9.8", Value::Integer(3)),
            ("3.1.1.10.8", Value::Integer(3)),
        ],
    )
    .unwrap();
    set(&mut probe, &[("3.1.1.12.8", VALID)]).unwrap();
    for (second, packets) in [(1, 3), (2, 10), (3, 30), (4, 1)] {
        send(
            &mut probe,
            0,
            ZERO + 100 * second + 50,
            packets,
            &udp(true, (1, 2), 53),
        );
    }
    tick(&mut probe, ZERO + 520);
    let told = probe.notifications();
    let name_of = |column: u32| name(&format!("3.1.1.{column}.8"));
    let expected = |kind: u32, value: i32, threshold: (u32, i32)| flowgauge_rmon::Notification {
        kind: name(&format!("0.{kind}")),
        objects: vec![
            (name_of(1), Value::Integer(8)),
            (name_of(3), Value::Oid(variable.clone())),
            (name_of(4), Value::Integer(2)),
            (name_of(5), Value::Integer(value)),
            (name_of(threshold.0), Value::Integer(threshold.1)),
        ],
    };
    assert_eq!(told, [expected(1, 10, (7, 10)), expected(2, 1, (8, 2))]);
    assert_eq!(probe.notifications(), []);
    let log: Vec<_> = walk(&mut probe, "9.2.1.3")
        .iter()
        .map(|(_, value)| number(value))
        .collect();
    assert_eq!(log, [300, 500]);
    assert_eq!(
        probe.get(&name("9.2.1.4.3.2")),
        Ok(Value::Octets(b"busy".to_vec()))
    );
    assert_eq!(probe.get(&name("9.1.1.5.3")), Ok(Value::TimeTicks(500)));
}

/// What is saved is what is there after loading.
#[test]
fn control_rows_survive_a_restart() {
    let fresh = || {
        let mut probe = Probe::new();
        probe.add_interface(1, SPEED);
        probe
    };
    let source = Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 1]));
    let mut probe = fresh();
    assert!(!probe.save().contains("[[row]]"));
    let changes = probe.changes();
    for values in [
        &[
            ("14.1.1.12.7", CREATE_AND_GO),
            ("14.1.1.2.7", source.clone()),
            ("14.1.1.6.7", Value::Integer(99)),
            ("14.1.1.11.7", Value::Octets(vec![b'a', 0, 255])),
        ][..],
        &[
            ("15.1.1.12.8", Value::Integer(5)),
            ("15.1.1.11.8", Value::Octets(b"0xy".to_vec())),
        ],
        &[("12.1.1.6.1", Value::Integer(6))],
        &[("11.2.1.7.8.0.0.0.1.0.0.8.0.2.0.0", Value::Integer(2))],
        &[
            (
                "11.2.1.10.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.39.15.4.0.0.0.0",
                CREATE_AND_GO,
            ),
            (
                "11.2.1.4.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.39.15.4.0.0.0.0",
                Value::Octets(b"ours".to_vec()),
            ),
        ],
        &[
            ("18.1.1.7.2", Value::Integer(5)),
            ("18.1.1.2.2", Value::Integer(1)),
            ("18.2.1.2.2.1", Value::Oid(name("1.1.1.5.1"))),
        ],
        &[("18.1.1.7.2", VALID)],
    ] {
        // Objects come with the row that is set with them.
        match values {
            [row, count, object] if object.0.starts_with("18.2") => {
                set(&mut probe, &[row.clone(), count.clone()]).unwrap();
                set(&mut probe, std::slice::from_ref(object)).unwrap();
            }
            values => set(&mut probe, values).unwrap(),
        }
    }
    assert!(probe.changes() > changes);
    let text = probe.save();
    let mut other = fresh();
    other
        .load(&text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    for table in ["11", "12.1", "14.1", "15.1", "18"] {
        let (one, other) = (walk(&mut probe, table), walk(&mut other, table));
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{text}");
        assert_eq!(one.len(), other.len(), "{text}");
    }
    assert_eq!(other.save(), text);
}

#[test]
fn bad_files_are_refused_with_what_and_where() {
    let row = |table: &str, index: &str, values: &str| {
        format!(
            "[[row]]\ntable = \"{table}\"\nindex = \"{index}\"\nstate = \"active\"\n[row.values]\n{values}\n"
        )
    };
    let refused = Probe::new().load("row = 1").unwrap_err().to_string();
    assert!(refused.contains("line 1"), "{refused}");
    for (text, expected) in [
        (
            row("hlHostTable", "1", ""),
            "row 2: unknown table \"hlHostTable\"",
        ),
        (
            row("hlHostControlTable", "a", ""),
            "row 2: \"a\" is not an index",
        ),
        (row("hlHostControlTable", "0", ""), "noCreation"),
        (
            row("hlHostControlTable", "9", "hlHostControlOwner = 3"),
            "row 2: hlHostControlTable 9: hlHostControlOwner = 3 cannot be\nhint: it takes 0 to 127 octets",
        ),
        (
            row("hlHostControlTable", "9", "hlHostControlDataSource = 1.5"),
            "hlHostControlDataSource = 1.5 cannot be\nhint: it takes the name of an interface",
        ),
        (
            row("eventTable", "9", "eventType = true"),
            "eventType = true cannot be\nhint: it takes a number of 1 to 4",
        ),
        (
            row("eventTable", "9", "eventType = 4294967297"),
            "eventType = 4294967297 cannot be",
        ),
        (
            row("hlHostControlTable", "9", "owner = \"x\""),
            "owner is not a column",
        ),
        (
            row(
                "hlHostControlTable",
                "9",
                "hlHostControlNlMaxDesiredEntries = -2",
            ),
            "hlHostControlNlMaxDesiredEntries = -2 cannot be",
        ),
        (
            row(
                "alarmTable",
                "9",
                "alarmVariable = \"1.3.6.1.2.1.16.1.1.1.5.1\"\nalarmInterval = 0",
            ),
            "alarmTable 9: alarmInterval = 0 cannot be\nhint: it takes a number of 1 to 2147483647",
        ),
        (
            row("alarmTable", "9", "alarmVariable = \"1.3.6.1.2.1.1.3.0\""),
            "alarmTable 9: alarmVariable is an object of another agent\nhint: --snmp FILE",
        ),
    ] {
        // It alone is refused, and kept as it is for whoever mends it.
        let others = ["1", "3"].map(|index| row("eventTable", index, "eventType = 2"));
        let text = format!("{}{text}{}", others[0], others[1]);
        let mut probe = Probe::new();
        probe.add_interface(1, SPEED);
        probe.load(&text).unwrap();
        let untaken: Vec<_> = probe.untaken().map(ToString::to_string).collect();
        assert_eq!(untaken.len(), 1, "{untaken:?}");
        assert!(untaken[0].contains(expected), "{}", untaken[0]);
        assert!(probe.untaken().all(|error| !error.waits()), "{untaken:?}");
        assert_eq!(probe.get(&name("9.1.1.7.3")), Ok(VALID));
        let mut other = Probe::new();
        other.add_interface(1, SPEED);
        other.load(&probe.save()).unwrap();
        assert_eq!(other.untaken().count(), 1, "{}", probe.save());
        assert_eq!(other.save(), probe.save());
    }
    // Of an interface that is gone the row stays as it is, and begins when that is back.
    let gone = row(
        "hlHostControlTable",
        "9",
        "hlHostControlDataSource = \"1.3.6.1.2.1.2.2.1.1.5\"",
    );
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.load(&gone).unwrap();
    let inactive: Vec<_> = probe.untaken().collect();
    assert!(
        matches!(&inactive[..], [one] if one.waits() && one.to_string().contains("inconsistentValue")),
        "{inactive:?}"
    );
    assert!(
        probe.save().contains("state = \"active\""),
        "{}",
        probe.save()
    );
    probe.add_interface(5, SPEED);
    probe.take_interface("eth9", 6, SPEED);
    assert_eq!(probe.get(&name("14.1.1.12.9")), Ok(VALID));
}

/// Stations by MAC address: in the order of their creation without gaps, by address, and reported once.
#[test]
fn stations_are_counted_by_address() {
    let mut probe = probe();
    send(&mut probe, 0, ZERO + 110, 2, &udp(true, (3, 2), 53));
    // Another station with the address of the first.
    let mut moved = udp(true, (1, 2), 53);
    moved[11] = 0x77;
    set(
        &mut probe,
        &[
            ("5.1.1.10.4", CREATE_REQUEST),
            ("5.1.1.2.4", Value::Integer(1)),
            ("5.1.1.3.4", Value::Integer(2)),
            ("5.1.1.6.4", Value::Integer(2)),
        ],
    )
    .unwrap();
    set(&mut probe, &[("5.1.1.10.4", VALID)]).unwrap();
    set(&mut probe, &[("5.1.1.4.4", Value::Integer(1))]).unwrap();
    let mut broadcast = udp(true, (3, 255), 53);
    broadcast[..6].fill(0xff);
    send(&mut probe, 0, ZERO + 120, 5, &moved);
    send(&mut probe, 0, ZERO + 130, 3, &broadcast);
    let last = |value: &Value| match value {
        Value::Octets(octets) => u32::from(octets[5]),
        value => number(value),
    };
    let column = |probe: &mut Probe, column: &str| -> Vec<u32> {
        walk(probe, column)
            .iter()
            .map(|(_, value)| last(value))
            .collect()
    };
    assert_eq!(column(&mut probe, "4.3.1.1"), [1, 2, 3, 0x77, 0xff]);
    assert_eq!(column(&mut probe, "4.2.1.1"), [1, 2, 3, 0x77, 0xff]);
    assert_eq!(column(&mut probe, "4.2.1.4"), [0, 8, 0, 0, 3]);
    assert_eq!(column(&mut probe, "4.2.1.5"), [1, 0, 5, 5, 0]);
    assert_eq!(column(&mut probe, "4.2.1.9"), [0, 0, 3, 0, 0]);
    assert_eq!(column(&mut probe, "6.2.1.4"), [1, 2, 3, 5]);
    assert_eq!(column(&mut probe, "6.3.1.1"), [1, 3, 0x77, 3]);
    assert_eq!(probe.get(&name("4.1.1.3.1")), Ok(Value::Integer(5)));
    assert_eq!(walk(&mut probe, "5.2"), []);
    tick(&mut probe, ZERO + 210);
    assert_eq!(column(&mut probe, "5.2.1.3"), [0x77, 3]);
    assert_eq!(column(&mut probe, "5.2.1.4"), [5, 3]);
    // It does not begin again by itself.
    tick(&mut probe, ZERO + 900);
    assert_eq!(column(&mut probe, "5.2.1.4"), [5, 3]);
    assert_eq!(probe.get(&name("5.1.1.4.4")), Ok(Value::Integer(0)));
    // Ether statistics of the same packets.
    assert_eq!(probe.get(&name("1.1.1.5.1")), Ok(Value::Counter32(11)));
    assert_eq!(probe.get(&name("1.1.1.6.1")), Ok(Value::Counter32(3)));
    assert_eq!(probe.get(&name("1.1.1.14.1")), Ok(Value::Counter32(11)));
}

/// Each object that is declared answers where there is a row, as compliance is not passed by empty tables.
#[test]
fn each_column_of_a_table_has_as_many_rows_as_the_others() {
    let mut probe = probe();
    let rows: &[&[(&str, Value)]] = &[
        &[
            ("15.4.1.11.1", CREATE_AND_GO),
            ("15.4.1.2.1", Value::Integer(1)),
            ("15.4.1.3.1", Value::Integer(3)),
            ("15.4.1.4.1", Value::Integer(1)),
        ],
        &[
            ("15.4.1.11.2", CREATE_AND_GO),
            ("15.4.1.2.2", Value::Integer(1)),
            ("15.4.1.3.2", Value::Integer(1)),
            ("15.4.1.4.2", Value::Integer(1)),
        ],
        &[
            ("17.3.1.11.1", CREATE_AND_GO),
            ("17.3.1.2.1", Value::Integer(1)),
            ("17.3.1.3.1", Value::Integer(7)),
            ("17.3.1.4.1", Value::Integer(1)),
        ],
        &[
            ("17.3.1.11.2", CREATE_AND_GO),
            ("17.3.1.2.2", Value::Integer(1)),
            ("17.3.1.3.2", Value::Integer(3)),
            ("17.3.1.4.2", Value::Integer(1)),
        ],
        &[
            ("18.1.1.7.1", CREATE_AND_GO),
            ("18.1.1.2.1", Value::Integer(1)),
            ("18.1.1.5.1", Value::Integer(1)),
        ],
        &[
            ("2.1.1.7.1", CREATE_REQUEST),
            (
                "2.1.1.2.1",
                Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 1])),
            ),
            ("2.1.1.5.1", Value::Integer(1)),
        ],
        &[
            ("9.1.1.7.1", CREATE_REQUEST),
            ("9.1.1.3.1", Value::Integer(2)),
        ],
        &[("9.1.1.7.1", VALID)],
        &[
            ("3.1.1.12.1", CREATE_REQUEST),
            ("3.1.1.2.1", Value::Integer(1)),
            ("3.1.1.3.1", Value::Oid(name("1.1.1.5.1"))),
            ("3.1.1.9.1", Value::Integer(1)),
        ],
        &[
            ("5.1.1.10.1", CREATE_REQUEST),
            ("5.1.1.2.1", Value::Integer(1)),
            ("5.1.1.3.1", Value::Integer(2)),
            ("5.1.1.4.1", Value::Integer(1)),
        ],
        &[
            ("7.2.1.12.1", CREATE_REQUEST),
            ("7.2.1.2.1", Value::Integer(1)),
            ("7.2.1.4.1", Value::Integer(1)),
        ],
        &[("7.2.1.12.1", VALID)],
        &[
            ("7.1.1.11.1", CREATE_REQUEST),
            ("7.1.1.2.1", Value::Integer(1)),
        ],
        &[("7.1.1.11.1", VALID)],
        &[
            ("8.1.1.13.1", CREATE_REQUEST),
            ("8.1.1.2.1", Value::Integer(1)),
        ],
        &[("8.1.1.13.1", VALID)],
        &[("2.1.1.7.1", VALID)],
        &[("3.1.1.12.1", VALID)],
        &[("5.1.1.10.1", VALID)],
    ];
    for values in rows {
        assert_eq!(set(&mut probe, values), Ok(()), "{values:?}");
    }
    send(&mut probe, 0, ZERO + 150, 4, &udp(true, (1, 2), 53));
    let mut tagged = udp(true, (1, 2), 53);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    send(&mut probe, 0, ZERO + 160, 1, &tagged);
    tick(&mut probe, ZERO + 205);
    for (table, columns) in flowgauge_rmon::declared() {
        let rows = |probe: &mut Probe, column: u32| walk(probe, &format!("{table}.{column}")).len();
        let first = rows(&mut probe, columns[0]);
        // Ports are not copied.
        assert_eq!(first == 0, table.to_string() == "22.1.3.1.1", "{table}");
        for column in &columns {
            assert_eq!(rows(&mut probe, *column), first, "{table}.{column}");
        }
    }
}

/// Tags, in the frame or taken out of it: VLANs and priorities.
#[test]
fn tagged_frames_are_counted_by_vlan_and_priority() {
    let mut probe = probe();
    let tagged = |tag: [u8; 2]| {
        let mut frame = udp(true, (1, 2), 53);
        frame.splice(12..12, [0x81, 0, tag[0], tag[1]]);
        frame
    };
    // VLAN 5 with priority 0, VLAN 7 with priority 6, priority 2 without a VLAN.
    for (tag, times) in [([0, 5], 2), ([0xc0, 7], 3), ([0x40, 0], 4)] {
        send(&mut probe, 0, ZERO + 150, times, &tagged(tag));
    }
    let numbers = |probe: &mut Probe, table: &str| -> Vec<(u32, u32)> {
        let found = walk(probe, table);
        let row = |(name, value): &(Oid, Value)| (*name.numbers().last().unwrap(), number(value));
        found
            .iter()
            .map(row)
            .filter(|(_, count)| *count != 0)
            .collect()
    };
    assert_eq!(numbers(&mut probe, "22.1.2.2.1.2.1"), [(5, 2), (7, 3)]);
    assert_eq!(numbers(&mut probe, "22.1.2.2.1.5.1"), [(5, 128), (7, 192)]);
    assert_eq!(numbers(&mut probe, "22.1.2.2.1.14.1"), [(5, 150), (7, 150)]);
    assert_eq!(
        numbers(&mut probe, "22.1.2.4.1.2.1"),
        [(0, 2), (2, 4), (6, 3)]
    );
}

/// Rows that name an interface wait for it, under whatever number it comes, and are saved as they are meanwhile.
#[test]
fn rows_wait_for_their_interface() {
    let first = {
        let mut probe = Probe::new();
        probe.take_interface("eth7", 3, SPEED);
        let source = "1.3.6.1.2.1.2.2.1.1.3".parse::<Oid>().unwrap();
        let row = [
            ("14.1.1.2.50", Value::Oid(source)),
            ("14.1.1.6.50", Value::Integer(100)),
            ("14.1.1.10.50", Value::Integer(200)),
            ("14.1.1.12.50", CREATE_AND_GO),
        ];
        set(&mut probe, &row).unwrap();
        probe.save()
    };
    assert!(first.contains("eth7"), "{first}");
    let mut probe = Probe::new();
    probe.take_interface("eth1", 1, SPEED);
    probe.load(&first).unwrap();
    let inactive: Vec<_> = probe.untaken().collect();
    assert!(
        matches!(&inactive[..], [one] if one.waits() && one.to_string().contains("no interface \"eth7\"")),
        "{inactive:?}"
    );
    let saved = |probe: &Probe| {
        let saved = probe.save();
        let rows = saved
            .split("[[row]]")
            .filter(|row| row.contains("index = \"50\""));
        rows.map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(saved(&probe).len(), 1);
    assert!(saved(&probe)[0].contains("eth7") && saved(&probe)[0].contains("\"active\""));
    probe.take_interface("eth7", 9, SPEED);
    assert_eq!(probe.get(&name("14.1.1.12.50")), Ok(VALID));
    let source = "1.3.6.1.2.1.2.2.1.1.9".parse::<Oid>().unwrap();
    assert_eq!(probe.get(&name("14.1.1.2.50")), Ok(Value::Oid(source)));
    assert_eq!(saved(&probe).len(), 1);
    // It is gone and comes with another number, that of another one: rows follow, and go on with what was counted.
    send(&mut probe, 1, ZERO, 3, &udp(true, (1, 2), 53));
    assert_eq!(probe.take_interface("eth7", 1, SPEED), 1);
    assert_eq!(probe.take_interface("eth1", 10, SPEED), 0);
    send(&mut probe, 1, ZERO, 2, &udp(true, (1, 2), 53));
    send(&mut probe, 0, ZERO, 1, &udp(true, (3, 4), 53));
    let source = |index: u32| Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, index]));
    assert_eq!(probe.get(&name("14.1.1.2.50")), Ok(source(1)));
    assert_eq!(probe.get(&name("1.1.1.2.1")), Ok(source(10)));
    let packets = |probe: &mut Probe, row: u32| -> u32 {
        let hosts = walk(probe, &format!("14.2.1.4.{row}"));
        hosts.iter().map(|(_, value)| number(value)).sum()
    };
    assert_eq!([1, 2, 50].map(|row| packets(&mut probe, row)), [1, 5, 5]);
    let mapped = walk(&mut probe, "13.5.1.4");
    let mapped = mapped
        .iter()
        .map(|(name, _)| *name.numbers().last().unwrap());
    assert_eq!(mapped.collect::<Vec<_>>(), [1, 10], "of the new numbers");
    // One that is away keeps its number until another has it.
    assert_eq!(probe.take_interface("eth7", None, SPEED), 1);
    assert_eq!(probe.get(&name("14.1.1.2.50")), Ok(source(1)));
    assert_eq!(probe.take_interface("eth9", 1, SPEED), 2);
    assert_eq!(probe.get(&name("14.1.1.2.50")), Ok(source(65_535)));
    assert!(saved(&probe)[0].contains("eth7"));
    // A manager destroys a row that waits.
    let mut probe = Probe::new();
    probe.load(&first).unwrap();
    set(&mut probe, &[("14.1.1.12.50", Value::Integer(6))]).unwrap();
    assert_eq!(saved(&probe).len(), 0);
}

/// Rows of channels are of an interface by its name, too, and rows of buffers wait with them, in whatever order they stand. A row
/// that an interface has from the start waits for that, and takes no other's place.
#[test]
fn channels_and_what_is_theirs_wait_for_their_interface() {
    let row = |table: &str, index: u32, values: &str| {
        format!(
            "[[row]]\ntable = \"{table}\"\nindex = \"{index}\"\nstate = \"active\"\n[row.values]\n{values}\n"
        )
    };
    let text = [
        row("bufferControlTable", 4, "bufferControlChannelIndex = 3"),
        row("channelTable", 3, "channelIfIndex = \"eth7\""),
        row("hostTopNControlTable", 5, "hostTopNHostIndex = 2\nhostTopNRateBase = 1\nhostTopNTimeRemaining = 10\nhostTopNRequestedSize = 3"),
        row("hostControlTable", 2, "hostControlOwner = \"us\""),
    ]
    .concat();
    let mut probe = Probe::new();
    probe.take_interface("eth1", 1, SPEED);
    probe.load(&text).unwrap();
    assert!(probe.untaken().all(LoadError::waits));
    assert_eq!(probe.untaken().count(), 4);
    let changes = probe.changes();
    probe.take_interface("eth7", 9, SPEED);
    assert_eq!(probe.untaken().map(ToString::to_string).next(), None);
    assert_eq!(probe.changes(), changes, "the file has them already");
    assert_eq!(probe.get(&name("7.2.1.2.3")), Ok(Value::Integer(9)));
    for status in ["7.2.1.12.3", "8.1.1.13.4", "4.1.1.6.2", "5.1.1.10.5"] {
        assert_eq!(probe.get(&name(status)), Ok(VALID), "{status}");
    }
    let source = "1.3.6.1.2.1.2.2.1.1.9".parse::<Oid>().unwrap();
    assert_eq!(probe.get(&name("4.1.1.2.2")), Ok(Value::Oid(source)));
    assert!(
        probe.save().contains("channelIfIndex = \"eth7\""),
        "{}",
        probe.save()
    );
    // Also when the interface has another number by now.
    probe.take_interface("eth7", 10, SPEED);
    let saved = probe.save();
    assert!(saved.contains("channelIfIndex = \"eth7\""), "{saved}");
    let mut probe = Probe::new();
    probe.take_interface("eth1", 1, SPEED);
    probe.take_interface("eth7", 10, SPEED);
    probe.load(&saved).unwrap();
    assert_eq!(probe.get(&name("7.2.1.2.3")), Ok(Value::Integer(10)));
}

/// Thousands of histories end their intervals at once, and cost no more than that.
#[test]
fn many_histories_go_on_together() {
    const ROWS: u32 = 8_000;
    let mut probe = probe();
    let source = "1.3.6.1.2.1.2.2.1.1.1".parse::<Oid>().unwrap();
    for row in 1..=ROWS {
        let (source_name, interval, status) = (
            format!("2.1.1.2.{row}"),
            format!("2.1.1.5.{row}"),
            format!("2.1.1.7.{row}"),
        );
        let values = [
            (source_name.as_str(), Value::Oid(source.clone())),
            (interval.as_str(), Value::Integer(1)),
            (status.as_str(), CREATE_REQUEST),
        ];
        set(&mut probe, &values).unwrap();
        set(&mut probe, &[(&status, VALID)]).unwrap();
    }
    for second in 1..=5 {
        send(
            &mut probe,
            0,
            ZERO + 100 + second * 100 - 1,
            2,
            &udp(true, (1, 2), 53),
        );
    }
    tick(&mut probe, ZERO + 600);
    for row in [1, 77, ROWS] {
        let packets = walk(&mut probe, &format!("2.2.1.6.{row}"));
        let packets: Vec<u32> = packets.iter().map(|(_, value)| number(value)).collect();
        assert_eq!(packets, [2; 5], "{row}");
    }
}

/// Objects of all user histories are bounded.
#[test]
fn user_histories_have_so_many_objects_in_all() {
    let mut probe = probe();
    let mut last = Ok(());
    for row in 1..=17 {
        let (objects, status) = (format!("18.1.1.2.{row}"), format!("18.1.1.7.{row}"));
        let values = [
            (objects.as_str(), Value::Integer(256)),
            (status.as_str(), Value::Integer(5)),
        ];
        last = set(&mut probe, &values);
        assert_eq!(last.is_ok(), row <= 16, "{row}: {last:?}");
    }
    assert_eq!(
        last.map_err(|(_, error)| error),
        Err(SetError::ResourceUnavailable)
    );
}

/// Errors that the interface counts are shown from the beginning on, also when its counters begin anew.
#[test]
fn errors_are_those_of_the_interface() {
    let mut probe = probe();
    let history = [
        (
            "2.1.1.2.1",
            Value::Oid("1.3.6.1.2.1.2.2.1.1.1".parse().unwrap()),
        ),
        ("2.1.1.5.1", Value::Integer(1)),
        ("2.1.1.7.1", CREATE_REQUEST),
    ];
    set(&mut probe, &history).unwrap();
    set(&mut probe, &[("2.1.1.7.1", VALID)]).unwrap();
    let mut shown = Vec::new();
    for (second, now) in [(0, [5, 1]), (1, [7, 4]), (2, [1, 0])] {
        probe.note_errors(0, now);
        tick(&mut probe, ZERO + 100 + second * 100);
        shown.push(["1.1.1.8.1", "1.1.1.13.1"].map(|it| number(&probe.get(&name(it)).unwrap())));
    }
    assert_eq!(shown, [[0, 0], [2, 3], [3, 3]]);
    let mut buckets = |column: u32| {
        let rows = walk(&mut probe, &format!("2.2.1.{column}.1"));
        rows.iter()
            .map(|(_, value)| number(value))
            .collect::<Vec<_>>()
    };
    assert_eq!((buckets(9), buckets(14)), (vec![2, 1], vec![3, 0]));
}

/// A file that cannot be written is told once, and at the end, and written when it can be.
#[test]
fn a_file_that_cannot_be_written_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.toml");
    std::fs::write(&path, "").unwrap();
    let mut probe = probe();
    let mut file = ControlFile::load(Some(&path), &mut probe).unwrap();
    let tables = Mutex::new(probe);
    let kept = || std::fs::read_to_string(&path).unwrap();
    assert_eq!(file.keep(&tables), None);
    assert_eq!(kept(), "");
    // What it is written to at first is there.
    let beside = folder
        .path()
        .join(format!("rows.toml.{}.new", std::process::id()));
    std::fs::write(&beside, "").unwrap();
    let owner = [("14.1.1.11.1", Value::Octets(b"somebody".to_vec()))];
    set(&mut tables.lock(), &owner).unwrap();
    let told = file.keep(&tables).unwrap_or_default();
    assert!(
        told.contains("rows.toml: ") && told.contains("hint: "),
        "{told}"
    );
    assert_eq!(file.keep(&tables), None);
    assert_eq!(file.finish(&tables), Some(told));
    assert_eq!(kept(), "");
    std::fs::remove_file(&beside).unwrap();
    assert_eq!(file.finish(&tables), None);
    assert!(kept().contains("somebody"), "{}", kept());
    assert_eq!(kept(), tables.lock().save());
}
