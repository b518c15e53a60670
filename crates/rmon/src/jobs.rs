//! What is done at times of its own: reports end, histories go on, alarms sample.
//!
//! Each job says when it is due, and is run at exactly that time of the packets' clock, between the packets before and
//! those after. Where no packet came for long, a job leaves out what nobody could see any more.

use std::collections::BTreeMap;

use flowgauge_wire::Nanos;

use crate::Ticks;
use crate::alarms::{Alarm, Event};
use crate::control::Control;
use crate::history::{History, UserHistory};
use crate::probe::Probe;
use crate::reports::Report;
use crate::stations::StationReport;

/// Ticks of a second.
pub(crate) const SECOND: Ticks = 100;

/// Nanoseconds of a tick.
const TICK: u64 = 10_000_000;

/// When a job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    /// When it began its present interval; 0 if that is when the clock starts.
    pub(crate) began: Ticks,
    /// Ticks of an interval; none if it waits for nothing.
    pub(crate) interval: Ticks,
}

impl Timer {
    fn due(&self) -> Ticks {
        match (self.interval, self.began) {
            (0, _) => Ticks::MAX,
            (_, 0) => 0,
            (interval, began) => began.saturating_add(interval),
        }
    }

    /// Goes on at `now`, which it may be overtaken by long ago: at most so many more intervals are to be run. Tells how
    /// many are left out.
    pub(crate) fn go_on(&mut self, now: Ticks, most: u64) -> u64 {
        self.began += self.interval;
        let behind = now.saturating_sub(self.began) / self.interval.max(1);
        let left_out = behind.saturating_sub(most);
        self.began += left_out * self.interval;
        left_out
    }
}

/// All that is done at times of its own, by control row.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) reports: BTreeMap<(Control, u32), Report>,
    pub(crate) histories: BTreeMap<u32, History>,
    pub(crate) user_histories: BTreeMap<u32, UserHistory>,
    pub(crate) station_reports: BTreeMap<u32, StationReport>,
    pub(crate) alarms: BTreeMap<u32, Alarm>,
    /// What events have told, which waits for nothing.
    pub(crate) events: BTreeMap<u32, Event>,
}

/// Which job.
#[derive(Clone, Copy, Debug)]
enum Which {
    Report(Control, u32),
    History(u32),
    UserHistory(u32),
    Alarm(u32),
    StationReport(u32),
}

impl Jobs {
    fn timers(&mut self) -> impl Iterator<Item = (Which, &mut Timer)> {
        let reports = self.reports.iter_mut();
        let reports =
            reports.map(|((control, row), job)| (Which::Report(*control, *row), &mut job.timer));
        let histories = self.histories.iter_mut();
        let histories = histories.map(|(row, job)| (Which::History(*row), &mut job.timer));
        let users = self.user_histories.iter_mut();
        let users = users.map(|(row, job)| (Which::UserHistory(*row), &mut job.timer));
        let alarms = self.alarms.iter_mut();
        let alarms = alarms.map(|(row, job)| (Which::Alarm(*row), &mut job.timer));
        let stations = self.station_reports.iter_mut();
        let stations = stations.map(|(row, job)| (Which::StationReport(*row), &mut job.timer));
        let reports = reports.chain(stations);
        reports.chain(histories).chain(users).chain(alarms)
    }
}

impl Probe {
    /// Finds out when something is due next, after jobs came, went or were run.
    pub(crate) fn schedule(&mut self) {
        let next = self.jobs.timers().map(|(_, timer)| timer.due()).min();
        let next = next.unwrap_or(Ticks::MAX).min(self.tables.clock.turn());
        self.due = Nanos(next.saturating_mul(TICK));
    }

    /// Does all that is due until `now`, in the order of its times.
    #[cold]
    pub(crate) fn run_due(&mut self, now: Nanos) {
        let end = now.0 / TICK;
        if end >= self.tables.clock.turn() {
            self.settle();
            self.tables.purge(end);
        }
        // Those that waited for the clock begin with it.
        for (_, timer) in self.jobs.timers() {
            if timer.began == 0 {
                timer.began = end;
            }
        }
        loop {
            let timers = self.jobs.timers();
            let timers = timers.map(|(which, timer)| (timer.due(), which));
            let all: Vec<(Ticks, Which)> = timers.filter(|(due, _)| *due <= end).collect();
            let Some(now) = all.iter().map(|(due, _)| *due).min() else {
                break;
            };
            self.tables.clock.advance(Nanos(now * TICK));
            self.settle();
            // Those of one time together: there may be thousands.
            for (_, which) in all.into_iter().filter(|(due, _)| *due == now) {
                match which {
                    Which::Report(control, row) => self.end_report(control, row, end),
                    Which::History(row) => self.end_bucket(row, end),
                    Which::UserHistory(row) => self.sample_user_history(row, end),
                    Which::StationReport(row) => self.end_station_report(row),
                    Which::Alarm(row) => self.sample_alarm(row, end),
                }
            }
        }
        self.tables.clock.advance(Nanos(end * TICK));
        self.schedule();
    }

    /// A timer that begins now.
    pub(crate) fn timer(&self, seconds: u32) -> Timer {
        Timer {
            began: self.tables.clock.started_ticks(),
            interval: u64::from(seconds) * SECOND,
        }
    }
}
