//! Of two ways to the same result which one is taken, where it is not to be the one that is found to be faster: for
//! tests that compare them.

use std::sync::atomic::{AtomicU8, Ordering};

/// A way that the process can be made to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// Each packet of a flow is dealt with as if there were something unusual about it.
    GeneralFlows = 1,
    /// Checksums are computed without vector instructions.
    PortableSums = 2,
    /// Files are mapped, however short they are.
    MappedFiles = 4,
    /// No file is mapped, however long it is.
    ReadFiles = 8,
    /// A page on a terminal panics when it is shown.
    PagePanics = 16,
}

static FORCED: AtomicU8 = AtomicU8::new(0);

/// Makes the process take a way from now on. What has begun is not changed.
pub fn force(way: Way) {
    FORCED.fetch_or(way as u8, Ordering::Relaxed);
}

/// Whether the process has to take a way.
#[inline]
pub fn is_forced(way: Way) -> bool {
    FORCED.load(Ordering::Relaxed) & way as u8 != 0
}
