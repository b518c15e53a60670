//! Members of Suricata's events of protocols, those of HTTP, DNS, TLS and files aside.

use super::eve::Origin::{AddressText, Made, Number, Object, Text, Texts, Within};
use super::eve::{Member, member};
use super::values::{Cell, Name, Values};

pub(super) static SSH: &[Member] = &[member("ssh", Object(SSH_ITSELF))];
static SSH_ITSELF: &[Member] = &[
    member(
        "client",
        Object(&[
            member(
                "proto_version",
                Made(|values| banner(values, Name::client, 0)),
            ),
            member(
                "software_version",
                Made(|values| banner(values, Name::client, 1)),
            ),
            member("hassh", Within("hash", Name::hassh)),
        ]),
    ),
    member(
        "server",
        Object(&[
            member(
                "proto_version",
                Made(|values| banner(values, Name::server, 0)),
            ),
            member(
                "software_version",
                Made(|values| banner(values, Name::server, 1)),
            ),
            member("hassh", Within("hash", Name::hassh_server)),
        ]),
    ),
];

pub(super) static SMTP: &[Member] = &[
    member("tx_id", Made(|values| position(values, Name::trans_depth))),
    member("smtp", Object(SMTP_ITSELF)),
    member("email", Object(EMAIL)),
];
static SMTP_ITSELF: &[Member] = &[
    member("helo", Text(Name::helo)),
    member("mail_from", Text(Name::mailfrom)),
    member("rcpt_to", Texts(Name::rcptto)),
];
static EMAIL: &[Member] = &[
    member("from", Text(Name::from)),
    member("to", Texts(Name::to)),
    member("subject", Text(Name::subject)),
    member("date", Text(Name::date)),
    member("x_mailer", Text(Name::user_agent)),
];

pub(super) static FTP: &[Member] = &[member("ftp", Object(FTP_ITSELF))];
static FTP_ITSELF: &[Member] = &[
    member("command", Text(Name::command)),
    member("command_data", Text(Name::arg)),
    member("dynamic_port", Number(Name::data_port)),
    member(
        "mode",
        Made(|values| match values.yes(Name::passive) {
            Some(true) => Cell::Text("passive"),
            Some(false) => Cell::Text("active"),
            None => Cell::Unset,
        }),
    ),
    member(
        "completion_code",
        Made(|values| Cell::of(values.number(Name::reply_code), Cell::OneNumber)),
    ),
    member(
        "reply",
        Made(|values| Cell::of(values.text(Name::reply_msg), Cell::One)),
    ),
    member(
        "reply_received",
        Made(|values| match values.text(Name::state) {
            Some("no_reply") => Cell::Text("no"),
            _ => Cell::Text("yes"),
        }),
    ),
];

pub(super) static FTP_DATA: &[Member] = &[member("ftp_data", Object(FTP_DATA_ITSELF))];
static FTP_DATA_ITSELF: &[Member] = &[
    member("command", Text(Name::command)),
    member("filename", Text(Name::file_name)),
];

pub(super) static DHCP: &[Member] = &[member("dhcp", Object(DHCP_ITSELF))];
static DHCP_ITSELF: &[Member] = &[
    member(
        "type",
        Made(|values| match values.text(Name::reply) {
            Some(_) => Cell::Text("reply"),
            None => Cell::Text("request"),
        }),
    ),
    member("id", Number(Name::trans_id)),
    member("client_mac", Text(Name::mac)),
    member("client_ip", AddressText(Name::client_addr)),
    member("assigned_ip", AddressText(Name::assigned_addr)),
    member("relay_ip", AddressText(Name::relay_addr)),
    member(
        "dhcp_type",
        Made(|values| {
            Cell::of(
                values.text(Name::reply).or(values.text(Name::request)),
                Cell::Text,
            )
        }),
    ),
    member("hostname", Text(Name::host_name)),
    member("lease_time", Number(Name::lease_time)),
];

pub(super) static SNMP: &[Member] = &[member("snmp", Object(SNMP_ITSELF))];
static SNMP_ITSELF: &[Member] = &[
    member(
        "version",
        Made(|values| {
            let version = values
                .text(Name::version)
                .and_then(|text| text.bytes().next());
            let digit = version.filter(u8::is_ascii_digit);
            Cell::of(digit, |digit| Cell::Number(u64::from(digit - b'0')))
        }),
    ),
    member(
        "pdu_type",
        Made(|values| {
            let message = values.text(Name::request).or(values.text(Name::reply));
            Cell::Text(match message {
                Some("get") => "get_request",
                Some("getnext") => "get_next_request",
                Some("getbulk") => "get_bulk_request",
                Some("set") => "set_request",
                Some("inform") => "inform_request",
                Some("trap") if values.text(Name::version) == Some("1") => "trap_v1",
                Some("trap") => "trap_v2",
                Some(other) => other,
                None => "encrypted",
            })
        }),
    ),
    member("community", Text(Name::community)),
    member("usm", Text(Name::user)),
    member(
        "vars",
        Made(|values| Cell::of(values.text(Name::oid), Cell::One)),
    ),
];

pub(super) static RPC: &[Member] = &[member("rpc", Object(RPC_ITSELF))];
static RPC_ITSELF: &[Member] = &[
    member("xid", Number(Name::xid)),
    member(
        "status",
        Made(|values| {
            Cell::of(values.text(Name::outcome), |outcome| match outcome {
                "rpc_mismatch" | "auth_error" => Cell::Text("DENIED"),
                _ => Cell::Text("ACCEPTED"),
            })
        }),
    ),
    member(
        "auth_type",
        Made(|values| {
            Cell::of(values.text(Name::auth), |auth| match auth {
                "none" => Cell::Text("NULL"),
                "sys" => Cell::Text("UNIX"),
                "gss" => Cell::Text("GSS_API"),
                other => Cell::Upper(other),
            })
        }),
    ),
    member(
        "creds",
        Object(&[
            member("machine_name", Text(Name::machine)),
            member("uid", Number(Name::uid)),
            member("gid", Number(Name::gid)),
        ]),
    ),
];

pub(super) static QUIC: &[Member] = &[member("quic", Object(QUIC_ITSELF))];
static QUIC_ITSELF: &[Member] = &[
    member("version", Text(Name::version)),
    member("sni", Text(Name::server_name)),
    member("ja3", Within("hash", Name::ja3)),
    member("ja3s", Within("hash", Name::ja3s)),
    member("ja4", Text(Name::ja4)),
];

/// A number from 1, counted from 0.
fn position<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::of(values.number(name), |number| {
        Cell::Number(number.saturating_sub(1))
    })
}

/// Of `SSH-2.0-OpenSSH_9.2p1 comment` the version of the protocol, or the software.
fn banner<'a>(values: &Values<'a>, name: Name, part: usize) -> Cell<'a> {
    let text = values.text(name).and_then(|text| text.strip_prefix("SSH-"));
    let parts = text.and_then(|text| text.split_once('-'));
    Cell::of(parts, |(version, software)| match part {
        0 => Cell::Text(version),
        _ => Cell::Text(software.split(' ').next().unwrap_or(software)),
    })
}
