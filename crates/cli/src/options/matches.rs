//! `match`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::chunks::{CutoffOptions, OrderOptions};
use super::passed::{passed, rare};
use super::shared::{EngineOptions, InputOptions, OutputOptions, PresetOptions, SelectOptions};

/// `match`
#[derive(Args, Debug)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(true),
    mut_arg("cutoff", |arg| arg.help("Search only the first bytes of each stream")),
    after_help = "Example: flowgauge match -r capture.pcap -e '/passw(or)?d=/i' tcp port 80",
    after_long_help = "A pattern is a line: literal bytes; \"text |0d 0a|\" in quotation marks, with bytes in hexadecimal; \
                  content:\"text\"; nocase; offset:4; depth:20; msg:\"name\"; sid:7 \
                  as in\nSnort's rules; or /expression/imsx. Lines with # and empty lines are ignored.\n\n\
                  Example: flowgauge match -r capture.pcap -e '/passw(or)?d=/i' tcp port 80"
)]
pub(crate) struct MatchOptions {
    #[command(flatten)]
    pub(crate) patterns: PatternOptions,
    #[command(flatten)]
    pub(crate) found: FoundOptions,
    #[command(flatten, next_help_heading = "Streams")]
    pub(crate) cutoffs: CutoffOptions,
    #[command(flatten, next_help_heading = "Streams")]
    pub(crate) order: OrderOptions,
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
    #[command(flatten)]
    pub(crate) how: SearchOptions,
}

passed! {
    /// How patterns are read and searched for.
    SearchOptions of "match" {
        fixed: |arg| arg.long("fixed-strings"),
        ignore_case,
        matcher: rare,
    }
}

passed! {
    /// What is reported of what was found.
    FoundOptions of "match" {
        all_matches,
        first: |arg| arg.conflicts_with("count"),
        count,
        max_matches: |arg| arg.short('m'),
    }
}
