//! QUIC: Initial packets are opened, for what client and server say in their hellos (RFC 9000, RFC 9001;
//! version 2: RFC 9369; drafts 23 to 32, Google's T050 and T051, Facebook's of draft 27).
//!
//! Both directions come to one [`Parser`], because the keys of both follow from the client's first
//! packet. Frames can come in any order and in several packets; at most 64 KiB of them wait for those
//! before. What comes behind the Initial packets is encrypted with keys that only the two have, the
//! server's certificate among it.

mod crypto;
mod keys;
mod packet;
mod parser;
#[cfg(test)]
mod tests;

pub use packet::{Kind, Version};
pub use parser::{Events, Packet, Parser, look};
