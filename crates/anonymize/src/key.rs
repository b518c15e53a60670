//! The secret that everything keyed is derived from.

use core::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use flowgauge_sys::files::{Folder, How};

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
        let bytes = random_bytes().map_err(Error::io("read", Path::new("/dev/urandom")))?;
        Ok(Key(bytes))
    }

    /// That of a file: 32 bytes, or 64 hexadecimal digits. Where there is no file one is made, for its owner only
    /// (mode 600); whether it was is told with it.
    ///
    /// # Errors
    /// It cannot be read or made, is no key, or others can read it.
    pub fn read_or_make(folder: &Folder, path: &Path) -> Result<(Key, bool), Error> {
        if let Some(key) = Key::read(folder, path)? {
            return Ok((key, false));
        }
        if let Some(key) = Key::make(folder, path)? {
            return Ok((key, true));
        }
        // Another process was faster, or a link leads nowhere.
        match Key::read(folder, path)? {
            Some(key) => Ok((key, false)),
            None => Err(Error::LostKey {
                path: path.to_owned(),
            }),
        }
    }

    /// That of a file; `None`: there is none.
    fn read(folder: &Folder, path: &Path) -> Result<Option<Key>, Error> {
        let io = Error::io("read", path);
        let file = match folder.open(path, How::read()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_file() && metadata.mode() & 0o077 != 0 {
            return Err(Error::OpenKey {
                path: path.to_owned(),
            });
        }
        let mut text = Vec::new();
        file.take(1024).read_to_end(&mut text).map_err(io)?;
        let no_key = || Error::NoKey {
            path: path.to_owned(),
        };
        if let Ok(bytes) = <[u8; Key::BYTES]>::try_from(text.as_slice()) {
            return Ok(Some(Key(bytes)));
        }
        Key::from_digits(text.trim_ascii())
            .ok_or_else(no_key)
            .map(Some)
    }

    /// Of 64 hexadecimal digits.
    pub fn from_digits(digits: &[u8]) -> Option<Key> {
        if digits.len() != Key::BYTES * 2 {
            return None;
        }
        let mut bytes = [0; Key::BYTES];
        let decoded = HEXLOWER_PERMISSIVE.decode_mut(digits, &mut bytes);
        decoded.ok().map(|_| Key(bytes))
    }

    /// A new one in a file; `None`: something of the name is there.
    fn make(folder: &Folder, path: &Path) -> Result<Option<Key>, Error> {
        let key = Key::random()?;
        let io = Error::io("make", path);
        // A key is there whole or not at all: two that begin at once have the same one.
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = Path::new(&name);
        let mut file = folder
            .open(temporary, How::new_file().mode(0o600))
            .map_err(io)?;
        let mut text = HEXLOWER.encode(&key.0);
        text.push('\n');
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| folder.link(temporary, path));
        let _ = folder.remove_file(temporary);
        match written {
            Ok(()) => Ok(Some(key)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_then() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::anywhere();
        let path = place.path().join("key");
        let (made, is_made) = Key::read_or_make(&folder, &path).unwrap();
        assert!(is_made);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (read, is_made) = Key::read_or_make(&folder, &path).unwrap();
        assert!(read == made && !is_made);
        // Through a link it is the same one.
        symlink("key", place.path().join("link")).unwrap();
        let (read, _) = Key::read_or_make(&folder, &place.path().join("link")).unwrap();
        assert!(read == made);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_no_key_and_none_is_made() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        symlink("/nonexistent", &path).unwrap();
        let refused = Key::read_or_make(&Folder::anywhere(), &path).unwrap_err();
        assert!(matches!(refused, Error::LostKey { .. }), "{refused}");
        assert!(refused.hint().is_some());
        // Nothing is left of the attempt.
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_is_not_made_outside_of_a_folder() {
        let place = tempfile::tempdir().unwrap();
        let inside = place.path().join("in");
        fs::create_dir(&inside).unwrap();
        let folder = Folder::beneath(&inside).unwrap();
        for path in [place.path().join("key").as_path(), Path::new("../key")] {
            Key::read_or_make(&folder, path).unwrap_err();
        }
        assert!(Key::read_or_make(&folder, Path::new("key")).unwrap().1);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        assert!(inside.join("key").exists());
    }
}
