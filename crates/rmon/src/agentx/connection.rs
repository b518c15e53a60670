//! A session over a socket, and another one whenever it ends.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::session::{Ended, Identity, Now, Session};
use crate::{Notification, Ticks, Tree};

/// How often notifications are looked for, and whether to stop.
const TICK: Duration = Duration::from_millis(100);
/// How long a write may take, and a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts to get a session.
const RETRY: Duration = Duration::from_secs(1);

/// Where the master listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address of a master (the path of its socket, as /var/agentx/master, or HOST:PORT, as localhost:705)"
)]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    /// As `snmpd` writes them, too: `unix:PATH`, `tcp:HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(bad())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse::<u16>().is_ok_and(|port| port != 0);
        if host.is_empty() || !port {
            return Err(bad());
        }
        Ok(Self::Tcp(address.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(formatter),
            Self::Tcp(address) => address.fmt(formatter),
        }
    }
}

impl Address {
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TICK))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Box::new(stream))
            }
            Self::Tcp(address) => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
                for address in address.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, PATIENCE) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_read_timeout(Some(TICK))?;
                            stream.set_write_timeout(Some(PATIENCE))?;
                            return Ok(Box::new(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// How the subagent connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the master listens.
    pub address: Address,
    /// What it is told.
    pub identity: Identity,
}

/// What happens to the sessions.
#[derive(Debug)]
pub enum Event {
    /// All objects are registered.
    Registered,
    /// There is no session; the next attempt is made in a second. Told once until the reason changes.
    Lost(String),
    /// The tables have something to tell; whether the master could be told it.
    Notified(Notification, bool),
}

/// Keeps a session with the master until `stop`, trying again every second where there is none.
///
/// `now` is the clock of the tables. The tables are locked for one message of the master at a time.
pub fn run<T: Tree>(
    options: &Options,
    tree: &Mutex<T>,
    stop: &AtomicBool,
    now: impl Fn() -> Ticks,
    mut tell: impl FnMut(Event),
) {
    let mut reason = String::new();
    while !stop.load(Ordering::Relaxed) {
        let ended = match options.address.connect() {
            Ok(stream) => serve(options, stream, tree, stop, &now, &mut |event| {
                if matches!(event, Event::Registered) {
                    reason.clear();
                }
                tell(event);
            }),
            Err(error) => Some(not_connected(&error)),
        };
        let Some(ended) = ended else {
            return;
        };
        if ended != reason {
            tell(Event::Lost(ended.clone()));
            reason = ended;
        }
        let retry = Instant::now() + RETRY;
        while Instant::now() < retry && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let notifications = tree.lock().notifications();
            for notification in notifications {
                tell(Event::Notified(notification, false));
            }
        }
    }
}

/// A session until it ends, and why, or until `stop`.
fn serve<T: Tree>(
    options: &Options,
    mut stream: Box<dyn Stream>,
    tree: &Mutex<T>,
    stop: &AtomicBool,
    now: &impl Fn() -> Ticks,
    tell: &mut impl FnMut(Event),
) -> Option<String> {
    let begin = Instant::now();
    let now = || Now {
        ticks: now(),
        elapsed: begin.elapsed(),
    };
    let mut session = Session::new(options.identity.clone(), &*tree.lock(), now());
    let mut buffer = vec![0; 64 << 10];
    let mut ready = false;
    let mut looked = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            session.close();
            // The master may be gone; we go, too.
            let _ = stream.write_all(session.output());
            return None;
        }
        if let Err(error) = stream.write_all(session.output()) {
            return Some(format!("the connection broke: {error}"));
        }
        session.output().clear();
        let received = if session.is_behind() {
            0
        } else {
            match stream.read(&mut buffer) {
                Ok(0) => return Some("the master closed the connection".to_owned()),
                Ok(length) => length,
                Err(error) if is_timeout(&error) => 0,
                Err(error) => return Some(format!("the connection broke: {error}")),
            }
        };
        let result = session.receive(&buffer[..received], &mut *tree.lock(), now());
        if let Err(ended) = result.and_then(|()| session.tick(now())) {
            return Some(explained(&ended));
        }
        if session.is_ready() && !ready {
            ready = true;
            tell(Event::Registered);
        }
        if received == 0 || looked.elapsed() >= TICK {
            looked = Instant::now();
            let notifications = tree.lock().notifications();
            for notification in notifications {
                let sent = session.notify(&notification, now());
                tell(Event::Notified(notification, sent));
            }
        }
    }
}

fn not_connected(error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            "is snmpd running, with the line 'master agentx' in snmpd.conf?"
        }
        ErrorKind::PermissionDenied => {
            "agentXPerms in snmpd.conf gives a group access to the socket and its folder"
        }
        _ => "check the address",
    };
    format!("cannot connect: {error}\nhint: {hint}")
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn explained(ended: &Ended) -> String {
    let hint = match ended {
        Ended::Refused { number, .. } if *number == super::error::DUPLICATE_REGISTRATION => {
            "\nhint: another subagent has these objects; take another priority or context"
        }
        Ended::Refused { number, .. } if *number == super::error::REQUEST_DENIED => {
            "\nhint: snmpd.conf needs the line 'master agentx'"
        }
        _ => "",
    };
    format!("{ended}{hint}")
}
