//! Every object of every table set in every state of its row, with every kind of value: what is to happen follows from the
//! declaration alone, and what is refused changes nothing.

use crate::control::Control;
use crate::declared::TABLES;
use crate::directory::Directory;
use crate::keys::IF_INDEX;
use crate::mib::{AUGMENTING, Access, Column, RMON, Rows, Syntax, Table};
use crate::{Missing, Oid, Probe, SetError, Tree as _, Value};

/// How far a row is. One whose columns all have defaults is never incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Incomplete,
    Inactive,
    Active,
}

const STATES: [State; 4] = [
    State::Absent,
    State::Incomplete,
    State::Inactive,
    State::Active,
];

/// createAndWait, active, notInService; createRequest, valid, underCreation.
fn statuses(column: &Column) -> [i32; 3] {
    match column.syntax {
        Syntax::RowStatus => [5, 1, 2],
        _ => [2, 1, 3],
    }
}

fn status(control: Control) -> Option<&'static Column> {
    let mut columns = control.table()?.columns.iter();
    columns.find(|column| column.is_status())
}

fn index(control: Control) -> Vec<u32> {
    match control {
        // A port that no protocol has, over UDP.
        Control::Directory => vec![
            16, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 17, 0, 0, 39, 15, 4, 0, 0, 0, 0,
        ],
        Control::UserHistoryObject => vec![9, 1],
        _ => vec![9],
    }
}

fn name(control: Control, column: &Column, index: &[u32]) -> Oid {
    let (entry, number) = control.place(column.number).unwrap();
    Oid::new(&RMON).child(entry).child(&[number]).child(index)
}

/// A value with which rows can be active; `other`: another one, which they may have as well as far as the column says.
fn good(column: &Column, other: bool) -> Value {
    let number = 1 + u32::from(other);
    match column.syntax {
        Syntax::Oid if column.names_interface() => Value::Oid(Oid::new(&IF_INDEX).child(&[number])),
        Syntax::Oid => Value::Oid(Oid::new(&RMON).child(&[1, 1, 1, 3 + number, 1])),
        Syntax::Octets(..) => Value::Octets(vec![b'x'; number as usize]),
        // Of an application, which has no addresses.
        _ if column.name == "protocolDirAddressMapConfig" => Value::Integer(1),
        // What can be counted is not notSupported.
        _ if column.name.starts_with("protocolDir") => Value::Integer(1 + number as i32),
        _ => Value::Integer(number as i32),
    }
}

/// Values of all types, and those beyond the column's bounds.
fn values(column: &Column) -> Vec<Value> {
    let mut values = vec![
        good(column, false),
        good(column, true),
        Value::Integer(1),
        Value::Octets(b"x".to_vec()),
        Value::Null,
        Value::Oid(Oid::new(&[1, 3])),
        Value::IpAddress([1; 4]),
        Value::Counter32(1),
        Value::Gauge32(1),
        Value::TimeTicks(1),
        Value::Opaque(vec![1]),
        Value::Counter64(1),
    ];
    match column.syntax {
        Syntax::Integer(least, most) => {
            let below = least.max(column.least).checked_sub(1);
            values.extend(
                below
                    .into_iter()
                    .chain(most.checked_add(1))
                    .map(Value::Integer),
            );
        }
        Syntax::Octets(least, most) => {
            let short = least.checked_sub(1).map(|length| vec![0; length]);
            let bad = short.into_iter().chain([vec![0; most + 1]]);
            values.extend(bad.map(Value::Octets));
        }
        // Names of nothing.
        Syntax::Oid => values.retain(|value| *value != Value::Oid(Oid::new(&[1, 3]))),
        _ => {}
    }
    values
}

/// What a value of this type, length and range is told.
fn of_value(column: &Column, value: &Value) -> Result<(), SetError> {
    let bounded = |is_in: bool, error| if is_in { Ok(()) } else { Err(error) };
    match (column.syntax, value) {
        (Syntax::Integer(least, most), Value::Integer(number)) => bounded(
            *number >= least.max(column.least) && *number <= most,
            SetError::WrongValue,
        ),
        (Syntax::Octets(least, most), Value::Octets(octets)) => bounded(
            octets.len() >= least && octets.len() <= most,
            SetError::WrongLength,
        ),
        (Syntax::Oid, Value::Oid(_)) => Ok(()),
        (Syntax::RowStatus | Syntax::EntryStatus, Value::Integer(_)) => Ok(()),
        _ => Err(SetError::WrongType),
    }
}

fn set(probe: &mut Probe, values: &[(Oid, Value)]) -> Result<(), (usize, SetError)> {
    let mut change = probe.test(values)?;
    assert_eq!(probe.commit(&mut change), Ok(()));
    Ok(())
}

/// Lets a row be in some state; whether it can be.
fn enter(probe: &mut Probe, control: Control, state: State) -> bool {
    let owner = match control {
        Control::UserHistoryObject => Control::UserHistory,
        control => control,
    };
    let (table, index) = (owner.table().unwrap(), index(owner));
    let status = status(owner).unwrap();
    let [create, activate, _] = statuses(status);
    let status = name(owner, status, &index);
    let wanted = table.columns.iter();
    let wanted = wanted.filter(|it| it.is_stored() && it.default == crate::mib::Default::None);
    let wanted: Vec<_> = wanted
        .map(|column| (name(owner, column, &index), good(column, false)))
        .collect();
    // Its objects come with the number of them.
    let is_there = owner == control || state != State::Incomplete;
    if state != State::Absent {
        set(probe, &[(status.clone(), Value::Integer(create))]).unwrap();
    }
    if matches!(state, State::Inactive | State::Active) && !wanted.is_empty() {
        set(probe, &wanted).unwrap();
    }
    if state == State::Active {
        set(probe, &[(status, Value::Integer(activate))]).unwrap();
    }
    is_there && (state != State::Incomplete || !wanted.is_empty())
}

/// An interface, and a channel that filters and buffers can be of. There are thousands: the directory is small.
fn probe() -> Probe {
    let udp = [0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 17];
    let mut directory = Directory::empty();
    for layers in 1..=3 {
        let added = directory.add(udp[..4 * layers].to_vec(), vec![0; layers], None);
        added.unwrap();
    }
    let mut probe = Probe::with(directory);
    probe.add_interface(1, 0);
    let channel = |column| Oid::new(&RMON).child(&[7, 2, 1, column, 1]);
    for (column, value) in [(12, 2), (2, 1), (12, 1)] {
        set(&mut probe, &[(channel(column), Value::Integer(value))]).unwrap();
    }
    probe
}

/// A variable that could be set before another one.
fn before() -> (Oid, Value) {
    let most = Oid::new(&RMON).child(&[13, 3, 0]);
    (most, Value::Integer(77))
}

/// A probe with a row in some state, if there can be one, and its control rows as text.
fn begin(row: Option<Control>, state: State) -> Option<(Probe, String)> {
    let mut probe = probe();
    let is_there = row.is_none_or(|control| enter(&mut probe, control, state));
    let saved = probe.save();
    is_there.then_some((probe, saved))
}

/// Sets an object behind another one. What is refused leaves both as they were.
fn check(
    (probe, saved): &mut (Probe, String),
    (name, value): (&Oid, &Value),
    expected: Result<(), SetError>,
    of: &str,
) {
    let was = probe.get(&before().0);
    let done = set(probe, &[before(), (name.clone(), value.clone())]);
    let context = format!("{of} {name} = {value:?}");
    assert_eq!(done, expected.map_err(|error| (1, error)), "{context}");
    if expected.is_err() {
        assert_eq!(probe.save(), *saved, "{context}");
        assert_eq!(probe.get(&before().0), was, "{context}");
    }
}

/// The control table whose column it is, and the column there.
fn control_of(table: &Table, column: &'static Column) -> Option<(Control, &'static Column)> {
    match table.rows {
        Rows::Control(control) => Some((control, column)),
        Rows::Augments(control) => Some((control, control.column(column.number + AUGMENTING)?)),
        _ => None,
    }
}

#[test]
fn every_object_in_every_state_with_every_value() {
    let mut tried = 0;
    for table in TABLES {
        for shown in table.shown().filter(|column| !column.is_status()) {
            let of_control = control_of(table, shown).filter(|_| shown.access != Access::Read);
            let states = if of_control.is_some() {
                &STATES[..]
            } else {
                &STATES[..1]
            };
            for state in states {
                let begin = || begin(of_control.map(|it| it.0), *state);
                let Some(mut at) = begin() else {
                    continue;
                };
                let (index, column) = match of_control {
                    Some((control, column)) => (index(control), column),
                    // Scalars, but for ports that could be copied.
                    None if shown.access == Access::Create => (vec![1, 1], shown),
                    None => (vec![0], shown),
                };
                let object = Oid::new(&RMON).child(table.entry);
                let object = object.child(&[shown.number]).child(&index);
                for value in values(shown) {
                    let is_same = at.0.get(&object) == Ok(value.clone());
                    let expected = match (of_control, of_value(column, &value)) {
                        _ if shown.access == Access::Read => Err(SetError::NotWritable),
                        (_, Err(error)) => Err(error),
                        // No port is copied. The clock is the machine's, and it runs.
                        (None, _) if shown.access == Access::Create => Err(SetError::NoCreation),
                        (None, _) if shown.name == "probeDateTime" => {
                            Err(SetError::InconsistentValue)
                        }
                        (None, _)
                            if shown.name == "probeResetControl" && value != Value::Integer(1) =>
                        {
                            Err(SetError::InconsistentValue)
                        }
                        (None, _) => Ok(()),
                        (Some((Control::UserHistoryObject, _)), _) if *state == State::Absent => {
                            Err(SetError::NoCreation)
                        }
                        _ if *state == State::Absent => Err(SetError::InconsistentName),
                        _ if *state == State::Active
                            && value == Value::Integer(1)
                            && ["protocolDirHostConfig", "protocolDirMatrixConfig"]
                                .contains(&column.name) =>
                        {
                            Err(SetError::InconsistentValue)
                        }
                        _ if *state == State::Active && !column.is_live && !is_same => {
                            Err(SetError::InconsistentValue)
                        }
                        _ => Ok(()),
                    };
                    let of = format!("{} {state:?}", shown.name);
                    check(&mut at, (&object, &value), expected, &of);
                    // What the row does itself it shows in its own way.
                    let is_shown = expected.is_ok() && of_control.is_some();
                    if is_shown && !shown.name.ends_with("TimeRemaining") {
                        assert_eq!(at.0.get(&object), Ok(value), "{of}");
                    }
                    if expected.is_ok() {
                        at = begin().unwrap();
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 6_000, "{tried}");
}

/// RFC 2579 and RFC 2819: each status set in each state of each control table.
#[test]
fn every_status_in_every_state() {
    use State::{Absent, Active, Inactive, Incomplete};
    let mut tried = 0;
    for table in TABLES {
        let (Rows::Control(control), Some(column)) =
            (table.rows, table.columns.iter().find(|it| it.is_status()))
        else {
            continue;
        };
        for (state, value) in STATES
            .into_iter()
            .flat_map(|it| (-1..8).map(move |of| (it, of)))
        {
            let Some(mut at) = begin(Some(control), state) else {
                continue;
            };
            let has_defaults = begin(Some(control), Incomplete).is_none();
            let made = if has_defaults { Inactive } else { Incomplete };
            let is_row_status = column.syntax == Syntax::RowStatus;
            let after = match (is_row_status, value, state) {
                (_, 1, Inactive | Active) => Ok(Active),
                (_, 1, _) => Err(SetError::InconsistentValue),
                (true, 2, Absent) | (false, 3, Absent) => Err(SetError::InconsistentValue),
                (true, 2, Active) | (false, 3, Active) => Ok(Inactive),
                (true, 2, state) | (false, 3, state) => Ok(state),
                (true, 4, Absent) if has_defaults => Ok(Active),
                (true, 5, Absent) | (false, 2, Absent) => Ok(made),
                (true, 4 | 5, _) | (false, 2, _) => Err(SetError::InconsistentValue),
                (true, 6, _) | (false, 4, _) => Ok(Absent),
                _ => Err(SetError::WrongValue),
            };
            let object = name(control, column, &index(control));
            let of = format!("{} {state:?}", column.name);
            check(
                &mut at,
                (&object, &Value::Integer(value)),
                after.map(|_| ()),
                &of,
            );
            let shown = match after.unwrap_or(state) {
                Absent => Err(Missing::Instance),
                Active => Ok(Value::Integer(1)),
                Inactive if is_row_status => Ok(Value::Integer(2)),
                Incomplete | Inactive => Ok(Value::Integer(3)),
            };
            assert_eq!(at.0.get(&object), shown, "{of} {value}");
            tried += 1;
        }
    }
    assert!(tried > 600, "{tried}");
}
