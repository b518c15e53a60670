//! Packet sources and sinks: pcap, pcapng, snoop, ERF, AF_PACKET; BPF filters.
//!
//! A [`PacketSource`] yields [`flowgauge_wire::Batch`]es that borrow its memory; nothing is copied
//! between the file's buffer or the kernel's ring and the consumer of the packets.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod deduplicate;
pub mod error;
pub mod file;
pub mod filter;
mod gathered;
pub mod limit;
pub mod live;
pub mod memory;
pub mod sink;
pub mod source;

pub use deduplicate::{Deduplicated, Deduplicator};
pub use error::Error;
pub use file::{MultiSource, bound_windows, expand, is_mapped, open, open_all, open_reader};
pub use filter::{Filter, Filtered};
pub use gathered::Gathered;
pub use limit::{Between, Limit, SnapLen};
pub use memory::{MemoryPool, SharedMemory};
pub use sink::{FileFormat, FileSink, PacketSink, RingSink, SinkOptions};
pub use source::{Interface, PacketSource};
