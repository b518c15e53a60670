//! `copy`: branches that see packets beside what follows.

use flowgauge_stack::{Branches, Component, ComponentInfo, ComponentKind, Packets, Selection};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "copy",
    summary: "passes all packets to each branch and on",
    help: "End branches with discard, otherwise their records go on too. (Packets go on anyway.)",
    kind: ComponentKind::Switch(Branches::Copies),
    make: |_| Ok(Box::new(Copy)),
    ..ComponentInfo::OF_PACKETS
};

struct Copy;

impl Component for Copy {
    fn route(&mut self, packets: &Packets<'_>, branches: &mut [Selection]) {
        branches.fill(packets.selected);
    }
}
