//! What those who feed tables have in common: a clock, and a file of control rows.

use core::mem;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowgauge_sys::{files, interfaces};
use flowgauge_wire::Nanos;
use parking_lot::Mutex;

use crate::{LoadError, Probe, Ticks};

/// Nanoseconds of a tick of SNMP.
const NANOS_PER_TICK: u64 = 10_000_000;

/// The longest file of control rows that is read: more than the most rows take that there can be.
const MOST_BYTES: u64 = 64 << 20;

/// The clock of the tables: that of packets, which for files is another one than the machine's.
#[derive(Debug, Default)]
pub struct Clock {
    /// What is to be added to the machine's clock, in nanoseconds.
    ahead: AtomicI64,
}

impl Clock {
    /// The time.
    pub fn now(&self) -> Nanos {
        let machine = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let machine = u64::try_from(machine.as_nanos()).unwrap_or(u64::MAX);
        Nanos(machine.saturating_add_signed(self.ahead.load(Ordering::Relaxed)))
    }

    /// The time in hundredths of seconds.
    pub fn ticks(&self) -> Ticks {
        self.now().0 / NANOS_PER_TICK
    }

    /// It is `time` now, by the packets of a file.
    pub fn set(&self, time: Nanos) {
        let ahead = time.0.wrapping_sub(self.now().0).cast_signed();
        self.ahead.fetch_add(ahead, Ordering::Relaxed);
    }
}

/// Tells what interfaces have counted of errors so far.
pub fn note_errors(tables: &Mutex<Probe>) {
    let names: Vec<String> = tables.lock().names().map(str::to_owned).collect();
    for name in names {
        let errors = interfaces::errors_of(&name);
        let mut tables = tables.lock();
        if let Some(place) = tables.interface_of(&name) {
            tables.note_errors(place, errors);
        }
    }
}

/// Control rows in a file, which follows what managers set.
#[derive(Debug, Default)]
pub struct ControlFile {
    path: Option<PathBuf>,
    /// [`Probe::changes`] that it has.
    changes: u64,
    /// It is not written before.
    next: Option<Instant>,
    has_failed: bool,
}

/// Time between two attempts to write a file.
const RETRY: Duration = Duration::from_secs(10);

/// A file of control rows that cannot be used, or a row of it.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct BadFile {
    what: String,
    hint: String,
    waits: bool,
}

impl BadFile {
    pub(crate) fn new(what: String, hint: impl Into<String>) -> BadFile {
        BadFile {
            what,
            hint: hint.into(),
            waits: false,
        }
    }

    fn of(path: &Path, error: &LoadError) -> BadFile {
        let text = error.to_string();
        let (what, hint) = text
            .split_once("\nhint: ")
            .unwrap_or((&text, "docs/rmon.md says what a file of control rows holds"));
        BadFile {
            what: format!("{}: {what}", path.display()),
            hint: hint.to_owned(),
            waits: error.waits(),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Whether it is a row that names what is not there yet.
    pub fn waits(&self) -> bool {
        self.waits
    }
}

impl ControlFile {
    /// Puts the rows of the file, if one is named, in the place of those that a probe has of its own.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub fn load(path: Option<&Path>, probe: &mut Probe) -> Result<ControlFile, BadFile> {
        if let Some(path) = path {
            let text = text_of(path).map_err(|error| {
                let what = format!("cannot read {}: {error}", path.display());
                BadFile::new(what, "it is a file of control rows; an empty one will do")
            })?;
            let loaded = probe.load(&text);
            loaded.map_err(|error| BadFile::of(path, &error))?;
        }
        Ok(ControlFile {
            path: path.map(Path::to_owned),
            changes: probe.changes(),
            ..ControlFile::default()
        })
    }

    /// Why rows of the file are not active.
    pub fn untaken(&self, probe: &Probe) -> Vec<BadFile> {
        let path = self.path.iter();
        path.flat_map(|path| probe.untaken().map(|error| BadFile::of(path, error)))
            .collect()
    }

    /// Writes the file if managers have changed rows: for a tenth of the time at most, as there may be many. The tables are
    /// not locked meanwhile. Tells why it cannot be written, once until it can.
    pub fn keep(&mut self, tables: &Mutex<Probe>) -> Option<String> {
        let path = self.path.as_ref()?;
        let began = Instant::now();
        if self.next.is_some_and(|next| began < next) {
            return None;
        }
        let (changes, text) = {
            let probe = tables.lock();
            let changes = probe.changes();
            if changes == self.changes {
                return None;
            }
            (changes, probe.save())
        };
        let written = files::rewrite(path, text.as_bytes());
        let pause = match &written {
            Ok(()) => 9 * began.elapsed(),
            Err(_) => RETRY,
        };
        self.next = Some(Instant::now() + pause);
        let had_failed = mem::replace(&mut self.has_failed, written.is_err());
        let Err(error) = written else {
            self.changes = changes;
            return None;
        };
        let name = path.display();
        (!had_failed).then(|| {
            format!(
                "control rows are not kept in {name}: {error}\n\
                 hint: the user that the program becomes must be able to write its folder, and the disk needs room"
            )
        })
    }

    /// Writes the file a last time, where managers have changed rows. What cannot be written is lost: that is told again.
    pub fn finish(&mut self, tables: &Mutex<Probe>) -> Option<String> {
        (self.next, self.has_failed) = (None, false);
        self.keep(tables)
    }
}

fn text_of(path: &Path) -> io::Result<String> {
    let folder = files::named();
    if folder.has(path) && !folder.is_file(path) {
        let what = "not a regular file, and is rewritten when managers change rows";
        return Err(io::Error::other(what));
    }
    let bytes = folder.read(path, MOST_BYTES)?;
    let bytes = bytes.ok_or_else(|| io::Error::other("it is longer than 64 MiB"))?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
}
