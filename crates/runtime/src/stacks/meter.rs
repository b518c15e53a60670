//! The cost of parts of stacks: processor time of their thread, without that of the parts after them.
//!
//! Reading the clock costs as much as filtering a batch, so one batch in [`OF`] is measured and stands for all.

use core::cell::Cell;

use flowgauge_sys::process::thread_time;

/// One batch of so many is measured.
pub(super) const OF: u64 = 16;

thread_local! {
    /// What was measured in parts within the one at work; `None`: the batch is not measured.
    static WITHIN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decides which batches of a thread are measured.
#[derive(Debug, Default)]
pub(super) struct Meter {
    batches: u64,
}

impl Meter {
    /// Does the work of a batch; of an empty one nothing is measured.
    pub(super) fn batch<T>(&mut self, is_empty: bool, work: impl FnOnce() -> T) -> T {
        if is_empty {
            return work();
        }
        self.batches += 1;
        if !self.batches.is_multiple_of(OF) {
            return work();
        }
        WITHIN.set(Some(0));
        let done = work();
        WITHIN.set(None);
        done
    }
}

/// Whether the batch at hand is measured.
#[inline]
pub(super) fn is_on() -> bool {
    WITHIN.get().is_some()
}

/// Does the work of a part, in a batch that is measured. Returns what it cost itself, for all batches that are not.
pub(super) fn cost(work: impl FnOnce()) -> u64 {
    let before = WITHIN.replace(Some(0)).unwrap_or(0);
    let began = thread_time();
    work();
    let all = thread_time().saturating_sub(began);
    let within = WITHIN.replace(Some(before + all)).unwrap_or(0);
    OF * all.saturating_sub(within)
}
