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
    /// Packets that are gathered before they are delivered
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_PACKETS, value_parser = packets)]
    pub(crate) buffer: usize,
    /// Deliver what was gathered when its first packet is so old; "none" waits for a full buffer
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = checked_timeout)]
    pub(crate) timeout: String,
    #[command(flatten)]
    pub(crate) class: ClassOptions,
    /// Gather in a thread of its own, into other buffers
    #[arg(long)]
    pub(crate) threaded: bool,
    /// Copy the packets of an interface into the buffer, too; otherwise the kernel gathers them where they are delivered from
    #[arg(long, conflicts_with = "threaded")]
    pub(crate) copy: bool,
    /// Print on standard error at the end how many packets went through buffers
    #[arg(long)]
    pub(crate) stats: bool,
    /// Append that to a file, as for programs that leave the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_file: Option<PathBuf>,
    /// The program that uses libpcap, and its arguments
    #[arg(value_name = "PROGRAM", last = true, required = true, num_args = 1..)]
    pub(crate) program: Vec<OsString>,
}

/// Which packets are delivered together.
#[derive(Args, Debug)]
pub(crate) struct ClassOptions {
    /// What packets have in common that are delivered together; "flow" keeps the order within connections
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
