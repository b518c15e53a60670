//! Counters of a shard.

use flowgauge_flow::FlowStatistics;
use flowgauge_reassembly::{DefragmentStatistics, ReassemblyStatistics};

/// Counters of a [`crate::Shard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardStatistics {
    /// Flow table.
    pub flow: FlowStatistics,
    /// Defragmentation.
    pub defragment: DefragmentStatistics,
    /// TCP reassembly.
    pub reassembly: ReassemblyStatistics,
    /// Checksums.
    pub checksums: ChecksumStatistics,
    /// Connections (pairs of streams) created.
    pub connections: u64,
    /// Maximum number of connections with streams at the same time.
    pub connections_high: u64,
    /// SYNs within ongoing connections for whose data there was no room.
    pub syns_refused: u64,
    /// Pairs of addresses, with known checksums or VLANs, that were forgotten to make room for
    /// others.
    pub pairs_forgotten: u64,
    /// Bytes delivered to streams.
    pub delivered_bytes: u64,
    /// Chunks they were delivered in.
    pub chunks: u64,
}

/// Counters of checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumStatistics {
    /// Packets left out because of a wrong IP header checksum.
    pub bad_ip: u64,
    /// Packets left out, or whose payload was, because of a wrong transport checksum.
    pub bad_transport: u64,
    /// Packets left out for either reason, counting all fragments of a datagram.
    pub left_out: u64,
    /// Packets with a wrong checksum that were accepted because their sender does not compute
    /// any.
    pub offloaded: u64,
}

impl ChecksumStatistics {
    /// Adds those of other packets.
    pub(crate) fn merge(&mut self, other: &ChecksumStatistics) {
        self.bad_ip += other.bad_ip;
        self.bad_transport += other.bad_transport;
        self.left_out += other.left_out;
        self.offloaded += other.offloaded;
    }
}
