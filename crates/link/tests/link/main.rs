//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../../../tests/shared/loopback.rs"]
mod loopback;
#[path = "../../../../tests/shared/skipped.rs"]
mod skipped;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;

mod ending;
mod killed;
mod links;
mod small_disk;
