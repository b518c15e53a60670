//! Errors as users see them, and exit codes.

use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use flowgauge_record::{OutputError, RecordWriter};

use crate::say::{self, say};
use crate::sinks;

/// Something failed while running: a damaged capture, a full disk.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command could not start: bad usage, filter, file or interface.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Packets were dropped and `--fail-on-drop` was given.
pub(crate) const EXIT_DROPPED: u8 = 3;

/// Why a command ends with something other than success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Could not start; exit code 2.
    Usage {
        /// What and where.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Failed on the way; exit code 1. What was processed until then was printed.
    Run {
        /// What and where.
        what: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// `--fail-on-drop`; exit code 3.
    Dropped {
        /// Packets wanted but lost.
        packets: u64,
    },
}

impl Failure {
    /// A failure to start.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage {
            what: what.into(),
            hint: Some(hint.into()),
        }
    }

    /// A failure on the way.
    pub(crate) fn run(what: impl Into<String>, hint: Option<String>) -> Failure {
        Failure::Run {
            what: what.into(),
            hint,
        }
    }

    /// A source, sink or filter that could not be opened.
    pub(crate) fn opening(error: &flowgauge_capture::Error) -> Failure {
        let hint = match error {
            // A signal came first.
            flowgauge_capture::Error::Io { source, .. }
                if source.kind() == ErrorKind::Interrupted =>
            {
                return Failure::running(error);
            }
            // Its header is not even whole.
            flowgauge_capture::Error::Damaged { .. } => Some(
                "nothing of it could be read; the capturing program was probably stopped before \
                 it wrote a packet"
                    .to_owned(),
            ),
            _ => error.hint(),
        };
        Failure::Usage {
            what: error.to_string(),
            hint,
        }
    }

    /// A source or sink that failed while it was used.
    pub(crate) fn running(error: &flowgauge_capture::Error) -> Failure {
        Failure::Run {
            what: error.to_string(),
            hint: error.hint(),
        }
    }

    /// The error and its hint, for another program to print.
    pub(crate) fn in_one_line(&self) -> String {
        match self {
            Failure::Usage {
                hint: Some(hint), ..
            }
            | Failure::Run {
                hint: Some(hint), ..
            } => {
                format!("{self}; hint: {hint}")
            }
            _ => self.to_string(),
        }
    }

    /// Prints the error and its hint on standard error and says how to exit.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Failure::Usage { hint, .. } | Failure::Run { hint, .. } => {
                say!("flowgauge: error: {self}");
                if let Some(hint) = hint {
                    say!("hint: {hint}");
                }
            }
            Failure::Dropped { .. } => say!("flowgauge: error: {self}"),
        }
        ExitCode::from(match self {
            Failure::Usage { .. } => EXIT_USAGE,
            Failure::Run { .. } => EXIT_FAILED,
            Failure::Dropped { .. } => EXIT_DROPPED,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage { what, .. } | Failure::Run { what, .. } => f.write_str(what),
            Failure::Dropped { packets } => {
                let were = say::count(*packets, "packet").were();
                write!(f, "{were} dropped (--fail-on-drop)")
            }
        }
    }
}

/// The failure behind an error of the output; `None` when its reader merely went away.
pub(crate) fn of_output(error: OutputError) -> Option<Failure> {
    match error {
        OutputError::Closed => None,
        OutputError::Io(io) => {
            let hint = (io.kind() == std::io::ErrorKind::StorageFull)
                .then(|| "free space, or write elsewhere with -w FILE".to_owned());
            Some(Failure::run(format!("cannot write the output: {io}"), hint))
        }
        other => Some(Failure::run(other.to_string(), None)),
    }
}

/// Whether everything that was written to `writer` arrived.
///
/// # Errors
/// When it did not, unless the reader merely went away.
pub(crate) fn of_writer(writer: &mut RecordWriter) -> Result<(), Failure> {
    match writer.check() {
        Ok(()) => Ok(()),
        Err(error) => of_output(error).map_or(Ok(()), Err),
    }
}

/// Leaves out the advice to pass what looks like an option as a value: here that would make it part
/// of the filter.
fn without_tips(message: &str) -> String {
    let mut kept = String::with_capacity(message.len());
    let mut lines = message.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("tip: to pass '") {
            kept.push_str(line);
        } else if kept.ends_with("\n\n") && lines.peek().is_some_and(|next| next.trim().is_empty())
        {
            lines.next();
        }
    }
    kept
}

/// What to write for an option of tcpdump that `packets` has otherwise.
fn tcpdump_hint(text: &str) -> Option<&'static str> {
    if !text.contains("Usage: flowgauge packets") {
        return None;
    }
    let (_, rest) = text.split_once("unexpected argument '")?;
    match rest.split_once('\'')?.0 {
        "-A" | "-x" => Some("-X prints the bytes of each packet in hexadecimal and ASCII"),
        "-t" => {
            Some("lines always begin with the time; --json and --csv have it as a field of its own")
        }
        _ => None,
    }
}

/// Prints what is wrong with the arguments (or the help that was asked for).
pub(crate) fn of_arguments(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            if let Err(failure) = sinks::check_stdout() {
                return failure.report();
            }
            match error.print().map_err(|error| of_output(error.into())) {
                Err(Some(failure)) => failure.report(),
                // A closed pipe (`flowgauge --help | head`) is no failure.
                _ => ExitCode::SUCCESS,
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(EXIT_USAGE)
        }
        _ => {
            let text = without_tips(&error.render().to_string());
            say::part(format_args!("flowgauge: {text}"));
            if let Some(hint) = tcpdump_hint(&text) {
                say!("hint: {hint}");
            }
            ExitCode::from(EXIT_USAGE)
        }
    }
}
