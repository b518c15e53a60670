//! A worker thread: takes events from all shards and handles them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowgauge_stream::engine::{
    ApplicationId, ChunkFlags, Command, Cutoff, OwnedChunk, StreamSnapshot,
};

use crate::application::Team;
use crate::clock::Clock;
use crate::handlers::{Chunk, Remote, StreamHandle};
use crate::outlet::{Kind, Load, Message, Order};
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

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStatistics {
    /// Streams created.
    pub streams: u64,
    /// Chunks handled.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds spent in handlers of data.
    pub busy_ns: u64,
}

/// A worker before it runs.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) inlets: Vec<Inlet>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) team: Team,
    pub(crate) loads: Arc<[Load]>,
    pub(crate) clock: Clock,
}

/// What a worker knows of a stream that the engine does not know, or not yet.
#[derive(Debug, Default)]
struct Local {
    processing: u64,
    user_state: Option<u64>,
    cutoff: Option<Cutoff>,
    priority: Option<u8>,
    discarded: bool,
    /// A chunk to go before the next, and where it begins in the stream.
    kept: Option<(Vec<u8>, u64)>,
}

type Locals = HashMap<(usize, ApplicationId, u64), Local>;

impl Worker {
    /// Works until all shards are done.
    pub(crate) fn run(mut self) -> WorkerStatistics {
        let mut statistics = WorkerStatistics::default();
        let mut locals = Locals::new();
        let mut next = 0;
        while let Some((shard, message)) = receive(&mut self.inlets, &self.bell, &mut next) {
            let is_data = matches!(message.kind, Kind::Data(_));
            self.handle(shard, message, &mut locals, &mut statistics);
            // The chunk has been dropped by now.
            if is_data && let Some(load) = self.loads.get(self.number) {
                load.waiting.fetch_sub(1, Ordering::Release);
            }
            if let Some(inlet) = self.inlets.get_mut(shard) {
                inlet.shard.ring();
                inlet.push_aside();
            }
        }
        self.team.finish();
        statistics
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
        let key = (shard, application, uid);
        let mut remote = Remote::new(stream);
        if let Some(local) = locals.get(&key) {
            local.apply_to(&mut remote.snapshot);
        }
        match kind {
            Kind::Created => {
                statistics.streams += 1;
                self.team.call(application, |handlers| {
                    handlers.created(&mut StreamHandle::there(&mut remote, shard));
                });
            }
            Kind::Data(chunk) => {
                statistics.chunks += 1;
                statistics.bytes += chunk.bytes().len() as u64;
                let local = locals.entry(key).or_default();
                let began = self.clock.now();
                self.data(shard, &mut remote, &chunk, local);
                let took = self.clock.now().saturating_sub(began);
                local.processing += took;
                statistics.busy_ns += took;
            }
            Kind::Terminated => {
                locals.remove(&key);
                self.team.call(application, |handlers| {
                    handlers.terminated(&mut StreamHandle::there(&mut remote, shard));
                });
                remote.commands.clear();
            }
        }
        let own = remote.commands.iter().map(|&command| (uid, command));
        for (uid, command) in own.chain(remote.others) {
            let local = locals.entry((shard, application, uid)).or_default();
            local.note(command);
            if let Some(inlet) = self.inlets.get_mut(shard) {
                inlet.order(Order {
                    uid,
                    application,
                    command,
                });
            }
        }
    }

    fn data(&mut self, shard: usize, remote: &mut Remote, chunk: &OwnedChunk, local: &mut Local) {
        let mut info = chunk.info();
        // What was on its way when the application lost interest.
        if local.discarded || info.offset >= remote.snapshot.cutoff.0 {
            return;
        }
        let mut bytes = chunk.bytes();
        let wanted = remote.snapshot.cutoff.0 - info.offset;
        if wanted < bytes.len() as u64 {
            bytes = bytes.get(..wanted as usize).unwrap_or(bytes);
            info.flags = info.flags.with(ChunkFlags::CUTOFF);
        }
        let mut joined;
        if let Some((kept, start)) = local.kept.take() {
            let fresh = bytes.get(info.repeated as usize..).unwrap_or(&[]);
            let end = start + kept.len() as u64;
            if info.gap_before == 0 && end == info.offset + u64::from(info.repeated) {
                joined = kept;
                info.repeated = joined.len() as u32;
                info.offset = start;
                info.flags = info.flags.with(ChunkFlags::KEPT);
                joined.extend_from_slice(fresh);
                bytes = &joined;
            }
        }
        let application = remote.snapshot.application;
        self.team.call(application, |handlers| {
            handlers.data(
                &mut StreamHandle::there(remote, shard),
                &mut Chunk::there(chunk, bytes, info),
            );
        });
        if remote.kept {
            local.kept = Some((bytes.to_vec(), info.offset));
        }
    }
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

    fn apply_to(&self, snapshot: &mut StreamSnapshot) {
        snapshot.processing_time += self.processing;
        snapshot.user_state = self.user_state.unwrap_or(snapshot.user_state);
        snapshot.cutoff = self.cutoff.unwrap_or(snapshot.cutoff);
        snapshot.priority = self.priority.unwrap_or(snapshot.priority);
        snapshot.is_discarded |= self.discarded;
    }
}
