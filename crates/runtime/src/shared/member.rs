//! The clients of a service: which events each gets, and which are lost for it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flowgauge_sensor_client::programs::{
    ClientStatistics, ClientStatus, Thresholds, WAKE, send_notice,
};
use flowgauge_sensor_client::protocol::Answer;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, ChunkInfo, ChunkParameters, DataChunk, Events,
    MAX_APPLICATIONS, Parameter, Sentence, StreamErrors, StreamRef, StreamSnapshot, Watermarks,
};
use flowgauge_sys::local::Connection;
use flowgauge_sys::shared::{Area, EventWriter, Pool};
use flowgauge_wire::Ledger;

use super::application::LONGEST_SILENCE;
use super::asked::Program;
use super::backlog::Backlog;
use super::codec::Wire as _;
use super::grant::{cost_of, events_for, grown};
use super::layout::{Body, ChunkBody, Kind, encode_extra};
use super::statistics;

/// Streams with losses that are remembered for a client.
const MOST_LOSSES: usize = 1 << 20;

/// Different sets of parameters that a client's streams may have, its own among them: the engine keeps each, and
/// each with a flush timeout is a timer.
const MOST_SETS: usize = 64;

/// A client.
#[derive(Debug)]
pub(super) struct Member {
    /// The number of its flow.
    number: u64,
    pub(super) connection: Arc<Connection>,
    pub(super) application: Option<ApplicationId>,
    user: u64,
    process: u32,
    name: String,
    since: Instant,
    /// Tells its streams from those of whoever had its application's number before.
    epoch: u64,
    ring: EventWriter,
    /// Creations and terminations behind what is in the ring.
    backlog: Backlog,
    /// It has left, or has to: what it is told when it has all there is.
    pub(super) farewell: Option<Answer>,
    memory: u64,
    /// Of memory, what it asked for.
    asked: u64,
    watermarks: Watermarks,
    thresholds: Thresholds,
    pub(super) wants_data: bool,
    priorities: Box<[bool; 256]>,
    /// What its streams have had.
    sets: Vec<ChunkParameters>,
    statistics: ClientStatistics,
    /// Bytes of streams that it lost.
    losses: HashMap<u64, Loss>,
    /// It claimed what cannot be.
    lied: bool,
}

/// What a client lost of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    bytes: u64,
    /// Since the last chunk that it got, with those that were missing before chunks it lost.
    since: u64,
}

impl Loss {
    /// Puts into a chunk's description what was lost since the last one that the client got: bytes that it repeats may
    /// be new then. How many of those that were lost it has.
    fn tell(&self, info: &mut ChunkInfo) -> u64 {
        if self.since == 0 {
            return 0;
        }
        let (missing, repeated) = (info.gap_before + self.since, u64::from(info.repeated));
        info.gap_before = missing.saturating_sub(repeated);
        info.repeated = repeated.saturating_sub(missing) as u32;
        missing.min(repeated)
    }
}

impl Member {
    /// A client with so much memory.
    ///
    /// # Errors
    /// There is no room for its events.
    pub(super) fn new(
        number: u64,
        program: Program,
        application: ApplicationId,
        epoch: u64,
        memory: u64,
    ) -> io::Result<Member> {
        let mut member = Member {
            // It may get as much as it asked for.
            ring: EventWriter::growing(events_for(memory), events_for(program.memory))?,
            backlog: Backlog::default(),
            farewell: None,
            number,
            connection: program.connection,
            application: Some(application),
            user: program.user,
            process: program.process,
            name: program.name,
            since: Instant::now(),
            epoch,
            memory,
            asked: program.memory,
            watermarks: watermarks(memory, program.thresholds),
            thresholds: program.thresholds,
            wants_data: program.wants_data,
            priorities: Box::new([false; 256]),
            sets: Vec::new(),
            statistics: ClientStatistics::default(),
            losses: HashMap::new(),
            lied: false,
        };
        member.agrees(&program.config);
        member.note_priorities();
        Ok(member)
    }

    pub(super) fn ring(&self) -> &EventWriter {
        &self.ring
    }

    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether it had to make do with less than it asked for, and still wants it.
    fn wants_memory(&self) -> bool {
        self.memory < self.asked && self.application.is_some()
    }

    /// It gets so much memory.
    fn set_memory(&mut self, memory: u64) {
        self.memory = memory;
        self.watermarks = watermarks(memory, self.thresholds);
        self.note_priorities();
    }

    /// Whether it may set this parameter of a stream, which has these now if it has not ended.
    pub(super) fn admits(&mut self, parameter: Parameter, now: Option<ChunkParameters>) -> bool {
        match parameter {
            // It would hold for everybody.
            Parameter::Policy(_) => false,
            Parameter::ChunkBytes(bytes) | Parameter::OverlapBytes(bytes)
                if bytes > super::Application::LARGEST_CHUNK =>
            {
                false
            }
            Parameter::InactivityTimeout(timeout) => {
                timeout.is_none_or(|timeout| timeout <= LONGEST_SILENCE)
            }
            _ => now.is_none_or(|now| self.takes(now.with(parameter))),
        }
    }

    /// Whether its streams may have these parameters: they have had them, or not too many others.
    fn takes(&mut self, set: ChunkParameters) -> bool {
        if self.sets.contains(&set) {
            return true;
        }
        let is_one_more = self.sets.len() < MOST_SETS;
        if is_one_more {
            self.sets.push(set);
        }
        is_one_more
    }

    /// Whether it may want this from now on.
    pub(super) fn agrees(&mut self, wanted: &ApplicationConfig) -> bool {
        let takes = self.takes(wanted.chunk_parameters());
        if takes {
            let classes = wanted.priority.classes.iter();
            let classes = classes.map(|(_, priority)| *priority);
            for priority in classes.chain([wanted.priority.default]) {
                self.uses_priority(priority);
            }
        }
        takes
    }

    /// From now on it loses events from here on.
    pub(super) fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
        self.watermarks.set_base_threshold(thresholds.base);
        let cutoff = thresholds.overload_cutoff;
        self.watermarks.set_overload_cutoff(cutoff);
    }

    /// It gives streams this priority.
    pub(super) fn uses_priority(&mut self, priority: u8) {
        if !core::mem::replace(&mut self.priorities[usize::from(priority)], true) {
            self.note_priorities();
        }
    }

    pub(super) fn refuse_command(&mut self) {
        self.statistics.refused_commands += 1;
    }

    fn note_priorities(&mut self) {
        let used = &self.priorities;
        self.watermarks
            .set_priorities(|priority| used[usize::from(priority)]);
    }

    /// Whether the stream began while it was a client.
    fn owns(&self, stream: &mut StreamRef<'_>) -> bool {
        stream.user_state() == self.epoch
    }

    /// Looks how far it has read, and writes what waited for room.
    fn collect(&mut self, pool: &mut Pool) {
        if !self.lied && !self.ring.collect(pool) {
            self.lied = true;
            self.connection.shut_down();
        }
        if !self.backlog.is_empty() {
            self.backlog.move_to(&mut self.ring, pool);
        }
        // Where there is more memory now than when it joined the ring is to hold more, too.
        let events = events_for(self.memory);
        if self.ring.entries() < events {
            self.ring.grow(events);
        }
    }

    /// Lets it see what was written.
    fn publish(&mut self) {
        if self.ring.publish() {
            // Where there is no room for it there are others that wake it.
            let _ = self.connection.send(WAKE);
        }
    }

    /// Whether another event can be written, with nothing before it that waits.
    fn has_room(&self, entries: u32) -> bool {
        self.backlog.is_empty() && self.ring.room() > entries
    }

    /// Bytes of its memory that are in use.
    fn used(&self) -> u64 {
        self.ring.held() + self.backlog.borrowed(&self.ring)
    }

    /// Tells it that nothing comes any more, if it has left and has all there was.
    fn say_goodbye(&mut self) {
        if self.backlog.is_empty()
            && let Some(farewell) = self.farewell.take()
        {
            let _ = send_notice(&self.connection, &farewell);
        }
    }

    /// A number of entries that only creations and terminations may use.
    fn reserve(&self) -> u32 {
        self.ring.entries() / 8
    }

    /// Whether it is of this user, and takes one of the places for applications.
    pub(super) fn is_of(&self, user: u64) -> bool {
        self.user == user && self.application.is_some()
    }

    pub(super) fn status(&self) -> ClientStatus {
        ClientStatus {
            flow: self.number,
            process: self.process,
            user: self.user,
            name: self.name.clone(),
            seconds: self.since.elapsed().as_secs(),
            waiting: self.ring.waiting(),
            held: self.used(),
            memory: self.memory,
            statistics: self.statistics,
        }
    }
}

/// All clients that have joined, and the pool they share.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) pool: Pool,
    pub(super) list: Vec<Member>,
    /// Place in the list of each application.
    places: [Option<usize>; MAX_APPLICATIONS],
    /// The last chunk stored, for other clients that get the same.
    last: Option<Stored>,
    /// Until when to wait for clients that are slow: the capture is over.
    patience: Option<Instant>,
    scratch: Vec<u8>,
    extra: Vec<u8>,
}

/// A chunk in the pool.
#[derive(Debug)]
struct Stored {
    uid: u64,
    offset: u64,
    bytes: u32,
    /// Where holes and packets begin, and how many bytes they have.
    extra: u32,
    extra_bytes: u32,
    area: Area,
}

fn watermarks(memory: u64, thresholds: Thresholds) -> Watermarks {
    Watermarks::new(memory, thresholds.base, thresholds.overload_cutoff)
}

impl Members {
    pub(super) fn new(pool: Pool) -> Members {
        Members {
            pool,
            list: Vec::new(),
            places: [None; MAX_APPLICATIONS],
            last: None,
            patience: None,
            scratch: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// The place of the client with this number.
    pub(super) fn at(&self, number: u64) -> Option<usize> {
        self.list.iter().position(|one| one.number == number)
    }

    /// Bytes that all clients together may take.
    pub(super) fn promised(&self) -> u64 {
        self.list.iter().map(|one| cost_of(one.memory)).sum()
    }

    /// Gives what is left of `all` bytes to those who had to make do with less than they asked for, first to who has
    /// least.
    pub(super) fn share_out(&mut self, all: u64) {
        let wants = |at: &usize| self.list.get(*at).is_some_and(Member::wants_memory);
        let mut order: Vec<usize> = (0..self.list.len()).filter(wants).collect();
        order.sort_by_key(|&at| self.list.get(at).map(Member::memory));
        for at in order {
            let left = all.saturating_sub(self.promised());
            if let Some(member) = self.list.get_mut(at) {
                let memory = grown(member.memory, member.asked, left);
                if memory > member.memory {
                    member.set_memory(memory);
                }
            }
        }
    }

    pub(super) fn add(&mut self, member: Member) {
        self.list.push(member);
        self.find_places();
    }

    /// Forgets a client and takes back what waited for it.
    pub(super) fn remove(&mut self, at: usize) {
        let member = self.list.remove(at);
        member.ring.close(&mut self.pool);
        self.find_places();
    }

    /// Takes a client's application out; what waits for it stays.
    pub(super) fn retire(&mut self, at: usize) -> Option<ApplicationId> {
        let application = self.list.get_mut(at)?.application.take();
        self.find_places();
        application
    }

    fn find_places(&mut self) {
        self.places = [None; MAX_APPLICATIONS];
        for (at, member) in self.list.iter().enumerate() {
            if let Some(ApplicationId(number)) = member.application
                && let Some(place) = self.places.get_mut(usize::from(number))
            {
                *place = Some(at);
            }
        }
    }

    /// Ends a round: shows the clients what there is, and takes back what they have read.
    pub(super) fn settle(&mut self) {
        if let Some(last) = self.last.take() {
            self.pool.release(last.area);
        }
        for member in &mut self.list {
            member.collect(&mut self.pool);
            member.publish();
            member.say_goodbye();
        }
    }

    /// The capture is over: what waits for room waits as long as there is patience, and is lost then.
    pub(super) fn settle_all(&mut self) {
        for at in 0..self.list.len() {
            self.wait_for(at, |member| member.backlog.is_empty());
        }
        for member in &mut self.list {
            let (creations, terminations) = member.backlog.give_up();
            let statistics = &mut member.statistics;
            statistics.created -= creations;
            statistics.lost_created += creations;
            statistics.terminated -= terminations;
            statistics.lost_terminated += terminations;
        }
        self.settle();
    }

    /// Shows the clients the counters.
    pub(super) fn show(&mut self, ledger: &Ledger) {
        for member in &mut self.list {
            self.scratch.clear();
            member.statistics.put(&mut self.scratch);
            ledger.put(&mut self.scratch);
            let shown = statistics::shown(&self.scratch, member.memory);
            member.ring.set_counters(shown);
        }
    }

    /// From now on waits for clients that are slow, all in all for so long.
    pub(super) fn be_patient(&mut self, limit: Duration) {
        self.patience = Some(Instant::now() + limit);
    }

    fn place(&self, application: ApplicationId) -> Option<usize> {
        *self.places.get(usize::from(application.0))?
    }

    /// Writes an event that refers to no bytes, or has it wait for room. Whether there was any.
    fn tell(&mut self, at: usize, kind: Kind, stream: StreamSnapshot) -> bool {
        self.wait_for(at, |member| member.has_room(0));
        let Some(member) = self.list.get_mut(at) else {
            return false;
        };
        let body = Body {
            kind,
            stream,
            chunk: ChunkBody::default(),
        };
        let body = body.encode(&mut self.scratch);
        match member.has_room(0) {
            true => member.ring.push(&body, &mut self.pool, None),
            false => member.backlog.push(&body, &member.ring, member.memory),
        }
    }

    /// Looks again how far a client has read when something does not fit; at the end of the capture
    /// waits for it.
    fn wait_for(&mut self, at: usize, fits: impl Fn(&Member) -> bool) {
        const NAP: Duration = Duration::from_millis(1);
        let Some(member) = self.list.get_mut(at) else {
            return;
        };
        while !fits(member) && !member.lied {
            member.publish();
            member.collect(&mut self.pool);
            let waits = self.patience.is_some_and(|until| Instant::now() < until);
            if fits(member) || !waits {
                return;
            }
            if member.connection.is_gone() {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// The chunk in the pool, with the holes and packets that were encoded: that of another client, if it is
    /// the same.
    fn store(&mut self, uid: u64, chunk: &DataChunk<'_>) -> Option<&Stored> {
        let (bytes, extra) = (chunk.bytes(), self.extra.as_slice());
        let same = self.last.as_ref().is_some_and(|last| {
            last.uid == uid
                && last.offset == chunk.offset()
                && bytes.len() <= last.bytes as usize
                && extra.len() == last.extra_bytes as usize
                && self.pool.holds(&last.area, 0, bytes)
                && self.pool.holds(&last.area, last.extra as usize, extra)
        });
        if !same {
            if let Some(last) = self.last.take() {
                self.pool.release(last.area);
            }
            self.last = Some(Stored {
                uid,
                offset: chunk.offset(),
                bytes: bytes.len() as u32,
                extra: bytes.len() as u32,
                extra_bytes: extra.len() as u32,
                area: self.pool.store(&[bytes, extra])?,
            });
        }
        self.last.as_ref()
    }
}

impl Events for Members {
    fn created(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let Some(at) = self.place(application) else {
            return;
        };
        if let Some(member) = self.list.get(at) {
            stream.set_user_state(member.epoch);
        }
        let told = self.tell(at, Kind::Created, stream.snapshot());
        if let Some(member) = self.list.get_mut(at) {
            match told {
                true => member.statistics.created += 1,
                false => member.statistics.lost_created += 1,
            }
        }
    }

    fn data(
        &mut self,
        application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let at = self.place(application).filter(|&at| {
            let member = self.list.get(at);
            member.is_some_and(|member| member.owns(stream))
        });
        let Some(at) = at else {
            // Whose it was has gone.
            stream.discard();
            return;
        };
        if self.list.get(at).is_some_and(|member| !member.wants_data) {
            return;
        }
        let uid = stream.uid();
        let (holes, packets) = encode_extra(chunk, &mut self.extra);
        // Packets are this client's, and so is what they take.
        let len = chunk.bytes().len() + self.extra.len();
        let size = Pool::size_of(len).unwrap_or(u64::MAX);
        let (priority, offset) = (stream.priority(), chunk.offset());
        let sentence = move |member: &Member| {
            let used = member.used().saturating_add(size);
            member.watermarks.judge(used, priority, offset)
        };
        self.wait_for(at, |member| {
            member.has_room(member.reserve()) && sentence(member) == Sentence::Keep
        });
        let fresh = (chunk.bytes().len() as u64).saturating_sub(chunk.info().repeated.into());
        let Some(member) = self.list.get(at) else {
            return;
        };
        let verdict = sentence(member);
        let room = member.has_room(member.reserve());
        let (mut pushed, mut recovered) = (false, 0);
        if verdict == Sentence::Keep && room {
            let mut info = chunk.info();
            let mut snapshot = stream.snapshot();
            if !member.losses.is_empty()
                && let Some(loss) = member.losses.get(&uid)
            {
                recovered = loss.tell(&mut info);
                let lost = loss.bytes.saturating_sub(recovered);
                snapshot.statistics.dropped.bytes += lost;
                if lost > 0 {
                    snapshot.errors.insert(StreamErrors::GAP);
                }
            }
            let len = chunk.bytes().len() as u32;
            if let Some(stored) = self.store(uid, chunk) {
                let body = Body {
                    kind: Kind::Data,
                    stream: snapshot,
                    chunk: ChunkBody {
                        info,
                        len,
                        extra: stored.extra,
                        holes,
                        packets,
                    },
                };
                let body = body.encode(&mut self.scratch);
                if let (Some(member), Some(stored)) = (self.list.get_mut(at), &self.last) {
                    pushed = member.ring.push(&body, &mut self.pool, Some(&stored.area));
                }
            }
        }
        let Some(member) = self.list.get_mut(at) else {
            return;
        };
        let statistics = &mut member.statistics;
        if pushed {
            statistics.data.add(fresh);
            if !member.losses.is_empty()
                && let Some(loss) = member.losses.get_mut(&uid)
            {
                loss.since = 0;
                loss.bytes = loss.bytes.saturating_sub(recovered);
            }
            // A burst must not overflow what the client could have read meanwhile.
            if member.ring.room() < member.ring.entries() / 2 {
                member.publish();
            }
            return;
        }
        match verdict {
            Sentence::Watermark => statistics.lost_to_priority.add(fresh),
            Sentence::OverloadCutoff => statistics.lost_to_overload_cutoff.add(fresh),
            Sentence::Keep if !room => statistics.lost_to_ring.add(fresh),
            Sentence::Keep => statistics.lost_to_pool.add(fresh),
        }
        if member.losses.len() < MOST_LOSSES || member.losses.contains_key(&uid) {
            let loss = member.losses.entry(uid).or_default();
            loss.bytes += fresh;
            loss.since += chunk.gap_before() + fresh;
        }
    }

    fn terminated(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let Some(at) = self.place(application) else {
            return;
        };
        let Some(member) = self.list.get_mut(at) else {
            return;
        };
        if !member.owns(stream) {
            return;
        }
        let mut snapshot = stream.snapshot();
        if let Some(loss) = member.losses.remove(&snapshot.uid) {
            snapshot.statistics.dropped.bytes += loss.bytes;
            snapshot.missing_at_end += loss.since;
            if loss.bytes > 0 {
                snapshot.errors.insert(StreamErrors::GAP);
            }
        }
        let told = self.tell(at, Kind::Terminated, snapshot);
        if let Some(member) = self.list.get_mut(at) {
            match told {
                true => member.statistics.terminated += 1,
                false => member.statistics.lost_terminated += 1,
            }
        }
    }
}
