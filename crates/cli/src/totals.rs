//! `flowgauge streams --count`: every delivered byte is read, totals are printed.

use flowgauge_record::totals::{TOTALS_SCHEMA, TotalsRow};
use flowgauge_record::{Record, RecordWriter, Schema};
use flowgauge_stream::{Chunk, Handler, Stream};
use flowgauge_sys::tally::byte_sum;

use crate::failure::{self, Failure};
use crate::memory::Needs;
use crate::options::StreamsOptions;
use crate::run::{Consumer, Run};
use crate::sinks;
use crate::stream_chunks::{ChunkWriter, Setup, Wanted};

/// Runs the command.
///
/// # Errors
/// What went wrong, for the user.
pub(crate) fn run(options: &StreamsOptions, setup: Option<&Setup>) -> Result<(), Failure> {
    let engine = options.engine.with_needs(Needs {
        streams: true,
        ..Needs::default()
    });
    let run = Run::open(&options.input, &options.output.common, &engine)?;
    let mut totals = TotalsRow::default();
    let outcome = if let Some(setup) = setup {
        let nothing = Wanted {
            streams: false,
            gaps: false,
            hashes: false,
            counters: false,
        };
        let make = |_worker| ChunkWriter::new(None, nothing, None);
        let pipeline = |workers, led| setup.pipeline(workers, led);
        let (outcome, parts) = run.collect_with(make, pipeline)?;
        parts.iter().for_each(|part| totals.merge(&part.totals));
        outcome
    } else {
        let (outcome, parts) = run.collect(|_worker| Totals::default())?;
        parts.iter().for_each(|part| totals.merge(&part.row));
        outcome
    };
    let written = write(options, &totals, TOTALS_SCHEMA);
    outcome.conclude(&options.output.common)?;
    written
}

fn write<R: Record>(options: &StreamsOptions, row: &R, schema: Schema) -> Result<(), Failure> {
    let output = sinks::open(&options.output, schema)?;
    let mut writer = RecordWriter::new(output, sinks::format(&options.output), schema);
    writer.write(row);
    writer.flush();
    failure::of_writer(&mut writer)
}

/// Counts and reads.
#[derive(Default)]
struct Totals {
    row: TotalsRow,
}

impl Handler for Totals {
    const STREAMS: bool = true;
    const FLOWS: bool = false;

    fn stream_created(&mut self, _stream: &Stream<'_>) {
        self.row.streams += 1;
    }

    #[inline]
    fn stream_data(&mut self, _stream: &Stream<'_>, chunk: &Chunk<'_>) {
        self.row.bytes += chunk.bytes.len() as u64;
        self.row.checksum = self.row.checksum.wrapping_add(byte_sum(chunk.bytes));
    }

    fn stream_terminated(&mut self, stream: &Stream<'_>, trailing_gap: u64) {
        self.row.missing_bytes += stream.missing_bytes + trailing_gap;
        self.row.gaps += u64::from(stream.gaps) + u64::from(trailing_gap > 0);
        self.row.empty_streams += u64::from(stream.bytes == 0);
    }
}

impl Consumer for Totals {}
