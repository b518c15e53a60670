//! `capture`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use flowgauge_capture::sink::RingLimits;
use flowgauge_wire::Nanos;

use super::chunks::CutoffOptions;
use super::shared::{BoundOptions, CommonOptions, InputOptions};
use super::values::{parse_duration, parse_file_size, parse_positive, parse_seconds, parse_size};

/// `capture`
#[derive(Args, Debug, Default)]
#[command(
    group = clap::ArgGroup::new("ring").multiple(true),
    mut_arg("cutoff", |arg| arg.help(
        "Write only packets with the first bytes of each stream, and SYN, FIN and RST"
    )),
    mut_arg("max_flows", |arg| arg.help(
        "With a cutoff: maximum number of tracked flows; beyond it, the longest idle is evicted, and its later packets \
         start a new stream"
    )),
    mut_arg("memory", |arg| arg.help(
        "With a cutoff: memory for tracked flows and fragments; at least 1M per worker"
    )),
)]
pub(crate) struct CaptureOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) cutoffs: CutoffOptions,
    #[command(flatten)]
    pub(crate) bounds: BoundOptions,
    #[command(flatten)]
    pub(crate) files: WriteOptions,
    /// Ring of files: keep the packets of the last DURATION
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with_all = ["rotate_time", "rotate_size"], group = "ring")]
    pub(crate) ring_time: Option<Nanos>,
    /// Ring of files: keep at most SIZE on disk
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["rotate_time", "rotate_size"], group = "ring")]
    pub(crate) ring_size: Option<u64>,
    /// With a ring: SIGUSR2 preserves its content and the packets of the next DURATION
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "ring")]
    pub(crate) ring_after: Option<Nanos>,
    /// Write each packet immediately, without buffering
    #[arg(short = 'U', long = "packet-buffered")]
    pub(crate) packet_buffered: bool,
    /// Print the compiled filter and exit (-dd as C, -ddd as numbers)
    #[arg(short = 'd', action = clap::ArgAction::Count)]
    pub(crate) dump_filter: u8,
    /// List the interfaces and exit
    #[arg(short = 'D', long = "list-interfaces")]
    pub(crate) list_interfaces: bool,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl CaptureOptions {
    /// The ring that was asked for, if one was.
    pub(crate) fn ring_limits(&self) -> Option<RingLimits> {
        if self.ring_time.is_none() && self.ring_size.is_none() {
            return None;
        }
        Some(RingLimits {
            files: self.files.rotate_files.map(|files| files as usize),
            bytes: self.ring_size,
            duration: self.ring_time,
            after: self.ring_after.unwrap_or_default(),
        })
    }
}

/// Where packets are written.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Write packets to this file ("-" is standard output); strftime fields are filled in with -G
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// File format [default: by file name, else pcapng for several interfaces]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<CaptureFormat>,
    /// Start a new file when one reaches SIZE; a bare number is millions of bytes, as in tcpdump
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = parse_file_size)]
    pub(crate) rotate_size: Option<u64>,
    /// Start a new file every DURATION
    #[arg(short = 'G', long, value_name = "DURATION", value_parser = parse_seconds)]
    pub(crate) rotate_time: Option<u64>,
    /// With -C: keep FILES files and overwrite the oldest; with -G: stop after FILES; with a ring: keep at most FILES
    #[arg(short = 'W', long, value_name = "FILES", value_parser = parse_positive::<u32>)]
    pub(crate) rotate_files: Option<u32>,
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
