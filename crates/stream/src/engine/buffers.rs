//! Memory for chunks, by size.

use flowgauge_sys::blocks::{Block, Blocks};
use flowgauge_wire::Budget;

use super::record::Pending;

/// The smallest buffer: what a short stream costs.
const SMALLEST: usize = 256;
/// What a buffer costs beside its bytes: the description of the chunk that is being filled, or of
/// what a consumer has taken.
const COST: u64 = size_of::<Pending>() as u64;

/// Buffers for chunks, charged to a budget while they are in use.
///
/// A stream's first chunk begins in a buffer that its first segment fits into, and moves to one four
/// times as large when that is full; a stream that has filled a chunk gets the next one whole. The
/// memory behind is one region the size of the budget: however sizes change, no more than that is
/// ever resident.
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

    /// What `bytes` in memory of a consumer's own are charged with, or a buffer of this capacity.
    #[inline]
    pub(super) const fn cost_of(bytes: usize) -> u64 {
        bytes as u64 + COST
    }

    /// What a buffer is charged with.
    #[inline]
    pub(super) fn cost(buffer: &Block) -> u64 {
        match buffer.capacity() {
            0 => 0,
            capacity => Buffers::cost_of(capacity),
        }
    }

    /// An empty buffer of at least `size` bytes; `None` when there is no room for it below
    /// `ceiling`.
    pub(super) fn get(&mut self, size: usize, ceiling: u64) -> Option<Block> {
        let cost = Buffers::cost_of(Blocks::capacity_for(size));
        if !self.budget.charge(cost, ceiling) {
            return None;
        }
        let block = self.blocks.get(size);
        if block.is_none() {
            self.budget.release(cost);
        }
        block
    }

    /// Takes a buffer back.
    #[inline]
    pub(super) fn put(&mut self, buffer: Block) {
        if buffer.capacity() != 0 {
            self.put_some(buffer);
        }
    }

    #[inline(never)]
    fn put_some(&mut self, buffer: Block) {
        self.budget.release(Buffers::cost(&buffer));
        self.blocks.put(buffer);
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
        let first = buffers.get(4096, u64::MAX).unwrap();
        assert!(buffers.get(4000, 8000).is_none());
        let second = buffers.get(4000, 8448).unwrap();
        assert!(buffers.get(4096, u64::MAX).is_none());
        assert_eq!(budget.used(), 2 * (4096 + 128));
        buffers.put(first);
        buffers.put(second);
        assert_eq!(budget.used(), 0);
    }
}
