//! What a user of the engine implements.

use flowgauge_flow::FlowRecord;
use flowgauge_wire::{Address, Batch, DecodedBatch, Nanos};

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

/// One direction of a connection: what travels from `source` to `destination`.
///
/// The fields that change with every segment come first: together with the direction's place in
/// sequence space they are one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stream {
    /// Bytes delivered so far, holes not counted.
    pub bytes: u64,
    /// Bytes known to be missing (holes that were given up, before the last byte delivered).
    pub missing_bytes: u64,
    /// Number of this stream while it lives: small, dense, reused after `stream_terminated`; a
    /// handler may index its own state by it.
    pub id: u32,
    /// The opposite direction's `id`.
    pub opposite: u32,
    /// Number of holes so far.
    pub gaps: u32,
    /// How it stands.
    pub status: StreamStatus,
    /// 4 or 6.
    pub version: u8,
    /// IP protocol: TCP (6) or UDP (17).
    pub protocol: u8,
    /// Whether this is the initiator's direction.
    pub from_initiator: bool,
    /// Outermost VLAN id of the packet that created the stream.
    pub vlan: Option<u16>,
    /// [`FlowRecord::flow_id`] of the flow.
    pub flow_id: u64,
    /// First packet of the flow.
    pub start: Nanos,
    /// Sender.
    pub source: (Address, u16),
    /// Receiver.
    pub destination: (Address, u16),
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
    fn stream_created(&mut self, _stream: &Stream) {}

    /// Bytes in order.
    fn stream_data(&mut self, _stream: &Stream, _chunk: &Chunk<'_>) {}

    /// The stream ended. `trailing_gap` bytes are known to be missing at its end.
    fn stream_terminated(&mut self, _stream: &Stream, _trailing_gap: u64) {}

    /// A flow's record is complete.
    fn flow(&mut self, _record: &FlowRecord<'_>) {}
}
