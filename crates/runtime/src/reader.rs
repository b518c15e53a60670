//! Batches of a source for several threads: decoded, hashed, divided among workers, and cut at ticks of the clock.

use std::sync::{Arc, Mutex, PoisonError};

use flowgauge_capture::{Error, MemoryPool, PacketSource, SharedMemory};
use flowgauge_flow::CaptureClock;
use flowgauge_stack::{Packets, Selection, TICK};
use flowgauge_sys::prefetch::prefetch_at;
use flowgauge_wire::{
    Batch, DecodeOptions, DecodedBatch, Decoder, Nanos, PacketDescriptor, hash_batch,
};

use crate::spread::Spread;

/// The size of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Packets.
    pub packets: u64,
    /// Their captured bytes.
    pub captured_bytes: u64,
}

/// A part of a batch between two looks at the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where the clock has come to before it.
    pub(crate) clock: Option<Nanos>,
    /// The place of the packet behind it.
    pub(crate) end: u16,
}

/// A batch, its headers, and which worker gets what of it.
#[derive(Debug)]
pub(crate) struct SharedBatch {
    memory: SharedMemory,
    columns: Columns,
    /// The capture clock behind it.
    pub(crate) now: Nanos,
    /// Whether it is the last of those that go to other threads together.
    pub(crate) ends_group: bool,
    pub(crate) step: Step,
    /// Packets of the source before it.
    before: u64,
    /// Where its columns go when nobody holds it any more.
    home: Option<Arc<Home>>,
}

/// What a batch has beside its memory; used again and again.
#[derive(Debug, Default)]
struct Columns {
    packets: Vec<PacketDescriptor>,
    decoded: DecodedBatch,
    /// By worker.
    selections: Vec<Selections>,
    pieces: Vec<Cut>,
}

/// What a worker gets of a batch.
#[derive(Clone, Copy, Debug)]
struct Selections {
    by_address: Selection,
    by_group: Selection,
}

impl Selections {
    const NONE: Selections = Selections {
        by_address: Selection::NONE,
        by_group: Selection::NONE,
    };
}

#[derive(Debug, Default)]
struct Home {
    free: Mutex<Vec<Columns>>,
}

impl SharedBatch {
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.memory, &self.columns.packets)
    }

    /// All its packets.
    pub(crate) fn packets<'a>(&'a self, batch: &'a Batch<'a>) -> Packets<'a> {
        Packets {
            before: self.before,
            ..Packets::new(batch, &self.columns.decoded)
        }
    }

    /// The parts of it between looks at the clock.
    pub(crate) fn pieces(&self) -> &[Cut] {
        &self.columns.pieces
    }

    /// Those of a worker, [with groups](Spread::with_groups) or without.
    pub(crate) fn selection(&self, worker: usize, by_group: bool) -> Selection {
        let selections = self.columns.selections.get(worker);
        let selections = selections.unwrap_or(&Selections::NONE);
        match by_group {
            true => selections.by_group,
            false => selections.by_address,
        }
    }

    /// Asks for the beginnings of a worker's packets: another core has read them.
    pub(crate) fn fetch(&self, worker: Option<usize>) {
        let selected = worker.map_or(Selection::first(self.columns.packets.len()), |worker| {
            self.selection(worker, true)
        });
        let memory: &[u8] = &self.memory;
        for packet in selected
            .iter()
            .filter_map(|at| self.columns.packets.get(at))
        {
            let start = packet.offset as usize;
            for line in (0..FETCHED).step_by(CACHE_LINE) {
                prefetch_at(memory, start + line);
            }
        }
    }

    /// Whether these headers are the batch's own.
    pub(crate) fn has(&self, decoded: &DecodedBatch) -> bool {
        core::ptr::eq(&raw const self.columns.decoded, decoded)
    }
}

impl Drop for SharedBatch {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            let columns = core::mem::take(&mut self.columns);
            // Once for each batch, never for a packet.
            let mut free = home.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(columns);
        }
    }
}

/// Bytes of a packet that a worker asks for ahead: headers, and where the payload begins. The rest
/// follows in order, which the CPU's own prefetcher sees.
const FETCHED: usize = 128;
const CACHE_LINE: usize = 64;

/// Sixteenths of what another worker gets that the first gets, as its thread reads, too: with two it
/// then has as much to do where reading costs a fifth of the rest.
fn first_share(workers: usize) -> u64 {
    match workers {
        0..=2 => 10,
        3 => 6,
        4 => 2,
        _ => 0,
    }
}

/// Decodes and hashes batches, and keeps the capture clock.
pub(crate) struct Reader {
    decoder: Decoder,
    clock: CaptureClock,
    /// Lengths of the intervals at whose ends components look at the clock.
    intervals: Vec<Nanos>,
    /// When they look at it next.
    next_look: Nanos,
    /// Packets so far.
    packets: u64,
    pieces: Vec<Cut>,
    /// Whether any stack wants headers.
    pub(crate) decodes: bool,
    decoded: DecodedBatch,
    spread: Option<Spread>,
    workers: usize,
    /// Whether the source shares its memory; not known before its first packets.
    shares: Option<bool>,
    pool: MemoryPool,
    home: Arc<Home>,
}

impl Reader {
    /// For one worker that wants headers and has no component that looks at the clock. `options` say what a tunnel is.
    pub(crate) fn new(options: DecodeOptions) -> Reader {
        Reader {
            next_look: Nanos(u64::MAX),
            intervals: Vec::new(),
            packets: 0,
            pieces: Vec::new(),
            decoder: Decoder::new(options),
            clock: CaptureClock::default(),
            decodes: true,
            decoded: DecodedBatch::new(),
            spread: None,
            workers: 1,
            shares: None,
            pool: MemoryPool::new(2),
            home: Arc::default(),
        }
    }

    /// From the next batch on: for so many workers. `waiting` batches may be held elsewhere at once.
    pub(crate) fn set(&mut self, workers: usize, decodes: bool, waiting: usize) {
        if workers > 1 && self.spread.is_none() {
            let spread = Spread::new(workers, self.decoder.options().clone()).with_groups();
            self.spread = Some(spread.with_first(first_share(workers)));
        }
        (self.workers, self.decodes) = (workers, decodes);
        self.pool = MemoryPool::new(waiting);
    }

    /// From the next packet on components that are `timed` look at the clock every tick, and at the ends of `intervals`.
    pub(crate) fn look_at(&mut self, is_timed: bool, intervals: &[Nanos]) {
        self.intervals = intervals.to_vec();
        self.intervals.extend(is_timed.then_some(TICK));
        self.intervals.sort_unstable();
        self.intervals.dedup();
        self.look();
        if self.packets == 0 && !self.intervals.is_empty() {
            // Before the first packet.
            self.next_look = Nanos(0);
        }
    }

    /// Another that makes the same of the same source. Both give each worker as much as others.
    pub(crate) fn twin(&mut self) -> Reader {
        self.spread = self
            .spread
            .take()
            .map(|spread| spread.with_first(Spread::SHARES));
        Reader {
            next_look: self.next_look,
            intervals: self.intervals.clone(),
            decodes: self.decodes,
            spread: self.spread.as_ref().map(Spread::twin),
            workers: self.workers,
            pool: self.pool.twin(),
            ..Reader::new(self.decoder.options().clone())
        }
    }

    /// Lets `work` have the next batch, where it is; `None` at the end of the input.
    pub(crate) fn lent<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
        work: impl FnOnce(Packets<'_>, &[Cut], Nanos),
    ) -> Result<Option<Step>, Error> {
        let Some(batch) = source.next_batch()? else {
            return Ok(None);
        };
        decode(&mut self.decoder, self.decodes, &batch, &mut self.decoded);
        let before = self.packets;
        let mut pieces = core::mem::take(&mut self.pieces);
        let step = self.take(&batch, &mut pieces);
        let packets = Packets {
            before,
            ..Packets::new(&batch, &self.decoded)
        };
        work(packets, &pieces, self.clock.now());
        self.pieces = pieces;
        Ok(Some(step))
    }

    /// The next batch, to be shared, which is the last of a group if `ends_group` or nobody knows when
    /// the one behind it comes; `None` at the end of the input.
    pub(crate) fn shared<S: PacketSource + ?Sized>(
        &mut self,
        source: &mut S,
        ends_group: bool,
    ) -> Result<Option<Arc<SharedBatch>>, Error> {
        let mut columns = {
            let mut free = self
                .home
                .free
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            free.pop().unwrap_or_default()
        };
        let Some(batch) = source.next_batch()? else {
            return Ok(None);
        };
        decode(
            &mut self.decoder,
            self.decodes,
            &batch,
            &mut columns.decoded,
        );
        let before = self.packets;
        let step = self.take(&batch, &mut columns.pieces);
        columns.selections.clear();
        columns.selections.resize(self.workers, Selections::NONE);
        if let Some(spread) = &mut self.spread {
            for (index, packet) in batch.packets.iter().enumerate() {
                let shards = spread.shards_of(packet, batch.bytes_of(packet));
                if let Some(selections) = columns.selections.get_mut(shards.by_address) {
                    selections.by_address.insert(index);
                }
                if let Some(selections) = columns.selections.get_mut(shards.by_group) {
                    selections.by_group.insert(index);
                }
            }
        } else if let Some(all) = columns.selections.first_mut() {
            all.by_address = Selection::first(batch.len());
            all.by_group = all.by_address;
        }
        columns.packets.clear();
        columns.packets.extend_from_slice(batch.packets);
        let mut memory = SharedMemory::default();
        if self.shares != Some(true) && !batch.is_empty() {
            memory = copied(&self.pool, &batch, &mut columns.packets);
        }
        if !batch.is_empty() && self.shares != Some(false) {
            match source.share() {
                Some(shared) if self.shares == Some(true) => memory = shared,
                shared => self.shares = Some(shared.is_some()),
            }
        }
        let shared = SharedBatch {
            memory,
            columns,
            now: self.clock.now(),
            ends_group: ends_group || !source.is_at_hand(),
            step,
            before,
            home: Some(Arc::clone(&self.home)),
        };
        Ok(Some(Arc::new(shared)))
    }

    /// A batch without packets, which brings components to where the clock is.
    pub(crate) fn idle(&self) -> Arc<SharedBatch> {
        let now = self.clock.now();
        let looks = Cut {
            clock: Some(now),
            end: 0,
        };
        Arc::new(SharedBatch {
            memory: SharedMemory::default(),
            columns: Columns {
                pieces: vec![Cut::default(), looks],
                ..Columns::default()
            },
            now,
            ends_group: true,
            step: Step::default(),
            before: self.packets,
            home: None,
        })
    }

    /// Takes the times of a batch, and cuts it where components look at the clock.
    fn take(&mut self, batch: &Batch<'_>, pieces: &mut Vec<Cut>) -> Step {
        pieces.clear();
        let mut piece = Cut::default();
        let mut step = Step::default();
        for (place, packet) in batch.packets.iter().enumerate() {
            step.captured_bytes += u64::from(packet.captured_len);
            if !self.clock.goes_on(packet.time) {
                let next = batch.packets.get(place + 1).map(|next| next.time);
                self.clock.packet(packet.time, next);
            }
            if self.clock.now() >= self.next_look {
                piece.end = place as u16;
                pieces.push(piece);
                piece.clock = Some(self.look());
            }
        }
        piece.end = batch.len() as u16;
        pieces.push(piece);
        if let Some(now) = batch.now {
            self.clock.trusted(now);
            if self.clock.now() >= self.next_look {
                piece.clock = Some(self.look());
                pieces.push(piece);
            }
        }
        step.packets = batch.len() as u64;
        self.packets += step.packets;
        step
    }

    /// Components look at the clock now; says when they do so next.
    #[cold]
    fn look(&mut self) -> Nanos {
        let now = self.clock.now();
        let ends = self.intervals.iter().map(|length| {
            let length = length.0.max(1);
            (now.0 / length + 1).saturating_mul(length)
        });
        self.next_look = Nanos(ends.min().unwrap_or(u64::MAX));
        now
    }
}

/// Decodes a batch if somebody wants that.
fn decode(decoder: &mut Decoder, is_wanted: bool, batch: &Batch<'_>, decoded: &mut DecodedBatch) {
    if is_wanted {
        decoder.decode_batch(batch, decoded);
        hash_batch(&mut decoded.packets);
    } else {
        decoded.packets.clear();
    }
}

/// The bytes of a batch, one packet behind the other.
fn copied(
    pool: &MemoryPool,
    batch: &Batch<'_>,
    descriptors: &mut [PacketDescriptor],
) -> SharedMemory {
    let total: usize = batch
        .packets
        .iter()
        .map(|packet| batch.bytes_of(packet).len())
        .sum();
    let mut memory = pool.take(total);
    let mut used = 0;
    if let Some(room) = memory.exclusive() {
        for (packet, descriptor) in batch.packets.iter().zip(descriptors) {
            let bytes = batch.bytes_of(packet);
            if let Some(room) = room.get_mut(used..used + bytes.len()) {
                room.copy_from_slice(bytes);
            }
            descriptor.offset = used as u32;
            descriptor.captured_len = bytes.len() as u32;
            used += bytes.len();
        }
    }
    memory
}
