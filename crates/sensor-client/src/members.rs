//! The members of a flow that has many: what each has of it, how it is, and when it is tried again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::client::ClientError;
use crate::scope::Member;

/// A member that is down is tried again after this time, and twice as long after each failure, up to the last.
const FIRST_TRY: Duration = Duration::from_millis(500);
const LAST_TRY: Duration = Duration::from_secs(10);
/// Threads that ask members at once.
const MOST_THREADS: usize = 128;

/// What a member has while it is there.
pub trait Held: Send {
    /// Whether its connection has ended.
    fn is_gone(&self) -> bool;
}

impl<F: Held + Sync> Held for Arc<F> {
    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }
}

/// Why a member is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// It may be otherwise later.
    pub is_passing: bool,
}

impl From<&ClientError> for Trouble {
    fn from(error: &ClientError) -> Trouble {
        Trouble {
            what: error.to_string(),
            hint: error.hint(),
            is_passing: error.is_passing(),
        }
    }
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Which.
    pub member: Member,
    /// `ok`, `late` (it has not answered yet), `down` (it is tried again) or `refused`.
    pub state: &'static str,
    /// Since when.
    pub since: SystemTime,
    /// Why it is not there.
    pub trouble: Option<Trouble>,
    /// How often the flow was set up there: from the second time on its results begin anew.
    pub generation: u32,
}

/// The members.
#[derive(Debug)]
pub struct Members<F> {
    places: Vec<(Member, Mutex<Place<F>>)>,
    is_over: Mutex<bool>,
    ended: Condvar,
}

#[derive(Debug)]
struct Place<F> {
    held: Option<F>,
    trouble: Option<Trouble>,
    /// It did not answer when it was asked last.
    is_late: bool,
    since: SystemTime,
    generation: u32,
    try_at: Instant,
    delay: Duration,
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with all of many at once. Results are in their order.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let size = all.len().div_ceil(MOST_THREADS).max(1);
    let some = |some: &[T]| some.iter().map(&work).collect::<Vec<R>>();
    if all.len() <= 1 {
        return some(all);
    }
    thread::scope(|scope| {
        let started = all.chunks(size).map(|chunk| {
            let thread = thread::Builder::new().spawn_scoped(scope, || some(chunk));
            thread.map_err(|_| chunk)
        });
        let started: Vec<_> = started.collect();
        let done = started.into_iter().flat_map(|started| match started {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|fault| std::panic::resume_unwind(fault)),
            Err(chunk) => some(chunk),
        });
        done.collect()
    })
}

impl<F: Held> Members<F> {
    /// All are to be tried.
    pub fn new(members: Vec<Member>) -> Members<F> {
        let new = |member| {
            let place = Place {
                held: None,
                trouble: None,
                is_late: false,
                since: SystemTime::now(),
                generation: 0,
                try_at: Instant::now(),
                delay: FIRST_TRY,
            };
            (member, Mutex::new(place))
        };
        Members {
            places: members.into_iter().map(new).collect(),
            is_over: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// Which they are.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.places.iter().map(|(member, _)| member)
    }

    /// How a member is.
    pub fn state(&self, at: usize) -> Option<MemberState> {
        let (member, place) = self.places.get(at)?;
        let place = look_at(place);
        Some(MemberState {
            member: member.clone(),
            state: match &place.trouble {
                Some(trouble) if trouble.is_passing => "down",
                Some(_) => "refused",
                None if place.is_late => "late",
                None => "ok",
            },
            since: place.since,
            trouble: place.trouble.clone(),
            generation: place.generation,
        })
    }

    /// Does something with what a member has, if it is there.
    pub fn with<R>(&self, at: usize, work: impl FnOnce(&mut F) -> R) -> Option<R> {
        let (_, place) = self.places.get(at)?;
        look_at(place).held.as_mut().map(work)
    }

    /// Does something with what each member has that is there. Results are in the order of members.
    pub fn map<R>(&self, mut work: impl FnMut(&mut F) -> R) -> Vec<Option<R>> {
        let all = 0..self.places.len();
        all.map(|at| self.with(at, &mut work)).collect()
    }

    /// A member has this from now on.
    ///
    /// # Errors
    /// It comes back: nobody wants it any more.
    pub fn put(&self, at: usize, held: F) -> Result<(), F> {
        let Some((_, place)) = self.places.get(at) else {
            return Err(held);
        };
        let mut place = lock(place);
        if *lock(&self.is_over) {
            return Err(held);
        }
        place.held = Some(held);
        place.trouble = None;
        place.is_late = false;
        place.since = SystemTime::now();
        place.generation += 1;
        place.delay = FIRST_TRY;
        Ok(())
    }

    /// A member has failed, if what it has is what did. Returns that.
    pub fn fail(&self, at: usize, trouble: Trouble, is_it: impl FnOnce(&F) -> bool) -> Option<F> {
        let (_, place) = self.places.get(at)?;
        let mut place = lock(place);
        match place.held.as_ref().is_none_or(is_it) {
            true => place.fail(trouble),
            false => None,
        }
    }

    /// Notes whether a member has answered.
    pub fn set_late(&self, at: usize, is_late: bool) {
        let Some((_, place)) = self.places.get(at) else {
            return;
        };
        let mut place = look_at(place);
        if place.held.is_some() && place.is_late != is_late {
            place.is_late = is_late;
            place.since = SystemTime::now();
        }
    }

    /// Tries all that are down, if it is time to, at once. `attempt` [puts](Members::put) what they have then. Returns why it failed.
    pub fn try_again<E: Send>(
        &self,
        attempt: impl Fn(usize, &Member) -> Result<(), E> + Sync,
        trouble: impl Fn(&E) -> Trouble + Sync,
    ) -> Vec<E> {
        let now = Instant::now();
        let due = self.places.iter().enumerate().filter(|(_, (_, place))| {
            let place = look_at(place);
            let is_refused = place.trouble.as_ref().is_some_and(|it| !it.is_passing);
            place.held.is_none() && !is_refused && place.try_at <= now
        });
        let due: Vec<_> = due.collect();
        let tried = each(&due, |(at, (member, place))| {
            attempt(*at, member).inspect_err(|error| drop(lock(place).fail(trouble(error))))
        });
        tried.into_iter().filter_map(Result::err).collect()
    }

    /// All are to be tried anew, also those that refused; what they have ends.
    pub fn begin_anew(&self) {
        for (_, place) in &self.places {
            let mut place = lock(place);
            drop(place.held.take());
            (place.trouble, place.is_late) = (None, false);
            (place.try_at, place.delay) = (Instant::now(), FIRST_TRY);
            place.generation = 0;
        }
    }

    /// Nobody wants them any more: those that come from now on find no place.
    pub fn end(&self) {
        *lock(&self.is_over) = true;
        self.ended.notify_all();
    }

    /// Takes what they have away.
    pub fn take_all(&self) -> Vec<F> {
        let held = self.places.iter().map(|(_, place)| lock(place).held.take());
        held.flatten().collect()
    }
}

impl<F> Place<F> {
    fn fail(&mut self, trouble: Trouble) -> Option<F> {
        let held = self.held.take();
        if held.is_some() || self.trouble.is_none() {
            self.since = SystemTime::now();
        }
        self.trouble = Some(trouble);
        self.is_late = false;
        self.try_at = Instant::now() + self.delay;
        self.delay = (self.delay * 2).min(LAST_TRY);
        held
    }
}

/// A member's place; notes if its connection has ended.
fn look_at<F: Held>(place: &Mutex<Place<F>>) -> MutexGuard<'_, Place<F>> {
    let mut place = lock(place);
    if place.held.as_ref().is_some_and(Held::is_gone) {
        place.fail(Trouble::from(&ClientError::Lost));
    }
    place
}

/// Has a thread try members again while somebody wants them. Without it, those that go do not come back.
pub fn keep_trying<T: Send + Sync + 'static, F: Held + 'static>(
    owner: Weak<T>,
    members: fn(&T) -> &Members<F>,
    again: fn(&T),
) {
    let look = move || {
        while let Some(owner) = owner.upgrade() {
            let members = members(&owner);
            let is_over = lock(&members.is_over);
            let waited = members.ended.wait_timeout(is_over, FIRST_TRY);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            again(&owner);
        }
    };
    let _ = thread::Builder::new()
        .name("fg-scope".to_owned())
        .spawn(look);
}
