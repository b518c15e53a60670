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
