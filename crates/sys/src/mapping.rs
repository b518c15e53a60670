//! Files mapped into memory, to be read from front to back.
//!
//! A mapped file can be cut by another process while it is read; touching a page behind its new end
//! then raises `SIGBUS`. Here that is an event, not the end of the process: a handler puts a page of
//! zeros in its place and notes it, and [`FileMapping::was_cut`] tells. `SIGBUS` for any other
//! reason goes to whoever handled it before.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Unit of [`FileMapping::load`] and [`FileMapping::release`] that suits the system best: where the
/// page cache has pages of this size, one page table entry maps one of them.
pub const LARGE_PAGE: usize = 2 << 20;

/// The most files that are mapped at the same time.
const MOST: usize = 64;

/// A regular file, mapped read-only as it was long when it was mapped.
///
/// The bytes are those of the page cache: if another process writes to the file, they change. Text
/// of a length that was checked may then be another text, but never another length.
#[derive(Debug)]
pub struct FileMapping {
    address: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: the mapping is memory like any other; nothing in it belongs to a thread.
unsafe impl Send for FileMapping {}
// SAFETY: as above, and shared access only reads.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps all of `file`. Reads nothing yet.
    ///
    /// # Errors
    /// When the file is empty or cannot be mapped (a pipe, a device, some network file systems), too
    /// many files are mapped already, or the system cannot load pages ahead (Linux before 5.14).
    pub fn new(file: &File) -> io::Result<FileMapping> {
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| unsupported())?;
        handle_bus_errors()?;
        let slot = SLOTS.iter().find(|slot| slot.claim());
        let slot = slot.ok_or_else(unsupported)?;
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let mapped = (address != libc::MAP_FAILED).then(|| NonNull::new(address.cast::<u8>()));
        let Some(Some(address)) = mapped else {
            let error = io::Error::last_os_error();
            slot.free();
            return Err(error);
        };
        slot.start.store(address.addr().get(), Ordering::Release);
        slot.end
            .store(address.addr().get() + len, Ordering::Release);
        let mapping = FileMapping { address, len, slot };
        mapping.advise(0..len, libc::MADV_SEQUENTIAL)?;
        // Whether the system knows this advice at all.
        mapping.advise(0..0, libc::MADV_POPULATE_READ)?;
        Ok(mapping)
    }

    /// Bytes mapped: the length of the file when it was mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped; never true, an empty file is refused.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads `range` in (as far as it is not in the page cache) and maps it, in one call.
    ///
    /// # Errors
    /// When reading fails, or the file ends before the end of `range` now.
    pub fn load(&self, range: Range<usize>) -> io::Result<()> {
        self.advise(range, libc::MADV_POPULATE_READ)
    }

    /// Takes whole pages within `range` out of this process's memory. They come back when they are
    /// touched.
    pub fn release(&self, range: Range<usize>) {
        // Advice: where it is not taken, memory is returned later.
        let _ = self.advise(range, libc::MADV_DONTNEED);
    }

    /// The bytes of `range`; none where it is not within the mapping.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        if range.start > range.end || range.end > self.len {
            return &[];
        }
        // SAFETY: the range is mapped readable as long as `self` lives: behind the end of a file that
        // was cut, the handler of SIGBUS puts pages there.
        unsafe {
            std::slice::from_raw_parts(
                self.address.as_ptr().add(range.start),
                range.end - range.start,
            )
        }
    }

    /// Whether bytes were touched that the file no longer had (it was cut, or could not be read).
    /// Those read as zeros.
    #[inline]
    pub fn was_cut(&self) -> bool {
        self.slot.cut.load(Ordering::Acquire)
    }

    fn advise(&self, range: Range<usize>, advice: libc::c_int) -> io::Result<()> {
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        let start = range.start.min(self.len) / page * page;
        let end = range.end.min(self.len).max(start);
        // SAFETY: the range lies within the mapping, is shared and never written to: no advice given
        // here changes what is read from it.
        let status =
            unsafe { libc::madvise(self.address.as_ptr().add(start).cast(), end - start, advice) };
        if status == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no borrow of it is left.
        unsafe {
            libc::munmap(self.address.as_ptr().cast(), self.len);
        }
        self.slot.free();
    }
}

fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// Bytes of a page, once there is a mapping.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// Where a mapping is: all that the signal handler reads.
#[derive(Debug)]
struct Slot {
    claimed: AtomicBool,
    /// First address; the range is empty while the slot is not in use.
    start: AtomicUsize,
    /// Behind the last address.
    end: AtomicUsize,
    cut: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        claimed: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
    }
}; MOST];

impl Slot {
    fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    fn free(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
        self.cut.store(false, Ordering::Release);
        self.claimed.store(false, Ordering::Release);
    }

    fn contains(&self, address: usize) -> bool {
        address >= self.start.load(Ordering::Acquire) && address < self.end.load(Ordering::Acquire)
    }
}

/// What handled SIGBUS before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once per process.
fn handle_bus_errors() -> io::Result<()> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let installed = *INSTALLED.get_or_init(|| {
        // SAFETY: a question without effect.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page) = usize::try_from(page) else {
            return false;
        };
        PAGE_BYTES.store(page, Ordering::Relaxed);
        // SAFETY: `sigaction` is a C struct of numbers and pointers, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            on_bus_error;
        action.sa_sigaction = handler as libc::sighandler_t;
        // On the alternative stack, because whoever comes after may need it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structs are valid; the handler only calls what a handler may.
        let status = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) };
        if status == 0 {
            PREVIOUS.get_or_init(|| previous);
        }
        status == 0
    });
    if installed {
        Ok(())
    } else {
        Err(unsupported())
    }
}

/// Runs on a thread that touched a page which cannot be had.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the system passes a valid `info`, which for SIGBUS holds an address.
    let address = unsafe { (*info).si_addr() }.addr();
    if let Some(slot) = SLOTS.iter().find(|slot| slot.contains(address))
        && replace_page(address)
    {
        slot.cut.store(true, Ordering::Release);
        return;
    }
    pass_on(signal, info, context);
}

/// Puts a page of zeros where `address` is.
fn replace_page(address: usize) -> bool {
    let size = PAGE_BYTES.load(Ordering::Relaxed);
    // SAFETY: the page belongs to a mapping of this module, and only its thread, which waits for this
    // handler, and others that read it can see it. `errno` is a thread's own and put back.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let page = libc::mmap(
            ptr::without_provenance_mut(address / size * size),
            size,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *errno = saved;
        page != libc::MAP_FAILED
    }
}

/// Hands the signal to its previous handler, or lets it end the process.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().filter(|previous| {
        previous.sa_sigaction != libc::SIG_DFL && previous.sa_sigaction != libc::SIG_IGN
    });
    let Some(previous) = previous else {
        // SAFETY: resets a signal of this process; the instruction is tried again and fails for good.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    let handler = previous.sa_sigaction;
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: a handler with SA_SIGINFO has this type.
        let handler: WithInfo = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: a handler without SA_SIGINFO has this type.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Several pages, whatever their size.
    const PAGES: usize = 1 << 18;

    fn file_of(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        file.write_all(&content).unwrap();
        file
    }

    #[test]
    fn bytes_are_those_of_the_file() {
        let file = file_of(3 * LARGE_PAGE + 5);
        let mapping = FileMapping::new(&file).unwrap();
        assert_eq!(mapping.len(), 3 * LARGE_PAGE + 5);
        mapping.load(0..LARGE_PAGE).unwrap();
        mapping.load(LARGE_PAGE + 1..mapping.len()).unwrap();
        let right = |range: Range<usize>| {
            let bytes = mapping.bytes(range.clone());
            bytes.len() == range.len()
                && bytes.iter().zip(range).all(|(&b, n)| b == (n % 251) as u8)
        };
        assert!(right(0..mapping.len()));
        mapping.release(0..2 * LARGE_PAGE);
        assert!(right(0..mapping.len()));
        assert!(mapping.bytes(0..mapping.len() + 1).is_empty());
        assert!(!mapping.was_cut());
    }

    #[test]
    fn a_file_that_is_cut_reads_as_zeros() {
        let file = file_of(PAGES);
        let mapping = FileMapping::new(&file).unwrap();
        mapping.load(0..mapping.len()).unwrap();
        file.set_len(100).unwrap();
        assert_eq!(mapping.bytes(99..100), [99]);
        assert!(!mapping.was_cut());
        assert!(
            mapping
                .bytes(PAGES / 2..PAGES)
                .iter()
                .all(|&byte| byte == 0)
        );
        assert!(mapping.was_cut());
    }

    #[test]
    fn loading_behind_the_end_of_a_cut_file_fails() {
        let file = file_of(PAGES);
        let mapping = FileMapping::new(&file).unwrap();
        file.set_len(0).unwrap();
        assert!(mapping.load(0..mapping.len()).is_err());
        assert!(!mapping.was_cut());
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        assert!(FileMapping::new(&file_of(0)).is_err());
        assert!(FileMapping::new(&File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn slots_come_back() {
        let file = file_of(PAGES);
        for _ in 0..2 * MOST {
            FileMapping::new(&file).unwrap();
        }
    }
}
