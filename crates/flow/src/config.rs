//! What a tracker is told at its start.

use flowgauge_wire::Nanos;

/// Limits and timeouts of a [`crate::FlowTracker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// The most flows held at once; with the table full the longest idle goes, counted.
    pub max_flows: u32,
    /// A TCP flow without packets for this long has ended.
    pub tcp_idle: Nanos,
    /// The same for UDP.
    pub udp_idle: Nanos,
    /// The same for every other protocol.
    pub other_idle: Nanos,
    /// A record that covers more time than this is cut; the connection goes on in a further record.
    pub active: Option<Nanos>,
    /// How long a closed TCP connection stays, so that its last ACK and retransmitted FINs count.
    pub linger: Nanos,
    /// Another clock that sees the packets of all shards leads this one
    /// ([`crate::FlowTracker::advance`]): a jump far ahead is believed only from it.
    pub led_clock: bool,
}

impl FlowConfig {
    /// Bytes of memory one flow needs, its share of the index included.
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
