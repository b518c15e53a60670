//! Groups of options that commands share.

use core::ops::Deref;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use flowgauge_kit::terminal::WHEN;
use flowgauge_stack::Settings;
use flowgauge_wire::Nanos;

use super::passed::{passed, rare};
use super::values::{
    parse_buffer_size, parse_duration, parse_idle_timeouts, parse_positive, parse_snapshot_length,
    parse_time,
};

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
    /// Read packets from files, merged by time ("-" is standard input)
    #[arg(short = 'r', long = "read", value_name = "FILE...")]
    pub(crate) read: Vec<OsString>,
    /// Capture on an interface (several; "any" for all)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
    /// Stop after this many packets (those the filter lets through)
    #[arg(short = 'c', long = "packet-count", value_name = "PACKETS", allow_negative_numbers = true, value_parser = parse_positive::<u64>)]
    pub(crate) packet_count: Option<u64>,
    /// Keep at most this much of each packet; 0 is everything
    #[arg(short = 's', long = "snapshot-length", value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_snapshot_length, hide_short_help = true)]
    pub(crate) snapshot_length: Option<u32>,
    /// Discard copies of packets, as delivered by mirrored ports: the same IP datagram again within this time [default: 100ms]
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "100ms", value_parser = parse_duration, hide_short_help = true)]
    pub(crate) dedup: Option<Nanos>,
    /// Only packets from this time on: "2026-11-22 10:30:00" (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) from: Option<Nanos>,
    /// Only packets before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) to: Option<Nanos>,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long = "no-promiscuous-mode", hide_short_help = true)]
    pub(crate) no_promiscuous: bool,
    /// Also capture packets of this program's own links (output, input), which are excluded by default to prevent loops
    #[arg(long, hide_short_help = true)]
    pub(crate) own_traffic: bool,
    /// Size of the kernel ring per worker; a bare number is KiB, as in tcpdump
    #[arg(short = 'B', long = "buffer-size", value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_buffer_size, hide_short_help = true)]
    pub(crate) buffer_size: Option<u64>,
    /// Drop packets that the command does not need in the kernel: socket before they are copied, xdp before the
    /// system sees them (with --mirror), auto as socket if possible
    #[arg(
        long,
        value_name = "BACKEND",
        value_enum,
        default_value_t,
        hide_short_help = true
    )]
    pub(crate) offload: Offload,
    /// The interface is a mirror port: nothing else on this machine needs its packets, and they bypass the system (AF_XDP)
    #[arg(long, hide_short_help = true)]
    pub(crate) mirror: bool,
    /// Worker threads; packets are distributed by flow [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Read the filter from a file
    #[arg(
        short = 'F',
        long = "filter-file",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub(crate) filter_file: Option<PathBuf>,
    /// Switch to this user once files and interfaces are open
    #[arg(
        short = 'Z',
        long = "relinquish-privileges",
        value_name = "USER",
        hide_short_help = true
    )]
    pub(crate) user: Option<String>,
    /// Accepted as other tools have it: names are never looked up
    #[arg(short = 'n', action = clap::ArgAction::Count, hide = true)]
    pub(crate) numeric: u8,
    /// Further files to read, then a filter in pcap-filter(7) syntax
    ///
    /// Words that name files belong to -r; put -- before a filter that begins with one.
    #[arg(value_name = "FILTER")]
    pub(crate) rest: Vec<OsString>,
    /// The filter, after --
    #[arg(last = true, value_name = "FILTER", hide = true)]
    pub(crate) filter: Vec<OsString>,
}

/// Formats of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// An aligned table
    Table,
    /// CSV with a header line
    Csv,
    /// CSV for spreadsheets: an apostrophe precedes text that would be a formula
    CsvSafe,
    /// A JSON object per line
    Json,
    /// Suricata's EVE log
    Eve,
    /// Zeek's logs, one file per log
    Zeek,
    /// Zeek's logs as JSON lines
    ZeekJson,
}

impl RecordFormat {
    /// Those that any record can be written in.
    const OF_ALL: [RecordFormat; 4] = [
        RecordFormat::Table,
        RecordFormat::Csv,
        RecordFormat::CsvSafe,
        RecordFormat::Json,
    ];

    /// Its name in stacks.
    pub(crate) const fn in_stacks(self) -> &'static str {
        match self {
            RecordFormat::Table => "table",
            RecordFormat::Csv => "csv",
            RecordFormat::CsvSafe => "csv_safe",
            RecordFormat::Json => "json",
            RecordFormat::Eve => "eve",
            RecordFormat::Zeek => "zeek",
            RecordFormat::ZeekJson => "zeek-json",
        }
    }
}

/// Reads one of these formats.
pub(super) fn record_format(
    all: &[RecordFormat],
) -> impl TypedValueParser<Value = RecordFormat> + use<> {
    let all = all.iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(all).try_map(|name| RecordFormat::from_str(&name, false))
}

/// Where records go, and in which format.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct DestinationOptions {
    /// Output format [default: by file name, else table on a terminal, else json]
    #[arg(long, value_name = "FORMAT", group = "record_format", value_parser = record_format(&RecordFormat::OF_ALL), hide_short_help = true)]
    pub(crate) format: Option<RecordFormat>,
    /// Short for --format json
    #[arg(long, group = "record_format")]
    pub(crate) json: bool,
    /// Short for --format csv
    #[arg(long, group = "record_format")]
    pub(crate) csv: bool,
    /// Short for --format table
    #[arg(long, group = "record_format")]
    pub(crate) table: bool,
    /// Write to a file instead of standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Colours: auto on a terminal, unless the environment has NO_COLOR; in files there are none
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = PossibleValuesParser::new(WHEN), hide_short_help = true)]
    pub(crate) color: String,
}

impl DestinationOptions {
    /// The format that an option names.
    pub(crate) fn format(&self) -> Option<RecordFormat> {
        match (self.json, self.csv, self.table) {
            (true, ..) => Some(RecordFormat::Json),
            (_, true, _) => Some(RecordFormat::Csv),
            (.., true) => Some(RecordFormat::Table),
            _ => self.format,
        }
    }
}

/// Where records go, and what is said beside them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OutputOptions {
    #[command(flatten)]
    destination: DestinationOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl Deref for OutputOptions {
    type Target = DestinationOptions;

    fn deref(&self) -> &DestinationOptions {
        &self.destination
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
    #[arg(long, hide_short_help = true)]
    pub(crate) stats: bool,
    /// Exit with code 3 if packets were dropped
    #[arg(long, hide_short_help = true)]
    pub(crate) fail_on_drop: bool,
}

/// Of commands that are stacks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct PresetOptions {
    /// Print the stack for these options, for use with flowgauge stack run, and exit
    #[arg(long, hide_short_help = true)]
    pub(crate) show_stack: bool,
}

passed! {
    /// Which records are written.
    WhereOptions of "where" under "Output" {
        condition: |arg| arg.long("where").value_name("EXPR").help(
            "Write only records that match, such as 'bytes > 1M and proto = tcp'"
        ),
    }
}

passed! {
    /// What of records is written.
    FieldOptions of "brief" under "Output" {
        fields: |arg| arg.value_name("FIELD[,FIELD]").help(
            "Write only these fields, in this order (see flowgauge fields)"
        ),
    }
}

/// Which records are written, and what of them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SelectOptions {
    #[command(flatten)]
    pub(crate) condition: WhereOptions,
    #[command(flatten)]
    pub(crate) fields: FieldOptions,
}

impl SelectOptions {
    /// Whether all of all records is written.
    pub(crate) fn is_all(&self) -> bool {
        self.condition
            .iter()
            .chain(self.fields.iter())
            .next()
            .is_none()
    }
}

passed! {
    /// How flows and streams are tracked.
    TrackingOptions of "flows" {
        checksums: rare,
        vlan_aware: rare,
        overlap_policy: rare,
        community_id_seed: rare,
    }
}

passed! {
    /// How much is tracked at once.
    BoundOptions of "flows" { max_flows: rare, memory: rare }
}

passed! {
    /// For commands that write records of flows.
    RecordOptions of "flows" { active_timeout: rare }
}

/// How flows and streams are tracked, and how much of them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracking")]
pub(crate) struct EngineOptions {
    #[command(flatten)]
    pub(crate) tracking: TrackingOptions,
    /// Idle timeout of flows: tcp=5m,udp=1m,other=30, or one for all
    #[arg(long, value_name = "DURATION", value_parser = parse_idle_timeouts, hide_short_help = true)]
    pub(crate) idle_timeout: Option<Settings>,
    #[command(flatten)]
    pub(crate) bounds: BoundOptions,
}
