//! The sensor: a permanent process that owns capture devices and serves everybody who wants something of their packets.
//!
//! A [`Config`] names devices (interfaces, or files for tests and replays), stacks that always run, and users with their
//! rights. Each device has a thread that takes its packets through the stacks of the configuration and those of users, which
//! share engines as stacks of one run do. Users come to a local socket ([`flowgauge_sensor_client`]); a *flow* of theirs is a
//! stack, as MAPI's flows are, and ends with their connection.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accounts;
pub mod config;
mod device;
mod granted;
mod news;
mod orders;
mod paced;
mod people;
mod readers;
mod results;
mod rights;
mod rings;
mod rmon;
mod sensor;
mod session;
mod sharing;
mod text;
mod turns;

pub use config::{Config, ConfigError};
pub use device::Source;
pub use granted::facts_of;
pub use rights::{Rights, function};
pub use rmon::RmonConfig;
pub use sensor::{Alone, Sensor, StartError};
pub use text::filter_error;
