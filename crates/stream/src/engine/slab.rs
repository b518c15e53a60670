//! Growing memory for small records, found by number.

use flowgauge_flow::arena::Arena;

/// "No entry."
pub(super) const NONE: u32 = u32::MAX;

/// Entries by number, at the numbers the caller wants. They lie in one piece of address space, with
/// huge pages behind it, so that a look-up costs neither a step more nor a miss of the TLB.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Arena<T>,
}

impl<T: Default> Table<T> {
    /// An empty one for about `limit` entries; with more, growth copies.
    pub(super) const fn new(limit: usize) -> Table<T> {
        Table {
            entries: Arena::new(limit),
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.entries.get(at)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.entries.get_mut(at)
    }

    /// Where the entry `at` is, or would be.
    #[inline(always)]
    pub(super) fn address(&self, at: u32) -> *const T {
        self.entries.address(at)
    }

    /// Entries are at numbers below this.
    pub(super) fn bound(&self) -> u32 {
        self.entries.len()
    }

    /// The entry `at`, with the memory for it made where need be.
    #[inline]
    pub(super) fn make(&mut self, at: u32) -> &mut T {
        if at >= self.entries.len() {
            self.grow(at);
        }
        self.entries.at(at)
    }

    #[cold]
    fn grow(&mut self, at: u32) {
        while at >= self.entries.len() {
            self.entries.push(T::default());
        }
    }
}

/// Entries by numbers that are given out and taken back.
#[derive(Debug)]
pub(super) struct Slab<T> {
    table: Table<T>,
    free: Vec<u32>,
    /// Numbers below this were given out once.
    used: u32,
}

impl<T: Default> Slab<T> {
    /// An empty one for about `limit` entries.
    pub(super) const fn new(limit: usize) -> Slab<T> {
        Slab {
            table: Table::new(limit),
            free: Vec::new(),
            used: 0,
        }
    }

    /// The number of a new entry.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let (at, entry) = self.add();
        *entry = value;
        at
    }

    /// The same, with what is left of the one before.
    #[inline]
    pub(super) fn add(&mut self) -> (u32, &mut T) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        (at, self.table.make(at))
    }

    /// Takes a number back. The entry is there until another one gets the number.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<&mut T> {
        let entry = self.table.get_mut(at)?;
        self.free.push(at);
        Some(entry)
    }

    #[inline(always)]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.table.get(at)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.table.get_mut(at)
    }

    /// Where the entry `at` is, or would be.
    #[inline(always)]
    pub(super) fn address(&self, at: u32) -> *const T {
        self.table.address(at)
    }

    /// Numbers below this have been in use.
    pub(super) fn bound(&self) -> u32 {
        self.used
    }

    /// Entries in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::new(100);
        let numbers: Vec<u32> = (0..3000).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.len(), 3000);
        assert_eq!(slab.remove(numbers[1500]), Some(&mut 1500));
        assert_eq!(slab.len(), 2999);
        assert_eq!(slab.insert(7), numbers[1500]);
        assert_eq!(slab.get(numbers[1500]), Some(&7));
        assert_eq!(slab.get(numbers[2999]), Some(&2999));
        assert_eq!((slab.bound(), slab.remove(99_999)), (3000, None));
    }

    #[test]
    fn a_table_grows_to_where_it_is_asked() {
        let mut table = Table::<u8>::new(10);
        assert!(table.get(5000).is_none());
        *table.make(5000) = 1;
        assert_eq!((table.get(5000), table.get(5001)), (Some(&1), None));
    }
}
