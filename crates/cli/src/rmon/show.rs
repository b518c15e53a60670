//! `flowgauge rmon show`: the tables without SNMP.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use flowgauge_record::rmon::{
    RMON_HOST_SCHEMA, RMON_PAIR_SCHEMA, RMON_PROTOCOL_SCHEMA, RmonHostRow, RmonPairRow,
    RmonProtocolRow,
};
use flowgauge_record::{RecordWriter, Schema};
use flowgauge_rmon::feed::Clock;
use flowgauge_rmon::{HostCounts, PairCounts, Probe, ProtocolCounts};
use parking_lot::Mutex;

use crate::control::Control;
use crate::failure::{self, Failure};
use crate::options::{RmonShowOptions, RmonTable};
use crate::sinks;

use super::{Pace, count, open};

/// Rows of `topn` where nothing else is asked for.
const TOP: usize = 10;

/// Counts all packets, then writes the table.
///
/// # Errors
/// What went wrong, for the user.
pub(super) fn run(options: &RmonShowOptions) -> Result<(), Failure> {
    let control = Control::install()?;
    control.say_what_takes_long(options.output.common.quiet);
    let (mut opened, probe) = open(&options.input, options.contents, &control)?;
    let schema = match options.shown {
        RmonTable::Protocols => RMON_PROTOCOL_SCHEMA,
        RmonTable::Hosts => RMON_HOST_SCHEMA,
        RmonTable::Matrix | RmonTable::Topn => RMON_PAIR_SCHEMA,
    };
    let mut writer = writer(options, schema)?;
    opened.announce(options.output.common.quiet);
    control.begin();
    let tables = Mutex::new(probe);
    let pace = Pace::new(false);
    let clock = Clock::default();
    let mut outcome = count(&mut opened, &tables, &clock, pace, &control);
    let mut probe = tables.into_inner();
    write(options, &mut probe, &mut writer);
    let evicted = probe.evicted();
    if evicted > 0 {
        outcome.notes.push(format!(
            "the tables were full; {evicted} rows of hosts and conversations were evicted"
        ));
    }
    failure::of_writer(&mut writer)?;
    outcome.conclude(&options.output.common)
}

fn writer(options: &RmonShowOptions, schema: Schema) -> Result<RecordWriter, Failure> {
    let output = sinks::open(&options.output, schema)?;
    Ok(RecordWriter::new(
        output,
        sinks::format(&options.output),
        schema,
    ))
}

/// Writes the largest rows first; those of equal size in an order of their own, so that every run writes the same.
fn write(options: &RmonShowOptions, probe: &mut Probe, writer: &mut RecordWriter) {
    let all = match options.shown {
        RmonTable::Topn => TOP,
        _ => usize::MAX,
    };
    let top = options.top.unwrap_or(all);
    match options.shown {
        RmonTable::Protocols => protocols(probe.protocols(), top, writer),
        RmonTable::Hosts => {
            let mut rows = probe.hosts();
            rows.retain(|row| options.by_protocol || row.protocol == row.network);
            hosts(rows, top, writer);
        }
        RmonTable::Matrix | RmonTable::Topn => {
            let mut rows = probe.pairs();
            rows.retain(|row| options.by_protocol || row.protocol == row.network);
            pairs(rows, top, writer);
        }
    }
}

fn protocols(mut rows: Vec<ProtocolCounts>, top: usize, writer: &mut RecordWriter) {
    rows.retain(|row| row.packets > 0);
    rows.sort_by_cached_key(|row| (Reverse(row.octets), row.interface, row.protocol.clone()));
    for row in rows.iter().take(top) {
        writer.write(&RmonProtocolRow {
            protocol: &row.protocol,
            interface: row.interface,
            packets: row.packets,
            octets: row.octets,
        });
    }
}

fn hosts(mut rows: Vec<HostCounts>, top: usize, writer: &mut RecordWriter) {
    rows.sort_by_cached_key(|row| {
        let octets = Reverse(row.in_octets + row.out_octets);
        (octets, row.interface, row.address, row.protocol.clone())
    });
    for row in rows.iter().take(top) {
        writer.write(&RmonHostRow {
            address: row.address.into(),
            version: version(row.address),
            protocol: &row.protocol,
            interface: row.interface,
            in_packets: row.in_packets,
            out_packets: row.out_packets,
            in_octets: row.in_octets,
            out_octets: row.out_octets,
        });
    }
}

fn pairs(mut rows: Vec<PairCounts>, top: usize, writer: &mut RecordWriter) {
    let key = |row: &PairCounts, from: IpAddr, to: IpAddr| {
        (row.interface, from, to, row.protocol.clone())
    };
    let counts: HashMap<_, _> = rows
        .iter()
        .map(|row| {
            (
                key(row, row.source, row.destination),
                [row.packets, row.octets],
            )
        })
        .collect();
    rows.sort_by_cached_key(|row| (Reverse(row.octets), key(row, row.source, row.destination)));
    for row in rows.iter().take(top) {
        let reverse = counts.get(&key(row, row.destination, row.source));
        let [reverse_packets, reverse_octets] = reverse.copied().unwrap_or_default();
        writer.write(&RmonPairRow {
            source: row.source.into(),
            destination: row.destination.into(),
            version: version(row.source),
            protocol: &row.protocol,
            interface: row.interface,
            packets: row.packets,
            reverse_packets,
            octets: row.octets,
            reverse_octets,
        });
    }
}

fn version(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}
