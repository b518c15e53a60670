//! What encoding a flow record costs: nanoseconds per record and format, Community ID included.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use flowgauge_flow::{EndReason, FlowRecord, FlowSide, FlowState};
use flowgauge_record::{Encoder, FlowRow, Format};
use flowgauge_wire::{Address, FlowKey, Nanos, TcpFlags};

const RECORDS: u32 = 1_000_000;
static KEY: FlowKey = FlowKey {
    low: Address([0; 16]),
    high: Address([0; 16]),
    low_port: 50_956,
    high_port: 443,
    protocol: 6,
    version: 4,
    reserved: 0,
    context: 0,
};

fn main() {
    for format in [Format::Json, Format::Csv, Format::Table] {
        let mut encoder = Encoder::new(format);
        let (mut out, mut bytes) = (Vec::new(), 0);
        let started = Instant::now();
        for number in 0..RECORDS {
            encoder.encode(&FlowRow::new(&record(number), 0), &mut out);
            if out.len() > 64 * 1024 {
                bytes += out.len();
                out.clear();
            }
        }
        let nanos = started.elapsed().as_nanos() / u128::from(RECORDS);
        println!(
            "{format:?}: {nanos} ns per record, {} MB",
            bytes / 1_000_000
        );
    }
}

fn record(number: u32) -> FlowRecord<'static> {
    let side = |octet: u8, port| {
        let [_, b, c, d] = number.to_be_bytes();
        FlowSide {
            address: Address::v4([octet, b, c, d]),
            port,
            packets: 17,
            bytes: 18_234 + u64::from(number),
            ip_bytes: 17_996,
            payload_bytes: 17_000,
            tcp_flags: TcpFlags(0x1b),
            ..FlowSide::default()
        }
    };
    FlowRecord {
        key: &KEY,
        flow_id: u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        version: 4,
        protocol: 6,
        source: side(10, 50_956),
        destination: side(198, 443),
        flow_start: Nanos(1_709_164_800_000_000_000),
        start: Nanos(1_709_164_800_000_000_000 + u64::from(number) * 1_001),
        end: Nanos(1_709_164_801_000_000_000 + u64::from(number) * 1_001),
        handshake_rtt: Some(Nanos(23_456_789)),
        fragments: 0,
        state: FlowState::SF,
        history: "ShADadFf",
        vlans: &[],
        tunnel: None,
        end_reason: EndReason::Fin,
    }
}
