//! What is transferred as a file: digests of it, its type, and the file itself, in a folder.
//!
//! A protocol that meets a file opens a [`Body`], gives it the bytes in their order and says of holes, and
//! gets [`Facts`] at the end, for the record. Nothing here knows what carried it.
//!
//! # Bounds
//! Of bodies that are decoded, some hundred times as much is made as came, and no more
//! ([`GROWTH`]); of those that are written, so much each and so much together as the options say. No more
//! than [`MOST_DECODED`] are decoded at once and [`MOST_OPEN`] written, on each core: with more, the one that was
//! idle longest ends. Decoders have a share of `memory` ([`share`]).

mod decoding;
mod digests;
mod folder;
mod kind;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_record::file::FileRow;
use flowgauge_stack::{Failure, OptionInfo, OptionKind, SettingError, Settings};
use flowgauge_wire::Budget;

use decoding::{Coding, Decoder, Output};
pub(crate) use digests::Wanted;
use folder::{Folder, Kept};

/// Bytes that decoding may make of one byte.
const GROWTH: u64 = 100;
/// Bytes that it may make of however few.
const GROWTH_FREE: u64 = 1 << 20;
/// Bodies that are decoded at once: each keeps a window, of Brotli up to 16 MB.
const MOST_DECODED: usize = 64;
/// Bytes of memory for decoders on each core, where no bound for memory is set.
const ROOM: u64 = 256 << 20;
/// Which part of `memory` is theirs.
const SHARE: u64 = 8;
/// Files that are written at once.
const MOST_OPEN: usize = 128;

/// Give a record of each file.
pub(crate) const FILES: OptionInfo = OptionInfo::new(
    "files",
    OptionKind::Flag,
    "give a record of each file that is transferred (bodies of HTTP, data connections of FTP, parts of mails), too",
)
.or("no");
/// Digests.
pub(crate) const DIGESTS: OptionInfo = OptionInfo::new(
    "digests",
    OptionKind::Text,
    "digests of files in those records: md5, sha1, sha256, with commas between",
);
/// Folder.
pub(crate) const EXTRACT: OptionInfo = OptionInfo::new(
    "extract",
    OptionKind::Text,
    "write each file into this folder, which is made if it is not there; the record says its name",
);
/// Decoding.
pub(crate) const DECODE: OptionInfo = OptionInfo::new(
    "decode",
    OptionKind::Flag,
    "take content codings away before: gzip, deflate, br",
)
.or("no");
/// Most bytes of a file.
pub(crate) const FILE_LIMIT: OptionInfo = OptionInfo::new(
    "file_limit",
    OptionKind::Size,
    "bytes of a file that are written; it is cut off behind them",
)
.or("100M");
/// Most bytes of all.
pub(crate) const EXTRACT_LIMIT: OptionInfo = OptionInfo::new(
    "extract_limit",
    OptionKind::Size,
    "bytes of all files together that are written",
)
.or("10G");

/// Bytes of the option `memory` that decoders have, on all cores together.
pub(crate) fn share(settings: &Settings) -> u64 {
    match settings.size("memory").filter(|_| settings.flag("decode")) {
        Some(memory) => memory / SHARE,
        None => 0,
    }
}

/// What is done with files, on one core.
pub(crate) struct Files {
    wanted: Wanted,
    decodes: bool,
    table: Arc<Mutex<Table>>,
}

impl Files {
    /// As options say; none: nothing is to be done.
    ///
    /// # Errors
    /// An unknown digest.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Files>, SettingError> {
        let wanted = match settings.text("digests") {
            Some(text) => Wanted::read(text)?,
            None => Wanted::default(),
        };
        let folder = settings.text("extract");
        let is_wanted = settings.flag("files") || wanted != Wanted::default() || folder.is_some();
        let file_limit = settings.size("file_limit").unwrap_or(u64::MAX);
        let all_limit = settings.size("extract_limit").unwrap_or(u64::MAX);
        let folder = folder.map(|path| Folder::new(Path::new(path), file_limit, all_limit));
        let room = match settings.size("memory") {
            Some(_) => share(settings) / settings.copies() as u64,
            None => ROOM,
        };
        let memory = Budget::new(room);
        Ok(is_wanted.then(|| Files::new(wanted, settings.flag("decode"), folder, &memory)))
    }

    fn new(wanted: Wanted, decodes: bool, folder: Option<Folder>, memory: &Budget) -> Files {
        let table = Table {
            slots: Vec::new(),
            free: Vec::new(),
            turn: 0,
            decoding: Vec::new(),
            writing: Vec::new(),
            folder,
            failure: None,
            memory: memory.clone(),
            cut: Cut::default(),
        };
        Files {
            wanted,
            decodes,
            table: Arc::new(Mutex::new(table)),
        }
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        match &mut locked(&self.table).folder {
            Some(folder) => folder.open(),
            None => Ok(()),
        }
    }

    /// Why nothing can be written any more; told once.
    pub(crate) fn failure(&mut self) -> Option<Failure> {
        locked(&self.table).failure.take()
    }

    /// What became of files that bounds cut off, as lines.
    pub(crate) fn notes(&self) -> Vec<String> {
        let table = locked(&self.table);
        table.cut.notes(table.memory.limit())
    }

    /// A file begins. `name` is what a file of its own would be called: letters, digits and hyphens.
    pub(crate) fn open(&mut self, name: &str, coding: Option<&[u8]>) -> Body {
        let coding = coding.filter(|_| self.decodes).and_then(Coding::named);
        let number = locked(&self.table).open(self.wanted, name, coding);
        Body {
            table: Arc::clone(&self.table),
            number,
        }
    }

    /// A file is over: its record gets what is known of it.
    pub(crate) fn close(&mut self, body: Body, row: &mut FileRow) {
        locked(&self.table).close(body.number, row);
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file under way.
pub(crate) struct Body {
    table: Arc<Mutex<Table>>,
    number: u32,
}

impl Body {
    /// More of it.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        locked(&self.table).data(self.number, bytes);
    }

    /// So many bytes are missing here.
    pub(crate) fn gap(&mut self, bytes: u64) {
        locked(&self.table).gap(self.number, bytes);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        locked(&self.table).forget(self.number);
    }
}

/// Files under way on one core: which of them was idle longest is known of all.
struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Counts what comes, for all of them.
    turn: u64,
    /// Those whose decoders are at work: no more than [`MOST_DECODED`].
    decoding: Vec<u32>,
    /// Those that are written: no more than [`MOST_OPEN`].
    writing: Vec<u32>,
    folder: Option<Folder>,
    failure: Option<Failure>,
    memory: Budget,
    cut: Cut,
}

struct Slot {
    decoder: Decoder,
    /// Bytes that came.
    encoded: u64,
    missing: u64,
    /// When something came last.
    turn: u64,
    /// Its decoder is at work, and has been charged so many bytes.
    charged: Option<u64>,
    /// What was written before it was cut off.
    kept: Option<Kept>,
    limit: Option<&'static str>,
}

/// How many files a bound cut off.
#[derive(Debug, Default)]
struct Cut {
    files: u64,
    decoders: u64,
    memory: u64,
}

impl Cut {
    /// `room`: bytes that decoders have.
    fn notes(&self, room: u64) -> Vec<String> {
        let size = |bytes: u64| match bytes >> 20 {
            0 => format!("{}K", bytes >> 10),
            whole => format!("{whole}M"),
        };
        let all = [
            (
                self.files,
                format!(
                    "written to the end: {MOST_OPEN} are written at once, and the longest idle one ends"
                ),
            ),
            (
                self.decoders,
                format!(
                    "decoded to the end: {MOST_DECODED} are decoded at once, and the longest idle one ends"
                ),
            ),
            (
                self.memory,
                format!(
                    "decoded for want of memory: decoders have {} on each core; \
                     hint: --memory with more than {} for each core gives them more",
                    size(room),
                    size(room.saturating_mul(SHARE))
                ),
            ),
        ];
        let said = all.into_iter().filter(|&(count, _)| count > 0);
        said.map(|(count, what)| match count {
            1 => format!("1 file was not {what}"),
            _ => format!("{count} files were not {what}"),
        })
        .collect()
    }
}

impl Table {
    fn open(&mut self, wanted: Wanted, name: &str, coding: Option<Coding>) -> u32 {
        let (mut store, mut limit) = (None, None);
        if let Some(folder) = &self.folder {
            limit = folder.full();
            if limit.is_none()
                && self.writing.len() >= MOST_OPEN
                && let Some(idle) = self.longest_idle(&self.writing)
            {
                self.stop_writing(idle);
            }
        }
        if let Some(folder) = &mut self.folder {
            store = folder.create(name, &mut self.failure);
        }
        let is_written = store.is_some();
        let output = Output::new(wanted, store);
        self.turn += 1;
        let slot = Some(Slot {
            decoder: match coding {
                Some(coding) => Decoder::of(coding, output),
                None => Decoder::plain(output),
            },
            encoded: 0,
            missing: 0,
            turn: self.turn,
            charged: None,
            kept: None,
            limit,
        });
        let number = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(number as usize) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        if is_written {
            self.writing.push(number);
        }
        number
    }

    fn slot(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    fn data(&mut self, number: u32, bytes: &[u8]) {
        self.turn += 1;
        let turn = self.turn;
        let Some(slot) = self.slot(number) else {
            return;
        };
        slot.turn = turn;
        slot.encoded += bytes.len() as u64;
        if let Some(wanted) = slot.decoder.wants(bytes) {
            self.begin_decoding(number, wanted);
        }
        if let Some(slot) = self.slot(number) {
            let bound = slot.encoded.saturating_mul(GROWTH);
            slot.decoder.data(bytes, bound.saturating_add(GROWTH_FREE));
        }
        self.release_failed(number);
    }

    /// A decoder that will keep so many bytes is to begin.
    fn begin_decoding(&mut self, number: u32, bytes: u64) {
        if self.decoding.len() >= MOST_DECODED
            && let Some(idle) = self.longest_idle(&self.decoding)
        {
            self.stop_decoding(idle, "decoders");
            self.cut.decoders += 1;
        }
        // What could never be had is not what others end for.
        let is_possible = bytes <= self.memory.limit();
        while !self.memory.charge(bytes, u64::MAX) {
            self.cut.memory += 1;
            match self.longest_idle(&self.decoding).filter(|_| is_possible) {
                Some(idle) => self.stop_decoding(idle, "memory"),
                None => {
                    if let Some(slot) = self.slot(number) {
                        slot.decoder.leave();
                        slot.limit.get_or_insert("memory");
                    }
                    return;
                }
            }
        }
        self.decoding.push(number);
        if let Some(slot) = self.slot(number) {
            slot.charged = Some(bytes);
        }
    }

    /// Which of these was idle longest.
    fn longest_idle(&self, numbers: &[u32]) -> Option<u32> {
        let turn = |number: &u32| {
            let slot = self.slots.get(*number as usize)?.as_ref();
            slot.map(|slot| slot.turn)
        };
        numbers.iter().copied().min_by_key(turn)
    }

    fn stop_decoding(&mut self, number: u32, why: &'static str) {
        if let Some(slot) = self.slot(number) {
            slot.decoder.stop();
            slot.limit.get_or_insert(why);
        }
        self.release(number);
    }

    fn release(&mut self, number: u32) {
        if let Some(bytes) = self.slot(number).and_then(|slot| slot.charged.take()) {
            self.memory.release(bytes);
            self.decoding.retain(|&other| other != number);
        }
    }

    /// A decoder that has failed keeps no place and no memory.
    fn release_failed(&mut self, number: u32) {
        let slot = self.slot(number);
        if slot.is_some_and(|slot| matches!(slot.decoder, Decoder::Failed(..))) {
            self.release(number);
        }
    }

    fn stop_writing(&mut self, number: u32) {
        self.cut.files += 1;
        self.finish_writing(number);
        if let Some(slot) = self.slot(number) {
            slot.limit.get_or_insert("files");
        }
    }

    fn finish_writing(&mut self, number: u32) {
        let slots = self.slots.get_mut(number as usize);
        let Some(slot) = slots.and_then(Option::as_mut) else {
            return;
        };
        let store = slot.decoder.output().and_then(|output| output.store.take());
        if let (Some(store), Some(folder)) = (store, &mut self.folder) {
            let kept = folder.close(store, &mut self.failure);
            if let Some(cut) = kept.cut {
                slot.limit.get_or_insert(cut);
            }
            slot.kept = Some(kept);
            self.writing.retain(|&other| other != number);
        }
    }

    fn gap(&mut self, number: u32, bytes: u64) {
        if let Some(slot) = self.slot(number) {
            slot.missing += bytes;
            slot.decoder.gap(bytes);
        }
        self.release_failed(number);
    }

    /// One that nobody asks for any more.
    fn forget(&mut self, number: u32) {
        if self.slot(number).is_some() {
            self.finish_writing(number);
            self.release(number);
            self.slots[number as usize] = None;
            self.free.push(number);
        }
    }

    fn close(&mut self, number: u32, row: &mut FileRow) {
        self.release(number);
        let place = self.slots.get_mut(number as usize);
        let Some(slot) = place.and_then(Option::take) else {
            return;
        };
        self.free.push(number);
        let (mut output, decoded) = slot.decoder.finish(slot.missing > 0);
        row.decoded = decoded;
        row.bytes = output.bytes;
        row.missing_bytes = slot.missing;
        row.mime_type = kind::of(&output.begin);
        row.limit = slot.limit;
        let mut kept = slot.kept;
        if let (Some(store), Some(folder)) = (output.store.take(), &mut self.folder) {
            self.writing.retain(|&other| other != number);
            kept = Some(folder.close(store, &mut self.failure));
        }
        if let Some(kept) = kept {
            row.limit = row.limit.or(kept.cut);
            row.extracted = Some(kept.name);
            row.extracted_bytes = Some(kept.bytes);
        }
        // What was left as it came for want of memory is whole; what was decoded to somewhere is not.
        row.is_whole &= match row.limit {
            Some("files" | "decoders") => false,
            Some("memory") => decoded != Some("failed"),
            _ => true,
        };
        if slot.missing == 0 && !matches!(decoded, Some("failed" | "bomb")) {
            let [md5, sha1, sha256] = output.digests.finish();
            row.md5 = md5;
            row.sha1 = sha1;
            row.sha256 = sha256;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn files(decodes: bool) -> Files {
        files_in(decodes, 1 << 30)
    }

    fn files_in(decodes: bool, memory: u64) -> Files {
        let wanted = Wanted::read("md5, sha1,sha256").unwrap();
        Files::new(wanted, decodes, None, &Budget::new(memory))
    }

    /// Nothing is left of any file.
    fn assert_over(files: &Files) {
        let table = locked(&files.table);
        assert_eq!(
            (
                table.decoding.len(),
                table.writing.len(),
                table.memory.used()
            ),
            (0, 0, 0)
        );
    }

    fn one(files: &mut Files, coding: Option<&[u8]>, bytes: &[u8], piece: usize) -> FileRow {
        let mut body = files.open("x", coding);
        bytes.chunks(piece).for_each(|piece| body.data(piece));
        let mut row = FileRow {
            is_whole: true,
            ..FileRow::default()
        };
        files.close(body, &mut row);
        row
    }

    #[test]
    fn digests_are_those_of_the_test_vectors() {
        let row = one(&mut files(false), None, b"abc", 2);
        assert_eq!(row.md5.unwrap(), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(
            row.sha1.unwrap(),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
        assert_eq!(
            row.sha256.unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!((row.bytes, row.decoded), (3, None));
        assert!(Wanted::read("md5,crc").is_err());
    }

    #[test]
    fn a_hole_leaves_no_digest() {
        let mut files = files(false);
        let mut body = files.open("x", None);
        body.data(b"ab");
        body.gap(3);
        body.data(b"f");
        let mut row = FileRow::default();
        files.close(body, &mut row);
        assert_eq!((row.bytes, row.missing_bytes, row.md5), (3, 3, None));
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn codings_are_taken_away_in_any_pieces() {
        let plain = b"all work and no play makes Jack a dull boy. ".repeat(20);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&plain).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(&plain).unwrap();
        let expected = one(&mut files(false), None, &plain, 100).sha256;
        for (coding, bytes) in [
            ("gzip", gzip(&plain)),
            ("x-gzip", gzip(&plain)),
            ("deflate", zlib.finish().unwrap()),
            ("Deflate", raw.finish().unwrap()),
        ] {
            let mut files = files(true);
            for piece in [1, 2, 7, bytes.len()] {
                let row = one(&mut files, Some(coding.as_bytes()), &bytes, piece);
                assert_eq!(row.decoded, Some("yes"), "{coding} {piece}");
                assert_eq!(row.sha256, expected, "{coding} {piece}");
                assert_eq!(row.bytes, plain.len() as u64);
            }
            // Cut off: what there is of it was decoded, and that is said.
            let row = one(
                &mut files,
                Some(coding.as_bytes()),
                &bytes[..bytes.len() / 2],
                9,
            );
            assert_eq!(
                (row.decoded, row.sha256),
                (Some("failed"), None),
                "{coding}"
            );
            assert_over(&files);
        }
        let row = one(&mut files(true), Some(b"gzip"), b"no gzip at all", 3);
        assert_eq!(row.decoded, Some("failed"));
        // Of what is not asked to be decoded the bytes that came count.
        let row = one(&mut files(false), Some(b"gzip"), &gzip(b"x"), 99);
        assert_eq!(
            (row.decoded, row.mime_type),
            (None, Some("application/gzip"))
        );
    }

    #[test]
    fn brotli_is_known() {
        // Twelve bytes as they are (RFC 7932, section 9.2).
        let bytes = [
            0x8b, 0x05, 0x80, b'h', b'e', b'l', b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd',
            b'!', 0x03,
        ];
        for piece in 1..bytes.len() {
            let row = one(&mut files(true), Some(b"br"), &bytes, piece);
            assert_eq!((row.decoded, row.bytes), (Some("yes"), 12), "{piece}");
            assert_eq!(row.md5.unwrap(), "fc3ff98e8c6a0d3087d515c0473f8677");
        }
    }

    #[test]
    fn brotli_has_no_large_window() {
        // What is invalid in RFC 7932, section 9.1, and a window of 2^30 in some decoders.
        let row = one(&mut files(true), Some(b"br"), &[0x11, 0x1e, 0xff, 0xff], 4);
        assert_eq!(
            (row.decoded, row.bytes, row.limit),
            (Some("failed"), 0, None)
        );
    }

    #[test]
    fn decoders_have_no_more_than_memory() {
        let hello = [
            0x8b, 0x05, 0x80, b'h', b'e', b'l', b'l', b'o', b' ', b'w', b'o', b'r', b'l', b'd',
            b'!', 0x03,
        ];
        // A window of 4 MiB (2^22) does not fit into 1 MiB: the bytes are left as they came.
        let mut tight = files_in(true, 1 << 20);
        let row = one(&mut tight, Some(b"br"), &hello, 5);
        assert_eq!(
            (row.decoded, row.bytes, row.limit),
            (None, 16, Some("memory"))
        );
        assert!(row.is_whole);
        assert_eq!(
            tight.notes(),
            [
                "1 file was not decoded for want of memory: decoders have 1M on each core; \
                 hint: --memory with more than 8M for each core gives them more"
            ]
        );
        assert_over(&tight);
        // Of two that do not fit together the one ends that was idle.
        let mut files = files_in(true, 6 << 20);
        let mut idle = files.open("x", Some(b"br"));
        idle.data(&hello[..5]);
        let row = one(&mut files, Some(b"br"), &hello, 5);
        assert_eq!((row.decoded, row.limit), (Some("yes"), None));
        idle.data(&hello[5..]);
        let mut row = FileRow {
            is_whole: true,
            ..FileRow::default()
        };
        files.close(idle, &mut row);
        assert_eq!((row.decoded, row.limit), (Some("failed"), Some("memory")));
        assert!(!row.is_whole);
        assert_over(&files);
    }

    #[test]
    fn decoders_that_failed_do_not_stop_others() {
        let mut files = files(true);
        let mut sound = files.open("x", Some(b"gzip"));
        let coded = gzip(b"all work");
        sound.data(&coded[..9]);
        let no_gzip: Vec<Body> = (0..2 * MOST_DECODED)
            .map(|number| {
                let mut body = files.open("x", Some(b"gzip"));
                if number % 2 == 0 {
                    body.data(b"GIF89a, which is no gzip");
                } else {
                    body.data(&coded[..4]);
                    body.gap(1);
                }
                body
            })
            .collect();
        assert_eq!(locked(&files.table).decoding.len(), 1);
        sound.data(&coded[9..]);
        let mut row = FileRow::default();
        files.close(sound, &mut row);
        assert_eq!((row.decoded, row.limit), (Some("yes"), None));
        assert_eq!(files.notes(), [""; 0]);
        drop(no_gzip);
        assert_over(&files);
    }

    #[test]
    fn stalled_bodies_do_not_stop_others() {
        let mut files = files(true);
        let coded = gzip(b"all work");
        let mut stalled: Vec<Body> = (0..MOST_DECODED + 6)
            .map(|_| {
                let mut body = files.open("x", Some(b"gzip"));
                body.data(&coded[..1]);
                body
            })
            .collect();
        // They were idle longest that came first.
        let row = one(&mut files, Some(b"gzip"), &coded, 3);
        assert_eq!((row.decoded, row.limit), (Some("yes"), None));
        assert_eq!(locked(&files.table).cut.decoders, 7);
        assert!(files.notes()[0].starts_with("7 files were not decoded"));
        let last = stalled.pop().unwrap();
        for (body, expected) in [(stalled.remove(0), Some("decoders")), (last, None)] {
            let mut row = FileRow::default();
            files.close(body, &mut row);
            assert_eq!(row.limit, expected);
        }
        // Whoever is forgotten has nothing left.
        drop(stalled);
        assert_over(&files);
    }

    #[test]
    fn stalled_files_are_ended_for_others() {
        let path = std::env::temp_dir().join(format!("flowgauge-files-{}", std::process::id()));
        let folder = Folder::new(&path, 100, 1 << 20);
        let mut files = Files::new(
            Wanted::default(),
            false,
            Some(folder),
            &Budget::new(1 << 20),
        );
        files.start().unwrap();
        let mut stalled: Vec<Body> = (0..MOST_OPEN).map(|_| files.open("stall", None)).collect();
        stalled[0].data(b"not idle");
        let row = one(&mut files, None, b"all of it", 4);
        assert_eq!((row.extracted_bytes, row.limit), (Some(9), None));
        let mut rows = stalled.drain(..2).map(|body| {
            let mut row = FileRow {
                is_whole: true,
                ..FileRow::default()
            };
            files.close(body, &mut row);
            row
        });
        let (busy, idle) = (rows.next().unwrap(), rows.next().unwrap());
        assert_eq!((busy.limit, busy.is_whole), (None, true));
        assert_eq!((idle.limit, idle.is_whole), (Some("files"), false));
        drop(rows);
        let row = one(&mut files, None, &[b'x'; 101], 50);
        assert_eq!(
            (row.extracted_bytes, row.limit),
            (Some(100), Some("file_limit"))
        );
        drop(stalled);
        assert_over(&files);
        std::fs::remove_dir_all(path).unwrap();
    }

    proptest::proptest! {
        /// Whatever is said to be coded, in whatever pieces, with and without a hole.
        #[test]
        fn any_bytes_can_come(
            bytes: Vec<u8>,
            plain: Vec<u8>,
            flip: proptest::sample::Index,
            to: u8,
            piece in 1_usize..40,
            hole: bool,
        ) {
            let mut damaged = gzip(&plain);
            let at = flip.index(damaged.len());
            damaged[at] = to;
            let mut brotli = vec![0x8b, 0x05, 0x80];
            brotli.extend_from_slice(&bytes);
            let mut files = files(true);
            for bytes in [&bytes, &damaged, &brotli] {
                for coding in ["gzip", "deflate", "br", "identity"] {
                    let mut body = files.open("x", Some(coding.as_bytes()));
                    for piece in bytes.chunks(piece) {
                        body.data(piece);
                    }
                    if hole {
                        body.gap(1);
                        body.data(b"behind");
                    }
                    let mut row = FileRow::default();
                    files.close(body, &mut row);
                    let bound = (bytes.len() as u64 + 6) * GROWTH + GROWTH_FREE;
                    assert!(row.bytes <= bound && !(hole && row.sha256.is_some()));
                }
            }
            assert_over(&files);
        }
    }

    #[test]
    fn a_bomb_is_not_followed() {
        let bomb = gzip(&vec![0; 64 << 20]);
        let mut files = files(true);
        let row = one(&mut files, Some(b"gzip"), &bomb, 1460);
        assert_eq!((row.decoded, row.md5), (Some("bomb"), None));
        let bound = bomb.len() as u64 * GROWTH + GROWTH_FREE;
        assert!(row.bytes <= bound && row.bytes < 64 << 20, "{}", row.bytes);
        assert_over(&files);
    }
}
