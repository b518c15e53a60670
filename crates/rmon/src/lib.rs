//! RMON's tables (RFC 2819, 4502) and the subagent that shows them to SNMP managers (AgentX, RFC 2741).
//!
//! [`Tree`] stands between both: objects by their identifiers, read in order and set in two phases. The
//! tables implement it and do no I/O; the subagent asks it for whatever its master asks for.
//!
//! # From packets to objects
//! ```text
//!  batch --> layers of the directory --> conversation --> gathered packets, octets, tick
//!             (paths, layers)             (observe)              |  when somebody looks, or rows have to go
//!                                                                v
//!  Tree <-- declared columns <-- rows in order <-- hosts, pairs, protocols, stations (store, stations, tables)
//!            (mib, declared)      (order)                        ^
//!                                                                |  begin, end, bound them
//!  sets --> control rows --> effects, jobs (reports, histories, alarms)
//! ```
//!
//! # Where the RFCs leave a choice
//! - Octets are the larger of the frame's length and 60, and 4 for the check sequence. Frames with errors are not seen.
//! - A packet that is longer than the interface's MTU was merged of several (GRO, TSO): it counts as the full frames and the last one that
//!   it was of. To channels and captures it is one packet.
//! - Of two ports that both are of known protocols, the lower one counts.
//! - Headers between IPv6 and its transport are no layers of the directory. LLC behind a VLAN tag is none, either.
//! - VLAN tags are one layer, `ieee802.1q`, whatever number and kind there is of them. SMON's tables have the outermost one.
//! - Link layers other than Ethernet count as `ether2` of the same type; they have no stations and map no addresses.
//! - The wildcard `*ether2` counts over Ethernet II, SNAP and vendor SNAP; it is in protocolDist from the start and can be
//!   switched on for hosts and matrices.
//! - Where there is no room, the least recently used row goes; of stations (RFC 2819) the oldest one. Frames are dropped
//!   only where the bound is 0.
//! - Filters see what was captured of a packet; the only error of a packet that they know is that it is too long. An event of a channel
//!   is logged and switches channels; there is no notification for it.
//! - A walk with a time filter passes once through the rows of its mark and goes on with the next control row's at mark 0.
//! - A report has no rows whose rate is 0. A report that ends long after its time, as no packet came, is empty.
//!
//! # What is not there
//! Token ring, the media-independent group of RFC 3273, copies of ports and data sources of VLANs (RFC 2613, which are
//! about switches: no interface can be copied from or to, as dataSourceCopyCaps says); sessions other than TFTP's; layers above
//! applications (RFC 3395).

#![forbid(unsafe_code)]

pub mod agentx;
mod alarms;
mod captured;
#[cfg(test)]
mod compliance;
mod computed;
mod control;
mod declared;
pub mod directory;
mod effects;
pub mod feed;
mod found;
mod frame;
mod history;
mod jobs;
mod keys;
mod layers;
mod mib;
#[cfg(test)]
#[path = "../../../tests/shared/modules.rs"]
mod modules;
mod observe;
mod oid;
mod order;
pub mod others;
mod paths;
mod probe;
mod protocols;
pub mod reaction;
mod reports;
mod rows;
mod saved;
mod shown;
#[cfg(test)]
#[path = "../../../tests/shared/skipped.rs"]
mod skipped;
mod smon;
mod station_rows;
mod stations;
mod store;
mod tables;
mod tree;
mod value;
#[cfg(test)]
mod writable;

pub use control::Change;
pub use mib::declared;
pub use oid::{BadOid, Oid, Parts};
pub use probe::Probe;
pub use saved::LoadError;
pub use shown::{HostCounts, PairCounts, ProtocolCounts};
pub use tree::{Notification, Ticks, Tree};
pub use value::{Missing, SetError, Value};
