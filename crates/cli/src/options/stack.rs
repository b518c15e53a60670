//! `stack`

use core::ops::Deref;
use core::time::Duration;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use flowgauge_wire::Nanos;

use crate::failure::Failure;

use super::agent::{AdminCommand, AdminOptions, AgentOptions, IdentityOptions};
use super::shared::{CommonOptions, DestinationOptions, InputOptions, OutputOptions};
use super::values::{parse_duration, parse_positive};

/// `stack`
#[derive(Args, Debug)]
pub(crate) struct StackOptions {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: StackCommand,
}

/// What can be done with stacks.
#[derive(Debug, Subcommand)]
pub(crate) enum StackCommand {
    /// List the components that stacks are made of
    List(ListOptions),
    /// Check a stack without running it
    Check(PlacedStack),
    /// Format a stack in the standard layout
    Fmt(FormatOptions),
    /// Show the components of a stack and their connections
    Show(ShowOptions),
    /// Run a stack on files or interfaces (SIGHUP reloads its file)
    Run(Box<RunOptions>),
    /// Measure what a stack costs per packet, component by component
    Bench(BenchOptions),
    /// Run stacks for authorised users on other machines
    Agent(AgentOptions),
    /// Start, watch, configure and stop stacks of an agent on another machine
    Admin(AdminOptions),
}

/// `stack list`
#[derive(Args, Debug)]
pub(crate) struct ListOptions {
    /// Document this component; with --json as an object [default: one line for each]
    #[arg(value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    #[command(flatten)]
    pub(crate) output: DestinationOptions,
}

/// A stack in a file, or on the command line.
#[derive(Args, Debug)]
pub(crate) struct GivenStack {
    /// The stack's file; "-" is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// A stack given here instead of in a file: 'tcpscan - count'
    #[arg(
        short = 'e',
        long = "expression",
        value_name = "STACK",
        conflicts_with = "file"
    )]
    pub(crate) expression: Option<String>,
}

impl GivenStack {
    /// There is none.
    pub(crate) fn missing() -> Failure {
        Failure::usage("no stack given", "use -f FILE, or -e 'tcpscan - count'")
    }
}

/// A stack whose file may be named without -f, too.
#[derive(Args, Debug)]
pub(crate) struct PlacedStack {
    /// The stack's file, unless -f or -e gives the stack
    #[arg(value_name = "FILE")]
    word: Option<PathBuf>,
    #[command(flatten)]
    given: GivenStack,
}

impl PlacedStack {
    /// Finds out what the first word is: the stack's file, or one of those that follow.
    pub(super) fn settle(&mut self, rest: Option<&mut Vec<OsString>>) -> Result<(), Failure> {
        let is_given = self.given.file.is_some() || self.given.expression.is_some();
        match (self.word.take(), is_given, rest) {
            (None, true, _) => Ok(()),
            (None, false, _) => Err(GivenStack::missing()),
            (file, false, _) => {
                self.given.file = file;
                Ok(())
            }
            (Some(word), true, Some(rest)) => {
                rest.insert(0, word.into_os_string());
                Ok(())
            }
            (Some(word), true, None) => Err(Failure::usage(
                format!("{}: a stack was already given", word.display()),
                "use either this or -f or -e",
            )),
        }
    }
}

impl Deref for PlacedStack {
    type Target = GivenStack;

    fn deref(&self) -> &GivenStack {
        &self.given
    }
}

impl StackCommand {
    /// Finds out which words are stacks.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        match self {
            StackCommand::Check(stack) => stack.settle(None),
            StackCommand::Fmt(options) => options.stack.settle(None),
            StackCommand::Show(options) => options.stack.settle(Some(&mut options.input.rest)),
            StackCommand::Run(options) => options.stack.settle(Some(&mut options.input.rest)),
            StackCommand::Bench(options) => options.stack.settle(None),
            StackCommand::Admin(options) => match &mut options.command {
                AdminCommand::Start(options) | AdminCommand::Configure(options) => {
                    options.stack.settle(None)
                }
                _ => Ok(()),
            },
            StackCommand::List(_) | StackCommand::Agent(_) => Ok(()),
        }
    }
}

/// `stack fmt`
#[derive(Args, Debug)]
pub(crate) struct FormatOptions {
    #[command(flatten)]
    pub(crate) stack: PlacedStack,
    /// Write back to the file instead of to standard output
    #[arg(short = 'i', long, conflicts_with = "expression")]
    pub(crate) in_place: bool,
    /// Only check: exit code 1 if the layout differs
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) check: bool,
}

/// `stack show`
#[derive(Args, Debug)]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    pub(crate) stack: PlacedStack,
    /// Write a graph for Graphviz (dot -Tsvg)
    #[arg(long, conflicts_with_all = ["read", "interface", "watch"])]
    pub(crate) dot: bool,
    /// Write a picture
    #[arg(long, conflicts_with_all = ["dot", "read", "interface", "watch"])]
    pub(crate) svg: bool,
    #[command(flatten)]
    pub(crate) watch: WatchOption,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// How often is said what runs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchOption {
    /// Print component counters and results at this interval, on standard error (`stack show`: in the graph)
    /// [default: 1s]
    #[arg(
        id = "watch",
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = parse_duration
    )]
    every: Option<Nanos>,
}

impl WatchOption {
    /// How often, if at all.
    pub(crate) fn every(self) -> Option<Duration> {
        self.every.map(|every| Duration::from_nanos(every.0))
    }
}

/// `stack bench`
#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) stack: PlacedStack,
    /// Read packets from files, into memory first
    #[arg(short = 'r', long = "read", value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) read: Vec<PathBuf>,
    /// Runs of each component
    #[arg(long, value_name = "TIMES", default_value_t = 5, allow_negative_numbers = true, value_parser = parse_positive::<usize>)]
    pub(crate) repeat: usize,
    /// Packets in a batch
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    #[command(flatten)]
    pub(crate) output: DestinationOptions,
}

/// `stack run`
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) stack: PlacedStack,
    #[command(flatten)]
    pub(crate) watch: WatchOption,
    /// Confine all files, named on the command line and in the stack, to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Of components that send or receive and name no keys of their own.
    #[command(flatten, next_help_heading = "Links")]
    pub(crate) identity: IdentityOptions,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
