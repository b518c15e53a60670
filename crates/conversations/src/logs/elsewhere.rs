//! What other tools call the fields of our records.

use super::eve::{self, Member, Origin};
use super::zeek;

/// Fields whose columns and members are made of them: here, in Zeek's logs, in EVE.
const MADE: [(&str, &str, &str); 13] = [
    ("time", "ts", "timestamp"),
    ("start", "ts", ""),
    ("flow_id", "uid", ""),
    ("src_port", "id.orig_p", ""),
    ("dst_ip", "", "dest_ip"),
    ("dst_port", "id.resp_p", "dest_port"),
    ("app_proto", "service", ""),
    ("src_stream_bytes", "orig_bytes", ""),
    ("dst_stream_bytes", "resp_bytes", ""),
    ("latency", "rtt", ""),
    ("status", "status_code", ""),
    ("host", "", "hostname"),
    ("response_body_bytes", "response_body_len", "length"),
];

/// The names of a field of records of this kind in Zeek's logs, as `http.uri`, and in EVE, as `http.url`.
pub fn names_elsewhere(kind: &str, field: &str) -> [Option<String>; 2] {
    let made = MADE.iter().find(|(name, ..)| *name == field);
    let column = zeek::log(kind).and_then(|log| {
        let name = log.column_of(field, made.map_or("", |it| it.1))?;
        Some(format!("{}.{name}", log.path))
    });
    let of_all = || member(eve::COMMON, field, made.map_or("", |it| it.2), "");
    let of_kind = match eve::members_of(kind) {
        [] => None,
        members => member(members, field, "", "").or_else(of_all),
    };
    [column, of_kind]
}

/// The path of the member that a field is, or that is made of it and called like it or as said.
fn member(members: &[Member], field: &str, made: &str, path: &str) -> Option<String> {
    members.iter().find_map(|Member(key, origin)| {
        let name = key.name();
        match origin {
            Origin::Object(within) => member(within, field, made, &format!("{path}{name}.")),
            Origin::Text(from)
            | Origin::Number(from)
            | Origin::Flag(from)
            | Origin::Date(from)
            | Origin::Texts(from) => (from.as_str() == field).then(|| format!("{path}{name}")),
            Origin::Made(_) | Origin::Written(_) => {
                (name == field || name == made).then(|| format!("{path}{name}"))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_names_that_logs_are_written_with() {
        let names = |kind, field| names_elsewhere(kind, field).map(|name| name.unwrap_or_default());
        for (kind, field, zeek, eve) in [
            (
                "flow",
                "src_packets",
                "conn.orig_pkts",
                "flow.pkts_toserver",
            ),
            ("flow", "dst_ip", "conn.id.resp_h", "dest_ip"),
            ("flow", "handshake_rtt", "", ""),
            ("http", "method", "http.method", "http.http_method"),
            ("tls", "server_name", "ssl.server_name", "tls.sni"),
            ("dns", "trans_id", "dns.trans_id", "dns.id"),
            ("icp", "src_ip", "", ""),
            ("packet", "src_ip", "", ""),
        ] {
            assert_eq!(
                names(kind, field),
                [zeek, eve].map(str::to_owned),
                "{kind} {field}"
            );
        }
    }
}
