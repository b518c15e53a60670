//! What goes through a proxy behind CONNECT (RFC 9110, section 9.3.6), or within WebSocket (RFC 6455).

use std::sync::LazyLock;

use flowgauge_stack::StreamEnd;

use super::super::detect::{BEGINNING, Detector, Found};
use super::super::table::{Piece, Talks};
use super::super::{ALL, At, Connection, Give, Seen};

static DETECTOR: LazyLock<Detector> = LazyLock::new(|| Detector::new(ALL.to_vec()));

/// Connections within one another that are read, beside the outermost.
pub(super) const DEPTH: u8 = 4;

/// A connection within a connection.
#[derive(Default)]
pub(super) struct Tunnel {
    inner: Inner,
    /// Of WebSocket: the responder's, the initiator's.
    frames: Option<Box<[Frames; 2]>>,
}

/// What is spoken within.
enum Inner {
    /// What the responder said so far, and the initiator.
    Unknown([Vec<u8>; 2]),
    /// One of all protocols, told by what is said first.
    Spoken(Spoken),
    /// Nothing that is read.
    Other,
}

/// A conversation within another.
struct Spoken {
    protocol: &'static str,
    /// It alone.
    table: Box<dyn Talks>,
    number: u32,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner::Unknown(Default::default())
    }
}

impl Spoken {
    /// Does something in it, as its protocol.
    fn with(&mut self, give: &mut Give<'_>, work: impl FnOnce(&mut dyn Talks, u32, &mut Give<'_>)) {
        let before = give.speaks(self.protocol);
        work(&mut *self.table, self.number, give);
        give.speaks(before);
        // There can be as many tables as connections.
        self.table.trim();
    }

    fn data(&mut self, at: &At<'_>, bytes: &[u8], gap_before: u64, give: &mut Give<'_>) {
        if let Some(connection) = self.table.connection(self.number) {
            connection.retransmitted = at.connection.retransmitted;
        }
        let piece = piece(at, bytes, gap_before);
        self.with(give, |table, number, give| {
            table.data(number, &piece, give);
        });
    }
}

fn piece<'a>(at: &At<'_>, bytes: &'a [u8], gap_before: u64) -> Piece<'a> {
    Piece {
        bytes,
        gap_before,
        skipped: 0,
        from_initiator: at.from_initiator,
        time: at.time,
    }
}

impl Inner {
    fn data(&mut self, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        match self {
            Inner::Other => {}
            Inner::Spoken(spoken) => spoken.data(at, bytes, 0, give),
            Inner::Unknown(said) => {
                said[at.side()].extend_from_slice(bytes);
                let seen = Seen {
                    initiator: &said[1],
                    responder: &said[0],
                    // The proxy's is no port of what is spoken.
                    port: 0,
                    is_udp: false,
                };
                let is_all = said[at.side()].len() >= BEGINNING;
                match DETECTOR.look(&seen, is_all) {
                    Found::More => {}
                    Found::Protocol(place) => self.begin(usize::from(place), at, give),
                    Found::Usual(_) | Found::Nothing => *self = Inner::Other,
                }
            }
        }
    }

    /// This protocol is spoken, in what was said so far, too.
    fn begin(&mut self, place: usize, at: &At<'_>, give: &mut Give<'_>) {
        let (Inner::Unknown(said), Some(protocol)) = (core::mem::take(self), ALL.get(place)) else {
            return;
        };
        give.went_over(protocol.name);
        let mut table = (protocol.table)();
        let within = Connection {
            within: at.connection.within + 1,
            ..*at.connection
        };
        let mut spoken = Spoken {
            protocol: protocol.name,
            number: table.open(within, 0),
            table,
        };
        // The side that told it spoke last.
        for from_initiator in [!at.from_initiator, at.from_initiator] {
            let at = At {
                from_initiator,
                ..*at
            };
            let bytes = &said[at.side()];
            if !bytes.is_empty() {
                spoken.data(&at, bytes, 0, give);
            }
        }
        *self = Inner::Spoken(spoken);
    }

    fn close(&mut self, give: &mut Give<'_>) {
        if let Inner::Spoken(mut spoken) = core::mem::replace(self, Inner::Other) {
            spoken.with(give, |table, number, give| table.close(number, give));
        }
    }
}

impl Tunnel {
    /// In this connection; `None`: it is within too many others.
    pub(super) fn new(connection: &Connection, in_frames: bool) -> Option<Tunnel> {
        (connection.within < DEPTH).then(|| Tunnel {
            inner: Inner::default(),
            frames: in_frames.then(Box::default),
        })
    }

    /// A tunnel in which nothing is read.
    pub(super) fn closed() -> Tunnel {
        Tunnel {
            inner: Inner::Other,
            frames: None,
        }
    }

    /// Bytes of memory that it keeps, beside what is charged for the conversation within.
    pub(super) fn held(&self) -> usize {
        let of_frames = |it: &Frames| size_of::<Frames>() + it.payload.capacity();
        let frames = self.frames.iter().flat_map(|it| it.iter());
        let said = match &self.inner {
            Inner::Unknown(said) => said.iter().map(Vec::capacity).sum(),
            Inner::Spoken(_) | Inner::Other => 0,
        };
        frames.map(of_frames).sum::<usize>() + said
    }

    pub(super) fn data(&mut self, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        let Tunnel { inner, frames } = self;
        match frames {
            Some(frames) => frames[at.side()].data(bytes, |bytes| inner.data(at, bytes, give)),
            None => {
                let was_open = matches!(inner, Inner::Unknown(_));
                inner.data(at, bytes, give);
                if was_open && matches!(inner, Inner::Other) {
                    give.went_over("unknown");
                }
            }
        }
    }

    pub(super) fn gap(&mut self, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        if self.frames.is_some() {
            // Where the next frame begins is not known.
            self.inner.close(give);
        }
        match &mut self.inner {
            Inner::Unknown(said) => said[at.side()].clear(),
            Inner::Spoken(spoken) => spoken.data(at, &[], bytes, give),
            Inner::Other => {}
        }
    }

    pub(super) fn end(&mut self, at: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        if let Inner::Spoken(spoken) = &mut self.inner {
            let piece = piece(at, &[], 0);
            spoken.with(give, |table, number, give| {
                table.end(number, &piece, end, give)
            });
        }
    }

    pub(super) fn close(&mut self, give: &mut Give<'_>) {
        self.inner.close(give);
    }
}

/// Takes the frames of one direction apart (RFC 6455, section 5.2).
#[derive(Default)]
struct Frames {
    /// What has come of a frame's head.
    head: [u8; 14],
    count: usize,
    /// Bytes of the payload that are to come; `None`: in the head.
    left: Option<u64>,
    /// Bytes of it that have come.
    done: u64,
    payload: Vec<u8>,
}

impl Frames {
    /// How long a head is that begins so.
    fn head_length(&self) -> usize {
        let [_, second, ..] = self.head;
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        match (self.count, second & 0x7f) {
            (..2, _) => 2,
            (_, 126) => 4 + mask,
            (_, 127) => 10 + mask,
            _ => 2 + mask,
        }
    }

    fn payload_length(&self) -> u64 {
        let [_, second, a, b, c, d, e, f, g, h, ..] = self.head;
        match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([a, b])),
            127 => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            short => short.into(),
        }
    }

    /// Gives on what data frames carry, unmasked; what is compressed is left out.
    fn data(&mut self, bytes: &[u8], mut give: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !rest.is_empty() || self.left == Some(0) {
            let Some(left) = self.left else {
                let taken = (self.head_length() - self.count).min(rest.len());
                self.head[self.count..self.count + taken].copy_from_slice(&rest[..taken]);
                self.count += taken;
                rest = &rest[taken..];
                if self.count >= 2 && self.count == self.head_length() {
                    (self.left, self.done) = (Some(self.payload_length()), 0);
                }
                continue;
            };
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let (mine, behind) = rest.split_at(taken);
            rest = behind;
            // Neither a control frame nor one that an extension has changed.
            if self.head[0] & 0x78 == 0 && taken > 0 {
                self.payload.clear();
                self.payload.extend_from_slice(mine);
                if self.head[1] & 0x80 != 0 {
                    let mask = &self.head[self.count - 4..self.count];
                    let places = self.done..;
                    for (byte, place) in self.payload.iter_mut().zip(places) {
                        *byte ^= mask[(place % 4) as usize];
                    }
                }
                give(&self.payload);
            }
            self.done += taken as u64;
            self.left = match left - taken as u64 {
                0 => {
                    self.count = 0;
                    None
                }
                left => Some(left),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pool, Talk, WAITING};
    use super::{DEPTH, Frames};
    use crate::protocols::Conversation as _;
    use crate::protocols::testing::Tester;

    #[test]
    fn a_mail_through_a_proxy_is_a_mail() {
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 8080).opened();
        tester.say(
            true,
            1,
            b"CONNECT mx.example:25 HTTP/1.1\r\nHost: mx.example\r\n\r\n",
        );
        tester.say(
            false,
            2,
            b"HTTP/1.1 200 Connected\r\n\r\n220 mx.example ESMTP\r\n",
        );
        for (seconds, command, reply) in [
            (3, "EHLO a.example\r\n", "250 mx.example\r\n"),
            (4, "MAIL FROM:<a@a.example>\r\n", "250 ok\r\n"),
            (5, "RCPT TO:<b@b.example>\r\n", "250 ok\r\n"),
            (6, "DATA\r\n", "354 go on\r\n"),
            (7, "Subject: x\r\n\r\nx\r\n.\r\n", "250 taken\r\n"),
        ] {
            tester.say(true, seconds, command.as_bytes());
            tester.say(false, seconds, reply.as_bytes());
        }
        tester.close();
        let rows = tester.rows(&["event_type", "method", "mailfrom", "subject"]);
        assert!(
            rows.contains(&r#""smtp" null "a@a.example" "x""#.to_owned()),
            "{rows:?}"
        );
        assert!(rows.iter().any(|row| row.contains("CONNECT")), "{rows:?}");
        assert_eq!(rows.len(), 2, "{rows:?}");
    }

    const CONNECT: &[u8] = b"CONNECT x.example:80 HTTP/1.1\r\nHost: x.example\r\n\r\n";
    const CONNECTED: &[u8] = b"HTTP/1.1 200 Connected\r\n\r\n";

    fn tester() -> Tester<Talk> {
        Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 8080).opened()
    }

    /// What is kept for later messages is bounded for each protocol, but there is a table for each tunnel.
    #[test]
    fn a_tunnel_keeps_no_messages_for_later_ones() {
        let mut pool = Pool::default();
        pool.give_back(Box::default());
        assert_eq!(pool.0.len(), 1);
        Talk::trim(&mut pool);
        assert_eq!(pool.0.capacity(), 0);
    }

    #[test]
    fn http_through_a_proxy_is_http_in_any_pieces() {
        let request = [CONNECT, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"];
        let response = [CONNECTED, b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno"];
        for size in [1, 7, 400] {
            let mut tester = tester();
            for (request, response) in request.iter().zip(response) {
                request.chunks(size).for_each(|it| tester.say(true, 1, it));
                response
                    .chunks(size)
                    .for_each(|it| tester.say(false, 2, it));
            }
            tester.close();
            let rows = tester.rows(&["event_type", "method", "status", "response_body_bytes"]);
            let wanted = [r#""test" "CONNECT" 200 0"#, r#""http" "GET" 404 2"#];
            assert_eq!(rows, wanted, "{size}");
        }
    }

    /// The proxy agrees to each at once, in a piece of its own or with the next one.
    #[test]
    fn beyond_the_bound_nothing_is_read_and_the_record_says_so() {
        let mut tester = tester();
        for _ in 0..100_000 {
            tester.say(true, 1, CONNECT);
            tester.say(false, 2, CONNECTED);
        }
        tester.close();
        let mut wanted = vec![r#""CONNECT" 200 null"#; usize::from(DEPTH)];
        wanted.push(r#""CONNECT" 200 "tunnels""#);
        let mut rows = tester.rows(&["method", "status", "limit"]);
        rows.sort_unstable_by_key(|row| row.contains("tunnels"));
        assert_eq!(rows, wanted);
    }

    #[test]
    fn a_hundred_thousand_requests_for_tunnels_at_once_are_bounded() {
        let mut tester = tester();
        tester.say(true, 1, CONNECT);
        tester.say(false, 2, CONNECTED);
        tester.say(true, 3, &CONNECT.repeat(100_000));
        tester.say(false, 4, &CONNECTED.repeat(100_000));
        tester.close();
        let rows = tester.rows(&["limit"]);
        // Behind requests that no longer wait the answer is for none that is known, and all that follows is its body; those
        // that wait at the end, and the outer one, are within the bounds.
        assert_eq!(rows.len(), 100_002);
        let within = rows.iter().filter(|row| *row == "null").count();
        assert_eq!(within, WAITING + 1);
    }

    #[test]
    fn what_is_refused_is_no_tunnel() {
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 8080).opened();
        tester.say(
            true,
            1,
            b"CONNECT mx.example:25 HTTP/1.1\r\nHost: mx.example\r\n\r\n",
        );
        tester.say(false, 2, b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        tester.say(true, 3, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        tester.say(false, 4, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        tester.close();
        let rows = tester.rows(&["method", "status"]);
        assert_eq!(rows, [r#""CONNECT" 403"#, r#""GET" 200"#]);
    }

    #[test]
    fn frames_are_taken_apart_in_any_pieces() {
        let mut bytes = vec![0x82, 0x85, 1, 2, 3, 4];
        bytes.extend(
            b"hello"
                .iter()
                .zip([1, 2, 3, 4, 1])
                .map(|(byte, mask)| byte ^ mask),
        );
        // A ping, one that is compressed, an empty one, a long one.
        bytes.extend([0x89, 1, b'p', 0xc2, 1, b'z', 0x82, 0, 0x82, 126, 0x01, 0x00]);
        bytes.extend([b'x'; 256]);
        let mut wanted = b"hello".to_vec();
        wanted.extend([b'x'; 256]);
        for size in [1, 2, 3, 7, 400] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(size) {
                frames.data(piece, |bytes| found.extend_from_slice(bytes));
            }
            assert_eq!(found, wanted, "{size}");
        }
    }

    #[test]
    fn ssh_within_websocket_is_ssh() {
        let mut tester = Tester::<Talk>::tcp([10, 0, 0, 1], 40_000, [10, 0, 0, 2], 80).opened();
        tester.say(
            true,
            1,
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        );
        tester.say(
            false,
            2,
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        );
        tester.say(false, 3, b"\x82\x0aSSH-2.0-a\n");
        tester.say(true, 4, b"\x82\x8a\0\0\0\0SSH-2.0-b\n");
        tester.close();
        let rows = tester.rows(&["event_type", "client", "server"]);
        assert!(
            rows.contains(&r#""ssh" "SSH-2.0-b" "SSH-2.0-a""#.to_owned()),
            "{rows:?}"
        );
    }
}
