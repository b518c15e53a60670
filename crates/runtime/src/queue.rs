//! Bounded queues between two threads, and bells that wake waiting threads.
//!
//! A queue has one writer and one reader, and is lock-free (crate `rtrb`). A thread that finds it empty, or full,
//! checks again a few times and then sleeps on its [`Bell`] until the other side rings it. Several queues may share a
//! bell, so that a thread can wait for all of them. While no thread sleeps, ringing costs a fence and a load.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

/// Looks before a thread goes to sleep. Few: where there are more threads than cores, whoever looks
/// keeps another from working.
const LOOKS: u32 = 64;

/// Wakes a single waiting thread.
#[derive(Debug, Default)]
pub struct Bell {
    waiting: AtomicBool,
    /// Touched only by who goes to sleep and who has to wake it.
    sleeper: Mutex<Option<Thread>>,
}

impl Bell {
    /// A new bell.
    pub fn new() -> Arc<Bell> {
        Arc::new(Bell::default())
    }

    /// Wakes the waiting thread, which sees all preceding writes.
    #[inline]
    pub fn ring(&self) {
        // Either this sees that somebody waits, or who is about to sees what was written.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.waiting.swap(false, Ordering::Relaxed) {
            let sleeper = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(thread) = sleeper.as_ref() {
                thread.unpark();
            }
        }
    }

    /// Waits until `look` returns something. Only one thread at a time may wait on a bell.
    pub fn wait<R>(&self, mut look: impl FnMut() -> Option<R>) -> R {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return found;
            }
            core::hint::spin_loop();
        }
        *self.sleeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        loop {
            self.waiting.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if let Some(found) = look() {
                self.waiting.store(false, Ordering::Relaxed);
                return found;
            }
            thread::park();
        }
    }
}

/// Either side of a queue is gone.
#[derive(Debug, Default)]
struct Link {
    writer_gone: AtomicBool,
    reader_gone: AtomicBool,
}

/// The writing end of a queue.
#[derive(Debug)]
pub struct Sender<T> {
    queue: rtrb::Producer<T>,
    link: Arc<Link>,
    own: Arc<Bell>,
    other: Arc<Bell>,
}

/// The reading end of a queue.
#[derive(Debug)]
pub struct Receiver<T> {
    queue: rtrb::Consumer<T>,
    link: Arc<Link>,
    own: Arc<Bell>,
    other: Arc<Bell>,
}

/// Creates a queue of at most `capacity` items. `writer` and `reader` are the bells of the threads at its ends.
pub fn queue<T>(
    capacity: usize,
    writer: &Arc<Bell>,
    reader: &Arc<Bell>,
) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(capacity.max(1));
    let link = Arc::new(Link::default());
    let sender = Sender {
        queue: producer,
        link: Arc::clone(&link),
        own: Arc::clone(writer),
        other: Arc::clone(reader),
    };
    let receiver = Receiver {
        queue: consumer,
        link,
        own: Arc::clone(reader),
        other: Arc::clone(writer),
    };
    (sender, receiver)
}

impl<T> Sender<T> {
    /// Sends an item, and waits while the queue is full.
    ///
    /// # Errors
    /// Returns the item if the reader is gone.
    pub fn send(&mut self, thing: T) -> Result<(), T> {
        let Err(thing) = self.try_send(thing) else {
            return Ok(());
        };
        // Until there is room for several, so that the two sides do not wake each other each time.
        let enough = self.queue.buffer().capacity().div_ceil(2);
        let (queue, link) = (&self.queue, &self.link);
        let alive = self.own.wait(|| {
            if link.reader_gone.load(Ordering::Acquire) {
                return Some(false);
            }
            (queue.slots() >= enough).then_some(true)
        });
        if alive {
            self.try_send(thing)
        } else {
            Err(thing)
        }
    }

    /// Sends an item if there is room.
    ///
    /// # Errors
    /// Returns the item if there is no room, or the reader is gone.
    #[inline]
    pub fn try_send(&mut self, thing: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(thing);
        }
        match self.queue.push(thing) {
            Ok(()) => {
                self.other.ring();
                Ok(())
            }
            Err(rtrb::PushError::Full(thing)) => Err(thing),
        }
    }

    /// Whether the reader is gone.
    pub fn is_closed(&self) -> bool {
        self.link.reader_gone.load(Ordering::Acquire)
    }

    /// Upper bound of the number of items in the queue.
    pub fn len(&self) -> usize {
        self.queue.buffer().capacity() - self.queue.slots()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Receiver<T> {
    /// Waits for the next item; `None` if the queue is empty and the writer is gone.
    pub fn receive(&mut self) -> Option<T> {
        if let Some(thing) = self.try_receive() {
            return Some(thing);
        }
        let own = Arc::clone(&self.own);
        own.wait(|| {
            let gone = self.link.writer_gone.load(Ordering::Acquire);
            match self.try_receive() {
                None if gone => Some(None),
                None => None,
                thing => Some(thing),
            }
        })
    }

    /// The next item, if there is one.
    #[inline]
    pub fn try_receive(&mut self) -> Option<T> {
        let thing = self.queue.pop().ok()?;
        if self.queue.slots() <= self.queue.buffer().capacity() / 2 {
            self.other.ring();
        }
        Some(thing)
    }

    /// Maximum number of items.
    pub fn capacity(&self) -> usize {
        self.queue.buffer().capacity()
    }

    /// Whether the writer is gone. Items that it sent remain in the queue.
    pub fn is_closed(&self) -> bool {
        self.link.writer_gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.link.writer_gone.store(true, Ordering::Release);
        self.other.ring();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.link.reader_gone.store(true, Ordering::Release);
        // What is left may hold memory that the writer waits for.
        while self.queue.pop().is_ok() {}
        self.other.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_in_order_through_a_short_queue() {
        const THINGS: u64 = 200_000;
        for capacity in [1, 2, 7] {
            let (mut sender, mut receiver) = queue(capacity, &Bell::new(), &Bell::new());
            let sum = thread::scope(|scope| {
                let reader = scope.spawn(move || {
                    let mut expected = 0;
                    while let Some(thing) = receiver.receive() {
                        assert_eq!(thing, expected);
                        expected += 1;
                    }
                    expected
                });
                for thing in 0..THINGS {
                    sender.send(thing).unwrap();
                }
                drop(sender);
                reader.join().unwrap()
            });
            assert_eq!(sum, THINGS);
        }
    }

    #[test]
    fn a_full_queue_gives_back_and_a_gone_reader_is_noticed() {
        let (mut sender, receiver) = queue(2, &Bell::new(), &Bell::new());
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Ok(()));
        assert_eq!(sender.try_send(3), Err(3));
        assert_eq!(sender.len(), 2);
        thread::scope(|scope| {
            let sent = scope.spawn(|| sender.send(3));
            drop(receiver);
            assert_eq!(sent.join().unwrap(), Err(3));
        });
    }

    #[test]
    fn one_bell_serves_several_queues() {
        let bell = Bell::new();
        let (mut senders, mut receivers): (Vec<_>, Vec<_>) =
            (0..3).map(|_| queue(1, &Bell::new(), &bell)).unzip();
        thread::scope(|scope| {
            for (number, mut sender) in senders.drain(..).enumerate() {
                scope.spawn(move || (0..1000).try_for_each(|_| sender.send(number)));
            }
            let mut counts = [0; 3];
            let total = bell.wait(|| {
                for receiver in &mut receivers {
                    while let Some(number) = receiver.try_receive() {
                        counts[number] += 1;
                    }
                }
                let total: i32 = counts.iter().sum();
                (total == 3000).then_some(total)
            });
            assert_eq!((total, counts), (3000, [1000; 3]));
        });
    }
}
