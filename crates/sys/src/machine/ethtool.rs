//! Settings of the network interfaces (`SIOCETHTOOL`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::{Check, Status, read};
use crate::interfaces::{self, NetworkInterface};

const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `ETHTOOL_G...` commands.
const DRIVER: u32 = 0x03;
const RINGS: u32 = 0x10;
const CHANNELS: u32 = 0x3c;
const TSO: u32 = 0x1e;
const GRO: u32 = 0x2b;
const FLAGS: u32 = 0x25;

/// `ETH_FLAG_` bits.
const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

pub(super) fn checks() -> Vec<Check> {
    let Ok(socket) = open() else {
        return Vec::new();
    };
    let all = interfaces::list().unwrap_or_default();
    let watched = all.iter().filter(|interface| !interface.is_loopback());
    watched
        .flat_map(|interface| checks_of(&socket, interface))
        .collect()
}

/// Receive queues of an interface, at least one.
pub fn receive_queues(name: &str) -> u32 {
    let mut channels = [0_u32; 9];
    channels[0] = CHANNELS;
    let asked = open().and_then(|socket| ethtool(&socket, name, &mut channels));
    match asked {
        // Those for receiving alone, and those for both.
        Ok(()) => (channels[5] + channels[8]).max(1),
        Err(_) => 1,
    }
}

/// Whether the card takes VLAN tags out of frames, which XDP programs do not see then.
pub fn takes_tags_out(name: &str) -> bool {
    let flags = open().ok().and_then(|it| setting(&it, name, FLAGS));
    flags.is_some_and(|flags| flags & FLAG_RX_VLAN != 0)
}

fn open() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    Ok(net::socket_with(AddressFamily::INET, kind, flags, None)?)
}

fn checks_of(socket: &OwnedFd, interface: &NetworkInterface) -> Vec<Check> {
    let name = &interface.name;
    let named = |what: &str| format!("{name} {what}");
    let mut checks = vec![state(socket, interface)];
    let merges = [
        ("gro", setting(socket, name, GRO).map(|value| value != 0)),
        (
            "lro",
            setting(socket, name, FLAGS).map(|flags| flags & FLAG_LRO != 0),
        ),
    ];
    for (what, on) in merges {
        checks.push(match on {
            None => Check::new(&named(what), Status::Unknown, "the driver does not say"),
            Some(false) => Check::ok(&named(what), "off"),
            Some(true) => Check::new(&named(what), Status::Warn, "on").advise(format!(
                "several packets arrive as one, so packet counts are too low: \
                 sudo ethtool -K {name} {what} off"
            )),
        });
    }
    let informative = [
        ("tso", setting(socket, name, TSO).map(|value| value != 0)),
        (
            "rx-vlan",
            setting(socket, name, FLAGS).map(|flags| flags & FLAG_RX_VLAN != 0),
        ),
    ];
    for (what, on) in informative {
        checks.push(match on {
            None => Check::new(&named(what), Status::Unknown, "the driver does not say"),
            Some(on) => Check::ok(&named(what), if on { "on" } else { "off" }),
        });
    }
    checks.push(receive_ring(socket, name));
    checks
}

/// Driver, speed and whether it is up.
fn state(socket: &OwnedFd, interface: &NetworkInterface) -> Check {
    let name = &interface.name;
    let driver = driver(socket, name).unwrap_or_else(|| "unknown driver".to_owned());
    let speed = read(&format!("/sys/class/net/{name}/speed"))
        .and_then(|speed| speed.parse::<u32>().ok())
        .map_or_else(
            || "unknown speed".to_owned(),
            |speed| format!("{speed} Mbit/s"),
        );
    let found = format!("{driver}, {speed}");
    if !interface.is_up() {
        return Check::new(name, Status::Warn, format!("{found}, down"))
            .advise(format!("to capture on it: sudo ip link set {name} up"));
    }
    let carrier = if interface.is_running() {
        "up"
    } else {
        "up, no carrier"
    };
    Check::ok(name, format!("{found}, {carrier}"))
}

fn receive_ring(socket: &OwnedFd, name: &str) -> Check {
    let what = format!("{name} rx ring");
    let mut rings = [0_u32; 9];
    rings[0] = RINGS;
    if ethtool(socket, name, &mut rings).is_err() || rings[1] == 0 {
        return Check::new(&what, Status::Unknown, "the driver does not say");
    }
    let (most, current) = (rings[1], rings[5]);
    let found = format!("{current} of {most} entries");
    if current < most {
        return Check::new(&what, Status::Warn, found).advise(format!(
            "bursts may overrun the card: sudo ethtool -G {name} rx {most}"
        ));
    }
    Check::ok(&what, found)
}

/// The value of a setting that is one number.
fn setting(socket: &OwnedFd, name: &str, command: u32) -> Option<u32> {
    let mut value = [command, 0];
    ethtool(socket, name, &mut value).ok()?;
    Some(value[1])
}

fn driver(socket: &OwnedFd, name: &str) -> Option<String> {
    // struct ethtool_drvinfo: 196 bytes, the driver's name in the 32 bytes behind the command.
    let mut information = [0_u32; 49];
    information[0] = DRIVER;
    ethtool(socket, name, &mut information).ok()?;
    let bytes: Vec<u8> = information[1..9]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .take_while(|&byte| byte != 0)
        .collect();
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|driver| !driver.is_empty())
}

/// Runs the command in `data[0]`, whose structure `data` must be large enough for: each command
/// used here has a structure of fixed size.
fn ethtool<const N: usize>(socket: &OwnedFd, name: &str, data: &mut [u32; N]) -> io::Result<()> {
    let needed = match data[0] {
        RINGS | CHANNELS => 9,
        DRIVER => 49,
        TSO | GRO | FLAGS => 2,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    if N < needed {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: ifreq is integers, arrays and a nullable pointer, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let name = name.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: the request and the data outlive the call; the data have at least the size of the
    // command's structure, which is the most the kernel writes.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
