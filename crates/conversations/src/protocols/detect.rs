//! Which protocol is spoken: by what was sent first, then by ports.

use flowgauge_proto::Look;

use super::signatures::{self, Carries};
use super::watched::Kept;
use super::{ProtocolInfo, Seen, http, tls};

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

/// Tells which of some protocols is spoken.
pub(super) struct Detector {
    /// Those first that are tried first; 16 at most.
    pub(super) protocols: Vec<&'static ProtocolInfo>,
    /// Those of TCP and of UDP, as bits by place.
    over: [u16; 2],
    /// Those that a direction of TCP (the responder's, the initiator's) can speak with this first byte.
    by_first_byte: Box<[[u16; 256]; 2]>,
}

/// Looks for protocols in what both sides said first.
pub(super) struct Beginning<'a> {
    pub(super) detector: &'a Detector,
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
                false => self.detector.look(&seen, is_all),
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

impl Detector {
    pub(super) fn new(protocols: Vec<&'static ProtocolInfo>) -> Detector {
        let mut over = [0; 2];
        let mut by_first_byte = Box::new([[0; 256]; 2]);
        for (place, protocol) in protocols.iter().enumerate() {
            for is_udp in [false, true] {
                let has = protocol.transport.has(is_udp);
                over[usize::from(is_udp)] |= u16::from(has) << place;
            }
            // Of HTTP a whole line tells, whatever it begins with.
            let is_any = protocol.name == http::PROTOCOL.name;
            for (side, of_bytes) in by_first_byte.iter_mut().enumerate() {
                for (byte, bits) in (0..=u8::MAX).zip(of_bytes) {
                    let first = [byte];
                    let (initiator, responder) = first.split_at(side);
                    let seen = Seen {
                        initiator,
                        responder,
                        port: 0,
                        is_udp: false,
                    };
                    let can_be = is_any || (protocol.look)(&seen) != Look::No;
                    *bits |= u16::from(can_be) << place & over[0];
                }
            }
        }
        Detector {
            protocols,
            over,
            by_first_byte,
        }
    }

    /// The protocols that can be there. A first byte that begins nothing of a protocol rules it out.
    fn candidates(&self, seen: &Seen<'_>) -> u16 {
        let all = self.over[usize::from(seen.is_udp)];
        // TLS can come later.
        if seen.is_udp || tls::is_later(seen.port) {
            return all;
        }
        let of = |side: usize, bytes: &[u8]| {
            let first = bytes.first();
            first.map(|&byte| self.by_first_byte[side][usize::from(byte)])
        };
        match (of(0, seen.responder), of(1, seen.initiator)) {
            (Some(one), Some(other)) => one | other,
            (one, other) => one.or(other).unwrap_or(all),
        }
    }

    /// Which of the protocols it is. Where `is_all` no more will be seen.
    pub(super) fn look(&self, seen: &Seen<'_>, is_all: bool) -> Found {
        let mut undecided = false;
        let (mut by_port, mut by_content) = (None, None);
        let mut left = self.candidates(seen);
        while left != 0 {
            let place = left.trailing_zeros() as u8;
            left &= left - 1;
            let Some(protocol) = self.protocols.get(usize::from(place)) else {
                break;
            };
            let has_port = || protocol.ports.contains(&seen.port);
            match (protocol.look)(seen) {
                Look::Yes if has_port() => {
                    by_content = Some(place);
                    break;
                }
                Look::Yes => by_content = by_content.or(Some(place)),
                Look::More => {
                    undecided = true;
                    // Nobody asks before.
                    if is_all && by_port.is_none() && has_port() {
                        by_port = Some(place);
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
}

#[cfg(test)]
mod tests {
    use super::super::{ALL, Transport};
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
        Detector::new(vec![&http::PROTOCOL, &OTHER]).look(&seen, is_all)
    }

    /// What both sides said first in captures, and any beginning: no first byte rules out what a protocol sees in it.
    #[test]
    fn first_bytes_rule_nothing_out_that_is_there() {
        let detector = Detector::new(ALL.to_vec());
        let said: &[&[u8]] = &[
            b"",
            b"GET / HTTP/1.1\r\n",
            b"( / HTTP/1.1\r\n",
            b"\r\nHTTP/1.1 200 OK\r\n",
            b"\x16\x03\x01\0\xc8\x01\0\0\xc4\x03\x03",
            b"\x80\x2e\x01\x03\x01\0\x15\0\0\0\x10",
            b"SSH-2.0-OpenSSH\r\n",
            b"ehlo a\r\n",
            b"USER me\r\n",
            b"feat\r\n",
            b"220 mail ESMTP\r\n",
            b"220 FTP\r\n",
            b"500 no\r\n",
            b"\0\x1d\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01",
            b"\x80\0\0\x28\0\0\0\x01\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\0",
        ];
        let mut found = 0;
        for (one, other) in said
            .iter()
            .flat_map(|one| said.iter().map(move |other| (one, other)))
        {
            for (cut, port) in (0..=one.len()).flat_map(|cut| [(cut, 1), (cut, 110), (cut, 443)]) {
                for (initiator, responder) in [(&one[..cut], *other), (*other, &one[..cut])] {
                    let seen = Seen {
                        initiator,
                        responder,
                        port,
                        is_udp: false,
                    };
                    let candidates = detector.candidates(&seen);
                    for (place, protocol) in ALL.iter().enumerate() {
                        let is_there =
                            protocol.transport.has(false) && (protocol.look)(&seen) != Look::No;
                        assert!(
                            !is_there || candidates >> place & 1 != 0,
                            "{} {seen:?}",
                            protocol.name
                        );
                        found += usize::from(is_there);
                    }
                }
            }
        }
        assert!(found > 1_000, "{found}");
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
