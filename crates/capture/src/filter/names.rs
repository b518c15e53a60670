//! Names of hosts and networks in expressions. libpcap would resolve them through the system, that is, by asking
//! servers, whose operators would learn what is monitored. Expressions with such names are therefore not passed to
//! libpcap.
//!
//! Whether a word is a name depends on libpcap's version, which may have more keywords than this file. libpcap itself
//! is asked, in a context where names are never resolved (`type NAME`, of 802.11).
//!
//! The meaning of a name is determined by the preceding words (`dst net NAME`), or without any by the previous name
//! (`host 192.0.2.1 or NAME`). Ports and protocols are looked up in local files, and may have names.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use flowgauge_sys::libpcap;

/// Words behind which a name is that of a host or a network. Behind a direction alone it is one of a host.
const OF_HOSTS: [&str; 15] = [
    "host", "net", "gateway", "src", "dst", "ra", "ta", "addr1", "addr2", "addr3", "addr4",
    "address1", "address2", "address3", "address4",
];

/// Words behind which a name is another's.
const OF_OTHERS: [&str; 4] = ["port", "portrange", "proto", "protochain"];

/// Words that change nothing of what names mean.
const JOINS: [&str; 4] = ["and", "or", "not", "mask"];

/// IEEE 802.11.
const WIRELESS: i32 = 105;

/// The first name of a host or a network in `expression` that libpcap would look up, and where it stands.
pub(crate) fn named_host(expression: &str) -> Option<(usize, &str)> {
    // Whether a name would be one of a host, here and in front of each open parenthesis.
    let (mut is_host, mut outer) = (false, Vec::new());
    // Behind an operand there is no name: libpcap says that this is wrong.
    let mut is_awaited = true;
    let mut keywords = Vec::new();
    for (start, token) in Tokens::of(expression) {
        match token {
            Token::Sign('(') => {
                outer.push(is_host);
                is_awaited = true;
            }
            Token::Sign(')') => {
                // Which of the two counts behind it depends on libpcap's version.
                is_host |= outer.pop().unwrap_or(false);
                is_awaited = false;
            }
            Token::Sign(_) => is_awaited = true,
            Token::Address => is_awaited = false,
            Token::Word(word) if OF_HOSTS.contains(&word) => (is_host, is_awaited) = (true, true),
            Token::Word(word) if OF_OTHERS.contains(&word) => is_host = false,
            Token::Word(word) if JOINS.contains(&word) => is_awaited = true,
            Token::Word(_) | Token::Escaped(_) if !is_host => {}
            Token::Word(word) if keywords.contains(&word) => is_host = false,
            Token::Word(word) if !is_read_as_name(word) => {
                keywords.push(word);
                is_host = false;
            }
            Token::Word(name) | Token::Escaped(name) if is_awaited => return Some((start, name)),
            Token::Word(_) | Token::Escaped(_) => {}
        }
    }
    None
}

/// Whether libpcap takes a word for a name: not for one of its keywords.
fn is_read_as_name(word: &str) -> bool {
    match libpcap::compile(&format!("type {word}"), WIRELESS, 96, None) {
        Ok(_) => true,
        Err(message) => !message.contains("syntax error"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A keyword or a name.
    Word(&'a str),
    /// What is a name even if it is a keyword.
    Escaped(&'a str),
    /// A number or an address.
    Address,
    Sign(char),
}

/// What libpcap's scanner divides an expression into.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Tokens<'a> {
        Tokens { text, at: 0 }
    }

    /// The first token, and its length.
    fn token(rest: &'a str, first: char) -> (Token<'a>, usize) {
        if first == '\\' {
            let name = rest.get(1..).unwrap_or_default();
            let name = before(name, |one| {
                !matches!(one, ' ' | '!' | '(' | ')' | '\n' | '\t')
            });
            return match name {
                "" => (Token::Sign(first), 1),
                name => (Token::Escaped(name), 1 + name.len()),
            };
        }
        if first == '$' {
            let digits = before(rest.get(1..).unwrap_or_default(), |one| {
                one.is_ascii_hexdigit()
            });
            return (Token::Address, 1 + digits.len().min(2));
        }
        let long = before(rest, |one| {
            one.is_ascii_alphanumeric() || ".-_:".contains(one)
        });
        let is_address = long.parse::<Ipv6Addr>().is_ok() || is_hardware_address(long);
        if long.contains(':') && is_address {
            return (Token::Address, long.len());
        }
        if !first.is_ascii_alphanumeric() {
            return (Token::Sign(first), first.len_utf8());
        }
        let word = before(long, |one| one != ':').trim_end_matches(['-', '_']);
        let token = match is_hardware_address(word) || is_number(word) {
            true => Token::Address,
            false => Token::Word(word),
        };
        (token, word.len())
    }
}

impl<'a> Iterator for Tokens<'a> {
    /// And where it begins.
    type Item = (usize, Token<'a>);

    fn next(&mut self) -> Option<(usize, Token<'a>)> {
        let rest = self.text.get(self.at..)?;
        let start = self.text.len() - rest.trim_start_matches([' ', '\r', '\n', '\t']).len();
        let rest = self.text.get(start..)?;
        let (token, len) = Tokens::token(rest, rest.chars().next()?);
        self.at = start + len;
        Some((start, token))
    }
}

/// The beginning of a text whose characters are all such.
fn before(text: &str, is: impl Fn(char) -> bool) -> &str {
    let end = text.find(|one| !is(one)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// A number, or up to four with dots between.
fn is_number(word: &str) -> bool {
    let is_one = |part: &str| {
        let hexadecimal = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
        let (digits, radix) = hexadecimal.map_or((part, 10), |digits| (digits, 16));
        !digits.is_empty() && digits.chars().all(|one| one.is_digit(radix))
    };
    word.split('.').count() <= 4 && word.split('.').all(is_one)
}

/// Six bytes with `:`, `-` or `.` between, three pairs of them with `.`, or all without.
fn is_hardware_address(word: &str) -> bool {
    let has = |separator, parts, digits: RangeInclusive<usize>| {
        let all = word.split(separator);
        all.clone().count() == parts
            && all
                .into_iter()
                .all(|part: &str| digits.contains(&part.len()))
    };
    let is_hexadecimal = |one: u8| one.is_ascii_hexdigit() || matches!(one, b':' | b'-' | b'.');
    word.bytes().all(is_hexadecimal)
        && (has(':', 6, 1..=2)
            || has('-', 6, 1..=2)
            || has('.', 6, 1..=2)
            || has('.', 3, 4..=4)
            || word.len() == 12 && has(':', 1, 12..=12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_nothing_else() {
        for (expression, name) in [
            ("host www.example.com", Some("www.example.com")),
            ("tcp and not src localhost", Some("localhost")),
            ("(host 1.2.3.4 or b.example) and tcp", Some("b.example")),
            ("dst net loopback", Some("loopback")),
            ("host 192.0.2.1 or sensor", Some("sensor")),
            ("host 192.0.2.1 or not sensor", Some("sensor")),
            ("host 192.0.2.1 or !sensor", Some("sensor")),
            ("host 192.0.2.1||sensor", Some("sensor")),
            ("dst 192.0.2.1 and sensor", Some("sensor")),
            ("src or dst host sensor", Some("sensor")),
            ("src and dst sensor", Some("sensor")),
            ("net sensor", Some("sensor")),
            ("net 192.0.2.0/24 or sensor", Some("sensor")),
            ("net 192.0.2.0 mask 255.255.255.0 or sensor", Some("sensor")),
            ("gateway sensor", Some("sensor")),
            ("ether host sensor", Some("sensor")),
            ("ether host 00:00:5e:00:53:01 or sensor", Some("sensor")),
            ("ether dst 00005e005301 or sensor", Some("sensor")),
            ("wlan addr1 sensor", Some("sensor")),
            ("(host 192.0.2.1) or sensor", Some("sensor")),
            ("host 192.0.2.1 and (port 80) or sensor", Some("sensor")),
            ("host (192.0.2.1 or sensor)", Some("sensor")),
            ("host ::1 or sensor", Some("sensor")),
            ("tcp port 80 and host 192.0.2.1 or sensor", Some("sensor")),
            // What is escaped is a name, keyword or not.
            ("host \\tcp", Some("tcp")),
            ("host 192.0.2.1 or \\fe80::1", Some("fe80::1")),
            // These begin like numbers and addresses.
            ("host 192.0.2.1.2", Some("192.0.2.1.2")),
            ("host 192.0.2.1.", Some("192.0.2.1.")),
            ("host 3com", Some("3com")),
            ("host 80-90", Some("80-90")),
            ("host cafe:babe", Some("cafe")),
            ("host sensor-", Some("sensor")),
            ("host a-b-c-d-e-f or a-b-c-d-e-g", Some("a-b-c-d-e-g")),
            ("src or dst port http", None),
            ("ip src host 10.0.0.1 and dst portrange 1-3", None),
            ("host 192.0.2.1 or ::1 or tcp port domain", None),
            ("host 192.0.2.1 and port http or domain", None),
            ("host fe80::1 or net 2001:db8::/32", None),
            ("host ::ffff:192.0.2.1 or host 0x7f.1", None),
            (
                "ether host 00:00:5e:00:53:01 or ether src aabb.ccdd.eeff",
                None,
            ),
            ("ether dst aa-bb-cc-dd-ee-ff or ether src a.b.c.d.e.f", None),
            ("ether host $ab", None),
            ("host 192.0.2.1 and wlan type mgt subtype beacon", None),
            (
                "host 192.0.2.1 and ip proto \\icmp and tcp[tcpflags] & tcp-syn != 0",
                None,
            ),
            ("host 192.0.2.1 and icmp[icmptype] = icmp-echo", None),
            ("host 192.0.2.1 and ether[0:4] = 0xcafe and len > 5", None),
            ("host 192.0.2.1 and llc u and on eth0", None),
            ("ip.src == 192.0.2.1", None),
            ("tcp port 80 and host and udp", None),
            // A syntax error, and libpcap says which.
            ("host 192.0.2.1 AND sensor", None),
            ("tcp and sensor", None),
        ] {
            let found = named_host(expression);
            assert_eq!(found.map(|(_, name)| name), name, "{expression}");
            if let Some((start, name)) = found {
                assert!(
                    expression[start..]
                        .trim_start_matches('\\')
                        .starts_with(name)
                );
            }
        }
    }
}
