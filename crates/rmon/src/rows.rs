//! How the rows of what was seen are found, and their values.

use smallvec::SmallVec;

use crate::Value;
use crate::computed::ether_value;
use crate::control::{Control, ControlRow};
use crate::frame::Ether;
use crate::history::{Bucket, History, Sample};
use crate::jobs::SECOND;
use crate::keys::{MapKey, octets};
use crate::mib::Index;
use crate::probe::Probe;
use crate::reports::TopRow;
use crate::store::{Application, Key, Row, Store};
use crate::tables::{All, Clock};

/// Index and value of a row.
pub(crate) type Found = Option<(Index, Value)>;

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

/// The same where what is above is a counter, too.
pub(crate) fn high_counter(counters: &[u64], column: u32) -> Option<Value> {
    Some(match high(counters, column)? {
        Value::Gauge32(above) => Value::Counter32(above),
        all => all,
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
    probe.tables.dists.find_from(control, |number, table| {
        let least = local.filter(|_| number == control).unwrap_or(0);
        let (local, counts) = table.counts.range(least..).next()?;
        Some((SmallVec::from_slice(&[number, *local]), *counts))
    })
}

/// The first row of tables whose index begins with a control row and a time mark. A walk passes through the rows of
/// its mark once, and goes on with the next control row.
fn marked<T>(
    tables: &mut All<T>,
    clock: &Clock,
    index: &[u32],
    include: bool,
    mut find: impl FnMut(&mut T, &[u32], bool, u32) -> Found,
) -> Found {
    if clock.now() == 0 {
        return None;
    }
    let mut at = |table: &mut T, control: u32, mark, rest: &[u32], include| {
        let (row, value) = find(table, rest, include, clock.stamp_of(mark))?;
        let mut index = SmallVec::from_slice(&[control, mark]);
        index.extend(row);
        Some((index, value))
    };
    let mut next = 0;
    if let [control, behind @ ..] = index {
        let (mark, rest) = behind.split_first().unwrap_or((&0, &[]));
        let include = include || behind.len() < 2;
        let table = tables.get_mut(*control);
        let found = table.and_then(|table| at(table, *control, *mark, rest, include));
        if found.is_some() {
            return found;
        }
        next = control.checked_add(1)?;
    }
    tables.find_from(next, |control, table| at(table, control, 0, &[], true))
}

/// A row of the network layer, of hosts or pairs.
fn network_row<K: Key, const N: usize, const A: usize, const O: usize>(
    (tables, clock): (&mut All<Store<K, N, A, O>>, &Clock),
    order: usize,
    index: &[u32],
    include: bool,
    value: impl Fn(&Row<K, N, O>) -> Option<Value>,
) -> Found {
    marked(
        tables,
        clock,
        index,
        include,
        |store, rest, include, since| {
            let row = store.next(order, rest, include, since)?;
            Some((row.key.index(order).collect(), value(row)?))
        },
    )
}

/// And one of the application layer.
fn application_row<K: Key, const N: usize, const A: usize, const O: usize>(
    (tables, clock): (&mut All<Store<K, N, A, O>>, &Clock),
    order: usize,
    index: &[u32],
    include: bool,
    value: impl Fn(&Application<A>) -> Option<Value>,
) -> Found {
    marked(
        tables,
        clock,
        index,
        include,
        |store, rest, include, since| {
            let (row, application) = store.next_application(order, rest, include, since)?;
            let index = row.key.index(order).chain([application.protocol]);
            Some((index.collect(), value(application)?))
        },
    )
}

/// A counter, from the column `first` on, or in the last column the time of creation.
fn counted(
    clock: &Clock,
    (counters, created): (&[u64], u32),
    [first, last]: [u32; 2],
    column: u32,
) -> Option<Value> {
    if column == last {
        return Some(Value::TimeTicks(clock.up_time(created)));
    }
    counters.get((column - first) as usize).copied().map(low)
}

/// nlHostTable.
pub(crate) fn nl_host(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let (hosts, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    let value = |row: &Row<_, _, _>| counted(clock, (&row.counters, row.created), [3, 8], column);
    network_row((hosts, clock), 0, index, include, value)
}

/// nlHostHighCapacityTable.
pub(crate) fn nl_host_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let (hosts, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    network_row((hosts, clock), 0, index, include, |row| {
        high(&row.counters, column)
    })
}

/// nlMatrixSDTable, nlMatrixDSTable: by their order.
pub(crate) fn nl_matrix<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (matrices, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    let value = |row: &Row<_, _, _>| counted(clock, (&row.counters, row.created), [4, 6], column);
    network_row((matrices, clock), ORDER, index, include, value)
}

/// nlMatrixSDHighCapacityTable, nlMatrixDSHighCapacityTable.
pub(crate) fn nl_matrix_hc<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (matrices, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    network_row((matrices, clock), ORDER, index, include, |row| {
        high(&row.counters, column)
    })
}

/// alHostTable.
pub(crate) fn al_host(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let (hosts, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    let value = |row: &Application<_>| counted(clock, (&row.counters, row.created), [2, 6], column);
    application_row((hosts, clock), 0, index, include, value)
}

/// alHostHighCapacityTable.
pub(crate) fn al_host_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let (hosts, clock) = (&mut probe.tables.hosts, &probe.tables.clock);
    application_row((hosts, clock), 0, index, include, |row| {
        high(&row.counters, column)
    })
}

/// alMatrixSDTable, alMatrixDSTable.
pub(crate) fn al_matrix<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (matrices, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    let value = |row: &Application<_>| counted(clock, (&row.counters, row.created), [2, 4], column);
    application_row((matrices, clock), ORDER, index, include, value)
}

/// alMatrixSDHighCapacityTable, alMatrixDSHighCapacityTable.
pub(crate) fn al_matrix_hc<const ORDER: usize>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (matrices, clock) = (&mut probe.tables.matrices, &probe.tables.clock);
    application_row((matrices, clock), ORDER, index, include, |row| {
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

/// probeCapabilities: etherStats to packetCapture, event; protocolDirectory to probeConfig.
const CAPABILITIES: &[usize] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26,
];
/// hcRMONCapabilities: etherStats to captureBuffer; protocolDistribution to usrHistory.
const HC_CAPABILITIES: &[usize] = &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
/// smonCapabilities: VLANs, priorities and data sources.
const SMON_CAPABILITIES: &[usize] = &[0, 1, 2];

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

/// The first row of tables by control row; what is left of the index is the table's.
pub(crate) fn within<T>(
    tables: impl Iterator<Item = (u32, T)>,
    index: &[u32],
    include: bool,
    mut find: impl FnMut(u32, T, &[u32], bool) -> Found,
) -> Found {
    let first = index.first().copied().unwrap_or(0);
    let mut tables = tables.filter(|(number, _)| *number >= first);
    tables.find_map(|(number, table)| {
        below(number, index, include, |rest, include| {
            find(number, table, rest, include)
        })
    })
}

/// The same where tables are sorted for it.
pub(crate) fn within_mut<T>(
    tables: &mut All<T>,
    index: &[u32],
    include: bool,
    mut find: impl FnMut(u32, &mut T, &[u32], bool) -> Found,
) -> Found {
    let first = index.first().copied().unwrap_or(0);
    tables.find_from(first, |number, table| {
        below(number, index, include, |rest, include| {
            find(number, table, rest, include)
        })
    })
}

/// A row of the table of a control row, found by what is left of the index there.
fn below(
    number: u32,
    index: &[u32],
    include: bool,
    find: impl FnOnce(&[u32], bool) -> Found,
) -> Found {
    let (rest, include) = match index {
        [control, rest @ ..] if number == *control => (rest, include || rest.is_empty()),
        _ => (&[][..], true),
    };
    let (row, value) = find(rest, include)?;
    let mut found = SmallVec::from_slice(&[number]);
    found.extend(row);
    Some((found, value))
}

/// The least number that an index can begin with, and whether it is the whole index.
pub(crate) fn least(index: &[u32], include: bool) -> u32 {
    match *index {
        [] => 0,
        [number] if include => number,
        [number, ..] => number.saturating_add(1),
    }
}

fn gauge(number: u64) -> Value {
    Value::Gauge32(u32::try_from(number).unwrap_or(u32::MAX))
}

/// What identifies a row of a report; al has the application behind the addresses.
fn top_name(row: &TopRow, column: u32) -> Option<Value> {
    let pair = &row.pair;
    Some(match column {
        0 => Value::Integer(pair.network as i32),
        1 => Value::Octets(octets(pair.is_v4, &pair.source).to_vec()),
        2 => Value::Octets(octets(pair.is_v4, &pair.destination).to_vec()),
        3 => Value::Integer(row.application as i32),
        _ => return None,
    })
}

/// A rate in the three columns of HC-RMON-MIB: the low part, what is above it, all of it.
fn wide(rates: &[u64], column: u32) -> Option<Value> {
    let rate = *rates.get(column as usize / 3)?;
    Some(match column % 3 {
        0 => Value::Gauge32(rate as u32),
        1 => Value::Gauge32((rate >> 32) as u32),
        _ => Value::Counter64(rate),
    })
}

/// nlMatrixTopNTable, alMatrixTopNTable, and those of reports whose rates have 64 bits.
pub(crate) fn top_n<const APPLICATIONS: bool, const HIGH: bool>(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    let (control, first_high) = match APPLICATIONS {
        true => (Control::AlTopN, 5),
        false => (Control::NlTopN, 3),
    };
    let (names, column) = (3 + u32::from(APPLICATIONS), column + u32::from(HIGH) - 2);
    let reports = probe.jobs.reports.iter();
    let reports = reports
        .filter(|((other, _), it)| *other == control && (it.rate_base >= first_high) == HIGH);
    let reports = reports.map(|((_, number), report)| (*number, report));
    within(reports, index, include, |_, report, rest, include| {
        let place = least(rest, include).max(1);
        let row = report.rows.get(place as usize - 1)?;
        let value = match column.checked_sub(names) {
            None => top_name(row, column),
            Some(rate) if HIGH => wide(&row.rates, rate),
            Some(rate) => row.rates.get(rate as usize).copied().map(gauge),
        };
        Some((SmallVec::from_slice(&[place]), value?))
    })
}

fn user_sample(
    probe: &Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(&Sample, Option<i128>) -> Value,
) -> Found {
    let histories = probe.jobs.user_histories.iter();
    let histories = histories.map(|(number, history)| (*number, history));
    within(histories, index, include, |_, history, rest, include| {
        let (number, behind) = rest.split_first().unwrap_or((&0, &[]));
        let first = history
            .samples
            .partition_point(|sample| sample.number < *number);
        let mut samples = history.samples.iter().skip(first);
        samples.find_map(|sample| {
            let object = match sample.number == *number && !rest.is_empty() {
                true => least(behind, include || behind.is_empty()).max(1),
                false => 1,
            };
            let found = sample.values.get(object as usize - 1)?;
            let index = SmallVec::from_slice(&[sample.number, object]);
            Some((index, value(sample, *found)))
        })
    })
}

/// usrHistoryTable.
pub(crate) fn user_history(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let clock = probe.tables.clock;
    user_sample(probe, index, include, |sample, value| match column {
        2 => Value::TimeTicks(clock.up_time(sample.interval.0)),
        3 => Value::TimeTicks(clock.up_time(sample.interval.1)),
        4 => Value::Gauge32(value.unwrap_or(0).unsigned_abs() as u32),
        // Not available, positive, negative.
        _ => Value::Integer(value.map_or(1, |value| if value < 0 { 3 } else { 2 })),
    })
}

/// usrHistoryHighCapacityTable.
pub(crate) fn user_history_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    user_sample(probe, index, include, |_, value| {
        let value = value.unwrap_or(0).unsigned_abs() as u64;
        match column {
            1 => Value::Gauge32((value >> 32) as u32),
            _ => Value::Counter64(value),
        }
    })
}

/// Buckets by control row and number.
fn bucket(
    probe: &Probe,
    index: &[u32],
    include: bool,
    value: impl Fn(u32, &History, &Bucket) -> Option<Value>,
) -> Found {
    let histories = probe.jobs.histories.iter();
    let histories = histories.map(|(number, history)| (*number, history));
    within(
        histories,
        index,
        include,
        |control, history, rest, include| {
            let least = least(rest, include);
            let first = history
                .buckets
                .partition_point(|bucket| bucket.number < least);
            let bucket = history.buckets.get(first)?;
            let value = value(control, history, bucket)?;
            Some((SmallVec::from_slice(&[bucket.number]), value))
        },
    )
}

/// etherHistoryTable.
pub(crate) fn ether_history(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let clock = probe.tables.clock;
    bucket(probe, index, include, |control, history, bucket| {
        let ether = &bucket.ether;
        Some(match column {
            1 => Value::Integer(control as i32),
            2 => Value::Integer(bucket.number as i32),
            3 => Value::TimeTicks(clock.up_time(bucket.start)),
            // The same counters as in etherStats, one column later.
            4..=14 => return ether_value(ether, column - 1),
            _ => Value::Integer(utilization(history, ether)),
        })
    })
}

/// Hundredths of a percent of what the interface could carry (RFC 2819, etherHistoryUtilization).
fn utilization(history: &History, ether: &Ether) -> i32 {
    let seconds = u128::from((history.timer.interval / SECOND).max(1));
    // The gap between frames and the preamble belong to each packet.
    let bits = u128::from(ether.packets()) * (96 + 64) + u128::from(ether.octets) * 8;
    let most = seconds * u128::from(history.speed.max(1));
    (bits * 10_000 / most).min(10_000) as i32
}

/// etherHistoryHighCapacityTable.
pub(crate) fn ether_history_hc(
    probe: &mut Probe,
    index: &[u32],
    include: bool,
    column: u32,
) -> Found {
    bucket(probe, index, include, |_, _, bucket| {
        high(&[bucket.ether.packets(), bucket.ether.octets], column)
    })
}

/// A table that adds columns to the control rows of another one.
pub(crate) fn augment(
    probe: &Probe,
    control: Control,
    index: &[u32],
    include: bool,
    value: impl Fn(&ControlRow) -> Option<Value>,
) -> Found {
    let rows = probe.controls.range((control, index.to_vec())..);
    let mut rows = rows.take_while(|((other, _), _)| *other == control);
    rows.find_map(|((_, found), row)| {
        let is_behind = found.as_slice() > index || include;
        let value = is_behind.then(|| value(row)).flatten()?;
        Some((SmallVec::from_slice(found), value))
    })
}

/// etherStatsHighCapacityTable.
pub(crate) fn ether_hc(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    augment(probe, Control::Ether, index, include, |row| {
        let ether = probe.ether_of(row)?;
        let [a, b, c, d, e, f, _] = ether.sizes;
        let counters = [ether.packets(), ether.octets, a, b, c, d, e, f];
        high_counter(&counters, column)
    })
}

/// historyControl2Table.
pub(crate) fn history_2(probe: &mut Probe, index: &[u32], include: bool, _: u32) -> Found {
    augment(probe, Control::History, index, include, |_| {
        Some(Value::Counter32(0))
    })
}

/// logTable.
pub(crate) fn log(probe: &mut Probe, index: &[u32], include: bool, column: u32) -> Found {
    let events = probe.jobs.events.iter();
    let events = events.map(|(number, event)| (*number, event));
    within(events, index, include, |event, told, rest, include| {
        let least = least(rest, include);
        let first = told.log.partition_point(|entry| entry.number < least);
        let entry = told.log.get(first)?;
        let value = match column {
            1 => Value::Integer(event as i32),
            2 => Value::Integer(entry.number as i32),
            3 => Value::TimeTicks(probe.tables.clock.up_time(entry.stamp)),
            _ => Value::Octets(entry.text.clone()),
        };
        Some((SmallVec::from_slice(&[entry.number]), value))
    })
}
