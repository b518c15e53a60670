//! Distributions with fixed buckets.

/// Counts of values by ranges whose upper bounds are given; the last range is open.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [(u64, &'static str)],
    counts: Vec<u64>,
}

impl Histogram {
    /// Ranges end before `bounds`, each with its name; the last bound should be `u64::MAX`.
    pub(super) fn new(bounds: &'static [(u64, &'static str)]) -> Histogram {
        Histogram {
            bounds,
            counts: vec![0; bounds.len()],
        }
    }

    /// Counts a value.
    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        let range = self.bounds.iter().position(|&(bound, _)| value < bound);
        let last = self.counts.len() - 1;
        self.counts[range.unwrap_or(last)] += 1;
    }

    /// Adds another's counts.
    pub(super) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Names and counts of the ranges.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.bounds
            .iter()
            .map(|&(_, name)| name)
            .zip(self.counts.iter().copied())
    }
}

/// Sub-ranges per power of two: percentiles are right to 1/16.
const STEPS: usize = 16;

/// Counts of values by logarithmic ranges, for percentiles. 8 KB whatever is counted.
#[derive(Clone, Debug)]
pub(super) struct Percentiles {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Percentiles {
    fn default() -> Percentiles {
        Percentiles {
            counts: vec![0; 64 * STEPS],
            total: 0,
        }
    }
}

impl Percentiles {
    /// Counts a value.
    pub(super) fn add(&mut self, value: u64) {
        self.counts[Self::range(value)] += 1;
        self.total += 1;
    }

    /// Adds another's counts.
    pub(super) fn merge(&mut self, other: &Percentiles) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }

    /// Values counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The value that `share` (0 to 1) of all do not exceed; `None` when there are none.
    pub(super) fn at(&self, share: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        for (range, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(Self::middle(range));
            }
        }
        None
    }

    fn range(value: u64) -> usize {
        if value < STEPS as u64 {
            return value as usize;
        }
        let exponent = value.ilog2() as usize;
        let step = (value >> (exponent - 4)) as usize & (STEPS - 1);
        (exponent - 3) * STEPS + step
    }

    fn middle(range: usize) -> u64 {
        if range < STEPS {
            return range as u64;
        }
        let (exponent, step) = (range / STEPS + 3, range % STEPS);
        let width = 1u64 << (exponent - 4);
        (1u64 << exponent) + step as u64 * width + width / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_sixteenth() {
        let mut percentiles = Percentiles::default();
        assert_eq!(percentiles.at(0.5), None);
        for value in 1..=100_000u64 {
            percentiles.add(value * 1_000);
        }
        for share in [0.01, 0.5, 0.9, 0.99] {
            let exact = share * 1e8;
            let found = percentiles.at(share).unwrap() as f64;
            assert!(
                (found - exact).abs() / exact < 1.0 / 16.0,
                "{share}: {found}"
            );
        }
        percentiles.add(u64::MAX);
        percentiles.add(0);
        assert_eq!(percentiles.at(0.0), Some(0));
    }

    #[test]
    fn values_fall_below_their_bound() {
        let mut histogram = Histogram::new(&[(10, "small"), (100, "middle"), (u64::MAX, "large")]);
        for value in [0, 9, 10, 99, 100, u64::MAX] {
            histogram.add(value);
        }
        let ranges: Vec<_> = histogram.ranges().collect();
        assert_eq!(ranges, [("small", 2), ("middle", 2), ("large", 2)]);
    }
}
