//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../../tests/shared/skipped.rs"]
mod skipped;

mod reading;
mod whole_streams;
