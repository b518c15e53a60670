//! `hash_sample`: the packets of some of the flows.

use std::collections::VecDeque;

use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, Outlet, ResultInfo, ResultValue, SharedRows, Table,
    columns, options,
};
use flowgauge_wire::{Decoded, HashSeed};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "hash_sample",
    aliases: &["hashsamp"],
    summary: "samples flows by a hash",
    help: "A flow is chosen if its hash modulo 1024 is less than `range`: both directions and all packets, the \
           same flows in each run and on each sensor of the same version. The key of the hash is public for \
           that reason, so a sender can choose ports whose flows are always, or never, chosen. Packets other \
           than IP do not pass. The last packets are kept as samples.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("the last packets", &COLUMNS)),
    make: |settings| {
        let options = Options::read(settings);
        Ok(Box::new(Sampler {
            kept: VecDeque::with_capacity(options.samples),
            taken: settings.attached().cloned(),
            options,
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    range: Integer(1, 1024) as u64 = required, "share of flows, out of 1024";
    samples: Integer(0, 1_000_000) as usize = "1000", "packets kept as samples";
}

columns! {
    static COLUMNS;
    time Time Max "capture time";
    source Address Max "source address";
    destination Address Max "destination address";
    source_port Unsigned Max "source port; for ICMP the type";
    destination_port Unsigned Max "destination port";
    sequence Unsigned Max "TCP sequence number";
    tcp_flags Unsigned Max "TCP flags, the low eight bits";
    protocol Unsigned Max "IP protocol";
}

struct Sampler {
    options: Options,
    kept: VecDeque<Decoded>,
    /// Who takes them.
    taken: Option<SharedRows>,
}

impl Component for Sampler {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        let all = *packets;
        for (index, packet) in all.iter() {
            // Not by the hash of this run: other sensors choose the same flows.
            let is_chosen =
                packet.has_ip() && HashSeed::PUBLIC.hash(&packet.key) % 1024 < self.options.range;
            if !is_chosen {
                packets.selected.remove(index);
                continue;
            }
            let most = self.options.samples;
            if most == 0 {
                continue;
            }
            let is_room = match &self.taken {
                Some(taken) => taken.keep(self.kept.len(), most),
                None => self.kept.len() < most,
            };
            while !is_room && self.kept.len() >= most {
                self.kept.pop_front();
            }
            self.kept.push_back(*packet);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.samples.max(self.kept.len()));
        table.rows = self.kept.iter().map(row).collect();
        Some(ResultValue::Table(table))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.kept.len())
    }

    fn reset(&mut self) {
        self.kept.clear();
        if let Some(taken) = &self.taken {
            taken.take();
        }
    }
}

fn row(packet: &Decoded) -> Vec<Cell> {
    let version = packet.key.version;
    let (source, destination) = (packet.source(), packet.destination());
    vec![
        Cell::Time(packet.time),
        Cell::Address(source.0.to_ip(version)),
        Cell::Address(destination.0.to_ip(version)),
        Cell::Unsigned(source.1.into()),
        Cell::Unsigned(destination.1.into()),
        Cell::Unsigned(packet.seq.into()),
        Cell::Unsigned(packet.tcp_flags.0.into()),
        Cell::Unsigned(packet.key.protocol.into()),
    ]
}
