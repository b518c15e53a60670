//! `flowgauge element`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use flowgauge_element::config::DEFAULT_FILE;

/// `element`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ElementOptions {
    #[command(flatten)]
    pub(crate) config: ElementConfigOptions,
    #[command(subcommand)]
    pub(crate) command: Option<ElementCommand>,
}

/// What is done in place of running.
#[derive(Debug, Subcommand)]
pub(crate) enum ElementCommand {
    /// Check a configuration
    Check(ElementConfigOptions),
}

/// A configuration.
#[derive(Args, Debug)]
pub(crate) struct ElementConfigOptions {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    pub(crate) config: PathBuf,
}
