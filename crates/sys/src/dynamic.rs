//! Libraries that are loaded when they are first asked for.

use core::ffi::{CStr, c_void};

/// A library that is loaded, and stays so.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// The first of these that the dynamic linker finds; otherwise its message about the first.
    pub(crate) fn open(names: &[&CStr]) -> Result<Library, String> {
        let mut message = String::new();
        for name in names {
            // SAFETY: the name is a terminated string; the library's initialisers are those of a
            // system library that programs are linked with as well.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if !handle.is_null() {
                return Ok(Library(handle));
            }
            if message.is_empty() {
                // SAFETY: dlopen has just failed, so that dlerror is a terminated string or null; it
                // is copied before the next call that changes it.
                let text = unsafe { libc::dlerror() };
                if !text.is_null() {
                    // SAFETY: not null, and terminated.
                    message = unsafe { CStr::from_ptr(text) }
                        .to_string_lossy()
                        .into_owned();
                }
            }
        }
        Err(message)
    }

    /// Where something of this name is, if the library has it.
    pub(crate) fn address(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and stays so; the name is a terminated string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The function of this name as the type that is expected, inside `unsafe`: that the types fit is said there.
/// Where the library has none the function around it returns the error of its `LoadError`.
macro_rules! function {
    ($library:expr, $name:literal) => {{
        let Some(address) = $library.address($name) else {
            return Err(LoadError::Function($name.to_str().unwrap_or_default()));
        };
        core::mem::transmute(address)
    }};
}
pub(crate) use function;
