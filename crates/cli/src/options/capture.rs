//! `capture`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use flowgauge_capture::sink::RingLimits;
use flowgauge_wire::Nanos;

use super::chunks::CutoffOptions;
use super::shared::{BoundOptions, CommonOptions, InputOptions};
use super::values::{parse_file_size, parse_positive, parse_size};

/// `capture`
#[derive(Args, Debug, Default)]
#[command(
    group = clap::ArgGroup::new("ring").multiple(true),
    mut_arg("cutoff", |arg| arg.help(
        "Write only packets with the first BYTES of each stream (units K, M, G), and those that begin or end connections"
    )),
    mut_arg("max_flows", |arg| arg.help(
        "With a cutoff: maximum number of tracked flows; beyond it, the longest idle is evicted, and its later packets \
         start a new stream"
    )),
    mut_arg("memory", |arg| arg.help(
        "With a cutoff: memory for tracked flows and fragments (units K, M, G); at least 1M per worker"
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
    /// Ring of files: keep the packets of the last SECONDS
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["rotate_seconds", "file_size"], group = "ring", value_parser = parse_positive::<u64>)]
    pub(crate) ring_seconds: Option<u64>,
    /// Ring of files: keep at most SIZE bytes on disk (units K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["rotate_seconds", "file_size"], group = "ring")]
    pub(crate) ring_bytes: Option<u64>,
    /// With a ring: SIGUSR2 preserves its content and the packets of the next SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "ring")]
    pub(crate) ring_after: u64,
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
        if self.ring_seconds.is_none() && self.ring_bytes.is_none() {
            return None;
        }
        Some(RingLimits {
            files: self.files.file_count.map(|files| files as usize),
            bytes: self.ring_bytes,
            duration: self.ring_seconds.map(Nanos::from_secs),
            after: Nanos::from_secs(self.ring_after),
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
    /// Start a new file when one reaches SIZE million bytes (units K, M, G, KiB, MiB, GiB)
    #[arg(short = 'C', long = "file-size", value_name = "SIZE", value_parser = parse_file_size)]
    pub(crate) file_size: Option<u64>,
    /// Start a new file every SECONDS
    #[arg(short = 'G', long = "rotate-seconds", value_name = "SECONDS", value_parser = parse_positive::<u64>)]
    pub(crate) rotate_seconds: Option<u64>,
    /// With -C: keep FILES files and overwrite the oldest; with -G: stop after FILES; with a ring: keep at most FILES
    #[arg(short = 'W', long = "file-count", value_name = "FILES", value_parser = parse_positive::<u32>)]
    pub(crate) file_count: Option<u32>,
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
