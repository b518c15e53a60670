//! A device: the thread that takes its packets through stacks.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_capture::{Error, Filtered, PacketSource, SnapLen};
use flowgauge_runtime::stacks::{Ended, Runner, RunnerOptions, SetupError, StackState};
use flowgauge_stack::{Program, RunEnd, Stack};
use flowgauge_wire::{Ledger, Place};

use crate::config::{DeviceConfig, Speed};
use crate::paced::Paced;
use crate::protocol::{DeviceStatus, Results};
use crate::results::results;

type Source = Box<dyn PacketSource + Send>;

/// An idle interface gives its device a look at what is asked this often.
const TICK_MS: u32 = 5;
/// ... and a device that reads nothing.
const LOOK: Duration = Duration::from_secs(1);
/// Errors of a source that are kept.
const MOST_ERRORS: usize = 16;

/// A source that is open, for a device that does not run yet.
pub(crate) struct Opened {
    pub(crate) config: DeviceConfig,
    source: Source,
    describes: String,
    stop: StopHandle,
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
            source,
            describes,
            stop,
        })
    }

    /// Starts the device with its stacks. If it `holds`, packets come when it is started.
    pub(crate) fn start(
        self,
        name: &str,
        stacks: Vec<Stack>,
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
        };
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
    orders: Sender<Order>,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

/// What its thread is told.
enum Order {
    /// These stacks run from the next packet on, those that failed only if all begin anew; what is known of those that ended
    /// comes back.
    Run(Vec<Stack>, bool, Sender<Result<Vec<Ended>, String>>),
    Show(Sender<Shown>),
    Start,
    Stop,
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
    pub(crate) fn run(&self, stacks: Vec<Stack>, anew: bool) -> Result<Vec<Ended>, String> {
        let (sender, answer) = mpsc::channel();
        let asked = self.orders.send(Order::Run(stacks, anew, sender));
        let gone = || "the device has ended".to_owned();
        asked.map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }

    pub(crate) fn show(&self) -> Option<Shown> {
        let (sender, answer) = mpsc::channel();
        self.orders.send(Order::Show(sender)).ok()?;
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
        self.stop.stop();
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
}

impl Work {
    fn run(&mut self) {
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
                Ok(Order::Run(stacks, anew, answer)) => {
                    let _ = answer.send(self.change(stacks, anew));
                }
                Ok(Order::Show(answer)) => {
                    let _ = answer.send(self.shown());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            match self.state {
                State::Reading => self.read(),
                State::Away if !is_stopping => self.take_again(),
                _ => {}
            }
        }
    }

    fn next_order(&self) -> Result<Order, RecvTimeoutError> {
        if self.state != State::Reading {
            return self.orders.recv_timeout(LOOK);
        }
        self.orders.try_recv().map_err(|error| match error {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Takes a batch through the stacks.
    fn read(&mut self) {
        match self.runner.step(&mut *self.source) {
            Ok(Some(_)) => {}
            Ok(None) if self.interface.is_some() && !self.stop.is_stopped() => {
                self.state = State::Away;
            }
            Ok(None) => self.end(),
            Err(error) => self.note(&error),
        }
        self.take_failures();
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

    fn note(&mut self, error: &Error) {
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

    fn change(&mut self, stacks: Vec<Stack>, anew: bool) -> Result<Vec<Ended>, String> {
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

    fn shown(&mut self) -> Shown {
        let snapshot = self.runner.snapshot();
        let stacks = self.runner.stacks().iter().cloned().zip(snapshot.stacks);
        let stacks = stacks.chain(self.over.iter().cloned());
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
