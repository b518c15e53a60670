//! A memory bound shared by several owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of bytes to which several owners charge their memory. Clones are handles to the same budget.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
    high: AtomicU64,
    /// What of `used` is tables'.
    tables: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Budget {
        Budget {
            shared: Arc::new(Shared {
                limit,
                used: AtomicU64::new(0),
                high: AtomicU64::new(0),
                tables: AtomicU64::new(0),
            }),
        }
    }

    /// Its size in bytes.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Bytes currently charged. Never more than the limit.
    #[inline]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Maximum number of bytes charged at the same time.
    pub fn high(&self) -> u64 {
        self.shared.high.load(Ordering::Relaxed)
    }

    /// Charges `bytes` if the total then does not exceed `ceiling` (and the limit); memory above it is reserved for
    /// others.
    #[inline]
    #[must_use]
    pub fn charge(&self, bytes: u64, ceiling: u64) -> bool {
        let shared = &*self.shared;
        let before = shared.used.fetch_add(bytes, Ordering::Relaxed);
        let after = before + bytes;
        if after > shared.limit.min(ceiling) {
            shared.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        if after > shared.high.load(Ordering::Relaxed) {
            shared.high.fetch_max(after, Ordering::Relaxed);
        }
        true
    }

    /// Charges as much of `bytes` as [there is room for](Budget::room_for_tables) to tables that grow with the input.
    /// Returns the amount charged.
    pub fn charge_tables(&self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.room_for_tables());
        if !self.charge(bytes, self.limit()) {
            // Others were faster.
            return 0;
        }
        self.shared.tables.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// How much more tables may use: they leave a [`SHARE_LEFT`](Budget::SHARE_LEFT)th of the budget to other uses.
    pub fn room_for_tables(&self) -> u64 {
        let most = self.limit() - self.limit() / Budget::SHARE_LEFT;
        let unused = self.limit().saturating_sub(self.used());
        most.saturating_sub(self.tables()).min(unused)
    }

    /// Releases bytes charged to tables.
    pub fn release_tables(&self, bytes: u64) {
        self.shared.tables.fetch_sub(bytes, Ordering::Relaxed);
        self.release(bytes);
    }

    /// Bytes currently charged to tables.
    pub fn tables(&self) -> u64 {
        self.shared.tables.load(Ordering::Relaxed)
    }

    /// Tables leave one part in this many of the budget to other uses, which leave the same share of the rest to
    /// tables.
    pub const SHARE_LEFT: u64 = 16;

    /// Releases charged bytes.
    #[inline]
    pub fn release(&self, bytes: u64) {
        self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = u64::MAX;

    #[test]
    fn a_budget_is_never_exceeded() {
        let budget = Budget::new(100);
        assert!(budget.charge(60, ALL) && budget.charge(40, ALL));
        assert!(!budget.charge(1, ALL));
        assert_eq!((budget.used(), budget.high()), (100, 100));
        budget.release(60);
        assert!(budget.charge(1, ALL));
        assert_eq!((budget.used(), budget.high()), (41, 100));
    }

    #[test]
    fn tables_and_the_rest_leave_each_other_some() {
        let budget = Budget::new(1600);
        assert!(budget.charge(300, ALL));
        assert_eq!(budget.charge_tables(1000), 1000);
        assert_eq!((budget.used(), budget.tables()), (1300, 1000));
        // What is left of the budget, then of their share.
        assert_eq!(budget.charge_tables(1000), 300);
        budget.release(300);
        assert_eq!(budget.room_for_tables(), 200);
        assert_eq!(budget.charge_tables(1000), 200);
        assert_eq!(budget.charge_tables(1000), 0);
        assert!(budget.charge(100, ALL) && !budget.charge(1, ALL));
        budget.release_tables(1500);
        assert_eq!((budget.used(), budget.tables()), (100, 0));
    }

    #[test]
    fn what_is_above_a_ceiling_is_kept_for_others() {
        let budget = Budget::new(100);
        assert!(budget.charge(70, 75));
        assert!(!budget.charge(6, 75));
        assert!(budget.charge(5, 75));
        assert!(budget.charge(25, 100));
        assert!(!budget.charge(0, 75));
        assert_eq!(budget.used(), 100);
    }
}
