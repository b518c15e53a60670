//! SSH up to what is encrypted: identification, algorithms, host key (RFC 4253).
//!
//! At most 2 KiB before the identification and 35,000 bytes of a packet are kept, which is what RFC 4253
//! (section 6.1) asks of implementations; a longer packet is passed over.

mod parser;

use data_encoding::{BASE64_NOPAD, HEXLOWER};
use md5::{Digest, Md5};
use ring::digest::{SHA256, digest};

pub use parser::{Events, Parser, look};

use crate::cursor::Cursor;

/// The algorithms that one side offers, in its order: lists of names with commas between (RFC 4253,
/// section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer<'a> {
    /// For the exchange of keys.
    pub exchange: &'a [u8],
    /// Of the host's key.
    pub host_key: &'a [u8],
    /// Of encryption, to the server and to the client.
    pub ciphers: [&'a [u8]; 2],
    /// Of authentication codes.
    pub codes: [&'a [u8]; 2],
    /// Of compression.
    pub compressions: [&'a [u8]; 2],
}

impl<'a> Offer<'a> {
    /// Reads SSH_MSG_KEXINIT behind its type.
    pub fn read(body: &'a [u8]) -> Option<Offer<'a>> {
        let mut rest = Cursor(body);
        rest.take(16)?;
        let mut list = || rest.vector32();
        Some(Offer {
            exchange: list()?,
            host_key: list()?,
            ciphers: [list()?, list()?],
            codes: [list()?, list()?],
            compressions: [list()?, list()?],
        })
    }

    /// [HASSH](https://github.com/salesforce/hassh) of a client (`from_client`) or a server: MD5 of what
    /// it would use for its own direction.
    pub fn hassh(&self, from_client: bool) -> String {
        let side = usize::from(!from_client);
        let parts = [
            self.exchange,
            self.ciphers[side],
            self.codes[side],
            self.compressions[side],
        ];
        HEXLOWER.encode(&Md5::digest(parts.join(&b';')))
    }
}

/// The first of the client's that the server has, too.
pub fn agreed<'a>(client: &'a [u8], server: &[u8]) -> Option<&'a [u8]> {
    let comma = |byte: &u8| *byte == b',';
    let mut wanted = client.split(comma);
    wanted.find(|name| server.split(comma).any(|other| other == *name))
}

/// The fingerprint of a host key, as programs show it: `SHA256:` and base64 without padding.
pub fn key_fingerprint(key: &[u8]) -> String {
    format!(
        "SHA256:{}",
        BASE64_NOPAD.encode(digest(&SHA256, key).as_ref())
    )
}
