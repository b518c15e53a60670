//! Expressions, and what they are compiled to.

use core::ffi::{CStr, c_char, c_uint};
use std::ffi::CString;
use std::fmt;

use super::library::{
    Functions, LoadError, MODE_SOM_HORIZON_LARGE, MODE_STREAM, RawCompileError, RawDatabase,
    SUCCESS, functions,
};

/// What a match of an expression means; the values are the library's `HS_FLAG_` values. There is no
/// UTF-8 mode: the library's behaviour is undefined when the data is something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpressionFlags(u32);

impl ExpressionFlags {
    /// Upper and lower case letters of ASCII are the same.
    pub const CASELESS: ExpressionFlags = ExpressionFlags(1);
    /// A dot stands for line feeds as well.
    pub const DOT_ALL: ExpressionFlags = ExpressionFlags(2);
    /// `^` and `$` match at line feeds as well.
    pub const MULTI_LINE: ExpressionFlags = ExpressionFlags(4);
    /// Matches say where they begin: the leftmost place.
    pub const START: ExpressionFlags = ExpressionFlags(256);

    /// Both.
    #[must_use]
    pub const fn and(self, other: ExpressionFlags) -> ExpressionFlags {
        ExpressionFlags(self.0 | other.0)
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: ExpressionFlags) -> ExpressionFlags {
        ExpressionFlags(self.0 & !other.0)
    }

    /// Whether all of `other` is in these.
    pub const fn contains(self, other: ExpressionFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A regular expression in PCRE's syntax, as far as the library knows it. Its number in the list
/// is what matches are reported with.
#[derive(Clone, Debug)]
pub struct Expression {
    /// Its text, which need not be UTF-8.
    pub text: Vec<u8>,
    /// What a match means.
    pub flags: ExpressionFlags,
}

/// Why expressions cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The library cannot be used.
    #[error("{0}")]
    Load(LoadError),
    /// An expression is wrong or not supported.
    #[error("{message}")]
    Expression {
        /// Its number in the list.
        index: usize,
        /// The library's message.
        message: String,
    },
    /// Something else: the library's message.
    #[error("{0}")]
    Other(String),
}

/// Compiled expressions, for streams. Read only; shared by the scanners of all threads.
pub struct Database {
    pub(super) raw: *mut RawDatabase,
    pub(super) functions: Functions,
    pub(super) stream_bytes: usize,
}

// SAFETY: a database is never changed after it was compiled; the library's documentation lets any
// number of threads scan with it at once.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("stream_bytes", &self.stream_bytes)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Compiles expressions for this machine's processor.
    ///
    /// # Errors
    /// When the library is not there, or an expression is wrong.
    pub fn compile(expressions: &[Expression]) -> Result<Database, CompileError> {
        Database::compile_with(*functions().map_err(CompileError::Load)?, expressions)
    }

    /// The same with these functions.
    pub(super) fn compile_with(
        functions: Functions,
        expressions: &[Expression],
    ) -> Result<Database, CompileError> {
        let mut texts = Vec::with_capacity(expressions.len());
        for (index, expression) in expressions.iter().enumerate() {
            texts.push(CString::new(expression.text.as_slice()).map_err(|_| {
                let message = "a zero byte in the expression".to_owned();
                CompileError::Expression { index, message }
            })?);
        }
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let flags: Vec<c_uint> = expressions.iter().map(|e| e.flags.0).collect();
        let Ok(count) = c_uint::try_from(expressions.len()) else {
            return Err(CompileError::Other("too many expressions".to_owned()));
        };
        let ids: Vec<c_uint> = (0..count).collect();
        let starts = |e: &Expression| e.flags.contains(ExpressionFlags::START);
        let mode = if expressions.iter().any(starts) {
            MODE_STREAM | MODE_SOM_HORIZON_LARGE
        } else {
            MODE_STREAM
        };
        let platform = functions.platform();
        let mut raw = core::ptr::null_mut();
        let mut error = core::ptr::null_mut();
        // SAFETY: the three arrays hold `count` elements, the texts are terminated; all outlive the
        // call, as the platform does. A null platform means this machine. Both results are writable.
        let status = unsafe {
            (functions.compile_multi)(
                pointers.as_ptr(),
                flags.as_ptr(),
                ids.as_ptr(),
                count,
                mode,
                platform
                    .as_ref()
                    .map_or(core::ptr::null(), core::ptr::from_ref),
                &raw mut raw,
                &raw mut error,
            )
        };
        if status != SUCCESS || raw.is_null() {
            return Err(compile_error(functions, error));
        }
        let mut database = Database {
            raw,
            functions,
            stream_bytes: 0,
        };
        // SAFETY: the database is complete, the result is writable.
        unsafe { (functions.stream_size)(database.raw, &raw mut database.stream_bytes) };
        Ok(database)
    }

    /// Bytes of memory that each open stream takes.
    pub fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: the database came from hs_compile_multi; scanners that use it hold an `Arc` of
        // this, so that none is left.
        unsafe { (self.functions.free_database)(self.raw) };
    }
}

fn compile_error(functions: Functions, error: *mut RawCompileError) -> CompileError {
    if error.is_null() {
        return CompileError::Other("the expressions cannot be compiled".to_owned());
    }
    // SAFETY: not null: the library's error, which holds a terminated message until it is freed.
    let (message, expression) = unsafe {
        let text = (*error).message;
        let message = if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        };
        (message, (*error).expression)
    };
    // SAFETY: it came from hs_compile_multi and is freed once.
    unsafe { (functions.free_compile_error)(error) };
    match usize::try_from(expression) {
        Ok(index) => CompileError::Expression { index, message },
        Err(_) => CompileError::Other(message),
    }
}
