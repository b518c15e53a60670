//! A file that is written record by record, optionally compressed.

use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};

use flowgauge_sys::files::{self, How};

use crate::error::Error;
use crate::sink::compress::Compressor;

/// Records are collected up to this size before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Compression of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// According to the name: `.gz` and `.zst` are compressed.
    #[default]
    ByName,
    /// None.
    None,
    /// gzip, level 3, as writing must keep up with the capture.
    Gzip,
    /// zstd, level 3.
    Zstd,
}

impl Compression {
    /// What `ByName` means for this name.
    pub(crate) fn resolved(self, path: &Path) -> Compression {
        if self != Compression::ByName {
            return self;
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst" | "zstd") => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// A file or standard output.
enum Raw {
    File(File),
    Stdout(io::Stdout),
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Raw::File(file) => file.write(bytes),
            Raw::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Raw::File(file) => file.flush(),
            Raw::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Collects records and writes them whole.
pub(crate) struct Output {
    path: PathBuf,
    /// `None`: finished, or given up after an error.
    target: Option<Compressor<Raw>>,
    /// Bytes that the file had before.
    base: u64,
    pub(crate) buffer: Vec<u8>,
    /// The packets in `buffer`.
    ends: Vec<End>,
    /// Bytes handed to the target before `buffer`.
    flushed: u64,
    /// Bytes of a compressed file in which everything before `buffer` is.
    compressed: u64,
    packets: u64,
    wire_bytes: u64,
}

/// A packet in the buffer: where it ends, and its length on the wire.
struct End {
    at: usize,
    wire_len: u32,
}

impl Output {
    /// Creates the file, or goes on at its end, or takes standard output for `-`.
    pub(crate) fn create(
        path: &Path,
        compression: Compression,
        append: bool,
    ) -> Result<Output, Error> {
        let mut base = 0;
        let raw = if path == Path::new("-") {
            Raw::Stdout(io::stdout())
        } else {
            let how = if append {
                How::append()
            } else {
                How::replace()
            };
            let file = files::named().open(path, how);
            let file = file.map_err(Error::io("create", path))?;
            base = match append {
                true => file.metadata().map_or(0, |about| about.len()),
                false => 0,
            };
            Raw::File(file)
        };
        let target = Compressor::new(raw, compression.resolved(path));
        let target = target.map_err(Error::io("compress", path))?;
        Ok(Output {
            path: path.to_owned(),
            target: Some(target),
            base,
            buffer: Vec::with_capacity(BUFFER_BYTES + (64 << 10)),
            ends: Vec::with_capacity(4096),
            flushed: 0,
            compressed: base,
            packets: 0,
            wire_bytes: 0,
        })
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that the file had before it was opened.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Bytes so far, before compression.
    pub(crate) fn size(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Packets so far.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Their bytes on the wire.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// A packet was appended to `buffer`.
    #[inline]
    pub(crate) fn packet_done(&mut self, wire_len: u32) -> Result<(), Error> {
        let at = self.buffer.len();
        self.ends.push(End { at, wire_len });
        self.packets += 1;
        self.wire_bytes += u64::from(wire_len);
        if self.buffer.len() >= BUFFER_BYTES {
            return self.write_buffer();
        }
        Ok(())
    }

    /// Hands everything to the system.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.write_buffer()?;
        let result = match &mut self.target {
            Some(Compressor::Plain(raw)) => raw.flush(),
            // What was compressed has been handed on.
            _ => Ok(()),
        };
        result.map_err(Error::io("write", &self.path))
    }

    /// Writes what is left and the compressor's trailer.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.write_buffer()?;
        // Without its trailer the file holds all packets nevertheless.
        let result = self.target.take().map_or(Ok(()), Compressor::finish);
        result.map_err(Error::io("write", &self.path))
    }

    fn write_buffer(&mut self) -> Result<(), Error> {
        let Some(target) = &mut self.target else {
            // Given up before: what came later is not in the file and is not counted.
            self.forget(0);
            self.buffer.clear();
            return Ok(());
        };
        if self.buffer.is_empty() {
            return Ok(());
        }
        // A compressor keeps what it likes; only after its flush the packets are in the file.
        let result = match &mut *target {
            Compressor::Plain(raw) => write_counted(raw, &self.buffer),
            compressor => write_compressed(compressor, &self.buffer),
        };
        if let Err((done, source)) = result {
            self.give_up(done);
            return Err(Error::io("write", &self.path)(source));
        }
        self.flushed += self.buffer.len() as u64;
        if let Some(Raw::File(file)) = target.compressed() {
            self.compressed = file.stream_position().unwrap_or(self.compressed);
        }
        self.buffer.clear();
        self.ends.clear();
        Ok(())
    }

    /// Cuts the file back to its last whole record, of which `done` bytes of the buffer are part.
    #[cold]
    fn give_up(&mut self, done: usize) {
        let whole = self.ends.partition_point(|end| end.at <= done);
        let kept = match whole.checked_sub(1).and_then(|last| self.ends.get(last)) {
            Some(end) => end.at as u64,
            None => 0,
        };
        self.forget(whole);
        // A pipe cannot be cut; then there is nothing more to be done.
        if let Some(Compressor::Plain(Raw::File(file))) = &self.target {
            let _ = file.set_len(self.base + self.flushed + kept);
        }
        self.flushed += kept;
        self.buffer.clear();
        let cut = match self.target.as_mut().and_then(Compressor::compressed) {
            Some(Raw::File(file)) => file.try_clone().ok(),
            _ => None,
        };
        // A compressor that goes writes what it has left: the file is cut after that.
        self.target = None;
        if let Some(file) = cut {
            let _ = file.set_len(self.compressed);
        }
    }

    /// Takes the packets in the buffer, but the first `kept`, out of the counts.
    fn forget(&mut self, kept: usize) {
        for end in self.ends.drain(..).skip(kept) {
            self.packets -= 1;
            self.wire_bytes -= u64::from(end.wire_len);
        }
    }
}

/// Writes everything; an error says how many bytes went before it.
fn write_counted(target: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match target.write(rest) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// Compresses everything and hands it on; after an error nothing of it counts as written.
fn write_compressed(target: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let result = target.write_all(bytes).and_then(|()| target.flush());
    result.map_err(|source| (0, source))
}
