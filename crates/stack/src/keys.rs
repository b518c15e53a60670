//! The keys of a demultiplexer: their numbers and timeouts.
//!
//! Numbers are small and dense, so that components can keep state per key in a vector. A key ends when it was idle
//! for the timeout of capture time, when the demultiplexer ends it, or when its key in the enclosing demultiplexer
//! ends. When the table is full, the key that was idle longest (to one tick of the wheel) is evicted.
//!
//! Timeouts are lazy: a packet only updates the time at which its key was last seen. A key is in the list of the tick
//! at which it could end; at that tick, it ends or moves to the list of a later one.

use core::hash::{BuildHasher, Hash};

use flowgauge_flow::arena::Arena;
use flowgauge_flow::index::{Index, tag_of};
use flowgauge_sys::prefetch::prefetch_address;
use flowgauge_wire::{FoldedState, Nanos};

/// Ticks of the wheel within a timeout.
const TICKS: u64 = 32;

const NONE: u32 = u32::MAX;

/// How many keys ahead of the one that ends what is needed for it is asked for.
const AHEAD: usize = 8;

/// Keys and their numbers.
#[derive(Clone, Debug)]
pub struct KeyTable<K> {
    index: Index,
    entries: Arena<Entry<K>>,
    free: Vec<u32>,
    /// Ended, and not taken note of yet.
    ended: Vec<u32>,
    /// Taken note of, to be free when asked again.
    released: Vec<u32>,
    /// By the number of the outer key: the first of its keys. Of a demultiplexer in no other there are
    /// none, and no links either.
    first_of_outer: Vec<u32>,
    /// By number, where there are outer keys.
    links: Vec<Links>,
    is_nested: bool,
    wheel: Vec<Vec<(u32, u32)>>,
    /// By list: how many at its beginning wait no more.
    fronts: Vec<usize>,
    /// The tick up to which lists were looked at.
    tick: u64,
    tick_nanos: u64,
    timeout: Nanos,
    max_keys: usize,
    live: usize,
    evicted: u64,
    made: u64,
    hasher: FoldedState,
}

/// With the key of a connection it is one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry<K> {
    key: K,
    last_seen: Nanos,
    outer: u32,
    /// The part of its hash that the index knows it by.
    tag: u32,
    /// Which of the keys that had this number it is: even once it has ended.
    generation: u32,
}

impl<K> Entry<K> {
    #[inline]
    fn is_live(&self) -> bool {
        !self.generation.is_multiple_of(2)
    }
}

/// Other keys of the same outer key.
#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    previous: u32,
}

impl<K: Copy + Eq + Hash> KeyTable<K> {
    /// A table of at most `max_keys` keys, which end `timeout` after they were last seen.
    pub fn new(timeout: Nanos, max_keys: usize) -> KeyTable<K> {
        let lists = TICKS as usize + 2;
        KeyTable {
            index: Index::new(),
            entries: Arena::new(max_keys.clamp(1, NONE as usize)),
            free: Vec::new(),
            ended: Vec::new(),
            released: Vec::new(),
            first_of_outer: Vec::new(),
            links: Vec::new(),
            is_nested: false,
            wheel: vec![Vec::new(); lists],
            fronts: vec![0; lists],
            tick: 0,
            tick_nanos: (timeout.0 / TICKS).max(1),
            timeout,
            max_keys: max_keys.clamp(1, NONE as usize),
            live: 0,
            evicted: 0,
            made: 0,
            hasher: FoldedState::default(),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Number of keys evicted from the full table.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Number of keys created so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Prefetches the index for a key with this hash ...
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(tag_of(hash));
    }

    /// ... and, afterwards, the most likely key.
    #[inline]
    pub fn prefetch_key(&self, hash: u64) {
        let number = self.index.candidate(tag_of(hash));
        // A new one goes where the last one that ended was, or behind all others.
        let number = match number {
            NONE => self.free.last().copied().unwrap_or(self.entries.len()),
            number => number,
        };
        prefetch_address(self.entries.address(number).cast());
    }

    /// There are outer keys: from now on it is known which keys belong to which.
    #[cold]
    fn nest(&mut self) {
        self.is_nested = true;
        for number in 0..self.entries.len() {
            let entry = self.entries.get(number).filter(|entry| entry.is_live());
            if let Some(outer) = entry.map(|entry| entry.outer) {
                self.link(number, outer);
            }
        }
    }

    /// The number of a key, if it exists.
    pub fn find(&self, outer: u32, key: K) -> Option<u32> {
        let tag = tag_of(self.hasher.hash_one((outer, key)));
        self.index.find(tag, |number| {
            let entry = self.entries.get(number);
            entry.is_some_and(|entry| entry.key == key && entry.outer == outer)
        })
    }

    /// The number of a key with this key of the enclosing demultiplexer, seen at `now`; creates the key if it is new.
    pub fn number(&mut self, outer: u32, key: K, now: Nanos) -> u32 {
        let hash = self.hasher.hash_one((outer, key));
        self.number_hashed(outer, key, hash, now)
    }

    /// Like [`KeyTable::number`], with a known hash of the key.
    #[inline]
    pub fn number_hashed(&mut self, outer: u32, key: K, hash: u64, now: Nanos) -> u32 {
        let entries = &self.entries;
        let found = self.index.find(tag_of(hash), |number| {
            let entry = entries.get(number);
            entry.is_some_and(|entry| entry.key == key && entry.outer == outer)
        });
        if let Some(number) = found {
            let timeout = self.timeout.0;
            let entry = self.entries.at(number);
            if now.0 < entry.last_seen.0.saturating_add(timeout) {
                entry.last_seen = entry.last_seen.max(now);
                return number;
            }
            // It was due, and nobody has looked since.
            self.end(number);
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
        let tag = tag_of(hash);
        let mut entry = Entry {
            key,
            last_seen: now,
            outer,
            tag,
            generation: 1,
        };
        let number = match self.free.pop() {
            Some(number) => {
                let slot = self.entries.at(number);
                // It had ended.
                entry.generation = slot.generation.wrapping_add(1);
                *slot = entry;
                number
            }
            None => self.entries.push(entry),
        };
        if self.is_nested {
            self.link(number, outer);
        } else if outer != 0 {
            self.nest();
        }
        self.live += 1;
        self.made += 1;
        self.wait(number, entry.generation, now);
        self.index.insert(tag, number);
        number
    }

    /// Takes a key in among those of its outer key.
    fn link(&mut self, number: u32, outer: u32) {
        if self.first_of_outer.len() <= outer as usize {
            self.first_of_outer.resize(outer as usize + 1, NONE);
        }
        let none = Links {
            next: NONE,
            previous: NONE,
        };
        if self.links.len() <= number as usize {
            self.links.resize(number as usize + 1, none);
        }
        let next = core::mem::replace(&mut self.first_of_outer[outer as usize], number);
        if next != NONE {
            self.links[next as usize].previous = number;
        }
        self.links[number as usize] = Links {
            next,
            previous: NONE,
        };
    }

    /// Takes a key out from those of its outer key.
    fn unlink(&mut self, number: u32, outer: u32) {
        let Links { next, previous } = self.links[number as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
        } else {
            self.first_of_outer[outer as usize] = next;
        }
    }

    /// The key with this number; ended keys are kept until the number is reused.
    pub fn key(&self, number: u32) -> Option<&K> {
        self.entries.get(number).map(|entry| &entry.key)
    }

    /// The key of the enclosing demultiplexer.
    pub fn outer(&self, number: u32) -> u32 {
        self.entries.get(number).map_or(0, |entry| entry.outer)
    }

    /// Ends a key.
    pub fn end(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(number) else {
            return;
        };
        if !entry.is_live() {
            return;
        }
        entry.generation = entry.generation.wrapping_add(1);
        let (tag, outer) = (entry.tag, entry.outer);
        self.index.remove(tag, number);
        if self.is_nested {
            self.unlink(number, outer);
        }
        self.live -= 1;
        self.ended.push(number);
    }

    /// Ends all keys with this key of the enclosing demultiplexer.
    pub fn end_outer(&mut self, outer: u32) {
        if !self.is_nested {
            self.nest();
        }
        while let Some(&first) = self.first_of_outer.get(outer as usize) {
            if first == NONE {
                return;
            }
            self.end(first);
        }
    }

    /// Ends all keys, those idle longest first, to a tick.
    pub fn end_all(&mut self) {
        let lists = self.wheel.len() as u64;
        // Twice around: one that was seen since it was entered goes to a later list.
        for tick in self.tick + 1..self.tick + 1 + 2 * lists {
            if self.live == 0 {
                break;
            }
            let list = (tick % lists) as usize;
            self.fronts[list] = 0;
            let mut waiting = core::mem::take(&mut self.wheel[list]);
            for (number, generation) in waiting.drain(..) {
                let entry = self.entries.get(number);
                let entry = entry.filter(|it| it.is_live() && it.generation == generation);
                let Some(last_seen) = entry.map(|entry| entry.last_seen) else {
                    continue;
                };
                if self.due(last_seen) > tick {
                    self.wait(number, generation, last_seen);
                    continue;
                }
                let entry = self.entries.at(number);
                entry.generation = entry.generation.wrapping_add(1);
                self.live -= 1;
                self.ended.push(number);
            }
            if self.wheel[list].is_empty() {
                self.wheel[list] = waiting;
            }
        }
        self.index = Index::new();
        self.first_of_outer.fill(NONE);
    }

    /// Ends keys that timed out, and returns the numbers of all keys that ended since the last call. The numbers
    /// returned by the last call may be reused from now on.
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
            self.fronts[list] = 0;
            let mut waiting = core::mem::take(&mut self.wheel[list]);
            for place in 0..waiting.len() {
                if let Some(&(ahead, _)) = waiting.get(place + AHEAD)
                    && let Some(entry) = self.entries.get(ahead)
                {
                    self.index.prefetch(entry.tag);
                }
                let (number, generation) = waiting[place];
                let entry = self.entries.get(number);
                let entry = entry.filter(|it| it.is_live() && it.generation == generation);
                let Some(last_seen) = entry.map(|entry| entry.last_seen) else {
                    continue;
                };
                if last_seen.0.saturating_add(self.timeout.0) <= now.0 {
                    self.end(number);
                } else {
                    self.wait(number, generation, last_seen);
                }
            }
            waiting.clear();
            // Its memory serves again, unless keys that go on waiting are in it.
            if self.wheel[list].is_empty() {
                self.wheel[list] = waiting;
            }
        }
    }

    /// Enters a key in the list of the tick in which it could end.
    fn wait(&mut self, number: u32, generation: u32, last_seen: Nanos) {
        let tick = self.due(last_seen);
        let list = (tick % self.wheel.len() as u64) as usize;
        self.wheel[list].push((number, generation));
    }

    /// Ends the key that is due first, to a tick.
    fn evict(&mut self) {
        let lists = self.wheel.len() as u64;
        for tick in self.tick + 1..self.tick + 1 + lists {
            let list = (tick % lists) as usize;
            while let Some(&(number, generation)) = self.wheel[list].get(self.fronts[list]) {
                let entry = self.entries.get(number);
                let entry = entry.filter(|it| it.is_live() && it.generation == generation);
                let Some(last_seen) = entry.map(|entry| entry.last_seen) else {
                    self.fronts[list] += 1;
                    continue;
                };
                if self.due(last_seen) <= tick {
                    self.end(number);
                    self.evicted += 1;
                    return;
                }
                // It was seen since it was entered here.
                self.wheel[list][self.fronts[list]].0 = NONE;
                self.fronts[list] += 1;
                self.wait(number, generation, last_seen);
            }
        }
    }

    /// The tick in which a key could end, within the wheel's turn.
    fn due(&self, last_seen: Nanos) -> u64 {
        let due = last_seen.0.saturating_add(self.timeout.0) / self.tick_nanos + 1;
        let latest = self.tick + self.wheel.len() as u64 - 1;
        due.clamp(self.tick + 1, latest)
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
                        let due = model.get(&(outer, key)).filter(|known| known.1 + timeout <= now);
                        let due = due.map(|known| known.0);
                        let number = table.number(outer, key, Nanos(now));
                        if let Some(due) = due {
                            model.remove(&(outer, key));
                            let mut gone = ended(&mut table, now);
                            prop_assert!(gone.contains(&due));
                            gone.retain(|&number| number != due);
                            model.retain(|_, (number, _)| !gone.contains(number));
                        }
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
            table.end_all();
            let mut gone = ended(&mut table, now);
            gone.sort_unstable();
            let mut left: Vec<u32> = model.values().map(|(number, _)| *number).collect();
            left.sort_unstable();
            prop_assert_eq!(gone, left);
            prop_assert!(table.is_empty());
        }
    }
}
