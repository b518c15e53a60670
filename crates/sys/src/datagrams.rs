//! Sockets that send datagrams, without waiting: to a collector, or onto an interface. They may come from another process.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType};

use crate::files::{self, next_handed};
use crate::packet::raw;

/// Those that others have opened, by their number.
static HANDED: Mutex<BTreeMap<u64, OwnedFd>> = Mutex::new(BTreeMap::new());

/// A socket that sends.
#[derive(Debug)]
pub struct Datagrams(OwnedFd);

impl Datagrams {
    /// To a UDP port, as `collector:2055`.
    ///
    /// # Errors
    /// The name is not known, or the system's.
    pub fn udp(to: &str) -> io::Result<Datagrams> {
        let nobody = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let to = to.to_socket_addrs()?.next().ok_or_else(nobody)?;
        let from: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        Ok(Datagrams(socket.into()))
    }

    /// Onto an interface: frames from their link-layer header on.
    ///
    /// # Errors
    /// It is not there, or this process may not.
    pub fn onto(interface: &str) -> io::Result<Datagrams> {
        let socket = raw::open()?;
        let index = rustix::net::netdevice::name_to_index(&socket, interface)?;
        raw::bind(&socket, index.cast_signed(), 0)?;
        Ok(Datagrams(socket))
    }

    /// One that another process has opened ([`HandedSocket`]), by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn handed(name: &str) -> io::Result<Datagrams> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "there is no such descriptor");
        let (number, _) = files::handed(name).ok_or_else(unknown)?;
        let handed = HANDED.lock();
        let socket = handed.get(&number).ok_or_else(unknown)?;
        socket.try_clone().map(Datagrams)
    }

    /// Sends one.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if there is no room for it now.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// To be handed over.
impl From<Datagrams> for OwnedFd {
    fn from(socket: Datagrams) -> OwnedFd {
        socket.0
    }
}

/// Where a socket sends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendsTo {
    /// A UDP port.
    Port,
    /// An interface, by its name.
    Interface(String),
}

/// A socket that another process has opened and handed over, which this one finds by a name while this exists.
#[derive(Debug)]
pub struct HandedSocket {
    number: u64,
    to: SendsTo,
}

impl HandedSocket {
    /// Takes a UDP socket, or a packet socket bound to an interface.
    ///
    /// # Errors
    /// It is none.
    pub fn new(socket: OwnedFd) -> io::Result<HandedSocket> {
        let kind = (socket_domain(&socket)?, socket_type(&socket)?);
        let to = match kind {
            (AddressFamily::INET | AddressFamily::INET6, SocketType::DGRAM) => SendsTo::Port,
            (AddressFamily::PACKET, SocketType::RAW) => {
                let index = raw::bound_interface(&socket)?;
                SendsTo::Interface(rustix::net::netdevice::index_to_name(&socket, index)?)
            }
            _ => {
                let what = "it is neither a UDP socket nor a packet socket of an interface";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        };
        let number = next_handed();
        HANDED.lock().insert(number, socket);
        Ok(HandedSocket { number, to })
    }

    /// By which name it is found.
    pub fn name(&self) -> String {
        format!("fd:{}", self.number)
    }

    /// Where it sends to.
    pub fn to(&self) -> &SendsTo {
        &self.to
    }
}

impl Drop for HandedSocket {
    fn drop(&mut self) {
        HANDED.lock().remove(&self.number);
    }
}
