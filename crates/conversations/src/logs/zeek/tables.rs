//! The logs' columns, in Zeek's order.

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

/// Columns in front of most logs.
const COMMON: &[Column] = &[
    column("ts", "time", Made(begin)),
    column("uid", "string", Made(uid)),
    column("id.orig_h", "addr", Field(Name::src_ip)),
    column("id.orig_p", "port", Field(Name::src_port)),
    column("id.resp_h", "addr", Field(Name::dst_ip)),
    column("id.resp_p", "port", Field(Name::dst_port)),
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
    &[
        column("ts", "time", Made(begin)),
        column("uid", "string", Made(uid)),
        column("id.orig_h", "addr", Field(Name::src_ip)),
        column("id.orig_p", "port", Made(|it| port(it, Name::src_port))),
        column("id.resp_h", "addr", Field(Name::dst_ip)),
        column("id.resp_p", "port", Made(|it| port(it, Name::dst_port))),
    ],
    &[
        column("proto", "enum", Made(transport)),
        column("service", "string", Made(service)),
        column("duration", "interval", Made(duration)),
        column(
            "orig_bytes",
            "count",
            Made(|it| carried(it, Name::src_stream_bytes)),
        ),
        column(
            "resp_bytes",
            "count",
            Made(|it| carried(it, Name::dst_stream_bytes)),
        ),
        column("conn_state", "string", Field(Name::state)),
        column("local_orig", "bool", Made(|it| local(it, Name::src_ip))),
        column("local_resp", "bool", Made(|it| local(it, Name::dst_ip))),
        column("missed_bytes", "count", Field(Name::missing_bytes)),
        column("history", "string", Made(history)),
        column("orig_pkts", "count", Field(Name::src_packets)),
        column("orig_ip_bytes", "count", Field(Name::src_ip_bytes)),
        column("resp_pkts", "count", Field(Name::dst_packets)),
        column("resp_ip_bytes", "count", Field(Name::dst_ip_bytes)),
        column("tunnel_parents", "set[string]", Unset),
        column("ip_proto", "count", Made(protocol_number)),
        // As the policy script community-id-logging has it.
        column("community_id", "string", Field(Name::community_id)),
    ],
);

/// Of connections from their beginning: Zeek reads no others.
static HTTP: Log = Log {
    has: |values| values.yes(Name::partial) != Some(true),
    ..all(
        "http",
        COMMON,
        &[
            column("trans_depth", "count", Field(Name::depth)),
            column("method", "string", Field(Name::method)),
            column("host", "string", Field(Name::host)),
            column("uri", "string", Made(uri)),
            column("referrer", "string", Field(Name::referrer)),
            // That of the response.
            column("version", "string", Field(Name::response_version)),
            column("user_agent", "string", Field(Name::user_agent)),
            column("origin", "string", Field(Name::origin)),
            column("request_body_len", "count", Field(Name::request_body_bytes)),
            column("response_body_len", "count", Made(response_length)),
            column("status_code", "count", Made(status)),
            column("status_msg", "string", Made(reason)),
            column("info_code", "count", Unset),
            column("info_msg", "string", Unset),
            column("tags", "set[enum]", Made(|_| Cell::Empty)),
            column("username", "string", Unset),
            column("password", "string", Unset),
            column("proxied", "set[string]", Unset),
            column(
                "orig_fuids",
                "vector[string]",
                Made(|it| files(it, Name::request_files)),
            ),
            column(
                "orig_filenames",
                "vector[string]",
                Field(Name::request_file_names),
            ),
            column(
                "orig_mime_types",
                "vector[string]",
                Made(|it| {
                    types(
                        it,
                        Name::request_part_types,
                        Name::request_mime_type,
                        Name::request_body_bytes,
                    )
                }),
            ),
            column(
                "resp_fuids",
                "vector[string]",
                Made(|it| files(it, Name::response_files)),
            ),
            column(
                "resp_filenames",
                "vector[string]",
                Field(Name::response_file_names),
            ),
            column(
                "resp_mime_types",
                "vector[string]",
                Made(|it| {
                    types(
                        it,
                        Name::response_part_types,
                        Name::response_mime_type,
                        Name::response_body_bytes,
                    )
                }),
            ),
        ],
    )
};

static DNS: Log = Log {
    // Zeek does not look for it within HTTP/2.
    has: |values| values.text(Name::service) != Some("doh"),
    ..all(
        "dns",
        COMMON,
        &[
            column("proto", "enum", Field(Name::proto)),
            column("trans_id", "count", Field(Name::trans_id)),
            column(
                "rtt",
                "interval",
                Made(|it| answered(it, |it| it.seconds(Name::latency))),
            ),
            column("query", "string", Made(query)),
            column(
                "qclass",
                "count",
                Made(|it| asked(it, |it| number(it, Name::qclass, dns_class))),
            ),
            column(
                "qclass_name",
                "string",
                Made(|it| asked(it, dns_class_name)),
            ),
            column(
                "qtype",
                "count",
                Made(|it| asked(it, |it| number(it, Name::qtype, dns_type))),
            ),
            column("qtype_name", "string", Made(|it| asked(it, dns_type_name))),
            column(
                "rcode",
                "count",
                Made(|it| number(it, Name::rcode, dns_code)),
            ),
            column("rcode_name", "string", Field(Name::rcode)),
            column("AA", "bool", Made(|it| flag_of_answer(it, Name::aa))),
            // Of the query.
            column("TC", "bool", Made(|_| Cell::Bool(false))),
            column("RD", "bool", Made(|it| flag_of_query(it, Name::rd))),
            column("RA", "bool", Made(|it| flag_of_answer(it, Name::ra))),
            column("Z", "count", Made(reserved)),
            column("answers", "vector[string]", Made(answers)),
            column("TTLs", "vector[interval]", Made(ttls)),
            column("rejected", "bool", Made(rejected)),
            column("opcode", "count", Made(dns_opcode)),
            column("opcode_name", "string", Made(dns_opcode_name)),
        ],
    )
};

static SSL: Log = all("ssl", COMMON, HANDSHAKE);
static HANDSHAKE: &[Column] = &[
    column("version", "string", Made(tls_version)),
    column("cipher", "string", Field(Name::cipher)),
    column("curve", "string", Field(Name::curve)),
    column("server_name", "string", Field(Name::server_name)),
    column("resumed", "bool", Made(|it| yes(it, Name::resumed))),
    column("last_alert", "string", Field(Name::last_alert)),
    column("next_protocol", "string", Field(Name::next_protocol)),
    column("established", "bool", Made(|it| yes(it, Name::established))),
    column("ssl_history", "string", Made(handshake_history)),
    column(
        "cert_chain_fps",
        "vector[string]",
        Made(|it| chain(it, Name::chain, Name::client_chain)),
    ),
    column(
        "client_cert_chain_fps",
        "vector[string]",
        Made(|it| chain(it, Name::client_chain, Name::chain)),
    ),
    column("sni_matches_cert", "bool", Made(name_matches)),
    // As policy scripts and packages have them.
    column(
        "subject",
        "string",
        Made(|it| distinguished(it, Name::subject)),
    ),
    column(
        "issuer",
        "string",
        Made(|it| distinguished(it, Name::issuer)),
    ),
    column(
        "client_subject",
        "string",
        Made(|it| distinguished(it, Name::client_subject)),
    ),
    column("ja3", "string", Field(Name::ja3)),
    column("ja3s", "string", Field(Name::ja3s)),
    column("ja4", "string", Field(Name::ja4)),
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
        &[
            column("version", "string", Made(quic_version)),
            column(
                "client_initial_dcid",
                "string",
                Field(Name::client_initial_dcid),
            ),
            column("client_scid", "string", Field(Name::client_scid)),
            column("server_scid", "string", Field(Name::server_scid)),
            column("server_name", "string", Field(Name::server_name)),
            column("client_protocol", "string", Field(Name::client_protocol)),
            column("history", "string", Unset),
        ],
    )
};

static X509: Log = all(
    "x509",
    &[column("ts", "time", Made(begin))],
    &[
        column("fingerprint", "string", Field(Name::sha256)),
        column("certificate.version", "count", Field(Name::version)),
        column("certificate.serial", "string", Made(serial)),
        column(
            "certificate.subject",
            "string",
            Made(|it| distinguished(it, Name::subject)),
        ),
        column(
            "certificate.issuer",
            "string",
            Made(|it| distinguished(it, Name::issuer)),
        ),
        column(
            "certificate.not_valid_before",
            "time",
            Field(Name::not_before),
        ),
        column(
            "certificate.not_valid_after",
            "time",
            Field(Name::not_after),
        ),
        column("certificate.key_alg", "string", Field(Name::key_alg)),
        column("certificate.sig_alg", "string", Field(Name::sig_alg)),
        column("certificate.key_type", "string", Field(Name::key_type)),
        column("certificate.key_length", "count", Field(Name::key_length)),
        column(
            "certificate.exponent",
            "string",
            Made(|it| Cell::of(it.number(Name::exponent), |it| Cell::Numbered("", it))),
        ),
        column("certificate.curve", "string", Field(Name::curve)),
        column("san.dns", "vector[string]", Field(Name::san_dns)),
        column("san.uri", "vector[string]", Field(Name::san_uri)),
        column("san.email", "vector[string]", Field(Name::san_email)),
        column("san.ip", "vector[addr]", Field(Name::san_ip)),
        column("basic_constraints.ca", "bool", Field(Name::ca)),
        column(
            "basic_constraints.path_len",
            "count",
            Field(Name::path_length),
        ),
        column("host_cert", "bool", Made(|it| is_first_of(it, "server"))),
        column("client_cert", "bool", Made(|it| is_first_of(it, "client"))),
    ],
);

static FILES: Log = all(
    "files",
    &[
        column("ts", "time", Made(begin)),
        column("fuid", "string", Made(file_id)),
        column("uid", "string", Made(uid)),
        column("id.orig_h", "addr", Field(Name::src_ip)),
        column("id.orig_p", "port", Field(Name::src_port)),
        column("id.resp_h", "addr", Field(Name::dst_ip)),
        column("id.resp_p", "port", Field(Name::dst_port)),
    ],
    &[
        column(
            "source",
            "string",
            Made(|it| Cell::of(it.text(Name::source), Cell::Upper)),
        ),
        column("depth", "count", Made(file_depth)),
        column("analyzers", "set[string]", Made(file_analyzers)),
        column(
            "mime_type",
            "string",
            Made(|it| type_name(it, Name::mime_type, Name::bytes)),
        ),
        column(
            "filename",
            "string",
            Made(|it| {
                let is_named = it.text(Name::name_by) == Some("sender");
                Cell::of(it.text(Name::file_name).filter(|_| is_named), Cell::Text)
            }),
        ),
        column("duration", "interval", Field(Name::duration)),
        column("local_orig", "bool", Made(file_is_local)),
        column(
            "is_orig",
            "bool",
            Made(|it| Cell::Bool(it.text(Name::sent_by) == Some("src"))),
        ),
        column("seen_bytes", "count", Field(Name::bytes)),
        column("total_bytes", "count", Field(Name::total_bytes)),
        column("missing_bytes", "count", Field(Name::missing_bytes)),
        column("overflow_bytes", "count", Made(|_| Cell::Number(0))),
        column("timedout", "bool", Made(file_timed_out)),
        column("parent_fuid", "string", Made(file_parent)),
        column("md5", "string", Field(Name::md5)),
        column("sha1", "string", Field(Name::sha1)),
        column("sha256", "string", Field(Name::sha256)),
        column("extracted", "string", Field(Name::extracted)),
        column("extracted_cutoff", "bool", Made(file_cutoff)),
        column("extracted_size", "count", Made(file_extracted)),
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
        &[
            column(
                "user",
                "string",
                Made(|it| Cell::Text(it.text(Name::user).unwrap_or("<unknown>"))),
            ),
            column("password", "string", Field(Name::password)),
            column("command", "string", Field(Name::command)),
            column("arg", "string", Made(ftp_argument)),
            column("mime_type", "string", Unset),
            column("file_size", "count", Field(Name::file_size)),
            column("reply_code", "count", Field(Name::reply_code)),
            column("reply_msg", "string", Field(Name::reply_msg)),
            column(
                "data_channel.passive",
                "bool",
                Made(|it| channel(it, |it| yes(it, Name::passive))),
            ),
            column(
                "data_channel.orig_h",
                "addr",
                Made(|it| channel(it, channel_origin)),
            ),
            column("data_channel.resp_h", "addr", Field(Name::data_ip)),
            column("data_channel.resp_p", "port", Field(Name::data_port)),
            column("fuid", "string", Unset),
        ],
    )
};

static SMTP: Log = all(
    "smtp",
    COMMON,
    &[
        column("trans_depth", "count", Field(Name::trans_depth)),
        column("helo", "string", Field(Name::helo)),
        column("mailfrom", "string", Field(Name::mailfrom)),
        column("rcptto", "set[string]", Field(Name::rcptto)),
        column("date", "string", Field(Name::date)),
        column("from", "string", Field(Name::from)),
        column("to", "set[string]", Field(Name::to)),
        column("cc", "set[string]", Field(Name::cc)),
        column("reply_to", "string", Field(Name::reply_to)),
        column("msg_id", "string", Field(Name::msg_id)),
        column("in_reply_to", "string", Field(Name::in_reply_to)),
        column("subject", "string", Field(Name::subject)),
        column("x_originating_ip", "addr", Made(originating)),
        column("first_received", "string", Made(|it| hop(it, 0))),
        column("second_received", "string", Made(|it| hop(it, 1))),
        column("last_reply", "string", Field(Name::last_reply)),
        column("path", "vector[addr]", Made(mail_path)),
        column("user_agent", "string", Field(Name::user_agent)),
        column("tls", "bool", Made(|it| yes(it, Name::tls))),
        column(
            "fuids",
            "vector[string]",
            Made(|it| Cell::Ids(b'F', it.numbers(Name::files))),
        ),
    ],
);

static SSH: Log = all(
    "ssh",
    COMMON,
    &[
        column("version", "count", Field(Name::version)),
        column("auth_success", "bool", Field(Name::auth_success)),
        column(
            "auth_attempts",
            "count",
            Made(|it| Cell::Number(it.number(Name::auth_attempts).unwrap_or(0))),
        ),
        column("direction", "enum", Made(direction)),
        column("client", "string", Field(Name::client)),
        column("server", "string", Field(Name::server)),
        column("cipher_alg", "string", Field(Name::cipher_alg)),
        column("mac_alg", "string", Field(Name::mac_alg)),
        column("compression_alg", "string", Field(Name::compression_alg)),
        column("kex_alg", "string", Field(Name::kex_alg)),
        column("host_key_alg", "string", Field(Name::host_key_alg)),
        column("host_key_fingerprint", "string", Made(key_fingerprint)),
    ],
);

static NTP: Log = all(
    "ntp",
    COMMON,
    &[
        column("version", "count", Field(Name::version)),
        column("mode", "count", Made(|it| number(it, Name::mode, ntp_mode))),
        column("stratum", "count", Field(Name::stratum)),
        column("poll", "interval", Field(Name::poll)),
        column("precision", "interval", Field(Name::precision)),
        column("root_delay", "interval", Field(Name::root_delay)),
        column("root_disp", "interval", Field(Name::root_disp)),
        column("ref_id", "string", Field(Name::ref_id)),
        column("ref_time", "time", Made(|it| ntp_clock(it, Name::ref_time))),
        column("org_time", "time", Made(|it| ntp_clock(it, Name::org_time))),
        column("rec_time", "time", Made(|it| ntp_clock(it, Name::rec_time))),
        column("xmt_time", "time", Made(|it| ntp_clock(it, Name::xmt_time))),
        column("num_exts", "count", Made(|_| Cell::Number(0))),
    ],
);

/// Its lines are made of several records ([`Leases`](super::Leases)).
pub(in super::super) static DHCP: Log = all(
    "dhcp",
    &[column("ts", "time", Unset)],
    &[
        column("uids", "set[string]", Unset),
        column("client_addr", "addr", Unset),
        column("server_addr", "addr", Unset),
        column("mac", "string", Unset),
        column("host_name", "string", Unset),
        column("client_fqdn", "string", Unset),
        column("domain", "string", Unset),
        column("requested_addr", "addr", Unset),
        column("assigned_addr", "addr", Unset),
        column("lease_time", "interval", Unset),
        column("client_message", "string", Unset),
        column("server_message", "string", Unset),
        column("msg_types", "vector[string]", Unset),
        column("duration", "interval", Unset),
    ],
);

static SNMP: Log = all(
    "snmp",
    COMMON,
    &[
        column(
            "duration",
            "interval",
            Made(|it| Cell::Seconds(it.span(Name::latency).unwrap_or_default())),
        ),
        column("version", "string", Field(Name::version)),
        column("community", "string", Field(Name::community)),
        column(
            "get_requests",
            "count",
            Made(|it| bindings(it, &["get", "getnext"])),
        ),
        column(
            "get_bulk_requests",
            "count",
            Made(|it| bindings(it, &["getbulk"])),
        ),
        column("get_responses", "count", Made(responses)),
        column("set_requests", "count", Made(|it| bindings(it, &["set"]))),
        column("display_string", "string", Unset),
        column("up_since", "time", Unset),
    ],
);

static WEIRD: Log = all(
    "weird",
    COMMON,
    &[
        column(
            "name",
            "string",
            Made(|values| Cell::of(super::super::names::zeek(values), Cell::Text)),
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
);

/// How a worker is getting on, as far as Zeek has names for it.
pub(super) static STATS: Log = all(
    "stats",
    &[column("ts", "time", Made(begin))],
    &[
        column(
            "peer",
            "string",
            Made(|values: &Values<'_>| {
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
);
