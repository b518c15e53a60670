//! Memory for decoders, of all files of a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are left.
#[derive(Clone)]
pub(super) struct Room(Arc<AtomicU64>);

/// Bytes that are taken, until this is dropped.
pub(super) struct Taken {
    room: Room,
    bytes: u64,
}

impl Room {
    pub(super) fn new(bytes: u64) -> Room {
        Room(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes so many, if there are.
    pub(super) fn take(&self, bytes: u64) -> Option<Taken> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes)?;
        // Files of one core only: nobody else writes.
        self.0.store(left, Ordering::Relaxed);
        Some(Taken {
            room: self.clone(),
            bytes,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
