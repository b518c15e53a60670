//! Where segments meet: texts that begin in one and end in another.
//!
//! Of each direction of a TCP connection the last bytes are kept, one fewer than the longest text has, and
//! searched together with the first bytes of what follows. Only segments that come in order meet: what is
//! behind a hole begins anew.

use aho_corasick::AhoCorasick;
use flowgauge_wire::{DecodeFlags, Decoded, Direction, FlowKey, TcpFlags};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

const TCP: u8 = 6;

/// Bytes kept of a direction at most.
const LONGEST: usize = 1024;

/// What lies further back was not sent before: it is another connection's, or what was taken for the latest
/// was none of it. Windows of TCP are seldom larger.
const WINDOW: usize = 16 << 20;

/// The last bytes of directions, in two generations: when the recent one is full it becomes the older one,
/// whose directions nobody asked for since then are forgotten.
pub(super) struct Edges {
    /// Bytes kept of each direction.
    length: usize,
    /// Directions of a generation.
    most: usize,
    recent: HashTable<Edge>,
    older: HashTable<Edge>,
    joined: Vec<u8>,
}

struct Edge {
    hash: u64,
    key: FlowKey,
    direction: Direction,
    /// The sequence number that follows.
    next: u32,
    bytes: Vec<u8>,
}

impl Edges {
    /// For texts of at most `longest` bytes, in so much memory.
    pub(super) fn new(longest: usize, memory: u64) -> Edges {
        let length = longest.saturating_sub(1).min(LONGEST);
        // A table may be half empty.
        let each = 2 * size_of::<Edge>() + length;
        Edges {
            length,
            most: (memory as usize / 2 / each).max(16),
            recent: HashTable::new(),
            older: HashTable::new(),
            joined: Vec::new(),
        }
    }

    /// Takes the captured payload of a packet; whether a text ends in it that began in a segment before.
    pub(super) fn take(&mut self, packet: &Decoded, payload: &[u8], texts: &AhoCorasick) -> bool {
        let is_segment =
            packet.key.protocol == TCP && !packet.flags.contains(DecodeFlags::FRAGMENT);
        if self.length == 0 || !is_segment {
            return false;
        }
        let has_syn = packet.tcp_flags.contains(TcpFlags::SYN);
        if has_syn {
            self.forget(packet);
        }
        if payload.is_empty() {
            return false;
        }
        let mut joined = core::mem::take(&mut self.joined);
        let length = self.length;
        let seq = packet.seq.wrapping_add(u32::from(has_syn));
        let crosses = self.edge(packet, seq).take(
            seq,
            packet.payload_len,
            payload,
            (length, &mut joined),
            texts,
        );
        self.joined = joined;
        crosses
    }

    /// A packet's direction begins anew: another connection with the same addresses and ports.
    fn forget(&mut self, packet: &Decoded) {
        for edges in [&mut self.recent, &mut self.older] {
            if let Ok(edge) = edges.find_entry(packet.hash, |edge| edge.is_of(packet)) {
                edge.remove();
            }
        }
    }

    /// That of a packet's direction; a new one begins at `seq`.
    fn edge(&mut self, packet: &Decoded, seq: u32) -> &mut Edge {
        let (hash, key, direction) = (packet.hash, packet.key, packet.direction);
        let is_it = |edge: &Edge| edge.is_of(packet);
        if self.recent.len() >= self.most {
            core::mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
        }
        match self.recent.entry(hash, is_it, |edge| edge.hash) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let known = self.older.find_entry(hash, is_it).ok();
                let edge = known.map_or_else(
                    || Edge {
                        hash,
                        key,
                        direction,
                        next: seq,
                        bytes: Vec::new(),
                    },
                    |known| known.remove().0,
                );
                place.insert(edge).into_mut()
            }
        }
    }
}

impl Edge {
    fn is_of(&self, packet: &Decoded) -> bool {
        self.key == packet.key && self.direction == packet.direction
    }

    /// Takes the captured payload of a segment of `carried` bytes; whether a text ends in it that began
    /// before.
    fn take(
        &mut self,
        seq: u32,
        carried: u32,
        payload: &[u8],
        (length, joined): (usize, &mut Vec<u8>),
        texts: &AhoCorasick,
    ) -> bool {
        let new = match usize::try_from(self.next.wrapping_sub(seq) as i32) {
            Ok(seen) if seen <= WINDOW => payload.get(seen..).unwrap_or_default(),
            _ => {
                // Something is missing between them.
                self.bytes.clear();
                payload
            }
        };
        if new.is_empty() {
            return false;
        }
        self.next = seq.wrapping_add(carried);
        let border = self.bytes.len();
        let crosses = border > 0 && {
            joined.clear();
            joined.extend_from_slice(&self.bytes);
            joined.extend_from_slice(new.get(..length).unwrap_or(new));
            let mut found = texts.find_overlapping_iter(joined.as_slice());
            found.any(|text| text.start() < border && border < text.end())
        };
        if payload.len() < carried as usize {
            // The rest was not captured.
            self.bytes.clear();
        } else if let Some(last) = new.len().checked_sub(length) {
            self.bytes.clear();
            self.bytes.extend_from_slice(&new[last..]);
        } else {
            let kept = length - new.len();
            self.bytes.drain(..border.saturating_sub(kept));
            self.bytes.extend_from_slice(new);
        }
        crosses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(longest: usize) -> Edges {
        Edges::new(longest, 1 << 16)
    }

    fn packet(seq: u32, length: usize) -> Decoded {
        Decoded {
            key: FlowKey {
                protocol: TCP,
                version: 4,
                ..FlowKey::default()
            },
            seq,
            payload_len: length as u32,
            ..Decoded::default()
        }
    }

    /// Cuts a text into segments at these places.
    fn found(text: &[u8], cuts: &[usize]) -> Vec<bool> {
        let texts = AhoCorasick::new(["secret", "key", "etc"]).unwrap();
        let mut edges = edges(6);
        let ends = cuts.iter().copied().chain([text.len()]);
        let mut from = 0;
        ends.map(|end| {
            let part = &text[from..end];
            // The numbers wrap around.
            let seq = (u32::MAX - 3).wrapping_add(from as u32);
            from = end;
            edges.take(&packet(seq, part.len()), part, &texts)
        })
        .collect()
    }

    #[test]
    fn a_text_is_found_wherever_it_is_cut_and_once() {
        let text = b"a secret, a key.";
        for cut in 1..text.len() {
            let is_inside = (3..8).contains(&cut) || (13..15).contains(&cut);
            assert_eq!(found(text, &[cut]), [false, is_inside], "{cut}");
        }
        // Over many segments it is found where it ends.
        let cuts: Vec<usize> = (1..text.len()).collect();
        let ends: Vec<usize> = (0..)
            .zip(found(text, &cuts))
            .filter(|it| it.1)
            .map(|it| it.0)
            .collect();
        assert_eq!(ends, [7, 14]);
    }

    #[test]
    fn holes_copies_and_missing_bytes_do_not_join() {
        let texts = AhoCorasick::new(["secret"]).unwrap();
        let take = |edges: &mut Edges, seq, carried, bytes: &[u8]| {
            edges.take(&packet(seq, carried), bytes, &texts)
        };
        let mut gap = edges(6);
        assert!(!take(&mut gap, 0, 3, b"sec"));
        assert!(!take(&mut gap, 4, 3, b"ret"));
        let mut again = edges(6);
        assert!(!take(&mut again, 0, 3, b"sec"));
        assert!(!take(&mut again, 0, 3, b"sec"));
        // Part of it was there before.
        assert!(take(&mut again, 1, 5, b"ecret"));
        assert!(!take(&mut again, 1, 5, b"ecret"));
        let mut cut = edges(6);
        assert!(!take(&mut cut, 0, 10, b"sec"));
        assert!(!take(&mut cut, 10, 3, b"ret"));
        let mut other = edges(6);
        assert!(!take(&mut other, 0, 3, b"sec"));
        let back = Decoded {
            direction: Direction::HighToLow,
            ..packet(3, 3)
        };
        assert!(!other.take(&back, b"ret", &texts));
    }

    #[test]
    fn another_connection_and_a_stray_segment_do_not_hide_what_follows() {
        let texts = AhoCorasick::new(["secret"]).unwrap();
        let take = |edges: &mut Edges, seq, bytes: &[u8]| {
            edges.take(&packet(seq, bytes.len()), bytes, &texts)
        };
        let mut again = edges(6);
        assert!(!take(&mut again, 1000, b"sec"));
        let syn = Decoded {
            tcp_flags: TcpFlags::SYN,
            ..packet(499, 0)
        };
        assert!(!again.take(&syn, b"", &texts));
        assert!(!take(&mut again, 500, b"sec"));
        assert!(take(&mut again, 503, b"ret"));
        // Its SYN was not captured.
        let far = 5000_u32.wrapping_sub(WINDOW as u32 * 2);
        let mut unseen = edges(6);
        assert!(!take(&mut unseen, 5000, b"sec"));
        assert!(!take(&mut unseen, far, b"sec"));
        assert!(take(&mut unseen, far + 3, b"ret"));
        let mut stray = edges(6);
        assert!(!take(&mut stray, 0, b"sec"));
        assert!(!take(&mut stray, 1 << 30, b"none of it"));
        assert!(!take(&mut stray, 3, b"ret, sec"));
        assert!(take(&mut stray, 11, b"ret"));
    }

    #[test]
    fn directions_that_are_idle_are_forgotten_for_others() {
        let texts = AhoCorasick::new(["secret"]).unwrap();
        let mut edges = edges(6);
        let of = |port: u16, seq, bytes: &[u8]| {
            let mut packet = packet(seq, bytes.len());
            packet.key.low_port = port;
            packet.hash = u64::from(port) << 32;
            packet
        };
        for port in 0..u16::MAX {
            assert!(!edges.take(&of(port, 0, b"sec"), b"sec", &texts));
            // One that goes on stays.
            if port % 100 == 0 {
                let seq = 3 + u32::from(port) / 100 * 6;
                assert!(
                    edges.take(&of(0, seq, b"retsec"), b"retsec", &texts),
                    "{port}"
                );
            }
        }
        assert!(edges.recent.len() + edges.older.len() <= 2 * edges.most);
        assert!(!edges.take(&of(1, 3, b"ret"), b"ret", &texts));
    }
}
