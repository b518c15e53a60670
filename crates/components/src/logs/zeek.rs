//! Logs as Zeek has them: which columns each has, and their values.

use flowgauge_wire::Nanos;
use serde_json::Value as Json;

use super::values::{Values, seconds};

/// A log: its name, and its columns behind those that all have.
pub(super) struct Log {
    pub(super) path: &'static str,
    columns: &'static [Column],
}

/// A column: name, type, and where its value comes from.
struct Column(&'static str, &'static str, Origin);

#[derive(Clone, Copy)]
enum Origin {
    /// This field, as the column's type has it.
    Field(&'static str),
    /// What is made of the record.
    Made(fn(&Values) -> Json),
    /// Not known here.
    Unset,
}
use Origin::{Field, Made, Unset};

/// Columns in front of all logs of connections.
const COMMON: &[Column] = &[
    Column("ts", "time", Made(begin)),
    Column("uid", "string", Made(uid)),
    Column("id.orig_h", "addr", Field("src_ip")),
    Column("id.orig_p", "port", Field("src_port")),
    Column("id.resp_h", "addr", Field("dst_ip")),
    Column("id.resp_p", "port", Field("dst_port")),
];

static CONN: Log = Log {
    path: "conn",
    columns: &[
        Column("proto", "enum", Field("proto")),
        Column("service", "string", Made(service)),
        Column("duration", "interval", Made(duration)),
        Column("orig_bytes", "count", Field("src_payload_bytes")),
        Column("resp_bytes", "count", Field("dst_payload_bytes")),
        Column("conn_state", "string", Field("state")),
        Column("local_orig", "bool", Unset),
        Column("local_resp", "bool", Unset),
        Column("missed_bytes", "count", Unset),
        Column("history", "string", Field("history")),
        Column("orig_pkts", "count", Field("src_packets")),
        Column("orig_ip_bytes", "count", Field("src_ip_bytes")),
        Column("resp_pkts", "count", Field("dst_packets")),
        Column("resp_ip_bytes", "count", Field("dst_ip_bytes")),
        Column("tunnel_parents", "set[string]", Unset),
        Column("community_id", "string", Field("community_id")),
    ],
};

static HTTP: Log = Log {
    path: "http",
    columns: &[
        Column("trans_depth", "count", Field("depth")),
        Column("method", "string", Field("method")),
        Column("host", "string", Field("host")),
        Column("uri", "string", Field("uri")),
        Column("referrer", "string", Field("referrer")),
        // That of the response.
        Column("version", "string", Field("response_version")),
        Column("user_agent", "string", Field("user_agent")),
        Column("origin", "string", Unset),
        Column("request_body_len", "count", Field("request_body_bytes")),
        Column("response_body_len", "count", Field("response_body_bytes")),
        Column("status_code", "count", Field("status")),
        Column("status_msg", "string", Field("reason")),
        Column("resp_mime_types", "vector[string]", Made(mime_types)),
    ],
};

static DNS: Log = Log {
    path: "dns",
    columns: &[
        Column("proto", "enum", Field("proto")),
        Column("trans_id", "count", Field("trans_id")),
        Column("rtt", "interval", Field("latency")),
        Column("query", "string", Field("query")),
        Column(
            "qclass_name",
            "string",
            Made(|values| dns_class(values, "qclass")),
        ),
        Column("qtype_name", "string", Field("qtype")),
        Column("rcode_name", "string", Field("rcode")),
        Column("AA", "bool", Field("aa")),
        Column("TC", "bool", Field("tc")),
        Column("RD", "bool", Field("rd")),
        Column("RA", "bool", Field("ra")),
        Column("answers", "vector[string]", Field("answers")),
        Column("TTLs", "vector[interval]", Field("ttls")),
        Column("rejected", "bool", Made(rejected)),
    ],
};

static SSL: Log = Log {
    path: "ssl",
    columns: &[
        Column("version", "string", Made(tls_version)),
        Column("cipher", "string", Field("cipher")),
        Column("curve", "string", Field("curve")),
        Column("server_name", "string", Field("server_name")),
        Column("resumed", "bool", Field("resumed")),
        Column("last_alert", "string", Field("last_alert")),
        Column("next_protocol", "string", Field("next_protocol")),
        Column("established", "bool", Field("established")),
        Column("ssl_history", "string", Field("history")),
        Column("cert_chain_fps", "vector[string]", Field("chain")),
        Column(
            "client_cert_chain_fps",
            "vector[string]",
            Field("client_chain"),
        ),
        Column("subject", "string", Field("subject")),
        Column("issuer", "string", Field("issuer")),
        Column("ja3", "string", Field("ja3")),
        Column("ja3s", "string", Field("ja3s")),
        Column("ja4", "string", Field("ja4")),
    ],
};

static FILES: Log = Log {
    path: "files",
    columns: &[
        Column("fuid", "string", Made(file_id)),
        Column("source", "string", Made(file_source)),
        Column("depth", "count", Made(|_| 0.into())),
        Column("analyzers", "set[string]", Made(file_analyzers)),
        Column("mime_type", "string", Field("mime_type")),
        Column("filename", "string", Field("file_name")),
        Column("duration", "interval", Field("duration")),
        Column("local_orig", "bool", Unset),
        Column(
            "is_orig",
            "bool",
            Made(|values| (values.text("sent_by") == Some("src")).into()),
        ),
        Column("seen_bytes", "count", Field("bytes")),
        Column("total_bytes", "count", Field("total_bytes")),
        Column("missing_bytes", "count", Field("missing_bytes")),
        Column("overflow_bytes", "count", Made(|_| 0.into())),
        Column("timedout", "bool", Made(|_| false.into())),
        Column("parent_fuid", "string", Unset),
        Column("md5", "string", Field("md5")),
        Column("sha1", "string", Field("sha1")),
        Column("sha256", "string", Field("sha256")),
        Column("extracted", "string", Field("extracted")),
        Column("extracted_cutoff", "bool", Made(file_cutoff)),
        Column("extracted_size", "count", Field("extracted_bytes")),
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
        _ => None,
    }
}

fn begin(values: &Values) -> Json {
    let time = values.time("time").or_else(|| values.time("start"));
    time.map_or(Json::Null, seconds)
}

/// As Zeek's: `C`, and the flow's number to the base 62.
fn uid(values: &Values) -> Json {
    match values.number("flow_id") {
        Some(id) => base_62("C", id),
        None => Json::Null,
    }
}

/// As Zeek's: `F`, and a number that the flow, the direction and the place in it give.
fn file_id(values: &Values) -> Json {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = values.number("depth").unwrap_or(0) * 2;
    let side = u64::from(values.text("sent_by") == Some("src"));
    let flow = values.number("flow_id").unwrap_or(0);
    base_62("F", (flow ^ (place + side)).wrapping_mul(ODD))
}

fn file_source(values: &Values) -> Json {
    let source = values.text("source");
    source.map_or(Json::Null, |it| it.to_ascii_uppercase().into())
}

fn file_analyzers(values: &Values) -> Json {
    let all = [
        ("EXTRACT", "extracted"),
        ("MD5", "md5"),
        ("SHA1", "sha1"),
        ("SHA256", "sha256"),
    ];
    let has = |field: &str| values.text(field).is_some();
    let names = all.iter().filter(|(_, field)| has(field));
    let names: Vec<&str> = names.map(|(name, _)| *name).collect();
    match names.is_empty() {
        true => Json::Null,
        false => names.into(),
    }
}

fn file_cutoff(values: &Values) -> Json {
    let seen = values.number("bytes").zip(values.number("missing_bytes"));
    match (values.number("extracted_bytes"), seen) {
        (Some(written), Some((seen, missing))) => (written < seen + missing).into(),
        _ => Json::Null,
    }
}

/// A letter, and a number to the base 62.
fn base_62(letter: &str, mut id: u64) -> Json {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = String::from(letter);
    for _ in 0..11 {
        text.push(char::from(DIGITS[(id % 62) as usize]));
        id /= 62;
    }
    text.into()
}

fn service(values: &Values) -> Json {
    match values.spoken() {
        Some("tls") => "ssl".into(),
        Some(name) => name.into(),
        None => Json::Null,
    }
}

/// Of more than a packet, as Zeek has it.
fn duration(values: &Values) -> Json {
    let packets =
        values.number("src_packets").unwrap_or(0) + values.number("dst_packets").unwrap_or(0);
    match values.span("duration") {
        Some(span) if packets > 1 => seconds(span),
        _ => Json::Null,
    }
}

fn mime_types(values: &Values) -> Json {
    let text = values.text("content_type");
    let of = |text: &str| text.split(';').next().unwrap_or(text).trim().to_owned();
    text.map_or(Json::Null, |text| Json::from(vec![of(text)]))
}

fn dns_class(values: &Values, field: &str) -> Json {
    match values.text(field) {
        Some("IN") => "C_INTERNET".into(),
        Some(name) => name.into(),
        None => Json::Null,
    }
}

fn rejected(values: &Values) -> Json {
    let is_without = values.texts("answers").is_empty();
    let is_error = values.text("rcode").is_some_and(|rcode| rcode != "NOERROR");
    (is_without && is_error).into()
}

/// `TLS 1.2` as `TLSv12`.
fn tls_version(values: &Values) -> Json {
    match values.text("version") {
        Some(text) => match text.split_once(' ') {
            Some((name, number)) => {
                format!("{name}v{}", number.replace(".0", "0").replace('.', "")).into()
            }
            None => text.into(),
        },
        None => Json::Null,
    }
}

impl Column {
    fn value(&self, values: &Values) -> Json {
        match self.2 {
            Unset => Json::Null,
            Made(make) => make(values),
            Field(name) => self.field(values, name),
        }
    }

    fn field(&self, values: &Values, name: &str) -> Json {
        let numbers = |values: &Values| values.numbers(name).to_vec();
        match self.1 {
            "addr" => values.address(name).map_or(Json::Null, Json::from),
            "count" | "port" => values.number(name).map_or(Json::Null, Json::from),
            "bool" => values.yes(name).map_or(Json::Null, Json::from),
            "interval" => values.span(name).map_or(Json::Null, seconds),
            "vector[string]" => match values.texts(name) {
                [] => Json::Null,
                texts => Json::from(
                    texts
                        .iter()
                        .map(|text| text.to_string())
                        .collect::<Vec<_>>(),
                ),
            },
            "vector[interval]" => match numbers(values) {
                list if list.is_empty() => Json::Null,
                list => {
                    let spans = list
                        .into_iter()
                        .map(|it| seconds(Nanos(u64::from(it) * 1_000_000_000)));
                    Json::from(spans.collect::<Vec<_>>())
                }
            },
            _ => values.text(name).map_or(Json::Null, Json::from),
        }
    }
}

impl Log {
    fn all(&self) -> impl Iterator<Item = &'static Column> {
        COMMON.iter().chain(self.columns)
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
            columns(|column| column.0),
            columns(|column| column.1),
        );
        out.extend_from_slice(text.as_bytes());
    }

    /// A record's line, values with tabs between.
    pub(super) fn line(&self, values: &Values, out: &mut Vec<u8>) {
        for (n, column) in self.all().enumerate() {
            if n > 0 {
                out.push(b'\t');
            }
            let is_span = matches!(column.1, "time" | "interval" | "vector[interval]");
            write(&column.value(values), is_span, out);
        }
        out.push(b'\n');
    }

    /// The same as an object: what is not known is left out.
    pub(super) fn object(&self, values: &Values, with_path: bool) -> Json {
        let mut object = serde_json::Map::new();
        if with_path {
            object.insert("_path".to_owned(), self.path.into());
        }
        for column in self.all() {
            let value = column.value(values);
            if !value.is_null() {
                object.insert(column.0.to_owned(), value);
            }
        }
        Json::Object(object)
    }
}

/// A value between tabs.
fn write(value: &Json, is_span: bool, out: &mut Vec<u8>) {
    match value {
        Json::Null => out.push(b'-'),
        Json::Bool(is) => out.push(if *is { b'T' } else { b'F' }),
        Json::Number(number) => {
            let text = match number.as_f64() {
                Some(number) if is_span => format!("{number:.6}"),
                _ => number.to_string(),
            };
            out.extend_from_slice(text.as_bytes());
        }
        Json::String(text) if text.is_empty() => out.extend_from_slice(b"(empty)"),
        Json::String(text) if text == "-" => out.extend_from_slice(b"\\x2d"),
        Json::String(text) => escape(text, false, out),
        Json::Array(list) => {
            for (n, one) in list.iter().enumerate() {
                if n > 0 {
                    out.push(b',');
                }
                match one {
                    Json::String(text) if !text.is_empty() => escape(text, true, out),
                    one => write(one, is_span, out),
                }
            }
        }
        Json::Object(_) => {}
    }
}

/// Bytes that end a line or a column, and those that are no printable ASCII, as `\x09`.
fn escape(text: &str, in_list: bool, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b',' if in_list => out.extend_from_slice(b"\\x2c"),
            b' '..=b'~' => out.push(byte),
            byte if byte >= 0x80 => out.push(byte),
            byte => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}
