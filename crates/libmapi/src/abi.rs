//! The structures of `mapi.h`. A test compiles the header and compares sizes and offsets.

use core::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// `MAPI_STR_LENGTH`.
pub(crate) const TEXT: usize = 256;

/// `mapi_results_t`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct RawResults {
    /// A pointer, which threads hand to each other.
    pub(crate) res: AtomicPtr<c_void>,
    pub(crate) ts: c_ulonglong,
    pub(crate) size: c_int,
}

impl RawResults {
    pub(crate) fn copy(&self) -> RawResults {
        RawResults {
            res: AtomicPtr::new(self.res.load(Ordering::Relaxed)),
            ts: self.ts,
            size: self.size,
        }
    }
}

/// `struct mapipkt`; its bytes go on behind it.
#[derive(Debug)]
#[repr(C)]
pub struct RawPacket {
    pub(crate) ts: c_ulonglong,
    pub(crate) ifindex: u16,
    pub(crate) caplen: c_uint,
    pub(crate) wlen: c_uint,
    pub(crate) pkt: u8,
}

/// `mapi_flow_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawFlowInfo {
    pub(crate) uid: libc::uid_t,
    pub(crate) fd: c_int,
    pub(crate) devid: c_int,
    pub(crate) device: [c_char; TEXT],
    pub(crate) num_functions: c_uint,
    pub(crate) start: libc::time_t,
    pub(crate) end: libc::time_t,
    pub(crate) status: c_uint,
}

/// `mapi_function_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawFunctionInfo {
    pub(crate) fid: c_int,
    pub(crate) name: [c_char; TEXT],
    pub(crate) libname: [c_char; TEXT],
    pub(crate) devtype: [c_char; TEXT],
    pub(crate) pkts: c_ulonglong,
    pub(crate) passed_pkts: c_ulonglong,
    pub(crate) result_size: c_int,
}

/// `mapi_device_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawDeviceInfo {
    pub(crate) id: c_int,
    pub(crate) device: [c_char; TEXT],
    pub(crate) name: [c_char; TEXT],
    pub(crate) alias: [c_char; TEXT],
    pub(crate) description: [c_char; 1024],
    pub(crate) link_speed: c_int,
    pub(crate) mpls: c_int,
    pub(crate) vlan: c_int,
}

/// `mapi_lib_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawLibraryInfo {
    pub(crate) id: c_int,
    pub(crate) libname: [c_char; TEXT],
    pub(crate) functs: c_uint,
}

/// `mapi_libfunct_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawLibraryFunctionInfo {
    pub(crate) name: [c_char; TEXT],
    pub(crate) descr: [c_char; 1024],
    pub(crate) argdescr: [c_char; TEXT],
    pub(crate) devtype: [c_char; TEXT],
}

/// `mapi_member_info_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawMemberInfo {
    pub(crate) name: [c_char; TEXT],
    pub(crate) state: c_uint,
    pub(crate) since: libc::time_t,
    pub(crate) generation: c_uint,
    pub(crate) reason: [c_char; 512],
}

/// `struct mapi_stat`.
#[derive(Debug)]
#[repr(C)]
pub struct RawStat {
    pub(crate) ps_recv: c_uint,
    pub(crate) ps_drop: c_uint,
    pub(crate) ps_ifdrop: c_uint,
    pub(crate) hostname: [c_char; TEXT],
    pub(crate) dev: [c_char; TEXT],
}

/// `mapi_argument_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawArgument {
    pub(crate) text: *const c_char,
    pub(crate) number: c_longlong,
}

/// `mapi_function_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawFunction {
    pub(crate) name: *const c_char,
    pub(crate) descr: *const c_char,
    pub(crate) argdescr: *const c_char,
    pub(crate) required: c_uint,
    pub(crate) result_size: c_uint,
    pub(crate) create:
        Option<unsafe extern "C" fn(*const RawArgument, c_uint, *mut *mut c_void) -> c_int>,
    pub(crate) process: Option<unsafe extern "C" fn(*mut c_void, *const RawPacket) -> c_int>,
    pub(crate) result: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub(crate) destroy: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// `mapi_library_t`.
#[derive(Debug)]
#[repr(C)]
pub struct RawLibrary {
    pub(crate) version: c_uint,
    pub(crate) name: *const c_char,
    pub(crate) functions: *const RawFunction,
    pub(crate) count: c_uint,
}

/// A text in a field of so many bytes, with a zero behind it.
pub(crate) fn text<const BYTES: usize>(from: &str) -> [c_char; BYTES] {
    let mut to = [0; BYTES];
    let bytes = from.bytes().filter(|byte| *byte != 0);
    for (to, from) in to.iter_mut().take(BYTES - 1).zip(bytes) {
        *to = from as c_char;
    }
    to
}
