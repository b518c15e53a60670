//! Rotation and names of files, compatible with tcpdump.

use std::path::{Path, PathBuf};

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Local};
use flowgauge_wire::Nanos;

use crate::error::Error;

/// When to start the next file (tcpdump's `-C`, `-G`, `-W`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// `-C`: a new file before the packet that would follow more than this many bytes (counted
    /// before compression). Later files have a number after their name, starting at 1.
    pub bytes: Option<u64>,
    /// `-G`: a new file each time this many seconds have passed on the capture clock; the name is a
    /// `strftime` format, filled in with local time.
    pub seconds: Option<u64>,
    /// `-W`: with `-C`, this many files are overwritten in turn, numbered from 0 with leading zeros;
    /// with `-G`, writing ends after this many files; with both, it only determines the leading
    /// zeros.
    pub files: Option<u32>,
}

const NO_FORMAT: &str = "the name is not a valid strftime format";

impl Rotation {
    /// Digits of the numbers in file names.
    fn digits(&self) -> usize {
        match self.files {
            Some(files) if files > 1 => (files - 1).ilog10() as usize + 1,
            _ => 0,
        }
    }

    /// Name of file number `count` that begins at `time`.
    pub(crate) fn name(&self, path: &Path, count: u32, time: Nanos) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        if self.seconds.is_some() {
            // It was checked beforehand.
            let text = path.to_string_lossy();
            name = dated(&text, time).map_or(name, Into::into);
        }
        let digits = if self.bytes.is_some() {
            self.digits()
        } else {
            0
        };
        if count > 0 || digits > 0 {
            name.push(format!("{count:0digits$}"));
        }
        name.into()
    }

    /// Checks what cannot work.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Error> {
        let refused = |reason: &str, hint: &str| {
            Err(Error::Sink {
                path: path.to_owned(),
                reason: reason.to_owned(),
                hint: hint.to_owned(),
            })
        };
        if self.seconds.is_some() {
            let text = path.to_string_lossy();
            if StrftimeItems::new(&text).any(|item| matches!(item, Item::Error)) {
                return refused(NO_FORMAT, "write a percent sign as %%, or see strftime(3)");
            }
        }
        if self.bytes == Some(0) || self.seconds == Some(0) || self.files == Some(0) {
            return refused("a limit of rotation is zero", "use a number from 1 on");
        }
        if path == Path::new("-") && (self.bytes.is_some() || self.seconds.is_some()) {
            return refused("standard output cannot be rotated", "use a file name");
        }
        Ok(())
    }
}

/// The successive files of a [`Rotation`]: the current file, and when the next one starts.
#[derive(Clone, Debug)]
pub struct Rotator {
    path: PathBuf,
    rotation: Rotation,
    /// Number of the current file among those of `-C`.
    count: u32,
    /// When the current period of `-G` began, and how many began before it.
    period: Option<(Nanos, u32)>,
}

/// A [`Rotator`]'s decision about the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It belongs to the open file, or to the first one if none is open.
    Same,
    /// The open file is finished; another one starts.
    Next,
    /// The maximum number of files is reached.
    Over,
}

impl Rotator {
    /// A rotation of files named after `path`.
    ///
    /// # Errors
    /// [`Error::Sink`] if the rotation is not possible.
    pub fn new(path: impl Into<PathBuf>, rotation: Rotation) -> Result<Rotator, Error> {
        let path = path.into();
        rotation.check(&path)?;
        Ok(Rotator {
            path,
            rotation,
            count: 0,
            period: None,
        })
    }

    /// Whether a record of this `time` belongs to the open file, which has `size` bytes; `None`: no
    /// file is open.
    #[inline]
    pub fn turn(&mut self, time: Nanos, size: Option<u64>) -> Turn {
        let rotation = self.rotation;
        if let Some(seconds) = rotation.seconds {
            let length = Nanos::from_secs(seconds).0;
            match self.period {
                None => self.period = Some((time, 0)),
                Some((start, periods)) if (time - start).0 >= length => {
                    if rotation.bytes.is_none() && rotation.files.is_some_and(|w| periods + 1 >= w)
                    {
                        return Turn::Over;
                    }
                    // Periods keep their rhythm over silences.
                    let passed = (time - start).0 / length;
                    self.period = Some((start + Nanos(passed * length), periods + 1));
                    self.count = 0;
                    return Turn::Next;
                }
                Some(_) => {}
            }
        }
        if let Some(bytes) = rotation.bytes
            && size.is_some_and(|size| size > bytes)
        {
            self.count += 1;
            let around = rotation.seconds.is_none();
            if around && rotation.files.is_some_and(|files| self.count >= files) {
                self.count = 0;
            }
            return Turn::Next;
        }
        Turn::Same
    }

    /// The name of the current file, if its first record has this `time`.
    pub fn name(&self, time: Nanos) -> PathBuf {
        self.rotation.name(&self.path, self.count, self.begin(time))
    }

    fn begin(&self, time: Nanos) -> Nanos {
        self.period.map_or(time, |(start, _)| start)
    }
}

/// A name with its strftime fields filled in, with local time.
///
/// # Errors
/// What is wrong with the strftime format.
pub fn dated(name: &str, time: Nanos) -> Result<String, &'static str> {
    if StrftimeItems::new(name).any(|item| matches!(item, Item::Error)) {
        return Err(NO_FORMAT);
    }
    let when = DateTime::from_timestamp_nanos(i64::try_from(time.0).unwrap_or(i64::MAX));
    Ok(when.with_timezone(&Local).format(name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let path = Path::new("a.pcap");
        let name = |rotation: Rotation, count| rotation.name(path, count, Nanos(0));
        let sized = |files| Rotation {
            bytes: Some(1),
            files,
            ..Rotation::default()
        };
        assert_eq!(name(sized(None), 0), Path::new("a.pcap"));
        assert_eq!(name(sized(None), 12), Path::new("a.pcap12"));
        assert_eq!(name(sized(Some(10)), 0), Path::new("a.pcap0"));
        assert_eq!(name(sized(Some(11)), 0), Path::new("a.pcap00"));
        assert_eq!(name(sized(Some(11)), 10), Path::new("a.pcap10"));
        assert_eq!(name(sized(Some(1)), 0), Path::new("a.pcap"));
        let timed = Rotation {
            seconds: Some(1),
            ..Rotation::default()
        };
        let name = timed.name(Path::new("b-%Y.pcap"), 0, Nanos::from_secs(86_400 * 400));
        assert_eq!(name, Path::new("b-1971.pcap"));
        assert!(timed.check(Path::new("b-%Q.pcap")).is_err());
        assert!(timed.check(Path::new("b-%s-%%.pcap")).is_ok());
    }
}
