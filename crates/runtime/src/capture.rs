//! A capture: its input, its applications and its threads.

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

/// A source that can be sent to a thread.
pub type Source = Box<dyn PacketSource + Send>;

/// Why a capture could not start, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source or filter could not be opened.
    #[error(transparent)]
    Capture(#[from] flowgauge_capture::Error),
    /// A thread could not be started, or the engine failed.
    #[error(transparent)]
    Thread(#[from] ThreadFailure),
    /// More applications than an engine supports.
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

/// A builder for a capture, which also runs it.
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
/// Each of the [shards](Capture::shards) is a thread with its own engine; packets are distributed to shards by flow.
/// Without [workers](Capture::workers), handlers of a file's events run inside the engine: this is fastest, and
/// reading waits for slow handlers. With workers, events go to other threads through queues, so that slow handlers do
/// not delay the capture; when memory is full, data is dropped by priority. A live source always has at least one
/// worker per shard, one of which is the thread that calls [`Capture::run`].
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
    /// Maximum number of shards, and of workers; [`Capture::run`] fails with more.
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

    /// From a network interface; `any` is all of them.
    pub fn interface(name: &str) -> Capture {
        Capture::live(LiveConfig::new(name))
    }

    /// From a network interface with these settings.
    pub fn live(config: LiveConfig) -> Capture {
        Capture::new(Input::Interface(Box::new(config)))
    }

    /// From a source; `live` if it cannot wait.
    pub fn source(source: impl PacketSource + Send + 'static, live: bool) -> Capture {
        Capture::sources(vec![Box::new(source)], live)
    }

    /// From sources that are already distributed by flow, one per shard.
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

    /// Captures only packets that match, in pcap-filter(7) syntax; evaluated in the kernel on interfaces.
    #[must_use]
    pub fn filter(mut self, expression: &str) -> Capture {
        expression.clone_into(&mut self.filter);
        self
    }

    /// Configures the engines. They share its memory, to which connections are charged as well
    /// ([`EngineConfig::connection_bytes`]).
    #[must_use]
    pub fn engine(mut self, config: EngineConfig) -> Capture {
        self.engine = config;
        self
    }

    /// Total memory in bytes for connections, chunks, waiting segments, packet records and events that wait for
    /// workers.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Capture {
        self.engine.memory_bytes = bytes;
        self
    }

    /// Number of threads with an engine, from 1 to [`Capture::MOST_THREADS`]. Packets are distributed by flow.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Capture {
        self.shards = shards.max(1);
        self
    }

    /// Number of threads that handle events, at most [`Capture::MOST_THREADS`]. With 0 (the default), events of files
    /// are handled in the engine, those of a live source in the calling thread (and one more thread per additional
    /// shard).
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Capture {
        self.workers = workers;
        self
    }

    /// Pins each thread to its own core, of those available to the process: shards first, then workers. If there are
    /// more threads than cores, they share cores. With a live source, shard and worker of the same number share a
    /// core.
    #[must_use]
    pub fn pin(self, pin: bool) -> Capture {
        self.cores(if pin { Cores::allowed() } else { Cores::any() })
    }

    /// Pins threads to these cores.
    #[must_use]
    pub fn cores(mut self, cores: Cores) -> Capture {
        self.cores = cores;
        self
    }

    /// Sinks for verdicts on flows, one per source, that is, for the path its packets take.
    #[must_use]
    pub fn offload(mut self, offload: Vec<Verdicts>) -> Capture {
        self.offload = offload;
        self
    }

    /// Whether the kernel drops data of an interface that no application wants, if possible: data beyond their
    /// cutoffs, and streams that they discarded. Counters stay the same; [`EngineStatistics::withheld`] is the amount
    /// dropped.
    #[must_use]
    pub fn keep_away(mut self, keeps_away: bool) -> Capture {
        self.keeps_away = keeps_away;
        self
    }

    /// Whether the source waits for slow workers, so that nothing is lost. Files do by default, interfaces cannot.
    /// Otherwise memory fills, and data is dropped by priority; [`Outcome::lost`] counts chunks that did not fit.
    /// Waiting data events take memory according to the priority of their stream, and so do creations and
    /// terminations once 65,536 events wait for a worker. A sixteenth of the memory is reserved for connections and
    /// creations. When that is full, too, new streams are lost without any event. A stream whose creation was
    /// reported always has its end reported.
    #[must_use]
    pub fn wait_for_workers(mut self, wait: bool) -> Capture {
        self.patient = Some(wait);
        self
    }

    /// Adds an application. `make` creates its handlers for each thread that handles events: workers if there are
    /// any, else shards.
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

    /// A handle to stop or observe the capture from another thread.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Lets `control` stop the capture.
    #[must_use]
    pub fn controlled_by(mut self, control: Control) -> Capture {
        self.control = control;
        self
    }

    /// Runs until the input ends or the capture is stopped.
    ///
    /// # Errors
    /// An input cannot be opened, or a thread cannot be started. Damaged input and panics of handlers are reported in
    /// the [`Outcome`].
    pub fn run(self) -> Result<Outcome, RunError> {
        Prepared::new(self)?.run()
    }

    /// Opens the input and runs on a new thread.
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

/// A capture running on its own thread.
#[derive(Debug)]
pub struct Running {
    control: Control,
    thread: JoinHandle<Result<Outcome, RunError>>,
}

impl Running {
    /// Stops the capture. Packets already captured are still processed; [`Running::join`] waits for that.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// The counters so far.
    pub fn progress(&self) -> Progress {
        self.control.progress()
    }

    /// Waits for the end of the capture.
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
    /// What became of every packet.
    pub ledger: Ledger,
    /// Counters of each engine.
    pub shards: Vec<EngineStatistics>,
    /// Counters of each worker.
    pub workers: Vec<WorkerStatistics>,
    /// Chunks lost because memory was full; none if the source waits. In a shared capture, those this process was too
    /// slow for.
    pub lost: Lost,
    /// Errors during the run, which continued with the rest of the input.
    pub errors: Vec<flowgauge_capture::Error>,
    /// Applications whose handlers panicked. They received no further events; other applications did.
    pub failures: Vec<(ApplicationId, ThreadFailure)>,
}

impl Outcome {
    /// Sum of the engines' counters, without those of lower layers ([`EngineStatistics::shard`] is empty).
    pub fn total(&self) -> EngineStatistics {
        let mut total = EngineStatistics::default();
        self.shards.iter().for_each(|shard| total.add(shard));
        total
    }
}
