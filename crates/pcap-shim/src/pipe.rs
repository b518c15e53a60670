//! Whether all of the next packet of a pipe is there, so that libpcap, which reads it as a file, does not wait for the rest.

use core::ffi::c_int;
use std::os::fd::BorrowedFd;

use crate::descriptor::is_readable;
use crate::real::{Pcap, real};

/// Bytes of a record that say how long it is.
const HEAD: usize = 16;

/// A savefile that packets are yet to come through.
#[derive(Debug)]
pub(crate) struct Pipe {
    raw: *mut Pcap,
    is_pcapng: bool,
    /// A writer that has so much more to write may wait for room.
    most: usize,
}

/// How the GNU C library's `struct _IO_FILE` begins, which its macros have made part of its ABI.
#[repr(C)]
struct Stream {
    flags: c_int,
    read_ptr: *mut u8,
    read_end: *mut u8,
    read_base: *mut u8,
    write_base: *mut u8,
    write_ptr: *mut u8,
    write_end: *mut u8,
    buffer: *mut u8,
    buffer_end: *mut u8,
}

impl Pipe {
    /// # Safety
    /// The handle must be an open savefile with a file, and stay so until this is dropped.
    pub(crate) unsafe fn new(raw: *mut Pcap, fd: BorrowedFd<'_>) -> Pipe {
        // SAFETY: the handle is open.
        let is_pcapng = unsafe { (real().major_version)(raw) } == 1;
        let capacity = rustix::pipe::fcntl_getpipe_size(fd).unwrap_or(2048);
        Pipe {
            raw,
            is_pcapng,
            // Its pages need not be full.
            most: capacity / 4,
        }
    }

    /// Whether libpcap can read a packet, or the end, without waiting. (What is too large to tell counts as there.)
    pub(crate) fn has_packet(&self, fd: BorrowedFd<'_>) -> bool {
        // SAFETY: the handle is open and has a file, which is open as long as its handle; no other thread uses it. This is how it
        // begins (see `handles`: the crate reads pipes with that library alone).
        let stream = unsafe { &mut *(real().file)(self.raw).cast::<Stream>() };
        let mut at = 0;
        loop {
            // SAFETY: what was read ahead, in the buffer of the file.
            let ahead = unsafe {
                let len = stream.read_end.offset_from_unsigned(stream.read_ptr);
                core::slice::from_raw_parts(stream.read_ptr, len)
            };
            let record = ahead.get(at..).and_then(|bytes| self.record(bytes));
            let end = at + record.map_or(HEAD, |(len, _)| len);
            match record {
                Some((_, true)) if end <= ahead.len() => return true,
                Some((_, false)) if end <= ahead.len() => {
                    at = end;
                    continue;
                }
                _ => {}
            }
            let coming = rustix::io::ioctl_fionread(fd).unwrap_or(0) as usize;
            if coming == 0 {
                // The end, or nothing.
                return is_readable(fd);
            }
            let missing = end - ahead.len();
            if !stream.read_more(fd) {
                return missing > self.most || missing <= coming;
            }
        }
    }

    /// How long the record is that begins so, and whether it is a packet; `None` if that does not say it.
    fn record(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        const SECTION: u32 = 0x0a0d_0d0a;
        let bytes = bytes.get(..HEAD)?;
        // SAFETY: the handle is open. (A section may have another byte order than the one before.)
        let is_swapped = unsafe { (real().is_swapped)(self.raw) } != 0;
        let word = |at: usize| {
            let word = u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            if is_swapped { word.swap_bytes() } else { word }
        };
        if !self.is_pcapng {
            return Some((HEAD + word(8) as usize, true));
        }
        Some(match word(0) {
            // It has its own order; a block that is nothing ends the loop nevertheless.
            SECTION => (HEAD, true),
            kind => (
                (word(4) as usize).max(HEAD - 4),
                matches!(kind, 2 | 3 | 6) || word(4) < 12,
            ),
        })
    }
}

impl Stream {
    /// Reads more into the file's buffer, behind what was read ahead; `false` if it has no room. There has to be something to read.
    fn read_more(&mut self, fd: BorrowedFd<'_>) -> bool {
        const IN_BACKUP: c_int = 0x100;
        const PUTTING: c_int = 0x800;
        if self.buffer.is_null() || self.flags & (IN_BACKUP | PUTTING) != 0 {
            return false;
        }
        // SAFETY: the buffer is one allocation that has the bytes read ahead in it, as the library keeps them; what was read before
        // them is no longer used.
        let room = unsafe {
            let len = self.read_end.offset_from_unsigned(self.read_ptr);
            if self.read_ptr > self.buffer {
                core::ptr::copy(self.read_ptr, self.buffer, len);
                self.read_base = self.buffer;
                self.read_ptr = self.buffer;
                self.read_end = self.buffer.add(len);
            }
            let room = self.buffer_end.offset_from_unsigned(self.read_end);
            core::slice::from_raw_parts_mut(self.read_end, room)
        };
        match rustix::io::read(fd, room) {
            Ok(read @ 1..) => {
                // SAFETY: so many bytes were written there, in the buffer.
                self.read_end = unsafe { self.read_end.add(read) };
                true
            }
            _ => false,
        }
    }
}
