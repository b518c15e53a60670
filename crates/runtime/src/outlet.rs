//! The engine's end of the queues to the workers.
//!
//! An event is sent with a snapshot of its stream and, if it has one, its chunk, whose memory stays charged to the
//! budget until the worker is done with it. If a worker is too slow, its queue fills. A source that can wait (a file)
//! then waits, so nothing is lost. Otherwise events are kept aside and charged to the budget; when that is full,
//! prioritized packet loss decides: an event may use memory up to the ceiling of its stream's priority. Creations and
//! terminations are charged if very many events wait; creations then have memory that data cannot use. If there is none
//! left, a chunk or a whole stream is lost and counted.
//!
//! # Balance (section 4.4 of the paper)
//! Both directions of a connection go to one worker, its home: if a live source has as many shards as workers, the
//! worker with the shard's number (on the same core), else one chosen by a hash. If that worker has more than its share
//! of the live streams by a quarter, new connections go to the worker with the fewest. Only connections away from home
//! are remembered.

use core::ops::Range;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_stream::engine::{
    ApplicationId, Budget, ChunkInfo, Command, DataChunk, Engine, Events, OwnedChunk, StreamErrors,
    StreamRef, StreamSnapshot,
};

use crate::queue::{Bell, Receiver, Sender};
use crate::shared::HeldChunk;

/// Events kept aside for one worker before creations and terminations are charged, too, or before the sender waits where
/// nothing is charged.
const MOST_ASIDE: usize = 1 << 16;
/// A worker has too many streams above its share and this part of it, and so many.
const TOLERATED_PART: u64 = 4;
const TOLERATED_STREAMS: u64 = 16;

/// An event on its way to a worker.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) stream: StreamSnapshot,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Created,
    Data(Parcel),
    Terminated,
}

/// A chunk on its way.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// Of an engine of this process.
    Own(OwnedChunk),
    /// Of a capture that processes share.
    Shared(HeldChunk),
}

impl Parcel {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Parcel::Own(chunk) => chunk.bytes(),
            Parcel::Shared(chunk) => chunk.bytes(),
        }
    }

    pub(crate) fn info(&self) -> ChunkInfo {
        match self {
            Parcel::Own(chunk) => chunk.info(),
            Parcel::Shared(chunk) => chunk.info(),
        }
    }

    pub(crate) fn holes(&self) -> Vec<Range<u32>> {
        match self {
            Parcel::Own(chunk) => chunk.holes().to_vec(),
            Parcel::Shared(chunk) => chunk.holes().collect(),
        }
    }
}

/// A command on its way back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) uid: u64,
    pub(crate) application: ApplicationId,
    pub(crate) command: Command,
}

/// What a worker has to do. On a cache line of its own: all shards write to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Load {
    /// Streams that live, one for each application.
    pub(crate) streams: AtomicU64,
    /// Chunks on their way.
    pub(crate) waiting: AtomicU64,
}

/// The way to one worker.
pub(crate) struct Lane {
    pub(crate) queue: Sender<Message>,
    pub(crate) orders: Receiver<Order>,
    /// What the queue had no room for, in order.
    pub(crate) aside: VecDeque<Aside>,
}

/// An event that waits for room in its queue, and what it is charged.
pub(crate) struct Aside(Message, Option<Charge>);

/// Bytes of an event that is kept aside, charged as long as it is.
struct Charge(Budget);

impl Charge {
    const BYTES: u64 = size_of::<Aside>() as u64;

    fn to(budget: &Budget, ceiling: u64) -> Option<Charge> {
        let is_room = budget.charge(Charge::BYTES, ceiling);
        is_room.then(|| Charge(budget.clone()))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.release(Charge::BYTES);
    }
}

/// Sends a shard's events to the workers.
pub(crate) struct Outlet {
    lanes: Vec<Lane>,
    placement: Placement,
    loads: Arc<[Load]>,
    /// The shard's own: rung by workers.
    bell: Arc<Bell>,
    /// Whether the source can wait.
    patient: bool,
    /// What events kept aside are charged to; nothing for those of a capture that processes share, which can wait.
    budget: Option<Budget>,
    pub(crate) lost: Lost,
    /// Streams of which no event is sent: there was no room for the first.
    untold: HashSet<(u64, ApplicationId)>,
    /// Of streams whose last chunks were lost: how many bytes are missing behind what was sent.
    trailing: HashMap<(u64, ApplicationId), u64>,
}

/// Events that could not be passed to a worker because memory was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Streams that had no events.
    pub streams: u64,
    /// Commands and changes that the capturing process refused, or did not receive in time.
    pub commands: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, other: Lost) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.streams += other.streams;
        self.commands += other.commands;
    }
}

impl Outlet {
    /// Streams are at home with worker `home`, or else spread over all.
    pub(crate) fn new(
        lanes: Vec<Lane>,
        loads: Arc<[Load]>,
        bell: Arc<Bell>,
        patient: bool,
        home: Option<usize>,
    ) -> Outlet {
        Outlet {
            lanes,
            placement: Placement::new(Arc::clone(&loads), home),
            loads,
            bell,
            patient,
            budget: None,
            lost: Lost::default(),
            untold: HashSet::new(),
            trailing: HashMap::new(),
        }
    }

    /// Charges events kept aside to a budget: what finds no room there is lost.
    pub(crate) fn charged_to(mut self, budget: &Budget) -> Outlet {
        self.budget = Some(budget.clone());
        self
    }

    /// To be called between batches: what workers have asked for is done, what was kept aside goes
    /// on, and a source that can wait waits until no more memory than the base threshold is in use or
    /// nothing is on its way.
    pub(crate) fn between_batches(&mut self, engine: &mut Engine) {
        self.between_events(|order| {
            // The stream may have ended meanwhile.
            engine.command(order.uid, order.application, order.command);
        });
        let memory = engine.base_bytes();
        if self.patient && engine.budget().used() > memory {
            let budget = engine.budget();
            self.bell.wait(|| {
                let idle = are_idle(&self.lanes, &self.loads);
                (idle || budget.used() <= memory).then_some(())
            });
        }
    }

    /// Takes what workers have asked for, and sends on what was kept aside. Whether some still is.
    pub(crate) fn between_events(&mut self, mut act: impl FnMut(Order)) -> bool {
        let mut is_aside = false;
        for lane in &mut self.lanes {
            while let Some(order) = lane.orders.try_receive() {
                act(order);
            }
            lane.push_aside();
            is_aside |= !lane.aside.is_empty();
        }
        is_aside
    }

    /// Sends an event to the worker that has its stream. False where there is no room for it below `ceiling`; a termination is
    /// always sent, and a creation when the connection's other stream was.
    pub(crate) fn deliver(&mut self, stream: StreamSnapshot, kind: Kind, ceiling: u64) -> bool {
        let uid = stream.uid;
        let must = match kind {
            Kind::Created => self.placement.was_last(uid),
            Kind::Data(_) => false,
            Kind::Terminated => true,
        };
        let is_data = matches!(kind, Kind::Data(_));
        let worker = match kind {
            Kind::Created => self.placement.place(uid),
            Kind::Data(_) => {
                let worker = self.placement.of(uid);
                if let Some(load) = self.loads.get(worker) {
                    load.waiting.fetch_add(1, Ordering::Relaxed);
                }
                worker
            }
            Kind::Terminated => self.placement.leave(uid),
        };
        let sent = self.send(worker, Message { stream, kind }, must, ceiling);
        if !sent && is_data {
            if let Some(load) = self.loads.get(worker) {
                load.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        } else if !sent {
            self.placement.take_back(uid);
        }
        sent
    }

    /// All that was kept aside goes to the workers.
    pub(crate) fn finish(&mut self) {
        for lane in &mut self.lanes {
            while let Some(Aside(message, _charge)) = lane.aside.pop_front() {
                if lane.queue.send(message).is_err() {
                    break;
                }
            }
        }
    }

    fn send(&mut self, worker: usize, message: Message, must: bool, ceiling: u64) -> bool {
        let Some(lane) = self.lanes.get_mut(worker) else {
            return true;
        };
        if self.patient {
            // An error means that the worker is gone, and with it everyone who wants this.
            let _ = lane.queue.send(message);
            return true;
        }
        lane.push_aside();
        let message = if lane.aside.is_empty() {
            match lane.queue.try_send(message) {
                Ok(()) => return true,
                Err(message) => message,
            }
        } else {
            message
        };
        if lane.queue.is_closed() {
            return true;
        }
        let mut charge = None;
        let is_data = matches!(message.kind, Kind::Data(_));
        if let Some(budget) = &self.budget {
            if is_data || lane.aside.len() >= MOST_ASIDE {
                charge = Charge::to(budget, ceiling);
                if charge.is_none() && !must {
                    return false;
                }
            }
        } else if lane.aside.len() >= MOST_ASIDE
            && let Some(Aside(first, _)) = lane.aside.pop_front()
        {
            let _ = lane.queue.send(first);
        }
        lane.aside.push_back(Aside(message, charge));
        true
    }

    /// A chunk is lost: so many bytes are missing behind what was sent of its stream.
    fn lose(&mut self, key: (u64, ApplicationId), bytes: u64, missing: u64) {
        self.lost.chunks += 1;
        self.lost.bytes += bytes;
        *self.trailing.entry(key).or_default() += missing;
    }
}

/// Whether no worker has a chunk that it still handles. Who is gone has none.
fn are_idle(lanes: &[Lane], loads: &[Load]) -> bool {
    lanes
        .iter()
        .zip(loads)
        .all(|(lane, load)| lane.queue.is_closed() || load.waiting.load(Ordering::Acquire) == 0)
}

impl Lane {
    fn push_aside(&mut self) {
        while let Some(Aside(message, charge)) = self.aside.pop_front() {
            if let Err(message) = self.queue.try_send(message) {
                if !self.queue.is_closed() {
                    self.aside.push_front(Aside(message, charge));
                }
                return;
            }
        }
    }
}

impl Events for Outlet {
    fn created(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let uid = stream.uid();
        let is_other_untold = self.untold.contains(&(uid ^ 1, application));
        let ceiling = stream.creation_ceiling();
        if is_other_untold || !self.deliver(stream.snapshot(), Kind::Created, ceiling) {
            self.lost.streams += 1;
            self.untold.insert((uid, application));
        }
    }

    fn data(
        &mut self,
        application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let key = (stream.uid(), application);
        let bytes = chunk.bytes().len() as u64;
        let missing = chunk.gap_before() + chunk.new_bytes().len() as u64;
        if self.untold.contains(&key) {
            self.lost.chunks += 1;
            self.lost.bytes += bytes;
            return;
        }
        let taken = match chunk.take() {
            Ok(taken) => Some(taken),
            Err(_) if self.patient => {
                let (lanes, loads) = (&self.lanes, &self.loads);
                self.bell.wait(|| {
                    let idle = are_idle(lanes, loads);
                    match chunk.take() {
                        Ok(taken) => Some(Some(taken)),
                        Err(_) => idle.then_some(None),
                    }
                })
            }
            Err(_) => None,
        };
        let sent = taken.is_some_and(|taken| {
            let kind = Kind::Data(Parcel::Own(taken));
            self.deliver(stream.snapshot(), kind, stream.ceiling())
        });
        if !sent {
            self.lose(key, bytes, missing);
        } else if !self.trailing.is_empty() {
            self.trailing.remove(&key);
        }
    }

    fn terminated(&mut self, application: ApplicationId, stream: &mut StreamRef<'_>) {
        let key = (stream.uid(), application);
        if self.untold.remove(&key) {
            return;
        }
        let mut snapshot = stream.snapshot();
        if let Some(missing) = self.trailing.remove(&key) {
            snapshot.missing_at_end += missing;
            snapshot.errors.insert(StreamErrors::GAP);
        }
        self.deliver(snapshot, Kind::Terminated, u64::MAX);
    }
}

/// Which worker a stream is on.
struct Placement {
    loads: Arc<[Load]>,
    /// The home of all connections; without one it is found by a hash.
    home: Option<usize>,
    /// Connections away from home: the worker, and how many events of creation without those of the
    /// end.
    away: HashMap<u64, (usize, u32)>,
    /// The connection placed last: its further streams follow it.
    last: Option<(u64, usize)>,
}

impl Placement {
    fn new(loads: Arc<[Load]>, home: Option<usize>) -> Placement {
        Placement {
            loads,
            home,
            away: HashMap::new(),
            last: None,
        }
    }

    /// Both directions of a connection differ in the last bit.
    fn connection(uid: u64) -> u64 {
        uid & !1
    }

    fn home(&self, connection: u64) -> usize {
        let hash = (connection ^ connection >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let by_hash = || ((u128::from(hash) * self.loads.len() as u128) >> 64) as usize;
        self.home.unwrap_or_else(by_hash)
    }

    fn of(&self, uid: u64) -> usize {
        let connection = Placement::connection(uid);
        match self.away.get(&connection) {
            Some(&(worker, _)) if !self.away.is_empty() => worker,
            _ => self.home(connection),
        }
    }

    fn place(&mut self, uid: u64) -> usize {
        let connection = Placement::connection(uid);
        let worker = match self.last {
            Some((last, worker)) if last == connection => worker,
            _ => self.choose(connection),
        };
        self.last = Some((connection, worker));
        if worker != self.home(connection) {
            self.away.entry(connection).or_insert((worker, 0)).1 += 1;
        }
        if let Some(load) = self.loads.get(worker) {
            load.streams.fetch_add(1, Ordering::Relaxed);
        }
        worker
    }

    fn choose(&self, connection: u64) -> usize {
        let home = self.home(connection);
        let streams = |worker: usize| {
            let load = self.loads.get(worker);
            load.map_or(0, |load| load.streams.load(Ordering::Relaxed))
        };
        let total: u64 = (0..self.loads.len()).map(streams).sum();
        let share = total / self.loads.len().max(1) as u64;
        if streams(home) <= share + share / TOLERATED_PART + TOLERATED_STREAMS {
            return home;
        }
        let least = (0..self.loads.len()).min_by_key(|&worker| streams(worker));
        least.unwrap_or(home)
    }

    /// Whether a stream's connection was placed last.
    fn was_last(&self, uid: u64) -> bool {
        let connection = Placement::connection(uid);
        self.last.is_some_and(|(last, _)| last == connection)
    }

    /// The stream placed last is sent to nobody.
    fn take_back(&mut self, uid: u64) {
        self.leave(uid);
        self.last = None;
    }

    /// One of the connection's streams ended; where it was.
    fn leave(&mut self, uid: u64) -> usize {
        let connection = Placement::connection(uid);
        let worker = self.of(uid);
        if let Some((_, streams)) = self.away.get_mut(&connection) {
            *streams -= 1;
            if *streams == 0 {
                self.away.remove(&connection);
            }
        }
        if let Some(load) = self.loads.get(worker) {
            load.streams.fetch_sub(1, Ordering::Relaxed);
        }
        worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(workers: usize) -> Arc<[Load]> {
        (0..workers).map(|_| Load::default()).collect()
    }

    #[test]
    fn new_streams_leave_a_worker_that_has_more_than_its_share() {
        let loads = loads(4);
        let mut placement = Placement::new(Arc::clone(&loads), None);
        // Somebody else has given worker 2 a lot.
        loads[2].streams.store(10_000, Ordering::Relaxed);
        let mut counts = [0; 4];
        for connection in 0..8_000u64 {
            let uid = connection << 1;
            let worker = placement.place(uid);
            assert_eq!(placement.place(uid | 1), worker);
            assert_eq!(placement.of(uid), worker);
            counts[worker] += 1;
        }
        assert!(counts[2] < 400, "{counts:?}");
        let others = [counts[0], counts[1], counts[3]];
        assert!(others.iter().all(|&count| count > 2_000), "{counts:?}");
        for connection in 0..8_000u64 {
            let uid = connection << 1;
            assert_eq!(placement.leave(uid), placement.leave(uid | 1));
        }
        assert!(placement.away.is_empty());
        let left: Vec<u64> = loads
            .iter()
            .map(|load| load.streams.load(Ordering::Relaxed))
            .collect();
        assert_eq!(left, [0, 0, 10_000, 0]);
    }

    #[test]
    fn balanced_workers_keep_streams_at_home() {
        let mut placement = Placement::new(loads(3), None);
        for connection in 0..3_000u64 {
            placement.place(connection << 1);
        }
        let away = placement.away.len();
        assert!(away < 300, "{away} away");
    }

    #[test]
    fn a_home_of_all_is_left_when_it_has_more_than_its_share() {
        let loads = loads(2);
        let mut placement = Placement::new(Arc::clone(&loads), Some(1));
        loads[0].streams.store(1000, Ordering::Relaxed);
        let places: Vec<usize> = (0..2000)
            .map(|number| placement.place(number << 1))
            .collect();
        assert!(places[..1000].iter().all(|&place| place == 1));
        assert!((50..300).contains(&placement.away.len()));
        assert!((0..2000).all(|number| placement.of(number << 1) == places[number as usize]));
    }
}
