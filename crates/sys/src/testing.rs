//! What tests need of the machine, and the product does not: namespaces, libpcap's interpreter.

use core::ffi::{c_int, c_uint};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::libpcap::{Instruction, RawProgram};

/// Moves the calling thread into the network namespace that `ip netns add NAME` made. Sockets
/// stay in the namespace they were opened in.
///
/// # Errors
/// `NotFound` when there is no such namespace, `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter_namespace(name: &str) -> io::Result<()> {
    let file = File::open(Path::new("/run/netns").join(name))?;
    // SAFETY: an open descriptor and a flag; affects the calling thread only.
    match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct pcap_pkthdr` of 64-bit and 32-bit Linux: `struct timeval` is two `long`s.
#[repr(C)]
struct RawHeader {
    seconds: core::ffi::c_long,
    microseconds: core::ffi::c_long,
    captured_len: c_uint,
    wire_len: c_uint,
}

#[link(name = "pcap")]
unsafe extern "C" {
    fn pcap_offline_filter(
        program: *const RawProgram,
        header: *const RawHeader,
        packet: *const u8,
    ) -> c_int;
}

/// libpcap's own verdict on a packet: the snap length, 0 when it is refused. For tests of our
/// interpreter against it.
///
/// `None` when the program is not one that libpcap may be given: it must end in a return, and
/// jump forwards and inside the program only (libpcap's interpreter trusts its input).
pub fn offline_filter(program: &[Instruction], packet: &[u8], wire_len: u32) -> Option<u32> {
    if !is_safe_for_libpcap(program) {
        return None;
    }
    let raw = RawProgram {
        len: c_uint::try_from(program.len()).ok()?,
        instructions: program.as_ptr().cast_mut(),
    };
    let header = RawHeader {
        seconds: 0,
        microseconds: 0,
        captured_len: c_uint::try_from(packet.len()).ok()?,
        wire_len,
    };
    // SAFETY: libpcap only reads program and packet, both outlive the call and have the lengths
    // stated; the program was checked to terminate and to stay inside itself and its memory.
    let verdict =
        unsafe { pcap_offline_filter(&raw const raw, &raw const header, packet.as_ptr()) };
    Some(verdict.cast_unsigned())
}

/// Whether libpcap's interpreter, which trusts its input, can run `program`: known operations,
/// jumps forwards and inside, scratch cells written before they are read on every path (the
/// kernel's `check_load_and_stores`), a return at the end.
fn is_safe_for_libpcap(program: &[Instruction]) -> bool {
    // Cells that are surely written when an instruction is reached; bit i is cell i.
    let mut written = vec![u16::MAX; program.len()];
    if let Some(first) = written.first_mut() {
        *first = 0;
    }
    for (at, instruction) in program.iter().enumerate() {
        let k = instruction.k;
        let mut cells = written[at];
        let mut next = [Some(1_u64), None];
        match instruction.code {
            // Loads and register moves.
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0x80 | 0x81 | 0xb1 | 0x00 | 0x01 | 0x07
            | 0x87 => {}
            // Loads from and stores to the scratch cells.
            0x60 | 0x61 if k < 16 && cells & (1 << k) != 0 => {}
            0x02 | 0x03 if k < 16 => cells |= 1 << k,
            // Arithmetic; no division by a constant zero, no overlong shift.
            0x04 | 0x14 | 0x24 | 0x44 | 0x54 | 0xa4 | 0x84 | 0x0c | 0x1c | 0x2c | 0x3c | 0x4c
            | 0x5c | 0x6c | 0x7c | 0x9c | 0xac => {}
            0x34 | 0x94 if k != 0 => {}
            0x64 | 0x74 if k < 32 => {}
            0x05 => next = [Some(1 + u64::from(k)), None],
            0x15 | 0x25 | 0x35 | 0x45 | 0x1d | 0x2d | 0x3d | 0x4d => {
                next = [instruction.jt, instruction.jf].map(|jump| Some(1 + u64::from(jump)));
            }
            0x06 | 0x16 => next = [None, None],
            _ => return false,
        }
        for jump in next.into_iter().flatten() {
            let target = usize::try_from(at as u64 + jump).ok();
            let Some(there) = target.and_then(|target| written.get_mut(target)) else {
                return false;
            };
            *there &= cells;
        }
    }
    !program.is_empty()
}

/// From now on the calling thread, and no other of the process, is of this user and group, and of no other groups. Who it
/// connects to sees that.
///
/// # Errors
/// `EPERM` without root.
pub fn become_on_this_thread(user: u32) -> io::Result<()> {
    // SAFETY: system calls with integers, and no groups; of the thread alone, unlike what the C library makes of them.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, core::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, user, user, user),
            libc::syscall(libc::SYS_setresuid, user, user, user),
        ]
    };
    match results.iter().all(|result| *result == 0) {
        true => Ok(()),
        false => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_programs_are_not_given_to_libpcap() {
        let jump_back = Instruction {
            code: 0x05,
            k: u32::MAX,
            ..Instruction::default()
        };
        let give_up = Instruction {
            code: 0x06,
            ..Instruction::default()
        };
        assert_eq!(offline_filter(&[jump_back, give_up], &[], 0), None);
        assert_eq!(offline_filter(&[], &[], 0), None);
    }
}
