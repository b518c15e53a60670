//! Packets from sources into a sink: what `flowgauge capture` does all the time.

use std::path::PathBuf;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use flowgauge_capture::{Error, Interface, PacketSink, PacketSource};
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor, Place};
use parking_lot::Mutex;

use crate::control::Control;
use crate::failure::Failure;
use crate::input::Source;
use crate::say::say;
use crate::summary::{self, Outcome};

/// Batches after which a thread tells the others its ledger.
const BATCHES_PER_LOOK: u64 = 256;

/// Where packets are written: a file, several one after the other, or a ring of them.
pub(crate) type Sink = dyn PacketSink + Send;

fn say_preserved(files: &[PathBuf]) {
    if files.is_empty() {
        say!("preserved: nothing yet, the ring is empty");
        return;
    }
    let names: Vec<String> = files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    say!("preserved: {}", names.join(", "));
}

/// Names the files that joined those of the trigger.
fn say_joined(sink: &mut Sink) {
    let joined = sink.take_preserved();
    if !joined.is_empty() {
        say_preserved(&joined);
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
            given: Amount::default(),
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
    let mut state = shared.state.into_inner();
    let mut outcome = Outcome {
        ledger: state.ledger(),
        errors: state.errors,
        notes: sources.iter().flat_map(|source| source.notes()).collect(),
        ..Outcome::default()
    };
    state.sink.set_ledger(&outcome.ledger);
    if let Err(error) = state.sink.close() {
        state.failure.get_or_insert(error);
    }
    say_joined(state.sink);
    outcome.elapsed = started.elapsed();
    let written = state.sink.written();
    let lost = Amount {
        packets: state.given.packets.saturating_sub(written.packets),
        bytes: state.given.bytes.saturating_sub(written.wire_bytes),
    };
    if lost.packets > 0 {
        let ledger = &mut outcome.ledger;
        let packets = lost.packets.min(ledger.delivered());
        ledger.refuse(Place::Sink, packets, lost.bytes);
    }
    match state.failure {
        None => Ok(outcome),
        // Whoever read the pipe has seen enough.
        Some(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(outcome)
        }
        Some(error) => {
            say!("{}", summary::ledger_line(&outcome.ledger));
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
    /// What the sink was given and is expected to have written.
    given: Amount,
    errors: Vec<Error>,
    failure: Option<Error>,
}

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn of(packets: &[PacketDescriptor]) -> Amount {
        Amount {
            packets: packets.len() as u64,
            bytes: packets.iter().map(|one| u64::from(one.wire_len)).sum(),
        }
    }
}

impl<'s> Shared<'s> {
    fn copy_one(&self, number: usize, source: &mut Source) {
        // Numbers of the source's interfaces among those of all sources.
        let mut numbers: Vec<u16> = Vec::new();
        let mut renumbered: Vec<PacketDescriptor> = Vec::new();
        let mut batches = 0u64;
        let mut unwanted = Amount::default();
        // A live source ends of its own accord when it is stopped, after the packets in its ring.
        while self.live || !self.control.stopped() {
            if source.interfaces().len() > numbers.len() || batches == 0 {
                self.state
                    .lock()
                    .add_interfaces(source.interfaces(), &mut numbers);
            }
            let more = match source.next_batch() {
                Ok(Some(batch)) => {
                    let batch = renumber(batch, &numbers, &mut renumbered);
                    self.state.lock().write(&batch, self.live, &mut unwanted)
                }
                Ok(None) => false,
                Err(error) => {
                    self.state.lock().errors.push(error);
                    true
                }
            };
            if !more {
                break;
            }
            batches += 1;
            if batches.is_multiple_of(BATCHES_PER_LOOK) {
                self.publish(number, source, unwanted);
            }
            self.answer_signals(number, source, unwanted);
        }
        self.publish(number, source, unwanted);
    }

    /// Tells the source's ledger. Packets after the planned end were never received, as with -c.
    fn publish(&self, number: usize, source: &mut Source, unwanted: Amount) {
        let mut ledger = source.ledger();
        ledger.leave_out(unwanted.packets, unwanted.bytes);
        if let Some(place) = self.state.lock().ledgers.get_mut(number) {
            *place = ledger;
        }
    }

    fn answer_signals(&self, number: usize, source: &mut Source, unwanted: Amount) {
        if self.control.trigger_wanted() {
            let mut state = self.state.lock();
            // Live, `--ring-after` counts from now; in what is read, from the last packet.
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = since.map_or(0, |since| since.as_nanos() as u64);
            let time = if self.live { Nanos(now) } else { Nanos::ZERO };
            match state.sink.trigger(time) {
                Ok(preserved) => preserved.iter().for_each(|files| say_preserved(files)),
                Err(error) => _ = state.failure.get_or_insert(error),
            }
        }
        if self.control.statistics_wanted() {
            self.publish(number, source, unwanted);
            let ledger = self.state.lock().ledger();
            say!("{}", summary::ledger_line(&ledger));
            summary::print_statistics(&ledger, &[], self.started.elapsed());
        }
    }
}

impl State<'_> {
    /// Makes the interfaces of a source known to the sink; those of the same name and link type,
    /// as of workers that share an interface, are one.
    fn add_interfaces(&mut self, interfaces: &[Interface], numbers: &mut Vec<u16>) {
        for interface in interfaces.iter().skip(numbers.len()) {
            // Only workers share interfaces; files describe them by the thousand.
            let mut known = self.interfaces.iter();
            let same = match &interface.name {
                Some(name) if self.ledgers.len() > 1 => known.position(|known| {
                    known.name.as_ref() == Some(name) && known.link == interface.link
                }),
                _ => None,
            };
            let number = same.unwrap_or(self.interfaces.len());
            if same.is_none() {
                self.interfaces.push(interface.clone());
            }
            numbers.push(u16::try_from(number).unwrap_or(u16::MAX));
        }
        if let Err(error) = self.sink.set_interfaces(&self.interfaces) {
            self.failure.get_or_insert(error);
        }
    }

    /// Writes a batch; false when no more is wanted. Packets of it that come after the planned end
    /// (`-W` files of `-G` seconds) are stated in `unwanted`.
    fn write(&mut self, batch: &Batch<'_>, live: bool, unwanted: &mut Amount) -> bool {
        let sink = &mut *self.sink;
        if sink.is_full() {
            *unwanted = Amount::of(batch.packets);
            return false;
        }
        let amount = Amount::of(batch.packets);
        self.given.packets += amount.packets;
        self.given.bytes += amount.bytes;
        if self.failure.is_some() {
            return false;
        }
        let result = sink.write(batch);
        let result = if live && batch.is_empty() {
            result.and_then(|()| sink.flush())
        } else {
            result
        };
        if let Ok(()) = result {
            say_joined(sink);
        }
        match result {
            Ok(()) if sink.is_full() => {
                // All that was given before is written, so what is missing is this batch's end.
                let missing = self.given.packets - sink.written().packets;
                let taken = batch.len().saturating_sub(missing as usize);
                *unwanted = Amount::of(batch.packets.get(taken..).unwrap_or(&[]));
                self.given.packets -= unwanted.packets;
                self.given.bytes -= unwanted.bytes;
                false
            }
            Ok(()) => true,
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
