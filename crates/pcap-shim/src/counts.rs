//! What became of the packets of a handle.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a handle. They are written by the thread that reads, and read when the handle is closed or the process ends.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Packets that came into a buffer.
    pub(crate) gathered: AtomicU64,
    pub(crate) buffers: AtomicU64,
    /// Classes of the buffers, added up.
    pub(crate) classes: AtomicU64,
    /// How often the class changed from packet to packet as they came.
    pub(crate) runs: AtomicU64,
    /// Packets that the program got out of buffers.
    pub(crate) delivered: AtomicU64,
    /// Gathered packets that a later filter refused.
    pub(crate) refused: AtomicU64,
    /// Gathered packets of a file that the program has turned back in: it gets them once it has come to them again.
    pub(crate) again: AtomicU64,
    /// Packets that the program got from libpcap itself.
    pub(crate) passed: AtomicU64,
}

/// Adds without an atomic operation: one thread counts.
#[inline]
pub(crate) fn add(count: &AtomicU64, what: u64) {
    count.store(count.load(Relaxed) + what, Relaxed);
}

impl Counts {
    pub(crate) fn reset(&self) {
        for (_, count) in self.all() {
            count.store(0, Relaxed);
        }
    }

    fn all(&self) -> [(&'static str, &AtomicU64); 8] {
        [
            ("gathered", &self.gathered),
            ("buffers", &self.buffers),
            ("classes", &self.classes),
            ("runs", &self.runs),
            ("delivered", &self.delivered),
            ("refused", &self.refused),
            ("again", &self.again),
            ("passed", &self.passed),
        ]
    }

    /// All in one line, with what is `left` in buffers.
    pub(crate) fn line(&self, what: &str) -> String {
        let mut line = format!("flowgauge locality: {what}:");
        for (name, count) in self.all() {
            let _ = write!(line, " {name} {},", count.load(Relaxed));
        }
        let used = [&self.delivered, &self.refused, &self.again];
        let used = used.iter().map(|count| count.load(Relaxed)).sum();
        let left = self.gathered.load(Relaxed).saturating_sub(used);
        let _ = write!(line, " left {left}");
        line
    }
}
