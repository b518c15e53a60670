//! A packet socket by its descriptor, such as one that libpcap has opened.

use core::ptr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::raw;
use super::ring::ETH_P_ALL;
use crate::libpcap::Instruction;

/// A socket of somebody else, or one that is used elsewhere, too, while it is open.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedSocket<'a>(BorrowedFd<'a>);

impl<'a> BorrowedSocket<'a> {
    /// What is known by this descriptor, of whatever kind.
    pub fn new(fd: BorrowedFd<'a>) -> BorrowedSocket<'a> {
        BorrowedSocket(fd)
    }

    /// The interface, if it is a packet socket bound to one, for all protocols, and its packets begin with their link
    /// headers; `None` of anything else.
    pub fn interface(&self) -> Option<i32> {
        let option = |name| raw::get(&self.0, libc::SOL_SOCKET, name).ok();
        let [domain] = option(libc::SO_DOMAIN)?;
        let [kind] = option(libc::SO_TYPE)?;
        if domain != libc::AF_PACKET as u32 || kind != libc::SOCK_RAW as u32 {
            return None;
        }
        match raw::bound(&self.0).ok()? {
            (0, _) => None,
            (interface, ETH_P_ALL) => Some(interface.cast_signed()),
            _ => None,
        }
    }

    /// Which time stamps it asks for (`PACKET_TIMESTAMP`).
    ///
    /// # Errors
    /// The system's.
    pub fn time_stamps(&self) -> io::Result<u32> {
        let [kind] = raw::get(&self.0, libc::SOL_PACKET, libc::PACKET_TIMESTAMP)?;
        Ok(kind)
    }

    /// The classic-BPF program before it; none is empty.
    ///
    /// # Errors
    /// The system's.
    pub fn filter(&self) -> io::Result<Vec<Instruction>> {
        let nothing = Instruction {
            code: 0,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let len = self.get_filter(&mut [])?;
        let mut program = vec![nothing; len];
        if len > 0 {
            let len = self.get_filter(&mut program)?;
            program.truncate(len);
        }
        Ok(program)
    }

    /// Instructions of the program; all of them if there is room, otherwise only their number is returned.
    fn get_filter(&self, program: &mut [Instruction]) -> io::Result<usize> {
        // Counted in instructions.
        let mut len = program.len() as libc::socklen_t;
        let to = match program.is_empty() {
            true => ptr::null_mut(),
            false => program.as_mut_ptr().cast(),
        };
        // SAFETY: the kernel writes at most `len` instructions, as many as there is room for.
        let status = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_GET_FILTER,
                to,
                &raw mut len,
            )
        };
        raw::check(status)?;
        Ok(len as usize)
    }

    /// Puts a classic-BPF program before it, in place of the last one. What is in its ring stays there.
    ///
    /// # Errors
    /// The system's.
    pub fn set_filter(&self, program: &[Instruction]) -> io::Result<()> {
        let name = libc::SO_ATTACH_FILTER;
        raw::set_program(&self.0, libc::SOL_SOCKET, name, program)
    }
}
