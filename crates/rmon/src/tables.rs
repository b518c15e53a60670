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

/// By number of the control row.
pub(crate) type All<T> = BTreeMap<u32, Of<T>>;

/// Those of an interface.
pub(crate) fn of<T>(all: &All<T>, interface: u32) -> impl Iterator<Item = &T> {
    let all = all.values().filter(move |it| it.interface == interface);
    all.map(|it| &it.table)
}

/// Those of an interface, to be changed.
pub(crate) fn of_mut<T>(all: &mut All<T>, interface: u32) -> impl Iterator<Item = &mut T> {
    let all = all.values_mut();
    let all = all.filter(move |it| it.interface == interface);
    all.map(|it| &mut it.table)
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
            hosts: BTreeMap::new(),
            matrices: BTreeMap::new(),
            dists: BTreeMap::new(),
            maps: BTreeMap::new(),
            map: Map::new(Account::new(-1, NETWORK_LIMIT), Account::new(-1, 0)),
            stations: BTreeMap::new(),
            station_pairs: BTreeMap::new(),
        }
    }
}

impl Tables {
    /// Whether the rows of a packet, if they are new, take others' places.
    pub(crate) fn are_full(&self, interface: u32, group: &Group) -> bool {
        let (ends, pairs) = (
            2 * group.host_applications.len(),
            group.matrix_applications.len(),
        );
        let hosts = || of(&self.hosts, interface).any(|hosts| hosts.is_full(2, ends));
        let matrices = || of(&self.matrices, interface).any(|all| all.is_full(1, pairs));
        group.host && hosts()
            || group.matrix && matrices()
            || group.map && self.map.network.is_full(1)
    }

    /// Lets rows be changed at the first stamp at most, as stamps begin anew at a time; not at all before sysUpTime was 0.
    pub(crate) fn purge(&mut self, now: Ticks) {
        let passed = self
            .clock
            .began(now)
            .saturating_sub(self.clock.origin.unwrap_or(0));
        let before = u32::try_from(passed).unwrap_or(u32::MAX);
        self.map.purge(before);
        let hosts = self.hosts.values_mut();
        hosts.for_each(|it| it.table.purge(before));
        let pairs = self.matrices.values_mut();
        pairs.for_each(|it| it.table.purge(before));
    }

    /// The interfaces that tables are of.
    pub(crate) fn numbers(&mut self) -> impl Iterator<Item = &mut u32> {
        let hosts = self.hosts.values_mut().map(|it| &mut it.interface);
        let matrices = self.matrices.values_mut().map(|it| &mut it.interface);
        let dists = self.dists.values_mut().map(|it| &mut it.interface);
        let maps = self.maps.values_mut().map(|it| &mut it.interface);
        let stations = self.stations.values_mut().map(|it| &mut it.interface);
        let pairs = self.station_pairs.values_mut().map(|it| &mut it.interface);
        let tables = hosts.chain(matrices).chain(dists).chain(maps);
        tables.chain(stations).chain(pairs)
    }

    /// Whether addresses of this interface are mapped.
    pub(crate) fn maps(&self, interface: u32) -> bool {
        of(&self.maps, interface).next().is_some()
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
                of_mut(&mut self.maps, interface).for_each(|dropped| *dropped += packets);
            }
        }
        if group.host {
            let applications = &group.host_applications;
            for store in of_mut(&mut self.hosts, interface) {
                let out = [0, packets, 0, octets, gathered.group_packets];
                store.add(next(), applications, &out, at);
                store.add(next(), applications, &[packets, 0, octets, 0, 0], later);
                store.drop_frames(packets);
            }
        }
        if group.matrix {
            let applications = &group.matrix_applications;
            for store in of_mut(&mut self.matrices, interface) {
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
        for hosts in of(&self.hosts, interface).filter(|_| group.host) {
            hosts.prefetch(next(), step);
            hosts.prefetch(next(), step);
        }
        for pairs in of(&self.matrices, interface).filter(|_| group.matrix) {
            pairs.prefetch(next(), step);
        }
    }

    /// Adds packets and octets to what is known of these protocols.
    pub(crate) fn distribute(&mut self, interface: u32, nodes: &[u32], counted: [u64; 2]) {
        for table in of_mut(&mut self.dists, interface) {
            for node in nodes {
                let counts = table.counts.entry(*node).or_default();
                counts[0] += counted[0];
                counts[1] += counted[1];
            }
        }
    }
}
