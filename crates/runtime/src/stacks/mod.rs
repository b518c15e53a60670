//! Stacks that run: on one core, or on several.
//!
//! A [`Runner`] drives the stacks of a checked [`Program`](flowgauge_stack::Program) over the packets of
//! a source, and those that begin with a source of their own.
//!
//! # On one core
//!
//! The calling thread reads a batch, decodes and hashes it, unless no stack wants that, and takes it
//! through all stacks. Components that several stacks begin with in the same way exist once: what
//! comes out of them goes to what each stack goes on with.
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
//! Who reads, and how batches get to the workers: a pool (`crate::pool`), the same for captures with callbacks.
//!
//! Every worker gets every batch, and a selection of its own: all packets of a pair of addresses go to
//! one, fragments and tunnels too. So each has the same capture clock, and each gives one message per
//! batch to the next stage, which puts them together in an order that does not depend on the number of
//! workers: packets by their place in the batch, chunks and records by time within the
//! piece.
//!
//! Of an interface each worker can have a ring of its own ([`Runner::fan_out`]): nobody reads for others
//! then, and what the workers made is taken as it comes.
//!
//! The reader cuts batches in pieces where components look at the clock: some fifteen times a second of
//! the capture, and where an interval ends. They do so between the same packets whatever the batches and
//! the threads are, and so do keys end; a message says what came of each piece.
//!
//! A component `thread` is such an end of a stage, too: with a queue of the length that its options say.
//! All queues are bounded. Each carries one message per batch, in order, so that whoever waits, waits
//! for somebody who goes on.
//!
//! A stack whose component fails or panics is over in all its parts; the others go on.
//!
//! # Stacks that come and go
//!
//! [`Runner::replace`] changes which stacks run between two batches: the threads that take packets come back with their parts,
//! those of stacks that go on stay where they are, and all threads start again.

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
