//! Functions for handlers of packets: decisions on each packet's payload before it is reassembled,
//! and control of a direction from outside.

use flowgauge_flow::{FlowId, FlowTracker, PacketFlow, PacketFlowFlags, Withheld, is_counted};
use flowgauge_reassembly::{Forgotten, GapCause, Half, OverlapPolicy, Segment};
use flowgauge_wire::{DecodeFlags, Decoded, Ledger, Place, TcpFlags};

use crate::connection::{ANNOUNCED, RESUMES, SKIPS, Side};
use crate::control::of_syn;
use crate::handler::{Admit, Handler, StreamFlow, StreamPacket};
use crate::offload::{Packets, Sequence, Standing, Wanted};
use crate::streams::{Pass, Streams, TCP, UDP, after, is_usual, sides, stream_id};
use crate::wants::{Skip, Want};

impl Streams {
    /// Offers a packet to the handler, and does what it says.
    #[inline]
    pub(crate) fn offer<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
        ledger: &mut Ledger,
    ) {
        while let Some(want) = handler.want() {
            self.want(want, handler);
        }
        if !is_counted(packet) || !flow.id.is_some() {
            return;
        }
        let (at, direction) = (flow.id, packet.direction.index());
        let mut is_known = self.is_announced(at);
        let is_new = flow.flags.contains(PacketFlowFlags::NEW)
            || flow.flags.contains(PacketFlowFlags::REOPENED);
        if !is_known && !is_new && !handler.joins_midway() {
            return self.payload(pass, packet, flow, handler);
        }
        if !is_known {
            if flow.flags.contains(PacketFlowFlags::REOPENED) {
                self.offer_syn(pass, flow, handler, ledger);
                is_known = self.is_announced(at);
            }
            if !is_known {
                self.announce(pass, packet, flow, handler);
            }
        }
        let Some(connection) = self.connections.get_mut(at) else {
            return;
        };
        let id = stream_id(flow.id, direction);
        let mut connection = connection;
        if connection[direction].half.is_doubted() {
            self.believe(pass, packet, id, handler);
            match self.connections.get_mut(at) {
                Some(again) => connection = again,
                None => return,
            }
        }
        let (side, peer) = sides(connection, direction);
        let expected = side.expects(peer, packet);
        if is_known && expected && handler.takes_empty() && is_plain_empty(packet) {
            return self.remarkable(pass, packet, flow, handler);
        }
        let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
        let offered = StreamPacket {
            decoded: packet,
            frame: pass.decoded.bytes(pass.batch, packet),
            payload: pass.decoded.payload(pass.batch, packet),
            offset: side.offset(packet),
            start_known: side.half.is_start_known(),
            expected,
            waiting: side.half.is_queued(),
            begins: !is_known,
            flow,
            batch: pass.batch,
            halves: [&side.half, &peer.half],
            reassembler: &self.reassembler,
        };
        match handler.stream_packet(&side.progress.stream(id, tracked), &offered) {
            Admit::Take => self.taken(pass, packet, flow, handler),
            Admit::Consumed => self.consumed(pass, packet, flow, handler),
            Admit::Doubt => self.doubted(pass, packet, flow, handler),
            Admit::Reject(place) => {
                if let Some(place) = place {
                    refuse(place, packet, ledger, handler);
                }
                side.half.note_doubt(packet.ack);
            }
            Admit::Refuse(place) => {
                refuse(place, packet, ledger, handler);
                if matches!(place, Place::Cutoff | Place::Strict) {
                    self.want(Want::Nothing(id), handler);
                    return self.consumed(pass, packet, flow, handler);
                }
                // As if the snap length had cut its payload off.
                let lost = Decoded {
                    payload_captured: 0,
                    ..*packet
                };
                self.is_refused = true;
                self.taken(pass, &lost, flow, handler);
                self.is_refused = false;
            }
        }
    }

    /// Takes the payload of a packet that the handler was offered.
    #[inline(never)]
    fn taken<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        self.payload(pass, packet, flow, handler);
    }

    fn is_announced(&self, flow: FlowId) -> bool {
        let connection = self.connections.get(flow);
        connection.is_some_and(|[side, _]| side.progress.has(ANNOUNCED))
    }

    /// Offers the SYN that a flow was reopened with, which was a packet of the one before until now.
    #[cold]
    fn offer_syn<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        flow: PacketFlow,
        handler: &mut H,
        ledger: &mut Ledger,
    ) {
        let before = pass.tracker.reopened();
        if let Some(syn) = self.syns.take(before) {
            let direction = syn.packet.direction.index();
            handler.stream_left(stream_id(before, direction), &syn.packet);
            syn.pass(pass.tracker, |pass, packet| {
                self.offer(pass, packet, of_syn(flow), handler, ledger);
            });
        }
    }

    /// What waits beyond the receiver's window goes on where this packet begins behind it.
    #[cold]
    #[inline(never)]
    fn believe<H: Handler>(&mut self, pass: &Pass<'_>, packet: &Decoded, id: u32, handler: &mut H) {
        if packet.tcp_flags.contains(TcpFlags::RST) {
            return;
        }
        let now = pass.tracker.clock();
        let numbers = packet.seq..packet.seq.wrapping_add(packet.payload_len);
        self.work_on(
            id,
            now,
            pass.tracker,
            handler,
            |reassembler, half, peer, out| {
                reassembler.believe(half, peer, numbers, out);
            },
        );
    }

    /// A packet waits that is beyond the receiver's window.
    #[cold]
    #[inline(never)]
    fn doubted<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        self.payload_between(pass, packet, flow, handler, Half::doubt, Half::settle_doubt);
    }

    /// Follows a packet whose payload is not to be delivered.
    fn consumed<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let id = stream_id(flow.id, packet.direction.index());
        if let Some((side, _)) = self.connections.known_mut(id)
            && side.progress.has(RESUMES)
        {
            side.resume(0, self.delivered.skip_of(id));
        }
        let (begin, end) = (
            |half: &mut Half| half.set_passed(true),
            |half: &mut Half| half.set_passed(false),
        );
        self.payload_between(pass, packet, flow, handler, begin, end);
    }

    /// Takes a packet of a direction that the handler knows while that is as `begin` leaves it.
    #[inline(always)]
    fn payload_between<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
        begin: impl FnOnce(&mut Half),
        end: impl FnOnce(&mut Half),
    ) {
        let id = stream_id(flow.id, packet.direction.index());
        let Some((side, _)) = self.connections.known_mut(id) else {
            return;
        };
        begin(&mut side.half);
        self.taken(pass, packet, flow, handler);
        if let Some((side, _)) = self.connections.known_mut(id) {
            end(&mut side.half);
        }
    }

    /// Passes a segment over, where its direction's bytes are not wanted. Returns whether it did.
    #[inline]
    pub(crate) fn pass_over<H: Handler>(
        &mut self,
        id: u32,
        segment: &Segment<'_>,
        tracker: &FlowTracker,
        handler: &mut H,
    ) -> bool {
        if self.resumes(id, segment) {
            return false;
        }
        let (is_waiting, is_doubted) = match self.side(id) {
            Some(side) if side.half.is_passed() => (side.half.is_queued(), side.half.is_doubted()),
            _ => return false,
        };
        if is_waiting && !is_doubted {
            self.flush(id, tracker, handler);
        }
        let Some(connection) = self.connections.get_mut(FlowId(id / 2)) else {
            return true;
        };
        let (side, peer) = sides(connection, id as usize & 1);
        let passed = self
            .reassembler
            .pass_over(&mut side.half, &peer.half, segment);
        let captured = passed.taken.min(segment.bytes.len() as u32);
        side.pass(passed.skipped, captured, passed.taken - captured);
        if after(side, peer) {
            let tracked = StreamFlow::Tracked(tracker, FlowId(id / 2));
            let stream = side.progress.stream(id, tracked);
            handler.stream_closed(&stream);
            if H::PACKETS {
                handler.stream_passed(&stream);
            }
        }
        if is_doubted {
            self.catch_up(id, tracker, handler);
        }
        true
    }

    /// Whether a direction is wanted again, and has not come to a segment that it goes on with.
    pub(crate) fn is_resuming(&self, id: u32) -> bool {
        let side = self.side(id);
        side.is_some_and(|side| side.progress.has(RESUMES))
    }

    /// Whether a direction that is wanted again goes on with a segment.
    fn resumes(&mut self, id: u32, segment: &Segment<'_>) -> bool {
        let Some((side, peer)) = self.connections.known_mut(id) else {
            return false;
        };
        let ahead = side.half.distance_to(segment.seq).unwrap_or(0);
        let end = segment.seq.wrapping_add(segment.len);
        let resumes = side.progress.has(RESUMES)
            && segment.len != 0
            && ahead >= 0
            && side.half.expects(&peer.half, end);
        if resumes {
            side.half.keep_up_to(segment.seq);
            side.resume(ahead as u64, self.delivered.skip_of(id));
        }
        resumes
    }

    /// Hands on what waited beyond the receiver's window, as far as the stream has got there.
    #[cold]
    #[inline(never)]
    fn catch_up<H: Handler>(&mut self, id: u32, tracker: &FlowTracker, handler: &mut H) {
        let now = tracker.clock();
        self.work_on(id, now, tracker, handler, |reassembler, half, peer, out| {
            reassembler.advance(half, peer, now, out);
        });
    }

    /// A direction that the handler knows.
    fn side(&self, id: u32) -> Option<&Side> {
        let connection = self.connections.get(FlowId(id / 2))?;
        let side = &connection[id as usize & 1];
        side.progress.is_known().then_some(side)
    }

    /// Bytes that wait for a direction.
    pub(crate) fn waiting_bytes(&self, id: u32) -> u64 {
        self.side(id)
            .map_or(0, |side| self.reassembler.waiting_bytes(&side.half))
    }

    /// Sets a direction's overlap policy.
    pub(crate) fn set_policy(&mut self, id: u32, policy: OverlapPolicy) -> bool {
        let Some((side, _)) = self.connections.known_mut(id) else {
            return false;
        };
        side.half.set_policy(policy);
        true
    }

    /// Does what a handler wants. Returns whether there is such a stream.
    #[cold]
    pub(crate) fn want<H: Handler>(&mut self, want: Want, handler: &mut H) -> bool {
        let (id, is_known) = match want {
            Want::From(id, from) => (id, self.skip(id, from)),
            Want::Nothing(id) => (id, self.forget(id, handler)),
            Want::Policy(id, policy) => return self.set_policy(id, policy),
            Want::Standing(id, standing) => {
                // (Where there is no backend, nobody asks.)
                if self.changed.is_some() {
                    self.standings.push((id, standing));
                }
                (id, self.connections.known_mut(id).is_some())
            }
        };
        if let Some(changed) = &mut self.changed
            && is_known
        {
            changed.push(FlowId(id / 2));
        }
        is_known
    }

    /// What is wanted of the directions of a flow.
    pub(crate) fn wanted_of(&mut self, flow: FlowId, tracker: &FlowTracker) -> [Wanted; 2] {
        let Some(sides) = self.connections.get(flow) else {
            return [Wanted::ALL; 2];
        };
        let is_queued = sides.iter().any(|side| side.half.is_queued());
        let turns = tracker.turns(flow).filter(|_| !is_queued);
        let marks = sides.map(|side| side.progress.has(SKIPS));
        let off = sides.map(|side| side.is_unwanted());
        [0, 1].map(|direction| {
            // What one direction acknowledges says what is missing of the other.
            let packets = match (off[direction], off[1 - direction], turns) {
                (true, true, _) => Packets::None,
                (true, false, Some(turns)) => Packets::OutOfTurn(turns[direction]),
                (true, false, None) => Packets::Headers,
                (false, true, Some(turns)) => Packets::Followed(turns[direction]),
                (false, ..) => Packets::All,
            };
            let from = match marks[direction] {
                true => self.delivered.skip_of(stream_id(flow, direction)).from,
                false => 0,
            };
            let (sequence, from) = match from {
                _ if off[direction] => (Sequence::Off, u64::MAX),
                u64::MAX => (Sequence::Lengths, from),
                _ => (Sequence::Bytes, from),
            };
            Wanted {
                packets,
                sequence,
                from,
                standing: Standing::OTHERS,
            }
        })
    }

    /// Packets of a flow were kept away.
    pub(crate) fn keep_up(&mut self, flow: FlowId, direction: usize, withheld: &Withheld) {
        let Some(connection) = self.connections.get_mut(flow) else {
            return;
        };
        let Side { half, progress } = &mut connection[direction];
        if !half.is_abandoned() {
            return;
        }
        let Some(next) = withheld.next_seq else {
            progress.pending_gap += withheld.payload_bytes;
            return;
        };
        progress.pending_gap += half.distance_to(next).unwrap_or(0).max(0) as u64;
        half.keep_up_to(next);
        if let Some((ack, window)) = withheld.ack {
            half.note_ack(next, ack, window);
        }
    }

    /// Whether less than everything is wanted of a flow.
    #[inline]
    pub(crate) fn wants_less(&self, flow: FlowId) -> bool {
        let sides = self.connections.get(flow);
        sides.is_some_and(|sides| {
            let is_less = |side: &Side| side.is_unwanted() || side.progress.has(SKIPS);
            sides.iter().any(is_less)
        })
    }

    /// What was wanted of streams, where that is less than all.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Want> + '_ {
        let streams = self.connections.known();
        streams.filter_map(|(id, side)| match side.is_unwanted() {
            true => Some(Want::Nothing(id)),
            false if side.progress.marks & (SKIPS | RESUMES) != 0 => {
                Some(Want::From(id, self.delivered.skip(id)?.from))
            }
            false => None,
        })
    }

    /// Bytes of a direction before a position are not looked at.
    fn skip(&mut self, id: u32, from: u64) -> bool {
        let Some((side, _)) = self.connections.known_mut(id) else {
            return false;
        };
        let skip = self.delivered.skip_of(id);
        if !side.progress.has(SKIPS) {
            *skip = Skip::default();
            if side.half.is_abandoned() {
                side.progress.marks |= RESUMES;
            } else if from > side.progress.position() {
                side.progress.marks |= SKIPS;
            }
        }
        skip.from = from;
        true
    }

    /// Forgets what waits for a direction and never lets anything wait for it again.
    fn forget<H: Handler>(&mut self, id: u32, handler: &mut H) -> bool {
        let Some((side, peer)) = self.connections.known_mut(id) else {
            return false;
        };
        side.progress.marks &= !(SKIPS | RESUMES);
        self.has_unwanted |= peer.is_unwanted();
        if !side.half.is_abandoned() {
            self.reassembler.abandon(&mut side.half);
            // The hole before what is not wanted is one.
            side.progress.settle_gap();
            after(side, peer);
        }
        let forgotten = self.reassembler.take_forgotten();
        if forgotten != Forgotten::default() {
            handler.stream_forgotten(id, forgotten);
        }
        true
    }

    /// Whether nothing is wanted of a flow's streams.
    #[inline]
    pub(crate) fn is_unwanted(&self, flow: FlowId) -> bool {
        let connection = self.connections.get(flow);
        connection.is_some_and(|sides| sides.iter().all(Side::is_unwanted))
    }

    /// Hands on all that waits for a direction.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush<H: Handler>(&mut self, id: u32, tracker: &FlowTracker, handler: &mut H) {
        if !self.side(id).is_some_and(|side| side.half.is_queued()) {
            return;
        }
        let now = tracker.clock();
        self.work_on(id, now, tracker, handler, |reassembler, half, peer, out| {
            reassembler.flush(half, peer, GapCause::NotAwaited, out);
        });
    }
}

/// A packet ends at this place.
fn refuse<H: Handler>(place: Place, packet: &Decoded, ledger: &mut Ledger, handler: &mut H) {
    let (packets, bytes) = (u64::from(packet.frames), u64::from(packet.wire_len));
    if !handler.counts_refused(place, packets, bytes) {
        ledger.refuse(place, packets, bytes);
    }
}

/// Whether a segment has no payload, and does not reset its connection.
#[inline(always)]
fn is_plain_empty(packet: &Decoded) -> bool {
    packet.payload_len == 0
        && packet.key.protocol == TCP
        && !packet.tcp_flags.contains(TcpFlags::RST)
        && is_usual(packet)
}

impl Side {
    /// Position of a packet's first payload byte in the stream.
    fn offset(&self, packet: &Decoded) -> Option<i64> {
        let position = self.progress.position() as i64;
        match packet.key.protocol {
            _ if !packet.flags.contains(DecodeFlags::TRANSPORT) => None,
            TCP => {
                let syn = packet.tcp_flags.contains(TcpFlags::SYN);
                let seq = packet.seq.wrapping_add(u32::from(syn));
                match self.half.distance_to(seq) {
                    Some(ahead) => Some(position + i64::from(ahead)),
                    None => syn.then_some(position),
                }
            }
            UDP => Some(position),
            _ => None,
        }
    }

    /// Whether a packet's sequence numbers can be right.
    #[inline]
    fn expects(&self, peer: &Side, packet: &Decoded) -> bool {
        if packet.key.protocol != TCP {
            return true;
        }
        let syn = packet.tcp_flags.contains(TcpFlags::SYN);
        let end = packet.seq.wrapping_add(u32::from(syn));
        self.half
            .expects(&peer.half, end.wrapping_add(packet.payload_len))
    }

    /// Whether nothing is wanted of it.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.half.is_abandoned() && !self.progress.has(RESUMES)
    }

    /// It goes on, so many bytes behind where it has got to.
    pub(crate) fn resume(&mut self, ahead: u64, skip: &mut Skip) {
        let progress = &mut self.progress;
        let passed = core::mem::take(&mut progress.pending_gap) + ahead;
        progress.bytes += passed;
        skip.pass(passed);
        skip.from = skip.from.max(progress.position());
        progress.marks = progress.marks & !RESUMES | SKIPS;
        self.half.take_up();
    }

    /// Moves on without delivering: over a hole, what was captured, and what was not.
    pub(crate) fn pass(&mut self, skipped: u32, captured: u32, cut: u32) {
        let progress = &mut self.progress;
        if self.half.is_abandoned() {
            progress.pending_gap += u64::from(skipped) + u64::from(captured) + u64::from(cut);
            return;
        }
        progress.pending_gap += u64::from(skipped);
        if captured != 0 {
            progress.settle_gap();
            progress.bytes += u64::from(captured);
        }
        progress.pending_gap += u64::from(cut);
    }
}
