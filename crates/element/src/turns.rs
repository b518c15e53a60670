//! Turns to measure: so many at once, of which nobody has more than half.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a measurement waits for others to end.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    of_one: usize,
    /// What is left of the half of each account that measures or waits.
    of: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A turn, as long as this lives.
pub(crate) struct Turn {
    _all: OwnedSemaphorePermit,
    /// It keeps the account's entry, too.
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new(most: u32) -> Turns {
        Turns {
            all: Arc::new(Semaphore::new(most as usize)),
            of_one: (most as usize / 2).max(1),
            of: Mutex::default(),
        }
    }

    /// Waits for a turn, of the account's half first: who has used that up holds up nobody else. Nothing, where it takes too long.
    pub(crate) async fn take(&self, account: &str) -> Option<Turn> {
        let own = {
            let mut of = self.of.lock();
            of.retain(|_, own| own.strong_count() > 0);
            let own = of.get(account).and_then(Weak::upgrade);
            own.unwrap_or_else(|| {
                let own = Arc::new(Semaphore::new(self.of_one));
                of.insert(account.to_owned(), Arc::downgrade(&own));
                own
            })
        };
        let both = async {
            let own = own.acquire_owned().await.ok()?;
            let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn {
                _all: all,
                _own: own,
            })
        };
        timeout(PATIENCE, both).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::runtime::Builder;

    use super::*;

    /// A turn, if there is one at once.
    fn now(turns: &Turns, account: &str) -> Option<Turn> {
        let taking = pin!(turns.take(account));
        match taking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[test]
    fn nobody_has_more_than_half() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        for (most, half) in [(1, 1), (2, 1), (5, 2), (16, 8)] {
            let turns = Turns::new(most);
            let mut own: Vec<Turn> = std::iter::from_fn(|| now(&turns, "a")).collect();
            assert_eq!(own.len(), half, "{most}");
            let others: Vec<Turn> = ["b", "c", "d"]
                .iter()
                .flat_map(|name| std::iter::from_fn(|| now(&turns, name)).collect::<Vec<_>>())
                .collect();
            assert_eq!(own.len() + others.len(), most as usize);
            own.pop();
            drop(others);
            let again = now(&turns, "a");
            assert!(again.is_some() && now(&turns, "a").is_none(), "{most}");
            drop((own, again));
            assert!(now(&turns, "a").is_some());
            assert_eq!(turns.of.lock().len(), 1);
        }
    }
}
