//! The common part of components that read another component's result at intervals.

use flowgauge_stack::{
    Cell, Component, Items, OptionKind, OptionValue, Outlet, ResultValue, Settings, Table, options,
};
use flowgauge_wire::Nanos;

options! {
    pub const;
    /// Option `of`.
    OF = of: Measure, "the component's label, such as count(0)";
    /// Option `every`.
    EVERY = every: Duration = "1s",
        "how often a result without per-packet values is read, on the capture clock";
}

/// The least interval at which results are read.
const LEAST: u64 = 1_000;

/// Intervals of the capture clock, which start at multiples of their length.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    length: u64,
    /// Where the present one began.
    start: Option<u64>,
}

impl Intervals {
    /// Intervals of this length in nanoseconds, not started yet.
    pub fn new(length: u64) -> Intervals {
        Intervals {
            length: length.max(LEAST),
            start: None,
        }
    }

    /// Where the present one began.
    pub fn start(&self) -> Option<Nanos> {
        self.start.map(Nanos)
    }

    /// The end of the current interval; initially, before the first packet.
    pub fn end(&self) -> Nanos {
        Nanos(
            self.start
                .map_or(0, |start| start.saturating_add(self.length)),
        )
    }

    /// Advances to the interval of `now`. Returns the start of the first interval that ended, and how many ended;
    /// initially `None`.
    pub fn advance(&mut self, now: Nanos) -> Option<(Nanos, u64)> {
        let at = now.0 - now.0 % self.length;
        let before = self.start?;
        let ended = at.saturating_sub(before) / self.length;
        self.start = Some(before.max(at));
        Some((Nanos(before), ended))
    }

    /// Starts with the interval of `now`, unless already started.
    pub fn begin(&mut self, now: Nanos) -> bool {
        let is_first = self.start.is_none();
        if is_first {
            self.start = Some(now.0 - now.0 % self.length);
        }
        is_first
    }

    /// Restarts with the interval of `now`.
    pub fn restart(&mut self, now: Nanos) {
        self.start = None;
        self.begin(now);
    }

    /// The length of an interval in nanoseconds.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// The growth of a result between two reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    last: i128,
}

impl Growth {
    /// The increase of a sum since the last call; for other results, the value itself.
    pub fn since(&mut self, result: &ResultValue) -> i128 {
        let value = result.number().unwrap_or(0);
        match result {
            ResultValue::Sum(_) | ResultValue::Difference(_) => {
                // What was reset began at 0.
                let before = core::mem::replace(&mut self.last, value);
                if before > value {
                    value
                } else {
                    value - before
                }
            }
            _ => value,
        }
    }
}

/// A summary of values.
pub trait Summary: Send {
    /// Adds a value.
    fn add(&mut self, value: i128);

    /// The summary so far.
    fn table(&self) -> Table;

    /// Clears it.
    fn clear(&mut self);
}

/// Summarizes the values of another component: those of packets if it has any, else its growth per interval.
#[derive(Debug)]
pub struct Measured<S> {
    summary: S,
    intervals: Intervals,
    growth: Growth,
    /// Whether packets have values; not known at first.
    is_per_packet: Option<bool>,
    /// Whether packets came in the interval.
    has_come: bool,
}

impl<S: Summary> Measured<S> {
    /// Created from the options [`OF`] and [`EVERY`].
    pub fn new(settings: &Settings, summary: S) -> Measured<S> {
        Measured {
            summary,
            intervals: Intervals::new(settings.value(&EVERY).unwrap_or_default()),
            growth: Growth::default(),
            is_per_packet: None,
            has_come: false,
        }
    }

    /// Of intervals without packets there is no value.
    fn read(&mut self, result: &ResultValue) {
        let value = self.growth.since(result);
        if core::mem::take(&mut self.has_come) {
            self.summary.add(value);
        }
    }
}

impl<S: Summary> Component for Measured<S> {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        self.has_come = true;
        let values = out.values("of");
        self.is_per_packet = Some(values.is_some());
        if let Some(values) = values {
            let values = values.of(packets, out);
            values.for_each(|(_, value)| self.summary.add(value.into()));
        }
    }

    fn interval(&self) -> Option<Nanos> {
        Some(Nanos(self.intervals.length()))
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        let per_packet = *self
            .is_per_packet
            .get_or_insert_with(|| out.values("of").is_some());
        if per_packet {
            return;
        }
        let Some(result) = out.result("of") else {
            return;
        };
        if self.intervals.begin(now) {
            self.growth.since(&result);
        }
        if self
            .intervals
            .advance(now)
            .is_some_and(|(_, ended)| ended > 0)
        {
            self.read(&result);
        }
    }

    /// The value of the interval under way.
    fn finish(&mut self, out: &mut dyn Outlet) {
        if self.is_per_packet == Some(false)
            && let Some(result) = out.result("of")
        {
            self.read(&result);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Table(self.summary.table()))
    }

    fn reset(&mut self) {
        self.summary.clear();
    }
}

/// A whole number as a cell of a table.
pub fn cell(value: i128) -> Cell {
    match (u64::try_from(value), i64::try_from(value)) {
        (Ok(value), _) => Cell::Unsigned(value),
        (_, Ok(value)) => Cell::Signed(value),
        _ => Cell::Float(value as f64),
    }
}

/// Parses a number with `k`, `M` or `G`, or a duration (`ns us ms s m h`) in nanoseconds.
///
/// # Errors
/// The message, if it is invalid.
pub fn amount(text: &str) -> Result<u64, String> {
    let is_count = |last: char| last.is_ascii_digit() || matches!(last, 'k' | 'M' | 'G');
    let kind = match text.ends_with(is_count) {
        true => OptionKind::Integer {
            min: 0,
            max: i64::MAX,
        },
        false => OptionKind::Duration,
    };
    match kind.read(text)? {
        OptionValue::Integer(number) => Ok(number.unsigned_abs()),
        OptionValue::Duration(nanos) => Ok(nanos),
        other => Err(format!("{other} is neither a number nor a duration")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_multiples_of_their_length() {
        let mut intervals = Intervals::new(10_000);
        assert_eq!(intervals.end(), Nanos(0));
        assert!(intervals.begin(Nanos(25_000)));
        assert_eq!(intervals.end(), Nanos(30_000));
        assert_eq!(intervals.advance(Nanos(29_999)), Some((Nanos(20_000), 0)));
        assert_eq!(intervals.advance(Nanos(55_000)), Some((Nanos(20_000), 3)));
        assert_eq!(intervals.advance(Nanos(40_000)), Some((Nanos(50_000), 0)));
        assert_eq!(intervals.end(), Nanos(60_000));
        let mut last = Intervals::new(u64::MAX);
        last.begin(Nanos(5));
        assert_eq!(last.end(), Nanos(u64::MAX));
    }

    #[test]
    fn a_sum_that_was_reset_began_at_0() {
        let mut growth = Growth::default();
        let mut since = |value| growth.since(&ResultValue::Sum(value));
        assert_eq!(
            [since(5), since(7), since(7), since(2), since(3)],
            [5, 2, 0, 2, 1]
        );
        assert_eq!(growth.since(&ResultValue::Last(9)), 9);
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!(amount("64"), Ok(64));
        assert_eq!(amount("2k"), Ok(2_000));
        assert_eq!(amount("3 ms"), Ok(3_000_000));
        assert_eq!(amount("1M"), Ok(1_000_000));
        assert_eq!(amount("1m"), Ok(60_000_000_000));
        assert!(amount("1x").is_err() && amount("").is_err() && amount("-1").is_err());
        assert!(amount("99999999999h").is_err());
    }
}
