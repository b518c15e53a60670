//! Traffic over time in a fixed number of bins.

use flowgauge_wire::Nanos;

/// Bins of a timeline.
pub(super) const BINS: usize = 60;

/// Width of a bin before bins are merged, ns.
const NARROWEST: u64 = 10_000_000;

/// Bytes by time. Bins are 10 ms wide at first; when there are too few, pairs are merged. They begin
/// at multiples of their width, so that it makes no difference in what order packets come, or whether
/// several timelines are added. Packets without a time (zero) count to the first.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    width: u64,
    /// The number of the first bin, in widths since time zero, once there is one.
    first: Option<u64>,
    bytes: [u64; BINS],
    untimed: u64,
    /// Where the bin lies that was counted to last, and until when: packets mostly come in order.
    from: u64,
    until: u64,
    last: usize,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline {
            width: NARROWEST,
            first: None,
            bytes: [0; BINS],
            untimed: 0,
            from: 0,
            until: 0,
            last: 0,
        }
    }
}

impl Timeline {
    /// Counts `bytes` at `time`.
    #[inline]
    pub(super) fn add(&mut self, time: Nanos, bytes: u64) {
        if (self.from..self.until).contains(&time.0) {
            self.bytes[self.last] += bytes;
        } else {
            self.add_elsewhere(time.0, bytes);
        }
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, time: u64, bytes: u64) {
        if time == 0 {
            self.untimed += bytes;
            return;
        }
        let bin = loop {
            let number = time / self.width;
            let first = *self.first.get_or_insert(number);
            if number >= first {
                let bin = (number - first) as usize;
                if number - first < BINS as u64 {
                    break bin;
                }
            } else if first - number <= (BINS - self.used()) as u64 {
                self.bytes.rotate_right((first - number) as usize);
                self.first = Some(number);
                break 0;
            }
            self.double();
        };
        self.bytes[bin] += bytes;
        self.last = bin;
        self.from = time / self.width * self.width;
        self.until = self.from.saturating_add(self.width);
    }

    /// Adds another timeline.
    pub(super) fn merge(&mut self, other: &Timeline) {
        self.untimed += other.untimed;
        // Bins of the wider one cannot be divided.
        while self.width < other.width {
            self.double();
        }
        let Some(first) = other.first else {
            return;
        };
        for (bin, &bytes) in other.bytes.iter().enumerate() {
            if bytes > 0 {
                let time = (first + bin as u64).saturating_mul(other.width);
                // The very first bin begins at zero, which is no time for `add`.
                self.add(Nanos(time.max(1)), bytes);
            }
        }
    }

    /// Width of a bin.
    pub(super) fn width(&self) -> Nanos {
        Nanos(self.width)
    }

    /// When the first bin begins.
    pub(super) fn start(&self) -> Option<Nanos> {
        let first = self.first?;
        Some(Nanos(first.saturating_mul(self.width)))
    }

    /// Bytes of each bin up to the last with any.
    pub(super) fn bins(&self) -> Vec<u64> {
        let mut bins = self.bytes[..self.used()].to_vec();
        if self.untimed > 0 {
            match bins.first_mut() {
                Some(first) => *first += self.untimed,
                None => bins.push(self.untimed),
            }
        }
        bins
    }

    fn used(&self) -> usize {
        let last = self.bytes.iter().rposition(|&bytes| bytes > 0);
        last.map_or(0, |last| last + 1)
    }

    fn double(&mut self) {
        if let Some(first) = self.first {
            let mut bytes = [0; BINS];
            for (bin, &old) in self.bytes.iter().enumerate() {
                bytes[((first + bin as u64) / 2 - first / 2) as usize] += old;
            }
            self.bytes = bytes;
            self.first = Some(first / 2);
        }
        self.width = self.width.saturating_mul(2);
        (self.from, self.until) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of<'a>(times: impl IntoIterator<Item = &'a u64>) -> Timeline {
        let mut timeline = Timeline::default();
        for &time in times {
            timeline.add(Nanos(time), 7);
        }
        timeline
    }

    type Seen = (u64, Option<Nanos>, Vec<u64>);

    fn seen(timeline: &Timeline) -> Seen {
        (timeline.width, timeline.start(), timeline.bins())
    }

    /// The same with a list of all times.
    fn naive(times: &[u64]) -> Seen {
        let timed = || times.iter().filter(|&&time| time > 0);
        let untimed = (times.len() - timed().count()) as u64 * 7;
        let mut width = NARROWEST;
        let (Some(&least), Some(&most)) = (timed().min(), timed().max()) else {
            let bins = (untimed > 0).then_some(untimed);
            return (width, None, bins.into_iter().collect());
        };
        while most / width - least / width >= BINS as u64 {
            width *= 2;
        }
        let mut bins = vec![0; (most / width - least / width + 1) as usize];
        timed().for_each(|time| bins[(time / width - least / width) as usize] += 7);
        bins[0] += untimed;
        (width, Some(Nanos(least / width * width)), bins)
    }

    proptest! {
        #[test]
        fn neither_order_nor_threads_make_a_difference(
            times in prop::collection::vec(prop_oneof![
                0_u64..200_000_000,
                1_700_000_000_000_000_000_u64..1_700_000_100_000_000_000,
                Just(u64::MAX / 4),
            ], 0..80),
            cut in any::<prop::sample::Index>(),
        ) {
            let expected = naive(&times);
            prop_assert_eq!(&seen(&of(&times)), &expected);
            prop_assert_eq!(&seen(&of(times.iter().rev())), &expected);
            let (one, other) = times.split_at(if times.is_empty() { 0 } else { cut.index(times.len()) });
            let mut merged = of(one);
            merged.merge(&of(other));
            prop_assert_eq!(&seen(&merged), &expected);
        }
    }
}
