//! `stack`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::agent::{AdminOptions, AgentOptions};
use super::shared::{CommonOptions, InputOptions, OutputOptions};
use super::values::parse_positive;

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
    Check(FileOptions),
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
    /// Document this component [default: one line for each]
    #[arg(value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Write JSON, one object per component
    #[arg(long)]
    pub(crate) json: bool,
}

/// A stack in a file, or on the command line.
#[derive(Args, Debug)]
pub(crate) struct GivenStack {
    /// The stack's file; "-" is standard input
    #[arg(
        short = 'f',
        long = "file",
        value_name = "FILE",
        required_unless_present = "expression"
    )]
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

/// `stack check`
#[derive(Args, Debug)]
pub(crate) struct FileOptions {
    /// The stack's file; "-" is standard input
    #[arg(value_name = "FILE", required_unless_present = "expression")]
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

/// `stack fmt`
#[derive(Args, Debug)]
pub(crate) struct FormatOptions {
    /// The stack's file; "-" is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write back to the file instead of to standard output
    #[arg(short = 'i', long)]
    pub(crate) in_place: bool,
    /// Only check: exit code 1 if the layout differs
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) check: bool,
}

/// `stack show`
#[derive(Args, Debug)]
pub(crate) struct ShowOptions {
    /// The stack's file; "-" is standard input
    #[arg(value_name = "STACK", required_unless_present = "expression")]
    file: Option<PathBuf>,
    /// A stack given here instead of in a file: 'tcpscan - count'
    #[arg(short = 'e', long = "expression", value_name = "STACK")]
    pub(crate) expression: Option<String>,
    /// Write a graph for Graphviz (dot -Tsvg)
    #[arg(long, conflicts_with_all = ["read", "interface", "watch"])]
    pub(crate) dot: bool,
    /// Write a picture
    #[arg(long, conflicts_with_all = ["dot", "read", "interface", "watch"])]
    pub(crate) svg: bool,
    #[command(flatten)]
    pub(crate) watch: WatchOption,
    #[command(flatten)]
    input: InputOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl ShowOptions {
    /// The stack's file and what it reads. Where the stack stands on the command line the first word is
    /// the filter's.
    pub(crate) fn places(&self) -> (Option<&Path>, InputOptions) {
        let mut input = self.input.clone();
        match &self.file {
            Some(word) if self.expression.is_some() => {
                input.rest.insert(0, word.clone().into_os_string());
                (None, input)
            }
            file => (file.as_deref(), input),
        }
    }
}

/// How often is said what runs.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchOption {
    /// Print component counters and results every SECONDS, on standard error (`stack show`: in the graph)
    /// [default without a number: 1]
    #[arg(
        id = "watch",
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub(crate) seconds: Option<u64>,
}

/// `stack bench`
#[derive(Args, Debug)]
pub(crate) struct BenchOptions {
    #[command(flatten)]
    pub(crate) stack: GivenStack,
    /// Read packets from files, into memory first
    #[arg(short = 'r', long = "read", value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) read: Vec<PathBuf>,
    /// Runs of each component
    #[arg(long, value_name = "TIMES", default_value_t = 5, allow_negative_numbers = true, value_parser = parse_positive::<usize>)]
    pub(crate) repeat: usize,
    /// Packets in a batch
    #[arg(long, value_name = "PACKETS", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    /// Write a JSON object for each component
    #[arg(long)]
    pub(crate) json: bool,
}

/// `stack run`
#[derive(Args, Debug)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) stack: GivenStack,
    #[command(flatten)]
    pub(crate) watch: WatchOption,
    /// Confine all files, named on the command line and in the stack, to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
