//! The `TPACKET_V3` receive ring.
//!
//! ```text
//!  mapping  [ block 0 ][ block 1 ] ... [ block n-1 ]      filled in turn by the kernel
//!  block    [ status, count, offset of the first ][ header | frame ][ header | frame ] ...
//! ```
//!
//! A block belongs to the kernel or to us, by its status word. While it is ours the kernel does
//! not write to it, so its bytes can be borrowed; it goes back when its last packet is done with,
//! which is when the next packets are asked for.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::raw;
use crate::libpcap::Instruction;

pub(super) const ETH_P_ALL: u16 = 3;

/// Offsets in a block's descriptor (`struct tpacket_block_desc`).
mod block {
    pub(super) const STATUS: usize = 8;
    pub(super) const PACKETS: usize = 12;
    pub(super) const FIRST_PACKET: usize = 16;
}

/// Offsets in a packet's header (`struct tpacket3_hdr`, and `struct sockaddr_ll` behind it).
mod header {
    pub(super) const NEXT: usize = 0;
    pub(super) const SECONDS: usize = 4;
    pub(super) const NANOSECONDS: usize = 8;
    pub(super) const CAPTURED: usize = 12;
    pub(super) const WIRE: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const LINK_OFFSET: usize = 24;
    pub(super) const NETWORK_OFFSET: usize = 26;
    pub(super) const VLAN_TCI: usize = 32;
    pub(super) const VLAN_TPID: usize = 36;
    pub(super) const PROTOCOL: usize = 50;
    pub(super) const INTERFACE: usize = 52;
    pub(super) const HARDWARE: usize = 56;
    pub(super) const KIND: usize = 58;
    pub(super) const LEN: usize = 68;
}

/// Size of a receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Bytes of a block, a multiple of the page size. A frame must fit into one.
    pub block_bytes: u32,
    /// Blocks.
    pub blocks: u32,
    /// Milliseconds after which a block that is not full is handed over.
    pub retire_ms: u32,
}

/// What the kernel counted since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter and were put into the ring.
    pub captured: u64,
    /// Packets that passed the filter and found the ring full.
    pub dropped: u64,
    /// How often the ring became full.
    pub freezes: u64,
}

/// Why [`RingSocket::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// There may be packets.
    Ready,
    /// The time is over, or a signal came.
    Idle,
    /// The socket has an error: see [`RingSocket::take_error`].
    Error,
}

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPacket {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Where its link header begins in [`RingSocket::memory`].
    pub offset: u32,
    /// From there to the network header.
    pub network_offset: u32,
    /// Bytes captured.
    pub captured_len: u32,
    /// Bytes of the frame.
    pub wire_len: u32,
    /// Interface index.
    pub interface: i32,
    /// `TP_STATUS_` bits.
    pub status: u32,
    /// TPID and TCI of the VLAN tag that is not in the bytes, if there is one.
    pub vlan: Option<(u16, u16)>,
    /// Protocol as the kernel sees it (an Ethernet type), host byte order.
    pub protocol: u16,
    /// Hardware type of the interface, see [`super::hardware`].
    pub hardware: u16,
    /// Who it was for (`PACKET_HOST` ..).
    pub kind: u8,
}

impl RingPacket {
    /// Whether this host sent it.
    pub fn is_outgoing(&self) -> bool {
        self.kind == libc::PACKET_OUTGOING
    }

    /// Whether the transport checksum is yet to be filled in.
    pub fn checksum_not_ready(&self) -> bool {
        self.status & libc::TP_STATUS_CSUMNOTREADY != 0
    }

    /// Whether the card or the kernel verified the transport checksum.
    pub fn checksum_valid(&self) -> bool {
        self.status & libc::TP_STATUS_CSUM_VALID != 0
    }
}

/// What spreads packets over the sockets of a group.
#[derive(Clone, Copy, Debug)]
pub enum Fanout<'a> {
    /// Classic BPF.
    Classic(&'a [Instruction]),
    /// A program of eBPF for sockets.
    Program(BorrowedFd<'a>),
}

/// A packet socket with a mapped receive ring.
#[derive(Debug)]
pub struct RingSocket {
    ring: Mapping,
    socket: OwnedFd,
    block_bytes: usize,
    blocks: usize,
    /// The block in turn.
    block: usize,
    /// Where in it the next packet's header begins; `None` while the block is the kernel's.
    next: Option<usize>,
    packets_left: u32,
}

impl RingSocket {
    /// A socket with a ring, not bound yet: nothing arrives, so filters can be set in peace.
    ///
    /// # Errors
    /// The system's; `EPERM` without `CAP_NET_RAW`, `ENOMEM` when the ring is too large.
    pub fn open(options: &RingOptions) -> io::Result<RingSocket> {
        const TPACKET_V3: i32 = 2;

        let socket = raw::open()?;
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V3)?;
        // req3: block size, blocks, frame size, frames, retire timeout, private size, features.
        // Frame size only has to divide the block size.
        let frame_bytes = 2048_u32.min(options.block_bytes);
        let frames = options.block_bytes / frame_bytes * options.blocks;
        let request = [
            options.block_bytes,
            options.blocks,
            frame_bytes,
            frames,
            options.retire_ms,
            0,
            0,
        ];
        raw::set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let block_bytes = options.block_bytes as usize;
        let blocks = options.blocks as usize;
        let ring = Mapping::new(&socket, block_bytes * blocks, 0)?;
        Ok(RingSocket {
            ring,
            socket,
            block_bytes,
            blocks,
            block: 0,
            next: None,
            packets_left: 0,
        })
    }

    /// Puts a classic-BPF program before the ring, in place of the last one. What it returns is
    /// the snap length, 0 refuses. Packets it refuses are not counted anywhere.
    ///
    /// # Errors
    /// `EINVAL` for a program the kernel's verifier refuses.
    pub fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        raw::set_program(
            &self.socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            program,
        )
    }

    /// Puts an eBPF program before the ring, in place of the last one; otherwise as [`RingSocket::set_filter`].
    ///
    /// # Errors
    /// The system's.
    pub fn set_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let fd = program.as_raw_fd();
        raw::set(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &fd)
    }

    /// Leaves out packets this host sends (`PACKET_IGNORE_OUTGOING`, Linux 4.20).
    ///
    /// # Errors
    /// The system's.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        raw::set(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            &1_i32,
        )
    }

    /// Makes the interface promiscuous as long as the socket is open.
    ///
    /// # Errors
    /// The system's.
    pub fn set_promiscuous(&self, interface: i32) -> io::Result<()> {
        raw::set_promiscuous(&self.socket, interface)
    }

    /// Starts reception from `interface`, or from all when it is 0.
    ///
    /// # Errors
    /// `ENODEV` when it does not exist. An interface that is down binds well; the error is
    /// reported by [`RingSocket::take_error`].
    pub fn bind(&self, interface: i32) -> io::Result<()> {
        raw::bind(&self.socket, interface, ETH_P_ALL)
    }

    /// Joins a fanout group, or founds one when `group` is `None`, and returns its number. Each
    /// packet goes to one socket of the group: to the one whose number the program returns, modulo
    /// their count. All sockets must be bound alike.
    ///
    /// # Errors
    /// The system's.
    pub fn join_fanout(&self, group: Option<u16>, fanout: Fanout<'_>) -> io::Result<u16> {
        const CLASSIC_BPF: u32 = 6;
        const EBPF: u32 = 7;
        const UNIQUE_ID: u32 = 0x2000;
        const IGNORE_OUTGOING: u32 = 0x4000;

        // The group receives in its members' place and does not look at their own setting.
        let [ignored] = raw::get(&self.socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING)?;
        let mut kind = match fanout {
            Fanout::Classic(_) => CLASSIC_BPF,
            Fanout::Program(_) => EBPF,
        };
        if ignored != 0 {
            kind |= IGNORE_OUTGOING;
        }
        let option = match group {
            Some(group) => u32::from(group) | kind << 16,
            None => (kind | UNIQUE_ID) << 16,
        };
        raw::set(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &option)?;
        if let Some(group) = group {
            return Ok(group);
        }
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_FANOUT_DATA);
        match fanout {
            Fanout::Classic(program) => raw::set_program(&self.socket, level, name, program)?,
            Fanout::Program(program) => raw::set(&self.socket, level, name, &program.as_raw_fd())?,
        }
        let [joined] = raw::get(&self.socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        Ok((joined & 0xffff) as u16)
    }

    /// What was counted since the last call.
    ///
    /// # Errors
    /// The system's.
    pub fn statistics(&self) -> io::Result<Statistics> {
        statistics(self.as_fd())
    }

    /// Asks for time stamps of this kind (`PACKET_TIMESTAMP`).
    ///
    /// # Errors
    /// The system's.
    pub fn set_time_stamps(&self, kind: u32) -> io::Result<()> {
        raw::set(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_TIMESTAMP,
            &kind,
        )
    }

    /// Whether half of the ring waits to be taken.
    pub fn is_half_full(&self) -> bool {
        let ahead = (self.block + self.blocks / 2) % self.blocks;
        self.blocks > 2 && self.is_ready(ahead)
    }

    /// How many blocks wait to be taken, with the one that is being read.
    pub fn filled_blocks(&self) -> u32 {
        // They are handed over in turn: behind one that is not there are no others.
        let (mut ready, mut end) = (0, self.blocks);
        while ready < end {
            let middle = usize::midpoint(ready, end);
            match self.is_ready((self.block + middle) % self.blocks) {
                true => ready = middle + 1,
                false => end = middle,
            }
        }
        ready as u32
    }

    /// Waits until a block is ready, for at most `timeout_ms`, or until `waker` [wakes](Waker::wake) it.
    ///
    /// # Errors
    /// The system's; a signal is not an error.
    pub fn wait(&self, timeout_ms: u32, waker: Option<&Waker>) -> io::Result<Wakeup> {
        let mut both = [self.polled(), self.polled()];
        let polled = match waker {
            Some(waker) => {
                both[1].fd = waker.0.as_raw_fd();
                &mut both[..]
            }
            None => &mut both[..1],
        };
        if !poll(polled, timeout_ms)? {
            return Ok(Wakeup::Idle);
        }
        if let Some(waker) = waker
            && both[1].revents != 0
        {
            waker.settle();
        }
        let [polled, _] = both;
        Ok(match polled.revents {
            0 => Wakeup::Idle,
            events if events & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 => {
                Wakeup::Error
            }
            _ => Wakeup::Ready,
        })
    }

    fn polled(&self) -> libc::pollfd {
        libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Takes the socket's pending error, such as `ENETDOWN`.
    pub fn take_error(&self) -> Option<io::Error> {
        raw::take_error(&self.socket)
    }

    /// Hands up to `limit` packets of one block to `each`, and returns their number; 0 when no
    /// block is ready. A block whose packets were all handed out by the last call goes back to
    /// the kernel first. Offsets refer to [`RingSocket::memory`].
    pub fn next_packets(&mut self, limit: usize, mut each: impl FnMut(RingPacket)) -> usize {
        self.give_back();
        if self.next.is_none() && !self.acquire() {
            return 0;
        }
        let mut at = self.next.unwrap_or(0);
        let mut left = self.packets_left;
        let mut handed = 0;
        {
            let memory = self.memory();
            while handed < limit && left > 0 {
                let Some(packet) = packet_at(memory, at) else {
                    // The kernel never does this; never loop on it.
                    left = 0;
                    break;
                };
                each(packet);
                handed += 1;
                left -= 1;
                match read_u32(memory, at + header::NEXT) {
                    0 => left = 0,
                    next => at += next as usize,
                }
            }
        }
        self.next = Some(at);
        self.packets_left = left;
        handed
    }

    /// How many packets of the block in turn are yet to be handed out.
    pub fn left(&self) -> u32 {
        self.packets_left
    }

    /// Gives the block in turn back if all of its packets were handed out, before the next ones are asked for.
    pub fn give_back(&mut self) {
        if self.next.is_some() && self.packets_left == 0 {
            self.release();
        }
    }

    /// Puts a VLAN tag into the Ethernet frame at this offset of [`RingSocket::memory`], of so many bytes, and returns where
    /// the frame begins now. Only once for each packet.
    pub fn insert_tag(&mut self, offset: u32, len: u32, (tpid, tci): (u16, u16)) -> Option<u32> {
        const ADDRESSES: usize = 12;
        const TAG: usize = 4;
        if self.next.is_none() || (len as usize) < ADDRESSES {
            return None;
        }
        // SAFETY: as for `memory`, whose slices are not used while `self` is borrowed; the kernel leaves the block to us.
        let memory = unsafe {
            let start = self.ring.start.as_ptr().add(self.block * self.block_bytes);
            core::slice::from_raw_parts_mut(start, self.block_bytes)
        };
        // The kernel leaves so many bytes between its own header and the frame.
        let start = (offset as usize).checked_sub(TAG)?;
        let beginning = memory.get_mut(start..start + TAG + ADDRESSES)?;
        beginning.copy_within(TAG.., 0);
        let tag = u32::from(tpid) << 16 | u32::from(tci);
        beginning[ADDRESSES..].copy_from_slice(&tag.to_be_bytes());
        u32::try_from(start).ok()
    }

    /// The block that the last packets are in.
    pub fn memory(&self) -> &[u8] {
        if self.next.is_none() {
            return &[];
        }
        // SAFETY: the block lies inside the mapping; it is ours until `release`, which takes
        // `&mut self`, so the kernel does not write to it while the slice lives.
        unsafe {
            core::slice::from_raw_parts(
                self.ring
                    .start
                    .as_ptr()
                    .add(self.block * self.block_bytes)
                    .cast_const(),
                self.block_bytes,
            )
        }
    }

    /// Takes the block in turn if the kernel has handed it over.
    fn acquire(&mut self) -> bool {
        if !self.is_ready(self.block) {
            return false;
        }
        self.next = Some(0);
        let memory = self.memory();
        let packets = read_u32(memory, block::PACKETS);
        let first = read_u32(memory, block::FIRST_PACKET) as usize;
        self.packets_left = packets;
        self.next = Some(first);
        true
    }

    /// Gives the block back and turns to the next.
    fn release(&mut self) {
        self.next = None;
        // Release: all reads of the block happen before the kernel may write to it.
        self.status(self.block)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.blocks;
    }

    /// Whether the kernel has handed a block over.
    fn is_ready(&self, block: usize) -> bool {
        // Acquire: the block's contents are read after its status.
        let status = self.status(block).load(Ordering::Acquire);
        status & libc::TP_STATUS_USER != 0
    }

    /// The status word of a block, which is one of [`RingSocket::blocks`].
    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned (blocks begin at pages); kernel and user space
        // both access this word atomically.
        unsafe {
            let word = self
                .ring
                .start
                .as_ptr()
                .add((block % self.blocks) * self.block_bytes + block::STATUS);
            AtomicU32::from_ptr(word.cast())
        }
    }
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a packet socket with a ring has counted since it was asked last.
///
/// # Errors
/// The system's.
pub fn statistics(socket: BorrowedFd<'_>) -> io::Result<Statistics> {
    let [packets, dropped, freezes] = raw::get(&socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(Statistics {
        // The kernel's tp_packets includes the dropped ones.
        captured: u64::from(packets.saturating_sub(dropped)),
        dropped: u64::from(dropped),
        freezes: u64::from(freezes),
    })
}

/// Waits until one of `sockets` may have packets or has an error, for at most `timeout_ms`.
///
/// # Errors
/// The system's; a signal is not an error.
pub fn wait_any(sockets: &[&RingSocket], timeout_ms: u32) -> io::Result<()> {
    let mut polled: Vec<libc::pollfd> = sockets.iter().map(|socket| socket.polled()).collect();
    poll(&mut polled, timeout_ms).map(|_| ())
}

/// Wakes who waits for packets.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> io::Result<Waker> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags)?;
        Ok(Waker(Arc::new(event)))
    }

    /// Ends the wait under way, or else the next one.
    pub fn wake(&self) {
        // It cannot fail but where it was called that often before.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn settle(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether the wait came to its end; otherwise a signal came.
pub(super) fn poll(polled: &mut [libc::pollfd], timeout_ms: u32) -> io::Result<bool> {
    let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
    // SAFETY: so many pollfds, which outlive the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
    if ready >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(false),
        _ => Err(error),
    }
}

fn packet_at(memory: &[u8], at: usize) -> Option<RingPacket> {
    let bytes = memory.get(at..at.checked_add(header::LEN)?)?;
    let link_offset = u32::from(read_u16(bytes, header::LINK_OFFSET));
    let status = read_u32(bytes, header::STATUS);
    let tci = read_u32(bytes, header::VLAN_TCI) as u16;
    let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
            read_u16(bytes, header::VLAN_TPID)
        } else {
            0x8100
        };
        (tpid, tci)
    });
    let seconds = u64::from(read_u32(bytes, header::SECONDS));
    let network_offset = u32::from(read_u16(bytes, header::NETWORK_OFFSET));
    Some(RingPacket {
        time_ns: seconds * 1_000_000_000 + u64::from(read_u32(bytes, header::NANOSECONDS)),
        offset: u32::try_from(at).ok()? + link_offset,
        network_offset: network_offset.saturating_sub(link_offset),
        captured_len: read_u32(bytes, header::CAPTURED),
        wire_len: read_u32(bytes, header::WIRE),
        interface: read_u32(bytes, header::INTERFACE).cast_signed(),
        status,
        vlan,
        protocol: u16::from_be(read_u16(bytes, header::PROTOCOL)),
        hardware: read_u16(bytes, header::HARDWARE),
        kind: bytes[header::KIND],
    })
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    let half = bytes.get(at..).and_then(|rest| rest.first_chunk());
    half.map_or(0, |half| u16::from_ne_bytes(*half))
}

/// A shared mapping of the ring, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is owned and can be unmapped from any thread; all access goes through its
// owner, whose `&self` methods only read what is ours, or use atomic operations.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(super) fn new(socket: &OwnedFd, bytes: usize, offset: libc::off_t) -> io::Result<Mapping> {
        // SAFETY: a new shared mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned; no slice of it outlives its owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
