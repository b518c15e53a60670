//! `applications`: what each application has of packets, and how fast it is answered.

use std::collections::HashMap;

use flowgauge_record::schema::Field;
use flowgauge_record::{FieldVisitor, ValueRef};
use flowgauge_stack::{
    Account, Cell, Component, ComponentInfo, Input, ItemType, Items, Outlet, Parallel, ResultInfo,
    ResultValue, SettingError, Settings, Table, columns, options,
};
use flowgauge_wire::FoldedState;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "applications",
    summary: "adds up packets and response times by application",
    help: "Takes the records of transactions { flows = yes }: packets and IP bytes of flows by recognised protocol, \
       or else by transport protocol and lower port; transactions by protocol, with their latency. Flows count when \
       they end.",
    input: Input::Of(&[ItemType::Record]),
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("applications", &COLUMNS)),
    parallel: Parallel::Never("an application that is small on each core may be large on all"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    count: Integer(1, 1000) as usize = "100", "applications reported, those with the most bytes";
    table: Integer(1, 1_000_000) as usize = "10k", "applications counted; further ones are left out";
}

columns! {
    static COLUMNS;
    application Text Key "the protocol, or transport protocol and smaller port, as tcp/8080";
    flows Unsigned Sum "its flows";
    packets Unsigned Sum "packets of them";
    bytes Unsigned Sum "bytes of them, by IP headers";
    answered Unsigned Sum "transactions with request and reply";
    unanswered Unsigned Sum "requests without a reply";
    latency_sum Unsigned Sum "nanoseconds from requests to replies, all together";
    latency_least Unsigned Min "the least";
    latency_most Unsigned Max "the largest";
}
const BYTES: usize = 3;

// Of the row above them.
columns! {
    static HEAD;
    all_bytes Unsigned Sum "bytes of all applications, by IP headers";
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    flows: u64,
    packets: u64,
    bytes: u64,
    answered: u64,
    unanswered: u64,
    latency: u64,
    ends: Option<(u64, u64)>,
}

struct Applications {
    options: Options,
    found: HashMap<String, Sums, FoldedState>,
    /// Records of applications that found no room.
    left_out: u64,
    said: Said,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    Ok(Box::new(Applications {
        options: Options::read(settings),
        found: HashMap::default(),
        left_out: 0,
        said: Said::default(),
    }))
}

/// What a record says; its memory serves again.
#[derive(Debug, Default)]
struct Said {
    kind: String,
    protocol: String,
    transport: String,
    ports: [u64; 2],
    state: String,
    /// Where it is the record of a flow, its counts too.
    sums: Sums,
    name: String,
}

impl Said {
    fn clear(&mut self) {
        for text in [
            &mut self.kind,
            &mut self.protocol,
            &mut self.transport,
            &mut self.state,
            &mut self.name,
        ] {
            text.clear();
        }
        (self.ports, self.sums) = ([0; 2], Sums::default());
    }

    /// Which application it is of; nothing of records that say nothing of one.
    fn conclude(&mut self) -> Option<(&str, Sums)> {
        let is_flow = self.kind == "flow";
        if is_flow && self.protocol.is_empty() {
            let port = self.ports[0].min(self.ports[1]);
            self.name.push_str(&self.transport);
            if matches!(self.transport.as_str(), "tcp" | "udp" | "sctp") {
                self.name.push_str(&format!("/{port}"));
            }
        } else {
            let protocol = if is_flow { &self.protocol } else { &self.kind };
            self.name.push_str(protocol);
        }
        let sums = &mut self.sums;
        if is_flow {
            sums.flows = 1;
            (sums.answered, sums.latency, sums.ends) = (0, 0, None);
        } else {
            sums.unanswered = u64::from(self.state == "no_reply");
            (sums.packets, sums.bytes) = (0, 0);
        }
        let says = is_flow || sums.answered + sums.unanswered > 0;
        (says && !self.name.is_empty()).then_some((&*self.name, self.sums))
    }
}

impl FieldVisitor for Said {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        let sums = &mut self.sums;
        match (field.name, value) {
            (name, ValueRef::Text(value) | ValueRef::Symbol(value)) => match name {
                "event_type" => self.kind.push_str(value),
                "app_proto" => self.protocol.push_str(value),
                "proto" => self.transport.push_str(value),
                "state" => self.state.push_str(value),
                _ => {}
            },
            ("src_port", ValueRef::Unsigned(port)) => self.ports[0] = port,
            ("dst_port", ValueRef::Unsigned(port)) => self.ports[1] = port,
            ("src_packets" | "dst_packets", ValueRef::Unsigned(packets)) => sums.packets += packets,
            ("src_ip_bytes" | "dst_ip_bytes", ValueRef::Unsigned(bytes)) => sums.bytes += bytes,
            ("latency", ValueRef::Duration(latency)) => {
                (sums.answered, sums.latency) = (1, latency.0);
                sums.ends = Some((latency.0, latency.0));
            }
            _ => {}
        }
    }
}

impl Sums {
    fn merge(&mut self, other: &Sums) {
        self.flows += other.flows;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        self.latency = self.latency.saturating_add(other.latency);
        self.ends = match (self.ends, other.ends) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
    }
}

impl Component for Applications {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Records(records) = items else {
            return;
        };
        for item in *records {
            self.said.clear();
            item.record.values(&mut self.said);
            let Some((name, sums)) = self.said.conclude() else {
                continue;
            };
            if let Some(known) = self.found.get_mut(name) {
                known.merge(&sums);
            } else if self.found.len() < self.options.table {
                self.found.insert(name.to_owned(), sums);
            } else {
                self.left_out += 1;
            }
        }
        items.clear();
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.count);
        table.largest_of = Some(BYTES);
        let rows = self.found.iter().map(|(name, sums)| {
            let ends = sums.ends.map(|(least, most)| [least, most]);
            let [least, most] = ends.map_or([Cell::None, Cell::None], |it| it.map(Cell::Unsigned));
            vec![
                Cell::Text(name.clone()),
                Cell::Unsigned(sums.flows),
                Cell::Unsigned(sums.packets),
                Cell::Unsigned(sums.bytes),
                Cell::Unsigned(sums.answered),
                Cell::Unsigned(sums.unanswered),
                Cell::Unsigned(sums.latency),
                least,
                most,
            ]
        });
        table.rows = rows.collect();
        table.arrange();
        let mut head = Table::new(&HEAD, 1);
        let all = self.found.values().map(|sums| sums.bytes).sum();
        head.rows.push(vec![Cell::Unsigned(all)]);
        table.head = Some(Box::new(head));
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.found.clear();
    }

    fn account(&self) -> Option<Box<Account>> {
        let mut account = Account::default();
        let what = "left out: raise `table`";
        account.count(self.left_out, "record", what);
        Some(Box::new(account))
    }
}
