//! The logs' columns, in Zeek's order.

use super::super::names::ntp_mode;
use super::made::*;
use super::{Cell, Column, Field, Log, Made, Name, Unset, Values, column};

/// The first log in which a record of a kind has a line.
pub(in super::super) fn log(kind: &str) -> Option<&'static Log> {
    Some(match kind {
        "flow" => &CONN,
        "http" => &HTTP,
        "dns" => &DNS,
        "tls" => &SSL,
        "quic" => &QUIC,
        "x509" => &X509,
        "file" => &FILES,
        "ftp" => &FTP,
        "smtp" => &SMTP,
        "ssh" => &SSH,
        "ntp" => &NTP,
        "dhcp" => &DHCP,
        "snmp" => &SNMP,
        "anomaly" => &WEIRD,
        "statistics" => &STATS,
        _ => return None,
    })
}

/// Columns: name, Zeek's type, and what is in it (a field of the record, something made of it, or nothing).
macro_rules! columns {
    [$($name:literal $kind:literal: $origin:ident $(($($make:tt)+))?;)*] => {
        &[$(column($name, $kind, columns!(@$origin $($($make)+)?)),)*]
    };
    (@unset) => { Unset };
    (@made $($make:tt)+) => { Made($($make)+) };
    (@$field:ident) => { Field(Name::$field) };
}

/// Columns in front of most logs.
const COMMON: &[Column] = columns![
    "ts" "time": made(begin);
    "uid" "string": made(uid);
    "id.orig_h" "addr": src_ip;
    "id.orig_p" "port": src_port;
    "id.resp_h" "addr": dst_ip;
    "id.resp_p" "port": dst_port;
];

/// A log of which all records of a kind are.
const fn all(path: &'static str, front: &'static [Column], columns: &'static [Column]) -> Log {
    Log {
        path,
        front,
        columns,
        has: |_| true,
        next: None,
    }
}

static CONN: Log = all(
    "conn",
    columns![
        "ts" "time": made(begin);
        "uid" "string": made(uid);
        "id.orig_h" "addr": src_ip;
        "id.orig_p" "port": made(|it| port(it, Name::src_port));
        "id.resp_h" "addr": dst_ip;
        "id.resp_p" "port": made(|it| port(it, Name::dst_port));
    ],
    columns![
        "proto" "enum": made(transport);
        "service" "string": made(service);
        "duration" "interval": made(duration);
        "orig_bytes" "count": made(|it| carried(it, Name::src_stream_bytes));
        "resp_bytes" "count": made(|it| carried(it, Name::dst_stream_bytes));
        "conn_state" "string": state;
        "local_orig" "bool": made(|it| local(it, Name::src_ip));
        "local_resp" "bool": made(|it| local(it, Name::dst_ip));
        "missed_bytes" "count": missing_bytes;
        "history" "string": made(history);
        "orig_pkts" "count": src_packets;
        "orig_ip_bytes" "count": src_ip_bytes;
        "resp_pkts" "count": dst_packets;
        "resp_ip_bytes" "count": dst_ip_bytes;
        "tunnel_parents" "set[string]": unset;
        "ip_proto" "count": made(protocol_number);
        // As the policy script community-id-logging has it.
        "community_id" "string": community_id;
    ],
);

/// Of connections from their beginning: Zeek reads no others.
static HTTP: Log = Log {
    has: |values| values.yes(Name::partial) != Some(true),
    ..all(
        "http",
        COMMON,
        columns![
            "trans_depth" "count": depth;
            "method" "string": method;
            "host" "string": host;
            "uri" "string": made(uri);
            "referrer" "string": referrer;
            // That of the response.
            "version" "string": response_version;
            "user_agent" "string": user_agent;
            "origin" "string": origin;
            "request_body_len" "count": request_body_bytes;
            "response_body_len" "count": made(response_length);
            "status_code" "count": made(status);
            "status_msg" "string": made(reason);
            "info_code" "count": unset;
            "info_msg" "string": unset;
            "tags" "set[enum]": made(|_| Cell::Empty);
            "username" "string": unset;
            "password" "string": unset;
            "proxied" "set[string]": unset;
            "orig_fuids" "vector[string]": made(|it| files(it, Name::request_files));
            "orig_filenames" "vector[string]": request_file_names;
            "orig_mime_types" "vector[string]": made(|it| {
                types(it, Name::request_part_types, Name::request_mime_type, Name::request_body_bytes)
            });
            "resp_fuids" "vector[string]": made(|it| files(it, Name::response_files));
            "resp_filenames" "vector[string]": response_file_names;
            "resp_mime_types" "vector[string]": made(|it| {
                types(it, Name::response_part_types, Name::response_mime_type, Name::response_body_bytes)
            });
        ],
    )
};

static DNS: Log = Log {
    // Zeek does not look for it within HTTP/2.
    has: |values| values.text(Name::service) != Some("doh"),
    ..all(
        "dns",
        COMMON,
        columns![
            "proto" "enum": proto;
            "trans_id" "count": trans_id;
            "rtt" "interval": made(|it| answered(it, |it| it.seconds(Name::latency)));
            "query" "string": made(query);
            "qclass" "count": made(|it| asked(it, |it| number(it, Name::qclass, dns_class)));
            "qclass_name" "string": made(|it| asked(it, dns_class_name));
            "qtype" "count": made(|it| asked(it, |it| number(it, Name::qtype, dns_type)));
            "qtype_name" "string": made(|it| asked(it, dns_type_name));
            "rcode" "count": made(|it| number(it, Name::rcode, dns_code));
            "rcode_name" "string": rcode;
            "AA" "bool": made(|it| flag_of_answer(it, Name::aa));
            // Of the query.
            "TC" "bool": made(|_| Cell::Bool(false));
            "RD" "bool": made(|it| flag_of_query(it, Name::rd));
            "RA" "bool": made(|it| flag_of_answer(it, Name::ra));
            "Z" "count": made(reserved);
            "answers" "vector[string]": made(answers);
            "TTLs" "vector[interval]": made(ttls);
            "rejected" "bool": made(rejected);
            "opcode" "count": made(dns_opcode);
            "opcode_name" "string": made(dns_opcode_name);
        ],
    )
};

static SSL: Log = all("ssl", COMMON, HANDSHAKE);
static HANDSHAKE: &[Column] = columns![
    "version" "string": made(tls_version);
    "cipher" "string": cipher;
    "curve" "string": curve;
    "server_name" "string": server_name;
    "resumed" "bool": made(|it| yes(it, Name::resumed));
    "last_alert" "string": last_alert;
    "next_protocol" "string": next_protocol;
    "established" "bool": made(|it| yes(it, Name::established));
    "ssl_history" "string": made(handshake_history);
    "cert_chain_fps" "vector[string]": made(|it| chain(it, Name::chain, Name::client_chain));
    "client_cert_chain_fps" "vector[string]": made(|it| chain(it, Name::client_chain, Name::chain));
    "sni_matches_cert" "bool": made(name_matches);
    // As policy scripts and packages have them.
    "subject" "string": made(|it| distinguished(it, Name::subject));
    "issuer" "string": made(|it| distinguished(it, Name::issuer));
    "client_subject" "string": made(|it| distinguished(it, Name::client_subject));
    "ja3" "string": ja3;
    "ja3s" "string": ja3s;
    "ja4" "string": ja4;
];

/// The handshake within QUIC, where there is one.
static SSL_OF_QUIC: Log = Log {
    has: |values| values.text(Name::ja4).is_some() || values.text(Name::tls_version).is_some(),
    ..all("ssl", COMMON, HANDSHAKE)
};

static QUIC: Log = Log {
    next: Some(&SSL_OF_QUIC),
    ..all(
        "quic",
        COMMON,
        columns![
            "version" "string": made(quic_version);
            "client_initial_dcid" "string": client_initial_dcid;
            "client_scid" "string": client_scid;
            "server_scid" "string": server_scid;
            "server_name" "string": server_name;
            "client_protocol" "string": client_protocol;
            "history" "string": unset;
        ],
    )
};

static X509: Log = all(
    "x509",
    columns!["ts" "time": made(begin);],
    columns![
        "fingerprint" "string": sha256;
        "certificate.version" "count": version;
        "certificate.serial" "string": made(serial);
        "certificate.subject" "string": made(|it| distinguished(it, Name::subject));
        "certificate.issuer" "string": made(|it| distinguished(it, Name::issuer));
        "certificate.not_valid_before" "time": not_before;
        "certificate.not_valid_after" "time": not_after;
        "certificate.key_alg" "string": key_alg;
        "certificate.sig_alg" "string": sig_alg;
        "certificate.key_type" "string": key_type;
        "certificate.key_length" "count": key_length;
        "certificate.exponent" "string": made(|it| Cell::of(it.number(Name::exponent), |it| Cell::Numbered("", it)));
        "certificate.curve" "string": curve;
        "san.dns" "vector[string]": san_dns;
        "san.uri" "vector[string]": san_uri;
        "san.email" "vector[string]": san_email;
        "san.ip" "vector[addr]": san_ip;
        "basic_constraints.ca" "bool": ca;
        "basic_constraints.path_len" "count": path_length;
        "host_cert" "bool": made(|it| is_first_of(it, "server"));
        "client_cert" "bool": made(|it| is_first_of(it, "client"));
    ],
);

static FILES: Log = all(
    "files",
    columns![
        "ts" "time": made(begin);
        "fuid" "string": made(file_id);
        "uid" "string": made(uid);
        "id.orig_h" "addr": src_ip;
        "id.orig_p" "port": src_port;
        "id.resp_h" "addr": dst_ip;
        "id.resp_p" "port": dst_port;
    ],
    columns![
        "source" "string": made(|it| Cell::of(it.text(Name::source), Cell::Upper));
        "depth" "count": made(file_depth);
        "analyzers" "set[string]": made(file_analyzers);
        "mime_type" "string": made(|it| type_name(it, Name::mime_type, Name::bytes));
        "filename" "string": made(|it| {
            let is_named = it.text(Name::name_by) == Some("sender");
            Cell::of(it.text(Name::file_name).filter(|_| is_named), Cell::Text)
        });
        "duration" "interval": duration;
        "local_orig" "bool": made(file_is_local);
        "is_orig" "bool": made(|it| Cell::Bool(it.text(Name::sent_by) == Some("src")));
        "seen_bytes" "count": bytes;
        "total_bytes" "count": total_bytes;
        "missing_bytes" "count": missing_bytes;
        "overflow_bytes" "count": made(|_| Cell::Number(0));
        "timedout" "bool": made(file_timed_out);
        "parent_fuid" "string": made(file_parent);
        "md5" "string": md5;
        "sha1" "string": sha1;
        "sha256" "string": sha256;
        "extracted" "string": extracted;
        "extracted_cutoff" "bool": made(file_cutoff);
        "extracted_size" "count": made(file_extracted);
    ],
);

/// Commands that Zeek logs.
static FTP: Log = Log {
    has: |values| {
        const LOGGED: [&str; 10] = [
            "APPE", "DELE", "RETR", "STOR", "STOU", "ACCT", "PORT", "PASV", "EPRT", "EPSV",
        ];
        values
            .text(Name::command)
            .is_some_and(|command| LOGGED.contains(&command))
    },
    ..all(
        "ftp",
        COMMON,
        columns![
            "user" "string": made(|it| Cell::Text(it.text(Name::user).unwrap_or("<unknown>")));
            "password" "string": password;
            "command" "string": command;
            "arg" "string": made(ftp_argument);
            "mime_type" "string": unset;
            "file_size" "count": file_size;
            "reply_code" "count": reply_code;
            "reply_msg" "string": reply_msg;
            "data_channel.passive" "bool": made(|it| channel(it, |it| yes(it, Name::passive)));
            "data_channel.orig_h" "addr": made(|it| channel(it, channel_origin));
            "data_channel.resp_h" "addr": data_ip;
            "data_channel.resp_p" "port": data_port;
            "fuid" "string": unset;
        ],
    )
};

static SMTP: Log = all(
    "smtp",
    COMMON,
    columns![
        "trans_depth" "count": trans_depth;
        "helo" "string": helo;
        "mailfrom" "string": mailfrom;
        "rcptto" "set[string]": rcptto;
        "date" "string": date;
        "from" "string": from;
        "to" "set[string]": to;
        "cc" "set[string]": cc;
        "reply_to" "string": reply_to;
        "msg_id" "string": msg_id;
        "in_reply_to" "string": in_reply_to;
        "subject" "string": subject;
        "x_originating_ip" "addr": made(originating);
        "first_received" "string": made(|it| hop(it, 0));
        "second_received" "string": made(|it| hop(it, 1));
        "last_reply" "string": last_reply;
        "path" "vector[addr]": made(mail_path);
        "user_agent" "string": user_agent;
        "tls" "bool": made(|it| yes(it, Name::tls));
        "fuids" "vector[string]": made(|it| Cell::Ids(b'F', it.numbers(Name::files)));
    ],
);

static SSH: Log = all(
    "ssh",
    COMMON,
    columns![
        "version" "count": version;
        "auth_success" "bool": auth_success;
        "auth_attempts" "count": made(|it| Cell::Number(it.number(Name::auth_attempts).unwrap_or(0)));
        "direction" "enum": made(direction);
        "client" "string": client;
        "server" "string": server;
        "cipher_alg" "string": cipher_alg;
        "mac_alg" "string": mac_alg;
        "compression_alg" "string": compression_alg;
        "kex_alg" "string": kex_alg;
        "host_key_alg" "string": host_key_alg;
        "host_key_fingerprint" "string": made(key_fingerprint);
    ],
);

static NTP: Log = all(
    "ntp",
    COMMON,
    columns![
        "version" "count": version;
        "mode" "count": made(|it| number(it, Name::mode, ntp_mode));
        "stratum" "count": stratum;
        "poll" "interval": poll;
        "precision" "interval": precision;
        "root_delay" "interval": root_delay;
        "root_disp" "interval": root_disp;
        "ref_id" "string": ref_id;
        "ref_time" "time": made(|it| ntp_clock(it, Name::ref_time));
        "org_time" "time": made(|it| ntp_clock(it, Name::org_time));
        "rec_time" "time": made(|it| ntp_clock(it, Name::rec_time));
        "xmt_time" "time": made(|it| ntp_clock(it, Name::xmt_time));
        "num_exts" "count": made(|_| Cell::Number(0));
    ],
);

/// Its lines are made of several records ([`Leases`](super::Leases)).
pub(in super::super) static DHCP: Log = all(
    "dhcp",
    columns!["ts" "time": unset;],
    columns![
        "uids" "set[string]": unset;
        "client_addr" "addr": unset;
        "server_addr" "addr": unset;
        "mac" "string": unset;
        "host_name" "string": unset;
        "client_fqdn" "string": unset;
        "domain" "string": unset;
        "requested_addr" "addr": unset;
        "assigned_addr" "addr": unset;
        "lease_time" "interval": unset;
        "client_message" "string": unset;
        "server_message" "string": unset;
        "msg_types" "vector[string]": unset;
        "duration" "interval": unset;
    ],
);

static SNMP: Log = all(
    "snmp",
    COMMON,
    columns![
        "duration" "interval": made(|it| Cell::Seconds(it.span(Name::latency).unwrap_or_default()));
        "version" "string": version;
        "community" "string": community;
        "get_requests" "count": made(|it| bindings(it, &["get", "getnext"]));
        "get_bulk_requests" "count": made(|it| bindings(it, &["getbulk"]));
        "get_responses" "count": made(responses);
        "set_requests" "count": made(|it| bindings(it, &["set"]));
        "display_string" "string": unset;
        "up_since" "time": unset;
    ],
);

static WEIRD: Log = all(
    "weird",
    COMMON,
    columns![
        "name" "string": made(|values| Cell::of(super::super::names::zeek(values), Cell::Text));
        "addl" "string": detail;
        "notice" "bool": made(|_| Cell::Bool(false));
        "peer" "string": made(|_| Cell::Text("flowgauge"));
        "source" "string": made(|values| {
            let within = values.text(Name::protocol).or(values.text(Name::proto));
            Cell::of(within, Cell::Upper)
        });
    ],
);

/// How a worker is getting on, as far as Zeek has names for it.
pub(super) static STATS: Log = all(
    "stats",
    columns!["ts" "time": made(begin);],
    columns![
        "peer" "string": made(|values: &Values<'_>| {
            Cell::of(values.number(Name::worker), |it| Cell::Numbered("worker-", it))
        });
        "mem" "count": made(megabytes);
        "pkts_proc" "count": new_packets;
        "bytes_recv" "count": new_bytes;
        "pkts_dropped" "count": new_memory_dropped;
        "reassem_tcp_size" "count": segment_memory;
    ],
);
