//! The integration tests of this crate, one program.

mod checker;
mod graph;
mod language;
