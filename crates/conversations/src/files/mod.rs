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
pub(crate) mod kind;
mod parts;
mod ranges;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgauge_record::file::FileRow;
use flowgauge_stack::{Counted, Failure, LastWord, SettingError, Settings, options};
use flowgauge_wire::Budget;

use decoding::{Coding, Decoder, Output};
pub(crate) use digests::Wanted;
use folder::{DISK, Folder, Kept};
pub(crate) use parts::{Content, Parts};
use ranges::Ranges;
pub(crate) use ranges::{Range, Whole};

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

options! {
    pub(crate) const;
    /// Give a record of each file.
    FILES = files: Flag = "no", "also write a record per transferred file (HTTP bodies, FTP data, parts of mails)";
    /// Mails.
    MAILS = mails: Flag = "no", "also treat each mail as a file, as sent, without dot-stuffing";
    /// Digests.
    DIGESTS = digests: Text, "digests of files in those records: md5, sha1, sha256, separated by commas";
    /// Folder.
    EXTRACT = extract: OutputFolder, "write each file to this folder, created if missing; its record has the name. At most 128 at once; the longest idle \
     is evicted";
    /// Decoding.
    DECODE = decode: Flag = "no", "decode content codings (gzip, deflate, br) first; at most 64 at once, the longest idle is evicted";
    /// Most bytes of a file.
    FILE_LIMIT = file_limit: Size = "100M", "maximum bytes written per file; the rest is cut off";
    /// Most bytes of all.
    EXTRACT_LIMIT = extract_limit: Size = "10G", "maximum bytes written for all files together";
}

/// Whether something is to be done with files.
fn are_wanted(settings: &Settings) -> bool {
    let is_set = |name| settings.text(name).is_some();
    settings.flag("files") || is_set("digests") || is_set("extract")
}

/// Bytes of the option `memory` that decoders and waiting ranges have, on all cores together.
pub(crate) fn share(settings: &Settings) -> u64 {
    match settings.size("memory").filter(|_| are_wanted(settings)) {
        Some(memory) => memory / SHARE,
        None => 0,
    }
}

/// What is done with files, on one core.
pub(crate) struct Files {
    wanted: Wanted,
    decodes: bool,
    /// Each mail is one, too.
    pub(crate) has_mails: bool,
    table: Arc<Mutex<Table>>,
    ranges: Ranges,
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
        let file_limit = settings.size("file_limit").unwrap_or(u64::MAX);
        let all_limit = settings.size("extract_limit").unwrap_or(u64::MAX);
        let folder = folder.map(|path| Folder::new(Path::new(path), file_limit, all_limit));
        let room = match settings.size("memory") {
            Some(_) => share(settings) / settings.copies() as u64,
            None => ROOM,
        };
        let memory = Budget::new(room);
        Ok(are_wanted(settings).then(|| Files {
            has_mails: settings.flag("mails"),
            ..Files::new(wanted, settings.flag("decode"), folder, &memory)
        }))
    }

    fn new(wanted: Wanted, decodes: bool, folder: Option<Folder>, memory: &Budget) -> Files {
        let table = Table {
            slots: Vec::new(),
            free: Vec::new(),
            turn: 0,
            decoding: Vec::new(),
            writing: Vec::new(),
            folder,
            memory: memory.clone(),
            cut: Cut::default(),
        };
        Files {
            wanted,
            decodes,
            has_mails: false,
            table: Arc::new(Mutex::new(table)),
            ranges: Ranges::new(memory),
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

    /// What became of files that bounds cut off.
    pub(crate) fn counted(&self) -> Vec<Counted> {
        let table = locked(&self.table);
        table.cut.counted(table.memory.limit())
    }

    /// Whoever writes to the folder says at the end what could not be written.
    pub(crate) fn last_word(&self) -> Option<LastWord> {
        let table = locked(&self.table);
        table.folder.as_ref().map(Folder::last_word)
    }

    /// A file begins. `name` is what a file of its own would be called: letters, digits and hyphens.
    pub(crate) fn open(&mut self, name: &str, coding: Option<&[u8]>) -> Body {
        let coding = coding.filter(|_| self.decodes).and_then(Coding::named);
        let number = locked(&self.table).open(self.wanted, name, coding);
        Body {
            table: Arc::clone(&self.table),
            number,
            id: identity(name),
        }
    }

    /// A file is over: its record gets what is known of it.
    pub(crate) fn close(&mut self, body: Body, row: &mut FileRow) {
        row.file_id = Some(body.id);
        let limit = row.limit;
        locked(&self.table).close(body.number, row);
        row.limit = row.limit.or(limit);
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file under way.
pub(crate) struct Body {
    table: Arc<Mutex<Table>>,
    number: u32,
    id: u64,
}

/// The number of a file, by the name that it would have as a file of its own, of which there is no other (FNV-1a, and
/// a bijection that spreads it).
fn identity(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Body {
    /// The number of the file ([`FileRow::file_id`]).
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

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
    fn counted(&self, room: u64) -> Vec<Counted> {
        let size = |bytes: u64| match bytes >> 20 {
            0 => format!("{}K", bytes >> 10),
            whole => format!("{whole}M"),
        };
        let all = [
            (
                self.files,
                format!(
                    "not written to the end: {MOST_OPEN} are written at once, and the longest idle one ends"
                ),
            ),
            (
                self.decoders,
                format!(
                    "not decoded to the end: {MOST_DECODED} are decoded at once, and the longest idle one ends"
                ),
            ),
            (
                self.memory,
                format!(
                    "not decoded for want of memory: decoders have {} on each core; \
                     hint: --memory with more than {} for each core gives them more",
                    size(room),
                    size(room.saturating_mul(SHARE))
                ),
            ),
        ];
        let said = all.into_iter().filter(|&(count, _)| count > 0);
        said.map(|(count, what)| Counted {
            count,
            thing: "file",
            what,
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
        if let Some(folder) = self.folder.as_mut().filter(|_| limit.is_none()) {
            store = folder.create(name);
            limit = store.is_none().then_some(DISK);
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
            let kept = folder.close(store);
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
            kept = Some(folder.close(store));
        }
        if let Some(kept) = kept {
            row.limit = row.limit.or(kept.cut);
            row.extracted = Some(kept.name);
            row.extracted_bytes = Some(kept.bytes);
        }
        // What was left as it came for want of memory is whole; what was decoded to somewhere is not.
        row.is_whole &= match row.limit {
            Some("files" | "decoders" | DISK) => false,
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
