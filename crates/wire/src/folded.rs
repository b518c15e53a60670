//! A keyed hash for maps whose keys come from the network.

use core::fmt;
use core::hash::{BuildHasher, Hasher};

use crate::key::HashSeed;

/// Creates hashers with the key of the process ([`HashSeed::of_process`]), so that senders of packets cannot
/// cause collisions. Folded 64x64->128-bit multiplications, as in wyhash and foldhash: for the short keys of the
/// hot path, several times as fast as the standard library's SipHash.
#[derive(Clone, Copy)]
pub struct FoldedState([u64; 2]);

impl fmt::Debug for FoldedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldedState(..)")
    }
}

impl Default for FoldedState {
    fn default() -> FoldedState {
        let [.., state, key] = HashSeed::of_process().0;
        FoldedState([state, key | 1])
    }
}

impl BuildHasher for FoldedState {
    type Hasher = FoldedHasher;

    #[inline]
    fn build_hasher(&self) -> FoldedHasher {
        let [state, key] = self.0;
        FoldedHasher { state, key }
    }
}

/// The hasher of [`FoldedState`].
#[derive(Clone, Copy)]
pub struct FoldedHasher {
    state: u64,
    key: u64,
}

impl fmt::Debug for FoldedHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldedHasher(..)")
    }
}

impl FoldedHasher {
    /// Both words are mixed with what is secret before they meet.
    #[inline(always)]
    fn fold(&mut self, first: u64, second: u64) {
        let product = u128::from(first ^ self.state) * u128::from(second ^ self.key);
        let folded = product as u64 ^ (product >> 64) as u64;
        // Not the product alone: a factor that happens to be zero must not wipe out what came before.
        self.state = self.state.rotate_left(23) ^ folded;
    }
}

impl Hasher for FoldedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let (first, second) = halves(pair);
            self.fold(first, second);
        }
        if !rest.is_empty() {
            let mut last = [0; 16];
            last[..rest.len()].copy_from_slice(rest);
            let (first, second) = halves(&last);
            self.fold(first, second ^ (rest.len() as u64) << 56);
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.fold(value, 0);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let mut last = *self;
        last.fold(0, 0);
        last.state
    }
}

#[inline(always)]
fn halves(bytes: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*bytes);
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn close_keys_scatter_over_low_and_high_bits() {
        let state = FoldedState([0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03]);
        let (mut whole, mut low, mut high) = (HashSet::new(), [0u32; 256], [0u32; 128]);
        for n in 0u32..1 << 16 {
            let mut address = [0; 16];
            address[12..].copy_from_slice(&n.to_be_bytes());
            let hash = state.hash_one(address);
            whole.insert(hash);
            low[hash as usize & 255] += 1;
            high[(hash >> 57) as usize] += 1;
        }
        assert_eq!(whole.len(), 1 << 16);
        // 256 and 512 are expected, with standard deviations of 16 and 23.
        assert!(low.iter().all(|n| (160..360).contains(n)), "{low:?}");
        assert!(high.iter().all(|n| (380..650).contains(n)), "{high:?}");
    }

    #[test]
    fn length_and_key_matter() {
        let states = [
            FoldedState([1, 3]),
            FoldedState([1, 5]),
            FoldedState([2, 3]),
        ];
        let hash = |state: FoldedState, bytes: &[u8]| {
            let mut hasher = state.build_hasher();
            hasher.write(bytes);
            hasher.finish()
        };
        let zeros = [0; 40];
        let all: HashSet<u64> = states
            .into_iter()
            .flat_map(|state| (0..=40).map(move |len| hash(state, &zeros[..len])))
            .collect();
        assert_eq!(all.len(), 3 * 41);
        assert_eq!(hash(states[0], b"same"), hash(states[0], b"same"));
    }
}
