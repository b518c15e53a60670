//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../../fuzz/harness/proto.rs"]
mod fuzz;

mod dns;
mod dtls;
mod http;
mod http2;
mod mail_and_files;
mod mime;
mod rpc;
mod ssh;
mod tls;
