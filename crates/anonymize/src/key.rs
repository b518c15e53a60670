//! The secret that everything keyed is derived from.

use core::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::Error;
use crate::keyed::random_bytes;

/// 32 bytes that nobody else knows. Crypto-PAn uses them as they are, so that the same key gives the
/// same addresses as in other programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; Key::BYTES]);

impl Key {
    /// Length of a key.
    pub const BYTES: usize = 32;

    /// One of these bytes.
    pub const fn new(bytes: [u8; Key::BYTES]) -> Key {
        Key(bytes)
    }

    /// Its bytes, not for output of any kind.
    pub const fn bytes(&self) -> &[u8; Key::BYTES] {
        &self.0
    }

    /// A new one.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn random() -> Result<Key, Error> {
        let bytes = random_bytes().map_err(|source| Error::Io {
            action: "read",
            path: "/dev/urandom".into(),
            source,
        })?;
        Ok(Key(bytes))
    }

    /// That of a file: 32 bytes, or 64 hexadecimal digits. Where there is no file one is made, for its owner only
    /// (mode 600).
    ///
    /// # Errors
    /// It cannot be read or made, is no key, or others can read it.
    pub fn read_or_make(path: &Path) -> Result<Key, Error> {
        let io = |action| {
            move |source| Error::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Key::make(path),
            Err(error) => return Err(io("read")(error)),
        };
        let metadata = file.metadata().map_err(io("read"))?;
        if metadata.is_file() && metadata.mode() & 0o077 != 0 {
            return Err(Error::OpenKey {
                path: path.to_owned(),
            });
        }
        let mut text = Vec::new();
        Read::by_ref(&mut file)
            .take(1024)
            .read_to_end(&mut text)
            .map_err(io("read"))?;
        let no_key = || Error::NoKey {
            path: path.to_owned(),
        };
        if let Ok(bytes) = <[u8; Key::BYTES]>::try_from(text.as_slice()) {
            return Ok(Key(bytes));
        }
        let digits = text.trim_ascii();
        if digits.len() != Key::BYTES * 2 {
            return Err(no_key());
        }
        let mut bytes = [0; Key::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = core::str::from_utf8(pair).map_err(|_| no_key())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| no_key())?;
        }
        Ok(Key(bytes))
    }

    fn make(path: &Path) -> Result<Key, Error> {
        let key = Key::random()?;
        let io = |source| Error::Io {
            action: "make",
            path: path.to_owned(),
            source,
        };
        // A key is there whole or not at all: two that begin at once have the same one.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = Path::new(&name);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)
            .map_err(io)?;
        let mut text: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push('\n');
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| fs::hard_link(temporary, path));
        let _ = fs::remove_file(temporary);
        match written {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Key::read_or_make(path),
            Err(error) => Err(io(error)),
        }
    }
}

impl fmt::Debug for Key {
    /// Without its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
