//! Files that hold whole records only.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};

/// A file that is cut back to what it had before a write that failed, a full disk say. Records are
/// written several at once, and whole: so none is left in pieces.
#[derive(Debug)]
pub struct WholeWrites {
    file: File,
    /// What it has; `None`: it is no file that can be cut.
    length: Option<u64>,
}

impl WholeWrites {
    /// Writes to the end of a file.
    pub fn new(mut file: File) -> WholeWrites {
        let is_file = file.metadata().is_ok_and(|about| about.is_file());
        let end = is_file.then(|| file.seek(SeekFrom::End(0)).ok());
        WholeWrites {
            length: end.flatten(),
            file,
        }
    }
}

impl Write for WholeWrites {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.file.write_all(bytes);
        if let Some(length) = &mut self.length {
            match &result {
                Ok(()) => *length += bytes.len() as u64,
                Err(_) => {
                    // What fails here leaves it as it is.
                    let _ = self.file.set_len(*length);
                    let _ = self.file.seek(SeekFrom::Start(*length));
                }
            }
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
