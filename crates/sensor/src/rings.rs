//! The rings of an interface: each is read on a worker's thread, and is there for longer than the interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flowgauge_capture::live::StopHandle;
use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_wire::{Batch, Ledger};
use parking_lot::Mutex;

use crate::device::Source;

/// How often a ring without an interface looks for another.
const LOOK: Duration = Duration::from_millis(5);

/// What a device knows of its rings.
#[derive(Clone, Default)]
pub(crate) struct Rings {
    all: Vec<Arc<State>>,
    interfaces: Vec<Interface>,
}

#[derive(Default)]
struct State {
    ledger: Mutex<Ledger>,
    is_behind: AtomicBool,
    /// Its interface has gone.
    is_away: AtomicBool,
    /// What it goes on with.
    next: Mutex<Option<Source>>,
}

/// A ring on the thread of its worker.
struct Ring {
    source: Source,
    /// What sources before this one had.
    earlier: Ledger,
    state: Arc<State>,
    stop: StopHandle,
}

impl Rings {
    /// Those that are open, and what their workers read.
    pub(crate) fn new(sources: Vec<Source>, stop: &StopHandle) -> (Rings, Vec<Source>) {
        let mut rings = Rings {
            interfaces: sources
                .first()
                .map_or(&[][..], |it| it.interfaces())
                .to_vec(),
            all: Vec::new(),
        };
        let read = sources.into_iter().map(|source| {
            let state = Arc::<State>::default();
            rings.all.push(Arc::clone(&state));
            Box::new(Ring {
                source,
                earlier: Ledger::default(),
                state,
                stop: stop.clone(),
            }) as Source
        });
        let read = read.collect();
        (rings, read)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u16 {
        self.all.len() as u16
    }

    /// Whether the interface has gone away.
    pub(crate) fn are_away(&self) -> bool {
        self.all.iter().all(|it| it.is_away.load(Ordering::Acquire))
    }

    /// It is back.
    pub(crate) fn go_on(&self, sources: Vec<Source>) {
        for (ring, source) in self.all.iter().zip(sources) {
            *ring.next.lock() = Some(source);
            ring.is_away.store(false, Ordering::Release);
        }
    }
}

/// What is known of all of them. The packets their workers read.
impl PacketSource for Rings {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        Ok(None)
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn is_behind(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|ring| ring.is_behind.load(Ordering::Relaxed))
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = Ledger::default();
        for ring in &self.all {
            ledger.merge(&ring.ledger.lock());
        }
        ledger
    }
}

impl PacketSource for Ring {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        if let Some(source) = self.state.next.lock().take() {
            self.earlier.merge(&self.source.ledger());
            self.source = source;
        } else if self.state.is_away.load(Ordering::Acquire) {
            if self.stop.is_stopped() {
                return Ok(None);
            }
            thread::sleep(LOOK);
            return Ok(Some(Batch::new(&[], &[])));
        }
        let is_behind = self.source.is_behind();
        self.state.is_behind.store(is_behind, Ordering::Relaxed);
        match self.source.next_batch()? {
            Some(batch) => Ok(Some(batch)),
            None if self.stop.is_stopped() => Ok(None),
            None => {
                self.state.is_away.store(true, Ordering::Release);
                Ok(Some(Batch::new(&[], &[])))
            }
        }
    }

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.earlier.clone();
        ledger.merge(&self.source.ledger());
        self.state.ledger.lock().clone_from(&ledger);
        ledger
    }
}
