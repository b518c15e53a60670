//! The integration tests of this crate, one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

mod common;
#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../../../../fuzz/harness/file.rs"]
mod file;
#[path = "../support/mod.rs"]
mod support;

mod filter_corpora;
mod live;
mod mapped;
mod mutations;
mod round_trip;
