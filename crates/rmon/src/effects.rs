//! What control rows ask for: which tables begin, end and change with them.

use std::sync::{Arc, Weak};

use crate::control::{Control, ControlRow};
use crate::directory::{Config, Entry, HOST, MAP, MATRIX, Refused, index as directory_index};
use crate::keys::{Hosts, IF_INDEX, Pairs};
use crate::probe::Probe;
use crate::store::Account;
use crate::tables::{APPLICATION_LIMIT, DistTable, HostTable, MatrixTable, NETWORK_LIMIT};
use crate::{Parts, SetError, Value};

/// What ended with a control row, to go on as it was if that is undone.
#[derive(Debug)]
pub(crate) enum Stopped {
    Protocol(u32, Box<Entry>),
    Dist(DistTable),
    Map(u32, u64),
    Hosts(Box<HostTable>),
    Matrix(Box<MatrixTable>),
}

/// What follows from a set for other rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consequence {
    /// Rows of a protocol go, of the address map, of hosts, of matrices.
    Protocol(u32, [bool; 3]),
    /// Rows of the address map go: those that are too many, and those of interfaces that are not mapped.
    Map,
}

/// The columns of protocolDirTable that say what is counted.
const CONFIGS: [(u32, usize); 3] = [(6, MAP), (7, HOST), (8, MATRIX)];

impl Probe {
    /// Whether a table can have a row of this index.
    pub(crate) fn check_index(&self, control: Control, index: &[u32]) -> Result<(), SetError> {
        let is_right = match (control, index) {
            (Control::Directory, index) => {
                let mut parts = Parts(index);
                let (id, parameters) = (parts.octets(), parts.octets());
                let lengths = (id.map(|id| id.len()), parameters.map(|octets| octets.len()));
                parts.is_empty() && matches!(lengths, (Some(4..=128), Some(1..=32)))
            }
            (_, [number]) => (1..=65_535).contains(number),
            _ => false,
        };
        is_right.then_some(()).ok_or(SetError::NoCreation)
    }

    /// Whether a row can be active.
    pub(crate) fn check_row(
        &self,
        control: Control,
        index: &[u32],
        row: &ControlRow,
    ) -> Result<(), SetError> {
        if control != Control::Directory {
            let is_known = self.source(control, row).is_some() || !row.active;
            return is_known.then_some(()).ok_or(SetError::InconsistentValue);
        }
        let (id, parameters) = identifier(index).ok_or(SetError::NoCreation)?;
        let entry = match self
            .directory
            .find(index)
            .and_then(|local| self.directory.get(local))
        {
            Some(entry) => entry.clone(),
            None => {
                let mut trial = self.directory.clone();
                let added = trial
                    .add(id, parameters, None)
                    .map_err(|refused| match refused {
                        Refused::Unknown => SetError::InconsistentName,
                        Refused::Full => SetError::ResourceUnavailable,
                    })?;
                trial.get(added).cloned().ok_or(SetError::General)?
            }
        };
        for (column, table) in CONFIGS {
            let wanted = integer(control, row, column);
            let supported = entry.configs[table] != Config::NotSupported;
            if wanted != 0 && supported != (wanted != Config::NotSupported as i32) {
                return Err(SetError::InconsistentValue);
            }
        }
        Ok(())
    }

    /// The interface that a control row's data source names, if there is one.
    fn source(&self, control: Control, row: &ControlRow) -> Option<u32> {
        let Some(Value::Oid(source)) = row.value(control.table()?, 2) else {
            return None;
        };
        let number = source.numbers().strip_prefix(&IF_INDEX)?;
        let known = self.interfaces.iter().map(|interface| interface.number);
        known.into_iter().find(|known| [*known] == *number)
    }

    /// What a column has that nobody sets.
    pub(crate) fn computed(&self, control: Control, index: &[u32], column: u32) -> Option<Value> {
        let tables = &self.tables;
        let number = index.first()?;
        let counter = |counter: u64| Some(Value::Counter32(counter as u32));
        match (control, column) {
            (Control::Directory, _) => self.directory_value(index, column),
            (Control::Dist, 3) => counter(0),
            (Control::Dist, 4) => {
                let created = tables.dists.get(number).map_or(0, |table| table.created);
                Some(Value::TimeTicks(tables.clock.up_time(created)))
            }
            (Control::Map, 3) => {
                counter(tables.maps.get(number).map_or(0, |(_, dropped)| *dropped))
            }
            (Control::Hosts, column) => {
                let store = tables.hosts.get(number).map(|table| &table.store);
                let accounts = store.map(|store| (&store.network, &store.application));
                account_value(accounts, column)
            }
            (Control::Matrix, column) => {
                let store = tables.matrices.get(number).map(|table| &table.store);
                let accounts = store.map(|store| (&store.network, &store.application));
                account_value(accounts, column)
            }
            _ => None,
        }
    }

    fn directory_value(&self, index: &[u32], column: u32) -> Option<Value> {
        let local = self.directory.find(index)?;
        let entry = self.directory.get(local)?;
        let config = |table: usize| Some(Value::Integer(entry.configs[table] as i32));
        match column {
            3 => Some(Value::Integer(local as i32)),
            4 => {
                let key = (Control::Directory, index.to_vec());
                let row = self.controls.get(&key)?;
                let text = row.value(Control::Directory.table()?, 4);
                let named = matches!(text, Some(Value::Octets(text)) if !text.is_empty());
                (!named).then(|| {
                    // The end of the name says most.
                    let start = entry.name.len().saturating_sub(64);
                    Value::Octets(entry.name.as_bytes()[start..].to_vec())
                })
            }
            5 => Some(Value::Octets(vec![entry.type_bits()])),
            6 => config(MAP),
            7 => config(HOST),
            8 => config(MATRIX),
            _ => None,
        }
    }

    /// Begins what a row that became active asks for.
    pub(crate) fn start(&mut self, control: Control, index: &[u32]) -> Result<(), SetError> {
        let key = (control, index.to_vec());
        let row = self.controls.get(&key).cloned().ok_or(SetError::General)?;
        if control == Control::Directory {
            return self.start_protocol(index, &row);
        }
        let interface = self
            .source(control, &row)
            .ok_or(SetError::InconsistentValue)?;
        let number = *index.first().ok_or(SetError::General)?;
        let account = |column, limit| Account::new(integer(control, &row, column), limit);
        match control {
            Control::Dist => {
                let table = DistTable {
                    interface,
                    created: self.tables.clock.stamp,
                    counts: Default::default(),
                };
                self.tables.dists.insert(number, table);
            }
            Control::Map => {
                self.tables.maps.insert(number, (interface, 0));
            }
            Control::Hosts => {
                let store = Hosts::new(account(6, NETWORK_LIMIT), account(10, APPLICATION_LIMIT));
                self.tables
                    .hosts
                    .insert(number, HostTable { interface, store });
            }
            Control::Matrix => {
                let store = Pairs::new(account(6, NETWORK_LIMIT), account(10, APPLICATION_LIMIT));
                let table = MatrixTable { interface, store };
                self.tables.matrices.insert(number, table);
            }
            Control::Directory => {}
        }
        self.tables.epoch += 1;
        Ok(())
    }

    fn start_protocol(&mut self, index: &[u32], row: &ControlRow) -> Result<(), SetError> {
        let (id, parameters) = identifier(index).ok_or(SetError::NoCreation)?;
        let table = Control::Directory.table().ok_or(SetError::General)?;
        let known = match row.value(table, 3) {
            Some(Value::Integer(local)) => Some(*local as u32),
            _ => None,
        };
        let local = self.directory.insert(known, id, parameters, None);
        let local = local.map_err(|_| SetError::InconsistentName)?;
        self.configure(local, row);
        self.note_protocol(index, local);
        self.directory_changed = self.tables.clock.stamp;
        Ok(())
    }

    /// Notes in a protocol's row what was decided when it was added: its LocalIndex, which it keeps as long as the row is
    /// there, and what is counted.
    pub(crate) fn note_protocol(&mut self, index: &[u32], local: u32) {
        let row = self.controls.get_mut(&(Control::Directory, index.to_vec()));
        let (Some(row), Some(table)) = (row, Control::Directory.table()) else {
            return;
        };
        let Some(configs) = self.directory.get(local).map(|entry| entry.configs) else {
            return;
        };
        for (column, place) in table.columns.iter().zip(&mut row.values) {
            let config = CONFIGS.iter().find(|(number, _)| *number == column.number);
            match (column.number, config) {
                (3, _) => *place = Some(Value::Integer(local as i32)),
                (_, Some((_, table))) => *place = Some(Value::Integer(configs[*table] as i32)),
                _ => {}
            }
        }
    }

    fn configure(&mut self, local: u32, row: &ControlRow) {
        self.directory.change(local, |entry| {
            for (column, table) in CONFIGS {
                match integer(Control::Directory, row, column) {
                    1 => entry.configs[table] = Config::NotSupported,
                    2 => entry.configs[table] = Config::Off,
                    3 => entry.configs[table] = Config::On,
                    _ => {}
                }
            }
        });
    }

    /// Ends what an active row asked for. Consequences wait for `held`; without it there are none.
    pub(crate) fn stop(
        &mut self,
        control: Control,
        index: &[u32],
        held: Option<&Arc<()>>,
    ) -> Option<Stopped> {
        let number = *index.first()?;
        self.tables.epoch += 1;
        match control {
            Control::Directory => {
                let local = self.directory.find(index)?;
                let entry = self.directory.remove(local)?;
                self.directory_changed = self.tables.clock.stamp;
                self.follows(held, Consequence::Protocol(local, [true; 3]));
                Some(Stopped::Protocol(local, Box::new(entry)))
            }
            Control::Dist => self.tables.dists.remove(&number).map(Stopped::Dist),
            Control::Map => {
                let (interface, dropped) = self.tables.maps.remove(&number)?;
                self.follows(held, Consequence::Map);
                Some(Stopped::Map(interface, dropped))
            }
            Control::Hosts => {
                let table = self.tables.hosts.remove(&number)?;
                Some(Stopped::Hosts(Box::new(table)))
            }
            Control::Matrix => {
                let table = self.tables.matrices.remove(&number)?;
                Some(Stopped::Matrix(Box::new(table)))
            }
        }
    }

    /// Goes on with what had ended.
    pub(crate) fn resume(&mut self, index: &[u32], stopped: Stopped) {
        let number = index.first().copied().unwrap_or(0);
        self.tables.epoch += 1;
        match stopped {
            Stopped::Protocol(local, entry) => self.directory.restore(local, *entry),
            Stopped::Dist(table) => drop(self.tables.dists.insert(number, table)),
            Stopped::Map(interface, dropped) => {
                self.tables.maps.insert(number, (interface, dropped));
            }
            Stopped::Hosts(table) => drop(self.tables.hosts.insert(number, *table)),
            Stopped::Matrix(table) => drop(self.tables.matrices.insert(number, *table)),
        }
    }

    /// Follows columns that were set while the row stayed active.
    pub(crate) fn change(
        &mut self,
        control: Control,
        index: &[u32],
        before: Option<&ControlRow>,
        held: Option<&Arc<()>>,
    ) {
        let key = (control, index.to_vec());
        let Some(row) = self.controls.get(&key).cloned() else {
            return;
        };
        if before == Some(&row) {
            return;
        }
        if control == Control::Directory
            && let Some(local) = self.directory.find(index)
            && let Some(old) = self.directory.get(local).map(|entry| entry.configs)
        {
            self.configure(local, &row);
            self.directory_changed = self.tables.clock.stamp;
            let new = self.directory.get(local).map_or(old, |entry| entry.configs);
            let is_off = |table: usize| old[table] == Config::On && new[table] != Config::On;
            let off = [MAP, HOST, MATRIX].map(is_off);
            if off.contains(&true) {
                self.follows(held, Consequence::Protocol(local, off));
            }
        }
    }

    /// Sets how many entries the address map may have.
    pub(crate) fn desire_map_entries(&mut self, desired: i32, held: &Arc<()>) {
        self.tables.map.network.desired = desired;
        self.follows(Some(held), Consequence::Map);
    }

    fn follows(&mut self, held: Option<&Arc<()>>, consequence: Consequence) {
        if let Some(held) = held {
            self.consequences.push((Arc::downgrade(held), consequence));
        }
    }

    /// Lets follow what waited for changes that were dropped.
    pub(crate) fn follow_up(&mut self) {
        let is_final = |held: &Weak<()>| held.strong_count() == 0;
        while let Some(at) = self
            .consequences
            .iter()
            .position(|(held, _)| is_final(held))
        {
            let (_, consequence) = self.consequences.remove(at);
            let tables = &mut self.tables;
            match consequence {
                Consequence::Protocol(local, [map, hosts, matrices]) => {
                    if map {
                        tables.map.delete_where(|key| key.host.network == local);
                    }
                    if hosts {
                        let all = tables.hosts.values_mut();
                        all.for_each(|table| table.store.delete_protocol(local));
                    }
                    if matrices {
                        let all = tables.matrices.values_mut();
                        all.for_each(|table| table.store.delete_protocol(local));
                    }
                    // Only of what is gone: protocolDist does not follow what is counted of hosts.
                    if self.directory.get(local).is_none() {
                        let all = tables.dists.values_mut();
                        all.for_each(|table| {
                            table.counts.remove(&local);
                        });
                    }
                }
                Consequence::Map => {
                    let mapped: Vec<u32> =
                        tables.maps.values().map(|(number, _)| *number).collect();
                    tables
                        .map
                        .delete_where(|key| !mapped.contains(&key.interface));
                    tables.map.shrink();
                }
            }
            tables.epoch += 1;
        }
    }
}

/// The bounds and counts of a table, in the columns that hlHostControl and hlMatrixControl have them in.
fn account_value(accounts: Option<(&Account, &Account)>, column: u32) -> Option<Value> {
    let none = Account::default();
    let (network, application) = accounts.unwrap_or((&none, &none));
    let (account, column) = match column {
        3..=5 => (network, column - 3),
        7..=9 => (application, column - 7),
        _ => return None,
    };
    let counter = [account.dropped, account.inserts, account.deletes][column as usize];
    Some(Value::Counter32(counter as u32))
}

/// A column of integers; 0 if it has no value.
fn integer(control: Control, row: &ControlRow, column: u32) -> i32 {
    let table = control.table();
    match table.and_then(|table| row.value(table, column)) {
        Some(Value::Integer(number)) => *number,
        _ => 0,
    }
}

/// The identifier and the parameters of an index of protocolDirTable.
fn identifier(index: &[u32]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut parts = Parts(index);
    let (id, parameters) = (parts.octets()?.to_vec(), parts.octets()?.to_vec());
    debug_assert_eq!(directory_index(&id, &parameters), index);
    Some((id, parameters))
}
