//! `flowgauge streams`

use flowgauge_record::stream::{
    GAP_SCHEMA, GapRow, STREAM_GAPS_HASH_SCHEMA, STREAM_GAPS_SCHEMA, STREAM_HASH_SCHEMA,
    STREAM_SCHEMA,
};
use flowgauge_record::text::write_hex_bytes;
use flowgauge_record::{RecordWriter, Schema, StreamRow};
use flowgauge_stream::{Chunk, Handler, Stream};
use flowgauge_wire::{Batch, DecodedBatch};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::memory::{self, Needs};
use crate::options::StreamsOptions;
use crate::run::{Consumer, Run, Writers};
use crate::stream_chunks::{self, ChunkWriter, Setup};
use crate::stream_files::{self, StreamFiles};
use crate::totals;

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StreamsOptions) -> Result<(), Failure> {
    let setup = if options.chunks.are_given() {
        Some(Setup::new(options)?)
    } else {
        None
    };
    if options.tally {
        return totals::run(options, setup.as_ref());
    }
    let needs = needs(options);
    let files = match &options.out {
        Some(folder) => {
            let memory = memory::of_results(options.engine.memory, needs);
            Some(StreamFiles::create(folder, options.fill_gaps, memory)?)
        }
        None => None,
    };
    let engine = options.engine.with_needs(needs);
    let run = Run::open(&options.input, &options.output.common, &engine)?;
    let wanted = Wanted {
        streams: !options.gaps || options.list || options.hash,
        gaps: options.gaps,
        hashes: options.hash,
    };
    if let Some(setup) = setup {
        return run_in_chunks(options, run, &setup, wanted, files);
    }
    if let Some(files) = files.as_ref()
        && options.files_are_all()
    {
        let (outcome, _) = run.collect(|_worker| FileWriter::new(files.clone()))?;
        let written = files.conclude(options.output.common.quiet);
        outcome.conclude(&options.output.common)?;
        return written;
    }
    let writers = Writers::open(&options.output, wanted.schema())?;
    let (outcome, written) = run.records(writers, |writer| StreamWriter {
        writer,
        hashes: Vec::new(),
        wanted,
        files: files.clone().map(FileWriter::new),
        live: false,
    })?;
    let files_written = match &files {
        Some(files) => files.conclude(options.output.common.quiet),
        None => Ok(()),
    };
    outcome.conclude(&options.output.common)?;
    written.and(files_written)
}

fn needs(options: &StreamsOptions) -> Needs {
    let hashes = 2 * size_of::<Option<Sha256>>() as u64 * u64::from(options.hash);
    let files = stream_files::BYTES_PER_CONNECTION * u64::from(options.out.is_some());
    Needs {
        streams: true,
        per_flow: hashes + files,
        results: options.out.is_some(),
    }
}

fn run_in_chunks(
    options: &StreamsOptions,
    run: Run,
    setup: &Setup,
    wanted: Wanted,
    files: Option<StreamFiles>,
) -> Result<(), Failure> {
    let wanted = stream_chunks::Wanted {
        streams: wanted.streams,
        gaps: wanted.gaps,
        hashes: wanted.hashes,
        counters: options.chunks.counters,
    };
    let pipeline = |workers, led| setup.pipeline(workers, led);
    let file_writer = || files.clone().map(FileWriter::new);
    let (outcome, written) = if options.files_are_all() {
        let none = stream_chunks::Wanted {
            streams: false,
            ..wanted
        };
        let make = |_worker| ChunkWriter::new(None, none, file_writer());
        let (outcome, _) = run.collect_with(make, pipeline)?;
        (outcome, Ok(()))
    } else {
        let writers = Writers::open(&options.output, wanted.schema())?;
        let make = |writer| ChunkWriter::new(Some(writer), wanted, file_writer());
        run.records_with(writers, make, pipeline)?
    };
    let files_written = match &files {
        Some(files) => files.conclude(options.output.common.quiet),
        None => Ok(()),
    };
    outcome.conclude(&options.output.common)?;
    written.and(files_written)
}

/// Which records are asked for.
#[derive(Clone, Copy)]
struct Wanted {
    streams: bool,
    gaps: bool,
    hashes: bool,
}

impl Wanted {
    fn schema(self) -> Schema {
        match (self.streams, self.gaps, self.hashes) {
            (false, ..) => GAP_SCHEMA,
            (true, false, false) => STREAM_SCHEMA,
            (true, false, true) => STREAM_HASH_SCHEMA,
            (true, true, false) => STREAM_GAPS_SCHEMA,
            (true, true, true) => STREAM_GAPS_HASH_SCHEMA,
        }
    }
}

/// Writes a record for every direction or hole, and the bytes where asked for.
struct StreamWriter {
    writer: RecordWriter,
    /// By [`Stream::id`].
    hashes: Vec<Option<Sha256>>,
    wanted: Wanted,
    files: Option<FileWriter>,
    live: bool,
}

impl Handler for StreamWriter {
    const STREAMS: bool = true;

    fn batch(&mut self, _batch: &Batch<'_>, _decoded: &DecodedBatch) {
        if self.live {
            self.writer.flush();
        }
    }

    fn stream_created(&mut self, stream: &Stream<'_>) {
        if self.wanted.hashes {
            *slot(&mut self.hashes, stream.id) = Some(Sha256::new());
        }
        if let Some(files) = &mut self.files {
            files.stream_created(stream);
        }
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        if self.wanted.gaps && chunk.gap_before > 0 {
            self.gap(stream, chunk.offset - chunk.gap_before, chunk.gap_before);
        }
        if self.wanted.hashes
            && let Some(Some(hash)) = self.hashes.get_mut(stream.id as usize)
        {
            hash.update(chunk.bytes);
        }
        if let Some(files) = &mut self.files {
            files.stream_data(stream, chunk);
        }
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        if let Some(files) = &mut self.files {
            files.stream_terminated(stream, trailing_gap);
        }
        if self.wanted.gaps && trailing_gap > 0 {
            self.gap(stream, stream.bytes + stream.missing_bytes, trailing_gap);
        }
        if !self.wanted.streams {
            return;
        }
        let mut row = StreamRow::new(stream, trailing_gap, None);
        row.with_gaps = self.wanted.gaps;
        if !self.wanted.hashes {
            return self.writer.write(&row);
        }
        let hash = slot(&mut self.hashes, stream.id).take().unwrap_or_default();
        let mut text = Vec::with_capacity(64);
        write_hex_bytes(&mut text, &hash.finalize());
        let text = core::str::from_utf8(&text).unwrap_or("");
        self.writer.write(&StreamRow {
            sha256: Some(text),
            ..row
        });
    }
}

impl StreamWriter {
    #[cold]
    fn gap(&mut self, stream: &Stream<'_>, offset: u64, size: u64) {
        self.writer.write(&GapRow {
            identity: stream.identity(),
            offset,
            size,
            with_streams: self.wanted.streams,
            with_hashes: self.wanted.hashes,
        });
    }
}

impl Consumer for StreamWriter {
    fn set_live(&mut self) {
        self.live = true;
    }

    fn finished(&self) -> bool {
        self.writer.has_failed() || self.files.as_ref().is_some_and(FileWriter::finished)
    }

    fn writer(&mut self) -> Option<&mut RecordWriter> {
        Some(&mut self.writer)
    }
}

/// The place for stream `id` in a column that grows as ids do (they are dense).
pub(crate) fn slot<T: Default>(column: &mut Vec<T>, id: u32) -> &mut T {
    let index = id as usize;
    if index >= column.len() {
        column.resize_with(index + 1, T::default);
    }
    &mut column[index]
}

/// Writes the bytes of every direction to its file.
pub(crate) struct FileWriter {
    files: StreamFiles,
    /// Numbers of files by [`Stream::id`], plus one; 0 while a direction has no bytes.
    numbers: Vec<u32>,
}

impl FileWriter {
    fn new(files: StreamFiles) -> FileWriter {
        FileWriter {
            files,
            numbers: Vec::new(),
        }
    }
}

impl Handler for FileWriter {
    const STREAMS: bool = true;

    fn stream_created(&mut self, stream: &Stream<'_>) {
        *slot(&mut self.numbers, stream.id) = 0;
    }

    fn stream_data(&mut self, stream: &Stream<'_>, chunk: &Chunk<'_>) {
        let number = slot(&mut self.numbers, stream.id);
        self.files.write(number, stream, chunk);
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, _trailing_gap: u64) {
        let number = core::mem::take(slot(&mut self.numbers, stream.id));
        self.files.close(number);
    }
}

impl Consumer for FileWriter {
    fn finished(&self) -> bool {
        self.files.has_failed()
    }
}
