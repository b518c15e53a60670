//! Control rows as text (TOML), to be there again after a restart.
//!
//! Only what differs from the rows that a probe has from the start is written: rows that managers made or changed, and
//! those that they destroyed. Rows that count begin anew when they are read.
//!
//! ```toml
//! [[row]]
//! table = "hlHostControlTable"
//! index = "1"
//! state = "active"
//! [row.values]
//! hlHostControlDataSource = "eth0"
//! hlHostControlNlMaxDesiredEntries = 1000
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Value as Cell;

use crate::control::{Control, ControlRow};
use crate::keys::IF_INDEX;
use crate::mib::{Column, RMON, Syntax, Table};
use crate::others;
use crate::probe::Probe;
use crate::{Oid, SetError, Value};

/// Of RowStatus.
const CREATE_AND_GO: i32 = 4;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    row: Vec<SavedRow>,
}

/// A control row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedRow {
    table: String,
    index: String,
    state: State,
    #[serde(default)]
    values: BTreeMap<String, Cell>,
}

/// A control row that is kept as it is, and why it was not taken.
#[derive(Debug)]
pub(crate) struct Untaken {
    /// Its number in the file, from 1.
    number: usize,
    row: SavedRow,
    why: Option<LoadError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Active,
    Inactive,
    Destroyed,
}

/// Why control rows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not TOML of this form; the message says where.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// There is no control table of this name.
    #[error(
        "row {row}: unknown table {table:?}\nhint: a table of control rows, as hlHostControlTable"
    )]
    Table {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The name.
        table: String,
    },
    /// An index is no list of numbers.
    #[error("row {row}: {index:?} is not an index (numbers with dots between)")]
    Index {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The text.
        index: String,
    },
    /// The table has no such column that can be set.
    #[error(
        "row {row}: {table} {index}: {column} is not a column that can be set\nhint: columns are named as in the MIB module; state stands for the status"
    )]
    Column {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The column.
        column: String,
    },
    /// A column cannot have this value.
    #[error("row {row}: {table} {index}: {column} = {value} cannot be\nhint: it takes {takes}")]
    Cell {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The column.
        column: &'static str,
        /// The value, as in the file.
        value: String,
        /// What is right.
        takes: String,
    },
    /// The row names an interface that is not there.
    #[error("row {row}: {table} {index}: there is no interface {interface:?}")]
    Gone {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The name.
        interface: String,
    },
    /// The row names an object of another agent, and none is read.
    #[error(
        "row {row}: {table} {index}: {column} is an object of another agent\nhint: --snmp FILE (snmp in a sensor's [rmon]) says as which SNMP user it is read"
    )]
    Unasked {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The column.
        column: String,
    },
    /// The row is refused, as it would be if a manager set it.
    #[error("row {row}: {table} {index} is refused ({error}){hint}")]
    Refused {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The table.
        table: String,
        /// The index.
        index: String,
        /// The error that a manager would get.
        error: SetError,
        /// The likely cause.
        hint: &'static str,
    },
}

impl LoadError {
    /// Whether it is about what is not there yet.
    pub fn waits(&self) -> bool {
        match self {
            LoadError::Refused { error, .. } => *error == SetError::InconsistentValue,
            LoadError::Gone { .. } => true,
            _ => false,
        }
    }
}

impl Probe {
    /// The control rows that differ from those at the start, as text for [`Probe::load`].
    pub fn save(&self) -> String {
        let mut file = File::default();
        let keys = self.initial.keys().chain(self.controls.keys());
        let keys: std::collections::BTreeSet<_> = keys.collect();
        let rows = keys.into_iter().filter(|(control, index)| {
            let mut waiting = self.waiting.iter();
            !waiting.any(|it| it.row.is_of(*control, index))
        });
        for key in rows {
            let (initial, now) = (self.initial.get(key), self.controls.get(key));
            let is_same = match (initial, now) {
                (Some(initial), Some(now)) => {
                    initial.values == now.values && initial.active == now.active
                }
                _ => false,
            };
            let (control, index) = key;
            let Some(table) = control.table().filter(|_| !is_same) else {
                continue;
            };
            let state = match now {
                None => State::Destroyed,
                Some(row) if row.active => State::Active,
                Some(_) => State::Inactive,
            };
            file.row.push(SavedRow {
                table: control.name().to_owned(),
                index: Oid::new(index).to_string(),
                state,
                values: now.map_or_else(BTreeMap::new, |row| self.stored(table, row, initial)),
            });
        }
        file.row
            .extend(self.waiting.iter().map(|it| it.row.clone()));
        toml::to_string(&file).unwrap_or_default()
    }

    /// Sets control rows from text that [`Probe::save`] has written, or that has been written by hand. Rows that cannot be
    /// taken are [told](Probe::untaken), saved as they are, and tried again when an interface comes.
    ///
    /// # Errors
    /// The text has another form.
    pub fn load(&mut self, text: &str) -> Result<(), LoadError> {
        let file: File = toml::from_str(text)?;
        let rows = (1..).zip(file.row);
        self.waiting.extend(rows.map(|(number, row)| Untaken {
            number,
            row,
            why: None,
        }));
        self.load_waiting();
        Ok(())
    }

    /// Why rows that were loaded are not taken.
    pub fn untaken(&self) -> impl Iterator<Item = &LoadError> {
        self.waiting.iter().filter_map(|row| row.why.as_ref())
    }

    /// Takes the rows whose interfaces have come. What they change is in the file already.
    pub(crate) fn load_waiting(&mut self) {
        let changes = self.changes;
        loop {
            let rows = core::mem::take(&mut self.waiting);
            let (count, objects) = (rows.len(), Control::UserHistoryObject.name());
            // Objects of user histories come with the rows of those, which have to be inactive for it.
            let (objects, rows) = rows.into_iter().partition(|it| it.row.table == objects);
            let (rows, mut left) = self.load_rows(rows, false);
            left.extend(self.load_rows(objects, true).1);
            let is_active = |it: &Untaken| {
                it.row.state == State::Active && it.row.table != Control::Directory.name()
            };
            let active = rows.into_iter().filter(is_active).collect();
            left.extend(self.load_rows(active, true).1);
            left.sort_by_key(|it| it.number);
            let is_over = left.is_empty() || left.len() == count;
            self.waiting = left;
            // Rows may be of others that stand behind them.
            if is_over {
                break;
            }
        }
        self.changes = changes;
    }

    /// Returns the rows that were taken, and those that were not.
    fn load_rows(&mut self, rows: Vec<Untaken>, activate: bool) -> (Vec<Untaken>, Vec<Untaken>) {
        let tried = rows.into_iter().map(|it| Untaken {
            why: self.load_row(it.number, &it.row, activate).err(),
            ..it
        });
        tried.partition(|it| it.why.is_none())
    }

    /// A row that a manager has set waits for nothing any more.
    pub(crate) fn stop_waiting(&mut self, control: Control, index: &[u32]) {
        self.waiting.retain(|it| !it.row.is_of(control, index));
    }

    fn load_row(&mut self, number: usize, row: &SavedRow, activate: bool) -> Result<(), LoadError> {
        let control: Control = row.table.parse().map_err(|_| LoadError::Table {
            row: number,
            table: row.table.clone(),
        })?;
        let Some(table) = control.table() else {
            return Ok(());
        };
        let index = row.index.parse::<Oid>().map_err(|_| LoadError::Index {
            row: number,
            index: row.index.clone(),
        })?;
        let index = index.numbers();
        let name = |column: u32| {
            let (entry, column) = control.place(column).unwrap_or((table.entry, column));
            Oid::new(&RMON).child(entry).child(&[column]).child(index)
        };
        let status = table.columns.iter().find(|column| column.is_status());
        let is_known = self.controls.contains_key(&(control, index.to_vec()));
        // createAndWait, notInService, destroy, active; createRequest, underCreation, invalid, valid.
        let statuses = match status.map(|status| status.syntax) {
            Some(Syntax::RowStatus) => [5, 2, 6, 1],
            _ => [2, 3, 4, 1],
        };
        // Protocols are below others, so they are active at once, and can be changed as they are.
        let at_once = control == Control::Directory && row.state == State::Active;
        let wanted = match (row.state, is_known) {
            (State::Destroyed, _) => statuses[2],
            _ if at_once && is_known => statuses[3],
            _ if at_once => CREATE_AND_GO,
            _ if activate => statuses[3],
            (_, true) => statuses[1],
            (_, false) => statuses[0],
        };
        let are_asked = self.questions.are_asked;
        let refused = |error, column: Option<&Column>| {
            let cell = column.and_then(|column| Some((column, row.values.get(column.name)?)));
            match (error, cell) {
                (SetError::WrongValue | SetError::WrongLength, Some((column, cell))) => {
                    row.bad_cell(number, column, cell)
                }
                (SetError::InconsistentValue, _) if !are_asked => {
                    let unasked = row.unasked(number);
                    unasked.unwrap_or_else(|| row.refused(number, error))
                }
                _ => row.refused(number, error),
            }
        };
        let mut set = Vec::new();
        let mut set_columns = Vec::new();
        if let Some(status) = status {
            set.push((name(status.number), Value::Integer(wanted)));
            set_columns.push(status);
        }
        if !activate || status.is_none() {
            for (column, cell) in &row.values {
                let mut columns = table.columns.iter();
                let known = columns.find(|known| known.name == column && known.is_stored());
                let known = known.ok_or_else(|| LoadError::Column {
                    row: number,
                    table: row.table.clone(),
                    index: row.index.clone(),
                    column: column.clone(),
                })?;
                let value = self.value(known, cell).ok_or_else(|| match cell {
                    Cell::String(interface)
                        if known.names_interface() && !is_numbers(interface) =>
                    {
                        LoadError::Gone {
                            row: number,
                            table: row.table.clone(),
                            index: row.index.clone(),
                            interface: interface.clone(),
                        }
                    }
                    _ => row.bad_cell(number, known, cell),
                })?;
                set.push((name(known.number), value));
                set_columns.push(known);
            }
        }
        let mut change = self
            .test_set(&set)
            .map_err(|(at, error)| refused(error, set_columns.get(at).copied()))?;
        let mut columns = table.columns.iter();
        // One that an interface has from the start comes with that.
        if row.state == State::Active
            && !is_known
            && columns
                .any(|column| column.names_interface() && !row.values.contains_key(column.name))
        {
            return Err(refused(SetError::InconsistentValue, None));
        }
        let done = self.commit_set(&mut change);
        done.map_err(|_| refused(SetError::CommitFailed, None))
    }
}

impl SavedRow {
    fn refused(&self, number: usize, error: SetError) -> LoadError {
        LoadError::Refused {
            row: number,
            table: self.table.clone(),
            index: self.index.clone(),
            error,
            hint: match error {
                SetError::InconsistentValue => {
                    "\nhint: an interface, row or object that it names is not there, or a column is missing"
                }
                SetError::NoCreation => "\nhint: the index does not belong to this table",
                SetError::ResourceUnavailable => {
                    "\nhint: there are as many as there may be (docs/rmon.md, The tables)"
                }
                _ => "",
            },
        }
    }

    /// That it names an object of another agent, if it does.
    fn unasked(&self, number: usize) -> Option<LoadError> {
        let is_of_others = |cell: &Cell| {
            let name = cell.as_str().and_then(|text| text.parse().ok());
            name.is_some_and(|name| others::is_of_others(&name))
        };
        let mut variables = self.values.iter();
        let (column, _) =
            variables.find(|(column, cell)| column.ends_with("Variable") && is_of_others(cell))?;
        Some(LoadError::Unasked {
            row: number,
            table: self.table.clone(),
            index: self.index.clone(),
            column: column.clone(),
        })
    }

    fn bad_cell(&self, number: usize, column: &Column, cell: &Cell) -> LoadError {
        let takes = match column.syntax {
            _ if column.names_interface() => "the name of an interface, in quotes".to_owned(),
            Syntax::Integer(least, most) => {
                format!("a number of {} to {most}", least.max(column.least))
            }
            Syntax::Octets(least, most) => {
                format!("{least} to {most} octets, as text in quotes or as \"0x...\"")
            }
            _ => "an object identifier in quotes, as \"1.3.6.1.2.1.16.1.1.1.5.1\"".to_owned(),
        };
        LoadError::Cell {
            row: number,
            table: self.table.clone(),
            index: self.index.clone(),
            column: column.name,
            value: cell.to_string(),
            takes,
        }
    }
}

impl SavedRow {
    fn is_of(&self, control: Control, index: &[u32]) -> bool {
        self.table == control.name() && self.index == Oid::new(index).to_string()
    }
}

impl Probe {
    /// The values of a row that are not those it has by itself. Interfaces have their names, which stay when their numbers
    /// do not.
    fn stored(
        &self,
        table: &Table,
        row: &ControlRow,
        initial: Option<&ControlRow>,
    ) -> BTreeMap<String, Cell> {
        let default = ControlRow::new(table.columns);
        let usual = &initial.unwrap_or(&default).values;
        let columns = table.columns.iter().zip(&row.values).zip(usual);
        let differing =
            columns.filter(|((column, value), usual)| column.is_stored() && value != usual);
        let stored = differing.filter_map(|((column, value), _)| {
            let value = value.as_ref()?;
            let name = self.name_of(column, value);
            let cell = match value {
                _ if name.is_some() => name?.into(),
                Value::Integer(number) => (*number).into(),
                Value::Oid(identifier) => identifier.to_string().into(),
                Value::Octets(octets) => text(octets).into(),
                _ => return None,
            };
            Some((column.name.to_owned(), cell))
        });
        stored.collect()
    }

    /// The name of the interface that a column names.
    fn name_of(&self, column: &Column, value: &Value) -> Option<String> {
        let number = match value {
            Value::Integer(number) if column.names_interface() => number.cast_unsigned(),
            Value::Oid(source) => *source.numbers().strip_prefix(&IF_INDEX)?.first()?,
            _ => return None,
        };
        let mut interfaces = self.interfaces.iter();
        let found = interfaces.find(|interface| interface.number == number)?;
        (!found.name.is_empty()).then(|| found.name.clone())
    }

    fn value(&self, column: &Column, cell: &Cell) -> Option<Value> {
        if let (true, Cell::String(text)) = (column.names_interface(), cell)
            && let Some(place) = self.interface_of(text).filter(|_| !text.is_empty())
        {
            let number = self.interfaces[place].number;
            return Some(match column.syntax {
                Syntax::Integer(..) => Value::Integer(number.cast_signed()),
                _ => Value::Oid(Oid::new(&IF_INDEX).child(&[number])),
            });
        }
        value(column, cell)
    }
}

fn is_numbers(text: &str) -> bool {
    text.parse::<Oid>().is_ok()
}

/// Octets as they are if they are text, else in hexadecimal digits after `0x`.
fn text(octets: &[u8]) -> String {
    match core::str::from_utf8(octets) {
        Ok(text) if !text.starts_with("0x") && !text.chars().any(char::is_control) => text.into(),
        _ => {
            let digits = octets.iter().map(|octet| format!("{octet:02x}"));
            format!("0x{}", digits.collect::<String>())
        }
    }
}

fn value(column: &Column, cell: &Cell) -> Option<Value> {
    Some(match (column.syntax, cell) {
        (Syntax::Integer(..), Cell::Integer(number)) => {
            Value::Integer(i32::try_from(*number).ok()?)
        }
        (Syntax::Oid, Cell::String(text)) => Value::Oid(text.parse().ok()?),
        (Syntax::Octets(..), Cell::String(text)) => Value::Octets(match text.strip_prefix("0x") {
            None => text.as_bytes().to_vec(),
            Some(digits) => {
                let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
                    return None;
                };
                let octet = |pair: &[u8; 2]| {
                    let pair = core::str::from_utf8(pair).ok()?;
                    u8::from_str_radix(pair, 16).ok()
                };
                pairs.iter().map(octet).collect::<Option<_>>()?
            }
        }),
        _ => return None,
    })
}
