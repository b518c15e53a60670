//! The keys of a demultiplexer: which number each has, and when it ends.
//!
//! Numbers are small and dense, so that components keep what they know of a key in a vector. A key
//! ends when nothing was seen of it for the timeout on the capture clock, when the demultiplexer says
//! so, or when the key of the demultiplexer around it ends. With the table full the one that was idle
//! longest (to one tick of the wheel) makes room.
//!
//! Timeouts are lazy: a packet only writes when its key was last seen. A key is in the list of the
//! tick at which it could end; when that comes, it ends or goes to the list of its new tick.

use core::hash::{BuildHasher, Hash};

use flowgauge_wire::Nanos;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Ticks of the wheel within a timeout.
const TICKS: u64 = 32;

const NONE: u32 = u32::MAX;

/// Keys and their numbers.
#[derive(Debug)]
pub struct KeyTable<K> {
    index: HashTable<u32>,
    entries: Vec<Entry<K>>,
    free: Vec<u32>,
    /// Ended, and not taken note of yet.
    ended: Vec<u32>,
    /// Taken note of, to be free when asked again.
    released: Vec<u32>,
    /// By the number of the outer key: the first of its keys.
    first_of_outer: Vec<u32>,
    wheel: Vec<Vec<(u32, u32)>>,
    /// The tick up to which lists were looked at.
    tick: u64,
    tick_nanos: u64,
    timeout: Nanos,
    max_keys: usize,
    live: usize,
    evicted: u64,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    hash: u64,
    last_seen: Nanos,
    outer: u32,
    /// Others of the same outer key.
    next: u32,
    previous: u32,
    /// Which of the keys that had this number it is.
    generation: u32,
    is_live: bool,
}

impl<K: Copy + Eq + Hash> KeyTable<K> {
    /// At most `max_keys` at once, each ended `timeout` after it was last seen.
    pub fn new(timeout: Nanos, max_keys: usize) -> KeyTable<K> {
        let lists = TICKS as usize + 2;
        KeyTable {
            index: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            released: Vec::new(),
            first_of_outer: Vec::new(),
            wheel: vec![Vec::new(); lists],
            tick: 0,
            tick_nanos: (timeout.0 / TICKS).max(1),
            timeout,
            max_keys: max_keys.clamp(1, NONE as usize),
            live: 0,
            evicted: 0,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Keys that had to make room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The number of a key within one of the instances around, seen at `now`; made if it is new.
    pub fn number(&mut self, outer: u32, key: K, now: Nanos) -> u32 {
        let hash = self.hasher.hash_one((outer, key));
        self.number_hashed(outer, key, hash, now)
    }

    /// As [`KeyTable::number`], by a hash of the key that is known already.
    #[inline]
    pub fn number_hashed(&mut self, outer: u32, key: K, hash: u64, now: Nanos) -> u32 {
        let entries = &mut self.entries;
        let found = self.index.find(hash, |&number| {
            let entry = &entries[number as usize];
            entry.key == key && entry.outer == outer
        });
        if let Some(&number) = found {
            let entry = &mut entries[number as usize];
            entry.last_seen = entry.last_seen.max(now);
            return number;
        }
        self.insert(outer, key, hash, now)
    }

    #[cold]
    fn insert(&mut self, outer: u32, key: K, hash: u64, now: Nanos) -> u32 {
        if self.live == 0 {
            // Nothing waits: the wheel may begin anywhere.
            self.tick = now.0 / self.tick_nanos;
        }
        if self.live >= self.max_keys {
            self.evict();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                key,
                hash,
                last_seen: now,
                outer,
                next: NONE,
                previous: NONE,
                generation: 0,
                is_live: false,
            });
            self.entries.len() as u32 - 1
        });
        if self.first_of_outer.len() <= outer as usize {
            self.first_of_outer.resize(outer as usize + 1, NONE);
        }
        let first = core::mem::replace(&mut self.first_of_outer[outer as usize], number);
        if first != NONE {
            self.entries[first as usize].previous = number;
        }
        let entry = &mut self.entries[number as usize];
        *entry = Entry {
            key,
            hash,
            last_seen: now,
            outer,
            next: first,
            previous: NONE,
            generation: entry.generation.wrapping_add(1),
            is_live: true,
        };
        let generation = entry.generation;
        self.live += 1;
        self.wait(number, generation, now);
        let entries = &self.entries;
        self.index
            .insert_unique(hash, number, |&number| entries[number as usize].hash);
        number
    }

    /// The outer key of a key.
    pub fn outer(&self, number: u32) -> u32 {
        self.entries
            .get(number as usize)
            .map_or(0, |entry| entry.outer)
    }

    /// Ends a key.
    pub fn end(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number as usize) else {
            return;
        };
        if !core::mem::replace(&mut entry.is_live, false) {
            return;
        }
        let (hash, next, previous, outer) = (entry.hash, entry.next, entry.previous, entry.outer);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == number) {
            found.remove();
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous != NONE {
            self.entries[previous as usize].next = next;
        } else {
            self.first_of_outer[outer as usize] = next;
        }
        self.live -= 1;
        self.ended.push(number);
    }

    /// Ends all keys of an outer key.
    pub fn end_outer(&mut self, outer: u32) {
        while let Some(&first) = self.first_of_outer.get(outer as usize) {
            if first == NONE {
                return;
            }
            self.end(first);
        }
    }

    /// Ends all keys, the longest idle first.
    pub fn end_all(&mut self) {
        let mut live: Vec<u32> = (0..self.entries.len() as u32)
            .filter(|&number| self.entries[number as usize].is_live)
            .collect();
        live.sort_by_key(|&number| self.entries[number as usize].last_seen);
        live.into_iter().for_each(|number| self.end(number));
    }

    /// Ends what was not seen for the timeout, and hands out the numbers of all keys that ended since
    /// this was asked last. From now on those handed out the last time may be given to other keys.
    pub fn take_ended(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        self.free.append(&mut self.released);
        self.expire(now);
        ended.extend_from_slice(&self.ended);
        self.released.append(&mut self.ended);
    }

    fn expire(&mut self, now: Nanos) {
        let last = now.0 / self.tick_nanos;
        if last <= self.tick || self.live == 0 {
            return;
        }
        // After a turn of the wheel all lists were looked at.
        let first = (self.tick + 1).max(last.saturating_sub(self.wheel.len() as u64 - 1));
        self.tick = last;
        for tick in first..=last {
            let list = (tick % self.wheel.len() as u64) as usize;
            let mut waiting = core::mem::take(&mut self.wheel[list]);
            for (number, generation) in waiting.drain(..) {
                let entry = &self.entries[number as usize];
                if !entry.is_live || entry.generation != generation {
                    continue;
                }
                let last_seen = entry.last_seen;
                if last_seen.0.saturating_add(self.timeout.0) <= now.0 {
                    self.end(number);
                } else {
                    self.wait(number, generation, last_seen);
                }
            }
            // Its memory serves again, unless keys that go on waiting are in it.
            if self.wheel[list].is_empty() {
                self.wheel[list] = waiting;
            }
        }
    }

    /// Enters a key in the list of the tick in which it could end.
    fn wait(&mut self, number: u32, generation: u32, last_seen: Nanos) {
        let due = last_seen.0.saturating_add(self.timeout.0) / self.tick_nanos + 1;
        let latest = self.tick + self.wheel.len() as u64 - 1;
        let tick = due.clamp(self.tick + 1, latest);
        let list = (tick % self.wheel.len() as u64) as usize;
        self.wheel[list].push((number, generation));
    }

    /// Ends the key that is due first, or nearly so.
    fn evict(&mut self) {
        let lists = self.wheel.len() as u64;
        for tick in self.tick + 1..self.tick + 1 + lists {
            let list = (tick % lists) as usize;
            let mut oldest: Option<(Nanos, u32)> = None;
            // A key that was seen since it was entered is due later: it is not looked for there.
            for &(number, generation) in self.wheel[list].iter().take(64) {
                let entry = &self.entries[number as usize];
                if entry.is_live && entry.generation == generation {
                    let candidate = (entry.last_seen, number);
                    oldest = Some(oldest.map_or(candidate, |oldest| oldest.min(candidate)));
                }
            }
            if let Some((_, number)) = oldest {
                self.end(number);
                self.evicted += 1;
                return;
            }
            self.wheel[list].retain(|&(number, generation)| {
                let entry = &self.entries[number as usize];
                entry.is_live && entry.generation == generation
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ended(table: &mut KeyTable<u8>, now: u64) -> Vec<u32> {
        let mut ended = Vec::new();
        table.take_ended(Nanos(now), &mut ended);
        ended
    }

    #[test]
    fn a_key_ends_a_timeout_after_it_was_last_seen() {
        let mut table = KeyTable::new(Nanos(32 * SECOND), 100);
        let start = 1_700_000_000 * SECOND;
        let one = table.number(0, b'a', Nanos(start));
        let other = table.number(0, b'b', Nanos(start));
        assert_ne!(one, other);
        assert_eq!(table.number(0, b'a', Nanos(start + 20 * SECOND)), one);
        assert_eq!(ended(&mut table, start + 31 * SECOND), []);
        assert_eq!(ended(&mut table, start + 34 * SECOND), [other]);
        assert_eq!(ended(&mut table, start + 54 * SECOND), [one]);
        assert!(table.is_empty());
    }

    #[test]
    fn a_number_is_given_again_only_after_its_end_was_taken_note_of() {
        let mut table = KeyTable::new(Nanos(SECOND), 100);
        let one = table.number(0, b'a', Nanos(1));
        table.end(one);
        assert_ne!(table.number(0, b'b', Nanos(1)), one);
        assert_eq!(ended(&mut table, 1), [one]);
        assert_ne!(table.number(0, b'c', Nanos(1)), one);
        assert_eq!(ended(&mut table, 1), []);
        assert_eq!(table.number(0, b'd', Nanos(1)), one);
    }

    #[test]
    fn the_longest_idle_makes_room() {
        let mut table = KeyTable::new(Nanos(32 * SECOND), 3);
        for (time, key) in [(1, b'a'), (3, b'b'), (5, b'c')] {
            table.number(0, key, Nanos(time * SECOND));
        }
        table.number(0, b'd', Nanos(6 * SECOND));
        assert_eq!((table.len(), table.evicted()), (3, 1));
        assert_eq!(ended(&mut table, 6 * SECOND), [0]);
    }

    #[test]
    fn what_is_inside_a_key_ends_with_it() {
        let mut table = KeyTable::new(Nanos(SECOND), 100);
        let inside: Vec<u32> = [b'a', b'b', b'c']
            .map(|key| table.number(7, key, Nanos(1)))
            .to_vec();
        let outside = table.number(8, b'a', Nanos(1));
        assert!(!inside.contains(&outside));
        assert_eq!((table.outer(inside[1]), table.outer(outside)), (7, 8));
        table.end(inside[1]);
        table.end_outer(7);
        let mut gone = ended(&mut table, 1);
        gone.sort_unstable();
        assert_eq!(gone, inside);
        assert_eq!(table.len(), 1);
    }

    proptest! {
        /// Against a map that is searched for what is due.
        #[test]
        fn numbers_and_ends_are_those_of_a_map(
            steps in proptest::collection::vec((0u32..3, 0u8..6, 0u64..9, 0u8..12), 1..200),
        ) {
            let timeout = 64;
            let mut table: KeyTable<u8> = KeyTable::new(Nanos(timeout), 1000);
            let mut model: BTreeMap<(u32, u8), (u32, u64)> = BTreeMap::new();
            let mut now = 1_000;
            for (outer, key, later, what) in steps {
                now += later;
                match what {
                    0 => if let Some((number, _)) = model.remove(&(outer, key)) {
                        table.end(number);
                        prop_assert_eq!(ended(&mut table, 0), [number]);
                    },
                    1 => {
                        table.end_outer(outer);
                        let mut gone = ended(&mut table, 0);
                        gone.sort_unstable();
                        let mut expected = Vec::new();
                        model.retain(|of, (number, _)| {
                            if of.0 == outer { expected.push(*number); }
                            of.0 != outer
                        });
                        expected.sort_unstable();
                        prop_assert_eq!(gone, expected);
                    }
                    _ => {
                        let number = table.number(outer, key, Nanos(now));
                        let known = model.entry((outer, key)).or_insert((number, now));
                        prop_assert_eq!(known.0, number);
                        known.1 = now;
                    }
                }
                // Ends are found within a tick (2) after they are due, never before.
                for number in ended(&mut table, now) {
                    let found = model.iter().find(|(_, known)| known.0 == number);
                    let (&of, &(_, last)) = found.expect("only what is there ends");
                    prop_assert!(last + timeout <= now);
                    model.remove(&of);
                }
                for &(_, last) in model.values() {
                    prop_assert!(last + timeout + 4 > now, "{last} should have ended by {now}");
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
