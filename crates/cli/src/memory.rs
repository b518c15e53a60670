//! Bounds of `--memory`. How it is divided says [`flowgauge_stream::Shares`].

pub(crate) use flowgauge_stream::Needs;
use flowgauge_stream::Shares;

use crate::failure::Failure;

/// The least `--memory` for each worker: room for hundreds of flows and whole datagrams.
const LEAST_MEMORY: u64 = 1 << 20;

/// Refuses a `--memory` that is too little for so many workers.
///
/// # Errors
/// When a worker would have less than [`LEAST_MEMORY`].
pub(crate) fn check(total: Option<u64>, workers: u64) -> Result<(), Failure> {
    let least = LEAST_MEMORY.saturating_mul(workers);
    if total.is_none_or(|total| total >= least) {
        return Ok(());
    }
    if workers <= 1 {
        let hint = "raise --memory, or omit it";
        return Err(Failure::usage(
            "--memory is too small; the minimum is 1M",
            hint,
        ));
    }
    Err(Failure::usage(
        format!("--memory is divided by {workers} workers, which leaves too little for each"),
        format!("use --memory {}M or more, or fewer --workers", least >> 20),
    ))
}

/// Bytes for the results of all workers together; `None` where no bound was given.
pub(crate) fn of_results(total: Option<u64>, needs: Needs) -> Option<u64> {
    total.map(|total| Shares::of_results(total, needs))
}
