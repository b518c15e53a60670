//! Code shared by the components of stacks in all crates.
//!
//! Modules used by both `flowgauge-components` and `flowgauge-conversations` are here; others are in the crate that
//! uses them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod chunks;
mod closing;
pub mod engine;
pub mod file_name;
pub mod headers;
pub mod keyed;
pub mod measure;
pub mod terminal;
pub mod writing;

pub use closing::Closing;
