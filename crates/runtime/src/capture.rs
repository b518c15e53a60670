//! A whole capture: where packets come from, which applications see their streams, on how many
//! threads.

mod control;
mod run;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::LiveConfig;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, EngineConfig, EngineStatistics, MAX_APPLICATIONS,
};
use flowgauge_stream::offload::Verdicts;
use flowgauge_wire::Ledger;

use crate::application::Application;
use crate::handlers::Handlers;
use crate::outlet::Lost;
use crate::threads::{self, Cores, ThreadFailure};
use crate::worker::WorkerStatistics;
pub use control::{Control, Progress};
use run::Prepared;

/// A source that can be given to a thread.
pub type Source = Box<dyn PacketSource + Send>;

/// Why a capture could not run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source or filter could not be opened.
    #[error(transparent)]
    Capture(#[from] flowgauge_capture::Error),
    /// A thread could not be started, or the engine itself failed.
    #[error(transparent)]
    Thread(#[from] ThreadFailure),
    /// More applications than an engine takes.
    #[error("more than {} applications", MAX_APPLICATIONS)]
    TooManyApplications,
    /// More threads with an engine, or more workers, than [`Capture::MOST_THREADS`].
    #[error("more than {} shards or workers", Capture::MOST_THREADS)]
    TooManyThreads,
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
/// # use flowgauge_generate::{Config, Preset, generate};
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
/// [workers](Capture::workers) events of files are handled on them, in the middle of the engine: that is the
/// fastest, and a file waits. With workers events go to other threads through queues, so that
/// a handler that takes its time does not hold up the capture: what finds no memory then is lost by priority. A source
/// that cannot wait has one for each shard at least, one of them in the thread that calls [`Capture::run`].
pub struct Capture {
    input: Input,
    filter: String,
    engine: EngineConfig,
    applications: Vec<Application>,
    shards: usize,
    workers: usize,
    cores: Cores,
    offload: Vec<Verdicts>,
    keeps_away: bool,
    patient: Option<bool>,
    control: Control,
}

impl Capture {
    /// The most threads with an engine, and the most workers: with more [`Capture::run`] fails.
    pub const MOST_THREADS: usize = 256;

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
            offload: Vec::new(),
            keeps_away: false,
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

    /// How the engines are configured. They share its memory, which connections are charged to, too
    /// ([`EngineConfig::connection_bytes`]).
    #[must_use]
    pub fn engine(mut self, config: EngineConfig) -> Capture {
        self.engine = config;
        self
    }

    /// Bytes of memory for connections, chunks, waiting segments, packet records and events that wait for workers together.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Capture {
        self.engine.memory_bytes = bytes;
        self
    }

    /// Divides packets among so many threads with an engine each; at least one, at most
    /// [`Capture::MOST_THREADS`].
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Capture {
        self.shards = shards.max(1);
        self
    }

    /// Handles events on so many threads of their own, at most [`Capture::MOST_THREADS`]; 0 (the default): those of files where
    /// they arise, those of a live source in the calling thread (and one more for each further shard).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Capture {
        self.workers = workers;
        self
    }

    /// Keeps each thread on a core of its own, of those this process may use: shards first, then
    /// workers; they share cores where there are more threads. Of a live source shards and workers of the same
    /// number share one.
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

    /// Where it is told what is wanted of flows: for each source that of what its packets come through.
    #[must_use]
    pub fn offload(mut self, offload: Vec<Verdicts>) -> Capture {
        self.offload = offload;
        self
    }

    /// Whether the kernel keeps away from an interface what no application wants, where it can: what is behind their cutoffs, and
    /// streams that they discarded. It counts all the same; [`EngineStatistics::withheld`] says how much that was.
    #[must_use]
    pub fn keep_away(mut self, keeps_away: bool) -> Capture {
        self.keeps_away = keeps_away;
        self
    }

    /// Whether the source waits for slow workers (a file does, an interface cannot): then nothing is
    /// lost. Without waiting, memory fills and prioritized loss decides, for a file as for an
    /// interface: chunks that find no memory are in [`Outcome::lost`]. Data events that wait take memory, too, as far as the
    /// priority of their stream goes, and so do creations and terminations when 65,536 events wait for one worker; a sixteenth of it is
    /// there for connections and creations alone. Where even that is used up streams that begin then are lost, of which no event
    /// comes. A stream whose creation was told has its end told.
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
    /// waits. Of a shared capture what this process was too slow for.
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
