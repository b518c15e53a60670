//! Parsers of application protocols, over the bytes of one direction of a connection.
//!
//! A parser takes bytes in whatever pieces they come, and holes between them. It keeps a bounded
//! amount of what it has seen, never panics, and goes on behind what it cannot read: what a hole or
//! an error cost is said in its events, not left out. Nothing here knows packets, clocks, files or
//! the other direction; what of the other direction matters is asked for.
//!
//! Each says by the first bytes of a direction whether they are of its protocol ([`Look`]).
//!
//! - [`dhcp`]: the Dynamic Host Configuration Protocol for IPv4 (RFC 2131) and IPv6 (RFC 8415).
//! - [`dns`]: DNS over UDP and TCP, multicast DNS, LLMNR, the name service of NetBIOS.
//! - [`http`]: HTTP/0.9, 1.0 and 1.1 (RFC 9112).
//! - [`http2`]: HTTP/2 in clear text (RFC 9113, RFC 7541).
//! - [`quic`]: Initial packets of QUIC, opened.
//! - [`ftp`]: control connections of FTP.
//! - [`mime`]: parts of mails, without their transfer codings (RFC 2045).
//! - [`smtp`]: commands, messages and replies of SMTP.
//! - [`ssh`]: identification and algorithms of SSH, HASSH.
//! - [`icp`]: the Internet Cache Protocol (RFC 2186).
//! - [`ntp`]: the Network Time Protocol (RFC 5905).
//! - [`rpc`]: remote procedure calls of ONC over UDP and TCP (RFC 5531).
//! - [`snmp`]: headers of the Simple Network Management Protocol (RFC 1157, RFC 3416, RFC 3412).
//! - [`tls`]: hellos and certificates of TLS and DTLS, JA3 and JA4.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cursor;
mod detect;
pub mod dhcp;
pub mod dns;
pub mod ftp;
pub mod http;
pub mod http2;
pub mod icp;
mod lines;
pub mod mime;
pub mod ntp;
pub mod quic;
pub mod rpc;
pub mod smtp;
pub mod snmp;
pub mod ssh;
pub mod tls;

#[cfg(test)]
extern crate self as flowgauge_proto;
#[cfg(test)]
#[path = "../../../fuzz/harness/proto.rs"]
mod fuzz;

pub use detect::Look;
