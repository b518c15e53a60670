//! Applications: their configurations and handlers, and whether the handlers still work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_stream::engine::{ApplicationConfig, ApplicationId, DataChunk, Events, StreamRef};

use crate::handlers::{Chunk, Handlers, StreamHandle};
use crate::threads::ThreadFailure;

/// Makes the handlers of an application for thread `number`.
type Factory = dyn FnMut(usize) -> Box<dyn Handlers> + Send;

/// An application before it runs.
pub(crate) struct Application {
    pub(crate) config: ApplicationConfig,
    pub(crate) make: Box<Factory>,
}

/// What threads know of all applications: which of them have failed.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failed: Vec<AtomicBool>,
    failures: Mutex<Vec<(ApplicationId, ThreadFailure)>>,
}

impl Health {
    pub(crate) fn of(applications: usize) -> Arc<Health> {
        Arc::new(Health {
            failed: (0..applications).map(|_| AtomicBool::new(false)).collect(),
            failures: Mutex::default(),
        })
    }

    pub(crate) fn has_failed(&self, application: ApplicationId) -> bool {
        self.failed
            .get(usize::from(application.0))
            .is_none_or(|failed| failed.load(Ordering::Relaxed))
    }

    /// Whether none is left to work for.
    pub(crate) fn is_over(&self) -> bool {
        !self.failed.is_empty() && self.failed.iter().all(|one| one.load(Ordering::Relaxed))
    }

    pub(crate) fn take_failures(&self) -> Vec<(ApplicationId, ThreadFailure)> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::take(&mut failures)
    }

    /// Calls a handler. One that panics takes its application down, on all threads, and nothing else.
    pub(crate) fn call(&self, application: ApplicationId, handle: impl FnOnce()) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(handle)) else {
            return;
        };
        if let Some(failed) = self.failed.get(usize::from(application.0)) {
            failed.store(true, Ordering::Relaxed);
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("capture");
        let failure = ThreadFailure::panicked(name, payload.as_ref());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push((application, failure));
    }
}

/// The handlers of all applications on one thread.
pub(crate) struct Team<'a> {
    handlers: Vec<Box<dyn Handlers + 'a>>,
    health: Arc<Health>,
    shard: usize,
}

impl<'a> Team<'a> {
    /// Those of one application.
    pub(crate) fn of_one(handlers: Box<dyn Handlers + 'a>, health: &Arc<Health>) -> Team<'a> {
        Team {
            handlers: vec![handlers],
            health: Arc::clone(health),
            shard: 0,
        }
    }

    /// Those of thread `number`; where events are handled in the engine, of shard `number`.
    pub(crate) fn new(
        applications: &mut [Application],
        number: usize,
        health: &Arc<Health>,
    ) -> Team<'a> {
        Team {
            handlers: applications
                .iter_mut()
                .map(|application| (application.make)(number) as Box<dyn Handlers + 'a>)
                .collect(),
            health: Arc::clone(health),
            shard: number,
        }
    }

    /// Calls a handler of an application that has not failed.
    #[inline]
    pub(crate) fn call(
        &mut self,
        application: ApplicationId,
        handle: impl FnOnce(&mut (dyn Handlers + 'a)),
    ) {
        if self.health.has_failed(application) {
            return;
        }
        if let Some(handlers) = self.handlers.get_mut(usize::from(application.0)) {
            self.health.call(application, || handle(handlers.as_mut()));
        }
    }

    pub(crate) fn finish(&mut self) {
        for number in 0..self.handlers.len() {
            self.call(ApplicationId(number as u8), |handlers| handlers.finish());
        }
    }
}

/// Run to completion: events are handled where they arise.
impl Events for Team<'_> {
    fn created(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let shard = self.shard;
        self.call(application, |handlers| {
            handlers.created(&mut StreamHandle::here(stream, shard));
        });
    }

    fn data(
        &mut self,
        application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let shard = self.shard;
        self.call(application, |handlers| {
            handlers.data(
                &mut StreamHandle::here(stream, shard),
                &mut Chunk::here(chunk),
            );
        });
    }

    fn terminated(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let shard = self.shard;
        self.call(application, |handlers| {
            handlers.terminated(&mut StreamHandle::here(stream, shard));
        });
    }
}
