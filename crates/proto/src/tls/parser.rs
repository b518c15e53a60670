//! Records (RFC 8446 section 5, RFC 5246 section 6).

use super::handshake::{Handshake, message};
use super::hello::{ClientHello, ServerHello};
use crate::cursor::Cursor;
use crate::detect::Look;

/// What a record holds.
pub mod content {
    /// ChangeCipherSpec.
    pub const CHANGE_CIPHER: u8 = 20;
    /// Alerts.
    pub const ALERT: u8 = 21;
    /// Handshake messages.
    pub const HANDSHAKE: u8 = 22;
    /// What the application says.
    pub const DATA: u8 = 23;
    /// Heartbeats (RFC 6520).
    pub const HEARTBEAT: u8 = 24;
}

/// The longest record that is valid in any version (RFC 5246, section 6.2.3).
pub(super) const MAX_RECORD: usize = (16 << 10) + 2048;
/// The longest message of SSLv2 that is read.
const MAX_V2: usize = 8 << 10;

/// Receives what a parser finds, in the order of the stream.
pub trait Events {
    /// A ClientHello.
    fn client_hello(&mut self, _hello: &ClientHello<'_>) {}

    /// A ServerHello.
    fn server_hello(&mut self, _hello: &ServerHello<'_>) {}

    /// A certificate as it was sent (DER), the sender's own first.
    fn certificate(&mut self, _der: &[u8]) {}

    /// The group that a server exchanges keys in, before TLS 1.3.
    fn group(&mut self, _group: u16) {}

    /// An alert that is not encrypted: its level (2: the connection ends) and description.
    fn alert(&mut self, _level: u8, _description: u8) {}

    /// Each message of the handshake ([`message`](super::message)) that is not encrypted, before what
    /// is read of it.
    fn message(&mut self, _kind: u8) {}

    /// Each record that holds something else ([`content`]): the other kinds, and what is encrypted.
    fn record(&mut self, _kind: u8, _is_encrypted: bool) {}

    /// Something could not be read, or was missing: messages may have been passed over.
    fn lost(&mut self) {}

    /// A bound was met, and something passed over: its name.
    fn bounded(&mut self, _bound: &'static str) {
        self.lost();
    }
}

/// Reads the records of one direction.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    state: State,
    /// The first bytes of a record, or of a message in one.
    head: [u8; 5],
    handshake: Handshake,
    /// Handshake messages and alerts are encrypted from here on.
    is_encrypted: bool,
    /// It has begun: SSLv2 only comes first.
    has_begun: bool,
    /// A message of SSLv2.
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of a record's first five are there.
    Head(usize),
    /// Before a record's content is looked at: so many bytes of its first ones are there, and so
    /// many are needed; so long is it in all.
    First {
        have: usize,
        need: usize,
        length: usize,
    },
    /// In handshake messages: so many bytes are left.
    Messages(usize),
    /// In what is not looked at.
    Skip(usize),
    /// In a message of SSLv2: so long is it.
    V2(usize),
    /// Where the next record begins is not known.
    Lost,
    /// Encrypted, in records that cannot be told apart.
    Over,
}

impl Default for State {
    fn default() -> State {
        State::Head(0)
    }
}

/// Whether bytes begin a connection, or a direction of one: a record with a hello, or a hello of SSLv2.
pub fn look(bytes: &[u8]) -> Look {
    let fits = |place: usize, is: fn(u8) -> bool| bytes.get(place).is_none_or(|&byte| is(byte));
    let is_record = fits(0, |byte| byte == content::HANDSHAKE)
        && fits(1, |byte| byte == 3)
        && fits(2, |byte| byte <= 4)
        && fits(3, |byte| usize::from(byte) <= MAX_RECORD >> 8)
        && fits(5, |byte| matches!(byte, message::CLIENT_HELLO | message::SERVER_HELLO))
        && fits(6, |byte| byte == 0)
        // The version in a hello.
        && fits(9, |byte| matches!(byte, 3 | 0x7e | 0x7f));
    if is_record {
        return if bytes.len() >= 10 {
            Look::Yes
        } else {
            Look::More
        };
    }
    let is_v2 = fits(0, |byte| byte & 0x80 != 0)
        && fits(2, |byte| byte == 1)
        && fits(3, |byte| matches!(byte, 0 | 3))
        && fits(4, |byte| byte <= 4);
    match (is_v2, bytes.len()) {
        (false, _) => Look::No,
        (true, 0..11) => Look::More,
        // Lengths of cipher suites, session and challenge; all of it.
        (true, _) => {
            let number = |at: usize| {
                let pair = bytes.get(at..at + 2).unwrap_or_default();
                pair.iter()
                    .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
            };
            let (ciphers, session, challenge) = (number(5), number(7), number(9));
            let length = number(0) & 0x7fff;
            let fits = ciphers % 3 == 0 && 9 + ciphers + session + challenge == length;
            if fits && ciphers > 0 {
                Look::Yes
            } else {
                Look::No
            }
        }
    }
}

/// Content, version and length of a record.
fn read_head(head: [u8; 5]) -> Option<(u8, usize)> {
    let [kind, major, minor, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_record = matches!(kind, content::CHANGE_CIPHER..=content::HEARTBEAT)
        && major == 3
        && minor <= 4
        && length <= MAX_RECORD;
    is_record.then_some((kind, length))
}

impl Parser {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.kept.capacity() + self.handshake.held()
    }

    /// Whether nothing can be read any more, until a piece of data begins like a record.
    pub const fn is_lost(&self) -> bool {
        matches!(self.state, State::Lost)
    }

    /// The next bytes of the stream.
    pub fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        if self.is_lost()
            && let Some(head) = bytes.first_chunk()
            && read_head(*head).is_some()
        {
            self.state = State::Head(0);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Head(have) => self.head(have, rest, events),
                State::First { have, need, length } => {
                    let taken = self.fill(have, need, rest);
                    let have = have + taken;
                    match have == need {
                        true => self.first(need, length, events),
                        false => self.state = State::First { have, need, length },
                    }
                    taken
                }
                State::Messages(left) => {
                    let taken = left.min(rest.len());
                    self.messages(&rest[..taken], left, events);
                    taken
                }
                State::Skip(left) => {
                    let taken = left.min(rest.len());
                    self.skip(left - taken);
                    taken
                }
                State::V2(length) => {
                    let taken = (length - self.kept.len()).min(rest.len());
                    self.kept.extend_from_slice(&rest[..taken]);
                    if self.kept.len() == length {
                        self.v2(events);
                    }
                    taken
                }
                State::Lost | State::Over => rest.len(),
            };
            rest = &rest[taken..];
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: Events>(&mut self, missing: u64, events: &mut E) {
        if missing == 0 || matches!(self.state, State::Lost | State::Over) {
            return;
        }
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        let left = match self.state {
            State::Messages(left) | State::Skip(left) => left,
            State::First { have, length, .. } => length - have,
            _ => 0,
        };
        let is_silent = matches!(self.state, State::Skip(_)) && missing <= left;
        if !is_silent {
            self.handshake.lose();
            events.lost();
        }
        self.kept = Vec::new();
        self.has_begun = true;
        match left.checked_sub(missing) {
            Some(left) if left > 0 || missing > 0 => self.skip(left),
            _ => self.state = State::Lost,
        }
        if left == 0 {
            self.state = State::Lost;
        }
    }

    /// Appends to the first bytes. Returns how many were taken.
    fn fill(&mut self, have: usize, need: usize, bytes: &[u8]) -> usize {
        let places = self.head.get_mut(have..need).unwrap_or_default();
        places
            .iter_mut()
            .zip(bytes)
            .map(|(to, from)| *to = *from)
            .count()
    }

    fn skip(&mut self, left: usize) {
        self.state = match left {
            0 => State::Head(0),
            left => State::Skip(left),
        };
    }

    fn head<E: Events>(&mut self, have: usize, bytes: &[u8], events: &mut E) -> usize {
        let taken = self.fill(have, 5, bytes);
        let have = have + taken;
        if have < 5 {
            self.state = State::Head(have);
            return taken;
        }
        let is_first = !core::mem::replace(&mut self.has_begun, true);
        let Some((kind, length)) = read_head(self.head) else {
            let [high, low, kind, ..] = self.head;
            let length = usize::from(u16::from_be_bytes([high & 0x7f, low]));
            if is_first
                && high & 0x80 != 0
                && matches!(kind, 1 | 4)
                && (11..=MAX_V2).contains(&length)
            {
                self.kept = self.head[2..].to_vec();
                self.state = State::V2(length);
            } else if have > taken
                && bytes
                    .first_chunk()
                    .is_some_and(|head| read_head(*head).is_some())
            {
                // What came before was another protocol's, which agreed on this one.
                self.state = State::Head(0);
                events.lost();
                return 0;
            } else {
                self.state = State::Lost;
                events.lost();
            }
            return taken;
        };
        match kind {
            _ if length == 0 => self.state = State::Head(0),
            content::HANDSHAKE if length >= 4 => {
                self.state = State::First {
                    have: 0,
                    need: 4,
                    length,
                };
            }
            content::HANDSHAKE if !self.is_encrypted => self.state = State::Messages(length),
            content::ALERT if length == 2 => {
                self.state = State::First {
                    have: 0,
                    need: 2,
                    length,
                };
            }
            kind => {
                let is_plain = matches!(kind, content::CHANGE_CIPHER | content::HEARTBEAT);
                events.record(kind, !is_plain || self.is_encrypted);
                self.is_encrypted |= kind == content::CHANGE_CIPHER;
                self.skip(length);
            }
        }
        taken
    }

    /// The first bytes of a record with handshake messages, or an alert.
    fn first<E: Events>(&mut self, need: usize, length: usize, events: &mut E) {
        let [a, b, c, d, _] = self.head;
        if need == 2 {
            match self.is_encrypted {
                true => events.record(content::ALERT, true),
                false => {
                    events.record(content::ALERT, false);
                    events.alert(a, b);
                }
            }
            return self.skip(0);
        }
        // Of TLS 1.3 a second hello follows ChangeCipherSpec (RFC 8446, appendix D.4).
        let size = usize::from(b) << 16 | usize::from(c) << 8 | usize::from(d);
        let is_hello = matches!(a, message::CLIENT_HELLO | message::SERVER_HELLO);
        if self.is_encrypted && !(is_hello && size + 4 == length) {
            events.record(content::HANDSHAKE, true);
            return self.skip(length - 4);
        }
        self.handshake.record([a, b, c, d], length);
        self.messages(&[a, b, c, d], length, events);
    }

    /// Bytes of handshake messages, of which `left` were left before them.
    fn messages<E: Events>(&mut self, bytes: &[u8], left: usize, events: &mut E) {
        if !self.handshake.data(bytes, events) {
            self.handshake.lose();
            events.lost();
        }
        self.state = match left - bytes.len() {
            0 => State::Head(0),
            left => State::Messages(left),
        };
    }

    /// A message of SSLv2 is complete.
    fn v2<E: Events>(&mut self, events: &mut E) {
        let kept = core::mem::take(&mut self.kept);
        self.state = State::Over;
        if kept.first() == Some(&1) {
            let Some(hello) = ClientHello::read_v2(&kept) else {
                return events.lost();
            };
            // A server that knows more answers with records.
            if hello.legacy_version >= 0x0300 {
                self.state = State::Head(0);
            }
            events.message(message::CLIENT_HELLO);
            return events.client_hello(&hello);
        }
        let mut rest = Cursor(&kept);
        let found = (|| {
            rest.take(3)?;
            let version = rest.u16()?;
            let length = usize::from(rest.u16()?);
            rest.take(4)?;
            Some((version, rest.take(length)?))
        })();
        match found {
            Some((2, certificate)) => {
                events.message(message::SERVER_HELLO);
                events.server_hello(&ServerHello::v2());
                events.certificate(certificate);
            }
            _ => events.lost(),
        }
    }
}
