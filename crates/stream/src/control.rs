//! Packets that start or end a direction: the first ones, and those with SYN, FIN or RST.

use flowgauge_flow::{PacketFlow, PacketFlowFlags};
use flowgauge_wire::{Decoded, TcpFlags};

use crate::connection::{PEER_WAITS, Phase};
use crate::delivery::Delivery;
use crate::handler::{Handler, StreamFlow, StreamStatus};
use crate::streams::{Pass, Streams, after, sides, stream_id};

impl Streams {
    /// A packet of a flow that has no streams yet.
    #[inline(never)]
    pub(crate) fn first<H: Handler>(
        &mut self,
        pass: &Pass<'_>,
        packet: &Decoded,
        flow: PacketFlow,
        handler: &mut H,
    ) {
        let flags = packet.tcp_flags;
        if flow.flags.contains(PacketFlowFlags::HELD_SYN) {
            return self.keep(pass, packet, flow);
        }
        if flow.flags.contains(PacketFlowFlags::REOPENED)
            && let Some(syn) = self.syns.take(pass.tracker.reopened())
        {
            syn.pass(pass.tracker, |pass, packet| {
                self.payload(pass, packet, of_syn(flow), handler);
            });
            return self.remarkable(pass, packet, flow, handler);
        }
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

    /// A SYN within a connection that goes on. (What a filter refused stays with that.)
    #[cold]
    fn keep(&mut self, pass: &Pass<'_>, packet: &Decoded, flow: PacketFlow) {
        match self.is_refused {
            true => drop(self.syns.take(flow.id)),
            false => self.syns.keep(flow.id, pass, packet),
        }
    }

    /// A packet with SYN, FIN or RST.
    #[inline(never)]
    pub(crate) fn control<H: Handler>(
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
        if flow.flags.contains(PacketFlowFlags::HELD_SYN) {
            return self.keep(pass, packet, flow);
        }
        let (side, peer) = sides(connection, direction);
        let flags = packet.tcp_flags;
        if flags.contains(TcpFlags::RST) {
            if flow.flags.contains(PacketFlowFlags::RST_VALID) {
                // It says how far its sender had got, and what it had received.
                side.half.note_sent(packet.seq);
                if flags.contains(TcpFlags::ACK) {
                    side.half.note_ack(packet.seq, packet.ack, packet.window);
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
            let has_moved = side.half.note_ack(packet.seq, packet.ack, packet.window);
            if (has_moved || packet.payload_len != 0) && side.half.note & PEER_WAITS != 0 {
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
            handler.stream_begins(0, Some(&[]));
            Delivery::of_packet(pass, packet, flow, side, &mut self.delivered, handler)
                .deliver(pass.decoded.payload(pass.batch, packet));
            handler.stream_begins(0, None);
        }
        if H::PACKETS && closed {
            let tracked = StreamFlow::Tracked(pass.tracker, flow.id);
            handler.stream_closed(&side.progress.stream(stream_id(flow.id, direction), tracked));
        }
    }
}

/// The SYN that the flow of a packet was [reopened](PacketFlowFlags::REOPENED) with, as a packet of it.
pub(crate) fn of_syn(flow: PacketFlow) -> PacketFlow {
    PacketFlow {
        flags: PacketFlowFlags::FROM_INITIATOR,
        ..flow
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
