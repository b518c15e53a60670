//! How a test says that it is skipped. Tests of all crates take this file in as a module.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Write as _;
use std::sync::Mutex;

/// Says that the running test is skipped, or a part of it, in the form the test runner counts: past the test
/// harness, which keeps what a passing test prints, as one line, whatever is in the reason, and once.
pub(crate) fn skipped(reason: impl Display) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let reason = reason.to_string().trim().replace('\n', " ");
    let line = format!("SKIPPED {test} {reason}\n");
    if let Ok(mut said) = SAID.lock()
        && said.insert(line.clone())
    {
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}
