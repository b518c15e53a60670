//! Values of columns that are no field as it is.

use flowgauge_proto::dns;
use flowgauge_record::Texts;
use flowgauge_wire::Nanos;

use super::super::values::{Cell, Name, Values, zeek_type};

/// Memory of flows and segments.
pub(super) fn megabytes<'a>(values: &Values<'a>) -> Cell<'a> {
    let of = |name| values.number(name).unwrap_or(0);
    Cell::Number((of(Name::flow_memory) + of(Name::segment_memory)) >> 20)
}

pub(super) fn begin<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.begin(), Cell::Seconds)
}

/// As Zeek's: `C`, and the flow's number to the base 62.
pub(super) fn uid<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.number(Name::flow_id), |id| Cell::Id(b'C', id))
}

/// What defaults to `F`.
pub(super) fn yes<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::Bool(values.yes(name).unwrap_or(false))
}

/// The number of a name.
pub(super) fn number<'a>(values: &Values<'a>, name: Name, of: fn(&str) -> Option<u16>) -> Cell<'a> {
    Cell::of(values.text(name).and_then(of), |it| Cell::Number(it.into()))
}

/// The type of a body, as Zeek calls it: text is what has ten characters of it.
pub(super) fn type_name<'a>(values: &Values<'a>, name: Name, size: Name) -> Cell<'a> {
    match values.text(name) {
        Some("text/plain") if values.number(size).unwrap_or(0) < 10 => Cell::Unset,
        name => Cell::of(name, |name| Cell::Text(zeek_type(name))),
    }
}

/// Files of a body that Zeek lists.
const LISTED: usize = 15;

/// Types of the parts of a body, or of it itself.
pub(super) fn types<'a>(values: &Values<'a>, parts: Name, body: Name, size: Name) -> Cell<'a> {
    match (values.texts(parts), type_name(values, body, size)) {
        (Some(texts), _) => Cell::Types(texts, LISTED),
        (None, Cell::Text(text)) => Cell::One(text),
        _ => Cell::Unset,
    }
}

/// Networks that are nowhere routed, and so local by default (IANA's registries of special-purpose addresses).
pub(super) fn local<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match is_local(values, name) {
        Some(is) => Cell::Bool(is),
        None => Cell::Unset,
    }
}

fn is_local(values: &Values<'_>, name: Name) -> Option<bool> {
    let (address, version) = values.address(name)?;
    Some(match (version, address.0) {
        (4, [.., a, b, c, d]) => is_local_v4([a, b, c, d]),
        // 6to4: as the address within.
        (_, [0x20, 0x02, a, b, c, d, ..]) => is_local_v4([a, b, c, d]),
        (_, [0xfc | 0xfd, ..]) => true,
        (_, [0xfe, b, ..]) => b & 0xc0 == 0x80,
        (_, [0x20, 0x01, b, ..]) if b < 2 => true,
        (_, [0x20, 0x01, 0x0d, 0xb8, ..]) => true,
        (_, [0, 0x64, 0xff, 0x9b, 0, 1, ..]) => true,
        (_, [1, 0, 0, 0, 0, 0, 0, 0, ..]) => true,
        (_, [rest @ .., last]) => rest == [0; 15] && last < 2,
    })
}

fn is_local_v4([a, b, c, _]: [u8; 4]) -> bool {
    matches!(
        (a, b, c),
        (0 | 10 | 127 | 240.., ..)
            | (100, 64..=127, _)
            | (172, 16..=31, _)
            | (198, 18 | 19, _)
            | (169, 254, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224, 0, 0)
    )
}

pub(super) fn direction<'a>(values: &Values<'a>) -> Cell<'a> {
    let both = [Name::src_ip, Name::dst_ip].map(|name| is_local(values, name));
    match both {
        [Some(true), Some(false)] => Cell::Text("OUTBOUND"),
        [Some(false), Some(true)] => Cell::Text("INBOUND"),
        _ => Cell::Unset,
    }
}

// Connections

pub(super) fn transport<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.text(Name::proto) {
        Some(name @ ("tcp" | "udp" | "icmp")) => Cell::Text(name),
        Some("58") => Cell::Text("icmp"),
        _ => Cell::Text("unknown_transport"),
    }
}

/// Zeek knows ports of TCP and UDP, and of ICMP as types and codes.
pub(super) fn port<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match transport(values) {
        Cell::Text("unknown_transport") => Cell::Number(0),
        _ => Cell::of(values.number(name), Cell::Number),
    }
}

pub(super) fn history<'a>(values: &Values<'a>) -> Cell<'a> {
    let history = values.text(Name::history).filter(|it| !it.is_empty());
    Cell::of(history, Cell::Text)
}

pub(super) fn protocol_number<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_v6 = values.address(Name::src_ip).is_some_and(|it| it.1 == 6);
    match values.text(Name::proto) {
        Some("tcp") => Cell::Number(6),
        Some("udp") => Cell::Number(17),
        Some("icmp") if is_v6 => Cell::Number(58),
        Some("icmp") => Cell::Number(1),
        Some(digits) => Cell::of(digits.parse().ok(), Cell::Number),
        None => Cell::Unset,
    }
}

/// Whether both sides of a connection said something, and its beginning was captured: Zeek confirms no protocol before.
fn is_confirmed(values: &Values<'_>) -> bool {
    let history = values.text(Name::history).unwrap_or_default();
    let said = |name| values.number(name).unwrap_or(0) > 0;
    let begins = history.contains(['S', 's', 'H', 'h']);
    begins && said(Name::src_stream_bytes) && said(Name::dst_stream_bytes)
}

/// What Zeek calls a protocol; those that it does not know keep their names.
pub(super) fn service<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_tcp = values.text(Name::proto) == Some("tcp");
    let Some(name) = values.spoken().filter(|_| !is_tcp || is_confirmed(values)) else {
        return Cell::Unset;
    };
    Cell::Text(match name {
        "tls" => "ssl",
        "quic" => "quic,ssl",
        "mdns" | "llmnr" | "nbns" => "dns",
        "ftp_data" => "ftp-data",
        "smb" => "gssapi,smb",
        "dcerpc" => "dce_rpc",
        "kerberos" if is_tcp => "krb_tcp",
        "kerberos" => "krb",
        "ldap" if is_tcp => "ldap_tcp",
        "ldap" => "ldap_udp",
        "syslog" if is_tcp => "syslog_tcp",
        "rdp" if is_tcp => "rdp",
        "vnc" => "rfb",
        "dnp3" if is_tcp => "dnp3_tcp",
        "dnp3" => "dnp3_udp",
        name => name,
    })
}

/// Of more than a packet, as Zeek has it.
fn lasting(values: &Values<'_>) -> Option<Nanos> {
    values.span(Name::duration).filter(|span| span.0 > 0)
}

pub(super) fn duration<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(lasting(values), Cell::Seconds)
}

/// Bytes of a stream, where the connection lasted.
pub(super) fn carried<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match (lasting(values), transport(values)) {
        (None, _) => Cell::Unset,
        (_, Cell::Text("unknown_transport")) => Cell::Number(0),
        _ => Cell::of(values.number(name), Cell::Number),
    }
}

// HTTP

/// Behind the content coding, where that was taken away.
pub(super) fn response_length<'a>(values: &Values<'a>) -> Cell<'a> {
    let decoded = values.number(Name::response_decoded_bytes);
    Cell::of(
        decoded.or_else(|| values.number(Name::response_body_bytes)),
        Cell::Number,
    )
}

pub(super) fn uri<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.text(Name::uri), Cell::Unescaped)
}

/// Of responses without a head Zeek writes 0.
pub(super) fn status<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.number(Name::status) {
        None if values.text(Name::response_version) == Some("0.9") => Cell::Number(0),
        status => Cell::of(status, Cell::Number),
    }
}

pub(super) fn reason<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.text(Name::reason) {
        Some("") => Cell::Text("<empty>"),
        reason => Cell::of(reason, Cell::Text),
    }
}

pub(super) fn files<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match values.numbers(name) {
        [] => Cell::Unset,
        ids => Cell::Ids(b'F', &ids[..ids.len().min(LISTED)]),
    }
}

// DNS

/// What only a reply with answers tells.
pub(super) fn answered<'a>(
    values: &Values<'a>,
    cell: impl FnOnce(&Values<'a>) -> Cell<'a>,
) -> Cell<'a> {
    match is_answered(values) {
        true => cell(values),
        false => Cell::Unset,
    }
}

/// Whether there are answers of a type that Zeek reads.
fn is_answered(values: &Values<'_>) -> bool {
    let types = values.texts(Name::answer_types);
    types.is_some_and(|types| types.iter().any(|kind| !matches!(kind, "TKEY" | "TSIG")))
}

/// What only the question of a query tells; an update has none.
pub(super) fn asked<'a>(
    values: &Values<'a>,
    cell: impl FnOnce(&Values<'a>) -> Cell<'a>,
) -> Cell<'a> {
    match (values.text(Name::state), values.text(Name::opcode)) {
        (Some("no_request"), _) | (_, Some("update")) => Cell::Unset,
        _ => cell(values),
    }
}

pub(super) fn flag_of_answer<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::Bool(is_answered(values) && values.yes(name).unwrap_or(false))
}

pub(super) fn flag_of_query<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    let is_asked = values.text(Name::state) != Some("no_request");
    Cell::Bool(is_asked && values.yes(name).unwrap_or(false))
}

pub(super) fn query<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_asked = values.text(Name::state) != Some("no_request");
    let name = values.text(Name::query);
    match is_asked || values.texts(Name::answers).is_some() {
        // Without the kind of service behind it.
        true if values.text(Name::service) == Some("nbns") => Cell::of(name, |name| {
            let kind = name.len().checked_sub("<00>".len());
            let is_kind = name.ends_with('>') && kind.is_some_and(|at| name.is_char_boundary(at));
            Cell::Text(kind.filter(|_| is_kind).map_or(name, |at| &name[..at]))
        }),
        true => Cell::of(name, Cell::Lower),
        false => Cell::Unset,
    }
}

pub(super) fn dns_class(name: &str) -> Option<u16> {
    dns::class_number(name)
}

pub(super) fn dns_type(name: &str) -> Option<u16> {
    match name {
        // Names of NetBIOS.
        "NB" => Some(32),
        "NBSTAT" => Some(33),
        name => dns::type_number(name),
    }
}

pub(super) fn dns_code(name: &str) -> Option<u16> {
    dns::rcode_number(name)
}

pub(super) fn dns_class_name<'a>(values: &Values<'a>) -> Cell<'a> {
    let name = values.text(Name::qclass);
    match name.and_then(dns::class_number) {
        Some(1) => Cell::Text("C_INTERNET"),
        Some(2) => Cell::Text("C_CSNET"),
        Some(3) => Cell::Text("C_CHAOS"),
        Some(4) => Cell::Text("C_HESOD"),
        Some(254) => Cell::Text("C_NONE"),
        Some(255) => Cell::Text("C_ANY"),
        Some(number) => Cell::Numbered("qclass-", number.into()),
        None => Cell::of(name, Cell::Text),
    }
}

pub(super) fn dns_type_name<'a>(values: &Values<'a>) -> Cell<'a> {
    let name = values.text(Name::qtype);
    let number = name.and_then(dns_type);
    match (number, name) {
        (Some(32), _) => Cell::Text("NIMLOC"),
        (Some(255), _) => Cell::Text("*"),
        (Some(number), Some(name)) if name.starts_with("TYPE") => {
            Cell::Numbered("query-", number.into())
        }
        _ => Cell::of(name, Cell::Text),
    }
}

pub(super) fn dns_opcode<'a>(values: &Values<'a>) -> Cell<'a> {
    number(values, Name::opcode, dns::opcode_number)
}

pub(super) fn dns_opcode_name<'a>(values: &Values<'a>) -> Cell<'a> {
    let opcode = values.text(Name::opcode);
    if values.text(Name::service) == Some("nbns") {
        return Cell::of(opcode, |name| Cell::Joined("netbios-", name));
    }
    Cell::of(opcode, |name| {
        Cell::Text(match name {
            "iquery" => "inverse-query",
            "status" => "server-status",
            "update" => "dynamic-update",
            name => name,
        })
    })
}

/// The three bits behind RA, of the query.
pub(super) fn reserved<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_asked = values.text(Name::state) != Some("no_request");
    let bit = |name, bit| {
        if is_asked && values.yes(name) == Some(true) {
            bit
        } else {
            0
        }
    };
    Cell::Number(bit(Name::z, 4) | bit(Name::ad_wanted, 2) | bit(Name::cd, 1))
}

/// Answers and their types, where Zeek tells any.
fn told<'a>(values: &Values<'a>) -> Option<(Texts<'a>, Texts<'a>)> {
    let types = values.texts(Name::answer_types)?;
    let is_told = |kind| !matches!(kind, "TKEY" | "TSIG" | "WKS");
    let texts = values.texts(Name::answers)?;
    types.iter().any(is_told).then_some((texts, types))
}

pub(super) fn answers<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(told(values), |(texts, types)| Cell::Answers(texts, types))
}

/// Times to live of the answers that are told.
pub(super) fn ttls<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(told(values), |(texts, types)| {
        Cell::Ttls(texts, types, values.numbers(Name::ttls))
    })
}

pub(super) fn rejected<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_refused = values
        .text(Name::rcode)
        .is_some_and(|rcode| rcode != "NOERROR");
    Cell::Bool(is_refused && values.number(Name::questions) == Some(0))
}

// TLS

pub(super) fn tls_version<'a>(values: &Values<'a>) -> Cell<'a> {
    let name = match values.kind() {
        "quic" => Name::tls_version,
        _ => Name::version,
    };
    Cell::of(values.text(name), Cell::TlsVersion)
}

/// Of QUIC the two messages that are not encrypted in another way.
pub(super) fn handshake_history<'a>(values: &Values<'a>) -> Cell<'a> {
    if values.kind() != "quic" {
        return Cell::of(values.text(Name::history), Cell::Text);
    }
    Cell::Text(match values.text(Name::state) {
        Some("matched") if values.yes(Name::retried) == Some(true) => "CCs",
        Some("matched") => "Cs",
        Some("no_reply") => "C",
        _ => "s",
    })
}

/// Fingerprints of one side; empty where only the other has any.
pub(super) fn chain<'a>(values: &Values<'a>, name: Name, other: Name) -> Cell<'a> {
    match (values.texts(name), values.texts(other)) {
        (Some(texts), _) => Cell::Texts(texts),
        (None, Some(_)) => Cell::Empty,
        (None, None) => Cell::Unset,
    }
}

/// Whether the server's certificate is for the name that the client asked for (RFC 9525, section 6.3).
pub(super) fn name_matches<'a>(values: &Values<'a>) -> Cell<'a> {
    let (Some(name), Some(subject)) = (values.text(Name::server_name), values.text(Name::subject))
    else {
        return Cell::Unset;
    };
    let is_for = |pattern: &str| match pattern.strip_prefix("*.") {
        Some(domain) => {
            let rest = name.split_once('.').map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(domain))
        }
        None => pattern.eq_ignore_ascii_case(name),
    };
    let is_for = match values.texts(Name::san) {
        Some(names) => names.iter().any(is_for),
        None => {
            let mut parts = subject.split(',');
            parts
                .find_map(|part| part.strip_prefix("CN="))
                .is_some_and(is_for)
        }
    };
    Cell::Bool(is_for)
}

/// A name of X.509 as RFC 2253 writes it.
pub(super) fn distinguished<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::of(values.text(name), Cell::Distinguished)
}

/// Without the byte that only says that the number is positive.
pub(super) fn serial<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.text(Name::serial), |text| {
        let rest = text.strip_prefix("00").filter(|rest| !rest.is_empty());
        Cell::Upper(rest.unwrap_or(text))
    })
}

pub(super) fn quic_version<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.text(Name::version) {
        Some("2") => Cell::Text("quicv2"),
        name => Cell::of(name, Cell::Text),
    }
}

/// The certificate of the host itself, the first that it sent.
pub(super) fn is_first_of<'a>(values: &Values<'a>, sender: &str) -> Cell<'a> {
    let is_first = values.number(Name::place) == Some(1);
    Cell::Bool(is_first && values.text(Name::sender) == Some(sender))
}

// Files

/// As Zeek's: `F`, and the file's number.
pub(super) fn file_id<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.number(Name::file_id), |id| Cell::Id(b'F', id))
}

/// Of parts of mails the place.
pub(super) fn file_depth<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::Number(values.number(Name::part).unwrap_or(0))
}

pub(super) fn file_analyzers<'a>(values: &Values<'a>) -> Cell<'a> {
    let all = [
        ("EXTRACT", Name::extracted),
        ("MD5", Name::md5),
        ("SHA1", Name::sha1),
        ("SHA256", Name::sha256),
    ];
    let names = all.map(|(name, field)| values.text(field).map(|_| name));
    match names.iter().any(Option::is_some) {
        true => Cell::Some(names),
        false => Cell::Empty,
    }
}

/// Whether its sender is of a network of its own.
pub(super) fn file_is_local<'a>(values: &Values<'a>) -> Cell<'a> {
    let is_source = values.text(Name::sent_by) == Some("src");
    local(
        values,
        if is_source {
            Name::src_ip
        } else {
            Name::dst_ip
        },
    )
}

/// The file that it is a part of.
pub(super) fn file_parent<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(values.number(Name::parent_id), |id| Cell::Id(b'F', id))
}

/// What did not come to its end.
pub(super) fn file_timed_out<'a>(values: &Values<'a>) -> Cell<'a> {
    let total = values.number(Name::total_bytes);
    let seen = values.number(Name::bytes).unwrap_or(0);
    let is_short = total.is_some_and(|total| seen < total);
    Cell::Bool(is_short && values.yes(Name::whole) != Some(true))
}

/// Of a file that was cut off.
pub(super) fn file_extracted<'a>(values: &Values<'a>) -> Cell<'a> {
    match file_cutoff(values) {
        Cell::Bool(true) => Cell::of(values.number(Name::extracted_bytes), Cell::Number),
        _ => Cell::Unset,
    }
}

pub(super) fn file_cutoff<'a>(values: &Values<'a>) -> Cell<'a> {
    let seen = values
        .number(Name::bytes)
        .zip(values.number(Name::missing_bytes));
    match (values.number(Name::extracted_bytes), seen) {
        (Some(written), Some((seen, missing))) => Cell::Bool(written < seen + missing),
        _ => Cell::Unset,
    }
}

// FTP

/// What a command names, as a URL where it is a file.
pub(super) fn ftp_argument<'a>(values: &Values<'a>) -> Cell<'a> {
    let argument = values.text(Name::arg);
    match (values.text(Name::directory), values.address(Name::dst_ip)) {
        (Some(directory), Some(server)) => {
            Cell::FtpUrl(server, directory, argument.unwrap_or_default())
        }
        _ => Cell::of(argument, Cell::Text),
    }
}

/// What is of commands that agree on a data connection.
pub(super) fn channel<'a>(
    values: &Values<'a>,
    cell: impl FnOnce(&Values<'a>) -> Cell<'a>,
) -> Cell<'a> {
    match values.number(Name::data_port) {
        Some(_) => cell(values),
        None => Cell::Unset,
    }
}

/// Who opens the data connection.
pub(super) fn channel_origin<'a>(values: &Values<'a>) -> Cell<'a> {
    let name = match values.yes(Name::passive) {
        Some(true) => Name::src_ip,
        _ => Name::dst_ip,
    };
    Cell::of(values.address(name), |(address, version)| {
        Cell::Address(address, version)
    })
}

// SMTP

pub(super) fn originating<'a>(values: &Values<'a>) -> Cell<'a> {
    let text = values.text(Name::x_originating_ip);
    let address = text.and_then(|text| super::super::texts::addresses_in(text).next());
    Cell::of(address, Cell::Ip)
}

/// A header field Received, the last hop first; Zeek has the last two, the last but one of all first.
pub(super) fn hop<'a>(values: &Values<'a>, place: usize) -> Cell<'a> {
    let Some(all) = values.texts(Name::received) else {
        return Cell::Unset;
    };
    let last = all.iter().len().checked_sub(1 + place);
    Cell::of(last.and_then(|at| all.iter().nth(at)), Cell::Text)
}

/// The way a mail came: this connection, and the hosts that header fields name.
pub(super) fn mail_path<'a>(values: &Values<'a>) -> Cell<'a> {
    let ends = values
        .address(Name::dst_ip)
        .zip(values.address(Name::src_ip));
    Cell::of(ends, |ends| {
        Cell::MailPath(ends, values.texts(Name::received))
    })
}

// SSH

/// As Zeek writes it, 32 characters; it reads no key where only one side was captured.
pub(super) fn key_fingerprint<'a>(values: &Values<'a>) -> Cell<'a> {
    let text = values.text(Name::host_key_fingerprint);
    let text = text.filter(|_| values.text(Name::state) == Some("matched"));
    Cell::of(text, |text| {
        Cell::Text(text.get(.."SHA256:".len() + 32).unwrap_or(text))
    })
}

// NTP

/// A clock that was not set is at 0.
pub(super) fn ntp_clock<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::Seconds(values.time(name).unwrap_or_default())
}

// SNMP

/// Variables of requests of these kinds.
pub(super) fn bindings<'a>(values: &Values<'a>, kinds: &[&str]) -> Cell<'a> {
    let is = values
        .text(Name::request)
        .is_some_and(|kind| kinds.contains(&kind));
    let count = values.number(Name::request_variables).filter(|_| is);
    Cell::Number(count.unwrap_or(0))
}

pub(super) fn responses<'a>(values: &Values<'a>) -> Cell<'a> {
    let is = values.text(Name::reply) == Some("response");
    let count = values.number(Name::reply_variables).filter(|_| is);
    Cell::Number(count.unwrap_or(0))
}
