//! Internet checksums (RFC 1071) of transports.

use crate::decoded::{DecodeFlags, Decoded};
use flowgauge_sys::checksum::sum;

/// What a checksum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumVerdict {
    /// Right.
    Good,
    /// Wrong.
    Bad,
    /// Cannot be said: not all bytes were captured, a fragment, a transport without (or with
    /// another kind of) checksum, or UDP without one.
    Unknown,
}

/// A checksum over several slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// Adds the bytes that follow those added before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let part = u64::from(fold(sum(bytes)));
        // After an odd number of bytes, high and low bytes have changed places.
        self.sum += if self.odd {
            u64::from((part as u16).swap_bytes())
        } else {
            part
        };
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// The checksum to put into a header whose checksum field was added as zero.
    #[inline]
    pub fn finish(self) -> u16 {
        u16::from_be(!fold(self.sum))
    }
}

/// Checks the transport checksum of `packet`, whose offsets refer to `bytes` (see
/// [`DecodedBatch::bytes`](crate::DecodedBatch::bytes)): TCP, UDP, ICMP and ICMPv6. The pseudo
/// header has the addresses of the key: behind a source route not yet done, the final destination
/// (RFC 8200 section 8.1). UDP with checksum 0 is `Unknown` in IPv6 too: RFC 6935 allows it.
#[inline]
pub fn verify_transport(bytes: &[u8], packet: &Decoded) -> ChecksumVerdict {
    let wanted = DecodeFlags::TRANSPORT.0;
    let unwanted = DecodeFlags::TRANSPORT.0 | DecodeFlags::FRAGMENT.0;
    if packet.flags.0 & unwanted != wanted || packet.payload_captured < packet.payload_len {
        return ChecksumVerdict::Unknown;
    }
    let start = usize::from(packet.transport_offset);
    let end = packet.payload_offset as usize + packet.payload_len as usize;
    let Some(segment) = bytes.get(start..end) else {
        return ChecksumVerdict::Unknown;
    };
    let protocol = packet.key.protocol;
    let pseudo = match (protocol, packet.key.version) {
        (6, _) | (58, 6) => pseudo_header(packet, segment.len() as u32),
        (17, _) => {
            let Some(header) = segment.first_chunk::<8>() else {
                return ChecksumVerdict::Unknown;
            };
            if [header[6], header[7]] == [0, 0] {
                return ChecksumVerdict::Unknown;
            }
            let length = match u16::from_be_bytes([header[4], header[5]]) {
                0 => segment.len() as u32,
                length => u32::from(length),
            };
            pseudo_header(packet, length)
        }
        (1, 4) => 0,
        _ => return ChecksumVerdict::Unknown,
    };
    if fold(sum(segment) + pseudo) == 0xffff {
        ChecksumVerdict::Good
    } else {
        ChecksumVerdict::Bad
    }
}

/// Sum of the pseudo header. Which address is the source does not matter to a sum.
#[inline]
fn pseudo_header(packet: &Decoded, length: u32) -> u64 {
    let key = &packet.key;
    let addresses = if key.version == 4 {
        // The last four bytes of the mapped form.
        tail(&key.low.0) + tail(&key.high.0)
    } else {
        sum(&key.low.0) + sum(&key.high.0)
    };
    let protocol = u16::from(key.protocol).to_be();
    addresses + u64::from(length.to_be()) + u64::from(protocol)
}

#[inline]
fn tail(address: &[u8; 16]) -> u64 {
    let [.., a, b, c, d] = *address;
    u64::from(u32::from_ne_bytes([a, b, c, d]))
}

/// Folds to 16 bits with end-around carry.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_any_length_add_up() {
        let bytes: Vec<u8> = (0u32..301).map(|i| (i * 37 % 251) as u8).collect();
        let mut whole = Checksum::default();
        whole.add(&bytes);
        for first in 0..bytes.len() {
            for second in [first, (first + 1).min(bytes.len()), bytes.len()] {
                let mut parts = Checksum::default();
                parts.add(&bytes[..first]);
                parts.add(&bytes[first..second]);
                parts.add(&bytes[second..]);
                assert_eq!(parts.finish(), whole.finish());
            }
        }
    }

    #[test]
    fn checksum_of_an_ipv4_header() {
        let mut checksum = Checksum::default();
        checksum.add(&[
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ]);
        assert_eq!(checksum.finish(), 0xb861);
    }
}
