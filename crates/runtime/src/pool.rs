//! A pool of workers that share the packets of one source. There is no reader thread: worker 0 reads.
//!
//! ```text
//!              +--> queue of groups of batches --> worker 1
//!  source --> worker 0
//!              +--> queue of groups of batches --> worker 2
//! ```
//!
//! Worker 0 reads, hands out groups of batches, and processes its own packets when the others are busy, when the
//! maximum number of batches waits, or when all of the source's memory is in use. Every worker gets every batch with a
//! selection of its packets: those of a flow go to one worker. Nothing is copied unless the source's memory cannot be
//! shared. Batches are grouped because waking a thread for each one cost more system time than the work itself.
//!
//! Each worker gets its packets in order. It also has to time out idle flows at the right point of the whole input:
//! batches are cut where the clock enters another tick, and all workers check timeouts there. Results thus do not
//! depend on the number of workers.
//!
//! [`divide`] makes each worker's packets a source for its own engine; stacks process the batches directly.

use std::collections::VecDeque;
use std::sync::Arc;

use flowgauge_capture::{Error, Interface, PacketSource};
use flowgauge_stack::Selection;
use flowgauge_stack::engine::Chosen;
use flowgauge_wire::{Batch, DecodeOptions, Ledger, Nanos};

use crate::queue::{Bell, Receiver, Sender, queue};
use crate::reader::{Reader, SharedBatch};

/// Batches that go to workers together where the source has them at hand.
pub(crate) const TOGETHER: usize = 16;
/// Groups of them that may wait for a worker.
pub(crate) const WAITING: usize = 16;
/// Groups in front of another worker below which reading comes before the first worker's own packets.
const HUNGRY: usize = 2;

/// Batches that go to a worker together.
type Group = Vec<Arc<SharedBatch>>;

/// The first worker's end. See the [module](self).
pub(crate) struct Pool {
    pub(crate) reader: Reader,
    /// To the other workers.
    others: Vec<Sender<Group>>,
    /// What is to go to them next.
    group: Group,
    together: usize,
    /// Batches of which the first worker has not taken its own packets yet.
    behind: VecDeque<Arc<SharedBatch>>,
}

/// Another worker's end.
pub(crate) struct Inbox {
    worker: Option<usize>,
    queue: Receiver<Group>,
    group: std::vec::IntoIter<Arc<SharedBatch>>,
}

impl Pool {
    /// Batches that a worker beside the first can hold at once.
    pub(crate) const HELD: usize = (WAITING + 2) * TOGETHER;

    /// Of the first worker alone.
    pub(crate) fn new(reader: Reader) -> Pool {
        Pool {
            reader,
            others: Vec::new(),
            group: Vec::new(),
            together: TOGETHER,
            behind: VecDeque::new(),
        }
    }

    /// Adds a worker, which sleeps on `bell`; without a number it takes all packets.
    pub(crate) fn add(&mut self, worker: Option<usize>, bell: &Arc<Bell>) -> Inbox {
        let (sender, queue) = queue(WAITING, &Bell::new(), bell);
        self.others.push(sender);
        Inbox {
            worker,
            queue,
            group: Vec::new().into_iter(),
        }
    }

    /// From the next batch on none goes together with another: what they bring is too much to be on its way at once.
    pub(crate) fn go_singly(&mut self) {
        self.together = 1;
    }

    /// Batches that may be read before the first worker takes its own packets of them.
    pub(crate) fn ahead(&self) -> usize {
        WAITING * self.together
    }

    /// The next batch for the first worker, of which the others have what they soon need; `None` at the end of the input, when
    /// the [rest](Pool::rest) is left.
    pub(crate) fn next<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<Arc<SharedBatch>>, Error> {
        loop {
            let is_due = self.group.last().is_some_and(|last| last.ends_group);
            if (is_due && !self.send()) || self.has_enough(source) {
                return Ok(self.take());
            }
            let ends_group = self.others.is_empty() || self.group.len() + 1 >= self.together;
            let Some(shared) = self.reader.shared(source, ends_group)? else {
                return Ok(None);
            };
            self.push(shared);
        }
    }

    /// All that is read goes to the others; what of it the first worker has not taken yet.
    pub(crate) fn rest(&mut self) -> Option<Arc<SharedBatch>> {
        self.send();
        self.take()
    }

    /// All workers look at the clock, which is where the input has brought it.
    pub(crate) fn look(&mut self) {
        let idle = self.reader.idle();
        self.push(idle);
    }

    /// Nothing more goes to the others.
    pub(crate) fn close(&mut self) {
        self.others.clear();
        self.group.clear();
        self.behind.clear();
    }

    fn push(&mut self, shared: Arc<SharedBatch>) {
        if !self.others.is_empty() {
            self.group.push(Arc::clone(&shared));
        }
        self.behind.push_back(shared);
    }

    /// Whether the first worker's own packets come before reading.
    fn has_enough<S: PacketSource + ?Sized>(&self, source: &S) -> bool {
        !self.behind.is_empty()
            && (self.behind.len() >= self.ahead()
                || !self.is_hungry()
                || source.is_exhausted()
                || !source.is_at_hand())
    }

    /// Whether another worker soon has nothing to do.
    fn is_hungry(&self) -> bool {
        let is_hungry = |other: &Sender<Group>| !other.is_closed() && other.len() < HUNGRY;
        self.others.iter().any(is_hungry)
    }

    fn take(&mut self) -> Option<Arc<SharedBatch>> {
        let shared = self.behind.pop_front();
        if let Some(next) = self.behind.front() {
            next.fetch(Some(0));
        }
        shared
    }

    /// Gives the others what is together. Not where that would wait for a worker that may wait for what the first makes of
    /// batches before. (Behind the last of them that one may wait for others, which do not have it yet.)
    fn send(&mut self) -> bool {
        let is_room = self.others.iter().all(|other| other.len() < WAITING);
        if !is_room && self.behind.len() > 1 {
            return false;
        }
        if !self.group.is_empty() {
            let group = core::mem::replace(&mut self.group, Vec::with_capacity(self.together));
            for other in &mut self.others {
                // One that has ended has nothing to do any more.
                let _ = other.send(group.clone());
            }
        }
        true
    }
}

impl Inbox {
    /// The next batch, if there is one.
    pub(crate) fn try_receive(&mut self) -> Option<Arc<SharedBatch>> {
        if self.group.as_slice().is_empty() {
            let group = self.queue.try_receive()?;
            self.begin(group);
        }
        self.take()
    }

    /// Whether nothing comes any more but what is there.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// The next batch, waiting for it; `None` when nothing more comes.
    fn receive(&mut self) -> Option<Arc<SharedBatch>> {
        if self.group.as_slice().is_empty() {
            let group = self.queue.receive()?;
            self.begin(group);
        }
        self.take()
    }

    fn begin(&mut self, group: Group) {
        self.group = group.into_iter();
        self.fetch();
    }

    fn take(&mut self) -> Option<Arc<SharedBatch>> {
        let shared = self.group.next();
        self.fetch();
        shared
    }

    fn fetch(&self) {
        if let Some(next) = self.group.as_slice().first() {
            next.fetch(self.worker);
        }
    }
}

/// Divides the packets of `source` among this number of workers, each with its own thread and engine, and returns a
/// source for each. The first source reads for all, and ends when all have consumed its batches. `options` determine
/// which packets are tunnels, and have to be those of the engines, whose clocks have to be
/// [led](flowgauge_flow::FlowConfig::led_clock).
///
/// Each ledger has the packets of its worker; that of the first also has those refused by the source. Packets that a
/// worker did not consume because it had ended were, as with a limit of packets, never received.
pub fn divide(
    source: Box<dyn PacketSource + Send>,
    workers: usize,
    options: DecodeOptions,
) -> Vec<Box<dyn PacketSource + Send>> {
    if workers < 2 {
        return vec![source];
    }
    let mut pool = Pool::new(Reader::new(options));
    let held = (workers - 1) * Pool::HELD + pool.ahead() + 4;
    pool.reader.set(workers, false, held);
    pool.reader.look_at(true, &[]);
    let interfaces: Arc<[Interface]> = source.interfaces().into();
    let others: Vec<Other> = (1..workers)
        .map(|worker| Other {
            inbox: pool.add(Some(worker), &Bell::new()),
            own: Own::new(worker),
            interfaces: Arc::clone(&interfaces),
        })
        .collect();
    let first = First {
        source,
        pool,
        own: Own::new(0),
        is_over: false,
    };
    let mut sources: Vec<Box<dyn PacketSource + Send>> = vec![Box::new(first)];
    let others = others.into_iter();
    sources.extend(others.map(|other| Box::new(other) as Box<dyn PacketSource + Send>));
    sources
}

/// A worker's packets of a batch, piece by piece.
struct Own {
    worker: usize,
    current: Option<Arc<SharedBatch>>,
    /// What of it is left, and the next piece.
    left: Selection,
    piece: usize,
    /// What is given now, and where the clock comes to behind it.
    selected: Selection,
    now: Option<Nanos>,
    chosen: Chosen,
    ledger: Ledger,
}

impl Own {
    fn new(worker: usize) -> Own {
        Own {
            worker,
            current: None,
            left: Selection::NONE,
            piece: 0,
            selected: Selection::NONE,
            now: None,
            chosen: Chosen::default(),
            ledger: Ledger::default(),
        }
    }

    fn begin(&mut self, shared: Arc<SharedBatch>) {
        self.left = shared.selection(self.worker, false);
        self.piece = 0;
        self.current = Some(shared);
    }

    /// Goes on to the next piece that has something; false when there is none, and no batch is held.
    fn advance(&mut self) -> bool {
        let Some(shared) = &self.current else {
            return false;
        };
        let pieces = shared.pieces();
        while let Some(piece) = pieces.get(self.piece) {
            self.piece += 1;
            self.selected = self.left.and(Selection::first(usize::from(piece.end)));
            self.left = self.left.without(self.selected);
            self.now = pieces.get(self.piece).and_then(|next| next.clock);
            if self.now.is_some() || !self.selected.is_empty() {
                return true;
            }
        }
        // Before waiting: the first worker may wait for the memory.
        self.current = None;
        false
    }

    /// The piece that it has come to.
    fn batch(&mut self) -> Option<Batch<'_>> {
        let shared = self.current.as_ref()?;
        let batch = self.chosen.selected(&shared.batch(), self.selected);
        let bytes = batch.packets.iter().map(|it| u64::from(it.wire_len));
        self.ledger.take(batch.len() as u64, bytes.sum());
        Some(Batch {
            now: self.now,
            ..batch
        })
    }
}

/// The source of the worker that reads for all.
struct First {
    source: Box<dyn PacketSource + Send>,
    pool: Pool,
    own: Own,
    /// All is read.
    is_over: bool,
}

impl PacketSource for First {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        while !self.own.advance() {
            let mut next = None;
            if !self.is_over {
                next = self.pool.next(&mut self.source)?;
                if next.is_none() {
                    // What is over by the end of the input is that for all.
                    self.pool.look();
                    self.is_over = true;
                }
            }
            match next.or_else(|| self.pool.rest()) {
                Some(shared) => self.own.begin(shared),
                None => {
                    self.pool.close();
                    return Ok(None);
                }
            }
        }
        Ok(self.own.batch())
    }

    fn interfaces(&self) -> &[Interface] {
        self.source.interfaces()
    }

    fn notes(&self) -> Vec<String> {
        self.source.notes()
    }

    fn ledger(&mut self) -> Ledger {
        let mut ledger = self.source.ledger();
        ledger.leave_out(ledger.delivered(), ledger.delivered_bytes());
        ledger.merge(&self.own.ledger);
        ledger
    }
}

/// That of another.
struct Other {
    inbox: Inbox,
    own: Own,
    /// Those that the whole source knew at its beginning.
    interfaces: Arc<[Interface]>,
}

impl PacketSource for Other {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        while !self.own.advance() {
            match self.inbox.receive() {
                Some(shared) => self.own.begin(shared),
                None => return Ok(None),
            }
        }
        Ok(self.own.batch())
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        self.own.ledger.clone()
    }
}
