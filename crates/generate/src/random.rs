//! Deterministic random numbers: xoshiro256++ seeded by splitmix64 (Blackman and Vigna 2019).
//!
//! Own code, so that a seed gives the same trace with every version of every crate. Floating point
//! is limited to `+ - * /` and the square root, which IEEE 754 rounds in one way only.

/// A generator. Each flow has its own, derived from the seed and the flow's number, so that what
/// one flow does never depends on how it is interleaved with others.
#[derive(Clone, Debug)]
pub(super) struct Random([u64; 4]);

impl Random {
    /// The generator number `stream` of `seed`.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed ^ mix(stream.wrapping_add(0x9e37_79b9_7f4a_7c15));
        Random(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        }))
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number in `(0, 1]`.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `share`.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() <= share
    }

    /// One of `items`, which must not be empty.
    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// The finalizer of splitmix64: a bijection that looks random.
pub(super) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Stratified uniform numbers: item `index` of `count` gets a number in its own `1/count`-wide part
/// of `(0, 1]`, in scrambled order. A heavy-tailed total then hardly depends on the seed.
pub(super) fn stratified(random: &mut Random, index: u64, count: u64) -> f64 {
    // A prime that divides no count below it: the product walks through every residue.
    let slot = (u128::from(index) * 2_654_435_761 % u128::from(count.max(1))) as u64;
    (slot as f64 + random.unit()) / count.max(1) as f64
}

/// The Pareto quantile `minimum * u^(-7/8)`, that is shape 8/7, at most `cap`.
pub(super) fn pareto(u: f64, minimum: u64, cap: u64) -> u64 {
    let half = u.sqrt();
    let quarter = half.sqrt();
    let eighth = quarter.sqrt();
    let size = minimum as f64 / (half * quarter * eighth);
    (size as u64).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_never_changes() {
        let mut random = Random::new(1, 0);
        let first = random.bits();
        assert_eq!(first, Random::new(1, 0).bits());
        assert_ne!(first, Random::new(2, 0).bits());
        assert_ne!(first, Random::new(1, 1).bits());
    }

    #[test]
    fn strata_are_all_hit_once() {
        let mut random = Random::new(3, 3);
        let mut hit = vec![false; 1000];
        for index in 0..1000 {
            let u = stratified(&mut random, index, 1000);
            let slot = ((u * 1000.0).ceil() as usize - 1).min(999);
            assert!(!std::mem::replace(&mut hit[slot], true));
        }
    }

    #[test]
    fn pareto_is_exact_on_powers_of_two() {
        assert_eq!(pareto(1.0, 4096, u64::MAX), 4096);
        assert_eq!(pareto(1.0 / 256.0, 4096, u64::MAX), 4096 * 128);
        assert_eq!(pareto(1.0 / 256.0, 4096, 9000), 9000);
    }
}
