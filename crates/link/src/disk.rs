//! Where frames wait that have no room in memory: slots in a file that nobody else sees.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Frames are a few to a few hundred kilobytes.
const SLOT_BYTES: usize = 16 << 10;

/// The file.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    /// Slots that were used before and are free.
    free: Vec<u32>,
    /// Slots from here on were never used.
    fresh: u32,
    /// How many there may be.
    most: u32,
    has_failed: bool,
}

/// A frame in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskPlace {
    slots: Box<[u32]>,
    pub(crate) len: usize,
}

impl Disk {
    /// Makes the file in `folder`; it has no name any more then, and goes with the process.
    pub(crate) fn create(folder: &Path, name: &str, bytes: u64) -> io::Result<Disk> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let path = folder.join(format!("{name}.spool"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        fs::remove_file(&path)?;
        Ok(Disk {
            file,
            free: Vec::new(),
            fresh: 0,
            most: u32::try_from(bytes / SLOT_BYTES as u64).unwrap_or(u32::MAX),
            has_failed: false,
        })
    }

    /// Whether a frame of so many bytes finds room.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let left = self.free.len() + (self.most - self.fresh) as usize;
        !self.has_failed && bytes.div_ceil(SLOT_BYTES) <= left
    }

    /// The largest frame there can be room for.
    pub(crate) fn most_bytes(&self) -> usize {
        self.most as usize * SLOT_BYTES
    }

    /// Writes a frame that has room. After one that could not be written there is none any more.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<DiskPlace> {
        let mut place = DiskPlace {
            slots: Box::default(),
            len: bytes.len(),
        };
        let mut slots = Vec::with_capacity(bytes.len().div_ceil(SLOT_BYTES));
        let mut result = Ok(());
        for part in bytes.chunks(SLOT_BYTES) {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.fresh += 1;
                self.fresh - 1
            });
            slots.push(slot);
            result = self.file.write_all_at(part, offset(slot));
            if result.is_err() {
                break;
            }
        }
        place.slots = slots.into();
        if let Err(error) = result {
            self.release(&place);
            self.has_failed = true;
            return Err(error);
        }
        Ok(place)
    }

    pub(crate) fn read(&self, place: &DiskPlace) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.len];
        for (part, slot) in bytes.chunks_mut(SLOT_BYTES).zip(&place.slots) {
            self.file.read_exact_at(part, offset(*slot))?;
        }
        Ok(bytes)
    }

    /// The frame has gone.
    pub(crate) fn release(&mut self, place: &DiskPlace) {
        self.free.extend_from_slice(&place.slots);
        if self.free.len() == self.fresh as usize && self.fresh > 0 {
            self.free.clear();
            self.fresh = 0;
            // Its space is of use to others; if that fails it is only not.
            let _ = self.file.set_len(0);
        }
    }
}

fn offset(slot: u32) -> u64 {
    u64::from(slot) * SLOT_BYTES as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_disk_is_told_once_and_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::create(folder.path(), "x", 1 << 20).unwrap();
        disk.file = File::options()
            .read(true)
            .write(true)
            .open("/dev/full")
            .unwrap();
        assert!(disk.has_room(100));
        let error = disk.write(&[0; 100]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!disk.has_room(1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_there_until_it_goes(
            steps in proptest::collection::vec((1..60_000_usize, any::<Option<prop::sample::Index>>()), 1..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut disk = Disk::create(folder.path(), "x", 10 * SLOT_BYTES as u64).unwrap();
            // Nobody else sees it.
            prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            let mut live: Vec<(DiskPlace, Vec<u8>)> = Vec::new();
            for (number, (len, gone)) in steps.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                if disk.has_room(len) {
                    live.push((disk.write(&bytes).unwrap(), bytes));
                }
                let used: usize = live.iter().map(|(place, _)| place.slots.len()).sum();
                prop_assert!(used <= 10);
                if let Some(gone) = gone.filter(|_| !live.is_empty()) {
                    let (place, _) = live.remove(gone.index(live.len()));
                    disk.release(&place);
                }
                for (place, bytes) in &live {
                    prop_assert_eq!(&disk.read(place).unwrap(), bytes);
                }
            }
            for (place, _) in live {
                disk.release(&place);
            }
            prop_assert_eq!(disk.fresh, 0);
            prop_assert_eq!(disk.file.metadata().unwrap().len(), 0);
        }
    }
}
