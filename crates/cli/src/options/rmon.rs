//! `flowgauge rmon`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use flowgauge_rmon::agentx::Address;

use super::shared::{CommonOptions, InputOptions, OutputOptions};
use super::values::parse_positive;

/// Where `snmpd` listens if its configuration says nothing else.
pub(crate) const DEFAULT_MASTER: &str = "/var/agentx/master";

/// `rmon`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RmonOptions {
    #[command(subcommand)]
    pub(crate) command: Option<RmonCommand>,
    #[command(flatten)]
    pub(crate) serve: RmonServeOptions,
}

/// What else can be done with RMON's tables.
#[derive(Debug, Subcommand)]
pub(crate) enum RmonCommand {
    /// Print a table without SNMP
    Show(RmonShowOptions),
}

/// `rmon` alone
#[derive(Args, Debug)]
pub(crate) struct RmonServeOptions {
    /// Address of the AgentX master: the path of its socket, or HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_MASTER)]
    pub(crate) agentx: Address,
    /// Priority among subagents with the same objects; the lowest number answers
    #[arg(long, value_name = "N", default_value_t = 127, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) priority: u8,
    /// SNMP context of the objects [default: the default context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Also identify protocols over TCP and UDP by content
    #[arg(long)]
    pub(crate) contents: bool,
    /// File of control rows (may be empty), rewritten when managers change rows
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File with an SNMP user for reading other agents' objects in alarms and user histories
    #[arg(long, value_name = "FILE")]
    pub(crate) snmp: Option<PathBuf>,
    /// Run a program at each alarm; $FLOWGAUGE_EVENT is rising or falling, $FLOWGAUGE_OBJECTS has the trap's objects
    #[arg(long = "then", value_name = "PROGRAM")]
    pub(crate) then: Option<PathBuf>,
    /// Read files at the speed at which they were captured [default: as fast as possible]
    #[arg(long)]
    pub(crate) real_time: bool,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// `rmon show`
#[derive(Args, Debug)]
pub(crate) struct RmonShowOptions {
    /// The table
    #[arg(value_name = "TABLE")]
    pub(crate) shown: RmonTable,
    /// Write the N largest rows [default: all; for topn 10]
    #[arg(long, value_name = "N", value_parser = parse_positive::<usize>)]
    pub(crate) top: Option<usize>,
    /// Also write a row per protocol of each host or pair
    #[arg(long)]
    pub(crate) by_protocol: bool,
    /// Also identify protocols over TCP and UDP by content
    #[arg(long)]
    pub(crate) contents: bool,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// The tables that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RmonTable {
    /// Packets and octets of each protocol
    Protocols,
    /// Packets and octets to and from each network address
    Hosts,
    /// Packets and octets from each network address to each other
    Matrix,
    /// The largest conversations
    Topn,
}
