//! From packets with their flows to stream events.

use flowgauge_flow::{
    EndReason, EndedFlow, FlowId, FlowTracker, Follower, PacketFlow, PacketFlowFlags, Taker,
};
use flowgauge_reassembly::tcp::HalfFlags;
use flowgauge_reassembly::{
    GapCause, Half, OverlapPolicy, Reassembler, ReassemblyConfig, Receiver, Segment,
};
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, Ledger, Nanos, TcpFlags};

use crate::connection::{Connection, Connections, OPEN, PEER_WAITS, Phase, Progress, Side};
use crate::handler::{Chunk, Handler, Stream, StreamFlow, StreamStatus};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// With exactly ACK of these a packet begins and ends nothing.
const PLAIN: TcpFlags =
    TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0 | TcpFlags::ACK.0);
const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
/// Directions relieved per batch while memory is tight.
const RELIEFS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) connections: Connections,
    pub(crate) reassembler: Reassembler,
    live: u64,
    pub(crate) created: u64,
    pub(crate) high: u64,
    pub(crate) delivered: Delivered,
}

/// Totals over all streams.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) bytes: u64,
    pub(crate) chunks: u64,
}

/// What is read while a packet is dealt with.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) decoded: &'a DecodedBatch,
    pub(crate) tracker: &'a FlowTracker,
}

/// Takes a batch's packets to their streams as soon as the flow table is done with each.
pub(crate) struct FollowStreams<'a, H> {
    pub(crate) streams: &'a mut Streams,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) decoded: &'a DecodedBatch,
    pub(crate) handler: &'a mut H,
    pub(crate) ledger: &'a mut Ledger,
}

impl<H: Handler> Follower for FollowStreams<'_, H> {
    #[inline(always)]
    fn fetch(&mut self, packet: &Decoded, guess: FlowId) {
        let direction = packet.direction.index();
        self.handler
            .prefetch(stream_id(guess, direction), packet.payload_len != 0);
        self.streams.connections.prefetch(guess, direction);
        // What begins or ends one direction looks at the other, too.
        if packet.begins_or_ends() {
            self.streams.connections.prefetch(guess, 1 - direction);
        }
    }

    #[inline(always)]
    fn packet(&mut self, tracker: &FlowTracker, packet: &Decoded, flow: PacketFlow) {
        let pass = Pass {
            batch: self.batch,
            decoded: self.decoded,
            tracker,
        };
        if H::PACKETS {
            let handler = &mut *self.handler;
            handler.arrived(packet.payload_len != 0);
            let goes_on = !handler.attends()
                && self
                    .streams
                    .goes_on::<_, true>(&pass, packet, flow, handler);
            if !goes_on {
                self.streams
                    .offer(&pass, packet, flow, handler, self.ledger);
            }
        } else {
            self.streams.payload(&pass, packet, flow, self.handler);
        }
    }
}

/// Ends the streams of flows that have ended, and hands their records on.
pub(crate) struct EndStreams<'a, H> {
    pub(crate) streams: &'a mut Streams,
    pub(crate) handler: &'a mut H,
}

impl<H: Handler> Taker for EndStreams<'_, H> {
    #[inline(always)]
    fn fetch(&mut self, flow: FlowId) {
        if H::STREAMS {
            self.streams.prefetch(flow, self.handler);
        }
    }

    #[inline(always)]
    fn take(&mut self, ended: &EndedFlow<'_>) {
        if !H::FLOWS {
            if H::STREAMS {
                self.streams
                    .end(ended, StreamFlow::Ended(ended), self.handler);
            }
            return;
        }
        ended.with_record(|record| {
            if H::STREAMS {
                self.streams
                    .end(ended, StreamFlow::Record(record), self.handler);
            }
            self.handler.flow(record);
        });
    }
}

impl Streams {
    /// Nothing was seen; room for the streams of about `limit` flows.
    pub(crate) fn new(config: ReassemblyConfig, policy: OverlapPolicy, limit: u32) -> Streams {
        Streams {
            connections: Connections::new(policy, limit),
            reassembler: Reassembler::new(config),
            live: 0,
            created: 0,
            high: 0,
            delivered: Delivered::default(),
        }
    }

    pub(crate) fn reassembler(&self) -> &Reassembler {
        &self.reassembler
    }

    /// Takes a packet's payload.
    #[inline(always)]
    pub(crate) fn payload<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        if !is_usual(packet) || !flow.id.is_some() {
            return;
        }
        match packet.key.protocol {
            TCP => self.tcp(pass, packet, flow, handler),
            UDP => self.udp(pass, packet, flow, handler),
            _ => {}
        }
    }

    /// Takes the payload of a packet that is simply the next one of a direction in full swing; with
    /// `SHOW` the handler may see it first. Returns whether it was one.
    #[inline(always)]
    pub(crate) fn goes_on<H: Handler, const SHOW: bool>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) -> bool {
        if !is_usual(packet) {
            return false;
        }
        match packet.key.protocol {
            TCP => self.tcp_goes_on::<H, SHOW>(pass, packet, flow, handler),
            UDP => self.udp_goes_on::<H, SHOW>(pass, packet, flow, handler),
            _ => false,
        }
    }

    /// Relieves streams while memory is tight.
    #[inline]
    pub(crate) fn maintain<H: Handler>(&mut self, tracker: &FlowTracker, handler: &mut H) {
        if self.reassembler.waiting() != 0 {
            self.relieve(tracker, handler);
        }
    }

    /// Gives up holes of streams that fell silent: whenever the capture clock enters another tick.
    pub(crate) fn look_after_holes<H: Handler>(&mut self, tracker: &FlowTracker, handler: &mut H) {
        if self.reassembler.waiting() == 0 {
            return;
        }
        let now = tracker.clock();
        for queue in 0..self.reassembler.queues() {
            if let Some(id) = self.reassembler.owner_of(queue) {
                self.work_on(id, now, tracker, handler, |reassembler, half, peer, out| {
                    reassembler.advance(half, peer, now, out);
                });
            }
        }
    }

    #[cold]
    fn relieve<H: Handler>(&mut self, tracker: &FlowTracker, handler: &mut H) {
        let now = tracker.clock();
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

    /// Fetches what [`Streams::end`] needs of a flow.
    #[inline(always)]
    pub(crate) fn prefetch<H: Handler>(&self, flow: FlowId, handler: &mut H) {
        for direction in [0, 1] {
            self.connections.prefetch(flow, direction);
            handler.prefetch(stream_id(flow, direction), true);
        }
    }

    /// Ends the streams of a flow whose record is complete.
    #[inline]
    pub(crate) fn end<H: Handler>(
        &mut self,
        ended: &EndedFlow<'_>,
        flow: StreamFlow<'_>,
        handler: &mut H,
    ) {
        let (id, protocol) = (ended.id(), ended.protocol());
        let has_streams = H::PACKETS || matches!(protocol, TCP | UDP);
        if !has_streams || ended.reason() == EndReason::Active {
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let progress = &connection[0].progress;
        if progress.phase == Phase::Open || progress.announced {
            let status = match ended.reason() {
                EndReason::Fin => StreamStatus::Fin,
                EndReason::Rst => StreamStatus::Rst,
                EndReason::Idle | EndReason::Active => StreamStatus::Timeout,
                EndReason::EndOfInput => StreamStatus::EndOfInput,
                EndReason::Evicted => StreamStatus::Evicted,
            };
            let first = usize::from(!connection[0].progress.from_initiator);
            for direction in [first, 1 - first] {
                let (side, peer) = sides(connection, direction);
                let mut trailing = 0;
                let stream = side.progress.stream(stream_id(id, direction), flow);
                handler.stream_ends(&stream, ended.at());
                if protocol == TCP {
                    let mut delivery = Delivery {
                        id: stream_id(id, direction),
                        flow,
                        progress: &mut side.progress,
                        total: &mut self.delivered,
                        time: ended.end(),
                        handler,
                    };
                    trailing = self
                        .reassembler
                        .finish(&mut side.half, &peer.half, &mut delivery);
                }
                if side.progress.status == StreamStatus::Active {
                    side.progress.status = status;
                }
                trailing += side.progress.pending_gap;
                if side.half.is_abandoned() {
                    // Nobody misses it.
                    trailing = 0;
                }
                let stream = side.progress.stream(stream_id(id, direction), flow);
                handler.stream_terminated(&stream, trailing);
            }
            self.live -= 1;
        }
        self.connections.clear(id);
    }

    #[inline(always)]
    fn tcp<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        if !self.tcp_goes_on::<H, false>(pass, packet, flow, handler) {
            self.remarkable(pass, packet, flow, handler);
        }
    }

    #[inline(always)]
    fn tcp_goes_on<H: Handler, const SHOW: bool>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) -> bool {
        let direction = packet.direction.index();
        let len = packet.payload_len;
        if let Some(connection) = self.connections.get_mut(flow.id)
            && let side = &mut connection[direction]
            && packet.tcp_flags.0 & PLAIN.0 == TcpFlags::ACK.0
            && packet.payload_captured == len
            && (side.half).goes_on(packet.seq, len, packet.ack, packet.window, OPEN)
        {
            if SHOW && handler.follows() {
                side.show(pass, packet, flow, handler);
            }
            if len != 0 {
                Delivery {
                    id: stream_id(flow.id, direction),
                    flow: StreamFlow::Tracked(pass.tracker, flow.id),
                    progress: &mut side.progress,
                    total: &mut self.delivered,
                    time: packet.time,
                    handler,
                }
                .deliver(pass.decoded.payload(pass.batch, packet));
            }
            return true;
        }
        false
    }

    /// A packet that is not simply the next one of a direction in full swing.
    #[inline(never)]
    fn remarkable<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let direction = packet.direction.index();
        let connection = match self.connections.get_mut(flow.id) {
            Some(connection) if connection[direction].progress.phase == Phase::Open => connection,
            _ => return self.first(pass, packet, flow, handler),
        };
        if packet.tcp_flags.intersects(CONTROL) {
            return self.control(pass, packet, flow, handler);
        }
        let side = &mut connection[direction];
        // Its note says whether the peer has a hole: its line is not touched otherwise.
        if packet.tcp_flags.contains(TcpFlags::ACK)
            && side.half.note_ack(packet.ack, packet.window)
            && side.half.note & PEER_WAITS != 0
        {
            return self.answer(pass, packet, flow, handler);
        }
        let len = packet.payload_len;
        if len == 0 {
            side.half.note_sent(packet.seq);
        } else if packet.payload_captured == len && side.half.take_in_order(packet.seq, len) {
            Delivery {
                id: stream_id(flow.id, direction),
                flow: StreamFlow::Tracked(pass.tracker, flow.id),
                progress: &mut side.progress,
                total: &mut self.delivered,
                time: packet.time,
                handler,
            }
            .deliver(pass.decoded.payload(pass.batch, packet));
        } else {
            self.segment(pass, packet, flow, packet.seq, handler);
        }
    }

    /// A packet that acknowledges something while segments of its receiver wait.
    #[cold]
    #[inline(never)]
    fn answer<H: Handler>(
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

    /// A packet with SYN, FIN or RST.
    #[inline(never)]
    fn control<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let direction = packet.direction.index();
        let Some(connection) = self.connections.get_mut(flow.id) else {
            return;
        };
        let (side, peer) = sides(connection, direction);
        let flags = packet.tcp_flags;
        if flags.contains(TcpFlags::RST) {
            if flow.flags.contains(PacketFlowFlags::RST_VALID) {
                // It says how far its sender had got, and what it had received.
                side.half.note_sent(packet.seq);
                if flags.contains(TcpFlags::ACK) {
                    side.half.note_ack(packet.ack, packet.window);
                }
                let id = stream_id(flow.id, direction);
                for (id, progress) in [(id, &mut side.progress), (id ^ 1, &mut peer.progress)] {
                    if progress.status == StreamStatus::Active {
                        progress.status = StreamStatus::Rst;
                        let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
                        if H::PACKETS {
                            handler.stream_closed(&progress.stream(id, tracked));
                        }
                    }
                }
            }
            return;
        }
        let syn = flags.contains(TcpFlags::SYN);
        let mut seq = packet.seq;
        if syn {
            seq = seq.wrapping_add(1);
            side.half.start_at(seq);
            let bytes = pass.decoded.bytes(pass.batch, packet);
            side.half.set_window_scale(window_scale(bytes, packet));
        }
        if flags.contains(TcpFlags::ACK) {
            if side.half.note_ack(packet.ack, packet.window) && side.half.note & PEER_WAITS != 0 {
                self.acknowledged(pass, packet, flow, handler);
            }
            if syn && let Some(connection) = self.connections.get_mut(flow.id) {
                sides(connection, direction).1.half.start_at(packet.ack);
            }
        }
        if flags.contains(TcpFlags::FIN) {
            self.last(pass, packet, flow, seq, handler);
        } else if packet.payload_len > 0 {
            self.segment(pass, packet, flow, seq, handler);
        }
    }

    /// A packet with a FIN.
    #[inline(always)]
    fn last<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        seq: u32,
        handler: &mut H,
    ) {
        let direction = packet.direction.index();
        let Some(connection) = self.connections.get_mut(flow.id) else {
            return;
        };
        let (side, peer) = sides(connection, direction);
        let len = packet.payload_len;
        if packet.payload_captured != len || !side.half.take_last(seq, len, &peer.half) {
            return self.segment(pass, packet, flow, seq, handler);
        }
        let closed = after(side, peer);
        if len != 0 {
            Delivery {
                id: stream_id(flow.id, direction),
                flow: StreamFlow::Tracked(pass.tracker, flow.id),
                progress: &mut side.progress,
                total: &mut self.delivered,
                time: packet.time,
                handler,
            }
            .deliver(pass.decoded.payload(pass.batch, packet));
        }
        if H::PACKETS && closed {
            let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
            handler.stream_closed(&side.progress.stream(stream_id(flow.id, direction), tracked));
        }
    }

    /// A packet of a flow that has no streams yet.
    #[inline(never)]
    fn first<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let flags = packet.tcp_flags;
        if flags.contains(TcpFlags::RST) {
            return;
        }
        let Some(connection) = self.connections.make(flow.id) else {
            return;
        };
        let (side, peer) = sides(connection, packet.direction.index());
        let has_data = packet.payload_len > 0;
        let syn = flags.contains(TcpFlags::SYN);
        let ack = flags.contains(TcpFlags::ACK);
        if syn && !ack && !has_data && peer.progress.phase == Phase::Unseen {
            // The newest counts, so begin anew.
            side.half.restart();
            side.progress.phase = Phase::Syn;
            side.half.start_at(packet.seq.wrapping_add(1));
            let bytes = pass.decoded.bytes(pass.batch, packet);
            side.half.set_window_scale(window_scale(bytes, packet));
            return;
        }
        if side.progress.phase == Phase::Syn && ack {
            // The SYN-ACK was not captured: what the initiator acknowledges first is its number.
            peer.half.start_at(packet.ack);
        }
        if !syn && !has_data {
            side.half.start_near(packet.seq);
        }
        self.create(pass, packet, flow, handler);
        if syn || flags.contains(TcpFlags::FIN) {
            self.control(pass, packet, flow, handler);
        } else {
            self.tcp(pass, packet, flow, handler);
        }
    }

    #[inline(always)]
    fn udp<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        if packet.payload_len == 0 {
            return;
        }
        let direction = packet.direction.index();
        let is_open = |connection: &Connection| connection[direction].progress.phase == Phase::Open;
        let at = flow.id;
        if !self.connections.get(at).is_some_and(is_open) {
            self.create(pass, packet, flow, handler);
        }
        if self.udp_goes_on::<H, false>(pass, packet, flow, handler) {
            return;
        }
        let Some(connection) = self.connections.get_mut(at) else {
            return;
        };
        let side = &mut connection[direction];
        let bytes = pass.decoded.payload(pass.batch, packet);
        if side.half.is_passed() {
            let captured = bytes.len() as u32;
            return side.pass(0, captured, packet.payload_len - captured);
        }
        if !bytes.is_empty() {
            Delivery {
                id: stream_id(flow.id, direction),
                flow: StreamFlow::Tracked(pass.tracker, flow.id),
                progress: &mut side.progress,
                total: &mut self.delivered,
                time: packet.time,
                handler,
            }
            .deliver(bytes);
        }
        side.progress.pending_gap += u64::from(packet.payload_len) - bytes.len() as u64;
    }

    /// A whole datagram of a flow whose streams are known and wanted.
    #[inline(always)]
    fn udp_goes_on<H: Handler, const SHOW: bool>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) -> bool {
        let direction = packet.direction.index();
        let Some(connection) = self.connections.get_mut(flow.id) else {
            return false;
        };
        let side = &mut connection[direction];
        let is_plain = side.progress.phase == Phase::Open
            && !side.half.is_passed()
            && packet.payload_len != 0
            && packet.payload_captured == packet.payload_len;
        if is_plain {
            if SHOW && handler.follows() {
                side.show(pass, packet, flow, handler);
            }
            Delivery {
                id: stream_id(flow.id, direction),
                flow: StreamFlow::Tracked(pass.tracker, flow.id),
                progress: &mut side.progress,
                total: &mut self.delivered,
                time: packet.time,
                handler,
            }
            .deliver(pass.decoded.payload(pass.batch, packet));
        }
        is_plain
    }

    /// Opens the streams of a flow.
    #[inline(never)]
    fn create<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        if !H::PACKETS {
            self.announce(pass, packet, flow, handler);
        }
        for side in self.connections.get_mut(flow.id).into_iter().flatten() {
            side.progress.phase = Phase::Open;
            side.half.note |= OPEN;
        }
    }

    /// Tells the handler of a flow's streams.
    #[inline]
    pub(crate) fn announce<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let direction = packet.direction.index();
        let initiator = if flow.from_initiator() {
            direction
        } else {
            1 - direction
        };
        self.created += 1;
        self.live += 1;
        self.high = self.high.max(self.live);
        let Some(connection) = self.connections.make(flow.id) else {
            return;
        };
        for direction in [initiator, 1 - initiator] {
            let Side { half, progress } = &mut connection[direction];
            progress.announced = true;
            progress.from_initiator = direction == initiator;
            let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
            let stream = progress.stream(stream_id(flow.id, direction), tracked);
            handler.stream_created(&stream);
            if let Some(policy) = handler.overlap_policy(&stream) {
                half.set_policy(policy);
            }
        }
    }

    /// A segment that is not simply next.
    #[cold]
    #[inline(never)]
    fn segment<H: Handler>(
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
        let conflicts = self.reassembler.conflicts();
        self.work_on(
            id,
            time,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| {
                reassembler.segment(id, half, peer, &segment, out);
            },
        );
        if self.reassembler.conflicts() != conflicts {
            handler.stream_conflict(id);
        }
    }

    /// The packet's sender has acknowledged something while segments of its peer wait.
    #[cold]
    #[inline(never)]
    fn acknowledged<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let id = stream_id(flow.id, 1 - packet.direction.index());
        let time = packet.time;
        self.work_on(
            id,
            time,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| {
                reassembler.advance(half, peer, time, out);
            },
        );
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

/// A direction of a connection and the opposite one.
#[inline(always)]
pub(crate) fn sides(connection: &mut Connection, direction: usize) -> (&mut Side, &mut Side) {
    let [low, high] = connection;
    if direction == 0 {
        (low, high)
    } else {
        (high, low)
    }
}

impl Side {
    /// Shows the handler the next packet of this direction.
    #[inline(always)]
    fn show<H: Handler>(
        &self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let id = stream_id(flow.id, packet.direction.index());
        let stream = (self.progress).stream(id, StreamFlow::Tracked(pass.tracker, flow.id));
        let frame = pass.decoded.bytes(pass.batch, packet);
        let payload = pass.decoded.payload(pass.batch, packet);
        handler.next_packet(&stream, packet, self.progress.position(), frame, payload);
    }
}

/// Whether a packet has a transport header of its own, and is neither damaged nor left out.
#[inline(always)]
fn is_usual(packet: &Decoded) -> bool {
    const USUAL: u16 = DecodeFlags::TRANSPORT.0;
    const UNUSUAL: u16 =
        DecodeFlags::FRAGMENT.0 | DecodeFlags::EXCLUDED.0 | DecodeFlags::BAD_CHECKSUM.0;
    packet.flags.0 & (USUAL | UNUSUAL) == USUAL
}

/// [`Stream::id`] of a flow's direction.
#[inline(always)]
pub(crate) fn stream_id(flow: FlowId, direction: usize) -> u32 {
    flow.0.wrapping_mul(2) | direction as u32
}

/// Notes what changed for a direction whose segments were worked on. Returns whether it has just got
/// to its FIN.
pub(crate) fn after(side: &mut Side, peer: &mut Side) -> bool {
    peer.half.note = match side.half.is_queued() {
        true => peer.half.note | PEER_WAITS,
        false => peer.half.note & !PEER_WAITS,
    };
    let progress = &mut side.progress;
    let closed =
        side.half.flags().contains(HalfFlags::CLOSED) && progress.status == StreamStatus::Active;
    if closed {
        progress.status = StreamStatus::Fin;
    }
    closed
}

impl Progress {
    /// How far the stream has got, holes counted.
    #[inline(always)]
    pub(crate) fn position(&self) -> u64 {
        self.bytes + self.missing_bytes + self.pending_gap
    }

    /// Bytes follow the hole before them, if there is one: returns its size.
    #[inline(always)]
    pub(crate) fn settle_gap(&mut self) -> u64 {
        let gap = self.pending_gap;
        if gap != 0 {
            self.pending_gap = 0;
            self.missing_bytes += gap;
            self.gaps += 1;
        }
        gap
    }

    /// As a handler sees it.
    #[inline(always)]
    pub(crate) fn stream<'a>(&self, id: u32, flow: StreamFlow<'a>) -> Stream<'a> {
        Stream {
            id,
            opposite: id ^ 1,
            bytes: self.bytes,
            missing_bytes: self.missing_bytes,
            gaps: self.gaps,
            status: self.status,
            from_initiator: self.from_initiator,
            flow,
        }
    }
}

/// A direction's bytes on their way to the handler.
pub(crate) struct Delivery<'a, H> {
    id: u32,
    flow: StreamFlow<'a>,
    progress: &'a mut Progress,
    total: &'a mut Delivered,
    time: Nanos,
    handler: &'a mut H,
}

impl<H: Handler> Delivery<'_, H> {
    #[inline(always)]
    fn deliver(&mut self, bytes: &[u8]) {
        let progress = &mut *self.progress;
        let gap_before = progress.settle_gap();
        let chunk = Chunk {
            bytes,
            offset: progress.position(),
            gap_before,
            time: self.time,
        };
        progress.bytes += bytes.len() as u64;
        self.total.bytes += bytes.len() as u64;
        self.total.chunks += 1;
        self.handler
            .stream_data(&progress.stream(self.id, self.flow), &chunk);
    }
}

impl<H: Handler> Receiver for Delivery<'_, H> {
    fn data(&mut self, bytes: &[u8]) {
        self.deliver(bytes);
    }

    fn gap(&mut self, bytes: u64, _cause: GapCause) {
        self.progress.pending_gap += bytes;
    }
}

/// The window scale option of a SYN (RFC 7323); 0 without it.
fn window_scale(bytes: &[u8], packet: &Decoded) -> u8 {
    let start = usize::from(packet.transport_offset);
    let end = packet.payload_offset as usize;
    let options = bytes.get(start + 20..end).unwrap_or(&[]);
    match *options {
        // As Windows, macOS and BSD begin: segment size, padding, window scale.
        [2, 4, _, _, 1, 3, 3, value, ..] => return value.min(14),
        // As Linux does: segment size, selective acknowledgements, time stamps, padding, window scale.
        [
            2,
            4,
            _,
            _,
            4,
            2,
            8,
            10,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            1,
            3,
            3,
            value,
            ..,
        ] => {
            return value.min(14);
        }
        _ => {}
    }
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        if kind == 1 {
            at += 1;
            continue;
        }
        let Some(&[length, value]) = options
            .get(at + 1..at + 3)
            .and_then(|rest| rest.first_chunk())
        else {
            return 0;
        };
        match (kind, length) {
            (3, 3) => return value.min(14),
            (0, _) | (_, 0 | 1) => return 0,
            _ => at += usize::from(length),
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`window_scale`] would read these options.
    fn scale_of(options: &[u8]) -> u8 {
        let mut bytes = vec![0; 54];
        bytes.extend_from_slice(options);
        let packet = Decoded {
            transport_offset: 34,
            payload_offset: bytes.len() as u32,
            ..Decoded::default()
        };
        window_scale(&bytes, &packet)
    }

    #[test]
    fn the_window_scale_is_found_wherever_it_stands() {
        let size = [2, 4, 5, 180];
        let stamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 0];
        for value in 0..=20u8 {
            let scale = [3, 3, value];
            let pad = [1];
            let sack = [4, 2];
            let orders: [&[&[u8]]; 6] = [
                &[&size, &pad, &scale, &pad, &pad, &sack],
                &[&size, &sack, &stamps, &pad, &scale],
                &[&size, &sack, &stamps, &scale, &pad],
                &[&scale],
                &[&pad, &scale, &size],
                &[&stamps, &sack, &scale, &pad, &size],
            ];
            for options in orders {
                assert_eq!(scale_of(&options.concat()), value.min(14), "{options:?}");
            }
        }
        assert_eq!(scale_of(&size), 0);
        assert_eq!(scale_of(&[0, 3, 3, 7]), 0);
        assert_eq!(scale_of(&[2, 0, 3, 3, 7]), 0);
        assert_eq!(scale_of(&[2, 4, 5, 180, 1, 3, 3]), 0);
    }
}
