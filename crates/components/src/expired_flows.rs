//! `expired_flows`: the flows that have ended, by direction.

use std::collections::VecDeque;

use flowgauge_stack::{
    Cell, Component, ComponentInfo, FieldKind, Items, KeyTable, Merge, OptionInfo, OptionKind,
    Outlet, Parallel, ResultInfo, ResultValue, Table, TableColumn,
};
use flowgauge_wire::{Decoded, Direction, FlowKey, Nanos, TcpFlags};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "expired_flows",
    summary: "keeps the flows that have ended, each direction for itself",
    help: "A flow ends when nothing came for `timeout` on the clock of the capture, of TCP also with a FIN \
           or RST, and at the end of the input. Flows that were seen within a timeout of the first packet \
           may have begun before it: they are left out, as are those of fewer than `least` packets. With \
           more than `flows` the oldest are forgotten. Above the flows stands a row with MAPI's counts, in flows \
           and in packets: those that follow (sent), all that came (received), that ended, that were left out \
           (ignored), and that were forgotten (dropped).",
    is_end: true,
    options: &[
        OptionInfo::new(
            "flows",
            OptionKind::Integer {
                min: 1,
                max: 10_000_000,
            },
            "ended flows that are kept",
        )
        .or("10k"),
        OptionInfo::new(
            "capacity",
            OptionKind::Integer {
                min: 1,
                max: 100_000_000,
            },
            "flows at once; with more the longest idle ends",
        )
        .or("1M"),
        OptionInfo::new(
            "least",
            OptionKind::Integer {
                min: 1,
                max: i64::MAX,
            },
            "packets of the flows that are kept",
        )
        .or("1"),
        OptionInfo::new("timeout", OptionKind::Duration, "a flow's longest pause").or("60s"),
        OptionInfo::new(
            "warmup",
            OptionKind::Flag,
            "whether flows of the first timeout are left out",
        )
        .or("yes"),
    ],
    result: Some(ResultInfo::table("ended flows", &COLUMNS)),
    parallel: Parallel::Never("the first packet of all decides which flows are whole"),
    make: |settings| {
        let timeout = settings.duration("timeout").unwrap_or(60_000_000_000);
        let capacity = settings.integer("capacity").unwrap_or(1) as usize;
        Ok(Box::new(ExpiredFlows {
            table: KeyTable::new(Nanos(timeout), capacity),
            live: Vec::new(),
            timeout,
            has_warmup: settings.flag("warmup"),
            first: None,
            least: settings.integer("least").unwrap_or(1) as u64,
            flows: settings.integer("flows").unwrap_or(1) as usize,
            ended: VecDeque::new(),
            received: Count::default(),
            expired: Count::default(),
            ignored: Count::default(),
            dropped: Count::default(),
            numbers: Vec::new(),
        }))
    },
    ..flowgauge_kit::OF_PACKETS
};

const fn counted(name: &'static str, help: &'static str) -> TableColumn {
    TableColumn::new(name, FieldKind::Unsigned, Merge::Sum, help)
}

/// Of the row above the flows.
static COUNTS: [TableColumn; 10] = [
    counted("sent", "flows that follow"),
    counted("received", "flows that came"),
    counted("expired", "flows that have ended"),
    counted(
        "ignored",
        "of them, those of the first timeout or of too few packets",
    ),
    counted("dropped", "of them, those that were forgotten"),
    counted("sent_packets", "packets of the flows that follow"),
    counted("received_packets", "packets that came"),
    counted("expired_packets", "packets of flows that have ended"),
    counted("ignored_packets", "packets of flows that are ignored"),
    counted("dropped_packets", "packets of flows that were forgotten"),
];

static COLUMNS: [TableColumn; 9] = [
    TableColumn::new(
        "first",
        FieldKind::Time,
        Merge::Max,
        "time of the first packet",
    ),
    TableColumn::new("packets", FieldKind::Unsigned, Merge::Max, "packets"),
    TableColumn::new(
        "bytes",
        FieldKind::Unsigned,
        Merge::Max,
        "bytes of IP datagrams",
    ),
    TableColumn::new("source", FieldKind::Address, Merge::Max, "source address"),
    TableColumn::new(
        "destination",
        FieldKind::Address,
        Merge::Max,
        "destination address",
    ),
    TableColumn::new(
        "source_port",
        FieldKind::Unsigned,
        Merge::Max,
        "source port",
    ),
    TableColumn::new(
        "destination_port",
        FieldKind::Unsigned,
        Merge::Max,
        "destination port",
    ),
    TableColumn::new("protocol", FieldKind::Unsigned, Merge::Max, "IP protocol"),
    TableColumn::new(
        "ttl",
        FieldKind::Unsigned,
        Merge::Max,
        "time to live of the first packet",
    ),
];

#[derive(Clone, Copy)]
struct Flow {
    first: Nanos,
    packets: u64,
    bytes: u64,
    key: FlowKey,
    direction: Direction,
    ttl: u8,
}

#[derive(Clone, Copy, Default)]
struct Count {
    flows: u64,
    packets: u64,
}

impl Count {
    fn add(&mut self, flow: &Flow) {
        self.flows += 1;
        self.packets += flow.packets;
    }
}

struct ExpiredFlows {
    table: KeyTable<FlowKey>,
    /// By number in the table.
    live: Vec<Option<Flow>>,
    timeout: u64,
    has_warmup: bool,
    first: Option<Nanos>,
    least: u64,
    flows: usize,
    ended: VecDeque<Flow>,
    received: Count,
    expired: Count,
    ignored: Count,
    dropped: Count,
    numbers: Vec<u32>,
}

impl ExpiredFlows {
    fn packet(&mut self, packet: &Decoded) {
        // One flow for each direction.
        let key = FlowKey {
            reserved: packet.direction as u16,
            ..packet.key
        };
        let number = self.table.number(0, key, packet.time) as usize;
        if number >= self.live.len() {
            self.live.resize(number + 1, None);
        }
        let flow = self.live[number].get_or_insert_with(|| {
            self.received.flows += 1;
            Flow {
                first: packet.time,
                packets: 0,
                bytes: 0,
                key: packet.key,
                direction: packet.direction,
                ttl: packet.ttl,
            }
        });
        let packets = u64::from(packet.frames.max(1));
        flow.packets += packets;
        self.received.packets += packets;
        flow.bytes += u64::from(packet.ip_len);
        if packet
            .tcp_flags
            .intersects(TcpFlags::FIN.with(TcpFlags::RST))
        {
            self.table.end(number as u32);
        }
    }

    /// Keeps the flows that have ended.
    fn collect(&mut self, now: Nanos) {
        let mut numbers = core::mem::take(&mut self.numbers);
        self.table.take_ended(now, &mut numbers);
        // Those that end together in the order in which they began, however the table keeps them.
        let live = &self.live;
        numbers.sort_unstable_by_key(|number| {
            let flow = live.get(*number as usize).and_then(Option::as_ref);
            flow.map(|flow| (flow.first, flow.key, flow.direction.index()))
        });
        let first = self.first.map_or(0, |first| first.0);
        for number in numbers.drain(..) {
            let Some(flow) = self.live.get_mut(number as usize).and_then(Option::take) else {
                continue;
            };
            let is_whole = !self.has_warmup || flow.first.0 >= first.saturating_add(self.timeout);
            self.expired.add(&flow);
            if !is_whole || flow.packets < self.least {
                self.ignored.add(&flow);
                continue;
            }
            if self.ended.len() >= self.flows
                && let Some(oldest) = self.ended.pop_front()
            {
                self.dropped.add(&oldest);
            }
            self.ended.push_back(flow);
        }
        self.numbers = numbers;
    }
}

impl Component for ExpiredFlows {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (_, packet) in packets.iter().filter(|(_, packet)| packet.has_ip()) {
            self.first.get_or_insert(packet.time);
            self.packet(packet);
        }
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        self.collect(now);
    }

    fn finish(&mut self, _: &mut dyn Outlet) {
        self.table.end_all();
        self.collect(Nanos(0));
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.flows);
        table.rows = self.ended.iter().map(row).collect();
        let mut sent = Count::default();
        self.ended.iter().for_each(|flow| sent.add(flow));
        let counts = [
            sent,
            self.received,
            self.expired,
            self.ignored,
            self.dropped,
        ];
        let mut head = Table::new(&COUNTS, 1);
        let flows = counts.iter().map(|count| count.flows);
        let packets = counts.iter().map(|count| count.packets);
        head.rows
            .push(flows.chain(packets).map(Cell::Unsigned).collect());
        table.head = Some(Box::new(head));
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.ended.clear();
        for count in [
            &mut self.received,
            &mut self.expired,
            &mut self.ignored,
            &mut self.dropped,
        ] {
            *count = Count::default();
        }
    }
}

fn row(flow: &Flow) -> Vec<Cell> {
    let (source, destination) = flow.key.endpoints(flow.direction);
    let version = flow.key.version;
    vec![
        Cell::Time(flow.first),
        Cell::Unsigned(flow.packets),
        Cell::Unsigned(flow.bytes),
        Cell::Address(source.0.to_ip(version)),
        Cell::Address(destination.0.to_ip(version)),
        Cell::Unsigned(source.1.into()),
        Cell::Unsigned(destination.1.into()),
        Cell::Unsigned(flow.key.protocol.into()),
        Cell::Unsigned(flow.ttl.into()),
    ]
}
