//! Rows of stations, as [`crate::rows`] has those of protocols and hosts.

use smallvec::SmallVec;

use crate::Value;
use crate::control::Control;
use crate::probe::Probe;
use crate::rows::{Found, augment, high_counter, least, within, within_mut};
use crate::stations::{Station, StationPair};
use crate::store::{Key, Row};

fn counter(counter: u64) -> Value {
    Value::Counter32(counter as u32)
}

fn address(station: Station) -> Value {
    Value::Octets(station.octets().to_vec())
}

/// A station in its row: control row, place in the order of creation.
type InRow<'a> = (u32, u64, &'a Row<Station, 6, 1>);

/// Columns of hostTable and of hostTimeTable.
fn station_value((control, place, row): InRow<'_>, column: u32) -> Option<Value> {
    Some(match column {
        1 => address(row.key),
        2 => Value::Integer(place as i32),
        3 => Value::Integer(control as i32),
        4..=7 => counter(row.counters[column as usize - 4]),
        8 => counter(0),
        _ => counter(*row.counters.get(column as usize - 5)?),
    })
}

/// By address.
fn by_address(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(InRow<'_>) -> Option<Value>,
) -> Found {
    let tables = &mut probe.tables.stations;
    within_mut(tables, index, include, |control, table, rest, include| {
        let stations = &mut table.store;
        let deletes = stations.network.deletes;
        let row = stations.next(0, rest, include, 0)?;
        let value = value((control, row.used + 1 - deletes, row))?;
        Some((Key::index(&row.key, 0).collect(), value))
    })
}

/// By order of creation.
fn by_time(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(InRow<'_>) -> Option<Value>,
) -> Found {
    let tables = &mut probe.tables.stations;
    within_mut(tables, index, include, |control, table, rest, include| {
        let place = least(rest, include).max(1);
        let station = table.created.get(place as usize - 1)?;
        let row = table.store.find(station)?;
        let value = value((control, place.into(), row))?;
        Some((SmallVec::from_slice(&[place]), value))
    })
}

/// hostTable.
pub(crate) fn host(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    by_address(probe, index, include, |row| station_value(row, column))
}

/// hostTimeTable.
pub(crate) fn host_time(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    by_time(probe, index, include, |row| station_value(row, column))
}

/// hostHighCapacityTable.
pub(crate) fn host_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    by_address(probe, index, include, |(_, _, row)| {
        high_counter(&row.counters, column)
    })
}

/// hostTimeHighCapacityTable.
pub(crate) fn host_time_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    by_time(probe, index, include, |(_, _, row)| {
        high_counter(&row.counters, column)
    })
}

fn pair(
    probe: &mut Probe,
    order: usize,
    index: &[u32],
    include: bool,
    value: impl Fn(u32, &Row<StationPair, 2, 2>) -> Option<Value>,
) -> Found {
    let tables = &mut probe.tables.station_pairs;
    within_mut(tables, index, include, |control, pairs, rest, include| {
        let row = pairs.store.next(order, rest, include, 0)?;
        Some((row.key.index(order).collect(), value(control, row)?))
    })
}

fn pair_value(control: u32, row: &Row<StationPair, 2, 2>, column: u32) -> Option<Value> {
    Some(match column {
        1 => address(row.key.source),
        2 => address(row.key.destination),
        3 => Value::Integer(control as i32),
        4 | 5 => counter(row.counters[column as usize - 4]),
        _ => counter(0),
    })
}

/// matrixSDTable, matrixDSTable: by their order.
pub(crate) fn matrix<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair(probe, ORDER, index, include, |control, row| {
        pair_value(control, row, column)
    })
}

/// matrixSDHighCapacityTable, matrixDSHighCapacityTable.
pub(crate) fn matrix_hc<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair(probe, ORDER, index, include, |_, row| {
        high_counter(&row.counters, column)
    })
}

/// hostControl2Table and others of RMON2-MIB: dropped frames, creation.
pub(crate) fn control_2(
    probe: &Probe,
    control: Control,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    augment(probe, control, index, include, |row| {
        Some(match column {
            1 => Value::Counter32(0),
            _ => Value::TimeTicks(probe.tables.clock.up_time(row.created)),
        })
    })
}

fn report(
    probe: &Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(u32, u32, (Station, u64)) -> Option<Value>,
) -> Found {
    let reports = probe.jobs.station_reports.iter();
    let reports = reports.map(|(number, report)| (*number, report));
    within(reports, index, include, |control, report, rest, include| {
        let place = least(rest, include).max(1);
        let row = report.rows.get(place as usize - 1)?;
        Some((SmallVec::from_slice(&[place]), value(control, place, *row)?))
    })
}

/// hostTopNTable.
pub(crate) fn host_top_n(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    report(probe, index, include, |control, place, (station, rate)| {
        Some(match column {
            1 => Value::Integer(control as i32),
            2 => Value::Integer(place as i32),
            3 => address(station),
            _ => Value::Integer(i32::try_from(rate).unwrap_or(i32::MAX)),
        })
    })
}

/// hostTopNHighCapacityTable.
pub(crate) fn host_top_n_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    report(probe, index, include, |_, _, (station, rate)| {
        Some(match column {
            1 => address(station),
            2 => Value::Gauge32(rate as u32),
            3 => Value::Gauge32((rate >> 32) as u32),
            _ => Value::Counter64(rate),
        })
    })
}
