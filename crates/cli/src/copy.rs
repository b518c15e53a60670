//! Packets from sources into a sink: what `flowgauge capture` does all the time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use flowgauge_capture::sink::Written;
use flowgauge_capture::{Error, FileSink, Interface, PacketSink, PacketSource, RingSink};
use flowgauge_wire::{Batch, Ledger, PacketDescriptor, Place};

use crate::control::Control;
use crate::failure::Failure;
use crate::input::Source;
use crate::summary::{self, Outcome};

/// Batches after which a thread tells the others its ledger.
const BATCHES_PER_LOOK: u64 = 256;

/// Where packets are written.
pub(crate) enum Sink {
    /// A file, or several one after the other.
    File(FileSink),
    /// A ring of files.
    Ring(RingSink),
}

impl Sink {
    fn packets(&mut self) -> &mut (dyn PacketSink + Send) {
        match self {
            Sink::File(sink) => sink,
            Sink::Ring(sink) => sink,
        }
    }

    /// What was written so far.
    pub(crate) fn written(&self) -> Written {
        match self {
            Sink::File(sink) => sink.written(),
            Sink::Ring(sink) => sink.written(),
        }
    }

    /// SIGUSR2: preserves what a ring holds, and hands the buffer of a file to the system.
    fn trigger(&mut self) -> Result<(), Error> {
        let Sink::Ring(ring) = self else {
            return self.packets().flush();
        };
        let preserved = ring.trigger()?;
        let names: Vec<String> = preserved
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        eprintln!("preserved: {}", names.join(", "));
        Ok(())
    }
}

/// Writes every packet until the end of input, a signal, or the last file of `-W`. Several sources
/// are read by a thread each and meet at the sink, batch by batch.
///
/// # Errors
/// When writing fails.
pub(crate) fn copy(
    sources: &mut [Source],
    sink: &mut Sink,
    control: &Control,
    live: bool,
) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let shared = Shared {
        state: Mutex::new(State {
            sink,
            interfaces: Vec::new(),
            ledgers: vec![Ledger::default(); sources.len()],
            given: 0,
            errors: Vec::new(),
            failure: None,
        }),
        control,
        live,
        started,
    };
    if let [source] = sources {
        shared.copy_one(0, source);
    } else {
        thread::scope(|scope| {
            for (number, source) in sources.iter_mut().enumerate() {
                let shared = &shared;
                scope.spawn(move || shared.copy_one(number, source));
            }
        });
    }
    let state = shared.state.into_inner();
    let mut state = state.unwrap_or_else(PoisonError::into_inner);
    let mut outcome = Outcome {
        ledger: state.ledger(),
        errors: state.errors,
        ..Outcome::default()
    };
    let sink = state.sink.packets();
    sink.set_ledger(&outcome.ledger);
    if let Err(error) = sink.close() {
        state.failure.get_or_insert(error);
    }
    outcome.elapsed = started.elapsed();
    let lost = state.given.saturating_sub(state.sink.written().packets);
    if lost > 0 {
        let lost = lost.min(outcome.ledger.delivered);
        outcome.ledger.refuse(Place::Sink, lost, 0);
    }
    match state.failure {
        None => Ok(outcome),
        // Whoever read the pipe has seen enough.
        Some(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(outcome)
        }
        Some(error) => {
            eprintln!("{}", summary::ledger_line(&outcome.ledger));
            Err(Failure::running(&error))
        }
    }
}

/// What the threads share.
struct Shared<'a> {
    state: Mutex<State<'a>>,
    control: &'a Control,
    live: bool,
    started: Instant,
}

struct State<'a> {
    sink: &'a mut Sink,
    /// Interfaces of all sources, as the sink knows them.
    interfaces: Vec<Interface>,
    ledgers: Vec<Ledger>,
    given: u64,
    errors: Vec<Error>,
    failure: Option<Error>,
}

impl<'s> Shared<'s> {
    fn copy_one(&self, number: usize, source: &mut Source) {
        // Numbers of the source's interfaces among those of all sources.
        let mut numbers: Vec<u16> = Vec::new();
        let mut renumbered: Vec<PacketDescriptor> = Vec::new();
        let mut batches = 0u64;
        // A live source ends of its own accord when it is stopped, after the packets in its ring.
        while self.live || !self.control.stopped() {
            if source.interfaces().len() > numbers.len() || batches == 0 {
                self.lock()
                    .add_interfaces(source.interfaces(), &mut numbers);
            }
            let more = match source.next_batch() {
                Ok(Some(batch)) => {
                    let batch = renumber(batch, &numbers, &mut renumbered);
                    self.lock().write(&batch, self.live)
                }
                Ok(None) => false,
                Err(error) => {
                    self.lock().errors.push(error);
                    true
                }
            };
            if !more {
                break;
            }
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_LOOK) {
                self.publish(number, source);
            }
            self.answer_signals(number, source);
        }
        self.publish(number, source);
    }

    fn publish(&self, number: usize, source: &mut Source) {
        let ledger = source.ledger();
        if let Some(place) = self.lock().ledgers.get_mut(number) {
            *place = ledger;
        }
    }

    fn answer_signals(&self, number: usize, source: &mut Source) {
        if self.control.trigger_wanted() {
            let mut state = self.lock();
            if let Err(error) = state.sink.trigger() {
                state.failure.get_or_insert(error);
            }
        }
        if self.control.statistics_wanted() {
            self.publish(number, source);
            let ledger = self.lock().ledger();
            eprintln!("{}", summary::ledger_line(&ledger));
            summary::print_statistics(&ledger, &[], self.started.elapsed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'s>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State<'_> {
    /// Makes the interfaces of a source known to the sink; those of the same name and link type,
    /// as of workers that share an interface, are one.
    fn add_interfaces(&mut self, interfaces: &[Interface], numbers: &mut Vec<u16>) {
        for interface in interfaces.iter().skip(numbers.len()) {
            let same = self.interfaces.iter().position(|known| {
                known.name.is_some()
                    && known.name == interface.name
                    && known.link == interface.link
                    && self.ledgers.len() > 1
            });
            let number = same.unwrap_or(self.interfaces.len());
            if same.is_none() {
                self.interfaces.push(interface.clone());
            }
            numbers.push(u16::try_from(number).unwrap_or(u16::MAX));
        }
        if let Err(error) = self.sink.packets().set_interfaces(&self.interfaces) {
            self.failure.get_or_insert(error);
        }
    }

    /// Writes a batch; false when no more is wanted.
    fn write(&mut self, batch: &Batch<'_>, live: bool) -> bool {
        let sink = self.sink.packets();
        if self.failure.is_some() || sink.is_full() {
            return false;
        }
        self.given += batch.len() as u64;
        let result = sink.write(batch);
        let result = if live && batch.is_empty() {
            result.and_then(|()| sink.flush())
        } else {
            result
        };
        match result {
            Ok(()) => !sink.is_full(),
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    fn ledger(&self) -> Ledger {
        let mut total = Ledger::default();
        for ledger in &self.ledgers {
            total.merge(ledger);
        }
        total
    }
}

/// The batch with the interfaces' numbers among those of all sources; a copy of the descriptors is
/// made only where they differ.
fn renumber<'a>(
    mut batch: Batch<'a>,
    numbers: &[u16],
    renumbered: &'a mut Vec<PacketDescriptor>,
) -> Batch<'a> {
    if numbers
        .iter()
        .enumerate()
        .all(|(n, &to)| n == usize::from(to))
    {
        return batch;
    }
    renumbered.clear();
    renumbered.extend(batch.packets.iter().map(|packet| {
        PacketDescriptor {
            interface: numbers
                .get(usize::from(packet.interface))
                .copied()
                .unwrap_or(packet.interface),
            ..*packet
        }
    }));
    batch.packets = renumbered;
    batch
}
