//! Records about one direction of a connection.

use flowgauge_stream::Stream;
use flowgauge_wire::Address;

use crate::schema::{FieldVisitor, Record, Schema, fields};
use crate::text::protocol_name;

fields! {
    /// Fields of a [`StreamRow`] with a hash.
    StreamFields, STREAM, STREAM_HASH_SCHEMA:
    src_ip Address None "SOURCE" 1 "address of the sender";
    src_port Unsigned None "PORT" 2 "port of the sender";
    dst_ip Address None "DESTINATION" 1 "address of the receiver";
    dst_port Unsigned None "PORT" 2 "port of the receiver";
    proto Text None "PROTO" 3 "tcp or udp";
    bytes Unsigned Bytes "BYTES" 1 "bytes delivered in order";
    missing_bytes Unsigned Bytes "MISSING" 2 "bytes known to be missing from the capture";
    gaps Unsigned None "GAPS" 4 "number of holes those bytes are in";
    state Text None "STATE" 5 "how the stream ended: fin, rst, timeout, end_of_input or evicted";
    flow_id Hex None "" 0 "the same in every record about the flow";
    sha256 Text None "SHA256" 6 "SHA-256 of the delivered bytes (with --hash)";
}

/// Fields of a [`StreamRow`] without a hash.
pub static STREAM_SCHEMA: Schema = STREAM_HASH_SCHEMA.split_at(STREAM_HASH_SCHEMA.len() - 1).0;

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
    /// Hash of the delivered bytes in hexadecimal, where it was asked for.
    pub sha256: Option<&'a str>,
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
        if let Some(digest) = self.sha256 {
            visitor.symbol(&STREAM.sha256, digest.as_bytes());
        }
    }
}
