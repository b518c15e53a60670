//! The packets of a batch as filters see them.

use flowgauge_wire::{
    Batch, DecodeFlags, Decoded, DecodedBatch, LinkType, PacketDescriptor, PacketFlags, Selection,
};

use crate::filter::Filter;
use crate::filter::decisions::Value;
use crate::filter::view::{Plain, Tagged};

/// Packets of a batch as filters see them.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) is_known: bool,
    /// By link type.
    pub(super) links: Vec<(LinkType, Selection)>,
    /// Those that are not in the batch's memory as they are to be seen.
    pub(super) odd: Selection,
}

/// A batch, and what was made of its packets; a place means one of these, if there are any.
#[derive(Clone, Copy)]
pub(in crate::filter) struct Places<'a> {
    pub(in crate::filter) batch: &'a Batch<'a>,
    pub(in crate::filter) decoded: Option<&'a DecodedBatch>,
}

/// Whether this was decoded of the packet at a place of the batch.
#[inline]
fn is_at(packet: &Decoded, place: usize) -> bool {
    usize::from(packet.index) == place && !packet.flags.contains(DecodeFlags::REASSEMBLED)
}

impl Frames {
    /// Whether all packets are known to be of a link type.
    #[inline]
    pub(super) fn is_only(&self, link: LinkType) -> bool {
        self.is_known && matches!(self.links[..], [(only, _)] if only == link)
    }

    #[inline(never)]
    pub(super) fn look(&mut self, places: Places<'_>) {
        self.is_known = true;
        self.links.clear();
        self.odd = Selection::NONE;
        if let Some(link) = places.only_link() {
            let all = Selection::first(places.batch.len());
            return self.links.push((link, all));
        }
        let mut current = (LinkType::default(), Selection::NONE);
        let count = places
            .decoded
            .map_or(places.batch.len(), |it| it.packets.len());
        for place in 0..count {
            let link = match places.plain(place) {
                Some(descriptor) => descriptor.link,
                None => {
                    self.odd.insert(place);
                    places.packet(place).1.map_or(LinkType::RAW, |it| it.link)
                }
            };
            if link != current.0 {
                self.put(current);
                current = (link, Selection::NONE);
            }
            current.1.insert(place);
        }
        self.put(current);
    }

    /// Adds packets of a link type.
    fn put(&mut self, (link, packets): (LinkType, Selection)) {
        match self.links.iter_mut().find(|known| known.0 == link) {
            Some(known) => known.1 = known.1.or(packets),
            None if packets.is_empty() => {}
            None => self.links.push((link, packets)),
        }
    }
}

impl<'a> Places<'a> {
    /// The link type of all packets, if that is one, and all are plain.
    fn only_link(&self) -> Option<LinkType> {
        let packets = self.batch.packets;
        let link = packets.first()?.link;
        let has_tag = |packet: &PacketDescriptor| packet.flags.contains(PacketFlags::VLAN);
        let is_of_it = packets.iter().all(|it| it.link == link && !has_tag(it));
        let are_its = self.decoded.is_none_or(|decoded| {
            let mut all = decoded.packets.iter().enumerate();
            decoded.packets.len() == packets.len()
                && all.all(|(place, packet)| is_at(packet, place))
        });
        (is_of_it && are_its).then_some(link)
    }

    /// A packet that is in the batch's memory as it is to be seen.
    fn plain(&self, place: usize) -> Option<&'a PacketDescriptor> {
        let descriptor = self.batch.packets.get(place)?;
        let is_its = self.decoded.is_none_or(|decoded| {
            let packet = decoded.packets.get(place);
            packet.is_some_and(|packet| is_at(packet, place))
        });
        (is_its && !descriptor.flags.contains(PacketFlags::VLAN)).then_some(descriptor)
    }

    /// The bytes of a packet, what the source says of it, and its length on the wire. The source says nothing of a datagram
    /// that was put together.
    #[inline]
    fn packet(&self, place: usize) -> (&'a [u8], Option<&'a PacketDescriptor>, u32) {
        let decoded = self.decoded.and_then(|decoded| decoded.packets.get(place));
        if let Some(packet) = decoded.filter(|it| it.flags.contains(DecodeFlags::REASSEMBLED)) {
            let bytes = self
                .decoded
                .map_or(&[][..], |decoded| decoded.bytes(self.batch, packet));
            return (bytes, None, packet.ip_len);
        }
        let index = decoded.map_or(place, |packet| usize::from(packet.index));
        match self.batch.packets.get(index) {
            Some(descriptor) => (
                self.batch.bytes_of(descriptor),
                Some(descriptor),
                descriptor.wire_len,
            ),
            None => (&[], None, 0),
        }
    }

    /// A value of a packet that is not in the batch's memory as it is to be seen.
    #[cold]
    pub(super) fn value(&self, value: &Value, place: usize) -> Option<u32> {
        let (bytes, descriptor, wire_len) = self.packet(place);
        let tagged = descriptor.and_then(|of| {
            let has_tag = of.flags.contains(PacketFlags::VLAN);
            has_tag.then(|| Tagged::new(bytes, of.link, of.vlan_tpid, of.vlan_tci))?
        });
        match tagged {
            Some(view) => value.of(&view, wire_len),
            None => value.of(&Plain(bytes), wire_len),
        }
    }

    /// What a filter says of a packet that it looks at alone.
    pub(super) fn verdict(&self, filter: &Filter, place: usize) -> u32 {
        let (bytes, descriptor, wire_len) = self.packet(place);
        match descriptor {
            Some(descriptor) => filter.verdict_on(bytes, descriptor),
            None => filter.verdict(bytes, wire_len),
        }
    }
}
