//! A device: the thread that takes its packets through stacks, and what it is asked.

mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_capture::filter::DEFAULT_SNAP_LEN;
use flowgauge_capture::live::{LiveConfig, StopHandle};
use flowgauge_capture::{Error, Filtered, PacketSource, SnapLen, open_reader};
use flowgauge_offload::Backends;
use flowgauge_runtime::shared::{Program as CaptureProgram, Said};
use flowgauge_runtime::stacks::{Runner, RunnerOptions, SetupError, Shared};
use flowgauge_sensor_client::programs::{OpenedCapture, SharingStatus};
use flowgauge_sensor_client::protocol::{
    DeviceStatus, FlowStatus, OffloadStatus, Results, SharedStatus, StackStatus,
};
use flowgauge_stack::{Program, SettingError, Stack};
use flowgauge_stream::offload::Verdicts;
use flowgauge_sys::files::HandedInput;
use flowgauge_sys::packet::Waker;
use flowgauge_wire::{Ledger, LinkType, Place};
use parking_lot::Mutex;

use self::work::Work;
use crate::accounts::{Account, Who};
use crate::config::{DeviceConfig, Offload, Speed};
use crate::news::News;
use crate::orders::Orders;
use crate::paced::Paced;
use crate::readers::{FlowRing, Readers};
use crate::rings::Rings;
use crate::sharing::Sharing;

/// Where packets come from.
pub type Source = Box<dyn PacketSource + Send>;

/// An idle interface gives its device a look at what is counted this often.
const TICK_MS: u32 = 5;
/// How long a device of files waits for a flow's user who does not read.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long who asks a device waits for its thread. A client waits longer.
const ANSWER: Duration = Duration::from_secs(20);
/// ... and who only looks how it is.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

/// A source that is open, for a device that does not run yet.
pub(crate) struct Opened {
    pub(crate) config: DeviceConfig,
    source: Source,
    describes: String,
    /// Link types of its packets, as far as they are known.
    links: Vec<LinkType>,
    /// Where it is an interface: it is opened again when it has gone away.
    live: Option<LiveConfig>,
    /// Where each of its workers has a ring: these, and what the workers read.
    rings: Option<(Rings, Vec<Source>)>,
    /// What keeps packets away, and where it is told what is wanted.
    backends: Backends,
    verdicts: Vec<Verdicts>,
    stop: StopHandle,
    orders: Arc<Orders<Order>>,
    /// How long it waits for a flow's user who does not read; `None`: not at all.
    patience: Option<Duration>,
    /// Its packets are a user's own: its thread leaves the processors to others.
    is_own: bool,
}

/// An interface as it is opened.
fn live(interface: &str, config: &DeviceConfig) -> LiveConfig {
    LiveConfig {
        filter: config.filter.clone(),
        snap_len: config.snapshot_length,
        buffer_bytes: config.buffer,
        promiscuous: config.promiscuous,
        tick_ms: TICK_MS,
        ..LiveConfig::new(interface)
    }
}

/// Opens an interface: a ring for each worker. The only one the device's thread reads, which is woken when something is asked.
fn open_live(
    config: &LiveConfig,
    workers: u16,
    backends: &mut Backends,
    stop: &StopHandle,
    waker: Waker,
) -> Result<Vec<Source>, Error> {
    backends.open(config, workers.into(), |source| {
        let source = source.stopped_by(stop.clone());
        match workers {
            1 => source.woken_by(waker.clone()),
            _ => source,
        }
    })
}

/// What keeps packets away from an interface. (What a snap length cuts off is missing, what nobody wants is not.)
fn backends(config: &DeviceConfig, is_live: bool) -> (Backends, Vec<Verdicts>) {
    let is_whole = config.snapshot_length >= DEFAULT_SNAP_LEN;
    match is_live && is_whole && config.offload != Offload::None {
        true => Backends::load(config.workers.into()),
        false => Default::default(),
    }
}

fn orders(name: &str) -> Result<Arc<Orders<Order>>, Error> {
    let orders = Orders::new().map_err(|error| Error::Interface {
        name: name.to_owned(),
        reason: format!("no descriptor left for it: {error}"),
        hint: "raise LimitNOFILE in the unit".to_owned(),
    });
    orders.map(Arc::new)
}

/// The link types that a source knows of.
fn links(source: &dyn PacketSource) -> Vec<LinkType> {
    let links: BTreeSet<LinkType> = source.interfaces().iter().map(|it| it.link).collect();
    links.into_iter().collect()
}

/// The link types at the beginning of a file: formats may tell them with the first packets.
fn links_of(file: io::Result<HandedInput>, name: &str) -> Vec<LinkType> {
    let source = file.ok().and_then(|file| open_reader(file, name).ok());
    source.map_or_else(Vec::new, |mut source| {
        // What is wrong with it is told when it is read.
        let _ = source.next_batch();
        links(&*source)
    })
}

impl Opened {
    pub(crate) fn open(name: &str, config: &DeviceConfig) -> Result<Opened, Error> {
        let stop = StopHandle::default();
        let orders = orders(name)?;
        let live = config.interface(name).map(|it| live(it, config));
        let (mut backends, verdicts) = backends(config, live.is_some());
        let mut rings = None;
        let (source, describes): (Source, String) = match &live {
            Some(live) => {
                let workers = config.workers;
                let mut sources = open_live(live, workers, &mut backends, &stop, orders.waker())?;
                let source = match sources.pop() {
                    Some(source) if sources.is_empty() => source,
                    last => {
                        sources.extend(last);
                        let (known, read) = Rings::new(sources, &stop);
                        rings = Some((known.clone(), read));
                        Box::new(known)
                    }
                };
                (source, format!("interface {}", live.interface))
            }
            None => {
                let files = flowgauge_capture::expand(&config.files)?;
                let mut source: Source = flowgauge_capture::open_all(&files)?;
                if !config.filter.is_empty() {
                    source = Box::new(Filtered::new(source, &config.filter)?);
                }
                source = Box::new(SnapLen::new(source, config.snapshot_length));
                if config.speed == Speed::Real {
                    source = Box::new(Paced::new(source));
                }
                let names: Vec<String> = files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                (source, format!("files {}", names.join(", ")))
            }
        };
        if let (Offload::Socket, Some(error)) = (config.offload, backends.lacks()) {
            return Err(Error::Interface {
                name: name.to_owned(),
                reason: error.to_string(),
                hint: format!("{}; offload = \"auto\" works without it", error.hint()),
            });
        }
        Ok(Opened {
            config: config.clone(),
            links: links(&*source),
            source,
            describes,
            patience: live.is_none().then_some(PATIENCE),
            live,
            rings,
            backends,
            verdicts,
            stop,
            orders,
            is_own: false,
        })
    }

    /// A device whose packets come from a source as those of an interface do.
    pub(crate) fn of_source(
        name: &str,
        config: &DeviceConfig,
        source: Source,
    ) -> Result<Opened, Error> {
        Ok(Opened {
            config: config.clone(),
            links: links(&*source),
            source,
            describes: format!("interface {name}"),
            live: None,
            rings: None,
            backends: Backends::default(),
            verdicts: Vec::new(),
            stop: StopHandle::default(),
            orders: orders(name)?,
            patience: None,
            is_own: false,
        })
    }

    /// A device of a user's file. It waits for its user as long as it takes: there is nobody else.
    pub(crate) fn of_user(file: HandedInput, who: Who) -> Result<Opened, Error> {
        let describes = format!("a file of user {}", who.0);
        let links = links_of(file.again(), &describes);
        Ok(Opened {
            config: DeviceConfig {
                files: vec![PathBuf::from(&describes)],
                ..DeviceConfig::default()
            },
            source: open_reader(file, &describes)?,
            orders: orders(&describes)?,
            describes,
            links,
            live: None,
            rings: None,
            backends: Backends::default(),
            verdicts: Vec::new(),
            stop: StopHandle::default(),
            patience: Some(Duration::MAX),
            is_own: true,
        })
    }

    /// Starts the device with its stacks. If it `holds`, packets come when it is started.
    pub(crate) fn start(
        mut self,
        name: &str,
        stacks: Vec<Stack>,
        sharing: Option<Sharing>,
        holds: bool,
        news: &Arc<News>,
    ) -> Result<Device, SetupError> {
        let options = RunnerOptions {
            workers: usize::from(self.config.workers),
            is_live: self.config.files.is_empty(),
            fans_out: self.rings.is_some(),
            offload: core::mem::take(&mut self.verdicts),
            ..RunnerOptions::default()
        };
        let always = stacks.clone();
        let mut runner = Runner::new(Program { stacks }, &options)?;
        if let Some((_, sources)) = &mut self.rings {
            runner.fan_out(core::mem::take(sources));
        }
        let links = self.links.clone();
        let state = match holds {
            true => State::Holding,
            false => State::Reading,
        };
        let orders = Arc::clone(&self.orders);
        let (config, describes, stop) = (
            self.config.clone(),
            self.describes.clone(),
            self.stop.clone(),
        );
        let is_own = self.is_own;
        // What becomes of a user's own file the user is told.
        let news = (!is_own).then(|| Arc::clone(news));
        let mut work = Work::new(self, name, runner, always, state, sharing, news);
        let started = thread::Builder::new()
            .name(format!("fg-{name}"))
            .spawn(move || {
                if is_own {
                    flowgauge_sys::process::stand_back();
                }
                work.run()
            });
        let thread = started.map_err(|error| {
            SetupError::Thread(flowgauge_runtime::ThreadFailure::NotStarted {
                name: format!("fg-{name}"),
                source: error,
            })
        })?;
        Ok(Device {
            config,
            describes,
            orders,
            links,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }
}

/// A device that runs.
pub(crate) struct Device {
    pub(crate) config: DeviceConfig,
    pub(crate) describes: String,
    orders: Arc<Orders<Order>>,
    /// Link types of its packets, as far as they are known.
    pub(crate) links: Vec<LinkType>,
    stop: StopHandle,
    thread: Mutex<Option<JoinHandle<Ledger>>>,
}

/// What its thread is told. Where something comes back it goes to the sender.
enum Order {
    /// These stacks always run, from the next packet on, those that failed only if all begin `anew`, and these flows, too. Comes back
    /// which stacks have failed, and why.
    Always {
        stacks: Vec<Stack>,
        flows: Vec<NewFlow>,
        anew: bool,
        answer: Sender<Result<Vec<(String, String)>, String>>,
    },
    Open(Box<NewFlow>, Sender<Result<(), String>>),
    /// Flows end; the last results of the first.
    Close(Vec<u64>, Sender<Option<Results>>),
    /// Results of a flow; of the component with this label alone, which forgets them.
    Results(u64, Option<String>, Sender<Result<Results, String>>),
    /// How it is, at the cost of who asks; what is computed once for whom, if that is `shared`.
    Show {
        account: Option<Arc<Account>>,
        shared: bool,
        answer: Sender<Shown>,
    },
    /// A program with libscap joins, whose flow has this number.
    Join(
        u64,
        Box<CaptureProgram>,
        Arc<Account>,
        Sender<Result<(OpenedCapture, Vec<OwnedFd>), String>>,
    ),
    /// ... and asks for something.
    Hear(u64, Said, Sender<()>),
    Start,
    /// It comes to its end, and is still asked.
    Finish,
    Stop,
}

impl Order {
    /// How it is, for the sensor itself.
    fn show(answer: Sender<Shown>) -> Order {
        Order::Show {
            account: None,
            shared: false,
            answer,
        }
    }
}

/// A flow that is to run.
#[derive(Clone)]
pub(crate) struct NewFlow {
    pub(crate) number: u64,
    pub(crate) stack: Stack,
    /// Components before those of its user.
    pub(crate) hidden: usize,
    pub(crate) readers: Arc<Readers>,
    pub(crate) ring: Arc<FlowRing>,
    pub(crate) account: Arc<Account>,
    pub(crate) process: u32,
}

/// How a device is.
pub(crate) struct Shown {
    state: State,
    ledger: Ledger,
    errors: Vec<String>,
    is_behind: bool,
    offload: Option<OffloadStatus>,
    stacks: Vec<ShownStack>,
    /// Of `stacks`, by their places.
    shared: Vec<Shared>,
    sharing: Option<SharingStatus>,
}

/// A stack of it.
pub(crate) struct ShownStack {
    status: StackStatus,
    hidden: usize,
    /// Why it failed, as users may know it.
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Holding,
    Reading,
    /// The interface went away.
    Away,
    Ended,
}

fn answered<T>(answer: &Receiver<T>, limit: Duration) -> Result<T, String> {
    answer.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => BUSY.to_owned(),
        RecvTimeoutError::Disconnected => GONE.to_owned(),
    })
}

/// The device does not answer, or is not there any more.
const GONE: &str = "the device has ended";
const BUSY: &str = "the device does not answer: its stacks keep it busy, or are blocked";

impl Device {
    /// Whether it is an interface.
    pub(crate) fn is_live(&self) -> bool {
        self.config.files.is_empty()
    }

    fn ask<T>(
        &self,
        who: Option<Who>,
        limit: Duration,
        order: impl FnOnce(Sender<T>) -> Order,
    ) -> Result<T, String> {
        let (sender, answer) = mpsc::channel();
        if !self.orders.send(who, order(sender)) {
            return Err(GONE.to_owned());
        }
        answered(&answer, limit)
    }

    /// Asks how it is, for a user; what is computed once for whom, if that is `shared`.
    pub(crate) fn look(&self, account: &Arc<Account>, shared: bool) -> Receiver<Shown> {
        let (sender, answer) = mpsc::channel();
        let show = Order::Show {
            account: Some(Arc::clone(account)),
            shared,
            answer: sender,
        };
        // Of one that is gone nothing comes.
        self.orders.send(Some(account.who()), show);
        answer
    }

    /// Makes the components of a stack that is to run here, which its thread then has not to do.
    ///
    /// # Errors
    /// One that cannot be made.
    pub(crate) fn prepare(&self, stack: &mut Stack) -> Result<(), SettingError> {
        let workers = usize::from(self.config.workers);
        stack.place(workers, self.is_live());
        match self.links.is_empty() {
            true => stack.prepare(&[LinkType::ETHERNET]),
            false => stack.prepare(&self.links),
        }
    }

    /// Has these stacks run from the next packet on, and further flows. Those that failed stay over, unless they begin `anew`.
    /// Returns which have failed.
    ///
    /// # Errors
    /// Why they cannot; nothing has changed then.
    pub(crate) fn run(
        &self,
        stacks: Vec<Stack>,
        flows: Vec<NewFlow>,
        anew: bool,
    ) -> Result<Vec<(String, String)>, String> {
        self.ask(None, ANSWER, |answer| Order::Always {
            stacks,
            flows,
            anew,
            answer,
        })?
    }

    /// Has a flow run from the next packet on.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn open(&self, flow: NewFlow) -> Result<(), String> {
        let (who, number) = (flow.account.who(), flow.number);
        let opened = self.ask(Some(who), ANSWER, |answer| {
            Order::Open(Box::new(flow), answer)
        });
        opened.unwrap_or_else(|error| {
            // It may open yet.
            self.close(Some(who), vec![number]);
            Err(error)
        })
    }

    /// A program joins, whose flow has this number. Returns what is answered, with descriptors.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn join(
        &self,
        account: &Arc<Account>,
        number: u64,
        program: CaptureProgram,
    ) -> Result<(OpenedCapture, Vec<OwnedFd>), String> {
        let who = account.who();
        let joined = self.ask(Some(who), ANSWER, |answer| {
            Order::Join(number, Box::new(program), Arc::clone(account), answer)
        });
        joined.unwrap_or_else(|error| {
            // It may join yet.
            self.close(Some(who), vec![number]);
            Err(error)
        })
    }

    /// A program asks for something. Returns when that was done, or is too late.
    pub(crate) fn hear(&self, who: Who, number: u64, said: Said) {
        let hear = |answer| Order::Hear(number, said, answer);
        let _ = self.ask(Some(who), ANSWER, hear);
    }

    /// A program is to end, for this reason: its streams end, it reads what is there, and goes.
    pub(crate) fn end_program(&self, number: u64, why: &str) {
        let (sender, _) = mpsc::channel();
        let end = Order::Hear(number, Said::End(why.to_owned()), sender);
        self.orders.send(None, end);
    }

    /// Ends flows, of a user's or because the sensor says so.
    pub(crate) fn close(&self, who: Option<Who>, flows: Vec<u64>) {
        let (sender, _) = mpsc::channel();
        self.orders.send(who, Order::Close(flows, sender));
    }

    /// Ends a flow of a user's. Returns its last results; `None`: it was not there any more.
    pub(crate) fn close_one(&self, who: Who, flow: u64) -> Option<Results> {
        let close = |answer| Order::Close(vec![flow], answer);
        self.ask(Some(who), ANSWER, close).ok().flatten()
    }

    /// Results of a flow; of the component with this label alone, which forgets them.
    ///
    /// # Errors
    /// It is not there, or has no such component with a table.
    pub(crate) fn results(
        &self,
        who: Who,
        flow: u64,
        take: Option<String>,
    ) -> Result<Results, String> {
        let results = |answer| Order::Results(flow, take, answer);
        self.ask(Some(who), ANSWER, results)?
    }

    /// The names of its stacks that have failed.
    pub(crate) fn failed(&self) -> Vec<String> {
        let shown = self.ask(None, LOOK, Order::show);
        let stacks = shown.map_or(Vec::new(), |shown| shown.stacks).into_iter();
        let failed = stacks.filter(|stack| stack.status.failure.is_some());
        failed.map(|stack| stack.status.stack).collect()
    }

    /// Whether nothing comes of it any more.
    pub(crate) fn is_over(&self) -> bool {
        match self.ask(None, LOOK, Order::show) {
            Ok(shown) => shown.state == State::Ended,
            Err(error) => error == GONE,
        }
    }

    /// Has it come to its end: what is in the ring is still taken, and stacks end as at the end of the input. Their last results
    /// can be asked for.
    pub(crate) fn finish(&self) {
        self.stop.stop();
        self.orders.send(None, Order::Finish);
    }

    /// Ends it as dropping it does. Returns where its packets went.
    pub(crate) fn end(&self) -> Ledger {
        self.stop.stop();
        self.orders.send(None, Order::Stop);
        let thread = self.thread.lock().take();
        let ended = thread.and_then(|thread| thread.join().ok());
        ended.unwrap_or_default()
    }

    /// Reads on, if it holds.
    pub(crate) fn start(&self) {
        self.orders.send(None, Order::Start);
    }

    /// How it is, as a user [has asked](Device::look), who sees flows of others if `sees_all`, and what the configuration has run.
    pub(crate) fn status(
        &self,
        name: &str,
        who: Who,
        sees_all: bool,
        asked: &Receiver<Shown>,
        until: Instant,
    ) -> DeviceStatus {
        let mut status = DeviceStatus {
            device: name.to_owned(),
            source: self.describes.clone(),
            ..DeviceStatus::default()
        };
        let left = until.saturating_duration_since(Instant::now());
        let shown = match answered(asked, left) {
            Ok(shown) => shown,
            Err(error) => {
                let state = if error == GONE { "failed" } else { "busy" };
                status.state = state.to_owned();
                return status;
            }
        };
        status.state = match shown.state {
            State::Holding => "holding",
            State::Reading => "reading",
            State::Away => "away",
            State::Ended => "ended",
        }
        .to_owned();
        status.packets = shown.ledger.received();
        status.delivered = shown.ledger.delivered();
        status.delivered_bytes = shown.ledger.delivered_bytes();
        status.is_behind = shown.is_behind;
        status.offload = shown.offload;
        let places = Place::ALL
            .iter()
            .map(|place| (place, shown.ledger.at(*place)));
        let places = places.filter(|(_, packets)| *packets > 0);
        let refused = places.map(|(place, packets)| (place.name().to_owned(), packets));
        status.refused = refused.collect::<BTreeMap<String, u64>>();
        status.errors = shown.errors;
        let seen = |flow: &FlowStatus| sees_all || flow.user == who.0;
        let all = shown.shared.iter();
        status.shared = all
            .flat_map(|shared| told(shared, &shown.stacks, sees_all, &seen))
            .collect();
        status.sharing = shown.sharing.map(|mut sharing| {
            sharing.programs.retain(|it| sees_all || it.user == who.0);
            sharing
        });
        for mut stack in shown.stacks {
            let is_flow = !stack.status.flows.is_empty();
            stack.status.flows.retain(seen);
            if stack.status.flows.is_empty() && (is_flow || !sees_all) {
                continue;
            }
            if !sees_all {
                stack.status.components.drain(..stack.hidden);
                stack.status.failure = stack.failure;
            }
            status.stacks.push(stack.status);
        }
        status
    }
}

/// What is computed once, as who sees only some flows is told: nothing where none of these has it, and of components that these
/// users do not see what follows them.
fn told(
    shared: &Shared,
    stacks: &[ShownStack],
    sees_all: bool,
    seen: &dyn Fn(&FlowStatus) -> bool,
) -> Vec<SharedStatus> {
    let its = shared.stacks.iter().filter_map(|at| stacks.get(*at));
    let its: Vec<&ShownStack> = its.collect();
    let of_flows = its.iter().flat_map(|stack| &stack.status.flows);
    let mut flows: Vec<u64> = of_flows
        .filter(|flow| seen(flow))
        .map(|it| it.flow)
        .collect();
    flows.sort_unstable();
    let sees = |stack: &&&ShownStack| match stack.status.flows.is_empty() {
        true => sees_all,
        false => stack.status.flows.iter().any(seen),
    };
    let Some(first) = its.iter().find(sees) else {
        return Vec::new();
    };
    let always = its.iter().filter(|stack| stack.status.flows.is_empty());
    let stacks_of: Vec<String> = match sees_all {
        true => always.clone().map(|it| it.status.stack.clone()).collect(),
        false => Vec::new(),
    };
    let count = |stack: &&ShownStack| stack.status.flows.len().max(1);
    let all: usize = its.iter().map(count).sum();
    let hidden = if sees_all { 0 } else { first.hidden };
    let components = shared.components.iter().map(|id| id.index());
    let components = components.filter(|at| *at >= hidden);
    let components = components.filter_map(|at| first.status.components.get(at).cloned());
    let components: Vec<String> = components.collect();
    let next = shared.next.iter();
    let next = next.flat_map(|next| told(next, stacks, sees_all, seen));
    if components.is_empty() && !shared.is_engine {
        return next.collect();
    }
    vec![SharedStatus {
        components,
        is_engine: shared.is_engine,
        others: (all - flows.len() - stacks_of.len()) as u64,
        flows,
        stacks: stacks_of,
        next: next.collect(),
    }]
}

/// What is in the ring is still taken; stacks end as at the end of the input.
impl Drop for Device {
    fn drop(&mut self) {
        self.end();
    }
}
