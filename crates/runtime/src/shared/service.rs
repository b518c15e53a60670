//! The process that captures for others.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_stream::engine::{Engine, EngineConfig};
use flowgauge_sys::local::{self, Listener};
use flowgauge_sys::shared::Pool;
use flowgauge_sys::{privileges, process};
use flowgauge_wire::{Ledger, LinkType};

use super::attention::{Guest, LOOK, say_last};
use super::codec::Wire as _;
use super::error::Error;
use super::member::Members;
use super::protocol::{MESSAGE_BYTES, Reply};

/// What a service is told.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// The user whose processes may join, beside root's.
    pub owner: u32,
    /// A group whose members may join, too.
    pub group: Option<u32>,
    /// How long to stay when the last client has gone.
    pub grace: Duration,
    /// The stream engine, its memory for partial chunks and waiting segments among it.
    pub engine: EngineConfig,
    /// Bytes of chunks that all clients together may let wait. A client gets half of what is left at most, so
    /// that there is some for the next.
    pub pool_bytes: u64,
}

impl Default for ServiceConfig {
    /// For the user of this process; two seconds of grace, and a pool of a quarter of the machine's
    /// memory, one GiB where that is not known.
    fn default() -> ServiceConfig {
        ServiceConfig {
            owner: process::user(),
            group: None,
            grace: Duration::from_secs(2),
            engine: EngineConfig::default(),
            pool_bytes: process::machine_memory().map_or(1 << 30, |bytes| bytes / 4),
        }
    }
}

/// How long a connection may take to join.
pub(super) const GUEST_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at the sockets while packets come: so long, or so many times what the look before
/// took. What clients ask for cannot take more than a ninth of the time.
const ATTENTION: Duration = Duration::from_millis(1);
const PAUSES: u32 = 8;
/// Time between two looks at the counters of the kernel.
const COUNTING: Duration = Duration::from_millis(100);
/// How long whoever started this process may take to come, before it is told that there is no capture.
const COMING: Duration = Duration::from_secs(2);
/// How long clients may take all in all to read what is left when the capture is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Captures on `interface` for the clients that come to `listener`, until the last one has gone or
/// `stop` is triggered. When it is root, it becomes `user` once the interface is open.
///
/// # Errors
/// When the interface cannot be opened; whoever waits at the listener, or comes soon, is told.
pub fn serve_interface(
    listener: Listener,
    interface: &str,
    user: Option<&str>,
    config: ServiceConfig,
    stop: &StopHandle,
) -> Result<Served, Error> {
    match OpenedService::open(interface, user, config) {
        Ok(opened) => Ok(opened.run(listener, stop)),
        Err(error) => {
            turn_away(&listener, &error.in_one_line(), COMING);
            Err(error)
        }
    }
}

/// Tells those who wait at `listener` that there will be no capture, and why. Where nobody waits yet, the
/// first who comes within `patience`: who has started this process is about to.
pub fn turn_away(listener: &Listener, reason: &str, patience: Duration) {
    let refused = Reply::Refused(reason.to_owned()).encoded();
    let _ = local::wait_any(&[listener.as_fd()], Some(patience));
    while let Ok(Some(connection)) = listener.accept() {
        say_last(&connection, &refused);
    }
}

/// A service that has all it needs of the system: its interface is open, its pool made, and root given up.
#[derive(Debug)]
pub struct OpenedService {
    source: LiveSource,
    pool: Pool,
    config: ServiceConfig,
}

impl OpenedService {
    /// Opens `interface`. When this process is root, it becomes `user` then.
    ///
    /// # Errors
    /// When the interface cannot be opened, there is no memory for the pool, or root cannot be given up.
    pub fn open(
        interface: &str,
        user: Option<&str>,
        config: ServiceConfig,
    ) -> Result<OpenedService, Error> {
        Ok(OpenedService {
            source: open(interface, user)?,
            pool: Service::pool(&config)?,
            config,
        })
    }

    /// Captures for whoever comes to `listener`, until the last one has gone or `stop` is triggered.
    pub fn run(self, listener: Listener, stop: &StopHandle) -> Served {
        Service::with_pool(listener, self.config, self.pool).run(self.source, stop)
    }
}

/// How a service ended.
#[derive(Debug)]
pub struct Served {
    /// Where the packets went.
    pub ledger: Ledger,
    /// What the source broke off with, if it did.
    pub failure: Option<flowgauge_capture::Error>,
}

fn open(interface: &str, user: Option<&str>) -> Result<LiveSource, Error> {
    let mut live = LiveConfig::new(interface);
    // New clients wait this long at most where there is no packet.
    live.tick_ms = 20;
    let source = LiveSource::open(&live).map_err(Error::Interface)?;
    if privileges::is_root()
        && let Some(user) = user
    {
        privileges::drop_to(user).map_err(Error::system("give up root"))?;
    }
    process::harden().map_err(Error::system("give up rights"))?;
    Ok(source)
}

/// A capture for several processes: a source, one engine, one pool, and a ring for each client.
#[derive(Debug)]
pub struct Service {
    pub(super) listener: Listener,
    pub(super) config: ServiceConfig,
    pub(super) engine: Engine,
    pub(super) members: Members,
    pub(super) guests: Vec<Guest>,
    pub(super) links: Vec<LinkType>,
    pub(super) ledger: Ledger,
    /// Since when there is nobody.
    alone: Instant,
    looked: Option<Instant>,
    /// How long to leave the sockets alone after that.
    pause: Duration,
    counted: Option<Instant>,
    pub(super) epoch: u64,
    /// Connections so far.
    pub(super) came: u64,
    /// The number of the connection that was heard last.
    pub(super) heard: u64,
    /// The message at hand.
    pub(super) message: Box<[u8]>,
}

impl Service {
    /// A service for whoever comes to `listener`.
    ///
    /// # Errors
    /// When there is no memory for the pool.
    pub fn new(listener: Listener, config: ServiceConfig) -> Result<Service, Error> {
        let pool = Service::pool(&config)?;
        Ok(Service::with_pool(listener, config, pool))
    }

    fn pool(config: &ServiceConfig) -> Result<Pool, Error> {
        // The chunk at hand is nobody's.
        let bytes = config.pool_bytes.saturating_add(2 * Pool::LARGEST as u64);
        Pool::new(bytes).map_err(Error::system("make the shared pool"))
    }

    fn with_pool(listener: Listener, config: ServiceConfig, pool: Pool) -> Service {
        Service {
            listener,
            engine: Engine::new(config.engine.clone()),
            config,
            members: Members::new(pool),
            guests: Vec::new(),
            links: Vec::new(),
            ledger: Ledger::default(),
            alone: Instant::now(),
            looked: None,
            pause: ATTENTION,
            counted: None,
            epoch: 0,
            came: 0,
            heard: 0,
            message: vec![0; MESSAGE_BYTES].into(),
        }
    }

    /// Captures until the last client has gone, the source ends, or `stop` is triggered. Where the
    /// packets went.
    pub fn serve<S: PacketSource>(self, source: S, stop: &StopHandle) -> Ledger {
        self.run(source, stop).ledger
    }

    /// [`Service::serve`], with what the source broke off with, if it did.
    fn run<S: PacketSource>(mut self, mut source: S, stop: &StopHandle) -> Served {
        self.links = links_of(&source);
        let mut failure = None;
        let reason = loop {
            if stop.is_stopped() {
                break "it was told to stop".to_owned();
            }
            let idle = match source.next_batch() {
                Ok(Some(batch)) => {
                    self.engine.process(&batch, &mut self.members);
                    batch.is_empty()
                }
                Ok(None) => break "the input is over".to_owned(),
                Err(error) => break failure.insert(error).to_string(),
            };
            self.members.settle();
            self.count(&mut source, idle);
            if idle || self.looked.is_none_or(|at| at.elapsed() >= self.pause) {
                let began = Instant::now();
                self.attend(began + LOOK);
                self.pause = pause_after(began.elapsed());
                self.looked = Some(Instant::now());
                if self.is_over() {
                    // Whoever comes now finds nobody, and starts another service.
                    break "nobody uses it".to_owned();
                }
            }
        };
        Served {
            ledger: self.finish(&mut source, &reason),
            failure,
        }
    }

    /// Whether there is nobody, and has not been for long enough.
    fn is_over(&mut self) -> bool {
        if !self.members.list.is_empty() || !self.guests.is_empty() {
            self.alone = Instant::now();
            return false;
        }
        // It was started for somebody.
        let grace = match self.epoch {
            0 => self.config.grace.max(GUEST_LIMIT),
            _ => self.config.grace,
        };
        self.alone.elapsed() >= grace
    }

    fn finish<S: PacketSource>(mut self, source: &mut S, reason: &str) -> Ledger {
        self.members.be_patient(LAST_WORDS);
        self.engine.finish(&mut self.members);
        self.members.settle_all();
        self.count(source, true);
        let ended = Reply::Ended(reason.to_owned()).encoded();
        for member in &self.members.list {
            say_last(&member.connection, &ended);
        }
        for guest in &self.guests {
            say_last(&guest.connection, &ended);
        }
        self.ledger
    }

    /// Reads the counters, now and then while packets come.
    fn count<S: PacketSource>(&mut self, source: &mut S, idle: bool) {
        if !idle && self.counted.is_some_and(|at| at.elapsed() < COUNTING) {
            return;
        }
        self.counted = Some(Instant::now());
        self.ledger = source.ledger().through(self.engine.ledger());
        self.members.show(&self.ledger);
    }
}

/// How long packets come first after a look that took so long.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSES).max(ATTENTION)
}

/// Link types to compile filters for: those of the interfaces, the usual ones where there is none
/// yet, and that of reassembled datagrams.
fn links_of<S: PacketSource>(source: &S) -> Vec<LinkType> {
    let mut links: Vec<LinkType> = source.interfaces().iter().map(|one| one.link).collect();
    if links.is_empty() {
        links.push(LinkType::ETHERNET);
    }
    links.push(LinkType::RAW);
    links.sort_by_key(|link| *link != LinkType::ETHERNET);
    links.dedup();
    links
}

#[cfg(test)]
mod tests;
