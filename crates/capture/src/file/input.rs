//! The read buffer under every file source.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Bytes asked of the system at once. Measured (November 2026, 1.8 GB from the page cache): reading
/// into a reused buffer costs as much as mapping the file and survives a file that is cut while it
/// is read; 512 KiB stays in a second-level cache together with what works on it and is 3 to 8 per
/// cent faster than 1 MiB; 4 MiB and more were slower still.
pub(crate) const READ_BYTES: usize = 1 << 19;

/// A reader, and the window of its bytes that is in memory.
///
/// ```text
///  memory   [ consumed | window: read, not yet consumed | free          ]
///           0          start                            end             len
/// ```
///
/// [`Input::fill`] moves the window (a partial record) to the front before it reads behind it.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the stream of `memory[0]`.
    base: u64,
    ended: bool,
}

impl Input {
    /// An input that has read nothing yet.
    pub(crate) fn new(reader: Box<dyn Read + Send>, path: &Path, bytes: usize) -> Input {
        Input {
            reader,
            path: path.to_owned(),
            memory: vec![0; bytes.max(512)],
            start: 0,
            end: 0,
            base: 0,
            ended: false,
        }
    }

    /// Everything in memory up to the end of the window; offsets of packets refer to it.
    #[inline]
    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.get(..self.end).unwrap_or(&[])
    }

    /// Where the window begins in [`Input::memory`].
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes read and not yet consumed.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or(&[])
    }

    /// Offset in the stream of the first byte of the window.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the beginning of the window on.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Takes the window's bytes out and gives the reader back, to read on elsewhere.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Box<dyn Read + Send>) {
        let mut bytes = self.memory;
        bytes.truncate(self.end);
        bytes.drain(..self.start);
        (bytes, self.reader)
    }

    /// Reads until the window holds at least `need` bytes, or the input ends. Returns whether it
    /// does. The buffer grows with the bytes that really arrive, not with `need`, so a length
    /// field that lies costs no memory.
    ///
    /// # Errors
    /// [`Error::Io`] when reading fails, [`Error::Damaged`] when compressed data is damaged.
    pub(crate) fn fill(&mut self, need: usize) -> Result<bool, Error> {
        if self.start > 0 && !self.ended && self.end - self.start < need {
            self.memory.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < need && !self.ended {
            if self.end == self.memory.len() {
                let grown = (self.memory.len() * 2).min(need.next_power_of_two());
                self.memory.resize(grown.max(self.memory.len() + 1), 0);
            }
            let Some(free) = self.memory.get_mut(self.end..) else {
                break;
            };
            match self.reader.read(free) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(self.read_error(error));
                }
            }
        }
        Ok(self.end - self.start >= need)
    }

    /// Discards the next `bytes` bytes of the stream without keeping them. Returns whether the
    /// stream had that many.
    ///
    /// # Errors
    /// As [`Input::fill`].
    pub(crate) fn skip(&mut self, mut bytes: u64) -> Result<bool, Error> {
        loop {
            let here = (self.end - self.start).min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.start += here;
            bytes -= here as u64;
            if bytes == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }

    /// A decompressor reports damage as these kinds; anything else is the system's trouble.
    fn read_error(&self, source: io::Error) -> Error {
        let truncated = source.kind() == io::ErrorKind::UnexpectedEof;
        let nonsense = matches!(
            source.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
        );
        if (truncated || nonsense) && source.raw_os_error().is_none() {
            return Error::Damaged {
                path: self.path.clone(),
                offset: self.base + self.end as u64,
                reason: if truncated {
                    "the compressed data ends too early".to_owned()
                } else {
                    format!("the compressed data is damaged: {source}")
                },
                truncated,
            };
        }
        Error::Io {
            action: "read",
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes one at a time, as a slow pipe does.
    struct Drip(Vec<u8>, usize);

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (Some(byte), Some(slot)) = (self.0.get(self.1), buffer.first_mut()) else {
                return Ok(0);
            };
            *slot = *byte;
            self.1 += 1;
            Ok(1)
        }
    }

    #[test]
    fn window_moves_and_grows() {
        let bytes: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
        let mut input = Input::new(Box::new(Drip(bytes.clone(), 0)), Path::new("x"), 512);
        assert!(input.fill(500).unwrap());
        input.consume(400);
        assert!(input.fill(1000).unwrap());
        assert_eq!(input.position(), 400);
        assert_eq!(input.window()[..1000], bytes[400..1400]);
        assert!(input.skip(1200).unwrap());
        assert_eq!(input.position(), 1600);
        assert!(!input.fill(401).unwrap());
        assert_eq!(input.window(), &bytes[1600..]);
        assert!(!input.skip(401).unwrap());
    }

    #[test]
    fn a_lying_length_costs_no_memory() {
        let mut input = Input::new(Box::new(Drip(vec![7; 100], 0)), Path::new("x"), 512);
        assert!(!input.fill(usize::MAX / 4).unwrap());
        assert!(input.memory.len() <= 1024);
    }
}
