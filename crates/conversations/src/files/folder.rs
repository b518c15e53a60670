//! The folder that files are written into.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flowgauge_stack::Failure;
use flowgauge_sys::files::{self, How};

/// Names that are tried where others have the one that was wanted.
const TRIES: u32 = 1000;
/// Bytes collected before they are written.
const BUFFER: usize = 16 << 10;

/// Where files go, and how much may go there.
pub(super) struct Folder {
    path: PathBuf,
    /// Files are made in what was opened, whatever becomes of its name.
    opened: Option<files::Folder>,
    file_limit: u64,
    /// Bytes that may still be written, by all cores together.
    left: Arc<AtomicU64>,
    /// Nothing can be written any more.
    is_broken: bool,
}

/// A file that is written.
pub(super) struct Stored {
    name: String,
    file: BufWriter<File>,
    /// Bytes that may still follow.
    room: u64,
    written: u64,
    left: Arc<AtomicU64>,
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

/// What is left for a folder, for all components that write into it.
fn left(path: &Path, limit: u64) -> Arc<AtomicU64> {
    static ALL: Mutex<Vec<(PathBuf, Weak<AtomicU64>)>> = Mutex::new(Vec::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, left)| left.strong_count() > 0);
    let known = all.iter().find(|(other, _)| other == path);
    if let Some(left) = known.and_then(|(_, left)| left.upgrade()) {
        return left;
    }
    let left = Arc::new(AtomicU64::new(limit));
    all.push((path.to_owned(), Arc::downgrade(&left)));
    left
}

impl Folder {
    pub(super) fn new(path: &Path, file_limit: u64, all_limit: u64) -> Folder {
        Folder {
            path: path.to_owned(),
            opened: None,
            file_limit,
            left: left(path, all_limit),
            is_broken: false,
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

    /// The option that lets nothing be written any more, if one does.
    pub(super) fn full(&self) -> Option<&'static str> {
        match (self.file_limit, self.left.load(Ordering::Relaxed)) {
            (0, _) => Some("file_limit"),
            (_, 0) => Some("extract_limit"),
            _ => None,
        }
    }

    /// A new file of this name, or with a number behind it where there is one. None: nothing may be written
    /// any more.
    pub(super) fn create(&mut self, name: &str, failure: &mut Option<Failure>) -> Option<Stored> {
        let folder = self.opened.as_ref()?;
        if self.is_broken || self.full().is_some() {
            return None;
        }
        // Nobody can have laid a link there: the file is new.
        let how = How::new_file().without_link().mode(0o640);
        let mut own = name.to_owned();
        for number in 2..TRIES + 2 {
            match folder.open(Path::new(&own), how) {
                Ok(file) => {
                    return Some(Stored {
                        name: own,
                        file: BufWriter::with_capacity(BUFFER, file),
                        room: self.file_limit,
                        written: 0,
                        left: Arc::clone(&self.left),
                        cut: None,
                        error: None,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    own = format!("{name}-{number}")
                }
                Err(error) => {
                    self.fail(&own, &error, failure);
                    return None;
                }
            }
        }
        None
    }

    fn fail(&mut self, name: &str, error: &io::Error, failure: &mut Option<Failure>) {
        self.is_broken = true;
        failure.get_or_insert(Failure {
            message: format!("cannot write {}: {error}", self.path.join(name).display()),
            hint: (error.kind() == io::ErrorKind::StorageFull)
                .then(|| "free space, or write fewer: extract_limit, file_limit".to_owned()),
        });
    }

    /// A file is over. Returns its name, how many bytes it has, and what cut it off.
    pub(super) fn close(&mut self, mut stored: Stored, failure: &mut Option<Failure>) -> Kept {
        let flushed = stored.file.flush();
        if let Some(error) = stored.error.or(flushed.err()) {
            self.fail(&stored.name, &error, failure);
        }
        Kept {
            name: stored.name,
            bytes: stored.written,
            cut: stored.cut,
        }
    }
}

impl Stored {
    /// How many of so many bytes may be written.
    fn reserve(&mut self, bytes: u64) -> u64 {
        let wanted = bytes.min(self.room);
        let left = &self.left;
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
