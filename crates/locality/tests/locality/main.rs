//! Tests of this crate, as one program.

mod order;
