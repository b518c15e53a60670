//! Traffic over time in a fixed number of bins.

use flowgauge_wire::Nanos;

/// Bins of a timeline.
pub(super) const BINS: usize = 60;

/// Bytes and packets by time. Bins begin 10 ms wide; when time runs out of them, pairs are merged.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    start: Option<Nanos>,
    width: u64,
    bytes: [u64; BINS],
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            start: None,
            width: 10_000_000,
            bytes: [0; BINS],
        }
    }
}

impl Timeline {
    /// Counts `bytes` at `time`. What comes before the first time falls into the first bin.
    #[inline]
    pub(super) fn add(&mut self, time: Nanos, bytes: u64) {
        let start = *self.start.get_or_insert(time);
        let offset = (time - start).0;
        while offset / self.width >= BINS as u64 {
            self.double();
        }
        self.bytes[(offset / self.width) as usize] += bytes;
    }

    /// Adds another timeline.
    pub(super) fn merge(&mut self, other: &Timeline) {
        let Some(start) = other.start else {
            return;
        };
        for (bin, &bytes) in other.bytes.iter().enumerate() {
            if bytes > 0 {
                self.add(start + Nanos(bin as u64 * other.width), bytes);
            }
        }
    }

    /// Width of a bin.
    pub(super) fn width(&self) -> Nanos {
        Nanos(self.width)
    }

    /// Bytes of each bin up to the last with any.
    pub(super) fn bins(&self) -> &[u64] {
        let used = self.bytes.iter().rposition(|&bytes| bytes > 0);
        &self.bytes[..used.map_or(0, |last| last + 1)]
    }

    fn double(&mut self) {
        for bin in 0..BINS / 2 {
            self.bytes[bin] = self.bytes[2 * bin] + self.bytes[2 * bin + 1];
        }
        self.bytes[BINS / 2..].fill(0);
        self.width = self.width.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_widen_and_nothing_is_lost() {
        let mut timeline = Timeline::default();
        for second in 0..1000 {
            timeline.add(Nanos::from_secs(100 + second), 7);
        }
        timeline.add(Nanos::from_secs(1), 7);
        assert_eq!(timeline.bins().iter().sum::<u64>(), 7007);
        assert!(timeline.bins().len() > BINS / 2);
        let mut other = Timeline::default();
        other.merge(&timeline);
        assert_eq!(other.bins().iter().sum::<u64>(), 7007);
        other.add(Nanos::MAX, 1);
        assert_eq!(other.bins().iter().sum::<u64>(), 7008);
    }
}
