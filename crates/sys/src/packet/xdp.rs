//! `AF_XDP` sockets: frames of an interface's receive queues, before the system makes packets of them.
//!
//! ```text
//!  memory   [ frames of queue 0 ][ frames of queue 1 ] ... [ long packets of worker 0 ][ of worker 1 ] ...
//!  fill     of each queue: frames that the kernel may write to, given by all of its workers
//!  rings    of each queue and worker: frames with packets
//! ```
//!
//! A frame is the kernel's while it stands in a queue's fill ring, and ours from when it comes in a worker's ring until it is given
//! back, which is when the next packets are asked for. Which worker gets a packet the XDP program says that stands before the
//! interface's packets; it puts the time in front of each.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::raw;
use super::ring::{Mapping, RingPacket, Statistics, Waker, Wakeup, poll};
use crate::bpf::clock;
use crate::pages::Words;

/// Bytes of a frame that the kernel keeps before the packet (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: u32 = 256;
/// Bytes for packets of several frames that a worker has at once.
const LONG: usize = 1 << 20;
/// The longest that a time stamp is older than the moment at which the packet shows: the kernel shows packets of a queue together.
/// With several queues what is younger waits.
const HOLD: u64 = 1_000_000;
/// With fewer packets than that it is waited a moment for more: the kernel wakes for each.
const FEW: u32 = 256;
/// So many descriptors of a queue are looked at together.
const AT_ONCE: u32 = 1024;
/// An Ethernet type that does not come: Ethernet Configuration Testing Protocol.
const LOOPBACK: u16 = 0x9000;

/// What to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Receive queues of the interface.
    pub queues: u32,
    /// Workers that share each.
    pub workers: u32,
    /// Frames of each worker and queue, a power of two.
    pub frames: u32,
    /// Bytes of a frame: 2,048 or 4,096.
    pub frame_bytes: u32,
    /// Whether packets may be longer than a frame has room for.
    pub long: bool,
    /// Bytes of each packet that are shown at most.
    pub snap_len: u32,
}

impl XdpOptions {
    /// Bytes of the memory of all workers.
    pub fn bytes(&self) -> u64 {
        let long = LONG as u64 * u64::from(self.workers);
        self.queue_bytes() * u64::from(self.queues) + long
    }

    fn queue_bytes(&self) -> u64 {
        self.queue_frames() * u64::from(self.frame_bytes)
    }

    fn queue_frames(&self) -> u64 {
        u64::from(self.frames) * u64::from(self.workers)
    }
}

/// A worker's rings of all receive queues of an interface.
#[derive(Debug)]
pub struct XdpRing {
    memory: Arc<Memory>,
    queues: Vec<Queue>,
    /// Where packets of several frames are put together, and how much of it is used.
    long: usize,
    used: usize,
    /// Tells of the interface, and has it promiscuous.
    watch: OwnedFd,
    interface: i32,
    snap_len: u32,
    /// When the clock of the machine was 0, in nanoseconds since 1970.
    since_boot: u64,
    /// When it was looked last what there is, and until when packets came that need not wait for those of other queues.
    looked: u64,
    bound: u64,
    /// Packets handed out since statistics were asked for.
    handed: u64,
    is_closed: bool,
    zero_copy: bool,
}

/// The worker's part of a receive queue.
#[derive(Debug)]
struct Queue {
    packets: Ring,
    fill: Arc<Mutex<Ring>>,
    socket: OwnedFd,
    frame_mask: u64,
    /// Where its frames begin in the memory.
    base: usize,
    /// Places in the ring: from where on packets are lent, are not handed out yet, are not looked at yet, have not been seen.
    lent: u32,
    next: u32,
    seen: u32,
    end: u32,
    /// When the next packet came.
    head: u64,
    /// What was lost until it was asked for last.
    lost: u64,
}

/// Frames, of all queues.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    len: usize,
    _words: Words,
}

// SAFETY: the memory is owned; which thread may write to which of it `XdpRing` sees to.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing is read or written by a shared reference but frames that are the caller's.
unsafe impl Sync for Memory {}

/// A ring that is shared with the kernel, of 64-bit words (fill) or of descriptors, which are two each.
#[derive(Debug)]
struct Ring {
    mapping: Mapping,
    offsets: [usize; 3],
    mask: u32,
}

impl XdpRing {
    /// Binds sockets to the queues of an interface. Nothing comes until an XDP program sends packets to [`XdpRing::sockets`]; then
    /// all frames are there. Zero-copy where the driver has it.
    ///
    /// # Errors
    /// The system's: `EBUSY` where another program has a queue, `ENOBUFS` where so much memory may not be locked.
    pub fn open(interface: i32, options: &XdpOptions) -> io::Result<Vec<XdpRing>> {
        let bytes = usize::try_from(options.bytes()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if u32::try_from(bytes).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let memory = Arc::new(Memory::new(bytes));
        let mut rings = Vec::with_capacity(options.workers as usize);
        for worker in 0..options.workers as usize {
            let watch = raw::open()?;
            raw::bind(&watch, interface, LOOPBACK)?;
            rings.push(XdpRing {
                memory: Arc::clone(&memory),
                queues: Vec::new(),
                long: bytes - LONG * (options.workers as usize - worker),
                used: 0,
                watch,
                interface,
                snap_len: options.snap_len,
                since_boot: since_boot(),
                looked: 0,
                bound: 0,
                handed: 0,
                is_closed: false,
                zero_copy: true,
            });
        }
        for number in 0..options.queues {
            let (queues, zero_copy) = match Queue::open(interface, number, options, &memory) {
                // The interface has fewer.
                Err(error) if number > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
                queues => queues?,
            };
            for (ring, queue) in rings.iter_mut().zip(queues) {
                ring.queues.push(queue);
                ring.zero_copy &= zero_copy;
            }
        }
        Ok(rings)
    }

    /// Makes the interface promiscuous as long as it is open.
    ///
    /// # Errors
    /// The system's.
    pub fn set_promiscuous(&self) -> io::Result<()> {
        raw::set_promiscuous(&self.watch, self.interface)
    }

    /// Its sockets, by receive queue.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.as_fd())
    }

    /// Whether packets come without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Hands up to `limit` packets to `each`, and returns their number; 0 when there are none. The frames of those of the last call
    /// are given back first. Offsets refer to [`XdpRing::memory`].
    pub fn next_packets(&mut self, limit: usize, mut each: impl FnMut(RingPacket)) -> usize {
        self.give_back();
        if !self.is_within_look() {
            self.look();
        }
        let mut handed = 0;
        while handed < limit
            && let Some(number) = self.turn()
            && let Some((offset, len)) = self.take(number)
        {
            let queue = &mut self.queues[number];
            let time = queue.head;
            queue.read_head(&self.memory, self.looked);
            each(RingPacket {
                time_ns: self.since_boot.wrapping_add(time),
                offset,
                network_offset: 14,
                captured_len: len.min(self.snap_len),
                wire_len: len,
                interface: self.interface,
                status: 0,
                vlan: None,
                protocol: 0,
                hardware: super::hardware::ETHERNET,
                kind: libc::PACKET_HOST,
            });
            handed += 1;
        }
        self.handed += handed as u64;
        handed
    }

    /// The queue with the next packet.
    fn turn(&self) -> Option<usize> {
        let waiting = self.queues.iter().enumerate();
        let waiting = waiting.filter(|(_, queue)| queue.ahead() > 0 && queue.head <= self.bound);
        let (number, _) = waiting.min_by_key(|(_, queue)| queue.head)?;
        Some(number)
    }

    /// Whether the next packets were there when it was looked last.
    pub fn is_within_look(&self) -> bool {
        self.turn().is_some()
    }

    /// Sees what there is by now.
    fn look(&mut self) {
        let (now, since_boot) = (clock(), since_boot());
        // It differs by what lies between two looks at clocks, unless one was set.
        if self.since_boot.abs_diff(since_boot) > HOLD {
            self.since_boot = since_boot;
        }
        self.looked = now;
        let is_merged = self.queues.len() > 1;
        self.bound = match is_merged && !self.is_closed {
            true => now.saturating_sub(HOLD),
            false => u64::MAX,
        };
        for queue in &mut self.queues {
            let later = queue.look(self.is_closed);
            queue.read_head(&self.memory, now);
            if is_merged && later {
                let next = queue.time_at(queue.seen, &self.memory, now);
                self.bound = self.bound.min(next);
            }
        }
    }

    /// The next packet of a queue, with its length; `None` where there is no room for it now.
    fn take(&mut self, number: usize) -> Option<(u32, u32)> {
        let queue = self.queues.get_mut(number)?;
        let (address, len, is_begun) = queue.descriptor(queue.next);
        if !is_begun {
            queue.next = queue.next.wrapping_add(1);
            return Some(((queue.base as u64 + address) as u32, len));
        }
        // Where all of it goes.
        let (mut at, mut count, begin) = (queue.next, 0_usize, self.long + self.used);
        loop {
            let (address, len, goes_on) = queue.descriptor(at);
            let len = len as usize;
            if self.used + count + len > LONG {
                return None;
            }
            self.memory
                .copy(queue.base + address as usize, begin + count, len);
            count += len;
            at = at.wrapping_add(1);
            if !goes_on || at == queue.seen {
                break;
            }
        }
        queue.next = at;
        self.used += count;
        Some((begin as u32, count as u32))
    }

    /// Gives the frames back of all packets that were handed out.
    pub fn give_back(&mut self) {
        self.used = 0;
        for queue in &mut self.queues {
            queue.give_back();
        }
    }

    /// Where packets are: [`XdpRing::next_packets`] says where in it.
    pub fn memory(&self) -> &[u8] {
        // SAFETY: all of it is initialized and lives as long as `self`. The kernel and other workers write to frames meanwhile that
        // are not in this ring, of which nothing is read by offsets that were handed out here.
        unsafe { core::slice::from_raw_parts(self.memory.start.as_ptr(), self.memory.len) }
    }

    /// How many frames wait to be taken, with those that are being read: as many as if all queues were as full as the fullest.
    pub fn filled_frames(&self) -> u32 {
        let fullest = self.queues.iter().map(Queue::waiting).max();
        fullest
            .unwrap_or(0)
            .saturating_mul(self.queues.len() as u32)
    }

    /// Whether half of a queue's ring waits to be taken.
    pub fn is_half_full(&self) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|queue| queue.waiting() > queue.packets.mask / 2)
    }

    /// Takes no packet any more that comes from now on.
    pub fn close(&mut self) {
        if !self.is_closed {
            for queue in &mut self.queues {
                queue.end = queue.packets.producer().load(Ordering::Acquire);
            }
            self.is_closed = true;
        }
    }

    /// What was counted since the last call.
    ///
    /// # Errors
    /// The system's.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        let captured = core::mem::take(&mut self.handed);
        let mut dropped = 0;
        for queue in self.queues.iter_mut().filter(|_| !self.is_closed) {
            let lost = queue.lost()?;
            dropped += lost - core::mem::replace(&mut queue.lost, lost);
        }
        Ok(Statistics {
            captured,
            dropped,
            freezes: 0,
        })
    }

    /// Waits until packets are there, for at most `timeout_ms`, or until `waker` [wakes](Waker::wake) it. Of few packets it waits a
    /// moment for more.
    ///
    /// # Errors
    /// The system's; a signal is not an error.
    pub fn wait(&mut self, timeout_ms: u32, waker: Option<&Waker>) -> io::Result<Wakeup> {
        if self.is_closed {
            return Ok(Wakeup::Idle);
        }
        let count = |ring: &XdpRing| ring.queues.iter().map(Queue::waiting).sum::<u32>();
        if count(self) == 0 {
            let sockets = self.queues.iter().map(|queue| queue.socket.as_fd());
            let wakers = waker.iter().map(|waker| waker.as_fd());
            let polled = |fd: BorrowedFd<'_>, events| libc::pollfd {
                fd: fd.as_raw_fd(),
                events,
                revents: 0,
            };
            let mut all: Vec<_> = core::iter::once(polled(self.watch.as_fd(), 0))
                .chain(sockets.chain(wakers).map(|fd| polled(fd, libc::POLLIN)))
                .collect();
            if !poll(&mut all, timeout_ms)? {
                return Ok(Wakeup::Idle);
            }
            if let Some(waker) = waker
                && all.last().is_some_and(|polled| polled.revents != 0)
            {
                waker.settle();
            }
            if all.first().is_some_and(|watch| watch.revents != 0) {
                return Ok(Wakeup::Error);
            }
            if all.iter().all(|polled| polled.revents == 0) {
                return Ok(Wakeup::Idle);
            }
        }
        if count(self) < FEW && timeout_ms > 0 {
            std::thread::sleep(Duration::from_nanos(HOLD));
        }
        Ok(Wakeup::Ready)
    }

    /// Takes the pending error, such as `ENETDOWN`.
    pub fn take_error(&self) -> Option<io::Error> {
        raw::take_error(&self.watch)
    }
}

impl Queue {
    /// A queue of the interface, for each worker, and whether its packets come without a copy.
    fn open(
        interface: i32,
        number: u32,
        options: &XdpOptions,
        memory: &Memory,
    ) -> io::Result<(Vec<Queue>, bool)> {
        let whole = (!options.long).then_some(libc::XDP_ZEROCOPY);
        let ways = [libc::XDP_COPY | libc::XDP_USE_SG, libc::XDP_COPY];
        let mut result = Err(io::ErrorKind::Unsupported.into());
        for way in whole.into_iter().chain(ways) {
            result = Queue::bind(interface, number, options, memory, way)
                .map(|queues| (queues, way == libc::XDP_ZEROCOPY));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// The same, in this way.
    fn bind(
        interface: i32,
        number: u32,
        options: &XdpOptions,
        memory: &Memory,
        way: u16,
    ) -> io::Result<Vec<Queue>> {
        const SOL_XDP: i32 = 283;

        let base = options.queue_bytes() as usize * number as usize;
        let frames = options.queue_frames();
        let mut queues: Vec<Queue> = Vec::with_capacity(options.workers as usize);
        for _ in 0..options.workers {
            let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
            let socket = net::socket_with(AddressFamily::XDP, kind, flags, None)?;
            raw::set(&socket, SOL_XDP, libc::XDP_RX_RING, &options.frames)?;
            let mut address = libc::sockaddr_xdp {
                sxdp_family: libc::AF_XDP as u16,
                sxdp_flags: way,
                sxdp_ifindex: interface.cast_unsigned(),
                sxdp_queue_id: number,
                sxdp_shared_umem_fd: 0,
            };
            let offsets =
                || -> io::Result<[u32; 32]> { raw::get(&socket, SOL_XDP, libc::XDP_MMAP_OFFSETS) };
            let fill = if let Some(first) = queues.first() {
                address.sxdp_flags = libc::XDP_SHARED_UMEM;
                address.sxdp_shared_umem_fd = first.socket.as_raw_fd().cast_unsigned();
                Arc::clone(&first.fill)
            } else {
                let umem = libc::xdp_umem_reg {
                    addr: (memory.start.as_ptr().addr() + base) as u64,
                    len: options.queue_bytes(),
                    chunk_size: options.frame_bytes,
                    headroom: 0,
                    flags: 0,
                    tx_metadata_len: 0,
                };
                raw::set(&socket, SOL_XDP, libc::XDP_UMEM_REG, &umem)?;
                let entries = frames.next_power_of_two() as u32;
                raw::set(&socket, SOL_XDP, libc::XDP_UMEM_FILL_RING, &entries)?;
                let none = 2_u32;
                raw::set(&socket, SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &none)?;
                let place = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
                let ring = Ring::new(&socket, &offsets()?[16..24], entries, 1, place)?;
                // Before anything can come.
                for frame in 0..frames {
                    let address = frame * u64::from(options.frame_bytes);
                    ring.word(frame as u32, 0, 1)
                        .store(address, Ordering::Relaxed);
                }
                ring.producer().store(frames as u32, Ordering::Release);
                Arc::new(Mutex::new(ring))
            };
            let place = libc::XDP_PGOFF_RX_RING;
            let packets = Ring::new(&socket, &offsets()?[..8], options.frames, 2, place)?;
            raw::bind_to(&socket, &address)?;
            queues.push(Queue {
                packets,
                fill,
                socket,
                frame_mask: !(u64::from(options.frame_bytes) - 1),
                base,
                lent: 0,
                next: 0,
                seen: 0,
                end: 0,
                head: 0,
                lost: 0,
            });
        }
        Ok(queues)
    }

    /// Packets that were seen and not handed out. (Of several frames they count as several.)
    fn ahead(&self) -> u32 {
        self.seen.wrapping_sub(self.next)
    }

    /// Packets that wait to be taken, or are lent.
    fn waiting(&self) -> u32 {
        let end = self.packets.producer().load(Ordering::Acquire);
        end.wrapping_sub(self.lent)
    }

    /// A descriptor: where a packet begins, its bytes there, and whether it goes on.
    fn descriptor(&self, at: u32) -> (u64, u32, bool) {
        let word = |word: usize| self.packets.word(at, word, 2).load(Ordering::Relaxed);
        let [a, b, c, d, e, f, g, h] = word(1).to_ne_bytes();
        let len = u32::from_ne_bytes([a, b, c, d]);
        let options = u32::from_ne_bytes([e, f, g, h]);
        (word(0), len, options & libc::XDP_PKT_CONTD != 0)
    }

    /// Looks at some packets more, of those that are there, or were when it was closed. Returns whether there are others behind.
    fn look(&mut self, is_closed: bool) -> bool {
        if !is_closed {
            self.end = self.packets.producer().load(Ordering::Acquire);
        }
        let there = self.end.wrapping_sub(self.next);
        self.seen = self.next.wrapping_add(there.min(AT_ONCE));
        // Not in the midst of one.
        while self.seen != self.end && self.descriptor(self.seen.wrapping_sub(1)).2 {
            self.seen = self.seen.wrapping_add(1);
        }
        self.seen != self.end
    }

    /// Reads when the next packet came.
    fn read_head(&mut self, memory: &Memory, now: u64) {
        if self.ahead() > 0 {
            self.head = self.time_at(self.next, memory, now);
        }
    }

    /// When the packet at a place came. What the driver has no room for a time of came `now`.
    fn time_at(&self, at: u32, memory: &Memory, now: u64) -> u64 {
        let (address, _, _) = self.descriptor(at);
        match memory.time_before(self.base + address as usize) {
            0 => now,
            time => time.min(now),
        }
    }

    fn give_back(&mut self) {
        let count = self.next.wrapping_sub(self.lent);
        if count == 0 {
            return;
        }
        let fill = self.fill.lock();
        let end = fill.producer().load(Ordering::Relaxed);
        for one in 0..count {
            let (address, _, _) = self.descriptor(self.lent.wrapping_add(one));
            let word = fill.word(end.wrapping_add(one), 0, 1);
            word.store(address & self.frame_mask, Ordering::Relaxed);
        }
        self.lent = self.next;
        // Release: all reads of the frames and of their descriptors come before the kernel may write to them. There is room for all
        // frames.
        self.packets.consumer().store(self.next, Ordering::Release);
        let end = end.wrapping_add(count);
        fill.producer().store(end, Ordering::Release);
    }

    /// Packets that were lost as no frame was free, or as the ring was full.
    fn lost(&self) -> io::Result<u64> {
        const SOL_XDP: i32 = 283;
        let words: [u32; 12] = raw::get(&self.socket, SOL_XDP, libc::XDP_STATISTICS)?;
        let counter = |at: usize| u64_at(&words, at / 8);
        Ok(counter(offset_of!(libc::xdp_statistics, rx_dropped))
            + counter(offset_of!(libc::xdp_statistics, rx_ring_full)))
    }
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let mut words = Words::zeroed(bytes / 8);
        let start = NonNull::from(&mut *words).cast::<u8>();
        Memory {
            start,
            len: bytes,
            _words: words,
        }
    }

    /// Copies within it, from a frame that is ours to where nothing is lent.
    fn copy(&self, from: usize, to: usize, len: usize) {
        if from.max(to) + len > self.len {
            return;
        }
        // SAFETY: both lie inside, and apart: the first is a frame, the second behind all frames, in the part of one worker, which
        // lends nothing of it.
        unsafe {
            let start = self.start.as_ptr();
            core::ptr::copy_nonoverlapping(start.add(from), start.add(to), len);
        }
    }

    /// The word before a packet.
    fn time_before(&self, at: usize) -> u64 {
        match at.checked_sub(8) {
            // SAFETY: inside, in a frame that is ours; any bits are valid.
            Some(from) if at <= self.len => unsafe {
                self.start.as_ptr().add(from).cast::<u64>().read_unaligned()
            },
            _ => 0,
        }
    }
}

impl Ring {
    /// Maps a ring of so many entries of `words` each; `offsets` are the kernel's (`struct xdp_ring_offset`).
    fn new(
        socket: &OwnedFd,
        offsets: &[u32],
        entries: u32,
        words: usize,
        place: libc::off_t,
    ) -> io::Result<Ring> {
        let offsets = [0, 1, 2].map(|at| u64_at(offsets, at) as usize);
        let bytes = offsets[2] + entries as usize * words * 8;
        Ok(Ring {
            mapping: Mapping::new(socket, bytes, place)?,
            offsets,
            mask: entries - 1,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned, as the kernel says; it, too, uses it atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.start.as_ptr().add(self.offsets[0]).cast()) }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.mapping.start.as_ptr().add(self.offsets[1]).cast()) }
    }

    /// A word of the entry at a place, of `words` each.
    fn word(&self, at: u32, word: usize, words: usize) -> &AtomicU64 {
        let entry = (at & self.mask) as usize * words + word;
        // SAFETY: inside the mapping, which has that many entries, and aligned. Who may write it when the two numbers say.
        unsafe {
            let start = self.mapping.start.as_ptr().add(self.offsets[2]);
            AtomicU64::from_ptr(start.cast::<u64>().add(entry))
        }
    }
}

/// The word at a place among words of half its size.
fn u64_at(halves: &[u32], at: usize) -> u64 {
    let half = |half: usize| halves.get(2 * at + half).copied().unwrap_or(0);
    let [a, b, c, d] = half(0).to_ne_bytes();
    let [e, f, g, h] = half(1).to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// When the clock of the machine was 0, in nanoseconds since 1970.
fn since_boot() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_nanos() as u64);
    now.wrapping_sub(clock())
}
