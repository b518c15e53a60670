//! Flow keys: the endpoints of a packet, the same for both directions.

use core::fmt;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::hash_map::RandomState;
use std::sync::OnceLock;

use ipnet::IpNet;

/// An IPv6 address, or an IPv4 address in its mapped form (`::ffff:a.b.c.d`). The version is given by
/// [`FlowKey::version`], never by the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 16]);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Address {
        match address {
            IpAddr::V4(address) => Address::v4(address.octets()),
            IpAddr::V6(address) => Address(address.octets()),
        }
    }
}

impl Address {
    /// The mapped form of an IPv4 address.
    #[inline]
    pub const fn v4(bytes: [u8; 4]) -> Address {
        // As one number: assembled byte by byte it goes through the stack in pieces, and reading
        // it back whole stalls.
        Address((0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128).to_be_bytes())
    }

    /// The address for output as text: IPv4 if `version` is 4.
    #[inline]
    pub fn to_ip(self, version: u8) -> IpAddr {
        if version == 4 {
            IpAddr::V4(Ipv4Addr::new(
                self.0[12], self.0[13], self.0[14], self.0[15],
            ))
        } else {
            IpAddr::V6(Ipv6Addr::from(self.0))
        }
    }
}

/// Parses a network such as `10.0.0.0/8`, or a single address.
pub fn network(text: &str) -> Option<IpNet> {
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(single)
}

/// Direction of a packet, relative to the order of the addresses in a [`FlowKey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// From `low` to `high`.
    #[default]
    LowToHigh = 0,
    /// From `high` to `low`.
    HighToLow = 1,
}

impl Direction {
    /// The other direction.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Direction {
        match self {
            Direction::LowToHigh => Direction::HighToLow,
            Direction::HighToLow => Direction::LowToHigh,
        }
    }

    /// 0 or 1.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The five-tuple in canonical order: `(low, low_port) <= (high, high_port)`, so that both directions of a conversation
/// have equal keys. ICMP and ICMPv6 use the mapping of Community ID (and Zeek): the source port is the message's type,
/// the destination port the type of its answer (echo 8 and 0), or the code if the message has no answer. Such one-way
/// messages are not reordered, their sender is always `low`: the two directions are two flows. For ESP, the ports are
/// the halves of the security parameters index: it is one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FlowKey {
    /// The smaller endpoint's address.
    pub low: Address,
    /// The larger endpoint's address.
    pub high: Address,
    /// The smaller endpoint's port, host byte order.
    pub low_port: u16,
    /// The larger endpoint's port.
    pub high_port: u16,
    /// IP protocol number of the innermost transport.
    pub protocol: u8,
    /// 4 or 6; 0 for packets without IP.
    pub version: u8,
    /// Zero.
    pub reserved: u16,
    /// Number of the VLAN / tunnel context, if it distinguishes flows; otherwise 0.
    pub context: u32,
}

impl FlowKey {
    /// The canonical key of a packet from `source` to `destination`, and its direction.
    #[inline]
    pub fn new(
        version: u8,
        protocol: u8,
        source: (Address, u16),
        destination: (Address, u16),
    ) -> (FlowKey, Direction) {
        let direction = if source <= destination {
            Direction::LowToHigh
        } else {
            Direction::HighToLow
        };
        let (low, high) = match direction {
            Direction::LowToHigh => (source, destination),
            Direction::HighToLow => (destination, source),
        };
        let key = FlowKey {
            low: low.0,
            high: high.0,
            low_port: low.1,
            high_port: high.1,
            protocol,
            version,
            reserved: 0,
            context: 0,
        };
        (key, direction)
    }

    /// The key without ports: two hosts, in the order of this key.
    #[inline]
    pub fn hosts(&self) -> FlowKey {
        FlowKey {
            low_port: 0,
            high_port: 0,
            context: 0,
            ..*self
        }
    }

    /// Source and destination of a packet of this flow in `direction`.
    #[inline]
    pub fn endpoints(&self, direction: Direction) -> ((Address, u16), (Address, u16)) {
        let low = (self.low, self.low_port);
        let high = (self.high, self.high_port);
        match direction {
            Direction::LowToHigh => (low, high),
            Direction::HighToLow => (high, low),
        }
    }
}

/// The hash key of flow keys, and of all other keys of this process ([`FoldedState`](crate::FoldedState)).
///
/// # The hash
/// A key is four words of 64 bits: IPv4 addresses in one, the ports and the context in another. Their sums with secret
/// words are multiplied, and the products added, modulo 2^128. This is the family NH (Black, Halevi, Krawczyk, Krovetz
/// and Rogaway, "UMAC: Fast and secure message authentication", CRYPTO 1999, section 4): any two different keys have
/// the same sum for at most one in 2^64 secrets. Both halves of the sum are then added to further secret words,
/// multiplied, and the halves of that product combined, as in wyhash and foldhash, so that similar keys are scattered.
/// The proof requires that secrets are added, rather than combined by exclusive or.
///
/// Without the secret words, it is thus not possible to choose keys that collide, nor keys that do so for an unusual
/// share of secrets: factors are zero, or otherwise special, only with a probability of 2^-64.
#[derive(Clone, Copy)]
pub struct HashSeed(pub(crate) [u64; 8]);

static OF_PROCESS: OnceLock<HashSeed> = OnceLock::new();

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(..)")
    }
}

/// The last step of SplitMix64: a bijection that scatters similar numbers.
#[inline]
pub const fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl HashSeed {
    /// A public seed, the same on all machines, for choosing the same flows everywhere. Senders of traffic can choose
    /// its results.
    pub const PUBLIC: HashSeed = HashSeed::new(0);

    /// The seed for a number, by SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    pub const fn new(number: u64) -> HashSeed {
        let mut words = [0; 8];
        let (mut state, mut at) = (number, 0);
        while at < words.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            words[at] = scattered(state);
            at += 1;
        }
        HashSeed(words)
    }

    /// The seed of this process, for every table whose keys come from packets: random, unless it was
    /// [fixed](HashSeed::fix) before. No result depends on it, and no other process knows it.
    #[inline]
    pub fn of_process() -> &'static HashSeed {
        OF_PROCESS.get_or_init(|| {
            let random = RandomState::new();
            HashSeed(core::array::from_fn(|word| random.hash_one(word)))
        })
    }

    /// Makes this the seed of the process, to test whether results depend on it. False if a seed was already in use.
    pub fn fix(self) -> bool {
        OF_PROCESS.set(self).is_ok()
    }

    /// Hash of a canonical key: equal for both directions of a flow.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        #[inline(always)]
        fn word(bytes: &[u8; 16], at: usize) -> u64 {
            let mut w = [0u8; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        }
        #[inline(always)]
        fn product(one: u64, other: u64) -> u128 {
            u128::from(one) * u128::from(other)
        }
        let k = &self.0;
        let ports =
            u64::from(key.low_port) | u64::from(key.high_port) << 16 | u64::from(key.context) << 32;
        let kind = u64::from(key.protocol) | u64::from(key.version) << 8;
        let ports = ports.wrapping_add(k[1]);
        let sum = if key.version == 4 {
            let low = word(&key.low.0, 8) >> 32;
            let high = word(&key.high.0, 8) & 0xffff_ffff_0000_0000;
            product((low | high).wrapping_add(k[0]), ports)
        } else {
            let with = |address: &Address, one: u64, other: u64| {
                product(
                    word(&address.0, 0).wrapping_add(one),
                    word(&address.0, 8).wrapping_add(other),
                )
            };
            product(k[0], ports)
                .wrapping_add(with(&key.low, k[4], k[5]))
                .wrapping_add(with(&key.high, k[6], k[7]))
        };
        let (low, high) = (sum as u64, (sum >> 64) as u64);
        let last = product(
            low.wrapping_add(k[2]),
            high.wrapping_add(k[3]).wrapping_add(kind),
        );
        last as u64 ^ (last >> 64) as u64
    }
}
