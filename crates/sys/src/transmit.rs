//! Frames that are sent as they are.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::packet::raw;

/// A packet socket that sends whole frames from one interface.
#[derive(Debug)]
pub struct TransmitSocket {
    socket: OwnedFd,
}

impl TransmitSocket {
    /// The most frames one system call sends.
    pub const MOST_PER_CALL: usize = 64;

    /// A sender on the interface with this index. It receives nothing.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` when the interface does not exist.
    pub fn open(interface: i32) -> io::Result<TransmitSocket> {
        let socket = raw::open()?;
        raw::bind(&socket, interface, 0)?;
        Ok(TransmitSocket { socket })
    }

    /// Sends the first of `frames`, at most [`TransmitSocket::MOST_PER_CALL`], in order with one
    /// system call, and returns how many were sent.
    ///
    /// # Errors
    /// The system's on the first frame: `EMSGSIZE` for one longer than the MTU allows,
    /// `ENETDOWN`, `ENOBUFS` when the device's queue is full.
    pub fn send(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let count = frames.len().min(Self::MOST_PER_CALL);
        let mut parts = [libc::iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        }; Self::MOST_PER_CALL];
        // SAFETY: mmsghdr is integers and nullable pointers, for which zeroes are valid.
        let mut messages: [libc::mmsghdr; Self::MOST_PER_CALL] = unsafe { core::mem::zeroed() };
        for ((frame, part), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
            part.iov_base = frame.as_ptr().cast_mut().cast();
            part.iov_len = frame.len();
            message.msg_hdr.msg_iov = core::ptr::from_mut(part);
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` messages point to parts, and those to frames, that outlive
        // the call; the kernel only reads the frames.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as u32,
                0,
            )
        };
        raw::check(sent)?;
        Ok(usize::try_from(sent).unwrap_or(0))
    }

    /// Sends all of `frames`, in order.
    ///
    /// # Errors
    /// As [`TransmitSocket::send`]; frames before the failing one were sent.
    pub fn send_all(&self, frames: &[&[u8]]) -> io::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            let sent = self.send(rest)?;
            rest = rest.get(sent.max(1)..).unwrap_or_default();
        }
        Ok(())
    }
}
