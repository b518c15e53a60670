//! The capture clock.

use flowgauge_wire::Nanos;

use crate::wheel::TICK_SHIFT;

/// A forward jump of more than this has to be confirmed by a second packet.
pub const FAR_JUMP: Nanos = Nanos::from_secs(600);

/// The latest time seen. Time that goes backwards only increments a counter. A forward jump of more
/// than [`FAR_JUMP`] (a damaged timestamp, or a quiet night) is accepted only when a second packet
/// confirms it: one bad record must not end all flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureClock {
    now: Nanos,
    /// Times from `now` to before this are usual. It is the end of `now`'s tick, or zero where the
    /// next packet has to be looked at closely.
    until: Nanos,
    started: bool,
    jumped: bool,
    pub(crate) backwards: u64,
    /// Somebody who sees all packets moves this clock: far jumps are not for it to believe.
    led: bool,
}

impl CaptureClock {
    /// A clock that believes far jumps only of [`CaptureClock::trusted`] if it is `led`.
    pub(crate) fn new(led: bool) -> CaptureClock {
        CaptureClock {
            led,
            ..CaptureClock::default()
        }
    }

    /// The latest time accepted.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The current tick; timeouts are checked when it changes.
    #[inline]
    pub fn tick(&self) -> u32 {
        (self.now.0 >> TICK_SHIFT) as u32
    }

    /// Start of the current tick.
    pub fn tick_began(&self) -> Nanos {
        Nanos(u64::from(self.tick()) << TICK_SHIFT)
    }

    /// Accepts a packet's time if it stays within the tick, and returns whether it does. If not, call
    /// [`CaptureClock::packet`].
    #[inline(always)]
    pub fn goes_on(&mut self, time: Nanos) -> bool {
        let usual = self.now <= time && time < self.until;
        if usual {
            self.now = time;
        }
        usual
    }

    /// Processes a packet's time in any case; `next` is the time of the following packet, if known.
    pub fn packet(&mut self, time: Nanos, next: Option<Nanos>) {
        // One comparison for both directions: a time before the clock wraps to a large number.
        if !self.started || time.0.wrapping_sub(self.now.0) <= FAR_JUMP.0 {
            self.now = time;
            self.jumped = false;
            self.started = true;
        } else {
            self.unusual(time, next);
        }
        self.set_until();
    }

    /// Processes the times of packets up to the first that enters another tick: returns the index of
    /// that packet, and the time then; `None` if there is none. The first packet of all enters one.
    #[inline]
    pub fn crossing(
        &mut self,
        times: impl Iterator<Item = Nanos> + Clone,
    ) -> Option<(usize, Nanos)> {
        let latest = Nanos(times.clone().fold(0, |latest, time| latest.max(time.0)));
        if latest < self.until {
            self.now = self.now.max(latest);
            return None;
        }
        self.find_crossing(times)
    }

    #[cold]
    fn find_crossing(
        &mut self,
        times: impl Iterator<Item = Nanos> + Clone,
    ) -> Option<(usize, Nanos)> {
        let mut next = times.clone().skip(1);
        for (at, time) in times.enumerate() {
            let next = next.next();
            if !self.goes_on(time) {
                let (before, started) = (self.tick(), self.started);
                self.packet(time, next);
                if self.tick() != before || !started {
                    return Some((at, self.now));
                }
            }
        }
        None
    }

    /// Sets the time from a reliable clock.
    pub fn trusted(&mut self, now: Nanos) {
        self.started = true;
        self.jumped = false;
        self.now = self.now.max(now);
        self.set_until();
    }

    fn set_until(&mut self) {
        self.until = if self.jumped {
            Nanos::ZERO
        } else {
            self.end_of_tick()
        };
    }

    fn end_of_tick(&self) -> Nanos {
        Nanos((self.now.0 | ((1 << TICK_SHIFT) - 1)).saturating_add(1))
    }

    fn unusual(&mut self, time: Nanos, next: Option<Nanos>) {
        if time < self.now {
            self.backwards += 1;
            self.jumped = false;
            return;
        }
        if self.led {
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
            let time = Nanos(time * SECOND);
            if !clock.goes_on(time) {
                clock.packet(time, None);
            }
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
        clock.packet(Nanos::from_secs(9000), Some(Nanos::from_secs(9001)));
        assert_eq!(clock.now(), Nanos::from_secs(9000));
    }

    #[test]
    fn a_clock_that_is_led_believes_only_its_leader() {
        let mut clock = CaptureClock::new(true);
        for time in [100, 9000, 9001, 101] {
            clock.packet(Nanos::from_secs(time), None);
        }
        assert_eq!(clock.now(), Nanos::from_secs(101));
        clock.trusted(Nanos::from_secs(9000));
        assert_eq!(clock.now(), Nanos::from_secs(9000));
    }

    #[test]
    fn a_live_clock_is_believed_at_once() {
        let mut clock = after(&[100]);
        clock.trusted(Nanos::from_secs(90_000));
        assert_eq!(clock.now(), Nanos::from_secs(90_000));
    }
}
