//! Components that write: why they stop, and items lost because writing is too slow.

use std::io;
use std::path::Path;

use flowgauge_capture::Error;
use flowgauge_record::{OutputError, WriterThread};
use flowgauge_stack::{Account, Counted, Failure, Outlet};

/// Why a component stops writing.
pub enum Stop {
    /// The reader has gone.
    NotWanted,
    /// It failed.
    Failed(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match &error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Stop::NotWanted
            }
            _ => Stop::Failed(Failure::of(&error, error.hint())),
        }
    }
}

impl Stop {
    /// An error of a file other than a capture.
    pub fn with(path: &str, error: &io::Error) -> Stop {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::NotWanted,
            _ => Stop::Failed(cannot_write(path, error)),
        }
    }

    /// Writing to a path failed.
    pub fn of_writer(path: &str, error: OutputError) -> Stop {
        match error {
            OutputError::Closed => Stop::NotWanted,
            OutputError::Io { name, source } => {
                Stop::with(name.as_deref().unwrap_or(path), &source)
            }
            error => Stop::Failed(Failure::new(format!("{path}: {error}"))),
        }
    }
}

/// Ends the stack if there is a reason to stop.
pub fn stop(result: Result<(), Stop>, out: &mut dyn Outlet) {
    match result {
        Ok(()) => {}
        Err(Stop::NotWanted) => out.end(),
        Err(Stop::Failed(failure)) => out.fail(failure),
    }
}

/// Whether a component can start, given the result of an attempt. A lost reader is detected later.
///
/// # Errors
/// The reason why it cannot.
pub fn begun<T>(tried: Result<T, Stop>) -> Result<(), Failure> {
    match tried {
        Err(Stop::Failed(failure)) => Err(failure),
        _ => Ok(()),
    }
}

/// Why a component that writes a file cannot go on.
fn cannot_write(path: &str, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull => Some("free space, or write elsewhere"),
        io::ErrorKind::FileTooLarge => {
            Some("a file may not be larger here (ulimit -f): raise that")
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Some("check the path"),
        io::ErrorKind::IsADirectory => Some("name a file in it"),
        _ => None,
    };
    Failure {
        message: match path {
            "-" => format!("cannot write the output: {error}"),
            path => format!("cannot write {path}: {error}"),
        },
        hint: hint.map(str::to_owned),
    }
}

/// The number of items lost because writing to a path is slower than the live capture.
pub fn lost(thread: Option<&WriterThread>, thing: &'static str, path: &Path) -> Option<Counted> {
    let count = thread.map_or(0, WriterThread::lost);
    (count > 0).then(|| Counted {
        count,
        thing,
        what: match path.to_str() {
            Some("-") => {
                "lost: the reader of standard output is slower than the capture".to_owned()
            }
            _ => format!(
                "lost: writing {} is slower than the capture",
                path.display()
            ),
        },
    })
}

/// The same as the account of a component.
pub fn account(
    thread: Option<&WriterThread>,
    thing: &'static str,
    path: &str,
) -> Option<Box<Account>> {
    let lost = lost(thread, thing, Path::new(path))?;
    Some(Box::new(Account {
        counted: vec![lost],
        ..Account::default()
    }))
}
