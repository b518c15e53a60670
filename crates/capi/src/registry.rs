//! The open handles.
//!
//! A `scap_t *` is not an address but a token that is never reused, so that closed and invalid handles are
//! recognised without being dereferenced. A token refers to a slot in a table that a signal handler may read
//! (atomics only), and to the handle itself, protected by a lock.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::handle::Handle;

/// Handles that can be open at once in a process.
const SLOTS: usize = 4096;

/// The low bits of a token are zero, as those of a pointer would be.
const TOKEN_SHIFT: u32 = 4;

/// What a signal handler may touch.
#[derive(Debug)]
struct Slot {
    /// 0 when it is free.
    token: AtomicUsize,
    running: AtomicBool,
    /// The process whose capture runs.
    process: AtomicU32,
    /// What the runtime looks at. Made once for each slot and never freed: a signal handler may have it.
    stop: OnceLock<Arc<AtomicBool>>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        token: AtomicUsize::new(0),
        running: AtomicBool::new(false),
        process: AtomicU32::new(0),
        stop: OnceLock::new(),
    }
}; SLOTS];

/// Tokens issued so far.
static ISSUED: AtomicUsize = AtomicUsize::new(0);

static HANDLES: RwLock<BTreeMap<Token, Arc<Handle>>> = RwLock::new(BTreeMap::new());

/// The value of a `scap_t *`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) usize);

impl Token {
    fn slot(self) -> Option<&'static Slot> {
        let slot = &TABLE[(self.0 >> TOKEN_SHIFT) % SLOTS];
        (self.0 != 0 && slot.token.load(Ordering::Acquire) == self.0).then_some(slot)
    }

    /// Marks the capture as running; `false` when the handle is not open.
    pub(crate) fn set_running(self, running: bool) -> bool {
        self.slot()
            .inspect(|slot| {
                slot.process.store(std::process::id(), Ordering::Relaxed);
                slot.running.store(running, Ordering::Release);
            })
            .is_some()
    }

    /// Whether its capture runs in the process that this one was forked from. Nothing behind it may be
    /// touched then: another thread may have held a lock at that moment, which nobody will ever give back here.
    pub(crate) fn is_elsewhere(self) -> bool {
        self.slot().is_some_and(|slot| {
            slot.running.load(Ordering::Acquire)
                && slot.process.load(Ordering::Relaxed) != std::process::id()
        })
    }

    /// Asks a running capture to stop. Only atomics: a signal handler may call it.
    pub(crate) fn stop(self) -> Stopped {
        match self.slot() {
            None => Stopped::NoHandle,
            Some(slot) if !slot.running.load(Ordering::Acquire) => Stopped::NotRunning,
            // It is the parent's.
            Some(_) if self.is_elsewhere() => Stopped::NotRunning,
            Some(slot) => {
                if let Some(stop) = slot.stop.get() {
                    stop.store(true, Ordering::Release);
                }
                Stopped::Asked
            }
        }
    }
}

/// What asking to stop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    Asked,
    NotRunning,
    NoHandle,
}

/// Enters a handle that `make` makes of its token and of what stops it; `None` when there are too many.
pub(crate) fn open(make: impl FnOnce(Token, Arc<AtomicBool>) -> Handle) -> Option<Token> {
    let mut handles = HANDLES.write();
    let free = TABLE
        .iter()
        .position(|slot| slot.token.load(Ordering::Relaxed) == 0)?;
    let round = ISSUED.fetch_add(1, Ordering::Relaxed) + 1;
    let token = Token((round * SLOTS + free) << TOKEN_SHIFT);
    let slot = &TABLE[free];
    slot.running.store(false, Ordering::Relaxed);
    let stop = slot.stop.get_or_init(Arc::default);
    stop.store(false, Ordering::Relaxed);
    handles.insert(token, Arc::new(make(token, Arc::clone(stop))));
    slot.token.store(token.0, Ordering::Release);
    Some(token)
}

/// The handle of a token, if it is open, and its capture does not run [elsewhere](Token::is_elsewhere).
pub(crate) fn find(token: Token) -> Option<Arc<Handle>> {
    if token.is_elsewhere() {
        return None;
    }
    let handles = HANDLES.read();
    handles.get(&token).map(Arc::clone)
}

/// Forgets a handle.
pub(crate) fn close(token: Token) {
    let mut handles = HANDLES.write();
    let closed = handles.remove(&token);
    if let Some(slot) = token.slot() {
        slot.token.store(0, Ordering::Release);
    }
    drop(handles);
    // What it holds (an open file) goes without the lock.
    drop(closed);
}
