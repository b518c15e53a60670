//! The MIB modules, which are not in this repository.

use std::path::{Path, PathBuf};

use crate::skipped::skipped;

/// The folder of the modules: `FLOWGAUGE_MIBS`, or `../shared/reference/mibs` beside the repository.
pub(crate) fn modules() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/reference/mibs");
    let folder = std::env::var_os("FLOWGAUGE_MIBS").map_or(beside, PathBuf::from);
    if folder.join("RMON2-MIB.txt").is_file() {
        return Some(folder);
    }
    let folder = folder.display();
    skipped(format_args!(
        "no RMON2-MIB.txt in {folder} (set FLOWGAUGE_MIBS)"
    ));
    None
}
