//! The first packet of a connection, as filters see it.

use flowgauge_wire::{DecodeFlags, Decoded, LinkType, PacketDescriptor};

use super::config::{Cutoff, Cutoffs, FilterPacket};
use super::pass::{TCP, UDP};
use crate::handler::StreamPacket;

const SCTP: u8 = 132;

/// The first packet in its own direction, and as if it went the other way.
#[derive(Debug)]
pub struct FirstPacket<'a> {
    frame: &'a [u8],
    decoded: &'a Decoded,
    descriptor: PacketDescriptor,
    exchanged: Option<(Vec<u8>, Decoded)>,
}

impl<'a> FirstPacket<'a> {
    /// Made from a packet. It looks the same in both directions unless `is_exchanged`, which costs a copy.
    #[inline]
    pub fn new(packet: &StreamPacket<'a>, is_exchanged: bool) -> FirstPacket<'a> {
        let decoded = packet.decoded;
        let descriptor = match decoded.flags.contains(DecodeFlags::REASSEMBLED) {
            false => packet.descriptor(),
            true => PacketDescriptor {
                link: LinkType::RAW,
                captured_len: packet.frame.len() as u32,
                wire_len: decoded.ip_len,
                time: decoded.time,
                ..PacketDescriptor::default()
            },
        };
        FirstPacket {
            frame: packet.frame,
            decoded,
            descriptor,
            exchanged: is_exchanged.then(|| exchange(packet)),
        }
    }

    /// The packet for filters, in its own direction or in the opposite one.
    pub fn of(&self, is_own: bool) -> FilterPacket<'_> {
        let (frame, decoded) = match &self.exchanged {
            Some((frame, decoded)) if !is_own => (&frame[..], decoded),
            _ => (self.frame, self.decoded),
        };
        FilterPacket {
            frame,
            descriptor: &self.descriptor,
            decoded,
        }
    }
}

impl Cutoffs {
    /// The cutoff of a stream with this first packet.
    pub fn of(&self, packet: &FilterPacket<'_>, from_initiator: bool) -> Cutoff {
        let mut classes = self.classes.iter();
        let class = classes.find(|(filter, _)| filter.matches(packet));
        class.map_or_else(|| self.of_direction(from_initiator), |class| class.1)
    }

    /// The cutoff of a stream for which classes are not evaluated.
    pub fn of_direction(&self, from_initiator: bool) -> Cutoff {
        let direction = match from_initiator {
            true => self.from_initiator,
            false => self.from_responder,
        };
        direction.unwrap_or(self.default)
    }
}

/// The packet as if it went the other way: addresses and ports exchanged, of the innermost datagram.
#[cold]
fn exchange(packet: &StreamPacket<'_>) -> (Vec<u8>, Decoded) {
    let mut frame = packet.frame.to_vec();
    let decoded = packet.decoded;
    let ip = usize::from(decoded.ip_offset);
    let (at, len) = match decoded.key.version {
        4 => (ip + 12, 4),
        _ => (ip + 8, 16),
    };
    if let Some(addresses) = frame.get_mut(at..at + 2 * len) {
        let (source, destination) = addresses.split_at_mut(len);
        source.swap_with_slice(destination);
    }
    if matches!(decoded.key.protocol, TCP | UDP | SCTP) {
        let at = usize::from(decoded.transport_offset);
        if let Some(ports) = frame.get_mut(at..at + 4) {
            ports.rotate_left(2);
        }
    }
    let mut decoded = *decoded;
    decoded.direction = decoded.direction.reversed();
    (frame, decoded)
}
