//! Threads, cores and queues around the engines.
//!
//! The crates below spawn no threads, read no clock and know of no other core; this one moves packets and events
//! between threads. Programs use [`Capture`], which builds a capture with its applications and runs it on the
//! configured number of threads. Below it, [`divide`] distributes the packets of a source to workers through the
//! queues in [`queue`]; [`threads`] starts threads, optionally pinned to cores, and names the one that failed.
//!
//! Deliberately absent: the semantics of packets, flows and streams.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// The page for those who write programs: its programs are run as tests.
#![cfg_attr(doctest, doc = include_str!("../../../docs/rust.md"))]

mod application;
mod beginnings;
mod beside;
pub mod capture;
mod changes;
pub mod clock;
pub mod handlers;
mod outlet;
mod pool;
pub mod queue;
mod reader;
pub mod shared;
mod spread;
pub mod stacks;
pub mod threads;
mod worker;
mod workers;

pub use beginnings::Beginnings;
pub use beside::Beside;
pub use capture::{Capture, Control, Outcome, Progress, RunError, Running};
pub use clock::Clock;
pub use flowgauge_stream::stream_filter;
pub use handlers::{Chunk, Closures, Handlers, Packets, StreamHandle};
pub use outlet::Lost;
pub use pool::divide;
pub use threads::{Cores, ThreadFailure};
pub use worker::WorkerStatistics;
