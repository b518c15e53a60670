//! The protocol directory: which encapsulations are known, and what is counted of them (RFC 4502, protocolDirTable).
//!
//! A protocol is identified by its whole encapsulation, four octets per layer, and one octet of parameters per layer
//! (RFC 2895, 3). What a layer's number means follows from the layer above: an EtherType, a service access point, a
//! protocol number, a port. Descriptions are the names of the layers with dots between.
//!
//! ```text
//!  ether2    ip        udp       snmp
//!  0.0.0.1   0.0.8.0   0.0.0.17  0.0.0.161   identifier: 16 octets
//!  0         0         0         0           parameters: 4 octets, one per layer
//! ```

use std::collections::{BTreeMap, HashMap};

use flowgauge_wire::FoldedState;

use crate::protocols::{self, CONTENT, CONTENTS};

/// What the numbers below a protocol are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// EtherTypes.
    Link,
    /// Service access points of LLC.
    Llc,
    /// Protocol numbers of IP.
    Ipv4,
    /// Protocol numbers behind IPv6's extension headers.
    Ipv6,
    /// Ports.
    Ports,
    /// Nothing is known below it.
    Leaf,
}

/// What is counted of a protocol (protocolDir's Config columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Config {
    /// It cannot be counted.
    NotSupported = 1,
    /// It is not counted.
    Off = 2,
    /// It is counted.
    On = 3,
}

/// The tables that a protocol's entries go to, as numbers of [`Entry::configs`].
pub const MAP: usize = 0;
/// See [`MAP`].
pub const HOST: usize = 1;
/// See [`MAP`].
pub const MATRIX: usize = 2;

/// A protocol of the directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Four octets per layer.
    pub id: Vec<u8>,
    /// One octet per layer.
    pub parameters: Vec<u8>,
    /// The names of its layers.
    pub name: String,
    /// What is below.
    pub kind: Kind,
    /// Address map, hosts, matrix.
    pub configs: [Config; 3],
    /// LocalIndex of the layer above; 0 for a base layer.
    pub parent: u32,
}

/// Why a protocol cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its identifier or parameters are none that can be recognised.
    #[error("no protocol that can be recognised")]
    Unknown,
    /// There are as many as there may be.
    #[error("the directory is full")]
    Full,
}

/// Most protocols that a directory holds.
pub const MOST: usize = 16_384;

/// Bits 0 and 1 of parameters, from either end: RFC 2895 counts from both.
const COUNTS_FRAGMENTS: [u8; 2] = [0x01, 0x80];
const TRACKS_SESSIONS: [u8; 2] = [0x02, 0x40];

/// The port where sessions of TFTP begin, which are the only ones that are tracked.
pub(crate) const TFTP: u16 = 69;

/// Protocols by LocalIndex and by identifier.
#[derive(Clone, Debug)]
pub struct Directory {
    entries: BTreeMap<u32, Entry>,
    /// By their indexes in protocolDirTable.
    index: HashMap<Vec<u32>, u32, FoldedState>,
    children: HashMap<(u32, u32), Vec<u32>, FoldedState>,
    last: u32,
    /// Protocols may be told by content, too.
    pub(crate) has_contents: bool,
    /// Grows with every change that matters to recognition.
    pub(crate) version: u64,
}

impl Default for Directory {
    /// All protocols that are known, those over a wildcard and over llc not counted in hosts and matrices.
    fn default() -> Directory {
        let mut directory = Directory::empty();
        for &(name, base) in protocols::BASES {
            let base = directory.declare(0, name, base);
            match directory.entries.get(&base).map(|entry| entry.kind) {
                Some(Kind::Link) => directory.declare_link(base, name == "ether2"),
                Some(Kind::Llc) => {
                    for &(name, number) in protocols::ACCESS_POINTS {
                        let below = directory.declare(base, name, octets(number));
                        if number == 0x06 {
                            directory.declare_ip(below, false);
                        }
                    }
                }
                _ => {}
            }
        }
        directory
    }
}

impl Directory {
    /// A directory without protocols.
    pub fn empty() -> Directory {
        Directory {
            entries: BTreeMap::new(),
            index: HashMap::default(),
            children: HashMap::default(),
            last: 0,
            has_contents: false,
            version: 1,
        }
    }

    /// All protocols that are known, and over TCP and UDP those that are told by content.
    pub fn with_contents() -> Directory {
        let mut directory = Directory {
            has_contents: true,
            ..Directory::default()
        };
        let transports = directory.iter().filter_map(|(local, entry)| {
            let transport = entry.id.last().filter(|_| entry.kind == Kind::Ports);
            let place = [6, 17].iter().position(|known| Some(known) == transport)?;
            Some((local, place))
        });
        for (local, place) in transports.collect::<Vec<_>>() {
            for (name, number, _) in CONTENTS.iter().filter(|it| it.2[place]) {
                let layer = (CONTENT | u32::from(*number)).to_be_bytes();
                directory.declare(local, &format!("content-{name}"), layer);
            }
        }
        directory
    }

    /// EtherTypes; with tags and tunnels at the usual base layer alone.
    fn declare_link(&mut self, parent: u32, usual: bool) {
        for &(name, number) in protocols::ETHERTYPES {
            let below = self.declare(parent, name, octets(number));
            match number {
                0x0800 | 0x86dd => self.declare_ip(below, usual),
                0x8100 if usual => self.declare_link(below, false),
                _ => {}
            }
        }
    }

    fn declare_ip(&mut self, parent: u32, tunnels: bool) {
        for &(name, number) in protocols::IP_PROTOCOLS {
            let below = self.declare(parent, name, octets(number));
            match number {
                4 | 41 if tunnels => self.declare_ip(below, false),
                47 if tunnels => {
                    for (name, number) in [("ip", 0x0800), ("ipv6", 0x86dd)] {
                        let inner = self.declare(below, name, octets(number));
                        self.declare_ip(inner, false);
                    }
                }
                6 => self.declare_ports(below, protocols::TCP_PORTS),
                17 => self.declare_ports(below, protocols::UDP_PORTS),
                132 => self.declare_ports(below, protocols::SCTP_PORTS),
                _ => {}
            }
        }
    }

    fn declare_ports(&mut self, parent: u32, ports: &[protocols::Named]) {
        for &(name, number) in ports {
            self.declare(parent, name, octets(number));
        }
    }

    /// Adds a protocol of the tables above.
    fn declare(&mut self, parent: u32, name: &str, layer: [u8; 4]) -> u32 {
        let above = self.entries.get(&parent);
        let (mut id, mut parameters) = above.map_or_else(Default::default, |above| {
            (above.id.clone(), above.parameters.clone())
        });
        let wildcard = id.first().unwrap_or(&layer[0]) == &1;
        id.extend(layer);
        parameters.push(0);
        let added = self.add(id, parameters, Some(name)).unwrap_or(parent);
        if let Some(entry) = self.entries.get_mut(&added).filter(|_| wildcard) {
            for config in &mut entry.configs {
                if *config == Config::On {
                    *config = Config::Off;
                }
            }
        }
        added
    }

    /// Adds a protocol, counted wherever it can be, and tells its LocalIndex, which no other had or will have.
    ///
    /// # Errors
    /// If its identifier or parameters are not those of a protocol below one that is known, or there are too many.
    pub fn add(
        &mut self,
        id: Vec<u8>,
        parameters: Vec<u8>,
        name: Option<&str>,
    ) -> Result<u32, Refused> {
        self.insert(None, id, parameters, name)
    }

    /// The same with a LocalIndex that this protocol had before.
    pub(crate) fn insert(
        &mut self,
        known: Option<u32>,
        id: Vec<u8>,
        parameters: Vec<u8>,
        name: Option<&str>,
    ) -> Result<u32, Refused> {
        let key = index(&id, &parameters);
        let entry = self.admit(&key, id, parameters, name)?;
        let local = known.unwrap_or(self.last + 1);
        self.last = self.last.max(local);
        self.restore(local, entry);
        Ok(local)
    }

    /// A protocol as it would be if it were added under a `key` that is its index.
    pub(crate) fn admit(
        &self,
        key: &[u32],
        id: Vec<u8>,
        parameters: Vec<u8>,
        name: Option<&str>,
    ) -> Result<Entry, Refused> {
        let (above, layer) = id.split_last_chunk::<4>().ok_or(Refused::Unknown)?;
        if above.len() % 4 != 0 || id.len() != parameters.len() * 4 || id.len() > 128 {
            return Err(Refused::Unknown);
        }
        if self.index.contains_key(key) {
            return Err(Refused::Unknown);
        }
        if self.entries.len() >= MOST || self.last == i32::MAX as u32 {
            return Err(Refused::Full);
        }
        let (parent, kind, name) = if above.is_empty() {
            let known = protocols::BASES.iter().find(|(_, base)| base == layer);
            let (known, _) = known.ok_or(Refused::Unknown)?;
            let kind = match layer[3] {
                2 => Kind::Llc,
                4 => Kind::Leaf,
                _ => Kind::Link,
            };
            (0, kind, (*known).to_owned())
        } else {
            let above_key = index(above, &parameters[..parameters.len() - 1]);
            let parent = *self.index.get(&above_key).ok_or(Refused::Unknown)?;
            let above = self.entries.get(&parent).ok_or(Refused::Unknown)?;
            let by_number = kind(above.kind, *layer);
            let by_content = || self.by_content(above, *layer).then_some(Kind::Leaf);
            let kind = by_number.or_else(by_content).ok_or(Refused::Unknown)?;
            let name = name.map_or_else(|| number(*layer).to_string(), str::to_owned);
            (parent, kind, format!("{}.{name}", above.name))
        };
        let parameter = parameters.last().copied().unwrap_or(0);
        if !can_have(kind, &id, parameter) {
            return Err(Refused::Unknown);
        }
        let addresses = match kind {
            Kind::Ipv4 | Kind::Ipv6 => Config::On,
            _ => Config::NotSupported,
        };
        // Counted as an application of the network layer below it, if there is one.
        let counted = if addresses == Config::On || self.network(parent).is_some() {
            Config::On
        } else {
            Config::NotSupported
        };
        Ok(Entry {
            id,
            parameters,
            name,
            kind,
            configs: [addresses, counted, counted],
            parent,
        })
    }

    /// Whether a layer above a transport is one that is told by content.
    fn by_content(&self, above: &Entry, layer: [u8; 4]) -> bool {
        let places = [6, 17].map(|transport| above.id.last() == Some(&transport));
        let mut known = CONTENTS.iter();
        self.has_contents
            && above.kind == Kind::Ports
            && known.any(|(_, content, over)| {
                number(layer) == CONTENT | u32::from(*content)
                    && (places[0] && over[0] || places[1] && over[1])
            })
    }

    /// Takes a protocol out. Those below it are not recognised any more.
    pub fn remove(&mut self, local_index: u32) -> Option<Entry> {
        let entry = self.entries.remove(&local_index)?;
        self.index.remove(&index(&entry.id, &entry.parameters));
        let layer = entry.id.last_chunk::<4>().copied().unwrap_or_default();
        let key = (entry.parent, u32::from_be_bytes(layer));
        if let Some(siblings) = self.children.get_mut(&key) {
            siblings.retain(|other| *other != local_index);
            if siblings.is_empty() {
                self.children.remove(&key);
            }
        }
        self.version += 1;
        Some(entry)
    }

    /// Puts in a protocol, or back what was taken out, under this LocalIndex.
    pub(crate) fn restore(&mut self, local_index: u32, entry: Entry) {
        let layer = entry.id.last_chunk::<4>().copied().unwrap_or_default();
        let key = (entry.parent, u32::from_be_bytes(layer));
        self.index
            .insert(index(&entry.id, &entry.parameters), local_index);
        self.children.entry(key).or_default().push(local_index);
        self.entries.insert(local_index, entry);
        self.version += 1;
    }

    /// Changes what is counted of a protocol.
    pub fn change(&mut self, local_index: u32, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&local_index) {
            change(entry);
            self.version += 1;
        }
    }

    /// The protocol with this LocalIndex.
    pub fn get(&self, local_index: u32) -> Option<&Entry> {
        self.entries.get(&local_index)
    }

    /// All protocols by LocalIndex.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(index, entry)| (*index, entry))
    }

    /// LocalIndex of an identifier with parameters, as an index of protocolDirTable.
    pub fn find(&self, index: &[u32]) -> Option<u32> {
        self.index.get(index).copied()
    }

    /// LocalIndex of the protocol with this name and no parameters.
    pub fn named(&self, name: &str) -> Option<u32> {
        let found = self.entries.iter().find(|(_, entry)| entry.name == name);
        found.map(|(index, _)| *index)
    }

    /// Protocols right below `parent` (0: base layers) with this number.
    pub(crate) fn below(&self, parent: u32, layer: u32) -> impl Iterator<Item = u32> {
        let all = self.children.get(&(parent, layer));
        all.into_iter().flatten().copied()
    }

    /// All ports that some protocol has below ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let above = |parent: &u32| self.entries.get(parent).map(|entry| entry.kind);
        let known = self.children.keys();
        let ports = known.filter(move |(parent, _)| above(parent) == Some(Kind::Ports));
        ports.filter_map(|(_, number)| u16::try_from(*number).ok())
    }

    /// LocalIndex of the protocol and of those above it, innermost first.
    pub(crate) fn chain(&self, local_index: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let at = |index: u32| self.entries.get(&index).map(|entry| (index, entry));
        core::iter::successors(at(local_index), move |(_, entry)| at(entry.parent))
    }

    /// The network layer at or above a protocol.
    pub(crate) fn network(&self, local_index: u32) -> Option<u32> {
        let mut chain = self.chain(local_index);
        let found = chain.find(|(_, entry)| matches!(entry.kind, Kind::Ipv4 | Kind::Ipv6));
        found.map(|(index, _)| index)
    }
}

impl Entry {
    /// protocolDirType: extensible (0), addressRecognitionCapable (1).
    pub(crate) fn type_bits(&self) -> u8 {
        match self.kind {
            Kind::Leaf => 0,
            Kind::Ipv4 | Kind::Ipv6 => 0xc0,
            Kind::Link | Kind::Llc | Kind::Ports => 0x80,
        }
    }

    /// Whether later fragments count for what is below it.
    pub(crate) fn counts_fragments(&self) -> bool {
        let parameter = self.parameters.last();
        parameter.is_some_and(|parameter| COUNTS_FRAGMENTS.contains(parameter))
    }

    /// Whether it counts packets of the sessions that it begins, whatever their ports.
    pub(crate) fn tracks_sessions(&self) -> bool {
        let parameter = self.parameters.last();
        parameter.is_some_and(|parameter| TRACKS_SESSIONS.contains(parameter))
    }
}

/// The number of a protocol that is told by content; 0: there is none of this name.
pub fn content(name: &str) -> u16 {
    let known = CONTENTS.iter().find(|(known, ..)| *known == name);
    known.map_or(0, |(_, number, _)| *number)
}

/// An index of protocolDirTable: both strings with their lengths before (RFC 2895, 3.1).
pub fn index(id: &[u8], parameters: &[u8]) -> Vec<u32> {
    let mut index = Vec::with_capacity(2 + id.len() + parameters.len());
    for octets in [id, parameters] {
        index.push(octets.len() as u32);
        index.extend(octets.iter().map(|octet| u32::from(*octet)));
    }
    index
}

fn octets(number: u16) -> [u8; 4] {
    u32::from(number).to_be_bytes()
}

fn number(layer: [u8; 4]) -> u32 {
    u32::from_be_bytes(layer)
}

/// What is below a layer of this number below a layer of that kind, if there can be one.
fn kind(above: Kind, layer: [u8; 4]) -> Option<Kind> {
    let number = number(layer);
    match (above, number) {
        (Kind::Link, 0x0800) | (Kind::Llc, 0x06) | (Kind::Ipv4 | Kind::Ipv6, 4) => Some(Kind::Ipv4),
        (Kind::Link, 0x86dd) | (Kind::Ipv4 | Kind::Ipv6, 41) => Some(Kind::Ipv6),
        (Kind::Link, 0x8100) | (Kind::Ipv4 | Kind::Ipv6, 47) => Some(Kind::Link),
        (Kind::Link, 0x0600..=0xffff) => Some(Kind::Leaf),
        (Kind::Llc, 0..=0xff) => Some(Kind::Leaf),
        (Kind::Ipv4 | Kind::Ipv6, 6 | 17 | 132) => Some(Kind::Ports),
        (Kind::Ipv4 | Kind::Ipv6, 0..=0xff) => Some(Kind::Leaf),
        (Kind::Ports, 0..=0xffff) => Some(Kind::Leaf),
        _ => None,
    }
}

/// Whether the last layer can have this octet of parameters: countsFragments of IP. RFC 2895 numbers bits from the most
/// significant one while its examples write them from the least: both are taken.
fn can_have(kind: Kind, id: &[u8], parameter: u8) -> bool {
    let is_ip = matches!(kind, Kind::Ipv4 | Kind::Ipv6);
    let is_tftp = kind == Kind::Leaf && id.ends_with(&[0, 0, 0, 17, 0, 0, 0, TFTP as u8]);
    parameter == 0
        || is_ip && COUNTS_FRAGMENTS.contains(&parameter)
        || is_tftp && TRACKS_SESSIONS.contains(&parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest's examples of RFC 2895 and 3919, byte for byte.
    #[test]
    fn identifiers_are_those_of_the_rfcs() {
        let directory = Directory::default();
        for (name, expected) in [
            (
                "snap.ip.udp.snmp",
                "16.0.0.0.3.0.0.8.0.0.0.0.17.0.0.0.161.4.0.0.0.0",
            ),
            ("*ether2.ip", "8.1.0.0.1.0.0.8.0.2.0.0"),
            ("ether2.ipv6", "8.0.0.0.1.0.0.134.221.2.0.0"),
            ("ether2.ieee802.1q", "8.0.0.0.1.0.0.129.0.2.0.0"),
            ("*ether2", "4.1.0.0.1.1.0"),
        ] {
            let numbers: Vec<u32> = expected.split('.').map(|n| n.parse().unwrap()).collect();
            assert_eq!(directory.find(&numbers), directory.named(name), "{name}");
            assert!(directory.named(name).is_some(), "{name}");
        }
    }

    #[test]
    fn managers_add_what_can_be_recognised() {
        let mut directory = Directory::default();
        let udp = [0, 0, 0, 1, 0, 0, 8, 0, 0, 0, 0, 17];
        let below = |port: [u8; 4]| [&udp[..], &port].concat();
        let added = directory
            .add(below([0, 0, 39, 15]), vec![0; 4], None)
            .unwrap();
        assert_eq!(directory.get(added).unwrap().name, "ether2.ip.udp.9999");
        assert_eq!(
            directory.get(added).unwrap().configs,
            [Config::NotSupported, Config::On, Config::On]
        );
        // The same again, no port, no parent with these parameters, a wrong number of parameters, no such parameter.
        for (id, parameters) in [
            (below([0, 0, 39, 15]), vec![0; 4]),
            (below([0, 1, 39, 15]), vec![0; 4]),
            (below([0, 0, 39, 16]), vec![0, 1, 0, 0]),
            (below([0, 0, 39, 16]), vec![0; 3]),
            (below([0, 0, 39, 16]), vec![0, 0, 0, 1]),
            (vec![0, 0, 0, 9], vec![0]),
            (vec![0, 0, 0], vec![0]),
            (vec![], vec![]),
        ] {
            assert_eq!(
                directory.add(id.clone(), parameters, None),
                Err(Refused::Unknown),
                "{id:?}"
            );
        }
        // Parameters: IP counts fragments, in either order of bits.
        for parameter in [1, 128] {
            let (ip, udp) = (udp[..8].to_vec(), udp.to_vec());
            directory.add(ip, vec![0, parameter], None).unwrap();
            directory.add(udp, vec![0, parameter, 0], None).unwrap();
        }
        // A LocalIndex is never used again.
        directory.remove(added).unwrap();
        let again = directory
            .add(below([0, 0, 39, 15]), vec![0; 4], None)
            .unwrap();
        assert!(again > added);
    }
}
