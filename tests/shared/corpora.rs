//! Where the third-party captures are that tests of all crates compare with. Each takes this file in as a
//! module.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folder of third-party captures: `FLOWGAUGE_CORPORA`, or `../shared/corpora` beside the
/// repository. Where it is absent the test that asks is reported as skipped, in the form the test runner
/// counts.
pub(crate) fn corpora() -> Option<PathBuf> {
    // Crates are two levels deep.
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let folder = std::env::var_os("FLOWGAUGE_CORPORA").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder.canonicalize().unwrap_or(folder));
    }
    let thread = std::thread::current();
    let (test, folder) = (thread.name().unwrap_or("a test"), folder.display());
    // Past the test harness, which keeps what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {test} no corpora at {folder} (set FLOWGAUGE_CORPORA)"
    );
    None
}
