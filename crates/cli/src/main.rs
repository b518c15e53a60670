//! The `flowgauge` command: options, what to open, what to print. Everything else is in the rooms
//! below.
#![forbid(unsafe_code)]

mod anonymize;
mod capture;
mod confinement;
mod control;
mod copy;
mod credential;
mod doctor;
mod element;
mod engine;
mod failure;
mod fields;
mod flows;
mod generate;
mod help;
mod input;
mod keys;
mod locality;
mod log;
mod loss;
mod matches;
mod memory;
mod offload;
mod options;
mod packet_contents;
mod packet_line;
mod packets;
mod page;
mod preset;
mod progress;
mod replay;
mod report;
mod rmon;
mod say;
mod sensor;
mod sensor_agent;
mod sinks;
mod stack;
mod streams;
mod summary;
mod testing;
mod top;

use std::process::ExitCode;

use clap::Parser;
use flowgauge_link::KeyFolder;
use flowgauge_sys::{privileges, process};

use crate::failure::Failure;
use crate::options::{Cli, Command};
use crate::say::say;

/// What Rust's library says before it has no place in it.
const NO_MEMORY: &str = "\
flowgauge: error: out of memory (ulimit -v, or the limit of a container)
hint: --memory bounds what grows with the input, -B the kernel's rings; or allow the process more
";

fn main() -> ExitCode {
    flowgauge_link::tell_notices(|line| say!("flowgauge: {line}"));
    process::allow_file_limits();
    process::explain_abort(NO_MEMORY, i32::from(failure::EXIT_FAILED));
    let mut cli = match Cli::try_parse_from(options::words(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return failure::of_arguments(&error),
    };
    let settled = testing::obey().and_then(|()| cli.command.settle());
    match settled.and_then(|()| run(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    if let Some(identity) = command.identity() {
        KeyFolder::choose(identity.keys.clone(), identity.identity.clone());
    }
    if let Some(folder) = command.folder() {
        confinement::of_process(folder)?;
    }
    if let Some((input, output)) = command.input_and_output() {
        // While there is one thread: those that give up root later have to gain nothing either.
        if privileges::is_root() {
            privileges::gain_no_more()
                .map_err(|error| Failure::run(format!("cannot drop privileges: {error}"), None))?;
        }
        if let Some(output) = output {
            input::refuse_overwriting(input, output)?;
        }
    }
    if let Some(output) = command.output() {
        sinks::check_name(output)?;
    }
    if command.writes_standard_output() {
        sinks::check_stdout()?;
    }
    match command {
        Command::Flows(options) => flows::run(options),
        Command::Streams(options) => streams::run(options),
        Command::Packets(options) => packets::run(options),
        Command::Generate(options) => generate::run(options),
        Command::Replay(options) => replay::run(options),
        Command::Match(options) => matches::run(options),
        Command::Log(options) => log::run(options),
        Command::Loss(options) => loss::run(options),
        Command::Report(options) => report::run(options),
        Command::Top(options) => top::run(options),
        Command::Capture(options) => capture::run(options),
        Command::Anonymize(options) => anonymize::run(options),
        Command::Stack(options) => stack::run(options),
        Command::Sensor(options) => sensor::run(options),
        Command::SensorAgent(options) => sensor_agent::run(options),
        Command::Element(options) => element::run(options),
        Command::Mapi(options) => sensor::mapi(options),
        Command::Rmon(options) => rmon::run(options),
        Command::Locality(options) => locality::run(options),
        Command::Keys(options) => keys::run(options),
        Command::Credential(options) => credential::run(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Fields(options) => fields::run(options),
        Command::Completions(options) => help::completions(options),
        Command::Man(options) => help::man(options),
    }
}
