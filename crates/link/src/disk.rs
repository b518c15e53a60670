//! Where frames wait that have no room in memory: files in a folder that outlives the process.
//!
//! Each session has a folder of its own, which its process has locked; once that is gone, the next
//! process of the same name with the same receiver takes what is left.
//!
//! ```text
//! NAME-5f0c...e1/             one session of NAME, its number in hexadecimal
//!     session                 locked; what was accepted and acknowledged, and for whom it is
//!     announcements           all of them, each behind its length
//!     00000000000000001200    a frame: the number of its first item
//! ```
//!
//! Files are written aside and renamed, so that a process that is killed leaves none in pieces. What
//! the system had not written when the machine itself failed is found damaged, and counts as lost.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use flowgauge_sys::files::{How, named};
use sha2::{Digest as _, Sha256};

use flowgauge_sys::notice::tell as notice;

/// How long a folder in which something could not be written is left alone.
const RETRY: Duration = Duration::from_secs(10);
/// What a file takes is a multiple of this.
const BLOCK: u64 = 4096;
const SESSION_MAGIC: [u8; 8] = *b"FGSPOOL1";
const FRAME_MAGIC: [u8; 8] = *b"FGFRAME1";
/// Before the address: magic, accepted, acknowledged.
const SESSION_HEADER: usize = 24;
/// Magic, first item, watermark, items, length, checksum.
const FRAME_HEADER: usize = 40;
/// Longer ones are damaged.
const MOST_FRAME: u64 = 64 << 20;
const MOST_ANNOUNCEMENTS: u64 = 16 << 20;

/// The folder of a session.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    session: File,
    /// Bytes of frames in it, in whole blocks.
    used: u64,
    most: u64,
    failed: Option<Instant>,
    retry: Duration,
}

/// A frame in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskPlace {
    first: u64,
    pub(crate) len: usize,
}

/// What is known of a frame without its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskFrame {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) watermark: u64,
    pub(crate) place: DiskPlace,
}

/// What a process left that is gone.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) session: [u8; 16],
    pub(crate) disk: Disk,
    pub(crate) accepted: u64,
    pub(crate) acknowledged: u64,
    pub(crate) announcements: Vec<Vec<u8>>,
    /// In order.
    pub(crate) frames: Vec<DiskFrame>,
}

impl Disk {
    /// Makes the folder of a session of `name` to `address` in `folder`, for so many bytes.
    pub(crate) fn create(
        folder: &Path,
        name: &str,
        session: [u8; 16],
        address: &str,
        bytes: u64,
    ) -> io::Result<Disk> {
        let folder = folder.join(format!("{name}-{}", HEXLOWER.encode(&session)));
        named().make_folders(&folder, 0o700)?;
        let how = How::new_file().and_read().mode(0o600);
        let file = named().open(&folder.join("session"), how)?;
        file.lock()?;
        let mut header = SESSION_MAGIC.to_vec();
        header.resize(SESSION_HEADER, 0);
        header.extend_from_slice(address.as_bytes());
        file.write_all_at(&header, 0)?;
        Ok(Disk {
            folder,
            session: file,
            used: 0,
            most: bytes,
            failed: None,
            retry: RETRY,
        })
    }

    /// What processes of `name` that are gone have left for `address`, the longest ago first.
    pub(crate) fn leftovers(folder: &Path, name: &str, address: &str) -> Vec<Leftover> {
        let Ok(names) = named().list(folder) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for file_name in names {
            let session = file_name.to_str().and_then(|text| {
                let text = text.strip_prefix(name)?.strip_prefix('-')?;
                let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
                <[u8; 16]>::try_from(bytes).ok()
            });
            let Some(session) = session else {
                continue;
            };
            let path = folder.join(&file_name);
            let since = named().metadata(&path).and_then(|about| about.modified());
            let since = since.ok();
            let leftover = Leftover::read(path, session, address);
            found.extend(leftover.map(|leftover| (since, leftover)));
        }
        found.sort_by_key(|(since, _)| *since);
        found.into_iter().map(|(_, leftover)| leftover).collect()
    }

    /// Whether a frame of so many bytes finds room. Where one could not be written that is tried after a
    /// while, without one.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        if self.used + on_disk(bytes) > self.most {
            return false;
        }
        let Some(failed) = self.failed else {
            return true;
        };
        if failed.elapsed() < self.retry {
            return false;
        }
        let probe = vec![0; bytes + FRAME_HEADER];
        match self.write_aside(&[&probe]) {
            Ok(aside) => {
                let _ = named().remove_file(&aside);
                self.failed = None;
                let folder = self.folder.display();
                notice(format_args!("the spool {folder} is in use again"));
                true
            }
            Err(_) => {
                self.failed = Some(Instant::now());
                false
            }
        }
    }

    /// Writes a file that has its name only when it is whole.
    fn write_aside(&self, parts: &[&[u8]]) -> io::Result<PathBuf> {
        let aside = self.folder.join("frame");
        let file = named().open(&aside, How::replace().mode(0o600));
        let written = file.and_then(|mut file| parts.iter().try_for_each(|it| file.write_all(it)));
        if written.is_err() {
            // Its part would take room that others may want.
            let _ = named().remove_file(&aside);
        }
        written.map(|()| aside)
    }

    /// The largest frame there can be room for.
    pub(crate) fn most_bytes(&self) -> usize {
        let most = self
            .most
            .saturating_sub(FRAME_HEADER as u64)
            .min(MOST_FRAME);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Bytes of frames in it.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Others have so many of its bytes.
    pub(crate) fn share(&mut self, others: u64) {
        self.most = self.most.saturating_sub(others);
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a frame that has room. After one that could not be written there is none for a while.
    pub(crate) fn write(
        &mut self,
        first: u64,
        count: u32,
        watermark: u64,
        bytes: &[u8],
    ) -> io::Result<DiskPlace> {
        let mut header = FRAME_MAGIC.to_vec();
        header.extend(first.to_le_bytes());
        header.extend(watermark.to_le_bytes());
        header.extend(count.to_le_bytes());
        header.extend((bytes.len() as u32).to_le_bytes());
        let sum = checksum(&header, bytes);
        header.extend(sum);
        let written = self.write_aside(&[&header, bytes]);
        let written = written.and_then(|aside| named().rename(&aside, &self.path(first)));
        if let Err(error) = written {
            self.failed = Some(Instant::now());
            let (folder, seconds) = (self.folder.display(), self.retry.as_secs());
            notice(format_args!(
                "the spool {folder} cannot be written; retrying after {seconds} s: {error}"
            ));
            return Err(error);
        }
        let place = DiskPlace {
            first,
            len: bytes.len(),
        };
        self.used += on_disk(place.len);
        Ok(place)
    }

    pub(crate) fn read(&self, place: &DiskPlace) -> io::Result<Vec<u8>> {
        let mut file = named().open(&self.path(place.first), How::read())?;
        let mut header = [0; FRAME_HEADER];
        file.read_exact(&mut header)?;
        let mut bytes = vec![0; place.len];
        file.read_exact(&mut bytes)?;
        let (known, sum) = header.split_at(FRAME_HEADER - 8);
        match checksum(known, &bytes) == sum {
            true => Ok(bytes),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged")),
        }
    }

    /// The frame has gone.
    pub(crate) fn release(&mut self, place: &DiskPlace) {
        self.used = self.used.saturating_sub(on_disk(place.len));
        // What cannot be removed is found, and is too old, when somebody looks.
        let _ = named().remove_file(&self.path(place.first));
    }

    /// So many items were accepted, and all before one acknowledged.
    pub(crate) fn note(&self, accepted: u64, acknowledged: u64) {
        let mut counts = [0; 16];
        counts[..8].copy_from_slice(&accepted.to_le_bytes());
        counts[8..].copy_from_slice(&acknowledged.to_le_bytes());
        // The bytes are there already: this takes no room.
        let _ = self.session.write_all_at(&counts, 8);
    }

    /// Keeps what later items refer to.
    pub(crate) fn announce(&self, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(payload);
        let path = self.folder.join("announcements");
        let file = named().open(&path, How::append().mode(0o600));
        if let Err(error) = file.and_then(|mut file| file.write_all(&bytes)) {
            let folder = self.folder.display();
            notice(format_args!(
                "the spool {folder} cannot be written; a later run cannot use it: {error}"
            ));
        }
    }

    /// Nothing is left to be sent.
    pub(crate) fn remove(&self) {
        for name in named().list(&self.folder).unwrap_or_default() {
            let _ = named().remove_file(&self.folder.join(name));
        }
        let _ = named().remove_folder(&self.folder);
    }

    fn path(&self, first: u64) -> PathBuf {
        self.folder.join(format!("{first:020}"))
    }
}

impl Leftover {
    /// What is in a folder, if nobody else has it and it is for this receiver.
    fn read(folder: PathBuf, session: [u8; 16], address: &str) -> Option<Leftover> {
        let how = How::write().and_read();
        let file = named().open(&folder.join("session"), how).ok()?;
        file.try_lock().ok()?;
        let mut header = Vec::new();
        (&file)
            .take(SESSION_HEADER as u64 + 1024)
            .read_to_end(&mut header)
            .ok()?;
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?))
        };
        if header.get(..8)? != SESSION_MAGIC || header.get(SESSION_HEADER..)? != address.as_bytes()
        {
            return None;
        }
        let (accepted, acknowledged) = (number(8)?, number(16)?);
        if acknowledged > accepted {
            return None;
        }
        let mut disk = Disk {
            folder,
            session: file,
            used: 0,
            most: u64::MAX,
            failed: None,
            retry: RETRY,
        };
        let announcements = announcements(&disk.folder.join("announcements"));
        let mut frames = Vec::new();
        for name in named().list(&disk.folder).ok()? {
            let path = disk.folder.join(&name);
            let first = name.to_str().filter(|name| name.len() == 20);
            let Some(first) = first.and_then(|name| name.parse().ok()) else {
                continue;
            };
            match frame(&path, first) {
                Some(found) if found.end() <= acknowledged => disk.release(&found.place),
                Some(found) if found.end() <= accepted => {
                    disk.used += on_disk(found.place.len);
                    frames.push(found);
                }
                _ => {
                    notice(format_args!(
                        "{}: damaged, its items are lost",
                        path.display()
                    ));
                    let _ = named().remove_file(&path);
                }
            }
        }
        frames.sort_by_key(|frame| frame.first);
        // They cannot overlap unless somebody wrote them who should not.
        let mut end = 0;
        frames.retain(|frame| {
            let follows = frame.first >= end;
            end = end.max(frame.end());
            follows
        });
        Some(Leftover {
            session,
            disk,
            accepted,
            acknowledged,
            announcements,
            frames,
        })
    }
}

impl DiskFrame {
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }
}

fn on_disk(bytes: usize) -> u64 {
    (bytes as u64 + FRAME_HEADER as u64).next_multiple_of(BLOCK)
}

fn checksum(header: &[u8], bytes: &[u8]) -> [u8; 8] {
    let digest = Sha256::new()
        .chain_update(header)
        .chain_update(bytes)
        .finalize();
    let mut sum = [0; 8];
    sum.iter_mut()
        .zip(&digest[..])
        .for_each(|(sum, byte)| *sum = *byte);
    sum
}

/// What the header of a frame says, if that is what it should be.
fn frame(path: &Path, first: u64) -> Option<DiskFrame> {
    let mut file = named().open(path, How::read()).ok()?;
    let length = file.metadata().ok()?.len();
    let mut header = [0; FRAME_HEADER];
    file.read_exact(&mut header).ok()?;
    let u64_at = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?))
    };
    let u32_at = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?))
    };
    let (count, len) = (u32_at(24)?, u32_at(28)?);
    let is_whole = header[..8] == FRAME_MAGIC
        && u64_at(8)? == first
        && count > 0
        && u64::from(len) <= MOST_FRAME
        && length == FRAME_HEADER as u64 + u64::from(len);
    is_whole.then_some(DiskFrame {
        first,
        count,
        watermark: u64_at(16)?,
        place: DiskPlace {
            first,
            len: len as usize,
        },
    })
}

fn announcements(path: &Path) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Ok(file) = named().open(path, How::read()) {
        // What cannot be read is missing, and what refers to it is refused by the other side.
        let _ = file.take(MOST_ANNOUNCEMENTS).read_to_end(&mut bytes);
    }
    let mut found = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let Some((payload, behind)) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)
        else {
            break;
        };
        found.push(payload.to_vec());
        rest = behind;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn disk(folder: &Path, bytes: u64) -> Disk {
        Disk::create(folder, "x", [7; 16], "there:1", bytes).unwrap()
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_used_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk(folder.path(), 1 << 20);
        // A folder where the file would be.
        let obstacle = disk.folder.join("frame");
        fs::create_dir(&obstacle).unwrap();
        assert!(disk.has_room(100));
        disk.write(0, 1, 0, &[0; 100]).unwrap_err();
        assert!(!disk.has_room(1));
        disk.retry = Duration::ZERO;
        assert!(!disk.has_room(1), "it is tried");
        fs::remove_dir(&obstacle).unwrap();
        assert!(disk.has_room(1));
        let place = disk.write(0, 1, 0, &[3; 100]).unwrap();
        assert_eq!(disk.read(&place).unwrap(), [3; 100]);
        disk.retry = RETRY;
        assert!(disk.has_room(1));
    }

    #[test]
    fn what_others_have_locked_or_is_for_others_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = disk(folder.path(), 1 << 20);
        disk.announce(b"one");
        disk.announce(b"");
        disk.announce(b"three");
        for first in [50, 10, 30] {
            disk.write(first, 10, first + 1, &[first as u8; 99])
                .unwrap();
        }
        disk.note(70, 20);
        let of = |name: &str, address: &str| Disk::leftovers(folder.path(), name, address);
        assert!(of("x", "there:1").is_empty(), "its process lives");
        let at = disk.folder.clone();
        drop(disk);
        assert!(of("x", "there:2").is_empty());
        assert!(of("y", "there:1").is_empty());
        let mut found = of("x", "there:1");
        assert!(of("x", "there:1").is_empty(), "taken");
        let leftover = found.remove(0);
        assert_eq!(leftover.session, [7; 16]);
        assert_eq!((leftover.accepted, leftover.acknowledged), (70, 20));
        assert_eq!(leftover.announcements, [&b"one"[..], b"", b"three"]);
        let frames: Vec<(u64, u32, u64)> = leftover
            .frames
            .iter()
            .map(|it| (it.first, it.count, it.watermark))
            .collect();
        assert_eq!(frames, [(30, 10, 31), (50, 10, 51)]);
        let place = leftover.frames[1].place;
        assert_eq!(leftover.disk.read(&place).unwrap(), [50; 99]);
        assert_eq!(leftover.disk.used(), 2 * BLOCK);
        // Not a bit may be another one.
        let path = leftover.disk.path(50);
        let mut bytes = fs::read(&path).unwrap();
        bytes[60] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(leftover.disk.read(&place).is_err());
        leftover.disk.remove();
        assert!(!at.exists());
    }

    proptest! {
        #[test]
        fn what_is_written_is_there_until_it_goes(
            steps in proptest::collection::vec((1..60_000_usize, any::<Option<prop::sample::Index>>()), 1..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut disk = disk(folder.path(), 40 * BLOCK);
            let mut live: Vec<(DiskPlace, Vec<u8>)> = Vec::new();
            for (number, (len, gone)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                if disk.has_room(len) {
                    live.push((disk.write(number as u64, 1, 0, &bytes).unwrap(), bytes));
                }
                let used: u64 = live.iter().map(|(place, _)| on_disk(place.len)).sum();
                prop_assert!(used == disk.used && used <= 40 * BLOCK);
                if let Some(gone) = gone.filter(|_| !live.is_empty()) {
                    let (place, _) = live.remove(gone.index(live.len()));
                    disk.release(&place);
                }
                for (place, bytes) in &live {
                    prop_assert_eq!(&disk.read(place).unwrap(), bytes);
                }
            }
            // The session alone is left.
            let files = fs::read_dir(&disk.folder).unwrap().count();
            prop_assert_eq!(files, live.len() + 1);
        }

        /// Whatever is in the folder, nothing panics, and what is found is consistent.
        #[test]
        fn any_bytes_are_read(
            session in proptest::collection::vec(any::<u8>(), 0..64),
            announced in proptest::collection::vec(any::<u8>(), 0..64),
            frame in proptest::collection::vec(any::<u8>(), 0..96),
            cut in any::<prop::sample::Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut disk = disk(folder.path(), 1 << 20);
            disk.write(5, 2, 9, &frame).unwrap();
            disk.note(100, 3);
            let at = disk.folder.clone();
            drop(disk);
            fs::write(at.join("announcements"), &announced).unwrap();
            fs::write(at.join(format!("{:020}", 6)), &frame).unwrap();
            fs::write(at.join(format!("{:020}", u64::MAX)), &frame).unwrap();
            let path = at.join(format!("{:020}", 5));
            let whole = fs::read(&path).unwrap();
            fs::write(&path, &whole[..cut.index(whole.len())]).unwrap();
            let found = Disk::leftovers(folder.path(), "x", "there:1");
            prop_assert!(found.len() == 1 && found[0].frames.is_empty());
            drop(found);
            fs::write(at.join("session"), &session).unwrap();
            for found in Disk::leftovers(folder.path(), "x", "there:1") {
                prop_assert!(found.acknowledged <= found.accepted);
            }
        }
    }
}
