//! What a user of the engine implements.

use flowgauge_flow::{FlowId, FlowRecord, FlowTracker};
use flowgauge_wire::{Address, Batch, DecodedBatch, Direction, Nanos};

/// How a stream stands or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamStatus {
    /// Still open.
    Active,
    /// This side closed with FIN and everything before it was delivered or given up.
    Fin,
    /// Reset.
    Rst,
    /// Idle timeout, or the flow's record was cut by another limit.
    Timeout,
    /// The input ended.
    EndOfInput,
    /// Evicted because the table or the memory was full.
    Evicted,
}

impl StreamStatus {
    /// Name in records.
    pub const fn name(self) -> &'static str {
        match self {
            StreamStatus::Active => "active",
            StreamStatus::Fin => "fin",
            StreamStatus::Rst => "rst",
            StreamStatus::Timeout => "timeout",
            StreamStatus::EndOfInput => "end_of_input",
            StreamStatus::Evicted => "evicted",
        }
    }
}

/// One direction of a connection, as its events show it.
///
/// It is made for the call from what the engine keeps; what a handler does not look at costs
/// nothing. Who talks with whom says [`Stream::identity`], looked up when asked for.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Number of this stream while it lives: small, dense, reused after `stream_terminated`; a
    /// handler may index its own state by it.
    pub id: u32,
    /// The opposite direction's `id`.
    pub opposite: u32,
    /// Bytes delivered so far, holes not counted.
    pub bytes: u64,
    /// Bytes known to be missing (holes that were given up, before the last byte delivered).
    pub missing_bytes: u64,
    /// Number of holes so far.
    pub gaps: u32,
    /// How it stands.
    pub status: StreamStatus,
    /// Whether this is the initiator's direction.
    pub from_initiator: bool,
    pub(crate) flow: StreamFlow<'a>,
}

/// Where a stream's identity can be looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamFlow<'a> {
    /// In the flow table.
    Tracked(&'a FlowTracker, FlowId),
    /// In the record of a flow that ends.
    Ended(&'a FlowRecord<'a>),
    /// It is known.
    Known(&'a StreamIdentity),
}

/// Whose bytes a stream has: what travels from `source` to `destination`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamIdentity {
    /// [`FlowRecord::flow_id`] of the flow.
    pub flow_id: u64,
    /// First packet of the flow.
    pub start: Nanos,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
    /// 4 or 6.
    pub version: u8,
    /// IP protocol: TCP (6) or UDP (17).
    pub protocol: u8,
    /// Outermost VLAN id of the flow's packets.
    pub vlan: Option<u16>,
}

impl<'a> Stream<'a> {
    /// A new stream of which nothing was delivered, outside of any engine: to test handlers with.
    /// Even ids are the initiator's.
    pub fn detached(id: u32, identity: &'a StreamIdentity) -> Stream<'a> {
        Stream {
            id,
            opposite: id ^ 1,
            bytes: 0,
            missing_bytes: 0,
            gaps: 0,
            status: StreamStatus::Active,
            from_initiator: id & 1 == 0,
            flow: StreamFlow::Known(identity),
        }
    }

    /// Who talks with whom. To be asked when a stream is created or ends, or for its first bytes,
    /// rather than for every chunk: the flow table is read for it.
    pub fn identity(&self) -> StreamIdentity {
        let of_record = |record: &FlowRecord<'_>| StreamIdentity::of(record, self.id & 1 != 0);
        match self.flow {
            StreamFlow::Tracked(tracker, id) => {
                tracker.with_record(id, of_record).unwrap_or_default()
            }
            StreamFlow::Ended(record) => of_record(record),
            StreamFlow::Known(identity) => *identity,
        }
    }
}

impl StreamIdentity {
    fn of(record: &FlowRecord<'_>, from_high: bool) -> StreamIdentity {
        let direction = if from_high {
            Direction::HighToLow
        } else {
            Direction::LowToHigh
        };
        let (source, destination) = record.key.endpoints(direction);
        StreamIdentity {
            flow_id: record.flow_id,
            start: record.flow_start,
            source,
            destination,
            version: record.version,
            protocol: record.protocol,
            vlan: record.vlans.first().copied(),
        }
    }
}

/// Contiguous bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The bytes, borrowed for the call. Never empty.
    pub bytes: &'a [u8],
    /// Position of the first byte in the stream, holes counted.
    pub offset: u64,
    /// Bytes missing right before this chunk.
    pub gap_before: u64,
    /// Capture time of the packet that made it deliverable.
    pub time: Nanos,
}

/// Receives what the engine finds. Every method has an empty default.
///
/// Calls for one batch come in this order: `batch` once, then stream events in packet order, then
/// flow records of flows that ended.
pub trait Handler {
    /// Whether stream events are wanted; without them nothing is reassembled.
    const STREAMS: bool = false;

    /// A batch was decoded and looked up.
    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {}

    /// A stream was created (both directions of a connection are created together).
    fn stream_created(&mut self, _stream: &Stream<'_>) {}

    /// Bytes in order.
    fn stream_data(&mut self, _stream: &Stream<'_>, _chunk: &Chunk<'_>) {}

    /// The stream ended. `trailing_gap` bytes are known to be missing at its end.
    fn stream_terminated(&mut self, _stream: &Stream<'_>, _trailing_gap: u64) {}

    /// A flow's record is complete.
    fn flow(&mut self, _record: &FlowRecord<'_>) {}
}
