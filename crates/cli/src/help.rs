//! `flowgauge completions` and `flowgauge man`: the command line for shells, and as manual pages.

use std::fs;
use std::io;

use clap::Command;
use clap_mangen::Man;

use crate::failure::Failure;
use crate::options::{Cli, CompletionsOptions, ManOptions};
use crate::say::instead_of;
use crate::stack::print;

/// Prints the completions of a shell.
///
/// # Errors
/// The output fails.
pub(crate) fn completions(options: &CompletionsOptions) -> Result<(), Failure> {
    let mut text = Vec::new();
    let mut command = Cli::built();
    clap_complete::generate(options.shell, &mut command, "flowgauge", &mut text);
    print(&text)
}

/// Prints the manual page of a command, or writes those of all.
///
/// # Errors
/// There is no such command, or the output fails.
pub(crate) fn man(options: &ManOptions) -> Result<(), Failure> {
    let built = Cli::built();
    if let Some(folder) = &options.all {
        let written = fs::create_dir_all(folder).and_then(|()| {
            pages(&built)
                .into_iter()
                .try_for_each(|(name, page)| fs::write(folder.join(name), page))
        });
        return written.map_err(|error| {
            Failure::usage(
                format!("cannot write to {}: {error}", folder.display()),
                "--all needs a folder, which is created if missing",
            )
        });
    }
    let mut command = &built;
    for name in &options.command {
        let names = || command.get_subcommands().map(Command::get_name);
        command = command.find_subcommand(name).ok_or_else(|| {
            Failure::usage(
                format!("unknown command \"{name}\""),
                instead_of(name, names(), "flowgauge --help lists the commands"),
            )
        })?;
    }
    let page = page(command).map_err(|error| Failure::run(error.to_string(), None))?;
    print(&page)
}

/// Each command's page and its file's name.
fn pages(command: &Command) -> Vec<(String, Vec<u8>)> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut all = Vec::new();
    all.extend(page(command).map(|page| (format!("{name}.1"), page)));
    let within = command.get_subcommands();
    for command in within.filter(|it| it.get_name() != "help" && !it.is_hide_set()) {
        all.extend(pages(command));
    }
    all
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let source = format!("flowgauge {}", env!("CARGO_PKG_VERSION"));
    // It leaves out the text of what the short help leaves out.
    let command = command.clone();
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    let man = Man::new(command).source(source).manual("Flowgauge");
    man.render(&mut page)?;
    Ok(page)
}
