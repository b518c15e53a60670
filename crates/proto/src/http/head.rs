//! Start lines and header lines.

use memchr::memchr;

use super::parser::{Framing, Oddities, Oddity};
use crate::Look;

/// The version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/0.9: a request of one line.
    V09,
    /// HTTP/1.0.
    V10,
    /// HTTP/1.1.
    V11,
    /// Another one.
    Other,
}

impl Version {
    /// As it is written behind the slash.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V09 => "0.9",
            Version::V10 => "1.0",
            Version::V11 => "1.1",
            Version::Other => "other",
        }
    }

    fn read(text: &[u8]) -> Option<Version> {
        let digits = text.strip_prefix(b"HTTP/")?;
        match digits {
            b"1.1" => Some(Version::V11),
            b"1.0" => Some(Version::V10),
            [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
                Some(Version::Other)
            }
            _ => None,
        }
    }
}

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// Of a request.
    Request {
        /// As `GET`.
        method: &'a [u8],
        /// The request target as it was sent.
        uri: &'a [u8],
        /// Its version.
        version: Version,
    },
    /// Of a response.
    Response {
        /// As 200.
        status: u16,
        /// The words behind it; may be empty.
        reason: &'a [u8],
        /// Its version.
        version: Version,
    },
}

impl Start<'_> {
    /// Its version.
    pub const fn version(&self) -> Version {
        match self {
            Start::Request { version, .. } | Start::Response { version, .. } => *version,
        }
    }
}

/// Header fields that are found while a head is read.
#[derive(Clone, Copy, Debug, Default)]
struct Known<'a> {
    host: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    referer: Option<&'a [u8]>,
    location: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    content_type: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    connection: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    content_length: Option<u64>,
}

/// What comes before the body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The first line.
    pub start: Start<'a>,
    /// What is odd about it.
    pub oddities: Oddities,
    known: Known<'a>,
    lines: &'a [u8],
}

/// A header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// As it was sent.
    pub name: &'a [u8],
    /// Without blanks around it. Of a folded one the first line.
    pub value: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads a head: from its first byte to the end of the empty line, or as much as there is. `None`:
    /// it does not begin as a message does.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Head<'a>> {
        Head::read_until_end(bytes).map(|(head, _)| head)
    }

    /// As [`Head::read`]; also how long it is, if its end is there.
    pub(super) fn read_until_end(bytes: &'a [u8]) -> Option<(Head<'a>, Option<usize>)> {
        let (first, lines, bare) = next_line(bytes);
        let mut oddities = Oddities::default();
        oddities.set_if(Oddity::BareLf, bare);
        let start = match read_start(first) {
            Some(start) => start,
            None => {
                let (start, oddity) = read_bad_start(first)?;
                oddities.set(oddity);
                start
            }
        };
        let mut head = Head {
            start,
            oddities,
            known: Known::default(),
            lines,
        };
        if start.version() == Version::V09 {
            head.lines = &[];
            let length = bytes.len() - lines.len();
            return Some((head, (first.len() < length).then_some(length)));
        }
        let mut rest = lines;
        let mut has_length = false;
        let mut length = None;
        while !rest.is_empty() {
            let (line, after, bare) = next_line(rest);
            if line.is_empty() {
                length = Some(bytes.len() - after.len());
                break;
            }
            rest = after;
            head.oddities.set_if(Oddity::BareLf, bare);
            head.line(line, &mut has_length);
        }
        Some((head, length))
    }

    /// That of a response of HTTP/0.9, which has none.
    pub(super) fn none() -> Head<'static> {
        Head {
            start: Start::Response {
                status: 0,
                reason: &[],
                version: Version::V09,
            },
            oddities: Oddities::default(),
            known: Known::default(),
            lines: &[],
        }
    }

    fn line(&mut self, line: &'a [u8], has_length: &mut bool) {
        if matches!(line[0], b' ' | b'\t') {
            return self.oddities.set(Oddity::FoldedHeader);
        }
        let Some(header) = read_header(line) else {
            return self.oddities.set(Oddity::BadHeader);
        };
        let name = header.name;
        self.oddities.set_if(
            Oddity::BlankBeforeColon,
            name.last() == Some(&b' ') || name.last() == Some(&b'\t'),
        );
        let known = &mut self.known;
        let (place, again) = match name.len() {
            4 if is(name, b"Host") => (&mut known.host, Some(Oddity::TwoHosts)),
            6 if is(name, b"Origin") => (&mut known.origin, None),
            7 if is(name, b"Referer") => (&mut known.referer, None),
            8 if is(name, b"Location") => (&mut known.location, None),
            10 if is(name, b"User-Agent") => (&mut known.user_agent, None),
            10 if is(name, b"Connection") => (&mut known.connection, None),
            12 if is(name, b"Content-Type") => (&mut known.content_type, None),
            14 if is(name, b"Content-Length") => {
                return self.length(header.value, has_length);
            }
            16 if is(name, b"Content-Encoding") => (&mut known.content_encoding, None),
            17 if is(name, b"Transfer-Encoding") => {
                (&mut known.transfer_encoding, Some(Oddity::UnknownCoding))
            }
            _ => return,
        };
        match (*place, again) {
            (Some(_), Some(oddity)) => self.oddities.set(oddity),
            (Some(_), None) => {}
            (None, _) => *place = Some(header.value),
        }
    }

    /// A `Content-Length`; several that are equal are one (RFC 9112, section 6.3).
    fn length(&mut self, value: &[u8], has_length: &mut bool) {
        for part in value.split(|&byte| byte == b',') {
            let length = read_number(trim(part), 10);
            match (length, self.known.content_length) {
                (None, _) => self.oddities.set(Oddity::BadLength),
                (Some(length), None) if !*has_length => self.known.content_length = Some(length),
                (length, known) if length == known => {}
                _ => self.oddities.set(Oddity::TwoLengths),
            }
            *has_length = true;
        }
    }

    /// How the end of the body is found, as far as this head tells (RFC 9112, section 6.3).
    pub(super) fn framing(&mut self) -> Framing {
        if self.oddities.has(Oddity::FoldedHeader) {
            self.unfold();
        }
        let is_request = matches!(self.start, Start::Request { .. });
        let version = self.start.version();
        if let Start::Response { status, .. } = self.start
            && (status / 100 == 1 || matches!(status, 204 | 304))
        {
            return match status {
                101 => Framing::Tunnel,
                _ => Framing::None,
            };
        }
        if version == Version::V09 {
            return Framing::None;
        }
        if let Some(codings) = self.known.transfer_encoding {
            self.oddities
                .set_if(Oddity::LengthAndCoding, self.known.content_length.is_some());
            self.oddities
                .set_if(Oddity::UnknownCoding, version == Version::V10);
            let mut last = codings.rsplit(|&byte| byte == b',');
            let last = last.next().unwrap_or_default().trim_ascii();
            if last.eq_ignore_ascii_case(b"chunked") {
                return Framing::Chunked;
            }
            self.oddities.set_if(Oddity::UnknownCoding, is_request);
            return Framing::UntilEnd;
        }
        match self.known.content_length {
            Some(0) => Framing::None,
            Some(length) => Framing::Length(length),
            // Nobody can know where it ends.
            None if self.oddities.has(Oddity::BadLength) => Framing::UntilEnd,
            None if is_request => Framing::None,
            None => Framing::UntilEnd,
        }
    }

    /// Fields over several lines are read as one (RFC 9112, section 5.2) where they say how long the
    /// body is.
    #[cold]
    fn unfold(&mut self) {
        let mut rest = self.lines;
        while !rest.is_empty() {
            let (line, mut after, _) = next_line(rest);
            if line.is_empty() {
                break;
            }
            while matches!(after.first(), Some(b' ' | b'\t')) {
                after = next_line(after).1;
            }
            let whole = &rest[..rest.len() - after.len()];
            rest = after;
            let Some(header) = read_header(whole) else {
                continue;
            };
            let value = header.value.trim_ascii();
            let name = trim(header.name);
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                self.known.transfer_encoding.get_or_insert(value);
                if self
                    .known
                    .transfer_encoding
                    .is_some_and(|it| value.starts_with(it))
                {
                    self.known.transfer_encoding = Some(value);
                }
            } else if name.eq_ignore_ascii_case(b"content-length")
                && self.known.content_length.is_none()
            {
                self.known.content_length = read_number(value, 10);
            }
        }
    }

    /// All header fields in their order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = self.lines;
        core::iter::from_fn(move || {
            while !rest.is_empty() {
                let (line, after, _) = next_line(rest);
                rest = after;
                if line.is_empty() {
                    rest = &[];
                } else if !matches!(line[0], b' ' | b'\t')
                    && let Some(header) = read_header(line)
                {
                    return Some(header);
                }
            }
            None
        })
    }

    /// The first header field of a name.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut headers = self.headers();
        let found = headers.find(|it| trim(it.name).eq_ignore_ascii_case(name.as_bytes()));
        found.map(|it| it.value)
    }

    /// `Host`.
    pub fn host(&self) -> Option<&'a [u8]> {
        self.known.host
    }

    /// `User-Agent`.
    pub fn user_agent(&self) -> Option<&'a [u8]> {
        self.known.user_agent
    }

    /// `Location`.
    pub fn location(&self) -> Option<&'a [u8]> {
        self.known.location
    }

    /// `Referer`.
    pub fn referer(&self) -> Option<&'a [u8]> {
        self.known.referer
    }

    /// `Origin`.
    pub fn origin(&self) -> Option<&'a [u8]> {
        self.known.origin
    }

    /// `Content-Type`.
    pub fn content_type(&self) -> Option<&'a [u8]> {
        self.known.content_type
    }

    /// `Content-Encoding`.
    pub fn content_encoding(&self) -> Option<&'a [u8]> {
        self.known.content_encoding
    }

    /// `Connection`.
    pub fn connection(&self) -> Option<&'a [u8]> {
        self.known.connection
    }

    /// `Content-Length`, if it is a number.
    pub fn content_length(&self) -> Option<u64> {
        self.known.content_length
    }
}

/// Whether a header field has this name, in any case: most are written as the RFCs write them, and compared in words.
#[inline(always)]
fn is<const N: usize>(name: &[u8], usual: &[u8; N]) -> bool {
    name == usual || name.eq_ignore_ascii_case(usual)
}

/// The next line without its end, what follows, and whether it ended without a carriage return.
#[inline]
fn next_line(bytes: &[u8]) -> (&[u8], &[u8], bool) {
    let Some(end) = memchr(b'\n', bytes) else {
        return (bytes, &[], false);
    };
    let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
    match line.split_last() {
        Some((b'\r', line)) => (line, rest, false),
        _ => (line, rest, true),
    }
}

/// The first colon. Most names are too short to call `memchr` for them: their bytes are compared eight at once.
#[inline]
fn colon(line: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let (words, _) = line.as_chunks::<8>();
    for (word, start) in words.iter().zip([0, 8, 16]) {
        let others = u64::from_le_bytes(*word) ^ (ONES * b':' as u64);
        // The lowest byte that is zero keeps its highest bit.
        let zeros = others.wrapping_sub(ONES) & !others & (ONES << 7);
        if zeros != 0 {
            return Some(start + zeros.trailing_zeros() as usize / 8);
        }
    }
    memchr(b':', line)
}

fn read_header(line: &[u8]) -> Option<Header<'_>> {
    let colon = colon(line).filter(|&at| at > 0)?;
    Some(Header {
        name: &line[..colon],
        value: trim(&line[colon + 1..]),
    })
}

fn read_start(line: &[u8]) -> Option<Start<'_>> {
    if line.starts_with(b"HTTP/") {
        return read_status(line);
    }
    let space = memchr(b' ', line)?;
    let (method, rest) = (&line[..space], &line[space + 1..]);
    if !is_method(method) || rest.is_empty() {
        return None;
    }
    // A target with blanks in it is none, but it is sent.
    let (uri, version) = match rest.iter().rposition(|&byte| byte == b' ') {
        Some(at) => match Version::read(&rest[at + 1..]) {
            Some(version) => (trim(&rest[..at]), version),
            None => return None,
        },
        None if method == b"GET" => (rest, Version::V09),
        None => return None,
    };
    Some(Start::Request {
        method,
        uri,
        version,
    })
}

fn read_status(line: &[u8]) -> Option<Start<'_>> {
    let space = memchr(b' ', line)?;
    let version = Version::read(&line[..space])?;
    let rest = trim_start(&line[space + 1..]);
    let status = read_number(rest.get(..3)?, 10)? as u16;
    let reason = match rest.get(3..)? {
        [] => &[],
        [b' ', reason @ ..] => trim(reason),
        _ => return None,
    };
    Some(Start::Response {
        status,
        reason,
        version,
    })
}

/// A first line that is none, but is meant for one.
#[cold]
fn read_bad_start(line: &[u8]) -> Option<(Start<'_>, Oddity)> {
    let status = read_bad_status(line).map(|start| (start, Oddity::BadStatusLine));
    status.or_else(|| Some((read_bad_request(line)?, Oddity::BadRequestLine)))
}

/// A request line with blanks where none belong, without a version or with something behind it: it has a
/// method of HTTP's (RFC 9110, section 9) with something behind it, or HTTP's version at its end.
fn read_bad_request(line: &[u8]) -> Option<Start<'_>> {
    const METHODS: [&[u8]; 9] = [
        b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH",
    ];
    // Nearly all that is asked for is binary: neither word is there.
    let begins = line.trim_ascii_start().first();
    let ends = line.trim_ascii_end().last();
    if !begins.is_some_and(u8::is_ascii_uppercase) && !ends.is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let (method, last) = (words.next()?, words.next_back()?);
    let name = last.first_chunk::<5>();
    let version = name
        .filter(|name| name.eq_ignore_ascii_case(b"HTTP/"))
        .and_then(|_| Version::read(&last.to_ascii_uppercase()));
    // Others have such methods, and versions of their own.
    let is_other = || {
        last.contains(&b'/') && matches!(last, [b'A'..=b'Z', .., b'0'..=b'9', b'.', b'0'..=b'9'])
    };
    if version.is_none() && (!METHODS.contains(&method) || is_other()) {
        return None;
    }
    let start = memchr::memmem::find(line, method)? + method.len();
    let end = match version {
        Some(_) => memchr::memmem::rfind(line, last)?,
        None => line.len(),
    };
    Some(Start::Request {
        method: &method[..method.len().min(32)],
        uri: line.get(start..end)?.trim_ascii(),
        version: version.unwrap_or(Version::Other),
    })
}

/// A malformed request line tells if HTTP's version is at its end; without it the answer has to.
fn look_bad_request(line: &[u8]) -> Look {
    match read_bad_request(line) {
        Some(Start::Request {
            version: Version::Other,
            ..
        }) => Look::More,
        Some(_) => Look::Yes,
        None => Look::No,
    }
}

/// A status line that says HTTP, but is written in another way: clients read many such.
fn read_bad_status(line: &[u8]) -> Option<Start<'_>> {
    const NAME: &[u8] = b"HTTP/";
    if !line.get(..NAME.len())?.eq_ignore_ascii_case(NAME) {
        return None;
    }
    let mut words = line.splitn(3, |&byte| byte == b' ');
    let version = Version::read(&words.next()?.to_ascii_uppercase());
    let status = words.next().filter(|word| word.len() == 3);
    let status = status.and_then(|word| read_number(word, 10));
    Some(Start::Response {
        status: status.unwrap_or(0) as u16,
        reason: trim(words.next().unwrap_or_default()),
        version: version.unwrap_or(Version::Other),
    })
}

/// The longest method.
const METHOD: usize = 32;

/// The characters of a token (RFC 9110, section 5.6.2).
static TOKEN: [bool; 256] = {
    let (mut token, others, mut at) = ([false; 256], b"!#$%&'*+-.^_`|~", 0);
    while at < 256 {
        token[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    while at < 256 + others.len() {
        token[others[at - 256] as usize] = true;
        at += 1;
    }
    token
};

/// Whether it can be a method: a short token.
fn is_method(text: &[u8]) -> bool {
    (1..=METHOD).contains(&text.len()) && text.iter().all(|&byte| TOKEN[usize::from(byte)])
}

/// Whether the first word can be a method, with a blank behind it; `None` where that is not complete.
pub fn begins_with_method(bytes: &[u8]) -> Option<bool> {
    let word = &bytes[..bytes.len().min(METHOD + 1)];
    match word.iter().position(|&byte| !TOKEN[usize::from(byte)]) {
        Some(end) => Some(end > 0 && bytes[end] == b' '),
        None => (bytes.len() > METHOD).then_some(false),
    }
}

/// Whether a direction's first bytes are HTTP/1: a status line, or a request with the name of its
/// protocol, or with a method that only HTTP has. Empty lines and blanks before are read over.
pub fn look(bytes: &[u8]) -> Look {
    let is_blank = |byte: &u8| matches!(byte, b'\r' | b'\n' | b' ' | b'\t');
    let start = bytes.iter().position(|byte| !is_blank(byte));
    let Some(bytes) = start.and_then(|start| bytes.get(start..)) else {
        return if bytes.len() > 64 {
            Look::No
        } else {
            Look::More
        };
    };
    if bytes[0] == b'H' && (bytes.starts_with(b"HTTP/") || b"HTTP/".starts_with(bytes)) {
        return match bytes.get(5) {
            None => Look::More,
            Some(b'1') => Look::Yes,
            Some(_) => Look::No,
        };
    }
    let target = match bytes[0] {
        b'G' => bytes.strip_prefix(b"GET "),
        b'P' => bytes.strip_prefix(b"POST "),
        b'H' => bytes.strip_prefix(b"HEAD "),
        _ => None,
    };
    if target.is_some_and(|target| target.starts_with(b"/") || target.starts_with(b"http")) {
        return Look::Yes;
    }
    // A method is a word of its own, or may become one.
    let word = &bytes[..bytes.len().min(METHOD + 1)];
    let method_end = word.iter().position(|&byte| !TOKEN[usize::from(byte)]);
    let is_method = match method_end {
        Some(end) => end > 0 && matches!(bytes[end], b' ' | b'\n'),
        None => bytes.len() <= METHOD,
    };
    let method_end = method_end.filter(|&end| bytes[end] == b' ');
    let line_end = memchr(b'\n', bytes);
    let line = &bytes[..line_end.unwrap_or(bytes.len())];
    let line_of = || line.strip_suffix(b"\r").unwrap_or(line);
    if !is_method {
        return match line_end {
            Some(_) => look_bad_request(line_of()),
            None => Look::No,
        };
    }
    // HTTP/0.9 has nothing but the method; a target is a path or a URL there (RFC 1945, section 5).
    let is_09 = |uri: &[u8]| uri.starts_with(b"/") || memchr::memmem::find(uri, b"://").is_some();
    match (method_end, line_end) {
        (None, None) if line.len() < 32 => Look::More,
        (None, _) => Look::No,
        (Some(_), None) if line.len() < 4096 => Look::More,
        (Some(_), None) => Look::No,
        (Some(_), Some(_)) => match read_start(line_of()) {
            Some(Start::Request {
                version: Version::V09,
                uri,
                ..
            }) if !is_09(uri) => Look::More,
            Some(_) => Look::Yes,
            None => look_bad_request(line_of()),
        },
    }
}

/// Whether a piece of data begins as a message of HTTP/1 does. Only what is common counts: a
/// method in upper case with a target that can be one, or a status line.
pub(super) fn begins_message(bytes: &[u8]) -> bool {
    if bytes.starts_with(b"HTTP/1.") {
        return true;
    }
    let Some(space) = memchr(b' ', &bytes[..bytes.len().min(24)]) else {
        return false;
    };
    let method = &bytes[..space];
    let is_upper = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    let is_method = space >= 3 && method.iter().all(is_upper);
    let target = bytes.get(space + 1).copied().unwrap_or(b' ');
    let (line, _, _) = next_line(bytes);
    is_method
        && (target == b'/' || target == b'*' || target.is_ascii_alphanumeric())
        && (line.len() == bytes.len() || line.windows(7).any(|it| it == b" HTTP/1"))
}

/// A whole number of these digits only, which fits.
pub(super) fn read_number(text: &[u8], base: u64) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20).wrapping_sub(b'a').saturating_add(10),
        };
        let digit = Some(u64::from(digit)).filter(|&digit| digit < base)?;
        number.checked_mul(base)?.checked_add(digit)
    })
}

/// Without blanks around it.
pub(super) fn trim(text: &[u8]) -> &[u8] {
    let text = trim_start(text);
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
    &text[..end.map_or(0, |end| end + 1)]
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    &text[start.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut line = vec![b';'; length];
            assert_eq!(colon(&line), None);
            for at in (0..length).rev() {
                line[at] = b':';
                assert_eq!(colon(&line), Some(at));
            }
        }
    }

    #[test]
    fn first_bytes_tell() {
        for (bytes, found) in [
            ("", Look::More),
            ("\r\n", Look::More),
            ("G", Look::More),
            ("GET /", Look::Yes),
            ("GET / HTTP/1.1 \r\n", Look::Yes),
            ("\tGET / HTTP/1.1\r\n", Look::Yes),
            ("PUT  /x\r\n", Look::More),
            ("GET key\r\n", Look::More),
            ("CONNECT {\"verbose\":true}\r\n", Look::More),
            ("\0\0GET /x HTTP/1.1\r\n", Look::Yes),
            ("GET /key\r\n", Look::Yes),
            ("POST GET\r\n", Look::More),
            ("\r\nGET / HTTP/1.1\r\n", Look::Yes),
            ("HTT", Look::More),
            ("HTTP/1.1 200", Look::Yes),
            ("HTTP/9", Look::No),
            ("PROPFIND /x HTT", Look::More),
            ("PROPFIND /x HTTP/1.1\r\n", Look::Yes),
            ("USER anonymous\r\n", Look::No),
            ("OPTIONS sip:a@b SIP/2.0\r\n", Look::No),
            ("SSH-2.0-x\r\n", Look::No),
            ("\u{16}\u{3}\u{1}", Look::No),
        ] {
            assert_eq!(look(bytes.as_bytes()), found, "{bytes:?}");
        }
    }
}
