//! A subagent of AgentX (RFC 2741): it shows a [`Tree`](crate::Tree) to the managers of a master, such as
//! Net-SNMP's `snmpd`.
//!
//! [`Session`] is the protocol, without I/O and clock; [`run`] keeps a session over a socket. Who may read
//! and write is the master's to decide.

mod codec;
mod connection;
mod message;
mod session;

pub use codec::{HEADER, Header, MAX_PAYLOAD, Malformed};
pub use connection::{Address, BadAddress, Event, Options, run};
pub use message::{Binding, Bound, Message, Pdu, Range, Region, Response, error, flag};
pub use session::{Ended, Identity, Now, Session};
