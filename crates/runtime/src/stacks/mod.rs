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
//!            one reader               copies of what can be parallel        the rest of each stack
//!
//!                                      +-> worker 0: tcpscan - demux < >  --+
//!  source -> decode, hash, divide -----|                                    |--> merge -> output
//!            (a batch is shared)       +-> worker 1: tcpscan - demux < >  --+
//! ```
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

mod board;
mod crossing;
mod fan_out;
mod items;
mod lane;
mod part;
mod plan;
mod reader;
mod runner;

pub use fan_out::SourceReport;
pub use part::StackFailure;
pub use runner::{ComponentState, Runner, RunnerOptions, SetupError, Snapshot, StackState, Step};
