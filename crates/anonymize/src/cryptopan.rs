//! Crypto-PAn: addresses replaced one for one, prefixes kept.
//!
//! J. Xu, J. Fan, M. Ammar, S. Moon: "Prefix-preserving IP address anonymization", ICNP 2002. Bit *i* of an
//! address is turned over or not as a keyed function of the *i* bits before it says: the first bit of
//! AES over these bits, filled up with bits of a secret pad. IPv4 and IPv6 differ in nothing but their
//! length: what the bits `c0000201` have for mask in IPv4 they have at the beginning of an IPv6 address.
//!
//! An IPv4 address needs 32 blocks of AES, an IPv6 address 128. Tables spare most of them, all of
//! fixed size:
//!
//! ```text
//! top       by the first 16 bits: their mask. All of it is computed at the start (65,535 blocks).
//! middle    by the first 16 bits: the tree of bits 16 to 23. A network's is computed when its first address
//!           comes (255 blocks).
//! networks  by the first 64 bits of an IPv6 address: the mask of bits 16 to 63.
//! hosts     by the whole address: what it becomes. One table for IPv4, one for IPv6.
//! ```
//!
//! The last two keep what came last: an address takes the place of another one with the same hash.

use aes::Aes128;
use aes::cipher::{Block, BlockEncrypt, KeyInit};

use crate::key::Key;

/// Blocks of AES at once: processors work on so many side by side.
const BLOCKS: usize = 8;
/// Bits of an address whose mask is in a table from the start.
const TOP_BITS: u32 = 16;
/// Bits behind them whose mask is in a table once a network is known.
const MIDDLE_BITS: u32 = 8;
/// The first bit whose mask no table has.
const BELOW: u32 = TOP_BITS + MIDDLE_BITS;
/// An odd constant that spreads bits ("Fibonacci hashing").
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Replaces addresses under a key, the same ones always by the same.
///
/// ```
/// use flowgauge_anonymize::{CryptoPan, Key};
///
/// let mut pan = CryptoPan::new(&Key::new(*b"32-char-str-for-AES-key-and-pad."));
/// assert_eq!(pan.ipv4([192, 0, 2, 1]), [192, 0, 125, 244]);
/// let one = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap();
/// let other = "27fe:8bc7:fee:1e:1e1f:f0fe:f0e1:83fd".parse::<std::net::Ipv6Addr>().unwrap();
/// assert_eq!(pan.ipv6(one.octets()), other.octets());
/// ```
#[derive(Clone)]
pub struct CryptoPan {
    aes: Aes128,
    /// For each bit what is taken of the address, and what of the pad, in the order of memory.
    inputs: Box<[(u128, u128); 128]>,
    top: Box<[u16]>,
    middle: Box<[Tree]>,
    hosts4: Table<u32>,
    hosts6: Table<u128>,
    networks: Table<u64>,
}

impl CryptoPan {
    /// With room for 65,536 IPv4 addresses, as many IPv6 addresses, and 4,096 IPv6 networks: 6 MB at most.
    pub fn new(key: &Key) -> CryptoPan {
        CryptoPan::with_cache(key, 16)
    }

    /// With tables of 2 to the power of `bits` (4 to 24) addresses of each version, and a sixteenth of that
    /// of IPv6 networks.
    pub fn with_cache(key: &Key, bits: u32) -> CryptoPan {
        let bits = bits.clamp(4, 24);
        let (secret, seed) = key.bytes().split_at(16);
        let aes = Aes128::new(Block::<Aes128>::from_slice(secret));
        let mut pad = Block::<Aes128>::clone_from_slice(seed);
        aes.encrypt_block(&mut pad);
        let pad = u128::from_be_bytes(pad.into());
        let inputs = core::array::from_fn(|bit| {
            let own = !(u128::MAX >> bit);
            (own.to_be(), (pad & !own).to_be())
        });
        let mut pan = CryptoPan {
            aes,
            inputs: Box::new(inputs),
            top: vec![0; 1 << TOP_BITS].into_boxed_slice(),
            middle: vec![Tree::default(); 1 << TOP_BITS].into_boxed_slice(),
            hosts4: Table::new(bits),
            hosts6: Table::new(bits),
            networks: Table::new(bits - 4),
        };
        pan.fill_top();
        pan
    }

    /// What an IPv4 address becomes.
    #[inline]
    pub fn ipv4(&mut self, address: [u8; 4]) -> [u8; 4] {
        let address = u32::from_be_bytes(address);
        let at = self.hosts4.place(u64::from(address));
        if let Some(known) = self.hosts4.get(at, address) {
            return known.to_be_bytes();
        }
        let bits = u128::from(address) << 96;
        let mask = self.beginning(bits) | self.mask(bits, BELOW, 32);
        let becomes = address ^ (mask >> 96) as u32;
        self.hosts4.set(at, address, becomes);
        becomes.to_be_bytes()
    }

    /// What an IPv6 address becomes.
    #[inline]
    pub fn ipv6(&mut self, address: [u8; 16]) -> [u8; 16] {
        let address = u128::from_be_bytes(address);
        let (network, host) = ((address >> 64) as u64, address as u64);
        let at = self
            .hosts6
            .place(network.rotate_left(29) ^ host.wrapping_mul(SPREAD));
        if let Some(known) = self.hosts6.get(at, address) {
            return known.to_be_bytes();
        }
        let mask = self.network(network) | self.mask(address, 64, 128);
        let becomes = address ^ mask;
        self.hosts6.set(at, address, becomes);
        becomes.to_be_bytes()
    }

    /// The mask of the first 64 bits of an address, at its place.
    fn network(&mut self, network: u64) -> u128 {
        let at = self.networks.place(network);
        if let Some(known) = self.networks.get(at, network) {
            return u128::from(known) << 64;
        }
        let bits = u128::from(network) << 64;
        let mask = self.beginning(bits) | self.mask(bits, BELOW, 64);
        self.networks.set(at, network, (mask >> 64) as u64);
        mask
    }

    /// The mask of the bits that tables have, at its place.
    fn beginning(&mut self, address: u128) -> u128 {
        let place = (address >> (128 - TOP_BITS)) as usize;
        let top = self.top.get(place).copied().unwrap_or(0);
        if self.middle.get(place).is_some_and(|tree| !tree.is_known()) {
            self.fill_middle(place);
        }
        let next = (address >> (128 - BELOW)) as u8;
        let middle = self.middle.get(place).map_or(0, |tree| tree.mask(next));
        u128::from(top) << (128 - TOP_BITS) | u128::from(middle) << (128 - BELOW)
    }

    /// The mask of bits `from` to `to`, at its place. Their number is a multiple of [`BLOCKS`].
    fn mask(&self, address: u128, from: u32, to: u32) -> u128 {
        let address = address.to_be();
        let mut mask = 0;
        let inputs = self.inputs.get(from as usize..to as usize);
        for inputs in inputs.unwrap_or_default().chunks_exact(BLOCKS) {
            let mut blocks: [Block<Aes128>; BLOCKS] = core::array::from_fn(|_| Default::default());
            for ((own, pad), block) in inputs.iter().zip(&mut blocks) {
                *block = (address & own | pad).to_ne_bytes().into();
            }
            self.aes.encrypt_blocks(&mut blocks);
            for block in &blocks {
                mask = mask << 1 | u128::from(block[0] >> 7);
            }
        }
        mask << (128 - to)
    }

    /// What AES is computed of for a bit: the bits before it, and from there on those of the pad.
    fn input(&self, address: u128, bit: u32) -> Block<Aes128> {
        let (own, pad) = self.inputs.get(bit as usize).copied().unwrap_or_default();
        (address.to_be() & own | pad).to_ne_bytes().into()
    }

    /// Gives the mask of a bit behind each of these prefixes.
    fn first_bits(
        &self,
        bit: u32,
        prefixes: impl Iterator<Item = u128>,
        mut take: impl FnMut(bool),
    ) {
        let mut blocks = [Block::<Aes128>::default(); BLOCKS];
        let mut prefixes = prefixes.peekable();
        while prefixes.peek().is_some() {
            let mut filled = 0;
            for (block, prefix) in blocks.iter_mut().zip(prefixes.by_ref()) {
                *block = self.input(prefix, bit);
                filled += 1;
            }
            self.aes.encrypt_blocks(&mut blocks);
            blocks
                .iter()
                .take(filled)
                .for_each(|block| take(block[0] >> 7 == 1));
        }
    }

    #[cold]
    fn fill_middle(&mut self, place: usize) {
        let mut tree = Tree::default();
        for bit in 0..MIDDLE_BITS {
            let network = (place as u128) << (128 - TOP_BITS);
            let prefixes = (0..1_u128 << bit).map(|it| network | it << (128 - TOP_BITS - bit));
            let mut node = 1_usize << bit;
            self.first_bits(TOP_BITS + bit, prefixes, |is_set| {
                tree.set(node, is_set);
                node += 1;
            });
        }
        // No node has number 0.
        tree.set(0, true);
        if let Some(place) = self.middle.get_mut(place) {
            *place = tree;
        }
    }

    fn fill_top(&mut self) {
        let mut top = core::mem::take(&mut self.top);
        for bit in 0..TOP_BITS {
            let span = 1_usize << (TOP_BITS - bit);
            // In two steps, as there is no shift by 128.
            let prefixes = (0..1_u128 << bit).map(|it| it << (127 - bit) << 1);
            let mut below = top.chunks_exact_mut(span);
            self.first_bits(bit, prefixes, |is_set| {
                let mask = u16::from(is_set) << (TOP_BITS - 1 - bit);
                let networks = below.next().unwrap_or_default();
                networks.iter_mut().for_each(|it| *it |= mask);
            });
        }
        self.top = top;
    }
}

impl core::fmt::Debug for CryptoPan {
    /// Without what would tell the key, or addresses.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("CryptoPan").finish_non_exhaustive()
    }
}

/// One bit for each node of a tree of 8 levels: the root is 1, below a node are twice its number and the one
/// behind that.
#[derive(Clone, Copy, Default)]
struct Tree([u64; 4]);

impl Tree {
    #[inline]
    fn is_known(&self) -> bool {
        self.0[0] & 1 == 1
    }

    fn set(&mut self, node: usize, is_set: bool) {
        if let Some(word) = self.0.get_mut(node / 64) {
            *word |= u64::from(is_set) << (node % 64);
        }
    }

    /// The bits on the way down to a leaf, which are its number's mask.
    #[inline]
    fn mask(&self, leaf: u8) -> u8 {
        let mut mask = 0;
        for level in 0..MIDDLE_BITS {
            let node = 1 << level | usize::from(leaf) >> (MIDDLE_BITS - level);
            let word = self.0[node / 64 % 4];
            mask = mask << 1 | (word >> (node % 64)) as u8 & 1;
        }
        mask
    }
}

/// What is known of so many numbers; another one with the same hash takes the place of one.
#[derive(Clone)]
struct Table<N> {
    entries: Box<[Option<(N, N)>]>,
    shift: u32,
}

impl<N: Copy + PartialEq> Table<N> {
    fn new(bits: u32) -> Table<N> {
        let bits = bits.max(1);
        Table {
            entries: vec![None; 1 << bits].into_boxed_slice(),
            shift: 64 - bits,
        }
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        (number.wrapping_mul(SPREAD) >> self.shift) as usize
    }

    #[inline]
    fn get(&self, place: usize, number: N) -> Option<N> {
        let (of, value) = (*self.entries.get(place)?)?;
        (of == number).then_some(value)
    }

    #[inline]
    fn set(&mut self, place: usize, number: N, value: N) {
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Some((number, value));
        }
    }
}
