//! Copies of packets, as made by ports that mirror several links or both sides of a router.
//!
//! The *innermost* IP datagrams are compared, from header to end: captured bytes, and length by the
//! header. A mirror that sends through a tunnel (ERSPAN, VXLAN) gives each copy its own outer headers,
//! and flows are also those of the innermost datagram. Excluded are values that change from hop to hop:
//! time to live or hop limit, the IPv4 header's checksum, and everything below IP (MAC addresses, VLAN
//! tags, labels, outer headers, padding). A frame without IP is compared as a whole.
//!
//! # Limits
//! - A retransmitted TCP segment differs from the original by its IP id. Senders that leave the id 0
//!   (some IPv4 hosts, all of IPv6) make it equal to the first, to the byte, unless TCP's timestamps
//!   differ. It is then indistinguishable from a copy: within the window, a retransmission counts as a
//!   copy. A window shorter than the shortest time to a retransmission avoids that.
//! - Copies that the snap length cut at different offsets of the datagram, as with and without a VLAN
//!   tag, differ. So do copies with translated addresses, or with ECN bits set by a router.
//!
//! # A false match
//! For each packet, a 128-bit hash is kept, under a random key for each [`Deduplicator`], and no bytes.
//! If the hash is as good as random, two different packets have the same one with a probability of
//! 2^-128; a packet is mistaken for a copy of one of 65 536 with 2^-112.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use flowgauge_wire::{
    BATCH_SIZE, Batch, DecodeOptions, Decoded, DecodedBatch, Decoder, Ledger, Nanos,
    PacketDescriptor, PacketFlags, Place,
};

use crate::as_source_within;
use crate::error::Error;
use crate::source::PacketSource;

/// Detects copies of packets seen shortly before.
#[derive(Clone, Debug)]
pub struct Deduplicator {
    window: Nanos,
    key: [u64; 4],
    /// The last packets that were no copies, each at its number modulo the length.
    kept: Vec<Kept>,
    /// By hash: number of the last such packet, plus 1; 0 is none. A power of two long.
    last: Vec<u64>,
    /// How many were no copies, which is the next one's number.
    next: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    hash: [u64; 2],
    time: Nanos,
    /// The packet before in the same place of [`Deduplicator::last`], as there. It may have been
    /// overwritten since, and then ends the chain.
    previous: u64,
}

impl Deduplicator {
    /// Default for the time after a packet within which its copies are expected.
    pub const WINDOW: Nanos = Nanos::from_millis(100);

    /// Default for the number of packets that are remembered: 2.5 MB.
    pub const KEEP: usize = 1 << 16;

    /// Detects copies within `window` of the first packet, by capture time, with at most `keep` other
    /// packets (at least 1) in between. Allocates 32 to 48 bytes for each of these immediately.
    pub fn new(window: Nanos, keep: usize) -> Deduplicator {
        let keep = keep.max(1);
        let random = || RandomState::new().build_hasher().finish();
        Deduplicator {
            window,
            key: [random(), random(), random(), random()],
            kept: vec![Kept::default(); keep],
            last: vec![0; keep.next_power_of_two()],
            next: 0,
        }
    }

    /// Whether a packet is a copy of a previous one. If not, it is remembered. `bytes` are those that
    /// `decoded` refers to; `descriptor` is that of the frame, if it is one.
    pub fn is_copy(
        &mut self,
        decoded: &Decoded,
        bytes: &[u8],
        descriptor: Option<&PacketDescriptor>,
    ) -> bool {
        let hash = self.hash(decoded, bytes, descriptor);
        let (keep, time) = (self.kept.len() as u64, decoded.time);
        let place = hash[0] as usize & (self.last.len() - 1);
        let Some(head) = self.last.get_mut(place) else {
            return false;
        };
        let mut number = *head;
        // Numbers in a chain fall. One that has been overwritten has only such ones behind it.
        while number > 0 && number + keep > self.next {
            let Some(kept) = self.kept.get(((number - 1) % keep) as usize) else {
                break;
            };
            if kept.hash == hash {
                if kept.time.0.abs_diff(time.0) <= self.window.0 {
                    return true;
                }
                break;
            }
            number = kept.previous;
        }
        if let Some(kept) = self.kept.get_mut((self.next % keep) as usize) {
            *kept = Kept {
                hash,
                time,
                previous: *head,
            };
        }
        self.next += 1;
        *head = self.next;
        false
    }

    /// Forgets all packets.
    pub fn clear(&mut self) {
        self.last.fill(0);
        self.next = 0;
    }

    fn hash(
        &self,
        decoded: &Decoded,
        bytes: &[u8],
        descriptor: Option<&PacketDescriptor>,
    ) -> [u64; 2] {
        let mut lanes = Lanes::new(self.key);
        if !decoded.has_ip() {
            let (mut link, mut tag) = (0, 0);
            if let Some(descriptor) = descriptor {
                link = u64::from(descriptor.link.0);
                if descriptor.flags.contains(PacketFlags::VLAN) {
                    tag = 1 | u64::from(descriptor.vlan_tpid) << 16;
                    tag |= u64::from(descriptor.vlan_tci) << 32;
                }
            }
            lanes.add(
                bytes.len() as u64 | link << 32,
                u64::from(decoded.wire_len) | tag << 32,
            );
            lanes.add_bytes(bytes);
            return lanes.state;
        }
        let bytes = bytes.get(usize::from(decoded.ip_offset)..).unwrap_or(&[]);
        let bytes = bytes.get(..decoded.ip_len as usize).unwrap_or(bytes);
        let version = decoded.key.version;
        lanes.add(
            bytes.len() as u64 | u64::from(version) << 60,
            decoded.ip_len.into(),
        );
        // All that changes from hop to hop is in the first 16 bytes, which are read as one number:
        // the time to live (byte 8) and the checksum (10 and 11), or the hop limit (byte 7).
        let (first, rest) = bytes.split_at(bytes.len().min(16));
        let unchanged = match version {
            4 => !(0xff00_ffff_u128 << 32),
            _ => !(0xff_u128 << 64),
        };
        let first = u128::from_be_bytes(padded(first)) & unchanged;
        lanes.add(first as u64, (first >> 64) as u64);
        lanes.add_bytes(rest);
        lanes.state
    }
}

/// Two hashes of 64 bits under different keys: folded 64x64->128-bit multiplications, as in wyhash.
struct Lanes {
    state: [u64; 2],
    key: [u64; 4],
}

impl Lanes {
    fn new(key: [u64; 4]) -> Lanes {
        Lanes {
            state: [key[1], key[3]],
            key,
        }
    }

    #[inline(always)]
    fn add(&mut self, first: u64, second: u64) {
        let fold = |state: u64, key: u64| {
            let product = u128::from(first ^ state) * u128::from(second ^ key);
            // Not the product alone: a factor that happens to be zero must not wipe out what came
            // before.
            state.rotate_left(23) ^ product as u64 ^ (product >> 64) as u64
        };
        self.state = [
            fold(self.state[0], self.key[0]),
            fold(self.state[1], self.key[2]),
        ];
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            let block = u128::from_le_bytes(*block);
            self.add(block as u64, (block >> 64) as u64);
        }
        // The length was added already: zeroes behind the end change nothing.
        let rest = u128::from_le_bytes(padded(rest));
        self.add(rest as u64, (rest >> 64) as u64);
        self.add(0, 0);
    }
}

fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    block
        .iter_mut()
        .zip(bytes)
        .for_each(|(to, from)| *to = *from);
    block
}

/// A source without the copies of another one, which count at [`Place::Duplicate`]. Decodes each packet
/// to compare it.
pub struct Deduplicated<S> {
    inner: S,
    deduplicator: Deduplicator,
    decoder: Decoder,
    decoded: DecodedBatch,
    packets: Vec<PacketDescriptor>,
    copies: u64,
    copies_bytes: u64,
}

impl<S: PacketSource> Deduplicated<S> {
    /// The packets of `inner` except copies; see [`Deduplicator::new`].
    pub fn new(inner: S, window: Nanos, keep: usize) -> Deduplicated<S> {
        Deduplicated {
            inner,
            deduplicator: Deduplicator::new(window, keep),
            decoder: Decoder::new(DecodeOptions::default()),
            decoded: DecodedBatch::new(),
            packets: Vec::with_capacity(BATCH_SIZE),
            copies: 0,
            copies_bytes: 0,
        }
    }
}

impl<S: PacketSource> PacketSource for Deduplicated<S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let Some(mut batch) = self.inner.next_batch()? else {
            return Ok(None);
        };
        self.packets.clear();
        self.decoder.decode_batch(&batch, &mut self.decoded);
        for (descriptor, decoded) in batch.packets.iter().zip(&self.decoded.packets) {
            let bytes = batch.bytes_of(descriptor);
            if self.deduplicator.is_copy(decoded, bytes, Some(descriptor)) {
                self.copies += 1;
                self.copies_bytes += u64::from(descriptor.wire_len);
            } else {
                self.packets.push(*descriptor);
            }
        }
        batch.packets = &self.packets;
        Ok(Some(batch))
    }

    as_source_within!(inner);

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.inner.ledger();
        ledger.refuse(Place::Duplicate, self.copies, self.copies_bytes);
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowgauge_wire::LinkType;

    /// Whether each of these frames, at its time in ms, is a copy.
    fn copies(deduplicator: &mut Deduplicator, frames: &[(u64, Vec<u8>)]) -> Vec<bool> {
        let with = |&(time, ref bytes): &(u64, Vec<u8>)| {
            let len = bytes.len() as u32;
            copy_of(
                deduplicator,
                time,
                bytes,
                bytes.len(),
                len,
                LinkType::ETHERNET,
            )
        };
        frames.iter().map(with).collect()
    }

    fn copy_of(
        deduplicator: &mut Deduplicator,
        time: u64,
        bytes: &[u8],
        captured: usize,
        wire_len: u32,
        link: LinkType,
    ) -> bool {
        let descriptor = PacketDescriptor {
            time: Nanos::from_millis(time),
            captured_len: captured as u32,
            wire_len,
            link,
            ..PacketDescriptor::default()
        };
        let batch = [descriptor];
        let batch = Batch::new(bytes, &batch);
        let mut decoded = DecodedBatch::new();
        Decoder::default().decode_batch(&batch, &mut decoded);
        deduplicator.is_copy(&decoded.packets[0], batch.bytes(0), Some(&descriptor))
    }

    fn deduplicator() -> Deduplicator {
        Deduplicator::new(Deduplicator::WINDOW, 64)
    }

    /// An IPv4 datagram with 24 bytes of UDP (the last is `last`), a checksum that follows the time to
    /// live.
    fn v4(id: u16, ttl: u8, last: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 44];
        packet.extend(id.to_be_bytes());
        packet.extend([0, 0, ttl, 17, ttl, !ttl, 192, 0, 2, 1, 198, 51, 100, 7]);
        packet.extend([0x30, 0x39, 0, 53, 0, 24, 0, 0]);
        packet.extend([1; 15]);
        packet.push(last);
        packet
    }

    fn v6(hops: u8, last: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 17, hops];
        packet.extend([0x20; 16]);
        packet.extend([0x21; 16]);
        packet.extend_from_slice(&v4(0, 0, last)[20..]);
        packet
    }

    fn ethernet(host: u8, tags: &[u16], packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, host, 2, 0, 0, 0, 0, !host];
        for tag in tags {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if packet[0] >> 4 == 4 {
            [8, 0]
        } else {
            [0x86, 0xdd]
        });
        frame.extend_from_slice(packet);
        frame
    }

    #[test]
    fn what_a_hop_changes_does_not_tell_copies_apart() {
        let frames = [
            (0, ethernet(1, &[], &v4(1, 64, 0))),
            (1, ethernet(9, &[], &v4(1, 63, 0))),
            (2, ethernet(1, &[7], &v4(1, 64, 0))),
            (3, ethernet(3, &[7, 8], &v4(1, 1, 0))),
            // Padding of a short frame is below IP.
            (4, [ethernet(1, &[], &v4(1, 64, 0)), vec![0; 2]].concat()),
            (5, ethernet(1, &[], &v6(64, 0))),
            (6, ethernet(2, &[1], &v6(60, 0))),
        ];
        let expected = [false, true, true, true, true, false, true];
        assert_eq!(copies(&mut deduplicator(), &frames), expected);
    }

    #[test]
    fn any_other_byte_does() {
        for (packet, ignored) in [(v4(1, 64, 0), &[8, 10, 11][..]), (v6(64, 0), &[7])] {
            let frame = ethernet(1, &[], &packet);
            for at in 0..packet.len() {
                // What would make a header that contradicts itself is tried by the lengths below.
                let lengths: &[usize] = if packet.len() == 44 {
                    &[0, 2, 3, 6, 7]
                } else {
                    &[0, 4, 5, 6]
                };
                if lengths.contains(&at) {
                    continue;
                }
                let mut other = frame.clone();
                other[14 + at] ^= 1;
                let found = copies(&mut deduplicator(), &[(0, frame.clone()), (0, other)]);
                assert_eq!(found, [false, ignored.contains(&at)], "byte {at}");
            }
        }
    }

    #[test]
    fn lengths_count() {
        let mut deduplicator = deduplicator();
        let mut longer = v4(1, 64, 0);
        longer[3] += 1;
        longer.push(0);
        let frame = ethernet(1, &[], &v4(1, 64, 0));
        let frames = [(0, frame.clone()), (0, ethernet(1, &[], &longer))];
        assert_eq!(copies(&mut deduplicator, &frames), [false, false]);
        // Cut by the snap length: fewer captured bytes are another packet, as many are the same.
        let wire_len = frame.len() as u32;
        let mut cut = |captured| {
            copy_of(
                &mut deduplicator,
                0,
                &frame,
                captured,
                wire_len,
                LinkType::ETHERNET,
            )
        };
        assert_eq!([cut(50), cut(50), cut(51)], [false, true, false]);
    }

    #[test]
    fn frames_without_ip_are_compared_whole() {
        let arp = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6][..], &[5; 28]].concat();
        let mut other = arp.clone();
        other[0] = 4;
        let mut found = deduplicator();
        let frames = [(0, arp.clone()), (1, arp.clone()), (1, other)];
        assert_eq!(copies(&mut found, &frames), [false, true, false]);
        // As many bytes captured of more, or of another link type.
        let len = arp.len() as u32;
        let mut with = |wire_len, link| copy_of(&mut found, 1, &arp, arp.len(), wire_len, link);
        assert!(!with(len + 1, LinkType::ETHERNET));
        assert!(!with(len, LinkType(147)));
        assert!(with(len, LinkType::ETHERNET));
    }

    #[test]
    fn copies_meet_inside_and_outside_of_tunnels() {
        let inner = v4(1, 64, 0);
        let outer = |id: u8| {
            let mut packet = vec![0x45, 0, 0, 64, 0, id, 0, 0, 64, 4, 0, 0];
            packet.extend([10, 0, 0, id, 10, 0, 0, 9]);
            packet.extend_from_slice(&inner);
            ethernet(1, &[], &packet)
        };
        let frames = [(0, outer(1)), (0, outer(2)), (0, ethernet(1, &[], &inner))];
        assert_eq!(copies(&mut deduplicator(), &frames), [false, true, true]);
    }

    #[test]
    fn the_window_begins_with_the_first() {
        let frame = |time| (time, ethernet(1, &[], &v4(1, 64, 0)));
        let frames = [
            frame(1000),
            frame(1100),
            // 101 ms after the first, 1 ms after its copy: the first of a new window.
            frame(1101),
            frame(1201),
            // Time that goes back a little.
            frame(1050),
            frame(900),
        ];
        let expected = [false, true, false, true, true, false];
        assert_eq!(copies(&mut deduplicator(), &frames), expected);
    }

    #[test]
    fn memory_is_bounded_by_the_packets_kept() {
        for keep in [1, 2, 3, 64, 100] {
            let mut found = Deduplicator::new(Nanos::from_secs(1), keep);
            let frame = |id: usize| (0, ethernet(1, &[], &v4(id as u16, 64, 0)));
            for round in 0..3 {
                for id in 0..keep {
                    let expected = round > 0;
                    assert_eq!(copies(&mut found, &[frame(id)]), [expected], "{keep} {id}");
                }
            }
            // One more, and the first is forgotten; the others are not.
            let frames: Vec<_> = (1..=keep).rev().chain([0]).map(frame).collect();
            let mut expected = vec![true; keep + 1];
            expected[0] = false;
            expected[keep] = false;
            assert_eq!(copies(&mut found, &frames), expected, "{keep}");
            found.clear();
            assert_eq!(copies(&mut found, &[frame(0), frame(0)]), [false, true]);
        }
    }

    /// Against a list that is searched.
    #[test]
    fn it_finds_what_a_list_finds() {
        let mut random = 1_u64;
        let mut found = Deduplicator::new(Nanos::from_millis(20), 50);
        let mut list: Vec<(u64, u16)> = Vec::new();
        let mut matches = 0;
        for step in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let id = (random >> 33) as u16 % 90;
            let time = 1000 + step / 2 - (random >> 50) % 4;
            let kept = &list[list.len().saturating_sub(50)..];
            let last = kept.iter().rev().find(|(_, other)| *other == id);
            let expected = last.is_some_and(|(then, _)| then.abs_diff(time) <= 20);
            let packet = [(time, ethernet(1, &[], &v4(id, 64, 0)))];
            assert_eq!(copies(&mut found, &packet), [expected], "step {step}");
            if !expected {
                list.push((time, id));
            }
            matches += u64::from(expected);
        }
        assert!((2000..18_000).contains(&matches), "{matches}");
    }
}
