//! Members of Suricata's events of protocols, those of HTTP, DNS, TLS and files aside.

use core::net::Ipv4Addr;

use flowgauge_record::text::{TimeWriter, write_hex_bytes, write_unsigned};

use super::eve::{Member, members, text_behind};
use super::names::ntp_mode;
use super::values::{Cell, Name, Values, list};

pub(super) static SSH: &[Member] = members! {
    "ssh": object {
        "client": object {
            "proto_version": made(|values| banner(values, Name::client, 0));
            "software_version": made(|values| banner(values, Name::client, 1));
            "hassh": object { "hash": text(hassh); };
        };
        "server": object {
            "proto_version": made(|values| banner(values, Name::server, 0));
            "software_version": made(|values| banner(values, Name::server, 1));
            "hassh": object { "hash": text(hassh_server); };
        };
    };
};

pub(super) static SMTP: &[Member] = members! {
    "smtp": object {
        "helo": text(helo);
        "mail_from": made(|values| Cell::of(values.text(Name::mailfrom), Cell::Brackets));
        "rcpt_to": made(|values| Cell::of(values.texts(Name::rcptto), Cell::InBrackets));
    };
    "email": object {
        // How far its parts were read.
        "status": made(|values| {
            let is_over = matches!(values.text(Name::state), Some("sent" | "refused"));
            let status = if is_over {
                "PARSE_DONE"
            } else {
                "BODY_STARTED"
            };
            Cell::of(values.number(Name::message_bytes), |_| Cell::Text(status))
        });
        "from": text(from);
        "to": texts(to);
        "subject": text(subject);
        "date": text(date);
        "message_id": text(msg_id);
        "x_mailer": text(user_agent);
        "attachment": texts(attachments);
    };
};

/// Bytes of a command line that are kept.
const MAX_LINE: usize = 4 << 10;
/// Those of a reply, its code aside.
const MAX_REPLY: usize = MAX_LINE - 4;

pub(super) static FTP: &[Member] = members! {
    "ftp": object {
        "command": text(command);
        "command_data": text(arg);
        "command_truncated": made(|values| {
            let parts = [Name::command, Name::arg].map(|name| values.text(name));
            let length: usize = parts.iter().flatten().map(|text| text.len() + 1).sum();
            Cell::Bool(length > MAX_LINE)
        });
        "dynamic_port": number(data_port);
        "mode": made(|values| match values.yes(Name::passive) {
            Some(true) => Cell::Text("passive"),
            Some(false) => Cell::Text("active"),
            None => Cell::Unset,
        });
        "completion_code": written(|values, out| replies(values, |code, _| code, out));
        "reply": written(|values, out| replies(values, |_, text| text, out));
        "reply_truncated": made(|values| {
            Cell::Bool(
                values
                    .text(Name::reply_msg)
                    .is_some_and(|it| it.len() > MAX_REPLY),
            )
        });
        "reply_received": made(|values| match values.text(Name::state) {
            Some("no_reply") => Cell::Text("no"),
            _ => Cell::Text("yes"),
        });
    };
};

/// A part of each line of the replies to a command.
fn replies(values: &Values<'_>, part: for<'a> fn(&'a str, &'a str) -> &'a str, out: &mut Vec<u8>) {
    if let Some(lines) = values.texts(Name::reply_lines) {
        list(lines.iter(), out, |line, out| {
            let (code, text) = line.split_once(' ').unwrap_or((line, ""));
            text_behind(b"\"", part(code, text), out);
        });
    }
}

pub(super) static FTP_DATA: &[Member] = members! {
    "ftp_data": object {
        "command": text(command);
        "filename": text(file_name);
    };
};

pub(super) static DHCP: &[Member] = members! {
    "dhcp": object {
        "type": made(|values| match values.is_reply() {
            true => Cell::Text("reply"),
            false => Cell::Text("request"),
        });
        "id": number(trans_id);
        "client_mac": text(mac);
        "assigned_ip": made(|values| match values.is_reply() {
            true => address(values, Name::assigned_addr),
            false => NO_ADDRESS,
        });
        "client_ip": made(|values| address(values, Name::client_addr));
        "relay_ip": made(|values| of_reply(values, address(values, Name::relay_addr)));
        "next_server_ip": made(|values| of_reply(values, address(values, Name::next_server)));
        "dhcp_type": made(|values| text(values, values.half([Name::request, Name::reply])));
        "client_id": made(|values| of_request(values, text(values, Name::client_id)));
        "hostname": text(host_name);
        "requested_ip": made(|values| match values.address(Name::requested_addr) {
            Some(_) => of_request(values, address(values, Name::requested_addr)),
            None => Cell::Unset,
        });
        "params": written(parameters);
        "vendor_class_identifier": made(|values| of_request(values, text(values, Name::vendor_class)));
        "lease_time": made(|values| time(values, Name::lease_time));
        "renewal_time": made(|values| time(values, Name::renewal_time));
        "rebinding_time": made(|values| time(values, Name::rebinding_time));
        "subnet_mask": made(|values| match values.address(Name::subnet_mask) {
            Some(_) => of_reply(values, address(values, Name::subnet_mask)),
            None => Cell::Unset,
        });
        "routers": made(|values| of_reply(values, texts(values, Name::routers)));
        "dns_servers": made(|values| of_reply(values, texts(values, Name::dns_servers)));
    };
};

/// What is written where there is no address.
const NO_ADDRESS: Cell<'static> = Cell::Text("0.0.0.0");

fn address<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match values.address(name) {
        Some((address, version)) => Cell::Address(address, version),
        None => NO_ADDRESS,
    }
}

fn text<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::of(values.text(name), Cell::Text)
}

fn texts<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    Cell::of(values.texts(name), Cell::Texts)
}

/// What only replies have.
fn of_reply<'a>(values: &Values<'a>, cell: Cell<'a>) -> Cell<'a> {
    match values.is_reply() {
        true => cell,
        false => Cell::Unset,
    }
}

/// What only requests have.
fn of_request<'a>(values: &Values<'a>, cell: Cell<'a>) -> Cell<'a> {
    match values.is_reply() {
        true => Cell::Unset,
        false => cell,
    }
}

/// A time that a reply tells; of a request without one, what it asks for.
fn time<'a>(values: &Values<'a>, name: Name) -> Cell<'a> {
    match values.is_reply() || values.text(Name::state) == Some("no_reply") {
        true => Cell::of(values.number(name), Cell::Number),
        false => Cell::Unset,
    }
}

/// Names of the options that a client wants, of those that have one.
fn parameters(values: &Values<'_>, out: &mut Vec<u8>) {
    let name = |number: &u64| {
        Some(match number {
            1 => "subnet_mask",
            3 => "router",
            6 => "dns_server",
            15 => "domain",
            35 => "arp_timeout",
            42 => "ntp_server",
            66 => "tftp_server_name",
            150 => "tftp_server_ip",
            _ => return None,
        })
    };
    let numbers = values.numbers(Name::parameters);
    if !numbers.is_empty() && !values.is_reply() {
        let names = numbers.iter().filter_map(name);
        list(names, out, |name, out| text_behind(b"\"", name, out));
    }
}

pub(super) static SNMP: &[Member] = members! {
    "snmp": object {
        "version": made(|values| {
            let version = values
                .text(Name::version)
                .and_then(|text| text.bytes().next());
            let digit = version.filter(u8::is_ascii_digit);
            Cell::of(digit, |digit| Cell::Number(u64::from(digit - b'0')))
        });
        "pdu_type": made(|values| {
            Cell::Text(match values.text(values.half([Name::request, Name::reply])) {
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
        });
        "community": text(community);
        "usm": text(user);
        "vars": made(|values| Cell::of(values.text(Name::oid), Cell::One));
    };
};

pub(super) static RPC: &[Member] = members! {
    "rpc": object {
        "xid": number(xid);
        "status": made(|values| {
            Cell::of(values.text(Name::outcome), |outcome| match outcome {
                "rpc_mismatch" | "auth_error" => Cell::Text("DENIED"),
                _ => Cell::Text("ACCEPTED"),
            })
        });
        "auth_type": made(|values| {
            Cell::of(values.text(Name::auth), |auth| match auth {
                "none" => Cell::Text("NULL"),
                "sys" => Cell::Text("UNIX"),
                "gss" => Cell::Text("GSS_API"),
                other => Cell::Upper(other),
            })
        });
        "creds": object {
            "machine_name": text(machine);
            "uid": number(uid);
            "gid": number(gid);
        };
    };
};

pub(super) static JA3: &[Member] = members! {
    "hash": text(ja3);
    "string": text(ja3_text);
};
pub(super) static JA3S: &[Member] = members! {
    "hash": text(ja3s);
    "string": text(ja3s_text);
};

pub(super) static QUIC: &[Member] = members! {
    "quic": object {
        "version": text(version);
        "sni": text(server_name);
        "ja3": object(JA3);
        "ja4": text(ja4);
        "extensions": written(extensions);
    };
};
pub(super) static QUIC_REPLY: &[Member] = members! {
    "quic": object {
        "version": text(version);
        "ja3s": object(JA3S);
        "extensions": written(extensions);
    };
};

/// Names of the extensions of a hello, by their numbers (IANA).
const EXTENSIONS: &[(u16, &str)] = &[
    (0, "server_name"),
    (1, "max_fragment_length"),
    (5, "status_request"),
    (10, "supported_groups"),
    (11, "ec_point_formats"),
    (13, "signature_algorithms"),
    (14, "use_srtp"),
    (15, "heartbeat"),
    (16, "alpn"),
    (17, "status_request_v2"),
    (18, "signed_certificate_timestamp"),
    (21, "padding"),
    (22, "encrypt_then_mac"),
    (23, "extended_master_secret"),
    (24, "token_binding"),
    (27, "compress_certificate"),
    (28, "record_size_limit"),
    (34, "delegated_credentials"),
    (35, "session_ticket"),
    (41, "pre_shared_key"),
    (42, "early_data"),
    (43, "supported_versions"),
    (44, "cookie"),
    (45, "psk_key_exchange_modes"),
    (47, "certificate_authorities"),
    (49, "post_handshake_auth"),
    (50, "signature_algorithms_cert"),
    (51, "key_share"),
    (54, "connection_id"),
    (57, "quic_transport_parameters"),
    (65281, "renegotiation_info"),
];

/// The extensions of a hello.
fn extensions(values: &Values<'_>, out: &mut Vec<u8>) {
    let is_reply = values.is_reply();
    let numbers = values.numbers(values.half([Name::client_extensions, Name::server_extensions]));
    if numbers.is_empty() {
        return;
    }
    list(numbers.iter().copied(), out, |number, out| {
        out.push(b'{');
        if let Some((_, name)) = EXTENSIONS.iter().find(|it| u64::from(it.0) == number) {
            text_behind(b"\"name\":\"", name, out);
            out.push(b',');
        }
        out.extend_from_slice(b"\"type\":");
        write_unsigned(out, number);
        let said = match number {
            _ if is_reply => Cell::Unset,
            0 => Cell::of(values.text(Name::server_name), Cell::One),
            16 => Cell::of(values.texts(Name::client_protocols), Cell::Texts),
            _ => Cell::Unset,
        };
        if !said.is_unset() {
            out.extend_from_slice(b",\"values\":");
            said.write::<true>(&mut TimeWriter::default(), out);
        }
        out.push(b'}');
    });
}

pub(super) static NTP: &[Member] = members! {
    "ntp": object {
        "version": number(version);
        "mode": made(|values| {
            let mode = values.text(Name::mode).and_then(ntp_mode);
            Cell::of(mode, |mode| Cell::Number(mode.into()))
        });
        "stratum": number(stratum);
        "reference_id": written(reference);
    };
};

/// Four bytes: an address, or up to four characters.
fn reference(values: &Values<'_>, out: &mut Vec<u8>) {
    if values.number(Name::stratum).is_none() {
        return;
    }
    let text = values.text(Name::ref_id).unwrap_or_default();
    let octets = text.parse::<Ipv4Addr>().map(|it| it.octets());
    let bytes = octets.unwrap_or_else(|_| {
        let mut bytes = [0; 4];
        bytes
            .iter_mut()
            .zip(text.bytes())
            .for_each(|(place, byte)| *place = byte);
        bytes
    });
    for (n, byte) in bytes.iter().enumerate() {
        out.push(if n == 0 { b'"' } else { b':' });
        write_hex_bytes(out, &[*byte]);
    }
    out.push(b'"');
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
