//! Groups of options that commands share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use flowgauge_stack::Settings;
use flowgauge_wire::Nanos;

use super::passed::passed;
use super::values::{parse_duration, parse_idle_timeouts, parse_positive, parse_whole};

/// What keeps packets away that nothing wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Offload {
    #[default]
    Auto,
    None,
    Socket,
    Xdp,
}

/// Where packets come from.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputOptions {
    /// Read packets from files (several, globs; "-" is standard input), merged by time
    #[arg(short = 'r', long = "read", value_name = "FILE...")]
    pub(crate) read: Vec<OsString>,
    /// Capture on an interface (several; "any" for all)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
    /// Stop after this many packets (those the filter lets through)
    #[arg(short = 'c', long = "packet-count", value_name = "PACKETS", allow_negative_numbers = true, value_parser = parse_positive::<u64>)]
    pub(crate) packet_count: Option<u64>,
    /// Keep at most this many bytes of each packet; 0 is everything
    #[arg(short = 's', long = "snapshot-length", value_name = "BYTES", allow_negative_numbers = true, value_parser = parse_whole::<u32>)]
    pub(crate) snapshot_length: Option<u32>,
    /// Discard copies of packets, as delivered by mirrored ports: the same IP datagram again within this time (units us, ms,
    /// s) [default: 100ms]
    #[arg(long, value_name = "WINDOW", num_args = 0..=1, require_equals = true, default_missing_value = "100ms", value_parser = parse_duration)]
    pub(crate) dedup: Option<Nanos>,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long = "no-promiscuous-mode")]
    pub(crate) no_promiscuous: bool,
    /// Also capture packets of this program's own links (output, input), which are excluded by default to prevent loops
    #[arg(long)]
    pub(crate) own_traffic: bool,
    /// Size of the kernel ring per worker, in KiB
    #[arg(short = 'B', long = "buffer-size", value_name = "KIB", allow_negative_numbers = true, value_parser = parse_whole::<u64>)]
    pub(crate) buffer_size: Option<u64>,
    /// Keep packets away that nothing of the command wants: socket before they are copied to it, xdp before the system sees them
    /// (with --mirror), auto as socket where it can
    #[arg(long, value_name = "BACKEND", value_enum, default_value_t)]
    pub(crate) offload: Offload,
    /// The interface is a mirror port: nothing else of this machine needs its packets
    #[arg(long, requires = "offload")]
    pub(crate) mirror: bool,
    /// Worker threads; packets are distributed by flow [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Read the filter from a file
    #[arg(short = 'F', long = "filter-file", value_name = "FILE")]
    pub(crate) filter_file: Option<PathBuf>,
    /// Switch to this user once files and interfaces are open
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Accepted as other tools have it: names are never looked up
    #[arg(short = 'n', action = clap::ArgAction::Count, hide = true)]
    pub(crate) numeric: u8,
    /// Further files to read, then a filter in pcap-filter(7) syntax. Words that name files belong
    /// to -r; put -- before a filter that begins with one
    #[arg(value_name = "FILTER")]
    pub(crate) rest: Vec<OsString>,
    /// The filter, after --
    #[arg(last = true, value_name = "FILTER", hide = true)]
    pub(crate) filter: Vec<OsString>,
}

/// What is printed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// Write JSON lines (the default unless the output is a terminal)
    #[arg(long, group = "format")]
    pub(crate) json: bool,
    /// Write CSV with a header line
    #[arg(long, group = "format")]
    pub(crate) csv: bool,
    /// Write CSV for spreadsheets: an apostrophe precedes text that begins with =, +, - or @, so that it is not a formula
    #[arg(long, group = "format")]
    pub(crate) csv_safe: bool,
    /// Write an aligned table (the default on a terminal)
    #[arg(long, group = "format")]
    pub(crate) table: bool,
    /// Write to a file instead of standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl OutputOptions {
    /// Whether a format was asked for.
    pub(crate) fn names_a_format(&self) -> bool {
        self.json || self.csv || self.csv_safe || self.table || self.write.is_some()
    }
}

/// What every command that reads packets understands.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct CommonOptions {
    /// Print nothing but results and errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print engine statistics and run time on standard error at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Exit with code 3 if packets were dropped
    #[arg(long)]
    pub(crate) fail_on_drop: bool,
}

/// Of commands that are stacks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct PresetOptions {
    /// Print the stack for these options, for use with flowgauge stack run, and exit
    #[arg(long)]
    pub(crate) show_stack: bool,
}

passed! {
    /// How flows and streams are tracked.
    TrackingOptions of "flows" { checksums, vlan_aware, overlap_policy, community_id_seed }
}

passed! {
    /// How much is tracked at once.
    BoundOptions of "flows" { max_flows, memory }
}

passed! {
    /// For commands that write records of flows.
    RecordOptions of "flows" { active_timeout }
}

/// How flows and streams are tracked, and how much of them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracking")]
pub(crate) struct EngineOptions {
    #[command(flatten)]
    pub(crate) tracking: TrackingOptions,
    /// Idle timeout of flows (seconds, or with a unit): tcp=300,udp=1m,other=30, or one for all
    #[arg(long, value_name = "TIME", value_parser = parse_idle_timeouts)]
    pub(crate) idle_timeout: Option<Settings>,
    #[command(flatten)]
    pub(crate) bounds: BoundOptions,
}
