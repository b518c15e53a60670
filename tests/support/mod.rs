//! What the tests over captures share: where the corpora are, how the program is run, how results
//! are compared and counted.

// Each test binary compiles this module and uses part of it.
#![allow(dead_code)]

pub(crate) mod cases;
pub(crate) mod compare;
pub(crate) mod corpus;
pub(crate) mod delivered;
pub(crate) mod flowgauge;
pub(crate) mod flows;
pub(crate) mod records;
pub(crate) mod shell;
pub(crate) mod stacks;
pub(crate) mod zeek_log;

#[path = "../shared/corpora.rs"]
mod corpora;

#[allow(unused_imports, reason = "some tests compare with no captures")]
pub(crate) use corpora::corpora;

use std::io::Write;
use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reports a test as skipped in the form the test runner counts.
pub(crate) fn skip(test: &str, reason: &str) {
    say(&format!("SKIPPED {test} {reason}\n"));
}

/// Writes to the process's standard error, where the test harness does not swallow it.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A folder for one test's files, below the build output.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}

/// Every file below `folder` for which `wanted` holds, sorted.
pub(crate) fn files_below(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// One of so many captures below `folder`, or of the number that `FLOWGAUGE_STRIDE` says.
pub(crate) fn captures_below(folder: &Path, stride: usize) -> Vec<PathBuf> {
    let given = std::env::var("FLOWGAUGE_STRIDE").ok();
    let stride = given.map_or(stride, |text| text.parse().expect("a number"));
    let captures = all_captures_below(folder).into_iter();
    captures.step_by(stride).collect()
}

/// All of them.
pub(crate) fn all_captures_below(folder: &Path) -> Vec<PathBuf> {
    let is_capture = |path: &Path| {
        path.extension()
            .is_some_and(|e| e == "pcap" || e == "pcapng" || e == "cap" || e == "trace")
    };
    files_below(folder, &is_capture)
}

/// Calls `work` for every item on as many threads as there are cores, at most `limit`; results in
/// the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    limit: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..cores.min(limit).max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let result = work(item);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
