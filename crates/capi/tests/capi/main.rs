//! The integration tests of this crate, one program.

#[path = "../support/mod.rs"]
mod support;

mod header;
mod library;
mod programs;
