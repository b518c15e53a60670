//! `match`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::chunks::{CutoffOptions, OrderOptions};
use super::shared::{EngineOptions, InputOptions, OutputOptions, PresetOptions};
use super::values::parse_positive;

/// `match`
#[derive(Args, Debug)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(true),
    mut_arg("cutoff", |arg| arg.help("Search only the first bytes of each stream (units K, M, G)")),
    after_help = "A pattern is a line: the bytes to find as they stand; \"text |0d 0a|\" in quotation marks \
                  with\nbytes in hexadecimal; content:\"text\"; nocase; offset:4; depth:20; msg:\"name\"; sid:7 \
                  as in\nSnort's rules; or /expression/imsx. Lines with # and empty ones do not count.\n\n\
                  Example: flowgauge match -r capture.pcap -e '/passw(or)?d=/i' tcp port 80"
)]
pub(crate) struct MatchOptions {
    #[command(flatten)]
    pub(crate) patterns: PatternOptions,
    /// Report each pattern once per stream, where it is found first
    #[arg(long, conflicts_with = "tally")]
    pub(crate) first: bool,
    /// Print how often each pattern was found, and in how many streams, rather than where
    #[arg(long = "count")]
    pub(crate) tally: bool,
    /// Stop after so many matches
    #[arg(short = 'm', long, value_name = "N", value_parser = parse_positive::<u64>)]
    pub(crate) max_matches: Option<u64>,
    #[command(flatten, next_help_heading = "Streams")]
    pub(crate) cutoffs: CutoffOptions,
    #[command(flatten, next_help_heading = "Streams")]
    pub(crate) order: OrderOptions,
    #[command(flatten)]
    pub(crate) input: InputOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
    #[command(flatten)]
    pub(crate) preset: PresetOptions,
}

/// What is searched for, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Patterns")]
pub(crate) struct PatternOptions {
    /// Read patterns from a file, one per line (several; "-" is standard input)
    #[arg(short = 'f', long = "patterns", value_name = "FILE", group = "what")]
    pub(crate) files: Vec<PathBuf>,
    /// Find this pattern, written as a line of a file (several)
    #[arg(
        short = 'e',
        long = "pattern",
        value_name = "PATTERN",
        group = "what",
        allow_hyphen_values = true
    )]
    pub(crate) given: Vec<OsString>,
    /// Take every pattern as the bytes it is written with
    #[arg(long)]
    pub(crate) fixed_strings: bool,
    /// Upper and lower case letters (A to Z) are the same
    #[arg(long)]
    pub(crate) ignore_case: bool,
    /// What searches
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = MatchEngine::Auto)]
    pub(crate) matcher: MatchEngine,
}

/// What searches for patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MatchEngine {
    /// Vectorscan where its library is installed, else aho-corasick
    Auto,
    /// The Vectorscan (or Hyperscan) library
    Vectorscan,
    /// Built in; slower, and without regular expressions
    AhoCorasick,
}
