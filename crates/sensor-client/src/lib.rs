//! What users and the sensor say to each other ([`protocol`]), and a user's end of the connection (`Client`), with the
//! feature `client`: that of sensors of other machines is TLS. No engine is in here: a program that links it only asks.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use flowgauge_sys::files::{self, Folder, SecretError};

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod flow;
pub mod layout;
#[cfg(feature = "client")]
pub mod members;
pub mod programs;
pub mod protocol;
#[cfg(feature = "client")]
pub mod remote;
#[cfg(feature = "client")]
pub mod scope;
#[cfg(feature = "client")]
mod scope_flow;
#[cfg(feature = "client")]
pub mod turns;

#[cfg(feature = "client")]
pub use client::{Client, ClientError};
#[cfg(feature = "client")]
pub use flow::{Batch, Flow, Packet, Reading, Readings};
#[cfg(feature = "client")]
pub use members::MemberState;
#[cfg(feature = "client")]
pub use remote::{News, PREFETCH};
#[cfg(feature = "client")]
pub use scope_flow::{ScopeFlow, Sensors};

use protocol::Secret;

/// Where users come to, unless the sensor's configuration says something else.
pub const DEFAULT_SOCKET: &str = "/run/flowgauge/sensor.sock";

/// Where users come to: what `FLOWGAUGE_SENSOR` names, else [`DEFAULT_SOCKET`].
pub fn socket_of_environment() -> PathBuf {
    let named = std::env::var_os("FLOWGAUGE_SENSOR").filter(|name| !name.is_empty());
    named.map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

/// The environment's variable that names the file of a credential.
pub const CREDENTIAL_VARIABLE: &str = "FLOWGAUGE_CREDENTIAL";

/// The credential that the environment says is to be brought to sensors.
///
/// # Errors
/// Its file cannot be read, or others can read it, too.
pub fn credential_of_environment() -> Result<Option<Secret>, SecretError> {
    let named = std::env::var_os(CREDENTIAL_VARIABLE).filter(|name| !name.is_empty());
    let text = named.map(|path| files::read_secret(&Folder::anywhere(), path.as_ref()));
    Ok(text.transpose()?.map(|text| Secret::new(text.trim())))
}
