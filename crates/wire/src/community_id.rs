//! Community ID version 1: a flow identifier shared by different tools.
//!
//! `"1:" + base64(SHA-1(seed, low address, high address, protocol, 0, low port, high port))`, all
//! in network byte order, the ports only of TCP, UDP, SCTP, ICMP and ICMPv6
//! (<https://github.com/corelight/community-id-spec>).

use crate::key::FlowKey;
use core::fmt;
use sha1::digest::generic_array::GenericArray;

/// A Community ID as text, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommunityId {
    text: [u8; 30],
}

impl CommunityId {
    /// The identifier of the flow `key`; `None` without IP. `seed` is 0 unless a site has chosen
    /// another.
    pub fn of(key: &FlowKey, seed: u16) -> Option<CommunityId> {
        community_id_hash(key, seed).map(|hash| CommunityId::of_hash(&hash))
    }

    /// The identifier that encodes this hash.
    #[inline]
    pub fn of_hash(hash: &[u8; 20]) -> CommunityId {
        let mut text = *b"1:............................";
        if let Some(coded) = text.last_chunk_mut() {
            *coded = base64_of_hash(hash);
        }
        CommunityId { text }
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

/// The SHA-1 that a [`CommunityId`] encodes; `None` without IP.
#[inline]
pub fn community_id_hash(key: &FlowKey, seed: u16) -> Option<[u8; 20]> {
    let mut block = [0u8; 64];
    [block[0], block[1]] = seed.to_be_bytes();
    match key.version {
        4 => {
            block[2..6].copy_from_slice(&key.low.0[12..]);
            block[6..10].copy_from_slice(&key.high.0[12..]);
            finish_block::<10>(&mut block, key);
        }
        6 => {
            block[2..18].copy_from_slice(&key.low.0);
            block[18..34].copy_from_slice(&key.high.0);
            finish_block::<34>(&mut block, key);
        }
        _ => return None,
    }
    let mut state = SHA1_START;
    sha1::compress(&mut state, &[GenericArray::from(block)]);
    let mut hash = [0; 20];
    for (place, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    Some(hash)
}

/// Puts what follows the addresses, `AT` bytes, into the block. Everything, at most 40 bytes, and the
/// padding of FIPS 180-4, section 5.1.1, fits a single one, so that the hash is one call of the
/// compression function.
#[inline(always)]
fn finish_block<const AT: usize>(block: &mut [u8; 64], key: &FlowKey) {
    block[AT] = key.protocol;
    let with_ports = matches!(
        (key.protocol, key.version),
        (6 | 17 | 132, _) | (1, 4) | (58, 6)
    );
    let length = if with_ports {
        [block[AT + 2], block[AT + 3]] = key.low_port.to_be_bytes();
        [block[AT + 4], block[AT + 5]] = key.high_port.to_be_bytes();
        block[AT + 6] = 0x80;
        AT + 6
    } else {
        block[AT + 2] = 0x80;
        AT + 2
    };
    [block[62], block[63]] = (8 * length as u16).to_be_bytes();
}

/// FIPS 180-4, section 5.3.1.
const SHA1_START: [u32; 5] = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
];

/// Base64 with padding (RFC 4648, section 4): six groups of three bytes and one of two. All groups
/// are taken apart, and all characters found, at once; compilers make vector instructions of it.
#[inline]
fn base64_of_hash(hash: &[u8; 20]) -> [u8; 28] {
    let mut bytes = [0; 24];
    bytes[..20].copy_from_slice(hash);
    let mut groups = [0u32; 8];
    for (group, &[a, b, c]) in groups.iter_mut().zip(bytes.as_chunks::<3>().0) {
        *group = u32::from_be_bytes([0, a, b, c]);
    }
    let mut text = [0u8; 32];
    for (place, group) in text.as_chunks_mut::<4>().0.iter_mut().zip(groups) {
        // Four times six bits, the first ones in the lowest byte.
        *place = (group >> 18 & 0x3f
            | group >> 4 & 0x3f00
            | group << 10 & 0x003f_0000
            | group << 24 & 0x3f00_0000)
            .to_le_bytes();
    }
    for place in &mut text {
        // From 'A' on, then what is between the ranges of the alphabet.
        let six = *place;
        let letters = if six >= 26 { b'a' - b'A' - 26 } else { 0 };
        let digits = if six >= 52 { b'a' + 26 - b'0' } else { 0 };
        let plus = if six >= 62 { b'9' + 1 - b'+' } else { 0 };
        let slash = if six >= 63 { b'/' - b'+' - 1 } else { 0 };
        *place = (six + b'A' + letters)
            .wrapping_sub(digits)
            .wrapping_sub(plus)
            .wrapping_add(slash);
    }
    // What the byte that was added became.
    text[27] = b'=';
    *text.first_chunk().unwrap_or(&[0; 28])
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
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (six, &character) in (0u8..).zip(alphabet) {
            assert_eq!(base64_of_hash(&[six << 2; 20])[0], character);
        }
    }
}
