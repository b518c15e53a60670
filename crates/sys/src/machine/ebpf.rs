//! Whether eBPF programs can be loaded, tried with the smallest ones there are.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::{Check, Status};
use crate::bpf;

/// `r0 = 0`, `exit`.
const EMPTY: [u64; 2] = [0xb7, 0x95];

pub(super) fn checks() -> Vec<Check> {
    vec![
        tried(
            "ebpf map",
            bpf::create_map(),
            "shared tables with the kernel",
        ),
        tried(
            "ebpf",
            bpf::load_socket_filter(&EMPTY),
            "discard in the kernel",
        ),
        tried(
            "xdp",
            bpf::load(bpf::XDP, &EMPTY),
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

fn open_xdp_socket() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    Ok(net::socket_with(AddressFamily::XDP, kind, flags, None)?)
}
