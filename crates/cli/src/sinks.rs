//! Where results go: standard output or a file, as table, JSON lines or CSV.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use flowgauge_record::{Format, Output, Schema};

use crate::failure::Failure;
use crate::options::OutputOptions;

/// The format asked for; otherwise a table on a terminal, JSON lines elsewhere.
pub(crate) fn format(options: &OutputOptions) -> Format {
    if options.json {
        Format::Json
    } else if options.csv {
        Format::Csv
    } else if options.table || (options.write.is_none() && io::stdout().is_terminal()) {
        Format::Table
    } else {
        Format::Json
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
        // The standard library's handle looks for line feeds in everything it writes.
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let stdout = stdout.map_err(|error| {
            Failure::run(format!("cannot write standard output: {error}"), None)
        })?;
        return Ok(Box::new(File::from(stdout)));
    };
    match File::create(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::opening(&flowgauge_capture::Error::Io {
            action: "create",
            path: path.to_owned(),
            source: error,
        })),
    }
}

fn terminal_width(options: &OutputOptions) -> Option<usize> {
    if options.write.is_some() || !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // Its height says nothing: it is 0 where only the width was set.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
