//! From pieces of data to messages.

use memchr::memchr;

use super::body::{Chunks, Step};
use super::head::{Head, Start, Version, begins_message};

/// Bytes of a head that are kept while its end has not come: as many as Firefox reads of one
/// (`network.http.max_response_header_size`); Chromium reads 256 KiB. Nothing behind a longer one is read.
const MAX_HEAD: usize = 384 << 10;

/// What a response without a body would be followed by.
const NEXT_STATUS: &[u8] = b"HTTP/1.";

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks say how long they are.
    Chunked,
    /// It goes on to the end of the stream.
    UntilEnd,
    /// No message follows any more: another protocol does.
    Tunnel,
}

/// Something about a message that a careful program would not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[repr(u16)]
#[strum(serialize_all = "snake_case")]
pub enum Oddity {
    /// Lengths that contradict each other.
    TwoLengths = 1,
    /// A length and a transfer coding.
    LengthAndCoding = 2,
    /// A length that is no number.
    BadLength = 4,
    /// A transfer coding that is not chunked at last, given twice, or of HTTP/1.0.
    UnknownCoding = 8,
    /// A line that is no header field.
    BadHeader = 16,
    /// A header field over several lines.
    FoldedHeader = 32,
    /// A blank between a field's name and the colon.
    BlankBeforeColon = 64,
    /// Lines that end without a carriage return.
    BareLf = 128,
    /// `Host` twice.
    TwoHosts = 256,
    /// What should be chunked is not: such a response is taken to go on to the end of the stream as it is,
    /// where its first chunk is none.
    BadChunk = 512,
    /// The head was cut by a hole or the end, or is too long.
    CutHead = 1024,
    /// A status line that is none, but begins with `HTTP/`: what the header fields say counts.
    BadStatusLine = 2048,
    /// A request line that is none, but has a method of HTTP's or its version: servers answer many such.
    BadRequestLine = 4096,
    /// A chunk's extensions, or the trailers, are longer than 16 KiB. They are read over.
    LongExtension = 8192,
}

impl Oddity {
    /// All of them.
    pub const ALL: &[Oddity] = <Oddity as strum::VariantArray>::VARIANTS;

    /// In records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Oddities of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities(u16);

impl Oddities {
    /// Notes one.
    pub fn set(&mut self, oddity: Oddity) {
        self.0 |= oddity as u16;
    }

    /// Notes one if it is so.
    pub fn set_if(&mut self, oddity: Oddity, is: bool) {
        if is {
            self.set(oddity);
        }
    }

    /// Whether this one was noted.
    pub const fn has(self, oddity: Oddity) -> bool {
        self.0 & oddity as u16 != 0
    }

    /// Whether none was.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that were noted.
    pub fn iter(self) -> impl Iterator<Item = Oddity> {
        (Oddity::ALL.iter().copied()).filter(move |&it| self.has(it))
    }

    /// Those of both.
    pub fn join(&mut self, other: Oddities) {
        self.0 |= other.0;
    }
}

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Bytes of its body, missing ones counted; chunk sizes and trailers are none.
    pub body_bytes: u64,
    /// How many of them were missing.
    pub missing_bytes: u64,
    /// It came to its end: neither cut off nor given up.
    pub is_whole: bool,
    /// What is odd about it, that of its head included.
    pub oddities: Oddities,
    /// Its head is longer than what is read of one, and nothing behind that is.
    pub is_head_too_long: bool,
}

/// Receives what a [`Parser`] finds, in the order of the stream. Every message has one `begin` and one
/// `end`, and between them one `head` if its first line could be read.
pub trait Events {
    /// The first byte of a message has come.
    fn begin(&mut self) {}

    /// Its head is complete. Returns how its body is framed: `framing` is what the head says, another
    /// one what the request says (of a response to `HEAD` [`Framing::None`], of a successful one to
    /// `CONNECT` [`Framing::Tunnel`]).
    fn head(&mut self, _head: &Head<'_>, framing: Framing) -> Framing {
        framing
    }

    /// Whether the request is known to which the response belongs whose head was the last: else what
    /// looks like the next status line, where its body should begin, is taken for that.
    fn knows_request(&self) -> bool {
        false
    }

    /// Whether the response that comes next has no head: its request is one of HTTP/0.9.
    fn is_headless(&self) -> bool {
        false
    }

    /// Bytes of its body, without transfer coding.
    fn body(&mut self, _bytes: &[u8]) {}

    /// So many bytes of its body are missing here.
    fn missing(&mut self, _bytes: u64) {}

    /// It is over.
    fn end(&mut self, _end: &End) {}

    /// Bytes of what follows HTTP ([`Framing::Tunnel`]).
    fn tunnel(&mut self, _bytes: &[u8]) {}

    /// So many bytes of that are missing here.
    fn tunnel_gap(&mut self, _bytes: u64) {}
}

/// Reads the messages of one direction.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    state: State,
    /// A head whose end has not come.
    kept: Vec<u8>,
    search: Search,
    message: Message,
}

/// How far the end of a head was looked for.
#[derive(Clone, Copy, Debug, Default)]
struct Search {
    /// Up to here there is none.
    at: usize,
    /// The first line is complete, and one of HTTP.
    has_line: bool,
}

/// The message under way.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    body: u64,
    missing: u64,
    oddities: Oddities,
    is_response: bool,
    is_head_too_long: bool,
}

#[derive(Clone, Debug, Default)]
enum State {
    /// A message can begin.
    #[default]
    Between,
    /// In its head.
    Head,
    /// Before the body of a response whose request is not known: so many bytes look like the next
    /// status line.
    Doubt(u64, usize),
    /// So many bytes of the body are left.
    Length(u64),
    Chunked(Chunks),
    UntilEnd,
    /// Another protocol follows, of which so many bytes look like a status line: HTTP/1 goes on in what
    /// `CONNECT` has opened. More than a status line's: it does not.
    Tunnel(usize),
    /// Where the next message begins is not known.
    Lost,
}

/// What reading the beginning of a message came to.
enum Found {
    /// Its head is so long.
    Head(usize),
    /// More is needed.
    More,
    /// It is no message.
    None,
}

impl Parser {
    /// Bytes of memory that it keeps beside itself.
    #[inline]
    pub fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Whether nothing can be read any more, until a piece of data begins like a message.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// Whether another protocol follows.
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.state, State::Tunnel(_))
    }

    /// So many bytes that come next belong to a body, whatever they are.
    pub const fn ahead(&self) -> u64 {
        match &self.state {
            State::Length(left) => *left,
            State::Chunked(chunks) => chunks.left(),
            State::UntilEnd => u64::MAX,
            _ => 0,
        }
    }

    /// So many bytes came, of those [ahead](Parser::ahead), and were not looked at.
    pub fn passed<E: Events>(&mut self, bytes: u64, events: &mut E) {
        let is_over = match &mut self.state {
            State::Length(left) => {
                *left = left.saturating_sub(bytes);
                *left == 0
            }
            State::Chunked(chunks) => {
                chunks.skip(bytes);
                false
            }
            _ => false,
        };
        self.message.body += bytes;
        if is_over {
            self.over(true, events);
        }
    }

    /// The next bytes of the stream.
    pub fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        if self.is_lost() && begins_message(bytes) {
            self.state = State::Between;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match &mut self.state {
                State::Between => self.between(rest, events),
                State::Head => self.in_head(rest, events),
                State::Doubt(length, seen) => {
                    let (length, seen) = (*length, *seen);
                    self.doubt(rest, length, seen, events)
                }
                State::Length(left) => {
                    let length = (*left).min(rest.len() as u64);
                    *left -= length;
                    let is_over = *left == 0;
                    let (body, _) = rest.split_at(length as usize);
                    self.message.body += length;
                    events.body(body);
                    if is_over {
                        self.over(true, events);
                    }
                    body.len()
                }
                State::Chunked(chunks) => {
                    let step = chunks.step(rest);
                    let is_long = chunks.has_long_line();
                    self.message.oddities.set_if(Oddity::LongExtension, is_long);
                    match step {
                        Step::More => rest.len(),
                        Step::Bad if self.message.is_response && chunks.is_first() => {
                            self.message.oddities.set(Oddity::BadChunk);
                            let line = chunks.before();
                            self.state = State::UntilEnd;
                            self.data(line.bytes(), events);
                            0
                        }
                        Step::Data(data, taken) => {
                            self.message.body += data.len() as u64;
                            events.body(data);
                            taken
                        }
                        Step::Over(taken) => {
                            self.over(true, events);
                            taken
                        }
                        Step::Bad => {
                            self.message.oddities.set(Oddity::BadChunk);
                            self.over(false, events);
                            self.state = State::Lost;
                            rest.len()
                        }
                    }
                }
                State::UntilEnd => {
                    self.message.body += rest.len() as u64;
                    events.body(rest);
                    rest.len()
                }
                State::Tunnel(seen) if *seen < NEXT_STATUS.len() => {
                    let seen = *seen;
                    self.tunnel_begins(rest, seen, events)
                }
                State::Tunnel(_) => {
                    events.tunnel(rest);
                    rest.len()
                }
                State::Lost => rest.len(),
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: Events>(&mut self, missing: u64, events: &mut E) {
        if missing == 0 {
            return;
        }
        match &mut self.state {
            State::Between if events.is_headless() => {
                self.message = Message::default();
                events.begin();
                self.headless(&[], events);
                self.gap(missing, events);
            }
            State::Between => self.state = State::Lost,
            State::Head if self.search.is_headless(events) => {
                self.kept_is_body(events);
                self.gap(missing, events);
            }
            State::Head => {
                self.cut_head(events);
                self.state = State::Lost;
            }
            State::Doubt(..) => {
                self.settle_doubt(events);
                self.gap(missing, events);
            }
            State::Length(left) => {
                let counted = missing.min(*left);
                *left -= counted;
                let is_over = *left == 0;
                self.message.body += counted;
                self.message.missing += counted;
                events.missing(counted);
                if is_over {
                    self.over(counted == missing, events);
                }
                if counted < missing {
                    self.state = State::Lost;
                }
            }
            State::Chunked(chunks) => {
                if chunks.skip(missing) {
                    self.message.body += missing;
                    self.message.missing += missing;
                    events.missing(missing);
                } else {
                    self.over(false, events);
                    self.state = State::Lost;
                }
            }
            State::UntilEnd => {
                self.message.body += missing;
                self.message.missing += missing;
                events.missing(missing);
            }
            State::Tunnel(_) => {
                self.settle_tunnel(events);
                events.tunnel_gap(missing);
            }
            State::Lost => {}
        }
    }

    /// The stream is over; `closed` says that its sender closed it.
    pub fn finish<E: Events>(&mut self, closed: bool, events: &mut E) {
        match &self.state {
            State::Between | State::Lost => {}
            State::Tunnel(_) => self.settle_tunnel(events),
            State::Head if self.search.is_headless(events) => {
                self.kept_is_body(events);
                self.over(closed, events);
            }
            State::Head => self.cut_head(events),
            State::Doubt(..) => {
                self.settle_doubt(events);
                return self.finish(closed, events);
            }
            State::UntilEnd => self.over(closed, events),
            State::Length(_) | State::Chunked(_) => self.over(false, events),
        }
        self.state = State::Lost;
    }

    /// Between messages. Returns how many bytes were taken.
    fn between<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        // Empty lines before a request are passed over (RFC 9112, section 2.2), blanks by browsers, too.
        let is_end = |byte: &u8| !matches!(byte, b'\r' | b'\n' | b' ' | b'\t');
        let mut start = match bytes.iter().position(is_end) {
            Some(start) => start,
            None if !events.is_headless() => return bytes.len(),
            None => bytes.len(),
        };
        if start > 0 && events.is_headless() {
            start = 0;
        }
        events.begin();
        self.message = Message::default();
        let (before, rest) = bytes.split_at(start);
        let has_blanks = before.iter().any(|byte| matches!(byte, b' ' | b'\t'));
        self.message.oddities.set_if(Oddity::BadHeader, has_blanks);
        // Mostly a head comes in one piece.
        if let Some((head, Some(length))) = Head::read_until_end(rest) {
            self.head_is(head, events);
            return start + length;
        }
        self.search = Search::default();
        match self.search.find_end(rest) {
            Found::Head(length) => {
                self.head(&rest[..length], events);
                start + length
            }
            Found::More => {
                self.state = State::Head;
                self.kept.clear();
                self.keep(rest, events);
                bytes.len()
            }
            Found::None => {
                self.no_message(rest, events);
                bytes.len()
            }
        }
    }

    /// In a head that has begun before.
    fn in_head<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        let before = self.kept.len();
        self.keep(bytes, events);
        if !matches!(self.state, State::Head) {
            return bytes.len();
        }
        match self.search.find_end(&self.kept) {
            Found::More => bytes.len(),
            Found::Head(length) => {
                let mut kept = core::mem::take(&mut self.kept);
                self.head(&kept[..length], events);
                kept.clear();
                self.kept = kept;
                length - before
            }
            Found::None => {
                let kept = core::mem::take(&mut self.kept);
                self.no_message(&kept, events);
                bytes.len()
            }
        }
    }

    fn keep<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        if self.kept.len() + bytes.len() > MAX_HEAD {
            if self.search.is_headless(events) {
                self.kept_is_body(events);
                return self.data(bytes, events);
            }
            self.message.is_head_too_long = true;
            self.cut_head(events);
            self.state = State::Lost;
            return;
        }
        self.kept.extend_from_slice(bytes);
    }

    /// A head is complete.
    fn head<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        match Head::read(bytes) {
            Some(head) => self.head_is(head, events),
            None => self.no_message(bytes, events),
        }
    }

    fn head_is<E: Events>(&mut self, mut head: Head<'_>, events: &mut E) {
        let framing = head.framing();
        let is_response = matches!(head.start, Start::Response { .. });
        self.message.oddities.join(head.oddities);
        self.message.is_response = is_response;
        self.state = match events.head(&head, framing) {
            Framing::None | Framing::Length(0) => return self.over(true, events),
            Framing::Length(length) if is_response && !events.knows_request() => {
                State::Doubt(length, 0)
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunks::default()),
            Framing::UntilEnd => State::UntilEnd,
            Framing::Tunnel => {
                self.over(true, events);
                State::Tunnel(0)
            }
        };
    }

    /// Before the body of a response that may have none.
    fn doubt<E: Events>(
        &mut self,
        bytes: &[u8],
        length: u64,
        seen: usize,
        events: &mut E,
    ) -> usize {
        if seen == 0 && events.is_headless() {
            // A request has come since, to which this is the answer.
            self.over(true, events);
            return 0;
        }
        let wanted = &NEXT_STATUS[seen..];
        let same = wanted.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        if same == wanted.len() {
            // It had none: this is the next message, the beginning of which is known.
            self.over(true, events);
            self.message = Message::default();
            events.begin();
            self.state = State::Head;
            self.search = Search::default();
            self.kept.clear();
            self.keep(NEXT_STATUS, events);
            return same;
        }
        if same == bytes.len() {
            self.state = State::Doubt(length, seen + same);
            return same;
        }
        self.settle_doubt(events);
        0
    }

    /// What looked like a status line is a body.
    fn settle_doubt<E: Events>(&mut self, events: &mut E) {
        let State::Doubt(length, seen) = self.state else {
            return;
        };
        self.state = State::Length(length);
        self.data(&NEXT_STATUS[..seen], events);
    }

    /// The first bytes of what follows HTTP. Returns how many were taken.
    fn tunnel_begins<E: Events>(&mut self, bytes: &[u8], seen: usize, events: &mut E) -> usize {
        if seen == 0 && matches!(bytes.first(), Some(b'\r' | b'\n')) {
            // Empty lines are read over between messages, too.
            events.tunnel(&bytes[..1]);
            return 1;
        }
        let wanted = NEXT_STATUS.get(seen..).unwrap_or_default();
        let length = wanted.len().min(bytes.len());
        if bytes[..length] != wanted[..length] {
            self.settle_tunnel(events);
            return 0;
        }
        if length < wanted.len() {
            self.state = State::Tunnel(seen + length);
        } else {
            self.state = State::Between;
            self.data(NEXT_STATUS, events);
        }
        length
    }

    /// It is no HTTP/1.
    fn settle_tunnel<E: Events>(&mut self, events: &mut E) {
        if let State::Tunnel(seen @ 1..=6) = self.state {
            events.tunnel(&NEXT_STATUS[..seen]);
        }
        self.state = State::Tunnel(usize::MAX);
    }

    /// A head ends too early, or is too long: what there is of it is read.
    fn cut_head<E: Events>(&mut self, events: &mut E) {
        let kept = core::mem::take(&mut self.kept);
        let last = kept.iter().rposition(|&byte| byte == b'\n');
        // Of a first line what there is, if it tells.
        let whole_lines = match last {
            Some(end) => &kept[..=end],
            None if begins_message(&kept) => &kept[..],
            None => &[],
        };
        if let Some(mut head) = Head::read(whole_lines) {
            head.oddities.set(Oddity::CutHead);
            self.message.oddities = head.oddities;
            // How its body is framed cannot be known.
            events.head(&head, Framing::None);
        } else {
            self.message.oddities.set(Oddity::CutHead);
        }
        self.over(false, events);
    }

    /// What was kept as a head is the beginning of a body.
    #[cold]
    fn kept_is_body<E: Events>(&mut self, events: &mut E) {
        let kept = core::mem::take(&mut self.kept);
        self.headless(&kept, events);
    }

    /// A response of HTTP/0.9, which is a body to the end of the stream, begins so.
    #[cold]
    fn headless<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        events.head(&Head::none(), Framing::UntilEnd);
        self.state = State::UntilEnd;
        self.data(bytes, events);
    }

    /// What began is no message.
    #[cold]
    fn no_message<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        if events.is_headless() {
            return self.headless(bytes, events);
        }
        self.message.oddities.set(Oddity::BadHeader);
        self.over(false, events);
        self.kept.clear();
        self.state = State::Lost;
    }

    fn over<E: Events>(&mut self, is_whole: bool, events: &mut E) {
        let message = core::mem::take(&mut self.message);
        self.state = State::Between;
        events.end(&End {
            body_bytes: message.body,
            missing_bytes: message.missing,
            is_whole: is_whole && message.missing == 0 && !message.oddities.has(Oddity::BadChunk),
            oddities: message.oddities,
            is_head_too_long: message.is_head_too_long,
        });
    }
}

impl Search {
    /// Whether what is kept is no head but the beginning of a body.
    #[cold]
    fn is_headless<E: Events>(&self, events: &E) -> bool {
        !self.has_line && events.is_headless()
    }

    /// Looks for the end of a head, of which there is more than at the last call.
    fn find_end(&mut self, bytes: &[u8]) -> Found {
        if !self.has_line {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(end) = memchr(b'\n', rest) else {
                self.at = bytes.len();
                return Found::More;
            };
            self.at += end;
            let line = bytes.get(..=self.at).unwrap_or_default();
            match Head::read(line).map(|head| head.start.version()) {
                None => return Found::None,
                Some(Version::V09) => return Found::Head(line.len()),
                Some(_) => self.has_line = true,
            }
        }
        while let Some(end) = (bytes.get(self.at..)).and_then(|rest| memchr(b'\n', rest)) {
            let next = self.at + end + 1;
            match bytes.get(next..) {
                Some([b'\n', ..]) => return Found::Head(next + 1),
                Some([b'\r', b'\n', ..]) => return Found::Head(next + 2),
                // What follows the line end has not come.
                Some([] | [b'\r']) | None => {
                    self.at = next - 1;
                    return Found::More;
                }
                Some(_) => self.at = next,
            }
        }
        self.at = bytes.len();
        Found::More
    }
}
