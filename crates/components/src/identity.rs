//! `identity`: lets everything through. It costs what any component costs, which it is there to
//! measure.

use flowgauge_stack::{Component, ComponentInfo, Input, Items, Outlet, forked};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "identity",
    summary: "passes everything",
    input: Input::Any,
    make: |_| Ok(Box::new(Identity { seen: 0 })),
    ..ComponentInfo::OF_PACKETS
};

#[derive(Clone)]
struct Identity {
    seen: u64,
}

impl Component for Identity {
    forked!();

    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        // It looks at each packet, as others do.
        if let Items::Packets(packets) = items {
            let hashes = packets.iter().map(|(_, packet)| packet.hash);
            self.seen = hashes.fold(self.seen, u64::wrapping_add);
        }
    }
}
