//! What captures for others.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_capture::{Error as CaptureError, Interface, PacketSource, as_source_within};
use flowgauge_stream::engine::{Engine, EngineConfig};
use flowgauge_sys::local::{self, Connection, Listener, Peer};
use flowgauge_sys::process;
use flowgauge_sys::shared::Pool;
use flowgauge_wire::{Batch, Ledger, LinkType};

use super::attention::{Guest, LOOK, say_last};
use super::codec::Wire as _;
use super::error::Error;
use super::member::Members;
use super::protocol::{MESSAGE_BYTES, Reply};

/// Says why somebody may not join, if so.
pub type Admission = Arc<dyn Fn(&Connection, Peer) -> Result<(), String> + Send + Sync>;

/// What a service is told.
#[derive(Clone)]
pub struct ServiceConfig {
    /// Who may join.
    pub admission: Admission,
    /// How long to stay when the last client has gone; without, until the source ends.
    pub grace: Option<Duration>,
    /// The stream engine, its memory for partial chunks and waiting segments among it.
    pub engine: EngineConfig,
    /// Bytes of chunks that all clients together may let wait. A client gets half of what is left at most, so
    /// that there is some for the next.
    pub pool_bytes: u64,
}

impl ServiceConfig {
    /// For those whom `admission` admits, with a pool of a quarter of the machine's memory, one GiB where that is not known.
    pub fn new(admission: Admission) -> ServiceConfig {
        ServiceConfig {
            admission,
            grace: None,
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
/// How long clients may take all in all to read what is left when the capture is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Tells those who wait at `listener` that there will be no capture, and why. Where nobody waits yet, the
/// first who comes within `patience`: who has started this process is about to.
pub fn turn_away(listener: &Listener, reason: &str, patience: Duration) {
    let refused = Reply::Refused(reason.to_owned()).encoded();
    let _ = local::wait_any(&[listener.as_fd()], Some(patience));
    while let Ok(Some(connection)) = listener.accept() {
        say_last(&connection, &refused);
    }
}

/// A capture for several processes: one engine, one pool, and a ring for each client.
pub struct Service {
    pub(super) listener: Arc<Listener>,
    pub(super) config: ServiceConfig,
    pub(super) engine: Engine,
    pub(super) members: Members,
    pub(super) guests: Vec<Guest>,
    pub(super) links: Vec<LinkType>,
    pub(super) ledger: Ledger,
    /// Packets of engines before this one, and those that came while there was nobody.
    earlier: Ledger,
    /// Since when there is nobody.
    alone: Instant,
    looked: Option<Instant>,
    /// How long to leave the sockets alone after that.
    pause: Duration,
    counted: Option<Instant>,
    /// Whether the last batch was empty.
    is_idle: bool,
    pub(super) epoch: u64,
    /// Connections so far.
    pub(super) came: u64,
    /// The number of the connection that was heard last.
    pub(super) heard: u64,
    /// The message at hand.
    pub(super) message: Box<[u8]>,
}

impl Service {
    /// A service for whoever comes to `listener`, of packets of these interfaces.
    ///
    /// # Errors
    /// When there is no memory for the pool.
    pub fn new(
        listener: Arc<Listener>,
        config: ServiceConfig,
        interfaces: &[Interface],
    ) -> Result<Service, Error> {
        // The chunk at hand is nobody's.
        let bytes = config.pool_bytes.saturating_add(2 * Pool::LARGEST as u64);
        let pool = Pool::new(bytes).map_err(Error::system("make the shared pool"))?;
        Ok(Service {
            listener,
            engine: Engine::new(config.engine.clone()),
            config,
            members: Members::new(pool),
            guests: Vec::new(),
            links: links_of(interfaces),
            ledger: Ledger::default(),
            earlier: Ledger::default(),
            alone: Instant::now(),
            looked: None,
            pause: ATTENTION,
            counted: None,
            is_idle: true,
            epoch: 0,
            came: 0,
            heard: 0,
            message: vec![0; MESSAGE_BYTES].into(),
        })
    }

    /// The source, whose packets go to the clients, too, as they are read.
    pub fn tap<'a, S: PacketSource + ?Sized>(&'a mut self, source: &'a mut S) -> Tap<'a, S> {
        Tap {
            source,
            service: self,
        }
    }

    /// Looks after the clients, now and then while packets come. Returns whether the last one has gone, and the grace with it:
    /// whoever comes now is to find nobody.
    pub fn attend_to<S: PacketSource + ?Sized>(&mut self, source: &mut S) -> bool {
        self.count(source, self.is_idle);
        if !self.is_idle && self.looked.is_some_and(|at| at.elapsed() < self.pause) {
            return false;
        }
        let began = Instant::now();
        self.attend(began + LOOK);
        self.pause = pause_after(began.elapsed());
        self.looked = Some(Instant::now());
        if self.members.list.is_empty() && self.engine.ledger().received() > 0 {
            // Nobody is there whom its streams concern.
            self.earlier.merge(self.engine.ledger());
            self.engine = Engine::new(self.config.engine.clone());
        }
        self.is_over()
    }

    /// Whether there is nobody, and has not been for long enough.
    fn is_over(&mut self) -> bool {
        if !self.members.list.is_empty() || !self.guests.is_empty() {
            self.alone = Instant::now();
            return false;
        }
        // It was started for somebody.
        let grace = self.config.grace.map(|grace| match self.epoch {
            0 => grace.max(GUEST_LIMIT),
            _ => grace,
        });
        grace.is_some_and(|grace| self.alone.elapsed() >= grace)
    }

    /// The capture is over: clients get what is left, and `reason`. Returns where the packets went.
    pub fn finish<S: PacketSource + ?Sized>(mut self, source: &mut S, reason: &str) -> Ledger {
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
    fn count<S: PacketSource + ?Sized>(&mut self, source: &mut S, idle: bool) {
        if !idle && self.counted.is_some_and(|at| at.elapsed() < COUNTING) {
            return;
        }
        self.counted = Some(Instant::now());
        let mut taken = self.earlier.clone();
        taken.merge(self.engine.ledger());
        self.ledger = source.ledger().through(&taken);
        self.members.show(&self.ledger);
    }
}

/// A source whose packets go to the clients of a service, too.
pub struct Tap<'a, S: ?Sized> {
    source: &'a mut S,
    service: &'a mut Service,
}

impl<S: PacketSource + ?Sized> PacketSource for Tap<'_, S> {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, CaptureError> {
        let batch = self.source.next_batch()?;
        if let Some(batch) = &batch {
            let service = &mut *self.service;
            service.is_idle = batch.is_empty();
            match service.members.list.is_empty() {
                true => {
                    let bytes = batch.packets.iter().map(|one| u64::from(one.wire_len));
                    let packets = batch.packets.len() as u64;
                    service.earlier.take(packets, bytes.sum());
                }
                false => {
                    service.engine.process(batch, &mut service.members);
                    service.members.settle();
                }
            }
        }
        Ok(batch)
    }

    fn ledger(&mut self) -> Ledger {
        self.source.ledger()
    }

    as_source_within!(source);
}

/// How long packets come first after a look that took so long.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSES).max(ATTENTION)
}

/// Link types to compile filters for: those of the interfaces, the usual ones where there is none
/// yet, and that of reassembled datagrams.
fn links_of(interfaces: &[Interface]) -> Vec<LinkType> {
    let mut links: Vec<LinkType> = interfaces.iter().map(|one| one.link).collect();
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
