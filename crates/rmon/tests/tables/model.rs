//! The tables as a naive program keeps them: maps from names to counters, every packet looked at on its own.

use std::collections::{BTreeMap, BTreeSet};

use flowgauge_rmon::{Oid, Probe, Value};
use flowgauge_wire::LinkType;

use crate::traces::{Packet, walk};

/// Layers of an encapsulation: their numbers, and the addresses of network layers.
type Layers = Vec<([u8; 4], Ends)>;

/// Source and destination, of network layers.
type Ends = Option<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug, Default)]
struct Row {
    unique: u64,
    counters: [u64; 5],
    created: u32,
    stamp: u32,
    used: u64,
    /// Applications by LocalIndex.
    below: BTreeMap<u32, Row>,
}

/// Rows by LocalIndex and addresses, at most so many of the network layer and of the application layer.
#[derive(Debug)]
pub(crate) struct Rows {
    rows: BTreeMap<(u32, Vec<Vec<u8>>), Row>,
    most: [usize; 2],
    pub(crate) inserts: [u64; 2],
    pub(crate) deletes: [u64; 2],
}

#[derive(Debug)]
pub(crate) struct Model {
    /// LocalIndex by identifier, of protocols without parameters.
    directory: BTreeMap<Vec<u8>, u32>,
    /// Hosts and pairs: whether protocols are counted.
    configs: BTreeMap<u32, bool>,
    pub(crate) dist: BTreeMap<u32, [u64; 2]>,
    pub(crate) hosts: Rows,
    pub(crate) pairs: Rows,
    map: BTreeMap<(u32, Vec<u8>), ([u8; 6], u32)>,
    /// sysUpTime 0.
    zero: u64,
    pub(crate) tick: u32,
    clock: u64,
    uses: u64,
}

impl Rows {
    fn new(most: [usize; 2]) -> Rows {
        Rows {
            rows: BTreeMap::new(),
            most,
            inserts: [0; 2],
            deletes: [0; 2],
        }
    }

    fn applications(&self) -> usize {
        self.rows.values().map(|row| row.below.len()).sum()
    }

    /// Uses a row and its applications, which are made if need be. Tells what identifies it.
    fn touch(&mut self, key: &(u32, Vec<Vec<u8>>), below: &[u32], tick: u32, used: u64) -> u64 {
        let new = |unique| Row {
            unique,
            created: tick,
            stamp: tick,
            used,
            ..Row::default()
        };
        if !self.rows.contains_key(key) {
            while self.rows.len() >= self.most[0] {
                let oldest = self.rows.iter().min_by_key(|(_, row)| row.used);
                let oldest = oldest.map(|(key, _)| key.clone()).unwrap();
                let gone = self.rows.remove(&oldest).unwrap();
                self.deletes[0] += 1;
                self.deletes[1] += gone.below.len() as u64;
            }
            self.inserts[0] += 1;
            self.rows.insert(key.clone(), new(self.inserts[0]));
        }
        self.rows.get_mut(key).unwrap().used = used;
        for &protocol in below {
            if let Some(known) = self.rows.get_mut(key).unwrap().below.get_mut(&protocol) {
                known.used = used;
                continue;
            }
            while self.applications() >= self.most[1] {
                let all = self.rows.iter().flat_map(|(key, row)| {
                    let below = row.below.iter();
                    below.map(move |(protocol, row)| (row.used, *protocol, key))
                });
                let (_, protocol, key) = all.min().unwrap();
                let key = key.clone();
                self.rows.get_mut(&key).unwrap().below.remove(&protocol);
                self.deletes[1] += 1;
            }
            self.inserts[1] += 1;
            let row = self.rows.get_mut(key).unwrap();
            row.below.insert(protocol, new(0));
        }
        self.rows[key].unique
    }

    fn add(
        &mut self,
        key: &(u32, Vec<Vec<u8>>),
        unique: u64,
        below: &[u32],
        counters: [u64; 5],
        tick: u32,
    ) {
        let Some(row) = self.rows.get_mut(key).filter(|row| row.unique == unique) else {
            return;
        };
        let add = |row: &mut Row| {
            row.stamp = tick;
            for (counter, more) in row.counters.iter_mut().zip(counters) {
                *counter += more;
            }
        };
        add(row);
        for protocol in below {
            row.below.get_mut(protocol).map(add);
        }
    }
}

impl Model {
    /// A model of what the probe counts, with bounds of entries.
    pub(crate) fn new(probe: &mut Probe, most: [usize; 2], zero: u64) -> Model {
        let (mut directory, mut configs) = (BTreeMap::new(), BTreeMap::new());
        let mut locals = BTreeMap::new();
        for (name, value) in walk(probe, "11.2.1.3") {
            let Value::Integer(local) = value else {
                panic!("{name}: {value:?}");
            };
            let index = &name.numbers()[11..];
            let length = index[0] as usize;
            let id: Vec<u8> = index[1..=length].iter().map(|octet| *octet as u8).collect();
            locals.insert(index.to_vec(), local as u32);
            directory.insert(id, local as u32);
        }
        for (name, value) in walk(probe, "11.2.1.7") {
            let local = locals[&name.numbers()[11..]];
            configs.insert(local, value == Value::Integer(3));
        }
        Model {
            directory,
            configs,
            dist: BTreeMap::new(),
            hosts: Rows::new(most),
            pairs: Rows::new(most),
            map: BTreeMap::new(),
            zero,
            tick: 0,
            clock: 0,
            uses: 0,
        }
    }

    pub(crate) fn count(&mut self, packet: &Packet) {
        self.clock = self.clock.max(packet.time.0 / 10_000_000);
        self.tick = (self.clock - self.zero) as u32;
        let tick = self.tick;
        self.uses += 4;
        let octets = u64::from(packet.length.max(60)) + 4;
        let layers = layers(packet);
        // Each encapsulation as far as the directory has it.
        let mut chains: Vec<Vec<(u32, Ends)>> = Vec::new();
        let wildcard = [1, 0, 0, 1];
        for base in [layers.first().map(|first| first.0), Some(wildcard)] {
            let Some(base) = base else {
                continue;
            };
            if base == wildcard && layers.first().is_none_or(|first| first.0 == [0, 0, 0, 2]) {
                continue;
            }
            let ports = usize::from(has_ports(&layers)) * 2;
            let (layers, ports) = layers.split_at(layers.len() - ports);
            let (mut id, mut chain) = (Vec::new(), Vec::new());
            for (at, (number, addresses)) in layers.iter().enumerate() {
                id.extend(if at == 0 { base } else { *number });
                let Some(local) = self.directory.get(&id) else {
                    break;
                };
                chain.push((*local, addresses.clone()));
            }
            // The lower port that is known.
            if chain.len() == layers.len() {
                let known = ports.iter().map(|(port, _)| [&id[..], port].concat());
                let found = known.into_iter().find_map(|id| self.directory.get(&id));
                chain.extend(found.map(|local| (*local, None)));
            }
            chains.push(chain);
        }
        let all: BTreeSet<u32> = chains.iter().flatten().map(|(local, _)| *local).collect();
        for local in all {
            let counts = self.dist.entry(local).or_default();
            counts[0] += 1;
            counts[1] += octets;
        }
        let macs = packet
            .bytes
            .get(..12)
            .filter(|_| packet.link == LinkType::ETHERNET);
        let group = u64::from(macs.is_some_and(|macs| macs[0] & 1 == 1));
        let (mut to_hosts, mut to_pairs) = (Vec::new(), Vec::new());
        let most = chains.iter().map(Vec::len).max().unwrap_or(0);
        for level in 0..most {
            for chain in &chains {
                let networks = chain
                    .iter()
                    .enumerate()
                    .filter(|(_, (_, addresses))| addresses.is_some());
                let Some((at, (network, Some((source, destination))))) =
                    networks.into_iter().nth(level)
                else {
                    continue;
                };
                self.uses += 4;
                let mac = macs.map(|macs| <[u8; 6]>::try_from(&macs[6..]).unwrap());
                if let Some(mac) =
                    mac.filter(|mac| level == 0 && self.configs[network] && *mac != [0; 6])
                {
                    let known = self
                        .map
                        .entry((*network, source.clone()))
                        .or_insert((mac, tick));
                    if known.0 != mac {
                        *known = (mac, tick);
                    }
                }
                if !self.configs[network] {
                    continue;
                }
                let mut below: Vec<u32> = chain[at..].iter().map(|(local, _)| *local).collect();
                below.retain(|local| self.configs[local]);
                below.sort_unstable();
                let (from, to) = (
                    (*network, vec![source.clone()]),
                    (*network, vec![destination.clone()]),
                );
                let unique = self.hosts.touch(&from, &below, tick, self.uses);
                to_hosts.push((from, unique, below.clone(), [0, 1, 0, octets, group]));
                let unique = self.hosts.touch(&to, &below, tick, self.uses + 1);
                to_hosts.push((to, unique, below.clone(), [1, 0, octets, 0, 0]));
                let pair = (*network, vec![source.clone(), destination.clone()]);
                let unique = self.pairs.touch(&pair, &below, tick, self.uses);
                to_pairs.push((pair, unique, below, [1, octets, 0, 0, 0]));
            }
        }
        for (key, unique, below, counters) in to_hosts {
            self.hosts.add(&key, unique, &below, counters, tick);
        }
        for (key, unique, below, counters) in to_pairs {
            self.pairs.add(&key, unique, &below, counters, tick);
        }
    }

    /// All objects of the tables at a time mark.
    pub(crate) fn objects(&self, mark: u32) -> BTreeMap<Oid, Value> {
        let mut objects = BTreeMap::new();
        let mut put = |table: &str, column: u32, index: Oid, value: Value| {
            let name: Oid = format!("1.3.6.1.2.1.16.{table}.{column}").parse().unwrap();
            objects.insert(name.child(index.numbers()), value);
        };
        let low = |counter: u64| Value::Gauge32(counter as u32);
        for (local, counts) in &self.dist {
            let index = Oid::new(&[1, *local]);
            for (column, count) in counts.iter().enumerate() {
                put("12.2.1", column as u32 + 1, index.clone(), low(*count));
            }
        }
        for ((local, address), (mac, stamp)) in &self.map {
            let source = Oid::new(&[1, 3, 6, 1, 2, 1, 2, 2, 1, 1, 7]);
            let index = Oid::new(&[mark, *local])
                .octets(address)
                .identifier(&source);
            if *stamp >= mark {
                put("13.5.1", 4, index.clone(), Value::Octets(mac.to_vec()));
                put("13.5.1", 5, index, Value::TimeTicks(*stamp));
            }
        }
        let index = |network: u32, addresses: &[&Vec<u8>]| {
            let start = Oid::new(&[1, mark, network]);
            addresses
                .iter()
                .fold(start, |index, address| index.octets(address))
        };
        // Table, first column of counters, how many, column of the creation time.
        let mut rows = |table: &str, columns: [u32; 3], index: Oid, row: &Row| {
            if row.stamp >= mark {
                for counter in 0..columns[1] {
                    let value = low(row.counters[counter as usize]);
                    put(table, columns[0] + counter, index.clone(), value);
                }
                put(table, columns[2], index, Value::TimeTicks(row.created));
            }
        };
        for ((network, addresses), row) in &self.hosts.rows {
            let index = index(*network, &[&addresses[0]]);
            rows("14.2.1", [3, 5, 8], index.clone(), row);
            for (protocol, below) in &row.below {
                rows("16.1.1", [2, 4, 6], index.child(&[*protocol]), below);
            }
        }
        for ((network, addresses), row) in &self.pairs.rows {
            let by_source = index(*network, &[&addresses[0], &addresses[1]]);
            let by_destination = index(*network, &[&addresses[1], &addresses[0]]);
            rows("15.2.1", [4, 2, 6], by_source.clone(), row);
            rows("15.3.1", [4, 2, 6], by_destination.clone(), row);
            for (protocol, below) in &row.below {
                rows("17.1.1", [2, 2, 4], by_source.child(&[*protocol]), below);
                rows(
                    "17.2.1",
                    [2, 2, 4],
                    by_destination.child(&[*protocol]),
                    below,
                );
            }
        }
        objects
    }
}

fn has_ports(layers: &Layers) -> bool {
    let transport = layers.len().checked_sub(3).and_then(|at| layers.get(at));
    let is_ip = layers.iter().any(|(_, addresses)| addresses.is_some());
    is_ip && transport.is_some_and(|(number, _)| matches!(number, [0, 0, 0, 6 | 17 | 132]))
}

fn number(value: u16) -> [u8; 4] {
    u32::from(value).to_be_bytes()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// All layers of a packet, whatever is in the directory; of ports the lower one, then the higher one.
fn layers(packet: &Packet) -> Layers {
    let mut layers = Layers::new();
    let bytes = &packet.bytes[..];
    let (at, ethertype) = match packet.link {
        LinkType::ETHERNET => (14, word(bytes, 12)),
        LinkType::LINUX_SLL => (16, word(bytes, 14)),
        LinkType::LINUX_SLL2 => (20, word(bytes, 0).filter(|_| bytes.len() >= 20)),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => {
            let version = bytes.first().map(|first| first >> 4);
            (
                0,
                version
                    .and_then(|version| {
                        [(4, 0x0800), (6, 0x86dd)]
                            .into_iter()
                            .find(|known| known.0 == version)
                    })
                    .map(|known| known.1),
            )
        }
        _ => return layers,
    };
    let Some(ethertype) = ethertype else {
        return layers;
    };
    if packet.tag.is_some() {
        layers.push((number(1), None));
        layers.push((number(0x8100), None));
        if ethertype > 1500 {
            ethernet(bytes, at, ethertype, &mut layers);
        }
    } else if ethertype > 1500 {
        layers.push((number(1), None));
        ethernet(bytes, at, ethertype, &mut layers);
    } else if bytes.get(at..at + 3) == Some(&[0xaa, 0xaa, 3]) {
        let organisation = bytes.get(at + 3..at + 6);
        if matches!(organisation, Some([0, 0, 0 | 0xf8])) {
            layers.push((number(3), None));
            if let Some(ethertype) = word(bytes, at + 6) {
                ethernet(bytes, at + 8, ethertype, &mut layers);
            }
        } else {
            layers.push((number(4), None));
        }
    } else {
        layers.push((number(2), None));
        if let Some([point, _, _]) = bytes.get(at..at + 3) {
            layers.push((number(u16::from(*point)), None));
            if *point == 6 {
                ip(bytes, at + 3, &mut layers);
            }
        }
    }
    layers
}

fn ethernet(bytes: &[u8], at: usize, ethertype: u16, layers: &mut Layers) {
    let is_tag = matches!(ethertype, 0x8100 | 0x88a8 | 0x9100 | 0x9200);
    let layer = number(if is_tag { 0x8100 } else { ethertype });
    // Further tags are no further layers.
    if !is_tag || layers.last().is_some_and(|(last, _)| *last != layer) {
        layers.push((layer, None));
    }
    match ethertype {
        0x0800 | 0x86dd => ip(bytes, at, layers),
        _ if is_tag => {
            if let Some(inner) = word(bytes, at + 2).filter(|inner| *inner > 1500) {
                ethernet(bytes, at + 4, inner, layers);
            }
        }
        _ => {}
    }
}

fn ip(bytes: &[u8], at: usize, layers: &mut Layers) {
    let layer = layers.last_mut().unwrap();
    let wants_v6 = matches!(layer.0, [0, 0, 0x86, 0xdd] | [0, 0, 0, 41]);
    let Some(head) = bytes.get(at..) else {
        return;
    };
    let version = head.first().map_or(0, |first| first >> 4);
    if !wants_v6 && version == 4 && head.len() >= 20 {
        layer.1 = Some((head[12..16].to_vec(), head[16..20].to_vec()));
        let header = usize::from(head[0] & 15) * 4;
        let end = match usize::from(word(head, 2).unwrap()) {
            0 => bytes.len(),
            length => bytes.len().min(at + length),
        };
        if header < 20 || word(head, 6).unwrap() & 0x1fff != 0 || at + header > end {
            return;
        }
        transport(&bytes[..end], at + header, head[9], layers);
    } else if wants_v6 && version == 6 && head.len() >= 40 {
        layer.1 = Some((head[8..24].to_vec(), head[24..40].to_vec()));
        let end = match usize::from(word(head, 4).unwrap()) {
            0 => bytes.len(),
            length => bytes.len().min(at + 40 + length),
        };
        let (bytes, mut at, mut next) = (&bytes[..end], at + 40, head[6]);
        loop {
            let length = match next {
                0 | 43 | 60 | 135 | 139 | 140 => match bytes.get(at + 1) {
                    Some(length) => 8 * (usize::from(*length) + 1),
                    None => return,
                },
                44 if bytes.len() < at + 8 => return,
                44 if word(bytes, at + 2).unwrap() & 0xfff8 != 0 => return,
                44 => 8,
                _ => return transport(bytes, at, next, layers),
            };
            if bytes[at] == 59 && matches!(next, 135 | 139 | 140) {
                return transport(bytes, at, next, layers);
            }
            if at + length > bytes.len() {
                return;
            }
            next = bytes[at];
            at += length;
        }
    }
}

fn transport(bytes: &[u8], at: usize, protocol: u8, layers: &mut Layers) {
    layers.push((number(u16::from(protocol)), None));
    match protocol {
        4 | 41 => ip(bytes, at, layers),
        47 => {
            let Some(flags) = word(bytes, at) else {
                return;
            };
            let optional = [0x8000, 0x2000, 0x1000]
                .iter()
                .filter(|bit| flags & **bit != 0)
                .count();
            if let Some(ethertype) = word(bytes, at + 2)
                .filter(|_| flags & 0x4007 == 0 && bytes.len() >= at + 4 + 4 * optional)
            {
                layers.push((number(ethertype), None));
                if matches!(ethertype, 0x0800 | 0x86dd) {
                    ip(bytes, at + 4 + 4 * optional, layers);
                }
            }
        }
        6 | 17 | 132 => {
            if let (Some(one), Some(other)) = (word(bytes, at), word(bytes, at + 2)) {
                layers.push((number(one.min(other)), None));
                layers.push((number(one.max(other)), None));
            }
        }
        _ => {}
    }
}
