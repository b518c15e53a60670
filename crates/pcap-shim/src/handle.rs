//! A handle as the program sees it: what it reads comes out of buffers.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::ptr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::process;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

use flowgauge_capture::Filter;
use flowgauge_sys::libpcap::Instruction;
use flowgauge_sys::packet::{BorrowedSocket, statistics};
use flowgauge_wire::LinkType;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};

use crate::buffer::{Buffer, Delivery, Way};
use crate::counts::{Counts, add};
use crate::descriptor::{Descriptor, Event, wait};
use crate::gather::{Gatherer, Kind, Progress};
use crate::real::{BREAK, Callback, Header, Pcap, Program, real};
use crate::ring::{Ring, take_filter};
use crate::settings::{Settings, Variant};
use crate::thread::Thread;

/// Bytes of libpcap's messages.
const MESSAGE: usize = 256;

/// A place for a handle.
#[derive(Debug)]
pub(crate) struct Handle {
    /// The handle whose place it is; null while it is nobody's.
    raw: AtomicPtr<Pcap>,
    /// A [`Kind`] and a [`Variant`], as numbers.
    kind: AtomicU8,
    variant: AtomicU8,
    /// `pcap_breakloop` was called.
    broken: AtomicBool,
    /// Wakes the reader then.
    interrupt: Event,
    /// Whether the program has asked for reads that do not wait.
    nonblocking: AtomicBool,
    /// Whether the program has asked for the file, and may turn back in it.
    has_file: AtomicBool,
    /// Held while libpcap is asked for packets by a thread that the program knows nothing of.
    gate: ReentrantMutex<()>,
    /// The process that has such a thread, not those forked from it.
    thread_of: AtomicU32,
    /// How often the filter was changed.
    filters: AtomicU32,
    /// The last one, unless what it says can only be found out before a packet is gathered.
    filter: Mutex<Option<Filter>>,
    /// It is looked at here: the kernel does not take it.
    is_filter_here: AtomicBool,
    /// `pcap_direction_t`.
    direction: AtomicI32,
    /// The socket of the ring that packets lie in; negative: there is none.
    ring: AtomicI32,
    /// Packets that passed the ring's filter, and those of them that found no room.
    received: AtomicU64,
    dropped: AtomicU64,
    /// Why there is no ring though there was to be one.
    no_ring: Mutex<Option<&'static str>>,
    pub(crate) counts: Counts,
    /// Of the thread that reads: as with libpcap, there is one at a time.
    reader: UnsafeCell<Reader>,
}

// SAFETY: `reader` is used by the thread that reads the handle, or closes it, and libpcap's interface allows one at a time.
unsafe impl Sync for Handle {}
// SAFETY: it belongs to no thread.
unsafe impl Send for Handle {}

#[derive(Debug)]
struct Reader {
    source: Source,
    /// Readable when there are packets; of a plain file there is none.
    fd: RawFd,
    descriptor: Option<Descriptor>,
    /// Where the file was when a buffer had been gathered, once the program may move it.
    position: i64,
    /// What `pcap_next_ex` points to.
    header: Header,
    /// The last packet of a ring's block, which is the kernel's again.
    kept: Vec<u8>,
}

/// Where buffers come from.
#[derive(Debug)]
enum Source {
    /// It was not read yet.
    Fresh,
    Simple(Box<Gatherer>, Box<Buffer>),
    Threaded(Box<Thread>),
    Closed,
}

/// What came of gathering.
enum Filled {
    Ready,
    /// Nothing for now, and the program does not want to wait.
    Nothing,
    Broken,
    /// What libpcap's function returned.
    End(c_int),
}

/// The packet that a read of one has got.
struct One {
    header: Header,
    data: *const u8,
}

impl Handle {
    /// What no filter has as its number.
    pub(crate) const NO_FILTER: u32 = u32::MAX;

    /// A place that is not given away again.
    const SPENT: *mut Pcap = ptr::without_provenance_mut(1);

    pub(crate) fn new() -> io::Result<Handle> {
        Ok(Handle {
            raw: AtomicPtr::new(ptr::null_mut()),
            kind: AtomicU8::new(0),
            variant: AtomicU8::new(0),
            broken: AtomicBool::new(false),
            interrupt: Event::new()?,
            nonblocking: AtomicBool::new(false),
            has_file: AtomicBool::new(false),
            gate: ReentrantMutex::new(()),
            thread_of: AtomicU32::new(0),
            filters: AtomicU32::new(0),
            filter: Mutex::new(None),
            is_filter_here: AtomicBool::new(false),
            direction: AtomicI32::new(0),
            ring: AtomicI32::new(-1),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            no_ring: Mutex::new(None),
            counts: Counts::default(),
            reader: UnsafeCell::new(Reader {
                source: Source::Closed,
                fd: -1,
                descriptor: None,
                position: 0,
                header: Header::EMPTY,
                kept: Vec::new(),
            }),
        })
    }

    /// Gives the place to a handle, with a ring of about so many bytes if there is to be one. Returns whether packets can be
    /// gathered of it.
    ///
    /// # Safety
    /// The handle must be open, and the place nobody's.
    pub(crate) unsafe fn open(
        &'static self,
        raw: *mut Pcap,
        kind: Kind,
        fd: RawFd,
        ring: Option<usize>,
    ) -> bool {
        // SAFETY: the handle is open.
        let gatherer = unsafe { Gatherer::new(raw, kind, fd) };
        if !gatherer.is_room_for(1) {
            return false;
        }
        let mut is_nonblocking = false;
        if kind == Kind::Live {
            let mut message = [0 as c_char; MESSAGE];
            // SAFETY: the handle is open, and there is room for a message.
            let was = unsafe { (real().get_nonblock)(raw, message.as_mut_ptr()) };
            // SAFETY: the same. From now on waiting is done here.
            let is = unsafe { (real().set_nonblock)(raw, 1, message.as_mut_ptr()) };
            if is != 0 {
                return false;
            }
            is_nonblocking = was > 0;
        }
        self.counts.reset();
        self.broken.store(false, Ordering::Relaxed);
        self.interrupt.clear();
        self.nonblocking.store(is_nonblocking, Ordering::Relaxed);
        self.has_file.store(false, Ordering::Relaxed);
        *self.filter.lock() = None;
        self.is_filter_here.store(false, Ordering::Relaxed);
        self.direction.store(0, Ordering::Relaxed);
        self.thread_of.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.dropped.store(0, Ordering::Relaxed);
        *self.no_ring.lock() = None;
        // SAFETY: the place is nobody's, so nobody reads.
        let reader = unsafe { self.reader() };
        (reader.source, reader.fd) = (Source::Fresh, fd);
        self.kind.store(kind as u8, Ordering::Relaxed);
        self.variant.store(0, Ordering::Relaxed);
        if kind == Kind::Live && Settings::get().variant == Variant::ZeroCopy {
            // SAFETY: the handle's own, which is open as long as the handle.
            let theirs = unsafe { BorrowedFd::borrow_raw(fd) };
            let made = match ring {
                // SAFETY: the handle is open; the ring is dropped in `Handle::close`.
                Some(bytes) => unsafe { Ring::open(self, raw, theirs, bytes) },
                // What has come since would be lost.
                None => Err("activated unseen"),
            };
            match made {
                Ok(made) => reader.use_ring(self, gatherer.with_ring(made)),
                Err(reason) => *self.no_ring.lock() = Some(reason),
            }
        }
        self.raw.store(raw, Ordering::Release);
        true
    }

    /// What to hold where a thread of this process may be asking libpcap.
    pub(crate) fn gate(&self) -> Option<ReentrantMutexGuard<'_, ()>> {
        // A thread that a fork has left behind gives nothing back.
        (self.thread_of.load(Ordering::Acquire) == process::id()).then(|| self.gate.lock())
    }

    /// # Safety
    /// Only for the thread that reads or closes the handle, which does not use another reference at the same time.
    #[allow(clippy::mut_from_ref, reason = "see above")]
    unsafe fn reader(&self) -> &mut Reader {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.reader.get() }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut Pcap {
        self.raw.load(Ordering::Acquire)
    }

    /// How often the filter was changed.
    pub(crate) fn filter_number(&self) -> u32 {
        self.filters.load(Ordering::Acquire)
    }

    /// Whether each packet has to be asked whether the filter lets it through.
    pub(crate) fn is_filter_here(&self) -> bool {
        self.is_filter_here.load(Ordering::Acquire)
    }

    /// `pcap_setdirection`.
    pub(crate) fn set_direction(&self, direction: c_int) {
        self.direction.store(direction, Ordering::Release);
    }

    /// Whether a packet that goes this way is wanted.
    #[inline]
    fn is_wanted(&self, way: Way) -> bool {
        const IN: c_int = 1;
        const OUT: c_int = 2;
        match (self.direction.load(Ordering::Relaxed), way) {
            // libpcap has asked that.
            (_, Way::Unknown) => true,
            (IN, way) => way == Way::In,
            (OUT, way) => way == Way::Out,
            _ => true,
        }
    }

    /// How many packets passed the ring's filter, and how many of them found no room; `None` without a ring. A signal handler may
    /// ask.
    pub(crate) fn count_ring(&self) -> Option<(u64, u64)> {
        let more = statistics(self.ring_fd()?).unwrap_or_default();
        let (received, dropped) = (more.captured + more.dropped, more.dropped);
        let before = self.received.fetch_add(received, Ordering::Relaxed);
        let dropped_before = self.dropped.fetch_add(dropped, Ordering::Relaxed);
        Some((before + received, dropped_before + dropped))
    }

    fn ring_fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.ring.load(Ordering::Acquire);
        // SAFETY: the ring is open until the handle is closed.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// `pcap_breakloop`; a signal handler may.
    pub(crate) fn break_loop(&self) {
        self.broken.store(true, Ordering::Release);
        self.interrupt.set();
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn mend(&self) {
        // In this order: a call in between is not forgotten, as the reader looks before it waits.
        self.broken.store(false, Ordering::Release);
        self.interrupt.clear();
    }

    /// Whether the program has asked for reads that do not wait, which it can of live handles.
    pub(crate) fn nonblocking(&self) -> Option<&AtomicBool> {
        (!self.is_savefile()).then_some(&self.nonblocking)
    }

    /// Whether it ends, and libpcap reads it as it does files.
    #[inline]
    pub(crate) fn is_savefile(&self) -> bool {
        self.kind.load(Ordering::Relaxed) != Kind::Live as u8
    }

    /// As libpcap's `read_op`: up to `limit` packets, of those that are there; of a savefile all. No more than `wanted`
    /// are gathered.
    ///
    /// # Safety
    /// For the thread that reads; the callback is the program's.
    unsafe fn read(
        &'static self,
        limit: c_int,
        wanted: usize,
        is_waiting: bool,
        callback: Callback,
        user: *mut u8,
    ) -> c_int {
        let is_savefile = self.is_savefile();
        if self.has_file.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise.
            unsafe { self.follow_file() };
        }
        let mut count = 0;
        loop {
            let is_enough = |count| limit > 0 && count >= limit;
            while !self.is_broken() && !is_enough(count) {
                // SAFETY: the caller's promise. No reference into the reader is held while the callback runs.
                let Some((header, data)) = (unsafe { self.next() }) else {
                    break;
                };
                count += 1;
                // SAFETY: the program's function, with what libpcap would give it.
                unsafe { callback(user, header, data) };
            }
            // A savefile's loop goes on to tell of it, after what was delivered.
            if is_savefile && count > 0 && (is_enough(count) || self.is_broken()) {
                return count;
            }
            if self.is_broken() {
                self.mend();
                return BREAK;
            }
            if is_enough(count) || count > 0 && !is_savefile {
                return count;
            }
            let more = wanted.saturating_sub(usize::try_from(count).unwrap_or(0));
            // SAFETY: the caller's promise.
            match unsafe { self.fill(more, is_waiting) } {
                Filled::Ready | Filled::Broken => {}
                Filled::Nothing => return count,
                // The end of a file is told by a read that got nothing, an error at once.
                Filled::End(0) => return count,
                Filled::End(status) => return status,
            }
        }
    }

    /// The packet whose turn it is.
    ///
    /// # Safety
    /// See [`Handle::reader`].
    #[inline]
    unsafe fn next(&self) -> Option<(*const Header, *const u8)> {
        // SAFETY: the caller's promise.
        let buffer = unsafe { self.reader() }.source.buffer()?;
        loop {
            let packet = buffer.pop()?;
            let is_asked = buffer.filter != self.filter_number();
            // SAFETY: it is a packet of the buffer.
            if is_asked && !unsafe { self.passes(&packet) } || !self.is_wanted(packet.way) {
                add(&self.counts.refused, 1);
                continue;
            }
            add(&self.counts.delivered, 1);
            return Some((packet.header, packet.data));
        }
    }

    /// Whether the last filter lets a packet through that was gathered under another one, as libpcap asks of what is in its
    /// ring then.
    ///
    /// # Safety
    /// It must point to a header, and to as many bytes as that says.
    #[cold]
    unsafe fn passes(&self, packet: &Delivery) -> bool {
        const TAG: core::ops::Range<usize> = 12..16;
        // SAFETY: the caller's promise.
        let (header, data) = unsafe {
            let header = &*packet.header;
            let len = header.captured_len as usize;
            (header, core::slice::from_raw_parts(packet.data, len))
        };
        let filter = self.filter.lock();
        let Some(filter) = filter.as_ref() else {
            return true;
        };
        match packet.has_tag {
            true if data.len() >= TAG.end => {
                // As the kernel's filter sees it.
                let untagged = [&data[..TAG.start], &data[TAG.end..]].concat();
                filter.matches(&untagged, header.wire_len - TAG.len() as u32)
            }
            _ => filter.matches(data, header.wire_len),
        }
    }

    /// Gets another buffer, now that all of the last one was delivered.
    ///
    /// # Safety
    /// See [`Handle::reader`].
    unsafe fn fill(&'static self, wanted: usize, is_waiting: bool) -> Filled {
        // SAFETY: the caller's promise.
        let reader = unsafe { self.reader() };
        let has_thread = match &reader.source {
            Source::Fresh => {
                // A thread would gather more than those that a program wants who counts them.
                // It would be far ahead in a file that a program turns back in.
                let is_counted = wanted != usize::MAX || self.has_file.load(Ordering::Relaxed);
                let is_wanted = Settings::get().variant == Variant::Threaded;
                reader.begin(self, is_wanted && !is_counted);
                false
            }
            Source::Threaded(thread) if !thread.is_here() => {
                reader.begin(self, false);
                self.variant.store(Variant::Simple as u8, Ordering::Relaxed);
                false
            }
            Source::Threaded(_) => true,
            Source::Simple(..) | Source::Closed => false,
        };
        if let Some(end) = reader.source.buffer().and_then(|buffer| buffer.end.take()) {
            // It was behind the packets that were delivered.
            // SAFETY: the handle is open, and the end is its own.
            unsafe { end.restore(self.raw()) };
            if has_thread {
                // The thread has ended, too. What follows is as libpcap says.
                reader.begin(self, false);
            }
            return Filled::End(end.status);
        }
        let filled = match &mut reader.source {
            Source::Simple(gatherer, buffer) => {
                if buffer.is_sealed() {
                    gatherer.begin(buffer);
                }
                self.gather(gatherer, buffer, wanted, is_waiting)
            }
            Source::Threaded(thread) => {
                thread.give_back();
                self.await_buffer(thread, is_waiting)
            }
            Source::Fresh | Source::Closed => Filled::End(-1),
        };
        match filled {
            Filled::Ready => {
                reader.arm(None);
                let buffer = reader.source.buffer();
                let (classes, runs) = buffer.map_or((0, 0), |buffer| buffer.classes());
                add(&self.counts.buffers, u64::from(classes > 0));
                add(&self.counts.classes, classes as u64);
                add(&self.counts.runs, runs as u64);
                if self.has_file.load(Ordering::Relaxed) {
                    // SAFETY: the handle is open.
                    reader.position = unsafe { position(self.raw()) };
                }
            }
            Filled::Nothing => {
                if let Source::Simple(gatherer, buffer) = &reader.source {
                    let left = gatherer.left_of(buffer);
                    reader.arm(left);
                }
            }
            Filled::Broken | Filled::End(_) => {}
        }
        filled
    }

    /// After `pcap_file`, whose result the program may move: where to, it is followed.
    ///
    /// # Safety
    /// See [`Handle::reader`]; the handle must be open.
    pub(crate) unsafe fn watch_file(&self) {
        if self.kind.load(Ordering::Relaxed) == Kind::File as u8 {
            self.has_file.store(true, Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe { self.reader().position = position(self.raw()) };
        }
    }

    /// Forgets what was gathered if the program has moved the file since.
    ///
    /// # Safety
    /// See [`Handle::reader`]; the handle must be open.
    #[cold]
    unsafe fn follow_file(&self) {
        // SAFETY: the caller's promise.
        let reader = unsafe { self.reader() };
        if let Source::Simple(gatherer, buffer) = &mut reader.source
            && buffer.is_sealed()
            // SAFETY: the caller's promise.
            && unsafe { position(self.raw()) } != reader.position
        {
            add(&self.counts.again, buffer.left() as u64);
            gatherer.begin(buffer);
        }
    }

    /// The simple variant: the reader gathers.
    fn gather(
        &self,
        gatherer: &mut Gatherer,
        buffer: &mut Buffer,
        wanted: usize,
        is_waiting: bool,
    ) -> Filled {
        loop {
            if self.is_broken() {
                return Filled::Broken;
            }
            let before = buffer.len();
            let progress = gatherer.step(buffer, wanted, self.filter_number());
            add(&self.counts.gathered, (buffer.len() - before) as u64);
            match progress {
                Progress::Due => {
                    gatherer.seal(buffer);
                    return Filled::Ready;
                }
                Progress::More => {}
                Progress::Dry if !is_waiting => return Filled::Nothing,
                Progress::Dry => gatherer.wait(self.interrupt.as_fd(), gatherer.left_of(buffer)),
            }
        }
    }

    /// The threaded variant: the reader waits for the thread.
    fn await_buffer(&self, thread: &mut Thread, is_waiting: bool) -> Filled {
        loop {
            if self.is_broken() {
                return Filled::Broken;
            }
            if thread.take_full() {
                return Filled::Ready;
            }
            if !is_waiting {
                return Filled::Nothing;
            }
            wait(&[thread.fd(), self.interrupt.as_fd()], None);
        }
    }

    /// `pcap_dispatch`.
    ///
    /// # Safety
    /// See [`Handle::read`].
    pub(crate) unsafe fn dispatch(
        &'static self,
        limit: c_int,
        callback: Callback,
        user: *mut u8,
    ) -> c_int {
        let is_waiting = !self.nonblocking.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        let status = unsafe { self.read(limit, usize::MAX, is_waiting, callback, user) };
        // SAFETY: the caller's promise.
        unsafe { self.reader() }.settle();
        status
    }

    /// `pcap_loop`. A program that asks for so many packets gets those that come first.
    ///
    /// # Safety
    /// See [`Handle::read`].
    pub(crate) unsafe fn loops(
        &'static self,
        mut limit: c_int,
        callback: Callback,
        user: *mut u8,
    ) -> c_int {
        let is_limited = limit > 0;
        let status = loop {
            let wanted = match is_limited {
                true => usize::try_from(limit).unwrap_or(0),
                false => usize::MAX,
            };
            // SAFETY: the caller's promise.
            let count = unsafe { self.read(limit, wanted, true, callback, user) };
            if count <= 0 {
                if count == 0 && !self.is_savefile() {
                    continue;
                }
                break count;
            }
            if is_limited {
                limit -= count;
                if limit <= 0 {
                    break 0;
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.reader() }.settle();
        status
    }

    /// `pcap_next_ex`, but for the end of a savefile, and what `pcap_next` is made of.
    ///
    /// # Safety
    /// See [`Handle::read`].
    pub(crate) unsafe fn next_one(&'static self) -> (c_int, *const Header, *const u8) {
        unsafe extern "C-unwind" fn keep(one: *mut u8, header: *const Header, data: *const u8) {
            // SAFETY: `next_one` has given a `One`; the header is one of a buffer.
            unsafe {
                let one = &mut *one.cast::<One>();
                (one.header, one.data) = (*header, data);
            }
        }
        let mut one = One {
            header: Header::EMPTY,
            data: ptr::null(),
        };
        let to = (&raw mut one).cast::<u8>();
        let is_waiting = !self.nonblocking.load(Ordering::Relaxed);
        // SAFETY: the caller's promise; `one` outlives the call.
        let status = unsafe { self.read(1, usize::MAX, is_waiting, keep, to) };
        // SAFETY: the caller's promise.
        let reader = unsafe { self.reader() };
        reader.header = one.header;
        if status > 0 && reader.is_block_done() {
            let len = one.header.captured_len as usize;
            // SAFETY: so many bytes are there; the block was not given back yet.
            let bytes = unsafe { core::slice::from_raw_parts(one.data, len) };
            reader.kept.clear();
            reader.kept.extend_from_slice(bytes);
            one.data = reader.kept.as_ptr();
        }
        reader.settle();
        (status, &raw const reader.header, one.data)
    }

    /// The descriptor that the program waits on; `None` where libpcap's own will do.
    ///
    /// # Safety
    /// See [`Handle::reader`].
    pub(crate) unsafe fn descriptor(&'static self) -> Option<RawFd> {
        // SAFETY: the caller's promise.
        let reader = unsafe { self.reader() };
        if let Source::Simple(gatherer, _) = &reader.source
            && gatherer.has_ring()
        {
            // It is readable while there is a block, and then all of one is due.
            return gatherer.fd().map(|fd| fd.as_raw_fd());
        }
        if reader.descriptor.is_none() {
            reader.descriptor = reader.new_descriptor();
            reader.settle();
        }
        Some(reader.descriptor.as_ref()?.number())
    }

    /// After `pcap_setfilter`: what was gathered has to pass this one, too.
    ///
    /// # Safety
    /// The program must be one that libpcap has accepted; the handle must be open.
    pub(crate) unsafe fn change_filter(&self, program: *const Program) {
        /// Where the kernel shows what is not in the bytes (`SKF_AD_OFF`).
        const BESIDE: u32 = 0xffff_f000;

        // SAFETY: the caller's promise.
        let instructions: &[Instruction] = unsafe {
            let program = &*program;
            match program.instructions.is_null() {
                true => &[],
                false => core::slice::from_raw_parts(program.instructions, program.len as usize),
            }
        };
        let is_load = |code: u16| code & 0xe7 == 0x20;
        let looks_beside = instructions
            .iter()
            .any(|instruction| is_load(instruction.code) && instruction.k >= BESIDE);
        // SAFETY: the handle is open.
        let link = unsafe { (real().link)(self.raw()) };
        let link = LinkType::from_file(u16::try_from(link).unwrap_or(u16::MAX));
        let filter = match looks_beside || instructions.is_empty() {
            true => None,
            false => Filter::from_instructions(instructions.to_vec(), link).ok(),
        };
        *self.filter.lock() = filter;
        if let Some(ring) = self.ring_fd() {
            let ring = BorrowedSocket::new(ring);
            // SAFETY: the handle is open, and so is its own socket.
            let (theirs, snap_len) = unsafe {
                let fd = (real().selectable_fd)(self.raw());
                (BorrowedFd::borrow_raw(fd), (real().snap_len)(self.raw()))
            };
            let snap_len = u32::try_from(snap_len).unwrap_or(u32::MAX);
            let taken = take_filter(BorrowedSocket::new(theirs), ring, snap_len);
            let is_here = !taken.unwrap_or(false);
            self.is_filter_here.store(is_here, Ordering::Release);
        }
        self.filters.fetch_add(1, Ordering::Release);
    }

    /// Ends gathering and gives up the place; the handle itself is yet to be closed.
    ///
    /// # Safety
    /// See [`Handle::reader`].
    pub(crate) unsafe fn close(&self) {
        // SAFETY: the caller's promise.
        let reader = unsafe { self.reader() };
        let thread_of = self.thread_of.load(Ordering::Acquire);
        // The thread ends before its counts are told.
        self.ring.store(-1, Ordering::Release);
        reader.source = Source::Closed;
        reader.descriptor = None;
        self.tell();
        // A thread that a fork has left behind may have the gate.
        let next = match thread_of == 0 || thread_of == process::id() {
            true => ptr::null_mut(),
            false => Handle::SPENT,
        };
        self.raw.store(next, Ordering::Release);
    }

    /// Whether a handle has the place.
    pub(crate) fn is_used(&self) -> bool {
        let raw = self.raw();
        !raw.is_null() && raw != Handle::SPENT
    }

    /// Tells what became of the packets so far.
    pub(crate) fn tell(&self) {
        let settings = Settings::get();
        let kind = match self.kind.load(Ordering::Relaxed) {
            kind if kind == Kind::Live as u8 => "live",
            kind if kind == Kind::File as u8 => "file",
            _ => "pipe",
        };
        let variant = match self.variant.load(Ordering::Relaxed) {
            variant if variant == Variant::Simple as u8 => "simple",
            variant if variant == Variant::Threaded as u8 => "threaded",
            variant if variant == Variant::ZeroCopy as u8 => "zero-copy",
            _ => "not read",
        };
        let fallback = match *self.no_ring.lock() {
            Some(reason) => format!(" (no zero-copy, {reason})"),
            None => String::new(),
        };
        let class = match settings.filters.is_empty() {
            true => settings.class.name(),
            false => "filters",
        };
        let what = format!("{kind}, {variant}{fallback}, {class}");
        settings.counts.tell(&self.counts.line(&what));
    }
}

/// Where the file of a savefile is.
///
/// # Safety
/// The handle must be open.
unsafe fn position(raw: *mut Pcap) -> i64 {
    // SAFETY: the file is open as long as its handle; `ftello` only looks at it.
    unsafe {
        match (real().file)(raw) {
            file if file.is_null() => -1,
            file => libc::ftello(file),
        }
    }
}

impl Reader {
    /// Begins to gather, by a thread if that is asked for and can be.
    fn begin(&mut self, handle: &'static Handle, by_thread: bool) {
        let kind = match handle.kind.load(Ordering::Relaxed) {
            kind if kind == Kind::Live as u8 => Kind::Live,
            kind if kind == Kind::File as u8 => Kind::File,
            _ => Kind::Pipe,
        };
        // SAFETY: the handle is open, and what is made here is dropped in `Handle::close`.
        let gatherer = || unsafe { Gatherer::new(handle.raw(), kind, self.fd) };
        if by_thread {
            handle.thread_of.store(process::id(), Ordering::Release);
        }
        let started = by_thread.then(|| Thread::start(handle, gatherer()));
        let (source, variant) = match started {
            Some(Ok(thread)) => (Source::Threaded(Box::new(thread)), Variant::Threaded),
            _ => {
                let gatherer = gatherer();
                let buffer = Box::new(gatherer.buffer());
                let source = Source::Simple(Box::new(gatherer), buffer);
                (source, Variant::Simple)
            }
        };
        // What follows the end is no other variant.
        let (first, order) = (0, Ordering::Relaxed);
        let _ = handle
            .variant
            .compare_exchange(first, variant as u8, order, order);
        let before = core::mem::replace(&mut self.source, source);
        if let Some(descriptor) = &self.descriptor {
            // SAFETY: the handle's own, which is open as long as the handle; there is none without it.
            let own = unsafe { BorrowedFd::borrow_raw(self.fd) };
            let _ = match (&before, &self.source) {
                (Source::Threaded(thread), _) => descriptor.replace(thread.fd(), own),
                (_, Source::Threaded(thread)) => descriptor.replace(own, thread.fd()),
                _ => Ok(()),
            };
        }
    }

    /// Has packets gathered in a ring.
    fn use_ring(&mut self, handle: &Handle, gatherer: Gatherer) {
        let fd = gatherer.fd().map_or(-1, |fd| fd.as_raw_fd());
        handle.ring.store(fd, Ordering::Release);
        let variant = Variant::ZeroCopy as u8;
        handle.variant.store(variant, Ordering::Relaxed);
        let buffer = Box::new(gatherer.buffer());
        (self.source, self.fd) = (Source::Simple(Box::new(gatherer), buffer), fd);
    }

    /// Whether all of a ring's block was delivered.
    #[inline]
    fn is_block_done(&self) -> bool {
        match &self.source {
            Source::Simple(gatherer, buffer) => gatherer.has_ring() && buffer.left() == 0,
            _ => false,
        }
    }

    fn new_descriptor(&self) -> Option<Descriptor> {
        if self.fd < 0 {
            return None;
        }
        // SAFETY: the handle's own, which is open as long as the handle.
        let own = unsafe { BorrowedFd::borrow_raw(self.fd) };
        let waited_for = match &self.source {
            Source::Threaded(thread) => thread.fd(),
            _ => own,
        };
        let mut made = Descriptor::new(waited_for).ok()?;
        if let Source::Simple(gatherer, buffer) = &self.source {
            made.arm(gatherer.left_of(buffer));
        }
        Some(made)
    }

    fn arm(&mut self, after: Option<core::time::Duration>) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.arm(after);
        }
    }

    /// Before the program goes on: what was delivered is no longer needed; the descriptor is readable if there is something to
    /// deliver.
    #[inline]
    fn settle(&mut self) {
        if self.is_block_done()
            && let Source::Simple(gatherer, _) = &mut self.source
        {
            gatherer.give_back();
        }
        if let Some(descriptor) = &mut self.descriptor {
            let buffer = self.source.buffer();
            descriptor.set_left(
                buffer.is_some_and(|it| it.is_sealed() && (it.left() > 0 || it.end.is_some())),
            );
        }
    }
}

impl Source {
    /// The buffer that is delivered or, in the simple variant, gathered.
    #[inline]
    fn buffer(&mut self) -> Option<&mut Buffer> {
        match self {
            Source::Simple(_, buffer) => Some(buffer),
            Source::Threaded(thread) => thread.buffer.as_mut(),
            Source::Fresh | Source::Closed => None,
        }
    }
}
