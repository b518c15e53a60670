//! Results as MAPI's structures, in the layout that C gives them.

use std::collections::VecDeque;
use std::net::IpAddr;

use flowgauge_mapi::{Call, Shape, ticks};
use serde_json::{Map, Value};

const TOP_BYTES: usize = 48;
const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;

/// Rows of a function that its program has not read yet.
pub(crate) type Rows = VecDeque<Map<String, Value>>;

/// A row of a table.
pub(crate) struct Row<'a>(pub(crate) &'a Map<String, Value>);

impl Row<'_> {
    fn number(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    fn float(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    fn address(&self, name: &str) -> Option<IpAddr> {
        self.0.get(name)?.as_str()?.parse().ok()
    }

    fn ticks(&self, name: &str) -> u64 {
        ticks(self.number(name))
    }
}

/// Bytes of a structure, as C lays it out.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(mut self, value: u64) -> Bytes {
        self.0.extend((value as u16).to_ne_bytes());
        self
    }

    fn u32(mut self, value: u64) -> Bytes {
        self.0.extend((value as u32).to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Bytes {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend(bytes);
        self
    }

    fn up_to(mut self, len: usize) -> Bytes {
        self.0.resize(len, 0);
        self
    }
}

/// The size of a result that a program reads at once; 0 where it is none, or depends on what there is.
pub(crate) fn size(call: &Call) -> usize {
    match call.function.result {
        Shape::Number(bytes) => usize::from(bytes),
        Shape::Stats => 64,
        Shape::Bucket | Shape::Threshold => 16,
        Shape::Sample => 40,
        Shape::Times => 24,
        Shape::File => 4,
        Shape::Own(bytes) => bytes,
        Shape::Nothing | Shape::Packets => 0,
        Shape::Dist | Shape::Burst | Shape::Top | Shape::ExpiredFlows => 0,
    }
}

/// The result of a function that has seen nothing.
pub(crate) fn nothing(call: &Call) -> Vec<u8> {
    let none = Map::new();
    match call.function.result {
        Shape::Number(_) | Shape::File => number(0).to_vec(),
        Shape::Own(bytes) => vec![0; bytes],
        Shape::Nothing | Shape::Packets => Vec::new(),
        Shape::ExpiredFlows => expired(call, None, &mut Rows::new()),
        Shape::Bucket | Shape::Sample | Shape::Threshold => one(call, &Row(&none)),
        Shape::Stats | Shape::Dist | Shape::Burst | Shape::Top | Shape::Times => {
            table(call, &[], 0)
        }
    }
}

/// A number, in the eight bytes that programs may read.
pub(crate) fn number(value: i128) -> [u8; 8] {
    (value as u64).to_ne_bytes()
}

/// A whole result, read at `now`.
pub(crate) fn table(call: &Call, rows: &[Map<String, Value>], now: u64) -> Vec<u8> {
    let rows: Vec<Row<'_>> = rows.iter().map(Row).collect();
    let bytes = match call.function.result {
        Shape::Stats => stats(rows.first()),
        Shape::Dist => dist(&rows),
        Shape::Burst => burst(call, &rows),
        Shape::Top => top(&rows, now),
        _ => {
            let times = ["first", "first_processed", "last"];
            let row = rows.first();
            times.iter().fold(Bytes::default(), |bytes, name| {
                bytes.u64(row.map_or(0, |row| row.ticks(name)))
            })
        }
    };
    bytes.0
}

/// A result that is one row.
pub(crate) fn one(call: &Call, row: &Row<'_>) -> Vec<u8> {
    let bytes = match call.function.result {
        Shape::Sample => sample(row),
        _ => Bytes::default()
            .u64(row.ticks("time"))
            .u64(row.number("value")),
    };
    bytes.0
}

fn stats(row: Option<&Row<'_>>) -> Bytes {
    let float = |name: &str| row.map_or(0.0, |row| row.float(name));
    let sum = |name: &str| match row.map(|row| (row.number(name), row.float(name))) {
        Some((0, value)) => long_double_of(value),
        Some((value, _)) => long_double(value, 0),
        None => [0; 16],
    };
    let bytes = Bytes::default().u64(row.map_or(0, |row| row.number("count")));
    let bytes = bytes.up_to(16).raw(&sum("sum")).raw(&sum("sum2"));
    let bytes = bytes.u64(float("max").to_bits());
    bytes.u64(float("min").to_bits())
}

/// `value` times a power of two as a `long double`.
fn long_double(value: u64, power: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    if value == 0 {
        return bytes;
    }
    let shift = value.leading_zeros();
    let mantissa = value << shift;
    let exponent = (16_383 + 63 - shift as i32 + power) as u16;
    if cfg!(target_arch = "x86_64") {
        // Ten bytes, of which the mantissa has eight with its first bit.
        bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
        bytes[8..10].copy_from_slice(&exponent.to_le_bytes());
    } else {
        // Sixteen bytes, without the mantissa's first bit.
        let quad = u128::from(exponent) << 112 | u128::from(mantissa << 1) << 48;
        bytes = quad.to_ne_bytes();
    }
    bytes
}

/// A number that is not negative as a `long double`.
fn long_double_of(value: f64) -> [u8; 16] {
    let (exponent, fraction) = (
        value.to_bits() >> 52 & 0x7ff,
        value.to_bits() & ((1 << 52) - 1),
    );
    match exponent {
        0 => [0; 16],
        exponent => long_double(fraction | 1 << 52, exponent as i32 - 1075),
    }
}

/// An argument that is a number, or a text of one.
fn argument(call: &Call, at: usize, default: u64) -> u64 {
    let number = call
        .number(at)
        .and_then(|number| u64::try_from(number).ok());
    number.unwrap_or(default)
}

fn dist(rows: &[Row<'_>]) -> Bytes {
    let min = rows.get(1).map_or(0, |row| row.number("from"));
    let max = rows.last().map_or(0, |row| row.number("from"));
    let bytes = Bytes::default().u64(min).u64(max);
    let bytes = bytes.u64(rows.len().saturating_sub(2) as u64);
    rows.iter()
        .fold(bytes, |bytes, row| bytes.u64(row.number("count")))
}

/// Rows without anything in them are left out by the component.
fn burst(call: &Call, rows: &[Row<'_>]) -> Bytes {
    let (min, max) = (argument(call, 0, 0), argument(call, 1, 65_536));
    let step = argument(call, 2, 1024).max(1);
    let last = max.saturating_sub(min).div_ceil(step) + 1;
    let mut all = vec![None; last as usize + 1];
    for row in rows {
        let from = row.number("from");
        let slot = match row.has("from") {
            false => 0,
            true if from >= max => last,
            true => from.saturating_sub(min) / step + 1,
        };
        if let Some(slot) = all.get_mut(slot as usize) {
            *slot = Some(row);
        }
    }
    all.iter().fold(Bytes::default(), |bytes, row| {
        let names = ["bytes", "packets", "bursts", "gap_bytes", "gaps"];
        names.iter().fold(bytes, |bytes, name| {
            bytes.u64(row.map_or(0, |row: &Row<'_>| row.number(name)))
        })
    })
}

/// An address in the four bytes that there are for it.
fn four(address: Option<IpAddr>) -> [u8; 4] {
    match address {
        Some(IpAddr::V4(address)) => address.octets(),
        Some(IpAddr::V6(address)) => {
            let octets = address.octets();
            [octets[12], octets[13], octets[14], octets[15]]
        }
        None => [0; 4],
    }
}

fn sample(row: &Row<'_>) -> Bytes {
    // Of a segment FIN 1, SYN 2, RST 4, PSH 8, ACK 16; of MAPI's samples:
    const FLAGS: [(u64, u64); 5] = [(2, 1), (16, 2), (4, 4), (1, 8), (8, 16)];
    let flags = row.number("tcp_flags");
    let is_tcp = row.number("protocol") == 6;
    let set = FLAGS.iter().filter(|(flag, _)| is_tcp && flags & flag != 0);
    let set: u64 = set.map(|(_, of_sample)| of_sample).sum();
    let sequence = if is_tcp { row.number("sequence") } else { 0 };
    let bytes = Bytes::default().raw(&four(row.address("source")));
    let bytes = bytes.raw(&four(row.address("destination")));
    let bytes = bytes
        .u32(row.number("source_port"))
        .u32(row.number("destination_port"));
    let bytes = bytes.u32(sequence).u32(set).u32(row.number("protocol"));
    bytes.up_to(32).u64(row.ticks("time"))
}

fn top(rows: &[Row<'_>], now: u64) -> Bytes {
    let bytes = Bytes::default().u32(rows.len() as u64);
    rows.iter().enumerate().fold(bytes, |bytes, (at, row)| {
        let address = row.address("value");
        let (value, long, family) = match address {
            Some(IpAddr::V4(address)) => (address.octets(), [0; 16], AF_INET),
            Some(IpAddr::V6(address)) => ([0; 4], address.octets(), AF_INET6),
            None => ((row.number("value") as u32).to_ne_bytes(), [0; 16], 0),
        };
        let since = if row.has("since") {
            row.number("since")
        } else {
            now
        };
        let bytes = bytes.raw(&value).raw(&long).u16(family.into());
        let bytes = bytes
            .up_to(4 + TOP_BYTES * at + 24)
            .u32(row.number("packets"));
        let bytes = bytes
            .up_to(4 + TOP_BYTES * at + 32)
            .u64(row.number("bytes"));
        bytes.u32(since / 1000).up_to(4 + TOP_BYTES * (at + 1))
    })
}

/// Flows that have ended, the first of those that wait, below the counts that came with them.
pub(crate) fn expired(call: &Call, counts: Option<&Row<'_>>, waiting: &mut Rows) -> Vec<u8> {
    let most = usize::try_from(argument(call, 0, u64::MAX)).unwrap_or(usize::MAX);
    let flows: Vec<Map<String, Value>> = waiting.drain(..most.min(waiting.len())).collect();
    let flows: Vec<Row<'_>> = flows.iter().map(Row).collect();
    let packets = flows.iter().map(|row| row.number("packets")).sum();
    let mut bytes = Bytes::default();
    for (sent, of) in [(flows.len() as u64, ""), (packets, "_packets")] {
        let names = ["received", "expired", "ignored", "dropped"];
        bytes = names.iter().fold(bytes.u32(sent), |bytes, name| {
            bytes.u32(counts.map_or(0, |row| row.number(&format!("{name}{of}"))))
        });
    }
    let bytes = flows.iter().fold(bytes, |bytes, row| {
        let bytes = bytes.u64(row.ticks("first")).u64(row.number("packets"));
        let bytes = bytes.u64(row.number("bytes"));
        let bytes = bytes.raw(&four(row.address("source")));
        let bytes = bytes.raw(&four(row.address("destination")));
        let bytes = bytes
            .u16(row.number("source_port"))
            .u16(row.number("destination_port"));
        let bytes = bytes.raw(&[row.number("protocol") as u8, row.number("ttl") as u8]);
        bytes.raw(&[0; 2])
    });
    bytes.0
}
