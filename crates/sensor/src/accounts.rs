//! What each user costs, and what of it each may.
//!
//! A user has a share of the processors ([`Rights::cpu`](crate::Rights)): so much processor time per second, of which what was
//! not used of the last second is left. Who has used more is *over*. Compiling what a flow needs waits then, and where an
//! interface brings more than is taken such a user's flows rest before anybody else loses packets ([`Overload`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Whose something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Who(
    /// A user of this machine, or from 2^32 on one of another machine.
    pub(crate) u64,
);

impl Who {
    /// A user of this machine.
    pub(crate) fn local(user: u32) -> Who {
        Who(user.into())
    }

    /// The user of another machine with this number.
    pub(crate) fn remote(number: u32) -> Who {
        Who(1 << 32 | u64::from(number))
    }

    pub(crate) fn remote_number(self) -> Option<u32> {
        u32::try_from(self.0.checked_sub(1 << 32)?).ok()
    }
}

/// Seconds of a share that may be used at once.
const BURST: f64 = 1.0;
/// ... and that may be owed: what was used beyond that is forgiven.
const DEBT: f64 = 10.0;

/// What a user has used.
pub(crate) struct Account {
    who: Who,
    bucket: Mutex<Bucket>,
    /// All of it, in nanoseconds.
    spent: AtomicU64,
}

/// What is left of a share, in seconds of processor time.
#[derive(Debug)]
struct Bucket {
    share: f64,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(share: f64, at: Instant) -> Bucket {
        Bucket {
            share,
            left: share * BURST,
            at,
        }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.left = (self.left + passed * self.share).min(self.share * BURST);
    }

    fn take(&mut self, now: Instant, seconds: f64) {
        self.fill(now);
        self.left = (self.left - seconds).max(-self.share * DEBT);
    }

    /// How long it is until something is left.
    fn owes(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        (self.left < 0.0).then(|| Duration::from_secs_f64((-self.left / self.share).min(DEBT)))
    }
}

impl Account {
    pub(crate) fn new(who: Who, share: f64) -> Account {
        Account {
            who,
            bucket: Mutex::new(Bucket::new(share, Instant::now())),
            spent: AtomicU64::new(0),
        }
    }

    pub(crate) fn who(&self) -> Who {
        self.who
    }

    /// The share is another.
    pub(crate) fn set_share(&self, share: f64) {
        let mut bucket = self.bucket.lock();
        if bucket.share.to_bits() != share.to_bits() {
            *bucket = Bucket::new(share, Instant::now());
        }
    }

    pub(crate) fn share(&self) -> f64 {
        self.bucket.lock().share
    }

    /// Nanoseconds were used that count for the share.
    pub(crate) fn charge(&self, nanos: u64) {
        self.note(nanos);
        self.bucket.lock().take(Instant::now(), nanos as f64 * 1e-9);
    }

    /// Nanoseconds were used that do not.
    pub(crate) fn note(&self, nanos: u64) {
        self.spent.fetch_add(nanos, Ordering::Relaxed);
    }

    /// All that was used, in nanoseconds.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// How long it is until something of the share is left; `None`: there is.
    pub(crate) fn owes(&self) -> Option<Duration> {
        self.bucket.lock().owes(Instant::now())
    }
}

/// The accounts of all users who have come so far.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<BTreeMap<Who, Arc<Account>>>);

impl Accounts {
    /// A user's, whose share is this.
    pub(crate) fn of(&self, who: Who, share: f64) -> Arc<Account> {
        let accounts = &mut *self.0.lock();
        let account = accounts
            .entry(who)
            .or_insert_with(|| Arc::new(Account::new(who, share)));
        account.set_share(share);
        Arc::clone(account)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Account>> {
        self.0.lock().values().cloned().collect()
    }
}

/// Looks at an interface in which a user's flows may have rested before one of them is cut off: ten seconds of them.
const PATIENCE: u32 = 1000;

/// Who is served last on a device. It is asked at every look, a hundred a second.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// How many looks more each has rested than not.
    rested: BTreeMap<Who, u32>,
}

/// What becomes of a user's flows until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They get packets.
    Serve,
    /// They get none, so that others lose none.
    Rest,
    /// They get none, and the costliest is cut off.
    Cut,
}

impl Overload {
    /// The verdict on a user who is over the share or not, on a device that is behind or not.
    pub(crate) fn look(&mut self, who: Who, is_over: bool, is_behind: bool) -> Verdict {
        if !(is_over && is_behind) {
            if let Some(rested) = self.rested.get_mut(&who) {
                *rested -= 1;
                if *rested == 0 {
                    self.rested.remove(&who);
                }
            }
            return Verdict::Serve;
        }
        let rested = self.rested.entry(who).or_insert(0);
        *rested += 1;
        if *rested < PATIENCE {
            return Verdict::Rest;
        }
        self.rested.remove(&who);
        Verdict::Cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_so_much_of_each_second() {
        let began = Instant::now();
        let at = |seconds: f64| began + Duration::from_secs_f64(seconds);
        let mut bucket = Bucket::new(0.5, began);
        bucket.take(at(0.0), 0.5);
        assert_eq!(bucket.owes(at(0.0)), None);
        bucket.take(at(0.0), 0.25);
        let owed = bucket.owes(at(0.0)).unwrap();
        assert!((owed.as_secs_f64() - 0.5).abs() < 1e-9, "{owed:?}");
        assert!(bucket.owes(at(0.4)).is_some());
        assert_eq!(bucket.owes(at(0.51)), None);
        // What is not used is not kept, and what is owed is forgiven.
        bucket.take(at(100.0), 0.6);
        assert!(bucket.owes(at(100.0)).is_some());
        bucket.take(at(100.0), 1000.0);
        let owed = bucket.owes(at(100.0)).unwrap();
        assert!(owed <= Duration::from_secs(10), "{owed:?}");
        // Time that goes backwards changes nothing.
        bucket.fill(at(50.0));
        assert_eq!(bucket.owes(at(110.1)), None);
        // Who may use all there is owes nothing.
        let mut all = Bucket::new(f64::INFINITY, began);
        all.take(at(1.0), 1e9);
        assert_eq!(all.owes(at(1.0)), None);
    }

    #[test]
    fn who_is_over_rests_while_others_would_lose_packets() {
        let mut overload = Overload::default();
        let (heavy, light) = (Who(1), Who(2));
        for _ in 0..10_000 {
            assert_eq!(overload.look(heavy, true, false), Verdict::Serve);
            assert_eq!(overload.look(light, false, true), Verdict::Serve);
        }
        for look in 1..PATIENCE {
            assert_eq!(overload.look(heavy, true, true), Verdict::Rest, "{look}");
            assert_eq!(overload.look(light, false, true), Verdict::Serve);
        }
        assert_eq!(overload.look(heavy, true, true), Verdict::Cut);
        assert_eq!(overload.look(heavy, true, true), Verdict::Rest);
        // Who rests no more than half of the time is never cut off.
        for look in 0..10 * PATIENCE {
            let verdict = overload.look(heavy, true, look % 2 == 0);
            assert_ne!(verdict, Verdict::Cut, "{look}");
        }
    }
}
