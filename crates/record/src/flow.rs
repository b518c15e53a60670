//! Flow records.

use flowgauge_flow::{FlowRecord, FlowSide};
use flowgauge_wire::{CommunityId, FlowKey, Tunnel, community_id_hash};

use crate::schema::record;
use crate::text::{protocol_name, tcp_flag_bytes};
use crate::value::{Object, Symbol};

record! {
    /// Fields of [`FlowRow`]. `src` is the initiator, `dst` the responder.
    FLOW, FLOW_SCHEMA for FlowRow<'_> as it, #[inline(always)] {
        let flow = it.record;
        let (source, destination) = (&flow.source, &flow.destination);
    }:
    src_ip Address "SOURCE" 1 = (source.address, flow.version), "address of the initiator";
    src_port Unsigned "PORT" 2 = source.port, "port of the initiator; for ICMP the message's type, for ESP the upper half of the SPI";
    dst_ip Address "DESTINATION" 1 = (destination.address, flow.version), "address of the responder";
    dst_port Unsigned "PORT" 2 = destination.port, "port of the responder; for ICMP the type of the reply, or the code if there is none, for ESP the lower half of the SPI";
    proto Text "PROTO" 2 = Symbol(protocol_name(flow.protocol)), "tcp, udp, icmp (both versions) or the protocol's number, always as text";
    start Time "START" 4 = flow.start, "time of the first packet";
    end Time "END" 0 = flow.end, "time of the last packet";
    duration Duration Seconds "DURATION" 3 = flow.end - flow.start, "from the first to the last packet";
    src_packets Unsigned Packets "PKTS>" 4 = source.packets, "frames from the initiator";
    dst_packets Unsigned Packets "<PKTS" 4 = destination.packets, "frames from the responder";
    src_bytes Unsigned Bytes "BYTES>" 1 = source.bytes, "bytes of those frames on the wire";
    dst_bytes Unsigned Bytes "<BYTES" 1 = destination.bytes, "bytes of those frames on the wire";
    src_ip_bytes Unsigned Bytes = source.ip_bytes, "IP bytes by the IP headers";
    dst_ip_bytes Unsigned Bytes = destination.ip_bytes, "IP bytes by the IP headers";
    src_payload_bytes Unsigned Bytes = source.payload_bytes, "transport payload by the headers, retransmissions included";
    dst_payload_bytes Unsigned Bytes = destination.payload_bytes, "transport payload by the headers, retransmissions included";
    src_tcp_flags Text = tcp_flags(flow, source), "all TCP flags seen, in the order SAPFRUEC; null unless TCP";
    dst_tcp_flags Text = tcp_flags(flow, destination), "all TCP flags seen, in the order SAPFRUEC; null unless TCP";
    src_retransmitted Unsigned Packets "RETR>" 6 = source.retransmitted, "segments whose payload had been seen before";
    dst_retransmitted Unsigned Packets "<RETR" 6 = destination.retransmitted, "segments whose payload had been seen before";
    src_out_of_order Unsigned Packets = source.out_of_order, "segments that arrived after a later one and are not retransmissions";
    dst_out_of_order Unsigned Packets = destination.out_of_order, "segments that arrived after a later one and are not retransmissions";
    handshake_rtt Duration Seconds "RTT" 5 = flow.handshake_rtt, "from the SYN to the ACK that completes the handshake; null when not seen";
    fragments Unsigned Packets = flow.fragments, "IP fragments among the packets";
    state Text "STATE" 3 = Symbol(flow.state.name()), "connection state as Zeek's conn_state";
    history Text "HISTORY" 7 = Symbol(flow.history), "events in order as Zeek's history";
    vlan List "VLAN" 8 = flow.vlans, "VLAN ids, outermost first";
    tunnel Object = Object(flow.tunnel.map(|tunnel| TunnelRow(*tunnel))), "the innermost tunnel around the flow: kind, src_ip, dst_ip, id, depth";
    community_id Text = it.community_hash.as_ref().map(CommunityId::of_hash), "Community ID version 1; null for packets without IP";
    flow_id Hex = flow.flow_id, "16 hexadecimal digits, the same in every record about the flow";
    end_reason Text "END" 5 = Symbol(flow.end_reason.name()), "why the record was written: fin, rst, idle, active, end_of_input or evicted";
}

record! {
    /// Fields of the object `tunnel`.
    TUNNEL, TUNNEL_SCHEMA for TunnelRow as it {
        let tunnel = &it.0;
    }:
    kind Text = Symbol(tunnel.kind.name()), "ipip, 6in4, gre, vxlan, geneve, gtpu, teredo or erspan";
    src_ip Address = (tunnel.source, tunnel.version), "outer source address";
    dst_ip Address = (tunnel.destination, tunnel.version), "outer destination address";
    id Unsigned = tunnel.id, "VNI, TEID, GRE key or ERSPAN session; null if there is none";
    depth Unsigned = tunnel.depth, "number of tunnel layers removed";
}

/// A flow's record for output.
#[derive(Clone, Copy, Debug)]
pub struct FlowRow<'a> {
    record: &'a FlowRecord<'a>,
    /// What the Community ID encodes. As text it is needed last, and computing it takes longer than
    /// anything else, so that the processor should write the other fields meanwhile.
    community_hash: Option<[u8; 20]>,
}

impl<'a> FlowRow<'a> {
    /// The row of `record`, with its Community ID for `seed`.
    #[inline]
    pub fn new(record: &'a FlowRecord<'a>, seed: u16) -> FlowRow<'a> {
        let (key, _) = FlowKey::new(
            record.version,
            record.protocol,
            (record.source.address, record.source.port),
            (record.destination.address, record.destination.port),
        );
        FlowRow {
            record,
            community_hash: community_id_hash(&key, seed),
        }
    }
}

/// Letters of all flags of a side, and how many of them count.
#[inline(always)]
fn tcp_flags(flow: &FlowRecord<'_>, side: &FlowSide) -> Option<(&'static [u8; 8], usize)> {
    (flow.protocol == 6).then(|| tcp_flag_bytes(side.tcp_flags))
}

/// The object `tunnel`.
#[derive(Clone, Copy, Debug)]
pub struct TunnelRow(pub Tunnel);

#[cfg(test)]
mod tests {
    use flowgauge_flow::{EndReason, FlowState};
    use flowgauge_wire::{Address, Nanos, TcpFlags, TunnelKind};

    use super::*;
    use crate::Record as _;
    use crate::encoder::{Encoder, Format};
    use crate::schema::{Field, FieldVisitor};
    use crate::value::ValueRef;

    fn encoded(format: Format, record: &FlowRecord<'_>) -> String {
        let row = FlowRow::new(record, 0);
        let mut encoder = Encoder::new(format);
        let mut out = Vec::new();
        encoder.header(FLOW_SCHEMA, &mut out);
        encoder.encode(&row, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn sample<'a>(tunnel: Option<&'a Tunnel>, vlans: &'a [u16]) -> FlowRecord<'a> {
        let side = |octet, port| FlowSide {
            address: Address::v4([192, 0, 2, octet]),
            port,
            packets: 5,
            bytes: 500,
            ip_bytes: 430,
            payload_bytes: 230,
            stream_bytes: 230,
            tcp_flags: TcpFlags(0x1b),
            retransmitted: 1,
            out_of_order: 2,
            first: Nanos::from_secs(1),
            last: Nanos::from_secs(3),
        };
        FlowRecord {
            key: &FlowKey {
                low: Address([0; 16]),
                high: Address([0; 16]),
                low_port: 0,
                high_port: 0,
                protocol: 6,
                version: 4,
                reserved: 0,
                context: 0,
            },
            flow_id: 0xfeed,
            version: 4,
            protocol: 6,
            source: side(1, 50956),
            destination: side(2, 80),
            flow_start: Nanos(1_709_164_800_000_000_001),
            start: Nanos(1_709_164_800_000_000_001),
            end: Nanos(1_709_164_802_500_000_001),
            handshake_rtt: Some(Nanos::from_millis(20)),
            fragments: 0,
            state: FlowState::SF,
            history: "ShADadFf",
            vlans,
            tunnel,
            end_reason: EndReason::Fin,
        }
    }

    #[test]
    fn json_has_every_field_in_order() {
        let tunnel = Tunnel {
            kind: TunnelKind::Vxlan,
            source: Address::v4([10, 0, 0, 1]),
            destination: Address::v4([10, 0, 0, 2]),
            version: 4,
            depth: 1,
            id: Some(77),
        };
        assert_eq!(
            encoded(Format::Json, &sample(Some(&tunnel), &[10, 20])),
            concat!(
                r#"{"src_ip":"192.0.2.1","src_port":50956,"dst_ip":"192.0.2.2","dst_port":80,"#,
                r#""proto":"tcp","start":"2024-02-29T00:00:00.000000001Z","#,
                r#""end":"2024-02-29T00:00:02.500000001Z","duration":2.500000000,"#,
                r#""src_packets":5,"dst_packets":5,"src_bytes":500,"dst_bytes":500,"#,
                r#""src_ip_bytes":430,"dst_ip_bytes":430,"src_payload_bytes":230,"#,
                r#""dst_payload_bytes":230,"src_tcp_flags":"SAPF","dst_tcp_flags":"SAPF","#,
                r#""src_retransmitted":1,"dst_retransmitted":1,"src_out_of_order":2,"#,
                r#""dst_out_of_order":2,"handshake_rtt":0.020000000,"fragments":0,"#,
                r#""state":"SF","history":"ShADadFf","vlan":[10,20],"#,
                r#""tunnel":{"kind":"vxlan","src_ip":"10.0.0.1","dst_ip":"10.0.0.2","id":77,"#,
                r#""depth":1},"community_id":"1:tM4/ZoauK9v5SiFVILfLqzv7nwM=","flow_id":"000000000000feed","#,
                r#""end_reason":"fin"}"#,
                "\n"
            )
        );
    }

    #[test]
    fn csv_has_one_value_per_name() {
        let text = encoded(Format::Csv, &sample(None, &[]));
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        let values: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(names.len(), values.len());
        assert_eq!(names.len(), FLOW_SCHEMA.len());
        let value = |name| values[names.iter().position(|&n| n == name).unwrap()];
        assert_eq!(value("tunnel"), "");
        assert_eq!(value("vlan"), "[]");
        assert_eq!(value("end_reason"), "fin");
        assert_eq!(value("duration"), "2.500000000");
    }

    #[test]
    fn flags_are_null_unless_tcp() {
        let mut record = sample(None, &[]);
        record.protocol = 17;
        record.handshake_rtt = None;
        let text = encoded(Format::Json, &record);
        assert!(text.contains(r#""src_tcp_flags":null"#));
        assert!(text.contains(r#""handshake_rtt":null"#));
        assert!(text.contains(r#""proto":"udp""#));
    }

    /// Writes JSON the slow way, by the standard library.
    #[derive(Default)]
    struct Slow(String);

    impl Slow {
        fn put(&mut self, field: &'static Field, value: &str) {
            let comma = if self.0.ends_with('{') { "" } else { "," };
            self.0
                .push_str(&format!("{comma}\"{}\":{value}", field.name));
        }
    }

    impl FieldVisitor for Slow {
        fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
            match value {
                ValueRef::Unsigned(value) => self.put(field, &value.to_string()),
                ValueRef::Text(text) | ValueRef::Symbol(text) => {
                    self.put(field, &format!("{text:?}"));
                }
                ValueRef::Hex(value) => self.put(field, &format!("\"{value:016x}\"")),
                ValueRef::Address(address, version) => self.address(field, address, version),
                ValueRef::Time(time) => self.time(field, time),
                ValueRef::Duration(span) => {
                    let (seconds, nanos) = (span.0 / 1_000_000_000, span.0 % 1_000_000_000);
                    self.put(field, &format!("{seconds}.{nanos:09}"));
                }
                ValueRef::List(list) => {
                    let values: Vec<String> = list.iter().map(|it| it.to_string()).collect();
                    self.put(field, &format!("[{}]", values.join(",")));
                }
                ValueRef::Object(Some(object)) => {
                    self.put(field, "{");
                    object.values(self);
                    self.0.push('}');
                }
                _ => self.put(field, "null"),
            }
        }

        fn address(&mut self, field: &'static Field, value: Address, version: u8) {
            let address = core::net::Ipv6Addr::from(value.0);
            let text = match address.to_ipv4_mapped() {
                Some(address) if version == 4 => address.to_string(),
                _ => address.to_string(),
            };
            self.text(field, &text);
        }
        fn time(&mut self, field: &'static Field, value: Nanos) {
            let (seconds, nanos) = (value.0 / 1_000_000_000, value.0 % 1_000_000_000);
            let (mut year, mut month, mut day) = (1970, 0, seconds / 86_400);
            let leap = |year: u64| {
                year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
            };
            while day >= 365 + u64::from(leap(year)) {
                day -= 365 + u64::from(leap(year));
                year += 1;
            }
            let february = 28 + u64::from(leap(year));
            let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            while day >= months[month] {
                day -= months[month];
                month += 1;
            }
            let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
            let text = format!(
                "{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z",
                month + 1,
                day + 1
            );
            self.text(field, &text);
        }
    }

    #[test]
    fn random_records_are_what_the_slow_way_makes_of_them() {
        let mut state = 1u64;
        // Numbers of every length, 0 among them.
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state ^ state >> 29) >> (state >> 58)
        };
        let mut encoder = Encoder::new(Format::Json);
        for _ in 0..20_000 {
            let mut octets = [0; 32];
            octets.fill_with(|| random() as u8);
            let version = if random() & 1 == 0 { 4 } else { 6 };
            let address = |octets: &[u8]| match version {
                4 => Address::v4(*octets.first_chunk().unwrap()),
                _ => Address(*octets.first_chunk().unwrap()),
            };
            let mut side = |octets: &[u8]| FlowSide {
                address: address(octets),
                port: random() as u16,
                packets: random(),
                bytes: random(),
                ip_bytes: random(),
                payload_bytes: random(),
                stream_bytes: random(),
                tcp_flags: TcpFlags(random() as u8),
                retransmitted: random(),
                out_of_order: random(),
                first: Nanos(random()),
                last: Nanos(random()),
            };
            let (source, destination) = (side(&octets[..16]), side(&octets[16..]));
            let tunnel = Tunnel {
                kind: TunnelKind::Vxlan,
                source: address(&octets[8..]),
                destination: address(&octets[4..]),
                version,
                depth: 1 + random() as u8 % 3,
                id: (random() & 1 == 0).then(|| random() as u32),
            };
            let vlans: Vec<u16> = (0..random() % 4).map(|_| random() as u16).collect();
            let (start, span) = (random() >> 1, random() >> 1);
            let record = FlowRecord {
                flow_id: random(),
                version,
                protocol: [6, 17, 1, 58, random() as u8][random() as usize % 5],
                source,
                destination,
                start: Nanos(start),
                end: Nanos(start + span),
                handshake_rtt: (random() & 1 == 0).then(|| Nanos(random())),
                fragments: random(),
                history: &"ShADadFfRrCcGgTtWwIiQq^^"[..random() as usize % 25],
                ..sample((random() & 7 == 0).then_some(&tunnel), &vlans)
            };
            let row = FlowRow::new(&record, random() as u16);
            let (mut slow, mut out) = (Slow("{".to_owned()), Vec::new());
            row.visit(&mut slow);
            encoder.encode(&row, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), slow.0 + "}\n");
        }
    }
}
