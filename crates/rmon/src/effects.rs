//! What control rows ask for: which tables begin, end and change with them.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::alarms::{Alarm, Event};
use crate::captured::{Buffer, Channel};
use crate::control::{Control, ControlRow, MOST_OBJECTS, MOST_OBJECTS_OF_ALL};
use crate::directory::{Config, Entry, HOST, MAP, MATRIX, Refused, index as directory_index};
use crate::frame::Ether;
use crate::history::{self, History, UserHistory};
use crate::keys::{Hosts, IF_INDEX, Pairs};
use crate::mib::locate;
use crate::others::{self, Asker};
use crate::probe::Probe;
use crate::reports::Report;
use crate::stations::{StationPairTable, StationReport, StationTable};
use crate::store::Account;
use crate::tables::{APPLICATION_LIMIT, All, DistTable, NETWORK_LIMIT, Of};
use crate::{Parts, SetError, Tree, Value};

/// How what ended with a control row goes on as it was, if that is undone.
pub(crate) struct Resume(Box<dyn FnOnce(&mut Probe) + Send>);

impl fmt::Debug for Resume {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resume")
    }
}

/// What follows from a set for other rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consequence {
    /// Rows of a protocol go, of the address map, of hosts, of matrices.
    Protocol(u32, [bool; 3]),
    /// Rows of the address map go: those that are too many, and those of interfaces that are not mapped.
    Map,
}

/// Active rows of a control table at most: of those of an interface, as each of its packets goes through them, or of all.
fn most_active(control: Control) -> usize {
    match control {
        Control::Dist
        | Control::Map
        | Control::Hosts
        | Control::Matrix
        | Control::Stations
        | Control::StationPairs
        // Each holds all counters of its table.
        | Control::NlTopN
        | Control::AlTopN
        | Control::StationTopN => 16,
        Control::Channel | Control::Buffer => 64,
        Control::Alarm => 4096,
        _ => usize::MAX,
    }
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
            // They come with the row of their history.
            (Control::UserHistoryObject, _) => false,
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
        if row.active && !self.has_room(control, index, row) {
            return Err(SetError::ResourceUnavailable);
        }
        let is_right = match control {
            Control::Directory => return self.check_protocol(control, index, row),
            Control::UserHistory if self.has_too_many_objects(index, row) => {
                return Err(SetError::ResourceUnavailable);
            }
            Control::NlTopN | Control::AlTopN => {
                let matrix = integer(control, row, 2) as u32;
                self.tables.matrices.contains(matrix)
            }
            Control::StationTopN => {
                let hosts = integer(control, row, 2) as u32;
                self.tables.stations.contains(hosts)
            }
            Control::Alarm => self.is_variable(control, row, 3),
            Control::Filter if index_is_new(self, index) && self.has_too_many_filters() => {
                return Err(SetError::ResourceUnavailable);
            }
            Control::Channel => {
                let wanted = integer(control, row, 2).cast_unsigned();
                self.interfaces.iter().any(|known| known.number == wanted)
            }
            Control::Buffer => {
                let channel = integer(control, row, 2) as u32;
                self.captured.channels.contains_key(&channel)
            }
            Control::UserHistory
            | Control::UserHistoryObject
            | Control::Event
            | Control::Filter => true,
            _ => self.source(control, row).is_some(),
        };
        (is_right || !row.active)
            .then_some(())
            .ok_or(SetError::InconsistentValue)
    }

    /// The rows of a control table but for one.
    fn others(&self, control: Control, index: &[u32]) -> impl Iterator<Item = &ControlRow> {
        let rows = self.controls.range((control, Vec::new())..);
        let rows = rows.take_while(move |((other, _), _)| *other == control);
        rows.filter(move |((_, other), _)| other != index)
            .map(|(_, row)| row)
    }

    /// Whether a row can be active beside those that are.
    fn has_room(&self, control: Control, index: &[u32], row: &ControlRow) -> bool {
        let most = most_active(control);
        if most == usize::MAX {
            return true;
        }
        let source = self.source(control, row);
        let active = self.others(control, index).filter(|other| other.active);
        let beside = active.filter(|other| self.source(control, other) == source);
        beside.count() < most
    }

    /// Whether a user history, or all with it, asks for more objects than are sampled.
    fn has_too_many_objects(&self, index: &[u32], row: &ControlRow) -> bool {
        let control = Control::UserHistory;
        let wanted = integer(control, row, 2);
        let others = self.others(control, index);
        let others: i32 = others.map(|row| integer(control, row, 2)).sum();
        wanted > MOST_OBJECTS || others.saturating_add(wanted) > MOST_OBJECTS_OF_ALL
    }

    /// Whether an object of a user history can be asked for: a number that is there, of a history that has not begun.
    pub(crate) fn check_object(&self, index: &[u32], row: &ControlRow) -> Result<(), SetError> {
        let history = (Control::UserHistory, index[..1].to_vec());
        let is_active = self.controls.get(&history).is_some_and(|row| row.active);
        let control = Control::UserHistoryObject;
        let is_unset = matches!(control.table().and_then(|table| row.value(table, 2)), Some(Value::Oid(none)) if none.numbers() == [0, 0]);
        let is_right = !is_active && (is_unset || self.is_variable(control, row, 2));
        is_right.then_some(()).ok_or(SetError::InconsistentValue)
    }

    /// Whether a column names an object of ours that is a number, or one of another agent that can be asked for.
    fn is_variable(&self, control: Control, row: &ControlRow, column: u32) -> bool {
        let table = control.table();
        let Some(Value::Oid(variable)) = table.and_then(|table| row.value(table, column)) else {
            return false;
        };
        if others::is_of_others(variable) {
            return self.questions.are_asked;
        }
        let found = locate(variable.numbers());
        found.is_some_and(|(_, column, index)| !index.is_empty() && column.syntax.is_number())
    }

    fn check_protocol(
        &self,
        control: Control,
        index: &[u32],
        row: &ControlRow,
    ) -> Result<(), SetError> {
        let (id, parameters) = identifier(index).ok_or(SetError::NoCreation)?;
        let entry = match self
            .directory
            .find(index)
            .and_then(|local| self.directory.get(local))
        {
            Some(entry) => entry.clone(),
            None => {
                let admitted = self.directory.admit(index, id, parameters, None);
                admitted.map_err(|refused| match refused {
                    Refused::Unknown => SetError::InconsistentName,
                    Refused::Full => SetError::ResourceUnavailable,
                })?
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
    pub(crate) fn source(&self, control: Control, row: &ControlRow) -> Option<u32> {
        let Some(Value::Oid(source)) = row.value(control.table()?, 2) else {
            return None;
        };
        let number = source.numbers().strip_prefix(&IF_INDEX)?;
        let known = self.interfaces.iter().map(|interface| interface.number);
        known.into_iter().find(|known| [*known] == *number)
    }

    /// Begins what a row that became active asks for.
    pub(crate) fn start(&mut self, control: Control, index: &[u32]) -> Result<(), SetError> {
        let key = (control, index.to_vec());
        let row = self.controls.get(&key).cloned().ok_or(SetError::General)?;
        let number = *index.first().ok_or(SetError::General)?;
        // One set may have many of them.
        if !self.has_room(control, index, &row) {
            return Err(SetError::ResourceUnavailable);
        }
        let setting = |column| integer(control, &row, column) as u32;
        match control {
            Control::Directory => return self.start_protocol(index, &row),
            Control::NlTopN | Control::AlTopN => {
                let timer = self.timer(setting(4));
                let mut report = Report::new(setting(2), setting(3), setting(7), timer);
                report.begin(control, &self.tables, false);
                self.jobs.reports.insert((control, number), report);
                return Ok(());
            }
            Control::UserHistory => {
                self.start_user_history(number, setting(3), setting(5));
                return Ok(());
            }
            Control::StationTopN => {
                let timer = self.timer(setting(4));
                let about = (setting(2), setting(3));
                let tables = &self.tables;
                let report = StationReport::new(about, setting(6), setting(4), timer, tables);
                self.jobs.station_reports.insert(number, report);
                return Ok(());
            }
            Control::Alarm => return self.start_alarm(number, &row),
            Control::Filter => return Ok(()),
            Control::Channel => {
                self.captured.channels.insert(number, Channel::new(&row));
                self.captured.is_stale = true;
                return Ok(());
            }
            Control::Buffer => {
                let clock = &self.tables.clock;
                let buffer = Buffer::new(&row, clock.stamp, clock.time());
                self.captured.buffers.insert(number, buffer);
                return Ok(());
            }
            Control::Event => {
                self.jobs.events.insert(number, Event::default());
                return Ok(());
            }
            _ => {}
        }
        let source = self.source(control, &row);
        let interface = source.ok_or(SetError::InconsistentValue)?;
        let account = |column, limit| Account::new(integer(control, &row, column), limit);
        match control {
            Control::Dist => {
                let table = DistTable {
                    created: self.tables.clock.stamp,
                    counts: Default::default(),
                };
                self.tables.dists.insert(number, Of { interface, table });
            }
            Control::Map => {
                let table = 0;
                self.tables.maps.insert(number, Of { interface, table });
            }
            Control::Hosts => {
                let table = Hosts::new(account(6, NETWORK_LIMIT), account(10, APPLICATION_LIMIT));
                self.tables.hosts.insert(number, Of { interface, table });
            }
            Control::Matrix => {
                let table = Pairs::new(account(6, NETWORK_LIMIT), account(10, APPLICATION_LIMIT));
                self.tables.matrices.insert(number, Of { interface, table });
            }
            Control::Stations => {
                let table = StationTable::new();
                self.tables.stations.insert(number, Of { interface, table });
            }
            Control::StationPairs => {
                let table = Of {
                    interface,
                    table: StationPairTable::new(),
                };
                self.tables.station_pairs.insert(number, table);
            }
            Control::History => {
                let known = self
                    .interfaces
                    .iter()
                    .find(|known| known.number == interface);
                let ether = known.map_or_else(Ether::default, |known| known.ether);
                let timer = self.timer(setting(5));
                let granted = self.jobs.buckets(number, setting(3));
                let mut history = History::new(interface, granted, timer, ether);
                history.speed = known.map_or(0, |known| known.speed);
                self.jobs.histories.insert(number, history);
            }
            _ => {}
        }
        self.tables.epoch += 1;
        Ok(())
    }

    fn start_user_history(&mut self, row: u32, buckets: u32, interval: u32) {
        let mut samples = UserHistory::new(self.timer(interval));
        let first = (Control::UserHistoryObject, vec![row]);
        let objects = self.controls.range(first..);
        let objects = objects.take_while(|((control, index), _)| {
            *control == Control::UserHistoryObject && index[0] == row
        });
        let table = Control::UserHistoryObject.table();
        let objects: Vec<_> = objects
            .filter_map(|(_, object)| {
                let Some(Value::Oid(variable)) = object.value(table?, 2) else {
                    return None;
                };
                let wants_difference = integer(Control::UserHistoryObject, object, 3) == 2;
                Some((variable.clone(), wants_difference))
            })
            .collect();
        for (place, (variable, wants_difference)) in objects.into_iter().enumerate() {
            if wants_difference && others::is_of_others(&variable) {
                self.questions.ask(Asker::History(row, place), &variable, 0);
            }
            let value = self.get(&variable).ok().as_ref().and_then(history::number);
            samples.objects.push((variable, wants_difference, value));
        }
        samples.granted = self.jobs.samples(row, samples.objects.len(), buckets);
        self.jobs.user_histories.insert(row, samples);
    }

    fn start_alarm(&mut self, number: u32, row: &ControlRow) -> Result<(), SetError> {
        let table = Control::Alarm.table().ok_or(SetError::General)?;
        let Some(Value::Oid(variable)) = row.value(table, 3).cloned() else {
            return Err(SetError::InconsistentValue);
        };
        let setting = |column| integer(Control::Alarm, row, column);
        let before = self.get(&variable).ok().as_ref().and_then(history::number);
        let startup = setting(6);
        if setting(4) == 2 && others::is_of_others(&variable) {
            self.questions.ask(Asker::Alarm(number), &variable, 0);
        }
        let alarm = Alarm {
            timer: self.timer(setting(2) as u32),
            variable,
            wants_difference: setting(4) == 2,
            thresholds: [setting(7), setting(8)],
            events: [setting(9) as u32, setting(10) as u32],
            armed: [startup != 2, startup != 1],
            before,
            value: 0,
        };
        self.jobs.alarms.insert(number, alarm);
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
        let row = self.controls.get_mut(&(Control::Directory, index.to_vec()));
        if let Some((row, entry)) = row.zip(self.directory.get(local)) {
            note_protocol(row, local, entry);
        }
        self.directory_changed = self.tables.clock.stamp;
        Ok(())
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
    ) -> Option<Resume> {
        let number = *index.first()?;
        self.tables.epoch += 1;
        match control {
            Control::Directory => {
                let local = self.directory.find(index)?;
                let entry = self.directory.remove(local)?;
                self.directory_changed = self.tables.clock.stamp;
                self.follows(held, Consequence::Protocol(local, [true; 3]));
                let resume = move |probe: &mut Probe| probe.directory.restore(local, entry);
                Some(Resume(Box::new(resume)))
            }
            Control::Dist => self.take_out_table(number, |it| &mut it.tables.dists),
            Control::Map => {
                self.follows(held, Consequence::Map);
                self.take_out_table(number, |it| &mut it.tables.maps)
            }
            Control::Hosts => self.take_out_table(number, |it| &mut it.tables.hosts),
            Control::Matrix => self.take_out_table(number, |it| &mut it.tables.matrices),
            Control::NlTopN | Control::AlTopN => {
                self.take_out((control, number), |it| &mut it.jobs.reports)
            }
            Control::UserHistory => self.take_out(number, |it| &mut it.jobs.user_histories),
            Control::History => self.take_out(number, |it| &mut it.jobs.histories),
            Control::Alarm => self.take_out(number, |it| &mut it.jobs.alarms),
            Control::Event => self.take_out(number, |it| &mut it.jobs.events),
            Control::Stations => self.take_out_table(number, |it| &mut it.tables.stations),
            Control::StationPairs => self.take_out_table(number, |it| &mut it.tables.station_pairs),
            Control::StationTopN => self.take_out(number, |it| &mut it.jobs.station_reports),
            Control::Channel => self.take_out(number, |it| &mut it.captured.channels),
            Control::Buffer => {
                let resume = self.take_out(number, |it| &mut it.captured.buffers);
                self.captured.account();
                resume
            }
            Control::Ether
            | Control::Vlans
            | Control::Priorities
            | Control::UserHistoryObject
            | Control::Filter => None,
        }
    }

    /// Takes out what a control row has among all of its kind.
    fn take_out<K: Ord + Send + 'static, V: Send + 'static>(
        &mut self,
        key: K,
        all: fn(&mut Probe) -> &mut BTreeMap<K, V>,
    ) -> Option<Resume> {
        let it = all(self).remove(&key)?;
        let resume = move |probe: &mut Probe| drop(all(probe).insert(key, it));
        Some(Resume(Box::new(resume)))
    }

    /// Takes out the table of a control row.
    fn take_out_table<T: Send + 'static>(
        &mut self,
        number: u32,
        all: fn(&mut Probe) -> &mut All<T>,
    ) -> Option<Resume> {
        let it = all(self).remove(number)?;
        let resume = move |probe: &mut Probe| all(probe).insert(number, it);
        Some(Resume(Box::new(resume)))
    }

    /// Goes on with what had ended.
    pub(crate) fn resume(&mut self, Resume(resume): Resume) {
        self.tables.epoch += 1;
        resume(self);
        self.captured.is_stale = true;
        self.captured.account();
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
        let number = index.first().copied().unwrap_or(0);
        let setting = |column| integer(control, &row, column) as u32;
        match control {
            Control::NlTopN | Control::AlTopN => {
                if let Some(report) = self.jobs.reports.get_mut(&(control, number)) {
                    report.requested = setting(7);
                }
            }
            Control::UserHistory => self.jobs.grant_samples(number, setting(3)),
            Control::History => self.jobs.grant_buckets(number, setting(3)),
            Control::Channel => {
                if let Some(channel) = self.captured.channels.get_mut(&number) {
                    channel.follow(&row);
                }
            }
            Control::Buffer => {
                if let Some(buffer) = self.captured.buffers.get_mut(&number) {
                    buffer.follow(&row);
                    self.captured.account();
                }
            }
            _ => {}
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
                        let all = tables.hosts.tables_mut();
                        all.for_each(|it| it.delete_protocol(local));
                    }
                    if matrices {
                        let all = tables.matrices.tables_mut();
                        all.for_each(|it| it.delete_protocol(local));
                    }
                    // Only of what is gone: protocolDist does not follow what is counted of hosts.
                    if self.directory.get(local).is_none() {
                        let all = tables.dists.tables_mut();
                        all.for_each(|it| _ = it.counts.remove(&local));
                    }
                }
                Consequence::Map => {
                    let mapped = tables.maps.values().map(|it| it.interface);
                    let mapped: Vec<u32> = mapped.collect();
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

/// Notes in a protocol's row what was decided when it was added: its LocalIndex, which it keeps as long as the row is
/// there, and what is counted.
pub(crate) fn note_protocol(row: &mut ControlRow, local: u32, entry: &Entry) {
    let columns = Control::Directory.table().map_or(&[][..], |it| it.columns);
    for (column, place) in columns.iter().zip(&mut row.values) {
        let config = CONFIGS.iter().find(|(number, _)| *number == column.number);
        match (column.number, config) {
            (3, _) => *place = Some(Value::Integer(local as i32)),
            (_, Some((_, table))) => *place = Some(Value::Integer(entry.configs[*table] as i32)),
            _ => {}
        }
    }
}

fn index_is_new(probe: &Probe, index: &[u32]) -> bool {
    !probe
        .controls
        .contains_key(&(Control::Filter, index.to_vec()))
}

/// A column of integers; 0 if it has no value.
pub(crate) fn integer(control: Control, row: &ControlRow, column: u32) -> i32 {
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
