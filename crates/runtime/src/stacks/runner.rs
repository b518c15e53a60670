//! What a program uses: [`Runner`].

mod change;
mod made;
mod sources;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use flowgauge_capture::{Error, PacketSource};
use flowgauge_stack::{ComponentFailure, Failure, Program, SettingError, Stack};
use flowgauge_wire::Nanos;

pub use self::change::{Change, Ended};
use self::made::Made;
use self::sources::Apart;
use super::board::{Answered, Board};
use super::crossing::{Crossing, Ends, Entry, crossing};
use super::fan_out::{OwnSource, Reading, SourceReport, run_own};
use super::lane::{
    Behind, Lane, SharedGroup, run_apart, run_behind, run_behind_any, run_lane, run_source,
};
use super::pace::Pace;
use super::part::{Common, Count, Leaving, Member, Next, Part, StackFailure};
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
    /// Each worker reads a source of its own, and a new stack needs all packets on one thread.
    #[error("a new stack needs all packets on one thread, and each worker has a source of its own")]
    Alone,
    /// Threads have not read as much of the source as others: [`Runner::settle`] comes first.
    #[error("some threads have not read as much as others")]
    Unsettled,
}

impl SetupError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            SetupError::Setting(error) => error.hint.as_deref(),
            SetupError::Start(failure) => failure.failure.failure.hint.as_deref(),
            SetupError::Alone => Some("end the run and begin another"),
            SetupError::Thread(_) | SetupError::Unsettled => None,
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
    /// Who they are.
    members: Vec<Member>,
    /// The number of the next.
    numbers: usize,
    workers: usize,
    common: Arc<Common>,
    reader: Reader,
    /// Whether batches are shared between threads.
    shares: bool,
    /// Parts that run on the calling thread: all, or those of the first worker.
    inline: Lane,
    /// Threads that are not started yet: privileges are given up in between.
    waiting: Vec<Waiting>,
    /// How many threads there were so far.
    numbered: usize,
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
    is_finished: bool,
}

/// A thread that runs.
struct Thread {
    name: String,
    number: usize,
    bell: Arc<Bell>,
    kind: Kind,
    board: Arc<Board>,
    members: Vec<Member>,
    /// What it does goes on where it was paused.
    handle: Option<JoinHandle<Option<Work>>>,
}

/// A thread to be started.
struct Waiting {
    name: String,
    /// Which of the threads it is.
    number: usize,
    bell: Arc<Bell>,
    kind: Kind,
    work: Work,
}

/// What a thread depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Packets of the source.
    OfPackets,
    /// What others make of them.
    Behind,
    /// The source of its stack.
    OfSource,
}

enum Work {
    Lane(Lane),
    Own(Lane, OwnSource, Box<Reader>, Arc<Reading>),
    Apart(Lane, OwnSource, Box<Reader>),
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
        let mut runner = Runner {
            members: (0..stacks.len()).map(Member::new).collect(),
            numbers: stacks.len(),
            workers,
            stacks,
            common: Arc::default(),
            reader: Reader::new(),
            shares: false,
            inline: Lane {
                parts: Vec::new(),
                worker: None,
                now: Nanos(0),
            },
            waiting: Vec::new(),
            numbered: 0,
            lanes: Vec::new(),
            group: Vec::new(),
            together: TOGETHER,
            behind: VecDeque::new(),
            threads: Vec::new(),
            readings: Vec::new(),
            apart: None,
            cores: options.cores.clone(),
            is_finished: false,
        };
        let (stacks, common) = (&runner.stacks, &runner.common);
        let made = Made::new(stacks, &runner.members, &|_| true, workers, common);
        let mut made = made.map_err(SetupError::Setting)?;
        made.start(&|| common.has_failures());
        if let Some(failure) = common.take_failures().into_iter().next() {
            return Err(SetupError::Start(failure));
        }
        runner.install(made);
        runner.prepare();
        Ok(runner)
    }

    /// Tells the reader, and sources, what the stacks want, before threads start.
    fn prepare(&mut self) {
        let packets = self.stacks.iter().filter(|stack| !stack.has_source());
        let decodes = packets.into_iter().any(Stack::needs_decoded);
        self.shares = !self.waiting.is_empty();
        let held: usize = self.waiting.iter().map(Waiting::held).sum();
        self.set_looks();
        let (is_timed, intervals) = self.times();
        let workers = self.inline.worker.map_or(1, |_| self.workers);
        let waiting = held + self.ahead() + 4;
        self.reader.set(workers, decodes, waiting);
        self.reader.look_at(is_timed, &intervals);
        for waiting in &mut self.waiting {
            if let Work::Own(_, _, reader, _) = &mut waiting.work {
                reader.set(1, decodes, 2);
                reader.look_at(is_timed, &intervals);
            }
        }
    }

    /// Whether any component looks at the clock, and at the ends of which intervals some do.
    fn times(&self) -> (bool, Vec<Nanos>) {
        let (mut is_timed, mut intervals) = (false, Vec::new());
        let mut add = |part: &Part| part.times(&mut is_timed, &mut intervals);
        self.inline.parts.iter().for_each(&mut add);
        for waiting in &self.waiting {
            match &waiting.work {
                Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => {
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
            if let Work::Behind(behind_source, ..) = &waiting.work
                && let Some(member) = behind_source.part.members().first()
            {
                let (is_timed, intervals) = behind.entry(member.number).or_default();
                behind_source.part.times(is_timed, intervals);
            }
        }
        for waiting in &mut self.waiting {
            if let Work::Source(part) = &mut waiting.work {
                let number = part.members().first().map_or(0, |member| member.number);
                let (mut is_timed, mut intervals) = behind.remove(&number).unwrap_or_default();
                part.times(&mut is_timed, &mut intervals);
                part.set_looks(is_timed, &intervals);
            }
        }
    }

    /// Starts the threads. [`Runner::step`] and [`Runner::wait`] do it where it was not done.
    ///
    /// # Errors
    /// [`SetupError::Thread`].
    pub fn spawn(&mut self) -> Result<(), SetupError> {
        let apart = self
            .waiting
            .iter()
            .filter(|it| matches!(it.work, Work::Apart(..)));
        let pace = Arc::new(Pace::new(apart.map(|it| Arc::clone(&it.bell)).collect()));
        if let Some(apart) = &mut self.apart {
            apart.pace = Arc::clone(&pace);
        }
        for waiting in core::mem::take(&mut self.waiting) {
            let Waiting {
                name,
                number,
                bell,
                kind,
                work,
            } = waiting;
            let board = Arc::new(Board::new(Arc::clone(&bell)));
            let members = work.members();
            // What is known before it can be asked.
            board.write(&mut Answered::default(), false, |give| work.counts(give));
            let (common, own) = (Arc::clone(&self.common), Arc::clone(&board));
            let (rung, pace) = (Arc::clone(&bell), Arc::clone(&pace));
            let queue = matches!(work, Work::Lane(_)).then(|| {
                let (sender, receiver) = queue(WAITING, &Bell::new(), &bell);
                self.lanes.push(sender);
                receiver
            });
            let work = move || work.run(queue, &pace, &rung, &common, &own);
            let handle = start_detached(name.clone(), self.cores.of(number), work);
            self.threads.push(Thread {
                name,
                number,
                bell,
                kind,
                board,
                members,
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
            |(member, stack): (&Member, &Stack)| !stack.has_source() && member.wants_input();
        self.members.iter().zip(&self.stacks).any(wants)
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
            let inline = &mut self.inline;
            return self.reader.lent(source, |packets, pieces, now| {
                inline.packets(packets, pieces, now);
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
            self.fail(&self.members, &error.to_string());
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
        let failures = self.common.take_failures().into_iter();
        let known = failures.filter_map(|failure| {
            let stack = self.stack_of(failure.stack)?;
            Some(StackFailure { stack, ..failure })
        });
        known.collect()
    }

    /// Which of the stacks a member is.
    fn stack_of(&self, number: usize) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.number == number)
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
        let mut add = |count: &Count| {
            if let Some(stack) = self.stack_of(count.stack) {
                snapshot.stacks[stack].add(count);
            }
        };
        self.inline.counts(&mut |count| add(&count));
        for waiting in &self.waiting {
            waiting.work.counts(&mut |count| add(&count));
        }
        let patience = Instant::now() + PATIENCE;
        for (thread, question) in self.threads.iter().zip(questions) {
            thread.board.read(question, patience, &mut add);
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
        self.inline.finish();
        for mut thread in core::mem::take(&mut self.threads) {
            self.joined(&mut thread);
            self.threads.push(thread);
        }
    }

    /// Waits for the end of a thread. Returns what goes on elsewhere.
    fn joined(&self, thread: &mut Thread) -> Option<Work> {
        match thread.handle.take()?.join() {
            Ok(work) => work,
            Err(payload) => {
                let failure = ThreadFailure::panicked(&thread.name, payload.as_ref());
                for member in &thread.members {
                    let failure = ComponentFailure {
                        label: thread.name.clone(),
                        failure: Failure::new(failure.to_string()),
                    };
                    self.common.end(member, Some(failure));
                }
                None
            }
        }
    }

    fn fail(&self, members: &[Member], message: &str) {
        for member in members {
            let failure = ComponentFailure {
                label: "runtime".to_owned(),
                failure: Failure::new(message),
            };
            self.common.end(member, Some(failure));
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
    fn new(name: String, kind: Kind, work: Work) -> Waiting {
        Waiting {
            name,
            number: 0,
            bell: Bell::new(),
            kind,
            work,
        }
    }

    /// Batches that it can hold at once.
    fn held(&self) -> usize {
        match &self.work {
            Work::Lane(_) => (WAITING + 2) * TOGETHER,
            Work::Behind(_, entries, _) => {
                let waiting = entries.iter().map(|entry| entry.capacity() + 2);
                waiting.sum::<usize>() * TOGETHER
            }
            Work::Source(_) | Work::Own(..) | Work::Apart(..) => 0,
        }
    }
}

impl Work {
    /// Does it, on a thread of its own. Returns what goes on elsewhere.
    fn run(
        self,
        queue: Option<Receiver<SharedGroup>>,
        pace: &Pace,
        bell: &Bell,
        common: &Common,
        board: &Board,
    ) -> Option<Work> {
        match self {
            Work::Lane(lane) => run_lane(lane, queue?, bell, board).map(Work::Lane),
            Work::Own(lane, source, reader, reading) => {
                let (lane, source, reader) =
                    run_own(lane, source, reader, &reading, common, board)?;
                Some(Work::Own(lane, source, reader, reading))
            }
            Work::Apart(lane, source, reader) => {
                run_apart(lane, source, *reader, pace, bell, board).map(Work::Lane)
            }
            Work::Behind(behind, entries, order) => {
                let (behind, entries) = match order {
                    Order::ByBatch => run_behind(behind, entries, bell, board)?,
                    Order::AsItComes => run_behind_any(behind, entries, bell, board)?,
                };
                Some(Work::Behind(behind, entries, order))
            }
            Work::Source(part) => {
                run_source(part, common, board);
                None
            }
        }
    }

    /// The parts that take packets of the source.
    fn lane(&mut self) -> Option<&mut Lane> {
        match self {
            Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => Some(lane),
            Work::Behind(..) | Work::Source(_) => None,
        }
    }

    /// The part that does not.
    fn own_part(&mut self) -> Option<&mut Part> {
        match self {
            Work::Behind(behind, ..) => Some(&mut behind.part),
            Work::Source(part) => Some(part),
            Work::Lane(_) | Work::Own(..) | Work::Apart(..) => None,
        }
    }

    /// Whose it is.
    fn members(&self) -> Vec<Member> {
        match self {
            Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => {
                lane.parts.iter().flat_map(Part::members).cloned().collect()
            }
            Work::Behind(behind, ..) => behind.part.members().to_vec(),
            Work::Source(part) => part.members().to_vec(),
        }
    }

    fn counts(&self, give: &mut dyn FnMut(Count)) {
        match self {
            Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => lane.counts(give),
            Work::Behind(behind, ..) => behind.counts(give),
            Work::Source(part) => part.counts(give),
        }
    }
}
