//! Turns of users at what takes long: compilers of filters and patterns. A few run at once, one of each user, and of those who
//! wait the one goes next whose user's last turn is longest ago.

use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::thread;

use flowgauge_sys::process;
use parking_lot::{Condvar, Mutex};

use crate::accounts::{Account, Who};

/// How many users have something compiled at once, on threads of low priority: what some wait for does not hold up others.
const MOST: usize = 16;

pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// How many may run.
    most: usize,
    running: Vec<Who>,
    /// In the order in which they came.
    waiting: Vec<(u64, Who)>,
    /// Requests and turns so far.
    count: u64,
    /// Each user's last turn.
    served: BTreeMap<Who, u64>,
}

impl State {
    fn ask(&mut self, who: Who) -> u64 {
        self.count += 1;
        self.waiting.push((self.count, who));
        self.count
    }

    /// Whether it is the turn of a request; it is no longer waiting then.
    fn begins(&mut self, number: u64) -> bool {
        if self.running.len() >= self.most {
            return false;
        }
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(_, who)| !self.running.contains(who));
        let next = waiting.min_by_key(|(number, who)| (self.served.get(who), *number));
        let Some(&(_, who)) = next.filter(|(next, _)| *next == number) else {
            return false;
        };
        self.waiting.retain(|(other, _)| *other != number);
        self.running.push(who);
        self.count += 1;
        self.served.insert(who, self.count);
        true
    }

    fn end(&mut self, who: Who) {
        if let Some(at) = self.running.iter().position(|it| *it == who) {
            self.running.swap_remove(at);
        }
    }
}

impl Turns {
    /// As many at once as half of the processors, but two at least: one user's does not keep all others waiting.
    pub(crate) fn new() -> Turns {
        Turns {
            state: Mutex::new(State::new(MOST)),
            changed: Condvar::new(),
        }
    }

    /// Does a user's work when it is the user's turn, on a thread that leaves the processors to those who take packets. What it
    /// costs is charged.
    ///
    /// # Errors
    /// The system's: there is no thread for it.
    pub(crate) fn take<T: Send>(
        &self,
        account: &Account,
        work: impl FnOnce() -> T + Send,
    ) -> io::Result<T> {
        let who = account.who();
        let mut state = self.state.lock();
        let number = state.ask(who);
        while !state.begins(number) {
            self.changed.wait(&mut state);
        }
        drop(state);
        let _ending = Ending(self, who);
        let work = || {
            let began = process::thread_time();
            let done = work();
            account.charge(process::thread_time().saturating_sub(began));
            done
        };
        thread::scope(|scope| {
            let apart = || {
                process::stand_back();
                work()
            };
            let named = thread::Builder::new().name("fg-compile".to_owned());
            let done = named.spawn_scoped(scope, apart)?.join();
            Ok(done.unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }
}

impl State {
    fn new(most: usize) -> State {
        State {
            most,
            running: Vec::new(),
            waiting: Vec::new(),
            count: 0,
            served: BTreeMap::new(),
        }
    }
}

/// Ends a turn, however its work ends.
struct Ending<'a>(&'a Turns, Who);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().end(self.1);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets whose turn it is begin. Returns who that is.
    fn next(state: &mut State) -> Option<Who> {
        let numbers: Vec<(u64, Who)> = state.waiting.clone();
        let begun = numbers.iter().find(|(number, _)| state.begins(*number));
        begun.map(|(_, who)| *who)
    }

    #[test]
    fn users_take_turns_whatever_their_connections() {
        let (many, one) = (Who(1), Who(2));
        let mut state = State::new(2);
        for _ in 0..30 {
            state.ask(many);
        }
        assert_eq!(next(&mut state), Some(many));
        assert_eq!(next(&mut state), None, "one of a user at once");
        state.ask(one);
        assert_eq!(next(&mut state), Some(one), "at once");
        state.end(one);
        let mut state = State::new(1);
        for _ in 0..30 {
            state.ask(many);
        }
        let mut order = vec![next(&mut state).unwrap()];
        state.ask(one);
        state.ask(one);
        for _ in 0..31 {
            state.end(*order.last().unwrap());
            order.extend(next(&mut state));
        }
        assert_eq!(order[..5], [many, one, many, one, many]);
        assert_eq!(order.len(), 32);
    }
}
