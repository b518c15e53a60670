//! What a program uses: [`Runner`].

mod sources;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use flowgauge_capture::{Error, PacketSource};
use flowgauge_stack::{ComponentFailure, Failure, Graph, Program, SettingError, Stack, Stage};
use flowgauge_wire::Nanos;

use self::sources::Apart;
use super::board::Board;
use super::crossing::{Crossing, Ends, Entry, crossing};
use super::fan_out::{OwnSource, Reading, SourceReport, run_own};
use super::lane::{
    Behind, Lane, SharedGroup, run_apart, run_behind, run_behind_any, run_lane, run_source,
};
use super::pace::Pace;
use super::part::{Common, Count, Next, Part, StackFailure};
use super::plan::{First, groups, parts};
use super::reader::{Reader, SharedBatch};
use super::snapshot::{Snapshot, StackState};
use crate::queue::{Bell, Receiver, Sender, queue};
use crate::threads::{Cores, ThreadFailure, start_detached};

/// Batches that go to the workers together where the source has them at hand.
pub(super) const TOGETHER: usize = 16;
/// Groups of them that may wait for a thread where no option says how many batches.
const WAITING: usize = 16;
/// Groups in front of another thread below which reading comes before the first worker's own packets.
const HUNGRY: usize = 2;
/// Bytes of items on their way between threads, where no component has a bound of its memory. Of those that have, a quarter.
const MOST_ON_THE_WAY: u64 = 256 << 20;
/// The least for each way.
const LEAST_ON_A_WAY: u64 = 256 << 10;
/// How long a snapshot waits for a thread that is busy.
const PATIENCE: Duration = Duration::from_millis(200);

/// How stacks run.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Threads that share the packets, where a stack allows it, the calling one, which reads, among
    /// them; 1: all stacks run on the calling thread, as far as they have no component `thread`.
    pub workers: usize,
    /// Cores for the threads.
    pub cores: Cores,
}

impl Default for RunnerOptions {
    fn default() -> RunnerOptions {
        RunnerOptions {
            workers: 1,
            cores: Cores::any(),
        }
    }
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A component cannot work with its settings.
    #[error("{}", .0.message)]
    Setting(SettingError),
    /// A component cannot begin.
    #[error("{}", .0.failure)]
    Start(StackFailure),
    /// A thread cannot be started.
    #[error("{0}")]
    Thread(ThreadFailure),
}

impl SetupError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            SetupError::Setting(error) => error.hint.as_deref(),
            SetupError::Start(failure) => failure.failure.failure.hint.as_deref(),
            SetupError::Thread(_) => None,
        }
    }
}

/// What a batch had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Packets.
    pub packets: u64,
    /// Their captured bytes.
    pub captured_bytes: u64,
}

/// Drives the stacks of a program. See the [module](super).
pub struct Runner {
    stacks: Vec<Stack>,
    common: Arc<Common>,
    reader: Reader,
    /// Whether batches are shared between threads.
    shares: bool,
    /// Parts that run on the calling thread: all, or those of the first worker.
    inline: Lane,
    /// Threads that are not started yet: privileges are given up in between.
    waiting: Vec<Waiting>,
    /// To the threads that take batches of the source.
    lanes: Vec<Sender<SharedGroup>>,
    /// Batches that are to go to them together, and how many do.
    group: SharedGroup,
    together: usize,
    /// Batches of which the first worker has not taken its own packets yet.
    behind: VecDeque<Arc<SharedBatch>>,
    threads: Vec<Thread>,
    /// Of workers that read a source each.
    readings: Vec<Arc<Reading>>,
    /// Where workers read the same packets, each from a source of its own.
    apart: Option<Apart>,
    cores: Cores,
    now: Nanos,
    is_finished: bool,
}

/// A thread that runs.
struct Thread {
    name: String,
    board: Arc<Board>,
    stacks: Vec<usize>,
    handle: Option<JoinHandle<()>>,
}

/// A thread to be started.
struct Waiting {
    name: String,
    bell: Arc<Bell>,
    stacks: Vec<usize>,
    work: Work,
}

enum Work {
    Lane(Lane, Receiver<SharedGroup>),
    Own(Lane, OwnSource, Box<Reader>, Arc<Reading>),
    Apart(Lane, OwnSource, Box<Reader>, Arc<Pace>),
    /// In step with all queues, or with whichever has something.
    Behind(Behind, Vec<Entry>, Order),
    Source(Part),
}

/// How a stage takes what several threads made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    ByBatch,
    AsItComes,
}

/// The stages of a stack behind its first, and the ways to them, while they are being made.
struct Making {
    stages: Vec<Stage>,
    /// The way into the second stage, from each thread of the first.
    entries: Vec<Entry>,
    bell: Arc<Bell>,
    entrance: Entrance,
}

/// Bytes that may be on each way from a thread to the next: of all of them together, a part of what components may keep.
fn on_a_way(stacks: &[Stack], workers: usize) -> usize {
    let nodes = stacks.iter().flat_map(Stack::iter);
    let memory = nodes.filter_map(|(_, node)| node.settings.size("memory"));
    let all = match memory.reduce(u64::saturating_add) {
        Some(memory) => (memory / 4).min(MOST_ON_THE_WAY),
        None => MOST_ON_THE_WAY,
    };
    let ways = (stacks.len() * workers).max(1) as u64;
    usize::try_from((all / ways).max(LEAST_ON_A_WAY)).unwrap_or(usize::MAX)
}

/// What the queue in front of a stage is.
#[derive(Clone)]
struct Entrance {
    /// Messages, or groups of them, that may wait.
    waiting: usize,
    gathers: bool,
    drops: Option<Arc<AtomicU64>>,
}

impl Entrance {
    fn of(stack: &Stack, stage: &Stage) -> Entrance {
        let settings = stage.thread.map(|id| &stack.node(id).settings);
        let waiting = settings.and_then(|settings| settings.integer("queue"));
        let drops = settings.is_some_and(|settings| settings.text("when_full") == Some("drop"));
        Entrance {
            waiting: waiting.map_or(WAITING, |waiting| waiting.max(1) as usize),
            gathers: waiting.is_none(),
            drops: drops.then(Arc::default),
        }
    }

    fn crossing(&self, limit: usize, bell: &Arc<Bell>) -> (Crossing, Entry) {
        crossing(self.waiting, self.gathers, self.drops.clone(), limit, bell)
    }
}

impl Runner {
    /// Makes and starts the components of all stacks; no thread runs before the first batch.
    ///
    /// # Errors
    /// [`SetupError::Setting`], [`SetupError::Start`].
    pub fn new(program: Program, options: &RunnerOptions) -> Result<Runner, SetupError> {
        let mut stacks = program.stacks;
        let workers = options.workers.max(1);
        stacks
            .iter_mut()
            .for_each(|stack| stack.set_copies(workers));
        let common = Arc::new(Common::new(stacks.len()));
        let mut runner = Runner {
            reader: Reader::new(1, true, 2, false, Vec::new()),
            shares: false,
            inline: Lane {
                parts: Vec::new(),
                worker: None,
            },
            waiting: Vec::new(),
            lanes: Vec::new(),
            group: Vec::new(),
            together: TOGETHER,
            behind: VecDeque::new(),
            threads: Vec::new(),
            readings: Vec::new(),
            apart: None,
            cores: options.cores.clone(),
            now: Nanos(0),
            is_finished: false,
            common,
            stacks: Vec::new(),
        };
        runner.make(&stacks, workers).map_err(SetupError::Setting)?;
        runner.start().map_err(SetupError::Start)?;
        let packets = stacks.iter().filter(|stack| !stack.has_source());
        let decodes = packets.into_iter().any(Stack::needs_decoded);
        runner.shares = !runner.waiting.is_empty();
        let held: usize = runner.waiting.iter().map(Waiting::held).sum();
        runner.set_looks();
        let (is_timed, intervals) = runner.times();
        let sharing = runner.inline.worker.map_or(1, |_| workers);
        runner.reader = Reader::new(
            sharing,
            decodes,
            held + runner.ahead() + 4,
            is_timed,
            intervals,
        );
        runner.stacks = stacks;
        Ok(runner)
    }

    fn make(&mut self, stacks: &[Stack], workers: usize) -> Result<(), SettingError> {
        let mut making: BTreeMap<usize, Making> = BTreeMap::new();
        let (mut shared, mut alone, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for (index, stack) in stacks.iter().enumerate() {
            let mut stages = stack.stages(workers > 1);
            let Some(stage) = stages.first().copied() else {
                continue;
            };
            let first = First::new(index, stack, &stage);
            if stack.has_source() {
                sources.push(first);
            } else if stage.is_parallel {
                shared.push(first);
            } else {
                alone.push(first);
            }
            stages.remove(0);
            let Some(&second) = stages.first() else {
                continue;
            };
            let mut entrance = Entrance::of(stack, &second);
            if stage.is_parallel && entrance.drops.is_some() {
                // Of several threads all messages are needed to put a batch together: what is to be
                // dropped is dropped behind that.
                stages.insert(
                    0,
                    Stage {
                        from: None,
                        until: None,
                        is_parallel: false,
                        thread: None,
                    },
                );
                entrance = Entrance {
                    waiting: WAITING,
                    gathers: true,
                    drops: None,
                };
            }
            if stage.is_parallel && !entrance.gathers {
                // Where the first worker waits for room, the others have to have what it has.
                self.together = 1;
            }
            let stage = Making {
                stages,
                entries: Vec::new(),
                bell: Bell::new(),
                entrance,
            };
            making.insert(index, stage);
        }
        let limit = on_a_way(stacks, workers);
        let common = Arc::clone(&self.common);
        let mut tail = |stack: usize| match making.get_mut(&stack) {
            None => Next::Nothing,
            Some(making) => {
                let (crossing, entry) = making.entrance.crossing(limit, &making.bell);
                making.entries.push(entry);
                Next::Crossing(Box::new(crossing))
            }
        };
        if !shared.is_empty() {
            for worker in 0..workers {
                let parts = parts(shared.clone(), 0, &common, &mut tail)?;
                if worker == 0 {
                    self.inline.parts = parts;
                    self.inline.worker = Some(0);
                } else {
                    self.lane(format!("fg-stack-{worker}"), parts, Some(worker));
                }
            }
        }
        if workers > 1 {
            for group in groups(alone, 0) {
                let number = group.first().map_or(0, First::stack);
                let parts = parts(group, 0, &common, &mut tail)?;
                self.lane(format!("fg-stack-s{number}"), parts, None);
            }
        } else {
            let parts = parts(alone, 0, &common, &mut tail)?;
            self.inline.parts.extend(parts);
        }
        for first in sources {
            let number = first.stack();
            for part in parts(vec![first], 0, &common, &mut tail)? {
                self.common.sources.fetch_add(1, Ordering::Relaxed);
                self.waiting.push(Waiting {
                    name: format!("fg-source-{number}"),
                    bell: Bell::new(),
                    stacks: vec![number],
                    work: Work::Source(part),
                });
            }
        }
        for (index, making) in making {
            if let Some(stack) = stacks.get(index) {
                self.behind(index, stack, making, limit)?;
            }
        }
        Ok(())
    }

    /// A thread that takes batches of the source.
    fn lane(&mut self, name: String, parts: Vec<Part>, worker: Option<usize>) {
        let bell = Bell::new();
        let (sender, receiver) = queue(WAITING, &Bell::new(), &bell);
        let mut stacks: Vec<usize> = parts.iter().flat_map(Part::stacks).copied().collect();
        stacks.dedup();
        self.lanes.push(sender);
        self.waiting.push(Waiting {
            name,
            bell,
            stacks,
            work: Work::Lane(Lane { parts, worker }, receiver),
        });
    }

    /// The threads of the stages behind the first.
    fn behind(
        &mut self,
        index: usize,
        stack: &Stack,
        making: Making,
        limit: usize,
    ) -> Result<(), SettingError> {
        let Making {
            stages,
            mut entries,
            mut bell,
            mut entrance,
        } = making;
        let mut stages = stages.into_iter().peekable();
        let mut number = 1;
        while let Some(stage) = stages.next() {
            let (mut next, mut tail) = (None, Next::Nothing);
            if let Some(behind) = stages.peek() {
                let entrance = Entrance::of(stack, behind);
                let bell = Bell::new();
                let (crossing, entry) = entrance.crossing(limit, &bell);
                tail = Next::Crossing(Box::new(crossing));
                next = Some((vec![entry], bell, entrance));
            }
            let graph = Graph::part(stack, stage.from, stage.until, tail)?;
            let thread = stage.thread.map(|thread| {
                let drops = entrance.drops.clone();
                (thread, drops.unwrap_or_default())
            });
            let behind = Behind {
                part: Part::new(vec![index], graph, &self.common),
                thread,
            };
            self.waiting.push(Waiting {
                name: format!("fg-stack-{index}.{number}"),
                bell: Arc::clone(&bell),
                stacks: vec![index],
                work: Work::Behind(behind, core::mem::take(&mut entries), Order::ByBatch),
            });
            number += 1;
            if let Some(next) = next {
                (entries, bell, entrance) = next;
            }
        }
        Ok(())
    }

    /// Whether any component looks at the clock, and at the ends of which intervals some do.
    fn times(&self) -> (bool, Vec<Nanos>) {
        let (mut is_timed, mut intervals) = (false, Vec::new());
        let mut add = |part: &Part| part.times(&mut is_timed, &mut intervals);
        self.inline.parts.iter().for_each(&mut add);
        for waiting in &self.waiting {
            match &waiting.work {
                Work::Lane(lane, _) | Work::Own(lane, ..) | Work::Apart(lane, ..) => {
                    lane.parts.iter().for_each(&mut add);
                }
                Work::Behind(behind, ..) => add(&behind.part),
                // Its clock is its own.
                Work::Source(_) => {}
            }
        }
        (is_timed, intervals)
    }

    /// Tells sources when components of their stacks look at the clock.
    fn set_looks(&mut self) {
        let mut behind: BTreeMap<usize, (bool, Vec<Nanos>)> = BTreeMap::new();
        for waiting in &self.waiting {
            if let (Work::Behind(behind_source, ..), Some(&stack)) =
                (&waiting.work, waiting.stacks.first())
            {
                let (is_timed, intervals) = behind.entry(stack).or_default();
                behind_source.part.times(is_timed, intervals);
            }
        }
        for waiting in &mut self.waiting {
            if let Work::Source(part) = &mut waiting.work {
                let stack = waiting.stacks.first().copied().unwrap_or(0);
                let (mut is_timed, mut intervals) = behind.remove(&stack).unwrap_or_default();
                part.times(&mut is_timed, &mut intervals);
                part.set_looks(is_timed, &intervals);
            }
        }
    }

    fn start(&mut self) -> Result<(), StackFailure> {
        self.inline.parts.iter_mut().try_for_each(Part::start)?;
        for waiting in &mut self.waiting {
            match &mut waiting.work {
                Work::Lane(lane, _) | Work::Own(lane, ..) | Work::Apart(lane, ..) => {
                    lane.parts.iter_mut().try_for_each(Part::start)?;
                }
                Work::Behind(behind, ..) => behind.part.start()?,
                Work::Source(part) => part.start()?,
            }
        }
        Ok(())
    }

    /// Starts the threads. [`Runner::step`] and [`Runner::wait`] do it where it was not done.
    ///
    /// # Errors
    /// [`SetupError::Thread`].
    pub fn spawn(&mut self) -> Result<(), SetupError> {
        for (number, waiting) in core::mem::take(&mut self.waiting).into_iter().enumerate() {
            let Waiting {
                name,
                bell,
                stacks,
                work,
            } = waiting;
            let board = Arc::new(Board::new(Arc::clone(&bell)));
            let (common, own) = (Arc::clone(&self.common), Arc::clone(&board));
            let core = self.cores.of(number);
            let handle = start_detached(name.clone(), core, move || match work {
                Work::Lane(lane, queue) => run_lane(lane, queue, &bell, &own),
                Work::Own(lane, source, reader, reading) => {
                    run_own(lane, source, *reader, &reading, &common, &own);
                }
                Work::Apart(lane, source, reader, pace) => {
                    run_apart(lane, source, *reader, &pace, &bell, &own);
                }
                Work::Behind(behind, entries, Order::ByBatch) => {
                    run_behind(behind, entries, &bell, &own);
                }
                Work::Behind(behind, entries, Order::AsItComes) => {
                    run_behind_any(behind, entries, &bell, &own);
                }
                Work::Source(part) => run_source(part, &common, &own),
            });
            self.threads.push(Thread {
                name,
                board,
                stacks,
                handle: Some(handle.map_err(SetupError::Thread)?),
            });
        }
        Ok(())
    }

    /// The stacks.
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// Whether a stack wants packets of a source.
    pub fn wants_packets(&self) -> bool {
        let wants =
            |(index, stack): (usize, &Stack)| !stack.has_source() && self.common.wants_input(index);
        self.stacks.iter().enumerate().any(wants)
    }

    /// Whether a stack has a source of its own that goes on.
    pub fn has_sources(&self) -> bool {
        self.common.sources.load(Ordering::Acquire) > 0
    }

    /// Takes a batch of a source through the stacks, or gives it to their threads; `None` at the end
    /// of the input.
    ///
    /// # Errors
    /// What is damaged in the source; the rest can be read.
    pub fn step<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
    ) -> Result<Option<Step>, Error> {
        if !self.waiting.is_empty() {
            self.spawn_or_fail();
        }
        if self.apart.is_some() {
            return self.step_apart(source);
        }
        if !self.shares {
            let (inline, now) = (&mut self.inline, &mut self.now);
            return self.reader.lent(source, |packets, pieces, time| {
                *now = time;
                inline.packets(packets, pieces);
            });
        }
        while !self.behind.is_empty()
            && (self.behind.len() >= self.ahead() || !self.is_hungry() || source.is_exhausted())
        {
            self.catch_up(1);
        }
        let ends_group = self.lanes.is_empty() || self.group.len() + 1 >= self.together;
        let Some((shared, step)) = self.reader.shared(source, ends_group)? else {
            return Ok(None);
        };
        self.now = shared.now;
        let is_at_hand = source.is_at_hand();
        if self.lanes.is_empty() {
            self.inline.shared(&shared);
            return Ok(Some(step));
        }
        self.group.push(Arc::clone(&shared));
        let ends = shared.ends;
        self.behind.push_back(shared);
        if ends == Ends::Group {
            self.send_group();
        }
        if !is_at_hand {
            self.catch_up(usize::MAX);
        }
        Ok(Some(step))
    }

    /// Batches that may be read before the first worker takes its own packets of them.
    fn ahead(&self) -> usize {
        WAITING * self.together
    }

    /// Whether another thread soon has nothing to do.
    fn is_hungry(&self) -> bool {
        let is_hungry = |lane: &Sender<SharedGroup>| !lane.is_closed() && lane.len() < HUNGRY;
        self.lanes.iter().any(is_hungry)
    }

    /// The first worker takes its own packets of so many batches.
    fn catch_up(&mut self, batches: usize) {
        for _ in 0..batches {
            let Some(shared) = self.behind.pop_front() else {
                return;
            };
            if let Some(next) = self.behind.front() {
                next.fetch(self.inline.worker);
            }
            if self.inline.shared(&shared) {
                // What batches that go together bring is too much to be on its way at once.
                self.together = 1;
            }
        }
    }

    /// Gives what is together to the threads.
    fn send_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        if self.lanes.iter().any(|lane| lane.len() >= WAITING) {
            // The next send waits, perhaps for a thread that waits for what the first worker makes. (Behind the last batch
            // that one may wait for others, which do not have it yet.)
            self.catch_up(self.behind.len().saturating_sub(1));
        }
        let group = core::mem::replace(&mut self.group, Vec::with_capacity(self.together));
        for lane in &mut self.lanes {
            // One that has ended has nothing to do any more.
            let _ = lane.send(group.clone());
        }
    }

    /// Where threads cannot be started their stacks are over.
    fn spawn_or_fail(&mut self) {
        if let Err(error) = self.spawn() {
            for index in 0..self.stacks.len() {
                self.fail(&[index], error.to_string());
            }
        }
    }

    /// Waits until a stack ends or fails, or for so long: for where no packets are read.
    pub fn wait(&mut self, timeout: Duration) {
        if !self.waiting.is_empty() {
            self.spawn_or_fail();
        }
        let common = &self.common;
        common.wait(timeout, || {
            common.sources.load(Ordering::Acquire) == 0 && !self.is_reading()
        });
    }

    /// The stacks that failed since it was asked last.
    pub fn failures(&self) -> Vec<StackFailure> {
        self.common.take_failures()
    }

    /// Results and counts of all components. Packets do not wait for it: what a thread cannot say at
    /// once is as it was when it was asked before.
    pub fn snapshot(&self) -> Snapshot {
        self.ask(false)
    }

    /// Results and counts begin anew; returns what they were.
    pub fn reset(&mut self) -> Snapshot {
        let before = self.snapshot();
        self.inline.reset();
        self.ask(true);
        before
    }

    fn ask(&self, resets: bool) -> Snapshot {
        let asked = self.threads.iter().map(|thread| thread.board.ask(resets));
        let questions: Vec<u64> = asked.collect();
        let mut snapshot = Snapshot {
            stacks: self.stacks.iter().map(StackState::of).collect(),
        };
        self.inline.counts(&mut |count| snapshot.add(&count));
        for waiting in &self.waiting {
            waiting.counts(&mut |count| snapshot.add(&count));
        }
        let patience = Instant::now() + PATIENCE;
        for (thread, question) in self.threads.iter().zip(questions) {
            let board = &thread.board;
            board.read(question, patience, &mut |count| snapshot.add(count));
        }
        snapshot
    }

    /// The input is over, or the run is to end: what components keep comes out, and the threads end.
    pub fn finish(&mut self) {
        if core::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if !self.waiting.is_empty() {
            self.spawn_or_fail();
        }
        self.common.stop();
        self.send_group();
        self.catch_up(usize::MAX);
        self.lanes.clear();
        self.apart = None;
        self.inline.finish(self.now);
        for thread in &mut self.threads {
            let joined = thread.handle.take().map(JoinHandle::join);
            if let Some(Err(payload)) = joined {
                let failure = ThreadFailure::panicked(&thread.name, payload.as_ref());
                for &stack in &thread.stacks {
                    let failure = ComponentFailure {
                        label: thread.name.clone(),
                        failure: Failure::new(failure.to_string()),
                    };
                    self.common.end(stack, Some(failure));
                }
            }
        }
    }

    fn fail(&self, stacks: &[usize], message: String) {
        for &stack in stacks {
            let failure = ComponentFailure {
                label: "runtime".to_owned(),
                failure: Failure::new(message.clone()),
            };
            self.common.end(stack, Some(failure));
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.common.stop();
        self.lanes.clear();
        self.apart = None;
        self.behind.clear();
        self.inline.parts.clear();
        self.waiting.clear();
    }
}

impl core::fmt::Debug for Runner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runner")
            .field("stacks", &self.stacks.len())
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl Waiting {
    /// Batches that it can hold at once.
    fn held(&self) -> usize {
        match &self.work {
            Work::Lane(_, queue) => (queue.capacity() + 2) * TOGETHER,
            Work::Behind(_, entries, _) => {
                let waiting = entries.iter().map(|entry| entry.capacity() + 2);
                waiting.sum::<usize>() * TOGETHER
            }
            Work::Source(_) | Work::Own(..) | Work::Apart(..) => 0,
        }
    }

    fn counts(&self, give: &mut dyn FnMut(Count)) {
        match &self.work {
            Work::Lane(lane, _) | Work::Own(lane, ..) | Work::Apart(lane, ..) => lane.counts(give),
            Work::Behind(behind, ..) => behind.part.counts(give),
            Work::Source(part) => part.counts(give),
        }
    }
}
