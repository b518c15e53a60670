//! Sets of managers: every status, every column, and what follows from them.

use flowgauge_rmon::{Oid, Probe, SetError, Tree, Value};

use crate::frames::{SPEED, send, udp};
use crate::traces::walk;

/// A name below rmon.
pub(crate) fn name(text: &str) -> Oid {
    format!("1.3.6.1.2.1.16.{text}").parse().unwrap()
}

/// Sets all of these together.
pub(crate) fn set(probe: &mut Probe, values: &[(&str, Value)]) -> Result<(), (usize, SetError)> {
    let values: Vec<_> = values
        .iter()
        .map(|(text, value)| (name(text), value.clone()))
        .collect();
    let mut change = probe.test(&values)?;
    assert_eq!(probe.commit(&mut change), Ok(()));
    Ok(())
}

fn source(interface: u32) -> Value {
    Value::Oid(Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, interface]))
}

fn owner(text: &str) -> Value {
    Value::Octets(text.into())
}

const ACTIVE: Value = Value::Integer(1);
const NOT_IN_SERVICE: Value = Value::Integer(2);
const CREATE_AND_GO: Value = Value::Integer(4);
const DESTROY: Value = Value::Integer(6);

fn probe() -> Probe {
    let mut probe = Probe::new();
    probe.add_interface(1, SPEED);
    probe.set_zero(500);
    send(&mut probe, 0, 1000, 3, &udp(true, (1, 2), 53));
    probe
}

/// Names of nothing, and values that do not go together. (What each column takes in each state: `src/writable.rs`.)
#[test]
fn what_cannot_be_set() {
    let cases: &[(&str, Value, SetError)] = &[
        (
            "14.2.1.3.1.0.3.4.10.0.0.1",
            Value::Gauge32(1),
            SetError::NotWritable,
        ),
        ("14.1.1.11.0", owner("x"), SetError::NoCreation),
        ("14.1.1.11.65536", owner("x"), SetError::NoCreation),
        ("14.1.1.11.1.1", owner("x"), SetError::NoCreation),
        ("14.1.1.11", owner("x"), SetError::NoCreation),
        ("14.1.1.99.1", owner("x"), SetError::NoCreation),
        ("99.1", owner("x"), SetError::NoCreation),
        // No port can be copied, and no data source can be changed.
        ("22.1.3.1.1.5.1.1", CREATE_AND_GO, SetError::NoCreation),
        (
            "22.1.1.1.1.4.1.3.6.1.2.1.2.2.1.1.1",
            ACTIVE,
            SetError::NotWritable,
        ),
        ("7.4.1.1.1", ACTIVE, SetError::InconsistentName),
        ("7.1.1.1001.1", ACTIVE, SetError::NoCreation),
        ("13.3.1", Value::Integer(5), SetError::NoCreation),
        // Not of any protocol; below a protocol that is not there.
        (
            "11.2.1.10.4.0.0.0.9.1.0",
            CREATE_AND_GO,
            SetError::InconsistentName,
        ),
        (
            "11.2.1.10.5.0.0.0.1.0.1.0",
            CREATE_AND_GO,
            SetError::InconsistentName,
        ),
        ("11.2.1.10.3.0.0.1.1.0", CREATE_AND_GO, SetError::NoCreation),
        (
            "11.2.1.6.4.0.0.0.1.1.0",
            Value::Integer(3),
            SetError::InconsistentValue,
        ),
        (
            "11.2.1.7.8.0.0.0.1.0.0.8.0.2.0.0",
            Value::Integer(1),
            SetError::InconsistentValue,
        ),
    ];
    for (text, value, error) in cases {
        let mut probe = probe();
        let before = walk(&mut probe, "14.1");
        let good = ("14.1.1.11.1", owner("me"));
        let done = set(&mut probe, &[good, (*text, value.clone())]);
        assert_eq!(done, Err((1, *error)), "{text} = {value:?}");
        assert_eq!(walk(&mut probe, "14.1"), before, "{text} = {value:?}");
    }
    // The same value again is no change.
    assert_eq!(
        set(
            &mut probe(),
            &[
                ("14.1.1.2.1", source(1)),
                ("14.1.1.6.1", Value::Integer(-1))
            ]
        ),
        Ok(())
    );
    // Missing columns, an interface that is not there: the status is to blame.
    for values in [
        &[("14.1.1.12.9", CREATE_AND_GO)][..],
        &[("14.1.1.12.9", CREATE_AND_GO), ("14.1.1.2.9", source(2))],
    ] {
        assert_eq!(
            set(&mut probe(), values),
            Err((0, SetError::InconsistentValue))
        );
    }
}

/// A set that another agent refuses leaves nothing behind: neither rows that began nor a gap in those that ended.
#[test]
fn what_is_undone_was_never_there() {
    let sets: &[&[(&str, Value)]] = &[
        &[
            ("14.1.1.12.1", NOT_IN_SERVICE),
            ("15.1.1.12.1", DESTROY),
            ("12.1.1.6.1", DESTROY),
            ("13.4.1.5.1", DESTROY),
        ],
        &[
            ("14.1.1.12.2", CREATE_AND_GO),
            ("14.1.1.2.2", source(1)),
            ("14.1.1.11.1", owner("me")),
        ],
        &[
            ("11.2.1.7.8.0.0.0.1.0.0.8.0.2.0.0", Value::Integer(2)),
            ("11.2.1.8.8.0.0.0.1.0.0.8.0.2.0.0", Value::Integer(2)),
        ],
        &[("11.2.1.10.8.0.0.0.1.0.0.8.0.2.0.0", DESTROY)],
        &[("13.3.0", Value::Integer(0))],
        &[(
            "11.2.1.10.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.39.15.4.0.0.0.0",
            CREATE_AND_GO,
        )],
    ];
    for values in sets {
        let mut probe = probe();
        let all = |probe: &mut Probe| {
            let mut all = walk(probe, "11");
            // When the directory was changed last is no row.
            all.remove(0);
            for group in 12..=17 {
                all.extend(walk(probe, &group.to_string()));
            }
            all
        };
        let before = all(&mut probe);
        let named: Vec<_> = values
            .iter()
            .map(|(text, value)| (name(text), value.clone()))
            .collect();
        let mut change = probe.test(&named).unwrap();
        assert!(
            all(&mut probe) == before,
            "{values:?}: a test changes nothing"
        );
        assert_eq!(probe.commit(&mut change), Ok(()));
        if values.len() != 1 || values[0].0 != "13.3.0" {
            assert!(all(&mut probe) != before, "{values:?}");
        }
        assert_eq!(probe.undo(change), Ok(()));
        let after = all(&mut probe);
        let differs = after.iter().zip(&before).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{values:?}");
        assert_eq!(after.len(), before.len(), "{values:?}");
        // It goes on as if nothing had been.
        let mut other = self::probe();
        for probe in [&mut probe, &mut other] {
            send(probe, 0, 2000, 3, &udp(true, (1, 3), 53));
        }
        let (one, other) = (all(&mut probe), all(&mut other));
        let differs = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!(differs, None, "{values:?}");
    }
}

/// What has changed since a set was tested cannot be committed any more.
#[test]
fn a_set_that_was_overtaken_fails() {
    let mut probe = probe();
    let values = [(name("14.1.1.11.1"), owner("one"))];
    let mut first = probe.test(&values).unwrap();
    let mut second = probe.test(&[(name("14.1.1.11.1"), owner("two"))]).unwrap();
    assert_eq!(probe.commit(&mut second), Ok(()));
    assert_eq!(probe.commit(&mut first), Err(0));
    assert_eq!(probe.get(&name("14.1.1.11.1")), Ok(owner("two")));
}

/// Leaving the active state deletes the rows; bounds of the address map evict at once.
#[test]
fn what_follows_from_sets() {
    let mut probe = probe();
    assert_eq!(walk(&mut probe, "14.2.1.3").len(), 2);
    set(&mut probe, &[("14.1.1.12.1", NOT_IN_SERVICE)]).unwrap();
    assert_eq!(walk(&mut probe, "14.2"), []);
    assert_eq!(walk(&mut probe, "16.1"), []);
    // The bounds can change now. One host at most: the destination, which was used after the source.
    set(
        &mut probe,
        &[("14.1.1.6.1", Value::Integer(1)), ("14.1.1.12.1", ACTIVE)],
    )
    .unwrap();
    send(&mut probe, 0, 1001, 2, &udp(true, (1, 2), 53));
    assert_eq!(walk(&mut probe, "14.2.1.3").len(), 1);
    assert_eq!(probe.get(&name("14.1.1.4.1")), Ok(Value::Counter32(4)));
    assert_eq!(probe.get(&name("14.1.1.5.1")), Ok(Value::Counter32(3)));
    // None at all: frames are not counted, which is counted.
    set(&mut probe, &[("14.1.1.12.1", NOT_IN_SERVICE)]).unwrap();
    set(
        &mut probe,
        &[("14.1.1.6.1", Value::Integer(0)), ("14.1.1.12.1", ACTIVE)],
    )
    .unwrap();
    send(&mut probe, 0, 1002, 5, &udp(true, (1, 2), 53));
    assert_eq!(probe.get(&name("14.1.1.3.1")), Ok(Value::Counter32(5)));
    // The address map evicts at once.
    send(&mut probe, 0, 1003, 1, &udp(true, (5, 2), 53));
    assert_eq!(walk(&mut probe, "13.5.1.4").len(), 2);
    set(&mut probe, &[("13.3.0", Value::Integer(1))]).unwrap();
    assert_eq!(walk(&mut probe, "13.5.1.4").len(), 1);
    assert_eq!(probe.get(&name("13.2.0")), Ok(Value::Counter32(1)));
}

/// Protocols come, go and are switched.
#[test]
fn the_directory_can_be_changed() {
    let mut probe = probe();
    let status = "11.2.1.10.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.39.15.4.0.0.0.0";
    let local = "11.2.1.3.16.0.0.0.1.0.0.8.0.0.0.0.17.0.0.39.15.4.0.0.0.0";
    let packet = udp(true, (1, 2), 9999);
    send(&mut probe, 0, 1001, 1, &packet);
    let before = walk(&mut probe, "16.1.1.2").len();
    set(&mut probe, &[(status, CREATE_AND_GO)]).unwrap();
    let Ok(Value::Integer(first)) = probe.get(&name(local)) else {
        panic!();
    };
    send(&mut probe, 0, 1002, 4, &packet);
    assert_eq!(
        probe.get(&name(&format!("12.2.1.1.1.{first}"))),
        Ok(Value::Gauge32(4))
    );
    assert_eq!(walk(&mut probe, "16.1.1.2").len(), before + 2);
    // Out of service and back again it is the same protocol; destroyed and made again it is another one.
    set(&mut probe, &[(status, NOT_IN_SERVICE)]).unwrap();
    send(&mut probe, 0, 1003, 1, &packet);
    set(&mut probe, &[(status, ACTIVE)]).unwrap();
    assert_eq!(probe.get(&name(local)), Ok(Value::Integer(first)));
    set(&mut probe, &[(status, DESTROY)]).unwrap();
    assert_eq!(walk(&mut probe, "16.1.1.2").len(), before);
    set(&mut probe, &[(status, CREATE_AND_GO)]).unwrap();
    let Ok(Value::Integer(second)) = probe.get(&name(local)) else {
        panic!();
    };
    assert!(second > first);
    // Off deletes rows of that table alone.
    let hosts = "11.2.1.7.8.0.0.0.1.0.0.8.0.2.0.0";
    let pairs = walk(&mut probe, "15.2").len();
    set(&mut probe, &[(hosts, Value::Integer(2))]).unwrap();
    assert_eq!(walk(&mut probe, "14.2"), []);
    assert_eq!(walk(&mut probe, "16.1"), []);
    assert_eq!(walk(&mut probe, "15.2").len(), pairs);
}

/// Packets go through so many tables of an interface at most, whether managers ask for one after the other or for all at once.
#[test]
fn tables_of_an_interface_are_bounded() {
    let mut probe = probe();
    probe.add_interface(2, SPEED);
    let row = |row: u32, interface: u32| {
        let values = [
            (name(&format!("14.1.1.2.{row}")), source(interface)),
            (name(&format!("14.1.1.12.{row}")), CREATE_AND_GO),
        ];
        values.to_vec()
    };
    let all: Vec<_> = (3..=18).flat_map(|number| row(number, 1)).collect();
    let before = walk(&mut probe, "14.1");
    let mut change = probe.test(&all).unwrap();
    assert_eq!(probe.commit(&mut change), Err(31));
    assert_eq!(walk(&mut probe, "14.1"), before);
    let mut set_row = |values: &[_]| {
        let mut change = probe.test(values)?;
        assert_eq!(probe.commit(&mut change), Ok(()));
        Ok(())
    };
    for number in 3..=17 {
        assert_eq!(set_row(&row(number, 1)), Ok(()), "{number}");
    }
    let refused = Err((1, SetError::ResourceUnavailable));
    assert_eq!(set_row(&row(18, 1)), refused);
    assert_eq!(set_row(&row(18, 2)), Ok(()));
    assert_eq!(set_row(&[(name("14.1.1.12.7"), DESTROY)]), Ok(()));
    assert_eq!(set_row(&row(19, 1)), Ok(()));
    send(&mut probe, 0, 2000, 3, &udp(true, (1, 2), 53));
    for number in [17, 19] {
        assert_eq!(walk(&mut probe, &format!("14.2.1.3.{number}")).len(), 2);
    }
}

/// There are so many control rows at most, also of those that one set asks for.
#[test]
fn control_rows_are_bounded() {
    const MOST: usize = 32_768;
    let mut probe = probe();
    // Those of the interface count, too.
    let rows = walk(&mut probe, "11.2.1.3").len() + 9;
    let row = |number: usize| (name(&format!("9.1.1.7.{number}")), Value::Integer(2));
    let mut create = |numbers: core::ops::RangeInclusive<usize>| {
        let values: Vec<_> = numbers.map(row).collect();
        let mut change = probe.test(&values)?;
        assert_eq!(probe.commit(&mut change), Ok(()));
        Ok(())
    };
    let left = MOST - rows;
    for first in (1..left - 100).step_by(100) {
        assert_eq!(create(first..=first + 99), Ok(()), "{first}");
    }
    let first = (1..left - 100).step_by(100).next_back().unwrap() + 100;
    let refused = Err((left - first + 1, SetError::ResourceUnavailable));
    assert_eq!(create(first..=left + 1), refused);
    assert_eq!(create(first..=left), Ok(()));
    assert_eq!(
        create(left + 1..=left + 1),
        Err((0, SetError::ResourceUnavailable))
    );
}

/// Histories are granted less than they request when others have most of the room.
#[test]
fn buckets_of_all_histories_are_bounded() {
    let mut probe = probe();
    let granted = |probe: &mut Probe, object: &str| match probe.get(&name(object)) {
        Ok(Value::Integer(granted)) => granted,
        other => panic!("{other:?}"),
    };
    for row in 1..=52 {
        let column = |column: u32| format!("2.1.1.{column}.{row}");
        let [source_name, buckets, status] = [2, 3, 7].map(column);
        set(
            &mut probe,
            &[
                (&source_name, source(1)),
                (&buckets, Value::Integer(65_535)),
                (&status, Value::Integer(2)),
            ],
        )
        .unwrap();
        set(&mut probe, &[(&status, ACTIVE)]).unwrap();
        let expected = if row <= 50 { 10_000 } else { 1 };
        assert_eq!(granted(&mut probe, &column(4)), expected, "{row}");
    }
    // What one gives up another one can have.
    set(&mut probe, &[("2.1.1.3.1", Value::Integer(5))]).unwrap();
    set(&mut probe, &[("2.1.1.3.51", Value::Integer(10_000))]).unwrap();
    assert_eq!(granted(&mut probe, "2.1.1.4.1"), 5);
    assert_eq!(granted(&mut probe, "2.1.1.4.51"), 9_994);
    for (row, expected) in [(1, 7_751), (2, 1)] {
        let column = |column: u32| format!("18.1.1.{column}.{row}");
        let [objects, buckets, status] = [2, 3, 7].map(column);
        set(
            &mut probe,
            &[
                (&objects, Value::Integer(256)),
                (&buckets, Value::Integer(65_535)),
                (&status, Value::Integer(5)),
            ],
        )
        .unwrap();
        set(&mut probe, &[(&status, ACTIVE)]).unwrap();
        assert_eq!(granted(&mut probe, &column(4)), expected, "{row}");
    }
}
