//! Anonymization of packets and records.
//!
//! [`CryptoPan`] replaces addresses so that those with a common prefix have a common prefix of the
//! same length afterwards, and no others.
#![forbid(unsafe_code)]

mod cryptopan;
mod key;

pub use cryptopan::CryptoPan;
pub use key::Key;
