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
//! hlHostControlDataSource = "1.3.6.1.2.1.2.2.1.1.2"
//! hlHostControlNlMaxDesiredEntries = 1000
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::{Control, ControlRow};
use crate::keys::IF_INDEX;
use crate::mib::{Column, RMON, Syntax, Table};
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
    values: BTreeMap<String, Stored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Active,
    Inactive,
    Destroyed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Number(i32),
    Text(String),
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
    #[error("row {row}: {index:?} is no index (numbers with dots between)")]
    Index {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The text.
        index: String,
    },
    /// The table has no such column, or it cannot be set to this.
    #[error(
        "row {row}: {column} is no column that can be set, or not to this value\nhint: columns are named as in the MIB module; numbers without, other values with quotes"
    )]
    Column {
        /// Number of the row in the file, from 1.
        row: usize,
        /// The column.
        column: String,
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
    fn is_of_what_is_gone(&self) -> bool {
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
            !waiting.any(|row| row.is_of(*control, index))
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
        file.row.extend_from_slice(&self.waiting);
        toml::to_string(&file).unwrap_or_default()
    }

    /// Sets control rows from text that [`Probe::save`] has written, or that has been written by hand. Returns why rows stay inactive that
    /// name an interface, row or object that is not there (any more): they are saved as they are, and taken when an interface comes.
    ///
    /// # Errors
    /// If the text has another form, names what is not there, or has a row that a manager could not set. Rows before
    /// that stay.
    pub fn load(&mut self, text: &str) -> Result<Vec<LoadError>, LoadError> {
        let file: File = toml::from_str(text)?;
        // Objects of user histories come with the rows of those, which have to be inactive for it.
        let (objects, rows): (Vec<_>, Vec<_>) = file
            .row
            .iter()
            .enumerate()
            .partition(|(_, row)| row.table == Control::UserHistoryObject.name());
        let mut inactive = Vec::new();
        let mut wait = |probe: &mut Probe, row: &SavedRow, loaded| match loaded {
            Err(error) if LoadError::is_of_what_is_gone(&error) => {
                probe.waiting.push(row.clone());
                inactive.push(error);
                Ok(())
            }
            loaded => loaded,
        };
        for (at, row) in &rows {
            match self.load_row(at + 1, row, false) {
                loaded @ Err(LoadError::Gone { .. }) => wait(self, row, loaded)?,
                loaded => loaded?,
            }
        }
        for (at, row) in &objects {
            self.load_row(at + 1, row, true)?;
        }
        for (at, row) in &rows {
            let is_there = self.waiting.iter().all(|waits| !waits.is_same(row));
            if row.state == State::Active && row.table != Control::Directory.name() && is_there {
                let loaded = self.load_row(at + 1, row, true);
                wait(self, row, loaded)?;
            }
        }
        Ok(inactive)
    }

    /// Takes the rows whose interfaces have come.
    pub(crate) fn load_waiting(&mut self) {
        for row in core::mem::take(&mut self.waiting) {
            let loaded = self.load_row(0, &row, false);
            let loaded = match row.state {
                State::Active => loaded.and_then(|()| self.load_row(0, &row, true)),
                _ => loaded,
            };
            if loaded.is_err() {
                self.waiting.push(row);
            }
        }
    }

    /// A row that a manager has set waits for nothing any more.
    pub(crate) fn stop_waiting(&mut self, control: Control, index: &[u32]) {
        self.waiting.retain(|row| !row.is_of(control, index));
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
            Oid::new(&RMON)
                .child(table.entry)
                .child(&[column])
                .child(index)
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
        let mut set = Vec::new();
        if let Some(status) = status {
            set.push((name(status.number), Value::Integer(wanted)));
        }
        if !activate || status.is_none() {
            for (column, stored) in &row.values {
                let known = table.columns.iter().find(|known| known.name == column);
                let value =
                    known.and_then(|known| Some((known.number, self.value(known, stored)?)));
                let (column, value) = value.ok_or_else(|| match (known, stored) {
                    (Some(known), Stored::Text(interface))
                        if known.name.ends_with("DataSource") && !is_numbers(interface) =>
                    {
                        LoadError::Gone {
                            row: number,
                            table: row.table.clone(),
                            index: row.index.clone(),
                            interface: interface.clone(),
                        }
                    }
                    _ => LoadError::Column {
                        row: number,
                        column: column.clone(),
                    },
                })?;
                set.push((name(column), value));
            }
        }
        let done = self.test_set(&set).map_err(|(_, error)| error);
        let done = done.and_then(|mut change| {
            let done = self.commit_set(&mut change);
            done.map_err(|_| SetError::CommitFailed)
        });
        done.map_err(|error| LoadError::Refused {
            row: number,
            table: row.table.clone(),
            index: row.index.clone(),
            error,
            hint: match error {
                SetError::InconsistentValue => "\nhint: an interface, row or object that it names is not there, or a column is missing",
                SetError::NoCreation => "\nhint: the index is none of this table",
                _ => "",
            },
        })
    }
}

impl SavedRow {
    fn is_same(&self, other: &SavedRow) -> bool {
        (&self.table, &self.index) == (&other.table, &other.index)
    }

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
    ) -> BTreeMap<String, Stored> {
        let default = ControlRow::new(table);
        let usual = &initial.unwrap_or(&default).values;
        let columns = table.columns.iter().zip(&row.values).zip(usual);
        let differing =
            columns.filter(|((column, value), usual)| column.is_stored() && value != usual);
        let stored = differing.filter_map(|((column, value), _)| {
            let stored = match value.as_ref()? {
                Value::Integer(number) => Stored::Number(*number),
                Value::Oid(identifier) => {
                    let name = self.name_of(identifier);
                    Stored::Text(name.unwrap_or_else(|| identifier.to_string()))
                }
                Value::Octets(octets) => Stored::Text(text(octets)),
                _ => return None,
            };
            Some((column.name.to_owned(), stored))
        });
        stored.collect()
    }

    fn name_of(&self, source: &Oid) -> Option<String> {
        let [number] = source.numbers().strip_prefix(&IF_INDEX)? else {
            return None;
        };
        let mut interfaces = self.interfaces.iter();
        let found = interfaces.find(|interface| interface.number == *number)?;
        (!found.name.is_empty()).then(|| found.name.clone())
    }

    fn value(&self, column: &Column, stored: &Stored) -> Option<Value> {
        if let (Syntax::Oid, Stored::Text(text)) = (column.syntax, stored)
            && let Some(place) = self.interface_of(text).filter(|_| !text.is_empty())
        {
            let number = self.interfaces[place].number;
            return Some(Value::Oid(Oid::new(&IF_INDEX).child(&[number])));
        }
        value(column, stored)
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

fn value(column: &Column, stored: &Stored) -> Option<Value> {
    Some(match (column.syntax, stored) {
        (Syntax::Integer(..), Stored::Number(number)) => Value::Integer(*number),
        (Syntax::Oid, Stored::Text(text)) => Value::Oid(text.parse().ok()?),
        (Syntax::Octets(..), Stored::Text(text)) => Value::Octets(match text.strip_prefix("0x") {
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
