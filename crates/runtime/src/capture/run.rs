//! From what was opened to the outcome: a driver per shard, queues to workers.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::thread;

use flowgauge_capture::live::LiveSource;
use flowgauge_capture::{Filtered, PacketSource, open_all};
use flowgauge_offload::Backends;
use flowgauge_stream::engine::{Budget, Engine, EngineStatistics, Events, MAX_APPLICATIONS};
use flowgauge_wire::Ledger;

use super::{Capture, Control, Input, Outcome, RunError, Source};
use crate::application::{Application, Health, Team};
use crate::changes::Reader;
use crate::clock::Clock;
use crate::outlet::{Lost, Outlet};
use crate::pool::divide;
use crate::threads::{self, Cores, ThreadFailure};
use crate::worker::{Seen, Worker};
use crate::workers::workers;

/// Batches between two looks at what the control may want to know.
const BATCHES_PER_LOOK: u64 = 64;

/// Everything opened.
pub(super) struct Prepared {
    sources: Vec<Source>,
    engines: Vec<Engine>,
    applications: Vec<Application>,
    workers: usize,
    /// The last worker runs in the calling thread.
    works_here: bool,
    cores: Cores,
    patient: bool,
    live: bool,
    control: Control,
}

/// What a shard leaves.
struct Part {
    ledger: Ledger,
    statistics: EngineStatistics,
    errors: Vec<flowgauge_capture::Error>,
    lost: Lost,
}

impl Prepared {
    pub(super) fn new(capture: Capture) -> Result<Prepared, RunError> {
        if capture.applications.len() > MAX_APPLICATIONS {
            return Err(RunError::TooManyApplications);
        }
        if capture.shards.max(capture.workers) > Capture::MOST_THREADS {
            return Err(RunError::TooManyThreads);
        }
        let stop = capture.control.stop_handle();
        let mut shards = capture.shards;
        let filter = capture.filter.as_str();
        let filtered = |source: Source| -> Result<Source, flowgauge_capture::Error> {
            Ok(match filter {
                "" => source,
                expression => Box::new(Filtered::new(source, expression)?),
            })
        };
        let mut offload = capture.offload;
        let (mut sources, live): (Vec<Source>, bool) = match capture.input {
            Input::Files(paths) => (vec![filtered(open_all(&paths)?)?], false),
            Input::Interface(mut config) => {
                filter.clone_into(&mut config.filter);
                let mut backends = Backends::default();
                if capture.keeps_away {
                    (backends, offload) = Backends::load(shards);
                }
                let stopped = |source: LiveSource| source.stopped_by(stop.clone());
                (backends.open(&config, shards, stopped)?, true)
            }
            Input::Sources { sources, live } => {
                let sources: Result<_, _> = sources.into_iter().map(filtered).collect();
                (sources?, live)
            }
        };
        let mut config = capture.engine;
        let is_divided = sources.len() == 1 && shards > 1;
        if is_divided {
            let options = config.shard.decode.clone();
            let divided = sources.into_iter();
            let divided = divided.flat_map(|source| divide(source, shards, options.clone()));
            sources = divided.collect();
            config.shard.flow.led_clock = true;
        }
        shards = sources.len();
        // What cannot wait is not held up by a handler: its events are handled beside the engine.
        let works_here = live && capture.workers == 0;
        let workers = if works_here { shards } else { capture.workers };
        let applications = capture.applications.len() as u64;
        let by_workers = match workers {
            0 => 0,
            _ => Worker::BYTES_PER_CONNECTION * applications,
        };
        *config.connection_bytes.get_or_insert(0) += by_workers;
        let budget = Budget::new(config.memory_bytes);
        let mut engines = Vec::with_capacity(shards);
        for _ in 0..shards {
            let mut engine = Engine::with_budget(config.clone(), budget.clone());
            for application in &capture.applications {
                let added = engine.add(application.config.clone());
                added.ok_or(RunError::TooManyApplications)?;
            }
            engines.push(engine);
        }
        // Of a source that several share no engine sees all flows.
        if !is_divided {
            for (engine, verdicts) in engines.iter_mut().zip(&offload) {
                engine.set_offload(verdicts);
            }
        }
        Ok(Prepared {
            sources,
            engines,
            applications: capture.applications,
            workers,
            works_here,
            cores: capture.cores,
            patient: capture.patient.unwrap_or(!live),
            live,
            control: capture.control,
        })
    }

    pub(super) fn run(mut self) -> Result<Outcome, RunError> {
        let shards = self.sources.len();
        let health = Health::of(self.applications.len());
        let mut outcome = Outcome::default();
        let (outlets, mut workers) = if self.workers == 0 {
            let team = |number| Team::new(&mut self.applications, number, &health);
            let teams = (0..shards).map(team).map(Handling::Here).collect();
            (teams, Vec::new())
        } else {
            self.connect(shards, &health)
        };
        let shard = Shards {
            control: &self.control,
            health: &health,
            live: self.live,
        };
        let changes = self.control.changes(shards);
        let works = self.sources.into_iter().zip(self.engines).zip(changes);
        let works = works.zip(outlets).map(|((work, changes), handling)| {
            let (source, engine) = work;
            (source, engine, changes, handling)
        });
        let cores = &self.cores;
        if shards == 1 && workers.is_empty() {
            // Nothing to do meanwhile: it runs here.
            for (source, engine, changes, handling) in works {
                let driver = Driver {
                    shard: &shard,
                    number: 0,
                    changes,
                };
                outcome.take(driver.run(source, engine, handling));
            }
            outcome.failures = health.take_failures();
            return Ok(outcome);
        }
        let own = if self.works_here { workers.pop() } else { None };
        // Of a live source each engine has the core of its worker: what one has written the other reads.
        let first_worker = if self.live { 0 } else { shards };
        let parts: Result<(), ThreadFailure> = thread::scope(|scope| {
            let stopping = |failure: ThreadFailure| {
                self.control.stop();
                failure
            };
            let worker_threads: Vec<_> = workers
                .into_iter()
                .map(|worker| {
                    let number = worker.number;
                    let name = format!("worker-{number}");
                    let work = || worker.run(Seen::default());
                    threads::start(scope, name, cores.of(first_worker + number), work)
                        .map_err(stopping)
                })
                .collect();
            let shard = &shard;
            let shard_threads: Vec<_> = works
                .enumerate()
                .map(|(number, (source, engine, changes, handling))| {
                    let driver = Driver {
                        shard,
                        number,
                        changes,
                    };
                    let work = move || driver.run(source, engine, handling);
                    let name = format!("shard-{number}");
                    threads::start(scope, name, cores.of(number), work).map_err(stopping)
                })
                .collect();
            let mut first = Ok(());
            let own = own.map(|worker| {
                let worked = catch_unwind(AssertUnwindSafe(|| worker.run(Seen::default())));
                worked.map_err(|panic| stopping(ThreadFailure::panicked("worker", &*panic)))
            });
            for thread in shard_threads {
                match thread.and_then(|thread| thread.join().map_err(stopping)) {
                    Ok(part) => outcome.take(part),
                    Err(failure) => first = first.and(Err(failure)),
                }
            }
            let joined = worker_threads.into_iter();
            let joined = joined.map(|thread| thread.and_then(threads::Running::join));
            for worked in joined.chain(own) {
                match worked {
                    Ok(statistics) => outcome.workers.push(statistics),
                    Err(failure) => first = first.and(Err(failure)),
                }
            }
            first
        });
        parts?;
        outcome.failures = health.take_failures();
        Ok(outcome)
    }

    /// Queues from each shard to each worker and back.
    fn connect(
        &mut self,
        shards: usize,
        health: &Arc<Health>,
    ) -> (Vec<Handling>, Vec<Worker<'static>>) {
        let budget = match self.engines.first() {
            Some(engine) => engine.budget().clone(),
            None => Budget::new(0),
        };
        let team = |number| Team::new(&mut self.applications, number, health);
        let teams = (0..self.workers).map(team).collect();
        let (outlets, workers) = workers(teams, shards, &budget, self.patient);
        let charged = |outlet: Outlet| Handling::Queued(Box::new(outlet.charged_to(&budget)));
        (outlets.into_iter().map(charged).collect(), workers)
    }
}

impl Outcome {
    fn take(&mut self, part: Part) {
        self.ledger.merge(&part.ledger);
        self.shards.push(part.statistics);
        self.errors.extend(part.errors);
        self.lost.add(part.lost);
    }
}

/// Where a shard's events are handled.
enum Handling {
    Here(Team<'static>),
    Queued(Box<Outlet>),
}

/// What all shards share.
struct Shards<'a> {
    control: &'a Control,
    health: &'a Health,
    live: bool,
}

/// Takes the packets of one shard through its engine.
struct Driver<'a> {
    shard: &'a Shards<'a>,
    number: usize,
    changes: Reader,
}

impl Driver<'_> {
    fn run(mut self, source: Source, mut engine: Engine, handling: Handling) -> Part {
        match handling {
            Handling::Here(mut team) => {
                let clock = Clock::start();
                engine.set_stopwatch(move || clock.now());
                let part = self.drive(source, engine, &mut team, |_, _| {}, |_| Lost::default());
                team.finish();
                part
            }
            Handling::Queued(mut outlet) => {
                let between = Outlet::between_batches;
                let mut part =
                    self.drive(source, engine, &mut *outlet, between, |outlet| outlet.lost);
                outlet.finish();
                part.lost = outlet.lost;
                part
            }
        }
    }

    fn drive<E: Events>(
        &mut self,
        mut source: Source,
        mut engine: Engine,
        events: &mut E,
        between: impl Fn(&mut E, &mut Engine),
        lost: impl Fn(&E) -> Lost,
    ) -> Part {
        let Shards {
            control,
            health,
            live,
            ..
        } = *self.shard;
        let mut errors = Vec::new();
        let mut batches = 0u64;
        // A live source ends of its own accord when it is stopped, after the packets in its ring.
        while (live || !control.is_stopped()) && !health.is_over() {
            self.changes.each(|change| change.make(&mut engine));
            let mut idle = false;
            match source.next_batch() {
                Ok(Some(batch)) => {
                    idle = batch.is_empty();
                    engine.process(&batch, events);
                }
                Ok(None) => break,
                Err(error) => errors.push(error),
            }
            between(events, &mut engine);
            batches += 1;
            if idle || batches.is_multiple_of(BATCHES_PER_LOOK) {
                let ledger = source.ledger().through(engine.ledger());
                control.publish(self.number, ledger, engine.statistics(), lost(events));
            }
        }
        engine.finish(events);
        let ledger = source.ledger().through(engine.ledger());
        let statistics = engine.statistics();
        control.publish(self.number, ledger.clone(), statistics, lost(events));
        Part {
            ledger,
            statistics,
            errors,
            lost: Lost::default(),
        }
    }
}
