//! Input that may be silent: pipes, standard input, devices.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use flowgauge_sys::ending::is_ending;
use flowgauge_sys::files::{self, How};
use flowgauge_sys::local::wait_for;

/// How long nobody looks whether the process is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is no regular file. It ends when the process is to end, too, however long it is silent.
pub(crate) struct Pipe(File);

impl From<File> for Pipe {
    fn from(file: File) -> Pipe {
        Pipe(file)
    }
}

/// Standard input, read anew from where it stands.
///
/// # Errors
/// The system's.
pub(crate) fn standard_input() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Opens a file; one with a name that is a pipe without waiting for who writes into it.
///
/// # Errors
/// The system's.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let is_pipe = files::named().metadata(path)?.file_type().is_fifo();
    files::named().open(
        path,
        match is_pipe {
            true => How::read().without_waiting(),
            false => How::read(),
        },
    )
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while !is_ending() {
            if !wait_for(self.0.as_fd(), Some(PATIENCE))? {
                continue;
            }
            match self.0.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
        Ok(0)
    }
}
