//! A thread that writes for a capture that cannot wait.
//!
//! A slow reader of a pipe, or a busy disk, delays this thread and not the capture. Data for which there is no room is
//! lost in whole buffers, which contain whole records, and is counted.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, mem, thread};

use crate::output::{OutputError, Target};

/// Bytes that may wait to be written.
const MOST_WAITING: usize = 16 << 20;
/// Buffers that are kept to serve again.
const MOST_FREE: usize = 4;

/// Writes the data of several outputs, in order. The thread starts with the first buffer, and ends when there are no
/// handles to it and everything is written.
#[derive(Clone, Default)]
pub struct WriterThread(Arc<Owner>);

#[derive(Default)]
struct Owner(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// Bytes of the pieces that are not written yet, the one at work among them.
    bytes: usize,
    free: Vec<Vec<u8>>,
    is_started: bool,
    /// Nothing more comes.
    is_closed: bool,
    /// Who finds no room waits.
    waits: bool,
    lost: u64,
    has_failed: bool,
    /// Told once.
    failure: Option<OutputError>,
}

/// Where pieces go.
pub(crate) struct Destination {
    /// In what is said of failures.
    pub(crate) name: String,
    /// The thread's alone.
    pub(crate) target: Mutex<Target>,
}

/// Whole records.
struct Piece {
    destination: Arc<Destination>,
    bytes: Vec<u8>,
    flushes: bool,
}

impl WriterThread {
    /// The input is over: from now on, data waits for room instead of being lost.
    pub fn begin_finish(&self) {
        self.0.0.lock().waits = true;
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// The first failure, if it was not reported yet.
    pub fn finish(&self) -> Result<(), OutputError> {
        self.0.0.written().check()
    }

    /// Records, or lines, for which there was no room.
    pub fn lost(&self) -> u64 {
        self.0.0.lock().lost
    }

    /// There was no room for so many.
    pub(crate) fn lose(&self, records: u64) {
        self.0.0.lock().lost += records;
    }

    /// Whether small pieces do better to wait until there are more.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.0.0.lock();
        state.bytes > 0 && !state.waits && !state.has_failed
    }

    /// Takes the records in `bytes`, and leaves an empty buffer there. False: there is no room, and they are to be lost.
    pub(crate) fn give(
        &self,
        destination: &Arc<Destination>,
        bytes: &mut Vec<u8>,
        flushes: bool,
    ) -> Result<bool, OutputError> {
        let shared = &self.0.0;
        let mut state = shared.lock();
        let size = bytes.len() + size_of::<Piece>();
        while !state.has_failed && state.bytes > 0 && state.bytes + size > MOST_WAITING {
            if !state.waits {
                return Ok(false);
            }
            state = shared.wait(state);
        }
        state.check()?;
        if !mem::replace(&mut state.is_started, true) {
            let own = Arc::clone(shared);
            let thread = thread::Builder::new().name("fg-writer".to_owned());
            thread.spawn(move || Shared::run(&own))?;
        }
        let empty = state.free.pop().unwrap_or_default();
        state.bytes += size;
        state.pieces.push_back(Piece {
            destination: Arc::clone(destination),
            bytes: mem::replace(bytes, empty),
            flushes,
        });
        drop(state);
        shared.changed.notify_all();
        Ok(true)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Of a stack that failed elsewhere, too, what was given is written.
        self.0.written().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything is written.
    fn written(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.waits = true;
        while state.bytes > 0 && !state.has_failed {
            state = self.wait(state);
        }
        state
    }

    /// What the thread does.
    fn run(&self) {
        let _ending = Ending(self);
        let mut state = self.lock();
        loop {
            let Some(mut piece) = state.pieces.pop_front() else {
                if state.is_closed {
                    return;
                }
                state = self.wait(state);
                continue;
            };
            if !state.has_failed {
                drop(state);
                let written = piece.write();
                state = self.lock();
                if let Err(error) = written {
                    state.fail(error);
                }
            }
            state.bytes -= piece.bytes.len() + size_of::<Piece>();
            if state.free.len() < MOST_FREE {
                piece.bytes.clear();
                state.free.push(mem::take(&mut piece.bytes));
            }
            self.changed.notify_all();
        }
    }
}

impl State {
    fn fail(&mut self, error: OutputError) {
        self.has_failed = true;
        self.failure.get_or_insert(error);
    }

    fn check(&mut self) -> Result<(), OutputError> {
        match self.has_failed {
            true => Err(self.failure.take().unwrap_or(OutputError::Closed)),
            false => Ok(()),
        }
    }
}

impl Piece {
    fn write(&self) -> Result<(), OutputError> {
        let target = self.destination.target.lock();
        let mut target = target.unwrap_or_else(PoisonError::into_inner);
        let written = target.write(&self.bytes);
        let written = written.and_then(|()| match self.flushes {
            true => target.flush(),
            false => Ok(()),
        });
        written.map_err(|error| error.of(&self.destination.name))
    }
}

/// A thread that panicked writes nothing more.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = io::Error::other("the thread that writes panicked");
            self.0.lock().fail(error.into());
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::{Format, Output, RecordWriter};

    /// Writes when it is let.
    struct Blocked {
        gate: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the other side is gone it is open.
            let _ = self.gate.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A writer to a target that is blocked, what opens that, and what it got.
    fn blocked(
        thread: &WriterThread,
        header: &[u8],
    ) -> (RecordWriter, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (sender, gate) = channel();
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let target = Blocked {
            gate,
            written: Arc::clone(&written),
        };
        let output = Output::raw(Box::new(target)).by(Some(thread), "blocked");
        (RecordWriter::of_bytes(output, header), sender, written)
    }

    const RECORD: [u8; 1024] = [b'r'; 1024];

    #[test]
    fn what_finds_no_room_is_lost_in_whole_records_and_counted() {
        let thread = WriterThread::default();
        let (mut first, gate, of_first) = blocked(&thread, b"one");
        let (mut second, other, of_second) = blocked(&thread, b"two");
        for _ in 0..20 << 10 {
            first.write_bytes(&RECORD);
        }
        first.flush();
        let lost = thread.lost();
        assert!(lost > 3 << 10, "{lost}");
        // Whose first records are lost has its header all the same.
        for _ in 0..100 {
            second.write_bytes(&RECORD);
        }
        assert_eq!(thread.lost(), lost + 64);
        drop((gate, other));
        thread.begin_finish();
        second.write_bytes(&RECORD);
        second.finish().unwrap();
        first.finish().unwrap();
        thread.finish().unwrap();
        let written = of_first.lock().unwrap().len();
        let of_second = of_second.lock().unwrap();
        assert_eq!(&of_second[..4], b"twor");
        assert_eq!(of_second.len(), 3 + (100 - 64 + 1) * 1024);
        assert_eq!(written, 3 + ((20 << 10) - lost as usize) * 1024);
    }

    #[test]
    fn at_the_end_of_the_input_nothing_is_lost() {
        let thread = WriterThread::default();
        let (mut writer, gate, written) = blocked(&thread, b"");
        thread.begin_finish();
        let opens = thread::spawn(move || (0..100).try_for_each(|_| gate.send(())));
        for _ in 0..40 << 10 {
            writer.write_bytes(&RECORD);
        }
        writer.finish().unwrap();
        thread.finish().unwrap();
        opens.join().unwrap().unwrap();
        assert_eq!(written.lock().unwrap().len(), 40 << 20);
        assert_eq!(thread.lost(), 0);
    }

    #[test]
    fn a_failure_is_told_with_the_name_of_its_output_once() {
        struct Full;

        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let thread = WriterThread::default();
        let output = Output::raw(Box::new(Full)).by(Some(&thread), "x.json");
        let mut full = RecordWriter::new(output, Format::Json, &[]);
        let (mut other, gate, _) = blocked(&thread, b"");
        full.write_bytes(b"{}\n");
        full.finish().unwrap();
        drop(gate);
        let Err(OutputError::Io { name, source }) = thread.finish() else {
            panic!("it fails");
        };
        assert_eq!(name.as_deref(), Some("x.json"));
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
        other.flush();
        assert!(matches!(other.check(), Err(OutputError::Closed)));
    }
}
