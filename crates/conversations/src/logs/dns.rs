//! Suricata's events of DNS, and those of multicast DNS and LLMNR, which are much the same.

use core::net::Ipv6Addr;

use flowgauge_record::text::{TimeWriter, write_hex_bytes, write_json_escaped, write_unsigned};
use flowgauge_wire::Address;

use super::eve::{Member, members, position, text_behind};
use super::values::{Cell, Name, Values, list, write_whole_address};

/// The members of an event of one of the services of names.
pub(super) fn members(values: &Values<'_>) -> &'static [Member] {
    match values.text(Name::service) {
        Some("mdns") => MDNS,
        Some("llmnr") => LLMNR,
        Some("nbns") => NBNS,
        _ => DNS,
    }
}

pub(super) static DNS: &[Member] = members! {
    "dns": object(ITSELF);
};
static MDNS: &[Member] = members! {
    "mdns": object(LOCAL);
};
static LLMNR: &[Member] = members! {
    "llmnr": object(LOCAL);
};
/// Suricata has no events of these: they have the members of DNS.
static NBNS: &[Member] = members! {
    "nbns": object(ITSELF);
};

static ITSELF: &[Member] = members! {
    "version": made(|_| Cell::Number(3));
    "type": made(kind);
    "tx_id": made(|values| position(values, values.half([Name::request_place, Name::reply_place])));
    "id": number(trans_id);
    "flags": made(|values| Cell::of(flags(values), |flags| Cell::Hex(flags, 0)));
    "qr": made(|values| flag(values, 0x8000));
    "aa": made(|values| flag(values, 0x0400));
    "tc": made(|values| flag(values, 0x0200));
    "rd": made(|values| flag(values, 0x0100));
    "ra": made(|values| flag(values, 0x0080));
    "z": made(|values| flag(values, 0x0040));
    "opcode": made(opcode);
    "rcode": made(rcode);
    "queries": written(|values, out| queries(values, false, out));
    "answers": written(|values, out| answers(values, false, out));
    "authorities": written(|values, out| others(values, Name::authorities, false, out));
    "additionals": written(|values, out| others(values, Name::additionals, false, out));
    "grouped": written(grouped);
};

/// Of services on the link.
static LOCAL: &[Member] = members! {
    "type": made(kind);
    "id": number(trans_id);
    "opcode": made(opcode);
    "rcode": made(rcode);
    "queries": written(|values, out| queries(values, true, out));
    "answers": written(|values, out| answers(values, true, out));
    "authorities": written(|values, out| others(values, Name::authorities, true, out));
    "additionals": written(|values, out| others(values, Name::additionals, true, out));
};

fn kind<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::Text(if values.is_reply() {
        "response"
    } else {
        "request"
    })
}

fn flags(values: &Values<'_>) -> Option<u64> {
    values.number(values.half([Name::request_flags, Name::reply_flags]))
}

fn flag<'a>(values: &Values<'a>, bit: u64) -> Cell<'a> {
    match flags(values).is_some_and(|flags| flags & bit != 0) {
        true => Cell::Bool(true),
        false => Cell::Unset,
    }
}

fn opcode<'a>(values: &Values<'a>) -> Cell<'a> {
    Cell::of(flags(values), |flags| Cell::Number(flags >> 11 & 0xf))
}

fn rcode<'a>(values: &Values<'a>) -> Cell<'a> {
    match values.is_reply() {
        true => Cell::of(values.text(Name::rcode), Cell::Text),
        // Queries have none, though there is a place for it.
        false => Cell::Text("NOERROR"),
    }
}

/// A record: its name, time to live, type, and what it says in the form of zone files.
#[derive(Clone, Copy)]
struct Record<'a> {
    name: &'a str,
    ttl: u64,
    kind: &'a str,
    data: &'a str,
}

fn write_kind(kind: &str, is_local: bool, out: &mut Vec<u8>) {
    let start = out.len();
    write_json_escaped(out, kind);
    if is_local && let Some(kind) = out.get_mut(start..) {
        kind.make_ascii_lowercase();
    }
}

fn queries(values: &Values<'_>, is_local: bool, out: &mut Vec<u8>) {
    if let Some(query) = values.text(Name::query) {
        text_behind(b"[{\"rrname\":\"", query, out);
        if let Some(kind) = values.text(Name::qtype) {
            out.extend_from_slice(b",\"rrtype\":\"");
            write_kind(kind, is_local, out);
            out.push(b'"');
        }
        out.extend_from_slice(b"}]");
    }
}

/// The answers of a reply.
fn of_answers<'a>(values: &Values<'a>) -> impl Iterator<Item = Record<'a>> + use<'a> {
    let texts = [Name::answers, Name::answer_types, Name::answer_names];
    let of_reply = values.is_reply();
    let texts = texts.map(|name| values.texts(name).filter(|_| of_reply));
    let [data, kinds, names] = texts.map(|texts| texts.into_iter().flat_map(|it| it.iter()));
    let ttls = values.numbers(Name::ttls).iter();
    let records = data.zip(kinds).zip(names).zip(ttls);
    records.map(|(((data, kind), name), ttl)| Record {
        name,
        ttl: *ttl,
        kind,
        data,
    })
}

/// Those of another section.
fn of_section<'a>(
    values: &Values<'a>,
    section: Name,
) -> impl Iterator<Item = Record<'a>> + use<'a> {
    let texts = values.texts(section).filter(|_| values.is_reply());
    let texts = texts.into_iter().flat_map(|texts| texts.iter());
    texts.filter_map(|text| {
        let mut parts = text.splitn(4, ' ');
        Some(Record {
            name: parts.next()?,
            ttl: parts.next()?.parse().ok()?,
            kind: parts.next()?,
            data: parts.next()?,
        })
    })
}

fn answers(values: &Values<'_>, is_local: bool, out: &mut Vec<u8>) {
    records(of_answers(values), is_local, out);
}

fn others(values: &Values<'_>, section: Name, is_local: bool, out: &mut Vec<u8>) {
    records(of_section(values, section), is_local, out);
}

/// Appends a list of records, if there are any.
fn records<'a>(records: impl Iterator<Item = Record<'a>>, is_local: bool, out: &mut Vec<u8>) {
    let mut records = records.peekable();
    if records.peek().is_none() {
        return;
    }
    list(records, out, |record, out| {
        text_behind(b"{\"rrname\":\"", record.name, out);
        if is_local {
            out.extend_from_slice(b",\"");
            write_kind(record.kind, true, out);
            out.extend_from_slice(b"\":");
        } else {
            text_behind(b",\"rrtype\":\"", record.kind, out);
            out.extend_from_slice(b",\"ttl\":");
            write_unsigned(out, record.ttl);
            let name = match record.kind {
                kind @ ("SOA" | "SRV" | "SSHFP") => kind,
                _ => "rdata",
            };
            out.extend_from_slice(b",\"");
            out.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
            out.extend_from_slice(b"\":");
        }
        data(&record, out);
        out.push(b'}');
    });
}

/// What the answers say, by their types.
fn grouped(values: &Values<'_>, out: &mut Vec<u8>) {
    const KINDS: [&str; 11] = [
        "A", "AAAA", "CNAME", "MX", "NS", "NULL", "PTR", "SOA", "SRV", "SSHFP", "TXT",
    ];
    let start = out.len();
    for kind in KINDS {
        let mut records = of_answers(values)
            .filter(|record| record.kind == kind)
            .peekable();
        if records.peek().is_some() {
            out.extend_from_slice(if out.len() == start { b"{\"" } else { b",\"" });
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(b"\":");
            list(records, out, |record, out| data(&record, out));
        }
    }
    if out.len() > start {
        out.push(b'}');
    }
}

/// Appends what a record says: an object of the parts of some types, of others text.
fn data(record: &Record<'_>, out: &mut Vec<u8>) {
    let text = record.data;
    let mut words = text.split(' ');
    // The name of each word, and whether it is a number.
    let parts: &[(&str, bool)] = match record.kind {
        "SOA" => &[
            ("mname", false),
            ("rname", false),
            ("serial", true),
            ("refresh", true),
            ("retry", true),
            ("expire", true),
            ("minimum", true),
        ],
        "SRV" => &[
            ("priority", true),
            ("weight", true),
            ("port", true),
            ("name", false),
        ],
        "SSHFP" => &[("algo", true), ("type", true), ("fingerprint", false)],
        _ => &[],
    };
    if !parts.is_empty() && words.clone().count() == parts.len() {
        out.push(b'{');
        for (n, ((name, is_number), word)) in parts.iter().zip(words).enumerate() {
            out.extend_from_slice(if n == 0 { b"\"" } else { b",\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            match (is_number, word.parse()) {
                (true, Ok(number)) => write_unsigned(out, number),
                _ if record.kind == "SSHFP" => {
                    Cell::Colons(word).write::<true>(&mut TimeWriter::default(), out);
                }
                _ => text_behind(b"\"", word, out),
            }
        }
        return out.push(b'}');
    }
    out.push(b'"');
    match record.kind {
        "AAAA" => match text.parse::<Ipv6Addr>() {
            Ok(address) => write_whole_address(out, Address(address.octets()), 6),
            Err(_) => write_json_escaped(out, text),
        },
        "MX" => write_json_escaped(out, words.next_back().unwrap_or(text)),
        "TXT" => unquoted(text, out),
        // Of no known form (RFC 3597): its bytes.
        _ if text.starts_with("\\# ") => {
            let digits = words.nth(2).unwrap_or_default();
            let pairs = digits.as_bytes().chunks_exact(2);
            for pair in pairs {
                let pair = core::str::from_utf8(pair).unwrap_or_default();
                byte(u8::from_str_radix(pair, 16).unwrap_or_default(), out);
            }
        }
        _ => write_json_escaped(out, text),
    }
    out.push(b'"');
}

/// Appends a byte within a text; one that is not ASCII as `\xc5`.
fn byte(byte: u8, out: &mut Vec<u8>) {
    match byte.is_ascii() {
        true => write_json_escaped(out, char::from(byte).encode_utf8(&mut [0; 4])),
        false => {
            out.extend_from_slice(b"\\\\x");
            write_hex_bytes(out, &[byte]);
        }
    }
}

/// Appends strings between quotation marks without these, one behind the other.
fn unquoted(text: &str, out: &mut Vec<u8>) {
    let mut chars = text.chars();
    let mut is_within = false;
    while let Some(char) = chars.next() {
        match char {
            '"' => is_within = !is_within,
            ' ' if !is_within => {}
            '\\' => match chars.next() {
                Some(first @ '0'..='2') => {
                    let rest = chars.by_ref().take(2).fold(0, |number, digit| {
                        10 * number + digit.to_digit(10).unwrap_or(0)
                    });
                    byte((100 * first.to_digit(10).unwrap_or(0) + rest) as u8, out);
                }
                Some(char) => write_json_escaped(out, char.encode_utf8(&mut [0; 4])),
                None => {}
            },
            char => write_json_escaped(out, char.encode_utf8(&mut [0; 4])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_records_say_is_taken_apart_by_their_types() {
        for (kind, data, json) in [
            ("A", "192.0.2.1", "\"192.0.2.1\""),
            (
                "AAAA",
                "2001:db8::1",
                "\"2001:0db8:0000:0000:0000:0000:0000:0001\"",
            ),
            ("CNAME", "b.example", "\"b.example\""),
            ("MX", "10 mail.example", "\"mail.example\""),
            ("TXT", "\"a b\" \"c\\\"\\200\"", "\"a bc\\\"\\\\xc8\""),
            ("NULL", "\\# 3 41c503", "\"A\\\\xc5\\u0003\""),
            (
                "SRV",
                "20 1 5060 sip.example",
                "{\"priority\":20,\"weight\":1,\"port\":5060,\"name\":\"sip.example\"}",
            ),
            (
                "SSHFP",
                "1 1 198c34",
                "{\"algo\":1,\"type\":1,\"fingerprint\":\"19:8c:34\"}",
            ),
            (
                "SOA",
                "ns.example host.example 5 4 3 2 1",
                "{\"mname\":\"ns.example\",\"rname\":\"host.example\",\"serial\":5,\"refresh\":4,\
                 \"retry\":3,\"expire\":2,\"minimum\":1}",
            ),
            // Not in the form of its type.
            ("SRV", "\\# 1 00", "\"\\u0000\""),
        ] {
            let record = Record {
                name: "a.example",
                ttl: 60,
                kind,
                data,
            };
            let mut out = Vec::new();
            super::data(&record, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), json, "{kind} {data}");
        }
    }
}
