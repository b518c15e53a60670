//! The configuration of a shard.

use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::{DefragmentConfig, OverlapPolicy, ReassemblyConfig};
use flowgauge_wire::DecodeOptions;

use crate::vlans::VlanAware;

/// Configuration of a [`crate::Shard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// Decoding options, and what distinguishes flows.
    pub decode: DecodeOptions,
    /// How to treat wrong checksums.
    pub checksums: ChecksumPolicy,
    /// Limits of the flow table.
    pub flow: FlowConfig,
    /// Limits of defragmentation, and the policy for overlapping fragments.
    pub defragment: DefragmentConfig,
    /// Limits of TCP reassembly, including its memory.
    pub reassembly: ReassemblyConfig,
    /// The policy for overlapping TCP segments.
    pub overlap_policy: OverlapPolicy,
    /// Whether VLANs distinguish flows.
    pub vlans: VlanAware,
}

impl Default for ShardConfig {
    fn default() -> ShardConfig {
        ShardConfig {
            decode: DecodeOptions::default(),
            checksums: ChecksumPolicy::Auto,
            flow: FlowConfig::default(),
            defragment: DefragmentConfig::default(),
            reassembly: ReassemblyConfig::default(),
            overlap_policy: OverlapPolicy::default(),
            vlans: VlanAware::default(),
        }
    }
}

impl ShardConfig {
    /// This configuration with one overlap policy for segments and fragments.
    #[must_use]
    pub fn with_policy(mut self, policy: OverlapPolicy) -> ShardConfig {
        self.overlap_policy = policy;
        self.defragment.policy = policy;
        self
    }

    /// Bytes of memory for the two streams of a connection, in addition to those of its flow.
    pub const BYTES_PER_CONNECTION: u64 = size_of::<crate::connection::Connection>() as u64;

    /// Bytes of memory for remembering senders ([`ChecksumPolicy::Auto`]), per flow of the table.
    pub const SENDER_BYTES_PER_FLOW: u64 = crate::known_pairs::KnownPairs::BYTES_PER_FLOW;

    /// This configuration with `bytes` of memory for segments that wait for earlier ones.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> ShardConfig {
        self.reassembly.memory_bytes = bytes;
        self
    }
}

/// What is done about packets with a wrong checksum.
///
/// A capture taken on the sending host has wrong checksums in everything that host sent, because
/// its network card computes them later. Dropping such packets loses half of every conversation;
/// accepting every damaged packet lets a packet that its receiver dropped into the streams.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case")]
#[strum(parse_err_ty = String, parse_err_fn = unknown_checksums)]
pub enum ChecksumPolicy {
    /// Packets with a wrong IP, TCP, UDP or ICMP checksum are left out, and counted as malformed.
    Verify,
    /// Checksums are ignored.
    Ignore,
    /// Like [`ChecksumPolicy::Verify`], except for senders that do not compute checksums themselves. A wrong checksum
    /// counts as *not computed yet* if it has exactly the value that Linux leaves there (the sum of the pseudo header),
    /// or if no packet of that sender to that receiver, in that protocol, had a right one so far; this needs no
    /// lookahead. After the first right checksum, wrong ones are damage. (This is per receiver, because a shard gets
    /// all packets of a pair of addresses, but not all of a sender.) The same applies to the IPv4 header checksum,
    /// where zero always means not computed. The memory is bounded: a pair that was forgotten starts again.
    ///
    /// A TCP segment or UDP datagram that only carries payload (no SYN, FIN or RST) counts to its flow whatever its
    /// transport checksum, because it was on the wire. It is verified when a stream reads it; if it is damaged, its
    /// bytes are not delivered. Flow records thus do not depend on whether streams are read. Whether a sender computes
    /// checksums is learned from its previous packets in the flow, all of which are verified up to the first right one.
    /// `Verify` leaves out all damaged packets.
    #[default]
    Auto,
}

impl ChecksumPolicy {
    /// Its name in the user interface.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown_checksums(text: &str) -> String {
    format!("unknown checksum policy \"{text}\"; hint: verify, ignore or auto")
}
