//! `scanicp` and `icpdemux`: queries between caches as the paper's figure 4 takes them apart.

use flowgauge_kit::keyed::{DEMULTIPLEXER, KeyName, Keying, Keys, keying};
use flowgauge_proto::icp::Message;
use flowgauge_stack::{
    Component, ComponentInfo, ItemType, Items, Outlet, Output, Packets, Selection,
};
use flowgauge_wire::Decoded;

pub(crate) static SCAN: ComponentInfo = ComponentInfo {
    name: "scanicp",
    aliases: &["icpscan"],
    summary: "selects ICP messages between caches",
    help: "Versions 2 and 3, on any port. Fragments do not pass until they are reassembled (ipreass).",
    output: Output::Of(ItemType::Datagram),
    make: |_| Ok(Box::new(Scan)),
    ..ComponentInfo::OF_PACKETS
};

pub(crate) static DEMUX: ComponentInfo = ComponentInfo {
    name: "icpdemux",
    summary: "an instance per ICP query and its reply",
    help: "Pairs are matched by the number of the query: separate pairs of caches first (ipcnxdemux). \
           Packets other than ICP go on to the components that follow.",
    make: |settings| Ok(keying(settings, Demux)),
    ..DEMULTIPLEXER
};

fn message<'a>(packets: &'a Packets<'_>, packet: &'a Decoded) -> Option<Message<'a>> {
    let is_whole = packet.key.protocol == 17
        && packet
            .flags
            .contains(flowgauge_wire::DecodeFlags::TRANSPORT)
        && !packet.flags.contains(flowgauge_wire::DecodeFlags::FRAGMENT);
    let payload = is_whole.then(|| packets.decoded.payload(packets.batch, packet));
    payload.and_then(Message::read)
}

struct Scan;

impl Component for Scan {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        if let Items::Packets(packets) = items {
            let mut kept = Selection::NONE;
            let all = packets.iter();
            all.filter(|(_, packet)| message(packets, packet).is_some())
                .for_each(|(index, _)| kept.insert(index));
            packets.selected.retain(|index| kept.contains(index));
        }
    }
}

/// Number of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Number(u32);

impl KeyName for Number {
    fn name(&self) -> String {
        self.0.to_string()
    }
}

#[derive(Clone)]
struct Demux;

impl Keying for Demux {
    type Key = Number;

    fn demultiplex(
        &mut self,
        keys: &mut Keys<Number>,
        packets: &Packets<'_>,
        numbers: &mut [u32],
    ) -> Selection {
        let mut keyed = Selection::NONE;
        for (index, packet) in packets.iter() {
            let Some(message) = message(packets, packet) else {
                continue;
            };
            let number = Number(message.number);
            numbers[index] = keys.table.number(packets.key(index), number, packet.time);
            keyed.insert(index);
        }
        keyed
    }
}
