//! `flowgauge stack`

mod admin;
mod agent;
mod bench;
pub(crate) mod execute;
mod list;
pub(crate) mod read;
mod run;
mod show;
pub(crate) mod svg;
pub(crate) mod watch;

use std::io::Write as _;

use flowgauge_stack::format;
use flowgauge_sys::files::rewrite;

pub(crate) use run::refuse_overwriting;

use crate::failure::Failure;
use crate::options::{FormatOptions, StackCommand, StackOptions};
use crate::say::say;
use crate::sinks;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StackOptions) -> Result<(), Failure> {
    match &options.command {
        StackCommand::List(options) => list::run(options),
        StackCommand::Check(options) => read::program(read::given(options)?).map(|_| ()),
        StackCommand::Fmt(options) => reformat(options),
        StackCommand::Show(options) => show::run(options),
        StackCommand::Run(options) => run::run(options),
        StackCommand::Bench(options) => bench::run(options),
        StackCommand::Agent(options) => agent::run(options),
        StackCommand::Admin(options) => admin::run(options),
    }
}

fn reformat(options: &FormatOptions) -> Result<(), Failure> {
    let text = read::given(&options.stack)?;
    let before = text.text.clone();
    let name = text.name.clone();
    let formatted = format(&read::document(text)?);
    if options.check {
        if formatted == before {
            return Ok(());
        }
        return Err(Failure::run(
            format!("{name} is not in standard layout"),
            Some("flowgauge stack fmt -i rewrites it".to_owned()),
        ));
    }
    if !options.in_place {
        return print(formatted.as_bytes());
    }
    if formatted == before {
        return Ok(());
    }
    let file = options.stack.file.as_deref();
    let Some(file) = file.filter(|file| file.as_os_str() != "-") else {
        return Err(Failure::usage(
            "standard input cannot be written back",
            "leave -i out",
        ));
    };
    rewrite(file, formatted.as_bytes()).map_err(|error| {
        Failure::run(
            format!("{name}: {error}"),
            Some("it is unchanged; without -i the text goes to standard output".to_owned()),
        )
    })?;
    say!("{name}: rewritten");
    Ok(())
}

/// Writes to standard output; a reader that went away is no failure.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut target = sinks::target(None)?;
    match target.write_all(bytes).and_then(|()| target.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::run(
            format!("cannot write standard output: {error}"),
            None,
        )),
        _ => Ok(()),
    }
}
