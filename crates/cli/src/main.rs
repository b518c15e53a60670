//! The `flowgauge` command.
#![forbid(unsafe_code)]

fn main() {}
