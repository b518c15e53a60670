//! `headers`: leaves nothing of packets behind their headers.

use flowgauge_stack::{Component, ComponentInfo, Items, Outlet};
use flowgauge_wire::{DecodeFlags, Decoded, LinkType, Problem};

use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "headers",
    summary: "cuts packets behind the transport header",
    help: "Lengths on the wire stay what they are. Of packets without a known transport header, and of all but the \
           first fragment of a datagram, the IP header is left; of others than IP the header of Ethernet; of \
           those with damaged headers what comes before the damage.",
    make: |_| Ok(Box::new(Headers::default())),
    ..flowgauge_kit::OF_PACKETS
};

#[derive(Default)]
struct Headers(Made);

/// Where the headers end.
fn end_of(packet: &Decoded, link: LinkType) -> usize {
    const ETHERNET_HEADER: usize = 14;

    match (packet.has_ip(), packet.problem) {
        (true, Problem::None) if packet.flags.contains(DecodeFlags::TRANSPORT) => {
            packet.payload_offset as usize
        }
        (true, Problem::None) => packet.transport_offset.into(),
        (true, _) => packet.ip_offset.into(),
        (false, _) if link == LinkType::ETHERNET => ETHERNET_HEADER,
        (false, _) => 0,
    }
}

impl Component for Headers {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (index, decoded) in packets.iter() {
            let Some(descriptor) = packets.batch.packets.get(usize::from(decoded.index)) else {
                continue;
            };
            let mut descriptor = *descriptor;
            if decoded.flags.contains(DecodeFlags::REASSEMBLED) {
                descriptor.link = LinkType::RAW;
            }
            let bytes = packets.bytes(decoded);
            let kept = bytes.get(..end_of(decoded, descriptor.link));
            let origin = packets.origins.get(index).copied().unwrap_or(decoded.index);
            let key = packets.key(index);
            self.0
                .push(descriptor, &[kept.unwrap_or(bytes)], key, origin);
            if self.0.is_full() {
                self.0.give(packets.before, out, |_, _| {});
            }
        }
        self.0.give(packets.before, out, |_, _| {});
        items.clear();
    }
}
