//! Sealed anonymous files and their mappings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

/// Size of a page; mappings are whole pages, and no supported machine has smaller ones.
pub(super) const PAGE: usize = 4096;

/// A new anonymous file of `bytes` bytes, all zero; its pages take no memory before they are
/// written to.
pub(super) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Not executable where the kernel knows how (Linux 6.3), and silent about it.
    let file = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, flags))?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Seals against every change of the size and of the seals; with `read_only` also against new
/// ways to write. Mappings that can write go on doing so.
pub(super) fn seal(file: &OwnedFd, read_only: bool) -> io::Result<()> {
    let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    if read_only {
        seals |= SealFlags::FUTURE_WRITE;
    }
    Ok(rustix::fs::fcntl_add_seals(file, seals)?)
}

/// Another descriptor of the file, to hand to those who only read: they can allocate no pages by way of it, and nobody but the
/// file's owner and root can open one to write. Without `/proc` it is the same one once more.
pub(super) fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    rustix::fs::fchmod(file, Mode::RUSR)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_or_else(|_| file.try_clone(), Ok)
}

/// The size of a file that came from another process, if it is sealed against changes of it.
pub(super) fn sealed_size(file: &OwnedFd) -> io::Result<usize> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "shared memory whose size is not sealed",
        ));
    }
    let size = rustix::fs::fstat(file)?.st_size;
    usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// A shared mapping of a whole file, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned and can be used and unmapped from any thread; what is in it is
// accessed by way of its owner's methods, which say how.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives out addresses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(file: impl AsFd, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let mut protection = libc::PROT_READ;
        if writable {
            protection |= libc::PROT_WRITE;
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    /// The address of `len` bytes at `offset`, if they are all inside.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: inside the mapping.
        Some(unsafe { self.start.add(offset) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned; nothing borrowed from it outlives its owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
