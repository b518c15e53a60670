//! `expired_flows`: the flows that have ended, by direction.

use std::collections::VecDeque;

use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, KeyTable, Outlet, Parallel, ResultInfo, ResultValue,
    Table, columns, options,
};
use flowgauge_wire::{Decoded, Direction, FlowKey, Nanos, TcpFlags};

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "expired_flows",
    summary: "keeps the flows that have ended, each direction separately",
    help: "A flow ends when it was idle for `timeout` on the capture clock, for TCP also with a FIN or \
           RST, and at the end of the input. Flows seen within a timeout of the first packet may have begun \
           before it: they are left out, as are flows of fewer than `least` packets. With more than `flows` \
           flows the oldest are forgotten. The first row has the counts of MAPI, in flows and packets: active \
           (sent), all (received), ended, left out (ignored) and forgotten (dropped).",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("ended flows", &COLUMNS)),
    parallel: Parallel::Never("the first packet of all decides which flows are whole"),
    make: |settings| {
        let options = Options::read(settings);
        Ok(Box::new(ExpiredFlows {
            table: KeyTable::new(Nanos(options.timeout), options.capacity),
            live: Vec::new(),
            options,
            first: None,
            ended: VecDeque::new(),
            counts: Counts::default(),
            numbers: Vec::new(),
        }))
    },
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    flows: Integer(1, 10_000_000) as usize = "10k", "ended flows that are kept";
    capacity: Integer(1, 100_000_000) as usize = "1M", "flows at once; beyond it, the longest idle ends";
    least: Integer(1, i64::MAX) as u64 = "1", "minimum packets of the flows kept";
    timeout: Duration as u64 = "60s", "longest pause of a flow";
    warmup: Flag = "yes", "whether flows of the first timeout are left out";
}

// Of the row above the flows.
columns! {
    static COUNTS;
    sent Unsigned Sum "flows that follow";
    received Unsigned Sum "flows that came";
    expired Unsigned Sum "flows that have ended";
    ignored Unsigned Sum "of them, those of the first timeout or of too few packets";
    dropped Unsigned Sum "of them, those that were forgotten";
    sent_packets Unsigned Sum "packets of the flows that follow";
    received_packets Unsigned Sum "packets that came";
    expired_packets Unsigned Sum "packets of flows that have ended";
    ignored_packets Unsigned Sum "packets of flows that are ignored";
    dropped_packets Unsigned Sum "packets of flows that were forgotten";
}

columns! {
    static COLUMNS;
    first Time Max "time of the first packet";
    packets Unsigned Max "packets";
    bytes Unsigned Max "bytes of IP datagrams";
    source Address Max "source address";
    destination Address Max "destination address";
    source_port Unsigned Max "source port";
    destination_port Unsigned Max "destination port";
    protocol Unsigned Max "IP protocol";
    ttl Unsigned Max "time to live of the first packet";
}

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
    options: Options,
    first: Option<Nanos>,
    ended: VecDeque<Flow>,
    counts: Counts,
    numbers: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: Count,
    expired: Count,
    ignored: Count,
    dropped: Count,
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
            self.counts.received.flows += 1;
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
        self.counts.received.packets += packets;
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
            let is_whole =
                !self.options.warmup || flow.first.0 >= first.saturating_add(self.options.timeout);
            self.counts.expired.add(&flow);
            if !is_whole || flow.packets < self.options.least {
                self.counts.ignored.add(&flow);
                continue;
            }
            if self.ended.len() >= self.options.flows
                && let Some(oldest) = self.ended.pop_front()
            {
                self.counts.dropped.add(&oldest);
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
        let mut table = Table::new(&COLUMNS, self.options.flows);
        table.rows = self.ended.iter().map(row).collect();
        let mut sent = Count::default();
        self.ended.iter().for_each(|flow| sent.add(flow));
        let counts = [
            sent,
            self.counts.received,
            self.counts.expired,
            self.counts.ignored,
            self.counts.dropped,
        ];
        let mut head = Table::new(&COUNTS, 1);
        let flows = counts.iter().map(|count| count.flows);
        let packets = counts.iter().map(|count| count.packets);
        head.rows
            .push(flows.chain(packets).map(Cell::Unsigned).collect());
        table.head = Some(Box::new(head));
        Some(ResultValue::Table(table))
    }

    fn rows(&self) -> Option<usize> {
        Some(self.ended.len())
    }

    fn reset(&mut self) {
        self.ended.clear();
        self.counts = Counts::default();
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
