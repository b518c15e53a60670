//! System calls on a packet socket, with the checks in one place.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use crate::libpcap::Instruction;

/// A packet socket that receives nothing until it is bound (protocol 0).
pub(crate) fn open() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    Ok(net::socket_with(AddressFamily::PACKET, kind, flags, None)?)
}

/// `setsockopt` with a plain C value.
pub(super) fn set<T: Copy>(fd: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the size are those of `value`, which outlives the call; the kernel
    // only reads it.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            core::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(status)
}

/// `getsockopt` into `N` integers; what the kernel does not fill stays 0.
pub(super) fn get<const N: usize>(
    fd: &impl AsRawFd,
    level: i32,
    name: i32,
) -> io::Result<[u32; N]> {
    let mut value = [0_u32; N];
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`; any bits are valid u32.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(status)?;
    Ok(value)
}

/// Sets an option that takes a classic-BPF program.
pub(super) fn set_program(
    fd: &impl AsRawFd,
    level: i32,
    name: i32,
    program: &[Instruction],
) -> io::Result<()> {
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // `Instruction` has the layout of `sock_filter`; the kernel copies the program.
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut().cast(),
    };
    set(fd, level, name, &program)
}

/// Binds to an interface (0: all) for `protocol` (0: no reception).
pub(crate) fn bind(fd: &OwnedFd, interface: i32, protocol: u16) -> io::Result<()> {
    // SAFETY: sockaddr_ll is plain integers, for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface;
    bind_to(fd, &address)
}

/// Binds to an address of this kind.
pub(super) fn bind_to<T>(fd: &OwnedFd, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the size are those of `address`, which outlives the call; the kernel only reads it.
    let status = unsafe { libc::bind(fd.as_raw_fd(), core::ptr::from_ref(address).cast(), len) };
    check(status)
}

/// Makes the interface promiscuous as long as the packet socket is open.
pub(super) fn set_promiscuous(fd: &OwnedFd, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let name = libc::PACKET_ADD_MEMBERSHIP;
    set(fd, libc::SOL_PACKET, name, &request)
}

/// Takes the socket's pending error, such as `ENETDOWN`.
pub(super) fn take_error(fd: &OwnedFd) -> Option<io::Error> {
    match get(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
        Ok([0]) => None,
        Ok([code]) => Some(io::Error::from_raw_os_error(code.cast_signed())),
        Err(error) => Some(error),
    }
}

/// The number of the interface that it is bound to; 0: to none.
pub(crate) fn bound_interface(fd: &impl AsRawFd) -> io::Result<u32> {
    Ok(bound(fd)?.0)
}

/// The same, and the protocol.
pub(super) fn bound(fd: &impl AsRawFd) -> io::Result<(u32, u16)> {
    // SAFETY: sockaddr_ll is plain integers, for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `address`.
    let status =
        unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    check(status)?;
    let protocol = u16::from_be(address.sll_protocol);
    Ok((address.sll_ifindex.cast_unsigned(), protocol))
}

pub(crate) fn check(status: i32) -> io::Result<()> {
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
