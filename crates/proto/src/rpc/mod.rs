//! Remote procedure calls of ONC (RFC 5531): the headers of calls and replies, over UDP and in the
//! records of a TCP stream; what the portmapper (RFC 1833) tells of ports; names of the procedures of
//! portmapper, mount and NFS (RFC 1094, 1813, 7530).
//!
//! ```
//! use flowgauge_proto::rpc::{Body, Message};
//!
//! let bytes = b"\0\0\0\x07\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
//!               \0\x01\x86\xa3\0\0\0\x03\0\0\0\x11\0\0\0\0";
//! let message = Message::read(bytes).unwrap();
//! let Body::Call(call) = message.body else { panic!("a reply") };
//! assert_eq!((call.program_name(), call.procedure_name()), (Some("portmapper"), Some("getport")));
//! assert_eq!(message.xid, 7);
//! ```
//!
//! # Holes
//! A record of a stream has its length before each of its fragments, so that a hole within it is
//! counted and read over. Of a record the first bytes are kept, the others counted.

mod framer;
mod message;
mod names;

pub use framer::{Frame, Framer};
pub use message::{
    Body, Call, Mapping, Message, Outcome, Reply, auth_name, look, look_stream, mapped_port,
    mappings, mount_path,
};
pub use names::{procedure_name, program_name, status_name};
