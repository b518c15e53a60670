//! The integration tests of this crate, one program.

#![allow(clippy::print_stdout, reason = "helpers of tests, too")]

#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "support/packets.rs"]
mod packets;
mod support;

mod chosen_flows;
mod idle;
mod model;
mod tracker;
mod zeek;
