//! One form for every table and scalar, and the [`Tree`] over all of them.
//!
//! A table is its entry's identifier, its columns, and a way to find rows: for rows of what was seen a function, for
//! control rows the name of the control table. Rows are found by their index only, the first one at or behind it; all
//! else (which column, where a walk goes on) is the same for all tables.

use core::ops::ControlFlow;

use smallvec::SmallVec;

use crate::control::{Change, Control};
use crate::declared::{GROUPS, TABLES};
use crate::probe::Probe;
use crate::station_rows::control_2;
use crate::{Missing, Notification, Oid, SetError, Ticks, Tree, Value};

/// 1.3.6.1.2.1.16
pub(crate) const RMON: [u32; 7] = [1, 3, 6, 1, 2, 1, 16];

/// The index of a row.
pub(crate) type Index = SmallVec<[u32; 36]>;

/// What an object's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// INTEGER from and to, enumerations included.
    Integer(i32, i32),
    /// OCTET STRING and BITS, of lengths from and to.
    Octets(usize, usize),
    Oid,
    Counter32,
    /// Gauge32, ZeroBasedCounter32.
    Gauge32,
    /// Counter64 and what is based on it.
    Counter64,
    TimeTicks,
    /// RowStatus (RFC 2579).
    RowStatus,
    /// EntryStatus (RFC 2819).
    EntryStatus,
}

impl Syntax {
    /// Whether values are numbers that can be compared.
    pub(crate) fn is_number(self) -> bool {
        !matches!(self, Syntax::Octets(..) | Syntax::Oid)
    }
}

/// What managers may do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Create,
}

/// What a column of a control row is before anyone sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Default {
    /// It has to be set.
    None,
    Integer(i32),
    Text(&'static str),
    /// `0.0`
    NoOid,
}

/// A column, or a scalar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) syntax: Syntax,
    pub(crate) access: Access,
    pub(crate) default: Default,
    /// The least integer that has a meaning, where the module allows more.
    pub(crate) least: i32,
    /// Whether it may change while the row is active.
    pub(crate) is_live: bool,
}

impl Column {
    pub(crate) const fn new(
        number: u32,
        name: &'static str,
        syntax: Syntax,
        access: Access,
    ) -> Column {
        Column {
            number,
            name,
            syntax,
            access,
            default: Default::None,
            least: i32::MIN,
            is_live: false,
        }
    }

    pub(crate) const fn or(self, default: Default) -> Column {
        Column { default, ..self }
    }

    pub(crate) const fn at_least(self, least: i32) -> Column {
        Column { least, ..self }
    }

    pub(crate) const fn live(self) -> Column {
        Column {
            is_live: true,
            ..self
        }
    }
}

/// The first row at `index` (with `include`) or behind it, and its value in a column.
pub(crate) type Find = fn(&mut Probe, &[u32], bool, u32) -> Option<(Index, Value)>;

/// What is added to the number of a column where it stands in the table that its own one augments.
pub(crate) const AUGMENTING: u32 = 1000;

/// How rows are found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    /// Columns of a control table that stand there, too, with [`AUGMENTING`] added to their numbers.
    Augments(Control),
    /// Scalars: one row, whose index is 0; the value of each.
    Scalars(fn(&mut Probe, u32) -> Option<Value>),
    Seen(Find),
    Control(Control),
    /// Dropped frames and creation of control rows.
    Created(Control),
}

/// A table, or the scalars of a group.
#[derive(Debug)]
pub(crate) struct Table {
    /// Of the entry, below [`RMON`].
    pub(crate) entry: &'static [u32],
    pub(crate) rows: Rows,
    pub(crate) columns: &'static [Column],
}

impl Table {
    pub(crate) const fn new(
        entry: &'static [u32],
        rows: Rows,
        columns: &'static [Column],
    ) -> Table {
        Table {
            entry,
            rows,
            columns,
        }
    }

    /// The columns that managers see here.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &'static Column> {
        let columns = self.columns.iter();
        columns.filter(|column| column.number < AUGMENTING)
    }

    fn find(
        &self,
        probe: &mut Probe,
        column: &Column,
        index: &[u32],
        include: bool,
    ) -> Option<(Index, Value)> {
        match self.rows {
            Rows::Scalars(value) => {
                let is_before = index.is_empty() || include && index == [0];
                let value = is_before.then(|| value(probe, column.number)).flatten()?;
                Some((SmallVec::from_slice(&[0]), value))
            }
            Rows::Seen(find) => find(probe, index, include, column.number),
            Rows::Control(control) => probe.control_row(control, index, include, column),
            Rows::Augments(control) => {
                let column = control.column(column.number + AUGMENTING)?;
                probe.control_row(control, index, include, column)
            }
            Rows::Created(control) => control_2(probe, control, index, include, column.number),
        }
    }
}

/// The table, column and index that a name below [`RMON`] says.
pub(crate) fn locate(name: &[u32]) -> Option<(&'static Table, &'static Column, &[u32])> {
    let name = name.strip_prefix(&RMON)?;
    TABLES.iter().find_map(|table| {
        let (number, index) = name.strip_prefix(table.entry)?.split_first()?;
        let column = table.shown().find(|column| column.number == *number)?;
        Some((table, column, index))
    })
}

impl Tree for Probe {
    type Change = Change;

    fn roots(&self) -> Vec<Oid> {
        let group = |group: &u32| Oid::new(&RMON).child(&[*group]);
        GROUPS.iter().map(group).collect()
    }

    fn set_zero(&mut self, zero: Ticks) {
        self.tables.clock.set_zero(zero);
    }

    fn get(&mut self, name: &Oid) -> Result<Value, Missing> {
        self.settle();
        let (table, column, index) = locate(name.numbers()).ok_or(Missing::Object)?;
        match table.find(self, column, index, true) {
            Some((found, value)) if found.as_slice() == index => Ok(value),
            _ => Err(Missing::Instance),
        }
    }

    fn next(&mut self, start: &Oid, include: bool, end: Option<&Oid>) -> Option<(Oid, Value)> {
        self.settle();
        let start = start.numbers();
        // Tables wholly before the name are passed over.
        let name = start.strip_prefix(&RMON);
        let first = match name {
            Some(name) => {
                let behind = TABLES.partition_point(|table| table.entry <= name);
                let last = behind.checked_sub(1).and_then(|last| TABLES.get(last));
                let is_below = |table: &Table| name.starts_with(table.entry);
                behind - usize::from(last.is_some_and(is_below))
            }
            None if start < RMON.as_slice() => 0,
            None => return None,
        };
        let found = TABLES[first..].iter().try_for_each(|table| {
            let below = name.and_then(|name| name.strip_prefix(table.entry));
            let (number, index) = below.and_then(<[u32]>::split_first).unwrap_or((&0, &[]));
            for column in table.shown().filter(|column| column.number >= *number) {
                let (index, include) = match column.number == *number {
                    true => (index, include),
                    false => (&[][..], true),
                };
                if let Some((index, value)) = table.find(self, column, index, include) {
                    return ControlFlow::Break((table, column.number, index, value));
                }
            }
            ControlFlow::Continue(())
        });
        let (table, column, index, value) = found.break_value()?;
        let name = Oid::new(&RMON)
            .child(table.entry)
            .child(&[column])
            .child(&index);
        end.is_none_or(|end| name < *end).then_some((name, value))
    }

    fn test(&mut self, set: &[(Oid, Value)]) -> Result<Change, (usize, SetError)> {
        self.test_set(set)
    }

    fn commit(&mut self, change: &mut Change) -> Result<(), usize> {
        self.commit_set(change)
    }

    fn undo(&mut self, change: Change) -> Result<(), usize> {
        self.undo_set(change)
    }

    fn notifications(&mut self) -> Vec<Notification> {
        core::mem::take(&mut self.notifications)
    }
}

/// All tables and groups of scalars, below 1.3.6.1.2.1.16, and the numbers of their objects that can be reached.
pub fn declared() -> Vec<(Oid, Vec<u32>)> {
    let tables = TABLES.iter();
    let columns = |table: &Table| table.shown().map(|column| column.number).collect();
    tables
        .map(|table| (Oid::new(table.entry), columns(table)))
        .collect()
}
