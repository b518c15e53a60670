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
    /// Write a table of what was captured, without SNMP
    Show(RmonShowOptions),
}

/// `rmon` alone
#[derive(Args, Debug)]
pub(crate) struct RmonServeOptions {
    /// Address of the AgentX master: the path of its socket, or HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_MASTER)]
    pub(crate) agentx: Address,
    /// Of several subagents with the same objects the master asks the one with the lowest number
    #[arg(long, value_name = "N", default_value_t = 127, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) priority: u8,
    /// SNMP context of the objects [default: the default context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Tell protocols over TCP and UDP by content, too, beside their ports
    #[arg(long)]
    pub(crate) contents: bool,
    /// File of control rows (an empty one will do), rewritten when managers change some
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File of an SNMP user who reads objects of other agents, which alarms and user histories may name then
    #[arg(long, value_name = "FILE")]
    pub(crate) snmp: Option<PathBuf>,
    /// Run a program at each alarm; $FLOWGAUGE_EVENT is rising or falling, $FLOWGAUGE_OBJECTS what the trap holds
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
    /// Which table
    #[arg(value_name = "TABLE")]
    pub(crate) shown: RmonTable,
    /// Write the N largest rows [default: all; of topn 10]
    #[arg(long, value_name = "N", value_parser = parse_positive::<usize>)]
    pub(crate) top: Option<usize>,
    /// Write a row for each protocol of a host or pair, too
    #[arg(long)]
    pub(crate) applications: bool,
    /// Tell protocols over TCP and UDP by content, too, beside their ports
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
