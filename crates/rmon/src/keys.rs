//! What tells the rows of each table apart, and their indexes.

use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::iter::{once, repeat};

use flowgauge_wire::Address;

use crate::store::{Key, Store};

/// The octets of an address in an index.
pub(crate) fn octets(is_v4: bool, address: &Address) -> &[u8] {
    &address.0[if is_v4 { 12 } else { 0 }..]
}

fn counted(octets: &[u8]) -> impl Iterator<Item = u32> {
    once(octets.len() as u32).chain(octets.iter().map(|octet| u32::from(*octet)))
}

/// [`Key::start`] of a LocalIndex and the octets behind it.
fn start<'a>(network: u32, octets: impl Iterator<Item = &'a u8>) -> u64 {
    const LARGE: u64 = 0xffff;
    let network = u64::from(network).min(LARGE);
    // Those that do not fit are all in one place.
    let octets = octets.filter(|_| network != LARGE).chain(repeat(&0));
    octets
        .take(6)
        .fold(network, |start, octet| start << 8 | u64::from(*octet))
}

/// What of a key is not an address, in one word: it is hashed for each new row.
fn word(network: u32, is_v4: bool) -> u64 {
    u64::from(network) << 1 | u64::from(is_v4)
}

/// A host: LocalIndex of its network layer, address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostKey {
    pub(crate) network: u32,
    pub(crate) is_v4: bool,
    pub(crate) address: Address,
}

impl Hash for HostKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(word(self.network, self.is_v4));
        state.write(&self.address.0);
    }
}

impl Key for HostKey {
    const ADDRESSES: usize = 1;

    fn network(&self) -> u32 {
        self.network
    }

    fn index(&self, _: usize) -> impl Iterator<Item = u32> {
        once(self.network).chain(counted(octets(self.is_v4, &self.address)))
    }

    fn compare(&self, other: &Self, _: usize) -> Ordering {
        // A network layer has addresses of one length.
        (self.network, self.address).cmp(&(other.network, other.address))
    }

    fn start(&self, _: usize) -> u64 {
        start(self.network, octets(self.is_v4, &self.address).iter())
    }
}

/// A pair of hosts, in the direction of its packets. The first order is by source, the second by destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairKey {
    pub(crate) network: u32,
    pub(crate) is_v4: bool,
    pub(crate) source: Address,
    pub(crate) destination: Address,
}

impl PairKey {
    /// The same pair in the other direction.
    pub(crate) fn reversed(self) -> PairKey {
        PairKey {
            source: self.destination,
            destination: self.source,
            ..self
        }
    }

    fn ordered(&self, order: usize) -> (u32, &Address, &Address) {
        match order {
            0 => (self.network, &self.source, &self.destination),
            _ => (self.network, &self.destination, &self.source),
        }
    }
}

impl Hash for PairKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(word(self.network, self.is_v4));
        state.write(&self.source.0);
        state.write(&self.destination.0);
    }
}

impl Key for PairKey {
    const ADDRESSES: usize = 2;

    fn network(&self) -> u32 {
        self.network
    }

    fn index(&self, order: usize) -> impl Iterator<Item = u32> {
        let (network, one, other) = self.ordered(order);
        let addresses = [one, other].map(|address| counted(octets(self.is_v4, address)));
        once(network).chain(addresses.into_iter().flatten())
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        self.ordered(order).cmp(&other.ordered(order))
    }

    fn start(&self, order: usize) -> u64 {
        let (network, one, other) = self.ordered(order);
        let both = [one, other].map(|address| octets(self.is_v4, address));
        start(network, both.into_iter().flatten())
    }
}

/// An address seen at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MapKey {
    pub(crate) host: HostKey,
    /// ifIndex.
    pub(crate) interface: u32,
}

/// ifIndex of IF-MIB, which names data sources.
pub(crate) const IF_INDEX: [u32; 10] = [1, 3, 6, 1, 2, 1, 2, 2, 1, 1];

impl Key for MapKey {
    const ADDRESSES: usize = 2;

    fn network(&self) -> u32 {
        self.host.network
    }

    fn index(&self, order: usize) -> impl Iterator<Item = u32> {
        let source = once(IF_INDEX.len() as u32 + 1)
            .chain(IF_INDEX)
            .chain(once(self.interface));
        self.host.index(order).chain(source)
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        let host = self.host.compare(&other.host, order);
        host.then(self.interface.cmp(&other.interface))
    }

    fn start(&self, order: usize) -> u64 {
        self.host.start(order)
    }
}

/// Packets and octets to a host, packets and octets from it, and those of its packets that went to a MAC address of more
/// than one station. Its applications have the first four.
pub(crate) type Hosts = Store<HostKey, 5, 4, 1>;

/// Packets and octets.
pub(crate) type Pairs = Store<PairKey, 2, 2, 2>;

/// The physical address.
pub(crate) type Map = Store<MapKey, 1, 0, 1>;
