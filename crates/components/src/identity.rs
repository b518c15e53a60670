//! `identity`: lets everything through. It costs what any component costs, which it is there to
//! measure.

use flowgauge_stack::{Component, ComponentInfo, Input, Items, Outlet};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "identity",
    summary: "lets everything through",
    input: Input::Any,
    make: |_| Ok(Box::new(Identity { seen: 0 })),
    ..crate::OF_PACKETS
};

struct Identity {
    seen: u64,
}

impl Component for Identity {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        // It looks at each packet, as others do.
        if let Items::Packets(packets) = items {
            for (_, packet) in packets.iter() {
                self.seen = self.seen.wrapping_add(packet.hash);
            }
        }
    }
}
