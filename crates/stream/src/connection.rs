//! What is kept per connection, found by the number of its flow.

use flowgauge_reassembly::{Half, OverlapPolicy};
use flowgauge_sys::prefetch::prefetch;

use crate::handler::StreamStatus;

/// Connections per allocation: 128 KiB.
const CHUNK: usize = 1024;

/// One direction: a cache line. Who talks with whom is in the flow's record, and looked up there
/// when a handler asks.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Side {
    pub(crate) half: Half,
    pub(crate) progress: Progress,
}

/// How far a direction's delivery has got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes delivered.
    pub(crate) bytes: u64,
    /// Bytes of holes before them.
    pub(crate) missing_bytes: u64,
    /// Bytes of holes that no byte followed yet.
    pub(crate) pending_gap: u64,
    /// Holes before the bytes delivered.
    pub(crate) gaps: u32,
    pub(crate) status: StreamStatus,
    pub(crate) phase: Phase,
    pub(crate) from_initiator: bool,
}

/// What has happened to a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    Unseen,
    /// This side sent SYNs and nothing else came: not worth a stream yet, it may be a scan.
    Syn,
    /// The handler knows the connection's streams.
    Open,
}

/// Both directions, indexed by `Direction` relative to the flow's key.
pub(crate) type Connection = [Side; 2];

/// Connections by the number of their flow: 128 bytes for each flow of TCP or UDP that is in the
/// flow table at the same time.
#[derive(Debug)]
pub(crate) struct Connections {
    chunks: Vec<Box<[Connection; CHUNK]>>,
    unseen: Side,
}

impl Connections {
    pub(crate) fn new(policy: OverlapPolicy) -> Connections {
        Connections {
            chunks: Vec::new(),
            unseen: Side {
                half: Half::new(policy),
                progress: Progress {
                    bytes: 0,
                    missing_bytes: 0,
                    pending_gap: 0,
                    gaps: 0,
                    status: StreamStatus::Active,
                    phase: Phase::Unseen,
                    from_initiator: false,
                },
            },
        }
    }

    /// A direction of which nothing is known.
    pub(crate) fn unseen(&self) -> Side {
        self.unseen
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: usize, direction: usize) {
        if let Some(connection) = self.get(flow) {
            prefetch(&connection[direction & 1]);
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, flow: usize) -> Option<&Connection> {
        Some(&self.chunks.get(flow / CHUNK)?[flow % CHUNK])
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, flow: usize) -> Option<&mut Connection> {
        Some(&mut self.chunks.get_mut(flow / CHUNK)?[flow % CHUNK])
    }

    /// The connection of a flow, with the memory for it made where need be.
    #[inline]
    pub(crate) fn make(&mut self, flow: usize) -> Option<&mut Connection> {
        if flow / CHUNK >= self.chunks.len() {
            self.grow(flow / CHUNK);
        }
        self.get_mut(flow)
    }

    #[cold]
    fn grow(&mut self, chunk: usize) {
        while chunk >= self.chunks.len() {
            // By way of a vector: an array would be built on the stack.
            match vec![[self.unseen; 2]; CHUNK].into_boxed_slice().try_into() {
                Ok(connections) => self.chunks.push(connections),
                Err(_) => return,
            }
        }
    }

    /// Forgets the connection of a flow.
    pub(crate) fn clear(&mut self, flow: usize) {
        let unseen = self.unseen;
        if let Some(connection) = self.get_mut(flow) {
            *connection = [unseen; 2];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_cache_line() {
        assert_eq!(size_of::<Side>(), 64);
        assert_eq!(size_of::<Connection>(), 128);
    }

    #[test]
    fn connections_are_made_and_cleared() {
        let mut connections = Connections::new(OverlapPolicy::First);
        assert!(connections.get(5000).is_none());
        let connection = connections.make(5000).unwrap();
        assert_eq!(connection[1].progress.phase, Phase::Unseen);
        connection[1].progress.phase = Phase::Open;
        connections.clear(5000);
        let connection = connections.get(5000).unwrap();
        assert_eq!(connection[1].progress.phase, Phase::Unseen);
    }
}
