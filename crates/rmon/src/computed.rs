//! Columns of control rows that nobody sets.

use crate::Value;
use crate::control::{Control, ControlRow};
use crate::directory::{HOST, MAP, MATRIX};
use crate::frame::Ether;
use crate::jobs::{SECOND, Timer};
use crate::probe::Probe;
use crate::store::Account;

impl Probe {
    /// What a row of etherStats shows.
    pub(crate) fn ether_of(&self, row: &ControlRow) -> Option<Ether> {
        let source = self.source(Control::Ether, row).filter(|_| row.active);
        let interface = self
            .interfaces
            .iter()
            .find(|known| Some(known.number) == source);
        Some(interface.map_or_else(Ether::default, |known| known.ether))
    }

    /// What a column has that nobody sets.
    pub(crate) fn computed(&self, control: Control, index: &[u32], column: u32) -> Option<Value> {
        let tables = &self.tables;
        let number = index.first()?;
        let counter = |counter: u64| Some(Value::Counter32(counter as u32));
        match (control, column) {
            (Control::Directory, _) => self.directory_value(index, column),
            // The index is a column of its own in RMON-MIB.
            (
                Control::Ether
                | Control::History
                | Control::Alarm
                | Control::Event
                | Control::Stations
                | Control::StationTopN
                | Control::StationPairs
                | Control::Channel
                | Control::Filter
                | Control::Buffer,
                1,
            ) => Some(Value::Integer(*number as i32)),
            (Control::Dist, 3) => counter(0),
            (Control::Dist, 4) => {
                let created = tables.dists.get(*number).map_or(0, |it| it.created);
                Some(Value::TimeTicks(tables.clock.up_time(created)))
            }
            (Control::Map, 3) => counter(tables.maps.get(*number).copied().unwrap_or(0)),
            (Control::Hosts, column) => {
                let store = tables.hosts.get(*number);
                let accounts = store.map(|store| (&store.network, &store.application));
                account_value(accounts, column)
            }
            (Control::Matrix, column) => {
                let store = tables.matrices.get(*number);
                let accounts = store.map(|store| (&store.network, &store.application));
                account_value(accounts, column)
            }
            (Control::Ether, column) => {
                let row = self.controls.get(&(control, index.to_vec()))?;
                ether_value(&self.ether_of(row)?, column)
            }
            (Control::Vlans | Control::Priorities, 3) => {
                let row = self.controls.get(&(control, index.to_vec()))?;
                Some(Value::TimeTicks(tables.clock.up_time(row.created)))
            }
            (Control::Stations, 3 | 4) => {
                let table = tables.stations.get(*number);
                let account = table.map(|table| &table.store.network);
                let size = account.map_or(0, |account| account.inserts - account.deletes);
                Some(self.station_value(column, size, table.map_or(0, |table| table.deleted)))
            }
            (Control::StationPairs, 3 | 4) => {
                let table = tables.station_pairs.get(*number);
                let account = table.map(|table| &table.store.network);
                let size = account.map_or(0, |account| (account.inserts - account.deletes) / 2);
                Some(self.station_value(column, size, table.map_or(0, |table| table.deleted)))
            }
            (Control::Channel | Control::Buffer, column) => {
                self.captured_value(control, *number, column)
            }
            (control, column) => self.job_value(control, *number, column),
        }
    }

    /// TableSize and LastDeleteTime of hostControl and matrixControl.
    fn station_value(&self, column: u32, size: u64, deleted: u32) -> Value {
        match (column, deleted) {
            (3, _) => Value::Integer(size as i32),
            (_, 0) => Value::TimeTicks(0),
            (_, deleted) => Value::TimeTicks(self.tables.clock.up_time(deleted)),
        }
    }

    /// What a control row of a job shows of it.
    fn job_value(&self, control: Control, number: u32, column: u32) -> Option<Value> {
        let (jobs, clock) = (&self.jobs, &self.tables.clock);
        let granted = |granted: Option<u32>| Some(Value::Integer(granted.unwrap_or(0) as i32));
        Some(match (control, column) {
            (Control::NlTopN | Control::AlTopN, column) => {
                let report = jobs.reports.get(&(control, number))?;
                match column {
                    4 => Value::Integer(self.remaining(&report.timer)),
                    5 => Value::Counter32(report.generated as u32),
                    6 => Value::Integer((report.timer.interval / SECOND) as i32),
                    8 => Value::Integer(report.granted as i32),
                    9 => Value::TimeTicks(clock.up_time(report.started)),
                    _ => return None,
                }
            }
            (Control::StationTopN, column) => {
                let report = jobs.station_reports.get(&number)?;
                match column {
                    4 => Value::Integer(self.remaining(&report.timer)),
                    5 => Value::Integer(report.duration as i32),
                    7 => Value::Integer(report.granted as i32),
                    8 => Value::TimeTicks(clock.up_time(report.started)),
                    _ => return None,
                }
            }
            (Control::UserHistory, 4) => {
                let history = jobs.user_histories.get(&number);
                return granted(history.map(|history| history.granted));
            }
            (Control::History, 4) => {
                let history = jobs.histories.get(&number);
                return granted(history.map(|history| history.granted));
            }
            (Control::Alarm, 5) => {
                Value::Integer(jobs.alarms.get(&number).map_or(0, |alarm| alarm.value))
            }
            (Control::Event, 5) => match jobs.events.get(&number).map_or(0, |event| event.last) {
                0 => Value::TimeTicks(0),
                last => Value::TimeTicks(clock.up_time(last)),
            },
            _ => return None,
        })
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

    /// Seconds until a report is complete.
    fn remaining(&self, timer: &Timer) -> i32 {
        if timer.interval == 0 {
            return 0;
        }
        let began = if timer.began == 0 {
            self.tables.clock.ticks()
        } else {
            timer.began
        };
        let left = (began + timer.interval).saturating_sub(self.tables.clock.ticks());
        i32::try_from(left.div_ceil(SECOND)).unwrap_or(i32::MAX)
    }
}

/// A counter of etherStats.
pub(crate) fn ether_value(ether: &Ether, column: u32) -> Option<Value> {
    // Frames with errors do not come as far as this; of two kinds the interface tells how many there are.
    let counter = match column {
        3 => ether.drop_events,
        4 => ether.octets,
        5 => ether.packets(),
        6 => ether.broadcasts,
        7 => ether.multicasts,
        8 => ether.errors[0],
        10 => ether.sizes[6],
        13 => ether.errors[1],
        9 | 11 | 12 => 0,
        14..=19 => ether.sizes[column as usize - 14],
        _ => return None,
    };
    Some(Value::Counter32(counter as u32))
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
