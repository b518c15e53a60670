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

static UNDERWAY: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Set while something goes on that nothing can stop but the end of the process, and that loses nothing: who handles
/// signals then lets the first one end it.
pub fn cannot_stop() -> Arc<AtomicBool> {
    Arc::clone(UNDERWAY.get_or_init(Arc::default))
}

/// Does what nothing can stop.
pub(crate) fn without_stop<T>(work: impl FnOnce() -> T) -> T {
    let flag = cannot_stop();
    flag.store(true, Ordering::Relaxed);
    let done = work();
    flag.store(false, Ordering::Relaxed);
    done
}
