//! What `--memory` is divided into.
//!
//! One number bounds everything that grows with the input: flows, segments that wait for earlier
//! ones, fragments, and what a command itself keeps. What is not counted has a size of its own
//! whatever is read: read buffers, kernel rings (`-B`), writers, lists of senders with wrong checksums.

use flowgauge_flow::FlowConfig;
use flowgauge_stream::ShardConfig;

use crate::failure::Failure;

/// The least `--memory` for each worker: room for hundreds of flows and whole datagrams.
pub(crate) const LEAST_MEMORY: u64 = 1 << 20;

/// Refuses a `--memory` that is too little for so many workers.
///
/// # Errors
/// When a worker would have less than [`LEAST_MEMORY`].
pub(crate) fn check(total: Option<u64>, workers: u64) -> Result<(), Failure> {
    let least = LEAST_MEMORY.saturating_mul(workers);
    if total.is_none_or(|total| total >= least) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("--memory is divided by {workers} workers, and too little for so many"),
        format!(
            "give --memory {}M at least, or fewer --workers",
            least >> 20
        ),
    ))
}

/// What a command needs memory for, beside flows and fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Streams are reassembled.
    pub(crate) streams: bool,
    /// Bytes that the command keeps for each flow while it lasts.
    pub(crate) per_flow: u64,
    /// The command keeps results that grow with the input: groups, names, collected bytes.
    pub(crate) results: bool,
}

/// What each worker may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Flows, with all that is kept for each of them.
    pub(crate) flows: u32,
    /// Bytes for segments that wait.
    pub(crate) segments: u64,
    /// Bytes for fragments.
    pub(crate) fragments: u64,
}

impl Shares {
    /// An eighth for fragments; three eighths for segments where streams are reassembled; a quarter
    /// for the command's results where it has any; flows have the rest.
    pub(crate) fn new(total: u64, workers: u64, needs: Needs) -> Shares {
        let each = total / workers.max(1);
        let fragments = each / 8;
        let segments = if needs.streams { each / 8 * 3 } else { 0 };
        let rest = each - fragments - segments - for_results(each, needs);
        let connection = if needs.streams {
            ShardConfig::BYTES_PER_CONNECTION
        } else {
            0
        };
        let flow = FlowConfig::BYTES_PER_FLOW
            + ShardConfig::SENDER_BYTES_PER_FLOW
            + connection
            + needs.per_flow;
        Shares {
            flows: (rest / flow).clamp(1, 1 << 30) as u32,
            segments: segments.max(1),
            fragments: fragments.max(1),
        }
    }
}

/// Bytes for the results of all workers together; `None` where no bound was given.
pub(crate) fn of_results(total: Option<u64>, needs: Needs) -> Option<u64> {
    total.map(|total| for_results(total, needs).max(1))
}

fn for_results(total: u64, needs: Needs) -> u64 {
    if needs.results { total / 4 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for needs in [
            Needs::default(),
            Needs {
                streams: true,
                per_flow: 1000,
                results: true,
            },
        ] {
            for (total, workers) in [(1 << 30, 1), (64 << 20, 8)] {
                let shares = Shares::new(total, workers, needs);
                let streams = u64::from(needs.streams);
                let flow = FlowConfig::BYTES_PER_FLOW
                    + ShardConfig::SENDER_BYTES_PER_FLOW
                    + streams * ShardConfig::BYTES_PER_CONNECTION
                    + needs.per_flow;
                let flows = u64::from(shares.flows) * flow;
                let sum = workers * (flows + shares.segments + shares.fragments)
                    + of_results(Some(total), needs)
                        .filter(|_| needs.results)
                        .unwrap_or(0);
                assert!(sum <= total + workers && sum + workers * (flow + 8) > total);
            }
        }
        // Whatever is asked for, something can be tracked.
        assert_eq!(Shares::new(1, 256, Needs::default()).flows, 1);
    }
}
