//! `top`: the values of a field with the most packets or bytes.

use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::HashMap;

use flowgauge_kit::measure::Intervals;
use flowgauge_record::aggregate::drop_smaller_half;
use flowgauge_record::link::Mac;
use flowgauge_record::text::protocol_name;
use flowgauge_stack::{
    Cell, Component, ComponentInfo, Items, Outlet, Packets, Parallel, ResultInfo, ResultValue,
    SettingError, Settings, Table, columns, options,
};
use flowgauge_wire::{Address, Decoded, FlowKey, FoldedState, Nanos};

use crate::fields::{Field, Kind, Packet, Value};
use crate::protocol_field::unknown;

pub(crate) static INFO: ComponentInfo = ComponentInfo {
    name: "top",
    summary: "finds the values of a field with the most packets or bytes",
    help: "Fields have Wireshark's names (docs/display-filter.md); several are separated by blanks, such as \"ip.src \
           ipv6.src\". A packet counts once for each of its values. Up to `table` values are counted exactly; beyond it \
           the smaller half is discarded, and `error` is the largest count that a later value may have lost. \"flow\" \
           counts connections by addresses, ports and protocol, and \"proto\" the protocols above IP.",
    is_end: true,
    options: Options::ALL,
    result: Some(ResultInfo::table("the most", &COLUMNS)),
    parallel: Parallel::Never("a value that is small on each core may be large on all"),
    make,
    ..ComponentInfo::OF_PACKETS
};

options! {
    struct Options;
    by: Text = "ip.addr ipv6.addr", "which fields";
    count: Integer(1, 1000) as usize = "10", "values reported";
    sort: Choice("packets", "bytes", "1", "2") = "bytes", "order by; the numbers are MAPI's";
    interval: Duration as u64 = "0", "restart the count at this interval, and report the last complete one; 0: never";
    table: Integer(2000, 100_000_000) as usize = "100k", "values counted at once";
}

columns! {
    static COLUMNS;
    value Text Key "value of the field";
    packets Unsigned Sum "its packets";
    bytes Unsigned Sum "their bytes on the wire";
    error Unsigned Max "packets or bytes it may have had more";
    since Time Min "when counting began: with the first packet, or the interval";
}

/// A value, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Number(u64),
    Ipv4(u32),
    Ipv6(u128),
    Mac([u8; 6]),
    Protocol(u8),
    Flow(FlowKey),
}

/// What is counted by.
#[derive(Clone, Copy)]
enum By {
    Field(&'static Field),
    Protocol,
    Flow,
}

impl By {
    /// Its values in a packet, one after the other.
    #[inline]
    fn each(self, packets: &Packets<'_>, decoded: &Decoded, mut take: impl FnMut(Key)) {
        match self {
            By::Field(field) => {
                let found = field.of(&Packet::new(packets, decoded));
                let mut before = None;
                for key in found.iter().filter_map(|value| Key::new(field.kind, value)) {
                    // Of a packet from a host to itself.
                    if before.replace(key) != Some(key) {
                        take(key);
                    }
                }
            }
            By::Protocol if decoded.has_ip() => take(Key::Protocol(decoded.key.protocol)),
            By::Flow if decoded.has_ip() => take(Key::Flow(decoded.key)),
            By::Protocol | By::Flow => {}
        }
    }
}

impl Key {
    fn new(kind: Kind, value: Value<'_>) -> Option<Key> {
        Some(match (kind, value) {
            (Kind::Ipv4, Value::Number(address)) => Key::Ipv4(address as u32),
            (Kind::Ipv6, Value::Number(address)) => Key::Ipv6(address),
            (_, Value::Number(number)) => Key::Number(number as u64),
            (_, Value::Bytes(bytes)) => Key::Mac(bytes.try_into().ok()?),
        })
    }

    fn cell(self) -> Cell {
        match self {
            Key::Number(number) => Cell::Unsigned(number),
            Key::Ipv4(address) => Cell::Address(IpAddr::V4(Ipv4Addr::from(address))),
            Key::Ipv6(address) => Cell::Address(IpAddr::V6(Ipv6Addr::from(address))),
            Key::Mac(bytes) => Cell::Text(Mac(bytes).to_string()),
            Key::Protocol(number) => Cell::Text(protocol_name(number).to_owned()),
            Key::Flow(key) => {
                let end = |address: Address, port| {
                    let address = address.to_ip(key.version);
                    match matches!(key.protocol, 6 | 17 | 132) {
                        true => SocketAddr::new(address, port).to_string(),
                        false => address.to_string(),
                    }
                };
                let (low, high) = (end(key.low, key.low_port), end(key.high, key.high_port));
                Cell::Text(format!("{} {low} {high}", protocol_name(key.protocol)))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    packets: u64,
    bytes: u64,
    error: u64,
}

impl Sums {
    fn weight(&self, is_by_bytes: bool) -> u64 {
        match is_by_bytes {
            true => self.bytes,
            false => self.packets,
        }
    }
}

struct Top {
    fields: Vec<By>,
    options: Options,
    is_by_bytes: bool,
    intervals: Option<Intervals>,
    sums: HashMap<Key, Sums, FoldedState>,
    /// The most that a value had that was forgotten.
    forgotten: u64,
    /// When counting began.
    since: Option<Nanos>,
    /// Of the last whole interval.
    last: Option<Vec<Vec<Cell>>>,
}

fn make(settings: &Settings) -> Result<Box<dyn Component>, SettingError> {
    let options = Options::read(settings);
    let mut fields = Vec::new();
    for name in options.by.split([' ', ',']).filter(|name| !name.is_empty()) {
        match name {
            "flow" => {
                fields.push(By::Flow);
                continue;
            }
            "proto" => {
                fields.push(By::Protocol);
                continue;
            }
            _ => {}
        }
        let field = Field::find(name).ok_or_else(|| {
            let (message, hint) = unknown(name);
            SettingError::of("by", message).with_hint(hint)
        })?;
        if matches!(field.kind, Kind::Bytes | Kind::Protocol | Kind::Time) {
            return Err(SettingError::of(
                "by",
                format!("{name} cannot be counted by"),
            ));
        }
        fields.push(By::Field(field));
    }
    if fields.is_empty() {
        return Err(SettingError::of("by", "names no field"));
    }
    Ok(Box::new(Top {
        fields,
        intervals: (options.interval > 0).then(|| Intervals::new(options.interval)),
        is_by_bytes: !matches!(options.sort, "packets" | "1"),
        options,
        sums: HashMap::default(),
        forgotten: 0,
        since: None,
        last: None,
    }))
}

impl Top {
    fn add(&mut self, key: Key, bytes: u32) {
        if self.sums.len() >= self.options.table && !self.sums.contains_key(&key) {
            self.forget();
        }
        let error = self.forgotten;
        let sums = self.sums.entry(key).or_insert(Sums {
            error,
            ..Sums::default()
        });
        sums.packets += 1;
        sums.bytes += u64::from(bytes);
    }

    /// Forgets the smaller half.
    #[cold]
    fn forget(&mut self) {
        let is_by_bytes = self.is_by_bytes;
        let weight = |sums: &Sums| sums.weight(is_by_bytes) + sums.error;
        let forgotten = &mut self.forgotten;
        drop_smaller_half(&mut self.sums, weight, |_, sums| {
            *forgotten = (*forgotten).max(weight(sums));
        });
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let mut all: Vec<(&Key, &Sums)> = self.sums.iter().collect();
        all.sort_unstable_by_key(|(key, sums)| (Reverse(sums.weight(self.is_by_bytes)), **key));
        let most = all.into_iter().take(self.options.count);
        most.map(|(key, sums)| {
            let numbers = [sums.packets, sums.bytes, sums.error];
            let mut row = vec![key.cell()];
            row.extend(numbers.map(Cell::Unsigned));
            row.push(self.since.map_or(Cell::None, Cell::Time));
            row
        })
        .collect()
    }
}

impl Component for Top {
    fn process(&mut self, items: &mut Items<'_>, _: &mut dyn Outlet) {
        let Items::Packets(packets) = items else {
            return;
        };
        for (_, decoded) in packets.iter() {
            self.since.get_or_insert(decoded.time);
            for number in 0..self.fields.len() {
                let by = self.fields[number];
                by.each(packets, decoded, |key| self.add(key, decoded.wire_len));
            }
        }
    }

    fn interval(&self) -> Option<Nanos> {
        self.intervals.map(|it| Nanos(it.length()))
    }

    fn tick(&mut self, now: Nanos, _: &mut dyn Outlet) {
        let Some(intervals) = &mut self.intervals else {
            return;
        };
        if now < intervals.end() || intervals.begin(now) {
            return;
        }
        if intervals.advance(now).is_some_and(|(_, ended)| ended > 0) {
            self.last = Some(self.rows());
            self.sums.clear();
            self.forgotten = 0;
            self.since = self.intervals.and_then(|it| it.start());
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let mut table = Table::new(&COLUMNS, self.options.count);
        table.largest_of = Some(if self.is_by_bytes { 2 } else { 1 });
        table.rows = self.last.clone().unwrap_or_else(|| self.rows());
        Some(ResultValue::Table(table))
    }

    fn reset(&mut self) {
        self.sums.clear();
        self.forgotten = 0;
        self.since = None;
        self.last = None;
    }
}
