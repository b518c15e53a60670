//! A region of memory in huge pages, cut into blocks.
//!
//! Buffers that many streams fill a little at a time, in no order, miss the TLB with every packet
//! when they lie in pages of four kilobytes. A [`Blocks`] reserves address space for all there may
//! ever be, asks for huge pages behind it, and cuts it by halves (a buddy system): blocks have
//! sizes of powers of two, and neighbours that are both free become one again. So what is resident
//! never exceeds the region, however sizes change over time.
//!
//! One owner gives blocks out; they may go to other threads and be dropped there. A dropped block
//! waits in a list through the blocks themselves, which the owner collects: neither ever waits for
//! the other.
//!
//! ```text
//!  order 0   [256][256][256][256][256]...       a block begins at a multiple of its size; its
//!  order 1   [  512   ][  512   ][  512...      buddy is the other half of what it was cut from
//!  order 2   [      1024        ][     ...
//! ```

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::pages::advise_huge;

/// The smallest block.
const UNIT: usize = 256;
/// Sizes of blocks; the largest is a gibibyte.
const ORDERS: usize = 23;
/// Blocks of one order that are kept as they came back, and the largest order of which any are.
const KEPT: usize = 64;
const KEPT_ORDERS: usize = 8;
/// End of the list of dropped blocks.
const NONE: u32 = u32::MAX;
/// In the map: nothing begins here, or what begins here is in use.
const IN_USE: u8 = 0xff;

/// Gives out blocks of a region. See the module's page.
pub struct Blocks {
    region: Arc<Region>,
    /// By unit: the order of the free block that begins there.
    map: Vec<u8>,
    /// By order: units where free blocks may begin; what the map does not confirm is out of date.
    free: [Vec<u32>; ORDERS],
    /// By order: blocks that came back through [`Blocks::put`] last, given out again first. What is
    /// still in the cache of what was written into them is not written from there to memory for
    /// nothing, and no list is worked on.
    kept: [Vec<Block>; KEPT_ORDERS],
    /// Units that were never given out begin here.
    fresh: u32,
}

/// Address space, and the list of blocks that were dropped.
struct Region {
    base: NonNull<u8>,
    len: usize,
    returned: AtomicU32,
}

// SAFETY: the region itself is only an address range; its bytes are reached through blocks, which
// never overlap, and the list of dropped blocks is an atomic.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Memory of a [`Blocks`], filled from its beginning, and from its end with what is kept beside that:
///
/// ```text
///  |bytes ...... -->|     room     |<-- third piece|second piece|first piece|
///  0               len          capacity - stacked                   capacity
/// ```
pub struct Block {
    memory: NonNull<u8>,
    capacity: u32,
    len: u32,
    /// Bytes at its end.
    stacked: u32,
    /// What its owner counts of them.
    pieces: u32,
    /// `None` of an empty block without memory.
    region: Option<Arc<Region>>,
}

// SAFETY: a block is the only way to its bytes, as a box is.
unsafe impl Send for Block {}
// SAFETY: a shared block only lets its bytes be read.
unsafe impl Sync for Block {}

impl Blocks {
    /// Room for `bytes` of blocks (rounded up, 512 GiB at most). Memory is only taken as blocks are
    /// written. Where so much address space is not to be had there is less room.
    pub fn new(bytes: u64) -> Blocks {
        let wanted = bytes.clamp(1 << 21, 1 << 39) as usize;
        let mut len = wanted.next_multiple_of(1 << 21);
        let base = loop {
            match Region::reserve(len) {
                Some(base) => break base,
                None if len > 1 << 21 => len = (len / 2).next_multiple_of(1 << 21),
                None => {
                    len = 0;
                    break NonNull::dangling();
                }
            }
        };
        Blocks {
            region: Arc::new(Region {
                base,
                len,
                returned: AtomicU32::new(NONE),
            }),
            // Zero, until the fresh part gets there.
            map: vec![0; len / UNIT],
            free: [const { Vec::new() }; ORDERS],
            kept: [const { Vec::new() }; KEPT_ORDERS],
            fresh: 0,
        }
    }

    /// The capacity of the block that is given for `bytes`.
    pub const fn capacity_for(bytes: usize) -> usize {
        UNIT << order_of(bytes)
    }

    /// An empty block of [`Blocks::capacity_for`] `bytes`; `None` when there is no room.
    pub fn get(&mut self, bytes: usize) -> Option<Block> {
        let order = order_of(bytes);
        if let Some(block) = self.kept.get_mut(order).and_then(Vec::pop) {
            return Some(block);
        }
        self.get_from_region(order)
    }

    /// Takes a block back, as dropping it does, but at once: it is likely the next one given out.
    #[inline]
    pub fn put(&mut self, block: Block) {
        let order = (block.capacity as usize / UNIT).trailing_zeros() as usize;
        if let Some(kept) = self.kept.get_mut(order)
            && kept.len() < KEPT
            && (block.region.as_ref()).is_some_and(|region| Arc::ptr_eq(region, &self.region))
        {
            kept.push(block);
            // In its place: a length written just before the block is moved would hold it up.
            if let Some(block) = kept.last_mut() {
                block.len = 0;
                block.unstack();
            }
        }
    }

    #[inline(never)]
    fn get_from_region(&mut self, order: usize) -> Option<Block> {
        if order >= ORDERS {
            return None;
        }
        self.collect();
        let mut unit = self.take(order);
        if unit.is_none() && self.kept.iter().any(|kept| !kept.is_empty()) {
            // What is kept may be what is missing between others.
            self.kept.iter_mut().for_each(Vec::clear);
            self.collect();
            unit = self.take(order);
        }
        let unit = unit?;
        let (offset, capacity) = (unit as usize * UNIT, UNIT << order);
        debug_assert!(offset + capacity <= self.region.len);
        Some(Block {
            // SAFETY: `take` only gives units of whole blocks inside the region.
            memory: unsafe { self.region.base.add(offset) },
            capacity: capacity as u32,
            len: 0,
            stacked: 0,
            pieces: 0,
            region: Some(Arc::clone(&self.region)),
        })
    }

    /// Takes a free block of this order out, cutting a larger one where need be.
    fn take(&mut self, order: usize) -> Option<u32> {
        for from in order..ORDERS {
            while let Some(unit) = self.free[from].pop() {
                if self.map[unit as usize] != from as u8 {
                    continue;
                }
                self.map[unit as usize] = IN_USE;
                for half in order..from {
                    self.enter(unit + (1 << half), half);
                }
                return Some(unit);
            }
        }
        self.take_fresh(order)
    }

    /// A block from the part of the region that was never in use. What lies before it becomes free
    /// blocks, the largest that fit; so does all that is left where that is too little for it.
    fn take_fresh(&mut self, order: usize) -> Option<u32> {
        let (size, end) = (1_u32 << order, self.map.len() as u32);
        let unit = self.fresh.checked_next_multiple_of(size)?;
        let fits = end.checked_sub(unit).is_some_and(|left| left >= size);
        let unit = if fits { unit } else { end };
        let freed = self.fresh < unit;
        while self.fresh < unit {
            let begin = self.fresh;
            let largest = (unit - begin).ilog2().min(begin.trailing_zeros());
            self.touch(1 << largest);
            self.merge(begin, largest as usize);
        }
        if fits {
            self.touch(size);
            Some(unit)
        } else if freed {
            self.take(order)
        } else {
            None
        }
    }

    /// Takes the next units of the fresh part into use.
    fn touch(&mut self, units: u32) {
        let end = self.fresh + units;
        self.map[self.fresh as usize..end as usize].fill(IN_USE);
        self.fresh = end;
    }

    fn enter(&mut self, unit: u32, order: usize) {
        self.map[unit as usize] = order as u8;
        self.free[order].push(unit);
    }

    /// Takes back the blocks that were dropped.
    fn collect(&mut self) {
        if self.region.returned.load(Ordering::Relaxed) == NONE {
            return;
        }
        let mut unit = self.region.returned.swap(NONE, Ordering::Acquire);
        while unit != NONE {
            // SAFETY: a unit in the list is the beginning of a dropped block, which nobody else
            // has; its first eight bytes were written by `Block::drop` before a release that the
            // swap above acquired. Units are aligned to 256 bytes.
            let [next, order] = unsafe {
                self.region
                    .base
                    .add(unit as usize * UNIT)
                    .cast::<[u32; 2]>()
                    .read()
            };
            self.merge(unit, order as usize);
            unit = next;
        }
    }

    /// Frees a block, together with its buddy where that is free.
    fn merge(&mut self, unit: u32, order: usize) {
        let (mut unit, mut order) = (unit, order);
        while order + 1 < ORDERS {
            let buddy = unit ^ (1 << order);
            if buddy >= self.fresh || self.map[buddy as usize] != order as u8 {
                break;
            }
            self.map[buddy as usize] = IN_USE;
            unit &= !(1 << order);
            order += 1;
        }
        self.enter(unit, order);
    }
}

/// The order of the smallest block with room for `bytes`.
const fn order_of(bytes: usize) -> usize {
    let units = bytes.div_ceil(UNIT);
    if units <= 1 {
        return 0;
    }
    (usize::BITS - (units - 1).leading_zeros()) as usize
}

impl Region {
    /// Reserves `len` bytes of address space.
    fn reserve(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that is
        // there already.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(memory.cast::<u8>())?;
        // SAFETY: the mapping is fresh, `len` bytes long, zeroed, and nobody else knows it.
        advise_huge(unsafe { core::slice::from_raw_parts_mut(base.as_ptr(), len) });
        Some(base)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: the mapping was made by `reserve` with this length, and the last block, which
            // would hold the region, is gone.
            unsafe {
                libc::munmap(self.base.as_ptr().cast(), self.len);
            }
        }
    }
}

impl Block {
    /// A block without memory.
    pub const EMPTY: Block = Block {
        memory: NonNull::dangling(),
        capacity: 0,
        len: 0,
        stacked: 0,
        pieces: 0,
        region: None,
    };

    /// Bytes there is room for.
    #[inline(always)]
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Bytes written.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing was written.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes written.
    #[inline(always)]
    pub const fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes of the block were written, and the block is borrowed.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.len as usize) }
    }

    /// The bytes written, to be changed.
    #[inline]
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as `as_slice`, and the block is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len as usize) }
    }

    /// Bytes that can still be written.
    #[inline(always)]
    pub const fn room(&self) -> usize {
        (self.capacity - self.stacked - self.len) as usize
    }

    /// Appends as much of `bytes` as there is room for, and tells how much.
    #[inline(always)]
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room());
        // SAFETY: `len` bytes from the end of what was written lie within the block, which nobody
        // else can reach, so that they do not overlap `bytes` either.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.memory.as_ptr().add(self.len as usize),
                len,
            );
        }
        self.len += len as u32;
        len
    }

    /// Appends zeros up to `len` bytes, or as far as there is room.
    pub fn zero_up_to(&mut self, len: usize) {
        let more = len.saturating_sub(self.len as usize).min(self.room());
        // SAFETY: as `extend`.
        unsafe {
            core::ptr::write_bytes(self.memory.as_ptr().add(self.len as usize), 0, more);
        }
        self.len += more as u32;
    }

    /// Puts `bytes` and `last` before what is at the block's end, or nothing where there is no room for
    /// both.
    #[inline(always)]
    pub fn stack<const N: usize>(&mut self, bytes: &[u8], last: &[u8; N]) {
        let len = bytes.len() + N;
        if len <= self.room() {
            self.stacked += len as u32;
            // SAFETY: as `extend`: these bytes begin at or behind the end of what was written, and end
            // where what stood at the block's end begins.
            unsafe {
                let at = self.memory.as_ptr().add(self.stack_at());
                core::ptr::copy_nonoverlapping(last.as_ptr(), at.add(bytes.len()), N);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
            }
        }
    }

    /// What was put at the block's end, the last first.
    #[inline(always)]
    pub const fn stacked(&self) -> &[u8] {
        // SAFETY: the last `stacked` bytes of the block were written, and the block is borrowed.
        unsafe {
            let begin = self.memory.as_ptr().cast_const().add(self.stack_at());
            core::slice::from_raw_parts(begin, self.stacked as usize)
        }
    }

    /// The owner's count of what is at the block's end.
    #[inline(always)]
    pub const fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Sets the count.
    #[inline(always)]
    pub const fn set_pieces(&mut self, pieces: u32) {
        self.pieces = pieces;
    }

    /// Takes away what is at the block's end.
    #[inline(always)]
    pub const fn unstack(&mut self) {
        self.stacked = 0;
        self.pieces = 0;
    }

    const fn stack_at(&self) -> usize {
        (self.capacity - self.stacked) as usize
    }

    /// Address of the byte that the next piece is put before, for prefetching.
    #[inline(always)]
    pub const fn stack_end(&self) -> *const u8 {
        self.memory
            .as_ptr()
            .cast_const()
            .wrapping_add(self.stack_at())
    }

    /// Address of the byte that would be written next, for prefetching.
    #[inline(always)]
    pub const fn end(&self) -> *const u8 {
        self.memory
            .as_ptr()
            .cast_const()
            .wrapping_add(self.len as usize)
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            self.give_back(&region);
        }
    }
}

impl Block {
    #[cold]
    fn give_back(&self, region: &Region) {
        let offset = self.memory.as_ptr().addr() - region.base.as_ptr().addr();
        let unit = (offset / UNIT) as u32;
        let order = (self.capacity as usize / UNIT).trailing_zeros();
        let mut head = region.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is at least 256 bytes long and aligned to that, and nobody else
            // can reach it until the exchange below has entered it in the list.
            unsafe { self.memory.cast::<[u32; 2]>().write([head, order]) };
            match region.returned.compare_exchange_weak(
                head,
                unit,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Default for Block {
    fn default() -> Block {
        Block::EMPTY
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_was_written() {
        let mut blocks = Blocks::new(1 << 21);
        let mut block = blocks.get(1000).unwrap();
        assert_eq!((block.capacity(), block.len()), (1024, 0));
        assert!(block.is_empty());
        assert_eq!(block.extend(b"abc"), 3);
        block.zero_up_to(5);
        block.as_mut_slice()[4] = b'z';
        assert_eq!(block.as_slice(), b"abc\0z");
        assert_eq!(block.extend(&[7; 2000]), 1019);
        assert_eq!(block.len(), 1024);
        assert!(Block::EMPTY.as_slice().is_empty());
        assert_eq!(Block::default().extend(b"x"), 0);
    }

    #[test]
    fn blocks_are_filled_from_both_ends() {
        let mut blocks = Blocks::new(1 << 21);
        let mut block = blocks.get(256).unwrap();
        block.stack(b"fir", b"st");
        block.extend(b"abc");
        block.stack(b"second", b"");
        block.set_pieces(2);
        assert_eq!(block.stacked(), b"secondfirst");
        assert_eq!((block.room(), block.len(), block.pieces()), (242, 3, 2));
        block.stack(&[0; 240], b"abc");
        assert_eq!(block.stacked().len(), 11);
        assert_eq!(block.extend(&[1; 300]), 242);
        block.zero_up_to(256);
        assert_eq!((block.room(), block.len()), (0, 245));
        assert_eq!(block.stacked(), b"secondfirst");
        block.unstack();
        assert_eq!((block.room(), block.pieces()), (11, 0));
        block.zero_up_to(usize::MAX);
        block.stack(b"x", b"");
        assert!(block.stacked().is_empty() && block.len() == 256);
        assert!(Block::EMPTY.stacked().is_empty());
        block.unstack();
        blocks.put(block);
        let mut block = blocks.get(256).unwrap();
        block.stack(b"x", b"");
        blocks.put(block);
        assert!(blocks.get(256).unwrap().stacked().is_empty());
    }

    #[test]
    fn halves_become_one_again() {
        let mut blocks = Blocks::new(1 << 21);
        let small: Vec<Block> = core::iter::from_fn(|| blocks.get(1)).collect();
        assert_eq!(small.len(), (1 << 21) / UNIT);
        assert!(blocks.get(1).is_none());
        drop(small);
        // All of it in one piece, twice.
        for _ in 0..2 {
            let whole = blocks.get(1 << 21).unwrap();
            assert_eq!(whole.capacity(), 1 << 21);
            assert!(blocks.get(1).is_none());
        }
    }

    #[test]
    fn what_is_kept_comes_first_and_is_not_lost() {
        let mut blocks = Blocks::new(1 << 21);
        let mut block = blocks.get(256).unwrap();
        block.extend(b"abc");
        let place = block.as_slice().as_ptr();
        blocks.put(block);
        let block = blocks.get(100).unwrap();
        assert!(block.is_empty());
        assert_eq!(block.end(), place);
        blocks.put(block);
        blocks.put(Block::EMPTY);
        let other = Blocks::new(1 << 21).get(256).unwrap();
        blocks.put(other);
        let small: Vec<Block> = core::iter::from_fn(|| blocks.get(256)).collect();
        assert_eq!(small.len(), (1 << 21) / UNIT);
        small.into_iter().for_each(|block| blocks.put(block));
        assert_eq!(blocks.get(1 << 21).unwrap().capacity(), 1 << 21);
    }

    #[test]
    fn blocks_of_all_sizes_do_not_overlap() {
        let mut blocks = Blocks::new(1 << 22);
        let mut live: Vec<(Block, u8)> = Vec::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for turn in 0..20_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let size = 1 << (random % 16);
            if random >> 40 & 1 == 0
                && let Some(mut block) = blocks.get(size)
            {
                let mark = turn as u8;
                block.zero_up_to(usize::MAX);
                block.as_mut_slice().fill(mark);
                live.push((block, mark));
            } else if !live.is_empty() {
                let at = (random >> 20) as usize % live.len();
                let (block, mark) = live.swap_remove(at);
                assert!(block.as_slice().iter().all(|&byte| byte == mark));
            }
        }
        drop(live);
        assert!(blocks.get(1 << 21).is_some());
    }

    #[test]
    fn a_large_block_takes_what_was_used_and_what_never_was() {
        for used in [1, 3, 200, 511] {
            let mut blocks = Blocks::new(1 << 21);
            let small: Vec<Block> = (0..used).filter_map(|_| blocks.get(4096)).collect();
            assert_eq!(small.len(), used);
            assert!(blocks.get(1 << 21).is_none());
            drop(small);
            assert!(blocks.get(1 << 21).is_some(), "{used} used");
        }
    }

    #[test]
    fn blocks_come_back_from_other_threads() {
        let mut blocks = Blocks::new(1 << 21);
        let (sender, receiver) = std::sync::mpsc::channel::<Block>();
        let consumer = std::thread::spawn(move || {
            let sum = |block: Block| -> u64 {
                block.as_slice().iter().map(|&byte| u64::from(byte)).sum()
            };
            receiver.into_iter().map(sum).sum::<u64>()
        });
        let mut expected = 0;
        for turn in 0..50_000_u64 {
            let Some(mut block) = blocks.get(4096) else {
                std::thread::yield_now();
                continue;
            };
            block.extend(&[turn as u8; 16]);
            expected += 16 * u64::from(turn as u8);
            sender.send(block).unwrap();
        }
        drop(sender);
        assert_eq!(consumer.join().unwrap(), expected);
        assert!(blocks.get(1 << 21).is_some());
    }
}
