//! Community ID version 1: a flow identifier that different tools agree on.
//!
//! `"1:" + base64(SHA-1(seed, low address, high address, protocol, 0, low port, high port))`, all
//! in network byte order, the ports only of TCP, UDP, SCTP, ICMP and ICMPv6
//! (<https://github.com/corelight/community-id-spec>).

use crate::key::FlowKey;
use core::fmt;
use sha1::{Digest, Sha1};

/// A Community ID as text, without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommunityId {
    text: [u8; 30],
}

impl CommunityId {
    /// The identifier of the flow `key`; `None` where there is no IP. `seed` is 0 unless a site
    /// chose another.
    pub fn of(key: &FlowKey, seed: u16) -> Option<CommunityId> {
        let hash = community_id_hash(key, seed)?;
        let mut text = [0; 30];
        let (version, rest) = text.split_at_mut(2);
        version.copy_from_slice(b"1:");
        encode_base64(&hash, rest);
        Some(CommunityId { text })
    }

    /// The text, always 30 ASCII characters.
    #[inline]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text).unwrap_or("")
    }
}

impl fmt::Display for CommunityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CommunityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommunityId({self})")
    }
}

/// The SHA-1 that a [`CommunityId`] encodes; `None` where there is no IP.
pub fn community_id_hash(key: &FlowKey, seed: u16) -> Option<[u8; 20]> {
    // Everything is one buffer, so that the hash runs over a single block.
    let mut input = [0u8; 40];
    let mut length = 0;
    let mut push = |bytes: &[u8]| {
        if let Some(place) = input.get_mut(length..length + bytes.len()) {
            place.copy_from_slice(bytes);
            length += bytes.len();
        }
    };
    push(&seed.to_be_bytes());
    match key.version {
        4 => {
            push(&key.low.0[12..]);
            push(&key.high.0[12..]);
        }
        6 => {
            push(&key.low.0);
            push(&key.high.0);
        }
        _ => return None,
    }
    push(&[key.protocol, 0]);
    if matches!(
        (key.protocol, key.version),
        (6 | 17 | 132, _) | (1, 4) | (58, 6)
    ) {
        push(&key.low_port.to_be_bytes());
        push(&key.high_port.to_be_bytes());
    }
    Some(Sha1::digest(input.get(..length)?).into())
}

/// Base64 with padding; `out` has room for four characters per three bytes begun.
fn encode_base64(bytes: &[u8], out: &mut [u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (group, place) in bytes.chunks(3).zip(out.chunks_mut(4)) {
        let mut padded = [0; 4];
        for (to, &from) in padded.iter_mut().skip(1).zip(group) {
            *to = from;
        }
        let value = u32::from_be_bytes(padded);
        for (i, character) in place.iter_mut().enumerate() {
            *character = if i <= group.len() {
                ALPHABET[(value >> (18 - 6 * i) & 63) as usize]
            } else {
                b'='
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc_vectors() {
        // RFC 4648 section 10.
        for (plain, coded) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = vec![0; coded.len()];
            encode_base64(plain.as_bytes(), &mut out);
            assert_eq!(out, coded.as_bytes());
        }
    }
}
