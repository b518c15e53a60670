//! The hash index: from a flow's hash to the number of its record.
//!
//! Open addressing, linear probing, eight entries to a cache line:
//!
//! ```text
//!  entry   [ tag: 32 bits of the hash | record + 1: 32 bits ]      0 = free
//!  home    the tag's upper bits, so a table of twice the size keeps the order of the entries
//! ```
//!
//! Removal shifts the rest of the cluster back, so there are no tombstones and a table does not degrade. Growth is
//! incremental: the old table stays readable while each insertion moves a few clusters of it, so no packet waits for
//! the whole table to be rehashed. Nothing is hashed again, as the tag is sufficient. New tables are zeroed by the
//! operating system page by page, when they are touched.
//!
//! Keys can be chosen by attackers, but not their hashes: without the hash's key, they are indistinguishable from
//! random ones ([`HashSeed`](flowgauge_wire::HashSeed)). An insertion that inspects k slots ends a cluster of L >= k
//! slots, with the homes of L entries. If at most half of n slots are in use, L/2 are expected there, so the
//! probability is at most n (e/4)^(L/2) (Chernoff), summed over all L from k on: below 10^-14 for k = 256 in a table of
//! a million entries. [`Index::most_probes`] returns the actual maximum.

use flowgauge_sys::pages::Words;
use flowgauge_sys::prefetch::prefetch_at;

use crate::wheel::NONE;

/// Slots of the smallest table: 8 KB.
const MIN_SLOTS: usize = 1024;
/// Slots of the old table looked at per insertion while it is being moved. Two insertions' worth
/// of slots per free slot of the new table would do; eight finish early.
const MOVE_PER_INSERT: usize = 8;
/// ... and per packet looked up, so that it ends soon where no more flows come: as long as there are
/// two tables, two are asked.
const MOVE_PER_PACKET: usize = 2;

/// The 32 bits of a flow's hash that the index uses.
#[inline(always)]
pub fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// What a table has near the home of a tag.
enum Near {
    Found(u32),
    None,
    Unknown,
}

#[derive(Clone, Debug)]
struct Table {
    slots: Words,
    /// 32 - log2(slots).
    shift: u32,
    used: usize,
    /// The most slots that were looked at to insert an entry.
    most_probes: usize,
}

impl Table {
    fn new(slots: usize) -> Table {
        Table {
            slots: Words::zeroed(slots),
            shift: 32 - slots.trailing_zeros(),
            used: 0,
            most_probes: 0,
        }
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    #[inline(always)]
    fn slot(&self, at: usize) -> u64 {
        self.slots.get(at).copied().unwrap_or(0)
    }

    /// The record of the entry with this tag, if it is one of the four nearest to its home. There is
    /// no branch that depends on which of them it is.
    #[inline(always)]
    fn near(&self, tag: u32) -> Near {
        let home = self.home(tag);
        let Some(near) = self.slots.get(home..home + 4) else {
            return Near::Unknown;
        };
        let [a, b, c, d] = [near[0], near[1], near[2], near[3]];
        let mut entry = d;
        for other in [c, b, a] {
            entry = if (other >> 32) as u32 == tag {
                other
            } else {
                entry
            };
        }
        // A free entry looks like the tag 0, and its record is none.
        if (entry >> 32) as u32 == tag {
            Near::Found((entry as u32).wrapping_sub(1))
        } else if a == 0 || b == 0 || c == 0 || d == 0 {
            Near::None
        } else {
            Near::Unknown
        }
    }

    /// Position of the first entry with this tag that `matches`.
    #[inline(always)]
    fn find(&self, tag: u32, mut matches: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let mut at = self.home(tag);
        loop {
            let entry = self.slot(at);
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == tag {
                let id = (entry as u32).wrapping_sub(1);
                if matches(id) {
                    return Some((at, id));
                }
            }
            at = (at + 1) & self.mask();
        }
    }

    fn insert(&mut self, entry: u64) {
        let mask = self.mask();
        let mut at = self.home((entry >> 32) as u32);
        let mut probes = 1;
        while self.slot(at) != 0 {
            at = (at + 1) & mask;
            probes += 1;
        }
        self.most_probes = self.most_probes.max(probes);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = entry;
            self.used += 1;
        }
    }

    /// Frees the slot at `hole` and shifts the rest of its cluster back.
    fn remove_at(&mut self, mut hole: usize) {
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.slot(at);
            if entry == 0 {
                break;
            }
            // An entry may move into the hole unless its home lies behind the hole.
            let home = self.home((entry >> 32) as u32);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        self.used -= 1;
    }
}

/// An old table on its way into the new one.
#[derive(Clone, Debug)]
struct Moving {
    table: Table,
    /// Next slot to look at; the slot before it was free when it was passed.
    at: usize,
    /// Slots still to look at.
    left: usize,
}

/// Maps hashes to record numbers.
#[derive(Clone, Debug)]
pub struct Index {
    table: Table,
    moving: Option<Moving>,
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// An empty index.
    pub fn new() -> Index {
        Index {
            table: Table::new(MIN_SLOTS),
            moving: None,
        }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.table.used + self.moving.as_ref().map_or(0, |moving| moving.table.used)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches the cache line of `tag`.
    #[inline(always)]
    pub fn prefetch(&self, tag: u32) {
        prefetch_at(&self.table.slots, self.table.home(tag));
        if let Some(moving) = &self.moving {
            prefetch_at(&moving.table.slots, moving.table.home(tag));
        }
    }

    /// The record that most likely has this tag and key; `u32::MAX` if there is none, or rarely for other reasons.
    #[inline(always)]
    pub fn candidate(&self, tag: u32) -> u32 {
        match self.table.near(tag) {
            Near::Found(id) => id,
            Near::None if self.moving.is_none() => NONE,
            _ => self.far_candidate(tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn far_candidate(&self, tag: u32) -> u32 {
        self.find(tag, |_| true).unwrap_or(NONE)
    }

    /// The record with this tag for which `matches` is true, most likely the first candidate.
    #[inline(always)]
    pub fn find(&self, tag: u32, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some((_, id)) = self.table.find(tag, &mut matches) {
            return Some(id);
        }
        let moving = self.moving.as_ref()?;
        moving.table.find(tag, matches).map(|(_, id)| id)
    }

    /// Continues the move to a larger table, if there is one in progress, by an amount proportional to this number of
    /// packets.
    #[inline(always)]
    pub fn go_on(&mut self, packets: usize) {
        if self.moving.is_some() {
            self.move_some(packets * MOVE_PER_PACKET);
        }
    }

    /// Adds a record that is not in the index.
    pub fn insert(&mut self, tag: u32, id: u32) {
        self.move_some(MOVE_PER_INSERT);
        // Up to half full nine of ten entries are at home or next to it, and a search that fails
        // looks at two or three. Beyond, clusters grow fast: three times that at three quarters.
        if (self.table.used + 1) * 2 > self.table.slots.len() {
            self.grow();
        }
        let entry = u64::from(tag) << 32 | u64::from(id.wrapping_add(1));
        self.table.insert(entry);
    }

    /// Removes record `id`, which has this tag.
    pub fn remove(&mut self, tag: u32, id: u32) {
        if let Some((at, _)) = self.table.find(tag, |found| found == id) {
            self.table.remove_at(at);
            return;
        }
        if let Some(moving) = &mut self.moving
            && let Some((at, _)) = moving.table.find(tag, |found| found == id)
        {
            moving.table.remove_at(at);
        }
    }

    /// Maximum number of slots inspected for an insertion.
    pub fn most_probes(&self) -> u64 {
        self.table.most_probes as u64
    }

    /// Bytes of memory reserved.
    pub fn bytes(&self) -> usize {
        let slots = self.table.slots.len()
            + self
                .moving
                .as_ref()
                .map_or(0, |moving| moving.table.slots.len());
        slots * size_of::<u64>()
    }

    fn grow(&mut self) {
        // The last move ended long ago: it takes an eighth of the insertions that lead here.
        self.move_some(usize::MAX);
        let doubled = Table {
            most_probes: self.table.most_probes,
            ..Table::new(self.table.slots.len() * 2)
        };
        let old = core::mem::replace(&mut self.table, doubled);
        // Begin behind a free slot, so that whole clusters are moved and none is cut in two.
        let free = old.slots.iter().position(|&entry| entry == 0).unwrap_or(0);
        self.moving = Some(Moving {
            at: (free + 1) & old.mask(),
            left: old.slots.len(),
            table: old,
        });
    }

    /// Moves the clusters in the next `slots` slots of the old table.
    #[inline]
    fn move_some(&mut self, slots: usize) {
        let Some(moving) = &mut self.moving else {
            return;
        };
        let mask = moving.table.mask();
        let mut looked = 0;
        loop {
            let entry = moving.table.slot(moving.at);
            if entry == 0 {
                if looked >= slots || moving.left == 0 {
                    break;
                }
            } else {
                moving.table.slots[moving.at] = 0;
                moving.table.used -= 1;
                self.table.insert(entry);
            }
            moving.at = (moving.at + 1) & mask;
            moving.left = moving.left.saturating_sub(1);
            looked += 1;
        }
        if moving.left == 0 {
            self.moving = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Random insertions, removals and look-ups, growing through several tables, with tags that
    /// collide often, against a plain map.
    #[test]
    fn behaves_as_a_map() {
        let mut state = 0x1234_5678_9abc_def1u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for tag_mask in [u32::MAX, 0xfff0_0000, 0xff00_00ff] {
            let mut index = Index::new();
            let mut model: HashMap<u32, u32> = HashMap::new();
            let mut next = 0;
            for step in 0..60_000 {
                let growing = step < 40_000;
                if random() % 3 != 0 || (growing && random() % 2 == 0) {
                    let tag = random() as u32 & tag_mask;
                    index.insert(tag, next);
                    model.insert(next, tag);
                    next += 1;
                } else if next > 0 {
                    let id = random() as u32 % next;
                    if let Some(tag) = model.remove(&id) {
                        index.remove(tag, id);
                        assert_eq!(index.find(tag, |found| found == id), None);
                    }
                }
                if step % 64 == 0 {
                    let id = random() as u32 % next.max(1);
                    if let Some(&tag) = model.get(&id) {
                        assert_eq!(index.find(tag, |found| found == id), Some(id));
                    }
                }
            }
            assert_eq!(index.len(), model.len());
            for (&id, &tag) in &model {
                assert_eq!(index.find(tag, |found| found == id), Some(id));
            }
        }
    }
}
