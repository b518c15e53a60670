//! Memory for chunks, by size.

use flowgauge_sys::blocks::{Block, Blocks};

use super::budget::Budget;

/// The smallest buffer: what a short stream costs.
const SMALLEST: usize = 256;

/// Buffers for chunks, charged to a budget while they are in use.
///
/// A stream's first chunk begins in a buffer that its first segment fits into, and moves to one four
/// times as large when that is full; a stream that has filled a chunk gets the next one whole. The
/// memory behind is one region the size of the budget: however sizes change, no more than that is
/// ever resident.
#[derive(Debug)]
pub(super) struct Buffers {
    budget: Budget,
    blocks: Blocks,
}

impl Buffers {
    pub(super) fn new(budget: Budget) -> Buffers {
        Buffers {
            blocks: Blocks::new(budget.limit()),
            budget,
        }
    }

    /// The size of the buffer for `len` bytes of a chunk of `target`.
    pub(super) fn size(len: usize, target: usize) -> usize {
        let mut size = SMALLEST;
        while size < len {
            size *= 4;
        }
        // No step shortly before the whole chunk.
        if size * 2 > target {
            target.max(len)
        } else {
            size
        }
    }

    /// An empty buffer of at least `size` bytes; `None` when there is no room for it.
    pub(super) fn get(&mut self, size: usize) -> Option<Block> {
        let capacity = Blocks::capacity_for(size) as u64;
        if !self.budget.charge(capacity) {
            return None;
        }
        let block = self.blocks.get(size);
        if block.is_none() {
            self.budget.release(capacity);
        }
        block
    }

    /// Takes a buffer back.
    pub(super) fn put(&mut self, buffer: Block) {
        self.budget.release(buffer.capacity() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_streams_get_small_buffers() {
        let sizes = [0, 1, 256, 257, 1024, 1448, 4096, 4097, 16_384, 20_000]
            .map(|len| Buffers::size(len, 16_384));
        assert_eq!(
            sizes,
            [
                256, 256, 256, 1024, 1024, 4096, 4096, 16_384, 16_384, 20_000
            ]
        );
        assert_eq!(Buffers::size(10, 300), 300);
        assert_eq!(Buffers::size(10, 1000), 256);
    }

    #[test]
    fn buffers_are_charged_while_in_use() {
        let budget = Budget::new(10_000);
        let mut buffers = Buffers::new(budget.clone());
        let first = buffers.get(4096).unwrap();
        let second = buffers.get(4000).unwrap();
        assert!(buffers.get(4096).is_none());
        assert_eq!(budget.used(), 8192);
        buffers.put(first);
        buffers.put(second);
        assert_eq!(budget.used(), 0);
    }
}
