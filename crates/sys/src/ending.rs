//! Whether the process is to end: who waits, waits no longer than need be. And what takes long before it has begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

static ENDING: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The process is to end once this is set. What is said first counts.
pub fn ends_when(flag: Arc<AtomicBool>) {
    // A second one is of the same process.
    let _ = ENDING.set(flag);
}

/// Whether it is.
pub fn is_ending() -> bool {
    ENDING
        .get()
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

static START: Start = Start::new();

/// Set while something goes on that nothing can stop but the end of the process, before there is anything to lose: who
/// handles signals then lets the first one end it.
pub fn cannot_stop() -> Arc<AtomicBool> {
    START.flag()
}

/// From now on the end of the process would lose something.
pub fn work_begins() {
    START.work_begins();
}

/// Does what nothing can stop, and may take long: `what` is told to who [waits](what_takes_longer_than) for that.
pub fn without_stop<T>(what: impl FnOnce() -> String, work: impl FnOnce() -> T) -> T {
    START.without_stop(what, work)
}

/// Waits until something has gone on for so long, and says what; `None` once work has begun, before which this is not
/// answered.
pub fn what_takes_longer_than(limit: Duration) -> Option<String> {
    START.what_takes_longer_than(limit)
}

/// What is done before work begins.
struct Start {
    cannot_stop: OnceLock<Arc<AtomicBool>>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    has_begun: bool,
    /// What goes on, how often it was begun within itself, and since when.
    under_way: Option<(String, u32, Instant)>,
}

impl Start {
    const fn new() -> Start {
        Start {
            cannot_stop: OnceLock::new(),
            state: Mutex::new(State {
                has_begun: false,
                under_way: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(self.cannot_stop.get_or_init(Arc::default))
    }

    fn work_begins(&self) {
        self.state.lock().has_begun = true;
        self.changed.notify_all();
    }

    fn without_stop<T>(&self, what: impl FnOnce() -> String, work: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock();
        if state.has_begun {
            drop(state);
            return work();
        }
        match &mut state.under_way {
            Some((_, within, _)) => *within += 1,
            none => *none = Some((what(), 0, Instant::now())),
        }
        self.flag().store(true, Ordering::Relaxed);
        drop(state);
        self.changed.notify_all();
        let done = work();
        let mut state = self.state.lock();
        match &mut state.under_way {
            Some((_, within, _)) if *within > 0 => *within -= 1,
            under_way => {
                *under_way = None;
                self.flag().store(false, Ordering::Relaxed);
            }
        }
        drop(state);
        self.changed.notify_all();
        done
    }

    fn what_takes_longer_than(&self, limit: Duration) -> Option<String> {
        let mut state = self.state.lock();
        while !state.has_begun {
            let left = match &state.under_way {
                None => None,
                Some((what, _, since)) => match limit.checked_sub(since.elapsed()) {
                    None | Some(Duration::ZERO) => return Some(what.clone()),
                    left => left,
                },
            };
            match left {
                None => self.changed.wait(&mut state),
                Some(left) => _ = self.changed.wait_for(&mut state, left),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn work() -> String {
        "work".to_owned()
    }

    #[test]
    fn only_before_work_begins_a_signal_may_end_the_process() {
        let start = Start::new();
        let is_set = || start.flag().load(Ordering::Relaxed);
        assert!(!is_set());
        assert!(start.without_stop(work, is_set));
        assert!(!is_set());
        // What is done within it does not end it.
        start.without_stop(work, || {
            assert!(start.without_stop(work, is_set));
            assert!(is_set());
        });
        assert!(!is_set());
        start.work_begins();
        assert!(!start.without_stop(work, is_set));
    }

    #[test]
    fn what_takes_long_is_told_until_work_begins() {
        let start = Start::new();
        thread::scope(|scope| {
            let (told, wait) = mpsc::channel();
            let start = &start;
            scope.spawn(move || {
                let limit = Duration::from_millis(1);
                told.send(start.what_takes_longer_than(limit)).unwrap();
                told.send(start.what_takes_longer_than(Duration::MAX))
                    .unwrap();
            });
            // It goes on until it was told.
            let what = start.without_stop(work, || wait.recv().unwrap());
            assert_eq!(what.as_deref(), Some("work"));
            start.without_stop(work, || {});
            start.work_begins();
            assert_eq!(wait.recv().unwrap(), None);
        });
        assert_eq!(start.what_takes_longer_than(Duration::ZERO), None);
    }
}
