//! Taking packets from libpcap into a buffer.

use core::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use flowgauge_locality::Classifier;
use flowgauge_wire::LinkType;

use crate::buffer::{Buffer, End};
use crate::descriptor::{is_readable, wait};
use crate::pipe::Pipe;
use crate::real::{BREAK, Header, Pcap, real};
use crate::ring::Ring;
use crate::settings::Settings;

/// Packets that libpcap is asked for at once; then the clock is looked at.
const PIECE: usize = 1024;

/// Where the packets of a handle come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Live,
    /// A file whose packets are all there.
    File,
    /// A pipe or the like, that packets are yet to come through.
    Pipe,
}

impl Kind {
    /// Whether it ends, and libpcap reads it as it does files.
    pub(crate) fn is_savefile(self) -> bool {
        self != Kind::Live
    }
}

/// How far gathering has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The buffer is to be delivered: it is full, old enough, or the last one.
    Due,
    /// There may be more.
    More,
    /// There is nothing more for now.
    Dry,
}

/// What gathers the packets of a handle.
#[derive(Debug)]
pub(crate) struct Gatherer {
    raw: *mut Pcap,
    kind: Kind,
    /// Readable when there are packets; of a plain file it is not used.
    fd: RawFd,
    timeout: Option<Duration>,
    classifier: Classifier,
    link: c_int,
    /// Where packets lie, if they are not copied.
    ring: Option<Ring>,
    pipe: Option<Pipe>,
}

// SAFETY: the handle is used by one thread at a time (`Handle::gate`).
unsafe impl Send for Gatherer {}

impl Gatherer {
    /// # Safety
    /// The handle must be open, and stay so until this is dropped.
    pub(crate) unsafe fn new(raw: *mut Pcap, kind: Kind, fd: RawFd) -> Gatherer {
        let settings = Settings::get();
        // SAFETY: the handle is open.
        let link = unsafe { (real().link)(raw) };
        // SAFETY: the handle's own, which is open as long as the handle.
        let pipe =
            (kind == Kind::Pipe).then(|| unsafe { Pipe::new(raw, BorrowedFd::borrow_raw(fd)) });
        Gatherer {
            raw,
            kind,
            fd,
            timeout: settings.timeout,
            classifier: classifier(settings, link),
            link,
            ring: None,
            pipe,
        }
    }

    /// The same for packets of a ring.
    pub(crate) fn with_ring(mut self, ring: Ring) -> Gatherer {
        self.fd = ring.fd().as_raw_fd();
        self.ring = Some(ring);
        self
    }

    /// Whether packets are delivered from where the kernel has put them.
    #[inline]
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Says that all of what was gathered was delivered, and none of it is needed any more.
    pub(crate) fn give_back(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.give_back();
        }
    }

    /// A buffer as large as the settings say.
    pub(crate) fn buffer(&self) -> Buffer {
        let limit = Settings::get().packets;
        let mut buffer = match self.has_ring() {
            true => Buffer::without_memory(limit),
            false => Buffer::new(limit, self.snap_len()),
        };
        buffer.clear(link_type(self.link));
        buffer
    }

    /// Whether there is memory for so many.
    pub(crate) fn is_room_for(&self, buffers: usize) -> bool {
        Buffer::is_room_for(buffers, Settings::get().packets, self.snap_len())
    }

    fn snap_len(&self) -> usize {
        // SAFETY: the handle is open.
        let snap_len = unsafe { (real().snap_len)(self.raw) };
        usize::try_from(snap_len).unwrap_or(0)
    }

    /// Makes a buffer ready for other packets.
    pub(crate) fn begin(&mut self, buffer: &mut Buffer) {
        // SAFETY: the handle is open.
        let link = unsafe { (real().link)(self.raw) };
        if link != self.link {
            self.link = link;
            self.classifier = classifier(Settings::get(), link);
        }
        buffer.clear(link_type(link));
    }

    /// Takes what libpcap has, as far as so many in all are wanted.
    pub(crate) fn step(&mut self, buffer: &mut Buffer, wanted: usize, filter: u32) -> Progress {
        let room = buffer.room(wanted);
        if room == 0 || buffer.end.is_some() {
            return Progress::Due;
        }
        if let Some(ring) = &mut self.ring {
            return ring.step(self.raw, buffer, wanted, &mut self.classifier);
        }
        let piece = match self.kind {
            Kind::Pipe => {
                if !self.has_packet() {
                    return self.progress(buffer, wanted, 0);
                }
                // What follows may not be there yet.
                1
            }
            _ => room.min(PIECE),
        };
        let before = buffer.len();
        let mut into = Taking {
            buffer,
            classifier: &mut self.classifier,
        };
        // SAFETY: the handle is open, and no other thread uses it; `into` outlives the call, in which alone it is used.
        let status = unsafe {
            (real().dispatch)(self.raw, piece as c_int, take, (&raw mut into).cast::<u8>())
        };
        let gathered = buffer.len() - before;
        if before == 0 && gathered > 0 {
            buffer.since = Some(Instant::now());
            buffer.filter = filter;
        }
        if status == BREAK {
            // From before this library knew the handle, which has been told (`handles::take_break`).
            return Progress::More;
        }
        if status < 0 || status == 0 && self.kind.is_savefile() {
            // SAFETY: the handle is open.
            buffer.end = Some(unsafe { End::of(self.raw, status) });
        }
        self.progress(buffer, wanted, gathered)
    }

    fn progress(&self, buffer: &Buffer, wanted: usize, gathered: usize) -> Progress {
        let is_old = || self.left_of(buffer) == Some(Duration::ZERO);
        if buffer.end.is_some() || buffer.room(wanted) == 0 || is_old() {
            Progress::Due
        } else if gathered > 0 {
            Progress::More
        } else {
            Progress::Dry
        }
    }

    /// How long a buffer may still be gathered; `None` is without limit.
    pub(crate) fn left_of(&self, buffer: &Buffer) -> Option<Duration> {
        let since = buffer.since?;
        Some(self.timeout?.saturating_sub(since.elapsed()))
    }

    /// Orders what was gathered.
    pub(crate) fn seal(&mut self, buffer: &mut Buffer) {
        buffer.seal(&mut self.classifier);
    }

    /// Waits until there are packets or something else happens.
    pub(crate) fn wait(&self, something_else: BorrowedFd<'_>, at_most: Option<Duration>) {
        // That an interface which was down is gone libpcap only finds out when it is asked.
        let at_most = match self.kind {
            Kind::Live => Some(at_most.unwrap_or(ASK).min(ASK)),
            _ => at_most,
        };
        // It has the beginning of a packet that the file's buffer has no room for.
        if self.kind == Kind::Pipe && self.fd().is_some_and(is_readable) && !self.has_packet() {
            return wait(&[something_else], Some(at_most.unwrap_or(PART).min(PART)));
        }
        match self.fd() {
            Some(fd) => wait(&[fd, something_else], at_most),
            None => wait(&[something_else], at_most),
        }
    }

    /// Whether libpcap can read from a pipe without waiting.
    fn has_packet(&self) -> bool {
        let pipe = self.pipe.as_ref().zip(self.fd());
        pipe.is_none_or(|(pipe, fd)| pipe.has_packet(fd))
    }

    /// What is readable when there are packets.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it is the handle's own, which stays open as long as `self` is used.
        (self.fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.fd) })
    }
}

/// After what time a pipe is looked at again that has a part of a packet.
const PART: Duration = Duration::from_millis(5);

/// How long libpcap is not asked, if nothing says that it has packets.
const ASK: Duration = Duration::from_millis(500);

/// Where packets go that libpcap hands over.
struct Taking<'a> {
    buffer: &'a mut Buffer,
    classifier: &'a mut Classifier,
}

/// A `pcap_handler`.
unsafe extern "C-unwind" fn take(into: *mut u8, header: *const Header, data: *const u8) {
    // SAFETY: `Gatherer::step` has given a `Taking`, which nothing else uses in the meantime.
    let into = unsafe { &mut *into.cast::<Taking<'_>>() };
    // SAFETY: libpcap gives a header.
    let header = unsafe { &*header };
    // SAFETY: with so many bytes.
    let data = unsafe { core::slice::from_raw_parts(data, header.captured_len as usize) };
    into.buffer.take(header, data, into.classifier);
}

fn link_type(link: c_int) -> LinkType {
    // What is out of range is unknown as well.
    LinkType::from_file(u16::try_from(link).unwrap_or(u16::MAX))
}

fn classifier(settings: &Settings, link: c_int) -> Classifier {
    if settings.filters.is_empty() {
        return Classifier::new(settings.class);
    }
    match Classifier::by_filters(&settings.filters, link_type(link)) {
        Ok(classifier) => classifier,
        Err(error) => crate::settings::refuse(
            &format!("FLOWGAUGE_LOCALITY_FILTERS: {error}"),
            &error.hint(),
        ),
    }
}
