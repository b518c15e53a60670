//! Senders known to compute checksums, by receiver.
//!
//! Packets are distributed to shards by pair of addresses, so the state of a pair is on the shard that
//! needs it, and results do not depend on the number of shards. State of a sender alone would be known to
//! some shards earlier than to others.
//!
//! Pairs are stored in a table of 64-bit fingerprints, whose last two bits tell which of the two is
//! known. The last few thousand are in a small table first, from which they move to the large one when
//! their places are needed: both directions of a flow together. They move in groups, so that memory
//! accesses to the large table overlap. When a table is full, it becomes the old table, which is still
//! searched, and the previous old table is discarded.

use flowgauge_sys::pages::Words;
use flowgauge_sys::prefetch::prefetch;
use flowgauge_wire::{Decoded, HashSeed};

/// Pairs seen lately; one of two that collide is looked up in the tables.
const RECENT: usize = 1 << 13;
/// Pairs that wait for their place.
const WAITING: usize = 32;
/// The most pairs in a table, and the fewest it is made for.
const MOST: usize = 1 << 19;
const FEWEST: usize = 1 << 10;

/// Bits of a fingerprint: the lower and the higher address sent a right checksum to the other.
const SENDERS: u64 = 3;

/// Pairs of sender and receiver, with a protocol, of whom a right checksum was seen.
#[derive(Clone, Debug)]
pub(crate) struct KnownPairs {
    seed: &'static HashSeed,
    recent: Box<[u64; RECENT]>,
    waiting: [u64; WAITING],
    /// How many wait.
    queued: usize,
    young: Table,
    old: Table,
    /// The most pairs in a table.
    limit: usize,
    /// Pairs that were forgotten to make room.
    pub(crate) forgotten: u64,
}

impl KnownPairs {
    /// Bytes for each flow that [`KnownPairs::new`] is told of: a table has a pair for every other
    /// one, and is half empty when it has just grown.
    pub(crate) const BYTES_PER_FLOW: u64 = 32;

    /// Knows nobody yet. What it remembers is bounded by the number of flows at once.
    pub(crate) fn new(max_flows: u32) -> KnownPairs {
        KnownPairs {
            seed: HashSeed::of_process(),
            recent: Box::new([0; RECENT]),
            waiting: [0; WAITING],
            queued: 0,
            young: Table::default(),
            old: Table::default(),
            limit: (max_flows as usize / 2).clamp(FEWEST, MOST),
            forgotten: 0,
        }
    }

    /// Whether the packet's sender has sent its receiver a right checksum in this protocol.
    pub(crate) fn knows(&mut self, packet: &Decoded) -> bool {
        let print = self.print(packet);
        if covers(self.recent[place(print)], print) {
            return true;
        }
        self.settle();
        self.young.has(print) || self.old.has(print)
    }

    /// What [`KnownPairs::note`] takes for a packet whose checksum is right. Its place is on its way.
    #[inline]
    pub(crate) fn expect(&self, packet: &Decoded) -> u64 {
        let print = self.print(packet);
        prefetch(&self.recent[place(print)]);
        print
    }

    /// A packet's checksum is right: this is [what is noted](KnownPairs::expect) of it.
    #[inline]
    pub(crate) fn note(&mut self, print: u64) {
        let recent = &mut self.recent[place(print)];
        let before = *recent;
        let same = is_pair(before, print);
        *recent = print | if same { before } else { 0 };
        self.keep(before, !same & (before != 0));
    }

    /// A pair goes to the large table if it `leaves` its place. There is no branch on that: it is
    /// anybody's guess.
    #[inline]
    fn keep(&mut self, print: u64, leaves: bool) {
        self.waiting[self.queued] = print;
        self.queued += usize::from(leaves);
        self.young.fetch(if leaves { print } else { 0 });
        if self.queued == WAITING {
            self.settle();
        }
    }

    /// Gives those that wait their places.
    #[inline(never)]
    fn settle(&mut self) {
        for index in 0..self.queued {
            if self.young.len >= self.limit {
                self.forgotten += self.old.len as u64;
                self.old = core::mem::take(&mut self.young);
            }
            self.young.insert(self.waiting[index], self.limit);
        }
        self.queued = 0;
    }

    /// A number that nobody can choose to be another pair's, but for the last bits, which say who of
    /// the pair is meant: who sends to itself is both.
    #[inline]
    fn print(&self, packet: &Decoded) -> u64 {
        let key = &packet.key;
        let pair = self.seed.hash(&key.hosts());
        let sender = match key.low == key.high {
            true => SENDERS,
            false => 1 << packet.direction.index(),
        };
        pair & !SENDERS | sender
    }
}

/// Whether both are of one pair.
#[inline]
fn is_pair(one: u64, other: u64) -> bool {
    (one ^ other) & !SENDERS == 0
}

/// Whether `known` says what `print` does.
#[inline]
fn covers(known: u64, print: u64) -> bool {
    is_pair(known, print) && known & print & SENDERS == print & SENDERS
}

#[inline]
fn place(print: u64) -> usize {
    (print >> 32) as usize & (RECENT - 1)
}

/// Fingerprints, each at its place or behind those it meets there; 0 where there is none.
#[derive(Clone, Debug, Default)]
struct Table {
    /// A power of two, or none; at most half of them are in use.
    slots: Words,
    len: usize,
}

impl Table {
    fn has(&self, print: u64) -> bool {
        let Some(mask) = self.slots.len().checked_sub(1) else {
            return false;
        };
        let mut at = slot(print) & mask;
        while self.slots[at] != 0 {
            if is_pair(self.slots[at], print) {
                return covers(self.slots[at], print);
            }
            at = (at + 1) & mask;
        }
        false
    }

    #[inline]
    fn fetch(&self, print: u64) {
        if let Some(mask) = self.slots.len().checked_sub(1) {
            prefetch(&self.slots[slot(print) & mask]);
        }
    }

    /// Adds a pair to fewer than `limit`.
    fn insert(&mut self, print: u64, limit: usize) {
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow(limit);
        }
        let mask = self.slots.len() - 1;
        let mut at = slot(print) & mask;
        // There are no prints without a sender, so that a free slot is nobody's.
        while self.slots[at] != 0 {
            if is_pair(self.slots[at], print) {
                self.slots[at] |= print;
                return;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = print;
        self.len += 1;
    }

    /// Few times: with each all pairs move, and memory that was not touched before is.
    #[cold]
    fn grow(&mut self, limit: usize) {
        let most = (2 * limit).next_power_of_two();
        let size = (8 * self.slots.len()).clamp(2 * FEWEST, most.max(2 * FEWEST));
        let before = core::mem::replace(&mut self.slots, Words::zeroed(size));
        self.len = 0;
        for &print in &*before {
            if print != 0 {
                self.insert(print, limit);
            }
        }
    }
}

/// Bits that [`place`] does not use, nor the sender's.
#[inline]
fn slot(print: u64) -> usize {
    ((print >> 2) ^ (print >> 45)) as usize
}

#[cfg(test)]
mod tests {
    use flowgauge_wire::{Address, Direction};

    use super::*;

    fn packet(from: u32, to: u32) -> Decoded {
        let mut packet = Decoded::default();
        packet.key.version = 4;
        packet.key.protocol = 6;
        packet.key.low = Address::v4(from.to_be_bytes());
        packet.key.high = Address::v4(to.to_be_bytes());
        packet.direction = Direction::LowToHigh;
        packet
    }

    fn note(known: &mut KnownPairs, packet: &Decoded) {
        let print = known.expect(packet);
        known.note(print);
    }

    #[test]
    fn a_pair_is_known_in_its_direction_and_protocol() {
        let mut known = KnownPairs::new(1000);
        let good = packet(1, 2);
        assert!(!known.knows(&good));
        note(&mut known, &good);
        assert!(known.knows(&good));
        let back = Decoded {
            direction: Direction::HighToLow,
            ..good
        };
        assert!(!known.knows(&back));
        let mut other = good;
        other.key.protocol = 17;
        assert!(!known.knows(&other));
        let mut sixth = good;
        sixth.key.version = 6;
        assert!(!known.knows(&sixth));
        note(&mut known, &sixth);
        assert!(known.knows(&sixth));
        // The other one joins the first in its slot.
        note(&mut known, &back);
        assert!(known.knows(&back) && known.knows(&good));
        for place in 0..RECENT {
            let print = core::mem::take(&mut known.recent[place]);
            if print != 0 {
                known.keep(print, true);
            }
        }
        assert!(known.knows(&back) && known.knows(&good));
        assert_eq!(known.young.len, 2);
        let lonely = packet(5, 5);
        note(&mut known, &lonely);
        let back = Decoded {
            direction: Direction::HighToLow,
            ..lonely
        };
        assert!(known.knows(&back));
    }

    #[test]
    fn many_are_known_until_there_are_too_many() {
        let mut known = KnownPairs::new(200_000);
        for from in 0..100_000 {
            note(&mut known, &packet(from, 7));
        }
        assert!((0..100_000).all(|from| known.knows(&packet(from, 7))));
        assert!((100_000..200_000).all(|from| !known.knows(&packet(from, 7))));
        assert_eq!(known.forgotten, 0);
        for from in 100_000..400_000 {
            note(&mut known, &packet(from, 7));
        }
        let known_of = |known: &mut KnownPairs, range: core::ops::Range<u32>| {
            range.filter(|&from| known.knows(&packet(from, 7))).count()
        };
        // (How long one stays among the recent ones is chance: hardly ever for 180,000 others.)
        assert_eq!(known_of(&mut known, 0..20_000), 0);
        assert!(known.forgotten >= 100_000);
        // Some of the first may be among the last to go to the large tables.
        let first = 200_000 + RECENT as u32;
        let last = known_of(&mut known, first..400_000);
        assert_eq!(last, 200_000 - RECENT);
        let slots = known.young.slots.len() + known.old.slots.len();
        assert!(slots as u64 * 8 <= 200_000 * KnownPairs::BYTES_PER_FLOW);
    }
}
