//! How the rows of what was seen are found, and their values.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Value;
use crate::keys::{HostKey, MapKey, PairKey};
use crate::mib::Index;
use crate::probe::Probe;
use crate::store::{Application, Key, Row};
use crate::tables::{Clock, HostTable, MatrixTable};

type Found = Option<(Index, Value)>;

/// The low part of a counter that began at 0: it is shown as a gauge, and wraps.
fn low(counter: u64) -> Value {
    Value::Gauge32(counter as u32)
}

/// A counter in the three columns that HC-RMON-MIB has of it: what is above 32 bits, all of it.
fn high(counters: &[u64], column: u32) -> Option<Value> {
    let counter = *counters.get((column as usize).checked_sub(1)? / 2)?;
    Some(match column % 2 {
        1 => Value::Gauge32((counter >> 32) as u32),
        _ => Value::Counter64(counter),
    })
}

/// protocolDistStatsTable: control row, LocalIndex.
pub(crate) fn protocol_dist(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let (found, counts) = distributed(probe, index, include)?;
    Some((found, low(*counts.get(column as usize - 1)?)))
}

/// protocolDistStatsHCTable, whose columns continue those of protocolDistStats: what is above 32 bits, all of it.
fn distributed(probe: &mut Probe, index: &[u32], include: bool) -> Option<(Index, [u64; 2])> {
    let (control, local) = match *index {
        [] => (0, None),
        [control] => (control, None),
        [control, local] if include => (control, Some(local)),
        [control, local, ..] => (control, Some(local.saturating_add(1))),
    };
    probe
        .tables
        .dists
        .range(control..)
        .find_map(|(number, table)| {
            let least = local.filter(|_| *number == control).unwrap_or(0);
            let (local, counts) = table.counts.range(least..).next()?;
            Some((SmallVec::from_slice(&[*number, *local]), *counts))
        })
}

/// The first row of tables whose index begins with a control row and a time mark. A walk passes through the rows of
/// its mark once, and goes on with the next control row.
fn marked<T>(
    tables: &mut BTreeMap<u32, T>,
    clock: &Clock,
    index: &[u32],
    include: bool,
    mut find: impl FnMut(&mut T, &[u32], bool, u32) -> Found,
) -> Found {
    if clock.now() == 0 {
        return None;
    }
    let mut at = |tables: &mut BTreeMap<u32, T>, control: u32, mark, rest: &[u32], include| {
        let table = tables.get_mut(&control)?;
        let (row, value) = find(table, rest, include, clock.stamp_of(mark))?;
        let mut index = SmallVec::from_slice(&[control, mark]);
        index.extend(row);
        Some((index, value))
    };
    let mut next = 0;
    if let [control, behind @ ..] = index {
        let (mark, rest) = behind.split_first().unwrap_or((&0, &[]));
        let include = include || behind.len() < 2;
        let found = at(tables, *control, *mark, rest, include);
        if found.is_some() {
            return found;
        }
        next = control.checked_add(1)?;
    }
    let controls: SmallVec<[u32; 8]> = tables.range(next..).map(|(control, _)| *control).collect();
    let mut controls = controls.into_iter();
    controls.find_map(|control| at(tables, control, 0, &[], true))
}

fn host_row(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(&Clock, &Row<HostKey, 5, 1>) -> Option<Value>,
) -> Found {
    let (tables, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    marked(
        tables,
        clock,
        index,
        include,
        |table: &mut HostTable, rest, include, since| {
            let row = table.store.next(0, rest, include, since)?;
            Some((row.key.index(0).collect(), value(clock, row)?))
        },
    )
}

fn pair_row(
    probe: &mut Probe,
    order: usize,
    index: &[u32],
    include: bool,
    value: impl Fn(&Clock, &Row<PairKey, 2, 2>) -> Option<Value>,
) -> Found {
    let (tables, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    marked(
        tables,
        clock,
        index,
        include,
        |table: &mut MatrixTable, rest, include, since| {
            let row = table.store.next(order, rest, include, since)?;
            Some((row.key.index(order).collect(), value(clock, row)?))
        },
    )
}

fn host_application(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(&Clock, &Application<4>) -> Option<Value>,
) -> Found {
    let (tables, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    marked(
        tables,
        clock,
        index,
        include,
        |table: &mut HostTable, rest, include, since| {
            let (row, application) = table.store.next_application(0, rest, include, since)?;
            let index = row.key.index(0).chain([application.protocol]);
            Some((index.collect(), value(clock, application)?))
        },
    )
}

fn pair_application(
    probe: &mut Probe,
    order: usize,
    index: &[u32],
    include: bool,
    value: impl Fn(&Clock, &Application<2>) -> Option<Value>,
) -> Found {
    let (tables, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    marked(
        tables,
        clock,
        index,
        include,
        |table: &mut MatrixTable, rest, include, since| {
            let (row, application) = table.store.next_application(order, rest, include, since)?;
            let index = row.key.index(order).chain([application.protocol]);
            Some((index.collect(), value(clock, application)?))
        },
    )
}

/// Where the counters of hosts stand, in the order of the columns of both MIBs: packets in, packets out, octets in,
/// octets out.
fn created(clock: &Clock, stamp: u32) -> Option<Value> {
    Some(Value::TimeTicks(clock.up_time(stamp)))
}

/// nlHostTable.
pub(crate) fn nl_host(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    host_row(probe, index, include, |clock, row| match column {
        8 => created(clock, row.created),
        column => row
            .counters
            .get(column as usize - 3)
            .map(|counter| low(*counter)),
    })
}

/// nlHostHighCapacityTable.
pub(crate) fn nl_host_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    host_row(probe, index, include, |_, row| high(&row.counters, column))
}

fn nl_matrix(probe: &mut Probe, order: usize, index: &[u32], include: bool, column: u32) -> Found {
    pair_row(probe, order, index, include, |clock, row| match column {
        6 => created(clock, row.created),
        column => row
            .counters
            .get(column as usize - 4)
            .map(|counter| low(*counter)),
    })
}

/// nlMatrixSDTable.
pub(crate) fn nl_matrix_sd(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    nl_matrix(probe, 0, index, include, column)
}

/// nlMatrixDSTable.
pub(crate) fn nl_matrix_ds(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    nl_matrix(probe, 1, index, include, column)
}

/// nlMatrixSDHighCapacityTable.
pub(crate) fn nl_matrix_sd_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair_row(probe, 0, index, include, |_, row| {
        high(&row.counters, column)
    })
}

/// nlMatrixDSHighCapacityTable.
pub(crate) fn nl_matrix_ds_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair_row(probe, 1, index, include, |_, row| {
        high(&row.counters, column)
    })
}

/// alHostTable.
pub(crate) fn al_host(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    host_application(probe, index, include, |clock, row| match column {
        6 => created(clock, row.created),
        column => row
            .counters
            .get(column as usize - 2)
            .map(|counter| low(*counter)),
    })
}

/// alHostHighCapacityTable.
pub(crate) fn al_host_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    host_application(probe, index, include, |_, row| high(&row.counters, column))
}

fn al_matrix(probe: &mut Probe, order: usize, index: &[u32], include: bool, column: u32) -> Found {
    pair_application(probe, order, index, include, |clock, row| match column {
        4 => created(clock, row.created),
        column => row
            .counters
            .get(column as usize - 2)
            .map(|counter| low(*counter)),
    })
}

/// alMatrixSDTable.
pub(crate) fn al_matrix_sd(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    al_matrix(probe, 0, index, include, column)
}

/// alMatrixDSTable.
pub(crate) fn al_matrix_ds(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    al_matrix(probe, 1, index, include, column)
}

/// alMatrixSDHighCapacityTable.
pub(crate) fn al_matrix_sd_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair_application(probe, 0, index, include, |_, row| {
        high(&row.counters, column)
    })
}

/// alMatrixDSHighCapacityTable.
pub(crate) fn al_matrix_ds_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    pair_application(probe, 1, index, include, |_, row| {
        high(&row.counters, column)
    })
}

/// protocolDistStatsHighCapacityTable.
pub(crate) fn protocol_dist_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (found, counts) = distributed(probe, index, include)?;
    Some((found, high(&counts, column)?))
}

/// addressMapTable, whose index begins with the time mark.
pub(crate) fn address_map(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let clock = &probe.tables.clock;
    if clock.now() == 0 {
        return None;
    }
    let (mark, rest) = index.split_first().unwrap_or((&0, &[]));
    let include = include || index.len() < 2;
    let since = clock.stamp_of(*mark);
    let row = probe.tables.map.next(0, rest, include, since)?;
    let mut found = SmallVec::from_slice(&[*mark]);
    found.extend(<MapKey as Key>::index(&row.key, 0));
    let value = match column {
        4 => Value::Octets(row.counters[0].to_be_bytes()[2..].to_vec()),
        _ => Value::TimeTicks(clock.up_time(row.stamp)),
    };
    Some((found, value))
}

/// protocolDir's scalar.
pub(crate) fn directory_scalars(probe: &mut Probe, _: u32) -> Option<Value> {
    Some(Value::TimeTicks(
        probe.tables.clock.up_time(probe.directory_changed),
    ))
}

/// addressMap's scalars.
pub(crate) fn map_scalars(probe: &mut Probe, number: u32) -> Option<Value> {
    let account = &probe.tables.map.network;
    Some(match number {
        1 => Value::Counter32(account.inserts as u32),
        2 => Value::Counter32(account.deletes as u32),
        _ => Value::Integer(account.desired),
    })
}

/// probeConfig's scalars.
pub(crate) fn probe_scalars(probe: &mut Probe, number: u32) -> Option<Value> {
    Some(match number {
        1 => Value::Octets(bits(CAPABILITIES)),
        2 => Value::Octets(env!("CARGO_PKG_VERSION").into()),
        3 => Value::Octets(Vec::new()),
        4 => Value::Octets(date(probe.tables.clock.ticks())),
        5 => Value::Integer(1),
        15 => Value::Octets(bits(SMON_CAPABILITIES)),
        _ => Value::Octets(bits(HC_CAPABILITIES)),
    })
}

/// probeCapabilities: protocolDirectory to alMatrix, and probeConfig.
const CAPABILITIES: &[usize] = &[18, 19, 20, 21, 22, 23, 24, 26];
/// hcRMONCapabilities: of protocolDistribution, nlHost, nlMatrix, alHost, alMatrix.
const HC_CAPABILITIES: &[usize] = &[7, 8, 9, 11, 12];
const SMON_CAPABILITIES: &[usize] = &[];

/// BITS: the first bit is the most significant one of the first octet.
fn bits(numbers: &[usize]) -> Vec<u8> {
    let length = numbers.iter().max().map_or(1, |last| last / 8 + 1);
    let mut bits = vec![0; length];
    for number in numbers {
        bits[number / 8] |= 0x80 >> (number % 8);
    }
    bits
}

/// A date as DateAndTime has it (RFC 2579), in UTC.
fn date(ticks: u64) -> Vec<u8> {
    // Days to date: Howard Hinnant, "chrono-compatible low-level date algorithms" (civil_from_days).
    let (day, tick) = (ticks / 8_640_000, ticks % 8_640_000);
    let shifted = day + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = (year_of_era + era * 400 + u64::from(month <= 2)) as u16;
    let [high, low] = year.to_be_bytes();
    let of_day = [
        tick / 360_000,
        tick / 6000 % 60,
        tick / 100 % 60,
        tick / 10 % 10,
    ];
    let mut date = vec![high, low, month as u8, day as u8];
    date.extend(of_day.map(|part| part as u8));
    date.extend([b'+', 0, 0]);
    date
}
