//! DTLS: records in datagrams (RFC 6347, section 4.1), and messages of the handshake out of their
//! fragments (section 4.2). Of DTLS 1.3 (RFC 9147) the hellos, which have the same form.

use super::handshake::{MAX_MESSAGE, Reader, TOO_LONG, TOO_MANY, message};
use super::parser::{Events, MAX_RECORD, content};
use crate::cursor::Cursor;
use crate::detect::Look;

/// Messages of which fragments wait for the others; with one more the oldest is given up.
const MAX_OPEN: usize = 4;
/// Pieces of a message that do not touch each other; further ones are left out.
const MAX_PIECES: usize = 32;
/// Messages of a handshake that are remembered, so that what one that comes again says counts once.
const MAX_DONE: usize = 64;

/// Reads the datagrams of one direction.
#[derive(Clone, Debug, Default)]
pub struct DatagramParser {
    reader: Reader,
    open: Vec<Open>,
    /// Numbers and types of the messages that were given.
    done: Vec<(u16, u8)>,
}

/// A message of which not all fragments have come.
#[derive(Clone, Debug)]
struct Open {
    number: u16,
    kind: u8,
    length: usize,
    /// What has come, by its place; none touches another.
    pieces: Vec<(usize, Vec<u8>)>,
}

/// A fragment of a message.
#[derive(Clone, Copy, Debug)]
struct Fragment<'a> {
    kind: u8,
    /// Of the message.
    length: usize,
    number: u16,
    offset: usize,
    bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// `None`: there is no whole one.
    fn read(rest: &mut Cursor<'a>) -> Option<Fragment<'a>> {
        let kind = rest.u8()?;
        let length = rest.u24()?;
        let number = rest.u16()?;
        let offset = rest.u24()?;
        let bytes = rest.vector24()?;
        (offset + bytes.len() <= length).then_some(Fragment {
            kind,
            length,
            number,
            offset,
            bytes,
        })
    }
}

/// A record: type, epoch, content.
fn read_record<'a>(rest: &mut Cursor<'a>) -> Option<(u8, u16, &'a [u8])> {
    let kind = rest.u8()?;
    let version = rest.u16()?;
    let epoch = rest.u16()?;
    // Its number.
    rest.take(6)?;
    let content = rest.vector16()?;
    let is_record = matches!(kind, content::CHANGE_CIPHER..=content::HEARTBEAT)
        && is_version(version)
        && content.len() <= MAX_RECORD;
    is_record.then_some((kind, epoch, content))
}

/// DTLS 1.0, 1.2, and what OpenSSL had before there was a standard.
const fn is_version(version: u16) -> bool {
    matches!(version, 0xfeff | 0xfefd | 0x0100)
}

/// Whether a datagram begins with a hello, or with the request to repeat one with a cookie.
pub fn look_datagram(bytes: &[u8]) -> Look {
    let is_hello = || {
        let (kind, epoch, content) = read_record(&mut Cursor(bytes))?;
        let fragment = Fragment::read(&mut Cursor(content))?;
        let is_first = matches!(
            fragment.kind,
            message::CLIENT_HELLO | message::SERVER_HELLO | message::HELLO_VERIFY
        );
        (kind == content::HANDSHAKE && epoch == 0 && is_first).then_some(())
    };
    match is_hello() {
        Some(()) => Look::Yes,
        None => Look::No,
    }
}

/// Whether a datagram is one of STUN (RFC 8489, section 5): DTLS comes behind such ones in the same flow (RFC
/// 5764, section 5.1.2).
pub fn is_stun(bytes: &[u8]) -> bool {
    let is_type = bytes.first().is_some_and(|&byte| byte < 4);
    is_type && bytes.get(4..8) == Some(&[0x21, 0x12, 0xa4, 0x42])
}

impl DatagramParser {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        let pieces = self.open.iter().flat_map(|open| &open.pieces);
        self.done.capacity() * size_of::<(u16, u8)>()
            + self.open.capacity() * size_of::<Open>()
            + pieces
                .map(|(_, bytes)| size_of::<(usize, Vec<u8>)>() + bytes.capacity())
                .sum::<usize>()
    }

    /// The next datagram. Those of other protocols in the same flow (RFC 7983) are passed over.
    pub fn datagram<E: Events>(&mut self, bytes: &[u8], events: &mut E) {
        let mut rest = Cursor(bytes);
        while let Some(&first) = rest.0.first() {
            match first {
                content::CHANGE_CIPHER..=content::HEARTBEAT => {}
                // Encrypted, of DTLS 1.3 (RFC 9147, section 4).
                0x20..=0x3f => return events.record(content::DATA, true),
                _ => return,
            }
            let Some((kind, epoch, content)) = read_record(&mut rest) else {
                return events.lost();
            };
            match (kind, content) {
                (content::HANDSHAKE, content) if epoch == 0 => self.messages(content, events),
                (content::ALERT, &[level, description]) if epoch == 0 => {
                    events.record(kind, false);
                    events.alert(level, description);
                }
                (kind, _) => events.record(kind, epoch > 0),
            }
        }
    }

    fn messages<E: Events>(&mut self, content: &[u8], events: &mut E) {
        let mut rest = Cursor(content);
        while !rest.is_empty() {
            let Some(fragment) = Fragment::read(&mut rest) else {
                return events.lost();
            };
            if self.done.contains(&(fragment.number, fragment.kind)) {
                // It was sent again.
                if fragment.offset == 0 {
                    events.message(fragment.kind);
                }
            } else if self.done.len() < MAX_DONE {
                self.fragment(&fragment, events);
            } else {
                events.bounded("messages");
            }
        }
    }

    fn fragment<E: Events>(&mut self, fragment: &Fragment<'_>, events: &mut E) {
        let &Fragment {
            kind,
            length,
            number,
            offset,
            bytes,
        } = fragment;
        if !Reader::wants(kind) || length > MAX_MESSAGE {
            self.done.push((number, kind));
            events.message(kind);
            if Reader::wants(kind) {
                events.bounded(TOO_LONG);
            }
            return;
        }
        if bytes.len() == length {
            return self.message(number, kind, bytes, events);
        }
        let is_its = |it: &Open| (it.number, it.kind, it.length) == (number, kind, length);
        let place = self.open.iter().position(is_its).unwrap_or_else(|| {
            if self.open.len() >= MAX_OPEN {
                self.open.remove(0);
                events.bounded(TOO_MANY);
            }
            self.open.push(Open {
                number,
                kind,
                length,
                pieces: Vec::new(),
            });
            self.open.len() - 1
        });
        let Some(open) = self.open.get_mut(place) else {
            return;
        };
        if !open.add(offset, bytes) {
            events.bounded(TOO_MANY);
        }
        if open.is_whole() {
            let whole = self.open.remove(place);
            let body = whole.pieces.first().map_or(&[][..], |piece| &piece.1);
            self.message(number, kind, body, events);
        }
    }

    fn message<E: Events>(&mut self, number: u16, kind: u8, body: &[u8], events: &mut E) {
        self.done.push((number, kind));
        self.open
            .retain(|it| (it.number, it.kind) != (number, kind));
        self.reader.is_datagram = true;
        if !self.reader.message(kind, body, events) {
            events.lost();
        }
    }
}

impl Open {
    fn is_whole(&self) -> bool {
        match self.pieces.as_slice() {
            [(0, bytes)] => bytes.len() == self.length,
            _ => false,
        }
    }

    /// What came first stays. False: something had to be left out.
    fn add(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let end = offset + bytes.len();
        let mut start = offset;
        while start < end {
            let place = self.pieces.partition_point(|piece| piece.0 <= start);
            let before = place.checked_sub(1).and_then(|at| self.pieces.get_mut(at));
            let stop = before.as_ref().map_or(0, |it| it.0 + it.1.len());
            if stop > start {
                start = stop;
                continue;
            }
            let touches = before.is_some() && stop == start;
            let next = self.pieces.get(place).map_or(end, |next| next.0);
            let until = next.min(end);
            let part = bytes.get(start - offset..until - offset);
            let part = part.unwrap_or_default();
            let place = match touches {
                true => place - 1,
                false if self.pieces.len() >= MAX_PIECES => return false,
                false => {
                    self.pieces.insert(place, (start, Vec::new()));
                    place
                }
            };
            let touches_next = until == next && place + 1 < self.pieces.len();
            let behind = touches_next.then(|| self.pieces.remove(place + 1).1);
            if let Some((_, piece)) = self.pieces.get_mut(place) {
                piece.extend_from_slice(part);
                piece.extend(behind.into_iter().flatten());
            }
            start = until;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_message_come_in_any_order_and_again() {
        let whole: Vec<u8> = (0..40).collect();
        // Every order of four pieces, two of which overlap.
        let cuts = [(0, 13), (10, 20), (20, 21), (21, 40)];
        for order in 0..256_usize {
            let mut open = Open {
                number: 0,
                kind: 11,
                length: 40,
                pieces: Vec::new(),
            };
            let picks = (0..4).map(|n| order >> (2 * n) & 3);
            for at in picks.clone() {
                let (from, to) = cuts[at];
                open.add(from, &whole[from..to]);
            }
            let has_all = (0..4).all(|at| picks.clone().any(|it| it == at));
            assert_eq!(open.is_whole(), has_all, "{order}");
            let touch = |pair: &[(usize, Vec<u8>)]| pair[0].0 + pair[0].1.len() < pair[1].0;
            assert!(open.pieces.windows(2).all(touch), "{:?}", open.pieces);
            for (start, bytes) in &open.pieces {
                assert_eq!(*bytes, whole[*start..start + bytes.len()]);
            }
        }
    }

    #[test]
    fn pieces_are_bounded() {
        let mut open = Open {
            number: 0,
            kind: 11,
            length: 4000,
            pieces: Vec::new(),
        };
        for place in 0..1000 {
            open.add(4 * place, &[1, 2]);
        }
        assert_eq!(open.pieces.len(), MAX_PIECES);
    }
}
