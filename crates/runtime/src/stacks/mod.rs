//! Running stacks, on one or several cores.
//!
//! A [`Runner`] runs the stacks of a checked [`Program`](flowgauge_stack::Program) on the packets of a source, and
//! stacks that start with their own source.
//!
//! # On one core
//!
//! The calling thread reads a batch, decodes and hashes it if a stack needs that, and passes it through all stacks. A
//! common prefix of several stacks exists once; its output goes to the rest of each stack.
//!
//! # On several
//!
//! ```text
//!            the calling thread       copies of what can be parallel        the rest of each stack
//!
//!  source -> decode, hash, divide -------> worker 0: tcpscan - demux < >  --+
//!            (a batch is shared)       |                                    |--> merge -> output
//!                                      +-> worker 1: tcpscan - demux < >  --+
//! ```
//!
//! Reading and the distribution of batches are those of a pool (`crate::pool`), as for captures with callbacks.
//!
//! Every worker gets every batch with its own selection: all packets of a pair of addresses, including fragments and
//! tunnels, go to the same worker. All workers thus have the same capture clock. Each sends one message per batch to
//! the next stage, which merges them in an order that does not depend on the number of workers: packets by their
//! position in the batch, chunks and records by time within the piece.
//!
//! With an interface, each worker can have its own ring ([`Runner::fan_out`]). Workers then read independently, and
//! their output is merged as it arrives.
//!
//! The reader divides batches into pieces at ticks of the capture clock, about fifteen per second, and at the ends of
//! intervals. Ticks, and ends of keys, thus fall between the same packets regardless of batches and threads; messages
//! have the output of each piece.
//!
//! A component `thread` also ends a stage, with a queue of the length given by its options. All queues are bounded.
//! Each carries one message per batch, in order, which rules out deadlocks.
//!
//! If a component fails or panics, its stack ends in all of its parts; other stacks continue.
//!
//! # Stacks that come and go
//!
//! [`Runner::replace`] changes the set of stacks between two batches: the threads that process packets return their
//! parts, parts of continuing stacks stay in place, and all threads restart.

mod board;
mod crossing;
mod fan_out;
mod items;
mod lane;
mod meter;
mod pace;
mod part;
mod plan;
mod runner;
mod snapshot;
mod subscribers;

pub use fan_out::SourceReport;
pub use part::{Number, StackFailure};
pub use plan::engines;
pub use runner::{Change, Ended, Runner, RunnerOptions, SetupError, Step};
pub use snapshot::{ComponentState, Shared, Snapshot, StackState};
