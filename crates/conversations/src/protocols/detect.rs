//! Which protocol is spoken: by what was sent first, then by ports.

use flowgauge_proto::Look;

use super::signatures::{self, Carries};
use super::table::Piece;
use super::{ProtocolInfo, Seen};

/// Bytes of each direction that are looked at.
pub(super) const BEGINNING: usize = 512;

/// What was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// This one, by its place: its content says so.
    Protocol(u8),
    /// Nothing contradicts this one, and its port is usual for it.
    Usual(u8),
    /// More has to be seen.
    More,
    /// None of them.
    #[default]
    Nothing,
}

/// What was found out in the pieces of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    pub(super) found: Found,
    /// Pieces before the one with which that protocol begins.
    pub(super) passed: usize,
    /// One of those that are not read, and what can follow in it.
    pub(super) signature: Option<(&'static str, Carries)>,
}

/// Looks for protocols in what both sides said first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning<'a> {
    pub(super) protocols: &'a [&'static ProtocolInfo],
    /// The responder's port.
    pub(super) port: u16,
    pub(super) is_udp: bool,
    /// No more will be seen.
    pub(super) is_last: bool,
    /// Signatures are looked for, too.
    pub(super) has_signatures: bool,
}

impl Beginning<'_> {
    /// What these pieces are, in the order in which they came: those from the first one, and where that is
    /// nothing those from the next one, which another protocol can have agreed on.
    pub(super) fn look<'p>(&self, pieces: impl Iterator<Item = Piece<'p>>) -> Looked {
        let mut pieces = pieces.peekable();
        let Some(first) = pieces.next() else {
            return Looked::default();
        };
        if pieces.peek().is_none() {
            return self.begins(&first, [first.bytes, &[]], first.bytes.len(), true);
        }
        let all: Vec<Piece<'_>> = core::iter::once(first).chain(pieces).collect();
        let last = all.last().is_none_or(|piece| piece.from_initiator);
        let mut looked = Looked::default();
        for (place, first) in all.iter().enumerate() {
            let mut said = [Vec::new(), Vec::new()];
            let mut is_broken = [false; 2];
            for piece in &all[place..] {
                let side = usize::from(piece.from_initiator != first.from_initiator);
                // Behind a hole it is not the beginning any more.
                is_broken[side] |= piece.gap_before > 0 && !said[side].is_empty();
                if !is_broken[side] {
                    said[side].extend_from_slice(piece.bytes);
                }
            }
            let length = said[usize::from(last != first.from_initiator)].len();
            let found = self.begins(first, [&said[0], &said[1]], length, place == 0);
            looked.signature = looked.signature.or(found.signature);
            let is_over = match found.found {
                Found::Nothing => looked.signature.is_some(),
                Found::Usual(_) => place == 0,
                Found::Protocol(_) | Found::More => true,
            };
            if is_over {
                looked.found = found.found;
                // The first answer tells what was asked, however that is written.
                let is_answer = all[..place]
                    .iter()
                    .all(|it| it.from_initiator != first.from_initiator);
                looked.passed = if is_answer { 0 } else { place };
                break;
            }
        }
        looked
    }

    /// What was said from a piece on: by its side, and by the other one; so much of what the last piece is of.
    fn begins(&self, first: &Piece<'_>, said: [&[u8]; 2], length: usize, is_first: bool) -> Looked {
        let [mine, other] = said;
        let (initiator, responder) = match first.from_initiator {
            true => (mine, other),
            false => (other, mine),
        };
        let seen = Seen {
            initiator,
            responder,
            port: self.port,
            is_udp: self.is_udp,
        };
        let found = look(self.protocols, &seen, self.is_last || length >= BEGINNING);
        let is_told = matches!(found, Found::Protocol(_));
        let signature = match self.has_signatures && is_first && !is_told {
            true => signatures::by_content(&seen),
            false => None,
        };
        Looked {
            found,
            passed: 0,
            signature,
        }
    }
}

/// Which of `protocols` it is. Where `is_all` no more will be seen.
pub(super) fn look(protocols: &[&ProtocolInfo], seen: &Seen<'_>, is_all: bool) -> Found {
    let mut undecided = false;
    let (mut by_port, mut by_content) = (None, None);
    for (place, protocol) in protocols.iter().enumerate() {
        if !protocol.transport.has(seen.is_udp) {
            continue;
        }
        let place = Some(place as u8);
        let has_port = protocol.ports.contains(&seen.port);
        match (protocol.look)(seen) {
            Look::Yes if has_port => {
                by_content = place;
                break;
            }
            Look::Yes => by_content = by_content.or(place),
            Look::More => {
                undecided = true;
                by_port = by_port.or(place.filter(|_| has_port));
            }
            Look::No => {}
        }
    }
    match (by_content, by_port) {
        (Some(place), _) => Found::Protocol(place),
        (None, Some(place)) if is_all => Found::Usual(place),
        _ if undecided && !is_all => Found::More,
        _ => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Transport, http};
    use super::*;

    static OTHER: ProtocolInfo = ProtocolInfo {
        name: "other",
        transport: Transport::Tcp,
        ports: &[99],
        look: |seen| match seen.initiator.first() {
            None | Some(b'G') => Look::More,
            Some(b'o') => Look::Yes,
            Some(_) => Look::No,
        },
        ..http::PROTOCOL
    };

    fn of(initiator: &str, port: u16, is_all: bool) -> Found {
        let seen = Seen {
            initiator: initiator.as_bytes(),
            responder: b"",
            port,
            is_udp: false,
        };
        look(&[&http::PROTOCOL, &OTHER], &seen, is_all)
    }

    #[test]
    fn content_tells_before_ports_do() {
        assert_eq!(of("GET / HTTP/1.1\r\n", 99, false), Found::Protocol(0));
        assert_eq!(of("other", 80, false), Found::Protocol(1));
        assert_eq!(of("nothing\r\n", 80, false), Found::Nothing);
        assert_eq!(of("G", 99, false), Found::More);
        assert_eq!(of("G", 99, true), Found::Usual(1));
        assert_eq!(of("G", 81, true), Found::Nothing);
    }
}
