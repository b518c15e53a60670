//! Development tasks: `cargo run -p xtask -- help`.
fn main() {}
