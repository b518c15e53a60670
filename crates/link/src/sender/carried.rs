//! Frames that a carriage brings.

use std::sync::Arc;
use std::time::Duration;

use flowgauge_sys::notice::tell as notice;

use super::{BEAT, Inner};
use crate::carrier::{Carriage, Carrier};
use crate::error::Error;

/// What is in a carriage is looked at this often.
const CARRIAGE_LOOK: Duration = Duration::from_millis(5);

impl Inner {
    /// A carriage that nothing was given to.
    pub(super) fn board(&self, carrier: &dyn Carrier) -> Result<Box<dyn Carriage>, Error> {
        let carriage = carrier.connect(self.session, self.is_left)?;
        // It cannot say what came of an earlier one: who takes the items knows their numbers.
        self.connected(carrier.name(), None)?;
        Ok(carriage)
    }

    /// Gives a carriage what there is until it breaks; `None`: all is done.
    pub(super) fn ride(&self, carriage: &mut dyn Carriage) -> Option<Error> {
        let result = self.load(carriage);
        self.disconnected(result)
    }

    fn load(&self, carriage: &mut dyn Carriage) -> Result<(), Error> {
        let mut has_ended = false;
        loop {
            let mut state = self.state.lock();
            if state.is_stopped {
                return Ok(());
            }
            let next = carriage.has_room().then(|| state.spool.next()).flatten();
            let wait = match &next {
                Some(_) => Duration::ZERO,
                None if !carriage.is_empty() => CARRIAGE_LOOK,
                None if state.is_ending && has_ended => {
                    state.is_ended = true;
                    self.news.notify_all();
                    return Ok(());
                }
                None if state.is_ending => {
                    has_ended = true;
                    drop(state);
                    carriage.end()?;
                    continue;
                }
                None => {
                    self.work.wait_for(&mut state, BEAT);
                    drop(state);
                    // It may hear that it is not wanted.
                    carriage.arrived(Duration::ZERO)?;
                    continue;
                }
            };
            drop(state);
            if let Some(frame) = next {
                let end = frame.first + u64::from(frame.count);
                carriage.send(&frame.payload, end)?;
            }
            let arrived = carriage.arrived(wait)?;
            let trouble = carriage.trouble();
            let mut state = self.state.lock();
            state.spool.acknowledge(arrived.before);
            state.spool.refuse(arrived.refused);
            let was_connected = core::mem::replace(&mut state.is_connected, trouble.is_none());
            match trouble {
                Some(trouble) => {
                    if was_connected {
                        notice(format_args!("{trouble}; trying again"));
                    }
                    state.trouble = Some(Arc::new(trouble));
                }
                None if !was_connected => {
                    notice(format_args!("{}: it is back", self.options.address));
                }
                None => {}
            }
            self.news.notify_all();
        }
    }
}
