//! Assigns packets to shards.
//!
//! The shard is chosen by the IP addresses of the packet's flow, the same for both directions, so that a whole flow is
//! on one shard, including its fragments. Ports are excluded, as fragments have none. A tunnelled packet belongs to the
//! inner flow, so the innermost addresses decide, as in the flow table; they are also the only ones that are the same
//! in both directions if the outer ones differ (Teredo, 6to4, asymmetric routes).
//!
//! Multicast and broadcast requests and their replies have different addresses. Packets of such [ports](OF_GROUPS) are
//! together on one shard for consumers that are [given](Spread::with_groups) packets that way; the packets between two
//! hosts are then on two shards.
//!
//! Fragments of a tunnel's datagram follow the first fragment. Those that precede it are assigned by their outer
//! addresses, and the first one follows them. A datagram that never becomes complete belongs to the flow by which it
//! was assigned. It is forgotten here when the defragmenter is done with it, because it is complete or has timed out.

use std::collections::HashMap;

use flowgauge_stream::ShardConfig;
use flowgauge_wire::{
    Address, Batch, CARRIERS, DecodeFlags, DecodeOptions, Decoded, DecodedBatch, Decoder, FlowKey,
    FragmentInfo, HashSeed, LinkType, Nanos, PacketDescriptor, PacketFlags, fragment_info,
};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Datagrams in fragments that are remembered, in each of two generations.
const REMEMBERED: usize = 4096;

/// Ports of UDP to which requests go that hosts answer from other addresses than the request was for:
/// to all, or to a group. DHCP, NetBIOS names, DHCPv6, SSDP, multicast DNS and LLMNR.
const OF_GROUPS: [u16; 8] = [67, 68, 137, 546, 547, 1900, 5353, 5355];

/// Finds the shard of each packet.
pub(crate) struct Spread {
    /// Of all shards together.
    shares: u64,
    /// Those that the first shard has less than others.
    missing: u64,
    seed: &'static HashSeed,
    decoder: Decoder,
    /// A bit for each port of UDP that is to be looked at: tunnels, and those of groups.
    special_ports: Box<[u64; 1024]>,
    /// Whether those of groups are together for some.
    groups: bool,
    decoded: DecodedBatch,
    fragments: Fragments,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shards {
    pub(crate) by_address: usize,
    /// Another one than by addresses only for what is of ports of groups.
    pub(crate) by_group: usize,
}

impl Shards {
    fn same(shard: usize) -> Shards {
        Shards {
            by_address: shard,
            by_group: shard,
        }
    }
}

impl Spread {
    /// Shares of the packets that each shard gets, but for the [first](Spread::with_first).
    pub(crate) const SHARES: u64 = 16;

    /// Over so many shards; tunnels are those of `options`.
    pub(crate) fn new(shards: usize, options: DecodeOptions) -> Spread {
        let mut special_ports = Box::new([0u64; 1024]);
        let mark = |port: u16| special_ports[usize::from(port >> 6)] |= 1 << (port & 63);
        if options.decapsulate {
            let lists = [
                &options.vxlan_ports,
                &options.geneve_ports,
                &options.gtpu_ports,
                &options.teredo_ports,
                &options.ayiya_ports,
            ];
            lists.into_iter().flatten().copied().for_each(mark);
        }
        Spread {
            shares: shards.max(1) as u64 * Spread::SHARES,
            missing: 0,
            seed: HashSeed::of_process(),
            decoder: Decoder::new(options),
            special_ports,
            groups: false,
            decoded: DecodedBatch::new(),
            fragments: Fragments::default(),
        }
    }

    /// Gives the first shard, whose thread has more to do, so many shares of the packets only, where
    /// others get 16.
    pub(crate) fn with_first(mut self, shares: u64) -> Spread {
        let is_alone = self.shares + self.missing == Spread::SHARES;
        let missing = Spread::SHARES.saturating_sub(if is_alone { Spread::SHARES } else { shares });
        self.shares = self.shares + self.missing - missing;
        self.missing = missing;
        self
    }

    /// Another that sends each packet to the same shard.
    pub(crate) fn twin(&self) -> Spread {
        Spread {
            decoder: Decoder::new(self.decoder.options().clone()),
            special_ports: self.special_ports.clone(),
            decoded: DecodedBatch::new(),
            fragments: Fragments::default(),
            ..*self
        }
    }

    /// Has all that is of ports of groups together on [one shard](Shards::by_group).
    pub(crate) fn with_groups(mut self) -> Spread {
        for port in OF_GROUPS {
            self.special_ports[usize::from(port >> 6)] |= 1 << (port & 63);
        }
        self.groups = true;
        self
    }

    /// The shards of a packet of a batch.
    #[inline]
    pub(crate) fn shards_of(&mut self, packet: &PacketDescriptor, bytes: &[u8]) -> Shards {
        match self.plain(packet, bytes) {
            Some(hash) => Shards::same(self.shard(hash)),
            None => self.other(packet, bytes),
        }
    }

    /// The usual packet: Ethernet, IP, and TCP or UDP that is no tunnel.
    #[inline]
    fn plain(&self, packet: &PacketDescriptor, bytes: &[u8]) -> Option<u64> {
        if packet.link != LinkType::ETHERNET || packet.flags.contains(PacketFlags::VLAN) {
            return None;
        }
        let head = bytes.first_chunk::<54>()?;
        let (protocol, ports, hash) = if head[12..14] == IPV4 {
            if head[14] != 0x45 || u16::from_be_bytes([head[20], head[21]]) & 0x3fff != 0 {
                return None;
            }
            let source = Address::v4([head[26], head[27], head[28], head[29]]);
            let destination = Address::v4([head[30], head[31], head[32], head[33]]);
            (head[23], 34, self.hash(4, source, destination))
        } else if head[12..14] == IPV6 {
            let source = Address(*head[22..].first_chunk()?);
            let destination = Address(*head[38..].first_chunk()?);
            (head[20], 54, self.hash(6, source, destination))
        } else {
            return None;
        };
        if protocol == TCP {
            return Some(hash);
        }
        let ports = bytes.get(ports..ports + 4)?;
        let is_special = self.is_special(u16::from_be_bytes([ports[0], ports[1]]))
            || self.is_special(u16::from_be_bytes([ports[2], ports[3]]));
        (protocol == UDP && !is_special).then_some(hash)
    }

    fn is_special(&self, port: u16) -> bool {
        self.special_ports[usize::from(port >> 6)] >> (port & 63) & 1 != 0
    }

    /// The same for both directions.
    #[inline]
    fn hash(&self, version: u8, one: Address, other: Address) -> u64 {
        let number = |address: Address| u128::from_be_bytes(address.0);
        let (low, high) = match number(one) <= number(other) {
            true => (one, other),
            false => (other, one),
        };
        self.seed.hash(&FlowKey {
            low,
            high,
            version,
            ..FlowKey::default()
        })
    }

    #[inline]
    fn shard(&self, hash: u64) -> usize {
        let share = ((u128::from(hash) * u128::from(self.shares)) >> 64) as u64;
        ((share + self.missing) / Spread::SHARES) as usize
    }

    /// Everything else: decoded as the shard will.
    #[cold]
    #[inline(never)]
    fn other(&mut self, packet: &PacketDescriptor, bytes: &[u8]) -> Shards {
        let alone = PacketDescriptor {
            offset: 0,
            ..*packet
        };
        let packets = [alone];
        self.decoder
            .decode_batch(&Batch::new(bytes, &packets), &mut self.decoded);
        let Some(&decoded) = self.decoded.packets.first() else {
            return Shards::same(0);
        };
        if !decoded.has_ip() {
            // Nobody's flow: wherever there is time.
            let mut address = [0; 16];
            for (to, from) in address.iter_mut().zip(bytes) {
                *to = *from;
            }
            return Shards::same(self.shard(self.hash(0, Address(address), Address::default())));
        }
        let ports = [decoded.key.low_port, decoded.key.high_port];
        let protocol = decoded.key.protocol;
        let is_fragment = decoded.flags.contains(DecodeFlags::FRAGMENT);
        let default = Shards::same(self.shard(self.hash_of(&decoded)));
        if is_fragment && CARRIERS.contains(&protocol) {
            return self.fragment(&decoded, bytes, packet.time, default);
        }
        let is_of_groups = || ports.iter().any(|port| OF_GROUPS.contains(port));
        match self.groups && protocol == UDP && !is_fragment && is_of_groups() {
            true => self.with_group(default),
            false => default,
        }
    }

    /// Those of what is of a port of groups.
    fn with_group(&self, shards: Shards) -> Shards {
        Shards {
            by_group: self.shard(self.hash(0, Address::default(), Address::default())),
            ..shards
        }
    }

    fn hash_of(&self, decoded: &Decoded) -> u64 {
        let key = &decoded.key;
        self.hash(key.version, key.low, key.high)
    }

    /// A fragment of a datagram that may be a tunnel's.
    fn fragment(
        &mut self,
        decoded: &Decoded,
        bytes: &[u8],
        time: Nanos,
        default: Shards,
    ) -> Shards {
        let start = usize::from(decoded.ip_offset);
        let Some(info) = fragment_info(bytes, start) else {
            return default;
        };
        let (source, destination) = (decoded.source().0, decoded.destination().0);
        let datagram = (source, destination, info.id, info.protocol);
        let known = self.fragments.get(&datagram, info.version, time);
        let mut known = known.unwrap_or_else(|| {
            let shards = if info.offset != 0 {
                default
            } else if self.groups && is_of_group(bytes, info.protocol, info.data_offset as usize) {
                self.with_group(default)
            } else {
                self.carried(decoded, bytes).map_or(default, Shards::same)
            };
            Known::new(shards, time)
        });
        known.add(&info);
        self.fragments.put(datagram, known);
        known.shards
    }

    /// The shard of what a first fragment carries.
    fn carried(&mut self, decoded: &Decoded, bytes: &[u8]) -> Option<usize> {
        let scratch = &mut self.decoded;
        let inner = self
            .decoder
            .decode_first_fragment(bytes, decoded, scratch)?;
        Some(self.shard(self.hash_of(&inner)))
    }
}

/// Whether a datagram that begins with this fragment is of a [port of groups](OF_GROUPS).
fn is_of_group(bytes: &[u8], protocol: u8, data: usize) -> bool {
    let ports = bytes.get(data..).and_then(|data| data.first_chunk::<4>());
    ports.is_some_and(|&[a, b, c, d]| {
        let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
        protocol == UDP && ports.iter().any(|port| OF_GROUPS.contains(port))
    })
}

type Datagram = (Address, Address, u32, u8);

/// Where a datagram in fragments goes, by the first of them that came.
#[derive(Clone, Copy)]
struct Known {
    shards: Shards,
    since: Nanos,
    /// Bytes of its payload that came, those sent twice twice.
    seen: u32,
    /// How many there are, once its last fragment came.
    total: u32,
}

impl Known {
    fn new(shards: Shards, since: Nanos) -> Known {
        Known {
            shards,
            since,
            seen: 0,
            total: u32::MAX,
        }
    }

    fn add(&mut self, fragment: &FragmentInfo) {
        self.seen = self.seen.saturating_add(fragment.data_len);
        if !fragment.more {
            self.total = fragment.offset.saturating_add(fragment.data_len);
        }
    }
}

/// Where datagrams in fragments went: the last few thousand.
struct Fragments {
    young: HashMap<Datagram, Known>,
    old: HashMap<Datagram, Known>,
    timeout_v4: Nanos,
    timeout_v6: Nanos,
}

impl Default for Fragments {
    /// With the timeouts of those who put datagrams together.
    fn default() -> Fragments {
        let shards = ShardConfig::default().defragment;
        Fragments {
            young: HashMap::new(),
            old: HashMap::new(),
            timeout_v4: shards.timeout_v4,
            timeout_v6: shards.timeout_v6,
        }
    }
}

impl Fragments {
    /// What is known of a datagram that is still being put together at `now`.
    fn get(&self, datagram: &Datagram, version: u8, now: Nanos) -> Option<Known> {
        let found = self.young.get(datagram);
        let known = *found.or_else(|| self.old.get(datagram))?;
        let timeout = match version {
            4 => self.timeout_v4,
            _ => self.timeout_v6,
        };
        (known.seen < known.total && now - known.since <= timeout).then_some(known)
    }

    fn put(&mut self, datagram: Datagram, known: Known) {
        if self.young.len() >= REMEMBERED {
            self.old = core::mem::take(&mut self.young);
        }
        self.young.insert(datagram, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 26,000 hashes each shard gets.
    fn counts(spread: &Spread, shards: usize) -> Vec<u64> {
        let mut counts = vec![0; shards];
        for number in 0..26_000_u64 {
            let step = u64::MAX / 26_000;
            counts[spread.shard(number * step + step / 2)] += 1;
        }
        assert!(spread.shard(u64::MAX) < shards);
        counts
    }

    #[test]
    fn shards_get_equal_shares_but_for_the_first() {
        let of = |shards| Spread::new(shards, DecodeOptions::default());
        assert_eq!(counts(&of(1), 1), [26_000]);
        assert_eq!(counts(&of(2), 2), [13_000, 13_000]);
        assert_eq!(counts(&of(2).with_first(10), 2), [10_000, 16_000]);
        assert_eq!(counts(&of(2).with_first(0), 2), [0, 26_000]);
        assert_eq!(counts(&of(3).with_first(6), 3)[0], 26_000 * 6 / 38);
        assert_eq!(counts(&of(1).with_first(0), 1), [26_000]);
    }

    /// A datagram over IPv4, or a fragment of one.
    fn udp(addresses: [[u8; 4]; 2], ports: [u16; 2], vlan: bool, fragment: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if vlan {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(IPV4);
        let first = [0x45, 0, 0, 52, 0, 9];
        frame.extend(first);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, UDP, 0, 0]);
        frame.extend(addresses.concat());
        if fragment & 0x1fff == 0 {
            frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        } else {
            frame.extend([0; 4]);
        }
        frame.extend([0, 32, 0, 0]);
        frame.resize(frame.len() + 24, 0);
        frame
    }

    fn place(spread: &mut Spread, bytes: &[u8]) -> Shards {
        let packet = PacketDescriptor {
            captured_len: bytes.len() as u32,
            wire_len: bytes.len() as u32,
            link: LinkType::ETHERNET,
            ..PacketDescriptor::default()
        };
        spread.shards_of(&packet, bytes)
    }

    #[test]
    fn pairs_that_somebody_chose_are_spread_as_others() {
        let spread = Spread::new(8, DecodeOptions::default());
        let v4 = |address: u32| Address::v4(address.to_be_bytes());
        let v6 =
            |high: u64, low: u64| Address((u128::from(high) << 64 | u128::from(low)).to_be_bytes());
        type Make<'a> = &'a dyn Fn(u32) -> (u8, Address, Address);
        let chosen: [Make<'_>; 4] = [
            &|n| (4, v4(n), v4(!n)),
            &|n| (4, v4(0x0a00_0000 + n), v4(0xc000_0000 - n)),
            &|n| (6, v6(7, 1), v6(u64::from(n), u64::from(n).rotate_left(29))),
            &|n| (6, v6(u64::from(n), 1), v6(!u64::from(n), 1)),
        ];
        for make in chosen {
            let mut counts = [0; 8];
            for (version, one, other) in (0..4096).map(make) {
                let hash = spread.hash(version, one, other);
                assert_eq!(hash, spread.hash(version, other, one));
                counts[spread.shard(hash)] += 1;
            }
            // 512 are expected, with a standard deviation of 21.
            assert!(counts.iter().all(|n| (300..724).contains(n)), "{counts:?}");
        }
    }

    #[test]
    fn requests_to_groups_and_their_replies_are_on_one_shard() {
        let (client, server, all) = ([0; 4], [10, 0, 0, 1], [255; 4]);
        let (asking, group) = ([10, 0, 0, 9], [224, 0, 0, 251]);
        let packets = [
            udp([client, all], [68, 67], false, 0),
            udp([server, [10, 0, 0, 7]], [67, 68], false, 0),
            udp([asking, group], [5353, 5353], true, 0),
            udp([server, asking], [5353, 5353], false, 0),
            // Of a fragmented one the ports are in the first fragment only.
            udp([server, group], [5353, 5353], false, 0x2000),
            udp([server, group], [5353, 5353], false, 4),
        ];
        for shards in 2..9 {
            let mut spread = Spread::new(shards, DecodeOptions::default()).with_groups();
            let places = packets.iter().map(|bytes| place(&mut spread, bytes));
            let places: Vec<usize> = places.map(|shards| shards.by_group).collect();
            assert!(places.iter().all(|&place| place == places[0]), "{places:?}");
        }
        // By addresses they are where others are, as all are where nobody asks.
        static SEED: HashSeed = HashSeed::new(1);
        let mut spread = Spread::new(8, DecodeOptions::default());
        spread.seed = &SEED;
        let places = |spread: &mut Spread| packets.each_ref().map(|bytes| place(spread, bytes));
        let unasked = places(&mut spread);
        assert!(
            unasked
                .iter()
                .all(|place| place.by_group == place.by_address)
        );
        assert!(
            unasked[..4].iter().any(|place| *place != unasked[0]),
            "{unasked:?}"
        );
        let mut spread = spread.with_groups();
        let asked = places(&mut spread);
        let same = asked.iter().zip(&unasked);
        assert!(
            same.into_iter()
                .all(|(asked, unasked)| asked.by_address == unasked.by_address)
        );
        let places: std::collections::HashSet<usize> = (0..64)
            .map(|host| udp([[10, 0, 0, host], server], [4000, 53], false, 0))
            .map(|bytes| place(&mut spread, &bytes).by_group)
            .collect();
        assert_eq!(places.len(), 8);
    }
}
