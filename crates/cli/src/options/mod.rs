//! The command line: commands, options, and what their values mean.
//!
//! A command's options are its own and groups that it shares with others ([`shared`]).

mod agent;
mod anonymize;
mod called;
mod capture;
mod chunks;
mod credential;
mod element;
mod generate;
#[cfg(test)]
mod grammar;
mod keys;
mod locality;
mod log;
mod loss;
mod matches;
mod passed;
mod replay;
mod rmon;
mod sensor;
mod shared;
mod stack;
mod top;
mod values;

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};
use flowgauge_wire::Nanos;

pub(crate) use agent::{
    Action, AdminCommand, AdminOptions, AgentOptions, DefinitionOptions, IdentityOptions,
};
pub(crate) use anonymize::AnonymizeOptions;
use called::Called;
pub(crate) use capture::{CaptureFormat, CaptureOptions};
pub(crate) use chunks::ChunkOptions;
pub(crate) use credential::{
    AttenuateOptions, CredentialCommand, CredentialOptions, IssueOptions, IssuerOptions,
    LimitOptions, RevokeOptions, ShowCredentialOptions, VerifyOptions,
};
pub(crate) use element::{ElementCommand, ElementOptions};
pub(crate) use generate::GenerateOptions;
pub(crate) use keys::{KeysCommand, KeysOptions};
pub(crate) use locality::{
    ClassOptions, LocalityCommand, LocalityOptions, LocalityRunOptions, LocalitySortOptions,
};
pub(crate) use log::LogOptions;
pub(crate) use loss::LossOptions;
pub(crate) use matches::{MatchOptions, PatternOptions};
use passed::{passed, rare};
pub(crate) use replay::{ReplayOptions, Speed};
pub(crate) use rmon::{
    DEFAULT_MASTER, RmonCommand, RmonOptions, RmonServeOptions, RmonShowOptions, RmonTable,
};
pub(crate) use sensor::{
    FlowOptions, MapiOptions, SensorAgentOptions, SensorAt, SensorCommand, SensorFlowsOptions,
    SensorOptions, SensorRunOptions, StatusOptions,
};
pub(crate) use shared::{
    BoundOptions, CommonOptions, DestinationOptions, EngineOptions, InputOptions, Offload,
    OutputOptions, PresetOptions, RecordFormat, RecordOptions, SelectOptions,
};
pub(crate) use stack::{
    BenchOptions, FormatOptions, GivenStack, ListOptions, RunOptions, ShowOptions, StackCommand,
    StackOptions,
};
pub(crate) use top::{TopOptions, View};
pub(crate) use values::words;
use values::{parse_duration, parse_positive};

use crate::failure::Failure;
use crate::sinks;

/// Passive network monitoring: packets go in, flows, streams and reports come out.
#[derive(Debug, Parser)]
#[command(
    name = "flowgauge",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = "Example: flowgauge flows -r capture.pcap tcp port 443",
    after_long_help = "Exit codes: 0 success, 1 run-time failure (also a damaged capture, after everything \
    readable),\n2 bad usage, filter, file or interface, 3 packets were dropped and --fail-on-drop was \
    given.\n\nExample: flowgauge flows -r capture.pcap tcp port 443"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// All commands with all their options, to look something up.
    pub(crate) fn built() -> clap::Command {
        let mut command = Cli::command();
        command.build();
        command
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write one record per flow
    Flows(Called<FlowsOptions>),
    /// Reassemble TCP streams: list them, hash them, or write them to files
    Streams(Called<StreamsOptions>),
    /// Search streams for patterns: text, Snort contents and regular expressions, thousands at once
    Match(Called<MatchOptions>),
    /// Write one record per transaction of application protocols: HTTP, DNS, TLS and others
    Log(Called<LogOptions>),
    /// Measure packet loss and one-way delay between sensors, or between capture files
    Loss(Called<LossOptions>),
    /// Summarize a capture on one page
    Report(Called<ReportOptions>),
    /// Show the largest talkers, flows and protocols on a page that is drawn again and again
    Top(Called<TopOptions>),
    /// Write packets to pcap or pcapng files, with rotation
    Capture(Called<CaptureOptions>),
    /// Write packets to a file, anonymized by a policy
    Anonymize(Called<AnonymizeOptions>),
    /// Print one line or JSON object per packet
    Packets(Called<PacketsOptions>),
    /// Write a synthetic capture with its ground truth
    Generate(Called<GenerateOptions>),
    /// Send the packets of a capture onto an interface
    Replay(Called<ReplayOptions>),
    /// Run, check and show stacks of components: monitoring tasks in a few lines
    Stack(Called<StackOptions>),
    /// Capture permanently for many users: devices, stacks that always run, and flows
    Sensor(Called<SensorOptions>),
    /// Bring this machine's sensor to users of other machines, until stopped
    SensorAgent(Called<SensorAgentOptions>),
    /// Measure between domains for users who ask over HTTP, until stopped
    Element(Called<ElementOptions>),
    /// Run MAPI's functions on a device of a sensor, and write their results
    Mapi(Called<MapiOptions>),
    /// Count protocols, hosts and conversations for SNMP managers (RMON2), until stopped
    Rmon(Called<RmonOptions>),
    /// Run a program that uses libpcap so that it gets packets of one class together
    Locality(Called<LocalityOptions>),
    /// Create and show the keys with which machines identify each other
    Keys(Called<KeysOptions>),
    /// Issue, narrow, check and revoke credentials: what users may do with a sensor
    Credential(Called<CredentialOptions>),
    /// Check what this machine can do, and recommend changes
    Doctor(Called<DoctorOptions>),
    /// List the fields of records, with their meaning and their names in Zeek's and Suricata's logs
    Fields(Called<FieldsOptions>),
    /// Print the completions of a shell
    Completions(Called<CompletionsOptions>),
    /// Print the manual page of a command, or write those of all
    Man(Called<ManOptions>),
}

impl Command {
    /// Finds out what words without an option are, where that depends on others.
    ///
    /// # Errors
    /// They contradict each other.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        match self {
            Command::Stack(options) => options.command.settle(),
            _ => Ok(()),
        }
    }

    /// How records are written, of commands that write records.
    pub(crate) fn output(&self) -> Option<&DestinationOptions> {
        match self {
            Command::Log(options) => Some(&options.output),
            Command::Doctor(options) => Some(&options.output),
            Command::Fields(options) => Some(&options.output),
            Command::Flows(options) => Some(&options.output),
            Command::Streams(options) if options.writes_text() => None,
            Command::Streams(options) => Some(&options.output),
            Command::Match(options) => Some(&options.output),
            Command::Packets(options) => Some(&options.output),
            Command::Loss(options) => Some(&options.output),
            Command::Rmon(options) => match &options.command {
                Some(RmonCommand::Show(options)) => Some(&options.output),
                None => None,
            },
            Command::Stack(options) => match &options.command {
                StackCommand::Run(options) => Some(&options.output),
                StackCommand::Bench(options) => Some(&options.output),
                StackCommand::List(options) if options.component.is_none() => Some(&options.output),
                _ => None,
            },
            Command::Sensor(options) => match &options.command {
                SensorCommand::Flows(options) => Some(&options.output),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether standard output is where results go.
    pub(crate) fn writes_standard_output(&self) -> bool {
        let write = match self {
            Command::Credential(_)
            | Command::Keys(_)
            | Command::Mapi(_)
            | Command::Completions(_)
            | Command::Man(_) => return true,
            Command::Fields(options) => options.output.write.as_deref(),
            Command::Doctor(options) => options.output.write.as_deref(),
            Command::Sensor(options) => return options.command.writes_standard_output(),
            Command::Rmon(options) if options.command.is_none() => return false,
            Command::Streams(options) if options.files_are_all() => return false,
            Command::Capture(options) if options.list_interfaces || options.dump_filter > 0 => {
                return true;
            }
            Command::Capture(options) => {
                return options.files.write.as_deref() == Some("-".as_ref());
            }
            Command::Anonymize(options) => {
                return options.files.write.as_deref() == Some("-".as_ref());
            }
            Command::Generate(options) => Some(options.write.as_path()),
            Command::Locality(options) => match &options.command {
                Some(LocalityCommand::Sort(options)) => Some(options.write.as_path()),
                None => return false,
            },
            Command::Replay(options) => return options.json,
            Command::Loss(options) => options.output.write.as_deref(),
            _ => self.input_and_output().and_then(|(_, write)| write),
        };
        write.is_none_or(|path| path == "-")
    }

    /// Keys of components that name none.
    pub(crate) fn identity(&self) -> Option<&IdentityOptions> {
        match self {
            Command::Stack(options) => match &options.command {
                StackCommand::Run(options) => Some(&options.identity),
                _ => None,
            },
            _ => None,
        }
    }

    /// The folder that the process is kept to, if it is.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Command::Stack(options) => match &options.command {
                StackCommand::Run(options) => options.folder.as_deref(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Where packets come from and results go to, of commands that read packets.
    pub(crate) fn input_and_output(&self) -> Option<(&InputOptions, Option<&Path>)> {
        let (input, output) = match self {
            Command::Flows(options) => (&options.input, &options.output.write),
            Command::Streams(options) => (&options.input, &options.output.write),
            Command::Match(options) => (&options.input, &options.output.write),
            Command::Packets(options) => (&options.input, &options.output.write),
            Command::Log(options) => (&options.input, &options.output.write),
            Command::Report(options) => (&options.input, &options.write),
            Command::Top(options) => (&options.input, &None),
            Command::Capture(options) => (&options.input, &options.files.write),
            Command::Anonymize(options) => (&options.input, &options.files.write),
            Command::Rmon(options) => match &options.command {
                Some(RmonCommand::Show(options)) => (&options.input, &options.output.write),
                None => (&options.serve.input, &None),
            },
            Command::Stack(options) => match &options.command {
                StackCommand::Run(options) => (&options.input, &options.output.write),
                _ => return None,
            },
            Command::Generate(_)
            | Command::Replay(_)
            | Command::Loss(_)
            | Command::Sensor(_)
            | Command::SensorAgent(_)
            | Command::Element(_)
            | Command::Mapi(_)
            | Command::Locality(_)
            | Command::Keys(_)
            | Command::Credential(_)
            | Command::Doctor(_)
            | Command::Fields(_)
            | Command::Completions(_)
            | Command::Man(_) => return None,
        };
        Some((input, output.as_deref()))
    }
}

/// `flows`
#[derive(Args, Debug)]
pub(crate) struct FlowsOptions {
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
    pub(crate) aggregate: AggregateOptions,
    #[command(flatten)]
    pub(crate) classify: ClassifyOptions,
    #[command(flatten)]
    pub(crate) preset: PresetOptions,
}

passed! {
    /// What is spoken in flows.
    ClassifyOptions of "flows" under "Classification" {
        classify,
        applications: |arg| rare(arg.requires("classify")),
        ndpi: |arg| rare(arg.requires("classify")),
    }
}

/// Aggregation of flow records.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Aggregation")]
pub(crate) struct AggregateOptions {
    /// Print the N largest groups [default with --by: all]
    #[arg(long, value_name = "N", value_parser = parse_positive::<usize>)]
    pub(crate) top: Option<usize>,
    /// Group flows by fields; addresses may have a prefix length: src_ip/24,dst_port
    #[arg(long, value_name = "KEY[,KEY]", value_delimiter = ',')]
    pub(crate) by: Vec<String>,
    /// Print groups so often, of what came meanwhile; on a terminal each table takes the place of the one before
    /// [default with --top on an interface and a terminal: 2s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, hide_short_help = true)]
    pub(crate) interval: Option<Nanos>,
    /// Fields to add up; groups are ordered by the first. "bytes" is src_bytes + dst_bytes
    #[arg(long, value_name = "FIELD[,FIELD]", value_delimiter = ',')]
    pub(crate) sum: Vec<String>,
}

/// `streams`
#[derive(Args, Debug)]
pub(crate) struct StreamsOptions {
    /// Write one record per direction (the default, except with --out)
    #[arg(long, conflicts_with = "count")]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) written: StreamRecordOptions,
    #[command(flatten)]
    pub(crate) follow: FollowOptions,
    #[command(flatten)]
    pub(crate) transcript: TranscriptOptions,
    #[command(flatten)]
    pub(crate) chunks: ChunkOptions,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) select: SelectOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    #[command(flatten)]
    pub(crate) preset: PresetOptions,
}

impl StreamsOptions {
    /// Of a connection that is followed its text is written, in a file of any name.
    pub(crate) fn writes_text(&self) -> bool {
        self.follow.text("connection").is_some()
            && sinks::given_format(&self.output).is_none()
            && self.select.is_all()
    }

    /// With --out alone the files are the result.
    pub(crate) fn files_are_all(&self) -> bool {
        let written = &self.written;
        written.text("out").is_some()
            && !self.list
            && !written.flag("gaps")
            && !written.flag("hash")
            && !self.chunks.delivery.flag("counters")
            && self.select.is_all()
            && self.output.format().is_none()
            && self.output.write.is_none()
    }
}

passed! {
    /// What is written of streams.
    StreamRecordOptions of "streams" {
        out,
        fill_gaps: |arg| arg.requires("out"),
        gaps,
        hash,
        count: |arg| arg.conflicts_with_all(["gaps", "hash", "out"]),
    }
}

passed! {
    /// Which connection is followed.
    FollowOptions of "follow" {
        connection: |arg| arg.long("follow").value_name("ID").conflicts_with_all([
            "list", "out", "fill_gaps", "gaps", "hash", "count", "mode", "host_policy", "cutoff", "cutoff_direction", "cutoff_class", "priority",
            "chunk", "overlap", "flush_timeout", "base_threshold", "overload_cutoff", "counters",
        ]),
    }
}

passed! {
    /// How what it says is printed.
    TranscriptOptions of "transcript" {
        hex: |arg| arg.short('X').requires("connection").conflicts_with("record_format"),
    }
}

/// `report`
#[derive(Args, Debug)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) page: PageOptions,
    /// Do not inspect payload: no applications, no HTTP, DNS and TLS transactions; faster
    #[arg(long, conflicts_with = "applications")]
    pub(crate) headers_only: bool,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write to a file instead of standard output
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
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
    /// What is on the page.
    PageOptions of "report" { top, applications }
}

/// `packets`
#[derive(Args, Debug)]
pub(crate) struct PacketsOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) select: SelectOptions,
    /// Also print the link layer: Ethernet addresses and EtherType
    #[arg(short = 'e', long = "link")]
    pub(crate) link: bool,
    /// Print more of each header: TTL, identification, type of service, checksum, TCP options
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Also print the bytes of each packet in hexadecimal and ASCII
    #[arg(short = 'X', long = "hex", action = clap::ArgAction::Count)]
    pub(crate) hex: u8,
    /// Print only packets that match a display filter, as in Wireshark (docs/display-filter.md)
    #[arg(short = 'Y', long, value_name = "EXPR")]
    pub(crate) display_filter: Option<String>,
    /// Print absolute TCP sequence numbers, not relative ones
    #[arg(short = 'S', long)]
    pub(crate) absolute_sequence_numbers: bool,
    /// Time: -t none, -tt seconds since 1970, -ttt since the previous packet, -tttt date and time (default), -ttttt
    /// since the first
    #[arg(short = 't', action = clap::ArgAction::Count)]
    pub(crate) time: u8,
    /// Accepted as other tools have it: live, each batch is written at once
    #[arg(short = 'l', hide = true)]
    pub(crate) line_buffered: bool,
}

/// `doctor`
#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) output: DestinationOptions,
    /// Check only this interface (several)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
}

/// `fields`
#[derive(Args, Debug)]
pub(crate) struct FieldsOptions {
    /// The fields of this kind of records [default: list the kinds]
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) output: DestinationOptions,
    /// Accepted as other commands have it: nothing but results is printed anyway
    #[arg(short = 'q', long, hide = true)]
    pub(crate) quiet: bool,
}

/// `completions`
#[derive(Args, Debug)]
pub(crate) struct CompletionsOptions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`
#[derive(Args, Debug)]
pub(crate) struct ManOptions {
    /// The command, as "stack run" [default: flowgauge itself]
    #[arg(value_name = "COMMAND", conflicts_with = "all")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) all: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Arg;

    use super::*;

    /// The row of an option in the manual's tables.
    fn row(arg: &Arg) -> Option<String> {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        let names: Vec<String> = short.into_iter().chain(long).collect();
        if names.is_empty() || arg.is_hide_set() {
            return None;
        }
        let values = arg.get_value_names().unwrap_or_default();
        let takes = arg.get_action().takes_values();
        let value = match (takes, values.first()) {
            (true, Some(name)) if arg.is_require_equals_set() => format!("[=<{name}>]"),
            (true, Some(name)) => format!(" <{name}>"),
            _ => String::new(),
        };
        let mut help = arg.get_help().map(ToString::to_string)?;
        let possible = arg.get_possible_values();
        let described: Vec<String> = possible
            .iter()
            .filter(|_| takes)
            .filter_map(|it| Some(format!("{}: {}", it.get_name(), it.get_help()?)))
            .collect();
        if described.is_empty() && takes && !possible.is_empty() {
            let words: Vec<&str> = possible.iter().map(|it| it.get_name()).collect();
            help += &format!(" [possible values: {}]", words.join(", "));
        } else if !described.is_empty() {
            help += &format!(": {}", described.join("; "));
        }
        let shows_default = takes && !arg.is_hide_default_value_set();
        if shows_default && let Some(default) = arg.get_default_values().first() {
            help += &format!(" [default: {}]", default.display());
        }
        let row = format!("| `{}{value}` | {help} |", names.join(", "));
        Some(row.replace("NAME|FILE", "NAME\\|FILE"))
    }

    /// The lines of the manual about a command: its section, and the common options that it has.
    fn about(manual: &[String], command: &str) -> Vec<usize> {
        let (heading, name) = (format!("## `flowgauge {command}`"), format!("`{command}`"));
        assert!(manual.contains(&heading), "{heading}");
        let mut is_about = false;
        let lines = manual.iter().enumerate().filter(|(_, line)| {
            if line.starts_with("## ") {
                is_about = **line == heading;
            } else if line.starts_with("Commands: ") {
                is_about = line.contains(&name);
            }
            is_about
        });
        lines.map(|(at, _)| at).collect()
    }

    /// The manual's tables say of each option what its help says. With `FLOWGAUGE_REWRITE_CASES=1` they are written.
    #[test]
    fn the_manual_has_a_row_for_each_option() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual.md");
        let manual = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = manual.lines().map(str::to_owned).collect();
        let mut wrong = Vec::new();
        let built = Cli::built();
        // Those that clap adds are the same everywhere.
        let is_ours = |name: &str| name != "help";
        for command in built.get_subcommands().filter(|it| is_ours(it.get_name())) {
            let about = about(&lines, command.get_name());
            let arguments = command.get_arguments();
            for row in arguments
                .filter(|it| is_ours(it.get_id().as_str()))
                .filter_map(row)
            {
                let is_same = |at: &&usize| {
                    let first =
                        |row: &str| row.split(['`', ' ', '[', ',']).nth(2).map(str::to_owned);
                    lines[**at].starts_with("| `-") && first(&lines[**at]) == first(&row)
                };
                match about.iter().find(is_same) {
                    Some(&at) if lines[at] == row => continue,
                    Some(&at) => lines[at] = row.clone(),
                    None => {}
                }
                wrong.push(format!("{}: {row}", command.get_name()));
            }
        }
        if std::env::var_os("FLOWGAUGE_REWRITE_CASES").is_some() {
            fs::write(path, lines.join("\n") + "\n").unwrap();
            return;
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn options_are_built_of_the_command_that_is_called() {
        let (listed, built) = (Cli::command(), Cli::built());
        for command in listed.get_subcommands() {
            let name = command.get_name();
            assert_eq!(command.get_arguments().count(), 0, "{name}");
            let called = built.find_subcommand(name).unwrap();
            assert!(called.get_arguments().count() > 0, "{name}");
            let about = |command: &clap::Command| command.get_about().map(ToString::to_string);
            assert_eq!(about(called), about(command), "{name}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::built().debug_assert();
    }

    #[test]
    fn files_and_filter_words_follow_read() {
        let cli = Cli::parse_from([
            "flowgauge",
            "flows",
            "-r",
            "a.pcap",
            "b.pcap",
            "-c",
            "5",
            "tcp",
            "port",
            "80",
        ]);
        let Command::Flows(flows) = cli.command else {
            panic!("not flows");
        };
        assert_eq!(flows.input.read, ["a.pcap"]);
        assert_eq!(flows.input.rest, ["b.pcap", "tcp", "port", "80"]);
        assert_eq!(flows.input.packet_count, Some(5));
    }
}
