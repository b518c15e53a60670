//! What is added up: packets, loss, and delays, by direction between two points.

/// Least, mean and most of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    count: u64,
    sum: i128,
    ends: (i64, i64),
}

impl Spread {
    /// Takes a value.
    pub fn add(&mut self, value: i64) {
        self.merge(&Spread {
            count: 1,
            sum: value.into(),
            ends: (value, value),
        });
    }

    /// Takes all of another one.
    pub fn merge(&mut self, other: &Spread) {
        self.ends = match (self.count, other.count) {
            (_, 0) => self.ends,
            (0, _) => other.ends,
            _ => (self.ends.0.min(other.ends.0), self.ends.1.max(other.ends.1)),
        };
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many, their sum, the least and the largest, of what is not negative.
    pub(crate) fn parts(&self) -> (u64, u64, u64, u64) {
        let nanos = |nanos: i64| nanos.max(0).unsigned_abs();
        let sum = u64::try_from(self.sum).unwrap_or(u64::MAX);
        (self.count, sum, nanos(self.ends.0), nanos(self.ends.1))
    }

    /// From [`Spread::parts`].
    pub(crate) fn of_parts((count, sum, least, most): (u64, u64, u64, u64)) -> Spread {
        let nanos = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        Spread {
            count,
            sum: sum.into(),
            ends: (nanos(least), nanos(most)),
        }
    }

    /// All of them less so much.
    #[must_use]
    pub fn less(&self, value: i64) -> Spread {
        Spread {
            count: self.count,
            sum: self.sum - i128::from(value) * i128::from(self.count),
            ends: (
                self.ends.0.saturating_sub(value),
                self.ends.1.saturating_sub(value),
            ),
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The least.
    pub fn least(&self) -> Option<i64> {
        (self.count > 0).then_some(self.ends.0)
    }

    /// The mean.
    pub fn mean(&self) -> Option<i64> {
        (self.count > 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }

    /// The largest.
    pub fn most(&self) -> Option<i64> {
        (self.count > 0).then_some(self.ends.1)
    }
}

/// Of one direction between two points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Flows that both points saw.
    pub flows: u64,
    /// Packets of them at the point that comes first.
    pub sent: u64,
    /// Packets of them at the point that comes last.
    pub received: u64,
    /// Bytes of the same.
    pub sent_bytes: u64,
    /// Bytes of the same.
    pub received_bytes: u64,
    /// Packets that are missing at the last point, by what the points counted. Less than 0 while sums of other intervals have more
    /// than there was.
    pub lost: i64,
    /// Packets too many there.
    pub duplicates: i64,
    /// Packets of flows that the last point never saw, and not for loss.
    pub one_sided: u64,
    /// How many flows these are.
    pub one_sided_flows: u64,
    /// TCP segments that came late, or again, to the first point and to the last, of flows that ended.
    pub late: [u64; 2],
    /// Packets that cannot be compared: from before or after the time in which both points observed.
    pub uncompared: u64,
    /// Differences of the clocks' times of one packet, in nanoseconds: the delay and the clocks' offset.
    pub delay: Spread,
    /// Differences of these from one marked packet of a flow to the next.
    pub jitter: Spread,
    /// Round trips from the point that comes first to the receiver and back, in nanoseconds.
    pub trips: Spread,
    /// From a flow's first packet to the first one of the other direction, at the point that comes first, in nanoseconds.
    pub response: Spread,
}

impl Sums {
    /// Takes all of others.
    pub fn merge(&mut self, other: &Sums) {
        let counts = [
            (&mut self.flows, other.flows),
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.one_sided, other.one_sided),
            (&mut self.one_sided_flows, other.one_sided_flows),
            (&mut self.uncompared, other.uncompared),
        ];
        let late = self.late.iter_mut().zip(other.late);
        for (mine, theirs) in counts.into_iter().chain(late) {
            *mine = mine.saturating_add(theirs);
        }
        self.lost = self.lost.saturating_add(other.lost);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.delay.merge(&other.delay);
        self.jitter.merge(&other.jitter);
        self.trips.merge(&other.trips);
        self.response.merge(&other.response);
    }

    /// Makes up for what was told before and was wrong, as far as there is something to take it from; what is left is for the next.
    pub(crate) fn take_back(&mut self, late: &mut [i64; 2]) {
        for (count, late) in [&mut self.lost, &mut self.duplicates].into_iter().zip(late) {
            let all = count.saturating_add(*late);
            (*count, *late) = (all.max(0), all.min(0));
        }
    }

    /// The loss can be anything from the first number to the second, where the points themselves dropped packets.
    ///
    /// Of a flow f the first point counted `A`, the last one `B`, and they dropped `a` and `b` of its packets: its loss is
    /// `A + a - B - b`, and not negative. `lost` is the sum of `A - B` over the flows where that is positive, so that over all flows
    /// the loss is `lost - b` at least, and `lost + a` at most.
    pub fn bounds(&self, dropped_first: u64, dropped_last: u64) -> (u64, u64) {
        let lost = self.lost.max(0).unsigned_abs();
        (
            lost.saturating_sub(dropped_last),
            lost.saturating_add(dropped_first),
        )
    }
}

/// The offset of a clock against another one, as far as delays tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// What the second point's clock shows more than the first one's, in nanoseconds.
    pub nanos: i64,
    /// By how much that can be wrong at most.
    pub error: u64,
}

impl Offset {
    /// As it is in one direction, or against it.
    #[must_use]
    pub(crate) fn seen(self, goes_on: bool) -> Offset {
        Offset {
            nanos: if goes_on { self.nanos } else { -self.nanos },
            ..self
        }
    }

    /// From both directions. A packet's times differ by its delay and the offset, with opposite signs in the two directions, and
    /// delays are not negative: the offset is between minus the least difference of one and the least of the other. The error is
    /// half of the least round trip between the points, as in NTP (RFC 5905, section 8).
    pub fn of(both: &[Sums; 2]) -> Option<Offset> {
        let there = i128::from(both[0].delay.least()?);
        let back = i128::from(both[1].delay.least()?);
        let nanos = (there - back) / 2;
        let error = (there + back).max(0) / 2;
        Some(Offset {
            nanos: i64::try_from(nanos).ok()?,
            error: u64::try_from(error).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_between_what_both_directions_allow() {
        // 5 ms there, 3 ms back; the second clock is 7 s ahead.
        let (delay, offset) = ([5_000_000, 3_000_000], 7_000_000_000);
        let mut both = [Sums::default(); 2];
        for more in [0, 1000, 20] {
            both[0].delay.add(delay[0] + offset + more);
            both[1].delay.add(delay[1] - offset + more);
        }
        let found = Offset::of(&both).expect("both directions are there");
        assert_eq!(found.error, 4_000_000);
        assert!((found.nanos - offset).unsigned_abs() <= found.error);
        assert_eq!(Offset::of(&[both[0], Sums::default()]), None);
    }
}
