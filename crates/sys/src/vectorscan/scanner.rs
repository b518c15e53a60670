//! Scanning streams.

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use super::database::{CompileError, Database};
use super::library::{RawScratch, RawStream, SUCCESS};
use crate::prefetch::{prefetch_address, prefetch_at};

/// What was found. Positions count from the first byte scanned since the stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Position behind the last byte.
    pub end: u64,
    /// Number of the expression.
    pub expression: u32,
    /// Position of the first byte for expressions with [`ExpressionFlags::START`](super::ExpressionFlags::START), otherwise 0.
    pub start: u64,
}

/// Scans streams with a database; one for each thread.
///
/// Streams are numbered. The memory of one that was closed is kept for the next.
pub struct Scanner {
    scratch: *mut RawScratch,
    streams: Vec<*mut RawStream>,
    free: Vec<u32>,
    found: Vec<Found>,
    database: Arc<Database>,
}

// SAFETY: scratch and streams are used by one thread at a time, as `&mut self` is; the library
// keeps nothing by thread.
unsafe impl Send for Scanner {}

impl Scanner {
    /// A scanner without streams.
    ///
    /// # Errors
    /// When there is no memory for its scratch space.
    pub fn new(database: Arc<Database>) -> Result<Scanner, CompileError> {
        let mut scratch = core::ptr::null_mut();
        // SAFETY: the database is complete, the result is writable; null asks for new space.
        let status = unsafe { (database.functions.alloc_scratch)(database.raw, &raw mut scratch) };
        if status != SUCCESS || scratch.is_null() {
            return Err(CompileError::Other(
                "no memory for the scratch space of the patterns".to_owned(),
            ));
        }
        Ok(Scanner {
            scratch,
            streams: Vec::new(),
            free: Vec::new(),
            found: Vec::new(),
            database,
        })
    }

    /// A stream of which nothing was scanned. `None` when there is no memory for it.
    #[inline]
    pub fn open(&mut self) -> Option<u32> {
        match self.free.pop() {
            Some(stream) => Some(stream),
            None => self.open_new(),
        }
    }

    #[cold]
    fn open_new(&mut self) -> Option<u32> {
        let number = u32::try_from(self.streams.len()).ok()?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the database is complete, the result is writable.
        let status =
            unsafe { (self.database.functions.open_stream)(self.database.raw, 0, &raw mut raw) };
        if status != SUCCESS || raw.is_null() {
            return None;
        }
        self.streams.push(raw);
        Some(number)
    }

    /// Scans the bytes that come next in a stream; what was found, in no particular order. Nothing
    /// is found in a stream that is not open.
    #[inline]
    pub fn scan(&mut self, stream: u32, bytes: &[u8]) -> &mut [Found] {
        self.found.clear();
        let Some(&raw) = self.streams.get(stream as usize) else {
            return &mut [];
        };
        for part in bytes.chunks(c_uint::MAX as usize) {
            // SAFETY: the stream is open and of the database that the scratch is for; neither is in
            // use. `part` is readable and its length fits. The context is `found`, which nothing
            // else looks at during the call.
            unsafe {
                (self.database.functions.scan_stream)(
                    raw,
                    part.as_ptr().cast(),
                    part.len() as c_uint,
                    0,
                    self.scratch,
                    Some(note),
                    (&raw mut self.found).cast(),
                );
            }
        }
        &mut self.found
    }

    /// Begins a stream anew, as if nothing had been scanned.
    pub fn restart(&mut self, stream: u32) {
        if let Some(&raw) = self.streams.get(stream as usize) {
            // SAFETY: the stream is open; without a callback no scratch is needed.
            unsafe {
                (self.database.functions.reset_stream)(
                    raw,
                    0,
                    core::ptr::null_mut(),
                    None,
                    core::ptr::null_mut(),
                );
            }
        }
    }

    /// Ends a stream; what is found because nothing follows. Its number may be given out again.
    pub fn close(&mut self, stream: u32) -> &mut [Found] {
        self.found.clear();
        let Some(&raw) = self.streams.get(stream as usize) else {
            return &mut [];
        };
        // SAFETY: as in `scan`.
        unsafe {
            (self.database.functions.reset_stream)(
                raw,
                0,
                self.scratch,
                Some(note),
                (&raw mut self.found).cast(),
            );
        }
        self.free.push(stream);
        &mut self.found
    }

    /// Brings where the memory of a stream is noted into the cache.
    #[inline(always)]
    pub fn prefetch(&self, stream: u32) {
        prefetch_at(&self.streams, stream as usize);
    }

    /// Brings the memory of a stream into the cache: its first two lines.
    #[inline(always)]
    pub fn prefetch_memory(&self, stream: u32) {
        if let Some(&raw) = self.streams.get(stream as usize) {
            prefetch_address(raw.cast());
            prefetch_address(raw.cast::<u8>().wrapping_add(64));
        }
    }

    /// Streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams.len() - self.free.len()
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        for &raw in &self.streams {
            // SAFETY: each stream came from hs_open_stream and is closed once; without a callback no
            // scratch is needed.
            unsafe {
                (self.database.functions.close_stream)(
                    raw,
                    core::ptr::null_mut(),
                    None,
                    core::ptr::null_mut(),
                );
            }
        }
        // SAFETY: the scratch came from hs_alloc_scratch and is not in use.
        unsafe { (self.database.functions.free_scratch)(self.scratch) };
    }
}

/// Notes a match in the list that `context` points to, and lets the scan go on.
extern "C" fn note(
    expression: c_uint,
    start: c_ulonglong,
    end: c_ulonglong,
    _flags: c_uint,
    context: *mut c_void,
) -> c_int {
    // SAFETY: `scan` and `close` pass the address of their `found`, to which no other reference is
    // used until the call is over.
    let found = unsafe { &mut *context.cast::<Vec<Found>>() };
    found.push(Found {
        end,
        expression,
        start,
    });
    0
}
