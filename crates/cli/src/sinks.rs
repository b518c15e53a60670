//! Where results go: standard output or a file, as table, JSON lines or CSV.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use flowgauge_record::{Format, Output, Schema, WholeWrites};
use flowgauge_sys::files::{self, How};
use flowgauge_sys::process;

use crate::failure::Failure;
use crate::options::OutputOptions;

/// The format asked for, by option or by the ending of the file's name; otherwise a table on a
/// terminal, JSON lines elsewhere.
pub(crate) fn format(options: &OutputOptions) -> Format {
    if let Some(format) = given_format(options) {
        format
    } else if options.write.is_none() && io::stdout().is_terminal() {
        Format::Table
    } else {
        Format::Json
    }
}

/// The format asked for, by option or by the ending of the file's name.
pub(crate) fn given_format(options: &OutputOptions) -> Option<Format> {
    by_option(options).or_else(|| by_name(options.write.as_deref()))
}

/// Refuses a file whose name says another format than the options.
///
/// # Errors
/// For `--json -w x.csv` and the like.
pub(crate) fn refuse_contradiction(options: &OutputOptions) -> Result<(), Failure> {
    let (Some(wanted), Some(named)) = (by_option(options), by_name(options.write.as_deref()))
    else {
        return Ok(());
    };
    if wanted == named || (wanted, named) == (Format::SafeCsv, Format::Csv) {
        return Ok(());
    }
    Err(contradiction(options.write.as_deref()))
}

/// The file's name says another format than the options.
pub(crate) fn contradiction(path: Option<&Path>) -> Failure {
    let name = path.unwrap_or(Path::new("")).display();
    Failure::usage(
        format!("the name {name} and the format asked for contradict each other"),
        "a name ending with .csv or .json is written in that format without any option",
    )
}

fn by_option(options: &OutputOptions) -> Option<Format> {
    if options.json {
        Some(Format::Json)
    } else if options.csv {
        Some(Format::Csv)
    } else if options.csv_safe {
        Some(Format::SafeCsv)
    } else if options.table {
        Some(Format::Table)
    } else {
        None
    }
}

/// The format that the ending of a file's name says.
pub(crate) fn by_name(path: Option<&Path>) -> Option<Format> {
    let ending = path?.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "csv" => Some(Format::Csv),
        "json" | "jsonl" | "ndjson" => Some(Format::Json),
        _ => None,
    }
}

/// Opens what `options` ask for.
///
/// # Errors
/// When the file cannot be created.
pub(crate) fn open(options: &OutputOptions, schema: Schema) -> Result<Output, Failure> {
    let format = format(options);
    let target = target(options.write.as_deref())?;
    Ok(Output::new(target, format, schema, terminal_width(options)))
}

/// Opens a file, or standard output for `None` and `-`, without a buffer of its own.
///
/// # Errors
/// When the file cannot be created.
pub(crate) fn target(path: Option<&Path>) -> Result<Box<dyn Write + Send>, Failure> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        check_stdout()?;
        // The standard library's handle looks for line feeds in everything it writes.
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let stdout = stdout.map_err(|error| {
            Failure::run(format!("cannot write standard output: {error}"), None)
        })?;
        return Ok(Box::new(File::from(stdout)));
    };
    let file = files::named().open(path, How::replace());
    let file = file.map_err(flowgauge_capture::Error::io("create", path));
    let file = file.map_err(|error| Failure::opening(&error))?;
    Ok(Box::new(WholeWrites::new(file)))
}

/// Refuses to write to a standard output that is none.
///
/// # Errors
/// When it was closed by whoever started the program.
pub(crate) fn check_stdout() -> Result<(), Failure> {
    if !process::standard_output_was_closed() {
        return Ok(());
    }
    let hint = "the shell's >&- closes it; > /dev/null or -w FILE takes what is written";
    Err(Failure::run(
        "cannot write standard output: it is closed",
        Some(hint.to_owned()),
    ))
}

fn terminal_width(options: &OutputOptions) -> Option<usize> {
    if options.write.is_some() || !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // Its height says nothing: it is 0 where only the width was set.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
