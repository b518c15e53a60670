//! `packets`: a record of each packet.

use flowgauge_record::PacketRow;
use flowgauge_record::packet::PACKET_SCHEMA;
use flowgauge_stack::{
    Component, ComponentInfo, ItemType, Items, OptionInfo, OptionKind, Outlet, Output, Packets,
    Parallel, RecordItem, SettingError, Settings,
};
use flowgauge_wire::ChecksumVerdict;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "packets",
    summary: "gives a record of each packet",
    help: "The fields are those of the command packets; checksums are not looked at. \
           Packets have the number that they have in the input; a datagram that was put together from \
           fragments that of its last one.",
    output: Output::Of(ItemType::Record),
    fields: |_| Some(PACKET_SCHEMA),
    options: &[OptionInfo::new(
        "interface",
        OptionKind::Text,
        "what stands in the field interface: tells links apart whose records meet elsewhere",
    )],
    parallel: Parallel::Anyhow,
    make,
    ..flowgauge_kit::OF_PACKETS
};

struct ToRecords {
    interface: Option<String>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(ToRecords {
        interface: settings.text("interface").map(str::to_owned),
    }))
}

impl ToRecords {
    fn packets(&self, packets: &Packets<'_>, out: &mut dyn Outlet) {
        for (index, decoded) in packets.iter() {
            let Some(packet) = packets.batch.packets.get(usize::from(decoded.index)) else {
                continue;
            };
            let tunnel = usize::from(decoded.tunnel).checked_sub(1);
            let row = PacketRow {
                number: packets.position(index),
                packet,
                interface: self.interface.as_deref(),
                decoded,
                tunnel: tunnel.and_then(|at| packets.decoded.tunnels.get(at)),
                checksum: ChecksumVerdict::Unknown,
                frame: packets.bytes(decoded),
                bytes: None,
            };
            out.emit(Items::Records(&[RecordItem {
                key: packets.key(index),
                time: decoded.time,
                record: &row,
            }]));
        }
    }
}

impl Component for ToRecords {
    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            self.packets(packets, out);
        }
        items.clear();
    }
}
