//! `anonymize`

use std::path::PathBuf;

use clap::Args;

use super::capture::{CaptureFormat, CaptureOptions};
use super::shared::{CommonOptions, InputOptions};
use super::values::{parse_file_size, parse_positive};

/// `anonymize`
#[derive(Args, Debug)]
pub(crate) struct AnonymizeOptions {
    /// What is kept and replaced, in TOML: docs/anonymization.md
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
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
    /// With -C: keep so many files and overwrite the oldest; with -G: stop after so many
    #[arg(short = 'W', long = "file-count", value_name = "FILES", value_parser = parse_positive::<u32>)]
    pub(crate) file_count: Option<u32>,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl AnonymizeOptions {
    /// The same as options of `capture`.
    pub(crate) fn capture(&self) -> CaptureOptions {
        CaptureOptions {
            input: self.input.clone(),
            cutoff: None,
            write: self.write.clone(),
            format: self.format,
            file_size: self.file_size,
            rotate_seconds: self.rotate_seconds,
            file_count: self.file_count,
            ring_seconds: None,
            ring_bytes: None,
            ring_after: 0,
            packet_buffered: false,
            dump_filter: 0,
            list_interfaces: false,
            common: self.common.clone(),
        }
    }
}
