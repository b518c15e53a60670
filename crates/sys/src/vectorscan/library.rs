//! The library itself: what of it is used, and loading it.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

use super::trial::is_sound;
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

/// `hs_platform_info_t`: for whom expressions are compiled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RawPlatform {
    pub(super) tune: c_uint,
    pub(super) cpu_features: c_ulonglong,
    pub(super) reserved: [c_ulonglong; 2],
}

/// `hs_compile_error_t`.
#[repr(C)]
pub(super) struct RawCompileError {
    pub(super) message: *mut c_char,
    pub(super) expression: c_int,
}

pub(super) type OnMatch =
    extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

/// Code of the library that was made for processors with certain instructions: Debian's has several, and by
/// itself takes the one for the most instructions that the processor has.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// What its functions' names begin with.
    prefix: &'static str,
    name: &'static str,
    /// `HS_CPU_FEATURES_`: what is compiled for it may need.
    cpu_features: c_ulonglong,
}

/// Instead of one whose [trial](super::trial) fails.
const VARIANTS: [Variant; 2] = [
    Variant {
        prefix: "avx2_",
        name: "AVX2",
        cpu_features: 1 << 2,
    },
    Variant {
        prefix: "corei7_",
        name: "SSE4.2",
        cpu_features: 0,
    },
];

/// The functions of the library. Loaded once and never unloaded.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    /// The code they are of, where it is not the library's own choice.
    variant: Option<Variant>,
    pub(super) version: unsafe extern "C" fn() -> *const c_char,
    pub(super) valid_platform: unsafe extern "C" fn() -> c_int,
    pub(super) compile_multi: unsafe extern "C" fn(
        *const *const c_char,
        *const c_uint,
        *const c_uint,
        c_uint,
        c_uint,
        *const RawPlatform,
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not installed, or the dynamic linker does not find it: its message.
    #[error("cannot load Vectorscan: {0}")]
    Missing(String),
    /// It lacks this function: not Hyperscan 4 or later.
    #[error("the Vectorscan library has no {0}")]
    Function(&'static str),
    /// It needs instructions that this processor does not have.
    #[error("Vectorscan does not run on this processor")]
    Processor,
    /// It could not be tried: it compiled or opened nothing, as where memory is short.
    #[error(
        "Vectorscan could not be tried: it compiles nothing here; hint: give the process more memory (ulimit -v)"
    )]
    Trial,
    /// None of its code finds what is there: its version.
    #[error(
        "Vectorscan {0} misses matches on this processor (a trial failed); hint: install 5.4.13 or later"
    )]
    Faulty(String),
}

pub(super) fn functions() -> Result<&'static Functions, LoadError> {
    static LOADED: OnceLock<Result<Functions, LoadError>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// The library as it is, or, where its own choice of code fails the trial, other code of it: that of 5.4.9
/// to 5.4.12 for AVX-512 misses matches, depending on where the bytes lie.
fn load() -> Result<Functions, LoadError> {
    let library = Library::open(&NAMES).map_err(LoadError::Missing)?;
    let functions = functions_of(&library, None)?;
    // SAFETY: takes nothing and only looks at the processor.
    if unsafe { (functions.valid_platform)() } != SUCCESS {
        return Err(LoadError::Processor);
    }
    if is_sound(functions).ok_or(LoadError::Trial)? {
        return Ok(functions);
    }
    for variant in VARIANTS.into_iter().filter(Variant::runs_here) {
        if let Ok(functions) = functions_of(&library, Some(variant))
            && is_sound(functions) == Some(true)
        {
            return Ok(functions);
        }
    }
    Err(LoadError::Faulty(functions.version()))
}

#[expect(
    clippy::missing_transmute_annotations,
    reason = "each field says the type of its function"
)]
fn functions_of(library: &Library, variant: Option<Variant>) -> Result<Functions, LoadError> {
    let prefix = variant.map_or("", |variant| variant.prefix);
    // Those of which there are several.
    let address = |name: &'static str| {
        let full = CString::new(format!("{prefix}{name}")).ok();
        full.and_then(|full| library.address(&full))
            .ok_or(LoadError::Function(name))
    };
    // SAFETY: each function has the type of the field it goes to, as declared
    // in hs_compile.h and hs_runtime.h.
    Ok(unsafe {
        Functions {
            variant,
            version: function!(library, c"hs_version"),
            valid_platform: function!(library, c"hs_valid_platform"),
            compile_multi: function!(library, c"hs_compile_multi"),
            free_compile_error: function!(library, c"hs_free_compile_error"),
            free_database: function!(library, c"hs_free_database"),
            stream_size: core::mem::transmute(address("hs_stream_size")?),
            alloc_scratch: function!(library, c"hs_alloc_scratch"),
            free_scratch: function!(library, c"hs_free_scratch"),
            open_stream: core::mem::transmute(address("hs_open_stream")?),
            scan_stream: core::mem::transmute(address("hs_scan_stream")?),
            reset_stream: core::mem::transmute(address("hs_reset_stream")?),
            close_stream: core::mem::transmute(address("hs_close_stream")?),
        }
    })
}

impl Variant {
    fn runs_here(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let runs = match self.cpu_features {
            0 => std::arch::is_x86_feature_detected!("sse4.2"),
            _ => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("bmi2")
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let runs = false;
        runs
    }
}

impl Functions {
    /// For whom expressions are to be compiled; `None` where that is this processor.
    pub(super) fn platform(&self) -> Option<RawPlatform> {
        self.variant.map(|variant| RawPlatform {
            tune: 0,
            cpu_features: variant.cpu_features,
            reserved: [0; 2],
        })
    }

    fn version(&self) -> String {
        // SAFETY: returns a terminated static string.
        let text = unsafe { CStr::from_ptr((self.version)()) };
        text.to_string_lossy().trim_end().to_owned()
    }
}

/// Version text of the library, when it can be used, and which of its code is where that is not its own
/// choice.
///
/// # Errors
/// Why it cannot.
pub fn version() -> Result<String, LoadError> {
    let functions = functions()?;
    let version = functions.version();
    Ok(match functions.variant {
        None => version,
        Some(variant) => format!(
            "{version}, its code for {}: that for this processor misses matches",
            variant.name
        ),
    })
}
