//! The zero-copy variant: the kernel gathers, in a ring of ours whose blocks are the buffers, and packets are delivered from where
//! they lie. Meanwhile the kernel fills the next block.
//!
//! libpcap's handle stays what the program opened: it makes the interface promiscuous, says what its errors are, and checks
//! filters. Its own socket is let nothing through.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use flowgauge_locality::Classifier;
use flowgauge_sys::interfaces;
use flowgauge_sys::libpcap::Instruction;
use flowgauge_sys::packet::{BorrowedSocket, RingOptions, RingSocket};
use flowgauge_wire::{BATCH_SIZE, LinkType};

use crate::buffer::{Buffer, End, Way};
use crate::gather::Progress;
use crate::handle::Handle;
use crate::real::{BREAK, Header, Pcap, real};
use crate::settings::Settings;

/// Bytes of a block for each packet of a buffer, with what the kernel puts before a packet. Where packets are larger, a block is full
/// of fewer; where they are smaller, it is delivered in several buffers.
const MEAN_LEN: usize = 832;
/// The least bytes of a block: the largest packet has to fit.
const LEAST: usize = 1 << 18;
/// A ring has at least so many blocks. As each is handed over when it is old enough, that is also for how many timeouts a program
/// may look elsewhere, however few packets come.
const BLOCKS: usize = 8;
/// The most bytes of a block. Larger buffers are delivered as often as one is full.
const LARGEST: usize = 16 << 20;
/// The most bytes of a ring.
const MOST: usize = 1 << 30;
/// What the kernel keeps as a time out of a block (16 bits).
const LONGEST: Duration = Duration::from_millis(u16::MAX as u64);
const PAGE: usize = 4096;

/// What gathers the packets of a handle in the kernel.
#[derive(Debug)]
pub(crate) struct Ring {
    socket: RingSocket,
    handle: &'static Handle,
    timeout: Duration,
    /// The loopback interface, whose packets come twice.
    loopback: Option<i32>,
    /// Of `tv_usec` in time stamps.
    nanoseconds_per_unit: u64,
    snap_len: u32,
    /// Packets that were taken out.
    taken: u64,
    /// The number of the filter when the ring was looked at last.
    filter: u32,
    /// In so many of the next blocks are packets that the filter before may have let through.
    unsure: u32,
    /// And in that which is being taken.
    is_unsure: bool,
    /// VLAN tags that are to be put back into packets: the packet's number, where it lies, and the tag.
    tags: Vec<(usize, u32, (u16, u16))>,
    /// Follows what is in the ring.
    end: Option<End>,
}

impl Ring {
    /// A ring for a handle that has just been activated, whose buffer was to have so many bytes.
    ///
    /// # Errors
    /// Why the handle's packets have to be copied.
    ///
    /// # Safety
    /// The handle must be open, and stay so until this is dropped.
    pub(crate) unsafe fn open(
        handle: &'static Handle,
        raw: *mut Pcap,
        fd: BorrowedFd<'_>,
        bytes: usize,
    ) -> Result<Ring, &'static str> {
        let theirs = BorrowedSocket::new(fd);
        let interface = theirs
            .interface()
            .ok_or("no packet socket with link headers")?;
        // SAFETY: the handle is open.
        let (link, snap_len, precision) = unsafe {
            let real = real();
            (
                (real.link)(raw),
                (real.snap_len)(raw),
                (real.precision)(raw),
            )
        };
        let link = LinkType::from_file(u16::try_from(link).unwrap_or(u16::MAX));
        if link != LinkType::ETHERNET && link != LinkType::RAW {
            // libpcap changes packets of some.
            return Err("link type");
        }
        let timeout = Settings::get().timeout;
        let timeout = timeout.filter(|timeout| *timeout <= LONGEST);
        let timeout = timeout.ok_or("timeout over a minute")?;
        let snap_len = u32::try_from(snap_len).unwrap_or(u32::MAX);
        let packet = MEAN_LEN.min(snap_len as usize + PAGE / 32);
        let block = (Settings::get().packets * packet).clamp(LEAST, LARGEST);
        let block = block.next_multiple_of(PAGE);
        let options = RingOptions {
            block_bytes: block as u32,
            blocks: (bytes.min(MOST) / block).max(BLOCKS) as u32,
            retire_ms: timeout.as_millis().max(1) as u32,
        };
        let open = || {
            let socket = RingSocket::open(&options)?;
            socket.set_time_stamps(theirs.time_stamps()?)?;
            socket.bind(interface)?;
            // Packets that come before are in both rings, and the program gets neither: it has not got its handle yet.
            take_filter(theirs, BorrowedSocket::new(socket.as_fd()), snap_len)?;
            Ok(socket)
        };
        let socket = open().map_err(reason)?;
        Ok(Ring {
            socket,
            handle,
            timeout,
            loopback: interfaces::index_of("lo"),
            nanoseconds_per_unit: if precision == 0 { 1000 } else { 1 },
            snap_len,
            taken: 0,
            filter: handle.filter_number(),
            unsure: 0,
            is_unsure: false,
            tags: Vec::with_capacity(BATCH_SIZE),
            end: None,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes packets of one block into the buffer, as far as so many are wanted.
    pub(crate) fn step(
        &mut self,
        raw: *mut Pcap,
        buffer: &mut Buffer,
        wanted: usize,
        classifier: &mut Classifier,
    ) -> Progress {
        let filter = self.handle.filter_number();
        if filter != self.filter {
            // With the block that is being filled, and one that was begun since.
            self.unsure = self.socket.filled_blocks() + 2;
            self.is_unsure = true;
            self.filter = filter;
        }
        let begins = self.socket.left() == 0;
        let piece = |buffer: &Buffer| buffer.room(wanted).min(BATCH_SIZE);
        if self.take(buffer, piece(buffer)) == 0 {
            return self.look_for_end(raw, buffer);
        }
        if begins {
            self.is_unsure = self.unsure > 0;
            self.unsure = self.unsure.saturating_sub(1);
        }
        buffer.filter = match self.is_unsure || self.handle.is_filter_here() {
            true => Handle::NO_FILTER,
            false => filter,
        };
        loop {
            buffer.lie_in(self.socket.memory());
            self.put_tags_back(buffer);
            buffer.classify(classifier);
            let more = piece(buffer);
            // The next block is another buffer.
            if more == 0 || self.socket.left() == 0 || self.take(buffer, more) == 0 {
                break;
            }
        }
        match buffer.len() {
            // All were left out.
            0 => Progress::More,
            _ => Progress::Due,
        }
    }

    fn take(&mut self, buffer: &mut Buffer, most: usize) -> usize {
        let (loopback, per_unit) = (self.loopback, self.nanoseconds_per_unit);
        let (snap_len, tags) = (self.snap_len, &mut self.tags);
        let taken = self.socket.next_packets(most, |packet| {
            let is_outgoing = packet.is_outgoing();
            if is_outgoing && loopback == Some(packet.interface) {
                return;
            }
            if let Some(tag) = packet.vlan {
                tags.push((buffer.len(), packet.offset, tag));
            }
            let (seconds, rest) = (
                packet.time_ns / 1_000_000_000,
                packet.time_ns % 1_000_000_000,
            );
            let header = Header {
                time: libc::timeval {
                    tv_sec: seconds.cast_signed(),
                    tv_usec: (rest / per_unit).cast_signed(),
                },
                captured_len: packet.captured_len.min(snap_len),
                wire_len: packet.wire_len,
            };
            let way = if is_outgoing { Way::Out } else { Way::In };
            buffer.add(&header, packet.offset as usize, way);
        });
        self.taken += taken as u64;
        taken
    }

    /// As libpcap does with tags that the kernel has taken out.
    fn put_tags_back(&mut self, buffer: &mut Buffer) {
        const TAG: u32 = 4;
        for (number, offset, tag) in self.tags.drain(..) {
            let len = buffer.captured_len(number);
            if let Some(offset) = self.socket.insert_tag(offset, len, tag) {
                buffer.lengthen(number, offset, TAG, self.snap_len);
            }
        }
    }

    /// Gives the block back to the kernel if nothing of it is needed any more.
    pub(crate) fn give_back(&mut self) {
        self.socket.give_back();
    }

    /// No block is there: libpcap knows what has become of the interface.
    fn look_for_end(&mut self, raw: *mut Pcap, buffer: &mut Buffer) -> Progress {
        if let Some(end) = self.end.take() {
            buffer.end = Some(end);
            return Progress::Due;
        }
        // What a wait has been ended by is told once.
        let _ = self.socket.take_error();
        // SAFETY: the handle is open, and no other thread uses it.
        let status = unsafe { (real().dispatch)(raw, 1, leave_out, core::ptr::null_mut()) };
        match status {
            BREAK => Progress::More,
            0.. => Progress::Dry,
            _ => {
                // SAFETY: the handle is open.
                self.end = Some(unsafe { End::of(raw, status) });
                self.await_rest();
                Progress::More
            }
        }
    }

    /// Waits for the block that was being filled when the interface went away.
    fn await_rest(&self) {
        const STEP_MS: u32 = 5;
        let since = Instant::now();
        // The time of a block begins anew after the one before it.
        while since.elapsed() < 2 * self.timeout + Duration::from_millis(100) {
            let (received, dropped) = self.handle.count_ring().unwrap_or_default();
            if self.socket.filled_blocks() > 0 || self.taken >= received - dropped {
                return;
            }
            let _ = self.socket.take_error();
            let _ = self.socket.wait(STEP_MS, None);
        }
    }
}

/// Moves the kernel's filter from libpcap's socket to that of a ring, which takes `snap_len` of each packet where there is none.
/// Returns whether there is one.
pub(crate) fn take_filter(
    theirs: BorrowedSocket<'_>,
    ring: BorrowedSocket<'_>,
    snap_len: u32,
) -> io::Result<bool> {
    let program = theirs.filter().unwrap_or_default();
    let is_there = !program.is_empty() && ring.set_filter(&program).is_ok();
    if !is_there {
        ring.set_filter(&[returning(snap_len)])?;
    }
    theirs.set_filter(&[returning(0)])?;
    Ok(is_there)
}

/// A program that lets so many bytes of each packet through.
fn returning(bytes: u32) -> Instruction {
    const RETURN: u16 = 6;
    Instruction {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: bytes,
    }
}

/// Why there is no ring.
fn reason(error: io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "not permitted",
        Some(libc::ENOMEM | libc::ENOBUFS) => "no memory",
        Some(libc::EMFILE | libc::ENFILE) => "no descriptors",
        Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN) => "interface is gone",
        _ => "refused by the system",
    }
}

/// A `pcap_handler` for what libpcap had got before the ring was there.
unsafe extern "C-unwind" fn leave_out(_: *mut u8, _: *const Header, _: *const u8) {}
