//! Storage in chunks: grows without moving entries, indexed by u32.

use flowgauge_sys::pages::advise_huge;

/// Entries per chunk; 4 MB of flows.
const CHUNK: usize = 1 << 14;
const SHIFT: u32 = CHUNK.trailing_zeros();

/// Values by index. A chunk is written for the first time when its entries are, so that memory that
/// is never needed is never touched, and growth copies nothing.
#[derive(Clone, Debug)]
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

    /// Adds an entry and tells its index.
    pub(crate) fn push(&mut self, value: T) -> u32 {
        let index = self.len;
        if index as usize & (CHUNK - 1) == 0 {
            let mut chunk = Vec::with_capacity(CHUNK);
            if index != 0 {
                // Not the first: a small table is to stay small.
                advise_huge(chunk.spare_capacity_mut());
            }
            self.chunks.push(chunk);
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
        for i in 0..40_000u32 {
            assert_eq!(slab.push(i * 3), i);
        }
        assert_eq!(slab.get(39_999), Some(&119_997));
        assert_eq!(slab.get(40_000), None);
        *slab.get_mut(20_000).unwrap() = 7;
        assert_eq!(slab.get(20_000), Some(&7));
    }
}
