//! Events that a client has taken out of its ring, for threads of its own.
//!
//! The service is told one number, how far the client has read: it grows when the oldest event that was taken
//! out is given back, whatever thread does that.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, TryLockError};

use super::memory::Mapping;
use super::pool::PoolView;
use super::ring::{page, word};

/// What was taken out.
#[derive(Debug)]
pub(super) struct Lent {
    page: Arc<Mapping>,
    pool: Arc<PoolView>,
    /// Which events were given back, by their place in the ring.
    back: Box<[AtomicBool]>,
    /// The first that was not.
    first: Mutex<u64>,
}

impl Lent {
    /// All events before `first` are done with.
    pub(super) fn new(page: Arc<Mapping>, pool: Arc<PoolView>, entries: u32, first: u64) -> Lent {
        Lent {
            page,
            pool,
            back: (0..entries).map(|_| AtomicBool::new(false)).collect(),
            first: Mutex::new(first),
        }
    }

    fn place(&self, number: u64) -> Option<&AtomicBool> {
        self.back
            .get((number % self.back.len().max(1) as u64) as usize)
    }

    fn is_back(&self, number: u64, order: Ordering) -> bool {
        self.place(number).is_some_and(|place| place.load(order))
    }

    /// An event is over. Never waits: whoever has the lock sees what others gave back meanwhile.
    pub(super) fn give_back(&self, number: u64) {
        if let Some(place) = self.place(number) {
            // Release: reading is over.
            place.store(true, Ordering::Release);
        }
        loop {
            // Either the lock is free here, or who has it looks again after this.
            fence(Ordering::SeqCst);
            let mut first = match self.first.try_lock() {
                Ok(first) => first,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let before = *first;
            while self.is_back(*first, Ordering::Acquire) {
                if let Some(place) = self.place(*first) {
                    place.store(false, Ordering::Relaxed);
                }
                *first += 1;
            }
            let now = *first;
            if now != before
                && let Ok(read) = word(&self.page, page::READ)
            {
                // Release: reading is over before the service may write.
                read.store(now, Ordering::Release);
            }
            drop(first);
            fence(Ordering::SeqCst);
            if !self.is_back(now, Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// The bytes of an event, in the pool, as they were published until this is dropped.
#[derive(Debug)]
pub struct HeldBytes {
    lent: Arc<Lent>,
    number: u64,
    offset: u64,
    len: u32,
}

impl HeldBytes {
    /// `None` when they are not in the pool.
    pub(super) fn new(lent: &Arc<Lent>, number: u64, offset: u64, len: u32) -> Option<HeldBytes> {
        let held = HeldBytes {
            lent: Arc::clone(lent),
            number,
            offset,
            len,
        };
        held.find().is_some().then_some(held)
    }

    fn find(&self) -> Option<&[u8]> {
        // SAFETY: the service does not use the area again before it is told that the event was
        // read, which is when this has been dropped, or this end of the connection has closed, which
        // the view of the pool keeps open. (It also does when it dismisses a client that breaks the
        // protocol, or when its own process is not what it should be: it is trusted, and what a client
        // says on its connection is its owner's to keep to.)
        unsafe { self.lent.pool.bytes(self.offset, self.len) }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.find().unwrap_or_default()
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.lent.give_back(self.number);
    }
}
