//! Records about how a run is getting on.

use flowgauge_wire::Nanos;

use crate::any::KnownRecord;
use crate::schema::{FieldVisitor, Record, Schema, fields};

fields! {
    /// Fields of a [`CountersRow`].
    CountersFields, COUNTERS, COUNTERS_SCHEMA:
    time Time None "TIME" 1 "when, on the clock of the capture";
    worker Unsigned None "WORKER" 1 "whose numbers these are, from 1: those of all workers are to be added";
    workers Unsigned None "" 0 "how many there are";
    uptime Duration Seconds "UPTIME" 2 "since the first packet";
    interval Duration Seconds "" 0 "since the last of these records";
    packets Unsigned Packets "PACKETS" 1 "packets that came so far";
    bytes Unsigned Bytes "BYTES" 1 "bytes of those that were not refused";
    new_packets Unsigned Packets "NEW" 2 "packets since the last of these records";
    new_bytes Unsigned Bytes "" 0 "bytes since then";
    malformed Unsigned Packets "MALFORMED" 2 "packets refused so far as their headers or checksums are wrong";
    memory_dropped Unsigned Packets "DROPPED" 1 "packets lost so far for want of memory";
    new_memory_dropped Unsigned Packets "" 0 "of these, packets since the last of these records";
    bad_ip_checksum Unsigned Packets "" 0 "packets left out for a wrong checksum of the IP header";
    bad_checksum Unsigned Packets "" 0 "packets left out for another wrong checksum";
    live_flows Unsigned None "FLOWS" 1 "flows in the table now";
    most_flows Unsigned None "" 0 "the most there were";
    flows Unsigned None "" 0 "flows so far";
    evicted_flows Unsigned None "" 0 "of these, flows that were ended early to make room";
    connections Unsigned None "" 0 "connections and UDP flows with payload so far";
    stream_bytes Unsigned Bytes "" 0 "bytes put in order so far";
    out_of_order Unsigned None "" 0 "segments that waited for others";
    repeated_bytes Unsigned Bytes "" 0 "bytes that came again";
    conflicting_bytes Unsigned Bytes "" 0 "of these, bytes that differed from what waited";
    gaps Unsigned None "GAPS" 3 "holes in streams that were given up";
    gap_bytes Unsigned Bytes "" 0 "bytes in them";
    fragments Unsigned None "" 0 "IP fragments so far";
    datagrams Unsigned None "" 0 "datagrams put together of them";
    flow_memory Unsigned Bytes "" 0 "memory of the flow table now";
    segment_memory Unsigned Bytes "MEMORY" 2 "memory in which segments wait now";
    fragment_memory Unsigned Bytes "" 0 "the most memory in which fragments waited";
    conversation_memory Unsigned Bytes "" 0 "memory now of what conversations keep until it is complete";
    given_up Unsigned None "" 0 "requests and conversations given up so far for want of memory";
    records Unsigned None "RECORDS" 2 "records of transactions, flows and anomalies so far";
    anomalies Unsigned None "ANOMALIES" 2 "anomalies so far, those without a record of their own counted";
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

impl Record for CountersRow {
    fn visit<V: FieldVisitor>(&self, visitor: &mut V) {
        visitor.time(&COUNTERS.time, self.time);
        visitor.unsigned(&COUNTERS.worker, self.worker);
        visitor.unsigned(&COUNTERS.workers, self.workers);
        visitor.duration(&COUNTERS.uptime, self.uptime);
        visitor.duration(&COUNTERS.interval, self.interval);
        for (field, value) in [
            (&COUNTERS.packets, self.packets),
            (&COUNTERS.bytes, self.bytes),
            (&COUNTERS.new_packets, self.new_packets),
            (&COUNTERS.new_bytes, self.new_bytes),
            (&COUNTERS.malformed, self.malformed),
            (&COUNTERS.memory_dropped, self.memory_dropped),
            (&COUNTERS.new_memory_dropped, self.new_memory_dropped),
            (&COUNTERS.bad_ip_checksum, self.bad_ip_checksum),
            (&COUNTERS.bad_checksum, self.bad_checksum),
            (&COUNTERS.live_flows, self.live_flows),
            (&COUNTERS.most_flows, self.most_flows),
            (&COUNTERS.flows, self.flows),
            (&COUNTERS.evicted_flows, self.evicted_flows),
            (&COUNTERS.connections, self.connections),
            (&COUNTERS.stream_bytes, self.stream_bytes),
            (&COUNTERS.out_of_order, self.out_of_order),
            (&COUNTERS.repeated_bytes, self.repeated_bytes),
            (&COUNTERS.conflicting_bytes, self.conflicting_bytes),
            (&COUNTERS.gaps, self.gaps),
            (&COUNTERS.gap_bytes, self.gap_bytes),
            (&COUNTERS.fragments, self.fragments),
            (&COUNTERS.datagrams, self.datagrams),
            (&COUNTERS.flow_memory, self.flow_memory),
            (&COUNTERS.segment_memory, self.segment_memory),
            (&COUNTERS.fragment_memory, self.fragment_memory),
            (&COUNTERS.conversation_memory, self.conversation_memory),
            (&COUNTERS.given_up, self.given_up),
            (&COUNTERS.records, self.records),
            (&COUNTERS.anomalies, self.anomalies),
        ] {
            visitor.unsigned(field, value);
        }
    }
}

impl KnownRecord for CountersRow {
    fn schema(&self) -> Schema {
        COUNTERS_SCHEMA
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::OwnedRecord;

    #[test]
    fn values_stand_in_the_order_of_their_fields() {
        struct Names(Vec<&'static str>);
        impl crate::any::ValueVisitor for Names {
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
