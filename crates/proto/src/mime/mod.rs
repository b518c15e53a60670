//! Mails as parts: MIME (RFC 2045, RFC 2046), with what their transfer codings come to.
//!
//! Kept are the line under way, the head under way (at most 32 KiB) and the boundaries that are open (at most 100, one
//! within the other); parts that lie deeper are bytes of the part around them.

mod coding;
mod field;

use coding::Coding;
use field::{parameters, unencoded};

/// Bytes of a head that are read; fields behind them are not.
const MAX_HEAD: usize = 32 << 10;
/// Boundaries and mails that are open, one within the other.
const MAX_DEPTH: usize = 100;
/// Bytes of a boundary (RFC 2046, section 5.1.1, has 70); of a longer one parts are not told apart.
const MAX_BOUNDARY: usize = 200;
/// Bytes of the beginning of a line that can be a boundary: hyphens, line end and blanks with it.
const MAX_LINE: usize = MAX_BOUNDARY + 56;
/// Bytes of a name or a type.
const MAX_TEXT: usize = 1 << 10;

/// A part that holds bytes, not other parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// `Content-Type`, as it was sent, without parameters.
    pub content_type: Option<String>,
    /// The name that its sender gave: `filename` of `Content-Disposition` (RFC 2183), else `name` of `Content-Type`,
    /// put together and decoded (RFC 2231, RFC 2047).
    pub name: Option<String>,
    /// It was sent as base64 or quoted-printable.
    pub is_coded: bool,
    /// `Content-Range`, as it was sent.
    pub range: Option<String>,
    /// Its place among all parts, those that hold others counted, from 1.
    pub place: u32,
    /// The bound that left something out: `head`, `text`, or `parts` where it holds others that are not told apart.
    pub limit: Option<&'static str>,
}

/// Receives the parts of a mail, one behind the other.
pub trait Events {
    /// A part begins.
    fn begin(&mut self, part: Part);

    /// Bytes of it, without transfer coding.
    fn data(&mut self, bytes: &[u8]);

    /// So many bytes of it are missing, as they were sent.
    fn missing(&mut self, bytes: u64);

    /// It is over; whether it came to its end.
    fn end(&mut self, is_whole: bool);
}

/// Reads a mail.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    state: State,
    /// A dot at the beginning of a line was put there by who sent it (RFC 5321, section 4.5.2).
    is_stuffed: bool,
    /// The beginning of the line under way; of a head all of it.
    line: Vec<u8>,
    /// More of the line was there than is kept.
    is_long: bool,
    /// The line end before the line under way, which is one of a boundary's if that is one.
    end: Vec<u8>,
    head: Vec<u8>,
    /// More of it was there than is kept.
    is_head_cut: bool,
    /// Heads so far.
    heads: u32,
    /// Boundaries that are open, the innermost last; none stands for a mail within the mail.
    boundaries: Vec<Option<Vec<u8>>>,
    coding: Coding,
    /// What bytes came to, before it is handed on.
    decoded: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Body,
    /// Before the first part of several, behind the last one, or behind a hole: nothing counts but boundaries.
    Between,
}

impl Parser {
    /// Of a mail that is sent with DATA, which doubles dots, or with BDAT, which does not.
    pub fn new(is_stuffed: bool) -> Parser {
        Parser {
            is_stuffed,
            ..Parser::default()
        }
    }

    /// Of what has this `Content-Type`, and no head of its own but that of a mail.
    pub fn of_type(content_type: &[u8]) -> Parser {
        let (kind, of_type) = parameters(content_type);
        if kind.eq_ignore_ascii_case(b"message/rfc822") {
            return Parser::new(false);
        }
        Parser {
            boundaries: of_type
                .get(b"boundary")
                .filter(|it| (1..=MAX_BOUNDARY).contains(&it.len()))
                .map(|it| Some(it.trim_ascii_end().to_vec()))
                .into_iter()
                .collect(),
            state: State::Between,
            ..Parser::default()
        }
    }

    /// Parts so far, those that hold others counted.
    pub const fn parts(&self) -> u32 {
        self.heads
    }

    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        let boundaries = self.boundaries.iter().flatten().map(Vec::capacity);
        self.line.capacity()
            + self.head.capacity()
            + self.decoded.capacity()
            + boundaries.sum::<usize>()
    }

    /// The next bytes of the mail.
    pub fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            rest = behind;
            self.piece(line, end.is_some(), events);
        }
        self.pour(events);
    }

    /// So many bytes of the mail are missing here.
    pub fn gap<E: Events>(&mut self, missing: u64, events: &mut E) {
        if missing == 0 {
            return;
        }
        match self.state {
            State::Body => {
                self.flush();
                self.pour(events);
                events.missing(missing);
                self.coding.gap();
            }
            // Of what part it tells is not known.
            State::Head => self.state = State::Between,
            State::Between => {}
        }
        self.head.clear();
        self.line.clear();
        // Up to its end the line is none that is known.
        self.is_long = true;
    }

    /// The mail is over; whether it came to its end.
    pub fn finish<E: Events>(&mut self, is_whole: bool, events: &mut E) {
        if !self.line.is_empty() {
            self.line(events);
        }
        let is_whole = is_whole && self.boundaries.iter().all(Option::is_none);
        self.end_part(is_whole, events);
        *self = Parser {
            heads: self.heads,
            ..Parser::new(self.is_stuffed)
        };
    }

    /// A piece of a line, or its end.
    fn piece<E: Events>(&mut self, bytes: &[u8], is_end: bool, events: &mut E) {
        if self.is_long {
            if self.state == State::Body {
                self.long(bytes);
            }
            self.is_long = !is_end;
            return;
        }
        let most = match self.state {
            State::Head => MAX_HEAD,
            State::Body | State::Between => MAX_LINE,
        };
        if self.line.len() + bytes.len() <= most {
            self.line.extend_from_slice(bytes);
            if is_end {
                self.line(events);
            }
            return;
        }
        // Too long for what counts.
        self.is_long = !is_end;
        match self.state {
            State::Body => {
                // A dot that was put there is its first byte.
                let (first, rest) = bytes.split_at(usize::from(self.line.is_empty()));
                self.line.extend_from_slice(first);
                self.flush();
                self.long(rest);
            }
            State::Head => {
                self.is_head_cut = true;
                self.line.clear();
            }
            State::Between => self.line.clear(),
        }
    }

    /// What is kept of the line is no boundary: it is the part's.
    fn flush(&mut self) {
        let (end, line) = (
            core::mem::take(&mut self.end),
            core::mem::take(&mut self.line),
        );
        self.give(&end);
        let dot = usize::from(self.is_stuffed && line.first() == Some(&b'.'));
        self.give(line.get(dot..).unwrap_or_default());
        (self.end, self.line) = (end, line);
        self.end.clear();
        self.line.clear();
    }

    /// More of a line that is no boundary. Its end waits.
    fn long(&mut self, bytes: &[u8]) {
        let mut end = core::mem::take(&mut self.end);
        if bytes != b"\n" {
            self.give(&end);
            end.clear();
        }
        let (text, behind) = bytes.split_at(text_len(bytes));
        self.give(text);
        end.extend_from_slice(behind);
        self.end = end;
    }

    /// A line, or the last one without its end.
    fn line<E: Events>(&mut self, events: &mut E) {
        if let Some((depth, is_last)) = self.boundary() {
            self.end_part(true, events);
            self.boundaries.truncate(depth + 1);
            if is_last {
                self.boundaries.pop();
            }
            self.state = if is_last { State::Between } else { State::Head };
            self.head.clear();
            self.is_head_cut = false;
            self.line.clear();
            return;
        }
        match self.state {
            State::Between => self.line.clear(),
            State::Body => self.flush_line(),
            State::Head => {
                let is_empty = self.line.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
                match self.head.len() + self.line.len() <= MAX_HEAD {
                    true => self.head.extend_from_slice(&self.line),
                    false => self.is_head_cut = true,
                }
                self.line.clear();
                if is_empty {
                    self.begin_part(events);
                }
            }
        }
    }

    /// A line of the part; its end waits, as it is a boundary's if that follows.
    fn flush_line(&mut self) {
        let text = text_len(&self.line);
        let end: &[u8] = match self.line.get(text..) {
            Some(b"\r\n") => b"\r\n",
            Some(b"\n") => b"\n",
            Some(b"\r") => b"\r",
            _ => b"",
        };
        self.line.truncate(text);
        self.flush();
        self.end.extend_from_slice(end);
    }

    /// Whether the line is a boundary: how deep it stands, and whether it is the last of its kind.
    fn boundary(&self) -> Option<(usize, bool)> {
        // A dot before a hyphen would be no boundary.
        let text = self.line.strip_prefix(b"--")?.trim_ascii_end();
        let depth = |text: &[u8]| {
            let is = |one: &Option<Vec<u8>>| one.as_deref() == Some(text);
            self.boundaries.iter().rposition(is)
        };
        match depth(text) {
            Some(depth) => Some((depth, false)),
            None => Some((depth(text.strip_suffix(b"--")?)?, true)),
        }
    }

    /// A head is complete.
    fn begin_part<E: Events>(&mut self, events: &mut E) {
        let head = core::mem::take(&mut self.head);
        let mut limit = core::mem::take(&mut self.is_head_cut).then_some("head");
        self.heads = self.heads.saturating_add(1);
        let fields = Fields::read(&head);
        let (kind, of_type) = parameters(&fields.content_type);
        let is = |name: &[u8]| {
            kind.get(..name.len())
                .is_some_and(|it| it.eq_ignore_ascii_case(name))
        };
        let has_room = self.boundaries.len() < MAX_DEPTH;
        if is(b"multipart/")
            && has_room
            && let Some(boundary) = of_type.get(b"boundary")
            && (1..=MAX_BOUNDARY).contains(&boundary.len())
        {
            self.boundaries
                .push(Some(boundary.trim_ascii_end().to_vec()));
            self.state = State::Between;
            return;
        }
        let (_, of_disposition) = parameters(&fields.disposition);
        let coding = Coding::named(&fields.encoding);
        if is(b"message/rfc822") && has_room && coding == Coding::None {
            self.boundaries.push(None);
            self.state = State::Head;
            return;
        }
        let name = of_disposition
            .get(b"filename")
            .or_else(|| of_type.get(b"name"));
        if !has_room && (is(b"multipart/") || is(b"message/rfc822")) {
            limit.get_or_insert("parts");
        }
        let mut text = |bytes: &[u8]| {
            if bytes.len() > MAX_TEXT {
                limit.get_or_insert("text");
            }
            let bytes = bytes.get(..MAX_TEXT).unwrap_or(bytes);
            Some(String::from_utf8_lossy(bytes).into_owned()).filter(|text| !text.is_empty())
        };
        self.coding = coding;
        self.state = State::Body;
        self.end.clear();
        let content_type = text(kind);
        let name = name.and_then(|name| text(&unencoded(&name)));
        let range = text(&fields.range);
        events.begin(Part {
            content_type,
            name,
            is_coded: coding != Coding::None,
            range,
            place: self.heads,
            limit,
        });
    }

    /// The part under way is over. The line end before is a boundary's; at the mail's end it does not count, either, as
    /// a part is to be the same wherever it stands.
    fn end_part<E: Events>(&mut self, is_whole: bool, events: &mut E) {
        if self.state == State::Body {
            self.coding.finish(&mut self.decoded);
            self.pour(events);
            events.end(is_whole);
        }
        self.end.clear();
        self.state = State::Between;
    }

    /// Bytes of the part.
    fn give(&mut self, bytes: &[u8]) {
        self.coding.decode(bytes, &mut self.decoded);
    }

    /// Hands on what bytes came to.
    fn pour<E: Events>(&mut self, events: &mut E) {
        if !self.decoded.is_empty() {
            events.data(&self.decoded);
            self.decoded.clear();
        }
    }
}

/// Bytes of a line without its end.
fn text_len(line: &[u8]) -> usize {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    text.strip_suffix(b"\r").unwrap_or(text).len()
}

/// Fields of a head that matter, their lines put together.
#[derive(Debug, Default)]
struct Fields {
    content_type: Vec<u8>,
    disposition: Vec<u8>,
    encoding: Vec<u8>,
    range: Vec<u8>,
}

impl Fields {
    fn read(head: &[u8]) -> Fields {
        let mut fields = Fields::default();
        let mut none = Vec::new();
        let mut current = &mut none;
        for line in head.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if matches!(line.first(), Some(b' ' | b'\t')) {
                // A line that goes on; the blank counts once.
                current.push(b' ');
                current.extend_from_slice(line.trim_ascii_start());
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let (name, value) = line.split_at(colon.unwrap_or(line.len()));
            let is = |wanted: &[u8]| name.trim_ascii_end().eq_ignore_ascii_case(wanted);
            none = Vec::new();
            current = match () {
                () if is(b"content-type") => &mut fields.content_type,
                () if is(b"content-disposition") => &mut fields.disposition,
                () if is(b"content-transfer-encoding") => &mut fields.encoding,
                () if is(b"content-range") => &mut fields.range,
                () => &mut none,
            };
            // Of fields that come twice the first counts.
            match current.is_empty() {
                true => current.extend_from_slice(value.get(1..).unwrap_or_default().trim_ascii()),
                false => {
                    none = Vec::new();
                    current = &mut none;
                }
            }
        }
        fields
    }
}

#[cfg(test)]
mod tests;
