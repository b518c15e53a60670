//! Counters, in the terms of the paper.

use core::ops::{Add, AddAssign};

use flowgauge_wire::Nanos;

use crate::statistics::ShardStatistics;

/// Packets, and bytes of transport payload according to their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Payload bytes, including duplicates.
    pub bytes: u64,
}

impl Counts {
    /// One packet with `bytes` of payload.
    pub const fn packet(bytes: u64) -> Counts {
        Counts { packets: 1, bytes }
    }

    /// The difference to `other`, at least zero.
    #[must_use]
    pub const fn without(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The minimum of this and `other`.
    #[must_use]
    pub fn within(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets.min(other.packets),
            bytes: self.bytes.min(other.bytes),
        }
    }
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        *self = *self + other;
    }
}

/// What became of a stream's packets, for one application, including what it alone did not want or lost. *Dropped*:
/// wanted, but lost to overload. *Discarded*: not wanted (cutoff, filter, where mode STRICT stopped, duplicate, outside
/// of the stream). *Captured*: the rest.
///
/// Byte counts are those of the headers, and each byte counts separately: if a segment is partly beyond the cutoff, or
/// repeats some bytes, that part is discarded, as are bytes that its headers claim but its frame never had. Bytes of
/// accepted packets that the snap length cut off are captured, and missing. A packet with payload is dropped or
/// discarded if all of its payload is; those with SYN, FIN or RST are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Capture time of its first packet; zero if there is none.
    pub start: Nanos,
    /// Capture time of its last packet.
    pub end: Nanos,
    /// All packets. (Those that the kernel or the network card withheld are included as far as reported.)
    pub all: Counts,
    /// Their frame bytes on the wire.
    pub wire_bytes: u64,
    /// Lost to overload.
    pub dropped: Counts,
    /// Not wanted.
    pub discarded: Counts,
}

impl StreamStatistics {
    /// Captured packets and bytes: all without dropped and discarded.
    pub const fn captured(&self) -> Counts {
        self.all.without(self.dropped).without(self.discarded)
    }

    /// What of it was taken is not wanted: moves that, no more than there is.
    pub(super) fn discard(&mut self, counts: Counts) {
        self.discarded += counts.within(self.captured());
    }

    /// The same of what is lost.
    pub(super) fn drop(&mut self, counts: Counts) {
        self.dropped += counts.within(self.captured());
    }
}

/// Counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Streams created, counting both directions of a connection.
    pub created: u64,
    /// Streams ended.
    pub terminated: u64,
    /// The packets of all streams, including those of protocols without ports.
    pub all: Counts,
    /// Lost to overload.
    pub dropped: Counts,
    /// Not wanted.
    pub discarded: Counts,
    /// The part of `all` that was withheld before it arrived here ([`offload`](crate::offload)).
    pub withheld: Counts,
    /// Data events.
    pub chunks: u64,
    /// Their bytes, counting repeated ones and those for several applications each time.
    pub chunk_bytes: u64,
    /// Data events whose bytes were delivered in the captured packet.
    pub in_place: u64,
    /// Data events of chunks delivered early because memory was short.
    pub flushed_early: u64,
    /// Bytes of chunks for which there was no memory when an application wanted to take them
    /// ([`DataChunk::take`](super::DataChunk::take)), or to continue alone with a shared one, counted per application.
    /// If no other application has the stream, they are also in `dropped`, with the packets of their first bytes.
    pub lost_bytes: u64,
    /// Packets for whose records there was no memory.
    pub packets_lost: u64,
    /// Refused changes of single streams' parameters, because 65,536 different sets were in use.
    pub parameters_refused: u64,
    /// Bytes of the memory budget in use.
    pub memory: u64,
    /// Maximum number of these bytes.
    pub memory_high: u64,
    /// Counters of lower layers.
    pub shard: ShardStatistics,
}

impl EngineStatistics {
    /// Captured packets and bytes: all without dropped and discarded.
    pub const fn captured(&self) -> Counts {
        self.all.without(self.dropped).without(self.discarded)
    }

    /// What of it was taken is not wanted: moves that, no more than there is.
    pub(super) fn discard(&mut self, counts: Counts) {
        self.discarded += counts.within(self.captured());
    }

    /// The same of what is lost.
    pub(super) fn drop(&mut self, counts: Counts) {
        self.dropped += counts.within(self.captured());
    }

    /// Adds the counters of another engine, except those of lower layers. Memory is not added: the engines share a
    /// budget.
    pub fn add(&mut self, part: &EngineStatistics) {
        self.created += part.created;
        self.terminated += part.terminated;
        self.all += part.all;
        self.dropped += part.dropped;
        self.discarded += part.discarded;
        self.withheld += part.withheld;
        self.chunks += part.chunks;
        self.chunk_bytes += part.chunk_bytes;
        self.in_place += part.in_place;
        self.flushed_early += part.flushed_early;
        self.memory = self.memory.max(part.memory);
        self.memory_high = self.memory_high.max(part.memory_high);
    }
}
