//! `generate`

use std::path::PathBuf;

use clap::Args;
use flowgauge_generate::Config;
use flowgauge_wire::Nanos;

use super::values::{parse_duration, parse_positive, share};

/// `generate`
#[derive(Args, Debug)]
pub(crate) struct GenerateOptions {
    /// The capture to write; its ground truth is written to FILE.truth.json
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Kind of traffic: mix, late, loss, web, small, syn, elephants, hostile or zoo [default: mix]
    #[arg(value_name = "PRESET", conflicts_with = "preset")]
    pub(crate) preset_word: Option<String>,
    /// The same as PRESET
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Seed: the same seed and options give the same bytes
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 1
    )]
    pub(crate) seed: u64,
    /// Size relative to the preset's own
    #[arg(
        long,
        value_name = "FACTOR",
        allow_negative_numbers = true,
        default_value_t = 1.0
    )]
    pub(crate) scale: f64,
    /// Approximate number of flows
    #[arg(long, value_name = "N", conflicts_with = "scale", value_parser = parse_positive::<u64>)]
    pub(crate) flows: Option<u64>,
    /// Approximate number of packets
    #[arg(long, value_name = "N", conflicts_with_all = ["scale", "flows"], value_parser = parse_positive::<u64>)]
    pub(crate) packets: Option<u64>,
    /// Length of the trace
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = parse_duration)]
    pub(crate) duration: Option<Nanos>,
    /// Ground truth with totals only, without streams
    #[arg(long)]
    pub(crate) summary: bool,
    /// Timestamps in nanoseconds instead of microseconds
    #[arg(long)]
    pub(crate) nanoseconds: bool,
    #[command(flatten)]
    pub(crate) shares: GenerateShares,
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

macro_rules! shares {
    ($($(#[$doc:meta])* $option:ident: $field:ident;)*) => {
        /// What `generate` changes of a preset: shares from 0 to 1.
        #[derive(Args, Debug)]
        #[command(next_help_heading = "Shares from 0 to 1, instead of the preset's own")]
        pub(crate) struct GenerateShares {
            $($(#[$doc])*
            #[arg(long, value_name = "SHARE", allow_negative_numbers = true, value_parser = share)]
            $option: Option<f64>,)*
        }

        impl GenerateShares {
            /// Changes what was given.
            pub(crate) fn change(&self, config: &mut Config) {
                $(config.$field = self.$option.unwrap_or(config.$field);)*
            }
        }
    };
}

shares! {
    /// Flows over IPv6
    ipv6: ipv6;
    /// Flows with a VLAN tag
    vlan: vlan;
    /// Flows with two VLAN tags
    qinq: qinq;
    /// Flows in tunnels (GRE, VXLAN, Geneve, GTP-U, 6in4, IP in IP)
    tunnel: tunnel;
    /// Datagrams sent as fragments
    fragments: fragments;
    /// TCP connections picked up mid-stream
    mid_stream: mid_stream;
    /// Data segments out of order
    reordered: reordered;
    /// Data segments sent twice
    retransmitted: retransmitted;
    /// Data segments lost before the capture and retransmitted a round trip later
    lost: lost_upstream;
    /// Frames missing from the capture
    missing: missing;
    /// Frames in the capture twice
    duplicated: duplicated;
}
