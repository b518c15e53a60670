//! Workers with one source each: the rings of an interface, to which the kernel distributes flows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_capture::{Error, PacketSource};
use flowgauge_wire::Ledger;

use super::board::{Answered, Board, Counts};
use super::lane::Lane;
use super::part::Common;
use crate::reader::Reader;

/// Batches between two times that a thread writes down how far it is.
const BATCHES_PER_NOTE: u64 = 256;

/// A source that a thread may have.
pub(super) type OwnSource = Box<dyn PacketSource + Send>;

/// Status of the sources that workers read.
#[derive(Debug, Default)]
pub struct SourceReport {
    /// What became of their packets.
    pub ledger: Ledger,
    /// Damage and failures.
    pub errors: Vec<Error>,
    /// Notes about the input.
    pub notes: Vec<String>,
}

/// What a thread that reads a source of its own writes down.
#[derive(Debug, Default)]
pub(super) struct Reading {
    state: Mutex<SourceReport>,
    is_over: AtomicBool,
    /// It goes on where no stack wants packets.
    lasts: bool,
}

impl Reading {
    pub(super) fn new(lasts: bool) -> Reading {
        Reading {
            lasts,
            ..Reading::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, SourceReport> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Adds what is known to a report; errors are told once.
    pub(super) fn tell(&self, report: &mut SourceReport) {
        let mut state = self.lock();
        report.ledger.merge(&state.ledger);
        report.errors.append(&mut state.errors);
        report.notes.extend(state.notes.iter().cloned());
    }
}

/// Says that a source is over, however its thread ends.
struct Ending<'a>(&'a Reading, &'a Common);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.1.notify();
    }
}

/// A thread that takes the packets of its own source through a lane. A source ends of its own accord. Returns what goes on
/// elsewhere.
pub(super) fn run_own(
    mut lane: Lane,
    mut source: OwnSource,
    mut reader: Box<Reader>,
    reading: &Arc<Reading>,
    common: &Common,
    board: &Board,
) -> Option<(Lane, OwnSource, Box<Reader>)> {
    let ending = Ending(reading, common);
    let mut answered = Answered::default();
    let mut batches: u64 = 0;
    while reading.lasts || lane.wants_packets() {
        if board.is_paused() {
            reading.lock().ledger = source.ledger();
            core::mem::forget(ending);
            return Some((lane, source, reader));
        }
        let mut is_idle = false;
        let step = reader.lent(&mut source, |packets, pieces, time| {
            is_idle = packets.batch.is_empty();
            lane.packets(packets, pieces, time);
            lane.send();
        });
        match step {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => reading.lock().errors.push(error),
        }
        batches += 1;
        if is_idle || batches.is_multiple_of(BATCHES_PER_NOTE) || board.is_asked(&answered) {
            reading.lock().ledger = source.ledger();
        }
        board.answer(&mut answered, &mut lane);
    }
    lane.finish();
    {
        let mut state = reading.lock();
        state.ledger = source.ledger();
        state.notes = source.notes();
    }
    board.write(&mut answered, true, |give| lane.counts(give));
    drop(ending);
    None
}
