//! TCP reassembly for callers that identify connections themselves.

use flowgauge_flow::{CaptureClock, FlowConfig, FlowId, FlowTracker, PacketFlow, PacketFlowFlags};
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, Nanos, TcpFlags};

use crate::checksums::Checksums;
use crate::config::ShardConfig;
use crate::connection::Phase;
use crate::handler::{Handler, StreamFlow, StreamStatus};
use crate::statistics::ChecksumStatistics;
use crate::streams::{Pass, Streams, TCP, sides, stream_id};

/// Reassembles the segments of connections without a flow table: the caller numbers connections, small and dense, and
/// reports their ends. Events are those of the engine, but a stream's [identity](crate::Stream::identity) is unknown.
/// Requires a [`Handler`] with `STREAMS`.
#[derive(Debug)]
pub struct Sequencer {
    streams: Streams,
    checksums: Checksums,
    clock: CaptureClock,
    /// Where streams would be looked up; it has none.
    tracker: FlowTracker,
}

/// A packet's connection, given by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The connection's number. [`Decoded::direction`] tells its two directions apart.
    pub connection: u32,
    /// Whether the connection's initiator sent the packet.
    pub from_initiator: bool,
}

impl Sequencer {
    /// An empty sequencer, for about `connections` at the same time. Of the configuration, only the parts about
    /// segments and checksums apply.
    pub fn new(config: &ShardConfig, connections: u32) -> Sequencer {
        let none = FlowConfig {
            max_flows: 1,
            ..FlowConfig::default()
        };
        Sequencer {
            streams: Streams::new(config.reassembly, config.overlap_policy, connections),
            checksums: Checksums::new(config.checksums, connections),
            clock: CaptureClock::default(),
            tracker: FlowTracker::new(none),
        }
    }

    /// Processes a TCP segment. If the capture clock enters another tick (of 1.07 s) with it, data waiting after holes
    /// that are then too old is delivered first. Returns whether the segment counts, which it does not if it is
    /// damaged, a fragment, or without a whole header.
    #[inline]
    pub fn packet<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
        numbered: Numbered,
        handler: &mut H,
    ) -> bool {
        if !self.clock.goes_on(packet.time) {
            self.cross(packet.time, handler);
        }
        let is_whole = packet.flags.0 & (DecodeFlags::TRANSPORT.0 | DecodeFlags::FRAGMENT.0)
            == DecodeFlags::TRANSPORT.0;
        if !is_whole || packet.key.protocol != TCP || !self.checksums.takes(batch, decoded, packet)
        {
            return false;
        }
        let mut flags = PacketFlowFlags(0);
        if numbered.from_initiator {
            flags.insert(PacketFlowFlags::FROM_INITIATOR);
        }
        let id = FlowId(numbered.connection);
        if packet.tcp_flags.contains(TcpFlags::RST) && self.is_reset_by(id, packet) {
            flags.insert(PacketFlowFlags::RST_VALID);
        }
        let pass = Pass {
            batch,
            decoded,
            tracker: &self.tracker,
        };
        let flow = PacketFlow { id, flags };
        self.streams.payload(&pass, packet, flow, handler);
        true
    }

    /// Whether a RST fits into its connection: at the next expected byte or inside of what its
    /// receiver may have allowed (RFC 5961, section 3.2), or nothing is known against it.
    fn is_reset_by(&self, id: FlowId, packet: &Decoded) -> bool {
        let Some(connection) = self.streams.connections.get(id) else {
            return true;
        };
        let direction = packet.direction.index();
        let (half, peer) = (&connection[direction].half, &connection[1 - direction].half);
        match half.distance_to(packet.seq) {
            None => true,
            Some(distance) => distance >= 0 && distance as u32 <= peer.room(),
        }
    }

    /// Whether both directions of a connection have reached their FIN, or it was reset.
    pub fn is_closed(&self, connection: u32) -> bool {
        let connection = self.streams.connections.get(FlowId(connection));
        connection.is_some_and(|connection| {
            let progress = connection.map(|side| side.progress);
            progress.iter().any(|side| side.status == StreamStatus::Rst)
                || progress.iter().all(|side| side.status == StreamStatus::Fin)
        })
    }

    /// Ends a connection at `time`, with `status` if its directions did not end themselves; waiting data is delivered.
    /// Its number may be reused.
    pub fn end<H: Handler>(
        &mut self,
        connection: u32,
        status: StreamStatus,
        time: Nanos,
        handler: &mut H,
    ) {
        let id = FlowId(connection);
        let Some(sides_of) = self.streams.connections.get(id) else {
            return;
        };
        if sides_of[0].progress.phase == Phase::Open {
            let first = usize::from(!sides_of[0].progress.from_initiator);
            for direction in [first, 1 - first] {
                let stream = stream_id(id, direction);
                let mut trailing = 0;
                self.streams.work_on(
                    stream,
                    time,
                    &self.tracker,
                    handler,
                    |reassembler, half, peer, out| trailing = reassembler.finish(half, peer, out),
                );
                let Some(connection) = self.streams.connections.get_mut(id) else {
                    return;
                };
                let (side, _) = sides(connection, direction);
                if side.progress.status == StreamStatus::Active {
                    side.progress.status = status;
                }
                trailing += side.progress.pending_gap;
                let flow = StreamFlow::Tracked(&self.tracker, id);
                handler.stream_terminated(&side.progress.stream(stream, flow), trailing);
            }
        }
        self.streams.connections.clear(id);
    }

    /// Sets the time to `now`, given by packets of all kinds: gives up holes that are too old if the capture clock has
    /// entered another tick, and makes room if memory is short. Call it after each batch.
    #[inline]
    pub fn maintain<H: Handler>(&mut self, now: Nanos, handler: &mut H) {
        let before = self.clock.tick();
        self.clock.trusted(now);
        if self.clock.tick() != before {
            self.look_after_holes(handler);
        }
        self.streams.maintain(now, &self.tracker, handler);
    }

    /// A packet that may enter another tick.
    #[cold]
    fn cross<H: Handler>(&mut self, time: Nanos, handler: &mut H) {
        let before = self.clock.tick();
        self.clock.packet(time, None);
        if self.clock.tick() != before {
            self.look_after_holes(handler);
        }
    }

    /// As of the beginning of the tick: which packet enters it depends on how the input is cut into
    /// batches.
    fn look_after_holes<H: Handler>(&mut self, handler: &mut H) {
        let now = self.clock.tick_began();
        self.streams.look_after_holes(now, &self.tracker, handler);
    }

    /// Prefetches the state of a packet's connection.
    #[inline(always)]
    pub fn prefetch(&self, connection: u32, packet: &Decoded) {
        let direction = packet.direction.index();
        self.streams
            .connections
            .prefetch(FlowId(connection), direction);
    }

    /// Bytes that arrived repeatedly, in all directions so far: retransmissions.
    pub fn old_bytes(&self) -> u64 {
        self.streams.reassembler().old_bytes()
    }

    /// Counters of checksums.
    pub fn checksums(&self) -> ChecksumStatistics {
        self.checksums.statistics()
    }
}
