//! The stream engine: batches go in, flow records and stream events come out.
//!
//! Deliberately absent: protocols, I/O, clocks, threads.
#![forbid(unsafe_code)]

pub mod handler;

pub use handler::{Chunk, Handler, Stream, StreamStatus};
