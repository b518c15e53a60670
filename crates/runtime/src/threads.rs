//! Named threads, pinned to cores.

use std::any::Any;
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use flowgauge_sys::affinity;

/// The cores that threads are pinned to, in order; or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    cpus: Vec<usize>,
}

impl Cores {
    /// Threads are not pinned.
    pub fn any() -> Cores {
        Cores::default()
    }

    /// The cores that the calling thread may run on, in order.
    pub fn allowed() -> Cores {
        Cores {
            cpus: affinity::allowed(),
        }
    }

    /// These cores, in this order.
    pub fn these(cpus: Vec<usize>) -> Cores {
        Cores { cpus }
    }

    /// Number of cores; 0 if threads are not pinned.
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// The core of thread `number`; reused in turn if there are more threads than cores.
    pub fn of(&self, number: usize) -> Option<usize> {
        self.cpus.get(number.checked_rem(self.cpus.len())?).copied()
    }
}

/// A thread that could not be started, or ended by a panic.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadFailure {
    /// The system cannot start another thread.
    #[error("cannot start thread {name}: {source}")]
    NotStarted {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The thread panicked, because of a bug or in a user's handler.
    #[error("thread {name} failed: {message}")]
    Panicked {
        /// Its name.
        name: String,
        /// The message of the panic.
        message: String,
    },
}

impl ThreadFailure {
    /// The failure for a panic's payload, as returned by [`ScopedJoinHandle::join`] or `catch_unwind`.
    pub fn panicked(name: &str, payload: &(dyn Any + Send)) -> ThreadFailure {
        let message = payload
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        ThreadFailure::Panicked {
            name: name.to_owned(),
            message: message.unwrap_or_else(|| "no message".to_owned()),
        }
    }
}

/// A running thread of a scope.
#[derive(Debug)]
pub struct Running<'scope, T> {
    name: String,
    handle: ScopedJoinHandle<'scope, T>,
}

/// Starts a thread in a scope, pinned to a core if given. It runs even if it cannot be pinned.
///
/// # Errors
/// [`ThreadFailure::NotStarted`].
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    core: Option<usize>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<Running<'scope, T>, ThreadFailure> {
    let started = Builder::new()
        .name(name.clone())
        .spawn_scoped(scope, move || {
            pin(core);
            work()
        });
    match started {
        Ok(handle) => Ok(Running { name, handle }),
        Err(source) => Err(ThreadFailure::NotStarted { name, source }),
    }
}

/// Starts a thread outside of any scope.
///
/// # Errors
/// [`ThreadFailure::NotStarted`].
pub fn start_detached<T: Send + 'static>(
    name: String,
    core: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, ThreadFailure> {
    let started = Builder::new().name(name.clone()).spawn(move || {
        pin(core);
        work()
    });
    started.map_err(|source| ThreadFailure::NotStarted { name, source })
}

fn pin(core: Option<usize>) {
    if let Some(core) = core {
        // Elsewhere is slower, not wrong.
        let _ = affinity::pin_to(core);
    }
}

impl<T> Running<'_, T> {
    /// Waits for the thread to end.
    ///
    /// # Errors
    /// [`ThreadFailure::Panicked`].
    pub fn join(self) -> Result<T, ThreadFailure> {
        let Running { name, handle } = self;
        handle
            .join()
            .map_err(|payload| ThreadFailure::panicked(&name, payload.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_round_the_cores() {
        let cores = Cores::these(vec![2, 5]);
        let of: Vec<_> = (0..4).map(|number| cores.of(number)).collect();
        assert_eq!(of, [Some(2), Some(5), Some(2), Some(5)]);
        assert_eq!(Cores::any().of(3), None);
        assert!(Cores::allowed().count() >= 1);
    }

    #[test]
    fn a_panic_has_a_name() {
        let failure = std::thread::scope(|scope| {
            let work = || -> () { panic!("out of {}", "luck") };
            let thread = start(scope, "seven".to_owned(), None, work);
            thread.unwrap().join().unwrap_err()
        });
        assert_eq!(failure.to_string(), "thread seven failed: out of luck");
    }

    #[test]
    fn a_thread_runs_on_its_core() {
        let core = Cores::allowed().of(0);
        let allowed = std::thread::scope(|scope| {
            let thread = start(scope, "pinned".to_owned(), core, affinity::allowed);
            thread.unwrap().join().unwrap()
        });
        assert_eq!(allowed, [core.unwrap()]);
    }
}
