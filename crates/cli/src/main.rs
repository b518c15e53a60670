//! The `flowgauge` command: options, what to open, what to print. Everything else is in the rooms
//! below.
#![forbid(unsafe_code)]

#[allow(dead_code)] // the commands follow
mod failure;
#[allow(dead_code)]
mod options;

use std::process::ExitCode;

use clap::Parser;

use crate::options::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::of_arguments(&error),
    };
    match cli.command {
        _ => ExitCode::SUCCESS,
    }
}
