//! The pool: bytes that are written once and read by many.
//!
//! Areas come in sizes of powers of two, and are halves of larger ones: buddies, which become one again when both are free
//! (Knowlton, "A fast storage allocator", CACM 8(10), 1965). The smallest free area that fits is taken, the first of its size,
//! so that areas in use stand close together. Those given back last are kept as they are for a while, since the next one to be
//! stored is usually of such a size and finds them in the cache.
//!
//! The file is exactly as large as all areas together may be. Every process that maps it can make its pages be there, by reading
//! them if by nothing else, so nothing may be in the file that is not in the account. (A range of addresses for each size, as long
//! as the pool each, knows no fragmentation, but let a reader allocate 17 times the pool.) In return slow readers that hold back small areas here
//! and there can leave no place for a large one although less is in use than the pool is for: then that one is refused.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::memory::{self, Mapping};
use crate::local::Connection;

/// Smallest area in bytes, as a power of two.
const SMALLEST: u32 = 8;
/// Largest area in bytes, as a power of two.
const LARGEST: u32 = 24;
/// Number of sizes.
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;

/// Part of a pool that holds bytes. It is used again when [`Pool::release`] gave it back and
/// every ring that refers to it was read past that.
#[derive(Debug)]
#[must_use = "an area that is not released is lost"]
pub struct Area {
    class: u8,
    slot: u32,
    /// Bytes that were asked for.
    len: u32,
}

impl Area {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it takes.
    pub fn size(&self) -> u64 {
        size_of_class(usize::from(self.class)) as u64
    }

    /// Its place, packed: for the ring's list of what waits in it.
    pub(super) fn place(&self) -> Place {
        Place(u64::from(self.class) << 32 | u64::from(self.slot))
    }
}

/// Class and slot of an area that a ring refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    /// No area.
    pub(super) const NONE: Place = Place(u64::MAX);

    fn class(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn slot(self) -> usize {
        self.0 as u32 as usize
    }

    /// The smallest area that it begins with; none of any pool for [`Place::NONE`].
    fn first(self) -> usize {
        match self == Place::NONE {
            true => usize::MAX,
            false => self.slot() << self.class(),
        }
    }

    /// Bytes the area takes; 0 for none.
    pub(super) fn size(self) -> u64 {
        if self == Place::NONE {
            return 0;
        }
        size_of_class(self.class()) as u64
    }
}

/// Areas of a size that are kept undivided when they are given back.
const RECENT: usize = 32;

/// The writer's side.
#[derive(Debug)]
pub struct Pool {
    memory: Mapping,
    file: OwnedFd,
    /// The same file for readers, who cannot allocate by way of it.
    readable: OwnedFd,
    classes: [Class; CLASSES],
    /// References to each area in use, by the smallest area that it begins with.
    references: Vec<u32>,
    limit: u64,
    in_use: u64,
}

/// Areas of one size.
#[derive(Debug, Default)]
struct Class {
    /// Those that are free, by their number from the beginning.
    free: Bits,
    /// Those that were given back last, the last one last; not among the free.
    recent: VecDeque<u32>,
}

impl Pool {
    /// Bytes of the largest area.
    pub const LARGEST: usize = 1 << LARGEST;

    /// A pool in which `bytes` bytes (of whole areas) can be in use at a time.
    ///
    /// # Errors
    /// The system's; `ENOMEM` when there are not as many addresses, or `bytes` is absurd.
    pub fn new(bytes: u64) -> io::Result<Pool> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let smallest = bytes >> SMALLEST;
        u32::try_from(smallest).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let file = memory::create("flowgauge-pool", bytes)?;
        let memory = Mapping::new(&file, bytes, true)?;
        memory::seal(&file, true)?;
        let readable = memory::read_only(&file)?;
        let mut classes: [Class; CLASSES] = Default::default();
        let mut at = 0;
        for (number, class) in classes.iter_mut().enumerate().rev() {
            let size = size_of_class(number);
            class.free = Bits::new(bytes / size);
            // The larger ones have taken what they can.
            while bytes - at >= size {
                class.free.set(at / size);
                at += size;
            }
        }
        Ok(Pool {
            memory,
            file,
            readable,
            classes,
            references: vec![0; smallest],
            limit: bytes as u64,
            in_use: 0,
        })
    }

    /// What a client maps. It cannot write by way of it, nor allocate more than the pool's size by any way.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Bytes of the areas in use.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Bytes of the machine's memory that the pool takes: those of areas that were ever in use, and what readers allocated.
    pub fn touched(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |fact| 512 * fact.st_blocks.unsigned_abs())
    }

    /// Bytes that an area for `len` bytes takes; `None` when it is too large.
    pub fn size_of(len: usize) -> Option<u64> {
        class_of(len).map(|class| size_of_class(class) as u64)
    }

    /// Copies `parts`, one after the other, to an area. `None` when they are too many for the
    /// largest one, or when the pool is full.
    pub fn store(&mut self, parts: &[&[u8]]) -> Option<Area> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        self.store_by(len, |mut to| {
            for part in parts {
                let left = core::mem::take(&mut to);
                if let Some((here, rest)) = left.split_at_mut_checked(part.len()) {
                    here.copy_from_slice(part);
                    to = rest;
                }
            }
        })
    }

    /// Has `len` bytes written to an area. They are whatever they were before; `None` as of [`Pool::store`].
    pub fn store_by(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Option<Area> {
        let number = class_of(len)?;
        let size = size_of_class(number);
        if self.in_use + size as u64 > self.limit {
            return None;
        }
        let slot = self.take(number)?;
        let at = slot as usize * size;
        if let Some(references) = self.references.get_mut(at >> SMALLEST) {
            *references = 1;
        }
        self.in_use += size as u64;
        // An area of the pool, so it is inside the memory.
        if let Some(to) = self.memory.at(at, len) {
            // SAFETY: `len` bytes (the range was checked) inside the one mapping that can write, initialised (files begin
            // as zeroes); nobody refers to the area, since its references were 0, so nobody reads it; no other bytes of
            // the pool are borrowed, as this takes `&mut self`.
            write(unsafe { core::slice::from_raw_parts_mut(to.as_ptr(), len) });
        }
        Some(Area {
            class: number as u8,
            slot,
            len: len as u32,
        })
    }

    /// Whether an area holds exactly these bytes at `from`.
    pub fn holds(&self, area: &Area, from: usize, bytes: &[u8]) -> bool {
        let end = from.checked_add(bytes.len());
        if end.is_none_or(|end| end > area.len()) {
            return false;
        }
        let Some(start) = self
            .memory
            .at(self.offset(area) as usize + from, bytes.len())
        else {
            return false;
        };
        // SAFETY: inside the mapping and initialised (files begin as zeroes); only this process
        // can write, by way of `&mut self`.
        let stored = unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes.len()) };
        stored == bytes
    }

    /// Gives an area back. Its bytes stay as long as a ring refers to them.
    pub fn release(&mut self, area: Area) {
        self.unrefer(area.place());
    }

    /// Where an area begins.
    pub(super) fn offset(&self, area: &Area) -> u64 {
        (area.slot as usize * size_of_class(usize::from(area.class))) as u64
    }

    /// Counts one more reference to an area.
    pub(super) fn refer(&mut self, area: &Area) {
        if let Some(references) = self.references.get_mut(area.place().first()) {
            *references += 1;
        }
    }

    /// Counts one reference less, and frees the area with the last one.
    pub(super) fn unrefer(&mut self, place: Place) {
        let Some(references) = self.references.get_mut(place.first()) else {
            return;
        };
        let before = *references;
        *references = before.saturating_sub(1);
        if before == 1 {
            self.in_use -= place.size();
            self.give_back(place.class(), place.slot() as u32);
        }
    }

    /// A free area of a class.
    fn take(&mut self, number: usize) -> Option<u32> {
        if let Some(slot) = self.classes.get_mut(number)?.recent.pop_back() {
            return Some(slot);
        }
        if let Some(slot) = self.split(number) {
            return Some(slot);
        }
        for number in 0..CLASSES {
            while let Some(slot) = self.classes[number].recent.pop_front() {
                self.merge(number, slot);
            }
        }
        self.split(number)
    }

    /// The smallest free area that an area of the class fits in, cut down to that.
    fn split(&mut self, number: usize) -> Option<u32> {
        let (mut larger, mut slot) =
            (number..CLASSES).find_map(|at| Some((at, self.classes[at].free.first()?)))?;
        self.classes[larger].free.clear(slot);
        while larger > number {
            larger -= 1;
            slot *= 2;
            self.classes[larger].free.set(slot + 1);
        }
        Some(slot as u32)
    }

    /// Takes an area back that nobody refers to.
    fn give_back(&mut self, number: usize, slot: u32) {
        let Some(class) = self.classes.get_mut(number) else {
            return;
        };
        class.recent.push_back(slot);
        if class.recent.len() > RECENT
            && let Some(oldest) = class.recent.pop_front()
        {
            self.merge(number, oldest);
        }
    }

    /// Frees an area, as one with its buddy if that is free, and so on.
    fn merge(&mut self, mut number: usize, slot: u32) {
        let mut slot = slot as usize;
        while number + 1 < CLASSES && self.classes[number].free.holds(slot ^ 1) {
            self.classes[number].free.clear(slot ^ 1);
            slot /= 2;
            number += 1;
        }
        self.classes[number].free.set(slot);
    }
}

/// A set of numbers whose least one is found at once: words of bits, and above them bits that say which words are not zero.
#[derive(Debug, Default)]
struct Bits {
    /// The numbers themselves first.
    levels: Vec<Vec<u64>>,
}

impl Bits {
    /// For numbers below `numbers`; empty.
    fn new(numbers: usize) -> Bits {
        let mut levels = Vec::new();
        let mut words = numbers;
        loop {
            words = words.div_ceil(64);
            levels.push(vec![0; words]);
            if words <= 1 {
                return Bits { levels };
            }
        }
    }

    fn holds(&self, number: usize) -> bool {
        let word = self.levels.first().and_then(|words| words.get(number / 64));
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    fn set(&mut self, mut number: usize) {
        for words in &mut self.levels {
            if let Some(word) = words.get_mut(number / 64) {
                *word |= 1 << (number % 64);
            }
            number /= 64;
        }
    }

    fn clear(&mut self, mut number: usize) {
        for words in &mut self.levels {
            if let Some(word) = words.get_mut(number / 64) {
                *word &= !(1 << (number % 64));
                if *word != 0 {
                    return;
                }
            }
            number /= 64;
        }
    }

    fn first(&self) -> Option<usize> {
        let mut at = 0;
        for words in self.levels.iter().rev() {
            let word = *words.get(at)?;
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        Some(at)
    }
}

/// The readers' side.
#[derive(Debug)]
pub struct PoolView {
    memory: Mapping,
    /// To the writer: when this end closes, areas that were read here may be used again.
    connection: Arc<Connection>,
    /// Whose it is: a forked child has a copy.
    owner: u32,
}

impl PoolView {
    /// Maps what [`Pool::file`] is, read-only. `connection` is by which the writer knows that somebody reads:
    /// it stays open as long as the view does, and with that as long as bytes are borrowed or held, and is shut
    /// down then, whoever else has it.
    ///
    /// # Errors
    /// `InvalidData` when its size can change; the system's.
    pub fn open(file: OwnedFd, connection: Arc<Connection>) -> io::Result<PoolView> {
        let bytes = memory::sealed_size(&file)?;
        let memory = Mapping::new(&file, bytes, false)?;
        Ok(PoolView {
            memory,
            connection,
            owner: std::process::id(),
        })
    }

    /// `len` bytes at `offset`, if they are inside.
    ///
    /// # Safety
    /// The writer must not use the area again while the bytes are borrowed.
    #[inline]
    pub(super) unsafe fn bytes(&self, offset: u64, len: u32) -> Option<&[u8]> {
        let start = self
            .memory
            .at(usize::try_from(offset).ok()?, len as usize)?;
        // SAFETY: inside the mapping, initialised, and by the caller's promise not written to.
        Some(unsafe { core::slice::from_raw_parts(start.as_ptr(), len as usize) })
    }
}

impl Drop for PoolView {
    fn drop(&mut self) {
        // The end of a forked child must not be that of its parent.
        if self.owner == std::process::id() {
            self.connection.shut_down();
        }
    }
}

/// The smallest class that takes `len` bytes.
#[inline]
fn class_of(len: usize) -> Option<usize> {
    let power = len.max(1).checked_next_power_of_two()?.trailing_zeros();
    let class = power.max(SMALLEST) - SMALLEST;
    ((class as usize) < CLASSES).then_some(class as usize)
}

#[inline]
fn size_of_class(class: usize) -> usize {
    1 << (SMALLEST as usize + class)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    use super::*;

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::pair().unwrap().0)
    }

    /// The bytes of an area as a reader sees them.
    fn read<'a>(pool: &Pool, view: &'a PoolView, area: &Area) -> &'a [u8] {
        // SAFETY: the tests read before they release.
        unsafe { view.bytes(pool.offset(area), area.len).unwrap() }
    }

    fn view(pool: &Pool) -> PoolView {
        let file = pool.file().try_clone_to_owned().unwrap();
        PoolView::open(file, connection()).unwrap()
    }

    #[test]
    fn readers_see_what_was_stored() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let view = view(&pool);
        let one = pool.store(&[b"ab", b"", b"cde"]).unwrap();
        let large = vec![7; 70_000];
        let two = pool.store(&[&large]).unwrap();
        let none = pool.store(&[]).unwrap();
        assert_eq!(read(&pool, &view, &one), b"abcde");
        assert_eq!(read(&pool, &view, &two), large);
        assert!(read(&pool, &view, &none).is_empty() && none.is_empty());
        assert!(pool.holds(&one, 1, b"bcd") && pool.holds(&one, 0, b"abcde"));
        assert!(!pool.holds(&one, 1, b"bcx") && !pool.holds(&one, 1, b"bcdef"));
        assert!(!pool.holds(&one, usize::MAX, b"b"));
        assert_eq!(pool.in_use(), 256 + (1 << 17) + 256);
        for area in [one, two, none] {
            pool.release(area);
        }
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn areas_are_used_again_and_the_limit_holds() {
        let mut pool = Pool::new(4096).unwrap();
        let first = pool.store(&[&[1; 2048]]).unwrap();
        let offset = pool.offset(&first);
        let second = pool.store(&[&[2; 2000]]).unwrap();
        assert!(pool.store(&[b"x"]).is_none(), "the limit is reached");
        pool.refer(&first);
        let place = first.place();
        pool.release(first);
        assert!(pool.store(&[b"x"]).is_none(), "a ring still refers to it");
        pool.unrefer(place);
        let third = pool.store(&[&[3; 1025]]).unwrap();
        assert_eq!(pool.offset(&third), offset);
        pool.release(second);
        pool.release(third);
        assert_eq!((pool.in_use(), pool.touched()), (0, 4096), "one page");
        // Whatever sizes were used before, all of it can be had in another one.
        for size in [256, 512, 1024, 4096_usize] {
            let areas: Vec<_> = core::iter::from_fn(|| pool.store(&[&vec![0; size]])).collect();
            assert_eq!(areas.len() * size, 4096);
            areas.into_iter().for_each(|area| pool.release(area));
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut pool = Pool::new(1 << 30).unwrap();
        assert!(pool.store(&[&vec![0; Pool::LARGEST + 1]]).is_none());
        let largest = pool.store(&[&vec![0; Pool::LARGEST]]).unwrap();
        pool.release(largest);
        assert!(Pool::new(u64::MAX).is_err());
        assert!(Pool::new(1 << 55).is_err());
    }

    #[test]
    fn nobody_else_can_write_or_cut() {
        let mut pool = Pool::new(1 << 16).unwrap();
        let area = pool.store(&[b"untouched"]).unwrap();
        let file = pool.file().try_clone_to_owned().unwrap();
        let size = memory::sealed_size(&file).unwrap();
        // Not by mapping, not by a new descriptor of the same file, not by writing, not by
        // changing the size, not by punching holes, not by taking the seals away.
        assert!(Mapping::new(&file, size, true).is_err());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(again) = OpenOptions::new().read(true).write(true).open(&path) {
            assert!(Mapping::new(&again, size, true).is_err());
            assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
            assert!(again.set_len(0).is_err());
        }
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&file, 1).is_err());
        assert!(rustix::fs::ftruncate(&file, 1 << 40).is_err());
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert!(rustix::fs::fallocate(&file, hole, 0, 4096).is_err());
        let seal = rustix::fs::SealFlags::WRITE;
        assert!(rustix::fs::fcntl_add_seals(&file, seal).is_err());
        // A mapping to read cannot be turned into one to write.
        let reader = Mapping::new(&file, size, false).unwrap();
        let start = reader.at(0, size).unwrap();
        // SAFETY: the range is the mapping; asking for more rights changes nothing when refused.
        let status = unsafe {
            libc::mprotect(
                start.as_ptr().cast(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        assert_eq!(status, -1);
        assert!(pool.holds(&area, 0, b"untouched"));
        pool.release(area);
    }

    #[test]
    fn a_reader_allocates_no_more_than_the_pool() {
        let pool = Pool::new(1 << 20).unwrap();
        let file = pool.file().try_clone_to_owned().unwrap();
        let size = memory::sealed_size(&file).unwrap();
        let none = rustix::fs::FallocateFlags::empty();
        assert!(rustix::fs::fallocate(&file, none, 0, 4096).is_err());
        assert_eq!(pool.touched(), 0);
        // The owner of the file may open it again, and reading a mapped page makes it be there: the file bounds both.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Ok(again) = OpenOptions::new().read(true).write(true).open(&path) {
            let _ = rustix::fs::fallocate(&again, none, 0, size as u64);
            assert!(rustix::fs::fallocate(&again, none, size as u64, 4096).is_err());
        }
        let view = view(&pool);
        for page in (0..size).step_by(memory::PAGE) {
            // SAFETY: nobody writes to the pool here.
            assert_eq!(unsafe { view.bytes(page as u64, 1) }, Some(&[0][..]));
        }
        assert_eq!(pool.touched(), 1 << 20);
    }

    /// Areas of random sizes come and go: none overlap, the account is exact, and all is one again in the end.
    #[test]
    fn areas_never_overlap_and_become_whole_again() {
        // Not a power of two: its end is of smaller areas.
        let bytes = (1 << 24) + (1 << 20) + 768;
        let mut pool = Pool::new(bytes).unwrap();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let mut areas: Vec<(Area, u8)> = Vec::new();
        let (mut refused, mut largest) = (0, 0);
        for round in 0..20_000_usize {
            if areas.len() > 200 || (random().is_multiple_of(3) && !areas.is_empty()) {
                let (area, mark) = areas.swap_remove(random() % areas.len());
                assert!(pool.holds(&area, 0, &vec![mark; area.len()]));
                pool.release(area);
            }
            let len = random() % (1 << (random() % 22));
            let mark = round as u8;
            match pool.store(&[&vec![mark; len]]) {
                Some(area) => areas.push((area, mark)),
                None => refused += 1,
            }
            let sizes = areas.iter().map(|(area, _)| area.size()).sum::<u64>();
            assert_eq!(pool.in_use(), sizes);
            largest = largest.max(sizes);
        }
        assert!(largest > bytes / 2 && refused > 0, "{largest} {refused}");
        for (area, mark) in areas.drain(..) {
            assert!(pool.holds(&area, 0, &vec![mark; area.len()]));
            pool.release(area);
        }
        assert_eq!(pool.in_use(), 0);
        let whole = pool.store(&[&vec![1; Pool::LARGEST]]).unwrap();
        assert_eq!((pool.offset(&whole), whole.size()), (0, 1 << 24));
        pool.release(whole);
    }

    #[test]
    fn writing_to_a_view_is_a_fault() {
        let mut pool = Pool::new(1 << 16).unwrap();
        let area = pool.store(&[b"untouched"]).unwrap();
        let view = view(&pool);
        let at = view.memory.at(pool.offset(&area) as usize, 1).unwrap();
        // SAFETY: the child only writes one byte and ends, by a signal or by _exit; it takes no
        // lock and allocates nothing.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                at.as_ptr().write_volatile(b'X');
                libc::_exit(0);
            }
            child
        };
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waits for the child just made; `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFSIGNALED(status), "status {status:#x}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV);
        assert!(pool.holds(&area, 0, b"untouched"));
        pool.release(area);
    }

    #[test]
    fn memory_of_a_size_that_can_change_is_refused() {
        let file = memory::create("test", 4096).unwrap();
        assert_eq!(
            PoolView::open(file, connection()).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
