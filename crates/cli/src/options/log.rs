//! `log`

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use flowgauge_wire::Nanos;

use super::shared::{CommonOptions, EngineOptions, InputOptions, PresetOptions, RecordOptions};
use super::values::{parse_seconds, parse_size};

/// `log`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("files_wanted").args(["files", "digests", "extract_files"]).multiple(true),
    after_help = "Protocols are recognised by what is said, on any port. A request without a response, and a \
                  response\nwithout a request, are records too. With --flows each flow has a record of event \
                  type flow; flow_id\njoins them.\n\nExample: flowgauge log -r capture.pcap --protocols \
                  http,dns --format zeek -w logs"
)]
pub(crate) struct LogOptions {
    /// Which protocols, with commas between (default: all)
    #[arg(long, value_name = "LIST")]
    pub(crate) protocols: Option<String>,
    /// Write a record of each flow when it ends, too
    #[arg(long)]
    pub(crate) flows: bool,
    /// Write a record of what should not be in packets, connections and messages, too
    #[arg(long)]
    pub(crate) anomalies: bool,
    /// Write a record of counters every so many seconds of the capture, and at the end (default: none)
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) stats_interval: Option<Nanos>,
    /// Write a record of each file that is transferred (bodies of HTTP, data of FTP, parts of mails), too
    #[arg(long, help_heading = "Files")]
    pub(crate) files: bool,
    /// Each mail is a file, too: as it was sent, its parts name it
    #[arg(long, help_heading = "Files", requires = "files_wanted")]
    pub(crate) mails: bool,
    /// Digests in those records: md5, sha1, sha256, with commas between
    #[arg(long, value_name = "LIST", help_heading = "Files")]
    pub(crate) digests: Option<String>,
    /// Write each file into this folder; its record says the name. 128 at once, with more the longest
    /// idle one ends
    #[arg(
        long,
        value_name = "FOLDER",
        help_heading = "Files",
        conflicts_with = "anonymize"
    )]
    pub(crate) extract_files: Option<PathBuf>,
    /// Take content codings (gzip, deflate, br) away before; 64 at once, with more the longest idle one ends
    #[arg(long, help_heading = "Files", requires = "files_wanted")]
    pub(crate) decode: bool,
    /// Bytes of a file that are written (default: 100M)
    #[arg(
        long,
        value_name = "BYTES",
        help_heading = "Files",
        value_parser = parse_size,
        requires = "extract_files"
    )]
    pub(crate) file_limit: Option<u64>,
    /// Bytes of all files together that are written (default: 10G)
    #[arg(
        long,
        value_name = "BYTES",
        help_heading = "Files",
        value_parser = parse_size,
        requires = "extract_files"
    )]
    pub(crate) extract_limit: Option<u64>,
    /// Names of servers and their applications, beside those that are built in: in each line a name of
    /// hosts, blanks, the application
    #[arg(long, value_name = "FILE", requires = "flows")]
    pub(crate) applications: Option<PathBuf>,
    /// Take out and replace what a policy says before anything is written (see "flowgauge anonymize")
    #[arg(long, value_name = "POLICY")]
    pub(crate) anonymize: Option<PathBuf>,
    /// How it is written (default: as the file's name says, else table on a terminal, else json)
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Output")]
    pub(crate) format: Option<LogFormat>,
    /// As --format json
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "csv"])]
    pub(crate) json: bool,
    /// As --format csv
    #[arg(long, help_heading = "Output", conflicts_with = "format")]
    pub(crate) csv: bool,
    /// Write to a file, or with zeek into a folder, instead of standard output
    #[arg(
        short = 'w',
        long = "write",
        value_name = "PATH",
        help_heading = "Output"
    )]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    #[command(flatten)]
    pub(crate) records: RecordOptions,
    #[command(flatten)]
    pub(crate) preset: PresetOptions,
}

/// How records of many kinds are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Aligned columns for people
    Table,
    /// The columns of the table as CSV
    Csv,
    /// A JSON object per line, with the names of this program
    Json,
    /// Lines of Suricata's EVE log
    Eve,
    /// Zeek's logs, a file for each kind
    Zeek,
    /// The same with a JSON object per line
    ZeekJson,
}
