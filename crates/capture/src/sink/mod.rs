//! Packet sinks: capture files, rotated or in a ring.
//!
//! [`FileSink`] is the equivalent of `tcpdump -w`, with its `-C`, `-G`, `-W` and `-U`; [`RingSink`] keeps the recent
//! past on disk until a trigger.
//!
//! Files are readable at any moment: the buffer is passed to the system only at the ends of records, and if the disk is
//! full, the file is cut back to its last whole record.

mod compress;
pub mod encode;
mod file;
mod name;
mod output;
mod ring;
mod segment;

pub use compress::Compressor;
pub use file::{FileSink, SinkOptions};
pub use name::{Rotation, Rotator, Turn, dated};
pub use output::Compression;
pub use ring::{RingLimits, RingSink};

use std::path::PathBuf;

use flowgauge_wire::{Batch, Ledger, Nanos};

use crate::error::Error;
use crate::source::Interface;

/// Output formats of capture files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileFormat {
    /// pcap with nanoseconds (magic `a1b23c4d`).
    #[default]
    PcapNanoseconds,
    /// pcap with microseconds (magic `a1b2c3d4`), for programs that support nothing newer.
    PcapMicroseconds,
    /// pcapng with nanoseconds; the only format for packets of different link types.
    PcapNg,
}

/// Counters of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets written, including those that are [gone](Written::gone). Those that did not fit on a full disk are not
    /// counted: the caller counts the difference under [`flowgauge_wire::Place::Sink`].
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes, headers included, before compression.
    pub bytes: u64,
    /// Files that exist; one that was overwritten counts once.
    pub files: u64,
    /// Packets no longer in the files, because the files were overwritten or, in a ring, removed.
    pub gone: Gone,
}

/// The part of [`Written`] that is no longer in any file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Packets.
    pub packets: u64,
    /// Bytes, headers included, before compression.
    pub bytes: u64,
    /// Files; one that was overwritten twice counts twice.
    pub files: u64,
}

impl Gone {
    /// Adds a file.
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
        self.files += 1;
    }
}

/// A consumer of packets, batch by batch.
pub trait PacketSink {
    /// Sets the interfaces of the following packets. Call it before the first batch, and whenever
    /// [`crate::PacketSource::interfaces`] has grown.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails.
    fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error>;

    /// Writes all packets of a batch, except those after the planned end (see [`PacketSink::is_full`]). VLAN tags that
    /// the kernel stripped are restored.
    ///
    /// # Errors
    /// [`Error::Io`] if writing fails (data already written stays readable), [`Error::Sink`] if the format does not
    /// support a packet.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error>;

    /// Passes all buffered data to the system.
    ///
    /// # Errors
    /// As [`PacketSink::write`].
    fn flush(&mut self) -> Result<(), Error>;

    /// Sets what became of the packets, for the statistics at the end of a pcapng file.
    fn set_ledger(&mut self, ledger: &Ledger);

    /// Finishes the files. Later calls do nothing.
    ///
    /// # Errors
    /// As [`PacketSink::write`].
    fn close(&mut self) -> Result<Written, Error>;

    /// Whether the sink accepts no more packets (`-W` files of `-G` seconds are full).
    fn is_full(&self) -> bool {
        false
    }

    /// Preserves the packets in a ring of files, and those that arrive until its `after` has passed since the last
    /// packet, or since `time`, which a live source provides: on a quiet link the last packet may be old. Triggering
    /// again before that extends the time. Returns the files preserved immediately. Without a ring, buffered data is
    /// passed to the system.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be finished, renamed or written.
    fn trigger(&mut self, _time: Nanos) -> Result<Option<Vec<PathBuf>>, Error> {
        self.flush().map(|()| None)
    }

    /// Files preserved since the last call, other than by the trigger itself.
    fn take_preserved(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The counters so far.
    fn written(&self) -> Written;
}
