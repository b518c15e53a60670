//! `icmpscan`: ICMP messages.

use flowgauge_stack::{Component, ComponentInfo, ItemType, Items, Outlet, Output};
use flowgauge_wire::DecodeFlags;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "icmpscan",
    aliases: &["scanicmp"],
    summary: "lets ICMP and ICMPv6 messages through whose header was captured",
    help: "Fragments are none: they come through once they were put together (ipreass).",
    output: Output::Of(ItemType::Datagram),
    make: |_| Ok(Box::new(Scan)),
    ..crate::OF_PACKETS
};

struct Scan;

impl Component for Scan {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let decoded = packets.decoded;
            packets.selected.retain(|index| {
                decoded.packets.get(index).is_some_and(|packet| {
                    matches!(packet.key.protocol, 1 | 58)
                        && packet.flags.contains(DecodeFlags::TRANSPORT)
                        && !packet.flags.contains(DecodeFlags::FRAGMENT)
                })
            });
        }
    }
}
