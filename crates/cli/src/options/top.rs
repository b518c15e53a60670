//! `top`

use clap::{Args, ValueEnum};
use flowgauge_wire::Nanos;

use super::shared::{CommonOptions, InputOptions, PresetOptions};
use super::values::parse_duration;

/// What a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    #[default]
    Talkers,
    Flows,
    Protocols,
}

/// `top`
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: t talkers, f flows, o protocols (or Tab); r rate, b bytes, p packets to sort by; q to quit\n\n\
                  Example: flowgauge top -i eth0 tcp port 443"
)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,
    /// What is shown first
    #[arg(long, value_name = "VIEW", value_enum, default_value_t)]
    pub(crate) view: View,
    /// Draw the page so often
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) every: Nanos,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(flatten)]
    pub(crate) preset: PresetOptions,
}
