//! Protocols that are recognised and not read, by a complete, valid first message.
//!
//! A signature looks at what both sides said from the beginning, and says yes only where a message with which
//! the protocol begins is there from its first byte to its last. Where such a message is a few bytes that
//! others say, too, it needs the answer. None says more than its own bytes prove: that nothing else is
//! left is no evidence.

use core::ops::Deref;
use std::sync::LazyLock;

use flowgauge_proto::snmp::element;

use super::{Seen, Transport};

/// A protocol's signature.
struct Signature {
    name: &'static str,
    transport: Transport,
    carries: Carries,
    /// What one of the two sides must begin with; empty: with anything.
    begins: &'static [u8],
    is: fn(&Said<'_>) -> bool,
}

/// What was said.
struct Said<'a> {
    seen: &'a Seen<'a>,
}

impl<'a> Said<'a> {
    /// The initiator's first line.
    fn asked(&self) -> Option<Line<'a>> {
        line(self.seen.initiator)
    }

    /// The responder's.
    fn answered(&self) -> Option<Line<'a>> {
        line(self.seen.responder)
    }
}

/// A line, and what follows it.
type Line<'a> = (&'a [u8], &'a [u8]);

impl<'a> Deref for Said<'a> {
    type Target = Seen<'a>;

    fn deref(&self) -> &Seen<'a> {
        self.seen
    }
}

/// What can follow in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// Nothing but the protocol itself.
    Itself,
    /// TLS, when both sides agreed on it.
    Tls,
    /// Any other protocol.
    Any,
}

/// Signatures, as `"name" Transport Carries [first bytes, if these are known] => test;`.
macro_rules! signatures {
    { $($name:literal $transport:ident $carries:ident [$($begins:expr)?] => $is:expr;)* } => {
        &[$(Signature {
            name: $name,
            transport: Transport::$transport,
            carries: Carries::$carries,
            begins: signatures!(@ $($begins)?),
            is: $is,
        }),*]
    };
    (@) => { &[] };
    (@ $begins:expr) => { $begins };
}

/// By transport (UDP second) and first byte: the signatures that can be there, as bits by place in [`ALL`].
static BY_FIRST_BYTE: LazyLock<[[u64; 256]; 2]> = LazyLock::new(|| {
    let mut places = [[0; 256]; 2];
    for (is_udp, places) in [false, true].into_iter().zip(&mut places) {
        for (place, signature) in ALL.iter().enumerate() {
            let bit = u64::from(signature.transport.has(is_udp)) << place;
            if signature.begins.is_empty() {
                places.iter_mut().for_each(|places| *places |= bit);
            }
            for &byte in signature.begins {
                places[usize::from(byte)] |= bit;
            }
        }
    }
    places
});
const _: () = assert!(ALL.len() <= 64);

/// Names and transports.
pub(super) fn all() -> impl Iterator<Item = (&'static str, Transport)> {
    ALL.iter().map(|it| (it.name, it.transport))
}

/// The protocol that what was sent first has the signature of, and what can follow.
pub(super) fn by_content(seen: &Seen<'_>) -> Option<(&'static str, Carries)> {
    let places = &BY_FIRST_BYTE[usize::from(seen.is_udp)];
    let of = |bytes: &[u8]| bytes.first().map_or(0, |&first| places[usize::from(first)]);
    let mut left = of(seen.initiator) | of(seen.responder);
    let said = Said { seen };
    while left != 0 {
        let signature = ALL.get(left.trailing_zeros() as usize)?;
        if (signature.is)(&said) {
            return Some((signature.name, signature.carries));
        }
        left &= left - 1;
    }
    None
}

/// Whether one of the two begins like this.
fn either(seen: &Said<'_>, start: &[u8]) -> bool {
    any(seen, |bytes| bytes.starts_with(start))
}

/// Whether the first line of one of the two is such.
fn any_line(said: &Said<'_>, is: impl Fn(&[u8]) -> bool) -> bool {
    [said.asked(), said.answered()]
        .into_iter()
        .flatten()
        .any(|(line, _)| is(line))
}

/// Whether one of the two is such.
fn any(seen: &Said<'_>, is: impl Fn(&[u8]) -> bool) -> bool {
    is(seen.initiator) || is(seen.responder)
}

/// The first line, if all of it is there, and what follows it.
fn line(bytes: &[u8]) -> Option<Line<'_>> {
    let end = memchr::memchr(b'\n', bytes)?;
    let (line, rest) = bytes.split_at(end);
    Some((line.strip_suffix(b"\r").unwrap_or(line), &rest[1..]))
}

/// The first word of a line, and what follows the blank behind it.
fn word(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(end) => (&line[..end], &line[end + 1..]),
        None => (line, &[]),
    }
}

/// Whether the first word is one of these, in any case.
fn is_command(line: &[u8], commands: &[&str]) -> bool {
    let verb = word(line).0;
    let mut commands = commands.iter();
    commands.any(|it| it.as_bytes().eq_ignore_ascii_case(verb))
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

fn number(text: &[u8]) -> Option<usize> {
    core::str::from_utf8(text)
        .ok()
        .filter(|_| is_number(text))?
        .parse()
        .ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    let part = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_be_bytes(*part)))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*part))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    be32(bytes, at).map(u32::swap_bytes)
}

/// Whether these are records of TLS, of a connection captured mid-stream (RFC 8446, section 5.1): a complete one, followed by
/// the next if there is more, or one with the head of a handshake message; or on both sides the head of a record that is
/// longer than what was sent.
fn are_records(seen: &Said<'_>) -> bool {
    let sides = [seen.initiator, seen.responder].map(is_sure_record);
    sides.contains(&Some(true)) || sides == [Some(false); 2]
}

/// Whether more than the head says that a record begins these bytes; `None`: none does.
fn is_sure_record(bytes: &[u8]) -> Option<bool> {
    let record = |at: usize| {
        let [kind, 3, minor @ 0..=4] = *bytes.get(at..)?.first_chunk::<3>()? else {
            return None;
        };
        let len = be16(bytes, at + 3)?;
        let is_one = matches!(kind, 20..=23) && (1..=16_640).contains(&len);
        is_one.then_some((kind, minor, at + 5 + len))
    };
    let (kind, version, end) = record(0)?;
    let has_message = || {
        let head = be32(bytes, 5).map(|head| (head >> 24, head as usize & 0xff_ffff));
        head.is_some_and(|(kind, len)| {
            matches!(kind, 1 | 2 | 4 | 11..=16 | 20 | 22) && 9 + len <= end
        })
    };
    match bytes.len().checked_sub(end) {
        None => Some(kind == 22 && has_message()),
        Some(0) => Some(true),
        Some(_) => record(end).and_then(|(_, minor, _)| (minor == version).then_some(true)),
    }
}

/// RFC 1939, section 4: a greeting with words. What others answer with (Redis' `+OK`) has none.
fn is_pop3(seen: &Said<'_>) -> bool {
    const COMMANDS: &[&str] = &[
        "USER", "PASS", "APOP", "AUTH", "CAPA", "STLS", "UTF8", "LANG", "STAT", "LIST", "UIDL",
        "RETR", "TOP", "DELE", "NOOP", "RSET", "QUIT", "XTND",
    ];
    let answer = seen.answered().map(|(line, _)| line);
    // Without words only what a client of nothing else says tells.
    const OWN: &[&str] = &["USER", "APOP", "CAPA", "STLS", "UIDL", "RETR", "STAT"];
    let greets = answer.is_some_and(|line| word(line).0 == b"+OK" && !word(line).1.is_empty());
    let answers = answer.is_some_and(|line| matches!(word(line).0, b"+OK" | b"-ERR"));
    match seen.asked() {
        Some((line, _)) => greets && is_command(line, COMMANDS) || answers && is_command(line, OWN),
        None => greets && seen.initiator.is_empty(),
    }
}

/// RFC 9051, section 7.1: a greeting; the client, if it spoke, with a tag and a command.
fn is_imap(seen: &Said<'_>) -> bool {
    const COMMANDS: &[&str] = &[
        "CAPABILITY",
        "NOOP",
        "LOGOUT",
        "STARTTLS",
        "AUTHENTICATE",
        "LOGIN",
        "ID",
        "ENABLE",
        "SELECT",
        "EXAMINE",
        "LIST",
        "LSUB",
        "STATUS",
        "UID",
        "NAMESPACE",
        "COMPRESS",
        "IDLE",
        "APPEND",
        "FETCH",
        "SEARCH",
    ];
    let Some((greeting, _)) = seen.answered() else {
        return false;
    };
    let is_greeting = greeting.strip_prefix(b"* ").is_some_and(|rest| {
        let (word, text) = word(rest);
        matches!(word, b"OK" | b"PREAUTH" | b"BYE") && !text.is_empty()
    });
    let is_tag = |tag: &[u8]| !tag.is_empty() && tag.iter().all(u8::is_ascii_graphic);
    let asks = seen.asked().map(|(line, _)| {
        let (tag, command) = word(line);
        is_tag(tag) && is_command(command, COMMANDS)
    });
    match asks {
        Some(asks) => {
            asks && (is_greeting
                || greeting.starts_with(b"* ")
                || greeting.starts_with(word(seen.initiator).0))
        }
        None => is_greeting,
    }
}

/// RFC 2812, sections 2.3 and 3.1; `CAP` of IRCv3.
fn is_irc(seen: &Said<'_>) -> bool {
    let is_nick = |name: &[u8]| {
        let is_part = |byte: &u8| {
            byte.is_ascii_alphanumeric() || b"-_[]\\`^{}|".contains(byte) || *byte >= 0x80
        };
        !name.is_empty() && name.len() <= 64 && name.iter().all(is_part)
    };
    let client = |line: &[u8]| {
        let (verb, rest) = word(line);
        match verb.to_ascii_uppercase().as_slice() {
            b"NICK" => is_nick(rest.strip_prefix(b":").unwrap_or(rest)),
            b"CAP" => is_command(rest, &["LS", "REQ", "LIST", "END"]),
            // USER name mode unused :real name
            b"USER" => {
                rest.split(|&byte| byte == b' ')
                    .filter(|it| !it.is_empty())
                    .count()
                    >= 4
            }
            _ => false,
        }
    };
    let server = |line: &[u8]| {
        let command = match line.strip_prefix(b":") {
            Some(rest) => word(rest).1,
            None => line,
        };
        let has_prefix = line.starts_with(b":");
        let (verb, rest) = word(command);
        match verb {
            b"NOTICE" => has_prefix && !rest.is_empty() || rest.starts_with(b"AUTH :"),
            b"CAP" => has_prefix && !rest.is_empty(),
            _ => has_prefix && verb.len() == 3 && is_number(verb) && !rest.is_empty(),
        }
    };
    // What stands first can be a password.
    let first = seen
        .asked()
        .and_then(|(first, rest)| match is_command(first, &["PASS"]) {
            true => line(rest).map(|(line, _)| line),
            false => Some(first),
        });
    first.is_some_and(client) || seen.answered().is_some_and(|(line, _)| server(line))
}

/// RFC 6120, section 4.2: a stream's head, as far as its end.
fn is_xmpp(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    let text = match text.starts_with(b"<?xml ") {
        true => memchr::memmem::find(text, b"?>").map_or(&[][..], |end| &text[end + 2..]),
        false => text,
    };
    let text = text.trim_ascii_start();
    let end = memchr::memchr(b'>', text);
    end.is_some_and(|end| {
        let has = |what: &[u8]| memchr::memmem::find(&text[..end], what).is_some();
        let is_stream = text.starts_with(b"<stream:stream") || text.starts_with(b"<flash:stream");
        is_stream && (has(b"http://etherx.jabber.org/streams") || has(b"jabber:"))
    })
}

/// The first packet of a server: its greeting of version 10, or a refusal.
fn is_mysql(seen: &Said<'_>) -> bool {
    let bytes = seen.responder;
    let Some(body) = le32(bytes, 0).and_then(|head| {
        let (length, sequence) = (head as usize & 0xff_ffff, head >> 24);
        (sequence == 0).then(|| bytes.get(4..4 + length))?
    }) else {
        return false;
    };
    match body {
        [10, rest @ ..] => {
            // Version, thread, eight bytes of the challenge, zero.
            let end = memchr::memchr(0, rest).unwrap_or(0);
            let is_version = rest.first().is_some_and(u8::is_ascii_digit)
                && rest[..end].iter().all(u8::is_ascii_graphic);
            is_version && rest.get(end + 13) == Some(&0)
        }
        // Too many connections; a host that may not connect.
        [0xff, low, high, text @ ..] => {
            matches!(
                u16::from_le_bytes([*low, *high]),
                1040 | 1042 | 1043 | 1129 | 1130
            ) && !text.is_empty()
                && text.iter().all(|byte| (b' '..=b'~').contains(byte))
        }
        _ => false,
    }
}

/// PostgreSQL's frontend protocol: a start-up message with a user, or what asks for encryption, or cancels.
fn is_postgresql(seen: &Said<'_>) -> bool {
    let bytes = seen.initiator;
    let Some(message) = be32(bytes, 0).and_then(|length| bytes.get(..length as usize)) else {
        return false;
    };
    match (be32(message, 4), message.len()) {
        (Some(0x0003_0000..=0x0003_ffff), 9..) => {
            message.get(8..).is_some_and(|it| {
                it.starts_with(b"user\0") || memchr::memmem::find(it, b"\0user\0").is_some()
            }) && message.last() == Some(&0)
        }
        (Some(80_877_103 | 80_877_104), 8) => {
            matches!(
                seen.responder.first(),
                None | Some(b'S' | b'N' | b'G' | b'E')
            )
        }
        (Some(80_877_102), 16) => true,
        _ => false,
    }
}

/// A message of MongoDB's wire protocol: OP_QUERY or OP_MSG, each with a document at its end.
fn is_mongodb(bytes: &[u8]) -> bool {
    let Some(message) = le32(bytes, 0).and_then(|length| bytes.get(..length as usize)) else {
        return false;
    };
    let document = match le32(message, 12) {
        Some(2013) if le32(message, 16).is_some_and(|flags| flags & !0x1_0003 == 0) => {
            match message.get(20) {
                Some(0) => message.get(21..),
                _ => None,
            }
        }
        Some(2004) => {
            let name = message.get(20..).unwrap_or_default();
            let end = memchr::memchr(0, name);
            end.filter(|&end| name[..end].contains(&b'.'))
                .and_then(|end| name.get(end + 9..))
        }
        _ => None,
    };
    document.is_some_and(|it| {
        le32(it, 0).is_some_and(|length| (5..=it.len()).contains(&(length as usize)))
    })
}

/// A command as an array of strings (RESP), its first one whole; the server, if it spoke, with a type.
fn is_redis(seen: &Said<'_>) -> bool {
    let first = || {
        let (count, rest) = seen.asked()?;
        let (length, rest) = line(rest)?;
        let count = number(count.strip_prefix(b"*")?)?;
        let length = number(length.strip_prefix(b"$")?)?;
        let behind = rest.get(length..)?;
        (count > 0 && length > 0 && behind.starts_with(b"\r\n")).then_some(())
    };
    first().is_some()
        && seen
            .responder
            .first()
            .is_none_or(|it| b"+-:$*_#,(!=%~>|".contains(it))
}

/// OASIS MQTT, section 3.1: CONNECT, its length that of the packet.
fn is_mqtt(bytes: &[u8]) -> bool {
    let Some((0x10, rest)) = bytes.split_first().map(|(first, rest)| (*first, rest)) else {
        return false;
    };
    let end = rest.iter().take(4).position(|byte| byte & 0x80 == 0);
    let Some((digits, rest)) = end.and_then(|end| rest.split_at_checked(end + 1)) else {
        return false;
    };
    let digits = digits.iter().rev();
    let length = digits.fold(0, |sum, &it| sum << 7 | usize::from(it & 0x7f));
    length <= rest.len()
        && [
            &b"\0\x04MQTT\x04"[..],
            b"\0\x04MQTT\x05",
            b"\0\x06MQIsdp\x03",
        ]
        .iter()
        .any(|it| rest.starts_with(it))
}

/// The content of a TPKT (RFC 1006, section 6), if all of it is there, and what follows.
fn tpkt(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = be16(bytes, 2).filter(|_| bytes.starts_with(&[3, 0]))?;
    let (packet, rest) = bytes.split_at_checked(length)?;
    Some((packet.get(4..)?, rest))
}

/// What stands in the variable part of a connection request of X.224 (ISO 8073, section 13.3).
fn connection_request(bytes: &[u8]) -> Option<&[u8]> {
    let (request, _) = tpkt(bytes)?;
    let (&length, rest) = request.split_first()?;
    let fits = usize::from(length) == rest.len() && rest.starts_with(&[0xe0, 0, 0]);
    rest.get(6..).filter(|_| fits)
}

/// MS-RDPBCGR, section 2.2.1.1: a routing token or a cookie, a request to negotiate, a correlation.
fn is_rdp(seen: &Said<'_>) -> bool {
    let Some(asks) = connection_request(seen.initiator) else {
        return false;
    };
    let (cookie, rest) = match line(asks) {
        Some((cookie, rest)) if cookie.starts_with(b"Cookie: ") => (true, rest),
        _ => (false, asks),
    };
    match rest {
        // Type, flags, the length 8.
        [1, _, 8, 0, _, _, _, 0, ..] => true,
        // Older ones say nothing.
        [] => cookie || seen.port == 3389,
        _ => false,
    }
}

/// S7 within COTP: behind the connection request its first data.
fn is_s7comm(seen: &Said<'_>) -> bool {
    let behind = tpkt(seen.initiator).map(|(_, rest)| rest);
    connection_request(seen.initiator).is_some()
        && behind
            .and_then(tpkt)
            .is_some_and(|(data, _)| data.starts_with(&[2, 0xf0, 0x80, 0x32]))
}

/// RFC 4511, section 4.1.1: a message with a bind, a search, an unbind or an extended request.
fn is_ldap(seen: &Said<'_>) -> bool {
    let request = || {
        let (0x30, message, _) = element(seen.initiator)? else {
            return None;
        };
        let (2, id, rest) = element(message)? else {
            return None;
        };
        let (tag, content, _) = element(rest)?;
        let is_sound = match tag {
            // The version of a bind; the name, or the object, of others.
            0x60 => matches!(element(content), Some((2, [1..=3], _))),
            0x63 => matches!(element(content), Some((4, _, [0x0a, 1, 0..=3, ..]))),
            0x77 => matches!(element(content), Some((0x80, name, _)) if name.contains(&b'.')),
            0x42 => content.is_empty(),
            _ => false,
        };
        (is_sound && (1..=4).contains(&id.len())).then_some(())
    };
    request().is_some()
}

/// RFC 1928, section 3, and SOCKS 4 with 4A: a few bytes, and so the answer counts, too.
fn is_socks(seen: &Said<'_>) -> bool {
    let fifth = match seen.initiator {
        [5, count, methods @ ..] if *count > 0 => methods.get(..usize::from(*count)),
        _ => None,
    };
    if let Some(methods) = fifth {
        return match seen.responder {
            [5, method, ..] => *method == 0xff || methods.contains(method),
            _ => false,
        };
    }
    let is_fourth = seen.initiator.starts_with(&[4, 1]) || seen.initiator.starts_with(&[4, 2]);
    let has_end = seen.initiator.get(8..).is_some_and(|it| it.contains(&0));
    let answers = matches!(seen.responder, [0, 0x5a..=0x5d, ..]) && seen.responder.len() >= 8;
    is_fourth && has_end && answers
}

/// IEEE 1815, section 9.2: a link frame's head, with its check.
fn is_dnp3(bytes: &[u8]) -> bool {
    let Some(head) = bytes
        .first_chunk::<10>()
        .filter(|it| it.starts_with(&[5, 0x64]))
    else {
        return false;
    };
    let crc = head[..8].iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xa6bc,
            _ => crc >> 1,
        })
    });
    head[2] >= 5 && !crc == u16::from_le_bytes([head[8], head[9]])
}

/// RFC 8489, section 5: a message, and over UDP nothing behind it.
fn is_stun(bytes: &[u8], is_udp: bool) -> bool {
    let has_head = bytes.first().is_some_and(|first| first & 0xc0 == 0)
        && bytes.get(4..8) == Some(b"\x21\x12\xa4\x42");
    has_head
        && be16(bytes, 2).is_some_and(|length| {
            let end = length + 20;
            length % 4 == 0
                && if is_udp {
                    end == bytes.len()
                } else {
                    end <= bytes.len()
                }
        })
}

/// RFC 3164, section 4.1, RFC 5424, section 6: a priority, then a version or a date; others are told by their port.
fn is_syslog(seen: &Said<'_>) -> bool {
    const MONTHS: [&[u8]; 12] = [
        b"Jan ", b"Feb ", b"Mar ", b"Apr ", b"May ", b"Jun ", b"Jul ", b"Aug ", b"Sep ", b"Oct ",
        b"Nov ", b"Dec ",
    ];
    let text = || {
        let rest = seen.initiator.strip_prefix(b"<")?;
        let end = rest.iter().take(4).position(|&byte| byte == b'>')?;
        let priority = number(&rest[..end])?;
        (priority <= 191).then_some(&rest[end + 1..])
    };
    text().is_some_and(|text| {
        let is_dated = MONTHS.iter().any(|month| text.starts_with(month));
        is_dated
            || text.starts_with(b"1 ")
            || seen.port == 514 && text.first().is_some_and(|it| *it >= b' ')
    })
}

/// RFC 3550, section 6.1: a report, then more packets, one behind the other to the end.
fn is_rtcp(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut kinds = 200..=201;
    while !rest.is_empty() {
        let is_one = rest.first().is_some_and(|first| first & 0xc0 == 0x80)
            && rest.get(1).is_some_and(|kind| kinds.contains(kind));
        let words = be16(rest, 2).filter(|_| is_one);
        let Some(behind) = words.and_then(|words| rest.get(4 * (words + 1)..)) else {
            return false;
        };
        rest = behind;
        kinds = 200..=207;
    }
    !bytes.is_empty()
}

/// RFC 7011, section 3: messages whose sets fill them.
fn is_ipfix(bytes: &[u8]) -> bool {
    if be16(bytes, 0) != Some(10) || be16(bytes, 2) != Some(bytes.len()) {
        return false;
    }
    let mut rest = bytes.get(16..).unwrap_or_default();
    while let (Some(id), Some(length)) = (be16(rest, 0), be16(rest, 2)) {
        match rest.get(length..) {
            Some(behind) if length >= 4 && matches!(id, 2 | 3 | 256..) => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty() && bytes.len() > 16
}

/// RFC 4120, section 5.10: one of the messages, whole.
fn is_kerberos(bytes: &[u8], is_udp: bool) -> bool {
    let message = match is_udp {
        true => Some(bytes),
        false => be32(bytes, 0).and_then(|length| bytes.get(4..)?.get(..length as usize)),
    };
    // An application's tag around a sequence that begins with the version 5.
    let sequence = message
        .and_then(element)
        .filter(|(tag, ..)| matches!(tag, 0x6a..=0x6f | 0x74..=0x76 | 0x7e));
    let sequence = sequence
        .and_then(|(_, content, _)| element(content))
        .filter(|(tag, ..)| *tag == 0x30);
    let version = sequence.and_then(|(_, content, _)| element(content));
    version.is_some_and(|(tag, content, _)| matches!(tag, 0xa0 | 0xa1) && content == [2, 1, 5])
}

/// RFC 3261 section 7, RFC 7826 section 4: a line with the name of the protocol at its end, or a status line.
fn is_text(line: &[u8], name: &[u8]) -> bool {
    if let Some(rest) = line.strip_prefix(name) {
        return matches!(rest, [b'0'..=b'9', b'.', b'0'..=b'9', b' ', digits @ ..] if is_number(word(digits).0) && word(digits).0.len() == 3);
    }
    let is_method = |verb: &[u8]| {
        !verb.is_empty() && verb.iter().all(|it| it.is_ascii_uppercase() || *it == b'_')
    };
    let end = line.iter().rposition(|&byte| byte == b' ');
    end.is_some_and(|end| {
        let version = line[end + 1..].strip_prefix(name);
        let version = version.is_some_and(|it| matches!(it, [b'0'..=b'9', b'.', b'0'..=b'9']));
        let (verb, target) = word(&line[..end]);
        version && is_method(verb) && !target.is_empty() && !target.contains(&b' ')
    })
}

/// What tags of IMAP can begin with, and its greeting.
const GRAPHIC: [u8; 0x7f - 0x21] = from(0x21);
/// The two highest bits of STUN are 0, of RTCP 10.
const STUN: [u8; 0x40] = from(0);
const RTCP: [u8; 0x40] = from(0x80);

/// So many bytes, from this one on.
const fn from<const N: usize>(first: u8) -> [u8; N] {
    let (mut all, mut at) = ([0; N], 0);
    while at < N {
        all[at] = first + at as u8;
        at += 1;
    }
    all
}

/// Sources: the RFCs and specifications of each protocol; for those without one what implementations send.
static ALL: &[Signature] = signatures! {
    "bittorrent" Tcp Itself [&[0x13]] => |it| either(it, b"\x13BitTorrent protocol");
    "bittorrent" Udp Itself [b"d"] => |it| {
        either(it, b"d1:ad2:id20:") || either(it, b"d1:rd2:id20:") || either(it, b"d1:eli20")
    };
    "tls" Tcp Itself [&[20, 21, 22, 23]] => are_records;
    "gnutella" Tcp Itself [b"G"] => |it| {
        any_line(it, |line| {
            line.starts_with(b"GNUTELLA CONNECT/0.") || line.starts_with(b"GNUTELLA/0.")
        })
    };
    "direct_connect" Tcp Itself [b"$"] => |it| {
        any(it, |bytes| {
            let begins = bytes.starts_with(b"$Lock ") || bytes.starts_with(b"$MyNick ");
            begins && memchr::memchr(b'|', bytes).is_some()
        })
    };
    // A login or hello, and what answers it.
    "edonkey" Tcp Itself [&[0xe3, 0xc5]] => |it| {
        any(it, |bytes| {
            let kind = (bytes.first(), bytes.get(5));
            matches!(
                kind,
                (Some(0xe3), Some(1 | 0x38 | 0x40 | 0x4c)) | (Some(0xc5), Some(1 | 2))
            ) && le32(bytes, 1).is_some_and(|len| len as usize + 5 <= bytes.len())
        })
    };
    "sip" Both Itself [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_"] => |it| any_line(it, |line| is_text(line, b"SIP/"));
    "rtsp" Tcp Itself [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ_"] => |it| any_line(it, |line| is_text(line, b"RTSP/"));
    "imap" Tcp Tls [&GRAPHIC] => is_imap;
    "pop3" Tcp Tls [b"+-"] => is_pop3;
    "irc" Tcp Tls [b"nNcCuUpP:"] => is_irc;
    "xmpp" Tcp Tls [b"\t\n\x0c\r <"] => |it| any(it, is_xmpp);
    "mysql" Tcp Tls [] => is_mysql;
    "postgresql" Tcp Tls [&[0]] => is_postgresql;
    "mongodb" Tcp Itself [] => |it| any(it, is_mongodb);
    "redis" Tcp Itself [b"*"] => is_redis;
    "mqtt" Tcp Itself [&[0x10]] => |it| is_mqtt(it.initiator);
    // The protocol's number and version.
    "amqp" Tcp Itself [b"A"] => |it| {
        any(it, |bytes| {
            bytes.starts_with(b"AMQP")
                && matches!(
                    bytes.get(4..8),
                    Some([0, 0, 9, 1] | [1, 1, _, _] | [0 | 2 | 3, 1, 0, 0])
                )
        })
    };
    "smb" Tcp Itself [&[0]] => |it| {
        any(it, |bytes| {
            be32(bytes, 0).is_some_and(|length| (32..1 << 24).contains(&length))
                && matches!(bytes.get(4..8), Some(b"\xffSMB" | b"\xfeSMB" | b"\xfdSMB"))
        })
    };
    // RFC 1002, section 4.3.2: a session request, with a name of 32 letters.
    "netbios_ssn" Tcp Itself [&[0x81]] => |it| {
        it.initiator.starts_with(&[0x81, 0, 0, 68, 32])
            && (it.initiator.get(5..37))
                .is_some_and(|name| name.iter().all(|byte| (b'A'..=b'P').contains(byte)))
    };
    "rdp" Tcp Tls [&[3]] => is_rdp;
    "s7comm" Tcp Itself [&[3]] => is_s7comm;
    // RFC 6143, section 7.1.1.
    "vnc" Tcp Itself [b"R"] => |it| {
        any(it, |bytes| {
            matches!(bytes, [b'R', b'F', b'B', b' ', major @ .., b'\n'] if major.len() == 7
                && is_number(&major[..3]) && major[3] == b'.' && is_number(&major[4..]))
                || bytes.len() > 12 && bytes.starts_with(b"RFB 00") && bytes[11] == b'\n'
        })
    };
    // RFC 854: commands of three bytes, of the options that there are.
    "telnet" Tcp Itself [&[0xff]] => |it| {
        any(it, |bytes| {
            matches!(bytes, [0xff, 0xfb..=0xfe, 0..=49 | 138..=140 | 255, ..])
                && matches!(bytes.get(3), None | Some(0xff | 0x07..=0x7e))
        })
    };
    "ldap" Both Tls [&[0x30]] => is_ldap;
    // RFC 4271, section 4.1.
    "bgp" Tcp Itself [&[0xff]] => |it| {
        any(it, |bytes| {
            bytes.starts_with(&[0xff; 16])
                && be16(bytes, 16).is_some_and(|length| (19..=4096).contains(&length))
                && matches!(bytes.get(18), Some(1..=5))
        })
    };
    "rsync" Tcp Itself [b"@"] => |it| {
        any_line(it, |line| {
            let version = line.strip_prefix(b"@RSYNCD: ");
            version.is_some_and(|it| it.first().is_some_and(u8::is_ascii_digit))
        })
    };
    // A line with its length in hexadecimal digits before it.
    "git" Tcp Itself [b"+0123456789abcdefABCDEF"] => |it| {
        let Some((digits, command)) = it.initiator.split_first_chunk::<4>() else {
            return false;
        };
        let length = core::str::from_utf8(digits)
            .ok()
            .and_then(|it| usize::from_str_radix(it, 16).ok());
        length.is_some_and(|length| length <= it.initiator.len())
            && (command.starts_with(b"git-upload-pack ")
                || command.starts_with(b"git-receive-pack "))
    };
    "svn" Tcp Itself [b"("] => |it| it.responder.starts_with(b"( success ( ");
    "socks" Tcp Any [&[4, 5]] => is_socks;
    // IEC 61158 MBAP: protocol 0 and the length that follows.
    "modbus" Tcp Itself [] => |it| {
        let bytes = it.initiator;
        it.port == 502
            && bytes.get(2..4) == Some(&[0, 0])
            && be16(bytes, 4).is_some_and(|len| len >= 2 && len + 6 <= bytes.len())
    };
    "dnp3" Both Itself [&[5]] => |it| any(it, is_dnp3);
    "stun" Both Any [&STUN] => |it| any(it, |bytes| is_stun(bytes, it.is_udp));
    "ssdp" Udp Itself [b"MN"] => |it| {
        any(it, |bytes| {
            bytes.starts_with(b"M-SEARCH * HTTP/1.1\r\n")
                || bytes.starts_with(b"NOTIFY * HTTP/1.1\r\n")
        })
    };
    // RFC 2865, section 3.
    "radius" Udp Itself [&[1, 2, 3, 4, 5, 11, 12, 13, 40, 41, 42, 43, 44, 45]] => |it| {
        any(it, |bytes| {
            matches!(it.port, 1645 | 1646 | 1812 | 1813)
                && matches!(bytes.first(), Some(1..=5 | 11..=13 | 40..=45))
                && be16(bytes, 2).is_some_and(|len| (20..=bytes.len()).contains(&len))
        })
    };
    // RFC 1350, section 5: a name and a mode, each with a zero behind it.
    "tftp" Udp Itself [&[0]] => |it| {
        let bytes = it.initiator;
        let is_request = bytes.starts_with(&[0, 1]) || bytes.starts_with(&[0, 2]);
        let mut parts = bytes.get(2..).unwrap_or_default().split(|&byte| byte == 0);
        let (name, mode) = (parts.next(), parts.next());
        let modes: [&[u8]; 3] = [b"octet", b"netascii", b"mail"];
        is_request
            && name.is_some_and(|name| !name.is_empty())
            && mode.is_some_and(|mode| modes.iter().any(|it| mode.eq_ignore_ascii_case(it)))
            && parts.next().is_some()
    };
    "syslog" Udp Itself [b"<"] => is_syslog;
    // RFC 7296, section 3.1; with four zeros before it on port 4500 (RFC 3948).
    "ike" Udp Itself [] => |it| {
        any(it, |bytes| {
            let bytes = bytes.strip_prefix(&[0; 4]).unwrap_or(bytes);
            matches!((bytes.get(17), bytes.get(18)), (Some(0x10), Some(1..=6 | 32..=34)) | (Some(0x20), Some(34..=44)))
                && be32(bytes, 24).is_some_and(|len| len as usize == bytes.len())
        })
    };
    // QUIC before the IETF's: the version stands behind the flags, or behind them and a connection's number.
    "quic" Udp Itself [] => |it| {
        [1, 9].into_iter().any(|at| {
            let version = it.initiator.get(at..at + 4);
            version.is_some_and(|it| it[0] == b'Q' && it[1..].iter().all(u8::is_ascii_digit))
        })
    };
    "wireguard" Udp Itself [&[1, 2, 3]] => |it| {
        any(it, |bytes| {
            matches!(
                (bytes.get(..4), bytes.len()),
                (Some([1, 0, 0, 0]), 148) | (Some([2, 0, 0, 0]), 92) | (Some([3, 0, 0, 0]), 64)
            )
        })
    };
    // RFC 3954; sFlow version 5.
    "netflow" Udp Itself [&[0]] => |it| {
        let bytes = it.initiator;
        match be16(bytes, 0) {
            Some(5) => {
                be16(bytes, 2).is_some_and(|n| (1..=30).contains(&n) && 24 + 48 * n == bytes.len())
            }
            Some(9) => matches!(it.port, 2055 | 9555 | 9995 | 9996) && bytes.len() >= 20,
            _ => false,
        }
    };
    "ipfix" Udp Itself [&[0]] => |it| is_ipfix(it.initiator);
    "sflow" Udp Itself [&[0]] => |it| {
        it.initiator.starts_with(&[0, 0, 0, 5, 0, 0, 0])
            && matches!(it.initiator.get(7), Some(1 | 2))
            && it.initiator.len() >= 28
    };
    "kerberos" Both Itself [b"\0jklmnotuv~"] => |it| {
        any(it, |bytes| is_kerberos(bytes, it.is_udp))
    };
    // RFC 7252, section 3.
    "coap" Udp Itself [] => |it| {
        it.port == 5683
            && it.initiator.len() >= 4
            && (it.initiator.first()).is_some_and(|first| first & 0xc0 == 0x40 && first & 0xf <= 8)
    };
    "rtcp" Udp Itself [&RTCP] => |it| any(it, is_rtcp);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn of(initiator: &[u8], responder: &[u8], port: u16, is_udp: bool) -> Option<&'static str> {
        let seen = Seen {
            initiator,
            responder,
            port,
            is_udp,
        };
        by_content(&seen).map(|(name, _)| name)
    }

    #[test]
    fn signatures_tell() {
        assert_eq!(
            of(b"\x13BitTorrent protocolex", b"", 1, false),
            Some("bittorrent")
        );
        assert_eq!(of(b"", b"* OK ready\r\n", 1, false), Some("imap"));
        assert_eq!(of(b"", b"+OK ready\r\n", 1, false), Some("pop3"));
        assert_eq!(
            of(b"INVITE sip:a@b SIP/2.0\r\nVia", b"", 1, true),
            Some("sip")
        );
        assert_eq!(of(b"\0\x01file\0octet\0", b"", 1, true), Some("tftp"));
        assert_eq!(of(b"\0\x01file\0other\0", b"", 1, true), None);
        assert_eq!(of(b"<34>Oct 11", b"", 1, true), Some("syslog"));
        assert_eq!(of(b"\x05\x01\x00", b"\x05\x00", 1, false), Some("socks"));
        assert_eq!(of(b"", b"", 80, false), None);
    }

    /// No signature is there without one of the bytes that it is said to begin with.
    #[test]
    fn first_bytes_rule_nothing_out_that_is_there() {
        let said: [&[u8]; 44] = [
            b"\x13BitTorrent protocolex",
            b"\x16\x03\x01\0\x01\x01",
            b"GNUTELLA CONNECT/0.6\r\n",
            b"$Lock x|",
            b"OPTIONS sip:a SIP/2.0\r\n",
            b"SIP/2.0 200 OK\r\n",
            b"DESCRIBE a RTSP/1.0\r\n",
            b"RTSP/1.0 200 OK\r\n",
            b"* OK ready\r\n",
            b"a1 CAPABILITY\r\n",
            b"+OK ready\r\n",
            b"-ERR no\r\n",
            b"CAPA\r\n",
            b"USER a 0 * :b\r\n",
            b"nick me\r\n",
            b"PASS x\r\nNICK me\r\n",
            b":a NOTICE b\r\n",
            b"NOTICE AUTH :x\r\n",
            b"\n<stream:stream xmlns='jabber:client'>",
            b"<?xml ?><stream:stream xmlns='jabber:a'>",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"*1\r\n$4\r\nPING\r\n",
            b"\x10\x06\0\x04MQTT\x04",
            b"AMQP\0\0\x09\x01",
            b"\0\0\0\x40\xffSMB",
            b"RFB 003.008\n",
            b"\xff\xfb\x01",
            b"@RSYNCD: 31.0\n",
            b"0032git-upload-pack x",
            b"( success ( 2",
            b"\x05\x01\0",
            b"\x05\0",
            b"M-SEARCH * HTTP/1.1\r\n",
            b"<34>Oct 11 x",
            b"\0\x01file\0octet\0",
            b"d1:ad2:id20:",
            b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0",
            b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x03\0\0\0",
            b"\xff\xff\xff",
            b"\0\x01\0\0\x21\x12\xa4\x42abcdefghijkl",
            b"\x80\xc8\0\0",
            b"\x6a\x07\x30\x05\xa1\x03\x02\x01\x05",
            b"\0\x0a\0\x14abcdefghijkl\0\x02\0\x04",
            b"",
        ];
        let mut found = 0;
        for (initiator, responder) in said.iter().flat_map(|one| said.map(|other| (*one, other))) {
            for is_udp in [false, true] {
                let seen = Seen {
                    initiator,
                    responder,
                    port: 1,
                    is_udp,
                };
                let all = ALL.iter().filter(|it| it.transport.has(is_udp));
                let first = { all }.find(|it| (it.is)(&Said { seen: &seen }));
                found += usize::from(first.is_some());
                assert_eq!(
                    by_content(&seen).map(|(name, _)| name),
                    first.map(|it| it.name),
                    "{initiator:?} {responder:?}"
                );
            }
        }
        assert!(found > 1_000, "{found}");
    }

    #[test]
    fn any_beginning_is_survived() {
        for seed in 0..2000_u32 {
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            let bytes: Vec<u8> = (0..seed % 40)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state as u8
                })
                .collect();
            for is_udp in [false, true] {
                of(&bytes, &[], 88, is_udp);
                of(&[], &bytes, 102, is_udp);
            }
        }
    }
}
