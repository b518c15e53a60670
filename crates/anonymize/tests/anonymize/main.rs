//! The integration tests of this crate, one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;

mod cryptopan;
mod packets;
