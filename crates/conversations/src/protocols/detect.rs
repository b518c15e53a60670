//! Which protocol is spoken: by what was sent first, then by ports.

use flowgauge_proto::Look;

use super::{ProtocolInfo, Seen};

/// Bytes of each direction that are looked at.
pub(super) const BEGINNING: usize = 512;

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// This one, by its place.
    Protocol(u8),
    /// More has to be seen.
    More,
    /// None of them.
    Nothing,
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
    match by_content.or(by_port.filter(|_| is_all)) {
        Some(place) => Found::Protocol(place),
        None if undecided && !is_all => Found::More,
        None => Found::Nothing,
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
        assert_eq!(of("G", 99, true), Found::Protocol(1));
        assert_eq!(of("G", 81, true), Found::Nothing);
    }
}
