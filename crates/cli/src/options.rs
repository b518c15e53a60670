//! The command line: commands, options, and what their values mean.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use flowgauge_capture::sink::RingLimits;
use flowgauge_reassembly::OverlapPolicy;
use flowgauge_wire::Nanos;

/// Passive network monitoring: packets go in, flows, streams and reports come out.
#[derive(Debug, Parser)]
#[command(
    name = "flowgauge",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    max_term_width = 100,
    after_help = "Exit codes: 0 success, 1 failed on the way (also a damaged capture, after all that \
                  was readable),\n2 bad usage, filter, file or interface, 3 packets were dropped and \
                  --fail-on-drop was given.\n\nExample: flowgauge flows -r capture.pcap tcp port 443"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write one record per flow
    Flows(FlowsOptions),
    /// Reassemble TCP streams: list them, hash them or write their bytes to files
    Streams(StreamsOptions),
    /// Summarize a capture on one page
    Report(ReportOptions),
    /// Write packets to pcap or pcapng files, with rotation
    Capture(Box<CaptureOptions>),
    /// Print one line or JSON object per packet
    Packets(PacketsOptions),
    /// Write a synthetic capture whose contents are known
    Generate(GenerateOptions),
    /// Say what this machine can do and what to change where it cannot
    Doctor(DoctorOptions),
}

impl Command {
    /// How records are written, of commands that write records.
    pub(crate) fn output(&self) -> Option<&OutputOptions> {
        match self {
            Command::Flows(options) => Some(&options.output),
            Command::Streams(options) => Some(&options.output),
            Command::Packets(options) => Some(&options.output),
            _ => None,
        }
    }

    /// Where packets come from and results go to, of commands that read packets.
    pub(crate) fn input_and_output(&self) -> Option<(&InputOptions, Option<&Path>)> {
        let (input, output) = match self {
            Command::Flows(options) => (&options.input, &options.output.write),
            Command::Streams(options) => (&options.input, &options.output.write),
            Command::Packets(options) => (&options.input, &options.output.write),
            Command::Report(options) => (&options.input, &options.write),
            Command::Capture(options) => (&options.input, &options.write),
            Command::Generate(_) | Command::Doctor(_) => return None,
        };
        Some((input, output.as_deref()))
    }
}

/// Where packets come from.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputOptions {
    /// Read packets from files (several, globs; "-" is standard input), merged by time
    #[arg(short = 'r', long = "read", value_name = "FILE...")]
    pub(crate) read: Vec<String>,
    /// Capture on an interface (several; "any" for all)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
    /// Stop after this many packets (those the filter lets through)
    #[arg(short = 'c', long = "packet-count", value_name = "PACKETS", allow_negative_numbers = true, value_parser = parse_positive::<u64>)]
    pub(crate) packet_count: Option<u64>,
    /// Keep at most this many bytes of each packet; 0 is everything
    #[arg(short = 's', long = "snapshot-length", value_name = "BYTES")]
    pub(crate) snapshot_length: Option<u32>,
    /// Do not put the interface into promiscuous mode
    #[arg(short = 'p', long = "no-promiscuous-mode")]
    pub(crate) no_promiscuous: bool,
    /// Size of the kernel's ring for each worker, in KiB
    #[arg(short = 'B', long = "buffer-size", value_name = "KIB")]
    pub(crate) buffer_size: Option<u64>,
    /// Threads that capture and process a live interface, sharing it by flow [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    /// Read the filter from a file
    #[arg(short = 'F', long = "filter-file", value_name = "FILE")]
    pub(crate) filter_file: Option<PathBuf>,
    /// Become this user once files and interfaces are open
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Accepted as other tools have it: names are never looked up
    #[arg(short = 'n', action = clap::ArgAction::Count, hide = true)]
    pub(crate) numeric: u8,
    /// Further files to read, then a filter in pcap-filter(7) syntax. Words that name files belong
    /// to -r; put -- before a filter that begins with one
    #[arg(value_name = "FILTER")]
    pub(crate) rest: Vec<String>,
    /// The filter, after --
    #[arg(last = true, value_name = "FILTER", hide = true)]
    pub(crate) filter: Vec<String>,
}

/// What is printed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    /// Write JSON lines (the default unless the output is a terminal)
    #[arg(long, group = "format")]
    pub(crate) json: bool,
    /// Write CSV with a line of names
    #[arg(long, group = "format")]
    pub(crate) csv: bool,
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
        self.json || self.csv || self.table || self.write.is_some()
    }
}

/// What every command that reads packets understands.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub(crate) struct CommonOptions {
    /// Print nothing but results and errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Print statistics of the engine and the time it took on standard error at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// End with exit code 3 when packets were dropped
    #[arg(long)]
    pub(crate) fail_on_drop: bool,
}

/// How flows and streams are tracked.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Tracking")]
pub(crate) struct EngineOptions {
    /// What to do with wrong checksums
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ChecksumMode::Auto)]
    pub(crate) checksums: ChecksumMode,
    /// Which copy of overlapping segments and fragments counts: first, last, linux, windows, bsd,
    /// solaris and others
    #[arg(long, value_name = "POLICY", default_value = "first", value_parser = parse_policy)]
    pub(crate) overlap_policy: OverlapPolicy,
    /// End flows without packets after so many seconds: tcp=300,udp=60,other=30, or one number
    #[arg(long, value_name = "SECONDS", value_parser = parse_idle_timeouts)]
    pub(crate) idle_timeout: Option<IdleTimeouts>,
    /// Write a record of flows that last longer than so many seconds, again and again
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) active_timeout: Option<Nanos>,
    /// Flows tracked at once; the longest idle goes when there are more
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_flows: Option<u64>,
    /// Memory for packets held back in reassembly and for flows (units K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    /// Seed of the Community IDs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) community_id_seed: u16,
}

/// What to do with wrong checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChecksumMode {
    /// Refuse packets whose checksum is wrong
    Verify,
    /// Do not look at checksums
    Ignore,
    /// Refuse wrong ones, except from senders all of whose packets are wrong (offloading hosts)
    Auto,
}

/// Idle timeouts by protocol, where they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleTimeouts {
    pub(crate) tcp: Option<Nanos>,
    pub(crate) udp: Option<Nanos>,
    pub(crate) other: Option<Nanos>,
}

/// `flows`
#[derive(Args, Debug)]
pub(crate) struct FlowsOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    #[command(flatten)]
    pub(crate) aggregate: AggregateOptions,
}

/// Aggregation of flow records.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Aggregation")]
pub(crate) struct AggregateOptions {
    /// Print only the N largest groups [default with --by: all]
    #[arg(long, value_name = "N", value_parser = parse_positive::<usize>)]
    pub(crate) top: Option<usize>,
    /// Group flows by fields; addresses may have a prefix length: src_ip/24,dst_port
    #[arg(long, value_name = "KEY[,KEY]", value_delimiter = ',')]
    pub(crate) by: Vec<String>,
    /// Fields to add up; the first one orders the groups. "bytes" is src_bytes + dst_bytes
    #[arg(long, value_name = "FIELD[,FIELD]", value_delimiter = ',')]
    pub(crate) sum: Vec<String>,
}

/// `streams`
#[derive(Args, Debug)]
pub(crate) struct StreamsOptions {
    /// Write each direction's bytes to a file in this folder, named as tcpflow names them
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// With --out: fill the holes in the files with zeros, so that positions are those of the
    /// stream, as tcpflow does; otherwise the files hold the captured bytes one after the other
    #[arg(long, requires = "out")]
    pub(crate) fill_gaps: bool,
    /// Write one record per direction (the default, except with --out)
    #[arg(long, conflicts_with = "tally")]
    pub(crate) list: bool,
    /// Write one record per hole in a stream: where it begins and its size. With --list or --hash
    /// they come among the streams' records
    #[arg(long)]
    pub(crate) gaps: bool,
    /// Add the SHA-256 of the delivered bytes to each record
    #[arg(long)]
    pub(crate) hash: bool,
    /// Read every delivered byte and print totals only
    #[arg(long = "count", conflicts_with_all = ["gaps", "hash", "out"])]
    pub(crate) tally: bool,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
}

/// `report`
#[derive(Args, Debug)]
pub(crate) struct ReportOptions {
    /// Entries of each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parse_positive::<usize>)]
    pub(crate) top: usize,
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
}

/// `capture`
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("ring").multiple(true))]
pub(crate) struct CaptureOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    /// Write packets to this file ("-" is standard output); strftime fields are filled in with -G
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// File format [default: by the name's ending, else pcapng when several interfaces are read]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<CaptureFormat>,
    /// Begin a new file when one reaches so many million bytes (units K, M, G, KiB, MiB, GiB)
    #[arg(short = 'C', long = "file-size", value_name = "SIZE", value_parser = parse_file_size)]
    pub(crate) file_size: Option<u64>,
    /// Begin a new file every so many seconds
    #[arg(short = 'G', long = "rotate-seconds", value_name = "SECONDS", value_parser = parse_positive::<u64>)]
    pub(crate) rotate_seconds: Option<u64>,
    /// With -C: keep so many files and overwrite the oldest; with -G: stop after so many; with a
    /// ring: keep at most so many
    #[arg(short = 'W', long = "file-count", value_name = "FILES", value_parser = parse_positive::<u32>)]
    pub(crate) file_count: Option<u32>,
    /// Ring of files: keep only packets of the last so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["rotate_seconds", "file_size"], group = "ring", value_parser = parse_positive::<u64>)]
    pub(crate) ring_seconds: Option<u64>,
    /// Ring of files: keep at most so many bytes on disk (units K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["rotate_seconds", "file_size"], group = "ring")]
    pub(crate) ring_bytes: Option<u64>,
    /// With a ring: SIGUSR2 preserves what it holds and the packets of the next so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "ring")]
    pub(crate) ring_after: u64,
    /// Write each packet at once instead of collecting them
    #[arg(short = 'U', long = "packet-buffered")]
    pub(crate) packet_buffered: bool,
    /// Print the compiled filter and stop (-dd as C, -ddd as numbers)
    #[arg(short = 'd', action = clap::ArgAction::Count)]
    pub(crate) dump_filter: u8,
    /// List the interfaces and stop
    #[arg(short = 'D', long = "list-interfaces")]
    pub(crate) list_interfaces: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl CaptureOptions {
    /// The ring that was asked for, if one was.
    pub(crate) fn ring_limits(&self) -> Option<RingLimits> {
        if self.ring_seconds.is_none() && self.ring_bytes.is_none() {
            return None;
        }
        Some(RingLimits {
            files: self.file_count.map(|files| files as usize),
            bytes: self.ring_bytes,
            duration: self.ring_seconds.map(Nanos::from_secs),
            after: Nanos::from_secs(self.ring_after),
        })
    }
}

/// Capture file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaptureFormat {
    /// pcap with nanoseconds
    Pcap,
    /// pcap with microseconds
    PcapMicroseconds,
    /// pcapng
    Pcapng,
}

/// `packets`
#[derive(Args, Debug)]
pub(crate) struct PacketsOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    /// Print the link layer, too: Ethernet addresses and what the frame carries
    #[arg(short = 'e', long = "link")]
    pub(crate) link: bool,
    /// Print the bytes of each packet, too, in hexadecimal and ASCII
    #[arg(short = 'X', long = "hex")]
    pub(crate) hex: bool,
}

/// `generate`
#[derive(Args, Debug)]
pub(crate) struct GenerateOptions {
    /// The capture to write; what it holds is stated in FILE.truth.json beside it
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// What kind of traffic: mix, late, loss, web, small, syn, elephants, hostile or zoo [default: mix]
    #[arg(value_name = "PRESET", conflicts_with = "preset")]
    pub(crate) preset_word: Option<String>,
    /// The same as PRESET
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Seed: the same seed and options give the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Size relative to the preset's own
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Number of flows, about
    #[arg(long, value_name = "N", conflicts_with = "scale", value_parser = parse_positive::<u64>)]
    pub(crate) flows: Option<u64>,
    /// Number of packets, about
    #[arg(long, value_name = "N", conflicts_with_all = ["scale", "flows"], value_parser = parse_positive::<u64>)]
    pub(crate) packets: Option<u64>,
    /// Length of the trace
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// State totals only, not each stream
    #[arg(long)]
    pub(crate) summary: bool,
    /// Time stamps in nanoseconds rather than microseconds
    #[arg(long)]
    pub(crate) nanoseconds: bool,
    #[command(flatten)]
    pub(crate) shares: GenerateShares,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

/// What `generate` changes of a preset: shares from 0 to 1.
#[derive(Args, Debug)]
#[command(next_help_heading = "Shares from 0 to 1, where not the preset's own")]
pub(crate) struct GenerateShares {
    /// Flows over IPv6
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) ipv6: Option<f64>,
    /// Flows with a VLAN tag
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) vlan: Option<f64>,
    /// Flows with two VLAN tags
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) qinq: Option<f64>,
    /// Flows in tunnels (GRE, VXLAN, Geneve, GTP-U, 6in4, IP in IP)
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) tunnel: Option<f64>,
    /// Datagrams sent as fragments
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) fragments: Option<f64>,
    /// TCP connections whose beginning is not in the capture
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) mid_stream: Option<f64>,
    /// Data segments out of order
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) reordered: Option<f64>,
    /// Data segments sent twice
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) retransmitted: Option<f64>,
    /// Data segments lost before the capture and retransmitted a round trip later
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) lost: Option<f64>,
    /// Frames missing from the capture
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) missing: Option<f64>,
    /// Frames in the capture twice
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) duplicated: Option<f64>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1".to_owned()),
    }
}

/// `doctor`
#[derive(Args, Debug)]
pub(crate) struct DoctorOptions {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look at this interface only (several)
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: Vec<String>,
}

/// `tcp=300,udp=60,other=30` (any of them), or one number for all.
fn parse_idle_timeouts(text: &str) -> Result<IdleTimeouts, String> {
    let mut timeouts = IdleTimeouts::default();
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else {
            let all = Some(parse_seconds(part)?);
            timeouts = IdleTimeouts {
                tcp: all,
                udp: all,
                other: all,
            };
            continue;
        };
        let value = Some(parse_seconds(value)?);
        match name.trim() {
            "tcp" => timeouts.tcp = value,
            "udp" => timeouts.udp = value,
            "other" => timeouts.other = value,
            _ => return Err(format!("\"{name}\" is none of tcp, udp, other")),
        }
    }
    Ok(timeouts)
}

/// An overlap policy by its name.
fn parse_policy(text: &str) -> Result<OverlapPolicy, String> {
    text.parse::<OverlapPolicy>()
        .map_err(|error| error.to_string())
}

/// Seconds, with a fraction if need be; more than zero.
fn parse_seconds(text: &str) -> Result<Nanos, String> {
    let text = text.trim();
    let seconds: f64 = text
        .strip_suffix('s')
        .unwrap_or(text)
        .parse()
        .map_err(|_| format!("\"{text}\" is no number of seconds"))?;
    let nanos = seconds * 1e9;
    if !(nanos >= 1.0 && nanos < u64::MAX as f64) {
        return Err("must be more than zero and less than 500 years".to_owned());
    }
    Ok(Nanos(nanos as u64))
}

/// A whole number above zero, perhaps with k, M or G for thousands, millions, milliards.
fn parse_count(text: &str) -> Result<u64, String> {
    parse_scaled(
        text,
        &[("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)],
        1,
    )
}

/// A whole number above zero.
fn parse_positive<N: FromStr + Default + PartialEq>(text: &str) -> Result<N, String> {
    match text.parse() {
        Ok(number) if number == N::default() => Err("must be more than zero".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("\"{text}\" is no whole number above zero")),
    }
}

/// Bytes; K, M, G and T are powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, BINARY_UNITS, 1)
}

/// As tcpdump's -C: millions of bytes, or a number with a unit.
fn parse_file_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, BINARY_UNITS, 1_000_000)
}

const BINARY_UNITS: &[(&str, u64)] = &[
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

fn parse_scaled(text: &str, units: &[(&str, u64)], without: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let factor = if unit.is_empty() {
        without
    } else {
        let Some((_, factor)) = units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
        else {
            let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "unknown unit \"{unit}\"; known: {}",
                names.join(", ")
            ));
        };
        *factor
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("\"{text}\" is no whole number"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("must be more than zero".to_owned()),
        Some(product) => Ok(product),
        None => Err("is too large".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
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

    #[test]
    fn idle_timeouts() {
        assert_eq!(
            parse_idle_timeouts("tcp=300,other=0.5"),
            Ok(IdleTimeouts {
                tcp: Some(Nanos::from_secs(300)),
                udp: None,
                other: Some(Nanos::from_millis(500)),
            })
        );
        let all = Some(Nanos::from_secs(9));
        assert_eq!(
            parse_idle_timeouts("9"),
            Ok(IdleTimeouts {
                tcp: all,
                udp: all,
                other: all
            })
        );
        assert!(parse_idle_timeouts("sctp=1").is_err());
        assert!(parse_idle_timeouts("tcp=-1").is_err());
        assert!(parse_idle_timeouts("tcp=inf").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("100"), Ok(100));
        assert_eq!(parse_file_size("2"), Ok(2_000_000));
        assert_eq!(parse_file_size("2KiB"), Ok(2048));
        assert_eq!(parse_count("3k"), Ok(3000));
        assert!(parse_size("0").is_err());
        assert!(parse_size("1Q").is_err());
        assert!(parse_size("99999999999T").is_err());
    }
}
