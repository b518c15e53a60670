//! Storage in chunks: grows without moving what is there, addressed by u32.

use flowgauge_sys::prefetch::prefetch;

/// Entries per chunk; 256 KB of flows.
const CHUNK: usize = 1024;
const SHIFT: u32 = CHUNK.trailing_zeros();

/// Values by index. A chunk is written for the first time when its entries are, so that memory that
/// is never needed is never touched, and growth copies nothing.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    len: u32,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab {
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// Entries ever pushed.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds an entry and tells its index.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let index = self.len;
        if index as usize & (CHUNK - 1) == 0 {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(value);
            self.len += 1;
        }
        index
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.chunks
            .get((index >> SHIFT) as usize)?
            .get(index as usize & (CHUNK - 1))
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.chunks
            .get_mut((index >> SHIFT) as usize)?
            .get_mut(index as usize & (CHUNK - 1))
    }

    /// An entry that is known to be there: `index` came from [`Slab::push`].
    #[inline(always)]
    pub(crate) fn at(&mut self, index: u32) -> &mut T {
        &mut self.chunks[(index >> SHIFT) as usize][index as usize & (CHUNK - 1)]
    }

    /// Prefetches the parts of entry `index` that `parts` picks.
    #[inline(always)]
    pub(crate) fn prefetch<A, B>(&self, index: u32, parts: impl FnOnce(&T) -> (&A, &B)) {
        if let Some(value) = self.get(index) {
            let (first, second) = parts(value);
            prefetch(first);
            prefetch(second);
        }
    }

    /// Bytes of memory reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_across_chunks() {
        let mut slab = Slab::new();
        for i in 0..3000u32 {
            assert_eq!(slab.push(i * 3), i);
        }
        assert_eq!(slab.len(), 3000);
        assert_eq!(slab.get(2999), Some(&8997));
        assert_eq!(slab.get(3000), None);
        *slab.get_mut(1024).unwrap() = 7;
        assert_eq!(slab.get(1024), Some(&7));
    }
}
