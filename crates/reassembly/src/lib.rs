//! IP defragmentation and TCP sequence space with overlap policies.
//!
//! Two receivers' halves of the network stack as a passive observer needs them: [`defragment`]
//! puts IP datagrams together again, [`tcp`] puts the segments of each direction of a connection
//! in order. Where received bytes contradict each other, an [`OverlapPolicy`] says which copy the
//! receiving host would have kept.
//!
//! Deliberately absent: I/O, clocks, threads, `unsafe`, flow tables. Time comes with the packets;
//! memory is bounded and reused, nothing is allocated per segment in steady state.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod defragment;
mod hosts;
pub mod policy;
pub mod tcp;

#[cfg(test)]
#[path = "../../../tests/shared/corpora.rs"]
mod corpora;

pub use defragment::{
    DefragmentConfig, DefragmentStatistics, Defragmenter, Fragment, GivenUp, Incomplete, Outcome,
};
pub use hosts::HostPolicies;
pub use policy::{OverlapPolicy, UnknownPolicy};
pub use tcp::{
    Account, Forgotten, GapCause, Half, HalfFlags, Reassembler, ReassemblyConfig,
    ReassemblyStatistics, Receiver, Segment, Unplaced,
};
