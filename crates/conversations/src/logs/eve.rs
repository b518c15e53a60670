//! Lines as Suricata's EVE log has them.

use flowgauge_record::any::AnyRecord;
use flowgauge_record::store::Kept;
use flowgauge_record::text::{TimeWriter, write_json_escaped};
use flowgauge_record::{Encoder, Format, JsonKey};
use flowgauge_wire::{Nanos, icmp_counterpart};

use super::values::{Cell, Name, Values};
use super::{dns, members, names};

/// A member of an object: its name, and where its value comes from. What has no value is left out.
pub(super) struct Member(JsonKey, Origin);

pub(super) enum Origin {
    /// A field that is text.
    Text(Name),
    /// A number.
    Number(Name),
    /// `true` where the field is `yes`.
    Flag(Name),
    /// A time without fractions.
    Date(Name),
    /// A list of texts.
    Texts(Name),
    /// An address.
    AddressText(Name),
    /// What is made of the record.
    Made(for<'a> fn(&Values<'a>) -> Cell<'a>),
    /// An object of this text, under this name.
    Within(&'static str, Name),
    /// An object, if it has any member.
    Object(&'static [Member]),
    /// What this writes, if anything.
    Written(fn(&Values<'_>, &mut Vec<u8>)),
}
use Origin::{AddressText, Date, Flag, Made, Number, Object, Text, Texts, Within, Written};

pub(super) const fn member(name: &str, origin: Origin) -> Member {
    Member(JsonKey::new(name), origin)
}

/// What all lines begin with.
static COMMON: &[Member] = &[
    member("timestamp", Made(shown)),
    // Numbers above 2^53 are not the same in every reader.
    member(
        "flow_id",
        Made(|values| Cell::of(values.number(Name::flow_id), |id| Cell::Number(id >> 11))),
    ),
    member("event_type", Made(|values| Cell::Text(name(values)))),
    member(
        "vlan",
        Made(|values| match values.numbers(Name::vlan) {
            [] => Cell::Unset,
            ids => Cell::Numbers(ids),
        }),
    ),
    member(
        "src_ip",
        Made(|values| ip(values, [Name::src_ip, Name::dst_ip])),
    ),
    member(
        "src_port",
        Made(|values| port(values, [Name::src_port, Name::dst_port])),
    ),
    member(
        "dest_ip",
        Made(|values| ip(values, [Name::dst_ip, Name::src_ip])),
    ),
    member(
        "dest_port",
        Made(|values| port(values, [Name::dst_port, Name::src_port])),
    ),
    member("proto", Made(proto)),
    member(
        "ip_v",
        Made(|values| {
            Cell::of(values.address(Name::src_ip), |(_, version)| {
                Cell::Number(version.into())
            })
        }),
    ),
    member("icmp_type", Made(|values| icmp(values, false, 0))),
    member("icmp_code", Made(|values| icmp(values, false, 1))),
    member("response_icmp_type", Made(|values| icmp(values, true, 0))),
    member("response_icmp_code", Made(|values| icmp(values, true, 1))),
    member("pkt_src", Made(packet_source)),
    member(
        "tx_id",
        Made(|values| match values.kind() {
            "http" => position(values, Name::depth),
            "smtp" => position(values, Name::trans_depth),
            _ => Cell::Unset,
        }),
    ),
    member(
        "app_proto",
        Made(|values| match values.kind() {
            "file" => Cell::of(values.text(Name::source), Cell::Hyphens),
            _ => Cell::of(values.spoken(), |name| Cell::Hyphens(names::protocol(name))),
        }),
    ),
    member(
        "community_id",
        Made(|values| match values.text(Name::community_id) {
            Some(id) => Cell::Text(id),
            None => Cell::of(values.community_id(), Cell::Community),
        }),
    ),
];

static FLOW: &[Member] = &[
    member("flow", Object(FLOW_ITSELF)),
    member("tcp", Object(FLOW_TCP)),
];
static FLOW_ITSELF: &[Member] = &[
    member("pkts_toserver", Number(Name::src_packets)),
    member("pkts_toclient", Number(Name::dst_packets)),
    member("bytes_toserver", Number(Name::src_bytes)),
    member("bytes_toclient", Number(Name::dst_bytes)),
    member(
        "start",
        Made(|values| Cell::of(values.time(Name::start), timestamp)),
    ),
    member(
        "end",
        Made(|values| Cell::of(values.time(Name::end), timestamp)),
    ),
    // Of whole seconds on the clock.
    member(
        "age",
        Made(|values| {
            let times = values.time(Name::start).zip(values.time(Name::end));
            Cell::of(times, |(start, end)| {
                let [start, end] = [start, end].map(|time| time.0 / 1_000_000_000);
                Cell::Number(end.saturating_sub(start))
            })
        }),
    ),
    member(
        "state",
        Made(|values| {
            Cell::Text(match tcp_state(values) {
                Some("last_ack" | "time_wait" | "closed") => "closed",
                Some("none" | "syn_sent" | "syn_recv") => "new",
                Some(_) => "established",
                None if values.number(Name::dst_packets) == Some(0) => "new",
                None => "established",
            })
        }),
    ),
    member(
        "reason",
        Made(|values| {
            Cell::Text(match values.text(Name::end_reason) {
                Some("end_of_input") => "shutdown",
                Some("evicted") => "forced",
                _ => "timeout",
            })
        }),
    ),
    member("alerted", Made(|_| Cell::Bool(false))),
];
static FLOW_TCP: &[Member] = &[
    member("tcp_flags", Made(|values| flags_text(values, BOTH))),
    member(
        "tcp_flags_ts",
        Made(|values| flags_text(values, &[Name::src_tcp_flags])),
    ),
    member(
        "tcp_flags_tc",
        Made(|values| flags_text(values, &[Name::dst_tcp_flags])),
    ),
    member("syn", Made(|values| flag(values, 'S'))),
    member("fin", Made(|values| flag(values, 'F'))),
    member("rst", Made(|values| flag(values, 'R'))),
    member("psh", Made(|values| flag(values, 'P'))),
    member("ack", Made(|values| flag(values, 'A'))),
    member("urg", Made(|values| flag(values, 'U'))),
    member("ecn", Made(|values| flag(values, 'E'))),
    member("cwr", Made(|values| flag(values, 'C'))),
    member(
        "state",
        Made(|values| Cell::of(tcp_state(values), Cell::Text)),
    ),
];

/// The TCP flags of both sides.
const BOTH: &[Name] = &[Name::src_tcp_flags, Name::dst_tcp_flags];

/// TCP flags that these sides sent, in hexadecimal digits.
fn flags_text<'a>(values: &Values<'a>, sides: &[Name]) -> Cell<'a> {
    const LETTERS: &str = "FSRPAUEC";
    if values.text(Name::src_tcp_flags).is_none() {
        return Cell::Unset;
    }
    let letters = sides.iter().filter_map(|side| values.text(*side));
    let bits = letters
        .flat_map(str::chars)
        .filter_map(|it| LETTERS.find(it));
    Cell::Hex(bits.fold(0, |all, bit| all | 1 << bit), 2)
}

fn flag<'a>(values: &Values<'a>, letter: char) -> Cell<'a> {
    let mut sides = BOTH.iter().filter_map(|side| values.text(*side));
    match sides.any(|letters| letters.contains(letter)) {
        true => Cell::Bool(true),
        false => Cell::Unset,
    }
}

/// The state of a TCP connection at its end, by those of RFC 9293, section 3.3.2, that a watcher between both
/// ends can tell.
fn tcp_state(values: &Values<'_>) -> Option<&'static str> {
    values.text(Name::src_tcp_flags)?;
    let is_answered = values.number(Name::dst_packets) != Some(0);
    Some(match values.text(Name::state)? {
        "S0" | "SH" => "syn_sent",
        "S1" => "established",
        "S2" => "close_wait",
        "S3" => "fin_wait2",
        "OTH" | "SHR" if !is_answered => "none",
        "OTH" | "SHR" => "established",
        _ => "closed",
    })
}

/// Type or code of the ICMP messages of a flow, or of those that answer.
fn icmp<'a>(values: &Values<'a>, of_reply: bool, part: usize) -> Cell<'a> {
    let version = values.address(Name::src_ip).map(|it| it.1);
    if values.kind() != "flow" || values.text(Name::proto) != Some("icmp") {
        return Cell::Unset;
    }
    let protocol = if version == Some(4) { 1 } else { 58 };
    let ends = values
        .number(Name::src_port)
        .zip(values.number(Name::dst_port));
    Cell::of(ends, |(kind, other)| {
        let answer = icmp_counterpart(protocol, kind as u8).map(u64::from);
        let is_pair = answer == Some(other);
        let is_answered = is_pair && values.number(Name::dst_packets) != Some(0);
        match (of_reply, part) {
            (false, 0) => Cell::Number(kind),
            (false, _) => Cell::Number(if is_pair { 0 } else { other }),
            (true, _) if !is_answered => Cell::Unset,
            (true, 0) => Cell::Number(other),
            (true, _) => Cell::Number(0),
        }
    })
}

/// The protocol below: names of others than these are their numbers.
fn proto<'a>(values: &Values<'a>) -> Cell<'a> {
    let version = values.address(Name::src_ip).map(|it| it.1);
    Cell::of(values.text(Name::proto), |proto| match proto {
        "quic" => Cell::Text("UDP"),
        "icmp" if version == Some(6) => Cell::Text("IPv6-ICMP"),
        "2" => Cell::Text("IGMP"),
        "47" => Cell::Text("GRE"),
        "50" => Cell::Text("ESP"),
        "51" => Cell::Text("AH"),
        "89" => Cell::Text("OSPF"),
        "132" => Cell::Text("SCTP"),
        proto => Cell::Upper(proto),
    })
}

/// All events but these come from packets.
fn packet_source<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.kind() {
        "flow" | "statistics" => Cell::Unset,
        _ => Cell::Text("wire/pcap"),
    }
}

static HTTP: &[Member] = &[member("http", Object(HTTP_ITSELF))];
static HTTP_ITSELF: &[Member] = &[
    member(
        "hostname",
        Made(|values| Cell::of(host(values).0, Cell::Text)),
    ),
    // The port of a host has a field of its own.
    member(
        "http_port",
        Made(|values| Cell::of(host(values).1, Cell::Number)),
    ),
    member("url", Text(Name::uri)),
    member("http_user_agent", Text(Name::user_agent)),
    member(
        "http_content_type",
        Made(|values| {
            Cell::of(values.text(Name::content_type), |text| {
                Cell::Text(text.split(';').next().unwrap_or(text).trim())
            })
        }),
    ),
    member("http_refer", Text(Name::referrer)),
    member("http_method", Text(Name::method)),
    member(
        "protocol",
        Made(|values| {
            let version = values.text(Name::version).filter(|it| *it != "2");
            Cell::of(version, |version| Cell::Joined("HTTP/", version))
        }),
    ),
    member(
        "version",
        Made(|values| {
            let version = values.text(Name::version).filter(|it| *it == "2");
            Cell::of(version, Cell::Text)
        }),
    ),
    member("status", Number(Name::status)),
    member(
        "length",
        Made(|values| {
            let body = values.number(Name::response_body_bytes);
            Cell::of(body.or(values.number(Name::bytes)), Cell::Number)
        }),
    ),
];

static FILE: &[Member] = &[member("fileinfo", Object(FILE_ITSELF))];
static FILE_OF_HTTP: &[Member] = &[
    member("http", Object(HTTP_ITSELF)),
    member("fileinfo", Object(FILE_ITSELF)),
];
static FILE_ITSELF: &[Member] = &[
    member(
        "filename",
        Made(|values| {
            let uri = values.text(Name::uri);
            let path = uri.map(|uri| uri.split('?').next().unwrap_or(uri));
            let name = match values.text(Name::name_by) {
                Some("url") => path,
                _ => values.text(Name::file_name).or(path),
            };
            Cell::of(name, Cell::Text)
        }),
    ),
    member("magic", Text(Name::mime_type)),
    member("gaps", Made(|values| Cell::Bool(missing(values) > 0))),
    member("state", Made(|values| Cell::Text(file_state(values)))),
    member("md5", Text(Name::md5)),
    member("sha1", Text(Name::sha1)),
    member("sha256", Text(Name::sha256)),
    member(
        "stored",
        Made(|values| Cell::Bool(values.number(Name::extracted_bytes).is_some())),
    ),
    member("file_name_stored", Text(Name::extracted)),
    member("size", Made(|values| Cell::of(size(values), Cell::Number))),
    // Of a data connection there is one.
    member(
        "tx_id",
        Made(|values| match position(values, Name::depth) {
            Cell::Unset => Cell::Number(0),
            place => place,
        }),
    ),
];

static TLS: &[Member] = &[member("tls", Object(TLS_ITSELF))];
static TLS_ITSELF: &[Member] = &[
    member("sni", Text(Name::server_name)),
    member(
        "version",
        Made(|values| {
            Cell::of(values.text(Name::version), |version| match version {
                "TLS 1.0" => Cell::Text("TLSv1"),
                "TLS 1.3-draft14" | "TLS 1.3-draft15" => Cell::Text("TLS 1.3 draft-<16"),
                version => match version.strip_prefix("TLS 1.3-draft") {
                    Some(draft) => Cell::Joined("TLS 1.3 draft-", draft),
                    None => Cell::Text(version),
                },
            })
        }),
    ),
    member("subject", Text(Name::subject)),
    member("issuerdn", Text(Name::issuer)),
    member("subjectaltname", Texts(Name::san)),
    member(
        "serial",
        Made(|values| Cell::of(values.text(Name::serial), Cell::Colons)),
    ),
    member(
        "fingerprint",
        Made(|values| Cell::of(values.text(Name::sha1), Cell::Colons)),
    ),
    member("notbefore", Date(Name::not_before)),
    member("notafter", Date(Name::not_after)),
    member("ja3", Object(members::JA3)),
    member("ja3s", Object(members::JA3S)),
    member("ja4", Text(Name::ja4)),
    member("session_resumed", Flag(Name::resumed)),
    member("client_alpns", Texts(Name::client_protocols)),
    member(
        "server_alpns",
        Made(|values| Cell::of(values.text(Name::next_protocol), Cell::One)),
    ),
];

static ANOMALY: &[Member] = &[member("anomaly", Object(ANOMALY_ITSELF))];
static ANOMALY_ITSELF: &[Member] = &[
    member(
        "type",
        Made(|values| {
            Cell::Text(match values.text(Name::layer) {
                Some("packet") => "decode",
                Some("application") => "applayer",
                _ => "stream",
            })
        }),
    ),
    member(
        "event",
        Made(|values| Cell::of(names::suricata(values), Cell::Text)),
    ),
    member(
        "layer",
        Made(|values| match values.text(Name::layer) {
            Some("application") => Cell::Text("proto_parser"),
            _ => Cell::Unset,
        }),
    ),
    member("app_proto", Text(Name::protocol)),
];

static STATS: &[Member] = &[member("stats", Object(STATS_ITSELF))];
static STATS_ITSELF: &[Member] = &[
    member(
        "uptime",
        Made(|values| {
            Cell::of(values.span(Name::uptime), |it| {
                Cell::Number(it.0 / 1_000_000_000)
            })
        }),
    ),
    member(
        "decoder",
        Object(&[
            member("pkts", Number(Name::packets)),
            member("bytes", Number(Name::bytes)),
            member("invalid", Number(Name::malformed)),
        ]),
    ),
    member(
        "flow",
        Object(&[
            member("total", Number(Name::flows)),
            member("active", Number(Name::live_flows)),
            member("memuse", Number(Name::flow_memory)),
        ]),
    ),
    member(
        "tcp",
        Object(&[
            member("reassembly_gap", Number(Name::gaps)),
            member("reassembly_memuse", Number(Name::segment_memory)),
        ]),
    ),
];

/// As Suricata calls it.
fn name<'a>(values: &Values<'a>) -> &'a str {
    match values.kind() {
        "file" => "fileinfo",
        "statistics" => "stats",
        "dns" => values.text(Name::service).unwrap_or("dns"),
        kind => kind,
    }
}

fn shown<'a>(values: &Values<'a>) -> Cell<'a> {
    let at = match values.kind() {
        // When it ended.
        "flow" => values.time(Name::end),
        _ => values.begin(),
    };
    let later = values.span(Name::latency).filter(|_| values.is_reply());
    let later = later.unwrap_or_default();
    Cell::of(at, |at| timestamp(Nanos(at.0.saturating_add(later.0))))
}

/// As `2026-11-22T07:44:36.123456+0000`.
fn timestamp<'a>(at: Nanos) -> Cell<'a> {
    Cell::Date(at, 26, "+0000")
}

/// Which of two fields: the source is who sent a file, or a reply.
fn sided(values: &Values<'_>, [mine, other]: [Name; 2]) -> Name {
    match values.text(Name::sent_by) {
        Some("dst") => other,
        _ if values.is_reply() => other,
        _ => mine,
    }
}

fn ip<'a>(values: &Values<'a>, names: [Name; 2]) -> Cell<'a> {
    let address = values.address(sided(values, names));
    Cell::of(address, |(address, version)| {
        Cell::WholeAddress(address, version)
    })
}

fn port<'a>(values: &Values<'a>, names: [Name; 2]) -> Cell<'a> {
    // Those of ICMP are types and codes.
    if values.text(Name::proto) == Some("icmp") {
        return Cell::Unset;
    }
    Cell::of(values.number(sided(values, names)), Cell::Number)
}

/// A host and the port behind it.
fn host<'a>(values: &Values<'a>) -> (Option<&'a str>, Option<u64>) {
    let host = values.text(Name::host);
    let parts = host.and_then(|host| host.rsplit_once(':'));
    match parts.map(|(name, port)| (name, port.parse::<u16>())) {
        Some((name, Ok(port))) => (Some(name), Some(port.into())),
        _ => (host, None),
    }
}

/// A number from 1, counted from 0.
pub(super) fn position<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::of(values.number(name), |number| {
        Cell::Number(number.saturating_sub(1))
    })
}

fn missing(values: &Values<'_>) -> u64 {
    values.number(Name::missing_bytes).unwrap_or(0)
}

fn size(values: &Values<'_>) -> Option<u64> {
    let seen = values.number(Name::bytes);
    seen.map(|seen| seen + missing(values))
}

fn file_state(values: &Values<'_>) -> &'static str {
    let written = values.number(Name::extracted_bytes);
    let is_cut = written.is_some() && written < size(values);
    match values.yes(Name::whole) {
        _ if is_cut => "TRUNCATED",
        Some(true) => "CLOSED",
        _ => "TRUNCATED",
    }
}

/// Appends a text with what is in front of it, and the mark behind it.
pub(super) fn text_behind(front: &[u8], text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(front);
    write_json_escaped(out, text);
    out.push(b'"');
}

/// Writes lines.
pub(super) struct Lines {
    time: TimeWriter,
    encoder: Encoder,
    /// Fields of a record that are written.
    wanted: Vec<bool>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            time: TimeWriter::default(),
            encoder: Encoder::new(Format::Json),
            wanted: Vec::new(),
        }
    }
}

impl Lines {
    /// Appends the line of a record; of a request and its reply one of each.
    pub(super) fn add(&mut self, record: &dyn AnyRecord, values: &Values<'_>, out: &mut Vec<u8>) {
        let is_pair = matches!(values.kind(), "dns" | "snmp" | "dhcp");
        let state = values.text(Name::state).filter(|_| is_pair);
        if state != Some("no_request") {
            self.line(record, values, out);
        }
        if matches!(state, Some("no_request" | "matched")) {
            self.line(record, &values.reply(), out);
        }
    }

    fn line(&mut self, record: &dyn AnyRecord, values: &Values<'_>, out: &mut Vec<u8>) {
        let kind = values.kind();
        let members = match kind {
            "flow" => FLOW,
            "http" => HTTP,
            "dns" => dns::members(values),
            "tls" => TLS,
            "quic" => members::QUIC,
            "ssh" => members::SSH,
            "smtp" => members::SMTP,
            "ftp" => members::FTP,
            "ftp_data" => members::FTP_DATA,
            "dhcp" => members::DHCP,
            "snmp" => members::SNMP,
            "rpc" => members::RPC,
            "ntp" => members::NTP,
            "anomaly" => ANOMALY,
            "statistics" => STATS,
            "file" if values.text(Name::source) == Some("http") => FILE_OF_HTTP,
            "file" => FILE,
            _ => &[],
        };
        out.push(b'{');
        self.members(COMMON, values, out);
        self.members(members, values, out);
        if members.is_empty() {
            self.others(kind, record, values, out);
        }
        out.extend_from_slice(b"}\n");
    }

    fn members(&mut self, members: &[Member], values: &Values<'_>, out: &mut Vec<u8>) {
        for Member(key, origin) in members {
            let start = out.len();
            match (out.last(), key.with_comma()) {
                (Some(b'{'), [_, key @ ..]) => out.extend_from_slice(key),
                (_, key) => out.extend_from_slice(key),
            }
            if !self.value(origin, values, out) {
                out.truncate(start);
            }
        }
    }

    /// Appends a value; returns whether there is one.
    #[inline]
    fn value(&mut self, origin: &Origin, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let cell = match origin {
            Text(name) => Cell::of(values.text(*name), Cell::Text),
            Number(name) => Cell::of(values.number(*name), Cell::Number),
            Flag(name) => match values.yes(*name) {
                Some(true) => Cell::Bool(true),
                _ => Cell::Unset,
            },
            // What no clock tells is a text of the same form.
            Date(name) => match values.text(*name) {
                Some(text) => Cell::Text(text.get(..19).unwrap_or(text)),
                None => Cell::of(values.time(*name), |at| Cell::Date(at, 19, "")),
            },
            AddressText(name) => Cell::of(values.address(*name), |(address, version)| {
                Cell::WholeAddress(address, version)
            }),
            Texts(name) => Cell::of(values.texts(*name), Cell::Texts),
            Made(make) => make(values),
            Within(inner, name) => {
                let Some(text) = values.text(*name) else {
                    return false;
                };
                out.extend_from_slice(b"{\"");
                out.extend_from_slice(inner.as_bytes());
                text_behind(b"\":\"", text, out);
                out.push(b'}');
                return true;
            }
            Object(members) => {
                out.push(b'{');
                let start = out.len();
                self.members(members, values, out);
                let has_any = out.len() > start;
                out.push(b'}');
                return has_any;
            }
            Written(write) => {
                let start = out.len();
                write(values, out);
                return out.len() > start;
            }
        };
        if cell.is_unset() {
            return false;
        }
        cell.json(&mut self.time, out);
        true
    }

    /// Of protocols without names of their own here: the record's fields that have a value.
    fn others(
        &mut self,
        kind: &str,
        record: &dyn AnyRecord,
        values: &Values<'_>,
        out: &mut Vec<u8>,
    ) {
        const COMMON: [&str; 9] = [
            "event_type",
            "flow_id",
            "time",
            "src_ip",
            "src_port",
            "dst_ip",
            "dst_port",
            "proto",
            "app_proto",
        ];
        let is_wanted = |(name, value): (&str, Kept<'_>)| {
            !COMMON.contains(&name) && !matches!(value, Kept::Null)
        };
        self.wanted.clear();
        self.wanted.extend(values.all().map(is_wanted));
        out.extend_from_slice(b",\"");
        write_json_escaped(out, kind);
        out.extend_from_slice(b"\":");
        record.encode_some(&self.wanted, &mut self.encoder, out);
        // The end of a line.
        out.pop();
    }
}
