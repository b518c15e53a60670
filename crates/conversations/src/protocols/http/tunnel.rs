//! What goes through a proxy behind CONNECT (RFC 9110, section 9.3.6), or within WebSocket (RFC 6455).

use flowgauge_proto::{Look, smtp, ssh, tls};
use flowgauge_stack::StreamEnd;

use super::super::smtp::SmtpTalk;
use super::super::ssh::SshTalk;
use super::super::tls::TlsTalk;
use super::super::{At, Conversation, Give};

/// A connection within a connection.
#[derive(Default)]
pub(super) struct Tunnel {
    inner: Inner,
    /// Of WebSocket: the responder's, the initiator's.
    frames: Option<Box<[Frames; 2]>>,
}

/// What is spoken within, told by what is said first.
#[derive(Default)]
enum Inner {
    #[default]
    Unknown,
    Tls(Box<TlsTalk>),
    Smtp(Box<SmtpTalk>),
    Ssh(Box<SshTalk>),
    /// Nothing that is read.
    Other,
}

/// Does the same with whatever is spoken.
macro_rules! with_talk {
    ($inner:expr, $none:expr, $talk:ident => $work:expr) => {
        match $inner {
            Inner::Unknown | Inner::Other => $none,
            Inner::Tls($talk) => $work,
            Inner::Smtp($talk) => $work,
            Inner::Ssh($talk) => $work,
        }
    };
}

impl Inner {
    /// Which one it is, by this piece of one side.
    fn of(bytes: &[u8]) -> Inner {
        let mail = [smtp::look_client(bytes), smtp::look_server(bytes)];
        match (tls::look(bytes), ssh::look(bytes), mail) {
            (Look::Yes, ..) => Inner::Tls(Box::default()),
            (_, Look::Yes, _) => Inner::Ssh(Box::default()),
            (_, _, [Look::Yes, _] | [_, Look::Yes]) => Inner::Smtp(Box::default()),
            (Look::No, Look::No, [Look::No, Look::No]) => Inner::Other,
            _ => Inner::Unknown,
        }
    }

    fn data(&mut self, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        if matches!(self, Inner::Unknown) {
            *self = Inner::of(bytes);
        }
        with_talk!(self, (), talk => talk.data(&mut (), at, bytes, give));
    }
}

impl Tunnel {
    /// Within WebSocket.
    pub(super) fn in_frames() -> Tunnel {
        Tunnel {
            frames: Some(Box::default()),
            ..Tunnel::default()
        }
    }

    /// Bytes of memory that it keeps.
    pub(super) fn held(&self) -> usize {
        let frames = self
            .frames
            .as_ref()
            .map_or(0, |frames| size_of_val(&**frames));
        frames + with_talk!(&self.inner, 0, talk => size_of_val(&**talk) + talk.held())
    }

    pub(super) fn data(&mut self, at: &At<'_>, bytes: &[u8], give: &mut Give<'_>) {
        let Tunnel { inner, frames } = self;
        match frames {
            Some(frames) => frames[at.side()].data(bytes, |bytes| inner.data(at, bytes, give)),
            None => inner.data(at, bytes, give),
        }
    }

    pub(super) fn gap(&mut self, at: &At<'_>, bytes: u64, give: &mut Give<'_>) {
        if self.frames.is_some() {
            // Where the next frame begins is not known.
            with_talk!(&mut self.inner, (), talk => talk.close(&mut (), at, give));
            self.inner = Inner::Other;
        }
        with_talk!(&mut self.inner, (), talk => talk.gap(&mut (), at, bytes, give));
    }

    pub(super) fn end(&mut self, at: &At<'_>, end: StreamEnd, give: &mut Give<'_>) {
        with_talk!(&mut self.inner, (), talk => talk.end(&mut (), at, end, give));
    }

    pub(super) fn close(&mut self, at: &At<'_>, give: &mut Give<'_>) {
        with_talk!(&mut self.inner, (), talk => talk.close(&mut (), at, give));
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
    use super::super::Talk;
    use super::Frames;
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
