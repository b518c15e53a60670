//! The process that captures for others.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use flowgauge_capture::PacketSource;
use flowgauge_capture::live::{LiveConfig, LiveSource, StopHandle};
use flowgauge_stream::engine::{Command, Engine, EngineConfig, MAX_APPLICATIONS};
use flowgauge_sys::local::{self, Connection, Listener, Peer};
use flowgauge_sys::shared::Pool;
use flowgauge_sys::{privileges, process};
use flowgauge_wire::{Ledger, LinkType, Place};

use super::application::{Application, Filters};
use super::error::Error;
use super::member::{Member, Members};
use super::protocol::{Join, MESSAGE_BYTES, Reply, Request};
use super::statistics::Status;

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
    /// Bytes of chunks that all clients together may let wait.
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
            pool_bytes: memory_total().map_or(1 << 30, |bytes| bytes / 4),
        }
    }
}

/// Connections that have not joined.
const MOST_GUESTS: usize = 64;
/// Connections of clients that have left and still read.
const MOST_MEMBERS: usize = 2 * MAX_APPLICATIONS;
/// How long a connection may take to join.
const GUEST_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at the sockets while packets come: so long, or so many times what the look
/// before took, up to a limit. What clients ask for cannot take more than a ninth of the time.
const ATTENTION: Duration = Duration::from_millis(1);
const PAUSES: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Time between two looks at the counters of the kernel.
const COUNTING: Duration = Duration::from_millis(100);
/// Connections accepted at a time: whoever connects without end must not keep the capture from its
/// packets.
const MOST_WELCOMES: usize = 8;
/// What may be heard at a time, of all connections together, in bytes of messages; a message counts
/// as [`LEAST_COST`] at least.
const MOST_HEARD: usize = 64 << 10;
const LEAST_COST: usize = 1 << 10;
/// How long clients may take all in all to read what is left when the capture is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Captures on `interface` for the clients that come to `listener`, until the last one has gone or
/// `stop` is triggered. When it is root, it becomes `user` once the interface is open.
///
/// # Errors
/// When the interface cannot be opened; whoever waits at the listener is told.
pub fn serve_interface(
    listener: Listener,
    interface: &str,
    user: Option<&str>,
    config: ServiceConfig,
    stop: &StopHandle,
) -> Result<Served, Error> {
    let opened = open(interface, user);
    let source = match opened {
        Ok(source) => source,
        Err(error) => {
            turn_away(&listener, &error.to_string());
            return Err(error);
        }
    };
    let pool = match Service::pool(&config) {
        Ok(pool) => pool,
        Err(error) => {
            turn_away(&listener, &error.to_string());
            return Err(error);
        }
    };
    Ok(Service::with_pool(listener, config, pool).run(source, stop))
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
    let source = LiveSource::open(&live).map_err(|error| {
        let hint = error.hint().map(|hint| format!("; hint: {hint}"));
        Error::Refused {
            interface: interface.to_owned(),
            reason: format!("{error}{}", hint.unwrap_or_default()),
        }
    })?;
    if privileges::is_root()
        && let Some(user) = user
    {
        privileges::drop_to(user).map_err(Error::system("give up root"))?;
    }
    process::harden().map_err(Error::system("give up rights"))?;
    Ok(source)
}

/// Tells those who wait that there will be no capture.
fn turn_away(listener: &Listener, reason: &str) {
    while let Ok(Some(connection)) = listener.accept() {
        say_last(&connection, &Reply::Refused(reason.to_owned()).encode());
    }
}

/// A capture for several processes: a source, one engine, one pool, and a ring for each client.
#[derive(Debug)]
pub struct Service {
    listener: Listener,
    config: ServiceConfig,
    engine: Engine,
    members: Members,
    guests: Vec<Guest>,
    links: Vec<LinkType>,
    ledger: Ledger,
    /// Since when there is nobody.
    alone: Instant,
    looked: Option<Instant>,
    /// How long to leave the sockets alone after that.
    pause: Duration,
    counted: Option<Instant>,
    epoch: u64,
    /// The message at hand.
    message: Box<[u8]>,
}

/// A connection that has not joined yet.
#[derive(Debug)]
struct Guest {
    connection: Connection,
    peer: Peer,
    filters: Filters,
    since: Instant,
}

/// What becomes of a guest after a message.
enum Fate {
    Stays,
    Goes(Option<String>),
    Joins(Box<Join>),
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
                self.attend();
                let took = began.elapsed().saturating_mul(PAUSES);
                self.pause = took.clamp(ATTENTION, LONGEST_PAUSE);
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
        self.members.settle();
        self.count(source, true);
        let ended = Reply::Ended(reason.to_owned()).encode();
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
        self.ledger = merged(source.ledger(), self.engine.ledger());
        self.members.show(&self.ledger);
    }

    /// Looks after the sockets: who comes, who says something, who has gone.
    fn attend(&mut self) {
        let list = &self.members.list;
        let files: Vec<BorrowedFd<'_>> = core::iter::once(self.listener.as_fd())
            .chain(self.guests.iter().map(|guest| guest.connection.as_fd()))
            .chain(list.iter().map(|one| one.connection.as_fd()))
            .chain(list.iter().filter_map(Member::process))
            .collect();
        let Ok(ready) = local::wait_any(&files, Some(Duration::ZERO)) else {
            return;
        };
        let (new, rest) = ready.split_first().unwrap_or((&false, &[]));
        let (guests, rest) = rest.split_at(self.guests.len());
        let (members, ended) = rest.split_at(list.len());
        // Whose process has ended is gone, even where a child of it has the connection, too.
        let mut ended = ended.iter();
        let gone: Vec<bool> = list
            .iter()
            .map(|one| {
                let has_ended = one.process().is_some() && ended.next() == Some(&true);
                one.lied || has_ended
            })
            .collect();
        // Each that has something to say is heard, and none for long.
        let talkers = guests.iter().chain(members).filter(|&&ready| ready);
        let share = MOST_HEARD / talkers.count().max(1);
        // From the last to the first: places before stay what they are.
        for (at, (ready, gone)) in members.iter().zip(gone).enumerate().rev() {
            // What it said last counts, that it leaves, say.
            let stays = !*ready || self.hear_member(at, share);
            if gone || !stays {
                self.dismiss(at);
            }
        }
        for (at, ready) in guests.iter().enumerate().rev() {
            let late = self.guests[at].since.elapsed() > GUEST_LIMIT;
            if *ready || late {
                self.hear_guest(at, late, share);
            }
        }
        if *new {
            self.welcome();
        }
    }

    /// Lets in who waits.
    fn welcome(&mut self) {
        for _ in 0..MOST_WELCOMES {
            let Ok(Some(connection)) = self.listener.accept() else {
                return;
            };
            let Ok(peer) = connection.peer() else {
                continue;
            };
            if !self.may_join(&connection, peer) {
                let why = format!(
                    "user {} may not use it; hint: its owner is user {}",
                    peer.user, self.config.owner
                );
                say_last(&connection, &Reply::Refused(why).encode());
                continue;
            }
            let welcome = Reply::Welcome {
                process: std::process::id(),
                links: self.links.clone(),
            };
            if connection.send(&welcome.encode()).is_ok() {
                if self.guests.len() >= MOST_GUESTS {
                    self.make_room();
                }
                self.guests.push(Guest {
                    connection,
                    peer,
                    filters: Filters::default(),
                    since: Instant::now(),
                });
            }
        }
    }

    /// Too many have come without joining: of the user with the most such connections, and of that
    /// one's process with the most, the first has to go. So who joins at once gets in, whatever
    /// others do.
    fn make_room(&mut self) {
        let count = |same: &dyn Fn(Peer) -> bool| {
            let guests = self.guests.iter();
            guests.filter(|guest| same(guest.peer)).count()
        };
        let crowd = |guest: &Guest| {
            let own = guest.peer;
            let user = count(&|peer| peer.user == own.user);
            let process = count(&|peer| (peer.user, peer.process) == (own.user, own.process));
            (user, process)
        };
        let crowds: Vec<_> = self.guests.iter().map(crowd).collect();
        let most = crowds.iter().max();
        if let Some(at) = most.and_then(|most| crowds.iter().position(|one| one == most)) {
            let guest = self.guests.remove(at);
            let why = "too many connections that do not join".to_owned();
            say_last(&guest.connection, &Reply::Refused(why).encode());
        }
    }

    fn may_join(&self, connection: &Connection, peer: Peer) -> bool {
        if peer.user == 0 || peer.user == self.config.owner {
            return true;
        }
        self.config.group.is_some_and(|group| {
            peer.group == group
                || connection
                    .peer_groups()
                    .is_ok_and(|groups| groups.contains(&group))
        })
    }

    fn hear_guest(&mut self, at: usize, late: bool, share: usize) {
        let fate = match late {
            true => Fate::Goes(Some("it took too long to join".to_owned())),
            false => self.converse(at, share),
        };
        match fate {
            Fate::Stays => {}
            Fate::Goes(why) => {
                let guest = self.guests.remove(at);
                if let Some(why) = why {
                    say_last(&guest.connection, &Reply::Refused(why).encode());
                }
            }
            Fate::Joins(join) => {
                let guest = self.guests.remove(at);
                self.join(guest, &join);
            }
        }
    }

    fn converse(&mut self, at: usize, mut share: usize) -> Fate {
        let Some(guest) = self.guests.get_mut(at) else {
            return Fate::Stays;
        };
        loop {
            let request = match receive(&guest.connection, &mut self.message, &mut share) {
                Heard::Request(request) => request,
                Heard::Nothing => return Fate::Stays,
                Heard::Nonsense => return Fate::Goes(Some("not understood".to_owned())),
                Heard::End => return Fate::Goes(None),
            };
            match request {
                Request::Filter {
                    number,
                    link,
                    program,
                } => {
                    if !guest.filters.add(number, link, program) {
                        return Fate::Goes(Some("too many or too long filters".to_owned()));
                    }
                }
                Request::Join(join) => return Fate::Joins(join),
                Request::Status => {
                    let status = status(&self.members, &self.ledger);
                    let _ = guest.connection.send(&status.encode());
                }
                Request::Commands(_) | Request::Change(_) | Request::Thresholds(_) => {
                    return Fate::Goes(Some("join first".to_owned()));
                }
                Request::Leave => return Fate::Goes(None),
            }
        }
    }

    fn join(&mut self, guest: Guest, join: &Join) {
        let Guest {
            connection,
            peer,
            filters,
            ..
        } = guest;
        let refuse = |connection: &Connection, why: String| {
            say_last(connection, &Reply::Refused(why).encode());
        };
        let config = match filters.configuration(join) {
            Ok(config) => config,
            Err(why) => return refuse(&connection, why),
        };
        let free = self
            .config
            .pool_bytes
            .saturating_sub(self.members.promised());
        let least = join.least_memory.max(Application::LEAST_MEMORY);
        if free < least.min(join.memory_bytes) {
            let why = format!(
                "{} bytes of memory are wanted, {free} are left; hint: ask for less",
                least.min(join.memory_bytes)
            );
            return refuse(&connection, why);
        }
        let added = match self.members.list.len() < MOST_MEMBERS {
            true => (self.engine).add_for_packets(config, join.need_packets && join.wants_data),
            false => None,
        };
        let Some(application) = added else {
            let why = format!("it has {} clients already", self.members.list.len());
            return refuse(&connection, why);
        };
        self.epoch += 1;
        let member = match Member::new(connection, peer, join, application, self.epoch, free) {
            Ok(member) => member,
            Err(_) => return self.engine.remove(application),
        };
        let reply = Reply::Joined {
            application: application.0,
            memory: member.memory(),
        };
        let [ring, page] = member.ring().files();
        let files = [self.members.pool.file(), ring, page];
        if member
            .connection
            .send_files(&reply.encode(), &files)
            .is_err()
        {
            return self.engine.remove(application);
        }
        self.members.add(member);
        self.members.show(&self.ledger);
    }

    /// Takes what a client says; false when it has gone or should.
    fn hear_member(&mut self, at: usize, mut share: usize) -> bool {
        loop {
            let Some(member) = self.members.list.get_mut(at) else {
                return false;
            };
            let request = match receive(&member.connection, &mut self.message, &mut share) {
                Heard::Request(request) => request,
                Heard::Nothing => return true,
                Heard::Nonsense => {
                    let why = "not understood".to_owned();
                    say_last(&member.connection, &Reply::Ended(why).encode());
                    return false;
                }
                Heard::End => return false,
            };
            match request {
                Request::Commands(commands) => {
                    for (uid, command) in commands {
                        let admitted = match command {
                            Command::SetParameter(parameter) => member.admits(parameter),
                            Command::SetPriority(priority) => {
                                member.uses_priority(priority);
                                true
                            }
                            _ => true,
                        };
                        match (admitted, member.application) {
                            // Of a stream that has ended meanwhile it is too late.
                            (true, Some(application)) => {
                                self.engine.command(uid, application, command);
                            }
                            (true, None) => {}
                            (false, _) => member.refuse_command(),
                        }
                    }
                }
                Request::Change(terms) => match (member.agrees(terms), member.application) {
                    (Some(terms), Some(application)) => {
                        self.engine
                            .change(application, |wanted| terms.apply_to(wanted));
                    }
                    (Some(_), None) => {}
                    (None, _) => member.refuse_command(),
                },
                Request::Thresholds(thresholds) => member.set_thresholds(thresholds),
                Request::Status => {
                    let reply = status(&self.members, &self.ledger);
                    if let Some(member) = self.members.list.get(at) {
                        let _ = member.connection.send(&reply.encode());
                    }
                }
                Request::Leave => self.leave(at),
                Request::Filter { .. } | Request::Join(_) => return false,
            }
        }
    }

    /// A client wants no further events. It stays connected until it has read what is there.
    fn leave(&mut self, at: usize) {
        if let Some(application) = self
            .members
            .list
            .get(at)
            .and_then(|member| member.application)
        {
            // The last partial chunks and the ends of its streams, as at the end of a capture.
            self.engine.retire(application, &mut self.members);
        }
        self.members.retire(at);
        self.members.settle();
        self.members.show(&self.ledger);
        if let Some(member) = self.members.list.get(at) {
            let _ = member.connection.send(&Reply::Left.encode());
        }
    }

    /// A client has gone.
    fn dismiss(&mut self, at: usize) {
        if let Some(application) = self.members.retire(at) {
            self.engine.remove(application);
        }
        self.members.remove(at);
    }
}

/// What there is to hear from a connection.
enum Heard {
    Request(Request),
    Nothing,
    Nonsense,
    End,
}

/// Takes the next message, as long as its connection may be heard: `share` becomes less with each.
fn receive(connection: &Connection, message: &mut [u8], share: &mut usize) -> Heard {
    if *share == 0 {
        return Heard::Nothing;
    }
    match connection.receive(message) {
        Ok(len) => {
            *share = share.saturating_sub(len.max(LEAST_COST));
            let message = message.get(..len).unwrap_or(message);
            Request::decode(message).map_or(Heard::Nonsense, Heard::Request)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

/// Says something before the connection is closed.
fn say_last(connection: &Connection, message: &[u8]) {
    let _ = connection.send(message);
    connection.stop_receiving();
}

fn status(members: &Members, ledger: &Ledger) -> Reply {
    let status = Status {
        process: std::process::id(),
        ledger: ledger.clone(),
        pool_in_use: members.pool.in_use(),
        pool_touched: members.pool.touched(),
        clients: members.list.iter().map(Member::status).collect(),
    };
    Reply::Status(status.encode())
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

/// A source's ledger with what the engine refused of the packets that the source delivered.
fn merged(source: Ledger, engine: &Ledger) -> Ledger {
    let mut ledger = source;
    let mut bytes = ledger
        .delivered_bytes
        .saturating_sub(engine.delivered_bytes);
    for place in Place::ALL {
        let packets = engine.at(place);
        if packets > 0 {
            ledger.refuse(place, packets, core::mem::take(&mut bytes));
        }
    }
    ledger
}

/// The machine's memory in bytes.
fn memory_total() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}
