//! Where a device's packets come from, and the programs that share them.

use flowgauge_runtime::shared::Service;

use super::super::{State, open_live};
use super::Work;

impl Work {
    /// Takes a batch through the stacks, and to programs that share it.
    pub(super) fn read(&mut self) {
        let source = &mut *self.source;
        let step = match &mut self.service {
            Some(service) => self.runner.step(&mut service.tap(source)),
            None => self.runner.step(source),
        };
        let is_away = matches!(step, Ok(None)) && !self.stop.is_stopped();
        match step {
            Ok(Some(step)) => {
                let mut service = self.service.as_mut();
                let is_left = service.as_mut().is_some_and(|it| it.attend_to(source));
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
    }

    /// Whether it ends with those who share it.
    fn lingers(&self) -> bool {
        (self.sharing.as_ref()).is_some_and(|sharing| sharing.grace.is_some())
    }

    /// Lets programs share the interface.
    pub(super) fn share(&mut self) {
        let Some(sharing) = &self.sharing else {
            return;
        };
        match Service::new(sharing.memory, sharing.grace) {
            Ok(service) => self.service = Some(service),
            Err(error) => self.note(error.to_string()),
        }
    }

    /// Programs that share it get what is left, and why no more comes.
    pub(super) fn unshare(&mut self, otherwise: &str) {
        if let Some(service) = self.service.take() {
            let reason = self.errors.last().map_or(otherwise, String::as_str);
            service.finish(&mut *self.source, reason);
        }
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
