//! Receives for many conversations on a few threads.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::error::Error;
use crate::message::Conversation;

/// Threads of a reactor: more do not help while conversations are few, or their messages small.
const MOST_THREADS: usize = 8;
/// Conversations that are looked at between two looks at which others have something.
const AT_ONCE: usize = 256;
/// How often it is looked who has said nothing for too long, and whether anybody is there at all.
const LOOK: Duration = Duration::from_secs(1);

/// What is done with each message of a conversation, and with `None` once no more come. It must not wait: other conversations do.
/// A conversation ends when this returns `false`.
type Take = dyn FnMut(Option<&[u8]>) -> bool + Send;

/// Threads that receive for any number of conversations: as many as the machine has processors, eight at most. They end with
/// the last conversation, once this is dropped.
#[derive(Debug)]
pub struct Reactor {
    shards: Vec<Arc<Shard>>,
    next: AtomicU64,
}

/// A thread with its conversations.
#[derive(Debug)]
struct Shard {
    epoll: OwnedFd,
    received: Mutex<Received>,
    /// The reactor was dropped: no more come.
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Received {
    by_number: BTreeMap<u64, Receiving>,
    has_thread: bool,
}

/// A conversation whose messages are taken as they come.
struct Receiving {
    conversation: Conversation,
    take: Box<Take>,
    heard: Instant,
}

impl core::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Receiving")
    }
}

impl Reactor {
    /// Without threads, until there is something to receive.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Reactor> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let shards = (0..threads.min(MOST_THREADS)).map(|_| {
            Ok(Arc::new(Shard {
                epoll: epoll::create(CreateFlags::CLOEXEC)?,
                received: Mutex::default(),
                is_over: AtomicBool::new(false),
            }))
        });
        Ok(Reactor {
            shards: shards.collect::<io::Result<_>>()?,
            next: AtomicU64::new(0),
        })
    }

    /// Has `take` called with each message of a conversation, and with `None` once no more come: it was silent for too long, or
    /// one of the two ends closed it. `take` must not wait, as others would wait with it, and ends the conversation by `false`.
    ///
    /// # Errors
    /// The system's: there is no thread for it, or no room among those that are looked at.
    pub fn receive(
        &self,
        conversation: Conversation,
        take: impl FnMut(Option<&[u8]>) -> bool + Send + 'static,
    ) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(shard) = self.shards.get(number as usize % self.shards.len()) else {
            return Ok(());
        };
        let mut receiving = Receiving {
            conversation,
            take: Box::new(take),
            heard: Instant::now(),
        };
        // What came together with the other end's answer.
        if receiving.go_on().is_err() {
            (receiving.take)(None);
            return Ok(());
        }
        let mut received = shard.received.lock();
        if !received.has_thread {
            let shard = Arc::clone(shard);
            thread::Builder::new()
                .name("link-receive".to_owned())
                .stack_size(256 << 10)
                .spawn(move || shard.run())?;
            received.has_thread = true;
        }
        let socket = receiving.conversation.socket();
        epoll::add(
            &shard.epoll,
            socket,
            EventData::new_u64(number),
            EventFlags::IN,
        )?;
        received.by_number.insert(number, receiving);
        Ok(())
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.is_over.store(true, Ordering::Release);
        }
    }
}

impl Shard {
    /// Receives until nobody is there and nobody comes.
    fn run(&self) {
        let mut events: Vec<Event> = Vec::with_capacity(AT_ONCE);
        let mut looked = Instant::now();
        let limit = Timespec {
            tv_sec: LOOK.as_secs() as i64,
            tv_nsec: 0,
        };
        loop {
            events.clear();
            // An interruption is no error, and there is no other.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit));
            for event in &events {
                let number = event.data.u64();
                let found = self.received.lock().by_number.remove(&number);
                let Some(mut receiving) = found else { continue };
                match receiving.go_on() {
                    Ok(()) => drop(self.received.lock().by_number.insert(number, receiving)),
                    Err(_) => self.end(receiving),
                }
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            let mut received = self.received.lock();
            let silent = received.by_number.extract_if(.., |_, it| it.is_silent());
            let silent: Vec<_> = silent.map(|(_, receiving)| receiving).collect();
            let is_over = self.is_over.load(Ordering::Acquire) && received.by_number.is_empty();
            received.has_thread = !is_over;
            drop(received);
            silent.into_iter().for_each(|receiving| self.end(receiving));
            if is_over {
                return;
            }
        }
    }

    fn end(&self, mut receiving: Receiving) {
        // Others may have the socket open, too: its end is not enough.
        let _ = epoll::delete(&self.epoll, receiving.conversation.socket());
        let Receiving {
            conversation, take, ..
        } = &mut receiving;
        conversation.sender().close();
        take(None);
    }
}

impl Receiving {
    /// Takes the messages that are there.
    fn go_on(&mut self) -> Result<(), Error> {
        let (heard, take) = (&mut self.heard, &mut self.take);
        self.conversation.receive_ready(|message| {
            *heard = Instant::now();
            take(Some(message))
        })
    }

    fn is_silent(&self) -> bool {
        self.heard.elapsed() > self.conversation.silence()
    }
}
