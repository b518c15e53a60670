//! A capture between `scap_create` and `scap_close`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flowgauge_runtime::shared::Application;
use flowgauge_runtime::{Control, Outcome};
use flowgauge_stream::engine::{ApplicationConfig, ApplicationId};
use flowgauge_wire::LinkType;
use parking_lot::Mutex;

use crate::abi::RawStats;
use crate::capture;
use crate::device::Device;
use crate::failure::{Code, Failure, LastFailure};
use crate::registry::Token;
use crate::settings::Settings;
use crate::share;

/// What stands behind a `scap_t *`.
pub(crate) struct Handle {
    pub(crate) token: Token,
    /// What a panic leaves behind is whole: nothing is changed in steps under these locks.
    phase: Mutex<Phase>,
    last: Mutex<LastFailure>,
    pub(crate) control: Control,
    memory_bytes: AtomicU64,
    wants_data: AtomicBool,
    /// Link types of the packets.
    pub(crate) links: Vec<LinkType>,
    /// What everything came to.
    total: Mutex<Option<RawStats>>,
}

/// What is captured, and how.
pub(crate) struct Setup {
    pub(crate) device: Device,
    pub(crate) settings: Settings,
}

enum Phase {
    Configured(Box<Setup>),
    Running(Box<Running>),
    Over,
}

/// A capture that runs.
#[derive(Debug)]
struct Running {
    /// What holds for streams that begin now.
    settings: Settings,
    /// Whether it is shared with other processes, or about to be: then nothing can be changed that could not be there.
    is_shared: bool,
}

impl Handle {
    pub(crate) fn new(token: Token, stop: Arc<AtomicBool>, setup: Setup) -> Handle {
        Handle {
            token,
            control: Control::with_flag(stop),
            memory_bytes: AtomicU64::new(setup.settings.wanted.memory_bytes),
            wants_data: AtomicBool::new(false),
            links: setup.device.links(),
            total: Mutex::default(),
            phase: Mutex::new(Phase::Configured(Box::new(setup))),
            last: Mutex::default(),
        }
    }

    /// Changes what was set, before the capture.
    ///
    /// # Errors
    /// When it has started already, or `change` refuses.
    pub(crate) fn configure(
        &self,
        change: impl FnOnce(&mut Setup) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match &mut *self.phase.lock() {
            Phase::Configured(setup) => change(setup),
            Phase::Running(_) => Err(started("the capture runs already")),
            Phase::Over => Err(started("the capture is over")),
        }
    }

    /// Changes what is wanted of streams, or what decides about memory, at any time: while the capture
    /// runs, the former of streams that begin from then on.
    ///
    /// # Errors
    /// When the capture is over, `change` refuses, or others who share the capture would notice.
    pub(crate) fn adjust(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut phase = self.phase.lock();
        let running = match &mut *phase {
            Phase::Configured(setup) => return change(&mut setup.settings),
            Phase::Running(running) => running,
            Phase::Over => return Err(started("the capture is over")),
        };
        let mut settings = running.settings.clone();
        change(&mut settings)?;
        let wanted = capture::application(&settings)?;
        if running.is_shared {
            let memory = self.memory_bytes().max(Application::LEAST_MEMORY);
            share::admits_change(&running.settings, &settings, memory)?;
        }
        let is_asked = if settings.has_engine_of(&running.settings) {
            let change = move |now: &mut ApplicationConfig| {
                // That of the packets: it cannot be changed, and a shared capture has it here.
                let filter = now.filter.take();
                now.clone_from(&wanted);
                now.filter = filter;
            };
            self.control.change(ApplicationId(0), change)
        } else {
            capture::change_engine(&self.control, &running.settings, &settings)
        };
        if !is_asked {
            return Err(Failure::new(
                Code::Resource,
                "too many changes wait",
                "change less often, or see why the capture does not go on",
            ));
        }
        running.settings = settings;
        Ok(())
    }

    /// Hands out the setup of a capture that starts now.
    ///
    /// # Errors
    /// When it started before.
    pub(crate) fn start(&self) -> Result<Setup, Failure> {
        let mut phase = self.phase.lock();
        match core::mem::replace(&mut *phase, Phase::Over) {
            Phase::Configured(setup) => {
                let settings = &setup.settings;
                *phase = Phase::Running(Box::new(Running {
                    settings: settings.clone(),
                    is_shared: matches!(setup.device, Device::Interface { .. })
                        && share::is_wanted(settings),
                }));
                self.memory_bytes
                    .store(settings.wanted.memory_bytes, Ordering::Relaxed);
                self.wants_data
                    .store(settings.callbacks.data.is_some(), Ordering::Relaxed);
                self.token.set_running(true);
                Ok(*setup)
            }
            running @ Phase::Running(_) => {
                *phase = running;
                Err(Failure::new(
                    Code::State,
                    "the capture runs already",
                    "one scap_start_capture at a time; a callback cannot start its own capture",
                ))
            }
            Phase::Over => Err(Failure::new(
                Code::State,
                "the capture is over",
                "a handle captures once: create another one",
            )),
        }
    }

    /// The capture that runs is shared, with so much memory for this process; or it is not.
    pub(crate) fn set_shared(&self, memory_bytes: Option<u64>) {
        let mut phase = self.phase.lock();
        if let Phase::Running(running) = &mut *phase {
            running.is_shared = memory_bytes.is_some();
        }
        if let Some(bytes) = memory_bytes {
            self.memory_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// The capture has ended.
    pub(crate) fn end(&self) {
        self.token.set_running(false);
        *self.phase.lock() = Phase::Over;
    }

    /// Gives the handle up.
    ///
    /// # Errors
    /// While the capture runs.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Running(_)) {
            return Err(Failure::new(
                Code::State,
                "the capture runs",
                "call scap_stop_capture, and close after scap_start_capture has returned",
            ));
        }
        *phase = Phase::Over;
        Ok(())
    }

    pub(crate) fn note(&self, failure: Failure) {
        self.last.lock().set(failure);
    }

    pub(crate) fn remark(&self, what: String) {
        self.last.lock().remark(what);
    }

    pub(crate) fn last<T>(&self, read: impl FnOnce(&LastFailure) -> T) -> T {
        read(&self.last.lock())
    }

    /// The capture is over, and this is what it came to.
    pub(crate) fn set_outcome(&self, outcome: &Outcome) {
        *self.total.lock() = Some(capture::final_statistics(outcome));
    }

    /// What was asked for, or what a shared capture grants now.
    fn memory_bytes(&self) -> u64 {
        let granted = self.control.granted_memory();
        granted.unwrap_or_else(|| self.memory_bytes.load(Ordering::Relaxed))
    }

    /// Counters so far.
    pub(crate) fn statistics(&self) -> RawStats {
        let total = *self.total.lock();
        let mut statistics = total.unwrap_or_else(|| capture::statistics(&self.control.progress()));
        statistics.memory_size = self.memory_bytes();
        if !self.wants_data.load(Ordering::Relaxed) {
            // The engine's chunks were no events.
            (statistics.chunks, statistics.chunk_bytes) = (0, 0);
        }
        statistics
    }
}

fn started(what: &str) -> Failure {
    Failure::new(
        Code::State,
        what,
        "set it between scap_create and scap_start_capture; cutoffs, priorities and parameters of streams can be \
         changed later",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_stream::engine::Mode;

    fn handle() -> Handle {
        let setup = Setup {
            device: Device::Interface {
                name: "lo".to_owned(),
                link: LinkType::ETHERNET,
            },
            settings: Settings::new(Mode::Wait, false),
        };
        Handle::new(Token(0), Arc::default(), setup)
    }

    fn add_class(handle: &Handle) -> Result<(), Failure> {
        handle.adjust(|settings| {
            settings.wanted.priority_classes.push(("udp".to_owned(), 3));
            Ok(())
        })
    }

    fn set_chunk(handle: &Handle, bytes: u32) -> Result<(), Failure> {
        handle.adjust(|settings| {
            settings.wanted.chunk_bytes = bytes;
            Ok(())
        })
    }

    /// What a shared capture could not do is refused as soon as it is about to be one, and not accepted and lost.
    #[test]
    fn what_cannot_be_shared_is_refused_while_the_capture_is_joined() {
        let handle = handle();
        add_class(&handle).unwrap();
        let setup = handle.start().unwrap();
        assert_eq!(setup.settings.wanted.priority_classes.len(), 1);
        for _ in 1..Application::MOST_CLASSES {
            add_class(&handle).unwrap();
        }
        assert_eq!(add_class(&handle).unwrap_err().code, Code::Argument);
        let add_policy = || {
            handle.adjust(|settings| {
                settings.policy = crate::settings::policy(1)?;
                Ok(())
            })
        };
        assert_eq!(add_policy().unwrap_err().code, Code::State);
        set_chunk(&handle, 1000).unwrap();
        // It captures for itself after all.
        handle.set_shared(None);
        add_class(&handle).unwrap();
        add_policy().unwrap();
        set_chunk(&handle, 2 << 20).unwrap();
    }

    /// A chunk size that the service would refuse is refused here: it would be in all that is asked for later.
    #[test]
    fn sizes_are_held_against_the_memory_that_was_granted() {
        let handle = handle();
        handle.start().unwrap();
        handle.set_shared(Some(1 << 20));
        assert_eq!(handle.statistics().memory_size, 1 << 20);
        let refused = set_chunk(&handle, 1 << 20).unwrap_err();
        assert_eq!(refused.code, Code::Argument);
        set_chunk(&handle, 1 << 18).unwrap();
    }
}
