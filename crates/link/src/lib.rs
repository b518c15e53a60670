//! Channels of numbered items between machines: authenticated, encrypted, and exact about what was
//! lost.
//!
//! A [`Sender`] connects to a [`Listener`] over TCP and TLS 1.3; both have a certificate of the same
//! authority ([`KeyFolder`]). What it sends are frames of a few hundred kilobytes, each with so many
//! *items*; what an item is only the two ends know. Items are numbered. A frame stays in the sender's
//! spool until the other end has *processed* it; after a connection broke, what was not processed is
//! written again, and what comes twice is left out. Where the spool is full, items are lost (or their
//! source waits), and the gap in the numbers tells the other end how many.
//!
//! So, for each session, whatever breaks in between:
//!
//! ```text
//! items given to the sender = taken by earlier listeners + received + lost (+ on the way)
//! ```
//!
//! Blocking threads, two per connection; a [`Reactor`] receives for many. What is on the wire is in `docs/links.md`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod acceptor;
mod carrier;
mod certificate;
mod client;
mod disk;
mod error;
mod frame;
mod identity;
mod listener;
mod message;
mod reactor;
mod reception;
mod secure;
mod sender;
mod spool;
#[cfg(test)]
mod tests;

pub use acceptor::ListenerOptions;
pub use carrier::{Arrived, Carriage, Carrier};
pub use certificate::Validity;
pub use error::{Error, Refusal};
pub use flowgauge_sys::notice::{tell, tell_notices};
#[doc(hidden)]
pub use frame::fuzz;
pub use identity::{Identity, KeyFile, KeyFolder, https_client_of, random, read_secret};
pub use listener::{Listener, SessionCounts};
pub use message::{Conversation, MessageSender, Responder};
pub use reactor::Reactor;
pub use reception::{EndOfSession, Event, Receipt, ReceivedItems, Reception, SessionId};
pub use secure::Peer;
pub use sender::{Sender, SenderOptions, Sent};
pub use spool::{SenderCounts, WhenFull};
