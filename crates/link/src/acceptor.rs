//! The end that others connect to: takes connections, finds out who it is, and bounds what strangers
//! can make it do.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowgauge_sys::own::Own;
use parking_lot::Mutex;

use crate::error::{Error, Refusal};
use crate::frame::{Answer, Opening, VERSION};
use crate::identity::Identity;
use crate::secure::{self, Secured, Writer};
use flowgauge_sys::notice::tell as notice;

/// Handshakes under way at once, in all and from one address.
const MAX_HANDSHAKES: usize = 64;
const MAX_HANDSHAKES_OF_ONE: usize = 16;
/// Strangers are told of at most this often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Threads of connections do not recurse.
const STACK_BYTES: usize = 512 << 10;

/// Whom a listener takes, and how many.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Where: `192.0.2.1:2233`, `[::]:2233`; port 0: any that is free.
    pub address: String,
    /// Who may; empty: everybody whom the authority gave a certificate.
    pub allowed: Vec<String>,
    /// Connections at once, beside those that have not said yet who they are.
    pub most_connections: usize,
    /// ... and of one name.
    pub most_of_a_name: usize,
    /// A connection that has not said by then who it is and what it wants is closed.
    pub handshake_timeout: Duration,
    /// A connection that says nothing, or no whole frame, for so long is closed.
    pub silence: Duration,
    /// The longest frame.
    pub max_frame: usize,
    /// Of a listener for items: bytes of each sender, all its sessions together, that wait to be processed.
    pub queue_bytes: usize,
    /// Of a listener for items: bytes of all senders that wait to be processed.
    pub total_bytes: usize,
}

impl ListenerOptions {
    /// The usual, at an address.
    pub fn new(address: impl Into<String>) -> ListenerOptions {
        ListenerOptions {
            address: address.into(),
            allowed: Vec::new(),
            most_connections: 256,
            most_of_a_name: usize::MAX,
            handshake_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            max_frame: 4 << 20,
            queue_bytes: 16 << 20,
            total_bytes: 256 << 20,
        }
    }
}

/// A connection that counts as long as this lives.
struct Open<'a>(&'a Shared, Writer, String);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        // In this order: a peer that sees its connection closed may come again at once.
        let mut counts = self.0.counts.lock();
        counts.connections -= 1;
        if let Some(of_name) = counts.connections_of.get_mut(&self.2) {
            *of_name -= 1;
            if *of_name == 0 {
                counts.connections_of.remove(&self.2);
            }
        }
        drop(counts);
        self.1.close();
    }
}

/// What happens with connections that were let in.
pub(crate) trait Service: Send + Sync + 'static {
    /// What the other side has to ask for.
    fn name(&self) -> &'static str;

    /// Deals with a connection until it ends.
    fn serve(&self, secured: Secured, opening: Opening, answer: Answer) -> Result<(), Error>;
}

pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    local: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    identity: Identity,
    options: ListenerOptions,
    listener: [u8; 16],
    is_stopped: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    handshakes: usize,
    handshakes_of: BTreeMap<IpAddr, usize>,
    connections: usize,
    connections_of: BTreeMap<String, usize>,
    told: Option<Instant>,
    untold: u64,
}

impl Acceptor {
    pub(crate) fn start<S: Service>(
        identity: &Identity,
        options: ListenerOptions,
        service: Arc<S>,
    ) -> Result<Acceptor, Error> {
        let failed = |source| Error::Network {
            action: "listen at",
            address: options.address.clone(),
            source,
        };
        let socket = TcpListener::bind(options.address.as_str()).map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        let own = Own::listener(local);
        let shared = Arc::new(Shared {
            identity: identity.clone(),
            listener: identity.random(),
            is_stopped: AtomicBool::new(false),
            counts: Mutex::new(Counts::default()),
            options: options.clone(),
        });
        let accepting = shared.clone();
        let thread = thread::Builder::new()
            .name("link-accept".to_owned())
            .spawn(move || accepting.accept(&socket, &own, &service));
        Ok(Acceptor {
            shared,
            local,
            thread: Some(thread.map_err(failed)?),
        })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        // The thread waits for a connection.
        let mut target = self.local;
        if target.ip().is_unspecified() {
            target.set_ip(match target.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&target, Duration::from_secs(1)).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept<S: Service>(self: &Arc<Self>, socket: &TcpListener, own: &Own, service: &Arc<S>) {
        loop {
            let accepted = socket.accept();
            if self.is_stopped.load(Ordering::Acquire) {
                return;
            }
            match accepted {
                Ok((tcp, from)) => {
                    if let Ok(local) = tcp.local_addr() {
                        own.also(local);
                    }
                    self.begin(tcp, from, service);
                }
                Err(error) => {
                    self.tell(format_args!("cannot accept a connection: {error}"));
                    // Too many open files: the next attempt fails, too, until some are closed.
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Gives a connection a thread, if there are not too many without a name.
    fn begin<S: Service>(self: &Arc<Self>, tcp: TcpStream, from: SocketAddr, service: &Arc<S>) {
        let mut counts = self.counts.lock();
        let of_one = counts.handshakes_of.get(&from.ip()).copied().unwrap_or(0);
        if counts.handshakes >= MAX_HANDSHAKES || of_one >= MAX_HANDSHAKES_OF_ONE {
            drop(counts);
            self.tell(format_args!(
                "{from}: closed: too many unauthenticated connections"
            ));
            return;
        }
        counts.handshakes += 1;
        *counts.handshakes_of.entry(from.ip()).or_insert(0) += 1;
        drop(counts);
        let (shared, service) = (self.clone(), service.clone());
        let thread = thread::Builder::new()
            .name("link-receive".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.connection(tcp, from, &*service));
        if let Err(error) = thread {
            self.handshake_over(from);
            self.tell(format_args!("{from}: cannot create a thread: {error}"));
        }
    }

    fn handshake_over(&self, from: SocketAddr) {
        let mut counts = self.counts.lock();
        counts.handshakes -= 1;
        if let Some(of_one) = counts.handshakes_of.get_mut(&from.ip()) {
            *of_one -= 1;
            if *of_one == 0 {
                counts.handshakes_of.remove(&from.ip());
            }
        }
    }

    fn connection<S: Service>(&self, tcp: TcpStream, from: SocketAddr, service: &S) {
        let entered = self.enter(tcp, from, service.name());
        self.handshake_over(from);
        let error = match entered {
            Ok((secured, opening, answer)) => {
                // Also when what serves it panics.
                let name = secured.reader.peer().name.clone();
                let _open = Open(self, secured.writer.clone(), name);
                // Who serves it knows better what an error means.
                return drop(service.serve(secured, opening, answer));
            }
            Err(error) => error,
        };
        match error.hint() {
            Some(hint) => self.tell(format_args!("refused: {error} ({hint})")),
            None => self.tell(format_args!("refused: {error}")),
        }
    }

    /// Who it is, what it wants, and whether it may.
    fn enter(
        &self,
        tcp: TcpStream,
        from: SocketAddr,
        service: &str,
    ) -> Result<(Secured, Opening, Answer), Error> {
        let timeout = self.options.handshake_timeout;
        let deadline = Instant::now() + timeout;
        let mut secured = secure::accept(&self.identity, tcp, from, timeout)?;
        let opening = Opening::read(&mut secured.reader, deadline)?;
        let refusal = self.refusal(&secured, &opening, service);
        let answer = Answer {
            version: VERSION,
            refusal,
            listener: self.listener,
            expected: None,
            max_frame: self.options.max_frame as u32,
        };
        let Some((reason, detail)) = &answer.refusal else {
            return Ok((secured, opening, answer));
        };
        let peer = secured.reader.peer();
        let error = Error::Refused {
            address: format!("{} ({})", peer.address, peer.name),
            reason: *reason,
            detail: detail.clone(),
        };
        // It may be gone already.
        let _ = answer.write(&secured.writer);
        secured.writer.close();
        Err(error)
    }

    /// Why a connection is not wanted; else it counts from now on.
    fn refusal(
        &self,
        secured: &Secured,
        opening: &Opening,
        service: &str,
    ) -> Option<(Refusal, String)> {
        let (from, to) = opening.versions;
        if !(from..=to).contains(&VERSION) {
            let detail = format!("{VERSION} here, {from} to {to} there");
            return Some((Refusal::Version, detail));
        }
        if opening.service != service {
            let detail = format!("{service} here, not {}", opening.service);
            return Some((Refusal::Service, detail));
        }
        let name = &secured.reader.peer().name;
        if !self.options.allowed.is_empty() && !self.options.allowed.contains(name) {
            return Some((Refusal::NotAllowed, name.clone()));
        }
        let mut counts = self.counts.lock();
        if counts.connections >= self.options.most_connections {
            return Some((Refusal::Full, format!("{}", counts.connections)));
        }
        let of_name = counts.connections_of.get(name).copied().unwrap_or(0);
        if of_name >= self.options.most_of_a_name {
            return Some((Refusal::Full, format!("{of_name} of {name}")));
        }
        counts.connections += 1;
        *counts.connections_of.entry(name.clone()).or_insert(0) += 1;
        None
    }

    /// Says something of strangers, who may be many.
    fn tell(&self, line: core::fmt::Arguments<'_>) {
        let mut counts = self.counts.lock();
        if counts.told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            counts.untold += 1;
            return;
        }
        counts.told = Some(Instant::now());
        let untold = core::mem::take(&mut counts.untold);
        drop(counts);
        if untold > 0 {
            notice(format_args!("{untold} more connections were refused"));
        }
        notice(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KeyFolder;
    use crate::listener::Listener;

    #[test]
    fn other_versions_and_services_are_told_why_they_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyFolder::new(folder.path());
        keys.create_authority().unwrap();
        keys.add("both", &["127.0.0.1".to_owned()], 1).unwrap();
        let identity = keys.identity(None).unwrap();
        let listener = Listener::bind(&identity, ListenerOptions::new("127.0.0.1:0")).unwrap();
        let address = listener.local_address().to_string();
        let wait = Duration::from_secs(30);
        for (versions, service, expected) in [
            ((9, 11), "items", Refusal::Version),
            ((VERSION, VERSION), "stacks", Refusal::Service),
        ] {
            let mut secured = secure::connect(&identity, &address, None, wait).unwrap();
            let opening = Opening {
                versions,
                service: service.to_owned(),
                session: [7; 16],
                acknowledged: 0,
                is_left: false,
            };
            opening.write(&secured.writer).unwrap();
            let answer = Answer::read(&mut secured.reader, Instant::now() + wait).unwrap();
            assert_eq!(answer.refusal.unwrap().0, expected);
        }
        assert!(listener.counts().is_empty());
    }
}
