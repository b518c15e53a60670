//! `packets`: a record of each packet.

use flowgauge_record::PacketRow;
use flowgauge_record::packet::PACKET_SCHEMA;
use flowgauge_stack::{
    Component, ComponentInfo, ItemType, Items, Outlet, Output, Packets, Parallel, RecordItem,
    SettingError, Settings, options,
};
use flowgauge_wire::ChecksumVerdict;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "packets",
    summary: "makes a record of each packet",
    help: "The fields are those of the command packets; checksums are not verified. Packets have their number \
           in the input; a reassembled datagram has that of its last fragment.",
    output: Output::Of(ItemType::Record),
    fields: |_| Some(PACKET_SCHEMA),
    options: Options::ALL,
    parallel: Parallel::Anyhow,
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    interface: Text, "value of the field interface, to distinguish the records of several links";
}

struct ToRecords {
    interface: Option<String>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(ToRecords {
        interface: Options::read(settings).interface,
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
