//! What a service hears: who comes, who says something, who has gone. Packets come first.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use flowgauge_stream::engine::{Command, MAX_APPLICATIONS};
use flowgauge_sys::local::{self, Connection, Peer};
use flowgauge_wire::Ledger;

use super::application::admitted;
use super::codec::Wire as _;
use super::error::Error;
use super::filters::Filters;
use super::grant::granted;
use super::member::{Member, Members, Seat};
use super::protocol::{Join, Reply, Request};
use super::service::{GUEST_LIMIT, Service};
use super::statistics::Status;

/// After so long a look at the sockets ends, and the next one goes on with who comes behind whom it heard last.
/// (Whatever it was doing then, it still does: who joins or goes may take longer where there are many streams.)
pub(super) const LOOK: Duration = Duration::from_millis(3);
/// Connections that have not joined.
const MOST_GUESTS: usize = 64;
/// Connections of clients that have left and still read.
const MOST_MEMBERS: usize = 2 * MAX_APPLICATIONS;
/// Connections accepted at a time: whoever connects without end must not keep the capture from its
/// packets.
const MOST_WELCOMES: usize = 8;
/// What may be heard at a time, of all connections together, in bytes of messages; a message counts
/// as [`LEAST_COST`] at least.
const MOST_HEARD: usize = 64 << 10;
const LEAST_COST: usize = 1 << 10;

/// A connection that has not joined yet.
#[derive(Debug)]
pub(super) struct Guest {
    /// The connection's number.
    pub(super) number: u64,
    pub(super) connection: Connection,
    pub(super) peer: Peer,
    filters: Filters,
    since: Instant,
}

/// What becomes of a guest after a message.
enum Fate {
    Stays,
    Goes(Option<String>),
    Joins(Box<Join>),
}

/// How much of a connection is heard at a time.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Bytes of messages.
    bytes: usize,
    /// Behind this one message at most.
    until: Instant,
    /// Whether there was one.
    heard: bool,
}

/// A connection that something is to be done about.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// The connection's number.
    number: u64,
    /// There is something to hear.
    talks: bool,
    /// It is over with it, whatever it says.
    is_over: bool,
}

impl Service {
    /// Looks after the sockets until then, and in any case after one of those who want something.
    pub(super) fn attend(&mut self, until: Instant) {
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
        let members = list.iter().zip(members).map(|(one, &talks)| {
            let has_ended = one.process().is_some() && ended.next() == Some(&true);
            Turn {
                number: one.number,
                talks,
                is_over: one.lied || has_ended,
            }
        });
        let guests = self.guests.iter().zip(guests).map(|(one, &talks)| Turn {
            number: one.number,
            talks,
            is_over: one.since.elapsed() > GUEST_LIMIT,
        });
        let turns = members.chain(guests);
        let mut turns: Vec<Turn> = turns.filter(|one| one.talks || one.is_over).collect();
        // Each that has something to say is heard, and none for long: who was last comes last.
        let last = self.heard;
        turns.sort_by_key(|one| (one.number <= last, one.number));
        let talkers = turns.iter().filter(|one| one.talks);
        let share = Share {
            bytes: MOST_HEARD / talkers.count().max(1),
            until,
            heard: false,
        };
        for turn in turns {
            self.hear(turn, share);
            self.heard = turn.number;
            if Instant::now() >= until {
                break;
            }
        }
        if *new {
            self.welcome();
        }
    }

    fn hear(&mut self, turn: Turn, share: Share) {
        let mut members = self.members.list.iter();
        if let Some(at) = members.position(|one| one.number == turn.number) {
            // What it said last counts, that it leaves, say.
            let stays = !turn.talks || self.hear_member(at, share);
            if turn.is_over || !stays {
                self.dismiss(at);
            }
            return;
        }
        let mut guests = self.guests.iter();
        if let Some(at) = guests.position(|one| one.number == turn.number) {
            self.hear_guest(at, turn.is_over, share);
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
            if let Err(why) = (self.config.admission)(&connection, peer) {
                say_last(&connection, &Reply::Refused(why).encoded());
                continue;
            }
            let welcome = Reply::Welcome {
                process: std::process::id(),
                links: self.links.clone(),
            };
            if connection.send(&welcome.encoded()).is_ok() {
                if self.guests.len() >= MOST_GUESTS {
                    self.make_room();
                }
                self.came += 1;
                self.guests.push(Guest {
                    number: self.came,
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
            say_last(&guest.connection, &Reply::Refused(why).encoded());
        }
    }

    fn hear_guest(&mut self, at: usize, late: bool, share: Share) {
        let fate = match late {
            true => Fate::Goes(Some("it took too long to join".to_owned())),
            false => self.converse(at, share),
        };
        match fate {
            Fate::Stays => {}
            Fate::Goes(why) => {
                let guest = self.guests.remove(at);
                if let Some(why) = why {
                    say_last(&guest.connection, &Reply::Refused(why).encoded());
                }
            }
            Fate::Joins(join) => {
                let guest = self.guests.remove(at);
                self.join(guest, &join);
            }
        }
    }

    fn converse(&mut self, at: usize, mut share: Share) -> Fate {
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
                Request::Filter { number, program } => {
                    if !guest.filters.add(number, program) {
                        return Fate::Goes(Some("too many or too long filters".to_owned()));
                    }
                }
                Request::Join(join) => return Fate::Joins(join),
                Request::Status => {
                    let status = status(&self.members, &self.ledger);
                    let _ = guest.connection.send(&status.encoded());
                }
                Request::Commands(_) | Request::Change(_) | Request::Thresholds(_) => {
                    return Fate::Goes(Some("join first".to_owned()));
                }
                Request::Leave => return Fate::Goes(None),
            }
        }
    }

    fn join(&mut self, mut guest: Guest, join: &Join) {
        let filters = core::mem::take(&mut guest.filters);
        let refuse = |guest: &Guest, why: String| {
            say_last(&guest.connection, &Reply::Refused(why).encoded());
        };
        let config =
            admitted(&join.wanted, join.wants_data, join.memory_bytes).and_then(|mut config| {
                filters.give(&join.filters, &mut config)?;
                Ok(config)
            });
        let config = match config {
            Ok(config) => config,
            Err(why) => return refuse(&guest, why),
        };
        let left = self
            .config
            .pool_bytes
            .saturating_sub(self.members.promised());
        let memory = match granted(join, left) {
            Ok(memory) => memory,
            Err(why) => return refuse(&guest, why),
        };
        let set = config.chunk_parameters();
        let added = match self.members.list.len() < MOST_MEMBERS {
            true => (self.engine).add_for_packets(config, join.need_packets && join.wants_data),
            false => None,
        };
        let Some(application) = added else {
            let list = &self.members.list;
            let applications = list.iter().filter(|one| one.application.is_some()).count();
            return refuse(&guest, no_room(list.len(), applications));
        };
        let failed = |error| Error::system("give it room for events")(error).to_string();
        let ring = match Member::ring_for(memory, join.memory_bytes) {
            Ok(ring) => ring,
            Err(error) => {
                self.engine.remove(application);
                return refuse(&guest, failed(error));
            }
        };
        self.epoch += 1;
        let seat = Seat {
            application,
            epoch: self.epoch,
            memory,
            ring,
            set,
        };
        let member = Member::new(guest, join, seat);
        let reply = Reply::Joined {
            application: application.0,
            memory: member.memory(),
        };
        let [ring, page] = member.ring().files();
        let files = [self.members.pool.file(), ring, page];
        if let Err(error) = member.connection.send_files(&reply.encoded(), &files) {
            self.engine.remove(application);
            let why = Reply::Refused(failed(error));
            return say_last(&member.connection, &why.encoded());
        }
        self.members.add(member);
        self.members.show(&self.ledger);
    }

    /// Takes what a client says; false when it has gone or should.
    fn hear_member(&mut self, at: usize, mut share: Share) -> bool {
        loop {
            let Some(member) = self.members.list.get_mut(at) else {
                return false;
            };
            let request = match receive(&member.connection, &mut self.message, &mut share) {
                Heard::Request(request) => request,
                Heard::Nothing => return true,
                Heard::Nonsense => {
                    let why = "not understood".to_owned();
                    say_last(&member.connection, &Reply::Ended(why).encoded());
                    return false;
                }
                Heard::End => return false,
            };
            match request {
                Request::Commands(commands) => {
                    for (uid, command) in commands.0 {
                        self.obey(at, uid, command);
                    }
                }
                Request::Change(change) => {
                    let engine = &mut self.engine;
                    let agreed = member.agrees(&change);
                    let is_made = agreed.is_some_and(|agreed| {
                        // Who has left wants nothing any more.
                        let Some(application) = member.application else {
                            return true;
                        };
                        engine.change(application, |wanted| agreed.apply_to(wanted))
                    });
                    if !is_made {
                        member.refuse_command();
                    }
                }
                // For the next change. Without those that are too many it is refused.
                Request::Filter { number, program } => {
                    member.filters.add(number, program);
                }
                Request::Thresholds(thresholds) => member.set_thresholds(thresholds),
                Request::Status => {
                    let reply = status(&self.members, &self.ledger);
                    if let Some(member) = self.members.list.get(at) {
                        let _ = member.connection.send(&reply.encoded());
                    }
                }
                Request::Leave => self.leave(at),
                Request::Join(_) => return false,
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
        if let Some(member) = self.members.list.get_mut(at) {
            member.has_left = true;
        }
        self.members.settle();
        self.members.show(&self.ledger);
    }

    /// Ends those who would not be admitted any more.
    pub fn admit_again(&mut self) {
        let mut at = 0;
        while let Some(member) = self.members.list.get(at) {
            match (self.config.admission)(&member.connection, member.peer()) {
                Ok(()) => at += 1,
                Err(why) => {
                    say_last(&member.connection, &Reply::Ended(why).encoded());
                    self.dismiss(at);
                }
            }
        }
        let admission = &self.config.admission;
        self.guests.retain(|guest| {
            let admitted = admission(&guest.connection, guest.peer);
            if let Err(why) = &admitted {
                say_last(&guest.connection, &Reply::Ended(why.clone()).encoded());
            }
            admitted.is_ok()
        });
    }

    /// A client has gone.
    fn dismiss(&mut self, at: usize) {
        if let Some(application) = self.members.retire(at) {
            self.engine.remove(application);
        }
        self.members.remove(at);
        // What it had is others' now.
        self.members.share_out(self.config.pool_bytes);
        self.members.show(&self.ledger);
    }
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

/// What there is to hear from a connection.
enum Heard {
    Request(Request),
    Nothing,
    Nonsense,
    End,
}

/// Takes the next message, as long as its connection may be heard: `share` becomes less with each.
fn receive(connection: &Connection, message: &mut [u8], share: &mut Share) -> Heard {
    if share.bytes == 0 || share.heard && Instant::now() >= share.until {
        return Heard::Nothing;
    }
    share.heard = true;
    match connection.receive(message) {
        Ok(len) => {
            share.bytes = share.bytes.saturating_sub(len.max(LEAST_COST));
            let message = message.get(..len).unwrap_or(message);
            Request::decoded(message).map_or(Heard::Nonsense, Heard::Request)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Heard::Nothing,
        Err(_) => Heard::End,
    }
}

/// Says something before the connection is closed.
pub(super) fn say_last(connection: &Connection, message: &[u8]) {
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
    Reply::Status(Box::new(status))
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
