//! The capture clock, and components with timers.

use flowgauge_wire::{Batch, Nanos};

use super::{ComponentFailure, Graph, TICK, Tail};
use crate::deadline::first_after;
use crate::engine::Step;

impl<T: Tail> Graph<T> {
    /// Advances the capture clock for components with timers.
    ///
    /// # Errors
    /// A component failed or panicked. The stack does nothing any more.
    pub fn advance(&mut self, now: Nanos) -> Result<(), ComponentFailure> {
        self.guarded(|graph| {
            graph.now = graph.now.max(now);
            graph.tick();
        })
    }

    /// Whether any of its components has a timer.
    pub fn is_timed(&self) -> bool {
        !self.timed.is_empty()
    }

    /// The lengths of its components' intervals
    /// ([`Component::interval`](crate::Component::interval)).
    pub fn intervals(&self) -> &[Nanos] {
        &self.intervals
    }

    /// Sets whether components in later parts have timers, and their intervals, which the source of
    /// this part has to respect.
    pub fn set_looks(&mut self, is_timed: bool, intervals: &[Nanos]) {
        self.looks = intervals.to_vec();
        self.looks.extend(is_timed.then_some(TICK));
    }

    /// The next packet, from `start` on, that comes after the end of an interval, and its time.
    pub(super) fn cut(
        &self,
        batch: &Batch<'_>,
        start: usize,
        now: Nanos,
    ) -> Option<(usize, Nanos)> {
        let intervals = self.intervals.iter();
        let ends = intervals.map(|&length| end_of_interval(self.now, length));
        let deadline = ends.min().filter(|deadline| *deadline <= now)?;
        first_after(batch.packets, start, deadline, now).filter(|(index, time)| {
            // It came at the deadline already: the part must have packets, or the clock go on.
            *index > start || *time > self.now
        })
    }

    /// Components that wait for a time look at the clock.
    pub(super) fn tick(&mut self) {
        self.begin_tick();
        self.end_tick();
    }

    pub(super) fn begin_tick(&mut self) {
        self.export();
        self.tail.begin_tick(self.now);
    }

    pub(super) fn end_tick(&mut self) {
        let now = self.now;
        for index in 0..self.timed.len() {
            let id = self.timed[index];
            if self.nodes[id.index()].subscription.is_some() {
                self.drive(id, &Step::Tick(now));
            } else {
                self.with(id, |component, exit| component.tick(now, exit));
            }
            self.tick_by_key(id);
            self.collect(id);
        }
        self.export();
        self.tail.end_tick(now);
    }
}

/// When an interval ends that it is in at `now`; before the first packet that is at once.
pub(super) fn end_of_interval(now: Nanos, length: Nanos) -> Nanos {
    match (now.0, length.0.max(1)) {
        (0, _) => Nanos(0),
        (now, length) => Nanos((now / length + 1).saturating_mul(length)),
    }
}
