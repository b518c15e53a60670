//! Texts that logs of others have in another form than records.

use core::net::IpAddr;
use std::borrow::Cow;

use flowgauge_proto::dns::type_number;
use flowgauge_record::Texts;

use crate::protocols::ftp;

/// Percent-encoded bytes as they are (RFC 3986, section 2.1), where that is text.
pub(super) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|it| str::from_utf8(it).ok());
        let digits = digits.filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// What an answer of DNS comes to in Zeek's logs: of types with a name the name, of texts their lengths, too; `None`:
/// it is not told.
pub(super) fn short_answer(text: &str, kind: &str) -> Option<String> {
    let word = |place: usize| text.split(' ').nth(place).unwrap_or(text);
    Some(match kind {
        "MX" => word(1).to_owned(),
        "SRV" => word(3).to_owned(),
        "SOA" => word(0).to_owned(),
        "TXT" | "SPF" => {
            let strings = quoted_strings(text);
            let strings = strings.iter().map(|it| format!("{kind} {} {it}", it.len()));
            strings.collect::<Vec<_>>().join(" ")
        }
        "NAPTR" => {
            let strings = quoted_strings(text);
            let filled = strings
                .iter()
                .map(String::as_str)
                .filter(|it| !it.is_empty());
            let last = text.rsplit(' ').next().unwrap_or_default();
            let words = ["NAPTR", word(0), word(1)]
                .into_iter()
                .chain(filled)
                .chain([last]);
            words.collect::<Vec<_>>().join(" ")
        }
        "RRSIG" => {
            let covered = type_number(word(0)).unwrap_or_default();
            format!("RRSIG {covered} {}", word(7).trim_end_matches('.'))
        }
        "DNSKEY" => format!("DNSKEY {}", word(2)),
        "DS" => format!("DS {} {}", word(1), word(2)),
        "NSEC3" | "NSEC3PARAM" => kind.to_owned(),
        "WKS" | "TKEY" | "TSIG" => return None,
        _ => text.to_owned(),
    })
}

/// Times to live of the answers that are told.
pub(super) fn told_ttls<'a>(
    texts: Texts<'a>,
    types: Texts<'a>,
    spans: &'a [u64],
) -> impl Iterator<Item = u64> {
    let all = texts.iter().zip(types.iter()).zip(spans);
    let told = all.filter(|((text, kind), _)| short_answer(text, kind).is_some());
    told.map(|(_, span)| *span)
}

/// A name of X.509, the last part first (RFC 2253).
pub(super) fn distinguished(text: &str) -> String {
    // What looks like the next part begins one.
    let begins = |rest: &str| {
        let name = rest.split_once('=').map_or("", |it| it.0);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        !name.is_empty() && name.bytes().all(is_name)
    };
    let mut parts: Vec<&str> = Vec::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = rest.get(from..).and_then(|it| it.find(", ")) {
        let (part, next) = (&rest[..from + at], &rest[from + at + 2..]);
        if begins(next) {
            parts.push(part);
            (rest, from) = (next, 0);
        } else {
            from += at + 2;
        }
    }
    parts.push(rest);
    let short = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or(("", part));
        let name = match name {
            "streetAddress" => "street",
            "Email" => "emailAddress",
            name => name,
        };
        let mut value = value.replace('\\', "\\\\");
        for letter in [',', '+', '"', '<', '>', ';'] {
            value = value.replace(letter, &format!("\\{letter}"));
        }
        format!("{name}={value}")
    };
    parts
        .iter()
        .rev()
        .map(|part| short(part))
        .collect::<Vec<_>>()
        .join(",")
}

/// Strings between quotation marks, with `\"` and `\123` within (RFC 1035, section 5.1).
pub(super) fn quoted_strings(text: &str) -> Vec<String> {
    let mut strings = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (&mut open, byte) {
            (None, b'"') => open = Some(Vec::new()),
            (None, _) => {}
            (Some(string), b'"') => {
                strings.push(String::from_utf8_lossy(string).into_owned());
                open = None;
            }
            (Some(string), b'\\') => {
                let digits = rest.get(..3).and_then(|it| str::from_utf8(it).ok());
                match digits.and_then(|it| it.parse::<u8>().ok()) {
                    Some(byte) => {
                        string.push(byte);
                        rest = rest.get(3..).unwrap_or_default();
                    }
                    None => {
                        string.extend(rest.first());
                        rest = rest.get(1..).unwrap_or_default();
                    }
                }
            }
            (Some(string), byte) => string.push(byte),
        }
    }
    strings
}

/// A file of a server, from the directory that a client is in.
pub(super) fn ftp_url(server: IpAddr, directory: &str, name: &str) -> String {
    let path = ftp::joined(directory, name);
    let slash = if path.starts_with('/') { "" } else { "/" };
    match server {
        IpAddr::V4(server) => format!("ftp://{server}{slash}{path}"),
        IpAddr::V6(server) => format!("ftp://[{server}]{slash}{path}"),
    }
}

/// Addresses in a text, with or without brackets around them.
pub(super) fn addresses_in(text: &str) -> impl Iterator<Item = IpAddr> {
    let is_apart = |letter: char| !(letter.is_ascii_hexdigit() || letter == '.' || letter == ':');
    let words = text.split(is_apart).map(|word| word.trim_matches('.'));
    words
        .filter(|word| word.len() >= 7 || word.contains("::"))
        .filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_in_short() {
        for (text, kind, short) in [
            ("192.0.2.1", "A", Some("192.0.2.1")),
            ("10 mx.example", "MX", Some("mx.example")),
            ("0 5 22 a.local", "SRV", Some("a.local")),
            ("a.example b.example 1 2 3 4 5", "SOA", Some("a.example")),
            (
                "\"v=1 a\" \"\\\"\\195\\169\"",
                "TXT",
                Some("TXT 5 v=1 a TXT 3 \"é"),
            ),
            (
                "A 8 2 60 1 2 3 a.example. AAAA",
                "RRSIG",
                Some("RRSIG 1 a.example"),
            ),
            ("1 0 10 -", "NSEC3PARAM", Some("NSEC3PARAM")),
            ("x", "WKS", None),
        ] {
            assert_eq!(short_answer(text, kind).as_deref(), short, "{text}");
        }
    }

    #[test]
    fn addresses_are_found_in_header_fields() {
        let field =
            "from a.example (a.example [216.58.97.33]) by b (2001:db8::5) with SMTP; 12:55:34";
        let found: Vec<String> = addresses_in(field).map(|it| it.to_string()).collect();
        assert_eq!(found, ["216.58.97.33", "2001:db8::5"]);
    }
}
