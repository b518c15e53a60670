//! Segments that are not simply next, and what waits for them.

use flowgauge_flow::{FlowId, FlowTracker, PacketFlow};
use flowgauge_reassembly::{Half, Reassembler, Segment};
use flowgauge_wire::{Decoded, Nanos, TcpFlags};

use crate::delivery::Delivery;
use crate::handler::{Handler, Remark, StreamFlow};
use crate::streams::{Pass, Streams, after, sides, stream_id};

/// Directions relieved per batch while memory is tight.
const RELIEFS: usize = 1024;

impl Streams {
    /// A segment that is not simply next.
    #[cold]
    #[inline(never)]
    pub(crate) fn segment<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        seq: u32,
        handler: &mut H,
    ) {
        let segment = Segment {
            seq,
            bytes: pass.decoded.payload(pass.batch, packet),
            len: packet.payload_len,
            fin: packet.tcp_flags.contains(TcpFlags::FIN),
            time: packet.time,
        };
        let id = stream_id(flow.id, packet.direction.index());
        let time = packet.time;
        if self.pass_over(id, &segment, pass.tracker, handler) {
            return;
        }
        self.reassembler
            .set_ceiling(handler.waiting_ceiling(Some(id)));
        let before = self.reassembler.statistics();
        let passed = match H::REMARKS {
            true => self.passed_before(id, &segment),
            false => 0,
        };
        self.work_on(
            id,
            time,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| {
                reassembler.segment(id, half, peer, &segment, out);
            },
        );
        let now = self.reassembler.statistics();
        if now.conflicts != before.conflicts {
            handler.stream_conflict(id);
        }
        if H::REMARKS {
            let closed = now.after_fin_bytes - before.after_fin_bytes;
            let again = now.old_bytes + now.overlap_bytes;
            let remark = Remark {
                time,
                repeated: (again - before.old_bytes - before.overlap_bytes).max(passed),
                conflicting: now.conflict_bytes - before.conflict_bytes,
                // Behind its FIN a direction takes nothing, not what came before it, either.
                after_fin: closed.saturating_sub(passed),
                implausible: now.implausible != before.implausible,
            };
            let nothing = Remark {
                time,
                ..Remark::default()
            };
            if remark != nothing
                && let Some(connection) = self.connections.get(flow.id)
            {
                let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
                let side = &connection[packet.direction.index()];
                handler.stream_remark(&side.progress.stream(id, tracked), &remark);
            }
        }
    }

    /// How many bytes of a segment are before those that the stream has got to.
    fn passed_before(&self, id: u32, segment: &Segment<'_>) -> u64 {
        let connection = self.connections.get(FlowId(id / 2));
        let half = connection.map(|connection| &connection[id as usize & 1].half);
        let ahead = half.and_then(|half| half.distance_to(segment.seq));
        match ahead {
            Some(ahead) if ahead < 0 => u64::from(ahead.unsigned_abs().min(segment.len)),
            _ => 0,
        }
    }

    /// A packet that acknowledges something while segments of its receiver wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        self.acknowledged(pass, packet, flow, handler);
        if packet.payload_len != 0 {
            return self.segment(pass, packet, flow, packet.seq, handler);
        }
        if let Some(connection) = self.connections.get_mut(flow.id) {
            connection[packet.direction.index()]
                .half
                .note_sent(packet.seq);
        }
    }

    /// The packet's sender has acknowledged something while segments of its peer wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn acknowledged<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let id = stream_id(flow.id, 1 - packet.direction.index());
        let time = packet.time;
        let has_data = packet.payload_len != 0;
        self.work_on(
            id,
            time,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| match has_data {
                true => reassembler.answered(half, peer, time, out),
                false => reassembler.advance(half, peer, time, out),
            },
        );
    }

    /// Relieves streams while memory is tight.
    #[inline]
    pub(crate) fn maintain<H: Handler>(
        &mut self,
        now: Nanos,
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        if self.reassembler.waiting() != 0 {
            self.relieve(now, tracker, handler);
        }
    }

    /// Gives up holes of streams that fell silent: whenever the capture clock enters another tick.
    pub(crate) fn look_after_holes<H: Handler>(
        &mut self,
        now: Nanos,
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        if self.reassembler.waiting() == 0 {
            return;
        }
        for queue in 0..self.reassembler.queues() {
            if let Some(id) = self.reassembler.owner_of(queue) {
                self.work_on(id, now, tracker, handler, |reassembler, half, peer, out| {
                    reassembler.advance(half, peer, now, out);
                });
            }
        }
    }

    #[cold]
    fn relieve<H: Handler>(&mut self, now: Nanos, tracker: &FlowTracker, handler: &mut H) {
        let lowest = handler.waiting_ceiling(None);
        for _ in 0..RELIEFS {
            if !self.reassembler.is_tight(lowest) {
                break;
            }
            let Some(id) = self.reassembler.visit() else {
                continue;
            };
            let ceiling = handler.waiting_ceiling(Some(id));
            if ceiling != lowest && !self.reassembler.is_tight(ceiling) {
                continue;
            }
            self.work_on(id, now, tracker, handler, |reassembler, half, _, out| {
                reassembler.relieve(half, out);
            });
        }
    }

    /// Lets `act` work on the direction `id` at `time`.
    pub(crate) fn work_on<H: Handler>(
        &mut self,
        id: u32,
        time: Nanos,
        tracker: &FlowTracker,
        handler: &mut H,
        act: impl FnOnce(&mut Reassembler, &mut Half, &Half, &mut Delivery<'_, H>),
    ) {
        let flow = FlowId(id / 2);
        let Some(connection) = self.connections.get_mut(flow) else {
            return;
        };
        let (side, peer) = sides(connection, id as usize & 1);
        let mut delivery = Delivery {
            id,
            flow: StreamFlow::Tracked(tracker, flow),
            progress: &mut side.progress,
            total: &mut self.delivered,
            time,
            complete: time,
            handler,
        };
        act(
            &mut self.reassembler,
            &mut side.half,
            &peer.half,
            &mut delivery,
        );
        if after(side, peer) && H::PACKETS {
            let tracked = StreamFlow::Tracked(tracker, flow);
            handler.stream_closed(&side.progress.stream(id, tracked));
        }
    }
}
