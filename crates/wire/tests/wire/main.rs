//! The integration tests of this crate, one program.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod common;
#[path = "../../../../fuzz/harness/decode.rs"]
mod decode;

mod community_id;
mod corpora;
mod properties;
