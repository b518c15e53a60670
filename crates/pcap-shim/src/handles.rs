//! Which handles are open, by `pcap_t`.

use core::ffi::c_int;
use core::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::gather::Kind;
use crate::handle::Handle;
use crate::real::{Pcap, real};
use crate::settings::{Settings, Variant};

/// The most handles that packets are gathered for at once; others are read as without this library.
const MOST: usize = 256;

/// Places of handles. They are used again and never freed, so that a signal handler may look at any of them.
static PLACES: [OnceLock<Handle>; MOST] = [const { OnceLock::new() }; MOST];

/// How many places were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Handles whose loops were to be broken before they were known.
static BROKEN: [AtomicPtr<Pcap>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

/// Sizes of rings that were asked for, by handles that are not activated yet.
static SIZES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// The size that libpcap gives a ring if none is asked for.
pub(crate) const RING: usize = 2 << 20;

/// Packets of handles that have no place.
pub(crate) static PASSED: AtomicU64 = AtomicU64::new(0);

fn places() -> impl Iterator<Item = &'static Handle> {
    let used = USED.load(Ordering::Acquire);
    PLACES.iter().take(used).filter_map(OnceLock::get)
}

/// The handle, if it is known. A signal handler may ask.
#[inline]
pub(crate) fn find(raw: *mut Pcap) -> Option<&'static Handle> {
    places().find(|handle| handle.raw() == raw)
}

/// Remembers that the handle's next loop is to be broken. A signal handler may.
pub(crate) fn note_break(raw: *mut Pcap) {
    let is_free = |place: &AtomicPtr<Pcap>| {
        let (none, order) = (ptr::null_mut(), Ordering::SeqCst);
        place.compare_exchange(none, raw, order, order).is_ok()
    };
    // Where more are to be than fit, libpcap's own note has to do.
    let _ = BROKEN.iter().any(is_free);
}

/// Whether that was so. It no longer is.
pub(crate) fn take_break(raw: *mut Pcap) -> bool {
    let (none, order) = (ptr::null_mut(), Ordering::SeqCst);
    let taken = BROKEN
        .iter()
        .filter(|place| place.compare_exchange(raw, none, order, order).is_ok());
    taken.count() > 0
}

/// Remembers the size of a ring.
pub(crate) fn note_size(raw: *mut Pcap, bytes: c_int) {
    take_size(raw);
    if let Ok(bytes) = usize::try_from(bytes) {
        SIZES.lock().push((raw.addr(), bytes));
    }
}

/// The size that was remembered. It no longer is.
pub(crate) fn take_size(raw: *mut Pcap) -> Option<usize> {
    let mut sizes = SIZES.lock();
    let at = sizes.iter().position(|(handle, _)| *handle == raw.addr())?;
    Some(sizes.swap_remove(at).1)
}

/// Prepares a handle that was just activated: the kernel gathers from now on, if it is to. The ring has about so many bytes.
///
/// # Safety
/// The handle must be open.
pub(crate) unsafe fn activated(raw: *mut Pcap, bytes: usize) {
    if Settings::get().variant == Variant::ZeroCopy {
        // SAFETY: the caller's promise.
        unsafe { open(raw, Some(bytes)) };
    }
}

/// The handle, which is prepared for gathering if it was not; `None` where that cannot be.
///
/// # Safety
/// The handle must be open.
pub(crate) unsafe fn of(raw: *mut Pcap) -> Option<&'static Handle> {
    // SAFETY: the caller's promise.
    find(raw).or_else(|| unsafe { open(raw, None) })
}

/// Takes a place for a handle. It has a ring of about so many bytes if it was just activated.
///
/// # Safety
/// The handle must be open.
#[cold]
unsafe fn open(raw: *mut Pcap, ring: Option<usize>) -> Option<&'static Handle> {
    static OPENING: Mutex<()> = Mutex::new(());

    let _guard = OPENING.lock();
    // SAFETY: the caller's promise.
    let (kind, fd) = unsafe { kind_of(raw) }?;
    let free = places().find(|handle| handle.raw().is_null());
    let place = match free {
        Some(place) => place,
        None => {
            let used = USED.load(Ordering::Relaxed);
            let place = PLACES.get(used)?;
            let new = Handle::new().ok()?;
            let place = place.get_or_init(|| new);
            if used == 0 {
                // SAFETY: the function stays where it is: the library is not unloaded while programs use it.
                unsafe { libc::atexit(tell_rest) };
            }
            USED.store(used + 1, Ordering::Release);
            place
        }
    };
    // SAFETY: the handle is open, and nobody knows the place yet.
    if !unsafe { place.open(raw, kind, fd, ring) } {
        return None;
    }
    if take_break(raw) {
        place.break_loop();
    }
    Some(place)
}

/// What kind of handle it is, and the descriptor to wait on; `None` of one that packets cannot be gathered of: it is not
/// activated, or there is nothing to wait on.
///
/// # Safety
/// The handle must be open.
unsafe fn kind_of(raw: *mut Pcap) -> Option<(Kind, c_int)> {
    // SAFETY: the handle is open.
    let file = unsafe { (real().file)(raw) };
    if file.is_null() {
        // SAFETY: the handle is open.
        let fd = unsafe { (real().selectable_fd)(raw) };
        return (fd >= 0).then_some((Kind::Live, fd));
    }
    // SAFETY: the file is open as long as its handle.
    let fd = unsafe { libc::fileno(file) };
    if fd < 0 {
        // In memory.
        return Some((Kind::File, -1));
    }
    // SAFETY: plain bits, that fstat fills.
    let mut status = unsafe { core::mem::zeroed::<libc::stat>() };
    // SAFETY: writes to `status` only.
    let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
    if known && matches!(status.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK) {
        return Some((Kind::File, -1));
    }
    // What of a pipe was read ahead is known of one C library only.
    cfg!(target_env = "gnu").then_some((Kind::Pipe, fd))
}

/// Tells the counts of handles that were not closed.
extern "C" fn tell_rest() {
    for handle in places().filter(|handle| handle.is_used()) {
        handle.tell();
    }
    let passed = PASSED.load(Ordering::Relaxed);
    if passed > 0 {
        Settings::get().counts.tell(&format!(
            "flowgauge locality: handles without buffers: passed {passed}"
        ));
    }
}
