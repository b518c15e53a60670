//! What should not be in packets, connections and messages, as records of its own.

use core::hash::BuildHasher;
use std::collections::HashSet;

use flowgauge_flow::{EndReason, FlowRecord};
use flowgauge_reassembly::DefragmentStatistics;
use flowgauge_record::anomaly::{AnomalyRow, Layer};
use flowgauge_record::event::EventSchemas;
use flowgauge_record::schema::Field;
use flowgauge_record::words::count;
use flowgauge_record::{AnyRecord, FieldVisitor, ValueRef};
use flowgauge_stack::{Items, Outlet, RecordItem};
use flowgauge_stream::{Chunk, Handler, Remark, Stream};
use flowgauge_wire::{Address, Batch, DecodeFlags, Decoded, DecodedBatch, Nanos, Problem};

use super::Leading;

/// Anomalies of flows that are remembered, so that each is told once of a flow; a full memory is emptied.
const REMEMBERED: usize = 1 << 16;
/// Anomalies of packets that are told in a second of the capture clock, of each [`Source`]. All are counted.
const PER_SECOND: u32 = 64;
/// Protocols in which a reply without a request says something: in others it is how they begin.
const ASKED: [&str; 5] = ["http", "dns", "rpc", "icp", "snmp"];
/// Multicast DNS says what nobody asked for.
const MDNS: u64 = 5353;

/// What was noticed.
#[derive(Default)]
pub(super) struct Anomalies {
    /// Flows, and what was told of them.
    told: HashSet<(u64, u64)>,
    /// By [`Source`] a second of the capture clock, and how many anomalies of packets were told in it.
    seconds: [(u64, u32); 3],
    /// All, those that were not told, too.
    pub(super) number: u64,
    spot: Spot,
}

/// Where anomalies of packets are found. Each is a pass over a batch, so that only those of one come in the order of
/// packets: which of them are told must not depend on where batches end.
#[derive(Clone, Copy)]
enum Source {
    Headers,
    Fragments,
    Messages,
}

/// Where they go.
pub(super) struct Way<'a> {
    pub(super) out: &'a mut dyn Outlet,
    pub(super) schemas: &'a mut EventSchemas,
    pub(super) records: &'a mut u64,
}

impl Way<'_> {
    fn give(&mut self, flow_id: Option<u64>, row: &AnomalyRow<'_>) {
        let event = self.schemas.event("anomaly", flow_id, row);
        *self.records += 1;
        self.out.emit(Items::Records(&[RecordItem {
            key: 0,
            time: row.time,
            record: &event,
        }]));
    }
}

/// Of a packet's or connection's own.
const PLAIN: AnomalyRow<'static> = AnomalyRow {
    time: Nanos(0),
    ends: None,
    ip_version: 4,
    ip_protocol: 0,
    layer: Layer::Packet,
    name: "",
    detail: None,
    protocol: None,
    from_initiator: None,
};

impl Anomalies {
    /// What is remembered of an anomaly of a flow.
    fn key(&self, flow_id: u64, row: &AnomalyRow<'_>) -> (u64, u64) {
        let name = self.told.hasher().hash_one((row.name, row.protocol));
        (flow_id, name)
    }

    /// Whether it is the first of its name in a flow.
    fn is_first(&mut self, flow_id: u64, row: &AnomalyRow<'_>) -> bool {
        self.number += 1;
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        self.told.insert(self.key(flow_id, row))
    }

    /// Whether something of a flow was not captured, as far as that is remembered.
    fn has_lost(&self, flow_id: u64) -> bool {
        let gap = AnomalyRow {
            name: "gap",
            ..PLAIN
        };
        self.told.contains(&self.key(flow_id, &gap))
    }

    fn of(&mut self, flow_id: u64, row: &AnomalyRow<'_>, way: &mut Way<'_>) {
        if self.is_first(flow_id, row) {
            way.give(Some(flow_id), row);
        }
    }

    /// What a stream told.
    fn of_stream(
        &mut self,
        stream: &Stream<'_>,
        time: Nanos,
        name: &str,
        detail: Option<&str>,
        way: &mut Way<'_>,
    ) {
        let identity = stream.identity();
        let mut ends = [identity.source, identity.destination];
        if !stream.from_initiator {
            ends.reverse();
        }
        let row = AnomalyRow {
            time,
            ends: Some(ends),
            ip_version: identity.version,
            ip_protocol: identity.protocol,
            layer: Layer::Stream,
            name,
            detail,
            from_initiator: Some(stream.from_initiator),
            ..PLAIN
        };
        self.of(identity.flow_id, &row, way);
    }

    /// A connection's first data have come: of its handshake not all may have been seen.
    pub(super) fn created(&mut self, stream: &Stream<'_>, way: &mut Way<'_>) {
        let name = stream.record(|record| {
            let history = record.history;
            let has = |letters: [char; 2]| history.contains(letters);
            let name = match (record.protocol, has(['S', 's']), has(['H', 'h'])) {
                (6, true, false) => Some("data_before_handshake"),
                (6, false, false) => Some("midstream"),
                _ => None,
            };
            name.map(|name| (name, record.end))
        });
        if let Some(Some((name, time))) = name {
            self.of_stream(stream, time, name, None, way);
        }
    }

    /// A segment told something.
    pub(super) fn remark(&mut self, stream: &Stream<'_>, remark: &Remark, way: &mut Way<'_>) {
        let time = remark.time;
        let bytes = |bytes: u64| count(bytes, "byte").to_string();
        if remark.conflicting > 0 {
            let detail = bytes(remark.conflicting);
            self.of_stream(stream, time, "conflicting_overlap", Some(&detail), way);
        }
        if remark.after_fin > 0 {
            let detail = bytes(remark.after_fin);
            self.of_stream(stream, time, "data_after_fin", Some(&detail), way);
        }
        if remark.implausible {
            self.of_stream(stream, time, "out_of_window", None, way);
        }
    }

    /// Bytes of a stream are missing.
    pub(super) fn gap(&mut self, stream: &Stream<'_>, time: Nanos, bytes: u64, way: &mut Way<'_>) {
        let detail = count(bytes, "byte").to_string();
        self.of_stream(stream, time, "gap", Some(&detail), way);
    }

    /// A flow is over.
    pub(super) fn flow(&mut self, record: &FlowRecord<'_>, way: &mut Way<'_>) {
        if record.end_reason == EndReason::Active {
            return;
        }
        for letter in record.history.chars() {
            let (layer, name) = match letter.to_ascii_uppercase() {
                'C' => (Layer::Packet, "bad_checksum"),
                'I' => (Layer::Stream, "fin_with_rst"),
                'Q' => (Layer::Stream, "syn_with_fin_or_rst"),
                _ => continue,
            };
            let end = |side: &flowgauge_flow::FlowSide| (side.address, side.port);
            let row = AnomalyRow {
                time: record.end,
                ends: Some([end(&record.source), end(&record.destination)]),
                ip_version: record.version,
                ip_protocol: record.protocol,
                layer,
                name,
                from_initiator: Some(letter.is_ascii_uppercase()),
                ..PLAIN
            };
            self.of(record.flow_id, &row, way);
        }
    }

    /// One of a packet: of these only so many are told in a second.
    fn of_packet(&mut self, row: &AnomalyRow<'_>, source: Source, way: &mut Way<'_>) {
        self.number += 1;
        let second = row.time.0 / 1_000_000_000;
        let (of, told) = &mut self.seconds[source as usize];
        if *of != second {
            (*of, *told) = (second, 0);
        }
        if *told < PER_SECOND {
            *told += 1;
            way.give(None, row);
        }
    }

    /// Headers that make no sense.
    #[cold]
    pub(super) fn packets(&mut self, decoded: &DecodedBatch, way: &mut Way<'_>) {
        for packet in &decoded.packets {
            if let Some(name) = name_of(packet) {
                self.of_packet(&of_headers(packet, name), Source::Headers, way);
            }
        }
    }

    /// What is odd about a fragment.
    #[cold]
    fn fragment(&mut self, packet: &Decoded, odd: &DefragmentStatistics, way: &mut Way<'_>) {
        for (name, number) in [
            ("fragment_overlap", odd.overlaps),
            ("fragment_conflict", odd.conflicts),
            ("fragment_too_long", odd.too_long),
            ("fragment_bad_length", odd.bad_length),
            ("fragment_bad_end", odd.bad_end),
            ("tiny_fragment", odd.tiny),
        ] {
            if number > 0 {
                self.of_packet(&of_headers(packet, name), Source::Fragments, way);
            }
        }
    }

    /// What a record of this kind says of itself.
    #[cold]
    pub(super) fn record(
        &mut self,
        kind: &'static str,
        flow_id: Option<u64>,
        time: Nanos,
        record: &dyn AnyRecord,
        way: &mut Way<'_>,
    ) {
        let mut spot = Spot {
            odd: core::mem::take(&mut self.spot.odd),
            ..Spot::default()
        };
        spot.odd.clear();
        record.values(&mut spot);
        let [source, destination] = spot.ends;
        // Where its request may have been here, the reply says nothing of who sent it.
        let is_unasked = spot.is_unasked
            && !spot.is_limited
            && !flow_id.is_some_and(|flow_id| self.has_lost(flow_id))
            && ASKED.contains(&kind)
            && source.1 != MDNS as u16
            && destination.1 != MDNS as u16;
        let odd = spot.odd.split(',').filter(|name| !name.is_empty());
        let unasked = is_unasked.then_some("unmatched_reply");
        for name in odd.chain(unasked) {
            let row = AnomalyRow {
                time,
                ends: Some(spot.ends),
                ip_version: spot.ip_version,
                ip_protocol: if spot.is_tcp { 6 } else { 17 },
                layer: Layer::Application,
                name,
                protocol: Some(kind),
                ..PLAIN
            };
            match flow_id {
                Some(flow_id) => self.of(flow_id, &row, way),
                None => self.of_packet(&row, Source::Messages, way),
            }
        }
        self.spot = spot;
    }
}

/// Finds transactions, and tells what should not be.
pub(super) struct Noticing<'a>(pub(super) Leading<'a>);

impl Noticing<'_> {
    fn tell(&mut self, work: impl FnOnce(&mut Anomalies, &mut Way<'_>)) {
        let state = &mut *self.0.state;
        if let Some(anomalies) = &mut state.anomalies {
            let mut way = Way {
                out: self.0.out,
                schemas: &mut state.schemas,
                records: &mut state.records,
            };
            work(anomalies, &mut way);
        }
    }
}

impl Handler for Noticing<'_> {
    const STREAMS: bool = true;
    const REMARKS: bool = true;

    fn batch(&mut self, batch: &Batch<'_>, decoded: &DecodedBatch) {
        self.0.batch(batch, decoded);
        let damaged = decoded.summary.flags.contains(DecodeFlags::BAD_IP_CHECKSUM);
        if decoded.summary.unusual || damaged {
            self.tell(|anomalies, way| anomalies.packets(decoded, way));
        }
    }

    fn fragment_remark(&mut self, packet: &Decoded, odd: &DefragmentStatistics) {
        self.tell(|anomalies, way| anomalies.fragment(packet, odd, way));
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        self.0.stream_created(stream);
        if stream.from_initiator {
            self.tell(|anomalies, way| anomalies.created(stream, way));
        }
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if chunk.gap_before > 0 {
            let (time, bytes) = (chunk.time, chunk.gap_before);
            self.tell(|anomalies, way| anomalies.gap(stream, time, bytes, way));
        }
        self.0.stream_data(stream, chunk);
    }

    fn stream_remark(&mut self, stream: &Stream<'_>, remark: &Remark) {
        self.0.stream_remark(stream, remark);
        self.tell(|anomalies, way| anomalies.remark(stream, remark, way));
    }

    fn stream_closed(&mut self, stream: &Stream<'_>) {
        self.0.stream_closed(stream);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        if trailing_gap > 0 {
            let time = stream.record(|record| record.end).unwrap_or_default();
            self.tell(|anomalies, way| anomalies.gap(stream, time, trailing_gap, way));
        }
        self.0.stream_terminated(stream, trailing_gap);
    }

    fn flow(&mut self, record: &FlowRecord<'_>) {
        self.tell(|anomalies, way| anomalies.flow(record, way));
        self.0.flow(record);
    }
}

/// An anomaly of a packet's headers.
fn of_headers<'a>(packet: &Decoded, name: &'a str) -> AnomalyRow<'a> {
    let is_ip = packet.has_ip();
    AnomalyRow {
        time: packet.time,
        ends: is_ip.then(|| [packet.source(), packet.destination()]),
        ip_version: packet.key.version,
        ip_protocol: packet.key.protocol,
        name,
        from_initiator: is_ip.then_some(true),
        ..PLAIN
    }
}

/// What is wrong with a packet's headers.
fn name_of(packet: &Decoded) -> Option<&'static str> {
    match packet.problem {
        Problem::ShortHeader => Some("short_header"),
        Problem::BadIpHeader => Some("bad_ip_header"),
        Problem::BadExtension => Some("bad_extension_header"),
        Problem::BadTransport => Some("bad_transport_header"),
        Problem::TooDeep => Some("too_many_tunnels"),
        _ if packet.flags.contains(DecodeFlags::EXCLUDED)
            && packet.flags.contains(DecodeFlags::BAD_IP_CHECKSUM) =>
        {
            Some("bad_ip_checksum")
        }
        _ => None,
    }
}

/// What is looked for in a record.
#[derive(Default)]
struct Spot {
    ends: [(Address, u16); 2],
    ip_version: u8,
    is_tcp: bool,
    is_unasked: bool,
    /// A bound of this program's left it without its partner.
    is_limited: bool,
    odd: String,
}

impl FieldVisitor for Spot {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
        match (field.name, value) {
            ("src_ip", ValueRef::Address(address, version)) => {
                self.ends[0].0 = address;
                self.ip_version = version;
            }
            ("dst_ip", ValueRef::Address(address, _)) => self.ends[1].0 = address,
            ("src_port", ValueRef::Unsigned(port)) => self.ends[0].1 = port as u16,
            ("dst_port", ValueRef::Unsigned(port)) => self.ends[1].1 = port as u16,
            ("proto", ValueRef::Symbol(name)) => self.is_tcp = name == "tcp",
            ("state", ValueRef::Symbol(state)) => self.is_unasked = state == "no_request",
            ("limit", ValueRef::Symbol(_) | ValueRef::Text(_)) => self.is_limited = true,
            ("odd", ValueRef::Text(odd) | ValueRef::Symbol(odd)) => self.odd.push_str(odd),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::http::{HttpMessage, HttpRow};

    use super::*;

    /// Counts what it gets.
    #[derive(Default)]
    struct Counting(u64);

    impl Outlet for Counting {
        fn emit(&mut self, items: Items<'_>) {
            if let Items::Records(records) = items {
                self.0 += records.len() as u64;
            }
        }

        fn fail(&mut self, _: flowgauge_stack::Failure) {}

        fn end(&mut self) {}
    }

    #[test]
    fn replies_whose_requests_were_not_kept_or_not_captured_are_no_anomalies() {
        let of_stream = |name| AnomalyRow { name, ..PLAIN };
        for (before, limit, expected) in [
            (None, None, 1),
            (Some("data_after_fin"), None, 1),
            (None, Some("requests"), 0),
            (Some("gap"), None, 0),
            // (As Suricata has it.)
            (Some("midstream"), None, 1),
        ] {
            let mut anomalies = Anomalies::default();
            let (mut out, mut schemas, mut records) =
                (Counting::default(), EventSchemas::default(), 0);
            let mut way = Way {
                out: &mut out,
                schemas: &mut schemas,
                records: &mut records,
            };
            anomalies.of(8, &of_stream("gap"), &mut way);
            if let Some(name) = before {
                anomalies.of(7, &of_stream(name), &mut way);
            }
            *way.records = 0;
            let mut response = HttpMessage::default();
            response.status = 200;
            response.limit = limit;
            let row = HttpRow {
                request: None,
                response: Some(&response),
            };
            anomalies.record("http", Some(7), Nanos(1), &row, &mut way);
            assert_eq!(records, expected, "{before:?} {limit:?}");
        }
    }

    #[test]
    fn each_is_told_once_of_a_flow_and_all_are_bounded() {
        let mut anomalies = Anomalies::default();
        let (mut out, mut schemas, mut records) = (Counting::default(), EventSchemas::default(), 0);
        let mut way = Way {
            out: &mut out,
            schemas: &mut schemas,
            records: &mut records,
        };
        for _ in 0..100 {
            for name in ["gap", "two_lengths"] {
                anomalies.of(7, &AnomalyRow { name, ..PLAIN }, &mut way);
            }
        }
        assert_eq!((*way.records, anomalies.number), (2, 200));
        for flow in 0..3 * REMEMBERED as u64 {
            anomalies.of(
                flow,
                &AnomalyRow {
                    name: "gap",
                    ..PLAIN
                },
                &mut way,
            );
            assert!(anomalies.told.len() <= REMEMBERED);
        }
        *way.records = 0;
        for time in 0..10 * u64::from(PER_SECOND) {
            let time = Nanos(time * 2_000_000_000 / (10 * u64::from(PER_SECOND)));
            anomalies.of_packet(&AnomalyRow { time, ..PLAIN }, Source::Headers, &mut way);
        }
        assert_eq!(*way.records, 2 * u64::from(PER_SECOND));
    }
}
