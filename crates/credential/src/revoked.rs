//! Credentials that were revoked: identifiers of their blocks in a file, one a line.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_sys::files::Folder;
use flowgauge_sys::notice::tell;

/// The longest file: 130,000 identifiers.
const MOST_BYTES: u64 = 16 << 20;
/// Hexadecimal digits of an identifier: a signature of Ed25519.
const DIGITS: usize = 128;

/// File of revoked identifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked(HashSet<String>);

impl Revoked {
    /// Reads a file of identifiers. Empty lines, and what follows a `#`, say nothing.
    ///
    /// # Errors
    /// It cannot be read, or has a line that is no identifier.
    pub fn read(path: &Path) -> Result<Revoked, String> {
        let folder = Folder::anywhere();
        // A pipe would wait for somebody who writes.
        if folder.metadata(path).is_ok_and(|about| !about.is_file()) {
            return Err("is not a regular file".to_owned());
        }
        let bytes = folder.read(path, MOST_BYTES);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let bytes = bytes.ok_or_else(|| "is longer than 16 MiB".to_owned())?;
        let text = String::from_utf8(bytes).map_err(|_| "is not text in UTF-8".to_owned())?;
        let mut ids = HashSet::new();
        for (at, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if !id.is_empty() && !Revoked::is_id(id) {
                return Err(format!("line {}: this is not an identifier", at + 1));
            }
            ids.extend(Some(id.to_owned()).filter(|id| !id.is_empty()));
        }
        Ok(Revoked(ids))
    }

    /// Whether an identifier was revoked.
    pub fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }

    /// Whether it looks like an identifier.
    pub fn is_id(text: &str) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == DIGITS && text.bytes().all(is_digit)
    }
}

/// A file of them that is read again when it has changed.
#[derive(Clone, Debug, Default)]
pub struct RevokedFile {
    path: Option<PathBuf>,
    stamp: Stamp,
    /// What was revoked.
    pub revoked: Arc<Revoked>,
}

/// Time in seconds and nanoseconds, length, and number of a file, if it is there.
type Stamp = Option<(i64, i64, u64, u64)>;

impl RevokedFile {
    /// Reads it; without a name nothing was revoked.
    ///
    /// # Errors
    /// As [`Revoked::read`].
    pub fn open(path: Option<&Path>) -> Result<RevokedFile, String> {
        let Some(path) = path else {
            return Ok(RevokedFile::default());
        };
        // Before it is read: what changes meanwhile is read again.
        let stamp = stamp(path);
        Ok(RevokedFile {
            path: Some(path.to_owned()),
            stamp,
            revoked: Arc::new(Revoked::read(path)?),
        })
    }

    /// Whether it is the same file.
    pub fn is_of(&self, other: &RevokedFile) -> bool {
        self.path == other.path
    }

    /// As it is now, if it has changed, and whether something is revoked that was not. A file that cannot be read takes
    /// nothing back.
    pub fn refreshed(&self) -> Option<(RevokedFile, bool)> {
        let path = self.path.as_deref()?;
        let stamp = stamp(path);
        if stamp == self.stamp {
            return None;
        }
        let revoked = match Revoked::read(path) {
            Ok(revoked) => Arc::new(revoked),
            Err(error) => {
                tell(format_args!(
                    "revoked credentials are those from before: {}: {error}",
                    path.display()
                ));
                Arc::clone(&self.revoked)
            }
        };
        let is_more = revoked.0.difference(&self.revoked.0).next().is_some();
        let file = RevokedFile {
            path: Some(path.to_owned()),
            stamp,
            revoked,
        };
        Some((file, is_more))
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = Folder::anywhere().metadata(path).ok()?;
    Some((about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_revoked_stays_so_when_the_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked");
        let ids = ["a", "b", "c"].map(|digit| digit.repeat(DIGITS));
        assert!(RevokedFile::open(Some(&path)).is_err());
        std::fs::write(&path, format!("# of May\n\n{}  # alice\n", ids[0])).unwrap();
        let mut file = RevokedFile::open(Some(&path)).unwrap();
        let are = |file: &RevokedFile| ids.each_ref().map(|id| file.revoked.has(id));
        assert_eq!(are(&file), [true, false, false]);
        assert!(file.refreshed().is_none());
        let mut refresh = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let (next, is_more) = file.refreshed().unwrap();
            file = next;
            (is_more, are(&file))
        };
        let [a, b, c] = &ids;
        assert_eq!(refresh(&format!("{a}\n{b}\n")), (true, [true, true, false]));
        assert_eq!(
            refresh(&format!("{c}\n{b}x\n")),
            (false, [true, true, false])
        );
        let error = Revoked::read(&path).unwrap_err();
        assert_eq!(error, "line 2: this is not an identifier");
        assert_eq!(refresh(""), (false, [false, false, false]));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            file.refreshed().map(|(file, _)| are(&file)),
            Some([false; 3])
        );
    }
}
