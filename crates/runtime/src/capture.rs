//! A whole capture: where packets come from, which applications see their streams, on how many
//! threads.

use core::fmt;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_capture::{Filtered, PacketSource, open_all};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Budget, Engine, EngineConfig, EngineStatistics, Events,
    MAX_APPLICATIONS,
};
use flowgauge_wire::{Ledger, Place};

use crate::application::{Application, Health, Team};
use crate::changes::{Changes, Reader};
use crate::clock::Clock;
use crate::distribute::{Distributor, distribute};
use crate::handlers::Handlers;
use crate::outlet::{Lane, Load, Lost, Outlet};
use crate::queue::{Bell, queue};
use crate::threads::{self, Cores, ThreadFailure};
use crate::worker::{Inlet, Worker, WorkerStatistics};

/// Events that may wait for a worker in its queue from each shard, and orders on their way back.
const WAITING_EVENTS: usize = 256;
const WAITING_ORDERS: usize = 256;
/// Batches between two looks at what the control may want to know.
const BATCHES_PER_LOOK: u64 = 64;

/// A source that can be given to a thread.
pub type Source = Box<dyn PacketSource + Send>;

/// Why a capture could not run, or not to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// A source or filter could not be opened.
    Capture(flowgauge_capture::Error),
    /// A thread could not be started, or the engine itself failed.
    Thread(ThreadFailure),
    /// More applications than an engine takes.
    TooManyApplications,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Capture(error) => error.fmt(f),
            RunError::Thread(failure) => failure.fmt(f),
            RunError::TooManyApplications => {
                write!(f, "more than {MAX_APPLICATIONS} applications")
            }
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Capture(error) => Some(error),
            RunError::Thread(failure) => Some(failure),
            RunError::TooManyApplications => None,
        }
    }
}

impl From<flowgauge_capture::Error> for RunError {
    fn from(error: flowgauge_capture::Error) -> RunError {
        RunError::Capture(error)
    }
}

impl From<ThreadFailure> for RunError {
    fn from(failure: ThreadFailure) -> RunError {
        RunError::Thread(failure)
    }
}

/// Where packets come from.
enum Input {
    Files(Vec<PathBuf>),
    Interface(Box<LiveConfig>),
    Sources { sources: Vec<Source>, live: bool },
}

/// A capture being put together, and run.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use flowgauge_runtime::{Capture, Closures};
/// use flowgauge_stream::engine::ApplicationConfig;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("web.pcap");
/// # use flowgauge_capture::generate::{Config, Preset, generate};
/// # let config = Config::new(Preset::Small).with_flows(50);
/// # generate(&config, std::fs::File::create(&path)?)?;
///
/// let bytes = Arc::new(AtomicU64::new(0));
/// let sum = Arc::clone(&bytes);
/// let search = Closures::new().on_data(move |stream, chunk| {
///     sum.fetch_add(chunk.bytes().len() as u64, Ordering::Relaxed);
///     if chunk.bytes().starts_with(b"SSH-") {
///         stream.discard();
///     }
/// });
/// let outcome = Capture::file(&path)
///     .filter("tcp or udp")
///     .workers(2)
///     .application(ApplicationConfig::default(), move |_thread| search.clone())
///     .run()?;
/// assert!(outcome.ledger.is_balanced());
/// assert_eq!(outcome.total().captured().bytes, bytes.load(Ordering::Relaxed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Threads
/// [`Capture::shards`] are threads with an engine each: packets are divided among them by flow. Without
/// [workers](Capture::workers) events are handled on them, in the middle of the engine: that is the
/// fastest where handling keeps up. With workers events go to other threads through queues, so that
/// a handler that takes its time does not hold up the capture.
pub struct Capture {
    input: Input,
    filter: String,
    engine: EngineConfig,
    applications: Vec<Application>,
    shards: usize,
    workers: usize,
    cores: Cores,
    patient: Option<bool>,
    control: Control,
}

impl Capture {
    /// From a capture file; `-` is standard input.
    pub fn file(path: impl AsRef<Path>) -> Capture {
        Capture::files([path])
    }

    /// From several capture files, or globs, merged by time.
    pub fn files<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Capture {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        Capture::new(Input::Files(paths.collect()))
    }

    /// From a network interface, or from all with `any`.
    pub fn interface(name: &str) -> Capture {
        Capture::live(LiveConfig::new(name))
    }

    /// From a network interface, with all its settings.
    pub fn live(config: LiveConfig) -> Capture {
        Capture::new(Input::Interface(Box::new(config)))
    }

    /// From a source; `live` says that it cannot wait.
    pub fn source(source: impl PacketSource + Send + 'static, live: bool) -> Capture {
        Capture::sources(vec![Box::new(source)], live)
    }

    /// From sources that were divided by flow elsewhere: one for each shard.
    pub fn sources(sources: Vec<Source>, live: bool) -> Capture {
        let shards = sources.len().max(1);
        Capture::new(Input::Sources { sources, live }).shards(shards)
    }

    fn new(input: Input) -> Capture {
        Capture {
            input,
            filter: String::new(),
            engine: EngineConfig::default(),
            applications: Vec::new(),
            shards: 1,
            workers: 0,
            cores: Cores::any(),
            patient: None,
            control: Control::default(),
        }
    }

    /// Only packets that match, in pcap-filter(7) syntax; in the kernel when live.
    #[must_use]
    pub fn filter(mut self, expression: &str) -> Capture {
        expression.clone_into(&mut self.filter);
        self
    }

    /// How the engines are configured. They share its memory, and the flow table's limit is divided
    /// among them.
    #[must_use]
    pub fn engine(mut self, config: EngineConfig) -> Capture {
        self.engine = config;
        self
    }

    /// Bytes of memory for chunks, waiting segments and packet records together.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Capture {
        self.engine.memory_bytes = bytes;
        self
    }

    /// Divides packets among so many threads with an engine each; at least one, at most 256.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Capture {
        self.shards = shards.clamp(1, 256);
        self
    }

    /// Handles events on so many threads of their own, at most 256; 0 (the default): where they
    /// arise.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Capture {
        self.workers = workers.min(256);
        self
    }

    /// Keeps each thread on a core of its own, of those this process may use: shards first, then
    /// workers, then the reader; they share cores where there are more threads.
    #[must_use]
    pub fn pin(self, pin: bool) -> Capture {
        self.cores(if pin { Cores::allowed() } else { Cores::any() })
    }

    /// Keeps threads on these cores.
    #[must_use]
    pub fn cores(mut self, cores: Cores) -> Capture {
        self.cores = cores;
        self
    }

    /// Whether the source waits for slow workers (a file does, an interface cannot): then nothing is
    /// lost. Without waiting, memory fills and prioritized loss decides, for a file as for an
    /// interface: chunks that find no memory are in [`Outcome::lost`]. Creations and ends are never
    /// lost; with 65,536 events waiting for one worker the capture waits, too, and what the kernel then
    /// drops is in the ledger.
    #[must_use]
    pub fn wait_for_workers(mut self, wait: bool) -> Capture {
        self.patient = Some(wait);
        self
    }

    /// Adds an application. `make` makes its handlers for each thread that handles events: shards, or
    /// workers where there are any.
    #[must_use]
    pub fn application<H: Handlers + 'static>(
        mut self,
        config: ApplicationConfig,
        mut make: impl FnMut(usize) -> H + Send + 'static,
    ) -> Capture {
        self.applications.push(Application {
            config,
            make: Box::new(move |thread| Box::new(make(thread))),
        });
        self
    }

    /// A handle to stop the capture from another thread, or to see how it goes.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The same capture, stopped by `control`.
    #[must_use]
    pub fn controlled_by(mut self, control: Control) -> Capture {
        self.control = control;
        self
    }

    /// Runs to the end of input, or until it is stopped.
    ///
    /// # Errors
    /// When something cannot be opened or a thread not be started. What is damaged on the way, and a
    /// handler that panics, is in the [`Outcome`].
    pub fn run(self) -> Result<Outcome, RunError> {
        Prepared::new(self)?.run()
    }

    /// Opens everything and runs on a thread of its own.
    ///
    /// # Errors
    /// As [`Capture::run`].
    pub fn start(self) -> Result<Running, RunError> {
        let control = self.control();
        let prepared = Prepared::new(self)?;
        let thread = threads::start_detached("capture".to_owned(), None, || prepared.run())?;
        Ok(Running { control, thread })
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("applications", &self.applications)
            .field("shards", &self.shards)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// A capture that runs on a thread of its own.
#[derive(Debug)]
pub struct Running {
    control: Control,
    thread: JoinHandle<Result<Outcome, RunError>>,
}

impl Running {
    /// Stops it: what was captured is still handled. [`Running::join`] waits for that.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Its counters so far.
    pub fn progress(&self) -> Progress {
        self.control.progress()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Capture::run`].
    pub fn join(self) -> Result<Outcome, RunError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(payload) => Err(ThreadFailure::panicked("capture", payload.as_ref()).into()),
        }
    }
}

/// Stops a capture and tells how it goes, from any thread. Cloning gives another handle.
#[derive(Clone, Debug, Default)]
pub struct Control {
    stop: Arc<AtomicBool>,
    changes: Arc<Changes>,
    shards: Arc<Mutex<Vec<ShardProgress>>>,
}

#[derive(Clone, Debug, Default)]
struct ShardProgress {
    ledger: Ledger,
    statistics: EngineStatistics,
}

/// Counters of a capture under way; some packets behind.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Where the packets went.
    pub ledger: Ledger,
    /// Counters of the engines, added up; without those of the layers below.
    pub statistics: EngineStatistics,
}

impl Control {
    /// A control that stops when `flag` is set, as signal handlers do.
    pub fn with_flag(flag: Arc<AtomicBool>) -> Control {
        Control {
            stop: flag,
            ..Control::default()
        }
    }

    /// Stops the capture: files at the next batch, interfaces once their rings are empty. All that was
    /// captured is still handled.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Changes what an application wants, counted in the order of [`Capture::application`], from
    /// the next batch of packets on: `change` is called once for each engine. Its inactivity timeout
    /// holds for all streams, everything else for those that begin from then on. False when too many
    /// changes wait.
    ///
    /// In a shared capture filters and classes stay as they are.
    ///
    /// ```
    /// # use flowgauge_runtime::Control;
    /// # use flowgauge_stream::engine::{ApplicationId, Cutoff};
    /// # let control = Control::default();
    /// // From now on no more than the beginnings.
    /// control.change(ApplicationId(0), |wanted| wanted.cutoff.default = Cutoff(10_000));
    /// ```
    pub fn change(
        &self,
        application: ApplicationId,
        change: impl Fn(&mut ApplicationConfig) + Send + Sync + 'static,
    ) -> bool {
        self.changes.push(application, Arc::new(change))
    }

    /// Takes the changes, with so many threads.
    pub(crate) fn changes(&self, readers: usize) -> Vec<Reader> {
        self.changes.register(readers)
    }

    /// Counters so far.
    pub fn progress(&self) -> Progress {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = Progress::default();
        for shard in shards.iter() {
            progress.ledger.merge(&shard.ledger);
            progress.statistics.add(&shard.statistics);
        }
        progress
    }

    pub(crate) fn publish(&self, number: usize, ledger: Ledger, statistics: EngineStatistics) {
        let mut shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if shards.len() <= number {
            shards.resize_with(number + 1, ShardProgress::default);
        }
        if let Some(place) = shards.get_mut(number) {
            *place = ShardProgress { ledger, statistics };
        }
    }
}

/// How a capture ended.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// Where every packet went.
    pub ledger: Ledger,
    /// Counters of each engine.
    pub shards: Vec<EngineStatistics>,
    /// What each worker has done.
    pub workers: Vec<WorkerStatistics>,
    /// Chunks that workers were to get but for which there was no memory; none where the source
    /// waits.
    pub lost: Lost,
    /// What was damaged or failed; the run went on with what was readable.
    pub errors: Vec<flowgauge_capture::Error>,
    /// Applications whose handlers panicked. They got no further events; the others did.
    pub failures: Vec<(ApplicationId, ThreadFailure)>,
}

impl Outcome {
    /// Counters of all engines together; without those of the layers below
    /// ([`EngineStatistics::shard`] is empty).
    pub fn total(&self) -> EngineStatistics {
        let mut total = EngineStatistics::default();
        self.shards.iter().for_each(|shard| total.add(shard));
        total
    }
}

/// A source's ledger with what the engine behind it refused.
pub fn with_refusals(source: Ledger, engine: &Ledger) -> Ledger {
    let mut ledger = source;
    let mut refused_bytes = ledger
        .delivered_bytes
        .saturating_sub(engine.delivered_bytes);
    for place in Place::ALL {
        let packets = engine.at(place);
        if packets > 0 {
            ledger.refuse(place, packets, core::mem::take(&mut refused_bytes));
        }
    }
    ledger
}

/// Everything opened.
struct Prepared {
    sources: Vec<Source>,
    reader: Option<Distributor<Source>>,
    engines: Vec<Engine>,
    applications: Vec<Application>,
    workers: usize,
    cores: Cores,
    patient: bool,
    live: bool,
    base: u64,
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
    fn new(capture: Capture) -> Result<Prepared, RunError> {
        if capture.applications.len() > MAX_APPLICATIONS {
            return Err(RunError::TooManyApplications);
        }
        let stop = StopHandle::from(Arc::clone(&capture.control.stop));
        let mut shards = capture.shards;
        let filter = capture.filter.as_str();
        let filtered = |source: Source| -> Result<Source, flowgauge_capture::Error> {
            Ok(match filter {
                "" => source,
                expression => Box::new(Filtered::new(source, expression)?),
            })
        };
        let mut prompt = false;
        let (mut sources, live): (Vec<Source>, bool) = match capture.input {
            Input::Files(paths) => {
                prompt = !paths.iter().all(|path| path.is_file());
                (vec![filtered(open_all(&paths)?)?], false)
            }
            Input::Interface(mut config) => {
                filter.clone_into(&mut config.filter);
                let group = LiveSource::open_group(&config, shards)?;
                let sources = group
                    .into_iter()
                    .map(|source| Box::new(source.stopped_by(stop.clone())) as Source);
                (sources.collect(), true)
            }
            Input::Sources { sources, live } => {
                prompt = live;
                let sources: Result<_, _> = sources.into_iter().map(filtered).collect();
                (sources?, live)
            }
        };
        let mut reader = None;
        if sources.len() == 1 && shards > 1 {
            let decode = capture.engine.shard.decode.clone();
            if let Some(source) = sources.pop() {
                let (distributor, shares) = distribute(source, shards, decode);
                reader = Some(distributor.prompt(prompt));
                sources = shares
                    .into_iter()
                    .map(|one| Box::new(one) as Source)
                    .collect();
            }
        }
        shards = sources.len();
        let mut config = capture.engine;
        config.shard.flow.led_clock |= reader.is_some();
        config.shard.flow.max_flows = config.shard.flow.max_flows.div_ceil(shards as u32).max(1);
        let budget = Budget::new(config.memory_bytes);
        let base = (config.memory_bytes as f64 * config.base_threshold.clamp(0.0, 1.0)) as u64;
        let mut engines = Vec::with_capacity(shards);
        for _ in 0..shards {
            let mut engine = Engine::with_budget(config.clone(), budget.clone());
            for application in &capture.applications {
                let added = engine.add(application.config.clone());
                added.ok_or(RunError::TooManyApplications)?;
            }
            engines.push(engine);
        }
        Ok(Prepared {
            sources,
            reader,
            engines,
            applications: capture.applications,
            workers: capture.workers,
            cores: capture.cores,
            patient: capture.patient.unwrap_or(!live),
            live,
            base,
            control: capture.control,
        })
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        let shards = self.sources.len();
        let health = Health::of(self.applications.len());
        let mut outcome = Outcome::default();
        let (outlets, workers) = if self.workers == 0 {
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
            base: self.base,
        };
        let changes = self.control.changes(shards);
        let works = self.sources.into_iter().zip(self.engines).zip(changes);
        let works = works.zip(outlets).map(|((work, changes), handling)| {
            let (source, engine) = work;
            (source, engine, changes, handling)
        });
        let cores = &self.cores;
        if shards == 1 && workers.is_empty() && self.reader.is_none() {
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
        let parts: Result<(), ThreadFailure> = thread::scope(|scope| {
            let stopping = |failure| {
                self.control.stop();
                failure
            };
            let worker_threads: Vec<_> = workers
                .into_iter()
                .map(|worker| {
                    let number = worker.number;
                    let name = format!("worker-{number}");
                    let work = || worker.run();
                    threads::start(scope, name, cores.of(shards + number), work).map_err(stopping)
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
            let reader = self.reader.map(|reader| {
                let core = cores.of(shards + worker_threads.len());
                let read = || reader.run(|| self.control.is_stopped() || health.is_over());
                threads::start(scope, "reader".to_owned(), core, read).map_err(stopping)
            });
            let mut first = Ok(());
            for thread in shard_threads {
                match thread.and_then(|thread| thread.join().map_err(stopping)) {
                    Ok(part) => outcome.take(part),
                    Err(failure) => first = first.and(Err(failure)),
                }
            }
            if let Some(reader) = reader {
                match reader.and_then(threads::Running::join) {
                    Ok(reading) => {
                        outcome.ledger.merge(&reading.ledger);
                        outcome.errors.extend(reading.errors);
                    }
                    Err(failure) => first = first.and(Err(failure)),
                }
            }
            for thread in worker_threads {
                match thread.and_then(threads::Running::join) {
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
    fn connect(&mut self, shards: usize, health: &Arc<Health>) -> (Vec<Handling>, Vec<Worker>) {
        let budget = match self.engines.first() {
            Some(engine) => engine.budget().clone(),
            None => Budget::new(0),
        };
        let loads: Arc<[Load]> = (0..self.workers).map(|_| Load::default()).collect();
        let clock = Clock::start();
        let mut workers: Vec<Worker> = (0..self.workers)
            .map(|number| Worker {
                number,
                inlets: Vec::with_capacity(shards),
                bell: Bell::new(),
                team: Team::new(&mut self.applications, number, health),
                loads: Arc::clone(&loads),
                clock,
                budget: budget.clone(),
                joined: Vec::new(),
            })
            .collect();
        let outlets = (0..shards)
            .map(|_| {
                let bell = Bell::new();
                let lanes = workers
                    .iter_mut()
                    .map(|worker| {
                        let (queue_in, queue_out) = queue(WAITING_EVENTS, &bell, &worker.bell);
                        // A shard looks at its orders between batches; nobody waits for it to.
                        let aside = Bell::new();
                        let (orders_in, orders_out) = queue(WAITING_ORDERS, &aside, &aside);
                        worker.inlets.push(Inlet {
                            queue: queue_out,
                            orders: orders_in,
                            aside: VecDeque::new(),
                            shard: Arc::clone(&bell),
                        });
                        Lane {
                            queue: queue_in,
                            orders: orders_out,
                            aside: VecDeque::new(),
                        }
                    })
                    .collect();
                Handling::Queued(Outlet::new(lanes, Arc::clone(&loads), bell, self.patient))
            })
            .collect();
        (outlets, workers)
    }
}

impl Outcome {
    fn take(&mut self, part: Part) {
        self.ledger.merge(&part.ledger);
        self.shards.push(part.statistics);
        self.errors.extend(part.errors);
        self.lost.chunks += part.lost.chunks;
        self.lost.bytes += part.lost.bytes;
    }
}

/// Where a shard's events are handled.
enum Handling {
    Here(Team),
    Queued(Outlet),
}

/// What all shards share.
struct Shards<'a> {
    control: &'a Control,
    health: &'a Health,
    live: bool,
    base: u64,
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
                let part = self.drive(source, engine, &mut team, |_, _| {});
                team.finish();
                part
            }
            Handling::Queued(mut outlet) => {
                let base = self.shard.base;
                let between = |outlet: &mut Outlet, engine: &mut Engine| {
                    outlet.between_batches(engine, base);
                };
                let mut part = self.drive(source, engine, &mut outlet, between);
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
            self.changes.each(|application, change| {
                engine.change(application, |wanted| change(wanted));
            });
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
                let ledger = with_refusals(source.ledger(), engine.ledger());
                control.publish(self.number, ledger, engine.statistics());
            }
        }
        engine.finish(events);
        let ledger = with_refusals(source.ledger(), engine.ledger());
        let statistics = engine.statistics();
        control.publish(self.number, ledger.clone(), statistics);
        Part {
            ledger,
            statistics,
            errors,
            lost: Lost::default(),
        }
    }
}
