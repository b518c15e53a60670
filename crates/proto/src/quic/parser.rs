//! Datagrams of a connection.

use super::crypto::Crypto;
use super::keys::{Keys, Secret};
use super::packet::{Kind, Long, Version, number};
use crate::cursor::Cursor;
use crate::detect::Look;
use crate::tls::{self, Handshake, TOO_MANY};

/// How often keys are tried that do not fit.
const MAX_FAILURES: u32 = 16;

/// Receives what is found, in the order of the datagrams: what TLS says, and what the packets are. Each
/// event is of the sender of the datagram at hand.
pub trait Events: tls::Events {
    /// A packet with a long header.
    fn packet(&mut self, _packet: &Packet<'_>) {}
}

/// A packet with a long header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its version; 0 of Version Negotiation.
    pub version: Version,
    /// Id of the connection that its receiver chose (the client's first: made up by itself).
    pub destination: &'a [u8],
    /// Id that its sender chose.
    pub source: &'a [u8],
    /// An Initial packet that could be opened. It is the client's if the second is set.
    pub opened: Option<bool>,
}

/// Reads the datagrams of both directions: the keys of one come from the other.
#[derive(Debug, Default)]
pub struct Parser {
    keys: Option<Box<Known>>,
    /// Which side is the client.
    client: Option<bool>,
    /// Of client and server.
    crypto: [Crypto; 2],
    handshakes: [Handshake; 2],
    failures: u32,
    /// A packet without its protection.
    scratch: Vec<u8>,
}

/// Keys, and the version and id they come from.
#[derive(Debug)]
struct Known {
    version: Version,
    id: Vec<u8>,
    secret: Secret,
    client: Keys,
    /// Derived when the server says something.
    server: Option<Keys>,
}

/// Whether a datagram begins a connection, as far as its header tells: an Initial packet of a version
/// whose keys are known, or any of a version of QUIC.
pub fn look(bytes: &[u8]) -> Look {
    let Some(long) = Long::read(bytes) else {
        return Look::No;
    };
    let is_known = match long.version.0 {
        // Version Negotiation: a list of versions.
        0 => {
            let ids = long.destination.len() + long.source.len();
            let list = bytes.len().saturating_sub(7 + ids);
            ids > 0 && list > 0 && list.is_multiple_of(4)
        }
        _ if long.version.salt().is_some() => long.kind != Kind::Initial || long.bytes.len() > 40,
        // Facebook's, and drafts whose keys are not known.
        0xface_b000..=0xface_b00f | 0xff00_0000..=0xff00_00ff => bytes.len() >= 1200,
        // What asks for Version Negotiation (RFC 9000, section 6.3).
        reserved if reserved & 0x0f0f_0f0f == 0x0a0a_0a0a => bytes.len() >= 1200,
        _ => false,
    };
    if is_known { Look::Yes } else { Look::No }
}

impl Parser {
    /// Bytes of memory that it keeps beside itself.
    pub fn held(&self) -> usize {
        let known = self
            .keys
            .as_ref()
            .map_or(0, |known| size_of::<Known>() + known.id.capacity());
        let crypto = self.crypto.iter().map(Crypto::held).sum::<usize>();
        let handshakes = self.handshakes.iter().map(Handshake::held).sum::<usize>();
        known + crypto + handshakes + self.scratch.capacity()
    }

    /// Whether there is nothing more to find: both hellos were read, or nothing can be opened.
    pub fn is_done(&self) -> bool {
        self.failures >= MAX_FAILURES
    }

    /// A datagram of one of the two sides.
    pub fn datagram<E: Events>(&mut self, from_initiator: bool, bytes: &[u8], events: &mut E) {
        let mut rest = bytes;
        // Packets can stand one behind the other (RFC 9000, section 12.2).
        while let Some(long) = Long::read(rest) {
            let opened = match long.kind {
                Kind::Initial => self.initial(from_initiator, &long),
                _ => None,
            };
            events.packet(&Packet {
                kind: long.kind,
                version: long.version,
                destination: long.destination,
                source: long.source,
                opened: opened.as_ref().map(|(is_client, _)| *is_client),
            });
            if let Some((is_client, payload)) = opened {
                self.frames(is_client, long.version, &payload, events);
                self.scratch = payload;
            }
            if matches!(long.kind, Kind::Retry | Kind::Negotiation) {
                // What follows has other keys.
                self.keys = None;
                return;
            }
            rest = rest.get(long.bytes.len()..).unwrap_or_default();
        }
    }

    /// What is in an Initial packet, and whether the client sent it.
    fn initial(&mut self, from_initiator: bool, long: &Long<'_>) -> Option<(bool, Vec<u8>)> {
        if self.is_done() {
            return None;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        let is_client = self.client.map(|client| client == from_initiator);
        let mut open = |keys: &Keys| {
            scratch.clear();
            scratch.extend_from_slice(long.bytes);
            let payload = keys.open(&mut scratch, long.number_at)?;
            let length = payload.len();
            // The payload is moved to the front.
            let end = scratch.len().checked_sub(16)?;
            scratch.truncate(end);
            scratch.drain(..end.checked_sub(length)?);
            Some(core::mem::take(&mut scratch))
        };
        // A server can answer in another version than it was asked in, with keys from the same id
        // (RFC 9368, section 2.3).
        if let (Some(false), Some(known)) = (is_client, &mut self.keys)
            && known.version != long.version
            && let Some(secret) = Secret::initial(long.version, &known.id)
            && let Some(client) = secret.keys(true)
        {
            known.version = long.version;
            (known.secret, known.client, known.server) = (secret, client, None);
        }
        let known = self.keys.as_deref_mut();
        let known = known.filter(|it| it.version == long.version);
        if let (Some(is_client), Some(known)) = (is_client, known) {
            let keys = match is_client {
                true => Some(&known.client),
                false => {
                    let server = known.server.take();
                    known.server = server.or_else(|| known.secret.keys(false));
                    known.server.as_ref()
                }
            };
            if let Some(payload) = keys.and_then(&mut open) {
                return Some((is_client, payload));
            }
        }
        if is_client != Some(false)
            && let Some(secret) = Secret::initial(long.version, long.destination)
            && let Some(client) = secret.keys(true)
            && let Some(payload) = open(&client)
        {
            // Of another version all begins anew.
            if self
                .keys
                .as_deref()
                .is_some_and(|it| it.version != long.version)
            {
                self.crypto = Default::default();
                self.handshakes = Default::default();
            }
            self.keys = Some(Box::new(Known {
                version: long.version,
                id: long.destination.to_vec(),
                secret,
                client,
                server: None,
            }));
            self.client = Some(from_initiator);
            return Some((true, payload));
        }
        self.failures += 1;
        None
    }

    /// What is in a packet that was opened, for the fuzzer.
    #[doc(hidden)]
    pub fn payload<E: Events>(&mut self, is_client: bool, bytes: &[u8], events: &mut E) {
        self.frames(is_client, Version(1), bytes, events);
    }

    fn frames<E: Events>(
        &mut self,
        is_client: bool,
        version: Version,
        payload: &[u8],
        events: &mut E,
    ) {
        let side = usize::from(!is_client);
        let (crypto, handshake) = (&mut self.crypto[side], &mut self.handshakes[side]);
        let mut is_well = true;
        let mut rest = Cursor(payload);
        while let Some(kind) = rest.u8() {
            let read = (|| {
                match kind {
                    // PADDING, PING.
                    0 | 1 => {}
                    // ACK, with counts of ECN behind it.
                    2 | 3 => {
                        number(&mut rest)?;
                        number(&mut rest)?;
                        let ranges = number(&mut rest)?;
                        number(&mut rest)?;
                        for _ in 0..ranges {
                            number(&mut rest)?;
                            number(&mut rest)?;
                        }
                        for _ in 0..if kind == 3 { 3 } else { 0 } {
                            number(&mut rest)?;
                        }
                    }
                    6 | 8 if (kind == 8) == version.is_google() => {
                        let place = number(&mut rest)?;
                        let length = usize::try_from(number(&mut rest)?).ok()?;
                        let bytes = rest.take(length)?;
                        let fits = crypto.piece(place, bytes, &mut |bytes| {
                            is_well &= handshake.data(bytes, events);
                        });
                        if !fits {
                            events.bounded(TOO_MANY);
                        }
                        is_well &= fits;
                    }
                    // CONNECTION_CLOSE ends what is read; others have no place here.
                    _ => return None,
                }
                Some(())
            })();
            if read.is_none() {
                break;
            }
        }
        if !is_well {
            handshake.lose();
            events.lost();
        }
    }
}
