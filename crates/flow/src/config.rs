//! The configuration of a tracker.

use flowgauge_wire::Nanos;

/// Limits and timeouts of a [`crate::FlowTracker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Maximum number of flows; if the table is full, the one that was idle longest is evicted, and
    /// counted.
    pub max_flows: u32,
    /// Time without packets after which a TCP flow ends.
    pub tcp_idle: Nanos,
    /// The same for UDP.
    pub udp_idle: Nanos,
    /// The same for every other protocol.
    pub other_idle: Nanos,
    /// Maximum time that a record covers; the connection then continues in a further record.
    pub active: Option<Nanos>,
    /// Time that a closed TCP connection stays in the table, so that its last ACK and retransmitted
    /// FINs count.
    pub linger: Nanos,
    /// Whether a clock that sees the packets of all shards leads this one
    /// ([`crate::FlowTracker::advance`]); far forward jumps are then accepted only from it.
    pub led_clock: bool,
}

impl FlowConfig {
    /// Bytes of memory per flow, including its share of the index.
    pub const BYTES_PER_FLOW: u64 = 274;

    /// This configuration with as many flows as fit into `bytes` of memory.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> FlowConfig {
        let flows = (bytes / Self::BYTES_PER_FLOW).clamp(1, 1 << 30);
        FlowConfig {
            max_flows: flows as u32,
            ..self
        }
    }
}

impl Default for FlowConfig {
    /// TCP 300 s, UDP 60 s, others 30 s, no active timeout, 5 s linger, 1 GiB of flows.
    fn default() -> FlowConfig {
        FlowConfig {
            max_flows: 0,
            tcp_idle: Nanos::from_secs(300),
            udp_idle: Nanos::from_secs(60),
            other_idle: Nanos::from_secs(30),
            active: None,
            linger: Nanos::from_secs(5),
            led_clock: false,
        }
        .with_memory(1 << 30)
    }
}
