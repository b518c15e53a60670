//! Compression for any writer.

use std::io::{self, Write};
use std::path::Path;

use crate::sink::output::Compression;

/// A writer that compresses if the name of a file says so.
pub enum Compressor<W: Write> {
    /// Not compressed.
    Plain(W),
    /// gzip.
    Gzip(flate2::write::GzEncoder<W>),
    /// zstd.
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Compressor<W> {
    /// Compresses data for `writer` according to the extension of `path`.
    ///
    /// # Errors
    /// The compressor cannot be set up.
    pub fn by_name(writer: W, path: &Path) -> io::Result<Compressor<W>> {
        Compressor::new(writer, Compression::ByName.resolved(path))
    }

    pub(super) fn new(writer: W, compression: Compression) -> io::Result<Compressor<W>> {
        Ok(match compression {
            Compression::Gzip => Compressor::Gzip(flate2::write::GzEncoder::new(
                writer,
                flate2::Compression::new(3),
            )),
            Compression::Zstd => Compressor::Zstd(zstd::Encoder::new(writer, 3)?),
            Compression::None | Compression::ByName => Compressor::Plain(writer),
        })
    }

    /// What a compressor writes to; `None`: there is none.
    pub(super) fn compressed(&mut self) -> Option<&mut W> {
        match self {
            Compressor::Plain(_) => None,
            Compressor::Gzip(encoder) => Some(encoder.get_mut()),
            Compressor::Zstd(encoder) => Some(encoder.get_mut()),
        }
    }

    /// Writes the trailer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(self) -> io::Result<()> {
        let mut writer = match self {
            Compressor::Plain(writer) => writer,
            Compressor::Gzip(encoder) => encoder.finish()?,
            Compressor::Zstd(encoder) => encoder.finish()?,
        };
        writer.flush()
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Compressor::Plain(writer) => writer.write(bytes),
            Compressor::Gzip(encoder) => encoder.write(bytes),
            Compressor::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Compressor::Plain(writer) => writer.flush(),
            Compressor::Gzip(encoder) => encoder.flush(),
            Compressor::Zstd(encoder) => encoder.flush(),
        }
    }
}
