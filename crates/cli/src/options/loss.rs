//! `flowgauge loss`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use flowgauge_wire::Nanos;

use super::sensor::SensorAt;
use super::shared::OutputOptions;
use super::values::{parse_duration, parse_positive};

/// `loss`
#[derive(Args, Debug)]
pub(crate) struct LossOptions {
    /// Devices of sensors in path order, separated by commas, or a scope: a:eth0,b:eth0 or campus/*
    #[arg(long, value_name = "DEVICES", required_unless_present = "read")]
    pub(crate) between: Option<String>,
    /// Compare capture files instead of sensors, one point each, in path order
    #[arg(short = 'r', long, value_name = "FILE...", num_args = 1.., conflicts_with_all = ["between", "sensor", "time"])]
    pub(crate) read: Vec<OsString>,
    /// Compare only packets that match, in pcap-filter(7) syntax
    #[arg(long, value_name = "FILTER")]
    pub(crate) filter: Option<String>,
    /// Time between records
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub(crate) every: Nanos,
    /// Exit after this time [default: when stopped]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) time: Option<Nanos>,
    /// Compare every pair of points
    #[arg(long)]
    pub(crate) matrix: bool,
    /// Packets of both directions pass the points in the given order, as forwarded mirror copies do
    #[arg(long)]
    pub(crate) one_way: bool,
    /// Also write a record per flow
    #[arg(long)]
    pub(crate) flows: bool,
    /// Draw loss over time to an SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Packets compared per flow direction and interval
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) marks: u8,
    /// Maximum number of flows at once
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = parse_positive::<usize>)]
    pub(crate) max_flows: usize,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
    #[command(flatten)]
    pub(crate) sensor: SensorAt,
}
