//! Where a device's packets come from.

use std::time::Duration;

use flowgauge_sensor_client::protocol::OffloadStatus;

use super::super::{State, open_live};
use super::{Work, programs};
use crate::rings::Rings;

/// What a sensor needs that has given up root, to open an interface that is back.
const KEEPS: &str = "root privileges were dropped when the sensor started; hint: let it keep CAP_NET_RAW \
(AmbientCapabilities in its unit), or restart it";

impl Work {
    /// Takes a batch through the stacks, or looks what workers do that read themselves.
    pub(super) fn read(&mut self) {
        let step = match self.rings.is_some() {
            true => Ok(self.look()),
            false => {
                let step = self.runner.step(&mut *self.source);
                step.map(|step| step.map(|step| step.packets))
            }
        };
        let is_away = matches!(step, Ok(None)) && !self.stop.is_stopped();
        match step {
            Ok(Some(packets)) => {
                let programs = self.programs.as_ref();
                let is_left =
                    programs.is_some_and(|it| it.attend_to(&mut *self.source, packets == 0));
                if is_left && self.served.is_empty() {
                    self.end();
                }
                self.tell_now_and_then(packets > 0);
            }
            Ok(None) if is_away && self.interface.is_some() && !self.lingers() => {
                let why = "the interface disappeared";
                self.unshare(why);
                self.state = State::Away;
                self.tell_news(why);
            }
            Ok(None) => self.end(),
            Err(error) => self.note(&error),
        }
        self.take_failures();
        if let Some(failed) = self.failures.get(programs::NAME) {
            let why = failed.what.clone();
            self.unshare(&why);
        }
    }

    /// Packets that workers have read since it was looked last; `None`: nothing comes any more, or the interface is away.
    fn look(&mut self) -> Option<u64> {
        // Which starts them.
        self.runner.wait(Duration::ZERO);
        for error in self.runner.sources().errors {
            self.note(&error);
        }
        let seen = self.source.ledger().received();
        let new = seen.saturating_sub(core::mem::replace(&mut self.seen, seen));
        let is_away = self.rings.as_ref().is_some_and(Rings::are_away);
        (self.runner.is_reading() && !is_away).then_some(new)
    }

    /// Whether it ends with those who share it.
    fn lingers(&self) -> bool {
        (self.sharing.as_ref()).is_some_and(|sharing| sharing.grace.is_some())
    }

    /// Opens an interface that went away, if it is there again.
    pub(super) fn take_again(&mut self) {
        let Some(interface) = &self.interface else {
            return;
        };
        let (stop, waker) = (&self.stop, self.waker.clone());
        let did_without = self.backends.lacks().is_some();
        let workers = self.rings.as_ref().map_or(1, Rings::count);
        match open_live(interface, workers, &mut self.backends, stop, waker) {
            Ok(mut sources) => {
                if let Some(rings) = &self.rings {
                    rings.go_on(sources);
                } else if let Some(source) = sources.pop() {
                    self.earlier.merge(&self.source.ledger());
                    self.source = source;
                }
                self.state = State::Reading;
                // What was wrong is in the log.
                self.errors.clear();
                self.share();
                self.tell_news("the interface is back");
                if !did_without {
                    self.tell_of_backends();
                }
            }
            Err(error) if error.is_about_rights() => self.note(format!("{error}; {KEEPS}")),
            Err(error) => self.note(&error),
        }
    }

    /// Tells who runs the sensor if nothing is kept away that could be, or workers share packets by less than they could.
    pub(super) fn tell_of_backends(&self) {
        if let Some(error) = self.backends.lacks() {
            let hint = error.hint();
            self.tell_news(&format!("nothing is kept away: {error}; hint: {hint}"));
        }
        if let Some(error) = self.backends.spreads_outside() {
            self.tell_news(&format!(
                "packets in tunnels are distributed to workers by the tunnels' own addresses: {error}"
            ));
        }
    }

    /// What is kept away, or why nothing is.
    pub(super) fn kept_away(&self) -> Option<OffloadStatus> {
        let lacks = self.backends.lacks().map(ToString::to_string);
        let lacks = lacks.or_else(|| self.backends.failure().map(str::to_owned));
        let lacks = lacks.map(|why| OffloadStatus {
            lacks: Some(why),
            ..OffloadStatus::default()
        });
        let statistics = self.backends.statistics();
        lacks.or(statistics.map(|it| OffloadStatus {
            packets: it.withheld,
            bytes: it.withheld_bytes,
            cut: it.cut,
            flows: it.flows,
            not_taken: it.refused,
            lacks: None,
        }))
    }
}
