//! Memory of the `stream_t`s that a program sees.
//!
//! They are allocated in pairs, one per direction, at addresses that do not change while either of the two is
//! alive. Memory is not released until the capture is closed, and free pairs are reused in the order in which
//! they became free. A stale pointer is therefore recognised as that of an ended stream, and reading through it
//! yields old values, not another object's memory.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;

use crate::abi::RawStream;

/// Pairs that are allocated together.
const PAIRS_PER_BLOCK: usize = 64;

/// Both directions of a connection.
#[repr(C)]
struct Pair {
    streams: [RawStream; 2],
    live: [bool; 2],
}

/// The streams of one thread of one capture.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By address.
    blocks: BTreeMap<usize, NonNull<Pair>>,
    free: VecDeque<NonNull<Pair>>,
}

// SAFETY: the blocks belong to their `Nodes` alone, wherever it is; programs get pointers into them only while a
// callback runs in the thread that has it.
unsafe impl Send for Nodes {}

impl Nodes {
    /// Bytes of a connection, the lists it may be in included.
    pub(crate) const BYTES_PER_CONNECTION: u64 =
        (size_of::<Pair>() + 2 * size_of::<NonNull<Pair>>() + 4 * size_of::<u64>()) as u64;

    /// A new pair, both of it alive; returns its two streams. Each points to the other, everything else is
    /// zero.
    pub(crate) fn insert(&mut self) -> [NonNull<RawStream>; 2] {
        let pair = match self.free.pop_front() {
            Some(pair) => pair,
            None => self.grow(),
        };
        let streams = streams_of(pair);
        for (stream, other) in [(streams[0], streams[1]), (streams[1], streams[0])] {
            // SAFETY: both point into the pair, which is ours and free: nobody else looks at it.
            unsafe {
                stream.write(RawStream {
                    opposite: other.as_ptr(),
                    ..EMPTY
                });
            }
        }
        // SAFETY: as above.
        unsafe { (*pair.as_ptr()).live = [true; 2] };
        streams
    }

    /// Whether `stream` is one of these, and alive. Any pointer may be asked about.
    pub(crate) fn is_live(&self, stream: *mut RawStream) -> bool {
        self.place(stream).is_some_and(|(pair, side)| {
            // SAFETY: `place` returns pairs of our blocks only, which are initialised.
            unsafe { (*pair.as_ptr()).live[side] }
        })
    }

    /// The stream has ended. Its memory is used again once the other direction has ended, too.
    pub(crate) fn remove(&mut self, stream: *mut RawStream) {
        let Some((pair, side)) = self.place(stream) else {
            return;
        };
        // SAFETY: as in `is_live`; `self` is borrowed mutably, so nobody else reads the flags.
        let live = unsafe { &mut (*pair.as_ptr()).live };
        if core::mem::replace(&mut live[side], false) && !live[1 - side] {
            self.free.push_back(pair);
        }
    }

    /// Pairs of which a stream lives.
    #[cfg(test)]
    pub(crate) fn live_pairs(&self) -> usize {
        self.blocks.len() * PAIRS_PER_BLOCK - self.free.len()
    }

    /// The pair and side that an address is of.
    fn place(&self, stream: *mut RawStream) -> Option<(NonNull<Pair>, usize)> {
        let address = stream.addr();
        let (&base, &block) = self.blocks.range(..=address).next_back()?;
        let (index, within) = (
            (address - base) / size_of::<Pair>(),
            (address - base) % size_of::<Pair>(),
        );
        let side = within / size_of::<RawStream>();
        if index >= PAIRS_PER_BLOCK || !within.is_multiple_of(size_of::<RawStream>()) || side > 1 {
            return None;
        }
        // SAFETY: index is below the number of pairs in the block.
        Some((unsafe { block.add(index) }, side))
    }

    #[cold]
    fn grow(&mut self) -> NonNull<Pair> {
        let pairs: Box<[Pair]> = (0..PAIRS_PER_BLOCK)
            .map(|_| Pair {
                streams: [EMPTY; 2],
                live: [false; 2],
            })
            .collect();
        let block = NonNull::from(Box::leak(pairs)).cast::<Pair>();
        self.blocks.insert(block.addr().get(), block);
        for index in 1..PAIRS_PER_BLOCK {
            // SAFETY: index is below the number of pairs in the block.
            self.free.push_back(unsafe { block.add(index) });
        }
        block
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for block in core::mem::take(&mut self.blocks).into_values() {
            let pairs = NonNull::slice_from_raw_parts(block, PAIRS_PER_BLOCK);
            // SAFETY: `grow` leaked a box of this many pairs, and each block is freed once.
            drop(unsafe { Box::from_raw(pairs.as_ptr()) });
        }
    }
}

/// A stream of which nothing is known.
// SAFETY: it is made of numbers and of pointers that may be null.
pub(crate) const EMPTY: RawStream = unsafe { core::mem::zeroed() };

fn streams_of(pair: NonNull<Pair>) -> [NonNull<RawStream>; 2] {
    let first = pair.cast::<RawStream>();
    // SAFETY: a pair begins with an array of two streams.
    [first, unsafe { first.add(1) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_live_from_insertion_to_removal() {
        let mut nodes = Nodes::default();
        let [a, b] = nodes.insert();
        assert!(nodes.is_live(a.as_ptr()) && nodes.is_live(b.as_ptr()));
        // SAFETY: both are alive.
        unsafe {
            assert_eq!((*a.as_ptr()).opposite, b.as_ptr());
            assert_eq!((*b.as_ptr()).opposite, a.as_ptr());
        }
        nodes.remove(a.as_ptr());
        assert!(!nodes.is_live(a.as_ptr()) && nodes.is_live(b.as_ptr()));
        nodes.remove(a.as_ptr());
        nodes.remove(b.as_ptr());
        assert!(!nodes.is_live(b.as_ptr()));
        // The last to be used again.
        let next = nodes.insert();
        assert_ne!(next[0], a);
    }

    #[test]
    fn other_addresses_are_recognised() {
        let mut nodes = Nodes::default();
        let [a, _] = nodes.insert();
        let mut own = EMPTY;
        for wrong in [
            core::ptr::null_mut(),
            &raw mut own,
            a.as_ptr().wrapping_byte_add(8),
            a.as_ptr().wrapping_byte_sub(8),
            a.as_ptr().wrapping_byte_add(size_of::<[RawStream; 2]>()),
            core::ptr::without_provenance_mut(1),
            core::ptr::without_provenance_mut(usize::MAX),
        ] {
            assert!(!nodes.is_live(wrong));
        }
    }

    #[test]
    fn blocks_are_added() {
        let mut nodes = Nodes::default();
        let pairs: Vec<_> = (0..3 * PAIRS_PER_BLOCK).map(|_| nodes.insert()).collect();
        assert_eq!(nodes.blocks.len(), 3);
        for [a, b] in pairs {
            assert!(nodes.is_live(a.as_ptr()) && nodes.is_live(b.as_ptr()));
            nodes.remove(b.as_ptr());
            nodes.remove(a.as_ptr());
        }
        assert_eq!(nodes.free.len(), 3 * PAIRS_PER_BLOCK);
    }
}
