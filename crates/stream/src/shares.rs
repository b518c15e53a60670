//! Divides the memory bound.
//!
//! One number bounds everything that grows with the input: flows, segments waiting for earlier
//! ones, fragments, and a command's own state. Everything else has a size independent of the input:
//! read buffers, kernel rings, writers, lists of senders with wrong checksums.

use flowgauge_flow::FlowConfig;

use crate::config::ShardConfig;

/// Memory needs other than flows and fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether streams are reassembled.
    pub streams: bool,
    /// Bytes of other state per flow during its life.
    pub per_flow: u64,
    /// Whether there are results that grow with the input: groups, names, collected bytes.
    pub results: bool,
}

/// The memory of each worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Number of flows, with all state per flow.
    pub flows: u32,
    /// Bytes for waiting segments.
    pub segments: u64,
    /// Bytes for fragments.
    pub fragments: u64,
}

impl Shares {
    /// The part of `total` for the results of all workers together, in bytes.
    pub fn of_results(total: u64, needs: Needs) -> u64 {
        for_results(total, needs).max(1)
    }

    /// An eighth for fragments; three eighths for segments if streams are reassembled; a quarter
    /// for results if there are any; the rest for flows.
    pub fn new(total: u64, workers: u64, needs: Needs) -> Shares {
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
                    + for_results(total, needs);
                assert!(sum <= total + workers && sum + workers * (flow + 8) > total);
            }
        }
        // Whatever is asked for, something can be tracked.
        assert_eq!(Shares::new(1, 256, Needs::default()).flows, 1);
    }
}
