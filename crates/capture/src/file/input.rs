//! The bytes under every file source: a window that moves over the input.
//!
//! Long regular files are mapped, all others are read into a buffer. Measured (November 2026, reading and decoding
//! from the page cache): on one machine, a mapped file costs half to three quarters of a read one if the page cache
//! has large pages, and a tenth less if it has small ones, because nothing is copied and unused bytes are not
//! touched; on another machine, with small pages, twice as much. For very long files, both are therefore tried
//! after the first window (`trial`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgauge_sys::ending::is_ending;
use flowgauge_sys::mapping::LARGE_PAGE;
use flowgauge_sys::ways::{Way, is_forced};

use crate::error::Error;
use crate::file::source::Memory;
use crate::file::trial::{TRIAL_MIN, reading_is_cheaper};
use crate::memory::{Lending, MappedFile, SharedMemory};

/// Bytes asked of the system at once. 512 KiB stays in a second-level cache together with what
/// works on it and is 3 to 8 per cent faster than 1 MiB; 4 MiB and more were slower still.
pub(crate) const READ_BYTES: usize = 1 << 18;

/// Windows of a file with several readers that one of them keeps: as far as one is before another.
const HELD: usize = 12;

/// Shorter files are not worth a mapping.
pub(crate) const MAPPED_MIN: usize = 2 * LARGE_PAGE;

/// Whether a file of so many bytes is worth mapping.
pub(crate) fn is_long(bytes: u64) -> bool {
    let is_long = bytes >= MAPPED_MIN as u64 || is_forced(Way::MappedFiles);
    is_long && !is_forced(Way::ReadFiles)
}

/// A reader, and the window of its bytes that is in memory.
///
/// ```text
///  memory   [ consumed | window: read, not yet consumed | free          ]
///           0          start                            end             len
/// ```
///
/// [`Input::fill`] moves the window (a partial record) to the front before it reads behind it, or to
/// the front of another buffer when this one was handed on. Of a mapped file it moves `memory` on
/// instead.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    path: PathBuf,
    mapped: Option<Mapped>,
    memory: SharedMemory,
    lending: Lending,
    start: usize,
    end: usize,
    /// Offset in the stream of `memory[0]`.
    base: u64,
    ended: bool,
    at_hand: bool,
    /// Whether a mapped file was found to be cut before it was unmapped.
    cut: bool,
}

/// A file that is mapped: `memory` is a part of it that begins at a large page.
struct Mapped {
    whole: Arc<MappedFile>,
    /// The last windows of a file that others read, too, so that who comes later finds them.
    held: VecDeque<SharedMemory>,
    /// Shares its position with the reader, which goes on where the mapping ends.
    file: File,
    /// Whether it is settled that the file stays mapped.
    settled: bool,
}

impl Input {
    /// An input that has read nothing yet.
    pub(crate) fn new(reader: Box<dyn Read + Send>, path: &Path, bytes: usize) -> Input {
        Input {
            reader,
            path: path.to_owned(),
            mapped: None,
            memory: SharedMemory::new(vec![0; bytes.max(512)]),
            lending: Lending::default(),
            start: 0,
            end: 0,
            base: 0,
            ended: false,
            at_hand: false,
            cut: false,
        }
    }

    /// An input over a file, from its beginning: mapped where that can be done and its length makes
    /// up for it.
    pub(crate) fn of_file(file: File, path: &Path, bytes: usize) -> Input {
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file);
        let at_hand = metadata.is_some();
        let is_long = metadata.is_some_and(|metadata| is_long(metadata.len()));
        let mapped = is_long.then(|| Mapped::new(&file)).flatten();
        let bytes = if mapped.is_some() { 0 } else { bytes };
        let mut input = Input::new(Box::new(file), path, bytes);
        input.mapped = mapped;
        input.at_hand = at_hand;
        input
    }

    /// The same input, of which it is known whether it is [at hand](Input::is_at_hand).
    pub(crate) fn at_hand(mut self, at_hand: bool) -> Input {
        self.at_hand = at_hand;
        self
    }

    /// Whether it is a regular file's, so that reading does not wait for what is yet to be written.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.at_hand
    }

    /// Whether it ended, or is to end, because the process is to.
    pub(crate) fn is_stopped(&self) -> bool {
        !self.at_hand && is_ending()
    }

    /// Everything in memory up to the end of the window; offsets of packets refer to it.
    #[inline]
    pub(crate) fn memory(&self) -> &[u8] {
        self.memory.get(..self.end).unwrap_or(&[])
    }

    /// The same for a parser.
    #[inline]
    pub(crate) fn view(&self) -> Memory<'_> {
        Memory {
            bytes: self.memory(),
            mapped: self.mapped.is_some(),
        }
    }

    /// Whether a mapped file was cut by somebody else while it was read. Bytes that it no longer has
    /// read as zeros.
    #[inline]
    pub(crate) fn was_cut(&self) -> bool {
        let mapped = self.mapped.as_ref();
        mapped.is_some_and(|mapped| mapped.whole.mapping().was_cut()) || self.cut
    }

    /// Where the window begins in [`Input::memory`].
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes read and not yet consumed.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or(&[])
    }

    /// Offset in the stream of the first byte of the window.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the beginning of the window on.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Takes the window's bytes out and gives the reader back, to read on elsewhere.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, Box<dyn Read + Send>) {
        // A failure to seek shows when the reader is asked.
        let _ = self.unmap();
        (self.window().to_vec(), self.reader)
    }

    /// A handle to [`Input::memory`]: it stays as it is while the handle is held.
    pub(crate) fn share(&mut self) -> SharedMemory {
        self.lending.begin();
        self.memory.clone()
    }

    /// Whether no buffer is left to go on in until one comes back.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.lending.is_exhausted()
    }

    /// Reads until the window holds at least `need` bytes, or the input ends. Returns whether it
    /// does. The buffer grows with the bytes that really arrive, not with `need`, so a length
    /// field that lies costs no memory.
    ///
    /// # Errors
    /// [`Error::Io`] when reading fails, [`Error::Damaged`] when compressed data is damaged.
    pub(crate) fn fill(&mut self, need: usize) -> Result<bool, Error> {
        if self.mapped.is_some() && self.end - self.start < need {
            if self.advance(need) {
                return Ok(true);
            }
            self.unmap().map_err(|error| self.read_error(error))?;
        }
        if !self.ended && self.end - self.start < need {
            self.make_room();
        }
        while self.end - self.start < need && !self.ended {
            let Some(memory) = self.memory.exclusive() else {
                break;
            };
            if self.end == memory.len() {
                let grown = (memory.len() * 2).min(need.next_power_of_two());
                memory.resize(grown.max(memory.len() + 1), 0);
            }
            let Some(free) = memory.get_mut(self.end..) else {
                break;
            };
            match self.reader.read(free) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Of what is compressed the end is missing then.
                Err(_) if self.is_stopped() => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(self.read_error(error));
                }
            }
        }
        Ok(self.end - self.start >= need)
    }

    /// Moves the window of a mapped file on until it holds `need` bytes. Returns whether it does:
    /// not when the mapping ends before, or what it should hold cannot be read.
    #[cold]
    fn advance(&mut self, need: usize) -> bool {
        let Some(mapped) = &mut self.mapped else {
            return false;
        };
        let position = self.base as usize + self.start;
        if mapped.is_better_read(position, self.lending.is_lent()) {
            return false;
        }
        let last = self.base as usize + self.end;
        let base = position / LARGE_PAGE * LARGE_PAGE;
        let wanted = position.saturating_add(need).max(last + 1);
        if wanted > mapped.whole.mapping().len() && last == mapped.whole.mapping().len() {
            return false;
        }
        let end = wanted
            .checked_next_multiple_of(LARGE_PAGE)
            .map_or(usize::MAX, |end| end.min(mapped.whole.mapping().len()));
        if mapped.whole.mapping().load(last..end).is_err() {
            return false;
        }
        let next = SharedMemory::window(&mapped.whole, base..end);
        let last = core::mem::replace(&mut self.memory, next);
        if mapped.whole.is_shared() {
            mapped.held.push_back(last);
            if mapped.held.len() > HELD {
                mapped.held.pop_front();
            }
        }
        self.base = base as u64;
        self.start = position - base;
        self.end = end - base;
        self.end - self.start >= need
    }

    /// Goes on without the mapping: what is left of the window is copied, what follows is read. So
    /// what was appended to the file meanwhile is read too, and what cannot be read, or was cut off, is an error of
    /// reading or an early end.
    #[cold]
    fn unmap(&mut self) -> io::Result<()> {
        let Some(mut mapped) = self.mapped.take() else {
            return Ok(());
        };
        let rest = self.window();
        let mut memory = vec![0; READ_BYTES.max(rest.len())];
        if let Some(place) = memory.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        self.memory = SharedMemory::new(memory);
        self.cut = mapped.whole.mapping().was_cut();
        let position = self.base + self.end as u64;
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        mapped.file.seek(SeekFrom::Start(position))?;
        Ok(())
    }

    /// Moves the window to the front of memory that nobody else holds.
    fn make_room(&mut self) {
        let window = self.start..self.end;
        match self.memory.exclusive() {
            Some(memory) => memory.copy_within(window, 0),
            None => {
                let mut fresh = self.lending.fresh(self.memory.len());
                if let (Some(memory), Some(kept)) = (fresh.exclusive(), self.memory.get(window)) {
                    memory[..kept.len()].copy_from_slice(kept);
                }
                self.memory = fresh;
            }
        }
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
    }

    /// Discards the next `bytes` bytes of the stream without keeping them. Returns whether the
    /// stream had that many.
    ///
    /// # Errors
    /// As [`Input::fill`].
    pub(crate) fn skip(&mut self, mut bytes: u64) -> Result<bool, Error> {
        loop {
            let here = (self.end - self.start).min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.start += here;
            bytes -= here as u64;
            if bytes == 0 {
                return Ok(true);
            }
            if !self.fill(1)? {
                return Ok(false);
            }
        }
    }

    /// A decompressor reports damage as these kinds; anything else is the system's trouble.
    fn read_error(&self, source: io::Error) -> Error {
        let truncated = source.kind() == io::ErrorKind::UnexpectedEof;
        let nonsense = matches!(
            source.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other
        );
        if (truncated || nonsense) && source.raw_os_error().is_none() {
            return Error::Damaged {
                path: self.path.clone(),
                offset: self.base + self.end as u64,
                reason: if truncated {
                    "the compressed data ends too early".to_owned()
                } else {
                    format!("the compressed data is damaged: {source}")
                },
                truncated,
            };
        }
        Error::io("read", &self.path)(source)
    }
}

impl Mapped {
    fn new(file: &File) -> Option<Mapped> {
        Some(Mapped {
            whole: MappedFile::new(file).ok()?,
            held: VecDeque::new(),
            file: file.try_clone().ok()?,
            settled: false,
        })
    }

    /// Whether to go on from `position` by reading: tried once, behind the first window. What others read, too, or
    /// get windows of, stays mapped: each window is one for all of them.
    #[cold]
    fn is_better_read(&mut self, position: usize, is_lent: bool) -> bool {
        let mapping = self.whole.mapping();
        if self.settled || position == 0 {
            return false;
        }
        self.settled = true;
        let at = position.next_multiple_of(LARGE_PAGE);
        mapping.len().saturating_sub(at) >= TRIAL_MIN
            && !is_lent
            && !self.whole.is_shared()
            && reading_is_cheaper(mapping, &self.file, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// Gives its bytes one at a time, as a slow pipe does.
    struct Drip(Vec<u8>, usize);

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let (Some(byte), Some(slot)) = (self.0.get(self.1), buffer.first_mut()) else {
                return Ok(0);
            };
            *slot = *byte;
            self.1 += 1;
            Ok(1)
        }
    }

    #[test]
    fn window_moves_and_grows() {
        let bytes: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
        let mut input = Input::new(Box::new(Drip(bytes.clone(), 0)), Path::new("x"), 512);
        assert!(input.fill(500).unwrap());
        input.consume(400);
        assert!(input.fill(1000).unwrap());
        assert_eq!(input.position(), 400);
        assert_eq!(input.window()[..1000], bytes[400..1400]);
        assert!(input.skip(1200).unwrap());
        assert_eq!(input.position(), 1600);
        assert!(!input.fill(401).unwrap());
        assert_eq!(input.window(), &bytes[1600..]);
        assert!(!input.skip(401).unwrap());
    }

    #[test]
    fn memory_handed_on_stays_as_it_is() {
        let bytes: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        let mut input = Input::new(
            Box::new(io::Cursor::new(bytes.clone())),
            Path::new("x"),
            512,
        );
        let mut held = Vec::new();
        let mut read = Vec::new();
        while input.fill(100).unwrap() {
            read.extend_from_slice(&input.window()[..100]);
            let at = input.start();
            held.push((input.share(), at, read.len() - 100));
            input.consume(100);
        }
        assert_eq!(read, bytes);
        for (memory, at, from) in held {
            assert_eq!(memory[at..at + 100], bytes[from..from + 100]);
        }
    }

    /// A file of several windows whose bytes tell where they are.
    fn long_file() -> (tempfile::NamedTempFile, Vec<u8>) {
        let words = (0..(3 * LARGE_PAGE + 4096) as u32 / 4).flat_map(u32::to_le_bytes);
        let bytes: Vec<u8> = words.collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes)
    }

    fn mapped(file: &tempfile::NamedTempFile) -> Input {
        let input = Input::of_file(file.reopen().unwrap(), Path::new("x"), READ_BYTES);
        assert!(input.mapped.is_some());
        input
    }

    #[test]
    fn a_mapped_file_is_seen_whole_in_steps_of_any_size() {
        let (file, bytes) = long_file();
        for step in [1000, LARGE_PAGE / 3 + 1, LARGE_PAGE, 2 * LARGE_PAGE + 77] {
            let mut input = mapped(&file);
            let mut at = 0;
            while input.fill(step).unwrap() {
                assert_eq!(input.position(), at as u64);
                assert!(input.window()[..step] == bytes[at..at + step]);
                assert!(input.memory()[input.start()..][..step] == bytes[at..at + step]);
                assert!(input.memory().len() <= step + 2 * LARGE_PAGE);
                input.consume(step);
                at += step;
            }
            assert!(input.window() == &bytes[at..]);
            assert!(!input.was_cut());
        }
    }

    #[test]
    fn what_is_appended_to_a_mapped_file_is_read() {
        let (mut file, bytes) = long_file();
        let mut input = mapped(&file);
        assert!(input.skip(bytes.len() as u64 - 10).unwrap());
        file.write_all(b"and more").unwrap();
        assert!(input.fill(18).unwrap());
        assert_eq!(&input.window()[10..], b"and more");
        assert_eq!(input.position(), bytes.len() as u64 - 10);
        assert!(!input.fill(19).unwrap());
    }

    #[test]
    fn a_mapped_file_is_read_on_where_that_is_cheaper() {
        let (file, bytes) = long_file();
        let mut input = mapped(&file);
        let step = LARGE_PAGE / 3 + 1;
        let mut at = 0;
        while input.fill(step).unwrap() {
            assert_eq!(input.position(), at as u64);
            assert!(input.window()[..step] == bytes[at..at + step]);
            assert_eq!(input.view().mapped, at < 4 * step);
            input.consume(step);
            at += step;
            if at == 4 * step {
                input.unmap().unwrap();
            }
        }
        assert!(at > 4 * step && input.window() == &bytes[at..]);
    }

    #[test]
    fn a_very_long_file_is_the_same_whichever_way_it_is_read() {
        // Mostly a hole: it takes no room.
        let file = tempfile::NamedTempFile::new().unwrap();
        let len = (TRIAL_MIN + 5 * LARGE_PAGE) as u64;
        file.as_file().set_len(len).unwrap();
        let mark = |at: u64| (at / 7).to_le_bytes();
        for at in (0..len - 8).step_by(LARGE_PAGE / 2 - 1) {
            file.as_file().write_all_at(&mark(at), at).unwrap();
        }
        let mut input = mapped(&file);
        let mut tried = false;
        for at in (0..len - 8).step_by(LARGE_PAGE / 2 - 1) {
            assert!(input.skip(at - input.position()).unwrap() && input.fill(8).unwrap());
            assert_eq!(input.window()[..8], mark(at));
            tried |= input.mapped.as_ref().is_none_or(|mapped| mapped.settled);
        }
        assert!(tried && !input.was_cut());
        let left = len - input.position();
        assert!(input.skip(left).unwrap() && !input.fill(1).unwrap());
    }

    #[test]
    fn what_is_lent_stays_mapped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file()
            .set_len((TRIAL_MIN + 5 * LARGE_PAGE) as u64)
            .unwrap();
        let mut lent = mapped(&file);
        assert!(lent.fill(1).unwrap());
        let held = lent.share();
        lent.consume(LARGE_PAGE);
        assert!(lent.fill(1).unwrap() && lent.view().mapped);
        assert!(held.iter().all(|&byte| byte == 0));
        let mut other = mapped(&file);
        assert!(other.skip(3 * LARGE_PAGE as u64).unwrap() && other.fill(1).unwrap());
        assert!(other.view().mapped);
    }

    #[test]
    fn parts_of_a_mapped_file_are_its_rest() {
        let (file, bytes) = long_file();
        let mut input = mapped(&file);
        assert!(input.fill(4).unwrap());
        input.consume(2);
        let (mut read, mut rest) = input.into_parts();
        rest.read_to_end(&mut read).unwrap();
        assert!(read == bytes[2..]);
    }

    #[test]
    fn a_mapped_file_that_is_cut_ends_early() {
        let (file, _) = long_file();
        let mut input = mapped(&file);
        assert!(input.fill(4).unwrap());
        file.as_file().set_len(LARGE_PAGE as u64 + 10).unwrap();
        input.consume(LARGE_PAGE - 1);
        assert!(!input.fill(100).unwrap());
        assert_eq!(input.window().len(), 11);
    }

    #[test]
    fn who_reads_what_another_reads_sees_the_same_memory() {
        let (file, bytes) = long_file();
        let (mut one, mut other) = (mapped(&file), mapped(&file));
        let step = LARGE_PAGE / 2 + 1;
        let (mut at, mut shared) = (0, 0);
        // One is before the other.
        while one.fill(step).unwrap() {
            one.consume(step);
            if at >= 2 * step {
                assert!(other.fill(step).unwrap());
                assert!(other.window()[..step] == bytes[at - 2 * step..][..step]);
                let held = &one.mapped.as_ref().unwrap().held;
                shared += usize::from(held.iter().any(|held| held.is(&other.memory)));
                other.consume(step);
            }
            at += step;
        }
        assert!(shared > 0);
        drop(one);
        // What left memory comes back.
        let mut later = mapped(&file);
        assert!(later.fill(LARGE_PAGE + 1).unwrap());
        assert!(later.window()[..LARGE_PAGE] == bytes[..LARGE_PAGE]);
    }

    #[test]
    fn a_file_is_at_hand_and_a_pipe_is_not() {
        let (file, _) = long_file();
        assert!(mapped(&file).is_at_hand());
        let short = tempfile::tempfile().unwrap();
        assert!(Input::of_file(short, Path::new("x"), READ_BYTES).is_at_hand());
        let (reader, _writer) = io::pipe().unwrap();
        let pipe = std::os::fd::OwnedFd::from(reader);
        assert!(!Input::of_file(File::from(pipe), Path::new("x"), READ_BYTES).is_at_hand());
        let drip = Input::new(Box::new(Drip(Vec::new(), 0)), Path::new("x"), 512);
        assert!(!drip.is_at_hand());
    }

    #[test]
    fn a_lying_length_costs_no_memory() {
        let mut input = Input::new(Box::new(Drip(vec![7; 100], 0)), Path::new("x"), 512);
        assert!(!input.fill(usize::MAX / 4).unwrap());
        assert!(input.memory.len() <= 1024);
    }
}
