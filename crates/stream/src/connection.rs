//! The state of a connection, found by the number of its flow.

use flowgauge_flow::FlowId;
use flowgauge_flow::arena::Arena;
use flowgauge_reassembly::{Half, OverlapPolicy};
use flowgauge_sys::prefetch::prefetch_address;

use crate::handler::StreamStatus;
use crate::streams::sides;

/// [`Half::note`]: the handler knows the connection's streams and they have begun.
pub(crate) const OPEN: u16 = 1;
/// [`Half::note`]: segments of the opposite direction wait behind a hole.
pub(crate) const PEER_WAITS: u16 = 2;

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
    /// [`ANNOUNCED`], [`SKIPS`] and [`RESUMES`].
    pub(crate) marks: u8,
}

/// [`Progress::marks`]: the handler knows the connection's streams, whatever the phase ([`Handler::PACKETS`]).
///
/// [`Handler::PACKETS`]: crate::Handler::PACKETS
pub(crate) const ANNOUNCED: u8 = 1;
/// [`Progress::marks`]: bytes before a position are not looked at ([`Want::From`](crate::Want::From)).
pub(crate) const SKIPS: u8 = 2;
/// [`Progress::marks`]: nothing was wanted, and is again: from the next segment on.
pub(crate) const RESUMES: u8 = 4;

impl Progress {
    /// Whether the handler knows of it.
    pub(crate) fn is_known(&self) -> bool {
        self.has(ANNOUNCED) || self.phase == Phase::Open
    }

    /// Whether all of these are set.
    #[inline(always)]
    pub(crate) fn has(&self, marks: u8) -> bool {
        self.marks & marks == marks
    }
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
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    connections: Arena<Connection>,
    unseen: Side,
}

impl Connections {
    /// Room for about `limit` connections.
    pub(crate) fn new(policy: OverlapPolicy, limit: u32) -> Connections {
        Connections {
            connections: Arena::new(limit as usize),
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
                    marks: 0,
                },
            },
        }
    }

    /// Brings a direction's line closer, if there is such a flow.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: FlowId, direction: usize) {
        let at = if flow.is_some() { flow.0 } else { 0 };
        let connection = self.connections.address(at).cast::<Side>();
        prefetch_address(connection.wrapping_add(direction).cast());
    }

    #[inline(always)]
    pub(crate) fn get(&self, flow: FlowId) -> Option<&Connection> {
        self.connections.get(flow.0)
    }

    /// The direction with this number and the opposite one, if the handler knows them.
    pub(crate) fn known_mut(&mut self, stream: u32) -> Option<(&mut Side, &mut Side)> {
        let connection = self.get_mut(FlowId(stream / 2))?;
        let (side, peer) = sides(connection, stream as usize & 1);
        side.progress.is_known().then_some((side, peer))
    }

    /// All directions that the handler knows, by number.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u32, &Side)> {
        let connections = (0..self.connections.len()).filter_map(|at| self.connections.get(at));
        let sides = (0..).zip(connections.flatten());
        sides.filter(|(_, side)| side.progress.is_known())
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, flow: FlowId) -> Option<&mut Connection> {
        self.connections.get_mut(flow.0)
    }

    /// The connection of a flow, with the memory for it made where need be.
    #[inline(always)]
    pub(crate) fn make(&mut self, flow: FlowId) -> Option<&mut Connection> {
        if flow.0 >= self.connections.len() {
            self.grow(flow);
        }
        self.get_mut(flow)
    }

    #[inline(never)]
    fn grow(&mut self, flow: FlowId) {
        while flow.is_some() && flow.0 >= self.connections.len() {
            self.connections.push([self.unseen; 2]);
        }
    }

    /// Forgets the connection of a flow.
    #[inline(always)]
    pub(crate) fn clear(&mut self, flow: FlowId) {
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
        let mut connections = Connections::new(OverlapPolicy::First, 10_000);
        assert!(connections.get(FlowId(5000)).is_none());
        let connection = connections.make(FlowId(5000)).unwrap();
        assert_eq!(connection[1].progress.phase, Phase::Unseen);
        connection[1].progress.phase = Phase::Open;
        connections.clear(FlowId(5000));
        let connection = connections.get(FlowId(5000)).unwrap();
        assert_eq!(connection[1].progress.phase, Phase::Unseen);
    }
}
