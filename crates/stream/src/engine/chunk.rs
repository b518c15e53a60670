//! Contiguous bytes of a stream, as delivered to an application.

use core::ops::Range;
use std::sync::Arc;

use flowgauge_sys::blocks::Block;
use flowgauge_wire::{Budget, Nanos};

use super::buffers::Buffers;
use super::packets::{self, Log, Packets};

/// Bits of [`DataChunk::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkFlags(pub u16);

impl ChunkFlags {
    /// Bytes are missing inside the chunk, see [`DataChunk::holes`].
    pub const HOLE: ChunkFlags = ChunkFlags(1);
    /// The stream ended; this is its last chunk.
    pub const LAST: ChunkFlags = ChunkFlags(2);
    /// The cutoff was reached; there are no further chunks of the stream.
    pub const CUTOFF: ChunkFlags = ChunkFlags(4);
    /// Delivered early because memory was short.
    pub const EARLY: ChunkFlags = ChunkFlags(8);
    /// Delivered because its flush timeout passed.
    pub const TIMEOUT: ChunkFlags = ChunkFlags(16);
    /// It starts with the bytes that the application kept of the previous chunk.
    pub const KEPT: ChunkFlags = ChunkFlags(32);
    /// One packet of a protocol other than TCP and UDP, which is not reassembled.
    pub const PACKET: ChunkFlags = ChunkFlags(64);
    /// Of a chunk under way, before it is sent: its last packet ends behind it, and is at hand then.
    pub(super) const SPLIT: ChunkFlags = ChunkFlags(1 << 15);

    /// Whether all bits of `other` are set.
    #[inline(always)]
    pub const fn contains(self, other: ChunkFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: ChunkFlags) -> ChunkFlags {
        ChunkFlags(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[inline(always)]
    #[must_use]
    pub const fn without(self, other: ChunkFlags) -> ChunkFlags {
        ChunkFlags(self.0 & !other.0)
    }
}

/// Properties of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Stream offset of the first byte, including holes.
    pub offset: u64,
    /// Bytes missing right before the first one.
    pub gap_before: u64,
    /// Number of leading bytes that were also in the previous chunk (overlap, or kept).
    pub repeated: u32,
    /// Its flags.
    pub flags: ChunkFlags,
    /// Capture time of the packet that brought its last byte.
    pub time: Nanos,
}

/// Bytes and what is missing of them, in memory that is charged to the budget.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Block,
    /// Runs of missing bytes, where there are any.
    pub(super) holes: Option<Box<Holes>>,
}

/// What is missing of a chunk, and what is not final because something before it is missing.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Runs of missing bytes, as positions in the chunk's bytes, in order.
    pub(super) runs: Vec<Range<u32>>,
    /// What lies behind the first of them, in order.
    pub(super) pieces: Vec<Piece>,
    /// What they are charged with.
    pub(super) charged: u64,
}

/// Bytes of a chunk behind its first hole, all from one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Positions in the chunk's bytes.
    pub(super) from: u32,
    pub(super) to: u32,
    /// Where the segment begins and ends in the stream, whatever was used of it.
    pub(super) start: i64,
    pub(super) end: i64,
}

impl Content {
    fn holes(&self) -> &[Range<u32>] {
        self.holes.as_ref().map_or(&[], |holes| &holes.runs)
    }

    /// Whether bytes that belong at `at` differ from those that are there.
    pub(super) fn differs(&self, at: i64, new: &[u8]) -> bool {
        let have = self.bytes.as_slice();
        let (from, to) = (at.max(0), (at + new.len() as i64).min(have.len() as i64));
        if from >= to {
            return false;
        }
        let part = |bytes: &[u8], from: i64, to: i64| bytes[from as usize..to as usize].to_vec();
        if self.holes().is_empty() {
            return have[from as usize..to as usize]
                != new[(from - at) as usize..(to - at) as usize];
        }
        let (mine, theirs) = (part(have, from, to), part(new, from - at, to - at));
        let is_hole = |at: u32| self.holes().iter().any(|hole| hole.contains(&at));
        (mine.iter().zip(&theirs).zip(from as u32..)).any(|((a, b), at)| a != b && !is_hole(at))
    }

    /// How many bytes there are from `from` on, holes not counted.
    pub(super) fn received_from(&self, from: u32) -> u64 {
        received_from(self.bytes.as_slice(), self.holes(), from)
    }

    /// What is charged for the account of holes.
    #[inline]
    pub(super) fn holes_memory(&self) -> u64 {
        self.holes.as_ref().map_or(0, |holes| holes.charged)
    }

    /// Notes that holes are charged as they are now. Returns by how much more than before.
    pub(super) fn charge_holes(&mut self) -> u64 {
        let Some(holes) = self.holes.as_deref_mut() else {
            return 0;
        };
        let now = holes.memory();
        let more = now.saturating_sub(holes.charged);
        holes.charged += more;
        more
    }

    /// It was too much.
    pub(super) fn uncharge_holes(&mut self, more: u64) {
        if let Some(holes) = self.holes.as_deref_mut() {
            holes.charged -= more;
        }
    }
}

impl Holes {
    /// Bytes of memory they take.
    fn memory(&self) -> u64 {
        let runs = self.runs.capacity() * size_of::<Range<u32>>();
        let pieces = self.pieces.capacity() * size_of::<Piece>();
        (size_of::<Holes>() + runs + pieces) as u64
    }
}

impl Clone for Holes {
    /// The copy is not charged yet.
    fn clone(&self) -> Holes {
        Holes {
            runs: self.runs.clone(),
            pieces: self.pieces.clone(),
            charged: 0,
        }
    }
}

/// Content that a consumer has taken.
#[derive(Debug)]
pub(super) struct Storage {
    content: Content,
    /// Its packets, where they are not behind its bytes.
    log: Block,
    /// The payload of the last of them, where it ends behind the chunk.
    rest: Vec<u8>,
    /// The bytes and the packets, where they did not stay in their blocks.
    copy: Option<Copy>,
    charged: u64,
    budget: Budget,
}

/// What was copied to memory of its own.
#[derive(Debug)]
struct Copy {
    bytes: Vec<u8>,
    packets: u32,
    log: Vec<u8>,
}

impl Storage {
    /// The charge of `content`, `log` and `rest` becomes that of the storage.
    fn new(content: Content, log: Block, rest: &[u8], budget: Budget) -> Storage {
        Storage {
            charged: Buffers::cost(&content.bytes)
                + Buffers::cost(&log)
                + content.holes_memory()
                + rest.len() as u64,
            content,
            log,
            rest: rest.to_vec(),
            copy: None,
            budget,
        }
    }

    fn log(&self) -> Log<'_> {
        match &self.copy {
            Some(copy) => Log::Entered(copy.packets, &copy.log),
            None => log_of(&self.content, &self.log),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.copy {
            Some(copy) => &copy.bytes,
            None => self.content.bytes.as_slice(),
        }
    }

    /// A block that is hardly filled makes room for others.
    fn trim(&mut self) {
        let bytes = &self.content.bytes;
        let (len, capacity) = (bytes.len() + bytes.stacked().len(), bytes.capacity());
        if len >= capacity / 2 {
            return;
        }
        let Log::Entered(packets, log) = log_of(&self.content, &self.log) else {
            return;
        };
        self.copy = Some(Copy {
            bytes: bytes.as_slice().to_vec(),
            packets,
            log: log.to_vec(),
        });
        let log = core::mem::take(&mut self.log);
        let less = (capacity - len) as u64 + (log.capacity() - log.stacked().len()) as u64;
        self.content.bytes = Block::EMPTY;
        self.budget.release(less);
        self.charged -= less;
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.budget.release(self.charged);
    }
}

/// The packets of a chunk: behind its bytes, or in a block of their own where there was no room.
#[inline(always)]
pub(super) fn log_of<'a>(content: &'a Content, log: &'a Block) -> Log<'a> {
    match log.pieces() {
        0 => Log::of(&content.bytes),
        _ => Log::of(log),
    }
}

/// Where the bytes of a data event are.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// In the packet.
    InPlace(&'a [u8], Option<&'a Holes>, Log<'a>),
    /// In a buffer of the engine; the payload of a packet that ends behind it.
    Buffer(Content, Block, &'a [u8]),
    /// In a buffer that somebody took.
    Taken(Arc<Storage>),
}

impl Source<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Source::InPlace(bytes, ..) => bytes,
            Source::Buffer(content, ..) => content.bytes.as_slice(),
            Source::Taken(storage) => storage.bytes(),
        }
    }

    pub(super) fn holes(&self) -> &[Range<u32>] {
        match self {
            Source::InPlace(_, holes, _) => holes.map_or(&[], |holes| &holes.runs),
            Source::Buffer(content, ..) => content.holes(),
            Source::Taken(storage) => storage.content.holes(),
        }
    }

    /// How many bytes there are from `from` on, holes not counted.
    pub(super) fn received_from(&self, from: u32) -> u64 {
        received_from(self.bytes(), self.holes(), from)
    }

    #[inline]
    pub(super) fn log(&self) -> Log<'_> {
        match self {
            Source::InPlace(_, _, log) => *log,
            Source::Buffer(content, log, _) => log_of(content, log),
            Source::Taken(storage) => storage.log(),
        }
    }

    #[inline]
    fn packets(&self, start: u64) -> Packets<'_> {
        let rest = match self {
            Source::InPlace(..) => &[][..],
            Source::Buffer(_, _, rest) => rest,
            Source::Taken(storage) => &storage.rest,
        };
        self.log().packets(start, self.bytes(), rest)
    }
}

/// The chunk of a data event, borrowed for the call.
#[derive(Debug)]
pub struct DataChunk<'a> {
    pub(super) source: Source<'a>,
    /// The application's part of the source: with several applications one may want less.
    pub(super) len: u32,
    pub(super) info: ChunkInfo,
    pub(super) budget: Budget,
    /// What is taken may be charged up to here.
    pub(super) ceiling: u64,
    /// There was no memory when the application wanted to take it.
    pub(super) is_lost: bool,
}

impl DataChunk<'_> {
    /// Shows so much of it to an application, which wants nothing behind it or does.
    #[inline(always)]
    pub(super) fn show(&mut self, len: u32, cut: bool) {
        self.len = len;
        let info = &mut self.info;
        info.repeated = info.repeated.min(len);
        if info.flags.contains(ChunkFlags::HOLE)
            && self
                .source
                .holes()
                .first()
                .is_none_or(|hole| hole.start >= len)
        {
            info.flags = info.flags.without(ChunkFlags::HOLE);
        }
        if cut {
            info.flags = info.flags.with(ChunkFlags::CUTOFF);
        }
    }

    /// The bytes, contiguous in memory. Holes are filled with zeros. Only empty if there are only
    /// [`DataChunk::packets`] to deliver.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.source.bytes();
        bytes.get(..self.len as usize).unwrap_or(bytes)
    }

    /// The bytes that were not in a previous chunk, that is, without overlap and kept bytes.
    pub fn new_bytes(&self) -> &[u8] {
        self.bytes()
            .get(self.info.repeated as usize..)
            .unwrap_or(&[])
    }

    /// Properties of the chunk.
    #[inline]
    pub fn info(&self) -> ChunkInfo {
        self.info
    }

    /// Stream offset of the first byte, including holes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.info.offset
    }

    /// Bytes missing right before the chunk.
    #[inline]
    pub fn gap_before(&self) -> u64 {
        self.info.gap_before
    }

    /// Its flags.
    #[inline]
    pub fn flags(&self) -> ChunkFlags {
        self.info.flags
    }

    /// Whether the bytes are still in the captured packet.
    pub fn is_in_place(&self) -> bool {
        matches!(self.source, Source::InPlace(..))
    }

    /// Holes inside the chunk, as ranges of [`DataChunk::bytes`] (mode FAST only).
    pub fn holes(&self) -> &[Range<u32>] {
        visible_holes(self.source.holes(), self.len)
    }

    /// Its packets in the order of capture, including duplicates and reordered ones; empty unless
    /// [`EngineConfig::need_packets`](super::EngineConfig::need_packets).
    #[inline]
    pub fn packets(&self) -> Packets<'_> {
        self.source.packets(self.info.offset)
    }

    /// Takes the chunk out of the call. Its memory stays charged to the budget until it is dropped.
    /// Bytes are only copied if they are still in the captured packet; so are those of a last packet
    /// that extends beyond the chunk.
    ///
    /// # Errors
    /// [`OutOfMemory`] if bytes have to be copied, and the budget has no room for the copy within the
    /// ceiling of the stream's priority. Unless a later call during the same event succeeds, the chunk's
    /// new bytes count as dropped ([`StreamStatistics::dropped`](super::StreamStatistics::dropped)).
    pub fn take(&mut self) -> Result<OwnedChunk, OutOfMemory> {
        let taken = self.try_take();
        self.is_lost = taken.is_err();
        taken
    }

    fn try_take(&mut self) -> Result<OwnedChunk, OutOfMemory> {
        let storage = match &mut self.source {
            Source::Taken(storage) => Arc::clone(storage),
            Source::Buffer(content, log, rest) => {
                if !rest.is_empty() && !self.budget.charge(rest.len() as u64, self.ceiling) {
                    return Err(OutOfMemory);
                }
                let (content, log) = (core::mem::take(content), core::mem::take(log));
                let mut storage = Storage::new(content, log, rest, self.budget.clone());
                storage.trim();
                let storage = Arc::new(storage);
                self.source = Source::Taken(Arc::clone(&storage));
                storage
            }
            Source::InPlace(bytes, holes, log) => {
                let bytes = &bytes[..bytes.len().min(self.len as usize)];
                let mut content = Content {
                    bytes: Block::EMPTY,
                    holes: holes.map(|holes| Box::new(holes.clone())),
                };
                content.charge_holes();
                let log_len = match log {
                    Log::Entered(_, log) => log.len(),
                    Log::One(packet) => packets::room_for(packet, false),
                };
                let charged = Buffers::cost_of(bytes.len() + log_len) + content.holes_memory();
                if !self.budget.charge(charged, self.ceiling) {
                    return Err(OutOfMemory);
                }
                let log = match log {
                    Log::Entered(_, log) => log.to_vec(),
                    Log::One(packet) => packets::entered(packet),
                };
                Arc::new(Storage {
                    content,
                    log: Block::EMPTY,
                    rest: Vec::new(),
                    copy: Some(Copy {
                        bytes: bytes.to_vec(),
                        packets: self.source.log().count(),
                        log,
                    }),
                    charged,
                    budget: self.budget.clone(),
                })
            }
        };
        Ok(OwnedChunk {
            storage,
            len: self.len,
            info: self.info,
        })
    }
}

/// How many of `bytes` from `from` on are in no hole.
fn received_from(bytes: &[u8], holes: &[Range<u32>], from: u32) -> u64 {
    let behind = |hole: &Range<u32>| hole.end.saturating_sub(hole.start.max(from));
    let missing = u64::from(holes.iter().map(behind).sum::<u32>());
    (bytes.len() as u64).saturating_sub(u64::from(from) + missing)
}

/// The holes before `len`.
fn visible_holes(holes: &[Range<u32>], len: u32) -> &[Range<u32>] {
    &holes[..holes.partition_point(|hole| hole.start < len)]
}

/// The memory budget has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "the memory budget of the stream engine is used up; hint: more memory, or drop chunks \
             sooner",
        )
    }
}

impl core::error::Error for OutOfMemory {}

/// A chunk that outlives its data event, for instance in another thread. Its memory is charged to the
/// budget until the last clone is dropped; cloning copies no bytes.
#[derive(Clone, Debug)]
pub struct OwnedChunk {
    storage: Arc<Storage>,
    len: u32,
    info: ChunkInfo,
}

impl OwnedChunk {
    /// The bytes, contiguous in memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.storage.bytes();
        bytes.get(..self.len as usize).unwrap_or(bytes)
    }

    /// The bytes that were not in a previous chunk.
    pub fn new_bytes(&self) -> &[u8] {
        self.bytes()
            .get(self.info.repeated as usize..)
            .unwrap_or(&[])
    }

    /// Properties of the chunk.
    #[inline]
    pub fn info(&self) -> ChunkInfo {
        self.info
    }

    /// Holes inside the chunk, as ranges of [`OwnedChunk::bytes`].
    pub fn holes(&self) -> &[Range<u32>] {
        visible_holes(self.storage.content.holes(), self.len)
    }

    /// Its packets, see [`DataChunk::packets`].
    pub fn packets(&self) -> Packets<'_> {
        let storage = &*self.storage;
        (storage.log()).packets(self.info.offset, storage.bytes(), &storage.rest)
    }
}
