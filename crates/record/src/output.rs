//! Destinations of encoded records.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crate::any::AnyRecord;
use crate::encoder::{Encoder, Format};
use crate::schema::{Record, Schema};
use crate::table::{Screen, TableLayout};
use crate::writer_thread::{Destination, WriterThread};

/// Bytes that are collected before they are written: large enough for few system calls, small
/// enough to stay in the second-level cache.
const BUFFER: usize = 64 * 1024;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The reader closed the pipe. This is not a failure: it has seen enough.
    #[error("the reader of the output went away")]
    Closed,
    /// Writing failed; probably the disk is full.
    #[error("cannot write the output: {source}")]
    Io {
        /// Name of the output, if a [`WriterThread`] writes to several.
        name: Option<String>,
        /// The system's error.
        source: io::Error,
    },
}

impl OutputError {
    /// Of an output with this name.
    pub(crate) fn of(self, name: &str) -> OutputError {
        match self {
            OutputError::Closed => OutputError::Closed,
            OutputError::Io { source, .. } => OutputError::Io {
                name: Some(name.to_owned()),
                source,
            },
        }
    }
}

impl From<io::Error> for OutputError {
    fn from(source: io::Error) -> OutputError {
        if source.kind() == io::ErrorKind::BrokenPipe {
            OutputError::Closed
        } else {
            OutputError::Io { name: None, source }
        }
    }
}

/// Writes encoded records to a file, a pipe or a terminal.
pub struct Output(Route);

enum Route {
    Direct(Target),
    Thread(WriterThread, Arc<Destination>),
}

impl Output {
    /// An output to `target`, which need not be buffered. `screen` only affects tables.
    pub fn new(
        target: Box<dyn Write + Send>,
        format: Format,
        schema: Schema,
        screen: Screen,
    ) -> Output {
        Output(Route::Direct(Target {
            target,
            layout: (format == Format::Table).then(|| TableLayout::new(schema, screen)),
            lines: Vec::new(),
        }))
    }

    /// An output that writes encoded bytes without changes.
    pub fn raw(target: Box<dyn Write + Send>) -> Output {
        Output::new(target, Format::Json, &[], Screen::default())
    }

    /// Writes by a thread, if given; `name` appears in messages about failures.
    #[must_use]
    pub fn by(self, thread: Option<&WriterThread>, name: &str) -> Output {
        match (self.0, thread) {
            (Route::Direct(target), Some(thread)) => {
                let destination = Destination {
                    name: name.to_owned(),
                    target: Mutex::new(target),
                };
                Output(Route::Thread(thread.clone(), Arc::new(destination)))
            }
            (route, _) => Output(route),
        }
    }

    /// Writes encoded records, whole ones, or leaves that to its thread; with `flushes` also what was kept back. False: its thread
    /// has no room for them.
    fn take(&mut self, encoded: &mut Vec<u8>, flushes: bool) -> Result<bool, OutputError> {
        match &mut self.0 {
            Route::Direct(target) => {
                target.write(encoded)?;
                if flushes {
                    target.flush()?;
                }
                Ok(true)
            }
            Route::Thread(thread, destination) => thread.give(destination, encoded, flushes),
        }
    }

    /// Its thread had no room for so many.
    #[cold]
    fn lose(&self, records: u64) {
        if let Route::Thread(thread, _) = &self.0 {
            thread.lose(records);
        }
    }

    /// Whether it does better to get more at once.
    fn is_busy(&self) -> bool {
        match &self.0 {
            Route::Direct(_) => false,
            Route::Thread(thread, _) => thread.is_busy(),
        }
    }
}

/// What is written to.
pub(crate) struct Target {
    target: Box<dyn Write + Send>,
    layout: Option<TableLayout>,
    lines: Vec<u8>,
}

impl Target {
    pub(crate) fn write(&mut self, encoded: &[u8]) -> Result<(), OutputError> {
        let Some(layout) = &mut self.layout else {
            return Ok(self.target.write_all(encoded)?);
        };
        layout.rows(encoded, &mut self.lines);
        self.write_lines()
    }

    /// Writes everything that was kept back.
    pub(crate) fn flush(&mut self) -> Result<(), OutputError> {
        if let Some(layout) = &mut self.layout {
            layout.flush(&mut self.lines);
            self.write_lines()?;
        }
        Ok(self.target.flush()?)
    }

    fn write_lines(&mut self) -> Result<(), OutputError> {
        let written = self.target.write_all(&self.lines);
        self.lines.clear();
        Ok(written?)
    }
}

/// An encoder, its buffer and an output, for a single thread that writes records.
///
/// Writing never returns an error, because records are created inside the engine: the first failure is stored, later
/// records are ignored, and [`RecordWriter::check`] returns the failure.
pub struct RecordWriter {
    encoder: Encoder,
    buffer: Vec<u8>,
    /// Bytes in front of the first record that are not written yet.
    header: usize,
    /// Records in the buffer.
    records: u64,
    /// What is lost is counted in lines.
    counts_lines: bool,
    output: Output,
    failure: Option<OutputError>,
    /// Encoded bytes that the output took.
    drained: u64,
}

impl RecordWriter {
    /// A writer of records of `schema`.
    pub fn new(output: Output, format: Format, schema: Schema) -> RecordWriter {
        let encoder = Encoder::new(format);
        let mut buffer = Vec::with_capacity(BUFFER + 4096);
        encoder.header(schema, &mut buffer);
        RecordWriter {
            encoder,
            header: buffer.len(),
            buffer,
            records: 0,
            counts_lines: false,
            output,
            failure: None,
            drained: 0,
        }
    }

    /// A writer of bytes encoded elsewhere, or of records as JSON lines, after a header.
    pub fn of_bytes(output: Output, header: &[u8]) -> RecordWriter {
        let mut writer = RecordWriter::new(output, Format::Json, &[]);
        writer.buffer.extend_from_slice(header);
        writer.header = writer.buffer.len();
        writer
    }

    /// The same for lines, of which lost ones are counted.
    pub fn of_lines(output: Output, header: &[u8]) -> RecordWriter {
        RecordWriter {
            counts_lines: true,
            ..RecordWriter::of_bytes(output, header)
        }
    }

    /// A writer that continues another one's output, without the header line.
    #[must_use]
    pub fn without_header(mut self) -> RecordWriter {
        self.buffer.clear();
        self.header = 0;
        self
    }

    /// Writes one record.
    #[inline]
    pub fn write<R: Record>(&mut self, record: &R) {
        self.write_by(|encoder, buffer| encoder.encode(record, buffer));
    }

    /// Writes a record whose kind is known only at run time; only the fields that are `wanted`, by index in its schema.
    pub fn write_any(&mut self, record: &dyn AnyRecord, wanted: Option<&[bool]>) {
        self.write_by(|encoder, buffer| match wanted {
            Some(wanted) => record.encode_some(wanted, encoder, buffer),
            None => record.encode(encoder, buffer),
        });
    }

    /// Writes one encoded record.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        self.write_by(|_, buffer| buffer.extend_from_slice(bytes));
    }

    /// Writes the bytes that `write` appends after the previous records.
    #[inline]
    pub fn write_by(&mut self, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        if self.failure.is_some() {
            return;
        }
        write(&mut self.encoder, &mut self.buffer);
        self.records += 1;
        if self.buffer.len() >= BUFFER {
            self.drain(false);
        }
    }

    /// Size in bytes of the records encoded so far, including the header line.
    pub fn bytes(&self) -> u64 {
        self.drained + self.buffer.len() as u64
    }

    /// Whether writing has failed, or the reader has closed the pipe.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Writes buffered records, for a waiting reader. (A slow reader gets them together with later ones.)
    pub fn flush(&mut self) {
        if !self.output.is_busy() {
            self.drain(true);
        }
    }

    /// The first failure, if any; returned once.
    ///
    /// # Errors
    /// That failure.
    pub fn check(&mut self) -> Result<(), OutputError> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Ends the output: buffered records are written, or passed to the thread.
    ///
    /// # Errors
    /// As [`RecordWriter::check`].
    pub fn finish(&mut self) -> Result<(), OutputError> {
        self.drain(true);
        self.check()
    }

    fn drain(&mut self, flushes: bool) {
        if self.failure.is_none() {
            let bytes = self.buffer.len() as u64;
            match self.output.take(&mut self.buffer, flushes) {
                Ok(true) => {
                    self.drained += bytes;
                    self.header = 0;
                }
                // The header comes with later records.
                Ok(false) => self.output.lose(match self.counts_lines {
                    true => lines(self.buffer.get(self.header..).unwrap_or_default()),
                    false => self.records,
                }),
                Err(error) => self.failure = Some(error),
            }
        }
        self.buffer.truncate(self.header);
        self.records = 0;
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use flowgauge_stream::StreamIdentity;
    use flowgauge_wire::Address;

    use super::*;
    use crate::stream::{STREAM_SCHEMA, StreamRow};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Refuses(io::ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn row() -> StreamRow<'static> {
        StreamRow {
            identity: StreamIdentity {
                flow_id: 1,
                source: (Address([0; 16]), 1),
                destination: (Address([0; 16]), 2),
                version: 4,
                protocol: 6,
                ..StreamIdentity::default()
            },
            bytes: 3,
            state: "fin",
            ..StreamRow::default()
        }
    }

    fn writer(target: impl Write + Send + 'static, format: Format) -> RecordWriter {
        let output = Output::new(Box::new(target), format, STREAM_SCHEMA, Screen::default());
        RecordWriter::new(output, format, STREAM_SCHEMA)
    }

    #[test]
    fn everything_arrives_in_every_format() {
        for (format, lines) in [
            (Format::Json, 1000),
            (Format::Csv, 1001),
            (Format::Table, 1001),
        ] {
            let target = Shared::default();
            let mut writer = writer(target.clone(), format);
            for _ in 0..1000 {
                writer.write(&row());
            }
            writer.flush();
            writer.check().unwrap();
            let written = target.0.lock().unwrap();
            assert_eq!(written.iter().filter(|&&byte| byte == b'\n').count(), lines);
        }
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        let mut closed = writer(Refuses(io::ErrorKind::BrokenPipe), Format::Json);
        closed.write(&row());
        closed.flush();
        assert!(matches!(closed.check(), Err(OutputError::Closed)));
        let mut full = writer(Refuses(io::ErrorKind::StorageFull), Format::Json);
        full.write(&row());
        full.flush();
        assert!(matches!(full.check(), Err(OutputError::Io { .. })));
    }
}
