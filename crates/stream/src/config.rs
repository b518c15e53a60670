//! What a shard is told at its start.

use flowgauge_flow::FlowConfig;
use flowgauge_reassembly::{DefragmentConfig, OverlapPolicy, ReassemblyConfig};
use flowgauge_wire::DecodeOptions;

use crate::vlans::VlanAware;

/// Configuration of a [`crate::Shard`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardConfig {
    /// What is decoded and what tells flows apart.
    pub decode: DecodeOptions,
    /// What is done about checksums.
    pub checksums: ChecksumPolicy,
    /// Limits of the flow table.
    pub flow: FlowConfig,
    /// Limits of defragmentation, and what is done about overlapping fragments.
    pub defragment: DefragmentConfig,
    /// Limits of TCP reassembly, its memory among them.
    pub reassembly: ReassemblyConfig,
    /// What is done about overlapping TCP segments.
    pub overlap_policy: OverlapPolicy,
    /// Whether VLANs keep flows apart.
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

    /// Bytes of memory for the two streams of a connection, beside those of its flow.
    pub const BYTES_PER_CONNECTION: u64 = size_of::<crate::connection::Connection>() as u64;

    /// Bytes of memory for each flow at once in which senders are remembered
    /// ([`ChecksumPolicy::Auto`]).
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
    /// A packet with a wrong IP, TCP, UDP or ICMP checksum is left out, and counted as malformed.
    Verify,
    /// Checksums are not looked at.
    Ignore,
    /// As [`ChecksumPolicy::Verify`], except for senders that compute no checksums themselves. The
    /// decision needs no look ahead: a wrong checksum counts as *not computed yet* when it is
    /// exactly what Linux leaves there (the sum of the pseudo header), or when no packet of that
    /// sender to that receiver, in that protocol, with a right one was seen so far. From the first
    /// right checksum on, wrong ones are damage. (By receiver, because what a shard knows of a sender
    /// depends on which of its packets the shard gets; of a pair of addresses it gets all.) The same goes
    /// for the IPv4 header's own checksum, and zero there always means not computed. What is known is
    /// bounded: a pair that was forgotten starts anew.
    ///
    /// A TCP segment or UDP datagram that only carries payload (no SYN, FIN or RST) counts to its flow whatever its
    /// transport checksum is: it was on the wire. It is verified when a stream takes it, and if it is damaged its bytes are
    /// not read; so flow records do not depend on whether somebody reads streams. What its sender sent in the flow before
    /// tells whether the sender computes checksums: all packets up to the first right one are verified for that.
    /// `Verify` leaves out all that is damaged.
    #[default]
    Auto,
}

impl ChecksumPolicy {
    /// Name as users write it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown_checksums(text: &str) -> String {
    format!("unknown checksum policy \"{text}\"; hint: verify, ignore or auto")
}
