//! The stream pass: from packets with their flows to stream events.

use flowgauge_flow::{EndReason, FlowId, FlowRecord, FlowTracker, PacketFlow, PacketFlowFlags};
use flowgauge_reassembly::tcp::HalfFlags;
use flowgauge_reassembly::{
    GapCause, Half, OverlapPolicy, Reassembler, ReassemblyConfig, Receiver, Segment,
};
use flowgauge_wire::{Batch, DecodeFlags, Decoded, DecodedBatch, Nanos, TcpFlags};

use crate::connection::{Connection, Connections, Side, Slot};
use crate::handler::{Chunk, Handler, Stream, StreamStatus};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Directions with a hole that are looked at per batch, whether or not they had packets.
const VISITS: usize = 32;
/// Directions relieved per batch while memory is tight.
const RELIEFS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Streams {
    connections: Connections,
    reassembler: Reassembler,
    policy: OverlapPolicy,
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

impl Streams {
    pub(crate) fn new(config: ReassemblyConfig, policy: OverlapPolicy) -> Streams {
        Streams {
            connections: Connections::new(),
            reassembler: Reassembler::new(config),
            policy,
            created: 0,
            high: 0,
            delivered: Delivered::default(),
        }
    }

    pub(crate) fn reassembler(&self) -> &Reassembler {
        &self.reassembler
    }

    /// Takes a batch's packets, `refs` with their flows.
    pub(crate) fn pass<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        refs: &[PacketFlow],
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        for flow in refs {
            self.connections.prefetch_slot(flow.id.index());
        }
        for (packet, flow) in decoded.packets.iter().zip(refs) {
            self.connections
                .prefetch(flow.id.index(), packet.direction.index());
        }
        const USUAL: u16 = DecodeFlags::TRANSPORT.0;
        const UNUSUAL: u16 =
            DecodeFlags::FRAGMENT.0 | DecodeFlags::EXCLUDED.0 | DecodeFlags::BAD_CHECKSUM.0;
        for (packet, flow) in decoded.packets.iter().zip(refs) {
            if packet.flags.0 & (USUAL | UNUSUAL) != USUAL || !flow.id.is_some() {
                continue;
            }
            match packet.key.protocol {
                TCP => self.tcp(batch, decoded, packet, *flow, tracker, handler),
                UDP => self.udp(batch, decoded, packet, *flow, tracker, handler),
                _ => {}
            }
        }
    }

    /// Gives up holes of streams that fell silent, and relieves streams while memory is tight.
    pub(crate) fn maintain<H: Handler>(&mut self, now: Nanos, handler: &mut H) {
        if self.reassembler.waiting() == 0 {
            return;
        }
        for _ in 0..VISITS.min(self.reassembler.waiting()) {
            let Some(id) = self.reassembler.visit() else {
                break;
            };
            self.waiting(id, now, handler, |reassembler, half, peer, out| {
                reassembler.advance(half, peer, now, out);
            });
        }
        for _ in 0..RELIEFS {
            if !self.reassembler.is_tight() {
                break;
            }
            let Some(id) = self.reassembler.visit() else {
                continue;
            };
            self.waiting(id, now, handler, |reassembler, half, _, out| {
                reassembler.relieve(half, out);
            });
        }
    }

    /// Ends the streams of a flow whose record is complete.
    pub(crate) fn end<H: Handler>(
        &mut self,
        flow: FlowId,
        record: &FlowRecord<'_>,
        handler: &mut H,
    ) {
        if record.end_reason == EndReason::Active {
            return;
        }
        let slot = self.connections.slot(flow.index());
        if slot != Slot::Empty {
            self.connections.set_slot(flow.index(), Slot::Empty);
        }
        if let Slot::Connection(index) = slot {
            self.terminate(index, record, handler);
        }
    }

    fn terminate<H: Handler>(&mut self, index: u32, record: &FlowRecord<'_>, handler: &mut H) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let status = match record.end_reason {
            EndReason::Fin => StreamStatus::Fin,
            EndReason::Rst => StreamStatus::Rst,
            EndReason::Idle | EndReason::Active => StreamStatus::Timeout,
            EndReason::EndOfInput => StreamStatus::EndOfInput,
            EndReason::Evicted => StreamStatus::Evicted,
        };
        let [first, second] = &mut connection.sides;
        let (initiator, responder) = if first.stream.from_initiator {
            (first, second)
        } else {
            (second, first)
        };
        for turn in 0..2 {
            let (side, peer) = if turn == 0 {
                (&mut *initiator, &*responder)
            } else {
                (&mut *responder, &*initiator)
            };
            let mut trailing = 0;
            if side.stream.protocol == TCP {
                let mut delivery = Delivery {
                    stream: &mut side.stream,
                    pending_gap: &mut side.pending_gap,
                    total: &mut self.delivered,
                    time: record.end,
                    handler,
                };
                trailing = self
                    .reassembler
                    .finish(&mut side.half, &peer.half, &mut delivery);
            }
            if side.stream.status == StreamStatus::Active {
                side.stream.status = status;
            }
            handler.stream_terminated(&side.stream, side.pending_gap + trailing);
        }
        self.connections.free(index);
    }

    #[inline(always)]
    fn tcp<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
        flow: PacketFlow,
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        const SPECIAL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);
        let Some(index) = self.connections.index_of(flow.id.index()) else {
            self.first(batch, decoded, packet, flow, tracker, handler);
            return;
        };
        if packet.tcp_flags.intersects(SPECIAL) {
            self.special(batch, decoded, packet, flow, index, handler);
            return;
        }
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let (side, peer) = sides(connection, packet);
        if packet.tcp_flags.contains(TcpFlags::ACK) && side.half.note_ack(packet.ack, packet.window)
        {
            // `note` says whether the peer has a hole: its line is not touched otherwise.
            if side.half.note != 0 {
                acknowledged(
                    &mut self.reassembler,
                    &mut self.delivered,
                    side,
                    peer,
                    packet.time,
                    handler,
                );
            }
        }
        let len = packet.payload_len;
        if len == 0 {
            side.half.note_sent(packet.seq);
            return;
        }
        if packet.payload_captured == len && side.half.take_in_order(packet.seq, len) {
            let bytes = decoded.payload(batch, packet);
            deliver(
                &mut side.stream,
                &mut side.pending_gap,
                &mut self.delivered,
                bytes,
                packet.time,
                handler,
            );
            return;
        }
        let bytes = decoded.payload(batch, packet);
        segment(
            &mut self.reassembler,
            &mut self.delivered,
            side,
            peer,
            packet,
            packet.seq,
            bytes,
            handler,
        );
    }

    /// A packet with SYN, FIN or RST.
    #[cold]
    #[inline(never)]
    fn special<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
        flow: PacketFlow,
        index: u32,
        handler: &mut H,
    ) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let (side, peer) = sides(connection, packet);
        if packet.tcp_flags.contains(TcpFlags::RST) {
            if flow.flags.contains(PacketFlowFlags::RST_VALID) {
                // It says how far its sender had got, and what it had received.
                side.half.note_sent(packet.seq);
                if packet.tcp_flags.contains(TcpFlags::ACK) {
                    side.half.note_ack(packet.ack, packet.window);
                }
                for stream in [&mut side.stream, &mut peer.stream] {
                    if stream.status == StreamStatus::Active {
                        stream.status = StreamStatus::Rst;
                    }
                }
            }
            return;
        }
        let mut seq = packet.seq;
        if packet.tcp_flags.contains(TcpFlags::SYN) {
            seq = seq.wrapping_add(1);
            side.half.start_at(seq);
            let bytes = decoded.bytes(batch, packet);
            side.half.set_window_scale(window_scale(bytes, packet));
        }
        if packet.tcp_flags.contains(TcpFlags::ACK) {
            if side.half.note_ack(packet.ack, packet.window) && side.half.note != 0 {
                acknowledged(
                    &mut self.reassembler,
                    &mut self.delivered,
                    side,
                    peer,
                    packet.time,
                    handler,
                );
            }
            if packet.tcp_flags.contains(TcpFlags::SYN) {
                peer.half.start_at(packet.ack);
            }
        }
        let bytes = decoded.payload(batch, packet);
        if packet.payload_len > 0 || packet.tcp_flags.contains(TcpFlags::FIN) {
            segment(
                &mut self.reassembler,
                &mut self.delivered,
                side,
                peer,
                packet,
                seq,
                bytes,
                handler,
            );
        }
    }

    /// A packet of a flow that has no connection yet.
    #[cold]
    #[inline(never)]
    fn first<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
        flow: PacketFlow,
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        let at = flow.id.index();
        let direction = packet.direction.index();
        let slot = self.connections.slot(at);
        let has_data = packet.payload_len > 0;
        if packet.tcp_flags.contains(TcpFlags::RST) {
            return;
        }
        let syn = packet.tcp_flags.contains(TcpFlags::SYN);
        if syn && !packet.tcp_flags.contains(TcpFlags::ACK) && !has_data {
            let same_side =
                !matches!(slot, Slot::Syn { direction: other, .. } if other != direction);
            if same_side {
                let bytes = decoded.bytes(batch, packet);
                self.connections.set_slot(
                    at,
                    Slot::Syn {
                        direction,
                        seq: packet.seq.wrapping_add(1),
                        window_scale: window_scale(bytes, packet),
                    },
                );
                return;
            }
        }
        let Some(index) = self.create(packet, flow, tracker, handler) else {
            return;
        };
        if let Slot::Syn {
            direction: from,
            seq,
            window_scale,
        } = slot
            && let Some(connection) = self.connections.get_mut(index)
        {
            let half = &mut connection.sides[from & 1].half;
            half.start_at(seq);
            half.set_window_scale(window_scale);
            // The SYN-ACK was not captured: what the initiator acknowledges first is its number.
            if from == direction && packet.tcp_flags.contains(TcpFlags::ACK) {
                connection.sides[1 - from].half.start_at(packet.ack);
            }
        }
        if !syn
            && !has_data
            && let Some(connection) = self.connections.get_mut(index)
        {
            sides(connection, packet).0.half.start_near(packet.seq);
        }
        self.tcp(batch, decoded, packet, flow, tracker, handler);
    }

    #[inline(always)]
    fn udp<H: Handler>(
        &mut self,
        batch: &Batch<'_>,
        decoded: &DecodedBatch,
        packet: &Decoded,
        flow: PacketFlow,
        tracker: &FlowTracker,
        handler: &mut H,
    ) {
        if packet.payload_len == 0 {
            return;
        }
        let index = match self.connections.index_of(flow.id.index()) {
            Some(index) => index,
            None => match self.create(packet, flow, tracker, handler) {
                Some(index) => index,
                None => return,
            },
        };
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let (side, _) = sides(connection, packet);
        let bytes = decoded.payload(batch, packet);
        if !bytes.is_empty() {
            let pending = &mut side.pending_gap;
            deliver(
                &mut side.stream,
                pending,
                &mut self.delivered,
                bytes,
                packet.time,
                handler,
            );
        }
        side.pending_gap += u64::from(packet.payload_len) - bytes.len() as u64;
    }

    #[cold]
    fn create<H: Handler>(
        &mut self,
        packet: &Decoded,
        flow: PacketFlow,
        tracker: &FlowTracker,
        handler: &mut H,
    ) -> Option<u32> {
        let (flow_id, start) =
            tracker.with_record(flow.id, |record| (record.flow_id, record.start))?;
        let policy = self.policy;
        let from_initiator = flow.from_initiator();
        let (source, destination) = (packet.source(), packet.destination());
        let side = |index: u32, direction: usize| {
            let same = direction == packet.direction.index();
            let (source, destination) = if same {
                (source, destination)
            } else {
                (destination, source)
            };
            let id = 2 * index + direction as u32;
            Side {
                half: Half::new(policy),
                stream: Stream {
                    bytes: 0,
                    missing_bytes: 0,
                    id,
                    opposite: id ^ 1,
                    gaps: 0,
                    status: StreamStatus::Active,
                    version: packet.key.version,
                    protocol: packet.key.protocol,
                    from_initiator: from_initiator == same,
                    vlan: (packet.vlan_count > 0).then_some(packet.vlan[0]),
                    flow_id,
                    start,
                    source,
                    destination,
                },
                pending_gap: 0,
            }
        };
        let index = self.connections.create(|index| Connection {
            sides: [side(index, 0), side(index, 1)],
        });
        self.connections
            .set_slot(flow.id.index(), Slot::Connection(index));
        self.created += 1;
        self.high = self.high.max(self.connections.live());
        let connection = self.connections.get(index)?;
        let [first, second] = &connection.sides;
        let (initiator, responder) = if first.stream.from_initiator {
            (first, second)
        } else {
            (second, first)
        };
        handler.stream_created(&initiator.stream);
        handler.stream_created(&responder.stream);
        Some(index)
    }

    /// Lets `act` work on the direction `id`, whose segments wait.
    fn waiting<H: Handler>(
        &mut self,
        id: u32,
        time: Nanos,
        handler: &mut H,
        act: impl FnOnce(&mut Reassembler, &mut Half, &Half, &mut Delivery<'_, H>),
    ) {
        let Some(connection) = self.connections.get_mut(id / 2) else {
            return;
        };
        let [first, second] = &mut connection.sides;
        let (side, peer) = if id & 1 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let mut delivery = Delivery {
            stream: &mut side.stream,
            pending_gap: &mut side.pending_gap,
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
        after(side, peer);
    }
}

/// The sender's side of a packet and the other.
#[inline(always)]
fn sides<'a>(connection: &'a mut Connection, packet: &Decoded) -> (&'a mut Side, &'a mut Side) {
    let [low, high] = &mut connection.sides;
    if packet.direction.index() == 0 {
        (low, high)
    } else {
        (high, low)
    }
}

/// A segment that is not simply next.
#[cold]
#[inline(never)]
#[expect(
    clippy::too_many_arguments,
    reason = "parts of the engine that are borrowed apart"
)]
fn segment<H: Handler>(
    reassembler: &mut Reassembler,
    total: &mut Delivered,
    side: &mut Side,
    peer: &mut Side,
    packet: &Decoded,
    seq: u32,
    bytes: &[u8],
    handler: &mut H,
) {
    let segment = Segment {
        seq,
        bytes,
        len: packet.payload_len,
        fin: packet.tcp_flags.contains(TcpFlags::FIN),
        time: packet.time,
    };
    let id = side.stream.id;
    let mut delivery = Delivery {
        stream: &mut side.stream,
        pending_gap: &mut side.pending_gap,
        total,
        time: packet.time,
        handler,
    };
    reassembler.segment(id, &mut side.half, &peer.half, &segment, &mut delivery);
    after(side, peer);
}

/// `side` has acknowledged something while segments of `peer` wait.
#[cold]
#[inline(never)]
fn acknowledged<H: Handler>(
    reassembler: &mut Reassembler,
    total: &mut Delivered,
    side: &mut Side,
    peer: &mut Side,
    time: Nanos,
    handler: &mut H,
) {
    let mut delivery = Delivery {
        stream: &mut peer.stream,
        pending_gap: &mut peer.pending_gap,
        total,
        time,
        handler,
    };
    reassembler.advance(&mut peer.half, &side.half, time, &mut delivery);
    after(peer, side);
}

/// Notes what changed for a direction whose segments were worked on.
fn after(side: &mut Side, peer: &mut Side) {
    peer.half.note = u16::from(side.half.is_queued());
    if side.half.flags().contains(HalfFlags::CLOSED) && side.stream.status == StreamStatus::Active {
        side.stream.status = StreamStatus::Fin;
    }
}

/// Hands bytes of a stream on.
#[inline(always)]
fn deliver<H: Handler>(
    stream: &mut Stream,
    pending_gap: &mut u64,
    total: &mut Delivered,
    bytes: &[u8],
    time: Nanos,
    handler: &mut H,
) {
    if *pending_gap != 0 {
        stream.missing_bytes += *pending_gap;
        stream.gaps += 1;
    }
    let chunk = Chunk {
        bytes,
        offset: stream.bytes + stream.missing_bytes,
        gap_before: core::mem::take(pending_gap),
        time,
    };
    stream.bytes += bytes.len() as u64;
    total.bytes += bytes.len() as u64;
    total.chunks += 1;
    handler.stream_data(stream, &chunk);
}

/// A direction's bytes on their way to the handler.
struct Delivery<'a, H> {
    stream: &'a mut Stream,
    pending_gap: &'a mut u64,
    total: &'a mut Delivered,
    time: Nanos,
    handler: &'a mut H,
}

impl<H: Handler> Receiver for Delivery<'_, H> {
    fn data(&mut self, bytes: &[u8]) {
        deliver(
            self.stream,
            self.pending_gap,
            self.total,
            bytes,
            self.time,
            self.handler,
        );
    }

    fn gap(&mut self, bytes: u64, _cause: GapCause) {
        *self.pending_gap += bytes;
    }
}

/// The window scale option of a SYN (RFC 7323); 0 without it.
fn window_scale(bytes: &[u8], packet: &Decoded) -> u8 {
    let start = usize::from(packet.transport_offset);
    let end = packet.payload_offset as usize;
    let mut options = bytes.get(start + 20..end).unwrap_or(&[]);
    loop {
        match *options {
            [3, 3, shift, ..] => return shift.min(14),
            [0, ..] | [] => return 0,
            [1, ..] => options = &options[1..],
            [_, length, ..] if length >= 2 => {
                options = options.get(usize::from(length)..).unwrap_or(&[]);
            }
            _ => return 0,
        }
    }
}
