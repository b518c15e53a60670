//! Out-of-order segments, and segments that wait.

use flowgauge_flow::{FlowId, FlowTracker, PacketFlow};
use flowgauge_reassembly::{
    Account, Forgotten, Half, HalfFlags, Reassembler, ReassemblyStatistics, Segment, Unplaced,
};
use flowgauge_wire::{Decoded, Nanos, TcpFlags};

use crate::delivery::Delivery;
use crate::handler::{Handler, Remark, StreamFlow};
use crate::streams::{CONTROL, Pass, Streams, after, claimed, sides, stream_id};

/// How things stood before a segment.
struct Before {
    statistics: ReassemblyStatistics,
    /// Bytes of it before those that the stream had got to.
    passed: u64,
    /// The direction had got to its FIN.
    is_closed: bool,
}

impl Before {
    /// What there is to say of the segment. (What was counted with it can be of segments that waited.)
    fn remark(&self, now: &ReassemblyStatistics, segment: &Segment<'_>) -> Remark {
        let before = &self.statistics;
        let len = u64::from(segment.len);
        let implausible = now.implausible != before.implausible;
        let again = now.old_bytes + now.overlap_bytes;
        let again = again - before.old_bytes - before.overlap_bytes;
        let closed = now.after_fin_bytes - before.after_fin_bytes;
        Remark {
            time: segment.time,
            repeated: match implausible {
                true => 0,
                false => again.max(self.passed).min(len),
            },
            conflicting: (now.conflict_bytes - before.conflict_bytes).min(len),
            // Behind its FIN a direction takes nothing, not what came before it, either.
            after_fin: match self.is_closed {
                true => closed.saturating_sub(self.passed),
                false => closed.min(len),
            },
            implausible,
        }
    }
}

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
            account: match packet.tcp_flags.intersects(CONTROL) {
                _ if self.is_refused => Account::Nothing,
                true => Account::Bytes,
                false => Account::Packet,
            },
        };
        let id = stream_id(flow.id, packet.direction.index());
        let time = packet.time;
        if self.pass_over(id, &segment, pass.tracker, handler) {
            if H::PACKETS && segment.account != Account::Nothing && self.is_resuming(id) {
                let unplaced = Unplaced {
                    bytes: segment.len - claimed(packet),
                    whole: true,
                    outside: true,
                    ..Unplaced::default()
                };
                handler.stream_unplaced(id, packet, &unplaced);
            }
            return;
        }
        self.reassembler
            .set_ceiling(handler.waiting_ceiling(Some(id)));
        let conflicts = self.reassembler.conflicts();
        let before = H::REMARKS.then(|| self.before(id, &segment));
        // What no frame had takes its place in the stream, and has no account.
        let claimed = claimed(packet);
        let sent = Segment {
            len: segment.len - claimed,
            fin: segment.fin && claimed == 0,
            ..segment
        };
        let mut unplaced = Unplaced::default();
        self.work_on(
            id,
            time,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| {
                unplaced = reassembler.segment(id, half, peer, &sent, out);
                if claimed != 0 {
                    let rest = Segment {
                        seq: seq.wrapping_add(sent.len),
                        bytes: &[],
                        len: claimed,
                        account: Account::Nothing,
                        ..segment
                    };
                    reassembler.segment(id, half, peer, &rest, out);
                }
            },
        );
        if H::PACKETS && unplaced.bytes != 0 && segment.account != Account::Nothing {
            handler.stream_unplaced(id, packet, &unplaced);
        }
        if self.reassembler.conflicts() != conflicts {
            handler.stream_conflict(id);
        }
        if let Some(before) = before
            && let remark = before.remark(&self.reassembler.statistics(), &segment)
            && remark
                != (Remark {
                    time,
                    ..Remark::default()
                })
            && let Some(connection) = self.connections.get(flow.id)
        {
            let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
            let side = &connection[packet.direction.index()];
            handler.stream_remark(&side.progress.stream(id, tracked), &remark);
        }
    }

    /// How things stand before a segment.
    fn before(&self, id: u32, segment: &Segment<'_>) -> Before {
        let connection = self.connections.get(FlowId(id / 2));
        let half = connection.map(|connection| &connection[id as usize & 1].half);
        let ahead = half.and_then(|half| half.distance_to(segment.seq));
        Before {
            statistics: self.reassembler.statistics(),
            passed: match ahead {
                Some(ahead) if ahead < 0 => u64::from(ahead.unsigned_abs().min(segment.len)),
                _ => 0,
            },
            is_closed: half.is_some_and(|half| half.flags().contains(HalfFlags::CLOSED)),
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
        if H::PACKETS {
            let forgotten = self.reassembler.take_forgotten();
            if forgotten != Forgotten::default() {
                handler.stream_forgotten(id, forgotten);
            }
        }
        if after(side, peer) && H::PACKETS {
            let tracked = StreamFlow::Tracked(tracker, flow);
            handler.stream_closed(&side.progress.stream(id, tracked));
        }
    }
}
