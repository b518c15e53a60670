//! Totals over all streams.

use crate::any::KnownRecord;
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of [`TotalsRow`].
    TotalsFields, TOTALS, TOTALS_SCHEMA:
    streams Unsigned None "STREAMS" 1 "directions of connections";
    empty_streams Unsigned None "EMPTY" 3 "of these without a delivered byte";
    bytes Unsigned Bytes "BYTES" 1 exact "bytes delivered in order";
    missing_bytes Unsigned Bytes "MISSING" 2 exact "bytes known to be missing from the capture";
    gaps Unsigned None "GAPS" 2 "number of holes those bytes are in";
    checksum Unsigned None "CHECKSUM" 2 "sum of all delivered bytes modulo 2^64";
}

/// Totals over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalsRow {
    /// Directions of connections.
    pub streams: u64,
    /// Of these without a delivered byte.
    pub empty_streams: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes missing.
    pub missing_bytes: u64,
    /// Holes.
    pub gaps: u64,
    /// Sum of all delivered bytes.
    pub checksum: u64,
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

impl Record for TotalsRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.unsigned(&TOTALS.streams, self.streams);
        visitor.unsigned(&TOTALS.empty_streams, self.empty_streams);
        visitor.unsigned(&TOTALS.bytes, self.bytes);
        visitor.unsigned(&TOTALS.missing_bytes, self.missing_bytes);
        visitor.unsigned(&TOTALS.gaps, self.gaps);
        visitor.unsigned(&TOTALS.checksum, self.checksum);
    }
}

impl KnownRecord for TotalsRow {
    fn schema(&self) -> Schema {
        TOTALS_SCHEMA
    }
}
