//! Adds, removes and replaces stacks while others run.
//!
//! The threads that process packets of the source finish the batches read so far and return their parts. Removed stacks
//! end, new ones are created as at the start, and the threads restart. All thus change between the same two batches.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use flowgauge_stack::engine::Engine;
use flowgauge_stack::{ComponentFailure, Program, Stack};
use flowgauge_wire::Nanos;

use super::made::Made;
use super::{
    Board, Count, Kind, Leaving, Member, Order, Part, Runner, SetupError, StackState, Thread,
    Waiting, Work, run_behind, run_behind_any,
};

/// A stack that was removed while others run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The stack.
    pub stack: Stack,
    /// Its final state.
    pub state: StackState,
    /// Why it ended early, if a component failed and this was not yet reported.
    pub failure: Option<ComponentFailure>,
}

/// The effect of a change of stacks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Change {
    /// Stacks that ended.
    pub ended: Vec<Ended>,
    /// For each running stack, its previous index; `None` if it is new.
    pub was: Vec<Option<usize>>,
    /// The capture clock: flows that began before are older than the new stacks.
    pub at: Nanos,
}

impl Runner {
    /// Replaces the running stacks with those of `program`, on all workers, from the next packet on. Stacks that are
    /// running already, with the same name, components and options, continue with their state, unless they have failed.
    /// Other running stacks end as at the end of the input, and then the new ones start. A new component that cannot
    /// start is reported in [`failures`](Runner::failures), and the other stacks run. A new stack joins its engine if
    /// that is running, even if only for a stack that ends now. Otherwise, the stack sees older connections as picked
    /// up mid-stream.
    ///
    /// If threads read separately ([`Runner::read_apart`]), call [`Runner::settle`] first until it returns `None`; from
    /// then on one thread reads for all. Must not be called after the end of the input.
    ///
    /// ```
    /// use flowgauge_runtime::stacks::{Runner, RunnerOptions};
    /// # fn checked(_: &str) -> flowgauge_stack::Program { flowgauge_stack::Program::default() }
    ///
    /// let mut runner = Runner::new(checked("[stack a] tcpscan count"), &RunnerOptions::default())?;
    /// // ... runner.step(&mut source)? ...
    /// let change = runner.replace(checked("[stack b] udpscan count"))?;
    /// for ended in change.ended {
    ///     println!("{:?}: {:?}", ended.stack.name, ended.state);
    /// }
    /// # Ok::<(), flowgauge_runtime::stacks::SetupError>(())
    /// ```
    ///
    /// # Errors
    /// [`SetupError::Setting`], [`SetupError::Unsettled`]: nothing has changed.
    /// [`SetupError::Thread`].
    pub fn replace(&mut self, program: Program) -> Result<Change, SetupError> {
        if let Some(apart) = &self.apart
            && !apart.is_at_end
            && apart.pace.is_committed(apart.read)
        {
            return Err(SetupError::Unsettled);
        }
        let mut stacks = program.stacks;
        let mut members = Vec::with_capacity(stacks.len());
        let given: Vec<_> = stacks
            .iter()
            .map(|stack| Arc::clone(&stack.nodes))
            .collect();
        // Most are where they were, or before what has gone.
        let mut goes_on = vec![false; self.given.len()];
        let mut next = 0;
        let mut was = Vec::with_capacity(stacks.len());
        let mut number = self.numbers;
        for (stack, given) in stacks.iter_mut().zip(&given) {
            let mut places = (next..goes_on.len()).chain(0..next);
            let known = places.find(|&at| {
                let is_it = match Arc::ptr_eq(&self.given[at], given) {
                    true => self.stacks[at].name == stack.name,
                    false => self.stacks[at].does_as(stack),
                };
                is_it && !goes_on[at] && !self.members[at].has_failed()
            });
            if let Some(at) = known {
                goes_on[at] = true;
                next = at + 1;
            }
            match known {
                Some(at) => {
                    stack.nodes = Arc::clone(&self.stacks[at].nodes);
                    members.push(self.members[at].clone());
                }
                None => {
                    stack.place(self.workers, self.is_live);
                    members.push(Member::new(number));
                    number += 1;
                }
            }
            was.push(known);
        }
        let is_new = |index: usize| was[index].is_none();
        let workers = (self.workers, self.fans_out());
        let made = Made::new(&stacks, &members, &is_new, workers, &self.common);
        let mut made = made.map_err(SetupError::Setting)?;
        self.numbers = number;
        self.pause();
        let lanes = self.waiting.iter_mut().filter_map(|it| it.work.lane());
        let at = lanes.map(|lane| lane.now).fold(self.inline.now, Nanos::max);
        let left = (0..goes_on.len()).filter(|&at| !goes_on[at]);
        let left = left.map(|at| (self.stacks[at].clone(), self.members[at].clone()));
        let left: Vec<(Stack, Member)> = left.collect();
        let ended = match left.is_empty() {
            true => Vec::new(),
            false => self.end_some(left, &made),
        };
        made.start(&|| false);
        self.stacks = stacks;
        self.given = given;
        self.members = members;
        self.place_members();
        self.install(made, true);
        self.prepare();
        self.spawn()?;
        Ok(Change { ended, was, at })
    }

    /// Calls `act` with the engine to which a stack's first component subscribes, between two batches. Returns whether
    /// there is one.
    pub fn with_engine(&mut self, stack: usize, act: &mut dyn FnMut(&mut Engine)) -> bool {
        let Some(number) = self.members.get(stack).map(|member| member.number) else {
            return false;
        };
        self.pause();
        let others = self.waiting.iter_mut().flat_map(|it| it.work.parts());
        let mut parts = self.inline.parts.iter_mut().chain(others);
        let found = parts.any(|part| part.with_engine(number, act));
        self.prepare();
        self.spawn_or_fail();
        found
    }

    /// Has the threads that take packets of the source come back with what they do, when they have done what was read.
    fn pause(&mut self) {
        self.catch_up();
        self.inline.flush();
        let of_packets = self.threads.iter().filter(|it| it.kind == Kind::OfPackets);
        of_packets.for_each(|thread| thread.board.pause());
        self.pool.close();
        self.apart = None;
        for kind in [Kind::OfPackets, Kind::Behind] {
            let threads = core::mem::take(&mut self.threads).into_iter();
            let (paused, others): (Vec<Thread>, Vec<Thread>) =
                threads.partition(|it| it.kind == kind && it.handle.is_some());
            self.threads = others;
            for mut thread in paused {
                // One behind another is to have all that this makes first.
                thread.board.pause();
                match self.joined(&mut thread) {
                    Some(work) => self.waiting.push(Waiting {
                        name: thread.name,
                        number: thread.number,
                        bell: thread.bell,
                        kind,
                        work,
                    }),
                    // It came to its end.
                    None => self.threads.push(thread),
                }
            }
        }
    }

    /// Ends stacks as at the end of the input. No thread of those that take packets of the source runs. Engines that do for
    /// new ones go on.
    fn end_some(&mut self, ended: Vec<(Stack, Member)>, made: &Made) -> Vec<Ended> {
        let numbers = ended.iter().map(|(_, leaving)| leaving.number);
        let numbers: HashSet<usize> = numbers.collect();
        let leaves = |member: &Member| numbers.contains(&member.number);
        let mut leaving = Leaving {
            who: &leaves,
            now: Nanos(0),
            counts: Vec::new(),
        };
        for (_, member) in ended.iter().filter(|(stack, _)| stack.has_source()) {
            self.common.satisfy(member);
        }
        let (workers, others) = (self.workers, self.waiting.iter_mut());
        let others = others.filter_map(|it| Some((Some(it.name.as_str()), it.work.lane()?)));
        for (thread, lane) in core::iter::once((None, &mut self.inline)).chain(others) {
            leaving.now = lane.now;
            for part in Part::split(&mut lane.parts, &mut leaving) {
                let goes_on = made.join(workers, thread, &part);
                lane.parts.extend(part.leave(&mut leaving, goes_on));
            }
            lane.columns.get_mut().release();
        }
        let mut counts = leaving.counts;
        let mut note = |count: Count| counts.push(count);
        for waiting in core::mem::take(&mut self.waiting) {
            match waiting.work {
                Work::Behind(behind, entries, order)
                    if behind.part.members().iter().all(leaves) =>
                {
                    let bell = &waiting.bell;
                    let board = Board::new(bell.clone());
                    match order {
                        Order::ByBatch => run_behind(behind, entries, bell, &board),
                        Order::AsItComes => run_behind_any(behind, entries, bell, &board),
                    };
                    board.read(0, Instant::now(), &mut |count| note(count.clone()));
                }
                Work::Lane(lane) if lane.parts.is_empty() => {}
                work => self.waiting.push(Waiting { work, ..waiting }),
            }
        }
        let threads = core::mem::take(&mut self.threads).into_iter();
        let (over, others): (Vec<Thread>, Vec<Thread>) =
            threads.partition(|thread| thread.members.iter().all(leaves));
        self.threads = others;
        for mut thread in over {
            self.joined(&mut thread);
            let board = &thread.board;
            board.read(0, Instant::now(), &mut |count| note(count.clone()));
        }
        let mut failures = self.common.take_failures();
        let ended = ended.into_iter().map(|(stack, member)| {
            let mut state = StackState::of(&stack);
            let of_it = counts.iter().filter(|count| count.stack == member.number);
            of_it.for_each(|count| state.add(count));
            let failed = failures.iter().position(|it| it.stack == member.number);
            Ended {
                stack,
                state,
                failure: failed.map(|at| failures.swap_remove(at).failure),
            }
        });
        let ended = ended.collect();
        self.common.put_back(failures);
        ended
    }
}
