//! Logs as Zeek has them: which columns each has, and their values.

use flowgauge_record::JsonKey;
use flowgauge_record::text::TimeWriter;

use super::names;
use super::values::{Cell, Name, Values};

/// A log: its name, and its columns behind those that all have.
pub(super) struct Log {
    pub(super) path: &'static str,
    front: &'static [Column],
    columns: &'static [Column],
}

/// A column: name, type, and where its value comes from.
struct Column {
    name: &'static str,
    key: JsonKey,
    kind: &'static str,
    as_is: AsIs,
    origin: Origin,
}

/// How a field is written as it is.
#[derive(Clone, Copy)]
enum AsIs {
    Address,
    Number,
    Bool,
    Span,
    Texts,
    Spans,
    Text,
}

const fn column(name: &'static str, kind: &'static str, origin: Origin) -> Column {
    Column {
        name,
        key: JsonKey::new(name),
        kind,
        as_is: match kind.as_bytes() {
            b"addr" => AsIs::Address,
            b"count" | b"port" => AsIs::Number,
            b"bool" => AsIs::Bool,
            b"interval" => AsIs::Span,
            b"vector[string]" => AsIs::Texts,
            b"vector[interval]" => AsIs::Spans,
            _ => AsIs::Text,
        },
        origin,
    }
}

#[derive(Clone, Copy)]
enum Origin {
    /// This field, as the column's type has it.
    Field(Name),
    /// What is made of the record.
    Made(for<'a> fn(&Values<'a>) -> Cell<'a>),
    /// Not known here.
    Unset,
}
use Origin::{Field, Made, Unset};

/// Columns in front of all logs of connections.
const COMMON: &[Column] = &[
    column("ts", "time", Made(begin)),
    column("uid", "string", Made(uid)),
    column("id.orig_h", "addr", Field(Name::src_ip)),
    column("id.orig_p", "port", Field(Name::src_port)),
    column("id.resp_h", "addr", Field(Name::dst_ip)),
    column("id.resp_p", "port", Field(Name::dst_port)),
];

static CONN: Log = Log {
    path: "conn",
    front: COMMON,
    columns: &[
        column("proto", "enum", Field(Name::proto)),
        column("service", "string", Made(service)),
        column("duration", "interval", Made(duration)),
        column("orig_bytes", "count", Field(Name::src_payload_bytes)),
        column("resp_bytes", "count", Field(Name::dst_payload_bytes)),
        column("conn_state", "string", Field(Name::state)),
        column("local_orig", "bool", Unset),
        column("local_resp", "bool", Unset),
        column("missed_bytes", "count", Unset),
        column("history", "string", Field(Name::history)),
        column("orig_pkts", "count", Field(Name::src_packets)),
        column("orig_ip_bytes", "count", Field(Name::src_ip_bytes)),
        column("resp_pkts", "count", Field(Name::dst_packets)),
        column("resp_ip_bytes", "count", Field(Name::dst_ip_bytes)),
        column("tunnel_parents", "set[string]", Unset),
        column("community_id", "string", Field(Name::community_id)),
    ],
};

static HTTP: Log = Log {
    path: "http",
    front: COMMON,
    columns: &[
        column("trans_depth", "count", Field(Name::depth)),
        column("method", "string", Field(Name::method)),
        column("host", "string", Field(Name::host)),
        column("uri", "string", Field(Name::uri)),
        column("referrer", "string", Field(Name::referrer)),
        // That of the response.
        column("version", "string", Field(Name::response_version)),
        column("user_agent", "string", Field(Name::user_agent)),
        column("origin", "string", Unset),
        column("request_body_len", "count", Field(Name::request_body_bytes)),
        column(
            "response_body_len",
            "count",
            Field(Name::response_body_bytes),
        ),
        column("status_code", "count", Field(Name::status)),
        column("status_msg", "string", Field(Name::reason)),
        column("resp_mime_types", "vector[string]", Made(mime_types)),
    ],
};

static DNS: Log = Log {
    path: "dns",
    front: COMMON,
    columns: &[
        column("proto", "enum", Field(Name::proto)),
        column("trans_id", "count", Field(Name::trans_id)),
        column("rtt", "interval", Field(Name::latency)),
        column("query", "string", Field(Name::query)),
        column("qclass_name", "string", Made(dns_class)),
        column("qtype_name", "string", Field(Name::qtype)),
        column("rcode_name", "string", Field(Name::rcode)),
        column("AA", "bool", Field(Name::aa)),
        column("TC", "bool", Field(Name::tc)),
        column("RD", "bool", Field(Name::rd)),
        column("RA", "bool", Field(Name::ra)),
        column("answers", "vector[string]", Field(Name::answers)),
        column("TTLs", "vector[interval]", Field(Name::ttls)),
        column("rejected", "bool", Made(rejected)),
    ],
};

static SSL: Log = Log {
    path: "ssl",
    front: COMMON,
    columns: &[
        column(
            "version",
            "string",
            Made(|values| Cell::of(values.text(Name::version), Cell::TlsVersion)),
        ),
        column("cipher", "string", Field(Name::cipher)),
        column("curve", "string", Field(Name::curve)),
        column("server_name", "string", Field(Name::server_name)),
        column("resumed", "bool", Field(Name::resumed)),
        column("last_alert", "string", Field(Name::last_alert)),
        column("next_protocol", "string", Field(Name::next_protocol)),
        column("established", "bool", Field(Name::established)),
        column("ssl_history", "string", Field(Name::history)),
        column("cert_chain_fps", "vector[string]", Field(Name::chain)),
        column(
            "client_cert_chain_fps",
            "vector[string]",
            Field(Name::client_chain),
        ),
        column("subject", "string", Field(Name::subject)),
        column("issuer", "string", Field(Name::issuer)),
        column("ja3", "string", Field(Name::ja3)),
        column("ja3s", "string", Field(Name::ja3s)),
        column("ja4", "string", Field(Name::ja4)),
    ],
};

static FILES: Log = Log {
    path: "files",
    front: COMMON,
    columns: &[
        column("fuid", "string", Made(file_id)),
        column(
            "source",
            "string",
            Made(|values| Cell::of(values.text(Name::source), Cell::Upper)),
        ),
        column("depth", "count", Made(|_| Cell::Number(0))),
        column("analyzers", "set[string]", Made(file_analyzers)),
        column("mime_type", "string", Field(Name::mime_type)),
        column("filename", "string", Field(Name::file_name)),
        column("duration", "interval", Field(Name::duration)),
        column("local_orig", "bool", Unset),
        column(
            "is_orig",
            "bool",
            Made(|values| Cell::Bool(values.text(Name::sent_by) == Some("src"))),
        ),
        column("seen_bytes", "count", Field(Name::bytes)),
        column("total_bytes", "count", Field(Name::total_bytes)),
        column("missing_bytes", "count", Field(Name::missing_bytes)),
        column("overflow_bytes", "count", Made(|_| Cell::Number(0))),
        column("timedout", "bool", Made(|_| Cell::Bool(false))),
        column("parent_fuid", "string", Unset),
        column("md5", "string", Field(Name::md5)),
        column("sha1", "string", Field(Name::sha1)),
        column("sha256", "string", Field(Name::sha256)),
        column("extracted", "string", Field(Name::extracted)),
        column("extracted_cutoff", "bool", Made(file_cutoff)),
        column("extracted_size", "count", Field(Name::extracted_bytes)),
    ],
};

static WEIRD: Log = Log {
    path: "weird",
    front: COMMON,
    columns: &[
        column(
            "name",
            "string",
            Made(|values| Cell::of(names::zeek(values), Cell::Text)),
        ),
        column("addl", "string", Field(Name::detail)),
        column("notice", "bool", Made(|_| Cell::Bool(false))),
        column("peer", "string", Made(|_| Cell::Text("flowgauge"))),
        column(
            "source",
            "string",
            Made(|values| {
                let within = values.text(Name::protocol).or(values.text(Name::proto));
                Cell::of(within, Cell::Upper)
            }),
        ),
    ],
};

/// How a worker is getting on, as far as Zeek has names for it.
static STATS: Log = Log {
    path: "stats",
    front: &[column("ts", "time", Made(begin))],
    columns: &[
        column(
            "peer",
            "string",
            Made(|values| {
                Cell::of(values.number(Name::worker), |it| {
                    Cell::Numbered("worker-", it)
                })
            }),
        ),
        column("mem", "count", Made(megabytes)),
        column("pkts_proc", "count", Field(Name::new_packets)),
        column("bytes_recv", "count", Field(Name::new_bytes)),
        column("pkts_dropped", "count", Field(Name::new_memory_dropped)),
        column("reassem_tcp_size", "count", Field(Name::segment_memory)),
    ],
};

/// The log of a kind of record with names of its own.
pub(super) fn log(kind: &str) -> Option<&'static Log> {
    match kind {
        "flow" => Some(&CONN),
        "http" => Some(&HTTP),
        "dns" => Some(&DNS),
        "tls" => Some(&SSL),
        "file" => Some(&FILES),
        "anomaly" => Some(&WEIRD),
        "statistics" => Some(&STATS),
        _ => None,
    }
}

/// Memory of flows and segments.
fn megabytes<'a>(values: &Values<'a>) -> Cell<'a> {
    let of = |name| values.number(name).unwrap_or(0);
    Cell::Number((of(Name::flow_memory) + of(Name::segment_memory)) >> 20)
}

fn begin<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.begin(), Cell::Seconds)
}

/// As Zeek's: `C`, and the flow's number to the base 62.
fn uid<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.number(Name::flow_id), |id| Cell::Id(b'C', id))
}

/// As Zeek's: `F`, and a number that the flow, the direction and the place in it give.
fn file_id<'a>(values: &Values<'a>) -> Cell<'a> {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = values.number(Name::depth).unwrap_or(0) * 2;
    let side = u64::from(values.text(Name::sent_by) == Some("src"));
    let flow = values.number(Name::flow_id).unwrap_or(0);
    Cell::Id(b'F', (flow ^ (place + side)).wrapping_mul(ODD))
}

fn file_analyzers<'a>(values: &Values<'a>) -> Cell<'a> {
    let all = [
        ("EXTRACT", Name::extracted),
        ("MD5", Name::md5),
        ("SHA1", Name::sha1),
        ("SHA256", Name::sha256),
    ];
    let names = all.map(|(name, field)| values.text(field).map(|_| name));
    match names.iter().any(Option::is_some) {
        true => Cell::Some(names),
        false => Cell::Unset,
    }
}

fn file_cutoff<'a>(values: &Values<'a>) -> Cell<'a> {
    let seen = values
        .number(Name::bytes)
        .zip(values.number(Name::missing_bytes));
    match (values.number(Name::extracted_bytes), seen) {
        (Some(written), Some((seen, missing))) => Cell::Bool(written < seen + missing),
        _ => Cell::Unset,
    }
}

fn service<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.spoken() {
        Some("tls") => Cell::Text("ssl"),
        name => Cell::of(name, Cell::Text),
    }
}

/// Of more than a packet, as Zeek has it.
fn duration<'a>(values: &Values<'a>) -> Cell<'a> {
    let packets = |name| values.number(name).unwrap_or(0);
    match values.span(Name::duration) {
        Some(span) if packets(Name::src_packets) + packets(Name::dst_packets) > 1 => {
            Cell::Seconds(span)
        }
        _ => Cell::Unset,
    }
}

fn mime_types<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.text(Name::content_type), |text| {
        Cell::One(text.split(';').next().unwrap_or(text).trim())
    })
}

fn dns_class<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.text(Name::qclass) {
        Some("IN") => Cell::Text("C_INTERNET"),
        name => Cell::of(name, Cell::Text),
    }
}

fn rejected<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_without = values.texts(Name::answers).is_none();
    let rcode = values.text(Name::rcode);
    Cell::Bool(is_without && rcode.is_some_and(|rcode| rcode != "NOERROR"))
}

impl Column {
    #[inline]
    fn value<'a>(&self, values: &Values<'a>) -> Cell<'a> {
        let name = match self.origin {
            Unset => return Cell::Unset,
            Made(make) => return make(values),
            Field(name) => name,
        };
        match self.as_is {
            AsIs::Address => Cell::of(values.address(name), |(address, version)| {
                Cell::Address(address, version)
            }),
            AsIs::Number => Cell::of(values.number(name), Cell::Number),
            AsIs::Bool => Cell::of(values.yes(name), Cell::Bool),
            AsIs::Span => Cell::of(values.span(name), Cell::Seconds),
            AsIs::Texts => Cell::of(values.texts(name), Cell::Texts),
            AsIs::Spans => match values.numbers(name) {
                [] => Cell::Unset,
                spans => Cell::Spans(spans),
            },
            AsIs::Text => Cell::of(values.text(name), Cell::Text),
        }
    }
}

impl Log {
    fn all(&self) -> impl Iterator<Item = &'static Column> {
        self.front.iter().chain(self.columns)
    }

    /// The lines in front.
    pub(super) fn header(&self, out: &mut Vec<u8>) {
        let columns = |of: fn(&Column) -> &'static str| -> String {
            self.all()
                .map(|column| format!("\t{}", of(column)))
                .collect()
        };
        let text = format!(
            "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n#path\t{}\n\
             #fields{}\n#types{}\n",
            self.path,
            columns(|column| column.name),
            columns(|column| column.kind),
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// A record's line, values with tabs between.
    pub(super) fn line(&self, values: &Values<'_>, time: &mut TimeWriter, out: &mut Vec<u8>) {
        for (n, column) in self.all().enumerate() {
            if n > 0 {
                out.push(b'\t');
            }
            column.value(values).between_tabs(time, out);
        }
        out.push(b'\n');
    }

    /// The same as an object: what is not known is left out.
    pub(super) fn object(
        &self,
        values: &Values<'_>,
        with_path: bool,
        time: &mut TimeWriter,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if with_path {
            out.extend_from_slice(b",\"_path\":\"");
            out.extend_from_slice(self.path.as_bytes());
            out.push(b'"');
        }
        for column in self.all() {
            let value = column.value(values);
            if !value.is_unset() {
                out.extend_from_slice(column.key.with_comma());
                value.json(time, out);
            }
        }
        match out.get_mut(start) {
            // Instead of the first comma.
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_record::counters::CountersRow;
    use flowgauge_record::event::EventSchemas;

    use super::super::Looking;
    use super::*;

    /// As Zeek has it: what was dropped since the last of these lines.
    #[test]
    fn dropped_packets_are_those_of_the_interval() {
        let row = CountersRow {
            memory_dropped: 5,
            new_memory_dropped: 2,
            ..CountersRow::default()
        };
        let mut schemas = EventSchemas::default();
        let event = schemas.event("statistics", None, &row);
        let mut looking = Looking::default();
        let values = looking.at(&event).unwrap();
        let mut line = Vec::new();
        STATS.object(&values, false, &mut TimeWriter::default(), &mut line);
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["pkts_dropped"], 2);
    }
}
