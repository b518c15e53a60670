//! Synchronises threads that read the same packets, each from its own source.
//!
//! They read the same batches, so that their outputs for each batch meet, and all have read the same packets when
//! a run is ended: no thread reads on before the first thread has committed itself to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::queue::Bell;

/// Batches that the first thread commits itself to at once.
const AHEAD: u64 = 128;
/// It does so again when so many of them are left.
const LEFT: u64 = 96;

/// What the first thread lets the others do.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Batches that may be read.
    allowed: AtomicU64,
    is_over: AtomicBool,
    bells: Vec<Arc<Bell>>,
}

/// What a thread may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Go,
    /// Somebody else wants something first.
    Look,
    /// Nothing more is to be read.
    End,
}

impl Pace {
    /// Of threads that sleep on these bells.
    pub(super) fn new(bells: Vec<Arc<Bell>>) -> Pace {
        Pace {
            bells,
            ..Pace::default()
        }
    }

    /// The first thread has read so many batches, and goes on.
    pub(super) fn goes_on(&self, read: u64) {
        if self.allowed.load(Ordering::Relaxed) < read + LEFT {
            self.allowed.store(read + AHEAD, Ordering::Release);
            self.ring();
        }
    }

    /// Whether the first thread, which has read so many batches, has others to read.
    pub(super) fn is_committed(&self, read: u64) -> bool {
        read < self.allowed.load(Ordering::Relaxed)
    }

    /// Nothing more is read.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring();
    }

    /// Waits until a thread that has read so many batches may go on, `looks`, or all is over.
    pub(super) fn wait(&self, read: u64, bell: &Bell, mut looks: impl FnMut() -> bool) -> Leave {
        let mut look = || {
            // In this order: what was allowed before the end is read.
            let is_over = self.is_over.load(Ordering::Acquire);
            if looks() {
                Some(Leave::Look)
            } else if read < self.allowed.load(Ordering::Acquire) {
                Some(Leave::Go)
            } else {
                is_over.then_some(Leave::End)
            }
        };
        match look() {
            Some(leave) => leave,
            None => bell.wait(look),
        }
    }

    fn ring(&self) {
        self.bells.iter().for_each(|bell| bell.ring());
    }
}
