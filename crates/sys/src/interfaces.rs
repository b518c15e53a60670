//! The network interfaces of this machine (of the calling thread's network namespace).

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Name.
    pub name: String,
    /// Index, from 1.
    pub index: i32,
    /// ARP hardware type, see [`crate::packet::hardware`].
    pub hardware: u16,
    /// `IFF_` bits.
    pub flags: u32,
    /// Link-layer address; empty where there is none.
    pub link_address: Vec<u8>,
    /// IP addresses with their netmasks.
    pub addresses: Vec<(IpAddr, Option<IpAddr>)>,
    /// Packets the card had no buffer for (`rx_missed_errors`), modulo 2^32.
    pub missed: u32,
}

impl NetworkInterface {
    /// Whether it is switched on.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether it has a carrier.
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// Whether it is a loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }

    /// Netmask of its first IPv4 address.
    pub fn netmask(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().find_map(|(_, mask)| match mask {
            Some(IpAddr::V4(mask)) => Some(*mask),
            _ => None,
        })
    }
}

/// All interfaces, by index.
///
/// # Errors
/// The system's.
pub fn list() -> io::Result<Vec<NetworkInterface>> {
    let mut first: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: getifaddrs stores a list that is ours to free.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = BTreeMap::<String, NetworkInterface>::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an element of the list, which lives until freeifaddrs.
        let entry = unsafe { &*at };
        // SAFETY: the name is a terminated string of the same list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let name = name.to_string_lossy().into_owned();
        let interface = found.entry(name.clone()).or_default();
        interface.name = name;
        interface.flags = entry.ifa_flags;
        // SAFETY: pointers of an element of the list.
        unsafe { add_address(interface, entry) };
        at = entry.ifa_next;
    }
    // SAFETY: what getifaddrs returned, freed once; nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    // Of an interface without a link-layer address (tun) the list has none. Labels of addresses are none, either.
    let unknown = |one: &&mut NetworkInterface| one.index == 0 && !one.name.contains(':');
    for interface in found.values_mut().filter(unknown) {
        if let (Some(index), Ok(hardware)) =
            (index_of(&interface.name), hardware_of(&interface.name))
        {
            (interface.index, interface.hardware) = (index, hardware);
        }
    }
    let mut interfaces: Vec<_> = found.into_values().filter(|one| one.index != 0).collect();
    interfaces.sort_by_key(|interface| interface.index);
    Ok(interfaces)
}

/// # Safety
/// `entry` must be an element of a list from getifaddrs that is not freed yet.
unsafe fn add_address(interface: &mut NetworkInterface, entry: &libc::ifaddrs) {
    /// Place of `rx_missed_errors` in `struct rtnl_link_stats`, which is 32-bit counters.
    const MISSED: usize = 15;

    if entry.ifa_addr.is_null() {
        return;
    }
    // SAFETY: not null; every address begins with its family.
    if i32::from(unsafe { (*entry.ifa_addr).sa_family }) == libc::AF_PACKET {
        // SAFETY: an address of this family is a sockaddr_ll.
        let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_ll>().read_unaligned() };
        interface.index = address.sll_ifindex;
        interface.hardware = address.sll_hatype;
        let len = usize::from(address.sll_halen).min(address.sll_addr.len());
        interface.link_address = address.sll_addr[..len].to_vec();
        if !entry.ifa_data.is_null() {
            // SAFETY: for this family the data are a whole rtnl_link_stats (24 counters).
            interface.missed = unsafe { entry.ifa_data.cast::<u32>().add(MISSED).read_unaligned() };
        }
        return;
    }
    // SAFETY: an address and a netmask of the element, null or whole.
    unsafe {
        if let Some(address) = ip(entry.ifa_addr) {
            interface.addresses.push((address, ip(entry.ifa_netmask)));
        }
    }
}

/// # Safety
/// `address` must be null or a whole socket address.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the family says which type it is.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// The ARP hardware type of an interface.
fn hardware_of(name: &str) -> io::Result<u16> {
    let request = ask(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the call has written it.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// The longest IP datagram that an interface sends.
///
/// # Errors
/// The system's: there is no such interface.
pub fn mtu_of(name: &str) -> io::Result<u32> {
    let request = ask(name, libc::SIOCGIFMTU)?;
    // SAFETY: the call has written it.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

/// Whether packets to anywhere, or to a half of all addresses, leave by an interface.
///
/// # Errors
/// The system does not tell its routes.
pub fn has_default_route(name: &str) -> io::Result<bool> {
    const REJECTS: u32 = 0x200;
    let v4 = fs::read_to_string("/proc/net/route")?;
    let leads = v4.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // (In the byte order of the machine.)
        let mask = fields
            .get(7)
            .and_then(|it| u32::from_str_radix(it, 16).ok());
        fields.first() == Some(&name) && mask.is_some_and(|mask| mask.count_ones() <= 1)
    });
    // (There is none without IPv6.)
    let v6 = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    Ok(leads
        || v6.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let flags = fields
                .get(8)
                .and_then(|it| u32::from_str_radix(it, 16).ok());
            fields.last() == Some(&name)
                && matches!(fields.get(1), Some(&("00" | "01")))
                && flags.is_some_and(|flags| flags & REJECTS == 0)
        }))
}

/// What the system says of an interface.
fn ask(name: &str, what: libc::Ioctl) -> io::Result<libc::ifreq> {
    let socket = net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain integers and pointers, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed() as libc::c_char;
    }
    // SAFETY: the request outlives the call, which reads the name in it and writes an answer.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}

/// The name of the interface with this index.
pub fn name_of(index: i32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the call asks for.
    let found = unsafe { libc::if_indextoname(index.try_into().ok()?, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Bits per second of the interface with this name; 0 where it does not say.
pub fn speed(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed"));
    let megabits = text.ok().and_then(|text| text.trim().parse::<u32>().ok());
    u64::from(megabits.unwrap_or(0)) * 1_000_000
}

/// Frames with a wrong check sequence or a part of an octet, and collisions, as far as the driver counts them.
pub fn errors_of(name: &str) -> [u64; 2] {
    let counter = |counter: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/statistics/{counter}"));
        let number = text.ok().and_then(|text| text.trim().parse::<u64>().ok());
        number.unwrap_or(0)
    };
    [
        counter("rx_crc_errors") + counter("rx_frame_errors"),
        counter("collisions"),
    ]
}

/// The index of the interface with this name.
pub fn index_of(name: &str) -> Option<i32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => i32::try_from(index).ok(),
    }
}
