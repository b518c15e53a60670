//! Whether eBPF programs can be loaded, tried with the smallest ones there are.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::{Check, Status};

const MAP_CREATE: i32 = 0;
const PROGRAM_LOAD: i32 = 5;

const ARRAY: u32 = 2;
const SOCKET_FILTER: u32 = 1;
const XDP: u32 = 6;

pub(super) fn checks() -> Vec<Check> {
    vec![
        tried("ebpf map", create_map(), "shared tables with the kernel"),
        tried("ebpf", load(SOCKET_FILTER), "discard in the kernel"),
        tried(
            "xdp",
            load(XDP),
            "discard before the kernel's network stack",
        ),
        tried(
            "af_xdp",
            open_xdp_socket(),
            "capture past the kernel's network stack",
        ),
    ]
}

fn tried(name: &str, result: io::Result<OwnedFd>, purpose: &str) -> Check {
    match result {
        Ok(_) => Check::ok(name, format!("works ({purpose})")),
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "run as root, or grant cap_bpf and cap_net_admin; lockdown mode refuses, too"
                }
                _ => "this kernel was built without it; everything works without, only slower",
            };
            Check::new(name, Status::Warn, format!("{error} ({purpose})")).advise(advice)
        }
    }
}

/// An array of one number.
fn create_map() -> io::Result<OwnedFd> {
    let mut attributes = Attributes::default();
    attributes.0[0] = pair(ARRAY, 4);
    attributes.0[1] = pair(4, 1);
    bpf(MAP_CREATE, &attributes)
}

/// A program that returns 0.
fn load(kind: u32) -> io::Result<OwnedFd> {
    /// `r0 = 0`, `exit`.
    const PROGRAM: [u64; 2] = [0xb7, 0x95];
    const LICENSE: &core::ffi::CStr = c"GPL";

    let mut attributes = Attributes::default();
    attributes.0[0] = pair(kind, PROGRAM.len() as u32);
    attributes.0[1] = PROGRAM.as_ptr() as u64;
    attributes.0[2] = LICENSE.as_ptr() as u64;
    bpf(PROGRAM_LOAD, &attributes)
}

/// The first 128 bytes of `union bpf_attr`; the rest is zero.
#[derive(Default)]
#[repr(C, align(8))]
struct Attributes([u64; 16]);

/// Two 32-bit fields that follow one another.
fn pair(first: u32, second: u32) -> u64 {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn bpf(command: i32, attributes: &Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the attributes outlive the call and have the size given; pointers in them are to
    // constants. Both commands only read them and return a new descriptor or -1.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            core::ptr::from_ref(attributes),
            size_of::<Attributes>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn open_xdp_socket() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    Ok(net::socket_with(AddressFamily::XDP, kind, flags, None)?)
}
