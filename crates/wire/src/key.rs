//! Flow keys: who talks with whom, the same for both directions.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv6 address, or an IPv4 address in its mapped form (`::ffff:a.b.c.d`). Which of the two it
/// is says [`FlowKey::version`], never the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 16]);

impl Address {
    /// The mapped form of an IPv4 address.
    #[inline]
    pub const fn v4(bytes: [u8; 4]) -> Address {
        // As one number: assembled byte by byte it goes through the stack in pieces, and reading
        // it back whole stalls.
        Address((0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128).to_be_bytes())
    }

    /// The address as text is written from it: IPv4 when `version` is 4.
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

/// Which way a packet went, relative to the order of the addresses in a [`FlowKey`].
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

/// The five-tuple in canonical order: `(low, low_port) <= (high, high_port)`, so that both
/// directions of a conversation have equal keys. ICMP and ICMPv6 use Community ID's (and Zeek's)
/// mapping: the source port is the message's type, the destination port the type of its answer
/// (echo 8 and 0), or the code where the message has no answer. Such one-way messages are not put
/// in order, their sender is always `low`: the two directions are two flows.
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
    /// 0, or the number of the VLAN / tunnel context where flows are kept apart by it.
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

    /// Source and destination of a packet of this flow that went in `direction`.
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

/// The key of the symmetric hash. Random per process unless results must repeat.
#[derive(Clone, Copy)]
pub struct HashSeed(pub [u64; 2]);

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(..)")
    }
}

impl HashSeed {
    /// A fixed seed, for tests and repeatable runs.
    pub const FIXED: HashSeed = HashSeed([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);

    /// Keyed hash of a canonical key: equal for both directions of a flow. Folded 64x64->128-bit
    /// multiplications, as in wyhash and foldhash.
    #[inline]
    pub fn hash(self, key: &FlowKey) -> u64 {
        #[inline(always)]
        fn word(bytes: &[u8; 16], at: usize) -> u64 {
            let mut w = [0u8; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        }
        #[inline(always)]
        fn fold(a: u64, b: u64) -> u64 {
            let product = u128::from(a) * u128::from(b);
            (product as u64) ^ ((product >> 64) as u64)
        }
        let [k0, k1] = self.0;
        let ports = u64::from(key.low_port)
            | u64::from(key.high_port) << 16
            | u64::from(key.protocol) << 32
            | u64::from(key.version) << 40;
        let context = u64::from(key.context);
        let inner = if key.version == 4 {
            let low = word(&key.low.0, 8) >> 32;
            let high = word(&key.high.0, 8) & 0xffff_ffff_0000_0000;
            fold((low | high) ^ k0, ports ^ k1)
        } else {
            let first = fold(word(&key.low.0, 0) ^ k0, word(&key.low.0, 8) ^ k1);
            let second = fold(word(&key.high.0, 0) ^ k1, word(&key.high.0, 8) ^ k0);
            fold(first ^ k0, second ^ ports ^ k1)
        };
        fold(inner ^ k1 ^ context, k0 | 1)
    }
}
