//! The integration tests of this crate, one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../../../tests/shared/loopback.rs"]
mod loopback;
#[path = "../../../../tests/shared/run.rs"]
mod support;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;

mod anonymize;
mod components;
mod network;
mod packet_functions;
mod result_functions;
mod state_functions;
mod streams;
mod tracking;
mod tshark_display_filters;
