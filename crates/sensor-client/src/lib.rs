//! What users and the sensor say to each other ([`protocol`]), and a user's end of the connection ([`Client`]). No engine is in
//! here: a program that links it only asks.
#![forbid(unsafe_code)]

mod client;
mod flow;
pub mod layout;
pub mod members;
pub mod programs;
pub mod protocol;
pub mod remote;
pub mod scope;
mod scope_flow;
pub mod turns;

pub use client::{CREDENTIAL_VARIABLE, Client, ClientError, credential_of_environment};
pub use flow::{Batch, Flow, Packet, Reading, Readings};
pub use members::MemberState;
pub use remote::PREFETCH;
pub use scope_flow::{ScopeFlow, Sensors};

/// Where users come to, unless the sensor's configuration says something else.
pub const DEFAULT_SOCKET: &str = "/run/flowgauge/sensor.sock";
