//! eBPF: what [`crate::packet`] and its users need of bpf(2) beside a loader.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::time::{ClockId, clock_gettime};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const TEST_RUN: i32 = 10;
const LINK_CREATE: i32 = 28;
/// `BPF_XDP`, a place to attach programs to.
const BEFORE_PACKETS: u32 = 37;

const ARRAY: u32 = 2;
const SOCKET_FILTER: u32 = 1;
pub(crate) const XDP: u32 = 6;

/// Loads a program for packet sockets.
///
/// # Errors
/// The system's: `EACCES` or `EINVAL` where the verifier refuses it, `EPERM` without the right.
pub fn load_socket_filter(program: &[u64]) -> io::Result<OwnedFd> {
    load(SOCKET_FILTER, program)
}

pub(crate) fn load(kind: u32, program: &[u64]) -> io::Result<OwnedFd> {
    const LICENSE: &core::ffi::CStr = c"Dual MIT/GPL";

    let len = u32::try_from(program.len());
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(kind, len.map_err(|_| io::ErrorKind::InvalidInput)?);
    attributes.0[1] = program.as_ptr() as u64;
    attributes.0[2] = LICENSE.as_ptr() as u64;
    open(PROGRAM_LOAD, &mut attributes)
}

/// Puts an XDP program before the packets of an interface, natively where its driver can: there it is until the descriptor is closed.
///
/// # Errors
/// The system's: `EBUSY` where another one is, `EPERM` without the right.
pub fn attach_xdp(program: BorrowedFd<'_>, interface: i32) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(
        program.as_raw_fd().cast_unsigned(),
        interface.cast_unsigned(),
    );
    attributes.0[1] = pair(BEFORE_PACKETS, 0);
    open(LINK_CREATE, &mut attributes)
}

/// Runs an XDP program so many times for frames that this interface received, says the kernel: what it passes the system gets.
/// They are of 14 bytes before the program has changed them.
///
/// # Errors
/// The system's: `EINVAL` where the interface's driver has nothing ready for such frames, `EPERM` without the right.
pub fn run_for_frames(program: BorrowedFd<'_>, interface: i32, times: u32) -> io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1;
    const FRAME: u32 = 14;
    let frame = [0_u8; FRAME as usize];
    // struct xdp_md: data, data_end, data_meta, the interface, its queue, the interface it leaves by.
    let context = [0, FRAME, 0, interface.cast_unsigned(), 0, 0];
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(program.as_raw_fd().cast_unsigned(), 0);
    attributes.0[1] = pair(FRAME, 0);
    attributes.0[2] = frame.as_ptr() as u64;
    attributes.0[4] = pair(times, 0);
    attributes.0[5] = pair(size_of_val(&context) as u32, 0);
    attributes.0[6] = context.as_ptr() as u64;
    attributes.0[8] = pair(LIVE_FRAMES, 0);
    call(TEST_RUN, &mut attributes).map(|_| ())
}

/// An array of one number.
pub(crate) fn create_map() -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(ARRAY, 4);
    attributes.0[1] = pair(4, 1);
    open(MAP_CREATE, &mut attributes)
}

/// Puts a program or a socket into a map of such.
///
/// # Errors
/// The system's: there is no such place in it.
pub fn put(map: BorrowedFd<'_>, place: u32, what: BorrowedFd<'_>) -> io::Result<()> {
    let what = what.as_raw_fd();
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(map.as_raw_fd().cast_unsigned(), 0);
    attributes.0[1] = (&raw const place) as u64;
    attributes.0[2] = (&raw const what) as u64;
    call(MAP_UPDATE, &mut attributes).map(|_| ())
}

/// The clock of `bpf_ktime_get_ns`, in nanoseconds.
pub fn clock() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = time.tv_sec.cast_unsigned();
    seconds * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// An array of eBPF (`BPF_F_MMAPABLE`) in memory that is shared with the kernel's programs.
#[derive(Debug)]
pub struct SharedArray {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is memory like any other, and belongs to no thread.
unsafe impl Send for SharedArray {}
// SAFETY: all access is by atomic operations.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Maps this many words of a map.
    ///
    /// # Errors
    /// The system's: the map is shorter, or cannot be mapped.
    pub fn new(map: BorrowedFd<'_>, words: usize) -> io::Result<SharedArray> {
        // SAFETY: a new mapping at an address of the system's choice touches no other memory.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                words * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<AtomicU64>()) {
            Some(mapped) if start != libc::MAP_FAILED => Ok(SharedArray {
                start: mapped,
                words,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes bytes from a word on. What does not fit is left out.
    pub fn write(&mut self, word: usize, bytes: &[u8]) {
        let room = self.words.saturating_sub(word) * 8;
        let len = bytes.len().min(room);
        // SAFETY: so many bytes are mapped from that word on, and no slice of Rust's is of them: `self` is borrowed alone. What
        // programs of the kernel's read meanwhile is theirs.
        unsafe {
            let to = self
                .start
                .as_ptr()
                .cast::<u8>()
                .add(word.min(self.words) * 8);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
        }
    }

    /// Its words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped at a page's start as long as `self` lives, readable and writable; any bits are
        // valid, and the kernel's programs change them with whole stores.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// The first 128 bytes of `union bpf_attr`; the rest is zero.
#[derive(Default)]
#[repr(C, align(8))]
struct Attributes([u64; 16]);

/// Two 32-bit fields that follow one another.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Runs a command that gives a descriptor.
fn open(command: i32, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call(command: i32, attributes: &mut Attributes) -> io::Result<i32> {
    // SAFETY: the attributes outlive the call and have the size given; pointers in them are to memory that does so, too.
    // The commands read that memory alone, and write nothing but fields of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            core::ptr::from_mut(attributes),
            size_of::<Attributes>(),
        )
    };
    match result < 0 {
        true => Err(io::Error::last_os_error()),
        false => Ok(result as i32),
    }
}
