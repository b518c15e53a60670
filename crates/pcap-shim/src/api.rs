//! The functions of libpcap that are other ones here. They return what libpcap's do.
//!
//! # Safety
//! Of all of them is asked what pcap(3PCAP) asks of libpcap's: handles are open, pointers are to what they are said to be, and
//! one thread at a time reads a handle.
#![allow(clippy::missing_safety_doc, reason = "said above")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_uint};
use core::ptr;
use std::sync::atomic::Ordering;

use crate::handle::Handle;
use crate::handles::{
    PASSED, RING, activated, find, note_break, note_size, of, take_break, take_size,
};
use crate::real::{BREAK, Callback, Header, Pcap, Program, Stat, real};

/// Counts packets that did not go through a buffer, by what a function has returned.
fn pass(count: c_int) -> c_int {
    PASSED.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    count
}

/// `pcap_loop`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_loop(
    raw: *mut Pcap,
    limit: c_int,
    callback: Callback,
    user: *mut u8,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match of(raw) {
            Some(handle) => handle.loops(limit, callback, user),
            None => {
                let mut passing = Passing { callback, user };
                (real().loops)(raw, limit, pass_on, (&raw mut passing).cast())
            }
        }
    }
}

/// What a loop is for that gets its packets from libpcap.
struct Passing {
    callback: Callback,
    user: *mut u8,
}

/// A `pcap_handler` that counts what it passes on.
unsafe extern "C-unwind" fn pass_on(passing: *mut u8, header: *const Header, data: *const u8) {
    pass(1);
    // SAFETY: `pcap_loop` has given a `Passing`.
    let passing = unsafe { &*passing.cast::<Passing>() };
    // SAFETY: the program's function, with what libpcap has given.
    unsafe { (passing.callback)(passing.user, header, data) };
}

/// `pcap_dispatch`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dispatch(
    raw: *mut Pcap,
    limit: c_int,
    callback: Callback,
    user: *mut u8,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match of(raw) {
            Some(handle) => handle.dispatch(limit, callback, user),
            None => pass((real().dispatch)(raw, limit, callback, user)),
        }
    }
}

/// `pcap_next`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next(raw: *mut Pcap, header: *mut Header) -> *const u8 {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(handle) = of(raw) else {
            let data = (real().next)(raw, header);
            pass(c_int::from(!data.is_null()));
            return data;
        };
        let (status, its_header, data) = handle.next_one();
        if status <= 0 {
            return ptr::null();
        }
        *header = *its_header;
        data
    }
}

/// `pcap_next_ex`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next_ex(
    raw: *mut Pcap,
    header: *mut *const Header,
    data: *mut *const u8,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(handle) = of(raw) else {
            return pass((real().next_ex)(raw, header, data));
        };
        let status;
        (status, *header, *data) = handle.next_one();
        // The end of a file, which is 0 elsewhere, where no packet came in time.
        match status {
            0 if handle.is_savefile() => BREAK,
            status => status,
        }
    }
}

/// `pcap_breakloop`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_breakloop(raw: *mut Pcap) {
    if let Some(handle) = find(raw) {
        return handle.break_loop();
    }
    // It may be one that will not be known.
    // SAFETY: the caller's promise.
    unsafe { (real().breakloop)(raw) };
    note_break(raw);
    // Or one that has just become known.
    if let Some(handle) = find(raw) {
        handle.break_loop();
    }
}

/// `pcap_setnonblock`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setnonblock(
    raw: *mut Pcap,
    nonblocking: c_int,
    message: *mut c_char,
) -> c_int {
    match find(raw).and_then(Handle::nonblocking) {
        Some(said) => {
            said.store(nonblocking != 0, Ordering::Relaxed);
            0
        }
        // SAFETY: the caller's promise.
        None => unsafe { (real().set_nonblock)(raw, nonblocking, message) },
    }
}

/// `pcap_getnonblock`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_getnonblock(raw: *mut Pcap, message: *mut c_char) -> c_int {
    match find(raw).and_then(Handle::nonblocking) {
        Some(said) => c_int::from(said.load(Ordering::Relaxed)),
        // SAFETY: the caller's promise.
        None => unsafe { (real().get_nonblock)(raw, message) },
    }
}

/// `pcap_get_selectable_fd`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_get_selectable_fd(raw: *mut Pcap) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let own = (real().selectable_fd)(raw);
        let handle = if own < 0 { None } else { of(raw) };
        handle.and_then(|it| it.descriptor()).unwrap_or(own)
    }
}

/// `pcap_fileno`, whose result programs wait on as well.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_fileno(raw: *mut Pcap) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let own = (real().file_number)(raw);
        let handle = if own < 0 { None } else { of(raw) };
        let handle = handle.filter(|handle| !handle.is_savefile());
        handle.and_then(|it| it.descriptor()).unwrap_or(own)
    }
}

/// `pcap_file`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_file(raw: *mut Pcap) -> *mut libc::FILE {
    // SAFETY: the caller's promise.
    unsafe {
        let file = (real().file)(raw);
        if !file.is_null()
            && let Some(handle) = of(raw)
        {
            handle.watch_file();
        }
        file
    }
}

/// `pcap_stats`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_stats(raw: *mut Pcap, stat: *mut Stat) -> c_int {
    let handle = find(raw);
    let _gate = handle.and_then(Handle::gate);
    // SAFETY: the caller's promise.
    let status = unsafe { (real().stats)(raw, stat) };
    if status == 0
        && let Some((received, dropped)) = handle.and_then(Handle::count_ring)
    {
        // SAFETY: the caller's promise.
        let stat = unsafe { &mut *stat };
        // They wrap around, as libpcap's.
        (stat.received, stat.dropped) = (received as u32, dropped as u32);
    }
    status
}

/// `pcap_activate`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_activate(raw: *mut Pcap) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let status = (real().activate)(raw);
        let size = take_size(raw);
        if status >= 0 {
            activated(raw, size.unwrap_or(RING));
        }
        status
    }
}

/// `pcap_open_live`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_live(
    device: *const c_char,
    snap_len: c_int,
    promiscuous: c_int,
    timeout: c_int,
    message: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's promise.
    unsafe {
        let raw = (real().open_live)(device, snap_len, promiscuous, timeout, message);
        // libpcap may have called the function above.
        if !raw.is_null() && find(raw).is_none() {
            activated(raw, RING);
        }
        raw
    }
}

/// `pcap_set_buffer_size`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_buffer_size(raw: *mut Pcap, bytes: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let status = unsafe { (real().set_buffer_size)(raw, bytes) };
    if status == 0 {
        note_size(raw, bytes);
    }
    status
}

/// `pcap_setdirection`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setdirection(raw: *mut Pcap, direction: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let status = unsafe { (real().set_direction)(raw, direction) };
    if status == 0
        && let Some(handle) = find(raw)
    {
        handle.set_direction(direction);
    }
    status
}

/// `pcap_open_offline`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_offline(
    path: *const c_char,
    message: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's promise.
    by_libpcap(|| unsafe { (real().open_offline)(path, message) })
}

/// `pcap_open_offline_with_tstamp_precision`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_offline_with_tstamp_precision(
    path: *const c_char,
    precision: c_uint,
    message: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's promise.
    by_libpcap(|| unsafe { (real().open_offline_with)(path, precision, message) })
}

/// `pcap_fopen_offline`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_fopen_offline(
    file: *mut libc::FILE,
    message: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's promise.
    unsafe { by_program(|| (real().fopen_offline)(file, message)) }
}

/// `pcap_fopen_offline_with_tstamp_precision`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_fopen_offline_with_tstamp_precision(
    file: *mut libc::FILE,
    precision: c_uint,
    message: *mut c_char,
) -> *mut Pcap {
    // SAFETY: the caller's promise.
    unsafe { by_program(|| (real().fopen_offline_with)(file, precision, message)) }
}

thread_local! {
    /// A file is being opened here; by libpcap's own functions, which may call each other as a program would.
    static IS_OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Opens a file that is libpcap's.
fn by_libpcap(open: impl FnOnce() -> *mut Pcap) -> *mut Pcap {
    let before = IS_OPENING.replace(true);
    let raw = open();
    IS_OPENING.set(before);
    raw
}

/// Opens a handle of a file that the program has opened, and may move.
///
/// # Safety
/// What is returned must be null or open.
unsafe fn by_program(open: impl FnOnce() -> *mut Pcap) -> *mut Pcap {
    let raw = by_libpcap(open);
    if !raw.is_null() && !IS_OPENING.get() {
        // SAFETY: the caller's promise.
        unsafe { pcap_file(raw) };
    }
    raw
}

/// `pcap_setfilter`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setfilter(raw: *mut Pcap, program: *const Program) -> c_int {
    let handle = find(raw);
    let _gate = handle.and_then(Handle::gate);
    // SAFETY: the caller's promise.
    let status = unsafe { (real().set_filter)(raw, program) };
    if status == 0
        && let Some(handle) = handle
    {
        // SAFETY: libpcap has accepted the program.
        unsafe { handle.change_filter(program) };
    }
    status
}

/// `pcap_close`
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_close(raw: *mut Pcap) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(handle) = find(raw) {
            handle.close();
        }
        take_break(raw);
        take_size(raw);
        (real().close)(raw);
    }
}
