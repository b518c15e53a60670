//! Records about one direction of a connection.

use flowgauge_stream::engine::StreamStatistics;
use flowgauge_stream::{Stream, StreamIdentity};
use flowgauge_wire::Address;

use crate::any::KnownRecord;
use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text::protocol_name;

fields! {
    /// Fields of a [`StreamRow`] with all that can be asked for: [`GapRow`]s in between, a hash.
    StreamFields, STREAM, STREAM_GAPS_HASH_SCHEMA:
    src_ip Address None "SOURCE" 1 "address of the sender";
    src_port Unsigned None "PORT" 2 "port of the sender";
    dst_ip Address None "DESTINATION" 1 "address of the receiver";
    dst_port Unsigned None "PORT" 2 "port of the receiver";
    proto Text None "PROTO" 3 "tcp or udp";
    bytes Unsigned Bytes "BYTES" 1 "bytes delivered in order";
    missing_bytes Unsigned Bytes "MISSING" 2 "bytes known to be missing from the capture";
    gaps Unsigned None "GAPS" 4 "number of holes those bytes are in";
    state Text None "STATE" 5 "how the stream ended: fin, rst, timeout, end_of_input, evicted, cutoff where it was cut before, or strict where mode strict stopped";
    flow_id Hex None "" 0 "the same in every record about the flow";
    offset Unsigned Bytes "OFFSET" 1 exact "where in the stream a hole begins, earlier holes counted (with --gaps)";
    size Unsigned Bytes "SIZE" 1 exact "bytes missing there (with --gaps)";
    sha256 Text None "SHA256" 6 "SHA-256 of the delivered bytes (with --hash)";
}

/// Fields of a [`StreamRow`] with [`GapRow`]s in between.
pub static STREAM_GAPS_SCHEMA: Schema = STREAM_GAPS_HASH_SCHEMA
    .split_at(STREAM_GAPS_HASH_SCHEMA.len() - 1)
    .0;

/// Fields of a [`StreamRow`] alone.
pub static STREAM_SCHEMA: Schema = STREAM_GAPS_SCHEMA.split_at(STREAM_GAPS_SCHEMA.len() - 2).0;

/// Fields of a [`StreamRow`] with a hash.
pub static STREAM_HASH_SCHEMA: Schema = &[
    &STREAM.src_ip,
    &STREAM.src_port,
    &STREAM.dst_ip,
    &STREAM.dst_port,
    &STREAM.proto,
    &STREAM.bytes,
    &STREAM.missing_bytes,
    &STREAM.gaps,
    &STREAM.state,
    &STREAM.flow_id,
    &STREAM.sha256,
];

fields! {
    /// Fields that [`StreamCounters`] add to a record.
    CounterFields, COUNTER, COUNTERS_SCHEMA:
    all_packets Unsigned None "ALL" 3 "packets of the stream (with --counters)";
    all_bytes Unsigned Bytes "ALL_BYTES" 3 "their payload, that which came again included (with --counters)";
    dropped_packets Unsigned None "DROPPED" 3 "packets lost to overload (with --counters)";
    dropped_bytes Unsigned Bytes "DROPPED_BYTES" 3 "their payload (with --counters)";
    discarded_packets Unsigned None "DISCARDED" 3 "packets not wanted: beyond the cutoff, duplicates, outside of the stream (with --counters)";
    discarded_bytes Unsigned Bytes "DISCARDED_BYTES" 3 "their payload (with --counters)";
    captured_packets Unsigned None "CAPTURED" 3 "packets taken: all without dropped and discarded (with --counters)";
    captured_bytes Unsigned Bytes "CAPTURED_BYTES" 3 "their payload (with --counters)";
    chunks Unsigned None "CHUNKS" 4 "chunks delivered (with --counters)";
}

/// Fields of a [`StreamRow`] with [`StreamCounters`].
pub static STREAM_COUNTERS_SCHEMA: Schema = STREAM_COUNTERS_HASH_SCHEMA
    .split_at(STREAM_COUNTERS_HASH_SCHEMA.len() - 1)
    .0;

/// Fields of a [`StreamRow`] with [`StreamCounters`] and a hash.
pub static STREAM_COUNTERS_HASH_SCHEMA: Schema = &[
    &STREAM.src_ip,
    &STREAM.src_port,
    &STREAM.dst_ip,
    &STREAM.dst_port,
    &STREAM.proto,
    &STREAM.bytes,
    &STREAM.missing_bytes,
    &STREAM.gaps,
    &STREAM.state,
    &STREAM.flow_id,
    &COUNTER.all_packets,
    &COUNTER.all_bytes,
    &COUNTER.dropped_packets,
    &COUNTER.dropped_bytes,
    &COUNTER.discarded_packets,
    &COUNTER.discarded_bytes,
    &COUNTER.captured_packets,
    &COUNTER.captured_bytes,
    &COUNTER.chunks,
    &STREAM.sha256,
];

/// Fields of a [`GapRow`] alone.
pub static GAP_SCHEMA: Schema = &[
    &STREAM.src_ip,
    &STREAM.src_port,
    &STREAM.dst_ip,
    &STREAM.dst_port,
    &STREAM.proto,
    &STREAM.flow_id,
    &STREAM.offset,
    &STREAM.size,
];

/// One direction of a connection: what travelled from `source` to `destination`.
#[derive(Clone, Copy, Debug)]
pub struct StreamRow<'a> {
    /// 4 or 6.
    pub version: u8,
    /// IP protocol number.
    pub protocol: u8,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes missing, at the end included.
    pub missing_bytes: u64,
    /// Holes, one at the end included.
    pub gaps: u64,
    /// How it ended.
    pub state: &'a str,
    /// The flow it belongs to.
    pub flow_id: u64,
    /// Whether [`GapRow`]s are among the records.
    pub with_gaps: bool,
    /// What became of its packets, where it was asked for.
    pub counters: Option<StreamCounters>,
    /// Hash of the delivered bytes in hexadecimal, where it was asked for.
    pub sha256: Option<&'a str>,
}

/// What became of a stream's packets, in the words of Scap: *dropped* ones were wanted and lost,
/// *discarded* ones were not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCounters {
    /// Counts in the engine's words.
    pub statistics: StreamStatistics,
    /// Chunks delivered.
    pub chunks: u64,
}

/// A hole in one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub struct GapRow {
    /// Whose stream it is.
    pub identity: StreamIdentity,
    /// Where it begins, earlier holes counted.
    pub offset: u64,
    /// Bytes missing.
    pub size: u64,
    /// Whether [`StreamRow`]s are among the records.
    pub with_streams: bool,
    /// Whether those have hashes.
    pub with_hashes: bool,
}

impl<'a> StreamRow<'a> {
    /// The record of `stream` at its end; `trailing_gap` bytes are missing at its end.
    pub fn new(stream: &Stream<'_>, trailing_gap: u64, sha256: Option<&'a str>) -> StreamRow<'a> {
        let identity = stream.identity();
        let mut row = StreamRow {
            version: identity.version,
            protocol: identity.protocol,
            source: identity.source,
            destination: identity.destination,
            bytes: stream.bytes,
            missing_bytes: stream.missing_bytes,
            gaps: u64::from(stream.gaps),
            state: stream.status.name(),
            flow_id: identity.flow_id,
            with_gaps: false,
            counters: None,
            sha256,
        };
        if trailing_gap > 0 {
            row.missing_bytes += trailing_gap;
            row.gaps += 1;
        }
        row
    }
}

impl Record for StreamRow<'_> {
    #[inline]
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.address(&STREAM.src_ip, self.source.0, self.version);
        visitor.unsigned(&STREAM.src_port, u64::from(self.source.1));
        visitor.address(&STREAM.dst_ip, self.destination.0, self.version);
        visitor.unsigned(&STREAM.dst_port, u64::from(self.destination.1));
        visitor.symbol(&STREAM.proto, protocol_name(self.protocol).as_bytes());
        visitor.unsigned(&STREAM.bytes, self.bytes);
        visitor.unsigned(&STREAM.missing_bytes, self.missing_bytes);
        visitor.unsigned(&STREAM.gaps, self.gaps);
        visitor.symbol(&STREAM.state, self.state.as_bytes());
        visitor.hex(&STREAM.flow_id, self.flow_id);
        if self.with_gaps {
            visitor.null(&STREAM.offset);
            visitor.null(&STREAM.size);
        }
        if let Some(counters) = &self.counters {
            let StreamStatistics {
                all,
                dropped,
                discarded,
                ..
            } = counters.statistics;
            let captured = counters.statistics.captured();
            visitor.unsigned(&COUNTER.all_packets, all.packets);
            visitor.unsigned(&COUNTER.all_bytes, all.bytes);
            visitor.unsigned(&COUNTER.dropped_packets, dropped.packets);
            visitor.unsigned(&COUNTER.dropped_bytes, dropped.bytes);
            visitor.unsigned(&COUNTER.discarded_packets, discarded.packets);
            visitor.unsigned(&COUNTER.discarded_bytes, discarded.bytes);
            visitor.unsigned(&COUNTER.captured_packets, captured.packets);
            visitor.unsigned(&COUNTER.captured_bytes, captured.bytes);
            visitor.unsigned(&COUNTER.chunks, counters.chunks);
        }
        if let Some(digest) = self.sha256 {
            visitor.symbol(&STREAM.sha256, digest.as_bytes());
        }
    }
}

impl KnownRecord for StreamRow<'_> {
    fn schema(&self) -> Schema {
        match (
            self.with_gaps,
            self.counters.is_some(),
            self.sha256.is_some(),
        ) {
            (false, false, false) => STREAM_SCHEMA,
            (false, false, true) => STREAM_HASH_SCHEMA,
            // Nothing gives records of streams with counters and of gaps at once.
            (_, true, false) => STREAM_COUNTERS_SCHEMA,
            (_, true, true) => STREAM_COUNTERS_HASH_SCHEMA,
            (true, false, false) => STREAM_GAPS_SCHEMA,
            (true, false, true) => STREAM_GAPS_HASH_SCHEMA,
        }
    }
}

impl KnownRecord for GapRow {
    fn schema(&self) -> Schema {
        match (self.with_streams, self.with_hashes) {
            (false, _) => GAP_SCHEMA,
            (true, false) => STREAM_GAPS_SCHEMA,
            (true, true) => STREAM_GAPS_HASH_SCHEMA,
        }
    }
}

impl Record for GapRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        let identity = &self.identity;
        let (source, destination) = (identity.source, identity.destination);
        visitor.address(&STREAM.src_ip, source.0, identity.version);
        visitor.unsigned(&STREAM.src_port, u64::from(source.1));
        visitor.address(&STREAM.dst_ip, destination.0, identity.version);
        visitor.unsigned(&STREAM.dst_port, u64::from(destination.1));
        let protocol = protocol_name(identity.protocol);
        visitor.symbol(&STREAM.proto, protocol.as_bytes());
        if self.with_streams {
            visitor.null(&STREAM.bytes);
            visitor.null(&STREAM.missing_bytes);
            visitor.null(&STREAM.gaps);
            visitor.null(&STREAM.state);
        }
        visitor.hex(&STREAM.flow_id, identity.flow_id);
        visitor.unsigned(&STREAM.offset, self.offset);
        visitor.unsigned(&STREAM.size, self.size);
        if self.with_streams && self.with_hashes {
            visitor.null(&STREAM.sha256);
        }
    }
}
