//! `replay`

use std::ffi::OsString;

use clap::Args;

use super::values::{parse_bit_rate, parse_positive};

/// `replay`
#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// Send packets from files, merged by time ("-" is standard input)
    #[arg(short = 'r', long = "read", value_name = "FILE...", required = true)]
    pub(crate) read: Vec<OsString>,
    /// Interface to send on
    #[arg(short = 'i', long = "interface", value_name = "IFACE")]
    pub(crate) interface: String,
    /// Deliver packets as if the interface had received them; nothing is sent (needs CAP_BPF)
    #[arg(long)]
    pub(crate) inbound: bool,
    #[command(flatten)]
    pub(crate) speed: Speed,
    /// Send everything N times, each time with other addresses, so that flows are new
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) rounds: u32,
    /// With --loop, keep addresses
    #[arg(long)]
    pub(crate) same_addresses: bool,
    /// Stop after this many packets
    #[arg(short = 'c', long = "packet-count", value_name = "PACKETS", value_parser = parse_positive::<u64>)]
    pub(crate) packet_count: Option<u64>,
    /// Send even on an interface with a default route
    #[arg(long)]
    pub(crate) force: bool,
    /// Write a summary as one JSON object to standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but results and errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Further files to read, then a filter in pcap-filter(7) syntax
    #[arg(value_name = "FILTER")]
    pub(crate) rest: Vec<OsString>,
}

/// How fast packets are sent [default: as they were captured].
#[derive(Args, Clone, Copy, Debug)]
#[group(multiple = false)]
pub(crate) struct Speed {
    /// Bits of frames per second: 100mbit, 1gbit
    #[arg(long, value_name = "RATE", value_parser = parse_bit_rate)]
    pub(crate) rate: Option<f64>,
    /// Packets per second
    #[arg(long, value_name = "N", value_parser = parse_positive::<u64>)]
    pub(crate) pps: Option<u64>,
    /// Speed relative to the capture
    #[arg(long, value_name = "FACTOR")]
    pub(crate) multiplier: Option<f64>,
    /// As fast as possible
    #[arg(long)]
    pub(crate) topspeed: bool,
}
