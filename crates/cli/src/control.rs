//! Signals: how a user stops a run or asks how it goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flowgauge_capture::live::StopHandle;
use flowgauge_sys::ending;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::failure::Failure;
use crate::say::say;

/// What signals have asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    stop: Arc<AtomicBool>,
    statistics: Arc<AtomicBool>,
    trigger: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Whether the run is to end when the terminal that it was started from is closed.
    ends_with_terminal: bool,
}

/// What SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// It ends the run, but under nohup.
    Stops,
    /// Nothing: logs are begun anew when they were moved.
    IsIgnored,
    /// The stacks are read again. It ends the run where the terminal was closed.
    Reloads,
}

impl Control {
    /// Handles SIGINT and SIGTERM (stop, drain and print; a second one quits at once), SIGHUP (stop, too,
    /// but under nohup) and SIGUSR1 (print statistics).
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn install() -> Result<Control, Failure> {
        Control::install_for(Hangup::Stops)
    }

    /// The same, with what SIGHUP does.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn install_for(hangup: Hangup) -> Result<Control, Failure> {
        let control = Control {
            ends_with_terminal: hangup == Hangup::Reloads && !is_ignored(SIGHUP) && has_terminal(),
            ..Control::default()
        };
        control
            .register(hangup)
            .map_err(|error| Failure::run(format!("cannot handle signals: {error}"), None))?;
        Ok(control)
    }

    fn register(&self, hangup: Hangup) -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // Compiling a filter of thousands of terms takes its time, and nothing is captured yet.
            let compiles = ending::cannot_stop();
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, compiles)?;
            // In this order: the first signal finds `stop` unset and sets it, the second quits.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&self.stop),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&self.stop))?;
        }
        signal_hook::flag::register(SIGUSR1, Arc::clone(&self.statistics))?;
        if hangup == Hangup::Reloads || !is_ignored(SIGHUP) {
            let flag = match hangup {
                Hangup::Stops => Arc::clone(&self.stop),
                Hangup::IsIgnored => Arc::default(),
                Hangup::Reloads => Arc::clone(&self.reload),
            };
            signal_hook::flag::register(SIGHUP, flag)?;
        }
        // Who waits for a pipe, or for room in a spool, looks, too.
        ending::ends_when(Arc::clone(&self.stop));
        Ok(())
    }

    /// Says what takes long before packets come, once: somebody waits, and may not know that a signal ends it.
    pub(crate) fn say_what_takes_long(&self, quiet: bool) {
        const LONG: Duration = Duration::from_secs(2);

        if quiet {
            return;
        }
        // Where there is no room for another thread, nothing is said.
        let _ = thread::Builder::new().spawn(|| {
            if let Some(what) = ending::what_takes_longer_than(LONG) {
                say!("still {what}: this may take minutes (Ctrl-C ends it)");
            }
        });
    }

    /// Packets come from now on: no signal ends the process before what came is written, but a second one.
    pub(crate) fn begin(&self) {
        ending::work_begins();
    }

    /// Handles SIGUSR2, too.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub(crate) fn listen_for_trigger(&self) -> Result<(), Failure> {
        signal_hook::flag::register(SIGUSR2, Arc::clone(&self.trigger))
            .map(|_| ())
            .map_err(|error| Failure::run(format!("cannot handle signals: {error}"), None))
    }

    /// Whether SIGUSR2 came since the last call.
    #[inline]
    pub(crate) fn trigger_wanted(&self) -> bool {
        self.trigger.load(Ordering::Relaxed) && self.trigger.swap(false, Ordering::Relaxed)
    }

    /// Whether the stacks are to be read again: SIGHUP came since the last call, from elsewhere than a terminal that
    /// was closed.
    #[inline]
    pub(crate) fn reload_wanted(&self) -> bool {
        if !self.reload.load(Ordering::Relaxed) || !self.reload.swap(false, Ordering::Relaxed) {
            return false;
        }
        if self.ends_with_terminal && !has_terminal() {
            self.stop();
        }
        !self.stopped()
    }

    /// Set when the run is to end.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether the run is to end.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops live sources when the run is to end: they deliver what is in their rings first.
    pub(crate) fn stop_handle(&self) -> StopHandle {
        StopHandle::from(Arc::clone(&self.stop))
    }

    /// Ends the run, as SIGINT would.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether statistics were asked for since the last call.
    #[inline]
    pub(crate) fn statistics_wanted(&self) -> bool {
        self.statistics.load(Ordering::Relaxed) && self.statistics.swap(false, Ordering::Relaxed)
    }
}

/// Whether this process has a terminal, which was not closed.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Whether whoever started this process wants a signal to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}
