//! `copy`: branches that see packets beside what follows.

use flowgauge_stack::{Branches, Component, ComponentInfo, ComponentKind, Packets, Selection};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "copy",
    summary: "gives all packets to each branch, and on",
    help: "Branches end with discard: records that they make would go on, too. (Packets that they pass are those that go on anyhow.)",
    kind: ComponentKind::Switch(Branches::Copies),
    make: |_| Ok(Box::new(Copy)),
    ..flowgauge_kit::OF_PACKETS
};

struct Copy;

impl Component for Copy {
    fn route(&mut self, packets: &Packets<'_>, branches: &mut [Selection]) {
        branches.fill(packets.selected);
    }
}
