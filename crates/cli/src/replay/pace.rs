//! When packets are due.

use std::time::Duration;

use flowgauge_wire::Nanos;

use crate::failure::Failure;
use crate::options::Speed;

/// When packets are due, since the first one was sent.
#[derive(Debug)]
pub(super) struct Pace {
    kind: Kind,
    /// Of the round before, when its last packet was due.
    before: Duration,
    /// When the last packet was due.
    last: Duration,
    /// The time of the round's first packet.
    first: Option<Nanos>,
    packets: u64,
    bits: f64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Captured(f64),
    Bits(f64),
    Packets(f64),
    Top,
}

impl Pace {
    /// # Errors
    /// The factor makes no sense.
    pub(super) fn new(speed: Speed) -> Result<Pace, Failure> {
        let factor = speed.multiplier.unwrap_or(1.0);
        if !(factor.is_finite() && factor > 0.0) {
            return Err(Failure::usage(
                "--multiplier must be a number above zero",
                "2 sends twice as fast as was captured; --topspeed as fast as possible",
            ));
        }
        let kind = match (speed.rate, speed.pps) {
            (Some(rate), _) => Kind::Bits(rate),
            (_, Some(packets)) => Kind::Packets(packets as f64),
            _ if speed.topspeed => Kind::Top,
            _ => Kind::Captured(factor),
        };
        Ok(Pace {
            kind,
            before: Duration::ZERO,
            last: Duration::ZERO,
            first: None,
            packets: 0,
            bits: 0.0,
        })
    }

    /// The packets come once more.
    pub(super) fn begin_round(&mut self) {
        self.before = self.last;
        self.first = None;
    }

    /// When the next packet is due, never before the one before it.
    pub(super) fn due(&mut self, captured: Nanos, bytes: usize) -> Duration {
        let seconds = match self.kind {
            Kind::Top => 0.0,
            Kind::Captured(factor) => {
                let first = *self.first.get_or_insert(captured);
                let since = captured.0.saturating_sub(first.0);
                self.before.as_secs_f64() + since as f64 * 1e-9 / factor
            }
            Kind::Bits(rate) => self.bits / rate,
            Kind::Packets(rate) => self.packets as f64 / rate,
        };
        self.packets += 1;
        self.bits += bytes as f64 * 8.0;
        let due = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.last = self.last.max(due);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(speed: Speed, rounds: usize) -> Vec<u128> {
        let mut pace = Pace::new(speed).unwrap();
        let mut dues = Vec::new();
        for _ in 0..rounds {
            // The third was captured before the second.
            for (time, bytes) in [(5_000_000, 125), (9_000_000, 250), (8_000_000, 125)] {
                dues.push(pace.due(Nanos(time), bytes).as_micros());
            }
            pace.begin_round();
        }
        dues
    }

    const NONE: Speed = Speed {
        rate: None,
        pps: None,
        multiplier: None,
        topspeed: false,
    };

    #[test]
    fn packets_are_due_when_the_speed_says() {
        assert_eq!(dues(NONE, 2), [0, 4000, 4000, 4000, 8000, 8000]);
        let twice = Speed {
            multiplier: Some(2.0),
            ..NONE
        };
        assert_eq!(dues(twice, 1), [0, 2000, 2000]);
        let rate = Speed {
            rate: Some(1e6),
            ..NONE
        };
        assert_eq!(dues(rate, 2), [0, 1000, 3000, 4000, 5000, 7000]);
        let pps = Speed {
            pps: Some(1000),
            ..NONE
        };
        assert_eq!(dues(pps, 2), [0, 1000, 2000, 3000, 4000, 5000]);
        let top = Speed {
            topspeed: true,
            ..NONE
        };
        assert_eq!(dues(top, 1), [0, 0, 0]);
    }
}
