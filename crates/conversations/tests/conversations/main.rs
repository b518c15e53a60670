//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "support/conversations.rs"]
mod conversations;
#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "support/session.rs"]
mod session;
#[path = "../../../../tests/shared/run.rs"]
mod support;

mod classify;
mod dhcp;
mod dns;
mod http;
mod http_events;
mod mail_and_files;
mod memory;
mod sessions;
mod ssh;
mod tls;
mod transactions;
