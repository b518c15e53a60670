//! Community ID version 1: a flow identifier that different tools agree on.
//!
//! `"1:" + base64(SHA-1(seed, low address, high address, protocol, 0, low port, high port))`, all
//! in network byte order, the ports only of TCP, UDP, SCTP, ICMP and ICMPv6
//! (<https://github.com/corelight/community-id-spec>).

use crate::key::FlowKey;
use core::fmt;
use sha1::digest::generic_array::GenericArray;

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
        let mut text = *b"1:............................";
        if let Some(coded) = text.last_chunk_mut() {
            *coded = base64_of_hash(&hash);
        }
        Some(CommunityId { text })
    }

    /// The text, always 30 ASCII characters.
    #[inline]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.text).unwrap_or("")
    }

    /// The text as bytes.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 30] {
        &self.text
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
    // Everything, at most 40 bytes, and the padding of FIPS 180-4, section 5.1.1, fits a single
    // block, so that the hash is one call of the compression function.
    let mut block = [0u8; 64];
    let mut length = 0;
    let mut push = |bytes: &[u8]| {
        if let Some(place) = block.get_mut(length..length + bytes.len()) {
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
    push(&[0x80]);
    let bits = 8 * (length as u64 - 1);
    if let Some(place) = block.last_chunk_mut() {
        *place = bits.to_be_bytes();
    }
    let mut state = SHA1_START;
    sha1::compress(&mut state, &[GenericArray::from(block)]);
    let mut hash = [0; 20];
    for (place, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    Some(hash)
}

/// FIPS 180-4, section 5.3.1.
const SHA1_START: [u32; 5] = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
];

/// Base64 with padding (RFC 4648, section 4): six groups of three bytes and one of two.
#[inline]
fn base64_of_hash(hash: &[u8; 20]) -> [u8; 28] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = [0; 21];
    let mut text = [b'='; 28];
    if let Some(place) = bytes.first_chunk_mut() {
        *place = *hash;
    }
    let groups = bytes.as_chunks::<3>().0.iter();
    for (&[a, b, c], place) in groups.zip(text.as_chunks_mut::<4>().0) {
        let value = u32::from_be_bytes([0, a, b, c]);
        *place = [18, 12, 6, 0].map(|shift| ALPHABET[(value >> shift & 63) as usize]);
    }
    // What the byte that was added became.
    text[27] = b'=';
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_kind_of_character() {
        let hash = core::array::from_fn(|n| (n * 37 + 11) as u8);
        assert_eq!(&base64_of_hash(&hash), b"CzBVep/E6Q4zWH2ix+wRNluApco=");
        assert_eq!(
            &base64_of_hash(&[0xff; 20]),
            b"//////////////////////////8="
        );
        assert_eq!(&base64_of_hash(&[0; 20]), b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    }
}
