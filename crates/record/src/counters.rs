//! Records about how a run is getting on.

use flowgauge_wire::Nanos;

use crate::schema::record;

record! {
    /// Fields of a [`CountersRow`].
    COUNTERS, COUNTERS_SCHEMA for CountersRow as it:
    time Time "TIME" 1 = it.time, "when, on the clock of the capture";
    worker Unsigned "WORKER" 1 = it.worker, "whose numbers these are, from 1: those of all workers are to be added";
    workers Unsigned = it.workers, "how many there are";
    uptime Duration Seconds "UPTIME" 2 = it.uptime, "since the first packet";
    interval Duration Seconds = it.interval, "since the last of these records";
    packets Unsigned Packets "PACKETS" 1 = it.packets, "packets that came so far";
    bytes Unsigned Bytes "BYTES" 1 = it.bytes, "bytes of those that were not refused";
    new_packets Unsigned Packets "NEW" 2 = it.new_packets, "packets since the last of these records";
    new_bytes Unsigned Bytes = it.new_bytes, "bytes since then";
    malformed Unsigned Packets "MALFORMED" 2 = it.malformed, "packets refused so far as their headers or checksums are wrong";
    memory_dropped Unsigned Packets "DROPPED" 1 = it.memory_dropped, "packets lost so far for want of memory";
    new_memory_dropped Unsigned Packets = it.new_memory_dropped, "of these, packets since the last of these records";
    bad_ip_checksum Unsigned Packets = it.bad_ip_checksum, "packets left out for a wrong checksum of the IP header";
    bad_checksum Unsigned Packets = it.bad_checksum, "packets left out for another wrong checksum";
    live_flows Unsigned "FLOWS" 1 = it.live_flows, "flows in the table now";
    most_flows Unsigned = it.most_flows, "the most there were";
    flows Unsigned = it.flows, "flows so far";
    evicted_flows Unsigned = it.evicted_flows, "of these, flows that were ended early to make room";
    connections Unsigned = it.connections, "connections and UDP flows with payload so far";
    stream_bytes Unsigned Bytes = it.stream_bytes, "bytes put in order so far";
    out_of_order Unsigned = it.out_of_order, "segments that waited for others";
    repeated_bytes Unsigned Bytes = it.repeated_bytes, "bytes that came again";
    conflicting_bytes Unsigned Bytes = it.conflicting_bytes, "of these, bytes that differed from what waited";
    gaps Unsigned "GAPS" 3 = it.gaps, "holes in streams that were given up";
    gap_bytes Unsigned Bytes = it.gap_bytes, "bytes in them";
    fragments Unsigned = it.fragments, "IP fragments so far";
    datagrams Unsigned = it.datagrams, "datagrams put together of them";
    flow_memory Unsigned Bytes = it.flow_memory, "memory of the flow table now";
    segment_memory Unsigned Bytes "MEMORY" 2 = it.segment_memory, "memory in which segments wait now";
    fragment_memory Unsigned Bytes = it.fragment_memory, "the most memory in which fragments waited";
    conversation_memory Unsigned Bytes = it.conversation_memory, "memory now of what conversations keep until it is complete";
    given_up Unsigned = it.given_up, "requests and conversations given up so far for want of memory";
    records Unsigned "RECORDS" 2 = it.records, "records of transactions, flows and anomalies so far";
    anomalies Unsigned "ANOMALIES" 2 = it.anomalies, "anomalies so far, those without a record of their own counted";
}

/// How a worker is getting on. Numbers are those since it began, where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // as the fields of the record are called
pub struct CountersRow {
    pub time: Nanos,
    pub worker: u64,
    pub workers: u64,
    pub uptime: Nanos,
    pub interval: Nanos,
    pub packets: u64,
    pub bytes: u64,
    pub new_packets: u64,
    pub new_bytes: u64,
    pub malformed: u64,
    pub memory_dropped: u64,
    pub new_memory_dropped: u64,
    pub bad_ip_checksum: u64,
    pub bad_checksum: u64,
    pub live_flows: u64,
    pub most_flows: u64,
    pub flows: u64,
    pub evicted_flows: u64,
    pub connections: u64,
    pub stream_bytes: u64,
    pub out_of_order: u64,
    pub repeated_bytes: u64,
    pub conflicting_bytes: u64,
    pub gaps: u64,
    pub gap_bytes: u64,
    pub fragments: u64,
    pub datagrams: u64,
    pub flow_memory: u64,
    pub segment_memory: u64,
    pub fragment_memory: u64,
    pub conversation_memory: u64,
    pub given_up: u64,
    pub records: u64,
    pub anomalies: u64,
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
