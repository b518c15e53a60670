//! Records about the progress of a run.

use flowgauge_wire::Nanos;

use crate::schema::record;

record! {
    /// Fields of a [`CountersRow`].
    COUNTERS, COUNTERS_SCHEMA for CountersRow as it:
    time: Nanos, Time "TIME" 1 = it.time, "when, on the capture clock";
    worker: u64, Unsigned "WORKER" 1 = it.worker, "whose numbers these are, from 1: those of all workers are to be added";
    workers: u64, Unsigned = it.workers, "how many there are";
    uptime: Nanos, Duration Seconds "UPTIME" 2 = it.uptime, "since the first packet";
    interval: Nanos, Duration Seconds = it.interval, "since the last of these records";
    packets: u64, Unsigned Packets "PACKETS" 1 = it.packets, "packets received so far";
    bytes: u64, Unsigned Bytes "BYTES" 1 = it.bytes, "bytes of those that were not refused";
    new_packets: u64, Unsigned Packets "NEW" 2 = it.new_packets, "packets since the last of these records";
    new_bytes: u64, Unsigned Bytes = it.new_bytes, "bytes since then";
    malformed: u64, Unsigned Packets "MALFORMED" 2 = it.malformed, "packets refused so far as their headers or checksums are wrong";
    memory_dropped: u64, Unsigned Packets "DROPPED" 1 = it.memory_dropped, "packets lost so far for want of memory";
    new_memory_dropped: u64, Unsigned Packets = it.new_memory_dropped, "of these, packets since the last of these records";
    bad_ip_checksum: u64, Unsigned Packets = it.bad_ip_checksum, "packets left out for a wrong checksum of the IP header";
    bad_checksum: u64, Unsigned Packets = it.bad_checksum, "packets left out for another wrong checksum";
    live_flows: u64, Unsigned "FLOWS" 1 = it.live_flows, "flows in the table now";
    most_flows: u64, Unsigned = it.most_flows, "the most there were";
    flows: u64, Unsigned = it.flows, "flows so far";
    evicted_flows: u64, Unsigned = it.evicted_flows, "of these, flows that were ended early to make room";
    connections: u64, Unsigned = it.connections, "connections and UDP flows with payload so far";
    stream_bytes: u64, Unsigned Bytes = it.stream_bytes, "bytes put in order so far";
    out_of_order: u64, Unsigned = it.out_of_order, "segments that waited for others";
    repeated_bytes: u64, Unsigned Bytes = it.repeated_bytes, "retransmitted bytes";
    conflicting_bytes: u64, Unsigned Bytes = it.conflicting_bytes, "of these, bytes that differed from waiting data";
    gaps: u64, Unsigned "GAPS" 3 = it.gaps, "abandoned gaps in streams";
    gap_bytes: u64, Unsigned Bytes = it.gap_bytes, "bytes in them";
    fragments: u64, Unsigned = it.fragments, "IP fragments so far";
    datagrams: u64, Unsigned = it.datagrams, "datagrams reassembled from them";
    flow_memory: u64, Unsigned Bytes = it.flow_memory, "memory of the flow table now";
    segment_memory: u64, Unsigned Bytes "MEMORY" 2 = it.segment_memory, "memory in which segments wait now";
    fragment_memory: u64, Unsigned Bytes = it.fragment_memory, "the most memory in which fragments waited";
    conversation_memory: u64, Unsigned Bytes = it.conversation_memory, "current memory of incomplete conversations";
    given_up: u64, Unsigned = it.given_up, "requests and conversations given up so far for want of memory";
    records: u64, Unsigned "RECORDS" 2 = it.records, "records of transactions, flows and anomalies so far";
    anomalies: u64, Unsigned "ANOMALIES" 2 = it.anomalies, "anomalies so far, those without a record of their own counted";

    /// The progress of a worker. Numbers are totals since its start, unless stated otherwise.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)] // as the fields of the record are called
    pub struct CountersRow {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::OwnedRecord;

    #[test]
    fn values_stand_in_the_order_of_their_fields() {
        struct Names(Vec<&'static str>);
        impl crate::FieldVisitor for Names {
            fn value(&mut self, field: &'static crate::Field, _: crate::any::ValueRef<'_>) {
                self.0.push(field.name);
            }
        }
        let mut names = Names(Vec::new());
        crate::any::AnyObject::values(&CountersRow::default(), &mut names);
        let wanted = COUNTERS_SCHEMA.iter().map(|field| field.name);
        assert!(names.0.into_iter().eq(wanted));
        let row = CountersRow {
            anomalies: 3,
            ..CountersRow::default()
        };
        let owned = OwnedRecord::of(&row);
        assert_eq!(
            owned.get("anomalies"),
            Some(&crate::any::Value::Unsigned(3))
        );
    }
}
