//! Lines as Suricata's EVE log has them.

use std::collections::VecDeque;

use flowgauge_record::any::AnyRecord;
use flowgauge_record::text::{TimeWriter, write_json_escaped};
use flowgauge_record::{Encoder, Field, FieldVisitor, Format, JsonKey, ValueRef};
use flowgauge_wire::{Nanos, icmp_counterpart};

use super::values::{Cell, Name, Values, list};
use super::{dns, flow_members, names};

/// A member of an object: its name, and where its value comes from. What has no value is left out.
pub(super) struct Member(pub(super) JsonKey, pub(super) Origin);

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
    /// What is made of the record.
    Made(for<'a> fn(&Values<'a>) -> Cell<'a>),
    /// An object, if it has any member.
    Object(&'static [Member]),
    /// What this writes, if anything.
    Written(fn(&Values<'_>, &mut Vec<u8>)),
}

/// The members of an object in order, as `"name": origin(its operands);`, or `"name": object { ... };`.
macro_rules! members {
    { $($name:literal: $origin:ident $of:tt;)* } => {
        &[$($crate::logs::eve::Member(
            flowgauge_record::JsonKey::new($name),
            $crate::logs::eve::members!(@ $origin $of),
        ),)*]
    };
    (@ text ($field:ident)) => { $crate::logs::eve::Origin::Text(Name::$field) };
    (@ number ($field:ident)) => { $crate::logs::eve::Origin::Number(Name::$field) };
    (@ flag ($field:ident)) => { $crate::logs::eve::Origin::Flag(Name::$field) };
    (@ date ($field:ident)) => { $crate::logs::eve::Origin::Date(Name::$field) };
    (@ texts ($field:ident)) => { $crate::logs::eve::Origin::Texts(Name::$field) };
    (@ made ($($make:tt)+)) => { $crate::logs::eve::Origin::Made($($make)+) };
    (@ written ($($write:tt)+)) => { $crate::logs::eve::Origin::Written($($write)+) };
    (@ object ($members:path)) => { $crate::logs::eve::Origin::Object($members) };
    (@ object { $($members:tt)* }) => {
        $crate::logs::eve::Origin::Object($crate::logs::eve::members! { $($members)* })
    };
}
pub(super) use members;

/// The members of events of a kind, behind those of all.
pub(super) fn members_of(kind: &str) -> &'static [Member] {
    match kind {
        "flow" => flow_members::FLOW,
        "http" => HTTP,
        "dns" => dns::DNS,
        "tls" => TLS,
        "quic" => super::members::QUIC,
        "ssh" => super::members::SSH,
        "smtp" => super::members::SMTP,
        "ftp" => super::members::FTP,
        "ftp_data" => super::members::FTP_DATA,
        "dhcp" => super::members::DHCP,
        "snmp" => super::members::SNMP,
        "rpc" => super::members::RPC,
        "ntp" => super::members::NTP,
        "anomaly" => ANOMALY,
        "statistics" => STATS,
        "file" => FILE,
        _ => &[],
    }
}

/// What all lines begin with.
pub(super) static COMMON: &[Member] = members! {
    "timestamp": made(shown);
    // Numbers above 2^53 are not the same in every reader.
    "flow_id": made(|values| Cell::of(values.number(Name::flow_id), |id| Cell::Number(id >> 11)));
    "event_type": made(|values| Cell::Text(name(values)));
    "vlan": made(|values| match values.numbers(Name::vlan) {
        [] => Cell::Unset,
        ids => Cell::Numbers(ids),
    });
    "src_ip": made(|values| ip(values, [Name::src_ip, Name::dst_ip]));
    "src_port": made(|values| port(values, [Name::src_port, Name::dst_port]));
    "dest_ip": made(|values| ip(values, [Name::dst_ip, Name::src_ip]));
    "dest_port": made(|values| port(values, [Name::dst_port, Name::src_port]));
    "proto": made(proto);
    "ip_v": made(|values| {
        Cell::of(values.address(Name::src_ip), |(_, version)| {
            Cell::Number(version.into())
        })
    });
    "icmp_type": made(|values| icmp(values, false, 0));
    "icmp_code": made(|values| icmp(values, false, 1));
    "response_icmp_type": made(|values| icmp(values, true, 0));
    "response_icmp_code": made(|values| icmp(values, true, 1));
    "spi": made(association);
    "pkt_src": made(packet_source);
    "tx_id": made(|values| match values.kind() {
        "http" => position(values, Name::depth),
        "smtp" => position(values, Name::trans_depth),
        _ => Cell::Unset,
    });
    "app_proto": made(|values| match values.kind() {
        "file" => Cell::of(values.text(Name::source), Cell::Hyphens),
        _ => {
            let last = values.text(Name::app_proto_after).or(values.spoken());
            Cell::of(last, |name| Cell::Hyphens(names::protocol(name)))
        }
    });
    // HTTP/2 is HTTP before only where it was asked for.
    "app_proto_orig": made(|values| match values.text(Name::app_proto_after) {
        None | Some("http2") => Cell::Unset,
        Some("doh2") => Cell::Text("http2"),
        Some(_) => Cell::of(values.spoken(), |name| Cell::Hyphens(names::protocol(name))),
    });
    "community_id": made(|values| match values.text(Name::community_id) {
        Some(id) => Cell::Text(id),
        None => Cell::of(values.community_id(), Cell::Community),
    });
};

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

/// The number of the security association of a flow of ESP.
fn association<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_it = values.kind() == "flow" && values.text(Name::proto) == Some("50");
    let halves = values
        .number(Name::src_port)
        .zip(values.number(Name::dst_port));
    Cell::of(halves.filter(|_| is_it), |(upper, lower)| {
        Cell::Number(upper << 16 | lower)
    })
}

/// All events but these come from packets.
fn packet_source<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.kind() {
        "flow" | "statistics" => Cell::Unset,
        _ => Cell::Text("wire/pcap"),
    }
}

static HTTP: &[Member] = members! {
    "http": object {
        "hostname": made(|values| Cell::of(host(values).0, Cell::Text));
        // The port of a host has a field of its own.
        "http_port": made(|values| Cell::of(host(values).1, Cell::Number));
        "url": text(uri);
        "http_user_agent": text(user_agent);
        "http_content_type": made(|values| {
            Cell::of(values.text(Name::content_type), |text| {
                Cell::Text(text.split(';').next().unwrap_or(text).trim())
            })
        });
        "http_refer": text(referrer);
        "http_method": text(method);
        "protocol": made(|values| {
            let version = values.text(Name::version).filter(|_| !is_second(values));
            Cell::of(version, |version| Cell::Joined("HTTP/", version))
        });
        "version": made(|values| match is_second(values) {
            true => Cell::Text("2"),
            false => Cell::Unset,
        });
        "status": number(status);
        "redirect": made(|values| {
            let is_it = matches!(values.number(Name::status), Some(300..400));
            Cell::of(values.text(Name::location).filter(|_| is_it), Cell::Text)
        });
        "request_headers": written(|values, out| header_fields(values, Name::request_fields, out));
        "response_headers": written(|values, out| header_fields(values, Name::response_fields, out));
        "http2": object {
            "stream_id": number(stream);
        };
        "length": made(|values| {
            let body = values.number(Name::response_body_bytes);
            Cell::of(body.or(values.number(Name::bytes)), Cell::Number)
        });
    };
};

/// On a stream of HTTP/2, even if it was asked for in HTTP/1.
fn is_second(values: &Values<'_>) -> bool {
    values.number(Name::stream).is_some() || values.text(Name::version) == Some("2")
}

/// Fields of a head of HTTP/2, as objects.
fn header_fields(values: &Values<'_>, name: Name, out: &mut Vec<u8>) {
    if let Some(fields) = values.texts(name) {
        list(fields.iter(), out, |field, out| {
            // Names of what the protocol itself needs begin with a colon.
            let (name, value) = field.split_once(": ").unwrap_or((field, ""));
            text_behind(b"{\"name\":\"", name, out);
            text_behind(b",\"value\":\"", value, out);
            out.push(b'}');
        });
    }
}

static FILE: &[Member] = members! {
    "fileinfo": object {
        "filename": made(|values| {
            let uri = values.text(Name::uri);
            let path = uri.map(|uri| uri.split('?').next().unwrap_or(uri));
            let name = match values.text(Name::name_by) {
                Some("url") => path,
                _ => values.text(Name::file_name).or(path),
            };
            Cell::of(name, Cell::Text)
        });
        "magic": text(mime_type);
        "gaps": made(|values| Cell::Bool(missing(values) > 0));
        "state": made(|values| Cell::Text(file_state(values)));
        "md5": text(md5);
        "sha1": text(sha1);
        "sha256": text(sha256);
        "stored": made(|values| Cell::Bool(values.number(Name::extracted_bytes).is_some()));
        "file_name_stored": text(extracted);
        "size": made(|values| Cell::of(size(values), Cell::Number));
        // Of a data connection there is one.
        "tx_id": made(|values| match position(values, Name::depth) {
            Cell::Unset => Cell::Number(0),
            place => place,
        });
    };
};

static TLS: &[Member] = members! {
    "tls": object {
        "sni": text(server_name);
        "version": made(|values| {
            Cell::of(values.text(Name::version), |version| match version {
                "TLS 1.0" => Cell::Text("TLSv1"),
                "TLS 1.3-draft14" | "TLS 1.3-draft15" => Cell::Text("TLS 1.3 draft-<16"),
                version => match version.strip_prefix("TLS 1.3-draft") {
                    Some(draft) => Cell::Joined("TLS 1.3 draft-", draft),
                    None => Cell::Text(version),
                },
            })
        });
        "subject": text(subject);
        "issuerdn": text(issuer);
        "subjectaltname": texts(san);
        "serial": made(|values| Cell::of(values.text(Name::serial), Cell::Colons));
        "fingerprint": made(|values| Cell::of(values.text(Name::sha1), Cell::Colons));
        "notbefore": date(not_before);
        "notafter": date(not_after);
        "ja3": object(super::members::JA3);
        "ja3s": object(super::members::JA3S);
        "ja4": text(ja4);
        "session_resumed": flag(resumed);
        "client_alpns": texts(client_protocols);
        "server_alpns": made(|values| Cell::of(values.text(Name::next_protocol), Cell::One));
    };
};

static ANOMALY: &[Member] = members! {
    "anomaly": object {
        "type": made(|values| {
            Cell::Text(match values.text(Name::layer) {
                Some("packet") => "decode",
                Some("application") => "applayer",
                _ => "stream",
            })
        });
        "event": made(|values| Cell::of(names::suricata(values), Cell::Text));
        "layer": made(|values| match values.text(Name::layer) {
            Some("application") => Cell::Text("proto_parser"),
            _ => Cell::Unset,
        });
        "app_proto": text(protocol);
    };
};

static STATS: &[Member] = members! {
    "stats": object {
        "uptime": made(|values| {
            Cell::of(values.span(Name::uptime), |it| {
                Cell::Number(it.0 / 1_000_000_000)
            })
        });
        "decoder": object {
            "pkts": number(packets);
            "bytes": number(bytes);
            "invalid": number(malformed);
        };
        "flow": object {
            "total": number(flows);
            "active": number(live_flows);
            "memuse": number(flow_memory);
        };
        "tcp": object {
            "reassembly_gap": number(gaps);
            "reassembly_memuse": number(segment_memory);
        };
    };
};

/// As Suricata calls it.
fn name<'a>(values: &Values<'a>) -> &'a str {
    match values.kind() {
        "file" => "fileinfo",
        "statistics" => "stats",
        "dns" if is_within_http(values) => "dns",
        "dns" => values.text(Name::service).unwrap_or("dns"),
        kind => kind,
    }
}

/// DNS within HTTP, of which a transaction has one line.
fn is_within_http(values: &Values<'_>) -> bool {
    values.text(Name::service) == Some("doh")
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
pub(super) fn timestamp<'a>(at: Nanos) -> Cell<'a> {
    Cell::Date(at, 26, "+0000")
}

/// Which of two fields: the source is who sent a file, or a reply.
fn sided(values: &Values<'_>, [mine, other]: [Name; 2]) -> Name {
    match values.text(Name::sent_by) {
        Some("dst") => other,
        _ if values.is_reply() && !is_within_http(values) => other,
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
    // Those of ICMP are types and codes, those of ESP halves of a number.
    if matches!(values.text(Name::proto), Some("icmp" | "50")) {
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
    /// Files whose transactions, of which their lines tell, have not come.
    waiting: VecDeque<Waiting>,
}

/// The line of a file.
struct Waiting {
    file_id: u64,
    since: Nanos,
    line: Vec<u8>,
    /// How much of it is written where the transaction comes.
    own: usize,
}

/// Lines of files that wait at most.
const MOST_WAITING: usize = 256;
/// How long, on the clock of the capture.
const LONGEST: Nanos = Nanos(60_000_000_000);

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            time: TimeWriter::default(),
            encoder: Encoder::new(Format::Json),
            wanted: Vec::new(),
            waiting: VecDeque::new(),
        }
    }
}

/// Which fields of a record are not in all lines, and have a value.
struct Wanted<'a>(&'a mut Vec<bool>);

impl FieldVisitor for Wanted<'_> {
    fn value(&mut self, field: &'static Field, value: ValueRef<'_>) {
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
        let has_value = !matches!(value, ValueRef::Null | ValueRef::Object(None));
        self.0.push(has_value && !COMMON.contains(&field.name));
    }
}

impl Lines {
    /// Appends the line of a record; of a request and its reply one of each.
    pub(super) fn add(&mut self, record: &dyn AnyRecord, values: &Values<'_>, out: &mut Vec<u8>) {
        match values.kind() {
            "file" if self.wait(values, out) => return,
            "http" => self.carried(HTTP, values, out),
            "smtp" => self.carried(super::members::SMTP, values, out),
            _ => {}
        }
        let is_pair = matches!(values.kind(), "dns" | "snmp" | "dhcp" | "quic");
        let state = values.text(Name::state).filter(|_| is_pair);
        let has_reply = matches!(state, Some("no_request" | "matched"));
        if state != Some("no_request") && !(has_reply && is_within_http(values)) {
            self.line(record, values, out);
        }
        if has_reply {
            self.line(record, &values.reply(), out);
        }
    }

    /// Keeps the line of a file until its transaction comes. Returns false where none is to come.
    fn wait(&mut self, values: &Values<'_>, out: &mut Vec<u8>) -> bool {
        let source = values.text(Name::source);
        let (Some(file_id), Some("http" | "smtp")) = (values.number(Name::file_id), source) else {
            return false;
        };
        let since = values.begin().unwrap_or_default();
        let is_old = |it: &mut Waiting| since.0.saturating_sub(it.since.0) > LONGEST.0;
        while let Some(old) = self.waiting.pop_front_if(is_old) {
            out.extend_from_slice(&old.line);
        }
        if self.waiting.len() >= MOST_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            out.extend_from_slice(&oldest.line);
        }
        let mut line = vec![b'{'];
        self.members(COMMON, values, &mut line);
        self.members(FILE, values, &mut line);
        let own = line.len();
        if source == Some("http") {
            self.members(HTTP, values, &mut line);
        }
        line.extend_from_slice(b"}\n");
        self.waiting.push_back(Waiting {
            file_id,
            since,
            line,
            own,
        });
        true
    }

    /// Appends the lines of files that a transaction carried, with what it says of itself.
    fn carried(&mut self, members: &[Member], values: &Values<'_>, out: &mut Vec<u8>) {
        if self.waiting.is_empty() {
            return;
        }
        let lists = [Name::request_files, Name::response_files, Name::files];
        for &file_id in lists.into_iter().flat_map(|name| values.numbers(name)) {
            let is_it = |it: &Waiting| it.file_id == file_id;
            let place = self.waiting.iter().position(is_it);
            if let Some(it) = place.and_then(|place| self.waiting.remove(place)) {
                out.extend_from_slice(it.line.get(..it.own).unwrap_or_default());
                self.members(members, values, out);
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// Appends what waits: nothing more comes.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        for waiting in self.waiting.drain(..) {
            out.extend_from_slice(&waiting.line);
        }
    }

    fn line(&mut self, record: &dyn AnyRecord, values: &Values<'_>, out: &mut Vec<u8>) {
        let kind = values.kind();
        let members = match kind {
            "dns" => dns::members(values),
            "quic" if values.is_reply() => super::members::QUIC_REPLY,
            kind => members_of(kind),
        };
        out.push(b'{');
        self.members(COMMON, values, out);
        self.members(members, values, out);
        if members.is_empty() {
            self.others(kind, record, out);
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
            Origin::Text(name) => Cell::of(values.text(*name), Cell::Text),
            Origin::Number(name) => Cell::of(values.number(*name), Cell::Number),
            Origin::Flag(name) => match values.yes(*name) {
                Some(true) => Cell::Bool(true),
                _ => Cell::Unset,
            },
            // What no clock tells is a text of the same form.
            Origin::Date(name) => match values.text(*name) {
                Some(text) => Cell::Text(text.get(..19).unwrap_or(text)),
                None => Cell::of(values.time(*name), |at| Cell::Date(at, 19, "")),
            },
            Origin::Texts(name) => Cell::of(values.texts(*name), Cell::Texts),
            Origin::Made(make) => make(values),
            Origin::Object(members) => {
                out.push(b'{');
                let start = out.len();
                self.members(members, values, out);
                let has_any = out.len() > start;
                out.push(b'}');
                return has_any;
            }
            Origin::Written(write) => {
                let start = out.len();
                write(values, out);
                return out.len() > start;
            }
        };
        if cell.is_unset() {
            return false;
        }
        cell.write::<true>(&mut self.time, out);
        true
    }

    /// Of protocols without names of their own here: the record's fields that have a value.
    fn others(&mut self, kind: &str, record: &dyn AnyRecord, out: &mut Vec<u8>) {
        self.wanted.clear();
        record.values(&mut Wanted(&mut self.wanted));
        out.extend_from_slice(b",\"");
        write_json_escaped(out, kind);
        out.extend_from_slice(b"\":");
        record.encode_some(&self.wanted, &mut self.encoder, out);
        // The end of a line.
        out.pop();
    }
}
