//! Messages of the handshake, out of the records of TLS, the fragments of DTLS or the frames of QUIC.

use super::Events;
use super::hello::{ClientHello, ServerHello};
use super::names::cipher_name;
use crate::cursor::Cursor;

/// The longest message that is kept: chains of certificates are far shorter.
pub(super) const MAX_MESSAGE: usize = 128 << 10;

/// Names the bound of a message's length.
pub(super) const TOO_LONG: &str = "message";
/// Names the bound of what waits for what comes before it.
pub(crate) const TOO_MANY: &str = "pieces";

/// Types of messages.
pub mod message {
    /// ClientHello.
    pub const CLIENT_HELLO: u8 = 1;
    /// ServerHello.
    pub const SERVER_HELLO: u8 = 2;
    /// HelloVerifyRequest of DTLS.
    pub const HELLO_VERIFY: u8 = 3;
    /// NewSessionTicket.
    pub const TICKET: u8 = 4;
    /// Certificate.
    pub const CERTIFICATE: u8 = 11;
    /// ServerKeyExchange.
    pub const SERVER_KEY: u8 = 12;
    /// CertificateRequest.
    pub const CERTIFICATE_REQUEST: u8 = 13;
    /// ServerHelloDone.
    pub const SERVER_DONE: u8 = 14;
    /// CertificateVerify.
    pub const CERTIFICATE_VERIFY: u8 = 15;
    /// ClientKeyExchange.
    pub const CLIENT_KEY: u8 = 16;
    /// Finished.
    pub const FINISHED: u8 = 20;
    /// CertificateStatus.
    pub const CERTIFICATE_STATUS: u8 = 22;
}

/// Takes the bytes of handshake messages, in any pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handshake {
    /// A message whose end has not come.
    kept: Vec<u8>,
    /// So much of one that is not kept is left.
    skip: usize,
    reader: Reader,
    /// Where the next message begins is not known.
    is_lost: bool,
}

impl Handshake {
    /// Bytes of memory that it keeps beside itself.
    pub(crate) fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Where the next message begins is not known any more.
    pub(crate) fn lose(&mut self) {
        self.kept = Vec::new();
        self.skip = 0;
        self.is_lost = true;
    }

    /// A record of `length` bytes begins, of which these are the first four. Behind a loss it is a
    /// new beginning if it holds a whole message.
    pub(super) fn record(&mut self, first: [u8; 4], length: usize) {
        let [kind, size @ ..] = first;
        let size = size
            .iter()
            .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let is_known = matches!(kind, 0..=4 | 11..=16 | 20..=22);
        if self.is_lost && is_known && size + 4 <= length {
            self.is_lost = false;
        }
    }

    /// The next bytes. False: they are none of a handshake.
    pub(crate) fn data<E: Events>(&mut self, bytes: &[u8], events: &mut E) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_lost {
            if self.skip > 0 {
                let length = self.skip.min(rest.len());
                self.skip -= length;
                rest = &rest[length..];
                continue;
            }
            // The type and the length, of what is kept and of what comes.
            let mut head = [0; 4];
            let both = self.kept.iter().chain(rest);
            let known = head
                .iter_mut()
                .zip(both)
                .map(|(to, from)| *to = *from)
                .count();
            if known < 4 {
                self.kept.extend_from_slice(rest);
                return true;
            }
            let [kind, size @ ..] = head;
            let size = size
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            let length = size + 4;
            if !Reader::wants(kind) || length > MAX_MESSAGE {
                events.message(kind);
                if Reader::wants(kind) {
                    events.bounded(TOO_LONG);
                }
                self.skip = length - self.kept.len();
                self.kept.clear();
                continue;
            }
            if self.kept.is_empty()
                && let Some((message, after)) = rest.split_at_checked(length)
            {
                rest = after;
                if !self.reader.message(kind, &message[4..], events) {
                    return false;
                }
                continue;
            }
            let missing = length - self.kept.len();
            let (taken, after) = rest.split_at(missing.min(rest.len()));
            self.kept.extend_from_slice(taken);
            rest = after;
            if self.kept.len() == length {
                let kept = core::mem::take(&mut self.kept);
                if !self.reader.message(kind, &kept[4..], events) {
                    return false;
                }
            }
        }
        true
    }
}

/// Reads whole messages.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// Hellos are those of DTLS.
    pub(super) is_datagram: bool,
    /// The cipher suite of the ServerHello in this direction.
    cipher: Option<u16>,
    /// What the ServerHello says is TLS 1.3.
    pub(super) is_13: bool,
}

impl Reader {
    /// Whether something in a message of this type is read.
    pub(super) fn wants(kind: u8) -> bool {
        use message::{CERTIFICATE, CLIENT_HELLO, SERVER_HELLO, SERVER_KEY};
        matches!(kind, CLIENT_HELLO | SERVER_HELLO | CERTIFICATE | SERVER_KEY)
    }

    /// A message. False: it is none.
    pub(super) fn message<E: Events>(&mut self, kind: u8, body: &[u8], events: &mut E) -> bool {
        match kind {
            message::CLIENT_HELLO => {
                let hello = match self.is_datagram {
                    true => ClientHello::read_datagram(body),
                    false => ClientHello::read(body),
                };
                let Some(hello) = hello else {
                    return false;
                };
                events.message(kind);
                events.client_hello(&hello);
            }
            message::SERVER_HELLO => {
                let Some(hello) = ServerHello::read(body) else {
                    return false;
                };
                self.cipher = Some(hello.cipher);
                self.is_13 = hello.is_13();
                events.message(kind);
                events.server_hello(&hello);
            }
            message::CERTIFICATE => {
                events.message(kind);
                self.certificates(body, events);
            }
            message::SERVER_KEY => {
                events.message(kind);
                if let Some(group) = self.group(body) {
                    events.group(group);
                }
            }
            _ => events.message(kind),
        }
        true
    }

    fn certificates<E: Events>(&self, body: &[u8], events: &mut E) {
        let mut rest = Cursor(body);
        if self.is_13 {
            // Behind a context, and each with extensions (RFC 8446, section 4.4.2).
            rest.vector8();
        }
        let mut list = Cursor(rest.vector24().unwrap_or_default());
        while let Some(certificate) = list.vector24() {
            events.certificate(certificate);
            if self.is_13 {
                list.vector16();
            }
        }
    }

    /// The group in a ServerKeyExchange, of cipher suites that begin it with one (RFC 8422, section
    /// 5.4).
    fn group(&self, body: &[u8]) -> Option<u16> {
        let name = cipher_name(self.cipher?)?;
        let mut rest = Cursor(body);
        let is_named = name.contains("_ECDH") && !name.contains("_PSK") && rest.u8()? == 3;
        is_named.then(|| rest.u16())?
    }
}
