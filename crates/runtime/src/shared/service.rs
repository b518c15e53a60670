//! What captures for others: programs join, ask and go; packets come first.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use flowgauge_capture::{Error as CaptureError, PacketSource, as_source_within};
use flowgauge_sensor_client::programs::{ClientStatus, OpenedCapture, SharingStatus, send_notice};
use flowgauge_sensor_client::protocol::Answer;
use flowgauge_stream::engine::{Command, Engine, EngineConfig, MAX_APPLICATIONS};
use flowgauge_sys::local::Connection;
use flowgauge_sys::shared::Pool;
use flowgauge_wire::{Batch, Ledger};

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

/// A capture for several processes: one engine, one pool, and a ring for each client.
pub struct Service {
    /// Bytes of chunks that all clients together may let wait. A client gets half of what is left at most, so
    /// that there is some for the next.
    pool_bytes: u64,
    /// How long to stay when the last client has gone; without, until the source ends.
    grace: Option<Duration>,
    engine: Engine,
    members: Members,
    ledger: Ledger,
    /// Packets of engines before this one, and those that came while there was nobody.
    earlier: Ledger,
    /// Since when there is nobody.
    alone: Instant,
    counted: Option<Instant>,
    /// Whether the last batch was empty.
    is_idle: bool,
    epoch: u64,
}

impl Service {
    /// A service without clients, which together may let so many bytes of chunks wait. When the last one has gone it is over after
    /// the `grace`; without, when its source is.
    ///
    /// # Errors
    /// When there is no memory for the pool.
    pub fn new(pool_bytes: u64, grace: Option<Duration>) -> Result<Service, Error> {
        // The chunk at hand is nobody's.
        let bytes = pool_bytes.saturating_add(2 * Pool::LARGEST as u64);
        let pool = Pool::new(bytes).map_err(Error::system("make the shared pool"))?;
        Ok(Service {
            pool_bytes,
            grace,
            engine: Engine::new(EngineConfig::default()),
            members: Members::new(pool),
            ledger: Ledger::default(),
            earlier: Ledger::default(),
            alone: Instant::now(),
            counted: None,
            is_idle: true,
            epoch: 0,
        })
    }

    /// A program joins, whose flow has this number. Returns what is to be answered, with the pool, the ring and the page.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn join(
        &mut self,
        number: u64,
        program: Program,
    ) -> Result<(OpenedCapture, Vec<OwnedFd>), String> {
        let left = self.pool_bytes.saturating_sub(self.members.promised());
        let memory = granted(&program, left)?;
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
            Error::system("give it room for events")(error).to_string()
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

    /// A client asks for something.
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
                let Some(member) = self.members.list.get_mut(at) else {
                    return;
                };
                let agreed = admitted(&wanted, member.wants_data, member.memory());
                let agreed = agreed.ok().filter(|wanted| member.agrees(wanted));
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
            Said::Leave => self.leave(at),
            Said::Refused => {
                if let Some(member) = self.members.list.get_mut(at) {
                    member.refuse_command();
                }
            }
        }
    }

    /// Does what a client says of a stream.
    fn obey(&mut self, at: usize, uid: u64, command: Command) {
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
                member.admits(parameter, now)
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

    /// A client wants no further events. It stays until it has read what is there.
    fn leave(&mut self, at: usize) {
        let list = &self.members.list;
        if let Some(application) = list.get(at).and_then(|member| member.application) {
            // The last partial chunks and the ends of its streams, as at the end of a capture.
            self.engine.retire(application, &mut self.members);
        }
        self.members.retire(at);
        if let Some(member) = self.members.list.get_mut(at) {
            member.has_left = true;
        }
        self.members.settle();
        self.members.show(&self.ledger);
    }

    /// A client has gone. Whether there was one with this number.
    pub fn dismiss(&mut self, number: u64) -> bool {
        let Some(at) = self.members.at(number) else {
            return false;
        };
        if let Some(application) = self.members.retire(at) {
            self.engine.remove(application);
        }
        self.members.remove(at);
        // What it had is others' now.
        self.members.share_out(self.pool_bytes);
        self.members.show(&self.ledger);
        true
    }

    /// How it stands.
    pub fn status(&self) -> SharingStatus {
        let programs: Vec<ClientStatus> = self.members.list.iter().map(Member::status).collect();
        SharingStatus {
            interface: String::new(),
            pool_in_use: self.members.pool.in_use(),
            pool_touched: self.members.pool.touched(),
            programs,
        }
    }

    /// The source, whose packets go to the clients, too, as they are read.
    pub fn tap<'a, S: PacketSource + ?Sized>(&'a mut self, source: &'a mut S) -> Tap<'a, S> {
        Tap {
            source,
            service: self,
        }
    }

    /// Looks after the counters. Returns whether the last client has gone, and the grace with it.
    pub fn attend_to<S: PacketSource + ?Sized>(&mut self, source: &mut S) -> bool {
        self.count(source, self.is_idle);
        if !self.members.list.is_empty() {
            self.alone = Instant::now();
            return false;
        }
        if self.engine.ledger().received() > 0 {
            // Nobody is there whom its streams concern.
            self.earlier.merge(self.engine.ledger());
            self.engine = Engine::new(EngineConfig::default());
        }
        // It was started for somebody.
        let grace = self.grace.map(|grace| match self.epoch {
            0 => grace.max(COMING),
            _ => grace,
        });
        grace.is_some_and(|grace| self.alone.elapsed() >= grace)
    }

    /// The capture is over: clients get what is left, and `reason`.
    pub fn finish<S: PacketSource + ?Sized>(mut self, source: &mut S, reason: &str) {
        self.members.be_patient(LAST_WORDS);
        self.engine.finish(&mut self.members);
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

/// Tells a program why its capture is over. Its connection ends when it has received that.
pub fn say_last(connection: &Connection, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(LONGEST_REASON)];
    let _ = send_notice(connection, &Answer::Ended(reason.to_owned()));
    connection.stop_receiving();
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
    use super::*;

    #[test]
    fn why_there_is_no_room_is_said() {
        assert!(no_room(40, MAX_APPLICATIONS).contains("40 clients"));
        assert!(no_room(MOST_MEMBERS, 3).contains("64 clients"));
        assert!(no_room(3, 3).contains("different parameters"));
    }
}
