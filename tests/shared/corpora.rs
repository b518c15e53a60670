//! Where the third-party captures are that tests of all crates compare with. Each takes this file in as a
//! module.

use std::path::{Path, PathBuf};

#[path = "skipped.rs"]
mod skipped;

pub(crate) use skipped::skipped;

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
    let folder = folder.display();
    skipped(format_args!(
        "no corpora at {folder} (set FLOWGAUGE_CORPORA)"
    ));
    None
}
