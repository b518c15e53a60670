//! `ipfragswitch`: a branch for fragments.

use flowgauge_stack::{Branches, Component, ComponentInfo, ComponentKind, Packets, Selection};
use flowgauge_wire::DecodeFlags;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "ipfragswitch",
    summary: "sends fragments of IP datagrams to its branch",
    help: "All other packets go on to the components that follow.",
    kind: ComponentKind::Switch(Branches::Fixed(&["fragments"])),
    make: |_| Ok(Box::new(Fragments)),
    ..ComponentInfo::OF_PACKETS
};

struct Fragments;

impl Component for Fragments {
    fn route(&mut self, packets: &Packets<'_>, branches: &mut [Selection]) {
        let Some(branch) = branches.first_mut() else {
            return;
        };
        let is_fragment = |index: &usize| {
            let packet = packets.decoded.packets.get(*index);
            packet.is_some_and(|packet| packet.flags.contains(DecodeFlags::FRAGMENT))
        };
        packets
            .selected
            .iter()
            .filter(is_fragment)
            .for_each(|index| branch.insert(index));
    }
}
