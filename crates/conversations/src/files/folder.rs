//! The folder that files are written into.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use flowgauge_record::words::count;
use flowgauge_stack::{Failure, LastWord, RunEnd, WriteLast};
use flowgauge_sys::files::{self, How};
use flowgauge_sys::notice;

/// Names that are tried where others have the one that was wanted.
const TRIES: u32 = 1000;
/// Bytes collected before they are written.
const BUFFER: usize = 16 << 10;

/// What ended a file early, where that was the disk.
pub(super) const DISK: &str = "disk";
/// How long nothing is written when the disk refused something.
const PAUSE: Duration = Duration::from_secs(10);

/// Where files go, and how much may go there.
pub(super) struct Folder {
    path: PathBuf,
    /// Files are made in what was opened, whatever becomes of its name.
    opened: Option<files::Folder>,
    file_limit: u64,
    common: Arc<Common>,
    /// When writing is tried again.
    again: Option<Instant>,
}

/// A file that is written.
pub(super) struct Stored {
    name: String,
    file: BufWriter<File>,
    /// Bytes that may still follow.
    room: u64,
    written: u64,
    common: Arc<Common>,
    /// What it is cut off by.
    cut: Option<&'static str>,
    error: Option<io::Error>,
}

/// A file that was written.
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) cut: Option<&'static str>,
}

/// What all components that write into a folder have in common.
struct Common {
    /// Bytes that may still be written.
    left: AtomicU64,
    /// Files that the disk did not take, or not to their end.
    lost: AtomicU64,
    /// Why it did not take the first of them.
    failure: Mutex<Option<Failure>>,
}

impl WriteLast for Common {
    fn write(&self, _: &RunEnd<'_>) -> Result<(), Failure> {
        let first = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = first.as_ref() else {
            return Ok(());
        };
        let lost = count(self.lost.load(Ordering::Relaxed), "file").were();
        Err(Failure {
            message: format!("{lost} not extracted, or not to the end: {}", first.message),
            hint: first.hint.clone(),
        })
    }
}

fn common(path: &Path, limit: u64) -> Arc<Common> {
    static ALL: Mutex<Vec<(PathBuf, Weak<Common>)>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, common)| common.strong_count() > 0);
    let known = all.iter().find(|(other, _)| other == path);
    if let Some(common) = known.and_then(|(_, common)| common.upgrade()) {
        return common;
    }
    let common = Arc::new(Common {
        left: AtomicU64::new(limit),
        lost: AtomicU64::new(0),
        failure: Mutex::new(None),
    });
    all.push((path.to_owned(), Arc::downgrade(&common)));
    common
}

impl Folder {
    pub(super) fn new(path: &Path, file_limit: u64, all_limit: u64) -> Folder {
        Folder {
            path: path.to_owned(),
            opened: None,
            file_limit,
            common: common(path, all_limit),
            again: None,
        }
    }

    /// Makes and opens it.
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        let failure = |what: &str, error: io::Error| Failure {
            message: format!("cannot {what} the folder {}: {error}", self.path.display()),
            hint: Some("name a folder that can be written to".to_owned()),
        };
        match files::named().make_folder(&self.path, 0o777) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failure("make", error));
            }
            _ => {}
        }
        let opened = files::named().folder(&self.path);
        self.opened = Some(opened.map_err(|error| failure("open", error))?);
        Ok(())
    }

    /// What says at the end of a run which files could not be written.
    pub(super) fn last_word(&self) -> LastWord {
        let common = Arc::clone(&self.common);
        LastWord(common)
    }

    /// The option that lets nothing be written any more, if one does.
    pub(super) fn full(&self) -> Option<&'static str> {
        match (self.file_limit, self.common.left.load(Ordering::Relaxed)) {
            (0, _) => Some("file_limit"),
            (_, 0) => Some("extract_limit"),
            _ => None,
        }
    }

    /// A new file of this name, or with a number behind it where there is one. None: it cannot be made, which is counted.
    pub(super) fn create(&mut self, name: &str) -> Option<Stored> {
        let created = match (&self.opened, self.again) {
            (Some(_), Some(again)) if Instant::now() < again => None,
            (Some(folder), _) => match self.make(folder, name) {
                Ok(stored) => Some(stored),
                Err(error) => {
                    self.fail(name, &error);
                    None
                }
            },
            (None, _) => None,
        };
        if created.is_none() {
            self.common.lost.fetch_add(1, Ordering::Relaxed);
        }
        created
    }

    fn make(&self, folder: &files::Folder, name: &str) -> io::Result<Stored> {
        // Nobody can have laid a link there: the file is new.
        let how = How::new_file().without_link().mode(0o640);
        let mut own = name.to_owned();
        for number in 2..TRIES + 2 {
            match folder.open(Path::new(&own), how) {
                Ok(file) => {
                    return Ok(Stored {
                        name: own,
                        file: BufWriter::with_capacity(BUFFER, file),
                        room: self.file_limit,
                        written: 0,
                        common: Arc::clone(&self.common),
                        cut: None,
                        error: None,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    own = format!("{name}-{number}");
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Nothing is written for a while. The first time that is told.
    fn fail(&mut self, name: &str, error: &io::Error) {
        self.again = Some(Instant::now() + PAUSE);
        let first = self.common.failure.lock();
        let mut first = first.unwrap_or_else(PoisonError::into_inner);
        if first.is_some() {
            return;
        }
        let message = format!("cannot write {}: {error}", self.path.join(name).display());
        notice::tell(format_args!(
            "{message}; files are counted instead, and tried again every {} s",
            PAUSE.as_secs()
        ));
        *first = Some(Failure {
            message,
            hint: (error.kind() == io::ErrorKind::StorageFull)
                .then(|| "free space, or write fewer: extract_limit, file_limit".to_owned()),
        });
    }

    /// A file is over. Returns its name, how many bytes it has, and what cut it off.
    pub(super) fn close(&mut self, mut stored: Stored) -> Kept {
        let flushed = stored.file.flush();
        let mut kept = Kept {
            name: stored.name,
            bytes: stored.written,
            cut: stored.cut,
        };
        if let Some(error) = stored.error.or(flushed.err()) {
            self.fail(&kept.name, &error);
            self.common.lost.fetch_add(1, Ordering::Relaxed);
            // What is there, not what was meant to be.
            let there = stored.file.get_ref().metadata();
            kept.bytes = there.map_or(0, |there| there.len());
            kept.cut = Some(DISK);
        }
        kept
    }
}

impl Stored {
    /// How many of so many bytes may be written.
    fn reserve(&mut self, bytes: u64) -> u64 {
        let wanted = bytes.min(self.room);
        let left = &self.common.left;
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(wanted))
        });
        let granted = wanted.min(before.unwrap_or(0));
        if granted < bytes {
            let is_own = bytes > self.room;
            self.cut = Some(if is_own {
                "file_limit"
            } else {
                "extract_limit"
            });
        }
        // Behind a cut nothing follows.
        self.room = if granted < bytes {
            0
        } else {
            self.room - granted
        };
        self.written += granted;
        granted
    }

    /// Whether nothing more can be written: what comes then is cut off.
    fn is_over(&mut self) -> bool {
        if self.room == 0 {
            self.cut.get_or_insert("file_limit");
        }
        self.room == 0 || self.error.is_some()
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        let granted = self.reserve(bytes.len() as u64);
        let bytes = bytes.get(..granted as usize).unwrap_or_default();
        self.error = self.file.write_all(bytes).err();
    }

    /// Zeros stand for what is missing.
    pub(super) fn gap(&mut self, bytes: u64) {
        if self.is_over() {
            return;
        }
        let granted = self.reserve(bytes);
        let moved = self.file.seek(SeekFrom::Current(granted as i64));
        let grown = moved.and_then(|at| self.file.get_ref().set_len(at));
        self.error = grown.err();
    }
}
