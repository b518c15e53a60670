//! `scanicp` and `icpdemux`: queries between caches as the paper's figure 4 takes them apart.

use flowgauge_proto::icp::Message;
use flowgauge_stack::{
    Component, ComponentInfo, ItemType, Items, KeyTable, Outlet, Output, Packets, ResultValue,
    Selection, Settings,
};
use flowgauge_wire::{Decoded, Nanos};

use crate::keyed::{DEMULTIPLEXER, KeyName};

pub(crate) static SCAN: ComponentInfo = ComponentInfo {
    name: "scanicp",
    aliases: &["icpscan"],
    summary: "lets datagrams through that are messages between caches (ICP)",
    help: "Versions 2 and 3, on any port. Of fragments none: they come through once they were put together \
           (ipreass).",
    output: Output::Of(ItemType::Datagram),
    make: |_| Ok(Box::new(Scan)),
    ..crate::OF_PACKETS
};

pub(crate) static DEMUX: ComponentInfo = ComponentInfo {
    name: "icpdemux",
    summary: "an instance per query between caches (ICP) and its reply",
    help: "By the query's number: two caches that talk to each other are to be apart from others before \
           (ipcnxdemux). What is no ICP goes on to what follows.",
    make: |settings| Ok(Box::new(Demux::new(settings))),
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

struct Demux {
    table: KeyTable<Number>,
    /// Instances that the result does not count: it was reset.
    made_before: u64,
    /// Keys that a component inside has finished with.
    finished: Vec<u32>,
}

impl Demux {
    fn new(settings: &Settings) -> Demux {
        let timeout = settings.duration("timeout").unwrap_or(60_000_000_000);
        let keys = settings.integer("keys").unwrap_or(1_000_000);
        Demux {
            table: KeyTable::new(Nanos(timeout), keys as usize),
            made_before: 0,
            finished: Vec::new(),
        }
    }
}

impl Component for Demux {
    fn process(&mut self, _: &mut Items<'_>, _: &mut dyn Outlet) {}

    fn demultiplex(&mut self, packets: &Packets<'_>, keys: &mut [u32], _: Nanos) -> Selection {
        let mut keyed = Selection::NONE;
        for (index, packet) in packets.iter() {
            let Some(message) = message(packets, packet) else {
                continue;
            };
            let number = Number(message.number);
            keys[index] = self.table.number(packets.key(index), number, packet.time);
            keyed.insert(index);
        }
        keyed
    }

    fn result(&self) -> Option<ResultValue> {
        Some(ResultValue::Sum(self.table.made() - self.made_before))
    }

    fn reset(&mut self) {
        self.made_before = self.table.made();
    }

    fn ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.finished.drain(..).for_each(|key| self.table.end(key));
        self.table.take_ended(now, ended);
    }

    fn outer(&self, key: u32) -> u32 {
        self.table.outer(key)
    }

    fn key_name(&self, key: u32) -> Option<String> {
        self.table.key(key).map(KeyName::name)
    }

    fn end_key(&mut self, key: u32) {
        self.finished.push(key);
    }

    fn close(&mut self, key: u32, _: &mut dyn Outlet) {
        self.table.end_outer(key);
    }

    fn end_all(&mut self) {
        self.table.end_all();
    }
}
