//! The integration tests of this crate, one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

#[path = "../../../../tests/shared/corpora.rs"]
mod corpora;
#[path = "../shared_support/mod.rs"]
mod shared_support;
mod stacks_support;
#[path = "../../../../tests/shared/wait.rs"]
mod wait;

mod beginnings;
mod beside;
mod capture;
mod shared;
mod shared_commands;
mod shared_hostile;
mod shared_losses;
mod shared_memory;
mod shared_packets;
mod shared_workers;
mod stacks;
mod wants;
mod workers;
