//! Totals over all streams.

use crate::schema::record;

record! {
    /// Fields of [`TotalsRow`].
    TOTALS, TOTALS_SCHEMA for TotalsRow as it:
    streams: u64, Unsigned "STREAMS" 1 = it.streams, "directions of connections";
    empty_streams: u64, Unsigned "EMPTY" 3 = it.empty_streams, "of these, without a delivered byte";
    bytes: u64, Unsigned Bytes "BYTES" 1 exact = it.bytes, "bytes delivered in order";
    missing_bytes: u64, Unsigned Bytes "MISSING" 2 exact = it.missing_bytes, "bytes known to be missing from the capture";
    gaps: u64, Unsigned "GAPS" 2 = it.gaps, "number of gaps that those bytes are in";
    checksum: u64, Unsigned "CHECKSUM" 2 = it.checksum, "sum of all delivered bytes modulo 2^64";

    /// Totals over all streams.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TotalsRow {}
}

impl TotalsRow {
    /// Adds another thread's totals.
    pub fn merge(&mut self, other: &TotalsRow) {
        self.streams += other.streams;
        self.empty_streams += other.empty_streams;
        self.bytes += other.bytes;
        self.missing_bytes += other.missing_bytes;
        self.gaps += other.gaps;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}
