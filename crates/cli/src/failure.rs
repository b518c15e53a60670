//! Errors as users see them, and exit codes.

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use flowgauge_record::{OutputError, RecordWriter};
use flowgauge_stack::SettingError;

use crate::options::Cli;
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

    /// An option of a component that means nothing, as one of the command line.
    pub(crate) fn of_setting(error: SettingError) -> Failure {
        let option = error.option.unwrap_or_default().replace('_', "-");
        Failure::Usage {
            what: format!("--{option}: {}", error.message),
            hint: error.hint,
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
                "it is empty; the capturing program was probably stopped before it wrote a packet"
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
        OutputError::Io { source: io, .. } => {
            let hint = (io.kind() == std::io::ErrorKind::StorageFull)
                .then(|| "free space, or write elsewhere with -w FILE".to_owned());
            Some(Failure::run(format!("cannot write the output: {io}"), hint))
        }
        other => Some(Failure::run(other.to_string(), None)),
    }
}

/// Ends what is written by `writer`, and says whether everything arrived.
///
/// # Errors
/// When it did not, unless the reader merely went away.
pub(crate) fn of_writer(writer: &mut RecordWriter) -> Result<(), Failure> {
    let written = writer.finish();
    written.or_else(|error| of_output(error).map_or(Ok(()), Err))
}

/// What clap says, without its own advice: hints say it, and what it advises to pass as a value would be part of the
/// filter here. Where it suggests an option its usage line has that, as if it were required.
fn without_advice(message: &str, suggests: bool) -> String {
    let is_advice = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("tip: ")
            || line.starts_with("For more information, try ")
            || suggests && line.starts_with("Usage: ")
    };
    let lines: Vec<&str> = message.lines().filter(|line| !is_advice(line)).collect();
    // Of blank lines, which separate paragraphs, one is enough.
    let mut lines = lines.as_slice();
    let mut kept = String::with_capacity(message.len());
    while let Some((line, rest)) = lines.split_first() {
        let is_double = line.is_empty() && rest.first().is_none_or(|next| next.is_empty());
        if !is_double {
            kept.push_str(line);
            kept.push('\n');
        }
        lines = rest;
    }
    kept
}

/// The command in these arguments, and its name with the commands around it.
fn command_in(arguments: impl Iterator<Item = OsString>) -> (String, clap::Command) {
    let mut command = &Cli::built();
    let mut name = command.get_name().to_owned();
    for argument in arguments {
        let word = argument.to_str().filter(|it| *it != "help");
        let Some(within) = word.and_then(|it| command.find_subcommand(it)) else {
            break;
        };
        name = format!("{name} {}", within.get_name());
        command = within;
    }
    (name, command.clone())
}

/// The names nearest to one that is none, among those that there are. (What clap suggests is not the nearest.)
fn meant(error: &clap::Error, command: &clap::Command) -> Vec<String> {
    use clap::error::ErrorKind;
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (wrong, names): (&str, Vec<String>) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
            let names = commands.map(|it| it.get_name().to_owned());
            (text(ContextKind::InvalidSubcommand), names.collect())
        }
        ErrorKind::UnknownArgument => {
            let options = command.get_arguments().filter_map(|it| it.get_long());
            let names = options.map(|it| format!("--{it}"));
            (text(ContextKind::InvalidArg), names.collect())
        }
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(names)) => (text(ContextKind::InvalidValue), names.clone()),
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let near = say::near(wrong, names.iter().map(String::as_str));
    near.into_iter().map(str::to_owned).collect()
}

/// What to write for an option that another command or another program has.
fn hint_of_option(command: &str, option: &str) -> Option<&'static str> {
    match (command, option) {
        ("flowgauge packets", "-A" | "-x") => {
            Some("-X prints the bytes of each packet in hexadecimal and ASCII")
        }
        _ => None,
    }
}

/// What to do about arguments that are wrong.
fn hint_of_arguments(error: &clap::Error, command: &str, within: &clap::Command) -> String {
    use clap::error::ErrorKind;
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg).unwrap_or("it");
    // Without the name of its value.
    let option = option.split(' ').next().unwrap_or(option);
    if let Some(hint) = hint_of_option(command, option) {
        return hint.to_owned();
    }
    if command == "flowgauge locality"
        && error.kind() == ErrorKind::UnknownArgument
        && !option.starts_with('-')
    {
        return format!("name the program after --: {command} -- {option}");
    }
    let meant = meant(error, within).join(" or ");
    if !meant.is_empty() {
        return format!("did you mean {meant}? \"{command} --help\" lists the options");
    }
    match error.kind() {
        ErrorKind::ArgumentConflict => {
            format!("omit one of them; \"{command} --help\" explains both")
        }
        ErrorKind::MissingRequiredArgument => {
            format!("add the missing argument; \"{command} --help\" explains it")
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            format!("\"{command} --help\" explains the values of {option}")
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("use one of the commands: {command} COMMAND")
        }
        _ => format!("\"{command} --help\" lists its options and arguments"),
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
        _ => {
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = error.print();
            } else {
                let suggests = error.get(ContextKind::SuggestedArg).is_some();
                let text = without_advice(&error.render().to_string(), suggests);
                say::part(format_args!("flowgauge: {text}\n"));
            }
            let (name, command) = command_in(std::env::args_os().skip(1));
            say!("hint: {}", hint_of_arguments(error, &name, &command));
            ExitCode::from(EXIT_USAGE)
        }
    }
}
