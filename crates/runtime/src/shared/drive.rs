//! Events of a shared capture for [`Handlers`], as those of a private one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use flowgauge_stream::engine::{
    ChunkFlags, Command, Counts, Cutoff, EngineStatistics, StreamSnapshot,
};
use flowgauge_wire::{Ledger, Place};

use super::client::{Client, EventKind, Next, SharedChunk, SharedEvent, SharedStream};
use super::error::Error;
use crate::capture::{Control, Outcome};
use crate::changes::Change;
use crate::handlers::{Chunk, Handlers, Remote, StreamHandle};
use crate::outlet::Lost;
use crate::worker::is_before;

/// Time between two looks at whether to stop, where nothing happens. A signal ends the wait.
const TICK: Duration = Duration::from_millis(50);
/// Events between two publications of the counters.
const EVENTS: u32 = 64;
/// How long the service may say nothing after it was asked to end.
const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// Handles all events, in this thread, until the capture is over or `control` is stopped: then
    /// this client leaves, and what its streams have in partial chunks and their ends still come.
    /// What handlers ask for holds at once for them, as on a worker thread.
    ///
    /// Counters are those of this client's streams; where its packets went is said of the whole
    /// capture since it joined. What one client does not want and another does is not counted as
    /// discarded.
    ///
    /// # Errors
    /// With the outcome so far: [`Error::Ended`] when the capture ended by itself, [`Error::Died`],
    /// [`Error::Silent`] when it does not let go.
    pub fn run<H: Handlers>(
        mut self,
        handlers: &mut H,
        control: &Control,
    ) -> (Outcome, Result<(), Error>) {
        let (_, before) = self.statistics();
        let mut streams = Streams::default();
        let mut leaving: Option<Instant> = None;
        let mut unpublished = 0;
        let mut changes = control.changes(1);
        let end = loop {
            for changes in &mut changes {
                changes.each(|change| {
                    // The rest is the capturing process's; what is out of bounds changes nothing.
                    if let Change::Application(_, change) = change {
                        let _ = self.change(|wanted| change(wanted));
                    }
                });
            }
            if leaving.is_none() && control.is_stopped() {
                leaving = Some(Instant::now());
                if let Err(error) = self.leave() {
                    break Err(error);
                }
            }
            let is_idle = match self.next_event(Some(TICK)) {
                Ok(Next::Event(event)) => {
                    streams.handle(&event, handlers);
                    leaving = leaving.map(|_| Instant::now());
                    false
                }
                Ok(Next::Idle) => true,
                Ok(Next::End(_)) if leaving.is_some() => break Ok(()),
                Ok(Next::End(reason)) => {
                    let interface = self.interface().to_owned();
                    break Err(Error::Ended { interface, reason });
                }
                Err(error) => break Err(error),
            };
            unpublished += 1;
            if is_idle || unpublished == EVENTS {
                unpublished = 0;
                let outcome = self.outcome(&streams, &before);
                control.publish(0, outcome.ledger, streams.total);
            }
            if is_idle && leaving.is_some_and(|since| since.elapsed() > PATIENCE) {
                let interface = self.interface().to_owned();
                break Err(Error::Silent { interface });
            }
        };
        handlers.finish();
        (self.outcome(&streams, &before), end)
    }

    /// What everything came to.
    fn outcome(&self, streams: &Streams, before: &Ledger) -> Outcome {
        let (own, ledger) = self.statistics();
        let lost = own.lost_data();
        Outcome {
            ledger: since(&ledger, before),
            shards: vec![streams.total],
            lost: Lost {
                chunks: lost.events,
                bytes: lost.bytes,
            },
            ..Outcome::default()
        }
    }
}

/// What was counted from one moment to another.
fn since(now: &Ledger, before: &Ledger) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.delivered = now.delivered.saturating_sub(before.delivered);
    ledger.delivered_bytes = now.delivered_bytes.saturating_sub(before.delivered_bytes);
    ledger.received = ledger.delivered;
    for place in Place::ALL {
        let packets = now.at(place).saturating_sub(before.at(place));
        ledger.received += packets;
        ledger.count(place, packets);
    }
    ledger
}

/// What is known of the streams here, by the place of their number that is used again.
#[derive(Debug, Default)]
struct Streams {
    known: HashMap<u32, Known>,
    total: EngineStatistics,
}

/// What the handlers changed of a stream, which the service may not know yet, and what of it is
/// counted.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    uid: u64,
    cutoff: Option<Cutoff>,
    priority: Option<u8>,
    discarded: bool,
    all: Counts,
    lost: Counts,
    unwanted: Counts,
}

impl Streams {
    fn handle<H: Handlers>(&mut self, event: &SharedEvent<'_>, handlers: &mut H) {
        let SharedEvent { stream, kind } = event;
        let uid = stream.snapshot().uid;
        let mut remote = Remote::new(*stream.snapshot());
        self.count(stream.snapshot());
        self.known(uid).apply_to(&mut remote.snapshot);
        match kind {
            EventKind::Created => {
                self.total.created += 1;
                handlers.created(&mut StreamHandle::there(&mut remote, 0));
            }
            EventKind::Data(chunk) => self.data(stream, chunk, &mut remote, handlers),
            EventKind::Terminated => {
                self.total.terminated += 1;
                self.known.remove(&(uid as u32));
                handlers.terminated(&mut StreamHandle::there(&mut remote, 0));
                remote.commands.clear();
            }
        }
        let own = remote.commands.iter().map(|&command| (uid, command));
        for (uid, command) in own.chain(remote.others) {
            let there = self.known.get(&(uid as u32));
            if !there.is_some_and(|there| is_before(uid, there.uid)) {
                self.known(uid).note(command);
            }
            stream.apply_to(uid, command);
        }
    }

    fn data<H: Handlers>(
        &mut self,
        stream: &SharedStream<'_>,
        chunk: &SharedChunk<'_>,
        remote: &mut Remote,
        handlers: &mut H,
    ) {
        let mut info = chunk.info();
        // What was on its way when the handlers lost interest.
        let wanted = remote.snapshot.cutoff.0.saturating_sub(info.offset);
        if remote.snapshot.is_discarded || wanted <= u64::from(info.repeated) {
            return;
        }
        let mut bytes = chunk.bytes();
        if wanted < bytes.len() as u64 {
            bytes = bytes.get(..wanted as usize).unwrap_or(bytes);
            info.flags = info.flags.with(ChunkFlags::CUTOFF);
        }
        self.total.chunks += 1;
        self.total.chunk_bytes += bytes.len() as u64;
        handlers.data(
            &mut StreamHandle::there(remote, 0),
            &mut Chunk::shared(chunk, bytes, info),
        );
        if remote.kept {
            stream.keep_chunk();
        }
    }

    fn known(&mut self, uid: u64) -> &mut Known {
        let known = self.known.entry(uid as u32).or_default();
        if known.uid != uid {
            // Whoever had the place before has ended unheard.
            *known = Known {
                uid,
                ..Known::default()
            };
        }
        known
    }

    /// Adds what a stream has more than when it was last seen.
    fn count(&mut self, stream: &StreamSnapshot) {
        let now = &stream.statistics;
        let known = self.known(stream.uid);
        let before = core::mem::replace(
            known,
            Known {
                all: now.all,
                lost: now.dropped,
                unwanted: now.discarded,
                ..*known
            },
        );
        self.total.all += now.all.without(before.all);
        self.total.dropped += now.dropped.without(before.lost);
        self.total.discarded += now.discarded.without(before.unwanted);
    }
}

impl Known {
    fn note(&mut self, command: Command) {
        match command {
            Command::SetCutoff(cutoff) => self.cutoff = Some(cutoff),
            Command::SetPriority(priority) => self.priority = Some(priority),
            Command::Discard => self.discarded = true,
            Command::SetParameter(_) | Command::SetUserState(_) | Command::AddProcessingTime(_) => {
            }
        }
    }

    fn apply_to(&self, snapshot: &mut StreamSnapshot) {
        snapshot.cutoff = self.cutoff.unwrap_or(snapshot.cutoff);
        snapshot.priority = self.priority.unwrap_or(snapshot.priority);
        snapshot.is_discarded |= self.discarded;
    }
}
