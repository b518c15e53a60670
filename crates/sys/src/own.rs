//! TCP connections of this process that carry what it has captured, or control it: a capture that sees them would send them
//! on, and see that again.
//!
//! Who makes one says so before its first packet; who captures asks for all of them when their number has changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::interfaces;

/// How long the last packets of a connection that was closed may still come.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// One end or both of a connection of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnEnd {
    /// The address here; `None`: not known.
    pub local: Option<IpAddr>,
    /// The port here.
    pub port: u16,
    /// The other end; `None`: anybody who connects to this one.
    pub remote: Option<SocketAddr>,
}

impl OwnEnd {
    /// Whether a segment from one end to the other belongs to it, in either direction.
    pub fn has(&self, source: (IpAddr, u16), destination: (IpAddr, u16)) -> bool {
        let is_it = |here: (IpAddr, u16), there: (IpAddr, u16)| {
            here.1 == self.port
                && self.local.is_none_or(|local| local == here.0)
                && (self.remote).is_none_or(|remote| (remote.ip(), remote.port()) == there)
        };
        is_it(source, destination) || is_it(destination, source)
    }
}

struct Entry {
    number: u64,
    end: OwnEnd,
    closed: Option<Instant>,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// How often the entries have changed; 0: there never was one.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// How often what [`ends`] returns has changed; 0: there never was an end.
#[inline]
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// All ends that are open, or were a minute ago.
pub fn ends() -> Vec<OwnEnd> {
    ENTRIES.lock().iter().map(|entry| entry.end).collect()
}

/// The environment variable by which a process tells those that it starts where it listens: what they capture of that goes the
/// same way round.
pub const ENVIRONMENT: &str = "FLOWGAUGE_OWN";

/// Where this process listens, for [`ENVIRONMENT`].
pub fn listeners() -> String {
    let ends = ends().into_iter().filter(|end| end.remote.is_none());
    let places = ends.filter_map(|end| Some(SocketAddr::new(end.local?, end.port).to_string()));
    places.collect::<Vec<_>>().join(" ")
}

/// Takes what [`ENVIRONMENT`] says for this process's own, for good.
pub fn adopt_listeners() {
    let told = std::env::var(ENVIRONMENT).unwrap_or_default();
    let places = told
        .split(' ')
        .filter_map(|place| place.parse::<SocketAddr>().ok());
    for place in places {
        core::mem::forget(Own::new([of_listener(place.ip(), place)]));
    }
}

/// A connection, or a place to connect to, that counts as this process's as long as this lives.
#[derive(Debug)]
pub struct Own {
    number: u64,
}

impl Own {
    fn new(ends: impl IntoIterator<Item = OwnEnd>) -> Own {
        let own = Own {
            number: CHANGES.load(Ordering::Relaxed) + 1,
        };
        own.add(ends);
        own
    }

    /// Where this process listens. Of all addresses those are meant that the machine has.
    pub fn listener(at: SocketAddr) -> Own {
        let mut addresses = vec![at.ip().to_canonical()];
        if at.ip().is_unspecified() {
            let all = interfaces::list().unwrap_or_default();
            let all = all.iter().flat_map(|one| &one.addresses);
            addresses = all.map(|(address, _)| address.to_canonical()).collect();
            addresses.extend([
                IpAddr::from(Ipv4Addr::LOCALHOST),
                Ipv6Addr::LOCALHOST.into(),
            ]);
        }
        Own::new(addresses.into_iter().map(|local| of_listener(local, at)))
    }

    /// Another address that it was connected to: the machine has got it meanwhile.
    pub fn also(&self, at: SocketAddr) {
        self.add([of_listener(at.ip().to_canonical(), at)]);
    }

    fn add(&self, ends: impl IntoIterator<Item = OwnEnd>) {
        let mut entries = ENTRIES.lock();
        let before = entries.len();
        for end in ends {
            if !entries
                .iter()
                .any(|known| known.closed.is_none() && known.end == end)
            {
                entries.push(Entry {
                    number: self.number,
                    end,
                    closed: None,
                });
            }
        }
        if entries.len() > before {
            changed(&mut entries);
        }
    }
}

fn of_listener(local: IpAddr, at: SocketAddr) -> OwnEnd {
    OwnEnd {
        local: Some(local),
        port: at.port(),
        remote: None,
    }
}

fn changed(entries: &mut Vec<Entry>) {
    entries.retain(|entry| {
        entry
            .closed
            .is_none_or(|closed| closed.elapsed() < AFTERWARDS)
    });
    CHANGES.fetch_add(1, Ordering::Release);
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut entries = ENTRIES.lock();
        for entry in entries
            .iter_mut()
            .filter(|entry| entry.number == self.number)
        {
            entry.closed = Some(Instant::now());
        }
        changed(&mut entries);
    }
}

/// Connects, as `TcpStream::connect_timeout` does, by a connection that is this process's from its first packet on.
///
/// # Errors
/// The system's.
pub fn connect(to: &SocketAddr, timeout: Duration) -> io::Result<(TcpStream, Own)> {
    let (family, any): (_, IpAddr) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(any, 0))?;
    let port = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?.port();
    let own = Own::new([OwnEnd {
        local: None,
        port,
        remote: Some(SocketAddr::new(to.ip().to_canonical(), to.port())),
    }]);
    match rustix::net::connect(&socket, to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let mut wanted = [PollFd::new(&socket, PollFlags::OUT)];
            let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut wanted, Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)?.map_err(io::Error::from)?;
        }
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok((stream, own))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn has(source: SocketAddr, destination: SocketAddr) -> bool {
        let end = |address: SocketAddr| (address.ip(), address.port());
        let all = ends();
        all.iter().any(|one| one.has(end(source), end(destination)))
    }

    #[test]
    fn connections_and_listeners_are_own_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (stream, own) = connect(&at, Duration::from_secs(10)).unwrap();
        let here = stream.local_addr().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), at);
        assert!(changes() > 0 && has(here, at) && has(at, here));
        let other = SocketAddr::new(at.ip(), at.port() ^ 1);
        assert!(!has(here, other) && !has(other, at));
        // Its last packets come when it is closed.
        drop((stream, own));
        assert!(has(here, at));

        let elsewhere: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        assert!(!has(elsewhere, at));
        let before = changes();
        let own = Own::listener(at);
        assert!(changes() > before && has(elsewhere, at) && has(at, elsewhere));
        assert!(!has(elsewhere, other));
        own.also(SocketAddr::new("192.0.2.7".parse().unwrap(), at.port()));
        let added = SocketAddr::new("192.0.2.7".parse().unwrap(), at.port());
        assert!(has(elsewhere, added));
        assert!(listeners().split(' ').any(|place| place == at.to_string()));
        let any: SocketAddr = "[::]:2233".parse().unwrap();
        let _own = Own::listener(any);
        assert!(has(elsewhere, "127.0.0.1:2233".parse().unwrap()));
        assert!(!has(elsewhere, "192.0.2.7:2233".parse().unwrap()));
    }

    #[test]
    fn where_nobody_listens_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let error = connect(&at, Duration::from_secs(10)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
