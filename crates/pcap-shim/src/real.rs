//! libpcap's own functions, and the types that they share with programs.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use flowgauge_sys::libpcap::Instruction;

/// `pcap_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Pcap {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    pub(crate) time: libc::timeval,
    pub(crate) captured_len: u32,
    pub(crate) wire_len: u32,
}

impl Header {
    pub(crate) const EMPTY: Header = Header {
        time: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        captured_len: 0,
        wire_len: 0,
    };
}

/// `pcap_handler`.
pub(crate) type Callback = unsafe extern "C-unwind" fn(*mut u8, *const Header, *const u8);

/// `struct bpf_program`.
#[derive(Debug)]
#[repr(C)]
pub struct Program {
    pub(crate) len: c_uint,
    pub(crate) instructions: *const Instruction,
}

/// `struct pcap_stat`.
#[derive(Debug)]
#[repr(C)]
pub struct Stat {
    pub(crate) received: c_uint,
    pub(crate) dropped: c_uint,
    interface_dropped: c_uint,
}

/// `PCAP_ERROR_BREAK`; what `pcap_next_ex` returns at the end of a file, too.
pub(crate) const BREAK: c_int = -2;

macro_rules! functions {
    ($($(#[$about:meta])* $name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the libpcap that comes next.
        pub(crate) struct Real {
            $($(#[$about])* pub(crate) $name: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)*
        }

        impl Real {
            fn find() -> Real {
                Real {
                    // SAFETY: libpcap's functions of these names have these types, since 1.5.1 (pcap(3PCAP)).
                    $($name: unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?>(next($symbol)) },)*
                }
            }
        }
    };
}

functions! {
    dispatch = c"pcap_dispatch": fn(*mut Pcap, c_int, Callback, *mut u8) -> c_int;
    breakloop = c"pcap_breakloop": fn(*mut Pcap);
    next = c"pcap_next": fn(*mut Pcap, *mut Header) -> *const u8;
    next_ex = c"pcap_next_ex": fn(*mut Pcap, *mut *const Header, *mut *const u8) -> c_int;
    loops = c"pcap_loop": fn(*mut Pcap, c_int, Callback, *mut u8) -> c_int;
    close = c"pcap_close": fn(*mut Pcap);
    stats = c"pcap_stats": fn(*mut Pcap, *mut Stat) -> c_int;
    set_filter = c"pcap_setfilter": fn(*mut Pcap, *const Program) -> c_int;
    set_nonblock = c"pcap_setnonblock": fn(*mut Pcap, c_int, *mut c_char) -> c_int;
    get_nonblock = c"pcap_getnonblock": fn(*mut Pcap, *mut c_char) -> c_int;
    selectable_fd = c"pcap_get_selectable_fd": fn(*mut Pcap) -> c_int;
    file_number = c"pcap_fileno": fn(*mut Pcap) -> c_int;
    file = c"pcap_file": fn(*mut Pcap) -> *mut libc::FILE;
    error = c"pcap_geterr": fn(*mut Pcap) -> *mut c_char;
    link = c"pcap_datalink": fn(*mut Pcap) -> c_int;
    snap_len = c"pcap_snapshot": fn(*mut Pcap) -> c_int;
    is_swapped = c"pcap_is_swapped": fn(*mut Pcap) -> c_int;
    major_version = c"pcap_major_version": fn(*mut Pcap) -> c_int;
    precision = c"pcap_get_tstamp_precision": fn(*mut Pcap) -> c_int;
    activate = c"pcap_activate": fn(*mut Pcap) -> c_int;
    open_live = c"pcap_open_live": fn(*const c_char, c_int, c_int, c_int, *mut c_char) -> *mut Pcap;
    set_buffer_size = c"pcap_set_buffer_size": fn(*mut Pcap, c_int) -> c_int;
    set_direction = c"pcap_setdirection": fn(*mut Pcap, c_int) -> c_int;
    open_offline = c"pcap_open_offline": fn(*const c_char, *mut c_char) -> *mut Pcap;
    open_offline_with = c"pcap_open_offline_with_tstamp_precision": fn(*const c_char, c_uint, *mut c_char) -> *mut Pcap;
    fopen_offline = c"pcap_fopen_offline": fn(*mut libc::FILE, *mut c_char) -> *mut Pcap;
    fopen_offline_with = c"pcap_fopen_offline_with_tstamp_precision": fn(*mut libc::FILE, c_uint, *mut c_char) -> *mut Pcap;
}

impl core::fmt::Debug for Real {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Real")
    }
}

/// libpcap's functions; from signal handlers, too, once a handle was opened.
pub(crate) fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(Real::find)
}

/// What this name means in the libraries after this one.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a terminated string.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if address.is_null() {
        crate::settings::refuse(
            &format!(
                "libpcap's {} is not to be found",
                name.to_str().unwrap_or_default()
            ),
            "link this library before libpcap (-lflowgauge_pcap -lpcap), or preload it",
        );
    }
    address
}
