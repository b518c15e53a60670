//! Lines and packets of one direction.

use super::Offer;
use crate::cursor::Cursor;
use crate::detect::Look;

/// Bytes before the end of the identification; RFC 4253 allows 255 for itself, behind other lines.
const MAX_LINES: usize = 2 << 10;
/// The longest packet that is kept (RFC 4253, section 6.1).
const MAX_PACKET: usize = 35_000;

const KEY_INIT: u8 = 20;
const NEW_KEYS: u8 = 21;
/// Replies that begin with the host's key, of the exchanges that there are.
const REPLIES: [u8; 2] = [31, 33];

/// Receives what a parser finds, in the order of the stream.
pub trait Events {
    /// The identification, without its line end.
    fn banner(&mut self, _line: &[u8]) {}

    /// The algorithms on offer.
    fn offer(&mut self, _offer: &Offer<'_>) {}

    /// The host's key, in the reply to an exchange of keys.
    fn host_key(&mut self, _key: &[u8]) {}

    /// What follows is encrypted.
    fn new_keys(&mut self) {}

    /// Something is missing, or is no SSH.
    fn lost(&mut self) {}

    /// A bound was met, and something left out: its name.
    fn bounded(&mut self, _bound: &'static str) {}
}

/// Reads one direction.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    state: State,
    kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// In the identification, or lines before it.
    #[default]
    Lines,
    /// In a packet.
    Packet,
    /// So much of one that is not kept is left.
    Skip(usize),
    /// Encrypted, or lost.
    Over,
}

/// Whether bytes begin with an identification: `SSH-`, the version, `-` (RFC 4253, section 4.2).
pub fn look(bytes: &[u8]) -> Look {
    const BEGINS: &[u8] = b"SSH-";
    let length = bytes.len().min(BEGINS.len());
    let rest = bytes.get(length..).unwrap_or_default();
    match rest {
        _ if bytes.get(..length) != BEGINS.get(..length) => Look::No,
        [b'0'..=b'9', b'.', b'0'..=b'9', ..] => Look::Yes,
        [] | [b'0'..=b'9'] | [b'0'..=b'9', b'.'] => Look::More,
        _ => Look::No,
    }
}

impl Parser {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Whether nothing more will be found.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The next bytes of the stream.
    pub fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.state {
                State::Lines => self.lines(rest, events),
                State::Packet => self.packet(rest, events),
                State::Skip(left) => {
                    let taken = left.min(rest.len());
                    self.state = match left - taken {
                        0 => State::Packet,
                        left => State::Skip(left),
                    };
                    taken
                }
                State::Over => return,
            };
            rest = &rest[taken..];
        }
    }

    /// So many bytes of the stream are missing here.
    pub fn gap<E: Events>(&mut self, missing: u64, events: &mut E) {
        match self.state {
            State::Over => {}
            State::Skip(left) if missing <= left as u64 => {
                self.state = match left - missing as usize {
                    0 => State::Packet,
                    left => State::Skip(left),
                };
            }
            _ if missing > 0 => self.lose(events),
            _ => {}
        }
    }

    fn lose<E: Events>(&mut self, events: &mut E) {
        self.kept = Vec::new();
        self.state = State::Over;
        events.lost();
    }

    fn lines<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        let end = memchr::memchr(b'\n', bytes);
        let taken = end.map_or(bytes.len(), |end| end + 1);
        if self.kept.len() + taken > MAX_LINES {
            self.lose(events);
            events.bounded("lines");
            return bytes.len();
        }
        self.kept.extend_from_slice(&bytes[..taken]);
        if end.is_none() {
            return taken;
        }
        // A server may say something before (RFC 4253, section 4.2): all of that counts.
        let lines = self.kept.trim_ascii_end();
        let last = lines
            .rsplit(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default();
        if look(last) == Look::Yes {
            events.banner(last);
            self.state = match last.starts_with(b"SSH-2") || last.starts_with(b"SSH-1.99") {
                true => State::Packet,
                // SSH 1 has other packets.
                false => State::Over,
            };
            self.kept.clear();
        }
        taken
    }

    fn packet<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> usize {
        let before = self.kept.len();
        // Length of the packet, of the padding, and type.
        if before < 6 {
            let taken = (6 - before).min(bytes.len());
            self.kept.extend_from_slice(&bytes[..taken]);
            let mut head = Cursor(&self.kept);
            let (Some(length), Some(padding), Some(kind)) = (head.u32(), head.u8(), head.u8())
            else {
                return taken;
            };
            let length = length as usize;
            if usize::from(padding) + 2 > length || length > 1 << 18 {
                self.lose(events);
            } else if kind == NEW_KEYS {
                self.kept = Vec::new();
                self.state = State::Over;
                events.new_keys();
            } else if !(kind == KEY_INIT || REPLIES.contains(&kind)) || length > MAX_PACKET {
                if kind == KEY_INIT || REPLIES.contains(&kind) {
                    events.bounded("message");
                }
                self.kept.clear();
                self.state = match length - 2 {
                    0 => State::Packet,
                    left => State::Skip(left),
                };
            } else if length == 2 {
                self.kept.clear();
            }
            return taken;
        }
        let length = Cursor(&self.kept).u32().unwrap_or_default() as usize + 4;
        let taken = length.saturating_sub(before).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..taken]);
        if self.kept.len() < length {
            return taken;
        }
        let padding = self.kept.get(4).map_or(0, |&byte| usize::from(byte));
        let body = self.kept.get(6..length - padding).unwrap_or_default();
        match self.kept.get(5) {
            Some(&KEY_INIT) => match Offer::read(body) {
                Some(offer) => events.offer(&offer),
                None => events.lost(),
            },
            _ => {
                // A key begins with the name of its kind; what the exchange of groups sends does not.
                let key = Cursor(body).vector32().unwrap_or_default();
                let name = Cursor(key).vector32().unwrap_or_default();
                let is_name = |byte: &u8| byte.is_ascii_graphic();
                if (3..=64).contains(&name.len()) && name.iter().all(is_name) {
                    events.host_key(key);
                }
            }
        }
        self.kept.clear();
        taken
    }
}
