//! Which protocol is spoken: by what was sent first, then by ports.

use flowgauge_proto::Look;

use super::signatures::{self, Carries};
use super::watched::Kept;
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
    pub(super) fn look(&self, kept: &mut Kept) -> Looked {
        let last = kept.pieces.last().is_none_or(|piece| piece.from_initiator);
        let mut looked = Looked::default();
        for place in 0..kept.pieces.len() {
            let has_signatures = self.has_signatures && place == 0;
            if kept.pieces[place].begins_nothing && !has_signatures {
                continue;
            }
            let said = kept.said_from(place);
            let seen = Seen {
                initiator: said[1],
                responder: said[0],
                port: self.port,
                is_udp: self.is_udp,
            };
            let is_all = self.is_last || said[usize::from(last)].len() >= BEGINNING;
            let found = match kept.pieces[place].begins_nothing {
                true => Found::Nothing,
                false => look(self.protocols, &seen, is_all),
            };
            if has_signatures && !matches!(found, Found::Protocol(_)) {
                looked.signature = signatures::by_content(&seen);
            }
            let is_over = match found {
                Found::Nothing => looked.signature.is_some(),
                Found::Usual(_) => place == 0,
                Found::Protocol(_) | Found::More => true,
            };
            kept.pieces[place].begins_nothing |= found == Found::Nothing && !is_all;
            if is_over {
                looked.found = found;
                // The first answer tells what was asked, however that is written.
                let first = kept.pieces[place].from_initiator;
                let mut before = kept.pieces[..place].iter();
                let is_answer = before.all(|piece| piece.from_initiator != first);
                looked.passed = if is_answer { 0 } else { place };
                break;
            }
        }
        looked
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
        let has_port = || protocol.ports.contains(&seen.port);
        match (protocol.look)(seen) {
            Look::Yes if has_port() => {
                by_content = place;
                break;
            }
            Look::Yes => by_content = by_content.or(place),
            Look::More => {
                undecided = true;
                // Nobody asks before.
                if is_all && by_port.is_none() && has_port() {
                    by_port = place;
                }
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
