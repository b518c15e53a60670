//! Changes of the configuration on their way to the threads that have engines.

use core::fmt;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_stream::engine::{ApplicationConfig, ApplicationId, Engine, HostPolicies};

/// Changes that wait for a thread at most.
const MOST: usize = 1024;

/// A change, made once per engine.
#[derive(Clone)]
pub(crate) enum Change {
    /// Of what an application wants.
    Application(
        ApplicationId,
        Arc<dyn Fn(&mut ApplicationConfig) + Send + Sync>,
    ),
    /// Of [`EngineConfig::base_threshold`](flowgauge_stream::engine::EngineConfig::base_threshold).
    BaseThreshold(f64),
    /// Of [`EngineConfig::overload_cutoff`](flowgauge_stream::engine::EngineConfig::overload_cutoff).
    OverloadCutoff(Option<u64>),
    /// Of [`EngineConfig::policies`](flowgauge_stream::engine::EngineConfig::policies).
    Policies(HostPolicies),
}

impl Change {
    /// Makes it.
    pub(crate) fn make(self, engine: &mut Engine) {
        match self {
            Change::Application(application, change) => {
                engine.change(application, |wanted| change(wanted));
            }
            Change::BaseThreshold(share) => engine.set_base_threshold(share),
            Change::OverloadCutoff(cutoff) => engine.set_overload_cutoff(cutoff),
            Change::Policies(policies) => engine.set_policies(policies),
        }
    }
}

/// Changes, in their order, until each reader has taken them. Without any a look costs a load.
#[derive(Default)]
pub(crate) struct Changes {
    /// How many there have been.
    count: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    /// Number of the first of `waiting`.
    first: u64,
    waiting: VecDeque<Change>,
    /// How many each reader has taken.
    taken: Vec<u64>,
}

impl Changes {
    /// Enters one; false when too many wait.
    pub(crate) fn push(&self, change: Change) -> bool {
        let mut log = self.log();
        if log.waiting.len() >= MOST {
            return false;
        }
        log.waiting.push_back(change);
        self.count.fetch_add(1, Ordering::Release);
        true
    }

    /// So many readers take them from now on.
    pub(crate) fn register(self: &Arc<Changes>, readers: usize) -> Vec<Reader> {
        let mut log = self.log();
        let first = log.first;
        log.taken = vec![first; readers];
        drop(log);
        let reader = |number| Reader {
            changes: Arc::clone(self),
            number,
            taken: first,
        };
        (0..readers).map(reader).collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Nothing is changed in steps.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn note(&mut self, number: usize, taken: u64) {
        if let Some(place) = self.taken.get_mut(number) {
            *place = taken;
        }
        let least = self.taken.iter().copied().min().unwrap_or(0);
        while self.first < least && self.waiting.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// Takes each change once.
pub(crate) struct Reader {
    changes: Arc<Changes>,
    number: usize,
    taken: u64,
}

impl Reader {
    /// Takes those that came since the last call.
    #[inline]
    pub(crate) fn each(&mut self, act: impl FnMut(Change)) {
        if self.changes.count.load(Ordering::Acquire) != self.taken {
            self.take(act);
        }
    }

    #[cold]
    fn take(&mut self, mut act: impl FnMut(Change)) {
        let mut log = self.changes.log();
        let skip = (self.taken - log.first) as usize;
        let new: Vec<_> = log.waiting.iter().skip(skip).cloned().collect();
        self.taken += new.len() as u64;
        log.note(self.number, self.taken);
        drop(log);
        new.into_iter().for_each(&mut act);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.changes.log().note(self.number, u64::MAX);
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk_bytes(reader: &mut Reader) -> Vec<(u8, u32)> {
        let mut found = Vec::new();
        reader.each(|change| {
            let Change::Application(application, change) = change else {
                panic!("no other was made");
            };
            let mut config = ApplicationConfig::default();
            change(&mut config);
            found.push((application.0, config.chunk_bytes));
        });
        found
    }

    #[test]
    fn each_reader_takes_each_change_once() {
        let changes = Arc::new(Changes::default());
        let set = |application, bytes| {
            let change = move |config: &mut ApplicationConfig| config.chunk_bytes = bytes;
            changes.push(Change::Application(
                ApplicationId(application),
                Arc::new(change),
            ))
        };
        assert!(set(0, 1));
        let mut readers = changes.register(2);
        assert!(set(1, 2));
        assert_eq!(chunk_bytes(&mut readers[0]), [(0, 1), (1, 2)]);
        assert!(set(0, 3));
        assert_eq!(chunk_bytes(&mut readers[0]), [(0, 3)]);
        assert_eq!(chunk_bytes(&mut readers[0]), []);
        assert_eq!(chunk_bytes(&mut readers[1]), [(0, 1), (1, 2), (0, 3)]);
        assert!(changes.log().waiting.is_empty());
        // One that does not look, or has gone.
        while set(2, 4) {}
        assert_eq!(chunk_bytes(&mut readers[0]).len(), MOST);
        assert!(!set(2, 5));
        readers.pop();
        assert!(set(2, 6));
        assert_eq!(chunk_bytes(&mut readers[0]), [(2, 6)]);
    }
}
