//! What users and the sensor say to each other ([`protocol`]), and a user's end of the connection ([`Client`]). No engine is in
//! here: a program that links it only asks.
#![forbid(unsafe_code)]

use std::path::PathBuf;

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

/// Where users come to: what `FLOWGAUGE_SENSOR` names, else [`DEFAULT_SOCKET`].
pub fn socket_of_environment() -> PathBuf {
    let named = std::env::var_os("FLOWGAUGE_SENSOR").filter(|name| !name.is_empty());
    named.map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}
