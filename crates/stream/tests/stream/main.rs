//! The integration tests of this crate, one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests, too"
)]

mod accounts;
mod beside;
mod checksums;
mod corpora;
mod engine;
mod far_ahead;
mod fast;
mod fragments;
mod hostile;
mod loss_model;
mod memory;
mod offload;
mod overload;
mod packets;
mod remarks;
mod sequencer;
mod silence;
mod soak;
mod states;
mod truth;
mod wants;
