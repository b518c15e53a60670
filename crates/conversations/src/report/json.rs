//! The report as one JSON object.

use flowgauge_record::json::JsonEncoder;
use flowgauge_record::text::{TimeWriter, protocol_name};
use flowgauge_record::{LedgerRow, Record};
use flowgauge_stack::RunEnd;
use flowgauge_wire::Nanos;
use serde_json::{Value, json};

use super::collect::{Collector, PROTOCOLS};
use super::histogram::{Histogram, Percentiles};
use super::said::{Names, Transactions};
use super::talkers::Sums;

/// The object. Times, durations and names are those of the records.
pub(super) fn report(total: &Collector, run: &RunEnd<'_>, top: usize) -> Value {
    let seconds = total.duration().as_secs_f64();
    let rate = |amount: f64| (seconds > 0.0).then(|| amount / seconds);
    let talkers: Vec<Value> = total
        .talkers
        .top(top)
        .into_iter()
        .map(|((version, address), sums)| with_sums(json!({ "ip": address.to_ip(version) }), sums))
        .collect();
    let services: Vec<Value> = total
        .services
        .top(top)
        .into_iter()
        .map(|((protocol, port), sums)| {
            with_sums(
                json!({ "proto": protocol_name(protocol), "port": port }),
                sums,
            )
        })
        .collect();
    let protocols: Vec<Value> = PROTOCOLS
        .iter()
        .zip(total.protocols)
        .map(|(name, sums)| with_sums(json!({ "proto": name }), sums))
        .collect();
    let flows: Vec<Value> = total
        .top_flows()
        .into_iter()
        .map(|flow| {
            json!({
                "src_ip": flow.source.0.to_ip(flow.version),
                "src_port": flow.source.1,
                "dst_ip": flow.destination.0.to_ip(flow.version),
                "dst_port": flow.destination.1,
                "proto": protocol_name(flow.protocol),
                "bytes": flow.bytes,
                "packets": flow.packets,
                "duration": flow.duration.as_secs_f64(),
                "flow_id": format!("{:016x}", flow.flow_id),
            })
        })
        .collect();
    let mut report = json!({
        "start": total.first.map(time),
        "end": total.first.map(|_| time(total.last)),
        "duration": seconds,
        "packets": total.packets,
        "bytes": total.bytes,
        "flows": total.flows,
        "packets_per_second": rate(total.packets as f64),
        "bits_per_second": rate(total.bytes as f64 * 8.0),
        "ipv6_packets": total.ipv6_packets,
        "fragments": total.fragments,
        "ledger": object(&LedgerRow(run.ledger)),
        "protocols": protocols,
        "talkers": talkers,
        "services": services,
        "top_flows": flows,
        "tcp": tcp(total),
        "packet_sizes": ranges(&total.packet_sizes),
        "flow_sizes": ranges(&total.flow_sizes),
        "flow_durations": ranges(&total.flow_durations),
        "timeline": {
            "start": total.timeline.start().map(time),
            "seconds_per_bin": total.timeline.width().as_secs_f64(),
            "bytes": total.timeline.bins(),
        },
        "notes": run.notes,
    });
    if let (Some(said), Some(object)) = (&total.said, report.as_object_mut()) {
        for (name, sums) in [
            ("app_protos", &said.protocols),
            ("apps", &said.applications),
        ] {
            let list = sums.top(top).into_iter();
            let list = list.map(|(name, sums)| with_sums(json!({ "name": name }), sums));
            object.insert(name.to_owned(), list.collect());
        }
        for (name, outcome, key, of) in [
            ("http", "statuses", "hosts", &said.http),
            ("dns", "rcodes", "queries", &said.dns),
            ("tls", "versions", "server_names", &said.tls),
        ] {
            object.insert(name.to_owned(), transactions(of, outcome, key, top));
        }
    }
    report
}

fn transactions(of: &Transactions, outcome: &str, name: &str, top: usize) -> Value {
    let list = |names: &Names, top| -> Vec<Value> {
        let list = names.top(top).into_iter();
        list.map(|(name, count)| json!({ "name": name, "count": count }))
            .collect()
    };
    json!({
        "transactions": of.all,
        "without_reply": of.without_reply,
        outcome: list(&of.outcomes, usize::MAX),
        name: list(&of.names, top),
        "latency": percentiles(&of.latency),
    })
}

fn tcp(total: &Collector) -> Value {
    let tcp = &total.tcp;
    json!({
        "connections": tcp.connections,
        "established": tcp.established,
        "unanswered": tcp.failed,
        "rejected": tcp.rejected,
        "reset": tcp.reset,
        "without_beginning": tcp.midstream,
        "packets": tcp.packets,
        "retransmitted": tcp.retransmitted,
        "out_of_order": tcp.out_of_order,
        "handshake_rtt": percentiles(&tcp.rtt),
    })
}

fn percentiles(times: &Percentiles) -> Value {
    let at = |share| times.at(share).map(|nanos| Nanos(nanos).as_secs_f64());
    json!({ "count": times.total(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99) })
}

fn with_sums(mut value: Value, sums: Sums) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert("packets".to_owned(), json!(sums.packets));
        object.insert("bytes".to_owned(), json!(sums.bytes));
        object.insert("flows".to_owned(), json!(sums.flows));
    }
    value
}

fn ranges(histogram: &Histogram) -> Vec<Value> {
    histogram
        .ranges()
        .map(|(name, count)| json!({ "range": name, "count": count }))
        .collect()
}

fn object<R: Record>(record: &R) -> Value {
    let mut text = Vec::new();
    JsonEncoder::default().object(record, &mut text);
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

fn time(time: Nanos) -> String {
    let text = TimeWriter::default().format(time).to_vec();
    String::from_utf8(text).unwrap_or_default()
}
