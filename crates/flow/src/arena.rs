//! Storage of flow records and accompanying state: one range of address space, indexed by u32.

use flowgauge_sys::pages::advise_huge;

/// Entries, above the limit, that may be waiting to be given out.
const BEYOND: usize = 4096;

/// Entries before the first huge page: a small table is to stay small.
const SMALL: usize = 1 << 12;

/// Values by index. Address space for the maximum number of entries is reserved with the first one,
/// so that growth copies nothing and access is one bounds check; memory is only used as entries are
/// written. If not enough address space is available, growth copies.
#[derive(Clone, Debug)]
pub struct Arena<T> {
    entries: Vec<T>,
    limit: usize,
}

impl<T> Arena<T> {
    /// An empty arena for about `limit` entries.
    pub const fn new(limit: usize) -> Arena<T> {
        Arena {
            entries: Vec::new(),
            limit,
        }
    }

    /// Number of entries ever pushed.
    #[inline]
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether no entry was ever pushed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry and returns its index.
    pub fn push(&mut self, value: T) -> u32 {
        let index = self.len();
        if index == 0 {
            self.reserve();
        }
        self.entries.push(value);
        index
    }

    #[cold]
    fn reserve(&mut self) {
        let mut room = self.limit.saturating_add(BEYOND);
        while room > BEYOND && self.entries.try_reserve_exact(room).is_err() {
            room /= 2;
        }
        if let Some(large) = self.entries.spare_capacity_mut().get_mut(SMALL..) {
            advise_huge(large);
        }
    }

    /// The entry with this index.
    #[inline(always)]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)
    }

    /// The entry with this index.
    #[inline(always)]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)
    }

    /// The address of an entry, if it exists, for [`flowgauge_sys::prefetch`].
    #[inline(always)]
    pub fn address(&self, index: u32) -> *const T {
        self.entries.as_ptr().wrapping_add(index as usize)
    }

    /// An entry that is known to exist: `index` was returned by [`Arena::push`].
    #[inline(always)]
    pub fn at(&mut self, index: u32) -> &mut T {
        &mut self.entries[index as usize]
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.entries.len() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_in_place_up_to_its_limit_and_beyond() {
        let mut arena = Arena::new(40_000);
        assert_eq!(arena.push(0), 0);
        let first = arena.address(0);
        for i in 1..40_000u32 {
            assert_eq!(arena.push(i * 3), i);
        }
        assert_eq!(arena.address(0), first);
        for i in 40_000..80_000u32 {
            arena.push(i * 3);
        }
        assert_eq!(arena.len(), 80_000);
        assert_eq!(arena.get(79_999), Some(&239_997));
        assert_eq!(arena.get(80_000), None);
        *arena.at(20_000) = 7;
        assert_eq!(arena.get(20_000), Some(&7));
    }

    #[test]
    fn takes_what_address_space_there_is() {
        let mut arena = Arena::new(usize::MAX);
        assert_eq!(arena.push(1u64), 0);
        assert_eq!(arena.get(0), Some(&1));
    }
}
