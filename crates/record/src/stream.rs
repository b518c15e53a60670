//! Records about one direction of a connection.

use flowgauge_stream::engine::StreamStatistics;
use flowgauge_stream::{Stream, StreamIdentity};
use flowgauge_wire::Address;

use crate::any::KnownRecord;
use crate::schema::{FieldVisitor, Record, Schema, join, record};
use crate::text::protocol_name;
use crate::value::Symbol;

record! {
    /// Fields of [`StreamRow`]s and [`GapRow`]s with all that can be asked for.
    STREAM, ALL for Line<'_> as it, own_schema {
        let (stream, gap) = (it.stream, it.gap);
        let identity = &it.identity;
        let ip = |end: (Address, u16)| (end.0, identity.version);
        let has_counters = stream.is_some_and(|it| it.counters.is_some());
        let counters = stream.and_then(|it| it.counters).unwrap_or_default();
        let (counts, captured) = (counters.statistics, counters.statistics.captured());
    }:
    src_ip Address "SOURCE" 1 = ip(identity.source), "address of the sender";
    src_port Unsigned "PORT" 2 = identity.source.1, "port of the sender";
    dst_ip Address "DESTINATION" 1 = ip(identity.destination), "address of the receiver";
    dst_port Unsigned "PORT" 2 = identity.destination.1, "port of the receiver";
    proto Text "PROTO" 3 = Symbol(protocol_name(identity.protocol)), "tcp or udp";
    bytes Unsigned Bytes "BYTES" 1 = stream.map(|it| it.bytes), "bytes delivered in order" if it.has_streams;
    missing_bytes Unsigned Bytes "MISSING" 2 = stream.map(|it| it.missing_bytes), "bytes known to be missing from the capture" if it.has_streams;
    gaps Unsigned "GAPS" 4 = stream.map(|it| it.gaps), "number of gaps that those bytes are in" if it.has_streams;
    state Text "STATE" 5 = stream.map(|it| Symbol(it.state)), "how the stream ended: fin, rst, timeout, end_of_input, evicted, cutoff where it was cut before, or strict where mode strict stopped" if it.has_streams;
    flow_id Hex = identity.flow_id, "the same in every record about the flow";
    offset Unsigned Bytes "OFFSET" 1 exact = gap.map(|it| it.offset), "stream offset of the gap, earlier gaps included (with --gaps)" if it.has_gaps;
    size Unsigned Bytes "SIZE" 1 exact = gap.map(|it| it.size), "bytes missing there (with --gaps)" if it.has_gaps;
    all_packets Unsigned "ALL" 3 = counts.all.packets, "packets of the stream (with --counters)" if has_counters;
    all_bytes Unsigned Bytes "ALL_BYTES" 3 = counts.all.bytes, "their payload, including repeated bytes (with --counters)" if has_counters;
    dropped_packets Unsigned "DROPPED" 3 = counts.dropped.packets, "packets lost to overload (with --counters)" if has_counters;
    dropped_bytes Unsigned Bytes "DROPPED_BYTES" 3 = counts.dropped.bytes, "their payload (with --counters)" if has_counters;
    discarded_packets Unsigned "DISCARDED" 3 = counts.discarded.packets, "packets not wanted: beyond the cutoff, duplicates, outside the stream (with --counters)" if has_counters;
    discarded_bytes Unsigned Bytes "DISCARDED_BYTES" 3 = counts.discarded.bytes, "their payload (with --counters)" if has_counters;
    captured_packets Unsigned "CAPTURED" 3 = captured.packets, "packets captured: all minus dropped and discarded (with --counters)" if has_counters;
    captured_bytes Unsigned Bytes "CAPTURED_BYTES" 3 = captured.bytes, "their payload (with --counters)" if has_counters;
    chunks Unsigned "CHUNKS" 4 = counters.chunks, "chunks delivered (with --counters)" if has_counters;
    sha256 Text "SHA256" 6 = stream.and_then(|it| it.sha256).map(Symbol), "SHA-256 of the delivered bytes (with --hash)" if it.has_hashes;
}

static GAPS: Schema = ALL.split_at(10).1.split_at(2).0;
static COUNTERS: Schema = ALL.split_at(12).1.split_at(9).0;
static HASH: Schema = ALL.split_at(21).1;

/// All fields that a [`StreamRow`] can have.
pub static ALL_SCHEMA: Schema = ALL;

/// Fields of a [`StreamRow`] alone.
pub static STREAM_SCHEMA: Schema = ALL.split_at(10).0;

static WITH_HASH: Schema = &join::<11>(&[STREAM_SCHEMA, HASH]);
static WITH_GAPS: Schema = &join::<12>(&[STREAM_SCHEMA, GAPS]);

/// Fields of a [`StreamRow`] with [`GapRow`]s in between and a hash.
pub static STREAM_GAPS_HASH_SCHEMA: Schema = &join::<13>(&[STREAM_SCHEMA, GAPS, HASH]);

static WITH_COUNTERS: Schema = &join::<19>(&[STREAM_SCHEMA, COUNTERS]);

/// Fields of a [`StreamRow`] with [`StreamCounters`] and a hash.
pub static STREAM_COUNTERS_HASH_SCHEMA: Schema = &join::<20>(&[STREAM_SCHEMA, COUNTERS, HASH]);

/// Fields of [`StreamRow`]s with [`GapRow`]s in between, or with counters, or hashes. Gaps cannot be combined with
/// counters.
pub fn schema_of_streams(gaps: bool, counters: bool, hashes: bool) -> Schema {
    match (gaps, counters, hashes) {
        (_, true, false) => WITH_COUNTERS,
        (_, true, true) => STREAM_COUNTERS_HASH_SCHEMA,
        (true, false, false) => WITH_GAPS,
        (true, false, true) => STREAM_GAPS_HASH_SCHEMA,
        (false, false, false) => STREAM_SCHEMA,
        (false, false, true) => WITH_HASH,
    }
}

/// Fields of a [`GapRow`] alone.
pub static GAP_SCHEMA: Schema = &join::<8>(&[
    STREAM_SCHEMA.split_at(5).0,
    STREAM_SCHEMA.split_at(9).1,
    GAPS,
]);

/// One direction of a connection: the bytes from `source` to `destination`.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamRow<'a> {
    /// The stream.
    pub identity: StreamIdentity,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes missing, including those at the end.
    pub missing_bytes: u64,
    /// Holes, including one at the end.
    pub gaps: u64,
    /// How it ended.
    pub state: &'a str,
    /// Whether [`GapRow`]s are among the records.
    pub with_gaps: bool,
    /// What became of its packets, if requested.
    pub counters: Option<StreamCounters>,
    /// Hash of the delivered bytes in hexadecimal, if requested.
    pub sha256: Option<&'a str>,
}

/// What became of a stream's packets, in the terms of Scap: *dropped* ones were wanted and lost, *discarded* ones were
/// not wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// The engine's statistics.
    pub statistics: StreamStatistics,
    /// Chunks delivered.
    pub chunks: u64,
}

/// A hole in one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct GapRow {
    /// The stream.
    pub identity: StreamIdentity,
    /// Its offset in the stream, including earlier holes.
    pub offset: u64,
    /// Bytes missing.
    pub size: u64,
    /// Whether [`StreamRow`]s are among the records.
    pub with_streams: bool,
    /// Whether the stream records have hashes.
    pub with_hashes: bool,
}

impl<'a> StreamRow<'a> {
    /// The record of `stream` at its end; `trailing_gap` bytes are missing at its end.
    pub fn new(stream: &Stream<'_>, trailing_gap: u64, sha256: Option<&'a str>) -> StreamRow<'a> {
        let mut row = StreamRow {
            identity: stream.identity(),
            bytes: stream.bytes,
            missing_bytes: stream.missing_bytes,
            gaps: u64::from(stream.gaps),
            state: stream.status.name(),
            sha256,
            ..StreamRow::default()
        };
        if trailing_gap > 0 {
            row.missing_bytes += trailing_gap;
            row.gaps += 1;
        }
        row
    }
}

/// What a record says of a stream, or of a gap in one.
struct Line<'a> {
    identity: StreamIdentity,
    stream: Option<&'a StreamRow<'a>>,
    gap: Option<&'a GapRow>,
    /// Whether there are records of streams.
    has_streams: bool,
    /// Whether there are those of gaps.
    has_gaps: bool,
    has_hashes: bool,
}

impl Record for StreamRow<'_> {
    #[inline]
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let line = Line {
            identity: self.identity,
            stream: Some(self),
            gap: None,
            has_streams: true,
            has_gaps: self.with_gaps,
            has_hashes: self.sha256.is_some(),
        };
        line.visit(visitor);
    }
}

impl Record for GapRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let line = Line {
            identity: self.identity,
            stream: None,
            gap: Some(self),
            has_streams: self.with_streams,
            has_gaps: true,
            has_hashes: self.with_streams && self.with_hashes,
        };
        line.visit(visitor);
    }
}

impl KnownRecord for StreamRow<'_> {
    fn schema(&self) -> Schema {
        schema_of_streams(
            self.with_gaps,
            self.counters.is_some(),
            self.sha256.is_some(),
        )
    }
}

impl KnownRecord for GapRow {
    fn schema(&self) -> Schema {
        match self.with_streams {
            true => schema_of_streams(true, false, self.with_hashes),
            false => GAP_SCHEMA,
        }
    }
}
