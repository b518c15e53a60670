//! Derives stream events from packets and their flows.

use flowgauge_flow::{FlowId, FlowTracker, Follower, PacketFlow};
use flowgauge_reassembly::tcp::HalfFlags;
use flowgauge_reassembly::{OverlapPolicy, Reassembler, ReassemblyConfig};
use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, Ledger, PacketDescriptor, Place, TcpFlags,
};

use crate::checksums::Checksums;
use crate::connection::{
    ANNOUNCED, Connection, Connections, OPEN, PEER_WAITS, Phase, RESUMES, Side,
};
use crate::delivery::{Delivered, Delivery};
use crate::handler::{Handler, Next, StreamFlow, StreamStatus};
use crate::offload::Standing;
use crate::shard::LONG;
use crate::syns::Syns;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// With exactly ACK of these a packet begins and ends nothing.
const PLAIN: TcpFlags =
    TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0 | TcpFlags::ACK.0);
pub(crate) const CONTROL: TcpFlags = TcpFlags(TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0);

#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) connections: Connections,
    pub(crate) reassembler: Reassembler,
    pub(crate) live: u64,
    pub(crate) created: u64,
    pub(crate) high: u64,
    pub(crate) delivered: Delivered,
    pub(crate) syns: Syns,
    /// The packet under way was refused, and is accounted for.
    pub(crate) is_refused: bool,
    /// Of some connection nothing was wanted in either direction.
    pub(crate) has_unwanted: bool,
    /// Flows of which something else is wanted than before, where somebody is told.
    pub(crate) changed: Option<Vec<FlowId>>,
    /// Of streams that is wanted under overload otherwise, and was not told yet.
    pub(crate) standings: Vec<(u32, Standing)>,
}

/// What is read while a packet is dealt with.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) decoded: &'a DecodedBatch,
    pub(crate) tracker: &'a FlowTracker,
}

impl Pass<'_> {
    /// What its source says of a packet.
    pub(crate) fn descriptor(&self, packet: &Decoded) -> PacketDescriptor {
        let descriptor = self.batch.packets.get(usize::from(packet.index));
        descriptor.copied().unwrap_or_default()
    }
}

/// Takes a batch's packets to their streams as soon as the flow table is done with each.
pub(crate) struct FollowStreams<'a, H> {
    pub(crate) streams: &'a mut Streams,
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) decoded: &'a DecodedBatch,
    pub(crate) handler: &'a mut H,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) checksums: &'a mut Checksums,
}

impl<H: Handler> FollowStreams<'_, H> {
    /// Whether payload with a wrong checksum is taken all the same.
    #[cold]
    fn takes_bad_payload(&mut self, packet: &Decoded, flow: PacketFlow) -> bool {
        let (batch, decoded) = (self.batch, self.decoded);
        let is_taken = (self.checksums).takes_bad_payload(batch, decoded, packet);
        let known = self.streams.connections.get(flow.id);
        let stream = known
            .is_some_and(|[side, _]| side.progress.is_known())
            .then(|| stream_id(flow.id, packet.direction.index()));
        self.handler.bad_payload(stream, packet, is_taken);
        is_taken
    }

    /// A packet that counts, but what it carries is damaged.
    #[cold]
    fn damaged(&mut self, pass: &Pass<'_>, packet: &Decoded, flow: PacketFlow) {
        let (frames, bytes) = (u64::from(packet.frames), u64::from(packet.wire_len));
        self.ledger.refuse(Place::Malformed, frames, bytes);
        if H::PACKETS {
            let packet = Decoded {
                flags: DecodeFlags(packet.flags.0 | DecodeFlags::BAD_PAYLOAD.0),
                ..*packet
            };
            let handler = &mut *self.handler;
            handler.arrived(true);
            (self.streams).offer(pass, &packet, flow, handler, self.ledger);
        }
    }
}

impl<H: Handler> Follower for FollowStreams<'_, H> {
    #[inline(always)]
    fn fetch(&mut self, packet: &Decoded, guess: FlowId) {
        let direction = packet.direction.index();
        self.handler
            .prefetch(stream_id(guess, direction), packet.payload_len != 0);
        self.streams.connections.prefetch(guess, direction);
        // What begins or ends one direction looks at the other, too. (No branch: nobody could guess it.)
        let is_control = packet.begins_or_ends();
        let other = direction ^ usize::from(is_control);
        self.streams.connections.prefetch(guess, other);
        self.handler.prefetch_control(is_control);
    }

    #[inline(always)]
    fn packet(&mut self, tracker: &FlowTracker, packet: &Decoded, flow: PacketFlow) {
        let pass = Pass {
            batch: self.batch,
            decoded: self.decoded,
            tracker,
        };
        let is_readable = !packet.flags.contains(DecodeFlags::UNVERIFIED)
            || self.streams.has_unwanted && self.streams.is_unwanted(flow.id)
            || (self.checksums).is_good(self.batch, self.decoded, packet)
            || self.takes_bad_payload(packet, flow);
        if !is_readable {
            return self.damaged(&pass, packet, flow);
        }
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
            while let Some(want) = self.handler.want() {
                self.streams.want(want, self.handler);
            }
        }
        if self.streams.changed.is_some() {
            self.streams.ask(tracker, packet, flow.id);
        }
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
            syns: Syns::default(),
            is_refused: false,
            has_unwanted: false,
            changed: None,
            standings: Vec::new(),
        }
    }

    pub(crate) fn reassembler(&self) -> &Reassembler {
        &self.reassembler
    }

    /// Tells of a flow now and then of which less than everything is wanted, and whenever one direction is unwanted and something is
    /// missing of the other.
    #[inline]
    fn ask(&mut self, tracker: &FlowTracker, packet: &Decoded, flow: FlowId) {
        let Some(connection) = self.connections.get(flow) else {
            return;
        };
        let direction = packet.direction.index();
        let is_due = tracker.sent(flow, packet.direction).is_multiple_of(LONG);
        let is_queued =
            connection[direction].half.is_queued() && connection[1 - direction].is_unwanted();
        if (is_due || is_queued) && self.wants_less(flow) {
            self.changed.get_or_insert_default().push(flow);
        }
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

    #[inline(always)]
    pub(crate) fn tcp<H: Handler>(
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
                let (payload, is_taken) = side.show(pass, packet, flow, handler);
                if is_taken {
                    side.progress.count(payload, &mut self.delivered);
                } else if len != 0 {
                    Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                        .deliver(payload);
                }
                return true;
            }
            if len != 0 {
                Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                    .deliver(pass.decoded.payload(pass.batch, packet));
            }
            return true;
        }
        false
    }

    /// A packet that is not simply the next one of a direction in full swing.
    #[inline(never)]
    pub(crate) fn remarkable<H: Handler>(
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
        let mut side = &mut connection[direction];
        // Its note says whether the peer has a hole: its line is not touched otherwise. Data answer what was
        // acknowledged before, too.
        if packet.tcp_flags.contains(TcpFlags::ACK)
            && (side.half.note_ack(packet.seq, packet.ack, packet.window)
                || packet.payload_len != 0)
            && side.half.note & PEER_WAITS != 0
        {
            self.acknowledged(pass, packet, flow, handler);
            match self.connections.get_mut(flow.id) {
                Some(connection) => side = &mut connection[direction],
                None => return,
            }
        }
        let len = packet.payload_len;
        if len == 0 {
            side.half.note_sent(packet.seq);
        } else if packet.payload_captured == len && side.half.take_in_order(packet.seq, len) {
            Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                .deliver(pass.decoded.payload(pass.batch, packet));
        } else {
            self.segment(pass, packet, flow, packet.seq, handler);
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
        if side.progress.has(RESUMES) {
            side.resume(0, self.delivered.skip_of(stream_id(at, direction)));
        }
        if side.half.is_passed() {
            let captured = bytes.len() as u32;
            return side.pass(0, captured, packet.payload_len - captured);
        }
        if !bytes.is_empty() {
            Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                .deliver(bytes);
        }
        let cut = u64::from(packet.payload_len) - bytes.len() as u64;
        if self.is_refused {
            side.progress.pending_gap += cut;
        } else {
            let packets = u64::from(bytes.is_empty()) * u64::from(packet.frames);
            let (id, flow) = (
                stream_id(at, direction),
                StreamFlow::Tracked(pass.tracker, at),
            );
            let claimed = u64::from(claimed(packet));
            (side.progress).cut(cut - claimed, packets, id, flow, handler);
            side.progress.pending_gap += claimed;
        }
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
            if SHOW
                && handler.follows()
                && let (payload, true) = side.show(pass, packet, flow, handler)
            {
                side.progress.count(payload, &mut self.delivered);
                return true;
            }
            Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                .deliver(pass.decoded.payload(pass.batch, packet));
        }
        is_plain
    }

    /// Opens the streams of a flow.
    #[inline(never)]
    pub(crate) fn create<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        if !H::PACKETS {
            self.announce(pass, packet, flow, handler);
        }
        self.count_new(flow);
        let Some(connection) = self.connections.make(flow.id) else {
            return;
        };
        for side in connection.iter_mut() {
            side.progress.phase = Phase::Open;
            side.half.note |= OPEN;
        }
        if H::PACKETS {
            let first = packet.direction.index() ^ usize::from(!flow.from_initiator());
            for direction in [first, 1 - first] {
                let progress = &mut connection[direction].progress;
                progress.from_initiator = direction == first;
                let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
                handler.stream_opened(&progress.stream(stream_id(flow.id, direction), tracked));
            }
        }
    }

    /// The streams of a flow are there, if they were not.
    #[inline]
    fn count_new(&mut self, flow: PacketFlow) {
        let connection = self.connections.get(flow.id);
        if !connection.is_some_and(|[side, _]| side.progress.is_known()) {
            self.created += 1;
            self.live += 1;
            self.high = self.high.max(self.live);
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
        self.count_new(flow);
        let Some(connection) = self.connections.make(flow.id) else {
            return;
        };
        for direction in [initiator, 1 - initiator] {
            let Side { half, progress } = &mut connection[direction];
            progress.marks = ANNOUNCED;
            progress.from_initiator = direction == initiator;
            let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
            let stream = progress.stream(stream_id(flow.id, direction), tracked);
            handler.stream_created(&stream);
            if let Some(policy) = handler.overlap_policy(&stream) {
                half.set_policy(policy);
            }
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
    /// Shows the handler the next packet of this direction. Returns its payload, and whether the handler
    /// has taken that, too.
    #[inline(always)]
    fn show<'a, H: Handler>(
        &self,
        pass: &Pass<'a>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) -> (&'a [u8], bool) {
        let id = stream_id(flow.id, packet.direction.index());
        let frame = pass.decoded.bytes(pass.batch, packet);
        let payload = packet.payload_of(frame);
        let position = self.progress.position();
        let next = handler.next_packet(id, packet, position, frame, payload);
        if next == Next::Unseen {
            let stream = (self.progress).stream(id, StreamFlow::Tracked(pass.tracker, flow.id));
            handler.next_packet_of(&stream, packet, position, frame, payload);
        }
        (payload, next == Next::Taken)
    }
}

/// Whether a packet has a transport header of its own, and is neither damaged nor left out.
#[inline(always)]
pub(crate) fn is_usual(packet: &Decoded) -> bool {
    const USUAL: u16 = DecodeFlags::TRANSPORT.0;
    const UNUSUAL: u16 = DecodeFlags::FRAGMENT.0
        | DecodeFlags::EXCLUDED.0
        | DecodeFlags::BAD_CHECKSUM.0
        | DecodeFlags::BAD_PAYLOAD.0;
    packet.flags.0 & (USUAL | UNUSUAL) == USUAL
}

/// Bytes of a packet's payload that its headers claim, and its frames cannot have had on the wire.
#[inline(always)]
pub(crate) fn claimed(packet: &Decoded) -> u32 {
    let sent = packet.wire_len.saturating_sub(packet.payload_offset);
    (packet.payload_len).saturating_sub(sent.max(packet.payload_captured))
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
