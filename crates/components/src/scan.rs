//! What the scans have in common: packets whose transport header was decoded.

use flowgauge_stack::{Component, Items, Outlet};
use flowgauge_wire::DecodeFlags;

/// Lets packets of these IP protocols through, whole datagrams only.
pub(crate) fn scan(protocols: &'static [u8]) -> Box<dyn Component> {
    Box::new(Scan { protocols })
}

struct Scan {
    protocols: &'static [u8],
}

impl Component for Scan {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let decoded = packets.decoded;
            packets.selected.retain(|index| {
                decoded.packets.get(index).is_some_and(|packet| {
                    self.protocols.contains(&packet.key.protocol)
                        && packet.flags.contains(DecodeFlags::TRANSPORT)
                        && !packet.flags.contains(DecodeFlags::FRAGMENT)
                })
            });
        }
    }
}
