//! The service that captures for other programs, which join, send requests and leave; packets come first.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use flowgauge_capture::PacketSource;
use flowgauge_flow::FlowConfig;
use flowgauge_sensor_client::programs::{ClientStatus, OpenedCapture, SharingStatus, send_notice};
use flowgauge_sensor_client::protocol::Answer;
use flowgauge_stack::engine::Applications;
use flowgauge_stream::ShardConfig;
use flowgauge_stream::engine::{
    ApplicationId, Command, Engine, Events, MAX_APPLICATIONS, Parameter,
};
use flowgauge_sys::local::Connection;
use flowgauge_sys::shared::Pool;
use flowgauge_wire::{Ledger, Nanos};

use super::application::admitted;
use super::asked::{Program, Said};
use super::error::Error;
use super::grant::granted;
use super::member::{Member, Members};

/// How long the first may take to join.
const COMING: Duration = Duration::from_secs(10);
/// Clients, those among them that have left and still read.
const MOST_MEMBERS: usize = 2 * MAX_APPLICATIONS;
/// Time between two looks at the counters of the kernel.
const COUNTING: Duration = Duration::from_millis(100);
/// How long clients may take all in all to read what is left when the capture is over.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Bytes of what is said last at most.
const LONGEST_REASON: usize = 1024;

/// A capture for several processes: one engine, one pool, and a ring per client.
pub struct Service {
    /// Bytes of chunks that all clients together may let wait. A client gets half of what is left at most, so
    /// that there is some for the next.
    pool_bytes: u64,
    /// How long to stay when the last client has gone; without, until the source ends.
    grace: Option<Duration>,
    /// Whether one user must leave places to others.
    for_many: bool,
    engine: Engine,
    /// Whether the engine below is that of stacks, too.
    is_shared: bool,
    members: Members,
    ledger: Ledger,
    /// Packets that had come before this engine.
    earlier: Ledger,
    /// Since when there is nobody.
    alone: Instant,
    counted: Option<Instant>,
    epoch: u64,
}

impl Service {
    /// A service without clients, `for_many` users or one, whose waiting chunks may use this many bytes in total. It
    /// ends when no clients are left for the `grace`; without a grace, when its source ends.
    ///
    /// # Errors
    /// There is no memory for the pool.
    pub fn new(pool_bytes: u64, grace: Option<Duration>, for_many: bool) -> Result<Service, Error> {
        // The chunk at hand is nobody's.
        let bytes = pool_bytes.saturating_add(2 * Pool::LARGEST as u64);
        let pool = Pool::new(bytes).map_err(Error::system("make the shared pool"))?;
        Ok(Service {
            pool_bytes,
            grace,
            for_many,
            engine: engine(),
            is_shared: false,
            members: Members::new(pool),
            ledger: Ledger::default(),
            earlier: Ledger::default(),
            alone: Instant::now(),
            counted: None,
            epoch: 0,
        })
    }

    /// Adds a program, given the number of its flow and the ledger of the source at this time. Returns the answer, with
    /// the pool, the ring and the page.
    ///
    /// # Errors
    /// The reason why it cannot join.
    pub fn join(
        &mut self,
        number: u64,
        program: Program,
        source: &Ledger,
    ) -> Result<(OpenedCapture, Vec<OwnedFd>), String> {
        let left = self.pool_bytes.saturating_sub(self.members.promised());
        let memory = granted(&program, left)?;
        self.has_place_for(program.user)?;
        if !self.can_wait(program.config.inactivity_timeout) {
            return Err("stacks whose streams end earlier have the same engine".to_owned());
        }
        let added = match self.members.list.len() < MOST_MEMBERS {
            true => self.engine.add_for_packets(
                program.config.clone(),
                program.need_packets && program.wants_data,
            ),
            false => None,
        };
        let Some(application) = added else {
            let list = &self.members.list;
            let applications = list.iter().filter(|one| one.application.is_some()).count();
            return Err(no_room(list.len(), applications));
        };
        if self.members.list.is_empty() {
            self.earlier = Ledger::default();
            let (packets, bytes) = (source.delivered(), source.delivered_bytes());
            self.earlier.take(packets, bytes);
            self.ledger = source.clone();
        }
        self.epoch += 1;
        let member = Member::new(number, program, application, self.epoch, memory);
        let given = member.and_then(|member| {
            let [ring, page] = member.ring().files();
            let files = [self.members.pool.file(), ring, page];
            let files = files.map(|file| file.try_clone_to_owned());
            let files = files.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok((member, files))
        });
        let (member, files) = given.map_err(|error| {
            self.engine.remove(application);
            Error::system("make room for events")(error).to_string()
        })?;
        self.members.add(member);
        self.members.show(&self.ledger);
        let opened = OpenedCapture {
            number,
            process: std::process::id(),
            application: application.0,
            memory,
        };
        Ok((opened, files))
    }

    /// Whether streams can be waited for so long: what stacks have in common with programs is theirs.
    fn can_wait(&self, timeout: Option<Nanos>) -> bool {
        let FlowConfig {
            tcp_idle,
            udp_idle,
            other_idle,
            ..
        } = FlowConfig::default();
        let least = tcp_idle.min(udp_idle).min(other_idle);
        !self.is_shared || timeout.is_none_or(|timeout| timeout <= least)
    }

    /// Whether a user may have one more program: of the places that other users leave at most half, where they are for several
    /// users.
    ///
    /// # Errors
    /// Why not.
    fn has_place_for(&self, user: u64) -> Result<(), String> {
        let list = self.members.list.iter();
        let (own, others): (Vec<_>, Vec<_>) = list
            .filter(|member| member.application.is_some())
            .partition(|member| member.is_of(user));
        let most = (MAX_APPLICATIONS - others.len()).div_ceil(2);
        match !self.for_many || own.len() < most {
            true => Ok(()),
            false => Err(format!(
                "{} programs of this user share it already, half of the places that others leave; hint: end some",
                own.len()
            )),
        }
    }

    /// Executes a client's request.
    pub fn hear(&mut self, number: u64, said: Said) {
        let Some(at) = self.members.at(number) else {
            return;
        };
        match said {
            Said::Commands(commands) => {
                for (uid, command) in commands {
                    self.obey(at, uid, command);
                }
            }
            Said::Change(wanted) => {
                let can_wait = self.can_wait(wanted.inactivity_timeout);
                let Some(member) = self.members.list.get_mut(at) else {
                    return;
                };
                let agreed = admitted(&wanted, member.wants_data, member.memory());
                let agreed = agreed
                    .ok()
                    .filter(|wanted| can_wait && member.agrees(wanted));
                let is_made = agreed.is_some_and(|agreed| {
                    // Who has left wants nothing any more.
                    let application = member.application;
                    application.is_none_or(|application| {
                        self.engine.change(application, |wanted| *wanted = agreed)
                    })
                });
                if !is_made {
                    member.refuse_command();
                }
            }
            Said::Lose(thresholds) => {
                if let Some(member) = self.members.list.get_mut(at) {
                    member.set_thresholds(thresholds);
                }
            }
            Said::Leave => self.leave(at, Answer::Left),
            Said::End(why) => self.leave(at, last(&why)),
            Said::Refused => {
                if let Some(member) = self.members.list.get_mut(at) {
                    member.refuse_command();
                }
            }
        }
    }

    /// Does what a client says of a stream.
    fn obey(&mut self, at: usize, uid: u64, command: Command) {
        let can_wait = match command {
            Command::SetParameter(Parameter::InactivityTimeout(timeout)) => self.can_wait(timeout),
            _ => true,
        };
        let Some(member) = self.members.list.get_mut(at) else {
            return;
        };
        // Of a stream that has ended meanwhile it is too late.
        let Some(application) = member.application else {
            return;
        };
        let admitted = match command {
            Command::SetParameter(parameter) => {
                let now = self.engine.chunk_parameters(uid, application);
                can_wait && member.admits(parameter, now)
            }
            Command::SetPriority(priority) => {
                member.uses_priority(priority);
                true
            }
            _ => true,
        };
        match admitted {
            true => {
                self.engine.command(uid, application, command);
            }
            false => member.refuse_command(),
        }
    }

    /// A client gets no further events, and then this. It stays until it has read what is there.
    fn leave(&mut self, at: usize, farewell: Answer) {
        if let Some(application) = self.members.retire(at) {
            self.engine.remove(application);
        }
        if let Some(member) = self.members.list.get_mut(at) {
            member.farewell = Some(farewell);
        }
        self.members.settle();
        self.members.show(&self.ledger);
    }

    /// Removes a client that has gone. False if there is none with this number.
    pub fn dismiss(&mut self, number: u64) -> bool {
        let Some(at) = self.members.at(number) else {
            return false;
        };
        if let Some(application) = self.members.retire(at) {
            self.engine.remove(application);
        }
        self.members.remove(at);
        if self.members.list.is_empty() {
            // Nobody is there whom its streams concern.
            self.engine = engine();
        }
        // What it had is others' now.
        self.members.share_out(self.pool_bytes);
        self.members.show(&self.ledger);
        true
    }

    /// The status of the service.
    pub fn status(&self) -> SharingStatus {
        let programs: Vec<ClientStatus> = self.members.list.iter().map(Member::status).collect();
        SharingStatus {
            interface: String::new(),
            pool_in_use: self.members.pool.in_use(),
            pool_touched: self.members.pool.touched(),
            programs,
        }
    }

    /// Updates the counters and, while idle, checks what clients have read. Returns whether the grace after the last
    /// client has passed.
    pub fn attend_to<S: PacketSource + ?Sized>(&mut self, source: &mut S, idle: bool) -> bool {
        self.count(source, idle);
        if idle {
            self.members.settle();
        }
        if !self.members.list.is_empty() {
            self.alone = Instant::now();
            return false;
        }
        // It was started for somebody.
        let grace = self.grace.map(|grace| match self.epoch {
            0 => grace.max(COMING),
            _ => grace,
        });
        grace.is_some_and(|grace| self.alone.elapsed() >= grace)
    }

    /// The application of a client, unless it has left.
    pub fn application(&self, number: u64) -> Option<ApplicationId> {
        let at = self.members.at(number)?;
        self.members.list.get(at)?.application
    }

    /// Ends a step: publishes events to the clients, and releases what they have read.
    pub fn settle(&mut self) {
        self.members.settle();
    }

    /// Prepares for the end of the capture: slow clients are waited for.
    pub fn begin_end(&mut self) {
        self.members.be_patient(LAST_WORDS);
    }

    /// Ends the capture after all streams have ended: clients get the remaining events, and `reason`.
    pub fn finish<S: PacketSource + ?Sized>(&mut self, source: &mut S, reason: &str) {
        self.members.settle_all();
        self.count(source, true);
        for member in &self.members.list {
            say_last(&member.connection, reason);
        }
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

impl Applications for Service {
    fn parts(&mut self) -> (&mut Engine, &mut dyn Events) {
        (&mut self.engine, &mut self.members)
    }

    fn are_there(&mut self, shared: bool) -> bool {
        self.is_shared = shared;
        !self.members.list.is_empty()
    }
}

/// One on the engine of the device's stacks, where these ask for nothing else.
fn engine() -> Engine {
    Engine::beside(ShardConfig::default())
}

/// Sends a program the reason why its capture ended. Its connection ends when it has received that.
pub fn say_last(connection: &Connection, reason: &str) {
    let _ = send_notice(connection, &last(reason));
    connection.stop_receiving();
}

fn last(reason: &str) -> Answer {
    let reason = &reason[..reason.floor_char_boundary(LONGEST_REASON)];
    Answer::Ended(reason.to_owned())
}

/// Why there is no room for one more.
fn no_room(members: usize, applications: usize) -> String {
    if members >= MOST_MEMBERS || applications >= MAX_APPLICATIONS {
        return format!("it has {members} clients already");
    }
    "streams have as many different parameters as it can keep; hint: let programs set chunk size, overlap, \
     flush timeout and mode of single streams to fewer different values"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::asked::tests::program;
    use super::*;

    #[test]
    fn no_user_takes_all_places() {
        let mut service = Service::new(1 << 30, None, true).unwrap();
        let mut join = |user: u64, number: u64| {
            let mut program = program(|asked| (asked.memory, asked.least_memory) = (1 << 20, 0));
            program.user = user;
            service.join(number, program, &Ledger::default())
        };
        let mut count = |user: u64| {
            let numbers = 100 * user..;
            numbers.take_while(|it| join(user, *it).is_ok()).count()
        };
        // Of those that others leave half, and one of the last.
        assert_eq!([1, 2, 3, 4].map(&mut count), [16, 8, 4, 2]);
        assert_eq!([5, 6, 7].map(&mut count), [1, 1, 0]);
        let why = join(1, 1).unwrap_err();
        assert!(why.contains("16 programs of this user"), "{why}");
    }

    #[test]
    fn why_there_is_no_room_is_said() {
        assert!(no_room(40, MAX_APPLICATIONS).contains("40 clients"));
        assert!(no_room(MOST_MEMBERS, 3).contains("64 clients"));
        assert!(no_room(3, 3).contains("different parameters"));
    }
}
