//! What components of stacks have in common, whichever crate they are in.
//!
//! A module is here when components of `flowgauge-components` and of `flowgauge-conversations` use it; one that only
//! those of one use stays there.
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
