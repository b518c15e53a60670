//! Packet memory that outlives its batch, so that a reader can pass packets to other threads without copying
//! them.
//!
//! A source of a mapped file returns windows of the mapping. All others read into one buffer repeatedly. If
//! that buffer has been shared by [`PacketSource::share`], the source continues with another buffer, and reuses
//! the first when no handles to it are left. A [`MemoryPool`] bounds the number of buffers; a source without a
//! free buffer waits.
//!
//! [`PacketSource::share`]: crate::PacketSource::share

use core::fmt;
use core::ops::{Deref, Range};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use flowgauge_sys::mapping::{FileMapping, LARGE_PAGE};
use parking_lot::{Condvar, Mutex};

/// Bytes that do not change while there are handles to them. Cloning increments a reference count.
#[derive(Clone, Default)]
pub struct SharedMemory(Arc<Region>);

enum Region {
    Buffer {
        bytes: Vec<u8>,
        pool: Option<MemoryPool>,
    },
    Window {
        file: Arc<MappedFile>,
        range: Range<usize>,
    },
}

/// Files that are mapped now, by device, number and length: who reads one of them, too, reads the same mapping.
static FILES: Mutex<Vec<(Identity, Weak<MappedFile>)>> = Mutex::new(Vec::new());

type Identity = (u64, u64, u64);

/// Bytes of a file with several readers that leave this process's memory at once: each time the other cores are
/// interrupted.
const RELEASED: usize = 16 << 20;

/// A mapped file, and who reads it.
pub(crate) struct MappedFile {
    mapping: FileMapping,
    /// Whether there are, or were, several readers.
    is_shared: AtomicBool,
    /// Of a shared one: the windows that are held.
    windows: Mutex<Vec<Weak<Region>>>,
    /// Of a shared one: what is to leave memory.
    left: Mutex<Range<usize>>,
}

impl MappedFile {
    /// Maps a file, unless it is mapped.
    ///
    /// # Errors
    /// As [`FileMapping::new`].
    pub(crate) fn new(file: &File) -> io::Result<Arc<MappedFile>> {
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino(), metadata.len());
        let mut files = FILES.lock();
        files.retain(|(_, file)| file.strong_count() > 0);
        let known = files.iter().find(|(known, _)| *known == identity);
        if let Some(file) = known.and_then(|(_, file)| file.upgrade()) {
            file.is_shared.store(true, Ordering::Relaxed);
            return Ok(file);
        }
        let file = Arc::new(MappedFile {
            mapping: FileMapping::new(file)?,
            is_shared: AtomicBool::new(false),
            windows: Mutex::default(),
            left: Mutex::default(),
        });
        files.push((identity, Arc::downgrade(&file)));
        Ok(file)
    }

    pub(crate) fn mapping(&self) -> &FileMapping {
        &self.mapping
    }

    /// Whether there are, or were, several readers.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// These pages are not needed.
    fn release(&self, range: Range<usize>) {
        if !self.is_shared() {
            return self.mapping.release(range);
        }
        let mut left = self.left.lock();
        if left.end == range.start {
            left.end = range.end;
        } else {
            self.mapping.release(core::mem::replace(&mut left, range));
        }
        if left.len() >= RELEASED {
            let end = left.end;
            self.mapping
                .release(core::mem::replace(&mut left, end..end));
        }
    }
}

impl Default for Region {
    fn default() -> Region {
        Region::Buffer {
            bytes: Vec::new(),
            pool: None,
        }
    }
}

impl SharedMemory {
    /// Memory that is not in a pool.
    pub fn new(bytes: Vec<u8>) -> SharedMemory {
        SharedMemory(Arc::new(Region::Buffer { bytes, pool: None }))
    }

    /// The bytes of `range` of a mapped file. With the last handle to them their pages leave this
    /// process's memory, but for the last large page, which the next window begins with.
    pub(crate) fn window(file: &Arc<MappedFile>, range: Range<usize>) -> SharedMemory {
        let region = |range| {
            Arc::new(Region::Window {
                file: Arc::clone(file),
                range,
            })
        };
        if !file.is_shared() {
            return SharedMemory(region(range));
        }
        let is_same = |held: &Arc<Region>| matches!(&**held, Region::Window { range: of, .. } if *of == range);
        let mut windows = file.windows.lock();
        if let Some(held) = windows.iter().filter_map(Weak::upgrade).find(is_same) {
            return SharedMemory(held);
        }
        windows.retain(|window| window.strong_count() > 0);
        let region = region(range);
        windows.push(Arc::downgrade(&region));
        SharedMemory(region)
    }

    /// The bytes for writing, if there is no other handle; `None` for those of a file.
    #[inline]
    pub fn exclusive(&mut self) -> Option<&mut Vec<u8>> {
        match Arc::get_mut(&mut self.0)? {
            Region::Buffer { bytes, .. } => Some(bytes),
            Region::Window { .. } => None,
        }
    }

    /// Whether both are handles to the same memory.
    #[inline]
    pub fn is(&self, other: &SharedMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for SharedMemory {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Region::Buffer { bytes, .. } => bytes,
            Region::Window { file, range } => file.mapping.bytes(range.clone()),
        }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.len())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self {
            Region::Buffer { bytes, pool } => {
                if let Some(pool) = pool {
                    pool.give_back(core::mem::take(bytes));
                }
            }
            Region::Window { file, range } => {
                let last = range.end.saturating_sub(LARGE_PAGE);
                file.release(range.start..last.max(range.start));
            }
        }
    }
}

/// A bounded number of buffers, each of which returns when the last handle to it is dropped. The most recently
/// returned one is reused first, as it is most likely in a cache.
#[derive(Clone)]
pub struct MemoryPool(Arc<Pool>);

struct Pool {
    limit: usize,
    /// Locked once for each buffer, never for a packet.
    state: Mutex<State>,
    came_back: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    made: usize,
}

impl MemoryPool {
    /// A pool of at most `limit` buffers, at least two: one to fill while another is read.
    pub fn new(limit: usize) -> MemoryPool {
        MemoryPool(Arc::new(Pool {
            limit: limit.max(2),
            state: Mutex::default(),
            came_back: Condvar::new(),
        }))
    }

    /// Another pool of the same size.
    #[must_use]
    pub fn twin(&self) -> MemoryPool {
        MemoryPool::new(self.0.limit)
    }

    /// A buffer of at least `bytes` bytes, with arbitrary contents. Waits while all buffers are in use.
    pub fn take(&self, bytes: usize) -> SharedMemory {
        let mut state = self.0.state.lock();
        let mut buffer = loop {
            if let Some(buffer) = state.free.pop() {
                break buffer;
            }
            if state.made < self.0.limit {
                state.made += 1;
                break Vec::new();
            }
            self.0.came_back.wait(&mut state);
        };
        drop(state);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        SharedMemory(Arc::new(Region::Buffer {
            bytes: buffer,
            pool: Some(self.clone()),
        }))
    }

    /// Whether [`MemoryPool::take`] would wait.
    pub fn is_exhausted(&self) -> bool {
        let state = self.0.state.lock();
        state.free.is_empty() && state.made >= self.0.limit
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.0.state.lock().free.push(bytes);
        self.0.came_back.notify_one();
    }
}

/// What a source reads into: memory that it has for itself until it hands some on, out of a pool from then on.
#[derive(Debug, Default)]
pub(crate) struct Lending(Option<MemoryPool>);

impl Lending {
    /// Memories there are at most once they are handed on.
    const MOST: usize = 64;

    /// Memory is handed on.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_with(|| MemoryPool::new(Lending::MOST));
    }

    /// Whether some was handed on.
    pub(crate) fn is_lent(&self) -> bool {
        self.0.is_some()
    }

    /// Another memory. Waits while all are held elsewhere.
    pub(crate) fn fresh(&self, bytes: usize) -> SharedMemory {
        match &self.0 {
            Some(pool) => pool.take(bytes),
            None => SharedMemory::new(vec![0; bytes]),
        }
    }

    /// Whether [`Lending::fresh`] would wait.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.as_ref().is_some_and(MemoryPool::is_exhausted)
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryPool(at most {})", self.0.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_with_its_last_handle() {
        let pool = MemoryPool::new(2);
        let mut first = pool.take(100);
        first.exclusive().unwrap()[7] = 7;
        let other = first.clone();
        assert!(first.exclusive().is_none() && first.is(&other));
        let address = first.as_ptr();
        drop(first);
        let second = pool.take(100);
        assert_ne!(second.as_ptr(), address);
        drop(other);
        assert_eq!(pool.take(50).as_ptr(), address);
    }

    #[test]
    fn whoever_finds_no_buffer_waits_for_one() {
        let pool = MemoryPool::new(2);
        let (one, _two) = (pool.take(1), pool.take(1));
        let address = one.as_ptr() as usize;
        let taken = std::thread::scope(|scope| {
            assert!(pool.is_exhausted());
            let waiting = scope.spawn(|| pool.take(1).as_ptr() as usize);
            drop(one);
            waiting.join().unwrap()
        });
        assert_eq!(taken, address);
        assert!(!pool.is_exhausted());
    }
}
