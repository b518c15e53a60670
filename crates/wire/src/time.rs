//! Time in packets.

use core::ops::{Add, Sub};

/// Nanoseconds since 1970-01-01 00:00:00 UTC for a point in time, plain nanoseconds for a
/// duration. Subtraction saturates at zero, because clocks of captures may go backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Nanos = Nanos(0);
    /// The largest point in time.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// From whole seconds, saturating.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// From milliseconds, saturating.
    pub const fn from_millis(milliseconds: u64) -> Nanos {
        Nanos(milliseconds.saturating_mul(1_000_000))
    }

    /// From microseconds, saturating.
    pub const fn from_micros(microseconds: u64) -> Nanos {
        Nanos(microseconds.saturating_mul(1_000))
    }

    /// Seconds in 32.32 fixed point, MAPI's format of times.
    pub const fn ticks(self) -> u64 {
        (((self.0 as u128) << 32) / 1_000_000_000) as u64
    }

    /// Seconds as a floating-point number.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}
