//! Files with whole records only.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};

/// A file that is truncated to its previous length if a write fails, for instance on a full disk. Each write
/// consists of whole records, so none is left incomplete.
pub struct WholeWrites {
    open: Option<Open>,
    /// Once it is written to; with what it has, if it is a file that can be cut.
    file: Option<(File, Option<u64>)>,
}

type Open = Box<dyn FnOnce() -> io::Result<File> + Send>;

impl WholeWrites {
    /// Writes to the end of a file.
    pub fn new(file: File) -> WholeWrites {
        WholeWrites::opened_by(|| Ok(file))
    }

    /// The same for a file that is opened when it is first written: until then, a file with that name may
    /// still be written by others.
    pub fn opened_by(open: impl FnOnce() -> io::Result<File> + Send + 'static) -> WholeWrites {
        WholeWrites {
            open: Some(Box::new(open)),
            file: None,
        }
    }

    fn file(&mut self) -> io::Result<&mut (File, Option<u64>)> {
        if let Some(open) = self.open.take() {
            let mut file = open()?;
            let is_file = file.metadata().is_ok_and(|about| about.is_file());
            let end = is_file.then(|| file.seek(SeekFrom::End(0)).ok());
            self.file = Some((file, end.flatten()));
        }
        let file = self.file.as_mut();
        file.ok_or_else(|| io::Error::other("the file could not be opened"))
    }
}

impl Write for WholeWrites {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (file, length) = self.file()?;
        let result = file.write_all(bytes);
        if let Some(length) = length {
            match &result {
                Ok(()) => *length += bytes.len() as u64,
                Err(_) => {
                    // What fails here leaves it as it is.
                    let _ = file.set_len(*length);
                    let _ = file.seek(SeekFrom::Start(*length));
                }
            }
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file()?.0.flush()
    }
}
