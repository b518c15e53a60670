//! What this process may do.

use nix::sys::resource::{Resource, getrlimit};

use super::{Check, Status};
use crate::packet::{RingOptions, RingSocket};

/// Name, bit in the capability sets, what it is for, and whether live capture needs it.
const CAPABILITIES: [(&str, u32, &str, bool); 6] = [
    ("cap_net_raw", 13, "packet sockets", true),
    (
        "cap_net_admin",
        12,
        "promiscuous mode, XDP, offload settings",
        true,
    ),
    ("cap_bpf", 39, "loading eBPF programs", false),
    (
        "cap_perfmon",
        38,
        "eBPF programs that read kernel data",
        false,
    ),
    (
        "cap_sys_nice",
        23,
        "real-time priority of capture threads",
        false,
    ),
    ("cap_ipc_lock", 14, "locking large rings into memory", false),
];

pub(super) fn checks() -> Vec<Check> {
    let mut checks = capabilities();
    checks.push(packet_socket());
    checks.push(memory_lock());
    checks
}

fn capabilities() -> Vec<Check> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let each = CAPABILITIES.iter().map(|&(name, bit, purpose, needed)| {
        let Some(effective) = effective else {
            return Check::new(name, Status::Unknown, "/proc/self/status does not say");
        };
        if effective & (1 << bit) != 0 {
            return Check::ok(name, format!("granted ({purpose})"));
        }
        let status = if needed {
            Status::Missing
        } else {
            Status::Warn
        };
        let program = std::env::current_exe().map_or_else(
            |_| "flowgauge".to_owned(),
            |path| path.display().to_string(),
        );
        let grant = if needed {
            format!("sudo setcap cap_net_raw,cap_net_admin+ep {program}")
        } else {
            format!("only if wanted: sudo setcap {name}+ep {program} (with the others it has)")
        };
        Check::new(name, status, format!("not granted ({purpose})")).advise(grant)
    });
    each.collect()
}

fn packet_socket() -> Check {
    const NAME: &str = "af_packet";
    let smallest = RingOptions {
        block_bytes: 1 << 16,
        blocks: 1,
        retire_ms: 10,
    };
    match RingSocket::open(&smallest) {
        Ok(_) => Check::ok(NAME, "TPACKET_V3 ring opened"),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string())
            .advise("live capture does not work: run as root, or grant cap_net_raw"),
    }
}

fn memory_lock() -> Check {
    const NAME: &str = "memlock";
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Err(_) => Check::new(NAME, Status::Unknown, "the limit cannot be read"),
        Ok((libc::RLIM_INFINITY, _)) => Check::ok(NAME, "unlimited"),
        // Only kernels before 5.11 charge eBPF maps to it; packet rings never were.
        Ok((bytes, _)) => Check::ok(NAME, format!("{} KiB", bytes / 1024)),
    }
}
