//! Records about packet loss between observation points.

use flowgauge_wire::{Address, Nanos};

use crate::schema::record;
use crate::text::protocol_name;
use crate::value::Symbol;

record! {
    /// Fields of an [`ObservationRow`].
    OBSERVATION, OBSERVATION_SCHEMA for ObservationRow<'_> as it:
    point Text "POINT" 2 = it.point, "name of the observation point, if set";
    began Time = it.began, "start of the point's observation";
    time Time "TIME" 1 = it.time, "time of the last packet";
    first Time "FIRST" 3 = it.first, "time of the first packet";
    src_ip Address "SOURCE" 1 = (it.source.0, it.version), "address of the sender";
    src_port Unsigned "PORT" 2 = it.source.1, "port of the sender";
    dst_ip Address "DESTINATION" 1 = (it.destination.0, it.version), "address of the receiver";
    dst_port Unsigned "PORT" 2 = it.destination.1, "port of the receiver";
    protocol Unsigned "PROTO" 2 = it.protocol, "IP protocol";
    packets Unsigned Packets "PACKETS" 1 = it.packets, "packets so far, without repeats";
    repeats Unsigned Packets "REPEATS" 3 = it.repeats, "packets equal to one of the 8 before them";
    bytes Unsigned Bytes "BYTES" 2 = it.bytes, "bytes so far, by the IP headers";
    late Unsigned Packets "LATE" 4 = it.late, "TCP segments with payload below the highest sequence number: out of \
    order or retransmitted";
    trips Unsigned "TRIPS" 5 = it.trips.0, "round trips since the previous record, from the point to the receiver and \
    back, by TCP timestamps and QUIC's spin bit";
    trips_sum Duration Seconds = Nanos(it.trips.1), "sum of these";
    trip_least Duration Seconds "TRIP" 5 = Nanos(it.trips.2), "the least of these";
    trip_most Duration Seconds = Nanos(it.trips.3), "the largest of these";
    dropped Unsigned Packets "DROPPED" 5 = it.dropped, "packets lost by this process's captures so far, of all traffic";
    ttl Unsigned "TTL" 4 = it.ttl, "time to live of the first packet";
    ended Unsigned "ENDED" 4 = u64::from(it.has_ended), "1: the flow was idle for the timeout, or the observation is \
    over; 0: it continues";
    marks Text = it.marks, "selected packets since the previous record: identity@nanoseconds since the first packet, \
    then packets, repeats and bytes up to it, and a sum of the last eight packets";
    method Unsigned = it.method, "method of selecting packets; records with another method cannot be compared";
}

/// Counts of an observation point for one direction of a flow.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct ObservationRow<'a> {
    pub point: Option<&'a str>,
    pub began: Nanos,
    pub time: Nanos,
    pub first: Nanos,
    pub source: (Address, u16),
    pub destination: (Address, u16),
    pub version: u8,
    pub protocol: u8,
    pub packets: u64,
    pub repeats: u64,
    pub bytes: u64,
    pub late: u64,
    /// Number, sum, minimum and maximum.
    pub trips: (u64, u64, u64, u64),
    pub dropped: u64,
    pub ttl: u8,
    pub has_ended: bool,
    pub marks: &'a str,
    pub method: u64,
}

record! {
    /// Fields of a [`LossRow`].
    LOSS, LOSS_SCHEMA for LossRow<'_> as it {
        let flow = it.flow.as_ref();
    }:
    of Text "OF" 1 = Symbol(it.of), "interval, flow, application or total";
    time Time "TIME" 1 = it.time, "start of the interval or flow, or of the comparison for applications and totals, \
    by the clock of the pair's first point";
    from Text "FROM" 1 = it.from, "the point that packets pass first";
    to Text "TO" 1 = it.to, "the point that packets pass last";
    src_ip Address "SOURCE" 2 = flow.map(|flow| (flow.source.0, flow.version)), "address of the sender, of a flow";
    src_port Unsigned "PORT" 4 = flow.map(|flow| flow.source.1), "port of the sender";
    dst_ip Address "DESTINATION" 2 = flow.map(|flow| (flow.destination.0, flow.version)), "address of the receiver";
    dst_port Unsigned "PORT" 4 = flow.map(|flow| flow.destination.1), "port of the receiver";
    proto Text "PROTO" 3 = it.protocol.map(|protocol| Symbol(protocol_name(protocol))), "tcp, udp or another protocol, of a flow or an application";
    port Unsigned "APP" 3 = it.port, "the smaller port of an application";
    verdict Text "VERDICT" 3 = flow.map(|flow| Symbol(flow.verdict)), "of a flow: compared, lost, one_sided or unobserved";
    flows Unsigned "FLOWS" 3 = it.flows, "ended flow directions, seen by both points or lost";
    sent Unsigned Packets "SENT" 1 = it.sent, "their packets at the first point";
    received Unsigned Packets "RECEIVED" 1 = it.received, "their packets at the last point";
    sent_bytes Unsigned Bytes = it.sent_bytes, "bytes of the packets sent, by the IP headers";
    received_bytes Unsigned Bytes = it.received_bytes, "bytes of the packets received, by the IP headers";
    lost Unsigned Packets "LOST" 1 = it.lost, "packets missing at the last point, by the points' counts";
    ratio Float "RATIO" 2 = it.ratio, "lost / sent";
    least Unsigned Packets "LEAST" 1 = it.least, "minimum loss: lost minus the drops of the last point's capture";
    most Unsigned Packets "MOST" 1 = it.most, "maximum loss: lost plus the drops of the first point's capture";
    from_dropped Unsigned Packets "DROP>" 2 = it.dropped.0, "packets dropped by the first point's capture meanwhile, \
    of all traffic";
    to_dropped Unsigned Packets ">DROP" 2 = it.dropped.1, "packets dropped by the last point's capture meanwhile, of \
    all traffic";
    duplicates Unsigned Packets "DUP" 2 = it.duplicates, "excess packets at the last point";
    sent_late Unsigned Packets "LATE>" 5 = it.late.0, "TCP segments of ended flows that were out of order or \
    retransmitted at the first point";
    received_late Unsigned Packets ">LATE" 5 = it.late.1, "the same at the last point: the excess was reordered in \
    between";
    one_sided Unsigned Packets "ONESIDED" 2 = it.one_sided, "packets of flows that do not pass the other point";
    one_sided_flows Unsigned = it.one_sided_flows, "directions of flows that do not pass the other point";
    uncompared Unsigned Packets "UNCOMP" 4 = it.uncompared, "packets from times when only one of the points observed";
    delay_least Duration Seconds "DELAY" 3 = it.delay.0, "least one-way delay by the estimated offset; null if the \
    offset is unknown";
    delay_mean Duration Seconds "MEAN" 4 = it.delay.1, "mean of the same";
    delay_most Duration Seconds "MOST" 4 = it.delay.2, "largest of the same";
    jitter Duration Seconds "JITTER" 3 = it.jitter, "mean change of the delay from one marked packet of a flow to the next";
    rtt_least Duration Seconds "RTT" 4 = it.rtt.0, "least round trip from the first point to the receiver and back, \
    by TCP timestamps and QUIC's spin bit";
    rtt_mean Duration Seconds "MEAN" 5 = it.rtt.1, "mean of the same";
    rtt_most Duration Seconds "MOST" 5 = it.rtt.2, "largest of the same";
    response Duration Seconds "RESPONSE" 5 = it.response, "mean time from a flow's first packet to the first of the other direction, at the first point: for TCP the handshake's round trip from there to the server";
    offset Float Seconds "OFFSET" 4 = it.offset, "last point's clock minus the first one's";
    offset_error Duration Seconds "+-" 4 = it.offset_error, "error bound of offset and delays: half of the least \
    round trip";
}

/// A flow in a [`LossRow`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct LossFlow {
    pub source: (Address, u16),
    pub destination: (Address, u16),
    pub version: u8,
    pub verdict: &'static str,
}

/// Loss of one direction between two points.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the schema says what they are")]
pub struct LossRow<'a> {
    pub of: &'static str,
    pub time: Nanos,
    pub from: &'a str,
    pub to: &'a str,
    pub flow: Option<LossFlow>,
    pub protocol: Option<u8>,
    pub port: Option<u16>,
    pub flows: u64,
    pub sent: u64,
    pub received: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub lost: u64,
    pub ratio: Option<f64>,
    pub least: u64,
    pub most: u64,
    pub dropped: (u64, u64),
    pub duplicates: u64,
    pub late: (u64, u64),
    pub one_sided: u64,
    pub one_sided_flows: u64,
    pub uncompared: u64,
    pub delay: (Option<Nanos>, Option<Nanos>, Option<Nanos>),
    pub jitter: Option<Nanos>,
    pub rtt: (Option<Nanos>, Option<Nanos>, Option<Nanos>),
    pub response: Option<Nanos>,
    pub offset: Option<f64>,
    pub offset_error: Option<Nanos>,
}
