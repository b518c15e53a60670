//! Keyed functions of numbers, addresses and bytes.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use aes::Aes128;
use aes::cipher::{Block, BlockEncrypt, KeyInit};
use flowgauge_sys::files::{Folder, How};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::cryptopan::CryptoPan;
use crate::key::Key;
use crate::rule::{Digest, Distribution};

/// Rounds of the Feistel network (Luby, Rackoff 1988: four with independent functions are enough for a strong
/// permutation).
const ROUNDS: u8 = 4;
/// Entries of a cache of addresses, to the power of 2.
const CACHE_BITS: u32 = 12;

/// A key for one purpose, of which others cannot be computed.
pub(crate) fn subkey(key: &Key, purpose: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&digest::<Hmac<Sha256>>(
        key.bytes(),
        &[b"flowgauge ", purpose.as_bytes()],
    ));
    bytes
}

fn digest<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // A key of any length is a key.
    let Ok(mut mac) = <M as Mac>::new_from_slice(key) else {
        return Vec::new();
    };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// A keyed digest of bytes.
pub(crate) fn hash(of: Digest, key: &[u8; 32], bytes: &[u8]) -> Vec<u8> {
    match of {
        Digest::Sha256 => digest::<Hmac<Sha256>>(key, &[bytes]),
        Digest::Sha1 => digest::<Hmac<sha1::Sha1>>(key, &[bytes]),
        Digest::Md5 => digest::<Hmac<md5::Md5>>(key, &[bytes]),
    }
}

/// A permutation of the numbers of so many bits, up to 64: each becomes another, no two the same.
#[derive(Clone)]
pub(crate) enum Permutation {
    /// Of up to 16 bits: a table.
    Table(Box<[u16]>),
    /// Of more: a Feistel network over two halves; where their number is odd, or less than a network has, numbers
    /// outside go through it again.
    Network {
        aes: Box<Aes128>,
        half: u32,
        bits: u32,
    },
}

impl Permutation {
    pub(crate) fn new(key: &Key, purpose: &str, bits: u32) -> Permutation {
        let secret = subkey(key, purpose);
        let (secret, _) = secret.split_at(16);
        let aes = Aes128::new(Block::<Aes128>::from_slice(secret));
        if bits > 16 {
            return Permutation::Network {
                aes: Box::new(aes),
                half: bits.div_ceil(2),
                bits,
            };
        }
        let size = 1_u32 << bits;
        let mut table: Vec<u16> = (0..size).map(|it| it as u16).collect();
        // Fisher and Yates, with numbers of AES in counter mode; 64 bits make the bias immaterial.
        for last in (1..size as usize).rev() {
            let mut block = Block::<Aes128>::from((last as u128).to_be_bytes());
            aes.encrypt_block(&mut block);
            let other = (first_word(&block) % (last as u64 + 1)) as usize;
            table.swap(last, other);
        }
        Permutation::Table(table.into_boxed_slice())
    }

    pub(crate) fn of(&self, number: u64) -> u64 {
        match self {
            Permutation::Table(table) => table.get(number as usize).copied().unwrap_or(0).into(),
            Permutation::Network { aes, half, bits } => {
                let mut number = number;
                loop {
                    number = network(aes, *half, number);
                    if bits.is_multiple_of(2) || number >> bits == 0 {
                        return number;
                    }
                }
            }
        }
    }
}

fn network(aes: &Aes128, half: u32, number: u64) -> u64 {
    let mask = (1_u64 << half) - 1;
    let (mut left, mut right) = (number >> half & mask, number & mask);
    for round in 0..ROUNDS {
        let mut block = Block::<Aes128>::default();
        let input = u128::from(round) << 64 | u128::from(right);
        block.copy_from_slice(&input.to_be_bytes());
        aes.encrypt_block(&mut block);
        (left, right) = (right, left ^ (first_word(&block) & mask));
    }
    left << half | right
}

fn first_word(block: &Block<Aes128>) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(block.get(..8).unwrap_or(&[0; 8]));
    u64::from_be_bytes(word)
}

/// A value of a distribution for each number.
pub(crate) fn distributed(
    key: &[u8; 32],
    distribution: Distribution,
    number: u64,
    most: u64,
) -> u64 {
    let bytes = hash(Digest::Sha256, key, &number.to_be_bytes());
    let word = |at: usize| {
        let part = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
        u64::from_be_bytes(part.unwrap_or_default())
    };
    match distribution {
        Distribution::Uniform(low, high) => {
            let high = high.min(most);
            let low = low.min(high);
            let span = u128::from(high - low) + 1;
            low + (u128::from(word(0)) % span) as u64
        }
        Distribution::Gaussian(median, deviation) => {
            // Box and Muller.
            let unit = |at| (word(at) as f64 + 1.0) / (u64::MAX as f64 + 2.0);
            let normal = (-2.0 * unit(0).ln()).sqrt() * (core::f64::consts::TAU * unit(8)).cos();
            (median + deviation * normal)
                .round()
                .clamp(0.0, most as f64) as u64
        }
    }
}

/// Numbers that nobody can foresee: AES in counter mode under a key of the system.
pub(crate) struct Random {
    aes: Aes128,
    counter: u128,
    left: [u8; 128],
    used: usize,
}

impl Random {
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new() -> io::Result<Random> {
        Ok(Random::seeded(random_bytes()?))
    }

    pub(crate) fn seeded(key: [u8; 16]) -> Random {
        Random {
            aes: Aes128::new(&Block::<Aes128>::from(key)),
            counter: 0,
            left: [0; 128],
            used: 128,
        }
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.used >= self.left.len() {
                self.refill();
            }
            *byte = self.left.get(self.used).copied().unwrap_or(0);
            self.used += 1;
        }
    }

    fn refill(&mut self) {
        let mut blocks = [Block::<Aes128>::default(); 8];
        for block in &mut blocks {
            *block = self.counter.to_be_bytes().into();
            self.counter += 1;
        }
        self.aes.encrypt_blocks(&mut blocks);
        for (part, block) in self.left.chunks_exact_mut(16).zip(&blocks) {
            part.copy_from_slice(block);
        }
        self.used = 0;
    }

    pub(crate) fn below(&mut self, end: u8) -> u8 {
        let mut byte = [0; 2];
        self.fill(&mut byte);
        (u16::from_be_bytes(byte) % u16::from(end.max(1))) as u8
    }
}

/// Bytes of the system's generator.
///
/// # Errors
/// It cannot be read.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let path = Path::new("/dev/urandom");
    let mut device = Folder::anywhere().open(path, How::read())?;
    device.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What is done with the addresses of one version, or with Ethernet's.
pub(crate) enum AddressFunction {
    Unchanged,
    Zero,
    Random,
    Pattern(Vec<u8>),
    Pan(Box<CryptoPan>),
    Map(Box<Mapped>),
    Hashed(Box<HashedAddresses>),
}

/// Permutations of addresses of each length.
pub(crate) struct Mapped {
    pub(crate) four: Permutation,
    pub(crate) six: Aes128,
    pub(crate) mac: Permutation,
    cache: Cache,
}

pub(crate) struct HashedAddresses {
    digest: Digest,
    key: [u8; 32],
    cache: Cache,
}

/// What came last, by address and length.
struct Cache(Vec<Option<(u128, u8, u128)>>);

impl Cache {
    fn new() -> Cache {
        Cache(vec![None; 1 << CACHE_BITS])
    }

    fn of(&mut self, number: u128, length: u8, make: impl FnOnce() -> u128) -> u128 {
        let folded = (number >> 64) as u64 ^ number as u64;
        let place = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CACHE_BITS);
        let Some(entry) = self.0.get_mut(place as usize) else {
            return make();
        };
        match entry {
            Some((known, of, becomes)) if *known == number && *of == length => *becomes,
            _ => {
                let becomes = make();
                *entry = Some((number, length, becomes));
                becomes
            }
        }
    }
}

impl Mapped {
    pub(crate) fn new(key: &Key) -> Mapped {
        let secret = subkey(key, "map ipv6");
        let (secret, _) = secret.split_at(16);
        Mapped {
            four: Permutation::new(key, "map ipv4", 32),
            six: Aes128::new(Block::<Aes128>::from_slice(secret)),
            mac: Permutation::new(key, "map mac", 48),
            cache: Cache::new(),
        }
    }
}

impl HashedAddresses {
    pub(crate) fn new(key: &Key, digest: Digest) -> HashedAddresses {
        HashedAddresses {
            digest,
            key: subkey(key, "hash address"),
            cache: Cache::new(),
        }
    }
}

impl AddressFunction {
    /// Replaces an address: 4, 6 or 16 bytes.
    pub(crate) fn apply(&mut self, bytes: &mut [u8], random: &mut Random) {
        match self {
            AddressFunction::Unchanged => {}
            AddressFunction::Zero => bytes.fill(0),
            AddressFunction::Random => random.fill(bytes),
            AddressFunction::Pattern(pattern) => {
                bytes
                    .iter_mut()
                    .zip(pattern.iter().cycle())
                    .for_each(|(byte, of)| *byte = *of);
            }
            AddressFunction::Pan(pan) => match bytes.len() {
                4 => {
                    if let Some(four) = bytes.first_chunk_mut::<4>() {
                        *four = pan.ipv4(*four);
                    }
                }
                16 => {
                    if let Some(six) = bytes.first_chunk_mut::<16>() {
                        *six = pan.ipv6(*six);
                    }
                }
                length => {
                    let mut six = [0; 16];
                    six.iter_mut()
                        .zip(bytes.iter())
                        .for_each(|(to, from)| *to = *from);
                    let six = pan.ipv6(six);
                    bytes.copy_from_slice(six.get(..length).unwrap_or(&[0; 16]));
                }
            },
            AddressFunction::Map(mapped) => {
                let number = number_of(bytes);
                let Mapped {
                    four,
                    six,
                    mac,
                    cache,
                } = &mut **mapped;
                let becomes = cache.of(number, bytes.len() as u8, || match bytes.len() {
                    4 => four.of(number as u64).into(),
                    6 => mac.of(number as u64).into(),
                    _ => {
                        let mut block = Block::<Aes128>::from(number.to_be_bytes());
                        six.encrypt_block(&mut block);
                        u128::from_be_bytes(block.into())
                    }
                });
                put_number(bytes, becomes);
            }
            AddressFunction::Hashed(hashed) => {
                let number = number_of(bytes);
                let HashedAddresses { digest, key, cache } = &mut **hashed;
                let becomes = cache.of(number, bytes.len() as u8, || {
                    let hash = hash(*digest, key, bytes);
                    number_of(hash.get(..bytes.len()).unwrap_or_default())
                });
                put_number(bytes, becomes);
            }
        }
    }
}

fn number_of(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn put_number(bytes: &mut [u8], mut number: u128) {
    for byte in bytes.iter_mut().rev() {
        *byte = number as u8;
        number >>= 8;
    }
}

/// What is done with a number of a header.
pub(crate) enum NumberFunction {
    Unchanged,
    Constant(u64),
    Random,
    Map(Arc<Permutation>),
    Distribution([u8; 32], Distribution),
    Hashed(Digest, [u8; 32]),
}

impl NumberFunction {
    /// What a number of so many bits becomes.
    pub(crate) fn apply(&self, number: u64, bits: u32, random: &mut Random) -> u64 {
        let most = u64::MAX >> (64 - bits.clamp(1, 64));
        match self {
            NumberFunction::Unchanged => number,
            NumberFunction::Constant(constant) => constant & most,
            NumberFunction::Random => {
                let mut bytes = [0; 8];
                random.fill(&mut bytes);
                u64::from_be_bytes(bytes) & most
            }
            NumberFunction::Map(permutation) => permutation.of(number),
            NumberFunction::Distribution(key, distribution) => {
                distributed(key, *distribution, number, most)
            }
            NumberFunction::Hashed(digest, key) => {
                let hash = hash(*digest, key, &number.to_be_bytes());
                number_of(hash.get(..8).unwrap_or_default()) as u64 & most
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const KEY: Key = Key::new([3; 32]);

    #[test]
    fn a_permutation_has_each_number_once() {
        for bits in [1, 8, 12, 16] {
            let permutation = Permutation::new(&KEY, "test", bits);
            let seen: HashSet<u64> = (0..1 << bits).map(|it| permutation.of(it)).collect();
            assert_eq!(seen.len(), 1 << bits);
            assert!(seen.iter().all(|it| it >> bits == 0));
        }
        for bits in [17, 20, 32, 48] {
            let permutation = Permutation::new(&KEY, "test", bits);
            let seen: HashSet<u64> = (0..5000)
                .map(|it| permutation.of(it * 3 % (1 << bits)))
                .collect();
            assert_eq!(seen.len(), 5000);
            assert!(seen.iter().all(|it| it >> bits == 0));
        }
        // All numbers of a network that numbers go through again.
        let permutation = Permutation::new(&KEY, "test", 17);
        let seen: HashSet<u64> = (0..1 << 17).map(|it| permutation.of(it)).collect();
        assert_eq!(seen.len(), 1 << 17);
    }

    #[test]
    fn a_distribution_is_what_it_says() {
        let key = subkey(&KEY, "test");
        let uniform: Vec<u64> = (0..2000)
            .map(|it| distributed(&key, Distribution::Uniform(10, 19), it, 255))
            .collect();
        for value in 10..20 {
            let count = uniform.iter().filter(|it| **it == value).count();
            assert!((120..280).contains(&count), "{value}: {count}");
        }
        let gaussian =
            (0..2000).map(|it| distributed(&key, Distribution::Gaussian(100.0, 10.0), it, 255));
        let gaussian: Vec<f64> = gaussian.map(|it| it as f64).collect();
        let mean = gaussian.iter().sum::<f64>() / 2000.0;
        let variance = gaussian.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / 2000.0;
        assert!(
            (mean - 100.0).abs() < 1.0 && (variance.sqrt() - 10.0).abs() < 1.0,
            "{mean} {variance}"
        );
        assert_eq!(
            distributed(&key, Distribution::Uniform(0, u64::MAX), 7, 3) >> 2,
            0
        );
    }

    #[test]
    fn addresses_of_all_lengths_are_mapped_one_for_one() {
        let mut random = Random::seeded([0; 16]);
        let mut functions = [
            AddressFunction::Map(Box::new(Mapped::new(&KEY))),
            AddressFunction::Pan(Box::new(CryptoPan::new(&KEY))),
            AddressFunction::Hashed(Box::new(HashedAddresses::new(&KEY, Digest::Sha256))),
        ];
        for function in &mut functions {
            for length in [4, 6, 16] {
                let mut seen = HashSet::new();
                for number in 0..6000_u32 {
                    let mut bytes = vec![0; length];
                    bytes[length - 4..].copy_from_slice(&(number % 3000).to_be_bytes());
                    function.apply(&mut bytes, &mut random);
                    seen.insert(bytes);
                }
                // A digest of four bytes may have a collision.
                assert!(seen.len() >= 2999, "{length}: {}", seen.len());
            }
        }
    }

    #[test]
    fn random_numbers_do_not_repeat() {
        let mut random = Random::seeded([1; 16]);
        let mut blocks = HashSet::new();
        for _ in 0..100 {
            let mut bytes = [0; 24];
            random.fill(&mut bytes);
            assert!(blocks.insert(bytes));
        }
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    }
}
