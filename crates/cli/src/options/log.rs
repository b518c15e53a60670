//! `log`

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::passed::passed;
use super::shared::{CommonOptions, EngineOptions, InputOptions, PresetOptions, RecordOptions};

/// `log`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("files_wanted").args(["files", "digests", "extract"]).multiple(true),
    after_help = "Protocols are recognised by content, on any port. A request without a response, and a response \
                  without\na request, are records too. With --flows, each flow has a record of event type flow; \
                  flow_id joins them.\n\nExample: flowgauge log -r capture.pcap --protocols \
                  http,dns --format zeek -w logs"
)]
pub(crate) struct LogOptions {
    #[command(flatten)]
    pub(crate) logged: LoggedOptions,
    #[command(flatten)]
    pub(crate) files: FileOptions,
    #[command(flatten)]
    pub(crate) anonymize: PolicyOptions,
    /// Output format (default: by file name, else table on a terminal, else json)
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Output")]
    pub(crate) format: Option<LogFormat>,
    /// Short for --format json
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "csv"])]
    pub(crate) json: bool,
    /// Short for --format csv
    #[arg(long, help_heading = "Output", conflicts_with = "format")]
    pub(crate) csv: bool,
    /// Write to a file, or with zeek to a folder, instead of standard output
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

passed! {
    /// Of what records are written.
    LoggedOptions of "transactions" {
        protocols,
        flows,
        anomalies,
        stats_interval,
        applications: |arg| arg.requires("flows"),
    }
}

passed! {
    /// What is done with files.
    FileOptions of "transactions" under "Files" {
        files,
        mails: |arg| arg.requires("files_wanted"),
        digests,
        extract: |arg| arg.long("extract-files").conflicts_with("policy"),
        decode: |arg| arg.requires("files_wanted"),
        file_limit: |arg| arg.requires("extract"),
        extract_limit: |arg| arg.requires("extract"),
    }
}

passed! {
    /// What is taken out before anything is written.
    PolicyOptions of "anonymize" {
        policy: |arg| arg.long("anonymize").help(
            "Take out and replace what a policy says before anything is written (see \"flowgauge anonymize\")"
        ),
    }
}

/// How records of many kinds are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// An aligned table
    Table,
    /// The columns of the table as CSV
    Csv,
    /// A JSON object per line, with this program's names
    Json,
    /// Suricata's EVE log
    Eve,
    /// Zeek's logs, one file per log
    Zeek,
    /// Zeek's logs as JSON lines
    ZeekJson,
}
