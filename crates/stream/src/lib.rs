//! The stream engine: batches go in, flow records and stream events come out.
//!
//! A [`Shard`] processes batches of packets: decoding, checksums, defragmentation, the flow table
//! and, for a [`Handler`] of streams, TCP reassembly. Each step is a pass over the whole batch. A
//! packet's flow is looked up once, and all state of a stream is found by the number of its flow: a
//! cache line per direction, and more only if bytes are missing or out of order.
//!
//! ```
//! use flowgauge_stream::{Chunk, Handler, Shard, ShardConfig, Stream};
//!
//! #[derive(Default)]
//! struct Count(u64);
//!
//! impl Handler for Count {
//!     const STREAMS: bool = true;
//!     fn stream_data(&mut self, _: &Stream<'_>, chunk: &Chunk<'_>) {
//!         self.0 += chunk.bytes.len() as u64;
//!     }
//! }
//!
//! let mut shard = Shard::new(ShardConfig::default());
//! let mut count = Count::default();
//! // for each batch of a source: shard.process(&batch, &mut count);
//! shard.finish(&mut count);
//! assert!(shard.ledger().is_balanced());
//! ```
//!
//! Deliberately absent: protocols, I/O, clocks, threads.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod checksums;
pub mod config;
mod connection;
mod control;
mod delivery;
mod ends;
pub mod engine;
mod findings;
mod fragments;
pub mod handler;
mod known_pairs;
pub mod offload;
mod packets;
mod segments;
mod sequencer;
mod shard;
mod shares;
pub mod statistics;
mod stream_filter;
mod streams;
mod syns;
mod vlans;
mod wants;

pub use checksums::{BadPayload, DamagedSender, OffloadingSender, is_partial};
pub use config::{ChecksumPolicy, ShardConfig};
pub use findings::Findings;
pub use handler::{
    Admit, Chunk, Cut, Handler, Next, Remark, Stream, StreamIdentity, StreamPacket, StreamStatus,
};
pub use sequencer::{Numbered, Sequencer};
pub use shard::Shard;
pub use shares::{Needs, Shares};
pub use statistics::ShardStatistics;
pub use stream_filter::stream_filter;
pub use vlans::VlanAware;
pub use wants::{Skip, Want};
