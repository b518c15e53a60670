//! `log`

use clap::{ArgGroup, Args, ValueEnum};

use super::passed::{passed, rare};
use super::shared::{
    EngineOptions, InputOptions, OutputOptions, PresetOptions, RecordFormat, RecordOptions,
    SelectOptions, record_format,
};

/// `log`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("files_wanted").args(["files", "digests", "extract"]).multiple(true),
    mut_arg("format", |arg| arg.value_parser(record_format(RecordFormat::value_variants()))),
    mut_arg("write", |arg| arg.help("Write to a file, or with zeek to a folder, instead of standard output")),
    after_help = "Example: flowgauge log -r capture.pcap --protocols http,dns --format zeek -w logs",
    after_long_help = "Protocols are recognised by content, on any port. A request without a response, and a response \
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
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) select: SelectOptions,
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
        stats_interval: rare,
        applications: |arg| rare(arg.requires("flows")),
    }
}

passed! {
    /// What is done with files.
    FileOptions of "transactions" under "Files" {
        files,
        mails: |arg| rare(arg.requires("files_wanted")),
        digests: rare,
        extract: |arg| arg.long("extract-files").conflicts_with("policy"),
        decode: |arg| rare(arg.requires("files_wanted")),
        file_limit: |arg| rare(arg.requires("extract")),
        extract_limit: |arg| rare(arg.requires("extract")),
    }
}

passed! {
    /// What is taken out before anything is written.
    PolicyOptions of "anonymize" {
        policy: |arg| arg.long("anonymize").help(
            "Anonymize records by a policy before they are written (see \"flowgauge anonymize\")"
        ),
    }
}
