//! The state per direction: a cache line, in memory parallel to the flow table.

use flowgauge_sys::blocks::Block;
use flowgauge_wire::{Nanos, Place};

use super::chunk::{ChunkFlags, Content};
use super::command::ChunkParameters;
use super::config::Mode;
use super::slab::NONE;
use super::statistics::Counts;
use super::stream_ref::StreamErrors;

/// One direction of a connection.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Record {
    /// Of the first application that wants it.
    pub(super) view: View,
    /// Counts the streams that had this place.
    pub(super) generation: u32,
    /// Further applications' views.
    pub(super) more: u32,
    /// What was lost or not wanted; most streams have nothing of it.
    pub(super) loss: u32,
    pub(super) flags: RecordFlags,
    pub(super) errors: StreamErrors,
    /// Position behind the farthest byte seen (FAST); of protocols without streams the payload bytes
    /// so far.
    pub(super) position: u64,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            view: View::default(),
            generation: 0,
            more: NONE,
            loss: NONE,
            position: 0,
            flags: RecordFlags(0),
            errors: StreamErrors(0),
        }
    }
}

/// Bits of [`Record::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordFlags(pub(super) u16);

impl RecordFlags {
    /// There is a stream.
    pub(super) const LIVE: u16 = 1;
    /// No application wants it, or wants more of it.
    pub(super) const DONE: u16 = 2;
    /// No application ever wanted it.
    pub(super) const UNWANTED: u16 = 4;
    /// The initiator's direction.
    pub(super) const FROM_INITIATOR: u16 = 8;
    /// Who else takes the shard's streams wants nothing of it.
    pub(super) const UNREAD: u16 = 16;
    /// Some application is in FAST mode.
    pub(super) const FAST: u16 = 32;
    /// Some application is in another mode.
    pub(super) const ORDERED: u16 = 64;
    /// No filter has seen a packet of it yet.
    pub(super) const NEW: u16 = 128;
    /// Not TCP: whatever the mode, payloads are concatenated.
    pub(super) const DATAGRAMS: u16 = 256;
    /// The handshake of its connection is known to be complete.
    pub(super) const ESTABLISHED: u16 = 512;
    /// One application wants it, in mode WAIT, and what comes in order: nothing else is to be asked.
    pub(super) const SIMPLE: u16 = 1024;
    /// It is done because mode STRICT stopped.
    pub(super) const HALTED: u16 = 2048;
    /// Its SYN has data: TCP Fast Open.
    pub(super) const SYN_DATA: u16 = 4096;
    /// It answers a SYN with data, which it acknowledges: its data may follow at once.
    pub(super) const SYN_DATA_TAKEN: u16 = 8192;
    /// All who want it are in mode STRICT.
    pub(super) const STRICT: u16 = 16384;
    /// Some were in mode FAST when others were not: they got packets that then waited for their turn.
    pub(super) const MIXED: u16 = 32768;

    /// Those that follow from what the views say.
    pub(super) const OF_VIEWS: u16 = RecordFlags::DONE
        | RecordFlags::FAST
        | RecordFlags::ORDERED
        | RecordFlags::SIMPLE
        | RecordFlags::HALTED
        | RecordFlags::STRICT;

    #[inline(always)]
    pub(super) const fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }

    /// Where its packets end once it is done.
    pub(super) const fn done_place(self) -> Place {
        match self.has(RecordFlags::HALTED) {
            true => Place::Strict,
            false => Place::Cutoff,
        }
    }

    #[inline(always)]
    pub(super) const fn set(&mut self, bits: u16) {
        self.0 |= bits;
    }

    #[inline(always)]
    pub(super) const fn clear(&mut self, bits: u16) {
        self.0 &= !bits;
    }
}

/// What one application has of a direction, and the chunker beside it: 40 bytes.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct View {
    pub(super) user_state: u64,
    /// Nanoseconds.
    pub(super) processing: u64,
    /// Cutoff: bytes from here on are not wanted.
    pub(super) limit: u64,
    /// Of the chunker: the chunk that is being filled.
    pub(super) chunk: u32,
    /// Data events.
    pub(super) chunks: u32,
    /// Of the chunker: the place of its parameters in the list of sets.
    pub(super) chunk_parameters: u16,
    /// The same of those that the application wants.
    pub(super) parameters: u16,
    /// Whose chunker it uses: the place of that view in the direction.
    pub(super) chunker: u8,
    pub(super) application: u8,
    pub(super) priority: u8,
    pub(super) flags: ViewFlags,
}

impl Default for View {
    fn default() -> View {
        View {
            user_state: 0,
            processing: 0,
            limit: u64::MAX,
            chunk: NONE,
            chunks: 0,
            chunk_parameters: 0,
            parameters: 0,
            chunker: 0,
            application: u8::MAX,
            priority: 0,
            flags: ViewFlags(0),
        }
    }
}

/// Bits of [`View::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ViewFlags(pub(super) u8);

impl ViewFlags {
    /// Nothing more is delivered: cutoff, discarded, or ended by STRICT.
    pub(super) const OVER: u8 = 1;
    /// ... because of the cutoff.
    pub(super) const CUT: u8 = 2;
    /// ... because the application said so.
    pub(super) const DISCARDED: u8 = 4;
    /// The chunk of the current data event is to be kept.
    pub(super) const KEEP: u8 = 8;
    /// A data event of it is under way.
    pub(super) const BUSY: u8 = 16;
    /// Nothing more is delivered because mode STRICT stopped.
    pub(super) const HALTED: u8 = 32;
    /// It did not get all of the chunk that is being sent, and wants more nevertheless.
    pub(super) const CLIPPED: u8 = 64;
    /// It left mode FAST: bytes before [`OwnLoss::ahead`] are old to it, whoever else waits for them.
    pub(super) const AHEAD: u8 = 128;

    #[inline(always)]
    pub(super) const fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    #[inline(always)]
    pub(super) const fn set(&mut self, bits: u8) {
        self.0 |= bits;
    }

    #[inline(always)]
    pub(super) const fn clear(&mut self, bits: u8) {
        self.0 &= !bits;
    }
}

/// A further application's view of a direction.
#[derive(Clone, Debug)]
pub(super) struct Extra {
    pub(super) own: OwnLoss,
    pub(super) view: View,
    pub(super) next: u32,
}

impl Default for Extra {
    fn default() -> Extra {
        Extra {
            own: OwnLoss::default(),
            view: View::default(),
            next: NONE,
        }
    }
}

/// Where a view, and the chunker beside it, is: `extra` is `NONE` for the one in the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ViewAt {
    pub(super) record: u32,
    pub(super) extra: u32,
    /// How many views of the direction are before it.
    pub(super) place: u8,
}

impl ViewAt {
    #[inline(always)]
    pub(super) const fn first(record: u32) -> ViewAt {
        ViewAt {
            record,
            extra: NONE,
            place: 0,
        }
    }

    /// The view among those of its direction.
    #[inline(always)]
    pub(super) const fn bit(self) -> u32 {
        1 << self.place
    }
}

/// A chunk that is being filled. What every segment needs is in the first line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Pending {
    pub(super) content: Content,
    /// Position of the first byte in the stream.
    pub(super) start: u64,
    /// Capture time of its last byte.
    pub(super) time: Nanos,
    /// Length at which it is complete.
    pub(super) target: u32,
    /// First bytes that the chunk before had, too.
    pub(super) repeated: u32,
    pub(super) gap_before: u64,
    /// Where packets are wanted, too, and there is no room for them behind the bytes.
    pub(super) log: Block,
    /// Capture time of its first byte.
    pub(super) since: Nanos,
    /// Packets whose first bytes are among the new ones.
    pub(super) segments: u32,
    /// Whose it is; `NONE` when not in use.
    pub(super) stream: u32,
    /// Tells the chunks apart that had this place.
    pub(super) generation: u32,
    pub(super) parameters: u16,
    pub(super) flags: ChunkFlags,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending {
            content: Content::default(),
            log: Block::EMPTY,
            start: 0,
            gap_before: 0,
            segments: 0,
            since: Nanos::ZERO,
            time: Nanos::ZERO,
            stream: NONE,
            parameters: 0,
            flags: ChunkFlags(0),
            repeated: 0,
            target: 0,
            generation: 0,
        }
    }
}

/// What one application has lost of a direction, or did not want, while others got it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnLoss {
    pub(super) dropped: Counts,
    pub(super) discarded: Counts,
    /// How far it had got in mode FAST when it left it, or wanted no more.
    pub(super) ahead: u64,
    /// Bytes missing where mode STRICT stopped, or before the cutoff, where the next ones are behind it.
    pub(super) missing: u64,
}

/// What was lost of a direction or not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    /// Of its first application.
    pub(super) own: OwnLoss,
    pub(super) dropped: Counts,
    pub(super) discarded: Counts,
    /// Of these, packets that were delivered first ([`Core::refuse`](super::core::Core::refuse)).
    pub(super) late: u64,
    /// ... and bytes of packets that were not refused with them.
    pub(super) late_bytes: u64,
    /// Of these, bytes that headers claim and no frame had.
    pub(super) claimed: u64,
}

/// What decides how a stream is cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Parameters {
    pub(super) chunk_bytes: u32,
    pub(super) overlap_bytes: u32,
    pub(super) flush_timeout: Option<Nanos>,
    pub(super) mode: Mode,
    /// Whether packets are noted beside the bytes.
    pub(super) packets: bool,
}

impl Parameters {
    pub(super) fn of_chunks(&self) -> ChunkParameters {
        ChunkParameters {
            chunk_bytes: self.chunk_bytes,
            overlap_bytes: self.overlap_bytes,
            flush_timeout: self.flush_timeout,
            mode: self.mode,
        }
    }

    pub(super) fn changed(self, to: ChunkParameters) -> Parameters {
        Parameters {
            chunk_bytes: to.chunk_bytes,
            overlap_bytes: to.overlap_bytes,
            flush_timeout: to.flush_timeout,
            mode: to.mode,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direction_takes_a_cache_line() {
        assert_eq!(size_of::<View>(), 40);
        assert_eq!(size_of::<Record>(), 64);
        assert_eq!(size_of::<Pending>(), 128);
    }
}
