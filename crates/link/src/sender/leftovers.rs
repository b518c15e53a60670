//! What earlier processes left in the spool's folder, sent as the sessions that they were.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Inner, SenderOptions, spawn};
use crate::disk::Leftover;
use crate::error::Error;
use crate::spool::{SenderCounts, Spool};
use flowgauge_sys::notice::tell as notice;
use parking_lot::{Condvar, Mutex};

/// How often it is looked whether the session of this process has a connection: it comes first, so that a
/// receiver that waits for one sender does not take the end of an earlier session for the end.
const LOOK: Duration = Duration::from_millis(20);

/// A thread that sends one session after the other.
pub(super) struct Leftovers {
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The session at work.
    current: Option<Arc<Inner>>,
    is_stopped: bool,
    is_over: bool,
}

impl Leftovers {
    /// Begins once `own`, the session of this process, has a connection.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start(own: Arc<Inner>, left: Vec<Leftover>) -> Result<Leftovers, Error> {
        let progress = Arc::new(Progress::default());
        let shared = progress.clone();
        let options = own.options.clone();
        let thread = spawn("link-leftovers", &options, move || {
            run(&own, left, &shared);
            shared.state.lock().is_over = true;
            shared.changed.notify_all();
        })?;
        Ok(Leftovers {
            progress,
            thread: Some(thread),
        })
    }

    /// Waits until all is sent, or until a time.
    pub(super) fn wait(&mut self, deadline: Instant) {
        let mut state = self.progress.state.lock();
        let changed = &self.progress.changed;
        changed.wait_while_until(&mut state, |state| !state.is_over, deadline);
    }

    pub(super) fn stop(&mut self) {
        let mut state = self.progress.state.lock();
        state.is_stopped = true;
        if let Some(current) = &state.current {
            current.stop();
        }
        drop(state);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(own: &Inner, left: Vec<Leftover>, progress: &Progress) {
    loop {
        let mut state = own.state.lock();
        if state.is_stopped {
            return;
        }
        if state.was_connected {
            break;
        }
        own.news.wait_for(&mut state, LOOK);
    }
    for leftover in left {
        let options = SenderOptions {
            spool_file: None,
            ..own.options.clone()
        };
        let session = leftover.session;
        let announcements = leftover.announcements.clone();
        let items: u64 = leftover
            .frames
            .iter()
            .map(|frame| u64::from(frame.count))
            .sum();
        let folder = leftover.disk.folder().to_owned();
        let spool = Spool::restored(leftover);
        let before = spool.counts();
        let inner = Arc::new(Inner {
            is_left: true,
            ..Inner::new(own.by.clone(), &options, session, spool)
        });
        {
            let mut state = inner.state.lock();
            state.announcements = announcements.into_iter().map(Arc::new).collect();
            state.is_ending = true;
        }
        {
            let mut state = progress.state.lock();
            if state.is_stopped {
                return;
            }
            state.current = Some(inner.clone());
        }
        let address = &options.address;
        notice(format_args!(
            "{address}: sending {items} items of an earlier run ({})",
            folder.display()
        ));
        inner.clone().run();
        let mut state = inner.state.lock();
        state.put_away();
        let SenderCounts {
            delivered, lost, ..
        } = state.spool.counts();
        if state.is_ended {
            let delivered = delivered - before.delivered;
            notice(format_args!(
                "{address}: of an earlier run {delivered} items were delivered, {lost} are lost"
            ));
        }
    }
}
