//! Streams in chunks: with cutoffs, priorities, modes and one memory budget.

use flowgauge_record::StreamRow;
use flowgauge_record::stream::StreamCounters;
use flowgauge_record::totals::TotalsRow;
use flowgauge_stack::engine::Step;
use flowgauge_stack::{Account, SettingError, Settings, options};
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Budget, DataChunk, EngineConfig, Events, StreamRef,
};
use flowgauge_stream::{Chunk, ShardConfig, Stream};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::Nanos;
use sha2::{Digest, Sha256};

use super::{Wanted, Ways, give, slot};
use crate::chunked::{self, Chunked, Usual};

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
pub(super) const BYTES_PER_CONNECTION: u64 =
    EngineConfig::BYTES_PER_CONNECTION + 2 * size_of::<Progress>() as u64;

/// Gives a record for every direction or hole, and the bytes to files where asked for.
pub(super) struct Chunks {
    chunked: Chunked,
    state: State,
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
        Ok(Chunks {
            chunked: Chunked::new(settings, shard, budget, usual)?,
            state: State {
                wanted,
                progress: Vec::new(),
                hashes: Vec::new(),
                totals: TotalsRow::default(),
            },
        })
    }

    pub(super) fn clock(&self) -> Nanos {
        self.chunked.clock()
    }

    pub(super) fn totals(&self) -> TotalsRow {
        self.state.totals
    }

    pub(super) fn account(&self) -> Account {
        self.chunked.account()
    }

    pub(super) fn take(&mut self, step: &Step<'_, '_>, now: Nanos, ways: Ways<'_>) {
        let Chunks { chunked, state } = self;
        chunked.take(step, &mut Give { state, ways, now });
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
    /// By the dense part of the unique id.
    progress: Vec<Progress>,
    /// The same, where hashes are wanted.
    hashes: Vec<Option<Sha256>>,
    totals: TotalsRow,
}

/// The state, and the ways out of it.
struct Give<'a, 'b> {
    state: &'a mut State,
    ways: Ways<'b>,
    now: Nanos,
}

impl Give<'_, '_> {
    /// Bytes without a hole; `missing` is one right before them.
    fn run(&mut self, stream: &StreamRef<'_>, offset: u64, missing: u64, bytes: &[u8]) {
        let id = stream.uid() as u32;
        if missing > 0 {
            self.gap(stream, offset - missing, missing);
        }
        let state = &mut *self.state;
        let progress = slot(&mut state.progress, id);
        progress.bytes += bytes.len() as u64;
        progress.end = offset + bytes.len() as u64;
        state.totals.bytes += bytes.len() as u64;
        if state.wanted.hashes
            && let Some(hash) = slot(&mut state.hashes, id)
        {
            hash.update(bytes);
        }
        if state.wanted.totals {
            state.totals.checksum = state.totals.checksum.wrapping_add(byte_sum(bytes));
        }
        if let Some(files) = self.ways.files
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
    fn gap(&mut self, stream: &StreamRef<'_>, offset: u64, size: u64) {
        let progress = slot(&mut self.state.progress, stream.uid() as u32);
        progress.missing_bytes += size;
        progress.gaps += 1;
        let (wanted, identity) = (self.state.wanted, stream.identity());
        self.ways.gap(wanted, self.now, identity, (offset, size));
    }

    fn write(&mut self, stream: &StreamRef<'_>, progress: Progress, hash: Option<Sha256>) {
        let wanted = self.state.wanted;
        let identity = stream.identity();
        let state = if stream.is_cut() {
            "cutoff"
        } else if stream.is_halted() {
            "strict"
        } else {
            stream.status().name()
        };
        let row = StreamRow {
            bytes: progress.bytes,
            missing_bytes: progress.missing_bytes,
            gaps: progress.gaps,
            state,
            with_gaps: wanted.gaps,
            counters: wanted.counters.then(|| StreamCounters {
                statistics: stream.statistics(),
                chunks: stream.chunks(),
            }),
            ..StreamRow::new(&Stream::detached(0, &identity), 0, None)
        };
        match wanted.hashes {
            true => self.ways.hashed(self.now, row, hash),
            false => give(self.ways.out, self.now, &row),
        }
    }
}

impl Events for Give<'_, '_> {
    fn created(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        self.state.totals.streams += 1;
        *slot(&mut self.state.progress, id) = Progress::default();
        if self.state.wanted.hashes {
            *slot(&mut self.state.hashes, id) = Some(Sha256::new());
        }
        if let Some(files) = self.ways.files {
            files.created(id);
        }
    }

    fn data(
        &mut self,
        _application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        chunked::for_each_run(chunk, |offset, missing, bytes| {
            self.run(stream, offset, missing, bytes);
        });
    }

    fn terminated(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        let trailing = stream.missing_at_end();
        if trailing > 0 {
            let end = slot(&mut self.state.progress, id).end;
            self.gap(stream, end, trailing);
        }
        let progress = core::mem::take(slot(&mut self.state.progress, id));
        let hash = (self.state.wanted.hashes)
            .then(|| slot(&mut self.state.hashes, id).take())
            .flatten();
        let totals = &mut self.state.totals;
        totals.missing_bytes += progress.missing_bytes;
        totals.gaps += progress.gaps;
        totals.empty_streams += u64::from(progress.bytes == 0);
        if let Some(files) = self.ways.files {
            files.terminated(id);
        }
        if self.state.wanted.streams && !self.state.wanted.totals {
            self.write(stream, progress, hash);
        }
    }
}
