//! Limits and counters of TCP reassembly.

use flowgauge_wire::Nanos;

use super::GapCause;

/// Limits of a [`super::Reassembler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// Bytes of memory for segments that came too early, of all streams together.
    pub memory_bytes: u64,
    /// How long the peer must have acknowledged past a hole before it is given up.
    pub reorder_time: Nanos,
    /// How much may come after the peer has acknowledged past a hole before it is given up sooner.
    pub reorder_bytes: u32,
    /// How old a hole may get while the peer was never seen.
    pub one_sided_time: Nanos,
    /// How much may wait behind a hole while the peer was never seen.
    pub one_sided_bytes: u64,
    /// How old a hole may get in any case.
    pub hole_time: Nanos,
    /// How much may wait behind a hole in any case.
    pub hole_bytes: u64,
}

impl Default for ReassemblyConfig {
    /// 256 MiB; 500 ms or 256 KiB after the acknowledgement; one-sided 1 s or 1 MiB; 120 s; no limit
    /// per stream but the memory.
    fn default() -> ReassemblyConfig {
        ReassemblyConfig {
            memory_bytes: 256 << 20,
            reorder_time: Nanos::from_millis(500),
            reorder_bytes: 256 << 10,
            one_sided_time: Nanos::from_secs(1),
            one_sided_bytes: 1 << 20,
            hole_time: Nanos::from_secs(120),
            hole_bytes: u64::MAX,
        }
    }
}

/// What a reassembler has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyStatistics {
    /// Segments that had to wait for earlier ones.
    pub out_of_order: u64,
    /// Bytes dropped because they had been handed on (or given up) before.
    pub old_bytes: u64,
    /// Bytes received more than once while they waited.
    pub overlap_bytes: u64,
    /// Of these, bytes that differed.
    pub conflict_bytes: u64,
    /// Segments that conflicted with waiting ones.
    pub conflicts: u64,
    /// Holes given up, by [`GapCause`].
    pub gaps: [u64; GapCause::ALL.len()],
    /// Bytes in them.
    pub gap_bytes: u64,
    /// Segments refused because their sequence number was implausible.
    pub implausible: u64,
    /// Bytes dropped because they lay after a FIN.
    pub after_fin_bytes: u64,
    /// FINs that were not believed.
    pub false_fins: u64,
    /// Waiting segments looked at to find the places of others.
    pub search_steps: u64,
    /// The most bytes of pool memory that were in use.
    pub memory_high: u64,
}
