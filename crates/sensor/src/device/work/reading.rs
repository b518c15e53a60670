//! Where a device's packets come from.

use flowgauge_sensor_client::protocol::OffloadStatus;

use super::super::{State, open_live};
use super::{Work, programs};

impl Work {
    /// Takes a batch through the stacks.
    pub(super) fn read(&mut self) {
        let source = &mut *self.source;
        let step = self.runner.step(source);
        let is_away = matches!(step, Ok(None)) && !self.stop.is_stopped();
        match step {
            Ok(Some(step)) => {
                let programs = self.programs.as_ref();
                let is_left = programs.is_some_and(|it| it.attend_to(source, step.packets == 0));
                if is_left && self.served.is_empty() {
                    self.end();
                }
                self.tell_now_and_then(step.packets > 0);
            }
            Ok(None) if is_away && self.interface.is_some() && !self.lingers() => {
                let why = "the interface has gone away";
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
        match open_live(interface, &mut self.backends, stop, waker) {
            Ok(source) => {
                self.earlier.merge(&self.source.ledger());
                self.source = source;
                self.state = State::Reading;
                // What was wrong is in the log.
                self.errors.clear();
                self.share();
                self.tell_news("the interface is back");
                if !did_without {
                    self.tell_of_backends();
                }
            }
            Err(error) => self.note(&error),
        }
    }

    /// Tells who runs the sensor if nothing is kept away that could be.
    pub(super) fn tell_of_backends(&self) {
        if let Some(error) = self.backends.lacks() {
            let hint = error.hint();
            self.tell_news(&format!("nothing is kept away: {error}; hint: {hint}"));
        }
    }

    /// What is kept away, or why nothing is.
    pub(super) fn kept_away(&self) -> Option<OffloadStatus> {
        let lacks = self.backends.lacks().map(|error| OffloadStatus {
            lacks: Some(error.to_string()),
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
