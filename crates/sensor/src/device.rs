//! A device: the thread that takes its packets through stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_capture::{Error, Filtered, PacketSource, SnapLen, open_reader};
use flowgauge_runtime::shared::Service;
use flowgauge_runtime::stacks::{Ended, Runner, RunnerOptions, SetupError, StackState};
use flowgauge_sensor_client::layout;
use flowgauge_sensor_client::protocol::{DeviceStatus, Results};
use flowgauge_stack::{NodeId, Program, RunEnd, Stack};
use flowgauge_sys::files::HandedInput;
use flowgauge_wire::{Ledger, LinkType, Place};

use crate::config::{DeviceConfig, Speed};
use crate::paced::Paced;
use crate::readers::{Number, Readers};
use crate::results::{now, results};
use crate::sharing::Sharing;

type Source = Box<dyn PacketSource + Send>;

/// An idle interface gives its device a look at what is asked this often.
const TICK_MS: u32 = 5;
/// ... and a device that reads nothing.
const LOOK: Duration = Duration::from_secs(1);
/// ... and one whose readers have no room. Numbers are told as often.
const WAIT: Duration = Duration::from_millis(1);
/// How long a device of files waits for a flow's user who does not read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Errors of a source that are kept.
const MOST_ERRORS: usize = 16;

/// A source that is open, for a device that does not run yet.
pub(crate) struct Opened {
    pub(crate) config: DeviceConfig,
    source: Source,
    describes: String,
    /// Link types of its packets, as far as they are known.
    links: Vec<LinkType>,
    stop: StopHandle,
    /// How long it waits for a flow's user who does not read; `None`: not at all.
    patience: Option<Duration>,
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
        let (source, describes): (Source, String) = match config.interface(name) {
            Some(interface) => {
                let opened = LiveSource::open(&live(interface, config))?;
                let source = opened.stopped_by(stop.clone());
                (Box::new(source), format!("interface {interface}"))
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
        Ok(Opened {
            config: config.clone(),
            links: links(&*source),
            source,
            describes,
            stop,
            patience: config.interface(name).is_none().then_some(PATIENCE),
        })
    }

    /// A device of a user's file. It waits for its user as long as it takes: there is nobody else.
    pub(crate) fn of_user(file: HandedInput, user: u32) -> Result<Opened, Error> {
        let describes = format!("a file of user {user}");
        let links = links_of(file.again(), &describes);
        Ok(Opened {
            config: DeviceConfig {
                files: vec![PathBuf::from(&describes)],
                ..DeviceConfig::default()
            },
            source: open_reader(file, &describes)?,
            describes,
            links,
            stop: StopHandle::default(),
            patience: Some(Duration::MAX),
        })
    }

    /// Starts the device with its stacks. If it `holds`, packets come when it is started.
    pub(crate) fn start(
        self,
        name: &str,
        stacks: Vec<Stack>,
        sharing: Option<Sharing>,
        holds: bool,
    ) -> Result<Device, SetupError> {
        let options = RunnerOptions {
            workers: usize::from(self.config.workers),
            is_live: self.config.files.is_empty(),
            ..RunnerOptions::default()
        };
        let runner = Runner::new(Program { stacks }, &options)?;
        let (orders, receiver) = mpsc::channel();
        let state = match holds {
            true => State::Holding,
            false => State::Reading,
        };
        let mut work = Work {
            runner,
            source: self.source,
            interface: self.config.interface(name).map(|it| live(it, &self.config)),
            stop: self.stop.clone(),
            earlier: Ledger::default(),
            state,
            orders: receiver,
            errors: Vec::new(),
            failures: BTreeMap::new(),
            over: Vec::new(),
            patience: self.patience,
            readers: BTreeMap::new(),
            is_settled: true,
            numbers: Vec::new(),
            told: Instant::now(),
            idle: 0,
            is_told: false,
            service: None,
            sharing,
        };
        work.share();
        let started = thread::Builder::new()
            .name(format!("fg-{name}"))
            .spawn(move || work.run());
        let thread = started.map_err(|error| {
            SetupError::Thread(flowgauge_runtime::ThreadFailure::NotStarted {
                name: format!("fg-{name}"),
                source: error,
            })
        })?;
        Ok(Device {
            config: self.config,
            describes: self.describes,
            links: self.links,
            orders,
            stop: self.stop,
            thread: Some(thread),
        })
    }
}

/// A device that runs.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) config: DeviceConfig,
    pub(crate) describes: String,
    pub(crate) links: Vec<LinkType>,
    orders: Sender<Order>,
    stop: StopHandle,
    thread: Option<JoinHandle<Ledger>>,
}

/// What its thread is told.
enum Order {
    /// These stacks run from the next packet on, those that failed only if all begin anew; what is known of those that ended
    /// comes back.
    Run(Running, bool, Sender<Result<Vec<Ended>, String>>),
    /// A component of a stack, by their names, forgets its result.
    Show(Option<(String, String)>, Sender<Shown>),
    Start,
    Stop,
}

/// Stacks to run, and who reads what they make, by name.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) stacks: Vec<Stack>,
    pub(crate) readers: BTreeMap<String, Arc<Readers>>,
}

/// What is known of a device.
pub(crate) struct Shown {
    state: State,
    ledger: Ledger,
    errors: Vec<String>,
    /// Of each stack its state, and why it failed.
    pub(crate) stacks: Vec<(Stack, StackState, Option<String>)>,
}

impl Shown {
    /// What is known of a stack, and why it failed.
    pub(crate) fn of(&self, stack: &Stack) -> Option<&(Stack, StackState, Option<String>)> {
        let mut stacks = self.stacks.iter();
        stacks.find(|(known, ..)| known.name == stack.name)
    }

    pub(crate) fn results(&self, stack: &Stack) -> Option<Results> {
        let (stack, state, failure) = self.of(stack)?;
        let is_last = self.state == State::Ended;
        Some(results(stack, state, failure.clone(), is_last))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Holding,
    Reading,
    /// The interface went away.
    Away,
    Ended,
}

impl Device {
    /// Has these stacks run from the next packet on. Those that failed stay over, unless they begin `anew`.
    ///
    /// # Errors
    /// Why they cannot; nothing has changed then.
    pub(crate) fn run(&self, running: Running, anew: bool) -> Result<Vec<Ended>, String> {
        let (sender, answer) = mpsc::channel();
        let asked = self.orders.send(Order::Run(running, anew, sender));
        let gone = || "the device has ended".to_owned();
        asked.map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }

    /// Whether nothing comes of it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.show().is_none_or(|shown| shown.state == State::Ended)
    }

    /// Ends it as dropping it does. Returns where its packets went.
    pub(crate) fn end(mut self) -> Ledger {
        self.stop_and_join()
    }

    fn stop_and_join(&mut self) -> Ledger {
        self.stop.stop();
        let _ = self.orders.send(Order::Stop);
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_default()
    }

    pub(crate) fn show(&self) -> Option<Shown> {
        self.take(None)
    }

    /// What is known of it. A component of a stack, by their names, forgets its result.
    pub(crate) fn take(&self, what: Option<(String, String)>) -> Option<Shown> {
        let (sender, answer) = mpsc::channel();
        self.orders.send(Order::Show(what, sender)).ok()?;
        answer.recv().ok()
    }

    /// Reads on, if it holds.
    pub(crate) fn start(&self) {
        let _ = self.orders.send(Order::Start);
    }

    pub(crate) fn status(&self, name: &str) -> (DeviceStatus, Option<Shown>) {
        let mut status = DeviceStatus {
            device: name.to_owned(),
            source: self.describes.clone(),
            state: "failed".to_owned(),
            ..DeviceStatus::default()
        };
        let shown = self.show();
        if let Some(shown) = &shown {
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
            let places = Place::ALL
                .iter()
                .map(|place| (place, shown.ledger.at(*place)));
            let places = places.filter(|(_, packets)| *packets > 0);
            status.refused = places
                .map(|(place, packets)| (place.name().to_owned(), packets))
                .collect();
            status.errors.clone_from(&shown.errors);
        }
        (status, shown)
    }
}

/// What is in the ring is still taken; stacks end as at the end of the input.
impl Drop for Device {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

/// What the thread of a device does.
struct Work {
    runner: Runner,
    source: Source,
    /// Where it is one: it is opened again when it has gone away.
    interface: Option<LiveConfig>,
    stop: StopHandle,
    /// What sources before this one had.
    earlier: Ledger,
    state: State,
    orders: Receiver<Order>,
    errors: Vec<String>,
    /// Why stacks failed, by name.
    failures: BTreeMap<String, String>,
    /// Those of them that the runner has let go: what others change does not begin them anew, which would write over what they wrote.
    over: Vec<(Stack, StackState)>,
    patience: Option<Duration>,
    /// By the names of stacks.
    readers: BTreeMap<String, Arc<Readers>>,
    /// Whether they have what they are waited for.
    is_settled: bool,
    /// What was counted, as they were told last, and when; how often since there were no packets; whether that is the end.
    numbers: Vec<Vec<Number>>,
    told: Instant,
    idle: u32,
    is_told: bool,
    /// Looks after programs with libscap, where the source is an interface that they may share.
    service: Option<Service>,
    sharing: Option<Sharing>,
}

impl Work {
    fn run(&mut self) -> Ledger {
        let mut is_stopping = false;
        while !is_stopping || self.state == State::Reading {
            match self.next_order() {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    is_stopping = true;
                    // What is in the ring of an interface is still taken.
                    if self.interface.is_none() || self.state != State::Reading {
                        self.end();
                    }
                }
                Ok(Order::Start) if self.state == State::Holding => self.state = State::Reading,
                Ok(Order::Start) => {}
                Ok(Order::Run(running, anew, answer)) => {
                    let _ = answer.send(self.change(running, anew));
                }
                Ok(Order::Show(take, answer)) => {
                    let _ = answer.send(self.shown(take));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.is_settled = true;
            for readers in self.readers.values() {
                self.is_settled &= readers.settle();
                self.is_settled &= self.state != State::Reading || readers.has_room();
            }
            match self.state {
                State::Reading if self.is_settled => self.read(),
                State::Reading => self.tell_now_and_then(false),
                State::Ended if self.is_settled && !self.is_told => {
                    self.tell();
                    self.is_told = true;
                }
                State::Away if !is_stopping => self.take_again(),
                _ => {}
            }
        }
        if !self.is_told {
            self.state = State::Ended;
            self.tell();
        }
        self.ledger()
    }

    fn next_order(&self) -> Result<Order, RecvTimeoutError> {
        if !self.is_settled || (self.state == State::Ended && !self.is_told) {
            return self.orders.recv_timeout(WAIT);
        }
        if self.state != State::Reading {
            return self.orders.recv_timeout(LOOK);
        }
        self.orders.try_recv().map_err(|error| match error {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Takes a batch through the stacks, and to programs that share it.
    fn read(&mut self) {
        let source = &mut *self.source;
        let step = match &mut self.service {
            Some(service) => self.runner.step(&mut service.tap(source)),
            None => self.runner.step(source),
        };
        let is_away = matches!(step, Ok(None)) && !self.stop.is_stopped();
        match step {
            Ok(Some(step)) => {
                let mut service = self.service.as_mut();
                if service.as_mut().is_some_and(|it| it.attend_to(source)) {
                    self.end();
                }
                self.tell_now_and_then(step.packets > 0);
            }
            Ok(None) if is_away && self.interface.is_some() && !self.lingers() => {
                self.unshare("the interface has gone away");
                self.state = State::Away;
            }
            Ok(None) => self.end(),
            Err(error) => self.note(&error),
        }
        self.take_failures();
    }

    /// Whether it ends with those who share it.
    fn lingers(&self) -> bool {
        (self.sharing.as_ref()).is_some_and(|sharing| sharing.grace.is_some())
    }

    /// Lets programs share the interface.
    fn share(&mut self) {
        let Some(sharing) = &self.sharing else {
            return;
        };
        match sharing.service(self.source.interfaces()) {
            Ok(service) => self.service = Some(service),
            Err(error) => self.note(error.to_string()),
        }
    }

    /// Programs that share it get what is left, and why no more comes.
    fn unshare(&mut self, otherwise: &str) {
        if let Some(service) = self.service.take() {
            let reason = self.errors.last().map_or(otherwise, String::as_str);
            service.finish(&mut *self.source, reason);
        }
    }

    /// Opens an interface that went away, if it is there again.
    fn take_again(&mut self) {
        let Some(interface) = &self.interface else {
            return;
        };
        match LiveSource::open(interface) {
            Ok(source) => {
                self.earlier.merge(&self.source.ledger());
                self.source = Box::new(source.stopped_by(self.stop.clone()));
                self.state = State::Reading;
                self.share();
            }
            Err(error) => self.note(&error),
        }
    }

    /// The ledger of all sources.
    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.earlier.clone();
        ledger.merge(&self.source.ledger());
        ledger
    }

    fn note(&mut self, error: impl ToString) {
        let error = error.to_string();
        if self.errors.len() < MOST_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn end(&mut self) {
        if self.state == State::Ended {
            return;
        }
        self.state = State::Ended;
        self.unshare("it was told to stop");
        self.runner.finish();
        self.take_failures();
        let snapshot = self.runner.snapshot();
        let stacks = self.runner.stacks().to_vec();
        for (stack, state) in stacks.iter().zip(&snapshot.stacks) {
            self.write_last(stack, state);
        }
    }

    fn take_failures(&mut self) {
        for failed in self.runner.failures() {
            let name = self.runner.stacks().get(failed.stack).map(name_of);
            let what = failed.failure.to_string();
            self.failures
                .entry(name.unwrap_or_default())
                .or_insert(what);
        }
    }

    /// Tells readers what was counted, every millisecond while packets come, and for a while once none do: threads tell it late.
    fn tell_now_and_then(&mut self, comes: bool) {
        const IDLE: u32 = 20;
        self.idle = if comes { 0 } else { (self.idle + 1).min(IDLE) };
        let is_due = match comes {
            true => self.told.elapsed() >= WAIT,
            false => self.idle < IDLE,
        };
        if is_due && !self.readers.is_empty() {
            self.told = Instant::now();
            self.tell();
        }
    }

    /// Tells readers what was counted.
    fn tell(&mut self) {
        let stacks = self.runner.stacks();
        self.numbers.resize_with(stacks.len(), Vec::new);
        for (numbers, stack) in self.numbers.iter_mut().zip(stacks) {
            numbers.clear();
            numbers.resize(stack.nodes.len(), (0, None, 0));
        }
        self.runner.numbers(&mut |number| {
            let of_stack = self.numbers.get_mut(number.stack);
            let Some((items, value, rows)) =
                of_stack.and_then(|all| all.get_mut(number.id.index()))
            else {
                return;
            };
            *items += number.items;
            *rows += number.rows;
            match (value, number.value) {
                (Some(mine), Some(theirs)) => mine.merge(&theirs),
                (mine, theirs) => *mine = theirs,
            }
        });
        let time = now();
        let is_last = match self.state {
            State::Ended => layout::IS_LAST,
            _ => 0,
        };
        for (numbers, stack) in self.numbers.iter().zip(stacks) {
            let name = stack.name.as_deref().unwrap_or_default();
            let Some(readers) = self.readers.get(name) else {
                continue;
            };
            let has_failed = match self.failures.contains_key(name) {
                true => layout::HAS_FAILED,
                false => 0,
            };
            readers.tell(time, is_last | has_failed, numbers);
        }
    }

    fn change(&mut self, running: Running, anew: bool) -> Result<Vec<Ended>, String> {
        let Running { stacks, readers } = running;
        if self.state == State::Ended {
            // What has been read stays to be asked for.
            return match stacks.iter().all(|stack| self.has(stack)) {
                true => Ok(Vec::new()),
                false => Err("the device has come to its end".to_owned()),
            };
        }
        let stays_over = |stack: &Stack| {
            let is_over = || self.over.iter().any(|(over, _)| over.does_as(stack));
            let has_failed = !anew && self.failures.contains_key(&name_of(stack));
            has_failed && (self.has(stack) || is_over())
        };
        let (over, stacks): (Vec<Stack>, Vec<Stack>) = stacks.into_iter().partition(stays_over);
        let change = self.runner.replace(Program { stacks });
        let change = change.map_err(|error| error.to_string())?;
        for Ended { stack, state, .. } in &change.ended {
            self.write_last(stack, state);
            self.over.push((stack.clone(), state.clone()));
        }
        self.over
            .retain(|(stack, _)| over.iter().any(|over| over.does_as(stack)));
        let names: Vec<String> = over.iter().map(name_of).collect();
        self.failures.retain(|name, _| names.contains(name));
        self.take_failures();
        readers
            .values()
            .for_each(|it| it.set_patience(self.patience));
        self.readers = readers;
        self.tell();
        Ok(change.ended)
    }

    fn has(&self, stack: &Stack) -> bool {
        self.runner.stacks().iter().any(|it| it.does_as(stack))
    }

    /// Lets the components of a stack write what they write when all is known.
    fn write_last(&mut self, stack: &Stack, state: &StackState) {
        let accounts = state
            .components
            .iter()
            .filter_map(|it| it.account.as_deref());
        for last in accounts.filter_map(|account| account.last.as_ref()) {
            let run = RunEnd {
                ledger: &self.ledger(),
                notes: &self.source.notes(),
            };
            if let Err(failure) = last.0.write(&run) {
                self.failures.insert(name_of(stack), failure.message);
            }
        }
    }

    fn shown(&mut self, take: Option<(String, String)>) -> Shown {
        let mut snapshot = self.runner.snapshot();
        let mut over = self.over.clone();
        if let Some((name, label)) = take {
            let is_it = |stack: &Stack| stack.name.as_ref() == Some(&name);
            let place = |stack: &Stack| stack.nodes.iter().position(|node| node.label == label);
            let running = self.runner.stacks().iter().position(is_it);
            if let Some(at) = running
                && let Some(node) = place(&self.runner.stacks()[at])
            {
                let taken = self.runner.take(at, NodeId(node as u32));
                snapshot.stacks[at].components[node].result = taken;
            }
            // What has failed is told once more.
            let mut failed = self.over.iter_mut().filter(|(stack, _)| is_it(stack));
            if let Some((stack, state)) = failed.next()
                && let Some(node) = place(stack)
            {
                state.components[node].result = None;
            }
        }
        let stacks = self.runner.stacks().iter().cloned().zip(snapshot.stacks);
        let stacks = stacks.chain(over.drain(..));
        let stacks = stacks.map(|(stack, state)| {
            let failure = self.failures.get(&name_of(&stack)).cloned();
            (stack, state, failure)
        });
        Shown {
            state: self.state,
            stacks: stacks.collect(),
            ledger: self.ledger(),
            errors: self.errors.clone(),
        }
    }
}

fn name_of(stack: &Stack) -> String {
    stack.name.clone().unwrap_or_default()
}
