//! Lines as Suricata's EVE log has them.

use flowgauge_record::text::TimeWriter;
use flowgauge_wire::Nanos;
use serde_json::{Map, Value as Json, json};

use super::values::Values;

/// An object under construction: what is not there is left out.
#[derive(Default)]
struct Object(Map<String, Json>);

impl Object {
    fn put(&mut self, name: &str, value: Option<impl Into<Json>>) -> &mut Object {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
        self
    }

    /// One that is only there if it is true.
    fn flag(&mut self, name: &str, value: Option<bool>) -> &mut Object {
        self.put(name, value.filter(|is| *is))
    }
}

/// The line of a record.
pub(super) fn line(values: &Values, time: &mut TimeWriter) -> Json {
    let kind = values.kind();
    // As Suricata calls it.
    let name = if kind == "file" { "fileinfo" } else { kind };
    // Of a file that is who sent it.
    let (source, destination) = match values.text("sent_by") {
        Some("dst") => ("dst", "src"),
        _ => ("src", "dst"),
    };
    let mut line = Object::default();
    let begin = values.time("time").or_else(|| values.time("start"));
    let shown = match kind {
        // When it ended.
        "flow" => values.time("end"),
        _ => begin,
    };
    line.put("timestamp", shown.map(|at| timestamp(at, time)))
        // Numbers above 2^53 are not the same in every reader.
        .put("flow_id", values.number("flow_id").map(|id| id >> 11))
        .put("event_type", Some(name))
        .put("src_ip", values.address(&format!("{source}_ip")))
        .put("src_port", values.number(&format!("{source}_port")))
        .put("dest_ip", values.address(&format!("{destination}_ip")))
        .put("dest_port", values.number(&format!("{destination}_port")))
        .put("proto", values.text("proto").map(protocol))
        .put("app_proto", values.spoken())
        .put("community_id", values.text("community_id"));
    let object = match kind {
        "flow" => flow(values, time),
        "http" => http(values),
        "dns" => dns(values),
        "tls" | "quic" => tls(values, time),
        "file" => {
            line.put(
                "app_proto",
                values.text("source").map(|it| it.replace('_', "-")),
            );
            if values.text("source") == Some("http") {
                line.put("http", Some(http(values)));
            }
            file(values)
        }
        _ => others(values),
    };
    line.0.insert(name.to_owned(), object);
    Json::Object(line.0)
}

fn protocol(name: &str) -> String {
    match name {
        "quic" => "UDP".to_owned(),
        name => name.to_ascii_uppercase(),
    }
}

/// As `2026-11-22T07:44:36.123456+0000`.
fn timestamp(at: Nanos, writer: &mut TimeWriter) -> String {
    let text = writer.format(at);
    let text = core::str::from_utf8(&text).unwrap_or_default();
    format!("{}+0000", text.get(..26).unwrap_or_default())
}

fn flow(values: &Values, time: &mut TimeWriter) -> Json {
    let mut object = Object::default();
    let start = values.time("start");
    let end = values.time("end");
    object
        .put("pkts_toserver", values.number("src_packets"))
        .put("pkts_toclient", values.number("dst_packets"))
        .put("bytes_toserver", values.number("src_bytes"))
        .put("bytes_toclient", values.number("dst_bytes"))
        .put("start", start.map(|at| timestamp(at, time)))
        .put("end", end.map(|at| timestamp(at, time)))
        .put(
            "age",
            start
                .zip(end)
                .map(|(start, end)| end.0.saturating_sub(start.0) / 1_000_000_000),
        )
        .put(
            "state",
            Some(match values.text("state") {
                Some("S0" | "S1" | "OTH" | "SH") => "new",
                Some("SF" | "RSTO" | "RSTR" | "REJ" | "RSTOS0" | "RSTRH" | "S2" | "S3") => "closed",
                _ => "established",
            }),
        )
        .put(
            "reason",
            Some(match values.text("end_reason") {
                Some("end_of_input") => "shutdown",
                Some("evicted") => "forced",
                _ => "timeout",
            }),
        )
        .put("alerted", Some(false));
    Json::Object(object.0)
}

fn http(values: &Values) -> Json {
    let mut object = Object::default();
    // The port of a host has a field of its own.
    let host = values.text("host").map(|host| match host.rsplit_once(':') {
        Some((name, port)) => match port.parse::<u16>() {
            Ok(port) => (name, Some(port)),
            Err(_) => (host, None),
        },
        None => (host, None),
    });
    object
        .put("hostname", host.map(|(name, _)| name))
        .put("http_port", host.and_then(|(_, port)| port))
        .put("url", values.text("uri"))
        .put("http_user_agent", values.text("user_agent"))
        .put(
            "http_content_type",
            values
                .text("content_type")
                .map(|text| text.split(';').next().unwrap_or(text).trim()),
        )
        .put("http_refer", values.text("referrer"))
        .put("http_method", values.text("method"))
        .put(
            "protocol",
            values
                .text("version")
                .map(|version| format!("HTTP/{version}")),
        )
        .put("status", values.number("status"))
        .put(
            "length",
            values
                .number("response_body_bytes")
                .or(values.number("bytes")),
        );
    Json::Object(object.0)
}

fn file(values: &Values) -> Json {
    let mut object = Object::default();
    let uri = values
        .text("uri")
        .map(|uri| uri.split('?').next().unwrap_or(uri));
    let missing = values.number("missing_bytes").unwrap_or(0);
    let seen = values.number("bytes");
    let is_holed = missing > 0;
    let written = values.number("extracted_bytes");
    let is_cut = written.is_some() && written < seen.map(|seen| seen + missing);
    object
        .put("filename", values.text("file_name").or(uri))
        .put("magic", values.text("mime_type"))
        .put("gaps", Some(is_holed))
        .put(
            "state",
            Some(match values.yes("whole") {
                _ if is_cut => "TRUNCATED",
                Some(true) => "CLOSED",
                _ if is_holed => "UNKNOWN",
                _ => "TRUNCATED",
            }),
        )
        .put("md5", values.text("md5"))
        .put("sha1", values.text("sha1"))
        .put("sha256", values.text("sha256"))
        .put("stored", Some(written.is_some()))
        .put("file_name_stored", values.text("extracted"))
        .put("size", seen.map(|seen| seen + missing))
        .put(
            "tx_id",
            values.number("depth").map(|depth| depth.saturating_sub(1)),
        );
    Json::Object(object.0)
}

fn dns(values: &Values) -> Json {
    let mut object = Object::default();
    let has_reply = values.text("state") != Some("no_reply");
    object
        .put("version", Some(3))
        .put("type", Some(if has_reply { "response" } else { "request" }))
        .put("id", values.number("trans_id"))
        .flag("qr", Some(has_reply))
        .flag("aa", values.yes("aa"))
        .flag("tc", values.yes("tc"))
        .flag("rd", values.yes("rd"))
        .flag("ra", values.yes("ra"))
        .flag("z", values.yes("z"))
        .put("rcode", values.text("rcode"));
    if let Some(name) = values.text("query") {
        let query = json!({ "rrname": name, "rrtype": values.text("qtype") });
        object.put("queries", Some(vec![query]));
    }
    let types = values.texts("answer_types");
    let ttls = values.numbers("ttls");
    let answers = values.texts("answers").iter().enumerate();
    let answers: Vec<Json> = answers
        .map(|(n, answer)| {
            let mut object = Object::default();
            object
                .put("rrname", values.text("query"))
                .put("rrtype", types.get(n).map(|text| &**text))
                .put("ttl", ttls.get(n).copied())
                .put("rdata", Some(&**answer));
            Json::Object(object.0)
        })
        .collect();
    if !answers.is_empty() {
        object.put("answers", Some(answers));
    }
    Json::Object(object.0)
}

fn tls(values: &Values, time: &mut TimeWriter) -> Json {
    let mut object = Object::default();
    let hash = |name: &str| values.text(name).map(|hash| json!({ "hash": hash }));
    let mut shown = |name: &str| {
        let at = values.time(name)?;
        let text = writer_text(at, time);
        Some(text)
    };
    let (not_before, not_after) = (shown("not_before"), shown("not_after"));
    object
        .put("sni", values.text("server_name"))
        .put("version", values.text("version"))
        .put("subject", values.text("subject"))
        .put("issuerdn", values.text("issuer"))
        .put("serial", values.text("serial"))
        .put("fingerprint", values.text("sha1").map(colons))
        .put("notbefore", not_before)
        .put("notafter", not_after)
        .put("ja3", hash("ja3"))
        .put("ja3s", hash("ja3s"))
        .put("ja4", values.text("ja4"))
        .flag("session_resumed", values.yes("resumed"));
    let alpns = values.texts("client_protocols");
    if !alpns.is_empty() {
        let alpns: Vec<&str> = alpns.iter().map(|text| &**text).collect();
        object.put("client_alpns", Some(alpns));
    }
    if let Some(alpn) = values.text("next_protocol") {
        object.put("server_alpns", Some(vec![alpn]));
    }
    Json::Object(object.0)
}

/// As `2026-11-22T07:44:36`.
fn writer_text(at: Nanos, time: &mut TimeWriter) -> String {
    let text = time.format(at);
    let text = core::str::from_utf8(&text).unwrap_or_default();
    text.get(..19).unwrap_or_default().to_owned()
}

/// `aabb` as `aa:bb`.
fn colons(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3 / 2);
    for (n, digit) in text.chars().enumerate() {
        if n > 0 && n % 2 == 0 {
            out.push(':');
        }
        out.push(digit);
    }
    out
}

/// Of protocols without names of their own here: the record's.
fn others(values: &Values) -> Json {
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
    let mut object = Map::new();
    for (name, value) in values.to_json() {
        if !COMMON.contains(&name.as_str()) && !value.is_null() {
            object.insert(name, value);
        }
    }
    Json::Object(object)
}
