//! Where a device's packets come from.

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
        match open_live(interface, &self.stop, self.waker.clone()) {
            Ok(source) => {
                self.earlier.merge(&self.source.ledger());
                self.source = source;
                self.state = State::Reading;
                // What was wrong is in the log.
                self.errors.clear();
                self.share();
                self.tell_news("the interface is back");
            }
            Err(error) => self.note(&error),
        }
    }
}
