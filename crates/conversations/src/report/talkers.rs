//! The largest of very many, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;

use flowgauge_flow::FlowRecord;
use flowgauge_record::aggregate::{drop_smaller_half, in_order};

/// Keys tracked at most, unless memory is bounded further.
const MAX_KEYS: usize = 200_000;

/// Sums of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Wire bytes, both ways.
    pub(super) bytes: u64,
    /// Packets, both ways.
    pub(super) packets: u64,
    /// Flows.
    pub(super) flows: u64,
}

impl Sums {
    /// Those of a flow.
    pub(super) fn of(record: &FlowRecord<'_>) -> Sums {
        let (source, destination) = (&record.source, &record.destination);
        Sums {
            bytes: source.bytes + destination.bytes,
            packets: source.packets + destination.packets,
            flows: 1,
        }
    }
}

/// Sums by key; when there are too many keys the smaller half goes.
#[derive(Clone, Debug)]
pub(super) struct Largest<K> {
    sums: HashMap<K, Sums>,
    max_keys: usize,
    pruned: u64,
}

impl<K> Default for Largest<K> {
    fn default() -> Largest<K> {
        Largest {
            sums: HashMap::new(),
            max_keys: MAX_KEYS,
            pruned: 0,
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Largest<K> {
    /// One that takes so many bytes of memory at most.
    pub(super) fn with_memory(bytes: u64) -> Largest<K> {
        // The table may be half empty, and the list that sorts it is as large.
        let keys = bytes / (3 * size_of::<(K, Sums)>()) as u64;
        Largest {
            max_keys: (keys.max(2) as usize).min(MAX_KEYS),
            ..Largest::default()
        }
    }

    /// Adds to a key.
    pub(super) fn add(&mut self, key: K, sums: Sums) {
        if self.sums.len() >= self.max_keys && !self.sums.contains_key(&key) {
            self.prune();
        }
        let mine = self.sums.entry(key).or_default();
        mine.bytes += sums.bytes;
        mine.packets += sums.packets;
        mine.flows += sums.flows;
    }

    /// Adds another's keys, and the memory it may use.
    pub(super) fn merge(&mut self, other: Largest<K>) {
        self.max_keys = (self.max_keys + other.max_keys).min(MAX_KEYS);
        self.pruned += other.pruned;
        for (key, sums) in in_order(other.sums) {
            self.add(key, sums);
        }
    }

    /// The `count` keys with the most bytes, largest first.
    pub(super) fn top(&self, count: usize) -> Vec<(K, Sums)> {
        let mut all: Vec<(K, Sums)> = self.sums.iter().map(|(k, s)| (k.clone(), *s)).collect();
        all.sort_unstable_by(|(a, one), (b, other)| {
            other.bytes.cmp(&one.bytes).then_with(|| a.cmp(b))
        });
        all.truncate(count);
        all
    }

    /// Distinct keys seen, at least: those given up are counted once each time.
    pub(super) fn len(&self) -> u64 {
        self.sums.len() as u64 + self.pruned
    }

    fn prune(&mut self) {
        let before = self.sums.len();
        drop_smaller_half(&mut self.sums, |sums| sums.bytes, |_, _| {});
        self.pruned += (before - self.sums.len()) as u64;
    }

    /// Keys that are tracked at most.
    #[cfg(test)]
    pub(super) fn max_keys(&self) -> usize {
        self.max_keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_largest_stays() {
        let mut largest = Largest::default();
        let sums = |bytes| Sums {
            bytes,
            packets: 1,
            flows: 1,
        };
        largest.add(u64::MAX, sums(1_000_000));
        for key in 0..3 * MAX_KEYS as u64 {
            largest.add(key, sums(10));
        }
        assert!(largest.sums.len() <= MAX_KEYS);
        assert_eq!(largest.top(1), [(u64::MAX, sums(1_000_000))]);
        assert_eq!(largest.len(), 3 * MAX_KEYS as u64 + 1);
    }
}
