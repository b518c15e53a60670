//! Internet checksums (RFC 1071) of transport protocols.

use crate::decoded::{DecodeFlags, Decoded};
use flowgauge_sys::checksum::{Dispatched, Kernel, is_right, sum};

/// The verdict on a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumVerdict {
    /// Right.
    Good,
    /// Wrong.
    Bad,
    /// Undecidable: not all bytes were captured, a fragment, a transport without (or with another kind of)
    /// checksum, or UDP without one.
    Unknown,
}

/// A checksum over several slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// Adds the bytes after those already added.
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

    /// The checksum for a header whose checksum field was added as zero.
    #[inline]
    pub fn finish(self) -> u16 {
        u16::from_be(!fold(self.sum))
    }
}

/// Verifies the transport checksum of `packet`, whose offsets refer to `bytes` (see
/// [`DecodedBatch::bytes`](crate::DecodedBatch::bytes)): TCP, UDP, ICMP and ICMPv6. The pseudo header has
/// the addresses of the key: with an unfinished source route, the final destination (RFC 8200 section
/// 8.1). UDP with checksum 0 is `Unknown` in IPv6, too: RFC 6935 allows it.
#[inline(always)]
pub fn verify_transport(bytes: &[u8], packet: &Decoded) -> ChecksumVerdict {
    verify_transport_with(Dispatched, bytes, packet)
}

/// [`verify_transport`] with this kernel for the common case, for loops over packets that are
/// [`Work`](flowgauge_sys::checksum::Work).
#[inline(always)]
pub fn verify_transport_with(
    kernel: impl Kernel,
    bytes: &[u8],
    packet: &Decoded,
) -> ChecksumVerdict {
    verify_usual(kernel, bytes, packet).unwrap_or_else(|| verify_any(bytes, packet))
}

/// [`verify_transport`] of TCP and UDP right behind an IP header without options: its addresses, which are
/// the last of it, are summed up with the transport, in one go. `None` for everything else.
///
/// Whether it is TCP or UDP, and of which version, is not worth a branch: it changes from packet to
/// packet. So what is unusual is gathered in the bits of one number.
#[inline(always)]
fn verify_usual(kernel: impl Kernel, bytes: &[u8], packet: &Decoded) -> Option<ChecksumVerdict> {
    const WANTED: u16 = DecodeFlags::TRANSPORT.0;
    const FLAGS: u16 = DecodeFlags::TRANSPORT.0 | DecodeFlags::FRAGMENT.0;
    /// Bits at TCP's number and at UDP's.
    const KNOWN: u32 = 1 << 6 | 1 << 17;
    let sixth = u32::from(packet.key.version != 4);
    let (header, addresses) = (20 + 20 * sixth, 8 + 24 * sixth);
    let start = u32::from(packet.transport_offset);
    let end = packet.payload_offset.wrapping_add(packet.payload_len);
    let summed = bytes.get(start.wrapping_sub(addresses) as usize..end as usize)?;
    let transport = summed.get(addresses as usize..)?;
    let length = transport.len() as u32;
    let &[_, _, _, _, high, low, a, b] = transport.first_chunk()?;
    // UDP has a checksum, and no length of its own.
    let protocol = u32::from(packet.key.protocol);
    let is_udp = is_zero(protocol ^ 17).wrapping_neg();
    let stated = u32::from(u16::from_be_bytes([high, low]));
    let missing = is_zero(u32::from(u16::from_ne_bytes([a, b])));
    let unusual = (stated ^ length | missing) & is_udp
        | u32::from(packet.flags.0 & FLAGS ^ WANTED)
        | (packet.payload_captured ^ packet.payload_len)
        | (start.wrapping_sub(u32::from(packet.ip_offset)) ^ header)
        | (KNOWN >> (protocol & 31) & 1 ^ 1)
        | protocol >> 5;
    if unusual != 0 {
        return None;
    }
    let pseudo = u64::from(length.to_be()) + u64::from((protocol as u16).to_be());
    Some(verdict(kernel.sum(summed) + pseudo))
}

/// 1 for 0, 0 for other numbers of up to 31 bits, as arithmetic.
#[inline(always)]
fn is_zero(number: u32) -> u32 {
    number.wrapping_sub(1) >> 31
}

/// [`verify_transport`] of anything.
#[cold]
#[inline(never)]
fn verify_any(bytes: &[u8], packet: &Decoded) -> ChecksumVerdict {
    let wanted = DecodeFlags::TRANSPORT.0;
    let unwanted = DecodeFlags::TRANSPORT.0 | DecodeFlags::FRAGMENT.0;
    if packet.flags.0 & unwanted != wanted || packet.payload_captured < packet.payload_len {
        return ChecksumVerdict::Unknown;
    }
    let start = usize::from(packet.transport_offset);
    let end = packet.payload_offset as usize + packet.payload_len as usize;
    let mut length = (end - start.min(end)) as u32;
    let (version, protocol) = (packet.key.version, packet.key.protocol);
    match (protocol, version) {
        (6, _) | (58, 6) => {}
        (17, _) => {
            let Some(header) = bytes.get(start..).and_then(<[u8]>::first_chunk::<8>) else {
                return ChecksumVerdict::Unknown;
            };
            if [header[6], header[7]] == [0, 0] {
                return ChecksumVerdict::Unknown;
            }
            let stated = u16::from_be_bytes([header[4], header[5]]);
            if stated != 0 {
                length = u32::from(stated);
            }
        }
        (1, 4) => {
            return match bytes.get(start..end) {
                Some(message) => verdict(sum(message)),
                None => ChecksumVerdict::Unknown,
            };
        }
        _ => return ChecksumVerdict::Unknown,
    }
    let pseudo = u64::from(length.to_be()) + u64::from(u16::from(protocol).to_be());
    match bytes.get(start..end) {
        Some(summed) => verdict(sum(summed) + pseudo + sum_of_addresses(packet)),
        None => ChecksumVerdict::Unknown,
    }
}

#[inline(always)]
fn verdict(sum: u64) -> ChecksumVerdict {
    if is_right(sum) {
        ChecksumVerdict::Good
    } else {
        ChecksumVerdict::Bad
    }
}

/// Sum of the addresses of the key. Which one is the source does not matter to a sum.
fn sum_of_addresses(packet: &Decoded) -> u64 {
    let key = &packet.key;
    if key.version == 4 {
        // The last four bytes of the mapped form.
        tail(&key.low.0) + tail(&key.high.0)
    } else {
        sum(&key.low.0) + sum(&key.high.0)
    }
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
