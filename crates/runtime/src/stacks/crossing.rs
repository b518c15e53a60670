//! The passage of a stack from one thread to the next.
//!
//! There is one message per batch, but messages are sent in groups like the reader's batches: waking a thread for each
//! one costs more than many batches do.
//!
//! Messages in transit are bounded in number and in bytes, as records may have any size. A thread that exceeds the
//! bound in any of its crossings sends all gathered messages in all of them, and waits ([`Crossing::wait`]). It only
//! does so after a batch that all threads have, so that the awaited thread can continue: the one that is farthest
//! behind never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use flowgauge_stack::{Items, NodeId, Packets, ResultValue, Selection};
use flowgauge_wire::Nanos;

use super::items::{Message, Phase};
use super::part::Part;
use crate::queue::{Bell, Receiver, Sender, queue};
use crate::reader::SharedBatch;

/// The end of a stage: collects what comes out of it and sends it on, batch by batch.
pub(super) struct Crossing {
    /// `None`: the stack is over.
    sender: Option<Sender<Group>>,
    /// Groups whose messages were read.
    emptied: Receiver<Group>,
    current: Message,
    /// Whole messages that go together with the next.
    group: Group,
    /// Messages that served, to serve again.
    free: Group,
    /// Whether messages go on together.
    gathers: bool,
    phase: Phase,
    /// Where there is no room, what comes is dropped and counted here.
    drops: Option<Arc<AtomicU64>>,
    way: Arc<Way>,
    /// Bytes of the group.
    gathered: usize,
}

/// What both ends of a crossing know.
struct Way {
    /// Bytes of messages that were sent and not given back.
    bytes: AtomicUsize,
    /// How many there may be.
    limit: usize,
    /// Of the thread that sends.
    bell: Arc<Bell>,
}

impl Way {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// A message of so many bytes does not keep its memory: all those that wait to serve again are together as large as what may
    /// be on its way.
    fn is_large(&self, bytes: usize) -> bool {
        bytes > self.limit / 256
    }
}

/// What ends with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Batch,
    /// Batches that the reader gives on together.
    Group,
    Input,
}

/// The beginning of a stage, from one thread of the stage before.
pub(super) struct Entry {
    queue: Receiver<Group>,
    emptied: Sender<Group>,
    /// What of a group is still to be read, the last first.
    left: Group,
    read: Group,
    way: Arc<Way>,
}

/// Messages that go together.
type Group = Vec<Message>;

impl Entry {
    /// The next message, if there is one.
    pub(super) fn try_receive(&mut self) -> Option<Message> {
        if self.left.is_empty() {
            self.left = self.queue.try_receive()?;
            self.left.reverse();
        }
        self.left.pop()
    }

    /// Whether nothing comes any more but what is there.
    pub(super) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Messages that may wait.
    pub(super) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// A message was read: its memory serves again.
    pub(super) fn give_back(&mut self, mut message: Message) {
        let bytes = message.sent_bytes;
        if self.way.is_large(bytes) {
            message = Message::begun();
        } else {
            message.clear();
        }
        self.way.bytes.fetch_sub(bytes, Ordering::Release);
        self.way.bell.ring();
        self.read.push(message);
        if self.left.is_empty() {
            // Where there is no room there are enough.
            let _ = self.emptied.try_send(core::mem::take(&mut self.read));
        }
    }
}

/// A way from one thread to another, of so many messages, or of so many groups of them, and of so many bytes; `bell` is the
/// reader's.
pub(super) fn crossing(
    waiting: usize,
    gathers: bool,
    drops: Option<Arc<AtomicU64>>,
    limit: usize,
    bell: &Arc<Bell>,
) -> (Crossing, Entry) {
    let way = Arc::new(Way {
        bytes: AtomicUsize::new(0),
        limit,
        bell: Bell::new(),
    });
    let (sender, receiver) = queue(waiting, &way.bell, bell);
    let (give_back, emptied) = queue(waiting + 2, &Bell::new(), &Bell::new());
    let crossing = Crossing {
        sender: Some(sender),
        emptied,
        current: Message::begun(),
        group: Vec::new(),
        free: Vec::new(),
        gathers,
        phase: Phase::Piece,
        drops,
        way: Arc::clone(&way),
        gathered: 0,
    };
    let entry = Entry {
        queue: receiver,
        emptied: give_back,
        left: Vec::new(),
        read: Vec::new(),
        way,
    };
    (crossing, entry)
}

impl Crossing {
    /// What comes belongs to this batch.
    pub(super) fn begin(&mut self, batch: &Arc<SharedBatch>) {
        if self.sender.is_some() {
            self.current.batch = Some(Arc::clone(batch));
        }
    }

    /// Components look at the clock, which has come to `now`.
    pub(super) fn begin_tick(&mut self, now: Nanos) {
        // Of parts one behind the other each says it.
        if self.phase != Phase::Clock && self.sender.is_some() {
            self.current.begin_piece(now);
        }
        self.phase = Phase::Clock;
    }

    /// They have.
    pub(super) fn end_tick(&mut self) {
        self.phase = Phase::Piece;
    }

    /// The input is over.
    pub(super) fn begin_end(&mut self) {
        self.phase = Phase::End;
    }

    pub(super) fn take(&mut self, maker: Option<NodeId>, items: Items<'_>) {
        if self.sender.is_some() {
            self.current.take(self.phase, maker, items);
        }
    }

    /// Results that the next stage uses, as they are now.
    pub(super) fn results(&mut self, results: &[(NodeId, ResultValue)]) {
        if self.sender.is_some() {
            self.current.take_results(self.phase, results);
        }
    }

    /// The batch is over, and with it what goes on together, or all input.
    pub(super) fn send(&mut self, ends: Ends) {
        if self.sender.is_none() {
            return;
        }
        if self.free.is_empty() {
            self.free = self.emptied.try_receive().unwrap_or_default();
        }
        let fresh = self.free.pop().unwrap_or_else(Message::begun);
        let mut message = core::mem::replace(&mut self.current, fresh);
        message.is_last = ends == Ends::Input;
        message.sent_bytes = message.bytes();
        self.gathered += message.sent_bytes;
        self.group.push(message);
        if !self.gathers || ends != Ends::Batch {
            self.send_group(ends == Ends::Input);
        }
    }

    /// Sends what is gathered.
    fn send_group(&mut self, is_end: bool) {
        let Some(sender) = &mut self.sender else {
            return;
        };
        let group = core::mem::take(&mut self.group);
        let bytes = core::mem::take(&mut self.gathered);
        // The end is not to be lost.
        if let Some(drops) = self.drops.as_ref().filter(|_| !is_end) {
            let waiting = self.way.bytes();
            let refused = match waiting > 0 && waiting + bytes > self.way.limit {
                true => Some(group),
                false => {
                    self.way.bytes.fetch_add(bytes, Ordering::Relaxed);
                    let refused = sender.try_send(group).err();
                    if refused.is_some() {
                        self.way.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    }
                    refused
                }
            };
            if refused.is_some() && sender.is_closed() {
                self.close();
                return;
            }
            for mut message in refused.into_iter().flatten() {
                drops.fetch_add(message.len(), Ordering::Relaxed);
                if !self.way.is_large(message.sent_bytes) {
                    message.clear();
                    self.free.push(message);
                }
            }
            return;
        }
        self.way.bytes.fetch_add(bytes, Ordering::Relaxed);
        if sender.send(group).is_err() {
            self.close();
        }
    }

    /// Whether more is on its way, or gathered, than may be.
    pub(super) fn is_over(&self) -> bool {
        let waits = self.drops.is_none() && self.sender.is_some();
        waits && self.way.bytes() + self.gathered > self.way.limit
    }

    /// Sends on what is gathered, ahead of its time.
    pub(super) fn flush(&mut self) {
        if self.drops.is_none() && !self.group.is_empty() {
            self.send_group(false);
        }
    }

    /// Waits until no more is on its way than may be.
    pub(super) fn wait(&mut self) {
        let (way, Some(sender)) = (&self.way, &self.sender) else {
            return;
        };
        if self.is_over() {
            let done = || sender.is_closed() || way.bytes() <= way.limit;
            way.bell.wait(|| done().then_some(()));
        }
    }

    /// Nothing more is sent: the stack is over.
    pub(super) fn close(&mut self) {
        self.sender = None;
        self.group.clear();
        self.gathered = 0;
        self.current.clear();
    }
}

/// What puts items in order that several threads made: maker, order, thread, number among what that
/// thread made, place.
pub(super) type Order = (NodeId, u64, usize, usize, usize);

/// Takes what the threads of a stage made of one batch through the next.
#[derive(Default)]
pub(super) struct Joining {
    order: Vec<Order>,
    places: Vec<usize>,
}

impl Joining {
    /// Takes all pieces of a batch through a part.
    pub(super) fn batch(&mut self, messages: &[Message], part: &mut Part) {
        let shared = messages.iter().find_map(|message| message.batch.as_ref());
        let pieces = messages.iter().map(|message| message.pieces.len()).max();
        if let Some(shared) = shared {
            part.begin(shared);
        }
        for piece in 0..pieces.unwrap_or(0) {
            let all = || messages.iter().filter_map(|it| it.pieces.get(piece));
            if let Some(now) = all().find_map(|piece| piece.clock) {
                results(messages, piece, Phase::Clock, part);
                self.made(messages, piece, Phase::Clock, part);
                part.advance(now);
            }
            // One that looks at the clock may have enough; what others made before they knew is not lost.
            results(messages, piece, Phase::Piece, part);
            self.made(messages, piece, Phase::Piece, part);
            if !part.wants_input() {
                continue;
            }
            let left = all().fold(Selection::NONE, |left, piece| left.or(piece.left));
            if let Some(shared) = shared.filter(|_| !left.is_empty()) {
                let batch = shared.batch();
                part.feed(Items::Packets(Packets {
                    selected: left,
                    ..shared.packets(&batch)
                }));
            }
        }
    }

    /// Takes what was made at the end of the input through a part.
    pub(super) fn end(&mut self, messages: &[Message], part: &mut Part) {
        let pieces = messages.iter().map(|message| message.pieces.len()).max();
        for piece in 0..pieces.unwrap_or(0) {
            results(messages, piece, Phase::End, part);
            self.made(messages, piece, Phase::End, part);
        }
    }

    /// Takes what was made in a phase through a part, in an order of its own if several threads made
    /// it.
    fn made(&mut self, messages: &[Message], piece: usize, phase: Phase, part: &mut Part) {
        let all = || {
            let lanes = messages.iter().enumerate();
            lanes.flat_map(move |(lane, message)| {
                let made = message.made.iter().enumerate();
                made.filter(move |(_, made)| made.piece == piece && made.phase == phase)
                    .map(move |(number, made)| (lane, number, message, made))
            })
        };
        let mut lanes = all().map(|(lane, ..)| lane);
        let is_of_one = lanes
            .next()
            .is_none_or(|first| lanes.all(|lane| lane == first));
        if is_of_one {
            for (_, _, message, made) in all() {
                message.give(made, None, |items| part.feed(items));
            }
            return;
        }
        self.order.clear();
        for (lane, number, message, made) in all() {
            message.order(made, |place, order| {
                self.order.push((made.maker, order, lane, number, place));
            });
        }
        self.order.sort_unstable();
        let same =
            |one: &Order, other: &Order| (one.2, one.3) == (other.2, other.3) && one.4 < other.4;
        for run in self.order.chunk_by(same) {
            let Some(&(_, _, lane, number, _)) = run.first() else {
                continue;
            };
            self.places.clear();
            self.places.extend(run.iter().map(|of| of.4));
            let Some(message) = messages.get(lane) else {
                continue;
            };
            if let Some(made) = message.made.get(number) {
                message.give(made, Some(&self.places), |items| part.feed(items));
            }
        }
    }
}

/// Tells a part of the results that the threads before it had at the end of a phase.
fn results(messages: &[Message], piece: usize, phase: Phase, part: &mut Part) {
    let mut all: Vec<(NodeId, ResultValue)> = Vec::new();
    for (id, result) in messages.iter().flat_map(|it| it.results(piece, phase)) {
        match all.iter_mut().find(|(known, _)| *known == id) {
            Some((_, mine)) => mine.merge(result),
            None => all.push((id, result.clone())),
        }
    }
    for (id, result) in all {
        part.set_result(id, &result);
    }
}

#[cfg(test)]
mod tests {
    use flowgauge_stack::{StreamChunk, StreamInfo};

    use super::*;

    const LIMIT: usize = 10_000;

    fn batch(crossing: &mut Crossing, ends: Ends) {
        let stream = StreamInfo::default();
        let chunk = StreamChunk {
            key: 0,
            stream: &stream,
            end: None,
            bytes: &[7; 4000],
            offset: 0,
            gap_before: 0,
            time: Nanos(1),
            captured: Nanos(1),
        };
        crossing.take(Some(NodeId(1)), Items::Chunks(&[chunk]));
        crossing.send(ends);
    }

    #[test]
    fn a_thread_waits_when_too_many_bytes_are_on_their_way() {
        let (mut crossing, mut entry) = crossing(16, true, None, LIMIT, &Bell::new());
        for _ in 0..2 {
            batch(&mut crossing, Ends::Batch);
            assert!(!crossing.is_over());
        }
        batch(&mut crossing, Ends::Batch);
        assert!(crossing.is_over() && entry.try_receive().is_none());
        // The group is not at its end, but others are not to wait for that.
        crossing.flush();
        let first = entry.try_receive().unwrap();
        let waiting = std::thread::spawn(move || {
            crossing.wait();
            crossing
        });
        entry.give_back(first);
        let mut crossing = waiting.join().unwrap();
        assert!(!crossing.is_over());
        while let Some(message) = entry.try_receive() {
            entry.give_back(message);
        }
        assert_eq!(crossing.way.bytes(), 0);
        // Nobody waits for a reader that is gone.
        for _ in 0..4 {
            batch(&mut crossing, Ends::Group);
        }
        drop(entry);
        crossing.wait();
    }

    #[test]
    fn what_may_be_dropped_is_dropped_beyond_the_bound() {
        let drops = Arc::new(AtomicU64::new(0));
        let (mut crossing, mut entry) =
            crossing(16, false, Some(Arc::clone(&drops)), LIMIT, &Bell::new());
        for _ in 0..5 {
            batch(&mut crossing, Ends::Batch);
        }
        assert_eq!(drops.load(Ordering::Relaxed), 3);
        let come = core::iter::from_fn(|| entry.try_receive()).map(|message| message.len());
        assert_eq!(come.sum::<u64>(), 2);
    }
}
