//! The tables of what was seen, by the control row that they belong to.

use std::collections::BTreeMap;

use flowgauge_wire::Nanos;

use crate::Ticks;
use crate::keys::{Hosts, Map, MapKey, Pairs};
use crate::observe::Gathered;
use crate::paths::Group;
use crate::stations::{StationPairTable, StationTable};
use crate::store::{Account, Handle, Moment};

/// Rows of one table at most, whatever is desired: the network layer's, the application layer's.
pub(crate) const NETWORK_LIMIT: u32 = 2_000_000;
pub(crate) const APPLICATION_LIMIT: u32 = 8_000_000;

/// The time of the tables: the largest time of packets or of whoever feeds them, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// When the first packet came, or the tables were made.
    origin: Option<Ticks>,
    /// Ticks since then, from 1; they begin anew after [`ROUND`].
    pub(crate) stamp: u32,
    /// The end of this tick.
    end: Nanos,
    /// sysUpTime 0.
    zero: Ticks,
}

/// Nanoseconds of a tick.
const TICK: u64 = 10_000_000;

/// Ticks after which sysUpTime is 0 again: 497 days.
const ROUND: Ticks = 1 << u32::BITS;

impl Clock {
    /// Goes on to `now`, if that is later.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: Nanos) {
        if now >= self.end {
            self.set(now.0 / TICK);
        }
    }

    #[cold]
    fn set(&mut self, now: Ticks) {
        let origin = self.origin.get_or_insert(now);
        let passed = now.saturating_sub(*origin);
        *origin += passed / ROUND * ROUND;
        self.stamp = (passed as u32).saturating_add(1);
        self.end = Nanos((now + 1).saturating_mul(TICK));
    }

    /// When stamps begin anew, which rows are to know before: now, if they have not begun.
    pub(crate) fn turn(&self) -> Ticks {
        self.origin.map_or(0, |origin| origin.saturating_add(ROUND))
    }

    /// sysUpTime is 0 at `zero`.
    pub(crate) fn set_zero(&mut self, zero: Ticks) {
        self.zero = zero;
    }

    /// sysUpTime of a stamp, of the round before this one if it is yet to come.
    pub(crate) fn up_time(&self, stamp: u32) -> u32 {
        let mut ticks = self.origin.unwrap_or(0) + u64::from(stamp.saturating_sub(1));
        if stamp > self.stamp {
            ticks = ticks.saturating_sub(ROUND);
        }
        ticks.saturating_sub(self.zero) as u32
    }

    /// The time now.
    pub(crate) fn ticks(&self) -> Ticks {
        self.origin.unwrap_or(0) + u64::from(self.stamp.saturating_sub(1))
    }

    /// The beginning of this tick, or 0 before the first packet.
    pub(crate) fn time(&self) -> Nanos {
        Nanos(self.started_ticks() * TICK)
    }

    /// The time now, or 0 before the first packet.
    pub(crate) fn started_ticks(&self) -> Ticks {
        self.origin.map_or(0, |_| self.ticks())
    }

    /// The stamp of a time.
    pub(crate) fn stamp_at(&self, ticks: Ticks) -> u32 {
        let passed = ticks.wrapping_sub(self.origin.unwrap_or(0));
        (passed as u32).saturating_add(1)
    }

    /// sysUpTime now.
    pub(crate) fn now(&self) -> u32 {
        self.up_time(self.stamp)
    }

    /// The stamp of a sysUpTime: of rows changed since then, none has a smaller one.
    pub(crate) fn stamp_of(&self, up_time: u32) -> u32 {
        if up_time == 0 {
            return 0;
        }
        let ticks = u64::from(up_time) + self.began(self.ticks()) + 1;
        let stamp = ticks.saturating_sub(self.origin.unwrap_or(0));
        u32::try_from(stamp).unwrap_or(u32::MAX).max(1)
    }

    /// When sysUpTime was 0 last before a time: what changed before that is purged.
    fn began(&self, now: Ticks) -> Ticks {
        self.zero + now.saturating_sub(self.zero) / ROUND * ROUND
    }
}

/// The table of one control row, and the interface that it is of.
#[derive(Clone, Debug)]
pub(crate) struct Of<T> {
    pub(crate) interface: u32,
    pub(crate) table: T,
}

/// Tables by the number of their control row.
#[derive(Debug)]
pub(crate) struct All<T> {
    /// Those of an interface side by side, as its packets go through all of them.
    tables: Vec<Of<T>>,
    /// Where each is, by number.
    places: BTreeMap<u32, usize>,
}

impl<T> Default for All<T> {
    fn default() -> All<T> {
        All {
            tables: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl<T> All<T> {
    /// Those of an interface.
    #[inline]
    pub(crate) fn of(&self, interface: u32) -> impl Iterator<Item = &T> {
        let all = self.tables[self.first(interface)..].iter();
        all.take_while(move |it| it.interface == interface)
            .map(|it| &it.table)
    }

    /// Those of an interface, to be changed.
    #[inline]
    pub(crate) fn of_mut(&mut self, interface: u32) -> impl Iterator<Item = &mut T> {
        let first = self.first(interface);
        let all = self.tables[first..].iter_mut();
        all.take_while(move |it| it.interface == interface)
            .map(|it| &mut it.table)
    }

    /// The place of the first one of this interface, or behind all before it.
    #[inline]
    fn first(&self, interface: u32) -> usize {
        self.tables.partition_point(|it| it.interface < interface)
    }

    /// All, by number.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Of<T>> {
        let places = self.places.values();
        places.filter_map(|place| self.tables.get(*place))
    }

    /// All, to be changed.
    pub(crate) fn tables_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.tables.iter_mut().map(|it| &mut it.table)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.places.contains_key(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.tables
            .get(*self.places.get(&number)?)
            .map(|it| &it.table)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let it = self.tables.get_mut(*self.places.get(&number)?);
        it.map(|it| &mut it.table)
    }

    /// What is found first in them from a number on, by number.
    pub(crate) fn find_from<R>(
        &mut self,
        number: u32,
        mut find: impl FnMut(u32, &mut T) -> Option<R>,
    ) -> Option<R> {
        let mut places = self.places.range(number..);
        places.find_map(|(number, place)| find(*number, &mut self.tables[*place].table))
    }

    pub(crate) fn insert(&mut self, number: u32, of: Of<T>) {
        self.remove(number);
        let first = self.first(of.interface);
        let places = self.places.values_mut();
        places
            .filter(|place| **place >= first)
            .for_each(|place| *place += 1);
        self.tables.insert(first, of);
        self.places.insert(number, first);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Of<T>> {
        let removed = self.places.remove(&number)?;
        let places = self.places.values_mut();
        places
            .filter(|place| **place > removed)
            .for_each(|place| *place -= 1);
        Some(self.tables.remove(removed))
    }

    /// Interfaces have other numbers by now.
    pub(crate) fn renumber(&mut self, follow: impl Fn(&mut u32)) {
        let numbers: Vec<u32> = self.places.keys().copied().collect();
        for number in numbers {
            if let Some(mut it) = self.remove(number) {
                follow(&mut it.interface);
                self.insert(number, it);
            }
        }
    }
}

/// Packets and octets of protocols, by LocalIndex.
#[derive(Clone, Debug)]
pub(crate) struct DistTable {
    pub(crate) created: u32,
    pub(crate) counts: BTreeMap<u32, [u64; 2]>,
}

/// All tables that packets are counted in.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) clock: Clock,
    /// Packets seen.
    pub(crate) packets: u64,
    /// Grows when rows went or tables came: what holds rows has to find them again.
    pub(crate) epoch: u64,
    pub(crate) hosts: All<Hosts>,
    pub(crate) matrices: All<Pairs>,
    pub(crate) dists: All<DistTable>,
    /// Frames not mapped of the address map's control rows.
    pub(crate) maps: All<u64>,
    pub(crate) map: Map,
    pub(crate) stations: All<StationTable>,
    pub(crate) station_pairs: All<StationPairTable>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            clock: Clock::default(),
            packets: 0,
            epoch: 1,
            hosts: All::default(),
            matrices: All::default(),
            dists: All::default(),
            maps: All::default(),
            map: Map::new(Account::new(-1, NETWORK_LIMIT), Account::new(-1, 0)),
            stations: All::default(),
            station_pairs: All::default(),
        }
    }
}

impl Tables {
    /// Whether the rows of a packet at one network layer, if they are new, take others' places.
    pub(crate) fn are_full(&self, interface: u32, groups: &[Group]) -> bool {
        let [mut maps, mut hosts, mut ends, mut matrices, mut pairs] = [0; 5];
        for group in groups {
            maps += usize::from(group.map);
            if group.host {
                (hosts, ends) = (hosts + 2, ends + 2 * group.host_applications.len());
            }
            if group.matrix {
                (matrices, pairs) = (matrices + 1, pairs + group.matrix_applications.len());
            }
        }
        self.hosts.of(interface).any(|all| all.is_full(hosts, ends))
            || self
                .matrices
                .of(interface)
                .any(|all| all.is_full(matrices, pairs))
            || self.map.is_full(maps, 0)
    }

    /// Lets rows be changed at the first stamp at most, as stamps begin anew at a time; not at all before sysUpTime was 0.
    pub(crate) fn purge(&mut self, now: Ticks) {
        let passed = self
            .clock
            .began(now)
            .saturating_sub(self.clock.origin.unwrap_or(0));
        let before = u32::try_from(passed).unwrap_or(u32::MAX);
        self.map.purge(before);
        self.hosts.tables_mut().for_each(|it| it.purge(before));
        self.matrices.tables_mut().for_each(|it| it.purge(before));
    }

    /// Interfaces have other numbers by now.
    pub(crate) fn renumber(&mut self, follow: impl Fn(&mut u32)) {
        self.hosts.renumber(&follow);
        self.matrices.renumber(&follow);
        self.dists.renumber(&follow);
        self.maps.renumber(&follow);
        self.stations.renumber(&follow);
        self.station_pairs.renumber(&follow);
    }

    /// Whether addresses of this interface are mapped.
    pub(crate) fn maps(&self, interface: u32) -> bool {
        self.maps.of(interface).next().is_some()
    }

    /// Notes the physical address of an address. One that changes may be in other conversations, too, which note theirs
    /// with their next packets.
    pub(crate) fn map_address(
        &mut self,
        key: &MapKey,
        mac: u64,
        at: Moment,
        likely: Handle,
    ) -> Handle {
        let (inserts, deletes) = (self.map.network.inserts, self.map.deletes());
        let handle = self.map.resolve(key, &[], at, likely);
        let is_new = self.map.network.inserts != inserts;
        let is_other = self.map.set(handle, [mac], at.stamp);
        if is_other && !is_new || self.map.deletes() != deletes {
            self.epoch += 1;
        }
        handle
    }

    /// Adds to the rows of a packet at one network layer, in the order in which they were found.
    pub(crate) fn deliver(
        &mut self,
        interface: u32,
        group: &Group,
        outermost: bool,
        gathered: &Gathered,
        used: u64,
        rows: &mut impl Iterator<Item = Handle>,
    ) {
        let mut next = || rows.next().unwrap_or(Handle::NONE);
        let &Gathered {
            packets, octets, ..
        } = gathered;
        let at = Moment {
            stamp: gathered.stamp,
            used,
        };
        let later = Moment {
            used: used + 1,
            ..at
        };
        if group.map && outermost && self.maps(interface) {
            self.map.touch(next(), used);
            if self.map.network.most() == 0 {
                self.maps
                    .of_mut(interface)
                    .for_each(|dropped| *dropped += packets);
            }
        }
        if group.host {
            let applications = &group.host_applications;
            for store in self.hosts.of_mut(interface) {
                let out = [0, packets, 0, octets, gathered.group_packets];
                store.add(next(), applications, &out, at);
                store.add(next(), applications, &[packets, 0, octets, 0, 0], later);
                store.drop_frames(packets);
            }
        }
        if group.matrix {
            let applications = &group.matrix_applications;
            for store in self.matrices.of_mut(interface) {
                store.add(next(), applications, &[packets, octets], at);
                store.drop_frames(packets);
            }
        }
    }

    /// Has the CPU fetch the rows that [`Tables::deliver`] will need: their first lines, then their applications.
    pub(crate) fn prefetch(
        &self,
        interface: u32,
        group: &Group,
        outermost: bool,
        step: usize,
        rows: &mut impl Iterator<Item = Handle>,
    ) {
        let mut next = || rows.next().unwrap_or(Handle::NONE);
        if group.map && outermost && self.maps(interface) {
            self.map.prefetch(next(), step);
        }
        for hosts in self.hosts.of(interface).filter(|_| group.host) {
            hosts.prefetch(next(), step);
            hosts.prefetch(next(), step);
        }
        for pairs in self.matrices.of(interface).filter(|_| group.matrix) {
            pairs.prefetch(next(), step);
        }
    }

    /// Adds packets and octets to what is known of these protocols.
    pub(crate) fn distribute(&mut self, interface: u32, nodes: &[u32], counted: [u64; 2]) {
        for table in self.dists.of_mut(interface) {
            for node in nodes {
                let counts = table.counts.entry(*node).or_default();
                counts[0] += counted[0];
                counts[1] += counted[1];
            }
        }
    }
}
