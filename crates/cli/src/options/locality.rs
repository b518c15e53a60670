//! `flowgauge locality`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use flowgauge_locality::{Class, DEFAULT_PACKETS, packets, timeout};

/// `locality`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LocalityOptions {
    #[command(subcommand)]
    pub(crate) command: Option<LocalityCommand>,
    #[command(flatten)]
    pub(crate) run: LocalityRunOptions,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum LocalityCommand {
    /// Write the packets of a capture class by class: the most that a buffer can bring
    Sort(LocalitySortOptions),
}

/// `locality` alone
#[derive(Args, Debug)]
pub(crate) struct LocalityRunOptions {
    /// Packets to gather before delivery
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_PACKETS, value_parser = packets)]
    pub(crate) buffer: usize,
    /// Deliver when the oldest gathered packet has waited this long; "none" waits for a full buffer
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = checked_timeout)]
    pub(crate) timeout: String,
    #[command(flatten)]
    pub(crate) class: ClassOptions,
    /// Gather in a separate thread, into further buffers
    #[arg(long)]
    pub(crate) threaded: bool,
    /// Copy packets of an interface into the buffer, instead of letting the kernel gather them in place
    #[arg(long, conflicts_with = "threaded")]
    pub(crate) copy: bool,
    /// Print buffer statistics on standard error at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Append them to a file, for programs that leave the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_file: Option<PathBuf>,
    /// The program that uses libpcap, and its arguments
    #[arg(value_name = "PROGRAM", last = true, required = true, num_args = 1..)]
    pub(crate) program: Vec<OsString>,
}

/// Which packets are delivered together.
#[derive(Args, Debug)]
pub(crate) struct ClassOptions {
    /// Class by which packets are grouped; "flow" keeps the order within connections
    #[arg(long, value_name = "CLASS", default_value = Class::DstPort.name(), value_parser = names())]
    class: String,
    /// Filters in a file, one per line: the class is the first that matches
    #[arg(long, value_name = "FILE", conflicts_with = "class")]
    pub(crate) filters: Option<PathBuf>,
}

impl ClassOptions {
    /// The class by headers.
    pub(crate) fn class(&self) -> Class {
        self.class.parse().unwrap_or_default()
    }
}

/// `locality sort`
#[derive(Args, Debug)]
pub(crate) struct LocalitySortOptions {
    /// Read packets from this file ("-" is standard input); all of them are held in memory
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    pub(crate) read: PathBuf,
    /// Write them to this file ("-" is standard output)
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: PathBuf,
    #[command(flatten)]
    pub(crate) class: ClassOptions,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

fn names() -> [&'static str; 4] {
    Class::ALL.map(Class::name)
}

fn checked_timeout(text: &str) -> Result<String, String> {
    timeout(text).map(|_| text.to_owned())
}
