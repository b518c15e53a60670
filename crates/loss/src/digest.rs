//! The identity of a packet: what no router changes of it.
//!
//! Packets are selected by a hash of it, so that all points select the same ones, as in trajectory sampling (Duffield and
//! Grossglauser, IEEE/ACM Transactions on Networking 9(3), 2001) and hash-based selection (RFC 5475, section 6.2).

use flowgauge_wire::{Decoded, Direction, HashSeed};

/// Which identities and marks these are: what points of another number tell of cannot be compared. 0: of before there were numbers.
pub const METHOD: u64 = 1;

/// Bytes from the transport header on that belong to the identity.
const BYTES: usize = 40;
const WORDS: usize = BYTES / 8;

/// The identity of an IP packet whose captured bytes are `frame`, under a key that all points share: addresses, ports, the IPv4
/// identification and fragment offset, the length, and the first bytes of the IP payload without its checksum, which network
/// cards may fill in behind the point of capture. TTL, DSCP, link layer and tunnels do not count.
pub fn digest(key: &HashSeed, packet: &Decoded, frame: &[u8]) -> u64 {
    let ip = usize::from(packet.ip_offset);
    let identification = match (packet.key.version, frame.get(ip + 4..ip + 8)) {
        // Of the flags only "more fragments" stays as it is on the way.
        (4, Some(&[high, low, flags, offset])) => {
            u32::from_be_bytes([high, low, flags & 0x3f, offset])
        }
        _ => 0,
    };
    let transport = usize::from(packet.transport_offset);
    let end = (ip + packet.ip_len as usize).min(frame.len());
    let payload = frame.get(transport..end.max(transport)).unwrap_or_default();
    let mut bytes = [0; BYTES];
    let len = payload.len().min(BYTES);
    bytes[..len].copy_from_slice(&payload[..len]);
    if let Some(checksum) =
        checksum_at(packet.key.protocol).and_then(|at| bytes.get_mut(at..at + 2))
    {
        checksum.fill(0);
    }
    let direction = u64::from(packet.direction == Direction::HighToLow);
    let mut state = fold(
        key.hash(&packet.key),
        u64::from(identification) << 32 | u64::from(packet.ip_len) ^ direction << 31,
    );
    for at in 0..WORDS {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
        state = fold(state, u64::from_le_bytes(word));
    }
    state
}

/// Where a transport header has its checksum.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 => Some(6),
        1 | 58 => Some(2),
        _ => None,
    }
}

/// A folded product, as in wyhash; odd constants keep zeros from staying zero.
fn fold(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word ^ 0xd6e8_feb8_6659_fd93);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(state.rotate_left(23))
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::Address;

    use super::*;

    /// An IPv4 UDP packet as it is decoded, its bytes from the IP header on.
    fn packet(change: impl Fn(&mut [u8])) -> u64 {
        let mut frame = vec![0u8; 28 + 24];
        frame[0] = 0x45;
        frame[4..6].copy_from_slice(&7u16.to_be_bytes());
        frame[8] = 64;
        for (at, byte) in frame[28..].iter_mut().enumerate() {
            *byte = at as u8;
        }
        change(&mut frame);
        let side = |octet, port| (Address::v4([192, 0, 2, octet]), port);
        let (key, direction) = flowgauge_wire::FlowKey::new(4, 17, side(1, 1000), side(2, 53));
        let decoded = Decoded {
            key,
            direction,
            ip_len: frame.len() as u32,
            transport_offset: 20,
            ..Decoded::default()
        };
        digest(&HashSeed::PUBLIC, &decoded, &frame)
    }

    #[test]
    fn routers_change_nothing_of_it() {
        let sent = packet(|_| {});
        let routed = packet(|frame| {
            (frame[1], frame[8]) = (0x28, 61);
            frame[10..12].copy_from_slice(&[0xab, 0xcd]);
            frame[26..28].copy_from_slice(&[0x12, 0x34]);
        });
        assert_eq!(sent, routed);
    }

    #[test]
    fn another_packet_has_another_one() {
        let sent = packet(|_| {});
        for at in [5, 7, 20, 24, 30, 59 - 8] {
            assert_ne!(sent, packet(|frame| frame[at] ^= 1), "{at}");
        }
    }
}
