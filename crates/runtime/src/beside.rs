//! Events handled on a separate thread, for engines that are components of stacks.

use std::sync::Arc;
use std::thread::JoinHandle;

use flowgauge_stream::engine::{Budget, Engine};
use flowgauge_wire::Batch;

use crate::application::{Health, Team};
use crate::handlers::Handlers;
use crate::outlet::{Lost, Outlet};
use crate::queue::{Bell, Receiver, Sender, queue};
use crate::threads::{ThreadFailure, start_detached};
use crate::worker::{Seen, Worker, WorkerStatistics};
use crate::workers::workers;

/// Results that may wait for the thread of the engine.
const WAITING_RESULTS: usize = 256;

/// Handles the events of one application of an engine on a separate thread, like the workers of a
/// [`Capture`](crate::Capture). The engine never waits for the thread: events for which the engine's memory has no room
/// are lost by priority, and counted. Handlers return results of type `T`.
pub struct Beside<T> {
    outlet: Box<Outlet>,
    results: Receiver<T>,
    health: Arc<Health>,
    thread: JoinHandle<WorkerStatistics>,
}

impl<T: Send + 'static> Beside<T> {
    /// Memory in bytes for a connection's streams on the thread.
    pub const BYTES_PER_CONNECTION: u64 = Worker::BYTES_PER_CONNECTION;

    /// Starts the thread, on the cores of the calling one. `make` creates the handlers, which send their results
    /// through its argument; they must not wait for room before [`Handlers::finish`].
    ///
    /// # Errors
    /// [`ThreadFailure::NotStarted`].
    pub fn start<H: Handlers + 'static>(
        name: &str,
        budget: &Budget,
        make: impl FnOnce(Sender<T>) -> H,
    ) -> Result<Beside<T>, ThreadFailure> {
        let health = Health::of(1);
        let (sender, results) = queue(WAITING_RESULTS, &Bell::new(), &Bell::new());
        let teams = vec![Team::of_one(Box::new(make(sender)), &health)];
        let (mut outlets, mut workers) = workers(teams, 1, budget, false);
        let (outlet, worker) = (outlets.remove(0), workers.remove(0));
        let work = move || worker.run(Seen::default());
        Ok(Beside {
            outlet: Box::new(outlet.charged_to(budget)),
            results,
            health,
            thread: start_detached(name.to_owned(), None, work)?,
        })
    }

    /// Processes a batch with the engine, and passes the results of events so far to `give`.
    pub fn process(&mut self, engine: &mut Engine, batch: &Batch<'_>, give: impl FnMut(T)) {
        engine.process(batch, &mut *self.outlet);
        self.outlet.between_batches(engine);
        core::iter::from_fn(|| self.results.try_receive()).for_each(give);
    }

    /// Ends all streams at the end of the input, and waits until all events are handled.
    ///
    /// # Errors
    /// The panic that ended the handlers.
    pub fn finish(
        mut self,
        engine: &mut Engine,
        mut give: impl FnMut(T),
    ) -> Result<Lost, ThreadFailure> {
        engine.finish(&mut *self.outlet);
        self.outlet.finish();
        let lost = self.outlet.lost;
        drop(self.outlet);
        while let Some(result) = self.results.receive() {
            give(result);
        }
        let joined = self.thread.join();
        joined.map_err(|panic| ThreadFailure::panicked("handlers", panic.as_ref()))?;
        let failures = self.health.take_failures();
        match failures.into_iter().next() {
            Some((_, failure)) => Err(failure),
            None => Ok(lost),
        }
    }

    /// Events lost so far.
    pub fn lost(&self) -> Lost {
        self.outlet.lost
    }

    /// The panic that ended the handlers; returned once.
    pub fn failure(&self) -> Option<ThreadFailure> {
        if !self.health.is_over() {
            return None;
        }
        let failures = self.health.take_failures();
        failures.into_iter().next().map(|(_, failure)| failure)
    }
}
