//! `headers`: leaves nothing of packets behind their headers.

use flowgauge_stack::{Component, ComponentInfo, Items, Outlet};
use flowgauge_wire::{DecodeFlags, Decoded, LinkType, Problem};

use crate::made::Made;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "headers",
    summary: "cuts packets after the transport header",
    help: "Lengths on the wire are kept. Packets without a known transport header, and fragments after the first, \
       keep the IP header; packets other than IP the Ethernet header; packets with damaged headers the part before \
       the damage.",
    make: |_| Ok(Box::new(Headers::default())),
    ..ComponentInfo::OF_PACKETS
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
        let made = &mut self.0;
        made.rewritten(packets, out, |descriptor, decoded, bytes, to| {
            let kept = bytes.get(..end_of(decoded, descriptor.link));
            to.extend_from_slice(kept.unwrap_or(bytes));
            *descriptor
        });
        items.clear();
    }
}
