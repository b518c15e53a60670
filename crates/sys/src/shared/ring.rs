//! The ring of events of one client: one writer, one reader, fixed-size entries.
//!
//! ```text
//!  ring, read-only for the client                              page of the client
//!  0     magic, bytes per entry, entries in use                0   events read
//!  64    events published                                      64  whether it sleeps
//!  72    version of the counters
//!  128   counters, for whatever they are, twice: of an even version, of an odd one
//!  4096  entries: number | offset in the pool | length | body
//! ```
//!
//! Positions count events since the beginning and are never taken modulo anything but to find
//! the entry. Each entry carries its position, so that a reader notices when it is not the one
//! that it expects.
//!
//! A ring may begin with fewer entries than its file has room for, and grow: only when the reader has read all that was
//! written. What was written before is then at nobody's place, and what is written behind that is published after the
//! new number of entries is. So a reader that looks at the number of entries after each new number of events knows
//! where these are.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use super::held::{HeldBytes, Lent};
use super::memory::{self, Mapping, PAGE};
use super::pool::{Area, Place, Pool, PoolView};

/// Bytes of an event that are the user's.
pub const BODY_BYTES: usize = 360;

/// Number of counters beside the events.
pub const COUNTERS: usize = 240;

const MAGIC: u64 = u64::from_be_bytes(*b"fgevents");
/// Largest number of entries.
const MOST: u32 = 1 << 20;

/// Places in the ring's memory.
mod header {
    pub(super) const MAGIC: usize = 0;
    pub(super) const ENTRY_BYTES: usize = 8;
    pub(super) const ENTRIES: usize = 16;
    pub(super) const PUBLISHED: usize = 64;
    pub(super) const VERSION: usize = 72;
    pub(super) const COUNTERS: usize = 128;
}

/// Places in the page of the client.
pub(super) mod page {
    pub(in super::super) const READ: usize = 0;
    pub(super) const SLEEPS: usize = 64;
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    number: u64,
    offset: u64,
    len: u32,
    reserved: u32,
    body: [u8; BODY_BYTES],
}

const _: () = assert!(size_of::<Entry>() == 384);
const _: () = assert!(header::COUNTERS + 2 * 8 * COUNTERS <= PAGE);

/// The service's end.
#[derive(Debug)]
pub struct EventWriter {
    ring: Mapping,
    page: Mapping,
    /// The ring's for who only reads it.
    ring_file: OwnedFd,
    page_file: OwnedFd,
    entries: u32,
    /// Entries that the file has room for.
    most: u32,
    /// Events written, published or not.
    written: u64,
    published: u64,
    /// Events read, as far as that was believed.
    read: u64,
    /// What the events from `read` on refer to.
    references: VecDeque<Place>,
    /// Bytes of the areas that they refer to.
    held: u64,
    /// Of the counters.
    version: u64,
}

impl EventWriter {
    /// A ring for `entries` events, rounded up to a power of two, at most 2^20.
    ///
    /// # Errors
    /// The system's.
    pub fn new(entries: u32) -> io::Result<EventWriter> {
        EventWriter::growing(entries, entries)
    }

    /// The same, which can [grow](EventWriter::grow) to `most`. Until it does that costs addresses only.
    ///
    /// # Errors
    /// The system's.
    pub fn growing(entries: u32, most: u32) -> io::Result<EventWriter> {
        let entries = rounded(entries);
        let most = rounded(most).max(entries);
        let bytes = PAGE + most as usize * size_of::<Entry>();
        let ring_file = memory::create("flowgauge-events", bytes)?;
        let ring = Mapping::new(&ring_file, bytes, true)?;
        memory::seal(&ring_file, true)?;
        let ring_file = memory::read_only(&ring_file)?;
        let page_file = memory::create("flowgauge-reader", PAGE)?;
        let page = Mapping::new(&page_file, PAGE, true)?;
        memory::seal(&page_file, false)?;
        let writer = EventWriter {
            ring,
            page,
            ring_file,
            page_file,
            entries,
            most,
            written: 0,
            published: 0,
            read: 0,
            references: VecDeque::with_capacity(entries as usize),
            held: 0,
            version: 0,
        };
        let facts = [
            (header::MAGIC, MAGIC),
            (header::ENTRY_BYTES, size_of::<Entry>() as u64),
            (header::ENTRIES, u64::from(entries)),
        ];
        for (at, value) in facts {
            word(&writer.ring, at)?.store(value, Ordering::Relaxed);
        }
        Ok(writer)
    }

    /// Bytes of memory of a ring for so many events, with all that belongs to it.
    pub fn bytes_of(entries: u32) -> u64 {
        let each = size_of::<Entry>() + size_of::<Place>();
        // The ring's first page, and the reader's.
        (2 * PAGE + rounded(entries) as usize * each) as u64
    }

    /// Makes room for so many events, if all that were written have been read. Whether there is that much room now,
    /// or as much as there can be.
    pub fn grow(&mut self, entries: u32) -> bool {
        let entries = rounded(entries).min(self.most);
        if entries <= self.entries {
            return true;
        }
        if self.read != self.written {
            return false;
        }
        let Ok(fact) = word(&self.ring, header::ENTRIES) else {
            return false;
        };
        // The next number of published events is stored behind it, with release.
        fact.store(u64::from(entries), Ordering::Relaxed);
        self.entries = entries;
        self.references.reserve(entries as usize);
        true
    }

    /// What the client maps: the ring, and the page that it writes to.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.ring_file.as_fd(), self.page_file.as_fd()]
    }

    /// Events that still fit.
    pub fn room(&self) -> u32 {
        self.entries - (self.written - self.read) as u32
    }

    /// Events the ring holds.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of the pool's areas that events refer to which were not read yet. An area counts
    /// with each of its events.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Events that were written and not read yet.
    pub fn waiting(&self) -> u32 {
        (self.written - self.read) as u32
    }

    /// Writes an event, which refers to `area` of `pool`, and returns whether there was room for
    /// it. The client sees it after [`EventWriter::publish`].
    #[must_use]
    pub fn push(&mut self, body: &[u8; BODY_BYTES], pool: &mut Pool, area: Option<&Area>) -> bool {
        if self.room() == 0 {
            return false;
        }
        let entry = Entry {
            number: self.written,
            offset: area.map_or(0, |area| pool.offset(area)),
            len: area.map_or(0, |area| area.len() as u32),
            reserved: 0,
            body: *body,
        };
        let Some(to) = entry_at(&self.ring, self.entries, self.written) else {
            return false;
        };
        // SAFETY: an aligned entry inside the mapping that can write. The reader has read past
        // the event that was here (`room`), so a reader that keeps to the protocol does not
        // look at it before it is published.
        unsafe { to.write(entry) };
        if let Some(area) = area {
            pool.refer(area);
        }
        let place = area.map_or(Place::NONE, Area::place);
        self.held += place.size();
        self.references.push_back(place);
        self.written += 1;
        true
    }

    /// Lets the client see what was written. Whether it sleeps and should be woken.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        let (Ok(published), Ok(sleeps)) = (
            word(&self.ring, header::PUBLISHED),
            half(&self.page, page::SLEEPS),
        ) else {
            return false;
        };
        // Release: the entries are there before their number.
        published.store(self.written, Ordering::Release);
        // Either the reader sees the number before it goes to sleep, or it is seen to sleep.
        fence(Ordering::SeqCst);
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }

    /// Looks how far the client has read and takes back what it no longer needs. `false` when it
    /// claims to have read what was not published, or less than before: it is no client of ours.
    #[must_use]
    pub fn collect(&mut self, pool: &mut Pool) -> bool {
        // Acquire: its reads are over before the areas are written to again.
        let Ok(claimed) = word(&self.page, page::READ).map(|read| read.load(Ordering::Acquire))
        else {
            return false;
        };
        if claimed < self.read || claimed > self.published {
            return false;
        }
        for place in self.references.drain(..(claimed - self.read) as usize) {
            if place != Place::NONE {
                self.held -= place.size();
                pool.unrefer(place);
            }
        }
        self.read = claimed;
        true
    }

    /// Takes back everything; the client is gone.
    pub fn close(mut self, pool: &mut Pool) {
        for place in self.references.drain(..) {
            if place != Place::NONE {
                pool.unrefer(place);
            }
        }
    }

    /// Shows the client numbers beside the events, all at once. Those that are not given become whatever they were.
    pub fn set_counters(&mut self, values: impl IntoIterator<Item = u64>) {
        let next = self.version + 1;
        // Who reads a number of the next version in the place of one before sees that there was one in between.
        fence(Ordering::Release);
        for (number, value) in values.into_iter().take(COUNTERS).enumerate() {
            if let Ok(counter) = counter(&self.ring, next, number) {
                counter.store(value, Ordering::Relaxed);
            }
        }
        if let Ok(version) = word(&self.ring, header::VERSION) {
            // Release: the numbers are there before their version.
            version.store(next, Ordering::Release);
            self.version = next;
        }
    }

    /// Wakes the client, if it [sleeps](EventReader::sleep).
    pub fn wake(&self) {
        if let Ok(sleeps) = half(&self.page, page::SLEEPS)
            && sleeps.swap(0, Ordering::SeqCst) != 0
        {
            self.wake_up();
        }
    }

    /// Wakes the client of whom [`EventWriter::publish`] said that it is to be.
    pub fn wake_up(&self) {
        if let Ok(sleeps) = half(&self.page, page::SLEEPS) {
            let _ = futex::wake(sleeps, futex::Flags::empty(), 1);
        }
    }
}

/// The numbers beside the events, for any thread of the client's.
#[derive(Clone, Debug)]
pub struct Counters(Arc<Mapping>);

impl Counters {
    /// Maps the first of what [`EventWriter::files`] are, for who wants no events.
    ///
    /// # Errors
    /// `InvalidData` when it is not that; the system's.
    pub fn open(ring: OwnedFd) -> io::Result<Counters> {
        mapped(ring).map(|(ring, _)| Counters(Arc::new(ring)))
    }

    /// The numbers at these places, all of one moment. Those that are not there are 0.
    #[inline]
    pub fn read<const N: usize>(&self, places: [usize; N]) -> [u64; N] {
        let Ok(version) = word(&self.0, header::VERSION) else {
            return [0; N];
        };
        let mut before = version.load(Ordering::Acquire);
        loop {
            let values = places.map(|place| {
                let counter = counter(&self.0, before, place);
                counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
            });
            fence(Ordering::Acquire);
            // Only once there is a next version is that of before written over: no writer that stops makes this wait.
            let after = version.load(Ordering::Acquire);
            if after == before {
                return values;
            }
            before = after;
        }
    }
}

/// An event as the client sees it, until it asks for the next.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What the service said.
    pub body: [u8; BODY_BYTES],
    /// The bytes that it refers to, in the pool.
    pub data: &'a [u8],
}

/// The client's end.
#[derive(Debug)]
pub struct EventReader {
    ring: Arc<Mapping>,
    page: Arc<Mapping>,
    pool: Arc<PoolView>,
    entries: u32,
    /// Entries that the mapping has room for.
    most: u32,
    /// What was taken out and is not given back.
    lent: Option<Arc<Lent>>,
    /// The event in hand, where others are taken out.
    borrowed: Option<u64>,
    /// Position of the next event.
    position: u64,
    /// Events published, as seen last.
    published: u64,
    /// Where the bytes of the event in hand are.
    in_hand: (u64, u32),
}

impl EventReader {
    /// Maps what [`EventWriter::files`] are, and takes the pool that the events refer to.
    ///
    /// # Errors
    /// `InvalidData` when they are not that; the system's.
    pub fn open(
        ring: OwnedFd,
        page: OwnedFd,
        pool: impl Into<Arc<PoolView>>,
    ) -> io::Result<EventReader> {
        let (ring, bytes) = mapped(ring)?;
        if memory::sealed_size(&page)? != PAGE {
            return Err(wrong("its size"));
        }
        let page = Mapping::new(&page, PAGE, true)?;
        let entries = word(&ring, header::ENTRIES)?.load(Ordering::Relaxed);
        let entries = u32::try_from(entries).unwrap_or(0);
        let most = u32::try_from((bytes - PAGE) / size_of::<Entry>()).unwrap_or(0);
        if !entries.is_power_of_two() || entries > most || most > MOST {
            return Err(wrong("its number of entries"));
        }
        Ok(EventReader {
            ring: Arc::new(ring),
            page: Arc::new(page),
            pool: pool.into(),
            entries,
            most,
            lent: None,
            borrowed: None,
            position: 0,
            published: 0,
            in_hand: (0, 0),
        })
    }

    /// The next event, if there is one. The last one is over with this call: what it referred to
    /// can be used again by the service.
    ///
    /// # Errors
    /// `InvalidData` when the service does not keep to the layout.
    pub fn next_event(&mut self) -> io::Result<Option<Event<'_>>> {
        self.done();
        let Some(entry) = self.next_entry()? else {
            return Ok(None);
        };
        self.in_hand = (entry.offset, entry.len);
        self.borrowed = Some(entry.number);
        // SAFETY: the service does not use the area again before it is told that the event was
        // read. That is told by `done`, which takes `&mut self`, so nothing is borrowed then.
        let data = unsafe { self.pool.bytes(entry.offset, entry.len) };
        Ok(Some(Event {
            body: entry.body,
            data: data.ok_or_else(|| wrong("a place in the pool"))?,
        }))
    }

    /// The next event, if there is one, with bytes that can go to another thread. It is over when they are
    /// dropped: until then it takes its place in the ring, and so do those behind it.
    ///
    /// # Errors
    /// `InvalidData` when the service does not keep to the layout.
    pub fn take_event(&mut self) -> io::Result<Option<([u8; BODY_BYTES], HeldBytes)>> {
        self.done();
        let Some(entry) = self.next_entry()? else {
            return Ok(None);
        };
        let lent = self.lent.get_or_insert_with(|| {
            let (page, pool) = (Arc::clone(&self.page), Arc::clone(&self.pool));
            Arc::new(Lent::new(page, pool, self.entries, entry.number))
        });
        let held = HeldBytes::new(lent, entry.number, entry.offset, entry.len);
        let held = held.ok_or_else(|| wrong("a place in the pool"))?;
        Ok(Some((entry.body, held)))
    }

    /// Reads the next entry, if there is one.
    fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        if self.position == self.published && !self.look() {
            return Ok(None);
        }
        let from = entry_at(&self.ring, self.entries, self.position);
        let from = from.ok_or_else(|| wrong("an entry's place"))?;
        // SAFETY: an aligned entry inside the mapping, of plain integers. It was published
        // (`look` acquires) and the service does not write to it before it is told that the
        // event was read.
        let entry = unsafe { from.read() };
        if entry.number != self.position {
            return Err(wrong("an event's number"));
        }
        // It is counted as read later.
        self.position += 1;
        Ok(Some(entry))
    }

    /// Whether there is a next event. The last one is over with this call.
    pub fn has_next(&mut self) -> bool {
        self.done();
        self.position != self.published || self.look()
    }

    /// The bytes of the event in hand, once more.
    pub fn current(&self) -> &[u8] {
        let (offset, len) = self.in_hand;
        // SAFETY: as in `next_event`; `done` forgets the event before it tells the service.
        unsafe { self.pool.bytes(offset, len) }.unwrap_or_default()
    }

    /// Tells the service that all events handed out so far are done with, but for those taken out.
    pub fn done(&mut self) {
        self.in_hand = (0, 0);
        let borrowed = self.borrowed.take();
        if let Some(lent) = &self.lent {
            if let Some(number) = borrowed {
                lent.give_back(number);
            }
            return;
        }
        if let Ok(read) = word(&self.page, page::READ) {
            // Release: reading is over before the service may write. Only this side writes, and
            // it need not read what it wrote.
            read.store(self.position, Ordering::Release);
        }
    }

    /// Says that this side is about to sleep until the service wakes it. `false` when there is
    /// an event by now: do not sleep.
    #[must_use]
    pub fn prepare_to_sleep(&mut self) -> bool {
        let Ok(sleeps) = half(&self.page, page::SLEEPS) else {
            return false;
        };
        sleeps.store(1, Ordering::Relaxed);
        // Either the service sees this before it looks, or its event is seen here.
        fence(Ordering::SeqCst);
        if self.position == self.published && !self.look() {
            return true;
        }
        self.awake();
        false
    }

    /// Says that this side is awake.
    pub fn awake(&self) {
        if let Ok(sleeps) = half(&self.page, page::SLEEPS) {
            sleeps.store(0, Ordering::Relaxed);
        }
    }

    /// Sleeps until there is an event, the service [wakes](EventWriter::wake) this side, or `limit` is over.
    pub fn sleep(&mut self, limit: Duration) {
        if !self.prepare_to_sleep() {
            return;
        }
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        if let Ok(sleeps) = half(&self.page, page::SLEEPS) {
            let _ = futex::wait(sleeps, futex::Flags::empty(), 1, Some(&limit));
        }
        self.awake();
    }

    /// The numbers that the service shows beside the events.
    pub fn counters(&self) -> Counters {
        Counters(Arc::clone(&self.ring))
    }

    /// Looks for new events.
    fn look(&mut self) -> bool {
        if let Ok(published) = word(&self.ring, header::PUBLISHED) {
            // Acquire: the entries are read after their number. More than a whole ring cannot be.
            let published = published.load(Ordering::Acquire);
            self.look_at_size();
            self.published = published.clamp(
                self.position,
                self.position.saturating_add(u64::from(self.entries)),
            );
        }
        self.position != self.published
    }

    /// The ring may have grown: nothing was in it then, and nothing taken out of it.
    fn look_at_size(&mut self) {
        let Ok(fact) = word(&self.ring, header::ENTRIES) else {
            return;
        };
        let Ok(entries) = u32::try_from(fact.load(Ordering::Relaxed)) else {
            return;
        };
        let can_be = entries > self.entries && entries <= self.most && entries.is_power_of_two();
        if can_be {
            self.entries = entries;
            // It knows places in the ring as it was.
            self.lent = None;
        }
    }
}

/// A ring that another process writes, and its bytes.
fn mapped(ring: OwnedFd) -> io::Result<(Mapping, usize)> {
    let bytes = memory::sealed_size(&ring)?;
    if bytes < PAGE {
        return Err(wrong("its size"));
    }
    let ring = Mapping::new(&ring, bytes, false)?;
    let fact = |at| Ok::<_, io::Error>(word(&ring, at)?.load(Ordering::Relaxed));
    if fact(header::MAGIC)? != MAGIC || fact(header::ENTRY_BYTES)? != size_of::<Entry>() as u64 {
        return Err(wrong("its layout"));
    }
    Ok((ring, bytes))
}

/// A number of entries that a ring can have.
fn rounded(entries: u32) -> u32 {
    entries.clamp(2, MOST).next_power_of_two()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the shared ring is damaged: {what}"),
    )
}

/// The entry of a position.
#[inline]
fn entry_at(ring: &Mapping, entries: u32, position: u64) -> Option<*mut Entry> {
    let index = (position & u64::from(entries - 1)) as usize;
    let entry = ring.at(PAGE + index * size_of::<Entry>(), size_of::<Entry>())?;
    Some(entry.as_ptr().cast())
}

/// A word that both sides access.
#[inline]
pub(super) fn word(memory: &Mapping, at: usize) -> io::Result<&AtomicU64> {
    debug_assert!(at.is_multiple_of(8));
    let at = memory.at(at, 8).ok_or_else(|| wrong("it is too short"))?;
    // SAFETY: inside the mapping, which lives as long as the borrow, and aligned (mappings begin
    // at pages); all accesses of either process are atomic. A mapping without the right to write
    // is only loaded from: with plain loads, on the 64-bit machines this is for.
    Ok(unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) })
}

/// A counter of a version.
#[inline]
fn counter(ring: &Mapping, version: u64, number: usize) -> io::Result<&AtomicU64> {
    if number >= COUNTERS {
        return Err(wrong("it has no such counter"));
    }
    let of_version = (version & 1) as usize * COUNTERS;
    word(ring, header::COUNTERS + 8 * (of_version + number))
}

/// Half a word that both sides access.
#[inline]
fn half(memory: &Mapping, at: usize) -> io::Result<&AtomicU32> {
    debug_assert!(at.is_multiple_of(4));
    let at = memory.at(at, 4).ok_or_else(|| wrong("it is too short"))?;
    // SAFETY: as in `word`.
    Ok(unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) })
}

#[cfg(test)]
mod tests;
