//! Where encoded records go.

use std::io::{self, Write};

use crate::any::AnyRecord;
use crate::encoder::{Encoder, Format};
use crate::schema::{Record, Schema};
use crate::table::TableLayout;

/// Bytes that are collected before they are written: large enough for few system calls, small
/// enough to stay in the second-level cache.
const BUFFER: usize = 64 * 1024;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The reader went away (a closed pipe). Not a failure: whoever reads has seen enough.
    #[error("the reader of the output went away")]
    Closed,
    /// Writing failed; likely the disk is full.
    #[error("cannot write the output: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> OutputError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            OutputError::Closed
        } else {
            OutputError::Io(error)
        }
    }
}

/// Takes encoded records and writes them to a file, a pipe or a terminal.
pub struct Output {
    target: Box<dyn Write + Send>,
    layout: Option<TableLayout>,
    lines: Vec<u8>,
}

impl Output {
    /// An output to `target`, which need not be buffered. `terminal_width` matters to tables only.
    pub fn new(
        target: Box<dyn Write + Send>,
        format: Format,
        schema: Schema,
        terminal_width: Option<usize>,
    ) -> Output {
        Output {
            target,
            layout: (format == Format::Table).then(|| TableLayout::new(schema, terminal_width)),
            lines: Vec::new(),
        }
    }

    /// An output that takes encoded records as they are: another one will lay them out.
    pub fn raw(target: Box<dyn Write + Send>) -> Output {
        Output {
            target,
            layout: None,
            lines: Vec::new(),
        }
    }

    /// Writes encoded records, whole ones.
    ///
    /// # Errors
    /// When the target refuses them.
    pub fn write(&mut self, encoded: &[u8]) -> Result<(), OutputError> {
        let Some(layout) = &mut self.layout else {
            return Ok(self.target.write_all(encoded)?);
        };
        layout.rows(encoded, &mut self.lines);
        self.write_lines()
    }

    /// Writes everything that was kept back.
    ///
    /// # Errors
    /// When the target refuses it.
    pub fn flush(&mut self) -> Result<(), OutputError> {
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

/// An encoder, its buffer and an output: what a single thread needs to write records.
///
/// Writing never fails at the call, because records come out of the middle of the engine: the
/// first failure is kept, later records are ignored, and [`RecordWriter::check`] tells.
pub struct RecordWriter {
    encoder: Encoder,
    buffer: Vec<u8>,
    output: Output,
    failure: Option<OutputError>,
    records: u64,
    /// Encoded bytes that the output was given.
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
            buffer,
            output,
            failure: None,
            records: 0,
            drained: 0,
        }
    }

    /// A writer whose encoded records go to another [`Output`], which writes what comes before
    /// the first record and lays them out.
    pub fn raw(target: Box<dyn Write + Send>, format: Format) -> RecordWriter {
        RecordWriter::new(Output::raw(target), format, &[]).without_header()
    }

    /// A writer that goes on where another one stopped: without the line of names.
    #[must_use]
    pub fn without_header(mut self) -> RecordWriter {
        self.buffer.clear();
        self
    }

    /// Writes one record.
    #[inline]
    pub fn write<R: Record>(&mut self, record: &R) {
        if self.failure.is_some() {
            return;
        }
        self.encoder.encode(record, &mut self.buffer);
        self.records += 1;
        if self.buffer.len() >= BUFFER {
            self.drain();
        }
    }

    /// Writes a record of a kind that is known only now; of its fields those that are `wanted`, by
    /// their place in its schema.
    pub fn write_any(&mut self, record: &dyn AnyRecord, wanted: Option<&[bool]>) {
        if self.failure.is_some() {
            return;
        }
        match wanted {
            Some(wanted) => record.encode_some(wanted, &mut self.encoder, &mut self.buffer),
            None => record.encode(&mut self.encoder, &mut self.buffer),
        }
        self.records += 1;
        if self.buffer.len() >= BUFFER {
            self.drain();
        }
    }

    /// Writes text as it is.
    pub fn write_text(&mut self, text: &str) {
        if self.failure.is_some() {
            return;
        }
        self.buffer.extend_from_slice(text.as_bytes());
        if self.buffer.len() >= BUFFER {
            self.drain();
        }
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of the encoded records so far, and of the line before them.
    pub fn bytes(&self) -> u64 {
        self.drained + self.buffer.len() as u64
    }

    /// Whether writing has failed, or the reader has gone.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Pushes out what is buffered, for a reader who waits.
    pub fn flush(&mut self) {
        self.drain();
        if self.failure.is_none()
            && let Err(error) = self.output.flush()
        {
            self.failure = Some(error);
        }
    }

    /// The first failure, if there was one; it is handed out once.
    ///
    /// # Errors
    /// That failure.
    pub fn check(&mut self) -> Result<(), OutputError> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn drain(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.output.write(&self.buffer)
        {
            self.failure = Some(error);
        }
        self.drained += self.buffer.len() as u64;
        self.buffer.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

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

    const ROW: StreamRow<'static> = StreamRow {
        version: 4,
        protocol: 6,
        source: (Address([0; 16]), 1),
        destination: (Address([0; 16]), 2),
        bytes: 3,
        missing_bytes: 0,
        gaps: 0,
        state: "fin",
        flow_id: 1,
        with_gaps: false,
        counters: None,
        sha256: None,
    };

    fn writer(target: impl Write + Send + 'static, format: Format) -> RecordWriter {
        let output = Output::new(Box::new(target), format, STREAM_SCHEMA, None);
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
                writer.write(&ROW);
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
        closed.write(&ROW);
        closed.flush();
        assert!(matches!(closed.check(), Err(OutputError::Closed)));
        let mut full = writer(Refuses(io::ErrorKind::StorageFull), Format::Json);
        full.write(&ROW);
        full.flush();
        assert!(matches!(full.check(), Err(OutputError::Io(_))));
    }
}
