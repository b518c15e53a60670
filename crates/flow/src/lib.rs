//! Flow table, timeouts on the capture clock, per-flow counters.
//!
//! Deliberately absent: payload, I/O, clocks, threads.
#![forbid(unsafe_code)]

pub mod record;

pub use record::{EndReason, FlowRecord, FlowSide, FlowState};
