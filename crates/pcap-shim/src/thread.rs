//! The threaded variant: a thread gathers into one buffer while the reader delivers another.
//!
//! There are three. The reader keeps the one that it has delivered until it comes again, as `pcap_next_ex` has promised that the last
//! packet stays; until then another one has to be full, or nothing would tell a program in a poll loop to come.

use core::mem;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;

use crate::buffer::Buffer;
use crate::counts::add;
use crate::descriptor::{Event, wait};
use crate::gather::{Gatherer, Progress};
use crate::handle::Handle;

/// The reader's, the thread's, and one between them.
const BUFFERS: usize = 3;

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Thread {
    shared: Arc<Shared>,
    /// The buffer that is being delivered.
    pub(crate) buffer: Option<Buffer>,
    running: Option<JoinHandle<()>>,
    /// The process that it runs in, not those forked from that.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    places: Mutex<Places>,
    /// Set while there is a full buffer.
    full: Event,
    /// Set when there is something to do for the thread besides gathering.
    wake: Event,
    stop: AtomicBool,
}

/// Where buffers are that neither end has.
#[derive(Debug, Default)]
struct Places {
    full: Option<Buffer>,
    spare: Vec<Buffer>,
}

impl Thread {
    /// Starts to gather.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(handle: &'static Handle, gatherer: Gatherer) -> io::Result<Thread> {
        if !gatherer.is_room_for(BUFFERS) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let places = Places {
            full: None,
            spare: vec![gatherer.buffer(), gatherer.buffer()],
        };
        let shared = Arc::new(Shared {
            places: Mutex::new(places),
            full: Event::new()?,
            wake: Event::new()?,
            stop: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let running = without_signals(|| {
            Builder::new()
                .name("locality".to_owned())
                .spawn(move || gather(handle, gatherer, &theirs))
        })?;
        Ok(Thread {
            shared,
            buffer: None,
            running: Some(running),
            process: process::id(),
        })
    }

    /// Whether the thread is in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Hands back the buffer that was delivered.
    pub(crate) fn give_back(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.shared.places.lock().spare.push(buffer);
            self.shared.wake.set();
        }
    }

    /// Takes the next buffer if it is due.
    pub(crate) fn take_full(&mut self) -> bool {
        let mut places = self.shared.places.lock();
        self.buffer = places.full.take();
        if self.buffer.is_some() {
            self.shared.full.clear();
            self.shared.wake.set();
        }
        self.buffer.is_some()
    }

    /// Readable when there is a full buffer.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.full.as_fd()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.set();
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

/// What the thread does.
fn gather(handle: &Handle, mut gatherer: Gatherer, shared: &Shared) {
    let mut buffer = gatherer.buffer();
    while !shared.stop.load(Ordering::Acquire) {
        let before = buffer.len();
        let progress = {
            let _gate = handle.gate();
            gatherer.step(&mut buffer, usize::MAX, handle.filter_number())
        };
        add(&handle.counts.gathered, (buffer.len() - before) as u64);
        let wake = shared.wake.as_fd();
        match progress {
            Progress::More => continue,
            Progress::Dry => gatherer.wait(wake, gatherer.left_of(&buffer)),
            Progress::Due => {
                let is_last = buffer.end.is_some();
                if hand_over(&mut gatherer, &mut buffer, shared) {
                    if is_last {
                        return;
                    }
                    continue;
                }
                // The reader has not come for the last buffer: more is gathered as long as there is room.
                if is_last || buffer.room(usize::MAX) == 0 {
                    wait(&[wake], None);
                } else {
                    gatherer.wait(wake, None);
                }
            }
        }
        shared.wake.clear();
    }
}

/// Gives the buffer to the reader and takes another one, if it has come for the last.
fn hand_over(gatherer: &mut Gatherer, buffer: &mut Buffer, shared: &Shared) -> bool {
    let mut places = shared.places.lock();
    if places.full.is_some() {
        return false;
    }
    let Some(mut spare) = places.spare.pop() else {
        return false;
    };
    // The reader is not to wait until all is in order.
    drop(places);
    gatherer.begin(&mut spare);
    gatherer.seal(buffer);
    let full = mem::replace(buffer, spare);
    shared.places.lock().full = Some(full);
    shared.full.set();
    true
}

/// Starts something that takes no signals: they are for the program's own threads.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both are plain bits; sigfillset and pthread_sigmask only write to what they are given.
    let before = unsafe {
        let (mut all, mut before) = (mem::zeroed::<libc::sigset_t>(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = start();
    // SAFETY: puts back what was read above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    started
}
