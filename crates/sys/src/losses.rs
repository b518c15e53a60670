//! What the captures of this process have lost, all together: for who says how far counts of packets can be wrong.

use std::sync::atomic::{AtomicU64, Ordering};

static LOST: AtomicU64 = AtomicU64::new(0);

/// A capture has lost further packets.
pub fn add(packets: u64) {
    LOST.fetch_add(packets, Ordering::Relaxed);
}

/// Packets lost so far.
pub fn all() -> u64 {
    LOST.load(Ordering::Relaxed)
}
