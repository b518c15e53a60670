//! Events of a shared capture for [`Handlers`], like those of a private one.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_stream::engine::{
    ApplicationConfig, Budget, Counts, EngineStatistics, StreamSnapshot,
};
use flowgauge_wire::{Ledger, Place};

use super::client::Client;
use super::error::Error;
use super::held::Taken;
use crate::application::{Application as HandledBy, Health, Team};
use crate::capture::{Control, Outcome};
use crate::changes::Change;
use crate::handlers::Handlers;
use crate::outlet::{Kind, Lost, Outlet, Parcel};
use crate::threads::{self, Cores, ThreadFailure};
use crate::worker::Seen;
use crate::workers::workers;

/// Time between two looks at whether to stop, where nothing happens. A signal ends the wait.
const TICK: Duration = Duration::from_millis(50);
/// The same while something is kept aside for a worker.
const NAP: Duration = Duration::from_millis(1);
/// Events between two publications of the counters.
const EVENTS: u32 = 64;
/// How long the service may say nothing after it was asked to end.
const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    /// Handles all events on this thread until the capture ends or `control` is stopped. This client then leaves, and
    /// its handlers get partial chunks and the ends of its streams. Requests of handlers take effect immediately for
    /// them, as on a worker thread.
    ///
    /// Each stream starts with a creation and ends with a termination, as with [`Client::next_event`]. Streams without
    /// any event are counted ([`Lost::streams`]).
    ///
    /// Counters are those of this client's streams; the ledger is that of the whole capture since the client joined.
    /// Data that this client does not want but another does is not counted as discarded.
    ///
    /// # Errors
    /// With the outcome so far: [`Error::Ended`] if the capture ended by itself, [`Error::Died`], [`Error::Silent`] if
    /// the service does not confirm the end. Handlers that panicked are in [`Outcome::failures`]; there are no further
    /// events then.
    pub fn run<H: Handlers>(
        mut self,
        handlers: &mut H,
        control: &Control,
    ) -> (Outcome, Result<(), Error>) {
        let health = Health::of(1);
        let budget = Budget::new(self.memory_bytes());
        let teams = vec![Team::of_one(Box::new(handlers), &health)];
        let (outlets, workers) = workers(teams, 1, &budget, false);
        let mut works: Vec<_> = workers
            .into_iter()
            .map(|worker| (worker, Seen::default()))
            .collect();
        let (mut outcome, end) = self.read_for(outlets, &health, control, || {
            for (worker, seen) in &mut works {
                worker.work_off(seen);
            }
        });
        for (worker, seen) in works {
            let handled = worker.run(seen);
            for total in &mut outcome.shards {
                (total.chunks, total.chunk_bytes) = (handled.chunks, handled.bytes);
                total.discarded.bytes += handled.passed_bytes;
            }
        }
        outcome.failures = health.take_failures();
        (outcome, end)
    }

    /// The same on `count` separate threads, at least one, each with its own handlers created by `make`, as with
    /// [`Capture::workers`](crate::Capture::workers): both directions of a connection go to one of them. Events are
    /// read on another thread, pinned to the first of `cores`; workers are pinned to the following ones. Without
    /// `cores`, the calling thread reads.
    ///
    /// A slow worker delays its waiting events, and ring entries after them are not released either: when the ring or
    /// this client's memory is full, events are lost, regardless of whose they are.
    ///
    /// # Errors
    /// As [`Client::run`], and if a thread cannot be started. Handlers that panicked are in [`Outcome::failures`];
    /// there are no further events then.
    pub fn run_on_workers<H: Handlers + 'static>(
        mut self,
        count: usize,
        cores: &Cores,
        mut make: impl FnMut(usize) -> H + Send + 'static,
        control: &Control,
    ) -> (Outcome, Result<(), Error>) {
        let mut applications = [HandledBy {
            config: ApplicationConfig::default(),
            make: Box::new(move |thread| Box::new(make(thread))),
        }];
        let health = Health::of(1);
        let budget = Budget::new(self.memory_bytes());
        let alone = 1;
        let team = |number| Team::new(&mut applications, number, &health);
        let teams = (0..count.max(1)).map(team).collect();
        let (outlets, workers) = workers(teams, alone, &budget, false);
        let mut handled = Vec::new();
        let (mut outcome, end) = thread::scope(|scope| {
            let threads: Result<Vec<_>, _> = workers
                .into_iter()
                .map(|worker| {
                    let number = worker.number;
                    let name = format!("worker-{number}");
                    threads::start(scope, name, cores.of(alone + number), || {
                        worker.run(Seen::default())
                    })
                })
                .collect();
            let threads = match threads {
                Ok(threads) => threads,
                // The others end with the outlet.
                Err(failure) => {
                    drop(outlets);
                    return (Outcome::default(), Err(failed(failure)));
                }
            };
            let health = &health;
            let read = || self.read_for(outlets, health, control, || {});
            let mut ended = match cores.of(0) {
                None => read(),
                core => threads::start(scope, "reader".to_owned(), core, read)
                    .and_then(threads::Running::join)
                    .unwrap_or_else(|failure| (Outcome::default(), Err(failed(failure)))),
            };
            for thread in threads {
                match thread.join() {
                    Ok(statistics) => handled.push(statistics),
                    Err(failure) => ended.1 = ended.1.and(Err(failed(failure))),
                }
            }
            ended
        });
        outcome.workers = handled;
        outcome.failures = health.take_failures();
        (outcome, end)
    }

    /// Gives events to workers until the end. `sent` is called behind each.
    fn read_for(
        &mut self,
        mut outlets: Vec<Outlet>,
        health: &Health,
        control: &Control,
        mut sent: impl FnMut(),
    ) -> (Outcome, Result<(), Error>) {
        let (_, before) = self.statistics();
        let mut streams = Streams::default();
        let ended = self.drive(control, &before, &mut streams, |client, streams| {
            if health.is_over() {
                return Ok(Turn::Over);
            }
            let mut limit = TICK;
            for outlet in &mut outlets {
                let is_aside =
                    outlet.between_events(|order| client.command(order.uid, order.command));
                if is_aside {
                    limit = NAP;
                }
            }
            let taken = client.take_event(Some(limit))?;
            let Some(outlet) = outlets.first_mut() else {
                return Ok(Turn::Over);
            };
            let turn = streams.send(taken, outlet);
            sent();
            Ok(turn)
        });
        if let Some(outlet) = outlets.first_mut() {
            while let Some(stream) = self.lives.end_one() {
                streams.send(Taken::Terminated(stream), outlet);
                sent();
            }
        }
        outlets.iter_mut().for_each(Outlet::finish);
        (self.outcome(&streams, &before), ended)
    }

    /// Takes turns until the end.
    fn drive(
        &mut self,
        control: &Control,
        before: &Ledger,
        streams: &mut Streams,
        mut turn: impl FnMut(&mut Client, &mut Streams) -> Result<Turn, Error>,
    ) -> Result<(), Error> {
        let mut leaving: Option<Instant> = None;
        let mut unpublished = 0;
        let mut changes = control.changes(1);
        control.grant(self.memory_bytes());
        loop {
            for changes in &mut changes {
                changes.each(|change| match change {
                    Change::Application(_, change) => {
                        // What is out of bounds changes nothing, and is counted.
                        if self.change(|wanted| change(wanted)).is_err() {
                            self.refuse();
                        }
                    }
                    Change::BaseThreshold(share) => self.set_base_threshold(share),
                    Change::OverloadCutoff(cutoff) => self.set_overload_cutoff(cutoff),
                    // These are the capturing process's.
                    Change::Policies(_) => {}
                });
            }
            if leaving.is_none() && control.is_stopped() {
                leaving = Some(Instant::now());
                self.leave();
            }
            let is_idle = match turn(self, streams) {
                Ok(Turn::Event) => {
                    leaving = leaving.map(|_| Instant::now());
                    false
                }
                Ok(Turn::Idle) => true,
                Ok(Turn::Over) => break Ok(()),
                Ok(Turn::End(_)) if leaving.is_some() => break Ok(()),
                Ok(Turn::End(reason)) => {
                    let interface = self.interface().to_owned();
                    break Err(Error::Ended { interface, reason });
                }
                Err(error) => break Err(error),
            };
            unpublished += 1;
            if is_idle || unpublished == EVENTS {
                unpublished = 0;
                let outcome = self.outcome(streams, before);
                // Of which streams something may still come is not known yet.
                let lost = Lost {
                    streams: 0,
                    ..outcome.lost
                };
                control.publish(0, outcome.ledger, streams.total, lost);
                control.grant(self.memory_bytes());
            }
            if is_idle && leaving.is_some_and(|since| since.elapsed() > PATIENCE) {
                let interface = self.interface().to_owned();
                break Err(Error::Silent { interface });
            }
        }
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
                streams: own.lost_created.saturating_sub(self.lives.made_up()),
                commands: own.refused_commands,
            },
            ..Outcome::default()
        }
    }
}

/// What came of a turn.
enum Turn {
    Event,
    Idle,
    /// The capture is over.
    End(String),
    /// Nobody is left to work for.
    Over,
}

fn failed(failure: ThreadFailure) -> Error {
    Error::system("run the threads of a client of the shared capture")(match failure {
        ThreadFailure::NotStarted { source, .. } => source,
        other => std::io::Error::other(other.to_string()),
    })
}

/// What was counted from one moment to another.
fn since(now: &Ledger, before: &Ledger) -> Ledger {
    let mut ledger = Ledger::default();
    let more = |of: fn(&Ledger) -> u64| of(now).saturating_sub(of(before));
    ledger.take(more(Ledger::delivered), more(Ledger::delivered_bytes));
    for &place in Place::ALL {
        ledger.miss(place, now.at(place).saturating_sub(before.at(place)));
    }
    ledger
}

/// What is known of the streams here, by the place of their number that is used again.
#[derive(Debug, Default)]
struct Streams {
    known: HashMap<u32, Known>,
    total: EngineStatistics,
}

/// What of a stream is counted.
#[derive(Debug, Default)]
struct Known {
    uid: u64,
    all: Counts,
    lost: Counts,
    unwanted: Counts,
}

impl Streams {
    /// Sends an event to the worker that has its stream.
    fn send(&mut self, taken: Taken, outlet: &mut Outlet) -> Turn {
        let (stream, kind) = match taken {
            Taken::Created(stream) => (stream, Kind::Created),
            Taken::Data(stream, chunk) => (stream, Kind::Data(Parcel::Shared(chunk))),
            Taken::Terminated(stream) => (stream, Kind::Terminated),
            Taken::Idle => return Turn::Idle,
            Taken::End(reason) => return Turn::End(reason),
        };
        self.count(&stream);
        match &kind {
            Kind::Created => self.total.created += 1,
            Kind::Data(chunk) => {
                self.total.chunks += 1;
                self.total.chunk_bytes += chunk.bytes().len() as u64;
            }
            Kind::Terminated => {
                self.total.terminated += 1;
                self.known.remove(&(stream.uid as u32));
            }
        }
        outlet.deliver(stream, kind, u64::MAX);
        Turn::Event
    }

    fn known(&mut self, uid: u64) -> &mut Known {
        let known = self.known.entry(uid as u32).or_default();
        if known.uid != uid {
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
        let all = now.all.without(core::mem::replace(&mut known.all, now.all));
        let lost = now
            .dropped
            .without(core::mem::replace(&mut known.lost, now.dropped));
        let unwanted = now
            .discarded
            .without(core::mem::replace(&mut known.unwanted, now.discarded));
        self.total.all += all;
        self.total.dropped += lost;
        self.total.discarded += unwanted;
    }
}
