//! The end that takes, as a member of a group.
//!
//! ```text
//!   a partition:   ... 17 18 19 | 20 21 | 22 23 | 24 ...    offsets of messages
//!                      committed   done   given   not read
//! ```
//!
//! *Given* messages are with the stack, *done* ones have gone through it; [`Group::settle`] is called when what came of them
//! would outlive the process, and commits. A partition that is to move is first given to its end, settled and committed, then
//! released.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowgauge_link::{
    EndOfSession, Error, Event, Peer, Receipt, ReceivedItems, Reception, SessionCounts, SessionId,
    tell,
};
use flowgauge_sys::own::Own;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, util::Timeout};

use crate::account::{Account, Come, short};
use crate::cluster::{Cluster, Watch};
use crate::message::Message;

/// What is done is committed this often.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// A member that is silent for this long has gone.
const SILENCE_MS: &str = "10000";
/// How long a broker may take to say where a group stands.
const ANSWER: Duration = Duration::from_secs(10);

/// How a [`Group`] is joined.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Which topic.
    pub cluster: Cluster,
    /// The group.
    pub group: String,
    /// Bytes of messages that are with the stack at once.
    pub memory: usize,
    /// Bytes that are fetched ahead of each partition.
    pub ahead: usize,
    /// It is over when all partitions that are this member's were read to their end, and when there is none of them for this
    /// long; else it never is.
    pub until_end: Option<Duration>,
    /// How long to look for a broker at the start.
    pub wait: Duration,
}

/// A member of a group of consumers.
pub struct Group {
    options: GroupOptions,
    consumer: BaseConsumer<Moves>,
    parts: BTreeMap<SessionId, Part>,
    events: VecDeque<Event>,
    /// Partitions that are to be released once all of them is committed.
    leaving: Option<TopicPartitionList>,
    shared: Arc<Mutex<Done>>,
    next_session: u32,
    /// Partitions that went.
    gone: Vec<(SessionId, Part)>,
    committed: Instant,
    /// Since when the partitions are what they are; `None`: they are being divided anew.
    divided: Option<Instant>,
    told: Option<String>,
    told_foreign: bool,
    _own: Vec<Own>,
}

/// A partition while it is this member's.
struct Part {
    partition: i32,
    /// As of what was read.
    read: Account,
    /// As of what is done, and the offset behind that.
    done: Account,
    offset: i64,
    /// The offset that was committed.
    committed: i64,
    /// Items that are done and not committed.
    uncommitted: u64,
    /// Messages that were read and are not done, or behind such.
    under_way: VecDeque<UnderWay>,
    /// The number of the first.
    first: u64,
    is_at_end: bool,
    is_leaving: bool,
    /// It went while messages were with the stack.
    is_torn: bool,
    counts: SessionCounts,
}

struct UnderWay {
    offset: i64,
    session: u64,
    first: u64,
    count: Option<u32>,
    is_done: bool,
}

/// What the stack has done.
#[derive(Default)]
struct Done {
    messages: Vec<(SessionId, u64)>,
    /// Bytes that are with it.
    bytes: usize,
}

/// Of a message that is with the stack.
struct Given {
    shared: Arc<Mutex<Done>>,
    session: SessionId,
    number: u64,
    bytes: usize,
}

impl Receipt for Given {
    fn give(&mut self, _: u64, _: bool) {
        let message = (self.session, self.number);
        self.shared.lock().messages.push(message);
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.shared.lock().bytes -= self.bytes;
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Given").field(&self.number).finish()
    }
}

/// Hears which partitions come and go; they do when [`Group`] says so.
#[derive(Default)]
struct Moves {
    watch: Watch,
    moves: Mutex<Vec<(bool, TopicPartitionList)>>,
    is_over: Mutex<bool>,
}

impl ClientContext for Moves {
    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.note(error, reason);
    }
}

impl ConsumerContext for Moves {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Moves>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let come = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if *self.is_over.lock() {
            // All that could be committed is; what comes now is not wanted.
            if !come {
                let _ = consumer.incremental_unassign(partitions);
            }
            return;
        }
        self.moves.lock().push((come, partitions.clone()));
    }
}

impl Group {
    /// Joins a group; does not wait until it has partitions.
    ///
    /// # Errors
    /// No broker is there, it does not want this user, or there is no such topic.
    pub fn join(options: GroupOptions) -> Result<Group, Error> {
        let cluster = &options.cluster;
        let mut config = cluster.config();
        config.set("group.id", &options.group);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "earliest");
        config.set("enable.partition.eof", "true");
        config.set("partition.assignment.strategy", "cooperative-sticky");
        config.set("session.timeout.ms", SILENCE_MS);
        config.set("heartbeat.interval.ms", "2000");
        let ahead = (options.ahead >> 10).clamp(64, 1 << 20);
        config.set("queued.max.messages.kbytes", ahead.to_string());
        // What cannot be read any more is missing by its numbers.
        config.set("isolation.level", "read_committed");
        let failed = |error: KafkaError| cluster.explained(&error, "");
        let made = config.create_with_context(Moves::default());
        let consumer: BaseConsumer<Moves> = made.map_err(failed)?;
        let watch = &consumer.context().watch;
        let look = || {
            if let Some(Err(error)) = consumer.poll(Duration::ZERO) {
                watch.note(error, "");
            }
        };
        let (_, own) = cluster.partitions(consumer.client(), (watch, &look), options.wait)?;
        consumer.subscribe(&[&cluster.topic]).map_err(failed)?;
        Ok(Group {
            options,
            consumer,
            parts: BTreeMap::new(),
            events: VecDeque::new(),
            leaving: None,
            shared: Arc::default(),
            next_session: 0,
            gone: Vec::new(),
            committed: Instant::now(),
            divided: None,
            told: None,
            told_foreign: false,
            _own: own,
        })
    }

    fn moved(&mut self) -> Result<(), Error> {
        let moves = core::mem::take(&mut *self.consumer.context().moves.lock());
        for (come, partitions) in moves {
            match come {
                true => self.assigned(partitions)?,
                false => self.revoked(partitions),
            }
        }
        Ok(())
    }

    /// Partitions become this member's, with the accounts of those who had them before.
    fn assigned(&mut self, partitions: TopicPartitionList) -> Result<(), Error> {
        let failed = |error: KafkaError| self.options.cluster.explained(&error, "");
        let consumer = &self.consumer;
        let mut known = partitions;
        if known.count() > 0 {
            known = consumer.committed_offsets(known, ANSWER).map_err(failed)?;
        }
        let mut starts = TopicPartitionList::new();
        for place in known.elements() {
            let (topic, partition) = (place.topic(), place.partition());
            let account = Account::read(place.metadata());
            let offset = match place.offset() {
                Offset::Offset(offset) => offset,
                _ => -1,
            };
            let start = match offset {
                0.. => Offset::Offset(offset),
                _ => Offset::Beginning,
            };
            starts
                .add_partition_offset(topic, partition, start)
                .map_err(failed)?;
            let account = account.filter(|_| offset >= 0).unwrap_or_default();
            let session = SessionId(self.next_session);
            self.next_session = self.next_session.wrapping_add(1);
            let name = format!("{topic}/{partition}");
            self.events.push_back(Event::Joined {
                session,
                peer: Peer {
                    name: name.clone(),
                    fingerprint: String::new(),
                    key: String::new(),
                    address: self.options.cluster.brokers.clone(),
                },
                before: account.items,
                is_left: false,
            });
            // It may have been this member's before.
            let earlier = self.gone.iter();
            let earlier = earlier
                .map(|(_, part)| part)
                .position(|part| part.counts.name == name);
            let earlier = earlier.map(|place| self.gone.swap_remove(place).1);
            let part = Part::new(partition, name, (account, offset), earlier);
            self.parts.insert(session, part);
        }
        self.divided = Some(Instant::now());
        consumer.incremental_assign(&starts).map_err(failed)?;
        self.tell_partitions();
        Ok(())
    }

    fn tell_partitions(&self) {
        let parts = self.parts.values().filter(|part| !part.is_leaving);
        let mut numbers: Vec<i32> = parts.map(|part| part.partition).collect();
        numbers.sort_unstable();
        let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
        tell(format_args!(
            "group {}: {} partitions here: {}",
            self.options.group,
            numbers.len(),
            numbers.join(" ")
        ));
    }

    /// Partitions are to be another's: when all that was given of them is committed.
    fn revoked(&mut self, partitions: TopicPartitionList) {
        let is_lost = self.consumer.assignment_lost();
        let goes = |part: &Part| {
            let mut going = partitions.elements().into_iter();
            going.any(|place| place.partition() == part.partition)
        };
        let ids = self.parts.iter().filter(|(_, part)| goes(part));
        for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(part) = self.parts.get_mut(&id) {
                part.is_leaving = true;
            }
            let receipt = Given {
                shared: self.shared.clone(),
                session: id,
                number: u64::MAX,
                bytes: 0,
            };
            let end = EndOfSession::new(id, 0, Box::new(receipt));
            self.events.push_back(Event::Ended(end));
        }
        self.leaving = Some(partitions);
        self.divided = None;
        if is_lost {
            self.lose();
            self.release();
        }
    }

    /// The group goes on without this member: what it did not commit is given to others.
    fn lose(&mut self) {
        let mut items = 0;
        for part in self.parts.values_mut().filter(|part| part.is_leaving) {
            part.is_torn = !part.under_way.is_empty();
            let given = part.under_way.drain(..).map(|it| it.count.unwrap_or(0));
            part.uncommitted += given.map(u64::from).sum::<u64>();
            part.offset = part.committed;
            items += part.uncommitted;
        }
        tell(format_args!(
            "{}: the group {} heard nothing from this member for too long and reassigns its partitions; {items} items \
            passed on here were not committed",
            self.options.cluster.name(),
            self.options.group
        ));
    }

    /// Lets partitions go of which all is committed.
    fn release(&mut self) {
        let is_open = |part: &Part| part.is_leaving && !part.is_settled();
        if self.parts.values().any(is_open) {
            return;
        }
        let Some(partitions) = self.leaving.take() else {
            return;
        };
        self.gone
            .extend(self.parts.extract_if(.., |_, part| part.is_leaving));
        self.tell_partitions();
        if let Err(error) = self.consumer.incremental_unassign(&partitions) {
            self.tell(&self.options.cluster.explained(&error, ""));
        }
    }

    /// Something that is said once.
    fn tell(&mut self, error: &Error) {
        let text = error.to_string();
        if self.told.as_ref() != Some(&text) {
            tell(format_args!("{text}; trying again"));
            self.told = Some(text);
        }
    }

    /// Takes what the stack has done.
    fn collect(&mut self) {
        let done = core::mem::take(&mut self.shared.lock().messages);
        for (session, number) in done {
            if let Some(part) = self.parts.get_mut(&session) {
                part.is_done(number);
            }
        }
    }

    /// A message of a partition.
    fn take(&mut self, partition: i32, offset: i64, payload: &[u8]) {
        let parts = self.parts.iter_mut();
        let mut parts = parts.filter(|(_, part)| part.partition == partition && !part.is_leaving);
        let Some((&id, part)) = parts.next() else {
            return;
        };
        part.is_at_end = false;
        let Some(message) = Message::decode(payload) else {
            if !core::mem::replace(&mut self.told_foreign, true) {
                tell(format_args!(
                    "{}: messages not written by a Flowgauge output are ignored",
                    part.counts.name
                ));
            }
            part.pass(offset, None);
            return;
        };
        let session = short(message.session);
        let come = part.read.take(session, message.first, message.count);
        let number = part.pass(offset, Some((session, message.first, message.count)));
        let count = u64::from(message.count.unwrap_or(0));
        match come {
            Come::New { lost, before } => {
                // Whoever writes to the topic says how many.
                part.counts.lost = part.counts.lost.saturating_add(lost);
                part.counts.before = part.counts.before.saturating_add(before);
            }
            Come::Again | Come::Wrong => {
                part.counts.repeated += count;
                return part.is_done(number);
            }
        }
        if count == 0 {
            return part.is_done(number);
        }
        part.counts.received += count;
        let bytes = payload.len();
        self.shared.lock().bytes += bytes;
        let receipt = Given {
            shared: self.shared.clone(),
            session: id,
            number,
            bytes,
        };
        self.events.push_back(Event::Items(ReceivedItems::new(
            id,
            session,
            (message.first, count as u32),
            message.items.to_vec(),
            Box::new(receipt),
        )));
    }

    fn poll(&mut self, wait: Duration) -> Result<(), Error> {
        let cluster = &self.options.cluster;
        let (partition, offset, payload) = match self.consumer.poll(Timeout::After(wait)) {
            None => return Ok(()),
            Some(Ok(message)) => {
                self.consumer.context().watch.is_over();
                let payload = message.payload().unwrap_or_default().to_vec();
                (message.partition(), message.offset(), payload)
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                let parts = self.parts.values_mut();
                for part in parts.filter(|part| part.partition == partition) {
                    part.is_at_end = true;
                }
                return Ok(());
            }
            Some(Err(error)) => return Err(cluster.explained(&error, "")),
        };
        self.take(partition, offset, &payload);
        Ok(())
    }

    /// Commits what is done, if something is.
    fn commit(&mut self) -> Result<(), Error> {
        let cluster = &self.options.cluster;
        let mut offsets = TopicPartitionList::new();
        for part in self
            .parts
            .values()
            .filter(|part| part.offset > part.committed)
        {
            let mut place = offsets.add_partition(&cluster.topic, part.partition);
            let set = place.set_offset(Offset::Offset(part.offset));
            set.map_err(|error| cluster.explained(&error, ""))?;
            place.set_metadata(part.done.write());
        }
        self.committed = Instant::now();
        if offsets.count() == 0 {
            return Ok(());
        }
        let committed: KafkaResult<()> = self.consumer.commit(&offsets, CommitMode::Sync);
        committed.map_err(|error| cluster.explained(&error, ""))?;
        let parts = self.parts.values_mut();
        for part in parts.filter(|part| part.offset > part.committed) {
            part.committed = part.offset;
            part.uncommitted = 0;
        }
        Ok(())
    }
}

impl Part {
    /// One that becomes this member's, with the account that was committed and its offset, or -1. Where it was this member's
    /// `earlier`, and nobody else has taken anything since, it goes on as it was: what was given on and not committed
    /// comes again, and is known by its numbers.
    fn new(
        partition: i32,
        name: String,
        (account, offset): (Account, i64),
        earlier: Option<Part>,
    ) -> Part {
        let mut part = Part {
            partition,
            read: account.clone(),
            done: account,
            offset,
            committed: offset,
            uncommitted: 0,
            under_way: VecDeque::new(),
            first: 0,
            is_at_end: false,
            is_leaving: false,
            is_torn: false,
            counts: SessionCounts {
                name,
                ..SessionCounts::default()
            },
        };
        if let Some(earlier) = earlier {
            let goes_on = !earlier.is_torn && earlier.committed == offset;
            part.counts = match goes_on {
                true => earlier.counts,
                false => earlier.certain(),
            };
            if goes_on {
                part.uncommitted = earlier.uncommitted;
                part.read = earlier.read;
                part.done = earlier.done;
            }
        }
        // What others took meanwhile was before what comes now.
        let counts = &mut part.counts;
        let own = counts.received.saturating_add(counts.lost);
        counts.before = part.read.items.saturating_sub(own);
        counts.is_connected = true;
        part
    }

    /// The counts without what somebody else may take again.
    fn certain(&self) -> SessionCounts {
        let mut counts = self.counts.clone();
        counts.received = counts.received.saturating_sub(self.uncommitted);
        counts
    }

    /// A message comes next; `None`: another program's. Returns its number.
    fn pass(&mut self, offset: i64, of: Option<(u64, u64, Option<u32>)>) -> u64 {
        let number = self.first + self.under_way.len() as u64;
        let (session, first, count) = of.unwrap_or_default();
        self.under_way.push_back(UnderWay {
            offset,
            session,
            first,
            count,
            is_done: false,
        });
        if of.is_none() {
            if let Some(last) = self.under_way.back_mut() {
                last.count = Some(0);
            }
            self.is_done(number);
        }
        number
    }

    /// The message of this number is done.
    fn is_done(&mut self, number: u64) {
        let place = number.checked_sub(self.first);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(message) = place.and_then(|place| self.under_way.get_mut(place)) {
            message.is_done = true;
        }
        while let Some(message) = self.under_way.pop_front_if(|message| message.is_done) {
            self.first += 1;
            self.offset = message.offset + 1;
            if message.count == Some(0) {
                continue;
            }
            let come = self
                .done
                .take(message.session, message.first, message.count);
            if let Come::New { .. } = come {
                self.uncommitted += u64::from(message.count.unwrap_or(0));
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.under_way.is_empty() && self.offset == self.committed
    }
}

impl Reception for Group {
    fn next(&mut self, wait: Duration) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        self.collect();
        if self.shared.lock().bytes >= self.options.memory {
            return None;
        }
        let polled = self.poll(wait).and_then(|()| self.moved());
        match polled {
            Ok(()) => {
                if let Some(error) = self.consumer.context().watch.trouble(&self.options.cluster) {
                    self.tell(&error);
                } else {
                    self.told = None;
                }
            }
            Err(error) => self.tell(&error),
        }
        self.events.pop_front()
    }

    fn counts(&self) -> Vec<(SessionId, SessionCounts)> {
        let parts = self.parts.iter();
        let parts = parts.map(|(id, part)| (*id, part.counts.clone()));
        let gone = self.gone.iter().map(|(id, part)| (*id, part.certain()));
        parts.chain(gone).collect()
    }

    fn forget(&mut self, _: SessionId) -> Option<SessionCounts> {
        None
    }

    fn is_due(&self) -> bool {
        self.leaving.is_some() || self.committed.elapsed() >= COMMIT_EVERY
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.collect();
        let result = self.commit();
        if let Err(error) = &result {
            self.tell(error);
        }
        self.release();
        result
    }

    fn is_over(&self) -> bool {
        let Some(wait) = self.options.until_end else {
            return false;
        };
        let is_read = |part: &Part| part.is_at_end && part.under_way.is_empty();
        let is_read =
            self.parts.values().all(is_read) && self.events.is_empty() && self.leaving.is_none();
        let has_none = |since: Instant| self.parts.is_empty() && since.elapsed() >= wait;
        is_read && (!self.parts.is_empty() || self.divided.is_some_and(has_none))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        *self.consumer.context().is_over.lock() = true;
        // The consumer waits until it was told to let its partitions go.
        let moves = core::mem::take(&mut *self.consumer.context().moves.lock());
        let going = self.leaving.take().into_iter();
        let going = going.chain(moves.into_iter().filter(|(come, _)| !come).map(|it| it.1));
        for partitions in going {
            let _ = self.consumer.incremental_unassign(&partitions);
        }
    }
}
