//! A TCP connection under TLS 1.3 with certificates on both sides, read by one thread and written by
//! others.
//!
//! Reading from the socket and writing to it wait outside of the lock on the TLS state, so that a
//! peer that does not read keeps nobody from hearing what it says.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowgauge_sys::own::{self, Own};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::certificate;
use crate::error::Error;
use crate::identity::{Identity, PROTOCOL, fingerprint};

/// Bytes read from a socket at once.
const READ_BYTES: usize = 128 << 10;
/// A write that makes no progress looks this often whether the connection was closed.
const WRITE_LOOK: Duration = Duration::from_millis(250);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(200);

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name in its certificate.
    pub name: String,
    /// SHA-256 of its certificate.
    pub fingerprint: String,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hexadecimal.
    pub key: String,
    /// Its address.
    pub address: String,
}

impl Peer {
    /// Who has shown a certificate. Nothing: it has no name.
    pub fn of(certificate: &CertificateDer<'_>, address: String) -> Option<Peer> {
        Some(Peer {
            name: certificate::holder(certificate)?,
            fingerprint: fingerprint(certificate),
            key: certificate::key(certificate)?,
            address,
        })
    }
}

/// Both halves of a connection.
pub(crate) struct Secured {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

/// What both halves share.
struct Shared {
    tls: Mutex<Connection>,
    tcp: TcpStream,
    /// Encrypted bytes on their way, in their order.
    outgoing: Mutex<Vec<u8>>,
    is_closed: AtomicBool,
    peer: Peer,
    /// What captures in this process leaves the connection out. (Those that came in are their listener's.)
    _own: Option<Own>,
}

/// The half that reads.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    raw: Vec<u8>,
    /// What of `raw` TLS has not seen.
    start: usize,
    end: usize,
}

/// The half that writes; whoever has a clone can.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

/// Connects to `address` and makes sure that `expected` (or the host in the address) is there.
pub(crate) fn connect(
    identity: &Identity,
    address: &str,
    expected: Option<&str>,
    timeout: Duration,
) -> Result<Secured, Error> {
    let deadline = Instant::now() + timeout;
    let host = host_of(address)?;
    let name = ServerName::try_from(expected.unwrap_or(host).to_owned());
    let name = name.map_err(|_| Error::Invalid {
        what: expected.unwrap_or(host).to_owned(),
        reason: "is not a name of a machine".to_owned(),
        hint: "peer = NAME, as in the other side's certificate",
    })?;
    let failed = |source| Error::Network {
        action: "connect to",
        address: address.to_owned(),
        source,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut connected = None;
    for target in address.to_socket_addrs().map_err(failed)? {
        let left = deadline.saturating_duration_since(Instant::now());
        match own::connect(&target, left.max(Duration::from_millis(1))) {
            Ok(tcp) => {
                connected = Some(tcp);
                break;
            }
            Err(error) => last = error,
        }
    }
    let (tcp, own) = connected.ok_or(last).map_err(failed)?;
    let tls = ClientConnection::new(identity.current().client, name);
    let tls = tls.map_err(|source| Error::Security {
        address: address.to_owned(),
        source,
    })?;
    secure(tcp, Some(own), tls.into(), address.to_owned(), deadline)
}

/// Takes a connection that came in.
pub(crate) fn accept(
    identity: &Identity,
    tcp: TcpStream,
    from: SocketAddr,
    timeout: Duration,
) -> Result<Secured, Error> {
    let address = from.to_string();
    let tls = ServerConnection::new(identity.current().server);
    let tls = tls.map_err(|source| Error::Security {
        address: address.clone(),
        source,
    })?;
    secure(tcp, None, tls.into(), address, Instant::now() + timeout)
}

/// The host of "host:port".
fn host_of(address: &str) -> Result<&str, Error> {
    let split = address.rsplit_once(':');
    let host = split.filter(|(_, port)| port.parse::<u16>().is_ok());
    let host = host.map(|(host, _)| host.trim_start_matches('[').trim_end_matches(']'));
    host.filter(|host| !host.is_empty())
        .ok_or_else(|| Error::Invalid {
            what: address.to_owned(),
            reason: "is not an address with a port (host:port)".to_owned(),
            hint: "write it as host:port, 192.0.2.1:2233 or [2001:db8::1]:2233",
        })
}

fn secure(
    tcp: TcpStream,
    own: Option<Own>,
    mut tls: Connection,
    address: String,
    deadline: Instant,
) -> Result<Secured, Error> {
    let prepared = tcp
        .set_nodelay(true)
        .and_then(|()| tcp.set_write_timeout(Some(WRITE_LOOK)));
    prepared.map_err(|source| Error::Network {
        action: "use the connection to",
        address: address.clone(),
        source,
    })?;
    // Frames are larger than what TLS would keep back.
    tls.set_buffer_limit(None);
    let mut patient = Patient {
        tcp: &tcp,
        deadline,
    };
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut patient) {
            // The reason, for the other side.
            let _ = tls.write_tls(&mut patient);
            return Err(failed(error, "read from", &address, deadline));
        }
    }
    // A certificate of the same authority may be for other services, which speak something else.
    if tls.alpn_protocol() != Some(PROTOCOL) {
        return Err(Error::Protocol {
            address,
            reason: "it does not speak the protocol of links (ALPN flowgauge)".to_owned(),
        });
    }
    let certificate = tls.peer_certificates().and_then(<[_]>::first);
    let Some(peer) = certificate.and_then(|der| Peer::of(der, address.clone())) else {
        return Err(Error::Protocol {
            address,
            reason: "its certificate has no name".to_owned(),
        });
    };
    let shared = Arc::new(Shared {
        tls: Mutex::new(tls),
        tcp,
        outgoing: Mutex::new(Vec::new()),
        is_closed: AtomicBool::new(false),
        peer,
        _own: own,
    });
    Ok(Secured {
        reader: Reader {
            shared: shared.clone(),
            raw: vec![0; READ_BYTES],
            start: 0,
            end: 0,
        },
        writer: Writer { shared },
    })
}

/// A socket that is read and written until a point in time, however slowly the peer goes on.
struct Patient<'a> {
    tcp: &'a TcpStream,
    deadline: Instant,
}

impl Patient<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl io::Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.tcp.set_read_timeout(Some(self.left()?))?;
            match self.tcp.read(buffer) {
                // The process was stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                read => return read,
            }
        }
    }
}

impl io::Write for Patient<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        loop {
            self.left()?;
            match self.tcp.write(buffer) {
                Err(error) if is_again(&error) => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// What an error of the socket, or of TLS inside it, means.
fn failed(error: io::Error, action: &'static str, address: &str, deadline: Instant) -> Error {
    let address = address.to_owned();
    match error.kind() {
        io::ErrorKind::TimedOut if Instant::now() >= deadline => Error::Network {
            action,
            address,
            source: io::ErrorKind::TimedOut.into(),
        },
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => Error::Closed { address },
        _ => match error.downcast::<rustls::Error>() {
            Ok(source) => Error::Security { address, source },
            Err(source) => Error::Network {
                action,
                address,
                source,
            },
        },
    }
}

impl Reader {
    pub(crate) fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Fills `buffer`; takes no longer than until `deadline`.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8], deadline: Instant) -> Result<(), Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_ready(&mut buffer[filled..])? {
                0 => self.feed(deadline)?,
                count => filled += count,
            }
        }
        Ok(())
    }

    pub(crate) fn closed(&self) -> Error {
        Error::Closed {
            address: self.shared.peer.address.clone(),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.shared.tcp.as_fd()
    }

    /// Reads what TLS has; 0: nothing at the moment.
    pub(crate) fn read_ready(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        match self.shared.tls.lock().reader().read(buffer) {
            Ok(count) if count > 0 => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            _ => Err(self.closed()),
        }
    }

    /// Gives TLS what came, at least something.
    pub(crate) fn feed(&mut self, deadline: Instant) -> Result<(), Error> {
        if self.start == self.end {
            let mut patient = Patient {
                tcp: &self.shared.tcp,
                deadline,
            };
            let read = patient.read(&mut self.raw);
            self.received(read, deadline)?;
        }
        self.give(deadline)
    }

    /// Gives TLS what is there: of what was received before, else of what the system has if it `may_receive`. Whether there was
    /// anything.
    pub(crate) fn feed_ready(&mut self, may_receive: bool) -> Result<bool, Error> {
        let now = Instant::now();
        if self.start == self.end {
            if !may_receive {
                return Ok(false);
            }
            match recv(&self.shared.tcp, &mut self.raw[..], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                read => self.received(read.map(|(count, _)| count).map_err(Into::into), now)?,
            }
        }
        self.give(now).map(|()| true)
    }

    fn received(&mut self, read: io::Result<usize>, deadline: Instant) -> Result<(), Error> {
        let address = &self.shared.peer.address;
        let count = read.map_err(|error| failed(error, "read from", address, deadline))?;
        (self.start, self.end) = (0, count);
        match count {
            0 => Err(self.closed()),
            _ => Ok(()),
        }
    }

    fn give(&mut self, deadline: Instant) -> Result<(), Error> {
        let address = &self.shared.peer.address;
        let mut rest = self.raw.get(self.start..self.end).unwrap_or_default();
        let mut tls = self.shared.tls.lock();
        let taken = tls.read_tls(&mut rest);
        taken.map_err(|error| failed(error, "read from", address, deadline))?;
        self.start = self.end - rest.len();
        match tls.process_new_packets() {
            Ok(_) => Ok(()),
            Err(source) => {
                // The reason, for the other side.
                let mut reason = Vec::new();
                while tls.wants_write() && tls.write_tls(&mut reason).is_ok_and(|count| count > 0) {
                }
                drop(tls);
                let _ = (&self.shared.tcp).write_all(&reason);
                Err(Error::Security {
                    address: address.clone(),
                    source,
                })
            }
        }
    }
}

impl Writer {
    pub(crate) fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Writes these one after the other. Waits as long as the peer lets it, until somebody closes
    /// the connection.
    pub(crate) fn write(&self, parts: &[&[u8]]) -> Result<(), Error> {
        self.write_until(parts, None)
    }

    /// The same, until then at most: what was not written is lost then, and the connection cannot be used any more.
    pub(crate) fn write_until(
        &self,
        parts: &[&[u8]],
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        self.write_by(self.shared.outgoing.lock(), parts, deadline)
    }

    /// The same, unless somebody else writes at this moment. What the system has no room for is not waited for, and lost.
    pub(crate) fn write_if_idle(&self, parts: &[&[u8]]) -> Result<(), Error> {
        match self.shared.outgoing.try_lock() {
            Some(outgoing) => self.write_by(outgoing, parts, Some(Instant::now())),
            None => Ok(()),
        }
    }

    fn write_by(
        &self,
        mut outgoing: MutexGuard<'_, Vec<u8>>,
        parts: &[&[u8]],
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        outgoing.clear();
        let failed = |error| failed(error, "write to", &self.shared.peer.address, Instant::now());
        let mut tls = self.shared.tls.lock();
        // Together, so that they share a record. There is no limit: all of it is taken.
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        tls.writer().write_vectored(&slices).map_err(failed)?;
        while tls.wants_write() {
            tls.write_tls(&mut *outgoing).map_err(failed)?;
        }
        drop(tls);
        self.drain(&outgoing, deadline).map_err(failed)
    }

    fn drain(&self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match (&self.shared.tcp).write(rest) {
                Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if is_again(&error) => {
                    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                    if is_late || self.shared.is_closed.load(Ordering::Acquire) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the connection, whoever reads or writes it.
    pub(crate) fn close(&self) {
        if self.shared.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Somebody who is writing has not said all; then there is no farewell.
        if let Some(mut outgoing) = self.shared.outgoing.try_lock() {
            outgoing.clear();
            let mut tls = self.shared.tls.lock();
            tls.send_close_notify();
            while tls.wants_write() && tls.write_tls(&mut *outgoing).is_ok_and(|count| count > 0) {}
            drop(tls);
            let _ = self.drain(&outgoing, Some(Instant::now() + FAREWELL));
        }
        let _ = self.shared.tcp.shutdown(Shutdown::Both);
    }

    /// Ends the connection without a farewell.
    pub(crate) fn abort(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        let _ = self.shared.tcp.shutdown(Shutdown::Both);
    }
}
