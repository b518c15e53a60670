//! The library itself: what of it is used, and loading it.

use core::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::OnceLock;

use crate::dynamic::{Library, function};

/// Names the library goes by: Debian's, then the one that comes with its headers.
const NAMES: [&CStr; 2] = [c"libndpi.so.4.2", c"libndpi.so"];
/// `NDPI_API_VERSION` of the headers that the declarations here follow, those of 4.2: others have other
/// functions.
const API_VERSION: u16 = 8668;
/// `ndpi_revision` begins so.
const REVISION: &str = "4.2.";
/// What a flow's state may take, in bytes: 688 in Debian's build.
const STATE_SIZES: core::ops::RangeInclusive<usize> = 256..=16_384;

/// `struct ndpi_detection_module_struct`, opaque.
#[repr(C)]
pub(super) struct RawModule {
    _opaque: c_void,
}

/// `struct ndpi_flow_struct`, of which the library tells the size only.
#[repr(C)]
pub(super) struct RawFlow {
    _opaque: c_void,
}

/// `ndpi_protocol`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawProtocol {
    pub(super) master: u16,
    pub(super) application: u16,
    pub(super) category: c_uint,
}

/// `NDPI_PROTOCOL_BITMASK`.
#[repr(C)]
pub(super) struct RawBitmask(pub(super) [u32; 16]);

/// The functions of the library. Loaded once and never unloaded.
pub(super) struct Functions {
    revision: unsafe extern "C" fn() -> *const c_char,
    api_version: unsafe extern "C" fn() -> u16,
    flow_bytes: unsafe extern "C" fn() -> u32,
    pub(super) init: unsafe extern "C" fn(c_uint) -> *mut RawModule,
    pub(super) set_protocols: unsafe extern "C" fn(*mut RawModule, *const RawBitmask),
    pub(super) finalize: unsafe extern "C" fn(*mut RawModule),
    pub(super) exit: unsafe extern "C" fn(*mut RawModule),
    pub(super) process: unsafe extern "C" fn(
        *mut RawModule,
        *mut RawFlow,
        *const u8,
        core::ffi::c_ushort,
        u64,
    ) -> RawProtocol,
    pub(super) give_up:
        unsafe extern "C" fn(*mut RawModule, *mut RawFlow, u8, *mut u8) -> RawProtocol,
    pub(super) has_more: unsafe extern "C" fn(*mut RawModule, *mut RawFlow) -> u8,
    pub(super) free_data: unsafe extern "C" fn(*mut RawFlow),
    pub(super) name: unsafe extern "C" fn(*mut RawModule, u16) -> *const c_char,
    /// Words of eight bytes that a flow's state takes.
    pub(super) state_words: usize,
    /// The library's own name of its version.
    version: String,
}

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not installed, or the dynamic linker does not find it: its message.
    #[error("cannot load nDPI: {0}")]
    Missing(String),
    /// It lacks this function: not nDPI 4.2.
    #[error("the nDPI library has no {0}")]
    Function(&'static str),
    /// It is another version: what it says of itself.
    #[error("the nDPI library is {0}; only 4.2 is known")]
    Version(String),
    /// It could not make a detection module.
    #[error("no memory for nDPI's tables")]
    Memory,
}

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
    // in ndpi_api.h of version 4.2; none but those that tell versions and sizes, the same
    // in all versions, is called before the version was checked.
    let mut functions = unsafe {
        Functions {
            revision: function!(library, c"ndpi_revision"),
            api_version: function!(library, c"ndpi_get_api_version"),
            flow_bytes: function!(library, c"ndpi_detection_get_sizeof_ndpi_flow_struct"),
            init: function!(library, c"ndpi_init_detection_module"),
            set_protocols: function!(library, c"ndpi_set_protocol_detection_bitmask2"),
            finalize: function!(library, c"ndpi_finalize_initialization"),
            exit: function!(library, c"ndpi_exit_detection_module"),
            process: function!(library, c"ndpi_detection_process_packet"),
            give_up: function!(library, c"ndpi_detection_giveup"),
            has_more: function!(library, c"ndpi_extra_dissection_possible"),
            free_data: function!(library, c"ndpi_free_flow_data"),
            name: function!(library, c"ndpi_get_proto_name"),
            state_words: 0,
            version: String::new(),
        }
    };
    // SAFETY: they take nothing; the text is terminated and static.
    let (revision, api, bytes) = unsafe {
        (
            CStr::from_ptr((functions.revision)()).to_string_lossy(),
            (functions.api_version)(),
            (functions.flow_bytes)() as usize,
        )
    };
    if api != API_VERSION || !revision.starts_with(REVISION) || !STATE_SIZES.contains(&bytes) {
        return Err(LoadError::Version(format!(
            "{revision} (interface {api}, {bytes} bytes for a flow)"
        )));
    }
    functions.state_words = bytes.div_ceil(8);
    functions.version = revision.into_owned();
    Ok(functions)
}

/// Version text of the library, when it can be used.
///
/// # Errors
/// Why it cannot.
pub fn version() -> Result<&'static str, LoadError> {
    Ok(&functions()?.version)
}
