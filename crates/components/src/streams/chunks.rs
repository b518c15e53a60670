//! Streams in chunks: with cutoffs, priorities, modes and one memory budget.

use flowgauge_record::StreamRow;
use flowgauge_record::stream::StreamCounters;
use flowgauge_record::totals::TotalsRow;
use flowgauge_runtime::{Chunk as StreamChunk, StreamHandle};
use flowgauge_stack::engine::Step;
use flowgauge_stack::{Account, Outlet, SettingError, Settings, options};
use flowgauge_stream::engine::{ApplicationConfig, Budget};
use flowgauge_stream::offload::Verdicts;
use flowgauge_stream::{Chunk, ShardConfig, Stream};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::Nanos;
use sha2::{Digest, Sha256};

use super::{FileWriter, Wanted, Ways, give, slot};
use crate::chunked::{self, Chunked, Handling, Held, Usual};

options! {
    pub(super) const;
    COUNTERS = counters: Flag,
        "add packet and byte counters to each record: all, dropped, discarded, captured";
}

/// Whether any of the options was given that have streams delivered in chunks.
pub(super) fn are_wanted(settings: &Settings) -> bool {
    chunked::are_wanted(settings) || settings.setting(COUNTERS.name).is_some()
}

/// Bytes of memory that a connection takes while it lasts, beside those of its flow and of its hashes. Those
/// of its chunks are in the budget.
pub(super) fn bytes_per_connection(settings: &Settings) -> u64 {
    chunked::bytes_per_connection(settings) + 2 * size_of::<Progress>() as u64
}

/// Gives a record for every direction or hole, and the bytes to files where asked for.
pub(super) struct Chunks {
    chunked: Chunked,
    state: Held<State>,
}

impl Chunks {
    pub(super) fn new(
        settings: &Settings,
        shard: ShardConfig,
        wanted: Wanted,
        budget: &Budget,
    ) -> Result<Chunks, SettingError> {
        let usual = Usual {
            chunk_bytes: ApplicationConfig::CHUNK_BYTES,
            flush_timeout: None,
        };
        let state = State {
            wanted,
            files: None,
            progress: Vec::new(),
            had_bytes: Vec::new(),
            hashes: Vec::new(),
            totals: TotalsRow::default(),
        };
        Ok(Chunks {
            chunked: Chunked::new(settings, shard, budget, usual)?,
            state: Held::new(settings, true, state),
        })
    }

    /// Tells what is wanted of flows.
    pub(super) fn set_offload(&mut self, verdicts: &Verdicts) {
        self.chunked.set_offload(verdicts);
    }

    /// The bytes of streams go to files.
    pub(super) fn write_to(&mut self, files: FileWriter) {
        self.state.with(|state| state.files = Some(files));
    }

    pub(super) fn clock(&self) -> Nanos {
        self.chunked.clock()
    }

    pub(super) fn totals(&self) -> TotalsRow {
        self.state.read(|state| state.totals)
    }

    pub(super) fn account(&self) -> Account {
        self.chunked.account()
    }

    pub(super) fn take(&mut self, step: &Step<'_, '_>, now: Nanos, out: &mut dyn Outlet) {
        self.chunked.take(step, &mut self.state, now, out);
    }
}

/// What has come of a stream.
#[derive(Clone, Debug, Default)]
struct Progress {
    bytes: u64,
    missing_bytes: u64,
    gaps: u64,
    /// Position behind the last byte or hole.
    end: u64,
}

struct State {
    wanted: Wanted,
    files: Option<FileWriter>,
    /// By the dense part of the unique id; of no use for totals.
    progress: Vec<Progress>,
    /// For totals: a bit for each stream that has had bytes. All of them stay in the cache.
    had_bytes: Vec<u64>,
    /// As `progress`, where hashes are wanted.
    hashes: Vec<Option<Sha256>>,
    totals: TotalsRow,
}

impl State {
    fn ways<'a>(&'a mut self, out: &'a mut dyn Outlet) -> Ways<'a> {
        let files = &mut self.files;
        Ways { files, out }
    }

    /// Bytes without a hole; `missing` is one right before them.
    fn run(&mut self, stream: &StreamHandle<'_>, offset: u64, missing: u64, bytes: &[u8]) {
        let id = stream.uid() as u32;
        if self.wanted.totals {
            self.totals.bytes += bytes.len() as u64;
            self.totals.checksum = self.totals.checksum.wrapping_add(byte_sum(bytes));
            let (had_bytes, bit) = had_bytes(&mut self.had_bytes, id);
            *had_bytes |= bit * u64::from(!bytes.is_empty());
            return;
        }
        let progress = slot(&mut self.progress, id);
        progress.bytes += bytes.len() as u64;
        progress.end = offset + bytes.len() as u64;
        if self.wanted.hashes
            && let Some(hash) = slot(&mut self.hashes, id)
        {
            hash.update(bytes);
        }
        if let Some(files) = &mut self.files
            && !bytes.is_empty()
        {
            let identity = stream.identity();
            let chunk = Chunk {
                bytes,
                offset,
                gap_before: missing,
                skipped: 0,
                time: stream.statistics().end,
                captured: stream.statistics().end,
            };
            files.data(&Stream::detached(id, &identity), &chunk);
        }
    }

    #[cold]
    fn gap(
        &mut self,
        stream: &StreamHandle<'_>,
        (offset, size): (u64, u64),
        now: Nanos,
        out: &mut dyn Outlet,
    ) {
        if self.wanted.totals {
            self.totals.missing_bytes += size;
            self.totals.gaps += 1;
            return;
        }
        let progress = slot(&mut self.progress, stream.uid() as u32);
        progress.missing_bytes += size;
        progress.gaps += 1;
        let (wanted, identity) = (self.wanted, stream.identity());
        self.ways(out).gap(wanted, now, identity, (offset, size));
    }

    fn write(
        &mut self,
        stream: &StreamHandle<'_>,
        (progress, hash): (Progress, Option<Sha256>),
        now: Nanos,
        out: &mut dyn Outlet,
    ) {
        let wanted = self.wanted;
        let state = if stream.is_cut() {
            "cutoff"
        } else if stream.is_halted() {
            "strict"
        } else {
            stream.status().name()
        };
        let row = StreamRow {
            identity: stream.identity(),
            bytes: progress.bytes,
            missing_bytes: progress.missing_bytes,
            gaps: progress.gaps,
            state,
            with_gaps: wanted.gaps,
            counters: wanted.counters.then(|| StreamCounters {
                statistics: stream.statistics(),
                chunks: stream.chunks(),
            }),
            sha256: None,
        };
        match wanted.hashes {
            true => self.ways(out).hashed(now, row, hash),
            false => give(out, now, &row),
        }
    }
}

impl Handling for State {
    fn created(&mut self, stream: &StreamHandle<'_>) {
        let id = stream.uid() as u32;
        self.totals.streams += 1;
        if self.wanted.totals {
            return;
        }
        *slot(&mut self.progress, id) = Progress::default();
        if self.wanted.hashes {
            *slot(&mut self.hashes, id) = Some(Sha256::new());
        }
        if let Some(files) = &mut self.files {
            files.created(id);
        }
    }

    fn data(
        &mut self,
        stream: &StreamHandle<'_>,
        chunk: &StreamChunk<'_>,
        now: Nanos,
        out: &mut dyn Outlet,
    ) {
        chunked::for_each_run(chunk, |offset, missing, bytes| {
            if missing > 0 {
                self.gap(stream, (offset - missing, missing), now, out);
            }
            self.run(stream, offset, missing, bytes);
        });
    }

    fn terminated(&mut self, stream: &StreamHandle<'_>, now: Nanos, out: &mut dyn Outlet) {
        let id = stream.uid() as u32;
        let trailing = stream.missing_at_end();
        if trailing > 0 {
            let end = self.progress.get(id as usize).map_or(0, |it| it.end);
            self.gap(stream, (end, trailing), now, out);
        }
        if self.wanted.totals {
            let (had_bytes, bit) = had_bytes(&mut self.had_bytes, id);
            self.totals.empty_streams += u64::from(*had_bytes & bit == 0);
            *had_bytes &= !bit;
            return;
        }
        let progress = core::mem::take(slot(&mut self.progress, id));
        let hash = (self.wanted.hashes)
            .then(|| slot(&mut self.hashes, id).take())
            .flatten();
        if let Some(files) = &mut self.files {
            files.terminated(id);
        }
        if self.wanted.streams {
            self.write(stream, (progress, hash), now, out);
        }
    }
}

/// Where the bit of a stream is, and the bit.
fn had_bytes(bits: &mut Vec<u64>, id: u32) -> (&mut u64, u64) {
    (slot(bits, id / 64), 1 << (id % 64))
}
