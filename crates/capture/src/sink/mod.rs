//! Packet sinks: capture files, rotated or in a ring.
//!
//! [`FileSink`] is what `tcpdump -w` does, with its `-C`, `-G`, `-W` and `-U`; [`RingSink`] keeps
//! the recent past on disk until something happens.
//!
//! Files are readable at any moment: the buffer is handed to the system at the ends of records
//! only, and when the disk is full the file is cut back to its last whole record.

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

/// Format of a capture file that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileFormat {
    /// pcap with nanoseconds (magic `a1b23c4d`).
    #[default]
    PcapNanoseconds,
    /// pcap with microseconds (magic `a1b2c3d4`): for programs that know nothing newer.
    PcapMicroseconds,
    /// pcapng with nanoseconds; the only one for packets of different link types.
    PcapNg,
}

/// What a sink has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Packets that were written, those that are [gone](Written::gone) included. Those that a full disk
    /// refused are not counted: the caller books the difference to what it gave under
    /// [`flowgauge_wire::Place::Sink`].
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes, headers included, before compression.
    pub bytes: u64,
    /// Files that are there; one that was written over counts once.
    pub files: u64,
    /// What is in the files no more, because they were written over or, of a ring, removed.
    pub gone: Gone,
}

/// Part of what a sink has [written](Written) that is in no file any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Packets.
    pub packets: u64,
    /// Bytes, headers included, before compression.
    pub bytes: u64,
    /// Files; one that was written over twice counts twice.
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

/// Something packets go to, batch by batch.
pub trait PacketSink {
    /// Tells of the interfaces the following packets may come from; call it before the first
    /// batch and whenever [`crate::PacketSource::interfaces`] has grown.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails.
    fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error>;

    /// Writes all packets of a batch, except those that come after the planned end (see
    /// [`PacketSink::is_full`]). A VLAN tag that the kernel took out is put back.
    ///
    /// # Errors
    /// [`Error::Io`] when writing fails (what was written stays readable), [`Error::Sink`] when the
    /// format cannot hold a packet.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error>;

    /// Hands everything that is buffered to the system.
    ///
    /// # Errors
    /// As [`PacketSink::write`].
    fn flush(&mut self) -> Result<(), Error>;

    /// Tells what became of the packets, for the statistics at the end of a pcapng file.
    fn set_ledger(&mut self, ledger: &Ledger);

    /// Finishes the files. Later calls do nothing.
    ///
    /// # Errors
    /// As [`PacketSink::write`].
    fn close(&mut self) -> Result<Written, Error>;

    /// Whether the sink wants no more packets (`-W` files of `-G` seconds are full).
    fn is_full(&self) -> bool {
        false
    }

    /// Preserves what a ring of files holds, and what comes until its `after` has passed since the last packet, or
    /// since `time`, which a live source says: on a quiet link the last packet may be old. Triggered again meanwhile, it
    /// only goes on longer. Returns the files preserved at once. Without a ring the system gets what is buffered.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be finished, renamed or written.
    fn trigger(&mut self, _time: Nanos) -> Result<Option<Vec<PathBuf>>, Error> {
        self.flush().map(|()| None)
    }

    /// Files that were preserved since this was last asked, other than by the trigger itself.
    fn take_preserved(&mut self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// What was written so far.
    fn written(&self) -> Written;
}
