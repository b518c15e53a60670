//! Streams in chunks: `flowgauge streams` with cutoffs, priorities, modes and a memory budget.

use flowgauge_record::stream::{
    GAP_SCHEMA, GapRow, STREAM_COUNTERS_HASH_SCHEMA, STREAM_COUNTERS_SCHEMA,
    STREAM_GAPS_HASH_SCHEMA, STREAM_GAPS_SCHEMA, STREAM_HASH_SCHEMA, STREAM_SCHEMA, StreamCounters,
};
use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::totals::TotalsRow;
use flowgauge_record::{RecordWriter, Schema, StreamRow};
use flowgauge_runtime::capture::with_refusals;
use flowgauge_runtime::stream_filter;
use flowgauge_stream::engine::{
    ApplicationConfig, ApplicationId, Budget, ChunkInfo, Cutoffs, DataChunk, Engine, EngineConfig,
    EngineStatistics, Events, Priorities, StreamFilter, StreamRef,
};
use flowgauge_stream::{Chunk, Handler, Shard, Stream, StreamIdentity};
use flowgauge_sys::tally::byte_sum;
use flowgauge_wire::{Batch, Ledger};
use sha2::{Digest, Sha256};

use crate::engine::{Pipeline, configuration};
use crate::failure::Failure;
use crate::options::{ChunkOptions, EngineOptions, StreamsOptions};
use crate::run::Consumer;
use crate::streams::{FileWriter, slot};

/// What all workers of a run share: the options, understood, and one memory budget.
pub(crate) struct Setup {
    engine: EngineOptions,
    config: EngineConfig,
    application: ApplicationConfig,
    budget: Budget,
}

impl Setup {
    /// Understands the options.
    ///
    /// # Errors
    /// When a filter does not compile, or the options make no sense together.
    pub(crate) fn new(options: &StreamsOptions) -> Result<Setup, Failure> {
        let chunks = &options.chunks;
        let mut config = EngineConfig::default();
        if let Some(bytes) = options.engine.memory {
            config.memory_bytes = bytes;
        }
        if let Some(share) = chunks.base_threshold {
            config.base_threshold = share;
        }
        config.overload_cutoff = chunks.overload_cutoff;
        if let Some(policies) = &chunks.policy {
            config.policies.clone_from(policies);
        }
        let application = application(chunks)?;
        if application.overlap_bytes > 0 && application.overlap_bytes >= application.chunk_bytes {
            return Err(Failure::usage(
                format!(
                    "--overlap {} is not less than the chunks' {} bytes",
                    application.overlap_bytes, application.chunk_bytes
                ),
                "raise --chunk, or repeat fewer bytes",
            ));
        }
        Ok(Setup {
            engine: EngineOptions {
                // The one budget takes its place.
                memory: None,
                ..options.engine.clone()
            },
            budget: Budget::new(config.memory_bytes),
            config,
            application,
        })
    }

    /// The pipeline of one of `workers`.
    pub(crate) fn pipeline(&self, workers: usize, led: bool) -> ChunkPipeline {
        let mut config = self.config.clone();
        config.shard = configuration(&self.engine, workers as u64);
        if let Some(policies) = Some(&config.policies).filter(|given| !given.is_uniform()) {
            config.shard = config.shard.with_policy(policies.default_policy());
        } else if config.policies != Default::default() {
            let policy = config.policies.default_policy();
            config.shard = config.shard.with_policy(policy);
        }
        config.shard.flow.led_clock = led;
        let mut engine = Engine::with_budget(config, self.budget.clone());
        engine.add(self.application.clone());
        ChunkPipeline { engine }
    }
}

fn application(options: &ChunkOptions) -> Result<ApplicationConfig, Failure> {
    let filter = |expression: &str| -> Result<StreamFilter, Failure> {
        stream_filter(expression).map_err(|error| Failure::opening(&error))
    };
    let mut cutoff = Cutoffs::default();
    cutoff.default = options.cutoff.unwrap_or(cutoff.default);
    for direction in &options.cutoff_direction {
        let place = if direction.from_initiator {
            &mut cutoff.from_initiator
        } else {
            &mut cutoff.from_responder
        };
        if place.replace(direction.cutoff).is_some() {
            return Err(Failure::usage(
                "--cutoff-direction is given twice for the same side",
                "give one for client and one for server",
            ));
        }
    }
    for class in &options.cutoff_class {
        cutoff.classes.push((filter(&class.filter)?, class.value));
    }
    let mut priority = Priorities::default();
    for class in &options.priority {
        priority.classes.push((filter(&class.filter)?, class.value));
    }
    let usual = ApplicationConfig::default();
    Ok(ApplicationConfig {
        filter: None,
        mode: options.mode.unwrap_or(usual.mode),
        cutoff,
        chunk_bytes: options.chunk.unwrap_or(usual.chunk_bytes),
        overlap_bytes: options.overlap.unwrap_or(usual.overlap_bytes),
        flush_timeout: options.flush_timeout,
        priority,
        inactivity_timeout: None,
    })
}

/// The engine of streams in chunks, with one application.
pub(crate) struct ChunkPipeline {
    engine: Engine,
}

impl<E: Events> Pipeline<E> for ChunkPipeline {
    #[inline]
    fn process(&mut self, batch: &Batch<'_>, events: &mut E) {
        self.engine.process(batch, events);
    }

    fn finish(&mut self, events: &mut E) {
        self.engine.finish(events);
    }

    fn ledger(&self, source: Ledger) -> Ledger {
        with_refusals(source, self.engine.ledger())
    }

    fn shard(&self) -> &Shard {
        self.engine.shard()
    }

    fn streams(&self) -> Option<EngineStatistics> {
        Some(self.engine.statistics())
    }
}

/// Which records are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) streams: bool,
    pub(crate) gaps: bool,
    pub(crate) hashes: bool,
    pub(crate) counters: bool,
}

impl Wanted {
    pub(crate) fn schema(self) -> Schema {
        match (self.streams, self.gaps, self.hashes, self.counters) {
            (false, ..) => GAP_SCHEMA,
            (true, false, false, false) => STREAM_SCHEMA,
            (true, false, true, false) => STREAM_HASH_SCHEMA,
            (true, true, false, _) => STREAM_GAPS_SCHEMA,
            (true, true, true, _) => STREAM_GAPS_HASH_SCHEMA,
            (true, false, false, true) => STREAM_COUNTERS_SCHEMA,
            (true, false, true, true) => STREAM_COUNTERS_HASH_SCHEMA,
        }
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
    hash: Option<Sha256>,
}

/// Writes a record for every direction or hole, and the bytes where asked for; or counts and reads.
pub(crate) struct ChunkWriter {
    pub(crate) writer: Option<RecordWriter>,
    pub(crate) wanted: Wanted,
    pub(crate) files: Option<FileWriter>,
    pub(crate) totals: TotalsRow,
    /// By the dense part of the unique id.
    progress: Vec<Progress>,
    live: bool,
}

impl ChunkWriter {
    pub(crate) fn new(
        writer: Option<RecordWriter>,
        wanted: Wanted,
        files: Option<FileWriter>,
    ) -> ChunkWriter {
        ChunkWriter {
            writer,
            wanted,
            files,
            totals: TotalsRow::default(),
            progress: Vec::new(),
            live: false,
        }
    }

    /// Bytes without a hole; `missing` is one right before them.
    fn run(&mut self, stream: &StreamRef<'_>, offset: u64, missing: u64, bytes: &[u8]) {
        let id = stream.uid() as u32;
        if missing > 0 {
            self.gap(stream, offset - missing, missing);
        }
        let progress = slot(&mut self.progress, id);
        progress.bytes += bytes.len() as u64;
        progress.end = offset + bytes.len() as u64;
        self.totals.bytes += bytes.len() as u64;
        if let Some(hash) = &mut progress.hash {
            hash.update(bytes);
        }
        if self.writer.is_none() {
            self.totals.checksum = self.totals.checksum.wrapping_add(byte_sum(bytes));
        }
        if let Some(files) = &mut self.files
            && !bytes.is_empty()
        {
            let identity = stream.identity();
            let chunk = Chunk {
                bytes,
                offset,
                gap_before: missing,
                time: stream.statistics().end,
            };
            files.stream_data(&Stream::detached(id, &identity), &chunk);
        }
    }

    #[cold]
    fn gap(&mut self, stream: &StreamRef<'_>, offset: u64, size: u64) {
        let progress = slot(&mut self.progress, stream.uid() as u32);
        progress.missing_bytes += size;
        progress.gaps += 1;
        if self.wanted.gaps
            && let Some(writer) = &mut self.writer
        {
            writer.write(&GapRow {
                identity: stream.identity(),
                offset,
                size,
                with_streams: self.wanted.streams,
                with_hashes: self.wanted.hashes,
            });
        }
    }

    fn write(&mut self, stream: &StreamRef<'_>, progress: Progress) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let mut text = Vec::new();
        if let Some(hash) = progress.hash {
            write_hex_bytes(&mut text, &hash.finalize());
        }
        let StreamIdentity {
            flow_id,
            source,
            destination,
            version,
            protocol,
            ..
        } = stream.identity();
        let state = if stream.is_cut() {
            "cutoff"
        } else if stream.is_halted() {
            "strict"
        } else {
            stream.status().name()
        };
        writer.write(&StreamRow {
            version,
            protocol,
            source,
            destination,
            bytes: progress.bytes,
            missing_bytes: progress.missing_bytes,
            gaps: progress.gaps,
            state,
            flow_id,
            with_gaps: self.wanted.gaps,
            counters: self.wanted.counters.then(|| StreamCounters {
                statistics: stream.statistics(),
                chunks: stream.chunks(),
            }),
            sha256: (self.wanted.hashes).then(|| core::str::from_utf8(&text).unwrap_or("")),
        });
    }
}

impl Events for ChunkWriter {
    fn created(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        self.totals.streams += 1;
        *slot(&mut self.progress, id) = Progress {
            hash: self.wanted.hashes.then(Sha256::new),
            ..Progress::default()
        };
        if let Some(files) = &mut self.files {
            files.stream_created(&Stream::detached(id, &stream.identity()));
        }
    }

    fn data(
        &mut self,
        _application: ApplicationId,
        stream: &mut StreamRef<'_>,
        chunk: &mut DataChunk<'_>,
    ) {
        let ChunkInfo {
            offset,
            gap_before,
            repeated,
            ..
        } = chunk.info();
        let bytes = chunk.bytes();
        let (mut at, mut missing) = (repeated as usize, gap_before);
        for hole in chunk.holes() {
            let (start, end) = (hole.start as usize, hole.end as usize);
            if end <= at {
                continue;
            }
            if let Some(run) = bytes.get(at..start).filter(|run| !run.is_empty()) {
                self.run(stream, offset + at as u64, missing, run);
                missing = 0;
            }
            missing += (end - start.max(at)) as u64;
            at = end;
        }
        let rest = bytes.get(at..).unwrap_or(&[]);
        if !rest.is_empty() || missing > 0 {
            self.run(stream, offset + at as u64, missing, rest);
        }
    }

    fn terminated(&mut self, _application: ApplicationId, stream: &mut StreamRef<'_>) {
        let id = stream.uid() as u32;
        let trailing = stream.missing_at_end();
        if trailing > 0 {
            let end = slot(&mut self.progress, id).end;
            self.gap(stream, end, trailing);
        }
        let progress = core::mem::take(slot(&mut self.progress, id));
        self.totals.missing_bytes += progress.missing_bytes;
        self.totals.gaps += progress.gaps;
        self.totals.empty_streams += u64::from(progress.bytes == 0);
        if let Some(files) = &mut self.files {
            files.stream_terminated(&Stream::detached(id, &stream.identity()), trailing);
        }
        if self.wanted.streams {
            self.write(stream, progress);
        }
        if self.live
            && let Some(writer) = &mut self.writer
        {
            writer.flush();
        }
    }
}

impl Consumer for ChunkWriter {
    fn set_live(&mut self) {
        self.live = true;
    }

    fn finished(&self) -> bool {
        self.writer.as_ref().is_some_and(RecordWriter::has_failed)
            || self.files.as_ref().is_some_and(FileWriter::finished)
    }

    fn writer(&mut self) -> Option<&mut RecordWriter> {
        self.writer.as_mut()
    }
}
