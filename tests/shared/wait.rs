//! Waiting until something is so. Tests of all crates take this file in as a module.

use std::time::{Duration, Instant};

/// What is waited for takes milliseconds; this is only there to end a hang.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Asks again and again.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIME_LIMIT, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
