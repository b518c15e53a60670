//! Counters in the paper's words.

use core::ops::{Add, AddAssign};

use flowgauge_wire::Nanos;

use crate::statistics::ShardStatistics;

/// Packets and bytes of transport payload by their headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Payload bytes, those that came more than once included.
    pub bytes: u64,
}

impl Counts {
    /// One packet of `bytes`.
    pub const fn packet(bytes: u64) -> Counts {
        Counts { packets: 1, bytes }
    }

    /// What is left without `other`, at least nothing.
    #[must_use]
    pub const fn without(self, other: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// As much of it as there is in `other`.
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

/// What became of a stream's packets, for one application: what it alone did not want or lost counts,
/// too. *Dropped* were wanted and lost to overload; *discarded* were
/// not wanted (cutoff, filter, where mode STRICT stopped, duplicate, outside of the stream); *captured* is the rest.
///
/// Bytes are those of the headers, and count one by one: of a segment that is in part beyond the cutoff, or repeats
/// some bytes, that part is discarded, as are bytes that its headers claim and its frame never had. What the snap length cut off of what was taken is captured, and missing. A
/// packet with payload is dropped or discarded where all of it is; those with SYN, FIN or RST are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Capture time of its first packet; zero without any.
    pub start: Nanos,
    /// Capture time of its last packet.
    pub end: Nanos,
    /// Everything that was seen. (What the kernel or the network card kept away is in it as far as
    /// they have told.)
    pub all: Counts,
    /// Frame bytes on the wire of all of these.
    pub wire_bytes: u64,
    /// Lost to overload.
    pub dropped: Counts,
    /// Not wanted.
    pub discarded: Counts,
}

impl StreamStatistics {
    /// What was taken: all without dropped and discarded.
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
    /// Streams created, both directions of a connection counted.
    pub created: u64,
    /// Streams ended.
    pub terminated: u64,
    /// The packets of all streams, those of protocols without ports included.
    pub all: Counts,
    /// Lost to overload.
    pub dropped: Counts,
    /// Not wanted.
    pub discarded: Counts,
    /// Of `all`, what was kept away before it came here ([`offload`](crate::offload)).
    pub withheld: Counts,
    /// Data events.
    pub chunks: u64,
    /// Bytes in them, repeated ones and those for several applications counted each time.
    pub chunk_bytes: u64,
    /// Of the data events, those whose bytes were delivered where the packet lay.
    pub in_place: u64,
    /// Of the data events, those sent early for want of memory.
    pub flushed_early: u64,
    /// Bytes of chunks for which there was no memory when an application wanted to take them
    /// ([`DataChunk::take`](super::DataChunk::take)) or to go on alone with one that others share, counted
    /// for each application. In `dropped`, too, where no other has the stream, with the packets that
    /// had the first of these bytes.
    pub lost_bytes: u64,
    /// Packets whose record found no memory.
    pub packets_lost: u64,
    /// Parameters of single streams that could not be changed: with 65,536 different sets in use.
    pub parameters_refused: u64,
    /// Bytes of the memory budget in use.
    pub memory: u64,
    /// The most that was in use at once.
    pub memory_high: u64,
    /// The layers below.
    pub shard: ShardStatistics,
}

impl EngineStatistics {
    /// What was taken: all without dropped and discarded.
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

    /// Adds the counters of another engine; not those of the layers below. Memory is not
    /// added up: they share a budget.
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
