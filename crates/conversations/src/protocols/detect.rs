//! Which protocol is spoken: by what was sent first, then by ports.

use std::collections::BTreeMap;

use flowgauge_proto::Look;

use super::signatures::{self, Carries};
use super::table::Piece;
use super::watched::{Kept, is_printable};
use super::{ProtocolInfo, Seen, http, tls};

/// Bytes of each direction that are looked at.
pub(super) const BEGINNING: usize = 512;

/// What a side says in a few words.
const SHORT: usize = 128;

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

impl From<Found> for Looked {
    fn from(found: Found) -> Looked {
        Looked {
            found,
            ..Looked::default()
        }
    }
}

/// Tells which of some protocols is spoken.
pub(super) struct Detector {
    /// Those first that are tried first; 16 at most.
    pub(super) protocols: Vec<&'static ProtocolInfo>,
    /// Those of TCP and of UDP, as bits by place.
    over: [u16; 2],
    /// Those that a direction of TCP (the responder's, the initiator's) can speak with this first byte, and those of which a
    /// datagram of UDP can begin with it.
    by_first_byte: Box<[[u16; 256]; 3]>,
    /// Ports that are usual for some, in order, and for which.
    by_port: Vec<(u16, u16)>,
    /// A bit for the lowest bits of each of them: most ports are usual for none.
    some_ports: [u64; 8],
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
    /// What the first piece of a connection is.
    pub(super) fn look_first(&self, piece: &Piece<'_>) -> Looked {
        let mut said: [&[u8]; 2] = [&[]; 2];
        said[usize::from(piece.from_initiator)] = piece.bytes;
        let seen = self.seen(said);
        self.look_at(&seen, piece.bytes.len(), self.has_signatures)
            .0
    }

    /// What begins with these bytes, `len` of them by who spoke last, and whether [lines are open](open_lines).
    fn look_at(&self, seen: &Seen<'_>, len: usize, has_signatures: bool) -> (Looked, bool) {
        let is_all = self.is_last || len >= BEGINNING;
        let lines = open_lines(seen);
        let mut looked = Looked::from(match lines {
            Some(true) if !is_all => Found::More,
            Some(_) if is_all && self.detector.usual_on(seen.port) == 0 => Found::Nothing,
            _ => self.detector.look(seen, is_all),
        });
        if has_signatures && lines.is_none() && !matches!(looked.found, Found::Protocol(_)) {
            looked.signature = signatures::by_content(seen);
        }
        (looked, lines.is_some())
    }

    fn seen<'a>(&self, said: [&'a [u8]; 2]) -> Seen<'a> {
        Seen {
            initiator: said[1],
            responder: said[0],
            port: self.port,
            is_udp: self.is_udp,
        }
    }

    /// What these pieces are, in the order in which they came: those from the first one, and where that is
    /// nothing those from the next one, which another protocol can have agreed on.
    pub(super) fn look(&self, kept: &mut Kept) -> Looked {
        let mut looked = Looked::default();
        if self.is_last && kept.are_words() && self.detector.usual_on(self.port) == 0 {
            return looked;
        }
        let pieces = kept.pieces();
        let last = pieces.last().is_none_or(|piece| piece.from_initiator);
        for place in 0..pieces.len() {
            let has_signatures = self.has_signatures && place == 0;
            let begins_nothing = kept.pieces()[place].begins_nothing;
            if begins_nothing && !has_signatures {
                continue;
            }
            let said = kept.said_from(place);
            let seen = self.seen(said);
            let len = said[usize::from(last)].len();
            let (found, lines_are_open) = match begins_nothing {
                true => {
                    looked.signature = signatures::by_content(&seen);
                    (Found::Nothing, false)
                }
                false => {
                    let (one, lines_are_open) = self.look_at(&seen, len, has_signatures);
                    looked.signature = one.signature;
                    (one.found, lines_are_open)
                }
            };
            let is_over = match found {
                Found::Nothing => looked.signature.is_some(),
                Found::Usual(_) => place == 0,
                Found::Protocol(_) | Found::More => true,
            };
            let both_spoke = said.iter().all(|side| !side.is_empty());
            kept.awaits_line = lines_are_open && both_spoke && place == 0 && found == Found::More;
            let is_nothing = found == Found::Nothing && !self.is_last && len < BEGINNING;
            kept.pieces_mut()[place].begins_nothing |= is_nothing;
            if is_over {
                looked.found = found;
                // The first answer tells what was asked, however that is written.
                let first = kept.pieces()[place].from_initiator;
                let mut before = kept.pieces()[..place].iter();
                let is_answer = before.all(|piece| piece.from_initiator != first);
                looked.passed = if is_answer { 0 } else { place };
                break;
            }
        }
        looked
    }
}

/// Whether each side that has spoken over TCP began with a line, in words that begin with a small letter, that is not
/// complete. Then no signature is there, and no protocol says yes before its end, whatever comes: 14 printable
/// bytes are no length and no header of a binary protocol, and four hexadecimal digits would be git's. `Some(true)`: HTTP waits
/// for that end, as such a line can be a request.
fn open_lines(seen: &Seen<'_>) -> Option<bool> {
    if seen.is_udp {
        return None;
    }
    let mut can_be_request = false;
    let sides = [seen.initiator, seen.responder];
    for side in sides.into_iter().filter(|side| !side.is_empty()) {
        let first = side
            .first_chunk::<14>()
            .filter(|it| it[0].is_ascii_lowercase())?;
        if first[..4].iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        // (A newline is not printable; of a short side one look at all of it is less than two.)
        let is_open = side.len() <= SHORT && is_printable(side)
            || is_printable(first) && memchr::memchr(b'\n', side).is_none();
        if !is_open {
            return None;
        }
        can_be_request |= flowgauge_proto::http::begins_with_method(side)?;
    }
    Some(can_be_request)
}

impl Detector {
    pub(super) fn new(protocols: Vec<&'static ProtocolInfo>) -> Detector {
        let mut over = [0; 2];
        let mut by_first_byte = Box::new([[0; 256]; 3]);
        let mut by_port: BTreeMap<u16, u16> = BTreeMap::new();
        let mut some_ports = [0; 8];
        for (place, protocol) in protocols.iter().enumerate() {
            for is_udp in [false, true] {
                let has = protocol.transport.has(is_udp);
                over[usize::from(is_udp)] |= u16::from(has) << place;
            }
            for port in protocol.ports {
                *by_port.entry(*port).or_default() |= 1 << place;
                some_ports[usize::from(port >> 6 & 7)] |= 1 << (port & 63);
            }
            let [sides @ .., datagrams] = &mut *by_first_byte;
            for (byte, bits) in (0..=u8::MAX).zip(datagrams) {
                let can_be = (protocol.begins_datagram)(byte);
                *bits |= u16::from(can_be) << place & over[1];
            }
            if !protocol.transport.has(false) {
                continue;
            }
            // Of HTTP a whole line tells, whatever it begins with.
            let is_any = protocol.name == http::PROTOCOL.name;
            for (side, of_bytes) in sides.iter_mut().enumerate() {
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
                    *bits |= u16::from(can_be) << place;
                }
            }
        }
        Detector {
            protocols,
            over,
            by_first_byte,
            by_port: by_port.into_iter().collect(),
            some_ports,
        }
    }

    /// The protocols that are usual on this port.
    fn usual_on(&self, port: u16) -> u16 {
        if self.some_ports[usize::from(port >> 6 & 7)] >> (port & 63) & 1 == 0 {
            return 0;
        }
        let found = self.by_port.binary_search_by_key(&port, |(port, _)| *port);
        found.map_or(0, |at| self.by_port[at].1)
    }

    /// The place of the protocol with this name.
    pub(super) fn place(&self, name: &str) -> Option<u8> {
        let place = self.protocols.iter().position(|it| it.name == name);
        place.map(|place| place as u8)
    }

    /// The protocols that can be there. A first byte that begins nothing of a protocol rules it out.
    fn candidates(&self, seen: &Seen<'_>) -> u16 {
        let all = self.over[usize::from(seen.is_udp)];
        // TLS can come later.
        if !seen.is_udp && tls::is_later(seen.port) {
            return all;
        }
        let of = |side: usize, bytes: &[u8]| {
            let first = bytes.first();
            first.map(|&byte| self.by_first_byte[side][usize::from(byte)])
        };
        if seen.is_udp {
            let of = |bytes| of(2, bytes).unwrap_or(0);
            // Malformed messages are told by their port.
            return of(seen.responder) | of(seen.initiator) | self.usual_on(seen.port) & all;
        }
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
        let usual = self.usual_on(seen.port);
        while left != 0 {
            let place = left.trailing_zeros() as u8;
            left &= left - 1;
            let Some(protocol) = self.protocols.get(usize::from(place)) else {
                break;
            };
            let has_port = usual >> place & 1 != 0;
            match (protocol.look)(seen) {
                Look::Yes if has_port => {
                    by_content = Some(place);
                    break;
                }
                Look::Yes => by_content = by_content.or(Some(place)),
                Look::More => {
                    undecided = true;
                    // Nobody asks before.
                    if is_all && by_port.is_none() && has_port {
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
    use flowgauge_wire::Nanos;

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

    /// What [`open_lines`] says holds: whatever follows before the end of a line, no protocol and no signature says yes, and
    /// HTTP waits for that end if it can be a request.
    #[test]
    fn only_its_end_tells_more_of_an_open_line() {
        let beginnings: &[&str] = &[
            "",
            "helo some host an",
            "user anonymous or",
            "feat of a line an",
            "get / of nothing ",
            "head of http/1.1 ",
            "feed the git-uplo",
            "a1 login somebody",
            "nick somebody els",
            "pass the password",
            "cap ls of a serve",
            "ssh-2.0-openssh a",
            "kerberos of a rea",
            "a-word-of-thirty-three-characters-",
            "word:another word",
        ];
        let endings: &[&[u8]] = &[
            b"",
            b" ",
            b"HTTP/1.1",
            b" / HTTP/1.1\r",
            b"GET / HTTP/1.1\r",
            b"SSH-2.0-x",
            b"git-upload-pack x",
            b"\0\0\x01\0\0\0\0\0\0",
            b"\xff\xfbSMB!\x12\xa4\x42",
            b"://x 220 FTP SMTP",
            b"* OK ready > | $",
        ];
        let detector = Detector::new(ALL.to_vec());
        let with = |one: &str, end: &[u8]| [one.as_bytes(), end].concat();
        let (mut open, mut requests) = (0, 0);
        for (one, other) in pairs(beginnings) {
            for (end, last) in pairs(endings) {
                for port in [1, 21, 25, 80, 110, 443, 502] {
                    let seen = Seen {
                        initiator: one.as_bytes(),
                        responder: other.as_bytes(),
                        port,
                        is_udp: false,
                    };
                    let Some(can_be_request) = open_lines(&seen) else {
                        continue;
                    };
                    let (initiator, responder) = (with(one, end), with(other, last));
                    let longer = Seen {
                        initiator: if one.is_empty() { b"" } else { &initiator },
                        responder: if other.is_empty() { b"" } else { &responder },
                        ..seen
                    };
                    let found = detector.look(&longer, false);
                    assert!(!matches!(found, Found::Protocol(_)), "{longer:?}");
                    assert!(!can_be_request || found == Found::More, "{longer:?}");
                    assert_eq!(signatures::by_content(&longer), None, "{longer:?}");
                    open += 1;
                    requests += usize::from(can_be_request);
                }
            }
        }
        assert!(
            requests > 1_000 && open > requests + 1_000,
            "{requests} {open}"
        );
    }

    /// What [`Kept::are_words`] says holds, wherever the words are cut into pieces.
    #[test]
    fn words_are_no_protocol_yet() {
        let beginnings: &[&str] = &[
            "helo some.host",
            "ehlo x",
            "user me",
            "auth tls",
            "get / http/1.1",
            "http/1.1 200 ok",
            "ssh-2.0-x",
            "git-upload-pack /x",
            "nick me",
            "a1 login me",
            "cap ls",
            "stats items",
            "yes, 220 ftp smtp",
            "word",
        ];
        let detector = Detector::new(ALL.to_vec());
        let mut looks = 0;
        for (one, other) in pairs(beginnings) {
            for (cut, port) in (4..=one.len()).flat_map(|cut| [(cut, 1), (cut, 21), (cut, 443)]) {
                let one = &one.as_bytes()[..cut];
                for (initiator, responder) in [(one, other.as_bytes()), (one, b""), (b"", one)] {
                    let seen = Seen {
                        initiator,
                        responder,
                        port,
                        is_udp: false,
                    };
                    let mut kept = Kept::default();
                    for (bytes, from_initiator) in [(initiator, true), (responder, false)] {
                        if !bytes.is_empty() {
                            kept.keep(&Piece {
                                bytes,
                                gap_before: 0,
                                skipped: 0,
                                from_initiator,
                                time: Nanos(0),
                            });
                        }
                    }
                    assert!(kept.are_words(), "{seen:?}");
                    let found = detector.look(&seen, true);
                    assert!(!matches!(found, Found::Protocol(_)), "{seen:?}");
                    assert_eq!(signatures::by_content(&seen), None, "{seen:?}");
                    looks += 1;
                }
            }
        }
        assert!(looks > 1_000, "{looks}");
    }

    /// Each byte at the beginning of each datagram: none rules out what a protocol sees in it.
    #[test]
    fn first_bytes_of_datagrams_rule_nothing_out_that_is_there() {
        let detector = Detector::new(ALL.to_vec());
        let mut quic = vec![
            0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x9e,
        ];
        quic.resize(1200, 7);
        let mut dhcp = vec![1, 1, 6, 0, 0, 0, 0, 7];
        dhcp.resize(236, 0);
        dhcp.extend_from_slice(b"\x63\x82\x53\x63\x35\x01\x01\xff");
        let mut ntp = vec![0x23];
        ntp.resize(48, 0);
        let dtls = b"\x16\xfe\xff\0\0\0\0\0\0\0\0\0\x0d\x01\0\0\x01\0\0\0\0\0\0\0\x01\0";
        let datagrams: &[&[u8]] = &[
            b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01",
            b"\0\0\0\x01\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            b"\x01\x02\0\x20\0\0\0\x09\x40\0\0\0\0\0\0\0\x0a\0\0\x01\x0a\0\0\x02http://\0",
            b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x07\x02\x01\0\x02\x01\0\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x05\0\x05\0",
            b"\x01\x08\x08\x08\0\x01\0\x0e\0\x01\0\x01\x09\x09\x09\x09\x02\0\0\0\0\x07",
            &quic,
            &dhcp,
            &ntp,
            dtls,
        ];
        let mut found = 0_u16;
        for (datagram, first) in datagrams
            .iter()
            .flat_map(|it| (0..=u8::MAX).map(move |b| (it, b)))
        {
            let mut bytes = datagram.to_vec();
            bytes[0] = first;
            for port in [1, 53, 67, 111, 123, 161, 443, 547, 3130] {
                let seen = Seen {
                    initiator: &bytes,
                    responder: b"",
                    port,
                    is_udp: true,
                };
                for (place, protocol) in ALL.iter().enumerate() {
                    let is_there =
                        protocol.transport.has(true) && (protocol.look)(&seen) != Look::No;
                    let can_be = detector.candidates(&seen) >> place & 1 != 0;
                    assert!(!is_there || can_be, "{} {seen:?}", protocol.name);
                    found |= u16::from(is_there) << place;
                }
            }
        }
        assert_eq!(found, detector.over[1], "not all were there");
    }

    fn pairs<'a, T: ?Sized>(all: &'a [&'a T]) -> impl Iterator<Item = (&'a T, &'a T)> {
        all.iter()
            .flat_map(|one| all.iter().map(move |other| (*one, *other)))
    }
}
