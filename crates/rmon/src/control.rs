//! Control rows: what managers ask for, set in two phases.
//!
//! A row has a value, or none yet, for each column that can be set, and is active or not. [`Probe::test_set`] applies all
//! of a set to copies of the rows; committing puts the copies in place and starts and stops what they ask for
//! ([`crate::effects`]). What stops is kept with the change, so that undoing it loses nothing; consequences for other
//! rows wait until the change is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::declared::TABLES;
use crate::effects::{Resume, integer};
use crate::mib::{AUGMENTING, Access, Column, Default, Index, Rows, Syntax, Table, locate};
use crate::probe::Probe;
use crate::{Oid, SetError, Value};

/// The control tables, by the names that they have in MIB modules.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr,
)]
pub(crate) enum Control {
    #[strum(serialize = "protocolDirTable")]
    Directory,
    #[strum(serialize = "protocolDistControlTable")]
    Dist,
    #[strum(serialize = "addressMapControlTable")]
    Map,
    #[strum(serialize = "hlHostControlTable")]
    Hosts,
    #[strum(serialize = "hlMatrixControlTable")]
    Matrix,
    #[strum(serialize = "nlMatrixTopNControlTable")]
    NlTopN,
    #[strum(serialize = "alMatrixTopNControlTable")]
    AlTopN,
    #[strum(serialize = "usrHistoryControlTable")]
    UserHistory,
    #[strum(serialize = "usrHistoryObjectTable")]
    UserHistoryObject,
    #[strum(serialize = "etherStatsTable")]
    Ether,
    #[strum(serialize = "historyControlTable")]
    History,
    #[strum(serialize = "alarmTable")]
    Alarm,
    #[strum(serialize = "eventTable")]
    Event,
    #[strum(serialize = "hostControlTable")]
    Stations,
    #[strum(serialize = "hostTopNControlTable")]
    StationTopN,
    #[strum(serialize = "matrixControlTable")]
    StationPairs,
    #[strum(serialize = "smonVlanStatsControlTable")]
    Vlans,
    #[strum(serialize = "smonPrioStatsControlTable")]
    Priorities,
    #[strum(serialize = "channelTable")]
    Channel,
    #[strum(serialize = "filterTable")]
    Filter,
    #[strum(serialize = "bufferControlTable")]
    Buffer,
}

impl Control {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    /// Its column of this number.
    pub(crate) fn column(self, number: u32) -> Option<&'static Column> {
        let mut columns = self.table()?.columns.iter();
        columns.find(|column| column.number == number)
    }

    /// Where managers see a column: the entry below [`crate::mib::RMON`], and the number.
    pub(crate) fn place(self, number: u32) -> Option<(&'static [u32], u32)> {
        let Some(number) = number.checked_sub(AUGMENTING) else {
            return Some((self.table()?.entry, number));
        };
        let is_it = |table: &&Table| matches!(table.rows, Rows::Augments(of) if of == self);
        Some((TABLES.iter().find(is_it)?.entry, number))
    }

    /// Its declaration.
    pub(crate) fn table(self) -> Option<&'static Table> {
        let is_it =
            |table: &&Table| matches!(table.rows, Rows::Control(control) if control == self);
        TABLES.iter().find(is_it)
    }
}

/// A control row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlRow {
    /// By place of the column in the table; of those that cannot be set, nothing.
    pub(crate) values: Vec<Option<Value>>,
    pub(crate) active: bool,
    /// When it was made, as a stamp.
    pub(crate) created: u32,
    /// How often a report was begun by setting its remaining time, to whatever value.
    pub(crate) begun: u32,
}

impl ControlRow {
    pub(crate) fn new(columns: &[Column]) -> ControlRow {
        let default = |column: &Column| match column.default {
            Default::None => None,
            Default::Integer(number) => Some(Value::Integer(number)),
            Default::NoOid => Some(Value::Oid(Oid::new(&[0, 0]))),
            Default::Text(text) => Some(Value::Octets(text.into())),
        };
        ControlRow {
            values: columns.iter().map(default).collect(),
            active: false,
            created: 0,
            begun: 0,
        }
    }

    /// Whether all that has to be set is.
    fn is_complete(&self, table: &Table) -> bool {
        let mut columns = table.columns.iter().zip(&self.values);
        columns.all(|(column, value)| value.is_some() || !column.is_stored())
    }

    pub(crate) fn value(&self, table: &Table, number: u32) -> Option<&Value> {
        let mut columns = table.columns.iter().zip(&self.values);
        columns
            .find(|(column, _)| column.number == number)?
            .1
            .as_ref()
    }
}

impl Column {
    pub(crate) fn is_status(&self) -> bool {
        matches!(self.syntax, Syntax::RowStatus | Syntax::EntryStatus)
    }

    /// Whether it says which interface a row is of.
    pub(crate) fn names_interface(&self) -> bool {
        self.name.ends_with("DataSource") || self.name == "channelIfIndex"
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.access != Access::Read && !self.is_status()
    }

    /// Whether a value has this column's type, length and range.
    fn check(&self, value: &Value) -> Result<(), SetError> {
        let is_right = match (self.syntax, value) {
            (Syntax::Integer(least, most), Value::Integer(number)) => {
                return (least.max(self.least)..=most)
                    .contains(number)
                    .then_some(())
                    .ok_or(SetError::WrongValue);
            }
            (Syntax::RowStatus, Value::Integer(number)) => {
                let known = matches!(number, 1 | 2 | 4..=6);
                return known.then_some(()).ok_or(SetError::WrongValue);
            }
            (Syntax::EntryStatus, Value::Integer(number)) => {
                let known = matches!(number, 1..=4);
                return known.then_some(()).ok_or(SetError::WrongValue);
            }
            (Syntax::Octets(least, most), Value::Octets(octets)) => {
                let fits = (least..=most).contains(&octets.len());
                return fits.then_some(()).ok_or(SetError::WrongLength);
            }
            (Syntax::Oid, Value::Oid(_)) => true,
            _ => false,
        };
        is_right.then_some(()).ok_or(SetError::WrongType)
    }
}

/// Control rows at most, the protocols of the directory among them.
const MOST: usize = 32_768;

/// Control rows by table and index.
pub(crate) type Controls = BTreeMap<(Control, Vec<u32>), ControlRow>;

/// What a status asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Create { active: bool },
    Activate,
    Deactivate,
    Destroy,
}

/// The statuses of RFC 2579 and of RFC 2819 (valid, createRequest, underCreation, invalid).
fn request(syntax: Syntax, value: i32) -> Request {
    match (syntax, value) {
        (Syntax::RowStatus, 4) => Request::Create { active: true },
        (Syntax::RowStatus, 5) | (Syntax::EntryStatus, 2) => Request::Create { active: false },
        (_, 1) => Request::Activate,
        (Syntax::RowStatus, 2) | (Syntax::EntryStatus, 3) => Request::Deactivate,
        _ => Request::Destroy,
    }
}

/// What a name says, as [`locate`]; of a table that augments another one the column there.
fn locate_control(name: &Oid) -> Option<(&'static Table, &'static Column, &[u32])> {
    let found = locate(name.numbers())?;
    let (Rows::Augments(control), number) = (found.0.rows, found.1.number) else {
        return Some(found);
    };
    let column = control.column(number + AUGMENTING)?;
    Some((control.table()?, column, found.2))
}

/// Objects of a user history at most, and of all of them.
pub(crate) const MOST_OBJECTS: i32 = 256;
pub(crate) const MOST_OBJECTS_OF_ALL: i32 = 4096;

fn begun(row: &Option<ControlRow>) -> u32 {
    row.as_ref().map_or(0, |row| row.begun)
}

/// A row before and after a set.
#[derive(Debug)]
struct RowChange {
    control: Control,
    index: Vec<u32>,
    /// Of the variable that is blamed if it cannot be done.
    position: usize,
    before: Option<ControlRow>,
    after: Option<ControlRow>,
    stopped: Option<Resume>,
}

/// A scalar before and after.
#[derive(Debug)]
struct ScalarChange {
    before: i32,
    after: i32,
}

/// A set that was tested: see [`crate::Tree`].
#[derive(Debug, Default)]
pub struct Change {
    rows: Vec<RowChange>,
    /// addressMapMaxDesiredEntries.
    map: Option<ScalarChange>,
    /// As long as it is there, consequences wait.
    pub(crate) held: Arc<()>,
}

impl RowChange {
    fn request(&mut self, table: &Table, request: Request) -> Result<(), SetError> {
        match (request, &mut self.after) {
            (Request::Destroy, after) => *after = None,
            (Request::Create { active }, after @ None) => {
                *after = Some(ControlRow {
                    active,
                    ..ControlRow::new(table.columns)
                });
            }
            (Request::Activate, Some(row)) => row.active = true,
            (Request::Deactivate, Some(row)) => row.active = false,
            (Request::Create { .. }, Some(_)) | (_, None) => {
                return Err(SetError::InconsistentValue);
            }
        }
        Ok(())
    }

    fn set(&mut self, table: &Table, column: &Column, value: &Value) -> Result<(), SetError> {
        let was_active = self.before.as_ref().is_some_and(|row| row.active);
        let row = self.after.as_mut().ok_or(SetError::InconsistentName)?;
        let mut columns = table.columns.iter().zip(&mut row.values);
        let found = columns.find(|(other, _)| other.number == column.number);
        let (_, place) = found.ok_or(SetError::General)?;
        if was_active && row.active && !column.is_live && place.as_ref() != Some(value) {
            return Err(SetError::InconsistentValue);
        }
        *place = Some(value.clone());
        if column.name.ends_with("TimeRemaining") {
            row.begun += 1;
        }
        Ok(())
    }
}

impl Probe {
    /// The first control row at `index` or behind it that has a value in this column.
    pub(crate) fn control_row(
        &mut self,
        control: Control,
        index: &[u32],
        include: bool,
        column: &Column,
    ) -> Option<(Index, Value)> {
        let table = control.table()?;
        let rows = self.controls.range((control, index.to_vec())..);
        let mut rows = rows.take_while(|((other, _), _)| *other == control);
        rows.find_map(|((_, found), row)| {
            let is_before = found.as_slice() > index || include;
            let value =
                is_before.then(|| self.control_value(control, table, found, row, column))??;
            Some((SmallVec::from_slice(found), value))
        })
    }

    fn control_value(
        &self,
        control: Control,
        table: &Table,
        index: &[u32],
        row: &ControlRow,
        column: &Column,
    ) -> Option<Value> {
        let status = match column.syntax {
            Syntax::RowStatus | Syntax::EntryStatus if row.active => 1,
            Syntax::RowStatus if row.is_complete(table) => 2,
            Syntax::RowStatus | Syntax::EntryStatus => 3,
            _ => 0,
        };
        if status != 0 {
            return Some(Value::Integer(status));
        }
        let computed = self.computed(control, index, column.number);
        // 0 is the default of what is decided when the row becomes active.
        let stored = row.value(table, column.number);
        computed.or_else(|| stored.filter(|value| column.check(value).is_ok()).cloned())
    }

    /// See [`crate::Tree::test`].
    pub(crate) fn test_set(&mut self, set: &[(Oid, Value)]) -> Result<Change, (usize, SetError)> {
        self.settle();
        let mut change = Change::default();
        let mut statuses: Vec<(usize, usize, Request)> = Vec::new();
        for (position, (name, value)) in set.iter().enumerate() {
            let fail = |error| (position, error);
            let found = locate_control(name).ok_or(fail(SetError::NoCreation))?;
            let (table, column, index) = found;
            if column.access == Access::Read {
                return Err(fail(SetError::NotWritable));
            }
            column.check(value).map_err(fail)?;
            let Rows::Control(control) = table.rows else {
                self.test_scalar(&mut change, column, index, value)
                    .map_err(fail)?;
                continue;
            };
            let is_known = self.controls.contains_key(&(control, index.to_vec()));
            if !is_known {
                self.check_index(control, index).map_err(fail)?;
            }
            let row = self.changed_row(&mut change, control, index, position);
            if let (true, Value::Integer(status)) = (column.is_status(), value) {
                statuses.push((row, position, request(column.syntax, *status)));
            }
        }
        for (row, position, request) in statuses {
            let table = change.rows[row].control.table();
            let requested = table.ok_or(SetError::General);
            let requested = requested.and_then(|table| change.rows[row].request(table, request));
            requested.map_err(|error| (position, error))?;
            change.rows[row].position = position;
        }
        for (position, (name, value)) in set.iter().enumerate() {
            let Some((table, column, index)) = locate_control(name) else {
                continue;
            };
            let Rows::Control(control) = table.rows else {
                continue;
            };
            let row = self.changed_row(&mut change, control, index, position);
            if !column.is_status() {
                change.rows[row]
                    .set(table, column, value)
                    .map_err(|error| (position, error))?;
            }
        }
        self.follow_objects(&mut change);
        let mut rows = self.controls.len();
        for row in &change.rows {
            let is_new = row.before.is_none() && row.after.is_some();
            rows += usize::from(is_new);
            if is_new && rows > MOST {
                return Err((row.position, SetError::ResourceUnavailable));
            }
            self.test_row(row).map_err(|error| (row.position, error))?;
        }
        Ok(change)
    }

    fn test_scalar(
        &self,
        change: &mut Change,
        column: &Column,
        index: &[u32],
        value: &Value,
    ) -> Result<(), SetError> {
        if index != [0] {
            return Err(SetError::NoCreation);
        }
        match (column.name, value) {
            ("addressMapMaxDesiredEntries", Value::Integer(after)) => {
                let before = self.tables.map.network.desired;
                change.map = Some(ScalarChange {
                    before,
                    after: *after,
                });
                Ok(())
            }
            // It runs, and the clock is the machine's.
            ("probeResetControl", Value::Integer(1)) => Ok(()),
            _ => Err(SetError::InconsistentValue),
        }
    }

    /// The place in `change` of a row, which is put there as it is now.
    fn changed_row(
        &self,
        change: &mut Change,
        control: Control,
        index: &[u32],
        position: usize,
    ) -> usize {
        let is_it = |row: &RowChange| row.control == control && row.index == index;
        change.rows.iter().position(is_it).unwrap_or_else(|| {
            let now = self.controls.get(&(control, index.to_vec()));
            change.rows.push(RowChange {
                control,
                index: index.to_vec(),
                position,
                before: now.cloned(),
                after: now.cloned(),
                stopped: None,
            });
            change.rows.len() - 1
        })
    }

    /// A user history has as many objects as its control row says: rows that come and go with it.
    fn follow_objects(&self, change: &mut Change) {
        for at in 0..change.rows.len() {
            let RowChange {
                control: Control::UserHistory,
                position,
                ref after,
                ..
            } = change.rows[at]
            else {
                continue;
            };
            let wanted = after
                .as_ref()
                .map_or(0, |row| integer(Control::UserHistory, row, 2));
            let wanted = wanted.clamp(0, MOST_OBJECTS + 1) as u32;
            let row = change.rows[at].index[0];
            let table = Control::UserHistoryObject.table();
            let known = (Control::UserHistoryObject, vec![row])
                ..(Control::UserHistoryObject, vec![row + 1]);
            let known = self
                .controls
                .range(known)
                .map(|((_, index), _)| index[1])
                .max();
            for object in 1..=known.unwrap_or(0).max(wanted) {
                let index = [row, object];
                let at = self.changed_row(change, Control::UserHistoryObject, &index, position);
                let after = &mut change.rows[at].after;
                if object > wanted {
                    *after = None;
                } else if let (None, Some(table)) = (&after, table) {
                    *after = Some(ControlRow::new(table.columns));
                }
            }
        }
        // Those that come have to be there when their history begins.
        change
            .rows
            .sort_by_key(|row| row.control != Control::UserHistoryObject);
    }

    /// Whether a row can be as it is to be.
    fn test_row(&self, row: &RowChange) -> Result<(), SetError> {
        let Some(after) = row.after.as_ref() else {
            return Ok(());
        };
        let table = row.control.table().ok_or(SetError::General)?;
        if after.active && !after.is_complete(table) {
            return Err(SetError::InconsistentValue);
        }
        if row.control == Control::UserHistoryObject && row.before.as_ref() != Some(after) {
            return self.check_object(&row.index, after);
        }
        // What takes memory is bounded before it is active, too.
        if after.active || row.before.is_none() || row.control == Control::UserHistory {
            return self.check_row(row.control, &row.index, after);
        }
        Ok(())
    }

    /// See [`crate::Tree::commit`].
    pub(crate) fn commit_set(&mut self, change: &mut Change) -> Result<(), usize> {
        self.settle();
        for at in 0..change.rows.len() {
            let row = &change.rows[at];
            let now = self.controls.get(&(row.control, row.index.clone()));
            let is_as_tested = now == row.before.as_ref();
            let held = Arc::clone(&change.held);
            if !is_as_tested || self.apply(&mut change.rows[at], &held).is_err() {
                let position = change.rows[at].position;
                for row in change.rows[..at].iter_mut().rev() {
                    self.revert(row);
                }
                return Err(position);
            }
        }
        for row in &change.rows {
            self.stop_waiting(row.control, &row.index);
        }
        if let Some(map) = &change.map {
            self.desire_map_entries(map.after, &change.held);
        }
        self.changes += 1;
        self.schedule();
        Ok(())
    }

    /// See [`crate::Tree::undo`].
    pub(crate) fn undo_set(&mut self, mut change: Change) -> Result<(), usize> {
        self.settle();
        // What was to follow does not.
        let held = Arc::downgrade(&change.held);
        self.consequences.retain(|(other, _)| !other.ptr_eq(&held));
        for row in change.rows.iter_mut().rev() {
            self.revert(row);
        }
        if let Some(map) = &change.map {
            self.desire_map_entries(map.before, &change.held);
            self.consequences.retain(|(other, _)| !other.ptr_eq(&held));
        }
        self.changes += 1;
        self.schedule();
        Ok(())
    }

    fn apply(&mut self, row: &mut RowChange, held: &Arc<()>) -> Result<(), SetError> {
        let was_active = row.before.as_ref().is_some_and(|row| row.active);
        let is_active = row.after.as_ref().is_some_and(|row| row.active);
        if was_active && !is_active {
            row.stopped = self.stop(row.control, &row.index, Some(held));
        }
        let created = row
            .before
            .as_ref()
            .map_or(self.tables.clock.stamp, |row| row.created);
        let after = row
            .after
            .clone()
            .map(|after| ControlRow { created, ..after });
        self.put(row.control, &row.index, after);
        match (was_active, is_active) {
            (false, true) => {
                let started = self.start(row.control, &row.index);
                if started.is_err() {
                    self.put(row.control, &row.index, row.before.clone());
                }
                started
            }
            (true, true) if begun(&row.before) != begun(&row.after) => {
                row.stopped = self.stop(row.control, &row.index, Some(held));
                self.start(row.control, &row.index)
            }
            (true, true) => {
                self.change(row.control, &row.index, row.before.as_ref(), Some(held));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn revert(&mut self, row: &mut RowChange) {
        let was_active = row.before.as_ref().is_some_and(|row| row.active);
        let is_active = row.after.as_ref().is_some_and(|row| row.active);
        if is_active && (!was_active || row.stopped.is_some()) {
            self.stop(row.control, &row.index, None);
        }
        self.put(row.control, &row.index, row.before.clone());
        if let Some(stopped) = row.stopped.take() {
            self.resume(stopped);
        } else if was_active && is_active {
            self.change(row.control, &row.index, row.after.as_ref(), None);
        }
    }

    fn put(&mut self, control: Control, index: &[u32], row: Option<ControlRow>) {
        self.captured.is_stale |= control == Control::Filter;
        let key = (control, index.to_vec());
        match row {
            Some(row) => self.controls.insert(key, row),
            None => self.controls.remove(&key),
        };
    }
}
