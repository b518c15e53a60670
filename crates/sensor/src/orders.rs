//! What the thread of a device is asked: its users take turns.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use flowgauge_sys::packet::Waker;
use parking_lot::{Condvar, Mutex};

use crate::accounts::Who;

/// A queue for each user, and one of the sensor's own, which comes first.
pub(crate) struct Orders<T> {
    queues: Mutex<Queues<T>>,
    came: Condvar,
    waker: Waker,
}

struct Queues<T> {
    own: VecDeque<T>,
    /// The user whose turn it is first; none is empty.
    users: VecDeque<(Who, VecDeque<T>)>,
    is_closed: bool,
}

impl<T> Queues<T> {
    fn push(&mut self, who: Option<Who>, order: T) {
        let Some(who) = who else {
            return self.own.push_back(order);
        };
        let mut users = self.users.iter_mut();
        match users.find(|(user, _)| *user == who) {
            Some((_, orders)) => orders.push_back(order),
            None => self.users.push_back((who, VecDeque::from([order]))),
        }
    }

    fn pop(&mut self) -> Option<T> {
        if let Some(order) = self.own.pop_front() {
            return Some(order);
        }
        let (who, mut orders) = self.users.pop_front()?;
        let order = orders.pop_front();
        if !orders.is_empty() {
            self.users.push_back((who, orders));
        }
        order
    }
}

impl<T> Orders<T> {
    /// # Errors
    /// The system's: no descriptor is left.
    pub(crate) fn new() -> io::Result<Orders<T>> {
        Ok(Orders {
            queues: Mutex::new(Queues {
                own: VecDeque::new(),
                users: VecDeque::new(),
                is_closed: false,
            }),
            came: Condvar::new(),
            waker: Waker::new()?,
        })
    }

    /// What wakes who waits for packets when there is an order.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Asks something, of a user's or of the sensor itself. Whether there is anybody to do it.
    pub(crate) fn send(&self, who: Option<Who>, order: T) -> bool {
        let mut queues = self.queues.lock();
        if queues.is_closed {
            return false;
        }
        queues.push(who, order);
        drop(queues);
        self.came.notify_one();
        self.waker.wake();
        true
    }

    /// The next order; one that comes within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Option<T> {
        let mut queues = self.queues.lock();
        let order = queues.pop();
        if order.is_some() || wait.is_zero() {
            return order;
        }
        self.came.wait_for(&mut queues, wait);
        queues.pop()
    }

    /// Nothing is done any more.
    pub(crate) fn close(&self) {
        let mut queues = self.queues.lock();
        queues.is_closed = true;
        // Whoever waits for an answer learns it.
        (queues.own, queues.users) = (VecDeque::new(), VecDeque::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns_and_the_sensor_comes_first() {
        let orders = Orders::new().unwrap();
        for number in 0..30 {
            orders.send(Some(Who(1)), number);
        }
        orders.send(Some(Who(2)), 100);
        orders.send(None, 200);
        orders.send(Some(Who(2)), 101);
        let next = || orders.next(Duration::ZERO);
        let first: Vec<i32> = (0..6).filter_map(|_| next()).collect();
        assert_eq!(first, [200, 0, 100, 1, 101, 2]);
        assert_eq!(core::iter::from_fn(next).count(), 27);
        assert_eq!(next(), None);
        orders.send(None, 1);
        orders.close();
        assert!(!orders.send(None, 2));
        assert_eq!(next(), None);
    }
}
