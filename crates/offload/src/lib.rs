//! Backends of verdicts ([`flowgauge_stream::offload`]): the kernel withholds unwanted packets of flows before they are
//! copied.
//!
//! [`SocketFilter`] is a program on a capture's packet socket. It sees copies, so the traffic itself is not affected.
//! On a mirror port, it is attached to the interface instead, and only this capture gets the packets.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod attach;
mod backends;
mod classic;
mod error;
mod fanout;
mod inbound;
mod overload;
mod slots;
mod socket;

pub use attach::{Attacher, Offloaded};
pub use backends::Backends;
pub use error::Error;
pub use fanout::Fanout;
pub use inbound::Inbound;
pub use socket::{DEFAULT_FLOWS, SocketFilter, Statistics, StatisticsReader};
