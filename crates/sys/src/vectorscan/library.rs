//! The library itself: what of it is used, and loading it.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::sync::OnceLock;

use crate::dynamic::{Library, function};

/// Names the library goes by: Debian's, then the one that comes with its headers.
const NAMES: [&CStr; 2] = [c"libhs.so.5", c"libhs.so"];

pub(super) const MODE_STREAM: c_uint = 2;
pub(super) const MODE_SOM_HORIZON_LARGE: c_uint = 1 << 24;
pub(super) const SUCCESS: c_int = 0;

/// `hs_database_t`, `hs_scratch_t` and `hs_stream_t`, opaque.
#[repr(C)]
pub(super) struct RawDatabase {
    _opaque: c_void,
}
#[repr(C)]
pub(super) struct RawScratch {
    _opaque: c_void,
}
#[repr(C)]
pub(super) struct RawStream {
    _opaque: c_void,
}

/// `hs_compile_error_t`.
#[repr(C)]
pub(super) struct RawCompileError {
    pub(super) message: *mut c_char,
    pub(super) expression: c_int,
}

pub(super) type OnMatch =
    extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

/// The functions of the library. Loaded once and never unloaded.
pub(super) struct Functions {
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
    pub(super) valid_platform: unsafe extern "C" fn() -> c_int,
    pub(super) compile_multi: unsafe extern "C" fn(
        *const *const c_char,
        *const c_uint,
        *const c_uint,
        c_uint,
        c_uint,
        *const c_void,
        *mut *mut RawDatabase,
        *mut *mut RawCompileError,
    ) -> c_int,
    pub(super) free_compile_error: unsafe extern "C" fn(*mut RawCompileError) -> c_int,
    pub(super) free_database: unsafe extern "C" fn(*mut RawDatabase) -> c_int,
    pub(super) stream_size: unsafe extern "C" fn(*const RawDatabase, *mut usize) -> c_int,
    pub(super) alloc_scratch:
        unsafe extern "C" fn(*const RawDatabase, *mut *mut RawScratch) -> c_int,
    pub(super) free_scratch: unsafe extern "C" fn(*mut RawScratch) -> c_int,
    pub(super) open_stream:
        unsafe extern "C" fn(*const RawDatabase, c_uint, *mut *mut RawStream) -> c_int,
    pub(super) scan_stream: unsafe extern "C" fn(
        *mut RawStream,
        *const c_char,
        c_uint,
        c_uint,
        *mut RawScratch,
        Option<OnMatch>,
        *mut c_void,
    ) -> c_int,
    pub(super) reset_stream: unsafe extern "C" fn(
        *mut RawStream,
        c_uint,
        *mut RawScratch,
        Option<OnMatch>,
        *mut c_void,
    ) -> c_int,
    pub(super) close_stream: unsafe extern "C" fn(
        *mut RawStream,
        *mut RawScratch,
        Option<OnMatch>,
        *mut c_void,
    ) -> c_int,
}

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not installed, or the dynamic linker does not find it: its message.
    Missing(String),
    /// It lacks this function: not Hyperscan 4 or later.
    Function(&'static str),
    /// It needs instructions that this processor does not have.
    Processor,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Missing(message) => write!(f, "cannot load Vectorscan: {message}"),
            LoadError::Function(name) => write!(f, "the Vectorscan library has no {name}"),
            LoadError::Processor => f.write_str("Vectorscan does not run on this processor"),
        }
    }
}

impl std::error::Error for LoadError {}

pub(super) fn functions() -> Result<&'static Functions, LoadError> {
    static LOADED: OnceLock<Result<Functions, LoadError>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

#[expect(
    clippy::missing_transmute_annotations,
    reason = "each field says the type of its function"
)]
fn load() -> Result<Functions, LoadError> {
    let library = Library::open(&NAMES).map_err(LoadError::Missing)?;
    // SAFETY: each function has the type of the field it goes to, as declared
    // in hs_compile.h and hs_runtime.h.
    let functions = unsafe {
        Functions {
            version: function!(library, c"hs_version"),
            valid_platform: function!(library, c"hs_valid_platform"),
            compile_multi: function!(library, c"hs_compile_multi"),
            free_compile_error: function!(library, c"hs_free_compile_error"),
            free_database: function!(library, c"hs_free_database"),
            stream_size: function!(library, c"hs_stream_size"),
            alloc_scratch: function!(library, c"hs_alloc_scratch"),
            free_scratch: function!(library, c"hs_free_scratch"),
            open_stream: function!(library, c"hs_open_stream"),
            scan_stream: function!(library, c"hs_scan_stream"),
            reset_stream: function!(library, c"hs_reset_stream"),
            close_stream: function!(library, c"hs_close_stream"),
        }
    };
    // SAFETY: takes nothing and only looks at the processor.
    if unsafe { (functions.valid_platform)() } != SUCCESS {
        return Err(LoadError::Processor);
    }
    Ok(functions)
}

/// Version text of the library, when it can be used.
///
/// # Errors
/// Why it cannot.
pub fn version() -> Result<String, LoadError> {
    let functions = functions()?;
    // SAFETY: returns a terminated static string.
    let text = unsafe { CStr::from_ptr((functions.version)()) };
    Ok(text.to_string_lossy().into_owned())
}
