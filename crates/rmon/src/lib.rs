//! RMON's tables (RFC 2819, 4502) and the subagent that shows them to SNMP managers (AgentX, RFC 2741).
//!
//! [`Tree`] stands between both: objects by their identifiers, read in order and set in two phases. The
//! tables implement it and do no I/O; the subagent asks it for whatever its master asks for.

#![forbid(unsafe_code)]

pub mod agentx;
mod alarms;
#[cfg(test)]
mod compliance;
mod computed;
mod control;
mod declared;
pub mod directory;
mod effects;
mod history;
mod jobs;
mod keys;
mod layers;
mod mib;
mod observe;
mod oid;
mod order;
mod paths;
mod probe;
mod protocols;
mod reports;
mod rows;
mod saved;
mod shown;
mod smon;
mod station_rows;
mod stations;
mod store;
mod tables;
mod tree;
mod value;

pub use control::Change;
pub use mib::declared;
pub use oid::{BadOid, Oid, Parts};
pub use probe::Probe;
pub use saved::LoadError;
pub use shown::{HostCounts, PairCounts, ProtocolCounts};
pub use tree::{Notification, Ticks, Tree};
pub use value::{Missing, SetError, Value};
