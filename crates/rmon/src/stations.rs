//! Stations by MAC address: host, hostTopN and matrix (RFC 2819, groups 4 to 6).
//!
//! The oldest station goes where there are too many, not the least recently used one: so the order of creation, which
//! has no gaps (hostTimeTable), is a queue.

use core::cmp::Ordering;
use core::iter::once;
use std::collections::VecDeque;

use crate::jobs::Timer;
use crate::observe::Gathered;
use crate::probe::Probe;
use crate::store::{Account, Handle, Key, Moment, Snapshot, Store};
use crate::tables::Tables;

/// Stations, or pairs of them, of a table at most.
const LIMIT: u32 = 65_535;

/// A MAC address as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Station(pub(crate) u64);

/// A pair of stations, in the direction of its frames: by source, and by destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StationPair {
    pub(crate) source: Station,
    pub(crate) destination: Station,
}

/// All stations: the destination of broadcasts.
const BROADCAST: Station = Station(0xffff_ffff_ffff);

impl Station {
    pub(crate) fn octets(self) -> [u8; 6] {
        let [_, _, octets @ ..] = self.0.to_be_bytes();
        octets
    }

    /// Of the six octets of an address.
    pub(crate) fn of(octets: &[u8]) -> Station {
        Station(
            octets
                .iter()
                .fold(0, |number, octet| number << 8 | u64::from(*octet)),
        )
    }

    fn is_group(self) -> bool {
        self.0 >> 40 & 1 == 1
    }

    fn index(self) -> impl Iterator<Item = u32> {
        once(6).chain(self.octets().map(u32::from))
    }
}

impl Key for Station {
    const ADDRESSES: usize = 1;

    fn network(&self) -> u32 {
        0
    }

    fn index(&self, _: usize) -> impl Iterator<Item = u32> {
        Station::index(*self)
    }

    fn compare(&self, other: &Self, _: usize) -> Ordering {
        self.0.cmp(&other.0)
    }

    fn start(&self, _: usize) -> u64 {
        self.0
    }
}

impl StationPair {
    fn ordered(&self, order: usize) -> [Station; 2] {
        match order {
            0 => [self.source, self.destination],
            _ => [self.destination, self.source],
        }
    }
}

impl Key for StationPair {
    const ADDRESSES: usize = 2;

    fn network(&self) -> u32 {
        0
    }

    fn index(&self, order: usize) -> impl Iterator<Item = u32> {
        self.ordered(order).into_iter().flat_map(Station::index)
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        let numbers = |pair: &Self| pair.ordered(order).map(|station| station.0);
        numbers(self).cmp(&numbers(other))
    }

    fn start(&self, order: usize) -> u64 {
        self.ordered(order)[0].0
    }
}

/// Counters of a station: packets in and out, octets in and out, broadcasts and multicasts out.
pub(crate) type Stations = Store<Station, 6, 0, 1>;

/// Packets and octets.
pub(crate) type StationPairs = Store<StationPair, 2, 0, 2>;

/// Stations of one control row.
#[derive(Clone, Debug)]
pub(crate) struct StationTable {
    pub(crate) store: Stations,
    /// In the order of their creation.
    pub(crate) created: VecDeque<Station>,
    /// When one was deleted last, as a stamp.
    pub(crate) deleted: u32,
}

/// Pairs of stations of one control row.
#[derive(Clone, Debug)]
pub(crate) struct StationPairTable {
    pub(crate) store: StationPairs,
    pub(crate) deleted: u32,
}

impl StationTable {
    pub(crate) fn new() -> StationTable {
        StationTable {
            store: Stations::first_in_first_out(Account::new(-1, LIMIT)),
            created: VecDeque::new(),
            deleted: 0,
        }
    }

    fn resolve(&mut self, station: Station, stamp: u32) -> Handle {
        let (inserts, deletes) = (self.store.network.inserts, self.store.network.deletes);
        let at = Moment {
            stamp,
            used: inserts,
        };
        let handle = self.store.resolve(&station, &[], at, Handle::NONE);
        if self.store.network.deletes != deletes {
            self.created.pop_front();
            self.deleted = stamp;
        }
        if self.store.network.inserts != inserts {
            self.created.push_back(station);
        }
        handle
    }
}

impl StationPairTable {
    pub(crate) fn new() -> StationPairTable {
        // Each pair counts in both orders.
        let account = Account::new(-1, 2 * LIMIT);
        StationPairTable {
            store: StationPairs::first_in_first_out(account),
            deleted: 0,
        }
    }

    fn resolve(&mut self, pair: &StationPair, stamp: u32) -> Handle {
        let deletes = self.store.network.deletes;
        let used = self.store.network.inserts;
        let at = Moment { stamp, used };
        let handle = self.store.resolve(pair, &[], at, Handle::NONE);
        if self.store.network.deletes != deletes {
            self.deleted = stamp;
        }
        handle
    }
}

impl Tables {
    /// How many rows a frame's stations have.
    pub(crate) fn station_rows(&self, interface: u32) -> usize {
        2 * self.stations.of(interface).count() + self.station_pairs.of(interface).count()
    }

    /// Finds or makes the rows of a frame's stations, in the order in which [`Tables::deliver_stations`] takes them.
    pub(crate) fn resolve_stations(
        &mut self,
        interface: u32,
        macs: &[u8; 12],
        rows: &mut impl Extend<Handle>,
    ) {
        let mut gone = 0;
        let [destination, source] = [&macs[..6], &macs[6..]].map(Station::of);
        let stamp = self.clock.stamp;
        for table in self.stations.of_mut(interface) {
            let before = table.store.deletes();
            rows.extend([source, destination].map(|station| table.resolve(station, stamp)));
            gone += table.store.deletes() - before;
        }
        let pair = StationPair {
            source,
            destination,
        };
        for table in self.station_pairs.of_mut(interface) {
            let before = table.store.deletes();
            rows.extend([table.resolve(&pair, stamp)]);
            gone += table.store.deletes() - before;
        }
        if gone != 0 {
            self.epoch += 1;
        }
    }

    /// Adds to the rows of a frame's stations.
    pub(crate) fn deliver_stations(
        &mut self,
        interface: u32,
        macs: &[u8; 12],
        gathered: &Gathered,
        rows: &mut impl Iterator<Item = Handle>,
    ) {
        let mut next = || rows.next().unwrap_or(Handle::NONE);
        let &Gathered {
            packets,
            octets,
            stamp,
            ..
        } = gathered;
        let at = Moment { stamp, used: 0 };
        let destination = Station::of(&macs[..6]);
        let broadcasts = if destination == BROADCAST { packets } else { 0 };
        let groups = if destination.is_group() { packets } else { 0 };
        let out = [0, packets, 0, octets, broadcasts, groups - broadcasts];
        let received = [packets, 0, octets, 0, 0, 0];
        for table in self.stations.of_mut(interface) {
            table.store.add(next(), &[], &out, at);
            table.store.add(next(), &[], &received, at);
        }
        for table in self.station_pairs.of_mut(interface) {
            table.store.add(next(), &[], &[packets, octets], at);
        }
    }
}

/// A report of hostTopN: collected once, when its time is set.
#[derive(Debug)]
pub(crate) struct StationReport {
    pub(crate) hosts: u32,
    pub(crate) rate_base: u32,
    pub(crate) granted: u32,
    /// The time that was asked for, in seconds.
    pub(crate) duration: u32,
    pub(crate) timer: Timer,
    /// Its start, as a stamp.
    pub(crate) started: u32,
    before: Snapshot<6, 0>,
    pub(crate) rows: Vec<(Station, u64)>,
}

/// Rows of a report at most.
const MOST: u32 = 10_000;

impl StationReport {
    pub(crate) fn new(
        (hosts, rate_base): (u32, u32),
        requested: u32,
        duration: u32,
        timer: Timer,
        tables: &Tables,
    ) -> StationReport {
        let table = tables.stations.get(hosts);
        let before = table
            .filter(|_| duration != 0)
            .map(|it| it.store.snapshot());
        StationReport {
            hosts,
            rate_base,
            granted: requested.min(MOST),
            duration,
            timer,
            started: tables.clock.stamp,
            before: before.unwrap_or_default(),
            rows: Vec::new(),
        }
    }
}

impl Probe {
    /// A report of stations is complete. There is no next one.
    pub(crate) fn end_station_report(&mut self, row: u32) {
        let Some(report) = self.jobs.station_reports.get_mut(&row) else {
            return;
        };
        report.timer.interval = 0;
        let Some(table) = self.tables.stations.get(report.hosts) else {
            return;
        };
        let rate = |counters: [u64; 6]| match report.rate_base {
            by @ 1..=4 => counters[by as usize - 1],
            // Frames with errors do not come as far as this.
            6 | 7 => counters[report.rate_base as usize - 2],
            _ => 0,
        };
        let all = table.store.since(&report.before);
        let mut all: Vec<_> = all
            .map(|(row, counters)| (row.key, rate(counters)))
            .collect();
        all.retain(|(_, rate)| *rate != 0);
        all.sort_unstable_by_key(|(station, rate)| (u64::MAX - rate, station.0));
        all.truncate(report.granted as usize);
        report.rows = all;
        report.before = Snapshot::default();
    }
}
