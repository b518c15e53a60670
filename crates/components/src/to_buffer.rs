//! `to_buffer`: keeps the last packets.

use std::collections::VecDeque;

use data_encoding::HEXLOWER;
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, Outlet, Parallel, ResultInfo, ResultValue, SharedSink,
    Table, columns, options,
};
use flowgauge_wire::{LinkType, Nanos};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "to_buffer",
    summary: "keeps the last packets",
    help: "When full, the oldest packets are overwritten. Memory is `packets` times the largest of them, at most \
       `snap` bytes. In a flow of a sensor, packets go to the flow's user instead.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("the last packets", &COLUMNS)),
    parallel: Parallel::Never("the last packets of all are kept"),
    make: |settings| {
        Ok(Box::new(Ring {
            options: Options::read(settings),
            kept: VecDeque::new(),
            sink: settings.attached().cloned(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    packets: Integer(1, 1_000_000) as usize = "1000", "how many are kept";
    snap: Integer(1, 262_144) as usize = "65535", "bytes kept of each";
}

columns! {
    static COLUMNS;
    time Time Max "capture time";
    length Unsigned Max "bytes on the wire";
    link Unsigned Max "link type, pcap's number";
    bytes Text Max "the bytes, in hexadecimal";
}

struct Kept {
    time: Nanos,
    length: u32,
    link: LinkType,
    bytes: Vec<u8>,
}

struct Ring {
    options: Options,
    kept: VecDeque<Kept>,
    /// What takes the packets in its place.
    sink: Option<SharedSink>,
}

impl Component for Ring {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        if let Some(sink) = &self.sink {
            return sink.packets(packets, self.options.snap);
        }
        for (_, packet) in packets.iter() {
            let bytes = packets.bytes(packet);
            let descriptor = packets.batch.packets.get(usize::from(packet.index));
            // The oldest packet's memory serves again.
            let is_full = self.kept.len() >= self.options.packets;
            let oldest = if is_full { self.kept.pop_front() } else { None };
            let mut memory = oldest.map_or_else(Vec::new, |kept| kept.bytes);
            memory.clear();
            memory.extend_from_slice(bytes.get(..self.options.snap).unwrap_or(bytes));
            self.kept.push_back(Kept {
                time: packet.time,
                length: packet.wire_len,
                link: descriptor.map_or(LinkType::RAW, |descriptor| descriptor.link),
                bytes: memory,
            });
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.packets);
        table.rows = self.kept.iter().map(row).collect();
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.kept.clear();
    }
}

fn row(kept: &Kept) -> Vec<Cell> {
    vec![
        Cell::Time(kept.time),
        Cell::Unsigned(kept.length.into()),
        Cell::Unsigned(kept.link.0.into()),
        Cell::Text(HEXLOWER.encode(&kept.bytes)),
    ]
}
