//! Backends of verdicts ([`flowgauge_stream::offload`]): what nobody wants of a flow is kept away by the kernel, before it is
//! copied.
//!
//! [`SocketFilter`] is a program on the packet socket of a capture, which sees copies: the traffic itself is what it is without. Or
//! it stands before the packets of a mirror port, which only this capture gets.
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
