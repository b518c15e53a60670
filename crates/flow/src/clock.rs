//! The capture clock.

use flowgauge_wire::Nanos;

/// A jump forward beyond this needs a second packet to be believed.
pub const FAR_JUMP: Nanos = Nanos::from_secs(600);

/// The largest time seen. Time that goes backwards changes nothing but a counter. A jump forward by
/// more than [`FAR_JUMP`] (a damaged time stamp, or a quiet night) is believed only when a second
/// packet has such a time too: one bad record must not end every flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CaptureClock {
    now: Nanos,
    started: bool,
    jumped: bool,
    pub(crate) backwards: u64,
}

impl CaptureClock {
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Takes a packet's time; `next` tells the time of the packet after it, where that is known.
    #[inline(always)]
    pub(crate) fn packet(&mut self, time: Nanos, next: impl FnOnce() -> Option<Nanos>) {
        // One comparison for both directions: a time before the clock wraps to a large number.
        if time.0.wrapping_sub(self.now.0) <= FAR_JUMP.0 {
            self.now = time;
            self.jumped = false;
            self.started = true;
        } else {
            self.unusual(time, next());
        }
    }

    /// Takes the time of a clock that is known to be right.
    pub(crate) fn trusted(&mut self, now: Nanos) {
        self.started = true;
        self.jumped = false;
        self.now = self.now.max(now);
    }

    #[cold]
    fn unusual(&mut self, time: Nanos, next: Option<Nanos>) {
        if !self.started {
            self.started = true;
            self.now = time;
            return;
        }
        if time < self.now {
            self.backwards += 1;
            self.jumped = false;
            return;
        }
        let limit = self.now + FAR_JUMP;
        let confirmed = self.jumped || next.is_some_and(|next| next > limit);
        self.jumped = !confirmed;
        if confirmed {
            self.now = match next {
                // Of two far times the smaller is the safer.
                Some(next) if next > limit => time.min(next),
                _ => time,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn after(times: &[u64]) -> CaptureClock {
        let mut clock = CaptureClock::default();
        for &time in times {
            clock.packet(Nanos(time * SECOND), || None);
        }
        clock
    }

    #[test]
    fn goes_forward_only() {
        let clock = after(&[5000, 5001, 4000, 5002]);
        assert_eq!(clock.now(), Nanos::from_secs(5002));
        assert_eq!(clock.backwards, 1);
    }

    #[test]
    fn starts_anywhere() {
        assert_eq!(after(&[0]).now(), Nanos::ZERO);
        assert_eq!(
            after(&[1_700_000_000]).now(),
            Nanos::from_secs(1_700_000_000)
        );
    }

    #[test]
    fn one_far_packet_is_not_believed() {
        assert_eq!(after(&[100, 9000]).now(), Nanos::from_secs(100));
        assert_eq!(after(&[100, 9000, 101]).now(), Nanos::from_secs(101));
        assert_eq!(after(&[100, 9000, 101, 9000]).now(), Nanos::from_secs(101));
    }

    #[test]
    fn two_far_packets_are() {
        assert_eq!(after(&[100, 9000, 9001]).now(), Nanos::from_secs(9001));
        let mut clock = after(&[100]);
        clock.packet(Nanos::from_secs(9000), || Some(Nanos::from_secs(9001)));
        assert_eq!(clock.now(), Nanos::from_secs(9000));
    }

    #[test]
    fn a_live_clock_is_believed_at_once() {
        let mut clock = after(&[100]);
        clock.trusted(Nanos::from_secs(90_000));
        assert_eq!(clock.now(), Nanos::from_secs(90_000));
    }
}
