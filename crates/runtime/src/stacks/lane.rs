//! The work of one thread: passes batches, or the output of other threads, through its parts.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowgauge_capture::filter::Columns;
use flowgauge_stack::{NodeId, Packets, Received, ResultValue};
use flowgauge_wire::Nanos;

use super::board::{Answered, Board, Counts};
use super::crossing::{Ends, Entry, Joining};
use super::fan_out::OwnSource;
use super::items::Message;
use super::meter::{self, Meter};
use super::pace::{Leave, Pace};
use super::part::{Common, Count, Number, Part, Taken};
use crate::pool::{Inbox, TOGETHER};
use crate::queue::Bell;
use crate::reader::{Cut, Reader, SharedBatch};

/// How long a source may keep a thread from looking whether the run is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// Parts of stacks that get packets of the source.
pub(super) struct Lane {
    pub(super) parts: Vec<Part>,
    /// Which worker's packets; `None`: all.
    pub(super) worker: Option<usize>,
    /// The capture clock behind the last batch.
    pub(super) now: Nanos,
    /// What filters of its parts know of the batch at work.
    pub(super) columns: RefCell<Columns>,
    pub(super) meter: Meter,
}

impl Lane {
    pub(super) fn new(worker: Option<usize>, now: Nanos) -> Lane {
        Lane {
            parts: Vec::new(),
            worker,
            now,
            columns: RefCell::default(),
            meter: Meter::default(),
        }
    }

    /// Takes packets through all parts, and the clock to `now`.
    pub(super) fn packets(&mut self, packets: Packets<'_>, pieces: &[Cut], now: Nanos) {
        self.now = now;
        self.columns.get_mut().begin();
        let packets = Packets {
            columns: Some(&self.columns),
            ..packets
        };
        let parts = &mut self.parts;
        let is_empty = packets.selected.is_empty();
        let is_plain = !is_empty && matches!(pieces, [Cut { clock: None, .. }]);
        self.meter.batch(is_empty, || {
            let is_plain = is_plain && !meter::is_on();
            for part in parts {
                if is_plain && part.is_plain() {
                    part.packets(&packets);
                } else if !part.is_over() {
                    part.measured(|part| part.pieces(packets, pieces));
                }
            }
        });
    }

    /// Takes a batch through all parts, and what is left of it to the next stages. Where it ends a group all threads have what came
    /// before, so this is where it waits for those behind. Whether it had to.
    pub(super) fn shared(&mut self, shared: &Arc<SharedBatch>) -> bool {
        self.now = shared.now;
        let batch = shared.batch();
        let mut packets = shared.packets(&batch);
        self.columns.get_mut().begin();
        packets.columns = Some(&self.columns);
        let (parts, worker) = (&mut self.parts, self.worker);
        self.meter.batch(packets.selected.is_empty(), || {
            for part in parts {
                if part.is_over() {
                    continue;
                }
                if let Some(worker) = worker {
                    packets.selected = shared.selection(worker, part.is_by_group());
                }
                part.begin(shared);
                part.measured(|part| part.pieces(packets, shared.pieces()));
                part.send(match shared.ends_group {
                    true => Ends::Group,
                    false => Ends::Batch,
                });
            }
        });
        shared.ends_group && self.relieve()
    }

    /// What the packets left goes to the next stages.
    pub(super) fn send(&mut self) {
        let parts = self.parts.iter_mut();
        parts.for_each(|part| part.send(Ends::Group));
        self.relieve();
    }

    /// What is gathered goes to the next stages.
    pub(super) fn flush(&mut self) {
        self.parts.iter_mut().for_each(Part::flush);
    }

    /// Where more is on its way to other threads than may be: lets them have all that there is, and waits. Whether there was.
    pub(super) fn relieve(&mut self) -> bool {
        let is_ahead = self.parts.iter_mut().any(Part::is_ahead);
        if is_ahead {
            self.flush();
            self.parts.iter_mut().for_each(Part::wait);
        }
        is_ahead
    }

    /// Whether any part does anything with further packets.
    pub(super) fn wants_packets(&self) -> bool {
        self.parts.iter().any(Part::wants_input)
    }

    /// The input is over.
    pub(super) fn finish(&mut self) {
        let now = self.now;
        self.parts.iter_mut().for_each(|part| part.finish(now));
    }

    /// Nothing more comes to its thread: it goes back, for others to change, or its input is over.
    pub(super) fn end(mut self, board: &Board, answered: &mut Answered) -> Option<Lane> {
        if board.is_paused() {
            self.flush();
            return Some(self);
        }
        self.finish();
        board.write(answered, true, |give| self.counts(give));
        None
    }
}

impl Counts for Lane {
    fn counts(&self, give: &mut dyn FnMut(Count)) {
        self.parts.iter().for_each(|part| part.counts(give));
    }

    fn numbers(&self, give: &mut dyn FnMut(Number)) {
        self.parts.iter().for_each(|part| part.numbers(give));
    }

    fn take(&mut self, stack: usize, id: NodeId, give: &mut dyn FnMut(Taken)) {
        let parts = self.parts.iter_mut();
        parts.for_each(|part| part.take(stack, id, give));
    }

    fn reset(&mut self) {
        self.parts.iter_mut().for_each(Part::reset);
    }
}

/// What a thread waits for.
enum Next<T> {
    Thing(T),
    /// Somebody asks for counts.
    Question,
    /// What the thread has is to go back.
    Pause,
    End,
}

/// Where a thread gets things from.
trait Queue {
    type Thing;
    fn take(&mut self) -> Option<Self::Thing>;
    fn is_over(&self) -> bool;
}

impl Queue for Inbox {
    type Thing = Arc<SharedBatch>;

    fn take(&mut self) -> Option<Arc<SharedBatch>> {
        self.try_receive()
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}

impl Queue for Entry {
    type Thing = Message;

    fn take(&mut self) -> Option<Message> {
        self.try_receive()
    }

    fn is_over(&self) -> bool {
        self.is_closed()
    }
}

fn next<Q: Queue>(
    queue: &mut Q,
    bell: &Bell,
    board: &Board,
    answered: &Answered,
) -> Next<Q::Thing> {
    if let Some(thing) = queue.take() {
        return Next::Thing(thing);
    }
    bell.wait(|| {
        // In this order: what was sent before is taken.
        let (is_closed, is_paused) = (queue.is_over(), board.is_paused());
        match queue.take() {
            Some(thing) => Some(Next::Thing(thing)),
            None if is_closed => Some(Next::End),
            None if is_paused => Some(Next::Pause),
            None => board.is_asked(answered).then_some(Next::Question),
        }
    })
}

/// A thread that takes batches of the source. Returns what goes on elsewhere.
pub(super) fn run_lane(
    mut lane: Lane,
    mut inbox: Inbox,
    bell: &Bell,
    board: &Board,
) -> Option<Lane> {
    let mut answered = Answered::default();
    loop {
        match next(&mut inbox, bell, board, &answered) {
            Next::Thing(shared) => lane.shared(&shared),
            Next::Question => false,
            Next::Pause | Next::End => break,
        };
        board.answer(&mut answered, &mut lane);
    }
    lane.end(board, &mut answered)
}

/// Whether the batch with this number, of a source that others read, too, ends a group: the same for all.
pub(super) fn ends_group(number: u64) -> bool {
    (number + 1).is_multiple_of(TOGETHER as u64)
}

/// A thread that reads what all read from a source of its own. (What is wrong with it the first thread says.) Returns what
/// goes on elsewhere.
pub(super) fn run_apart(
    mut lane: Lane,
    mut source: OwnSource,
    mut reader: Reader,
    pace: &Pace,
    bell: &Bell,
    board: &Board,
) -> Option<Lane> {
    let mut answered = Answered::default();
    let mut read = 0;
    loop {
        if !pace.is_committed(read) {
            // Others may wait for what is gathered here.
            lane.flush();
        }
        match pace.wait(read, bell, || board.is_asked(&answered)) {
            Leave::Look => board.answer(&mut answered, &mut lane),
            Leave::End => break,
            Leave::Go => match reader.shared(&mut source, ends_group(read)) {
                Ok(Some(shared)) => {
                    lane.shared(&shared);
                    lane.relieve();
                    read += 1;
                }
                // Nothing more is let go on to.
                Ok(None) => read = u64::MAX,
                Err(_) => {}
            },
        }
    }
    lane.end(board, &mut answered)
}

/// A stage behind others.
pub(super) struct Behind {
    pub(super) part: Part,
    /// The component `thread` that it was cut for, and what was dropped in front of it.
    pub(super) thread: Option<(NodeId, Arc<AtomicU64>)>,
    pub(super) meter: Meter,
}

impl Behind {
    pub(super) fn new(part: Part, thread: Option<(NodeId, Arc<AtomicU64>)>) -> Behind {
        Behind {
            part,
            thread,
            meter: Meter::default(),
        }
    }

    /// Takes what other threads left of a batch.
    fn batch(&mut self, joining: &mut Joining, messages: &[Message]) {
        let part = &mut self.part;
        self.meter.batch(false, || {
            part.measured(|part| joining.batch(messages, part));
        });
    }

    /// What was dropped, if this is the component that drops.
    fn dropped(&self, id: NodeId) -> Option<ResultValue> {
        let thread = self.thread.as_ref().filter(|(thread, _)| *thread == id);
        thread.map(|(_, dropped)| ResultValue::Sum(dropped.load(Ordering::Relaxed)))
    }
}

impl Counts for Behind {
    fn counts(&self, give: &mut dyn FnMut(Count)) {
        self.part.counts(&mut |mut count| {
            count.result = self.dropped(count.id).or(count.result);
            give(count);
        });
    }

    fn numbers(&self, give: &mut dyn FnMut(Number)) {
        self.part.numbers(&mut |mut number| {
            number.value = self.dropped(number.id).or(number.value);
            give(number);
        });
    }

    fn take(&mut self, stack: usize, id: NodeId, give: &mut dyn FnMut(Taken)) {
        self.part.take(stack, id, give);
    }

    fn reset(&mut self) {
        self.part.reset();
        if let Some((_, dropped)) = &self.thread {
            dropped.store(0, Ordering::Relaxed);
        }
    }
}

/// A thread that takes what other threads left of each batch. Returns what goes on elsewhere.
pub(super) fn run_behind(
    mut behind: Behind,
    mut entries: Vec<Entry>,
    bell: &Bell,
    board: &Board,
) -> Option<(Behind, Vec<Entry>)> {
    let mut answered = Answered::default();
    let mut messages = Vec::with_capacity(entries.len());
    let mut joining = Joining::default();
    'input: loop {
        for entry in &mut entries {
            let message = loop {
                let found = next(entry, bell, board, &answered);
                board.answer(&mut answered, &mut behind);
                match found {
                    Next::Thing(message) => break message,
                    Next::Question => {}
                    // All entries have had as many messages.
                    Next::Pause => return Some((behind, entries)),
                    // The stack is over before its input is.
                    Next::End => break 'input,
                }
            };
            messages.push(message);
        }
        behind.batch(&mut joining, &messages);
        let is_last = messages.iter().any(|message| message.is_last);
        if is_last {
            behind.part.begin_end();
            joining.end(&messages, &mut behind.part);
        }
        // Before waiting: the reader may wait for the memory.
        for (entry, message) in entries.iter_mut().zip(messages.drain(..)) {
            entry.give_back(message);
        }
        if is_last {
            behind.part.finish(behind.part.now());
            break;
        }
        behind.part.send(Ends::Group);
        behind.part.wait();
        if behind.part.is_over() {
            break;
        }
    }
    board.write(&mut answered, true, |give| behind.counts(give));
    None
}

/// The same behind threads that read a source each: there are no common batches, and what comes is taken
/// as it comes.
pub(super) fn run_behind_any(
    mut behind: Behind,
    entries: Vec<Entry>,
    bell: &Bell,
    board: &Board,
) -> Option<(Behind, Vec<Entry>)> {
    let mut answered = Answered::default();
    let mut joining = Joining::default();
    let mut entries: Vec<Option<Entry>> = entries.into_iter().map(Some).collect();
    let mut at = 0;
    while !behind.part.is_over() && entries.iter().any(Option::is_some) {
        let found = bell.wait(|| {
            let is_paused = board.is_paused();
            // Each in turn, so that a busy one does not keep the others waiting.
            for _ in 0..entries.len() {
                at = (at + 1) % entries.len();
                let Some(Some(entry)) = entries.get_mut(at) else {
                    continue;
                };
                let is_closed = entry.is_closed();
                if let Some(message) = entry.try_receive() {
                    return Some(Next::Thing(message));
                }
                if is_closed {
                    return Some(Next::End);
                }
            }
            if is_paused {
                return Some(Next::Pause);
            }
            board.is_asked(&answered).then_some(Next::Question)
        });
        match (found, &mut entries[at]) {
            (Next::Thing(message), from) => {
                let messages = core::slice::from_ref(&message);
                behind.batch(&mut joining, messages);
                let is_last = message.is_last;
                if is_last {
                    behind.part.begin_end();
                    joining.end(messages, &mut behind.part);
                }
                if let Some(entry) = from {
                    entry.give_back(message);
                }
                if is_last {
                    *from = None;
                } else {
                    behind.part.send(Ends::Group);
                    behind.part.wait();
                }
            }
            (Next::End, from) => *from = None,
            (Next::Pause, _) => return Some((behind, entries.into_iter().flatten().collect())),
            (Next::Question, _) => {}
        }
        board.answer(&mut answered, &mut behind);
    }
    behind.part.finish(behind.part.now());
    board.write(&mut answered, true, |give| behind.counts(give));
    None
}

/// A thread for a stack with a source of its own.
pub(super) fn run_source(mut part: Part, common: &Common, board: &Board) {
    let mut answered = Answered::default();
    while !common.is_stopped() && part.wants_input() {
        match part.receive(PATIENCE) {
            Received::End => break,
            Received::Nothing => {}
            Received::Until(_) => {
                part.send(Ends::Group);
                part.wait();
            }
        }
        board.answer(&mut answered, &mut part);
    }
    part.finish(part.now());
    board.write(&mut answered, true, |give| part.counts(give));
    common.sources.fetch_sub(1, Ordering::Release);
    common.notify();
}
