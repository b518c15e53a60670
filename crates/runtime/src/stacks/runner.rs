//! The [`Runner`] of stacks, for programs.

mod change;
mod made;
mod sources;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use flowgauge_capture::{Error, PacketSource};
use flowgauge_stack::{
    ComponentFailure, Failure, Node, NodeId, Program, ResultValue, SettingError, Stack,
};
use flowgauge_stream::offload::Verdicts;
use flowgauge_wire::{DecodeOptions, Nanos};

pub use self::change::{Change, Ended};
use self::made::Made;
use self::sources::Apart;
use super::board::{Answered, Board, Counts};
use super::crossing::{Crossing, Entry, crossing};
use super::fan_out::{OwnSource, Reading, SourceReport, run_own};
use super::lane::{Behind, Lane, run_apart, run_behind, run_behind_any, run_lane, run_source};
use super::pace::Pace;
use super::part::{Common, Count, Leaving, Member, Next, Number, Part, StackFailure};
use super::snapshot::{Shared, Snapshot, StackState};
use crate::pool::{Inbox, Pool, TOGETHER, WAITING};
use crate::queue::Bell;
use crate::reader::Reader;
pub use crate::reader::Step;
use crate::threads::{Cores, ThreadFailure, start_detached};

/// Bytes of items on their way between threads, where no component has a bound of its memory. Of those that have, a quarter.
const MOST_ON_THE_WAY: u64 = 256 << 20;
/// The least for each way.
const LEAST_ON_A_WAY: u64 = 256 << 10;
/// How long a snapshot waits for a thread that is busy.
const PATIENCE: Duration = Duration::from_millis(200);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Number of threads that share the packets, if a stack allows it, including the calling thread, which reads.
    /// With 1, all stacks run on the calling thread, except for parts after a component `thread`.
    pub workers: usize,
    /// Cores for the threads.
    pub cores: Cores,
    /// Whether the source cannot wait. If so, components that process streams in chunks do it on separate threads.
    pub is_live: bool,
    /// Whether each worker reads its own source ([`Runner::fan_out`]) until it ends, independent of the stacks.
    pub fans_out: bool,
    /// Sinks for the stacks' verdicts on flows, one per worker, for the path of its packets.
    pub offload: Vec<Verdicts>,
}

impl Default for RunnerOptions {
    fn default() -> RunnerOptions {
        RunnerOptions {
            workers: 1,
            cores: Cores::any(),
            is_live: false,
            fans_out: false,
            offload: Vec::new(),
        }
    }
}

/// Why a run cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The settings of a component are invalid.
    #[error("{}", .0.message)]
    Setting(SettingError),
    /// A component cannot start.
    #[error("{}", .0.failure)]
    Start(StackFailure),
    /// A thread cannot be started.
    #[error("{0}")]
    Thread(ThreadFailure),
    /// Threads have not read equally far; call [`Runner::settle`] first.
    #[error("some threads have not read as much as others")]
    Unsettled,
}

impl SetupError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            SetupError::Setting(error) => error.hint.as_deref(),
            SetupError::Start(failure) => failure.failure.failure.hint.as_deref(),
            SetupError::Thread(_) | SetupError::Unsettled => None,
        }
    }
}

/// Runs the stacks of a program. See the [module](super).
pub struct Runner {
    stacks: Vec<Stack>,
    /// Their components as they were given.
    given: Vec<Arc<[Node]>>,
    /// Who they are.
    members: Vec<Member>,
    /// Their numbers and places, in order.
    places: Vec<(usize, usize)>,
    /// The number of the next.
    numbers: usize,
    workers: usize,
    common: Arc<Common>,
    pool: Pool,
    /// Whether batches are shared between threads.
    shares: bool,
    /// Parts that run on the calling thread: all, or those of the first worker.
    inline: Lane,
    /// Threads that are not started yet: privileges are given up in between.
    waiting: Vec<Waiting>,
    /// How many threads there were so far.
    numbered: usize,
    threads: Vec<Thread>,
    /// Of workers that read a source each.
    readings: Vec<Arc<Reading>>,
    /// Where workers read the same packets, each from a source of its own.
    apart: Option<Apart>,
    cores: Cores,
    is_live: bool,
    /// [`RunnerOptions::fans_out`].
    lasts: bool,
    offload: Vec<Verdicts>,
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
    /// What it computes for which stacks, by their numbers: no other worker does the same.
    shared: Vec<Shared>,
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
    /// Creates and starts the components of all stacks. Threads start with the first batch.
    ///
    /// # Errors
    /// [`SetupError::Setting`], [`SetupError::Start`].
    pub fn new(program: Program, options: &RunnerOptions) -> Result<Runner, SetupError> {
        let mut stacks = program.stacks;
        let given = stacks
            .iter()
            .map(|stack| Arc::clone(&stack.nodes))
            .collect();
        let workers = options.workers.max(1);
        for stack in &mut stacks {
            stack.place(workers, options.is_live);
        }
        let mut runner = Runner {
            given,
            members: (0..stacks.len()).map(Member::new).collect(),
            places: Vec::new(),
            numbers: stacks.len(),
            workers,
            stacks,
            common: Arc::default(),
            pool: Pool::new(Reader::new(DecodeOptions::default())),
            shares: false,
            inline: Lane::new(None, Nanos(0)),
            waiting: Vec::new(),
            numbered: 0,
            threads: Vec::new(),
            readings: Vec::new(),
            apart: None,
            cores: options.cores.clone(),
            is_live: options.is_live,
            lasts: options.fans_out,
            offload: options.offload.clone(),
            is_finished: false,
        };
        let (stacks, common) = (&runner.stacks, &runner.common);
        let made = Made::new(
            stacks,
            &runner.members,
            &|_| true,
            (workers, options.fans_out),
            common,
        );
        let mut made = made.map_err(SetupError::Setting)?;
        made.start(&|| common.has_failures());
        if let Some(failure) = common.take_failures().into_iter().next() {
            return Err(SetupError::Start(failure));
        }
        runner.place_members();
        runner.install(made, false);
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
        let waiting = held + self.pool.ahead() + 4;
        self.pool.reader.set(workers, decodes, waiting);
        self.pool.reader.look_at(is_timed, &intervals);
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

    /// Starts the threads, unless [`Runner::step`] or [`Runner::wait`] already did.
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
            let (members, shared) = (work.members(), work.shared());
            // What is known before it can be asked.
            board.write(&mut Answered::default(), false, |give| work.counts(give));
            let (common, own) = (Arc::clone(&self.common), Arc::clone(&board));
            let (rung, pace) = (Arc::clone(&bell), Arc::clone(&pace));
            let inbox = match &work {
                Work::Lane(lane) => Some(self.pool.add(lane.worker, &bell)),
                _ => None,
            };
            let work = move || work.run(inbox, &pace, &rung, &common, &own);
            let handle = start_detached(name.clone(), self.cores.of(number), work);
            self.threads.push(Thread {
                name,
                number,
                bell,
                kind,
                board,
                members,
                shared,
                handle: Some(handle.map_err(SetupError::Thread)?),
            });
        }
        Ok(())
    }

    /// The stacks.
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// Whether a stack needs packets of the run's source.
    pub fn wants_packets(&self) -> bool {
        let wants =
            |(member, stack): (&Member, &Stack)| !stack.has_source() && member.wants_input();
        self.members.iter().zip(&self.stacks).any(wants)
    }

    /// Whether a stack has its own source that has not ended.
    pub fn has_sources(&self) -> bool {
        self.common.sources.load(Ordering::Acquire) > 0
    }

    /// Reads a batch from a source, and processes it or passes it to the threads. `None` at the end of the input.
    ///
    /// # Errors
    /// Damage in the source; the rest can still be read.
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
            return self.pool.reader.lent(source, |packets, pieces, now| {
                inline.packets(packets, pieces, now);
            });
        }
        let Some(shared) = self.pool.next(source)? else {
            return Ok(None);
        };
        if self.inline.shared(&shared) {
            self.pool.go_singly();
        }
        Ok(Some(shared.step))
    }

    /// Waits until all threads have received the packets read so far.
    fn catch_up(&mut self) {
        while let Some(shared) = self.pool.rest() {
            self.inline.shared(&shared);
        }
    }

    /// Where threads cannot be started their stacks are over.
    fn spawn_or_fail(&mut self) {
        if let Err(error) = self.spawn() {
            self.fail(&self.members, &error.to_string());
        }
    }

    /// Waits until a stack ends or fails, at most this long; for runs that read no packets.
    pub fn wait(&mut self, timeout: Duration) {
        if !self.waiting.is_empty() {
            self.spawn_or_fail();
        }
        let common = &self.common;
        common.wait(timeout, || {
            common.sources.load(Ordering::Acquire) == 0 && !self.is_reading()
        });
    }

    /// The stacks that failed since the last call.
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
        let found = self.places.binary_search_by_key(&number, |of| of.0);
        found.ok().map(|at| self.places[at].1)
    }

    fn place_members(&mut self) {
        let numbers = self.members.iter().map(|member| member.number);
        self.places = numbers.zip(0..).collect();
        self.places.sort_unstable();
    }

    /// Results and counters of all components. Does not delay packets: if a thread is busy, its values are those of
    /// the previous snapshot.
    pub fn snapshot(&self) -> Snapshot {
        self.ask(false)
    }

    /// Counters of components, for frequent calls. Those of other threads are values as of the previous call, and
    /// exact once the threads have ended. A component on several threads has several entries.
    pub fn numbers(&self, give: &mut dyn FnMut(Number)) {
        self.numbers_if(&|_| true, give);
    }

    /// The same for one stack.
    pub fn numbers_of(&self, stack: usize, give: &mut dyn FnMut(Number)) {
        let Some(member) = self.members.get(stack) else {
            return;
        };
        let is_its = |members: &[Member]| members.iter().any(|it| it.number == member.number);
        self.numbers_if(&is_its, &mut |number| {
            if number.stack == stack {
                give(number);
            }
        });
    }

    /// The same of what these members have.
    fn numbers_if(&self, is_wanted: &dyn Fn(&[Member]) -> bool, give: &mut dyn FnMut(Number)) {
        let mut add = |number: Number| {
            if let Some(stack) = self.stack_of(number.stack) {
                give(Number { stack, ..number });
            }
        };
        let parts = self.inline.parts.iter();
        let parts = parts.filter(|part| is_wanted(part.members()));
        parts.for_each(|part| part.numbers(&mut add));
        for waiting in &self.waiting {
            waiting.work.counts(&mut |count| add(Number::of(&count)));
        }
        let threads = self.threads.iter();
        for thread in threads.filter(|thread| is_wanted(&thread.members)) {
            thread.board.numbers(&mut |number| add(number.clone()));
        }
    }

    /// The components computed once for several stacks, on one of the workers.
    pub fn shared(&self) -> Vec<Shared> {
        let waiting = self.waiting.iter().flat_map(|it| it.work.shared());
        let threads = self.threads.iter().flat_map(|it| it.shared.iter().cloned());
        let inline = self.inline.parts.iter().map(Part::shared);
        let all = inline.chain(waiting).chain(threads);
        all.map(|shared| shared.renumbered(&|number| self.stack_of(number).into_iter().collect()))
            .collect()
    }

    /// Processor time of a stack in nanoseconds, by sampling. Time of shared components is divided evenly among their
    /// stacks; components' own threads, such as writers of files, are excluded.
    pub fn cost(&self, stack: usize) -> u64 {
        self.members.get(stack).map_or(0, Member::cost)
    }

    /// Pauses or resumes a stack, which gets no packets while paused. If it shares an engine with stacks that are not
    /// paused, it still gets the engine's events.
    pub fn set_rests(&self, stack: usize, rests: bool) {
        if let Some(member) = self.members.get(stack) {
            member.set_rests(rests);
        }
    }

    /// Number of packets that a stack missed while paused.
    pub fn missed(&self, stack: usize) -> u64 {
        self.members.get(stack).map_or(0, Member::missed)
    }

    /// The state of one stack, as in a [snapshot](Runner::snapshot).
    pub fn state(&self, stack: usize) -> Option<StackState> {
        let member = self.members.get(stack)?;
        let is_its = |it: &&Member| it.number == member.number;
        let mut state = StackState::of(self.stacks.get(stack)?);
        let mut add = |count: &Count| {
            if count.stack == member.number {
                state.add(count);
            }
        };
        let threads = self.threads.iter();
        let threads = threads.filter(|thread| thread.members.iter().any(|it| is_its(&it)));
        let asked: Vec<_> = threads
            .map(|thread| (thread, thread.board.ask(false)))
            .collect();
        let parts = self.inline.parts.iter();
        let parts = parts.filter(|part| part.members().iter().any(|it| is_its(&it)));
        parts.for_each(|part| part.counts(&mut |count| add(&count)));
        for waiting in &self.waiting {
            waiting.work.counts(&mut |count| add(&count));
        }
        let patience = Instant::now() + PATIENCE;
        for (thread, question) in asked {
            thread.board.read(question, patience, &mut add);
        }
        Some(state)
    }

    /// Takes the result of a component, which is then reset; later values are in the next result, as are those of
    /// threads that are busy at the moment.
    pub fn take(&mut self, stack: usize, id: NodeId) -> Option<ResultValue> {
        let number = self.members.get(stack)?.number;
        let mut result: Option<ResultValue> = None;
        let mut add = |taken: ResultValue| match &mut result {
            Some(result) => result.merge(&taken),
            None => result = Some(taken),
        };
        let threads = self.threads.iter();
        let threads = threads.filter(|thread| thread.members.iter().any(|it| it.number == number));
        let asked: Vec<_> = threads
            .map(|thread| (thread, thread.board.take(number, id)))
            .collect();
        self.inline.take(number, id, &mut |taken| add(taken.result));
        let patience = Instant::now() + PATIENCE;
        for (thread, question) in asked {
            thread
                .board
                .taken(question, patience, (number, id), &mut add);
        }
        result
    }

    /// Resets results and counters, and returns their values.
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

    /// Ends the run: components emit the items they keep, and the threads end.
    pub fn finish(&mut self) {
        if core::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if !self.waiting.is_empty() {
            self.spawn_or_fail();
        }
        self.common.stop();
        self.catch_up();
        self.pool.close();
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
        self.pool.close();
        self.apart = None;
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
            Work::Lane(_) => Pool::HELD,
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
        inbox: Option<Inbox>,
        pace: &Pace,
        bell: &Bell,
        common: &Common,
        board: &Board,
    ) -> Option<Work> {
        match self {
            Work::Lane(lane) => run_lane(lane, inbox?, bell, board).map(Work::Lane),
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

    fn parts(&mut self) -> &mut [Part] {
        match self {
            Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => &mut lane.parts,
            Work::Behind(behind, ..) => core::slice::from_mut(&mut behind.part),
            Work::Source(part) => core::slice::from_mut(part),
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

    /// What it computes for which stacks, by their numbers, if no other worker does the same.
    fn shared(&self) -> Vec<Shared> {
        match self {
            Work::Lane(lane) | Work::Own(lane, ..) | Work::Apart(lane, ..) => {
                let is_first = lane.worker.unwrap_or(0) == 0;
                let parts = lane.parts.iter().filter(|_| is_first);
                parts.map(Part::shared).collect()
            }
            Work::Behind(behind, ..) => vec![behind.part.shared()],
            Work::Source(part) => vec![part.shared()],
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
