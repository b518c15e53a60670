//! The rows that a packet counts in at one of its network layers.

use flowgauge_wire::Address;
use smallvec::SmallVec;

use crate::keys::{HostKey, MapKey, PairKey};
use crate::paths::Group;
use crate::store::{Handle, Moment};
use crate::tables::Tables;

/// The rows of one direction of a conversation, which are needed more seldom: those in the order of [`Tables::deliver`], then
/// those of its stations, if its frames have any, in the order of [`Tables::deliver_stations`]. Before they are found,
/// where they are likely.
pub(crate) type SideRows = SmallVec<[Handle; 7]>;

/// What the rows of a packet at one network layer are found by.
pub(crate) struct Found<'a> {
    group: &'a Group,
    source: HostKey,
    destination: HostKey,
    interface: u32,
    /// Source of the frame, at the outermost network layer.
    pub(crate) mac: Option<u64>,
}

impl<'a> Found<'a> {
    pub(crate) fn new(
        group: &'a Group,
        interface: u32,
        ends: ((Address, u16), (Address, u16)),
    ) -> Found<'a> {
        let host = |(address, _)| HostKey {
            network: group.network,
            is_v4: group.is_v4,
            address,
        };
        Found {
            group,
            source: host(ends.0),
            destination: host(ends.1),
            interface,
            mac: None,
        }
    }

    fn pair(&self) -> PairKey {
        PairKey {
            network: self.group.network,
            is_v4: self.group.is_v4,
            source: self.source.address,
            destination: self.destination.address,
        }
    }

    /// Has the CPU fetch the rows that are there, of the pair, and of its `hosts`, and notes them in the order of
    /// [`Found::rows`].
    pub(crate) fn prefetch(
        &self,
        tables: &Tables,
        hosts: bool,
        outermost: bool,
        rows: &mut SideRows,
    ) {
        if outermost && self.group.map && tables.maps(self.interface) {
            let key = MapKey {
                host: self.source,
                interface: self.interface,
            };
            rows.push(tables.map.prefetch_key(&key));
        }
        for store in tables.hosts.of(self.interface).filter(|_| self.group.host) {
            rows.extend([&self.source, &self.destination].map(|host| match hosts {
                true => store.prefetch_key(host),
                false => Handle::NONE,
            }));
        }
        for store in tables
            .matrices
            .of(self.interface)
            .filter(|_| self.group.matrix)
        {
            rows.push(store.prefetch_key(&self.pair()));
        }
    }

    /// Finds or makes the rows, in the order in which [`Tables::deliver`] takes them. Those of packets `back`, if they are
    /// known, are the same hosts'; `likely` tells where others may be.
    pub(crate) fn rows(
        &self,
        tables: &mut Tables,
        at: Moment,
        (mut back, likely): (
            Option<&mut impl Iterator<Item = Handle>>,
            &mut impl Iterator<Item = Handle>,
        ),
        rows: &mut SideRows,
    ) {
        let &Found {
            group,
            interface,
            source,
            destination,
            ..
        } = self;
        let mut known = || back.as_mut().and_then(|back| back.next());
        let mut likely = || likely.next().unwrap_or(Handle::NONE);
        if let Some(mac) = self.mac.filter(|_| group.map && tables.maps(interface)) {
            known();
            let likely = likely();
            let key = MapKey {
                host: source,
                interface,
            };
            rows.push(match mac {
                0 => Handle::NONE,
                mac => tables.map_address(&key, mac, at, likely),
            });
        }
        let later = Moment {
            used: at.used + 1,
            ..at
        };
        let mut gone = 0;
        if group.host {
            let applications = &group.host_applications;
            for store in tables.hosts.of_mut(interface) {
                let ends = (known(), known());
                let places = (likely(), likely());
                if let (Some(destination), Some(source)) = ends {
                    rows.extend([source, destination]);
                    continue;
                }
                let before = store.deletes();
                rows.push(store.resolve(&source, applications, at, places.0));
                rows.push(store.resolve(&destination, applications, later, places.1));
                gone += store.deletes() - before;
            }
        }
        if group.matrix {
            let pair = self.pair();
            let applications = &group.matrix_applications;
            for store in tables.matrices.of_mut(interface) {
                known();
                let before = store.deletes();
                rows.push(store.resolve(&pair, applications, at, likely()));
                gone += store.deletes() - before;
            }
        }
        if gone != 0 {
            tables.epoch += 1;
        }
    }
}
