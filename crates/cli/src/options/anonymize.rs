//! `anonymize`

use std::path::PathBuf;

use clap::Args;

use super::capture::{CaptureOptions, WriteOptions};
use super::shared::{CommonOptions, InputOptions};

/// `anonymize`
#[derive(Args, Debug)]
pub(crate) struct AnonymizeOptions {
    /// Policy in TOML: what is kept and replaced (docs/anonymization.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) files: WriteOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

impl AnonymizeOptions {
    /// The same as options of `capture`.
    pub(crate) fn capture(&self) -> CaptureOptions {
        CaptureOptions {
            input: self.input.clone(),
            files: self.files.clone(),
            common: self.common.clone(),
            ..CaptureOptions::default()
        }
    }
}
