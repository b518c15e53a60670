//! Selections of packets of a batch.

use core::ops::Range;

use crate::packet::BATCH_SIZE;

const WORDS: usize = BATCH_SIZE / 64;

/// A set of packets of one batch, as one bit each.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Selection {
    words: [u64; WORDS],
}

impl PartialEq for Selection {
    /// (The compiler calls a function to compare arrays.)
    #[inline]
    fn eq(&self, other: &Selection) -> bool {
        let words = self.words.iter().zip(other.words);
        words.fold(0, |differ, (mine, theirs)| differ | (mine ^ theirs)) == 0
    }
}

impl Selection {
    /// The empty set.
    pub const NONE: Selection = Selection { words: [0; WORDS] };

    /// The first `count` packets, at most [`BATCH_SIZE`].
    pub fn first(count: usize) -> Selection {
        let mut selection = Selection::NONE;
        for (index, word) in selection.words.iter_mut().enumerate() {
            let bits = count.saturating_sub(index * 64).min(64) as u32;
            *word = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        }
        selection
    }

    /// The indices of values for which `test` is true, without branches.
    #[inline]
    pub fn of(values: &[u32; BATCH_SIZE], test: impl Fn(u32) -> bool) -> Selection {
        /// Brings the lowest bit of each byte to the highest byte, in their order.
        const TOGETHER: u64 = 0x0102_0408_1020_4080;
        let mut passes = [0; BATCH_SIZE];
        for (passes, value) in passes.iter_mut().zip(values) {
            *passes = u8::from(test(*value));
        }
        let mut selection = Selection::NONE;
        for (word, passes) in selection.words.iter_mut().zip(passes.as_chunks::<64>().0) {
            for (place, eight) in passes.as_chunks::<8>().0.iter().enumerate() {
                let bits = u64::from_le_bytes(*eight).wrapping_mul(TOGETHER) >> 56;
                *word |= bits << (8 * place);
            }
        }
        selection
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().fold(0, |any, word| any | word) == 0
    }

    /// The indices as a range, if they are consecutive.
    pub fn run(&self) -> Option<Range<usize>> {
        let words = self.words.iter().enumerate();
        let mut used = words.filter(|(_, word)| **word != 0);
        let Some((first, word)) = used.next() else {
            return Some(0..0);
        };
        let start = 64 * first + word.trailing_zeros() as usize;
        let (last, word) = used.next_back().unwrap_or((first, word));
        let end = 64 * (last + 1) - word.leading_zeros() as usize;
        (end - start == self.len()).then_some(start..end)
    }

    /// Whether packet `index` is in the set.
    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        self.words
            .get(index / 64)
            .is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Adds packet `index`; one outside any batch is ignored.
    #[inline]
    pub fn insert(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Removes packet `index`.
    #[inline]
    pub fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// The intersection with `other`.
    #[inline]
    #[must_use]
    pub fn and(self, other: Selection) -> Selection {
        self.combine(other, |mine, theirs| mine & theirs)
    }

    /// The union with `other`.
    #[inline]
    #[must_use]
    pub fn or(self, other: Selection) -> Selection {
        self.combine(other, |mine, theirs| mine | theirs)
    }

    /// The packets that are not in `other`.
    #[inline]
    #[must_use]
    pub fn without(self, other: Selection) -> Selection {
        self.combine(other, |mine, theirs| mine & !theirs)
    }

    /// Keeps the packets for which `keep` is true.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (base, word) in (0..).step_by(64).zip(&mut self.words) {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                *word &= !(u64::from(!keep(base + bit as usize)) << bit);
            }
        }
    }

    /// The indices, in order.
    #[inline]
    pub fn iter(&self) -> Selected {
        Selected {
            word: self.words[0],
            base: 0,
            words: self.words,
        }
    }

    fn combine(self, other: Selection, f: impl Fn(u64, u64) -> u64) -> Selection {
        let mut words = self.words;
        for (mine, theirs) in words.iter_mut().zip(other.words) {
            *mine = f(*mine, theirs);
        }
        Selection { words }
    }
}

/// The indices of selected packets.
#[derive(Clone, Debug)]
pub struct Selected {
    /// What is left of the word under way.
    word: u64,
    /// The number of its first packet.
    base: usize,
    words: [u64; WORDS],
}

impl Iterator for Selected {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.base += 64;
            self.word = *self.words.get(self.base / 64)?;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.base + bit)
    }

    /// Without a search for the next one where all of a word are selected.
    #[inline]
    fn fold<B, F: FnMut(B, usize) -> B>(self, init: B, mut f: F) -> B {
        let mut sum = init;
        for (base, mut word) in (self.base..)
            .step_by(64)
            .zip(core::iter::once(self.word).chain(self.words.into_iter().skip(self.base / 64 + 1)))
        {
            if word == u64::MAX {
                for index in base..base + 64 {
                    sum = f(sum, index);
                }
                continue;
            }
            while word != 0 {
                sum = f(sum, base + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn of(set: &BTreeSet<usize>) -> Selection {
        let mut selection = Selection::NONE;
        set.iter().for_each(|&index| selection.insert(index));
        selection
    }

    #[test]
    fn the_first_packets() {
        for count in [0, 1, 63, 64, 65, 128, 255, 256, 1000] {
            let numbers: Vec<usize> = Selection::first(count).iter().collect();
            let expected: Vec<usize> = (0..count.min(BATCH_SIZE)).collect();
            assert_eq!(numbers, expected);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            one in proptest::collection::btree_set(0..BATCH_SIZE, 0..40),
            other in proptest::collection::btree_set(0..BATCH_SIZE, 0..40),
            out in 0..BATCH_SIZE,
        ) {
            let values = core::array::from_fn(|index| u32::from(one.contains(&index)) << 31);
            prop_assert_eq!(Selection::of(&values, |value| value != 0), of(&one));
            let (a, b) = (of(&one), of(&other));
            let all = |selection: Selection| selection.iter().collect::<BTreeSet<usize>>();
            prop_assert_eq!(all(a.and(b)), &one & &other);
            prop_assert_eq!(all(a.or(b)), &one | &other);
            prop_assert_eq!(all(a.without(b)), &one - &other);
            prop_assert_eq!(a.len(), one.len());
            prop_assert_eq!(a.is_empty(), one.is_empty());
            let run = |set: &BTreeSet<usize>| match (set.first(), set.last()) {
                (Some(&first), Some(&last)) => (last - first + 1 == set.len()).then_some(first..last + 1),
                _ => Some(0..0),
            };
            let side_by_side = (out / 2..out).collect();
            prop_assert_eq!(a.run(), run(&one));
            prop_assert_eq!(of(&side_by_side).run(), run(&side_by_side));
            let mut folded = Vec::new();
            a.iter().for_each(|index| folded.push(index));
            prop_assert_eq!(&folded, &one.iter().copied().collect::<Vec<_>>());
            let mut rest = Vec::new();
            let mut some = a.or(Selection::first(70)).iter();
            rest.extend(some.by_ref().take(67));
            some.for_each(|index| rest.push(index));
            prop_assert_eq!(rest, a.or(Selection::first(70)).iter().collect::<Vec<_>>());
            prop_assert!(one.iter().all(|&index| a.contains(index)));
            let mut less = a;
            less.remove(out);
            prop_assert!(!less.contains(out));
            let mut even = a;
            even.retain(|index| index % 2 == 0);
            let expected: BTreeSet<usize> = one.iter().copied().filter(|i| i % 2 == 0).collect();
            prop_assert_eq!(all(even), expected);
        }
    }
}
