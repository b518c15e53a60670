//! Flow table, timeouts on the capture clock, per-flow counters.
//!
//! Deliberately absent: payload, I/O, clocks, threads.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod arena;
pub mod config;
pub mod index;
pub mod packet_flow;
pub mod record;
pub mod tracker;

mod clock;
mod ending;
mod extra;
mod fast_path;
mod flow;
mod held_syns;
mod history;
mod holes;
mod idle;
mod ports;
mod slab;
mod tcp;
mod tcp_state;
mod wheel;
mod withheld;

pub use clock::{CaptureClock, FAR_JUMP};
pub use config::FlowConfig;
pub use ending::{EndedFlow, Taker};
pub use packet_flow::{FlowId, PacketFlow, PacketFlowFlags, is_counted};
pub use record::{EndReason, FlowIdentity, FlowRecord, FlowSide, FlowState};
pub use tracker::{FlowStatistics, FlowTracker, Follower};
pub use withheld::{Turn, Withheld};
