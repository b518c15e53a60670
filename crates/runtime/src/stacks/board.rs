//! Counters of components that a thread publishes on request.

use core::time::Duration;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use flowgauge_stack::{NodeId, ResultValue};

use super::part::{Count, Number, Taken};
use crate::queue::Bell;

/// Between a thread that runs parts of stacks and whoever wants to know of them. Packets do not wait
/// for it: the thread looks once per batch whether it was asked, and otherwise takes no lock.
#[derive(Debug)]
pub(super) struct Board {
    /// How often it was asked.
    asked: AtomicU64,
    /// How often results were to begin anew.
    resets: AtomicU64,
    /// Somebody wants to know the numbers among the results.
    wants_numbers: AtomicBool,
    state: Mutex<Written>,
    written: Condvar,
    /// The thread is to give back what it has.
    is_paused: AtomicBool,
    /// Wakes the thread.
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct Written {
    /// Up to which question it answers.
    answers: u64,
    counts: Vec<Count>,
    numbers: Vec<Number>,
    /// Of which stacks and components results are to be taken, and what was.
    takes: Vec<(usize, NodeId)>,
    taken: Vec<Taken>,
    /// The thread has ended.
    is_final: bool,
}

/// What a thread counts.
pub(super) trait Counts {
    fn counts(&self, give: &mut dyn FnMut(Count));

    /// Of the same the numbers, for who asks often.
    fn numbers(&self, give: &mut dyn FnMut(Number));

    /// Gives the result of a stack's component, which forgets it.
    fn take(&mut self, stack: usize, id: NodeId, give: &mut dyn FnMut(Taken));

    /// Results begin anew.
    fn reset(&mut self);
}

/// What the thread itself remembers.
#[derive(Debug, Default)]
pub(super) struct Answered {
    asked: u64,
    resets: u64,
}

impl Board {
    pub(super) fn new(bell: Arc<Bell>) -> Board {
        Board {
            asked: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            wants_numbers: AtomicBool::new(false),
            state: Mutex::default(),
            written: Condvar::new(),
            is_paused: AtomicBool::new(false),
            bell,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the thread: whether it was asked for something.
    #[inline]
    pub(super) fn is_asked(&self, answered: &Answered) -> bool {
        self.asked.load(Ordering::Relaxed) != answered.asked
            || self.wants_numbers.load(Ordering::Relaxed)
    }

    /// Of the thread: writes down what there is, if it was asked.
    #[inline]
    pub(super) fn answer(&self, answered: &mut Answered, of: &mut impl Counts) {
        if !self.is_asked(answered) {
            return;
        }
        if self.wants_numbers.swap(false, Ordering::Acquire) {
            let numbers = &mut self.lock().numbers;
            numbers.clear();
            of.numbers(&mut |number| numbers.push(number));
        }
        if self.asked.load(Ordering::Relaxed) == answered.asked {
            return;
        }
        let resets = self.resets.load(Ordering::Acquire);
        if core::mem::replace(&mut answered.resets, resets) != resets {
            of.reset();
        }
        let state = &mut *self.lock();
        for (stack, id) in state.takes.drain(..) {
            of.take(stack, id, &mut |taken| state.taken.push(taken));
        }
        self.write_to(state, answered, false, |give| of.counts(give));
    }

    /// Of the thread: writes down what there is.
    pub(super) fn write(
        &self,
        answered: &mut Answered,
        is_final: bool,
        counts: impl FnOnce(&mut dyn FnMut(Count)),
    ) {
        self.write_to(&mut self.lock(), answered, is_final, counts);
    }

    fn write_to(
        &self,
        state: &mut Written,
        answered: &mut Answered,
        is_final: bool,
        counts: impl FnOnce(&mut dyn FnMut(Count)),
    ) {
        let asked = self.asked.load(Ordering::Acquire);
        answered.asked = asked;
        state.answers = asked;
        state.is_final |= is_final;
        state.counts.clear();
        counts(&mut |count| state.counts.push(count));
        let Written {
            counts, numbers, ..
        } = state;
        numbers.clear();
        numbers.extend(counts.iter().map(Number::of));
        self.written.notify_all();
    }

    /// Has the thread give back what it has, unless it comes to its end, when it has taken what waits for it.
    pub(super) fn pause(&self) {
        self.is_paused.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Of the thread: whether it is to give back what it has.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Asks; [`Board::read`] takes the answer.
    pub(super) fn ask(&self, resets: bool) -> u64 {
        if resets {
            self.resets.fetch_add(1, Ordering::Release);
        }
        let question = self.asked.fetch_add(1, Ordering::Release) + 1;
        self.bell.ring();
        question
    }

    /// The numbers that the thread wrote down last; it writes them down again.
    pub(super) fn numbers(&self, give: &mut dyn FnMut(&Number)) {
        self.lock().numbers.iter().for_each(give);
        self.wants_numbers.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Asks for the result of a stack's component, which forgets it; [`Board::taken`] has it.
    pub(super) fn take(&self, stack: usize, id: NodeId) -> u64 {
        {
            let state = &mut *self.lock();
            if !state.is_final {
                state.takes.push((stack, id));
            }
            let counts = state.counts.iter_mut().filter(|_| state.is_final);
            for count in counts.filter(|count| (count.stack, count.id) == (stack, id)) {
                let result = count.result.take().into_iter();
                let taken = result.map(|result| Taken { stack, id, result });
                state.taken.extend(taken);
            }
        }
        self.ask(false)
    }

    /// What was taken of a component, by this question or one before that was answered too late.
    pub(super) fn taken(
        &self,
        question: u64,
        patience: Instant,
        (stack, id): (usize, NodeId),
        give: &mut dyn FnMut(ResultValue),
    ) {
        self.read(question, patience, &mut |_| {});
        let taken = &mut self.lock().taken;
        let its = taken.extract_if(.., |taken| (taken.stack, taken.id) == (stack, id));
        its.for_each(|taken| give(taken.result));
    }

    /// What the thread wrote down, if need be what it wrote before: a thread that waits for another
    /// one, or for a peer, cannot answer. Waits for it until `patience` is over.
    pub(super) fn read(&self, question: u64, patience: Instant, give: &mut dyn FnMut(&Count)) {
        let mut state = self.lock();
        while state.answers < question && !state.is_final {
            let left = patience.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            let waited = self.written.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.counts.iter().for_each(give);
    }
}
