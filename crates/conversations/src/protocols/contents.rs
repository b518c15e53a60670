//! What is spoken in packets, one by one: for who counts packets and follows no streams.
//!
//! The first payload of both directions of a connection is kept until [`detect`](super::detect) says what it is, as it does of
//! streams. Segments that do not follow on what was kept are left out: nothing is put in order.

use core::num::NonZeroUsize;
use std::collections::HashMap;

use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, Direction, FlowKey, FoldedState, TcpFlags,
};
use lru::LruCache;

use super::detect::{Beginning, Detector, Found};
use super::signatures;
use super::table::Piece;
use super::watched::{Kept, MOST_PIECES};
use super::{ALL, Transport};

/// Connections that are known; the least recently used one is forgotten.
const MOST: usize = 1 << 17;
/// Bytes that are kept of all connections. With more, those that come are not recognised.
const MOST_KEPT: u64 = 64 << 20;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Tells of each packet which protocol its connection speaks, from the packet on with which that is known.
pub struct Contents {
    detector: Detector,
    numbers: HashMap<&'static str, u16>,
    flows: LruCache<FlowKey, Flow, FoldedState>,
    kept: u64,
}

/// A connection.
struct Flow {
    /// What it speaks; 0 as long as that is not known.
    number: u16,
    /// Nothing more is looked at.
    is_over: bool,
    tries: usize,
    /// That of the initiator's packets.
    direction: Direction,
    /// The next sequence number of each direction.
    next: [Option<u32>; 2],
    kept: Option<Box<Kept>>,
}

impl Contents {
    /// All protocols that are recognised by content: names, and whether they are spoken over TCP and UDP.
    pub fn protocols() -> impl Iterator<Item = (&'static str, [bool; 2])> {
        let over = |transport: Transport| [false, true].map(|is_udp| transport.has(is_udp));
        let read = ALL.iter().map(move |it| (it.name, over(it.transport)));
        read.chain(signatures::all().map(move |(name, transport)| (name, over(transport))))
    }

    /// One that tells protocols by these numbers; 0: it is not told.
    pub fn new(number: impl Fn(&str) -> u16) -> Contents {
        let most = NonZeroUsize::new(MOST).unwrap_or(NonZeroUsize::MIN);
        Contents {
            detector: Detector::new(ALL.to_vec()),
            numbers: Contents::protocols()
                .map(|(name, _)| (name, number(name)))
                .collect(),
            flows: LruCache::with_hasher(most, FoldedState::default()),
            kept: 0,
        }
    }

    /// Puts into `numbers` what each packet of a batch speaks; 0: that is not known.
    pub fn look(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch, numbers: &mut Vec<u16>) {
        numbers.clear();
        let packets = decoded.packets.iter();
        numbers.extend(packets.map(|packet| self.packet(packet, decoded.payload(batch, packet))));
    }

    fn packet(&mut self, packet: &Decoded, payload: &[u8]) -> u16 {
        const LOOKED_AT: u16 = DecodeFlags::FRAGMENT.0 | DecodeFlags::TRANSPORT.0;
        let is_udp = packet.key.protocol == UDP;
        if packet.flags.0 & LOOKED_AT != DecodeFlags::TRANSPORT.0
            || !is_udp && packet.key.protocol != TCP
        {
            return 0;
        }
        let begins = packet.tcp_flags.intersects(TcpFlags::SYN);
        let direction = match begins && packet.tcp_flags.intersects(TcpFlags::ACK) {
            true => packet.direction.reversed(),
            false => packet.direction,
        };
        // A connection between the same ports is another one.
        let is_new = begins && direction == packet.direction;
        if is_new || !self.flows.contains(&packet.key) {
            let flow = Flow {
                number: 0,
                is_over: false,
                tries: 0,
                direction,
                next: [None; 2],
                kept: None,
            };
            if let Some((_, before)) = self.flows.push(packet.key, flow) {
                self.kept -= before.kept.map_or(0, |kept| kept.held());
            }
        }
        let Some(flow) = self.flows.get_mut(&packet.key) else {
            return 0;
        };
        let side = packet.direction.index();
        if begins {
            flow.next[side] = Some(packet.seq.wrapping_add(1));
        }
        if flow.is_over || payload.is_empty() {
            return flow.number;
        }
        if !is_udp {
            let is_next = flow.next[side].is_none_or(|next| next == packet.seq);
            if begins || !is_next {
                return flow.number;
            }
            flow.next[side] = Some(packet.seq.wrapping_add(packet.payload_len));
        }
        let piece = Piece {
            bytes: payload,
            gap_before: 0,
            skipped: 0,
            from_initiator: packet.direction == flow.direction,
            time: packet.time,
        };
        let ports = packet.key.endpoints(flow.direction);
        self.kept -= flow.kept.as_ref().map_or(0, |kept| kept.held());
        let name = flow.look(&self.detector, &piece, ports.1.1, is_udp);
        self.kept += flow.kept.as_ref().map_or(0, |kept| kept.held());
        if self.kept > MOST_KEPT {
            self.kept -= flow.kept.take().map_or(0, |kept| kept.held());
            flow.is_over = true;
        }
        if let Some(name) = name {
            flow.number = self.numbers.get(name).copied().unwrap_or(0);
        }
        flow.number
    }
}

impl Flow {
    /// What a connection speaks, with the next piece of it.
    #[cold]
    fn look(
        &mut self,
        detector: &Detector,
        piece: &Piece<'_>,
        port: u16,
        is_udp: bool,
    ) -> Option<&'static str> {
        // What finds a way through firewalls comes first, in any number.
        if !is_udp || !flowgauge_proto::tls::is_stun(piece.bytes) {
            self.tries += 1;
        }
        let is_over = self.tries >= MOST_PIECES;
        let beginning = Beginning {
            detector,
            port,
            is_udp,
            is_last: is_udp || is_over,
            has_signatures: true,
        };
        let looked = match &mut self.kept {
            Some(kept) => {
                kept.keep(piece);
                beginning.look(kept)
            }
            None => beginning.look_first(piece),
        };
        let name = match looked.found {
            Found::Protocol(place) => {
                let protocol = detector.protocols.get(usize::from(place));
                protocol.map(|protocol| protocol.name)
            }
            _ => looked.signature.map(|(name, _)| name),
        };
        self.is_over = is_over || name.is_some();
        if self.is_over || is_udp {
            self.kept = None;
            return name;
        }
        let is_first = self.kept.is_none();
        let kept = self.kept.get_or_insert_default();
        if is_first {
            kept.keep(piece);
            kept.begins_nothing(looked.found);
        }
        if looked.found == Found::Nothing {
            kept.shorten();
        }
        None
    }
}
