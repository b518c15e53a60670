//! Whether the process is to end: who waits, waits no longer than need be.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

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
    START.has_begun.store(true, Ordering::Relaxed);
}

/// Does what nothing can stop.
pub(crate) fn without_stop<T>(work: impl FnOnce() -> T) -> T {
    START.without_stop(work)
}

/// What is done before work begins.
struct Start {
    cannot_stop: OnceLock<Arc<AtomicBool>>,
    has_begun: AtomicBool,
}

impl Start {
    const fn new() -> Start {
        Start {
            cannot_stop: OnceLock::new(),
            has_begun: AtomicBool::new(false),
        }
    }

    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(self.cannot_stop.get_or_init(Arc::default))
    }

    fn without_stop<T>(&self, work: impl FnOnce() -> T) -> T {
        let flag = self.flag();
        flag.store(!self.has_begun.load(Ordering::Relaxed), Ordering::Relaxed);
        let done = work();
        flag.store(false, Ordering::Relaxed);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_before_work_begins_a_signal_may_end_the_process() {
        let start = Start::new();
        let is_set = || start.flag().load(Ordering::Relaxed);
        assert!(!is_set());
        assert!(start.without_stop(is_set));
        assert!(!is_set());
        start.has_begun.store(true, Ordering::Relaxed);
        assert!(!start.without_stop(is_set));
    }
}
