//! Several capture files as one source, merged by time.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flowgauge_sys::files;
use flowgauge_wire::{Batch, Ledger, Nanos, PacketDescriptor};

use crate::error::Error;
use crate::file::input::READ_BYTES;
use crate::file::source::wire_bytes;
use crate::file::{AnyFile, open_with, pattern};
use crate::gathered::{Gathered, LENT};
use crate::memory::SharedMemory;
use crate::source::{Interface, PacketSource};

/// Read buffer while only a file's first time is wanted.
const PROBE_BYTES: usize = 64 << 10;
/// More files than this at the same time share the memory of so many buffers.
const FULL_BUFFERS: usize = 64;
/// The smallest buffer a file gets.
const LEAST_BYTES: usize = 64 << 10;

/// Opens files and glob patterns as one source: the file's own source if there is only one, otherwise a
/// [`MultiSource`].
///
/// # Errors
/// As [`crate::open`]; [`Error::NoMatch`] if a pattern matches nothing.
pub fn open_all<P: AsRef<Path>>(patterns: &[P]) -> Result<Box<dyn PacketSource + Send>, Error> {
    let paths = expand(patterns)?;
    if let [path] = paths.as_slice() {
        return crate::file::open(path);
    }
    Ok(Box::new(MultiSource::open(&paths)?))
}

/// Replaces patterns by the files they match, sorted by name. The name of an existing file is taken literally,
/// whatever characters it has; `-` is standard input.
///
/// # Errors
/// [`Error::NotACapture`] if a pattern is malformed, [`Error::NoMatch`] if it matches nothing.
pub fn expand<P: AsRef<Path>>(patterns: &[P]) -> Result<Vec<PathBuf>, Error> {
    let mut paths = Vec::new();
    for pattern in patterns {
        let path = pattern.as_ref();
        let text = path.to_string_lossy();
        if !text.contains(['*', '?', '[']) || files::named().metadata(path).is_ok() {
            paths.push(path.to_owned());
            continue;
        }
        let refused = |reason: String| Error::NotACapture {
            path: path.to_owned(),
            reason,
        };
        let matches = pattern::matches(files::named(), &text)
            .map_err(|error| refused(format!("the pattern is malformed: {error}")))?;
        if matches.is_empty() {
            return Err(Error::NoMatch {
                pattern: path.to_owned(),
            });
        }
        paths.extend(matches);
    }
    Ok(paths)
}

/// Several files merged by time. Packets with equal times are in the order of the files. A batch is a run of one
/// file's packets that are not later than the next packets of the other files, in place; short runs are copied
/// to one batch.
///
/// Files are opened when their first packet is due, so a year of rotated captures needs one file handle and one
/// buffer. A damaged file does not stop the others; its error is returned at the end, one per damaged file.
#[derive(Default)]
pub struct MultiSource {
    /// Files that are being read.
    active: Vec<Active>,
    /// Files not yet due, by time of their first packet, the last one first.
    waiting: Vec<Waiting>,
    /// Which of `active` gave the last batch, and up to where; `None` where it was gathered.
    given: Option<(usize, usize)>,
    gathered: Gathered,
    interfaces: Vec<Interface>,
    errors: Vec<Error>,
    /// Notes of files that are done.
    notes: Vec<String>,
    /// What their captures lost.
    lost: u64,
    ledger: Ledger,
}

struct Active {
    source: Box<dyn AnyFile>,
    /// Place in the order given by the user.
    rank: usize,
    /// Next packet of the loaded batch.
    at: usize,
    /// Number here of each of the source's interfaces.
    interfaces: Vec<u16>,
    /// Which of the first numbers here these are.
    is_one: [bool; MOST_ALIKE],
}

struct Waiting {
    first: Nanos,
    rank: usize,
    path: PathBuf,
}

impl Active {
    fn head(&self) -> Option<Nanos> {
        let batch = self.source.loaded();
        batch.packets.get(self.at).map(|packet| packet.time)
    }
}

impl MultiSource {
    /// Opens all of `paths` briefly to check them and to read their start times.
    ///
    /// # Errors
    /// As [`crate::open`], for the first invalid file.
    pub fn open(paths: &[PathBuf]) -> Result<MultiSource, Error> {
        let mut multi = MultiSource::default();
        let buffer = READ_BYTES * FULL_BUFFERS.min(paths.len()) / paths.len().max(1);
        for (rank, path) in paths.iter().enumerate() {
            // What cannot be opened twice (a pipe, standard input) stays open.
            let again = files::named().is_file(path);
            let bytes = if again {
                PROBE_BYTES
            } else {
                buffer.max(LEAST_BYTES)
            };
            let source = match open_with(path, bytes) {
                // The run is to end: what the others have is read.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::Interrupted => {
                    continue;
                }
                opened => opened?,
            };
            let active = Active {
                source,
                rank,
                at: 0,
                interfaces: Vec::new(),
                is_one: [false; MOST_ALIKE],
            };
            let Some(active) = multi.loaded(active) else {
                continue;
            };
            match active.head() {
                Some(first) if again => multi.waiting.push(Waiting {
                    first,
                    rank,
                    path: path.clone(),
                }),
                _ => multi.active.push(active),
            }
        }
        multi
            .waiting
            .sort_by_key(|one| std::cmp::Reverse((one.first, one.rank)));
        Ok(multi)
    }

    /// Loads a source's next batch that has packets; `None` when it has no more.
    fn loaded(&mut self, mut active: Active) -> Option<Active> {
        loop {
            match active.source.load() {
                Ok(true) => {}
                Ok(false) => {
                    self.notes.extend(active.source.notes());
                    self.lost = self.lost.saturating_add(active.source.capture_lost());
                    return None;
                }
                Err(error) => {
                    self.errors.push(error);
                    return None;
                }
            }
            active.at = 0;
            number(&mut self.interfaces, &mut active);
            for packet in active.source.loaded_mut() {
                let index = active.interfaces.get(usize::from(packet.interface));
                packet.interface = index.copied().unwrap_or(0);
            }
            if active.head().is_some() {
                return Some(active);
            }
        }
    }

    /// Opens the waiting files whose first packet is not later than what the open ones have next.
    fn activate(&mut self) {
        loop {
            let due = self.active.iter().filter_map(Active::head).min();
            let is_due = |next: &mut Waiting| due.is_none_or(|due| next.first <= due);
            let Some(next) = self.waiting.pop_if(is_due) else {
                return;
            };
            let share = READ_BYTES * FULL_BUFFERS / (self.active.len() + 1);
            let opened = open_with(&next.path, share.clamp(LEAST_BYTES, READ_BYTES));
            match opened {
                Ok(source) => {
                    let active = self.loaded(Active {
                        source,
                        rank: next.rank,
                        at: 0,
                        interfaces: Vec::new(),
                        is_one: [false; MOST_ALIKE],
                    });
                    self.active.extend(active);
                }
                Err(error) => self.errors.push(error),
            }
        }
    }

    /// Moves past what the last call gave.
    fn advance(&mut self) {
        let Some((index, until)) = self.given.take() else {
            return;
        };
        let Some(active) = self.active.get_mut(index) else {
            return;
        };
        active.at = until;
        if active.head().is_none() {
            let active = self.active.swap_remove(index);
            let active = self.loaded(active);
            self.active.extend(active);
        }
    }

    /// Copies runs to a batch, until it is full or something is to be done first.
    fn gather(&mut self) {
        self.gathered.begin();
        let known = self.interfaces.len();
        while !self.gathered.is_full() && self.interfaces.len() == known {
            let Some((index, until)) = self.turn() else {
                return;
            };
            let Some(active) = self.active.get_mut(index) else {
                return;
            };
            let loaded = active.source.loaded();
            let run = loaded.packets.get(active.at..until).unwrap_or_default();
            if run.len() >= LENT {
                return;
            }
            let taken = self.gathered.take(loaded.memory, run, None);
            if taken < run.len() {
                active.at += taken;
                return;
            }
            self.given = Some((index, until));
            self.advance();
            self.activate();
        }
    }

    /// The file whose turn it is, and up to where in its batch.
    fn turn(&self) -> Option<(usize, usize)> {
        let heads = self.active.iter().enumerate();
        let heads = heads.filter_map(|(index, one)| Some((one.head()?, one.rank, index)));
        let (mut first, mut second) = (None, None);
        for head in heads {
            if first.is_none_or(|first| head < first) {
                second = first.replace(head);
            } else if second.is_none_or(|second| head < second) {
                second = Some(head);
            }
        }
        let (_, rank, index) = first?;
        let active = self.active.get(index)?;
        let mut bound = second.map(|(time, rank, _)| (time, rank));
        if let Some(waiting) = self.waiting.last() {
            let waiting = (waiting.first, waiting.rank);
            bound = Some(bound.map_or(waiting, |bound| bound.min(waiting)));
        }
        let packets = active.source.loaded().packets;
        let rest = packets.get(active.at..).unwrap_or(&[]);
        let run = match bound {
            None => rest.len(),
            // At least one, so that this always moves on.
            Some(bound) => rest
                .iter()
                .position(|packet| (packet.time, rank) > bound)
                .unwrap_or(rest.len())
                .max(1),
        };
        Some((index, active.at + run))
    }
}

/// Counts packets that are given on.
fn count(ledger: &mut Ledger, packets: &[PacketDescriptor]) {
    ledger.take(packets.len() as u64, wire_bytes(packets));
}

/// Gives a source's new interfaces numbers here.
fn number(interfaces: &mut Vec<Interface>, active: &mut Active) {
    let theirs = active.source.interfaces();
    for interface in theirs.get(active.interfaces.len()..).unwrap_or(&[]) {
        // Rotated files all describe the same interface: found again, it keeps its number.
        let first = interfaces.iter().zip(&active.is_one);
        let same = first
            .into_iter()
            .position(|(one, is_one)| !is_one && one == interface);
        let index = same.unwrap_or(interfaces.len());
        if index == interfaces.len() {
            interfaces.push(interface.clone());
        }
        if let Some(is_one) = active.is_one.get_mut(index) {
            *is_one = true;
        }
        active
            .interfaces
            .push(u16::try_from(index).unwrap_or(u16::MAX));
    }
}

/// How many interfaces are compared when looking for one alike.
const MOST_ALIKE: usize = 256;

impl PacketSource for MultiSource {
    fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        let known = self.interfaces.len();
        self.advance();
        self.activate();
        if self.interfaces.len() > known {
            // Let the consumer ask for the interfaces before it sees their packets.
            return Ok(Some(Batch::new(&[], &[])));
        }
        let Some((index, until)) = self.turn() else {
            return if self.errors.is_empty() {
                Ok(None)
            } else {
                Err(self.errors.remove(0))
            };
        };
        let at = self.active.get(index).map_or(until, |active| active.at);
        if until - at < LENT && self.active.len() > 1 {
            self.gather();
            count(&mut self.ledger, self.gathered.packets());
            return Ok(Some(self.gathered.batch()));
        }
        self.given = Some((index, until));
        let Some(active) = self.active.get(index) else {
            return Ok(None);
        };
        let loaded = active.source.loaded();
        let packets = loaded.packets.get(at..until).unwrap_or(&[]);
        count(&mut self.ledger, packets);
        Ok(Some(Batch::new(loaded.memory, packets)))
    }

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn ledger(&mut self) -> Ledger {
        self.ledger.clone()
    }

    fn capture_lost(&self) -> u64 {
        let under_way = self
            .active
            .iter()
            .map(|active| active.source.capture_lost());
        under_way.fold(self.lost, u64::saturating_add)
    }

    fn notes(&self) -> Vec<String> {
        let under_way = self.active.iter().flat_map(|active| active.source.notes());
        self.notes.iter().cloned().chain(under_way).collect()
    }

    fn share(&mut self) -> Option<SharedMemory> {
        let Some((index, _)) = self.given else {
            return Some(self.gathered.share());
        };
        self.active.get_mut(index)?.source.share()
    }

    fn is_at_hand(&self) -> bool {
        let mut active = self.active.iter();
        active.all(|active| active.source.is_at_hand())
    }

    fn is_exhausted(&self) -> bool {
        let mut active = self.active.iter();
        self.gathered.is_exhausted() || active.any(|active| active.source.is_exhausted())
    }
}
