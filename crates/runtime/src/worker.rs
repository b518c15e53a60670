//! A worker thread: takes events from all shards and handles them.

use core::ops::Range;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_stream::engine::{
    ApplicationId, Budget, ChunkFlags, ChunkInfo, Command, Cutoff, OwnedChunk, StreamErrors,
    StreamSnapshot,
};

use crate::application::Team;
use crate::clock::Clock;
use crate::handlers::{Chunk, Remote, Shown, StreamHandle};
use crate::outlet::{Kind, Load, Message, Order, Parcel};
use crate::queue::{Bell, Receiver, Sender};

/// The way from one shard, and back.
pub(crate) struct Inlet {
    pub(crate) queue: Receiver<Message>,
    pub(crate) orders: Sender<Order>,
    /// Orders that found no room: a worker never waits for a shard, which may be waiting for it.
    pub(crate) aside: VecDeque<Order>,
    /// The shard's, which may wait for memory.
    pub(crate) shard: Arc<Bell>,
}

/// Counters of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStatistics {
    /// Streams created.
    pub streams: u64,
    /// Chunks handled, without those that arrived when the application no longer wanted their streams.
    pub chunks: u64,
    /// Their bytes, including kept bytes before them.
    pub bytes: u64,
    /// Bytes that arrived when the application no longer wanted their streams.
    pub passed_bytes: u64,
    /// Nanoseconds spent in handlers of data.
    pub busy_ns: u64,
}

/// A worker.
pub(crate) struct Worker<'a> {
    pub(crate) number: usize,
    pub(crate) inlets: Vec<Inlet>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) team: Team<'a>,
    pub(crate) loads: Arc<[Load]>,
    pub(crate) clock: Clock,
    pub(crate) budget: Budget,
    /// What was kept and the chunk behind it, contiguous.
    pub(crate) joined: Vec<u8>,
}

/// What a worker has seen so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    locals: Locals,
    statistics: WorkerStatistics,
    /// The shard that is asked next.
    next: usize,
}

/// What a worker knows of a stream that the engine does not know, or not yet.
#[derive(Debug, Default)]
struct Local {
    uid: u64,
    processing: u64,
    /// Data events.
    chunks: u64,
    /// Position behind the last byte the application got.
    reached: u64,
    /// Bytes that came when it wanted no more: the engine has counted them as captured.
    passed_bytes: u64,
    user_state: Option<u64>,
    cutoff: Option<Cutoff>,
    priority: Option<u8>,
    discarded: bool,
    kept: Option<Kept>,
}

/// What goes before the next chunk: chunks one behind the other, charged to the budget as long as
/// they are here.
#[derive(Debug)]
struct Kept {
    /// Each, and which of its bytes.
    parts: Vec<(Part, Range<usize>)>,
    /// Where the first of the bytes is in the stream, and how many there are.
    start: u64,
    len: usize,
}

/// A chunk that was kept.
#[derive(Debug)]
enum Part {
    Chunk(OwnedChunk),
    /// What came from the ring of a shared capture, which goes on.
    Copy(Copied),
}

/// A copy, charged to the budget as long as it is here.
#[derive(Debug)]
struct Copied {
    bytes: Vec<u8>,
    budget: Budget,
}

impl Part {
    /// `None` where there is no memory for a copy.
    fn of(parcel: &Parcel, budget: &Budget) -> Option<Part> {
        match parcel {
            Parcel::Own(chunk) => Some(Part::Chunk(chunk.clone())),
            Parcel::Shared(chunk) => {
                let bytes = chunk.bytes();
                let is_room = budget.charge(bytes.len() as u64, budget.limit());
                is_room.then(|| {
                    Part::Copy(Copied {
                        bytes: bytes.to_vec(),
                        budget: budget.clone(),
                    })
                })
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Part::Chunk(chunk) => chunk.bytes(),
            Part::Copy(copy) => &copy.bytes,
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.budget.release(self.bytes.len() as u64);
    }
}

/// Shares of the memory, in eighths, beyond which nothing is kept: what is kept is not to take the
/// place of what still comes.
const KEPT_EIGHTHS: u64 = 6;
/// Bytes that are delivered at once at most.
const LONGEST_JOINED: usize = 1 << 30;

/// By shard, application, and the place of a stream's number that is used again: so there are not
/// more than streams, whatever is asked for those that have ended.
#[derive(Debug, Default)]
struct Locals(HashMap<(usize, ApplicationId, u32), Local>);

impl Worker<'_> {
    /// Bytes that a worker keeps of both streams of a connection for each application, in a map that is half empty when it has
    /// just grown.
    pub(crate) const BYTES_PER_CONNECTION: u64 =
        4 * size_of::<((usize, ApplicationId, u32), Local)>() as u64;

    /// Works until all shards are done.
    pub(crate) fn run(mut self, mut seen: Seen) -> WorkerStatistics {
        while let Some((shard, message)) = receive(&mut self.inlets, &self.bell, &mut seen.next) {
            self.take(shard, message, &mut seen);
        }
        self.team.finish();
        seen.statistics
    }

    /// Handles what there is, in the thread that sends it.
    pub(crate) fn work_off(&mut self, seen: &mut Seen) {
        for shard in 0..self.inlets.len() {
            let next = |worker: &mut Worker<'_>| worker.inlets.get_mut(shard)?.queue.try_receive();
            while let Some(message) = next(self) {
                self.take(shard, message, seen);
            }
        }
    }

    fn take(&mut self, shard: usize, message: Message, seen: &mut Seen) {
        let is_data = matches!(message.kind, Kind::Data(_));
        self.handle(shard, message, &mut seen.locals, &mut seen.statistics);
        // The chunk has been dropped by now.
        if is_data && let Some(load) = self.loads.get(self.number) {
            load.waiting.fetch_sub(1, Ordering::Release);
        }
        if let Some(inlet) = self.inlets.get_mut(shard) {
            inlet.shard.ring();
            inlet.push_aside();
        }
    }

    fn handle(
        &mut self,
        shard: usize,
        message: Message,
        locals: &mut Locals,
        statistics: &mut WorkerStatistics,
    ) {
        let Message { stream, kind } = message;
        let (uid, application) = (stream.uid, stream.application);
        let mut remote = Remote::new(stream);
        // The engine has counted what it sent; what came, and was wanted, is known here.
        remote.snapshot.chunks = 0;
        if let Some(local) = locals.get(shard, application, uid) {
            local.apply_to(&mut remote.snapshot);
        }
        if let Some(opposite) = locals.get(shard, application, remote.snapshot.opposite_uid) {
            let discarded = &mut remote.snapshot.opposite_statistics.discarded;
            discarded.bytes += opposite.passed_bytes;
        }
        match kind {
            Kind::Created => {
                statistics.streams += 1;
                self.team.call(application, |handlers| {
                    handlers.created(&mut StreamHandle::there(&mut remote, shard));
                });
            }
            Kind::Data(chunk) => {
                let local = locals.entry(shard, application, uid);
                let began = self.clock.now();
                self.data(shard, &mut remote, &chunk, local, statistics);
                let took = self.clock.now().saturating_sub(began);
                local.processing += took;
                statistics.busy_ns += took;
            }
            Kind::Terminated => {
                locals.remove(shard, application, uid);
                self.team.call(application, |handlers| {
                    handlers.terminated(&mut StreamHandle::there(&mut remote, shard));
                });
                remote.commands.clear();
            }
        }
        let own = remote.commands.iter().map(|&command| (uid, command));
        for (uid, command) in own.chain(remote.others) {
            if let Some(local) = locals.other(shard, application, uid) {
                local.note(command);
            }
            if let Some(inlet) = self.inlets.get_mut(shard) {
                inlet.order(Order {
                    uid,
                    application,
                    command,
                });
            }
        }
    }

    fn data(
        &mut self,
        shard: usize,
        remote: &mut Remote,
        chunk: &Parcel,
        local: &mut Local,
        statistics: &mut WorkerStatistics,
    ) {
        let mut info = chunk.info();
        let mut bytes = chunk.bytes();
        let all = bytes.len();
        // What was on its way when the application lost interest.
        let is_over = local.discarded || info.offset >= remote.snapshot.cutoff.0;
        let wanted = remote.snapshot.cutoff.0.saturating_sub(info.offset);
        if !is_over && wanted < bytes.len() as u64 {
            bytes = bytes.get(..wanted as usize).unwrap_or(bytes);
            info.flags = info.flags.with(ChunkFlags::CUTOFF);
        }
        let taken = if is_over { 0 } else { bytes.len() };
        let passed = all.saturating_sub(taken.max(info.repeated as usize)) as u64;
        local.passed_bytes += passed;
        statistics.passed_bytes += passed;
        remote.snapshot.statistics.discarded.bytes += passed;
        if is_over {
            return;
        }
        if local.tell_lost(&mut info) {
            remote.snapshot.errors.insert(StreamErrors::GAP);
        }
        local.reached = info.offset + bytes.len() as u64;
        local.chunks += 1;
        remote.snapshot.chunks = local.chunks;
        let own = info;
        let kept = local.kept.take().filter(|kept| kept.goes_on_with(own));
        let mut shift = 0;
        if let Some(kept) = &kept {
            let fresh = bytes.get(info.repeated as usize..).unwrap_or(&[]);
            kept.join(fresh, &mut self.joined);
            shift = (kept.len as u32).saturating_sub(own.repeated);
            info.repeated = kept.len as u32;
            info.offset = kept.start;
            info.flags = info.flags.with(ChunkFlags::KEPT);
        }
        let len = bytes.len();
        if kept.is_some() {
            bytes = &self.joined;
        }
        statistics.chunks += 1;
        statistics.bytes += bytes.len() as u64;
        let application = remote.snapshot.application;
        self.team.call(application, |handlers| {
            handlers.data(
                &mut StreamHandle::there(remote, shard),
                &mut Chunk::there(chunk, Shown { bytes, info, shift }),
            );
        });
        let limit = self.budget.limit();
        let is_room = self.budget.used() <= limit / 8 * KEPT_EIGHTHS;
        if remote.kept
            && is_room
            && bytes.len() < LONGEST_JOINED
            && let Some(part) = Part::of(chunk, &self.budget)
        {
            local.kept = Some(match kept {
                Some(kept) => kept.with(part, own.repeated as usize..len),
                None => Kept {
                    parts: vec![(part, 0..len)],
                    start: own.offset,
                    len,
                },
            });
        }
    }
}

impl Kept {
    /// Whether a chunk begins where this ends.
    fn goes_on_with(&self, info: ChunkInfo) -> bool {
        let end = self.start + self.len as u64;
        info.gap_before == 0 && end == info.offset + u64::from(info.repeated)
    }

    fn with(mut self, part: Part, range: Range<usize>) -> Kept {
        self.len += range.len();
        self.parts.push((part, range));
        self
    }

    /// Puts all of it, and `fresh` behind it, in one piece.
    fn join(&self, fresh: &[u8], joined: &mut Vec<u8>) {
        joined.clear();
        joined.reserve(self.len + fresh.len());
        for (part, range) in &self.parts {
            joined.extend_from_slice(part.bytes().get(range.clone()).unwrap_or(&[]));
        }
        joined.extend_from_slice(fresh);
    }
}

impl Locals {
    fn get(&self, shard: usize, application: ApplicationId, uid: u64) -> Option<&Local> {
        let local = self.0.get(&(shard, application, uid as u32));
        local.filter(|local| local.uid == uid)
    }

    fn entry(&mut self, shard: usize, application: ApplicationId, uid: u64) -> &mut Local {
        let local = self.0.entry((shard, application, uid as u32)).or_default();
        if local.uid != uid {
            // Whoever had the place before has ended.
            *local = Local {
                uid,
                ..Local::default()
            };
        }
        local
    }

    /// The same for a stream of which nothing is known but its number: `None` when it has ended and
    /// another has its place.
    fn other(&mut self, shard: usize, application: ApplicationId, uid: u64) -> Option<&mut Local> {
        let there = self.0.get(&(shard, application, uid as u32));
        if there.is_some_and(|there| is_before(uid, there.uid)) {
            return None;
        }
        Some(self.entry(shard, application, uid))
    }

    fn remove(&mut self, shard: usize, application: ApplicationId, uid: u64) {
        self.0.remove(&(shard, application, uid as u32));
    }
}

/// Whether of two streams that had the same place this one was there before `other`: the upper half
/// of their numbers counts how often the place was used.
fn is_before(uid: u64, other: u64) -> bool {
    let uses = |uid: u64| (uid >> 32) as u32;
    uses(uid).wrapping_sub(uses(other)).cast_signed() < 0
}

/// The next event, from each shard in turn; `None` when all are done.
fn receive(inlets: &mut [Inlet], bell: &Bell, next: &mut usize) -> Option<(usize, Message)> {
    bell.wait(|| {
        let count = inlets.len();
        let mut open = false;
        for step in 0..count {
            let number = (*next + step) % count;
            let Some(inlet) = inlets.get_mut(number) else {
                continue;
            };
            // In this order: what a shard sent before it went is still there.
            let closed = inlet.queue.is_closed();
            if let Some(message) = inlet.queue.try_receive() {
                *next = number + 1;
                return Some(Some((number, message)));
            }
            open |= !closed;
            inlet.push_aside();
        }
        (!open).then_some(None)
    })
}

impl Inlet {
    fn order(&mut self, order: Order) {
        self.aside.push_back(order);
        self.push_aside();
    }

    fn push_aside(&mut self) {
        while let Some(order) = self.aside.pop_front() {
            if let Err(order) = self.orders.try_send(order) {
                if self.orders.is_closed() {
                    self.aside.clear();
                } else {
                    self.aside.push_front(order);
                }
                return;
            }
        }
    }
}

impl Local {
    fn note(&mut self, command: Command) {
        match command {
            Command::SetCutoff(cutoff) => self.cutoff = Some(cutoff),
            Command::SetPriority(priority) => self.priority = Some(priority),
            Command::Discard => self.discarded = true,
            Command::SetUserState(state) => self.user_state = Some(state),
            Command::AddProcessingTime(time) => self.processing += time,
            Command::SetParameter(_) => {}
        }
    }

    /// Puts into a chunk's description what was lost since the chunk before, for want of memory, on its way
    /// here: bytes that it repeats may be new then. Returns whether anything is missing because of it.
    fn tell_lost(&self, info: &mut ChunkInfo) -> bool {
        let fresh = info.offset + u64::from(info.repeated);
        if self.reached + info.gap_before >= fresh {
            return false;
        }
        info.repeated = self.reached.saturating_sub(info.offset) as u32;
        info.gap_before = info.offset.saturating_sub(self.reached);
        info.gap_before != 0
    }

    fn apply_to(&self, snapshot: &mut StreamSnapshot) {
        snapshot.processing_time += self.processing;
        snapshot.chunks = self.chunks;
        snapshot.statistics.discarded.bytes += self.passed_bytes;
        snapshot.user_state = self.user_state.unwrap_or(snapshot.user_state);
        snapshot.cutoff = self.cutoff.unwrap_or(snapshot.cutoff);
        snapshot.priority = self.priority.unwrap_or(snapshot.priority);
        snapshot.is_discarded |= self.discarded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_ended_streams_is_forgotten() {
        let application = ApplicationId(1);
        let mut locals = Locals::default();
        let again = |uses: u64| uses << 32 | 5;
        locals
            .entry(0, application, again(0))
            .note(Command::Discard);
        locals.remove(0, application, again(0));
        // Too late: nobody will remove it.
        let other = locals.other(0, application, again(0)).unwrap();
        other.note(Command::SetPriority(7));
        assert_eq!(locals.0.len(), 1);
        // The next one there begins anew, and is not disturbed by what is asked for the one before.
        assert!(locals.get(0, application, again(1)).is_none());
        locals.entry(0, application, again(1)).processing = 3;
        assert!(locals.other(0, application, again(0)).is_none());
        let there = locals.get(0, application, again(1)).unwrap();
        assert_eq!(
            (there.priority, there.discarded, there.processing),
            (None, false, 3)
        );
        assert_eq!(locals.0.len(), 1);
        // The other shard's, and the other application's, are others.
        assert!(locals.get(1, application, again(1)).is_none());
        assert!(locals.get(0, ApplicationId(0), again(1)).is_none());
        assert!(
            is_before(again(u64::from(u32::MAX)), again(0)),
            "uses are counted round"
        );
    }
}
